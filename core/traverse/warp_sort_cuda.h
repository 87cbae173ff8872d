// A warp puts values in order in its registers: Batcher's bitonic network, 32 at each level.
#pragma once

#include <cooperative_groups.h>

#include <cstdint>

namespace gannet::cuda {

/// Puts 32 kRegisters values in ascending order; lane l's r-th is number 32 r + l.
template <uint32_t kRegisters, class Value>
__device__ void sort_ascending(Value (&values)[kRegisters],
                               const cooperative_groups::thread_block_tile<32>& warp) {
#pragma unroll
  for (uint32_t run = 2; run <= 32 * kRegisters; run *= 2) {
#pragma unroll
    for (uint32_t stride = run / 2; stride != 0; stride /= 2) {
#pragma unroll
      for (uint32_t r = 0; r < kRegisters; ++r) {
        const uint32_t place = 32 * r + warp.thread_rank();
        if (stride >= 32) {
          const uint32_t partner = r ^ (stride / 32);
          if (partner < r) continue;
          const Value low = min(values[r], values[partner]);
          const Value high = max(values[r], values[partner]);
          values[r] = (32 * r & run) == 0 ? low : high;
          values[partner] = (32 * r & run) == 0 ? high : low;
        } else {
          const Value other = warp.shfl_xor(values[r], stride);
          const bool keeps_smaller = ((place & run) == 0) == ((place & stride) == 0);
          values[r] = keeps_smaller ? min(values[r], other) : max(values[r], other);
        }
      }
    }
  }
}

}  // namespace gannet::cuda
