// Gannet against hnswlib (M = 16, ef_construction = 200, f32) on one data set: one thread each, one
// process, same rows, same queries, same true neighbours.
//
//   against_hnswlib NAME ROWS QUERIES TRUTH l2|cosine [f32]
//
// ROWS and QUERIES are .u8bin or .f16bin; TRUTH is .ibin. hnswlib gets the rows as f32 (scaled to
// length one and compared by inner product for cosine, as its documentation says). Gannet gets them
// as bytes where they are bytes, else as f32. Each point is the best of five passes over all queries,
// one query a call, the two libraries in turns. Prints CSV: data, library, what, beam, recall, value.
//
// Both builds are timed by the clock and by the processor time that they took, which says more where
// other programs run. BENCH_THREADS=2 builds both with two threads; BENCH_BUILD_ONLY=1 stops there. BENCH_TSDG=200
// adds TSDG's graph of lists of 200, searched by its procedure, which is Figure 4 of its paper.

#include <hnswlib/hnswlib.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ann.h"
#include "distance/element.h"

namespace {

constexpr uint32_t kK = 10;
constexpr int kPasses = 5;

struct Vectors {
  uint32_t rows = 0;
  uint32_t dim = 0;
  std::vector<uint8_t> bytes;  // as in the file, if it is .u8bin
  std::vector<float> floats;   // [rows, dim]
};

std::vector<char> read_file(const std::string& path, uint32_t* rows, uint32_t* columns) {
  std::ifstream file(path, std::ios::binary);
  uint32_t header[2] = {};
  file.read(reinterpret_cast<char*>(header), sizeof header);
  std::vector<char> rest((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (rest.empty()) {
    std::fprintf(stderr, "%s: cannot be read\n", path.c_str());
    std::exit(1);
  }
  *rows = header[0];
  *columns = header[1];
  return rest;
}

Vectors read_vectors(const std::string& path) {
  Vectors vectors;
  const std::vector<char> data = read_file(path, &vectors.rows, &vectors.dim);
  const size_t count = size_t{vectors.rows} * vectors.dim;
  vectors.floats.resize(count);
  if (path.ends_with(".u8bin")) {
    vectors.bytes.assign(data.begin(), data.begin() + static_cast<std::ptrdiff_t>(count));
    std::copy(vectors.bytes.begin(), vectors.bytes.end(), vectors.floats.begin());
  } else {
    for (size_t i = 0; i < count; ++i)
      vectors.floats[i] = gannet::element_to_float(data.data(), ANN_F16, static_cast<uint32_t>(i));
  }
  return vectors;
}

double seconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Prints the time of the clock and of the processor that `work` takes.
void time_build(const char* name, const char* library, const std::function<void()>& work) {
  const std::clock_t before = std::clock();  // of all threads
  const double by_clock = seconds(work);
  const double used = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  std::printf("%s,%s,build seconds,,,%.2f\n", name, library, by_clock);
  std::printf("%s,%s,build processor seconds,,,%.2f\n", name, library, used);
}

struct Truth {
  std::vector<int32_t> ids;
  uint32_t k;

  double recall(const std::vector<uint64_t>& found, uint32_t queries) const {
    size_t hits = 0;
    for (uint32_t query = 0; query < queries; ++query) {
      for (uint32_t i = 0; i < kK; ++i) {
        const uint64_t* list = found.data() + size_t{query} * kK;
        const uint64_t wanted = static_cast<uint64_t>(ids[size_t{query} * k + i]);
        hits += static_cast<size_t>(std::find(list, list + kK, wanted) != list + kK);
      }
    }
    return static_cast<double>(hits) / (size_t{queries} * kK);
  }
};

void check(ann_status status, const ann_error& error) {
  if (status == ANN_OK) return;
  std::fprintf(stderr, "%s: %s\n", ann_status_name(status), error.message);
  std::exit(1);
}

struct Point {
  double recall;
  double rate;
};

/// A library, or a way to use one, and its points.
struct Way {
  const char* name;
  std::function<void(uint32_t beam)> pass;
  std::vector<Point> curve;
};

ann_matrix matrix_of(const Vectors& vectors) {
  ann_matrix matrix = ANN_MATRIX_INIT;
  const bool bytes = !vectors.bytes.empty();
  matrix.data = bytes ? static_cast<const void*>(vectors.bytes.data()) : vectors.floats.data();
  matrix.element = bytes ? ANN_U8 : ANN_F32;
  matrix.rows = vectors.rows;
  matrix.dim = vectors.dim;
  return matrix;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) {
    std::fprintf(stderr, "usage: %s NAME ROWS QUERIES TRUTH l2|cosine [f32]\n", argv[0]);
    return 2;
  }
  const char* name = argv[1];
  Vectors rows = read_vectors(argv[2]);
  Vectors queries = read_vectors(argv[3]);
  Truth truth;
  uint32_t truth_rows = 0;
  const std::vector<char> truth_file = read_file(argv[4], &truth_rows, &truth.k);
  truth.ids.resize(size_t{truth_rows} * truth.k);
  std::memcpy(truth.ids.data(), truth_file.data(), truth.ids.size() * sizeof(int32_t));
  queries.rows = std::min(queries.rows, truth_rows);
  const bool cosine = std::string(argv[5]) == "cosine";
  if (argc > 6) rows.bytes.clear(), queries.bytes.clear();

  // Gannet.
  ann_error error = ANN_ERROR_INIT;
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  shape.dim = rows.dim;
  shape.metric = cosine ? ANN_METRIC_COSINE : ANN_METRIC_L2;
  ann_index* index = nullptr;
  check(ann_index_create(nullptr, &shape, &index, &error), error);
  ann_build_params build = ANN_BUILD_PARAMS_INIT;
  build.threads = 1;
  if (const char* text = std::getenv("BENCH_THREADS")) build.threads = std::atoi(text);
  if (const char* text = std::getenv("BENCH_DEGREE")) build.degree = std::atoi(text);
  if (const char* text = std::getenv("BENCH_KNN_DEGREE")) build.knn_degree = std::atoi(text);
  if (const char* text = std::getenv("BENCH_SAMPLES")) build.samples = std::atoi(text);
  if (const char* text = std::getenv("BENCH_CONVERGENCE")) build.convergence = std::atof(text);
  if (const char* text = std::getenv("BENCH_KNN")) build.knn = std::atoi(text);
  ann_matrix row_matrix = matrix_of(rows);
  time_build(name, "gannet",
             [&] { check(ann_build(index, &row_matrix, nullptr, &build, nullptr, &error), error); });
  ann_index_info info = ANN_INDEX_INFO_INIT;
  check(ann_index_get_info(index, &info, &error), error);
  std::printf("%s,gannet,calibration seconds,,,%.2f\n", name, info.calibrate_seconds);
  std::printf("%s,gannet,rounds,,,%u\n%s,gannet,repaired edges,,,%u\n", name, info.knn_iterations, name,
              info.repaired_edges);
  std::printf("%s,gannet,memory MB,,,%.1f\n", name, static_cast<double>(info.memory_bytes) / 1e6);
  ann_graph_stats graph = ANN_GRAPH_STATS_INIT;
  check(ann_index_graph_stats(index, &graph, &error), error);
  std::printf("%s,gannet,unreachable,,,%llu\n", name, static_cast<unsigned long long>(graph.unreachable));

  ann_index* tsdg = nullptr;
  if (const char* lists = std::getenv("BENCH_TSDG")) {
    check(ann_index_create(nullptr, &shape, &tsdg, &error), error);
    ann_build_params tsdg_build = build;
    tsdg_build.graph = ANN_GRAPH_TSDG;
    tsdg_build.knn_degree = static_cast<uint32_t>(std::atoi(lists));
    time_build(name, "gannet tsdg",
               [&] { check(ann_build(tsdg, &row_matrix, nullptr, &tsdg_build, nullptr, &error), error); });
  }

  // hnswlib.
  const bool with_hnswlib = std::getenv("BENCH_ALONE") == nullptr;
  std::vector<float> scaled = rows.floats;
  std::vector<float> scaled_queries = queries.floats;
  const auto normalise = [&](std::vector<float>& values) {
    for (size_t row = 0; row < values.size() / rows.dim; ++row) {
      float* vector = values.data() + row * rows.dim;
      double sum = 0;
      for (uint32_t i = 0; i < rows.dim; ++i) sum += double{vector[i]} * vector[i];
      for (uint32_t i = 0; i < rows.dim; ++i) vector[i] = static_cast<float>(vector[i] / std::sqrt(sum));
    }
  };
  if (cosine) normalise(scaled), normalise(scaled_queries);
  std::unique_ptr<hnswlib::SpaceInterface<float>> space;
  if (cosine) {
    space = std::make_unique<hnswlib::InnerProductSpace>(rows.dim);
  } else {
    space = std::make_unique<hnswlib::L2Space>(rows.dim);
  }
  std::unique_ptr<hnswlib::HierarchicalNSW<float>> peer;
  if (with_hnswlib) {
    time_build(name, "hnswlib", [&] {
      peer = std::make_unique<hnswlib::HierarchicalNSW<float>>(space.get(), rows.rows, 16, 200);
      peer->addPoint(scaled.data(), 0);
      std::atomic<uint32_t> next = 1;
      const auto add = [&] {
        for (uint32_t row = next++; row < rows.rows; row = next++)
          peer->addPoint(scaled.data() + size_t{row} * rows.dim, row);
      };
      std::vector<std::thread> others;
      for (uint32_t i = 1; i < build.threads; ++i) others.emplace_back(add);
      add();
      for (std::thread& other : others) other.join();
    });
  }
  if (std::getenv("BENCH_BUILD_ONLY") != nullptr) {
    ann_index_free(index);
    return 0;
  }

  // All sweeps, in turns.
  std::vector<uint64_t> found(size_t{queries.rows} * kK);
  std::vector<float> distances(kK);
  const auto gannet_pass = [&](const ann_index* searched, int32_t procedure, uint32_t beam, float recall) {
    ann_search_params params = ANN_SEARCH_PARAMS_INIT;
    params.procedure = procedure;
    params.beam = beam;
    params.recall = recall;
    ann_matrix one = matrix_of(queries);
    const size_t bytes = queries.dim * (queries.bytes.empty() ? sizeof(float) : 1);
    const uint8_t* first = static_cast<const uint8_t*>(one.data);
    for (uint32_t query = 0; query < queries.rows; ++query) {
      one.data = first + query * bytes;
      one.rows = 1;
      ann_results results = ANN_RESULTS_INIT;
      results.k = kK;
      results.rows = 1;
      results.ids = found.data() + size_t{query} * kK;
      results.distances = distances.data();
      check(ann_search_batch(searched, &one, &params, &results, nullptr, &error), error);
    }
  };
  const auto peer_pass = [&](uint32_t beam) {
    peer->setEf(beam);
    for (uint32_t query = 0; query < queries.rows; ++query) {
      auto nearest = peer->searchKnn(scaled_queries.data() + size_t{query} * queries.dim, kK);
      for (uint32_t i = kK; i-- > 0; nearest.pop()) found[size_t{query} * kK + i] = nearest.top().second;
    }
  };
  std::vector<Way> ways;
  ways.push_back({"gannet", [&](uint32_t beam) { gannet_pass(index, ANN_SEARCH_AUTO, beam, 0); }, {}});
  if (with_hnswlib) ways.push_back({"hnswlib", peer_pass, {}});
  if (tsdg != nullptr)
    ways.push_back({"gannet tsdg", [&](uint32_t beam) { gannet_pass(tsdg, ANN_SEARCH_TSDG, beam, 0); }, {}});
  for (uint32_t beam = kK; beam <= 640; beam = beam * 5 / 4 + 1) {
    for (Way& way : ways) way.curve.push_back({});
    for (int pass = 0; pass < kPasses; ++pass) {
      for (Way& way : ways) {
        const double time = seconds([&] { way.pass(beam); });
        way.curve.back().rate = std::max(way.curve.back().rate, queries.rows / time);
        if (pass == 0) way.curve.back().recall = truth.recall(found, queries.rows);
      }
    }
    bool ended = true;
    for (const Way& way : ways) {
      const Point& point = way.curve.back();
      std::printf("%s,%s,queries per second,%u,%.4f,%.0f\n", name, way.name, beam, point.recall, point.rate);
      ended = ended && point.recall > (&way == ways.data() ? 0.997 : 0.995);
    }
    if (ended) break;
  }
  // The rate at a recall: between the two points around it, in proportion of time per query.
  const auto rate_at = [](const std::vector<Point>& curve, double recall) {
    for (size_t i = 1; i < curve.size(); ++i) {
      if (curve[i].recall < recall) continue;
      const Point& a = curve[i - 1];
      const Point& b = curve[i];
      if (a.recall >= recall) return a.rate;
      const double part = (recall - a.recall) / (b.recall - a.recall);
      return 1 / ((1 - part) / a.rate + part / b.rate);
    }
    return 0.0;
  };
  for (const double recall : {0.95, 0.99}) {
    for (const Way& way : ways)
      std::printf("%s,%s,queries per second at recall,,%.2f,%.0f\n", name, way.name, recall,
                  rate_at(way.curve, recall));
    if (!with_hnswlib) continue;
    const double theirs = rate_at(ways[1].curve, recall);
    for (const Way& way : ways) {
      if (&way != &ways[1])
        std::printf("%s,%s/hnswlib,ratio at recall,,%.2f,%.2f\n", name, way.name, recall,
                    rate_at(way.curve, recall) / theirs);
    }
  }
  // What a target of recall gives on queries that calibration has not seen.
  for (const float recall : {0.90f, 0.95f, 0.99f}) {
    gannet_pass(index, ANN_SEARCH_AUTO, 0, recall);
    uint32_t beam = 0;
    check(ann_index_beam(index, kK, recall, &beam, &error), error);
    std::printf("%s,gannet,recall asked %.2f got,%u,%.4f,%.4f\n", name, static_cast<double>(recall), beam,
                truth.recall(found, queries.rows),
                truth.recall(found, queries.rows) - static_cast<double>(recall));
  }
  ann_index_free(tsdg);
  ann_index_free(index);
}
