// A warp puts values in order in its registers: Batcher's bitonic network, 32 at each level.
//
// Lane l's r-th value is number 32 r + l. Up to kUnrolledRegisters a lane every level is code of its own.
// Beyond that the levels are loops, and only registers are named one by one: 512 keys of 64 bits pass 45
// levels, which were 110 KB of code that one warp runs through once.
#pragma once

#include <cstdint>

namespace gannet::cuda {

constexpr uint32_t kUnrolledRegisters = 2;

/// Puts values `stride` lanes apart in order. Runs of `run` rise and fall in turn; one of all rises.
template <uint32_t kRegisters, class Value>
__device__ void order_lanes(Value (&values)[kRegisters], uint32_t run, uint32_t stride) {
  const uint32_t lane = threadIdx.x % 32;
#pragma unroll
  for (uint32_t r = 0; r < kRegisters; ++r) {
    const bool keeps_smaller = (((32 * r + lane) & run) == 0) == ((lane & stride) == 0);
    const Value other = __shfl_xor_sync(0xffffffff, values[r], stride);
    if ((other < values[r]) == keeps_smaller) values[r] = other;
  }
}

/// The same of values in registers `apart` places apart.
template <uint32_t kRegisters, class Value>
__device__ void order_registers(Value (&values)[kRegisters], uint32_t run, uint32_t apart) {
#pragma unroll
  for (uint32_t r = 0; r < kRegisters; ++r) {
    if ((r & apart) != 0) continue;
    const Value first = values[r];
    const Value second = values[r + apart];
    const bool swaps = (second < first) == ((32 * r & run) == 0);
    values[r] = swaps ? second : first;
    values[r + apart] = swaps ? first : second;
  }
}

/// The levels that make runs of `run` of runs of half the length.
template <uint32_t kRegisters, class Value>
__device__ void order_run(Value (&values)[kRegisters], uint32_t run) {
  constexpr uint32_t kUnroll = kRegisters <= kUnrolledRegisters ? 5 : 1;
#pragma unroll
  for (uint32_t apart = kRegisters / 2; apart != 0; apart /= 2) {
    if (32 * apart < run) order_registers(values, run, apart);
  }
#pragma unroll(kUnroll)
  for (uint32_t stride = run < 32 ? run / 2 : 16; stride != 0; stride /= 2) order_lanes(values, run, stride);
}

/// Puts 32 kRegisters values that rise and then fall in ascending order.
template <uint32_t kRegisters, class Value>
__device__ void sort_bitonic(Value (&values)[kRegisters]) {
  order_run(values, 32 * kRegisters);
}

/// Puts 32 kRegisters values in ascending order.
template <uint32_t kRegisters, class Value>
__device__ void sort_ascending(Value (&values)[kRegisters]) {
  constexpr uint32_t kUnroll = kRegisters <= kUnrolledRegisters ? 6 : 1;
#pragma unroll(kUnroll)
  for (uint32_t run = 2; run <= 32 * kRegisters; run *= 2) order_run(values, run);
}

}  // namespace gannet::cuda
