// The phases one after the other, for graphs that serve another: the one over heads (graph/long_edges.cpp), the one
// that lists by product are found in (graph/product_knn.cpp). index/build.cpp makes an index's own.

#include "graph/search_graph.h"

namespace gannet {

SearchGraph graph_of_lists(KnnGraph&& lists, uint32_t degree, Array<uint32_t>&& entries,
                           const Execution& execution) {
  SearchGraph graph;
  graph.rows = lists.rows;
  graph.degree = degree;
  {
    const KnnGraph knn = std::move(lists);
    graph.edges = prune_by_rank(knn, Pruning::near(degree), execution);
  }
  add_reverse_edges(graph.edges, graph.rows, degree, execution);
  graph.entries = std::move(entries);
  repair_reachability(graph, execution);
  return graph;
}

}  // namespace gannet
