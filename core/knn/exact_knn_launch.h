// How the exact k-NN graph on a CUDA device is cut into launches, for it and for estimates.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/memory.h"

namespace gannet {

/// A launch makes the lists of some rows, and compares each with all rows.
struct ExactKnnLaunch {
  uint64_t rows;      // whose lists it makes, a multiple of a tile
  uint32_t capacity;  // keys of a list while it is made: a power of two, at least k + kTile

  static constexpr uint32_t kTile = 128;                        // rows of a block
  static constexpr uint64_t kListBytes = uint64_t{512} << 20;   // of all lists of a launch
  static constexpr uint64_t kByteWork = uint64_t{1} << 43;      // pairs x bytes of a row: some 40 ms
  static constexpr uint64_t kWideWork = uint64_t{1} << 37;
  static constexpr uint64_t kTilesMin = 132;                    // fewer leave a large device idle

  static ExactKnnLaunch of(uint64_t rows, uint64_t stride, uint32_t k, bool wide) {
    ExactKnnLaunch launch{0, 2 * kTile};
    while (launch.capacity < k + kTile) launch.capacity *= 2;
    if (rows == 0) return launch;
    const uint64_t by_time = (wide ? kWideWork : kByteWork) / (rows * stride);
    const uint64_t by_memory = kListBytes / (launch.capacity * sizeof(uint64_t));
    // Whole waves of blocks, so that a launch does not end with most of the device idle.
    const uint64_t wave = kTilesMin * kTile;
    const uint64_t wanted = std::max(std::min(by_time, by_memory) / wave, uint64_t{1}) * wave;
    launch.rows = std::min<uint64_t>(round_up(wanted, kTile), round_up(rows, kTile));
    return launch;
  }

  uint64_t list_bytes() const { return rows * capacity * sizeof(uint64_t); }
};

}  // namespace gannet
