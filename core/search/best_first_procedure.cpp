// BEST_FIRST as a row of the table: one list, on the CPU and on CUDA devices.

#include <algorithm>
#include <cmath>

#include "search/batch_on_host.h"
#include "search/best_first_walk.h"
#include "search/procedure.h"

namespace gannet {
namespace {

void check(const SearchTarget& target, const SearchRequest& request) {
  const uint32_t beam = request.params.beam;
  if (beam != 0 && beam < request.k_asked)
    fail(ANN_INVALID_ARGUMENT, "params.beam is %u, at least k = %u is needed", beam, request.k_asked);
  if (target.on_device() && beam > kDeviceBeamMax)
    fail(ANN_LIMIT, "params.beam is %u, at most %u is allowed on a CUDA device", beam, kDeviceBeamMax);
}

uint32_t level_of(const ann_search_params& params) {
  return params.occlusion_max != 0 ? params.occlusion_max - 1 : kWholeRows;
}

/// A beam longer than there are rows is never filled. One that is longer than a device holds stands for a recall
/// that only comparing every row reaches there.
SearchPlan plan(const SearchTarget& target, const SearchRequest& request, const Effort& effort) {
  const uint32_t rows = std::max(1u, target.segment().rows());
  const uint32_t beam = std::min(beam_of(effort.knob), rows);
  if (target.on_device() && beam > kDeviceBeamMax) return ExactPlan{};
  return BeamPlan{beam, level_of(request.params), effort.edges_part, effort.from_groups};
}

void run(const HostPlacement& host, const SearchBatch& batch, const SearchPlan& plan,
         const Execution& execution, SearchCounts* counts) {
  const Segment& segment = host.segment;
  const BeamPlan walk = std::get<BeamPlan>(plan);
  const uint32_t k = std::min(batch.results.k, segment.rows());
  answer_by_turns<BestFirstSearch, SearchWorkspace>(
      host, batch, execution, counts,
      [&] {
        return std::unique_ptr<SearchWorkspace>(new (execution.memory) SearchWorkspace(
            segment.dataset, segment.codes, segment.graph, execution.memory));
      },
      [&](std::optional<BestFirstSearch>& search, const PreparedQuery& query, const Admission& admission,
          SearchWorkspace& workspace) {
        workspace.level = walk.level;
        workspace.edges_part = walk.edges_part;
        workspace.from_groups = walk.from_groups;
        search.emplace(segment.dataset, segment.codes, segment.graph, query, admission, k, walk.beam,
                       workspace);
      });
}

std::optional<Effort> given(const SearchRequest& request) {
  if (request.params.beam == 0) return std::nullopt;
  return Effort{static_cast<double>(request.params.beam), 0, 0};
}

Effort unmeasured(const SearchRequest&, uint32_t beam) { return {static_cast<double>(beam), 0, 0}; }

/// On a device from the shortest list of a warp on, by kGrowth each time. The CPU's beams have a calibration of their own.
std::optional<double> knob_at(const SearchTarget& target, uint32_t k, uint32_t step) {
  constexpr uint32_t kShortest = 16;
  constexpr double kGrowth = 1.3;
  if (!target.on_device() || k > kDeviceBeamMax) return std::nullopt;
  double beam = std::max(k, kShortest);
  for (uint32_t i = 0; i < step; ++i) {
    if (beam >= kDeviceBeamMax) return std::nullopt;
    beam = std::min(std::ceil(beam * kGrowth), double{kDeviceBeamMax});
  }
  return beam;
}

constexpr Procedure make_row() {
  Procedure row;
  row.id = ANN_SEARCH_BEST_FIRST;
  row.name = "BEST_FIRST";
  row.knob = Knob::kBeam;
  row.on_host = true;
  row.on_device = true;
  row.check = check;
  row.plan = plan;
  row.run_on_host = run;
  row.given = given;
  row.unmeasured = unmeasured;
  row.knob_at = knob_at;
  row.answers_measured = 1000;
  return row;
}

}  // namespace

constinit const Procedure kBestFirst = make_row();

}  // namespace gannet
