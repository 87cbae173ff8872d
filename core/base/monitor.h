// Monitor: how other threads see and stop a long call.
//
// The working threads ask `check()` between pieces of work that take some milliseconds at most; it
// throws once the caller wants an end. Every member is a lock-free atomic, so cancelling from a
// signal handler is one store.
//
// A test may watch the questions: tests/fault/cancel_test.cpp counts the work between two of them, and
// wishes for an end at each.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/error.h"

namespace gannet {

class Monitor {
 public:
  /// Told of each question before it is answered, on the thread that asks.
  struct Watcher {
    virtual ~Watcher() = default;
    virtual void asked(Monitor& monitor) = 0;
  };
  /// Null outside of tests. Set while no call runs.
  void watch(Watcher* watcher) noexcept { watcher_ = watcher; }

  void cancel() noexcept { cancelled_.store(true, std::memory_order_relaxed); }

  void reset() noexcept {
    cancelled_.store(false, std::memory_order_relaxed);
    deadline_.store(kNever, std::memory_order_relaxed);
    start();
  }

  void set_deadline(uint64_t nanoseconds) noexcept {
    const uint64_t from_now = nanoseconds > kNever / 2 ? kNever / 2 : nanoseconds;
    deadline_.store(nanoseconds == 0 ? kNever : now() + static_cast<int64_t>(from_now),
                    std::memory_order_relaxed);
  }

  /// Throws where the caller cancelled or the deadline has passed.
  void check() {
    if (watcher_ != nullptr) watcher_->asked(*this);
    if (cancelled_.load(std::memory_order_relaxed))
      fail(ANN_CANCELLED, "the call was cancelled through its monitor");
    const int64_t deadline = deadline_.load(std::memory_order_relaxed);
    if (deadline != kNever && now() >= deadline)
      fail(ANN_DEADLINE, "the monitor's deadline passed before the call was done");
  }

  /// A new call begins.
  void start() noexcept {
    step_.store(0, std::memory_order_relaxed);
    fraction_.store(0, std::memory_order_relaxed);
    phase_.store("", std::memory_order_relaxed);
  }

  /// `phase` lives for ever; `fraction` of the whole call is done when it begins.
  void enter(const char* phase, double fraction) noexcept {
    phase_.store(phase, std::memory_order_relaxed);
    step_.fetch_add(1, std::memory_order_relaxed);
    advance(fraction);
  }

  void advance(double fraction) noexcept {
    double known = fraction_.load(std::memory_order_relaxed);
    while (known < fraction && !fraction_.compare_exchange_weak(known, fraction, std::memory_order_relaxed)) {
    }
  }

  uint32_t step() const { return step_.load(std::memory_order_relaxed); }
  double fraction() const { return fraction_.load(std::memory_order_relaxed); }
  const char* phase() const { return phase_.load(std::memory_order_relaxed); }

 private:
  static constexpr int64_t kNever = INT64_MAX;
  static int64_t now() {
    return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  }

  Watcher* watcher_ = nullptr;
  std::atomic<bool> cancelled_ = false;
  std::atomic<int64_t> deadline_ = kNever;
  std::atomic<uint32_t> step_ = 0;
  std::atomic<double> fraction_ = 0;
  std::atomic<const char*> phase_ = "";
};

}  // namespace gannet
