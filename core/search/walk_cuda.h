// Walks over a SearchGraph on a CUDA device: what the kernels take, and the calls that start them.
//
// Three procedures: a warp for each query (walk_cuda.cu), whose starts are found beforehand
// (pivots_cuda.cu), for batches; a block for each query (walk_block_cuda.cu) for few queries and for many
// answers; one long list (walk_cuda.cu) that takes the CPU's steps.
#pragma once

#include <cstdint>

#include "backend/launch.h"
#include "search/device_index.h"
#include "search/encode_cuda.h"
#include "search/rerank_cuda.h"
#include "search/walk_counters.h"
#include "search/walk_steps.cuh"

namespace gannet::cuda {

/// Pivots at which a query of a batch starts.
inline constexpr uint32_t kStarts = 8;

/// Room that a query of a batch takes for what is found out beforehand: its starts, and a place in the order.
inline constexpr uint32_t kStartWords = kStarts + 1;

/// What was done for one query. In host memory it is also the sign that its answer stands there: one
/// store of 8 bytes, and never zero distances.
struct alignas(8) WalkCounts {
  uint32_t distances;
  uint32_t expansions;
};

/// The longest record that travels with a launch.
inline constexpr uint32_t kOneQueryBytes = 512;

/// What a block needs that makes the code of its query, and compares the best rows once more. Of the
/// arguments of both steps what does not depend on the query.
struct WholeArgs {
  EncodeArgs encode;
  RerankArgs rerank;
  uint32_t record_bytes;  // of a query, a multiple of 16; 0: queries are codes, and rows what is answered
  int32_t element;        // of the rows
};

/// Rows that a block can compare once more.
inline constexpr uint32_t kWholeKeptMax = kTwoListsMax;

struct WalkArgs {
  const uint8_t* codes;        // [rows, stride]
  const uint32_t* edges;       // [rows, degree] kNoRow in unused places at the end
  const uint32_t* entries;     // [entry_count]
  const uint8_t* pivot_codes;  // [kPivots, stride]
  const uint32_t* pivots;      // [kPivots] their rows, kNoRow in unused places at the end
  const int32_t* squares;      // [kPivots] x.x of bytes
  uint32_t* starts;            // [count, kStarts] room for rows; null: all start at the entry points
  uint32_t* order;             // [count] room for queries, in which order they are walked for; or null
  const uint8_t* queries;      // [count, query_stride] their codes, [stride] each
  const uint32_t* masked;      // [count] a row that each query neither expands nor returns; or null
  uint32_t* out_rows;          // [count, kept] nearest first; kNoRow where there are no more
  float* out_distances;        // [count, kept] of the codes; null where rows are compared once more
  WalkCounters* counters;
  WalkCounts* counts;          // [count] where a block walks, instead of the counters; or null
  uint32_t stride;             // bytes
  uint32_t query_stride;       // bytes
  uint32_t degree;
  uint32_t entry_count;
  uint32_t count;              // of queries
  uint32_t k;
  uint32_t kept;               // rows of an answer: k, and some more to compare once more
  uint32_t beam;               // of one list
  uint32_t expansions_max;     // of two lists
  float stretch;               // of two lists: (1 + slack)^2
  float again_within;          // of two lists of a warp: rows whose codes lie farther than the k-th by more
                               // than this are not compared once more
  WholeArgs whole;             // where a block walks; `queries` are records then, and answers [count, k]
  alignas(16) uint8_t one_query[kOneQueryBytes];  // instead of `queries`, where those are null
};

/// Queries that a warp each walks for at the same time, all on the device at once; 0 where no kernel is made for
/// that.
uint32_t walks_at_once(int32_t device, CodeKind kind, uint32_t stride, uint32_t degree, uint32_t kept);

/// Starts what an effort asks for: the walks of a batch, and before them what they need.
void start_walks(int32_t device, CodeKind kind, const WalkArgs& args, const WalkEffort& effort,
                 const Stream& stream);

/// One of the kernels, for an index and an effort.
struct WalkChoice {
  void (*function)(WalkArgs);
  uint32_t threads;
  uint32_t blocks_max;    // that are started at once
  uint32_t shared_bytes;  // beyond what the kernel declares
};

/// A kernel in which a block of 8 or 16 warps walks.
WalkChoice choose_block_walk(CodeKind kind, const WalkArgs& args, uint32_t warps);

/// Lets these kernels have the shared memory that they need, on the current device, with records of so many
/// bytes. Before the first of them there. Returns the most rows that their answers can keep, which may be 0.
uint32_t allow_block_walks(int32_t device, CodeKind kind, uint32_t stride, uint32_t record_bytes);

// --- Pivots --------------------------------------------------------------------------------------

/// Whether pivots can be compared with codes of this kind.
constexpr bool has_pivots(CodeKind kind) { return kind != CodeKind::kFloat; }

/// Brings the codes of the pivots together, and their squares. On the device: rows [kPivots], codes
/// [rows, stride]; the results [kPivots, stride] and [kPivots].
void gather_pivots(const uint32_t* rows, const uint8_t* codes, uint32_t stride, CodeKind kind,
                   uint8_t* pivot_codes, int32_t* squares, const Stream& stream);

/// Finds where each query of a batch starts, and sets the counters to zero.
void find_starts(const WalkArgs& args, CodeKind kind, const Stream& stream);

}  // namespace gannet::cuda
