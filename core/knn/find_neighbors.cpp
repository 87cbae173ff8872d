#include "knn/find_neighbors.h"

#include <algorithm>

#include "knn/cells.h"
#include "knn/exact_knn.h"

namespace gannet {

KnnGraph find_neighbors(const Codes& codes, int32_t method, const NnDescentParams& params,
                        const Execution& execution) {
  const int32_t taken = knn_method_for(codes.rows(), params.k, method);
  if (taken == ANN_KNN_EXACT) return exact_knn(codes, params.k, execution);
  return taken == ANN_KNN_CELLS ? cells_knn(codes, params, execution) : nn_descent(codes, params, execution);
}

uint64_t find_neighbors_bytes(uint64_t rows, size_t stride, const NnDescentParams& params, int32_t method,
                              uint32_t threads) {
  const uint64_t exact = exact_knn_bytes(rows, stride, params.k, threads);
  if (method == ANN_KNN_CELLS) return std::max(exact, cells_knn_bytes(rows, stride, params, threads));
  if (method == ANN_KNN_NN_DESCENT && !too_few_to_descend(rows, params.k))
    return nn_descent_bytes(rows, stride, params, threads);
  return exact;
}

}  // namespace gannet
