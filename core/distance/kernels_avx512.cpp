// The distance loops for AVX-512 without VNNI: codes as in the AVX2 level, twice as wide.

#if defined(__x86_64__)

#include <cstring>

#include "distance/row_loops_avx512.h"
#include "distance/bounds.h"
#include "distance/column_pairs.h"
#include "distance/detours.h"
#include "distance/float_tile.h"
#include "distance/near_list.h"
#include "distance/nearest_list.h"
#include "distance/residuals.h"
#include "distance/tile_minima.h"

namespace gannet {
namespace {

uint32_t code_distance(const uint8_t* a, const uint8_t* b, size_t stride, __m512i flip) {
  __m512i sums = _mm512_setzero_si512();
  const __m512i zero = _mm512_setzero_si512();
  for (size_t i = 0; i < stride; i += 64) {
    const __m512i x = _mm512_loadu_si512(a + i);
    const __m512i y = _mm512_xor_si512(flip, _mm512_loadu_si512(b + i));
    const __m512i gap = _mm512_sub_epi8(_mm512_max_epu8(x, y), _mm512_min_epu8(x, y));
    const __m512i low = _mm512_unpacklo_epi8(gap, zero);
    const __m512i high = _mm512_unpackhi_epi8(gap, zero);
    sums = _mm512_add_epi32(sums, _mm512_madd_epi16(low, low));
    sums = _mm512_add_epi32(sums, _mm512_madd_epi16(high, high));
  }
  return static_cast<uint32_t>(_mm512_reduce_add_epi32(sums));
}

void code_gather(const uint8_t* query, const uint8_t* codes, size_t stride, uint8_t flip, const uint32_t* ids,
                 uint32_t count, uint32_t* out) {
  const __m512i flips = _mm512_set1_epi8(static_cast<char>(flip));
  for (uint32_t i = 0; i < count; ++i) out[i] = code_distance(query, codes + ids[i] * stride, stride, flips);
}

/// Left rows of a tile: a sum each, and two registers for the operands.
constexpr uint32_t kTileRows = 8;

/// `kRows` left rows against all groups.
template <uint32_t kRows>
void tile_rows(const uint8_t* left, const uint8_t* packed, uint32_t groups, size_t stride, size_t columns,
               uint32_t* out, size_t out_stride) {
  const uint8_t* norms = packed + groups * kPackRows * stride;
  uint32_t own[kRows];
  for (uint32_t r = 0; r < kRows; ++r) own[r] = squared_norm(left + r * stride, stride);
  for (uint32_t group = 0; group < groups; ++group) {
    const uint8_t* rows = packed + group * (kPackRows * stride);
    __m512i cross[kRows];
    for (__m512i& sum : cross) sum = _mm512_setzero_si512();
    for (size_t column = 0; column < columns; column += 2) {
      const __m512i right = _mm512_cvtepu8_epi16(
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows + column * kPackRows)));
      for (uint32_t r = 0; r < kRows; ++r) {
        int16_t two;
        std::memcpy(&two, left + r * stride + column, 2);
        const __m512i both = _mm512_cvtepu8_epi16(_mm256_set1_epi16(two));
        cross[r] = _mm512_add_epi32(cross[r], _mm512_madd_epi16(right, both));
      }
    }
    const __m512i theirs = _mm512_loadu_si512(norms + group * kPackRows * 4);
    for (uint32_t r = 0; r < kRows; ++r) {
      const __m512i ends = _mm512_add_epi32(theirs, _mm512_set1_epi32(static_cast<int>(own[r])));
      _mm512_storeu_si512(out + r * out_stride + group * kPackRows,
                          _mm512_sub_epi32(ends, _mm512_slli_epi32(cross[r], 1)));
    }
  }
}

}  // namespace
}  // namespace gannet

#include "distance/kernel_table.h"

namespace gannet {

constexpr Kernels kAvx512Kernels = table_of_level("avx512", code_tile<kTileRows>);

}  // namespace gannet

#endif
