// Beam: the sorted, bounded list that a best-first search keeps.
//
// An array of RowKeys in ascending order; the flag says that a row has been expanded. Most candidates
// are refused by one comparison with the last entry, and those that are not are few: the loops that let
// them in, a step's worth at a time, are distance/near_list.h. A heap would sort less and need a second
// structure to find the nearest unexpanded row.
#pragma once

#include <algorithm>
#include <cstdint>

#include "distance/kernels.h"
#include "traverse/row_key.h"

namespace gannet {

class Beam {
 public:
  /// Keys that a beam of `capacity` takes.
  static constexpr size_t room(uint32_t capacity) { return near_room(capacity); }

  /// Over room(capacity) keys of the caller.
  Beam(uint64_t* keys, uint32_t capacity) : list_{keys, capacity} {
    std::fill_n(keys, room(capacity), RowKey::kNone);
  }

  uint32_t size() const { return list_.size; }
  uint64_t key(uint32_t place) const { return list_.keys[place]; }

  uint32_t capacity() const { return list_.capacity; }
  /// A distance that a row must stay below to enter. Equal distances enter while there is room.
  uint32_t limit() const {
    return list_.size < list_.capacity ? UINT32_MAX : RowKey::distance(list_.keys[list_.capacity - 1]);
  }

  /// Shows rows that the beam does not hold.
  void insert(const uint32_t* distances, const uint32_t* rows, uint32_t count) {
    kernels().show_near(list_, distances, rows, count);
  }

  /// The nearest row that has not been expanded, marked as expanded; kNoRow if there is none.
  uint32_t pop() {
    list_.next = kernels().next_near(list_, list_.next);
    if (list_.next == list_.size) return kNoRow;
    uint64_t& key = list_.keys[list_.next++];
    key |= RowKey::kFlag;
    return RowKey::row(key);
  }

  /// The same, unless that row stands behind the first `sure` and is no nearer than `bound`.
  uint32_t pop_within(uint32_t bound, uint32_t sure) {
    list_.next = kernels().next_near(list_, list_.next);
    if (list_.next == list_.size) return kNoRow;
    if (list_.next >= sure && RowKey::distance(list_.keys[list_.next]) >= bound) return kNoRow;
    return pop();
  }

  /// How many of the first rows have all been expanded.
  uint32_t first_waiting() const { return kernels().next_near(list_, list_.next); }

  /// The row that pop() would give if nothing nearer comes; kNoRow if there is none.
  uint32_t peek() const {
    const uint32_t place = kernels().next_near(list_, list_.next);
    return place < list_.size ? RowKey::row(list_.keys[place]) : kNoRow;
  }

 private:
  NearList list_;
};

}  // namespace gannet
