// Base: memory through the hook, loops over threads, random numbers, monitors.

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <mutex>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "base/execution.h"
#include "base/parallel_sort.h"
#include "base/random.h"
#include "catch.h"

using namespace gannet;

namespace {

/// An allocator that counts what is out, and fails on demand.
struct Counting {
  int64_t out = 0;
  int64_t calls = 0;
  bool fails = false;

  Allocator allocator() {
    return {[](void* user, size_t bytes, size_t alignment) -> void* {
              Counting& self = *static_cast<Counting*>(user);
              if (self.fails) return nullptr;
              ++self.calls;
              self.out += static_cast<int64_t>(bytes);
              return std::aligned_alloc(alignment, bytes);
            },
            [](void* user, void* memory, size_t bytes, size_t) {
              static_cast<Counting*>(user)->out -= static_cast<int64_t>(bytes);
              std::free(memory);
            },
            this};
  }
};

}  // namespace

TEST_CASE("an array takes from the hook and gives back what it took") {
  Counting counting;
  {
    Array<uint32_t> array = Array<uint32_t>::zeroed(counting.allocator(), 100);
    REQUIRE(counting.out == 448);
    REQUIRE(reinterpret_cast<uintptr_t>(array.data()) % kAlignment == 0);
    REQUIRE(std::accumulate(array.begin(), array.end(), 0u) == 0);
    Array<uint32_t> moved = std::move(array);
    REQUIRE(moved.size() == 100);
    REQUIRE(array.size() == 0);
    const Array<uint32_t> empty(counting.allocator(), 0);
    REQUIRE(counting.calls == 1);
  }
  REQUIRE(counting.out == 0);
}

TEST_CASE("a refused allocation and an impossible size are errors") {
  Counting counting;
  counting.fails = true;
  try {
    Array<uint64_t> array(counting.allocator(), 8);
    FAIL("no error");
  } catch (const Error& error) {
    REQUIRE(error.status == ANN_NO_MEMORY);
  }
  REQUIRE_THROWS_AS(Array<uint64_t>({}, SIZE_MAX / 4), Error);
}

TEST_CASE("parallel_for visits each item once, for any threads and grain") {
  for (const uint32_t threads : {1u, 2u, 7u}) {
    for (const uint64_t grain : {uint64_t{1}, uint64_t{3}, uint64_t{1000}}) {
      std::vector<std::atomic<int>> visits(257);
      parallel_for({{}, threads, nullptr}, visits.size(), grain,
                   [&](uint64_t begin, uint64_t end, uint32_t worker) {
                     REQUIRE(worker < threads);
                     for (uint64_t i = begin; i < end; ++i) ++visits[i];
                   });
      for (const auto& count : visits) REQUIRE(count == 1);
    }
  }
}

TEST_CASE("an exception in any thread ends the loop and comes out") {
  for (const uint32_t threads : {1u, 4u}) {
    REQUIRE_THROWS_AS(parallel_for({{}, threads, nullptr}, 1000, 1,
                                   [](uint64_t begin, uint64_t, uint32_t) {
                                     if (begin == 500) fail(ANN_LIMIT, "five hundred");
                                   }),
                      Error);
  }
}

TEST_CASE("a cancelled or late monitor stops a loop, and reset takes that back") {
  Monitor monitor;
  const Execution execution{{}, 2, &monitor};
  const auto loop = [&] { parallel_for(execution, 10, 1, [](uint64_t, uint64_t, uint32_t) {}); };
  loop();
  monitor.cancel();
  REQUIRE_THROWS_AS(loop(), Error);
  monitor.reset();
  loop();
  monitor.set_deadline(1);
  REQUIRE_THROWS_AS(loop(), Error);
  monitor.set_deadline(0);
  loop();
}

TEST_CASE("progress never falls and spans nest") {
  Monitor monitor;
  const Execution execution{{}, 1, &monitor};
  const Execution second_half = execution.span(0.5, 1);
  second_half.enter("half");
  REQUIRE(monitor.fraction() == 0.5);
  second_half.span(0, 0.5).advance(1);
  REQUIRE(monitor.fraction() == 0.75);
  execution.advance(0.1);
  REQUIRE(monitor.fraction() == 0.75);
  REQUIRE(std::string(monitor.phase()) == "half");
}

TEST_CASE("random numbers depend on all three arguments and stay below their bound") {
  std::set<uint64_t> words;
  for (uint64_t i = 0; i < 64; ++i) {
    words.insert(random_word(i, 0, 0));
    words.insert(random_word(0, i + 1, 0));
    words.insert(random_word(0, 0, i + 1));
    REQUIRE(random_below(7, 1, 2, i) < 7);
  }
  REQUIRE(words.size() == 192);
}

TEST_CASE("strata are distinct, ascending and below the bound") {
  for (const uint64_t bound : {1u, 5u, 64u, 1000u}) {
    for (uint64_t count = 1; count <= std::min<uint64_t>(bound, 70); ++count) {
      std::vector<uint32_t> drawn(count);
      random_strata(bound, count, 3, 4, drawn.data());
      for (uint64_t i = 1; i < count; ++i) REQUIRE(drawn[i - 1] < drawn[i]);
      REQUIRE(drawn.back() < bound);
    }
  }
}

TEST_CASE("a sort by many threads is a sort") {
  // Around the length of a run, and runs that have no other to be merged with.
  for (const uint64_t count : {0u, 1u, 2u, 16383u, 16384u, 16385u, 32768u, 50000u, 81921u, 200000u})
    for (const uint32_t threads : {1u, 3u})
      for (const int kind : {0, 1, 2}) {
        Array<uint64_t> items(Allocator(), count);
        for (uint64_t i = 0; i < count; ++i)
          items[i] = kind == 0 ? (i + 1) * 0x9e3779b97f4a7c15u : kind == 1 ? i : count - i;
        std::vector<uint64_t> wanted(items.begin(), items.end());
        std::sort(wanted.begin(), wanted.end());
        parallel_sort(items, std::less<uint64_t>(), Execution{Allocator(), threads, nullptr});
        REQUIRE(std::equal(wanted.begin(), wanted.end(), items.begin(), items.end()));
      }
  Monitor monitor;
  monitor.cancel();
  Array<uint64_t> items(Allocator(), 100000);
  items.fill(1);
  REQUIRE_THROWS_AS(parallel_sort(items, std::less<uint64_t>(), Execution{Allocator(), 2, &monitor}), Error);
}

TEST_CASE("workers serve every caller, nested and at once, and a job is done whoever comes") {
  Execution four;
  four.threads = 4;
  std::atomic<uint64_t> sum = 0;
  parallel_for(four, 1000, 7, [&](uint64_t begin, uint64_t end, uint32_t worker) {
    REQUIRE(worker < 4);
    for (uint64_t i = begin; i < end; ++i) sum += i;
  });
  REQUIRE(sum == 999 * 1000 / 2);

  std::atomic<uint64_t> inner = 0;
  parallel_for(four, 6, 1, [&](uint64_t, uint64_t, uint32_t) {
    parallel_for(four, 50, 3, [&](uint64_t begin, uint64_t end, uint32_t) { inner += end - begin; });
  });
  REQUIRE(inner == 300);

  std::atomic<uint64_t> all = 0;
  std::vector<std::thread> callers;
  for (uint32_t caller = 0; caller < 12; ++caller)
    callers.emplace_back([&] {
      for (uint32_t turn = 0; turn < 200; ++turn)
        parallel_for(four, 20, 1, [&](uint64_t, uint64_t, uint32_t) { ++all; });
    });
  for (std::thread& caller : callers) caller.join();
  REQUIRE(all == 12 * 200 * 20);

  REQUIRE_THROWS_AS(parallel_for(four, 100, 1,
                                 [](uint64_t begin, uint64_t, uint32_t) {
                                   if (begin == 60) fail(ANN_IO, "sixty");
                                 }),
                    Error);
}

TEST_CASE("workers are kept: many calls make no more threads than one") {
  Execution three;
  three.threads = 3;
  std::mutex mutex;
  std::set<std::thread::id> seen;
  for (uint32_t turn = 0; turn < 300; ++turn)
    parallel_for(three, 60, 1, [&](uint64_t, uint64_t, uint32_t) {
      const std::lock_guard lock(mutex);
      seen.insert(std::this_thread::get_id());
    });
  // Those of the test before may come, too.
  REQUIRE(seen.size() <= 64);
}

TEST_CASE("a child of fork has workers of its own") {
  Execution four;
  four.threads = 4;
  const auto count = [&] {
    std::atomic<uint64_t> items = 0;
    for (uint32_t turn = 0; turn < 20; ++turn)
      parallel_for(four, 500, 1, [&](uint64_t begin, uint64_t end, uint32_t) { items += end - begin; });
    return items.load();
  };
  REQUIRE(count() == 10'000);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    _exit(count() == 10'000 ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  REQUIRE(WEXITSTATUS(status) == 0);
  REQUIRE(count() == 10'000);
}

TEST_CASE("as many threads are planned as the caller's affinity allows, and workers keep to it") {
  cpu_set_t before;
  REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int processor = 0; CPU_COUNT(&one) == 0; ++processor)
    if (CPU_ISSET(processor, &before)) CPU_SET(processor, &one);
  REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  const uint32_t threads = thread_count(0, 0);
  Execution four;
  four.threads = 4;
  std::atomic<uint32_t> elsewhere = 0;
  parallel_for(four, 400, 1, [&](uint64_t, uint64_t, uint32_t) {
    cpu_set_t here;
    sched_getaffinity(0, sizeof here, &here);
    if (!CPU_EQUAL(&here, &one)) ++elsewhere;
  });
  REQUIRE(sched_setaffinity(0, sizeof before, &before) == 0);
  REQUIRE(threads == 1);
  REQUIRE(elsewhere == 0);
  REQUIRE(thread_count(0, 0) <= static_cast<uint32_t>(CPU_COUNT(&before)));
  REQUIRE(thread_count(5, 0) == 5);
  REQUIRE(thread_count(5, 2) == 2);
}

TEST_CASE(
    "two tasks run side by side, one after the other by one thread, and the error of either comes back") {
  for (const uint32_t threads : {1u, 2u, 4u}) {
    const Execution execution{{}, threads, nullptr};
    int first = 0;
    int second = 0;
    run_both(execution, [&] { ++first; }, [&] { ++second; });
    CHECK(first == 1);
    CHECK(second == 1);
    CHECK_THROWS_AS(run_both(execution, [] { fail(ANN_LIMIT, "the first"); }, [&] { ++second; }), Error);
    CHECK_THROWS_AS(run_both(execution, [&] { ++first; }, [] { fail(ANN_LIMIT, "the second"); }), Error);
  }
}
