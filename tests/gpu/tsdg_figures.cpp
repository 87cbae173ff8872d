// Figures of TSDG's paper, made again, as lines of CSV.
//
//   tsdg_figures ROWS QUERIES [ROWS_MAX [LISTS]]      ROWS and QUERIES are .u8bin files
//
//   table 2   seconds of each phase of a build on the device, with lists of LISTS (200) rows; edges that stages leave
//   6 to 9    TSDG_SMALL and GGNN's search on that graph, and AUTO, for batches of 1, 10 and 100, k of 10 and 100
//   10, 11    TSDG_LARGE, TSDG_SMALL, GGNN's search and AUTO for 10,000 queries
//   AUTO      on the default's graph too
//
// Calls are timed by a clock around ann_search_batch, host to host; medians. An answer counts as found if it is no
// farther than the k-th true neighbour. Phases of the build are told by its monitor, asked every millisecond. Ends with
// 77 without a device.

#include <ann.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "claims.h"

namespace {

using namespace gannet;
using namespace gannet::test;
using Clock = std::chrono::steady_clock;

constexpr uint32_t kBatch = 10'000;
constexpr uint32_t kMostNeighbors = 100;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void check_call(ann_status status, const ann_error& error) {
  if (status == ANN_OK) return;
  std::fprintf(stderr, "%s\n", error.message);
  std::exit(1);
}

/// Tells how long each phase of a call takes.
class Phases {
 public:
  Phases() {
    ann_error error = ANN_ERROR_INIT;
    check_call(ann_monitor_create(&monitor_, &error), error);
    watcher_ = std::thread([this] { watch(); });
  }
  ~Phases() {
    ended_ = true;
    watcher_.join();
    ann_monitor_free(monitor_);
  }
  Phases(const Phases&) = delete;

  ann_monitor* monitor() const { return monitor_; }

 private:
  void watch() {
    std::string before;
    Clock::time_point start = Clock::now();
    while (!ended_) {
      ann_progress progress = ANN_PROGRESS_INIT;
      ann_monitor_progress(monitor_, &progress, nullptr);
      if (before != progress.phase) {
        if (!before.empty()) std::printf("table 2,%s,%.3f s\n", before.c_str(), seconds_since(start));
        before = progress.phase;
        start = Clock::now();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::printf("table 2,%s,%.3f s\n", before.c_str(), seconds_since(start));
  }

  ann_monitor* monitor_ = nullptr;
  std::atomic<bool> ended_ = false;
  std::thread watcher_;
};

class Set {
 public:
  Set(const char* name, const Rows& rows, const Rows& queries, const ann_build_params& params)
      : name_(name), queries_(queries) {
    ann_error error = ANN_ERROR_INIT;
    ann_index_params shape = ANN_INDEX_PARAMS_INIT;
    shape.dim = rows.dim;
    check_call(ann_index_create(nullptr, &shape, &index_, &error), error);
    const ann_matrix matrix = matrix_of(rows, 0, rows.rows);
    {
      const Phases phases;
      check_call(ann_build(index_, &matrix, nullptr, &params, phases.monitor(), &error), error);
    }
    check_call(ann_index_place(index_, ANN_DEVICE_CUDA, nullptr, &error), error);
    ann_graph_stats stats = ANN_GRAPH_STATS_INIT;
    check_call(ann_index_graph_stats(index_, &stats, &error), error);
    std::printf(
        "%s: %.1f edges of %.1f a row, stage one keeps %.1f %%, %.1f joined, %.1f soft, %llu unreachable\n",
        name, static_cast<double>(stats.edges) / rows.rows, static_cast<double>(stats.knn_edges) / rows.rows,
        100.0 * static_cast<double>(stats.relaxed_edges) / std::max<double>(1, stats.knn_edges),
        static_cast<double>(stats.joined_edges) / rows.rows,
        static_cast<double>(stats.soft_edges) / rows.rows,
        static_cast<unsigned long long>(stats.unreachable));
  }
  ~Set() { ann_index_free(index_); }
  Set(const Set&) = delete;

  /// Distances of true neighbours, [queries, kMostNeighbors].
  std::vector<float> find_truth() const {
    std::vector<uint64_t> ids(size_t{queries_.rows} * kMostNeighbors);
    std::vector<float> distances(ids.size());
    ann_results results = ANN_RESULTS_INIT;
    results.k = kMostNeighbors;
    results.rows = queries_.rows;
    results.ids = ids.data();
    results.distances = distances.data();
    const ann_matrix queries = matrix_of(queries_, 0, queries_.rows);
    ann_search_params exact = ANN_SEARCH_PARAMS_INIT;
    exact.device = ANN_DEVICE_CUDA;
    ann_error error = ANN_ERROR_INIT;
    check_call(ann_search_exact(index_, &queries, &exact, &results, nullptr, &error), error);
    return distances;
  }

  /// One line; the recall.
  double time(const std::vector<float>& truth, const char* what, double knob, ann_search_params params,
              uint32_t batch, uint32_t k) const {
    params.device = ANN_DEVICE_CUDA;
    const uint32_t calls = batch == 1 ? 200 : batch == 10 ? 60 : batch == 100 ? 30 : 5;
    std::vector<uint64_t> ids(size_t{batch} * k);
    std::vector<float> distances(ids.size());
    std::vector<double> times;
    uint64_t hits = 0, compared = 0, expanded = 0, answered = 0;
    for (uint32_t call = 0; call < calls + 2; ++call) {
      const uint32_t first = call * batch % (queries_.rows - batch + 1);
      ann_results results = ANN_RESULTS_INIT;
      results.k = k;
      results.rows = batch;
      results.ids = ids.data();
      results.distances = distances.data();
      const ann_matrix queries = matrix_of(queries_, first, batch);
      ann_error error = ANN_ERROR_INIT;
      const Clock::time_point start = Clock::now();
      check_call(ann_search_batch(index_, &queries, &params, &results, nullptr, &error), error);
      if (call >= 2) times.push_back(seconds_since(start));
      for (uint64_t i = 0; i < ids.size(); ++i)
        hits += distances[i] <= truth[(first + i / k) * kMostNeighbors + k - 1] ? 1 : 0;
      answered += ids.size();
      compared += results.distance_count;
      expanded += results.expansion_count;
    }
    const double queries = static_cast<double>(answered) / k;
    const double recall = static_cast<double>(hits) / static_cast<double>(answered);
    const double seconds = median(times);
    std::printf("%s,%s,%g,%u,%u,%.4f,%.0f,%.1f,%.1f,%.4f\n", name_, what, knob, batch, k, recall,
                static_cast<double>(compared) / queries, static_cast<double>(expanded) / queries,
                seconds * 1e6, batch / seconds / 1e6);
    std::fflush(stdout);
    return recall;
  }

 private:
  const char* name_;
  const Rows& queries_;
  ann_index* index_ = nullptr;
};

constexpr double kEnough = 0.975;

ann_search_params params_of(int32_t procedure) {
  ann_search_params params = ANN_SEARCH_PARAMS_INIT;
  params.procedure = procedure;
  return params;
}

void time_auto(const Set& set, const std::vector<float>& truth, uint32_t batch, uint32_t k) {
  for (const float recall : {0.90f, 0.95f}) {
    ann_search_params params = params_of(ANN_SEARCH_AUTO);
    params.recall = recall;
    set.time(truth, "auto", static_cast<double>(recall), params, batch, k);
  }
}

void time_small(const Set& set, const std::vector<float>& truth, uint32_t batch, uint32_t k) {
  for (const uint32_t walks : {4u, 6u, 8u, 12u, 16u, 24u, 32u, 48u, 64u}) {
    if (walks * 32 < k) continue;
    ann_search_params params = params_of(ANN_SEARCH_TSDG_SMALL);
    params.walks = walks;
    if (set.time(truth, "small", walks, params, batch, k) > kEnough) break;
  }
}

void time_large(const Set& set, const std::vector<float>& truth, uint32_t batch, uint32_t k) {
  for (const float delta : {1.0f, 1.01f, 1.02f, 1.03f, 1.04f, 1.06f, 1.1f, 1.15f}) {
    ann_search_params params = params_of(ANN_SEARCH_TSDG_LARGE);
    params.delta = delta;
    if (set.time(truth, "large", static_cast<double>(delta), params, batch, k) > kEnough) break;
  }
}

void time_ggnn(const Set& set, const std::vector<float>& truth, uint32_t batch, uint32_t k) {
  for (const float stretch : {1.0f, 1.02f, 1.05f, 1.1f, 1.15f, 1.2f, 1.3f, 1.4f}) {
    ann_search_params params = params_of(ANN_SEARCH_GGNN);
    params.stretch = stretch;
    if (set.time(truth, "ggnn", static_cast<double>(stretch), params, batch, k) > kEnough) break;
  }
}

}  // namespace

int main(int count, char** arguments) {
  uint32_t devices = 0;
  const char* reason = "";
  if (ann_device_count(&devices, &reason, nullptr) != ANN_OK || devices < 2) {
    std::printf("skipped: %s\n", reason);
    return 77;
  }
  if (count < 3) {
    std::fprintf(stderr, "usage: tsdg_figures ROWS QUERIES [ROWS_MAX [LISTS]]\n");
    return 2;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 1 << 12);
  const Rows rows =
      read_vectors(arguments[1], count > 3 ? static_cast<uint32_t>(std::atoi(arguments[3])) : ANN_ROWS_MAX);
  const Rows queries = read_vectors(arguments[2], kBatch);
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.device = ANN_DEVICE_CUDA;
  params.graph = ANN_GRAPH_TSDG;
  params.knn_degree = count > 4 ? static_cast<uint32_t>(std::atoi(arguments[4])) : 200;
  std::printf(
      "graph,search,knob,batch,k,recall,distances,expansions,microseconds,million queries per second\n");
  std::vector<float> truth;
  {
    const Set set("tsdg", rows, queries, params);
    truth = set.find_truth();
    for (const uint32_t k : {10u, 100u}) {
      for (const uint32_t batch : {1u, 10u, 100u}) {
        time_small(set, truth, batch, k);
        if (batch == 100) time_large(set, truth, batch, k);
        time_ggnn(set, truth, batch, k);
        time_auto(set, truth, batch, k);
      }
      time_large(set, truth, kBatch, k);
      if (k == 10) time_small(set, truth, kBatch, k);
      time_ggnn(set, truth, kBatch, k);
      time_auto(set, truth, kBatch, k);
    }
    for (const uint32_t batch : {1000u, 300u}) {
      time_small(set, truth, batch, 10);
      time_large(set, truth, batch, 10);
    }
  }
  ann_build_params usual = ANN_BUILD_PARAMS_INIT;
  usual.device = ANN_DEVICE_CUDA;
  const Set set("default", rows, queries, usual);
  for (const uint32_t k : {10u, 100u}) {
    for (const uint32_t batch : {1u, 10u, 100u, kBatch}) time_auto(set, truth, batch, k);
  }
  return 0;
}
