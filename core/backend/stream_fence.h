// StreamFence: work on callers' streams that reads memory of the library, to be waited for before it goes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "backend/launch.h"

namespace gannet::cuda {

class StreamFence {
  struct Slot {
    Slot() : event(false) {}
    unsigned long long stream = 0;  // its number, which no other stream ever gets
    uint32_t users = 0;             // calls that are queueing work there
    Event event;                    // behind all work that was queued there
  };

 public:
  /// A call that queues work on a stream; at its end, whatever happens, the fence knows of the work.
  class Call {
   public:
    Call(StreamFence& fence, const Stream& stream)
        : fence_(fence), stream_(stream), slot_(fence.enter(stream)) {}
    ~Call() { fence_.leave(slot_, stream_); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    StreamFence& fence_;
    const Stream& stream_;
    Slot& slot_;
  };

  void wait() noexcept {
    for (const auto& slot : slots_) slot->event.wait_quietly();
  }
  void clear() { slots_.clear(); }

 private:
  Slot& enter(const Stream& stream) {
    unsigned long long number = 0;
    check(runtime().stream_id(stream, &number), "asking for a stream's number");
    const std::lock_guard lock(mutex_);
    auto found = std::find_if(slots_.begin(), slots_.end(),
                              [number](const auto& slot) { return slot->stream == number; });
    if (found == slots_.end())
      found = std::find_if(slots_.begin(), slots_.end(),
                           [](const auto& slot) { return slot->users == 0 && slot->event.has_passed(); });
    if (found == slots_.end()) {
      slots_.push_back(std::make_unique<Slot>());
      found = slots_.end() - 1;
    }
    (*found)->stream = number;
    ++(*found)->users;
    return **found;
  }

  void leave(Slot& slot, const Stream& stream) noexcept {
    const std::lock_guard lock(mutex_);
    --slot.users;
    slot.event.record_quietly(stream);
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<Slot>> slots_;
};

}  // namespace gannet::cuda
