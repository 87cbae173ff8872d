// Elements on a CUDA device: columns of rows as floats, as distance/element.h has them.
#pragma once

#include <cstdint>

#include "ann.h"
#include "distance/element.h"

namespace gannet::cuda {

/// The value of the 16 bits of an f16 or bf16.
template <int32_t kElement>
__device__ float float_of_bits(uint32_t bits) {
  if constexpr (kElement == ANN_BF16) return __uint_as_float(bits << 16);
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(static_cast<uint16_t>(bits)));
  return value;
}

/// Column `column` of a row that starts at any address, on a multiple of the element's size if `aligned`.
template <int32_t kElement>
__device__ float column_of(const uint8_t* row, uint32_t column, bool aligned) {
  const auto bits_at = [row](uint32_t place) { return row[2 * place] | uint32_t{row[2 * place + 1]} << 8; };
  if constexpr (kElement == ANN_I8) {
    return static_cast<int8_t>(row[column]);
  } else if constexpr (kElement == ANN_U8) {
    return row[column];
  } else if constexpr (kElement == ANN_F32) {
    if (aligned) return reinterpret_cast<const float*>(row)[column];
    return __uint_as_float(bits_at(2 * column) | bits_at(2 * column + 1) << 16);
  } else {
    return float_of_bits<kElement>(aligned ? reinterpret_cast<const uint16_t*>(row)[column]
                                           : bits_at(column));
  }
}

/// The same of an element that is known as the kernel runs: all threads take one branch. For kernels that wait for
/// memory.
__device__ inline float column_of(int32_t element, const uint8_t* row, uint32_t column, bool aligned) {
  switch (element) {
    case ANN_F32:
      return column_of<ANN_F32>(row, column, aligned);
    case ANN_F16:
      return column_of<ANN_F16>(row, column, aligned);
    case ANN_BF16:
      return column_of<ANN_BF16>(row, column, aligned);
    case ANN_I8:
      return column_of<ANN_I8>(row, column, aligned);
    default:
      return column_of<ANN_U8>(row, column, aligned);
  }
}

}  // namespace gannet::cuda
