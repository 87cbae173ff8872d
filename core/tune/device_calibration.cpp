#include "tune/device_calibration.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <functional>
#include <latch>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "graph/covering_heads.h"
#include "search/workspace_bytes.h"
#include "tune/curves.h"
#include "tune/device_work.h"
#include "tune/trials.h"

namespace gannet {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kFewAnswers = DeviceCalibration::kFirstAnswers;
constexpr uint32_t kSomeAnswers = 100;
static_assert(kSomeAnswers == kDeepAnswers);
static_assert(4 * kRowsMin > 4 * kSomeAnswers);  // a sample knows this many answers
constexpr uint32_t kMoreAnswers = 300;
constexpr uint32_t kManyAnswers = 1000;
constexpr uint32_t kQueriesForSome = 1024;  // queries for more than one answer, each of which averages them
constexpr uint32_t kQueriesForMany = 64;
constexpr uint32_t kWideRow = 512;    // bytes that walks compare, from which on half of the queries serve
constexpr uint32_t kWalksAtOnce = 6;  // of curves, each on a stream of its own

// Along the slack. Where the graph bounds the recall, more slack than the last only reads more rows.
constexpr double kSlackMin = -0.10;
constexpr double kSlackMax = 0.60;
constexpr double kCautiousSlack = 0.1;  // without a calibration, as ann.h says it
constexpr double kFirstStep = 0.04;
constexpr double kStepMin = 0.004;
constexpr double kStepMax = 0.12;
constexpr double kFall = 0.6;     // of the miss's logarithm from point to point,
constexpr double kFallMax = 0.9;  // and where it fell by more another point is put between, or it is a cliff
constexpr double kGrowthMax = 1.7;  // of expansions likewise
constexpr double kRecallMin = 0.7;  // below, the exact fall does not matter
constexpr double kStraightMost = 0.9;
constexpr double kRise = 0.0005;  // slack over which a step rises
constexpr double kLastMiss = 0.0009;
constexpr double kStuck = 0.3;  // fall of the miss's logarithm for a growth of the expansions'
// Where codes order rows well enough for ten answers and not for a hundred, walks of blocks of eight warps for a hundred are
// what finds .999 of the first ten, and go on for these: in larger steps, up to a mean of so many expansions, and where
// these miss little but promise less than that, by all queries: 1,024 of them that find all or none promise .9987 where
// they miss two answers, 2,048 .9992. Time at .999 of ten of 60,000 patches beside comparing all rows: one query .46, 100
// 1.36, 10,000 .40; of 850,000 .61, not run, .54 (one NVIDIA H100). All curves traced until they promise .999 instead of
// measuring it made builds of gist take 1.34 of the time.
constexpr double kGrowthBeyond = 2.5;
constexpr double kExpansionsBeyond = 512;
constexpr uint32_t kWarpsOfBlocks = 8;  // in large batches
constexpr double kWorthMore = 0.9995;  // recall of the first ten, from which on more queries may promise .999

constexpr uint32_t kNoCap = 4096;  // expansions, the bound of every walk of two lists

// Walks that stray are capped at so many times the mean, and at more where it is they that find the rest: where less is
// missed than kStrayMiss, and from where more slack hardly raises a recall. A batch waits for its longest walk: beside 8
// times for all, 1,000 queries of 850,000 patches take .78 and .72 of the time at .95 and .99, of 60,000 .81 at .99 (one
// NVIDIA H100). Fewer times cut deeper, but curves rise unevenly then: with 1.8 times 1,000 queries by product took .70 to
// .78, 10,000 of 850,000 patches 1.29 at .99, where a warp no longer reached it, and batches of some sizes got .006 to .012
// more recall than others; with 1.4 times .99 by product was left to comparing all rows.
constexpr double kStray = 4;
constexpr double kStrayMiss = 0.01;
constexpr double kStrayMax = 8;
constexpr double kStrayMin = 64;  // expansions

constexpr double kExpansionsMax = 1024;  // the highest mean that is measured,
constexpr double kOfWarpMax = 400;       // and by a warp for a hundred answers
// A warp's curve ends where its walks are counted to take so many times as long as a block's in a large batch, which a
// search leaves to blocks from 1.4 times on (index/choose.cpp). The last two trials took 15 and 9 of the 33 and 27 ms
// of GIST's curves, 13 of 29 by product (one NVIDIA H100).
constexpr double kFarBehind = 1.5;
// Any curve that promises kPromisedAtLeast ends where its walks are counted to take so many times as long as comparing all
// rows: a search compares all rows from 1.1 times on. Of blocks 1 to 1,024 queries decide, of warps 4,096, where walks wait
// for the longest, and four times as many: walks of 119 expansions over 60,000 x 256 rows count as 1.25 times as long as
// all rows at 4,096, and as shorter at 10,000. By 4,096 alone word counts' build took 86 ms instead of 110, glyphs' 114
// instead of 117, and batches of 1 to 10,000 for .9, .95, .99 and .999 were answered as before (one NVIDIA H200).
constexpr double kBehindAllRows = 1.25;
constexpr double kPromisedAtLeast = 0.95;
constexpr double kCut = 1.05;  // times the mean of uncapped walks, where all of a batch are resident
constexpr double kCapMin = 4;  // for means near zero
constexpr double kCutRecallMax = 0.991;  // beyond, blocks answer: the longest runs are not made twice

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Takes the memory of all walks of `count` queries before the first runs: an allocation waits for running kernels.
void reserve_workspaces(DevicePlacement& placement, uint32_t count) {
  const SentQueries to_come;
  const auto take = [&](uint32_t workspaces, uint32_t queries, uint32_t k) {
    std::vector<std::unique_ptr<DeviceWorkspaceLease>> held;
    while (held.size() < workspaces)
      held.push_back(std::make_unique<DeviceWorkspaceLease>(placement, queries, k, &to_come));
  };
  take(DeviceCalibration::kTables, count, 1);
  take(kWalksAtOnce, std::min(count, kQueriesForSome), kSomeAnswers);
}

TwoListsPlan plan_of(double slack, double cap, uint32_t warps) {
  return {static_cast<float>(slack), static_cast<uint32_t>(cap), warps};
}

/// What the walks of a sample by one plan found of all answers, and where `first` of one and of few of them.
struct Outcomes {
  Outcomes(Trials& walks, const TwoListsPlan& plan, bool first) : all(walks.run(kTwoLists, plan)) {
    if (!first) return;
    one = walks.first_of(1);
    few = walks.first_of(kFewAnswers);
  }

  Outcome all;
  Outcome one = {};
  Outcome few = {};
};

/// One of these, as a point of a curve.
struct Trial {
  double slack = 0;
  double recall = 0;  // mean
  double promised = 0;
  double expansions = 0;
  double cap = kNoCap;
  double recall_first = 1;  // of the first ten answers, mean
  double recall_more = 1;   // the same of more queries, where these were walked for
  double promised_first = 0;
};

}  // namespace

/// A curve that another waits for.
class DeviceCalibration::TracedCurve {
 public:
  explicit TracedCurve(const Curve* curve) : curve_(curve) {}
  /// Waits until it is traced, or will not be.
  const Curve& curve() {
    traced_.wait();
    return *curve_;
  }
  void set_traced() { traced_.count_down(); }

 private:
  const Curve* curve_;
  std::latch traced_{1};
};

/// The points of one curve, and where `first` is not null those of the first ten answers of the same walks, which
/// searches for fewer answers may take (search/plan.h, kDeepAnswers). What is found of these counts for `curve`, too.
class DeviceCalibration::CurvePoints {
 public:
  CurvePoints(const CalibrationQueries& queries, Curve* curve, Curve* first)
      : queries_(queries), curve_(*curve), first_(first) {}

  double recall_max = 0;  // mean

  const Curve& curve() const { return curve_; }
  bool have_first() const { return first_ != nullptr; }
  bool have_room() const { return curve_.count < kPoints && (first_ == nullptr || first_->count < kPoints); }

  /// What is promised of walks that found this.
  Trial judge(double slack, double cap, const Outcomes& outcomes) {
    const Outcome& all = outcomes.all;
    recall_max = std::max(recall_max, all.recall);
    // The recall of one answer is all or none of itself.
    all_or_none_ |= curve_.k > 1 && all.is_all_or_none();
    Trial trial{slack, all.recall, promise(all, curve_.k, all_or_none_), all.expansions, cap};
    if (first_ == nullptr) return trial;
    // Where hundreds of copies differ in stored rows alone, 0.99 of a hundred and 0.89 of the first are found.
    for (const uint32_t answers : {1u, kFewAnswers}) {
      const Outcome& first = answers == 1 ? outcomes.one : outcomes.few;
      // Where rows have some tens of near copies, the first ten are found all or none, and a hundred are not.
      first_all_or_none_ |= all_or_none_ || (answers > 1 && first.is_all_or_none());
      const double promised = promise(first, answers, answers > 1 && first_all_or_none_);
      trial.recall_first = trial.recall_more = first.recall;  // at last of the first ten
      trial.promised_first = promised;
      if (promised >= trial.promised) continue;
      trial.recall = first.recall;
      trial.promised = promised;
    }
    return trial;
  }

  double promise_of_first(const Outcome& first) const {
    return promise(first, kFewAnswers, first_all_or_none_);
  }

  void add(const Trial& trial) { add(curve_, trial, trial.promised); }
  void add_first(const Trial& trial) {
    if (first_ != nullptr) add(*first_, trial, trial.promised_first);
  }

  /// Where queries find all of several neighbours or none (copies, islands, corners of a cube), a slack that
  /// lets walks into the right place lets most of them in at once: the recall rises in steps, somewhere between
  /// two points. It is to be had at the upper one alone: 0.8 by a slack in between got 0.759, and 0.95 0.926.
  void make_steps() {
    if (all_or_none_) curve_.make_steps();
    if (first_all_or_none_) first_->make_steps();
  }

 private:
  double promise(const Outcome& outcome, uint32_t answers, bool all_or_none) const {
    return std::max(0.0,
                    queries_.promise(outcome.recall) - queries_.allow_for(outcome, answers, all_or_none));
  }

  /// Adds a point, unless one before it promises as much. Tracing goes by the curve of all answers, so that that of the
  /// first may be full.
  static void add(Curve& curve, const Trial& trial, double promised) {
    if (curve.count == kPoints) return;
    Point* end = curve.points + curve.count;
    Point* place = std::find_if(curve.points, end, [&](const Point& p) { return p.slack > trial.slack; });
    if (place != curve.points && place[-1].recall >= promised) return;
    if (place != end && place->recall <= promised) return;
    std::copy_backward(place, end, end + 1);
    *place = {promised, trial.slack, trial.cap, trial.expansions};
    ++curve.count;
  }

  const CalibrationQueries& queries_;
  Curve& curve_;
  Curve* first_;  // or null
  bool all_or_none_ = false;
  bool first_all_or_none_ = false;
};

/// Finds the points of one curve. The slack grows in steps after which the miss has fallen to about half;
/// miss and expansions are expected to go on as between the last two points. The curve of the first ten answers does
/// not change the walks, but for those beyond the end of that of all, which are measured by more queries.
class DeviceCalibration::CurveTracer {
 public:
  /// Walks of more queries, whose first ten true neighbours are known; null: there are none, or no memory for them.
  using FindMore = std::function<Trials*()>;

  /// `blocks`, unless null, has the curve of the same answers by a block's walks, if that is traced.
  CurveTracer(const SearchTarget& target, Trials& walks, uint32_t warps, TracedCurve* blocks,
              CurvePoints* points, FindMore find_more)
      : target_(target),
        walks_(walks),
        warps_(warps),
        blocks_(blocks),
        points_(*points),
        find_more_(std::move(find_more)) {
    // Their few queries say little of those that stray: 64 without a miss promised .99 of 300 answers by product, of
    // which 1,000 queries found .977.
    if (curve().k > kSomeAnswers) stray_ = kStrayMax;
  }

  void run() {
    double step = kFirstStep;
    for (double slack = kSlackMin; slack <= kSlackMax && points_.have_room(); slack += step) {
      const double cap = trials_ == 0 ? kNoCap : stray_cap(last_.recall, last_.expansions);
      Trial trial = measure(slack, cap);
      if (!is_beyond_) points_.add(trial);
      is_beyond_ = is_beyond_ || ends_curve(trial);
      const bool goes_beyond = is_beyond_ && points_.have_first() && warps_ == kWarpsOfBlocks;
      if (goes_beyond && trial.promised_first < KnobCurve::kEnough && trial.recall_first >= kWorthMore)
        measure_first(&trial);
      points_.add_first(trial);
      if (trial.expansions > expansions_max() || (is_beyond_ && !goes_beyond)) break;
      if (goes_beyond && ends_first(trial)) break;
      if (is_far_behind(trial) || is_behind_all_rows(trial)) break;
      before_ = last_;
      last_ = trial;
      ++trials_;
      step = next_step(step);
    }
    while (curve().count < kPoints && refine()) {
    }
  }

 private:
  const Curve& curve() const { return points_.curve(); }

  Trial measure(double slack, double cap) {
    return points_.judge(slack, cap, Outcomes(walks_, plan_of(slack, cap, warps_), points_.have_first()));
  }

  /// The first answers once more by more queries, where there are any.
  void measure_first(Trial* trial) {
    if (more_ == nullptr && find_more_) more_ = find_more_();
    if (more_ == nullptr) return;
    const Outcome outcome = more_->run(kTwoLists, plan_of(trial->slack, trial->cap, warps_));
    trial->recall_more = outcome.recall;
    trial->promised_first = points_.promise_of_first(outcome);
  }

  /// The cap on walks that stray, behind a trial of this recall and these mean expansions.
  double stray_cap(double recall, double expansions) const {
    const double times = stray_ * std::sqrt(std::max(1.0, kStrayMiss / miss_of(recall)));
    return std::clamp(std::min(times, kStrayMax) * expansions, kStrayMin, static_cast<double>(kNoCap));
  }

  bool is_far_behind(const Trial& trial) const {
    Point of_block;
    return blocks_ != nullptr && trial.recall >= kRecallMin &&
           blocks_->curve().find(trial.promised, 0, &of_block) &&
           time_of(1, trial.expansions, kLargeBatch) >
               kFarBehind * time_of(kWarpsOfBlocks, of_block.expansions, kLargeBatch);
  }

  bool is_behind_all_rows(const Trial& trial) const {
    const bool promises = (is_beyond_ ? trial.promised_first : trial.promised) >= kPromisedAtLeast;
    const auto behind = [&](double queries) {
      const DeviceBatch batch{queries, is_beyond_ ? kFirstAnswers : curve().k};
      return time_of(warps_, trial.expansions, queries) >
             kBehindAllRows * exact_time(target_.segment().dataset, batch);
    };
    constexpr auto kOfWarps = std::to_array<double>({kLargeBatch, 4 * kLargeBatch});
    constexpr auto kOfBlocks = std::to_array<double>({1, 32, 256, 1024});
    return promises &&
           (warps_ == 1 ? std::ranges::all_of(kOfWarps, behind) : std::ranges::all_of(kOfBlocks, behind));
  }

  double time_of(uint32_t warps, double expansions, double queries) const {
    const Segment& segment = target_.segment();
    return two_lists_time(segment.graph, two_lists_row_bytes(segment, *target_.device),
                          {warps, false, segment.codes.scaled() != nullptr}, expansions,
                          {queries, curve().k});
  }

  double expansions_max() const {
    return warps_ == 1 && curve().k == kSomeAnswers ? kOfWarpMax : kExpansionsMax;
  }

  /// Whether more slack is not worth a trial for all answers. Where walks that stray are capped early, they are let go on.
  bool ends_curve(const Trial& trial) {
    if (trial.recall >= KnobCurve::kEnough) return true;
    if (!is_stuck(trial, &Trial::recall, curve().count)) return false;
    const bool was_capped = stray_ < kStrayMax;
    stray_ = kStrayMax;
    return !was_capped;
  }

  /// Nor for the first. Where all of these are found by all queries, no more slack promises more.
  bool ends_first(const Trial& trial) const {
    return trial.promised_first >= KnobCurve::kEnough || trial.recall_more >= 1 ||
           trial.expansions > kExpansionsBeyond || is_stuck(trial, &Trial::recall_first, trials_);
  }

  /// Whether more work, after some trials, has hardly raised a recall.
  bool is_stuck(const Trial& trial, double Trial::* recall, uint32_t tried) const {
    if (tried < 3 || trial.expansions < 1.2 * last_.expansions) return false;
    return std::log(miss_of(last_.*recall) / miss_of(trial.*recall)) <
           kStuck * std::log(trial.expansions / last_.expansions);
  }

  double next_step(double step) const {
    if (trials_ < 2) return step;
    const double fall = std::log(miss_of(before_.recall) / miss_of(last_.recall));
    // The last point is at the wanted recall: slack costs most at the end.
    const double needed = std::log(miss_of(last_.recall) / kLastMiss);
    const double wanted = fall > 0 ? step * std::min(kFall, std::max(needed, 0.1)) / fall : kStepMax;
    const double growth = std::log(std::max(1.0, last_.expansions) / std::max(1.0, before_.expansions));
    const bool is_costly = growth > 0 && last_.recall > kRecallMin;
    const double allowed =
        is_costly ? step * std::log(is_beyond_ ? kGrowthBeyond : kGrowthMax) / growth : kStepMax;
    if (is_beyond_) return std::clamp(allowed, kStepMin, 2 * step);
    return std::clamp(std::clamp(std::min(wanted, allowed), step / 4, step * 2), kStepMin, kStepMax);
  }

  /// Measures halfway between two points where the miss fell by too much; false where there are none.
  bool refine() {
    for (uint32_t i = 1; i < curve().count; ++i) {
      const Point& low = curve().points[i - 1];
      const Point& high = curve().points[i];
      const bool steep = std::log(miss_of(low.recall) / miss_of(high.recall)) > kFallMax;
      if (!steep || high.recall < kRecallMin || high.slack - low.slack < 2 * kStepMin) continue;
      const uint32_t count = curve().count;
      const Trial trial = measure((low.slack + high.slack) / 2, stray_cap(high.recall, high.expansions));
      points_.add(trial);
      points_.add_first(trial);
      if (curve().count > count) return true;
    }
    return false;
  }

  const SearchTarget& target_;
  Trials& walks_;
  uint32_t warps_;
  TracedCurve* blocks_;  // or null
  CurvePoints& points_;
  FindMore find_more_;
  Trials* more_ = nullptr;
  Trial before_;
  Trial last_;
  uint32_t trials_ = 0;
  double stray_ = kStray;
  bool is_beyond_ = false;  // all of the curve's answers are done with, and the first are not
};

/// The queries of the curves with their true neighbours. Those for the fewest answers, which are the most queries, and
/// those for the most answers are found when they are first asked for: meanwhile the others are walked for.
class DeviceCalibration::Samples {
 public:
  Samples(const SearchTarget& target, const CalibrationQueries& queries, const Execution& execution)
      : target_(target),
        queries_(queries),
        execution_(execution),
        share_(queries.count() >= kHiddenFew && walks_wide_rows(target) ? 2 : 1),
        // Ten answers average enough, but where a query finds all of them or none.
        full_answers_(target.segment().graph.heads.empty() ? 1 : kFewAnswers),
        deep_(target, queries, std::min(queries.count(), kQueriesForSome) / share_, kSomeAnswers, execution) {
  }

  const CalibrationQueries& queries() const { return queries_; }

  const Sample& of(uint32_t k) {
    if (needs_full(k)) return full();
    return k <= kSomeAnswers ? deep_ : many();
  }

  bool needs_full(uint32_t k) const { return k <= full_answers_; }

  /// All queries with their first ten true neighbours; null where these are no more.
  const Sample* more() { return queries_.count() / share_ <= deep_.count() ? nullptr : &full(); }

  const Sample& full() {
    std::call_once(full_once_, [this] {
      full_.emplace(target_, queries_, queries_.count() / share_, kFewAnswers, execution_, &deep_);
    });
    return *full_;
  }

 private:
  /// Where queries find all of their answers or none, all are needed.
  static bool walks_wide_rows(const SearchTarget& target) {
    const Segment& segment = target.segment();
    return two_lists_row_bytes(segment, *target.device) >= kWideRow && segment.graph.heads.empty();
  }

  const Sample& many() {
    std::call_once(many_once_,
                   [this] { many_.emplace(target_, queries_, kQueriesForMany, kManyAnswers, execution_); });
    return *many_;
  }

  const SearchTarget& target_;
  const CalibrationQueries& queries_;
  const Execution& execution_;
  uint32_t share_;  // one of so many queries serves
  uint32_t full_answers_;
  Sample deep_;
  std::once_flag full_once_;
  std::once_flag many_once_;
  std::optional<Sample> full_;
  std::optional<Sample> many_;
};

/// A curve to be traced, and what that took.
struct DeviceCalibration::Job {
  uint32_t table;
  Curve* curve;
  Curve* first = nullptr;                          // of the first answers of its walks, or null
  Curve* capped = nullptr;                         // that of resident batches, which follows from it, or null
  Curve* first_capped = nullptr;                   // likewise
  std::shared_ptr<TracedCurve> awaited = nullptr;  // itself, if another waits for it, or null
  std::shared_ptr<TracedCurve> blocks = nullptr;   // that it waits for, or null
  double seconds = 0;
  double recall_max = 0;
  uint32_t runs = 0;

  void run(const SearchTarget& target, Samples& samples, const Execution& execution) {
    const Clock::time_point begin = Clock::now();
    const SetTraced set_traced{awaited.get()};
    Trials walks(target, samples.of(curve->k), curve->k, execution);
    std::optional<Trials> more;
    CurvePoints points(samples.queries(), curve, first);
    CurveTracer whole(target, walks, kWarps[table], blocks.get(), &points, [&]() -> Trials* {
      try {
        const Sample* sample = samples.more();
        return sample == nullptr ? nullptr : &more.emplace(target, *sample, curve->k, execution);
      } catch (const Error& error) {
        if (error.status != ANN_DEVICE_NO_MEMORY) throw;
        return nullptr;
      }
    });
    whole.run();
    if (capped != nullptr) trace_capped(walks, CurvePoints(samples.queries(), capped, first_capped));
    points.make_steps();
    seconds = seconds_since(begin);
    recall_max = points.recall_max;
    runs = walks.runs + (more ? more->runs : 0);
  }

 private:
  /// At the end of a run, which an error may be.
  struct SetTraced {
    TracedCurve* curve;
    ~SetTraced() {
      if (curve != nullptr) curve->set_traced();
    }
  };

  /// The points of the whole curve, whose walks are uncapped, with capped walks.
  void trace_capped(Trials& walks, CurvePoints points) const {
    double promised = 0;
    for (uint32_t i = 0; i < curve->count && promised < kCutRecallMax; ++i) {
      const Point& whole = curve->points[i];
      const double cap = kCapMin + kCut * whole.expansions;
      const Outcomes outcomes(walks, plan_of(whole.slack, cap, kWarps[table]), points.have_first());
      const Trial trial = points.judge(whole.slack, cap, outcomes);
      points.add(trial);
      points.add_first(trial);
      promised = trial.promised;
    }
    points.make_steps();
  }
};

/// The most answers of a sorted list of 32 rows.
static constexpr uint32_t few_most(bool lossless) {
  constexpr uint32_t kLossless = 32;
  constexpr uint32_t kLossy = 16;
  static_assert(list_length(kLossless, true) == kWideBlockListMax);
  static_assert(list_length(kLossy, false) == kWideBlockListMax);
  return lossless ? kLossless : kLossy;
}

/// Gives each table the curves of its warps for some numbers of answers, ascending, all without points, and returns the
/// tasks that trace them. Those of blocks come first, since those of a warp wait for some; of these, those that take
/// longest: their walks are for the most answers, or the sample is large.
std::vector<DeviceCalibration::Job> DeviceCalibration::plan_curves(const SearchTarget& target,
                                                                   std::span<const uint32_t> answers) {
  const DevicePlacement& placement = *target.device;
  const bool lossless = target.segment().codes.lossless();
  const uint32_t few = few_most(lossless);
  const auto serves = [&](uint32_t warps, uint32_t k) {
    if (k > kSomeAnswers)
      return warps == 8 && target.segment().rows() > 4 * kManyAnswers &&
             blocks_serve(placement, kManyAnswers);
    if (warps == 1) return two_lists_serve(k, lossless);
    return (warps == 16 ? k <= few : k != few) && blocks_serve(placement, k);
  };
  std::fill(std::begin(tables_), std::end(tables_), Table{});
  for (uint32_t place = 0; place < kTables; ++place) tables_[place].query_warps = {kWarps[place], false};
  Table& resident = tables_[kTables];
  resident.query_warps = {1, true};
  std::vector<Job> jobs;
  const auto add_curve = [](Table& table, uint32_t k) {
    Curve& curve = table.curves[table.count++];
    curve.k = k;
    return &curve;
  };
  const auto first_of = [&](Table& table, uint32_t k) -> Curve* {
    if (k != kDeepAnswers || lossless) return nullptr;
    table.first.k = kFirstAnswers;
    return &table.first;
  };
  for (const uint32_t k : answers) {
    for (uint32_t place = kTables; place-- > 0;) {
      Table& table = tables_[place];
      if (!serves(kWarps[place], k)) continue;
      Job job = {place, add_curve(table, k), first_of(table, k)};
      if (kWarps[place] == 1 && cuda::resident_queries(placement, k) > 0) {
        job.capped = add_curve(resident, k);
        job.first_capped = first_of(resident, k);
      }
      jobs.push_back(job);
    }
  }
  for (Job& job : jobs) {
    const auto block = std::ranges::find_if(jobs, [&](const Job& other) {
      return kWarps[job.table] == 1 && kWarps[other.table] == kWarpsOfBlocks &&
             other.curve->k == job.curve->k;
    });
    if (block == jobs.end()) continue;
    block->awaited = job.blocks = std::make_shared<TracedCurve>(block->curve);
  }
  const auto rank = [](const Job& job) {
    return job.curve->k > kSomeAnswers ? 0 : kWarps[job.table] != 1 ? 1 : 2;
  };
  std::ranges::stable_sort(jobs, std::less(), rank);
  return jobs;
}

void DeviceCalibration::measure(const SearchTarget& target, const Execution& execution) {
  measure_curves(target, std::to_array({kFewAnswers, kSomeAnswers}), nullptr, execution);
  is_whole_ = empty();
}

void DeviceCalibration::measure_others(const SearchTarget& target, const Execution& execution) {
  const auto known = std::make_unique<const DeviceCalibration>(*this);
  const uint32_t few = few_most(target.segment().codes.lossless());
  measure_curves(target, std::to_array({1u, kFewAnswers, few, kSomeAnswers, kMoreAnswers, kManyAnswers}),
                 known.get(), execution);
  is_whole_ = true;
}

/// Fills in a task's curves, if they are known.
bool DeviceCalibration::give_known(Job& job) const {
  const uint32_t k = job.curve->k;
  if (k != kFirstAnswers && k != kDeepAnswers) return false;
  const auto give = [k](const Table& table, Curve* curve, Curve* first) {
    const Curve* end = table.curves + table.count;
    if (curve != nullptr)
      *curve = *std::find_if(table.curves, end, [k](const Curve& of) { return of.k == k; });
    if (first != nullptr) *first = table.first;
  };
  give(tables_[job.table], job.curve, job.first);
  give(tables_[kTables], job.capped, job.first_capped);
  if (job.awaited != nullptr) job.awaited->set_traced();
  return true;
}

/// Measures the curves of some numbers of answers, ascending, but for those of `known`, unless null.
void DeviceCalibration::measure_curves(const SearchTarget& target, std::span<const uint32_t> answers,
                                       const DeviceCalibration* known, const Execution& execution) {
  const Segment& segment = target.segment();
  const uint32_t count = count_calibration_queries(segment.dataset, segment.queries);
  if (count == 0) return;
  std::vector<Job> jobs = plan_curves(target, answers);
  if (known != nullptr) std::erase_if(jobs, [known](Job& job) { return known->give_known(job); });
  execution.enter("calibrate");
  const Clock::time_point start = Clock::now();
  // They hide rows, for which there is to be memory, and hold a lock of this thread's.
  CalibrationQueries queries(target, count, execution);
  // The memory of the walks is taken while the device finds true neighbours: to pin some takes as long.
  std::optional<Samples> samples;
  run_both(
      execution,
      [&] {
        queries.send(segment, execution);
        samples.emplace(target, queries, execution);
      },
      [&] { reserve_workspaces(*target.device, queries.count()); });
  cost_.ground_truth_seconds += seconds_since(start);

  if (known == nullptr) choose_pivots(target, *samples, execution);
  trace(target, jobs, *samples, execution);
}

void DeviceCalibration::trace(const SearchTarget& target, std::vector<Job>& jobs, Samples& samples,
                              const Execution& execution) {
  // None keeps the device busy alone. The first task finds what curves for the fewest answers wait for.
  const bool needs_full =
      std::ranges::any_of(jobs, [&](const Job& job) { return samples.needs_full(job.curve->k); });
  Execution alone = execution;
  alone.threads = 1;
  Execution each = execution;
  each.threads = std::min(execution.threads, kWalksAtOnce);
  parallel_for(each, jobs.size() + 1, 1, [&](uint64_t task, uint64_t, uint32_t) {
    if (task == 0 && needs_full)
      samples.full();
    else if (task > 0)
      jobs[task - 1].run(target, samples, alone);
  });
  for (const Job& job : jobs) {
    cost_.seconds[job.table] += job.seconds;
    cost_.runs[job.table] += job.runs;
    if (job.curve->k == kFewAnswers) recall_max_ = std::max(recall_max_, static_cast<float>(job.recall_max));
  }
}

/// Makes covering heads the placement's pivots, where a block's walks from there find more of the islands.
void DeviceCalibration::choose_pivots(const SearchTarget& target, Samples& samples,
                                      const Execution& execution) const {
  constexpr double kMissedLeast = 0.001;
  constexpr double kMissedStill = 0.5;
  DevicePlacement& placement = *target.device;
  const SearchGraph& graph = target.segment().graph;
  const bool may_gain = graph.heads.size() > kPivots && !placement.has_covering_pivots() &&
                        target.segment().codes.scaled() == nullptr && blocks_serve(placement, kFewAnswers);
  if (!may_gain) return;
  Trials walks(target, samples.of(kFewAnswers), kFewAnswers, execution);
  const auto missed = [&] {
    return miss_of(walks.run(kTwoLists, plan_of(kCautiousSlack, kNoCap, kWarpsOfBlocks)).recall);
  };
  const double before = missed();
  if (before <= kMissedLeast) return;
  const Array<uint32_t> covering = covering_heads(graph, target.segment().codes, execution);
  if (covering.empty()) return;
  if (!placement.replace_pivots(graph, {covering.data(), covering.size()}, execution)) return;
  // Where there is no memory for the usual ones any more, these serve as well.
  if (missed() > kMissedStill * before) placement.replace_pivots(graph, {}, execution);
}

/// With fewer points, where not all have room for a foot.
void DeviceCalibration::Curve::make_steps() {
  while (2 * count > kPoints + 1) {
    uint32_t least = 1;  // the point without which those that go to the next lose least
    for (uint32_t i = 1; i + 1 < count; ++i) {
      const auto gain = [&](uint32_t at) {
        return miss_of(points[at].recall) / miss_of(points[at + 1].recall);
      };
      if (gain(i) < gain(least)) least = i;
    }
    std::copy(points + least + 1, points + count, points + least);
    --count;
  }
  for (uint32_t i = count; i-- > 1;) {
    Point foot = points[i];
    foot.recall = points[i - 1].recall;
    foot.slack -= kRise;
    if (foot.slack <= points[i - 1].slack) continue;
    std::copy_backward(points + i, points + count, points + count + 1);
    points[i] = foot;
    ++count;
  }
}

/// The point where the curve reaches `recall`. Between points the logarithm of the miss is in proportion
/// to the slack, unless it falls off a cliff there: rows in islands by inner product are all about as far
/// as each other, and none is found below a slack of 0. Halfway up such a cliff a search for a recall of
/// 0.95 found 0.10. Below kStraightMost, where points are a tenth of recall apart, recall grows as a straight line: ten of
/// 200,000 rows by product got .784 where .8 was wanted. That gives no recall more slack than kStraightMost has.
bool DeviceCalibration::Curve::find(double recall, double doubt, Point* point) const {
  uint32_t above = 0;
  while (above < count && points[above].recall < recall) ++above;
  if (above == count) {
    if (count == 0 || points[count - 1].recall + doubt < recall) return false;
    *point = points[count - 1];
    return true;
  }
  *point = points[above];
  if (above == 0) return true;
  const Point& below = points[above - 1];
  // Where a step rises is not known more closely: at a slack of 0, say, from where rows at equal distances are walked.
  if (point->slack - below.slack < 2 * kRise) return true;
  const double fall = std::log(miss_of(below.recall) / miss_of(points[above].recall));
  if (fall > kFallMax) return true;
  const auto by_miss = [&](double wanted) {
    return std::log(miss_of(below.recall) / miss_of(std::min(wanted, points[above].recall))) / fall;
  };
  const double straight = (recall - below.recall) / (points[above].recall - below.recall);
  const double part = by_miss(recall);
  const bool is_low = recall < kStraightMost;
  point->move_to(below, 1 - (is_low ? std::max(part, std::min(straight, by_miss(kStraightMost))) : part));
  return true;
}

/// Between curves in proportion to log k, but with the larger slack of both: by inner product blocks of 8 for k = 30
/// got .933 where .95 was asked with a slack in proportion. Beyond the last curve nothing is known.
bool DeviceCalibration::Table::find(uint32_t k, double recall, double doubt, Point* point) const {
  uint32_t above = 0;
  while (above < count && curves[above].k < k) ++above;
  if (above == count) return false;
  if (!curves[above].find(recall, doubt, point)) return false;
  if (above == 0 || curves[above].k == k) return true;
  Point low;
  if (!curves[above - 1].find(recall, doubt, &low)) return false;
  const double part = std::log(static_cast<double>(k) / curves[above - 1].k) /
                      std::log(static_cast<double>(curves[above].k) / curves[above - 1].k);
  const double slack = std::max(low.slack, point->slack);
  point->move_to(low, 1 - part);
  point->slack = slack;
  return true;
}

/// Other numbers of answers than ten go by the curve for a hundred, which promises the least of all; all do where there is
/// no other curve, as in files from before 1.7.
bool DeviceCalibration::Table::find_deep(uint32_t k, double recall, double doubt, Point* point) const {
  return (k == kFirstAnswers && first.find(recall, doubt, point)) || find(kDeepAnswers, recall, doubt, point);
}

void DeviceCalibration::Point::move_to(const Point& other, double part) {
  slack += part * (other.slack - slack);
  recall += part * (other.recall - recall);
  expansions += part * (other.expansions - expansions);
  expansions_max *= std::pow(other.expansions_max / expansions_max, part);
}

Effort DeviceCalibration::Point::effort(uint32_t warps) const {
  Effort effort;
  effort.warps = warps;
  effort.knob = slack;
  effort.expansions_max = static_cast<uint32_t>(std::ceil(expansions_max));
  effort.recall = recall;
  effort.expansions = expansions;
  return effort;
}

bool DeviceCalibration::empty() const {
  return std::all_of(std::begin(tables_), std::end(tables_),
                     [](const Table& table) { return table.count == 0; });
}

std::optional<Effort> DeviceCalibration::find(QueryWarps query_warps, uint32_t k, float recall,
                                              double doubt) const {
  return find_by(&Table::find, query_warps, k, recall, doubt);
}

std::optional<Effort> DeviceCalibration::find_deep(QueryWarps query_warps, uint32_t k, float recall,
                                                   double doubt) const {
  return find_by(&Table::find_deep, query_warps, k, recall, doubt);
}

std::optional<Effort> DeviceCalibration::find_by(FindPoint find_point, QueryWarps query_warps, uint32_t k,
                                                 float recall, double doubt) const {
  for (const Table& table : tables_) {
    Point point;
    if (table.query_warps != query_warps || !(table.*find_point)(k, recall, doubt, &point)) continue;
    Effort effort = point.effort(query_warps.warps);
    effort.capped = query_warps.resident;
    effort.recall = std::max(effort.recall, static_cast<double>(recall));
    return effort;
  }
  return std::nullopt;
}

Effort DeviceCalibration::nearest(uint32_t warps, uint32_t k, float recall) const {
  const QueryWarps query_warps = {warps, false};
  if (const auto effort = find(query_warps, k, recall)) return *effort;
  const auto unpromised = [&](const Point& point) {
    Effort effort = point.effort(warps);
    effort.recall = 0;  // of another k, or less than the request's
    return effort;
  };
  for (const Table& table : tables_) {
    if (table.query_warps != query_warps || table.count == 0) continue;
    uint32_t place = 0;
    while (place + 1 < table.count && table.curves[place].k < k) ++place;
    const Curve& curve = table.curves[place];
    Point point;
    if (curve.find(recall, 0, &point)) return unpromised(point);  // of a smaller k
    if (curve.count == 0) continue;
    const Point& last = curve.points[curve.count - 1];
    return curve.k == k ? last.effort(warps) : unpromised(last);
  }
  Point cautious;
  cautious.slack = kCautiousSlack;
  cautious.expansions_max = kNoCap;
  for (double miss = 0.05; miss > 1 - recall && cautious.slack < kSlackMax; miss /= 2)
    cautious.slack += kCautiousSlack / 2;
  return unpromised(cautious);
}

/// Each of the curves that are traced at once has a workspace. A small request may lease a large workspace that is idle,
/// so that all may become large.
uint64_t device_calibration_bytes(const PlacedShape& shape, uint64_t given) {
  const uint32_t count =
      count_calibration_queries(shape.rows, static_cast<uint32_t>(std::min<uint64_t>(given, kQueriesKept)));
  if (count == 0) return 0;
  const uint64_t workspaces = uint64_t{kWalksAtOnce} * workspace_device_bytes(shape, count, kSomeAnswers);
  const uint64_t hiding = given == 0 ? shape.hiding_bytes() : 0;
  const uint64_t ground_truth =
      std::max(ground_truth_device_bytes(shape, count, kFewAnswers),
               ground_truth_device_bytes(shape, std::min(count, kQueriesForSome), kSomeAnswers));
  return hiding + workspaces + ground_truth;
}

}  // namespace gannet
