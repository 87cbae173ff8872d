// Tiles of codes by vpmaddwd, as AVX2 and AVX-512 without VNNI compare them: how a block is packed, and
// in which steps a tile is traversed. The products in registers differ and are each level's own
// tile_rows.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "distance/kernels.h"

namespace gannet {
namespace {  // one copy for each file, compiled with that file's instruction set

// A packed block: for each group of 16 rows, [stride / 2][16 rows][2 columns] of bytes; after all groups
// one 32-bit |x|^2 a row. With bytes widened to 16 bits, vpmaddwd multiplies 2 columns of 8 or 16 rows by 2
// broadcast columns of one left row, and |x - q|^2 = |x|^2 + |q|^2 - 2 x.q, modulo 2^32. That is 4
// instructions for 32 products where the differences of code_distance take 9 and a fold a pair.

uint32_t squared_norm(const uint8_t* x, size_t stride) {
  uint32_t sum = 0;
  for (size_t i = 0; i < stride; ++i) sum += uint32_t{x[i]} * x[i];
  return sum;
}

/// Transposes 8 rows of numbers of 16 bits, within each half of the registers.
void transpose_halves(const __m256i* rows, __m256i* columns) {
  __m256i pairs[8], fours[8];
  for (uint32_t i = 0; i < 4; ++i) {
    pairs[2 * i] = _mm256_unpacklo_epi16(rows[2 * i], rows[2 * i + 1]);
    pairs[2 * i + 1] = _mm256_unpackhi_epi16(rows[2 * i], rows[2 * i + 1]);
  }
  for (uint32_t i = 0; i < 8; i += 4) {
    fours[i] = _mm256_unpacklo_epi32(pairs[i], pairs[i + 2]);
    fours[i + 1] = _mm256_unpackhi_epi32(pairs[i], pairs[i + 2]);
    fours[i + 2] = _mm256_unpacklo_epi32(pairs[i + 1], pairs[i + 3]);
    fours[i + 3] = _mm256_unpackhi_epi32(pairs[i + 1], pairs[i + 3]);
  }
  for (uint32_t i = 0; i < 4; ++i) {
    columns[2 * i] = _mm256_unpacklo_epi64(fours[i], fours[i + 4]);
    columns[2 * i + 1] = _mm256_unpackhi_epi64(fours[i], fours[i + 4]);
  }
}

/// Packs 32 columns of up to 16 rows, and adds their squares: two registers of eight sums.
void pack_columns(const uint8_t* block, size_t stride, uint32_t count, uint8_t* to, __m256i* squares) {
  __m256i rows[kPackRows], columns[kPackRows];
  for (uint32_t row = 0; row < kPackRows; ++row)
    rows[row] = row < count ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + row * stride))
                            : _mm256_setzero_si256();
  transpose_halves(rows, columns);
  transpose_halves(rows + 8, columns + 8);
  for (uint32_t pair = 0; pair < kPackRows; ++pair) {
    const __m256i upper = columns[pair % 8];
    const __m256i lower = columns[pair % 8 + 8];
    const __m256i sixteen = pair < 8 ? _mm256_permute2x128_si256(upper, lower, 0x20)
                                     : _mm256_permute2x128_si256(upper, lower, 0x31);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + pair * 2 * kPackRows), sixteen);
    const __m256i first = _mm256_cvtepu8_epi16(_mm256_castsi256_si128(sixteen));
    const __m256i last = _mm256_cvtepu8_epi16(_mm256_extracti128_si256(sixteen, 1));
    squares[0] = _mm256_add_epi32(squares[0], _mm256_madd_epi16(first, first));
    squares[1] = _mm256_add_epi32(squares[1], _mm256_madd_epi16(last, last));
  }
}

void code_pack(const uint8_t* block, size_t stride, uint32_t count, uint8_t* packed) {
  const uint32_t groups = (count + kPackRows - 1) / kPackRows;
  uint8_t* norms = packed + groups * kPackRows * stride;
  for (uint32_t first = 0; first < count; first += kPackRows) {
    const uint32_t rows = std::min(kPackRows, count - first);
    __m256i squares[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    for (size_t column = 0; column < stride; column += 32)
      pack_columns(block + first * stride + column, stride, rows,
                   packed + first * stride + column * kPackRows, squares);
    std::memcpy(norms + first * sizeof(uint32_t), squares, sizeof squares);
  }
}

/// `kRows` left rows against all groups.
template <uint32_t kRows>
void tile_rows(const uint8_t* left, const uint8_t* packed, uint32_t groups, size_t stride, size_t columns,
               uint32_t* out, size_t out_stride);

/// As Kernels::code_tile, kTileRows left rows at a time.
template <uint32_t kTileRows>
void code_tile(const uint8_t* left, uint32_t left_count, const uint8_t* packed, uint32_t right_count,
               size_t stride, size_t columns, uint32_t* out, size_t out_stride) {
  const uint32_t groups = (right_count + kPackRows - 1) / kPackRows;
  uint32_t i = 0;
  for (; i + kTileRows <= left_count; i += kTileRows)
    tile_rows<kTileRows>(left + i * stride, packed, groups, stride, columns, out + i * out_stride,
                         out_stride);
  for (; i + 2 <= left_count; i += 2)
    tile_rows<2>(left + i * stride, packed, groups, stride, columns, out + i * out_stride, out_stride);
  if (i < left_count)
    tile_rows<1>(left + i * stride, packed, groups, stride, columns, out + i * out_stride, out_stride);
}

}  // namespace
}  // namespace gannet
