#include "index/reach.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <span>
#include <vector>

#include "base/random.h"
#include "search/best_first.h"

namespace gannet {
namespace {

constexpr uint64_t kProbeStream = 0x70726f6265;  // "probe"
constexpr uint32_t kProbesLeast = 512;
constexpr uint32_t kMisses = 7;  // of the probes of a graph that misses as many as it may
constexpr uint32_t kProbeBeam = 64;
constexpr uint32_t kMissedPerBeside = 4;  // of rows that are not in islands, where walks miss many

/// The end of a walk for a row: it comes to a row with the code of this one, or to one to which this one's first
/// edges lead, or to neither.
enum class End : uint8_t { kFound, kBeside, kMissed };

/// Whether one of the rows is the target of one of these edges.
bool any_is_target(std::span<const uint32_t> rows, std::span<const uint32_t> targets) {
  return std::any_of(rows.begin(), rows.end(), [&](uint32_t row) {
    return std::find(targets.begin(), targets.end(), row) != targets.end();
  });
}

End end_of_walk(const Segment& segment, uint32_t row, SearchWorkspace& workspace) {
  const Dataset& dataset = segment.dataset;
  const Codes& codes = segment.codes;
  PreparedQuery query;
  if (!dataset.prepare(dataset.view().row(row), dataset.element(), workspace.values.data(), &query))
    return End::kFound;
  SearchCounts counts;
  const uint32_t count =
      compare_best_first(dataset, codes, segment.graph, query, {}, 1, kProbeBeam, workspace, &counts);
  const std::span<const uint32_t> found{workspace.rows.data(), count};
  const auto is_copy = [&](uint32_t other) {
    return std::memcmp(codes.row(row), codes.row(other), codes.stride()) == 0;
  };
  if (std::any_of(found.begin(), found.end(), is_copy)) return End::kFound;
  const AdjacencyRow edges = segment.graph.row(row);
  return any_is_target(found, {edges.targets, edges.length / 2}) ? End::kBeside : End::kMissed;
}

}  // namespace

bool walks_find_rows(const Segment& segment, uint32_t rows_per_miss, const Execution& execution) {
  // By inner product a row is not the nearest to itself.
  if (segment.rows() == 0 || segment.dataset.metric() == ANN_METRIC_INNER_PRODUCT) return true;
  const uint32_t count = std::min(std::max(kProbesLeast, kMisses * rows_per_miss), segment.rows());
  Array<uint32_t> rows(execution.memory, count);
  random_strata(segment.rows(), count, segment.seed, kProbeStream, rows.data());
  std::vector<SearchWorkspace> workspaces;
  workspaces.reserve(execution.threads);
  for (uint32_t worker = 0; worker < execution.threads; ++worker)
    workspaces.emplace_back(segment.dataset, segment.codes, segment.graph, execution.memory);
  std::atomic<uint32_t> missed = 0;  // with those beside which walks come
  std::atomic<uint32_t> beside = 0;
  // Every other one first: most graphs miss none of them, and hardly one that should have long edges.
  const auto probe = [&](uint32_t first) {
    parallel_for(execution, (count - first + 1) / 2, 4, [&](uint64_t begin, uint64_t end, uint32_t worker) {
      for (uint64_t i = begin; i < end; ++i) {
        const End end = end_of_walk(segment, rows[first + 2 * i], workspaces[worker]);
        missed.fetch_add(end != End::kFound ? 1 : 0, std::memory_order_relaxed);
        beside.fetch_add(end == End::kBeside ? 1 : 0, std::memory_order_relaxed);
      }
    });
  };
  probe(0);
  if (missed == 0) return true;
  if (count > 1) probe(1);
  return uint64_t{missed} * rows_per_miss <= count || beside * kMissedPerBeside >= missed;
}

}  // namespace gannet
