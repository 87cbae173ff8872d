// which_wins: which graph and which procedure answers fastest, by set, batch, k and recall, from one run.
//
//   which_wins ROWS QUERIES --out PREFIX --data NAME [--graph auto,ggnn,tsdg] [--device cuda] ...
//
// Builds each graph, turns the knob of each procedure until the greatest of the wanted recalls is reached, with all
// queries in one call, and times calls of each batch at the first value that reaches each recall, host to host. AUTO
// is asked for each recall instead, and its recall is that of the calls that are timed: it may take another procedure
// for another batch.
//
// A graph is a name of ann.h's ANN_GRAPH_* and, after slashes, parameters of its build:
// tsdg/diversify=dpg/degree=32/knn_degree=200/alpha=1.1/bound=5; lists=400 gives it the true lists of so many
// rows, by exact search, which the time of a build leaves out. Likewise a procedure, with parameters of its
// search: ggnn/queue=22/visited=2016/iterations=2000; cagra/asked turns the recall that is asked for, whatever
// its own knob is. PREFIX.jsonl gets one record a line, which which_wins.py makes a page of:
//
//   run      machine, compiler, commit, command, data
//   build    of each graph: seconds, phases, edges that stages have left, peak memory of the device and its estimate
//   sweep    one value of a knob: recall, distances and expansions a query
//   point    graph, procedure, k, batch, wanted recall: the knob that reached it, seconds a call
//
// An answer counts as found if it is no farther than the k-th true neighbour. All rows are compared with the first
// graph alone. Ctrl-C keeps what was measured.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <exception>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "command_line.h"
#include "exact_search.h"
#include "handles.h"
#include "names.h"
#include "progress.h"
#include "recall.h"
#include "records.h"
#include "standard_streams.h"
#include "timing.h"
#include "vector_file.h"

namespace {

using namespace bench;

struct Options {
  std::string rows_file;
  std::string queries_file;
  std::string out;
  std::string data;
  std::string commit;
  std::string device = "auto";
  int32_t metric = ANN_METRIC_L2;
  uint64_t rows_max = 0;  // 0: all
  std::vector<std::string> graphs = {"auto", "ggnn", "tsdg"};
  std::vector<std::string> procedures;  // none: all that the device does
  std::vector<uint32_t> k = {10, 100};
  std::vector<uint32_t> batches = {1, 10, 100, 1000, 10000};
  std::vector<double> recalls = {0.90, 0.95, 0.99};
  uint32_t threads = 0;
  double seconds = 0.02;  // of calls that are timed, at least
  double patience = 2.0;  // a knob is turned no further once a sweep's call takes so long
};

// --- Knobs --------------------------------------------------------------------------------------

/// What is turned to get a higher recall, and the values that are tried.
struct Knob {
  const char* name;
  std::vector<double> values;
  void (*set)(ann_search_params& params, double value);
};

void set_beam(ann_search_params& params, double value) { params.beam = static_cast<uint32_t>(value); }
void set_walks(ann_search_params& params, double value) { params.walks = static_cast<uint32_t>(value); }
void set_stretch(ann_search_params& params, double value) { params.stretch = static_cast<float>(value); }
void set_delta(ann_search_params& params, double value) { params.delta = static_cast<float>(value); }
void set_recall(ann_search_params& params, double value) { params.recall = static_cast<float>(value); }
void set_nothing(ann_search_params&, double) {}

Knob knob_of(int32_t procedure, uint32_t k) {
  const auto from_k = [k](std::vector<double> values, double step) {
    std::erase_if(values, [&](double value) { return value * step < k; });
    return values;
  };
  switch (procedure) {
    case ANN_SEARCH_EXACT:
      return {"none", {0}, set_nothing};
    case ANN_SEARCH_CAGRA_SINGLE_CTA:
    case ANN_SEARCH_CAGRA_MULTI_CTA:
      return {"beam", from_k({32, 64, 96, 128, 160, 192, 256, 320, 384, 512, 768, 1024}, 1), set_beam};
    case ANN_SEARCH_GGNN:
      return {"stretch", {1, 1.02, 1.04, 1.07, 1.1, 1.15, 1.2, 1.3, 1.4, 1.5, 1.7, 2}, set_stretch};
    case ANN_SEARCH_TSDG_SMALL:
      return {"walks", from_k({1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64}, 32), set_walks};
    case ANN_SEARCH_TSDG_LARGE:
    case ANN_SEARCH_SLACK:
      return {"delta",
              {1, 1.005, 1.01, 1.015, 1.02, 1.03, 1.04, 1.05, 1.06, 1.08, 1.1, 1.15, 1.2, 1.3},
              set_delta};
    case ANN_SEARCH_TWO_LISTS:  // their slack is what calibration has found for a recall
      return {"asked",
              {0.8, 0.85, 0.88, 0.9, 0.91, 0.92, 0.93, 0.94, 0.95, 0.96, 0.97, 0.98, 0.985, 0.99, 0.995},
              set_recall};
    default:
      return {
          "beam",
          from_k({10, 12, 16, 20, 24, 32, 40, 48, 64, 80, 100, 128, 160, 200, 256, 320, 400, 512, 768, 1024},
                 1),
          set_beam};
  }
}

/// A procedure, with parameters of its search.
struct Way {
  std::string name;
  int32_t procedure = ANN_SEARCH_AUTO;
  ann_search_params params = ANN_SEARCH_PARAMS_INIT;
  Knob (*knob)(int32_t procedure, uint32_t k) = knob_of;
};

/// The parts of a name, between slashes.
std::vector<std::string> parts_of(const std::string& name) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t end = 0; end != std::string::npos; begin = end + 1) {
    end = name.find('/', begin);
    parts.push_back(name.substr(begin, end - begin));
  }
  return parts;
}

Way way_of(const std::string& name) {
  Way way;
  way.name = name;
  const std::vector<std::string> parts = parts_of(name);
  way.procedure = way.params.procedure = kProcedures.at(parts[0]);
  for (size_t i = 1; i < parts.size(); ++i) {
    const size_t sign = parts[i].find('=');
    const std::string parameter = parts[i].substr(0, sign);
    const auto number = [&] { return static_cast<uint32_t>(std::stoul(parts[i].substr(sign + 1))); };
    if (parameter == "asked")
      way.knob = [](int32_t, uint32_t k) { return knob_of(ANN_SEARCH_TWO_LISTS, k); };
    else if (parameter == "beam")
      way.params.beam = number();
    else if (parameter == "queue")
      way.params.queue = number();
    else if (parameter == "visited")
      way.params.visited = number();
    else if (parameter == "iterations")
      way.params.iterations_max = number();
    else if (parameter == "occlusion")
      way.params.occlusion_max = number();
    else if (parameter == "hops")
      way.params.hops_max = number();
    else if (parameter == "warps")
      way.params.warps_per_query = number();
    else if (parameter == "stored")
      way.params.compare = ANN_COMPARE_STORED;
    else
      throw std::invalid_argument("a procedure has no parameter " + parameter);
  }
  return way;
}

std::vector<Way> ways_of(const Options& options, int32_t device) {
  std::vector<std::string> names = options.procedures;
  if (names.empty()) {
    names = {"best_first", "cagra_single_cta", "cagra_multi_cta", "ggnn", "tsdg_small", "tsdg_large", "auto",
             "exact"};
    if (device >= ANN_DEVICE_CUDA)
      names.insert(names.begin(), {"two_lists", "two_lists/warps=8", "two_lists/warps=16"});
    else
      names.insert(names.begin(), {"slack", "tsdg"});
  }
  std::vector<Way> ways;
  for (const std::string& name : names) ways.push_back(way_of(name));
  return ways;
}

// --- Graphs -------------------------------------------------------------------------------------

const Names kDiversifications = {{"tsdg", ANN_DIVERSIFY_TSDG},
                                 {"gd", ANN_DIVERSIFY_GD},
                                 {"dpg", ANN_DIVERSIFY_DPG},
                                 {"ssg", ANN_DIVERSIFY_SSG},
                                 {"vamana", ANN_DIVERSIFY_VAMANA}};

void set_parameter(ann_build_params& params, const std::string& name, const std::string& value) {
  const auto number = [&] { return static_cast<uint32_t>(std::stoul(value)); };
  if (name == "diversify")
    params.diversify = kDiversifications.at(value);
  else if (name == "degree")
    params.degree = number();
  else if (name == "knn_degree")
    params.knn_degree = number();
  else if (name == "alpha")
    params.alpha = std::stof(value);
  else if (name == "bound")
    params.occlusion_bound = number();
  else if (name == "pool")
    params.pool = number();
  else if (name == "lists")
    params.knn = ANN_KNN_GIVEN, params.knn_degree = number();
  else
    throw std::invalid_argument("a graph has no parameter " + name);
}

ann_build_params build_params_of(const std::string& graph) {
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  const std::vector<std::string> parts = parts_of(graph);
  params.graph = kGraphs.at(parts[0]);
  for (size_t i = 1; i < parts.size(); ++i) {
    const size_t sign = parts[i].find('=');
    set_parameter(params, parts[i].substr(0, sign),
                  sign == std::string::npos ? "" : parts[i].substr(sign + 1));
  }
  return params;
}

uint64_t device_bytes_in_use(int32_t device) {
  ann_device_info info = ANN_DEVICE_INFO_INIT;
  if (device < ANN_DEVICE_CUDA || ann_device_get_info(device, &info, nullptr) != ANN_OK) return 0;
  return info.memory_total - info.memory_free;
}

/// How long each phase of a build takes and how much memory of its device, looked at every millisecond.
class Watch {
 public:
  Watch(const ann_monitor* monitor, int32_t device)
      : monitor_(monitor),
        device_(device),
        before_(device_bytes_in_use(device)),
        thread_([this] { look(); }) {}
  ~Watch() { stop(); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  void stop() {
    ended_ = true;
    if (thread_.joinable()) thread_.join();
  }
  const Record& phases() const { return phases_; }
  uint64_t peak() const { return peak_; }

 private:
  void look() {
    ann_progress before = ANN_PROGRESS_INIT;
    ann_monitor_progress(monitor_, &before, nullptr);
    const std::string stale = before.phase;  // of the call before
    std::string phase = stale;
    double start = now_seconds();
    const auto end_phase = [&] {
      if (phase != stale) phases_[phase] = phases_.value(phase, 0.0) + now_seconds() - start;
    };
    while (!ended_) {
      ann_progress progress = ANN_PROGRESS_INIT;
      ann_monitor_progress(monitor_, &progress, nullptr);
      if (phase != progress.phase) {
        end_phase();
        phase = progress.phase;
        start = now_seconds();
      }
      const uint64_t bytes = device_bytes_in_use(device_);
      peak_ = std::max(peak_, bytes - std::min(bytes, before_));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    end_phase();
  }

  const ann_monitor* monitor_;
  int32_t device_;
  uint64_t before_;
  Record phases_ = Record::object();
  uint64_t peak_ = 0;
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

// --- The run ------------------------------------------------------------------------------------

/// What calls gave, a query each.
struct Answered {
  double recall = 0;
  double distances = 0;
  double expansions = 0;
  double seconds = 0;  // a call, the median
  int32_t procedure = 0;
  uint32_t warps = 0;  // of a query of two lists

  /// As ways are named.
  std::string name() const {
    return name_of(kProcedures, procedure) + (warps > 1 ? "/warps=" + std::to_string(warps) : "");
  }
};

class Run {
 public:
  Run(const Options& options, const Vectors& rows, const Vectors& queries, ann_monitor* monitor,
      Records& records)
      : options_(options),
        device_(device_of(options.device)),
        ways_(ways_of(options, device_)),
        rows_(rows),
        queries_(queries),
        monitor_(monitor),
        records_(records) {
    ExactParams exact;
    exact.k = *std::max_element(options.k.begin(), options.k.end());
    exact.metric = options.metric;
    exact.device = device_;
    exact.threads = options.threads;
    exact.monitor = monitor;
    truth_ = exact_neighbours(rows, queries.view(), exact);
    asked_ = queries;
    const uint32_t most = *std::max_element(options.batches.begin(), options.batches.end());
    while (asked_.rows < queries.rows + most) {
      asked_.data.insert(asked_.data.end(), queries.data.begin(), queries.data.end());
      asked_.rows += queries.rows;
    }
  }

  void all() {
    for (const std::string& graph : options_.graphs) {
      graph_ = graph;
      const Index index = build();
      for (const uint32_t k : options_.k) {
        for (const Way& way : ways_) {
          const bool again = way.procedure == ANN_SEARCH_EXACT && graph != options_.graphs.front();
          if (!again) try_way(index.get(), way, k);
        }
      }
    }
  }

 private:
  Index build() {
    Index index = make_index(rows_.dim, options_.metric);
    ann_build_params params = build_params_of(graph_);
    params.device = device_;
    params.threads = options_.threads;
    if (params.knn == ANN_KNN_GIVEN) {
      if (lists_.size() != rows_.rows * params.knn_degree) lists_ = true_lists(params.knn_degree);
      params.knn_graph = lists_.data();
    }
    const ann_matrix matrix = rows_.view();
    ann_index_params shape = ANN_INDEX_PARAMS_INIT;
    shape.dim = rows_.dim;
    shape.metric = options_.metric;
    ann_plan plan = ANN_PLAN_INIT;
    ann_error error = ANN_ERROR_INIT;
    check(ann_estimate(&shape, rows_.rows, rows_.element, &params, &plan, &error), error,
          "estimating " + graph_);
    Record record;
    record["record"] = "build";
    record["graph"] = graph_;
    Watch watch(monitor_, device_);
    const double start = now_seconds();
    check(ann_build(index.get(), &matrix, nullptr, &params, monitor_, &error), error, "building " + graph_);
    record["seconds"] = now_seconds() - start;
    watch.stop();
    record["phases"] = watch.phases();
    record["device_bytes"] = watch.peak();
    record["device_bytes_estimated"] = plan.device_bytes;
    if (device_ >= ANN_DEVICE_CUDA)
      check(ann_index_place(index.get(), device_, monitor_, &error), error, "placing");
    ann_graph_stats stats = ANN_GRAPH_STATS_INIT;
    check(ann_index_graph_stats(index.get(), &stats, &error), error, "measuring " + graph_);
    const auto a_row = [&](uint64_t edges) {
      return static_cast<double>(edges) / static_cast<double>(rows_.rows);
    };
    record["edges"] = a_row(stats.edges);
    record["unreachable"] = stats.unreachable;
    if (stats.knn_edges != 0) {
      record["knn_edges"] = a_row(stats.knn_edges);
      record["relaxed_share"] =
          static_cast<double>(stats.relaxed_edges) / static_cast<double>(stats.knn_edges);
      record["joined_edges"] = a_row(stats.joined_edges);
      record["soft_edges"] = a_row(stats.soft_edges);
    }
    tell(record);
    return index;
  }

  /// The nearest other rows of each row.
  std::vector<uint32_t> true_lists(uint32_t length) const {
    ExactParams exact;
    exact.k = length + 1;
    exact.metric = options_.metric;
    exact.device = device_;
    exact.threads = options_.threads;
    exact.monitor = monitor_;
    const GroundTruth near = exact_neighbours(rows_, rows_.view(), exact);
    std::vector<uint32_t> lists(rows_.rows * length, UINT32_MAX);
    for (uint64_t row = 0; row < rows_.rows; ++row) {
      uint32_t* list = lists.data() + row * length;
      const int32_t* ids = near.ids.data() + row * near.k;
      for (uint32_t i = 0, kept = 0; i < near.k && kept < length; ++i) {
        if (ids[i] >= 0 && static_cast<uint64_t>(ids[i]) != row) list[kept++] = static_cast<uint32_t>(ids[i]);
      }
    }
    return lists;
  }

  /// Nothing where the library says that it does not do this: k beyond a procedure's, a metric.
  void try_way(const ann_index* index, const Way& way, uint32_t k) {
    try {
      if (way.procedure == ANN_SEARCH_AUTO)
        time_auto(index, way, k);
      else
        time_way(index, way, k);
    } catch (const AnnError& fault) {
      if (fault.status != ANN_UNSUPPORTED && fault.status != ANN_LIMIT) throw;
      Record record = record_of("skipped", way, k);
      record["reason"] = fault.what();
      tell(record);
    }
  }

  void time_way(const ann_index* index, const Way& way, uint32_t k) {
    const Knob knob = way.knob(way.procedure, k);
    size_t wanted = 0;
    for (const double value : knob.values) {
      ann_search_params params = params_of(way);
      knob.set(params, value);
      const auto tried = try_value(index, params, k);
      if (!tried) continue;
      const Answered swept = *tried;
      Record record = record_of("sweep", way, k);
      record["knob"] = knob.name;
      record["value"] = value;
      record["recall"] = swept.recall;
      record["distances"] = swept.distances;
      record["expansions"] = swept.expansions;
      tell(record);
      const size_t first = wanted;
      while (wanted < options_.recalls.size() && swept.recall >= options_.recalls[wanted]) ++wanted;
      if (first != wanted) time_batches(index, way, params, knob.name, value, k, first, wanted, swept.recall);
      if (wanted == options_.recalls.size() || swept.seconds > options_.patience) return;
    }
  }

  /// Nothing of a value that the procedure refuses for this k, as too few walks.
  std::optional<Answered> try_value(const ann_index* index, const ann_search_params& params, uint32_t k) {
    try {
      return ask(index, params, static_cast<uint32_t>(queries_.rows), k, 1, 0);
    } catch (const AnnError& fault) {
      if (fault.status != ANN_INVALID_ARGUMENT) throw;
      return std::nullopt;
    }
  }

  /// One measurement stands for all recalls that a value is the first to reach.
  void time_batches(const ann_index* index, const Way& way, const ann_search_params& params, const char* knob,
                    double value, uint32_t k, size_t first, size_t last, double recall) {
    for (const uint32_t batch : options_.batches) {
      const Answered answered = ask(index, params, batch, k, 3, options_.seconds);
      for (size_t i = first; i < last; ++i)
        add_point(way, knob, value, k, batch, options_.recalls[i], recall, answered);
    }
  }

  void time_auto(const ann_index* index, const Way& way, uint32_t k) {
    constexpr uint32_t kQueries = 1000;  // asked at least, since each batch has a recall of its own
    for (const double recall : options_.recalls) {
      for (const uint32_t batch : options_.batches) {
        ann_search_params params = params_of(way);
        params.recall = static_cast<float>(recall);
        const uint32_t calls = std::max<uint32_t>(3, std::min<uint64_t>(queries_.rows, kQueries) / batch);
        const Answered answered = ask(index, params, batch, k, calls, options_.seconds);
        add_point(way, answered.name().c_str(), recall, k, batch, recall, answered.recall, answered);
      }
    }
  }

  void add_point(const Way& way, const char* knob, double value, uint32_t k, uint32_t batch, double wanted,
                 double recall, const Answered& answered) {
    Record record = record_of("point", way, k);
    record["batch"] = batch;
    record["wanted"] = wanted;
    record["knob"] = knob;
    record["value"] = value;
    record["recall"] = recall;
    record["distances"] = answered.distances;
    record["expansions"] = answered.expansions;
    record["seconds"] = answered.seconds;
    tell(record);
  }

  ann_search_params params_of(const Way& way) const {
    ann_search_params params = way.params;
    params.device = device_;
    params.threads = options_.threads;
    return params;
  }

  /// Two calls to warm up where times count, then `calls` and as many more as `seconds` take. A first query is any.
  Answered ask(const ann_index* index, const ann_search_params& params, uint32_t batch, uint32_t k,
               uint32_t calls, double seconds) {
    Neighbours found(batch, k);
    std::vector<double> times;
    Answered out;
    uint64_t hits = 0, asked = 0, distances = 0, expansions = 0;
    const uint32_t warm_up = seconds > 0 ? 2 : 0;
    double sum = 0;
    for (uint32_t call = 0; times.size() < calls || sum < seconds; ++call) {
      if (CancelOnInterrupt::happened()) throw Cancelled();
      const uint64_t first = uint64_t{call} * batch % queries_.rows;
      ann_results results = found.view(0, batch);
      const ann_matrix some = asked_.view(first, batch);
      ann_error error = ANN_ERROR_INIT;
      const double start = clock();
      check(ann_search_batch(index, &some, &params, &results, monitor_, &error), error, "searching");
      const double taken = clock() - start;
      out.procedure = results.procedure;
      out.warps = results.warps_per_query;
      if (call < warm_up) continue;
      times.push_back(taken);
      sum += taken;
      distances += results.distance_count;
      expansions += results.expansion_count;
      asked += batch;
      hits += count_hits(found, first, batch);
    }
    std::sort(times.begin(), times.end());
    out.seconds = percentile(times, 0.5);
    out.recall = static_cast<double>(hits) / static_cast<double>(asked * k);
    out.distances = static_cast<double>(distances) / static_cast<double>(asked);
    out.expansions = static_cast<double>(expansions) / static_cast<double>(asked);
    return out;
  }

  /// One thread of the CPU is timed by the processor time that it takes, whatever else the machine does.
  double clock() const {
    if (device_ >= ANN_DEVICE_CUDA || options_.threads != 1) return now_seconds();
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }

  uint64_t count_hits(const Neighbours& found, uint64_t first, uint32_t batch) const {
    uint64_t hits = 0;
    for (uint64_t i = 0; i < batch; ++i) {
      const uint64_t query = (first + i) % queries_.rows;
      hits += count_near(truth_, query, found.distances.data() + i * found.k, found.k);
    }
    return hits;
  }

  Record record_of(const char* kind, const Way& way, uint32_t k) const {
    Record record;
    record["record"] = kind;
    record["graph"] = graph_;
    record["procedure"] = way.name;
    record["k"] = k;
    return record;
  }

  void tell(const Record& record) {
    records_.add(record);
    std::fprintf(stderr, "%s\n", record.dump().c_str());
  }

  const Options& options_;
  int32_t device_;
  std::vector<Way> ways_;
  const Vectors& rows_;
  const Vectors& queries_;
  ann_monitor* monitor_;
  Records& records_;
  GroundTruth truth_;
  std::vector<uint32_t> lists_;  // the last that were given to a build
  Vectors asked_;                // the queries, repeated so that a batch may start at any of them
  std::string graph_;
};

void add_options(CLI::App& app, Options& options) {
  app.add_option("rows", options.rows_file, "vectors")->required();
  app.add_option("queries", options.queries_file, "queries")->required();
  app.add_option("--out", options.out, "prefix of the files to write")->required();
  app.add_option("--data", options.data, "name of the data")->required();
  app.add_option("--metric", options.metric, "l2, ip or cosine")
      ->transform(one_of(kMetrics))
      ->type_name("NAME");
  app.add_option("--device", options.device, "auto, cpu, cuda or cuda:N")->capture_default_str();
  app.add_option("--rows-max", options.rows_max, "only the first of the rows");
  app.add_option("--threads", options.threads, "of the CPU (default: all)");
  app.add_option("--seconds", options.seconds, "of calls that are timed, at least")->capture_default_str();
  app.add_option("--patience", options.patience, "seconds of a call after which a knob is turned no further")
      ->capture_default_str();
  app.add_option("--commit", options.commit, "commit to record (default: asks git)");
  const auto list = [&](const char* name, auto& values, const char* text) {
    return app.add_option(name, values, text)->delimiter(',');
  };
  list("--graph", options.graphs, "graphs, with parameters of their builds");
  list("--procedure", options.procedures, "ways to search, with parameters of theirs (default: all)");
  list("-k", options.k, "neighbours")->check(CLI::Range(1u, 1000u));
  list("--batch", options.batches, "queries a call")->check(CLI::Range(1u, 1u << 20));
  list("--recall", options.recalls, "recalls that are wanted, the least first")
      ->check(CLI::Range(0.001, 1.0));
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Measures which graph and which procedure of Gannet answers fastest.", "which_wins");
  add_options(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& fault) {
    return app.exit(fault) == 0 ? 0 : 2;
  }
  std::string command;
  for (int i = 0; i < argc; ++i) command += (i == 0 ? "" : " ") + std::string(argv[i]);
  try {
    VectorReader reader(options.rows_file);
    const Vectors rows =
        reader.read(0, options.rows_max == 0 ? reader.rows() : std::min(options.rows_max, reader.rows()));
    const Vectors queries = read_vectors(options.queries_file);
    Record described = describe_run(command, options.commit);
    described["data"] = options.data;
    described["rows"] = rows.rows;
    described["queries"] = queries.rows;
    described["device"] = device_of(options.device) >= ANN_DEVICE_CUDA ? "cuda" : "cpu";
    described["threads"] = options.threads;
    ann_device_info device = ANN_DEVICE_INFO_INIT;
    if (ann_device_get_info(device_of(options.device), &device, nullptr) == ANN_OK)
      described["device_name"] = device.name;
    Records records(options.out, described);
    const Monitor monitor = make_monitor();
    const CancelOnInterrupt on_interrupt(monitor.get());
    Run(options, rows, queries, monitor.get(), records).all();
  } catch (const Cancelled&) {
    std::fprintf(stderr, "which_wins: cancelled; what was measured is in %s.jsonl\n", options.out.c_str());
    return 130;
  } catch (const std::exception& fault) {
    std::fprintf(stderr, "which_wins: %s\n", fault.what());
    return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  keep_standard_descriptors();
  return finish_standard_output("which_wins", run(argc, argv), 1);
}
