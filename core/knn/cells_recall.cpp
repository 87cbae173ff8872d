#include "knn/cells_recall.h"

#include <algorithm>
#include <vector>

#include "base/random.h"
#include "knn/cells_products.h"
#include "knn/knn_graph.h"
#include "traverse/row_key.h"

namespace gannet {
namespace {

constexpr uint64_t kRecallStream = 0x6a75646765;
constexpr uint32_t kSampleRows = 256;
constexpr uint32_t kRowsPerTask = 16;
constexpr uint32_t kPiece = 512;  // rows that a sampled one is compared with at once

}  // namespace

/// Candidates of a sampled row.
struct RecallSample::Found {
  const uint32_t* rows;       // nearest by bytes first
  const uint32_t* distances;  // by bytes
  uint32_t count;
};

RecallSample::RecallSample(uint32_t rows, uint32_t k, uint64_t seed, const Allocator& memory)
    : sample_(memory, std::min(rows, kSampleRows)),
      depth_(std::min({rows - 1, k, kRecallDepth})),
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
    uint32_t distances[kRowsPerTask * kRecallDepth];
    compare_with_all(codes, map, sample_.data() + begin, static_cast<uint32_t>(end - begin), depth_,
                     spaces[worker], truth_.data() + begin * depth_, distances, execution);
    for (uint64_t i = begin; i < end; ++i) farthest_[i] = distances[(i - begin + 1) * depth_ - 1];
    execution.advance(static_cast<double>(end) / static_cast<double>(sample_.size()));
  });
}

/// Keeps the nearest of a sampled row's candidates, as far as these can be trusted to hold them: if all come in the
/// first half of the entries looked at beyond this many rows.
bool RecallSample::keep_nearest(const Codes& codes, size_t place, const Found& found) {
  uint32_t distances[kRecallLooked];
  codes.distances_of_row(sample_[place], found.rows, found.count, distances);
  uint64_t keys[kRecallLooked];
  for (uint32_t i = 0; i < found.count; ++i) keys[i] = RowKey::of(distances[i], found.rows[i], false);
  std::partial_sort(keys, keys + depth_, keys + found.count);
  for (uint32_t i = 0; i < depth_; ++i) truth_[place * depth_ + i] = RowKey::row(keys[i]);
  farthest_[place] = RowKey::distance(keys[depth_ - 1]);
  uint32_t last = 0;
  for (uint32_t i = 0; i < found.count; ++i) {
    if (distances[i] <= farthest_[place]) last = std::max(last, found.distances[i]);
  }
  const auto before =
      std::upper_bound(found.distances, found.distances + found.count, last) - found.distances;
  return static_cast<uint32_t>(before) <= depth_ + (found.count - depth_) / 2;
}

/// Keeps the nearest of all rows.
void RecallSample::compare_with_rows(const Codes& codes, size_t place, const Execution& execution) {
  uint32_t distances[nearest_room(kRecallDepth)];
  uint32_t rows[nearest_room(kRecallDepth)];
  NearestList list{distances, rows, depth_, 0, UINT32_MAX};
  uint32_t numbers[kPiece];
  uint32_t line[kPiece];
  const uint32_t own = sample_[place];
  for (uint32_t first = 0; first < codes.rows(); first += kPiece) {
    execution.check();
    const uint32_t count = std::min(kPiece, codes.rows() - first);
    for (uint32_t i = 0; i < count; ++i) numbers[i] = first + i;
    codes.distances_of_row(own, numbers, count, line);
    if (own - first < count) line[own - first] = UINT32_MAX;  // unsigned: rows before wrap round
    kernels().show_nearest(list, line, count, first);
  }
  kernels().thin_out(list);
  uint64_t keys[nearest_room(kRecallDepth)];
  for (uint32_t i = 0; i < list.size; ++i) keys[i] = RowKey::of(distances[i], rows[i], false);
  std::sort(keys, keys + list.size);
  for (uint32_t i = 0; i < depth_; ++i) truth_[place * depth_ + i] = RowKey::row(keys[i]);
  farthest_[place] = RowKey::distance(keys[depth_ - 1]);
}

double RecallSample::find_truth_by_bytes(const Codes& codes, const Codes& bytes, const CellMap& map,
                                         double least, const Execution& execution) {
  if (depth_ == 0) return 1;
  const uint32_t looked = std::min(kRecallLooked, codes.rows() - 1);
  std::vector<UnitSpace> spaces;
  spaces.reserve(execution.threads);
  for (uint32_t worker = 0; worker < execution.threads; ++worker)
    spaces.emplace_back(bytes, map, looked, execution.memory);
  Array<uint8_t> trusted(memory_, sample_.size());
  parallel_for(execution, sample_.size(), kRowsPerTask, [&](uint64_t begin, uint64_t end, uint32_t worker) {
    uint32_t rows[kRowsPerTask * kRecallLooked];
    uint32_t distances[kRowsPerTask * kRecallLooked];
    compare_with_all(bytes, map, sample_.data() + begin, static_cast<uint32_t>(end - begin), looked,
                     spaces[worker], rows, distances, execution);
    for (uint64_t i = begin; i < end; ++i) {
      const size_t place = (i - begin) * looked;
      trusted[i] = keep_nearest(codes, i, {rows + place, distances + place, looked}) ? 1 : 0;
    }
  });
  const double share = static_cast<double>(std::count(trusted.begin(), trusted.end(), 1)) /
                       static_cast<double>(sample_.size());
  if (share < least) return share;
  parallel_for(execution, sample_.size(), 1, [&](uint64_t i, uint64_t, uint32_t) {
    if (trusted[i] == 0) compare_with_rows(codes, i, execution);
  });
  return share;
}

uint32_t RecallSample::budget(const Codes& codes, const CellMap& map, double share,
                              const Execution& execution) const {
  if (depth_ == 0) return 0;
  // The rows in cells that are no farther than the home of each true neighbour.
  Array<uint32_t> depths(memory_, sample_.size() * depth_);
  CentroidSpace space(codes, map.cells(), memory_);
  for (size_t i = 0; i < sample_.size(); ++i) {
    if (i % 16 == 0) execution.check();
    if (farthest_[i] == 0) {
      // Copies: its own cell has as many, others of the same centroid more of them.
      std::fill_n(depths.begin() + i * depth_, depth_, map.sizes()[map.home(sample_[i])]);
      continue;
    }
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
  uint32_t distances[kKnnListMax];
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
  const uint64_t depth = std::min(k, kRecallDepth);
  return kSampleRows * (8 + depth * 8) + kSliceRows * (stride + cells_at_most(rows) * 4 + 64) + stride +
         8 * kAlignment;
}

}  // namespace gannet
