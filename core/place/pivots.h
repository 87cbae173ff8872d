// Pivots: rows spread over a segment, at the nearest of which a search on a CUDA device starts. They are 512, drawn
// from equal strata of its rows, or of its heads where it has any (graph/long_edges.h); or, where calibration there
// finds islands too many for these, the covering heads (graph/covering_heads.h) and others up to a multiple of 512.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/random.h"
#include "graph/covering_heads.h"
#include "graph/long_edges.h"
#include "graph/search_graph.h"
#include "traverse/row_key.h"

namespace gannet {

inline constexpr uint32_t kPivots = 512;  // as a rule, and what divides every other number of them
inline constexpr uint32_t kPivotsMost = kCoveringMost;
static_assert(kPivotsMost % kPivots == 0);

/// The number of pivots that hold so many covering heads: with any of them more than kPivots, all of which serve blocks.
constexpr uint32_t pivot_count(size_t covering) {
  if (covering == 0) return kPivots;
  return std::max(2 * kPivots, static_cast<uint32_t>((covering + kPivots - 1) / kPivots * kPivots));
}

/// Pivots at which a query of a batch starts.
inline constexpr uint32_t kStarts = 8;

/// Room that a query of a batch takes for results found beforehand: its starts, and a place in the order.
inline constexpr uint32_t kStartWords = kStarts + 1;

/// Returns [pivot_count(covering)] rows, kNoRow in unused places at the end. `covering`: heads of the graph, ascending.
inline Array<uint32_t> draw_pivots(const SearchGraph& graph, std::span<const uint32_t> covering,
                                   const Allocator& memory) {
  constexpr uint64_t kPivotStream = 0x7069766f7473;  // "pivots"
  const Array<uint32_t>& heads = graph.heads;
  Array<uint32_t> pivots(memory, pivot_count(covering.size()));
  pivots.fill(kNoRow);
  std::copy(covering.begin(), covering.end(), pivots.begin());
  // How many other heads stand before each of these.
  Array<uint32_t> before(memory, covering.size());
  for (uint32_t i = 0; i < covering.size(); ++i)
    before[i] =
        static_cast<uint32_t>(std::lower_bound(heads.begin(), heads.end(), covering[i]) - heads.begin()) - i;
  const uint64_t others = heads.empty() ? graph.rows : heads.size() - covering.size();
  const uint64_t drawn = std::min<uint64_t>(others, pivots.size() - covering.size());
  uint32_t* const rest = pivots.data() + covering.size();
  random_strata(others, drawn, 0, kPivotStream, rest);
  for (uint64_t i = 0; i < drawn && !heads.empty(); ++i)
    rest[i] = heads[rest[i] + (std::upper_bound(before.begin(), before.end(), rest[i]) - before.begin())];
  return pivots;
}

/// Device memory of pivots at most, with the usual ones while others take their place, and their numbers without hidden
/// rows: of a segment's rows, if it may have heads, else 0, and the bytes of a row's codes of all kinds.
constexpr uint64_t pivot_device_bytes(uint64_t rows, uint64_t code_bytes) {
  const uint64_t most = std::min<uint64_t>(pivot_count(rows / kHeadShare), kPivotsMost);
  return (kPivots + most) * (2 * sizeof(uint32_t) + sizeof(int32_t) + code_bytes);
}

}  // namespace gannet
