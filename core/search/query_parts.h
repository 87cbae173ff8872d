// A batch that is compared with all rows, part by part.
//
// AUTO compares all rows for batches of any size, for which a walk takes the memory of one query at a time. So not all
// queries are prepared at once: 20,000 of 2,048 columns would take 164 MB.
#pragma once

#include <algorithm>
#include <cstdint>

#include "search/queries.h"

namespace gannet {

/// How many queries are prepared at once: so many bytes of them, but no fewer than `least`.
struct QueryParts {
  uint64_t bytes;
  uint64_t least;
  uint64_t answer_bytes = 0;  // that a query takes besides
};

/// On the CPU: as many as share a tile of rows for each thread.
inline QueryParts parts_on_host(const Execution& execution) {
  return {uint64_t{64} << 20, 1024 * std::max(uint64_t{1}, uint64_t{execution.threads})};
}

/// On a device, where a query's answers wait as rows and distances. Where the rows are not placed each part sends them
/// again, which takes as long as comparing them with 8,000 queries.
inline QueryParts parts_on_device(bool placed, uint32_t k) {
  return {placed ? uint64_t{64} << 20 : uint64_t{512} << 20, 4096, (uint64_t{k} + 1) * 8};
}

/// Calls answer(queries, admission, results, execution) for one part after another; once for an empty batch.
template <class Answer>
void answer_in_parts(const Dataset& dataset, const SearchBatch& batch, const QueryParts& parts,
                     const Execution& execution, const Answer& answer) {
  const uint64_t queries = batch.queries.rows;
  const uint64_t most =
      std::max(parts.least, parts.bytes / (QueryBlock::bytes_of_one(dataset) + parts.answer_bytes));
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
