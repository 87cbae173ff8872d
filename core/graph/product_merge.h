// How edges by product are merged into a row of near edges, on the CPU (graph/product_edges.h) and on a CUDA device
// (index/product_walks.h).
#pragma once

#include <cstdint>

#include "traverse/row_key.h"

namespace gannet {

/// `merged` gets the first three eighths of the near edges of a row, then those by product, then, while there is room, the
/// other near ones. All three are [degree], kNoRow in unused places at the end; `merged` is none of the others.
constexpr void merge_product_row(const uint32_t* near, const uint32_t* by_product, uint32_t degree,
                                 uint32_t* merged) {
  const uint32_t kept = (degree * 3 + 7) / 8;
  uint32_t size = 0;
  const auto add = [&](uint32_t row) {
    if (size == degree || row == kNoRow) return;
    for (uint32_t i = 0; i < size; ++i) {
      if (merged[i] == row) return;
    }
    merged[size++] = row;
  };
  uint32_t place = 0;
  for (; place < kept && near[place] != kNoRow; ++place) merged[size++] = near[place];
  for (uint32_t i = 0; i < degree; ++i) add(by_product[i]);
  for (; place < degree && near[place] != kNoRow; ++place) add(near[place]);
  while (size < degree) merged[size++] = kNoRow;
}

}  // namespace gannet
