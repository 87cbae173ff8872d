// The common part of both AVX-512 levels of products.
#pragma once

// gcc 12 takes the deliberately undefined operands inside its own intrinsics for mistakes.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include <cstdint>

namespace gannet {
namespace {  // one copy for each file, compiled with that file's instruction set

/// The sum of 16 lanes modulo 2^32. _mm512_reduce_add_epi32 adds as signed numbers, which may not wrap round.
inline uint32_t sum32(__m512i lanes) {
  const __m256i eight = _mm256_add_epi32(_mm512_castsi512_si256(lanes), _mm512_extracti64x4_epi64(lanes, 1));
  __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  four = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 1))));
}

}  // namespace
}  // namespace gannet
