// IndexView: a segment on a CUDA device as kernels read it. Plain data that the arguments of kernels are
// filled from; the placement owns the memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "ann.h"
#include "dataset/codes.h"
#include "graph/adjacency.h"
#include "segment/row_set.h"
#include "graph/ggnn.h"

namespace gannet {

/// Codes with a scale for each row (dataset/scaled_codes.h), which one list and two lists take.
struct ScaledView {
  const uint8_t* codes = nullptr;  // [row_count, stride]; null: there are none
  const float* centres = nullptr;  // [cells + 1, dim]
  uint32_t cells = 0;
  uint32_t stride = 0;  // bytes

  /// Bytes of a coded query, without the CPU's own parts: a head, two digits of each column, and the table.
  static uint32_t query_bytes(uint32_t stride, uint32_t cells) {
    return 64 + 2 * stride + static_cast<uint32_t>(round_up(size_t{cells} * 4, 64));
  }
  uint32_t query_bytes() const { return codes == nullptr ? 0 : query_bytes(stride, cells); }
};

/// Wide codes as halves (place/narrow_codes_cuda.h), which one list takes, and two lists without
/// narrower codes, where no row is removed.
struct HalfView {
  const uint8_t* codes = nullptr;        // [row_count, stride]; null: there are none
  const uint8_t* pivot_codes = nullptr;  // [pivot_count, stride]
  uint32_t stride = 0;                   // bytes, a multiple of kCodeAlign

  static uint32_t stride_of(uint32_t code_stride) {
    return static_cast<uint32_t>(round_up(size_t{code_stride} / 2, kCodeAlign));
  }
  /// Of a query, whose code stays of floats, with zeros behind.
  uint32_t query_bytes() const { return 2 * stride; }
};

/// Wide codes as bytes with a scale for each row, about their centre (place/narrow_codes_cuda.h), which two lists take;
/// `centres` null.
struct NarrowView : ScaledView {
  const uint8_t* pivot_codes = nullptr;  // [pivot_count, stride]
};

/// The layers above the bottom of GGNN's graph, each on the one before it.
struct LayersView {
  static constexpr uint32_t kMax = kGgnnLayersMax - 1;

  struct Layer {
    const uint32_t* edges = nullptr;  // [rows, stride of the bottom]
    const uint32_t* below = nullptr;  // [rows] of the layer below
  };
  Layer upper[kMax];
  uint32_t count = 0;
};

/// Rows at which walks start.
struct EntriesView {
  const uint32_t* rows = nullptr;  // [count] distinct
  uint32_t count = 0;
};

/// A graph, and where walks over it start, without hidden rows (place/bypass_edges_cuda.h).
struct BypassView {
  Adjacency graph;  // fixed rows; those of hidden rows are as they were
  EntriesView entries;
  const uint32_t* pivots = nullptr;  // [pivot_count] kNoRow in places of hidden rows
  RowSetView hidden;
};

struct IndexView {
  CodeKind kind = CodeKind::kUnsigned;
  const uint8_t* codes = nullptr;  // [row_count, code_stride]
  uint8_t flip = 0;   // 0x80 where codes are i8 rows, every byte xored with that, and so are queries
  Adjacency graph;    // fixed rows
  BypassView bypass;  // the same past hidden rows, while there are any
  LayersView layers;
  EntriesView entries;
  const uint8_t* pivot_codes = nullptr;  // [pivot_count, code_stride]
  const uint32_t* pivots = nullptr;      // [pivot_count] their rows, kNoRow in unused places at the end
  const int32_t* squares = nullptr;      // [pivot_count] x.x of their bytes
  uint32_t pivot_count = 0;              // a multiple of kPivots (place/pivots.h)
  const uint8_t* rows = nullptr;         // [row_count, row_stride] as stored; null where codes are the rows
  const float* norms = nullptr;          // [row_count] lengths, for cosine; else null
  const uint64_t* ids = nullptr;         // [row_count], or null: ids are row numbers
  const float* centre = nullptr;         // [columns] of the codes
  float inverse_step = 1;
  uint32_t columns = 0;  // of a code
  uint32_t row_count = 0;
  uint32_t code_stride = 0;  // bytes
  uint32_t row_stride = 0;   // bytes
  uint32_t value_bytes = 0;  // of a query, a multiple of 16
  uint32_t dim = 0;
  int32_t metric = 0;
  int32_t element = 0;
  bool lossless = false;  // code distances are the reported ones
  ScaledView scaled;
  HalfView halves;
  NarrowView narrow;

  /// Room that the code of a query takes, whichever it is.
  uint32_t query_code_bytes() const {
    return std::max({code_stride, scaled.query_bytes(), halves.query_bytes(), narrow.query_bytes()});
  }

  /// Bytes of a query on the device: its values, and for cosine its length.
  size_t record_bytes() const { return value_bytes + (!lossless && metric == ANN_METRIC_COSINE ? 16 : 0); }
};

}  // namespace gannet
