// Rows of bytes compared with each other, each pair once, on tensor cores, for a block that counts which edges of a
// row occlude which others (graph/diversify.cu).
//
// `count` rows are in the caller's order; row i is compared with the rows j behind it. A warp has a strip of 32 rows
// j, whose bytes it holds in registers as right operands, and goes through the rows i before them, 16 at a time, which
// a panel of 128 rows in shared memory gives to all strips: 4 words of shared memory for 4 products of 16 x 8 pairs.
// Rows of a panel are 16 bytes apart beyond their length, so that 8 of them lie in different banks.
//
// 200 rows of 128 bytes: 57 tiles of 16 x 32 pairs, 230 products of 32 columns for each; 4 words a lane and step,
// 29 KB of panel written once and 117 KB read, 920 clocks of a multiprocessor. Eight lanes a pair with products of four
// bytes, as diversify.cu does it for longer rows, read 128 bytes a pair from the first cache or the second: 1.3 MB.
#pragma once

#include "dataset/codes_cuda.h"
#include "distance/tensor_cuda.h"
#include "traverse/walk_steps.cuh"

namespace gannet::cuda {

inline constexpr uint32_t kPanelRows = 128;
inline constexpr uint32_t kPanelPad = 16;  // bytes between rows
inline constexpr uint32_t kPairSteps = 8;  // of 32 bytes: longer rows are not for these products
inline constexpr uint32_t kStripRows = 32;
inline constexpr uint32_t kTileRows = 16;

__host__ __device__ constexpr uint32_t panel_bytes(uint32_t stride) {
  return kPanelRows * (stride + kPanelPad);
}

/// The products of 16 rows from `first` on with a strip. A lane has, for each n < 4 and c < 4, the pair
/// (row(c), column(n, c)) in sums[n][c].
struct PairTile {
  uint32_t first;
  int32_t sums[4][4];

  __device__ uint32_t row(uint32_t c) const { return first + lane_number() / 4 + c / 2 * 8; }
};

/// The row within a strip that sums[n][c] are of.
__device__ inline uint32_t strip_column(uint32_t n, uint32_t c) {
  return n * 8 + lane_number() % 4 * 2 + c % 2;
}

/// kSteps: of 32 bytes, at least those of a row. kWarps: of the block.
template <uint32_t kSteps, uint32_t kWarps>
struct PairProducts {
  const CodesView& codes;
  uint8_t* panel;  // [kPanelRows, stride + kPanelPad], aligned to 16 bytes

  /// Calls make(strip) for each strip and panel, on all lanes of a warp; the result gets take(tile) for each tile
  /// of rows of the panel that has rows before some of the strip, and then done(). All threads of the block call this,
  /// and their earlier writes are visible. A strip's calls all come to the same warp.
  template <class Make>
  __device__ void each_strip(const uint32_t* ids, uint32_t count, const Make& make) const {
    const uint32_t warp = threadIdx.x / kWarp;
    for (uint32_t start = 0; start < count; start += kPanelRows) {
      const uint32_t height = min(kPanelRows, count - start);
      fill(ids + start, height);
      __syncthreads();
      // Later strips have more rows before them: warps take them forth and back.
      for (uint32_t turn = 0; turn * kWarps * kStripRows < count; ++turn) {
        const uint32_t strip = turn * kWarps + (turn % 2 == 0 ? warp : kWarps - 1 - warp);
        if (strip * kStripRows < count && (strip + 1) * kStripRows > start)
          multiply(ids, count, start, height, strip, make(strip));
      }
      __syncthreads();
    }
  }

 private:
  __device__ void fill(const uint32_t* ids, uint32_t height) const {
    const uint32_t pieces = codes.stride / sizeof(uint4);
    for (uint32_t i = threadIdx.x; i < height * pieces; i += kWarps * kWarp) {
      const uint32_t row = i / pieces;
      const uint32_t byte = i % pieces * sizeof(uint4);
      *reinterpret_cast<uint4*>(panel + row * (codes.stride + kPanelPad) + byte) =
          __ldg(reinterpret_cast<const uint4*>(codes.row(ids[row]) + byte));
    }
  }

  template <class Visit>
  __device__ void multiply(const uint32_t* ids, uint32_t count, uint32_t start, uint32_t height,
                           uint32_t strip, Visit visit) const {
    const uint32_t group = lane_number() / 4;
    const uint32_t word = lane_number() % 4 * 4;
    uint32_t right[4][kSteps][2];
#pragma unroll
    for (uint32_t n = 0; n < 4; ++n) {
      const uint8_t* row = codes.row(ids[min(strip * kStripRows + n * 8 + group, count - 1)]);
#pragma unroll
      for (uint32_t step = 0; step < kSteps; ++step) {
        if (step * 32 >= codes.stride) continue;
        right[n][step][0] = __ldg(reinterpret_cast<const uint32_t*>(row + step * 32 + word));
        right[n][step][1] = __ldg(reinterpret_cast<const uint32_t*>(row + step * 32 + 16 + word));
      }
    }
    const uint32_t end = min(height, (strip + 1) * kStripRows - start);
    for (uint32_t first = 0; first < end; first += kTileRows) {
      PairTile tile = {start + first, {}};
      const uint8_t* upper = panel + (first + group) * (codes.stride + kPanelPad) + word;
      const uint8_t* lower = upper + 8 * (codes.stride + kPanelPad);
#pragma unroll
      for (uint32_t step = 0; step < kSteps; ++step) {
        if (step * 32 >= codes.stride) continue;
        const uint32_t left[4] = {word_at(upper + step * 32), word_at(lower + step * 32),
                                  word_at(upper + step * 32 + 16), word_at(lower + step * 32 + 16)};
#pragma unroll
        for (uint32_t n = 0; n < 4; ++n) multiply_bytes(tile.sums[n], left, right[n][step]);
      }
      visit.take(tile);
    }
    visit.done();
  }

  static __device__ uint32_t word_at(const uint8_t* bytes) {
    return *reinterpret_cast<const uint32_t*>(bytes);
  }
};

}  // namespace gannet::cuda
