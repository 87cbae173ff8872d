// Times of searches by the graph on a CUDA device.
//
//   walk_cuda_time ROWS QUERIES [DEGREE [ROWS_MAX]]
//
// ROWS and QUERIES are .u8bin files (uint32 rows, uint32 dim, then the values); of ROWS the first
// ROWS_MAX are used. The index is built on the CPU, once for u8 and once for the same values as f32.
// Recall is measured against exact search on the device; a row counts as found if it is no farther than
// the k-th true neighbour. Kernel times are CUDA events around the kernels, host-to-host times a clock
// around ann_search_batch; both are medians. Ends with 77 where there is no CUDA device.

#include <ann.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "capi/boundary.h"
#include "index/device_search.h"

namespace {

using namespace gannet;

constexpr uint32_t kRepeats = 11;

struct Vectors {
  uint32_t rows = 0;
  uint32_t dim = 0;
  int32_t element = ANN_U8;
  std::vector<uint8_t> bytes;

  ann_matrix view(uint64_t first, uint64_t count) const {
    ann_matrix matrix = ANN_MATRIX_INIT;
    matrix.element = element;
    matrix.data = bytes.data() + first * dim * element_bytes(element);
    matrix.rows = count;
    matrix.dim = dim;
    return matrix;
  }
};

[[noreturn]] void give_up(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::exit(1);
}

Vectors read_file(const char* path, uint32_t rows_max) {
  std::FILE* file = std::fopen(path, "rb");
  uint32_t header[2];
  if (file == nullptr || std::fread(header, 4, 2, file) != 2)
    give_up(std::string("cannot read ") + path);
  Vectors vectors;
  vectors.dim = header[1];
  vectors.bytes.resize(size_t{std::min(header[0], rows_max)} * vectors.dim);
  // A file that is cut gives the rows that are there.
  const size_t read = std::fread(vectors.bytes.data(), 1, vectors.bytes.size(), file);
  vectors.rows = static_cast<uint32_t>(read / vectors.dim);
  vectors.bytes.resize(size_t{vectors.rows} * vectors.dim);
  std::fclose(file);
  return vectors;
}

Vectors as_floats(const Vectors& from) {
  Vectors floats = from;
  floats.element = ANN_F32;
  floats.bytes.resize(from.bytes.size() * 4);
  for (size_t i = 0; i < from.bytes.size(); ++i)
    float_to_element(from.bytes[i], floats.bytes.data(), ANN_F32, static_cast<uint32_t>(i));
  return floats;
}

/// The queries `times` times over.
Vectors repeated(const Vectors& from, uint32_t times) {
  Vectors all = from;
  for (uint32_t i = 1; i < times; ++i)
    all.bytes.insert(all.bytes.end(), from.bytes.begin(), from.bytes.end());
  all.rows = from.rows * times;
  return all;
}

void check_call(ann_status status, const ann_error& error) {
  if (status != ANN_OK) give_up(error.message);
}

struct Answers {
  std::vector<uint64_t> ids;
  std::vector<float> distances;
  ann_results results = ANN_RESULTS_INIT;

  Answers(uint64_t queries, uint32_t k) : ids(queries * k), distances(queries * k) {
    results.k = k;
    results.rows = queries;
    results.ids = ids.data();
    results.distances = distances.data();
  }
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class Bench {
 public:
  Bench(const Vectors& rows, const Vectors& queries, uint32_t degree)
      : queries_(queries),
        name_(std::string(element_name(rows.element)) + " " + std::to_string(rows.rows) + " x " +
              std::to_string(rows.dim) + " degree " + std::to_string(degree)) {
    ann_error error = ANN_ERROR_INIT;
    ann_index_params shape = ANN_INDEX_PARAMS_INIT;
    shape.dim = rows.dim;
    check_call(ann_index_create(nullptr, &shape, &index_, &error), error);
    ann_build_params params = ANN_BUILD_PARAMS_INIT;
    params.degree = degree;
    const ann_matrix matrix = rows.view(0, rows.rows);
    const double built = seconds([&] {
      check_call(ann_build(index_, &matrix, nullptr, &params, nullptr, &error), error);
    });
    const double placed = seconds([&] { search(0, 1, 1, device_params(0.9f)); });
    std::printf("time %s: build on the CPU %.1f s, placement and calibration %.3f s\n", name_.c_str(),
                built, placed);
  }
  ~Bench() { ann_index_free(index_); }
  Bench(const Bench&) = delete;

  /// One line: recall, distances, expansions, kernel and host-to-host times.
  void time_batch(uint64_t count, uint32_t k, float recall, uint32_t beam) {
    ann_search_params params = device_params(recall);
    params.beam = beam;
    const Answers answers = search(0, count, k, params);
    std::vector<double> host;
    for (uint32_t i = 0; i < kRepeats; ++i)
      host.push_back(seconds([&] { search_into(0, count, params, found_); }));
    const double kernel = kernel_seconds(count, k, params);
    const double n = static_cast<double>(count);
    std::printf("time %s: batch %llu, k %u, asked %.2f%s, recall %.4f, %.0f distances, %.1f expansions; "
                "kernels %.1f us, %.2f M q/s; host to host %.1f us, %.2f M q/s\n",
                name_.c_str(), static_cast<unsigned long long>(count), k, double{recall},
                beam != 0 ? (", beam " + std::to_string(beam)).c_str() : "", recall_of(answers, count, k),
                static_cast<double>(answers.results.distance_count) / n,
                static_cast<double>(answers.results.expansion_count) / n, kernel * 1e6, n / kernel / 1e6,
                median(host) * 1e6, n / median(host) / 1e6);
    std::fflush(stdout);
  }

  /// One query after the other; medians.
  void time_singles(float recall) {
    const ann_search_params params = device_params(recall);
    std::vector<double> host;
    Answers one(1, 10);
    for (uint64_t query = 0; query < std::min<uint64_t>(queries_.rows, 300); ++query)
      host.push_back(seconds([&] { search_into(query, 1, params, one); }));
    std::printf("time %s: one query, asked %.2f, host to host %.1f us\n", name_.c_str(),
                double{recall}, median(host) * 1e6);
  }

  /// Recall and rate along the slack, with and without a cap: what calibration chooses from.
  void sweep(uint32_t k) {
    for (const float slack : {0.0f, 0.02f, 0.03f, 0.04f, 0.06f, 0.09f, 0.12f, 0.16f}) {
      for (const uint32_t cap : {32u, 48u, 96u, 1024u}) {
        WalkEffort effort;
        effort.slack = slack;
        effort.expansions_max = cap;
        const uint64_t count = std::min<uint64_t>(queries_.rows, 10'000);
        const double kernel = run_kernels(count, k, effort);
        std::printf("sweep %s: k %u, slack %.3f, cap %u, recall %.4f, %.0f distances, "
                    "%.1f expansions, %.2f M q/s\n",
                    name_.c_str(), k, double{slack}, cap, swept_recall_, swept_distances_,
                    swept_expansions_, static_cast<double>(count) / kernel / 1e6);
      }
    }
    std::fflush(stdout);
  }

  /// `threads` host threads with batches of their own.
  void time_threads(uint32_t threads, uint64_t count) {
    const ann_search_params params = device_params(0.95f);
    const double time = seconds([&] {
      std::vector<std::thread> running;
      for (uint32_t t = 0; t < threads; ++t) {
        running.emplace_back([&, t] {
          Answers own(count, 10);
          const uint64_t first = (t * 997) % (queries_.rows - count);
          for (uint32_t i = 0; i < 20; ++i) search_into(first, count, params, own);
        });
      }
      for (std::thread& thread : running) thread.join();
    });
    std::printf("time %s: %u threads, batches of %llu, asked 0.95: %.2f M q/s host to host\n", name_.c_str(),
                threads, static_cast<unsigned long long>(count),
                threads * 20.0 * static_cast<double>(count) / time / 1e6);
  }

 private:
  template <class Work>
  static double seconds(const Work& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  static ann_search_params device_params(float recall) {
    ann_search_params params = ANN_SEARCH_PARAMS_INIT;
    params.device = ANN_DEVICE_CUDA;
    params.recall = recall;
    return params;
  }

  void search_into(uint64_t first, uint64_t count, const ann_search_params& params, Answers& answers) const {
    const ann_matrix queries = queries_.view(first, count);
    ann_error error = ANN_ERROR_INIT;
    check_call(ann_search_batch(index_, &queries, &params, &answers.results, nullptr, &error), error);
  }

  Answers search(uint64_t first, uint64_t count, uint32_t k, const ann_search_params& params) {
    found_ = Answers(count, k);
    found_.results.ids = found_.ids.data();
    found_.results.distances = found_.distances.data();
    search_into(first, count, params, found_);
    return found_;
  }

  /// The distance of the k-th true neighbour of each query, once for each k.
  const std::vector<float>& farthest(uint64_t count, uint32_t k) {
    if (truth_k_ == k && truth_.size() >= count) return truth_;
    Answers exact(count, k);
    const ann_matrix queries = queries_.view(0, count);
    const ann_search_params params = device_params(0);
    ann_error error = ANN_ERROR_INIT;
    check_call(ann_search_exact(index_, &queries, &params, &exact.results, nullptr, &error), error);
    truth_.resize(count);
    for (uint64_t query = 0; query < count; ++query)
      truth_[query] = exact.distances[query * k + k - 1];
    truth_k_ = k;
    return truth_;
  }

  template <class Found>
  double recall_of(const Found& found, uint64_t count, uint32_t k) {
    const uint64_t judged = std::min<uint64_t>(count, 10'000);
    const std::vector<float>& truth = farthest(judged, k);
    uint64_t hits = 0;
    for (uint64_t i = 0; i < judged * k; ++i) hits += found.distances[i] <= truth[i / k] ? 1 : 0;
    return static_cast<double>(hits) / static_cast<double>(judged * k);
  }

  double kernel_seconds(uint64_t count, uint32_t k, const ann_search_params& params) {
    const Index::Call call(index_->index);
    const Built& built = *call.built;
    const auto placement = built.placements.get(built, 0, execution());
    DeviceRequest request;
    request.beam = params.beam;
    request.recall = params.recall;
    const WalkEffort effort = choose_effort(built, *placement, request, k, count);
    std::printf("  slack %.4f, at most %u expansions, beam %u, warps %u\n", double{effort.slack},
                effort.expansions_max, effort.beam, effort.warps);
    return run_kernels(count, k, effort);
  }

  static Execution execution() {
    Execution all;
    all.threads = thread_count(0, 0);
    return all;
  }

  struct Found {
    const float* distances;
  };

  /// The median time of the kernels; the rest of what was seen is left in swept_*.
  double run_kernels(uint64_t count, uint32_t k, const WalkEffort& effort) {
    const Index::Call call(index_->index);
    const Built& built = *call.built;
    const auto placement = built.placements.get(built, 0, execution());
    BorrowedSpace space(*placement->index, count, k);
    if (space->capacity() < count) give_up("the batch takes several runs");
    const ann_matrix queries = queries_.view(0, count);
    fill_space(built.dataset, built.codes, read_matrix(&queries, "queries"), 0,
               static_cast<uint32_t>(count), *space, execution());
    std::vector<double> times;
    for (uint32_t i = 0; i < kRepeats + 2; ++i) {
      space->run(static_cast<uint32_t>(count), effort, nullptr, true);
      if (i >= 2) times.push_back(space->kernel_seconds());
    }
    swept_recall_ = recall_of(Found{space->distances()}, count, k);
    swept_distances_ = static_cast<double>(space->distance_count()) / static_cast<double>(count);
    swept_expansions_ = static_cast<double>(space->expansion_count()) / static_cast<double>(count);
    return median(times);
  }

  const Vectors& queries_;
  std::string name_;
  ann_index* index_ = nullptr;
  Answers found_{0, 1};
  std::vector<float> truth_;
  uint32_t truth_k_ = 0;
  double swept_recall_ = 0;
  double swept_distances_ = 0;
  double swept_expansions_ = 0;
};

void time_all(const Vectors& rows, const Vectors& queries, uint32_t degree, bool sweep) {
  const Vectors many = repeated(queries, queries.rows >= 10'000 ? 10 : 1);
  Bench bench(rows, many, degree);
  const uint64_t all = std::min<uint64_t>(queries.rows, 10'000);
  for (const float recall : {0.90f, 0.95f, 0.99f}) bench.time_batch(all, 10, recall, 0);
  bench.time_batch(all, 1, 0.95f, 0);
  bench.time_batch(all, 10, 0.95f, 32);
  bench.time_batch(all, 100, 0.95f, 0);
  bench.time_batch(std::min<uint64_t>(all, 1000), 1000, 0.95f, 0);
  for (const float recall : {0.95f, 0.99f}) {
    bench.time_batch(many.rows, 10, recall, 0);
    for (const uint64_t size : {100u, 1000u}) {
      if (size <= many.rows) bench.time_batch(size, 10, recall, 0);
    }
    bench.time_singles(recall);
  }
  if (many.rows > 1000) bench.time_threads(8, 1000);
  if (many.rows > 100) bench.time_threads(32, 100);
  if (sweep) bench.sweep(10);
}

}  // namespace

int main(int count, char** arguments) {
  uint32_t devices = 0;
  const char* reason = "";
  if (ann_device_count(&devices, &reason, nullptr) != ANN_OK || devices < 2) {
    std::printf("skipped: %s\n", reason);
    return 77;
  }
  if (count < 3) give_up("usage: walk_cuda_time ROWS QUERIES [DEGREE [ROWS_MAX]]");
  const uint32_t degree = count > 3 ? static_cast<uint32_t>(std::atoi(arguments[3])) : 0;
  const uint32_t rows_max = count > 4 ? static_cast<uint32_t>(std::atoi(arguments[4])) : ANN_ROWS_MAX;
  const Vectors rows = read_file(arguments[1], rows_max);
  const Vectors queries = read_file(arguments[2], ANN_ROWS_MAX);
  time_all(rows, queries, degree != 0 ? degree : 32, true);
  time_all(as_floats(rows), as_floats(queries), degree != 0 ? degree : 32, false);
  return 0;
}
