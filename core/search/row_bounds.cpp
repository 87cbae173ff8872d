#include "search/row_bounds.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <string_view>

namespace gannet {
namespace {

constexpr uint32_t kTileBytes = 1 << 16;  // packed, to stay in the cache beside the codes compared with it
constexpr uint32_t kTileRowsMin = 32;
constexpr uint32_t kTileRowsMax = 256;
constexpr uint32_t kMeanRows = 256;

// Room for the errors of single roundings: of lengths, and of |X - Q|^2, |X|^2 and |Q|^2 together.
constexpr double kOfLength = 0x1p-19;
constexpr double kOfWhole = 0x1p-20;

constexpr uint64_t kFewestOfBytes = 12;  // coding a row takes as long as 10 queries do with it

float above(double value) { return std::nextafter(static_cast<float>(value), INFINITY); }
float below(double value) { return std::nextafter(static_cast<float>(value), -INFINITY); }

}  // namespace

RowBounds::RowBounds(const Dataset& dataset, const Execution& execution)
    : dataset_(dataset),
      stride_(round_up(dataset.dim(), kCodeAlign)),
      tile_rows_(static_cast<uint32_t>(
          std::clamp<size_t>(kTileBytes / stride_ / kPackRows * kPackRows, kTileRowsMin, kTileRowsMax))),
      rounding_((dataset.dim() / 16 + 64) * 0x1p-23) {
  if (dataset.metric() == ANN_METRIC_L2 && is_float_element(dataset.element())) find_centre(execution);
}

uint64_t RowBounds::fewest(int32_t element) {
  if (is_float_element(element)) return kFewestOfFloats;
  // With shorter vectors tiles of bytes take as long as rows of bytes as stored (AVX2), or longer.
  return std::string_view(kernels().name).starts_with("avx512") ? kFewestOfBytes : UINT64_MAX;
}

void RowBounds::find_centre(const Execution& execution) {
  centre_ = Array<float>::zeroed(execution.memory, stride_);
  Array<float> values(execution.memory, stride_);
  const uint32_t rows = std::min(kMeanRows, dataset_.rows());
  for (uint32_t i = 0; i < rows; ++i) {
    const uint32_t row = static_cast<uint32_t>(uint64_t{i} * dataset_.rows() / rows);
    kernels().widen[dataset_.element()](dataset_.row(row), dataset_.dim(), values.data());
    for (uint32_t column = 0; column < dataset_.dim(); ++column)
      centre_[column] += values[column] / static_cast<float>(rows);
  }
}

RowBounds::Tile::Tile(const RowBounds& bounds, const Allocator& memory)
    : block_(Array<uint8_t>::zeroed(memory, bounds.tile_rows_ * bounds.stride_)),
      packed_(memory, packed_bytes(bounds.tile_rows_, bounds.stride_)),
      values_(Array<float>::zeroed(memory, bounds.stride_)),
      numbers_(Array<float>::zeroed(memory, size_t{5} * bounds.tile_rows_)) {
  float* numbers = numbers_.data();
  for (float** const part : {&rows_.self, &rows_.step, &rows_.whole, &rows_.error, &rows_.length}) {
    *part = numbers;
    numbers += bounds.tile_rows_;
  }
}

/// The code of a row or a query: `vector` is of the element of the rows, or of floats.
BoundCode RowBounds::code(const void* vector, int32_t element, float* values, uint8_t* out) const {
  const uint32_t dim = dataset_.dim();
  if (is_float_element(element)) {
    kernels().widen[element](vector, dim, values);
    for (uint32_t column = 0; column < centre_.size(); ++column) values[column] -= centre_[column];
    return kernels().bound_code(values, stride_, out);
  }
  const uint8_t* bytes = static_cast<const uint8_t*>(vector);
  const uint8_t flip = element == ANN_I8 ? 0x80 : 0;
  for (uint32_t column = 0; column < dim; ++column) out[column] = bytes[column] ^ flip;
  std::memset(out + dim, 0, stride_ - dim);
  BoundCode found{true, 1, 0, 0, 0};
  kernels().dot[element](vector, {vector, 0, dim, element}, nullptr, 1, &found.square);
  found.whole = found.square;
  return found;
}

void RowBounds::code_rows(uint32_t first, uint32_t count, Tile& tile) const {
  for (uint32_t i = 0; i < count; ++i) {
    const BoundCode found = code(dataset_.row(first + i), dataset_.element(), tile.values_.data(),
                                 tile.block_.data() + i * stride_);
    const double length = std::sqrt(double{found.square});
    const bool cosine = dataset_.metric() == ANN_METRIC_COSINE;
    const double scale = !cosine ? 1 : length > 0 ? 1 / length : 0;
    const double error = found.error == 0 ? 0 : found.error * (1 + rounding_) + kOfLength * length;
    tile.rows_.self[i] = !found.usable                        ? -INFINITY
                         : dataset_.metric() == ANN_METRIC_L2 ? below(found.square * (1 - rounding_))
                                                              : 0.0f;
    tile.rows_.step[i] = static_cast<float>(found.step * scale);
    tile.rows_.whole[i] = static_cast<float>(found.whole * (1 + kOfWhole));
    tile.rows_.error[i] = above(error * scale);
    tile.rows_.length[i] = above(found.step * std::sqrt(double{found.whole}) * (1 + rounding_) * scale);
  }
  kernels().code_pack(tile.block_.data(), stride_, count, tile.packed_.data());
}

void RowBounds::code_query(const PreparedQuery& query, bool usable, Tile& tile, uint8_t* code_out,
                           Query* out) const {
  *out = {};
  out->bound = INFINITY;
  if (!usable) {
    std::memset(code_out, 0, stride_);
    return;
  }
  const int32_t element = is_float_element(dataset_.element()) ? int32_t{ANN_F32} : dataset_.element();
  const BoundCode found = code(query.values, element, tile.values_.data(), code_out);
  const double length = std::sqrt(double{found.square});
  const double error = found.error == 0 ? 0 : found.error * (1 + rounding_) + kOfLength * length;
  out->whole = static_cast<float>(found.whole * (1 + kOfWhole));
  out->usable = found.usable;
  if (dataset_.metric() == ANN_METRIC_L2) {
    out->scale = found.step;
    out->length = above(2 * length * (1 + rounding_));
    out->error = above(2 * (error + kOfLength * length));
    out->own = -found.square * (1 - rounding_);
    return;
  }
  const double scale = dataset_.metric() != ANN_METRIC_COSINE ? 1 : length > 0 ? 1 / length : 0;
  out->scale = static_cast<float>(found.step * scale / 2);
  out->length = above(length * (1 + rounding_) * scale);
  out->error = above((error + 4 * rounding_ * length) * scale);
  out->own = dataset_.metric() == ANN_METRIC_COSINE ? -1 + kOfLength : 0;
}

void RowBounds::set_limit(float distance, Query* query) const {
  if (!query->usable) return;
  // The rounding error of a sum of squares is at most a share of it, or an amount too small for any number.
  const double farthest = dataset_.metric() == ANN_METRIC_L2 ? distance * (1 + rounding_) : distance;
  query->bound = above(farthest + query->own + 1e-30);
}

}  // namespace gannet
