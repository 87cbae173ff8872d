// Threads put keys in shared memory in order: the bitonic network of warp_sort_cuda.h, for lists whose length
// is not known before, or that no warp's registers hold.
#pragma once

#include <cstdint>

namespace gannet::cuda {

/// The threads that sort a list together, and how they wait for each other.
struct WarpSorts {
  uint32_t lane = threadIdx.x % 32;
  uint32_t lanes = 32;
  __device__ void sync() const { __syncwarp(); }
};
struct BlockSorts {
  uint32_t lane = threadIdx.x;
  uint32_t lanes = blockDim.x;
  __device__ void sync() const { __syncthreads(); }
};

/// The order of numbers.
struct Ascending {
  __device__ bool operator()(uint64_t a, uint64_t b) const { return a < b; }
};

/// Of sorted runs of half of `run` sorted ones, which rise and fall in turn; one of all keys rises.
template <class Team, class Less>
__device__ void merge_runs(uint64_t* keys, uint32_t size, uint32_t run, const Team& team, const Less& less) {
  for (uint32_t stride = run / 2; stride != 0; stride /= 2) {
    for (uint32_t i = team.lane; i < size / 2; i += team.lanes) {
      const uint32_t place = 2 * i - (i & (stride - 1));
      const uint64_t first = keys[place];
      const uint64_t second = keys[place + stride];
      if (less(second, first) == ((place & run) == 0)) {
        keys[place] = second;
        keys[place + stride] = first;
      }
    }
    team.sync();
  }
}

/// Sorts `size` keys, a power of two; runs of `sorted` keys rise and fall in turn already. Starts at once and
/// ends with all threads knowing of all keys.
template <class Team, class Less = Ascending>
__device__ void sort_shared(uint64_t* keys, uint32_t size, const Team& team, uint32_t sorted = 1,
                            const Less& less = {}) {
  for (uint32_t run = 2 * sorted; run <= size; run *= 2) merge_runs(keys, size, run, team, less);
}

}  // namespace gannet::cuda
