// How the edges of a row change where a graph gets heads (graph/long_edges.h), on the CPU and on a CUDA device.
#pragma once

#include <cstdint>

#include "traverse/row_key.h"

namespace gannet {

/// `shared` gets the first half of a head's edges, then those to other heads, by their numbers in `heads`, then, while
/// there is room, its other edges. Both are [degree] and `to_heads` [count], kNoRow in unused places at the end; `shared`
/// is none of the others.
constexpr void share_row(const uint32_t* edges, uint32_t degree, const uint32_t* to_heads, uint32_t count,
                         const uint32_t* heads, uint32_t* shared) {
  const uint32_t kept = degree - degree / 2;
  uint32_t size = 0;
  const auto add = [&](uint32_t row) {
    if (size == degree) return;
    for (uint32_t i = 0; i < size; ++i) {
      if (shared[i] == row) return;
    }
    shared[size++] = row;
  };
  uint32_t place = 0;
  for (; place < kept && edges[place] != kNoRow; ++place) add(edges[place]);
  for (uint32_t i = 0; i < count && to_heads[i] != kNoRow; ++i) add(heads[to_heads[i]]);
  for (; place < degree && edges[place] != kNoRow; ++place) add(edges[place]);
  while (size < degree) shared[size++] = kNoRow;
}

/// The last edge of a row that is no head leads to its head.
constexpr void lead_back(uint32_t* edges, uint32_t degree, uint32_t head) {
  uint32_t end = 0;
  for (; end < degree && edges[end] != kNoRow; ++end) {
    if (edges[end] == head) return;
  }
  edges[end == degree ? end - 1 : end] = head;
}

}  // namespace gannet
