// NN-Descent by inner product, on the codes of squared L2.
//
//     -2 x.y = |x - y|^2 - |x|^2 - |y|^2
//
// The rounds of nn_descent.cpp need a number of each pair that both rows agree on and that is smaller for larger
// products. The distance of two codes and an offset of each row make one: with B no smaller than any |x|^2,
//
//     |x - y|^2 + (B - |x|^2) + (B - |y|^2) = 2 B - 2 x.y,   from 0 to 4 B
//
// in squares of the codes' step. On a device, where a distance is x.x + y.y - 2 x.y, offsets are added to the squares
// of the codes and nothing else changes (nn_descent_by_products in knn/nn_descent_cuda.h). x and y are the rows as
// their codes stand for them, so that a clipped row is as long in its offset as in its distances and nothing falls
// below 0. This needs no column more, where a search's codes have sixteen (dataset/codes.h), and those give the order
// about a query, not about a row.
//
// GNND calls itself generic; inner product is no metric, a neighbour of a neighbour need not be near, and long rows
// are everybody's neighbours: of the rows that sampled such a row only 2 p come to meet there. Share of the true 10
// nearest, lists of 10, 32 and 64: SIFT 10,000 x 128 bytes .964 .993 .999; words 20,000 x 100, whose lengths differ
// widely, .61 .73 .85. So ann_knn_graph compares every pair unless a caller names this.
#pragma once

#include <cstdint>
#include <optional>

#include "base/execution.h"
#include "dataset/codes.h"
#include "knn/nn_descent.h"

namespace gannet {

/// The offset of each row, [rows]. None where codes are floats, or distances with offsets leave 32 bits. `codes` are
/// those of L2 of rows of `dim` columns.
std::optional<Array<uint32_t>> product_offsets(const Codes& codes, uint32_t dim, const Execution& execution);

/// nn_descent by distances with offsets.
KnnGraph nn_descent_by_products(const Codes& codes, const Array<uint32_t>& offsets,
                                const NnDescentParams& params, const Execution& execution);

}  // namespace gannet
