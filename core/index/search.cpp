// A batch of queries, walked through the graph by as many threads as it is worth.

#include <algorithm>
#include <atomic>

#include "index/index.h"

namespace gannet {
namespace {

/// Queries that one thread takes at a time: enough to be worth the trip, few enough to share.
uint64_t queries_per_task(uint64_t queries, uint32_t threads) {
  return std::clamp<uint64_t>(queries / (uint64_t{threads} * 8), 1, 64);
}

/// A search space of the index for the duration of a task.
class Borrowed {
 public:
  Borrowed(const Built& built, const Allocator& memory)
      : built_(built),
        space_(built.spaces.take(built.dataset, built.codes, built.graph, memory)) {}
  ~Borrowed() { built_.spaces.give_back(std::move(space_)); }
  Borrowed(const Borrowed&) = delete;
  SearchSpace& operator*() { return *space_; }

 private:
  const Built& built_;
  std::unique_ptr<SearchSpace> space_;
};

}  // namespace

void search_batch(const Built& built, const MatrixView& queries, uint32_t beam,
                  const ResultsView& results, const Execution& execution, SearchCounts* counts) {
  std::atomic<uint64_t> distances = 0;
  std::atomic<uint64_t> expansions = 0;
  const uint32_t k = std::min(results.k, built.dataset.rows());
  const uint64_t task = queries_per_task(queries.rows, execution.threads);
  parallel_for(execution, queries.rows, task, [&](uint64_t begin, uint64_t end, uint32_t) {
    Borrowed borrowed(built, execution.memory);
    SearchSpace& space = *borrowed;
    SearchCounts task_counts;
    for (uint64_t query = begin; query < end; ++query) {
      PreparedQuery prepared;
      uint32_t found = 0;
      const bool usable = built.dataset.prepare(queries.row(query), queries.element,
                                                space.values.data(), &prepared);
      if (usable)
        found = search_best_first(built.dataset, built.codes, built.graph, prepared, kNoRow, k,
                                  beam, space, &task_counts);
      write_answer(results, query, space.neighbors.data(), found,
                   usable ? ann_status{ANN_OK} : ann_status{ANN_NOT_FINITE});
    }
    distances.fetch_add(task_counts.distances, std::memory_order_relaxed);
    expansions.fetch_add(task_counts.expansions, std::memory_order_relaxed);
    execution.advance(static_cast<double>(end) / static_cast<double>(queries.rows));
  });
  counts->distances = distances.load();
  counts->expansions = expansions.load();
}

}  // namespace gannet
