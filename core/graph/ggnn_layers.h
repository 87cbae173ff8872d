// The common part of GGNN's build on the CPU and on a CUDA device: rows of layers and how they are drawn, the lists of
// its queries, and how many steps those take.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/execution.h"
#include "base/memory.h"
#include "graph/ggnn.h"
#include "traverse/slack_cache.h"

namespace gannet {

// Where the paper is silent, the numbers of the authors' code.
inline constexpr uint32_t kGgnnMergeSteps = 200;
inline constexpr uint32_t kGgnnLinkSteps = 20;
inline constexpr uint32_t kGgnnLinkBest = 10;  // rows met that may get a link

/// The lists of a query of a merge: 64 sorted rows, or some more than k, of a cache of 256.
inline SlackShape ggnn_merge_shape(uint32_t k) {
  return {k, k, std::max(64u, static_cast<uint32_t>(round_up(k + 17, 32))) - k, 192};
}
/// And of the search for a path back.
inline SlackShape ggnn_link_shape() { return {kGgnnLinkBest, kGgnnLinkBest, 54, kGgnnLinkSteps}; }

/// The bound of the build's queries. `mean`: of rows to their nearest neighbours, as far as layers are there.
inline Slack ggnn_build_slack(const GgnnParams& params, float mean) {
  return {params.tau, mean, params.squares};
}

/// The rows of a layer, numbered from 0 on in the order of the rows of the bottom.
struct GgnnLayerRows {
  Array<uint32_t> first;   // [segments + 1] the first row of each segment
  Array<uint32_t> below;   // [rows] their numbers in the layer below; empty: the bottom
  Array<uint32_t> bottom;  // [rows] and in the bottom
  uint32_t rows = 0;

  uint32_t segments() const { return static_cast<uint32_t>(first.size()) - 1; }
  uint32_t segment_of(uint32_t row) const {
    return static_cast<uint32_t>(std::upper_bound(first.begin(), first.end(), row) - first.begin()) - 1;
  }
  uint32_t bottom_row(uint32_t row) const { return bottom.empty() ? row : bottom[row]; }
};

/// The bottom, all rows in segments that differ by one row at most.
GgnnLayerRows ggnn_bottom(uint32_t rows, const GgnnShape& shape, const Execution& execution);

/// Draws the rows of layer `top` from the one below: weighted reservoir sampling, which keeps the rows with the
/// smallest -log(u) / weight (Efraimidis and Spirakis, "Weighted random sampling with a reservoir", 2006). `nearest`,
/// [rows of the bottom], are the weights, and `mean` is theirs. Each segment gives s / g rows; the places that are
/// left go to the best of the next ones, one a segment.
///
/// By the host's threads for a device too: a logarithm of a device has other bits, and a million of them take 16
/// threads a few milliseconds.
GgnnLayerRows ggnn_select(const GgnnLayerRows& below, uint32_t top, const GgnnShape& shape,
                          const GgnnParams& params, const Array<float>& nearest, float mean,
                          const Execution& execution);

/// Equations 3 and 4.
struct GgnnNearest {
  float mean = 0;
  float max = 0;
};
GgnnNearest ggnn_measure(const Array<float>& nearest);

}  // namespace gannet
