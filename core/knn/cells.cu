// Cells: the phase on one screen; cells_cuda.h describes it.
//
// Device memory, beside the codes and the result, of a row of s bytes and lists of L = 64 (k up to 64),
// 256 or 512 entries: s + 8 for codes, squares and numbers by place; 4 L three times for lists, two of places
// and one of distances; 256 for reverse lists. Of 131,072 rows, or a 16th of all, 5,544 bytes for
// candidates and pairs, while there are no reverse lists yet. Wide codes of s bytes: s and s / 4 more.

#include "knn/cells_cuda.h"

#include <algorithm>
#include <optional>

#include "knn/nn_descent_cuda.h"

namespace gannet::cuda {
namespace {

constexpr uint32_t kRoundsMax = 6;
constexpr double kLeastGain = 0.1;  // share of the missing neighbours that a round finds, or it is the last

/// Lists twice: rounds read one and write the other.
struct PingPong {
  DeviceArray<uint32_t> near[2];
  DeviceArray<uint32_t> distances;
  uint32_t length;
  uint32_t reading = 0;

  PingPong(uint32_t rows, uint32_t length, const Stream& stream)
      : near{{uint64_t{rows} * length, stream}, {uint64_t{rows} * length, stream}},
        distances(uint64_t{rows} * length, stream),
        length(length) {}
  PlaceLists now() const { return {near[reading].data(), distances.data(), length}; }
  PlaceLists other() const { return {near[1 - reading].data(), distances.data(), length}; }
};

/// Rounds of neighbours' neighbours, first as many as effort.rounds, then while recall is below effort.enough
/// and they help.
void refine(const CellsView& map, const CellsEffort& effort, const RecallSample& sample, uint32_t k,
            PingPong& lists, CellsReport& report, const Stream& stream, const Execution& execution) {
  const DeviceArray<uint32_t> reverse(uint64_t{map.codes.rows} * effort.reverse, stream);
  const auto round = [&] {
    refine_lists(map, lists.now(), lists.other(), effort, report.rounds > 0, reverse.data(), stream,
                 execution.span(0.3 + 0.1 * report.rounds, 0.4 + 0.1 * report.rounds));
    lists.reading = 1 - lists.reading;
    ++report.rounds;
  };
  while (report.rounds < std::max(effort.rounds, 1u)) round();
  report.share = sample.recall(lists.distances.data(), lists.length, k, false);
  while (report.share < effort.enough && report.rounds < kRoundsMax) {
    const double before = report.share;
    round();
    report.share = sample.recall(lists.distances.data(), lists.length, k, false);
    if (report.share - before < kLeastGain * (1 - before)) break;
  }
}

/// Takes the lists of NN-Descent where they are better. Where there is no memory for them, all is as it was.
void descend(const CodesView& codes, const NnDescentParams& params, const RecallSample& sample,
             uint32_t* neighbors, uint32_t* distances, CellsReport& report, const Stream& stream,
             const Execution& execution) {
  const uint64_t places = uint64_t{codes.rows} * params.k;
  const DeviceArray<uint32_t> others(places, stream);
  const DeviceArray<uint32_t> other_distances(places, stream);
  const uint32_t rounds = nn_descent(codes, params, others.data(), other_distances.data(), stream, execution);
  const double share = sample.recall(other_distances.data(), params.k, params.k, true);
  if (share <= report.share) return;
  report.share = share;
  report.iterations = rounds;
  const auto take = [&](uint32_t* to, const uint32_t* from) {
    copy_on_device(to, from, places * sizeof(uint32_t), stream, "copying lists");
  };
  take(neighbors, others.data());
  if (distances != nullptr) take(distances, other_distances.data());
}

}  // namespace

CellsReport cells_knn(const CodesView& codes, const NnDescentParams& params, const CellsEffort& wanted,
                      uint32_t* neighbors, uint32_t* distances, const Stream& stream,
                      const Execution& execution) {
  const CellsEffort effort = effort_for(params.k, wanted);
  CellsReport report;
  const uint64_t places = uint64_t{codes.rows} * params.k;
  if (places == 0) return report;
  std::optional<WideAsBytes> bytes;
  if (codes.wide()) bytes.emplace(codes, stream);
  std::optional<PingPong> lists(std::in_place, codes.rows, list_length(params.k), stream);
  const CellMap map(codes.wide() ? bytes->view() : codes, params.seed, effort, lists->other().near, stream,
                    execution.span(0, 0.1));
  bytes.reset();
  CellsView view = map.view();
  const DeviceArray<uint8_t> sorted(codes.wide() ? uint64_t{codes.rows} * codes.stride : 0, stream);
  if (codes.wide()) {
    sort_by_place(codes, view.members, sorted.data(), stream);
    view.exact = {sorted.data(), nullptr, codes.rows, codes.stride};
  }
  const RecallSample sample(view, params.seed, stream);
  report.cells = view.cells;
  compare_with_cells(map, effort, lists->now(), stream, execution.span(0.1, 0.3));
  refine(view, effort, sample, params.k, *lists, report, stream, execution);
  write_lists(view, lists->now(), params.k, neighbors, distances, stream);
  lists.reset();
  if (report.share >= effort.least || codes.rows <= params.k) return report;

  try {
    descend(codes, params, sample, neighbors, distances, report, stream, execution.span(0.9, 1));
  } catch (const Error& error) {
    // The lists of the cells are complete.
    if (error.status != ANN_DEVICE_NO_MEMORY) throw;
  }
  return report;
}

}  // namespace gannet::cuda
