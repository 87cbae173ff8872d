// The counters that the warps of a search on a CUDA device share.
#pragma once

#include <cstdint>

namespace gannet::cuda {

/// Of a launch, zero before it.
struct alignas(64) WalkCounters {
  unsigned long long distances;
  unsigned long long expansions;
  uint32_t queue;  // queries that were taken beyond the first of each warp
};

/// The work done for one query. In host memory it is also the sign that its answer stands there: one
/// store of 8 bytes, and never zero distances.
struct alignas(8) WalkCounts {
  uint32_t distances;
  uint32_t expansions;
};

/// The work for so many queries.
inline WalkCounters sum_of(const WalkCounts* counts, uint32_t queries) {
  WalkCounters sum = {};
  for (uint32_t query = 0; query < queries; ++query) {
    sum.distances += counts[query].distances;
    sum.expansions += counts[query].expansions;
  }
  return sum;
}

}  // namespace gannet::cuda
