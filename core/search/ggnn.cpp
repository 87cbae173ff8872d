#include "search/ggnn.h"

#include <algorithm>

namespace gannet {
namespace {

/// A distance as a number of the same order; -0 does not occur.
uint32_t ordered(float distance) {
  uint32_t bits;
  std::memcpy(&bits, &distance, sizeof bits);
  return (bits & 0x80000000) != 0 ? ~bits : bits | 0x80000000;
}

SquareKind kind_of(const Codes& codes, const GgnnPlan& plan) {
  if (plan.stored) return SquareKind::kOrderedFloat;
  return codes.wide() ? SquareKind::kFloatBits : SquareKind::kInteger;
}

/// One search, as search/ggnn.h describes it.
struct GgnnSearch {
  const Dataset& dataset;
  const Codes& codes;
  const SearchGraph& graph;
  const PreparedQuery& query;
  const GgnnPlan& plan;
  GgnnSpace& space;
  const Admission& admission;
  SearchCounts counts = {};
  uint32_t level = 0;  // of the walk: 0 the bottom, else upper[level - 1]

  /// Algorithm 1.
  void run() {
    SlackCache& cache = space.cache;
    cache.begin(kind_of(codes, plan), plan.slack);
    level = plan.descends ? static_cast<uint32_t>(graph.upper.size()) : 0;
    start();
    for (;;) {
      if (level != 0) {
        const Array<uint32_t>& below = graph.upper[--level].base_rows;
        cache.transfer([&](uint32_t row) { return below[row]; });
      }
      walk();
      if (level == 0) return;
    }
  }

 private:
  /// All rows of the top layer are compared; they are the entry points too.
  void start() {
    const uint32_t step = ggnn_step(graph.degree);
    const uint32_t entries =
        level != 0 ? graph.upper[level - 1].rows : static_cast<uint32_t>(graph.entries.size());
    for (uint32_t first = 0; first < entries; first += step) {
      const uint32_t count = std::min(step, entries - first);
      for (uint32_t i = 0; i < count; ++i)
        space.starts[i] = level != 0 ? first + i : graph.entries[first + i];
      fetch(space.starts.data(), count);
    }
  }

  void walk() {
    for (uint32_t iteration = 0; iteration < plan.iterations_max; ++iteration) {
      const uint32_t row = space.cache.pop();
      if (row == kNoRow) break;
      ++counts.expansions;
      const AdjacencyRow edges = level != 0 ? graph.upper[level - 1].row(row) : graph.touched_row(row);
      fetch(edges.targets, edges.length);
    }
  }

  /// The row of the bottom that a row of this layer is.
  uint32_t bottom_row(uint32_t row) const {
    for (uint32_t at = level; at != 0; --at) row = graph.upper[at - 1].base_rows[row];
    return row;
  }

  /// Algorithm 2: rows that are not known are compared and inserted into the cache.
  void fetch(const uint32_t* rows, uint32_t length) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < length; ++i) {
      if (rows[i] == kNoRow || space.cache.knows(rows[i])) continue;
      const uint32_t bottom = bottom_row(rows[i]);
      if (!admission.walks(bottom)) continue;
      space.found[count] = rows[i];
      space.candidates[count++] = bottom;
    }
    compare(count);
    for (uint32_t i = 0; i < count; ++i)
      space.cache.take(space.found[i], space.numbers[i], admission.answers(space.candidates[i]));
    space.cache.settle();
  }

  void compare(uint32_t count) {
    counts.distances += count;
    space.compared(count, 0);
    if (plan.stored) {
      dataset.distances(query, space.candidates.data(), 0, count, space.distances.data());
      for (uint32_t i = 0; i < count; ++i) space.numbers[i] = ordered(space.distances[i]);
    } else {
      codes.distances(space.code.data(), space.candidates.data(), count, space.numbers.data());
    }
  }
};

/// Leaves the cache empty for the next search, also when this one ends in an error.
class CacheCleared {
 public:
  explicit CacheCleared(SlackCache& cache) : cache_(cache) {}
  ~CacheCleared() { cache_.clear(); }
  CacheCleared(const CacheCleared&) = delete;

 private:
  SlackCache& cache_;
};

}  // namespace

GgnnSpace::GgnnSpace(const Dataset& dataset, const Codes& codes, const Allocator& memory)
    : values(memory, dataset.query_bytes()), code(memory, codes.stride()), allocator(memory) {}

void GgnnSpace::fit(const GgnnPlan& plan, uint32_t row_count, uint32_t step) {
  const auto grow = [&]<class T>(Array<T>& items, size_t size) {
    if (items.size() < size) items = Array<T>(allocator, size);
  };
  grow(starts, step);
  grow(found, step);
  grow(candidates, step);
  grow(numbers, step);
  grow(distances, std::max(step, plan.shape.best));
  grow(rows, plan.shape.best);
  grow(neighbors, plan.shape.best);
  cache.fit(plan.shape, row_count, allocator);
}

uint64_t GgnnSpace::bytes() const {
  return cache.bytes() + values.bytes() + code.bytes() + starts.bytes() + found.bytes() + candidates.bytes() +
         numbers.bytes() + distances.bytes() + rows.bytes() + neighbors.bytes();
}

uint32_t search_ggnn(const Dataset& dataset, const Codes& codes, const SearchGraph& graph,
                     const PreparedQuery& query, const Admission& admission, uint32_t k, const GgnnPlan& plan,
                     GgnnSpace& space, SearchCounts* counts) {
  space.fit(plan, codes.rows(), ggnn_step(graph.degree));
  if (!plan.stored) codes.encode_query(query, space.code.data());
  const CacheCleared cleared(space.cache);
  GgnnSearch search{dataset, codes, graph, query, plan, space, admission};
  search.run();
  const uint32_t kept = std::min(plan.kept, space.cache.size());
  for (uint32_t i = 0; i < kept; ++i) space.rows[i] = RowKey::row(space.cache.key(i));
  if (codes.lossless()) {
    for (uint32_t i = 0; i < kept; ++i)
      space.distances[i] = static_cast<float>(RowKey::distance(space.cache.key(i)));
  } else {
    search.counts.distances += std::min(plan.kept, dataset.rows());
    dataset.distances(query, space.rows.data(), 0, kept, space.distances.data());
  }
  counts->distances += search.counts.distances;
  counts->expansions += search.counts.expansions;
  // Lower rows win equal distances, as on the device; the answers are then put in the order of ids.
  for (uint32_t i = 0; i < kept; ++i) space.neighbors[i] = {space.distances[i], space.rows[i]};
  const uint32_t found = std::min(k, kept);
  std::sort(space.neighbors.data(), space.neighbors.data() + kept);
  for (uint32_t i = 0; i < found; ++i)
    space.neighbors[i].id = dataset.id(static_cast<uint32_t>(space.neighbors[i].id));
  std::sort(space.neighbors.data(), space.neighbors.data() + found);
  return found;
}

}  // namespace gannet
