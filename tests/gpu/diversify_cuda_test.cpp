// Claims about TSDG's graph on a CUDA device, made through the C interface: a device builds the one that the CPU
// builds, to the last byte of the file, and counts the same edges after each stage.
//
//   diversify_cuda_test                all claims
//   diversify_cuda_test quick          fewer and smaller cases, for compute-sanitizer
//   diversify_cuda_test race           a handful, for its racecheck, which is slow
//   diversify_cuda_test TEXT           claims with TEXT in their names
//
// Ends with 77 where there is no CUDA device.

#include <ann.h>

#include <random>
#include <string>
#include <vector>

#include "claims.h"

namespace {

using namespace gannet;
using namespace gannet::test;

bool quick = false;

struct Lists {
  uint32_t k = 0;
  std::vector<uint32_t> rows;  // [rows, k]
};

/// Random lists that end early and stand in no order. Of `hub` the first row is in every one.
Lists random_lists(uint32_t rows, uint32_t k, bool hub) {
  std::mt19937 random(k);
  Lists lists{k, {}};
  for (uint32_t row = 0; row < rows; ++row) {
    const uint32_t length = row % 7 == 0 ? row % (k + 1) : k;
    for (uint32_t i = 0; i < k; ++i)
      lists.rows.push_back(i >= length ? UINT32_MAX : hub && i == 0 ? 0 : random() % rows);
  }
  return lists;
}

struct Built {
  std::vector<uint8_t> file;
  ann_graph_stats stats = ANN_GRAPH_STATS_INIT;
};

int64_t append(void* user, const void* data, uint64_t bytes) {
  const auto* from = static_cast<const uint8_t*>(data);
  static_cast<Built*>(user)->file.insert(static_cast<Built*>(user)->file.end(), from, from + bytes);
  return static_cast<int64_t>(bytes);
}

Built build_on(int32_t device, const Rows& rows, int32_t metric, const Lists* lists,
               const ann_build_params& given) {
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  shape.dim = rows.dim;
  shape.metric = metric;
  ann_build_params params = given;
  params.graph = ANN_GRAPH_TSDG;
  params.device = device;
  params.calibrate = ANN_OFF;
  params.knn = lists != nullptr ? ANN_KNN_GIVEN : ANN_KNN_EXACT;
  if (lists != nullptr) {
    params.knn_graph = lists->rows.data();
    params.knn_degree = lists->k;
  }
  Built built;
  ann_index* index = nullptr;
  ann_error error = ANN_ERROR_INIT;
  expect_ok(ann_index_create(nullptr, &shape, &index, &error), error, "creating an index");
  const ann_matrix matrix = matrix_of(rows, 0, rows.rows);
  const ann_status status = ann_build(index, &matrix, nullptr, &params, nullptr, &error);
  ann_writer writer = ANN_WRITER_INIT;
  writer.write = append;
  writer.user = &built;
  if (status == ANN_OK) {
    expect_ok(ann_save_stream(index, &writer, nullptr, nullptr, &error), error, "saving");
    expect_ok(ann_index_graph_stats(index, &built.stats, &error), error, "measuring");
  }
  ann_index_free(index);
  expect_ok(status, error, "building");
  return built;
}

uint64_t graphs_compared = 0;

void compare_graphs(const Rows& rows, int32_t metric, const Lists* lists, const ann_build_params& params) {
  const Built there = build_on(ANN_DEVICE_CUDA, rows, metric, lists, params);
  const Built here = build_on(ANN_DEVICE_CPU, rows, metric, lists, params);
  const std::string name = std::string(element_name(rows.element)) + " " + metric_name(metric) + ", " +
                           std::to_string(rows.rows) + " rows x " + std::to_string(rows.dim) + ", lists of " +
                           std::to_string(lists != nullptr ? lists->k : params.knn_degree) + ", method " +
                           std::to_string(params.diversify) + ", degree " + std::to_string(params.degree) +
                           ", bound " + std::to_string(params.occlusion_bound) + ", reverse " +
                           std::to_string(params.reverse_max) + ", pool " + std::to_string(params.pool);
  const auto counts = [](const ann_graph_stats& stats) {
    return std::to_string(stats.knn_edges) + " " + std::to_string(stats.relaxed_edges) + " " +
           std::to_string(stats.joined_edges) + " " + std::to_string(stats.soft_edges) + " " +
           std::to_string(stats.edges);
  };
  expect(counts(there.stats) == counts(here.stats), name + ": edges given, kept, joined, soft and left " +
                                                        counts(there.stats) + ", on the CPU " +
                                                        counts(here.stats));
  expect(there.file == here.file, name + ": the graph");
  ++graphs_compared;
}

void claim_graphs() {
  const uint32_t n = quick ? 300 : 3000;
  for (const int32_t element : kElements) {
    for (const int32_t metric : kMetrics) {
      for (const uint32_t dim : {2u, 40u, 130u}) {  // of two columns codes are floats
        const Rows rows(element, n, dim, Values::kClusters, dim);
        ann_build_params params = ANN_BUILD_PARAMS_INIT;
        params.knn_degree = 30;
        compare_graphs(rows, metric, nullptr, params);
        for (const int32_t method : {ANN_DIVERSIFY_VAMANA, ANN_DIVERSIFY_DPG, ANN_DIVERSIFY_SSG}) {
          params.diversify = method;
          compare_graphs(rows, metric, nullptr, params);
        }
      }
    }
  }
}

void claim_lists() {
  for (const uint32_t k : {1u, 2u, 31u, 33u, 200u, 400u, 1024u}) {
    if (quick && k > 200) break;
    for (const Values values : {Values::kClusters, Values::kGrid, Values::kEqual}) {
      const uint32_t n = quick || k >= 400 ? 150 : 500;
      const Rows rows(ANN_U8, n, 24, values, k);
      const Lists lists = random_lists(n, k, false);
      for (int32_t method = ANN_DIVERSIFY_TSDG; method <= ANN_DIVERSIFY_VAMANA; ++method) {
        ann_build_params params = ANN_BUILD_PARAMS_INIT;
        params.diversify = method;
        params.degree = k == 33 ? 7 : 0;
        if (method == ANN_DIVERSIFY_TSDG) params.occlusion_bound = k == 31 ? 1 : k == 200 ? 64 : 0;
        if (method == ANN_DIVERSIFY_TSDG || method == ANN_DIVERSIFY_VAMANA) params.alpha = k == 400 ? 2 : 0;
        compare_graphs(rows, ANN_METRIC_L2, &lists, params);
      }
    }
  }
}

/// Rows of each number of columns that has kernels of its own, with more edges than a panel of them.
void claim_columns() {
  const uint32_t n = quick ? 300 : 2000;
  for (const uint32_t dim : {33u, 64u, 128u, 129u, 200u, 256u, 257u, 300u}) {
    const Rows rows(ANN_U8, n, dim, Values::kClusters, dim);
    const Lists lists = random_lists(n, 250, true);
    for (int32_t method = ANN_DIVERSIFY_TSDG; method <= ANN_DIVERSIFY_VAMANA; ++method) {
      ann_build_params params = ANN_BUILD_PARAMS_INIT;
      params.diversify = method;
      params.degree = 200;
      if (method != ANN_DIVERSIFY_SSG || dim > 256) compare_graphs(rows, ANN_METRIC_L2, &lists, params);
    }
  }
}

/// Pools that are shorter than the candidates, which come more often than the table of those met remembers.
void claim_pools() {
  const uint32_t n = quick ? 700 : 20'000;
  const Rows rows(ANN_U8, n, 24, Values::kClusters, 7);
  const Lists lists = random_lists(n, quick ? 12 : 64, true);
  for (const uint32_t pool : {1u, 31u, 32u, 33u, 128u, 129u, 500u, 4096u}) {
    ann_build_params params = ANN_BUILD_PARAMS_INIT;
    params.diversify = ANN_DIVERSIFY_SSG;
    params.pool = pool;
    params.angle = pool == 33 ? 1.0f : pool == 129 ? 90.0f : 0;
    params.degree = pool == 32 ? 2 : pool == 500 ? 200 : 0;
    compare_graphs(rows, ANN_METRIC_L2, &lists, params);
  }
}

/// A row to which all others lead, and islands, which need a repair.
void claim_hubs() {
  const uint32_t n = quick ? 500 : 20'000;
  const Rows rows(ANN_U8, n, 8, Values::kNormal, 3);
  for (const uint32_t reverse : {1u, 3u, 32u, 33u, 256u, 4096u}) {
    ann_build_params params = ANN_BUILD_PARAMS_INIT;
    params.reverse_max = reverse;
    params.degree = reverse == 33 ? 4 : 0;
    const Lists lists = random_lists(n, 12, true);
    compare_graphs(rows, ANN_METRIC_L2, &lists, params);
  }
  Lists islands{4, {}};
  for (uint32_t row = 0; row < n; ++row) {
    for (uint32_t i = 1; i <= 4; ++i)
      islands.rows.push_back(row / 10 * 10 + (row + i) % 10 < n ? row / 10 * 10 + (row + i) % 10
                                                                : UINT32_MAX);
  }
  for (const uint32_t degree : {2u, 5u, 128u}) {
    ann_build_params params = ANN_BUILD_PARAMS_INIT;
    params.degree = degree;
    compare_graphs(rows, ANN_METRIC_L2, &islands, params);
    params.repair = ANN_OFF;
    compare_graphs(rows, ANN_METRIC_L2, &islands, params);
  }
}

/// More rows than are diversified together.
void claim_pieces() {
  const uint32_t n = 300'000;
  const Rows rows(ANN_U8, n, 8, Values::kNormal, 3);
  const Lists lists = random_lists(n, 10, false);
  const ann_build_params params = ANN_BUILD_PARAMS_INIT;
  compare_graphs(rows, ANN_METRIC_L2, &lists, params);
}

/// Each kernel at least once.
void claim_handful() {
  for (const int32_t element : {ANN_U8, ANN_F32}) {
    const Rows rows(element, 60, 2, Values::kClusters, 5);
    const Lists lists = random_lists(60, 20, true);
    ann_build_params params = ANN_BUILD_PARAMS_INIT;
    params.reverse_max = 7;
    compare_graphs(rows, ANN_METRIC_L2, &lists, params);
    for (const int32_t method : {ANN_DIVERSIFY_DPG, ANN_DIVERSIFY_SSG}) {
      params.diversify = method;
      compare_graphs(rows, ANN_METRIC_L2, &lists, params);
    }
  }
}

constexpr Claim kClaims[] = {
    {"every element and metric", claim_graphs},
    {"any lists", claim_lists},
    {"any columns", claim_columns},
    {"any pools", claim_pools},
    {"hubs and islands", claim_hubs},
    {"more rows than a piece", claim_pieces},
};
constexpr Claim kQuickClaims[] = {
    {"every element and metric", claim_graphs},
    {"any lists", claim_lists},
    {"any columns", claim_columns},
    {"any pools", claim_pools},
    {"hubs and islands", claim_hubs},
};
constexpr Claim kRaceClaims[] = {{"each kernel", claim_handful}};

}  // namespace

int main(int count, char** arguments) {
  const std::string mode = count > 1 ? arguments[1] : "";
  quick = mode == "quick";
  const int status = quick            ? run_claims(kQuickClaims, count > 2 ? arguments[2] : "")
                     : mode == "race" ? run_claims(kRaceClaims)
                                      : run_claims(kClaims, mode);
  std::printf("%llu graphs are those of the CPU\n", static_cast<unsigned long long>(graphs_compared));
  return status;
}
