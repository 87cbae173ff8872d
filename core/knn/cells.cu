// Cells: the phase on one screen; cells_cuda.h describes it.
//
// Device memory, beside the codes and the result, of a row of s bytes and lists of L = 64 (k up to 64),
// 256 or 512 entries: s + 8 for codes, squares and numbers by place; 4 L three times for lists, two of places
// and one of distances; 256 for reverse lists. Of 131,072 rows, or a 16th of all, 5,544 bytes for
// candidates and pairs, while there are no reverse lists yet. Wide codes of s bytes: s and s / 4 more.
//
// Where cells find too little. In many dimensions a row's neighbours lie in more cells than are near, and cells and
// NN-Descent miss different ones: lists of both are merged, and then those of another map, whose cells part rows
// elsewhere. While these are made distances take 4 k bytes a row, their lists 8 k, and the map and, of wide codes, the
// codes by place of the first map stay. 500,000 rows, one NVIDIA H200, the share of the 32 nearest:
//
//                                  cells  NN-Descent  both merged  and two maps more
//     ReLU of 32 normal, x 512      .794        .750         .920               .983
//     ReLU of 48 normal, x 256      .849        .727         .926               .989
//     normal, x 128                 .475        .190         .534               .816
//
// 10,000 queries of ReLU x 512 take .6 of the time at .95 that they take by cells alone, and at .99 a fourth of that
// for comparing all rows, which the better of the two lists was left to; with one map more .9 of that. Normal x 128 at
// .9: both merged .19 M/s, with two maps more .26. ReLU x 256 gains nothing by maps at .99. Of a build of .6 s of ReLU
// x 512 NN-Descent takes .14 and a map .09. Two maps without NN-Descent find .962 there and make a worse graph: .12
// M/s at .99 where .27 are had. A round of neighbours' neighbours of merged lists (30 ms, .920 to .937) left searches
// as they were.

#include "knn/cells_cuda.h"

#include <algorithm>
#include <optional>

#include "knn/nn_descent_cuda.h"

namespace gannet::cuda {
namespace {

constexpr uint32_t kRoundsMax = 6;
// Share of the missing neighbours that a round or a map finds, or it is the last.
constexpr double kLeastGain = 0.1;
constexpr uint32_t kMapsMax = 2;  // beside the first

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
  const auto measure = [&] { report.lists = sample.measure(lists.distances.data(), lists.length, k, false); };
  measure();
  while (report.lists.share < effort.enough && report.rounds < kRoundsMax) {
    const double before = report.lists.share;
    round();
    measure();
    if (report.lists.share - before < kLeastGain * (1 - before)) break;
  }
}

/// Lists by row number with their distances, into which others of the same rows are merged.
struct MergedLists {
  uint32_t rows;
  uint32_t k;
  uint32_t* neighbors;  // [rows, k]
  uint32_t* distances;  // [rows, k]

  /// find(neighbors, distances) fills lists of another way.
  template <class Find>
  void add(const Find& find, const Stream& stream) const {
    const uint64_t places = uint64_t{rows} * k;
    const DeviceArray<uint32_t> more(places, stream);
    const DeviceArray<uint32_t> more_distances(places, stream);
    find(more.data(), more_distances.data());
    merge_lists(rows, k, neighbors, distances, more.data(), more_distances.data(), stream);
  }

  ListMeasures measure(const RecallSample& sample) const { return sample.measure(distances, k, k, true); }
};

/// Merges the lists of NN-Descent, and of other maps while too few neighbours are found and these help.
void find_more(const CodesView& codes, const NnDescentParams& params, const CellsEffort& effort,
               const RecallSample& sample, const MergedLists& lists, CellsReport& report,
               const Stream& stream, const Execution& execution) {
  lists.add(
      [&](uint32_t* neighbors, uint32_t* distances) {
        report.iterations = nn_descent(codes, params, neighbors, distances, stream, execution.span(0, 0.5));
      },
      stream);
  report.lists = lists.measure(sample);
  NnDescentParams other = params;
  CellsEffort once = effort;
  once.least = 0;
  for (uint32_t map = 0; map < kMapsMax && report.lists.share < effort.enough; ++map) {
    ++other.seed;
    lists.add(
        [&](uint32_t* neighbors, uint32_t* distances) {
          cells_knn(codes, other, once, neighbors, distances, stream,
                    execution.span(0.5 + 0.25 * map, 0.75 + 0.25 * map));
        },
        stream);
    const double before = report.lists.share;
    report.lists = lists.measure(sample);
    if (report.lists.share - before < kLeastGain * (1 - before)) break;
  }
}

/// Null where there is no memory.
uint32_t* room_for_distances(std::optional<DeviceArray<uint32_t>>& room, uint64_t places,
                             const Stream& stream) {
  try {
    return room.emplace(places, stream).data();
  } catch (const Error& error) {
    if (error.status != ANN_DEVICE_NO_MEMORY) throw;
    return nullptr;
  }
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
  const bool finds_too_little = report.lists.share < effort.least && codes.rows > params.k;
  std::optional<DeviceArray<uint32_t>> measured;
  if (finds_too_little && distances == nullptr) distances = room_for_distances(measured, places, stream);
  write_lists(view, lists->now(), params.k, neighbors, distances, stream);
  lists.reset();
  if (!finds_too_little || distances == nullptr) return report;

  try {
    find_more(codes, params, effort, sample, {codes.rows, params.k, neighbors, distances}, report, stream,
              execution.span(0.9, 1));
  } catch (const Error& error) {
    // The lists that were merged are complete.
    if (error.status != ANN_DEVICE_NO_MEMORY) throw;
  }
  return report;
}

}  // namespace gannet::cuda
