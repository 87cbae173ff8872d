// gannet-bench: makes data, finds true neighbours, and measures builds and searches, over ann.h alone.
//
//   gannet-bench make KIND --out FOLDER ...     a set from a seed, by one of the laws of made_rows.h
//   gannet-bench grow FILE --out FOLDER ...     a real set made larger
//   gannet-bench truth ROWS QUERIES OUT ...     true neighbours by exact search
//   gannet-bench run ROWS QUERIES TRUTH ...     builds and searches, measured
//   gannet-bench inspect FILE                   what a file holds, and its local intrinsic dimension
//
// FOLDER gets base.* and query.*, as cuvs-bench calls them. Exit status: 0, 1 for a fault, 2 for wrong
// usage, 130 after Ctrl-C (what was measured by then is written).

#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "command_line.h"
#include "exact_search.h"
#include "handles.h"
#include "made_rows.h"
#include "names.h"
#include "progress.h"
#include "records.h"
#include "set_measures.h"
#include "standard_streams.h"
#include "sweep.h"
#include "timing.h"
#include "vector_file.h"

namespace {

using namespace bench;

// --- Options ------------------------------------------------------------------------------------

struct Options {
  std::string rows_file;
  std::string queries_file;
  std::string truth_file;
  std::string out;
  uint64_t rows = 0;
  uint64_t rows_max = 0;
  uint64_t queries_made = 1000;
  uint64_t queries_max = 0;  // 0: all
  std::string element = "f32";
  bool foreign_queries = false;
  bool head_only = false;
  MadeSet made;
  GrownRows::Shape grown;
  bool grown_shape_given = false;
  int repair_rounds = 12;
  int32_t grown_knn = ANN_KNN_AUTO;
  bool crowded_by_graph = false;
  ExactParams exact;
  uint64_t block_mb = 1024;
  std::string device = "auto";
  std::string data_name;
  std::string commit;
  SweepParams sweep;
};

const Names kLaws = {{"clusters", static_cast<int32_t>(Law::kClusters)},
                     {"uniform", static_cast<int32_t>(Law::kUniform)},
                     {"duplicates", static_cast<int32_t>(Law::kDuplicates)},
                     {"norms", static_cast<int32_t>(Law::kNorms)},
                     {"islands", static_cast<int32_t>(Law::kIslands)},
                     {"tree", static_cast<int32_t>(Law::kTree)},
                     {"copies", static_cast<int32_t>(Law::kCopies)},
                     {"echoes", static_cast<int32_t>(Law::kEchoes)},
                     {"densities", static_cast<int32_t>(Law::kDensities)},
                     {"scaled", static_cast<int32_t>(Law::kScaled)},
                     {"contrast", static_cast<int32_t>(Law::kContrast)},
                     {"outlier_column", static_cast<int32_t>(Law::kOutlierColumn)},
                     {"outlier_row", static_cast<int32_t>(Law::kOutlierRow)},
                     {"offset", static_cast<int32_t>(Law::kOffset)},
                     {"one_hot", static_cast<int32_t>(Law::kOneHot)},
                     {"corners", static_cast<int32_t>(Law::kCorners)},
                     {"shells", static_cast<int32_t>(Law::kShells)},
                     {"scales", static_cast<int32_t>(Law::kScales)},
                     {"one_vector", static_cast<int32_t>(Law::kOneVector)},
                     {"relu", static_cast<int32_t>(Law::kRelu)},
                     {"radii", static_cast<int32_t>(Law::kRadii)},
                     {"decades", static_cast<int32_t>(Law::kDecades)},
                     {"ones", static_cast<int32_t>(Law::kOnes)}};
const Names kBuffers = {{"host", static_cast<int32_t>(Buffers::kHost)},
                        {"device", static_cast<int32_t>(Buffers::kDevice)}};
const Names kModes = {{"latency", static_cast<int32_t>(Mode::kLatency)},
                      {"throughput", static_cast<int32_t>(Mode::kThroughput)}};

CLI::App* add_make(CLI::App& app, Options& options) {
  CLI::App* make = app.add_subcommand("make", "make a set from a seed");
  make->add_option("kind", options.made.law, names_of(kLaws))
      ->required()
      ->transform(one_of(kLaws))
      ->type_name("NAME");
  make->add_option("--out", options.out, "folder for base.* and query.*")->required();
  make->add_option("--rows", options.rows, "rows")->required();
  make->add_option("--dim", options.made.dim, "dimension")->capture_default_str();
  make->add_option("--intrinsic", options.made.intrinsic_dim, "intrinsic dimension of each cluster")
      ->capture_default_str();
  make->add_option("--clusters", options.made.clusters, "clusters, islands, or parts of each group of a tree")
      ->check(CLI::Range(1u, 1u << 20))
      ->capture_default_str();
  make->add_option("--distinct", options.made.distinct,
                   "duplicates, copies, echoes: distinct rows, as a share")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  make->add_option("--share", options.made.share, "densities: rows that lie close together, as a share")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  make->add_option(
          "--spread", options.made.spread,
          "islands, copies, echoes, densities: how far rows lie from the point they share, as a share of how "
          "far such points lie apart (default: 0.3, 0.02, 0.0001, 0.001)")
      ->check(CLI::PositiveNumber);
  make->add_option("--seed", options.made.seed, "seed")->capture_default_str();
  make->add_option("--element", options.element, "f32, u8 or i8 (rounded)")
      ->check(CLI::IsMember({"f32", "u8", "i8"}))
      ->capture_default_str();
  make->add_option("--queries", options.queries_made, "queries")->capture_default_str();
  make->add_flag("--ood", options.foreign_queries, "queries out of the rows' distribution");
  return make;
}

CLI::App* add_grow(CLI::App& app, Options& options) {
  CLI::App* grow = app.add_subcommand("grow", "make a real set larger");
  grow->add_option("file", options.rows_file, "the real set")->required();
  grow->add_option("--out", options.out, "folder for base.* and query.*")->required();
  grow->add_option("--rows", options.rows, "rows of the grown set")->required();
  grow->add_option("--seed", options.grown.seed, "seed")->capture_default_str();
  grow->add_option("--neighbours", options.grown.neighbours,
                   "real rows mixed in each made one, less one; more raises the intrinsic "
                   "dimension (default: found by trial)");
  grow->add_option("--spread", options.grown.spread, "how far made rows lie from their source")
      ->capture_default_str();
  grow->add_option("--queries", options.queries_made, "queries of the same law")->capture_default_str();
  grow->add_option("--repair", options.repair_rounds, "rounds that redraw rows with too many near siblings")
      ->capture_default_str();
  grow->add_flag("--crowded-by-graph", options.crowded_by_graph,
                 "look for such rows in a k-NN graph of the made rows, instead of proving of each row "
                 "that it has no such siblings: for sets that grow many times, and many dimensions");
  grow->add_option("--device", options.device, "where neighbours are found: auto, cpu, cuda or cuda:N")
      ->capture_default_str();
  grow->add_option("--knn", options.grown_knn,
                   "how: auto, cells, nn_descent or exact; auto differs between devices, and so do "
                   "the rows made then")
      ->transform(one_of(kKnnMethods))
      ->type_name("NAME");
  return grow;
}

CLI::App* add_truth(CLI::App& app, Options& options) {
  CLI::App* truth = app.add_subcommand("truth", "true neighbours by exact search");
  truth->add_option("rows", options.rows_file, "vectors")->required();
  truth->add_option("queries", options.queries_file, "queries")->required();
  truth->add_option("out", options.out, "file to write, .ibin or .ivecs")->required();
  truth->add_option("-k", options.exact.k, "neighbours of each query")
      ->check(CLI::Range(1u, ANN_BEAM_MAX))
      ->capture_default_str();
  truth->add_option("--metric", options.exact.metric, "l2, ip or cosine")
      ->transform(one_of(kMetrics))
      ->type_name("NAME");
  truth->add_option("--rows-max", options.rows_max, "only the first of the rows");
  truth->add_option("--queries-max", options.queries_max, "only the first of the queries");
  truth->add_option("--device", options.device, "auto (a GPU if there is one), cpu, cuda or cuda:N")
      ->capture_default_str();
  truth->add_option("--threads", options.exact.threads, "threads (default: all)");
  truth->add_option("--block-mb", options.block_mb, "rows in memory at once, in MiB")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  return truth;
}

CLI::App* add_run(CLI::App& app, Options& options) {
  CLI::App* run = app.add_subcommand("run", "build, search and measure");
  SweepParams& sweep = options.sweep;
  run->add_option("rows", options.rows_file, "vectors")->required();
  run->add_option("queries", options.queries_file, "queries")->required();
  run->add_option("truth", options.truth_file, "true neighbours")->required();
  run->add_option("--out", options.out, "prefix of the files to write")->required();
  run->add_option("--data", options.data_name, "name of the data (default: the file's)");
  run->add_option("--name", sweep.name, "what records call the library")->capture_default_str();
  run->add_option("--rows-max", options.rows_max, "only the first of the rows");
  run->add_option("--queries-max", options.queries_max, "only the first of the queries");
  run->add_option("--metric", sweep.metric, "l2, ip or cosine")
      ->transform(one_of(kMetrics))
      ->type_name("NAME");
  run->add_option("--element", sweep.element, "as stored: auto, f32, f16, bf16, i8 or u8")
      ->transform(one_of(kElements))
      ->type_name("NAME");
  run->add_option("--device", options.device, "auto, cpu, cuda or cuda:N")->capture_default_str();
  run->add_option("--build-threads", sweep.build_threads, "threads of a build (default: all)");
  run->add_option("--seconds", sweep.seconds_min, "seconds for each measurement, at least")
      ->capture_default_str();
  run->add_option("--single-queries", sweep.single_queries,
                  "queries measured one at a time, at most (default: all)");
  run->add_option("--commit", options.commit, "commit to record (default: asks git)");

  // Lists, which are combined each with each.
  const auto list = [&](const char* name, auto& values, const char* text) {
    return run->add_option(name, values, text)->delimiter(',')->group("Lists, all combined");
  };
  list("--seeds", sweep.seeds, "seeds of builds, for example 1,2,3,4,5");
  list("--degree", sweep.degrees, "edges a row");
  list("--knn-degree", sweep.knn_degrees, "neighbours known before pruning");
  list("--knn", sweep.knn_methods, "ways to the k-NN graph")
      ->transform(one_of(kKnnMethods))
      ->type_name("NAME");
  list("--graph", sweep.graphs, "graphs")->transform(one_of(kGraphs))->type_name("NAME");
  list("--detours", sweep.detours, "entries of k-NN lists that detours go by: near, whole")
      ->transform(one_of(kDetours))
      ->type_name("NAME");
  list("--reorder", sweep.reorderings, "what compares edges: rank, distance")
      ->transform(one_of(kReorderings))
      ->type_name("NAME");
  list("--calibrate", sweep.calibrations, "on, or off: builds that do not learn what a beam reaches")
      ->transform(one_of(kSwitches))
      ->type_name("NAME");
  list("--procedure", sweep.procedures, "ways to search; what a device does not do is left out")
      ->transform(one_of(kProcedures))
      ->type_name("NAME");
  list("--warps-per-query", sweep.warps, "warps that walk for a query of two_lists (default 1)")
      ->check(CLI::IsMember({1u, 8u, 16u}));
  run->add_option("--compare", sweep.compare, "what CAGRA's procedures compare: codes or stored")
      ->transform(one_of(kCompares))
      ->type_name("NAME");
  run->footer("knn: " + names_of(kKnnMethods) + "\nprocedures: " + names_of(kProcedures));
  list("-k", sweep.k, "neighbours (default 10)")->check(CLI::Range(1u, ANN_BEAM_MAX));
  list("--batch", sweep.batches, "queries a call (default 1)")->check(CLI::Range(1u, 1u << 24));
  list("--threads", sweep.threads, "threads of a search (default 1)")->check(CLI::Range(1u, 4096u));
  list("--mode", sweep.modes,
       "latency: one caller, whose calls may use the threads; throughput: as many callers as threads")
      ->transform(one_of(kModes))
      ->type_name("NAME");
  list("--buffers", sweep.buffers, "where queries and results lie: host, device (of a GPU)")
      ->transform(one_of(kBuffers))
      ->type_name("NAME");
  list("--beam", sweep.beams, "beams (default: 10 to 512, unless --recall is given)")
      ->check(CLI::Range(1u, ANN_BEAM_MAX));
  list("--recall", sweep.recalls, "recall to ask the library for")->check(CLI::Range(0.001, 1.0));
  return run;
}

// A limit that an option gave, 0 for none.
uint64_t limited(uint64_t count, uint64_t most) { return most == 0 ? count : std::min(count, most); }

// --- Commands -----------------------------------------------------------------------------------

void print_measures(const char* name, const SetMeasures& measures, bool siblings) {
  std::printf("%-6s local intrinsic dimension %.2f", name, measures.intrinsic_dim);
  if (siblings) {
    std::printf(
        "; of 10 true neighbours, of the same source: mean %.3f, at most %u, above 2 for "
        "%.2f %% of the rows",
        measures.siblings_mean, measures.siblings_max, 100 * measures.siblings_above_2);
  }
  std::printf("\n");
}

constexpr uint64_t kSampleRows = 1000;
constexpr uint64_t kTrialRows = 500;

int run_make(Options& options) {
  options.made.rows = options.rows;
  const MadeRows maker(options.made);
  const int32_t element = kElements.at(options.element);
  const std::string ending = options.element == "f32" ? ".fbin" : "." + options.element + "bin";
  // Bytes get the values spread over their range.
  const float scale = element == ANN_F32 ? 1.0f : options.made.law == Law::kUniform ? 255.0f : 20.0f;
  const float shift = element != ANN_U8 || options.made.law == Law::kUniform ? 0.0f : 128.0f;
  std::filesystem::create_directories(options.out);
  const auto write = [&](const std::string& name, Part part, uint64_t rows) {
    const std::string path = (std::filesystem::path(options.out) / (name + ending)).string();
    VectorWriter writer(path, element, options.made.dim);
    constexpr uint64_t block = 1 << 16;
    std::vector<float> values;
    std::vector<std::byte> stored;
    for (uint64_t first = 0; first < rows; first += block) {
      const uint64_t count = std::min(block, rows - first);
      values.resize(count * options.made.dim);
      maker.make(part, first, count, values.data());
      if (element != ANN_F32) {
        for (float& value : values) value = value * scale + shift;
      }
      stored.resize(values.size() * element_bytes(element));
      store_values(values.data(), values.size(), element, stored.data());
      writer.append(stored.data(), count);
    }
    writer.finish();
    std::printf("%s: %s rows of %u %s values\n", path.c_str(), with_commas(rows).c_str(), options.made.dim,
                options.element.c_str());
  };
  write("base", Part::kRows, options.rows);
  if (options.queries_made > 0) {
    write("query", options.foreign_queries ? Part::kForeignQueries : Part::kQueries, options.queries_made);
  }
  return 0;
}

// What growing takes, told as it goes on.
class Steps {
 public:
  explicit Steps(std::string first) : name_(std::move(first)) {}
  ~Steps() { tell(); }
  Steps(const Steps&) = delete;
  Steps& operator=(const Steps&) = delete;

  void next(const std::string& name) {
    tell();
    name_ = name;
    start_ = now_seconds();
    cpu_start_ = process_cpu_seconds();
  }

 private:
  void tell() const {
    std::fprintf(stderr, "  %-42s %8.1f s, %8.1f s of processor time\n", name_.c_str(),
                 now_seconds() - start_, process_cpu_seconds() - cpu_start_);
  }

  std::string name_;
  double start_ = now_seconds();
  double cpu_start_ = process_cpu_seconds();
};

// The number of neighbours to try next: between the two trials around the goal, or else onwards from the
// last one. 0: there is none left.
uint32_t next_neighbours(const std::map<uint32_t, double>& ratios, uint32_t degree) {
  uint32_t low = 2;
  uint32_t high = degree + 1;
  for (const auto& [neighbours, ratio] : ratios) {
    if (ratio < 1) low = std::max(low, neighbours);
    if (ratio > 1) high = std::min(high, neighbours);
  }
  if (low + 1 >= high) return 0;
  const auto power = [](double from, double ratio, double exponent) {
    return from * std::pow(ratio, -1 / exponent);
  };
  double guess = 0;
  if (ratios.contains(low) && ratios.contains(high)) {
    const double exponent = std::log(ratios.at(high) / ratios.at(low)) / std::log(double(high) / low);
    guess = power(low, ratios.at(low), exponent);
  } else {
    constexpr double usual = 0.25;  // the intrinsic dimension grows as this power of the neighbours
    const uint32_t last = ratios.contains(low) ? low : high;
    guess = power(last, ratios.at(last), usual);
  }
  return std::clamp(static_cast<uint32_t>(std::lround(std::min(guess, 1e6))), low + 1, high - 1);
}

// A grown set whose intrinsic dimension is about `wanted`, by trial; its shape is left in `shape`. Every
// trial has all rows, because the dimension that is seen changes with the density; and where `repair` is
// given, what it changes.
Vectors fitting_rows(const Vectors& real, const std::vector<uint32_t>& neighbours, uint32_t degree,
                     uint64_t rows, double wanted, int32_t device, GrownRows::Shape& shape,
                     const std::function<void(const GrownRows&, Vectors&)>& repair) {
  Vectors best;
  double best_gap = INFINITY;
  std::map<uint32_t, double> ratios;
  GrownRows::Shape trial = shape;
  for (uint32_t next = trial.neighbours; next != 0 && best_gap > 0.03;
       next = next_neighbours(ratios, degree)) {
    trial.neighbours = next;
    const GrownRows maker(real, neighbours, degree, trial);
    Vectors made = maker.make(rows);
    if (repair) repair(maker, made);
    const double ratio = measure_set(made, kTrialRows, trial.seed, {}, device).intrinsic_dim / wanted;
    std::fprintf(stderr, "  %u neighbours: intrinsic dimension %.3f of the real set's\n", next, ratio);
    ratios[next] = ratio;
    if (std::abs(ratio - 1) < best_gap) {
      best_gap = std::abs(ratio - 1);
      best = std::move(made);
      shape = trial;
    }
  }
  return best;
}

// The k-NN graph of some rows, [rows, k].
std::vector<uint32_t> neighbours_of(const Vectors& rows, uint32_t k, int32_t method, int32_t device) {
  std::vector<uint32_t> out(rows.rows * k);
  ann_knn_params params = ANN_KNN_PARAMS_INIT;
  params.k = k;
  params.method = method;
  params.device = device;
  ann_error error = ANN_ERROR_INIT;
  const ann_matrix view = rows.view();
  check(ann_knn_graph(nullptr, &view, &params, out.data(), nullptr, nullptr, &error), error,
        "finding neighbours");
  return out;
}

int run_grow(Options& options) {
  Steps steps("reading");
  const Vectors real = read_vectors(options.rows_file);
  constexpr uint32_t degree = 48;
  if (real.rows <= degree) throw std::runtime_error(options.rows_file + ": needs more than 48 rows");
  steps.next("finding the neighbours of the real rows");
  const int32_t device = device_of(options.device);
  const std::vector<uint32_t> neighbours = neighbours_of(real, degree, options.grown_knn, device);

  steps.next("measuring the real set");
  const SetMeasures real_measures = measure_set(real, kSampleRows, options.grown.seed, {}, device);
  print_measures("real", real_measures, false);
  GrownRows::Shape shape = options.grown;
  GrownRows::NearestOthers nearest;
  std::function<void(const GrownRows&, Vectors&)> repair;  // in trials only if it is quick
  if (options.crowded_by_graph) {
    nearest = [&](const Vectors& some) {
      return neighbours_of(some, GrownRows::kNearest, options.grown_knn, device);
    };
    repair = [&](const GrownRows& maker, Vectors& rows) {
      maker.repair(rows, options.repair_rounds, nearest);
    };
  }
  steps.next("making rows");
  Vectors made;
  if (options.grown_shape_given) {
    made = GrownRows(real, neighbours, degree, shape).make(options.rows);
  } else {
    made = fitting_rows(real, neighbours, degree, options.rows, real_measures.intrinsic_dim, device, shape,
                        repair);
  }
  const GrownRows maker(real, neighbours, degree, shape);
  steps.next("redrawing crowded rows");
  const uint64_t redrawn = maker.repair(made, options.repair_rounds, nearest);
  steps.next("measuring the grown set");
  const SetMeasures measures = measure_set(
      made, kSampleRows, options.grown.seed, [&](uint64_t row) { return maker.source_of(row); }, device);
  print_measures("grown", measures, true);
  const double ratio = measures.intrinsic_dim / real_measures.intrinsic_dim;
  std::printf("ratio  %.3f; %u neighbours, spread %.2f; %s rows redrawn in the last round\n", ratio,
              shape.neighbours, static_cast<double>(shape.spread), with_commas(redrawn).c_str());

  steps.next("writing");
  std::filesystem::create_directories(options.out);
  const std::string ending =
      made.element == ANN_F32 ? ".fbin" : std::string(".") + element_name(made.element) + "bin";
  const auto write = [&](const std::string& name, const Vectors& vectors) {
    const std::string path = (std::filesystem::path(options.out) / (name + ending)).string();
    VectorWriter writer(path, vectors.element, vectors.dim);
    writer.append(vectors.data.data(), vectors.rows);
    writer.finish();
    std::printf("%s: %s rows\n", path.c_str(), with_commas(vectors.rows).c_str());
  };
  write("base", made);
  if (options.queries_made > 0) write("query", maker.queries(options.queries_made));
  if (std::abs(ratio - 1) > 0.10 || measures.siblings_max > 2) {
    std::fprintf(stderr,
                 "gannet-bench: the grown set is not like the real one: expected a ratio "
                 "from 0.90 to 1.10 and at most 2 siblings\n");
    return 1;
  }
  return 0;
}

// On a terminal a bar of the whole work; the library's own progress is of one block only.
void show_share(double fraction, const char* what) {
  if (isatty(STDERR_FILENO) == 0) return;
  std::fprintf(stderr, "\r\033[K%s%s", bar_text(fraction, what).c_str(), fraction < 1 ? "" : "\n");
}

int32_t a_gpu_or_the_cpu() {
  uint32_t count = 0;
  return ann_device_count(&count, nullptr, nullptr) == ANN_OK && count > 1 ? ANN_DEVICE_CUDA : ANN_DEVICE_CPU;
}

int run_truth(Options& options) {
  const Monitor monitor = make_monitor();
  const CancelOnInterrupt on_interrupt(monitor.get());
  VectorReader rows(options.rows_file);
  VectorReader query_reader(options.queries_file);
  const Vectors queries = query_reader.read(0, limited(query_reader.rows(), options.queries_max));
  options.exact.device = options.device == "auto" ? a_gpu_or_the_cpu() : device_of(options.device);
  options.exact.block_bytes = options.block_mb << 20;
  options.exact.rows_max = options.rows_max;
  options.exact.monitor = monitor.get();
  options.exact.progress = [](double fraction) { show_share(fraction, "exact search"); };
  const double start = now_seconds();
  const GroundTruth truth = exact_neighbours(rows, queries.view(), options.exact);
  write_ground_truth(options.out, truth);
  std::printf("%s: %u neighbours of %s queries among %s rows, in %.1f s\n", options.out.c_str(), truth.k,
              with_commas(truth.queries).c_str(), with_commas(limited(rows.rows(), options.rows_max)).c_str(),
              now_seconds() - start);
  return 0;
}

int run_sweep_command(Options& options, const std::string& command) {
  VectorReader rows_reader(options.rows_file);
  const Vectors rows = rows_reader.read(0, limited(rows_reader.rows(), options.rows_max));
  VectorReader query_reader(options.queries_file);
  const GroundTruth truth = read_ground_truth(options.truth_file);
  const Vectors queries =
      query_reader.read(0, std::min(limited(query_reader.rows(), options.queries_max), truth.queries));
  if (queries.dim != rows.dim) {
    throw VectorFileError(options.queries_file, "has dimension " + std::to_string(queries.dim) +
                                                    "; expected " + std::to_string(rows.dim) + ", as in " +
                                                    options.rows_file);
  }
  for (const int32_t id : truth.ids) {
    if (id >= 0 && static_cast<uint64_t>(id) >= rows.rows) {
      throw VectorFileError(options.truth_file, "names row " + std::to_string(id) +
                                                    "; expected numbers below " + std::to_string(rows.rows) +
                                                    ", the number of rows searched");
    }
  }
  SweepParams& sweep = options.sweep;
  sweep.device = device_of(options.device);
  for (const Buffers buffers : sweep.buffers) {
    if (buffers == Buffers::kDevice && sweep.device < ANN_DEVICE_CUDA) {
      throw std::invalid_argument("--buffers device needs --device cuda");
    }
  }
  if (sweep.beams.empty() && sweep.recalls.empty()) {
    sweep.beams = {10, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512};
  }
  for (const uint32_t k : sweep.k) {
    if (k > truth.k) {
      throw VectorFileError(options.truth_file, "holds " + std::to_string(truth.k) +
                                                    " neighbours; -k asks for " + std::to_string(k));
    }
  }

  Record run = describe_run(command, options.commit);
  run["data"] = options.data_name.empty() ? std::filesystem::path(options.rows_file).filename().string()
                                          : options.data_name;
  run["rows"] = rows.rows;
  run["dim"] = rows.dim;
  run["element"] = element_name(rows.element);
  run["metric"] = name_of(kMetrics, sweep.metric);
  run["device"] = options.device;
  ann_device_info device = ANN_DEVICE_INFO_INIT;
  if (sweep.device >= ANN_DEVICE_CUDA && ann_device_get_info(sweep.device, &device, nullptr) == ANN_OK) {
    run["gpu"] = device.name;
  }
  run["queries"] = queries.rows;
  Records records(options.out, run);
  const Monitor monitor = make_monitor();
  const CancelOnInterrupt on_interrupt(monitor.get());
  try {
    run_sweep(rows, queries, truth, sweep, monitor.get(), records);
  } catch (const Cancelled&) {
    Record end;
    end["record"] = "interrupted";
    records.add(end);
    std::fprintf(stderr, "\ngannet-bench: cancelled; what was measured is in %s.jsonl and .csv\n",
                 options.out.c_str());
    return 130;
  }
  std::printf("%s.jsonl, %s.csv, %s.build.csv\n", options.out.c_str(), options.out.c_str(),
              options.out.c_str());
  return 0;
}

int run_inspect(const Options& options) {
  VectorReader reader(options.rows_file);
  if (options.head_only) {
    std::printf("rows %" PRIu64 "\ndim %u\nelement %s\n", reader.rows(), reader.dim(),
                element_name(reader.element()));
    return 0;
  }
  std::printf("%s: %s rows of %u %s values\n", options.rows_file.c_str(), with_commas(reader.rows()).c_str(),
              reader.dim(), element_name(reader.element()));
  if (reader.element() == kElementI32) return 0;
  const Vectors rows = reader.read(0, reader.rows());
  print_measures("", measure_set(rows, kSampleRows, 1, {}), false);
  return 0;
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Makes data, finds true neighbours, measures builds and searches of Gannet.", "gannet-bench");
  app.require_subcommand(1);
  CLI::App* make = add_make(app, options);
  CLI::App* grow = add_grow(app, options);
  CLI::App* truth = add_truth(app, options);
  CLI::App* run = add_run(app, options);
  CLI::App* inspect = app.add_subcommand("inspect", "say what a file holds");
  inspect->add_option("file", options.rows_file, "vectors")->required();
  inspect->add_flag("--head", options.head_only, "rows, dim and element alone, a line each");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& fault) {
    return app.exit(fault) == 0 ? 0 : 2;
  }
  std::string command;
  for (int i = 0; i < argc; ++i) command += (i == 0 ? "" : " ") + std::string(argv[i]);
  options.grown_shape_given = grow->count("--neighbours") > 0;
  try {
    if (*make) return run_make(options);
    if (*grow) return run_grow(options);
    if (*truth) return run_truth(options);
    if (*run) return run_sweep_command(options, command);
    return run_inspect(options);
  } catch (const Cancelled&) {
    std::fprintf(stderr, "\ngannet-bench: cancelled\n");
    return 130;
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "gannet-bench: out of memory\n");
    return 1;
  } catch (const std::exception& fault) {
    std::fprintf(stderr, "gannet-bench: %s\n", fault.what());
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  keep_standard_descriptors();
  return finish_standard_output("gannet-bench", run(argc, argv), 1);
}
