// The sum of all numbers before each, on a CUDA device by CUB. Compiled once for all phases.
#pragma once

#include <cstdint>

#include "backend/launch.h"

namespace gannet::cuda {

/// Bytes of device memory that sum_before() of so many numbers takes beside them.
uint64_t sum_scratch_bytes(uint64_t count);

/// sums[i] = numbers[0] + ... + numbers[i - 1].
void sum_before(const uint32_t* numbers, uint64_t* sums, uint64_t count, uint8_t* scratch,
                uint64_t scratch_bytes, const Stream& stream, const char* what);

/// The same for sums below 2^32, which replace the numbers.
uint64_t sum_in_place_scratch_bytes(uint64_t count);
void sum_before_in_place(uint32_t* numbers, uint64_t count, uint8_t* scratch, uint64_t scratch_bytes,
                         const Stream& stream, const char* what);

}  // namespace gannet::cuda
