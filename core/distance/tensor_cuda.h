// Products of bytes on tensor cores: 16 x 8 sums of 32 columns in one instruction of a warp.
#pragma once

#include <cstdint>

namespace gannet::cuda {

inline constexpr uint32_t kTileColumns = 128;  // bytes of a row that a tile in shared memory holds at once

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

}  // namespace gannet::cuda
