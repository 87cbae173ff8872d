// Lists by product from a CUDA device: what graph/product_edges.h finds with a walk for each row, with all rows as a
// batch of queries.
//
// The graph of near rows is placed for the time of these walks, which have one list (search/walk_cuda.cu) and compare
// codes with a scale for each row. They come back re-ranked by rows as stored. Of 150,000 word vectors, 48 rows by
// walks with a list of 96, 16 cores took 490 ms for all edges by product, 210 where one NVIDIA H200 walks, as good ones:
// .9577 and .9579 of ten by 43 expansions.
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
