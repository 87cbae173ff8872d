// Claims about memory of the device in ann.h: searches there answer as those of host memory do, bit for
// bit, whatever the element, the metric, the stride and the address; with a stream of the caller they are
// queued and touch neither the host nor the driver; wrong pointers and streams are refused with the
// reason; builds and k-NN graphs take rows from there.
//
//   device_pointers_test [WORDS]     all claims, or those whose text has the words in it
//
// Ends with 77 where there is no CUDA device.

#include <cuda_runtime.h>
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "ann.h"
#include "backend/device_pool.h"
#include "backend/launch.h"
#include "claims.h"

namespace gannet::test {
namespace {

constexpr int32_t kDevice = ANN_DEVICE_CUDA;

void expect_cuda(cudaError_t error, const char* what) {
  expect(error == cudaSuccess, std::string(what) + ": " + cudaGetErrorString(error));
}

/// Memory of the device as a caller has it.
class Memory {
 public:
  explicit Memory(size_t bytes) : bytes_(bytes) {
    expect_cuda(cudaMalloc(&data_, std::max<size_t>(bytes, 1)), "cudaMalloc");
  }
  ~Memory() { cudaFree(data_); }
  Memory(const Memory&) = delete;

  uint8_t* at(size_t offset) const { return static_cast<uint8_t*>(data_) + offset; }
  void set(int byte) { expect_cuda(cudaMemset(data_, byte, bytes_), "cudaMemset"); }
  template <class Item>
  std::vector<Item> get(size_t count) const {
    std::vector<Item> items(count);
    expect_cuda(cudaMemcpy(items.data(), data_, count * sizeof(Item), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return items;
  }

 private:
  void* data_ = nullptr;
  size_t bytes_;
};

struct Answers {
  std::vector<uint64_t> ids;
  std::vector<float> distances;
  std::vector<uint32_t> counts;
  std::vector<ann_status> status;

  Answers(uint64_t queries, uint32_t k)
      : ids(queries * k), distances(queries * k), counts(queries), status(queries) {}
  ann_results view(uint32_t k) {
    ann_results results = ANN_RESULTS_INIT;
    results.k = k;
    results.rows = counts.size();
    results.ids = ids.data();
    results.distances = distances.data();
    results.counts = counts.data();
    results.status = status.data();
    return results;
  }
  bool operator==(const Answers& other) const {
    return ids == other.ids && counts == other.counts && status == other.status &&
           std::memcmp(distances.data(), other.distances.data(), distances.size() * 4) == 0;
  }
};

/// The same buffers on the device, full of what no answer is.
struct DeviceAnswers {
  Memory ids, distances, counts, status;
  uint64_t queries;
  uint32_t k;

  DeviceAnswers(uint64_t queries_, uint32_t k_)
      : ids(queries_ * k_ * 8),
        distances(queries_ * k_ * 4),
        counts(queries_ * 4),
        status(queries_ * 4),
        queries(queries_),
        k(k_) {
    for (Memory* memory : {&ids, &distances, &counts, &status}) memory->set(0x5a);
    // Streams of callers do not wait for the default one, on which that is queued.
    expect_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
  ann_results view() const {
    ann_results results = ANN_RESULTS_INIT;
    results.k = k;
    results.rows = queries;
    results.space = kDevice;
    results.ids = reinterpret_cast<uint64_t*>(ids.at(0));
    results.distances = reinterpret_cast<float*>(distances.at(0));
    results.counts = reinterpret_cast<uint32_t*>(counts.at(0));
    results.status = reinterpret_cast<ann_status*>(status.at(0));
    return results;
  }
  Answers fetch() const {
    Answers answers(queries, k);
    answers.ids = ids.get<uint64_t>(queries * k);
    answers.distances = distances.get<float>(queries * k);
    answers.counts = counts.get<uint32_t>(queries);
    answers.status = status.get<ann_status>(queries);
    return answers;
  }
};

/// Rows on the device, `offset` bytes from its beginning, with `gap` bytes of NaN between them.
struct DeviceRows {
  Memory memory;
  ann_matrix matrix;

  explicit DeviceRows(const Rows& rows, size_t offset = 0, size_t gap = 0)
      : memory(offset + rows.rows * (row_bytes(rows) + gap) + 64), matrix(matrix_of(rows)) {
    const size_t bytes = row_bytes(rows);
    memory.set(0xff);
    expect_cuda(cudaMemcpy2D(memory.at(offset), bytes + gap, rows.bytes.data(), bytes, bytes, rows.rows,
                             cudaMemcpyHostToDevice),
                "cudaMemcpy2D");
    // From pageable memory a copy may end after its call, and streams of the library wait for no other.
    expect_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    matrix.data = memory.at(offset);
    matrix.row_stride = bytes + gap;
    matrix.space = kDevice;
  }
  static size_t row_bytes(const Rows& rows) { return size_t{rows.dim} * element_bytes(rows.element); }
};

/// An index that is freed.
struct Built {
  ann_index* index = nullptr;
  ann_error error = ANN_ERROR_INIT;

  Built(const ann_matrix& rows, int32_t metric, const uint64_t* ids = nullptr, int32_t graph = ANN_GRAPH_AUTO,
        int32_t element = 0) {
    ann_index_params shape = ANN_INDEX_PARAMS_INIT;
    shape.dim = rows.dim;
    shape.metric = metric;
    shape.element = element;
    ann_build_params params = ANN_BUILD_PARAMS_INIT;
    params.graph = graph;
    params.device = kDevice;
    expect(ann_index_create(nullptr, &shape, &index, &error) == ANN_OK, error.message);
    expect(ann_build(index, &rows, ids, &params, nullptr, &error) == ANN_OK, error.message);
  }
  ~Built() { ann_index_free(index); }
  Built(const Built&) = delete;

  ann_status search(bool exact, const ann_matrix& queries, const ann_search_params& params,
                    ann_results results) {
    return exact ? ann_search_exact(index, &queries, &params, &results, nullptr, &error)
                 : ann_search_batch(index, &queries, &params, &results, nullptr, &error);
  }
};

class CallersStream {
 public:
  CallersStream() { expect_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream"); }
  ~CallersStream() { cudaStreamDestroy(stream_); }
  operator cudaStream_t() const { return stream_; }
  void wait() const { expect_cuda(cudaStreamSynchronize(stream_), "waiting"); }

 private:
  cudaStream_t stream_;
};

ann_search_params with_stream(cudaStream_t stream, uint32_t beam = 0) {
  ann_search_params params = ANN_SEARCH_PARAMS_INIT;
  params.stream = stream;
  params.beam = beam;
  return params;
}

std::vector<uint64_t> shuffled_ids(uint32_t rows) {
  std::vector<uint64_t> ids;
  for (uint64_t i = 0; i < rows; ++i) ids.push_back((i * 7919 + 13) << 31);
  std::shuffle(ids.begin(), ids.end(), std::mt19937(5));
  return ids;
}

// --- Equal answers ---------------------------------------------------------------------------------

/// One batch in every way against the same batch from host memory.
void compare(Built& built, const Rows& queries, uint32_t k, uint32_t beam, bool exact,
             const std::string& name, int32_t procedure = ANN_SEARCH_AUTO,
             int32_t compared = ANN_COMPARE_AUTO) {
  const CallersStream stream;
  Answers wanted(queries.rows, k);
  ann_search_params params = ANN_SEARCH_PARAMS_INIT;
  params.device = kDevice;
  params.beam = beam;
  params.procedure = procedure;
  params.compare = compared;
  const ann_status status = built.search(exact, matrix_of(queries), params, wanted.view(k));
  expect(status == ANN_OK, name + ": " + built.error.message);
  if (exact) {
    Answers on_cpu(queries.rows, k);
    params.device = ANN_DEVICE_CPU;
    expect(built.search(true, matrix_of(queries), params, on_cpu.view(k)) == ANN_OK, built.error.message);
    expect(on_cpu == wanted, name + ": another answer on the CPU");
  }
  struct Place {
    size_t offset, gap;
  };
  for (const Place place : {Place{0, 0}, Place{3, 5}, Place{16, 32}}) {
    const DeviceRows there(queries, place.offset, place.gap);
    for (const bool own_stream : {false, true}) {
      const DeviceAnswers found(queries.rows, k);
      ann_search_params asked = with_stream(own_stream ? stream : cudaStream_t{}, beam);
      asked.procedure = procedure;
      asked.compare = compared;
      const std::string what = name + ", offset " + std::to_string(place.offset) + ", gap " +
                               std::to_string(place.gap) + (own_stream ? ", stream" : "");
      expect(built.search(exact, there.matrix, asked, found.view()) == ANN_OK,
             what + ": " + built.error.message);
      stream.wait();
      expect(found.fetch() == wanted, what + ": another answer");
    }
  }
}

void equal_answers() {
  for (const int32_t element : kElements) {
    for (const int32_t metric : kMetrics) {
      for (const uint32_t dim : {1u, 31u, 64u, 129u}) {
        const Rows rows(element, 1500, dim, Values::kClusters, 1);
        Rows queries(element, 67, dim, Values::kClusters, 2);
        if (is_float_element(element)) {
          queries.put(0, dim - 1, NAN);
          queries.put(66 * DeviceRows::row_bytes(queries), 0, INFINITY);
        }
        const std::vector<uint64_t> ids = shuffled_ids(rows.rows);
        Built built(matrix_of(rows), metric, dim == 31 ? ids.data() : nullptr);
        // Rows are sent; after the searches by graph they stand there.
        compare(built, queries, 3, 0, true, std::string(element_name(element)) + ", not placed");
        const std::string name = std::string(element_name(element)) + " " + metric_name(metric) + ", " +
                                 std::to_string(dim) + " columns";
        compare(built, queries, 10, 0, false, name);
        compare(built, queries, 40, 90, false, name + ", one list");
        compare(built, queries, 10, 0, true, name + ", exact");
      }
    }
  }
}

void equal_answers_of_cagra() {
  for (const int32_t element : kElements) {
    for (const int32_t metric : kMetrics) {
      const Rows rows(element, 1500, 47, Values::kClusters, 1);
      Rows queries(element, 67, 47, Values::kClusters, 2);
      if (is_float_element(element)) queries.put(0, 46, NAN);
      Built built(matrix_of(rows), metric);
      for (const int32_t procedure : {ANN_SEARCH_CAGRA_SINGLE_CTA, ANN_SEARCH_CAGRA_MULTI_CTA}) {
        for (const int32_t compared : {ANN_COMPARE_CODES, ANN_COMPARE_STORED})
          compare(built, queries, 10, 96, false,
                  std::string(element_name(element)) + ", procedure " + std::to_string(procedure), procedure,
                  compared);
      }
    }
  }
}

/// Blocks make records and write answers by themselves, warps and long lists leave both to other kernels.
void equal_answers_of_two_lists() {
  for (const int32_t element : kElements) {
    for (const int32_t metric : kMetrics) {
      for (const uint32_t dim : {47u, 400u}) {
        const Rows rows(element, 1500, dim, Values::kClusters, 1);
        Rows queries(element, 67, dim, Values::kClusters, 2);
        if (is_float_element(element)) queries.put(5 * DeviceRows::row_bytes(queries), dim - 1, NAN);
        const std::vector<uint64_t> ids = shuffled_ids(rows.rows);
        Built built(matrix_of(rows), metric, dim == 47 ? ids.data() : nullptr);
        const std::string name = std::string(element_name(element)) + " " + metric_name(metric) + ", " +
                                 std::to_string(dim) + " columns, procedure ";
        for (const int32_t procedure : {ANN_SEARCH_TWO_LISTS, ANN_SEARCH_BLOCK, ANN_SEARCH_WIDE_BLOCK})
          compare(built, queries, 10, 0, false, name + std::to_string(procedure), procedure);
        compare(built, queries, 60, 0, false, name + "block, 60 answers", ANN_SEARCH_BLOCK);
        compare(built, queries, 300, 0, false, name + "block, 300 answers", ANN_SEARCH_BLOCK);
      }
    }
  }
}

/// The work of a batch on the device, for a caller who waits, is that of the same batch in host memory.
void equal_work() {
  for (const int32_t element : {ANN_U8, ANN_F32}) {
    const Rows rows(element, 1500, 64, Values::kClusters, 1);
    const Rows queries(element, 67, 64, Values::kClusters, 2);
    Built built(matrix_of(rows), ANN_METRIC_L2);
    const DeviceRows there(queries);
    for (const int32_t procedure : {ANN_SEARCH_TWO_LISTS, ANN_SEARCH_BLOCK}) {
      Answers on_host(queries.rows, 10);
      const DeviceAnswers on_device(queries.rows, 10);
      ann_search_params params = ANN_SEARCH_PARAMS_INIT;
      params.device = kDevice;
      params.procedure = procedure;
      ann_results results[] = {on_host.view(10), on_device.view()};
      const ann_matrix blocks[] = {matrix_of(queries), there.matrix};
      for (uint32_t i = 0; i < 2; ++i)
        expect(
            ann_search_batch(built.index, &blocks[i], &params, &results[i], nullptr, &built.error) == ANN_OK,
            built.error.message);
      const std::string name =
          std::string(element_name(element)) + ", procedure " + std::to_string(procedure);
      expect(results[0].distance_count > 67,
             name + ": " + std::to_string(results[0].distance_count) + " distances");
      expect(results[0].distance_count == results[1].distance_count, name + ": other distances");
      expect(results[0].expansion_count == results[1].expansion_count, name + ": other expansions");
    }
  }
}

void equal_answers_of_other_elements() {
  const Rows rows(ANN_F32, 1000, 48, Values::kClusters, 3);
  for (const int32_t stored : {ANN_F32, ANN_F16, ANN_BF16}) {
    Built built(matrix_of(rows), ANN_METRIC_COSINE, nullptr, ANN_GRAPH_AUTO, stored);
    for (const int32_t element : kElements) {
      const Rows queries(element, 33, 48, Values::kClusters, 4);
      const std::string name = std::string(element_name(element)) + " asks " + element_name(stored);
      compare(built, queries, 5, 0, false, name);
      compare(built, queries, 5, 0, true, name + ", exact");
    }
  }
}

void equal_distances_by_id() {
  for (const Values values : {Values::kDuplicates, Values::kEqual, Values::kGrid}) {
    for (const int32_t element : {ANN_U8, ANN_F32}) {
      const Rows rows(element, 700, 16, values, 5);
      const Rows queries(element, 21, 16, values, 6);
      const std::vector<uint64_t> ids = shuffled_ids(rows.rows);
      Built built(matrix_of(rows), ANN_METRIC_L2, ids.data());
      compare(built, queries, 30, 0, false, "ties");
      compare(built, queries, 300, 300, false, "many ties");
      compare(built, queries, 300, 0, true, "many ties, exact");
    }
  }
}

void extreme_lengths() {
  Rows rows(ANN_F32, 400, 24, Values::kNormal, 7);
  Rows queries(ANN_F32, 40, 24, Values::kNormal, 8);
  for (uint32_t query = 0; query < queries.rows; ++query) {
    const float scale = query % 4 == 0 ? 0 : query % 4 == 1 ? 1e-40f : query % 4 == 2 ? 1e37f : 1;
    for (uint32_t column = 0; column < 24; ++column)
      queries.put(size_t{query} * 96, column,
                  scale * element_to_float(queries.bytes.data() + size_t{query} * 96, ANN_F32, column));
  }
  Built built(matrix_of(rows), ANN_METRIC_COSINE);
  compare(built, queries, 7, 0, false, "zeros, tiny and huge");
  compare(built, queries, 7, 0, true, "zeros, tiny and huge, exact");
}

void more_than_there_is() {
  for (const uint32_t count : {0u, 1u, 5u, 33u}) {
    const Rows rows(ANN_F32, count, 8, Values::kNormal, 9);
    Rows queries(ANN_F32, 9, 8, Values::kNormal, 10);
    queries.put(4 * 32, 3, NAN);
    Built built(matrix_of(rows), ANN_METRIC_L2);
    compare(built, queries, 50, 0, false, std::to_string(count) + " rows, 50 wanted");
    compare(built, queries, 50, 0, true, std::to_string(count) + " rows, 50 wanted, exact");
    Built plain(matrix_of(rows), ANN_METRIC_L2, nullptr, ANN_GRAPH_NONE);
    compare(plain, queries, 50, 0, false, std::to_string(count) + " rows without a graph");
  }
}

void optional_buffers() {
  const Rows rows(ANN_U8, 500, 32, Values::kClusters, 11);
  const Rows queries(ANN_U8, 20, 32, Values::kClusters, 12);
  Built built(matrix_of(rows), ANN_METRIC_L2);
  const DeviceRows there(queries);
  const DeviceAnswers all(20, 10);
  const DeviceAnswers some(20, 10);
  ann_results few = some.view();
  few.distances = nullptr;
  few.counts = nullptr;
  few.status = nullptr;
  const ann_search_params params = ANN_SEARCH_PARAMS_INIT;
  expect(built.search(false, there.matrix, params, all.view()) == ANN_OK, built.error.message);
  expect(built.search(false, there.matrix, params, few) == ANN_OK, built.error.message);
  expect(all.fetch().ids == some.fetch().ids, "ids alone are others");
  expect(some.counts.get<uint32_t>(1)[0] == 0x5a5a5a5a, "a buffer was written that is not there");
  // No queries at all.
  ann_matrix none = there.matrix;
  none.rows = 0;
  ann_results nothing = all.view();
  nothing.rows = 0;
  expect(built.search(false, none, params, nothing) == ANN_OK, built.error.message);
}

// --- The stream ------------------------------------------------------------------------------------

/// Holds a stream up until the flag is set, or for some seconds.
__global__ void hold(const volatile int* flag) {
  const long long start = clock64();
  while (*flag == 0 && clock64() - start < 10'000'000'000) {
  }
}

struct Flag {
  volatile int* host = nullptr;
  int* device = nullptr;
  Flag() {
    void* memory = nullptr;
    expect_cuda(cudaHostAlloc(&memory, sizeof(int), cudaHostAllocMapped), "cudaHostAlloc");
    host = static_cast<int*>(memory);
    *host = 0;
    expect_cuda(cudaHostGetDevicePointer(reinterpret_cast<void**>(&device), memory, 0), "pointer");
  }
  ~Flag() { cudaFreeHost(const_cast<int*>(host)); }
};

void queued_searches() {
  const Rows rows(ANN_F32, 3000, 40, Values::kClusters, 13);
  const Rows queries(ANN_F32, 500, 40, Values::kClusters, 14);
  Built built(matrix_of(rows), ANN_METRIC_L2);
  const DeviceRows there(queries);
  const CallersStream stream;
  for (const bool exact : {false, true}) {
    const DeviceAnswers first(500, 10);
    expect(built.search(exact, there.matrix, with_stream(stream), first.view()) == ANN_OK,
           built.error.message);
    stream.wait();
    const DeviceAnswers second(500, 10);
    Flag flag;
    hold<<<1, 1, 0, stream>>>(flag.device);
    expect(built.search(exact, there.matrix, with_stream(stream), second.view()) == ANN_OK,
           built.error.message);
    const bool pending = cudaStreamQuery(stream) == cudaErrorNotReady;
    *flag.host = 1;
    stream.wait();
    expect(pending, "the call did not return before its work was done");
    expect(second.fetch() == first.fetch(), "another answer");
  }
  // CUDA's own streams have names.
  const DeviceAnswers legacy(500, 10);
  const DeviceAnswers own(500, 10);
  const ann_status status = built.search(false, there.matrix, with_stream(cudaStreamLegacy), legacy.view());
  expect(status == ANN_OK, built.error.message);
  expect(built.search(false, there.matrix, with_stream(cudaStreamPerThread), own.view()) == ANN_OK,
         built.error.message);
  expect_cuda(cudaDeviceSynchronize(), "waiting");
  expect(legacy.fetch() == own.fetch(), "the default streams answer differently");
}

/// Counts of calls; the first three are those that a queued search must not make.
std::atomic<uint64_t> copies, waits, creations, launches, others;

void count_calls(cuda::Runtime* table) {
  *table = cuda::real_runtime();
  table->copy = [](void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
    ++copies;
    return cuda::real_runtime().copy(to, from, bytes, kind, stream);
  };
  table->copy_rows = [](void* to, size_t to_stride, const void* from, size_t from_stride, size_t bytes,
                        size_t rows, cudaMemcpyKind kind, cudaStream_t stream) {
    ++copies;
    return cuda::real_runtime().copy_rows(to, to_stride, from, from_stride, bytes, rows, kind, stream);
  };
  table->wait_for_stream = [](cudaStream_t stream) {
    ++waits;
    return cuda::real_runtime().wait_for_stream(stream);
  };
  table->wait_for_event = [](cudaEvent_t event) {
    ++waits;
    return cuda::real_runtime().wait_for_event(event);
  };
  table->create_stream = [](cudaStream_t* stream, unsigned flags) {
    ++creations;
    return cuda::real_runtime().create_stream(stream, flags);
  };
  table->create_event = [](cudaEvent_t* event, unsigned flags) {
    ++creations;
    return cuda::real_runtime().create_event(event, flags);
  };
  table->take_pinned = [](void** memory, size_t bytes, unsigned flags) {
    ++creations;
    return cuda::real_runtime().take_pinned(memory, bytes, flags);
  };
  table->launch = [](const void* kernel, dim3 grid, dim3 block, void** args, size_t bytes,
                     cudaStream_t stream) {
    ++launches;
    return cuda::real_runtime().launch(kernel, grid, block, args, bytes, stream);
  };
  table->take = [](void** memory, size_t bytes, cudaMemPool_t pool, cudaStream_t on) {
    ++others;
    return cuda::real_runtime().take(memory, bytes, pool, on);
  };
  table->fill = [](void* memory, int byte, size_t bytes, cudaStream_t stream) {
    ++others;
    return cuda::real_runtime().fill(memory, byte, bytes, stream);
  };
}

void nothing_from_the_driver() {
  const Rows rows(ANN_F32, 3000, 40, Values::kClusters, 15);
  const Rows queries(ANN_F32, 500, 40, Values::kClusters, 16);
  Built built(matrix_of(rows), ANN_METRIC_L2);
  const DeviceRows there(queries);
  const DeviceAnswers found(500, 10);
  const CallersStream stream;
  static cuda::Runtime table;
  count_calls(&table);
  for (const bool exact : {false, true}) {
    const auto search = [&] {
      const ann_status status = built.search(exact, there.matrix, with_stream(stream), found.view());
      expect(status == ANN_OK, built.error.message);
    };
    search();
    stream.wait();
    const uint64_t reserved_before = cuda::DevicePool::of(0).reserved_bytes();
    copies = waits = creations = 0;
    cuda::replace_runtime(&table);
    for (uint32_t i = 0; i < 20; ++i) search();
    cuda::replace_runtime(nullptr);
    stream.wait();
    const uint64_t reserved_after = cuda::DevicePool::of(0).reserved_bytes();
    const std::string counted = std::to_string(copies) + " copies, " + std::to_string(waits) + " waits, " +
                                std::to_string(creations) + " creations";
    expect(copies == 0 && waits == 0 && creations == 0, counted);
    expect(reserved_before == reserved_after, "memory was taken from the driver");
  }
  cudaMemPool_t default_pool = nullptr;
  expect_cuda(cudaDeviceGetDefaultMemPool(&default_pool, 0), "default pool");
  uint64_t used = 1;
  expect_cuda(cudaMemPoolGetAttribute(default_pool, cudaMemPoolAttrReservedMemHigh, &used), "pool");
  expect(used == 0, "the caller's default pool was used");
}

/// A queued search by blocks is one kernel, and asks for no memory: the host's time is most of one query's.
void one_launch() {
  static cuda::Runtime table;
  count_calls(&table);
  for (const int32_t element : {ANN_U8, ANN_F32}) {
    for (const int32_t metric : kMetrics) {
      const Rows rows(element, 3000, 40, Values::kClusters, 15);
      const Rows queries(element, 5, 40, Values::kClusters, 16);
      Built built(matrix_of(rows), metric);
      const DeviceRows there(queries);
      const DeviceAnswers found(5, 10);
      const CallersStream stream;
      ann_search_params params = with_stream(stream);
      params.procedure = ANN_SEARCH_BLOCK;
      const auto search = [&] {
        expect(built.search(false, there.matrix, params, found.view()) == ANN_OK, built.error.message);
      };
      search();
      launches = others = 0;
      cuda::replace_runtime(&table);
      search();
      cuda::replace_runtime(nullptr);
      stream.wait();
      expect(launches == 1 && others == 0, std::string(element_name(element)) + " " + metric_name(metric) +
                                               ": " + std::to_string(launches) + " launches, " +
                                               std::to_string(others) + " other calls");
    }
  }
}

/// Rows, queries, and an index with a graph and one without; another search of the same kind on other indexes
/// has loaded the kernels, for which the CUDA runtime waits until the device is idle.
struct FirstSearch {
  static constexpr uint32_t kQueries = 60, k = 10;

  Rows rows{ANN_F32, 20'000, 40, Values::kClusters, 41};
  Rows queries{ANN_F32, kQueries, 40, Values::kClusters, 42};
  DeviceRows there{queries};
  CallersStream stream;
  Built graphs[2] = {{matrix_of(rows), ANN_METRIC_L2}, {matrix_of(rows), ANN_METRIC_L2}};
  Built bare[2] = {{matrix_of(rows), ANN_METRIC_L2, nullptr, ANN_GRAPH_NONE},
                   {matrix_of(rows), ANN_METRIC_L2, nullptr, ANN_GRAPH_NONE}};

  ann_search_params params_of(int32_t procedure) const {
    ann_search_params params = with_stream(stream);
    params.device = kDevice;
    params.procedure = procedure == ANN_SEARCH_EXACT ? int32_t{ANN_SEARCH_AUTO} : procedure;
    return params;
  }

  /// Loads the kernels; the index that has not been searched yet.
  Built& prepare(int32_t procedure, const DeviceAnswers& found) {
    Built* built = procedure == ANN_SEARCH_EXACT ? bare : graphs;
    expect(built[0].search(false, there.matrix, params_of(procedure), found.view()) == ANN_OK,
           built[0].error.message);
    stream.wait();
    return built[1];
  }
};

/// Each search the first by its procedure on its index, after an estimate of it: nothing is measured or waited for,
/// and the call returns while the stream is held.
void first_searches() {
  FirstSearch given;
  const CallersStream& stream = given.stream;
  static cuda::Runtime table;
  count_calls(&table);
  for (const int32_t procedure :
       {ANN_SEARCH_EXACT, ANN_SEARCH_AUTO, ANN_SEARCH_CAGRA, ANN_SEARCH_CAGRA_SINGLE_CTA, ANN_SEARCH_GGNN,
        ANN_SEARCH_TSDG_SMALL, ANN_SEARCH_TSDG_LARGE, ANN_SEARCH_TWO_LISTS, ANN_SEARCH_BEST_FIRST}) {
    const ann_search_params params = given.params_of(procedure);
    const DeviceAnswers first(given.kQueries, given.k), second(given.kQueries, given.k);
    Built& built = given.prepare(procedure, second);
    ann_search_forecast forecast = ANN_SEARCH_FORECAST_INIT;
    expect(
        ann_search_estimate(built.index, given.kQueries, given.k, &params, &forecast, &built.error) == ANN_OK,
        built.error.message);
    const std::string name = "procedure " + std::to_string(procedure);
    Flag flag;
    copies = waits = creations = 0;
    hold<<<1, 1, 0, stream>>>(flag.device);
    cuda::replace_runtime(&table);
    ann_results results = first.view();
    const ann_status status =
        ann_search_batch(built.index, &given.there.matrix, &params, &results, nullptr, &built.error);
    cuda::replace_runtime(nullptr);
    const bool pending = cudaStreamQuery(stream) == cudaErrorNotReady;
    *flag.host = 1;
    stream.wait();
    expect(status == ANN_OK, built.error.message);
    expect(copies == 0 && waits == 0,
           name + ": " + std::to_string(copies) + " copies, " + std::to_string(waits) + " waits");
    expect(pending, name + ": the call waited for the stream");
    expect(results.procedure == forecast.procedure && results.recall == forecast.recall &&
               results.warps_per_query == forecast.warps_per_query,
           name + ": another search than was told");
    expect(built.search(false, given.there.matrix, params, second.view()) == ANN_OK, built.error.message);
    stream.wait();
    expect(first.fetch() == second.fetch(), name + ": another answer");
  }
}

/// Without an estimate the first search calibrates before it queues, but not by waiting for the caller's stream.
void calibrating_searches() {
  FirstSearch given;
  for (const int32_t procedure : {ANN_SEARCH_CAGRA, ANN_SEARCH_GGNN, ANN_SEARCH_TSDG}) {
    const DeviceAnswers found(given.kQueries, given.k);
    Built& built = given.prepare(procedure, found);
    Flag flag;
    hold<<<1, 1, 0, given.stream>>>(flag.device);
    const ann_status status =
        built.search(false, given.there.matrix, given.params_of(procedure), found.view());
    const bool pending = cudaStreamQuery(given.stream) == cudaErrorNotReady;
    *flag.host = 1;
    given.stream.wait();
    expect(status == ANN_OK, built.error.message);
    expect(pending, "procedure " + std::to_string(procedure) + ": the call waited for the stream");
  }
}

void free_and_evict_wait() {
  const Rows rows(ANN_U8, 3000, 64, Values::kClusters, 17);
  const Rows queries(ANN_U8, 500, 64, Values::kClusters, 18);
  const DeviceRows there(queries);
  const CallersStream stream;
  for (const bool evict : {false, true}) {
    Built built(matrix_of(rows), ANN_METRIC_L2);
    const DeviceAnswers first(500, 10);
    const DeviceAnswers second(500, 10);
    expect(built.search(false, there.matrix, with_stream(stream), first.view()) == ANN_OK,
           built.error.message);
    stream.wait();
    Flag flag;
    hold<<<1, 1, 0, stream>>>(flag.device);
    expect(built.search(false, there.matrix, with_stream(stream), second.view()) == ANN_OK,
           built.error.message);
    std::atomic<bool> done = false;
    std::thread thread([&] {
      if (evict) {
        ann_index_evict(built.index, kDevice, nullptr);
      } else {
        ann_index_free(built.index);
        built.index = nullptr;
      }
      done = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const bool waited = !done;
    *flag.host = 1;
    thread.join();
    stream.wait();
    expect(waited, evict ? "evict did not wait" : "free did not wait");
    expect(second.fetch() == first.fetch(), "another answer");
  }
}

// --- Bad input -------------------------------------------------------------------------------------

void refuse(Built& built, const ann_matrix& queries, const ann_results& results,
            const ann_search_params& params, ann_status wanted, const char* words) {
  for (const bool exact : {false, true}) {
    const ann_status status = built.search(exact, queries, params, results);
    expect(status == wanted,
           std::string(words) + ": status " + std::to_string(status) + ", " + built.error.message);
    expect(std::strstr(built.error.message, words) != nullptr,
           std::string(words) + " is not in: " + built.error.message);
  }
}

void wrong_pointers() {
  const Rows rows(ANN_F32, 300, 8, Values::kClusters, 19);
  const Rows queries(ANN_F32, 10, 8, Values::kClusters, 20);
  Built built(matrix_of(rows), ANN_METRIC_L2);
  const DeviceRows there(queries);
  const DeviceAnswers found(10, 5);
  const ann_search_params params = ANN_SEARCH_PARAMS_INIT;
  const CallersStream stream;
  const ann_status bad = ANN_INVALID_ARGUMENT;

  ann_matrix on_host = matrix_of(queries);
  on_host.space = kDevice;
  refuse(built, on_host, found.view(), params, bad, "queries.data");
  refuse(built, on_host, found.view(), params, bad, "no memory that CUDA knows");
  Answers host_answers(10, 5);
  ann_results host_ids = found.view();
  host_ids.ids = host_answers.ids.data();
  refuse(built, there.matrix, host_ids, params, bad, "results.ids");
  ann_results host_status = found.view();
  host_status.status = host_answers.status.data();
  refuse(built, there.matrix, host_status, with_stream(stream), bad, "results.status");

  void* pinned = nullptr;
  expect_cuda(cudaMallocHost(&pinned, 4096), "cudaMallocHost");
  ann_matrix in_pinned = there.matrix;
  in_pinned.data = pinned;
  refuse(built, in_pinned, found.view(), params, bad, "pinned host memory");
  cudaFreeHost(pinned);

  // A matrix that ends behind the end of its memory, by a page of the driver.
  ann_matrix too_long = there.matrix;
  too_long.rows = uint64_t{1} << 30;
  ann_results long_results = found.view();
  long_results.rows = too_long.rows;
  const ann_status status = built.search(false, too_long, params, long_results);
  expect(status == bad, "a matrix of 32 GB in a buffer of 320 bytes");

  refuse(built, there.matrix, host_answers.view(5), params, bad, "results.space");
  ann_matrix nowhere = there.matrix;
  nowhere.space = 1;
  refuse(built, nowhere, found.view(), params, bad, "queries.space");
  nowhere.space = kDevice + 1000;
  refuse(built, nowhere, found.view(), params, ANN_NO_DEVICE, "1002");
  ann_search_params other_device = params;
  other_device.device = ANN_DEVICE_CPU;
  refuse(built, there.matrix, found.view(), other_device, bad, "params.device");
  refuse(built, matrix_of(queries), host_answers.view(5), with_stream(stream), bad, "params.stream");

  int devices = 0;
  expect_cuda(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  if (devices > 1) {
    ann_matrix second = there.matrix;
    second.space = kDevice + 1;
    ann_results second_results = found.view();
    second_results.space = kDevice + 1;
    refuse(built, second, second_results, params, bad, "lies on device 2");
  }

  // Managed memory is memory of every device.
  void* managed = nullptr;
  expect_cuda(cudaMallocManaged(&managed, queries.bytes.size()), "cudaMallocManaged");
  std::memcpy(managed, queries.bytes.data(), queries.bytes.size() - 1);
  ann_matrix in_managed = there.matrix;
  in_managed.data = managed;
  const DeviceAnswers again(10, 5);
  expect(built.search(false, there.matrix, params, found.view()) == ANN_OK, built.error.message);
  expect(built.search(false, in_managed, params, again.view()) == ANN_OK, built.error.message);
  expect(found.fetch() == again.fetch(), "managed memory answers differently");
  cudaFree(managed);
}

void wrong_streams() {
  const Rows rows(ANN_U8, 300, 16, Values::kClusters, 21);
  const Rows queries(ANN_U8, 10, 16, Values::kClusters, 22);
  Built built(matrix_of(rows), ANN_METRIC_L2);
  const DeviceRows there(queries);
  const DeviceAnswers found(10, 5);
  expect(ann_index_place(built.index, kDevice, nullptr, nullptr) == ANN_OK, "placing");
  const CallersStream stream;

  expect_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
  refuse(built, there.matrix, found.view(), with_stream(stream), ANN_UNSUPPORTED, "captured");
  cudaGraph_t graph = nullptr;
  expect_cuda(cudaStreamEndCapture(stream, &graph), "the capture was spoiled");
  cudaGraphDestroy(graph);

  // A capture on another stream, of the strictest kind, is not disturbed by searches, also not where they
  // take memory and streams and wait.
  const CallersStream searched;
  const Rows many(ANN_U8, 5000, 16, Values::kClusters, 23);
  Answers many_found(5000, 5);
  ann_search_params on_device = ANN_SEARCH_PARAMS_INIT;
  on_device.device = kDevice;
  expect_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
  ann_status queued = ANN_INTERNAL;
  ann_status waited = ANN_INTERNAL;
  std::thread([&] {
    queued = built.search(false, there.matrix, with_stream(searched), found.view());
    waited = built.search(false, matrix_of(many), on_device, many_found.view(5));
  }).join();
  const std::string said = built.error.message;
  expect_cuda(cudaStreamEndCapture(stream, &graph), "a search spoiled a capture");
  expect(queued == ANN_OK && waited == ANN_OK, "beside a capture: " + said);
  searched.wait();
  cudaGraphDestroy(graph);

  // Another context of the same device, made with the driver's interface.
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  expect(driver != nullptr, "no driver");
  using Create = int (*)(void**, unsigned, int);
  using Pop = int (*)(void**);
  using MakeStream = int (*)(cudaStream_t*, unsigned);
  const auto create = reinterpret_cast<Create>(dlsym(driver, "cuCtxCreate_v2"));
  const auto pop = reinterpret_cast<Pop>(dlsym(driver, "cuCtxPopCurrent_v2"));
  const auto make_stream = reinterpret_cast<MakeStream>(dlsym(driver, "cuStreamCreate"));
  expect(create != nullptr && pop != nullptr && make_stream != nullptr, "functions of the driver");
  void* context = nullptr;
  cudaStream_t foreign = nullptr;
  expect(create(&context, 0, 0) == 0 && make_stream(&foreign, 1) == 0 && pop(&context) == 0,
         "making a context");
  refuse(built, there.matrix, found.view(), with_stream(foreign), ANN_INVALID_ARGUMENT, "another context");
  const auto destroy = reinterpret_cast<int (*)(void*)>(dlsym(driver, "cuCtxDestroy_v2"));
  destroy(context);
  expect(built.search(false, there.matrix, with_stream(searched), found.view()) == ANN_OK,
         built.error.message);
  searched.wait();
}

// --- Rows ------------------------------------------------------------------------------------------

/// The file that an index is saved as: rows, ids, codes, graph and calibration.
std::vector<uint8_t> file_of(const Built& built) {
  std::vector<uint8_t> bytes;
  ann_writer writer = ANN_WRITER_INIT;
  writer.user = &bytes;
  writer.write = [](void* user, const void* data, uint64_t count) -> int64_t {
    const uint8_t* first = static_cast<const uint8_t*>(data);
    static_cast<std::vector<uint8_t>*>(user)->insert(static_cast<std::vector<uint8_t>*>(user)->end(), first,
                                                     first + count);
    return static_cast<int64_t>(count);
  };
  expect(ann_save_stream(built.index, &writer, nullptr, nullptr, nullptr) == ANN_OK, "saved");
  return bytes;
}

/// Where two files differ first; with the folder KEEP in the environment, both are kept there.
std::string difference_of(const std::vector<uint8_t>& one, const std::vector<uint8_t>& other) {
  const size_t both = std::min(one.size(), other.size());
  const size_t place = std::mismatch(one.begin(), one.begin() + both, other.begin()).first - one.begin();
  if (const char* folder = std::getenv("KEEP")) {
    for (const bool second : {false, true}) {
      std::ofstream file(std::string(folder) + (second ? "/other.gannet" : "/one.gannet"), std::ios::binary);
      const std::vector<uint8_t>& bytes = second ? other : one;
      file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    }
  }
  return " (" + std::to_string(one.size()) + " and " + std::to_string(other.size()) + " bytes, from byte " +
         std::to_string(place) + " on)";
}

/// An index from rows on the device gives its ids and vectors from host memory.
void read_back(const Built& from_device, const Rows& rows, const uint64_t* ids, const std::string& name) {
  std::vector<uint64_t> list(rows.rows);
  expect(ann_index_ids(from_device.index, 0, rows.rows, list.data(), nullptr) == ANN_OK, "ids of " + name);
  for (uint64_t row = 0; row < rows.rows; ++row)
    expect(list[row] == (ids != nullptr ? ids[row] : row), "another id of " + name);
  const size_t row_bytes = DeviceRows::row_bytes(rows);
  std::vector<uint8_t> vectors(rows.rows * row_bytes);
  expect(ann_index_get_batch(from_device.index, list.data(), rows.rows, vectors.data(), vectors.size(),
                             nullptr, nullptr) == ANN_OK,
         "vectors of " + name);
  const ann_matrix given = matrix_of(rows);
  const size_t stride = given.row_stride == 0 ? row_bytes : given.row_stride;
  for (uint64_t row = 0; row < rows.rows; ++row)
    expect(std::memcmp(vectors.data() + row * row_bytes,
                       static_cast<const uint8_t*>(given.data) + row * stride, row_bytes) == 0,
           "another vector of " + name);
}

/// An index from rows on the device is that from the host, byte for byte, and so are its copies on the
/// device.
void compare_sources(const Rows& rows, int32_t metric, size_t offset, size_t gap, bool with_ids) {
  const std::string name = std::to_string(rows.rows) + " x " + std::to_string(rows.dim) + " " +
                           element_name(rows.element) + ", metric " + std::to_string(metric) + ", gap " +
                           std::to_string(gap);
  const std::vector<uint64_t> ids = shuffled_ids(rows.rows);
  const DeviceRows there(rows, offset, gap);
  Built from_host(matrix_of(rows), metric, with_ids ? ids.data() : nullptr);
  Built from_device(there.matrix, metric, with_ids ? ids.data() : nullptr);
  const std::vector<uint8_t> host_file = file_of(from_host), device_file = file_of(from_device);
  expect(host_file == device_file, "another index of " + name + difference_of(host_file, device_file));
  read_back(from_device, rows, with_ids ? ids.data() : nullptr, name);
  const Rows queries(rows.element, 50, rows.dim, Values::kClusters, 3);
  for (const bool exact : {false, true}) {
    Answers wanted(queries.rows, 10), found(queries.rows, 10);
    ann_search_params params = ANN_SEARCH_PARAMS_INIT;
    params.device = kDevice;
    expect(from_host.search(exact, matrix_of(queries), params, wanted.view(10)) == ANN_OK,
           from_host.error.message);
    expect(from_device.search(exact, matrix_of(queries), params, found.view(10)) == ANN_OK,
           from_device.error.message);
    expect(wanted == found, "other answers of " + name);
  }
}

void compare_lists(const Rows& rows, int32_t metric, int32_t method, int32_t device) {
  const DeviceRows there(rows, 4, 12);
  ann_knn_params params = ANN_KNN_PARAMS_INIT;
  params.k = 8;
  params.metric = metric;
  params.device = device;
  params.method = method;
  std::vector<uint32_t> lists[2];
  std::vector<float> distances[2];
  for (const bool on_device : {false, true}) {
    lists[on_device].resize(rows.rows * params.k);
    distances[on_device].resize(rows.rows * params.k);
    const ann_matrix matrix = on_device ? there.matrix : matrix_of(rows);
    ann_error error = ANN_ERROR_INIT;
    expect(ann_knn_graph(nullptr, &matrix, &params, lists[on_device].data(), distances[on_device].data(),
                         nullptr, &error) == ANN_OK,
           error.message);
  }
  expect(lists[0] == lists[1] && distances[0] == distances[1],
         std::string("other lists of ") + element_name(rows.element) + ", metric " + std::to_string(metric) +
             ", method " + std::to_string(method));
}

void rows_from_the_device() {
  for (const int32_t element : kElements) {
    const uint32_t size = element_bytes(element);
    for (const int32_t metric : kMetrics) {
      for (const uint32_t dim : {1u, 24u, 131u}) {  // of one column, codes are wide
        const Rows rows(element, 1000, dim, Values::kClusters, 23);
        compare_sources(rows, metric, 0, 0, dim == 24);
        compare_sources(rows, metric, 16 * size + 3, 5, false);
      }
    }
    const Rows rows(element, 5000, 24, Values::kClusters, 23);
    compare_sources(rows, ANN_METRIC_L2, 4, 12, false);
    for (const int32_t device : {int32_t{ANN_DEVICE_CPU}, kDevice}) {
      for (const int32_t metric : {ANN_METRIC_L2, ANN_METRIC_COSINE}) {
        for (const int32_t method : {ANN_KNN_EXACT, ANN_KNN_NN_DESCENT, ANN_KNN_CELLS})
          compare_lists(rows, metric, method, device);
      }
    }
  }
  // More than a piece of each thread that copies, with and without something between rows; equal rows; a
  // build that stores them as another element, or without a graph.
  for (const uint32_t dim : {100u, 128u})
    compare_sources(Rows(ANN_F32, 60'000, dim, Values::kClusters, 29), ANN_METRIC_COSINE, 0, dim - 100,
                    false);
  for (const Values values : {Values::kEqual, Values::kDuplicates})
    compare_sources(Rows(ANN_BF16, 600, 20, values, 30), ANN_METRIC_INNER_PRODUCT, 0, 0, false);
  const Rows halves(ANN_F32, 700, 20, Values::kClusters, 31);
  const DeviceRows halves_there(halves);
  for (const int32_t graph : {ANN_GRAPH_AUTO, ANN_GRAPH_NONE}) {
    const Built from_host(matrix_of(halves), ANN_METRIC_L2, nullptr, graph, ANN_F16);
    const Built from_device(halves_there.matrix, ANN_METRIC_L2, nullptr, graph, ANN_F16);
    expect(file_of(from_host) == file_of(from_device), "another index of halves");
  }
  // NaN is found, with its place; borrowing is refused.
  Rows rows(ANN_F32, 100, 4, Values::kNormal, 24);
  rows.put(50 * 16, 2, NAN);
  rows.put(50 * 16, 3, INFINITY);
  rows.put(70 * 16, 0, NAN);
  const DeviceRows there(rows);
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  shape.dim = 4;
  ann_index* index = nullptr;
  ann_index_create(nullptr, &shape, &index, nullptr);
  ann_error error = ANN_ERROR_INIT;
  for (const int32_t device : {int32_t{ANN_DEVICE_CPU}, kDevice}) {
    ann_build_params params = ANN_BUILD_PARAMS_INIT;
    params.device = device;
    expect(ann_build(index, &there.matrix, nullptr, &params, nullptr, &error) == ANN_NOT_FINITE &&
               error.row == 50 && error.column == 2,
           "NaN in rows on the device");
  }
  ann_build_params borrow = ANN_BUILD_PARAMS_INIT;
  borrow.rows_mode = ANN_ROWS_BORROW;
  expect(ann_build(index, &there.matrix, nullptr, &borrow, nullptr, &error) == ANN_UNSUPPORTED,
         "borrowed rows on the device");
  ann_matrix on_host = matrix_of(rows);
  on_host.space = kDevice;
  expect(ann_build(index, &on_host, nullptr, nullptr, nullptr, &error) == ANN_INVALID_ARGUMENT,
         "host rows called rows of the device");
  ann_index_free(index);
}

// --- Little memory ---------------------------------------------------------------------------------

size_t largest_allowed = 0;

void batches_are_split() {
  const Rows rows(ANN_F32, 2000, 32, Values::kClusters, 25);
  const Rows queries(ANN_F32, 9000, 32, Values::kClusters, 26);
  Built built(matrix_of(rows), ANN_METRIC_L2);
  const DeviceRows there(queries);
  const CallersStream stream;
  static cuda::Runtime table;
  table = cuda::real_runtime();
  table.take = [](void** memory, size_t bytes, cudaMemPool_t pool, cudaStream_t on) {
    if (bytes > largest_allowed) return cudaErrorMemoryAllocation;
    return cuda::real_runtime().take(memory, bytes, pool, on);
  };
  const DeviceAnswers whole(9000, 10);
  expect(built.search(false, there.matrix, with_stream(stream), whole.view()) == ANN_OK, built.error.message);
  stream.wait();
  largest_allowed = 300 << 10;  // of some 4 MB for all queries
  for (const bool own_stream : {false, true}) {
    const DeviceAnswers parts(9000, 10);
    const cudaStream_t asked = own_stream ? stream : cudaStream_t{};
    cuda::replace_runtime(&table);
    const ann_status status = built.search(false, there.matrix, with_stream(asked), parts.view());
    cuda::replace_runtime(nullptr);
    expect(status == ANN_OK, built.error.message);
    stream.wait();
    expect(parts.fetch() == whole.fetch(), "another answer in parts");
  }
  Answers from_host(9000, 10);
  ann_search_params params = ANN_SEARCH_PARAMS_INIT;
  params.device = kDevice;
  cuda::replace_runtime(&table);
  const ann_status status = built.search(false, matrix_of(queries), params, from_host.view(10));
  cuda::replace_runtime(nullptr);
  expect(status == ANN_OK, built.error.message);
  expect(from_host == whole.fetch(), "another answer from host memory");

  // More than one piece of a batch whose memory is not short.
  const Rows few(ANN_U8, 100, 1, Values::kNormal, 27);
  const Rows many(ANN_U8, 300'000, 1, Values::kNormal, 28);
  Built small(matrix_of(few), ANN_METRIC_L2);
  const DeviceRows asked(many);
  for (const bool exact : {false, true}) {
    const DeviceAnswers at_once(many.rows, 2);
    Answers wanted(many.rows, 2);
    expect(small.search(exact, matrix_of(many), params, wanted.view(2)) == ANN_OK, small.error.message);
    expect(small.search(exact, asked.matrix, with_stream(stream), at_once.view()) == ANN_OK,
           small.error.message);
    stream.wait();
    expect(at_once.fetch() == wanted, "another answer of 300,000 queries");
  }
}

/// Rows on the device that are zeros until a stream that is held up has copied them. `call` is made meanwhile.
template <class Call>
void with_late_rows(const Rows& rows, cudaStream_t stream, const Call& call) {
  const DeviceRows there(rows);
  const_cast<Memory&>(there.memory).set(0);
  expect_cuda(cudaDeviceSynchronize(), "clearing");
  Flag flag;
  hold<<<1, 1, 0, stream>>>(flag.device);
  void* pinned = nullptr;
  expect_cuda(cudaHostAlloc(&pinned, rows.bytes.size(), cudaHostAllocDefault), "cudaHostAlloc");
  std::memcpy(pinned, rows.bytes.data(), rows.bytes.size());
  expect_cuda(cudaMemcpyAsync(there.memory.at(0), pinned, rows.bytes.size(), cudaMemcpyHostToDevice, stream),
              "cudaMemcpyAsync");
  std::thread freeing([&flag] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    *flag.host = 1;
  });
  call(there.matrix);
  freeing.join();
  cudaFreeHost(pinned);
}

/// Calls without a stream of the caller wait for the default streams: a cudaMemcpy of few bytes of ordinary memory
/// returns before it has ended.
void default_streams() {
  const Rows rows(ANN_F32, 600, 33, Values::kClusters, 17);
  const Rows queries(ANN_F32, 50, 33, Values::kClusters, 18);
  for (const cudaStream_t stream : {cudaStreamLegacy, cudaStreamPerThread}) {
    const std::string name = stream == cudaStreamLegacy ? "the legacy stream" : "the thread's stream";
    Built wanted(matrix_of(rows), ANN_METRIC_INNER_PRODUCT);
    with_late_rows(rows, stream, [&](const ann_matrix& late) {
      Built found(late, ANN_METRIC_INNER_PRODUCT);
      expect(file_of(wanted) == file_of(found), "another index, " + name);
    });
    for (const bool exact : {false, true}) {
      Answers there(queries.rows, 10);
      ann_search_params params = ANN_SEARCH_PARAMS_INIT;
      params.device = kDevice;
      expect(wanted.search(exact, matrix_of(queries), params, there.view(10)) == ANN_OK,
             wanted.error.message);
      const DeviceAnswers found(queries.rows, 10);
      with_late_rows(queries, stream, [&](const ann_matrix& late) {
        expect(wanted.search(exact, late, with_stream(nullptr), found.view()) == ANN_OK,
               wanted.error.message);
      });
      expect(found.fetch() == there, "another answer, " + name);
    }
  }
}

constexpr Claim kClaims[] = {
    {"answers equal those of host memory", equal_answers},
    {"so do those of CAGRA's searches", equal_answers_of_cagra},
    {"and those of two lists by warps and blocks", equal_answers_of_two_lists},
    {"also of queries of another element", equal_answers_of_other_elements},
    {"work is counted as that of host memory", equal_work},
    {"equal distances are in order of id", equal_distances_by_id},
    {"zero, tiny and huge queries by cosine", extreme_lengths},
    {"k beyond the rows is padded", more_than_there_is},
    {"optional buffers are optional", optional_buffers},
    {"a search on a stream is queued", queued_searches},
    {"default streams are waited for", default_streams},
    {"queued searches copy, wait and create nothing", nothing_from_the_driver},
    {"a queued search by blocks is one launch", one_launch},
    {"a first search after an estimate is queued", first_searches},
    {"a calibration does not wait for the caller's stream", calibrating_searches},
    {"free and evict wait for queued searches", free_and_evict_wait},
    {"wrong pointers are refused", wrong_pointers},
    {"wrong streams are refused", wrong_streams},
    {"rows come from the device", rows_from_the_device},
    {"batches larger than memory are split", batches_are_split},
};

}  // namespace
}  // namespace gannet::test

int main(int count, char** words) {
  return gannet::test::run_claims(gannet::test::kClaims, count > 1 ? words[1] : "");
}
