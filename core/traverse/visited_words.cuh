// The Bloom filter of threads that ask first and mark later, in shared memory (traverse/visited_bloom.h).
#pragma once

#include <cstdint>

#include "traverse/visited_bloom.h"

namespace gannet::cuda {

/// kBits of one word a row.
template <uint32_t kBits, uint32_t kWordBits>
struct VisitedWords {
  static constexpr uint32_t kWords = 1u << kWordBits;

  uint32_t* words;  // [kWords] in shared memory

  static __device__ BloomPlace place_of(uint32_t row) { return bloom_place<kBits>(row, kWordBits); }
  __device__ bool has(const BloomPlace& place) const { return place.is_in(words); }
  __device__ void add(const BloomPlace& place) const { atomicOr(words + place.word, place.bits); }
};

}  // namespace gannet::cuda
