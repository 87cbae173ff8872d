// What every .cu file stands on: checked calls, a stream, device memory, the launch of a kernel.
//
// Errors become the core's Error. A fault of a kernel ends the process's use of its devices, because
// CUDA answers every later call with the same code; the first such answer is noted here, and from
// then on CUDA calls of the library fail with ANN_DEVICE_LOST before they reach the driver.
//
// A caller's program may use CUDA too. Its current device is restored on every path, its streams are
// never waited for, and an error that it left behind is cleared rather than taken for ours.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>

#include "base/error.h"

namespace gannet::cuda {

/// Throws ANN_DEVICE_LOST after a fault.
void require_live();

/// Throws the Error that `error` means. `what` says what was tried: "waiting for a stream".
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
    check(cudaGetDevice(&previous_), "asking for the current device");
    changed_ = previous_ != device;
    if (changed_) check(cudaSetDevice(device), "choosing a device");
  }
  ~DeviceGuard() {
    if (changed_) cudaSetDevice(previous_);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int previous_ = 0;
  bool changed_ = false;
};

/// A stream of one call. It waits for its work before it goes, so that nothing touches the caller's
/// memory after an exception.
class Stream {
 public:
  Stream() {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "creating a stream");
  }
  ~Stream() {
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  operator cudaStream_t() const { return stream_; }
  void wait() const { check(cudaStreamSynchronize(stream_), "waiting for a stream"); }

 private:
  cudaStream_t stream_ = nullptr;
};

/// Device memory, taken and given back in the order of the stream. Not initialised.
template <class Item>
class DeviceArray {
 public:
  DeviceArray(uint64_t count, const Stream& stream) : stream_(stream) {
    if (count == 0) return;
    const size_t bytes = count * sizeof(Item);
    void* memory = nullptr;
    const cudaError_t error = cudaMallocAsync(&memory, bytes, stream_);
    if (error == cudaErrorMemoryAllocation) raise_no_memory(bytes);
    check(error, "taking device memory");
    items_ = static_cast<Item*>(memory);
  }
  ~DeviceArray() {
    if (items_ != nullptr) cudaFreeAsync(items_, stream_);
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  Item* data() const { return items_; }

 private:
  Item* items_ = nullptr;
  cudaStream_t stream_;
};

/// The one way to start a kernel. Errors that others left behind are cleared first. `shared_bytes` are
/// those of a block beyond what the kernel declares.
template <class Args>
void launch(const char* name, void (*kernel)(Args), dim3 grid, uint32_t threads,
            const Stream& stream, Args args, uint32_t shared_bytes = 0) {
  void* kernel_args[] = {&args};
  cudaGetLastError();
  const cudaError_t error = cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid,
                                             dim3(threads), kernel_args, shared_bytes, stream);
  if (error == cudaSuccess) return;
  char what[128];
  std::snprintf(what, sizeof what, "starting %s on %u x %u blocks of %u", name, grid.x, grid.y,
                threads);
  raise(error, what);
}

/// Host memory that a device can copy from and to by itself. Not initialised.
class PinnedBytes {
 public:
  explicit PinnedBytes(uint64_t bytes) {
    if (bytes == 0) return;
    void* memory = nullptr;
    const cudaError_t error = cudaHostAlloc(&memory, bytes, cudaHostAllocPortable);
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      fail(ANN_NO_MEMORY, "%llu bytes of pinned memory were refused by the driver",
           static_cast<unsigned long long>(bytes));
    }
    check(error, "taking pinned memory");
    data_ = static_cast<uint8_t*>(memory);
  }
  ~PinnedBytes() {
    if (data_ != nullptr) cudaFreeHost(data_);
  }
  PinnedBytes(const PinnedBytes&) = delete;
  PinnedBytes& operator=(const PinnedBytes&) = delete;

  uint8_t* data() const { return data_; }

 private:
  uint8_t* data_ = nullptr;
};

}  // namespace gannet::cuda
