// The table of runtime.h filled with the CUDA runtime itself.

#include <atomic>

#include "backend/runtime.h"

namespace gannet::cuda {
namespace {

/// The runtime has no query for a stream's context. The driver has one; its functions are looked up by
/// name, so that the library needs no driver to be loaded.
struct DriverFunction {
  void* function = nullptr;
  cudaError_t error = cudaSuccess;

  explicit DriverFunction(const char* name) {
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    error = cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &result);
#else
    error = cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &result);
#endif
    if (error == cudaSuccess && result != cudaDriverEntryPointSuccess) error = cudaErrorNotSupported;
  }
};

cudaError_t stream_is_here(cudaStream_t stream, bool* here) {
  using Context = void*;
  static const DriverFunction of_stream("cuStreamGetCtx");
  static const DriverFunction of_thread("cuCtxGetCurrent");
  if (of_stream.error != cudaSuccess) return of_stream.error;
  if (of_thread.error != cudaSuccess) return of_thread.error;
  Context stream_context = nullptr;
  Context current = nullptr;
  const int stream_error =
      reinterpret_cast<int (*)(cudaStream_t, Context*)>(of_stream.function)(stream, &stream_context);
  if (stream_error != 0) return static_cast<cudaError_t>(stream_error);  // the two share their codes
  const int thread_error = reinterpret_cast<int (*)(Context*)>(of_thread.function)(&current);
  *here = stream_context == current;
  return static_cast<cudaError_t>(thread_error);
}

constexpr Runtime kReal = {
    .count_devices = cudaGetDeviceCount,
    .driver_version = cudaDriverGetVersion,
    .current_device = cudaGetDevice,
    .choose_device = cudaSetDevice,
    .properties = cudaGetDeviceProperties,
    .attribute = cudaDeviceGetAttribute,
    .memory_info = cudaMemGetInfo,
    .last_error = cudaGetLastError,
    .exchange_capture_mode = cudaThreadExchangeStreamCaptureMode,
    .create_pool = cudaMemPoolCreate,
    .set_pool = cudaMemPoolSetAttribute,
    .ask_pool = cudaMemPoolGetAttribute,
    .trim_pool = cudaMemPoolTrimTo,
    .take = cudaMallocFromPoolAsync,
    .give_back = cudaFreeAsync,
    .take_pinned = cudaHostAlloc,
    .give_back_pinned = cudaFreeHost,
    .pin = cudaHostRegister,
    .unpin = cudaHostUnregister,
    .copy = cudaMemcpyAsync,
    .copy_rows = cudaMemcpy2DAsync,
    .fill = cudaMemsetAsync,
    .describe_pointer = cudaPointerGetAttributes,
    .create_stream = cudaStreamCreateWithFlags,
    .destroy_stream = cudaStreamDestroy,
    .wait_for_stream = cudaStreamSynchronize,
    .stream_id = cudaStreamGetId,
    .stream_capture = cudaStreamIsCapturing,
    .stream_is_here = stream_is_here,
    .create_event = cudaEventCreateWithFlags,
    .destroy_event = cudaEventDestroy,
    .record_event = cudaEventRecord,
    .wait_for_event = cudaEventSynchronize,
    .ask_event = cudaEventQuery,
    .milliseconds = cudaEventElapsedTime,
    .launch = cudaLaunchKernel,
    .launch_together = cudaLaunchCooperativeKernel,
    .set_kernel = cudaFuncSetAttribute,
    .blocks_at_once = cudaOccupancyMaxActiveBlocksPerMultiprocessor,
};

std::atomic<const Runtime*> table = &kReal;

}  // namespace

const Runtime& runtime() { return *table.load(std::memory_order_relaxed); }
const Runtime& real_runtime() { return kReal; }
void replace_runtime(const Runtime* other) {
  table.store(other != nullptr ? other : &kReal, std::memory_order_relaxed);
}

}  // namespace gannet::cuda
