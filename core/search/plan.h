// SearchPlan: how one batch is searched, every choice made. One type a kind of procedure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <variant>

#include "search/cagra.h"
#include "search/ggnn.h"
#include "search/tsdg.h"

namespace gannet {

/// Every row is compared.
struct ExactPlan {
  static constexpr bool kHasWalk = false;  // on a device: no overload of StartWalk (search/pipeline_cuda.cu)
};

/// One sorted list: the nearest unexpanded row of `beam` rows is expanded until none is left.
struct BeamPlan {
  uint32_t beam = 0;
  uint32_t level = kWholeRows;      // of rows with prefixes, on the CPU
  uint32_t edges_part = kAllEdges;  // of a row's edges, on the CPU
  bool from_groups = false;         // short lists start from groups of entry points, on the CPU
};

/// A slack bound: on a CUDA device with two lists, the nearest rows and those to be expanded (search/walk_cuda.cu),
/// on the CPU with one (search/slack.cpp).
struct TwoListsPlan {
  float slack = 0;  // s: rows up to 1 + s times as far as the k-th best are expanded
  uint32_t expansions_max = 0;
  uint32_t warps = 1;                       // for one query: 1, or a block of 8 or 16
  uint32_t answers = 0;                     // that it walks for, k of which are kept; 0: k
  bool from_groups = false;                 // starts from groups of entry points, on the CPU
  std::span<const uint32_t> covering = {};  // heads that it starts at instead of the entry points, on the CPU

  bool uses_blocks() const { return warps > 1; }
};

using SearchPlan = std::variant<ExactPlan, BeamPlan, TwoListsPlan, CagraPlan, GgnnPlan, TsdgPlan>;

/// Whether a block of a device walks for each query of a batch of host memory.
inline bool walks_by_blocks(const SearchPlan& plan) {
  const auto* two_lists = std::get_if<TwoListsPlan>(&plan);
  return two_lists != nullptr && two_lists->uses_blocks();
}

// --- Limits of walks on a CUDA device ------------------------------------------------------------

/// Rows that two lists of one warp and of a block hold, and the longest beam of one list
/// (search/walk_cuda.cu, search/walk_block_cuda.cu).
inline constexpr uint32_t kTwoListsMax = 128;
inline constexpr uint32_t kBlockListMax = 1280;
inline constexpr uint32_t kWideBlockListMax = 32;  // of 16 warps
inline constexpr uint32_t kDeviceBeamMax = 1984;

/// Rows that exact search of a query keeps on a device.
inline constexpr uint32_t kDeviceExactMax = 1024;

/// Lists and filter of a block's walk.
struct BlockShape {
  uint32_t best;               // rows
  uint32_t queue;              // rows
  uint32_t visited_word_bits;  // log2 of the words of the filter
};

/// The shape that holds so many rows. 1,000 answers meet ten times as many rows as 10 and need as much more of
/// the filter and of the queue.
constexpr BlockShape block_shape(uint32_t list_length) {
  if (list_length <= 32) return {32, 64, 13};
  if (list_length <= 128) return {128, 128, 13};
  return {kBlockListMax, 512, 15};
}

/// Rows that two lists hold for k answers: where codes are lossy as many as are re-ranked on the CPU, but beyond
/// 85 answers no more than a warp holds, or a quarter more than k.
constexpr uint32_t list_length(uint32_t k, bool lossless) {
  return lossless ? k : std::max(k + k / 4, std::min(rerank_count(k), kTwoListsMax));
}

/// Answers that a walk by lossy codes looks for where calibration finds that the lists for fewer do not reach the
/// recall: its bounds are the order of rows by codes, and the number re-ranked. A walk that finds so large a share
/// of so many finds more of the first of them, as a rule; calibration looks whether it does
/// (tune/device_calibration.h). 850,000 patches as f32, k = 10 at .99 on an H200: one list of 1,024 gave 0.70 M
/// queries/s, lists for 100 answers 3.2.
inline constexpr uint32_t kDeepAnswers = 100;

/// Rows of a query that any walk for k answers may leave to re-ranking.
constexpr uint32_t candidates_most(uint32_t k) {
  return k < kDeepAnswers ? std::max(rerank_count(k), list_length(kDeepAnswers, false)) : rerank_count(k);
}

/// Of these rows, those whose codes lie farther than the k-th by more than so many steps of the codes are not
/// re-ranked where a warp walks: rounding moves a distance by 0.4 steps (dataset/codes.h). Of 26 rows for 10
/// answers 13 to 15 are left (SIFT, GIST, words), and recall loses 0.0006 at most; of Gaussian clusters by inner
/// product, where rows are all about as far, 18, and 0.0009.
inline constexpr float kRerankMargin = 2.5f;

/// Whether k answers can be found with two lists of a warp.
constexpr bool two_lists_serve(uint32_t k, bool lossless) { return list_length(k, lossless) <= kTwoListsMax; }

}  // namespace gannet
