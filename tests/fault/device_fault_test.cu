// What the library does when a CUDA device does not do what it should: no driver, one that is too old, a
// device without code, memory that is full, every call failing in turn, a device that is lost, a fork, an
// exit with open handles, wrong pointers and streams, a second device. On a machine that is made up
// (fake_device.h), so this runs where there is no GPU; what only a GPU can tell is in tests/gpu.
//
// Each case runs in a process of its own, because the library asks the driver once in a process's life.

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "ann.h"
#include "fake_device.h"

namespace gannet::fault {
namespace {

constexpr uint32_t kRows = 600;
constexpr uint32_t kDim = 16;
constexpr uint32_t kQueries = 5;
constexpr uint32_t kNeighbors = 4;
constexpr int32_t kDevice = ANN_DEVICE_CUDA;

uint64_t checks = 0;
uint64_t failures = 0;

void expect(bool holds, const std::string& what) {
  ++checks;
  if (holds) return;
  ++failures;
  if (failures < 20) std::printf("  FAILS: %s\n", what.c_str());
}

FakeMachine machine;

template <class Element>
std::vector<Element> make_rows(uint32_t rows) {
  std::vector<Element> values(size_t{rows} * kDim);
  uint32_t state = 1;
  for (Element& value : values) {
    state = state * 1664525 + 1013904223;
    value = static_cast<Element>(state >> 24);
  }
  return values;
}
const std::vector<uint8_t> bytes = make_rows<uint8_t>(kRows);
const std::vector<float> floats = make_rows<float>(kRows);

ann_matrix matrix_of(int32_t element, uint32_t rows) {
  ann_matrix matrix = ANN_MATRIX_INIT;
  matrix.element = element;
  matrix.data = element == ANN_U8 ? static_cast<const void*>(bytes.data()) : floats.data();
  matrix.rows = rows;
  matrix.dim = kDim;
  return matrix;
}

/// Where a device cannot be had, a build goes on without.
ann_index* build_on_cpu(int32_t element) {
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  shape.dim = kDim;
  ann_index* index = nullptr;
  const ann_matrix rows = matrix_of(element, kRows);
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.degree = 8;
  params.threads = 1;
  ann_index_create(nullptr, &shape, &index, nullptr);
  expect(ann_build(index, &rows, nullptr, &params, nullptr, nullptr) == ANN_OK, "a build on the CPU");
  return index;
}

/// The files of indexes of bytes and of floats that a process of its own has built, since one that has asked for
/// devices cannot be forked.
std::vector<uint8_t> files[2];

/// An index as build_on_cpu makes it, in less time: most cases need a fresh one for each call that fails.
ann_index* open_on_cpu(int32_t element) {
  const std::vector<uint8_t>& file = files[element == ANN_F32 ? 1 : 0];
  ann_index* index = nullptr;
  struct Stream {
    const std::vector<uint8_t>& bytes;
    uint64_t at;
  } stream = {file, 0};
  ann_reader reader = ANN_READER_INIT;
  reader.user = &stream;
  reader.bytes = file.size();
  reader.read = [](void* user, void* data, uint64_t count) {
    auto* from = static_cast<Stream*>(user);
    count = std::min<uint64_t>(count, from->bytes.size() - from->at);
    std::memcpy(data, from->bytes.data() + from->at, count);
    from->at += count;
    return static_cast<int64_t>(count);
  };
  ann_open_params params = ANN_OPEN_PARAMS_INIT;
  params.threads = 1;
  expect(ann_open_stream(nullptr, &reader, &params, &index, nullptr, nullptr) == ANN_OK,
         "an index that is opened");
  return index;
}

void build_files() {
  for (const int32_t element : {ANN_U8, ANN_F32}) {
    std::vector<uint8_t>& file = files[element == ANN_F32 ? 1 : 0];
    int ends[2];
    if (pipe(ends) != 0) std::exit(2);
    const pid_t builder = fork();
    if (builder == 0) {
      close(ends[0]);
      machine = FakeMachine{};
      install(&machine);
      ann_index* index = build_on_cpu(element);
      ann_writer writer = ANN_WRITER_INIT;
      writer.user = &ends[1];
      writer.write = [](void* user, const void* data, uint64_t count) {
        return static_cast<int64_t>(write(*static_cast<int*>(user), data, count));
      };
      const bool saved = ann_save_stream(index, &writer, nullptr, nullptr, nullptr) == ANN_OK;
      _exit(saved && failures == 0 ? 0 : 2);
    }
    close(ends[1]);
    uint8_t piece[1 << 16];
    for (ssize_t got; (got = read(ends[0], piece, sizeof piece)) > 0;)
      file.insert(file.end(), piece, piece + got);
    close(ends[0]);
    int status = 0;
    waitpid(builder, &status, 0);
    expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the files of indexes");
  }
}

/// Room for answers.
struct Found {
  uint64_t ids[kQueries * kNeighbors];
  float distances[kQueries * kNeighbors];
  ann_results view() {
    ann_results results = ANN_RESULTS_INIT;
    results.k = kNeighbors;
    results.rows = kQueries;
    results.ids = ids;
    results.distances = distances;
    return results;
  }
};

ann_status search(const ann_index* index, int32_t element, int32_t device, bool exact, ann_error* error,
                  int32_t procedure = ANN_SEARCH_AUTO) {
  Found found;
  const ann_matrix queries = matrix_of(element, kQueries);
  ann_search_params params = ANN_SEARCH_PARAMS_INIT;
  params.device = device;
  params.procedure = procedure;
  ann_results results = found.view();
  return exact ? ann_search_exact(index, &queries, &params, &results, nullptr, error)
               : ann_search_batch(index, &queries, &params, &results, nullptr, error);
}

bool mentions(const ann_error& error, const char* words) {
  return std::strstr(error.message, words) != nullptr;
}

// --- The work that is to fail ----------------------------------------------------------------------

/// Something that a caller does with a device, on an index of the CPU, from nothing to nothing held.
struct Work {
  const char* name;
  int32_t element;
  ann_status (*run)(ann_index* index, ann_error* error);
};

ann_status place_and_evict(ann_index* index, ann_error* error) {
  const ann_status status = ann_index_place(index, kDevice, nullptr, error);
  ann_index_evict(index, kDevice, nullptr);
  return status;
}

template <int32_t kElement, bool kExact>
ann_status search_host(ann_index* index, ann_error* error) {
  const ann_status status = search(index, kElement, kDevice, kExact, error);
  ann_index_evict(index, kDevice, nullptr);
  return status;
}

template <int32_t kProcedure>
ann_status search_as_cagra(ann_index* index, ann_error* error) {
  const ann_status status = search(index, ANN_F32, kDevice, false, error, kProcedure);
  ann_index_evict(index, kDevice, nullptr);
  return status;
}

ann_status exact_beside_placement(ann_index* index, ann_error* error) {
  const ann_status status = ann_index_place(index, kDevice, nullptr, error);
  if (status != ANN_OK) return status;
  return search_host<ANN_F32, true>(index, error);
}

/// Queries and results in memory of the device; `stream` may be null.
template <int32_t kElement, bool kExact, bool kStream>
ann_status search_there(ann_index* index, ann_error* error) {
  static void* queries = fake_memory(0, 4096);
  static void* ids = fake_memory(0, 4096);
  static cudaStream_t stream = fake_stream(0);
  ann_matrix matrix = matrix_of(kElement, kQueries);
  matrix.data = queries;
  matrix.space = kDevice;
  ann_results results = ANN_RESULTS_INIT;
  results.k = kNeighbors;
  results.rows = kQueries;
  results.ids = static_cast<uint64_t*>(ids);
  results.space = kDevice;
  ann_search_params params = ANN_SEARCH_PARAMS_INIT;
  params.stream = kStream ? stream : nullptr;
  const ann_status status = kExact ? ann_search_exact(index, &matrix, &params, &results, nullptr, error)
                                   : ann_search_batch(index, &matrix, &params, &results, nullptr, error);
  ann_index_evict(index, kDevice, nullptr);
  return status;
}

ann_status knn_graph(ann_index*, ann_error* error) {
  std::vector<uint32_t> neighbors(kRows * kNeighbors);
  const ann_matrix rows = matrix_of(ANN_U8, kRows);
  ann_knn_params params = ANN_KNN_PARAMS_INIT;
  params.k = kNeighbors;
  params.method = ANN_KNN_EXACT;
  params.device = kDevice;
  params.threads = 1;
  return ann_knn_graph(nullptr, &rows, &params, neighbors.data(), nullptr, nullptr, error);
}

constexpr Work kWorks[] = {
    {"placement", ANN_F32, place_and_evict},
    {"search of host memory", ANN_U8, search_host<ANN_U8, false>},
    {"search of host memory, floats", ANN_F32, search_host<ANN_F32, false>},
    {"exact search of host memory", ANN_F32, search_host<ANN_F32, true>},
    {"exact search of host memory in a placed index", ANN_F32, exact_beside_placement},
    {"search of device memory", ANN_F32, search_there<ANN_F32, false, false>},
    {"search of device memory on a stream", ANN_F32, search_there<ANN_F32, false, true>},
    {"exact search of device memory on a stream", ANN_U8, search_there<ANN_U8, true, true>},
    {"single-CTA search of host memory", ANN_F32, search_as_cagra<ANN_SEARCH_CAGRA_SINGLE_CTA>},
    {"multi-CTA search of host memory", ANN_F32, search_as_cagra<ANN_SEARCH_CAGRA_MULTI_CTA>},
    {"exact k-NN graph", ANN_U8, knn_graph},
};

// --- Cases -----------------------------------------------------------------------------------------

/// Probing that finds nothing: the reason, the status of everything, and the CPU that goes on.
void expect_no_device(const char* words) {
  uint32_t count = 0;
  const char* reason = nullptr;
  expect(ann_device_count(&count, &reason, nullptr) == ANN_OK && count == 1, "one device, the CPU");
  expect(std::strstr(reason, words) != nullptr, std::string("the reason is ") + reason);
  ann_index* index = build_on_cpu(ANN_U8);
  ann_error error = ANN_ERROR_INIT;
  for (const Work& work : kWorks) {
    if (work.element != ANN_U8) continue;
    const uint64_t calls = machine.calls;
    expect(work.run(index, &error) == ANN_NO_DEVICE && mentions(error, words),
           std::string(work.name) + ": " + error.message);
    expect(machine.calls == calls, "the driver was asked again");
  }
  expect(search(index, ANN_U8, ANN_DEVICE_CPU, false, &error) == ANN_OK, "a search on the CPU");
  ann_index_free(index);
}

void no_driver() {
  machine.probe_error = cudaErrorInsufficientDriver;
  machine.driver = 0;
  expect_no_device("no CUDA driver is installed");
}

void old_driver() {
  machine.probe_error = cudaErrorInsufficientDriver;
  machine.driver = 11040;
  expect_no_device("supports CUDA 11.4, and this library was built with 1");
}

void no_device() {
  machine.probe_error = cudaErrorNoDevice;
  expect_no_device("finds no device");
}

void empty_list_of_devices() {
  machine.devices = 0;
  expect_no_device("finds no device");
}

void broken_driver() {
  machine.probe_error = cudaErrorSystemDriverMismatch;
  expect_no_device("the CUDA driver answers");
}

void no_code() {
  ann_index* indexes[2] = {build_on_cpu(ANN_U8), build_on_cpu(ANN_F32)};
  machine.kernel_error = cudaErrorNoKernelImageForDevice;
  for (const Work& work : kWorks) {
    if (work.run == place_and_evict) continue;
    ann_error error = ANN_ERROR_INIT;
    const ann_status status = work.run(indexes[work.element == ANN_F32], &error);
    expect(status == ANN_NO_DEVICE && mentions(error, "has code for"),
           std::string(work.name) + ": " + error.message);
    expect(error.cuda_error == cudaErrorNoKernelImageForDevice, "cuda_error");
  }
  expect(machine.memory_held == 0, "memory is held");
  for (ann_index* index : indexes) ann_index_free(index);
}

void busy_device() {
  ann_index* index = build_on_cpu(ANN_U8);
  uint32_t count = 0;
  ann_device_count(&count, nullptr, nullptr);
  machine.failing = machine.counted + 1;
  machine.error = cudaErrorDevicesUnavailable;
  machine.sticky = true;
  machine.for_ever = true;
  ann_error error = ANN_ERROR_INIT;
  expect(search(index, ANN_U8, kDevice, false, &error) == ANN_NO_DEVICE, error.message);
  ann_index_free(index);
}

/// Every request for memory, a stream or an event refused, once and for ever.
void full_memory() {
  for (const bool for_ever : {false, true}) {
    for (const Work& work : kWorks) {
      ann_index* index = open_on_cpu(work.element);
      ann_error error = ANN_ERROR_INIT;
      machine = FakeMachine{};
      machine.memory_only = true;
      expect(work.run(index, &error) == ANN_OK, std::string(work.name) + ": " + error.message);
      const uint64_t requests = machine.counted;
      expect(requests > 0 && machine.memory_held == 0, std::string(work.name) + " takes and gives back");
      for (uint64_t number = 1; number <= requests; ++number) {
        machine.counted = 0;
        machine.failing = number;
        machine.failed = false;
        machine.for_ever = for_ever;
        machine.error = cudaErrorMemoryAllocation;
        const ann_status status = work.run(index, &error);
        const bool refused = status == ANN_DEVICE_NO_MEMORY || status == ANN_NO_MEMORY;
        const std::string what = std::string(work.name) + ", request " + std::to_string(number) + ": ";
        expect(refused || (status == ANN_OK && !for_ever) || !machine.failed, what + error.message);
        expect(machine.memory_held == 0 && machine.pinned_held == 0 && machine.events == 0,
               what + "something is held");
        machine.failing = 0;
        expect(work.run(index, &error) == ANN_OK, what + "the next call: " + error.message);
      }
      ann_index_free(index);
    }
  }
}

void little_memory() {
  machine.memory_bytes = 1 << 20;
  ann_index* index = build_on_cpu(ANN_F32);
  ann_error error = ANN_ERROR_INIT;
  expect(ann_index_place(index, kDevice, nullptr, &error) == ANN_DEVICE_NO_MEMORY, error.message);
  expect(mentions(error, "free"), error.message);
  machine.memory_bytes = uint64_t{8} << 30;
  expect(ann_index_place(index, kDevice, nullptr, &error) == ANN_OK, error.message);
  ann_index_free(index);
  expect(machine.memory_held == 0 && machine.events == 0, "something is held");
}

/// Every call failing in turn with an error that passes.
void passing_errors() {
  for (const Work& work : kWorks) {
    ann_index* index = open_on_cpu(work.element);
    ann_error error = ANN_ERROR_INIT;
    machine = FakeMachine{};
    work.run(index, &error);
    machine.counted = 0;
    expect(work.run(index, &error) == ANN_OK, std::string(work.name) + ": " + error.message);
    const uint64_t calls = machine.counted;
    for (uint64_t number = 1; number <= calls; ++number) {
      machine.counted = 0;
      machine.failing = number;
      machine.failed = false;
      machine.error = cudaErrorUnknown;
      const ann_status status = work.run(index, &error);
      const std::string what = std::string(work.name) + ", call " + std::to_string(number) + ": ";
      expect(status == ANN_INTERNAL || status == ANN_OK, what + std::to_string(status));
      expect(status == ANN_OK || error.cuda_error == cudaErrorUnknown, what + error.message);
      machine.failing = 0;
      ann_index_evict(index, kDevice, nullptr);
      expect(machine.memory_held == 0 && machine.pinned_held == 0 && machine.events == 0,
             what + "something is held");
      expect(machine.current == 0, what + "another device is current");
      expect(work.run(index, &error) == ANN_OK, what + "the next call: " + error.message);
    }
    ann_index_free(index);
  }
}

/// A fault at one of the calls of a piece of work; each needs a process of its own.
void lose_device(const Work& work, uint64_t number) {
  ann_index* index = open_on_cpu(work.element);
  ann_error error = ANN_ERROR_INIT;
  work.run(index, &error);
  ann_index* placed = open_on_cpu(ANN_F32);
  expect(ann_index_place(placed, kDevice, nullptr, &error) == ANN_OK, error.message);
  machine.counted = 0;
  machine.failing = number;
  machine.error = cudaErrorLaunchFailure;
  machine.sticky = true;
  const ann_status status = work.run(index, &error);
  const std::string what = std::string(work.name) + ", call " + std::to_string(number) + ": ";
  expect(status == ANN_DEVICE_LOST || status == ANN_OK, what + std::to_string(status));
  if (status == ANN_OK) work.run(index, &error);  // the fault fell on a call whose answer nobody needs
  const uint64_t calls = machine.calls;
  for (const Work& other : kWorks) {
    ann_index* used = other.element == ANN_F32 ? placed : index;
    if (other.element != ANN_F32 && work.element != other.element) continue;
    expect(other.run(used, &error) == ANN_DEVICE_LOST, what + "then " + other.name);
    expect(mentions(error, "earlier fault"), what + error.message);
  }
  expect(search(index, work.element, ANN_DEVICE_CPU, false, &error) == ANN_OK, what + error.message);
  ann_index_free(placed);
  ann_index_free(index);
  expect(machine.calls == calls, what + "the driver was called after the fault");
}

void forked() {
  ann_index* index = build_on_cpu(ANN_U8);
  ann_error error = ANN_ERROR_INIT;
  expect(ann_index_place(index, kDevice, nullptr, &error) == ANN_OK, error.message);
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    const uint64_t calls = machine.calls;
    for (const Work& work : kWorks) {
      if (work.element != ANN_U8) continue;
      expect(work.run(index, &error) == ANN_NO_DEVICE && mentions(error, "forked"),
             std::string(work.name) + ": " + error.message);
    }
    uint32_t count = 0;
    const char* reason = nullptr;
    ann_device_count(&count, &reason, nullptr);
    expect(count == 1 && std::strstr(reason, "forked") != nullptr, reason);
    expect(search(index, ANN_U8, ANN_DEVICE_CPU, false, &error) == ANN_OK, error.message);
    ann_index_free(index);
    expect(machine.calls == calls, "the child called the driver");
    _exit(failures == 0 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child");
  expect(search(index, ANN_U8, kDevice, false, &error) == ANN_OK, error.message);
  ann_index_free(index);
}

/// The process ends with everything open. Whoever registered first is called last.
uint64_t calls_at_exit = 0;
void check_exit() { _exit(machine.calls == calls_at_exit && failures == 0 ? 0 : 1); }

void open_handles() {
  std::atexit(check_exit);
  ann_index* index = build_on_cpu(ANN_F32);
  ann_error error = ANN_ERROR_INIT;
  for (const Work& work : kWorks) {
    if (work.element == ANN_F32) expect(work.run(index, &error) == ANN_OK, error.message);
  }
  expect(ann_index_place(index, kDevice, nullptr, &error) == ANN_OK, error.message);
  std::fflush(stdout);
  calls_at_exit = machine.calls;
  std::exit(0);
}

void second_device() {
  machine.devices = 2;
  machine.current = 1;
  machine.left_behind = cudaErrorInvalidValue;  // by the caller
  ann_index* index = build_on_cpu(ANN_F32);
  ann_error error = ANN_ERROR_INIT;
  for (const Work& work : kWorks) {
    if (work.element != ANN_F32) continue;
    expect(work.run(index, &error) == ANN_OK, std::string(work.name) + ": " + error.message);
    expect(machine.current == 1, std::string(work.name) + ": another device is current");
  }
  ann_index_free(index);
  expect(machine.current == 1, "free: another device is current");

  // Memory and streams of the other device.
  index = build_on_cpu(ANN_U8);
  ann_matrix queries = matrix_of(ANN_U8, kQueries);
  queries.data = fake_memory(1, 4096);
  queries.space = kDevice;
  ann_results results = ANN_RESULTS_INIT;
  results.k = kNeighbors;
  results.rows = kQueries;
  results.ids = static_cast<uint64_t*>(fake_memory(0, 4096));
  results.space = kDevice;
  expect(ann_search_batch(index, &queries, nullptr, &results, nullptr, &error) == ANN_INVALID_ARGUMENT &&
             mentions(error, "queries.data is said to lie on device 2, but lies on device 3"),
         error.message);
  queries.data = fake_memory(0, 4096);
  results.ids = static_cast<uint64_t*>(fake_memory(1, 4096));
  expect(ann_search_batch(index, &queries, nullptr, &results, nullptr, &error) == ANN_INVALID_ARGUMENT &&
             mentions(error, "results.ids"),
         error.message);
  results.ids = static_cast<uint64_t*>(fake_memory(0, 4096));
  ann_search_params params = ANN_SEARCH_PARAMS_INIT;
  params.stream = fake_stream(1);
  expect(ann_search_batch(index, &queries, &params, &results, nullptr, &error) == ANN_INVALID_ARGUMENT &&
             mentions(error, "params.stream belongs to another device"),
         error.message);
  queries.data = bytes.data();
  expect(ann_search_batch(index, &queries, nullptr, &results, nullptr, &error) == ANN_INVALID_ARGUMENT &&
             mentions(error, "no memory that CUDA knows"),
         error.message);
  queries.data = results.ids + 1;
  expect(ann_search_batch(index, &queries, nullptr, &results, nullptr, &error) == ANN_INVALID_ARGUMENT &&
             mentions(error, "overlap"),
         error.message);
  ann_index_free(index);
}

// --- Processes -------------------------------------------------------------------------------------

/// Runs a case in a child; its checks and failures come back through a pipe.
template <class Case>
void in_child(const char* name, const Case& run) {
  std::fflush(stdout);
  int ends[2];
  if (pipe(ends) != 0) std::exit(2);
  const pid_t child = fork();
  if (child == 0) {
    machine = FakeMachine{};
    install(&machine);
    checks = failures = 0;
    run();
    const uint64_t counted[2] = {checks, failures};
    const bool written = write(ends[1], counted, sizeof counted) == sizeof counted;
    std::fflush(stdout);
    _exit(written ? 0 : 2);
  }
  close(ends[1]);
  uint64_t counted[2] = {0, 0};
  const bool told = read(ends[0], counted, sizeof counted) == sizeof counted;
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  const bool ended = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  checks += counted[0] + 1;
  failures += counted[1];
  if (!ended || counted[1] != 0) {
    std::printf("%s: %llu failed%s\n", name, static_cast<unsigned long long>(counted[1]),
                ended ? "" : ", and the process did not end as it should");
    if (!ended) ++failures;
  }
  (void)told;  // a case that ends the process tells by its status
}

/// Calls that a piece of work makes when it is done a second time.
uint64_t count_calls(const Work& work) {
  machine = FakeMachine{};
  install(&machine);
  ann_index* index = open_on_cpu(work.element);
  ann_error error = ANN_ERROR_INIT;
  work.run(index, &error);
  machine.counted = 0;
  work.run(index, &error);
  ann_index_free(index);
  return machine.counted;
}

void lost_device() {
  for (const Work& work : kWorks) {
    int ends[2];
    if (pipe(ends) != 0) std::exit(2);
    const pid_t counter = fork();
    if (counter == 0) {
      const uint64_t calls = count_calls(work);
      _exit(write(ends[1], &calls, sizeof calls) == sizeof calls ? 0 : 2);
    }
    uint64_t calls = 0;
    expect(read(ends[0], &calls, sizeof calls) == sizeof calls && calls > 0, "counting calls");
    close(ends[0]);
    close(ends[1]);
    waitpid(counter, nullptr, 0);
    for (uint64_t number = 1; number <= calls; ++number)
      in_child(work.name, [&] { lose_device(work, number); });
  }
}

}  // namespace
}  // namespace gannet::fault

int main() {
  using namespace gannet::fault;
  build_files();
  in_child("no driver", no_driver);
  in_child("a driver that is too old", old_driver);
  in_child("no device", no_device);
  in_child("an empty list of devices", empty_list_of_devices);
  in_child("a broken driver", broken_driver);
  in_child("no code for the device", no_code);
  in_child("a device that is taken", busy_device);
  in_child("full memory", full_memory);
  in_child("little memory", little_memory);
  in_child("errors that pass", passing_errors);
  in_child("fork", forked);
  in_child("open handles", open_handles);
  in_child("a second device", second_device);
  lost_device();
  std::printf("device_fault: %llu checks, %llu failed\n", static_cast<unsigned long long>(checks),
              static_cast<unsigned long long>(failures));
  return failures == 0 ? 0 : 1;
}
