// How the exact k-NN graph on a CUDA device is cut into launches, for it and for estimates.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/memory.h"

namespace gannet {

/// A launch compares some rows with some, or with all; lists of the left ones go on from launch to
/// launch until all right ones have been seen.
struct ExactKnnLaunch {
  uint64_t rows;      // whose lists it makes, a multiple of a tile
  uint64_t right;     // that it compares them with, likewise
  uint32_t capacity;  // keys of a list while it is made: a power of two, at least k + kTile

  static constexpr uint32_t kTile = 128;                       // rows of a block
  static constexpr uint64_t kListBytes = uint64_t{512} << 20;  // of all lists of a launch
  static constexpr uint64_t kByteWork = uint64_t{1} << 42;     // pairs x bytes of a row: some 30 ms
  static constexpr uint64_t kWideWork = uint64_t{1} << 37;
  static constexpr uint64_t kTiles = 264;  // keep a large device busy, evenly

  static constexpr uint64_t default_work(bool wide) { return wide ? kWideWork : kByteWork; }

  static ExactKnnLaunch of(uint64_t rows, uint64_t stride, uint32_t k, uint64_t launch_work) {
    ExactKnnLaunch launch{0, 0, 2 * kTile};
    while (launch.capacity < k + kTile) launch.capacity *= 2;
    if (rows == 0) return launch;
    const uint64_t work = launch_work / stride;  // pairs
    const uint64_t by_memory = kListBytes / (launch.capacity * sizeof(uint64_t));
    const uint64_t wave = kTiles * kTile;
    const uint64_t waves = std::max(std::min(work / rows, by_memory) / wave, uint64_t{1});
    launch.rows = std::min<uint64_t>(waves * wave, round_up(rows, kTile));
    launch.right = std::min<uint64_t>(round_up(work / launch.rows + 1, kTile), round_up(rows, kTile));
    return launch;
  }

  /// Lists, and of each the farthest distance that it takes and how long it is.
  uint64_t list_bytes() const {
    const uint64_t keys = capacity * sizeof(uint64_t);
    const uint64_t bound_and_count = 2 * sizeof(uint32_t);
    return rows * (keys + bound_and_count);
  }
};

/// Device memory that exact lists take beside codes and result, where launches do the work that they do by default.
inline uint64_t exact_knn_device_bytes(uint64_t rows, uint64_t stride, uint32_t k, bool wide) {
  return ExactKnnLaunch::of(rows, stride, k, ExactKnnLaunch::default_work(wide)).list_bytes();
}

}  // namespace gannet
