// Lengths of vectors: squares are summed as doubles, column after column, so that their bits are the same everywhere. And
// vectors brought to another length.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "distance/element.h"

namespace gannet {

/// The lengths of kRows rows `stride` bytes apart. A sum waits for its last addition, four cycles a column: four rows at
/// once take little longer than one.
template <int32_t kElement, uint32_t kRows>
void find_lengths_of(const uint8_t* first, size_t stride, uint32_t dim, double* lengths) {
  double sums[kRows] = {};
  for (uint32_t column = 0; column < dim; ++column) {
    for (uint32_t row = 0; row < kRows; ++row) {
      const double value = element_to_float(first + row * stride, kElement, column);
      sums[row] += value * value;
    }
  }
  std::transform(sums, sums + kRows, lengths, [](double sum) { return std::sqrt(sum); });
}

/// The same of `count` rows, [count].
inline void find_lengths(const uint8_t* first, size_t stride, uint64_t count, int32_t element, uint32_t dim,
                         double* lengths) {
  constexpr uint32_t kAtOnce = 4;
  with_element(element, [&](auto known) {
    uint64_t row = 0;
    for (; row + kAtOnce <= count; row += kAtOnce)
      find_lengths_of<known(), kAtOnce>(first + row * stride, stride, dim, lengths + row);
    for (; row < count; ++row) find_lengths_of<known(), 1>(first + row * stride, stride, dim, lengths + row);
  });
}

inline double length_of(const uint8_t* vector, int32_t element, uint32_t dim) {
  double length = 0;
  find_lengths(vector, 0, 1, element, dim, &length);
  return length;
}

/// The vector times `scale`, [dim].
inline void scale_to_floats(const uint8_t* vector, int32_t element, uint32_t dim, double scale,
                            float* values) {
  with_element(element, [&](auto known) {
    for (uint32_t column = 0; column < dim; ++column)
      values[column] = static_cast<float>(element_to_float(vector, known(), column) * scale);
  });
}

}  // namespace gannet
