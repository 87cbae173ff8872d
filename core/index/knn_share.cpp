#include "index/knn_share.h"

#include <algorithm>

#include "base/random.h"
#include "search/exact_by_codes.h"
#include "search/exact_device.h"

namespace gannet {
namespace {

constexpr uint64_t kShareStream = 0x7368617265;  // "share"
constexpr uint32_t kSampleRows = 256;            // a standard error of about 0.004
constexpr uint32_t kDepth = 32;                  // true neighbours of each that are looked for

/// Distances of the nearest rows to each row of a sample, [sample, depth]: as search_exact_on_device finds them, or
/// false where device memory does not hold that.
bool find_on_device(const Dataset& dataset, const QueryBlock& queries, const Array<uint32_t>& sample,
                    uint32_t depth, const DevicePlacement& placed, Array<float>& truth,
                    const Execution& execution) {
  Array<uint64_t> ids(execution.memory, truth.size());
  try {
    search_exact_on_device(dataset, queries, sample.data(), ANN_DEVICE_CUDA + placed.device(),
                           {depth, ids.data(), truth.data(), nullptr, nullptr}, execution, &placed);
    return true;
  } catch (const Error& error) {
    if (error.status != ANN_DEVICE_NO_MEMORY) throw;
    return false;
  }
}

}  // namespace

Array<uint32_t> rows_to_judge(uint32_t rows, uint64_t seed, const Allocator& memory) {
  Array<uint32_t> sample(memory, std::min(rows, kSampleRows));
  random_strata(rows, static_cast<uint32_t>(sample.size()), seed, kShareStream, sample.data());
  return sample;
}

SampledLists lists_to_judge(const KnnGraph& lists, uint64_t seed, const Allocator& memory) {
  SampledLists sampled{rows_to_judge(lists.rows, seed, memory), {}, lists.k};
  sampled.neighbors = Array<uint32_t>(memory, sampled.rows.size() * lists.k);
  for (size_t i = 0; i < sampled.rows.size(); ++i)
    std::copy_n(lists.list(sampled.rows[i]), lists.k, sampled.neighbors.data() + i * lists.k);
  return sampled;
}

double knn_share_as_stored(const Dataset& dataset, const Codes& codes, const SampledLists& lists,
                           double by_codes, const DevicePlacement* placed, const Execution& execution) {
  const Array<uint32_t>& sample = lists.rows;
  const uint32_t depth = std::min(lists.k, kDepth);
  if (sample.empty() || codes.lossless() || dataset.metric() == ANN_METRIC_INNER_PRODUCT ||
      dataset.rows() <= depth + 1)
    return by_codes;
  const Allocator& memory = execution.memory;
  const size_t row_bytes = size_t{dataset.dim()} * element_bytes(dataset.element());
  Array<uint8_t> copied(memory, sample.size() * row_bytes);
  for (size_t i = 0; i < sample.size(); ++i)
    std::memcpy(copied.data() + i * row_bytes, dataset.view().row(sample[i]), row_bytes);
  const QueryBlock queries(
      dataset, {copied.data(), sample.size(), dataset.dim(), dataset.element(), row_bytes}, execution);
  Array<float> truth(memory, sample.size() * depth);
  if (placed == nullptr || !find_on_device(dataset, queries, sample, depth, *placed, truth, execution))
    nearest_by_codes(dataset, codes, queries, 0, static_cast<uint32_t>(sample.size()), sample.data(), {},
                     depth, truth.data(), execution);
  uint64_t found = 0;
  for (size_t i = 0; i < sample.size(); ++i) {
    execution.check();
    const uint32_t* list = lists.neighbors.data() + i * lists.k;
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
