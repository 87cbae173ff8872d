// One run of the kernels of a search on a CUDA device: queries as records in, rows and distances out. Host
// memory and device memory are searched by the same runs (host_workspace_cuda.cu, device_batch_cuda.cu).
//
// By codes that are the rows a run is a walk. Of lossy codes it first makes the codes of the queries
// (encode_cuda.cu) and at the end re-ranks the best rows as stored (rerank_cuda.cu), or one kernel does all
// three (walk_block_cuda.cu).
#pragma once

#include <cstdint>

#include "backend/launch.h"
#include "place/index_view.h"
#include "search/device_search.h"
#include "search/plan.h"
#include "search/walk_counters.h"
#include "search/walk_cuda.h"

namespace gannet::cuda {

/// All that it points to the device can reach.
struct DeviceRun {
  const uint8_t* queries;  // [count, query_stride] records
  uint8_t* codes;          // [count, code_stride] where codes are lossy
  uint32_t* candidates;    // [count, candidates_most(k)] likewise
  uint32_t* starts;        // [count, kStartWords]
  const uint32_t* masked;  // [count] a row that each query neither expands nor returns, or null
  WalkCounters* counters;
  WalkCounts* counts;  // [count], or null
  uint32_t* rows;      // [count, k]
  float* distances;    // [count, k]
  uint32_t query_stride;
  uint32_t count;
  uint32_t k;
  RowSetView removed;  // on the device: rows that are walked through and never answered
  bool bypass;         // walks over view.bypass
  bool is_on_host;     // where queries, rows, distances and counts lie
  RecordArgs given;  // where answers_alone(): of what the caller gave; its `queries` null: there are records
  AnswerArgs answers;  // where writes_answers(); its results.ids null: rows and distances are written
};

/// Whether the kernel that walks also makes codes and re-ranks the best rows.
bool walks_whole(const IndexView& view, const SearchPlan& plan, uint32_t k);

/// Whether the kernel that walks does all that there is to do for a batch on the device: it makes the records of what
/// the caller gave and writes the answers where the caller wants them. So neither codes, candidates, starts, rows nor
/// distances need memory.
bool answers_alone(const IndexView& view, const SearchPlan& plan, uint32_t k);

/// Whether the last kernel of a run can write the answers where a caller wants them.
bool writes_answers(const IndexView& view, const SearchPlan& plan, uint32_t k);

/// Queues a walk by a plan, which is not exact.
void start_run(int32_t device, const IndexView& view, const DeviceRun& run, const SearchPlan& plan,
               const Stream& stream);

/// Distances of the walks and of re-ranking.
uint64_t count_distances(const IndexView& view, const WalkCounters& counters, uint64_t queries,
                         const SearchPlan& plan, uint32_t k);

}  // namespace gannet::cuda
