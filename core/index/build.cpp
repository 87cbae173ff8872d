// The build, on one screen: rows -> codes -> k-NN graph -> search graph -> calibration.
//
// On a CUDA device everything between codes and search graph stays there (build_cuda.cu), and so does the
// graph: as the copy of the index that searches on the device use.

#include <chrono>

#include "backend/devices.h"
#include "index/build_cuda.h"
#include "index/index.h"
#include "knn/cells.h"
#include "knn/exact_knn.h"
#include "knn/nn_descent.h"

namespace gannet {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Copies a k-NN graph of the caller; refuses rows out of range, and drops loops and repetitions.
KnnGraph copy_knn(const uint32_t* given, uint32_t rows, uint32_t k, const Execution& execution) {
  KnnGraph graph{Array<uint32_t>(execution.memory, checked_product(rows, k)), rows, k, 0};
  for (uint32_t row = 0; row < rows; ++row) {
    const uint32_t* from = given + uint64_t{row} * k;
    uint32_t* list = graph.neighbors.data() + uint64_t{row} * k;
    uint32_t count = 0;
    for (uint32_t i = 0; i < k; ++i) {
      if (from[i] == kNoRow) continue;
      if (from[i] >= rows)
        fail(ANN_INVALID_ARGUMENT, "knn_graph[%u, %u] is %u, rows are 0 to %u", row, i, from[i],
             rows - 1);
      if (from[i] != row && std::find(list, list + count, from[i]) == list + count)
        list[count++] = from[i];
    }
    std::fill(list + count, list + k, kNoRow);
  }
  return graph;
}

/// Whether the k-NN graph is found by comparing every pair.
bool compares_all(const Codes& codes, const BuildPlan& plan) {
  return plan.knn == ANN_KNN_EXACT || codes.rows() <= kDescentRowsPerNeighbor * plan.nn_descent.k;
}

KnnGraph find_neighbors(const Codes& codes, const BuildPlan& plan, const Execution& execution) {
  const uint32_t k = plan.nn_descent.k;
  if (plan.knn == ANN_KNN_GIVEN) return copy_knn(plan.knn_graph, codes.rows(), k, execution);
  if (compares_all(codes, plan)) return exact_knn(codes, k, execution);
  if (plan.knn == ANN_KNN_CELLS) return cells_knn(codes, plan.nn_descent, execution);
  return nn_descent(codes, plan.nn_descent, execution);
}

void make_graph(const BuildPlan& plan, Built& built, const Execution& execution) {
  SearchGraph& graph = built.graph;
  {
    const KnnGraph knn = find_neighbors(built.codes, plan, execution.span(0, 0.78));
    built.knn_iterations = knn.iterations;
    execution.span(0.78, 0.9).enter("prune");
    built.knn_share = knn.share;
    graph.edges = prune_by_rank(knn, plan.degree, execution);
  }
  execution.span(0.9, 0.96).enter("reverse edges");
  add_reverse_edges(graph.edges, graph.rows, plan.degree, execution);
  execution.span(0.96, 1).enter("reachability");
  if (plan.repair) graph.repaired_edges = repair_reachability(graph, execution);
}

/// Measures how far the CPU has to walk for a recall.
void calibrate(const BuildPlan& plan, const MatrixView* queries, const DeviceIndex* placed,
               Built& built, const Execution& execution) {
  const Clock::time_point start = Clock::now();
  execution.enter("calibrate");
  built.calibration.measure(built.dataset, built.codes, built.graph, queries, built.seed, plan.device,
                            placed, execution);
  built.calibrate_seconds = seconds_since(start);
}

/// The graph of a device as the index's copy there; null where its memory does not hold one.
std::shared_ptr<Placement> place(cuda::GraphOnDevice& made, const BuildPlan& plan, const Built& built,
                                 const Execution& execution) {
  auto placement = std::make_shared<Placement>();
  placement->device = plan.device - ANN_DEVICE_CUDA;
  try {
    placement->index = made.place(built.dataset, built.codes, built.graph, execution);
  } catch (const Error& error) {
    if (error.status != ANN_DEVICE_NO_MEMORY) throw;
    return nullptr;  // the index is whole without it
  }
  return placement;
}

/// Graph and calibration by a CUDA device, where the index then has a copy.
void build_on_device(const BuildPlan& plan, const MatrixView* queries, Built& built,
                     const Execution& execution) {
  SearchGraph& graph = built.graph;
  KnnGraph copied;
  const bool given = plan.knn == ANN_KNN_GIVEN;
  if (given) copied = copy_knn(plan.knn_graph, graph.rows, plan.nn_descent.k, execution);
  const int32_t method = compares_all(built.codes, plan) ? int32_t{ANN_KNN_EXACT} : plan.knn;
  const auto made = cuda::build_graph(built.codes, method, given ? &copied : nullptr, plan,
                                      graph.entries, execution.span(0, 0.85));
  built.knn_iterations = made->iterations;
  graph.repaired_edges = made->repaired_edges;
  graph.edges = Array<uint32_t>(execution.memory, checked_product(graph.rows, graph.degree));
  const bool fetched = made->lost != 0;
  if (fetched) {
    made->fetch(graph.edges, execution);
    graph.repaired_edges = repair_reachability(graph, execution);
    made->replace(graph.edges, execution);
  }
  const auto placement = place(*made, plan, built, execution);

  // The device calibrates itself while the host gets the edges and walks them.
  const Execution measuring = execution.span(0.85, 1);
  Execution both = measuring;
  both.threads = std::min(execution.threads, 2u);
  parallel_for(both, 2, 1, [&](uint64_t task, uint64_t, uint32_t) {
    if (task == 0) {
      if (plan.calibrate && placement != nullptr)
        placement->calibration.measure(built.dataset, built.codes, *placement->index, placement->device,
                                       built.seed, measuring);
    } else {
      if (!fetched) made->fetch(graph.edges, measuring);
  built.knn_share = made->share;
      if (plan.calibrate)
        calibrate(plan, queries, placement != nullptr ? placement->index.get() : nullptr, built,
                  measuring);
    }
  });
  if (placement != nullptr) built.placements.adopt(placement);
}

}  // namespace

std::unique_ptr<const Built> build(const ann_index_params& shape, const MatrixView& rows,
                                   const uint64_t* ids, const BuildPlan& plan,
                                   const MatrixView* calibration, const Execution& execution) {
  const Clock::time_point start = Clock::now();
  const uint64_t seed = plan.nn_descent.seed;
  if (plan.device >= ANN_DEVICE_CUDA) check_cuda_device(plan.device);
  execution.enter("copy");
  auto built = std::make_unique<Built>(
      Dataset(rows, ids, shape.metric, shape.element, plan.borrow, execution));
  built->graph_kind = plan.graph;
  built->seed = seed;
  if (plan.graph != ANN_GRAPH_NONE) {
    execution.span(0.03, 0.06).enter("codes");
    built->codes = Codes(built->dataset, seed, execution);

    execution.span(0.06, 0.7).enter("k-NN graph");
    SearchGraph& graph = built->graph;
    graph.rows = built->dataset.rows();
    graph.degree = plan.degree;
    graph.entries = choose_entries(graph.rows, kEntryPoints, seed, execution.memory);
    if (plan.device >= ANN_DEVICE_CUDA && graph.rows != 0) {
      build_on_device(plan, calibration, *built, execution.span(0.06, 1));
    } else {
      make_graph(plan, *built, execution.span(0.06, 0.88));
      if (plan.calibrate) calibrate(plan, calibration, nullptr, *built, execution.span(0.88, 1));
    }
  }
  execution.check();
  execution.advance(1);
  built->build_seconds = seconds_since(start);
  return built;
}

}  // namespace gannet
