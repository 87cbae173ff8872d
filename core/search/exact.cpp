#include "search/exact.h"

#include <algorithm>
#include <vector>

namespace gannet {
namespace {

constexpr uint32_t kQueryGroup = 16;
constexpr uint32_t kRowTile = 256;

struct Workspace {
  Workspace(uint32_t kept, const Allocator& memory)
      : distances(memory, kRowTile), heaps(memory, size_t{kQueryGroup} * kept) {}

  Array<float> distances;   // [kRowTile]
  Array<Neighbor> heaps;    // [kQueryGroup, kept] the nearest so far, farthest on top
};

/// The nearest `kept` of all that it is shown, as a heap with the farthest on top.
struct Nearest {
  Neighbor* heap;
  uint32_t kept;
  uint32_t size = 0;

  void show(const Neighbor& neighbor) {
    if (size < kept) {
      heap[size++] = neighbor;
      std::push_heap(heap, heap + size);
    } else if (kept > 0 && neighbor < heap[0]) {
      std::pop_heap(heap, heap + size);
      heap[size - 1] = neighbor;
      std::push_heap(heap, heap + size);
    }
  }
};

void search_group(const Dataset& dataset, const QueryBlock& queries, const uint32_t* excluded,
                  uint64_t begin, uint64_t end, uint32_t kept, Workspace& space,
                  const ResultsView& results, const Execution& execution) {
  Nearest nearest[kQueryGroup];
  for (uint64_t query = begin; query < end; ++query)
    nearest[query - begin] = {space.heaps.data() + (query - begin) * kept, kept};
  for (uint32_t first = 0; first < dataset.rows(); first += kRowTile) {
    if (first % (kRowTile * 64) == 0) execution.check();
    const uint32_t count = std::min(kRowTile, dataset.rows() - first);
    for (uint64_t query = begin; query < end; ++query) {
      if (!queries.usable(query)) continue;
      Nearest& kept_rows = nearest[query - begin];
      dataset.distances(queries[query], nullptr, first, count, space.distances.data());
      for (uint32_t i = 0; i < count; ++i) {
        // One comparison refuses nearly all; ids, which may lie far away, are asked for the rest.
        if (kept_rows.size == kept && space.distances[i] > kept_rows.heap[0].distance) continue;
        if (excluded != nullptr && excluded[query] == first + i) continue;
        kept_rows.show({space.distances[i], dataset.id(first + i)});
      }
    }
  }
  for (uint64_t query = begin; query < end; ++query) {
    Nearest& found = nearest[query - begin];
    std::sort_heap(found.heap, found.heap + found.size);
    write_answer(results, query, found.heap, found.size,
                 queries.usable(query) ? ann_status{ANN_OK} : ann_status{ANN_NOT_FINITE});
  }
}

}  // namespace

void search_exact(const Dataset& dataset, const QueryBlock& queries, const uint32_t* excluded,
                  const ResultsView& results, const Execution& execution) {
  const uint32_t kept = std::min(results.k, dataset.rows());
  // Groups shrink where there are fewer than one a thread.
  const uint64_t group = std::clamp<uint64_t>(queries.size() / std::max(1u, execution.threads), 1,
                                              kQueryGroup);
  const uint64_t groups = (queries.size() + group - 1) / group;
  const uint32_t threads = static_cast<uint32_t>(std::min<uint64_t>(execution.threads, groups));
  std::vector<Workspace> spaces;
  spaces.reserve(threads);
  for (uint32_t worker = 0; worker < threads; ++worker) spaces.emplace_back(kept, execution.memory);
  parallel_for(execution, queries.size(), group, [&](uint64_t begin, uint64_t end, uint32_t worker) {
    search_group(dataset, queries, excluded, begin, end, kept, spaces[worker], results, execution);
    execution.advance(static_cast<double>(end) / static_cast<double>(queries.size()));
  });
}

}  // namespace gannet
