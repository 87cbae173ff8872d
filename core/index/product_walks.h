// Lists by product from a CUDA device: what graph/product_edges.h finds with a walk for each row, with all rows as a
// batch of queries.
//
// The graph of near rows is placed for the time of these walks, which have one list (search/walk_cuda.cu) and compare
// codes with a scale for each row. They come back re-ranked by rows as stored. A long list finds more than a short one
// and rounds through the lists of others, which the host makes: of 40,000 rows, 48 each, one of 384 has .9944 of the true
// ones, one of 96 with two rounds of 16 cores .9858 (none .94), and of 150,000 word vectors the walks take 100 ms where
// the rounds took 117 after walks of 50 (one NVIDIA H100). Foreign queries then find .998 of ten by 447 expansions
// instead of 505.
#pragma once

#include <cstdint>
#include <optional>

#include "base/execution.h"
#include "knn/knn_graph.h"
#include "place/placed_shape.h"
#include "segment/segment.h"

namespace gannet {

/// Rows from which on a device walks. Fewer take the host some milliseconds, and then their graph is the CPU's.
inline constexpr uint32_t kProductWalksMin = 1 << 15;

/// The k rows of the largest products of each row, itself not among them, that walks over the segment's graph find on
/// a device (ANN_DEVICE_CUDA and on); none where its memory does not hold graph, codes and walks.
std::optional<KnnGraph> walk_by_product(const Segment& segment, uint32_t k, int32_t device,
                                        const Execution& execution);

/// Device memory of these walks at most, beside the placement.
uint64_t product_walks_device_bytes(const PlacedShape& shape, uint32_t k);

}  // namespace gannet
