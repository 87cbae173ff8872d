// CUB's sort and sums, compiled once for all phases.

#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>

#include "backend/prefix_sums.h"
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

uint64_t sum_scratch_bytes(uint64_t count) {
  size_t bytes = 0;
  check(cub::DeviceScan::ExclusiveScan(nullptr, bytes, static_cast<const uint32_t*>(nullptr),
                                       static_cast<uint64_t*>(nullptr), ::cuda::std::plus<uint64_t>(),
                                       uint64_t{0}, count),
        "asking for the bytes of a sum");
  return bytes;
}

void sum_before(const uint32_t* numbers, uint64_t* sums, uint64_t count, uint8_t* scratch,
                uint64_t scratch_bytes, const Stream& stream, const char* what) {
  size_t bytes = scratch_bytes;
  check(cub::DeviceScan::ExclusiveScan(scratch, bytes, numbers, sums, ::cuda::std::plus<uint64_t>(),
                                       uint64_t{0}, count, stream),
        what);
}

uint64_t sum_in_place_scratch_bytes(uint64_t count) {
  size_t bytes = 0;
  uint32_t* none = nullptr;
  check(cub::DeviceScan::ExclusiveSum(nullptr, bytes, none, none, count), "asking for the bytes of a sum");
  return bytes;
}

void sum_before_in_place(uint32_t* numbers, uint64_t count, uint8_t* scratch, uint64_t scratch_bytes,
                         const Stream& stream, const char* what) {
  size_t bytes = scratch_bytes;
  check(cub::DeviceScan::ExclusiveSum(scratch, bytes, numbers, numbers, count, stream), what);
}

}  // namespace gannet::cuda
