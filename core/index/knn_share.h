// The share of their true neighbours that the lists under a graph hold, as an index reports it.
//
// Cells judge their lists by codes (knn/cells_judge.h), which is right for how much more work is worth its time:
// work with codes finds what codes can tell. But where codes round rows together they judge themselves: of rows
// of two densities the denser fifth may have hardly a true neighbour in its lists, and the share by codes is
// 0.97 all the same. So what is reported goes by the rows as stored.
//
// Cost: 256 rows against all by codes, and a second look at some hundred rows of each (search/exact_by_codes.h);
// about as much as the judge of the cells, 3 % of a build. Lists that a CUDA device found stay there and are
// reported by their codes.
#pragma once

#include "dataset/codes.h"
#include "knn/knn_graph.h"

namespace gannet {

/// The share of lists that were found by codes; `by_codes` where codes tell all there is to tell: of rows that are
/// their own codes, and by inner product, whose lists are not those of its distances.
double knn_share_as_stored(const Dataset& dataset, const Codes& codes, const KnnGraph& lists, uint64_t seed,
                           double by_codes, const Execution& execution);

/// Bytes that it takes at most.
uint64_t knn_share_bytes(uint32_t dim, size_t stride, uint32_t threads);

}  // namespace gannet
