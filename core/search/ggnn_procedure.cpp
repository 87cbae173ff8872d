// GGNN's search as a row of the table: a caller's parameters completed and checked (appendix C.2).

#include <algorithm>
#include <cmath>

#include "search/batch_on_host.h"
#include "search/ggnn.h"
#include "search/procedure.h"

namespace gannet {
namespace {

void check_at_most(const char* name, uint64_t value, uint64_t most) {
  if (value > most)
    fail(ANN_LIMIT, "params.%s is %llu, at most %llu is allowed", name,
         static_cast<unsigned long long>(value), static_cast<unsigned long long>(most));
}

void check(const SearchTarget& target, const SearchRequest& request) {
  const ann_search_params& params = request.params;
  if (request.k_asked > kGgnnListMax)
    fail(ANN_LIMIT, "results.k is %u, GGNN's search finds at most %u", request.k_asked, kGgnnListMax);
  if (params.beam != 0 && params.beam < request.k_asked)
    fail(ANN_INVALID_ARGUMENT, "params.beam is %u, at least k = %u is needed", params.beam, request.k_asked);
  check_at_most("beam", params.beam, kGgnnListMax);
  check_at_most("iterations_max", params.iterations_max, kGgnnIterationsMax);
  check_at_most("queue", params.queue, kGgnnQueueMax);
  check_at_most("visited", params.visited, kGgnnVisitedMax);
  if (params.stretch != 0 && !(params.stretch >= 1 && params.stretch <= 1 + kGgnnSlackMax))
    fail(ANN_INVALID_ARGUMENT, "params.stretch is %g, allowed are 1 to %g",
         static_cast<double>(params.stretch), static_cast<double>(1 + kGgnnSlackMax));
  if (!(params.nearest_share >= 0 && params.nearest_share <= 1))
    fail(ANN_INVALID_ARGUMENT, "params.nearest_share is %g, allowed are 0 to 1",
         static_cast<double>(params.nearest_share));
  const uint32_t team = params.team_size;
  if (team != 0 && team != 2 && team != 4 && team != 8 && team != 16 && team != 32)
    fail(ANN_INVALID_ARGUMENT, "params.team_size is %u, allowed are 2, 4, 8, 16 and 32", team);
  if (params.compare < 0 || params.compare > ANN_COMPARE_STORED)
    fail(ANN_INVALID_ARGUMENT, "params.compare is %d, allowed are 0 to %d", params.compare,
         ANN_COMPARE_STORED);
  if (params.slack < 0 || params.slack > ANN_SLACK_SQUARES)
    fail(ANN_INVALID_ARGUMENT, "params.slack is %d, allowed are 0 to %d", params.slack, ANN_SLACK_SQUARES);
  if (params.descent < 0 || params.descent > ANN_OFF)
    fail(ANN_INVALID_ARGUMENT, "params.descent is %d, allowed are 0 to %d", params.descent, ANN_OFF);
  if (params.descent == ANN_ON && target.segment().graph.kind != ANN_GRAPH_GGNN)
    fail(ANN_UNSUPPORTED,
         "params.descent is on; only graphs of ANN_GRAPH_GGNN have layers to come down through");
}

/// Table 6: for 10 answers 54 places of the queue, 384 of the ring and 400 steps, for 100 answers 28, 896 and
/// 1,000. Each further answer adds a step.
SlackShape shape_of(const ann_search_params& params, uint32_t k, uint32_t kept) {
  SlackShape shape;
  shape.bound = std::max({k, params.beam, kGgnnBestMin});
  shape.best = std::max(shape.bound, kept);
  shape.queue =
      shape.bound <= kGgnnBestMin ? 54 : static_cast<uint32_t>(round_up(shape.bound + 22, 32)) - shape.bound;
  shape.visited = shape.bound <= kGgnnBestMin ? 384 : std::max(896u, 3 * shape.bound);
  if (params.queue != 0) shape.queue = params.queue;
  if (params.visited != 0) shape.visited = params.visited;
  return shape;
}

/// d+_nn1, as a root of compared distances. Stored rows lie 1 / inverse_step as far as their codes, and the
/// distance of two cosines is half the square of the chord.
float nearest_of(const SearchTarget& target, const ann_search_params& params, bool stored) {
  const Segment& segment = target.segment();
  const double share = params.nearest_share == 0 ? 1 : static_cast<double>(params.nearest_share);
  const bool known = segment.graph.kind == ANN_GRAPH_GGNN && share == 1;
  const float nearest = known ? segment.graph.nearest_max : target.host.nearest.quantile(segment, share);
  if (!stored) return nearest;
  const float chord = nearest / segment.codes.inverse_step();
  return segment.dataset.metric() == ANN_METRIC_COSINE ? chord * std::sqrt(0.5f) : chord;
}

/// As for CAGRA's searches (search/cagra_plan.cpp).
uint32_t team_of(const Segment& segment, bool stored) {
  const uint32_t bytes = stored ? segment.dataset.dim() * element_bytes(segment.dataset.element())
                                : static_cast<uint32_t>(segment.codes.stride());
  if (bytes <= 64) return 4;
  if (stored) return segment.dataset.element() == ANN_F32 && bytes >= 512 ? 32 : 8;
  return bytes <= 512 ? 8 : 16;
}

SearchPlan plan(const SearchTarget& target, const SearchRequest& request, const Effort& effort) {
  const ann_search_params& params = request.params;
  const Segment& segment = target.segment();
  const uint32_t found = std::min(request.k, segment.rows());
  GgnnPlan plan;
  plan.stored = params.compare == ANN_COMPARE_STORED && is_float_element(segment.dataset.element()) &&
                segment.dataset.metric() != ANN_METRIC_INNER_PRODUCT;
  // Re-ranking takes no more rows than the longest list holds.
  plan.kept = segment.codes.lossless() || plan.stored ? found : std::min(rerank_count(found), kGgnnListMax);
  plan.shape = shape_of(params, request.k, plan.kept);
  plan.slack = {static_cast<float>(effort.knob), nearest_of(target, params, plan.stored),
                params.slack == ANN_SLACK_SQUARES};
  // Section C.2: "such that the visited list is not exceeded by more than a few points".
  plan.iterations_max = plan.shape.visited + plan.shape.visited / 24;
  // A calibration's queries had the default lists: longer ones are for going farther.
  const bool usual_lists = params.beam == 0 && params.queue == 0 && params.visited == 0;
  if (effort.expansions_max != 0 && usual_lists)
    plan.iterations_max = std::min(plan.iterations_max, effort.expansions_max);
  if (params.iterations_max != 0) plan.iterations_max = params.iterations_max;
  plan.descends = params.descent == ANN_ON && !segment.graph.upper.empty();
  if (plan.descends && plan.shape.best > kGgnnDescentListMax)
    fail(ANN_LIMIT, "params.descent is on: %u best rows are kept of a query, at most %u are allowed",
         plan.shape.best, kGgnnDescentListMax);
  plan.team = params.team_size != 0 ? params.team_size : team_of(segment, plan.stored);
  return plan;
}

void run(const HostPlacement& host, const SearchBatch& batch, const SearchPlan& plan,
         const Execution& execution, SearchCounts* counts) {
  const Segment& segment = host.segment;
  const GgnnPlan& ggnn = std::get<GgnnPlan>(plan);
  const uint32_t k = std::min(batch.results.k, segment.rows());
  answer_on_host<GgnnSpace>(
      host, batch, execution, counts,
      [&] { return std::make_unique<GgnnSpace>(segment.dataset, segment.codes, execution.memory); },
      [&](const PreparedQuery& query, const Admission& admission, GgnnSpace& workspace,
          SearchCounts* task_counts) {
        return search_ggnn(segment.dataset, segment.codes, segment.graph, query, admission, k, ggnn,
                           workspace, task_counts);
      });
}

std::optional<Effort> given(const SearchRequest& request) {
  if (request.params.stretch == 0) return std::nullopt;
  return Effort{static_cast<double>(request.params.stretch - 1), 0, 0};
}

/// On squares Table 1 of the paper: 0.30 gives .95, 0.42 gives .99 and 0.65 gives .9997 of the first neighbours. On
/// distances the values that give .95 and .99 of ten neighbours among the million rows of SIFT: .10 and .15.
Effort unmeasured(const SearchRequest& request, uint32_t) {
  const double halvings = std::log2(0.05 / std::max(1.0 - static_cast<double>(request.recall), 1e-6));
  const double tau =
      request.params.slack == ANN_SLACK_SQUARES ? 0.3 + 0.05 * halvings : 0.1 + 0.022 * halvings;
  return {std::clamp(tau, 0.0, 1.0), 0, 0};
}

/// tau from 0 to 2, close together where recall rises: of distances up to .2, of squares up to .65.
std::optional<double> knob_at(const SearchTarget&, uint32_t, uint32_t step) {
  constexpr double kTaus[] = {0,   .02, .04, .06, .08, .1,  .12, .14, .16, .18, .2,
                              .24, .3,  .36, .42, .5,  .65, .85, 1.1, 1.5, 2};
  if (step >= std::size(kTaus)) return std::nullopt;
  return kTaus[step];
}

/// By the rows that are compared, and by the distances that the slack adds to.
ann_search_params measured_as(const SearchPlan& plan) {
  const GgnnPlan& ggnn = std::get<GgnnPlan>(plan);
  ann_search_params like = ANN_SEARCH_PARAMS_INIT;
  like.procedure = ANN_SEARCH_GGNN;
  like.compare = ggnn.stored ? ANN_COMPARE_STORED : ANN_COMPARE_CODES;
  like.slack = ggnn.slack.squares ? ANN_SLACK_SQUARES : ANN_SLACK_DISTANCES;
  return like;
}

}  // namespace

const Procedure kGgnn = {.id = ANN_SEARCH_GGNN,
                         .name = "GGNN",
                         .knob = Knob::kSlack,
                         .on_host = true,
                         .on_device = true,
                         .check = check,
                         .plan = plan,
                         .run_on_host = run,
                         .given = given,
                         .unmeasured = unmeasured,
                         .knob_at = knob_at,
                         .measured_as = measured_as,
                         .cut = 1.5};

}  // namespace gannet
