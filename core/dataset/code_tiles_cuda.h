// Tiles of byte codes: rows brought into shared memory, and their products on tensor cores.
#pragma once

#include <cstdint>

#include "dataset/codes_cuda.h"
#include "distance/tensor_cuda.h"

namespace gannet::cuda {

using TileRow = uint8_t[kTilePitch];

/// Brings kTileColumns columns from `column` on of kRows rows into shared memory, zeros where there is
/// nothing. row_of(i) is the number of row i, or UINT32_MAX. All threads of the block; nobody waits.
template <uint32_t kRows, uint32_t kThreads, class RowOf>
__device__ void fetch_tile(TileRow* tile, const CodesView& codes, uint32_t column,
                           const RowOf& row_of) {
  constexpr uint32_t kPieces = kTileColumns / 16;
  constexpr uint32_t kFetches = kRows * kPieces / kThreads;
  static_assert(kRows * kPieces % kThreads == 0);
  uint4 fetched[kFetches];
#pragma unroll
  for (uint32_t i = 0; i < kFetches; ++i) {
    const uint32_t piece = threadIdx.x + i * kThreads;
    const uint32_t row = row_of(piece / kPieces);
    const uint32_t byte = column + piece % kPieces * 16;
    fetched[i] = {0, 0, 0, 0};
    if (row != UINT32_MAX && byte < codes.stride)
      fetched[i] = *reinterpret_cast<const uint4*>(codes.row(row) + byte);
  }
#pragma unroll
  for (uint32_t i = 0; i < kFetches; ++i) {
    const uint32_t piece = threadIdx.x + i * kThreads;
    *reinterpret_cast<uint4*>(&tile[piece / kPieces][piece % kPieces * 16]) = fetched[i];
  }
}

/// Adds the products of 16 kDown left rows and 8 kAcross right rows over the first `columns` of a
/// tile, by one warp; who holds which is said at multiply_bytes.
template <uint32_t kDown, uint32_t kAcross>
__device__ void multiply_tile(int32_t (&sums)[kDown][kAcross][4], const TileRow* left,
                              const TileRow* right, uint32_t columns, uint32_t lane) {
#pragma unroll 2
  for (uint32_t column = 0; column < columns; column += 32) {
    uint32_t left_words[kDown][4];
#pragma unroll
    for (uint32_t down = 0; down < kDown; ++down)
      read_left(left_words[down], left[16 * down], column, lane);
#pragma unroll
    for (uint32_t across = 0; across < kAcross; ++across) {
      uint32_t right_words[2];
      read_right(right_words, right[8 * across], column, lane);
#pragma unroll
      for (uint32_t down = 0; down < kDown; ++down)
        multiply_bytes(sums[down][across], left_words[down], right_words);
    }
  }
}

}  // namespace gannet::cuda
