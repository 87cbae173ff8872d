// Where a row stands in a Bloom filter of rows that a walk has met: three bits of one word. One word, so
// that the threads that share a filter look a row up, and enter it, in one access each.
#pragma once

#include <cstdint>

namespace gannet {

/// The word, of 2^word_bits.
constexpr uint32_t met_word(uint32_t row, uint32_t word_bits) {
  return (row * 0x9e3779b1u) >> (32 - word_bits);
}

/// The bits.
constexpr uint32_t met_bits(uint32_t row) {
  uint32_t mixed = (row ^ row >> 15) * 0x2c1b3c6du;
  mixed = (mixed ^ mixed >> 12) * 0x297a2d39u;
  return 1u << (mixed >> 27) | 1u << (mixed >> 22 & 31) | 1u << (mixed >> 17 & 31);
}

}  // namespace gannet
