// SLACK as a row of the table, on the CPU.

#include "search/batch_on_host.h"
#include "search/procedure.h"
#include "search/slack_walk.h"

namespace gannet {
namespace {

void check(const SearchTarget&, const SearchRequest& request) {
  const float delta = request.params.delta;
  if (delta != 0 && !(delta >= 1 && delta <= 4))
    fail(ANN_INVALID_ARGUMENT, "params.delta is %g, allowed are 1 to 4", static_cast<double>(delta));
  if (request.params.beam != 0)
    fail(ANN_INVALID_ARGUMENT, "params.beam is %u, it must be 0 where procedure is %d, which has a slack",
         request.params.beam, request.params.procedure);
}

SearchPlan plan(const SearchTarget&, const SearchRequest&, const Effort& effort) {
  return TwoListsPlan{static_cast<float>(effort.knob), 0, 1, 0, effort.from_groups, effort.covering};
}

void run(const HostPlacement& host, const SearchBatch& batch, const SearchPlan& plan,
         const Execution& execution, SearchCounts* counts) {
  const Segment& segment = host.segment;
  const TwoListsPlan walk = std::get<TwoListsPlan>(plan);
  const uint32_t k = std::min(batch.results.k, segment.rows());
  const Codes* const covering_codes =
      walk.covering.empty() ? nullptr : host.covering_codes.of(walk.covering, segment.codes, execution);
  answer_by_turns<SlackSearch, SearchWorkspace>(
      host, batch, execution, counts,
      [&] {
        return std::unique_ptr<SearchWorkspace>(new (execution.memory) SearchWorkspace(
            segment.dataset, segment.codes, segment.graph, execution.memory));
      },
      [&](std::optional<SlackSearch>& search, const PreparedQuery& query, const Admission& admission,
          SearchWorkspace& workspace) {
        workspace.level = kWholeRows;  // a search by a beam may have had it before
        workspace.from_groups = walk.from_groups;
        workspace.covering = walk.covering;
        workspace.covering_codes = covering_codes;
        search.emplace(segment.dataset, segment.codes, segment.graph, query, admission, k, walk.slack,
                       workspace);
      });
}

std::optional<Effort> given(const SearchRequest& request) {
  if (request.params.delta == 0) return std::nullopt;
  return Effort{double{request.params.delta} - 1};
}

/// A tenth up to a recall of 0.95, and half as much more for each halving of the missed share beyond.
Effort unmeasured(const SearchRequest& request, uint32_t) {
  double slack = 0.1;
  for (double miss = 0.05; miss > 1 - double{request.recall} && slack < 1; miss /= 2) slack += 0.05;
  return {slack};
}

std::optional<double> knob_at(const SearchTarget&, uint32_t, uint32_t step) {
  if (step >= std::size(kSlacksTried)) return std::nullopt;
  return kSlacksTried[step];
}

constexpr Procedure make_row() {
  Procedure row;
  row.id = ANN_SEARCH_SLACK;
  row.name = "SLACK";
  row.knob = Knob::kSlack;
  row.on_host = true;
  row.on_device = false;
  row.check = check;
  row.plan = plan;
  row.run_on_host = run;
  row.given = given;
  row.unmeasured = unmeasured;
  row.knob_at = knob_at;
  return row;
}

}  // namespace

constinit const Procedure kSlack = make_row();

}  // namespace gannet
