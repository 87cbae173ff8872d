// Claims of the GPU tests: named checks that hold or fail, with the time that they took, and the data
// sets that they are made on.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "backend/devices.h"
#include "dataset/dataset.h"

namespace gannet::test {

inline constexpr int32_t kElements[] = {ANN_F32, ANN_F16, ANN_BF16, ANN_I8, ANN_U8};
inline constexpr int32_t kMetrics[] = {ANN_METRIC_L2, ANN_METRIC_INNER_PRODUCT, ANN_METRIC_COSINE};

inline const char* metric_name(int32_t metric) {
  return metric == ANN_METRIC_L2 ? "L2" : metric == ANN_METRIC_INNER_PRODUCT ? "IP" : "cosine";
}

struct Failure {
  std::string what;
};

inline void expect(bool holds, const std::string& what) {
  if (!holds) throw Failure{what};
}

inline void expect_ok(ann_status status, const ann_error& error, const std::string& what) {
  expect(status == ANN_OK, what + ": " + error.message);
}

template <class Work>
double milliseconds_of(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

/// The median of five, after one to warm up.
template <class Work>
double median_ms(const Work& work) {
  std::vector<double> times;
  for (uint32_t run = 0; run < 6; ++run) {
    const double time = milliseconds_of(work);
    if (run > 0) times.push_back(time);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

enum class Values {
  kNormal,
  kFar,     // 2.5 times as far out as kNormal
  kOffset,  // a thousand beside the origin in every column, so that lengths are far beyond distances
  kTight,   // at sixteen places, where distances are less than tensor cores tell apart in floats
  kNarrow,  // the same, less than they tell apart in halves, and not less than with what halves have lost
  kClusters,
  kGrid,  // few values: many equal distances
  kDuplicates,
  kEqual,       // all rows are one row
  kZeros,       // every third row is zero
  kTiny,        // of floats lengths about 1e-20: products underflow
  kHuge,        // about 1e30: products overflow
  kDescending,  // each row is nearer to the origin than the one before, so that it enters every list of one
  kOrigin,      // a query there
};

/// A matrix of any element, from a seed. `gap` bytes that are part of no row stand behind each.
struct Rows {
  Rows(int32_t element_, uint32_t rows_, uint32_t dim_, Values values, uint32_t seed, uint32_t gap = 0)
      : element(element_),
        rows(rows_),
        dim(dim_),
        stride(size_t{dim_} * element_bytes(element_) + gap),
        bytes(rows_ * stride + 1, gap != 0 ? 0xa5 : 0) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> centres(size_t{16} * dim);
    for (float& centre : centres) centre = 3 * normal(random);
    for (uint32_t row = 0; row < rows; ++row) {
      const uint32_t group = random() % 16;
      for (uint32_t column = 0; column < dim; ++column) {
        float value = normal(random);
        if (values == Values::kFar) value *= 2.5f;
        if (values == Values::kOffset) value += 1000;
        if (values == Values::kTight) value = value * 1e-3f + centres[group * dim + column];
        if (values == Values::kNarrow) value = value * 2e-2f + centres[group * dim + column];
        if (values == Values::kClusters) value = value * 0.7f + centres[group * dim + column];
        if (values == Values::kGrid) value = static_cast<float>(random() % 3);
        if (values == Values::kDuplicates) value = centres[row % 7 % 16 * dim + column];
        if (values == Values::kEqual) value = centres[column];
        if (values == Values::kTiny) value *= element == ANN_F16 ? 1e-6f : 1e-20f;
        if (values == Values::kHuge) value *= element == ANN_F16 ? 1e4f : 1e30f;
        if (values == Values::kDescending) value = static_cast<float>((rows - row) % 1000) / 128;
        if (values == Values::kOrigin) value = 0;
        put(row * stride, column, value);
      }
      if (values == Values::kZeros && row % 3 == 0)
        std::memset(bytes.data() + row * stride, 0, size_t{dim} * element_bytes(element));
    }
  }

  void put(size_t at, uint32_t column, float value) {
    if (is_float_element(element)) {
      const float largest = element == ANN_F16 ? 65000.0f : 3e38f;
      float_to_element(std::clamp(value, -largest, largest), bytes.data() + at, element, column);
    } else {
      const float scaled = std::min(127.0f, std::max(-128.0f, value * 16));
      const int32_t whole = static_cast<int32_t>(scaled);
      bytes[at + column] = static_cast<uint8_t>(element == ANN_I8 ? whole : whole + 128);
    }
  }

  MatrixView view() const { return {bytes.data(), rows, dim, element, stride}; }
  Dataset dataset(int32_t metric) const {
    return Dataset(view(), nullptr, metric, element, false, Execution());
  }

  int32_t element;
  uint32_t rows;
  uint32_t dim;
  size_t stride;  // bytes
  std::vector<uint8_t> bytes;
};

/// `count` of the rows from `first` on, as a caller of the library names them.
inline ann_matrix matrix_of(const Rows& rows, uint64_t first, uint64_t count) {
  ann_matrix matrix = ANN_MATRIX_INIT;
  matrix.element = rows.element;
  matrix.data = rows.bytes.data() + first * rows.stride;
  matrix.rows = count;
  matrix.dim = rows.dim;
  matrix.row_stride = rows.stride;
  return matrix;
}
inline ann_matrix matrix_of(const Rows& rows) { return matrix_of(rows, 0, rows.rows); }

/// The first rows of a .u8bin or .f16bin file: uint32 rows, uint32 dim, then the values.
inline Rows read_vectors(const std::string& path, uint32_t rows_max) {
  const int32_t element = path.find(".f16bin") == std::string::npos ? ANN_U8 : ANN_F16;
  std::ifstream file(path, std::ios::binary);
  uint32_t shape[2] = {};
  file.read(reinterpret_cast<char*>(shape), sizeof shape);
  expect(file.good(), "no data in " + path);
  Rows rows(element, 0, shape[1], Values::kEqual, 1);
  rows.rows = std::min(shape[0], rows_max);
  rows.bytes.resize(uint64_t{rows.rows} * rows.stride);
  file.read(reinterpret_cast<char*>(rows.bytes.data()), static_cast<std::streamsize>(rows.bytes.size()));
  expect(file.good(), path + " is too short");
  return rows;
}

/// A metric by its name: L2, cosine or ip.
inline int32_t metric_named(const std::string& name) {
  if (name == "cosine") return ANN_METRIC_COSINE;
  return name == "ip" ? ANN_METRIC_INNER_PRODUCT : ANN_METRIC_L2;
}

struct Claim {
  const char* text;
  void (*check)();
};

/// The exit status of a test of these claims, or of those whose text has `only` in it; 77 without a
/// device.
template <size_t kCount>
int run_claims(const Claim (&claims)[kCount], const std::string& only = "") {
  const char* reason = "";
  if (cuda_device_count(&reason) == 0) {
    std::printf("skipped: %s\n", reason);
    return 77;
  }
  int failures = 0;
  for (const Claim& claim : claims) {
    if (std::string(claim.text).find(only) == std::string::npos) continue;
    std::string what;
    const double time = milliseconds_of([&] {
      try {
        claim.check();
      } catch (const Failure& failure) {
        what = failure.what;
      } catch (const Error& error) {
        what = error.message;
      }
    });
    std::printf("%s  %s (%.1f s)%s%s\n", what.empty() ? "holds" : "FAILS", claim.text, time / 1e3,
                what.empty() ? "" : ": ", what.c_str());
    std::fflush(stdout);
    failures += what.empty() ? 0 : 1;
  }
  return failures == 0 ? 0 : 1;
}

}  // namespace gannet::test
