// Answers of a search on a CUDA device, written there as a caller of ann.h gets them.
#pragma once

#include <cstdint>

#include "backend/launch.h"
#include "search/queries.h"
#include "search/walk_counters.h"

namespace gannet::cuda {

/// Where the kernel that re-ranks writes the answers (rerank_cuda.cu), it has rows and distances itself, and where the
/// kernel that walks does (walk_block_cuda.cu), `usable` too.
struct AnswerArgs {
  const uint32_t* rows;    // [count, k] nearest first, by (distance, row); kNoRow at the end
  const float* distances;  // [count, k]
  const uint64_t* ids;     // [rows of the index], or null: ids are row numbers
  const uint8_t* usable;   // [count] 0 where a query is not finite; null: all are usable
  ResultsView results;     // all on the device; of the first of these queries
  // The counters of the walks, and pinned memory of the host that gets them; null where they are not needed. That
  // takes some microseconds less than a copy.
  const WalkCounters* counters;
  WalkCounters* counters_on_host;
  uint32_t k;  // of `rows`, at most that of `results`
  uint32_t count;
};

void start_answers(const AnswerArgs& args, const Stream& stream);

}  // namespace gannet::cuda
