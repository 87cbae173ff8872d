// The CUDA runtime as a table of functions: every call that the library makes of it.
//
// Phases do not call the runtime; they go through launch.h, and that goes through this table. So the
// rules of the seam hold in one place, and a test can put another table in its place: one that refuses
// the n-th allocation of a real device, or one that simulates a whole machine where there is none.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace gannet::cuda {

/// Signatures and meanings are the runtime's.
struct Runtime {
  // Devices.
  cudaError_t (*count_devices)(int* count);
  cudaError_t (*driver_version)(int* version);
  cudaError_t (*current_device)(int* device);
  cudaError_t (*choose_device)(int device);
  cudaError_t (*properties)(cudaDeviceProp* properties, int device);
  cudaError_t (*attribute)(int* value, cudaDeviceAttr attribute, int device);
  cudaError_t (*memory_info)(size_t* free, size_t* total);
  cudaError_t (*last_error)();
  cudaError_t (*exchange_capture_mode)(cudaStreamCaptureMode* mode);

  // Memory.
  cudaError_t (*create_pool)(cudaMemPool_t* pool, const cudaMemPoolProps* properties);
  cudaError_t (*set_pool)(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value);
  cudaError_t (*ask_pool)(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value);
  cudaError_t (*trim_pool)(cudaMemPool_t pool, size_t bytes_kept);
  cudaError_t (*take)(void** memory, size_t bytes, cudaMemPool_t pool, cudaStream_t stream);
  cudaError_t (*give_back)(void* memory, cudaStream_t stream);
  cudaError_t (*take_pinned)(void** memory, size_t bytes, unsigned flags);
  cudaError_t (*give_back_pinned)(void* memory);
  cudaError_t (*pin)(void* memory, size_t bytes, unsigned flags);
  cudaError_t (*unpin)(void* memory);
  cudaError_t (*copy)(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
  cudaError_t (*copy_rows)(void* to, size_t to_stride, const void* from, size_t from_stride, size_t bytes,
                           size_t rows, cudaMemcpyKind kind, cudaStream_t stream);
  cudaError_t (*fill)(void* memory, int byte, size_t bytes, cudaStream_t stream);
  cudaError_t (*describe_pointer)(cudaPointerAttributes* attributes, const void* pointer);

  // Streams and events.
  cudaError_t (*create_stream)(cudaStream_t* stream, unsigned flags);
  cudaError_t (*destroy_stream)(cudaStream_t stream);
  cudaError_t (*wait_for_stream)(cudaStream_t stream);
  cudaError_t (*stream_id)(cudaStream_t stream, unsigned long long* id);
  cudaError_t (*stream_capture)(cudaStream_t stream, cudaStreamCaptureStatus* status);
  /// Whether the stream belongs to the context that the current device has for the runtime.
  cudaError_t (*stream_is_here)(cudaStream_t stream, bool* here);
  cudaError_t (*create_event)(cudaEvent_t* event, unsigned flags);
  cudaError_t (*destroy_event)(cudaEvent_t event);
  cudaError_t (*record_event)(cudaEvent_t event, cudaStream_t stream);
  cudaError_t (*wait_for_event)(cudaEvent_t event);
  cudaError_t (*ask_event)(cudaEvent_t event);
  cudaError_t (*milliseconds)(float* milliseconds, cudaEvent_t begin, cudaEvent_t end);

  // Kernels.
  cudaError_t (*launch)(const void* kernel, dim3 grid, dim3 block, void** args, size_t shared_bytes,
                        cudaStream_t stream);
  cudaError_t (*launch_together)(const void* kernel, dim3 grid, dim3 block, void** args, size_t shared_bytes,
                                 cudaStream_t stream);
  cudaError_t (*set_kernel)(const void* kernel, cudaFuncAttribute attribute, int value);
  cudaError_t (*blocks_at_once)(int* blocks, const void* kernel, int threads, size_t shared_bytes);
};

/// The table that counts.
const Runtime& runtime();

/// The runtime itself.
const Runtime& real_runtime();

/// Puts another table in place, for tests, while no call of the library runs; null: the real one.
void replace_runtime(const Runtime* table);

}  // namespace gannet::cuda
