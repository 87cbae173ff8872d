#include "set_measures.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/random.h"

namespace bench {

namespace {

constexpr uint32_t kDimensionNeighbours = 20;
constexpr uint32_t kNearest = 10;

}  // namespace

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
                        const std::function<uint64_t(uint64_t row)>& source_of, int32_t device) {
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
  params.device = device;
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
