// Searches: exact search against a sort, best-first search at its limits, codes of every metric
// against the order that they stand for, calibration against its promise.

#include <algorithm>
#include <cmath>

#include "catch.h"
#include "index/index.h"
#include "made_data.h"
#include "search/exact.h"

using namespace gannet;

namespace {

struct Floats {
  Floats(uint32_t rows, uint32_t dim, uint64_t seed, double spread) : dim(dim) {
    for (uint64_t row = 0; row < rows; ++row) {
      const double length = std::exp(spread * (static_cast<double>(
                                random_below(1000, seed, 1, row)) / 1000 - 0.5));
      for (uint64_t column = 0; column < dim; ++column) {
        double value = 0;  // nearly normal: a sum of uniform numbers
        for (uint64_t i = 0; i < 4; ++i)
          value += static_cast<double>(random_below(2001, seed, 2 + row, column * 4 + i)) / 1000 - 1;
        values.push_back(static_cast<float>(value * length));
      }
    }
  }
  MatrixView view() const {
    return {reinterpret_cast<const uint8_t*>(values.data()), values.size() / dim, dim, ANN_F32,
            dim * sizeof(float)};
  }
  uint32_t dim;
  std::vector<float> values;
};

double true_distance(const float* x, const float* q, uint32_t dim, int32_t metric) {
  double dot = 0, l2 = 0, xx = 0, qq = 0;
  for (uint32_t i = 0; i < dim; ++i) {
    dot += double{x[i]} * q[i];
    l2 += (double{x[i]} - q[i]) * (double{x[i]} - q[i]);
    xx += double{x[i]} * x[i];
    qq += double{q[i]} * q[i];
  }
  if (metric == ANN_METRIC_L2) return l2;
  return metric == ANN_METRIC_INNER_PRODUCT ? -dot : 1 - dot / std::sqrt(xx * qq);
}

std::unique_ptr<const Built> build_floats(const Floats& rows, int32_t metric, bool calibrate) {
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  shape.dim = rows.dim;
  shape.metric = metric;
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.calibrate = calibrate ? ANN_ON : ANN_OFF;
  const BuildPlan plan = plan_build(params, rows.view().rows, 2);
  return build(shape, rows.view(), nullptr, plan, nullptr, {{}, 2, nullptr});
}

struct Answers {
  Answers(uint64_t queries, uint32_t k) : k(k), ids(queries * k), distances(queries * k) {}
  ResultsView view() { return {k, ids.data(), distances.data(), nullptr, nullptr}; }
  double recall_against(const Answers& truth) const {
    uint64_t hits = 0;
    for (size_t query = 0; query < ids.size() / k; ++query)
      for (uint32_t i = 0; i < k; ++i)
        hits += std::find(truth.ids.begin() + query * k, truth.ids.begin() + (query + 1) * k,
                          ids[query * k + i]) != truth.ids.begin() + (query + 1) * k;
    return static_cast<double>(hits) / ids.size();
  }
  uint32_t k;
  std::vector<uint64_t> ids;
  std::vector<float> distances;
};

}  // namespace

TEST_CASE("exact search answers as a sort in double precision does") {
  const Floats rows(400, 23, 1, 1);
  const Floats queries(20, 23, 2, 1);
  for (const int32_t metric : {ANN_METRIC_L2, ANN_METRIC_INNER_PRODUCT, ANN_METRIC_COSINE}) {
    const Dataset dataset(rows.view(), nullptr, metric, 0, false, {});
    const QueryBlock block(dataset, queries.view(), {});
    Answers answers(20, 10);
    search_exact(dataset, block, nullptr, answers.view(), {{}, 2, nullptr});
    for (uint32_t query = 0; query < 20; ++query) {
      std::vector<double> all;
      for (uint32_t row = 0; row < 400; ++row)
        all.push_back(true_distance(&rows.values[row * 23], &queries.values[query * 23], 23, metric));
      std::vector<double> sorted = all;
      std::sort(sorted.begin(), sorted.end());
      for (uint32_t i = 0; i < 10; ++i) {
        const uint32_t place = query * 10 + i;
        const double scale = std::fabs(sorted[i]) + 1;
        REQUIRE(std::fabs(answers.distances[place] - sorted[i]) < 1e-4 * scale);
        REQUIRE(std::fabs(all[answers.ids[place]] - sorted[i]) < 1e-4 * scale);
      }
    }
  }
}

TEST_CASE("a beam as long as the rows finds what exact search finds") {
  for (const Shape shape : {Shape::kUniform, Shape::kClusters, Shape::kIslands, Shape::kAllEqual}) {
    const MadeData data(500, 12, shape, 13);
    ann_index_params index_shape = ANN_INDEX_PARAMS_INIT;
    index_shape.dim = 12;
    index_shape.metric = ANN_METRIC_L2;
    ann_build_params params = ANN_BUILD_PARAMS_INIT;
    params.degree = 6;
    params.calibrate = ANN_OFF;
    const MatrixView rows = view_of(data.bytes, 12);
    const auto built = build(index_shape, rows, nullptr, plan_build(params, 500, 2), nullptr, {});
    Answers found(500, 7);
    Answers truth(500, 7);
    SearchCounts counts;
    search_batch(*built, rows, 500, found.view(), {{}, 2, nullptr}, &counts);
    search_exact(built->dataset, QueryBlock(built->dataset, rows, {}), nullptr, truth.view(), {});
    REQUIRE(found.ids == truth.ids);
    REQUIRE(found.distances == truth.distances);
  }
}

TEST_CASE("searches on codes answer each metric, with the distances of the stored rows") {
  const Floats queries(200, 40, 4, 1);
  for (const int32_t metric : {ANN_METRIC_L2, ANN_METRIC_INNER_PRODUCT, ANN_METRIC_COSINE}) {
    const Floats rows(6000, 40, 3, 1.2);
    const auto built = build_floats(rows, metric, false);
    Answers found(200, 10);
    Answers truth(200, 10);
    SearchCounts counts;
    search_batch(*built, queries.view(), 200, found.view(), {{}, 2, nullptr}, &counts);
    search_exact(built->dataset, QueryBlock(built->dataset, queries.view(), {}), nullptr,
                 truth.view(), {});
    INFO("metric " << metric);
    REQUIRE(found.recall_against(truth) > 0.95);
    for (uint32_t query = 0; query < 200; ++query) {
      for (uint32_t i = 0; i < 10; ++i) {
        const uint32_t place = query * 10 + i;
        const auto same = std::find(truth.ids.begin() + query * 10,
                                    truth.ids.begin() + (query + 1) * 10, found.ids[place]);
        if (same != truth.ids.begin() + (query + 1) * 10)
          REQUIRE(found.distances[place] ==
                  truth.distances[static_cast<size_t>(same - truth.ids.begin())]);
      }
    }
    REQUIRE(counts.distances > 0);
    REQUIRE(counts.expansions > 0);
  }
}

TEST_CASE("a masked row is neither returned nor walked through") {
  const MadeData data(300, 8, Shape::kClusters, 17);
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  shape.dim = 8;
  shape.metric = ANN_METRIC_L2;
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.calibrate = ANN_OFF;
  const auto built = build(shape, view_of(data.bytes, 8), nullptr, plan_build(params, 300, 1),
                           nullptr, {});
  SearchSpace space(built->dataset, built->codes, built->graph, {});
  for (uint32_t row = 0; row < 300; ++row) {
    PreparedQuery query;
    std::vector<uint8_t> values(8);
    built->dataset.prepare(&data.bytes[row * 8], ANN_U8, values.data(), &query);
    SearchCounts counts;
    const uint32_t found = search_best_first(built->dataset, built->codes, built->graph, query, row,
                                             10, 300, space, &counts);
    REQUIRE(found == 10);
    for (uint32_t i = 0; i < found; ++i) REQUIRE(space.neighbors[i].id != row);
  }
}

TEST_CASE("recall asked for is recall got, on queries that calibration has not seen") {
  const Floats rows(20000, 24, 5, 0);
  const Floats queries(500, 24, 6, 0);
  const auto built = build_floats(rows, ANN_METRIC_L2, true);
  for (const uint32_t k : {1u, 10u, 37u, 100u}) {
    Answers truth(500, k);
    search_exact(built->dataset, QueryBlock(built->dataset, queries.view(), {}), nullptr,
                 truth.view(), {{}, 2, nullptr});
    for (const float recall : {0.8f, 0.9f, 0.95f, 0.99f}) {
      Answers found(500, k);
      SearchCounts counts;
      search_batch(*built, queries.view(), built->calibration.beam(k, recall), found.view(),
                   {{}, 2, nullptr}, &counts);
      INFO("k " << k << " recall " << recall);
      REQUIRE(found.recall_against(truth) >= recall - 0.01);
    }
  }
}
