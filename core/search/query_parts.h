// A batch that is compared with all rows, part by part.
//
// AUTO compares all rows for batches of any size, for which a walk takes the memory of one query at a time. So not all
// queries are prepared at once: 20,000 of 2,048 columns would take 164 MB.
#pragma once

#include <algorithm>
#include <cstdint>

#include "search/queries.h"

namespace gannet {

/// Queries that are prepared at once: 64 MB of them, or as many as share a tile of rows for each thread.
inline uint64_t queries_at_once(const Dataset& dataset, uint32_t threads) {
  constexpr uint64_t kBytes = uint64_t{64} << 20;
  constexpr uint64_t kOfThread = 1024;
  return std::max(kBytes / QueryBlock::bytes_of_one(dataset), kOfThread * std::max(1u, threads));
}

/// Calls answer(queries, admission, results, execution) for one part after another; once for an empty batch.
template <class Answer>
void answer_in_parts(const Dataset& dataset, const SearchBatch& batch, const Execution& execution,
                     const Answer& answer) {
  const uint64_t queries = batch.queries.rows;
  const uint64_t most = queries_at_once(dataset, execution.threads);
  uint64_t first = 0;
  do {
    const uint64_t end = std::min(queries, first + most);
    MatrixView some = batch.queries;
    some.data = batch.queries.row(first);
    some.rows = end - first;
    const Execution part = queries == 0 ? execution
                                        : execution.span(static_cast<double>(first) / queries,
                                                         static_cast<double>(end) / queries);
    BatchAdmission admission = batch.admission;
    if (admission.masked != nullptr) admission.masked += first;
    answer(QueryBlock(dataset, some, part), admission, batch.results.from(first), part);
    first = end;
  } while (first < queries);
}

}  // namespace gannet
