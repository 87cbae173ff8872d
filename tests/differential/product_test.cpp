// Inner product: rows of unlike length, queries of another law and of any length, against comparing all rows.

#include <algorithm>
#include <cmath>
#include <vector>

#include "catch.h"
#include "graph/product_edges.h"
#include "index/index.h"
#include "search/exact.h"
#include "storage/storage.h"

using namespace gannet;

namespace {

constexpr uint32_t kDim = 24;
constexpr uint32_t kRows = 8000;
constexpr uint32_t kQueries = 100;
constexpr uint32_t kK = 10;

/// About normal: the sum of four uniform numbers.
float normal(uint64_t seed, uint64_t stream, uint64_t counter) {
  const uint64_t word = random_word(seed, stream, counter);
  float sum = 0;
  for (uint32_t i = 0; i < 4; ++i) sum += static_cast<float>(word >> (16 * i) & 0xffff) / 65536 - 0.5f;
  return sum * 1.7320508f;
}

/// Rows in some directions each, with lengths that differ by a factor of some ten.
std::vector<float> unlike_rows(uint32_t rows) {
  std::vector<float> values;
  for (uint32_t row = 0; row < rows; ++row) {
    const float length = std::exp(0.7f * normal(1, 1, row));
    const uint64_t cluster = random_below(60, 1, 2, row);
    for (uint32_t i = 0; i < kDim; ++i)
      values.push_back(length * (normal(1, 3, cluster * kDim + i) + 0.6f * normal(1, 4 + row, i)));
  }
  return values;
}

/// Means of five random directions, which are like no row.
std::vector<float> foreign_queries(float length) {
  std::vector<float> values;
  for (uint32_t query = 0; query < kQueries; ++query) {
    for (uint32_t i = 0; i < kDim; ++i) {
      float sum = 0;
      for (uint64_t part = 0; part < 5; ++part)
        sum +=
            normal(1, 3, random_below(60, 2, query, part) * kDim + i) + 0.3f * normal(3, query, i * 5 + part);
      values.push_back(sum / 5 * length);
    }
  }
  return values;
}

MatrixView view_of(const std::vector<float>& values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size() / kDim, kDim, ANN_F32,
          kDim * sizeof(float)};
}

std::unique_ptr<const PlacedSegment> build_rows(const std::vector<float>& rows, uint32_t threads,
                                                int32_t calibrate, int32_t knn) {
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  shape.dim = kDim;
  shape.metric = ANN_METRIC_INNER_PRODUCT;
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.calibrate = calibrate;
  params.knn = knn;
  params.threads = threads;
  return build(shape, view_of(rows), nullptr, plan_build(params, shape, rows.size() / kDim, threads), nullptr,
               {{}, threads, nullptr});
}

struct Answers {
  std::vector<uint64_t> ids = std::vector<uint64_t>(kQueries * kK);
  std::vector<float> distances = std::vector<float>(kQueries * kK);
  uint64_t compared = 0;

  ResultsView view() { return {kK, ids.data(), distances.data(), nullptr, nullptr}; }
};

Answers search(const PlacedSegment& placed, const std::vector<float>& queries, uint32_t beam) {
  Answers answers;
  SearchCounts counts;
  const SearchBatch batch{view_of(queries), answers.view()};
  kBestFirst.run_on_host(placed.host, batch, BeamPlan{beam}, {{}, 2, nullptr}, &counts);
  answers.compared = counts.distances;
  return answers;
}

double recall(const PlacedSegment& placed, const std::vector<float>& queries, const Answers& got) {
  Answers truth;
  const Execution execution{{}, 2, nullptr};
  search_exact(placed.segment.dataset, QueryBlock(placed.segment.dataset, view_of(queries), execution), {},
               truth.view(), execution);
  uint32_t hits = 0;
  for (size_t i = 0; i < got.ids.size(); ++i)
    hits += got.distances[i] <= truth.distances[i / kK * kK + kK - 1] ? 1 : 0;
  return hits / static_cast<double>(got.ids.size());
}

struct Bytes {
  std::vector<uint8_t> bytes;
  size_t at = 0;

  static int64_t write(void* user, const void* data, uint64_t count) {
    auto& self = *static_cast<Bytes*>(user);
    const auto* from = static_cast<const uint8_t*>(data);
    self.bytes.insert(self.bytes.end(), from, from + count);
    return static_cast<int64_t>(count);
  }
};

Bytes saved(const PlacedSegment& placed) {
  Bytes file;
  save_stream(placed, {Bytes::write, &file}, {});
  return file;
}

}  // namespace

TEST_CASE("a few hundred rows are compared where lengths differ and queries are like no row") {
  const std::vector<float> rows = unlike_rows(kRows);
  for (const int32_t knn : {ANN_KNN_AUTO, ANN_KNN_NN_DESCENT}) {
    const auto placed = build_rows(rows, 2, ANN_OFF, knn);
    const std::vector<float> queries = foreign_queries(1);
    const Answers found = search(*placed, queries, 64);
    INFO("knn " << knn << " compared " << found.compared / kQueries);
    CHECK(recall(*placed, queries, found) >= 0.97);
    CHECK(found.compared / kQueries < kRows / 8);
  }
}

TEST_CASE("the length of a query changes no answer by inner product") {
  const auto placed = build_rows(unlike_rows(kRows), 2, ANN_OFF, ANN_KNN_AUTO);
  const Answers one = search(*placed, foreign_queries(1), 32);
  for (const float length : {0.0009765625f, 0.125f, 64.0f, 1048576.0f}) {  // powers of two: no rounding
    const Answers other = search(*placed, foreign_queries(length), 32);
    CHECK(other.ids == one.ids);
    CHECK(other.compared == one.compared);
  }
}

TEST_CASE("calibration by inner product promises what is kept") {
  const auto placed = build_rows(unlike_rows(kRows), 2, ANN_ON, ANN_KNN_AUTO);
  REQUIRE(placed->calibration.known().reaches(kK, 0.95f));
  const uint32_t beam = placed->calibration.known().beam(kK, 0.95f);
  CHECK(beam < 400);
  // Held-out rows, of which there are enough here, are like the queries to come.
  std::vector<float> queries = unlike_rows(kRows + kQueries);
  queries.erase(queries.begin(), queries.begin() + static_cast<std::ptrdiff_t>(kRows) * kDim);
  CHECK(recall(*placed, queries, search(*placed, queries, beam)) >= 0.94);
}

TEST_CASE("graph and codes by inner product do not depend on threads") {
  const std::vector<float> rows = unlike_rows(5000);
  const Bytes one = saved(*build_rows(rows, 1, ANN_OFF, ANN_KNN_AUTO));
  const Bytes three = saved(*build_rows(rows, 3, ANN_OFF, ANN_KNN_AUTO));
  CHECK(one.bytes == three.bytes);
}

TEST_CASE("a file keeps the codes that walks take") {
  const auto placed = build_rows(unlike_rows(3000), 2, ANN_OFF, ANN_KNN_AUTO);
  const Bytes file = saved(*placed);
  const std::vector<float> queries = foreign_queries(1);
  const Answers before = search(*placed, queries, 32);
  for (const int32_t mode : {ANN_OPEN_FULL, ANN_OPEN_LAZY}) {
    OpenPlan plan;
    plan.mode = mode;
    const auto opened = open_memory(file.bytes.data(), file.bytes.size(), plan, {});
    REQUIRE(opened->segment.codes.scaled() != nullptr);
    const Answers after = search(*opened, queries, 32);
    CHECK(after.ids == before.ids);
    CHECK(after.compared == before.compared);
    CHECK(saved(*opened).bytes == file.bytes);
  }
}

TEST_CASE("edges of rows by product are distinct, lead to others and reach every row") {
  for (const uint32_t count : {1u, 2u, 12u, 300u, 3000u}) {
    for (const bool equal : {false, true}) {
      std::vector<float> rows = unlike_rows(count);
      if (equal) std::fill(rows.begin(), rows.end(), 0.0f);
      const auto placed = build_rows(rows, 2, ANN_OFF, ANN_KNN_AUTO);
      const SearchGraph& graph = placed->segment.graph;
      CHECK(std::is_sorted(graph.entries.begin(), graph.entries.end()));
      CHECK(std::adjacent_find(graph.entries.begin(), graph.entries.end()) == graph.entries.end());
      CHECK(count_unreachable(graph, {}) == 0);
      for (uint32_t row = 0; row < count; ++row) {
        std::vector<uint32_t> edges;
        for (const uint32_t target : graph.row(row)) {
          if (target != kNoRow) edges.push_back(target);
        }
        std::sort(edges.begin(), edges.end());
        REQUIRE(std::adjacent_find(edges.begin(), edges.end()) == edges.end());
        REQUIRE(std::find(edges.begin(), edges.end(), row) == edges.end());
      }
    }
  }
}
