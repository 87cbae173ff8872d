// Pivots: 512 rows spread over a segment, drawn from equal strata of its rows, or of its heads where it has any
// (graph/long_edges.h). A search on a CUDA device starts at the nearest of them.
#pragma once

#include <cstdint>

#include "base/random.h"
#include "graph/search_graph.h"
#include "traverse/row_key.h"

namespace gannet {

inline constexpr uint32_t kPivots = 512;

/// Pivots at which a query of a batch starts.
inline constexpr uint32_t kStarts = 8;

/// Room that a query of a batch takes for results found beforehand: its starts, and a place in the order.
inline constexpr uint32_t kStartWords = kStarts + 1;

/// Writes [kPivots] rows, kNoRow in unused places at the end.
inline void draw_pivots(const SearchGraph& graph, uint32_t* pivots) {
  constexpr uint64_t kPivotStream = 0x7069766f7473;  // "pivots"
  for (uint32_t i = 0; i < kPivots; ++i) pivots[i] = kNoRow;
  const uint64_t count = graph.heads.empty() ? graph.rows : graph.heads.size();
  const uint64_t drawn = count < kPivots ? count : kPivots;
  random_strata(count, drawn, 0, kPivotStream, pivots);
  if (graph.heads.empty()) return;
  for (uint64_t i = 0; i < drawn; ++i) pivots[i] = graph.heads[pivots[i]];
}

}  // namespace gannet
