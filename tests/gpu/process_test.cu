// Claims about processes and a real device: a child forked after CUDA was used gets ANN_NO_DEVICE from
// CUDA calls and goes on with the CPU; the parent is unharmed; a process may end with everything open,
// also with work queued on a stream; an empty CUDA_VISIBLE_DEVICES is no device, nor is one that
// GANNET_BACKEND=cpu hides; a thread that is cancelled ends after its call; two devices hold copies of one
// index where there are two. Ends with 77 where there is no CUDA device. Every claim runs in a child, so that the
// parent never asks the driver.

#include <cuda_runtime.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "ann.h"

namespace {

constexpr uint32_t kRows = 2000;
constexpr uint32_t kDim = 16;
constexpr uint32_t kK = 4;

int failures = 0;

void expect(bool holds, const char* what, const char* text = "") {
  if (holds) return;
  std::printf("FAILS  %s %s\n", what, text);
  ++failures;
}

std::vector<float> make_rows() {
  std::vector<float> rows(kRows * kDim);
  uint32_t state = 7;
  for (float& value : rows) value = static_cast<float>((state = state * 1664525 + 1013904223) >> 20);
  return rows;
}
const std::vector<float> rows = make_rows();

ann_matrix matrix_of(uint32_t count) {
  ann_matrix matrix = ANN_MATRIX_INIT;
  matrix.element = ANN_F32;
  matrix.data = rows.data();
  matrix.rows = count;
  matrix.dim = kDim;
  return matrix;
}

ann_index* build() {
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  shape.dim = kDim;
  ann_index* index = nullptr;
  const ann_matrix matrix = matrix_of(kRows);
  ann_index_create(nullptr, &shape, &index, nullptr);
  expect(ann_build(index, &matrix, nullptr, nullptr, nullptr, nullptr) == ANN_OK, "a build on the CPU");
  return index;
}

ann_status search(const ann_index* index, int32_t device, ann_error* error) {
  uint64_t ids[5 * kK];
  ann_results results = ANN_RESULTS_INIT;
  results.k = kK;
  results.rows = 5;
  results.ids = ids;
  ann_search_params params = ANN_SEARCH_PARAMS_INIT;
  params.device = device;
  const ann_matrix queries = matrix_of(5);
  return ann_search_batch(index, &queries, &params, &results, nullptr, error);
}

/// The exit status of a child that runs the body; 1000 and more: it was killed.
template <class Body>
int status_of(const Body& body) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) body();
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

[[noreturn]] void fork_after_use() {
  ann_index* index = build();
  ann_error error = ANN_ERROR_INIT;
  expect(search(index, ANN_DEVICE_CUDA, &error) == ANN_OK, "a search before the fork", error.message);
  const int child = status_of([&] {
    failures = 0;
    const ann_status status = search(index, ANN_DEVICE_CUDA, &error);
    expect(status == ANN_NO_DEVICE && std::strstr(error.message, "forked") != nullptr,
           "a search on the device in the child:", error.message);
    expect(search(index, ANN_DEVICE_CPU, &error) == ANN_OK, "a search on the CPU in the child");
    ann_index_free(index);
    std::fflush(stdout);
    _exit(failures);
  });
  expect(child == 0, "the child");
  expect(search(index, ANN_DEVICE_CUDA, &error) == ANN_OK, "a search after the fork", error.message);
  ann_index_free(index);
  std::fflush(stdout);
  _exit(failures);
}

/// Ends by exit(), with an index placed and a search queued.
[[noreturn]] void open_handles() {
  ann_index* index = build();
  ann_error error = ANN_ERROR_INIT;
  expect(search(index, ANN_DEVICE_CUDA, &error) == ANN_OK, "a search", error.message);
  void* memory = nullptr;
  cudaStream_t stream = nullptr;
  cudaMalloc(&memory, 1 << 20);
  cudaMemset(memory, 0, 1 << 20);
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  ann_matrix queries = matrix_of(1000);
  queries.data = memory;
  queries.space = ANN_DEVICE_CUDA;
  ann_results results = ANN_RESULTS_INIT;
  results.k = kK;
  results.rows = 1000;
  results.ids = reinterpret_cast<uint64_t*>(static_cast<uint8_t*>(memory) + (512 << 10));
  results.space = ANN_DEVICE_CUDA;
  ann_search_params params = ANN_SEARCH_PARAMS_INIT;
  params.stream = stream;
  for (int i = 0; i < 50; ++i)
    expect(ann_search_batch(index, &queries, &params, &results, nullptr, &error) == ANN_OK, "queued",
           error.message);
  std::fflush(stdout);
  std::exit(failures);
}

/// Frees the index when the process's statics go, where the driver may be gone already.
struct FreedLate {
  ann_index* index = nullptr;
  ~FreedLate() { ann_index_free(index); }
} freed_late;

[[noreturn]] void free_in_static_destructor() {
  freed_late.index = build();
  ann_error error = ANN_ERROR_INIT;
  expect(search(freed_late.index, ANN_DEVICE_CUDA, &error) == ANN_OK, "a search", error.message);
  std::fflush(stdout);
  std::exit(failures);
}

[[noreturn]] void no_visible_device() {
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  uint32_t count = 0;
  const char* reason = nullptr;
  ann_device_count(&count, &reason, nullptr);
  expect(count == 1 && reason[0] != 0, "devices are visible:", reason);
  ann_index* index = build();
  ann_error error = ANN_ERROR_INIT;
  expect(search(index, ANN_DEVICE_CUDA, &error) == ANN_NO_DEVICE, "a search:", error.message);
  expect(search(index, ANN_DEVICE_CPU, &error) == ANN_OK, "a search on the CPU:", error.message);
  std::fflush(stdout);
  _exit(failures);
}

/// AUTO's device shows in whether a procedure that only devices have serves.
ann_status search_by_warps(const ann_index* index) {
  uint64_t ids[5 * kK];
  ann_results results = ANN_RESULTS_INIT;
  results.k = kK;
  results.rows = 5;
  results.ids = ids;
  ann_search_params params = ANN_SEARCH_PARAMS_INIT;
  params.procedure = ANN_SEARCH_TWO_LISTS;
  const ann_matrix queries = matrix_of(5);
  return ann_search_batch(index, &queries, &params, &results, nullptr, nullptr);
}

[[noreturn]] void chosen_backend() {
  ann_index* index = build();
  unsetenv("GANNET_BACKEND");
  expect(search_by_warps(index) == ANN_UNSUPPORTED, "AUTO is the CPU");
  setenv("GANNET_BACKEND", "cpu", 1);
  uint32_t count = 0;
  const char* reason = nullptr;
  ann_device_count(&count, &reason, nullptr);
  expect(count == 1 && std::strstr(reason, "GANNET_BACKEND") != nullptr, "hidden devices:", reason);
  ann_error error = ANN_ERROR_INIT;
  expect(search(index, ANN_DEVICE_CUDA, &error) == ANN_NO_DEVICE,
         "a search on a hidden device:", error.message);
  setenv("GANNET_BACKEND", "cuda", 1);
  expect(search_by_warps(index) == ANN_OK, "AUTO is the first device");
  ann_index_free(index);
  std::fflush(stdout);
  _exit(failures);
}

/// Builds on the device until somebody ends the thread, which notes that a call has returned behind the wish.
struct Builder {
  volatile bool wished = false;
  volatile bool returned = false;
};

void* build_on_and_on(void* user) {
  Builder& builder = *static_cast<Builder*>(user);
  const ann_matrix matrix = matrix_of(kRows);
  for (;;) {
    ann_index_params shape = ANN_INDEX_PARAMS_INIT;
    shape.dim = kDim;
    ann_index* index = nullptr;
    ann_index_create(nullptr, &shape, &index, nullptr);
    ann_build_params params = ANN_BUILD_PARAMS_INIT;
    params.device = ANN_DEVICE_CUDA;
    const ann_status status = ann_build(index, &matrix, nullptr, &params, nullptr, nullptr);
    ann_index_free(index);
    expect(status == ANN_OK, "a build in a thread that is to end");
    builder.returned = builder.wished;
    pthread_testcancel();
  }
  return nullptr;
}

[[noreturn]] void cancelled_thread() {
  ann_index* index = build();
  ann_error error = ANN_ERROR_INIT;
  for (useconds_t wait = 1000; wait < 1'000'000; wait *= 3) {
    Builder builder;
    pthread_t thread;
    pthread_create(&thread, nullptr, build_on_and_on, &builder);
    usleep(wait);
    builder.wished = true;
    pthread_cancel(thread);
    void* answer = nullptr;
    pthread_join(thread, &answer);
    expect(answer == PTHREAD_CANCELED && builder.returned, "the thread did not end after its call");
    expect(search(index, ANN_DEVICE_CUDA, &error) == ANN_OK, "a search afterwards", error.message);
  }
  ann_index_free(index);
  std::fflush(stdout);
  _exit(failures);
}

[[noreturn]] void two_devices() {
  ann_index* index = build();
  ann_error error = ANN_ERROR_INIT;
  for (int32_t device = ANN_DEVICE_CUDA; device < ANN_DEVICE_CUDA + 2; ++device)
    expect(ann_index_place(index, device, nullptr, &error) == ANN_OK, "a copy on each device", error.message);
  const auto both = [&] {
    for (int32_t device = ANN_DEVICE_CUDA; device < ANN_DEVICE_CUDA + 2; ++device)
      expect(search(index, device, &error) == ANN_OK, "a search on each device", error.message);
  };
  both();
  expect(ann_index_evict(index, ANN_DEVICE_CUDA, &error) == ANN_OK, "one copy goes", error.message);
  both();
  ann_index_free(index);
  std::fflush(stdout);
  _exit(failures);
}

void claim(const char* text, void (*body)(), int times) {
  int failed = 0;
  for (int i = 0; i < times; ++i) {
    const int status = status_of(body);
    if (status != 0) std::printf("       ended with %d\n", status);
    failed += status != 0 ? 1 : 0;
  }
  std::printf("%s  %s\n", failed == 0 ? "holds" : "FAILS", text);
  failures += failed;
}

}  // namespace

int main() {
  const int devices = status_of([] {
    uint32_t count = 0;
    ann_device_count(&count, nullptr, nullptr);
    _exit(static_cast<int>(count));
  });
  if (devices < 2) {
    std::printf("skipped: no CUDA device\n");
    return 77;
  }
  claim("a fork after CUDA was used", fork_after_use, 2);
  claim("an end with everything open", open_handles, 5);
  claim("an index freed by a static destructor", free_in_static_destructor, 3);
  claim("no visible device", no_visible_device, 1);
  claim("the device that the environment chooses", chosen_backend, 1);
  claim("a thread that is cancelled", cancelled_thread, 1);
  if (devices < 3)
    std::printf("       one CUDA device: nothing is said of two\n");
  else
    claim("copies on two devices", two_devices, 1);
  return failures == 0 ? 0 : 1;
}
