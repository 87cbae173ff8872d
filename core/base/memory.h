// Owned host memory that comes from the caller's allocator.
//
// Everything whose size depends on data or parameters lives in an Array, so that a caller's
// allocator sees it, a budget can be kept, and a test can make each allocation fail in turn.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

#include "base/error.h"

namespace gannet {

/// Rows and tables start on a cache line, so that no kernel reads one line more than it needs.
inline constexpr size_t kAlignment = 64;

/// Memory of the C library, which std::free takes back; null if it has none.
void* take_from_system(size_t bytes);

/// The allocation hook, copied by value into whatever outlives the context that it came from.
struct Allocator {
  void* (*allocate)(void* user, size_t bytes, size_t alignment) = nullptr;
  void (*release)(void* user, void* memory, size_t bytes, size_t alignment) = nullptr;
  void* user = nullptr;

  void* take(size_t bytes) const {
    void* memory = allocate != nullptr ? allocate(user, bytes, kAlignment) : take_from_system(bytes);
    if (memory == nullptr) fail(ANN_NO_MEMORY, "%zu bytes of memory were refused by the allocator", bytes);
    return memory;
  }

  void give_back(void* memory, size_t bytes) const noexcept {
    if (memory == nullptr) return;
    if (release != nullptr) {
      release(user, memory, bytes, kAlignment);
    } else {
      std::free(memory);
    }
  }
};

/// a * b, or the refusal of a product that no memory could hold.
inline size_t checked_product(size_t a, size_t b) {
  size_t product = 0;
  if (__builtin_mul_overflow(a, b, &product))
    fail(ANN_LIMIT, "%zu items of %zu bytes exceed the address space", a, b);
  return product;
}

constexpr size_t round_up(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// `size` items of a trivial type, zeroed or not, freed with the Array.
template <class T>
class Array {
  static_assert(std::is_trivially_destructible_v<T> && alignof(T) <= kAlignment);

 public:
  Array() = default;
  Array(const Allocator& allocator, size_t size) : allocator_(allocator), size_(size) {
    const size_t wanted = checked_product(size, sizeof(T));
    if (wanted > SIZE_MAX / 2) fail(ANN_LIMIT, "%zu bytes exceed the address space", wanted);
    bytes_ = round_up(wanted, kAlignment);
    if (bytes_ != 0) items_ = static_cast<T*>(allocator_.take(bytes_));
  }
  static Array zeroed(const Allocator& allocator, size_t size) {
    Array array(allocator, size);
    if (array.bytes_ != 0) std::memset(static_cast<void*>(array.items_), 0, array.bytes_);
    return array;
  }
  /// A copy of the first items of another.
  static Array front(const Array& from, size_t size, const Allocator& allocator) {
    Array array(allocator, size);
    std::copy_n(from.data(), size, array.data());
    return array;
  }
  /// Items of another's memory, such as a mapped file, which must outlive the Array.
  static Array over(const T* items, size_t size) {
    Array array;
    array.items_ = const_cast<T*>(items);
    array.size_ = size;
    return array;
  }
  Array(Array&& other) noexcept { swap(other); }
  Array& operator=(Array&& other) noexcept {
    Array(std::move(other)).swap(*this);
    return *this;
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() {
    if (bytes_ != 0) allocator_.give_back(items_, bytes_);
  }

  T* data() { return items_; }
  const T* data() const { return items_; }
  size_t size() const { return size_; }
  /// Bytes of the memory that it owns.
  size_t bytes() const { return bytes_; }
  bool empty() const { return size_ == 0; }
  T& operator[](size_t place) { return items_[place]; }
  const T& operator[](size_t place) const { return items_[place]; }
  T* begin() { return items_; }
  T* end() { return items_ + size_; }
  const T* begin() const { return items_; }
  const T* end() const { return items_ + size_; }
  void fill(const T& value) {
    for (T& item : *this) item = value;
  }

 private:
  void swap(Array& other) noexcept {
    std::swap(allocator_, other.allocator_);
    std::swap(items_, other.items_);
    std::swap(size_, other.size_);
    std::swap(bytes_, other.bytes_);
  }

  Allocator allocator_;
  T* items_ = nullptr;
  size_t size_ = 0;
  size_t bytes_ = 0;  // taken from the allocator
};

}  // namespace gannet
