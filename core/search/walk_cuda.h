// Walks over a SearchGraph on a CUDA device: what the kernels take, and the call that starts one.
#pragma once

#include <cstdint>

#include "backend/launch.h"
#include "search/device_index.h"
#include "search/walk_steps.cuh"

namespace gannet::cuda {

/// What the warps of a launch share, zero before it.
struct alignas(64) WalkCounters {
  unsigned long long distances;
  unsigned long long expansions;
  uint32_t queue;  // queries that were taken beyond the first of each warp
};

struct WalkArgs {
  const uint8_t* codes;     // [rows, stride]
  const uint32_t* edges;    // [rows, degree] kNoRow in unused places at the end
  const uint32_t* entries;  // [entry_count]
  const uint8_t* queries;   // [count, query_stride] their codes, [stride] each
  const uint32_t* masked;   // [count] a row that each query neither expands nor returns; or null
  uint32_t* out_rows;       // [count, kept] nearest first; kNoRow where there are no more
  float* out_distances;     // [count, kept] of the codes; null where rows are compared once more
  WalkCounters* counters;
  uint32_t stride;          // bytes
  uint32_t query_stride;    // bytes
  uint32_t degree;
  uint32_t entry_count;
  uint32_t count;           // of queries
  uint32_t k;
  uint32_t kept;            // rows of an answer: k, and some more to compare once more
  uint32_t beam;            // of one list
  uint32_t expansions_max;  // of two lists
  float stretch;            // of two lists: (1 + slack)^2
};

/// One of the kernels, for an index and an effort.
struct WalkChoice {
  void (*function)(WalkArgs);
  uint32_t threads;
  uint32_t blocks_max;  // that the device holds at once
};

WalkChoice choose_walk(int32_t device, CodeKind kind, uint32_t stride, uint32_t degree,
                       const WalkEffort& effort);

void start_walk(const WalkChoice& choice, const WalkArgs& args, const Stream& stream);

}  // namespace gannet::cuda
