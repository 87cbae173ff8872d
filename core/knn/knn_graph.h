// KnnGraph: for each row, its nearest other rows.
#pragma once

#include <cstdint>

#include "ann.h"
#include "base/memory.h"
#include "traverse/row_key.h"

namespace gannet {

/// The longest lists that every method but GGNN's finds, on the CPU and on devices. A build of TSDG's graph takes
/// longer ones (ANN_KNN_DEGREE_MAX) that are given, or come from comparing every pair on the CPU.
inline constexpr uint32_t kKnnListMax = 2 * ANN_DEGREE_MAX;

/// Lists of fixed length, nearest first, ties by row number, kNoRow in unused places at the end.
struct KnnGraph {
  Array<uint32_t> neighbors;  // [rows, k]
  uint32_t rows = 0;
  uint32_t k = 0;
  uint32_t iterations = 0;  // rounds that NN-Descent ran; 0 for an exact graph
  double share = 0;         // of true neighbours, on a sample of rows; 0: not measured

  const uint32_t* list(uint64_t row) const { return neighbors.data() + row * k; }
};

/// Lists with their code distances.
struct KnnLists {
  KnnGraph graph;
  Array<uint32_t> distances;  // [rows, k], UINT32_MAX where there is no neighbour

  uint64_t bytes() const { return graph.neighbors.bytes() + distances.bytes(); }
};

}  // namespace gannet
