// Products on tensor cores: 16 x 8 sums in one instruction of a warp, of 32 columns of bytes or of 16 of halves.
#pragma once

#include <cstdint>

namespace gannet::cuda {

inline constexpr uint32_t kTileColumns = 128;  // bytes of a row that a tile in shared memory holds at once

__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

/// 16 bytes on their way to shared memory; zeros unless `there`.
__device__ inline void copy_piece(uint4* to, const void* from, bool there = true) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(there ? 16 : 0)
               : "memory");
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Until all but the latest `kLeft` groups of this thread are there.
template <uint32_t kLeft>
__device__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

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

/// The same of 16 columns of f16, two in a word. Sums are floats of an order and rounding that nothing promises.
__device__ inline void multiply_halves(float (&sums)[4], const uint32_t (&left)[4],
                                       const uint32_t (&right)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
}

/// Four matrices of 8 rows of 16 bytes in shared memory; lane i says where row i % 8 of matrix i / 8 is.
__device__ inline void load_matrices(uint32_t (&words)[4], const uint4* address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(shared_address(address))
               : "memory");
}

}  // namespace gannet::cuda
