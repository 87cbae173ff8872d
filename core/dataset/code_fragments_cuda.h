// Byte codes in a warp's registers, as operands of tensor cores, without shared memory.
//
// A product of two rows does not ask in which order their columns come. So a lane may take 16
// consecutive bytes of a row and use their words where the instruction expects others, if both
// operands are taken in the same way: 32 rows arrive in 8 loads of 16 bytes a lane.
#pragma once

#include <cstdint>

#include "dataset/codes_cuda.h"
#include "distance/tensor_cuda.h"

namespace gannet::cuda {

/// A word of a piece of 16 bytes. `number` is a constant where loops are unrolled.
__device__ inline uint32_t word_of(const uint4& piece, uint32_t number) {
  return number == 0 ? piece.x : number == 1 ? piece.y : number == 2 ? piece.z : piece.w;
}

/// 32 rows, 128 columns of each: with g = lane / 4 and t = lane % 4 a lane has of row 8 i + g the
/// pieces t and t + 4.
struct CodeFragment {
  uint4 pieces[4][2];

  /// Zeros where there is nothing; row_of(i) is the number of row i, or UINT32_MAX.
  template <class RowOf>
  __device__ void fetch(const CodesView& codes, uint32_t column, uint32_t lane, const RowOf& row_of) {
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t row = row_of(8 * i + lane / 4);
#pragma unroll
      for (uint32_t half = 0; half < 2; ++half) {
        const uint32_t byte = column + 64 * half + 16 * (lane % 4);
        pieces[i][half] = {0, 0, 0, 0};
        if (row != UINT32_MAX && byte < codes.stride)
          pieces[i][half] = __ldg(reinterpret_cast<const uint4*>(codes.row(row) + byte));
      }
    }
  }

  /// sums += rows 16 strip ... 16 strip + 16 x 8 others, of which a lane has the pieces t and t + 4 of
  /// row g. multiply_bytes says which lane has which sum.
  __device__ void multiply(int32_t (&sums)[4], uint32_t strip, const uint4 (&others)[2]) const {
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      const uint4& upper = pieces[2 * strip][half];
      const uint4& lower = pieces[2 * strip + 1][half];
#pragma unroll
      for (uint32_t word = 0; word < 4; word += 2) {
        const uint32_t left[4] = {word_of(upper, word), word_of(lower, word), word_of(upper, word + 1),
                                  word_of(lower, word + 1)};
        const uint32_t right[2] = {word_of(others[half], word), word_of(others[half], word + 1)};
        multiply_bytes(sums, left, right);
      }
    }
  }
};

}  // namespace gannet::cuda
