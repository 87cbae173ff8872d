// Numbers with a number each, sorted on a CUDA device by CUB's radix sort: stable, so that numbers with equal
// keys keep their order. Compiled once for all phases.
#pragma once

#include <cstdint>

#include "backend/launch.h"

namespace gannet::cuda {

/// Two arrays of the same length that change places: `current` holds the sorted items, the other is free.
struct SortBuffer {
  uint32_t* current;
  uint32_t* other;
};

/// Bytes of device memory that sorting `count` pairs by the lower `key_bits` bits takes beside the buffers.
uint64_t sort_scratch_bytes(uint64_t count, int key_bits);

/// Sorts by key. The sorted keys and values are then `current` in both buffers.
void sort_pairs(SortBuffer* keys, SortBuffer* values, uint64_t count, int key_bits, uint8_t* scratch,
                uint64_t scratch_bytes, const Stream& stream, const char* what);

/// Sorts from arrays that stay as they are into others, by way of as much memory again.
void sort_pairs_apart(const uint32_t* keys, uint32_t* sorted_keys, const uint32_t* values,
                      uint32_t* sorted_values, uint64_t count, int key_bits, const Stream& stream,
                      const char* what);

}  // namespace gannet::cuda
