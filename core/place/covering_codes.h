// CoveringCodes: the codes of the heads where walks of the CPU start, one behind the other.
//
// The heads (graph/covering_heads.h) lie anywhere among the rows: as many pages as heads, more than a processor knows
// the addresses of, and no order in which it could read ahead. Side by side they are read at the rate of its second
// cache. Time of a query for .95 and .999 of ten answers, one thread of an AMD EPYC with AVX-512 VNNI:
//
//                                       heads        by number        side by side
//     1,000,000 x  96, 5,000 clusters   6,569      72  104 us         44   80 us
//     1,000,000 x 128, 3,000 islands    3,000      45   50            34   42
//     300,000   x 768, 1,000 clusters   1,026      63  116            57  115
//     1,000,000 x 128, 1,000 clusters   1,312      30   56            28   58
//
// They are copied at the first search, since an open reads no codes. Bytes: those of the heads' codes, kBytesMost at most.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>

#include "base/memory.h"
#include "dataset/codes.h"

namespace gannet {

class CoveringCodes {
 public:
  /// The codes of these heads by place, which the first call copies; null where it was for others, where walks compare
  /// other codes than these, or where they are too many or there was no memory. Any thread.
  const Codes* of(std::span<const uint32_t> heads, const Codes& codes, const Allocator& memory) {
    std::call_once(once_, [&] { copy(heads, codes, memory); });
    return is_copied_ && heads.data() == heads_.data() && heads.size() == heads_.size() ? &codes_ : nullptr;
  }

  uint64_t bytes() const { return is_copied_ ? codes_.bytes() : 0; }

 private:
  static constexpr uint64_t kBytesMost = 16 << 20;

  void copy(std::span<const uint32_t> heads, const Codes& codes, const Allocator& memory) {
    if (!codes.walks_by_codes() || heads.size() * codes.stride() > kBytesMost) return;
    const auto count = static_cast<uint32_t>(heads.size());
    try {
      // To compare them checks them, where they lie in a mapped file.
      const Array<uint8_t> nothing = Array<uint8_t>::zeroed(memory, codes.stride());
      Array<uint32_t> distances(memory, count);
      codes.distances(nothing.data(), heads.data(), count, distances.data());
      codes_ = Codes(codes, heads.data(), count, memory);
    } catch (const Error& error) {
      if (error.status != ANN_NO_MEMORY) throw;
      return;
    }
    heads_ = heads;
    is_copied_ = true;
  }

  std::once_flag once_;
  std::span<const uint32_t> heads_;
  Codes codes_;
  std::atomic<bool> is_copied_ = false;
};

}  // namespace gannet
