#include "knn/cells.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "knn/cells_recall.h"
#include "knn/cells_products.h"
#include "knn/cells_refine.h"

namespace gannet {
namespace {

// A round of refinement must find this share of the missing neighbours, or it is the last. Of 4M rows (clusters of
// intrinsic dimension 24) three rounds found .34, .12 and .02 of them, and the third took 12 of 287 seconds.
constexpr double kLeastGain = 0.15;
constexpr uint32_t kRoundsMax = 3;
constexpr size_t kShorter = 3;     // times as long as bytes that stand in are wide codes at least
constexpr double kTrusted = 0.75;  // share of sampled rows whose neighbours bytes find, at least

void compare_with_cells(const CellCodes& codes, const CellMap& map, uint32_t budget, NearLists& lists,
                        const Execution& execution) {
  const uint32_t rows = codes.exact.rows();
  const uint32_t listed = codes.listed(lists.k);
  std::vector<UnitSpace> spaces;
  spaces.reserve(execution.threads);
  for (uint32_t worker = 0; worker < execution.threads; ++worker)
    spaces.emplace_back(codes.tiles, map, listed, execution.memory);
  std::atomic<uint64_t> done = 0;
  parallel_for(execution, rows, unit_rows(codes.tiles.stride(), listed),
               [&](uint64_t begin, uint64_t end, uint32_t worker) {
                 compare_unit(codes, map, static_cast<uint32_t>(begin), static_cast<uint32_t>(end - begin),
                              budget, spaces[worker], lists, execution);
                 execution.advance(static_cast<double>(done += end - begin) / rows);
               });
}

/// Rounds of refinement until the sample's recall is `enough`, as long as each finds enough; returns their number.
uint32_t refine_while_short(const CellCodes& codes, const CellMap& map, uint32_t budget,
                            const RecallSample& sample, double enough, NearLists& lists,
                            const Execution& execution) {
  double share = sample.recall(codes.exact, lists.neighbors.data(), lists.k);
  if (share >= enough) return 0;
  Refinement refinement(codes, map, budget, lists, execution);
  uint32_t rounds = 0;
  while (share < enough && rounds < kRoundsMax) {
    const uint64_t found = refinement.round(rounds == 0);
    ++rounds;
    const double before = share;
    share = sample.recall(codes.exact, lists.neighbors.data(), lists.k);
    if (found == 0 || share - before < kLeastGain * (1 - before)) break;
  }
  return rounds;
}

void fill_lists(const CellCodes& codes, const CellMap& map, const RecallSample& sample,
                const CellShares& shares, KnnGraph& graph, const Execution& execution) {
  const uint32_t budget = sample.budget(codes.tiles, map, shares.wanted, execution);
  NearLists lists(graph.rows, graph.k, execution.memory);
  compare_with_cells(codes, map, budget, lists, execution);
  graph.iterations = refine_while_short(codes, map, budget, sample, shares.enough, lists, execution);
  graph.neighbors = std::move(lists.neighbors);
  graph.share = sample.recall(codes.exact, graph.neighbors.data(), graph.k);
}

/// Whether other bytes are shorter enough than the codes to be worth a try.
bool may_stand_in(const Codes& codes) {
  return codes.list_codes() != nullptr ||
         (codes.wide() && codes.stride() >= kShorter * Codes::bytes_stride(codes));
}

/// The same of residuals, whose cells are of floats.
bool may_be_residuals(const Codes& codes) {
  return codes.wide() && codes.stride() >= 2 * residual_stride(codes.stride());
}

/// Lists of float codes, or of those of many columns, by candidates that bytes find.
struct CellsByBytes {
  const Codes& codes;
  const NnDescentParams& params;
  const CellShares& shares;

  /// One step for all rows, or the projection.
  KnnGraph by_codes(const Execution& execution) const {
    const Codes bytes = codes.list_codes() != nullptr ? Codes::of_projection(codes, *codes.list_codes())
                                                      : codes.as_bytes(execution);
    const CellMap map(bytes, params.seed, execution.span(0, 0.2));
    return lists({codes, bytes}, map, execution);
  }

  /// A step for each row, about its cell.
  KnnGraph by_residuals(const Execution& execution) const {
    const CellMap map(codes, params.seed, execution.span(0, 0.2), CellRows::kResiduals);
    return lists({codes, codes, true}, map, execution);
  }

 private:
  /// Empty where bytes do not find the candidates.
  KnnGraph lists(const CellCodes& both, const CellMap& map, const Execution& execution) const {
    KnnGraph graph{Array<uint32_t>(), codes.rows(), params.k, 0};
    RecallSample sample(graph.rows, graph.k, params.seed, execution.memory);
    if (sample.find_truth_by_bytes(codes, both.tiles, map, kTrusted, execution) >= kTrusted)
      fill_lists(both, map, sample, shares, graph, execution.span(0.2, 1));
    return graph;
  }
};

}  // namespace

KnnGraph cells_knn(const Codes& codes, const NnDescentParams& params, const Execution& execution,
                   const CellShares& shares) {
  const uint32_t rows = codes.rows();
  KnnGraph graph{Array<uint32_t>(), rows, params.k, 0};
  if (rows == 0) return graph;
  const CellsByBytes bytes{codes, params, shares};
  if (may_stand_in(codes)) {
    graph = bytes.by_codes(execution.span(0, 0.9));
    if (graph.share >= shares.enough) return graph;
  }
  if (may_be_residuals(codes)) {
    const double by_codes = graph.share;
    graph.neighbors = {};  // lists are held once
    graph = bytes.by_residuals(execution.span(0, 0.9));
    if (graph.share >= std::max(shares.least, by_codes)) return graph;
  }
  graph.neighbors = {};
  RecallSample sample(rows, params.k, params.seed, execution.memory);
  {
    const CellMap map(codes, params.seed, execution);
    sample.find_truth(codes, map, execution.span(0.15, 0.2));
    fill_lists({codes, codes}, map, sample, shares, graph, execution.span(0.2, 0.9));
  }
  if (graph.share >= shares.least || rows <= params.k) return graph;
  KnnGraph descent = nn_descent(codes, params, execution.span(0.9, 1));
  descent.share = sample.recall(codes, descent.neighbors.data(), params.k);
  return descent.share > graph.share ? std::move(descent) : std::move(graph);
}

uint64_t cells_knn_bytes(uint64_t rows, size_t stride, const NnDescentParams& params, uint32_t threads) {
  const uint64_t lists = rows * params.k * 4;
  const uint64_t refining =
      threads * refine_space_bytes(rows, stride, params.k) + refinement_bytes(rows, params.k);
  // Bytes of a comparison by codes of `tiles` bytes, also by bytes in place of float codes, and by residuals of these.
  const auto comparing = [&](size_t tiles, uint32_t listed) {
    const uint64_t units = threads * (unit_bytes(rows, tiles, listed) + unit_bytes(rows, tiles, 1));
    return cell_map_bytes(rows, tiles, threads) + 2 * lists + std::max(units, refining);
  };
  const size_t bytes = round_up(stride / sizeof(float), kCodeAlign);
  // The longer its lists, the fewer rows a unit has: either may take more.
  const uint32_t listed = std::max(cell_candidates(params.k), kRecallLooked);
  uint64_t cells = std::max(comparing(stride, params.k), comparing(stride, listed));
  if (stride >= kShorter * bytes) cells = std::max(cells, rows * bytes + comparing(bytes, listed));
  const uint64_t sampling = recall_sample_bytes(rows, stride, params.k);
  return sampling + std::max(cells, lists + nn_descent_bytes(rows, stride, params, threads));
}

}  // namespace gannet
