// Products of codes for cells: 32 left rows of a warp with up to 128 right rows of a block.
//
//   here      panel   64 columns of codes, four pieces of 16 bytes of each row
//             unit    32 right rows, whose 32 x 32 sums a warp holds in 32 registers of a lane
//             tile    128 right rows, four units
//             half    y.y / 2 of a right row y: x.y - y.y / 2 is the larger, the nearer y is to x
//
// ldmatrix brings operands from shared memory into the registers where products want them: one of it
// for 8 right rows of a panel, or for 16 left ones of half a panel. (Loads of 16 bytes with the columns in
// another order are as few, but leave words in other registers than the left operand's, and the assembler
// moves them before every product: twice the instructions.) A row's four pieces stand side by side, in
// an order that changes every two rows, so that the eight rows of a matrix meet all banks once.
//
// Rows of at most two panels are narrow: the left ones stay in registers, 32 of them, and the right
// ones in shared memory. Wider rows stream through panel by panel, the sums of all four units staying
// in 128 registers.
#pragma once

#include <cstdint>

#include "dataset/codes_cuda.h"
#include "distance/tensor_cuda.h"

namespace gannet::cuda {

inline constexpr uint32_t kPanelBytes = 64;
inline constexpr uint32_t kPieces = kPanelBytes / 16;
inline constexpr uint32_t kUnitRows = 32;
inline constexpr uint32_t kTileRows = 128;
inline constexpr uint32_t kTileUnits = kTileRows / kUnitRows;
inline constexpr uint32_t kNarrowPanels = 2;
inline constexpr uint32_t kNarrowBytes = kNarrowPanels * kPanelBytes;

/// Sums of a unit: [right row / 8][left row / 16] as multiply_bytes has them. With g = lane / 4 and
/// t = lane % 4, sums[j][m][i] is of left row 16 m + 8 (i / 2) + g and right row 8 j + 2 t + i % 2.
using UnitSums = int32_t[4][2][4];

/// The sum of a right row that is not there. Those of others lie between -2^23 and 2^23, narrow ones by
/// nature (128 x 255^2 / 2) and wide ones by a shift; 128 times as much still fits.
inline constexpr int32_t kHoleSum = -(1 << 24);

/// How far the sums of wide rows are shifted: x.y and y.y / 2 are below 2^16 times the stride, and
/// x.y - y.y / 2 = (x.x - |x - y|^2) / 2 is below 2^15 times it.
constexpr uint32_t sum_shift(uint32_t stride) {
  uint32_t shift = 0;
  while (stride > 512u << shift) ++shift;
  return shift;
}

/// The left operand of a panel: [half of it][rows 16 m to 16 m + 15] as multiply_bytes has it.
using LeftWords = uint32_t[2][2][4];

/// A panel of rows in shared memory.
template <uint32_t kRows>
struct PanelRows {
  alignas(16) uint4 pieces[kRows * kPieces];

  __device__ uint4* at(uint32_t row, uint32_t piece) {
    return &pieces[row * kPieces + (piece ^ (row / 2 % kPieces))];
  }
  __device__ const uint4* at(uint32_t row, uint32_t piece) const {
    return &pieces[row * kPieces + (piece ^ (row / 2 % kPieces))];
  }

  /// Rows 0 to 31 as left operand.
  __device__ void load_left(LeftWords& words, uint32_t lane) const {
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i)
      load_matrices(words[i / 2][i % 2], at(i % 2 * 16 + lane % 16, i / 2 * 2 + lane / 16));
  }

  /// Adds the products of left rows with the 8 rows from `first`, a multiple of 8, on.
  __device__ void multiply(int32_t (&sums)[2][4], const LeftWords& left, uint32_t first,
                           uint32_t lane) const {
    uint32_t right[4];
    load_matrices(right, at(first + lane % 8, lane / 8));
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      const uint32_t words[2] = {right[2 * half], right[2 * half + 1]};
#pragma unroll
      for (uint32_t m = 0; m < 2; ++m) multiply_bytes(sums[m], left[half][m], words);
    }
  }
};

/// Narrow right rows in shared memory.
template <uint32_t kPanels>
struct RightTile {
  PanelRows<kTileRows> panels[kPanels];
  int32_t halves[kTileRows];  // -y.y / 2, kHoleSum where there is no row

  /// Asks for `count` rows from `first` on. All kThreads threads; the caller commits and waits.
  template <uint32_t kThreads>
  __device__ void fetch(const CodesView& codes, uint32_t first, uint32_t count) {
    constexpr uint32_t kOfRow = kPanels * kPieces;
#pragma unroll
    for (uint32_t i = threadIdx.x; i < kTileRows * kOfRow; i += kThreads) {
      const uint32_t row = i / kOfRow;
      const bool there = row < count;
      copy_piece(panels[i % kOfRow / kPieces].at(row, i % kPieces),
                 codes.row(there ? first + row : first) + i % kOfRow * 16, there);
    }
    if (threadIdx.x < kTileRows)
      halves[threadIdx.x] =
          threadIdx.x < count ? -static_cast<int32_t>(codes.squares[first + threadIdx.x] / 2) : kHoleSum;
  }

  /// Sums of a unit, halves included.
  __device__ void multiply(UnitSums& sums, const LeftWords (&left)[kPanels], uint32_t unit,
                           uint32_t lane) const {
#pragma unroll
    for (uint32_t j = 0; j < 4; ++j) {
      const uint32_t first = unit * kUnitRows + 8 * j;
      const int2 half = *reinterpret_cast<const int2*>(&halves[first + lane % 4 * 2]);
#pragma unroll
      for (uint32_t m = 0; m < 2; ++m) {
        sums[j][m][0] = sums[j][m][2] = half.x;
        sums[j][m][1] = sums[j][m][3] = half.y;
      }
#pragma unroll
      for (uint32_t panel = 0; panel < kPanels; ++panel)
        panels[panel].multiply(sums[j], left[panel], first, lane);
    }
  }
};

/// The left rows of a lane, g, g + 8, g + 16 and g + 24, from where they stand.
template <uint32_t kPanels>
__device__ void read_left(LeftWords (&left)[kPanels], const CodesView& codes, const uint32_t (&rows)[4],
                          uint32_t lane) {
#pragma unroll
  for (uint32_t i = 0; i < kPanels * 16; ++i) {
    const uint32_t half = i / 8 % 2;
    const uint32_t m = i / 4 % 2;
    const uint32_t* row = reinterpret_cast<const uint32_t*>(codes.row(rows[2 * m + i % 2]));
    left[i / 16][half][m][i % 4] = row[i / 16 * 16 + half * 8 + i % 4 / 2 * 4 + lane % 4];
  }
}

/// Wide rows: two stages of a panel of both sides.
template <uint32_t kThreads>
struct WideStages {
  PanelRows<kTileRows> right[2];
  PanelRows<kUnitRows> left[2][kThreads / 32];

  /// Asks for a panel of the right rows, and of the warp's left ones, of which a lane knows four.
  __device__ void fetch(const uint8_t* const (&left_rows)[4], const CodesView& codes, uint32_t first,
                        uint32_t count, uint32_t panel) {
    const uint32_t byte = panel * kPanelBytes;
#pragma unroll
    for (uint32_t i = threadIdx.x; i < kTileRows * kPieces; i += kThreads) {
      const uint32_t row = i / kPieces;
      const bool there = row < count;
      copy_piece(right[panel % 2].at(row, i % kPieces),
                 codes.row(there ? first + row : first) + byte + i % kPieces * 16, there);
    }
    const uint32_t g = threadIdx.x % 32 / 4;
    const uint32_t t = threadIdx.x % 4;
#pragma unroll
    for (uint32_t r = 0; r < 4; ++r)
      copy_piece(left[panel % 2][threadIdx.x / 32].at(8 * r + g, t), left_rows[r] + byte + t * 16);
    commit_copies();
  }

  /// Products x.y of four left rows of each lane and a tile. All threads of the block.
  __device__ void multiply(UnitSums (&sums)[kTileUnits], const CodesView& codes, const uint32_t (&rows)[4],
                           const CodesView& right_codes, uint32_t first, uint32_t count, uint32_t lane) {
    const uint32_t panels = right_codes.stride / kPanelBytes;
#pragma unroll
    for (uint32_t unit = 0; unit < kTileUnits; ++unit)
#pragma unroll
      for (uint32_t i = 0; i < 32; ++i) sums[unit][i / 8][i / 4 % 2][i % 4] = 0;
    const uint8_t* from[4];
#pragma unroll
    for (uint32_t r = 0; r < 4; ++r) from[r] = codes.row(rows[r]);
    __syncthreads();  // the stages are free
    fetch(from, right_codes, first, count, 0);
    for (uint32_t panel = 0; panel < panels; ++panel) {
      if (panel + 1 < panels) {
        fetch(from, right_codes, first, count, panel + 1);
        wait_copies<1>();
      } else {
        wait_copies<0>();
      }
      __syncthreads();
      LeftWords mine;
      left[panel % 2][threadIdx.x / 32].load_left(mine, lane);
#pragma unroll
      for (uint32_t unit = 0; unit < kTileUnits; ++unit) {
#pragma unroll
        for (uint32_t j = 0; j < 4; ++j)
          right[panel % 2].multiply(sums[unit][j], mine, unit * kUnitRows + 8 * j, lane);
      }
      __syncthreads();  // before the stage is written again
    }
  }
};

/// Turns products of wide rows into sums like those of a narrow tile. halves[i] is y.y / 2 of right row
/// i, or -1 where there is none.
__device__ inline void shift_sums(UnitSums& sums, const int32_t* halves, uint32_t unit, uint32_t shift,
                                  uint32_t lane) {
#pragma unroll
  for (uint32_t j = 0; j < 4; ++j) {
#pragma unroll
    for (uint32_t side = 0; side < 2; ++side) {
      const int32_t half = halves[unit * kUnitRows + 8 * j + lane % 4 * 2 + side];
#pragma unroll
      for (uint32_t r = 0; r < 4; ++r) {
        int32_t& sum = sums[j][r / 2][r % 2 * 2 + side];
        sum = half < 0 ? kHoleSum : (sum - half) >> shift;
      }
    }
  }
}

// --- Selection by class ----------------------------------------------------------------------------

/// The largest sum of a lane's right rows in each of its eight classes (four left rows, right row odd
/// or even), with the index of the right row's 8 among those of a segment in the lowest bits. Two
/// instructions a pair, and no branch.
template <uint32_t kIndexBits>
struct ClassBest {
  int32_t best[4][2];

  __device__ void clear() {
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) best[i / 2][i % 2] = INT32_MIN;
  }
  __device__ void keep(const UnitSums& sums, uint32_t index) {
#pragma unroll
    for (uint32_t j = 0; j < 4; ++j) {
#pragma unroll
      for (uint32_t r = 0; r < 4; ++r) {
#pragma unroll
        for (uint32_t side = 0; side < 2; ++side)
          best[r][side] = max(best[r][side], sums[j][r / 2][r % 2 * 2 + side] * (1 << kIndexBits) +
                                                 static_cast<int32_t>(index + j));
      }
    }
  }
  __device__ int32_t sum(uint32_t r, uint32_t side) const { return best[r][side] >> kIndexBits; }
  __device__ uint32_t index(uint32_t r, uint32_t side) const {
    return best[r][side] & ((1 << kIndexBits) - 1);
  }
};

/// Candidates are keys of 32 bits: a distance in 17, as a float has it but without sign and with an
/// exponent of 5 bits (12 of the fraction, 0.025 %), and a place in 15. Any distance fits.
inline constexpr uint32_t kPlaceBits = 15;
inline constexpr uint32_t kNoCandidate = UINT32_MAX;

/// Of a left row with square x.x and a sum x.y - y.y / 2, halved downwards, which makes the distance
/// one less at most.
__device__ inline uint32_t candidate_key(uint32_t square, int32_t sum, uint32_t place) {
  const uint32_t distance = square - 2 * static_cast<uint32_t>(sum) + 1;
  const uint32_t bits = __float_as_uint(static_cast<float>(max(distance, 1u))) - 0x3f800000u;
  return min(bits >> 11, (1u << 17) - 2) << kPlaceBits | place;
}

// --- Order within a warp --------------------------------------------------------------------------

template <class Key>
__device__ Key exchange(Key key, uint32_t stride, bool ascending) {
  const Key other = __shfl_xor_sync(~0u, key, stride);
  const bool lower = (threadIdx.x & stride) == 0;
  return lower == ascending ? min(key, other) : max(key, other);
}

/// 32 keys, one a lane, ascending.
template <class Key>
__device__ Key sort_keys(Key key) {
#pragma unroll
  for (uint32_t run = 2; run <= 32; run *= 2) {
#pragma unroll
    for (uint32_t stride = run / 2; stride != 0; stride /= 2)
      key = exchange(key, stride, run == 32 || (threadIdx.x & run) == 0);
  }
  return key;
}

/// The same of keys that rise and then fall, or the other way round.
template <class Key>
__device__ Key sort_bitonic(Key key) {
#pragma unroll
  for (uint32_t stride = 16; stride != 0; stride /= 2) key = exchange(key, stride, true);
  return key;
}

/// Merges 32 ascending keys into a list of 32 kRegisters; keys beyond its end are dropped.
template <class Key, uint32_t kRegisters>
__device__ void merge_keys(Key (&list)[kRegisters], Key keys) {
#pragma unroll
  for (uint32_t r = 0; r < kRegisters; ++r) {
    const Key other = __shfl_sync(~0u, keys, 31 - threadIdx.x % 32);
    const Key near = min(list[r], other);
    if (r + 1 < kRegisters) keys = sort_bitonic(max(list[r], other));
    list[r] = sort_bitonic(near);
  }
}

/// A key such that `wanted` to `enough` of a warp's are at most it, or all where there are fewer than
/// `wanted`; kNoCandidate never counts. By bisection between the least and a bound that is known to
/// have enough below it.
template <uint32_t kRegisters>
__device__ uint32_t find_cut(const uint32_t (&keys)[kRegisters], uint32_t wanted, uint32_t enough) {
  const auto count = [&](uint32_t bound) {
    uint32_t below = 0;
#pragma unroll
    for (uint32_t r = 0; r < kRegisters; ++r) below += keys[r] <= bound ? 1 : 0;
    return __reduce_add_sync(~0u, below);
  };
  uint32_t least = UINT32_MAX;
#pragma unroll
  for (uint32_t r = 0; r < kRegisters; ++r) least = min(least, keys[r]);
  uint32_t low = __reduce_min_sync(~0u, least);
  uint32_t high = kNoCandidate - 1;
  if (wanted <= 64 && kRegisters >= 2) {
    // The two least keys of every lane are 64 keys, so the largest of them has as many below it.
    uint32_t second = UINT32_MAX;
    uint32_t first = UINT32_MAX;
#pragma unroll
    for (uint32_t r = 0; r < kRegisters; ++r) {
      second = min(second, max(first, keys[r]));
      first = min(first, keys[r]);
    }
    high = min(high, __reduce_max_sync(~0u, second));
  }
  uint32_t held = count(high);
  while (held > enough && low < high) {
    const uint32_t middle = low + (high - low) / 2;
    const uint32_t below = count(middle);
    if (below >= wanted) {
      high = middle;
      held = below;
    } else {
      low = middle + 1;
    }
  }
  return high;
}

}  // namespace gannet::cuda
