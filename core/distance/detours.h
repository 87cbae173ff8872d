// Counting detours: which entries of one list stand, nearer, in another (graph/prune.cpp).
//
// Every entry of the other list is compared with 16 entries of the own list at once, counts in
// registers and no branch: at a degree of 32 some 6,000 plain operations a row. A hash of the own
// list's ranks needs 1,024 look-ups, whose outcome no branch predictor knows, and took six times as
// long.
//
// Without AVX-512 the lanes are the compiler's vectors, since it makes none of plain loops: of lists of 64, 48 looked
// at, 3.6 us a row by AVX2 and 7.5 by portable code instead of 70, which was 57 % of a build of 110,000 rows.
//
// Each level includes this in its own file and so gets it in its own instruction set.
#pragma once

#include <algorithm>
#include <cstdint>
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "distance/kernels.h"
#include "distance/lanes.h"

namespace gannet {
namespace {  // one copy for each file, compiled with that file's instruction set

/// detours[r] += 1 for every r with own[r] == theirs[p] for a p, and r > rank, r > p. `own` and
/// `detours` are `count` long, a multiple of kDetourRanks; `theirs` holds no number that marks an unused
/// place of `own`.
void count_detours(const uint32_t* own, uint32_t count, const uint32_t* theirs, uint32_t their_count,
                   uint32_t rank, uint32_t* detours) {
  for (uint32_t first = rank / kDetourRanks * kDetourRanks; first < count; first += kDetourRanks) {
    // Entries at the last of these ranks or behind it are no nearer than any of them.
    const uint32_t entries = std::min(their_count, first + kDetourRanks - 1);
#if defined(__AVX512F__)
    const __m512i rows = _mm512_loadu_si512(own + first);
    const __m512i one = _mm512_set1_epi32(1);
    __m512i found = _mm512_loadu_si512(detours + first);
    const auto compare = [&](uint32_t p, __mmask16 farther) {
      const __mmask16 same =
          _mm512_mask_cmpeq_epi32_mask(farther, rows, _mm512_set1_epi32(static_cast<int>(theirs[p])));
      found = _mm512_mask_add_epi32(found, same, found, one);
    };
    // Up to p = rank, and before these ranks, the same ones count.
    const __mmask16 behind_rank =
        rank < first ? __mmask16{0xffff} : static_cast<__mmask16>(0xfffeu << (rank - first));
    const uint32_t alike = std::min(entries, std::max(rank + 1, first));
    for (uint32_t p = 0; p < alike; ++p) compare(p, behind_rank);
    for (uint32_t p = alike; p < entries; ++p) compare(p, static_cast<__mmask16>(0xfffeu << (p - first)));
    _mm512_storeu_si512(detours + first, found);
#else
    alignas(kVectorBytes) static constexpr uint32_t kRanks[kDetourRanks] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                                            8, 9, 10, 11, 12, 13, 14, 15};
    WordLanes rows[kLaneVectors], ranks[kLaneVectors], counts[kLaneVectors], found[kLaneVectors];
    for (uint32_t v = 0; v < kLaneVectors; ++v) {
      load_lanes(rows[v], own + first + v * kVectorLanes);
      load_lanes(counts[v], detours + first + v * kVectorLanes);
      load_lanes(ranks[v], kRanks + v * kVectorLanes);
      ranks[v] += first;
      found[v] = WordLanes{};
    }
    // Up to p = rank, and before these ranks, the same ones count, so that their mask is applied once, at the end.
    const uint32_t alike = std::min(entries, std::max(rank + 1, first));
    for (uint32_t p = 0; p < alike; ++p) {
      for (uint32_t v = 0; v < kLaneVectors; ++v) found[v] -= (WordLanes)(rows[v] == theirs[p]);
    }
    for (uint32_t v = 0; v < kLaneVectors; ++v) counts[v] += found[v] & (WordLanes)(ranks[v] > rank);
    for (uint32_t p = alike; p < entries; ++p) {
      for (uint32_t v = 0; v < kLaneVectors; ++v)
        counts[v] -= (WordLanes)((rows[v] == theirs[p]) & (ranks[v] > p));
    }
    for (uint32_t v = 0; v < kLaneVectors; ++v) store_lanes(counts[v], detours + first + v * kVectorLanes);
#endif
  }
}

}  // namespace
}  // namespace gannet
