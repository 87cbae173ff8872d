// FirstTouch: bytes that are checked in pieces, each before it is read for the first time.
//
// An index over a mapped file opens in milliseconds because nothing of its rows, codes and edges is
// read then. A reader announces each part before it reads it; the pieces of that part that have not been checked
// yet are checked then. A checked piece costs one relaxed load from then on. Memory that
// needs no checking has no FirstTouch, and the test costs a comparison with null.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/execution.h"

namespace gannet {

class FirstTouch {
 public:
  static constexpr uint32_t kChunkShift = 20;
  static constexpr uint64_t kChunkBytes = uint64_t{1} << kChunkShift;

  FirstTouch(const Allocator& memory, uint64_t bytes)
      : bytes_(bytes), good_(Array<std::atomic<uint8_t>>::zeroed(memory, chunks(bytes))) {}
  virtual ~FirstTouch() = default;
  FirstTouch(const FirstTouch&) = delete;

  static uint64_t chunks(uint64_t bytes) { return (bytes + kChunkBytes - 1) >> kChunkShift; }

  /// Checks the unchecked pieces of [begin, begin + count); throws ANN_CORRUPT where that fails. Two
  /// threads may check the same piece at once, with the same outcome.
  void touch(uint64_t begin, uint64_t count) {
    if (count == 0) return;
    const uint64_t last = (begin + count - 1) >> kChunkShift;
    for (uint64_t chunk = begin >> kChunkShift; chunk <= last; ++chunk) {
      if (good_[chunk].load(std::memory_order_relaxed) != 0) continue;
      check(chunk);
      good_[chunk].store(1, std::memory_order_relaxed);
    }
  }
  /// Everything, by as many threads as the execution has.
  void touch_all(const Execution& execution = {}) {
    parallel_for(execution, chunks(bytes_), 1,
                 [&](uint64_t chunk, uint64_t, uint32_t) { touch(chunk << kChunkShift, 1); });
  }
  uint64_t held_bytes() const { return good_.bytes(); }

  /// A hint that all bytes will be read one after the other, or again a few here and there.
  virtual void expect_order(bool /*in_order*/) {}

 private:
  /// Returns if the chunk is in order. The bytes never change, so nothing has to be made visible to
  /// other threads beside the fact itself.
  virtual void check(uint64_t chunk) = 0;

  uint64_t bytes_;
  Array<std::atomic<uint8_t>> good_;
};

/// Such a hint for as long as it lives.
class ReadsInOrder {
 public:
  explicit ReadsInOrder(FirstTouch* touch) : touch_(touch) {
    if (touch_ != nullptr) touch_->expect_order(true);
  }
  ~ReadsInOrder() {
    if (touch_ != nullptr) touch_->expect_order(false);
  }
  ReadsInOrder(const ReadsInOrder&) = delete;

 private:
  FirstTouch* touch_;
};

}  // namespace gannet
