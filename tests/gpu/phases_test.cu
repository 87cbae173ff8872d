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
#include "graph/long_edges.h"
#include "graph/long_edges_cuda.h"
#include "graph/search_graph_cuda.h"
#include "graph/bypass_rule.h"
#include "knn/cells_cuda.h"
#include "knn/exact_knn.h"
#include "knn/exact_knn_cuda.h"
#include "knn/nn_descent_cuda.h"
#include "knn/products.h"
#include "search/exact_cuda.h"
#include "place/bypass_edges_cuda.h"
#include "place/narrow_codes_cuda.h"

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
      cuda::check(cudaMemcpyAsync(array.data(), from, count * sizeof(Item), cudaMemcpyHostToDevice, stream),
                  "sending");
  }
  OnDevice(uint64_t count, const cuda::Stream& stream)
      : array(count, stream), count_(count), stream_(stream) {}

  std::vector<Item> fetch() const {
    std::vector<Item> items(count_);
    if (count_ > 0)
      cuda::check(
          cudaMemcpyAsync(items.data(), array.data(), count_ * sizeof(Item), cudaMemcpyDeviceToHost, stream_),
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
      if (other != row && std::find(list, list + count, other) == list + count) list[count++] = other;
    }
  }
  return graph;
}

void compare_prune(uint32_t rows, uint32_t k, const Pruning& pruning) {
  const KnnGraph knn = made_lists(rows, k, rows + k);
  const Array<uint32_t> expected = prune_by_rank(knn, pruning, all_threads());
  const cuda::DeviceGuard guard(0);
  const cuda::Stream stream;
  const OnDevice<uint32_t> lists(knn.neighbors.data(), knn.neighbors.size(), stream);
  const OnDevice<uint32_t> kept(expected.size(), stream);
  cuda::prune_by_rank(lists.data(), rows, k, pruning, kept.data(), stream, Execution());
  const std::vector<uint32_t> found = kept.fetch();
  for (uint64_t i = 0; i < found.size(); ++i)
    expect(found[i] == expected[i], "pruning " + std::to_string(rows) + " x " + std::to_string(k) + " to " +
                                        std::to_string(pruning.degree) + " by " +
                                        std::to_string(pruning.looked_at) + ", place " + std::to_string(i));
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

void compare_prune_by_distance(uint32_t rows, uint32_t k, const Pruning& pruning) {
  const KnnGraph knn = made_lists(rows, k, rows + k);
  const Array<uint32_t> distances = made_distances(knn, k);
  const Array<uint32_t> expected = prune_by_distance(knn, distances, pruning, all_threads());
  const cuda::DeviceGuard guard(0);
  const cuda::Stream stream;
  const OnDevice<uint32_t> lists(knn.neighbors.data(), knn.neighbors.size(), stream);
  const OnDevice<uint32_t> lengths(distances.data(), distances.size(), stream);
  const OnDevice<uint32_t> kept(expected.size(), stream);
  cuda::prune_by_distance(lists.data(), lengths.data(), rows, k, pruning, kept.data(), stream, Execution());
  const std::vector<uint32_t> found = kept.fetch();
  for (uint64_t i = 0; i < found.size(); ++i)
    expect(found[i] == expected[i], "pruning by distance " + std::to_string(rows) + " x " +
                                        std::to_string(k) + " to " + std::to_string(pruning.degree) + " by " +
                                        std::to_string(pruning.looked_at) + ", place " + std::to_string(i));
}

void claim_prune_by_distance() {
  for (const uint32_t rows : quick || race ? std::vector{90u} : std::vector{2u, 33u, 300u, 2000u}) {
    for (const uint32_t k : race ? std::vector{40u} : std::vector{1u, 31u, 64u, 65u, 256u}) {
      for (const uint32_t degree : race ? std::vector{32u} : std::vector{2u, 32u, 64u, 100u})
        for (const uint32_t looked_at : {degree, k})
          compare_prune_by_distance(rows, k, {degree, looked_at, true});
    }
  }
  if (race) return;
  compare_prune_by_distance(quick ? 90 : 1000, 300, {200, 200, true});
  compare_prune_by_distance(quick ? 90 : 700, 512, {256, 512, true});
}

void claim_prune() {
  std::vector<uint32_t> sizes = {2, 3, 31, 33, 300, 3000};
  std::vector<uint32_t> ks = {1, 2, 31, 32, 33, 48, 63, 64, 65, 128, 255, 256, 257, 300, 512};
  std::vector<uint32_t> degrees = {2, 3, 16, 31, 32, 33, 64, 100, 256};
  if (quick) sizes = {2, 90}, ks = {2, 48, 65, 256, 300}, degrees = {2, 32, 64};
  if (race) sizes = {70}, ks = {40, 80}, degrees = {32};
  for (const uint32_t rows : sizes) {
    for (const uint32_t k : ks) {
      for (const uint32_t degree : degrees) {
        compare_prune(rows, k, Pruning::near(degree));
        if (rows <= 300) compare_prune(rows, k, {degree, k, false});
      }
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
    expect(found[i] == expected[i], "merging " + std::to_string(rows) + " x " + std::to_string(degree) +
                                        ", place " + std::to_string(i));
}

void claim_reverse() {
  std::vector<uint32_t> sizes = {1, 2, 31, 32, 33, 255, 256, 257, 3000, 20'000};
  std::vector<uint32_t> degrees = {2, 3, 8, 15, 16, 17, 31, 32, 33, 64, 100, 256};
  if (quick) sizes = {1, 33, 300}, degrees = {2, 16, 17, 33};
  if (race) sizes = {100}, degrees = {8, 32};
  for (const uint32_t rows : sizes) {
    for (const uint32_t degree : degrees) {
      compare_reverse(rows, degree, 0);
      if (rows < 5000) compare_reverse(rows, degree, 1);  // a rank at a time
      if (rows < 5000) compare_reverse(rows, degree, 100 * uint64_t{rows});
    }
  }
}

/// The distance of two codes, floats where they are wide.
double code_distance(const Codes& codes, uint32_t a, uint32_t b) {
  double sum = 0;
  for (size_t byte = 0; byte < codes.stride(); byte += codes.wide() ? sizeof(float) : 1) {
    double values[2];
    for (uint32_t side = 0; side < 2; ++side) {
      const uint8_t* code = codes.row(side == 0 ? a : b) + byte;
      float wide = 0;
      if (codes.wide()) std::memcpy(&wide, code, sizeof wide);
      values[side] = codes.wide() ? double{wide} : codes.flip() != 0 ? static_cast<int8_t>(*code) : *code;
    }
    sum += (values[0] - values[1]) * (values[0] - values[1]);
  }
  return sum;
}

/// Whether every edge that is not led on stands as it was, and the others lead to the nearest within the reach of the
/// row's own list that `known_by` of its other neighbours lead to, if the row shares neighbours with the hidden one, or
/// where its first edge leads. How many would be led on if it did.
uint64_t compare_led_on(const Rows& rows, uint32_t degree, uint32_t share, uint32_t known_by) {
  const Dataset dataset = rows.dataset(ANN_METRIC_L2);
  const Codes codes(dataset, 1, Execution());
  const KnnGraph graph = made_lists(rows.rows, degree, rows.rows + degree);
  const Array<uint32_t>& edges = graph.neighbors;
  Array<uint32_t> bits = Array<uint32_t>::zeroed({}, (rows.rows + 31) / 32);
  for (uint32_t row = share / 2; row < rows.rows; row += share) bits[row / 32] |= 1u << row % 32;
  const auto hidden = [&](uint32_t row) { return row != kNoRow && (bits[row / 32] >> row % 32 & 1) != 0; };
  const cuda::DeviceGuard guard(0);
  const cuda::Stream stream;
  std::vector<uint8_t> standing(codes.row(0), codes.row(0) + rows.rows * codes.stride());
  for (uint8_t& byte : standing) byte ^= codes.flip();  // as a device has them
  const OnDevice<uint8_t> sent(standing.data(), standing.size(), stream);
  const OnDevice<uint32_t> from(edges.data(), edges.size(), stream);
  const OnDevice<uint32_t> mask(bits.data(), bits.size(), stream);
  const OnDevice<uint32_t> to(edges.size(), stream);
  cuda::make_bypass_edges({sent.data(),
                           mask.data(),
                           {from.data(), nullptr, nullptr, rows.rows, degree, 0},
                           {to.data(), rows.rows, degree},
                           static_cast<uint32_t>(codes.stride()),
                           known_by},
                          codes.kind(), stream);
  const std::vector<uint32_t> found = to.fetch();
  uint64_t led_on = 0;
  uint64_t strangers = 0;
  for (uint32_t row = 0; row < rows.rows; ++row) {
    std::vector<uint32_t> own(edges.begin() + row * degree, edges.begin() + (row + 1) * degree);
    std::vector<uint32_t> leading(rows.rows);  // neighbours of the row, to each
    const auto known = [&](uint32_t target) { return leading[target] >= known_by; };
    const bool is_led_on = !hidden(row) && std::any_of(own.begin(), own.end(), hidden);
    for (const uint32_t between : own) {
      if (!is_led_on || between == kNoRow || hidden(between)) continue;
      const uint32_t* beyond = edges.data() + uint64_t{between} * degree;
      for (const uint32_t target : std::set<uint32_t>(beyond, beyond + degree))
        if (target != kNoRow) ++leading[target];
    }
    double reach = 0;
    uint32_t first = kNoRow;  // that is not hidden
    for (uint32_t place = degree; place-- > 0;) {
      if (own[place] == kNoRow || hidden(own[place])) continue;
      first = own[place];
      if (place < degree / 2) reach = std::max(reach, code_distance(codes, row, own[place]));
    }
    for (uint32_t place = 0; place < degree; ++place) {
      const uint32_t target = own[place];
      if (hidden(target) && !hidden(row)) {
        const uint32_t* beyond = edges.data() + uint64_t{target} * degree;
        double nearest = INFINITY;
        uint32_t shared = 0;
        for (const uint32_t* next = beyond; next < beyond + degree; ++next) {
          if (*next == kNoRow || *next == row || hidden(*next)) continue;
          if (std::find(own.begin(), own.end(), *next) != own.end())
            ++shared;
          else if (known(*next))
            nearest = std::min(nearest, code_distance(codes, row, *next));
        }
        if (shared < BypassRule::shared_least(degree)) {
          strangers += nearest <= reach ? 1 : 0;
          nearest = INFINITY;
        }
        const uint32_t next = found[row * degree + place];
        const std::string where = "row " + std::to_string(row) + ", place " + std::to_string(place);
        // Sums of floats are rounded: at the very reach either is right.
        const bool is_beyond = nearest > reach * 1.00001;
        if (is_beyond || (nearest > reach * 0.99999 && next == first)) {
          expect(next == (first != kNoRow ? first : target), where + ": an edge that leads nowhere else");
          own[place] = next;
          continue;
        }
        expect(next < rows.rows && std::find(beyond, beyond + degree, next) != beyond + degree &&
                   !hidden(next) && next != row && known(next) &&
                   std::find(own.begin(), own.end(), next) == own.end(),
               where + ": a row beyond the hidden one");
        expect(code_distance(codes, row, next) <= nearest * 1.00001, where + ": the nearest of them");
        own[place] = next;
        ++led_on;
      }
      expect(found[row * degree + place] == own[place], "row " + std::to_string(row) + ": edges");
    }
  }
  // Of 3,000 rows three random neighbours lead to few.
  expect(led_on > 0 || rows.rows < 100 || degree < 4, "edges are led on");
  return strangers;
}

void claim_led_on() {
  uint64_t strangers = 0;
  std::vector<uint32_t> degrees = {2, 31, 32, 33, 64, 100};
  if (quick || race) degrees = {3, 33};
  for (const uint32_t known_by : {1u, 2u}) {
    for (const int32_t element : {int32_t{ANN_U8}, int32_t{ANN_I8}, int32_t{ANN_F32}}) {
      for (const uint32_t degree : degrees) {
        for (const uint32_t dim : {1u, 20u, 128u, 131u})
          strangers += compare_led_on(Rows(element, quick || race ? 200 : 3000, dim, Values::kClusters, dim),
                                      degree, 20, known_by);
      }
      strangers += compare_led_on(Rows(element, 500, 8, Values::kEqual, 1), 16, 2, known_by);
    }
    strangers += compare_led_on(Rows(ANN_U8, 1, 8, Values::kEqual, 1), 4, 2, known_by);
  }
  expect(strangers > 0, "edges whose row and hidden row share too few neighbours");
}

/// Lists of one of two ways to find the same rows: nearest first, of rows at equal distance the smaller number.
struct ListsOfOneWay {
  std::vector<uint32_t> rows;       // [rows, k]
  std::vector<uint32_t> distances;  // [rows, k]
};

/// A distance is a function of the pair, so that rows which both have found stand at equal keys.
ListsOfOneWay made_lists_of_one_way(uint32_t rows, uint32_t k, uint64_t seed) {
  ListsOfOneWay found{std::vector<uint32_t>(size_t{rows} * k, kNoRow),
                      std::vector<uint32_t>(size_t{rows} * k, UINT32_MAX)};
  for (uint32_t row = 0; row < rows; ++row) {
    std::set<uint64_t> keys;
    const uint64_t wanted = random_below(4, seed, 1, row) == 0 ? random_below(k + 1, seed, 2, row) : k;
    for (uint64_t i = 0; i < wanted; ++i) {
      const uint64_t other = random_below(rows, seed, 3 + row, i);
      if (other != row) keys.insert(random_below(40, 5, row, other) << 32 | other);
    }
    size_t at = size_t{row} * k;
    for (const uint64_t key : keys) {
      found.rows[at] = static_cast<uint32_t>(key);
      found.distances[at++] = static_cast<uint32_t>(key >> 32);
    }
  }
  return found;
}

/// Lists of both ways are the k smallest keys of their union.
void compare_merged_lists(uint32_t rows, uint32_t k) {
  const ListsOfOneWay one = made_lists_of_one_way(rows, k, 11), other = made_lists_of_one_way(rows, k, 12);
  const cuda::DeviceGuard guard(0);
  const cuda::Stream stream;
  const OnDevice<uint32_t> neighbors(one.rows.data(), one.rows.size(), stream);
  const OnDevice<uint32_t> distances(one.distances.data(), one.distances.size(), stream);
  const OnDevice<uint32_t> more(other.rows.data(), other.rows.size(), stream);
  const OnDevice<uint32_t> more_distances(other.distances.data(), other.distances.size(), stream);
  cuda::merge_lists(rows, k, neighbors.data(), distances.data(), more.data(), more_distances.data(), stream);
  const std::vector<uint32_t> merged = neighbors.fetch();
  const std::vector<uint32_t> merged_distances = distances.fetch();

  const std::string what = std::to_string(rows) + " x " + std::to_string(k) + ", row ";
  for (uint32_t row = 0; row < rows; ++row) {
    std::set<uint64_t> keys;
    for (const ListsOfOneWay* found : {&one, &other})
      for (size_t at = size_t{row} * k; at < size_t{row + 1} * k; ++at)
        if (found->rows[at] != kNoRow) keys.insert(uint64_t{found->distances[at]} << 32 | found->rows[at]);
    auto wanted = keys.begin();
    for (uint32_t i = 0; i < k; ++i) {
      const uint64_t key = wanted != keys.end() ? *wanted++ : UINT64_MAX;
      expect(merged[size_t{row} * k + i] == static_cast<uint32_t>(key) &&
                 merged_distances[size_t{row} * k + i] == static_cast<uint32_t>(key >> 32),
             "merged lists " + what + std::to_string(row) + ", " + std::to_string(i));
    }
  }
}

void claim_merged_lists() {
  for (const uint32_t rows : quick || race ? std::vector{90u} : std::vector{2u, 90u, 3000u})
    for (const uint32_t k : {1u, 31u, 64u, 96u, 300u}) compare_merged_lists(rows, k);
}

enum class Shape { kLoose, kShy, kRings, kAlone, kApart, kGroups };

/// A graph with unreachable rows. Loose: edges to a few rows nearby and to lower numbers. Shy: one row in 97 is
/// known to the next such rows only, all others know each other at random. Rings: islands. Alone: shy, and
/// half the shy rows neither know nor are known. Apart: shy, but it is one in three of them that knows one,
/// which may be any. Groups: one row in four knows only others among 100, as copies of a row do.
SearchGraph made_graph(Shape shape, uint32_t rows, uint32_t degree, uint64_t seed) {
  SearchGraph graph;
  graph.rows = rows;
  graph.degree = degree;
  graph.edges = Array<uint32_t>({}, uint64_t{rows} * degree);
  graph.edges.fill(kNoRow);
  const auto below = [&](uint64_t bound, uint64_t stream, uint64_t counter) {
    return static_cast<uint32_t>(random_below(bound, seed, stream, counter));
  };
  const bool has_shy = shape == Shape::kShy || shape == Shape::kAlone || shape == Shape::kApart;
  const auto shy = [&](uint32_t row) {
    return (has_shy && row % 97 == 5) || (shape == Shape::kGroups && row / 100 % 4 == 1);
  };
  const auto make = [&](uint32_t row) {
    uint32_t* list = graph.table().row(row);
    uint32_t count = 0;
    const auto add = [&](uint32_t target) {
      if (target < rows && target != row && count < degree &&
          std::find(list, list + count, target) == list + count)
        list[count++] = target;
    };
    if (shape == Shape::kRings) {
      add(row / 40 * 40 + (row + 1) % 40);
      return;
    }
    const bool alone = shape == Shape::kAlone && row % 194 == 5;
    const uint32_t tries = alone ? 0 : below(degree + 2, 1, row);
    for (uint32_t i = 0; i < tries; ++i) {
      const uint64_t at = uint64_t{row} * 300 + i;
      uint32_t target = below(rows, 2, at);
      if (shape == Shape::kLoose)
        target = below(3, 3, at) == 0 ? below(row + 1, 4, at) : row / 4 * 4 + below(4, 5, at);
      if (shape == Shape::kGroups && shy(row))
        add(row / 100 * 100 + below(100, 6, at));
      else if (!shy(target))
        add(target);
    }
    if (shape == Shape::kGroups || !shy(row) || alone) return;
    if (shape == Shape::kShy) add(row + 97);
    if (shape == Shape::kApart) {
      if (row % 3 == 0) add(5 + 97 * below((rows + 91) / 97, 7, row));
    } else if (row % 3 == 0) {
      add(row + 2 * 97);
    }
  };
  parallel_for(all_threads(), rows, 4096, [&](uint64_t begin, uint64_t end, uint32_t) {
    for (uint64_t row = begin; row < end; ++row) make(static_cast<uint32_t>(row));
  });
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
  uint32_t serial = 0;
  uint32_t parallel = 0;
  uint32_t left = 0;  // to the CPU
};

void compare_repair(Shape shape, uint32_t rows, uint32_t degree, uint64_t seed, Repairs* repairs) {
  SearchGraph graph = made_graph(shape, rows, degree, seed);
  const std::string name = "shape " + std::to_string(static_cast<int>(shape)) + ", " + std::to_string(rows) +
                           " x " + std::to_string(degree) + ", seed " + std::to_string(seed);
  const cuda::DeviceGuard guard(0);
  const cuda::Stream stream;
  const SentGraph serial(graph, stream);
  const SentGraph parallel(graph, stream);
  const std::vector<uint32_t> made = parallel.edges.fetch();
  const uint64_t unreachable = count_unreachable(graph, {});
  expect(cuda::count_unreachable(parallel.view, stream, Execution()) == unreachable,
         "unreachable rows of " + name);
  const uint32_t spent = repair_reachability(graph, {});
  const auto compare = [&](const std::vector<uint32_t>& found, const uint32_t* expected, const char* how) {
    const auto other = std::mismatch(found.begin(), found.end(), expected).first;
    expect(other == found.end(), how + name + ", place " + std::to_string(other - found.begin()));
  };
  if (unreachable <= 1024) {
    const cuda::RepairResult repair =
        cuda::repair_reachability(serial.view, stream, Execution(), {1024, 1024});
    expect(repair.unreachable_left == 0 && repair.edges_added == spent, "serial repair of " + name);
    compare(serial.edges.fetch(), graph.edges.data(), "serial repair of ");
    repairs->serial += unreachable != 0 ? 1 : 0;
  }
  cuda::RepairResult repair = cuda::repair_reachability(parallel.view, stream, Execution(), {0, 0});
  if (repair.unreachable_left != 0) {
    expect(repair.unreachable_left == unreachable && repair.edges_added == 0,
           "what is left to the CPU of " + name);
    compare(parallel.edges.fetch(), made.data(), "edges that are left to the CPU of ");
    expect(degree < 31 || shape == Shape::kLoose, "parallel attachment of " + name);
    ++repairs->left;
    repair = cuda::repair_reachability(parallel.view, stream, Execution(), {0, 1024});
    expect(repair.unreachable_left == (unreachable > 1024 ? unreachable : 0),
           "what is left in the end of " + name);
    compare(parallel.edges.fetch(), unreachable > 1024 ? made.data() : graph.edges.data(),
            "the repair in the end of ");
  } else {
    expect(repair.edges_added == spent, "parallel repair of " + name + ": " +
                                            std::to_string(repair.edges_added) + " edges, not " +
                                            std::to_string(spent));
    compare(parallel.edges.fetch(), graph.edges.data(), "parallel repair of ");
    repairs->parallel += unreachable != 0 ? 1 : 0;
  }
}

constexpr Shape kShapes[] = {Shape::kLoose, Shape::kShy,   Shape::kRings,
                             Shape::kAlone, Shape::kApart, Shape::kGroups};

void claim_repair() {
  std::vector<uint32_t> sizes = {1, 2, 31, 32, 33, 97, 1000, 1023, 1024, 1025, 4000, 70'000};
  std::vector<uint32_t> degrees = {1, 2, 5, 31, 32, 33, 64, 256};
  if (quick) sizes = {1, 33, 1500}, degrees = {1, 3, 40};
  if (race) sizes = {300}, degrees = {3, 40};
  Repairs repairs;
  for (const Shape shape : kShapes) {
    for (const uint32_t rows : sizes) {
      for (const uint32_t degree : degrees) {
        if (uint64_t{rows} * degree > 5'000'000) continue;
        for (uint64_t seed = 0; seed < (rows < 5000 && !race ? 3 : 1); ++seed)
          compare_repair(shape, rows, degree, seed, &repairs);
      }
    }
    if (!quick && !race) compare_repair(shape, 500'000, 32, 1, &repairs);
  }
  std::printf("       %u graphs were repaired row by row, %u many rows at once, %u left to the CPU\n",
              repairs.serial, repairs.parallel, repairs.left);
  expect(quick || race || (repairs.serial > 50 && repairs.parallel > 100 && repairs.left > 3),
         "graphs that need repair");
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
         "measures of shape " + std::to_string(static_cast<int>(shape)) + ", " + std::to_string(rows) +
             " x " + std::to_string(degree) + ": strong components " +
             std::to_string(found.strong_components) + ", not " + std::to_string(expected.strong_components) +
             ", largest " + std::to_string(found.largest_strong) + ", not " +
             std::to_string(expected.largest_strong) + ", weak " + std::to_string(found.weak_components) +
             ", not " + std::to_string(expected.weak_components));
}

void claim_measures() {
  std::vector<uint32_t> sizes = {0, 1, 2, 31, 33, 300, 2000, 70'000};
  std::vector<uint32_t> degrees = {1, 2, 5, 33, 256};
  if (quick) sizes = {0, 1, 33, 300}, degrees = {1, 3, 40};
  if (race) sizes = {200}, degrees = {3};
  for (const Shape shape : kShapes) {
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
      : dataset(rows.dataset(metric)),
        codes(dataset, 1, all_threads()),
        guard(0),
        sent(codes, stream, Execution()) {}

  Dataset dataset;
  Codes codes;
  cuda::DeviceGuard guard;
  cuda::Stream stream;
  cuda::DeviceCodes sent;
};

/// Lists equal those of the CPU; their distances are those of codes.
void compare_lists(const BothCodes& both, const KnnGraph& expected, const std::vector<uint32_t>& found,
                   const std::vector<uint32_t>& distances, const std::string& what) {
  const uint32_t k = expected.k;
  const std::string name = what + " " + std::to_string(expected.rows) + " x " +
                           std::to_string(both.dataset.dim()) + " " + element_name(both.dataset.element()) +
                           ", metric " + std::to_string(both.dataset.metric()) + ", k " + std::to_string(k) +
                           (both.codes.wide() ? ", wide" : "");
  std::vector<uint8_t> code(both.codes.stride());
  for (uint32_t row = 0; row < expected.rows; ++row) {
    const uint32_t* list = expected.list(row);
    uint32_t measured[kKnnListMax];
    const uint32_t count = static_cast<uint32_t>(std::find(list, list + k, kNoRow) - list);
    both.codes.gather(&row, 1, code.data());
    both.codes.distances(code.data(), list, count, measured);
    for (uint32_t i = 0; i < k; ++i) {
      const uint64_t at = uint64_t{row} * k + i;
      expect(found[at] == list[i], name + ": row " + std::to_string(row) + ", place " + std::to_string(i) +
                                       " is " + std::to_string(found[at]) + ", not " +
                                       std::to_string(list[i]));
      expect(distances[at] == (i < count ? measured[i] : UINT32_MAX), name + ": a distance");
    }
  }
}

/// Rows of bytes that are as far apart as bytes can be, each half near its own kind.
Rows extreme_rows(uint32_t rows, uint32_t dim) {
  Rows made(ANN_U8, rows, dim, Values::kEqual, 1);
  for (uint32_t row = 0; row < rows; ++row) {
    uint8_t* bytes = made.bytes.data() + uint64_t{row} * dim;
    std::fill_n(bytes, dim, row % 2 == 0 ? uint8_t{0} : uint8_t{255});
    for (uint32_t i = 0; i < 4; ++i)
      bytes[random_below(dim, 9, row, i)] = static_cast<uint8_t>(random_below(256, 10, row, i));
  }
  return made;
}

void compare_exact(const Rows& rows, int32_t metric, uint32_t k, uint64_t launch_work = 0) {
  const BothCodes both(rows, metric);
  const KnnGraph expected = exact_knn(both.codes, k, all_threads());
  const OnDevice<uint32_t> neighbors(expected.neighbors.size(), both.stream);
  const OnDevice<uint32_t> distances(expected.neighbors.size(), both.stream);
  cuda::exact_knn(both.sent.view(), k, neighbors.data(), distances.data(), both.stream, Execution(),
                  launch_work);
  compare_lists(both, expected, neighbors.fetch(), distances.fetch(), "exact lists of");
}

void claim_exact() {
  std::vector<uint32_t> sizes = {1, 2, 31, 33, 63, 64, 65, 127, 128, 129, 193, 255, 257, 1000};
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
  // Lists that go on from launch to launch.
  for (const uint32_t k : {10u, 128u, 129u, 256u}) {
    compare_exact(Rows(ANN_U8, quick ? 400 : 1500, 20, Values::kNormal, k), ANN_METRIC_L2, k, 1);
    compare_exact(Rows(ANN_F32, quick ? 400 : 1500, 2, Values::kNormal, k), ANN_METRIC_L2, k, 1);
  }
  for (const uint32_t dim : {64u, 130u, 1000u})
    compare_exact(extreme_rows(quick ? 150 : 700, dim), ANN_METRIC_L2, 20);
  if (!quick) compare_exact(Rows(ANN_U8, 20'000, 128, Values::kClusters, 6), ANN_METRIC_L2, 64);
}

/// A graph of exact lists.
SearchGraph graph_of(const Codes& codes, uint32_t degree) {
  return graph_of_lists(exact_knn(codes, std::min(2 * degree, codes.rows() - 1), all_threads()), degree,
                        choose_entries(codes.rows(), kEntryPoints, 3, {}), all_threads());
}

/// Heads and edges of a graph by the device and by the CPU, which compares all pairs of so few heads too.
void compare_long_edges(const Rows& rows, int32_t metric, uint32_t degree, bool joined) {
  const BothCodes both(rows, metric);
  SearchGraph expected = graph_of(both.codes, degree);
  SearchGraph found = graph_of(both.codes, degree);
  const OnDevice<uint32_t> given(found.edges.data(), found.edges.size(), both.stream);
  const OnDevice<uint32_t> edges(found.edges.size(), both.stream);
  const std::string name = std::to_string(rows.rows) + " x " + std::to_string(rows.dim) + " " +
                           element_name(rows.element) + ", degree " + std::to_string(degree);
  const bool has = add_long_edges(both.codes, expected, 5, all_threads());
  expect(has == joined, "whether there are long edges: " + name);
  expect(cuda::add_long_edges(both.codes, {both.sent.view().data, given.data()}, found, 5, edges.data(),
                              both.stream, all_threads()) == has,
         "whether the device makes long edges: " + name);
  const auto equal = [](const Array<uint32_t>& one, const auto& other) {
    return one.size() == other.size() && std::equal(one.begin(), one.end(), other.data());
  };
  expect(equal(expected.heads, found.heads), "heads of " + name);
  expect(equal(expected.entries, found.entries), "entry points of " + name);
  expect(equal(expected.edges, found.edges), "edges on the host of " + name);
  expect(!has || equal(expected.edges, edges.fetch()), "edges on the device of " + name);
  expect(expected.repaired_edges == found.repaired_edges, "repaired edges of " + name);
}

/// Rows of islands of `size`, in the order of islands or one of each after the other, each `copies` times.
Rows island_rows(int32_t element, uint32_t islands, uint32_t size, uint32_t dim, bool mixed,
                 uint32_t copies) {
  Rows rows(element, islands * size, dim, Values::kNormal, 7);
  const bool floats = is_float_element(element);
  for (uint32_t row = 0; row < rows.rows; ++row) {
    const uint32_t island = mixed ? row % islands : row / size;
    for (uint32_t column = 0; column < dim; ++column) {
      const uint32_t drawn = row / copies * dim + column;
      const auto noise = static_cast<float>(random_below(100, 11, 1, drawn)) * (floats ? 1e-2f : 1e-3f);
      const auto centre = static_cast<float>(random_below(7, 11, 2 + island, column));
      rows.put(row * rows.stride, column, (floats ? 40 : 2) * (centre - 3) + noise);
    }
  }
  return rows;
}

void claim_long_edges() {
  for (const int32_t element : kElements) {
    if (race && element != ANN_U8) continue;
    for (const bool mixed : {false, true}) {
      const uint32_t islands = race ? 8 : quick ? 20 : 150;
      compare_long_edges(island_rows(element, islands, 40, 24, mixed, 1), ANN_METRIC_L2, 16, true);
      if (race) continue;
      compare_long_edges(island_rows(element, islands, 40, 24, mixed, 40), ANN_METRIC_L2, 16, true);
      compare_long_edges(island_rows(element, islands, 48, 24, mixed, 4), ANN_METRIC_COSINE, 9, true);
      // More heads than entry points.
      if (!quick) compare_long_edges(island_rows(element, 500, 20, 24, mixed, 1), ANN_METRIC_L2, 16, true);
    }
  }
  if (race) return;
  for (const Values values : {Values::kNormal, Values::kDuplicates, Values::kEqual, Values::kGrid})
    compare_long_edges(Rows(ANN_F32, quick ? 500 : 3000, 3, values, 5), ANN_METRIC_L2, 12,
                       values == Values::kDuplicates || values == Values::kGrid || values == Values::kNormal);
  // On a line, where a row has its neighbours' numbers, there are more rounds than the device makes.
  Rows line(ANN_F32, quick ? 1000 : 4000, 2, Values::kNormal, 1);
  for (uint32_t row = 0; row < line.rows; ++row) {
    line.put(row * line.stride, 0, static_cast<float>(row));
    line.put(row * line.stride, 1, 0);
  }
  compare_long_edges(line, ANN_METRIC_L2, 8, true);
}

/// Bytes with a scale for each row of wide codes, which serve unless one column hides the others.
void compare_byte_codes(uint32_t rows, uint32_t dim, bool hidden) {
  const auto code_stride = static_cast<uint32_t>(Codes::code_stride(dim, ANN_METRIC_L2, true));
  const auto stride = static_cast<uint32_t>(ScaledCodes::code_stride(dim));
  const uint32_t terms_at = static_cast<uint32_t>(ScaledCodes::terms_at(dim));
  const uint32_t columns = code_stride / sizeof(float);
  std::vector<float> values(uint64_t{rows} * columns);
  for (uint64_t row = 0; row < rows; ++row) {
    // Rows of one pair lie near each other; lengths differ by a thousand.
    const float length = std::exp2(-static_cast<float>(random_below(100, 3, 1, row / 2)) / 10);
    for (uint32_t column = 0; column < dim; ++column) {
      const auto drawn = [&](uint64_t of, uint64_t stream) {
        return static_cast<float>(random_below(2001, 3, stream, of * dim + column)) / 1000 - 1;
      };
      values[row * columns + column] = length * (drawn(row / 2, 2) + 0.2f * drawn(row, 3));
    }
    if (hidden) values[row * columns] = static_cast<float>(row / 2 % 2 == 0 ? 40 : -40);
    if (row == 5) std::fill_n(values.data() + row * columns, dim, 0.0f);
  }
  std::vector<uint32_t> edges(rows);
  for (uint32_t row = 0; row < rows; ++row) edges[row] = row % 2 == 0 && row + 1 < rows ? row + 1 : row - 1;
  const cuda::DeviceGuard guard(0);
  const cuda::Stream stream;
  const OnDevice<float> codes(values.data(), values.size(), stream);
  const OnDevice<uint32_t> there(edges.data(), edges.size(), stream);
  const OnDevice<uint8_t> narrow(uint64_t{rows} * stride, stream);
  const std::string name = std::to_string(rows) + " x " + std::to_string(dim);
  expect(cuda::make_byte_codes({reinterpret_cast<const uint8_t*>(codes.data()), narrow.data(), there.data(),
                                rows, code_stride, stride, 1, dim, terms_at},
                               stream) != hidden,
         "whether bytes serve: " + name);
  const std::vector<uint8_t> found = narrow.fetch();
  for (uint64_t row = 0; row < rows; ++row) {
    const uint8_t* code = found.data() + row * stride;
    ScaledCodes::Terms terms;
    std::memcpy(&terms, code + terms_at, sizeof terms);
    double square = 0;
    for (uint32_t column = 0; column < dim; ++column) {
      const float rounded = terms.scale * static_cast<float>(code[column] - 128);
      square += double{rounded} * rounded;
      expect(std::fabs(rounded - values[row * columns + column]) <= terms.scale * 0.501f,
             "a byte of " + name + ", row " + std::to_string(row));
    }
    expect(std::fabs(terms.offset - square) <= 1e-5 * square, "the square of a row of " + name);
    expect(terms.cell == 0, "the cell of a row of " + name);
  }
}

void claim_byte_codes() {
  for (const uint32_t dim : race ? std::vector{72u} : std::vector{72u, 96u, 192u, 1000u}) {
    compare_byte_codes(quick || race ? 60 : 3001, dim, false);
    compare_byte_codes(quick || race ? 60 : 3001, dim, true);
  }
}

/// Lists longer than a search graph's rows.
void claim_long_exact() {
  std::vector<uint32_t> sizes = {2, 257, 512, 513, 640, 1500};
  if (quick) sizes = {300};
  if (race) sizes = {130};
  for (const uint32_t k :
       quick || race ? std::vector{300u, 400u} : std::vector{257u, 300u, 384u, 385u, 400u, 512u}) {
    for (const uint32_t n : sizes) {
      compare_exact(Rows(ANN_U8, n, 20, Values::kNormal, n), ANN_METRIC_L2, k);
      compare_exact(Rows(ANN_F32, n, 2, Values::kNormal, n), ANN_METRIC_L2, k);
    }
    if (race) continue;
    for (const Values values : {Values::kClusters, Values::kGrid, Values::kDuplicates, Values::kEqual}) {
      for (const int32_t element : {int32_t{ANN_F32}, int32_t{ANN_I8}})
        compare_exact(Rows(element, quick ? 300 : 3000, 12, values, 5), ANN_METRIC_L2, k);
    }
    // Lists that go on from launch to launch, and rows of more than one chunk.
    compare_exact(Rows(ANN_U8, quick ? 400 : 2500, 200, Values::kNormal, k), ANN_METRIC_L2, k, 1);
    compare_exact(Rows(ANN_F32, quick ? 400 : 1500, 2, Values::kNormal, k), ANN_METRIC_L2, k, 1);
    compare_exact(extreme_rows(quick ? 300 : 1500, 130), ANN_METRIC_L2, k);
  }
  if (!quick && !race) compare_exact(Rows(ANN_U8, 20'000, 128, Values::kClusters, 6), ANN_METRIC_L2, 400);
}

void compare_descent(const Rows& rows, int32_t metric, const NnDescentParams& params) {
  const BothCodes both(rows, metric);
  const KnnGraph expected = nn_descent(both.codes, params, all_threads());
  const OnDevice<uint32_t> neighbors(expected.neighbors.size(), both.stream);
  const OnDevice<uint32_t> distances(expected.neighbors.size(), both.stream);
  const uint32_t rounds = cuda::nn_descent(both.sent.view(), params, neighbors.data(), distances.data(),
                                           both.stream, Execution());
  compare_lists(both, expected, neighbors.fetch(), distances.fetch(),
                "NN-Descent with p " + std::to_string(params.samples) + " on");
  expect(rounds == expected.iterations, "rounds of NN-Descent");
}

/// By inner product: distances of codes with an offset of each row.
void compare_products(const Rows& rows, const NnDescentParams& params) {
  const BothCodes both(rows, ANN_METRIC_L2);
  const auto offsets = product_offsets(both.codes, rows.dim, all_threads());
  if (!offsets) return expect(both.codes.wide(), "offsets of bytes");
  const KnnGraph expected = nn_descent_by_products(both.codes, *offsets, params, all_threads());
  const OnDevice<uint32_t> offsets_there(offsets->data(), offsets->size(), both.stream);
  const OnDevice<uint32_t> neighbors(expected.neighbors.size(), both.stream);
  const uint32_t most = *std::max_element(offsets->begin(), offsets->end());
  const uint32_t rounds = cuda::nn_descent_by_products(both.sent.view(), offsets_there.data(), most, params,
                                                       neighbors.data(), both.stream, Execution());
  const std::vector<uint32_t> found = neighbors.fetch();
  const std::string name = "by products of " + std::to_string(rows.rows) + " x " + std::to_string(rows.dim) +
                           " " + element_name(rows.element) + ", p " + std::to_string(params.samples);
  expect(std::equal(found.begin(), found.end(), expected.neighbors.begin()), "lists " + name);
  expect(rounds == expected.iterations, "rounds " + name);
}

void claim_products() {
  struct Shape {
    uint32_t k, p;
  };
  const std::vector<Shape> shapes = race ? std::vector<Shape>{{20, 17}}
                                    : quick
                                        ? std::vector<Shape>{{12, 5}, {40, 20}, {70, 40}}
                                        : std::vector<Shape>{{2, 2}, {12, 5}, {48, 16}, {64, 32}, {200, 64}};
  const uint32_t n = race ? 60 : quick ? 300 : 1000;
  const uint32_t rounds = race ? 2 : quick ? 3 : 24;
  for (const Shape shape : shapes) {
    const NnDescentParams params{shape.k, shape.p, rounds, 0.02f, 7};
    for (const int32_t element : kElements) {
      if (race && element != ANN_F32) continue;
      // Rows around zero, and rows far from it, whose offsets leave keys of 32 bits.
      for (const Values values : {Values::kNormal, Values::kClusters, Values::kFar, Values::kZeros})
        compare_products(Rows(element, n, 24, values, n), params);
    }
    // Among the longest rows of keys of 32 bits, and beyond.
    for (const uint32_t dim : {2u, 130u, 500u, 520u, 1030u, 2000u})
      compare_products(Rows(ANN_U8, n, dim, Values::kFar, dim), params);
    Rows shifted(ANN_F32, n, 40, Values::kNormal, 3);
    for (uint32_t row = 0; row < n; ++row) {
      for (uint32_t column = 0; column < 40; ++column)
        reinterpret_cast<float*>(shifted.bytes.data())[row * 40 + column] += 20;
    }
    compare_products(shifted, params);
  }
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
        compare_descent(Rows(element,
                             race    ? 60
                             : quick ? 200
                                     : 700,
                             dim, Values::kNormal, dim),
                        metric, params);
    }
  }
  // The longest rows whose keys have 32 bits, and the next ones, for each number of samples.
  struct Edge {
    uint32_t dim, k, p;
  };
  for (const Edge edge : {Edge{1024, 16, 16}, Edge{1025, 16, 16}, Edge{512, 32, 32}, Edge{513, 32, 32},
                          Edge{256, 64, 64}, Edge{257, 64, 64}}) {
    if (race) break;
    compare_descent(extreme_rows(quick ? 200 : 1500, edge.dim), ANN_METRIC_L2,
                    {edge.k, edge.p, rounds, 0.02f, 5});
  }
  for (const Values values : {Values::kGrid, Values::kDuplicates, Values::kEqual}) {
    for (const int32_t element : {int32_t{ANN_F32}, int32_t{ANN_I8}})
      compare_descent(Rows(element, race ? 60 : quick ? 250 : 3000, 10, values, 5), ANN_METRIC_L2, params);
  }
  if (!quick && !race)
    compare_descent(Rows(ANN_U8, 50'000, 128, Values::kClusters, 6), ANN_METRIC_L2, {48, 16, 24, 0.02f, 1});
}

/// Lists that registers hold window by window. With one slice of offers, 64 samples make many more of them than a row
/// has places, so that most are inserted one by one.
void claim_long_descent() {
  struct Shape {
    uint32_t k, p;
  };
  std::vector<Shape> shapes = {{257, 16}, {257, 64}, {300, 32}, {400, 64}, {511, 20}, {512, 16}, {512, 64}};
  std::vector<uint32_t> sizes = {1024, 1100, 5000};
  if (quick) shapes = {{257, 40}, {512, 64}}, sizes = {600};
  if (race) shapes = {{300, 33}}, sizes = {70};
  const uint32_t rounds = race ? 2 : quick ? 3 : 24;
  for (const Shape shape : shapes) {
    const NnDescentParams params{shape.k, shape.p, rounds, 0.02f, 7};
    for (const uint32_t n : sizes) {
      compare_descent(Rows(ANN_U8, n, 24, Values::kClusters, n), ANN_METRIC_L2, params);
      compare_descent(Rows(ANN_F32, n, 2, Values::kNormal, n), ANN_METRIC_L2, params);
    }
    if (race) continue;
    for (const Values values : {Values::kGrid, Values::kDuplicates, Values::kEqual}) {
      for (const int32_t element : {int32_t{ANN_F32}, int32_t{ANN_I8}})
        compare_descent(Rows(element, quick ? 600 : 2000, 10, values, 5), ANN_METRIC_L2, params);
    }
    for (const uint32_t dim : {257u, 1025u})  // keys of 64 bits
      compare_descent(extreme_rows(quick ? 600 : 1500, dim), ANN_METRIC_L2, params);
    compare_products(Rows(ANN_F32, quick ? 600 : 1200, 24, Values::kFar, 3), params);
  }
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
    uint32_t measured[kKnnListMax];
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

/// Lists of the device with their distances.
struct FoundLists {
  FoundLists(const BothCodes& both, uint32_t k_)
      : k(k_),
        neighbors(uint64_t{both.codes.rows()} * k_, both.stream),
        distances(uint64_t{both.codes.rows()} * k_, both.stream) {}
  uint32_t k;
  OnDevice<uint32_t> neighbors;
  OnDevice<uint32_t> distances;
};

/// The share of the first `depth` of exact lists that lists hold, of rows at equal distance any.
double share_of(const std::vector<uint32_t>& exact, const std::vector<uint32_t>& found, uint32_t k,
                uint32_t depth) {
  uint64_t hits = 0;
  uint64_t wanted = 0;
  for (size_t row = 0; row < exact.size() / k; ++row) {
    const uint32_t* truth = exact.data() + row * k;
    const uint32_t* list = found.data() + row * k;
    uint32_t count = 0;
    while (count < depth && truth[count] != UINT32_MAX) ++count;
    for (uint32_t i = 0; i < count; ++i) hits += list[i] <= truth[count - 1] ? 1 : 0;
    wanted += count;
  }
  return wanted == 0 ? 1 : static_cast<double>(hits) / static_cast<double>(wanted);
}

/// By cells twice, and once in small slices: the same lists, of different rows in order, and as many
/// true neighbours in them as the sample says and `least`.
void compare_cells(const Rows& rows, int32_t metric, uint32_t k, double least,
                   const cuda::CellsEffort& effort = cuda::kGraphEffort) {
  const BothCodes both(rows, metric);
  const std::string name = std::to_string(rows.rows) + " x " + std::to_string(rows.dim) + " " +
                           element_name(rows.element) + ", metric " + std::to_string(metric) + ", k " +
                           std::to_string(k);
  const NnDescentParams params{k, std::min(12u, k), 12, 0.02f, 5};
  const FoundLists lists(both, k);
  const cuda::CellsReport report = cuda::cells_knn(both.sent.view(), params, effort, lists.neighbors.data(),
                                                   lists.distances.data(), both.stream, Execution());
  const std::vector<uint32_t> found = lists.neighbors.fetch();
  const std::vector<uint32_t> at = lists.distances.fetch();
  check_lists(both, k, found, at);
  cuda::cells_knn(both.sent.view(), params, effort, lists.neighbors.data(), nullptr, both.stream,
                  Execution());
  expect(found == lists.neighbors.fetch(), name + ": the same lists twice");
  cuda::CellsEffort in_slices = effort;
  in_slices.slice = 1000;
  cuda::cells_knn(both.sent.view(), params, in_slices, lists.neighbors.data(), nullptr, both.stream,
                  Execution());
  expect(found == lists.neighbors.fetch(), name + ": the same lists in small slices");
  cuda::exact_knn(both.sent.view(), k, lists.neighbors.data(), lists.distances.data(), both.stream,
                  Execution());
  const std::vector<uint32_t> truth = lists.distances.fetch();
  const double share = share_of(truth, at, k, std::min(k, 32u));
  if (!quick && !race && rows.rows >= 5000)
    std::printf("       %s: %u cells, %u + %u rounds, share %.4f, %.4f by the sample, %.4f of whole lists\n",
                name.c_str(), report.cells, report.rounds, report.iterations, share, report.lists.share,
                share_of(truth, at, k, k));
  expect(share >= least, name + ": a share of " + std::to_string(share));
  expect(
      report.cells == 0 || std::abs(share - report.lists.share) < (rows.rows > 300 ? 0.05 : 0.005),
      name + ": the sample says " + std::to_string(report.lists.share) + ", it is " + std::to_string(share));
}

void claim_cells() {
  std::vector<uint32_t> sizes = {2, 3, 31, 33, 127, 129, 257, 1000, 5000, 20'000};
  std::vector<uint32_t> ks = {1, 10, 31, 32, 33, 64, 65, 100, 256};
  if (quick) sizes = {2, 130, 700}, ks = {10, 100};
  if (race) sizes = {300}, ks = {20};
  for (const uint32_t n : sizes) {
    for (const uint32_t k : ks)
      compare_cells(Rows(ANN_U8, n, 24, Values::kClusters, n), ANN_METRIC_L2, k, 0.93);
  }
  if (race || quick) return;
  for (const uint32_t dim : {128u, 300u})
    compare_cells(Rows(ANN_U8, 30'000, dim, Values::kClusters, dim), ANN_METRIC_L2, 64, 0.9);
}

void claim_cells_of_any_rows() {
  std::vector<uint32_t> dims = {8, 16, 63, 64, 65, 100, 128, 129, 192, 200, 257, 300, 384, 768, 960, 1536};
  if (quick) dims = {64, 128, 200};
  if (race) dims = {130};
  for (const uint32_t dim : dims) {
    for (const int32_t element : kElements) {
      if (race && element != ANN_U8) continue;
      for (const int32_t metric : kMetrics)
        compare_cells(Rows(element,
                           race    ? 300
                           : quick ? 400
                                   : 3000,
                           dim, Values::kNormal, dim),
                      metric, 24, 0.9);
    }
  }
}

/// Lists longer than a search graph's rows: of bytes of each form and of floats.
void claim_long_cells() {
  std::vector<uint32_t> ks = {257, 300, 400, 512};
  if (quick || race) ks = {300};
  for (const uint32_t k : ks) {
    for (const uint32_t n : race    ? std::vector{300u}
                            : quick ? std::vector{2u, 700u}
                                    : std::vector{2u, 257u, 2500u, 20'000u})
      compare_cells(Rows(ANN_U8, n, 24, Values::kClusters, n), ANN_METRIC_L2, k, 0.93);
    if (race || quick) continue;
    for (const uint32_t dim : {128u, 300u})
      compare_cells(Rows(ANN_U8, 30'000, dim, Values::kClusters, dim), ANN_METRIC_L2, k, 0.9);
    compare_cells(Rows(ANN_F32, 20'000, 2, Values::kNormal, 3), ANN_METRIC_L2, k, 0.9, cuda::kListEffort);
    compare_cells(Rows(ANN_U8, 20'000, 32, Values::kDuplicates, 2), ANN_METRIC_L2, k, 0.9);
    compare_cells(Rows(ANN_U8, 20'000, 32, Values::kEqual, 2), ANN_METRIC_L2, k, 0.9);
  }
}

/// Rows of few columns, or islands, which bytes cannot tell apart.
void claim_wide_cells() {
  uint32_t wide = 0;
  const auto compare = [&](const Rows& rows, uint32_t k, const cuda::CellsEffort& effort) {
    wide += BothCodes(rows, ANN_METRIC_L2).codes.wide() ? 1 : 0;
    compare_cells(rows, ANN_METRIC_L2, k, 0.9, effort);
  };
  cuda::CellsEffort grouped;
  grouped.matched = 1;
  const uint32_t n = race ? 300 : quick ? 1500 : 20'000;
  compare(Rows(ANN_F32, n, 1, Values::kNormal, 1), 24, cuda::kGraphEffort);
  expect(wide == 1, "one column makes wide codes");
  if (race) return;
  for (const uint32_t dim : {1u, 2u, 4u}) {
    for (const uint32_t k : {10u, 64u, 100u})
      compare(Rows(ANN_F32, n, dim, Values::kNormal, dim), k, cuda::kGraphEffort);
  }
  compare(Rows(ANN_F32, n, 3, Values::kNormal, 1), 32, grouped);
  compare(Rows(ANN_F32, n, 3, Values::kNormal, 1), 32, cuda::kListEffort);
  for (const uint32_t dim : {5u, 20u, 70u}) {
    Rows islands(ANN_F32, quick ? 700 : 5000, dim, Values::kNormal, 3);
    float* values = reinterpret_cast<float*>(islands.bytes.data());
    for (uint32_t row = 0; row < islands.rows; ++row)
      values[uint64_t{row} * dim] += static_cast<float>(row % 5) * 1e4f;
    compare(islands, 24, cuda::kGraphEffort);
  }
  expect(quick || wide == 15, "wide codes: " + std::to_string(wide));
}

/// Rows of which many are the same, so that cells are empty or hold most of them.
///
/// A thousand rows are copies of seven, 143 of each. Where two of the seven share a cell of three chunks, their
/// copies take turns in it, so that a row finds 12 of its own: one in each class that they have to themselves.
/// All find the same 12, which find 12 others. A row that is one of those has 23 in reach of a round, not 24;
/// and where the filter takes one of 24 for another, it does so for all copies. A chunk left out would cost
/// such a row a third of 24.
void claim_giant_cells() {
  const uint32_t n = race ? 300 : quick ? 1000 : 30'000;
  compare_cells(Rows(ANN_U8, n, 24, Values::kGrid, 2), ANN_METRIC_L2, 24, 0.9);
  if (race) return;
  for (const Values values : {Values::kDuplicates, Values::kEqual}) {
    for (const uint32_t dim : {32u, 128u, 200u})
      compare_cells(Rows(ANN_U8, n, dim, values, 2), ANN_METRIC_L2, 24, quick ? 0.99 : 1);
  }
  for (const uint32_t dim : {100u, 150u}) {
    Rows rows(ANN_U8, n, dim, Values::kNormal, 3);
    for (uint32_t row = 1; row < n / 2; ++row)
      std::copy_n(rows.bytes.begin(), dim, rows.bytes.begin() + uint64_t{row} * dim);
    compare_cells(rows, ANN_METRIC_L2, 40, 0.9);
  }
}

/// Cells that are found by way of groups, and groups by way of groups of them.
void claim_groups() {
  cuda::CellsEffort grouped;
  grouped.matched = 1;
  if (race || quick) {
    compare_cells(Rows(ANN_U8, race ? 600 : 1500, 40, Values::kClusters, 4), ANN_METRIC_L2, 20, 0.9, grouped);
    return;
  }
  for (const uint32_t dim : {24u, 100u, 200u})
    compare_cells(Rows(ANN_U8, 20'000, dim, Values::kClusters, dim), ANN_METRIC_L2, 32, 0.9, grouped);
  compare_cells(Rows(ANN_U8, 20'000, 32, Values::kDuplicates, 2), ANN_METRIC_L2, 24, 1, grouped);
  compare_cells(Rows(ANN_U8, 20'000, 32, Values::kEqual, 2), ANN_METRIC_L2, 24, 1, grouped);
  compare_cells(Rows(ANN_U8, 300'000, 16, Values::kNormal, 2), ANN_METRIC_L2, 32, 0.9, grouped);
}

/// Recall of lists that are known to be complete, or to lack one.
void claim_recall() {
  const uint32_t n = race ? 300 : quick ? 700 : 20'000;
  for (const uint32_t dim : {40u, 128u, 300u}) {
    const Rows rows(ANN_U8, n, dim, Values::kClusters, dim);
    const BothCodes both(rows, ANN_METRIC_L2);
    const FoundLists lists(both, 48);
    cuda::exact_knn(both.sent.view(), 48, lists.neighbors.data(), lists.distances.data(), both.stream,
                    Execution());
    const OnDevice<uint32_t> near(uint64_t{n} * cuda::kNearCells, both.stream);
    const cuda::CellMap map(both.sent.view(), 1, cuda::kGraphEffort, near.data(), both.stream, Execution());
    const cuda::RecallSample sample(map.view(), 1, both.stream);
    expect(sample.measure(lists.distances.data(), 48, 48, true).share == 1, "complete lists");
    std::vector<uint32_t> cut = lists.distances.fetch();
    for (uint32_t row = 0; row < n; ++row) {
      uint32_t* list = cut.data() + uint64_t{row} * 48;
      std::copy(list + 4, list + 48, list);
      std::fill(list + 44, list + 48, UINT32_MAX);
    }
    const OnDevice<uint32_t> sent(cut.data(), cut.size(), both.stream);
    const double share = sample.measure(sent.data(), 48, 48, true).share;
    expect(share >= 28 / 32.0 && share < 28.5 / 32, "lists without four: " + std::to_string(share));
  }
}

/// The local intrinsic dimension, by codes that are wide (of few columns) and bytes, and of rows that are all copies.
void claim_dimension() {
  const uint32_t n = race ? 300 : quick ? 700 : 20'000;
  struct Case {
    uint32_t columns;
    Values values;
    double least, most;
  };
  for (const Case& of : {Case{2, Values::kNormal, 1.5, 2.5}, Case{12, Values::kNormal, 5, 13},
                         Case{40, Values::kNormal, 9, 34}, Case{40, Values::kEqual, 0, 0}}) {
    const Rows rows(ANN_F32, n, of.columns, of.values, 3);
    const BothCodes both(rows, ANN_METRIC_L2);
    const FoundLists lists(both, 48);
    const cuda::CellsReport report =
        cuda::cells_knn(both.sent.view(), {48, 12, 12, 0.02f, 5}, cuda::kGraphEffort, lists.neighbors.data(),
                        lists.distances.data(), both.stream, Execution());
    const double dimension = report.lists.dimension;
    expect(of.least <= dimension && dimension <= of.most,
           std::to_string(of.columns) + " columns: dimension " + std::to_string(dimension));
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
  cuda::search_exact({0, dataset.view(), dataset.rows(), ANN_METRIC_L2, nullptr, nullptr, queries.data(),
                      nullptr, count, k + 1, found.data(), distances.data()},
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
    rounds = cuda::nn_descent(both.sent.view(), params, neighbors.data(), distances.data(), both.stream,
                              Execution());
  });
  const std::vector<uint32_t> lists = neighbors.fetch();
  std::printf(
      "time nn_descent %u x %u, k %u, p %u, convergence %g: %.1f ms, %u rounds, recall@10 "
      "%.4f, @32 %.4f, phi %.6g\n",
      rows.rows, rows.dim, params.k, params.samples, static_cast<double>(params.convergence), ms, rounds,
      recall(rows, lists, params.k, 10), recall(rows, lists, params.k, std::min(32u, params.k)),
      quality(distances.fetch()));
}

void time_optimise(const BothCodes& both, uint32_t k, uint32_t degree) {
  const uint32_t rows = both.codes.rows();
  const OnDevice<uint32_t> lists(uint64_t{rows} * k, both.stream);
  cuda::nn_descent(both.sent.view(), {k, 16, 6, 0.02f, 1}, lists.data(), nullptr, both.stream, Execution());
  const OnDevice<uint32_t> kept(uint64_t{rows} * degree, both.stream);
  const OnDevice<uint32_t> merged(uint64_t{rows} * degree, both.stream);
  const double prune = median_ms([&] {
    cuda::prune_by_rank(lists.data(), rows, k, Pruning::near(degree), kept.data(), both.stream, Execution());
    both.stream.wait();
  });
  const double reverse = median_ms([&] {
    cuda::add_reverse_edges(kept.data(), rows, degree, merged.data(), both.stream, Execution());
    both.stream.wait();
  });
  std::printf("time optimise %u rows, %u -> %u: prune %.2f ms, reverse edges %.2f ms\n", rows, k, degree,
              prune, reverse);

  const Array<uint32_t> entry_rows = choose_entries(rows, 64, 1, {});
  const OnDevice<uint32_t> entries(entry_rows.data(), entry_rows.size(), both.stream);
  const cuda::GraphView graph = {merged.data(), entries.data(), rows, degree,
                                 static_cast<uint32_t>(entry_rows.size())};
  const double reach = median_ms([&] { cuda::count_unreachable(graph, both.stream, Execution()); });
  const uint32_t unreachable = cuda::count_unreachable(graph, both.stream, Execution());
  cuda::RepairResult repair;
  const double repairing =
      milliseconds_of([&] { repair = cuda::repair_reachability(graph, both.stream, Execution()); });
  ann_graph_stats stats = ANN_GRAPH_STATS_INIT;
  const double measuring =
      milliseconds_of([&] { cuda::measure_graph(graph, 1, both.stream, Execution(), &stats); });
  std::printf(
      "     tree %.2f ms, repair with it %.2f ms, %u unreachable rows, %u edges spent; measures %.1f ms: "
      "%llu strong components, %.1f rows within two edges\n",
      reach, repairing, unreachable, repair.edges_added, measuring,
      static_cast<unsigned long long>(stats.strong_components), stats.two_hop_mean);
}

/// A graph of which a hundredth of the rows is unreachable, or a quarter in groups.
void time_repair(Shape shape, uint32_t rows, uint32_t degree) {
  SearchGraph graph = made_graph(shape, rows, degree, 1);
  const cuda::DeviceGuard guard(0);
  const cuda::Stream stream;
  const SentGraph sent(graph, stream);
  uint32_t unreachable = 0;
  const double tree =
      median_ms([&] { unreachable = cuda::count_unreachable(sent.view, stream, Execution()); });
  std::vector<double> repairs;
  cuda::RepairResult repair;
  for (uint32_t time = 0; time < 5; ++time) {
    cuda::check(cudaMemcpy(sent.edges.data(), graph.edges.data(), graph.edges.size() * sizeof(uint32_t),
                           cudaMemcpyHostToDevice),
                "sending");
    repairs.push_back(
        milliseconds_of([&] { repair = cuda::repair_reachability(sent.view, stream, Execution()); }));
  }
  std::sort(repairs.begin(), repairs.end());
  uint32_t spent = 0;
  const double cpu = milliseconds_of([&] { spent = repair_reachability(graph, all_threads()); });
  const std::vector<uint32_t> found = sent.edges.fetch();
  expect(repair.unreachable_left == 0 && repair.edges_added == spent &&
             std::equal(found.begin(), found.end(), graph.edges.data()),
         "the repair that is timed");
  std::printf(
      "time repair shape %d, %u x %u: tree %.2f ms, repair with it %.2f ms, by the CPU %.0f ms; %u "
      "unreachable rows, %u edges spent\n",
      static_cast<int>(shape), rows, degree, tree, repairs[2], cpu, unreachable, spent);
}

void claim_repair_times() {
  for (const uint32_t rows : {10'000u, 100'000u, 1'000'000u, 10'000'000u})
    time_repair(Shape::kApart, rows, 64);
  time_repair(Shape::kGroups, 1'000'000, 64);
}

Rows timed_rows() {
  return data_file != nullptr ? read_vectors(data_file, data_rows)
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
        NnDescentParams{64, 10, 24, 0.02f, 1}, NnDescentParams{64, 18, 24, 0.02f, 1},
        NnDescentParams{64, 20, 24, 0.02f, 1}, NnDescentParams{64, 24, 24, 0.02f, 1},
        NnDescentParams{64, 32, 24, 0.02f, 1}, NnDescentParams{64, 32, 24, 0.002f, 1}})
    time_descent(rows, both, params);
}

void claim_optimise_times() {
  const BothCodes both(timed_rows(), ANN_METRIC_L2);
  time_optimise(both, 48, 32);
  time_optimise(both, 64, 64);
  time_optimise(both, 96, 64);
  time_optimise(both, 256, 200);
  time_optimise(both, 300, 200);
}

void claim_exact_times() {
  const Rows rows = timed_rows();
  const BothCodes both(rows, ANN_METRIC_L2);
  const OnDevice<uint32_t> lists(uint64_t{rows.rows} * kKnnListMax, both.stream);
  for (const uint32_t k : {64u, 256u, 300u, 400u, kKnnListMax})
    std::printf("time exact_knn %u x %u, k %u: %.1f ms\n", rows.rows, rows.dim, k, milliseconds_of([&] {
                  cuda::exact_knn(both.sent.view(), k, lists.data(), nullptr, both.stream, Execution());
                }));
}

constexpr Claim kClaims[] = {
    {"pruning keeps what the CPU keeps", claim_prune},
    {"pruning by distances keeps what the CPU keeps", claim_prune_by_distance},
    {"reverse edges are merged as on the CPU, in slices of any size", claim_reverse},
    {"edges are led on past hidden rows", claim_led_on},
    {"lists of two ways are merged", claim_merged_lists},
    {"unreachable rows are attached where the CPU attaches them", claim_repair},
    {"measures of graphs are the CPU's", claim_measures},
    {"exact lists are the CPU's", claim_exact},
    {"exact lists of more than 256 rows are the CPU's", claim_long_exact},
    {"long edges are the CPU's", claim_long_edges},
    {"bytes with a scale in place of wide codes", claim_byte_codes},
    {"NN-Descent makes the CPU's lists", claim_descent},
    {"NN-Descent makes the CPU's lists of more than 256 rows", claim_long_descent},
    {"NN-Descent by inner product makes the CPU's lists", claim_products},
    {"recall by cells", claim_recall},
    {"dimension by cells", claim_dimension},
    {"lists by cells hold the share that the sample says, the same twice", claim_cells},
    {"lists of more than 256 rows by cells", claim_long_cells},
    {"cells of any rows", claim_cells_of_any_rows},
    {"cells of wide codes", claim_wide_cells},
    {"giant and empty cells", claim_giant_cells},
    {"groups of cells", claim_groups},
};
constexpr Claim kTimes[] = {{"times of NN-Descent", claim_descent_times},
                            {"times of the optimisation", claim_optimise_times},
                            {"times of the repair", claim_repair_times},
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
