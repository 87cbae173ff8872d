// TSDG's searches on a CUDA device: the kernels' arguments, and the call that starts them. search/tsdg.h describes
// them, and is their twin.
#pragma once

#include <cstdint>

#include "search/cagra_cuda.h"
#include "search/tsdg.h"

namespace gannet::cuda {

struct TsdgArgs {
  CagraArgs walk;      // rows, graph, queries, answers and counters, as CAGRA's kernels take them
  uint64_t* found;     // [count, walks, kTsdgList] of small batches: each walk's R at its end
  uint32_t* arrivals;  // [count] of small batches: walks that have ended, zero before
  uint32_t level;      // edges with factors up to this are read
  uint32_t hops_max;
  uint32_t walks;
  uint32_t segments;
  double factor;         // Delta on squared distances
  uint32_t only_nearer;  // 1: C takes the rows that improve R
};

/// Starts the walks of a batch. The fields of `args.walk` that a plan of CAGRA's would decide are filled in. `kind` is
/// kBytes or kF32.
void start_tsdg(int32_t device, RowKind kind, const TsdgPlan& plan, TsdgArgs args, const Stream& stream);

// One file each.
void start_tsdg_small(RowKind kind, TsdgArgs args, const Stream& stream);
void start_tsdg_large(int32_t device, RowKind kind, TsdgArgs args, const Stream& stream);

}  // namespace gannet::cuda
