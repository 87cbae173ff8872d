// The build, on one screen: rows -> codes -> k-NN graph -> search graph -> calibration.
//
// On a CUDA device everything between codes and search graph stays there (build_cuda.cu).

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

/// From codes to edges on a CUDA device.
void make_edges_on_device(const BuildPlan& plan, Built& built, const Execution& execution) {
  KnnGraph copied;
  const bool given = plan.knn == ANN_KNN_GIVEN;
  if (given)
    copied = copy_knn(plan.knn_graph, built.codes.rows(), plan.nn_descent.k, execution);
  const int32_t method = compares_all(built.codes, plan) ? int32_t{ANN_KNN_EXACT} : plan.knn;
  cuda::Edges made = cuda::build_edges(built.codes, method,
                                       given ? &copied : nullptr, plan, execution);
  built.graph.edges = std::move(made.edges);
  built.knn_iterations = made.iterations;
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

    const Execution finding = execution.span(0.06, 0.7);
    finding.enter("k-NN graph");
    SearchGraph& graph = built->graph;
    graph.rows = built->dataset.rows();
    graph.degree = plan.degree;
    if (plan.device >= ANN_DEVICE_CUDA) {
      make_edges_on_device(plan, *built, execution.span(0.06, 0.85));
    } else {
      {
        const KnnGraph knn = find_neighbors(built->codes, plan, finding);
        built->knn_iterations = knn.iterations;
        execution.span(0.7, 0.8).enter("prune");
        graph.edges = prune_by_rank(knn, plan.degree, execution);
      }
      execution.span(0.8, 0.85).enter("reverse edges");
      add_reverse_edges(graph.edges, graph.rows, plan.degree, execution);
    }
    graph.entries = choose_entries(graph.rows, kEntryPoints, seed, execution.memory);
    execution.span(0.85, 0.88).enter("reachability");
    if (plan.repair) graph.repaired_edges = repair_reachability(graph, execution);

    if (plan.calibrate) {
      const Clock::time_point calibration_start = Clock::now();
      const Execution measuring = execution.span(0.88, 1);
      measuring.enter("calibrate");
      built->calibration.measure(built->dataset, built->codes, graph, calibration, seed, plan.device,
                                 measuring);
      built->calibrate_seconds = seconds_since(calibration_start);
    }
  }
  execution.check();
  execution.advance(1);
  built->build_seconds = seconds_since(start);
  return built;
}

}  // namespace gannet
