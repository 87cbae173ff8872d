// k-NN lists by inner product without comparing every pair.
//
// Cells need a metric: a row's largest products are seldom near it. So cells find lists of near rows
// (knn/cells.h), pruned and with reverse edges they are a graph, and rows walk it by product, as the edges of
// an index by inner product are found (graph/product_edges.h). Codes of the walk have a scale for each row; a list
// is twice as long as wanted, since the caller orders it by the rows themselves.
//
// Cost of a row beside its near list: a walk with a beam of 64, or of four thirds of a list's length if that is more,
// or for two rows of three the lists of some that have walked, and two rounds that look at the lists of near rows and
// of those in its own.
#pragma once

#include <cstdint>

#include "base/execution.h"
#include "dataset/dataset.h"
#include "knn/knn_graph.h"

namespace gannet {

/// Lists in which the k largest products of each row are to be found: of 2 k rows, at least k + 16 and at most
/// ANN_DEGREE_MAX, or k where that is more. They do not depend on threads or on the CPU.
KnnGraph product_knn(const Dataset& dataset, uint32_t k, uint64_t seed, const Execution& execution);

}  // namespace gannet
