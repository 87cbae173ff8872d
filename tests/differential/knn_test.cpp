// k-NN graphs: exact lists against a sort, NN-Descent against Algorithm 1 told with sets.

#include <algorithm>
#include <map>
#include <set>

#include "catch.h"
#include "knn/exact_knn.h"
#include "knn/nn_descent.h"
#include "knn/products.h"
#include "made_data.h"

using namespace gannet;

namespace {

std::vector<uint32_t> sorted_neighbors(const MadeData& data, uint32_t row, uint32_t k) {
  std::vector<std::pair<uint32_t, uint32_t>> all;
  for (uint32_t other = 0; other < data.codes.rows(); ++other)
    if (other != row) all.push_back({data.distance(row, other), other});
  std::sort(all.begin(), all.end());
  std::vector<uint32_t> list(k, kNoRow);
  for (uint32_t i = 0; i < std::min<size_t>(k, all.size()); ++i) list[i] = all[i].second;
  return list;
}

/// GNND, Algorithm 1, one row after the other, with sets for lists.
struct Reference {
  struct Entry {
    uint32_t distance;
    uint32_t row;
    bool is_new;
    bool operator<(const Entry& other) const {
      return std::pair(distance, row) < std::pair(other.distance, other.row);
    }
  };
  using List = std::set<Entry>;

  const MadeData& data;
  NnDescentParams params;
  std::vector<List> lists;
  TwoSets sets = {};
  const uint32_t* offsets = nullptr;  // of products

  uint32_t distance(uint32_t a, uint32_t b) const {
    return data.distance(a, b) + (offsets != nullptr ? offsets[a] + offsets[b] : 0);
  }

  bool insert(uint32_t row, uint32_t neighbor, bool is_new = true) {
    List& list = lists[row];
    if (!list.insert({distance(row, neighbor), neighbor, is_new}).second) return false;
    if (list.size() <= params.k) return true;
    const bool kept = std::prev(list.end())->row != neighbor;
    list.erase(std::prev(list.end()));
    return kept;
  }

  using Sampled = std::vector<std::set<uint32_t>>;

  Sampled with_reverse(const std::vector<std::vector<uint32_t>>& own, uint64_t stream) {
    const uint32_t rows = data.codes.rows();
    std::vector<std::vector<std::pair<uint64_t, uint32_t>>> reverse(rows);
    for (uint32_t source = 0; source < rows; ++source) {
      for (const uint32_t target : own[source])
        reverse[target].push_back(
            {random_word(params.seed, 2 + (stream << 8), uint64_t{target} * rows + source) >> 32, source});
    }
    Sampled samples(rows);
    for (uint32_t row = 0; row < rows; ++row) {
      samples[row].insert(own[row].begin(), own[row].end());
      std::sort(reverse[row].begin(), reverse[row].end());
      const size_t most = 2 * params.samples - own[row].size();
      for (size_t i = 0; i < std::min(most, reverse[row].size()); ++i)
        samples[row].insert(reverse[row][i].second);
    }
    return samples;
  }

  /// Algorithm 3: the kept half is OLD, random rows of the other set are NEW.
  void start_with_two_sets() {
    const uint32_t rows = data.codes.rows();
    for (uint32_t row = 0; row < rows; ++row) {
      for (uint32_t i = 0; i < sets.kept; ++i) {
        const uint32_t kept = sets.neighbors[row * sets.kept + i];
        if (kept != kNoRow) insert(row, kept, false);
      }
      const uint32_t begin = row < sets.first_rows ? sets.first_rows : 0;
      const uint32_t others = row < sets.first_rows ? rows - sets.first_rows : sets.first_rows;
      const uint64_t drawn = params.k - sets.kept;
      for (uint64_t i = 0; i < drawn; ++i)
        insert(row, begin + static_cast<uint32_t>(random_below(others, params.seed, 3, row * drawn + i)));
    }
  }

  /// Only rows of different sets are compared; of OLD entries those of the row's own set are sampled.
  bool across(uint32_t a, uint32_t b) const { return (a < sets.first_rows) != (b < sets.first_rows); }

  void run() {
    const uint32_t rows = data.codes.rows();
    lists.resize(rows);
    const bool two_sets = sets.first_rows != 0;
    if (two_sets) start_with_two_sets();
    for (uint64_t row = 0; !two_sets && row < rows; ++row) {
      for (uint32_t i = 0; i < params.samples; ++i) {
        const uint32_t drawn =
            static_cast<uint32_t>(random_below(rows - 1, params.seed, 1, row * params.samples + i));
        insert(static_cast<uint32_t>(row), drawn + (drawn >= row ? 1 : 0));
      }
    }
    for (uint32_t round = 1; round <= params.iterations; ++round) {
      std::vector<std::vector<uint32_t>> own_new(rows);
      std::vector<std::vector<uint32_t>> own_old(rows);
      for (uint32_t row = 0; row < rows; ++row) {
        List marked;
        for (Entry entry : lists[row]) {
          auto& own = entry.is_new ? own_new[row] : own_old[row];
          const bool meets = !two_sets || entry.is_new || !across(row, entry.row);
          if (meets && own.size() < params.samples) {
            own.push_back(entry.row);
            entry.is_new = false;
          }
          marked.insert(entry);
        }
        lists[row] = marked;
      }
      const Sampled fresh = with_reverse(own_new, 2 * round);
      const Sampled known = with_reverse(own_old, 2 * round + 1);
      uint64_t inserted = 0;
      const auto tell_nearest = [&](uint32_t row, const std::set<uint32_t>& others) {
        std::pair<uint32_t, uint32_t> nearest = {UINT32_MAX, kNoRow};
        for (const uint32_t other : others)
          if (other != row && (!two_sets || across(row, other)))
            nearest = std::min(nearest, {distance(row, other), other});
        if (nearest.second != kNoRow) inserted += insert(row, nearest.second) ? 1 : 0;
      };
      // What meets is fixed before the round, so the order of insertion does not matter.
      for (uint32_t row = 0; row < rows; ++row) {
        for (const uint32_t u : fresh[row]) tell_nearest(u, fresh[row]);
        for (const uint32_t u : fresh[row]) tell_nearest(u, known[row]);
        for (const uint32_t u : known[row]) tell_nearest(u, fresh[row]);
      }
      (void)inserted;
    }
  }
};

}  // namespace

TEST_CASE("exact lists are those of a sort, ties by row") {
  for (const Shape shape : {Shape::kUniform, Shape::kDuplicates, Shape::kAllEqual}) {
    for (const uint32_t rows : {1u, 2u, 9u, 63u, 64u, 65u, 200u}) {
      const MadeData data(rows, 5, shape, 3);
      for (const uint32_t threads : {1u, 3u}) {
        const KnnGraph graph = exact_knn(data.codes, 8, {{}, threads, nullptr});
        for (uint32_t row = 0; row < rows; ++row) {
          const std::vector<uint32_t> expected = sorted_neighbors(data, row, 8);
          REQUIRE(std::equal(expected.begin(), expected.end(), graph.list(row)));
        }
      }
    }
  }
}

TEST_CASE("lists longer than a search graph's rows are those of a sort, and of Algorithm 1") {
  const MadeData data(700, 9, Shape::kClusters, 5);
  for (const uint32_t k : {257u, 300u, 400u, kKnnListMax}) {
    const KnnGraph exact = exact_knn(data.codes, k, {{}, 3, nullptr});
    const NnDescentParams params{k, 16, 3, 1e-9f, 42};
    Reference reference{data, params, {}, {}, nullptr};
    reference.run();
    const KnnGraph graph = nn_descent(data.codes, params, {{}, 3, nullptr});
    for (uint32_t row = 0; row < 700; ++row) {
      const std::vector<uint32_t> sorted = sorted_neighbors(data, row, k);
      REQUIRE(std::equal(sorted.begin(), sorted.end(), exact.list(row)));
      std::vector<uint32_t> expected;
      for (const auto& entry : reference.lists[row]) expected.push_back(entry.row);
      expected.resize(k, kNoRow);
      REQUIRE(std::equal(expected.begin(), expected.end(), graph.list(row)));
    }
  }
}

TEST_CASE("NN-Descent makes the lists of Algorithm 1, whatever the threads") {
  for (const Shape shape : {Shape::kUniform, Shape::kClusters, Shape::kDuplicates}) {
    const MadeData data(300, 9, shape, 5);
    for (const uint32_t rounds : {1u, 2u, 5u}) {
      NnDescentParams params{12, 5, rounds, 1e-9f, 42};
      Reference reference{data, params, {}, {}, nullptr};
      reference.run();
      for (const uint32_t threads : {1u, 2u, 5u}) {
        const KnnGraph graph = nn_descent(data.codes, params, {{}, threads, nullptr});
        REQUIRE(graph.iterations <= rounds);
        if (graph.iterations < rounds) continue;  // converged: later rounds would change nothing
        for (uint32_t row = 0; row < 300; ++row) {
          std::vector<uint32_t> expected;
          for (const auto& entry : reference.lists[row]) expected.push_back(entry.row);
          expected.resize(params.k, kNoRow);
          REQUIRE(std::equal(expected.begin(), expected.end(), graph.list(row)));
        }
      }
    }
  }
}

TEST_CASE("NN-Descent of two sets makes the lists of Algorithm 3, whatever the threads") {
  for (const Shape shape : {Shape::kUniform, Shape::kClusters, Shape::kDuplicates}) {
    const MadeData data(300, 9, shape, 5);
    for (const uint32_t first_rows : {150u, 30u, 260u}) {
      const uint32_t k = 12, kept = 6;
      // Nearer halves as a caller may have them: of one's own set, some of the other, some short.
      std::vector<uint32_t> halves(300 * kept, kNoRow);
      for (uint32_t row = 0; row < 300; ++row) {
        const std::vector<uint32_t> all = sorted_neighbors(data, row, 299);
        uint32_t count = 0;
        for (const uint32_t other : all) {
          const bool own = (row < first_rows) == (other < first_rows);
          if (count < (row % 7 == 0 ? 2 : kept) && (own || row % 5 == 0))
            halves[row * kept + count++] = other;
        }
      }
      const TwoSets sets{first_rows, kept, halves.data()};
      for (const uint32_t rounds : {1u, 2u, 5u}) {
        const NnDescentParams params{k, 5, rounds, 1e-9f, 42};
        Reference reference{data, params, {}, sets, nullptr};
        reference.run();
        for (const uint32_t threads : {1u, 3u}) {
          const KnnGraph graph = nn_descent(data.codes, params, {{}, threads, nullptr}, sets);
          if (graph.iterations < rounds) continue;  // converged: later rounds would change nothing
          for (uint32_t row = 0; row < 300; ++row) {
            std::vector<uint32_t> expected;
            for (const auto& entry : reference.lists[row]) expected.push_back(entry.row);
            expected.resize(k, kNoRow);
            REQUIRE(std::equal(expected.begin(), expected.end(), graph.list(row)));
          }
        }
      }
    }
  }
}

TEST_CASE("NN-Descent by products makes the lists of Algorithm 1 by inner product") {
  for (const Shape shape : {Shape::kUniform, Shape::kClusters, Shape::kDuplicates}) {
    const MadeData data(300, 9, shape, 5);
    const auto offsets = product_offsets(data.codes, 9, {});
    REQUIRE(offsets.has_value());
    const NnDescentParams params{12, 5, 3, 1e-9f, 42};
    Reference reference{data, params, {}, {}, offsets->data()};
    // Distances with offsets are a number less twice the product.
    const auto whole = [&](uint32_t a, uint32_t b) {
      uint32_t product = 0;
      for (uint32_t i = 0; i < 9; ++i) product += uint32_t{data.bytes[a * 9 + i]} * data.bytes[b * 9 + i];
      return reference.distance(a, b) + 2 * product;
    };
    for (uint32_t row = 1; row < 300; ++row) REQUIRE(whole(row, row / 2) == whole(1, 0));
    reference.run();
    for (const uint32_t threads : {1u, 3u}) {
      const KnnGraph graph = nn_descent_by_products(data.codes, *offsets, params, {{}, threads, nullptr});
      REQUIRE(graph.iterations == 3);
      for (uint32_t row = 0; row < 300; ++row) {
        std::vector<uint32_t> expected;
        for (const auto& entry : reference.lists[row]) expected.push_back(entry.row);
        expected.resize(params.k, kNoRow);
        REQUIRE(std::equal(expected.begin(), expected.end(), graph.list(row)));
      }
    }
  }
}

TEST_CASE("NN-Descent finds nearly all true neighbours of clustered rows") {
  const MadeData data(3000, 16, Shape::kClusters, 7);
  const NnDescentParams params{24, 12, 20, 0.001f, 1};
  const KnnGraph graph = nn_descent(data.codes, params, {{}, 2, nullptr});
  const KnnGraph exact = exact_knn(data.codes, 10, {{}, 2, nullptr});
  uint64_t found = 0;
  for (uint32_t row = 0; row < 3000; ++row) {
    const uint32_t* list = graph.list(row);
    for (uint32_t i = 0; i < 10; ++i)
      found += std::find(list, list + 24, exact.list(row)[i]) != list + 24 ? 1 : 0;
  }
  REQUIRE(static_cast<double>(found) / 30000 > 0.97);
}

TEST_CASE("NN-Descent stops when the monitor says so") {
  const MadeData data(2000, 16, Shape::kUniform, 7);
  Monitor monitor;
  monitor.cancel();
  REQUIRE_THROWS_AS(nn_descent(data.codes, {16, 8, 20, 0.001f, 1}, {{}, 2, &monitor}), Error);
}
