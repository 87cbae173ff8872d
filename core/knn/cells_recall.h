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

/// True neighbours of a sampled row that are looked at, and candidates by bytes among which they are looked for.
inline constexpr uint32_t kRecallDepth = 32;
inline constexpr uint32_t kRecallLooked = kRecallDepth + kRecallDepth / 2 + 64;

class RecallSample {
 public:
  RecallSample(uint32_t rows, uint32_t k, uint64_t seed, const Allocator& memory);

  void find_truth(const Codes& codes, const CellMap& map, const Execution& execution);

  /// The same where the map is of bytes that stand in for `codes`. The share of sampled rows whose true neighbours come
  /// early enough by bytes that none is likely to lie beyond the candidates; with less than `least` of them it ends.
  double find_truth_by_bytes(const Codes& codes, const Codes& bytes, const CellMap& map, double least,
                             const Execution& execution);

  /// How many rows each row must be compared with, nearest cells first, for `share` of the true
  /// neighbours to be among them; by the map's codes.
  uint32_t budget(const Codes& codes, const CellMap& map, double share, const Execution& execution) const;

  /// The share of true neighbours in lists [rows, k].
  double recall(const Codes& codes, const uint32_t* neighbors, uint32_t k) const;

 private:
  struct Found;
  bool keep_nearest(const Codes& codes, size_t place, const Found& found);
  void compare_with_rows(const Codes& codes, size_t place, const Execution& execution);

  Array<uint32_t> sample_;    // rows
  uint32_t depth_;            // true neighbours of each that are counted
  Array<uint32_t> truth_;     // [sample, depth]
  Array<uint32_t> farthest_;  // [sample] distance of the last of them
  Allocator memory_;
};

uint64_t recall_sample_bytes(uint64_t rows, size_t stride, uint32_t k);

}  // namespace gannet
