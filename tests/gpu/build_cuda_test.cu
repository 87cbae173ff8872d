// Claims about builds on a CUDA device, through the C header: the index and the k-NN lists are the
// CPU's, refusals leave an index that can be built, and memory of the device is given back.
//
//   build_cuda_test [all [WORDS]]   all claims, or those with these words in their text
//   build_cuda_test only WORDS   those whose text has the words in it
//   build_cuda_test quick [WORDS]   fewer and smaller cases, for compute-sanitizer
//   build_cuda_test time [FILE.u8bin [ROWS [WORDS]]]   times of whole builds and their stages, from rows on the
//                        host and on the device, u8 and f32; made rows without a file
//
// Ends with 77 where there is no CUDA device.

#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <optional>
#include <thread>

#include "ann.h"
#include "backend/launch.h"
#include "capi/boundary.h"
#include "claims.h"
#include "graph/search_graph.h"
#include "index/index.h"
#include "storage/storage.h"

namespace {

using namespace gannet;
using namespace gannet::test;

bool quick = false;
const char* data_file = nullptr;
uint32_t data_rows = 1'000'000;

ann_build_params params_on(int32_t device) {
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.device = device;
  return params;
}

/// An index, freed with it.
struct Handle {
  Handle(const Rows& rows, int32_t metric) : Handle(rows.dim, metric) {}
  Handle(uint32_t dim, int32_t metric) {
    ann_index_params shape = ANN_INDEX_PARAMS_INIT;
    shape.dim = dim;
    shape.metric = metric;
    expect(ann_index_create(nullptr, &shape, &index, nullptr) == ANN_OK, "an index is created");
  }
  ~Handle() { ann_index_free(index); }

  ann_status build(const Rows& rows, const ann_build_params& params, ann_monitor* monitor = nullptr) {
    return build(matrix_of(rows), params, monitor);
  }
  ann_status build(const ann_matrix& matrix, const ann_build_params& params, ann_monitor* monitor = nullptr) {
    error = ANN_ERROR_INIT;
    return ann_build(index, &matrix, nullptr, &params, monitor, &error);
  }
  std::vector<uint32_t> graph() const {
    ann_index_info info = ANN_INDEX_INFO_INIT;
    ann_index_get_info(index, &info, nullptr);
    std::vector<uint32_t> edges(info.rows * info.degree);
    uint32_t degree = 0;
    expect(ann_index_graph(index, edges.data(), edges.size(), &degree, nullptr) == ANN_OK,
           "a graph is there");
    return edges;
  }
  ann_index_info info() const {
    ann_index_info info = ANN_INDEX_INFO_INIT;
    ann_index_get_info(index, &info, nullptr);
    return info;
  }

  ann_index* index = nullptr;
  ann_error error = ANN_ERROR_INIT;
};

/// The highest recall that the CPU's calibration has seen, which an index that a device has built makes now.
float recall_on_cpu(const Handle& index) {
  uint32_t beam = 0;
  expect(ann_index_beam(index.index, 10, 0, &beam, nullptr) == ANN_OK, "a beam");
  return index.info().recall_max;
}

/// `walks_find`: the graph is one that walks find rows in, so that its recall does not hang on the queries that were
/// drawn.
void compare_builds(const Rows& rows, int32_t metric, ann_build_params params, bool walks_find = true) {
  Handle on_cpu(rows, metric);
  Handle on_cuda(rows, metric);
  params.device = ANN_DEVICE_CPU;
  expect(on_cpu.build(rows, params) == ANN_OK, on_cpu.error.message);
  params.device = ANN_DEVICE_CUDA;
  expect(on_cuda.build(rows, params) == ANN_OK, on_cuda.error.message);
  const std::string name = std::to_string(rows.rows) + " x " + std::to_string(rows.dim) + " " +
                           element_name(rows.element) + ", metric " + std::to_string(metric);
  expect(on_cpu.graph() == on_cuda.graph(), "the graphs of " + name + " differ");
  expect(on_cpu.info().knn_iterations == on_cuda.info().knn_iterations &&
             on_cpu.info().repaired_edges == on_cuda.info().repaired_edges,
         "the figures of " + name + " differ");
  expect(!walks_find || std::fabs(recall_on_cpu(on_cpu) - recall_on_cpu(on_cuda)) <= 0.002,
         "the recall of " + name + " differs");
}

void claim_builds() {
  std::vector<uint32_t> sizes = {0, 1, 2, 40, 129, 1000, 6000};
  if (quick) sizes = {0, 1, 130, 500};
  // By cells, which large sets are built by, graphs of the CPU and of a device differ.
  ann_build_params by_descent = params_on(0);
  by_descent.knn = ANN_KNN_NN_DESCENT;
  for (const uint32_t n : sizes) {
    for (const int32_t element : kElements) {
      for (const int32_t metric : kMetrics)
        compare_builds(Rows(element, n, 24, Values::kClusters, n), metric,
                       n > 4096 ? by_descent : params_on(0));
    }
  }
  for (const Values values : {Values::kGrid, Values::kDuplicates, Values::kEqual}) {
    ann_build_params params = params_on(0);
    params.knn = ANN_KNN_NN_DESCENT;
    params.degree = 16;
    compare_builds(Rows(ANN_F32, quick ? 300 : 2000, 10, values, 3), ANN_METRIC_L2, params);
  }
  for (const uint32_t degree : {2u, 64u, 200u}) {
    ann_build_params params = params_on(0);
    params.degree = degree;
    params.knn = ANN_KNN_EXACT;
    compare_builds(Rows(ANN_U8, quick ? 300 : 2000, 30, Values::kNormal, 4), ANN_METRIC_L2, params);
  }
}

/// CAGRA's graph as in its paper, and AUTO's by other detours, are the CPU's.
void claim_cagra() {
  const uint32_t n = quick ? 400 : 3000;
  for (const int32_t element : kElements) {
    for (const int32_t metric : kMetrics) {
      const Rows rows(element, n, 24, Values::kClusters, n);
      ann_build_params params = params_on(0);
      params.graph = ANN_GRAPH_CAGRA;
      params.degree = 20;
      for (const int32_t reorder : {ANN_REORDER_RANK, ANN_REORDER_DISTANCE}) {
        params.reorder = reorder;
        compare_builds(rows, metric, params);
      }
    }
  }
  for (const Values values : {Values::kGrid, Values::kDuplicates, Values::kEqual}) {
    const Rows rows(ANN_F32, quick ? 300 : 2000, 10, values, 3);
    for (const int32_t reorder : {ANN_REORDER_RANK, ANN_REORDER_DISTANCE}) {
      for (const int32_t detours : {ANN_DETOURS_NEAR, ANN_DETOURS_WHOLE}) {
        ann_build_params params = params_on(0);
        params.knn = ANN_KNN_NN_DESCENT;
        params.degree = 16;
        params.knn_degree = 70;
        params.reorder = reorder;
        params.detours = detours;
        compare_builds(rows, ANN_METRIC_L2, params);
      }
    }
  }
  ann_build_params longest = params_on(0);
  longest.graph = ANN_GRAPH_CAGRA;
  longest.degree = 100;  // lists of 256
  compare_builds(Rows(ANN_U8, quick ? 300 : 1500, 30, Values::kNormal, 4), ANN_METRIC_L2, longest);
}

/// Rows to build from, on the host or on the device.
class Source {
 public:
  Source(const Rows& rows, bool on_device) : matrix_(matrix_of(rows)) {
    if (!on_device) return;
    expect(
        cudaMalloc(&there_, rows.bytes.size()) == cudaSuccess &&
            cudaMemcpy(there_, rows.bytes.data(), rows.bytes.size(), cudaMemcpyHostToDevice) == cudaSuccess,
        "rows on the device");
    matrix_.data = there_;
    matrix_.space = ANN_DEVICE_CUDA;
  }
  ~Source() { cudaFree(there_); }
  Source(const Source&) = delete;

  const ann_matrix& matrix() const { return matrix_; }
  const char* place() const { return there_ != nullptr ? "device" : "host"; }

 private:
  ann_matrix matrix_;
  void* there_ = nullptr;
};

/// The same graph from rows on the device as from the host; device_pointers_test looks closer.
void claim_rows_there() {
  for (const int32_t element : kElements) {
    for (const int32_t metric : kMetrics) {
      // By product the host's copy is read while it comes: so many rows are still on their way.
      const bool many = !quick && element == ANN_F32 && metric == ANN_METRIC_INNER_PRODUCT;
      const Rows rows(element, quick ? 300 : many ? 300'000 : 6000, 33, Values::kClusters, 5);
      ann_build_params params = params_on(ANN_DEVICE_CUDA);
      params.calibrate = ANN_OFF;
      Handle from_host(rows, metric);
      Handle from_device(rows, metric);
      expect(from_host.build(rows, params) == ANN_OK, from_host.error.message);
      expect(from_device.build(Source(rows, true).matrix(), params) == ANN_OK, from_device.error.message);
      expect(from_host.graph() == from_device.graph(), std::string("the graphs of ") + element_name(element) +
                                                           ", metric " + std::to_string(metric) + " differ");
    }
  }
}

void claim_given() {
  const Rows rows(ANN_U8, 500, 16, Values::kClusters, 3);
  std::vector<uint32_t> lists(500 * 12, UINT32_MAX);
  for (uint32_t row = 0; row < 500; ++row) {
    for (uint32_t i = 0; i < row % 13 && i < 12; ++i)
      lists[row * 12 + i] = (row * 31 + i * i * 7) % 500;  // loops and repetitions among them
  }
  ann_build_params params = params_on(0);
  params.knn = ANN_KNN_GIVEN;
  params.knn_degree = 12;
  params.degree = 16;
  params.knn_graph = lists.data();
  compare_builds(rows, ANN_METRIC_L2, params, false);
  params.graph = ANN_GRAPH_CAGRA;
  for (const int32_t metric : kMetrics) {
    for (const int32_t element : {ANN_U8, ANN_F32}) {
      const Rows same(element, 500, 16, Values::kClusters, 3);
      params.reorder = ANN_REORDER_DISTANCE;
      compare_builds(same, metric, params, false);
      // Codes of rows that lie there are measured on the host, which waits for them.
      Handle here(same, metric), there(same, metric);
      params.device = ANN_DEVICE_CUDA;
      expect(here.build(same, params) == ANN_OK, here.error.message);
      expect(there.build(Source(same, true).matrix(), params) == ANN_OK, there.error.message);
      expect(here.graph() == there.graph(), "given lists by distance, of rows on the device");
    }
  }
}

void compare_knn(const Rows& rows, int32_t metric, int32_t method, uint32_t k) {
  const ann_matrix matrix = matrix_of(rows);
  ann_knn_params params = ANN_KNN_PARAMS_INIT;
  params.metric = metric;
  params.method = method;
  params.k = k;
  std::vector<uint32_t> lists[2];
  std::vector<float> distances[2];
  for (uint32_t i = 0; i < 2; ++i) {
    params.device = i == 0 ? ANN_DEVICE_CPU : ANN_DEVICE_CUDA;
    lists[i].assign(uint64_t{rows.rows} * k, 7);
    distances[i].assign(uint64_t{rows.rows} * k, -7);
    ann_error error = ANN_ERROR_INIT;
    expect(ann_knn_graph(nullptr, &matrix, &params, lists[i].data(), distances[i].data(), nullptr, &error) ==
               ANN_OK,
           error.message);
  }
  const std::string name = std::to_string(rows.rows) + " x " + std::to_string(rows.dim) + " " +
                           element_name(rows.element) + ", metric " + std::to_string(metric) + ", method " +
                           std::to_string(method) + ", k " + std::to_string(k);
  expect(lists[0] == lists[1], "the lists of " + name + " differ");
  expect(std::memcmp(distances[0].data(), distances[1].data(), distances[0].size() * 4) == 0,
         "the distances of " + name + " differ");
}

void claim_knn() {
  for (const int32_t element : kElements) {
    for (const int32_t metric : kMetrics) {
      for (const uint32_t n : quick ? std::vector{0u, 3u, 300u} : std::vector{0u, 1u, 3u, 300u, 5000u}) {
        const Rows rows(element, n, 20, Values::kClusters, n);
        if (n < 1000) compare_knn(rows, metric, ANN_KNN_EXACT, 10);
        compare_knn(rows, metric, ANN_KNN_NN_DESCENT, 12);
      }
    }
  }
  // More equal rows than a list has places: none is its own neighbour.
  for (const int32_t element : {int32_t{ANN_F32}, int32_t{ANN_U8}}) {
    for (const Values values : {Values::kDuplicates, Values::kEqual})
      compare_knn(Rows(element, 200, 6, values, 1), ANN_METRIC_L2, ANN_KNN_EXACT, 10);
  }
  // Squares beyond 2^24 become equal as floats.
  Rows wide(ANN_U8, 300, 3000, Values::kNormal, 9);
  std::mt19937 random(1);
  for (uint8_t& byte : wide.bytes) byte = random() % 2 != 0 ? 255 : 0;
  compare_knn(wide, ANN_METRIC_L2, ANN_KNN_EXACT, 200);
}

/// Graphs of lists of more than 256 rows, which the device finds, prunes and diversifies.
void claim_long_lists() {
  const uint32_t n = quick ? 700 : 4000;
  for (const uint32_t k : quick ? std::vector{300u} : std::vector{257u, 300u, 400u, 512u}) {
    for (const int32_t knn : {int32_t{ANN_KNN_EXACT}, int32_t{ANN_KNN_NN_DESCENT}}) {
      for (const int32_t element : {int32_t{ANN_U8}, int32_t{ANN_F32}}) {
        const Rows rows(element, n, 24, Values::kClusters, k);
        ann_build_params params = params_on(0);
        params.knn = knn;
        params.knn_degree = k;
        params.degree = 200;
        params.calibrate = ANN_OFF;
        for (const int32_t reorder : {ANN_REORDER_RANK, ANN_REORDER_DISTANCE}) {
          params.reorder = reorder;
          compare_builds(rows, ANN_METRIC_L2, params);
        }
        params.reorder = ANN_REORDER_AUTO;
        params.graph = ANN_GRAPH_TSDG;
        params.degree = 64;
        compare_builds(rows, ANN_METRIC_L2, params);
        compare_knn(rows, ANN_METRIC_L2, knn, k);
      }
    }
  }
  // AUTO takes cells for large sets, on the device.
  const Rows rows(ANN_U8, quick ? 5000 : 50'000, 64, Values::kClusters, 7);
  ann_build_params params = params_on(ANN_DEVICE_CUDA);
  params.knn_degree = 300;
  for (const int32_t graph : {int32_t{ANN_GRAPH_AUTO}, int32_t{ANN_GRAPH_TSDG}}) {
    params.graph = graph;
    params.degree = graph == ANN_GRAPH_AUTO ? 200 : 128;
    Handle index(rows, ANN_METRIC_L2);
    expect(index.build(rows, params) == ANN_OK, index.error.message);
    expect(index.info().knn_share > 0.9f, "lists of 300 hold " + std::to_string(index.info().knn_share));
    expect(recall_on_cpu(index) > 0.98f, "the recall of a graph of lists of 300");
    params.knn_degree = 513;
    Handle refused(rows, ANN_METRIC_L2);
    expect(refused.build(rows, params) == ANN_LIMIT, "lists of 513 are refused");
    params.knn_degree = 300;
  }
}

/// By cells, as AUTO does for large sets: lists that hold the true neighbours, the same every time.
void compare_cells(const Rows& rows, int32_t metric) {
  constexpr uint32_t k = 20;
  const ann_matrix matrix = matrix_of(rows);
  ann_knn_params params = ANN_KNN_PARAMS_INIT;
  params.metric = metric;
  params.k = k;
  params.device = ANN_DEVICE_CUDA;
  std::vector<uint32_t> neighbors[3];
  std::vector<float> distances[3];
  for (uint32_t i = 0; i < 3; ++i) {
    params.method = i == 0 ? ANN_KNN_EXACT : i == 1 ? ANN_KNN_CELLS : ANN_KNN_AUTO;
    neighbors[i].resize(uint64_t{rows.rows} * k);
    distances[i].resize(neighbors[i].size());
    ann_error error = ANN_ERROR_INIT;
    expect(ann_knn_graph(nullptr, &matrix, &params, neighbors[i].data(), distances[i].data(), nullptr,
                         &error) == ANN_OK,
           error.message);
  }
  const std::string name = std::to_string(rows.rows) + " x " + std::to_string(rows.dim) + " " +
                           element_name(rows.element) + ", metric " + std::to_string(metric);
  if (rows.rows > 4096) expect(neighbors[1] == neighbors[2], "AUTO takes cells for " + name);
  uint64_t hits = 0;
  for (uint64_t i = 0; i < neighbors[0].size(); ++i) {
    const uint64_t row = i / k;
    hits += distances[1][i] <= distances[0][row * k + k - 1] ? 1 : 0;
    expect(neighbors[1][i] < rows.rows && neighbors[1][i] != row, "another row in " + name);
    expect(i % k == 0 || distances[1][i - 1] <= distances[1][i], "nearest first in " + name);
  }
  const double share = static_cast<double>(hits) / static_cast<double>(neighbors[0].size());
  // Rows are compared by their codes, which round those of floats and of rows of length one.
  const bool rounded = is_float_element(rows.element) || metric != ANN_METRIC_L2;
  const double least = rounded ? 0.9 : 0.97;
  expect(share > least, "lists of " + name + " hold " + std::to_string(share));

  ann_build_params build = params_on(ANN_DEVICE_CUDA);
  Handle first(rows, metric), second(rows, metric);
  expect(first.build(rows, build) == ANN_OK, first.error.message);
  build.knn = ANN_KNN_CELLS;
  expect(second.build(rows, build) == ANN_OK, second.error.message);
  if (rows.rows > 4096) expect(first.graph() == second.graph(), "the graphs of " + name + " differ");
  expect(recall_on_cpu(first) > 0.98f, "the recall of " + name);
  // Of a sample, by codes; of small sets and wide codes nobody looks.
  const float knn_share = first.info().knn_share;
  expect(rows.rows <= 4096 || (knn_share > 0.9f && knn_share <= 1),
         "the share of " + name + " is " + std::to_string(knn_share));
}

/// Of rows of two densities, many of which share a code: the index reports the share that ann_knn_graph's lists
/// hold of the true neighbours, by distances of the rows.
void claim_share() {
  constexpr uint32_t k = 48, looked_at = 32;  // the length of lists under 32 edges; as many as are measured
  Rows rows(ANN_F32, quick ? 4500 : 30000, 32, Values::kNormal, 7);
  for (uint32_t row = 0; row < rows.rows; row += 5) {
    float* values = reinterpret_cast<float*>(rows.bytes.data() + row * rows.stride);
    for (uint32_t j = 0; j < rows.dim; ++j) values[j] = (j == 0 ? 0.5f : 0) + 1e-3f * values[j];
  }
  const ann_matrix matrix = matrix_of(rows);
  ann_knn_params params = ANN_KNN_PARAMS_INIT;
  params.k = k;
  params.device = ANN_DEVICE_CUDA;
  std::vector<uint32_t> neighbors(uint64_t{rows.rows} * k);
  std::vector<float> truth(neighbors.size()), found(neighbors.size());
  for (const bool exact : {true, false}) {
    params.method = exact ? ANN_KNN_EXACT : ANN_KNN_CELLS;
    ann_error error = ANN_ERROR_INIT;
    expect(ann_knn_graph(nullptr, &matrix, &params, neighbors.data(), (exact ? truth : found).data(), nullptr,
                         &error) == ANN_OK,
           error.message);
  }
  uint64_t hits = 0;
  for (uint64_t row = 0; row < rows.rows; ++row) {
    for (uint32_t i = 0; i < looked_at; ++i)
      hits += found[row * k + i] <= truth[row * k + looked_at - 1] ? 1 : 0;
  }
  const double share = static_cast<double>(hits) / rows.rows / looked_at;
  ann_build_params build = params_on(ANN_DEVICE_CUDA);
  build.knn = ANN_KNN_CELLS;
  build.degree = 32;
  Handle index(rows, ANN_METRIC_L2);
  expect(index.build(rows, build) == ANN_OK, index.error.message);
  const double measured = index.info().knn_share;
  expect(std::abs(measured - share) < 0.05,
         "lists that hold " + std::to_string(share) + " are said to hold " + std::to_string(measured));
  build.graph = ANN_GRAPH_TSDG;
  Handle diversified(rows, ANN_METRIC_L2);
  expect(diversified.build(rows, build) == ANN_OK, diversified.error.message);
  expect(diversified.info().knn_share > 0, "nobody looked at the lists of a diversified graph");
}

void claim_cells() {
  for (const int32_t element : kElements) {
    for (const int32_t metric : {ANN_METRIC_L2, ANN_METRIC_COSINE}) {
      const uint32_t dim = element == ANN_F16 ? 200 : 40;
      compare_cells(Rows(element, quick ? 500 : 6000, dim, Values::kClusters, 3), metric);
    }
  }
}

void claim_threads() {
  const Rows rows(ANN_U8, quick ? 600 : 8000, 32, Values::kClusters, 3);
  Handle first(rows, ANN_METRIC_L2);
  expect(first.build(rows, params_on(ANN_DEVICE_CUDA)) == ANN_OK, first.error.message);
  std::atomic<uint32_t> differ = 0;
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      for (uint32_t run = 0; run < 3; ++run) {
        Handle again(rows, ANN_METRIC_L2);
        if (again.build(rows, params_on(ANN_DEVICE_CUDA)) != ANN_OK || again.graph() != first.graph())
          ++differ;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  expect(differ == 0, "builds in two threads give the same index");
}

/// Calls that end early, and the index after them.
void claim_ends() {
  const Rows rows(ANN_U8, quick ? 2000 : 400'000, 128, Values::kClusters, 3);
  ann_monitor* monitor = nullptr;
  expect(ann_monitor_create(&monitor, nullptr) == ANN_OK, "a monitor");
  Handle index(rows, ANN_METRIC_L2);
  ann_build_params params = params_on(ANN_DEVICE_CUDA);
  params.calibrate = ANN_OFF;
  params.knn = ANN_KNN_NN_DESCENT;
  params.knn_degree = 128;
  params.samples = 64;
  params.convergence = 1e-6f;

  // The first build of a process takes the driver's time too.
  const Rows few(ANN_U8, 500, 128, Values::kNormal, 1);
  expect(Handle(few, ANN_METRIC_L2).build(few, params) == ANN_OK, "a build before those");

  ann_monitor_cancel(monitor);
  expect(index.build(rows, params, monitor) == ANN_CANCELLED, "a cancelled build");
  ann_monitor_reset(monitor);
  if (!quick) {
    double latest = 0;
    for (const double after_ms : {60.0, 110.0, 160.0, 230.0, 310.0}) {
      std::thread canceller([&] {
        std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(after_ms));
        ann_monitor_cancel(monitor);
      });
      ann_status status = ANN_OK;
      const double took = milliseconds_of([&] { status = index.build(rows, params, monitor); });
      canceller.join();
      ann_monitor_reset(monitor);
      expect(status == ANN_CANCELLED, "a build is cancelled on its way");
      latest = std::max(latest, took - after_ms);
    }
    // A figure, and no claim: beside other work on the machine it is what that leaves. The rule is claimed by
    // tests/fault/cancel_test.cpp, which counts questions to the monitor, on a device too.
    std::printf("       cancelled builds end at most %.1f ms late\n", latest);
    ann_monitor_set_deadline(monitor, 100'000'000);
    expect(index.build(rows, params, monitor) == ANN_DEADLINE, "a build that is late");
    ann_monitor_reset(monitor);
  }
  params.samples = 16;
  params.knn_degree = 32;
  params.convergence = 0.1f;
  expect(index.build(rows, params, monitor) == ANN_OK, "a build after those");
  ann_monitor_free(monitor);
}

/// The library's memory on the first device.
cuda::DevicePool& pool() {
  const cuda::DeviceGuard guard(0);
  return cuda::DevicePool::of(0);
}

/// What a build holds at most, against what ann_estimate says.
void compare_estimate(const Rows& rows, int32_t metric, int32_t knn, uint32_t degree, int32_t calibrate,
                      int32_t graph = ANN_GRAPH_AUTO, int32_t reorder = ANN_REORDER_AUTO,
                      uint32_t knn_degree = 0) {
  ann_build_params params = params_on(ANN_DEVICE_CUDA);
  params.knn_degree = knn_degree;
  params.graph = graph;
  params.reorder = reorder;
  params.knn = knn;
  params.degree = degree;
  params.iterations = 3;
  params.calibrate = calibrate;
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  shape.dim = rows.dim;
  shape.metric = metric;
  ann_plan plan = ANN_PLAN_INIT;
  expect(ann_estimate(&shape, rows.rows, rows.element, &params, &plan, nullptr) == ANN_OK, "an estimate");
  pool().forget_peak();
  Handle index(rows, metric);
  expect(index.build(rows, params) == ANN_OK, index.error.message);
  const double peak = static_cast<double>(pool().peak_bytes());
  const double ratio = static_cast<double>(plan.device_bytes) / peak;
  const double kept = static_cast<double>(pool().used_bytes());
  std::printf(
      "       %s, %u columns, metric %d, graph %d, knn %d, degree %u: peak %.1f MB of the device, estimate "
      "%.3f "
      "of it, kept %.1f MB\n",
      element_name(rows.element), rows.dim, metric, graph, knn, degree, peak / 1e6, ratio, kept / 1e6);
  // Of a calibration the estimate assumes large lists, and of rows that have copies as many as are joined. These have
  // none, which counts where finding lists takes less than joining does.
  const bool finds_in_little = knn == ANN_KNN_NN_DESCENT || knn == ANN_KNN_EXACT;
  const bool close = !quick && calibrate == ANN_OFF && !finds_in_little;
  expect(ratio >= 1 && (!close || ratio < 1.1), "the estimate is above the peak, within 10 %");
  expect(ann_index_evict(index.index, ANN_DEVICE_CUDA, nullptr) == ANN_OK, "the copy goes");
  expect(pool().used_bytes() == 0, "no memory is kept but the index's copy");
}

void claim_estimates() {
  const uint32_t count = quick ? 2000 : 300'000;
  for (const int32_t element : {int32_t{ANN_U8}, int32_t{ANN_F32}}) {
    const Rows rows(element, count, 128, Values::kClusters, 3);
    for (const int32_t knn : {int32_t{ANN_KNN_CELLS}, int32_t{ANN_KNN_NN_DESCENT}, int32_t{ANN_KNN_EXACT}}) {
      for (const uint32_t degree : {32u, 64u, 100u}) {
        if (degree != 100 || knn == ANN_KNN_CELLS)
          compare_estimate(rows, ANN_METRIC_L2, knn, degree, ANN_OFF);
      }
    }
    compare_estimate(rows, ANN_METRIC_L2, ANN_KNN_AUTO, 32, ANN_ON);
    for (const uint32_t degree : {24u, 96u})
      compare_estimate(rows, ANN_METRIC_L2, ANN_KNN_AUTO, degree, ANN_OFF, ANN_GRAPH_GGNN);
    // Of few rows what calibration takes counts for more than what finding lists does.
    const Rows few(element, quick ? 2000 : 40'000, 128, Values::kClusters, 3);
    compare_estimate(few, ANN_METRIC_L2, ANN_KNN_CELLS, 128, ANN_ON, ANN_GRAPH_TSDG);
    for (const int32_t knn : {int32_t{ANN_KNN_CELLS}, int32_t{ANN_KNN_NN_DESCENT}, int32_t{ANN_KNN_EXACT}})
      compare_estimate(few, ANN_METRIC_L2, knn, 200, ANN_OFF, ANN_GRAPH_AUTO, ANN_REORDER_AUTO, 300);
    // And of long rows the queries of calibration.
    const Rows wide(element, quick ? 2000 : 20'000, 2000, Values::kClusters, 5);
    compare_estimate(wide, ANN_METRIC_L2, ANN_KNN_AUTO, 32, ANN_ON);
    compare_estimate(wide, ANN_METRIC_L2, ANN_KNN_AUTO, 24, ANN_ON, ANN_GRAPH_GGNN);
    for (const int32_t reorder : {ANN_REORDER_RANK, ANN_REORDER_DISTANCE})
      compare_estimate(rows, ANN_METRIC_L2, ANN_KNN_AUTO, 32, ANN_OFF, ANN_GRAPH_CAGRA, reorder);
    compare_estimate(rows, ANN_METRIC_L2, ANN_KNN_CELLS, 32, ANN_OFF, ANN_GRAPH_AUTO, ANN_REORDER_DISTANCE);
  }
  // Codes of few columns are wide. Those of cosine and inner product stand beside the rows.
  compare_estimate(Rows(ANN_F32, count, 2, Values::kNormal, 3), ANN_METRIC_L2, ANN_KNN_AUTO, 32, ANN_OFF);
  for (const int32_t element : {int32_t{ANN_F16}, int32_t{ANN_U8}}) {
    const Rows rows(element, quick ? 2000 : 100'000, 300, Values::kClusters, 4);
    for (const int32_t metric : {ANN_METRIC_COSINE, ANN_METRIC_INNER_PRODUCT})
      compare_estimate(rows, metric, ANN_KNN_AUTO, 64, ANN_OFF);
  }
}

/// The device full but for some memory, which ends at one allocation or another.
void claim_no_memory() {
  const Rows rows(ANN_U8, 200'000, 128, Values::kNormal, 3);
  ann_build_params params = params_on(ANN_DEVICE_CUDA);
  params.calibrate = ANN_OFF;
  params.repair = ANN_OFF;
  params.iterations = 2;
  Handle index(rows, ANN_METRIC_L2);
  uint32_t refused = 0;
  for (const uint64_t left_mb : {8, 24, 40, 56, 72, 104, 136, 168, 200, 248, 296}) {
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    cudaMemGetInfo(&free_bytes, &total_bytes);
    void* filler = nullptr;
    expect(cudaMalloc(&filler, free_bytes - (left_mb << 20)) == cudaSuccess, "the device is filled");
    const ann_status status = index.build(rows, params);
    cudaFree(filler);
    if (status == ANN_OK) break;
    expect(pool().used_bytes() == 0, "no memory is kept");
    expect(status == ANN_DEVICE_NO_MEMORY, index.error.message);
    ++refused;
  }
  std::printf("       %u builds were refused\n", refused);
  expect(refused >= 3, "a full device refuses builds");
  if (index.info().built == 0)
    expect(index.build(rows, params) == ANN_OK, "a build when there is memory again");
  compare_builds(Rows(ANN_U8, 500, 16, Values::kClusters, 1), ANN_METRIC_L2, params_on(0));
}

/// An index whose codes are floats, but for their halves and bytes, fits into a device that has no room for these.
void claim_no_room_for_narrow_codes() {
  Rows rows(ANN_F32, 200'000, 48, Values::kNormal, 3);
  for (uint32_t row = 0; row < rows.rows; ++row) {
    float* values = reinterpret_cast<float*>(rows.bytes.data() + row * rows.stride);
    for (uint32_t column = 0; column < rows.dim; ++column)
      values[column] = std::ldexp(values[column], static_cast<int>(row % 9) - 6);
  }
  Handle index(rows, ANN_METRIC_L2);
  ann_build_params params = params_on(ANN_DEVICE_CUDA);
  params.calibrate = ANN_OFF;
  expect(index.build(rows, params) == ANN_OK, index.error.message);
  const auto view_there = [&] {
    const Index::Call call(index.index->index);
    const PlacedSegment& built = placed_of(call);
    expect(built.segment.codes.wide(), "codes are floats");
    return built.devices.get(built, 0, {})->placement->view();
  };
  // Placed again, without what its build has left there.
  expect(ann_index_evict(index.index, ANN_DEVICE_CUDA, nullptr) == ANN_OK, "the device gives the index back");
  const IndexView roomy = view_there();
  const uint64_t whole = pool().used_bytes();
  expect(roomy.halves.codes != nullptr && roomy.narrow.codes != nullptr, "narrow codes where there is room");
  const uint64_t halves = uint64_t{rows.rows} * roomy.halves.stride;
  const uint64_t narrow = halves + uint64_t{rows.rows} * roomy.narrow.stride;
  expect(ann_index_evict(index.index, ANN_DEVICE_CUDA, nullptr) == ANN_OK, "the device gives the index back");
  // Room for the index without narrow codes, and for half of the halves.
  constexpr uint64_t kReserve = 256 << 20;
  const uint64_t left = whole - narrow + kReserve + halves / 2;
  const uint64_t free_bytes = pool().free_bytes();
  expect(free_bytes > left, "a device with memory");
  void* filler = nullptr;
  expect(cudaMalloc(&filler, free_bytes - left) == cudaSuccess, "the device is filled");
  const IndexView tight = view_there();
  expect(tight.halves.codes == nullptr && tight.narrow.codes == nullptr, "no room for narrow codes");
  cudaFree(filler);
}

void claim_refusals() {
  const Rows rows(ANN_F32, 300, 8, Values::kNormal, 3);
  Handle index(rows, ANN_METRIC_L2);
  expect(index.build(rows, params_on(ANN_DEVICE_CUDA + 99)) == ANN_NO_DEVICE, "device 101");
  setenv("GANNET_BACKEND", "cpu", 1);
  expect(index.build(rows, params_on(ANN_DEVICE_CUDA)) == ANN_NO_DEVICE, "hidden devices");
  expect(index.error.message[0] != 0, "a reason");
  setenv("GANNET_BACKEND", "cuda", 1);
  pool().forget_peak();
  expect(index.build(rows, params_on(ANN_DEVICE_AUTO)) == ANN_OK, index.error.message);
  expect(pool().peak_bytes() > 0, "AUTO is the device when GANNET_BACKEND says so");
  unsetenv("GANNET_BACKEND");
  int device = -1;
  cudaGetDevice(&device);
  expect(device == 0, "the current device stays");
}

// --- Times ---------------------------------------------------------------------------------------

/// Reads a monitor until a call is done: when which phase began. Work of a device that the host does not
/// wait for counts for the phase in which it waits.
class Stages {
 public:
  struct Stage {
    std::string name;
    double ms;
  };

  explicit Stages(const ann_monitor* monitor) : monitor_(monitor), reader_([this] { read(); }) {}
  ~Stages() { end(); }

  const std::vector<Stage>& end() {
    done_ = true;
    if (reader_.joinable()) reader_.join();
    return stages_;
  }

 private:
  void read() {
    auto begun = std::chrono::steady_clock::now();
    uint32_t step = 0;
    for (bool last = false; !last;) {
      last = done_;
      ann_progress progress = ANN_PROGRESS_INIT;
      ann_monitor_progress(monitor_, &progress, nullptr);
      const auto now = std::chrono::steady_clock::now();
      if (step != 0 && (progress.step != step || last))
        stages_.back().ms = std::chrono::duration<double, std::milli>(now - begun).count();
      if (progress.step != step && !last) {
        step = progress.step;
        begun = now;
        stages_.push_back({progress.phase, 0});
      }
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }

  const ann_monitor* monitor_;
  std::atomic<bool> done_ = false;
  std::vector<Stage> stages_;
  std::thread reader_;
};

/// One build with its stages.
void print_stages(const ann_matrix& rows, const ann_build_params& params) {
  ann_monitor* monitor = nullptr;
  expect(ann_monitor_create(&monitor, nullptr) == ANN_OK, "a monitor");
  {
    Handle index(rows.dim, ANN_METRIC_L2);
    Stages stages(monitor);
    const auto status = index.build(rows, params, monitor);
    for (const Stages::Stage& stage : stages.end())
      std::printf("       %7.2f ms  %s\n", stage.ms, stage.name.c_str());
    expect(status == ANN_OK, index.error.message);
  }
  ann_monitor_free(monitor);
}

/// What the device's calibration took in a build and alone, and what the CPU's takes, which the build leaves out.
void print_calibration(const Handle& index) {
  const Index::Call call(index.index->index);
  const PlacedSegment& built = placed_of(call);
  Execution execution;
  execution.threads = thread_count(0, 0);
  const auto placement = built.devices.get(built, 0, execution);
  const auto print = [](const char* when, const DeviceCalibration::Cost& cost) {
    std::printf("       device calibration %s: ground truth %.2f ms", when, 1e3 * cost.ground_truth_seconds);
    for (uint32_t table = 0; table < DeviceCalibration::kTables; ++table)
      std::printf("; %u warps %.2f ms, %u runs", DeviceCalibration::kWarps[table], 1e3 * cost.seconds[table],
                  cost.runs[table]);
    std::printf("\n");
  };
  print("in the build", placement->two_lists.cost());
  DeviceCalibration again;
  const SearchTarget target = {built.host, placement->placement.get()};
  const double device_ms = milliseconds_of([&] { again.measure(target, execution); });
  print("alone", again.cost());
  const double others_ms = milliseconds_of([&] { again.measure_others(target, execution); });
  std::printf("       calibration for other numbers of answers %.2f ms\n", others_ms);
  const double cpu_ms = milliseconds_of([&] { Calibration().measure(built.segment, execution); });
  std::printf("       alone: calibration of the device %.2f ms, of the CPU %.2f ms\n", device_ms, cpu_ms);
}

/// The median of five calls of ann_build, each on an index of its own.
void time_build(const Source& source, uint32_t degree, int32_t calibrate) {
  const ann_matrix& rows = source.matrix();
  ann_build_params params = params_on(ANN_DEVICE_CUDA);
  params.degree = degree;
  params.calibrate = calibrate;
  ann_index_info info = ANN_INDEX_INFO_INIT;
  double free_ms = 0;
  std::vector<double> times;
  for (uint32_t run = 0; run < 6; ++run) {
    Handle index(rows.dim, ANN_METRIC_L2);
    const double ms =
        milliseconds_of([&] { expect(index.build(rows, params) == ANN_OK, index.error.message); });
    if (run > 0) times.push_back(ms);  // the first warms up
    info = index.info();
    free_ms = milliseconds_of([&] {
      ann_index_free(index.index);
      index.index = nullptr;
    });
  }
  std::sort(times.begin(), times.end());
  Handle index(rows.dim, ANN_METRIC_L2);
  expect(index.build(rows, params) == ANN_OK, index.error.message);
  const double place_ms = milliseconds_of(
      [&] { expect(ann_index_place(index.index, ANN_DEVICE_CUDA, nullptr, nullptr) == ANN_OK, "placed"); });
  std::printf(
      "time ann_build %llu x %u %s on the %s, degree %u, calibration %s: %.1f ms (%.1f to %.1f), of "
      "that calibration %.1f ms; then ann_index_place %.1f ms, free %.1f ms; %u rounds, share %.4f, %u "
      "edges of repair, recall_max %.4f\n",
      static_cast<unsigned long long>(rows.rows), rows.dim, element_name(rows.element), source.place(),
      degree, calibrate == ANN_OFF ? "off" : "on", times[2], times[0], times[4], 1e3 * info.calibrate_seconds,
      place_ms, free_ms, info.knn_iterations, static_cast<double>(info.knn_share), info.repaired_edges,
      static_cast<double>(info.recall_max));
  print_stages(rows, params);
  if (calibrate != ANN_OFF) print_calibration(index);
}

void time_knn(const Source& source, int32_t method, uint32_t k) {
  const ann_matrix& rows = source.matrix();
  ann_knn_params params = ANN_KNN_PARAMS_INIT;
  params.method = method;
  params.k = k;
  params.device = ANN_DEVICE_CUDA;
  std::vector<uint32_t> lists(rows.rows * k);
  const double ms = median_ms([&] {
    expect(ann_knn_graph(nullptr, &rows, &params, lists.data(), nullptr, nullptr, nullptr) == ANN_OK,
           "lists");
  });
  std::printf("time ann_knn_graph %llu x %u %s on the %s, method %d, k %u: %.0f ms\n",
              static_cast<unsigned long long>(rows.rows), rows.dim, element_name(rows.element),
              source.place(), method, k, ms);
}

Rows timed_rows() {
  return data_file != nullptr ? read_vectors(data_file, data_rows)
                              : Rows(ANN_U8, 200'000, 128, Values::kClusters, 1);
}

/// The same rows as floats.
Rows as_floats(const Rows& bytes) {
  Rows rows(ANN_F32, 0, bytes.dim, Values::kEqual, 1);
  rows.rows = bytes.rows;
  rows.bytes.resize(uint64_t{bytes.rows} * bytes.dim * sizeof(float));
  float* floats = reinterpret_cast<float*>(rows.bytes.data());
  std::copy_n(bytes.bytes.data(), uint64_t{bytes.rows} * bytes.dim, floats);
  return rows;
}

void claim_build_times() {
  const Rows rows = timed_rows();
  const Source source(rows, false);
  time_build(source, 32, ANN_OFF);
  time_build(source, 64, ANN_OFF);
  time_build(source, 32, ANN_ON);
  time_build(source, 64, ANN_ON);
}

void claim_times_on_device() {
  const Rows rows = timed_rows();
  time_build(Source(rows, true), 64, ANN_OFF);
  const Rows floats = as_floats(rows);
  time_build(Source(floats, true), 64, ANN_OFF);
  time_build(Source(floats, false), 64, ANN_OFF);
}

void claim_knn_times() {
  const Rows rows = timed_rows();
  const Source source(rows, false);
  time_knn(source, ANN_KNN_CELLS, 64);
  time_knn(Source(rows, true), ANN_KNN_CELLS, 64);
  time_knn(source, ANN_KNN_NN_DESCENT, 64);
  time_knn(source, ANN_KNN_EXACT, 64);
}

/// Saved to memory and opened again.
std::unique_ptr<const PlacedSegment> reopen(const PlacedSegment& built) {
  std::vector<uint8_t> bytes;
  const StreamSink sink{[](void* user, const void* data, uint64_t count) -> int64_t {
                          auto& out = *static_cast<std::vector<uint8_t>*>(user);
                          const auto* from = static_cast<const uint8_t*>(data);
                          out.insert(out.end(), from, from + count);
                          return static_cast<int64_t>(count);
                        },
                        &bytes};
  save_stream(built, sink, {});
  return open_memory(bytes.data(), bytes.size(), {ANN_OPEN_FULL, {}}, {});
}

/// Efforts of two placements for some recalls, which must be equal.
void compare_efforts(const std::optional<Effort>& a, const std::optional<Effort>& b) {
  expect(a.has_value() == b.has_value(), "a table says as much");
  if (a) expect(a->knob == b->knob && a->expansions_max == b->expansions_max, "an effort is the same");
}

/// Tables of two calibrations for some k, which must be equal.
void compare_tables(const DeviceCalibration& wanted, const DeviceCalibration& found,
                    std::initializer_list<uint32_t> answers) {
  expect(!wanted.empty(), "the build has calibrated");
  for (uint32_t place = 0; place <= DeviceCalibration::kTables; ++place) {
    for (const float recall : {0.5f, 0.9f, 0.95f, 0.99f}) {
      const DeviceCalibration::QueryWarps query_warps = wanted.table(place).query_warps;
      for (const uint32_t k : answers) {
        compare_efforts(wanted.find(query_warps, k, recall), found.find(query_warps, k, recall));
        if (k < kDeepAnswers)
          compare_efforts(wanted.find_deep(query_warps, k, recall), found.find_deep(query_warps, k, recall));
      }
    }
  }
}

/// Of rows that are their codes, and of others, whose walks for a hundred answers have two curves. A build measures the
/// curves of ten and a hundred answers, and a file has all of them, though none was asked for.
void claim_calibrated_once(int32_t element) {
  const std::initializer_list<uint32_t> answers = {1, 5, 10, 16, 30, 50, 100, 300, 1000};
  const Rows rows(element, 20000, 32, Values::kClusters, 77);
  Handle index(rows, ANN_METRIC_L2), unasked(rows, ANN_METRIC_L2);
  ann_build_params params = params_on(ANN_DEVICE_CUDA);
  params.calibrate = ANN_ON;
  for (Handle* made : {&index, &unasked}) expect(made->build(rows, params) == ANN_OK, made->error.message);
  const Index::Call call(index.index->index);
  const PlacedSegment& built = placed_of(call);
  const auto first = built.devices.get(built, 0, {});
  expect(first->two_lists.cost().ground_truth_seconds > 0, "the build measures");
  expect(!first->two_lists.is_whole() && first->two_lists.serves(10) && !first->two_lists.serves(11),
         "the curves of ten and a hundred answers");
  built.devices.drop(0);
  const auto again = built.devices.get(built, 0, {});
  expect(again->two_lists.cost().ground_truth_seconds == 0, "another placement measures nothing");
  compare_tables(first->two_lists, again->two_lists, {10, 100});
  const DeviceCalibration& whole = first->whole_two_lists(built, {});
  expect(whole.is_whole() && &first->two_lists_for(1, built, {}) == &whole, "the others, once");
  compare_tables(first->two_lists, whole, {10, 100});
  compare_tables(whole, again->two_lists_for(50, built, {}), answers);
  const auto opened = reopen(built);
  const auto placed = opened->devices.get(*opened, 0, {});
  expect(placed->two_lists.cost().ground_truth_seconds == 0, "an index from a file measures nothing");
  expect(&placed->two_lists_for(1, *opened, {}) == &placed->two_lists, "nor do its searches");
  compare_tables(whole, placed->two_lists, answers);
  const auto saved = reopen(placed_of(Index::Call(unasked.index->index)));
  compare_tables(whole, saved->devices.get(*saved, 0, {})->two_lists, answers);
  bool has_first = false;
  for (uint32_t place = 0; place < DeviceCalibration::kTables; ++place)
    has_first |= first->two_lists.table(place).first.count > 0;
  expect(has_first == is_float_element(element),
         "walks by codes that are not the rows have a curve of the first ten");
}

/// Rows about the middle, and a twelfth of them in islands of a hundred, each apart from it in two columns.
Rows rows_and_islands(int32_t element, uint32_t count) {
  Rows rows(element, count, 24, Values::kNormal, 7);
  const bool floats = is_float_element(element);
  for (uint32_t row = 0; row < count; ++row) {
    const uint32_t island = row % 12 == 0 ? row / 1200 : rows.dim;
    for (uint32_t column = 0; column < rows.dim; ++column) {
      const bool apart = island < rows.dim && (column == island || column == (island + 7) % rows.dim);
      const auto noise = static_cast<float>(random_below(100, 11, row, column)) / 100;
      rows.put(row * rows.stride, column,
               (apart ? 60.0f : -20.0f) + (island < rows.dim ? 4 : 40) * noise * (floats ? 1.5f : 1));
    }
  }
  return rows;
}

/// Rows that a walk of the device does not find by themselves.
uint64_t missed_rows(const Rows& rows, const Handle& index) {
  std::vector<uint64_t> ids(rows.rows);
  std::vector<float> distances(rows.rows);
  ann_results results = ANN_RESULTS_INIT;
  results.k = 1;
  results.rows = rows.rows;
  results.ids = ids.data();
  results.distances = distances.data();
  ann_search_params search = ANN_SEARCH_PARAMS_INIT;
  search.device = ANN_DEVICE_CUDA;
  search.procedure = ANN_SEARCH_BEST_FIRST;
  search.beam = 16;
  const ann_matrix queries = matrix_of(rows);
  expect(ann_search_batch(index.index, &queries, &search, &results, nullptr, nullptr) == ANN_OK,
         "rows are searched for");
  return static_cast<uint64_t>(
      std::count_if(distances.begin(), distances.end(), [](float distance) { return distance > 0; }));
}

/// The placement has the host's edges to missed rows, and walks by them find more rows than without.
void claim_missed_rows() {
  for (const int32_t element : kElements) {
    for (const int32_t knn : {ANN_KNN_CELLS, ANN_KNN_EXACT}) {
      const Rows rows = rows_and_islands(element, quick ? 4800 : 24000);
      ann_build_params params = params_on(ANN_DEVICE_CUDA);
      params.knn = knn;
      params.degree = 16;
      params.calibrate = ANN_OFF;
      Handle index(rows, ANN_METRIC_L2);
      expect(index.build(rows, params) == ANN_OK, index.error.message);
      {
        const Index::Call call(index.index->index);
        const PlacedSegment& built = placed_of(call);
        const SearchGraph& graph = built.segment.graph;
        std::vector<uint32_t> there(graph.edges.size());
        const IndexView& view = built.devices.get(built, 0, {})->placement->view();
        expect(cudaMemcpy(there.data(), view.graph.targets, there.size() * sizeof(uint32_t),
                          cudaMemcpyDefault) == cudaSuccess,
               "the edges come");
        expect(std::equal(there.begin(), there.end(), graph.edges.begin()),
               "the placement has the host's edges");
        expect(count_unreachable(graph, {}) == 0, "every row is reached");
      }
      params.repair = ANN_OFF;
      Handle as_found(rows, ANN_METRIC_L2);
      expect(as_found.build(rows, params) == ANN_OK, as_found.error.message);
      const uint64_t without = missed_rows(rows, as_found);
      const uint64_t with = missed_rows(rows, index);
      std::printf("    %u rows, element %d, lists %d: %llu missed, %llu without\n", rows.rows, element, knn,
                  static_cast<unsigned long long>(with), static_cast<unsigned long long>(without));
      expect(quick || 3 * with < 2 * without, "missed rows are attached");  // few rows are all found
    }
  }
}

void claim_calibrated_once() {
  for (const int32_t element : {ANN_U8, ANN_F32}) claim_calibrated_once(element);
}

/// Of many narrow rows: 48 edges, or 64 where cells see that neighbours are hard to tell apart, unless the caller says how
/// many or has shorter lists.
void claim_degree() {
  struct Case {
    uint32_t columns, degree, knn_degree;
    int32_t knn;
    uint32_t expected;
  };
  for (const Case& of : {Case{4, 0, 0, ANN_KNN_AUTO, 48}, Case{64, 0, 0, ANN_KNN_AUTO, 64},
                         Case{64, 48, 0, ANN_KNN_AUTO, 48}, Case{64, 0, 56, ANN_KNN_AUTO, 48},
                         Case{64, 0, 40, ANN_KNN_AUTO, 32}, Case{64, 0, 0, ANN_KNN_NN_DESCENT, 48}}) {
    const Rows rows(ANN_U8, 100'000, of.columns, Values::kNormal, 3);
    ann_build_params params = params_on(ANN_DEVICE_CUDA);
    params.degree = of.degree;
    params.knn_degree = of.knn_degree;
    params.knn = of.knn;
    Handle index(rows, ANN_METRIC_L2);
    expect(index.build(rows, params) == ANN_OK, index.error.message);
    const std::string name = std::to_string(of.columns) + " columns, degree " + std::to_string(of.degree) +
                             ", lists of " + std::to_string(of.knn_degree) + ", knn " +
                             std::to_string(of.knn);
    expect(index.info().degree == of.expected,
           name + ": " + std::to_string(index.info().degree) + " edges a row");
  }
}

constexpr Claim kClaims[] = {
    {"indexes are the CPU's, of every element, metric and size", claim_builds},
    {"graphs of lists of more than 256 rows", claim_long_lists},
    {"rows on the device", claim_rows_there},
    {"CAGRA's graph as its paper has it is the CPU's", claim_cagra},
    {"a given k-NN graph", claim_given},
    {"k-NN lists are the CPU's", claim_knn},
    {"lists and graphs by cells", claim_cells},
    {"lists are measured by rows as stored", claim_share},
    {"two builds in two threads", claim_threads},
    {"refusals", claim_refusals},
    {"cancelled and late builds", claim_ends},
    {"estimates of device memory", claim_estimates},
    {"edges to missed rows", claim_missed_rows},
    {"what a device has calibrated is kept, in files too", claim_calibrated_once},
};
constexpr Claim kWhole[] = {{"the data decide how many edges rows have", claim_degree},
                            {"a device without room for narrow codes", claim_no_room_for_narrow_codes},
                            {"a device without memory", claim_no_memory}};
constexpr Claim kTimes[] = {{"times of builds", claim_build_times},
                            {"times of builds from rows on the device", claim_times_on_device},
                            {"times of k-NN graphs", claim_knn_times}};

}  // namespace

int main(int count, char** arguments) {
  const std::string mode = count > 1 ? arguments[1] : "";
  quick = mode == "quick";
  if (count > 2) data_file = arguments[2];
  if (count > 3) data_rows = static_cast<uint32_t>(std::strtoul(arguments[3], nullptr, 10));
  const std::string words = (quick || mode == "only") && count > 2 ? arguments[2] : "";
  if (!words.empty()) return run_claims(kClaims, words);
  if (mode == "time") return run_claims(kTimes, count > 4 ? arguments[4] : "");
  if (mode == "all" && count > 2) return run_claims(kClaims, arguments[2]);
  const int status = run_claims(kClaims);
  // Many rows, and to fill the device, take minutes under a sanitizer and find nothing that the rest does not.
  return status == 0 && !quick ? run_claims(kWhole) : status;
}
