// Claims about device memory that runs out: every request that a build, a k-NN graph, a placement or a
// search makes on a real device is refused in turn, once and from there on. The call answers
// ANN_DEVICE_NO_MEMORY (or does without), nothing stays held, and the same call succeeds afterwards with
// the answer that it has always given.
//
//   device_memory_fault_test [WORDS]     all claims, or those whose text has the words in it
//
// Ends with 77 where there is no CUDA device.

#include <cuda_runtime.h>

#include <atomic>

#include "ann.h"
#include "backend/launch.h"
#include "claims.h"
#include "knn/cells_cuda.h"

namespace gannet::test {
namespace {

constexpr int32_t kDevice = ANN_DEVICE_CUDA;
constexpr uint32_t kQueries = 300;
constexpr uint32_t kNeighbors = 10;

// Requests for memory of device or host, streams and events, since the last count. A call that copies rows
// beside its work makes them in several threads.
std::atomic<uint64_t> requests = 0;
std::atomic<uint64_t> refused_from = 0;  // 0: none is refused
std::atomic<bool> refused_for_ever = false;
std::atomic<uint64_t> refused_above = 0;  // bytes of device memory; 0: however many
std::atomic<uint64_t> refusals = 0;

bool is_refused(size_t bytes = 0) {
  const uint64_t number = ++requests;
  const bool large = refused_above != 0 && bytes > refused_above;
  const bool refused =
      large || (refused_from != 0 && (refused_for_ever ? number >= refused_from : number == refused_from));
  refusals += refused ? 1 : 0;
  return refused;
}

const cuda::Runtime& refusing() {
  static cuda::Runtime table = [] {
    cuda::Runtime made = cuda::real_runtime();
    made.take = [](void** memory, size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
      if (is_refused(bytes)) return cudaErrorMemoryAllocation;
      return cuda::real_runtime().take(memory, bytes, pool, stream);
    };
    made.take_pinned = [](void** memory, size_t bytes, unsigned flags) {
      if (is_refused()) return cudaErrorMemoryAllocation;
      return cuda::real_runtime().take_pinned(memory, bytes, flags);
    };
    made.create_stream = [](cudaStream_t* stream, unsigned flags) {
      if (is_refused()) return cudaErrorMemoryAllocation;
      return cuda::real_runtime().create_stream(stream, flags);
    };
    made.create_event = [](cudaEvent_t* event, unsigned flags) {
      if (is_refused()) return cudaErrorMemoryAllocation;
      return cuda::real_runtime().create_event(event, flags);
    };
    return made;
  }();
  return table;
}

uint64_t bytes_in_use() {
  const cuda::DeviceGuard guard(0);
  return cuda::DevicePool::of(0).used_bytes();
}

uint64_t fnv(uint64_t hash, const void* data, size_t bytes) {
  const auto* byte = static_cast<const uint8_t*>(data);
  for (size_t i = 0; i < bytes; ++i) hash = (hash ^ byte[i]) * 0x100000001b3;
  return hash;
}
constexpr uint64_t kHashStart = 0xcbf29ce484222325;

/// A call with what it needs; `run` gives a hash of its answer.
struct Call {
  Rows rows;
  Rows queries;
  ann_index* index = nullptr;  // built on the CPU, or null
  ann_error error = ANN_ERROR_INIT;
  uint64_t hash = 0;

  Call(int32_t element, uint32_t count, uint32_t dim, bool built)
      : rows(element, count, dim, Values::kClusters, 1),
        queries(element, kQueries, dim, Values::kClusters, 2) {
    if (!built) return;
    index = make();
    const ann_matrix matrix = matrix_of(rows);
    expect(ann_build(index, &matrix, nullptr, nullptr, nullptr, &error) == ANN_OK, error.message);
  }
  ~Call() { ann_index_free(index); }
  Call(const Call&) = delete;

  ann_index* make() {
    ann_index_params shape = ANN_INDEX_PARAMS_INIT;
    shape.dim = rows.dim;
    ann_index* made = nullptr;
    expect(ann_index_create(nullptr, &shape, &made, &error) == ANN_OK, error.message);
    return made;
  }
};

/// The rows of a call, in memory of the device if they are to be `there`.
struct Source {
  ann_matrix matrix;
  void* memory = nullptr;

  Source(const Rows& rows, bool there) : matrix(matrix_of(rows)) {
    if (!there) return;
    expect(cudaMalloc(&memory, rows.bytes.size()) == cudaSuccess, "memory for rows");
    cudaMemcpy(memory, rows.bytes.data(), rows.bytes.size(), cudaMemcpyHostToDevice);
    matrix.data = memory;
    matrix.space = kDevice;
  }
  ~Source() { cudaFree(memory); }
  Source(const Source&) = delete;
};

ann_status build(Call& call, int32_t method, bool there = false) {
  ann_index* made = call.make();
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.device = kDevice;
  params.knn = method;
  params.calibrate = there ? ANN_OFF : ANN_SWITCH_AUTO;
  const Source source(call.rows, there);
  const ann_status status = ann_build(made, &source.matrix, nullptr, &params, nullptr, &call.error);
  uint32_t degree = 0;
  if (status == ANN_OK && ann_index_graph(made, nullptr, 0, &degree, nullptr) == ANN_OK) {
    std::vector<uint32_t> edges(size_t{call.rows.rows} * degree);
    ann_index_graph(made, edges.data(), edges.size(), &degree, nullptr);
    call.hash = fnv(kHashStart, edges.data(), edges.size() * 4);
  }
  ann_index_free(made);
  return status;
}

ann_status knn_graph(Call& call, int32_t method, bool there = false) {
  std::vector<uint32_t> neighbors(size_t{call.rows.rows} * kNeighbors);
  ann_knn_params params = ANN_KNN_PARAMS_INIT;
  params.k = kNeighbors;
  params.method = method;
  params.device = kDevice;
  const Source source(call.rows, there);
  const ann_status status =
      ann_knn_graph(nullptr, &source.matrix, &params, neighbors.data(), nullptr, nullptr, &call.error);
  call.hash = fnv(kHashStart, neighbors.data(), neighbors.size() * 4);
  return status;
}

ann_status search(Call& call, bool exact, bool there, const ann_search_params* given = nullptr) {
  std::vector<uint64_t> ids(kQueries * kNeighbors);
  ann_matrix queries = matrix_of(call.queries);
  ann_results results = ANN_RESULTS_INIT;
  results.k = kNeighbors;
  results.rows = kQueries;
  results.ids = ids.data();
  ann_search_params params = ANN_SEARCH_PARAMS_INIT;
  if (given != nullptr) params = *given;
  params.device = kDevice;
  void* memory = nullptr;
  cudaStream_t stream = nullptr;
  const size_t id_bytes = ids.size() * sizeof(uint64_t);
  if (there) {
    cudaMalloc(&memory, id_bytes + call.queries.bytes.size());
    cudaMemset(memory, 0, id_bytes);
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    results.ids = static_cast<uint64_t*>(memory);
    results.space = queries.space = kDevice;
    queries.data = static_cast<uint8_t*>(memory) + id_bytes;
    cudaMemcpy(const_cast<void*>(queries.data), call.queries.bytes.data(), call.queries.bytes.size(),
               cudaMemcpyHostToDevice);
    params.stream = stream;
  }
  const ann_status status =
      exact ? ann_search_exact(call.index, &queries, &params, &results, nullptr, &call.error)
            : ann_search_batch(call.index, &queries, &params, &results, nullptr, &call.error);
  if (there) {
    cudaStreamSynchronize(stream);
    cudaMemcpy(ids.data(), memory, id_bytes, cudaMemcpyDeviceToHost);
    cudaStreamDestroy(stream);
    cudaFree(memory);
  }
  call.hash = fnv(kHashStart, ids.data(), id_bytes);
  ann_index_evict(call.index, kDevice, nullptr);
  return status;
}

ann_status place(Call& call) {
  const ann_status status = ann_index_place(call.index, kDevice, nullptr, &call.error);
  call.hash = 1;
  ann_index_evict(call.index, kDevice, nullptr);
  return status;
}

/// Refuses every request of a call in turn.
template <class Run>
void refuse_each(Call& call, const Run& run) {
  expect(run(call) == ANN_OK, call.error.message);
  const uint64_t wanted = call.hash;
  const uint64_t held = bytes_in_use();
  cuda::replace_runtime(&refusing());
  refused_from = requests = 0;
  const ann_status counted = run(call);
  const uint64_t all = requests;
  cuda::replace_runtime(nullptr);
  expect(counted == ANN_OK && all > 0, "counting: " + std::string(call.error.message));
  uint64_t failed = 0;
  for (const bool for_ever : {true, false}) {
    for (uint64_t number = 1; number <= all; ++number) {
      refused_from = number;
      refused_for_ever = for_ever;
      requests = refusals = 0;
      cuda::replace_runtime(&refusing());
      const ann_status status = run(call);
      cuda::replace_runtime(nullptr);
      const std::string what = "request " + std::to_string(number) + " of " + std::to_string(all) +
                               (for_ever ? " and all after it: " : ": ");
      const bool no_memory = status == ANN_DEVICE_NO_MEMORY || status == ANN_NO_MEMORY;
      failed += no_memory ? 1 : 0;
      expect(refusals > 0 || status == ANN_OK, what + call.error.message);
      expect(no_memory || status == ANN_OK, what + std::to_string(status) + " " + call.error.message);
      expect(no_memory || call.hash == wanted, what + "another answer");
      expect(bytes_in_use() == held, what + "memory is held");
    }
    expect(run(call) == ANN_OK && call.hash == wanted, "afterwards: " + std::string(call.error.message));
  }
  // A build does without the copy of the index that it would leave on the device.
  expect(2 * failed >= all, "only " + std::to_string(failed) + " refusals came through");
  std::printf("       %llu requests\n", static_cast<unsigned long long>(all));
}

void exact_build() {
  Call call(ANN_U8, 3000, 32, false);
  refuse_each(call, [](Call& c) { return build(c, ANN_KNN_EXACT); });
}
void descent_build() {
  Call call(ANN_F32, 8000, 24, false);
  refuse_each(call, [](Call& c) { return build(c, ANN_KNN_NN_DESCENT); });
}
void default_build() {
  Call call(ANN_U8, 20000, 32, false);
  refuse_each(call, [](Call& c) { return build(c, ANN_KNN_AUTO); });
}
void exact_lists() {
  Call call(ANN_U8, 3000, 32, false);
  refuse_each(call, [](Call& c) { return knn_graph(c, ANN_KNN_EXACT); });
}
void exact_float_lists() {
  Call call(ANN_F32, 2000, 20, false);
  refuse_each(call, [](Call& c) { return knn_graph(c, ANN_KNN_EXACT); });
}
void build_there() {
  Call bytes(ANN_U8, 6000, 30, false);
  refuse_each(bytes, [](Call& c) { return build(c, ANN_KNN_AUTO, true); });
  Call floats(ANN_F32, 30000, 150, false);  // so many that they are copied by all threads
  refuse_each(floats, [](Call& c) { return build(c, ANN_KNN_AUTO, true); });
}
void lists_there() {
  Call call(ANN_F32, 6000, 30, false);
  refuse_each(call, [](Call& c) { return knn_graph(c, ANN_KNN_CELLS, true); });
}
void placement() {
  for (const int32_t element : {ANN_U8, ANN_F32}) {
    Call call(element, 3000, 32, true);
    refuse_each(call, [](Call& c) { return place(c); });
  }
}
template <bool kExact, bool kThere>
void searches() {
  for (const int32_t element : {ANN_U8, ANN_F32}) {
    Call call(element, 3000, 32, true);
    refuse_each(call, [](Call& c) { return search(c, kExact, kThere); });
  }
}

/// Lists by cells, k = 16, where NN-Descent is tried in any case or in none.
std::vector<uint32_t> lists_by_cells(const Codes& codes, bool descent) {
  const cuda::DeviceGuard guard(0);
  const cuda::Stream stream;
  const cuda::DeviceCodes sent(codes, stream, Execution());
  const cuda::DeviceArray<uint32_t> lists(uint64_t{codes.rows()} * 16, stream);
  cuda::CellsEffort effort = cuda::kGraphEffort;
  effort.least = descent ? 2 : 0;
  cuda::cells_knn(sent.view(), {16, 12, 12, 0.02f, 1}, effort, lists.data(), nullptr, stream, Execution());
  std::vector<uint32_t> found(uint64_t{codes.rows()} * 16);
  cuda::copy_to_host(found.data(), lists.data(), found.size() * sizeof(uint32_t), stream, "fetching");
  stream.wait();
  return found;
}

/// Whatever of NN-Descent's memory is refused: the lists that the cells had found are the answer.
void cells_without_descent() {
  const Rows rows(ANN_U8, 6000, 24, Values::kClusters, 1);
  const Dataset dataset = rows.dataset(ANN_METRIC_L2);
  const Codes codes(dataset, 1, Execution());
  const std::vector<uint32_t> by_cells = lists_by_cells(codes, false);
  const std::vector<uint32_t> by_both = lists_by_cells(codes, true);
  const auto requests_of = [&](bool descent) {
    refused_from = refused_above = requests = 0;
    cuda::replace_runtime(&refusing());
    lists_by_cells(codes, descent);
    cuda::replace_runtime(nullptr);
    return requests.load();
  };
  const uint64_t without = requests_of(false);
  const uint64_t all = requests_of(true);
  expect(all > without + 2, "NN-Descent asks for memory");
  const uint64_t held = bytes_in_use();
  for (uint64_t number = without + 1; number <= all; ++number) {
    requests = refusals = 0;
    refused_from = number;
    refused_for_ever = true;
    cuda::replace_runtime(&refusing());
    std::vector<uint32_t> found;
    std::string why;
    try {
      found = lists_by_cells(codes, true);
    } catch (const Error& error) {
      why = error.message;
    }
    cuda::replace_runtime(nullptr);
    refused_from = 0;
    const std::string what = "request " + std::to_string(number) + " of " + std::to_string(all) + ": ";
    expect(why.empty(), what + why);
    expect(found == by_cells || found == by_both, what + "other lists");
    expect(bytes_in_use() == held, what + "memory is held");
  }
}

/// Tables of CAGRA's searches, of which ever larger ones are refused: down to that of one query, which is the
/// smallest request that may fail, answers are the same.
void small_tables() {
  for (const int32_t procedure : {ANN_SEARCH_CAGRA_SINGLE_CTA, ANN_SEARCH_CAGRA_MULTI_CTA}) {
    Call call(ANN_U8, 3000, 32, true);
    ann_search_params params = ANN_SEARCH_PARAMS_INIT;
    params.procedure = procedure;
    params.beam = 128;
    // Tables of megabytes, beside which all else is small; MULTI_CTA expands four rows at a time.
    params.iterations_max = procedure == ANN_SEARCH_CAGRA_SINGLE_CTA ? 4096 : 1024;
    if (procedure == ANN_SEARCH_CAGRA_SINGLE_CTA) params.hash_reset = ANN_NONE;
    refused_from = refused_above = 0;
    expect(search(call, false, false, &params) == ANN_OK, call.error.message);
    const uint64_t wanted = call.hash;
    for (const uint64_t above : {uint64_t{512} << 20, uint64_t{64} << 20, uint64_t{32} << 20}) {
      refused_above = above;
      refusals = 0;
      cuda::replace_runtime(&refusing());
      const ann_status status = search(call, false, false, &params);
      cuda::replace_runtime(nullptr);
      refused_above = 0;
      const std::string what = "procedure " + std::to_string(procedure) + ", requests above " +
                               std::to_string(above >> 20) + " MB are refused: ";
      expect(status == ANN_OK, what + call.error.message);
      expect(call.hash == wanted, what + "another answer");
      expect(refusals > 0 || above > uint64_t{64} << 20, what + "none was made");
    }
  }
}

constexpr Claim kClaims[] = {
    {"a build, exact", exact_build},
    {"a build by NN-Descent", descent_build},
    {"a build by default", default_build},
    {"a k-NN graph, exact", exact_lists},
    {"a k-NN graph of floats, exact", exact_float_lists},
    {"a build from rows on the device", build_there},
    {"a k-NN graph of rows on the device", lists_there},
    {"cells without memory for NN-Descent", cells_without_descent},
    {"tables of CAGRA's searches", small_tables},
    {"a placement", placement},
    {"a search of host memory", searches<false, false>},
    {"an exact search of host memory", searches<true, false>},
    {"a search of device memory on a stream", searches<false, true>},
    {"an exact search of device memory on a stream", searches<true, true>},
};

}  // namespace
}  // namespace gannet::test

int main(int count, char** words) {
  return gannet::test::run_claims(gannet::test::kClaims, count > 1 ? words[1] : "");
}
