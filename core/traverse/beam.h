// Beam: the sorted, bounded list that a best-first search keeps.
//
// An array of RowKeys in ascending order; the flag says that a row has been expanded. Insertion
// moves the tail by one: with 30 to 200 entries that is a few cache lines, and most candidates are
// refused by one comparison with the last entry. A heap would sort less and need a second structure
// to find the nearest unexpanded row.
#pragma once

#include <cstdint>
#include <cstring>

#include "traverse/row_key.h"

namespace gannet {

class Beam {
 public:
  /// Over `capacity` + 1 keys of the caller.
  Beam(uint64_t* keys, uint32_t capacity) : keys_(keys), capacity_(capacity) {}

  uint32_t size() const { return size_; }
  uint64_t key(uint32_t place) const { return keys_[place]; }

  /// A distance that a row must stay below to enter. Equal distances enter while there is room.
  uint32_t limit() const {
    return size_ < capacity_ ? UINT32_MAX : RowKey::distance(keys_[capacity_ - 1]);
  }

  void insert(uint32_t distance, uint32_t row) {
    const uint64_t key = RowKey::of(distance, row, false);
    if (size_ == capacity_ && key >= keys_[size_ - 1]) return;
    uint32_t place = lower_bound(key);
    const uint32_t kept = size_ < capacity_ ? size_ : capacity_ - 1;
    std::memmove(keys_ + place + 1, keys_ + place, (kept - place) * sizeof(uint64_t));
    keys_[place] = key;
    size_ = kept + 1;
    if (place < next_) next_ = place;
  }

  /// The nearest row that has not been expanded, marked as expanded; kNoRow if there is none.
  uint32_t pop() {
    while (next_ < size_ && RowKey::flag(keys_[next_])) ++next_;
    if (next_ == size_) return kNoRow;
    keys_[next_] |= RowKey::kFlag;
    return RowKey::row(keys_[next_++]);
  }

  /// The row that pop() would give if nothing nearer comes; kNoRow if there is none.
  uint32_t peek() const {
    for (uint32_t place = next_; place < size_; ++place) {
      if (!RowKey::flag(keys_[place])) return RowKey::row(keys_[place]);
    }
    return kNoRow;
  }

 private:
  uint32_t lower_bound(uint64_t key) const {
    uint32_t begin = 0;
    uint32_t length = size_;
    while (length > 0) {
      const uint32_t half = length / 2;
      if (keys_[begin + half] < key) {
        begin += half + 1;
        length -= half + 1;
      } else {
        length = half;
      }
    }
    return begin;
  }

  uint64_t* keys_;
  uint32_t capacity_;
  uint32_t size_ = 0;
  uint32_t next_ = 0;  // rows before this place are expanded
};

}  // namespace gannet
