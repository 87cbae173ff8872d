// RowBounds: which rows a query need not be compared with.
//
// Rows are coded tile by tile while an exact search runs, as bytes with a step of each row's own
// (distance/bounds.h), and forgotten: nothing is kept beside the rows.
//
//   L2       of rows and queries less a centre, the mean of some rows, since errors grow with length;
//   cosine   likewise of rows and queries of length one, whose |x - q|^2 is twice the distance;
//   product  of rows less a centre c and of queries as they are: x.q = (x - c).q + c.q.
//
// A centre is taken where it brings more than half of some rows nearer to zero; that of rows of which a few are very
// long does not. Rows of which two have a cosine of .95 on average (embeddings may have) took 2.2 times as long by
// cosine without one, and of .98 3.7 times (30,000 x 384).
//
// Rows of i8 and u8 are their own codes, with no error; by cosine their lengths are taken into account by product.
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
  /// Bytes of a code that are compared; those behind them are zero.
  size_t columns() const { return round_up(size_t{dataset_.dim()}, kCodeStep); }
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
  /// Whether the bound is one of |x - q|^2, else of x.q.
  bool by_difference() const {
    return dataset_.metric() == ANN_METRIC_L2 ||
           (dataset_.metric() == ANN_METRIC_COSINE && is_float_element(dataset_.element()));
  }
  bool widen(const void* vector, int32_t element, float* values) const;
  BoundCode code(const void* vector, int32_t element, bool centred, float* values, uint8_t* out) const;
  void find_centre(const Execution& execution);
  double farthest(float distance) const;

  const Dataset& dataset_;
  size_t stride_;
  uint32_t tile_rows_;
  double rounding_;      // loss of a sum over all columns by rounding, at most, as a part
  Array<float> centre_;  // [stride], of floats; empty: none
  double centre_length_ = 0;
};

}  // namespace gannet
