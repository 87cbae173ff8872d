// What a search through the C interface answers, as the claims about searches on a device compare it.
#pragma once

#include <ann.h>

#include <cstdint>
#include <cstring>
#include <vector>

namespace gannet::test {

struct Answers {
  std::vector<uint64_t> ids;
  std::vector<float> distances;
  std::vector<uint32_t> counts;
  std::vector<ann_status> status;
  uint64_t distance_count = 0;
  uint64_t expansion_count = 0;
  int32_t procedure = 0;
  uint32_t warps = 0;

  bool same(const Answers& other, uint64_t place, uint64_t other_place) const {
    return ids[place] == other.ids[other_place] &&
           std::memcmp(&distances[place], &other.distances[other_place], sizeof(float)) == 0;
  }
};

/// Searches for k neighbours of each query, by comparing with every row if `exact`.
inline ann_status ask(const ann_index* index, const ann_matrix& queries, uint32_t k,
                      const ann_search_params& params, bool exact, Answers* answers, ann_error* error) {
  answers->ids.resize(queries.rows * k);
  answers->distances.resize(queries.rows * k);
  answers->counts.resize(queries.rows);
  answers->status.resize(queries.rows);
  ann_results results = ANN_RESULTS_INIT;
  results.k = k;
  results.rows = queries.rows;
  results.ids = answers->ids.data();
  results.distances = answers->distances.data();
  results.counts = answers->counts.data();
  results.status = answers->status.data();
  const auto call = exact ? ann_search_exact : ann_search_batch;
  const ann_status status = call(index, &queries, &params, &results, nullptr, error);
  answers->distance_count = results.distance_count;
  answers->expansion_count = results.expansion_count;
  answers->procedure = results.procedure;
  answers->warps = results.warps_per_query;
  return status;
}

}  // namespace gannet::test
