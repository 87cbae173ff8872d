// Visited: the rows that a search has visited, one bit a row.
//
// The bits of 100,000 rows are 12 KB and stay in the first cache. A table of up to 32 KB is cleared as a whole; of
// larger ones only the words that were set, as long as they are few. A table of epochs would be 16 times larger, a hash
// table probes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/memory.h"
#include "traverse/row_key.h"

namespace gannet {

class Visited {
 public:
  Visited() = default;
  Visited(const Allocator& allocator, uint32_t rows)
      : bits_(Array<uint64_t>::zeroed(allocator, (size_t{rows} + 63) / 64)),
        touched_(allocator, bits_.bytes() <= kClearedWhole ? 0 : kTouchedMax + 1) {}

  /// Marks a row; true if it was new.
  bool enter(uint32_t row) {
    uint64_t& word = bits_[row / 64];
    const uint64_t bit = uint64_t{1} << (row % 64);
    if ((word & bit) != 0) return false;
    if (!touched_.empty()) touched_[std::min(count_, kTouchedMax)] = row / 64;
    ++count_;
    word |= bit;
    return true;
  }

  /// Marks rows up to the first kNoRow; writes those that were new, and returns how many. Which they are
  /// no branch predictor foresees: the loop has none on it.
  uint32_t enter(const uint32_t* rows, uint32_t count, uint32_t* fresh) {
    return touched_.empty() ? enter_all<false>(rows, count, fresh) : enter_all<true>(rows, count, fresh);
  }

  void clear() {
    if (touched_.empty() || count_ > kTouchedMax) {
      if (bits_.bytes() != 0) std::memset(bits_.data(), 0, bits_.bytes());
    } else {
      for (uint32_t i = 0; i < count_; ++i) bits_[touched_[i]] = 0;
    }
    count_ = 0;
  }

  uint64_t bytes() const { return bits_.bytes() + touched_.bytes(); }

 private:
  static constexpr uint32_t kTouchedMax = 8192;
  static constexpr size_t kClearedWhole = 32768;  // bytes of a table that is cleared as a whole

  template <bool kNotes>
  uint32_t enter_all(const uint32_t* rows, uint32_t count, uint32_t* fresh) {
    uint64_t* const bits = bits_.data();
    uint32_t* const touched = touched_.data();
    uint32_t taken = 0;
    uint32_t touches = count_;
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t row = rows[i];
      if (row == kNoRow) break;
      const uint64_t before = bits[row / 64];
      const uint32_t is_new = (before >> (row % 64) & 1) ^ 1;
      bits[row / 64] = before | uint64_t{1} << (row % 64);
      if constexpr (kNotes) touched[std::min(touches, kTouchedMax)] = row / 64;
      touches += is_new;
      fresh[taken] = row;
      taken += is_new;
    }
    count_ = touches;
    return taken;
  }

  Array<uint64_t> bits_;     // [rows / 64]
  Array<uint32_t> touched_;  // [kTouchedMax + 1] words set since the last clear(); none: it clears all
  uint32_t count_ = 0;
};

}  // namespace gannet
