// The part of a build that runs on a CUDA device: from codes to k-NN lists, or on to the edges of a
// search graph. Nothing leaves the device in between.
//
// Results equal those of the CPU by the same method bit for bit, except for cells, whose lists are of
// the same quality: distances of codes are exact, or summed in the same lanes, and no phase depends on
// who comes first.
#pragma once

#include "dataset/codes.h"
#include "index/parameters.h"
#include "knn/knn_graph.h"

namespace gannet::cuda {

/// k-NN lists with their code distances.
struct KnnLists {
  KnnGraph graph;
  Array<uint32_t> distances;  // [rows, k], UINT32_MAX where there is no neighbour
};

/// k-NN lists by a method, ANN_KNN_NN_DESCENT, _EXACT or _CELLS. `device` is an ANN_DEVICE_CUDA + i.
///
/// Errors of both: ANN_NO_DEVICE, ANN_DEVICE_NO_MEMORY, ANN_DEVICE_LOST, ANN_CANCELLED, ANN_DEADLINE.
/// The device's memory is given back on every path.
KnnLists find_neighbors(const Codes& codes, int32_t method, const NnDescentParams& params,
                        int32_t device, const Execution& execution);

struct Edges {
  Array<uint32_t> edges;  // [rows, degree] pruned, with reverse edges merged in
  uint32_t iterations = 0;
};

/// Finds k-NN lists by a method, or takes `given` if not null, prunes them and adds reverse edges.
Edges build_edges(const Codes& codes, int32_t method, const KnnGraph* given, const BuildPlan& plan,
                  const Execution& execution);

}  // namespace gannet::cuda
