// Devices: which there are, and their properties.
//
// Nothing here runs when the library is loaded, and nothing on the CPU path calls the CUDA half: a
// process that has called the driver once cannot use CUDA in the children that it forks later.
#pragma once

#include <cstdint>
#include <span>

#include "ann.h"
#include "base/execution.h"

namespace gannet {

/// Number of CUDA devices that calls may use. `reason`, which may be null, gets a text that lives as
/// long as the library: why there is none, or "". The driver is queried once in the process's life;
/// GANNET_BACKEND=cpu is honoured at each call, and then the driver is not queried.
uint32_t cuda_device_count(const char** reason);

/// Refuses numbers that name no CUDA device that calls may use (ANN_NO_DEVICE), with the reason, and all
/// of them after a fault (ANN_DEVICE_LOST).
void check_cuda_device(int32_t device);

/// The device of a call that has a CUDA procedure: AUTO is the CPU, or the first CUDA device where
/// GANNET_BACKEND=cuda says so.
int32_t choose_device(int32_t device);

/// Memory of a caller; `name` is the argument's.
struct CallerMemory {
  const void* begin;  // may be null
  uint64_t bytes;
  const char* name;
};

/// Refuses memory that kernels of a device (ANN_DEVICE_CUDA + i) cannot use: ANN_INVALID_ARGUMENT for
/// host memory and for that of another device. Managed memory is taken. Unless `stream`, a cudaStream_t, is null, also
/// refuses one on which the device cannot be given work: ANN_INVALID_ARGUMENT for one of another device or context,
/// ANN_UNSUPPORTED while it is captured. All in one call, since each makes the device current.
void check_on_device(std::span<const CallerMemory> parts, void* stream, int32_t device);

/// Waits for the work queued on the default streams of a device, that of this thread and the legacy one. The
/// library's own streams wait for no other, and a cudaMemcpy of less than 64 KB of ordinary host memory returns
/// before the device has it: 5 of 6 indexes of 300 such rows were wrong beside six busy processes (one NVIDIA
/// H200).
void wait_for_default_streams(int32_t device);

/// Copies rows of `bytes` bytes, `stride` bytes apart, from memory of a device to host memory, packed.
void fetch_rows(const void* from, uint64_t stride, uint64_t bytes, uint64_t rows, int32_t device, void* to,
                const Execution& execution);

/// Gives device memory that the library keeps for later calls back to the driver; unless `always`, only
/// of devices on which it holds no index and runs no call. Touches no driver where there is none.
void trim_device_memory(bool always) noexcept;

/// Fills everything but `struct_size`. Refuses numbers that name no device (ANN_NO_DEVICE).
void describe_device(int32_t device, ann_device_info* out);

#if defined(GANNET_HAS_CUDA) && GANNET_HAS_CUDA
namespace cuda {

/// The driver's answer to that query.
struct Probe {
  uint32_t count = 0;
  char reason[192] = {};
};

const Probe& probe();

/// Whether this process was forked from one that had called the driver, and why CUDA is closed to it then.
bool is_child() noexcept;
inline constexpr char kForked[] = "this process was forked from one that had used CUDA";

void trim_memory(bool always) noexcept;

/// Throws ANN_DEVICE_LOST after a fault, ANN_NO_DEVICE in the child of a process that used CUDA.
void require_live();

/// The CUDA halves of the above; `ordinal` counts from 0 and exists.
void check_on_device(std::span<const CallerMemory> parts, void* stream, int32_t ordinal);
void wait_for_default_streams(int32_t ordinal);
void fetch_rows(const void* from, uint64_t stride, uint64_t bytes, uint64_t rows, int32_t ordinal, void* to,
                const Execution& execution);

/// The CUDA half of describe_device; `ordinal` counts from 0 and exists.
void describe(int32_t ordinal, ann_device_info* out);

}  // namespace cuda
#endif

}  // namespace gannet
