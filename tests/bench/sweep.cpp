#include "sweep.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <thread>

#include "device_memory.h"
#include "handles.h"
#include "names.h"
#include "parallel.h"
#include "progress.h"
#include "recall.h"
#include "timing.h"

namespace bench {

namespace {

// One thing to measure on one index.
struct Point {
  int32_t procedure;
  uint32_t k;
  uint32_t batch;
  uint32_t threads;
  Mode mode;
  Buffers buffers;
  uint32_t beam;       // 0: the library's choice for `recall`
  double recall;       // 0: not asked for
  uint32_t warps = 0;  // of a query of two lists
};

// One way to build.
struct Way {
  uint32_t degree;
  uint32_t knn_degree;
  int32_t knn;
  int32_t calibrate;
  int32_t graph;
  int32_t detours;
  int32_t reorder;
};

// The ways to make a graph from k-NN lists.
void add_graphs(const SweepParams& params, Way way, std::vector<Way>& out) {
  for (const int32_t graph : params.graphs) {
    for (const int32_t detours : params.detours) {
      for (const int32_t reorder : params.reorderings) {
        way.graph = graph;
        way.detours = detours;
        way.reorder = reorder;
        out.push_back(way);
      }
    }
  }
}

std::vector<Way> ways_of(const SweepParams& params) {
  std::vector<Way> out;
  for (const uint32_t degree : params.degrees) {
    for (const uint32_t knn_degree : params.knn_degrees) {
      for (const int32_t knn : params.knn_methods) {
        for (const int32_t calibrate : params.calibrations) {
          add_graphs(params, {degree, knn_degree, knn, calibrate, 0, 0, 0}, out);
        }
      }
    }
  }
  return out;
}

Point with_effort(Point point, uint32_t beam, double recall) {
  point.beam = beam;
  point.recall = recall;
  return point;
}

// A point with each effort. Comparing all rows has none, two lists have no beam, but a number of warps.
void add_efforts(const SweepParams& params, Point point, std::vector<Point>& out) {
  if (point.procedure == ANN_SEARCH_EXACT) {
    out.push_back(point);
    return;
  }
  const bool has_warps = point.procedure == ANN_SEARCH_TWO_LISTS;
  for (const uint32_t beam : params.beams) {
    if (beam >= point.k && !has_warps) out.push_back(with_effort(point, beam, 0));
  }
  for (const uint32_t warps : has_warps ? params.warps : std::vector<uint32_t>{0}) {
    point.warps = warps;
    for (const double recall : params.recalls) out.push_back(with_effort(point, 0, recall));
  }
}

std::vector<Point> points_of(const SweepParams& params) {
  std::vector<Point> out;
  for (const int32_t procedure : params.procedures) {
    for (const uint32_t k : params.k) {
      for (const uint32_t batch : params.batches) {
        for (const uint32_t threads : params.threads) {
          for (const Mode mode : params.modes) {
            // One caller that may use one thread and one caller on one thread are the same.
            if (mode == Mode::kThroughput && threads == 1 && params.modes.size() > 1) continue;
            // A call with one query runs on its caller's thread.
            if (mode == Mode::kLatency && batch == 1 && threads > 1 && params.threads.size() > 1) {
              continue;
            }
            for (const Buffers buffers : params.buffers) {
              add_efforts(params, {procedure, k, batch, threads, mode, buffers, 0, 0}, out);
            }
          }
        }
      }
    }
  }
  return out;
}

// The queries, repeated at the end so that a batch may start at any of them.
Vectors tiled(const Vectors& queries, uint32_t batch) {
  Vectors out = queries;
  const uint64_t wanted = queries.rows + batch;
  out.data.reserve(wanted * queries.row_bytes());
  while (out.rows < wanted) {
    const uint64_t more = std::min(queries.rows, wanted - out.rows);
    out.data.insert(out.data.end(), queries.data.begin(),
                    queries.data.begin() + static_cast<std::ptrdiff_t>(more * queries.row_bytes()));
    out.rows += more;
  }
  return out;
}

// Bytes in use on a CUDA device, by whomever; 0 for the CPU.
uint64_t device_bytes_in_use(int32_t device) {
  if (device < ANN_DEVICE_CUDA) return 0;
  ann_device_info info = ANN_DEVICE_INFO_INIT;
  if (ann_device_get_info(device, &info, nullptr) != ANN_OK) return 0;
  return info.memory_total - info.memory_free;
}

// Samples the memory in use on a CUDA device while it lives.
class DeviceMemoryPeak {
 public:
  explicit DeviceMemoryPeak(int32_t device) : device_(device) {
    if (device < ANN_DEVICE_CUDA) return;
    thread_ = std::thread([this] {
      while (!done_) {
        peak_ = std::max(peak_, device_bytes_in_use(device_));
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
    });
  }
  ~DeviceMemoryPeak() { stop(); }
  DeviceMemoryPeak(const DeviceMemoryPeak&) = delete;
  DeviceMemoryPeak& operator=(const DeviceMemoryPeak&) = delete;

  uint64_t stop() {
    done_ = true;
    if (thread_.joinable()) thread_.join();
    return peak_;
  }

 private:
  int32_t device_;
  uint64_t peak_ = 0;
  std::atomic<bool> done_{false};
  std::thread thread_;
};

// The tiled queries in a device's memory.
DeviceBuffer on_device(int32_t device, const Vectors& queries) {
  DeviceBuffer out(device, queries.data.size());
  out.fill(queries.data.data(), queries.data.size());
  return out;
}

// One caller's results in a device's memory, and its stream.
struct DeviceCaller {
  DeviceCaller(int32_t device, const Point& point)
      : device(device),
        count(uint64_t{point.batch} * point.k),
        ids(device, count * sizeof(uint64_t)),
        distances(device, count * sizeof(float)),
        stream(device) {}

  int32_t device;
  uint64_t count;
  DeviceBuffer ids;
  DeviceBuffer distances;
  DeviceStream stream;
};

// What the queries of a sweep are asked from, and who asks. Of `host` and `device_queries` the point's
// buffers say which.
struct Asking {
  Vectors host;
  std::optional<DeviceBuffer> device_queries;
  std::vector<Neighbours> host_callers;
  std::vector<DeviceCaller> device_callers;
};

class Sweep {
 public:
  Sweep(const Vectors& rows, const Vectors& queries, const GroundTruth& truth, const SweepParams& params,
        ann_monitor* monitor, Records& records)
      : rows_(rows),
        queries_(queries),
        truth_(truth),
        params_(params),
        monitor_(monitor),
        records_(records),
        distance_(rows, queries, params.metric),
        points_(points_of(params)),
        device_bytes_before_(device_bytes_in_use(params.device)) {}

  void run() {
    const std::vector<Way> ways = ways_of(params_);
    steps_ = ways.size() * params_.seeds.size() * (points_.size() + 1);
    for (const Way& way : ways) {
      way_ = way;
      std::map<size_t, std::vector<Record>> of_point;
      for (const uint64_t seed : params_.seeds) {
        const Index index = built(seed);
        if (!index) continue;
        for (size_t i = 0; i < points_.size(); ++i) {
          if (const auto record = measured(index.get(), points_[i])) of_point[i].push_back(*record);
        }
      }
      if (params_.seeds.size() > 1) add_spreads(of_point);
    }
  }

 private:
  // No index where the library, or the device, builds none in this way.
  Index built(uint64_t seed) {
    try {
      return build(seed);
    } catch (const AnnError& fault) {
      if (fault.status != ANN_UNSUPPORTED) throw;
      Record skipped;
      skipped["record"] = "skipped";
      skipped["knn"] = name_of(kKnnMethods, way_.knn);
      skipped["reason"] = fault.what();
      records_.add(skipped);
      say("  by %s: left out: %s", name_of(kKnnMethods, way_.knn).c_str(), fault.what());
      return nullptr;
    }
  }

  Index build(uint64_t seed) {
    Index index = make_index(rows_.dim, params_.metric, params_.element);
    ann_build_params build = ANN_BUILD_PARAMS_INIT;
    build.degree = way_.degree;
    build.knn_degree = way_.knn_degree;
    build.knn = way_.knn;
    build.calibrate = way_.calibrate;
    build.graph = way_.graph;
    build.detours = way_.detours;
    build.reorder = way_.reorder;
    build.seed = seed;
    build.threads = params_.build_threads;
    build.device = params_.device;
    const ann_matrix stored = rows_.view();
    ann_error error = ANN_ERROR_INIT;
    step("building");
    reset_peak_memory();
    DeviceMemoryPeak device_peak(params_.device);
    const double cpu_start = process_cpu_seconds();
    const double start = now_seconds();
    check(ann_build(index.get(), &stored, nullptr, &build, monitor_, &error), error, "building");
    const double wall = now_seconds() - start;
    const double cpu = process_cpu_seconds() - cpu_start;
    const ann_index_info info = info_of(index.get());

    build_ = Record();
    build_["record"] = "build";
    build_["algo_name"] = algorithm_name(ANN_SEARCH_AUTO);
    build_["index_name"] = params_.name + ".degree" + std::to_string(info.degree) + "." +
                           name_of(kKnnMethods, way_.knn) +
                           (params_.device >= ANN_DEVICE_CUDA ? ".cuda" : "") +
                           (way_.knn_degree == 0 ? "" : ".knn" + std::to_string(way_.knn_degree)) +
                           (way_.calibrate == ANN_OFF ? ".uncalibrated" : "") + graph_name(".");
    build_["time"] = wall;
    build_["threads"] = params_.build_threads == 0 ? hardware_threads() : params_.build_threads;
    build_["cpu_time"] = cpu;
    build_["GPU"] = params_.device >= ANN_DEVICE_CUDA ? 1 : 0;
    build_["index_size"] = info.memory_bytes;
    build_["peak_host_memory"] = peak_memory_bytes();
    build_["peak_device_memory"] = less_than_before(device_peak.stop());
    build_["calibrate_time"] = info.calibrate_seconds;
    build_["first_call"] = first_call(index.get());
    build_["seed"] = seed;
    build_["degree"] = info.degree;
    build_["knn"] = name_of(kKnnMethods, way_.knn);
    build_["recall_max"] = info.recall_max;
    build_["repaired_edges"] = info.repaired_edges;
    build_["knn_share"] = info.knn_share;
    records_.add(build_);
    say("%s, seed %llu: built in %.2f s (%.2f s of processor time), %s",
        build_["index_name"].get<std::string>().c_str(), static_cast<unsigned long long>(seed), wall, cpu,
        bytes_text(info.memory_bytes).c_str());
    return index;
  }

  // What is not the default has a line of its own in pictures.
  std::string algorithm_name(int32_t procedure, uint32_t warps = 0) const {
    return params_.name + (way_.knn == ANN_KNN_AUTO ? "" : "_by_" + name_of(kKnnMethods, way_.knn)) +
           (way_.calibrate == ANN_OFF ? "_uncalibrated" : "") + graph_name("_") +
           (procedure == ANN_SEARCH_AUTO ? "" : "_" + name_of(kProcedures, procedure)) +
           (warps == 0 ? "" : "_" + std::to_string(warps)) +
           (params_.compare == ANN_COMPARE_STORED ? "_stored" : "");
  }

  std::string graph_name(const std::string& before) const {
    return (way_.graph == ANN_GRAPH_AUTO ? "" : before + name_of(kGraphs, way_.graph)) +
           (way_.detours == ANN_DETOURS_AUTO ? "" : before + name_of(kDetours, way_.detours)) +
           (way_.reorder == ANN_REORDER_AUTO ? "" : before + name_of(kReorderings, way_.reorder));
  }

  // Bytes of the device that were not in use before the first build: the library's, on a device that
  // nobody else uses.
  uint64_t less_than_before(uint64_t bytes) const { return bytes - std::min(bytes, device_bytes_before_); }
  uint64_t device_memory_in_use() const { return less_than_before(device_bytes_in_use(params_.device)); }

  // What the first query of a fresh index costs: tables and threads are made, caches are cold.
  double first_call(const ann_index* index) {
    const uint32_t k = params_.k.front();
    Neighbours found(1, k);
    ann_results results = found.view(0, 1);
    const ann_matrix query = queries_.view(0, 1);
    ann_search_params search = ANN_SEARCH_PARAMS_INIT;
    search.device = params_.device;
    ann_error error = ANN_ERROR_INIT;
    const double start = now_seconds();
    check(ann_search_batch(index, &query, &search, &results, monitor_, &error), error,
          "searching for the first time");
    return now_seconds() - start;
  }

  ann_search_params search_params(const Point& point) const {
    ann_search_params out = ANN_SEARCH_PARAMS_INIT;
    out.procedure = point.procedure;
    out.device = params_.device;
    out.threads = point.mode == Mode::kThroughput ? 1 : point.threads;
    out.beam = point.beam;
    out.warps_per_query = point.warps;
    out.compare = params_.compare;
    out.recall = static_cast<float>(point.recall);
    return out;
  }

  Asking asking_of(const Point& point) const {
    Asking out;
    out.host = tiled(queries_, point.batch);
    const uint32_t callers = callers_of(point);
    if (point.buffers == Buffers::kHost) {
      out.host_callers.assign(callers, Neighbours(point.batch, point.k));
      return out;
    }
    out.device_queries.emplace(on_device(params_.device, out.host));
    for (uint32_t i = 0; i < callers; ++i) out.device_callers.emplace_back(params_.device, point);
    return out;
  }

  static uint32_t callers_of(const Point& point) {
    return point.mode == Mode::kThroughput ? point.threads : 1;
  }

  // Searches for one batch of queries, from `first` on. With a stream the answers are there when it has
  // been waited for.
  ann_results search_batch(const ann_index* index, const Point& point, Asking& asking, uint64_t first,
                           uint32_t caller, const DeviceStream* stream) const {
    if (CancelOnInterrupt::happened()) throw Cancelled();
    ann_search_params search = search_params(point);
    ann_matrix some = asking.host.view(first, point.batch);
    ann_results results = ANN_RESULTS_INIT;
    if (point.buffers == Buffers::kHost) {
      results = asking.host_callers[caller].view(0, point.batch);
    } else {
      const DeviceCaller& buffers = asking.device_callers[caller];
      some.data = asking.device_queries->at(first * queries_.row_bytes());
      some.space = results.space = params_.device;
      results.k = point.k;
      results.rows = point.batch;
      results.ids = static_cast<uint64_t*>(buffers.ids.at(0));
      results.distances = static_cast<float*>(buffers.distances.at(0));
      if (stream != nullptr) search.stream = stream->stream();
    }
    ann_error error = ANN_ERROR_INIT;
    check(ann_search_batch(index, &some, &search, &results, monitor_, &error), error, "searching");
    return results;
  }

  // Nothing where the library says that it does not do this: a procedure of another device, a beam that
  // a device has no room for. The reason is a record of its own.
  std::optional<Record> measured(const ann_index* index, const Point& point) {
    try {
      return measure(index, point);
    } catch (const AnnError& fault) {
      if (fault.status != ANN_UNSUPPORTED && fault.status != ANN_LIMIT) throw;
      Record skipped;
      skipped["record"] = "skipped";
      skipped["index_name"] = build_["index_name"];
      skipped["procedure"] = name_of(kProcedures, point.procedure);
      if (point.warps != 0) skipped["warps_per_query"] = point.warps;
      skipped["k"] = point.k;
      skipped["batch"] = point.batch;
      skipped["beam"] = point.beam;
      skipped["reason"] = fault.what();
      records_.add(skipped);
      say("  %-10s k %-4u batch %-6u beam %-5u left out: %s", name_of(kProcedures, point.procedure).c_str(),
          point.k, point.batch, point.beam, fault.what());
      return std::nullopt;
    }
  }

  // The queries that a point is measured with.
  uint64_t queries_of(const Point& point) const {
    return point.batch == 1 && params_.single_queries > 0
               ? std::min<uint64_t>(params_.single_queries, queries_.rows)
               : queries_.rows;
  }

  Record measure(const ann_index* index, const Point& point) {
    step(name_of(kProcedures, point.procedure).c_str());
    Asking asking = asking_of(point);
    const Answers answers = answer_all(index, point, asking);

    reset_peak_memory();
    TimingParams timing_params;
    timing_params.callers = callers_of(point);
    timing_params.calls_min = (queries_of(point) + point.batch - 1) / point.batch;
    timing_params.seconds_min = params_.seconds_min;
    const auto first_of = [&](uint64_t call) { return call * point.batch % queries_of(point); };
    const Timing timing = time_calls(timing_params, [&](uint64_t call, uint32_t caller) {
      const DeviceStream* stream =
          point.buffers == Buffers::kHost ? nullptr : &asking.device_callers[caller].stream;
      search_batch(index, point, asking, first_of(call), caller, stream);
      if (stream != nullptr) stream->wait();
    });

    Record record = record_of(index, point, answers, timing);
    if (point.buffers == Buffers::kDevice) add_events(index, point, asking, record);
    records_.add(record);
    say("  %-10s k %-4u batch %-6u %s %s %u  %-12s recall %.4f  %11s /s   p50 %.3f  p99 %.3f ms",
        name_of(kProcedures, point.procedure).c_str(), point.k, point.batch,
        point.buffers == Buffers::kHost ? "host  " : "device",
        point.mode == Mode::kThroughput ? "callers" : "threads", point.threads,
        record["search_label"].get<std::string>().c_str(), answers.recall.by_id,
        with_commas(static_cast<uint64_t>(record["throughput"].get<double>())).c_str(),
        1e3 * timing.latency_p50, 1e3 * timing.latency_p99);
    return record;
  }

  // What the device itself needed for a call, by events around it in its stream, as the middle of many
  // calls; and the rate at which calls are done that are queued without waiting for each.
  void add_events(const ann_index* index, const Point& point, Asking& asking, Record& record) const {
    const DeviceStream& stream = asking.device_callers[0].stream;
    constexpr int calls = 21;
    std::vector<double> seconds;
    for (int call = 0; call < calls; ++call) {
      stream.note_start();
      search_batch(index, point, asking, 0, 0, &stream);
      stream.note_end();
      stream.wait();
      seconds.push_back(stream.seconds_between());
    }
    std::sort(seconds.begin(), seconds.end());
    record["event_p50"] = percentile(seconds, 0.5);
    const double start = now_seconds();
    for (int call = 0; call < calls; ++call) search_batch(index, point, asking, 0, 0, &stream);
    stream.wait();
    record["queued_throughput"] = calls * static_cast<double>(point.batch) / (now_seconds() - start);
  }

  // What one pass over all queries gives, which warms up too.
  struct Answers {
    Recall recall;
    double distances = 0;  // a query
    double expansions = 0;
  };

  Answers answer_all(const ann_index* index, const Point& point, Asking& asking) const {
    const uint64_t queries = queries_of(point);
    Neighbours all(queries, point.k);
    std::vector<uint64_t> some(uint64_t{point.batch} * point.k);
    uint64_t distances = 0;
    uint64_t expansions = 0;
    uint64_t asked = 0;
    for (uint64_t first = 0; first < queries; first += point.batch) {
      const ann_results results = search_batch(index, point, asking, first, 0, nullptr);
      distances += results.distance_count;
      expansions += results.expansion_count;
      asked += point.batch;
      if (point.buffers == Buffers::kHost) {
        some = asking.host_callers[0].ids;
      } else {
        asking.device_callers[0].ids.read(some.data(), some.size() * sizeof(uint64_t));
      }
      // Queries behind the last are the first ones again: asked, but not counted for recall.
      const uint64_t kept = std::min<uint64_t>(point.batch, queries - first);
      std::copy_n(some.begin(), kept * point.k,
                  all.ids.begin() + static_cast<std::ptrdiff_t>(first * point.k));
    }
    return {recall_of(all.ids, queries, point.k, truth_, rows_.rows, distance_),
            static_cast<double>(distances) / static_cast<double>(asked),
            static_cast<double>(expansions) / static_cast<double>(asked)};
  }

  Record record_of(const ann_index* index, const Point& point, const Answers& answers,
                   const Timing& timing) const {
    uint32_t beam = point.beam;
    if (beam == 0 && point.procedure != ANN_SEARCH_EXACT) {
      ann_index_beam(index, point.k, static_cast<float>(point.recall), &beam, nullptr);
    }
    const double answered = static_cast<double>(timing.calls) * point.batch;
    Record out;
    out["record"] = "search";
    out["algo_name"] = algorithm_name(point.procedure, point.warps);
    out["index_name"] = build_["index_name"];
    out["recall"] = answers.recall.by_id;
    out["throughput"] = answered / timing.wall;
    out["latency"] = timing.latency_mean;
    out["end_to_end"] = timing.wall;
    out["k"] = point.k;
    out["n_queries"] = queries_of(point);
    out["total_queries"] = static_cast<uint64_t>(answered);
    out["threads"] = point.threads;
    out["cpu_time"] = timing.cpu;
    out["recall_by_distance"] = answers.recall.by_distance;
    out["latency_p50"] = timing.latency_p50;
    out["latency_p95"] = timing.latency_p95;
    out["latency_p99"] = timing.latency_p99;
    out["first_call"] = build_["first_call"];
    out["batch"] = point.batch;
    out["mode"] = point.mode == Mode::kThroughput ? "throughput" : "latency";
    out["procedure"] = name_of(kProcedures, point.procedure);
    if (point.warps != 0) out["warps_per_query"] = point.warps;
    out["buffers"] = point.buffers == Buffers::kHost ? "host" : "device";
    out["beam"] = beam;
    if (point.recall > 0) out["asked_recall"] = point.recall;
    out["search_label"] =
        point.recall > 0 ? "recall=" + Record(point.recall).dump() : "beam=" + std::to_string(beam);
    out["distances_per_query"] = answers.distances;
    out["expansions_per_query"] = answers.expansions;
    out["seed"] = build_["seed"];
    out["peak_host_memory"] = peak_memory_bytes();
    out["device_memory"] = device_memory_in_use();
    out["index_size"] = build_["index_size"];
    out["build time"] = build_["time"];
    out["build threads"] = build_["threads"];
    out["build cpu_time"] = build_["cpu_time"];
    out["build GPU"] = build_["GPU"];
    return out;
  }

  void add_spreads(const std::map<size_t, std::vector<Record>>& of_point) {
    for (const auto& [point, records] : of_point) {
      if (records.empty()) continue;
      std::vector<const Record*> seeds;
      for (const Record& record : records) seeds.push_back(&record);
      const Record spread = spread_of(seeds);
      records_.add(spread);
      say("  over %zu seeds, k %u, %s: recall %.4f (%.4f to %.4f), %s /s (%s to %s)", seeds.size(),
          spread["k"].get<uint32_t>(), spread["search_label"].get<std::string>().c_str(),
          spread["recall"].get<double>(), spread["recall_min"].get<double>(),
          spread["recall_max"].get<double>(),
          with_commas(static_cast<uint64_t>(spread["throughput"].get<double>())).c_str(),
          with_commas(static_cast<uint64_t>(spread["throughput_min"].get<double>())).c_str(),
          with_commas(static_cast<uint64_t>(spread["throughput_max"].get<double>())).c_str());
    }
  }

  // A bar on a terminal; without one the lines of say() are all.
  void step(const char* what) {
    if (terminal_) {
      const double share = static_cast<double>(step_) / static_cast<double>(steps_);
      std::fprintf(stderr, "\r\033[K%s", bar_text(share, what).c_str());
      std::fflush(stderr);
    }
    ++step_;
  }

  template <typename... Values>
  void say(const char* format, Values... values) {
    if (terminal_) std::fprintf(stderr, "\r\033[K");
    std::fprintf(stderr, format, values...);
    std::fputc('\n', stderr);
  }

  const Vectors& rows_;
  const Vectors& queries_;
  const GroundTruth& truth_;
  const SweepParams& params_;
  ann_monitor* monitor_;
  Records& records_;
  PairDistance distance_;
  std::vector<Point> points_;
  uint64_t device_bytes_before_;
  Record build_;
  Way way_{};
  size_t step_ = 0;
  size_t steps_ = 0;
  const bool terminal_ = isatty(STDERR_FILENO) != 0;
};

}  // namespace

void run_sweep(const Vectors& rows, const Vectors& queries, const GroundTruth& truth,
               const SweepParams& params, ann_monitor* monitor, Records& records) {
  Sweep(rows, queries, truth, params, monitor, records).run();
}

}  // namespace bench
