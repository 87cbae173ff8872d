// Sums of a few pairs of float vectors by one warp, in the CPU's lanes and order (distance/lanes_cuda.h), so that their
// bits are equal.
//
// Thread t of the warp is lanes 2 t and 2 t + 1 of the CPU's 64, so that a read brings two columns, of halves in one
// word. The fold goes by threads 8, 16, 4, 2 and 1 apart, which are the CPU's lanes 16, 32, 8, 4 and 2 apart, and ends
// with the two of a thread. Of four pairs each thread gives away two and then one, as LaneSums does: 12 exchanges, and
// one that brings the sums where they are wanted, instead of 40. Threads of lanes t and t + 32 took 24.
#pragma once

#include "distance/lanes_cuda.h"
#include "distance/metric_cuda.cuh"

namespace gannet::cuda {

/// Two columns of a row, from an even one on; rows stand on multiples of 8 bytes.
template <int32_t kElement>
__device__ float2 floats_at(const uint8_t* row, uint32_t column) {
  if constexpr (kElement == ANN_F32) {
    return *reinterpret_cast<const float2*>(row + size_t{column} * 4);
  } else {
    const uint32_t two = *reinterpret_cast<const uint32_t*>(row + size_t{column} * 2);
    return {float_of_bits<kElement>(two & 0xffff), float_of_bits<kElement>(two >> 16)};
  }
}

/// Folds one of a thread's two lanes, of all pairs: sums[0] becomes the sum of pair p on the lane folded_at(p) and some
/// others.
template <uint32_t kPairs>
struct PairFold {
  static_assert(kPairs <= 32 && (kPairs & (kPairs - 1)) == 0);
  static constexpr uint32_t kSteps = 5;
  static constexpr __device__ uint32_t apart(uint32_t step) { return step < 2 ? 8 << step : 16 >> step; }

  static __device__ void fold(float (&sums)[kPairs]) {
    uint32_t count = kPairs;
#pragma unroll
    for (uint32_t step = 0; step < kSteps; ++step) {
      if (count == 1) {
        sums[0] = __fadd_rn(sums[0], __shfl_xor_sync(0xffffffff, sums[0], apart(step)));
        continue;
      }
      count /= 2;
      const bool upper = (threadIdx.x & apart(step)) != 0;
#pragma unroll
      for (uint32_t i = 0; i < kPairs; ++i) {
        if (i >= count) break;
        const float mine = upper ? sums[i + count] : sums[i];
        const float others = upper ? sums[i] : sums[i + count];
        sums[i] = __fadd_rn(mine, __shfl_xor_sync(0xffffffff, others, apart(step)));
      }
    }
  }

  /// The first of the lanes that have the sum of a pair.
  static __device__ uint32_t folded_at(uint32_t pair) {
    uint32_t lane = 0;
#pragma unroll
    for (uint32_t step = 0; kPairs >> (step + 1) != 0; ++step)
      if ((pair & kPairs >> (step + 1)) != 0) lane |= apart(step);
    return lane;
  }
};

/// `query_values(pair, column)` are the two values from an even column on that rows[pair] is compared with; as of rows,
/// one behind the last column may be read and is not used. kReads of each pair are under way at once. Lane i gets the
/// sum of pair i % kPairs.
template <int32_t kElement, bool kDot, uint32_t kReads = 1, uint32_t kPairs, class QueryValues>
__device__ float sum_float_pairs(const uint8_t* const (&rows)[kPairs], const QueryValues& query_values,
                                 uint32_t dim) {
  constexpr uint32_t kLanes = LaneSums::kLanes;
  const uint32_t lane = threadIdx.x % 32;
  float even[kPairs] = {};
  float odd[kPairs] = {};
  const auto add = [&](uint32_t i, const float2& row, const float2& query) {
    even[i] = __fadd_rn(even[i], LaneSums::product<kDot>(row.x, query.x));
    odd[i] = __fadd_rn(odd[i], LaneSums::product<kDot>(row.y, query.y));
  };
  uint32_t column = 2 * lane;
#pragma unroll 1
  for (uint32_t left = dim; left >= kReads * kLanes; left -= kReads * kLanes, column += kReads * kLanes) {
    float2 read[kReads][kPairs];
#pragma unroll
    for (uint32_t r = 0; r < kReads; ++r)
#pragma unroll
      for (uint32_t i = 0; i < kPairs; ++i) read[r][i] = floats_at<kElement>(rows[i], column + r * kLanes);
#pragma unroll
    for (uint32_t r = 0; r < kReads; ++r)
#pragma unroll
      for (uint32_t i = 0; i < kPairs; ++i) add(i, read[r][i], query_values(i, column + r * kLanes));
  }
  // The rest, fewer columns than that: of one pair all at once too, of several 64 at a time, for want of registers.
  constexpr uint32_t kRest = kPairs == 1 ? kReads : 1;
#pragma unroll 1
  for (; column < dim; column += kRest * kLanes) {
    float2 read[kRest][kPairs];
#pragma unroll
    for (uint32_t r = 0; r < kRest; ++r)
#pragma unroll
      for (uint32_t i = 0; i < kPairs; ++i)
        if (r == 0 || column + r * kLanes < dim)
          read[r][i] = floats_at<kElement>(rows[i], column + r * kLanes);
#pragma unroll
    for (uint32_t r = 0; r < kRest; ++r) {
      const uint32_t at = column + r * kLanes;
      if (r != 0 && at >= dim) break;
      const bool both = at + 1 < dim;
#pragma unroll
      for (uint32_t i = 0; i < kPairs; ++i) {
        float2 row = read[r][i];
        float2 query = query_values(i, at);
        if (!both) row.y = query.y = 0;
        add(i, row, query);
      }
    }
  }
  __syncwarp();
  using Fold = PairFold<kPairs>;
  Fold::fold(even);
  Fold::fold(odd);
  const float sum = __fadd_rn(even[0], odd[0]);
  if constexpr (kPairs == 1)
    return sum;
  else
    return __shfl_sync(0xffffffff, sum, Fold::folded_at(lane % kPairs));
}

}  // namespace gannet::cuda
