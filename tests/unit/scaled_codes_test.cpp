// Codes with a scale for each row: products equal on every level, distances as near as rounding allows, and the
// order of rows where one step for all rows loses it.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/random.h"
#include "catch.h"
#include "dataset/scaled_codes.h"

using namespace gannet;

namespace {

std::vector<const Kernels*> levels_here() {
  std::vector<const Kernels*> levels = {&kPortableKernels};
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  if (avx2) levels.push_back(&kAvx2Kernels);
  if (avx512) levels.push_back(&kAvx512Kernels);
  if (avx512 && __builtin_cpu_supports("avx512vnni")) levels.push_back(&kAvx512VnniKernels);
#endif
  return levels;
}

/// About normal: the sum of four uniform numbers.
float normal(uint64_t seed, uint64_t stream, uint64_t counter) {
  float sum = 0;
  const uint64_t word = random_word(seed, stream, counter);
  for (uint32_t i = 0; i < 4; ++i) sum += static_cast<float>(word >> (16 * i) & 0xffff) / 65536 - 0.5f;
  return sum * 1.7320508f;
}

std::vector<float> normal_rows(uint32_t rows, uint32_t dim, uint64_t seed) {
  std::vector<float> values(size_t{rows} * dim);
  for (size_t i = 0; i < values.size(); ++i) values[i] = normal(seed, 1, i);
  return values;
}

Dataset dataset_of(const std::vector<float>& values, uint32_t dim, int32_t metric) {
  const MatrixView view = {reinterpret_cast<const uint8_t*>(values.data()), values.size() / dim, dim, ANN_F32,
                           dim * sizeof(float)};
  return Dataset(view, nullptr, metric, 0, false, {});
}

/// A fifth of the rows lie within a thousandth of the others' deviation about one point.
std::vector<float> two_densities(uint32_t rows, uint32_t dim) {
  std::vector<float> values = normal_rows(rows, dim, 7);
  for (uint32_t row = 0; row < rows; row += 5) {
    for (uint32_t i = 0; i < dim; ++i) {
      float& value = values[size_t{row} * dim + i];
      value = static_cast<float>(i % 3) - 1 + 0.001f * value;
    }
  }
  return values;
}

/// Codes of one query's distances to all rows.
std::vector<uint32_t> all_distances(const Dataset& dataset, const ScaledCodes& codes,
                                    const std::vector<float>& query) {
  std::vector<uint8_t> values(dataset.query_bytes());
  PreparedQuery prepared;
  REQUIRE(dataset.prepare(reinterpret_cast<const uint8_t*>(query.data()), ANN_F32, values.data(), &prepared));
  Array<uint8_t> coded({}, codes.query_bytes());
  codes.encode_query(prepared, coded.data());
  std::vector<uint32_t> out(dataset.rows());
  codes.distances(coded.data(), nullptr, 0, dataset.rows(), out.data());
  std::vector<uint32_t> ids(dataset.rows());
  std::vector<uint32_t> by_id(dataset.rows());
  for (uint32_t i = 0; i < ids.size(); ++i) ids[i] = dataset.rows() - 1 - i;
  codes.distances(coded.data(), ids.data(), 0, dataset.rows(), by_id.data());
  std::reverse(by_id.begin(), by_id.end());
  REQUIRE(out == by_id);
  return out;
}

float as_float(uint32_t ordered) {
  return std::bit_cast<float>((ordered & 0x80000000u) != 0 ? ordered ^ 0x80000000u : ~ordered);
}

}  // namespace

TEST_CASE("products of every level are the sums") {
  for (const uint32_t dim : {1u, 15u, 16u, 17u, 31u, 33u, 63u, 64u, 65u, 100u, 128u, 200u, 960u, 4099u}) {
    constexpr uint32_t kRows = 11;
    const auto stride = round_up_to_16(dim);
    const auto columns = static_cast<uint32_t>(round_up(dim, kProductAlign));
    const int32_t most = most_of_query(dim);
    // The last row ends where the memory does.
    std::vector<uint8_t> rows(kRows * stride);
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<uint8_t>(1 + random_below(255, 1, dim, i));
    std::vector<int16_t> values(columns);
    std::vector<int8_t> digits(2 * columns);
    for (uint32_t extreme = 0; extreme < 3; ++extreme) {
      uint32_t sum = 0;
      for (uint32_t i = 0; i < dim; ++i) {
        const int32_t value =
            extreme == 0
                ? static_cast<int32_t>(random_below(2 * static_cast<uint64_t>(most) + 1, 2, dim, i)) - most
            : extreme == 1 ? most
                           : -most;
        const int32_t low = static_cast<int8_t>(value & 0xff);
        values[i] = static_cast<int16_t>(value);
        digits[i] = static_cast<int8_t>((value - low) / 256);
        digits[columns + i] = static_cast<int8_t>(low);
        REQUIRE(256 * digits[i] + low == value);
        sum += static_cast<uint32_t>(value);
      }
      if (extreme > 0)
        std::fill(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(stride), uint8_t{255});
      const ProductQuery query = {values.data(), digits.data(), digits.data() + columns, 128 * sum};
      const std::vector<uint32_t> ids = {10, 0, 3, 3, 9, 1, 7};
      for (const Kernels* level : levels_here()) {
        std::vector<int32_t> in_order(kRows);
        std::vector<int32_t> chosen(ids.size());
        row_products (*level)(query, rows.data(), stride, dim, nullptr, kRows, in_order.data());
        row_products (*level)(query, rows.data(), stride, dim, ids.data(), static_cast<uint32_t>(ids.size()),
                              chosen.data());
        for (uint32_t row = 0; row < kRows; ++row) {
          int64_t truth = 0;
          for (uint32_t i = 0; i < dim; ++i) truth += (int64_t{rows[row * stride + i]} - 128) * values[i];
          CHECK(in_order[row] == truth);
        }
        for (size_t i = 0; i < ids.size(); ++i) CHECK(chosen[i] == in_order[ids[i]]);
      }
    }
  }
}

TEST_CASE("distances are those of the rows but for their rounding") {
  for (const int32_t metric : {ANN_METRIC_L2, ANN_METRIC_INNER_PRODUCT, ANN_METRIC_COSINE}) {
    for (const uint32_t dim : {1u, 20u, 129u}) {
      for (const uint32_t cells : {1u, 16u}) {
        const std::vector<float> rows = normal_rows(600, dim, 3);
        const Dataset dataset = dataset_of(rows, dim, metric);
        const ScaledCodes codes(dataset, cells, 1, {});
        const std::vector<float> query = normal_rows(1, dim, 4);
        const std::vector<uint32_t> coded = all_distances(dataset, codes, query);
        const auto length = [&](const float* x) {
          double sum = 0;
          for (uint32_t i = 0; i < dim; ++i) sum += double{x[i]} * double{x[i]};
          return std::sqrt(sum);
        };
        for (uint32_t row = 0; row < 600; ++row) {
          const float* x = rows.data() + size_t{row} * dim;
          const double scale_x = metric == ANN_METRIC_COSINE ? 1 / length(x) : 1;
          const double scale_q = metric == ANN_METRIC_COSINE ? 1 / length(query.data()) : 1;
          double squares = 0;
          double product = 0;
          for (uint32_t i = 0; i < dim; ++i) {
            const double gap = double{x[i]} * scale_x - double{query[i]} * scale_q;
            squares += gap * gap;
            product += double{x[i]} * double{query[i]};
          }
          // Half a step of a row is at most what its widest column deviates / 254.
          const double widest = metric == ANN_METRIC_COSINE ? 2 : 4 * 1.75;
          const double error = widest / 254 * std::sqrt(dim);
          const bool is_product = metric == ANN_METRIC_INNER_PRODUCT;
          const double truth = is_product ? -product : squares;
          const double bound =
              is_product ? error * length(query.data()) : 2 * error * std::sqrt(squares) + error * error;
          REQUIRE(std::fabs(double{as_float(coded[row])} - truth) <= bound + 1e-3);
        }
      }
    }
  }
}

TEST_CASE("where densities differ cells order what one centre does not") {
  const std::vector<float> rows = two_densities(6000, 24);
  const Dataset dataset = dataset_of(rows, 24, ANN_METRIC_L2);
  const CodeOrder one = ScaledCodes(dataset, 1, 1, {}).measure(dataset, nullptr, 1, {});
  CHECK(one.first_twenty < 0.9);
  CHECK(one.worst_twenty < 0.2);
  CodeOrder chosen;
  const ScaledCodes codes = ScaledCodes::choose(dataset, nullptr, 1, {}, &chosen);
  CHECK(codes.cells() == ScaledCodes::kCellsMany);
  CHECK(chosen.is_enough());
  CHECK(chosen.first_twenty >= 0.999);
  CHECK(chosen.first_ten > 0.9);
}

TEST_CASE("one cell is enough for a ball, and none for what no byte tells apart") {
  const std::vector<float> ball = normal_rows(4000, 16, 5);
  CodeOrder order;
  CHECK(ScaledCodes::choose(dataset_of(ball, 16, ANN_METRIC_L2), nullptr, 1, {}, &order).cells() == 1);
  CHECK(order.is_enough());
  // Points on a line, all of their distances different: a byte has 255 values.
  std::vector<float> line(200'000);
  for (size_t i = 0; i < line.size(); ++i) line[i] = static_cast<float>(i * i);
  const Dataset on_a_line = dataset_of(line, 1, ANN_METRIC_L2);
  CHECK(ScaledCodes::choose(on_a_line, nullptr, 1, {}, &order).cells() == ScaledCodes::kCellsMany);
  CHECK(!order.is_enough());
}

TEST_CASE("by product the order is that of all rows, though few are compared as stored") {
  constexpr uint32_t kRows = 3000;
  constexpr uint32_t kQueries = 100;
  constexpr uint32_t kDim = 20;
  for (const char* law : {"ball", "far", "unlike", "some zero", "huge"}) {
    CAPTURE(law);
    std::vector<float> rows = normal_rows(kRows, kDim, 9);
    const std::vector<float> queries = normal_rows(kQueries, kDim, 10);
    for (uint32_t row = 0; row < kRows; ++row) {
      for (uint32_t column = 0; column < kDim; ++column) {
        float& value = rows[row * kDim + column];
        if (law[0] == 'f') value += 1000;
        if (law[0] == 'u') value *= std::exp(static_cast<float>(row % 7) - 3);
        if (law[0] == 's' && row % 3 == 0) value = 0;
        if (law[0] == 'h' && row % 50 == 0) value *= 2e37f;
      }
    }
    const Dataset dataset = dataset_of(rows, kDim, ANN_METRIC_INNER_PRODUCT);
    for (const uint32_t cells : {1u, 16u}) {
      const ScaledCodes codes(dataset, cells, 1, {});
      double ten = 0;
      double twenty = 0;
      for (uint32_t query = 0; query < kQueries; ++query) {
        const std::vector<float> one(queries.begin() + query * kDim, queries.begin() + (query + 1) * kDim);
        const std::vector<uint32_t> coded = all_distances(dataset, codes, one);
        std::vector<float> exact(kRows);
        std::vector<uint8_t> values(dataset.query_bytes());
        PreparedQuery prepared;
        dataset.prepare(reinterpret_cast<const uint8_t*>(one.data()), ANN_F32, values.data(), &prepared);
        dataset.distances(prepared, nullptr, 0, kRows, exact.data());
        std::vector<float> sorted = exact;
        std::sort(sorted.begin(), sorted.end());
        std::vector<uint32_t> order(kRows);
        for (uint32_t row = 0; row < kRows; ++row) order[row] = row;
        std::stable_sort(order.begin(), order.end(),
                         [&](uint32_t a, uint32_t b) { return coded[a] < coded[b]; });
        uint32_t hits = 0;
        for (uint32_t i = 0; i < CodeOrder::kLooked; ++i) {
          hits += exact[order[i]] <= sorted[CodeOrder::kNear - 1] ? 1 : 0;
          if (i + 1 == CodeOrder::kNear) ten += std::min(hits, CodeOrder::kNear) / double{CodeOrder::kNear};
        }
        twenty += std::min(hits, CodeOrder::kNear) / double{CodeOrder::kNear};
      }
      const MatrixView given{reinterpret_cast<const uint8_t*>(queries.data()), kQueries, kDim, ANN_F32,
                             kDim * sizeof(float)};
      const CodeOrder measured = codes.measure(dataset, &given, 1, {});
      CHECK(std::fabs(measured.first_ten - ten / kQueries) < 1e-9);
      CHECK(std::fabs(measured.first_twenty - twenty / kQueries) < 1e-9);
    }
  }
}

TEST_CASE("the length of a query changes no order, and threads change no byte") {
  const std::vector<float> rows = normal_rows(3000, 20, 6);
  for (const int32_t metric : {ANN_METRIC_INNER_PRODUCT, ANN_METRIC_COSINE}) {
    const Dataset dataset = dataset_of(rows, 20, metric);
    const ScaledCodes codes(dataset, 8, 1, {});
    const std::vector<float> query = normal_rows(1, 20, 8);
    std::vector<uint32_t> orders[2];
    for (uint32_t turn = 0; turn < 2; ++turn) {
      std::vector<float> scaled = query;
      for (float& value : scaled) value *= turn == 0 ? 0.0009765625f : 32.0f;  // powers of two: no rounding
      const std::vector<uint32_t> coded = all_distances(dataset, codes, scaled);
      for (uint32_t row = 0; row < 3000; ++row) orders[turn].push_back(row);
      std::stable_sort(orders[turn].begin(), orders[turn].end(),
                       [&](uint32_t a, uint32_t b) { return coded[a] < coded[b]; });
    }
    CHECK(orders[0] == orders[1]);
    Execution three;
    three.threads = 3;
    const ScaledCodes others(dataset, 8, 1, three);
    CHECK(std::memcmp(codes.row(0), others.row(0), 3000 * codes.stride()) == 0);
  }
}

TEST_CASE("equal rows, lone rows and values at the ends of floats are coded") {
  for (const float value : {0.0f, 1.0f, -3e38f, 3e38f, 1e-40f}) {
    const std::vector<float> rows(40 * 5, value);
    const Dataset dataset = dataset_of(rows, 5, ANN_METRIC_L2);
    const ScaledCodes codes(dataset, 4, 1, {});
    const std::vector<uint32_t> coded = all_distances(dataset, codes, std::vector<float>(5, value));
    CHECK(std::count(coded.begin(), coded.end(), coded[0]) == 40);
  }
  const Dataset lone = dataset_of({1, 2, 3}, 3, ANN_METRIC_L2);
  CHECK(ScaledCodes(lone, 256, 1, {}).cells() == 1);
  CHECK(all_distances(lone, ScaledCodes(lone, 256, 1, {}), {1, 2, 3}).size() == 1);
}
