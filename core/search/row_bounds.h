// RowBounds: which rows a query need not be compared with.
//
// Rows are coded tile by tile while an exact search runs, as bytes with a step of each row's own
// (distance/bounds.h), and forgotten: nothing is kept beside the rows.
//
//   L2       of rows less the mean of some of them, since errors grow with length;
//   product  of the rows as they are;
//   cosine   of rows and queries of length one.
//
// Rows of i8 and u8 are their own codes, with no error.
#pragma once

#include "base/execution.h"
#include "search/queries.h"

namespace gannet {

class RowBounds {
 public:
  RowBounds(const Dataset& dataset, const Execution& execution);

  /// The fewest queries that must share the codes, or comparing rows as stored costs less.
  static uint64_t fewest(int32_t element);
  /// Coding a row of floats takes as long as 18 to 24 queries do with it (128 and 960 columns).
  static constexpr uint64_t kFewestOfFloats = 24;

  /// Bytes of a code.
  size_t stride() const { return stride_; }
  /// Rows of a tile at most, a multiple of kPackRows.
  uint32_t tile_rows() const { return tile_rows_; }

  /// Whether |X - Q|^2 is the reported distance.
  bool exact() const { return dataset_.metric() == ANN_METRIC_L2 && !is_float_element(dataset_.element()); }

  /// A tile of rows, coded. A thread's own.
  class Tile {
   public:
    Tile(const RowBounds& bounds, const Allocator& memory);
    const uint8_t* packed() const { return packed_.data(); }
    const BoundRows& rows() const { return rows_; }

   private:
    friend class RowBounds;
    Array<uint8_t> block_;  // [tile_rows, stride]
    Array<uint8_t> packed_;
    Array<float> values_;   // [stride] of a vector
    Array<float> numbers_;  // [5, tile_rows]
    BoundRows rows_;
  };

  /// A query's part of the bound, and of the limit beyond which rows are too far.
  struct Query : BoundQuery {
    double own = 0;
    bool usable = false;  // false: nothing is
  };

  /// Codes the rows first ... first + count.
  void code_rows(uint32_t first, uint32_t count, Tile& tile) const;

  /// Codes a query, to [stride], and bounds nothing yet. The tile lends its space.
  void code_query(const PreparedQuery& query, bool usable, Tile& tile, uint8_t* code, Query* out) const;

  /// From now on rows are too far that are farther than `distance`.
  void set_limit(float distance, Query* query) const;

 private:
  BoundCode code(const void* vector, int32_t element, float* values, uint8_t* out) const;
  void find_centre(const Execution& execution);

  const Dataset& dataset_;
  size_t stride_;
  uint32_t tile_rows_;
  double rounding_;      // loss of a sum over all columns by rounding, at most, as a part
  Array<float> centre_;  // [stride], for L2 of floats
};

}  // namespace gannet
