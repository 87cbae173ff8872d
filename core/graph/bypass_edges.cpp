#include "graph/bypass_edges.h"

#include <algorithm>

#include "graph/bypass_rule.h"

namespace gannet {
namespace {

constexpr uint64_t kRowsOfTask = 4096;

struct Bypass {
  const Codes& codes;
  const Adjacency graph;
  const BypassRule rule;

  uint32_t count_hidden(uint32_t row) const {
    if (rule.hides(row)) return 0;  // never expanded
    uint32_t count = 0;
    for (const uint32_t target : graph.row(row)) count += rule.hides(target) ? 1 : 0;
    return count;
  }

  /// How far a row's own list reaches.
  uint32_t reach_of(uint32_t row) const {
    uint32_t shown[ANN_DEGREE_MAX] = {};
    uint32_t distances[ANN_DEGREE_MAX];
    uint32_t count = 0;
    const AdjacencyRow own = graph.row(row);
    for (uint32_t place = 0; place < BypassRule::own_places(own.length); ++place) {
      const uint32_t target = own.targets[place];
      if (target != kNoRow && !rule.hides(target)) shown[count++] = target;
    }
    codes.distances(codes.data() + row * codes.stride(), shown, count, distances);
    return count == 0 ? 0 : *std::max_element(distances, distances + count);
  }

  /// The row nearest to `row` within `reach` among the ends of the edges of `past`; not hidden rows, `row` itself or
  /// rows that it has an edge to. Equal distances by number; kNoRow where there is none.
  uint32_t find_next(uint32_t row, uint32_t past, uint32_t reach) const {
    uint32_t candidates[ANN_DEGREE_MAX] = {};
    uint32_t distances[ANN_DEGREE_MAX];
    uint32_t count = 0;
    const AdjacencyRow own = graph.row(row);
    for (const uint32_t target : graph.row(past)) {
      if (!rule.may_lead(row, target)) continue;
      if (std::find(own.begin(), own.end(), target) == own.end()) candidates[count++] = target;
    }
    codes.distances(codes.data() + row * codes.stride(), candidates, count, distances);
    uint64_t best = UINT64_MAX;
    for (uint32_t i = 0; i < count; ++i) {
      if (distances[i] <= reach) best = std::min(best, uint64_t{distances[i]} << 32 | candidates[i]);
    }
    return static_cast<uint32_t>(best);
  }
};

}  // namespace

BypassEdges::BypassEdges(const Codes& codes, SearchGraph& graph, const uint32_t* hidden,
                         const Execution& execution)
    : graph_(graph) {
  const Bypass bypass{codes, graph.adjacency(), {hidden}};
  const uint64_t tasks = (graph.rows + kRowsOfTask - 1) / kRowsOfTask;
  const auto rows_of = [&](uint64_t task) {
    return std::pair(task * kRowsOfTask, std::min<uint64_t>((task + 1) * kRowsOfTask, graph.rows));
  };
  Array<uint64_t> firsts = Array<uint64_t>::zeroed(execution.memory, tasks + 1);
  parallel_for(execution, tasks, 1, [&](uint64_t task, uint64_t, uint32_t) {
    const auto [begin, end] = rows_of(task);
    for (uint64_t row = begin; row < end; ++row)
      firsts[task + 1] += bypass.count_hidden(static_cast<uint32_t>(row));
  });
  for (uint64_t task = 0; task < tasks; ++task) firsts[task + 1] += firsts[task];
  changes_ = Array<Change>(execution.memory, firsts[tasks]);
  for (Change& change : changes_)
    change = {UINT64_MAX, kNoRow};  // so that a task that fails leaves nothing undone
  parallel_for(execution, tasks, 1, [&](uint64_t task, uint64_t, uint32_t) {
    const auto [begin, end] = rows_of(task);
    uint64_t at = firsts[task];
    for (uint64_t number = begin; number < end; ++number) {
      const auto row = static_cast<uint32_t>(number);
      if (bypass.count_hidden(row) == 0) continue;
      const AdjacencyRow own = bypass.graph.row(row);
      const uint32_t reach = bypass.reach_of(row);
      const uint64_t first = static_cast<uint64_t>(own.targets - graph.edges.data());
      for (uint64_t place = first; place < first + own.length; ++place) {
        const uint32_t target = graph.edges[place];
        if (!bypass.rule.hides(target)) continue;
        const uint32_t next = bypass.find_next(row, target, reach);
        if (next == kNoRow) continue;
        changes_[at++] = {place, target};
        graph.edges[place] = next;
      }
    }
  });
}

BypassEdges::~BypassEdges() {
  for (const Change& change : changes_) {
    if (change.place != UINT64_MAX) graph_.edges[change.place] = change.target;
  }
}

}  // namespace gannet
