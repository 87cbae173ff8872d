// The build's phases on a CUDA device, one after the other, on one stream.
//
// Device memory, at most: codes, k-NN lists and what finding them takes; then lists and pruned edges;
// then pruned and merged edges and the workspace of the sort. device_bytes in parameters.cpp adds it
// up for ann_estimate.

#include "backend/devices.h"
#include "dataset/codes_cuda.h"
#include "graph/search_graph_cuda.h"
#include "index/build_cuda.h"
#include "knn/exact_knn_cuda.h"
#include "knn/nn_descent_cuda.h"

namespace gannet::cuda {
namespace {

/// Makes the device current for a scope, after a check that it exists.
DeviceGuard guard_of(int32_t device) {
  check_cuda_device(device);
  return DeviceGuard(device - ANN_DEVICE_CUDA);
}

uint32_t find(const CodesView& codes, bool exact, const NnDescentParams& params,
              uint32_t* neighbors, uint32_t* distances, const Stream& stream,
              const Execution& execution) {
  if (!exact) return nn_descent(codes, params, neighbors, distances, stream, execution);
  exact_knn(codes, params.k, neighbors, distances, stream, execution);
  return 0;
}

/// Device memory in whole, with the monitor asked first.
void fetch(const uint32_t* from, Array<uint32_t>& to, const Stream& stream,
           const Execution& execution) {
  execution.check();
  copy_to_host(to.data(), from, to.size() * sizeof(uint32_t), stream, "fetching a graph from the device");
  stream.wait();
}

}  // namespace

KnnLists find_neighbors(const Codes& codes, bool exact, const NnDescentParams& params,
                        int32_t device, const Execution& execution) {
  const DeviceGuard guard = guard_of(device);
  const size_t places = checked_product(codes.rows(), params.k);
  KnnLists lists{{Array<uint32_t>(execution.memory, places), codes.rows(), params.k, 0},
                 Array<uint32_t>(execution.memory, places)};
  if (places == 0) return lists;
  const Stream stream;
  const DeviceCodes sent(codes, stream, execution);
  const DeviceArray<uint32_t> neighbors(places, stream);
  const DeviceArray<uint32_t> distances(places, stream);
  lists.graph.iterations = find(sent.view(), exact, params, neighbors.data(), distances.data(),
                                stream, execution);
  fetch(neighbors.data(), lists.graph.neighbors, stream, execution);
  fetch(distances.data(), lists.distances, stream, execution);
  return lists;
}

Edges build_edges(const Codes& codes, bool exact, const KnnGraph* given, const BuildPlan& plan,
                  const Execution& execution) {
  const DeviceGuard guard = guard_of(plan.device);
  const uint32_t rows = codes.rows();
  const uint32_t k = plan.nn_descent.k;
  const size_t places = checked_product(rows, plan.degree);
  Edges result{Array<uint32_t>(execution.memory, places)};
  if (rows == 0) return result;

  const Stream stream;
  const DeviceArray<uint32_t> pruned(places, stream);
  {
    const DeviceArray<uint32_t> knn(checked_product(rows, k), stream);
    if (given != nullptr) {
      copy_to_device(knn.data(), given->neighbors.data(), given->neighbors.size() * sizeof(uint32_t),
                     stream, "sending a k-NN graph to the device");
    } else {
      const DeviceCodes sent(codes, stream, execution);
      result.iterations = find(sent.view(), exact, plan.nn_descent, knn.data(), nullptr, stream,
                               execution.span(0, 0.85));
    }
    execution.span(0.85, 0.95).enter("prune");
    prune_by_rank(knn.data(), rows, k, plan.degree, pruned.data(), stream, execution);
  }
  execution.span(0.95, 1).enter("reverse edges");
  const DeviceArray<uint32_t> merged(places, stream);
  add_reverse_edges(pruned.data(), rows, plan.degree, merged.data(), stream, execution);
  fetch(merged.data(), result.edges, stream, execution);
  return result;
}

}  // namespace gannet::cuda
