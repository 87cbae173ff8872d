// EXACT as a row of the table: every row is compared.

#include <algorithm>

#include "search/exact.h"
#include "search/procedure.h"

namespace gannet {
namespace {

/// Queries that are prepared at once: AUTO compares all rows for batches of any size, for which a walk takes the memory
/// of one query at a time. 64 MB of them, or as many as share a tile of rows for each thread.
uint64_t queries_at_once(const Dataset& dataset, uint32_t threads) {
  constexpr uint64_t kBytes = uint64_t{64} << 20;
  constexpr uint64_t kOfThread = 1024;
  return std::max(kBytes / QueryBlock::bytes_of_one(dataset), kOfThread * std::max(1u, threads));
}

SearchPlan plan(const SearchTarget&, const SearchRequest&, const Effort&) { return ExactPlan{}; }

void run(const HostPlacement& host, const SearchBatch& batch, const SearchPlan&, const Execution& execution,
         SearchCounts* counts) {
  const Dataset& dataset = host.segment.dataset;
  const uint64_t queries = batch.queries.rows;
  counts->distances += queries * dataset.rows();
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
    const QueryBlock block(dataset, some, part);
    search_exact(dataset, block, admission, batch.results.from(first), part);
    first = end;
  } while (first < queries);
}

constexpr Procedure make_row() {
  Procedure row;
  row.id = ANN_SEARCH_EXACT;
  row.name = "EXACT";
  row.on_host = true;
  row.on_device = true;
  row.plan = plan;
  row.run_on_host = run;
  return row;
}

}  // namespace

constinit const Procedure kExact = make_row();

}  // namespace gannet
