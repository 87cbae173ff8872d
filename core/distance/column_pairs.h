// Tiles of codes by vpmaddwd, as AVX2 and AVX-512 without VNNI compare them: how a block is packed, and
// in which steps a tile is traversed. The products in registers differ and are each level's own
// tile_rows.
#pragma once

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

void code_pack(const uint8_t* block, size_t stride, uint32_t count, uint8_t* packed) {
  const uint32_t groups = (count + kPackRows - 1) / kPackRows;
  uint8_t* norms = packed + groups * kPackRows * stride;
  std::memset(packed, 0, packed_bytes(count, stride));
  for (uint32_t row = 0; row < count; ++row) {
    const uint8_t* from = block + row * stride;
    uint8_t* to = packed + row / kPackRows * (kPackRows * stride) + row % kPackRows * 2;
    for (size_t column = 0; column < stride; column += 2)
      std::memcpy(to + column * kPackRows, from + column, 2);
    const uint32_t norm = squared_norm(from, stride);
    std::memcpy(norms + row * sizeof norm, &norm, sizeof norm);
  }
}

/// `kRows` left rows against all groups.
template <uint32_t kRows>
void tile_rows(const uint8_t* left, const uint8_t* packed, uint32_t groups, size_t stride, uint32_t* out,
               size_t out_stride);

/// As Kernels::code_tile, kTileRows left rows at a time.
template <uint32_t kTileRows>
void code_tile(const uint8_t* left, uint32_t left_count, const uint8_t* packed, uint32_t right_count,
               size_t stride, uint32_t* out, size_t out_stride) {
  const uint32_t groups = (right_count + kPackRows - 1) / kPackRows;
  uint32_t i = 0;
  for (; i + kTileRows <= left_count; i += kTileRows)
    tile_rows<kTileRows>(left + i * stride, packed, groups, stride, out + i * out_stride, out_stride);
  for (; i + 2 <= left_count; i += 2)
    tile_rows<2>(left + i * stride, packed, groups, stride, out + i * out_stride, out_stride);
  if (i < left_count)
    tile_rows<1>(left + i * stride, packed, groups, stride, out + i * out_stride, out_stride);
}

}  // namespace
}  // namespace gannet
