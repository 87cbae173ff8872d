// find_neighbors: for each row its nearest others by codes, by a named method. The only place that knows
// which method does so on the CPU; index/build_cuda.h has its twin for a device.
#pragma once

#include "knn/nn_descent.h"

namespace gannet {

/// NN-Descent needs rows that do not know each other from the start: with fewer than this many for each place of a list
/// every pair is compared instead, which is also less work. So it is for cells.
inline constexpr uint32_t kDescentRowsPerNeighbor = 4;
constexpr bool too_few_to_descend(uint64_t rows, uint32_t k) {
  return rows <= uint64_t{kDescentRowsPerNeighbor} * k;
}

/// The method of ANN_KNN_* that finds lists of k among `rows` rows where the caller names `method`.
constexpr int32_t knn_method_for(uint64_t rows, uint32_t k, int32_t method) {
  return too_few_to_descend(rows, k) ? int32_t{ANN_KNN_EXACT} : method;
}

/// Lists of params.k rows. `method` is ANN_KNN_EXACT, _CELLS or _NN_DESCENT.
KnnGraph find_neighbors(const Codes& codes, int32_t method, const NnDescentParams& params,
                        const Execution& execution);

/// Bytes that it takes at most, its result included. Other methods, as given lists, count as exact ones: heads of a
/// graph (graph/long_edges.h) are compared so, where they are few, whichever method found its lists.
uint64_t find_neighbors_bytes(uint64_t rows, size_t stride, const NnDescentParams& params, int32_t method,
                              uint32_t threads);

}  // namespace gannet
