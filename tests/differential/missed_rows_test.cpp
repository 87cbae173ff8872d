// Edges to rows that walks miss, on a set of which a few rows lie in small islands.

#include <algorithm>
#include <span>
#include <vector>

#include "catch.h"
#include "graph/search_graph.h"
#include "index/missed_rows.h"
#include "knn/exact_knn.h"
#include "made_data.h"
#include "search/best_first.h"

using namespace gannet;

namespace {

constexpr uint32_t kDim = 16;
constexpr uint32_t kMost = 6000;     // rows about the middle
constexpr uint32_t kIslands = 12;    // and so many islands
constexpr uint32_t kOfIsland = 100;  // of so many rows
constexpr uint32_t kRows = kMost + kIslands * kOfIsland;
constexpr uint32_t kDegree = 16;

/// Rows about the middle, which islands lie around: each differs from it in two columns.
std::vector<uint8_t> rows_and_islands() {
  std::vector<uint8_t> bytes(size_t{kRows} * kDim);
  for (uint64_t row = 0; row < kRows; ++row) {
    const uint64_t island = row < kMost ? kIslands : (row - kMost) % kIslands;
    for (uint64_t column = 0; column < kDim; ++column) {
      const uint64_t noise = random_below(row < kMost ? 60 : 6, 7, row, column);
      const bool apart = island < kIslands && (column == island || column == (island + 1) % kDim);
      bytes[row * kDim + column] = static_cast<uint8_t>(apart ? 220 + noise : 70 + noise);
    }
  }
  return bytes;
}

std::unique_ptr<Segment> segment_of(const std::vector<uint8_t>& bytes, const Execution& execution) {
  auto segment =
      std::make_unique<Segment>(Dataset(view_of(bytes, kDim), nullptr, ANN_METRIC_L2, 0, false, {}));
  segment->codes = Codes(segment->dataset, 1, execution);
  segment->seed = 3;
  SearchGraph& graph = segment->graph;
  graph.rows = kRows;
  graph.degree = kDegree;
  graph.edges = prune_by_rank(exact_knn(segment->codes, 24, execution), Pruning::near(kDegree), execution);
  add_reverse_edges(graph.edges, graph.rows, graph.degree, execution);
  // No start in an island.
  graph.entries = Array<uint32_t>({}, 16);
  for (uint32_t i = 0; i < 16; ++i) graph.entries[i] = i * (kMost / 16);
  repair_reachability(graph, execution);
  return segment;
}

/// Rows of islands that a walk for them misses.
uint32_t missed_in_islands(const Segment& segment) {
  SearchWorkspace workspace(segment.dataset, segment.codes, segment.graph, {});
  uint32_t missed = 0;
  for (uint32_t row = kMost; row < kRows; ++row) {
    PreparedQuery query;
    const Dataset& dataset = segment.dataset;
    REQUIRE(dataset.prepare(dataset.view().row(row), dataset.element(), workspace.values.data(), &query));
    SearchCounts counts;
    const uint32_t found =
        compare_best_first(dataset, segment.codes, segment.graph, query, {}, 1, 16, workspace, &counts);
    const std::span<const uint32_t> rows{workspace.rows.data(), found};
    missed += std::find(rows.begin(), rows.end(), row) == rows.end() ? 1 : 0;
  }
  return missed;
}

}  // namespace

TEST_CASE("walks find the rows of small islands once missed rows are attached") {
  const std::vector<uint8_t> bytes = rows_and_islands();
  const Execution execution{{}, 2, nullptr};
  const auto segment = segment_of(bytes, execution);
  REQUIRE(missed_in_islands(*segment) > 3 * kOfIsland);
  attach_missed_rows(*segment, execution);
  CHECK(missed_in_islands(*segment) < kOfIsland);
  CHECK(count_unreachable(segment->graph, {}) == 0);
}

TEST_CASE("attached rows do not depend on threads") {
  const std::vector<uint8_t> bytes = rows_and_islands();
  const Execution alone{{}, 1, nullptr};
  const Execution three{{}, 3, nullptr};
  const auto one = segment_of(bytes, alone);
  const auto other = segment_of(bytes, alone);
  const std::vector<uint32_t> before(one->graph.edges.begin(), one->graph.edges.end());
  attach_missed_rows(*one, alone);
  attach_missed_rows(*other, three);
  CHECK_FALSE(std::equal(before.begin(), before.end(), one->graph.edges.begin()));
  CHECK(std::equal(one->graph.edges.begin(), one->graph.edges.end(), other->graph.edges.begin()));
}
