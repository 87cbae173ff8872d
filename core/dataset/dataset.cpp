#include "dataset/dataset.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cfloat>
#include <numeric>

#include "base/parallel_sort.h"
#include "dataset/lengths.h"

namespace gannet {
namespace {

constexpr uint64_t kRowsPerTaskMax = 1024;
constexpr uint64_t kIdsPerTask = 1 << 16;
constexpr uint64_t kBytesPerTask = uint64_t{2} << 20;  // a huge page, which one thread is to make
constexpr uint64_t kBytesInCache = uint64_t{16} << 10;

// Lengths outside this range are compared in double precision: below, products of two floats lose
// bits to underflow, above they overflow.
constexpr float kNormMin = 1e-15f;
constexpr float kNormMax = 1e15f;

uint64_t rows_per_task(uint32_t dim) { return items_per_task(dim, kRowsPerTaskMax); }

/// Whether all numbers have another exponent than infinity and NaN have. Without a way out of the loop the
/// compiler takes 8 to 32 of them at once.
template <class Bits>
bool all_below(const uint8_t* vector, Bits exponent, uint32_t dim) {
  Bits bad = 0;
  for (uint32_t column = 0; column < dim; ++column) {
    Bits bits;
    std::memcpy(&bits, vector + size_t{column} * sizeof bits, sizeof bits);
    bad |= static_cast<Bits>((bits & exponent) == exponent);
  }
  return bad == 0;
}

bool all_finite(const uint8_t* vector, int32_t element, uint32_t dim) {
  if (element == ANN_F32) return all_below<uint32_t>(vector, 0x7f800000, dim);
  return all_below<uint16_t>(vector, element == ANN_F16 ? 0x7c00 : 0x7f80, dim);
}

/// The largest of |x|. Finite floats without their sign are ordered like their bits.
float largest_of(const float* values, uint32_t dim) {
  uint32_t largest = 0;
  for (uint32_t column = 0; column < dim; ++column)
    largest = std::max(largest, std::bit_cast<uint32_t>(values[column]) & 0x7fffffff);
  return std::bit_cast<float>(largest);
}

}  // namespace

bool Dataset::storable(int32_t from, int32_t to) {
  if (from == to || is_float_element(from)) return from == to || is_float_element(to);
  return is_float_element(to);  // all three hold -128 ... 255: bf16 has 8 bits of precision
}

uint32_t first_not_finite(const uint8_t* vector, int32_t element, uint32_t dim) {
  if (!is_float_element(element) || all_finite(vector, element, dim)) return dim;
  for (uint32_t column = 0; column < dim; ++column) {
    if (!std::isfinite(element_to_float(vector, element, column))) return column;
  }
  return dim;
}

void check_finite(const MatrixView& rows, const Execution& execution) {
  if (!is_float_element(rows.element)) return;
  // Every thread reports the first bad row it meets; the smallest of them is named.
  std::atomic<uint64_t> first_bad = kNoPlace;
  parallel_for(execution, rows.rows, rows_per_task(rows.dim), [&](uint64_t begin, uint64_t end, uint32_t) {
    for (uint64_t row = begin; row < end; ++row) {
      if (first_not_finite(rows.row(row), rows.element, rows.dim) == rows.dim) continue;
      return keep_least(first_bad, row);
    }
  });
  const uint64_t row = first_bad.load();
  if (row != kNoPlace) fail_not_finite(row, first_not_finite(rows.row(row), rows.element, rows.dim));
}

Dataset::Dataset(const MatrixView& rows, const uint64_t* ids, int32_t metric, int32_t element, bool borrow,
                 const Execution& execution)
    : count_(static_cast<uint32_t>(rows.rows)), metric_(metric) {
  const int32_t stored = element == ANN_ELEMENT_AUTO ? rows.element : element;
  if (!storable(rows.element, stored))
    fail(ANN_UNSUPPORTED, "rows are %s and the index stores %s; %s rows can be stored as %s",
         element_name(rows.element), element_name(stored), element_name(rows.element),
         is_float_element(rows.element) ? "f32, f16 or bf16" : "themselves, f32, f16 or bf16");
  if (borrow && stored != rows.element)
    fail(ANN_INVALID_ARGUMENT, "rows_mode is BORROW, but rows are %s and the index stores %s",
         element_name(rows.element), element_name(stored));
  const bool is_copied = !borrow && !rows.on_device();
  const bool is_copied_whole = is_copied && is_stored_whole(rows, metric, stored);
  if (!rows.on_device() && !is_copied_whole) check_finite(rows, execution);
  view_ = {rows.data, rows.stride, rows.dim, stored};
  if (!borrow) make_room(rows, execution.memory);
  if (is_copied_whole)
    store_whole(rows, execution);
  else if (is_copied)
    store(rows, execution);
  if (ids != nullptr) sort_ids(ids, execution);
  if (!rows.on_device()) complete(execution);
}

Dataset::Dataset(Parts&& parts)
    : count_(parts.rows),
      metric_(parts.metric),
      view_{parts.vectors.data(), stored_stride(parts.dim, parts.metric, parts.element), parts.dim,
            parts.element},
      stored_(std::move(parts.vectors)),
      ids_(std::move(parts.ids)),
      by_id_(std::move(parts.by_id)),
      norms_(std::move(parts.norms)),
      vectors_touch_(parts.vectors_touch),
      ids_touch_(parts.ids_touch),
      by_id_touch_(parts.by_id_touch),
      norms_touch_(parts.norms_touch) {}

void Dataset::touch_all(const Execution& execution) const {
  for (FirstTouch* touch : {vectors_touch_, ids_touch_, by_id_touch_, norms_touch_}) {
    if (touch != nullptr) touch->touch_all(execution);
  }
}

/// Before the rows `numbers` (null: first ... first + count) and their lengths are read.
void Dataset::touch_rows(const uint32_t* numbers, uint32_t first, uint32_t count) const {
  if (vectors_touch_ == nullptr) return;
  const uint64_t stride = view_.stride;
  if (numbers == nullptr) {
    vectors_touch_->touch(first * stride, count * stride);
    if (norms_touch_ != nullptr) norms_touch_->touch(first * sizeof(float), count * sizeof(float));
    return;
  }
  for (uint32_t i = 0; i < count; ++i) {
    vectors_touch_->touch(numbers[i] * stride, stride);
    if (norms_touch_ != nullptr) norms_touch_->touch(numbers[i] * sizeof(float), sizeof(float));
  }
}

void Dataset::copy_ids(uint32_t first, uint32_t count, uint64_t* out) const {
  if (ids_.empty()) {
    std::iota(out, out + count, uint64_t{first});
    return;
  }
  if (ids_touch_ != nullptr) ids_touch_->touch(first * sizeof(uint64_t), count * sizeof(uint64_t));
  std::copy_n(ids_.data() + first, count, out);
}

void Dataset::make_room(const MatrixView& rows, const Allocator& memory) {
  view_.stride = stored_stride(rows.dim, metric_, view_.element);
  stored_ = Array<uint8_t>(memory, checked_product(rows.rows, view_.stride));
  view_.data = stored_.data();
}

/// Whether the bytes of rows are those that are stored.
bool Dataset::is_stored_whole(const MatrixView& rows, int32_t metric, int32_t element) {
  const size_t bytes = size_t{rows.dim} * element_bytes(element);
  return rows.element == element && rows.stride == bytes && stored_stride(rows.dim, metric, element) == bytes;
}

/// Rows are looked at for values that are not finite as they pass: to read them once more took 1.5 of the 71 ms of
/// GIST's build on a device.
void Dataset::store_whole(const MatrixView& rows, const Execution& execution) {
  const uint32_t value_bytes = element_bytes(rows.element);
  std::atomic<uint64_t> bad_from = kNoPlace;
  parallel_for(execution, stored_.size(), kBytesPerTask, [&](uint64_t begin, uint64_t end, uint32_t) {
    for (uint64_t at = begin; at < end; at += kBytesInCache) {
      const uint64_t some = std::min(kBytesInCache, end - at);
      const auto values = static_cast<uint32_t>(some / value_bytes);
      if (is_float_element(rows.element) && !all_finite(rows.data + at, rows.element, values))
        keep_least(bad_from, at / rows.stride);
      std::memcpy(stored_.data() + at, rows.data + at, some);
    }
  });
  for (uint64_t row = bad_from.load(); row < rows.rows; ++row) {
    const uint32_t column = first_not_finite(rows.row(row), rows.element, rows.dim);
    if (column != rows.dim) fail_not_finite(row, column);
  }
}

void Dataset::store(const MatrixView& rows, const Execution& execution) {
  const size_t row_bytes = size_t{rows.dim} * element_bytes(rows.element);
  const size_t stored_bytes = size_t{rows.dim} * element_bytes(view_.element);
  std::atomic<uint64_t> overflow = kNoPlace;
  parallel_for(execution, rows.rows, rows_per_task(rows.dim), [&](uint64_t begin, uint64_t end, uint32_t) {
    for (uint64_t row = begin; row < end; ++row) {
      uint8_t* target = stored_.data() + row * view_.stride;
      if (rows.element == view_.element) {
        std::memcpy(target, rows.row(row), row_bytes);
      } else {
        for (uint32_t column = 0; column < rows.dim; ++column)
          float_to_element(element_to_float(rows.row(row), rows.element, column), target, view_.element,
                           column);
        if (first_not_finite(target, view_.element, rows.dim) != rows.dim) keep_least(overflow, row);
      }
      std::memset(target + stored_bytes, 0, view_.stride - stored_bytes);
    }
  });
  const uint64_t row = overflow.load();
  if (row != kNoPlace)
    fail_at(ANN_INVALID_ARGUMENT, row, first_not_finite(view_.row(row), view_.element, rows.dim),
            view_.element == ANN_F16 ? "is beyond the range of the stored element, f16 (65504)"
                                     : "is beyond the range of the stored element, bf16 (3.39e38)");
}

void Dataset::sort_ids(const uint64_t* ids, const Execution& execution) {
  ids_ = Array<uint64_t>(execution.memory, count_);
  by_id_ = Array<uint32_t>(execution.memory, count_);
  parallel_for(execution, count_, kIdsPerTask, [&](uint64_t begin, uint64_t end, uint32_t) {
    for (uint64_t row = begin; row < end; ++row) {
      ids_[row] = ids[row];
      by_id_[row] = static_cast<uint32_t>(row);
    }
  });
  parallel_sort(
      by_id_, [this](uint32_t a, uint32_t b) { return std::pair(ids_[a], a) < std::pair(ids_[b], b); },
      execution);
  // ANN_ID_NONE is the largest number, so it stands last.
  if (count_ != 0 && ids_[by_id_[count_ - 1]] == ANN_ID_NONE) {
    const uint32_t* first = std::lower_bound(by_id_.begin(), by_id_.end(), ANN_ID_NONE,
                                             [this](uint32_t row, uint64_t id) { return ids_[row] < id; });
    fail(ANN_INVALID_ARGUMENT, "ids[%u] is ANN_ID_NONE; ids are below 2^64 - 1", *first);
  }
  std::atomic<uint64_t> repeated = kNoPlace;
  parallel_for(execution, count_, kIdsPerTask, [&](uint64_t begin, uint64_t end, uint32_t) {
    for (uint64_t place = std::max<uint64_t>(begin, 1); place < end; ++place)
      if (ids_[by_id_[place - 1]] == ids_[by_id_[place]]) return keep_least(repeated, place);
  });
  const uint64_t place = repeated.load();
  if (place != kNoPlace)
    fail(ANN_INVALID_ARGUMENT, "ids[%u] and ids[%u] are both %llu; ids must be distinct", by_id_[place - 1],
         by_id_[place], static_cast<unsigned long long>(ids_[by_id_[place]]));
}

/// Before a place of by_id_ is read.
void Dataset::touch_place(const uint32_t* place) const {
  if (by_id_touch_ != nullptr)
    by_id_touch_->touch(static_cast<uint64_t>(place - by_id_.data()) * sizeof(uint32_t), sizeof(uint32_t));
}

uint32_t Dataset::find(uint64_t id) const {
  if (ids_.empty()) return id < count_ ? static_cast<uint32_t>(id) : count_;
  const uint32_t* place =
      std::lower_bound(by_id_.begin(), by_id_.end(), id, [this](const uint32_t& row, uint64_t wanted) {
        touch_place(&row);
        return this->id(row) < wanted;
      });
  if (place == by_id_.end()) return count_;
  touch_place(place);
  return this->id(*place) == id ? *place : count_;
}

uint64_t dataset_bytes(uint64_t rows, uint32_t dim, int32_t metric, int32_t element, bool ids, bool borrow) {
  const uint64_t vectors = borrow ? 0 : rows * Dataset::stored_stride(dim, metric, element);
  const uint64_t ids_by_row = ids ? rows * sizeof(uint64_t) : 0;
  const uint64_t rows_by_id = ids ? rows * sizeof(uint32_t) : 0;
  const uint64_t norms = metric == ANN_METRIC_COSINE ? rows * sizeof(float) : 0;
  return vectors + ids_by_row + rows_by_id + norms;
}

/// parallel_sort merges from one order of the rows into a second.
uint64_t sort_ids_bytes(uint64_t rows, bool ids) { return ids ? rows * sizeof(uint32_t) : 0; }

void Dataset::measure_norms(const Execution& execution) {
  norms_ = Array<float>(execution.memory, count_);
  parallel_for(execution, count_, rows_per_task(view_.dim), [&](uint64_t begin, uint64_t end, uint32_t) {
    double lengths[kRowsPerTaskMax];
    find_lengths(view_.row(begin), view_.stride, end - begin, view_.element, view_.dim, lengths);
    for (uint64_t row = begin; row < end; ++row) {
      const double norm = lengths[row - begin];
      norms_[row] = static_cast<float>(std::min(norm, double{FLT_MAX}));
      // A length below the smallest float still is no zero vector.
      if (norm > 0 && norms_[row] == 0) norms_[row] = FLT_TRUE_MIN;
    }
  });
}

bool Dataset::prepare(const uint8_t* vector, int32_t element, void* values, PreparedQuery* out) const {
  if (first_not_finite(vector, element, view_.dim) != view_.dim) return false;
  out->values = values;
  if (!is_float_element(view_.element)) {
    std::memcpy(values, vector, view_.dim);
  } else {
    float* floats = static_cast<float*>(values);
    if (element == ANN_F32) {
      std::memcpy(floats, vector, size_t{view_.dim} * sizeof(float));
    } else if (is_float_element(element)) {
      kernels().widen[element](vector, view_.dim, floats);
    } else {
      for (uint32_t column = 0; column < view_.dim; ++column)
        floats[column] = element_to_float(vector, element, column);
    }
    const float largest = metric_ == ANN_METRIC_COSINE ? largest_of(floats, view_.dim) : 0;
    if (largest > 0) {
      // A power of two changes no direction and no bit of a fraction. It is applied in two halves,
      // since the inverse of the smallest floats is none.
      const int exponent = -std::ilogb(largest);
      const float half = std::ldexp(1.0f, exponent / 2);
      const float rest = std::ldexp(1.0f, exponent - exponent / 2);
      for (uint32_t column = 0; column < view_.dim; ++column) floats[column] *= half;
      for (uint32_t column = 0; column < view_.dim; ++column) floats[column] *= rest;
    }
  }
  if (metric_ == ANN_METRIC_COSINE) {
    out->norm = length_of(static_cast<const uint8_t*>(values),
                          is_float_element(view_.element) ? int32_t{ANN_F32} : view_.element, view_.dim);
  }
  return true;
}

double Dataset::extreme_cosine(const PreparedQuery& query, const uint8_t* row) const {
  const float* values = static_cast<const float*>(query.values);
  double sum = 0;
  for (uint32_t column = 0; column < view_.dim; ++column)
    sum += double{values[column]} * element_to_float(row, view_.element, column);
  return sum / (query.norm * length_of(row, view_.element, view_.dim));
}

void Dataset::distances(const PreparedQuery& query, const uint32_t* numbers, uint32_t first, uint32_t count,
                        float* out) const {
  touch_rows(numbers, first, count);
  RowsView rows = view_;
  if (numbers == nullptr) rows.data = view_.row(first);
  const Kernels& loops = kernels();
  if (metric_ == ANN_METRIC_L2) {
    loops.squared_l2[view_.element](query.values, rows, numbers, count, out);
    return;
  }
  loops.dot[view_.element](query.values, rows, numbers, count, out);
  if (metric_ == ANN_METRIC_INNER_PRODUCT) {
    // 0 - x and not -x: a product of zero is at distance +0. Sums that left the range of a float in
    // both directions are no number; they come last.
    for (uint32_t i = 0; i < count; ++i) out[i] = std::isnan(out[i]) ? INFINITY : 0 - out[i];
    return;
  }
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t row = numbers != nullptr ? numbers[i] : first + i;
    const float norm = norms_[row];
    double cosine = 0;  // a zero vector is at distance 1 from everything
    if (norm != 0 && query.norm != 0) {
      const bool extreme = is_float_element(view_.element) && (norm < kNormMin || norm > kNormMax);
      cosine = extreme ? extreme_cosine(query, view_.row(row)) : out[i] / (query.norm * norm);
    }
    // Lengths of a hostile file may make it no number; in this order of min and max that comes last.
    out[i] = static_cast<float>(1 - std::min(1.0, std::max(-1.0, cosine)));
  }
}

}  // namespace gannet
