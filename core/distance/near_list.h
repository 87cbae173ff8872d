// The sorted list of a walk: the nearest rows met, of which some have been expanded.
//
// A walk shows it some thirty rows at a time, of which a few are near enough to stay. A binary search and
// a shift for each of these foresee nothing: they mispredict a branch or two and call memmove, which was a
// quarter of a search. Here a key is let in a vector of the list at a time, from the back, by
//
//     list[i] = max(list[i - 1], min(list[i], key))
//
// which is five instructions for eight keys, no branch, and no vector waits for another. Doing so from
// the first vector on costs less than finding out where the key belongs, up to kSinkWhole of them. Lists of up to
// kSinkHeld vectors are loaded once for all keys: .9 of a search's time on SIFT and words with beams up to 64. Lists of
// more than kSinkMax vectors are merged with the sorted keys instead, which moves each place once however
// many keys come.
//
// The keys kept do not depend on the order in which rows are offered.
//
// Each level includes this in its own file and so gets it in its own instruction set.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

#include "distance/kernels.h"

namespace gannet {
namespace {  // one copy for each file, compiled with that file's instruction set

/// The keys of those rows whose key is below `limit`, with room for a vector more; how many.
uint32_t keys_below(const uint32_t* distances, const uint32_t* rows, uint32_t count, uint64_t limit,
                    uint64_t* keys) {
  uint32_t taken = 0;
#if defined(__AVX512F__)
  const __m512i limits = _mm512_set1_epi64(static_cast<int64_t>(limit));
  for (uint32_t i = 0; i < count; i += 8) {
    const __mmask8 there = count - i >= 8 ? __mmask8{0xff} : static_cast<__mmask8>((1u << (count - i)) - 1);
    const __m512i distance = _mm512_cvtepu32_epi64(_mm256_maskz_loadu_epi32(there, distances + i));
    const __m512i row = _mm512_cvtepu32_epi64(_mm256_maskz_loadu_epi32(there, rows + i));
    const __m512i key = _mm512_or_si512(_mm512_slli_epi64(distance, 32), _mm512_add_epi64(row, row));
    const __mmask8 below = _mm512_mask_cmplt_epu64_mask(there, key, limits);
    // To registers and stored whole: compressing to memory is microcode on some machines.
    _mm512_storeu_si512(keys + taken, _mm512_maskz_compress_epi64(below, key));
    taken += static_cast<uint32_t>(__builtin_popcount(below));
  }
#else
  for (uint32_t i = 0; i < count; ++i) {
    const uint64_t key = uint64_t{distances[i]} << 32 | uint64_t{rows[i]} << 1;
    keys[taken] = key;
    taken += key < limit ? 1 : 0;
  }
#endif
  return taken;
}

/// How many of `count` ascending keys, `step` apart, are below `key`.
uint32_t count_below(const uint64_t* keys, uint32_t count, uint32_t step, uint64_t key) {
  uint32_t below = 0;
  while (count > 0) {
    const uint32_t half = (count + 1) / 2;
    below += keys[size_t{below + half - 1} * step] < key ? half : 0;
    count -= half;
  }
  return below;
}

/// Merges keys into a list; a place before which nothing has changed.
uint32_t merge_in(NearList& list, uint64_t* keys, uint32_t count) {
  std::sort(keys, keys + count);
  uint32_t end = list.size;
  for (uint32_t i = count; i-- > 0;) {
    const uint32_t place = count_below(list.keys, end, 1, keys[i]);
    std::memmove(list.keys + place + i + 1, list.keys + place, (end - place) * sizeof(uint64_t));
    list.keys[place + i] = keys[i];
    end = place;
  }
  // The keys pushed out.
  for (uint32_t i = list.capacity; i < list.size + count; ++i) list.keys[i] = UINT64_MAX;
  return end;
}

#if defined(__AVX512F__)
constexpr uint32_t kKeys = 8;  // of a vector
using KeyVector = __m512i;
KeyVector load_keys(const uint64_t* at) { return _mm512_loadu_si512(at); }
void store_keys(uint64_t* at, KeyVector keys) { _mm512_storeu_si512(at, keys); }
KeyVector all_keys(uint64_t key) { return _mm512_set1_epi64(static_cast<int64_t>(key)); }

/// The keys in the place of `old`, behind `before`, when `key` is inserted.
KeyVector let_in(KeyVector old, KeyVector before, KeyVector key) {
  return _mm512_max_epu64(_mm512_alignr_epi64(old, before, 7), _mm512_min_epu64(old, key));
}
#elif defined(__AVX2__)
constexpr uint32_t kKeys = 4;
using KeyVector = __m256i;  // with the top bit turned: unsigned order is that of a signed compare then
KeyVector turned(KeyVector keys) { return _mm256_xor_si256(keys, _mm256_set1_epi64x(INT64_MIN)); }
KeyVector load_keys(const uint64_t* at) {
  return turned(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
}
void store_keys(uint64_t* at, KeyVector keys) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), turned(keys));
}
KeyVector all_keys(uint64_t key) { return turned(_mm256_set1_epi64x(static_cast<int64_t>(key))); }

KeyVector let_in(KeyVector old, KeyVector before, KeyVector key) {
  const __m256i shifted = _mm256_alignr_epi8(old, _mm256_permute2x128_si256(before, old, 0x21), 8);
  const __m256i nearer = _mm256_blendv_epi8(old, key, _mm256_cmpgt_epi64(old, key));
  return _mm256_blendv_epi8(nearer, shifted, _mm256_cmpgt_epi64(shifted, key));
}
#else
constexpr uint32_t kKeys = 1;
using KeyVector = uint64_t;
KeyVector load_keys(const uint64_t* at) { return *at; }
void store_keys(uint64_t* at, KeyVector key) { *at = key; }
KeyVector all_keys(uint64_t key) { return key; }
KeyVector let_in(KeyVector old, KeyVector before, KeyVector key) {
  return std::max(before, std::min(old, key));
}
#endif

/// Lists of more vectors are merged.
constexpr uint32_t kSinkMax = 64;

/// Lists of so few vectors stay in registers while keys sink into them: half of 32 registers, or of 16.
constexpr uint32_t kSinkHeld = kKeys == 8 ? 8 : kKeys == 4 ? 4 : 0;

/// Lets keys sink into a list of as many vectors.
template <uint32_t kVectors>
void sink_held(uint64_t* list, const uint64_t* keys, uint32_t count) {
  KeyVector held[kVectors];
  for (uint32_t v = 0; v < kVectors; ++v) held[v] = load_keys(list + kKeys * v);
  for (uint32_t i = 0; i < count; ++i) {
    const KeyVector key = all_keys(keys[i]);
    for (uint32_t v = kVectors - 1; v > 0; --v) held[v] = let_in(held[v], held[v - 1], key);
    held[0] = let_in(held[0], all_keys(0), key);
  }
  for (uint32_t v = 0; v < kVectors; ++v) store_keys(list + kKeys * v, held[v]);
}

void sink_held(uint64_t* list, uint32_t vectors, const uint64_t* keys, uint32_t count) {
  switch (vectors) {
    case 1:
      return sink_held<1>(list, keys, count);
    case 2:
      return sink_held<2>(list, keys, count);
    case 3:
      return sink_held<3>(list, keys, count);
    case 4:
      return sink_held<4>(list, keys, count);
    case 5:
      return sink_held<5>(list, keys, count);
    case 6:
      return sink_held<6>(list, keys, count);
    case 7:
      return sink_held<7>(list, keys, count);
    default:
      return sink_held<8>(list, keys, count);
  }
}

/// Of so few vectors none are stepped over.
constexpr uint32_t kSinkWhole = 24;

/// Clears the keys pushed out of a capacity that is not whole vectors.
void clear_behind(NearList& near) {
  for (uint32_t i = near.capacity; i % kKeys != 0; ++i) near.keys[i] = UINT64_MAX;
}

/// Lets keys sink into a list; a place before which nothing has changed.
uint32_t sink_in(NearList& near, const uint64_t* keys, uint32_t count) {
  uint64_t* list = near.keys;
  // Only vectors that hold keys, or will.
  const uint32_t vectors = (std::min(near.size + count, near.capacity) + kKeys - 1) / kKeys;
  uint32_t first = 0;
  if (vectors <= kSinkHeld) {
    sink_held(list, vectors, keys, count);
    clear_behind(near);
    return 0;
  }
  if (vectors > kSinkWhole) {
    const uint64_t least = *std::min_element(keys, keys + count);
    first = std::min(count_below(list + kKeys - 1, vectors, kKeys, least), vectors - 1);
  }
  for (uint32_t i = 0; i < count; ++i) {
    const KeyVector key = all_keys(keys[i]);
    KeyVector old = load_keys(list + kKeys * (vectors - 1));
    for (uint32_t v = vectors - 1; v > first; --v) {
      const KeyVector before = load_keys(list + kKeys * (v - 1));
      store_keys(list + kKeys * v, let_in(old, before, key));
      old = before;
    }
    // Where anything stands before, it is smaller than the key, as 0 is.
    store_keys(list + kKeys * first, let_in(old, all_keys(0), key));
  }
  clear_behind(near);
  return kKeys * first;
}

/// Shows a list up to kNearPiece rows.
void show_piece(NearList& list, const uint32_t* distances, const uint32_t* rows, uint32_t count) {
  uint64_t keys[kNearPiece + 8];
  const uint64_t limit = list.size < list.capacity ? UINT64_MAX : list.keys[list.capacity - 1];
  const uint32_t taken = keys_below(distances, rows, count, limit, keys);
  if (taken == 0) return;
  const uint32_t changed =
      list.capacity <= kSinkMax * kKeys ? sink_in(list, keys, taken) : merge_in(list, keys, taken);
  list.size = std::min(list.size + taken, list.capacity);
  list.next = std::min(list.next, changed);
}

void show_near(NearList& list, const uint32_t* distances, const uint32_t* rows, uint32_t count) {
  for (uint32_t at = 0; at < count; at += kNearPiece)
    show_piece(list, distances + at, rows + at, std::min(kNearPiece, count - at));
}

uint32_t next_near(const NearList& list, uint32_t place) {
#if defined(__AVX512F__)
  // Places that hold no key have the flag, and so has all of the room behind them.
  const __m512i flag = _mm512_set1_epi64(1);
  for (; place < list.size; place += 8) {
    const __mmask8 open = _mm512_testn_epi64_mask(_mm512_loadu_si512(list.keys + place), flag);
    if (open != 0) return place + static_cast<uint32_t>(__builtin_ctz(open));
  }
  return list.size;
#else
  while (place < list.size && (list.keys[place] & 1) != 0) ++place;
  return place;
#endif
}

}  // namespace
}  // namespace gannet
