// GGNN's search on a CUDA device: what the kernel takes, and the call that starts it. search/ggnn.h says what it
// does.
#pragma once

#include <cstdint>

#include "search/cagra_cuda.h"
#include "search/ggnn.h"

namespace gannet::cuda {

struct GgnnArgs {
  CagraArgs walk;           // rows, graph, queries, answers and counters, as CAGRA's kernels take them
  const uint32_t* entries;  // [entry_count]
  uint32_t entry_count;
  SlackShape shape;
  SquareKind square;
  float tau;
  float nearest;
  uint32_t iterations_max;
};

/// Starts the walks of a batch. Of `args.walk` what a plan of CAGRA's would decide is filled in.
void start_ggnn(int32_t device, RowKind kind, const GgnnPlan& plan, GgnnArgs args, const Stream& stream);

}  // namespace gannet::cuda
