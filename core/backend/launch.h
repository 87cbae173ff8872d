// The basis of every .cu file: checked calls, a stream, device memory, copies, the launch of a kernel.
//
// Errors become the core's Error. A fault of a kernel ends the process's use of its devices, because
// CUDA answers every later call with the same code; the first such answer is noted here, and from
// then on CUDA calls of the library fail with ANN_DEVICE_LOST before they reach the driver. In the
// child of a process that has used CUDA they fail with ANN_NO_DEVICE, likewise.
//
// A caller's program may use CUDA too. Its current device is restored on every path, its streams are
// never waited for, its default pool of memory is left alone, and an error that it left behind is
// cleared rather than taken for ours. A capture of a graph on another thread is not disturbed.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>

#include "backend/device_pool.h"
#include "backend/runtime.h"
#include "base/error.h"

namespace gannet::cuda {

/// Throws ANN_DEVICE_LOST after a fault, ANN_NO_DEVICE in the child of a process that used CUDA.
void require_live();

/// Whether nothing can be released any more, after a fault or a fork. Destructors check this.
bool is_abandoned() noexcept;

/// Throws the Error that `error` means. `what` names the operation: "waiting for a stream".
[[noreturn]] void raise(cudaError_t error, const char* what);

/// Throws ANN_DEVICE_NO_MEMORY.
[[noreturn]] void raise_no_memory(size_t bytes);

inline void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) raise(error, what);
}

/// Makes a device current, and the caller's one again at the end.
class DeviceGuard {
 public:
  explicit DeviceGuard(int32_t device) {
    require_live();
    check(runtime().current_device(&previous_), "asking for the current device");
    changed_ = previous_ != device;
    if (changed_) check(runtime().choose_device(device), "choosing a device");
    runtime().exchange_capture_mode(&capture_mode_);
  }
  ~DeviceGuard() {
    runtime().exchange_capture_mode(&capture_mode_);
    if (changed_) runtime().choose_device(previous_);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int previous_ = 0;
  bool changed_ = false;
  cudaStreamCaptureMode capture_mode_ = cudaStreamCaptureModeRelaxed;
};

/// The same for code that releases memory: it throws nothing, and does nothing where that is over.
class LastDeviceGuard {
 public:
  explicit LastDeviceGuard(int32_t device)
      : reachable_(!is_abandoned() && runtime().current_device(&previous_) == cudaSuccess) {
    if (reachable_) runtime().choose_device(device);
  }
  ~LastDeviceGuard() {
    if (reachable_) runtime().choose_device(previous_);
  }
  LastDeviceGuard(const LastDeviceGuard&) = delete;
  LastDeviceGuard& operator=(const LastDeviceGuard&) = delete;

 private:
  int previous_ = 0;
  bool reachable_;
};

/// The device that is current.
inline int32_t current_device() {
  int device = 0;
  check(runtime().current_device(&device), "asking for the current device");
  return device;
}

/// A stream of one call, on the current device. It waits for its work before it goes, so that nothing
/// touches the caller's memory after an exception.
class Stream {
 public:
  Stream() : pool_(DevicePool::of(current_device())), stream_(pool_.take_stream()) {}

  /// A stream of the caller, which is neither waited for nor destroyed.
  explicit Stream(cudaStream_t borrowed)
      : pool_(DevicePool::of(current_device())), stream_(borrowed), borrowed_(true) {}

  ~Stream() {
    if (borrowed_ || is_abandoned()) return;
    pool_.give_back(stream_, runtime().wait_for_stream(stream_) == cudaSuccess);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  operator cudaStream_t() const { return stream_; }
  void wait() const { check(runtime().wait_for_stream(stream_), "waiting for a stream"); }
  DevicePool& pool() const { return pool_; }

 private:
  DevicePool& pool_;
  cudaStream_t stream_ = nullptr;
  bool borrowed_ = false;
};

/// Device memory of the library's pool, taken and given back in the order of the stream. Not
/// initialised.
template <class Item>
class DeviceArray {
 public:
  DeviceArray(uint64_t count, const Stream& stream) : stream_(stream) {
    if (count != 0) items_ = static_cast<Item*>(stream.pool().take(count * sizeof(Item), stream_));
  }
  ~DeviceArray() {
    if (items_ != nullptr && !is_abandoned()) runtime().give_back(items_, stream_);
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  Item* data() const { return items_; }

 private:
  Item* items_ = nullptr;
  cudaStream_t stream_;
};

// Copies in the order of a stream. `what` names the operation in an error's message.

inline void copy_to_device(void* to, const void* from, size_t bytes, const Stream& stream, const char* what) {
  check(runtime().copy(to, from, bytes, cudaMemcpyHostToDevice, stream), what);
}
inline void copy_to_host(void* to, const void* from, size_t bytes, const Stream& stream, const char* what) {
  check(runtime().copy(to, from, bytes, cudaMemcpyDeviceToHost, stream), what);
}
inline void copy_on_device(void* to, const void* from, size_t bytes, const Stream& stream, const char* what) {
  check(runtime().copy(to, from, bytes, cudaMemcpyDeviceToDevice, stream), what);
}

/// Rows of `bytes` bytes, with strides in bytes. `kind` says from where to where.
inline void copy_rows(void* to, size_t to_stride, const void* from, size_t from_stride, size_t bytes,
                      size_t rows, cudaMemcpyKind kind, const Stream& stream, const char* what) {
  if (rows == 0) return;
  const bool packed = to_stride == bytes && from_stride == bytes;
  check(packed ? runtime().copy(to, from, bytes * rows, kind, stream)
               : runtime().copy_rows(to, to_stride, from, from_stride, bytes, rows, kind, stream),
        what);
}

/// Sets every byte of device memory.
inline void fill(void* memory, uint8_t byte, size_t bytes, const Stream& stream, const char* what) {
  if (bytes != 0) check(runtime().fill(memory, byte, bytes, stream), what);
}

/// The one way to start a kernel. Errors that others left behind are cleared first. `shared_bytes` are
/// those of a block beyond the kernel's declared ones. `together`: its blocks wait for each other, so they
/// all run at the same time or the launch is refused.
template <class Args>
void launch(const char* name, void (*kernel)(Args), dim3 grid, uint32_t threads, const Stream& stream,
            Args args, size_t shared_bytes = 0, bool together = false) {
  void* kernel_args[] = {&args};
  runtime().last_error();
  const auto start = together ? runtime().launch_together : runtime().launch;
  const cudaError_t error =
      start(reinterpret_cast<const void*>(kernel), grid, dim3(threads), kernel_args, shared_bytes, stream);
  if (error == cudaSuccess) return;
  char what[128];
  std::snprintf(what, sizeof what, "starting %s on %u x %u blocks of %u", name, grid.x, grid.y, threads);
  raise(error, what);
}

/// Lets a kernel's blocks have `shared_bytes` of dynamic shared memory.
template <class Args>
void allow_shared(void (*kernel)(Args), size_t shared_bytes) {
  check(runtime().set_kernel(reinterpret_cast<const void*>(kernel),
                             cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)),
        "asking for shared memory");
}

/// Blocks of a kernel that the device holds at once.
template <class Args>
uint32_t blocks_at_once(int32_t device, void (*kernel)(Args), uint32_t threads, size_t shared_bytes = 0) {
  int multiprocessors = 0;
  int blocks = 0;
  check(runtime().attribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
        "asking for multiprocessors");
  check(runtime().blocks_at_once(&blocks, reinterpret_cast<const void*>(kernel), static_cast<int>(threads),
                                 shared_bytes),
        "asking for blocks of a multiprocessor");
  return static_cast<uint32_t>(multiprocessors) * static_cast<uint32_t>(blocks > 1 ? blocks : 1);
}

/// Host memory that a device can copy from and to by itself. Not initialised.
class PinnedBytes {
 public:
  explicit PinnedBytes(uint64_t bytes) {
    if (bytes == 0) return;
    void* memory = nullptr;
    const cudaError_t error = runtime().take_pinned(&memory, bytes, cudaHostAllocPortable);
    if (error == cudaErrorMemoryAllocation) {
      runtime().last_error();
      fail(ANN_NO_MEMORY, "%llu bytes of pinned memory were refused by the driver",
           static_cast<unsigned long long>(bytes));
    }
    check(error, "taking pinned memory");
    data_ = static_cast<uint8_t*>(memory);
  }
  ~PinnedBytes() {
    if (data_ != nullptr && !is_abandoned()) runtime().give_back_pinned(data_);
  }
  PinnedBytes(const PinnedBytes&) = delete;
  PinnedBytes& operator=(const PinnedBytes&) = delete;

  uint8_t* data() const { return data_; }

 private:
  uint8_t* data_ = nullptr;
};

/// A place in a stream's work. Without `timed` it is cheaper and cannot tell the time.
class Event {
 public:
  explicit Event(bool timed) {
    check(runtime().create_event(&event_, timed ? cudaEventDefault : cudaEventDisableTiming),
          "creating an event");
  }
  ~Event() {
    if (!is_abandoned()) runtime().destroy_event(event_);
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(const Stream& stream) { check(runtime().record_event(event_, stream), "recording an event"); }
  // For paths on which nothing can be thrown; a lost device is reported by the next call.
  void record_quietly(const Stream& stream) noexcept { runtime().record_event(event_, stream); }
  void wait_quietly() const noexcept { runtime().wait_for_event(event_); }
  bool has_passed() const { return runtime().ask_event(event_) == cudaSuccess; }
  void wait() const { check(runtime().wait_for_event(event_), "waiting for an event"); }
  double seconds_until(const Event& end) const {
    float milliseconds = 0;
    check(runtime().milliseconds(&milliseconds, event_, end.event_), "reading an event");
    return milliseconds / 1e3;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace gannet::cuda
