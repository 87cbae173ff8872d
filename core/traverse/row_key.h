// RowKey: a distance, a row and one flag in 64 bits, ordered by distance, then row.
//
// Lists of near rows are sorted arrays of these. Comparing two keys is one integer comparison, and
// the flag, in the lowest bit, never decides: a row is in a list once.
#pragma once

#include <cstdint>

namespace gannet {

/// Marks a place that holds no row. It is never the number of a row.
inline constexpr uint32_t kNoRow = 0xffffffff;

struct RowKey {
  static constexpr uint64_t kFlag = 1;
  static constexpr uint64_t kNone = UINT64_MAX;  // sorts behind every row

  static constexpr uint64_t of(uint32_t distance, uint32_t row, bool flag) {
    return uint64_t{distance} << 32 | uint64_t{row} << 1 | (flag ? kFlag : 0);
  }
  static constexpr uint32_t distance(uint64_t key) { return static_cast<uint32_t>(key >> 32); }
  static constexpr uint32_t row(uint64_t key) { return static_cast<uint32_t>(key) >> 1; }
  static constexpr bool flag(uint64_t key) { return (key & kFlag) != 0; }
};

}  // namespace gannet
