#include "graph/bypass_edges.h"

#include <algorithm>

#include "graph/bypass_rule.h"

namespace gannet {
namespace {

constexpr uint32_t kKnownBy = 2;
constexpr uint64_t kRowsOfTask = 256;  // rows with many edges take some tens of us each

struct Bypass {
  const Codes& codes;
  const Adjacency graph;
  const BypassRule rule;

  /// Edges to hidden rows that may go past them.
  uint32_t count_hidden(uint32_t row) const {
    if (rule.hides(row)) return 0;  // never expanded
    const AdjacencyRow edges = graph.row(row);
    uint32_t count = 0;
    for (uint32_t place = 0; place < BypassRule::first_places(edges.length); ++place)
      count += rule.hides(edges.targets[place]) ? 1 : 0;
    return count;
  }

  /// How far a row's own list reaches.
  uint32_t reach_of(uint32_t row) const {
    uint32_t shown[ANN_DEGREE_MAX] = {};
    uint32_t distances[ANN_DEGREE_MAX];
    uint32_t count = 0;
    const AdjacencyRow own = graph.row(row);
    for (uint32_t place = 0; place < BypassRule::first_places(own.length); ++place) {
      const uint32_t target = own.targets[place];
      if (target != kNoRow && !rule.hides(target)) shown[count++] = target;
    }
    codes.distances_of_row(row, shown, count, distances);
    return count == 0 ? 0 : *std::max_element(distances, distances + count);
  }

  /// Whether rows that are not hidden, kKnownBy of them, lead from `row` to `target` in two steps.
  bool is_known(uint32_t row, uint32_t target) const {
    uint32_t by = 0;
    for (const uint32_t between : graph.row(row)) {
      if (between == kNoRow || rule.hides(between)) continue;
      const AdjacencyRow edges = graph.row(between);
      by += std::find(edges.begin(), edges.end(), target) != edges.end() ? 1 : 0;
      if (by == kKnownBy) return true;
    }
    return false;
  }

  /// The row nearest to `row` within `reach`, and known to it without `past`, among the ends of the edges of `past`; not
  /// hidden rows, `row` itself or one of `own`. Equal distances by number; kNoRow where there is none, or where too few
  /// edges of `past` lead to `own`.
  uint32_t find_next(uint32_t row, AdjacencyRow own, uint32_t past, uint32_t reach) const {
    uint32_t candidates[ANN_DEGREE_MAX] = {};
    uint32_t distances[ANN_DEGREE_MAX];
    uint32_t count = 0;
    uint32_t shared = 0;
    for (const uint32_t target : graph.row(past)) {
      if (!rule.may_lead(row, target)) continue;
      if (std::find(own.begin(), own.end(), target) == own.end())
        candidates[count++] = target;
      else
        ++shared;
    }
    if (shared < BypassRule::shared_least(own.length)) return kNoRow;
    codes.distances_of_row(row, candidates, count, distances);
    uint64_t keys[ANN_DEGREE_MAX];
    uint64_t* end = keys;
    for (uint32_t i = 0; i < count; ++i) {
      if (distances[i] <= reach) *end++ = uint64_t{distances[i]} << 32 | candidates[i];
    }
    std::sort(keys, end);
    const uint64_t* const next =
        std::find_if(keys, end, [&](uint64_t key) { return is_known(row, static_cast<uint32_t>(key)); });
    return next == end ? kNoRow : static_cast<uint32_t>(*next);
  }

  /// Calls change(place, target) for each edge of `row` that goes past a hidden row.
  template <class Change>
  void change_edges(uint32_t row, const Change& change) const {
    const AdjacencyRow edges = graph.row(row);
    const uint32_t reach = reach_of(row);
    uint32_t own[ANN_DEGREE_MAX];
    std::copy(edges.begin(), edges.end(), own);
    for (uint32_t place = 0; place < BypassRule::first_places(edges.length); ++place) {
      if (!rule.hides(own[place])) continue;
      const uint32_t next = find_next(row, {own, edges.length}, own[place], reach);
      if (next == kNoRow) continue;
      own[place] = next;
      change(place, next);
    }
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
  for (Change& change : changes_) change = {UINT64_MAX, kNoRow};  // not all are used
  // No edge changes before all have been chosen: which rows are known goes by the edges of others.
  parallel_for(execution, tasks, 1, [&](uint64_t task, uint64_t, uint32_t) {
    const auto [begin, end] = rows_of(task);
    uint64_t at = firsts[task];
    for (uint64_t number = begin; number < end; ++number) {
      const auto row = static_cast<uint32_t>(number);
      if (bypass.count_hidden(row) == 0) continue;
      const auto first = static_cast<uint64_t>(bypass.graph.row(row).targets - graph.edges.data());
      bypass.change_edges(row,
                          [&](uint32_t place, uint32_t next) { changes_[at++] = {first + place, next}; });
    }
  });
  exchange();
}

void BypassEdges::exchange() {
  for (Change& change : changes_) {
    if (change.place != UINT64_MAX) std::swap(graph_.edges[change.place], change.target);
  }
}

BypassEdges::~BypassEdges() { exchange(); }

}  // namespace gannet
