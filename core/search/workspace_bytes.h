// The device memory of a DeviceWorkspace (search/device_search.h), for it and for estimates.
#pragma once

#include <algorithm>
#include <cstdint>

#include "place/placed_shape.h"
#include "place/pivots.h"
#include "search/plan.h"
#include "search/walk_counters.h"

namespace gannet {

inline constexpr uint64_t kStagingBytes = uint64_t{64} << 20;  // of one run's queries, and of its answers

/// Of so many queries, those that one workspace makes room for.
constexpr uint64_t staged_queries(uint64_t queries, uint64_t record_bytes, uint32_t k) {
  const uint64_t answer = k * (sizeof(uint32_t) + sizeof(float));
  return std::max<uint64_t>(1, std::min({queries, kStagingBytes / record_bytes, kStagingBytes / answer}));
}

/// The most bytes that it holds for so many queries of k answers each.
inline uint64_t workspace_device_bytes(const PlacedShape& shape, uint64_t queries, uint32_t k) {
  const uint64_t sent_and_made = 2 * shape.record_bytes();
  const uint64_t starts_and_masked = (kStartWords + 1) * sizeof(uint32_t);
  const uint64_t answers = k * (sizeof(uint32_t) + sizeof(float)) + sizeof(cuda::WalkCounts);
  const uint64_t candidates = shape.lossless() ? 0 : candidates_most(k) * sizeof(uint32_t);
  const uint64_t query = sent_and_made + starts_and_masked + answers + candidates + shape.query_code_bytes();
  return sizeof(cuda::WalkCounters) + staged_queries(queries, shape.record_bytes(), k) * query;
}

}  // namespace gannet
