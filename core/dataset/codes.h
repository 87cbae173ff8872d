// Codes: rows as bytes, whose squared L2 distance is what builds and searches walk by.
//
// A walk compares a query with hundreds of rows to answer with ten, so it pays to read less of each:
// a byte a column instead of four, and integer sums that are exact and equal on every machine. The
// answer is then computed on the stored rows.
//
//   Rows of i8 or u8 under L2 are their own codes; nothing is stored beside them.
//   Float rows under L2: code = round((x - centre) / step) + 128, with a centre for each column and
//     one step for all, so that distances of codes are proportional to distances of rows but for
//     rounding. A step for each column would follow the data more closely and weigh columns wrongly.
//   Cosine: the same on rows of length one, where squared L2 is twice the cosine distance.
//   Inner product: the same on rows with an extra column a = sqrt(M^2 - |x|^2), M the largest length,
//     and queries with a = 0: |q - x|^2 = |q|^2 + M^2 - 2 q.x, the order of the products (Bachrach
//     et al., "Speeding up the Xbox recommender system", 2014). The extra column may be far wider
//     than the others, so it is split over kSplit columns of a / sqrt(kSplit), which leaves distances
//     as they are and keeps the step small.
//
// The step is the one of 16 tried that gives the least squared error, clipping included, on a sample
// of the rows.
//
// Cost: one byte a column, rounded up to a cache line a row. Bytes are unsigned, except that i8 rows
// stand as they are and are flipped (xor 0x80) when they are read.
#pragma once

#include <cstdint>

#include "base/execution.h"
#include "dataset/dataset.h"

namespace gannet {

class Codes {
 public:
  Codes() = default;
  Codes(const Dataset& dataset, uint64_t seed, const Execution& execution);

  uint32_t rows() const { return count_; }
  size_t stride() const { return stride_; }
  uint8_t flip() const { return flip_; }
  const uint8_t* data() const { return data_; }
  const uint8_t* row(uint32_t number) const { return data_ + number * stride_; }
  uint64_t bytes() const { return stored_.bytes() + centre_.bytes(); }

  /// Whether code distances are the reported distances.
  bool exact() const { return exact_; }

  /// Writes the code of a prepared query, [stride], ready for the kernels (already flipped).
  void encode_query(const PreparedQuery& query, uint8_t* code) const;

  /// Copies rows [ids] to a block [count, stride] of unsigned bytes.
  void gather(const uint32_t* ids, uint32_t count, uint8_t* block) const;

  static size_t code_stride(uint32_t dim, int32_t metric);
  static bool rows_serve(int32_t metric, int32_t element, bool borrow) {
    return metric == ANN_METRIC_L2 && !is_float_element(element) && !borrow;
  }

 private:
  static constexpr uint32_t kSplit = 16;

  uint32_t columns() const { return dim_ + (metric_ == ANN_METRIC_INNER_PRODUCT ? kSplit : 0); }
  void transform(const uint8_t* row, double norm, float* values) const;
  void encode(const float* values, uint32_t first, uint32_t end, uint8_t* code) const;
  void fit(const Dataset& dataset, uint64_t seed, const Execution& execution);
  double row_norm(const Dataset& dataset, uint32_t row) const;

  uint32_t count_ = 0;
  uint32_t dim_ = 0;
  int32_t metric_ = 0;
  int32_t element_ = 0;
  size_t stride_ = 0;
  uint8_t flip_ = 0;
  bool exact_ = false;
  const uint8_t* data_ = nullptr;  // [rows, stride]
  Array<uint8_t> stored_;
  Array<float> centre_;     // [columns]
  float inverse_step_ = 1;  // 1 / step
  double norm_max_ = 0;     // M, for inner product
};

}  // namespace gannet
