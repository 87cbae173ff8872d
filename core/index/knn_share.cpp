#include "index/knn_share.h"

#include <algorithm>

#include "base/random.h"
#include "search/exact_by_codes.h"

namespace gannet {
namespace {

constexpr uint64_t kShareStream = 0x7368617265;  // "share"
constexpr uint32_t kSampleRows = 256;            // a standard error of about 0.004
constexpr uint32_t kDepth = 32;                  // true neighbours of each that are looked for

}  // namespace

double knn_share_as_stored(const Dataset& dataset, const Codes& codes, const KnnGraph& lists, uint64_t seed,
                           double by_codes, const Execution& execution) {
  const uint32_t depth = std::min(lists.k, kDepth);
  if (codes.lossless() || dataset.metric() == ANN_METRIC_INNER_PRODUCT || lists.rows <= depth + 1)
    return by_codes;
  const Allocator& memory = execution.memory;
  Array<uint32_t> sample(memory, std::min(lists.rows, kSampleRows));
  random_strata(lists.rows, static_cast<uint32_t>(sample.size()), seed, kShareStream, sample.data());
  const size_t row_bytes = size_t{dataset.dim()} * element_bytes(dataset.element());
  Array<uint8_t> copied(memory, sample.size() * row_bytes);
  for (size_t i = 0; i < sample.size(); ++i)
    std::memcpy(copied.data() + i * row_bytes, dataset.view().row(sample[i]), row_bytes);
  const QueryBlock queries(
      dataset, {copied.data(), sample.size(), dataset.dim(), dataset.element(), row_bytes}, execution);
  Array<float> truth(memory, sample.size() * depth);
  nearest_by_codes(dataset, codes, queries, 0, static_cast<uint32_t>(sample.size()), sample.data(), depth,
                   truth.data(), execution);
  uint64_t found = 0;
  for (size_t i = 0; i < sample.size(); ++i) {
    execution.check();
    const uint32_t* list = lists.list(sample[i]);
    const uint32_t count = static_cast<uint32_t>(std::find(list, list + lists.k, kNoRow) - list);
    float distances[ANN_DEGREE_MAX];
    dataset.distances(queries[i], list, 0, count, distances);
    // Of rows at equal distance any will do.
    const float farthest = truth[(i + 1) * depth - 1];
    const auto hits =
        std::count_if(distances, distances + count, [&](float distance) { return distance <= farthest; });
    found += std::min<uint64_t>(static_cast<uint64_t>(hits), depth);
  }
  return static_cast<double>(found) / static_cast<double>(sample.size() * depth);
}

uint64_t knn_share_bytes(uint32_t dim, size_t stride, uint32_t threads) {
  return kSampleRows * (dim * 8ull + kDepth * 4 + 64) + 8 * kAlignment +
         nearest_by_codes_bytes(stride, kSampleRows, kDepth, threads);
}

}  // namespace gannet
