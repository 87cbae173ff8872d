// The batch driver of the CPU: queries go to as many threads as they are worth, each with a workspace of the
// placement.
#pragma once

#include <algorithm>
#include <atomic>

#include "place/placement.h"
#include "search/queries.h"

namespace gannet {

/// Queries that one thread takes at a time: enough to be worth the trip, few enough to share.
inline uint64_t queries_per_task(uint64_t queries, uint32_t threads) {
  return std::clamp<uint64_t>(queries / (uint64_t{threads} * 8), 1, 64);
}

/// Answers a batch. `make()` makes a workspace; `search(query, admission, workspace, counts)` leaves the neighbours of a
/// prepared query, which lies in workspace.values, in workspace.neighbors and returns how many.
template <class T, class Make, class Search>
void answer_on_host(const HostPlacement& host, const SearchBatch& batch, const Execution& execution,
                    SearchCounts* counts, const Make& make, const Search& search) {
  const MatrixView& queries = batch.queries;
  const Dataset& dataset = host.segment.dataset;
  std::atomic<uint64_t> distances = 0;
  std::atomic<uint64_t> expansions = 0;
  const uint64_t task = queries_per_task(queries.rows, execution.threads);
  const uint64_t row_bytes = host.segment.codes.stride() + 64;  // and what finding it takes
  parallel_for(execution, queries.rows, task, [&](uint64_t begin, uint64_t end, uint32_t) {
    const WorkspaceLease<T> lease(host.workspaces, make);
    T& workspace = *lease;
    SearchCounts task_counts;
    workspace.begin(execution.monitor, row_bytes);
    for (uint64_t query = begin; query < end; ++query) {
      PreparedQuery prepared;
      uint32_t found = 0;
      const bool usable =
          dataset.prepare(queries.row(query), queries.element, workspace.values.data(), &prepared);
      if (usable) found = search(prepared, batch.admission.of(query), workspace, &task_counts);
      write_answer(batch.results, query, workspace.neighbors.data(), found,
                   usable ? ann_status{ANN_OK} : ann_status{ANN_NOT_FINITE});
    }
    distances.fetch_add(task_counts.distances, std::memory_order_relaxed);
    expansions.fetch_add(task_counts.expansions, std::memory_order_relaxed);
    execution.advance(static_cast<double>(end) / static_cast<double>(queries.rows));
  });
  counts->distances += distances.load();
  counts->expansions += expansions.load();
}

}  // namespace gannet
