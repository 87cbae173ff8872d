// Exact search in batches, which leaves out rows that are too far to matter, against a sort of all distances:
// the same ids and the same bits, whatever the rows are like.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/random.h"
#include "../scale.h"
#include "catch.h"
#include "distance/kernels.h"
#include "search/exact.h"
#include "search/row_bounds.h"
#include "traverse/row_key.h"

using namespace gannet;

namespace {

enum class Rows { kNormal, kFew, kEqual, kOffset, kTiny, kHuge, kMixed, kOutliers, kAway, kSameHuge };

/// [rows, dim] of an element.
struct Block {
  Block(uint32_t rows, uint32_t dim, int32_t element, Rows kind, uint64_t seed)
      : rows(rows), dim(dim), element(element), bytes(size_t{rows} * dim * element_bytes(element)) {
    for (uint32_t row = 0; row < rows; ++row) {
      for (uint32_t column = 0; column < dim; ++column) set(row, column, value(kind, seed, row, column));
    }
  }
  MatrixView view() const { return {bytes.data(), rows, dim, element, size_t{dim} * element_bytes(element)}; }

  uint32_t rows;
  uint32_t dim;
  int32_t element;
  std::vector<uint8_t> bytes;

 private:
  static double value(Rows kind, uint64_t seed, uint32_t row, uint32_t column) {
    const auto unit = [&](uint64_t stream) {
      return static_cast<double>(random_below(20001, seed, stream, column)) / 10000 - 1;
    };
    const uint64_t own = 100 + row;
    switch (kind) {
      case Rows::kNormal:
        return unit(own) + unit(own + 1000000) + unit(own + 2000000);
      case Rows::kFew:
        return random_below(2, seed, own, column) == 0 ? 1 : -1;
      case Rows::kEqual:
        return row % 3 == 0 ? 0 : unit(1);
      case Rows::kOffset:
        return 1000 + unit(own);
      case Rows::kTiny:
        return unit(own) * 1e-22;
      case Rows::kHuge:
        return unit(own) * (row % 7 == 0 ? 3e38 : 1e18);
      case Rows::kMixed:
        return row % 5 == 0 ? 0 : unit(own) * std::pow(10, row % 60 - 30.0);
      case Rows::kOutliers:
        return unit(own) * (row % 50 == 0 ? 1000 : 1);
      case Rows::kAway:
        return 5 + unit(own);
      case Rows::kSameHuge:  // products with queries, of another seed, are beyond all floats
        return seed == 1 ? 0x1p100 : 0x1p30;
    }
    return 0;
  }
  void set(uint32_t row, uint32_t column, double value) {
    uint8_t* at = bytes.data() + size_t{row} * dim * element_bytes(element);
    if (element == ANN_I8 || element == ANN_U8) {
      const double scaled = std::clamp(value * 40, -100.0, 100.0);
      at[column] = static_cast<uint8_t>(static_cast<int32_t>(scaled) + (element == ANN_U8 ? 120 : 0));
    } else {
      const double most = element == ANN_F16 ? 60000 : 3e38;
      float_to_element(static_cast<float>(std::clamp(value, -most, most)), at, element, column);
    }
  }
};

constexpr uint32_t kRows = 700;
constexpr uint32_t kQueries = 53;  // as many as codes of rows are made for

/// The k nearest of each query by sorting all of them.
void sort_all(const Dataset& dataset, const QueryBlock& queries, const uint32_t* excluded,
              const ResultsView& results) {
  for (uint64_t query = 0; query < queries.size(); ++query) {
    std::vector<float> distances(dataset.rows());
    dataset.distances(queries[query], nullptr, 0, dataset.rows(), distances.data());
    std::vector<Neighbor> all;
    for (uint32_t row = 0; row < dataset.rows(); ++row) {
      if (excluded == nullptr || excluded[query] != row) all.push_back({distances[row], dataset.id(row)});
    }
    std::sort(all.begin(), all.end());
    const uint32_t found = std::min(results.k, static_cast<uint32_t>(all.size()));
    write_answer(results, query, all.data(), found, ANN_OK);
  }
}

struct Answers {
  explicit Answers(uint32_t k) : k(k), ids(kQueries * k), distances(kQueries * k), counts(kQueries) {}
  ResultsView view() { return {k, ids.data(), distances.data(), counts.data(), nullptr}; }
  bool operator==(const Answers& other) const {
    const auto bits = [](float a, float b) {
      return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
    };
    return ids == other.ids && counts == other.counts &&
           std::equal(distances.begin(), distances.end(), other.distances.begin(), bits);
  }
  uint32_t k;
  std::vector<uint64_t> ids;
  std::vector<float> distances;
  std::vector<uint32_t> counts;
};

void compare(int32_t metric, int32_t element, Rows kind, uint32_t dim, bool own_ids) {
  const Block rows(kRows, dim, element, kind, 1);
  Block queries(kQueries, dim, element, kind, 2);
  const size_t row_bytes = size_t{dim} * element_bytes(element);
  std::copy_n(rows.bytes.begin() + 11 * row_bytes, row_bytes, queries.bytes.begin());
  std::fill_n(queries.bytes.begin() + row_bytes, row_bytes, uint8_t{0});
  // Ids that run against the rows, so that of equal distances the last rows are reported.
  std::vector<uint64_t> ids;
  for (uint32_t row = 0; row < kRows; ++row) ids.push_back(uint64_t{1} << 40 ^ (7 * (kRows - row)));
  const Dataset dataset(rows.view(), own_ids ? ids.data() : nullptr, metric, 0, false, {});
  const QueryBlock block(dataset, queries.view(), {});
  std::vector<uint32_t> excluded(kQueries, kNoRow);
  excluded[0] = 11;
  excluded[5] = kRows - 1;
  for (const uint32_t k : {1u, 10u, 300u, kRows + 5}) {
    for (const bool excludes : {false, true}) {
      Answers found(k);
      Answers expected(k);
      sort_all(dataset, block, excludes ? excluded.data() : nullptr, expected.view());
      search_exact(dataset, block, {{}, {}, excludes ? excluded.data() : nullptr}, found.view(),
                   {{}, 1, nullptr});
      INFO("metric " << metric << " element " << element_name(element) << " kind " << static_cast<int>(kind)
                     << " dim " << dim << " k " << k << " ids " << own_ids);
      REQUIRE(found == expected);
    }
  }
}

}  // namespace

TEST_CASE("exact search in batches gives the bits of comparing every row") {
  for (const int32_t metric : {ANN_METRIC_L2, ANN_METRIC_INNER_PRODUCT, ANN_METRIC_COSINE}) {
    for (int32_t element = ANN_F32; element <= ANN_U8; ++element) {
      for (const Rows kind : {Rows::kNormal, Rows::kFew, Rows::kEqual, Rows::kOffset, Rows::kTiny,
                              Rows::kHuge, Rows::kMixed, Rows::kOutliers, Rows::kAway, Rows::kSameHuge}) {
        for (const uint32_t dim : {3u, 70u}) {
          const int number = metric + element + static_cast<int>(kind) + static_cast<int>(dim % 2);
          if (test_takes(number)) compare(metric, element, kind, dim, false);
          if (test_takes(number + 1)) compare(metric, element, kind, dim, true);
        }
      }
    }
  }
}

TEST_CASE("bytes leave out most rows, of rows about a point far from zero too") {
  constexpr uint32_t kDim = 70;
  constexpr uint32_t kNearest = 10;
  for (const int32_t metric : {ANN_METRIC_L2, ANN_METRIC_INNER_PRODUCT, ANN_METRIC_COSINE}) {
    for (const Rows kind : {Rows::kNormal, Rows::kAway}) {
      const Block rows(kRows, kDim, ANN_F32, kind, 1);
      const Block given(kQueries, kDim, ANN_F32, kind, 2);
      const Dataset dataset(rows.view(), nullptr, metric, 0, false, {});
      const QueryBlock queries(dataset, given.view(), {});
      const RowBounds bounds(dataset, {});
      RowBounds::Tile tile(bounds, {});
      std::vector<uint8_t> code(bounds.stride());
      std::vector<uint32_t> apart(bounds.tile_rows());
      std::vector<uint32_t> places(bounds.tile_rows() + kPackRows);
      uint64_t near = 0;
      for (uint64_t i = 0; i < queries.size(); ++i) {
        std::vector<float> distances(kRows);
        dataset.distances(queries[i], nullptr, 0, kRows, distances.data());
        std::nth_element(distances.begin(), distances.begin() + kNearest - 1, distances.end());
        RowBounds::Query query;
        bounds.code_query(queries[i], true, tile, code.data(), &query);
        bounds.set_limit(distances[kNearest - 1], &query);
        for (uint32_t first = 0; first < kRows; first += bounds.tile_rows()) {
          const uint32_t count = std::min(bounds.tile_rows(), kRows - first);
          bounds.code_rows(first, count, tile);
          kernels().code_tile(code.data(), 1, tile.packed(), count, bounds.stride(), bounds.columns(),
                              apart.data(), apart.size());
          near += kernels().within_bound(apart.data(), tile.rows(), count, query, places.data());
        }
      }
      INFO("metric " << metric << " kind " << static_cast<int>(kind) << " near " << near);
      REQUIRE(near >= kNearest * queries.size());
      REQUIRE(near <= 3 * kNearest * queries.size());
    }
  }
}

TEST_CASE("exact search of few and of many columns, and for any number of threads") {
  for (const int32_t element : {ANN_F32, ANN_F16, ANN_U8}) {
    for (const uint32_t dim : {1u, 64u, 65u, 1000u, 5000u}) {
      if (dim < 1000 || test_takes(element + static_cast<int>(dim / 1000)))
        compare(ANN_METRIC_L2, element, Rows::kNormal, dim, false);
    }
  }
  const Block rows(kRows, 24, ANN_F32, Rows::kNormal, 1);
  const Block queries(kQueries, 24, ANN_F32, Rows::kNormal, 2);
  const Dataset dataset(rows.view(), nullptr, ANN_METRIC_L2, 0, false, {});
  const QueryBlock block(dataset, queries.view(), {});
  Answers expected(10);
  sort_all(dataset, block, nullptr, expected.view());
  for (const uint32_t threads : {1u, 2u, 3u, 8u, 50u}) {
    Answers found(10);
    search_exact(dataset, block, {}, found.view(), {{}, threads, nullptr});
    REQUIRE(found == expected);
  }
}

TEST_CASE("rows that no byte tells apart are told apart") {
  // Each bound lets all pass, and the distances decide.
  Block rows(kRows, 40, ANN_F32, Rows::kNormal, 3);
  for (uint32_t row = 1; row < kRows; ++row) {
    for (uint32_t column = 0; column < 40; ++column) {
      float value;
      std::memcpy(&value, rows.bytes.data() + column * 4, 4);
      value += static_cast<float>(random_below(1000, 5, row, column)) * 1e-6f;
      std::memcpy(rows.bytes.data() + (size_t{row} * 40 + column) * 4, &value, 4);
    }
  }
  for (const int32_t metric : {ANN_METRIC_L2, ANN_METRIC_INNER_PRODUCT, ANN_METRIC_COSINE}) {
    const Dataset dataset(rows.view(), nullptr, metric, 0, false, {});
    MatrixView some = rows.view();
    some.rows = kQueries;
    const QueryBlock block(dataset, some, {});
    Answers found(10);
    Answers expected(10);
    sort_all(dataset, block, nullptr, expected.view());
    search_exact(dataset, block, {}, found.view(), {{}, 1, nullptr});
    REQUIRE(found == expected);
  }
}

TEST_CASE("a long exact search ends when its monitor says so, whatever it is doing") {
  const Block rows(20000, 8, ANN_U8, Rows::kNormal, 1);
  const Block queries(kQueries, 8, ANN_U8, Rows::kNormal, 2);
  const Dataset dataset(rows.view(), nullptr, ANN_METRIC_L2, 0, false, {});
  Monitor monitor;
  const Execution execution{{}, 1, &monitor};
  const QueryBlock block(dataset, queries.view(), execution);
  for (const uint32_t k : {10u, 15000u}) {
    std::vector<uint64_t> ids(size_t{kQueries} * k);
    monitor.cancel();
    const ResultsView results{k, ids.data(), nullptr, nullptr, nullptr};
    REQUIRE_THROWS(search_exact(dataset, block, {}, results, execution));
    monitor.reset();
    search_exact(dataset, block, {}, results, execution);
  }
}
