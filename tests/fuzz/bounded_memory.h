// BoundedMemory: a context's allocator that knows how much a call may take.
//
// A hostile file asks for memory that its own bytes do not back. So every allocation is counted, and
// one that leaves the budget is a finding by itself, whether or not the machine could have given it.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>

#include "ann.h"
#include "base/memory.h"
#include "demand.h"

namespace gannet::fuzz {

class BoundedMemory {
 public:
  explicit BoundedMemory(uint64_t budget) : budget_(budget) {}
  ~BoundedMemory() { DEMAND(live() == 0, "%lld bytes were never given back", Long{live()}); }
  BoundedMemory(const BoundedMemory&) = delete;

  void set_budget(uint64_t bytes) { budget_ = bytes; }
  /// A single allocation above this is refused, as by a machine that does not have it.
  void set_largest(uint64_t bytes) { largest_ = bytes; }
  /// From now on the allocation of this number (the next is 0) is refused, or it and all later ones.
  void refuse(int64_t number, bool for_ever) {
    refused_ = number;
    for_ever_ = for_ever;
    taken_ = 0;
  }
  void refuse_none() { refuse(-1, false); }
  int64_t live() const { return live_.load(); }
  /// Whether the refusal that was asked for has happened.
  bool has_refused() const { return refused_ >= 0 && taken_.load() > refused_; }

  Allocator allocator() { return {take, give_back, this}; }
  ann_context_params params() {
    ann_context_params params = ANN_CONTEXT_PARAMS_INIT;
    params.allocate = take;
    params.release = give_back;
    params.user = this;
    return params;
  }

 private:
  using Long = long long;

  static void* take(void* user, size_t bytes, size_t alignment) {
    BoundedMemory& memory = *static_cast<BoundedMemory*>(user);
    const int64_t number = memory.taken_.fetch_add(1);
    if (memory.refused_ >= 0 && (number == memory.refused_ || (memory.for_ever_ && number > memory.refused_)))
      return nullptr;
    if (bytes > memory.largest_) return nullptr;
    const int64_t live = memory.live_.fetch_add(static_cast<int64_t>(bytes));
    DEMAND(static_cast<uint64_t>(live) + bytes <= memory.budget_,
           "%zu bytes are asked for with %lld held, %llu in all are allowed", bytes, Long{live},
           static_cast<unsigned long long>(memory.budget_));
    void* taken = nullptr;
    DEMAND(::posix_memalign(&taken, alignment, bytes) == 0, "no memory for the test itself");
    return taken;
  }
  static void give_back(void* user, void* memory, size_t bytes, size_t) {
    static_cast<BoundedMemory*>(user)->live_.fetch_sub(static_cast<int64_t>(bytes));
    std::free(memory);
  }

  std::atomic<int64_t> live_ = 0;
  std::atomic<int64_t> taken_ = 0;
  int64_t refused_ = -1;
  bool for_ever_ = false;
  uint64_t largest_ = UINT64_MAX;
  uint64_t budget_;
};

}  // namespace gannet::fuzz
