// The distance loops for AVX2 and F16C: 64 float lanes are eight registers of eight; bytes are
// widened to 16 bits, whose products vpmaddwd adds in pairs (vpmaddubsw would saturate).

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "distance/bounds.h"
#include "distance/column_pairs.h"
#include "distance/detours.h"
#include "distance/float_tile.h"
#include "distance/element.h"
#include "distance/row_loops.h"
#include "distance/near_list.h"
#include "distance/nearest_list.h"
#include "distance/residuals.h"
#include "distance/sums_avx2.h"
#include "distance/tile_minima.h"

namespace gannet {
namespace {

__m256 load8_f32(const uint8_t* at) { return _mm256_loadu_ps(reinterpret_cast<const float*>(at)); }
__m256 load8_f16(const uint8_t* at) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
}
__m256 load8_bf16(const uint8_t* at) {
  const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

template <int32_t kElement>
__m256 load8(const uint8_t* at) {
  if constexpr (kElement == ANN_F32) return load8_f32(at);
  if constexpr (kElement == ANN_F16) return load8_f16(at);
  return load8_bf16(at);
}

template <int32_t kElement>
void widen(const void* row, uint32_t dim, float* out) {
  const uint8_t* bytes = static_cast<const uint8_t*>(row);
  uint32_t column = 0;
  for (; column + 8 <= dim; column += 8)
    _mm256_storeu_ps(out + column, load8<kElement>(bytes + size_t{column} * element_bytes(kElement)));
  for (; column < dim; ++column) out[column] = element_to_float(row, kElement, column);
}

template <bool kDot>
__m256 term(__m256 sum, __m256 x, __m256 q) {
  if constexpr (kDot) return _mm256_add_ps(sum, _mm256_mul_ps(x, q));
  const __m256 difference = _mm256_sub_ps(x, q);
  return _mm256_add_ps(sum, _mm256_mul_ps(difference, difference));
}

/// The 64 lanes of a sum: 8 r .. 8 r + 7 are register r. Loops over an array of them stay in memory, which is cleared
/// for each row: a row of 64 floats took 24 ns, and takes 10.
struct Lanes {
  __m256 r0, r1, r2, r3, r4, r5, r6, r7;
};

float fold(const Lanes& lanes) {
  const __m256 low = _mm256_add_ps(_mm256_add_ps(lanes.r0, lanes.r2), _mm256_add_ps(lanes.r4, lanes.r6));
  const __m256 high = _mm256_add_ps(_mm256_add_ps(lanes.r1, lanes.r3), _mm256_add_ps(lanes.r5, lanes.r7));
  const __m256 eight = _mm256_add_ps(low, high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

/// The last columns of a row, fewer than 8, with zeros behind them.
template <int32_t kElement>
__m256 load_end(const uint8_t* at, uint32_t count) {
  alignas(32) static constexpr int32_t kMasks[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
  if constexpr (kElement == ANN_F32) {
    const __m256i mask = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kMasks + 8 - count));
    return _mm256_maskload_ps(reinterpret_cast<const float*>(at), mask);
  }
  // By fours, twos and ones, from the last: a copy in memory that is read whole waits for its parts to be written.
  __m128i both = _mm_setzero_si128();
  uint16_t one;
  uint32_t two;
  if ((count & 1) != 0) {
    std::memcpy(&one, at + 2 * (count - 1), sizeof one);
    both = _mm_cvtsi32_si128(one);
  }
  if ((count & 2) != 0) {
    std::memcpy(&two, at + 2 * (count & 4), sizeof two);
    both = _mm_or_si128(_mm_slli_si128(both, 4), _mm_cvtsi32_si128(static_cast<int32_t>(two)));
  }
  if ((count & 4) != 0)
    both = _mm_or_si128(_mm_slli_si128(both, 8), _mm_loadl_epi64(reinterpret_cast<const __m128i*>(at)));
  if constexpr (kElement == ANN_F16) return _mm256_cvtph_ps(both);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(both), 16));
}

template <int32_t kElement, bool kDot>
float float_distance(const float* query, const void* row, uint32_t dim) {
  constexpr size_t kBytes = element_bytes(kElement);
  const uint8_t* bytes = static_cast<const uint8_t*>(row);
  const __m256 zero = _mm256_setzero_ps();
  Lanes sums = {zero, zero, zero, zero, zero, zero, zero, zero};
  uint32_t column = 0;
  const auto add = [&](__m256& sum, uint32_t at) {
    sum = term<kDot>(sum, load8<kElement>(bytes + at * kBytes), _mm256_loadu_ps(query + at));
  };
  for (; column + 64 <= dim; column += 64) {
    add(sums.r0, column);
    add(sums.r1, column + 8);
    add(sums.r2, column + 16);
    add(sums.r3, column + 24);
    add(sums.r4, column + 32);
    add(sums.r5, column + 40);
    add(sums.r6, column + 48);
    add(sums.r7, column + 56);
  }
  if (column == dim) return fold(sums);
  // Lanes behind the last column would add zero, and stay what they are.
  const auto add_some = [&](__m256& sum) {
    const uint32_t left = dim - column;
    if (left >= 8) {
      add(sum, column);
      column += 8;
    } else if (left > 0) {
      sum = term<kDot>(sum, load_end<kElement>(bytes + column * kBytes, left),
                       load_end<ANN_F32>(reinterpret_cast<const uint8_t*>(query + column), left));
      column = dim;
    }
    return column < dim;
  };
  if (add_some(sums.r0) && add_some(sums.r1) && add_some(sums.r2) && add_some(sums.r3) && add_some(sums.r4) &&
      add_some(sums.r5) && add_some(sums.r6))
    add_some(sums.r7);
  return fold(sums);
}

template <bool kSigned>
__m256i widen16(const void* at) {
  const __m128i bytes = _mm_loadu_si128(static_cast<const __m128i*>(at));
  return kSigned ? _mm256_cvtepi8_epi16(bytes) : _mm256_cvtepu8_epi16(bytes);
}

template <class Integer, bool kDot>
int32_t integer_distance(const Integer* query, const void* row, uint32_t dim) {
  constexpr bool kSigned = Integer(-1) < Integer(0);
  const Integer* values = static_cast<const Integer*>(row);
  __m256i sums = _mm256_setzero_si256();
  uint32_t i = 0;
  for (; i + 16 <= dim; i += 16) {
    const __m256i x = widen16<kSigned>(values + i);
    const __m256i q = widen16<kSigned>(query + i);
    const __m256i difference = _mm256_sub_epi16(x, q);
    sums = _mm256_add_epi32(sums, kDot ? _mm256_madd_epi16(x, q) : _mm256_madd_epi16(difference, difference));
  }
  int32_t sum = sum32(sums);
  for (; i < dim; ++i) {
    const int32_t difference = values[i] - query[i];
    sum += kDot ? values[i] * query[i] : difference * difference;
  }
  return sum;
}

constexpr size_t kGatherColumns = 1024;  // of a query that are widened at once, 2 KB of the stack

/// Adds the squared differences of some columns of a query, as numbers of 16 bits, and of rows: four at a time share
/// what a sum of lanes costs. kSigned: rows' bytes are x - 128.
template <bool kSigned>
void add_distances(const int16_t* query, size_t columns, const uint8_t* codes, size_t stride,
                   const uint32_t* ids, uint32_t count, uint32_t* out) {
  const auto term = [&](const uint8_t* row, size_t column) {
    const __m256i q = _mm256_load_si256(reinterpret_cast<const __m256i*>(query + column));
    const __m256i difference = _mm256_sub_epi16(widen16<kSigned>(row + column), q);
    return _mm256_madd_epi16(difference, difference);
  };
  uint32_t i = 0;
  for (; i + 4 <= count; i += 4) {
    const uint8_t* const a = codes + ids[i] * stride;
    const uint8_t* const b = codes + ids[i + 1] * stride;
    const uint8_t* const c = codes + ids[i + 2] * stride;
    const uint8_t* const d = codes + ids[i + 3] * stride;
    __m256i of_a = _mm256_setzero_si256(), of_b = of_a, of_c = of_a, of_d = of_a;
    for (size_t column = 0; column < columns; column += 16) {
      of_a = _mm256_add_epi32(of_a, term(a, column));
      of_b = _mm256_add_epi32(of_b, term(b, column));
      of_c = _mm256_add_epi32(of_c, term(c, column));
      of_d = _mm256_add_epi32(of_d, term(d, column));
    }
    __m128i* const four = reinterpret_cast<__m128i*>(out + i);
    _mm_storeu_si128(four, _mm_add_epi32(_mm_loadu_si128(four), four_sums(of_a, of_b, of_c, of_d)));
  }
  for (; i < count; ++i) {
    const uint8_t* const row = codes + ids[i] * stride;
    __m256i sums = _mm256_setzero_si256();
    for (size_t column = 0; column < columns; column += 16) sums = _mm256_add_epi32(sums, term(row, column));
    out[i] += static_cast<uint32_t>(sum32(sums));
  }
}

void code_gather(const uint8_t* query, const uint8_t* codes, size_t stride, uint8_t flip, const uint32_t* ids,
                 uint32_t count, uint32_t* out) {
  alignas(32) int16_t wide[kGatherColumns];
  const __m256i middle = _mm256_set1_epi16(flip);  // 128 of rows that are signed, else 0
  std::fill_n(out, count, 0);
  for (size_t begin = 0; begin < stride; begin += kGatherColumns) {
    const size_t columns = std::min(kGatherColumns, stride - begin);
    for (size_t column = 0; column < columns; column += 16)
      _mm256_store_si256(reinterpret_cast<__m256i*>(wide + column),
                         _mm256_sub_epi16(widen16<false>(query + begin + column), middle));
    const auto add = flip != 0 ? add_distances<true> : add_distances<false>;
    add(wide, columns, codes + begin, stride, ids, count, out);
  }
}

constexpr uint32_t kTileRows = 4;      // left rows of a tile: two sums each, and registers for operands
constexpr size_t kTileColumns = 1024;  // of each that are widened at once, 8 KB of the stack

/// Adds the products of some columns of left rows, two to a number, with a group: -2 x.q to `out`.
template <uint32_t kRows>
void add_products(const uint32_t (*left)[kTileColumns / 2], size_t columns, const uint8_t* rows,
                  uint32_t* out, size_t out_stride) {
  __m256i cross[kRows][2];
  for (auto& sums : cross) sums[0] = sums[1] = _mm256_setzero_si256();
  for (size_t pair = 0; pair < columns / 2; ++pair) {
    const __m256i right0 = widen16<false>(rows + pair * 2 * kPackRows);
    const __m256i right1 = widen16<false>(rows + pair * 2 * kPackRows + 16);
    for (uint32_t r = 0; r < kRows; ++r) {
      const __m256i both = _mm256_set1_epi32(static_cast<int>(left[r][pair]));
      cross[r][0] = _mm256_add_epi32(cross[r][0], _mm256_madd_epi16(right0, both));
      cross[r][1] = _mm256_add_epi32(cross[r][1], _mm256_madd_epi16(right1, both));
    }
  }
  for (uint32_t r = 0; r < kRows; ++r) {
    for (uint32_t half = 0; half < 2; ++half) {
      __m256i* const sums = reinterpret_cast<__m256i*>(out + r * out_stride + half * 8);
      _mm256_storeu_si256(sums,
                          _mm256_sub_epi32(_mm256_loadu_si256(sums), _mm256_slli_epi32(cross[r][half], 1)));
    }
  }
}

/// `kRows` left rows against all groups. Their columns are widened to 16 bits once for all groups: a broadcast from
/// memory is no work for the units that multiply. One thread, AMD EPYC (2.7 GHz): 60 products a ns of 128 columns and
/// 62 of 832, 31 and 30 when each group widened them again; the units could do 89. Six left rows spill: 41.
template <uint32_t kRows>
void tile_rows(const uint8_t* left, const uint8_t* packed, uint32_t groups, size_t stride, size_t columns,
               uint32_t* out, size_t out_stride) {
  const uint8_t* norms = packed + groups * kPackRows * stride;
  for (uint32_t r = 0; r < kRows; ++r) {
    const __m256i own = _mm256_set1_epi32(static_cast<int>(squared_norm(left + r * stride, stride)));
    for (uint32_t first = 0; first < groups * kPackRows; first += 8) {
      const __m256i theirs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(norms + first * 4));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + r * out_stride + first),
                          _mm256_add_epi32(theirs, own));
    }
  }
  alignas(32) uint32_t wide[kRows][kTileColumns / 2];
  for (size_t begin = 0; begin < columns; begin += kTileColumns) {
    const size_t count = std::min(kTileColumns, columns - begin);
    for (uint32_t r = 0; r < kRows; ++r) {
      for (size_t column = 0; column < count; column += 16)
        _mm256_store_si256(reinterpret_cast<__m256i*>(wide[r] + column / 2),
                           widen16<false>(left + r * stride + begin + column));
    }
    for (uint32_t group = 0; group < groups; ++group)
      add_products<kRows>(wide, count, packed + (group * stride + begin) * kPackRows, out + group * kPackRows,
                          out_stride);
  }
}

}  // namespace
}  // namespace gannet

#include "distance/kernel_table.h"

namespace gannet {

constexpr Kernels kAvx2Kernels = table_of_level("avx2", code_tile<kTileRows>);

}  // namespace gannet

#endif
