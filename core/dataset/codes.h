// Codes: rows as bytes, whose squared L2 distance builds and searches walk by.
//
// A walk compares a query with hundreds of rows to answer with ten, so it pays to read less of each:
// a byte a column instead of four, and integer sums that are exact and equal on every machine. The
// answer is then computed on the stored rows.
//
//   Rows of i8 or u8 under L2 are their own codes; nothing is stored beside them.
//   Float rows under L2: code = round((x - centre) / step) + 128, with a centre for each column and
//     one step for all, so that distances of codes are proportional to distances of rows except for
//     rounding. A step for each column would follow the data more closely and weigh columns wrongly.
//   Cosine: the same on rows of length one, where squared L2 is twice the cosine distance.
//   Inner product: the same on rows with an extra column a = sqrt(M^2 - |x|^2), M the largest length,
//     and queries with a = 0: |q - x|^2 = |q|^2 + M^2 - 2 q.x, the order of the products (Bachrach
//     et al., "Speeding up the Xbox recommender system", 2014). The order does not depend on a query's
//     length, its code would: a short one rounds to the centre, a long one is clipped. So queries are coded
//     at the greatest length at which no column is clipped. The extra column may be far wider
//     than the others, so it is split over kSplit columns of a / sqrt(kSplit), which leaves distances
//     as they are and keeps the step small.
//
// The step is the one of 16 tried that gives the least squared error, clipping included, on a sample
// of the rows.
//
// Where bytes cannot tell neighbours apart, codes are wide: the same columns as floats, scaled to at
// most 1. That is so with few columns (one column has 256 codes for all rows), far islands or
// outliers. Rounding moves a distance by about 0.4 steps (two roundings, each of variance 1/12, seen
// along the line between the rows), so bytes serve if 19 of 20 sampled rows lie 16 steps from their nearest
// other row: an error of 2.5 %. SIFT, GIST and word vectors lie at some 200.
//
// Walks of the CPU compare rows of halves by squared L2 as they are stored where codes would be wide: half the
// bytes, and no rounding. One thread, 50,000 image patches of 192 columns, beams of 10, 24 and 80, which find .964,
// .978 and .989 in both ways: 26, 35 and 77 us a query instead of 41, 57 and 125 (AMD EPYC, AVX2).
//
// Where rows are others, a build on the CPU makes halves of wide codes that take fewer cache lines, for the walks of the
// CPU, and keeps them if they order a sample of rows as well (index/build.cpp). Walks compare the same rows, in a part of
// the time: of the 50,000 patches as f32 .75 at .9, .64 at .99 and .66 at .999, of 200,000 x 24 in five shells .59 to .67,
// of 60,000 x 96 of unlike contrast .74 at .9, of such as one-hot .7, of 60,000 x 24 .8 to .97.
//
// Walks of a device compare halves of wide codes, where these order rows as well (place/narrow_codes_cuda.h).
//
// Code distances are 32-bit numbers whose order is the order of distances: integers for bytes, the
// bits of a float for wide codes.
//
// By inner product one step for all rows loses most neighbours where lengths differ: of word vectors .14 of the true
// ten are among the first ten by code. So best-first walks, and two lists, compare codes with a scale there
// (dataset/scaled_codes.h, .98), for each row one, which stand beside these: the `walk_` functions. And the lists
// under a graph are found by codes of the rows without the extra column, Codes::of_rows.
//
// Bytes of many columns that fill few dimensions are projected to fewer for the walks of the CPU
// (dataset/projected_codes.h), and rows compared as stored at the end, also where codes are lossless.
//
// Cost: one byte a column (wide: four, with halves six), rounded up to a cache line a row. Bytes are unsigned, except
// that i8 rows stand as they are and are flipped (xor 0x80) when they are read. On a device they stand flipped.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>

#include "base/execution.h"
#include "dataset/dataset.h"
#include "dataset/projected_codes.h"
#include "dataset/scaled_codes.h"

namespace gannet {

/// The form in which codes are compared: unsigned bytes, or floats; by walks on a device also halves made of the latter
/// (place/narrow_codes_cuda.h), by queries that are floats.
enum class CodeKind { kUnsigned, kFloat, kHalf };

class Codes {
 public:
  /// The parts of Codes that do not follow from the dataset, as read from a file.
  struct Parts {
    bool wide = false;
    Array<uint8_t> codes;  // [rows, stride]; empty where the rows serve
    Array<float> centre;   // [columns]
    float inverse_step = 1;
    double norm_max = 0;
    FirstTouch* touch = nullptr;  // called before a code is read, unless null
    Array<uint8_t> halves;        // [rows, half_stride()] of wide codes; empty: there are none
    FirstTouch* halves_touch = nullptr;
  };

  Codes() = default;
  Codes(const Dataset& dataset, Parts&& parts);
  Codes(const Dataset& dataset, uint64_t seed, const Execution& execution);

  /// The codes of an index by inner product's rows by squared L2.
  static Codes of_rows(const Dataset& dataset, uint64_t seed, const Execution& execution);

  /// The codes of some rows of others, in this order. They encode no queries.
  Codes(const Codes& all, const uint32_t* rows, uint32_t count, const Allocator& memory);

  /// The projection of others as codes of their own. `codes` and the projection outlive them.
  static Codes of_projection(const Codes& codes, const ProjectedCodes& projected);

  /// Bytes that stand in for wide codes where candidates are looked for: one step for all columns, 127 of which are
  /// the size that most sampled values do not exceed. They encode no queries.
  Codes as_bytes(const Execution& execution) const;

  /// Codes that a device will make: fitted to a sample of the rows, [sample_of()], with room for the
  /// codes. `norm_max` is the largest length of a row, for inner product.
  Codes(const Dataset& dataset, const RowsView& sample, double norm_max, const Execution& execution);

  /// The same, fitted to rows that the host has.
  static Codes to_be_made(const Dataset& dataset, uint64_t seed, const Execution& execution);

  /// The rows that codes are fitted to.
  static Array<uint32_t> sample_of(uint32_t rows, uint64_t seed, const Allocator& memory);

  /// Where codes are to be put that a device makes, [rows, stride]; null where the rows serve.
  uint8_t* host_buffer() { return stored_.data(); }

  uint32_t rows() const { return count_; }
  size_t stride() const { return stride_; }
  /// The mask that the bytes of rows are xored with before they are compared: 0x80 where i8 rows are their own
  /// codes, else 0.
  uint8_t flip() const { return flip_; }
  const uint8_t* data() const { return data_; }
  const uint8_t* row(uint32_t number) const { return data_ + number * stride_; }
  uint64_t bytes() const {
    return stored_.bytes() + centre_.bytes() + (scaled_ != nullptr ? scaled_->bytes() : 0) +
           (projected_ != nullptr ? projected_->bytes() : 0) + halves_.bytes();
  }

  /// Whether code distances are the reported distances.
  bool lossless() const { return lossless_; }

  bool wide() const { return wide_; }

  CodeKind kind() const { return wide_ ? CodeKind::kFloat : CodeKind::kUnsigned; }

  const Array<float>& centre() const { return centre_; }
  float inverse_step() const { return inverse_step_; }
  double norm_max() const { return norm_max_; }
  /// Checks everything that has not been yet.
  void touch_all(const Execution& execution = {}) const {
    if (touch_ != nullptr) touch_->touch_all(execution);
    if (scaled_ != nullptr) scaled_->touch_all(execution);
    if (projected_ != nullptr) projected_->touch_all(execution);
    if (has_halves() && halves_touch_ != nullptr) halves_touch_->touch_all(execution);
  }

  /// Codes with a scale for each row, which best-first walks and two lists take instead; null: these serve.
  const ScaledCodes* scaled() const { return scaled_.get(); }
  void walk_by(ScaledCodes&& scaled) {
    scaled_ = std::make_unique<ScaledCodes>(std::move(scaled));
    walk_over(scaled_->data(), scaled_->stride());
  }

  /// Codes that the walks of the CPU take instead, where rows are no scaled codes; null: these serve.
  const ProjectedCodes* projected() const { return projected_.get(); }
  void walk_by(ProjectedCodes&& projected) {
    projected_ = std::make_unique<ProjectedCodes>(std::move(projected));
    walk_over(projected_->data(), projected_->width());
  }

  /// Narrower codes by which cells find candidates for k-NN lists; null: there are none. Those that serve lists alone
  /// are dropped when the lists are there.
  const ProjectedCodes* list_codes() const {
    return projected_ != nullptr ? projected_.get() : listing_.get();
  }
  void find_lists_by(ProjectedCodes&& projected) {
    listing_ = std::make_unique<ProjectedCodes>(std::move(projected));
  }
  void drop_list_codes() { listing_.reset(); }

  /// Halves of wide codes, which walks of the CPU take instead; none of few columns, nor where rows serve.
  bool has_halves() const { return !halves_.empty(); }
  const uint8_t* halves() const { return halves_.data(); }
  void make_halves(const Execution& execution);
  /// The halves of some rows of others, for codes that are copies of those rows.
  void copy_halves(const Codes& all, const uint32_t* rows, const Allocator& memory);
  void drop_halves();

  /// Whether walks of the CPU compare these codes, or halves of them in the same units.
  bool walks_by_codes() const {
    return scaled_ == nullptr && projected_ == nullptr && (!by_halves_ || has_halves());
  }

  /// Whether the distances that walks of the CPU compare are the reported distances.
  bool walks_report() const { return lossless_ && projected_ == nullptr; }

  /// How well the codes that walks compare order the rows; rows that are their own codes do so in full
  /// (index/row_measures.h measures it).
  CodeOrder order() const { return walks_report() ? CodeOrder{1, 1, 1} : order_; }
  void set_order(const CodeOrder& order) { order_ = order; }

  /// The operands of a walk's comparisons: bytes of a row and of a coded query, and how both are come by.
  size_t walk_stride() const { return walk_stride_; }
  size_t walk_query_bytes() const {
    if (projected_ != nullptr) return walk_stride_ + stride_ + projected_->scratch_bytes();
    return scaled_ != nullptr ? scaled_->query_bytes() : stride_;
  }
  /// Bytes of a row that walks on a device read.
  size_t device_walk_stride() const {
    return scaled_ == nullptr && (projected_ != nullptr || has_halves()) ? stride_ : walk_stride_;
  }
  const uint8_t* walk_row(uint32_t number) const { return walk_data_ + number * walk_stride_; }
  void encode_walk_query(const PreparedQuery& query, uint8_t* code) const;
  void walk_distances(const uint8_t* code, const uint32_t* ids, uint32_t count, uint32_t* out) const {
    if (scaled_ != nullptr) return scaled_->distances(code, ids, 0, count, out);
    if (projected_ != nullptr) return projected_->distances(code, ids, count, out);
    return by_halves_ ? half_distances(code, ids, count, out) : distances(code, ids, count, out);
  }

  /// Columns that the extra one of inner product is split over.
  static constexpr uint32_t kSplit = 16;

  /// Columns of a code of `dim` columns.
  static uint32_t code_columns(uint32_t dim, int32_t metric) {
    return dim + (metric == ANN_METRIC_INNER_PRODUCT ? kSplit : 0);
  }

  /// Writes the code of a prepared query, [stride], as `distances` takes it.
  void encode_query(const PreparedQuery& query, uint8_t* code) const;

  /// out[i] is the distance of a query's code, or of one row of a block, to row ids[i].
  void distances(const uint8_t* code, const uint32_t* ids, uint32_t count, uint32_t* out) const;
  /// The same of a row as it is held.
  void distances_of_row(uint32_t number, const uint32_t* ids, uint32_t count, uint32_t* out) const;

  /// A distance as a number.
  double value_of(uint32_t distance) const {
    return wide_ ? double{std::bit_cast<float>(distance)} : static_cast<double>(distance);
  }

  /// Copies rows [ids] to a block [count, stride].
  void gather(const uint32_t* ids, uint32_t count, uint8_t* block) const;

  /// Brings a block into the form of a tile's right side: packed_bytes(count, stride()) of them.
  void pack(const uint8_t* block, uint32_t count, uint8_t* packed) const;

  /// out[i * out_stride + j] is the distance of row i of a block to row j of a packed one; columns up
  /// to right_count rounded up to kPackRows may be overwritten.
  void tile(const uint8_t* left, uint32_t left_count, const uint8_t* packed, uint32_t right_count,
            uint32_t* out, size_t out_stride) const;

  static size_t code_stride(uint32_t dim, int32_t metric, bool wide);
  /// Bytes from one half code to the next; 0 where wide codes have none.
  static size_t half_stride(uint32_t dim, int32_t metric, int32_t element);
  static size_t bytes_stride(const Codes& wide) { return round_up(size_t{wide.columns()}, kCodeAlign); }
  static bool rows_serve(int32_t metric, int32_t element, bool borrow) {
    return metric == ANN_METRIC_L2 && !is_float_element(element) && !borrow;
  }

 private:
  Codes(const Dataset& dataset, int32_t metric);
  void make(const Dataset& dataset, uint64_t seed, const Execution& execution);
  void begin(const Dataset& dataset, uint64_t seed, const Execution& execution);
  uint32_t columns() const { return code_columns(dim_, metric_); }
  /// Bytes of a row that tiles compare: the columns, where zeros are behind them. Rows of 24 columns in 64 bytes take less
  /// than half of the time.
  size_t compared_columns() const {
    // The padding of i8 rows is flipped with them, and copies hold it so; a projection has none.
    if ((lossless_ && element_ == ANN_I8) || by_ != nullptr) return stride_;
    return std::min(stride_, round_up(size_t{columns()}, kCodeStep));
  }
  void transform(const uint8_t* row, double length, float* values) const;
  void encode(const float* values, uint32_t first, uint32_t end, uint8_t* code) const;
  template <class RowOf>
  void fit(uint32_t sample_rows, const RowOf& row_of, const Execution& execution);
  void make_room(const Allocator& memory);
  void walk_over(const void* data, size_t stride) {
    walk_data_ = static_cast<const uint8_t*>(data);
    walk_stride_ = stride;
  }
  void see_halves(const Dataset& dataset);
  void walk_by_halves();
  void half_distances(const uint8_t* code, const uint32_t* ids, uint32_t count, uint32_t* out) const;
  bool bytes_suffice(const float* sample, uint32_t rows, float step, const Execution& execution) const;
  RowsView wide_rows(const uint8_t* first) const { return {first, stride_, columns(), ANN_F32}; }
  bool needs_lengths() const { return metric_ != ANN_METRIC_L2; }
  double length_of_row(const uint8_t* row) const;
  float query_scale(const uint8_t* values, int32_t element) const;

  uint32_t count_ = 0;
  uint32_t dim_ = 0;
  int32_t metric_ = 0;
  int32_t element_ = 0;
  size_t stride_ = 0;
  uint8_t flip_ = 0;
  bool lossless_ = false;
  bool wide_ = false;
  const uint8_t* data_ = nullptr;  // [rows, stride]
  Array<uint8_t> stored_;
  Array<float> centre_;     // [columns]
  float inverse_step_ = 1;  // 1 / step; of wide codes 1 / the largest deviation
  double norm_max_ = 0;     // M, for inner product
  FirstTouch* touch_ = nullptr;
  const uint8_t* walk_data_ = nullptr;  // [rows, walk_stride]
  size_t walk_stride_ = 0;
  bool by_halves_ = false;  // walks compare rows as they are stored, or halves of wide codes
  FirstTouch* halves_touch_ = nullptr;
  Array<uint8_t> halves_;  // [rows, half_stride()] of wide codes
  std::unique_ptr<const ScaledCodes> scaled_;
  std::unique_ptr<const ProjectedCodes> projected_;
  std::unique_ptr<const ProjectedCodes> listing_;  // of lists alone
  const Codes* of_ = nullptr;                      // the codes that these are a projection of,
  const ProjectedCodes* by_ = nullptr;             // and the projection
  CodeOrder order_;
};

/// Bytes that making codes takes at most beside them.
uint64_t coding_bytes(uint32_t dim, uint32_t threads);

/// Bytes that codes of a stride take on a device that builds (dataset/codes_cuda.h), with the square of each.
constexpr uint64_t codes_device_bytes(uint64_t rows, uint64_t stride) {
  return rows * (stride + sizeof(uint32_t));
}

}  // namespace gannet
