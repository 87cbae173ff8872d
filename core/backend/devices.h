// Devices: which there are, and what they are like.
//
// Nothing here runs when the library is loaded, and nothing on the CPU path calls the CUDA half: a
// process that has asked the driver once cannot use CUDA in the children that it forks later.
#pragma once

#include <cstdint>

#include "ann.h"

namespace gannet {

/// Number of CUDA devices that calls may use. `reason`, which may be null, gets a text that lives as
/// long as the library: why there is none, or "". The driver is asked once in the process's life;
/// GANNET_BACKEND=cpu is honoured at each call, and then the driver is not asked.
uint32_t cuda_device_count(const char** reason);

/// Refuses numbers that name no CUDA device that calls may use (ANN_NO_DEVICE), with the reason.
void check_cuda_device(int32_t device);

/// The device of a call that has a CUDA procedure: AUTO is the CPU, or the first CUDA device where
/// GANNET_BACKEND=cuda says so.
int32_t choose_device(int32_t device);

/// Fills everything but `struct_size`. Refuses numbers that name no device (ANN_NO_DEVICE).
void describe_device(int32_t device, ann_device_info* out);

#if defined(GANNET_HAS_CUDA) && GANNET_HAS_CUDA
namespace cuda {

/// What the driver said when it was asked.
struct Probe {
  uint32_t count = 0;
  char reason[192] = {};
};

const Probe& probe();

/// The CUDA half of describe_device; `ordinal` counts from 0 and exists.
void describe(int32_t ordinal, ann_device_info* out);

}  // namespace cuda
#endif

}  // namespace gannet
