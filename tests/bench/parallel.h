// parallel.h: a loop over several threads, for the harness's own work.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace bench {

inline uint32_t hardware_threads() { return std::max(1u, std::thread::hardware_concurrency()); }

// Calls work(first, count) for parts of [0, total), from all of the machine's threads. The first
// exception of a part is thrown again here, once all threads are done.
template <typename Work>
void parallel_parts(uint64_t total, uint64_t part, const Work& work) {
  std::atomic<uint64_t> next{0};
  std::exception_ptr fault;
  std::mutex fault_mutex;
  const auto run = [&] {
    try {
      for (uint64_t first; (first = next.fetch_add(part)) < total;) {
        work(first, std::min(part, total - first));
      }
    } catch (...) {
      const std::lock_guard lock(fault_mutex);
      if (!fault) fault = std::current_exception();
      next = total;
    }
  };
  std::vector<std::thread> threads;
  const uint64_t parts = (total + part - 1) / part;
  for (uint64_t i = 1; i < std::min<uint64_t>(hardware_threads(), parts); ++i) {
    threads.emplace_back(run);
  }
  run();
  for (std::thread& thread : threads) thread.join();
  if (fault) std::rethrow_exception(fault);
}

}  // namespace bench
