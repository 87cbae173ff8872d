// Loops over about as many items as rows, with checks of the monitor: a plain loop, or a plain fill of an
// array, takes some ten milliseconds a million rows, and could not be ended.
#pragma once

#include <new>

#include "base/execution.h"

namespace gannet {

/// Items of a loop over rows that writes a few bytes for each, between two questions of serial_for().
inline constexpr uint64_t kRowsAtOnce = 1 << 16;

/// Rows of a task that writes for each of a row's `degree` edges to another place, each a miss of the caches. The array
/// is a filled one: pages are large, and a task would touch all of them for the first time, 1.3 ms each beside other
/// work.
constexpr uint64_t rows_of_scattered(uint32_t degree) {
  return std::max<uint64_t>((uint64_t{1} << 13) / std::max(degree, 1u), 1);
}

/// An Array whose items are made of `value`; its pages are touched by all threads, and the monitor is checked.
template <class T, class Value>
Array<T> filled_array(const Execution& execution, size_t size, const Value& value) {
  Array<T> array(execution.memory, size);
  parallel_for(execution, size, kRowsAtOnce, [&](uint64_t begin, uint64_t end, uint32_t) {
    for (uint64_t i = begin; i < end; ++i) new (&array[i]) T(value);
  });
  return array;
}

/// Runs body(begin, end) over [0, count) on the calling thread alone, which asks the monitor before each chunk of
/// `grain`: for state that is passed on from one item to the next (sums of lengths, a table that grows).
template <class Body>
void serial_for(const Execution& execution, uint64_t count, uint64_t grain, const Body& body) {
  for (uint64_t begin = 0; begin < count; begin += grain) {
    execution.check();
    body(begin, std::min(begin + grain, count));
  }
}

/// Makes of the counts of rows the places at which their items begin, [rows + 1], and leaves the counts at zero, from
/// where they number the items as these are placed.
inline void place_by_counts(Array<std::atomic<uint32_t>>& counts, Array<uint64_t>& begins,
                            const Execution& execution) {
  begins[0] = 0;
  serial_for(execution, counts.size(), kRowsAtOnce, [&](uint64_t begin, uint64_t end) {
    for (uint64_t row = begin; row < end; ++row)
      begins[row + 1] = begins[row] + counts[row].exchange(0, std::memory_order_relaxed);
  });
}

/// Leaves the `kept` smallest of `count` distinct keys in front, ascending. A hub may have as many as there are rows,
/// and they are sorted in chunks, with a check of the monitor before each.
inline void sort_smallest(uint64_t* keys, uint64_t count, uint64_t kept, const Execution& execution) {
  if (count <= kRowsAtOnce) {
    if (kept < count)
      std::partial_sort(keys, keys + kept, keys + count);
    else
      std::sort(keys, keys + count);
    return;
  }
  uint64_t sorted = 0;
  serial_for(execution, count, kRowsAtOnce, [&](uint64_t begin, uint64_t end) {
    std::copy(keys + begin, keys + end, keys + sorted);
    const uint64_t size = sorted + (end - begin);
    sorted = std::min(kept, size);
    std::partial_sort(keys, keys + sorted, keys + size);
  });
}

}  // namespace gannet
