#include <cub/device/device_radix_sort.cuh>

#include "backend/sort_pairs.h"

namespace gannet::cuda {

uint64_t sort_scratch_bytes(uint64_t count, int key_bits) {
  cub::DoubleBuffer<uint32_t> none;
  size_t bytes = 0;
  check(cub::DeviceRadixSort::SortPairs(nullptr, bytes, none, none, count, 0, key_bits),
        "asking for the bytes of a sort");
  return bytes;
}

void sort_pairs(SortBuffer* keys, SortBuffer* values, uint64_t count, int key_bits, uint8_t* scratch,
                uint64_t scratch_bytes, const Stream& stream, const char* what) {
  cub::DoubleBuffer<uint32_t> key_buffer(keys->current, keys->other);
  cub::DoubleBuffer<uint32_t> value_buffer(values->current, values->other);
  size_t bytes = scratch_bytes;
  check(cub::DeviceRadixSort::SortPairs(scratch, bytes, key_buffer, value_buffer, count, 0, key_bits, stream),
        what);
  *keys = {key_buffer.Current(), key_buffer.Alternate()};
  *values = {value_buffer.Current(), value_buffer.Alternate()};
}

void sort_pairs_apart(const uint32_t* keys, uint32_t* sorted_keys, const uint32_t* values,
                      uint32_t* sorted_values, uint64_t count, int key_bits, const Stream& stream,
                      const char* what) {
  size_t bytes = 0;
  const auto sort = [&](uint8_t* scratch) {
    check(cub::DeviceRadixSort::SortPairs(scratch, bytes, keys, sorted_keys, values, sorted_values, count, 0,
                                          key_bits, stream),
          what);
  };
  sort(nullptr);
  const DeviceArray<uint8_t> scratch(bytes, stream);
  sort(scratch.data());
}

}  // namespace gannet::cuda
