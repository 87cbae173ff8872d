// The nearest of each row and each column of a tile of distances.
//
// Plain loops over 32-bit integers that a compiler vectorises; each level includes them in its own
// file and so gets them in its own instruction set. Scalar code took half of NN-Descent's time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace gannet {
namespace {  // one copy for each file, compiled with that file's instruction set

/// places[i] is the first column of row i with the smallest value.
void nearest_in_rows(const uint32_t* tile, size_t stride, uint32_t rows, uint32_t columns, uint32_t* places) {
  for (uint32_t i = 0; i < rows; ++i) {
    const uint32_t* line = tile + i * stride;
    uint32_t least = UINT32_MAX;
    for (uint32_t j = 0; j < columns; ++j) least = std::min(least, line[j]);
    uint32_t place = 0;
    while (place + 1 < columns && line[place] != least) ++place;
    places[i] = place;
  }
}

/// places[j] is the first row of column j with the smallest value. Columns come in groups of 32,
/// whose minima stay in registers.
void nearest_in_columns(const uint32_t* tile, size_t stride, uint32_t rows, uint32_t columns,
                        uint32_t* places) {
  constexpr uint32_t kGroup = 32;
  for (uint32_t first = 0; first < columns; first += kGroup) {
    const uint32_t count = std::min(kGroup, columns - first);
    uint32_t least[kGroup];
    uint32_t place[kGroup];
    for (uint32_t j = 0; j < count; ++j) {
      least[j] = tile[first + j];
      place[j] = 0;
    }
    for (uint32_t i = 1; i < rows; ++i) {
      const uint32_t* line = tile + i * stride + first;
      for (uint32_t j = 0; j < count; ++j) {
        const bool nearer = line[j] < least[j];
        least[j] = nearer ? line[j] : least[j];
        place[j] = nearer ? i : place[j];
      }
    }
    for (uint32_t j = 0; j < count; ++j) places[first + j] = place[j];
  }
}

}  // namespace
}  // namespace gannet
