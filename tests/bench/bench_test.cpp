// The harness itself: known recall, known latencies, made data that keep their promises.

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <latch>
#include <mutex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>

#include "../unit/catch.h"
#include "exact_search.h"
#include "handles.h"
#include "made_rows.h"
#include "names.h"
#include "recall.h"
#include "records.h"
#include "set_measures.h"
#include "sweep.h"
#include "timing.h"

namespace {

using namespace bench;

class Folder {
 public:
  Folder() {
    std::string pattern = std::filesystem::temp_directory_path() / "gannet-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = pattern;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

Vectors floats(uint32_t dim, const std::vector<float>& values) {
  Vectors out;
  out.element = ANN_F32;
  out.dim = dim;
  out.rows = values.size() / dim;
  out.data.resize(values.size() * sizeof(float));
  std::memcpy(out.data.data(), values.data(), out.data.size());
  return out;
}

Vectors made(const MadeSet& set, Part part, uint64_t rows) {
  std::vector<float> values(rows * set.dim);
  MadeRows(set).make(part, 0, rows, values.data());
  return floats(set.dim, values);
}

MadeSet small_set(Law law) {
  MadeSet set;
  set.law = law;
  set.dim = 12;
  set.intrinsic_dim = 4;
  set.clusters = 10;
  set.rows = 2000;
  return set;
}

// --- Recall -------------------------------------------------------------------------------------

// Rows on a line at 0, 1, 2, 3, 4, and a second one at 2. The query stands at 0.
struct Line {
  Vectors rows = floats(1, {0, 1, 2, 3, 4, 2});
  Vectors queries = floats(1, {0});
  GroundTruth truth{1, 3, {0, 1, 2}, {0, 1, 4}};
  Recall of(const std::vector<uint64_t>& found, int32_t metric = ANN_METRIC_L2) const {
    return recall_of(found, 1, static_cast<uint32_t>(found.size()), truth, rows.rows,
                     PairDistance(rows, queries, metric));
  }
};

TEST_CASE("recall of known answers") {
  const Line line;
  CHECK(line.of({0, 1, 2}).by_id == 1.0);
  CHECK(line.of({2, 0, 1}).by_id == 1.0);  // order is no matter of recall
  CHECK(line.of({0, 1, 3}).by_id == Approx(2.0 / 3));
  CHECK(line.of({0, 1, 3}).by_distance == Approx(2.0 / 3));
  CHECK(line.of({4, 3, ANN_ID_NONE}).by_id == 0.0);
}

TEST_CASE("a row at the same distance counts by distance, not by number") {
  const Line line;
  const Recall recall = line.of({0, 1, 5});
  CHECK(recall.by_id == Approx(2.0 / 3));
  CHECK(recall.by_distance == 1.0);
}

TEST_CASE("what comes twice or is no row counts once or not at all") {
  const Line line;
  CHECK(line.of({0, 0, 0}).by_id == Approx(1.0 / 3));
  CHECK(line.of({0, 0, 0}).by_distance == Approx(1.0 / 3));
  CHECK(line.of({6, 7, UINT64_MAX}).by_distance == 0.0);
}

TEST_CASE("fewer true neighbours than asked for") {
  Line line;
  line.truth.ids = {0, 1, -1};
  CHECK(line.of({0, 1, ANN_ID_NONE}).by_id == 1.0);
  CHECK(line.of({0, 1, 2}).by_distance == 1.0);  // never above 1
  CHECK_THROWS_AS(line.of({0, 1, 2, 3}), std::invalid_argument);
}

TEST_CASE("distances of all metrics and elements") {
  const Vectors rows = floats(2, {3, 4, 0, 0});
  const Vectors queries = floats(2, {4, 3});
  CHECK(PairDistance(rows, queries, ANN_METRIC_L2)(0, 0) == Approx(std::sqrt(2.0)));
  CHECK(PairDistance(rows, queries, ANN_METRIC_INNER_PRODUCT)(0, 0) == -24.0);
  CHECK(PairDistance(rows, queries, ANN_METRIC_COSINE)(0, 0) == Approx(1 - 24.0 / 25));
  CHECK(PairDistance(rows, queries, ANN_METRIC_COSINE)(0, 1) == 1.0);
  // 1.5, -2 and the smallest subnormal, as halves.
  const uint16_t halves[] = {0x3e00, 0xc000, 0x0001};
  const auto* bytes = reinterpret_cast<const std::byte*>(halves);
  CHECK(value_as_float(bytes, ANN_F16, 0) == 1.5f);
  CHECK(value_as_float(bytes, ANN_F16, 1) == -2.0f);
  CHECK(value_as_float(bytes, ANN_F16, 2) == std::ldexp(1.0f, -24));
}

// --- Time ---------------------------------------------------------------------------------------

TEST_CASE("latency of calls that sleep") {
  TimingParams params;
  params.calls_min = 40;
  params.seconds_min = 0;
  // One call in ten sleeps for 12 ms, the others for 3 ms.
  const Timing timing = time_calls(params, [](uint64_t number, uint32_t) {
    std::this_thread::sleep_for(std::chrono::milliseconds(number % 10 == 9 ? 12 : 3));
  });
  CHECK(timing.calls == 40);
  // A sleep may last longer on a busy machine, never shorter.
  CHECK(timing.latency_p50 >= 0.003);
  CHECK(timing.latency_p50 <= timing.latency_p95);
  CHECK(timing.latency_p95 >= 0.012);
  CHECK(timing.latency_p99 >= 0.012);
  CHECK(timing.wall >= 36 * 0.003 + 4 * 0.012);
  CHECK(timing.latency_mean * 40 <= timing.wall);
  CHECK(timing.cpu < timing.wall);  // sleeping is not computing
}

TEST_CASE("callers work at the same time") {
  TimingParams params;
  params.callers = 4;
  params.calls_min = 20;
  params.seconds_min = 0;
  std::set<uint64_t> numbers;
  std::set<uint32_t> callers;
  std::mutex mutex;
  std::latch all_in(4);  // one after the other they would wait here for ever
  const Timing timing = time_calls(params, [&](uint64_t number, uint32_t caller) {
    bool first = false;
    {
      const std::lock_guard lock(mutex);
      numbers.insert(number);
      first = callers.insert(caller).second;
    }
    if (first) all_in.arrive_and_wait();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  });
  CHECK(callers == std::set<uint32_t>{0, 1, 2, 3});
  CHECK(numbers.size() == 20);
  CHECK(timing.latency_p50 >= 0.010);
}

TEST_CASE("calls go on for the time asked for, and stop at a fault") {
  TimingParams params;
  params.seconds_min = 0.05;
  const Timing timing = time_calls(
      params, [](uint64_t, uint32_t) { std::this_thread::sleep_for(std::chrono::milliseconds(1)); });
  CHECK(timing.wall >= 0.05);
  CHECK(timing.calls > 1);
  params.seconds_min = 60;
  CHECK_THROWS_WITH(time_calls(params,
                               [](uint64_t number, uint32_t) {
                                 if (number == 3) throw std::runtime_error("third");
                               }),
                    "third");
}

TEST_CASE("percentiles by nearest rank") {
  CHECK(percentile({}, 0.5) == 0);
  CHECK(percentile({7}, 0.99) == 7);
  CHECK(percentile({1, 2, 3, 4}, 0.5) == 2);
  CHECK(percentile({1, 2, 3, 4}, 0.51) == 3);
  CHECK(percentile({1, 2, 3, 4}, 1.0) == 4);
}

TEST_CASE("the peak of memory is seen, though it is gone") {
  reset_peak_memory();
  const uint64_t before = peak_memory_bytes();
  {
    std::vector<char> large(64 << 20, 1);
    REQUIRE(large[12345] == 1);
  }
  CHECK(peak_memory_bytes() >= before + (48 << 20));
}

// --- Made data ----------------------------------------------------------------------------------

TEST_CASE("made rows depend on seed and number alone") {
  for (const Law law : {Law::kClusters,      Law::kUniform,    Law::kDuplicates, Law::kNorms,  Law::kIslands,
                        Law::kTree,          Law::kCopies,     Law::kDensities,  Law::kScaled, Law::kContrast,
                        Law::kOutlierColumn, Law::kOutlierRow, Law::kOffset,     Law::kOneHot, Law::kCorners,
                        Law::kShells,        Law::kScales,     Law::kOneVector,  Law::kRelu,   Law::kRadii,
                        Law::kDecades,       Law::kOnes}) {
    MadeSet set = small_set(law);
    const Vectors all = made(set, Part::kRows, 2000);
    std::vector<float> middle(100 * set.dim);
    MadeRows(set).make(Part::kRows, 500, 100, middle.data());
    CHECK(std::memcmp(all.data.data() + 500 * all.row_bytes(), middle.data(),
                      middle.size() * sizeof(float)) == 0);
    CHECK(made(set, Part::kQueries, 10).data != made(set, Part::kRows, 10).data);
    set.seed = 2;
    CHECK(made(set, Part::kRows, 10).data != Vectors(floats(set.dim, to_floats(all))).data);
  }
}

TEST_CASE("clusters have about the intrinsic dimension asked for") {
  for (const uint32_t wanted : {2u, 6u}) {
    MadeSet set = small_set(Law::kClusters);
    set.intrinsic_dim = wanted;
    const double found = measure_set(made(set, Part::kRows, 4000), 500, 1, {}).intrinsic_dim;
    CHECK(found > 0.75 * wanted);
    CHECK(found < 1.25 * wanted);
  }
}

TEST_CASE("duplicates, norms and foreign queries are what they are called") {
  MadeSet set = small_set(Law::kDuplicates);
  const Vectors rows = made(set, Part::kRows, 2000);
  std::set<std::string> distinct;
  for (uint64_t row = 0; row < rows.rows; ++row) {
    distinct.emplace(reinterpret_cast<const char*>(rows.data.data()) + row * rows.row_bytes(),
                     rows.row_bytes());
  }
  CHECK(distinct.size() <= 200);
  CHECK(distinct.size() > 100);

  const std::vector<float> values = to_floats(made(small_set(Law::kNorms), Part::kRows, 2000));
  float shortest = INFINITY;
  float longest = 0;
  for (size_t row = 0; row < 2000; ++row) {
    float squares = 0;
    for (size_t i = 0; i < 12; ++i) squares += values[row * 12 + i] * values[row * 12 + i];
    shortest = std::min(shortest, std::sqrt(squares));
    longest = std::max(longest, std::sqrt(squares));
  }
  CHECK(shortest < 0.2f);
  CHECK(longest > 9.0f);

  set = small_set(Law::kClusters);
  const Vectors base = made(set, Part::kRows, 2000);
  ExactParams params;
  params.k = 1;
  const auto mean_nearest = [&](Part part) {
    const GroundTruth truth = exact_neighbours(base, made(set, part, 100).view(), params);
    double sum = 0;
    for (const float distance : truth.distances) sum += std::sqrt(static_cast<double>(distance));
    return sum / 100;
  };
  CHECK(mean_nearest(Part::kForeignQueries) > 2 * mean_nearest(Part::kQueries));
}

TEST_CASE("a grown set is like the real one") {
  MadeSet set = small_set(Law::kClusters);
  const Vectors real = made(set, Part::kRows, 1500);
  constexpr uint32_t degree = 16;
  std::vector<uint32_t> neighbours(real.rows * degree);
  ann_knn_params params = ANN_KNN_PARAMS_INIT;
  params.k = degree;
  const ann_matrix rows = real.view();
  REQUIRE(ann_knn_graph(nullptr, &rows, &params, neighbours.data(), nullptr, nullptr, nullptr) == ANN_OK);
  GrownRows::Shape shape;
  shape.neighbours = 16;
  const GrownRows maker(real, neighbours, degree, shape);
  Vectors grown = maker.make(9000);
  const auto source_of = [&](uint64_t row) { return maker.source_of(row); };
  const SetMeasures raw = measure_set(grown, 1000, 1, source_of);
  CHECK(maker.repair(grown, 12) == 0);
  const SetMeasures repaired = measure_set(grown, 1000, 1, source_of);
  CHECK(repaired.siblings_max <= 2);
  CHECK(repaired.siblings_mean <= raw.siblings_mean);
  const double ratio = repaired.intrinsic_dim / measure_set(real, 1000, 1, {}).intrinsic_dim;
  CHECK(ratio > 0.9);
  CHECK(ratio < 1.1);

  // By a graph, here of true neighbours; from neighbourhoods so small that siblings crowd each other.
  shape.neighbours = 6;
  const GrownRows narrow(real, neighbours, degree, shape);
  Vectors crowd = narrow.make(9000);
  const SetMeasures crowded = measure_set(crowd, 1000, 1, source_of);
  narrow.repair(crowd, 12, [](const Vectors& some) {
    std::vector<uint32_t> out(some.rows * GrownRows::kNearest);
    ann_knn_params exact = ANN_KNN_PARAMS_INIT;
    exact.k = GrownRows::kNearest;
    exact.method = ANN_KNN_EXACT;
    const ann_matrix view = some.view();
    REQUIRE(ann_knn_graph(nullptr, &view, &exact, out.data(), nullptr, nullptr, nullptr) == ANN_OK);
    return out;
  });
  const SetMeasures spread_out = measure_set(crowd, 1000, 1, source_of);
  CHECK(crowded.siblings_max > 2);
  CHECK(spread_out.siblings_max <= 2);

  // Queries lie among the rows as rows do, and are none of them.
  const Vectors asked = maker.queries(300);
  REQUIRE(asked.rows == 300);
  ExactParams nearest;
  nearest.k = 21;
  const auto mean_distance = [&](const Vectors& from, uint32_t place) {
    const GroundTruth truth = exact_neighbours(grown, from.view(0, 300), nearest);
    double sum = 0;
    for (uint64_t q = 0; q < 300; ++q) sum += std::sqrt(double{truth.distances[q * 21 + place]});
    return sum / 300;
  };
  CHECK(mean_distance(asked, 0) > 0);
  const double compared = mean_distance(asked, 19) / mean_distance(grown, 20);  // rows find themselves
  CHECK(compared > 0.9);
  CHECK(compared < 1.1);
}

TEST_CASE("exact search in blocks and whole") {
  const Folder folder;
  const MadeSet set = small_set(Law::kClusters);
  const Vectors rows = made(set, Part::kRows, 1000);
  VectorWriter writer(folder / "base.fbin", ANN_F32, set.dim);
  writer.append(rows.data.data(), rows.rows);
  writer.finish();
  const Vectors queries = made(set, Part::kQueries, 20);
  ExactParams params;
  params.k = 30;
  const GroundTruth whole = exact_neighbours(rows, queries.view(), params);
  VectorReader reader(folder / "base.fbin");
  params.block_bytes = 20 * rows.row_bytes();  // fewer rows than k
  const GroundTruth parts = exact_neighbours(reader, queries.view(), params);
  CHECK(parts.ids == whole.ids);
  CHECK(parts.distances == whole.distances);
}

// --- Records ------------------------------------------------------------------------------------

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST_CASE("a sweep measures every point, on lines and in tables") {
  const Folder folder;
  const MadeSet set = small_set(Law::kClusters);
  const Vectors rows = made(set, Part::kRows, 2000);
  const Vectors queries = made(set, Part::kQueries, 50);
  ExactParams exact;
  exact.k = 10;
  const GroundTruth truth = exact_neighbours(rows, queries.view(), exact);
  SweepParams params;
  params.seeds = {1, 2, 3};
  params.procedures = {ANN_SEARCH_BEST_FIRST, ANN_SEARCH_EXACT};
  params.batches = {1, 64};
  params.threads = {1, 2};
  params.modes = {Mode::kLatency, Mode::kThroughput};
  params.beams = {5, 10, 100};  // the first is below k
  params.recalls = {0.9};
  params.seconds_min = 0;
  const Monitor monitor = make_monitor();
  const std::string prefix = folder / "out/run";
  {
    Records records(prefix, describe_run("a \"command\", quoted", "abc"));
    run_sweep(rows, queries, truth, params, monitor.get(), records);
    // Of threads and modes, batches of 64 have three combinations and single queries two; best_first
    // has 3 efforts.
    uint64_t searches = 0;
    uint64_t spreads = 0;
    for (const Record& record : records.all()) {
      if (record["record"] == "spread") {
        ++spreads;
        CHECK(record["seeds"] == 3);
        CHECK(record["recall_min"] <= record["recall"]);
        CHECK(record["recall"] <= record["recall_max"]);
      }
      if (record["record"] != "search") continue;
      ++searches;
      if (record["procedure"] == "exact") CHECK(record["recall"] == 1.0);
      if (record["beam"] == 100) CHECK(record["recall"] > 0.99);
      CHECK(record["latency_p50"] <= record["latency_p99"]);
      CHECK(record["throughput"] > 0);
      CHECK(record["build time"] > 0);
    }
    CHECK(searches == 3 * (3 + 2) * (3 + 1));
    CHECK(spreads == searches / 3);
  }
  std::istringstream csv(text_of(prefix + ".csv"));
  std::string line;
  std::getline(csv, line);
  CHECK(line.starts_with("algo_name,index_name,recall,throughput,latency,"));
  CHECK(line.find(",build time,build threads,build cpu_time,build GPU,") != std::string::npos);
  uint64_t lines = 0;
  while (std::getline(csv, line)) {
    ++lines;
    CHECK(line.ends_with("\"a \"\"command\"\", quoted\""));
  }
  CHECK(lines == 3 * (3 + 2) * (3 + 1));
  CHECK(text_of(prefix + ".build.csv").starts_with("algo_name,index_name,time,threads,cpu_time,GPU,"));
}

TEST_CASE("what the library does not do is left out of a sweep, with the reason") {
  const Folder folder;
  const Vectors rows = made(small_set(Law::kClusters), Part::kRows, 500);
  ExactParams exact;
  exact.k = 10;
  const GroundTruth truth = exact_neighbours(rows, rows.view(), exact);
  SweepParams params;
  params.beams = {32, ANN_BEAM_MAX + 1};
  params.seconds_min = 0;
  params.single_queries = 20;
  const Monitor monitor = make_monitor();
  Records records(folder / "run", describe_run("x", "abc"));
  run_sweep(rows, rows, truth, params, monitor.get(), records);
  REQUIRE(records.all().size() == 4);  // run, build, and a point each
  CHECK(records.all()[2]["record"] == "search");
  CHECK(records.all()[2]["n_queries"] == 20);
  CHECK(records.all()[2]["total_queries"] == 20);
  CHECK(records.all()[3]["record"] == "skipped");
  CHECK(records.all()[3]["beam"] == ANN_BEAM_MAX + 1);
  CHECK(records.all()[3]["reason"].get<std::string>().find("beam") != std::string::npos);

  params.procedures = {ANN_SEARCH_TWO_LISTS};  // on the CPU, with two numbers of warps and no beam
  params.device = ANN_DEVICE_CPU;
  params.warps = {1, 16};
  params.recalls = {0.9};
  Records others(folder / "others", describe_run("x", "abc"));
  run_sweep(rows, rows, truth, params, monitor.get(), others);
  REQUIRE(others.all().size() == 4);
  for (const size_t place : {2, 3}) {
    const Record& skipped = others.all()[place];
    CHECK(skipped["procedure"] == "two_lists");
    CHECK(skipped["warps_per_query"] == (place == 2 ? 1 : 16));
    CHECK(skipped["reason"].get<std::string>().find("TWO_LISTS") != std::string::npos);
  }
}

TEST_CASE("a build without calibration has a name of its own") {
  const Folder folder;
  const Vectors rows = made(small_set(Law::kClusters), Part::kRows, 2000);
  ExactParams exact;
  exact.k = 10;
  const GroundTruth truth = exact_neighbours(rows, rows.view(0, 50), exact);
  SweepParams params;
  params.calibrations = {ANN_ON, ANN_OFF};
  params.beams = {32};
  params.seconds_min = 0;
  const Monitor monitor = make_monitor();
  Records records(folder / "run", describe_run("x", "abc"));
  Vectors queries = rows;
  queries.rows = 50;
  run_sweep(rows, queries, truth, params, monitor.get(), records);
  REQUIRE(records.all().size() == 5);  // run, and each build with a search
  CHECK(records.all()[1]["calibrate_time"] > 0);
  CHECK(records.all()[3]["calibrate_time"] == 0);
  CHECK(records.all()[2]["algo_name"] == "gannet");
  CHECK(records.all()[4]["algo_name"] == "gannet_uncalibrated");
  CHECK(records.all()[4]["index_name"].get<std::string>().ends_with(".uncalibrated"));
  CHECK(records.all()[4]["recall"] == records.all()[2]["recall"]);
}

TEST_CASE("exact search over the head of a file") {
  const Folder folder;
  const MadeSet set = small_set(Law::kClusters);
  const Vectors rows = made(set, Part::kRows, 300);
  VectorWriter writer(folder / "base.fbin", ANN_F32, set.dim);
  writer.append(rows.data.data(), rows.rows);
  writer.finish();
  VectorReader reader(folder / "base.fbin");
  ExactParams params;
  params.k = 5;
  params.rows_max = 100;
  params.block_bytes = 30 * rows.row_bytes();
  const GroundTruth head = exact_neighbours(reader, rows.view(0, 20), params);
  CHECK(*std::max_element(head.ids.begin(), head.ids.end()) < 100);
  Vectors first = rows;
  first.rows = 100;
  CHECK(head.ids == exact_neighbours(first, rows.view(0, 20), params).ids);
}

TEST_CASE("a cancelled sweep ends, and keeps what was measured") {
  const Folder folder;
  const MadeSet set = small_set(Law::kClusters);
  const Vectors rows = made(set, Part::kRows, 2000);
  const Monitor monitor = make_monitor();
  ann_monitor_cancel(monitor.get());
  const std::string prefix = folder / "run";
  {
    Records records(prefix, describe_run("x", "abc"));
    CHECK_THROWS_AS(run_sweep(rows, rows, GroundTruth{}, SweepParams{}, monitor.get(), records), Cancelled);
  }
  CHECK(text_of(prefix + ".jsonl").find("\"commit\":\"abc\"") != std::string::npos);
  CHECK(text_of(prefix + ".csv").starts_with("algo_name,"));
}

TEST_CASE("devices by name") {
  CHECK(device_of("auto") == ANN_DEVICE_AUTO);
  CHECK(device_of("cpu") == ANN_DEVICE_CPU);
  CHECK(device_of("cuda") == ANN_DEVICE_CUDA);
  CHECK(device_of("cuda:3") == ANN_DEVICE_CUDA + 3);
  for (const char* wrong : {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:99999999999"}) {
    CHECK_THROWS_AS(device_of(wrong), std::invalid_argument);
  }
}

}  // namespace
