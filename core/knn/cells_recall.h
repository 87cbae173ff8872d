// RecallSample: the true neighbours of a sample of rows; they give the work that a share of them needs, and the
// share that lists hold.
//
// 256 rows are compared with all: 256 n pairs, some 3 % of a build. The share of their 32 nearest that
// lists hold has a standard error of about 0.004. Entries count by their distance: of rows at equal distance any
// is right.
#pragma once

#include <cstdint>

#include "knn/cells_map.h"

namespace gannet {

class RecallSample {
 public:
  RecallSample(uint32_t rows, uint32_t k, uint64_t seed, const Allocator& memory);

  void find_truth(const Codes& codes, const CellMap& map, const Execution& execution);

  /// How many rows each row must be compared with, nearest cells first, for `share` of the true
  /// neighbours to be among them.
  uint32_t budget(const Codes& codes, const CellMap& map, double share, const Execution& execution) const;

  /// The share of true neighbours in lists [rows, k].
  double recall(const Codes& codes, const uint32_t* neighbors, uint32_t k) const;

 private:
  Array<uint32_t> sample_;    // rows
  uint32_t depth_;            // true neighbours of each that are counted
  Array<uint32_t> truth_;     // [sample, depth]
  Array<uint32_t> farthest_;  // [sample] distance of the last of them
  Allocator memory_;
};

uint64_t recall_sample_bytes(uint64_t rows, size_t stride, uint32_t k);

}  // namespace gannet
