// gannet: indexes and searches files of vectors from the command line.
//
//   gannet build ROWS INDEX         builds an index over a file of vectors and saves it
//   gannet search INDEX QUERIES     finds near rows for each query
//   gannet info FILE                what an index, or a file of vectors, holds
//   gannet verify INDEX             checks every byte of an index
//   gannet exact ROWS QUERIES       true neighbours, without an index
//   gannet convert IN OUT           vectors from one format to another, or a part of them
//
// Files of vectors: .fbin .f16bin .i8bin .u8bin .fvecs .bvecs .npy (see vector_file.h); "-" is standard input
// or output (see standard_streams.h). No file is written over that is read, or that is no index, unless
// --force says so. --json makes the answer one JSON object on stdout; progress goes to stderr. Exit status:
// 0; 1 for a fault, a query with NaN among them; 2 for wrong usage; 3 for a damaged index; 130 after Ctrl-C.
//
// In reading order: the options of each command, the commands, and main. gannet.1 is the manual, and
// completion/ has the options for shells.

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "ann.h"
#include "answers.h"
#include "command_line.h"
#include "exact_search.h"
#include "handles.h"
#include "names.h"
#include "neighbour_file.h"
#include "outputs.h"
#include "progress.h"
#include "standard_streams.h"
#include "vector_file.h"

namespace {

enum ExitStatus { kDone = 0, kFault = 1, kUsage = 2, kDamaged = 3, kCancelled = 130 };

struct Options {
  bool json = false;
  bool force = false;
  std::string in;
  std::string queries;
  std::string out;
  std::string truth;
  std::string calibration;
  std::string ids;
  std::string device = "auto";
  std::string part;  // FIRST:COUNT
  int32_t metric = ANN_METRIC_L2;
  int32_t element = ANN_ELEMENT_AUTO;
  ann_build_params build = ANN_BUILD_PARAMS_INIT;
  ann_search_params search = ANN_SEARCH_PARAMS_INIT;
  bool no_calibration = false;
  bool plan_only = false;
  uint64_t memory_mb = 0;
  uint32_t k = 10;
  std::optional<uint64_t> show;
  uint64_t block_mb = 1024;
};

// --- Options of the commands --------------------------------------------------------------------

void add_shared(CLI::App* command, Options& options) {
  command->add_flag("--json", options.json, "answer as one JSON object");
}

void add_force(CLI::App* command, Options& options, const char* text) {
  command->add_flag("-f,--force", options.force, text);
}

void add_device(CLI::App* command, Options& options) {
  const auto look_up = [](const std::string& text) {
    try {
      device_of(text);
      return std::string();
    } catch (const std::invalid_argument& fault) {
      return std::string(fault.what());
    }
  };
  command->add_option("--device", options.device, "auto, cpu, cuda or cuda:N")
      ->check(look_up)
      ->type_name("NAME")
      ->capture_default_str();
}

// Neighbours, printed and in a file.
void add_neighbours(CLI::App* command, Options& options) {
  command->add_option("-k", options.k, "neighbours of each query")
      ->check(CLI::Range(1u, ANN_BEAM_MAX))
      ->capture_default_str();
  command->add_option("-o,--out", options.out,
                      "write the neighbours to this .npy, .u64bin, .ibin or .ivecs file");
  command->add_option("--show", options.show, "queries to print (default: 10; with --json: all)");
  add_force(command, options, "write over a file that is there");
}

void add_threads(CLI::App* command, uint32_t& threads) {
  command->add_option("--threads", threads, "threads to use at most (default: all)")
      ->check(CLI::Range(1u, 4096u));
}

void add_metric(CLI::App* command, Options& options) {
  command->add_option("--metric", options.metric, "l2 (default), ip or cosine")
      ->transform(one_of(kMetrics))
      ->type_name("NAME");
}

void add_ids(CLI::App* command, Options& options) {
  command->add_option("--ids", options.ids,
                      "a number for each row: a list of 32 or 64 bits, .npy, .u64bin or "
                      ".ibin (default: 0, 1, 2, ...)");
}

CLI::App* add_build(CLI::App& app, Options& options) {
  CLI::App* command = app.add_subcommand("build", "build an index over a file of vectors");
  ann_build_params& build = options.build;
  command->add_option("rows", options.in, "vectors to index")->required();
  command->add_option("index", options.out, "file to write; an index that is there is replaced");
  add_ids(command, options);
  add_metric(command, options);
  command
      ->add_option("--element", options.element,
                   "as stored: f32, f16, bf16, i8 or u8 "
                   "(default: as in the file)")
      ->transform(one_of(kElements))
      ->type_name("NAME");
  command->add_option("--degree", build.degree, "edges a row (default: the library's choice)");
  command->add_option("--knn-degree", build.knn_degree, "neighbours known before pruning");
  command
      ->add_option("--graph", build.graph,
                   "auto, cagra (as in its paper), ggnn, tsdg or none (exact search only)")
      ->transform(one_of(kGraphs))
      ->type_name("NAME");
  command->add_option("--detours", build.detours, "entries of lists that detours go by: near or whole")
      ->transform(one_of(kDetours))
      ->type_name("NAME");
  command->add_option("--reorder", build.reorder, "edges are compared by rank or by distance")
      ->transform(one_of(kReorderings))
      ->type_name("NAME");
  command->add_option("--knn", build.knn, "auto, cells, nn_descent or exact")
      ->transform(one_of(kKnnMethods))
      ->type_name("NAME");
  command->add_option("--seed", build.seed, "seed (default 1)");
  command->add_option("--calibration", options.calibration,
                      "queries like those to come, to learn which effort gives which recall");
  command->add_flag("--no-calibration", options.no_calibration, "do not learn it");
  command->add_option("--memory-mb", options.memory_mb, "refuse a build that needs more, in MiB");
  command->add_flag("--plan", options.plan_only, "only say what the build would need");
  add_device(command, options);
  add_force(command, options, "write over a file that is no index, or that is read");
  add_threads(command, build.threads);
  add_shared(command, options);
  return command;
}

CLI::App* add_search(CLI::App& app, Options& options) {
  CLI::App* command = app.add_subcommand("search", "find near rows for each query");
  command->add_option("index", options.in, "index")->required();
  command->add_option("queries", options.queries, "queries")->required();
  add_neighbours(command, options);
  command->add_option("--recall", options.search.recall, "wanted share of true neighbours (default 0.95)")
      ->check(CLI::Range(0.001, 1.0));
  command->add_option("--beam", options.search.beam, "rows kept while walking; overrides --recall")
      ->check(CLI::Range(1u, ANN_BEAM_MAX));
  command->add_option("--procedure", options.search.procedure, names_of(kProcedures))
      ->transform(one_of(kProcedures, kDeprecatedProcedures))
      ->type_name("NAME");
  command->add_option("--warps-per-query", options.search.warps_per_query,
                      "of two_lists: warps of a GPU that walk for a query, 1, 8 or 16 (default 1)");
  add_device(command, options);
  command->add_option("--truth", options.truth, "true neighbours, to say how many were found");
  add_threads(command, options.search.threads);
  add_shared(command, options);
  return command;
}

CLI::App* add_exact(CLI::App& app, Options& options) {
  CLI::App* command = app.add_subcommand("exact", "true neighbours, without an index");
  command->add_option("rows", options.in, "vectors; the file may be larger than memory")->required();
  command->add_option("queries", options.queries, "queries")->required();
  add_ids(command, options);
  add_neighbours(command, options);
  add_metric(command, options);
  add_device(command, options);
  command->add_option("--block-mb", options.block_mb, "rows in memory at once, in MiB")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  add_threads(command, options.search.threads);
  add_shared(command, options);
  return command;
}

CLI::App* add_convert(CLI::App& app, Options& options) {
  CLI::App* command = app.add_subcommand("convert", "vectors from one format to another");
  command->add_option("in", options.in, "file to read")->required();
  command->add_option("out", options.out, "file to write; its ending says the format")->required();
  command->add_option("--rows", options.part, "only these, as FIRST:COUNT");
  command->add_option("--element", options.element, "for .npy: f32, f16, i8 or u8")
      ->transform(one_of(kElements))
      ->type_name("NAME");
  add_force(command, options, "write over a file that is there");
  add_shared(command, options);
  return command;
}

// --- Steps that commands share ------------------------------------------------------------------

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Runs a long call with a bar on stderr if that is a terminal, else with a line for each phase if they
// are wanted.
template <typename Call>
void with_progress(const ann_monitor* monitor, bool lines_wanted, const Call& call) {
  std::optional<ProgressDisplay> display;
  if (lines_wanted || isatty(STDERR_FILENO) != 0) display.emplace(monitor, stderr);
  call();
}

bool is_vector_file(const std::string& path) {
  try {
    element_of_name(path);
    return true;
  } catch (const VectorFileError&) {
    return false;
  }
}

// Text goes to standard error where standard output is taken by a file.
std::FILE* text_stream(const Options& options) { return is_standard_stream(options.out) ? stderr : stdout; }

// Refuses what would be lost or fail at the end, before anything is begun.
void check_streams(const Options& options, const std::vector<std::string>& read, Replaces may) {
  if (std::count_if(read.begin(), read.end(), is_standard_stream) > 1) {
    throw CLI::ValidationError("-", "standard input can be read once only");
  }
  if (options.json && is_standard_stream(options.out)) {
    throw CLI::ValidationError("--json", "the answer and the file would both go to standard output");
  }
  if (!options.out.empty()) check_output(options.out, read, may, options.force);
}

Index open_index(const std::string& path, ann_monitor* monitor) {
  const std::string file = is_standard_stream(path) ? file_of_standard_input() : path;
  ann_error error = ANN_ERROR_INIT;
  ann_index* opened = nullptr;
  check(ann_open(nullptr, file.c_str(), nullptr, &opened, monitor, &error), error,
        "opening " + (file == path ? path : "standard input"));
  return Index(opened);
}

int64_t write_to_file(void* file, const void* data, uint64_t bytes) {
  const size_t took = std::fwrite(data, 1, bytes, static_cast<std::FILE*>(file));
  return took > 0 ? static_cast<int64_t>(took) : -(errno == 0 ? EIO : errno);
}

// Saves and returns the bytes of the file.
uint64_t save_index(const ann_index* index, const std::string& path, ann_monitor* monitor) {
  ann_error error = ANN_ERROR_INIT;
  if (!is_standard_stream(path)) {
    check(ann_save(index, path.c_str(), nullptr, monitor, &error), error, "saving " + path);
    return std::filesystem::file_size(path);
  }
  struct Counted {
    File file;
    uint64_t bytes = 0;
  } counted{open_standard_output()};
  ann_writer writer = ANN_WRITER_INIT;
  writer.user = &counted;
  writer.write = [](void* user, const void* data, uint64_t bytes) {
    Counted& out = *static_cast<Counted*>(user);
    const int64_t took = write_to_file(out.file.get(), data, bytes);
    if (took > 0) out.bytes += static_cast<uint64_t>(took);
    return took;
  };
  check(ann_save_stream(index, &writer, nullptr, monitor, &error), error, "saving to standard output");
  if (std::fclose(counted.file.release()) != 0) {
    throw std::runtime_error(std::string("standard output cannot be written: ") + std::strerror(errno));
  }
  return counted.bytes;
}

// Prints what a search has found. A query with NaN or infinity is a fault; the others are answered.
int print_answer(const Options& options, const Answer& answer, const std::string& summary) {
  if (options.json) {
    print_neighbours_json(answer, options.show.value_or(UINT64_MAX));
  } else {
    if (!is_standard_stream(options.out)) print_neighbours(answer, options.show.value_or(10));
    std::fprintf(text_stream(options), "%s\n", summary.c_str());
  }
  return tell_not_finite(answer) ? kFault : kDone;
}

// --- The commands -------------------------------------------------------------------------------

int run_plan(const Options& options) {
  const VectorReader rows(options.in);
  rows.expect_vectors();
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  shape.dim = rows.dim();
  shape.metric = options.metric;
  shape.element = options.element;
  ann_plan plan = ANN_PLAN_INIT;
  ann_error error = ANN_ERROR_INIT;
  check(ann_estimate(&shape, rows.rows(), rows.element(), &options.build, &plan, &error), error,
        "planning a build over " + options.in);
  if (options.json) {
    const Json answer = {{"rows", rows.rows()},           {"dim", rows.dim()},
                         {"threads", plan.threads},       {"index_bytes", plan.index_bytes},
                         {"peak_bytes", plan.peak_bytes}, {"device_bytes", plan.device_bytes},
                         {"seconds", plan.seconds}};
    print_json(answer);
  } else {
    std::printf(
        "rows    %s x %u %s\nindex   %s\npeak    %s beside the rows that are read\n"
        "time    about %.1f s on %u threads\n",
        with_commas(rows.rows()).c_str(), rows.dim(), element_name(rows.element()),
        bytes_text(plan.index_bytes).c_str(), bytes_text(plan.peak_bytes).c_str(), plan.seconds,
        plan.threads);
    if (plan.device_bytes > 0) std::printf("device  %s\n", bytes_text(plan.device_bytes).c_str());
  }
  return kDone;
}

// One for each row.
std::vector<uint64_t> ids_of_rows(const std::string& path, uint64_t rows) {
  if (path.empty()) return {};
  std::vector<uint64_t> ids = read_ids(path);
  if (ids.size() != rows) {
    throw VectorFileError(path, "holds " + std::to_string(ids.size()) + " ids; expected " +
                                    std::to_string(rows) + ", one for each row");
  }
  return ids;
}

int run_build(Options& options) {
  options.build.memory_limit = options.memory_mb << 20;
  options.build.device = device_of(options.device);
  if (options.no_calibration) options.build.calibrate = ANN_OFF;
  if (options.plan_only) return run_plan(options);
  if (options.out.empty()) throw CLI::RequiredError("index");
  check_streams(options, {options.in, options.ids, options.calibration}, Replaces::kIndexes);
  const Monitor monitor = make_monitor();
  const CancelOnInterrupt on_interrupt(monitor.get());
  const Vectors rows = read_vectors(options.in);
  const std::vector<uint64_t> ids = ids_of_rows(options.ids, rows.rows);
  Vectors like_queries;
  ann_matrix calibration = ANN_MATRIX_INIT;
  if (!options.calibration.empty()) {
    like_queries = read_vectors(options.calibration);
    calibration = like_queries.view();
    options.build.calibration = &calibration;
  }
  const Index index = make_index(rows.dim, options.metric, options.element);
  const ann_matrix view = rows.view();
  ann_error error = ANN_ERROR_INIT;
  with_progress(monitor.get(), !options.json && text_stream(options) == stdout, [&] {
    check(ann_build(index.get(), &view, ids.empty() ? nullptr : ids.data(), &options.build, monitor.get(),
                    &error),
          error, "building over " + options.in);
  });
  const uint64_t file_bytes = save_index(index.get(), options.out, monitor.get());
  const ann_index_info info = info_of(index.get());
  if (options.json) {
    print_json({{"index", options.out},
                {"rows", info.rows},
                {"dim", info.dim},
                {"metric", name_of(kMetrics, info.metric)},
                {"element", element_name(info.element)},
                {"own_ids", !ids.empty()},
                {"degree", info.degree},
                {"seconds", info.build_seconds},
                {"recall_max", info.recall_max},
                {"knn_share", info.knn_share},
                {"file_bytes", file_bytes}});
    return kDone;
  }
  std::FILE* const text = text_stream(options);
  std::fprintf(text, "%s: %s rows of %u %s values, %u edges a row, %s; built in %.2f s", options.out.c_str(),
               with_commas(info.rows).c_str(), info.dim, element_name(info.element), info.degree,
               bytes_text(file_bytes).c_str(), info.build_seconds);
  if (info.knn_share > 0)
    std::fprintf(text, "; lists held %.3f of the true neighbours of a sample",
                 static_cast<double>(info.knn_share));
  std::fprintf(text, "\n");
  return kDone;
}

// True neighbours of at least the queries and as many as are searched for.
Neighbours truth_for(const std::string& path, uint64_t queries, uint32_t k) {
  Neighbours truth = read_neighbours(path);
  if (truth.k < k || truth.queries < queries) {
    throw VectorFileError(path, "holds " + std::to_string(truth.k) + " neighbours of " +
                                    std::to_string(truth.queries) + " queries; expected at least " +
                                    std::to_string(k) + " of " + std::to_string(queries));
  }
  return truth;
}

int run_search(Options& options) {
  check_streams(options, {options.in, options.queries, options.truth}, Replaces::kNothing);
  options.search.device = device_of(options.device);
  const Monitor monitor = make_monitor();
  const CancelOnInterrupt on_interrupt(monitor.get());
  const Vectors queries = read_vectors(options.queries);
  std::optional<Neighbours> truth;
  if (!options.truth.empty()) truth = truth_for(options.truth, queries.rows, options.k);
  std::optional<NeighbourWriter> writer;
  if (!options.out.empty()) writer.emplace(options.out, queries.rows, options.k);
  const Index index = open_index(options.in, monitor.get());
  if (writer) writer->check_ids(index.get());

  Answer answer;
  answer.found = Neighbours(queries.rows, options.k);
  std::vector<ann_status> status(queries.rows);
  ann_results results = answer.found.view(0, queries.rows);
  results.status = status.data();
  const ann_matrix view = queries.view();
  ann_error error = ANN_ERROR_INIT;
  const auto start = std::chrono::steady_clock::now();
  with_progress(monitor.get(), false, [&] {
    check(ann_search_batch(index.get(), &view, &options.search, &results, monitor.get(), &error), error,
          "searching for " + options.queries);
  });
  const double seconds = seconds_since(start);
  answer.not_finite = not_finite(status);
  if (writer) writer->write(answer.found);

  const double rate = static_cast<double>(queries.rows) / seconds;
  answer.figures = {{"queries", queries.rows},
                    {"k", options.k},
                    {"seconds", seconds},
                    {"queries_per_second", rate},
                    {"distances_per_query",
                     static_cast<double>(results.distance_count) / static_cast<double>(queries.rows)}};
  std::array<char, 128> text;
  std::snprintf(text.data(), text.size(), "%s queries in %.3f s, %s a second",
                with_commas(queries.rows).c_str(), seconds, with_commas(static_cast<uint64_t>(rate)).c_str());
  std::string summary = text.data();
  if (truth) {
    const double recall = recall_of(answer.found, *truth);
    answer.figures["recall"] = recall;
    std::snprintf(text.data(), text.size(), "; recall %.4f", recall);
    summary += text.data();
  }
  return print_answer(options, answer, summary);
}

// Whether standard input starts as NumPy's files do; it is an index else.
bool standard_input_is_npy() {
  const File file(std::fopen(file_of_standard_input().c_str(), "rb"));
  char start = 0;
  return file && std::fread(&start, 1, 1, file.get()) == 1 && start == '\x93';
}

// What codes an index has, and how well they order its rows. The file is mapped, and little of it read.
void add_codes(const std::string& path, Json& answer) {
  ann_open_params params = ANN_OPEN_PARAMS_INIT;
  params.mode = ANN_OPEN_TRUSTED;
  ann_error error = ANN_ERROR_INIT;
  ann_index* opened = nullptr;
  check(ann_open(nullptr, path.c_str(), &params, &opened, nullptr, &error), error, "opening " + path);
  const Index index(opened);
  const ann_index_info info = info_of(index.get());
  answer["codes"] = name_of(kCodes, info.codes);
  answer["code_bytes"] = info.code_bytes;
  if (info.codes == ANN_CODES_SCALED) answer["code_centres"] = info.code_centres;
  if (info.code_first_ten < 0) return;  // not measured
  answer["code_first_ten"] = info.code_first_ten;
  answer["code_first_twenty"] = info.code_first_twenty;
  answer["code_worst_twenty"] = info.code_worst_twenty;
}

int run_info(const Options& options) {
  check_streams(options, {options.in}, Replaces::kNothing);
  const bool unnamed = options.in == "-";
  if (unnamed ? standard_input_is_npy() : is_vector_file(options.in)) {
    const VectorReader reader(options.in);
    if (options.json) {
      const Json answer = {{"file", options.in},
                           {"kind", "vectors"},
                           {"rows", reader.rows()},
                           {"dim", reader.dim()},
                           {"element", element_name(reader.stored_element())}};
      print_json(answer);
    } else {
      std::printf("%s: %s rows of %u %s values\n", options.in.c_str(), with_commas(reader.rows()).c_str(),
                  reader.dim(), element_name(reader.stored_element()));
    }
    return kDone;
  }
  ann_file_description file = ANN_FILE_DESCRIPTION_INIT;
  ann_error error = ANN_ERROR_INIT;
  const std::string path = unnamed ? file_of_standard_input() : options.in;
  check(ann_file_info(path.c_str(), &file, &error), error, "reading " + options.in);
  std::string content;
  for (const uint8_t byte : file.content_id) {
    std::array<char, 3> digits;
    std::snprintf(digits.data(), digits.size(), "%02x", byte);
    content += digits.data();
  }
  const auto dotted = [](uint32_t version, bool patch) {
    const std::string text = patch
                                 ? std::to_string(version >> 16) + "." + std::to_string(version >> 8 & 255) +
                                       "." + std::to_string(version & 255)
                                 : std::to_string(version >> 16) + "." + std::to_string(version & 0xffff);
    return text;
  };
  Json answer = {{"file", options.in},
                 {"kind", "index"},
                 {"rows", file.rows},
                 {"dim", file.dim},
                 {"element", element_name(file.element)},
                 {"metric", name_of(kMetrics, file.metric)},
                 {"graph", name_of(kGraphs, file.graph)},
                 {"degree", file.degree},
                 {"entry_points", file.entry_points},
                 {"own_ids", file.has_ids != 0},
                 {"seed", file.seed},
                 {"file_bytes", file.file_bytes},
                 {"format", dotted(file.format, false)},
                 {"written_by", dotted(file.writer, true)},
                 {"content_id", content}};
  if (file.graph != ANN_GRAPH_NONE) add_codes(path, answer);
  if (options.json) {
    print_json(answer);
    return kDone;
  }
  for (const auto& [name, value] : answer.items()) {
    std::printf("%-17s %s\n", name.c_str(),
                value.is_string() ? value.get<std::string>().c_str() : value.dump().c_str());
  }
  return kDone;
}

int run_verify(const Options& options) {
  const Monitor monitor = make_monitor();
  const CancelOnInterrupt on_interrupt(monitor.get());
  ann_error error = ANN_ERROR_INIT;
  ann_open_params params = ANN_OPEN_PARAMS_INIT;
  params.threads = options.search.threads;
  const std::string path = is_standard_stream(options.in) ? file_of_standard_input() : options.in;
  with_progress(monitor.get(), false, [&] {
    check(ann_verify(path.c_str(), &params, monitor.get(), &error), error, "checking " + options.in);
  });
  const uint64_t bytes = std::filesystem::file_size(path);
  if (options.json) {
    print_json({{"file", options.in}, {"whole", true}, {"bytes", bytes}});
  } else {
    std::printf("%s: whole, %s checked\n", options.in.c_str(), bytes_text(bytes).c_str());
  }
  return kDone;
}

// Row numbers of files as ids of ann.h: themselves, or the names that the rows have.
Neighbours as_neighbours(const GroundTruth& rows, const std::vector<uint64_t>& names) {
  Neighbours out(rows.queries, rows.k);
  out.distances = rows.distances;
  for (size_t i = 0; i < rows.ids.size(); ++i) {
    const uint64_t row = static_cast<uint64_t>(rows.ids[i]);
    out.ids[i] = rows.ids[i] < 0 ? ANN_ID_NONE : names.empty() ? row : names[row];
  }
  return out;
}

int run_exact(const Options& options) {
  check_streams(options, {options.in, options.queries, options.ids}, Replaces::kNothing);
  const Monitor monitor = make_monitor();
  const CancelOnInterrupt on_interrupt(monitor.get());
  VectorReader rows(options.in);
  rows.expect_vectors();
  const std::vector<uint64_t> names = ids_of_rows(options.ids, rows.rows());
  const Vectors queries = read_vectors(options.queries);
  std::optional<NeighbourWriter> writer;
  if (!options.out.empty()) writer.emplace(options.out, queries.rows, options.k);
  if (writer) writer->check_ids(names);
  std::vector<ann_status> status;
  ExactParams params;
  params.k = options.k;
  params.metric = options.metric;
  params.device = device_of(options.device);
  params.threads = options.search.threads;
  params.block_bytes = options.block_mb << 20;
  params.monitor = monitor.get();
  params.status = &status;
  if (isatty(STDERR_FILENO) != 0) {
    params.progress = [](double fraction) {
      std::fprintf(stderr, "\r\033[K%s%s", bar_text(fraction, "exact search").c_str(),
                   fraction < 1 ? "" : "\r\033[K");
    };
  }
  const auto start = std::chrono::steady_clock::now();
  Answer answer;
  answer.found = as_neighbours(exact_neighbours(rows, queries.view(), params), names);
  const double seconds = seconds_since(start);
  answer.not_finite = not_finite(status);
  if (writer) writer->write(answer.found);
  answer.figures = {{"rows", rows.rows()}, {"queries", queries.rows}, {"k", options.k}, {"seconds", seconds}};
  std::array<char, 128> summary;
  std::snprintf(summary.data(), summary.size(), "%s queries among %s rows in %.3f s",
                with_commas(queries.rows).c_str(), with_commas(rows.rows()).c_str(), seconds);
  return print_answer(options, answer, summary.data());
}

// FIRST:COUNT as two numbers.
std::pair<uint64_t, uint64_t> part_of(const std::string& text, uint64_t rows) {
  if (text.empty()) return {0, rows};
  uint64_t first = 0;
  uint64_t count = 0;
  char after = 0;
  if (std::sscanf(text.c_str(), "%" SCNu64 ":%" SCNu64 "%c", &first, &count, &after) != 2 ||
      text.find('-') != std::string::npos) {
    throw CLI::ValidationError("--rows", "\"" + text + "\" is not FIRST:COUNT");
  }
  return {first, count};
}

// Values as another element: the library's own conversion, as an index that stores it would do it.
Vectors converted(const Vectors& from, int32_t element) {
  if (from.element == element) return from;
  if (is_of_ids(from.element) || is_of_ids(element)) {
    throw std::runtime_error("row numbers and vectors are not converted into each other");
  }
  const Index index = make_index(from.dim, ANN_METRIC_L2, element);
  ann_build_params build = ANN_BUILD_PARAMS_INIT;
  build.graph = ANN_GRAPH_NONE;
  const ann_matrix view = from.view();
  ann_error error = ANN_ERROR_INIT;
  check(ann_build(index.get(), &view, nullptr, &build, nullptr, &error), error, "converting");
  Vectors out;
  out.element = element;
  out.rows = from.rows;
  out.dim = from.dim;
  out.data.resize(out.rows * out.row_bytes());
  for (uint64_t row = 0; row < out.rows; ++row) {
    int32_t found = 0;
    check(ann_index_get(index.get(), row, out.data.data() + row * out.row_bytes(), out.row_bytes(), &found,
                        &error),
          error, "converting");
  }
  return out;
}

int run_convert(const Options& options) {
  check_streams(options, {options.in}, Replaces::kNothing);
  const Monitor monitor = make_monitor();
  const CancelOnInterrupt on_interrupt(monitor.get());
  VectorReader reader(options.in);
  const auto [first, count] = part_of(options.part, reader.rows());
  int32_t element = element_of_name(options.out);
  if (element == 0) element = options.element == ANN_ELEMENT_AUTO ? reader.element() : options.element;
  if (first > reader.rows() || count > reader.rows() - first) reader.read(first, count);  // refuses
  VectorWriter writer(options.out, element, reader.dim(), count);
  const uint64_t block = std::max<uint64_t>(1, (uint64_t{64} << 20) / reader.row_bytes());
  for (uint64_t done = 0; done < count || done == 0; done += block) {
    if (CancelOnInterrupt::happened()) throw Cancelled();
    const Vectors part = reader.read(first + done, std::min(block, count - done));
    const Vectors stored = converted(part, element);
    writer.append(stored.data.data(), stored.rows);
  }
  writer.finish();
  if (options.json) {
    print_json(
        {{"file", options.out}, {"rows", count}, {"dim", reader.dim()}, {"element", element_name(element)}});
  } else {
    std::fprintf(text_stream(options), "%s: %s rows of %u %s values\n", options.out.c_str(),
                 with_commas(count).c_str(), reader.dim(), element_name(element));
  }
  return kDone;
}

// Says what went wrong where the user looks for it.
int fail(const Options& options, int status, const std::string& text) {
  if (options.json) {
    print_json({{"error", text}, {"exit_status", status}});
  } else {
    std::fprintf(stderr, "gannet: %s\n", text.c_str());
  }
  return status;
}

// The library takes no notice of a backend that it does not know.
void check_backend() {
  const char* text = std::getenv("GANNET_BACKEND");
  const std::string backend = text == nullptr ? "" : text;
  if (backend.empty() || backend == "cpu" || backend == "cuda") return;
  throw CLI::ValidationError("GANNET_BACKEND",
                             "the environment has \"" + backend + "\"; expected cpu or cuda");
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Nearest neighbours of vectors in files.", "gannet");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string(ann_build_info()));
  app.footer(
      "Files of vectors: .fbin .f16bin .i8bin .u8bin .fvecs .bvecs .npy. \"gannet COMMAND "
      "--help\" and \"man gannet\" say more.");
  CLI::App* build = add_build(app, options);
  CLI::App* search = add_search(app, options);
  CLI::App* info = app.add_subcommand("info", "what an index, or a file of vectors, holds");
  info->add_option("file", options.in, "index or vectors")->required();
  add_shared(info, options);
  CLI::App* verify = app.add_subcommand("verify", "check every byte of an index");
  verify->add_option("index", options.in, "index")->required();
  add_threads(verify, options.search.threads);
  add_shared(verify, options);
  CLI::App* exact = add_exact(app, options);
  CLI::App* convert = add_convert(app, options);
  try {
    app.parse(argc, argv);
    check_backend();
    if (*build) return run_build(options);
    if (*search) return run_search(options);
    if (*info) return run_info(options);
    if (*verify) return run_verify(options);
    if (*exact) return run_exact(options);
    if (*convert) return run_convert(options);
    return kUsage;
  } catch (const CLI::ParseError& fault) {
    return app.exit(fault) == 0 ? kDone : kUsage;
  } catch (const Cancelled&) {
    return fail(options, kCancelled, "cancelled");
  } catch (const AnnError& fault) {
    const bool damaged = fault.status == ANN_CORRUPT || fault.status == ANN_VERSION;
    return fail(options, damaged ? kDamaged : kFault, fault.what());
  } catch (const std::bad_alloc&) {
    return fail(options, kFault, "out of memory");
  } catch (const std::exception& fault) {
    return fail(options, kFault, fault.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  keep_standard_descriptors();
  return finish_standard_output("gannet", run(argc, argv), kFault);
}
