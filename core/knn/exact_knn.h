// The exact k-NN graph of codes: every pair, by tiles.
//
// The builder for small sets, where n^2 / 2 distances cost less than the rounds of NN-Descent, and
// the reference that NN-Descent is compared with. Each row keeps a bounded sorted list; a row of
// tiles is compared with all columns, so every distance is computed twice and no two threads meet.
#pragma once

#include "base/execution.h"
#include "dataset/codes.h"
#include "knn/knn_graph.h"

namespace gannet {

KnnGraph exact_knn(const Codes& codes, uint32_t k, const Execution& execution);

/// Bytes that it takes at most, its result included.
uint64_t exact_knn_bytes(uint64_t rows, size_t stride, uint32_t k, uint32_t threads);

}  // namespace gannet
