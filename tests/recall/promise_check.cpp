// Asks for recalls on made sets of many kinds and fails where less is got: the library's promise is recall,
// whatever the data.
//
//   promise_check                                       small sets on the CPU
//   promise_check --rows 1000000 --device cuda --batches 1,100,1000,10000
//   promise_check --build-device cuda                   indexes that a device builds, searched on the CPU
//   promise_check --set copies --verbose                some sets alone, and each figure
//   promise_check --elements f16,i8                     rows and queries stored as these
//
// A set is built with all defaults. A recall counts rows no farther than the k-th true one, as exact search
// reports distances; it may lie 0.01 below what was asked for, and as much more as two standard errors of
// its mean over the queries. Where queries are not distributed like the rows, others of their kind are given to
// calibrate on, as ann.h wants it. No search by AUTO may compare many more rows than there are.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "exact_search.h"
#include "handles.h"
#include "made_rows.h"
#include "names.h"
#include "timing.h"
#include "vector_file.h"

namespace {

using bench::Law;
using bench::MadeSet;
using bench::Part;

struct Set {
  std::string name;
  MadeSet made;
  int32_t metric = ANN_METRIC_L2;
  int32_t element = ANN_F32;  // of rows and queries as they are made
  int32_t stored = ANN_ELEMENT_AUTO;
  Part queries = Part::kQueries;
  uint64_t calibrates = 0;  // on so many further queries
  float factor = 1;         // that values are multiplied with before they are stored
};

bool is_float(int32_t element) { return element != ANN_I8 && element != ANN_U8; }

std::vector<Set> all_sets(uint64_t rows) {
  std::vector<Set> out;
  const auto add = [&](const std::string& name, Law law, uint32_t dim, uint32_t intrinsic) -> Set& {
    Set set;
    set.name = name;
    set.made.law = law;
    set.made.dim = dim;
    set.made.intrinsic_dim = intrinsic;
    set.made.clusters = 20;
    set.made.rows = rows;
    out.push_back(set);
    return out.back();
  };
  const auto many = static_cast<uint32_t>(std::clamp<uint64_t>(rows / 20, 2, 5000));
  for (const uint32_t islands : {2u, 50u, many}) {
    add("islands_" + std::to_string(islands), Law::kIslands, 24, 1).made.clusters = islands;
    Set& touching = add("touching_" + std::to_string(islands), Law::kIslands, 24, 1);
    touching.made.clusters = islands;
    touching.made.spread = 1;
  }
  for (const uint32_t parts : {2u, 8u, 30u})
    add("tree_" + std::to_string(parts), Law::kTree, 32, 1).made.clusters = parts;
  // As far from each other in all directions.
  add("clusters_many", Law::kClusters, 96, 24).made.clusters = std::max(2u, std::min(many, 1000u));
  Set& few_given = add("islands_few_given", Law::kIslands, 24, 1);
  few_given.made.clusters = std::max(2u, many / 2);
  few_given.calibrates = 64;
  add("copies_near", Law::kCopies, 32, 12).made.distinct = 0.02;
  Set& nearer = add("copies_nearer", Law::kCopies, 32, 12);
  nearer.made.distinct = 0.01;
  nearer.made.spread = 0.001;
  add("duplicates", Law::kDuplicates, 32, 8);
  add("echoes", Law::kEchoes, 32, 8).made.distinct = 0.2;
  add("densities_fifth", Law::kDensities, 32, 1);
  Set& tenth = add("densities_tenth", Law::kDensities, 32, 1);
  tenth.made.share = 0.1;
  tenth.made.spread = 0.01;
  add("contrast", Law::kContrast, 48, 8);
  add("scaled", Law::kScaled, 32, 1).metric = ANN_METRIC_INNER_PRODUCT;
  Set& scaled = add("scaled_calibrated", Law::kScaled, 32, 1);
  scaled.metric = ANN_METRIC_INNER_PRODUCT;
  scaled.calibrates = 1024;
  Set& lengths = add("lengths", Law::kNorms, 32, 16);
  lengths.metric = ANN_METRIC_INNER_PRODUCT;
  lengths.calibrates = 1024;
  Set& foreign = add("lengths_foreign", Law::kNorms, 32, 16);
  foreign.metric = ANN_METRIC_INNER_PRODUCT;
  foreign.queries = Part::kForeignQueries;
  foreign.calibrates = 1024;
  Set& thirty = add("dimension_30", Law::kClusters, 64, 30);
  thirty.metric = ANN_METRIC_COSINE;
  thirty.made.clusters = 1;
  add("outlier_column", Law::kOutlierColumn, 24, 8);
  add("outlier_row", Law::kOutlierRow, 24, 8);
  add("offset", Law::kOffset, 24, 8);
  add("offset_cosine", Law::kOffset, 24, 8).metric = ANN_METRIC_COSINE;
  add("one_hot", Law::kOneHot, 64, 1);
  add("ones", Law::kOnes, 100, 1);
  add("corners", Law::kCorners, 48, 12);
  add("corners_i8", Law::kCorners, 48, 12).element = ANN_I8;
  add("shells", Law::kShells, 24, 1);
  add("radii", Law::kRadii, 32, 1);
  add("decades", Law::kDecades, 64, 30);
  add("scales", Law::kScales, 40, 1).made.clusters = std::max(2u, std::min(many, 1000u));
  add("one_vector", Law::kOneVector, 48, 12);
  add("relu", Law::kRelu, 96, 24).made.clusters = 1;
  add("uniform", Law::kUniform, 12, 12);
  add("uniform_64", Law::kUniform, 64, 64);
  // Many columns, which codes of walks are a projection of where rows have few dimensions.
  add("wide", Law::kClusters, 512, 24);
  add("wide_cosine", Law::kClusters, 256, 16).metric = ANN_METRIC_COSINE;
  add("wide_copies", Law::kCopies, 320, 12).made.distinct = 0.02;
  add("wide_contrast", Law::kContrast, 384, 8);
  for (const uint64_t few : {200, 1000, 5000})
    add("few_" + std::to_string(few), Law::kClusters, 32, 12).made.rows = few;
  return out;
}

Vectors made(const Set& set, Part part, uint64_t first, uint64_t rows) {
  std::vector<float> values(rows * set.made.dim);
  bench::MadeRows(set.made).make(part, first, rows, values.data());
  for (float& value : values) value *= set.factor;
  Vectors out;
  out.element = set.element;
  out.rows = rows;
  out.dim = set.made.dim;
  out.data.resize(rows * out.row_bytes());
  bench::store_values(values.data(), values.size(), set.element, out.data.data());
  return out;
}

// The same set with rows stored as another element. Integers get a factor by which all but one in a hundred of the
// rows' values are within 100: what lies beyond is clipped where it leaves the range.
Set stored_as(const Set& set, const std::string& element) {
  Set out = set;
  out.name += "_" + element;
  out.stored = kElements.at(element);
  if (is_float(out.stored)) return out;
  out.element = out.stored;
  if (set.element == out.element) return out;
  const Vectors some = made(set, Part::kRows, 0, std::min<uint64_t>(set.made.rows, 1000));
  std::vector<float> sizes(some.rows * some.dim);
  std::memcpy(sizes.data(), some.data.data(), sizes.size() * sizeof(float));
  for (float& size : sizes) size = std::fabs(size);
  const auto place = sizes.begin() + static_cast<std::ptrdiff_t>(sizes.size() * 99 / 100);
  std::nth_element(sizes.begin(), place, sizes.end());
  out.factor = *place > 0 ? 100 / *place : 1;
  return out;
}

ann_matrix part_of(const Vectors& vectors, uint64_t first, uint64_t count) {
  ann_matrix out = vectors.view();
  out.data = vectors.data.data() + first * vectors.row_bytes();
  out.rows = count;
  return out;
}

struct Asked {
  int32_t device = ANN_DEVICE_CPU;  // that searches
  int32_t build_device = ANN_DEVICE_CPU;
  std::vector<uint32_t> batches;
  std::vector<uint32_t> ks;
  std::vector<float> recalls;
  uint64_t queries = 0;
  bool verbose = false;
};

struct Got {
  double recall = 0;
  double error = 0;                     // of the mean
  double compared = 0;                  // rows for each query, as a share
  ann_results last = ANN_RESULTS_INIT;  // of the last batch: its promise and procedure
};

Got measure(const ann_index* index, const Vectors& queries, const Neighbours& truth, uint32_t k, float recall,
            uint32_t batch, const Asked& asked) {
  ann_search_params params = ANN_SEARCH_PARAMS_INIT;
  params.device = asked.device;
  params.recall = recall;
  // Single queries are answered for some only.
  const uint64_t count = std::min<uint64_t>(queries.rows, batch == 1 ? 200 : queries.rows);
  Neighbours found(count, k);
  ann_error error = ANN_ERROR_INIT;
  uint64_t distances = 0;
  Got got;
  for (uint64_t first = 0; first < count; first += batch) {
    const uint64_t some = std::min<uint64_t>(batch, count - first);
    const ann_matrix part = part_of(queries, first, some);
    ann_results results = found.view(first, some);
    check(ann_search_batch(index, &part, &params, &results, nullptr, &error), error, "searching");
    distances += results.distance_count;
    got.last = results;
  }
  double sum = 0;
  double squares = 0;
  for (uint64_t q = 0; q < count; ++q) {
    const float limit = truth.distances[q * truth.k + k - 1];
    uint32_t hits = 0;
    for (uint32_t i = 0; i < k; ++i) {
      hits += found.ids[q * k + i] != ANN_ID_NONE && found.distances[q * k + i] <= limit ? 1 : 0;
    }
    const double share = static_cast<double>(hits) / k;
    sum += share;
    squares += share * share;
  }
  const double n = static_cast<double>(count);
  got.recall = sum / n;
  got.error = std::sqrt(std::max(0.0, squares / n - got.recall * got.recall) / n);
  got.compared = static_cast<double>(distances) / n / static_cast<double>(info_of(index).rows);
  return got;
}

// Returns how many figures fall short.
int check_set(const Set& set, const Asked& asked) {
  const double start = bench::now_seconds();
  const Vectors rows = made(set, Part::kRows, 0, set.made.rows);
  const Vectors queries = made(set, set.queries, 0, asked.queries);
  const Vectors others = made(set, set.queries, asked.queries, set.calibrates);
  const ann_matrix calibration = others.view();
  ann_build_params build = ANN_BUILD_PARAMS_INIT;
  build.device = asked.build_device;
  if (set.calibrates > 0) build.calibration = &calibration;
  const Index index = make_index(set.made.dim, set.metric, set.stored);
  ann_error error = ANN_ERROR_INIT;
  const ann_matrix view = rows.view();
  check(ann_build(index.get(), &view, nullptr, &build, nullptr, &error), error, "building " + set.name);
  const double built = bench::now_seconds() - start;

  const uint32_t most = *std::max_element(asked.ks.begin(), asked.ks.end());
  Neighbours truth(queries.rows, most);
  ann_search_params exact = ANN_SEARCH_PARAMS_INIT;
  exact.device = asked.build_device;
  const ann_matrix all = queries.view();
  ann_results results = truth.view(0, queries.rows);
  check(ann_search_exact(index.get(), &all, &exact, &results, nullptr, &error), error, "searching exactly");

  int short_of = 0;
  double worst = 1;
  double compared = 0;
  for (const uint32_t batch : asked.batches) {
    for (const uint32_t k : asked.ks) {
      for (const float recall : asked.recalls) {
        const Got got = measure(index.get(), queries, truth, k, recall, batch, asked);
        const double less = got.recall - static_cast<double>(recall);
        worst = std::min(worst, less);
        compared = std::max(compared, got.compared);
        const bool kept = less >= -0.01 - 2 * got.error;
        // On the CPU the walk compares entry points, and the nearest rows again.
        const bool cheap =
            asked.device > ANN_DEVICE_CPU || got.compared <= 1 + 400 / static_cast<double>(rows.rows);
        if (!kept || !cheap || asked.verbose) {
          std::printf(
              "%s%s: batch %u, k %u, asked %g, got %.4f (standard error %.4f), compared %.4f of the rows; "
              "promised %.4f by procedure %d, warps %u\n",
              kept && cheap ? "" : "FALLS SHORT ", set.name.c_str(), batch, k, static_cast<double>(recall),
              got.recall, got.error, got.compared, static_cast<double>(got.last.recall), got.last.procedure,
              got.last.warps_per_query);
        }
        short_of += kept && cheap ? 0 : 1;
      }
    }
  }
  std::printf(
      "%-18s %8llu rows: %+.4f of what was asked at worst, %.3f of the rows compared at most; "
      "built in %.2f s, %.2f s in all\n",
      set.name.c_str(), static_cast<unsigned long long>(set.made.rows), worst, compared, built,
      bench::now_seconds() - start);
  std::fflush(stdout);
  return short_of;
}

int run(int argc, char** argv) {
  Asked asked;
  asked.ks = {1, 10, 100};
  asked.recalls = {0.8f, 0.9f, 0.95f, 0.99f, 0.999f};
  asked.queries = 2000;
  uint64_t rows = 10'000;
  std::string device = "cpu";
  std::string build_device;
  std::vector<std::string> names;
  std::vector<std::string> elements;
  CLI::App app("Whether recall is as asked for on sets of many kinds.", "promise_check");
  app.add_option("--rows", rows, "rows of a set")
      ->check(CLI::Range(500u, 100'000'000u))
      ->capture_default_str();
  app.add_option("--queries", asked.queries, "queries")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--device", device, "cpu, cuda or cuda:N")->capture_default_str();
  app.add_option("--build-device", build_device, "that builds (default: the one that searches)");
  app.add_option("--batches", asked.batches, "queries a call (default: all)")->delimiter(',');
  app.add_option("-k", asked.ks, "neighbours, at most 199")->delimiter(',')->check(CLI::Range(1u, 199u));
  app.add_option("--recalls", asked.recalls, "what is asked for")->delimiter(',');
  app.add_option("--set", names, "only these sets")->delimiter(',');
  app.add_option("--elements", elements, "rows stored as these (default: as each set has it)")
      ->delimiter(',')
      ->check(CLI::IsMember({"f32", "f16", "bf16", "i8"}));
  app.add_flag("--verbose", asked.verbose, "every figure");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& fault) {
    return app.exit(fault) == 0 ? 0 : 2;
  }
  asked.device = device_of(device);
  asked.build_device = build_device.empty() ? asked.device : device_of(build_device);
  if (asked.batches.empty()) asked.batches = {static_cast<uint32_t>(asked.queries)};
  int sets = 0;
  int short_of = 0;
  for (const Set& set : all_sets(rows)) {
    const bool wanted =
        names.empty() || std::any_of(names.begin(), names.end(),
                                     [&](const std::string& name) { return set.name.starts_with(name); });
    if (!wanted) continue;
    std::vector<Set> stored;
    for (const std::string& element : elements) stored.push_back(stored_as(set, element));
    if (stored.empty()) stored.push_back(set);
    for (const Set& as : stored) {
      ++sets;
      short_of += check_set(as, asked);
    }
  }
  std::printf("promise_check: %d sets, %d figures fall short\n", sets, short_of);
  return sets > 0 && short_of == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& fault) {
    std::fprintf(stderr, "promise_check: %s\n", fault.what());
    return 1;
  }
}
