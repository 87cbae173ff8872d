#include "search/slack.h"

#include <algorithm>

#include "search/slack_walk.h"

namespace gannet {

uint32_t search_with_slack(const Dataset& dataset, const Codes& codes, const SearchGraph& graph,
                           const PreparedQuery& query, const Admission& admission, uint32_t k, float slack,
                           SearchWorkspace& workspace, SearchCounts* counts) {
  if (k == 0) return 0;
  SlackSearch search(dataset, codes, graph, query, admission, k, slack, workspace);
  search.run();
  *counts += search.counts();
  return search.found();
}

void trace_with_slack(const Dataset& dataset, const Codes& codes, const SearchGraph& graph,
                      const PreparedQuery& query, const Admission& admission, std::span<SlackFront> fronts,
                      SearchWorkspace& workspace,
                      const std::function<bool(const SlackFront& front, uint32_t compared,
                                               const SearchCounts& counts)>& found) {
  uint32_t most = 0;
  for (const SlackFront& front : fronts) most = std::max(most, front.k);
  const uint32_t length = std::min(slack_list(most), codes.rows());
  const VisitedCleared cleared(begin_walk(codes, query, admission, length, workspace).visited);
  SlackWalk walk(codes, graph, admission, workspace, most, 0, length);
  CompareOnce once(dataset, codes, query, admission, workspace);
  walk.start(fronts);
  walk.trace(fronts, [&](const SlackFront& front) {
    return found(front, once.compare(walk.list, walk.near(front), front.k), walk.counts);
  });
}

}  // namespace gannet
