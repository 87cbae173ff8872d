// The workers of the process: threads that wait for work, made when it first comes and gone some seconds after the
// last.
//
// A thread a worker and call, as before, took 20 to 100 us each, as much as a whole batch of some hundred queries.
// A worker that waits costs nothing; one that is woken takes some 5 us.
//
//   job      the work of one parallel_for, on its caller's stack, with numbers for workers to take
//   caller   offers its job, works on it, withdraws it, and waits for the workers that have taken a number
//   worker   takes a number of the first job that has one, works, and looks for the next
//
// Workers are the process's only state that changes. After a fork the child has none of the parent's threads, and
// a lock or a condition of the parent's may be in any state: the child makes workers of its own. Nothing is ever
// torn down at the end of the process, whose threads may still wait then. Workers block all signals, so that the
// program's go to its own threads, and take over the affinity and the floating-point mode of the caller that they
// work for, as threads that it had made itself would.

#include "base/execution.h"

#include <fenv.h>
#include <sched.h>
#include <unistd.h>

#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <new>
#include <thread>
#include <vector>

#include "base/detached_thread.h"

namespace gannet {
namespace {

constexpr uint32_t kThreadsMax = 1024;
constexpr std::chrono::seconds kIdle{5};  // until a worker without work ends

struct Job {
  void (*work)(void* context, uint32_t worker);
  void* context;
  uint32_t next;                 // number of the next worker that comes,
  uint32_t end;                  // and where they end
  uint32_t active;               // workers at it
  cpu_set_t affinity;            // of the caller,
  bool has_affinity;             // if the system tells it,
  fenv_t arithmetic;             // and its floating-point mode
  std::condition_variable left;  // a worker has left the job
};

class Workers {
 public:
  explicit Workers(pid_t process) : process_(process) {}
  pid_t process() const { return process_; }

  void run(uint32_t threads, void (*work)(void*, uint32_t), void* context) {
    Job job{work, context, 1, threads, 0, {}, false, {}, {}};
    fegetenv(&job.arithmetic);
    job.has_affinity = sched_getaffinity(0, sizeof job.affinity, &job.affinity) == 0;
    if (!offer(job)) return work(context, 0);
    work(context, 0);
    std::unique_lock lock(mutex_);
    withdraw(job);
    job.left.wait(lock, [&] { return job.active == 0; });
    wanted_ -= threads - 1;
  }

 private:
  /// Lets workers take the job, and makes those that are missing. False without memory to list it.
  bool offer(Job& job) {
    std::unique_lock lock(mutex_);
    try {
      jobs_.push_back(&job);
    } catch (const std::bad_alloc&) {
      return false;
    }
    const uint32_t wanted = job.end - job.next;
    const uint32_t woken = std::min(wanted, idle_ - std::min(idle_, waking_));
    waking_ += woken;
    // Workers that are about to leave another job find this one without being woken; there are never more than all
    // callers want.
    wanted_ += wanted;
    const uint32_t most = std::min(wanted_, kThreadsMax);
    const uint32_t missing = std::min(wanted - woken, most - std::min(most, count_));
    count_ += missing;
    lock.unlock();
    for (uint32_t i = 0; i < woken; ++i) offered_.notify_one();
    for (uint32_t i = 0; i < missing; ++i) {
      if (make_worker()) continue;
      // No thread to be had: those that are here do the work.
      lock.lock();
      count_ -= missing - i;
      return true;
    }
    return true;
  }

  void withdraw(Job& job) {
    const auto place = std::find(jobs_.begin(), jobs_.end(), &job);
    if (place != jobs_.end()) jobs_.erase(place);
    if (jobs_.empty()) waking_ = 0;  // workers that wake now find no job and wait on
  }

  bool make_worker() {
    return run_detached(
        [](void* workers) -> void* {
          static_cast<Workers*>(workers)->serve();
          return nullptr;
        },
        this);
  }

  void serve() {
    cpu_set_t affinity;
    bool has_affinity = sched_getaffinity(0, sizeof affinity, &affinity) == 0;
    std::unique_lock lock(mutex_);
    for (;;) {
      if (jobs_.empty()) {
        ++idle_;
        const bool is_offered = offered_.wait_for(lock, kIdle, [this] { return !jobs_.empty(); });
        --idle_;
        if (waking_ > 0) --waking_;
        if (!is_offered) break;
      }
      Job& job = *jobs_.front();
      const uint32_t worker = job.next++;
      ++job.active;
      if (job.next == job.end) withdraw(job);
      lock.unlock();
      if (job.has_affinity && !(has_affinity && CPU_EQUAL(&affinity, &job.affinity))) {
        has_affinity = sched_setaffinity(0, sizeof job.affinity, &job.affinity) == 0;
        affinity = job.affinity;
      }
      fesetenv(&job.arithmetic);
      job.work(job.context, worker);
      lock.lock();
      if (--job.active == 0) job.left.notify_one();
    }
    --count_;
  }

  const pid_t process_;
  std::mutex mutex_;
  std::condition_variable offered_;
  std::vector<Job*> jobs_;  // with worker numbers left, the oldest first
  uint32_t wanted_ = 0;     // workers that all running callers want
  uint32_t count_ = 0;      // workers that exist, those being started included
  uint32_t idle_ = 0;       // of these, waiting,
  uint32_t waking_ = 0;     // and of the waiting ones, notified of a job
};

/// The workers of this process; null without memory for them.
Workers* workers_here() {
  static std::atomic<Workers*> known{nullptr};
  const pid_t process = getpid();
  Workers* workers = known.load(std::memory_order_acquire);
  while (workers == nullptr || workers->process() != process) {
    Workers* own = new (std::nothrow) Workers(process);
    if (own == nullptr) return nullptr;
    if (known.compare_exchange_strong(workers, own, std::memory_order_acq_rel)) return own;
    delete own;  // another thread was faster
  }
  return workers;
}

// --- How many threads a process may use ------------------------------------------------------------

/// The first number of a file, or two; how many were read.
int read_numbers(const char* path, long long* first, long long* second) {
  std::FILE* file = std::fopen(path, "re");
  if (file == nullptr) return 0;
  const int count = std::fscanf(file, "%lld %lld", first, second);
  std::fclose(file);
  return std::max(count, 0);
}

double processors_of(long long quota, long long period) {
  return quota > 0 && period > 0 ? static_cast<double>(quota) / static_cast<double>(period) : HUGE_VAL;
}

/// Processors' worth of time that a control group and those around it leave, by either version of the interface;
/// `path` is the group's, below the root.
double quota_of(const char* path, bool unified) {
  double least = HUGE_VAL;
  char group[512];
  std::snprintf(group, sizeof group, "%s", path);
  for (;;) {
    char name[640];
    long long quota = 0;
    long long period = 0;
    if (unified) {
      // "max 100000" where there is no quota, which reads no number.
      std::snprintf(name, sizeof name, "/sys/fs/cgroup%s/cpu.max", group);
      if (read_numbers(name, &quota, &period) == 2) least = std::min(least, processors_of(quota, period));
    } else {
      long long unused = 0;
      std::snprintf(name, sizeof name, "/sys/fs/cgroup/cpu%s/cpu.cfs_quota_us", group);
      const bool has_quota = read_numbers(name, &quota, &unused) >= 1;
      std::snprintf(name, sizeof name, "/sys/fs/cgroup/cpu%s/cpu.cfs_period_us", group);
      if (has_quota && read_numbers(name, &period, &unused) >= 1)
        least = std::min(least, processors_of(quota, period));
    }
    char* last = std::strrchr(group, '/');
    if (last == nullptr) return least;
    *last = '\0';
  }
}

/// Processors' worth of time that the process's control group leaves it.
double read_quota() {
  double least = HUGE_VAL;
  std::FILE* file = std::fopen("/proc/self/cgroup", "re");
  if (file == nullptr) return least;
  char line[640];
  while (std::fgets(line, sizeof line, file) != nullptr) {
    // "0::/path", or "4:cpu,cpuacct:/path" of the older interface.
    line[std::strcspn(line, "\n")] = '\0';
    char* controllers = std::strchr(line, ':');
    char* path = controllers != nullptr ? std::strchr(controllers + 1, ':') : nullptr;
    if (path == nullptr) continue;
    *path++ = '\0';
    ++controllers;
    const bool unified = *controllers == '\0';
    char listed[128];
    std::snprintf(listed, sizeof listed, ",%s,", controllers);
    if (unified || std::strstr(listed, ",cpu,") != nullptr)
      least = std::min(least, quota_of(std::strcmp(path, "/") == 0 ? "" : path, unified));
  }
  std::fclose(file);
  return least;
}

uint32_t usable_processors() {
  // Read once: a quota that changes later is felt, not seen.
  static const double quota = read_quota();
  cpu_set_t affinity;
  const bool is_known = sched_getaffinity(0, sizeof affinity, &affinity) == 0;
  const int counted = is_known ? CPU_COUNT(&affinity) : static_cast<int>(std::thread::hardware_concurrency());
  uint32_t processors = static_cast<uint32_t>(std::max(1, counted));
  if (quota < processors) processors = static_cast<uint32_t>(std::max(1.0, std::ceil(quota)));
  return processors;
}

}  // namespace

uint32_t thread_count(uint32_t wanted, uint32_t cap) {
  uint32_t threads = wanted != 0 ? wanted : usable_processors();
  if (cap != 0) threads = std::min(threads, cap);
  return std::min(threads, kThreadsMax);
}

void run_on_workers(uint32_t threads, void (*work)(void* context, uint32_t worker), void* context) {
  Workers* workers = threads > 1 ? workers_here() : nullptr;
  if (workers == nullptr) return work(context, 0);
  workers->run(threads, work, context);
}

}  // namespace gannet
