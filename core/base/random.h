// Counter-based random numbers: the value is a pure function of (seed, stream, counter).
//
// Any thread can draw any number without a state to share, so results do not depend on how work is
// divided. The mixer is SplitMix64's finaliser (Steele, Lea and Flood, "Fast splittable pseudorandom
// number generators", 2014), applied once per word that goes in.
#pragma once

#include <cstdint>

namespace gannet {

constexpr uint64_t mix(uint64_t word) {
  word += 0x9e3779b97f4a7c15;
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
  word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
  return word ^ (word >> 31);
}

constexpr uint64_t random_word(uint64_t seed, uint64_t stream, uint64_t counter) {
  return mix(mix(mix(seed) ^ stream) ^ counter);
}

/// A number below `bound`; the bias, bound / 2^64, is beyond measuring.
constexpr uint64_t random_below(uint64_t bound, uint64_t seed, uint64_t stream, uint64_t counter) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(random_word(seed, stream, counter)) * bound) >>
                               64);
}

/// `count` <= `bound` distinct numbers below `bound`, ascending: out[i] is drawn from the i-th of
/// `count` equal strata, which spreads the sample over the whole range.
inline void random_strata(uint64_t bound, uint64_t count, uint64_t seed, uint64_t stream, uint32_t* out) {
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t begin = static_cast<uint64_t>(static_cast<unsigned __int128>(bound) * i / count);
    const uint64_t end = static_cast<uint64_t>(static_cast<unsigned __int128>(bound) * (i + 1) / count);
    out[i] = static_cast<uint32_t>(begin + random_below(end - begin, seed, stream, i));
  }
}

}  // namespace gannet
