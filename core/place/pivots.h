// Pivots: 512 rows spread over a segment, drawn from equal strata of its rows. A search on a CUDA device
// starts at the nearest of them.
#pragma once

#include <cstdint>

#include "base/random.h"
#include "traverse/row_key.h"

namespace gannet {

inline constexpr uint32_t kPivots = 512;

/// Writes [kPivots] rows, kNoRow in unused places at the end.
inline void draw_pivots(uint32_t rows, uint32_t* pivots) {
  for (uint32_t i = 0; i < kPivots; ++i) pivots[i] = kNoRow;
  random_strata(rows, rows < kPivots ? rows : kPivots, 0, 0x7069766f7473, pivots);  // "pivots"
}

}  // namespace gannet
