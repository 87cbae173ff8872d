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
  // A caller's M has been checked. One that was measured for fewer answers may be too short.
  const uint32_t knob = static_cast<uint32_t>(effort.knob);
  const uint32_t list = params.beam != 0 ? knob : cagra_list_of(request.k, knob);
  return plan_cagra(target.segment(), params, request.queries, request.k, list,
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
      [&](const PreparedQuery& query, const Admission& admission, CagraSpace& workspace,
          SearchCounts* task_counts) {
        return search_cagra(segment.dataset, segment.codes, segment.graph, query, admission, k, cagra,
                            workspace, task_counts);
      });
}

std::optional<Effort> given(const SearchRequest& request) {
  if (request.params.beam == 0) return std::nullopt;
  return Effort{static_cast<double>(request.params.beam), 0, 0};
}

Effort unmeasured(const SearchRequest& request, uint32_t beam) {
  return {static_cast<double>(cagra_list_of(request.k, beam)), 0, 0};
}

/// M in steps of a third, multiples of 32. Random rows reach an island or do not, so that recall may jump from
/// one M to the next: none between two that were tried serves.
std::optional<double> knob_at(const SearchTarget&, uint32_t k, uint32_t step) {
  constexpr uint32_t kStep = 32;
  uint32_t list = round_up(std::max(k, kStep), kStep);
  for (uint32_t i = 0; i < step && list <= kCagraListMax; ++i)
    list = round_up(list + std::max(kStep, list / 3), kStep);
  if (list > kCagraListMax) return std::nullopt;
  return list;
}

/// Which of the two searches runs, and by which rows it compares.
ann_search_params measured_as(const SearchPlan& plan) {
  const CagraPlan& cagra = std::get<CagraPlan>(plan);
  ann_search_params like = ANN_SEARCH_PARAMS_INIT;
  like.procedure = cagra.multi_cta ? ANN_SEARCH_CAGRA_MULTI_CTA : ANN_SEARCH_CAGRA_SINGLE_CTA;
  like.compare = cagra.stored ? ANN_COMPARE_STORED : ANN_COMPARE_CODES;
  return like;
}

/// A search by several CTAs starts from more random rows by itself, and has a p of its own.
constexpr uint32_t kWidthTried = 8;

constexpr Procedure make_row(int32_t id, const char* name, uint32_t width_max) {
  Procedure row;
  row.id = id;
  row.name = name;
  row.knob = Knob::kBeam;
  row.on_host = true;
  row.on_device = true;
  row.check = check;
  row.plan = plan;
  row.run_on_host = run;
  row.given = given;
  row.unmeasured = unmeasured;
  row.knob_at = knob_at;
  row.measured_as = measured_as;
  row.width_max = width_max;
  row.knob_in_steps = true;
  return row;
}

}  // namespace

constinit const Procedure kCagra = make_row(ANN_SEARCH_CAGRA, "CAGRA", kWidthTried);
constinit const Procedure kCagraSingleCta =
    make_row(ANN_SEARCH_CAGRA_SINGLE_CTA, "CAGRA_SINGLE_CTA", kWidthTried);
constinit const Procedure kCagraMultiCta = make_row(ANN_SEARCH_CAGRA_MULTI_CTA, "CAGRA_MULTI_CTA", 0);

}  // namespace gannet
