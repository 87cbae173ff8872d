// Edges by product from a CUDA device: what graph/product_edges.h makes, with a walk for each row, all rows being one
// batch of queries.
//
// The graph of near rows is placed. Walks with one list over it compare codes with a scale for each row
// (search/walk_cuda.cu), and the whole list, re-ranked by rows as stored, stays on the device: there the lists are made
// mutual, pruned and merged with the near edges, and every row is made reachable. The host gets the finished edges, and
// the index the placement.
//
// Lists of 4 k that are made mutual replace lists of 8 k, of which k came to the host. Those had .9944 of the true
// neighbours, but rows that no walk finds were in no list. Of 150,000 word vectors (one NVIDIA H100, 1,000 queries, 10
// answers) foreign queries ask .44 of the time for .95 and .56 for .99, queries like the rows .55 and .41, and lists of
// 16 k alone .74 and .65, .80 and .63. Rows that offer themselves to the first k of their list instead of all 4 k: .65
// and .73, .75 and .56.
//
// Device memory beside the placement, a row: 8 bytes for each of 5 k places, a little for offers, and the edges. From the
// graph of near rows to the placement 150,000 word vectors take 57 ms (16 cores), and took 170 where lists came to the
// host, which merged them, looked for rows that are not reached, and placed the index anew.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "base/execution.h"
#include "knn/knn_graph.h"
#include "place/pivots.h"
#include "place/placed_shape.h"
#include "place/placement.h"
#include "search/plan.h"
#include "segment/segment.h"

namespace gannet {

/// Rows from which on a device walks. Fewer take the host some milliseconds, and then their graph is the CPU's.
inline constexpr uint32_t kProductWalksMin = 1 << 15;

namespace cuda {

class GraphOnDevice;

/// Adds the edges by product to a graph of near rows, from lists of k, and makes every row reachable if `repair`; the
/// segment gets the edges. Returns its placement on the device of that graph; null, and the segment has the near edges,
/// where its memory does not hold graph, codes and walks. Errors: as of build_cuda.h, but ANN_DEVICE_NO_MEMORY.
std::unique_ptr<DevicePlacement> add_product_edges(Segment& segment, GraphOnDevice& near, uint32_t k,
                                                   bool repair, const Execution& execution);

/// The lists of k by product that those edges are made of: of each row the rows of the largest products, itself not
/// among them, that walks over the segment's graph find. Errors: as of build_cuda.h.
KnnGraph lists_by_product(const Segment& segment, uint32_t k, int32_t device, const Execution& execution);

}  // namespace cuda

namespace product_walks {

inline constexpr uint32_t kLanes = 2;  // runs at once: one's last walks leave room for the next one's first
inline constexpr uint32_t kRowsARun = 1 << 15;  // that keep a device busy
inline constexpr uint32_t kWalkLists = 4;       // so many times as long is a walk's list as what it is for
inline constexpr uint32_t kOfferParts = 16;  // of the rows, which offer themselves one part after the other

/// Rows of a walk's list, all of which are kept.
constexpr uint32_t list_of_walk(uint32_t k, uint64_t rows) {
  return static_cast<uint32_t>(
      std::max<uint64_t>(k, std::min({uint64_t{kWalkLists} * k, uint64_t{kDeviceBeamMax}, rows})));
}

/// Device memory that these edges take at most, beside the placement.
inline uint64_t device_bytes(const PlacedShape& shape, uint32_t k, uint32_t degree) {
  constexpr uint64_t kPlace = sizeof(uint32_t) + sizeof(float);
  const uint32_t length = list_of_walk(k, shape.rows);
  const uint64_t walked = shape.rows * length * kPlace;
  const uint64_t query = shape.record_bytes() + shape.query_code_bytes() +
                         (candidates_most(length) + kStartWords + 1) * sizeof(uint32_t) + 1;
  const uint64_t walking = uint64_t{kLanes} * kRowsARun * query;
  const uint64_t mutual =
      shape.rows * (k * kPlace + sizeof(uint32_t) + sizeof(uint64_t)) + walked / kOfferParts;
  const uint64_t edges = shape.rows * degree * sizeof(uint32_t);
  return edges + walked + std::max(walking, mutual);
}

}  // namespace product_walks

}  // namespace gannet
