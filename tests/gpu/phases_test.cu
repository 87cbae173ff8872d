// Claims about the phases of a build on a CUDA device: each gives what its CPU twin gives, bit for
// bit.
//
//   phases_test [all [WORDS]]   all claims, or those with these words in their text
//   phases_test quick    fewer and smaller cases, for compute-sanitizer
//   phases_test race     a handful, for its racecheck, which is slow
//   phases_test time [FILE.u8bin [ROWS [WORDS]]]   times of each phase; made rows without a file
//
// Ends with 77 where there is no CUDA device.

#include <algorithm>
#include <set>

#include "claims.h"
#include "base/random.h"
#include "graph/search_graph.h"
#include "graph/search_graph_cuda.h"
#include "knn/cells_cuda.h"
#include "knn/exact_knn.h"
#include "knn/exact_knn_cuda.h"
#include "knn/nn_descent_cuda.h"
#include "search/exact_cuda.h"

namespace {

using namespace gannet;
using namespace gannet::test;

bool quick = false;
bool race = false;

Execution all_threads() {
  Execution execution;
  execution.threads = thread_count(0, 0);
  return execution;
}

/// Device memory with the items of a host array, or as many of them not set.
template <class Item>
struct OnDevice {
  OnDevice(const Item* from, uint64_t count, const cuda::Stream& stream)
      : array(count, stream), count_(count), stream_(stream) {
    if (count > 0)
      cuda::check(cudaMemcpyAsync(array.data(), from, count * sizeof(Item), cudaMemcpyHostToDevice,
                                  stream),
                  "sending");
  }
  OnDevice(uint64_t count, const cuda::Stream& stream)
      : array(count, stream), count_(count), stream_(stream) {}

  std::vector<Item> fetch() const {
    std::vector<Item> items(count_);
    if (count_ > 0)
      cuda::check(cudaMemcpyAsync(items.data(), array.data(), count_ * sizeof(Item),
                                  cudaMemcpyDeviceToHost, stream_),
                  "fetching");
    stream_.wait();
    return items;
  }
  Item* data() const { return array.data(); }

  cuda::DeviceArray<Item> array;
  uint64_t count_;
  const cuda::Stream& stream_;
};

/// Lists of distinct random rows, small numbers often, holes at the end of some.
KnnGraph made_lists(uint32_t rows, uint32_t k, uint64_t seed) {
  KnnGraph graph{Array<uint32_t>({}, uint64_t{rows} * k), rows, k, 0};
  graph.neighbors.fill(kNoRow);
  for (uint32_t row = 0; row < rows; ++row) {
    uint32_t* list = graph.neighbors.data() + uint64_t{row} * k;
    uint32_t count = 0;
    const uint64_t tries = random_below(5, seed, 1, row) == 0 ? k / 2 : 2 * k;
    for (uint64_t i = 0; i < tries && count < k; ++i) {
      const uint64_t below = 1 + random_below(rows, seed, 2 + row, 2 * i);
      const uint32_t other = static_cast<uint32_t>(random_below(below, seed, 2 + row, 2 * i + 1));
      if (other != row && std::find(list, list + count, other) == list + count)
        list[count++] = other;
    }
  }
  return graph;
}

void compare_prune(uint32_t rows, uint32_t k, uint32_t degree) {
  const KnnGraph knn = made_lists(rows, k, rows + k);
  const Array<uint32_t> expected = prune_by_rank(knn, degree, all_threads());
  const cuda::DeviceGuard guard(0);
  const cuda::Stream stream;
  const OnDevice<uint32_t> lists(knn.neighbors.data(), knn.neighbors.size(), stream);
  const OnDevice<uint32_t> kept(expected.size(), stream);
  cuda::prune_by_rank(lists.data(), rows, k, degree, kept.data(), stream, Execution());
  const std::vector<uint32_t> found = kept.fetch();
  for (uint64_t i = 0; i < found.size(); ++i)
    expect(found[i] == expected[i], "pruning " + std::to_string(rows) + " x " + std::to_string(k) +
                                        " to " + std::to_string(degree) + ", place " +
                                        std::to_string(i));
}

/// Distances that rise along each list, often equal ones.
Array<uint32_t> made_distances(const KnnGraph& knn, uint64_t seed) {
  Array<uint32_t> distances({}, knn.neighbors.size());
  for (uint64_t i = 0; i < distances.size(); ++i) {
    const uint32_t step = static_cast<uint32_t>(random_below(4, seed, 7, i));
    distances[i] = knn.neighbors[i] == kNoRow ? UINT32_MAX : step + (i % knn.k != 0 ? distances[i - 1] : 0);
  }
  return distances;
}

void compare_prune_by_distance(uint32_t rows, uint32_t k, uint32_t degree) {
  const KnnGraph knn = made_lists(rows, k, rows + k);
  const Array<uint32_t> distances = made_distances(knn, k);
  const Array<uint32_t> expected = prune_by_distance(knn, distances, degree, all_threads());
  const cuda::DeviceGuard guard(0);
  const cuda::Stream stream;
  const OnDevice<uint32_t> lists(knn.neighbors.data(), knn.neighbors.size(), stream);
  const OnDevice<uint32_t> lengths(distances.data(), distances.size(), stream);
  const OnDevice<uint32_t> kept(expected.size(), stream);
  cuda::prune_by_distance(lists.data(), lengths.data(), rows, k, degree, kept.data(), stream,
                          Execution());
  const std::vector<uint32_t> found = kept.fetch();
  for (uint64_t i = 0; i < found.size(); ++i)
    expect(found[i] == expected[i], "pruning by distance " + std::to_string(rows) + " x " +
                                        std::to_string(k) + " to " + std::to_string(degree) +
                                        ", place " + std::to_string(i));
}

void claim_prune_by_distance() {
  for (const uint32_t rows : quick || race ? std::vector{90u} : std::vector{2u, 33u, 300u, 2000u}) {
    for (const uint32_t k : race ? std::vector{40u} : std::vector{1u, 31u, 64u, 65u, 256u}) {
      for (const uint32_t degree : race ? std::vector{32u} : std::vector{2u, 32u, 64u, 100u})
        compare_prune_by_distance(rows, k, degree);
    }
  }
}

void claim_prune() {
  std::vector<uint32_t> sizes = {2, 3, 31, 33, 300, 3000};
  std::vector<uint32_t> ks = {1, 2, 31, 32, 33, 48, 63, 64, 65, 128, 255, 256};
  std::vector<uint32_t> degrees = {2, 3, 16, 31, 32, 33, 64, 100, 256};
  if (quick) sizes = {2, 90}, ks = {2, 48, 65, 256}, degrees = {2, 32, 64};
  if (race) sizes = {70}, ks = {40, 80}, degrees = {32};
  for (const uint32_t rows : sizes) {
    for (const uint32_t k : ks) {
      for (const uint32_t degree : degrees) compare_prune(rows, k, degree);
    }
  }
}

void compare_reverse(uint32_t rows, uint32_t degree, uint64_t workspace) {
  const KnnGraph forward = made_lists(rows, degree, rows * 3 + degree);
  Array<uint32_t> expected({}, forward.neighbors.size());
  std::copy(forward.neighbors.begin(), forward.neighbors.end(), expected.begin());
  add_reverse_edges(expected, rows, degree, all_threads());
  const cuda::DeviceGuard guard(0);
  const cuda::Stream stream;
  const OnDevice<uint32_t> edges(forward.neighbors.data(), forward.neighbors.size(), stream);
  const OnDevice<uint32_t> merged(expected.size(), stream);
  cuda::add_reverse_edges(edges.data(), rows, degree, merged.data(), stream, Execution(), workspace);
  const std::vector<uint32_t> found = merged.fetch();
  for (uint64_t i = 0; i < found.size(); ++i)
    expect(found[i] == expected[i], "merging " + std::to_string(rows) + " x " +
                                        std::to_string(degree) + ", place " + std::to_string(i));
}

void claim_reverse() {
  std::vector<uint32_t> sizes = {1, 2, 31, 32, 33, 255, 256, 257, 3000, 20'000};
  std::vector<uint32_t> degrees = {2, 3, 8, 15, 16, 17, 31, 32, 33, 64, 100, 256};
  if (quick) sizes = {1, 33, 300}, degrees = {2, 16, 17, 33};
  if (race) sizes = {100}, degrees = {8, 32};
  for (const uint32_t rows : sizes) {
    for (const uint32_t degree : degrees) {
      compare_reverse(rows, degree, 0);
      if (rows < 5000) compare_reverse(rows, degree, 1);               // a rank at a time
      if (rows < 5000) compare_reverse(rows, degree, 100 * uint64_t{rows});
    }
  }
}

enum class Shape { kLoose, kShy, kRings, kAlone };

/// A graph with lost rows. Loose: edges to a few rows nearby and to lower numbers. Shy: one row in 97 is
/// known to the next such rows only, all others know each other at random. Rings: islands. Alone: shy, and
/// half the shy rows neither know nor are known.
SearchGraph made_graph(Shape shape, uint32_t rows, uint32_t degree, uint64_t seed) {
  SearchGraph graph;
  graph.rows = rows;
  graph.degree = degree;
  graph.edges = Array<uint32_t>({}, uint64_t{rows} * degree);
  graph.edges.fill(kNoRow);
  const auto below = [&](uint64_t bound, uint64_t stream, uint64_t counter) {
    return static_cast<uint32_t>(random_below(bound, seed, stream, counter));
  };
  const bool has_shy = shape == Shape::kShy || shape == Shape::kAlone;
  const auto shy = [&](uint32_t row) { return has_shy && row % 97 == 5; };
  for (uint32_t row = 0; row < rows; ++row) {
    uint32_t* list = graph.row(row);
    uint32_t count = 0;
    const auto add = [&](uint32_t target) {
      if (target < rows && target != row && count < degree &&
          std::find(list, list + count, target) == list + count)
        list[count++] = target;
    };
    if (shape == Shape::kRings) {
      add(row / 40 * 40 + (row + 1) % 40);
      continue;
    }
    const bool alone = shape == Shape::kAlone && row % 194 == 5;
    const uint32_t tries = alone ? 0 : below(degree + 2, 1, row);
    for (uint32_t i = 0; i < tries; ++i) {
      const uint64_t at = uint64_t{row} * 300 + i;
      uint32_t target = below(rows, 2, at);
      if (shape == Shape::kLoose)
        target = below(3, 3, at) == 0 ? below(row + 1, 4, at) : row / 4 * 4 + below(4, 5, at);
      if (!shy(target)) add(target);
    }
    if (shy(row) && !alone && shape == Shape::kShy) add(row + 97);
    if (shy(row) && !alone && row % 3 == 0) add(row + 2 * 97);
  }
  graph.entries = choose_entries(rows, shape == Shape::kLoose ? 1 : 64, seed, {});
  return graph;
}

/// The graph on the device.
struct SentGraph {
  SentGraph(const SearchGraph& graph, const cuda::Stream& stream)
      : edges(graph.edges.data(), graph.edges.size(), stream),
        entries(graph.entries.data(), graph.entries.size(), stream),
        view{edges.data(), entries.data(), graph.rows, graph.degree,
             static_cast<uint32_t>(graph.entries.size())} {}
  OnDevice<uint32_t> edges;
  OnDevice<uint32_t> entries;
  cuda::GraphView view;
};

struct Repairs {
  uint32_t done = 0;
  uint32_t left = 0;  // to the CPU
};

void compare_repair(Shape shape, uint32_t rows, uint32_t degree, uint64_t seed, Repairs* repairs) {
  SearchGraph graph = made_graph(shape, rows, degree, seed);
  const std::string name = "shape " + std::to_string(static_cast<int>(shape)) + ", " +
                           std::to_string(rows) + " x " + std::to_string(degree) + ", seed " +
                           std::to_string(seed);
  const cuda::DeviceGuard guard(0);
  const cuda::Stream stream;
  const SentGraph sent(graph, stream);
  const uint64_t lost = count_unreachable(graph, {});
  expect(cuda::count_unreachable(sent.view, stream, Execution()) == lost, "lost rows of " + name);
  const cuda::Reach reach = cuda::repair_reachability(sent.view, stream, Execution());
  const std::vector<uint32_t> found = sent.edges.fetch();
  if (lost > cuda::kRepairMax) {
    expect(reach.lost == lost && reach.spent == 0, "what is left to the CPU of " + name);
    ++repairs->left;
  } else {
    expect(reach.lost == 0, "rows are left over of " + name);
    expect(repair_reachability(graph, {}) == reach.spent, "edges spent on " + name);
    repairs->done += lost != 0 ? 1 : 0;
  }
  for (uint64_t i = 0; i < found.size(); ++i)
    expect(found[i] == graph.edges[i], "repair of " + name + ", place " + std::to_string(i));
}

void claim_repair() {
  std::vector<uint32_t> sizes = {1, 2, 31, 32, 33, 97, 1000, 1023, 1024, 1025, 4000, 70'000};
  std::vector<uint32_t> degrees = {1, 2, 5, 31, 32, 33, 64, 256};
  if (quick) sizes = {1, 33, 1500}, degrees = {1, 3, 40};
  if (race) sizes = {300}, degrees = {3, 40};
  Repairs repairs;
  for (const Shape shape : {Shape::kLoose, Shape::kShy, Shape::kRings, Shape::kAlone}) {
    for (const uint32_t rows : sizes) {
      for (const uint32_t degree : degrees) {
        if (uint64_t{rows} * degree > 5'000'000) continue;
        for (uint64_t seed = 0; seed < (rows < 5000 && !race ? 3 : 1); ++seed)
          compare_repair(shape, rows, degree, seed, &repairs);
      }
    }
  }
  std::printf("       %u graphs were repaired, %u left to the CPU\n", repairs.done, repairs.left);
  expect(quick || race || (repairs.done > 50 && repairs.left > 3), "graphs that need repair");
}

void compare_measures(Shape shape, uint32_t rows, uint32_t degree, uint64_t seed) {
  const SearchGraph graph = made_graph(shape, rows, degree, seed);
  ann_graph_stats expected = ANN_GRAPH_STATS_INIT;
  measure_graph(graph, seed, {}, &expected);
  const cuda::DeviceGuard guard(0);
  const cuda::Stream stream;
  const SentGraph sent(graph, stream);
  ann_graph_stats found = ANN_GRAPH_STATS_INIT;
  cuda::measure_graph(sent.view, seed, stream, Execution(), &found);
  expect(std::memcmp(&expected, &found, sizeof found) == 0,
         "measures of shape " + std::to_string(static_cast<int>(shape)) + ", " +
             std::to_string(rows) + " x " + std::to_string(degree) + ": strong components " +
             std::to_string(found.strong_components) + ", not " +
             std::to_string(expected.strong_components) + ", largest " +
             std::to_string(found.largest_strong) + ", not " +
             std::to_string(expected.largest_strong) + ", weak " +
             std::to_string(found.weak_components) + ", not " +
             std::to_string(expected.weak_components));
}

void claim_measures() {
  std::vector<uint32_t> sizes = {0, 1, 2, 31, 33, 300, 2000, 70'000};
  std::vector<uint32_t> degrees = {1, 2, 5, 33, 256};
  if (quick) sizes = {0, 1, 33, 300}, degrees = {1, 3, 40};
  if (race) sizes = {200}, degrees = {3};
  for (const Shape shape : {Shape::kLoose, Shape::kShy, Shape::kRings, Shape::kAlone}) {
    for (const uint32_t rows : sizes) {
      for (const uint32_t degree : degrees) {
        if (uint64_t{rows} * degree <= 5'000'000) compare_measures(shape, rows, degree, rows + degree);
      }
    }
  }
}

/// Codes on both sides, with the stream that holds the device's.
struct BothCodes {
  BothCodes(const Rows& rows, int32_t metric)
      : dataset(rows.dataset(metric)), codes(dataset, 1, all_threads()), guard(0),
        sent(codes, stream, Execution()) {}

  Dataset dataset;
  Codes codes;
  cuda::DeviceGuard guard;
  cuda::Stream stream;
  cuda::DeviceCodes sent;
};

/// Lists equal those of the CPU; their distances are those of codes.
void compare_lists(const BothCodes& both, const KnnGraph& expected,
                   const std::vector<uint32_t>& found, const std::vector<uint32_t>& distances,
                   const std::string& what) {
  const uint32_t k = expected.k;
  const std::string name = what + " " + std::to_string(expected.rows) + " x " +
                           std::to_string(both.dataset.dim()) + " " +
                           element_name(both.dataset.element()) + ", metric " +
                           std::to_string(both.dataset.metric()) + ", k " + std::to_string(k) +
                           (both.codes.wide() ? ", wide" : "");
  std::vector<uint8_t> code(both.codes.stride());
  for (uint32_t row = 0; row < expected.rows; ++row) {
    const uint32_t* list = expected.list(row);
    uint32_t measured[ANN_DEGREE_MAX];
    const uint32_t count = static_cast<uint32_t>(std::find(list, list + k, kNoRow) - list);
    both.codes.gather(&row, 1, code.data());
    both.codes.distances(code.data(), list, count, measured);
    for (uint32_t i = 0; i < k; ++i) {
      const uint64_t at = uint64_t{row} * k + i;
      expect(found[at] == list[i], name + ": row " + std::to_string(row) + ", place " +
                                       std::to_string(i) + " is " + std::to_string(found[at]) +
                                       ", not " + std::to_string(list[i]));
      expect(distances[at] == (i < count ? measured[i] : UINT32_MAX), name + ": a distance");
    }
  }
}

void compare_exact(const Rows& rows, int32_t metric, uint32_t k) {
  const BothCodes both(rows, metric);
  const KnnGraph expected = exact_knn(both.codes, k, all_threads());
  const OnDevice<uint32_t> neighbors(expected.neighbors.size(), both.stream);
  const OnDevice<uint32_t> distances(expected.neighbors.size(), both.stream);
  cuda::exact_knn(both.sent.view(), k, neighbors.data(), distances.data(), both.stream, Execution());
  compare_lists(both, expected, neighbors.fetch(), distances.fetch(), "exact lists of");
}

void claim_exact() {
  std::vector<uint32_t> sizes = {1, 2, 31, 33, 127, 128, 129, 255, 257, 1000};
  std::vector<uint32_t> ks = {1, 10, 127, 128, 129, 256};
  std::vector<uint32_t> dims = {1, 2, 3, 31, 63, 64, 65, 128, 129, 200, 257, 384, 960, 1536};
  if (quick) sizes = {1, 129, 300}, ks = {10, 129}, dims = {3, 65, 200};
  if (race) sizes = {130}, ks = {10, 130}, dims = {65, 130};
  for (const uint32_t n : sizes) {
    for (const uint32_t k : ks) {
      compare_exact(Rows(ANN_U8, n, 20, Values::kNormal, n), ANN_METRIC_L2, k);
      compare_exact(Rows(ANN_F32, n, 2, Values::kNormal, n), ANN_METRIC_L2, k);
    }
  }
  for (const uint32_t dim : dims) {
    for (const int32_t element : kElements) {
      if (race && element != ANN_F32) continue;
      for (const int32_t metric : kMetrics)
        compare_exact(Rows(element, quick ? 150 : 400, dim, Values::kNormal, dim), metric, 24);
    }
  }
  if (race) return;
  for (const Values values : {Values::kClusters, Values::kGrid, Values::kDuplicates, Values::kEqual}) {
    for (const int32_t element : {int32_t{ANN_F32}, int32_t{ANN_I8}})
      compare_exact(Rows(element, quick ? 200 : 3000, 12, values, 5), ANN_METRIC_L2, 40);
  }
  if (!quick) compare_exact(Rows(ANN_U8, 20'000, 128, Values::kClusters, 6), ANN_METRIC_L2, 64);
}

void compare_descent(const Rows& rows, int32_t metric, const NnDescentParams& params) {
  const BothCodes both(rows, metric);
  const KnnGraph expected = nn_descent(both.codes, params, all_threads());
  const OnDevice<uint32_t> neighbors(expected.neighbors.size(), both.stream);
  const OnDevice<uint32_t> distances(expected.neighbors.size(), both.stream);
  const uint32_t rounds = cuda::nn_descent(both.sent.view(), params, neighbors.data(),
                                           distances.data(), both.stream, Execution());
  compare_lists(both, expected, neighbors.fetch(), distances.fetch(),
                "NN-Descent with p " + std::to_string(params.samples) + " on");
  expect(rounds == expected.iterations, "rounds of NN-Descent");
}

void claim_descent() {
  struct Shape {
    uint32_t k, p;
  };
  std::vector<Shape> shapes = {{2, 2},   {12, 5},  {31, 16}, {32, 16},  {33, 17},  {48, 16},
                               {48, 31}, {64, 32}, {65, 33}, {128, 16}, {200, 64}, {256, 64}};
  std::vector<uint32_t> dims = {1, 3, 64, 65, 128, 129, 300, 960};
  std::vector<uint32_t> sizes = {257, 1000, 6000};
  if (quick) shapes = {{12, 5}, {40, 20}, {70, 40}}, dims = {3, 65, 130}, sizes = {300};
  if (race) shapes = {{10, 4}, {20, 17}, {36, 33}}, dims = {130}, sizes = {60};
  const uint32_t rounds = race ? 2 : quick ? 3 : 24;
  for (const Shape shape : shapes) {
    for (const uint32_t n : sizes) {
      if (n < 2 * shape.k && !race) continue;
      const NnDescentParams params{shape.k, shape.p, rounds, 0.02f, 7};
      compare_descent(Rows(ANN_U8, n, 24, Values::kClusters, n), ANN_METRIC_L2, params);
      compare_descent(Rows(ANN_F32, n, 2, Values::kNormal, n), ANN_METRIC_L2, params);
    }
  }
  const NnDescentParams params{24, 12, rounds, 0.01f, 3};
  for (const uint32_t dim : dims) {
    for (const int32_t element : kElements) {
      if (race && element != ANN_F32) continue;
      for (const int32_t metric : kMetrics)
        compare_descent(Rows(element, race ? 60 : quick ? 200 : 700, dim, Values::kNormal, dim),
                        metric, params);
    }
  }
  for (const Values values : {Values::kGrid, Values::kDuplicates, Values::kEqual}) {
    for (const int32_t element : {int32_t{ANN_F32}, int32_t{ANN_I8}})
      compare_descent(Rows(element, race ? 60 : quick ? 250 : 3000, 10, values, 5), ANN_METRIC_L2,
                      params);
  }
  if (!quick && !race)
    compare_descent(Rows(ANN_U8, 50'000, 128, Values::kClusters, 6), ANN_METRIC_L2,
                    {48, 16, 24, 0.02f, 1});
}

// --- Cells ---------------------------------------------------------------------------------------

/// Lists that a row could have: distinct other rows, nearest first, ties by row, their distances.
void check_lists(const BothCodes& both, uint32_t k, const std::vector<uint32_t>& found,
                 const std::vector<uint32_t>& distances) {
  const uint32_t rows = both.codes.rows();
  std::vector<uint8_t> code(both.codes.stride());
  for (uint32_t row = 0; row < rows; ++row) {
    const uint32_t* list = found.data() + uint64_t{row} * k;
    const uint32_t* at = distances.data() + uint64_t{row} * k;
    const uint32_t count = static_cast<uint32_t>(std::find(list, list + k, kNoRow) - list);
    uint32_t measured[ANN_DEGREE_MAX];
    both.codes.gather(&row, 1, code.data());
    both.codes.distances(code.data(), list, count, measured);
    for (uint32_t i = 0; i < k; ++i) {
      expect(i < count ? at[i] == measured[i] : list[i] == kNoRow && at[i] == UINT32_MAX,
             "a distance, or a hole");
      expect(i >= count || (list[i] < rows && list[i] != row), "another row");
      expect(i == 0 || i >= count || std::pair(at[i - 1], list[i - 1]) < std::pair(at[i], list[i]),
             "distinct rows in order");
    }
  }
}

/// With all rows in the budget and all cells in sight, lists are exact.
void compare_products(const Rows& rows, int32_t metric, uint32_t k) {
  const BothCodes both(rows, metric);
  if (both.codes.wide()) return;
  const KnnGraph expected = exact_knn(both.codes, k, all_threads());
  const cuda::CellMap map(both.sent.view(), 1, both.stream, Execution());
  const OnDevice<uint32_t> neighbors(expected.neighbors.size(), both.stream);
  const OnDevice<uint32_t> distances(expected.neighbors.size(), both.stream);
  cuda::compare_with_cells(both.sent.view(), map, k, rows.rows, neighbors.data(), distances.data(),
                           both.stream, Execution());
  compare_lists(both, expected, neighbors.fetch(), distances.fetch(), "all cells of");
  cuda::Judge judge(both.sent.view(), map, k, 1, both.stream);
  expect(judge.share(neighbors.data(), k) == 1, "the judge finds exact lists complete");
  const uint32_t budget = judge.budget(map, 1);
  expect(budget <= rows.rows && (rows.rows < 2 || budget > 0), "a budget within the rows");
}

void claim_products() {
  std::vector<uint32_t> sizes = {2, 33, 191, 192, 384, 1000, 3000, 12'000};
  std::vector<uint32_t> ks = {1, 10, 31, 32, 33, 64, 100, 256};
  std::vector<uint32_t> dims = {8, 63, 64, 65, 128, 129, 200, 384, 960};
  if (quick) sizes = {2, 500}, ks = {10, 100}, dims = {64, 200};
  if (race) sizes = {400}, ks = {20}, dims = {130};
  for (const uint32_t n : sizes) {
    for (const uint32_t k : ks)
      compare_products(Rows(ANN_U8, n, 20, Values::kNormal, n), ANN_METRIC_L2, k);
  }
  for (const uint32_t dim : dims) {
    for (const int32_t element : kElements) {
      if (race && element != ANN_F32) continue;
      for (const int32_t metric : kMetrics)
        compare_products(Rows(element, quick || race ? 400 : 1500, dim, Values::kClusters, dim),
                         metric, 24);
    }
  }
  // Ties at the last place of many lists.
  if (!race) compare_products(Rows(ANN_U8, quick ? 400 : 2500, 6, Values::kGrid, 3), ANN_METRIC_L2, 40);
}

/// What two runs of each step give, on enough blocks to fill a device.
void claim_same() {
  const uint32_t n = race ? 300 : quick ? 2000 : 100'000;
  const Rows rows(ANN_U8, n, 128, Values::kClusters, 2);
  const BothCodes both(rows, ANN_METRIC_L2);
  const cuda::CellMap first(both.sent.view(), 1, both.stream, Execution());
  const cuda::CellMap second(both.sent.view(), 1, both.stream, Execution());
  const auto same = [&](const auto* a, const auto* b, uint64_t count, const std::string& what) {
    using Item = std::remove_cv_t<std::remove_pointer_t<decltype(a)>>;
    std::vector<Item> left(count), right(count);
    cudaMemcpyAsync(left.data(), a, count * sizeof(Item), cudaMemcpyDeviceToHost, both.stream);
    cudaMemcpyAsync(right.data(), b, count * sizeof(Item), cudaMemcpyDeviceToHost, both.stream);
    both.stream.wait();
    expect(left == right, what + " are the same twice");
  };
  const uint32_t cells = first.cells();
  same(first.view().centroids.data, second.view().centroids.data,
       uint64_t{cells} * both.sent.view().stride, "centroids");
  same(first.view().homes, second.view().homes, n, "homes");
  same(first.view().members, second.view().members, n, "members");
  same(first.view().begins, second.view().begins, cells + 1, "begins");
  same(first.view().near, second.view().near, uint64_t{cells} * cuda::kNearCells, "near cells");
  const OnDevice<uint32_t> lists(uint64_t{n} * 64, both.stream);
  const OnDevice<uint32_t> again(uint64_t{n} * 64, both.stream);
  for (const uint32_t budget : {n / 20, n / 10, n / 5}) {
    cuda::compare_with_cells(both.sent.view(), first, 64, budget, lists.data(), nullptr, both.stream,
                             Execution());
    cuda::compare_with_cells(both.sent.view(), first, 64, budget, again.data(), nullptr, both.stream,
                             Execution());
    same(lists.data(), again.data(), uint64_t{n} * 64, "lists");
    const OnDevice<uint32_t> fewer(uint64_t{n} * 40, both.stream);
    cuda::compare_with_cells(both.sent.view(), first, 40, budget, fewer.data(), nullptr, both.stream,
                             Execution());
    const std::vector<uint32_t> longer = lists.fetch(), shorter = fewer.fetch();
    for (uint64_t i = 0; i < shorter.size(); ++i)
      expect(shorter[i] == longer[i / 40 * 64 + i % 40], "a shorter list is the head of a longer one");
  }
}

void claim_cells() {
  const uint32_t n = race ? 500 : quick ? 1000 : 30'000;
  for (const Values values : {Values::kClusters, Values::kGrid, Values::kDuplicates, Values::kEqual}) {
    if (race && values != Values::kClusters) continue;
    const Rows rows(ANN_U8, n, 32, values, 2);
    const BothCodes both(rows, ANN_METRIC_L2);
    const NnDescentParams params{24, 12, 12, 0.02f, 5};
    const OnDevice<uint32_t> neighbors(uint64_t{n} * 24, both.stream);
    const OnDevice<uint32_t> distances(uint64_t{n} * 24, both.stream);
    std::vector<uint32_t> first;
    cuda::CellsReport report;
    for (uint32_t run = 0; run < 2; ++run) {
      report = cuda::cells_knn(both.sent.view(), params, neighbors.data(), distances.data(),
                               both.stream, Execution());
      if (run == 0) first = neighbors.fetch();
    }
    const std::vector<uint32_t> again = neighbors.fetch();
    expect(first == again, "two runs give the same lists");
    check_lists(both, 24, again, distances.fetch());
    const KnnGraph exact = exact_knn(both.codes, 24, all_threads());
    const std::vector<uint32_t> at = distances.fetch();
    std::vector<uint8_t> code(both.codes.stride());
    uint64_t hits = 0;
    for (uint32_t row = 0; row < n; ++row) {
      const uint32_t last = exact.list(row)[23];
      uint32_t farthest = 0;
      both.codes.gather(&row, 1, code.data());
      both.codes.distances(code.data(), &last, 1, &farthest);
      for (uint32_t i = 0; i < 24; ++i) hits += at[uint64_t{row} * 24 + i] <= farthest ? 1 : 0;
    }
    const double recall = static_cast<double>(hits) / (uint64_t{n} * 24);
    if (!quick && !race)
      std::printf("       values %d: %u cells, budget %u, share %.4f by the judge, %.4f in truth, "
                  "%u rounds of NN-Descent\n",
                  static_cast<int>(values), report.cells, report.budget, report.share, recall,
                  report.iterations);
    expect(recall > 0.9 && std::abs(recall - report.share) < 0.04, "the share that the judge names");
  }
}

// --- Times ---------------------------------------------------------------------------------------

const char* data_file = nullptr;
uint32_t data_rows = 1'000'000;

/// Share of the true `k` nearest of 5,000 rows that lists hold among their first k, ties counted.
double recall(const Rows& rows, const std::vector<uint32_t>& lists, uint32_t list_k, uint32_t k) {
  const uint32_t count = std::min(5000u, rows.rows);
  const Dataset dataset = rows.dataset(ANN_METRIC_L2);
  std::vector<uint8_t> queries(uint64_t{count} * rows.dim);
  std::vector<uint32_t> sample(count);
  for (uint32_t i = 0; i < count; ++i) {
    sample[i] = static_cast<uint32_t>(uint64_t{i} * rows.rows / count);
    std::copy_n(rows.bytes.begin() + uint64_t{sample[i]} * rows.dim, rows.dim,
                queries.begin() + uint64_t{i} * rows.dim);
  }
  std::vector<uint32_t> found(uint64_t{count} * (k + 1));
  std::vector<float> distances(found.size());
  cuda::search_exact({0, dataset.view(), dataset.rows(), ANN_METRIC_L2, nullptr, nullptr,
                      queries.data(), nullptr, count, k + 1, found.data(), distances.data()},
                     Execution());
  uint64_t hits = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const float farthest = distances[uint64_t{i} * (k + 1) + k];
    for (uint32_t j = 0; j < k; ++j) {
      const uint32_t other = lists[uint64_t{sample[i]} * list_k + j];
      if (other == kNoRow) continue;
      float sum = 0;
      for (uint32_t column = 0; column < rows.dim; ++column) {
        const int32_t gap = rows.bytes[uint64_t{sample[i]} * rows.dim + column] -
                            rows.bytes[uint64_t{other} * rows.dim + column];
        sum += static_cast<float>(gap * gap);
      }
      hits += sum <= farthest ? 1 : 0;
    }
  }
  return static_cast<double>(hits) / (uint64_t{count} * k);
}

double quality(const std::vector<uint32_t>& distances) {
  double sum = 0;
  for (const uint32_t distance : distances) sum += distance == UINT32_MAX ? 0 : distance;
  return sum;
}

void time_descent(const Rows& rows, const BothCodes& both, const NnDescentParams& params) {
  const OnDevice<uint32_t> neighbors(uint64_t{rows.rows} * params.k, both.stream);
  const OnDevice<uint32_t> distances(uint64_t{rows.rows} * params.k, both.stream);
  uint32_t rounds = 0;
  const double ms = median_ms([&] {
    rounds = cuda::nn_descent(both.sent.view(), params, neighbors.data(), distances.data(),
                              both.stream, Execution());
  });
  const std::vector<uint32_t> lists = neighbors.fetch();
  std::printf("time nn_descent %u x %u, k %u, p %u, convergence %g: %.1f ms, %u rounds, recall@10 "
              "%.4f, @32 %.4f, phi %.6g\n",
              rows.rows, rows.dim, params.k, params.samples, static_cast<double>(params.convergence),
              ms, rounds, recall(rows, lists, params.k, 10),
              recall(rows, lists, params.k, std::min(32u, params.k)), quality(distances.fetch()));
}

void time_cells(const Rows& rows, const BothCodes& both, uint32_t k) {
  const OnDevice<uint32_t> neighbors(uint64_t{rows.rows} * k, both.stream);
  cuda::CellsReport report;
  const double ms = median_ms([&] {
    report = cuda::cells_knn(both.sent.view(), {k, 16, 24, 0.02f, 1}, neighbors.data(), nullptr,
                             both.stream, Execution());
    both.stream.wait();
  });
  const std::vector<uint32_t> lists = neighbors.fetch();
  std::printf("time cells %u x %u, k %u: %.1f ms, %u cells, budget %u, share %.4f, %u rounds of "
              "NN-Descent, recall@10 %.4f, @32 %.4f\n",
              rows.rows, rows.dim, k, ms, report.cells, report.budget, report.share,
              report.iterations, recall(rows, lists, k, 10), recall(rows, lists, k, std::min(32u, k)));
  std::printf("time cells, the map: %.1f ms\n", median_ms([&] {
                const cuda::CellMap map(both.sent.view(), 1, both.stream, Execution());
                both.stream.wait();
              }));
  const cuda::CellMap map(both.sent.view(), 1, both.stream, Execution());
  std::printf("time cells, the judge: %.1f ms\n", median_ms([&] {
                cuda::Judge judge(both.sent.view(), map, k, 1, both.stream);
                judge.budget(map, 0.97);
              }));
  std::printf("time cells, products: %.1f ms\n", median_ms([&] {
                cuda::compare_with_cells(both.sent.view(), map, k, report.budget, neighbors.data(),
                                         nullptr, both.stream, Execution());
                both.stream.wait();
              }));
}

void time_optimise(const BothCodes& both, uint32_t k, uint32_t degree) {
  const uint32_t rows = both.codes.rows();
  const OnDevice<uint32_t> lists(uint64_t{rows} * k, both.stream);
  cuda::nn_descent(both.sent.view(), {k, 16, 6, 0.02f, 1}, lists.data(), nullptr, both.stream,
                   Execution());
  const OnDevice<uint32_t> kept(uint64_t{rows} * degree, both.stream);
  const OnDevice<uint32_t> merged(uint64_t{rows} * degree, both.stream);
  const double prune = median_ms([&] {
    cuda::prune_by_rank(lists.data(), rows, k, degree, kept.data(), both.stream, Execution());
    both.stream.wait();
  });
  const double reverse = median_ms([&] {
    cuda::add_reverse_edges(kept.data(), rows, degree, merged.data(), both.stream, Execution());
    both.stream.wait();
  });
  std::printf("time optimise %u rows, %u -> %u: prune %.2f ms, reverse edges %.2f ms\n", rows, k,
              degree, prune, reverse);

  const Array<uint32_t> entry_rows = choose_entries(rows, 64, 1, {});
  const OnDevice<uint32_t> entries(entry_rows.data(), entry_rows.size(), both.stream);
  const cuda::GraphView graph = {merged.data(), entries.data(), rows, degree,
                                 static_cast<uint32_t>(entry_rows.size())};
  const double reach = median_ms([&] { cuda::count_unreachable(graph, both.stream, Execution()); });
  const uint32_t lost = cuda::count_unreachable(graph, both.stream, Execution());
  cuda::Reach repair;
  const double repairing = milliseconds_of(
      [&] { repair = cuda::repair_reachability(graph, both.stream, Execution()); });
  ann_graph_stats stats = ANN_GRAPH_STATS_INIT;
  const double measuring = milliseconds_of(
      [&] { cuda::measure_graph(graph, 1, both.stream, Execution(), &stats); });
  std::printf("     tree %.2f ms, repair with it %.2f ms, %u lost rows, %u edges spent; measures %.1f ms: "
              "%llu strong components, %.1f rows within two edges\n",
              reach, repairing, lost, repair.spent, measuring,
              static_cast<unsigned long long>(stats.strong_components), stats.two_hop_mean);
}

Rows timed_rows() {
  return data_file != nullptr ? read_u8bin(data_file, data_rows)
                              : Rows(ANN_U8, 200'000, 128, Values::kClusters, 1);
}

void claim_descent_times() {
  const Rows rows = timed_rows();
  const BothCodes both(rows, ANN_METRIC_L2);
  std::printf("time sending codes %u x %u: %.2f ms\n", rows.rows, rows.dim, median_ms([&] {
                const cuda::DeviceCodes again(both.codes, both.stream, Execution());
                both.stream.wait();
              }));
  for (const NnDescentParams& params :
       {NnDescentParams{48, 16, 24, 0.02f, 1}, NnDescentParams{64, 16, 24, 0.02f, 1},
        NnDescentParams{64, 10, 24, 0.02f, 1}, NnDescentParams{64, 24, 24, 0.02f, 1},
        NnDescentParams{64, 32, 24, 0.02f, 1}, NnDescentParams{64, 32, 24, 0.002f, 1}})
    time_descent(rows, both, params);
}

void claim_cell_times() {
  const Rows rows = timed_rows();
  const BothCodes both(rows, ANN_METRIC_L2);
  time_cells(rows, both, 48);
  time_cells(rows, both, 64);
}

void claim_optimise_times() {
  const BothCodes both(timed_rows(), ANN_METRIC_L2);
  time_optimise(both, 48, 32);
  time_optimise(both, 64, 64);
  time_optimise(both, 96, 64);
}

void claim_exact_times() {
  const Rows rows = timed_rows();
  const BothCodes both(rows, ANN_METRIC_L2);
  const OnDevice<uint32_t> lists(uint64_t{rows.rows} * 64, both.stream);
  std::printf("time exact_knn %u x %u, k 64: %.1f ms\n", rows.rows, rows.dim, milliseconds_of([&] {
                cuda::exact_knn(both.sent.view(), 64, lists.data(), nullptr, both.stream,
                                Execution());
              }));
}

constexpr Claim kClaims[] = {
    {"pruning keeps what the CPU keeps", claim_prune},
    {"pruning by distances keeps what the CPU keeps", claim_prune_by_distance},
    {"reverse edges are merged as on the CPU, in slices of any size", claim_reverse},
    {"lost rows are hung where the CPU hangs them", claim_repair},
    {"measures of graphs are the CPU's", claim_measures},
    {"exact lists are the CPU's", claim_exact},
    {"NN-Descent makes the CPU's lists", claim_descent},
    {"products with all cells are exact lists", claim_products},
    {"each step of cells gives the same twice", claim_same},
    {"cells find what the judge says, the same twice", claim_cells},
};
constexpr Claim kTimes[] = {{"times of NN-Descent", claim_descent_times},
                            {"times of cells", claim_cell_times},
                            {"times of the optimisation", claim_optimise_times},
                            {"times of exact lists", claim_exact_times}};

}  // namespace

int main(int count, char** arguments) {
  const std::string mode = count > 1 ? arguments[1] : "";
  race = mode == "race";
  quick = mode == "quick";
  if (count > 2) data_file = arguments[2];
  if (count > 3) data_rows = static_cast<uint32_t>(std::strtoul(arguments[3], nullptr, 10));
  if (mode == "time") return run_claims(kTimes, count > 4 ? arguments[4] : "");
  return run_claims(kClaims, count > 2 ? arguments[2] : "");
}
