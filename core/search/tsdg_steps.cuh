// The steps that both of TSDG's kernels need beside those of CAGRA's.
#pragma once

#include "search/cagra_steps.cuh"
#include "search/tsdg_cuda.h"

namespace gannet::cuda {

/// Places of a row that a search reads: all, or those of its level where rows have prefixes.
__device__ inline uint32_t length_of_row(const Adjacency& graph, uint32_t row, uint32_t level) {
  if (graph.prefixes == nullptr || level >= graph.levels) return graph.stride;
  return __ldg(graph.prefixes + uint64_t{row} * graph.levels + level);
}

/// The smallest of a warp's values, in all its lanes.
__device__ inline uint64_t smallest_of_warp(uint64_t value) {
  const uint32_t high = static_cast<uint32_t>(value >> 32);
  const uint32_t least = __reduce_min_sync(kAllLanes, high);
  const uint32_t low = high == least ? static_cast<uint32_t>(value) : 0xffffffff;
  return uint64_t{least} << 32 | __reduce_min_sync(kAllLanes, low);
}

}  // namespace gannet::cuda
