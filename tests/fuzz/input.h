// Input: the bytes of one execution, taken piece by piece. Once they are used up it gives zeros, so
// every byte string means something and a shorter one means less.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace gannet::fuzz {

class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  bool empty() const { return at_ >= size_; }
  uint8_t byte() { return take<uint8_t>(); }
  uint16_t half() { return take<uint16_t>(); }
  uint32_t word() { return take<uint32_t>(); }
  uint64_t wide() { return take<uint64_t>(); }

  /// A number below `bound`, from as few bytes as it needs.
  uint64_t below(uint64_t bound) {
    if (bound <= 1) return 0;
    return (bound <= 256 ? byte() : bound <= 65536 ? half() : wide()) % bound;
  }
  /// One of a table.
  template <class T, size_t kCount>
  T one_of(const T (&table)[kCount]) {
    return table[below(kCount)];
  }

 private:
  template <class T>
  T take() {
    T value = 0;
    const size_t left = size_ - at_;
    const size_t count = left < sizeof value ? left : sizeof value;
    if (count != 0) std::memcpy(&value, data_ + at_, count);
    at_ += count;
    return value;
  }

  const uint8_t* data_;
  size_t size_;
  size_t at_ = 0;
};

}  // namespace gannet::fuzz
