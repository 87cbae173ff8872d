// Bloom filters of rows that a walk, or a round of finding neighbours, has visited. They never forget a row; they take
// some new rows for visited ones, which costs recall.
//
// Two forms. A warp that asks and marks in one step has two bits in each of two words: an atomic operation for each
// word, and the fewest new rows lost (one bit a row lost 1 % of recall at .995, two bits in one word .2 %; with one
// bit in each of two words SIFT 1M took 1.4 times as long at .998 and did not reach .999, with three in each up to
// 1.05 times as long at .95: VisitedBloom, traverse/walk_steps.cuh). Threads of several warps, which ask before a
// barrier and mark behind it, have all bits of a row in one word, one access for each: bloom_place(), of which
// VisitedWords is the filter (traverse/visited_words.cuh).
#pragma once

#include <cstdint>

namespace gannet {

/// A hash of a row, whose upper bits are the better mixed ones.
constexpr uint32_t mixed_row(uint32_t row) {
  uint32_t mixed = (row ^ row >> 15) * 0x2c1b3c6du;
  return (mixed ^ mixed >> 12) * 0x297a2d39u;
}

/// Bits of one word of a filter.
struct BloomPlace {
  uint32_t word;
  uint32_t bits;

  constexpr bool is_in(const uint32_t* filter) const { return (filter[word] & bits) == bits; }
};

/// The place of a row in a filter of 2^word_bits words, of kBits bits (or fewer, where some coincide).
template <uint32_t kBits>
constexpr BloomPlace bloom_place(uint32_t row, uint32_t word_bits) {
  static_assert(kBits <= 3);  // with up to 17 bits of the word
  const uint32_t hash = mixed_row(row);
  BloomPlace place = {hash >> (32 - word_bits), 0};
  for (uint32_t i = 1; i <= kBits; ++i) place.bits |= 1u << (hash >> (32 - word_bits - 5 * i) & 31);
  return place;
}

/// Bits of a row in the filter of a walk by several warps.
inline constexpr uint32_t kWalkBits = 3;

}  // namespace gannet
