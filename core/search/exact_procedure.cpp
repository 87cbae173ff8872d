// EXACT as a row of the table: every row is compared.

#include "search/exact.h"
#include "search/procedure.h"

namespace gannet {
namespace {

SearchPlan plan(const SearchTarget&, const SearchRequest&, const Effort&) { return ExactPlan{}; }

void run(const HostPlacement& host, const SearchBatch& batch, const SearchPlan&, const Execution& execution,
         SearchCounts* counts) {
  const Dataset& dataset = host.segment.dataset;
  counts->distances += batch.queries.rows * dataset.rows();
  const QueryBlock block(dataset, batch.queries, execution);
  search_exact(dataset, block, nullptr, batch.results, execution);
}

}  // namespace

const Procedure kExact = {ANN_SEARCH_EXACT, "EXACT", Knob::kNone, true, true, 0, nullptr, plan, run};

}  // namespace gannet
