#include "exact.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/random.h"
#include "handles.h"

namespace bench {

namespace {

constexpr uint32_t kDimensionNeighbours = 20;
constexpr uint32_t kNearest = 10;

// Finds neighbours among one block of rows and merges them into `best`, which keeps k for each query.
void search_block(const ann_matrix& block, uint64_t first_row, const ann_matrix& queries,
                  const ExactParams& params, GroundTruth& best) {
  const Index index = make_index(block.dim, params.metric);
  ann_error error = ANN_ERROR_INIT;
  ann_build_params build = ANN_BUILD_PARAMS_INIT;
  build.graph = ANN_GRAPH_NONE;
  build.rows_mode = ANN_ROWS_BORROW;
  check(ann_build(index.get(), &block, nullptr, &build, params.monitor, &error), error,
        "taking rows for exact search");
  ann_search_params search = ANN_SEARCH_PARAMS_INIT;
  search.device = params.device;
  search.threads = params.threads;
  Neighbours found(queries.rows, params.k);
  ann_results results = found.view(0, queries.rows);
  check(ann_search_exact(index.get(), &queries, &search, &results, params.monitor, &error), error,
        "searching exactly");

  std::vector<std::pair<float, int32_t>> merged;
  for (uint64_t q = 0; q < queries.rows; ++q) {
    merged.clear();
    for (uint64_t i = q * params.k; i < (q + 1) * params.k; ++i) {
      if (best.ids[i] >= 0) merged.emplace_back(best.distances[i], best.ids[i]);
      if (found.ids[i] != ANN_ID_NONE) {
        merged.emplace_back(found.distances[i], static_cast<int32_t>(first_row + found.ids[i]));
      }
    }
    std::sort(merged.begin(), merged.end());
    for (uint64_t i = 0; i < std::min<uint64_t>(params.k, merged.size()); ++i) {
      best.distances[q * params.k + i] = merged[i].first;
      best.ids[q * params.k + i] = merged[i].second;
    }
  }
}

GroundTruth none_found(uint64_t queries, uint32_t k) {
  GroundTruth out;
  out.queries = queries;
  out.k = k;
  out.ids.assign(queries * k, -1);
  out.distances.assign(queries * k, INFINITY);
  return out;
}

}  // namespace

GroundTruth exact_neighbours(VectorReader& rows, const ann_matrix& queries,
                             const ExactParams& params) {
  if (rows.rows() > INT32_MAX) {
    throw VectorFileError(rows.path(), "has " + std::to_string(rows.rows()) +
                                           " rows; row numbers in files of true neighbours have "
                                           "31 bits");
  }
  GroundTruth out = none_found(queries.rows, params.k);
  const uint64_t block = std::max<uint64_t>(1, params.block_bytes / rows.row_bytes());
  for (uint64_t first = 0; first < rows.rows(); first += block) {
    const Vectors part = rows.read(first, std::min(block, rows.rows() - first));
    search_block(part.view(), first, queries, params, out);
    if (params.progress) {
      params.progress(static_cast<double>(first + part.rows) / static_cast<double>(rows.rows()));
    }
  }
  return out;
}

GroundTruth exact_neighbours(const Vectors& rows, const ann_matrix& queries,
                             const ExactParams& params) {
  GroundTruth out = none_found(queries.rows, params.k);
  search_block(rows.view(), 0, queries, params, out);
  return out;
}

double local_intrinsic_dimension(const GroundTruth& truth) {
  double inverse_sum = 0;
  uint64_t counted = 0;
  const uint32_t k = std::min(truth.k, kDimensionNeighbours);
  for (uint64_t q = 0; q < truth.queries; ++q) {
    const float* distances = truth.distances.data() + q * truth.k;
    const double farthest = static_cast<double>(distances[k - 1]);
    double sum = 0;
    uint32_t terms = 0;
    for (uint32_t i = 0; i + 1 < k; ++i) {
      if (!(distances[i] > 0) || !std::isfinite(farthest)) continue;
      // Half, because the distances are squared.
      sum += 0.5 * std::log(farthest / static_cast<double>(distances[i]));
      ++terms;
    }
    if (terms == 0) continue;
    inverse_sum += sum / terms;
    ++counted;
  }
  return counted == 0 ? 0 : static_cast<double>(counted) / inverse_sum;
}

SetMeasures measure_set(const Vectors& rows, uint64_t samples, uint64_t seed,
                        const std::function<uint64_t(uint64_t row)>& source_of) {
  samples = std::min(samples, rows.rows);
  std::vector<uint32_t> chosen(samples);
  gannet::random_strata(rows.rows, samples, seed, 0, chosen.data());
  Vectors queries;
  queries.element = rows.element;
  queries.dim = rows.dim;
  queries.rows = samples;
  for (const uint32_t row : chosen) {
    const std::byte* values = rows.data.data() + row * rows.row_bytes();
    queries.data.insert(queries.data.end(), values, values + rows.row_bytes());
  }
  ExactParams params;
  params.k = kDimensionNeighbours + 1;
  const GroundTruth with_self = exact_neighbours(rows, queries.view(), params);

  GroundTruth others = none_found(samples, kDimensionNeighbours);
  SetMeasures out;
  uint64_t siblings_sum = 0;
  uint64_t above = 0;
  for (uint64_t q = 0; q < samples; ++q) {
    uint32_t kept = 0;
    uint32_t siblings = 0;
    for (uint32_t i = 0; i < params.k && kept < kDimensionNeighbours; ++i) {
      const int32_t id = with_self.ids[q * params.k + i];
      if (id < 0 || static_cast<uint32_t>(id) == chosen[q]) continue;
      others.ids[q * others.k + kept] = id;
      others.distances[q * others.k + kept] = with_self.distances[q * params.k + i];
      if (source_of && kept < kNearest) {
        siblings += source_of(static_cast<uint64_t>(id)) == source_of(chosen[q]);
      }
      ++kept;
    }
    siblings_sum += siblings;
    above += siblings > 2;
    out.siblings_max = std::max(out.siblings_max, siblings);
  }
  out.intrinsic_dim = local_intrinsic_dimension(others);
  out.siblings_mean = static_cast<double>(siblings_sum) / static_cast<double>(samples);
  out.siblings_above_2 = static_cast<double>(above) / static_cast<double>(samples);
  return out;
}

}  // namespace bench
