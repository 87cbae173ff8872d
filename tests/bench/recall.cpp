#include "recall.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <unordered_set>

#include "made_rows.h"
#include "parallel.h"

namespace bench {

namespace {
constexpr double kTieMargin = 1e-3;  // of ann-benchmarks
}

PairDistance::PairDistance(const Vectors& rows, const Vectors& queries, int32_t metric)
    : rows_(rows), queries_(queries), metric_(metric) {}

double PairDistance::operator()(uint64_t query, uint64_t row) const {
  const std::byte* x = rows_.data.data() + row * rows_.row_bytes();
  const std::byte* q = queries_.data.data() + query * queries_.row_bytes();
  double squares = 0;
  double product = 0;
  double x_length = 0;
  double q_length = 0;
  for (uint32_t i = 0; i < rows_.dim; ++i) {
    const double a = static_cast<double>(value_as_float(x, rows_.element, i));
    const double b = static_cast<double>(value_as_float(q, queries_.element, i));
    squares += (a - b) * (a - b);
    product += a * b;
    x_length += a * a;
    q_length += b * b;
  }
  switch (metric_) {
    case ANN_METRIC_INNER_PRODUCT:
      return -product;
    case ANN_METRIC_COSINE:
      return x_length == 0 || q_length == 0 ? 1 : 1 - product / std::sqrt(x_length * q_length);
    default:
      return std::sqrt(squares);
  }
}

Recall recall_of(const std::vector<uint64_t>& found, uint64_t queries, uint32_t k, const GroundTruth& truth,
                 uint64_t rows, const PairDistance& distance) {
  if (truth.k < k || truth.queries < queries) {
    throw std::invalid_argument("true neighbours are " + std::to_string(truth.queries) + " x " +
                                std::to_string(truth.k) + "; expected at least " + std::to_string(queries) +
                                " x " + std::to_string(k));
  }
  std::vector<uint32_t> hits_by_id(queries);
  std::vector<uint32_t> hits_by_distance(queries);
  std::vector<uint32_t> wanted(queries);
  parallel_parts(queries, 64, [&](uint64_t first, uint64_t count) {
    std::unordered_set<uint64_t> seen;
    for (uint64_t q = first; q < first + count; ++q) {
      const int32_t* ids = truth.ids.data() + q * truth.k;
      while (wanted[q] < k && ids[wanted[q]] >= 0) ++wanted[q];
      if (wanted[q] == 0) continue;
      const double limit = distance(q, static_cast<uint64_t>(ids[wanted[q] - 1])) + kTieMargin;
      seen.clear();
      for (uint32_t i = 0; i < k; ++i) {
        const uint64_t id = found[q * k + i];
        if (id >= rows || !seen.insert(id).second) continue;
        hits_by_id[q] += std::find(ids, ids + wanted[q], static_cast<int32_t>(id)) != ids + wanted[q];
        hits_by_distance[q] += distance(q, id) <= limit;
      }
      hits_by_distance[q] = std::min(hits_by_distance[q], wanted[q]);
    }
  });
  uint64_t all = 0;
  uint64_t by_id = 0;
  uint64_t by_distance = 0;
  for (uint64_t q = 0; q < queries; ++q) {
    all += wanted[q];
    by_id += hits_by_id[q];
    by_distance += hits_by_distance[q];
  }
  if (all == 0) return {1, 1};
  return {static_cast<double>(by_id) / static_cast<double>(all),
          static_cast<double>(by_distance) / static_cast<double>(all)};
}

uint32_t count_near(const GroundTruth& truth, uint64_t query, const float* distances, uint32_t k) {
  const float farthest = truth.distances[query * truth.k + k - 1];
  return static_cast<uint32_t>(std::upper_bound(distances, distances + k, farthest) - distances);
}

}  // namespace bench
