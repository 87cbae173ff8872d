// Sums of 32-bit lanes, for the loops over bytes of AVX2.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace gannet {
namespace {  // one copy for each file, compiled with that file's instruction set

inline __m128i halved(__m256i lanes) {
  return _mm_add_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
}

inline int32_t sum32(__m256i lanes) {
  __m128i four = halved(lanes);
  four = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
  return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 1)));
}

/// Those of four registers: 11 instructions where four single ones take 28.
inline __m128i four_sums(__m256i a, __m256i b, __m256i c, __m256i d) {
  const __m256i ab = _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
  const __m256i cd = _mm256_add_epi32(_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
  return halved(_mm256_add_epi32(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd)));
}

}  // namespace
}  // namespace gannet
