// CoveringCodes: the codes of the heads where walks of the CPU start, one behind the other.
//
// The heads (graph/covering_heads.h) lie anywhere among the rows: as many pages as heads, more than a processor knows
// the addresses of, and no order in which it could read ahead. Side by side they are read at the rate of its second
// cache. Time of a query for .95 and .999 of ten answers, one thread of an AMD EPYC with AVX-512 VNNI, by turns:
//
//                                       heads        by number        side by side
//     1,000,000 x  96, 5,000 clusters   6,569      72  104 us         43   80 us
//     1,000,000 x 128, 3,000 islands    3,000      45   50            34   42
//     300,000   x 768, 1,000 clusters   1,026      63  116            57  115
//     1,000,000 x 128, 1,000 clusters   1,312      30   56            28   58
//
// They are copied at the first search, since an open reads no codes. Bytes: those of the heads' codes; where these are
// more than kBytesMost, or memory was short then, heads are compared by number.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/execution.h"
#include "base/measured_once.h"
#include "dataset/codes.h"

namespace gannet {

class CoveringCodes {
 public:
  /// The codes of these heads by place, which the first call copies; null where it was for others, or where they are
  /// not copied. Any thread.
  const Codes* of(std::span<const uint32_t> heads, const Codes& codes, const Execution& execution) const {
    const Copied& copied =
        copied_.get(execution, [&](Copied& made, const Execution& each) { copy(heads, codes, made, each); });
    return copied.heads.data() == heads.data() && copied.heads.size() == heads.size() ? &copied.codes
                                                                                      : nullptr;
  }

  uint64_t bytes() const {
    const Copied* copied = copied_.known();
    return copied != nullptr ? copied->codes.bytes() : 0;
  }

  /// Rows that a walk compares in the time of so many heads: a code behind that of the last one takes 5 ns, one that a
  /// walk meets 15 in a processor's caches and 55 beyond. 5,000 clusters at .8: 44 us instead of 73 from entry points.
  static double counted(size_t heads, const Codes& codes) {
    constexpr double kInARow = 0.15;
    return static_cast<double>(heads) * (serve(heads, codes) ? kInARow : 1);
  }

 private:
  static constexpr uint64_t kBytesMost = 16 << 20;
  static constexpr size_t kAtOnce = 64;

  struct Copied {
    std::span<const uint32_t> heads;
    Codes codes;
  };

  static bool serve(size_t heads, const Codes& codes) {
    return codes.walks_by_codes() && heads * codes.stride() <= kBytesMost;
  }

  static void copy(std::span<const uint32_t> heads, const Codes& codes, Copied& made,
                   const Execution& execution) {
    if (!serve(heads.size(), codes)) return;
    try {
      // To compare them checks them, where they lie in a mapped file.
      const Array<uint8_t> nothing = Array<uint8_t>::zeroed(execution.memory, codes.stride());
      uint32_t distances[kAtOnce];
      for (size_t begin = 0; begin < heads.size(); begin += kAtOnce) {
        execution.check();
        const auto some = static_cast<uint32_t>(std::min(kAtOnce, heads.size() - begin));
        codes.distances(nothing.data(), heads.data() + begin, some, distances);
        if (codes.has_halves()) codes.walk_distances(nothing.data(), heads.data() + begin, some, distances);
      }
      made.codes = Codes(codes, heads.data(), static_cast<uint32_t>(heads.size()), execution.memory);
      if (codes.has_halves()) made.codes.copy_halves(codes, heads.data(), execution.memory);
      made.heads = heads;
    } catch (const Error& error) {
      if (error.status != ANN_NO_MEMORY) throw;
    }
  }

  MeasuredOnce<Copied> copied_;
};

}  // namespace gannet
