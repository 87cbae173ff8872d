// MeasuredOnce: a value that the first call which needs it measures, for all. Others wait, and check their monitors; if
// measuring fails the next call tries again. It is measured where it stays: a calibration has up to 18 KB, and the caller's
// thread may have a small stack.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <thread>

#include "base/execution.h"

namespace gannet {

/// Waits for the mutex, and checks the monitor meanwhile.
inline std::unique_lock<std::mutex> lock_checking(std::mutex& mutex, const Execution& execution) {
  constexpr std::chrono::milliseconds kWait{1};
  std::unique_lock lock(mutex, std::defer_lock);
  while (!lock.try_lock()) {
    execution.check();
    std::this_thread::sleep_for(kWait);
  }
  return lock;
}

template <class T>
class MeasuredOnce {
 public:
  /// Null until it is measured.
  const T* known() const { return is_known_.load(std::memory_order_acquire) ? &*value_ : nullptr; }

  // By the only caller that knows the object yet.
  /// A new value, which the caller fills in.
  T& renew() {
    is_known_ = true;
    return value_.emplace();
  }
  void clear() { is_known_ = false; }

  /// `measure` fills a value in, by the means that it is given.
  template <class Measure>
  const T& get(const Execution& execution, const Measure& measure) const {
    if (const T* value = known()) return *value;
    const std::unique_lock lock = lock_checking(measuring_, execution);
    if (const T* value = known()) return *value;
    measure(value_.emplace(), execution.for_shared_work());
    is_known_.store(true, std::memory_order_release);
    return *value_;
  }

 private:
  mutable std::mutex measuring_;
  mutable std::atomic<bool> is_known_ = false;
  mutable std::optional<T> value_;  // written under the mutex while it is not known, and never after
};

}  // namespace gannet
