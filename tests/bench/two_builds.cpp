// two_builds: one build of the library beside another, in one process and by turns.
//
//   two_builds OLD.so NEW.so ROWS QUERIES [--cuda] [--degree 64] [--batch 1,1000,10000] ...
//
// Both libraries are opened by their paths, each builds its index of the same rows, and both answer the same calls in
// turns, so that what else the machine does falls on both. A line is one kind of call: the median of the ratios, NEW's
// time over OLD's, of `rounds` pairs, and for each library the median time of a call in microseconds, the recall that
// it got, and the distances and expansions of a query. On the CPU the time is that of the calling thread, with one thread
// unless --threads says otherwise; on a device it is that from host to host, with queries and answers in device memory.
//
// --beam B names an effort, so that both do the same work; --recall R lets each choose its own. A struct of this header
// is longer than an older library knows; what it does not know is zero and stays unread.

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "command_line.h"
#include "device_memory.h"
#include "exact_search.h"
#include "handles.h"
#include "recall.h"
#include "timing.h"
#include "vector_file.h"

namespace {

using namespace bench;

struct Options {
  std::string libraries[2];
  std::string rows_file;
  std::string queries_file;
  bool on_device = false;
  int32_t metric = ANN_METRIC_L2;
  uint64_t rows_max = 0;  // 0: all
  uint32_t degree = 0;
  uint32_t threads = 1;
  uint32_t rounds = 15;
  uint32_t builds = 3;
  std::vector<uint32_t> batches = {10000};
  std::vector<uint32_t> k = {10};
  std::vector<double> recalls = {0.95, 0.99};
  std::vector<uint32_t> beams;
  int32_t procedure = ANN_SEARCH_AUTO;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return percentile(values, 0.5);
}

double thread_seconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// A library with one index.
class Library {
 public:
  explicit Library(const std::string& path) : handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) throw std::runtime_error(dlerror());
  }
  ~Library() { drop(); }  // the library stays: a CUDA runtime cannot be unloaded
  Library(const Library&) = delete;

  void build(const ann_index_params& shape, const ann_matrix& rows, const ann_build_params& params) {
    drop();
    check(call<decltype(&ann_index_create)>("ann_index_create")(nullptr, &shape, &index_, &error_), error_,
          "making an index");
    check(call<decltype(&ann_build)>("ann_build")(index_, &rows, nullptr, &params, nullptr, &error_), error_,
          "building");
  }

  void search(const ann_matrix& queries, const ann_search_params& params, ann_results* results) {
    check(search_(index_, &queries, &params, results, nullptr, &error_), error_, "searching");
  }

 private:
  template <class Function>
  Function call(const char* name) const {
    void* const found = dlsym(handle_, name);
    if (found == nullptr) throw std::runtime_error(std::string("the library has no ") + name);
    return reinterpret_cast<Function>(found);
  }
  void drop() {
    if (index_ != nullptr) call<decltype(&ann_index_free)>("ann_index_free")(index_);
    index_ = nullptr;
  }

  void* handle_;
  decltype(&ann_search_batch) search_ = call<decltype(&ann_search_batch)>("ann_search_batch");
  ann_index* index_ = nullptr;
  ann_error error_ = ANN_ERROR_INIT;
};

class Comparison {
 public:
  Comparison(const Options& options, const Vectors& rows, const Vectors& queries)
      : options_(options),
        rows_(rows),
        queries_(queries),
        old_(options.libraries[0]),
        new_(options.libraries[1]) {
    ExactParams exact;
    exact.k = *std::max_element(options.k.begin(), options.k.end());
    exact.metric = options.metric;
    exact.device = device();
    truth_ = exact_neighbours(rows, queries.view(), exact);
    if (!options.on_device) return;
    const uint64_t bytes = queries.rows * queries.row_bytes();
    there_ = std::make_unique<DeviceBuffer>(ANN_DEVICE_CUDA, bytes);
    there_->fill(queries.view().data, bytes);
  }

  void all() {
    build();
    for (const uint32_t k : options_.k) {
      for (const uint32_t batch : options_.batches) {
        if (batch > queries_.rows) continue;
        for (const double recall : options_.recalls) search(k, batch, recall, 0);
        for (const uint32_t beam : options_.beams) search(k, batch, 0, beam);
      }
    }
  }

 private:
  int32_t device() const { return options_.on_device ? ANN_DEVICE_CUDA : ANN_DEVICE_CPU; }

  void build() {
    ann_index_params shape = ANN_INDEX_PARAMS_INIT;
    shape.dim = rows_.dim;
    shape.metric = options_.metric;
    ann_build_params params = ANN_BUILD_PARAMS_INIT;
    params.device = device();
    params.degree = options_.degree;
    std::vector<double> seconds[2];
    std::vector<double> ratios;
    for (uint32_t round = 0; round < options_.builds; ++round) {
      double taken[2];
      for (const uint32_t turn : {round % 2, 1 - round % 2}) {
        const double start = now_seconds();
        library(turn).build(shape, rows_.view(), params);
        taken[turn] = now_seconds() - start;
        seconds[turn].push_back(taken[turn]);
      }
      if (round > 0 || options_.builds == 1) ratios.push_back(taken[1] / taken[0]);
    }
    std::printf("build: %.3f of %.4f and %.4f s\n", median(ratios), median(seconds[0]), median(seconds[1]));
    std::fflush(stdout);
  }

  Library& library(uint32_t turn) { return turn == 0 ? old_ : new_; }

  double recall_of(const Neighbours& found, uint64_t count) const {
    uint64_t hits = 0;
    for (uint64_t query = 0; query < count; ++query)
      hits += count_near(truth_, query, found.distances.data() + query * found.k, found.k);
    return static_cast<double>(hits) / static_cast<double>(count * found.k);
  }

  void search(uint32_t k, uint32_t batch, double recall, uint32_t beam) {
    ann_search_params params = ANN_SEARCH_PARAMS_INIT;
    params.device = device();
    params.threads = options_.threads;
    params.recall = static_cast<float>(recall);
    params.beam = beam;
    params.procedure = options_.procedure;
    Neighbours answers[2] = {{queries_.rows, k}, {queries_.rows, k}};
    Work work[2];
    for (const uint32_t turn : {0u, 1u}) work[turn] = answer_all(library(turn), params, batch, answers[turn]);
    const uint64_t count = queries_.rows / batch * batch;
    std::vector<double> times[2];
    std::vector<double> ratios;
    for (uint32_t round = 0; round < options_.rounds; ++round) {
      double taken[2];
      for (const uint32_t turn : {round % 2, 1 - round % 2}) {
        taken[turn] = time_of(library(turn), params, batch, k);
        times[turn].push_back(taken[turn]);
      }
      ratios.push_back(taken[1] / taken[0]);
    }
    const std::string effort =
        beam != 0 ? "beam " + std::to_string(beam) : "asked " + std::to_string(recall).substr(0, 5);
    std::printf(
        "k %u, batch %u, %s: %.3f of %.2f and %.2f us; recall %.4f %.4f, distances %.1f %.1f, expansions "
        "%.1f %.1f\n",
        k, batch, effort.c_str(), median(ratios), 1e6 * median(times[0]), 1e6 * median(times[1]),
        recall_of(answers[0], count), recall_of(answers[1], count), work[0].distances, work[1].distances,
        work[0].expansions, work[1].expansions);
    std::fflush(stdout);
  }

  /// Mean counts of a query.
  struct Work {
    double distances = 0;
    double expansions = 0;
  };

  /// Host memory, for recall and counts.
  Work answer_all(Library& library, const ann_search_params& params, uint32_t batch, Neighbours& answers) {
    Work work;
    uint64_t first = 0;
    for (; first + batch <= queries_.rows; first += batch) {
      const ann_matrix part = queries_.view(first, batch);
      ann_results results = answers.view(first, batch);
      library.search(part, params, &results);
      work.distances += static_cast<double>(results.distance_count);
      work.expansions += static_cast<double>(results.expansion_count);
    }
    return {work.distances / static_cast<double>(first), work.expansions / static_cast<double>(first)};
  }

  /// Seconds of a call, over as many calls as take a while: all queries, or a hundred small batches.
  double time_of(Library& library, const ann_search_params& params, uint32_t batch, uint32_t k) {
    const uint64_t calls = std::min<uint64_t>(queries_.rows / batch, options_.on_device ? 100 : 1000);
    if (options_.on_device) return time_on_device(library, params, batch, k, calls);
    Neighbours answers(batch, k);
    const double start = options_.threads == 1 ? thread_seconds() : now_seconds();
    for (uint64_t call = 0; call < calls; ++call) {
      const ann_matrix part = queries_.view(call * batch, batch);
      ann_results results = answers.view(0, batch);
      library.search(part, params, &results);
    }
    const double end = options_.threads == 1 ? thread_seconds() : now_seconds();
    return (end - start) / static_cast<double>(calls);
  }

  double time_on_device(Library& library, const ann_search_params& params, uint32_t batch, uint32_t k,
                        uint64_t calls) {
    const DeviceBuffer ids(ANN_DEVICE_CUDA, uint64_t{batch} * k * sizeof(uint64_t));
    const DeviceBuffer distances(ANN_DEVICE_CUDA, uint64_t{batch} * k * sizeof(float));
    const double start = now_seconds();
    for (uint64_t call = 0; call < calls; ++call) {
      ann_matrix part = queries_.view(call * batch, batch);
      part.data = there_->at(call * batch * queries_.row_bytes());
      part.space = ANN_DEVICE_CUDA;
      ann_results results = ANN_RESULTS_INIT;
      results.k = k;
      results.rows = batch;
      results.ids = static_cast<uint64_t*>(ids.at(0));
      results.distances = static_cast<float*>(distances.at(0));
      results.space = ANN_DEVICE_CUDA;
      library.search(part, params, &results);
    }
    return (now_seconds() - start) / static_cast<double>(calls);
  }

  const Options& options_;
  const Vectors& rows_;
  const Vectors& queries_;
  Library old_;
  Library new_;
  std::unique_ptr<DeviceBuffer> there_;
  GroundTruth truth_;  // of the most neighbours that are asked for
};

void add_options(CLI::App& app, Options& options) {
  app.add_option("old", options.libraries[0], "a libgannet.so")->required();
  app.add_option("new", options.libraries[1], "another, which is compared with it")->required();
  app.add_option("rows", options.rows_file, "vectors")->required();
  app.add_option("queries", options.queries_file, "queries")->required();
  app.add_flag("--cuda", options.on_device, "on the first CUDA device");
  app.add_option("--metric", options.metric, "l2, ip or cosine")
      ->transform(one_of(kMetrics))
      ->type_name("NAME");
  app.add_option("--procedure", options.procedure, "that answers (default: auto)")
      ->transform(one_of(kProcedures))
      ->type_name("NAME");
  app.add_option("--rows-max", options.rows_max, "only the first of the rows");
  app.add_option("--degree", options.degree, "edges of a row (default: the library's)");
  app.add_option("--threads", options.threads, "of the CPU")->capture_default_str();
  app.add_option("--rounds", options.rounds, "pairs of calls")->capture_default_str();
  app.add_option("--builds", options.builds, "pairs of builds")
      ->capture_default_str()
      ->check(CLI::Range(1u, 1000u));
  const auto list = [&](const char* name, auto& values, const char* text) {
    return app.add_option(name, values, text)->delimiter(',');
  };
  list("--batch", options.batches, "queries a call")->check(CLI::Range(1u, 1u << 20));
  list("-k", options.k, "neighbours")->check(CLI::Range(1u, 1000u));
  list("--recall", options.recalls, "recalls that are asked for");
  list("--beam", options.beams, "beams that are given");
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Times one build of Gannet beside another.", "two_builds");
  add_options(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& fault) {
    return app.exit(fault) == 0 ? 0 : 2;
  }
  try {
    VectorReader reader(options.rows_file);
    const uint64_t most = options.rows_max == 0 ? reader.rows() : std::min(options.rows_max, reader.rows());
    const Vectors rows = reader.read(0, most);
    const Vectors queries = read_vectors(options.queries_file);
    Comparison(options, rows, queries).all();
  } catch (const std::exception& fault) {
    std::fprintf(stderr, "two_builds: %s\n", fault.what());
    return 1;
  }
  return 0;
}
