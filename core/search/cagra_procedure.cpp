// CAGRA's two searches, and the choice between them, as rows of the table.

#include "search/batch_on_host.h"
#include "search/cagra_plan.h"
#include "search/procedure.h"

namespace gannet {
namespace {

void check(const SearchTarget&, const SearchRequest& request) {
  check_cagra_list(request.params, request.k_asked);
}

/// With p from calibration where the caller leaves it open.
SearchPlan plan(const SearchTarget& target, const SearchRequest& request, const Effort& effort) {
  ann_search_params params = request.params;
  if (params.search_width == 0) params.search_width = effort.width;
  return plan_cagra(target.segment(), params, request.queries, request.k, static_cast<uint32_t>(effort.knob),
                    target.on_device() ? target.device->multiprocessors() : 0);
}

void run(const HostPlacement& host, const SearchBatch& batch, const SearchPlan& plan,
         const Execution& execution, SearchCounts* counts) {
  const Segment& segment = host.segment;
  const CagraPlan& cagra = std::get<CagraPlan>(plan);
  const uint32_t k = std::min(batch.results.k, segment.rows());
  answer_on_host<CagraSpace>(
      host, batch, execution, counts,
      [&] { return std::make_unique<CagraSpace>(segment.dataset, segment.codes, execution.memory); },
      [&](const PreparedQuery& query, CagraSpace& workspace, SearchCounts* task_counts) {
        return search_cagra(segment.dataset, segment.codes, segment.graph, query, k, cagra, workspace,
                            task_counts);
      });
}

}  // namespace

const Procedure kCagra = {ANN_SEARCH_CAGRA, "CAGRA", Knob::kBeam, true, true, 0, check, plan, run};
const Procedure kCagraSingleCta = {
    ANN_SEARCH_CAGRA_SINGLE_CTA, "CAGRA_SINGLE_CTA", Knob::kBeam, true, true, 0, check, plan, run};
const Procedure kCagraMultiCta = {
    ANN_SEARCH_CAGRA_MULTI_CTA, "CAGRA_MULTI_CTA", Knob::kBeam, true, true, 0, check, plan, run};

}  // namespace gannet
