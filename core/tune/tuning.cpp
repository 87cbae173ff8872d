#include "tune/tuning.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>

#include "tune/device_work.h"

namespace gannet {
namespace {

constexpr uint32_t kRowsOnDeviceMin = 10'000;  // for held-out rows on a device
constexpr uint32_t kHostShare = 16;            // one row in this many at most is held out on the CPU
constexpr uint32_t kHostMin = 32;
constexpr uint32_t kSomeAnswers = 100;
constexpr uint32_t kManyAnswers = 1000;
constexpr uint32_t kQueriesForSome = 1024;  // queries for kSomeAnswers, each of which averages more answers
constexpr uint32_t kHostQueriesForSome = 64;
constexpr uint32_t kQueriesForMany = 64;
constexpr uint32_t kWidthProbe = 4;  // the value of the knob, by its place, with which p is looked for
constexpr double kReached = 0.998;   // from this recall on no more random rows are needed
constexpr double kWidthGain = 0.7;   // of the miss is left at most where twice the rows help
constexpr double kCapMin = 4;        // for means near zero
constexpr double kBatchesCompared[] = {1, cuda::kExactFewQueries, kLargeBatch - 1, 10'000};  // with all rows
constexpr uint32_t kNewRows = 4;  // of this many edges that a walk reads, one leads to a row not visited yet

/// The number of queries for a target; 0 where they are too few.
uint32_t count_trial_queries(const SearchTarget& target) {
  const Segment& segment = target.segment();
  const bool by_rows = segment.queries.count() == 0;
  if (target.on_device()) {
    if (Tuning::are_few_rows(segment)) return 0;
    const uint32_t count = by_rows ? std::min(hideable_rows(segment.rows()), kDeviceQueriesMax)
                                   : count_calibration_queries(segment.dataset, segment.queries);
    return count < kGivenMin ? 0 : count;
  }
  const uint32_t most = by_rows ? segment.rows() / kHostShare : segment.queries.count();
  const uint32_t count = std::min(most, kHostQueriesMax);
  return count < (by_rows ? kHostMin : kGivenMin) ? 0 : count;
}

/// The most of them for k answers.
uint32_t most_queries(const SearchTarget& target, uint32_t k) {
  if (k < kSomeAnswers) return kDeviceQueriesMax;
  if (k > kSomeAnswers) return kQueriesForMany;
  return target.on_device() ? kQueriesForSome : kHostQueriesForSome;
}

/// Plans of one procedure, as its parameters' defaults have them.
struct Planner {
  const SearchTarget& target;
  const Procedure& procedure;
  const ann_search_params& like;
  uint32_t queries;

  SearchPlan operator()(uint32_t k, double knob, uint32_t width, double cap = 0) const {
    const SearchRequest request{like, 0, queries, k, k};
    return procedure.plan(target, request, {knob, static_cast<uint32_t>(cap), width});
  }
};

/// p beyond which random rows reach no more islands. A search starts from p times the degree random rows: of 16
/// islands 32 rows reach the right one for 0.87 of the queries, whatever M. So p is doubled until recall
/// grows no more.
uint32_t find_width(Trials& trials, const Planner& plan) {
  const Procedure& procedure = plan.procedure;
  std::optional<double> knob;
  for (uint32_t step = kWidthProbe + 1; !knob && step-- > 0;) knob = procedure.knob_at(plan.target, 1, step);
  if (!knob) return 1;
  uint32_t width = 1;
  double before = 0;
  for (uint32_t trial = 1; trial <= procedure.width_max; trial *= 2) {
    const double recall = trials.run(procedure, plan(1, *knob, trial)).recall;
    if (trial > 1 && miss_of(recall) > kWidthGain * miss_of(before)) break;
    width = trial;
    if (recall >= kReached) break;
    before = recall;
  }
  return width;
}

/// The cap on expansions, where the mean without a cap is `expansions`.
double cap_of(const SearchTarget& target, const Procedure& procedure, double expansions) {
  return target.on_device() && procedure.cut != 0 ? kCapMin + procedure.cut * expansions : 0;
}

/// Whether one list of a device takes far longer than comparing all rows, for any number of queries, so that AUTO never
/// takes it. Its costs jump where batches are large, and those of all rows where queries are filtered.
bool is_beaten(const SearchTarget& target, uint32_t k, double beam) {
  constexpr double kFar = 2;
  const Segment& segment = target.segment();
  const size_t row_bytes = walked_row_bytes(segment, *target.device);
  return std::ranges::all_of(kBatchesCompared, [&](double queries) {
    const DeviceBatch batch{queries, k};
    return one_list_time(segment.graph, row_bytes, beam, batch) > kFar * exact_time(segment.dataset, batch);
  });
}

/// Whether a curve goes no further than a value of the knob. Callers that name the walk get the longest that was tried, so
/// that beams up to some times k are always among them.
bool ends_curve(const SearchTarget& target, const Procedure& procedure, uint32_t k, double knob,
                double expansions) {
  const bool compares_all = expansions * target.segment().graph.degree / kNewRows > target.segment().rows();
  if (&procedure != &kBestFirst) return compares_all;
  return knob >= 4.0 * k + 64 && (compares_all || is_beaten(target, k, knob));
}

/// Measures one curve.
void trace(Trials& trials, const Planner& plan, uint32_t width, KnobCurve& curve) {
  bool all_or_none = false;
  for (uint32_t step = 0;; ++step) {
    const std::optional<double> knob = plan.procedure.knob_at(plan.target, curve.k, step);
    if (!knob) return;
    Outcome outcome = trials.run(plan.procedure, plan(curve.k, *knob, width));
    const double cap = cap_of(plan.target, plan.procedure, outcome.expansions);
    if (cap != 0) outcome = trials.run(plan.procedure, plan(curve.k, *knob, width, cap));
    all_or_none |= curve.k > 1 && outcome.is_all_or_none();
    const CalibrationQueries& queries = trials.queries();
    const bool ends = curve.add(*knob, queries.promise(outcome.recall),
                                queries.allow_for(outcome, curve.k, all_or_none), outcome.expansions, cap);
    if (ends || outcome.recall >= KnobCurve::kEnough) return;
    if (ends_curve(plan.target, plan.procedure, curve.k, *knob, outcome.expansions)) return;
  }
}

/// Adds the curves for `answers`, by `count` queries at most.
void measure_curves(const SearchTarget& target, std::span<const uint32_t> answers, uint32_t count,
                    const Execution& execution, MeasuredProcedure& measured) {
  const Procedure& procedure = *find_procedure(measured.like.procedure);
  CalibrationQueries queries(target, count, execution);
  // The kernels of these procedures cannot mask a row for one query alone.
  if (target.on_device() && queries.are_rows() && !queries.are_hidden()) return;
  queries.send(target.segment(), execution);
  const Planner plan{target, procedure, measured.like, count};
  for (const uint32_t k : answers) {
    if (4 * uint64_t{k} + queries.count() > target.segment().rows()) return;
    const uint32_t used = std::min(count, most_queries(target, k));
    const Sample sample(target, queries, used, k, execution);
    Trials trials(target, sample, k, execution);
    if (k == 1 && procedure.width_max > 1) measured.width = find_width(trials, plan);
    trace(trials, plan, measured.width, measured.curves.add(k));
  }
}

void measure(const SearchTarget& target, const Execution& execution, MeasuredProcedure& measured) {
  const Procedure& procedure = *find_procedure(measured.like.procedure);
  const KnobScale scale = procedure.knob == Knob::kSlack ? KnobScale::kSlack : KnobScale::kRows;
  measured.curves = KnobCurves(scale, procedure.knob_in_steps);
  const uint32_t count = count_trial_queries(target);
  if (count == 0) return;
  execution.enter("calibrate");
  if (procedure.width_max > 0) measured.width = 1;
  measure_curves(target, std::to_array({1u, 10u, kSomeAnswers}), count, execution, measured);
  // Few rows are hidden for many answers: true neighbours are found among 1,024, and those that are hidden do not count.
  if (procedure.answers_measured >= kManyAnswers && measured.curves.count() == 3)
    measure_curves(target, std::to_array({kManyAnswers}), std::min(count, kQueriesForMany), execution,
                   measured);
}

bool are_equal(const ann_search_params& a, const ann_search_params& b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

}  // namespace

bool Tuning::are_few_rows(const Segment& segment) {
  return segment.queries.count() == 0 && segment.rows() < kRowsOnDeviceMin;
}

const Tuning::Asked& Tuning::entry_of(const ann_search_params& like) const {
  const std::lock_guard lock(mutex_);
  for (const auto& asked : asked_) {
    if (are_equal(asked->like, like)) return *asked;
  }
  auto asked = std::make_unique<Asked>();
  asked->like = like;
  asked_.push_back(std::move(asked));
  return *asked_.back();
}

std::optional<Effort> Tuning::find(const SearchTarget& target, const ann_search_params& like, uint32_t k,
                                   float recall, const Execution& execution) const {
  const MeasuredProcedure& measured =
      entry_of(like).measured.get(execution, [&](MeasuredProcedure& measured, const Execution& all) {
        measured.like = like;
        measure(target, all, measured);
      });
  if (measured.curves.empty()) return std::nullopt;
  Effort effort;
  effort.knob = measured.curves.knob(k, recall);
  effort.width = measured.width;
  if (measured.curves.tell_of(k)) {
    effort.recall = measured.curves.recall(k, effort.knob);
    // The recall of a knob is rounded, and may end a little below its target.
    if (measured.curves.reaches(k, recall)) effort.recall = std::max(effort.recall, double{recall});
  }
  effort.expansions = measured.curves.cost(&KnobPoint::expansions, k, effort.knob);
  effort.expansions_max =
      static_cast<uint32_t>(std::ceil(measured.curves.cost(&KnobPoint::bound, k, effort.knob)));
  return effort;
}

}  // namespace gannet
