// The float and integer row distances that both AVX-512 levels share: 64 float lanes are four
// registers of sixteen, tails are masked loads.
#pragma once

// gcc 12 takes the deliberately undefined operands inside its own intrinsics for mistakes.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include "distance/element.h"
#include "distance/row_loops.h"

namespace gannet {
namespace {  // one copy for each file, compiled with that file's instruction set

template <int32_t kElement>
inline __m512 load16(const uint8_t* at, __mmask16 columns) {
  if constexpr (kElement == ANN_F32) return _mm512_maskz_loadu_ps(columns, at);
  const __m256i halves = _mm256_maskz_loadu_epi16(columns, at);
  if constexpr (kElement == ANN_F16) return _mm512_cvtph_ps(halves);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

template <int32_t kElement>
void widen(const void* row, uint32_t dim, float* out) {
  const uint8_t* bytes = static_cast<const uint8_t*>(row);
  for (uint32_t column = 0; column < dim; column += 16) {
    const uint32_t left = dim - column;
    const __mmask16 columns = left >= 16 ? __mmask16{0xffff} : static_cast<__mmask16>((1u << left) - 1);
    _mm512_mask_storeu_ps(out + column, columns,
                          load16<kElement>(bytes + size_t{column} * element_bytes(kElement), columns));
  }
}

template <bool kDot>
inline __m512 term(__m512 sum, __m512 x, __m512 q) {
  if constexpr (kDot) return _mm512_add_ps(sum, _mm512_mul_ps(x, q));
  const __m512 difference = _mm512_sub_ps(x, q);
  return _mm512_add_ps(sum, _mm512_mul_ps(difference, difference));
}

inline float fold(const __m512* lanes) {
  const __m512 sixteen = _mm512_add_ps(_mm512_add_ps(lanes[0], lanes[1]), _mm512_add_ps(lanes[2], lanes[3]));
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(sixteen), _mm512_extractf32x8_ps(sixteen, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

template <int32_t kElement, bool kDot>
float float_distance(const float* query, const void* row, uint32_t dim) {
  constexpr size_t kBytes = element_bytes(kElement);
  constexpr __mmask16 kAll = 0xffff;
  const uint8_t* bytes = static_cast<const uint8_t*>(row);
  __m512 lanes[4] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps()};
  uint32_t column = 0;
  for (; column + 64 <= dim; column += 64) {
    for (uint32_t r = 0; r < 4; ++r)
      lanes[r] = term<kDot>(lanes[r], load16<kElement>(bytes + (column + 16 * r) * kBytes, kAll),
                            _mm512_loadu_ps(query + column + 16 * r));
  }
  for (uint32_t r = 0; column < dim; ++r, column += 16) {
    const uint32_t left = dim - column;
    const __mmask16 columns = left >= 16 ? kAll : static_cast<__mmask16>((1u << left) - 1);
    lanes[r] = term<kDot>(lanes[r], load16<kElement>(bytes + column * kBytes, columns),
                          _mm512_maskz_loadu_ps(columns, query + column));
  }
  return fold(lanes);
}

template <class Integer, bool kDot>
int32_t integer_distance(const Integer* query, const void* row, uint32_t dim) {
  constexpr bool kSigned = Integer(-1) < Integer(0);
  const Integer* values = static_cast<const Integer*>(row);
  __m512i sums = _mm512_setzero_si512();
  for (uint32_t i = 0; i < dim; i += 32) {
    const uint32_t left = dim - i;
    const __mmask32 columns = left >= 32 ? ~__mmask32{0} : (__mmask32{1} << left) - 1;
    const __m256i x_bytes = _mm256_maskz_loadu_epi8(columns, values + i);
    const __m256i q_bytes = _mm256_maskz_loadu_epi8(columns, query + i);
    const __m512i x = kSigned ? _mm512_cvtepi8_epi16(x_bytes) : _mm512_cvtepu8_epi16(x_bytes);
    const __m512i q = kSigned ? _mm512_cvtepi8_epi16(q_bytes) : _mm512_cvtepu8_epi16(q_bytes);
    const __m512i difference = _mm512_sub_epi16(x, q);
    sums = _mm512_add_epi32(sums, kDot ? _mm512_madd_epi16(x, q) : _mm512_madd_epi16(difference, difference));
  }
  return _mm512_reduce_add_epi32(sums);
}

}  // namespace
}  // namespace gannet
