// Counts what searches find and what they cost on small fixed cases, to notice a change of either.
//
//   recall_record DATA_FOLDER                          prints the table
//   recall_record DATA_FOLDER --check results.csv      compares with it, exactly
//
// DATA_FOLDER is examples/data. After a change that is meant to alter the numbers:
//
//   build/tests/recall/recall_record examples/data > tests/recall/results.csv
//
// and the commit says why. Everything counted is an integer and depends on neither threads nor CPU: hits are
// results no farther than the k-th true distance, distances and expansions are the library's own counts, beam
// is the length that was given or that a wanted recall led to. Rows with the k-NN graph "nn_descent" stay as
// they are when the default changes; "auto" is the default. Rows with "tsdg" are of TSDG's graph over exact
// lists and of its searches: "tsdg" and "tsdg_prefix" (best-first over edges with factors below 5) have a beam,
// "tsdg_small" walks and "tsdg_large" hundredths of Delta in its place. Rows with "ggnn" are of GGNN's graph:
// by its search, with hundredths of 1 + tau in the beam's place, "ggnn_small" with 8 places of its queue
// and 32 of the rows that it remembers, and "ggnn_beam" best-first.

#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "exact_search.h"
#include "handles.h"
#include "made_rows.h"
#include "names.h"
#include "vector_file.h"

namespace {

struct Case {
  std::string name;
  Vectors rows;
  Vectors queries;
  int32_t metric = ANN_METRIC_L2;
  int32_t element = ANN_ELEMENT_AUTO;  // as stored
};

// One search: a beam, or a recall that the library turns into one.
struct Effort {
  uint32_t k;
  uint32_t beam;
  float recall;
};
constexpr Effort kEfforts[] = {{1, 10, 0},     {10, 10, 0},    {10, 32, 0},  {10, 128, 0},
                               {10, 0, 0.90f}, {10, 0, 0.99f}, {100, 128, 0}};
constexpr uint32_t kMost = 100;

Vectors made(const bench::MadeRows& maker, bench::Part part, uint64_t rows, uint32_t dim, int32_t element) {
  std::vector<float> values(rows * dim);
  maker.make(part, 0, rows, values.data());
  if (element == ANN_U8) {
    for (float& value : values) value = 20 * value + 128;
  }
  Vectors out;
  out.element = element;
  out.rows = rows;
  out.dim = dim;
  out.data.resize(rows * out.row_bytes());
  bench::store_values(values.data(), values.size(), element, out.data.data());
  return out;
}

Case made_case(const std::string& name, bench::Law law, uint32_t dim, uint32_t intrinsic, int32_t given,
               int32_t metric, int32_t stored = ANN_ELEMENT_AUTO) {
  bench::MadeSet set;
  set.law = law;
  set.dim = dim;
  set.intrinsic_dim = intrinsic;
  set.clusters = 50;
  set.rows = 6000;
  const bench::MadeRows maker(set);
  return {name, made(maker, bench::Part::kRows, set.rows, dim, given),
          made(maker, bench::Part::kQueries, 100, dim, given), metric, stored};
}

std::vector<Case> all_cases(const std::string& data) {
  using bench::Law;
  std::vector<Case> out;
  out.push_back({"sift", read_vectors(data + "/sift_10k.u8bin"), read_vectors(data + "/sift_queries.u8bin")});
  out.push_back(made_case("clusters", Law::kClusters, 48, 12, ANN_F32, ANN_METRIC_L2));
  out.push_back(made_case("clusters_f16", Law::kClusters, 48, 12, ANN_F32, ANN_METRIC_L2, ANN_F16));
  out.push_back(made_case("clusters_cosine", Law::kClusters, 48, 12, ANN_F32, ANN_METRIC_COSINE));
  out.push_back(made_case("uniform", Law::kUniform, 12, 12, ANN_F32, ANN_METRIC_L2));
  out.push_back(made_case("duplicates", Law::kDuplicates, 32, 8, ANN_U8, ANN_METRIC_L2));
  out.push_back(made_case("norms", Law::kNorms, 32, 16, ANN_F32, ANN_METRIC_INNER_PRODUCT));
  return out;
}

// Results no farther than the k-th true one, both as the library computes them on stored rows.
uint64_t hits_of(const Neighbours& found, const Neighbours& truth) {
  uint64_t hits = 0;
  for (uint64_t q = 0; q < found.queries; ++q) {
    const float limit = truth.distances[q * truth.k + found.k - 1];
    for (uint32_t i = 0; i < found.k; ++i) {
      hits += found.ids[q * found.k + i] != ANN_ID_NONE && found.distances[q * found.k + i] <= limit;
    }
  }
  return hits;
}

void measure(const Case& one, const std::string& knn, std::ostream& table) {
  const Index index = make_index(one.rows.dim, one.metric, one.element);
  ann_build_params build = ANN_BUILD_PARAMS_INIT;
  build.knn = kKnnMethods.at(knn);
  const ann_matrix rows = one.rows.view();
  const ann_matrix queries = one.queries.view();
  ann_error error = ANN_ERROR_INIT;
  check(ann_build(index.get(), &rows, nullptr, &build, nullptr, &error), error, "building");
  Neighbours truth(queries.rows, kMost);
  ann_results exact = truth.view(0, queries.rows);
  check(ann_search_exact(index.get(), &queries, nullptr, &exact, nullptr, &error), error,
        "searching exactly");
  for (const Effort& effort : kEfforts) {
    ann_search_params search = ANN_SEARCH_PARAMS_INIT;
    search.beam = effort.beam;
    search.recall = effort.recall;
    uint32_t beam = effort.beam;
    if (beam == 0) {
      check(ann_index_beam(index.get(), effort.k, effort.recall, &beam, &error), error, "reading the beam");
    }
    Neighbours found(queries.rows, effort.k);
    ann_results results = found.view(0, queries.rows);
    check(ann_search_batch(index.get(), &queries, &search, &results, nullptr, &error), error, "searching");
    table << one.name << ',' << knn << ',' << effort.k << ',';
    if (effort.recall > 0) table << effort.recall;
    table << ',' << beam << ',' << hits_of(found, truth) << ',' << queries.rows * effort.k << ','
          << results.distance_count << ',' << results.expansion_count << '\n';
  }
}

/// A search by a procedure on a graph of its own.
struct NamedEffort {
  const char* name;
  int32_t procedure;
  uint32_t effort;
};
constexpr NamedEffort kTsdgEfforts[] = {{"tsdg", ANN_SEARCH_TSDG, 10},
                                        {"tsdg", ANN_SEARCH_TSDG, 32},
                                        {"tsdg_prefix", ANN_SEARCH_BEST_FIRST, 32},
                                        {"tsdg_small", ANN_SEARCH_TSDG_SMALL, 2},
                                        {"tsdg_small", ANN_SEARCH_TSDG_SMALL, 16},
                                        {"tsdg_large", ANN_SEARCH_TSDG_LARGE, 100},
                                        {"tsdg_large", ANN_SEARCH_TSDG_LARGE, 105}};

constexpr NamedEffort kGgnnEfforts[] = {{"ggnn", ANN_SEARCH_GGNN, 102},
                                        {"ggnn", ANN_SEARCH_GGNN, 110},
                                        {"ggnn", ANN_SEARCH_GGNN, 130},
                                        {"ggnn_small", ANN_SEARCH_GGNN, 110},
                                        {"ggnn_beam", ANN_SEARCH_BEST_FIRST, 32}};

ann_build_params build_for(int32_t graph) {
  ann_build_params build = ANN_BUILD_PARAMS_INIT;
  build.graph = graph;
  build.calibrate = ANN_OFF;
  if (graph == ANN_GRAPH_TSDG) {
    build.knn = ANN_KNN_EXACT;
    build.knn_degree = 64;
  }
  return build;
}

ann_search_params search_for(const NamedEffort& effort) {
  ann_search_params search = ANN_SEARCH_PARAMS_INIT;
  search.procedure = effort.procedure;
  const float factor = static_cast<float>(effort.effort) / 100;
  const std::string name = effort.name;
  if (name == "tsdg_prefix") search.occlusion_max = 5;
  if (name == "ggnn_small") search.queue = 8, search.visited = 32;
  if (effort.procedure == ANN_SEARCH_GGNN)
    search.stretch = factor;
  else if (effort.procedure == ANN_SEARCH_TSDG_LARGE)
    search.delta = factor;
  else if (effort.procedure == ANN_SEARCH_TSDG_SMALL)
    search.walks = effort.effort;
  else
    search.beam = effort.effort;
  return search;
}

void measure_named(const Case& one, int32_t graph, std::span<const NamedEffort> efforts,
                   std::ostream& table) {
  constexpr uint32_t kFound = 10;
  const Index index = make_index(one.rows.dim, one.metric, one.element);
  const ann_build_params build = build_for(graph);
  const ann_matrix rows = one.rows.view();
  const ann_matrix queries = one.queries.view();
  ann_error error = ANN_ERROR_INIT;
  check(ann_build(index.get(), &rows, nullptr, &build, nullptr, &error), error, "building");
  Neighbours truth(queries.rows, kFound);
  ann_results exact = truth.view(0, queries.rows);
  check(ann_search_exact(index.get(), &queries, nullptr, &exact, nullptr, &error), error,
        "searching exactly");
  for (const NamedEffort& effort : efforts) {
    const ann_search_params search = search_for(effort);
    Neighbours found(queries.rows, kFound);
    ann_results results = found.view(0, queries.rows);
    check(ann_search_batch(index.get(), &queries, &search, &results, nullptr, &error), error, "searching");
    table << one.name << ',' << effort.name << ',' << kFound << ",," << effort.effort << ','
          << hits_of(found, truth) << ',' << queries.rows * kFound << ',' << results.distance_count << ','
          << results.expansion_count << '\n';
  }
}

std::string whole_table(const std::string& data) {
  std::ostringstream table;
  table << "case,knn,k,asked_recall,beam,hits,wanted,distances,expansions\n";
  for (const Case& one : all_cases(data)) {
    for (const char* knn : {"nn_descent", "auto"}) measure(one, knn, table);
  }
  for (const Case& one : all_cases(data)) {
    if (one.name == "sift" || one.name == "clusters" || one.name == "norms")
      measure_named(one, ANN_GRAPH_TSDG, kTsdgEfforts, table);
  }
  for (const Case& one : all_cases(data)) {
    if (one.name == "sift" || one.name == "clusters_cosine" || one.name == "uniform")
      measure_named(one, ANN_GRAPH_GGNN, kGgnnEfforts, table);
  }
  return table.str();
}

// Prints the lines that differ. Returns their number.
int compare(const std::string& now, const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(path + ": cannot be opened");
  std::istringstream fresh(now);
  int different = 0;
  while (true) {
    std::string kept_line;
    std::string fresh_line;
    const bool kept_more = static_cast<bool>(std::getline(file, kept_line));
    const bool fresh_more = static_cast<bool>(std::getline(fresh, fresh_line));
    if (!kept_more && !fresh_more) return different;
    if (kept_line == fresh_line && kept_more == fresh_more) continue;
    std::printf("- %s\n+ %s\n", kept_line.c_str(), fresh_line.c_str());
    ++different;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bool checks = argc == 4 && std::strcmp(argv[2], "--check") == 0;
  if (argc != 2 && !checks) {
    std::fprintf(stderr, "usage: recall_record DATA_FOLDER [--check results.csv]\n");
    return 2;
  }
  try {
    const std::string table = whole_table(argv[1]);
    if (!checks) {
      std::fputs(table.c_str(), stdout);
      return 0;
    }
    const int different = compare(table, argv[3]);
    std::printf("recall_record: %d lines differ\n", different);
    if (different > 0) {
      std::printf("If this is meant: %s examples/data > tests/recall/results.csv, and say why\n", argv[0]);
    }
    return different == 0 ? 0 : 1;
  } catch (const std::exception& fault) {
    std::fprintf(stderr, "recall_record: %s\n", fault.what());
    return 1;
  }
}
