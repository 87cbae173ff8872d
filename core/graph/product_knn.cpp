#include "graph/product_knn.h"

#include <algorithm>

#include "dataset/codes.h"
#include "graph/product_edges.h"
#include "graph/search_graph.h"
#include "knn/cells.h"

namespace gannet {
namespace {

constexpr uint32_t kNearLength = 48;
constexpr uint32_t kDegree = 32;
constexpr uint32_t kSpareMin = 16;

SearchGraph graph_of_near_rows(const Dataset& dataset, const Codes& codes, uint64_t seed,
                               const Execution& execution) {
  KnnGraph near = cells_knn(codes, {kNearLength, 16, 16, 0.001f, seed}, execution.span(0, 0.9));
  return graph_of_lists(std::move(near), kDegree,
                        choose_entries_by_product(dataset, kEntryPoints, seed, execution.span(0.9, 0.95)),
                        execution.span(0.95, 1));
}

/// Codes order rows nearly as products do, so that spare ones catch the rows they misplace.
uint32_t list_length(uint32_t k) { return std::min(k + std::max(k, kSpareMin), std::max(k, ANN_DEGREE_MAX)); }

}  // namespace

KnnGraph product_knn(const Dataset& dataset, uint32_t k, uint64_t seed, const Execution& execution) {
  Codes codes = Codes::of_rows(dataset, seed, execution);
  const SearchGraph graph = graph_of_near_rows(dataset, codes, seed, execution.span(0, 0.3));
  CodeOrder order;
  codes.walk_by(ScaledCodes::choose(dataset, nullptr, seed, execution.span(0.3, 0.35), &order));
  return lists_by_product(graph, dataset, codes, list_length(k), execution.span(0.35, 1));
}

}  // namespace gannet
