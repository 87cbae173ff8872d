// What a search that goes by a recall costs beyond the least that would do: asked against got.
//
//   overshoot base.u8bin query.u8bin                     a set of files, on the CPU
//   overshoot base.f16bin query.f16bin --metric cosine --procedure best_first
//   overshoot base.fbin query.fbin --most 1.6            fails where a row takes more of the distances
//
// The index is built with all defaults. For each recall a row says what was got, and how the search compares with the
// shortest beam of BEST_FIRST that gets as much as was asked for: its distances as a part of that beam's, and with
// --rounds its time, of one thread, as the median of rounds that take turns. A recall counts rows no farther than the
// k-th true one. Queries that are not distributed like the rows get what they get; --calibration takes some of their
// kind from the end of the file.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "exact_search.h"
#include "handles.h"
#include "names.h"
#include "timing.h"
#include "vector_file.h"

namespace {

struct Asked {
  int32_t metric = ANN_METRIC_L2;
  int32_t procedure = ANN_SEARCH_AUTO;
  std::vector<uint32_t> ks = {10};
  std::vector<float> recalls = {0.8f, 0.9f, 0.95f, 0.99f, 0.999f};
  uint32_t rounds = 0;
  double most = 0;  // 0: anything goes
};

struct Search {
  ann_search_params params = ANN_SEARCH_PARAMS_INIT;
  double recall = 0;
  double distances = 0;  // of a query
};

class Bench {
 public:
  Bench(const ann_index* index, const ann_matrix& queries, uint32_t k)
      : index_(index), queries_(queries), found_(queries.rows, k), truth_(queries.rows, k) {
    ann_error error = ANN_ERROR_INIT;
    ann_results exact = truth_.view(0, queries.rows);
    check(ann_search_exact(index, &queries, nullptr, &exact, nullptr, &error), error, "searching exactly");
  }

  // Leaves in `search` what it got, and returns the seconds that it took.
  double run(Search& search) {
    ann_error error = ANN_ERROR_INIT;
    ann_results results = found_.view(0, queries_.rows);
    const double start = bench::process_cpu_seconds();
    check(ann_search_batch(index_, &queries_, &search.params, &results, nullptr, &error), error, "searching");
    const double seconds = bench::process_cpu_seconds() - start;
    uint64_t hits = 0;
    for (uint64_t q = 0; q < queries_.rows; ++q) {
      const float limit = truth_.distances[(q + 1) * found_.k - 1];
      for (uint32_t i = 0; i < found_.k; ++i) {
        const uint64_t at = q * found_.k + i;
        hits += found_.ids[at] != ANN_ID_NONE && found_.distances[at] <= limit ? 1 : 0;
      }
    }
    const double count = static_cast<double>(queries_.rows);
    search.recall = static_cast<double>(hits) / (count * found_.k);
    search.distances = static_cast<double>(results.distance_count) / count;
    return seconds;
  }

  // By the shortest beam with the recall, which rises with it; no params.beam where none up to the longest has it.
  Search shortest_beam(double recall) {
    Search search;
    search.params.threads = 1;
    search.params.procedure = ANN_SEARCH_BEST_FIRST;
    uint32_t below = found_.k - 1;
    uint32_t above = found_.k;
    const auto reaches = [&](uint32_t beam) {
      search.params.beam = beam;
      run(search);
      return search.recall >= recall;
    };
    while (!reaches(above)) {
      if (above == kLongest) return {};
      below = above;
      above = std::min(2 * above, kLongest);
    }
    while (above - below > 1) {
      const uint32_t middle = (below + above) / 2;
      (reaches(middle) ? above : below) = middle;
    }
    reaches(above);
    return search;
  }

 private:
  static constexpr uint32_t kLongest = 8192;

  const ann_index* index_;
  ann_matrix queries_;
  Neighbours found_;
  Neighbours truth_;
};

double median_ratio(Bench& bench, Search& search, Search& other, uint32_t rounds) {
  std::vector<double> ratios;
  for (uint32_t round = 0; round < rounds; ++round) {
    const double mine = bench.run(search);
    ratios.push_back(mine / bench.run(other));
  }
  std::sort(ratios.begin(), ratios.end());
  return ratios[ratios.size() / 2];
}

// Returns how many rows cost more than is allowed.
int check_recalls(const ann_index* index, const ann_matrix& queries, const Asked& asked) {
  std::printf("%6s %6s %8s %10s %10s %6s %8s %10s %9s %6s\n", "k", "asked", "got", "procedure", "distances",
              "beam", "its got", "distances", "part", "time");
  int beyond = 0;
  for (const uint32_t k : asked.ks) {
    Bench bench(index, queries, k);
    for (const float recall : asked.recalls) {
      Search search;
      search.params.threads = 1;
      search.params.procedure = asked.procedure;
      search.params.recall = recall;
      bench.run(search);
      ann_search_forecast forecast = ANN_SEARCH_FORECAST_INIT;
      ann_error error = ANN_ERROR_INIT;
      check(ann_search_estimate(index, queries.rows, k, &search.params, &forecast, &error), error,
            "asking for the procedure");
      std::printf("%6u %6g %8.4f %10s %10.1f", k, static_cast<double>(recall), search.recall,
                  name_of(kProcedures, forecast.procedure).c_str(), search.distances);
      Search least = bench.shortest_beam(static_cast<double>(recall));
      if (least.params.beam == 0) {
        std::printf("      no beam gets it\n");
        continue;
      }
      const double part = search.distances / least.distances;
      beyond += asked.most > 0 && part > asked.most ? 1 : 0;
      std::printf(" %6u %8.4f %10.1f %9.3f", least.params.beam, least.recall, least.distances, part);
      if (asked.rounds > 0) std::printf(" %6.3f", median_ratio(bench, search, least, asked.rounds));
      std::printf("\n");
      std::fflush(stdout);
    }
  }
  return beyond;
}

int run(int argc, char** argv) {
  Asked asked;
  std::string rows_file;
  std::string queries_file;
  uint64_t rows_max = 0;
  uint64_t queries_max = 1000;
  uint64_t calibration = 0;
  CLI::App app("What searches that go by a recall cost beyond the shortest beam that has it.", "overshoot");
  app.add_option("rows", rows_file, "vectors")->required();
  app.add_option("queries", queries_file, "queries")->required();
  app.add_option("--metric", asked.metric, "l2, ip or cosine")->transform(CLI::Transformer(kMetrics));
  app.add_option("--procedure", asked.procedure, "who searches (default: auto)")
      ->transform(CLI::Transformer(kProcedures));
  app.add_option("--rows-max", rows_max, "only the first of the rows");
  app.add_option("--queries-max", queries_max, "only the first of the queries")->capture_default_str();
  app.add_option("--calibration", calibration, "of the last queries so many are given to calibrate on");
  app.add_option("-k", asked.ks, "neighbours")->delimiter(',')->check(CLI::Range(1u, 1000u));
  app.add_option("--recalls", asked.recalls, "what is asked for")->delimiter(',');
  app.add_option("--rounds", asked.rounds, "of times to take the median of (default: no times)");
  app.add_option("--most", asked.most, "fails where a part of distances is larger");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& fault) {
    return app.exit(fault) == 0 ? 0 : 2;
  }
  const Vectors rows = read_vectors(rows_file);
  const Vectors queries = read_vectors(queries_file);
  calibration = std::min(calibration, queries.rows - 1);
  const ann_matrix given = queries.view(queries.rows - calibration, calibration);
  const ann_matrix view = rows.view(0, rows_max > 0 ? std::min(rows_max, rows.rows) : rows.rows);
  ann_build_params build = ANN_BUILD_PARAMS_INIT;
  build.device = ANN_DEVICE_CPU;
  if (calibration > 0) build.calibration = &given;
  const Index index = make_index(rows.dim, asked.metric);
  ann_error error = ANN_ERROR_INIT;
  check(ann_build(index.get(), &view, nullptr, &build, nullptr, &error), error, "building");
  const ann_index_info info = info_of(index.get());
  std::printf("built in %.2f s, of which calibration %.2f\n", info.build_seconds, info.calibrate_seconds);
  const uint64_t count = std::min(queries_max, queries.rows - calibration);
  const int beyond = check_recalls(index.get(), queries.view(0, count), asked);
  if (beyond > 0) std::printf("overshoot: %d rows cost more than %g of the distances\n", beyond, asked.most);
  return beyond == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& fault) {
    std::fprintf(stderr, "overshoot: %s\n", fault.what());
    return 1;
  }
}
