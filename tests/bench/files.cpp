// How fast files are saved, checked and opened. One thread unless it says otherwise.
//
//   c++ -O2 -std=c++20 -Icapi/include tests/bench/files.cpp -Lbuild -lgannet -Wl,-rpath,build
//   ./a.out FOLDER [ROWS]
//
// FOLDER gets a file of about 900 bytes a row (200 columns of f32, and where a graph is built their
// codes and edges) and must have room for two of them; ROWS is 1,000,000 unless given, which is 0.8
// GB without a graph. Prints CSV: what, bytes, wall seconds, CPU seconds, GB per CPU second. The file
// lies in the page cache: this measures the library, not the disk. The best of five counts, since
// other work on a machine only ever makes a run slower.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "ann.h"

namespace {

void demand(ann_status status, const ann_error& error, const char* what) {
  if (status == ANN_OK) return;
  std::fprintf(stderr, "%s: %s: %s\n", what, ann_status_name(status), error.message);
  std::exit(1);
}

struct Seconds {
  double wall = 1e9;
  double cpu = 1e9;
};

Seconds best_seconds(const std::function<void()>& work) {
  Seconds best;
  for (int run = 0; run < 5; ++run) {
    const auto start = std::chrono::steady_clock::now();
    const std::clock_t cpu_start = std::clock();
    work();
    const double cpu = static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC;
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
    best = {std::min(best.wall, wall.count()), std::min(best.cpu, cpu)};
  }
  return best;
}

void print(const char* what, uint64_t bytes, Seconds seconds) {
  std::printf("%s,%llu,%.5f,%.5f,%.2f\n", what, static_cast<unsigned long long>(bytes), seconds.wall,
              seconds.cpu, static_cast<double>(bytes) / 1e9 / seconds.cpu);
  std::fflush(stdout);
}

ann_index* build(uint64_t rows, uint32_t dim, int32_t graph) {
  std::vector<float> data(rows * dim);
  uint64_t state = 1;
  for (float& value : data) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    value = static_cast<float>(static_cast<int64_t>(state) >> 40);
  }
  ann_error error = ANN_ERROR_INIT;
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  shape.dim = dim;
  ann_index* index = nullptr;
  demand(ann_index_create(nullptr, &shape, &index, &error), error, "create");
  ann_matrix matrix = ANN_MATRIX_INIT;
  matrix.element = ANN_F32;
  matrix.data = data.data();
  matrix.rows = rows;
  matrix.dim = dim;
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.graph = graph;
  params.calibrate = ANN_OFF;
  demand(ann_build(index, &matrix, nullptr, &params, nullptr, &error), error, "build");
  return index;
}

void measure(const std::string& path, ann_index* index, const char* kind) {
  ann_error error = ANN_ERROR_INIT;
  ann_save_params save = ANN_SAVE_PARAMS_INIT;
  save.threads = 1;
  save.sync = ANN_OFF;
  const auto label = [&](const char* what) { return std::string(what) + " " + kind; };
  const Seconds saving =
      best_seconds([&] { demand(ann_save(index, path.c_str(), &save, nullptr, &error), error, "save"); });
  ann_file_description facts = ANN_FILE_DESCRIPTION_INIT;
  demand(ann_file_info(path.c_str(), &facts, &error), error, "info");
  print(label("save, not synced,").c_str(), facts.file_bytes, saving);

  ann_open_params params = ANN_OPEN_PARAMS_INIT;
  for (const uint32_t threads : {1u, 2u}) {
    params.threads = threads;
    const Seconds verifying =
        best_seconds([&] { demand(ann_verify(path.c_str(), &params, nullptr, &error), error, "verify"); });
    print(label(threads == 1 ? "verify, 1 thread," : "verify, 2 threads,").c_str(), facts.file_bytes,
          verifying);
  }
  params.threads = 1;
  for (const int32_t mode : {ANN_OPEN_FULL, ANN_OPEN_LAZY, ANN_OPEN_TRUSTED}) {
    params.mode = mode;
    const Seconds opening = best_seconds([&] {
      ann_index* opened = nullptr;
      demand(ann_open(nullptr, path.c_str(), &params, &opened, nullptr, &error), error, "open");
      ann_index_free(opened);
    });
    print(label(mode == ANN_OPEN_FULL   ? "open full and free,"
                : mode == ANN_OPEN_LAZY ? "open lazily and free,"
                                        : "open trusted and free,")
              .c_str(),
          facts.file_bytes, opening);
  }
  std::remove(path.c_str());
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 2) {
    std::fprintf(stderr, "usage: %s FOLDER [ROWS]\n", arguments[0]);
    return 2;
  }
  const uint64_t rows = count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 1000000;
  const std::string path = std::string(arguments[1]) + "/speed.gannet";
  std::printf("what,bytes,wall seconds,CPU seconds,GB per CPU second\n");
  ann_index* plain = build(rows, 200, ANN_GRAPH_NONE);
  measure(path, plain, "without a graph");
  ann_index_free(plain);
  ann_index* graph = build(std::max<uint64_t>(1000, rows / 40), 200, ANN_GRAPH_AUTO);
  measure(path, graph, "with a graph");
  ann_index_free(graph);
}
