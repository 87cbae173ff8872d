// The k nearest of a stream of distances: a buffer that takes those below a limit, and now and
// then is thinned out to about k, which lowers the limit.
//
// A sorted list pays a search and a shift for every entry; here an entry costs a compare, shared by
// 16 lanes, and a store. Some 300 of 8,000 distances in no order enter a list of 48, and the
// buffer is thinned five times. Thinning bisects for a limit that leaves k to k + k / 8 + 16 entries:
// about eight counts of 128 numbers, where std::nth_element took ten times as long (its branches
// cannot be foreseen).
//
// The kept ones depend on the order in which distances are shown only where distances are equal: of
// those that lie at the k-th distance the first shown stay, and callers show them in a fixed order; or
// those with the lowest ids, where the list knows ids.
//
// Each level includes this in its own file and so gets it in its own instruction set.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

#include "distance/kernels.h"

namespace gannet {
namespace {  // one copy for each file, compiled with that file's instruction set

/// Appends (line[j], first + j) for every line[j] < limit, j < count <= kNearestPiece; how many.
uint32_t take_below(const uint32_t* line, uint32_t count, uint32_t limit, uint32_t first, uint32_t* distances,
                    uint32_t* places) {
  uint32_t taken = 0;
  uint32_t j = 0;
#if defined(__AVX512F__)
  const __m512i bound = _mm512_set1_epi32(static_cast<int>(limit));
  const __m512i steps = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  for (; j < count; j += 16) {
    const __mmask16 there =
        count - j >= 16 ? __mmask16{0xffff} : static_cast<__mmask16>((1u << (count - j)) - 1);
    const __m512i values = _mm512_maskz_loadu_epi32(there, line + j);
    const __mmask16 nearer = _mm512_mask_cmplt_epu32_mask(there, values, bound);
    if (nearer == 0) continue;
    const __m512i numbers = _mm512_add_epi32(_mm512_set1_epi32(static_cast<int>(first + j)), steps);
    // To registers and stored whole: compressing to memory is microcode on some machines.
    _mm512_storeu_si512(distances + taken, _mm512_maskz_compress_epi32(nearer, values));
    _mm512_storeu_si512(places + taken, _mm512_maskz_compress_epi32(nearer, numbers));
    taken += static_cast<uint32_t>(__builtin_popcount(nearer));
  }
#else
#if defined(__AVX2__)
  const __m256i top = _mm256_set1_epi32(INT32_MIN);  // unsigned order by a signed compare
  const __m256i bound = _mm256_xor_si256(top, _mm256_set1_epi32(static_cast<int>(limit)));
  for (; j + 8 <= count; j += 8) {
    const __m256i values = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(line + j));
    const __m256i nearer = _mm256_cmpgt_epi32(bound, _mm256_xor_si256(top, values));
    uint32_t bits = static_cast<uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(nearer)));
    for (; bits != 0; bits &= bits - 1) {
      const uint32_t at = j + static_cast<uint32_t>(__builtin_ctz(bits));
      distances[taken] = line[at];
      places[taken++] = first + at;
    }
  }
#endif
  for (; j < count; ++j) {
    distances[taken] = line[j];
    places[taken] = first + j;
    taken += line[j] < limit ? 1 : 0;
  }
#endif
  return taken;
}

/// How many of `count` numbers, a multiple of 16, are at most `bound`.
uint32_t count_within(const uint32_t* numbers, uint32_t count, uint32_t bound) {
  uint32_t sums[16] = {};
  for (uint32_t i = 0; i < count; i += 16) {
    for (uint32_t lane = 0; lane < 16; ++lane) sums[lane] += numbers[i + lane] <= bound ? 1 : 0;
  }
  uint32_t sum = 0;
  for (const uint32_t lane : sums) sum += lane;
  return sum;
}

/// Moves the entries within a bound to the front; how many.
uint32_t take_again(NearestList& list, uint32_t bound) {
  uint32_t kept = 0;
  uint32_t i = 0;
#if defined(__AVX512F__)
  const __m512i bounds = _mm512_set1_epi32(static_cast<int>(bound));
  for (; i < list.size; i += 16) {  // the last vector is padded with UINT32_MAX
    const __m512i values = _mm512_loadu_si512(list.distances + i);
    const __m512i places = _mm512_loadu_si512(list.places + i);
    const __mmask16 within = _mm512_cmple_epu32_mask(values, bounds);
    _mm512_storeu_si512(list.distances + kept, _mm512_maskz_compress_epi32(within, values));
    _mm512_storeu_si512(list.places + kept, _mm512_maskz_compress_epi32(within, places));
    kept += static_cast<uint32_t>(__builtin_popcount(within));
  }
#endif
  for (; i < list.size; ++i) {
    const uint32_t distance = list.distances[i];
    list.distances[kept] = distance;
    list.places[kept] = list.places[i];
    kept += distance <= bound ? 1 : 0;
  }
  return kept;
}

/// Drops the farthest entries, at `distance`, except the `count` with the lowest ids.
void keep_lowest_ids(NearestList& list, uint32_t distance, uint32_t count) {
  uint32_t nearer = 0;
  for (uint32_t i = 0; i < list.size; ++i) {
    std::swap(list.places[nearer], list.places[i]);
    std::swap(list.distances[nearer], list.distances[i]);
    nearer += list.distances[nearer] < distance ? 1 : 0;
  }
  std::nth_element(list.places + nearer, list.places + nearer + count, list.places + list.size,
                   [&](uint32_t a, uint32_t b) { return list.ids[a] < list.ids[b]; });
  list.size = nearer + count;
}

/// Drops entries that are not among the nearest k, except some, and lowers the limit.
void thin_out(NearestList& list) {
  if (list.size <= list.k) return;
  const uint32_t padded = (list.size + 15) / 16 * 16;
  std::fill(list.distances + list.size, list.distances + padded, UINT32_MAX);
  uint32_t low = UINT32_MAX;  // ends as a bound that leaves too few, less one
  uint32_t high = 0;
  for (uint32_t i = 0; i < list.size; ++i) {
    low = std::min(low, list.distances[i]);
    high = std::max(high, list.distances[i]);
  }
  const uint32_t most = nearest_kept(list.k);
  uint32_t within = list.size;
  // Between `low` and `high` lies the least bound within which there are k.
  while (within > most && low < high) {
    const uint32_t middle = low + (high - low) / 2;
    const uint32_t count = count_within(list.distances, padded, middle);
    if (count < list.k) {
      low = middle + 1;
    } else {
      high = middle;
      within = count;
    }
  }
  // More than `most` within the least bound: equal distances, of which the first stay.
  uint32_t ties = UINT32_MAX;
  if (within > most) ties = list.k - (high == 0 ? 0 : count_within(list.distances, padded, high - 1));
  list.limit = ties == UINT32_MAX || list.ids != nullptr ? high + 1 : high;
  if (ties != UINT32_MAX && list.ids != nullptr) {
    // Those beyond the bound first, as they would stand among the farthest.
    list.size = take_again(list, high);
    return keep_lowest_ids(list, high, ties);
  }
  uint32_t kept = 0;
  if (ties == UINT32_MAX) {
    kept = take_again(list, high);
  } else {
    for (uint32_t i = 0; i < list.size; ++i) {
      const uint32_t distance = list.distances[i];
      const bool tie = distance == high && ties != 0;
      list.distances[kept] = distance;
      list.places[kept] = list.places[i];
      ties -= tie ? 1 : 0;
      kept += distance < high || tie ? 1 : 0;
    }
  }
  list.size = kept;
}

/// Shows the distances line[0..count) of the places first, first + 1, ...
void show_nearest(NearestList& list, const uint32_t* line, uint32_t count, uint32_t first) {
  for (uint32_t at = 0; at < count; at += kNearestPiece) {
    const uint32_t piece = std::min(kNearestPiece, count - at);
    if (list.size + piece > nearest_kept(list.k) + kNearestPiece) thin_out(list);
    list.size += take_below(line + at, piece, list.limit, first + at, list.distances + list.size,
                            list.places + list.size);
  }
}

/// The largest bound such that the weights of all line[j] <= bound add up to at most `budget`; weights
/// are not 0. UINT32_MAX if all fit, and false if none does. Stops early with a lower bound that uses
/// 15/16 of the budget.
bool bound_within(const uint32_t* line, const uint32_t* weights, uint32_t count, uint32_t budget,
                  uint32_t* bound) {
  uint32_t least = UINT32_MAX;
  uint32_t most = 0;
  for (uint32_t j = 0; j < count; ++j) {
    least = std::min(least, line[j]);
    most = std::max(most, line[j]);
  }
  const auto weight = [&](uint32_t limit) {
    uint32_t sum = 0;
    for (uint32_t j = 0; j < count; ++j) sum += line[j] <= limit ? weights[j] : 0;
    return sum;
  };
  if (weight(least) > budget) return false;
  uint32_t low = least;  // fits
  uint32_t high = most;  // does not, or is the last to try
  *bound = most;
  if (weight(most) <= budget) return true;
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    const uint32_t sum = weight(middle);
    if (sum <= budget) {
      low = middle;
      if (sum >= budget - budget / 16) break;
    } else {
      high = middle;
    }
  }
  *bound = low;
  return true;
}

/// Sorts distinct keys by counting, for each, those below it: k^2 compares, 8 at a time and without
/// a branch, which for lists of up to 256 beats std::sort several times over. `from` and `to` do not
/// overlap.
void sort_keys(const uint64_t* from, uint32_t count, uint64_t* to) {
  for (uint32_t i = 0; i < count; ++i) {
    const uint64_t key = from[i];
    uint64_t below = 0;
    for (uint32_t j = 0; j < count; ++j) below += from[j] < key ? 1 : 0;
    to[below] = key;
  }
}

}  // namespace
}  // namespace gannet
