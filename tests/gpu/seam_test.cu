// Claims about many calls on a device at once, and about calls that are told to stop: 32 host threads
// search one index, each on a stream of its own, and answer as one thread does; two builds run side by
// side; a build that is cancelled or out of time comes back within 50 ms, wherever it stands.
//
//   seam_test [WORDS]              all claims, or those whose text has the words in it
//   seam_test time [DATA [WORDS]]  and rates of 1 to 32 threads, and how long stopping took in each phase;
//                                  DATA is a .u8bin file, else rows are made
//
// Ends with 77 where there is no CUDA device.

#include <cuda_runtime.h>

#include <atomic>
#include <map>
#include <thread>

#include "ann.h"
#include "backend/launch.h"
#include "claims.h"

namespace gannet::test {
namespace {

constexpr int32_t kDevice = ANN_DEVICE_CUDA;
constexpr uint32_t kK = 10;

std::string data_path;

ann_index* make_index(uint32_t dim) {
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  shape.dim = dim;
  ann_index* index = nullptr;
  expect(ann_index_create(nullptr, &shape, &index, nullptr) == ANN_OK, "creating an index");
  return index;
}

struct Built {
  ann_index* index;
  ann_error error = ANN_ERROR_INIT;

  explicit Built(const Rows& rows) : index(make_index(rows.dim)) {
    ann_build_params params = ANN_BUILD_PARAMS_INIT;
    params.device = kDevice;
    const ann_matrix matrix = matrix_of(rows);
    expect(ann_build(index, &matrix, nullptr, &params, nullptr, &error) == ANN_OK, error.message);
  }
  ~Built() { ann_index_free(index); }
  Built(const Built&) = delete;
};

/// One thread's way of searching device memory.
class Searcher {
 public:
  Searcher(const ann_index* index, const Rows& queries, uint32_t first, uint32_t count)
      : index_(index), count_(count) {
    const size_t row = size_t{queries.dim} * element_bytes(queries.element);
    cudaMalloc(&queries_, std::max<size_t>(1, count * row));
    cudaMalloc(&ids_, count * kK * sizeof(uint64_t));
    cudaMalloc(&distances_, count * kK * sizeof(float));
    cudaMemcpy(queries_, queries.bytes.data() + first * row, count * row, cudaMemcpyHostToDevice);
    cudaDeviceSynchronize();  // its own stream waits for no copy
    cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
    matrix_ = matrix_of(queries);
    matrix_.rows = count;
    matrix_.data = queries_;
    matrix_.space = kDevice;
    params_.stream = stream_;
  }
  ~Searcher() {
    cudaStreamDestroy(stream_);
    for (void* memory : {queries_, ids_, distances_}) cudaFree(memory);
  }
  Searcher(const Searcher&) = delete;

  ann_status search() {
    ann_results results = ANN_RESULTS_INIT;
    results.k = kK;
    results.rows = count_;
    results.ids = static_cast<uint64_t*>(ids_);
    results.distances = static_cast<float*>(distances_);
    results.space = kDevice;
    return ann_search_batch(index_, &matrix_, &params_, &results, nullptr, nullptr);
  }
  void wait() const { cudaStreamSynchronize(stream_); }
  std::vector<uint64_t> ids() const {
    std::vector<uint64_t> found(count_ * kK);
    cudaMemcpy(found.data(), ids_, found.size() * 8, cudaMemcpyDeviceToHost);
    return found;
  }

 private:
  const ann_index* index_;
  uint32_t count_;
  void* queries_ = nullptr;
  void* ids_ = nullptr;
  void* distances_ = nullptr;
  cudaStream_t stream_ = nullptr;
  ann_matrix matrix_;
  ann_search_params params_ = ANN_SEARCH_PARAMS_INIT;
};

template <class Work>
void in_threads(uint32_t count, const Work& work) {
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < count; ++i) threads.emplace_back([&work, i] { work(i); });
  for (std::thread& thread : threads) thread.join();
}

void threads_on_one_index() {
  const uint32_t count = 200;
  for (const int32_t element : {ANN_U8, ANN_F32}) {
    const Rows rows(element, 20000, 48, Values::kClusters, 1);
    const Rows queries(element, 32 * count, 48, Values::kClusters, 2);
    const Built built(rows);
    // In batches of the threads' size: that chooses the procedure.
    std::vector<uint64_t> wanted;
    for (uint32_t thread = 0; thread < 32; ++thread) {
      Searcher alone(built.index, queries, thread * count, count);
      expect(alone.search() == ANN_OK, "one thread");
      alone.wait();
      const std::vector<uint64_t> ids = alone.ids();
      wanted.insert(wanted.end(), ids.begin(), ids.end());
    }
    std::atomic<uint32_t> failures = 0;
    // Device memory on streams, and host memory, at once; the copy comes and goes meanwhile.
    in_threads(33, [&](uint32_t thread) {
      if (thread == 32) {
        for (uint32_t i = 0; i < 3; ++i) {
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          failures += ann_index_evict(built.index, kDevice, nullptr) == ANN_OK ? 0 : 1;
        }
        return;
      }
      const uint64_t* expected = wanted.data() + thread * count * kK;
      Searcher searcher(built.index, queries, thread * count, count);
      std::vector<uint64_t> ids(count * kK);
      ann_matrix part = matrix_of(queries);
      part.data = queries.bytes.data() + size_t{thread} * count * 48 * element_bytes(element);
      part.rows = count;
      ann_results results = ANN_RESULTS_INIT;
      results.k = kK;
      results.rows = count;
      results.ids = ids.data();
      ann_search_params params = ANN_SEARCH_PARAMS_INIT;
      params.device = kDevice;
      for (uint32_t i = 0; i < 20; ++i) {
        const bool queued = searcher.search() == ANN_OK;
        const bool found =
            ann_search_batch(built.index, &part, &params, &results, nullptr, nullptr) == ANN_OK;
        searcher.wait();
        const bool equal = std::equal(ids.begin(), ids.end(), expected) &&
                           std::memcmp(searcher.ids().data(), expected, ids.size() * 8) == 0;
        failures += queued && found && equal ? 0 : 1;
      }
    });
    expect(failures == 0, std::to_string(failures) + " searches of 32 threads went wrong");
  }
}

std::vector<uint32_t> edges_of(const ann_index* index) {
  uint32_t degree = 0;
  expect(ann_index_graph(index, nullptr, 0, &degree, nullptr) == ANN_OK, "graph");
  ann_index_info info = ANN_INDEX_INFO_INIT;
  ann_index_get_info(index, &info, nullptr);
  std::vector<uint32_t> edges(info.rows * degree);
  ann_index_graph(index, edges.data(), edges.size(), &degree, nullptr);
  return edges;
}

void two_builds() {
  const Rows first(ANN_U8, 30000, 64, Values::kClusters, 3);
  const Rows second(ANN_F32, 25000, 40, Values::kClusters, 4);
  const Built a(first);
  const Built b(second);
  for (uint32_t round = 0; round < 3; ++round) {
    std::vector<uint32_t> edges[2];
    std::string what[2];
    in_threads(2, [&](uint32_t thread) {
      try {
        const Built built(thread == 0 ? first : second);
        edges[thread] = edges_of(built.index);
      } catch (const Failure& failure) {
        what[thread] = failure.what;
      }
    });
    expect(what[0].empty() && what[1].empty(), what[0] + what[1]);
    expect(edges[0] == edges_of(a.index) && edges[1] == edges_of(b.index), "another graph");
  }
}

/// Rows in memory of the device.
struct DeviceCopy {
  void* data = nullptr;
  ann_matrix matrix;

  explicit DeviceCopy(const Rows& rows) : matrix(matrix_of(rows)) {
    expect(cudaMalloc(&data, rows.bytes.size()) == cudaSuccess &&
               cudaMemcpy(data, rows.bytes.data(), rows.bytes.size(), cudaMemcpyHostToDevice) == cudaSuccess,
           "rows on the device");
    matrix.data = data;
    matrix.space = kDevice;
  }
  ~DeviceCopy() { cudaFree(data); }
  DeviceCopy(const DeviceCopy&) = delete;
};

/// How long a build took to come back after it was told to stop, and what it was doing.
struct Stop {
  double ms = 0;
  double whole_ms = 0;
  std::string phase;
  ann_status status = ANN_OK;
};

Stop stop_build(const ann_matrix& matrix, int32_t method, double after_ms, bool deadline) {
  Stop stop;
  ann_monitor* monitor = nullptr;
  ann_monitor_create(&monitor, nullptr);
  ann_index* index = make_index(matrix.dim);
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.device = kDevice;
  params.knn = method;
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  std::atomic<double> told = after_ms;
  const auto now = [&] { return std::chrono::duration<double, std::milli>(Clock::now() - begin).count(); };
  if (deadline) ann_monitor_set_deadline(monitor, static_cast<uint64_t>(after_ms * 1e6));
  std::atomic<bool> returned = false;
  std::thread teller([&] {
    while (now() < after_ms && !returned) std::this_thread::sleep_for(std::chrono::microseconds(200));
    if (returned) return;
    ann_progress progress = ANN_PROGRESS_INIT;
    ann_monitor_progress(monitor, &progress, nullptr);
    stop.phase = progress.phase;
    if (deadline) return;
    told = now();
    ann_monitor_cancel(monitor);
  });
  stop.status = ann_build(index, &matrix, nullptr, &params, monitor, nullptr);
  stop.whole_ms = now();
  returned = true;
  teller.join();
  stop.ms = stop.whole_ms - told;
  ann_index_free(index);
  ann_monitor_free(monitor);
  return stop;
}

/// Stops builds at times spread over a whole one, and shows the longest wait of each phase if it may.
void stop_everywhere(const ann_matrix& rows, int32_t method, uint32_t times, bool show) {
  const double whole = stop_build(rows, method, 1e5, true).whole_ms;
  std::map<std::string, double> longest;
  uint32_t stopped = 0;
  for (uint32_t i = 0; i < times; ++i) {
    const double after = whole * (i + 0.5) / times;
    const Stop stop = stop_build(rows, method, after, i % 2 == 1);
    if (stop.status == ANN_OK) continue;  // it was done before
    expect(stop.status == (i % 2 == 1 ? ANN_DEADLINE : ANN_CANCELLED),
           "status " + std::to_string(stop.status));
    ++stopped;
    longest[stop.phase] = std::max(longest[stop.phase], stop.ms);
  }
  std::string text;
  for (const auto& [phase, ms] : longest) text += " " + phase + " " + std::to_string(ms).substr(0, 5) + ",";
  if (show)
    std::printf("       %llu rows, %s, method %d, whole %.0f ms, %u stopped, longest:%s\n",
                static_cast<unsigned long long>(rows.rows), rows.space != 0 ? "on the device" : "on the host",
                method, whole, stopped, text.c_str());
  std::fflush(stdout);
  expect(stopped >= times / 3, "too few builds were stopped");
}

void stopped_builds() {
  const Rows rows(ANN_U8, 60000, 128, Values::kClusters, 5);
  stop_build(matrix_of(rows), ANN_KNN_AUTO, 1e5, true);  // the first takes longer
  for (const int32_t method : {ANN_KNN_AUTO, ANN_KNN_NN_DESCENT, ANN_KNN_EXACT})
    stop_everywhere(matrix_of(rows), method, 10, false);
  const DeviceCopy there(rows);
  stop_everywhere(there.matrix, ANN_KNN_AUTO, 10, false);
}

// --- Times -----------------------------------------------------------------------------------------

void stopped_large_builds() {
  const Rows rows = data_path.empty() ? Rows(ANN_U8, 1'000'000, 128, Values::kClusters, 6)
                                      : read_vectors(data_path, 1'000'000);
  stop_build(matrix_of(rows), ANN_KNN_AUTO, 1e5, true);
  stop_everywhere(matrix_of(rows), ANN_KNN_AUTO, 24, true);
  const DeviceCopy there(rows);
  stop_everywhere(there.matrix, ANN_KNN_AUTO, 24, true);
  stop_everywhere(there.matrix, ANN_KNN_EXACT, 8, true);
  stop_everywhere(matrix_of(rows), ANN_KNN_NN_DESCENT, 12, true);
}

void rates() {
  const Rows rows = data_path.empty() ? Rows(ANN_U8, 300'000, 128, Values::kClusters, 7)
                                      : read_vectors(data_path, 1'000'000);
  const Rows queries(ANN_U8, 32000, 128, Values::kClusters, 8);
  const Built built(rows);
  for (const uint32_t batch : {1u, 10u, 100u, 1000u}) {
    std::string line;
    double single = 0;
    for (const uint32_t threads : {1u, 2u, 4u, 8u, 16u, 32u}) {
      std::vector<std::unique_ptr<Searcher>> searchers;
      for (uint32_t thread = 0; thread < threads; ++thread)
        searchers.push_back(std::make_unique<Searcher>(built.index, queries, thread * 1000, batch));
      for (const auto& searcher : searchers) searcher->search(), searcher->wait();
      const uint32_t rounds = 300;
      const double ms = milliseconds_of([&] {
        in_threads(threads, [&](uint32_t thread) {
          for (uint32_t i = 0; i < rounds; ++i) {
            searchers[thread]->search();
            searchers[thread]->wait();  // a thread that needs its answers before it asks again
          }
        });
      });
      const double rate = threads * rounds * batch / ms / 1e3;
      if (threads == 1) single = rate;
      char text[64];
      std::snprintf(text, sizeof text, "  %u: %.3f (x%.1f)", threads, rate, rate / single);
      line += text;
    }
    std::printf("       M queries/s, batches of %u, by threads:%s\n", batch, line.c_str());
  }
}

constexpr Claim kClaims[] = {
    {"32 threads search one index", threads_on_one_index},
    {"two builds at once", two_builds},
    {"builds that are told to stop", stopped_builds},
};
constexpr Claim kTimes[] = {
    {"rates of many threads", rates},
    {"large builds that are told to stop", stopped_large_builds},
};

}  // namespace
}  // namespace gannet::test

int main(int count, char** words) {
  using namespace gannet::test;
  if (count > 1 && std::string(words[1]) == "time") {
    data_path = count > 2 ? words[2] : "";
    return run_claims(kTimes, count > 3 ? words[3] : "");
  }
  return run_claims(kClaims, count > 1 ? words[1] : "");
}
