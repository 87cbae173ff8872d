// timing.h: what calls cost: latency, throughput, processor time and memory.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace bench {

double now_seconds();          // of a clock that never goes back
double process_cpu_seconds();  // user and system time of all threads

// The smallest value that at least `share` of the sorted values do not exceed (nearest rank). 0 if
// there are none.
double percentile(const std::vector<double>& sorted, double share);

struct Timing {
  uint64_t calls = 0;
  double wall = 0;          // seconds from the first start to the last end
  double cpu = 0;           // processor seconds meanwhile
  double latency_mean = 0;  // seconds a call
  double latency_p50 = 0;
  double latency_p95 = 0;
  double latency_p99 = 0;
};

struct TimingParams {
  uint32_t callers = 1;      // threads that call at the same time
  uint64_t calls_min = 1;    // of all callers together
  double seconds_min = 1.0;  // calls go on until both are reached
};

// Calls call(0, caller), call(1, caller), ... and measures; `caller` is the number of the thread that
// makes the call. Throws what a call throws, once all callers have stopped.
Timing time_calls(const TimingParams& params,
                  const std::function<void(uint64_t number, uint32_t caller)>& call);

// The most memory that the process held since the last reset. Where the system does not let it be
// reset, since its start.
void reset_peak_memory();
uint64_t peak_memory_bytes();

}  // namespace bench
