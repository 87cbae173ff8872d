// Sums of floats on a CUDA device in the CPU's lanes and order, so that their bits are equal.
//
// The CPU sums column i in lane i mod 64, without fused multiply-add, and folds the lanes in a fixed
// order (distance/kernels.h). Here thread t of a warp is lanes t and t + 32 of 32 pairs of vectors at
// a time, 8 x 4. The fold turns these 32 x 64 sums round: at each level a thread gives away half of
// its pairs and gets its partner's half of the others, so that five levels end with one pair in each
// thread and cost 47 exchanges for 32 pairs. Order within a sum of two does not matter to its bits.
#pragma once

#include <cooperative_groups.h>

#include <cstdint>

namespace gannet::cuda {

using Warp = cooperative_groups::thread_block_tile<32>;

struct LaneSums {
  static constexpr uint32_t kLanes = 64;
  static constexpr uint32_t kLeft = 8;
  static constexpr uint32_t kRight = 4;
  static constexpr uint32_t kPairs = kLeft * kRight;  // pair t: left t / kRight, right t % kRight

  float low[kPairs] = {};   // lane t of each pair
  float high[kPairs] = {};  // lane t + 32

  template <bool kDot>
  static __device__ float product(float right, float left) {
    const float difference = __fsub_rn(right, left);
    return kDot ? __fmul_rn(right, left) : __fmul_rn(difference, difference);
  }

  /// Adds one column of all pairs, for lane t to `low` or for lane t + 32 to `high`.
  template <bool kDot>
  static __device__ void add(float* sums, const float* left, const float* right) {
#pragma unroll
    for (uint32_t l = 0; l < kLeft; ++l) {
#pragma unroll
      for (uint32_t r = 0; r < kRight; ++r) {
        float& sum = sums[l * kRight + r];
        sum = __fadd_rn(sum, product<kDot>(right[r], left[l]));
      }
    }
  }

  /// Folds 64 lanes into one: thread t gets the sum of pair t. The sums are used up.
  __device__ float fold(const Warp& warp) {
    exchange<16>(low, warp);   // l + l+16
    exchange<16>(high, warp);  // l+32 + l+48
#pragma unroll
    for (uint32_t i = 0; i < 16; ++i) low[i] = __fadd_rn(low[i], high[i]);
    exchange<8>(low, warp);
    exchange<4>(low, warp);
    exchange<2>(low, warp);
    exchange<1>(low, warp);
    return low[0];
  }

  __device__ void clear() {
#pragma unroll
    for (uint32_t i = 0; i < kPairs; ++i) low[i] = high[i] = 0;
  }

 private:
  /// Adds to half of the pairs the partner's sums, and leaves the other half to the partner.
  template <uint32_t kHalf>
  static __device__ void exchange(float* sums, const Warp& warp) {
    const bool upper = (warp.thread_rank() & kHalf) != 0;
#pragma unroll
    for (uint32_t i = 0; i < kHalf; ++i) {
      const float mine = upper ? sums[i + kHalf] : sums[i];
      const float others = upper ? sums[i] : sums[i + kHalf];
      sums[i] = __fadd_rn(mine, warp.shfl_xor(others, kHalf));
    }
  }
};

/// Squared L2 of 8 x 4 pairs of wide codes of `columns` floats; thread t gets pair t. Null pointers
/// stand for rows that do not exist and give no meaning to their pairs.
__device__ inline float wide_distances(const float* const* left, const float* const* right, uint32_t columns,
                                       const Warp& warp) {
  LaneSums sums;
  const auto read = [&](const float* row, uint32_t column) {
    return row != nullptr && column < columns ? row[column] : 0.0f;
  };
  for (uint32_t first = 0; first < columns; first += LaneSums::kLanes) {
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      const uint32_t column = first + 32 * half + warp.thread_rank();
      float left_values[LaneSums::kLeft];
      float right_values[LaneSums::kRight];
#pragma unroll
      for (uint32_t i = 0; i < LaneSums::kLeft; ++i) left_values[i] = read(left[i], column);
#pragma unroll
      for (uint32_t i = 0; i < LaneSums::kRight; ++i) right_values[i] = read(right[i], column);
      LaneSums::add<false>(half == 0 ? sums.low : sums.high, left_values, right_values);
    }
  }
  return sums.fold(warp);
}

}  // namespace gannet::cuda
