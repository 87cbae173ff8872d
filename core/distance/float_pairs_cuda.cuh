// Sums of a few pairs of float vectors by one warp, in the CPU's lanes and order (distance/lanes_cuda.h), so that their
// bits are equal.
#pragma once

#include "distance/lanes_cuda.h"
#include "distance/metric_cuda.cuh"

namespace gannet::cuda {

/// `query_value(pair, column)` is the value that rows[pair] is compared with. Every lane gets all sums.
template <int32_t kElement, bool kDot, uint32_t kPairs, class QueryValue>
__device__ void sum_float_pairs(const uint8_t* const (&rows)[kPairs], const QueryValue& query_value,
                                uint32_t dim, float (&sums)[kPairs]) {
  float low[kPairs] = {};   // the CPU's lane t of each pair
  float high[kPairs] = {};  // and t + 32
  const auto add = [&](float(&lanes)[kPairs], uint32_t column) {
#pragma unroll
    for (uint32_t i = 0; i < kPairs; ++i)
      lanes[i] = __fadd_rn(
          lanes[i], LaneSums::product<kDot>(float_at<kElement>(rows[i], column), query_value(i, column)));
  };
#pragma unroll 2
  for (uint32_t column = threadIdx.x % 32; column < dim; column += LaneSums::kLanes) {
    add(low, column);
    if (column + 32 < dim) add(high, column + 32);
  }
  __syncwarp();
#pragma unroll
  for (uint32_t i = 0; i < kPairs; ++i) sums[i] = fold_lanes(low[i], high[i]);
}

}  // namespace gannet::cuda
