// Projected codes: against products made column by column, and against comparing all rows.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "catch.h"
#include "index/choose_projection.h"
#include "index/index.h"
#include "index/snapshot.h"
#include "search/exact.h"

using namespace gannet;

namespace {

constexpr uint32_t kRows = 3000;
constexpr uint32_t kQueries = 60;
constexpr uint32_t kK = 10;

/// Floats of `dim` columns in `inner` dimensions, and some noise in all.
std::vector<float> flat_rows(uint32_t rows, uint32_t dim, uint32_t inner, uint64_t seed,
                             float noise = 0.02f) {
  const auto uniform = [](uint64_t stream, uint64_t counter) {
    return static_cast<float>(random_word(7, stream, counter) >> 40) / (1 << 24) - 0.5f;
  };
  std::vector<float> values(size_t{rows} * dim);
  for (uint32_t row = 0; row < rows; ++row) {
    for (uint32_t column = 0; column < dim; ++column) {
      float sum = noise * uniform(100 + seed, uint64_t{row} * dim + column);
      for (uint32_t i = 0; i < inner; ++i)
        sum += uniform(seed, uint64_t{row} * inner + i) * uniform(99, uint64_t{i} * dim + column);
      values[size_t{row} * dim + column] = sum;
    }
  }
  return values;
}

MatrixView view_of(const std::vector<float>& values, uint32_t dim) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size() / dim, dim, ANN_F32,
          dim * sizeof(float)};
}

/// The code of a row's code by the words of projected_codes.h.
std::vector<uint8_t> project_by_hand(const uint8_t* code, size_t stride, const ProjectedCodes& projected) {
  const uint8_t* bytes = projected.projection().data();
  float factor;
  std::memcpy(&factor, bytes, sizeof factor);
  std::vector<uint8_t> out;
  for (uint32_t j = 0; j < projected.width(); ++j) {
    int32_t offset;
    std::memcpy(&offset, bytes + ProjectedCodes::kHeadBytes + j * sizeof offset, sizeof offset);
    const uint8_t* direction =
        bytes + ProjectedCodes::kHeadBytes + projected.width() * sizeof offset + j * stride;
    int32_t product = 0;
    for (size_t i = 0; i < stride; ++i) product += code[i] * (direction[i] - 128);
    const float steps = static_cast<float>(product - offset) * factor;
    out.push_back(static_cast<uint8_t>(std::clamp(std::floor(steps + 128.5f), 0.0f, 255.0f)));
  }
  return out;
}

Dataset dataset_of(const std::vector<float>& rows, uint32_t dim, int32_t metric, int32_t element) {
  return Dataset(view_of(rows, dim), nullptr, metric, element, false, {});
}

}  // namespace

TEST_CASE("projected codes are products with the directions of the projection") {
  for (const uint32_t dim : {193u, 256u, 600u}) {
    const std::vector<float> values = flat_rows(kRows, dim, 12, 1);
    const Dataset dataset = dataset_of(values, dim, ANN_METRIC_L2, ANN_F32);
    Codes codes(dataset, 1, {});
    REQUIRE(!codes.wide());
    auto [projected, order, serves_walks] = choose_projection(dataset, codes, 1, {});
    REQUIRE(projected.has_value());
    CHECK(serves_walks);
    CHECK(projected->width() == 64);
    CHECK(order.first_twenty > 0.99);
    for (uint32_t row = 0; row < kRows; row += 97) {
      const std::vector<uint8_t> wanted = project_by_hand(codes.row(row), codes.stride(), *projected);
      REQUIRE(std::equal(wanted.begin(), wanted.end(), projected->row(row)));
    }
    // A row's distance to itself as a query is none, and others' are those of their codes.
    const uint32_t width = projected->width();
    codes.walk_by(std::move(*projected));
    CHECK(codes.walk_stride() == width);
    std::vector<uint8_t> prepared(dataset.query_bytes());
    Array<uint8_t> code({}, codes.walk_query_bytes());
    PreparedQuery query;
    dataset.prepare(reinterpret_cast<const uint8_t*>(values.data() + 5 * dim), ANN_F32, prepared.data(),
                    &query);
    codes.encode_walk_query(query, code.data());
    const uint32_t ids[] = {5, 6, 2999};
    uint32_t distances[3];
    codes.walk_distances(code.data(), ids, 3, distances);
    CHECK(distances[0] == 0);
    for (uint32_t i = 1; i < 3; ++i) {
      uint32_t sum = 0;
      for (uint32_t j = 0; j < width; ++j) {
        const int32_t gap = code[j] - codes.projected()->row(ids[i])[j];
        sum += static_cast<uint32_t>(gap * gap);
      }
      CHECK(distances[i] == sum);
    }
  }
}

TEST_CASE("a row is as far from rows as they are, of signed bytes too") {
  constexpr uint32_t kDim = 70;
  std::vector<uint8_t> bytes(size_t{kRows} * kDim);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(random_word(3, 4, i));
  for (const int32_t element : {int32_t{ANN_I8}, int32_t{ANN_U8}}) {
    const Dataset dataset({bytes.data(), kRows, kDim, element, kDim}, nullptr, ANN_METRIC_L2, 0, false, {});
    const Codes codes(dataset, 1, {});
    const uint32_t ids[] = {5, 2999, 0, 17, 8};
    uint32_t distances[5];
    codes.distances_of_row(5, ids, 5, distances);
    for (uint32_t i = 0; i < 5; ++i) {
      uint32_t sum = 0;
      for (uint32_t column = 0; column < kDim; ++column) {
        const float gap = element_to_float(dataset.row(5), element, column) -
                          element_to_float(dataset.row(ids[i]), element, column);
        sum += static_cast<uint32_t>(gap * gap);
      }
      CHECK(distances[i] == sum);
    }
  }
}

TEST_CASE("rows without a projection that keeps their order have none") {
  const auto has = [&](uint32_t rows, uint32_t dim, uint32_t inner, int32_t metric) {
    const std::vector<float> values = flat_rows(rows, dim, inner, 2);
    const Dataset dataset = dataset_of(values, dim, metric, ANN_F32);
    const Codes codes(dataset, 1, {});
    return choose_projection(dataset, codes, 1, {}).codes.has_value();
  };
  CHECK(has(2000, 256, 10, ANN_METRIC_L2));
  CHECK(has(2000, 256, 10, ANN_METRIC_COSINE));
  CHECK(!has(2000, 256, 10, ANN_METRIC_INNER_PRODUCT));
  CHECK(!has(2000, 256, 256, ANN_METRIC_L2));  // all columns differ alike
  CHECK(!has(2000, 192, 10, ANN_METRIC_L2));
  CHECK(!has(1000, 256, 10, ANN_METRIC_L2));
}

TEST_CASE(
    "a projection that loses too much for walks finds candidates of lists, and is dropped behind them") {
  constexpr uint32_t kDim = 512;
  const std::vector<float> values = flat_rows(kRows, kDim, 24, 4, 1.0f);
  const Dataset dataset = dataset_of(values, kDim, ANN_METRIC_L2, ANN_F32);
  const Codes codes(dataset, 1, {});
  const Projection projection = choose_projection(dataset, codes, 1, {});
  REQUIRE(projection.codes.has_value());
  CHECK(!projection.serves_walks);
  CHECK(projection.order.first_twenty >= 0.97);
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  shape.dim = kDim;
  shape.metric = ANN_METRIC_L2;
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.knn = ANN_KNN_CELLS;
  params.device = ANN_DEVICE_CPU;
  const auto built =
      build(shape, view_of(values, kDim), nullptr, plan_build(params, shape, kRows, 2), nullptr, {});
  CHECK(built->segment.codes.projected() == nullptr);
  CHECK(built->segment.codes.list_codes() == nullptr);
  CHECK(built->segment.codes.walk_stride() == kDim);
  CHECK(built->segment.knn_share >= 0.955);
}

TEST_CASE("searches by a projection find the neighbours, at the distances of the rows as stored") {
  for (const int32_t element : {int32_t{ANN_F32}, int32_t{ANN_F16}, int32_t{ANN_U8}}) {
    constexpr uint32_t kDim = 320;
    std::vector<float> values = flat_rows(kRows + kQueries, kDim, 14, 3);
    if (element == ANN_U8) {
      for (float& value : values) value = std::clamp(std::round(value * 40 + 128), 0.0f, 255.0f);
    }
    const std::vector<float> queries(values.begin() + size_t{kRows} * kDim, values.end());
    values.resize(size_t{kRows} * kDim);
    ann_index_params shape = ANN_INDEX_PARAMS_INIT;
    shape.dim = kDim;
    shape.metric = ANN_METRIC_L2;
    shape.element = element;
    ann_build_params params = ANN_BUILD_PARAMS_INIT;
    params.device = ANN_DEVICE_CPU;
    MatrixView rows = view_of(values, kDim);
    MatrixView asked = view_of(queries, kDim);
    std::vector<uint8_t> row_bytes, query_bytes;
    if (element == ANN_U8) {
      for (const float value : values) row_bytes.push_back(static_cast<uint8_t>(value));
      for (const float value : queries) query_bytes.push_back(static_cast<uint8_t>(value));
      rows = {row_bytes.data(), kRows, kDim, ANN_U8, kDim};
      asked = {query_bytes.data(), kQueries, kDim, ANN_U8, kDim};
    }
    Snapshot snapshot;
    snapshot.segments.push_back(
        build(shape, rows, nullptr, plan_build(params, shape, kRows, 2), nullptr, {}));
    const Segment& segment = snapshot.single().segment;
    REQUIRE(segment.codes.projected() != nullptr);
    CHECK(segment.codes.lossless() == (element == ANN_U8));
    CHECK(!segment.codes.walks_report());
    CHECK(segment.codes.order().first_ten < 1);
    std::vector<float> true_distances(size_t{kQueries} * kK), distances(true_distances.size());
    std::vector<uint64_t> true_ids(true_distances.size()), ids(true_distances.size());
    std::vector<uint32_t> found(kQueries);
    std::vector<ann_status> status(kQueries);
    const QueryBlock block(segment.dataset, asked, {});
    search_exact(segment.dataset, block, {},
                 {kK, true_ids.data(), true_distances.data(), found.data(), status.data()}, {});
    for (const int32_t procedure : {ANN_SEARCH_BEST_FIRST, ANN_SEARCH_SLACK}) {
      ann_search_params search = ANN_SEARCH_PARAMS_INIT;
      search.procedure = procedure;
      search.recall = 0.95f;
      SearchCounts counts;
      search_snapshot(snapshot, search, search.recall, ANN_DEVICE_CPU,
                      {asked, {kK, ids.data(), distances.data(), found.data(), status.data()}}, {}, &counts);
      uint32_t hits = 0;
      for (size_t i = 0; i < ids.size(); ++i) {
        const size_t first = i / kK * kK;
        for (size_t j = first; j < first + kK; ++j) {
          if (true_ids[j] != ids[i]) continue;
          ++hits;
          REQUIRE(true_distances[j] == distances[i]);
        }
      }
      CHECK(hits >= 0.93 * static_cast<double>(ids.size()));
      // Rows are compared as stored behind the walk.
      CHECK(counts.distances > kQueries * rerank_count(kK));
    }
  }
}
