// The CUDA half of devices.h, and the errors of launch.h.

#include <atomic>
#include <cstdio>

#include "backend/devices.h"
#include "backend/launch.h"

namespace gannet::cuda {
namespace {

/// The first fault of this process, a cudaError_t; 0: none.
std::atomic<int32_t> first_fault = 0;

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
  Probe found;
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  cudaGetLastError();
  if (error == cudaSuccess && count > 0) {
    found.count = static_cast<uint32_t>(count);
    return found;
  }
  int driver = 0;
  cudaDriverGetVersion(&driver);
  cudaGetLastError();
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

}  // namespace

void require_live() {
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
  cudaGetLastError();
  Error error;
  error.status = status_of(cuda_error);
  error.cuda_error = static_cast<int32_t>(cuda_error);
  if (error.status == ANN_DEVICE_LOST) {
    int32_t none = 0;
    first_fault.compare_exchange_strong(none, static_cast<int32_t>(cuda_error));
  }
  std::snprintf(error.message, sizeof error.message, "%s failed: %s (%s)", what,
                cudaGetErrorString(cuda_error), cudaGetErrorName(cuda_error));
  throw error;
}

void raise_no_memory(size_t bytes) {
  cudaGetLastError();
  Error error;
  error.status = ANN_DEVICE_NO_MEMORY;
  error.cuda_error = static_cast<int32_t>(cudaErrorMemoryAllocation);
  std::snprintf(error.message, sizeof error.message,
                "%zu bytes of device memory were refused by the driver", bytes);
  throw error;
}

const Probe& probe() {
  static const Probe found = ask_driver();
  return found;
}

void describe(int32_t ordinal, ann_device_info* out) {
  const DeviceGuard guard(ordinal);
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, ordinal), "asking for a device's properties");
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  check(cudaMemGetInfo(&free_bytes, &total_bytes), "asking for a device's memory");
  out->memory_total = total_bytes;
  out->memory_free = free_bytes;
  out->compute_units = static_cast<uint32_t>(properties.multiProcessorCount);
  out->capability = static_cast<uint32_t>(10 * properties.major + properties.minor);
  std::snprintf(out->name, sizeof out->name, "%.*s", static_cast<int>(sizeof out->name) - 1,
                properties.name);
}

}  // namespace gannet::cuda
