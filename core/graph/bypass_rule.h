// Which edges go past hidden rows, on the CPU (graph/bypass_edges.h) and on a CUDA device (place/bypass_edges_cuda.h).
#pragma once

#include <cstdint>

#include "traverse/row_key.h"

namespace gannet {

struct BypassRule {
  const uint32_t* hidden;  // [(rows + 31) / 32] a bit for each row

  constexpr bool hides(uint32_t target) const {
    return target != kNoRow && (hidden[target / 32] >> target % 32 & 1) != 0;
  }

  /// Whether an edge of `row` past a hidden one may lead to `target`, if none does yet, it is no farther than the row's
  /// own list reaches, as many of the row's other neighbours as are asked for lead there, and the row shares neighbours
  /// with the hidden one.
  constexpr bool may_lead(uint32_t row, uint32_t target) const {
    return target != kNoRow && target != row && !hides(target);
  }

  /// Other neighbours of a row that lead where its edge past a hidden row may: of many hidden rows one joins too many.
  static constexpr uint32_t known_by(uint64_t hidden_rows, uint64_t rows) {
    constexpr uint64_t kManyHidden = 64;  // one row in fewer
    return hidden_rows * kManyHidden > rows ? 2 : 1;
  }

  /// Rows to which a row and the hidden one both have edges, or edges of the row past hidden ones lead, at least, where an
  /// edge may go past: else the hidden row's neighbours do not know each other, and are found one by one by queries. Where
  /// rows are of unlike length, `places` are the row's own on the CPU and the longest row's on a device.
  static constexpr uint32_t shared_least(uint32_t places) { return (places + 31) / 32; }

  /// The first places of a row, whose edges say how far its list reaches: nearest rows and those that have this one among
  /// their nearest, by turns. On the CPU these edges alone go past hidden rows.
  static constexpr uint32_t first_places(uint32_t places) { return places / 2; }
};

}  // namespace gannet
