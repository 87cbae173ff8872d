// Measures of an index by a sample of rows, by distances of the rows as stored.
//
//   knn_share  the share of their true neighbours that the lists under the graph hold. Cells measure their lists
//              by codes (knn/cells_recall.h), which is right for the decision whether more work pays: work with
//              codes finds the neighbours that codes can tell. But where codes round rows together they measure
//              themselves: of rows of two densities the denser fifth may have hardly a true neighbour in its
//              lists, and the share by codes is 0.97 all the same
//   order      how well codes order the rows: the share of their true 10 nearest among the first 10 and 20 by code
//
// Cost: 256 rows against all by codes, and a second look at some hundred rows of each (search/exact_by_codes.h);
// about as much as the recall of the cells, 3 % of a build. Where a CUDA device has found the lists, those of the
// sample come to the host, k * 1 KB, and the device compares all rows as stored, and all codes.
#pragma once

#include <memory>

#include "dataset/codes.h"
#include "knn/knn_graph.h"
#include "place/placed_shape.h"
#include "place/placement.h"

namespace gannet {

/// Lists of a sample of rows.
struct SampledLists {
  Array<uint32_t> rows;       // [sample]; none: the lists were not measured by codes, nor are they by rows
  Array<uint32_t> neighbors;  // [sample, k]
  uint32_t k = 0;
};

/// The sample of rows.
Array<uint32_t> rows_to_measure(uint32_t rows, uint64_t seed, const Allocator& memory);

/// The lists of those rows.
SampledLists lists_to_measure(const KnnGraph& lists, uint64_t seed, const Allocator& memory);

struct RowMeasures {
  double knn_share = 0;
  CodeOrder order;
};

/// The share of lists that were found by codes is `by_codes` where codes suffice: of rows that are their own codes, and
/// by inner product, whose lists are not those of its distances. Without lists it is 0. True neighbours are found by
/// the device of a placement, unless that is null or its memory does not hold the search.
RowMeasures measure_rows(const Dataset& dataset, const Codes& codes, const SampledLists& lists,
                         double by_codes, uint64_t seed, const DevicePlacement* placed,
                         const Execution& execution);

/// Measures of how well other codes order the rows about one sample, whose true neighbours are found by `codes`.
class OrderSample {
 public:
  OrderSample(const Dataset& dataset, const Codes& codes, uint64_t seed, const Execution& execution);
  ~OrderSample();
  CodeOrder order_by(const Codes& codes);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Bytes of a device that it takes at most, beside a placement there.
uint64_t measure_rows_device_bytes(const PlacedShape& shape);

/// Bytes that it takes at most.
uint64_t measure_rows_bytes(uint32_t dim, size_t stride, uint32_t threads);

}  // namespace gannet
