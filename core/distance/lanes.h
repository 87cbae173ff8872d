// Sixteen lanes as the vectors that a level has: the compiler's vectors, for loops that read alike on all of them.
#pragma once

#include <cstdint>
#include <cstring>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "distance/kernels.h"

namespace gannet {
namespace {  // one copy for each file, compiled with that file's instruction set

#if defined(__AVX512F__)
constexpr uint32_t kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr uint32_t kVectorBytes = 32;
#else
constexpr uint32_t kVectorBytes = 16;
#endif
using FloatLanes = float __attribute__((vector_size(kVectorBytes)));
using IntLanes = int32_t __attribute__((vector_size(kVectorBytes)));
using WordLanes = uint32_t __attribute__((vector_size(kVectorBytes)));
using ByteLanes = uint8_t __attribute__((vector_size(kVectorBytes / 4)));

constexpr uint32_t kVectorLanes = kVectorBytes / sizeof(float);
constexpr uint32_t kLaneVectors = kPackRows / kVectorLanes;  // of sixteen lanes

/// A vector from memory that need not be aligned, and back.
template <class Vector>
inline void load_lanes(Vector& lanes, const void* from) {
  std::memcpy(&lanes, from, sizeof lanes);
}
template <class Vector>
inline void store_lanes(const Vector& lanes, void* to) {
  std::memcpy(to, &lanes, sizeof lanes);
}

/// Stores numbers from 0 to 255 as bytes. By AVX2 the compiler takes the lanes of a conversion apart: 160 ns for 128
/// columns, 20 so.
inline void store_bytes(const IntLanes& lanes, uint8_t* to) {
#if defined(__AVX2__) && !defined(__AVX512F__)
  const __m256i numbers = (__m256i)lanes;
  const __m128i words =
      _mm_packus_epi32(_mm256_castsi256_si128(numbers), _mm256_extracti128_si256(numbers, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packus_epi16(words, words));
#else
  store_lanes(__builtin_convertvector(lanes, ByteLanes), to);
#endif
}

}  // namespace
}  // namespace gannet
