// The five elements: their sizes, and the way to and from 32-bit floats.
//
// Conversions are exact where the target holds the value and round to nearest even where not. They
// are written with integer operations, so that the portable level and every machine agree.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "ann.h"

namespace gannet {

constexpr bool is_element(int32_t element) { return element >= ANN_F32 && element <= ANN_U8; }
constexpr bool is_float_element(int32_t element) {
  return element == ANN_F32 || element == ANN_F16 || element == ANN_BF16;
}
constexpr uint32_t element_bytes(int32_t element) {
  return element == ANN_F32 ? 4 : element == ANN_F16 || element == ANN_BF16 ? 2 : 1;
}
constexpr const char* element_name(int32_t element) {
  constexpr const char* kNames[] = {"auto", "f32", "f16", "bf16", "i8", "u8"};
  return element >= 0 && element <= ANN_U8 ? kNames[element] : "unknown";
}

inline float float_of_f16(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t exponent = (half >> 10) & 0x1f;
  const uint32_t fraction = half & 0x3ff;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000 | (fraction << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
  // Zero and subnormals: fraction * 2^-24 is a normal float, and exact.
  const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

inline uint16_t f16_of_float(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00;   // NaN
  if (magnitude >= 0x477ff000) return sign | 0x7c00;  // rounds to infinity
  if (magnitude < 0x38800000) {                       // subnormal half: units of 2^-24
    const float units = std::bit_cast<float>(magnitude) * 0x1p24f;
    const float nearest = (units + 0x1p23f) - 0x1p23f;  // to nearest even, units < 2^10
    return sign | static_cast<uint16_t>(nearest);
  }
  const uint32_t rounded = magnitude + 0xfff + ((magnitude >> 13) & 1);
  return sign | static_cast<uint16_t>((rounded - 0x38000000) >> 13);
}

inline float float_of_bf16(uint16_t upper) {
  return std::bit_cast<float>(static_cast<uint32_t>(upper) << 16);
}

inline uint16_t bf16_of_float(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

/// Column `column` of a row of `element` as a float. Rows may start at any address.
inline float element_to_float(const void* row, int32_t element, uint32_t column) {
  const uint8_t* bytes = static_cast<const uint8_t*>(row);
  if (element == ANN_I8) return static_cast<float>(static_cast<int8_t>(bytes[column]));
  if (element == ANN_U8) return static_cast<float>(bytes[column]);
  if (element == ANN_F32) {
    float value;
    std::memcpy(&value, bytes + size_t{column} * 4, 4);
    return value;
  }
  uint16_t half;
  std::memcpy(&half, bytes + size_t{column} * 2, 2);
  return element == ANN_F16 ? float_of_f16(half) : float_of_bf16(half);
}

/// Calls use() with the element as a constant, for loops over columns that are not to ask for it at each.
template <class Use>
void with_element(int32_t element, const Use& use) {
  switch (element) {
    case ANN_F32:
      return use(std::integral_constant<int32_t, ANN_F32>());
    case ANN_F16:
      return use(std::integral_constant<int32_t, ANN_F16>());
    case ANN_BF16:
      return use(std::integral_constant<int32_t, ANN_BF16>());
    case ANN_I8:
      return use(std::integral_constant<int32_t, ANN_I8>());
    default:
      return use(std::integral_constant<int32_t, ANN_U8>());
  }
}

inline void float_to_element(float value, void* row, int32_t element, uint32_t column) {
  uint8_t* bytes = static_cast<uint8_t*>(row);
  if (element == ANN_F32) {
    std::memcpy(bytes + size_t{column} * 4, &value, 4);
  } else {
    const uint16_t half = element == ANN_F16 ? f16_of_float(value) : bf16_of_float(value);
    std::memcpy(bytes + size_t{column} * 2, &half, 2);
  }
}

}  // namespace gannet
