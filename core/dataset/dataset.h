// Dataset: the rows as the caller gave them, their ids, and the lengths that cosine needs.
//
// Rows are copied (each starts on a 16-byte boundary, or on a cache line where they serve as codes)
// or borrowed. Distances that are reported come from here: `distances` is the one place that knows
// the three metrics.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/execution.h"
#include "base/first_touch.h"
#include "distance/element.h"
#include "distance/kernels.h"

namespace gannet {

/// A matrix of the caller with its stride filled in.
struct MatrixView {
  const uint8_t* data = nullptr;  // [rows, dim]
  uint64_t rows = 0;
  uint32_t dim = 0;
  int32_t element = 0;
  uint64_t stride = 0;  // bytes
  int32_t space = 0;    // 0: host memory; ANN_DEVICE_CUDA + i: memory of CUDA device i

  bool on_device() const { return space != 0; }
  const uint8_t* row(uint64_t number) const { return data + number * stride; }
};

/// A query as the kernels take it: [dim] f32 for float rows, the element itself for i8 and u8.
/// `norm` is its length, for cosine only.
struct PreparedQuery {
  const void* values = nullptr;
  double norm = 0;
};

class Dataset {
 public:
  /// The parts of a Dataset, as read from a file. Arrays may lie over a mapped file; then the
  /// FirstTouch of each, unless null, is called before a part of it is read.
  struct Parts {
    uint32_t rows = 0;
    uint32_t dim = 0;
    int32_t metric = 0;
    int32_t element = 0;
    Array<uint8_t> vectors;  // [rows, stored_stride]
    Array<uint64_t> ids;     // [rows], or empty: ids are row numbers
    Array<uint32_t> by_id;   // [rows] with ids
    Array<float> norms;      // [rows], for cosine
    FirstTouch* vectors_touch = nullptr;
    FirstTouch* ids_touch = nullptr;
    FirstTouch* by_id_touch = nullptr;
    FirstTouch* norms_touch = nullptr;
  };
  explicit Dataset(Parts&& parts);

  /// Copies or borrows `rows`, stored as `element` (0: as given). `ids` is [rows] or null.
  /// Refuses NaN, infinities, repeated ids and impossible conversions, before anything is kept.
  ///
  /// Rows on a device are neither checked nor copied here: they are stored as given, and the code that copies them
  /// to `host_buffer`, [rows, stride of view()] with zeros behind each, calls `complete` before they are read.
  Dataset(const MatrixView& rows, const uint64_t* ids, int32_t metric, int32_t element, bool borrow,
          const Execution& execution);

  uint8_t* host_buffer() { return stored_.data(); }
  void complete(const Execution& execution) {
    if (metric_ == ANN_METRIC_COSINE) measure_norms(execution);
  }

  uint32_t rows() const { return count_; }
  uint32_t dim() const { return view_.dim; }
  int32_t metric() const { return metric_; }
  int32_t element() const { return view_.element; }
  /// All rows, for readers that have called touch_all() or made the Dataset themselves.
  const RowsView& view() const { return view_; }
  const float* norms() const { return norms_.data(); }     // [rows] lengths, for cosine; else null
  const uint64_t* ids() const { return ids_.data(); }      // [rows], or null: ids are row numbers
  const uint32_t* by_id() const { return by_id_.data(); }  // [rows] in ascending order of id, or null
  uint64_t id(uint32_t row) const {
    if (ids_.empty()) return row;
    if (ids_touch_ != nullptr) ids_touch_->touch(row * sizeof(uint64_t), sizeof(uint64_t));
    return ids_[row];
  }
  /// Copies the ids of `count` rows from `first` on to `out`.
  void copy_ids(uint32_t first, uint32_t count, uint64_t* out) const;
  const uint8_t* row(uint32_t number) const {
    if (vectors_touch_ != nullptr) vectors_touch_->touch(number * view_.stride, view_.stride);
    return static_cast<const uint8_t*>(view_.row(number));
  }
  FirstTouch* vectors_touch() const { return vectors_touch_; }
  /// Checks everything that has not been yet.
  void touch_all(const Execution& execution = {}) const;
  bool borrowed() const { return stored_.empty() && count_ != 0; }
  uint64_t bytes() const { return stored_.bytes() + ids_.bytes() + by_id_.bytes() + norms_.bytes(); }

  /// The row with an id, or rows() if there is none.
  uint32_t find(uint64_t id) const;

  /// Distances in the metric from a query to the rows `numbers` (null: rows first ... first + count).
  void distances(const PreparedQuery& query, const uint32_t* numbers, uint32_t first, uint32_t count,
                 float* out) const;

  /// Bytes that a PreparedQuery's values take.
  size_t query_bytes() const { return view_.dim * (is_float_element(view_.element) ? 4u : 1u); }

  /// Converts a vector of any legal element to `values` (query_bytes() long). False where a value is
  /// not finite. For cosine, float queries are scaled by a power of two to keep products in range.
  bool prepare(const uint8_t* vector, int32_t element, void* values, PreparedQuery* out) const;

  /// Whether queries of `element` can be compared with rows stored as `stored`.
  static bool comparable(int32_t element, int32_t stored) {
    return element == stored || is_float_element(stored);
  }

  /// Whether rows of an element can be stored as another.
  static bool storable(int32_t element, int32_t stored);

  /// Bytes from one stored row to the next.
  static size_t stored_stride(uint32_t dim, int32_t metric, int32_t element) {
    const size_t bytes = size_t{dim} * element_bytes(element);
    const bool serve_as_codes = !is_float_element(element) && metric == ANN_METRIC_L2;
    return round_up(bytes, serve_as_codes ? kCodeAlign : 16);
  }

 private:
  void make_room(const MatrixView& rows, const Allocator& memory);
  static bool is_stored_whole(const MatrixView& rows, int32_t metric, int32_t element);
  void store_whole(const MatrixView& rows, const Execution& execution);
  void store(const MatrixView& rows, const Execution& execution);
  void sort_ids(const uint64_t* ids, const Execution& execution);
  void measure_norms(const Execution& execution);
  void touch_rows(const uint32_t* numbers, uint32_t first, uint32_t count) const;
  void touch_place(const uint32_t* place) const;
  double extreme_cosine(const PreparedQuery& query, const uint8_t* row) const;

  uint32_t count_ = 0;
  int32_t metric_ = 0;
  RowsView view_;
  Array<uint8_t> stored_;
  Array<uint64_t> ids_;
  Array<uint32_t> by_id_;  // [rows] row numbers in ascending order of id
  Array<float> norms_;     // [rows]
  FirstTouch* vectors_touch_ = nullptr;
  FirstTouch* ids_touch_ = nullptr;
  FirstTouch* by_id_touch_ = nullptr;
  FirstTouch* norms_touch_ = nullptr;
};

/// Bytes that a Dataset of these rows holds, with ids or without.
uint64_t dataset_bytes(uint64_t rows, uint32_t dim, int32_t metric, int32_t element, bool ids, bool borrow);

/// Bytes that its constructor takes beside them.
uint64_t sort_ids_bytes(uint64_t rows, bool ids);

/// Throws where a value of a float matrix is not finite, naming the first such place.
void check_finite(const MatrixView& rows, const Execution& execution);

/// The first column with a value that is not finite, or dim.
uint32_t first_not_finite(const uint8_t* vector, int32_t element, uint32_t dim);

}  // namespace gannet
