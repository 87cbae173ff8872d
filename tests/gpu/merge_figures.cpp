// Makes GNND's Figure 7 again: the k-NN lists of two parts of a set, merged by GGM, merged by searches of each
// part's graph with the other's rows, and built of all rows at once.
//
//   merge_figures FILE.u8bin ROWS SHARE DEVICE [k=64] [p=16,24,32] [convergence=0.02] [search]
//
// SHARE is that of the first part; DEVICE 1 the CPU, 2 the first CUDA device; p and convergence are lists. `search`
// also merges by searches. A line for each run: way, k, p, convergence, seconds of the call, recall@10 and recall@k
// of 2,000 rows. The lists of the parts are found by NN-Descent at p = 32, which is not timed.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "ann.h"

namespace {

constexpr uint64_t kSampled = 2000;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void check(ann_status status, const ann_error& error) {
  if (status == ANN_OK) return;
  std::fprintf(stderr, "%s: %s\n", ann_status_name(status), error.message);
  std::exit(1);
}

struct Rows {
  std::vector<uint8_t> bytes;
  uint64_t count = 0;
  uint32_t dim = 0;

  ann_matrix part(uint64_t first, uint64_t rows) const {
    ann_matrix view = ANN_MATRIX_INIT;
    view.element = ANN_U8;
    view.data = bytes.data() + first * dim;
    view.rows = rows;
    view.dim = dim;
    return view;
  }
};

Rows read(const char* path, uint64_t most) {
  std::FILE* file = std::fopen(path, "rb");
  uint32_t shape[2] = {};
  Rows rows;
  if (file != nullptr && std::fread(shape, 4, 2, file) == 2) {
    rows.count = std::min<uint64_t>(shape[0], most);
    rows.dim = shape[1];
    rows.bytes.resize(rows.count * rows.dim);
  }
  if (rows.count == 0 || std::fread(rows.bytes.data(), 1, rows.bytes.size(), file) != rows.bytes.size()) {
    std::fprintf(stderr, "%s is no .u8bin file\n", path);
    std::exit(2);
  }
  std::fclose(file);
  return rows;
}

struct Lists {
  Lists(uint64_t count, uint32_t length, uint64_t first)
      : rows(count), k(length), first_id(first), neighbors(count * length), distances(count * length) {}
  ann_knn_lists view() {
    ann_knn_lists lists = ANN_KNN_LISTS_INIT;
    lists.k = k;
    lists.rows = rows;
    lists.first_id = first_id;
    lists.neighbors = neighbors.data();
    lists.distances = distances.data();
    return lists;
  }
  uint64_t rows;
  uint32_t k;
  uint64_t first_id;
  std::vector<uint64_t> neighbors;
  std::vector<float> distances;
};

struct Bench {
  Rows rows;
  uint64_t split;
  int32_t device;
  uint32_t k;
  std::vector<float> farthest;  // [sampled, k] distances of the true neighbours

  ann_knn_params params(uint32_t p, float convergence) const {
    ann_knn_params made = ANN_KNN_PARAMS_INIT;
    made.method = ANN_KNN_NN_DESCENT;
    made.k = k;
    made.samples = p;
    made.convergence = convergence;
    made.device = device;
    return made;
  }

  Lists build(uint64_t first, uint64_t count, uint32_t p, float convergence, double* seconds) const {
    Lists lists(count, k, first);
    std::vector<uint32_t> numbers(count * k);
    const ann_matrix part = rows.part(first, count);
    const ann_knn_params given = params(p, convergence);
    ann_error error = ANN_ERROR_INIT;
    const auto start = Clock::now();
    check(ann_knn_graph(nullptr, &part, &given, numbers.data(), lists.distances.data(), nullptr, &error),
          error);
    *seconds = seconds_since(start);
    for (uint64_t i = 0; i < numbers.size(); ++i)
      lists.neighbors[i] = numbers[i] == UINT32_MAX ? ANN_ID_NONE : first + numbers[i];
    return lists;
  }

  uint64_t sampled() const { return std::min(kSampled, rows.count); }
  uint64_t sample(uint64_t i) const { return i * rows.count / sampled(); }

  void find_truth() {
    Rows queries;
    queries.dim = rows.dim;
    queries.count = sampled();
    for (uint64_t i = 0; i < sampled(); ++i) {
      const uint8_t* row = rows.bytes.data() + sample(i) * rows.dim;
      queries.bytes.insert(queries.bytes.end(), row, row + rows.dim);
    }
    ann_index* index = index_of(0, rows.count, 0);
    const Lists found = search_lists(index, queries.part(0, queries.count), k + 1, 0, nullptr);
    ann_index_free(index);
    for (uint64_t i = 0; i < sampled(); ++i)  // the first is the row itself, or its twin
      for (uint32_t j = 1; j <= k; ++j) farthest.push_back(found.distances[i * (k + 1) + j]);
  }

  /// An index of some rows; for recall 0 without a graph.
  ann_index* index_of(uint64_t first, uint64_t count, float recall) const {
    ann_error error = ANN_ERROR_INIT;
    ann_index_params shape = ANN_INDEX_PARAMS_INIT;
    shape.dim = rows.dim;
    ann_index* index = nullptr;
    check(ann_index_create(nullptr, &shape, &index, &error), error);
    ann_build_params building = ANN_BUILD_PARAMS_INIT;
    building.device = device;
    if (recall == 0) building.graph = ANN_GRAPH_NONE;
    const ann_matrix part = rows.part(first, count);
    check(ann_build(index, &part, nullptr, &building, nullptr, &error), error);
    return index;
  }

  /// Neighbours of queries: exact for recall 0.
  Lists search_lists(const ann_index* index, const ann_matrix& queries, uint32_t wanted, float recall,
                     double* seconds) const {
    ann_error error = ANN_ERROR_INIT;
    Lists found(queries.rows, wanted, 0);
    ann_results results = ANN_RESULTS_INIT;
    results.k = wanted;
    results.rows = queries.rows;
    results.ids = found.neighbors.data();
    results.distances = found.distances.data();
    ann_search_params searching = ANN_SEARCH_PARAMS_INIT;
    searching.device = device;
    searching.recall = recall;
    if (recall == 0) {
      check(ann_search_exact(index, &queries, &searching, &results, nullptr, &error), error);
    } else {
      check(ann_search_batch(index, &queries, &searching, &results, nullptr, &error), error);  // calibrates
      const auto start = Clock::now();
      check(ann_search_batch(index, &queries, &searching, &results, nullptr, &error), error);
      *seconds += seconds_since(start);
    }
    return found;
  }

  double recall_of(const Lists& lists, uint32_t at) const {
    uint64_t hits = 0;
    for (uint64_t i = 0; i < sampled(); ++i)
      for (uint32_t j = 0; j < at; ++j)
        hits += lists.distances[sample(i) * lists.k + j] <= farthest[i * k + at - 1] ? 1 : 0;
    return static_cast<double>(hits) / static_cast<double>(sampled() * at);
  }

  void print(const char* way, const Lists& lists, uint32_t p, float convergence, double seconds) const {
    std::printf("%s,%u,%u,%g,%.4f,%.4f,%.4f\n", way, k, p, static_cast<double>(convergence), seconds,
                recall_of(lists, std::min(10u, k)), recall_of(lists, k));
    std::fflush(stdout);
  }

  void merge(Lists& first, Lists& second, uint32_t p, float convergence) const {
    Lists merged(rows.count, k, 0);
    const ann_matrix a = rows.part(0, split), b = rows.part(split, rows.count - split);
    const ann_knn_lists first_view = first.view(), second_view = second.view();
    ann_knn_lists out = merged.view();
    const ann_knn_params given = params(p, convergence);
    ann_error error = ANN_ERROR_INIT;
    const auto start = Clock::now();
    check(ann_knn_merge(nullptr, &a, &first_view, &b, &second_view, &given, &out, nullptr, &error), error);
    print("ggm", merged, p, convergence, seconds_since(start));
  }

  /// Each part's rows search the other's index; what they find is joined with the lists.
  void search_merge(const Lists& first, const Lists& second, const ann_index* first_index,
                    const ann_index* second_index, float recall) const {
    double seconds = 0;
    const Lists across_first = search_lists(second_index, rows.part(0, split), k, recall, &seconds);
    const Lists across_second =
        search_lists(first_index, rows.part(split, rows.count - split), k, recall, &seconds);
    Lists merged(rows.count, k, 0);
    const auto start = Clock::now();
    for (uint64_t row = 0; row < rows.count; ++row) {
      const Lists& own = row < split ? first : second;
      const Lists& across = row < split ? across_first : across_second;
      const uint64_t from = (row < split ? row : row - split) * k;
      for (uint32_t i = 0, a = 0, b = 0; i < k; ++i) {
        const bool from_own = own.distances[from + a] <= across.distances[from + b];
        merged.distances[row * k + i] = from_own ? own.distances[from + a++] : across.distances[from + b++];
      }
    }
    print("search-merge", merged, 0, recall, seconds + seconds_since(start));
  }
};

std::vector<float> numbers_of(const char* text) {
  std::vector<float> numbers;
  for (char* end = nullptr;; text = end + 1) {
    numbers.push_back(std::strtof(text, &end));
    if (*end != ',') return numbers;
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 5) {
    std::fprintf(
        stderr,
        "usage: merge_figures FILE.u8bin ROWS SHARE DEVICE [k=N] [p=N,...] [convergence=X,...] [search]\n");
    return 2;
  }
  std::vector<float> samples = {16}, convergences = {0.02f};
  bool search = false;
  Bench bench;
  bench.k = 64;
  for (int i = 5; i < count; ++i) {
    const char* argument = arguments[i];
    if (std::strncmp(argument, "k=", 2) == 0) bench.k = static_cast<uint32_t>(std::atoi(argument + 2));
    if (std::strncmp(argument, "p=", 2) == 0) samples = numbers_of(argument + 2);
    if (std::strncmp(argument, "convergence=", 12) == 0) convergences = numbers_of(argument + 12);
    search |= std::strcmp(argument, "search") == 0;
  }
  bench.rows = read(arguments[1], std::strtoull(arguments[2], nullptr, 10));
  bench.split = static_cast<uint64_t>(std::atof(arguments[3]) * static_cast<double>(bench.rows.count));
  bench.device = std::atoi(arguments[4]);
  bench.find_truth();
  double seconds = 0;
  std::printf("way,k,p,convergence or recall,seconds,recall@10,recall@k\n");
  Lists first = bench.build(0, bench.split, std::min(32u, bench.k), 0.005f, &seconds);
  Lists second =
      bench.build(bench.split, bench.rows.count - bench.split, std::min(32u, bench.k), 0.005f, &seconds);
  for (const float p : samples)
    for (const float convergence : convergences) {
      const uint32_t taken = static_cast<uint32_t>(p);
      bench.merge(first, second, taken, convergence);
      const Lists whole = bench.build(0, bench.rows.count, taken, convergence, &seconds);
      bench.print("whole", whole, taken, convergence, seconds);
    }
  if (!search) return 0;
  ann_index* first_index = bench.index_of(0, bench.split, 1);
  ann_index* second_index = bench.index_of(bench.split, bench.rows.count - bench.split, 1);
  for (const float recall : {0.8f, 0.9f, 0.95f, 0.98f, 0.99f})
    bench.search_merge(first, second, first_index, second_index, recall);
  ann_index_free(first_index);
  ann_index_free(second_index);
  return 0;
}
