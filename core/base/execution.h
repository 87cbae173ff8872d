// Execution: the memory and threads that a phase may use, and the monitor that it reports to.
//
// parallel_for splits a range into chunks and hands them to the workers of the process (execution.cpp). Where the
// system refuses a thread, the others do its share; the calling thread always works too.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>

#include "base/memory.h"
#include "base/monitor.h"

namespace gannet {

/// Threads for a wish of `wanted` under a cap (0: none). A wish of 0 is for as many as the calling thread may use:
/// the processors of its affinity mask, or fewer where the process's control group has a quota of processor time.
uint32_t thread_count(uint32_t wanted, uint32_t cap);

/// The arguments of thread_count, for a call that counts later or not at all.
struct ThreadLimits {
  uint32_t wanted = 0;
  uint32_t cap = 0;
};

struct Execution {
  Allocator memory;
  uint32_t threads = 1;
  Monitor* monitor = nullptr;  // may be null

  /// Part of the call's progress that the current phase stands for.
  double from = 0;
  double to = 1;

  /// Of a call with one query, whose own work keeps to its thread: the threads for work that later calls share.
  std::optional<ThreadLimits> shared_work = std::nullopt;

  void check() const {
    if (monitor != nullptr) monitor->check();
  }
  void enter(const char* phase) const {
    if (monitor != nullptr) monitor->enter(phase, from);
    check();
  }
  void advance(double share_of_phase) const {
    if (monitor != nullptr) monitor->advance(from + (to - from) * std::min(share_of_phase, 1.0));
  }
  /// The same means for a phase that takes the call from one fraction to another.
  Execution span(double phase_from, double phase_to) const {
    Execution part = *this;
    part.from = from + (to - from) * phase_from;
    part.to = from + (to - from) * phase_to;
    return part;
  }
  /// The means for work that later calls share: measuring curves, a copy on a device. The processors are counted here
  /// and not for each query: that takes .4 us, and a query of 10,000 rows 4.
  Execution for_shared_work() const {
    Execution all = *this;
    if (shared_work) all.threads = thread_count(shared_work->wanted, shared_work->cap);
    return all;
  }
};

/// An atomic minimum. So an error names the item that is first in the order of items, not the one that some
/// thread has met first.
inline void keep_least(std::atomic<uint64_t>& least, uint64_t number) {
  uint64_t known = least.load(std::memory_order_relaxed);
  while (number < known && !least.compare_exchange_weak(known, number, std::memory_order_relaxed)) {
  }
}

/// Runs work(context, worker) on the calling thread as worker 0 and on up to `threads` - 1 workers of the process,
/// each with a number of its own; returns when all that have begun have ended. Workers may begin late or not at
/// all, so `work` must finish with any number of them. It does not throw.
void run_on_workers(uint32_t threads, void (*work)(void* context, uint32_t worker), void* context);

/// Items of a task that take `steps` each (columns, places of a list), `most` at most: a task is some
/// 2^18 steps, a fraction of a millisecond or a few of them, however long the rows are.
constexpr uint64_t items_per_task(uint64_t steps, uint64_t most) {
  return std::clamp<uint64_t>((uint64_t{1} << 18) / std::max<uint64_t>(steps, 1), 1, most);
}

/// Runs body(begin, end, worker) over [0, count) in chunks of `grain`, worker < execution.threads.
///
/// Chunks go to whichever thread is free, so a body that writes only the results of its own items
/// gives the same result for any number of threads. The first exception ends the loop and is
/// rethrown here. The monitor is checked before each chunk and after the last.
template <class Body>
void parallel_for(const Execution& execution, uint64_t count, uint64_t grain, const Body& body) {
  std::atomic<uint64_t> next = 0;
  std::atomic<bool> stopped = false;
  std::exception_ptr failure;
  std::mutex failure_mutex;

  const auto work = [&](uint32_t worker) noexcept {
    try {
      while (!stopped.load(std::memory_order_relaxed)) {
        execution.check();
        const uint64_t begin = next.fetch_add(grain, std::memory_order_relaxed);
        if (begin >= count) return;
        body(begin, std::min(begin + grain, count), worker);
      }
    } catch (...) {
      stopped.store(true, std::memory_order_relaxed);
      const std::lock_guard lock(failure_mutex);
      if (!failure) failure = std::current_exception();
    }
  };

  const uint64_t chunks = (count + grain - 1) / grain;
  const uint32_t threads = static_cast<uint32_t>(std::min<uint64_t>(execution.threads, chunks));
  run_on_workers(
      threads, [](void* context, uint32_t worker) { (*static_cast<decltype(&work)>(context))(worker); },
      const_cast<void*>(static_cast<const void*>(&work)));
  if (failure) std::rethrow_exception(failure);
}

/// Runs two tasks side by side, each of which may use as many threads as there are.
template <class First, class Second>
void run_both(const Execution& execution, const First& first, const Second& second) {
  Execution both = execution;
  both.threads = std::min(execution.threads, 2u);
  parallel_for(both, 2, 1, [&](uint64_t task, uint64_t, uint32_t) {
    if (task == 0)
      first();
    else
      second();
  });
}

}  // namespace gannet
