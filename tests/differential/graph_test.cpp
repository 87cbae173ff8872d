// Graph phases: CAGRA's pruning and reverse edges against their definitions, reachability repair on
// graphs made to need it, and the measures against small closures.

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <string>

#include "catch.h"
#include "graph/covering_heads.h"
#include "graph/long_edges.h"
#include "graph/search_graph.h"
#include "graph/spare_edge.h"
#include "graph/start_edges.h"
#include "knn/exact_knn.h"
#include "made_data.h"
#include "place/pivots.h"

using namespace gannet;

namespace {

const Execution kTwoThreads{{}, 2, nullptr};

/// Equation 3 read aloud: y is kept by how few z lie before it on both legs of a detour.
/// With `distances` of the lists those decide instead of ranks.
std::vector<uint32_t> pruned_by_definition(const KnnGraph& knn, uint32_t row, const Pruning& pruning,
                                           const Array<uint32_t>* distances = nullptr) {
  const uint32_t degree = pruning.degree;
  const auto weight = [&](uint32_t list_of, uint32_t rank) {
    return distances != nullptr ? (*distances)[size_t{list_of} * knn.k + rank] : rank;
  };
  const auto rank_in = [&](uint32_t list_of, uint32_t wanted, uint32_t looked_at) {
    for (uint32_t i = 0; i < std::min(looked_at, knn.k); ++i)
      if (knn.list(list_of)[i] == wanted) return i;
    return kNoRow;
  };
  std::vector<std::pair<uint32_t, uint32_t>> order;  // detours, rank
  for (uint32_t rank = 0; rank < knn.k && knn.list(row)[rank] != kNoRow; ++rank) {
    uint32_t detours = 0;
    for (uint32_t rank_z = 0; rank_z < std::min(pruning.looked_at, knn.k); ++rank_z) {
      const uint32_t z = knn.list(row)[rank_z];
      if (z == kNoRow) break;
      const uint32_t rank_y = rank_in(z, knn.list(row)[rank], pruning.looked_at);
      if (rank_y != kNoRow && std::max(weight(row, rank_z), weight(z, rank_y)) < weight(row, rank)) ++detours;
    }
    order.push_back({detours, rank});
  }
  std::sort(order.begin(), order.end());
  std::vector<uint32_t> kept(degree, kNoRow);
  for (uint32_t i = 0; i < std::min<size_t>(degree, order.size()); ++i)
    kept[i] = knn.list(row)[order[i].second];
  return kept;
}

/// The code distances of lists, [rows, k].
Array<uint32_t> distances_of(const KnnGraph& knn, const Codes& codes) {
  Array<uint32_t> distances({}, knn.neighbors.size());
  distances.fill(UINT32_MAX);
  std::vector<uint8_t> code(codes.stride());
  for (uint32_t row = 0; row < knn.rows; ++row) {
    const uint32_t* list = knn.list(row);
    const uint32_t length = static_cast<uint32_t>(std::find(list, list + knn.k, kNoRow) - list);
    codes.gather(&row, 1, code.data());
    codes.distances(code.data(), list, length, distances.data() + size_t{row} * knn.k);
  }
  return distances;
}

std::vector<uint32_t> merged_by_definition(const std::vector<uint32_t>& edges, uint32_t rows, uint32_t degree,
                                           uint32_t row) {
  std::vector<uint32_t> reverse;
  for (uint32_t rank = 0; rank < degree; ++rank)
    for (uint32_t source = 0; source < rows; ++source)
      if (edges[size_t{source} * degree + rank] == row && reverse.size() < degree) reverse.push_back(source);
  std::vector<uint32_t> merged;
  const auto add = [&](uint32_t candidate) {
    if (candidate != kNoRow && candidate != row && merged.size() < degree &&
        std::find(merged.begin(), merged.end(), candidate) == merged.end())
      merged.push_back(candidate);
  };
  for (uint32_t i = 0; i < degree; ++i) {
    add(edges[size_t{row} * degree + i]);
    if (i < reverse.size()) add(reverse[i]);
  }
  merged.resize(degree, kNoRow);
  return merged;
}

SearchGraph graph_of(const std::vector<std::vector<uint32_t>>& lists, uint32_t degree,
                     std::vector<uint32_t> entries) {
  SearchGraph graph;
  graph.rows = static_cast<uint32_t>(lists.size());
  graph.degree = degree;
  graph.edges = Array<uint32_t>({}, lists.size() * degree);
  graph.edges.fill(kNoRow);
  for (size_t row = 0; row < lists.size(); ++row)
    std::copy(lists[row].begin(), lists[row].end(), graph.table().row(row));
  graph.entries = Array<uint32_t>({}, entries.size());
  std::copy(entries.begin(), entries.end(), graph.entries.begin());
  return graph;
}

}  // namespace

TEST_CASE("pruning keeps the edges that its definition keeps") {
  for (const Shape shape : {Shape::kUniform, Shape::kClusters, Shape::kDuplicates}) {
    for (const uint32_t rows : {2u, 5u, 40u, 150u}) {
      const MadeData data(rows, 6, shape, 9);
      for (const uint32_t k : {3u, 12u, 24u}) {
        const KnnGraph knn = exact_knn(data.codes, k, kTwoThreads);
        const Array<uint32_t> distances = distances_of(knn, data.codes);
        const Array<uint32_t> measured = list_distances(knn, data.codes, kTwoThreads);
        REQUIRE(std::equal(measured.begin(), measured.end(), distances.begin(), distances.end()));
        for (const uint32_t degree : {2u, 8u, 12u}) {
          for (const uint32_t looked_at : {degree, 3 * degree / 2, k, 3 * k}) {
            const Pruning pruning{degree, looked_at, false};
            const Array<uint32_t> kept = prune_by_rank(knn, pruning, kTwoThreads);
            const Array<uint32_t> by_distance = prune_by_distance(knn, distances, pruning, kTwoThreads);
            for (uint32_t row = 0; row < rows; ++row) {
              const auto expected = pruned_by_definition(knn, row, pruning);
              REQUIRE(std::equal(expected.begin(), expected.end(), kept.data() + row * degree));
              const auto shortest = pruned_by_definition(knn, row, pruning, &distances);
              REQUIRE(std::equal(shortest.begin(), shortest.end(), by_distance.data() + row * degree));
            }
          }
        }
      }
    }
  }
}

TEST_CASE("reverse edges are merged as their definition says, whatever the threads") {
  for (const uint32_t rows : {1u, 2u, 7u, 90u}) {
    for (const uint32_t degree : {2u, 3u, 8u}) {
      // Skewed: small numbers are pointed at often, some places are holes.
      std::vector<uint32_t> edges(size_t{rows} * degree, kNoRow);
      for (uint32_t row = 0; row < rows; ++row) {
        std::set<uint32_t> targets;
        for (uint32_t i = 0; i < degree; ++i) {
          const uint32_t target =
              static_cast<uint32_t>(random_below(1 + random_below(rows, 1, row, i), 2, row, i));
          if (target != row) targets.insert(target);
        }
        std::copy(targets.begin(), targets.end(), edges.begin() + size_t{row} * degree);
      }
      for (const uint32_t threads : {1u, 4u}) {
        Array<uint32_t> merged({}, edges.size());
        std::copy(edges.begin(), edges.end(), merged.begin());
        add_reverse_edges(merged, rows, degree, {{}, threads, nullptr});
        for (uint32_t row = 0; row < rows; ++row) {
          const auto expected = merged_by_definition(edges, rows, degree, row);
          REQUIRE(std::equal(expected.begin(), expected.end(), merged.data() + row * degree));
        }
      }
    }
  }
}

TEST_CASE("repair reaches every row of islands and keeps what was reached") {
  for (const uint32_t islands : {2u, 5u, 30u}) {
    for (const uint32_t size : {1u, 2u, 3u, 20u}) {
      // Rings: each row knows the next of its island only. Entry: row 0 alone.
      const uint32_t rows = islands * size;
      std::vector<std::vector<uint32_t>> lists(rows);
      for (uint32_t row = 0; row < rows; ++row) {
        const uint32_t island = row / size;
        for (uint32_t step = 1; step <= 2 && size > step; ++step)
          lists[row].push_back(island * size + (row + step) % size);
      }
      SearchGraph graph = graph_of(lists, 2, {0});
      REQUIRE(count_unreachable(graph, {}) > 0);
      REQUIRE(repair_reachability(graph, {}) > 0);
      REQUIRE(count_unreachable(graph, {}) == 0);
      for (uint32_t row = 0; row < rows; ++row) {
        bool hole = false;
        for (uint32_t i = 0; i < 2; ++i) {
          const uint32_t target = graph.row(row).targets[i];
          if (target == kNoRow) hole = true;
          if (target != kNoRow) REQUIRE((!hole && target < rows));
        }
      }
    }
  }
}

TEST_CASE("each row has a head: its copy, or one with an edge to it or to its copy") {
  for (const Shape shape : {Shape::kUniform, Shape::kDuplicates, Shape::kAllEqual}) {
    const uint32_t rows = 700;
    const MadeData data(rows, 6, shape, 9);
    const auto code_of = [&](uint32_t row) {
      return std::string(reinterpret_cast<const char*>(data.codes.row(row)), data.codes.stride());
    };
    std::set<std::string> codes;
    for (uint32_t row = 0; row < rows; ++row) codes.insert(code_of(row));
    std::vector<std::vector<uint32_t>> lists(rows);
    for (uint32_t row = 0; row < rows; ++row) lists[row] = {(row + 1) % rows, (row + 2) % rows};
    const SearchGraph graph = graph_of(lists, 2, {0});

    const Heads heads = choose_heads(data.codes, graph, kTwoThreads);
    std::set<std::string> met;
    for (const uint32_t head : heads.rows) REQUIRE(met.insert(code_of(head)).second);
    REQUIRE(std::is_sorted(heads.rows.begin(), heads.rows.end()));
    if (codes.size() <= rows / 4) REQUIRE(met == codes);
    for (uint32_t row = 0; row < rows; ++row) {
      const uint32_t head = heads.of[row];
      REQUIRE(std::binary_search(heads.rows.begin(), heads.rows.end(), head));
      const std::set<std::string> near = {code_of(head), code_of((head + 1) % rows),
                                          code_of((head + 2) % rows)};
      REQUIRE(near.contains(code_of(row)));
    }
  }
}

namespace {

/// Rows in islands: those of one follow each other, and lists hold rows of the own island alone.
SearchGraph islands_of(uint32_t islands, uint32_t size, uint32_t degree) {
  std::vector<std::vector<uint32_t>> lists(islands * size);
  for (uint32_t row = 0; row < lists.size(); ++row) {
    for (uint32_t step = 1; step <= degree; ++step)
      lists[row].push_back(row / size * size + (row + step) % size);
  }
  return graph_of(lists, degree, {0});
}

}  // namespace

TEST_CASE("long edges lead from head to head and from every row to its own") {
  const uint32_t islands = 100, size = 24, degree = 8;
  const MadeData data(islands * size, 6, Shape::kUniform, 9);
  for (const bool again : {false, true}) {
    SearchGraph graph = islands_of(islands, size, degree);
    const Heads heads = choose_heads(data.codes, graph, {});
    REQUIRE(add_long_edges(data.codes, graph, 5, again ? kTwoThreads : Execution{}));
    REQUIRE(count_unreachable(graph, {}) == 0);
    REQUIRE(std::equal(heads.rows.begin(), heads.rows.end(), graph.heads.begin(), graph.heads.end()));
    REQUIRE(graph.entries.size() == std::min<size_t>(heads.rows.size(), kEntriesMax));
    const auto is_head = [&](uint32_t row) {
      return std::binary_search(heads.rows.begin(), heads.rows.end(), row);
    };
    uint32_t without = 0;  // that the second repair has taken an edge from
    for (uint32_t row = 0; row < graph.rows; ++row) {
      std::set<uint32_t> targets;
      uint32_t far = 0;
      for (const uint32_t target : graph.row(row)) {
        if (target == kNoRow) continue;
        REQUIRE((target < graph.rows && targets.insert(target).second));
        far += is_head(target) && target / size != row / size ? 1 : 0;
      }
      if (is_head(row))
        REQUIRE(far >= degree / 2 - 1);
      else
        without += targets.contains(heads.of[row]) ? 0 : 1;
    }
    REQUIRE(without <= graph.repaired_edges);
  }
}

namespace {

std::vector<uint32_t> distances_of(const Codes& codes, uint32_t to, const std::vector<uint32_t>& rows) {
  std::vector<uint8_t> code(codes.stride());
  codes.gather(&to, 1, code.data());
  std::vector<uint32_t> distances(rows.size());
  codes.distances(code.data(), rows.data(), static_cast<uint32_t>(rows.size()), distances.data());
  return distances;
}

/// Best-first search from `from` with a list of 16 rows: whether it meets `sought` within 64 steps.
bool finds_row(const Codes& codes, const SearchGraph& graph, uint32_t from, uint32_t sought) {
  const auto entry_of = [&](uint32_t row) {
    return std::pair(distances_of(codes, sought, {row}).front(), row);
  };
  std::set<std::pair<uint32_t, uint32_t>> list = {entry_of(from)};
  std::set<uint32_t> expanded;
  for (uint32_t step = 0; step < 64; ++step) {
    const auto next = std::find_if(list.begin(), list.end(),
                                   [&](const auto& entry) { return !expanded.contains(entry.second); });
    if (next == list.end()) return false;
    const uint32_t row = next->second;
    expanded.insert(row);
    for (const uint32_t target : graph.row(row)) {
      if (target == sought) return true;
      if (target != kNoRow && !expanded.contains(target)) list.insert(entry_of(target));
    }
    while (list.size() > 16) list.erase(std::prev(list.end()));
  }
  return false;
}

/// Whether such a search finds a row from the nearest of some, unless that is far.
bool is_found(const Codes& codes, const SearchGraph& graph, uint32_t sought,
              const std::vector<uint32_t>& rows) {
  if (rows.empty()) return false;
  std::vector<uint32_t> targets;
  for (const uint32_t target : graph.row(sought))
    if (target != kNoRow) targets.push_back(target);
  std::vector<uint32_t> around = distances_of(codes, sought, targets);
  std::sort(around.begin(), around.end());
  const std::vector<uint32_t> distances = distances_of(codes, sought, rows);
  const auto nearest = std::min_element(distances.begin(), distances.end());
  return *nearest <= 2.5 * around[around.size() / 8] &&
         finds_row(codes, graph, rows[nearest - distances.begin()], sought);
}

using HeadsOfEach = std::map<uint32_t, std::vector<uint32_t>>;

bool holds(const std::vector<uint32_t>& rows, uint32_t row) {
  return std::find(rows.begin(), rows.end(), row) != rows.end();
}

/// The heads near each, close ones first, and these alone.
std::pair<HeadsOfEach, HeadsOfEach> near_heads(const Codes& codes, const SearchGraph& graph) {
  HeadsOfEach mutual, near, close;
  std::map<uint32_t, uint32_t> nearest;
  for (const uint32_t head : graph.heads) {
    std::vector<uint32_t> heads;
    for (const uint32_t other : graph.row(head)) {
      if (!std::binary_search(graph.heads.begin(), graph.heads.end(), other)) continue;
      heads.push_back(other);
      const AdjacencyRow back = graph.row(other);
      if (std::find(back.begin(), back.end(), head) != back.end()) mutual[head].push_back(other);
    }
    const std::vector<uint32_t> distances = distances_of(codes, head, heads);
    nearest[head] = heads.empty() ? 0 : *std::min_element(distances.begin(), distances.end());
  }
  for (const auto& [head, others] : mutual) {
    std::vector<uint32_t> farther;
    for (const uint32_t other : others) {
      const bool has_third = std::any_of(others.begin(), others.end(),
                                         [&](uint32_t third) { return holds(mutual[other], third); });
      if (!has_third) continue;
      const uint32_t distance = distances_of(codes, head, {other}).front();
      const bool is_close = distance <= 2.5 * std::min(nearest[head], nearest[other]);
      (is_close ? close[head] : farther).push_back(other);
    }
    near[head] = close[head];
    near[head].insert(near[head].end(), farther.begin(), farther.end());
  }
  return {near, close};
}

/// Of 16 rows at most, spread over some, the one with the least sum of distances to these that is not far from the
/// first.
uint32_t centre_of(const Codes& codes, const std::vector<uint32_t>& about) {
  std::vector<uint32_t> rows;
  const size_t count = std::min<size_t>(about.size(), 16);
  for (size_t i = 0; i < count; ++i) rows.push_back(about[i * about.size() / count]);
  const std::vector<uint32_t> from_first = distances_of(codes, rows[0], rows);
  double bound = std::numeric_limits<double>::infinity();
  for (const uint32_t distance : from_first)
    if (distance != 0) bound = std::min(bound, 1.8 * distance);
  std::pair<double, size_t> best = {std::numeric_limits<double>::infinity(), 0};
  for (size_t i = 0; i < count; ++i) {
    if (i > 0 && from_first[i] > bound) continue;
    const std::vector<uint32_t> distances = distances_of(codes, rows[i], rows);
    best = std::min(best, std::pair(std::accumulate(distances.begin(), distances.end(), 0.0), i));
  }
  return rows[best.second];
}

/// The centres about heads that none before them reaches in so many steps, each once.
std::vector<uint32_t> candidates_of(const Codes& codes, const SearchGraph& graph, HeadsOfEach& near,
                                    uint32_t hops) {
  std::vector<uint32_t> candidates;
  std::set<uint32_t> covered;
  for (const uint32_t head : graph.heads) {
    if (covered.contains(head)) continue;
    std::vector<uint32_t> front = {head};
    size_t begin = 0;
    for (uint32_t hop = 0; hop < std::max(hops, 2u); ++hop) {
      for (const size_t end = front.size(); begin < end; ++begin) {
        for (const uint32_t other : std::vector<uint32_t>(near[front[begin]]))
          if (!holds(front, other)) front.push_back(other);
      }
      if (hop < hops) covered.insert(front.begin(), front.end());
    }
    const uint32_t centre = centre_of(codes, front);
    if (!holds(candidates, centre)) candidates.push_back(centre);
  }
  return candidates;
}

/// Those that are not found from the ones before.
std::vector<uint32_t> thinned(const Codes& codes, const SearchGraph& graph,
                              const std::vector<uint32_t>& candidates) {
  std::vector<uint32_t> kept;
  for (const uint32_t candidate : candidates)
    if (!is_found(codes, graph, candidate, kept)) kept.push_back(candidate);
  return kept;
}

}  // namespace

TEST_CASE("covering heads: centres about heads that no earlier one reaches, unless walks find them") {
  // Of heads with many edges some that are not close are near, too, and without these walks find fewer.
  struct Case {
    uint32_t islands, size, degree, dim;
    uint32_t close_hops;  // of close heads; 0: of near ones
  };
  for (const Case c : {Case{900, 24, 8, 6, 1}, {600, 40, 28, 6, 2}, {600, 40, 24, 3, 0}}) {
    const MadeData data(c.islands * c.size, c.dim, Shape::kUniform, 9);
    SearchGraph graph = islands_of(c.islands, c.size, c.degree);
    REQUIRE(covering_heads(graph, data.codes, kTwoThreads).empty());
    REQUIRE(add_long_edges(data.codes, graph, 5, kTwoThreads));
    REQUIRE(graph.heads.size() > graph.entries.size());
    auto [near, close] = near_heads(data.codes, graph);
    std::vector<uint32_t> candidates = candidates_of(data.codes, graph, near, 2);
    std::vector<uint32_t> wanted = thinned(data.codes, graph, candidates);
    const size_t most = 2 * wanted.size();
    uint32_t close_hops = 0;
    for (uint32_t hops = 1; hops <= 2 && close_hops == 0; ++hops) {
      const std::vector<uint32_t> closer = candidates_of(data.codes, graph, close, hops);
      const std::vector<uint32_t> left = thinned(data.codes, graph, closer);
      if (left.size() > most) continue;
      close_hops = hops;
      candidates = closer;
      wanted = left;
    }
    REQUIRE(close_hops == c.close_hops);
    REQUIRE((candidates.size() > 10 && candidates.size() < graph.heads.size() * 9 / 10));
    REQUIRE((wanted.size() > candidates.size() / 10 && wanted.size() < candidates.size() * 9 / 10));
    std::sort(wanted.begin(), wanted.end());
    for (const bool again : {false, true}) {
      const Array<uint32_t> found = covering_heads(graph, data.codes, again ? kTwoThreads : Execution{});
      REQUIRE(std::equal(wanted.begin(), wanted.end(), found.begin(), found.end()));
    }
  }
}

TEST_CASE(
    "no heads cover where most that walks do not find lie beside others: rows that are hard to find, no "
    "islands") {
  // Islands of the graph whose rows lie anywhere, all about as far from each other.
  const uint32_t islands = 3000, size = 24, degree = 8;
  const MadeData data(islands * size, 24, Shape::kUniform, 9);
  SearchGraph graph = islands_of(islands, size, degree);
  REQUIRE(add_long_edges(data.codes, graph, 5, kTwoThreads));
  auto [near, close] = near_heads(data.codes, graph);
  const std::vector<uint32_t> kept = thinned(data.codes, graph, candidates_of(data.codes, graph, near, 2));
  REQUIRE((kept.size() > 512 && kept.size() < kCoveringMost));
  REQUIRE(covering_heads(graph, data.codes, kTwoThreads).empty());
}

TEST_CASE("pivots are the covering heads, and others each once, as far as there are any") {
  SearchGraph graph;
  graph.rows = 100'000;
  REQUIRE(draw_pivots(graph, {}, {}).size() == kPivots);
  for (const uint32_t heads : {100u, 700u, 1300u, 5000u}) {
    graph.heads = Array<uint32_t>({}, heads);
    for (uint32_t i = 0; i < heads; ++i) graph.heads[i] = 7 + 13 * i;
    for (const uint32_t share : {0u, 1u, 2u, 5u}) {
      std::vector<uint32_t> covering;
      for (uint32_t i = 0; share != 0 && i < heads; i += share) covering.push_back(graph.heads[i]);
      const Array<uint32_t> pivots = draw_pivots(graph, covering, {});
      REQUIRE((pivots.size() == pivot_count(covering.size()) && pivots.size() % kPivots == 0));
      REQUIRE((pivots.size() > kPivots) == !covering.empty());
      REQUIRE(std::equal(covering.begin(), covering.end(), pivots.begin()));
      const auto end = std::find(pivots.begin(), pivots.end(), kNoRow);
      REQUIRE(std::all_of(end, pivots.end(), [](uint32_t row) { return row == kNoRow; }));
      const std::set<uint32_t> distinct(pivots.begin(), end);
      REQUIRE(distinct.size() == std::min<size_t>(heads, pivots.size()));
      for (const uint32_t row : distinct)
        REQUIRE(std::binary_search(graph.heads.begin(), graph.heads.end(), row));
    }
  }
}

TEST_CASE("a head that no other row leads back to stands for a query as often as any row") {
  const uint32_t islands = 100, size = 24, degree = 8;
  // No list holds the last row of an island, and the rows in its own list have other heads.
  std::vector<std::vector<uint32_t>> lists(islands * size);
  for (uint32_t row = 0; row < lists.size(); ++row) {
    const uint32_t first = row / size * size;
    for (uint32_t step = 1; lists[row].size() < degree; ++step)
      if (const uint32_t other = (row + step) % size; other != size - 1) lists[row].push_back(first + other);
  }
  SearchGraph graph = graph_of(lists, degree, {0});
  const MadeData data(graph.rows, 6, Shape::kUniform, 9);
  REQUIRE(add_long_edges(data.codes, graph, 5, kTwoThreads));
  const auto is_head = [&](uint32_t row) {
    return std::binary_search(graph.heads.begin(), graph.heads.end(), row);
  };
  const uint32_t count = 600;
  const DrawnRows drawn = draw_queries(data.codes, graph, count, graph.rows, 3, 4, kTwoThreads);
  uint32_t alone = 0;
  for (const uint32_t row : drawn.rows) {
    REQUIRE((row % size == size - 1 || !is_head(row)));
    alone += is_head(row) ? 1 : 0;
  }
  REQUIRE(alone > count / size / 2);
}

TEST_CASE("rows that stand for queries are with their copies no more than there is room for") {
  // Every other code has 14 copies.
  const uint32_t islands = 100, size = 24, distinct = 300;
  const MadeData data(distinct, 6, Shape::kUniform, 9);
  const SearchGraph graph = islands_of(islands, size, 8);
  std::vector<uint32_t> copied(graph.rows);
  for (uint32_t row = 0; row < graph.rows; ++row) {
    const bool is_first = row < distinct;
    const bool is_only = row - distinct < distinct / 2;
    copied[row] = is_first ? row : is_only ? 2 * (row - distinct) + 1 : row % (distinct / 2) * 2;
  }
  const Codes codes(data.codes, copied.data(), graph.rows, {});
  const uint64_t most = 1000;
  const DrawnRows drawn = draw_queries(codes, graph, 600, most, 3, 4, kTwoThreads);
  REQUIRE((drawn.rows.size() >= 64 && !drawn.copies.empty() && !drawn.have_copies));
  REQUIRE(drawn.rows.size() + drawn.copies.size() <= most);
}

TEST_CASE(
    "rows with many copies stand for queries as often as they are there, of those with few some without "
    "them") {
  // Every other row is the first one again, the others are 300 rows of four copies each.
  const uint32_t islands = 100, size = 24, distinct = 300;
  const MadeData data(distinct, 6, Shape::kUniform, 9);
  const SearchGraph graph = islands_of(islands, size, 8);
  std::vector<uint32_t> copied(graph.rows);
  for (uint32_t row = 0; row < graph.rows; ++row) copied[row] = row % 2 == 0 ? 0 : row / 2 % distinct;
  const Codes codes(data.codes, copied.data(), graph.rows, {});
  const DrawnRows drawn = draw_queries(codes, graph, 600, graph.rows, 3, 4, kTwoThreads);
  REQUIRE(!drawn.have_copies);
  REQUIRE(drawn.kinds.size() == drawn.rows.size());
  uint32_t popular = 0;
  std::set<uint32_t> hidden, seen;
  for (size_t i = 0; i < drawn.rows.size(); ++i) {
    const uint32_t code = copied[drawn.rows[i]];
    popular += code == 0 ? 1 : 0;
    REQUIRE((code == 0) == (drawn.kinds[i] == CopiesOf::kMany));
    if (drawn.kinds[i] == CopiesOf::kHidden) REQUIRE(hidden.insert(code).second);
    if (drawn.kinds[i] == CopiesOf::kSeen) seen.insert(code);
  }
  REQUIRE((popular > 250 && popular < 350));
  REQUIRE((hidden.size() > 60 && seen.size() > 60));
  for (const uint32_t code : seen) REQUIRE(!hidden.contains(code));
  uint32_t copies = 0;
  for (uint32_t row = 0; row < graph.rows; ++row) {
    if (!hidden.contains(copied[row])) continue;
    const bool stands = std::binary_search(drawn.rows.begin(), drawn.rows.end(), row);
    const bool is_copy = std::binary_search(drawn.copies.begin(), drawn.copies.end(), row);
    REQUIRE(stands != is_copy);
    copies += is_copy ? 1 : 0;
  }
  REQUIRE(copies == drawn.copies.size());

  // In another order each keeps its kind.
  DrawnRows shuffled = draw_queries(codes, graph, 600, graph.rows, 3, 4, kTwoThreads);
  shuffle(shuffled, 1, 2, {});
  for (const CopiesOf kind : {CopiesOf::kMany, CopiesOf::kHidden, CopiesOf::kSeen}) {
    const auto of_first = [&](size_t count) {
      return static_cast<double>(std::count(shuffled.kinds.begin(), shuffled.kinds.begin() + count, kind));
    };
    const double share = of_first(shuffled.kinds.size()) / static_cast<double>(shuffled.kinds.size());
    for (const size_t count : {16, 64, 200}) REQUIRE(std::fabs(of_first(count) - share * count) <= 2);
  }
  uint32_t moved = 0;
  for (size_t i = 0; i < drawn.rows.size(); ++i) {
    moved += shuffled.rows[i] != drawn.rows[i] ? 1 : 0;
    const auto at = std::find(drawn.rows.begin(), drawn.rows.end(), shuffled.rows[i]) - drawn.rows.begin();
    REQUIRE(shuffled.kinds[i] == drawn.kinds[at]);
  }
  REQUIRE(moved > drawn.rows.size() / 2);

  // With room for some 20 of them these say too little, and those that find their copies say nothing.
  REQUIRE(draw_queries(codes, graph, 600, 40, 3, 4, kTwoThreads).have_copies);
}

TEST_CASE("rows that stand for queries are no heads, or heads whose copies are named") {
  const uint32_t islands = 100, size = 24;
  {
    SearchGraph graph = islands_of(islands, size, 8);
    const MadeData data(graph.rows, 6, Shape::kUniform, 9);
    REQUIRE(add_long_edges(data.codes, graph, 5, kTwoThreads));
    const DrawnRows drawn = draw_queries(data.codes, graph, 200, graph.rows, 3, 4, kTwoThreads);
    REQUIRE((drawn.rows.size() == 200 && drawn.copies.empty()));
    for (const uint32_t row : drawn.rows)
      REQUIRE(!std::binary_search(graph.heads.begin(), graph.heads.end(), row));
  }
  // Rows of which each has seven copies.
  const uint32_t distinct = 300;
  const MadeData data(distinct, 6, Shape::kUniform, 9);
  SearchGraph graph = islands_of(islands, size, 8);
  std::vector<uint32_t> copied(graph.rows);
  for (uint32_t row = 0; row < graph.rows; ++row) copied[row] = row % distinct;
  const Codes codes(data.codes, copied.data(), graph.rows, {});
  const uint64_t most = 600;
  for (const bool has_heads : {false, true}) {
    if (has_heads) REQUIRE(add_long_edges(codes, graph, 5, kTwoThreads));
    // Of more rows than there are codes most have their copies among themselves.
    const uint32_t count = has_heads ? 200 : 4 * distinct;
    const DrawnRows drawn = draw_queries(codes, graph, count, most, 3, 4, kTwoThreads);
    REQUIRE((!drawn.copies.empty() && drawn.rows.size() + drawn.copies.size() <= most));
    REQUIRE(drawn.rows.size() > 60);
    for (size_t i = 0; i < drawn.rows.size(); ++i) {
      if (drawn.kinds[i] == CopiesOf::kSeen) continue;
      const uint32_t row = drawn.rows[i];
      for (uint32_t other = row % distinct; other < graph.rows; other += distinct)
        REQUIRE((other == row || std::binary_search(drawn.copies.begin(), drawn.copies.end(), other)));
    }
  }
}

namespace {

/// The repair by its definition: each pass tries every unreachable row, in order; where a pass attaches none, the
/// first unreachable row is attached to the first row of the tree that has a place.
struct RepairByDefinition {
  explicit RepairByDefinition(SearchGraph& given) : graph(given) {
    for (const uint32_t entry : graph.entries) reach(entry);
    grow();
  }

  void reach(uint32_t row) {
    if (std::find(order.begin(), order.end(), row) == order.end()) order.push_back(row);
  }
  bool reached(uint32_t row) const { return std::find(order.begin(), order.end(), row) != order.end(); }
  void grow() {
    for (; grown < order.size(); ++grown) {
      for (uint32_t i = 0; i < graph.degree; ++i) {
        const uint32_t target = graph.row(order[grown]).targets[i];
        if (target == kNoRow || reached(target)) continue;
        tree.insert({order[grown], i});
        reach(target);
      }
    }
  }
  bool attach(uint32_t parent, uint32_t child) {
    uint32_t place = kNoRow;
    for (uint32_t i = 0; i < graph.degree; ++i) {
      if (graph.row(parent).targets[i] == kNoRow) {
        place = i;
        break;
      }
      if (!tree.contains({parent, i})) place = i;
    }
    if (place == kNoRow) return false;
    graph.table().edge(parent, place) = child;
    tree.insert({parent, place});
    reach(child);
    grow();
    return true;
  }
  bool attach_by_list(uint32_t row) {
    for (uint32_t i = 0; i < graph.degree && graph.row(row).targets[i] != kNoRow; ++i)
      if (reached(graph.row(row).targets[i]) && attach(graph.row(row).targets[i], row)) return true;
    return false;
  }
  uint32_t run() {
    uint32_t edges_added = 0;
    while (order.size() < graph.rows) {
      const size_t before = order.size();
      for (uint32_t row = 0; row < graph.rows; ++row)
        if (!reached(row) && attach_by_list(row)) ++edges_added;
      if (order.size() != before) continue;
      uint32_t unreachable = 0;
      while (reached(unreachable)) ++unreachable;
      uint32_t parent = 0;
      while (!attach(order[parent], unreachable)) ++parent;
      ++edges_added;
    }
    return edges_added;
  }

  SearchGraph& graph;
  std::vector<uint32_t> order;
  std::set<std::pair<uint32_t, uint32_t>> tree;  // row, place in its list
  size_t grown = 0;
};

}  // namespace

TEST_CASE("repair hangs every row where its definition does") {
  for (uint64_t seed = 0; seed < 120; ++seed) {
    const auto below = [&](uint64_t bound, uint64_t stream, uint64_t counter) {
      return static_cast<uint32_t>(random_below(bound, seed, stream, counter));
    };
    const uint32_t degree = 1 + below(5, 1, 0);
    const uint32_t rows = 2 + below(seed % 2 == 0 ? 30 : 300, 1, 1);
    // Most edges lead to rows nearby or to lower numbers, so that islands and unreachable rows are many.
    std::vector<std::vector<uint32_t>> lists(rows);
    for (uint32_t row = 0; row < rows; ++row) {
      const uint32_t length = below(degree + 1, 2, row);
      for (uint32_t i = 0; i < length; ++i) {
        const uint64_t at = uint64_t{row} * 8 + i;
        const uint32_t near = row / 4 * 4 + below(4, 3, at);
        const uint32_t target = std::min(rows - 1, below(3, 4, at) == 0 ? below(row + 1, 5, at) : near);
        if (target != row && std::find(lists[row].begin(), lists[row].end(), target) == lists[row].end())
          lists[row].push_back(target);
      }
    }
    const std::vector<uint32_t> entries = {below(rows, 6, 0)};
    SearchGraph graph = graph_of(lists, degree, entries);
    SearchGraph expected = graph_of(lists, degree, entries);
    REQUIRE(repair_reachability(graph, {}) == RepairByDefinition(expected).run());
    REQUIRE(std::equal(graph.edges.begin(), graph.edges.end(), expected.edges.begin()));
    REQUIRE(count_unreachable(graph, {}) == 0);
  }
}

TEST_CASE("repair spends nothing where all is reached") {
  SearchGraph graph = graph_of({{1, 2}, {2, 0}, {0, 1}}, 2, {1});
  REQUIRE(repair_reachability(graph, {}) == 0);
  REQUIRE(graph.row(0).targets[0] == 1);
}

TEST_CASE("built graphs of hard shapes have no unreachable row") {
  for (const Shape shape : {Shape::kClusters, Shape::kDuplicates, Shape::kAllEqual, Shape::kIslands}) {
    const MadeData data(700, 8, shape, 11);
    SearchGraph graph;
    graph.rows = 700;
    graph.degree = 4;
    graph.edges = prune_by_rank(exact_knn(data.codes, 6, kTwoThreads), Pruning::near(4), kTwoThreads);
    add_reverse_edges(graph.edges, graph.rows, graph.degree, kTwoThreads);
    graph.entries = choose_entries(700, 3, 1, {});
    repair_reachability(graph, {});
    REQUIRE(count_unreachable(graph, {}) == 0);
  }
}

/// Every third row is a head and every sixteenth of these a start; edges lead to the next rows.
SearchGraph graph_with_starts(uint32_t rows, uint32_t degree) {
  SearchGraph graph;
  graph.rows = rows;
  graph.degree = degree;
  graph.make_fixed({});
  for (uint32_t row = 0; row < rows; ++row) {
    for (uint32_t i = 0; i < degree; ++i) graph.table().row(row)[i] = (row + 1 + i) % rows;
  }
  graph.heads = Array<uint32_t>({}, rows / 3);
  for (uint32_t i = 0; i < graph.heads.size(); ++i) graph.heads[i] = 3 * i;
  graph.entries = Array<uint32_t>({}, (graph.heads.size() + 15) / 16);
  for (uint32_t i = 0; i < graph.entries.size(); ++i) graph.entries[i] = graph.heads[16 * i];
  return graph;
}

TEST_CASE("a start gets edges to heads of its cell, each the farthest from those before") {
  constexpr uint32_t kDegree = 16;
  for (const Shape shape : {Shape::kUniform, Shape::kClusters, Shape::kDuplicates, Shape::kAllEqual}) {
    const MadeData data(1200, 8, shape, 3);
    const SearchGraph before = graph_with_starts(1200, kDegree);
    SearchGraph graph = graph_with_starts(1200, kDegree);
    spread_start_edges(data.codes, graph, kTwoThreads);
    const auto cell_of = [&](uint32_t head) {
      return *std::min_element(graph.entries.begin(), graph.entries.end(), [&](uint32_t a, uint32_t b) {
        return std::pair(data.distance(head, a), a) < std::pair(data.distance(head, b), b);
      });
    };
    for (uint32_t row = 0; row < graph.rows; ++row) {
      const uint32_t* was = before.row(row).targets;
      const uint32_t* is = graph.row(row).targets;
      const bool is_start = std::count(graph.entries.begin(), graph.entries.end(), row) != 0;
      REQUIRE(std::equal(was, was + (is_start ? kDegree / 2 : kDegree), is));
      if (!is_start) continue;
      std::vector<uint32_t> cell;
      for (const uint32_t head : graph.heads) {
        if (cell_of(head) == row) cell.push_back(head);
      }
      const auto gap = [&](uint32_t head, const std::vector<uint32_t>& chosen) {
        uint32_t least = UINT32_MAX;
        for (const uint32_t other : chosen) least = std::min(least, data.distance(head, other));
        return least;
      };
      std::vector<uint32_t> chosen = {row};
      while (!cell.empty() && chosen.size() <= kDegree / 4) {
        const uint32_t next = *std::max_element(cell.begin(), cell.end(), [&](uint32_t a, uint32_t b) {
          return gap(a, chosen) < gap(b, chosen);
        });
        if (gap(next, chosen) == 0) break;
        chosen.push_back(next);
        REQUIRE(std::count(is, is + kDegree, next) == 1);
      }
      REQUIRE(std::count(is, is + kDegree, row) == 0);
      REQUIRE(std::set<uint32_t>(is, is + kDegree).size() == kDegree);
    }
  }
}

TEST_CASE("starts that are all heads keep their edges") {
  const MadeData data(300, 8, Shape::kUniform, 3);
  SearchGraph graph = graph_with_starts(300, 8);
  graph.entries = Array<uint32_t>({}, graph.heads.size());
  std::copy(graph.heads.begin(), graph.heads.end(), graph.entries.begin());
  spread_start_edges(data.codes, graph, kTwoThreads);
  for (uint32_t row = 0; row < graph.rows; ++row) REQUIRE(graph.row(row).targets[7] == (row + 8) % 300);
}

TEST_CASE(
    "an inserted edge takes a free place, or the last of the second half that another two edges make up "
    "for") {
  SearchGraph free = graph_of({{1}, {2, 0}, {0, 1}}, 2, {0});
  REQUIRE(insert_edge(free, 0, 2));
  REQUIRE((free.row(0).targets[0] == 1 && free.row(0).targets[1] == 2));
  REQUIRE_FALSE(insert_edge(free, 0, 2));  // is there
  REQUIRE_FALSE(insert_edge(free, 1, 1));
  // Row 1 leads to row 2, so that row 0 need not; nothing but row 0 leads to row 1 and row 4.
  SearchGraph full = graph_of({{1, 4, 2, 3}, {2, 3, 5, 5}, {0}, {0}, {0}, {0}}, 4, {0});
  REQUIRE(insert_edge(full, 0, 5));
  REQUIRE((full.row(0).targets[2] == 2 && full.row(0).targets[3] == 5));
  // The last edge is the only one to its end.
  SearchGraph earlier = graph_of({{1, 4, 2, 3}, {2}, {0}, {0}, {0}, {0}}, 4, {0});
  REQUIRE(insert_edge(earlier, 0, 5));
  REQUIRE((earlier.row(0).targets[2] == 5 && earlier.row(0).targets[3] == 3));
  // An edge to the row itself leads to no other.
  SearchGraph looped = graph_of({{0, 1, 2, 3}, {0}, {0}, {0}, {0}, {0}}, 4, {0});
  REQUIRE_FALSE(insert_edge(looped, 0, 5));
  SearchGraph needed = graph_of({{1, 2, 3, 4}, {0}, {0}, {0}, {0}, {0}}, 4, {0});
  REQUIRE_FALSE(insert_edge(needed, 0, 5));
  REQUIRE(needed.row(0).targets[3] == 4);
}

TEST_CASE("inserted edges leave every row reached, and long edges in their places") {
  constexpr uint32_t kRows = 600;
  constexpr uint32_t kDegree = 8;
  for (const Shape shape : {Shape::kUniform, Shape::kClusters, Shape::kIslands}) {
    const MadeData data(kRows, 8, shape, 21);
    SearchGraph graph;
    graph.rows = kRows;
    graph.degree = kDegree;
    graph.edges = prune_by_rank(exact_knn(data.codes, 12, kTwoThreads), Pruning::near(kDegree), kTwoThreads);
    add_reverse_edges(graph.edges, graph.rows, graph.degree, kTwoThreads);
    graph.entries = choose_entries(kRows, 3, 1, {});
    repair_reachability(graph, {});
    uint32_t inserted = 0;
    for (uint64_t i = 0; i < 2 * kRows; ++i) {
      const auto row = static_cast<uint32_t>(random_below(kRows, 5, 1, i));
      inserted += insert_edge(graph, row, static_cast<uint32_t>(random_below(kRows, 5, 2, i))) ? 1 : 0;
    }
    REQUIRE(inserted > kRows);
    REQUIRE(count_unreachable(graph, {}) == 0);
  }
  SearchGraph graph = graph_with_starts(300, kDegree);
  for (uint32_t row = 0; row < graph.rows; ++row) {
    REQUIRE(insert_edge(graph, row, (row + 100) % 300));
    const bool is_head = row % 3 == 0;
    for (uint32_t place = 0; place < kDegree; ++place) {
      const bool changed = place == (is_head ? kDegree / 2 - 1 : kDegree - 2);
      REQUIRE(graph.row(row).targets[place] == (row + (changed ? 100 : 1 + place)) % 300);
    }
  }
}

TEST_CASE("measures agree with a closure of small random graphs") {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const uint32_t rows = 1 + static_cast<uint32_t>(random_below(14, seed, 0, 0));
    std::vector<std::vector<uint32_t>> lists(rows);
    std::vector<std::vector<char>> reach(rows, std::vector<char>(rows, 0));
    std::vector<std::vector<char>> joined(rows, std::vector<char>(rows, 0));
    for (uint32_t row = 0; row < rows; ++row) {
      reach[row][row] = joined[row][row] = 1;
      std::set<uint32_t> targets;
      for (uint64_t i = 0; i < random_below(4, seed, 1, row); ++i)
        targets.insert(static_cast<uint32_t>(random_below(rows, seed, 2 + row, i)));
      targets.erase(row);
      for (const uint32_t target : targets) {
        lists[row].push_back(target);
        reach[row][target] = joined[row][target] = joined[target][row] = 1;
      }
    }
    for (auto* matrix : {&reach, &joined}) {
      for (uint32_t via = 0; via < rows; ++via)
        for (uint32_t a = 0; a < rows; ++a)
          for (uint32_t b = 0; b < rows; ++b)
            if ((*matrix)[a][via] && (*matrix)[via][b]) (*matrix)[a][b] = 1;
    }
    std::set<std::set<uint32_t>> weak;
    std::set<std::set<uint32_t>> strong;
    size_t largest = 0;
    uint64_t unreachable = 0;
    for (uint32_t a = 0; a < rows; ++a) {
      std::set<uint32_t> with_a;
      std::set<uint32_t> around_a;
      for (uint32_t b = 0; b < rows; ++b) {
        if (joined[a][b]) around_a.insert(b);
        if (reach[a][b] && reach[b][a]) with_a.insert(b);
      }
      weak.insert(around_a);
      strong.insert(with_a);
      largest = std::max(largest, with_a.size());
      unreachable += reach[0][a] ? 0 : 1;
    }
    SearchGraph graph = graph_of(lists, 4, {0});
    ann_graph_stats stats = ANN_GRAPH_STATS_INIT;
    measure_graph(graph, 1, {}, &stats);
    REQUIRE(stats.weak_components == weak.size());
    REQUIRE(stats.strong_components == strong.size());
    REQUIRE(stats.largest_strong == largest);
    REQUIRE(stats.unreachable == unreachable);
  }
}
