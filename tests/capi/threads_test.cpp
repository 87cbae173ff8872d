// Proves the rule of threads, best under ThreadSanitizer: twenty threads search one index while
// another is built and cancelled again and again; answers equal the serial ones; parameters belong
// to their call; a second build of an index answers ANN_BUSY; searching while building answers
// ANN_STATE; freeing waits for searches that run; a search that calibrates holds up none that wants something else,
// and those that want the same are heard while they wait.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "ann.h"
#include "check.h"
#include "support.h"

namespace {

// check.h counts without locks, so threads count here and the main thread checks.
std::atomic<int> wrong{0};

struct Answers {
  answers set;
  Answers(uint64_t rows, uint32_t k) : set(answers_make(rows, k)) {}
  ~Answers() { answers_free(&set); }
  Answers(const Answers &) = delete;
  Answers &operator=(const Answers &) = delete;
};

constexpr uint64_t kRows = 1500, kQueries = 40;
constexpr uint32_t kDim = 16, kNeighbors = 10;

void search_while_another_builds() {
  vectors rows = vectors_make(DATA_NORMAL, ANN_F32, kRows, kDim, 1);
  vectors queries = vectors_make(DATA_NORMAL, ANN_F32, kQueries, kDim, 2);
  ann_index *index = index_build(ANN_METRIC_L2, &rows, nullptr);
  // Two beams: what one thread asks for must not leak into another's search.
  const uint32_t beams[] = {12, 200};
  Answers narrow(kQueries, kNeighbors), wide(kQueries, kNeighbors), exact(kQueries, kNeighbors);
  CHECK_OK(index_search(index, &queries, ANN_SEARCH_BEST_FIRST, beams[0], &narrow.set));
  CHECK_OK(index_search(index, &queries, ANN_SEARCH_BEST_FIRST, beams[1], &wide.set));
  CHECK_OK(index_search(index, &queries, ANN_SEARCH_EXACT, 0, &exact.set));
  CHECK(!answers_equal(&narrow.set, &wide.set));

  const int rounds = 60 / test_scale() + 5;
  std::atomic<int> running{20};
  std::vector<std::thread> searchers;
  for (int number = 0; number < 20; ++number)
    searchers.emplace_back([&, number] {
      Answers found(kQueries, kNeighbors);
      const ann_matrix view = vectors_view(&queries);
      for (int round = 0; round < rounds; ++round) {
        const int kind = (number + round) % 5;
        ann_search_params params = ANN_SEARCH_PARAMS_INIT;
        params.threads = 1 + static_cast<uint32_t>(round % 2);
        params.procedure = kind == 4 ? ANN_SEARCH_EXACT : ANN_SEARCH_BEST_FIRST;
        params.beam = kind == 4 ? 0 : beams[kind % 2];
        ann_results results = answers_view(&found.set);
        const ann_status status = kind == 4
                                      ? ann_search_exact(index, &view, &params, &results, nullptr, nullptr)
                                      : ann_search_batch(index, &view, &params, &results, nullptr, nullptr);
        const answers &wanted = kind == 4 ? exact.set : kind % 2 ? wide.set : narrow.set;
        if (status != ANN_OK || !answers_equal(&found.set, &wanted)) wrong++;
        ann_index_info info = ANN_INDEX_INFO_INIT;
        uint32_t beam = 0;
        if (ann_index_get_info(index, &info, nullptr) != ANN_OK || info.rows != kRows) wrong++;
        if (ann_index_beam(index, kNeighbors, 0.9f, &beam, nullptr) != ANN_OK) wrong++;
      }
      running--;
    });

  ann_monitor *monitor = nullptr;
  CHECK_OK(ann_monitor_create(&monitor, nullptr));
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.threads = 2;
  params.knn = ANN_KNN_NN_DESCENT;
  const ann_matrix view = vectors_view(&rows);
  int cancelled = 0;
  // A busy machine may hold up every canceller for as long as its build takes: then more rounds follow.
  for (uint64_t round = 0; running > 0 || (cancelled == 0 && round < 1000); ++round) {
    ann_index *other = index_make(kDim, ANN_METRIC_L2, ANN_ELEMENT_AUTO);
    ann_monitor_reset(monitor);
    std::thread canceller([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(1 + round % 30));
      ann_progress progress = ANN_PROGRESS_INIT;
      if (ann_monitor_progress(monitor, &progress, nullptr) != ANN_OK) wrong++;
      ann_monitor_cancel(monitor);
    });
    const ann_status status = ann_build(other, &view, nullptr, &params, monitor, nullptr);
    canceller.join();
    CHECK(status == ANN_OK || status == ANN_CANCELLED);
    cancelled += status == ANN_CANCELLED;
    ann_index_free(other);
  }
  for (std::thread &searcher : searchers) searcher.join();
  CHECK_EQUAL(wrong.load(), 0);
  CHECK_SAY(cancelled > 0, "no build was cancelled");
  ann_monitor_free(monitor);
  ann_index_free(index);
  vectors_free(&rows);
  vectors_free(&queries);
}

// More callers than cores, each with one query.
void many_callers() {
  vectors rows = vectors_make(DATA_NORMAL, ANN_I8, 500, kDim, 3);
  ann_index *index = index_build(ANN_METRIC_COSINE, &rows, nullptr);
  Answers serial(64, 5);
  vectors queries = rows;
  queries.rows = 64;
  CHECK_OK(index_search(index, &queries, ANN_SEARCH_AUTO, 0, &serial.set));
  std::vector<std::thread> callers;
  for (uint64_t number = 0; number < 64; ++number)
    callers.emplace_back([&, number] {
      for (int round = 0; round < 20; ++round) {
        Answers found(1, 5);
        vectors one = {ANN_I8, kDim, 1, static_cast<unsigned char *>(vectors_row(&rows, number))};
        if (index_search(index, &one, ANN_SEARCH_AUTO, 0, &found.set) != ANN_OK ||
            std::memcmp(found.set.ids, serial.set.ids + number * 5, 5 * sizeof(uint64_t)) != 0)
          wrong++;
      }
    });
  for (std::thread &caller : callers) caller.join();
  CHECK_EQUAL(wrong.load(), 0);
  ann_index_free(index);
  vectors_free(&rows);
}

// Waits until a call reports to the monitor.
bool wait_until_running(const ann_monitor *monitor, const std::atomic<bool> &done) {
  for (int tries = 0; tries < 20000 && !done; ++tries) {
    ann_progress progress = ANN_PROGRESS_INIT;
    if (ann_monitor_progress(monitor, &progress, nullptr) == ANN_OK && progress.step > 0 && !done)
      return true;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return false;
}

// A second build of the same index is refused, a search too, and the first goes on unharmed.
void two_builds() {
  const uint64_t count = 12000 / static_cast<uint64_t>(test_scale());
  vectors rows = vectors_make(DATA_NORMAL, ANN_F32, count, kDim, 4);
  const ann_matrix view = vectors_view(&rows);
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.knn = ANN_KNN_NN_DESCENT;
  params.threads = 1;
  int busy = 0;
  for (int round = 0; round < 3 || (busy == 0 && round < 100); ++round) {
    ann_index *index = index_make(kDim, ANN_METRIC_L2, ANN_ELEMENT_AUTO);
    ann_monitor *monitor = nullptr;
    CHECK_OK(ann_monitor_create(&monitor, nullptr));
    std::atomic<bool> done{false};
    ann_status first = ANN_INTERNAL;
    std::thread builder([&] {
      first = ann_build(index, &view, nullptr, &params, monitor, nullptr);
      done = true;
    });
    if (wait_until_running(monitor, done)) {
      vectors few = rows;
      few.rows = 3;
      const ann_matrix few_view = vectors_view(&few);
      Answers found(3, 2);
      const ann_status second = ann_build(index, &few_view, nullptr, nullptr, nullptr, nullptr);
      const ann_status searched = index_search(index, &few, ANN_SEARCH_AUTO, 0, &found.set);
      ann_index_info info = ANN_INDEX_INFO_INIT;
      CHECK_OK(ann_index_get_info(index, &info, nullptr));
      // Not built yet: so the first build was running all the while.
      if (info.built == 0) {
        CHECK_STATUS(second, ANN_BUSY);
        CHECK_STATUS(searched, ANN_STATE);
        busy++;
      }
    }
    if (round == 1) ann_monitor_cancel(monitor);
    builder.join();
    CHECK(first == ANN_OK || (round == 1 && first == ANN_CANCELLED));
    if (first == ANN_OK) {
      CHECK_STATUS(ann_build(index, &view, nullptr, nullptr, nullptr, nullptr), ANN_STATE);
      ann_index_info info = ANN_INDEX_INFO_INIT;
      CHECK_OK(ann_index_get_info(index, &info, nullptr));
      CHECK_EQUAL(info.rows, count);
    } else {
      vectors few = rows;
      few.rows = 100;
      const ann_matrix few_view = vectors_view(&few);
      CHECK_OK(ann_build(index, &few_view, nullptr, nullptr, nullptr, nullptr));
    }
    ann_index_free(index);
    ann_monitor_free(monitor);
  }
  CHECK_SAY(busy > 0, "no build ran long enough to meet another");
  vectors_free(&rows);
}

// Two builds that report to one monitor are both ended by its wish, and unharmed without one.
void one_monitor_for_two() {
  vectors rows = vectors_make(DATA_NORMAL, ANN_F32, 12000 / static_cast<uint64_t>(test_scale()), kDim, 6);
  const ann_matrix view = vectors_view(&rows);
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.knn = ANN_KNN_NN_DESCENT;
  params.threads = 1;
  ann_monitor *monitor = nullptr;
  CHECK_OK(ann_monitor_create(&monitor, nullptr));
  uint64_t hashes[2] = {};
  int ended = 0;
  // Round 0 has no wish; in the others a build may be done before it comes.
  for (int round = 0; round < 4 || (ended == 0 && round < 100); ++round) {
    ann_monitor_reset(monitor);
    std::atomic<bool> done{false};
    ann_status statuses[2] = {ANN_INTERNAL, ANN_INTERNAL};
    std::vector<std::thread> builders;
    for (int i = 0; i < 2; ++i)
      builders.emplace_back([&, i] {
        ann_index *index = index_make(kDim, ANN_METRIC_L2, ANN_ELEMENT_AUTO);
        statuses[i] = ann_build(index, &view, nullptr, &params, monitor, nullptr);
        if (round == 0 && statuses[i] == ANN_OK) hashes[i] = index_hash(index);
        ann_index_free(index);
        done = true;
      });
    if (round > 0 && wait_until_running(monitor, done)) ann_monitor_cancel(monitor);
    for (std::thread &builder : builders) builder.join();
    for (const ann_status status : statuses)
      CHECK(status == ANN_OK || (round > 0 && status == ANN_CANCELLED));
    ended += statuses[0] == ANN_CANCELLED && statuses[1] == ANN_CANCELLED;
  }
  CHECK(hashes[0] != 0 && hashes[0] == hashes[1]);
  CHECK_SAY(ended > 0, "no wish ended both builds");
  ann_monitor_free(monitor);
  vectors_free(&rows);
}

// The search that runs when its index is freed ends with right answers.
void free_waits() {
  vectors rows = vectors_make(DATA_NORMAL, ANN_F32, 2000, kDim, 5);
  Answers wanted(2000, kNeighbors);
  int waited = 0;
  for (int round = 0; round < 10 || (waited == 0 && round < 200); ++round) {
    ann_index *index = index_build(ANN_METRIC_L2, &rows, nullptr);
    if (round == 0) CHECK_OK(index_search(index, &rows, ANN_SEARCH_EXACT, 0, &wanted.set));
    ann_monitor *monitor = nullptr;
    CHECK_OK(ann_monitor_create(&monitor, nullptr));
    std::atomic<bool> done{false};
    ann_status status = ANN_INTERNAL;
    Answers found(2000, kNeighbors);
    std::thread searcher([&] {
      const ann_matrix view = vectors_view(&rows);
      ann_results results = answers_view(&found.set);
      ann_search_params params = ANN_SEARCH_PARAMS_INIT;
      params.threads = 1 + static_cast<uint32_t>(round % 2);
      status = ann_search_exact(index, &view, &params, &results, monitor, nullptr);
      done = true;
    });
    const bool running = wait_until_running(monitor, done);
    waited += running && !done;
    if (!running) searcher.join();
    ann_index_free(index);
    if (running) searcher.join();
    CHECK_OK(status);
    CHECK(answers_equal(&found.set, &wanted.set));
    ann_monitor_free(monitor);
  }
  CHECK_SAY(waited > 0, "no search was running when its index was freed");
  vectors_free(&rows);
}

/// Memory of a context, whose hook stops one thread when its search calibrates, until it is let go.
struct Stall {
  const ann_monitor *monitor = nullptr;
  std::atomic<std::thread::id> who{};
  std::atomic<bool> reached{false}, over{false};

  static void *allocate(void *user, size_t bytes, size_t alignment) {
    Stall &stall = *static_cast<Stall *>(user);
    ann_progress progress = ANN_PROGRESS_INIT;
    if (stall.who == std::this_thread::get_id() && !stall.over &&
        ann_monitor_progress(stall.monitor, &progress, nullptr) == ANN_OK &&
        std::strcmp(progress.phase, "calibrate") == 0) {
      stall.reached = true;
      while (!stall.over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    void *memory = nullptr;
    return posix_memalign(&memory, alignment < sizeof(void *) ? sizeof(void *) : alignment, bytes) == 0
               ? memory
               : nullptr;
  }
  static void release(void *, void *memory, size_t, size_t) { std::free(memory); }
};

void searches_while_one_calibrates() {
  Stall stall;
  ann_context_params hooks = ANN_CONTEXT_PARAMS_INIT;
  hooks.allocate = Stall::allocate;
  hooks.release = Stall::release;
  hooks.user = &stall;
  ann_context *context = nullptr;
  CHECK_OK(ann_context_create(&hooks, &context, nullptr));
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  shape.dim = kDim;
  ann_index *index = nullptr;
  CHECK_OK(ann_index_create(context, &shape, &index, nullptr));
  vectors rows = vectors_make(DATA_NORMAL, ANN_F32, kRows, kDim, 1);
  vectors queries = vectors_make(DATA_NORMAL, ANN_F32, kQueries, kDim, 2);
  const ann_matrix stored = vectors_view(&rows), view = vectors_view(&queries);
  ann_build_params build = ANN_BUILD_PARAMS_INIT;
  build.device = ANN_DEVICE_CPU;  // the copy on a device is another tuning, which is measured as it is placed
  CHECK_OK(ann_build(index, &stored, nullptr, &build, nullptr, nullptr));
  Answers first(kQueries, kNeighbors), other(kQueries, kNeighbors), same(kQueries, kNeighbors);
  const auto search = [&](int32_t procedure, ann_monitor *monitor, Answers &found) {
    ann_search_params params = ANN_SEARCH_PARAMS_INIT;
    params.procedure = procedure;
    params.device = ANN_DEVICE_CPU;
    params.recall = 0.9f;
    ann_results results = answers_view(&found.set);
    return ann_search_batch(index, &view, &params, &results, monitor, nullptr);
  };
  ann_monitor *calibrating = nullptr, *late = nullptr;
  CHECK_OK(ann_monitor_create(&calibrating, nullptr));
  CHECK_OK(ann_monitor_create(&late, nullptr));
  stall.monitor = calibrating;
  std::thread one([&] {
    stall.who = std::this_thread::get_id();
    if (search(ANN_SEARCH_CAGRA_SINGLE_CTA, calibrating, first) != ANN_OK) ++wrong;
  });
  while (!stall.reached) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK_OK(search(ANN_SEARCH_CAGRA_MULTI_CTA, nullptr, other));
  ann_monitor_set_deadline(late, 20'000'000);
  CHECK_STATUS(search(ANN_SEARCH_CAGRA_SINGLE_CTA, late, same), ANN_DEADLINE);
  stall.over = true;
  one.join();
  CHECK_OK(search(ANN_SEARCH_CAGRA_SINGLE_CTA, nullptr, same));
  CHECK(answers_equal(&first.set, &same.set));
  ann_monitor_free(calibrating);
  ann_monitor_free(late);
  ann_index_free(index);
  ann_context_free(context);
  vectors_free(&rows);
  vectors_free(&queries);
}

}  // namespace

int main() {
  search_while_another_builds();
  many_callers();
  two_builds();
  one_monitor_for_two();
  free_waits();
  searches_while_one_calibrates();
  return finish("threads");
}
