// Figures of GGNN's paper, made again.
//
//   ggnn_figures ROWS QUERIES [bytes] [K:TAU_B:R:MIDPOINT...]     .u8bin files, as floats unless "bytes" is said
//
// Of the graphs of 24 and 40 edges: seconds of the build, the better of two, and of its phases (figure 6), the
// device memory that was planned and held, the true neighbours of the first 10,000 rows among the first one and
// ten of their edges, and of lists by ann_knn_graph (table 5), table 1, and answers a second for 10,000 queries over
// tau and over the length of the best list, without a slack (figure 3), over tau with fewer iterations, by the layered
// descent, over tau of squares, and by recalls that are asked for, and for smaller batches. Of graphs that are named
// (TAU_B, R and MIDPOINT 0 for the default, R of -1 for none, MIDPOINT 2 without its constraint) one build, table 5 and
// answers over tau: figures 8, 13 and 14. Calls are timed by a clock around them, host to host; the best of four. An
// answer counts as found if it is no farther than the k-th true neighbour. Phases are told by the build's monitor,
// asked every half millisecond. Ends with 77 without a device.

#include <ann.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <map>
#include <string>
#include <thread>

#include "graph/ggnn.h"
#include "traverse/row_key.h"
#include "ggnn_answers.h"
#include "twins.h"

namespace {

using namespace gannet;
using namespace gannet::test;
using Clock = std::chrono::steady_clock;

constexpr uint32_t kMostLists = 10'000;

/// A graph to build.
struct Asked {
  uint32_t k = 24;
  float tau = 0;            // 0: the default
  int32_t refinements = 0;  // likewise
  int32_t midpoint = 0;     // likewise
};

uint64_t device_bytes_in_use() {
  ann_device_info info = ANN_DEVICE_INFO_INIT;
  ann_error error = ANN_ERROR_INIT;
  expect_ok(ann_device_get_info(ANN_DEVICE_CUDA, &info, &error), error, "device");
  return info.memory_total - info.memory_free;
}

/// Sums the times of a call's phases by their names, and sees the most memory of the device that it holds.
class Phases {
 public:
  Phases() {
    ann_error error = ANN_ERROR_INIT;
    expect_ok(ann_monitor_create(&monitor_, &error), error, "monitor");
    watcher_ = std::thread([this] { watch(); });
  }
  ~Phases() {
    end();
    ann_monitor_free(monitor_);
  }
  Phases(const Phases&) = delete;

  ann_monitor* monitor() const { return monitor_; }
  uint64_t held() const { return held_; }

  std::map<std::string, double> end() {
    ended_ = true;
    if (watcher_.joinable()) watcher_.join();
    return seconds_;
  }

 private:
  void watch() {
    Clock::time_point before = Clock::now();
    while (!ended_) {
      std::this_thread::sleep_for(std::chrono::microseconds(500));
      ann_progress progress = ANN_PROGRESS_INIT;
      ann_monitor_progress(monitor_, &progress, nullptr);
      const Clock::time_point now = Clock::now();
      seconds_[progress.phase] += std::chrono::duration<double>(now - before).count();
      held_ = std::max(held_, std::max(device_bytes_in_use(), before_) - before_);
      before = now;
    }
  }

  ann_monitor* monitor_ = nullptr;
  const uint64_t before_ = device_bytes_in_use();
  uint64_t held_ = 0;
  std::map<std::string, double> seconds_;
  std::atomic<bool> ended_ = false;
  std::thread watcher_;
};

Rows as_floats(const Rows& bytes) {
  Rows rows(ANN_F32, 0, bytes.dim, Values::kEqual, 1);
  rows.rows = bytes.rows;
  rows.bytes.resize(bytes.rows * rows.stride);
  float* to = reinterpret_cast<float*>(rows.bytes.data());
  for (uint64_t i = 0; i < uint64_t{bytes.rows} * bytes.dim; ++i) to[i] = bytes.bytes[i];
  return rows;
}

/// Table 5: of lists, [rows, k], those of the first rows: the true neighbours among the first one and ten, by row and,
/// since many rows have several at the same distance, by distance.
void consensus(const char* of, const ann_index* index, const Rows& rows, const std::vector<uint32_t>& lists,
               uint32_t k) {
  const Rows some = first_of(rows, std::min(kMostLists, rows.rows));
  ann_search_params params = ANN_SEARCH_PARAMS_INIT;
  params.device = ANN_DEVICE_CUDA;
  const Answers truth = answers_of(index, some, 11, params, true);
  const auto distance_of = [&](uint64_t row, uint32_t other) {
    const auto value = [&](uint64_t of_row, uint32_t column) {
      const uint8_t* bytes = rows.bytes.data() + of_row * rows.stride;
      return rows.element == ANN_F32 ? reinterpret_cast<const float*>(bytes)[column] : bytes[column];
    };
    float sum = 0;
    for (uint32_t column = 0; column < rows.dim; ++column) {
      const float apart = value(row, column) - value(other, column);
      sum += apart * apart;
    }
    return sum;
  };
  uint64_t hits[2][2] = {};  // [by row, by distance][of one, of ten]
  for (uint64_t row = 0; row < some.rows; ++row) {
    std::vector<uint64_t> near;
    std::vector<float> distances;
    for (uint32_t i = 0; i < 11 && near.size() < 10; ++i) {
      if (truth.ids[row * 11 + i] == row) continue;
      near.push_back(truth.ids[row * 11 + i]);
      distances.push_back(truth.distances[row * 11 + i]);
    }
    const uint32_t* list = lists.data() + row * k;
    hits[0][0] += list[0] == near[0] ? 1 : 0;
    hits[1][0] += distance_of(row, list[0]) <= distances[0] ? 1 : 0;
    for (uint32_t i = 0; i < 10 && list[i] != kNoRow; ++i) {
      hits[0][1] += std::count(near.begin(), near.end(), list[i]) != 0 ? 1 : 0;
      hits[1][1] += distance_of(row, list[i]) <= distances[9] ? 1 : 0;
    }
  }
  const auto share = [&](uint64_t count, uint32_t of) { return static_cast<double>(count) / some.rows / of; };
  std::printf("  table 5, %s: C@1 %.4f, C@10 %.4f; by distance %.4f, %.4f\n", of, share(hits[0][0], 1),
              share(hits[0][1], 10), share(hits[1][0], 1), share(hits[1][1], 10));
}

/// The edges of the graph, in order of codes, and k-NN lists of half its degree, in order of the rows.
void table_5(const ann_index* index, const Rows& rows, uint32_t k) {
  std::vector<uint32_t> edges(uint64_t{rows.rows} * k);
  ann_error error = ANN_ERROR_INIT;
  uint32_t degree = 0;
  expect_ok(ann_index_graph(index, edges.data(), edges.size(), &degree, &error), error, "graph");
  consensus("edges", index, rows, edges, k);
  ann_knn_params params = ANN_KNN_PARAMS_INIT;
  params.method = ANN_KNN_GGNN;
  params.k = k / 2;
  params.device = ANN_DEVICE_CUDA;
  params.seed = 1;
  std::vector<uint32_t> lists(uint64_t{rows.rows} * params.k);
  const ann_matrix matrix = matrix_of(rows);
  const double time = milliseconds_of([&] {
    expect_ok(ann_knn_graph(nullptr, &matrix, &params, lists.data(), nullptr, nullptr, &error), error,
              "lists");
  });
  std::printf("  k-NN lists of %u in %.3f s\n", params.k, time / 1e3);
  consensus("lists", index, rows, lists, params.k);
}

/// Answers for 10 neighbours, timed.
struct Searches {
  const ann_index* index;
  const Rows& queries;
  Answers truth;
  ann_search_params params = ANN_SEARCH_PARAMS_INIT;

  Searches(const ann_index* searched, const Rows& all) : index(searched), queries(all) {
    params.device = ANN_DEVICE_CUDA;
    truth = answers_of(index, queries, 10, params, true);
    params.procedure = ANN_SEARCH_GGNN;
    params.compare = ANN_COMPARE_STORED;
  }

  void time(const char* what, double value, const Rows& asked) const {
    Answers answers;
    double best = 1e9;
    for (uint32_t turn = 0; turn < 4; ++turn)
      best = std::min(best, milliseconds_of([&] { answers = answers_of(index, asked, 10, params); }));
    std::printf("  %s %.3g, batch %u: recall@10 %.4f, %.4g M queries/s, %.0f distances, %.1f expansions\n",
                what, value, asked.rows, recall_of(answers, truth, 10, 10), asked.rows / best / 1e3,
                static_cast<double>(answers.distance_count) / asked.rows,
                static_cast<double>(answers.expansion_count) / asked.rows);
  }

  void over_tau(std::initializer_list<float> taus, const Rows& asked) {
    for (const float tau : taus) {
      params.stretch = 1 + tau;
      time("tau", static_cast<double>(tau), asked);
    }
    params.stretch = 0;
  }

  void table_1() {
    for (const float tau : {0.018f, 0.039f, 0.077f, 0.175f, 0.20f, 0.30f, 0.42f, 0.65f}) {
      params.stretch = 1 + tau;
      std::printf("  table 1: tau %.3f, recall@1 %.4f\n", static_cast<double>(tau),
                  recall_of(answers_of(index, queries, 1, params), truth, 1, 10));
    }
  }

  void without_slack() {
    params.stretch = 1;
    for (const uint32_t best : {10, 16, 24, 32, 48, 64, 96, 128, 192}) {
      params.beam = best;
      time("figure 3: no slack, best list of", best, queries);
    }
    params.beam = 0;
  }

  void cut_after(std::initializer_list<uint32_t> limits) {
    for (const uint32_t iterations : limits) {
      params.iterations_max = iterations;
      std::printf("  %u iterations at most\n", iterations);
      over_tau({0.08f, 0.10f, 0.12f, 0.15f, 0.20f}, queries);
    }
    params.iterations_max = 0;
  }

  void by_choices() {
    params.stretch = 1.12f;
    for (const int32_t descent : {ANN_OFF, ANN_ON}) {
      params.descent = descent;
      time(descent == ANN_ON ? "down through the layers, tau" : "straight to the bottom, tau", .12, queries);
    }
    params.descent = 0;
    params.slack = ANN_SLACK_SQUARES;
    std::printf("  slack added to squares\n");
    over_tau({0.20f, 0.30f, 0.42f, 0.65f}, queries);
    params.slack = 0;
  }

  void by_recall() {
    for (const float recall : {0.90f, 0.95f, 0.98f, 0.99f}) {
      params.recall = recall;
      ann_search_forecast forecast = ANN_SEARCH_FORECAST_INIT;
      ann_error error = ANN_ERROR_INIT;
      expect_ok(ann_search_estimate(index, queries.rows, 10, &params, &forecast, &error), error, "forecast");
      time("asked for", static_cast<double>(recall), queries);
      std::printf("    promised %.4f, forecast %.1f expansions\n", static_cast<double>(forecast.recall),
                  forecast.expansions);
    }
    params.recall = 0;
  }
};

/// `whole`: all figures of a search, else over tau alone.
void searches(const ann_index* index, const Rows& queries, bool whole) {
  Searches searched(index, queries);
  const Rows hundred = first_of(queries, std::min(100u, queries.rows));
  if (!whole) {
    searched.over_tau({0.06f, 0.08f, 0.10f, 0.12f, 0.15f}, queries);
    searched.over_tau({0.10f, 0.15f}, hundred);
    return;
  }
  searched.table_1();
  searched.over_tau({0.0f, 0.02f, 0.04f, 0.06f, 0.08f, 0.10f, 0.12f, 0.15f, 0.20f}, queries);
  searched.over_tau({0.10f, 0.15f}, hundred);
  searched.over_tau({0.10f, 0.15f}, first_of(queries, 1));
  searched.without_slack();
  searched.cut_after({75, 100, 125, 150, 200});
  searched.by_choices();
}

void figures(const Rows& rows, const Rows& queries, const Asked& asked, bool whole) {
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.graph = ANN_GRAPH_GGNN;
  params.degree = asked.k;
  params.calibrate = ANN_OFF;
  params.seed = 1;
  params.device = ANN_DEVICE_CUDA;
  params.refinements = asked.refinements;
  if (asked.tau != 0) params.build_stretch = 1 + asked.tau;
  params.midpoint = asked.midpoint;
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  shape.dim = rows.dim;
  ann_plan plan = ANN_PLAN_INIT;
  ann_error error = ANN_ERROR_INIT;
  expect_ok(ann_estimate(&shape, rows.rows, rows.element, &params, &plan, &error), error, "estimate");
  const double first = whole ? milliseconds_of([&] { Index index(rows, params, nullptr); }) : 1e9;
  Phases phases;
  Clock::time_point start = Clock::now();
  const Index index(rows, params, phases.monitor());
  const double second = std::chrono::duration<double>(Clock::now() - start).count();
  const std::map<std::string, double> seconds_of = phases.end();
  GgnnParams used;
  if (asked.tau != 0) used.tau = asked.tau;
  if (asked.refinements != 0) used.refinements = static_cast<uint32_t>(std::max(0, asked.refinements));
  std::printf(
      "%u rows, k %u, tau_b %.2f, %u refinements, midpoint %s: built in %.3f s, %.0f MB of device memory "
      "planned, %.0f held at most\n",
      rows.rows, asked.k, static_cast<double>(used.tau), used.refinements,
      asked.midpoint == ANN_OFF ? "off" : "on", std::min(first / 1e3, second),
      static_cast<double>(plan.device_bytes) / 1e6, static_cast<double>(phases.held()) / 1e6);
  for (const auto& [phase, seconds] : seconds_of) std::printf("  %s %.3f s\n", phase.c_str(), seconds);
  table_5(index.index, rows, asked.k);
  searches(index.index, queries, whole);
  if (whole) {
    params.calibrate = ANN_ON;
    const Index calibrated(rows, params, nullptr);
    Searches(calibrated.index, queries).by_recall();
  }
  std::fflush(stdout);
}

}  // namespace

int main(int count, char** arguments) {
  const char* reason = "";
  if (cuda_device_count(&reason) == 0) {
    std::printf("skipped: %s\n", reason);
    return 77;
  }
  if (count < 3) return 2;
  std::vector<Asked> graphs;
  const bool bytes = count > 3 && std::string(arguments[3]) == "bytes";
  for (int i = bytes ? 4 : 3; i < count; ++i) {
    Asked asked;
    std::sscanf(arguments[i], "%u:%f:%d:%d", &asked.k, &asked.tau, &asked.refinements, &asked.midpoint);
    graphs.push_back(asked);
  }
  const bool whole = graphs.empty();
  if (whole) graphs = {{24, 0, 0, 0}, {40, 0, 0, 0}};
  try {
    const auto read = [bytes](const char* path) {
      const Rows rows = read_vectors(path, UINT32_MAX);
      return bytes ? rows : as_floats(rows);
    };
    const Rows rows = read(arguments[1]);
    const Rows queries = read(arguments[2]);
    for (const Asked& asked : graphs) figures(rows, queries, asked, whole);
  } catch (const Failure& failure) {
    std::printf("FAILS: %s\n", failure.what.c_str());
    return 1;
  }
  return 0;
}
