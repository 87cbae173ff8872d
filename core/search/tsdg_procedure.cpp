// TSDG's searches as rows of the table: for small batches, for large ones, and the CPU's own, whose name stands on a
// CUDA device for one of the others.

#include <algorithm>

#include "search/batch_on_host.h"
#include "search/procedure.h"
#include "search/tsdg.h"

namespace gannet {
namespace {

// The paper's values (5.4: factors below 10 and below 5), and where it gives none those measured on the first
// 100,000 rows of SIFT.
constexpr uint32_t kSmallOcclusion = 10;
constexpr uint32_t kLargeOcclusion = 5;
constexpr uint32_t kSegments = 8;

void check_range(const char* name, uint64_t value, uint64_t high) {
  if (value > high)
    fail(ANN_INVALID_ARGUMENT, "params.%s is %llu, allowed are 0 to %llu", name,
         static_cast<unsigned long long>(value), static_cast<unsigned long long>(high));
}

/// (a * SMs + b) / d of section 4: batches from this size on are large. The paper's two points, 300 queries
/// at 128 columns and 150 at 960, lie on no such curve, so each class of device has its own a and b. One NVIDIA H200,
/// 132 multiprocessors, SIFT 1M, recall 0.95, small and large, us: 107 and 361 for 100 queries, 205 and 400 for 300,
/// 570 and 540 for 1,000. Other columns have not been measured, and other devices take its numbers.
struct Division {
  uint32_t capability;  // 10 major + minor; 0: all others
  double a;
  double b;
};
constexpr Division kDivisions[] = {{90, 970, 0}, {0, 970, 0}};

/// Rows of R for k answers.
uint32_t kept_for(const Segment& segment, uint32_t k) {
  return segment.codes.lossless() ? k : rerank_count(k);
}

uint32_t walks_needed(const Segment& segment, uint32_t k) {
  return std::max(1u, (kept_for(segment, k) + kTsdgList - 1) / kTsdgList);
}

/// As for CAGRA's searches (search/cagra_plan.cpp).
uint32_t team_of(const Segment& segment) {
  const size_t bytes = segment.codes.stride();
  return bytes <= 64 ? 4 : bytes <= 512 ? 8 : 16;
}

int32_t stands_for(const SearchTarget& target, const SearchRequest& request) {
  if (!target.on_device()) return ANN_SEARCH_TSDG;
  const DeviceClass device = target.device->device_class();
  const Division& division = *std::find_if(
      std::begin(kDivisions), std::end(kDivisions),
      [&](const Division& one) { return one.capability == device.capability || one.capability == 0; });
  const double large = (division.a * device.multiprocessors + division.b) / target.segment().dataset.dim();
  return static_cast<double>(request.queries) < large ? ANN_SEARCH_TSDG_SMALL : ANN_SEARCH_TSDG_LARGE;
}

void check(const SearchTarget& target, const SearchRequest& request) {
  const ann_search_params& params = request.params;
  check_range("walks", params.walks, kTsdgWalksMax);
  check_range("hops_max", params.hops_max, kTsdgHopsMax);
  check_range("segments", params.segments, kTsdgSegmentsMax);
  if (params.queue_takes < 0 || params.queue_takes > ANN_QUEUE_NEARER)
    fail(ANN_INVALID_ARGUMENT, "params.queue_takes is %d, allowed are 0 to %d", params.queue_takes,
         ANN_QUEUE_NEARER);
  if (params.delta != 0 && !(params.delta >= 1 && params.delta <= 4))
    fail(ANN_INVALID_ARGUMENT, "params.delta is %g, allowed are 1 to 4", static_cast<double>(params.delta));
  const uint32_t team = params.team_size;
  if (team != 0 && team != 2 && team != 4 && team != 8 && team != 16 && team != 32)
    fail(ANN_INVALID_ARGUMENT, "params.team_size is %u, allowed are 2, 4, 8, 16 and 32", team);
  if (params.procedure == ANN_SEARCH_TSDG) {
    if (params.beam != 0 && params.beam < request.k_asked)
      fail(ANN_INVALID_ARGUMENT, "params.beam is %u, at least k = %u is needed", params.beam,
           request.k_asked);
    return;
  }
  if (params.beam != 0)
    fail(ANN_INVALID_ARGUMENT, "params.beam is %u, it must be 0 where procedure is %d, which has none",
         params.beam, params.procedure);
  if (request.k > kTsdgAnswersMax)
    fail(ANN_LIMIT, "results.k is %u, TSDG's searches of batches find at most %u", request.k_asked,
         kTsdgAnswersMax);
  const uint32_t needed = walks_needed(target.segment(), request.k);
  if (params.procedure == ANN_SEARCH_TSDG_SMALL && params.walks != 0 && params.walks < needed)
    fail(ANN_INVALID_ARGUMENT, "params.walks is %u, %u of 32 rows each are needed for results.k of %u",
         params.walks, needed, request.k_asked);
}

TsdgPlan common_plan(const SearchTarget& target, const SearchRequest& request, TsdgSearch search) {
  TsdgPlan plan;
  plan.search = search;
  plan.kept = kept_for(target.segment(), request.k);
  plan.hops_max = request.params.hops_max != 0 ? request.params.hops_max : kTsdgHopsMax;
  const uint32_t below = request.params.occlusion_max != 0 ? request.params.occlusion_max
                         : search == TsdgSearch::kSmall    ? kSmallOcclusion
                         : search == TsdgSearch::kLarge    ? kLargeOcclusion
                                                           : 0;
  plan.level = below != 0 ? below - 1 : kWholeRows;
  plan.team = request.params.team_size != 0 ? request.params.team_size : team_of(target.segment());
  return plan;
}

SearchPlan plan_small(const SearchTarget& target, const SearchRequest& request, const Effort& effort) {
  TsdgPlan plan = common_plan(target, request, TsdgSearch::kSmall);
  plan.walks = std::max(static_cast<uint32_t>(effort.knob), walks_needed(target.segment(), request.k));
  return plan;
}

SearchPlan plan_large(const SearchTarget& target, const SearchRequest& request, const Effort& effort) {
  TsdgPlan plan = common_plan(target, request, TsdgSearch::kLarge);
  plan.segments = request.params.segments != 0 ? request.params.segments : kSegments;
  plan.delta = 1 + std::max(0.0f, static_cast<float>(effort.knob));
  plan.only_nearer = request.params.queue_takes == ANN_QUEUE_NEARER;
  return plan;
}

SearchPlan plan_beam(const SearchTarget& target, const SearchRequest& request, const Effort& effort) {
  TsdgPlan plan = common_plan(target, request, TsdgSearch::kBeam);
  const uint32_t rows = std::max(1u, target.segment().rows());
  plan.beam =
      std::clamp(static_cast<uint32_t>(effort.knob), std::max(1u, request.k), std::max(rows, request.k));
  return plan;
}

void run(const HostPlacement& host, const SearchBatch& batch, const SearchPlan& plan,
         const Execution& execution, SearchCounts* counts) {
  const Segment& segment = host.segment;
  const TsdgPlan& tsdg = std::get<TsdgPlan>(plan);
  const uint32_t k = std::min(batch.results.k, segment.rows());
  answer_on_host<TsdgSpace>(
      host, batch, execution, counts,
      [&] {
        return std::make_unique<TsdgSpace>(segment.dataset, segment.codes, segment.graph, execution.memory);
      },
      [&](const PreparedQuery& query, const Admission& admission, TsdgSpace& workspace,
          SearchCounts* task_counts) {
        return search_tsdg(segment.dataset, segment.codes, segment.graph, query, admission, k, tsdg,
                           workspace, task_counts);
      });
}

std::optional<Effort> given_walks(const SearchRequest& request) {
  if (request.params.walks == 0) return std::nullopt;
  return Effort{static_cast<double>(request.params.walks), 0, 0};
}
std::optional<Effort> given_delta(const SearchRequest& request) {
  if (request.params.delta == 0) return std::nullopt;
  return Effort{double{request.params.delta} - 1, 0, 0};
}
std::optional<Effort> given_beam(const SearchRequest& request) {
  if (request.params.beam == 0) return std::nullopt;
  return Effort{static_cast<double>(request.params.beam), 0, 0};
}

/// A walk finds about as many near rows as two places of a beam.
Effort unmeasured_walks(const SearchRequest&, uint32_t beam) {
  return {static_cast<double>(std::clamp(beam / 2, 1u, kTsdgWalksMax)), 0, 0};
}
/// A tenth farther, and a twentieth more for each doubling of the beam from 64 on.
Effort unmeasured_delta(const SearchRequest&, uint32_t beam) {
  double slack = 0.1;
  for (uint32_t longer = 64; longer < beam && slack < 1; longer *= 2) slack += 0.05;
  return {slack, 0, 0};
}
Effort unmeasured_beam(const SearchRequest&, uint32_t beam) { return {static_cast<double>(beam), 0, 0}; }

std::optional<double> walks_at(const SearchTarget& target, uint32_t k, uint32_t step) {
  uint32_t walks = walks_needed(target.segment(), k);
  for (uint32_t i = 0; i < step && walks <= kTsdgWalksMax; ++i) walks += std::max(1u, walks / 3);
  if (walks > kTsdgWalksMax) return std::nullopt;
  return walks;
}
std::optional<double> delta_at(const SearchTarget&, uint32_t, uint32_t step) {
  constexpr double kSlacks[] = {0, .02, .04, .06, .08, .1, .13, .16, .2, .25, .3, .4, .5, .7, 1};
  if (step >= std::size(kSlacks)) return std::nullopt;
  return kSlacks[step];
}
std::optional<double> beam_at(const SearchTarget&, uint32_t k, uint32_t step) {
  uint32_t beam = std::max(k, 10u);
  for (uint32_t i = 0; i < step && beam <= 2048; ++i) beam += std::max(2u, beam / 3);
  if (beam > 2048) return std::nullopt;
  return beam;
}

constexpr Procedure make_row(int32_t id, const char* name) {
  Procedure row;
  row.id = id;
  row.name = name;
  row.on_host = true;
  row.on_device = true;
  row.check = check;
  row.run_on_host = run;
  return row;
}

constexpr Procedure make_beam() {
  Procedure row = make_row(ANN_SEARCH_TSDG, "TSDG");
  row.knob = Knob::kBeam;
  row.stands_for = stands_for;
  row.plan = plan_beam;
  row.given = given_beam;
  row.unmeasured = unmeasured_beam;
  row.knob_at = beam_at;
  return row;
}

constexpr Procedure make_small() {
  Procedure row = make_row(ANN_SEARCH_TSDG_SMALL, "TSDG_SMALL");
  row.knob = Knob::kWalks;
  row.plan = plan_small;
  row.given = given_walks;
  row.unmeasured = unmeasured_walks;
  row.knob_at = walks_at;
  row.knob_in_steps = true;
  return row;
}

constexpr Procedure make_large() {
  Procedure row = make_row(ANN_SEARCH_TSDG_LARGE, "TSDG_LARGE");
  row.knob = Knob::kSlack;
  row.plan = plan_large;
  row.given = given_delta;
  row.unmeasured = unmeasured_delta;
  row.knob_at = delta_at;
  return row;
}

}  // namespace

constinit const Procedure kTsdg = make_beam();
constinit const Procedure kTsdgSmall = make_small();
constinit const Procedure kTsdgLarge = make_large();

}  // namespace gannet
