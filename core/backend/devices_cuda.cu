// The CUDA half of devices.h, and the errors of launch.h.

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>

#include "backend/devices.h"
#include "backend/launch.h"
#include "backend/transfers.h"

namespace gannet::cuda {
namespace {

/// The first fault of this process, a cudaError_t; 0: none.
std::atomic<int32_t> first_fault = 0;

/// The process that called the driver; 0: none has.
std::atomic<pid_t> owner = 0;

/// One in that process, and zero in its children, for whom the system wipes the page, whatever call makes them. Null where
/// it does not do that, or no driver was called: then processes are told apart by their numbers. One search in a device's
/// memory asks 21 times, which took 3.6 us by numbers, each a call of the system, and of the 3.8 that the library took
/// there beside CUDA.
std::atomic<const volatile uint8_t*> mark = nullptr;

const volatile uint8_t* make_mark() {
#if defined(MADV_WIPEONFORK)
  const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* const page = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return nullptr;
  if (madvise(page, bytes, MADV_WIPEONFORK) == 0) {
    auto* const made = static_cast<volatile uint8_t*>(page);
    *made = 1;
    return made;
  }
  munmap(page, bytes);
#endif
  return nullptr;
}

/// Errors after which CUDA answers every call of the process with the same error.
bool is_fault(cudaError_t error) {
  switch (error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorContextIsDestroyed:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorExternalDevice:
      return true;
    default:
      return false;
  }
}

ann_status status_of(cudaError_t error) {
  if (is_fault(error)) return ANN_DEVICE_LOST;
  switch (error) {
    case cudaErrorMemoryAllocation:
      return ANN_DEVICE_NO_MEMORY;
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorInitializationError:  // also: in the child of a process that has used CUDA
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorDevicesUnavailable:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
      return ANN_NO_DEVICE;
    case cudaErrorNotSupported:
      return ANN_UNSUPPORTED;
    default:
      return ANN_INTERNAL;
  }
}

void version_text(int version, char* text, size_t capacity) {
  std::snprintf(text, capacity, "%d.%d", version / 1000, version % 1000 / 10);
}

Probe ask_driver() {
  owner.store(getpid());
  mark.store(make_mark(), std::memory_order_release);
  Probe found;
  int count = 0;
  const cudaError_t error = runtime().count_devices(&count);
  runtime().last_error();
  if (error == cudaSuccess && count > 0) {
    found.count = static_cast<uint32_t>(count);
    return found;
  }
  int driver = 0;
  runtime().driver_version(&driver);
  runtime().last_error();
  if (driver == 0) {
    std::snprintf(found.reason, sizeof found.reason, "no CUDA driver is installed");
  } else if (error == cudaErrorInsufficientDriver) {
    char driver_text[16], runtime_text[16];
    version_text(driver, driver_text, sizeof driver_text);
    version_text(CUDART_VERSION, runtime_text, sizeof runtime_text);
    std::snprintf(found.reason, sizeof found.reason,
                  "the driver supports CUDA %s, and this library was built with %s", driver_text,
                  runtime_text);
  } else if (error == cudaSuccess || error == cudaErrorNoDevice) {
    std::snprintf(found.reason, sizeof found.reason, "the CUDA driver finds no device");
  } else {
    std::snprintf(found.reason, sizeof found.reason, "the CUDA driver answers: %s",
                  cudaGetErrorString(error));
  }
  return found;
}

/// The meaning of an error, beyond its name in CUDA.
const char* advice_of(cudaError_t error) {
  switch (error) {
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
      return "; this library has code for " GANNET_CUDA_BUILD;
    case cudaErrorInitializationError:
      return "; a process that was forked from one that uses CUDA cannot use it";
    default:
      return "";
  }
}

/// Refuses one address.
void check_address(const uint8_t* address, int32_t ordinal, const char* name) {
  cudaPointerAttributes found = {};
  const cudaError_t error = runtime().describe_pointer(&found, address);
  if (error != cudaSuccess) runtime().last_error();
  if (error != cudaSuccess && error != cudaErrorInvalidValue) check(error, "asking what a pointer points to");
  const int device = ANN_DEVICE_CUDA + ordinal;
  if (error != cudaSuccess || found.type == cudaMemoryTypeUnregistered)
    fail(ANN_INVALID_ARGUMENT, "%s is said to lie on device %d, but is no memory that CUDA knows", name,
         device);
  if (found.type == cudaMemoryTypeHost)
    fail(ANN_INVALID_ARGUMENT, "%s is said to lie on device %d, but is pinned host memory", name, device);
  if (found.type == cudaMemoryTypeDevice && found.device != ordinal)
    fail(ANN_INVALID_ARGUMENT, "%s is said to lie on device %d, but lies on device %d", name, device,
         ANN_DEVICE_CUDA + found.device);
}

/// First and last byte speak for the rest, as memory is taken whole from the driver; one of them is enough where both lie
/// in the same 256 bytes, the least that is taken.
void check_memory(const CallerMemory& part, int32_t ordinal) {
  constexpr uintptr_t kPiece = 256;
  const uint8_t* first = static_cast<const uint8_t*>(part.begin);
  const uint8_t* last = first + part.bytes - 1;
  check_address(first, ordinal, part.name);
  if (reinterpret_cast<uintptr_t>(first) / kPiece != reinterpret_cast<uintptr_t>(last) / kPiece)
    check_address(last, ordinal, part.name);
}

void check_stream(cudaStream_t given, int32_t ordinal) {
  bool here = false;
  const cudaError_t error = runtime().stream_is_here(given, &here);
  runtime().last_error();
  if (error == cudaErrorInvalidResourceHandle || error == cudaErrorInvalidValue ||
      error == cudaErrorContextIsDestroyed)
    fail(ANN_INVALID_ARGUMENT, "params.stream is no stream that CUDA knows");
  check(error, "asking for a stream's context");
  if (!here)
    fail(ANN_INVALID_ARGUMENT,
         "params.stream belongs to another device than %d, or to another context "
         "than the CUDA runtime's",
         ANN_DEVICE_CUDA + ordinal);
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  check(runtime().stream_capture(given, &capture), "asking whether a stream is captured");
  if (capture != cudaStreamCaptureStatusNone)
    fail(ANN_UNSUPPORTED, "params.stream is being captured into a graph, which searches do not support");
}

}  // namespace

bool is_child() noexcept {
  const volatile uint8_t* known = mark.load(std::memory_order_acquire);
  if (known != nullptr) return *known == 0;
  const pid_t asked = owner.load(std::memory_order_relaxed);
  return asked != 0 && asked != getpid();
}

bool is_abandoned() noexcept { return first_fault.load(std::memory_order_relaxed) != 0 || is_child(); }

void require_live() {
  if (is_child()) fail(ANN_NO_DEVICE, "CUDA cannot be used here: %s", kForked);
  const int32_t fault = first_fault.load(std::memory_order_relaxed);
  if (fault == 0) return;
  Error error;
  error.status = ANN_DEVICE_LOST;
  error.cuda_error = fault;
  std::snprintf(error.message, sizeof error.message,
                "an earlier fault (%s) ended this process's use of CUDA; CPU indexes go on",
                cudaGetErrorName(static_cast<cudaError_t>(fault)));
  throw error;
}

void raise(cudaError_t cuda_error, const char* what) {
  runtime().last_error();
  Error error;
  error.status = status_of(cuda_error);
  error.cuda_error = static_cast<int32_t>(cuda_error);
  if (error.status == ANN_DEVICE_LOST) {
    int32_t none = 0;
    first_fault.compare_exchange_strong(none, static_cast<int32_t>(cuda_error));
  }
  std::snprintf(error.message, sizeof error.message, "%s failed: %s (%s)%s", what,
                cudaGetErrorString(cuda_error), cudaGetErrorName(cuda_error), advice_of(cuda_error));
  throw error;
}

void raise_no_memory(size_t bytes) {
  runtime().last_error();
  Error error;
  error.status = ANN_DEVICE_NO_MEMORY;
  error.cuda_error = static_cast<int32_t>(cudaErrorMemoryAllocation);
  std::snprintf(error.message, sizeof error.message, "%zu bytes of device memory were refused by the driver",
                bytes);
  throw error;
}

const Probe& probe() {
  static const Probe found = ask_driver();
  return found;
}

void check_on_device(std::span<const CallerMemory> parts, void* stream, int32_t ordinal) {
  const DeviceGuard guard(ordinal);
  for (const CallerMemory& part : parts) {
    if (part.begin != nullptr && part.bytes != 0) check_memory(part, ordinal);
  }
  if (stream != nullptr) check_stream(static_cast<cudaStream_t>(stream), ordinal);
}

void wait_for_default_streams(int32_t ordinal) {
  const DeviceGuard guard(ordinal);
  for (const cudaStream_t stream : {cudaStreamLegacy, cudaStreamPerThread}) {
    const cudaError_t error = runtime().wait_for_stream(stream);
    // While a stream that waits for them is captured there is nothing of the caller's to wait for.
    if (error == cudaErrorStreamCaptureUnsupported || error == cudaErrorStreamCaptureImplicit)
      runtime().last_error();
    else
      check(error, "waiting for a default stream");
  }
}

void fetch_rows(const void* from, uint64_t stride, uint64_t bytes, uint64_t rows, int32_t ordinal, void* to,
                const Execution& execution) {
  const DeviceGuard guard(ordinal);
  const Stream stream;
  Transfers(execution).fetch_rows(to, bytes, from, stride, bytes, rows, stream);
}

void trim_memory(bool always) noexcept { DevicePool::trim_all(always); }

void describe(int32_t ordinal, ann_device_info* out) {
  const DeviceGuard guard(ordinal);
  cudaDeviceProp properties;
  check(runtime().properties(&properties, ordinal), "asking for a device's properties");
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  check(runtime().memory_info(&free_bytes, &total_bytes), "asking for a device's memory");
  out->memory_total = total_bytes;
  out->memory_free = free_bytes;
  out->compute_units = static_cast<uint32_t>(properties.multiProcessorCount);
  out->capability = static_cast<uint32_t>(10 * properties.major + properties.minor);
  std::snprintf(out->name, sizeof out->name, "%.*s", static_cast<int>(sizeof out->name) - 1, properties.name);
}

}  // namespace gannet::cuda
