// EXACT as a row of the table: every row is compared.

#include "search/exact.h"
#include "search/procedure.h"
#include "search/query_parts.h"

namespace gannet {
namespace {

SearchPlan plan(const SearchTarget&, const SearchRequest&, const Effort&) { return ExactPlan{}; }

void run(const HostPlacement& host, const SearchBatch& batch, const SearchPlan&, const Execution& execution,
         SearchCounts* counts) {
  const Dataset& dataset = host.segment.dataset;
  counts->distances += batch.queries.rows * dataset.rows();
  answer_in_parts(dataset, batch, parts_on_host(execution), execution,
                  [&](const QueryBlock& queries, const BatchAdmission& admission, const ResultsView& results,
                      const Execution& part) { search_exact(dataset, queries, admission, results, part); });
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
