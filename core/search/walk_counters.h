// What the warps of a search on a CUDA device count together.
#pragma once

#include <cstdint>

namespace gannet::cuda {

/// Of a launch, zero before it.
struct alignas(64) WalkCounters {
  unsigned long long distances;
  unsigned long long expansions;
  uint32_t queue;  // queries that were taken beyond the first of each warp
};

}  // namespace gannet::cuda
