// Walks over a SearchGraph on a CUDA device: the arguments of the kernels, and the calls that start them.
//
// Three procedures: a warp for each query (walk_cuda.cu), whose starts are found beforehand
// (starts_cuda.cu), for batches; a block for each query (walk_block_cuda.cu) for few queries and for many
// answers; one long list (walk_cuda.cu) that takes the CPU's steps.
#pragma once

#include <cstdint>

#include "backend/launch.h"
#include "place/pivots.h"
#include "graph/adjacency.h"
#include "search/answers_cuda.h"
#include "search/encode_cuda.h"
#include "search/plan.h"
#include "search/records_cuda.h"
#include "search/rerank_cuda.h"
#include "search/scaled_codes_cuda.h"
#include "search/walk_counters.h"
#include "segment/row_set.h"
#include "traverse/walk_steps.cuh"

namespace gannet::cuda {

/// The longest record that travels with a launch.
inline constexpr uint32_t kOneQueryBytes = 512;

/// The arguments of a block that does more for its query than to walk: makes the record of what the caller gave
/// and of that the code, re-ranks the best rows, and writes the answer where the caller wants it. Those of each step
/// that do not depend on the query.
struct WholeArgs {
  RecordArgs given;  // its `queries` null: there are records
  EncodeArgs encode;
  EncodeScaledArgs scaled;  // instead where rows have a scale each; else its code_bytes are 0
  RerankArgs rerank;
  AnswerArgs answers;     // its results.ids null: out_rows and out_distances are written
  uint32_t record_bytes;  // of a query, a multiple of 16; 0: queries are codes, and rows the answers
  int32_t element;        // of the rows
};

/// Rows that a block can re-rank.
inline constexpr uint32_t kWholeKeptMax = kTwoListsMax;

struct WalkArgs {
  const uint8_t* codes;     // [rows, stride]
  const uint32_t* edges;    // [rows, degree] fixed rows, as fields of their own: as an Adjacency they cost a
                            // warp of 72 registers 8 bytes of spills more and 2 % of its time
  const uint32_t* entries;  // [entry_count] distinct
  const uint8_t* pivot_codes;  // [pivot_count, stride]
  const uint32_t* pivots;      // [pivot_count] their rows, kNoRow in unused places at the end
  const int32_t* squares;      // [pivot_count] x.x of bytes
  uint32_t* starts;            // [count, kStarts] room for rows; null: all start at the entry points
  uint32_t* order;             // [count] room for queries, in which order they are walked for; or null
  const uint8_t* queries;      // [count, query_stride] their codes, [stride] each, of halves [2 * stride]
  const uint32_t* masked;      // [count] a row that each query neither expands nor returns; or null
  RowSetView removed;          // rows that are walked through and never answered
  uint32_t* out_rows;          // [count, kept] nearest first; kNoRow where there are no more
  float* out_distances;        // [count, kept] of the codes; null where rows are re-ranked
  WalkCounters* counters;
  WalkCounts* counts;     // [count] where a block walks, instead of the counters. There both may be null
  uint32_t stride;        // bytes
  uint32_t query_stride;  // bytes
  uint32_t degree;
  uint32_t entry_count;
  uint32_t pivot_count;  // a multiple of kPivots
  uint32_t count;        // of queries
  uint32_t k;
  uint32_t kept;            // rows of an answer: k, and some more to re-rank
  uint32_t beam;            // of one list
  uint32_t expansions_max;  // of two lists
  float slack_squared;      // of two lists: (1 + slack)^2
  float rerank_margin;      // of two lists of a warp: rows whose codes lie farther than the k-th by more
                            // than this are not re-ranked
  WholeArgs whole;          // where a block walks; `queries` are records then, and answers [count, k]
  alignas(16) uint8_t one_query[kOneQueryBytes];  // instead of `queries`, where those are null
};

/// Queries that a warp each walks for at the same time, all on the device at once; 0 where no kernel is made for
/// that.
uint32_t resident_queries(int32_t device, CodeKind kind, uint32_t stride, uint32_t degree, uint32_t kept);

/// Starts the walks of a batch with two lists and the steps that they need before, `warps` for each query.
void start_two_lists(int32_t device, CodeKind kind, const WalkArgs& args, uint32_t warps,
                     const Stream& stream);

/// Starts the walks of a batch with one list of `args.beam` rows.
void start_one_list(int32_t device, CodeKind kind, const WalkArgs& args, const Stream& stream);

/// One of the kernels, for an index and an effort.
struct WalkChoice {
  void (*function)(WalkArgs);
  uint32_t threads;
  uint32_t blocks_max;    // that are started at once
  uint32_t shared_bytes;  // beyond the bytes that the kernel declares
  uint32_t blocks_of_query = 1;
};

/// A kernel in which a block of 8 or 16 warps walks; with `clusters` one of 16 has other blocks compare rows for it.
WalkChoice choose_block_walk(CodeKind kind, const WalkArgs& args, uint32_t warps, bool clusters);

/// Whether blocks of 16 warps should have others compare rows for them: for few queries of wide rows.
bool serves_clusters(int32_t device, CodeKind kind, const WalkArgs& args);

/// Lets these kernels have the shared memory that they need, on the current device, by the stride and the
/// sizes in `whole`. Before the first of them there. Returns the most rows that their answers can keep,
/// which may be 0.
uint32_t allow_block_walks(int32_t device, CodeKind kind, const WalkArgs& shape);

/// start_one_list() and start_two_lists() of a warp, of an index by inner product: args.codes are rows with a
/// scale each, args.queries as start_encode_scaled() has made them. Walks start at the entry points.
void start_scaled_one_list(int32_t device, const WalkArgs& args, const Stream& stream);
void start_scaled_two_lists(int32_t device, const WalkArgs& args, const Stream& stream);

/// The latter by squared L2 about one cell, of which pivots are known too: walks start at these.
void start_narrow_two_lists(int32_t device, const WalkArgs& args, const Stream& stream);

// --- Pivots --------------------------------------------------------------------------------------

/// Whether pivots can be compared with codes of this kind.
constexpr bool has_pivots(CodeKind kind) { return kind == CodeKind::kUnsigned; }

/// Finds where each query of a batch starts, and sets the counters to zero. `scaled`: by codes with a scale for each row,
/// about one cell.
void find_starts(const WalkArgs& args, bool scaled, const Stream& stream);

}  // namespace gannet::cuda
