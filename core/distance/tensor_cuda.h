// Products on tensor cores: 16 x 8 sums in one instruction of a warp, of 32 columns of bytes or of 8 of floats.
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

/// The same of 8 columns of floats of 10 bits behind the point (TF32), which round_to_tf32 makes. With g and t as
/// above a lane gives left rows g (0, 2) and g + 8 (1, 3) and right row g, of two columns. Sums are floats of an
/// order and rounding that nothing promises.
__device__ inline void multiply_tf32(float (&sums)[4], const float (&left)[4], const float (&right)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(__float_as_uint(left[0])), "r"(__float_as_uint(left[1])), "r"(__float_as_uint(left[2])),
        "r"(__float_as_uint(left[3])), "r"(__float_as_uint(right[0])), "r"(__float_as_uint(right[1])));
}

/// A float of 10 bits behind the point that is within 2^-11 of `value`, as a share of it. Beyond the largest it is
/// infinite.
__device__ inline float round_to_tf32(float value) {
  return __uint_as_float((__float_as_uint(value) + 0x1000) & 0xffffe000);
}

}  // namespace gannet::cuda
