#include "timing.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <exception>
#include <fstream>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>

namespace bench {

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double process_cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double percentile(const std::vector<double>& sorted, double share) {
  if (sorted.empty()) return 0;
  const double rank = std::ceil(share * static_cast<double>(sorted.size()));
  const size_t place = rank < 1 ? 0 : static_cast<size_t>(rank) - 1;
  return sorted[std::min(place, sorted.size() - 1)];
}

Timing time_calls(const TimingParams& params, const std::function<void(uint64_t, uint32_t)>& call) {
  std::atomic<uint64_t> next{0};
  std::atomic<bool> stop{false};
  std::exception_ptr fault;
  std::mutex mutex;
  std::vector<double> latencies;
  const double start = now_seconds();
  const double cpu_start = process_cpu_seconds();
  const auto run = [&](uint32_t caller) {
    std::vector<double> own;
    try {
      while (!stop) {
        const uint64_t number = next++;
        const double call_start = now_seconds();
        if (number >= params.calls_min && call_start - start >= params.seconds_min) break;
        call(number, caller);
        own.push_back(now_seconds() - call_start);
      }
    } catch (...) {
      stop = true;
      const std::lock_guard lock(mutex);
      if (!fault) fault = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    latencies.insert(latencies.end(), own.begin(), own.end());
  };
  std::vector<std::thread> threads;
  for (uint32_t i = 1; i < params.callers; ++i) threads.emplace_back(run, i);
  run(0);
  for (std::thread& thread : threads) thread.join();

  Timing out;
  out.wall = now_seconds() - start;
  out.cpu = process_cpu_seconds() - cpu_start;
  if (fault) std::rethrow_exception(fault);
  std::sort(latencies.begin(), latencies.end());
  out.calls = latencies.size();
  out.latency_mean = std::accumulate(latencies.begin(), latencies.end(), 0.0) /
                     std::max(1.0, static_cast<double>(latencies.size()));
  out.latency_p50 = percentile(latencies, 0.50);
  out.latency_p95 = percentile(latencies, 0.95);
  out.latency_p99 = percentile(latencies, 0.99);
  return out;
}

void reset_peak_memory() { std::ofstream("/proc/self/clear_refs") << "5"; }

uint64_t peak_memory_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoull(line.substr(6)) * 1024;
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace bench
