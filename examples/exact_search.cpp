#include "exact_search.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "handles.h"

namespace {

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
  if (params.status != nullptr) {
    params.status->resize(queries.rows);
    results.status = params.status->data();
  }
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

}  // namespace

GroundTruth none_found(uint64_t queries, uint32_t k) {
  GroundTruth out;
  out.queries = queries;
  out.k = k;
  out.ids.assign(queries * k, -1);
  out.distances.assign(queries * k, INFINITY);
  return out;
}

GroundTruth exact_neighbours(VectorReader& rows, const ann_matrix& queries, const ExactParams& params) {
  const uint64_t count = params.rows_max == 0 ? rows.rows() : std::min(rows.rows(), params.rows_max);
  if (count > INT32_MAX) {
    throw VectorFileError(rows.path(), "has " + std::to_string(rows.rows()) +
                                           " rows; row numbers in files of true neighbours have "
                                           "31 bits");
  }
  GroundTruth out = none_found(queries.rows, params.k);
  const uint64_t block = std::max<uint64_t>(1, params.block_bytes / rows.row_bytes());
  for (uint64_t first = 0; first < count; first += block) {
    const Vectors part = rows.read(first, std::min(block, count - first));
    search_block(part.view(), first, queries, params, out);
    if (params.progress) {
      params.progress(static_cast<double>(first + part.rows) / static_cast<double>(count));
    }
  }
  return out;
}

GroundTruth exact_neighbours(const Vectors& rows, const ann_matrix& queries, const ExactParams& params) {
  GroundTruth out = none_found(queries.rows, params.k);
  search_block(rows.view(), 0, queries, params, out);
  return out;
}
