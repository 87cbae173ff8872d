// Searches of a built index on a device and by their twins on the CPU, for the claims of procedures that give equal
// answers on both.
#pragma once

#include <ann.h>

#include <cmath>
#include <cstring>
#include <map>

#include "answers.h"
#include "claims.h"

namespace gannet::test {

inline uint64_t answers_compared = 0;

struct Case {
  int32_t element = ANN_U8;
  int32_t metric = ANN_METRIC_L2;
  uint32_t rows = 2000;
  uint32_t queries = 40;
  uint32_t dim = 32;
  uint32_t k = 10;
  uint32_t degree = 16;
  Values values = Values::kClusters;
  bool ids = false;
  int32_t graph = ANN_GRAPH_AUTO;
  uint32_t knn_degree = 0;       // of TSDG
  uint32_t occlusion_bound = 0;  // likewise
  bool calibrate = false;

  std::string name() const {
    return std::string(element_name(element)) + " " + metric_name(metric) + ", " + std::to_string(rows) +
           " rows x " + std::to_string(dim) + ", k " + std::to_string(k) + ", degree " +
           std::to_string(degree) + ", values " + std::to_string(static_cast<int>(values));
  }
};

inline std::string name_of(const ann_search_params& params) {
  char text[400];
  std::snprintf(
      text, sizeof text,
      "; procedure %d, beam %u, width %u, iterations %u, bits %u, reset %d, team %u, CTAs %u, "
      "compare %d, stretch %g, queue %u, visited %u, below %u, walks %u, hops %u, segments %u, delta %g, "
      "takes %d, slack of %d, descent %d, warps %u",
      params.procedure, params.beam, params.search_width, params.iterations_max, params.hash_bits,
      params.hash_reset, params.team_size, params.ctas_per_query, params.compare,
      static_cast<double>(params.stretch), params.queue, params.visited, params.occlusion_max, params.walks,
      params.hops_max, params.segments, static_cast<double>(params.delta), params.queue_takes, params.slack,
      params.descent, params.warps_per_query);
  return text;
}

/// A built index with its queries.
struct Prepared {
  Case c;
  Rows rows;
  Rows queries;
  ann_index* index = nullptr;

  explicit Prepared(const Case& given, const uint32_t* knn = nullptr, uint32_t knn_degree = 0)
      : c(given),
        rows(c.element, c.rows, c.dim, c.values, c.dim),
        queries(c.element, c.queries, c.dim, c.values == Values::kEqual ? Values::kNormal : c.values,
                c.dim + 1) {
    ann_index_params shape = ANN_INDEX_PARAMS_INIT;
    shape.dim = c.dim;
    shape.metric = c.metric;
    ann_error error = ANN_ERROR_INIT;
    expect_ok(ann_index_create(nullptr, &shape, &index, &error), error, c.name());
    ann_build_params params = ANN_BUILD_PARAMS_INIT;
    params.degree = c.degree;
    params.calibrate = c.calibrate ? ANN_ON : ANN_OFF;
    params.graph = c.graph;
    params.knn_degree = c.knn_degree;
    params.occlusion_bound = c.occlusion_bound;
    if (knn != nullptr) {
      params.knn = ANN_KNN_GIVEN;
      params.knn_graph = knn;
      params.knn_degree = knn_degree;
      params.repair = ANN_OFF;
    }
    std::vector<uint64_t> ids;
    for (uint64_t row = 0; c.ids && row < c.rows; ++row) ids.push_back((c.rows - row) * 1'000'003);
    const ann_matrix matrix = matrix_of(rows, 0, c.rows);
    expect_ok(ann_build(index, &matrix, ids.empty() ? nullptr : ids.data(), &params, nullptr, &error), error,
              c.name());
  }
  ~Prepared() { ann_index_free(index); }
  Prepared(const Prepared&) = delete;

  Answers search(ann_search_params params, int32_t device, uint64_t first = 0, uint64_t count = UINT64_MAX,
                 bool exact = false, uint32_t k_given = 0) const {
    const uint32_t k = k_given != 0 ? k_given : c.k;
    count = std::min<uint64_t>(count, c.queries - first);
    params.device = device;
    Answers answers;
    ann_error error = ANN_ERROR_INIT;
    expect_ok(ask(index, matrix_of(queries, first, count), k, params, exact, &answers, &error), error,
              c.name() + name_of(params));
    return answers;
  }

  Answers exact(uint32_t k) const {
    const ann_search_params params = ANN_SEARCH_PARAMS_INIT;
    return search(params, ANN_DEVICE_CPU, 0, UINT64_MAX, true, k);
  }

  /// Share of the answers that are no farther than the k-th true neighbour.
  double recall(const Answers& found, const Answers& truth) const {
    uint64_t hits = 0;
    for (uint64_t i = 0; i < found.ids.size(); ++i)
      hits += found.distances[i] <= truth.distances[i / c.k * c.k + c.k - 1] ? 1 : 0;
    return static_cast<double>(hits) / static_cast<double>(found.ids.size());
  }
};

/// The device's answers, which are its twin's.
inline Answers compare_with_twin(const Prepared& data, const ann_search_params& params) {
  const Answers device = data.search(params, ANN_DEVICE_CUDA);
  const Answers twin = data.search(params, ANN_DEVICE_CPU);
  const std::string name = data.c.name() + name_of(params);
  expect(device.counts == twin.counts && device.status == twin.status, name + ": counts and status");
  for (uint64_t i = 0; i < twin.ids.size(); ++i)
    expect(device.same(twin, i, i),
           name + ": query " + std::to_string(i / data.c.k) + ", place " + std::to_string(i % data.c.k) +
               ": id " + std::to_string(device.ids[i]) + " at " + std::to_string(device.distances[i]) +
               ", twin " + std::to_string(twin.ids[i]) + " at " + std::to_string(twin.distances[i]));
  expect(device.distance_count == twin.distance_count && device.expansion_count == twin.expansion_count,
         name + ": " + std::to_string(device.distance_count) + " distances, twin " +
             std::to_string(twin.distance_count) + "; " + std::to_string(device.expansion_count) +
             " expansions, twin " + std::to_string(twin.expansion_count));
  answers_compared += twin.ids.size();
  return device;
}

/// Distances are those of exact search, in order, and no id stands there twice.
inline void check_exact(const Prepared& data, const Answers& answers) {
  const uint32_t n = data.c.rows;
  const Answers all = data.exact(n);
  for (uint64_t query = 0; query < data.c.queries; ++query) {
    std::map<uint64_t, float> known;
    for (uint64_t i = query * n; i < (query + 1) * n; ++i) known[all.ids[i]] = all.distances[i];
    std::pair<float, uint64_t> last = {-INFINITY, 0};
    for (uint64_t i = query * data.c.k; i < query * data.c.k + answers.counts[query]; ++i) {
      const auto found = known.find(answers.ids[i]);
      expect(found != known.end() && std::memcmp(&found->second, &answers.distances[i], sizeof(float)) == 0,
             data.c.name() + ": a reported distance");
      const std::pair<float, uint64_t> here = {answers.distances[i], answers.ids[i]};
      expect(last < here, data.c.name() + ": order of answers");
      last = here;
    }
  }
}

}  // namespace gannet::test
