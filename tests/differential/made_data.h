// Small data sets with known shapes, from a seed.
#pragma once

#include <vector>

#include "base/random.h"
#include "dataset/codes.h"

namespace gannet {

enum class Shape { kUniform, kClusters, kDuplicates, kAllEqual, kIslands };

/// [rows, dim] bytes.
inline std::vector<uint8_t> made_bytes(uint32_t rows, uint32_t dim, Shape shape, uint64_t seed) {
  std::vector<uint8_t> bytes(size_t{rows} * dim);
  for (uint32_t row = 0; row < rows; ++row) {
    const uint32_t group = shape == Shape::kDuplicates ? row % (rows / 3 + 1) : row % 8;
    for (uint32_t column = 0; column < dim; ++column) {
      uint8_t& value = bytes[size_t{row} * dim + column];
      const uint64_t centre = random_below(200, seed, 1 + group, column);
      const uint64_t noise = random_below(40, seed, 1000 + row, column);
      switch (shape) {
        case Shape::kUniform:
          value = static_cast<uint8_t>(noise * 6);
          break;
        case Shape::kClusters:
          value = static_cast<uint8_t>(centre + noise);
          break;
        case Shape::kDuplicates:
          value = static_cast<uint8_t>(centre);
          break;
        case Shape::kAllEqual:
          value = 7;
          break;
        case Shape::kIslands:
          value = static_cast<uint8_t>((row % 2) * 200 + noise / 8);
          break;
      }
    }
  }
  return bytes;
}

inline MatrixView view_of(const std::vector<uint8_t>& bytes, uint32_t dim) {
  return {bytes.data(), bytes.size() / dim, dim, ANN_U8, dim};
}

/// A dataset of bytes under L2 with its codes, which are the rows.
struct MadeData {
  MadeData(uint32_t rows, uint32_t dim, Shape shape, uint64_t seed)
      : bytes(made_bytes(rows, dim, shape, seed)),
        dataset(view_of(bytes, dim), nullptr, ANN_METRIC_L2, 0, false, {}),
        codes(dataset, 1, {}) {}

  uint32_t distance(uint32_t a, uint32_t b) const {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < dataset.dim(); ++i) {
      const int gap = bytes[size_t{a} * dataset.dim() + i] - bytes[size_t{b} * dataset.dim() + i];
      sum += static_cast<uint32_t>(gap * gap);
    }
    return sum;
  }

  std::vector<uint8_t> bytes;
  Dataset dataset;
  Codes codes;
};

}  // namespace gannet
