#include "search/best_first.h"

#include <algorithm>

namespace gannet {
namespace {

void prefetch_code(const Codes& codes, uint32_t row) {
  // The first lines; the hardware follows within a row.
  const uint8_t* code = codes.row(row);
  __builtin_prefetch(code);
  if (codes.stride() > 64) __builtin_prefetch(code + 64);
  if (codes.stride() > 128) {
    __builtin_prefetch(code + 128);
    __builtin_prefetch(code + 192 < code + codes.stride() ? code + 192 : code + 128);
  }
}

void prefetch_edges(const SearchGraph& graph, uint32_t row) {
  const char* edges = reinterpret_cast<const char*>(graph.row(row));
  for (uint32_t byte = 0; byte < graph.degree * 4; byte += 64) __builtin_prefetch(edges + byte);
}

/// One search, as the essay tells it.
struct Walk {
  const Codes& codes;
  const SearchGraph& graph;
  SearchSpace& space;
  Beam beam;
  SearchCounts counts = {};

  void start() {
    uint32_t count = 0;
    for (const uint32_t entry : graph.entries) {
      if (space.visited.enter(entry)) space.candidates[count++] = entry;
    }
    compare(count);
  }

  void run() {
    for (uint32_t row = beam.pop(); row != kNoRow; row = beam.pop()) expand(row);
  }

 private:
  void expand(uint32_t row) {
    ++counts.expansions;
    const uint32_t* edges = graph.touched_row(row);
    uint32_t count = 0;
    for (uint32_t i = 0; i < graph.degree; ++i) {
      const uint32_t target = edges[i];
      if (target == kNoRow) break;
      if (!space.visited.enter(target)) continue;
      prefetch_code(codes, target);
      space.candidates[count++] = target;
    }
    const uint32_t next = beam.peek();
    if (next != kNoRow) prefetch_edges(graph, next);
    compare(count);
  }

  void compare(uint32_t count) {
    counts.distances += count;
    codes.distances(space.code.data(), space.candidates.data(), count,
                    space.code_distances.data());
    for (uint32_t i = 0; i < count; ++i) {
      if (space.code_distances[i] <= beam.limit())
        beam.insert(space.code_distances[i], space.candidates[i]);
    }
  }
};

/// Leaves the table of visited rows empty for the next search, also when this one ends in an error.
class VisitedCleared {
 public:
  explicit VisitedCleared(Visited& visited) : visited_(visited) {}
  ~VisitedCleared() { visited_.clear(); }
  VisitedCleared(const VisitedCleared&) = delete;

 private:
  Visited& visited_;
};

/// The reported distances of the beam's first rows.
uint32_t compare_again(const Dataset& dataset, const Codes& codes, const PreparedQuery& query,
                       const Beam& beam, uint32_t k, SearchSpace& space, SearchCounts& counts) {
  const uint32_t count = std::min(beam.size(), rerank_count(k));
  for (uint32_t i = 0; i < count; ++i) space.rows[i] = RowKey::row(beam.key(i));
  if (codes.exact()) {
    for (uint32_t i = 0; i < count; ++i)
      space.distances[i] = static_cast<float>(RowKey::distance(beam.key(i)));
  } else {
    counts.distances += count;
    dataset.distances(query, space.rows.data(), 0, count, space.distances.data());
  }
  return count;
}

}  // namespace

uint32_t compare_best_first(const Dataset& dataset, const Codes& codes, const SearchGraph& graph,
                            const PreparedQuery& query, uint32_t masked, uint32_t k, uint32_t beam,
                            SearchSpace& space, SearchCounts* counts) {
  space.fit_beam(beam);
  codes.encode_query(query, space.code.data());
  const VisitedCleared cleared(space.visited);
  if (masked != kNoRow) space.visited.enter(masked);
  Walk walk{codes, graph, space, Beam(space.keys.data(), beam)};
  walk.start();
  walk.run();
  const uint32_t compared =
      compare_again(dataset, codes, query, walk.beam, k, space, walk.counts);
  counts->distances += walk.counts.distances;
  counts->expansions += walk.counts.expansions;
  return compared;
}

uint32_t search_best_first(const Dataset& dataset, const Codes& codes, const SearchGraph& graph,
                           const PreparedQuery& query, uint32_t masked, uint32_t k, uint32_t beam,
                           SearchSpace& space, SearchCounts* counts) {
  const uint32_t compared =
      compare_best_first(dataset, codes, graph, query, masked, k, beam, space, counts);
  for (uint32_t i = 0; i < compared; ++i)
    space.neighbors[i] = {space.distances[i], dataset.id(space.rows[i])};
  const uint32_t found = std::min(k, compared);
  std::partial_sort(space.neighbors.data(), space.neighbors.data() + found,
                    space.neighbors.data() + compared);
  return found;
}

}  // namespace gannet
