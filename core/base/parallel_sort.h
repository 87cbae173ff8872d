// Sorting by all threads, with questions to the monitor: std::sort of tens of millions of items takes
// seconds, on one thread, and cannot be ended.
//
// Runs of kRun items are sorted each by itself; then neighbouring runs are merged, twice as long each
// time. A merge is cut into pieces of kRun results: the items of both runs before a result are found by
// bisection, so that threads share one merge of two long runs too.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/execution.h"

namespace gannet {

/// How many of the first `wanted` items of the merge of two sorted runs come from the first of them.
template <class T, class Less>
uint64_t taken_of_first(const T* first, uint64_t first_count, const T* second, uint64_t second_count,
                        uint64_t wanted, const Less& less) {
  uint64_t least = wanted > second_count ? wanted - second_count : 0;
  uint64_t most = std::min(wanted, first_count);
  while (least < most) {
    const uint64_t taken = (least + most) / 2;
    // Too few are taken if the next of the first run is not behind the last that the second would give.
    if (!less(second[wanted - taken - 1], first[taken])) {
      least = taken + 1;
    } else {
      most = taken;
    }
  }
  return least;
}

/// Sorts `items` by a strict order of distinct items, with as much memory again meanwhile.
template <class T, class Less>
void parallel_sort(Array<T>& items, const Less& less, const Execution& execution) {
  constexpr uint64_t kRun = uint64_t{1} << 14;
  const uint64_t count = items.size();
  parallel_for(execution, count, kRun, [&](uint64_t begin, uint64_t end, uint32_t) {
    std::sort(items.data() + begin, items.data() + end, less);
  });
  if (count <= kRun) return;
  Array<T> merged(execution.memory, count);
  for (uint64_t width = kRun; width < count; width *= 2) {
    // kRun divides every width, so a piece lies within one merge.
    parallel_for(execution, count, kRun, [&](uint64_t begin, uint64_t end, uint32_t) {
      const uint64_t start = begin / (2 * width) * (2 * width);
      const uint64_t first_count = std::min(width, count - start);
      const uint64_t second_count = std::min(width, count - start - first_count);
      const T* first = items.data() + start;
      const T* second = first + first_count;
      const uint64_t from = taken_of_first(first, first_count, second, second_count, begin - start, less);
      const uint64_t to = taken_of_first(first, first_count, second, second_count, end - start, less);
      std::merge(first + from, first + to, second + (begin - start - from), second + (end - start - to),
                 merged.data() + begin, less);
    });
    std::swap(items, merged);
  }
}

}  // namespace gannet
