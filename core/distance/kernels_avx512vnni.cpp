// The distance loops for AVX-512 with VNNI, whose vpdpbusd multiplies 64 unsigned bytes by 64 signed
// ones and adds them to 16 sums in one instruction.
//
// Codes are unsigned, so a signed side is made by subtracting 128 and taken back by sums. With
// u = x - 128 for a code x:   x.x = dp(x, u) + 128 S,   x.q = dp(x, q - 128) + 128 S,   S = dp(x, 1),
// hence |x - q|^2 = |q|^2 + dp(x, u) - 2 dp(x, q - 128) - 128 S: three instructions for 64 columns,
// where widening to 16 bits takes two each of convert, subtract and vpdpwssd. Everything is taken
// modulo 2^32; the distance itself fits (255^2 * 32,768 < 2^31).
//
// Tiles avoid folding: the right block lies in groups of 16 rows, 4 columns of each row side by
// side, so that one instruction adds 4 columns of 16 rows against 4 broadcast columns of one left
// row. At 128 columns that is 2 instructions a pair instead of 6 and a fold of 8.

#if defined(__x86_64__)

#include <cstring>

#include "distance/row_loops_avx512.h"
#include "distance/bounds.h"
#include "distance/detours.h"
#include "distance/float_tile.h"
#include "distance/near_list.h"
#include "distance/nearest_list.h"
#include "distance/residuals.h"
#include "distance/tile_minima.h"

namespace gannet {
namespace {

/// A function and no constant: a static of this type would run AVX-512 when the library is loaded.
__m512i half() { return _mm512_set1_epi8(static_cast<char>(0x80)); }

__m512i load64(const uint8_t* at) { return _mm512_loadu_si512(at); }

/// The part of |x - q|^2 that depends on x, in 16 lanes.
struct CodeSums {
  __m512i self = _mm512_setzero_si512();
  __m512i cross = _mm512_setzero_si512();
  __m512i total = _mm512_setzero_si512();

  void add(__m512i x, __m512i query_minus_128) {
    self = _mm512_dpbusd_epi32(self, x, _mm512_xor_si512(x, half()));
    cross = _mm512_dpbusd_epi32(cross, x, query_minus_128);
    total = _mm512_dpbusd_epi32(total, x, _mm512_set1_epi8(1));
  }
  __m512i lanes() const {
    return _mm512_sub_epi32(_mm512_sub_epi32(self, _mm512_slli_epi32(cross, 1)), _mm512_slli_epi32(total, 7));
  }
};

uint32_t squared_norm(const uint8_t* x, size_t stride, uint32_t* total) {
  CodeSums sums;
  for (size_t i = 0; i < stride; i += 64) sums.add(load64(x + i), _mm512_setzero_si512());
  *total = static_cast<uint32_t>(_mm512_reduce_add_epi32(sums.total));
  return static_cast<uint32_t>(_mm512_reduce_add_epi32(sums.self)) + 128 * *total;
}

/// Sums of four vectors of 16 lanes, one in each of four results.
__m128i fold4(__m512i a, __m512i b, __m512i c, __m512i d) {
  const auto quarter = [](__m512i lanes) {
    const __m256i eight =
        _mm256_add_epi32(_mm512_castsi512_si256(lanes), _mm512_extracti64x4_epi64(lanes, 1));
    return _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  };
  return _mm_hadd_epi32(_mm_hadd_epi32(quarter(a), quarter(b)), _mm_hadd_epi32(quarter(c), quarter(d)));
}

void code_gather(const uint8_t* query, const uint8_t* codes, size_t stride, uint8_t flip, const uint32_t* ids,
                 uint32_t count, uint32_t* out) {
  const __m512i flips = _mm512_set1_epi8(static_cast<char>(flip));
  uint32_t query_total;
  const uint32_t query_norm = squared_norm(query, stride, &query_total);
  uint32_t i = 0;
  for (; i + 4 <= count; i += 4) {
    const uint8_t* row[4];
    for (uint32_t r = 0; r < 4; ++r) row[r] = codes + ids[i + r] * stride;
    CodeSums sums[4];
    for (size_t at = 0; at < stride; at += 64) {
      const __m512i q = _mm512_xor_si512(load64(query + at), half());
      for (uint32_t r = 0; r < 4; ++r) sums[r].add(_mm512_xor_si512(load64(row[r] + at), flips), q);
    }
    const __m128i folded = fold4(sums[0].lanes(), sums[1].lanes(), sums[2].lanes(), sums[3].lanes());
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i),
                     _mm_add_epi32(folded, _mm_set1_epi32(static_cast<int>(query_norm))));
  }
  for (; i < count; ++i) {
    const uint8_t* row = codes + ids[i] * stride;
    CodeSums sums;
    for (size_t at = 0; at < stride; at += 64)
      sums.add(_mm512_xor_si512(load64(row + at), flips), _mm512_xor_si512(load64(query + at), half()));
    out[i] = query_norm + static_cast<uint32_t>(_mm512_reduce_add_epi32(sums.lanes()));
  }
}

// A packed block: for each group of 16 rows, [stride / 4][16 rows][4 columns] of x - 128; after all
// groups, one 32-bit |x|^2 a row.

void code_pack(const uint8_t* block, size_t stride, uint32_t count, uint8_t* packed) {
  const uint32_t groups = (count + kPackRows - 1) / kPackRows;
  uint32_t* norms = reinterpret_cast<uint32_t*>(packed + groups * kPackRows * stride);
  std::memset(packed, 0, packed_bytes(count, stride));
  const __m512i quads =
      _mm512_setr_epi32(0, 16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240);
  for (uint32_t row = 0; row < count; ++row) {
    uint32_t total;
    norms[row] = squared_norm(block + row * stride, stride, &total);
    uint8_t* group = packed + row / kPackRows * (kPackRows * stride) + row % kPackRows * 4;
    for (size_t column = 0; column < stride; column += 64) {
      const __m512i x = _mm512_xor_si512(load64(block + row * stride + column), half());
      _mm512_i32scatter_epi32(group + column * kPackRows, quads, x, 4);
    }
  }
}

/// `kRows` left rows against `kGroups` groups of 16; `fixed` holds each left row's term of |x - q|^2.
template <uint32_t kRows, uint32_t kGroups>
void tile_groups(const uint8_t* left, const uint32_t* fixed, const uint8_t* groups, const uint8_t* norms,
                 size_t stride, size_t columns, uint32_t* out, size_t out_stride) {
  const size_t group_bytes = kPackRows * stride;
  __m512i cross[kRows][kGroups];
  for (auto& row : cross) {
    for (__m512i& sum : row) sum = _mm512_setzero_si512();
  }
  for (size_t column = 0; column < columns; column += 4) {
    __m512i right[kGroups];
    for (uint32_t g = 0; g < kGroups; ++g) right[g] = load64(groups + g * group_bytes + column * kPackRows);
    for (uint32_t r = 0; r < kRows; ++r) {
      int32_t four;
      std::memcpy(&four, left + r * stride + column, 4);
      for (uint32_t g = 0; g < kGroups; ++g)
        cross[r][g] = _mm512_dpbusd_epi32(cross[r][g], _mm512_set1_epi32(four), right[g]);
    }
  }
  for (uint32_t r = 0; r < kRows; ++r) {
    const __m512i own = _mm512_set1_epi32(static_cast<int>(fixed[r]));
    for (uint32_t g = 0; g < kGroups; ++g) {
      const __m512i ends = _mm512_add_epi32(_mm512_loadu_si512(norms + g * kPackRows * 4), own);
      _mm512_storeu_si512(out + r * out_stride + g * kPackRows,
                          _mm512_sub_epi32(ends, _mm512_slli_epi32(cross[r][g], 1)));
    }
  }
}

// A tile's sums stay in registers. An instruction waits five clocks for the sum that it adds to, and two start in each,
// so that ten sums are the least; a right vector is loaded for each group and a left one for each row. On an Intel Xeon
// 6 rows by 3 groups multiply 280 to 296 columns a nanosecond, 8 by 2 264 to 279, 4 by 4 266 to 287, 8 by 1 229 to 245.
constexpr uint32_t kTileRows = 6;
constexpr uint32_t kTileGroups = 3;
// Rows are shared out evenly, 4 and 3 instead of 6 and 1: a row alone waits for each sum before the next.

/// `kRows` left rows against all groups. Their own sums are made once for all of these: made for each
/// group they took a third of the time at 128 columns.
template <uint32_t kRows>
void tile_rows(const uint8_t* left, const uint8_t* packed, uint32_t groups, size_t stride, size_t columns,
               uint32_t* out, size_t out_stride) {
  const uint8_t* norms = packed + groups * kPackRows * stride;
  uint32_t fixed[kRows];
  for (uint32_t r = 0; r < kRows; ++r) {
    uint32_t total;
    const uint32_t norm = squared_norm(left + r * stride, stride, &total);
    fixed[r] = norm - 256 * total;
  }
  // A query alone has twelve groups at once.
  constexpr uint32_t kGroups = kRows == 1 ? 12 : kRows == 2 ? 6 : kTileGroups;
  uint32_t group = 0;
  const auto take = [&](auto tile, uint32_t taken) {
    tile(left, fixed, packed + group * (kPackRows * stride), norms + group * kPackRows * 4, stride, columns,
         out + group * kPackRows, out_stride);
    group += taken;
  };
  while (group + kGroups <= groups) take(tile_groups<kRows, kGroups>, kGroups);
  while (group + kTileGroups <= groups) take(tile_groups<kRows, kTileGroups>, kTileGroups);
  while (group < groups) take(tile_groups<kRows, 1>, 1);
}

/// The same of `count` rows, kRows at most.
template <uint32_t kRows>
void tile_few(uint32_t count, const uint8_t* left, const uint8_t* packed, uint32_t groups, size_t stride,
              size_t columns, uint32_t* out, size_t out_stride) {
  if (count == kRows) return tile_rows<kRows>(left, packed, groups, stride, columns, out, out_stride);
  if constexpr (kRows > 1) tile_few<kRows - 1>(count, left, packed, groups, stride, columns, out, out_stride);
}

void code_tile(const uint8_t* left, uint32_t left_count, const uint8_t* packed, uint32_t right_count,
               size_t stride, size_t columns, uint32_t* out, size_t out_stride) {
  const uint32_t groups = (right_count + kPackRows - 1) / kPackRows;
  uint32_t row = 0;
  for (uint32_t tiles = (left_count + kTileRows - 1) / kTileRows; tiles > 0; --tiles) {
    const uint32_t rows = (left_count - row) / tiles;
    tile_few<kTileRows>(rows, left + row * stride, packed, groups, stride, columns, out + row * out_stride,
                        out_stride);
    row += rows;
  }
}

}  // namespace
}  // namespace gannet

#include "distance/kernel_table.h"

namespace gannet {

constexpr Kernels kAvx512VnniKernels = table_of_level("avx512vnni", code_tile);

}  // namespace gannet

#endif
