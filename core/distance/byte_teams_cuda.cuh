// Rows of bytes compared with one vector by teams of lanes, for CAGRA's, TSDG's and GGNN's searches and for builds of
// GGNN's and TSDG's graphs. Sums of integers are exact in any order, so the size of a team is a matter of speed alone.
//
// A team of 2 to 32 lanes has four rows at a time, of which each lane reads 16 bytes in turn; the loads of all four are
// on their way before the first is used. A small team needs few exchanges at the end, a large one few turns.
#pragma once

#include "distance/metric_cuda.cuh"

namespace gannet::cuda {

/// The sum of a row x and the vector q.
enum class ByteSum {
  kProduct,  // x.q
  kSquare,   // x.x - 2 x.q, modulo 2^32: |x - q|^2 less q.q
};

template <uint32_t kTeam, ByteSum kSum>
struct ByteTeams {
  static constexpr uint32_t kRounds = 4;

  const uint8_t* vector;  // [stride]
  uint32_t stride;        // bytes, a multiple of 16
  uint32_t thread;        // of the warp or the block that compares
  uint32_t teams;         // of the warp or the block

  /// Calls take(place, sum) once for each place below `count`, on some thread; bytes(place) is where its row lies. By
  /// all threads; those of a warp come back together.
  template <class Bytes, class Take>
  __device__ void compare(uint32_t count, const Bytes& bytes, const Take& take) const {
    const uint32_t member = thread % kTeam;
    for (uint32_t base = 0; base < count; base += teams * kRounds) {
      const uint32_t first = base + thread / kTeam;
      uint32_t sums[kRounds] = {};
      for (uint32_t byte = member * sizeof(uint4); byte < stride; byte += kTeam * sizeof(uint4))
        add(first, count, bytes, byte, sums);
#pragma unroll
      for (uint32_t round = 0; round < kRounds; ++round) {
#pragma unroll
        for (uint32_t half = kTeam / 2; half != 0; half /= 2)
          sums[round] += __shfl_xor_sync(0xffffffff, sums[round], half);
        const uint32_t place = first + round * teams;
        if (member == round % kTeam && place < count) take(place, sums[round]);
      }
    }
  }

 private:
  template <class Bytes>
  __device__ void add(uint32_t first, uint32_t count, const Bytes& bytes, uint32_t byte,
                      uint32_t (&sums)[kRounds]) const {
    uint4 values[kRounds];
#pragma unroll
    for (uint32_t round = 0; round < kRounds; ++round) {
      const uint32_t place = first + round * teams;
      if (place < count) values[round] = words_at(bytes(place) + byte);
    }
    const uint4 own = words_at(vector + byte);
#pragma unroll
    for (uint32_t round = 0; round < kRounds; ++round) {
      if (first + round * teams >= count) continue;
      if constexpr (kSum == ByteSum::kProduct)
        sums[round] = add_products(values[round], own, sums[round]);
      else
        sums[round] +=
            add_products(values[round], values[round], 0) - 2 * add_products(values[round], own, 0);
    }
  }

  static __device__ uint4 words_at(const uint8_t* bytes) {
    return __ldg(reinterpret_cast<const uint4*>(bytes));
  }
};

}  // namespace gannet::cuda
