#include "knn/cells.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "knn/cells_recall.h"
#include "knn/cells_products.h"
#include "knn/cells_refine.h"

namespace gannet {
namespace {

// A round of refinement must find this much of what is missing, or it is the last.
constexpr double kLeastGain = 0.1;
constexpr uint32_t kRoundsMax = 3;

void compare_with_cells(const Codes& codes, const CellMap& map, uint32_t budget, NearLists& lists,
                        const Execution& execution) {
  std::vector<UnitSpace> spaces;
  spaces.reserve(execution.threads);
  for (uint32_t worker = 0; worker < execution.threads; ++worker)
    spaces.emplace_back(codes, map, lists.k, execution.memory);
  std::atomic<uint64_t> done = 0;
  parallel_for(execution, codes.rows(), unit_rows(codes.stride(), lists.k),
               [&](uint64_t begin, uint64_t end, uint32_t worker) {
                 compare_unit(codes, map, static_cast<uint32_t>(begin), static_cast<uint32_t>(end - begin),
                              budget, spaces[worker], lists, execution);
                 execution.advance(static_cast<double>(done += end - begin) / codes.rows());
               });
}

/// Rounds of refinement until the sample's recall is `enough`, as long as each finds enough; returns their number.
uint32_t refine_while_short(const Codes& codes, const CellMap& map, uint32_t budget,
                            const RecallSample& sample, double enough, NearLists& lists,
                            const Execution& execution) {
  double share = sample.recall(codes, lists.neighbors.data(), lists.k);
  if (share >= enough) return 0;
  Refinement refinement(codes, map, budget, lists, execution);
  uint32_t rounds = 0;
  while (share < enough && rounds < kRoundsMax) {
    const uint64_t found = refinement.round(rounds == 0);
    ++rounds;
    const double before = share;
    share = sample.recall(codes, lists.neighbors.data(), lists.k);
    if (found == 0 || share - before < kLeastGain * (1 - before)) break;
  }
  return rounds;
}

}  // namespace

KnnGraph cells_knn(const Codes& codes, const NnDescentParams& params, const Execution& execution,
                   const CellShares& shares) {
  const uint32_t rows = codes.rows();
  KnnGraph graph{Array<uint32_t>(), rows, params.k, 0};
  if (rows == 0) return graph;
  RecallSample sample(rows, params.k, params.seed, execution.memory);
  {
    const CellMap map(codes, params.seed, execution);
    const Execution measuring = execution.span(0.15, 0.2);
    sample.find_truth(codes, map, measuring);
    const uint32_t budget = sample.budget(codes, map, shares.wanted, measuring);
    NearLists lists(rows, params.k, execution.memory);
    compare_with_cells(codes, map, budget, lists, execution.span(0.2, 0.9));
    graph.iterations = refine_while_short(codes, map, budget, sample, shares.enough, lists, execution);
    graph.neighbors = std::move(lists.neighbors);
  }
  graph.share = sample.recall(codes, graph.neighbors.data(), params.k);
  if (graph.share >= shares.least || rows <= params.k) return graph;
  KnnGraph descent = nn_descent(codes, params, execution.span(0.9, 1));
  descent.share = sample.recall(codes, descent.neighbors.data(), params.k);
  return descent.share > graph.share ? std::move(descent) : std::move(graph);
}

uint64_t cells_knn_bytes(uint64_t rows, size_t stride, const NnDescentParams& params, uint32_t threads) {
  const uint64_t lists = rows * params.k * 4;
  const uint64_t comparing = threads * (unit_bytes(rows, stride, params.k) + unit_bytes(rows, stride, 1));
  const uint64_t refining =
      threads * refine_space_bytes(rows, stride, params.k) + refinement_bytes(rows, params.k);
  const uint64_t cells = cell_map_bytes(rows, stride, threads) + 2 * lists + std::max(comparing, refining);
  const uint64_t sampling = recall_sample_bytes(rows, stride, params.k);
  return sampling + std::max(cells, lists + nn_descent_bytes(rows, stride, params, threads));
}

}  // namespace gannet
