// ScaledCodes: rows as bytes with a scale for each row, about the cell that each is nearest to.
//
// One step for all rows (dataset/codes.h) loses neighbours wherever lengths or densities differ: rows that are
// close together beside the widest ones share a code. Here
//
//     x = c_a + s u + error,   u in [-127, 127],   s = max |x - c_a| / 127,
//
// with a centre c_a for each of some cells (k-means; one cell: the mean of all rows) and a scale s of the row's own. A
// query is coded once, in 16 bits: q = c + t V for L2, c the mean of all rows, and q = t V for inner product.
// Then
//
//     L2               |q - c_a - s u|^2 = |q - c_a|^2  +  (s^2 |u|^2 + 2 s u.(c_a - c))  -  2 s t (u.V)
//     inner product    -q.(c_a + s u)    = -q.c_a                                         -    s t (u.V)
//
// of which the first is a table that a query makes, one number a cell, the second stands with the row, and u.V is
// an integer product (distance/row_products.h). All three are as small as the distances within a cell, so
// 32 bits of floating point separate the same rows as the bytes; with the rows' own lengths, which may be far larger,
// they would not. Inner product needs no augmentation, and its answers do not depend on a query's length, nor
// do those of cosine, which is L2 of rows and queries at length one.
//
// Of the true 10 nearest the first 10 by code hold, of patches of pictures, .907 by one step, .986 by one cell and
// .997 by 256, of rows in two densities .748, .757 and .975 (tests/bench/results.csv, "codes: bytes by", has twelve
// sets).
//
// So `choose` tries one cell, then 256, and says where neither orders the rows well enough. The worst tenth of rows
// decides with the mean: of the patches it has .967 by one cell and 1.00 by 256.
//
// Bytes of a row: the columns rounded up to 16, and 16 for s, the second term and the cell, which lie behind
// them so that a walk reads them with the row; all of it rounded up to cache lines. A query as `distances` takes
// it is one piece of memory, [query_bytes()]:
//
//     f32    t, -1 or -2 times, the factor of products besides s
//     u32    128 * sum V
//     u8[56] zeros
//     i8     [stride] high digits of V, [stride] low digits; zero beyond the columns, so that terms weigh nothing
//     f32    [cells] the table, rounded up to 64 bytes
//     i16    [stride] V
//     f32    [dim] the query as it is compared; on the CPU alone
//
// Work: two products of bytes a column, and for a query 256
// distances for the table. One core with VNNI, 100,000 x 128: 7 to 8 ns a row of 64 that are compared at once,
// 3.4 with one step for all and 16 of 192 columns as floats, the codes of patches' walks today; a query
// .4 us with one cell, 1.7 with 256, .2 with one step; coding all rows .08 and .3 s, measuring its order .6 s.
// Distances are floats brought into the order of unsigned numbers, equal on every machine.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "base/execution.h"
#include "base/first_touch.h"
#include "dataset/dataset.h"
#include "distance/row_products.h"

namespace gannet {

/// How well codes order the rows about sampled ones; negative: not measured.
struct CodeOrder {
  static constexpr uint32_t kNear = 10;
  static constexpr uint32_t kLooked = 20;

  double first_ten = -1;     // share of the true 10 nearest among the first 10 by code,
  double first_twenty = -1;  // and 20
  double worst_twenty = -1;  // the same of the tenth of the sample that fares worst

  bool is_measured() const { return first_twenty >= 0; }
  /// Whether walks by them can reach any recall that a caller may want.
  bool is_enough() const { return first_twenty >= 0.999 && worst_twenty >= 0.99; }
};

/// The order of a sample, from the shares of each of its rows or queries, which are reordered.
CodeOrder order_of(Array<double>& ten, Array<double>& twenty);

/// A float as an unsigned number of the same order, and back.
inline uint32_t in_order(float distance) {
  const uint32_t bits = std::bit_cast<uint32_t>(distance);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
inline float out_of_order(uint32_t number) {
  return std::bit_cast<float>((number & 0x80000000u) != 0 ? number & 0x7fffffffu : ~number);
}

class ScaledCodes {
 public:
  static constexpr uint32_t kCellsMany = 256;

  /// The terms that follow a row's bytes, at terms_at().
  struct Terms {
    float scale;
    float offset;
    uint32_t cell;
    uint32_t zero;
  };

  /// The parts of the codes that do not follow from the dataset, as read from a file.
  struct Parts {
    Array<uint8_t> codes;         // [rows, stride]
    Array<float> centres;         // [cells + 1, dim] the mean that queries are coded about, then the cells
    FirstTouch* touch = nullptr;  // called before a code is read, unless null
  };

  /// Codes all rows, about `cells` centres or one.
  ScaledCodes(const Dataset& dataset, uint32_t cells, uint64_t seed, const Execution& execution);
  ScaledCodes(const Dataset& dataset, Parts&& parts);

  /// The fewest cells whose codes order the rows well enough for any recall that a caller may want: of the
  /// sample 0.999 of the true 10 nearest, and 0.99 of its worst tenth, are among the first 20; where neither does,
  /// the most cells. The sample is of the rows, or of `queries` if not null. `order` gets the figures.
  static ScaledCodes choose(const Dataset& dataset, const MatrixView* queries, uint64_t seed,
                            const Execution& execution, CodeOrder* order);

  uint32_t rows() const { return count_; }
  uint32_t cells() const { return cells_; }
  size_t stride() const { return stride_; }
  const uint8_t* row(uint32_t number) const { return stored_.data() + number * stride_; }
  uint64_t bytes() const { return stored_.bytes() + centres_.bytes(); }
  const uint8_t* data() const { return stored_.data(); }
  const Array<float>& centres() const { return centres_; }  // [cells + 1, dim], as Parts have them
  /// Checks everything that has not been yet.
  void touch_all(const Execution& execution = {}) const {
    if (touch_ != nullptr) touch_->touch_all(execution);
  }

  /// Bytes from one row to the next, and where its terms stand.
  static size_t code_stride(uint32_t dim) { return round_up(terms_at(dim) + sizeof(Terms), kCodeAlign); }
  static size_t terms_at(uint32_t dim) { return round_up_to_16(dim); }

  /// Bytes of a coded query.
  size_t query_bytes() const { return floats_at() + size_t{dim_} * sizeof(float); }
  /// The same with `cells` centres.
  static uint64_t query_bytes(uint32_t dim, uint32_t cells) {
    return sizeof(QueryHead) + code_stride(dim) * (2 + sizeof(int16_t)) +
           round_up(size_t{cells} * sizeof(float), kCodeAlign) + size_t{dim} * sizeof(float);
  }

  /// Writes a coded query, [query_bytes()], to aligned memory.
  void encode_query(const PreparedQuery& prepared, uint8_t* query) const;

  /// out[i] is the distance to row ids[i], or to row first + i where ids is null.
  void distances(const uint8_t* query, const uint32_t* ids, uint32_t first, uint32_t count,
                 uint32_t* out) const;

  /// Compares the order about sampled rows, or queries if not null, with that of true distances, over all rows.
  CodeOrder measure(const Dataset& dataset, const MatrixView* queries, uint64_t seed,
                    const Execution& execution) const;

 private:
  struct QueryHead {
    float weight;  // of s (u.V)
    uint32_t bias;
    uint32_t zeros[14];
  };
  /// How far the coded distance of a query to a row may lie from the true one.
  struct Reach {
    float of_scale;  // times the row's scale
    float of_all;

    /// The least that the true distance may be. A row without a scale tells nothing.
    float least(float coded, float scale) const {
      return scale > 0 ? coded - scale * of_scale - of_all : -INFINITY;
    }
  };
  Reach reach_of(const uint8_t* query) const;
  float scale_of(uint32_t number) const;

  size_t table_at() const { return sizeof(QueryHead) + 2 * stride_; }
  size_t values_at() const { return table_at() + round_up(size_t{cells_} * sizeof(float), kCodeAlign); }
  size_t floats_at() const { return values_at() + stride_ * sizeof(int16_t); }

  const float* mean() const { return centres_.data(); }
  const float* centre(uint32_t cell) const { return centres_.data() + (size_t{cell} + 1) * dim_; }
  RowsView cell_rows() const { return {centre(0), dim_ * sizeof(float), dim_, ANN_F32}; }
  void values_of(const uint8_t* vector, int32_t element, double norm, float* values) const;
  void row_values(const Dataset& dataset, uint64_t row, float* values) const;
  uint32_t nearest_cell(const float* values, float* distances) const;
  void fit(const Dataset& dataset, uint64_t seed, const Execution& execution);
  void find_centres(const float* values, uint32_t count, uint64_t seed, const Execution& execution);
  float offset_of(const uint8_t* code, uint32_t cell, float scale) const;
  void encode(const float* values, uint32_t cell, uint8_t* code) const;
  void touch(const uint32_t* ids, uint32_t first, uint32_t count) const;

  uint32_t count_ = 0;
  uint32_t dim_ = 0;
  int32_t metric_ = 0;
  int32_t element_ = 0;  // of queries
  uint32_t cells_ = 1;
  size_t stride_ = 0;
  RowProducts products_ = nullptr;
  Array<uint8_t> stored_;  // [rows, stride]
  Array<float> centres_;  // [cells + 1, dim] the centre of queries' codes, zeros for inner product; the cells
  FirstTouch* touch_ = nullptr;
};

/// Bytes that codes with a scale for each row hold at most.
uint64_t scaled_codes_bytes(uint64_t rows, uint32_t dim);

/// Bytes that choosing them takes at most beside those and the codes of another choice.
uint64_t fit_scaled_codes_bytes(uint32_t dim, uint32_t threads);

}  // namespace gannet
