// Cells: the phase on one screen. What it does is said in cells_cuda.h.

#include "knn/cells_cuda.h"
#include "knn/nn_descent_cuda.h"

namespace gannet::cuda {
namespace {

// Shares of the true neighbours: aimed at by the products, and too few to keep; as on the CPU.
constexpr double kWantedShare = 0.97;
constexpr double kLeastShare = 0.90;

}  // namespace

CellsReport cells_knn(const CodesView& codes, const NnDescentParams& params, uint32_t* neighbors,
                      uint32_t* distances, const Stream& stream, const Execution& execution) {
  CellsReport report;
  if (codes.rows == 0) return report;
  if (codes.wide()) {
    report.iterations = nn_descent(codes, params, neighbors, distances, stream, execution);
    return report;
  }
  const CellMap map(codes, params.seed, stream, execution);
  Judge judge(codes, map, params.k, params.seed, stream);
  report.cells = map.cells();
  report.budget = judge.budget(map, kWantedShare);
  compare_with_cells(codes, map, params.k, report.budget, neighbors, distances, stream,
                     execution.span(0.1, 0.8));
  report.share = judge.share(neighbors, params.k);
  if (report.share >= kLeastShare || codes.rows <= params.k) return report;

  const uint64_t places = uint64_t{codes.rows} * params.k;
  const DeviceArray<uint32_t> others(places, stream);
  const DeviceArray<uint32_t> other_distances(distances != nullptr ? places : 0, stream);
  const uint32_t rounds = nn_descent(codes, params, others.data(), other_distances.data(), stream,
                                     execution.span(0.8, 1));
  const double share = judge.share(others.data(), params.k);
  if (share <= report.share) return report;
  report.share = share;
  report.iterations = rounds;
  const auto take = [&](uint32_t* to, const uint32_t* from) {
    check(cudaMemcpyAsync(to, from, places * sizeof(uint32_t), cudaMemcpyDeviceToDevice, stream),
          "copying lists");
  };
  take(neighbors, others.data());
  if (distances != nullptr) take(distances, other_distances.data());
  return report;
}

}  // namespace gannet::cuda
