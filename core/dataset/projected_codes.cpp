#include "dataset/projected_codes.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/random.h"
#include "dataset/codes.h"

namespace gannet {
namespace {

constexpr uint64_t kSampleStream = 0x70726f6a656374;  // "project"
constexpr uint32_t kSampleMost = 4096;
constexpr uint32_t kSampleLeast = 1024;
constexpr uint32_t kFitted = 1024;      // rows of the sample that offsets and factor are fitted to
constexpr double kKeptValues = 0.9995;  // share of their products that are not clipped
constexpr uint32_t kIterations = 3;
constexpr uint32_t kBlock = 64;       // rows of a tile
constexpr uint32_t kFactorRows = 16;  // of a matrix between two questions of the monitor

uint32_t sample_size(uint64_t rows) {
  return static_cast<uint32_t>(std::min<uint64_t>(rows, kSampleMost) / kCodeAlign * kCodeAlign);
}

struct Sums {
  uint32_t values = 0;
  uint32_t square = 0;
};

/// The sums over a code's bytes.
Sums sums_of(const uint8_t* code, size_t bytes) {
  Sums sums;
  for (size_t i = 0; i < bytes; ++i) {
    sums.values += code[i];
    sums.square += uint32_t{code[i]} * code[i];
  }
  return sums;
}

/// Makes rows [0, count) of `values`, [count, width], orthogonal to those before them and of length one, by
/// Gram and Schmidt's process; twice, since once leaves what rounding has added. Rows that vanish become zeros.
void make_orthonormal(Array<float>& values, uint32_t count, size_t width, const Execution& execution) {
  Array<float> shares(execution.memory, count);
  const auto columns = static_cast<uint32_t>(width);
  const auto scale = [&](float* row, double factor) {
    for (size_t i = 0; i < width; ++i) row[i] = static_cast<float>(row[i] * factor);
  };
  const auto length = [&](const float* row) {
    float square;
    kernels().dot[ANN_F32](row, {row, width * sizeof(float), columns, ANN_F32}, nullptr, 1, &square);
    return std::sqrt(static_cast<double>(square));
  };
  for (uint32_t number = 0; number < count; ++number) {
    execution.check();
    float* const row = values.data() + number * width;
    const double before = length(row);
    if (before > 0) scale(row, 1 / before);
    for (uint32_t turn = 0; turn < 2; ++turn) {
      kernels().dot[ANN_F32](row, {values.data(), width * sizeof(float), columns, ANN_F32}, nullptr, number,
                             shares.data());
      for (uint32_t other = 0; other < number; ++other) {
        const float* const from = values.data() + other * width;
        for (size_t i = 0; i < width; ++i) row[i] -= shares[other] * from[i];
      }
    }
    const double after = length(row);
    scale(row, after > 1e-6 ? 1 / after : 0);
  }
}

/// Signs, as floats.
void fill_signs(Array<float>& values, uint64_t seed, uint64_t stream) {
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = (random_word(seed, stream, i / 64) >> (i % 64) & 1) != 0 ? 1.0f : -1.0f;
}

/// The columns of a sample as rows, [stride, sample].
Array<uint8_t> transpose(const uint8_t* sample, uint32_t count, size_t stride, const Execution& execution) {
  Array<uint8_t> columns(execution.memory, count * stride);
  for (uint32_t row = 0; row < count; ++row) {
    if (row % kBlock == 0) execution.check();
    for (size_t column = 0; column < stride; ++column)
      columns[column * count + row] = sample[row * stride + column];
  }
  return columns;
}

/// The covariance of the columns, [stride, stride], from the distances of tiles: twice a product is what a distance
/// lacks to the sum of squares.
Array<float> covariance(const uint8_t* sample, uint32_t count, size_t stride, const Execution& execution) {
  const Array<uint8_t> columns = transpose(sample, count, stride, execution);
  const auto width = static_cast<uint32_t>(stride);
  Array<uint8_t> packed(execution.memory, packed_bytes(width, count));
  kernels().code_pack(columns.data(), count, width, packed.data());
  Array<double> means(execution.memory, stride);
  Array<uint64_t> squares(execution.memory, stride);
  for (size_t column = 0; column < stride; ++column) {
    if (column % kBlock == 0) execution.check();
    uint64_t sum = 0, square = 0;
    for (uint32_t row = 0; row < count; ++row) {
      const uint32_t value = columns[column * count + row];
      sum += value;
      square += value * value;
    }
    means[column] = static_cast<double>(sum) / count;
    squares[column] = square;
  }
  Array<float> result(execution.memory, stride * stride);
  Array<uint32_t> tiles(execution.memory, size_t{kBlock} * stride * execution.threads);
  parallel_for(execution, width, kBlock, [&](uint64_t begin, uint64_t end, uint32_t worker) {
    uint32_t* const tile = tiles.data() + worker * size_t{kBlock} * stride;
    kernels().code_tile(columns.data() + begin * count, static_cast<uint32_t>(end - begin), packed.data(),
                        width, count, count, tile, stride);
    for (uint64_t row = begin; row < end; ++row) {
      for (size_t column = 0; column < stride; ++column) {
        const uint64_t product = (squares[row] + squares[column] - tile[(row - begin) * stride + column]) / 2;
        result[row * stride + column] =
            static_cast<float>(static_cast<double>(product) / count - means[row] * means[column]);
      }
    }
  });
  return result;
}

/// values = values * matrix, for a symmetric matrix [width, width]. Some rows of the matrix stay in the first cache.
void multiply(Array<float>& values, uint32_t count, const Array<float>& matrix, size_t width,
              const Execution& execution) {
  Array<float> result(execution.memory, values.size());
  const auto columns = static_cast<uint32_t>(width);
  parallel_for(execution, columns, kFactorRows, [&](uint64_t begin, uint64_t end, uint32_t) {
    const RowsView block{matrix.data() + begin * width, width * sizeof(float), columns, ANN_F32};
    for (uint32_t row = 0; row < count; ++row)
      kernels().dot[ANN_F32](values.data() + row * width, block, nullptr, static_cast<uint32_t>(end - begin),
                             result.data() + row * width + begin);
  });
  values = std::move(result);
}

}  // namespace

// --- Directions -----------------------------------------------------------------------------------

uint32_t Directions::count_of(uint64_t rows, size_t stride) {
  if (sample_size(rows) < kSampleLeast || stride > ProjectedCodes::kStrideMost) return 0;
  return std::min(static_cast<uint32_t>(stride / kShare / kStep * kStep), ProjectedCodes::kMost);
}

Directions::Directions(const Codes& codes, uint64_t seed, const Execution& execution)
    : stride_(codes.stride()), count_(codes.wide() ? 0 : count_of(codes.rows(), codes.stride())) {
  if (count_ == 0) return;
  sample_rows_ = sample_size(codes.rows());
  Array<uint32_t> rows(execution.memory, sample_rows_);
  random_strata(codes.rows(), sample_rows_, seed, kSampleStream, rows.data());
  sample_ = Array<uint8_t>(execution.memory, sample_rows_ * stride_);
  codes.gather(rows.data(), sample_rows_, sample_.data());
  const Array<float> matrix = covariance(sample_.data(), sample_rows_, stride_, execution);
  values_ = Array<float>(execution.memory, count_ * stride_);
  fill_signs(values_, seed, kSampleStream + 1);
  for (uint32_t turn = 0; turn < kIterations; ++turn) {
    multiply(values_, count_, matrix, stride_, execution);
    make_orthonormal(values_, count_, stride_, execution);
  }
}

uint64_t Directions::bytes(uint64_t rows, size_t stride) {
  const uint64_t count = count_of(rows, stride);
  if (count == 0) return 0;
  const uint64_t sample = sample_size(rows);
  const uint64_t held = sample * stride + count * stride * sizeof(float);
  const uint64_t finding = sample * stride + packed_bytes(static_cast<uint32_t>(stride), sample) +
                           stride * stride * sizeof(float) + count * stride * sizeof(float);
  return held + finding + stride * 2 * sizeof(double);
}

// --- ProjectedCodes -------------------------------------------------------------------------------

ProjectedCodes::ProjectedCodes(size_t stride, Array<uint8_t>&& projection, const Allocator& memory)
    : stride_(stride),
      width_(static_cast<uint32_t>((projection.size() - kHeadBytes) / (sizeof(int32_t) + stride))),
      projection_(std::move(projection)) {
  pack(memory);
}

ProjectedCodes::ProjectedCodes(size_t stride, Parts&& parts, const Allocator& memory)
    : ProjectedCodes(stride, std::move(parts.projection), memory) {
  stored_ = std::move(parts.codes);
  touch_ = parts.touch;
}

ProjectedCodes::ProjectedCodes(const Codes& codes, const Directions& directions, uint32_t width,
                               uint64_t seed, const Execution& execution)
    : stride_(codes.stride()), width_(width) {
  const Allocator& memory = execution.memory;
  // Turned among themselves: each has its part of the widest ones.
  Array<float> turn(memory, size_t{width} * width);
  fill_signs(turn, seed, kSampleStream + 2);
  make_orthonormal(turn, width, width, execution);
  Array<float> turned = Array<float>::zeroed(memory, width * stride_);
  float most = 0;
  for (uint32_t row = 0; row < width; ++row) {
    execution.check();
    float* const out = turned.data() + row * stride_;
    for (uint32_t from = 0; from < width; ++from) {
      const float share = turn[size_t{row} * width + from];
      for (size_t column = 0; column < stride_; ++column) out[column] += share * directions[from][column];
    }
    for (size_t column = 0; column < stride_; ++column) most = std::max(most, std::fabs(out[column]));
  }
  projection_ = Array<uint8_t>::zeroed(memory, projection_bytes(width, stride_));
  uint8_t* const bytes = projection_.data() + kHeadBytes + width * sizeof(int32_t);
  const float scale = most > 0 ? 127 / most : 0;
  for (size_t i = 0; i < turned.size(); ++i)
    bytes[i] = static_cast<uint8_t>(static_cast<int32_t>(turned[i] * scale + 128.5f));
  pack(memory);
  fit(directions, execution);

  stored_ = Array<uint8_t>(memory, checked_product(codes.rows(), width));
  Array<uint8_t> blocks(memory, size_t{kBlock} * stride_ * execution.threads);
  Array<uint32_t> tiles(memory, size_t{kBlock} * width_ * execution.threads);
  parallel_for(execution, codes.rows(), kBlock, [&](uint64_t begin, uint64_t end, uint32_t worker) {
    uint32_t rows[kBlock];
    const auto count = static_cast<uint32_t>(end - begin);
    for (uint32_t i = 0; i < count; ++i) rows[i] = static_cast<uint32_t>(begin) + i;
    uint8_t* const block = blocks.data() + worker * size_t{kBlock} * stride_;
    codes.gather(rows, count, block);
    project(block, count, tiles.data() + worker * size_t{kBlock} * width_, stored_.data() + begin * width_);
  });
}

float ProjectedCodes::factor() const {
  float factor;
  std::memcpy(&factor, projection_.data(), sizeof factor);
  return factor;
}

const int32_t* ProjectedCodes::offsets() const {
  return reinterpret_cast<const int32_t*>(projection_.data() + kHeadBytes);
}

const uint8_t* ProjectedCodes::directions() const {
  return projection_.data() + kHeadBytes + width_ * sizeof(int32_t);
}

/// Brings the directions into the form of a tile's right side.
void ProjectedCodes::pack(const Allocator& memory) {
  packed_ = Array<uint8_t>(memory, packed_bytes(width_, stride_));
  kernels().code_pack(directions(), stride_, width_, packed_.data());
  squares_ = Array<uint32_t>(memory, width_);
  for (uint32_t row = 0; row < width_; ++row)
    squares_[row] = sums_of(directions() + row * stride_, stride_).square;
}

void ProjectedCodes::multiply(const uint8_t* codes, uint32_t count, uint32_t* tile) const {
  kernels().code_tile(codes, count, packed_.data(), width_, stride_, stride_, tile, width_);
  for (uint32_t row = 0; row < count; ++row) {
    const Sums sums = sums_of(codes + row * stride_, stride_);
    const uint32_t own = sums.square - 256 * sums.values;
    uint32_t* const line = tile + size_t{row} * width_;
    for (uint32_t j = 0; j < width_; ++j)
      line[j] = static_cast<uint32_t>(static_cast<int32_t>(own + squares_[j] - line[j]) / 2);
  }
}

/// Offsets and factor.
void ProjectedCodes::fit(const Directions& directions, const Execution& execution) {
  const uint32_t count = std::min(directions.sample_rows(), kFitted);
  Array<int32_t> products(execution.memory, size_t{count} * width_);
  Array<uint32_t> tile(execution.memory, width_);
  for (uint32_t first = 0; first < count; first += kBlock) {
    execution.check();
    const uint32_t rows = std::min(kBlock, count - first);
    // Equal steps through the sample, whose rows are in order.
    for (uint32_t i = 0; i < rows; ++i) {
      const uint64_t row = uint64_t{first + i} * directions.sample_rows() / count;
      multiply(directions.sample() + row * stride_, 1, tile.data());
      for (uint32_t j = 0; j < width_; ++j)
        products[size_t{first + i} * width_ + j] = static_cast<int32_t>(tile[j]);
    }
  }
  auto* const offsets = reinterpret_cast<int32_t*>(projection_.data() + kHeadBytes);
  Array<uint32_t> sizes(execution.memory, products.size());
  for (uint32_t j = 0; j < width_; ++j) {
    int64_t sum = 0;
    for (uint32_t i = 0; i < count; ++i) sum += products[size_t{i} * width_ + j];
    offsets[j] = static_cast<int32_t>(sum / count);
    for (uint32_t i = 0; i < count; ++i) {
      const size_t at = size_t{i} * width_ + j;
      sizes[at] = static_cast<uint32_t>(std::abs(products[at] - offsets[j]));
    }
  }
  uint32_t* const kept =
      sizes.data() + static_cast<size_t>(kKeptValues * static_cast<double>(sizes.size() - 1));
  std::nth_element(sizes.begin(), kept, sizes.end());
  const float factor = 127.0f / static_cast<float>(std::max(*kept, 1u));
  std::memcpy(projection_.data(), &factor, sizeof factor);
}

void ProjectedCodes::project(const uint8_t* codes, uint32_t count, uint32_t* tile, uint8_t* out) const {
  multiply(codes, count, tile);
  const float factor = this->factor();
  const int32_t* const offset = offsets();
  for (uint32_t row = 0; row < count; ++row) {
    for (uint32_t j = 0; j < width_; ++j) {
      const auto product = static_cast<int32_t>(tile[size_t{row} * width_ + j]);
      const float steps = static_cast<float>(product - offset[j]) * factor;
      // Halves go up: 128.5 and truncation.
      const float value = std::min(std::max(steps + 128.5f, 0.0f), 255.0f);
      out[size_t{row} * width_ + j] = static_cast<uint8_t>(static_cast<int32_t>(value));
    }
  }
}

void ProjectedCodes::distances(const uint8_t* query, const uint32_t* ids, uint32_t count,
                               uint32_t* out) const {
  if (touch_ != nullptr) {
    for (uint32_t i = 0; i < count; ++i) touch_->touch(uint64_t{ids[i]} * width_, width_);
  }
  kernels().code_gather(query, stored_.data(), width_, 0, ids, count, out);
}

uint64_t projected_codes_bytes(uint64_t rows, size_t stride) {
  const uint64_t width = Directions::count_of(rows, stride);
  if (width == 0) return 0;
  return rows * width + ProjectedCodes::projection_bytes(width, stride) +
         packed_bytes(static_cast<uint32_t>(width), stride) + width * sizeof(uint32_t) + 4 * kAlignment;
}

uint64_t fit_projected_codes_bytes(size_t stride, uint32_t threads) {
  const uint64_t width = std::min<uint64_t>(stride / Directions::kShare, ProjectedCodes::kMost);
  const uint64_t turning = width * width * sizeof(float) + width * stride * sizeof(float);
  const uint64_t fitting = uint64_t{kFitted} * width * 2 * sizeof(int32_t) + width * sizeof(uint32_t);
  const uint64_t projecting = threads * uint64_t{kBlock} * (stride + width * sizeof(uint32_t));
  return std::max({turning, fitting, projecting}) + 8 * kAlignment;
}

}  // namespace gannet
