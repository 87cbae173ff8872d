// The shape that decides how much of a CUDA device's memory an index and its searches take, for estimates: before
// there is an index, whether codes are floats is assumed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "ann.h"
#include "dataset/codes.h"
#include "place/index_view.h"

namespace gannet {

struct PlacedShape {
  uint64_t rows;
  uint32_t dim;
  int32_t metric;
  int32_t element;  // as stored
  uint32_t degree;
  size_t code_stride;
  bool ids;

  bool lossless() const { return Codes::rows_serve(metric, element, false); }

  /// Bytes of a row beside its code and edges.
  uint64_t row_bytes() const {
    const uint64_t id = ids ? sizeof(uint64_t) : 0;
    if (lossless()) return id;
    const uint64_t norm = metric == ANN_METRIC_COSINE ? sizeof(float) : 0;
    const uint64_t scaled = metric == ANN_METRIC_INNER_PRODUCT ? ScaledCodes::code_stride(dim) : 0;
    return id + Dataset::stored_stride(dim, metric, element) + norm + scaled;
  }

  /// Bytes of a second copy of all edges and a bit for each row, while some are hidden.
  uint64_t hiding_bytes() const { return rows * degree * sizeof(uint32_t) + rows / 8; }

  // Bytes of a query, as IndexView has them at most:

  size_t value_bytes() const {
    return lossless() ? code_stride : round_up(dim * (is_float_element(element) ? sizeof(float) : 1), 16);
  }
  size_t record_bytes() const {
    return value_bytes() + (!lossless() && metric == ANN_METRIC_COSINE ? 16 : 0);
  }
  uint64_t query_code_bytes() const {
    if (lossless()) return 0;
    const auto scaled_stride = static_cast<uint32_t>(ScaledCodes::code_stride(dim));
    const bool wide = code_stride >= dim * sizeof(float);
    if (metric != ANN_METRIC_INNER_PRODUCT)
      return std::max<uint64_t>({code_stride,
                                 2 * uint64_t{HalfView::stride_of(static_cast<uint32_t>(code_stride))},
                                 wide ? ScaledView::query_bytes(scaled_stride, 1) : 0u});
    return std::max<uint64_t>(code_stride, ScaledView::query_bytes(scaled_stride, ScaledCodes::kCellsMany));
  }
};

}  // namespace gannet
