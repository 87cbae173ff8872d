// Residuals: float codes as bytes about a centre, each row with a step of its own.
//
//     x = c + s X + error,   X of whole numbers from -127 to 127,   s = max |x - c| / 127
//
// so that of two rows about one centre
//
//     |x - q|^2  is about  s^2 |X|^2 + t^2 |Q|^2 - 2 s t X.Q,
//
// and X.Q is that of the tiles of codes, which give |X - Q|^2 = |X|^2 + |Q|^2 - 2 X.Q. The error is small beside
// distances to the centre, whatever the scale of other rows.
//
// Whole numbers are exact, and floats are taken one by one in one order: each level, which includes this in its own
// file, gives the same bits.
#pragma once

#include <algorithm>
#include <cstdint>

#include "distance/kernels.h"
#include "distance/lanes.h"

namespace gannet {
namespace {  // one copy for each file, compiled with that file's instruction set

ResidualTerms residual_code(const float* row, const float* centre, uint32_t columns, uint8_t* code) {
  FloatLanes tops{};
  for (uint32_t column = 0; column < columns; column += kVectorLanes) {
    FloatLanes value, middle;
    load_lanes(value, row + column);
    load_lanes(middle, centre + column);
    value -= middle;
    const FloatLanes size = value < 0 ? -value : value;
    tops = size > tops ? size : tops;
  }
  float largest = 0;
  for (uint32_t lane = 0; lane < kVectorLanes; ++lane) largest = std::max(largest, tops[lane]);
  constexpr float kNone = 1e-30f;  // below it the inverse may overflow
  const float inverse = largest > kNone ? 127 / largest : 0;
  IntLanes squares{};
  for (uint32_t column = 0; column < columns; column += kVectorLanes) {
    FloatLanes value, middle;
    load_lanes(value, row + column);
    load_lanes(middle, centre + column);
    const IntLanes byte = __builtin_convertvector((value - middle) * inverse + 128.5f, IntLanes);
    squares += (byte - 128) * (byte - 128);
    store_bytes(byte, code + column);
  }
  ResidualTerms terms;
  for (uint32_t lane = 0; lane < kVectorLanes; ++lane) terms.whole += squares[lane];
  terms.step = largest > kNone ? largest / 127 : 0;
  terms.square = terms.step * terms.step * static_cast<float>(terms.whole);
  return terms;
}

void residual_line(const uint32_t* apart, const ResidualRows& rows, uint32_t count,
                   const ResidualTerms& query, uint32_t* out) {
  for (uint32_t j = 0; j < count; j += kVectorLanes) {
    WordLanes cross, whole;
    FloatLanes square, step;
    load_lanes(cross, apart + j);
    load_lanes(whole, rows.whole + j);
    load_lanes(square, rows.square + j);
    load_lanes(step, rows.step + j);
    cross -= static_cast<uint32_t>(query.whole) + whole;  // -2 X.Q, which 32 bits hold
    const FloatLanes distance =
        (query.square + square) + (query.step * step) * __builtin_convertvector((IntLanes)cross, FloatLanes);
    store_lanes(distance > 0 ? distance : FloatLanes{}, out + j);
  }
}

}  // namespace
}  // namespace gannet
