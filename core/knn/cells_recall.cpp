#include "knn/cells_recall.h"

#include <algorithm>
#include <vector>

#include "base/random.h"
#include "knn/cells_products.h"
#include "traverse/row_key.h"

namespace gannet {
namespace {

constexpr uint64_t kRecallStream = 0x6a75646765;
constexpr uint32_t kSampleRows = 256;
constexpr uint32_t kDepth = 32;
constexpr uint32_t kRowsPerTask = 16;

}  // namespace

RecallSample::RecallSample(uint32_t rows, uint32_t k, uint64_t seed, const Allocator& memory)
    : sample_(memory, std::min(rows, kSampleRows)),
      depth_(std::min({rows - 1, k, kDepth})),
      truth_(memory, sample_.size() * depth_),
      farthest_(memory, sample_.size()),
      memory_(memory) {
  random_strata(rows, sample_.size(), seed, kRecallStream, sample_.data());
}

void RecallSample::find_truth(const Codes& codes, const CellMap& map, const Execution& execution) {
  if (depth_ == 0) return;
  std::vector<UnitSpace> spaces;
  spaces.reserve(execution.threads);
  for (uint32_t worker = 0; worker < execution.threads; ++worker)
    spaces.emplace_back(codes, map, depth_, execution.memory);
  parallel_for(execution, sample_.size(), kRowsPerTask, [&](uint64_t begin, uint64_t end, uint32_t worker) {
    uint32_t distances[kRowsPerTask * kDepth];
    compare_with_all(codes, map, sample_.data() + begin, static_cast<uint32_t>(end - begin), depth_,
                     spaces[worker], truth_.data() + begin * depth_, distances, execution);
    for (uint64_t i = begin; i < end; ++i) farthest_[i] = distances[(i - begin + 1) * depth_ - 1];
    execution.advance(static_cast<double>(end) / static_cast<double>(sample_.size()));
  });
}

uint32_t RecallSample::budget(const Codes& codes, const CellMap& map, double share,
                              const Execution& execution) const {
  if (depth_ == 0) return 0;
  // The rows in cells that are no farther than the home of each true neighbour.
  Array<uint32_t> depths(memory_, sample_.size() * depth_);
  CentroidSpace space(codes, map.cells(), memory_);
  for (size_t i = 0; i < sample_.size(); ++i) {
    if (i % 16 == 0) execution.check();
    map.centroid_distances(codes, sample_.data() + i, 1, space);
    for (uint32_t j = 0; j < depth_; ++j) {
      const uint32_t distance = space.distances[map.home(truth_[i * depth_ + j])];
      uint32_t rows = 0;
      for (uint32_t cell = 0; cell < map.cells(); ++cell)
        rows += space.distances[cell] <= distance ? map.sizes()[cell] : 0;
      depths[i * depth_ + j] = rows;
    }
  }
  const size_t place = static_cast<size_t>(share * static_cast<double>(depths.size() - 1));
  std::nth_element(depths.begin(), depths.begin() + place, depths.end());
  return depths[place];
}

double RecallSample::recall(const Codes& codes, const uint32_t* neighbors, uint32_t k) const {
  if (depth_ == 0) return 1;
  Array<uint8_t> block(memory_, codes.stride());
  uint32_t distances[ANN_DEGREE_MAX];
  uint64_t found = 0;
  for (size_t i = 0; i < sample_.size(); ++i) {
    const uint32_t* list = neighbors + uint64_t{sample_[i]} * k;
    const uint32_t count = static_cast<uint32_t>(std::find(list, list + k, kNoRow) - list);
    codes.gather(sample_.data() + i, 1, block.data());
    codes.distances(block.data(), list, count, distances);
    const auto hits = std::count_if(distances, distances + count,
                                    [&](uint32_t distance) { return distance <= farthest_[i]; });
    found += std::min<uint64_t>(static_cast<uint64_t>(hits), depth_);
  }
  return static_cast<double>(found) / static_cast<double>(sample_.size() * depth_);
}

uint64_t recall_sample_bytes(uint64_t rows, size_t stride, uint32_t k) {
  const uint64_t depth = std::min(k, kDepth);
  return kSampleRows * (8 + depth * 8) + kSliceRows * (stride + cells_at_most(rows) * 4 + 64) + stride +
         8 * kAlignment;
}

}  // namespace gannet
