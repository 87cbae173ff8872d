// A machine with CUDA devices that are none: a table of runtime functions (core/backend/runtime.h) whose
// device memory is host memory, whose streams run at once and whose kernels do nothing. It counts what
// is held, and answers any call with any error, so that what the library does then can be seen on every
// machine.
#pragma once

#include <cstdint>

#include "backend/runtime.h"

namespace gannet::fault {

/// The machine, and the calls that it saw. One of them exists at a time.
struct FakeMachine {
  // What it is.
  int devices = 1;
  int driver = CUDART_VERSION;
  cudaError_t probe_error = cudaSuccess;      // of counting devices
  cudaError_t kernel_error = cudaSuccess;     // of starting any kernel, and of asking how it fits
  uint64_t memory_bytes = uint64_t{8} << 30;  // of each device

  // The call that is to fail: the one with this number, counted from 1; 0: none.
  uint64_t failing = 0;
  cudaError_t error = cudaSuccess;
  bool memory_only = false;  // count those that take memory, streams or events only
  bool for_ever = false;     // and all after it
  bool sticky = false;       // then every call answers so: a lost device

  // What happened.
  uint64_t calls = 0;    // of all functions
  uint64_t counted = 0;  // towards `failing`
  uint64_t launches = 0;
  bool failed = false;
  int current = 0;                        // device
  cudaError_t left_behind = cudaSuccess;  // what last_error tells next
  uint64_t memory_held = 0;               // bytes of device memory that are taken and not given back
  uint64_t pinned_held = 0;
  uint64_t registered_held = 0;  // of host memory that was pinned where it lies
  int64_t streams = 0;
  int64_t events = 0;
};

/// Puts the machine in place of the runtime; the numbers in it go on changing.
void install(FakeMachine* machine);

/// Memory and a stream of a device of the machine, as a caller has them.
void* fake_memory(int device, uint64_t bytes);
cudaStream_t fake_stream(int device);

}  // namespace gannet::fault
