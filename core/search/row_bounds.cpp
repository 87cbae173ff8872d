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

// Squares of lengths that no float loses anything of but by rounding.
constexpr float kSquareMin = 1e-28f;
constexpr float kSquareMax = 1e36f;

// By product rows about a centre farther away may have products that no float holds: they are reported as infinite, and
// no bound knows of it.
constexpr double kCentreSquareMax = 1e30;

constexpr uint64_t kFewestOfBytes = 12;  // coding a row takes as long as 10 queries do with it

float above(double value) { return std::nextafter(static_cast<float>(value), INFINITY); }
/// The same of lengths and squares of rows, three for each: without a call, and by up to four units instead of one.
float above_length(double value) { return static_cast<float>(value * (1 + 0x1p-22)) + FLT_MIN; }
float below_square(double value) { return static_cast<float>(value * (1 - 0x1p-22)) - FLT_MIN; }

}  // namespace

RowBounds::RowBounds(const Dataset& dataset, const Execution& execution)
    : dataset_(dataset),
      stride_(round_up(dataset.dim(), kCodeAlign)),
      tile_rows_(static_cast<uint32_t>(
          std::clamp<size_t>(kTileBytes / stride_ / kPackRows * kPackRows, kTileRowsMin, kTileRowsMax))),
      rounding_((dataset.dim() / 16 + 64) * 0x1p-23) {
  if (is_float_element(dataset.element())) find_centre(execution);
}

uint64_t RowBounds::fewest(int32_t element) {
  if (is_float_element(element)) return kFewestOfFloats;
  // With shorter vectors tiles of bytes take longer than rows of bytes as stored.
  return std::string_view(kernels().name).starts_with("avx") ? kFewestOfBytes : UINT64_MAX;
}

/// A vector of floats as it is coded, but for the centre: by cosine of length one. False where a float does not hold
/// its squared length.
bool RowBounds::widen(const void* vector, int32_t element, float* values) const {
  const uint32_t dim = dataset_.dim();
  kernels().widen[element](vector, dim, values);
  if (dataset_.metric() != ANN_METRIC_COSINE) return true;
  float square;
  kernels().dot[ANN_F32](values, {values, 0, dim, ANN_F32}, nullptr, 1, &square);
  if (!(square >= kSquareMin && square <= kSquareMax))  // the zero vector stays what it is
    return std::all_of(values, values + dim, [](float value) { return value == 0; });
  const float scale = 1 / std::sqrt(square);
  for (uint32_t column = 0; column < dim; ++column) values[column] *= scale;
  return true;
}

void RowBounds::find_centre(const Execution& execution) {
  const uint32_t dim = dataset_.dim();
  const uint32_t sampled = std::min(kMeanRows, dataset_.rows());
  Array<float> sample(execution.memory, checked_product(sampled, dim));
  centre_ = Array<float>::zeroed(execution.memory, stride_);
  for (uint32_t i = 0; i < sampled; ++i) {
    const uint32_t row = static_cast<uint32_t>(uint64_t{i} * dataset_.rows() / sampled);
    float* values = sample.data() + size_t{i} * dim;
    if (!widen(dataset_.row(row), dataset_.element(), values)) std::fill_n(values, dim, 0.0f);
    for (uint32_t column = 0; column < dim; ++column)
      centre_[column] += values[column] / static_cast<float>(sampled);
  }
  uint32_t nearer = 0;  // to the centre than to zero: x.c > |c|^2 / 2
  double square = 0;
  for (uint32_t column = 0; column < dim; ++column) square += double{centre_[column]} * centre_[column];
  for (uint32_t i = 0; i < sampled; ++i) {
    double product = 0;
    for (uint32_t column = 0; column < dim; ++column)
      product += double{sample[size_t{i} * dim + column]} * centre_[column];
    nearer += product > square / 2 ? 1 : 0;
  }
  const bool too_far = dataset_.metric() == ANN_METRIC_INNER_PRODUCT && square > kCentreSquareMax;
  if (nearer <= sampled / 2 || too_far) centre_ = Array<float>();
  centre_length_ = centre_.empty() ? 0 : std::sqrt(square);
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
BoundCode RowBounds::code(const void* vector, int32_t element, bool centred, float* values,
                          uint8_t* out) const {
  const uint32_t dim = dataset_.dim();
  if (is_float_element(element)) {
    if (!widen(vector, element, values)) {
      std::memset(out, 0, stride_);
      return {};
    }
    if (centred && !centre_.empty()) {
      for (uint32_t column = 0; column < dim; ++column) values[column] -= centre_[column];
    }
    const BoundCode found = kernels().bound_code(values, stride_, out);
    std::memset(out + dim, 0, stride_ - dim);
    return found;
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
  const bool scaled = dataset_.metric() == ANN_METRIC_COSINE && !by_difference();
  for (uint32_t i = 0; i < count; ++i) {
    const BoundCode found = code(dataset_.row(first + i), dataset_.element(), true, tile.values_.data(),
                                 tile.block_.data() + i * stride_);
    const double length = std::sqrt(double{found.square});
    const double scale = !scaled ? 1 : length > 0 ? 1 / length : 0;
    const double error = found.error == 0 ? 0 : found.error * (1 + rounding_) + kOfLength * length;
    tile.rows_.self[i] = !found.usable     ? -INFINITY
                         : by_difference() ? below_square(found.square * (1 - rounding_))
                                           : 0.0f;
    tile.rows_.step[i] = static_cast<float>(found.step * scale);
    tile.rows_.whole[i] = static_cast<float>(found.whole * (1 + kOfWhole));
    tile.rows_.error[i] = above_length(error * scale);
    tile.rows_.length[i] =
        above_length(found.step * std::sqrt(double{found.whole}) * (1 + rounding_) * scale);
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
  const BoundCode found = code(query.values, element, by_difference(), tile.values_.data(), code_out);
  const double length = std::sqrt(double{found.square});
  const double error = found.error == 0 ? 0 : found.error * (1 + rounding_) + kOfLength * length;
  out->whole = static_cast<float>(found.whole * (1 + kOfWhole));
  out->usable = found.usable;
  if (by_difference()) {
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
  if (centre_.empty()) return;
  for (uint32_t column = 0; column < dataset_.dim(); ++column)
    out->own += double{tile.values_[column]} * centre_[column];
  out->own +=
      4 * rounding_ * length * centre_length_;  // rows are that much longer than what is coded, at most
}

void RowBounds::set_limit(float distance, Query* query) const {
  if (!query->usable) return;
  query->bound = above(farthest(distance) + query->own + 1e-30);
}

/// The largest |x - q|^2 or -x.q of a row that is reported at a distance.
double RowBounds::farthest(float distance) const {
  // The rounding error of a sum of squares is at most a share of it, or an amount too small for any number.
  if (dataset_.metric() == ANN_METRIC_L2) return distance * (1 + rounding_);
  if (!by_difference()) return distance;
  // Cosines are rounded, and vectors of length one by as much as lengths are.
  const double twice = 2 * (distance + 4 * rounding_ + kOfLength);
  const double apart = std::sqrt(std::max(0.0, twice)) + 2 * (rounding_ + kOfLength);
  return apart * apart;
}

}  // namespace gannet
