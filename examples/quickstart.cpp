// quickstart: builds an index over a file of vectors, searches it, and says how good and how fast
// the answers are next to those of exact search. Uses the public header alone.
//
//   quickstart ROWS-FILE [QUERIES-FILE] [--metric l2|ip|cosine] [--recall 0.95] [--k 10]
//              [--threads N]
//
// In reading order: the options, numbers for people, measuring, and the program. Owning handles
// (handles.h), progress and Ctrl-C (progress.h) and files (vector_file.h) are shared with the other
// programs.

#include <getopt.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "ann.h"
#include "handles.h"
#include "progress.h"
#include "vector_file.h"

namespace {

// --- Options ------------------------------------------------------------------------------------

constexpr const char* usage =
    "usage: quickstart ROWS-FILE [QUERIES-FILE] [options]\n"
    "\n"
    "  ROWS-FILE      vectors to search: .fbin .f16bin .i8bin .u8bin .fvecs .bvecs .npy\n"
    "  QUERIES-FILE   vectors to search for; without it the last 200 rows are kept out as queries\n"
    "\n"
    "  --metric M     l2 (default), ip or cosine\n"
    "  --recall R     wanted share of true neighbours, above 0 and at most 1 (default 0.95)\n"
    "  --k K          neighbours for each query (default 10)\n"
    "  --threads N    threads to use at most (default: all)\n"
    "  --help         this text\n";

struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Options {
  std::string rows_file;
  std::string queries_file;
  int32_t metric = ANN_METRIC_L2;
  float recall = 0.95f;
  uint32_t k = 10;
  uint32_t threads = 0;
  bool help = false;
};

template <typename Number>
Number parse_number(const char* option, std::string_view text, Number low, Number high) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= low) || !(value <= high)) {
    char range[64];
    std::snprintf(range, sizeof range, "%g to %g", static_cast<double>(low), static_cast<double>(high));
    throw UsageError(std::string(option) + " is \"" + std::string(text) + "\"; expected a number from " +
                     range);
  }
  return value;
}

int32_t parse_metric(std::string_view text) {
  if (text == "l2") return ANN_METRIC_L2;
  if (text == "ip") return ANN_METRIC_INNER_PRODUCT;
  if (text == "cosine") return ANN_METRIC_COSINE;
  throw UsageError("--metric is \"" + std::string(text) + "\"; expected l2, ip or cosine");
}

Options parse_options(int argc, char** argv) {
  const option known[] = {
      {"metric", required_argument, nullptr, 'm'}, {"recall", required_argument, nullptr, 'r'},
      {"k", required_argument, nullptr, 'k'},      {"threads", required_argument, nullptr, 't'},
      {"help", no_argument, nullptr, 'h'},         {nullptr, 0, nullptr, 0}};
  Options out;
  opterr = 0;  // the messages are ours
  int letter;
  while ((letter = getopt_long(argc, argv, ":m:r:k:t:h", known, nullptr)) != -1) {
    switch (letter) {
      case 'm':
        out.metric = parse_metric(optarg);
        break;
      case 'r':
        out.recall = parse_number("--recall", optarg, 0.001f, 1.0f);
        break;
      case 'k':
        out.k = parse_number("--k", optarg, 1u, ANN_BEAM_MAX);
        break;
      case 't':
        out.threads = parse_number("--threads", optarg, 1u, 4096u);
        break;
      case 'h':
        out.help = true;
        return out;
      case ':':
        throw UsageError(std::string(argv[optind - 1]) + " needs a value");
      default:
        throw UsageError(std::string("unknown option ") + argv[optind - 1]);
    }
  }
  const int files = argc - optind;
  if (files < 1 || files > 2) throw UsageError("expected one or two files");
  out.rows_file = argv[optind];
  if (files == 2) out.queries_file = argv[optind + 1];
  if (out.threads == 0) out.threads = std::max(1u, std::thread::hardware_concurrency());
  return out;
}

// --- Numbers for people -------------------------------------------------------------------------

std::string fixed_text(double number, int places) {
  char out[32];
  std::snprintf(out, sizeof out, "%.*f", places, number);
  return out;
}

std::string rate_text(double per_second) {
  return with_commas(static_cast<uint64_t>(std::llround(per_second)));
}

std::string shape_text(uint64_t rows, const Vectors& vectors) {
  return with_commas(rows) + " x " + std::to_string(vectors.dim) + " " + element_name(vectors.element);
}

const char* metric_text(int32_t metric) {
  switch (metric) {
    case ANN_METRIC_INNER_PRODUCT:
      return "inner product, negated";
    case ANN_METRIC_COSINE:
      return "cosine distance";
    default:
      return "squared Euclidean distance";
  }
}

// --- Measuring ----------------------------------------------------------------------------------

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Calls `work`, which answers `queries` queries, until half a second has passed.
double queries_per_second(uint64_t queries, const std::function<void()>& work) {
  double seconds = 0;
  uint64_t answered = 0;
  while (seconds < 0.5) {
    seconds += seconds_of(work);
    answered += queries;
  }
  return static_cast<double>(answered) / seconds;
}

// The share of true neighbours found. A found row that is as near as the last true one counts: of
// rows at equal distance any is right.
double recall_of(const Neighbours& found, const Neighbours& truth, uint64_t queries) {
  const uint32_t k = truth.k;
  uint64_t hits = 0;
  uint64_t wanted = 0;
  for (uint64_t q = 0; q < queries; ++q) {
    uint32_t exist = 0;
    while (exist < k && truth.ids[q * k + exist] != ANN_ID_NONE) ++exist;
    if (exist == 0) continue;
    const float farthest = truth.distances[q * k + exist - 1];
    for (uint32_t i = 0; i < exist; ++i) {
      hits += found.ids[q * k + i] != ANN_ID_NONE && found.distances[q * k + i] <= farthest;
    }
    wanted += exist;
  }
  return wanted == 0 ? 1.0 : static_cast<double>(hits) / static_cast<double>(wanted);
}

// --- The program --------------------------------------------------------------------------------

void run(const Options& options) {
  ann_error error = ANN_ERROR_INIT;
  std::printf("%s\n", ann_build_info());

  // Data.
  const Vectors rows = read_vectors(options.rows_file);
  Vectors own_queries;
  uint64_t row_count = rows.rows;
  ann_matrix queries = ANN_MATRIX_INIT;
  if (!options.queries_file.empty()) {
    own_queries = read_vectors(options.queries_file);
    queries = own_queries.view(0, own_queries.rows);
  } else {
    const uint64_t held_out = std::min<uint64_t>(200, rows.rows / 2);
    if (held_out == 0) {
      throw std::runtime_error(options.rows_file +
                               ": one row alone leaves no query; expected a file of queries too");
    }
    row_count = rows.rows - held_out;
    queries = rows.view(row_count, held_out);
  }
  const Vectors& query_vectors = options.queries_file.empty() ? rows : own_queries;
  if (query_vectors.dim != rows.dim) {
    throw std::runtime_error(options.queries_file + ": the dimension is " +
                             std::to_string(query_vectors.dim) + "; expected " + std::to_string(rows.dim) +
                             ", as in " + options.rows_file);
  }
  std::printf("\nData\n");
  std::printf("  rows      %-20s  %s\n", shape_text(row_count, rows).c_str(), options.rows_file.c_str());
  std::printf("  queries   %-20s  %s\n", shape_text(queries.rows, query_vectors).c_str(),
              options.queries_file.empty() ? "the last rows of that file, kept out of the index"
                                           : options.queries_file.c_str());
  std::printf("  metric    %s\n", metric_text(options.metric));

  // Build.
  const Monitor monitor = make_monitor();
  const CancelOnInterrupt cancel_on_interrupt(monitor.get());

  const Index index = make_index(rows.dim, options.metric);

  std::printf("\nBuild, %u thread%s\n", options.threads, options.threads == 1 ? "" : "s");
  const ann_matrix stored = rows.view(0, row_count);
  ann_build_params build = ANN_BUILD_PARAMS_INIT;
  build.threads = options.threads;
  {
    const ProgressDisplay display(monitor.get());
    check(ann_build(index.get(), &stored, nullptr, &build, monitor.get(), &error), error,
          "building over " + options.rows_file);
  }
  const ann_index_info info = info_of(index.get());
  std::printf("  time      %.2f s, %.2f s of it to learn which effort gives which recall\n",
              info.build_seconds, info.calibrate_seconds);
  std::printf("  memory    %s, of which rows %s\n", bytes_text(info.memory_bytes).c_str(),
              bytes_text(row_count * rows.row_bytes()).c_str());
  std::printf("  graph     %u edges a row\n", info.degree);

  // Search, and compare with exact search. That may take long on much data, so it stops after a
  // while and the comparison is over the queries answered by then.
  ann_search_params search = ANN_SEARCH_PARAMS_INIT;
  search.recall = options.recall;
  search.threads = options.threads;
  Neighbours found(queries.rows, options.k);
  const auto search_all = [&] {
    ann_results results = found.view(0, queries.rows);
    check(ann_search_batch(index.get(), &queries, &search, &results, monitor.get(), &error), error,
          "searching");
  };
  search_all();

  Neighbours truth(queries.rows, options.k);
  const auto search_exactly = [&](uint64_t first, uint64_t count) {
    ann_results results = truth.view(first, count);
    const ann_matrix some = query_vectors.view((options.queries_file.empty() ? row_count : 0) + first, count);
    check(ann_search_exact(index.get(), &some, &search, &results, monitor.get(), &error), error,
          "searching exactly");
  };
  constexpr double exact_budget = 20;  // seconds
  uint64_t compared = 0;
  double exact_seconds = 0;
  while (compared < queries.rows && exact_seconds < exact_budget) {
    const uint64_t count = std::min<uint64_t>(256, queries.rows - compared);
    exact_seconds += seconds_of([&] { search_exactly(compared, count); });
    compared += count;
  }

  std::printf("\nFirst queries: row (distance), nearest first\n");
  for (uint64_t q = 0; q < std::min<uint64_t>(3, queries.rows); ++q) {
    std::printf("  query %llu ", static_cast<unsigned long long>(q));
    for (uint32_t i = 0; i < std::min(options.k, 5u); ++i) {
      if (found.ids[q * options.k + i] == ANN_ID_NONE) break;
      std::printf("  %llu (%.6g)", static_cast<unsigned long long>(found.ids[q * options.k + i]),
                  static_cast<double>(found.distances[q * options.k + i]));
    }
    std::printf("%s\n", options.k > 5 ? "  ..." : "");
  }

  uint32_t beam = 0;
  check(ann_index_beam(index.get(), options.k, options.recall, &beam, &error), error, "reading the beam");
  const double recall = recall_of(found, truth, compared);
  // Each line: queries per second on one thread and on all.
  const double exact_many = static_cast<double>(compared) / exact_seconds;
  const double graph_many = queries_per_second(queries.rows, search_all);
  double exact_one = exact_many;
  double graph_one = graph_many;
  if (options.threads > 1) {
    search.threads = 1;
    graph_one = queries_per_second(queries.rows, search_all);
    // About half a second of exact search.
    const uint64_t sample =
        std::clamp<uint64_t>(static_cast<uint64_t>(exact_many / options.threads / 2), 1, compared);
    exact_one = queries_per_second(sample, [&] { search_exactly(0, sample); });
  }
  const auto line = [&](const char* name, const std::string& share, const std::string& one,
                        const std::string& many) {
    std::printf("  %-10s %8s %12s", name, share.c_str(), one.c_str());
    if (options.threads > 1) std::printf(" %12s", many.c_str());
    std::printf("\n");
  };
  std::printf("\nSearch, k = %u, wanted recall %g (a beam of %u)\n", options.k,
              static_cast<double>(options.recall), beam);
  line("queries/s", "recall", "1 thread", std::to_string(options.threads) + " threads");
  line("graph", fixed_text(recall, 4), rate_text(graph_one), rate_text(graph_many));
  line("exact", fixed_text(1, 4), rate_text(exact_one), rate_text(exact_many));
  line("faster by", "", fixed_text(graph_one / exact_one, 1) + "x",
       fixed_text(graph_many / exact_many, 1) + "x");
  if (compared < queries.rows) {
    std::printf("  recall over the first %s of %s queries\n", with_commas(compared).c_str(),
                with_commas(queries.rows).c_str());
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = parse_options(argc, argv);
    if (options.help) {
      std::fputs(usage, stdout);
      return 0;
    }
    run(options);
    return 0;
  } catch (const UsageError& fault) {
    std::fprintf(stderr, "quickstart: %s\n\n%s", fault.what(), usage);
    return 2;
  } catch (const Cancelled&) {
    std::fprintf(stderr, "\nquickstart: cancelled\n");
    return 130;
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "quickstart: out of memory\n");
    return 1;
  } catch (const std::exception& fault) {
    std::fprintf(stderr, "quickstart: %s\n", fault.what());
    return 1;
  }
}
