// Tiles of float codes: squared L2 of some rows with sixteen packed ones at a time, one in each lane of a vector.
//
// Sums are those of the rows' loops, bit for bit (kernels.h): column i goes to lane i mod 64, and the 64 lanes are
// folded to 16 and then by halves. Here a lane of those is a vector, of which only those on the way are held: the 16
// sums are taken in the order in which the fold pairs them, 0 8 4 12 2 10 6 14 1 9 5 13 3 11 7 15, and each is added to
// the one before it as soon as its partner is there, so that four wait at most. Packed columns lie in that order.
//
//   packed  [groups, columns, 16]; columns is a multiple of 16, and rows beyond the last are zero
//
// Work: three operations and a load for a column and sixteen pairs. A loop of rows folds each pair by itself, in 12
// operations, and loads the row for each. One thread, AMD EPYC with AVX-512, 12 by 192 rows of 32, 96 and 192
// columns, ns a pair by rows and by tiles: 5.0 and 1.6, 8.4 and 4.4, 11.8 and 7.7; by AVX2, of 112 and 256 columns,
// 15 and 7.0, 24 and 14.
//
// The vectors are those of the compiler, which makes of sixteen lanes what a level has. Each level includes this in its
// own file and so gets it in its own instruction set.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "distance/kernels.h"
#include "distance/lanes.h"

namespace gannet {
namespace {  // one copy for each file, compiled with that file's instruction set

/// Left rows that share a load, as far as the registers go. By AVX2 two take .7 to .95 of the time of one, of more
/// than 16 columns.
#if defined(__AVX512F__)
constexpr uint32_t tile_lefts(uint32_t) { return 4; }
#elif defined(__AVX2__)
constexpr uint32_t tile_lefts(uint32_t parts) { return parts == 1 ? 1 : 2; }
#else
constexpr uint32_t tile_lefts(uint32_t) { return 1; }
#endif

/// The sum of the fold's 16 that is taken at a place.
constexpr uint32_t folded_at(uint32_t place) {
  return (place & 1) << 3 | (place & 2) << 1 | (place & 4) >> 1 | (place & 8) >> 3;
}

/// Distances of kLefts rows, each `columns` floats, to a group. A lane holds columns of kParts of the four that are
/// folded first: rows of fewer than 64 columns do not have all.
template <uint32_t kLefts, uint32_t kParts>
inline __attribute__((always_inline)) void float_group(const float* left, const float* group,
                                                       uint32_t columns, uint32_t* out, size_t out_stride) {
  constexpr uint32_t kSums = kLefts * kLaneVectors;
  FloatLanes waiting[5][kSums];
#pragma GCC unroll 16
  for (uint32_t place = 0; place < kPackRows; ++place) {
    FloatLanes parts[kParts][kSums];
#pragma GCC unroll 4
    for (uint32_t part = 0; part < kParts; ++part) {
#pragma GCC unroll 4
      for (uint32_t i = 0; i < kSums; ++i) parts[part][i] = FloatLanes{};
      for (uint32_t column = folded_at(place) + 16 * part; column < columns;
           column += 64, group += kPackRows) {
        FloatLanes rows[kLaneVectors];
#pragma GCC unroll 4
        for (uint32_t v = 0; v < kLaneVectors; ++v) load_lanes(rows[v], group + v * kVectorLanes);
#pragma GCC unroll 4
        for (uint32_t i = 0; i < kSums; ++i) {
          const FloatLanes difference =
              rows[i % kLaneVectors] - left[i / kLaneVectors * size_t{columns} + column];
          parts[part][i] += difference * difference;
        }
      }
    }
#pragma GCC unroll 4
    for (uint32_t i = 0; i < kSums; ++i) {
      FloatLanes sum = parts[0][i];
      if constexpr (kParts > 1) sum += parts[1][i];
      if constexpr (kParts == 3) sum += parts[2][i];
      if constexpr (kParts == 4) sum += parts[2][i] + parts[3][i];
      uint32_t level = 0;
      for (uint32_t pairs = place; (pairs & 1) != 0; pairs /= 2) sum = waiting[level++][i] + sum;
      waiting[level][i] = sum;
    }
  }
  for (uint32_t i = 0; i < kLefts; ++i)
    std::memcpy(out + i * out_stride, waiting[4] + i * kLaneVectors, sizeof(float) * kPackRows);
}

template <uint32_t kParts>
void float_groups(const float* left, uint32_t left_count, const float* packed, uint32_t groups,
                  uint32_t columns, uint32_t* out, size_t out_stride) {
  for (uint32_t g = 0; g < groups; ++g) {
    const float* group = packed + size_t{g} * columns * kPackRows;
    uint32_t row = 0;
    constexpr uint32_t kLefts = tile_lefts(kParts);
    for (; row + kLefts <= left_count; row += kLefts)
      float_group<kLefts, kParts>(left + row * size_t{columns}, group, columns,
                                  out + row * out_stride + g * 16, out_stride);
    for (; row < left_count; ++row)
      float_group<1, kParts>(left + row * size_t{columns}, group, columns, out + row * out_stride + g * 16,
                             out_stride);
  }
}

void float_pack(const float* block, uint32_t columns, uint32_t count, float* packed) {
  for (uint32_t first = 0; first < count; first += kPackRows) {
    const uint32_t rows = std::min(kPackRows, count - first);
    const float* from = block + first * size_t{columns};
    for (uint32_t place = 0; place < kPackRows; ++place) {
      for (uint32_t part = 0; part < 4; ++part) {
        for (uint32_t column = folded_at(place) + 16 * part; column < columns;
             column += 64, packed += kPackRows) {
          for (uint32_t j = 0; j < rows; ++j) packed[j] = from[j * size_t{columns} + column];
          std::fill(packed + rows, packed + kPackRows, 0.0f);
        }
      }
    }
  }
}

void float_tile(const float* left, uint32_t left_count, const float* packed, uint32_t right_count,
                uint32_t columns, uint32_t* out, size_t out_stride) {
  const uint32_t groups = (right_count + kPackRows - 1) / kPackRows;
  const auto compare = columns > 48   ? float_groups<4>
                       : columns > 32 ? float_groups<3>
                       : columns > 16 ? float_groups<2>
                                      : float_groups<1>;
  compare(left, left_count, packed, groups, columns, out, out_stride);
}

}  // namespace
}  // namespace gannet
