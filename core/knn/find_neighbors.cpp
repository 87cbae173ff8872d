#include "knn/find_neighbors.h"

#include "knn/cells.h"
#include "knn/exact_knn.h"

namespace gannet {

KnnGraph find_neighbors(const Codes& codes, int32_t method, const NnDescentParams& params,
                        const Execution& execution) {
  const int32_t taken = knn_method_for(codes.rows(), params.k, method);
  if (taken == ANN_KNN_EXACT) return exact_knn(codes, params.k, execution);
  return taken == ANN_KNN_CELLS ? cells_knn(codes, params, execution) : nn_descent(codes, params, execution);
}

}  // namespace gannet
