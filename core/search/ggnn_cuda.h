// GGNN's search on a CUDA device: the arguments of the kernel, and the call that starts it. search/ggnn.h
// describes it.
#pragma once

#include <cstdint>

#include "place/index_view.h"
#include "search/cagra_cuda.h"
#include "search/ggnn.h"

namespace gannet::cuda {

struct GgnnArgs {
  CagraArgs walk;           // rows, graph, queries, answers and counters, as CAGRA's kernels take them
  const uint32_t* entries;  // [entry_count]
  uint32_t entry_count;
  LayersView layers;  // of a walk that descends
  SlackShape shape;
  RowKind kind;
  SquareKind square;
  Slack slack;
  uint32_t iterations_max;  // in each layer
  uint32_t step;            // rows shown to the lists at a time
  uint32_t descends;        // 1: from the top layer
};

/// Starts the walks of a batch. The fields of `args.walk` that a plan of CAGRA's would decide are filled in.
void start_ggnn(int32_t device, RowKind kind, const GgnnPlan& plan, GgnnArgs args, const Stream& stream);

}  // namespace gannet::cuda
