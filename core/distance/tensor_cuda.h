// Products of bytes on tensor cores: 16 x 8 sums of 32 columns in one instruction of a warp.
//
// Rows stand in shared memory kTilePitch bytes apart, kTileColumns of them bytes of a row. The pitch
// is 36 words, so the 8 rows x 4 words that a warp reads for a fragment lie in 32 different banks
// (row g, word t: bank 4 g + t), and every row starts on a 16-byte boundary.
#pragma once

#include <cstdint>

namespace gannet::cuda {

inline constexpr uint32_t kTileColumns = 128;              // bytes of a row in shared memory at once
inline constexpr uint32_t kTilePitch = kTileColumns + 16;  // bytes

/// sums += left x right, exact: 16 left rows, 8 right rows, 32 columns. With g = lane / 4 and
/// t = lane % 4 a lane holds the sums of left rows g (0, 1) and g + 8 (2, 3) with right rows 2 t
/// (0, 2) and 2 t + 1 (1, 3). Sums are exact modulo 2^32.
template <bool kSigned = false>
__device__ inline void multiply_bytes(int32_t (&sums)[4], const uint32_t (&left)[4],
                                      const uint32_t (&right)[2]) {
  if constexpr (kSigned) {
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
  }
}

__device__ inline uint32_t word_at(const uint8_t* address) {
  return *reinterpret_cast<const uint32_t*>(address);
}

/// The left operand of `multiply_bytes` from 16 rows of a tile, at a column.
__device__ inline void read_left(uint32_t (&left)[4], const uint8_t* rows, uint32_t column,
                                 uint32_t lane) {
  const uint8_t* place = rows + lane / 4 * kTilePitch + column + lane % 4 * 4;
  left[0] = word_at(place);
  left[1] = word_at(place + 8 * kTilePitch);
  left[2] = word_at(place + 16);
  left[3] = word_at(place + 8 * kTilePitch + 16);
}

/// Its right operand from 8 rows.
__device__ inline void read_right(uint32_t (&right)[2], const uint8_t* rows, uint32_t column,
                                  uint32_t lane) {
  const uint8_t* place = rows + lane / 4 * kTilePitch + column + lane % 4 * 4;
  right[0] = word_at(place);
  right[1] = word_at(place + 16);
}

}  // namespace gannet::cuda
