// Bounds: how near a row can be, from its bytes.
//
// Exact search compares every query with every row, and reports a few. To leave a row out it is enough to
// know that it is too far, and a byte a column shows that for nearly all of them. A vector x is written as
// s X + e, X of whole numbers from -127 to 127, with a step s of its own. With S = s_x s_q X.Q
//
//     x.q <= S + |e_x| |q| + |s_x X| |e_q|
//
// holds whatever was rounded, since X, s and |e| are known, hence
//
//     |x - q|^2 >= |x|^2 + |q|^2 - 2 (S + |e_x| |q| + |s_x X| |e_q|).
//
// X.Q is a whole number and comes from the tiles of codes (kernels.h), which give |X - Q|^2. All that is
// computed in floats here is given room for its rounding: lengths by `rounding` of a length, squares by as
// much of a square. Whatever passes is compared as stored, so a loose bound costs time and changes no answer.
//
// Each level includes this in its own file and so gets it in its own instruction set.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

#include "distance/kernels.h"
#include "distance/lanes.h"

namespace gannet {
namespace {  // one copy for each file, compiled with that file's instruction set

constexpr uint32_t kSums = 16;  // taken side by side, as floats are not added in another order unasked

#if defined(__AVX512F__)

/// |values|^2 and the largest of |values|.
void measure(const float* values, size_t width, float* square, float* largest) {
  __m512 squares = _mm512_setzero_ps();
  __m512 tops = _mm512_setzero_ps();
  for (size_t i = 0; i < width; i += kSums) {
    const __m512 value = _mm512_loadu_ps(values + i);
    squares = _mm512_fmadd_ps(value, value, squares);
    tops = _mm512_max_ps(tops, _mm512_abs_ps(value));
  }
  *square = _mm512_reduce_add_ps(squares);
  *largest = _mm512_reduce_max_ps(tops);
}

/// Codes values as bytes of X + 128; |values - step X|^2 and |X|^2.
void code_values(const float* values, size_t width, float step, float inverse, uint8_t* code, float* error,
                 int32_t* whole) {
  __m512 errors = _mm512_setzero_ps();
  __m512i squares = _mm512_setzero_si512();
  for (size_t i = 0; i < width; i += kSums) {
    const __m512 value = _mm512_loadu_ps(values + i);
    const __m512i byte =
        _mm512_cvttps_epi32(_mm512_fmadd_ps(value, _mm512_set1_ps(inverse), _mm512_set1_ps(128.5f)));
    const __m512i x = _mm512_sub_epi32(byte, _mm512_set1_epi32(128));
    const __m512 rest = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(x), _mm512_set1_ps(step), value);
    errors = _mm512_fmadd_ps(rest, rest, errors);
    squares = _mm512_add_epi32(squares, _mm512_mullo_epi32(x, x));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(code + i), _mm512_cvtepi32_epi8(byte));
  }
  *error = _mm512_reduce_add_ps(errors);
  *whole = _mm512_reduce_add_epi32(squares);
}

#else

/// |values|^2 and the largest of |values|.
void measure(const float* values, size_t width, float* square, float* largest) {
  FloatLanes squares[kLaneVectors] = {};
  FloatLanes tops[kLaneVectors] = {};
  for (size_t i = 0; i < width; i += kSums) {
    for (uint32_t v = 0; v < kLaneVectors; ++v) {
      FloatLanes value;
      load_lanes(value, values + i + v * kVectorLanes);
      squares[v] += value * value;
      const FloatLanes size = value < 0 ? -value : value;
      tops[v] = size > tops[v] ? size : tops[v];
    }
  }
  *square = 0;
  *largest = 0;
  for (uint32_t lane = 0; lane < kSums; ++lane) {
    *square += squares[lane / kVectorLanes][lane % kVectorLanes];
    *largest = std::max(*largest, tops[lane / kVectorLanes][lane % kVectorLanes]);
  }
}

/// Codes values as bytes of X + 128; |values - step X|^2 and |X|^2.
void code_values(const float* values, size_t width, float step, float inverse, uint8_t* code, float* error,
                 int32_t* whole) {
  FloatLanes errors[kLaneVectors] = {};
  IntLanes squares[kLaneVectors] = {};
  for (size_t i = 0; i < width; i += kSums) {
    for (uint32_t v = 0; v < kLaneVectors; ++v) {
      const size_t at = i + v * kVectorLanes;
      FloatLanes value;
      load_lanes(value, values + at);
      const IntLanes byte = __builtin_convertvector(value * inverse + 128.5f, IntLanes);
      const IntLanes x = byte - 128;
      const FloatLanes rest = value - step * __builtin_convertvector(x, FloatLanes);
      errors[v] += rest * rest;
      squares[v] += x * x;
      store_bytes(byte, code + at);
    }
  }
  *error = 0;
  *whole = 0;
  for (uint32_t lane = 0; lane < kSums; ++lane) {
    *error += errors[lane / kVectorLanes][lane % kVectorLanes];
    *whole += squares[lane / kVectorLanes][lane % kVectorLanes];
  }
}

#endif

BoundCode bound_code(const float* values, size_t width, uint8_t* code) {
  BoundCode found;
  float square;
  float largest;
  measure(values, width, &square, &largest);
  const float step = largest / 127;
  // Beyond these squares are lost or overflow. The zero vector is exact.
  if (largest != 0 && !(largest > 1e-15f && largest < 1e15f)) return found;
  const float inverse = largest == 0 ? 0 : 127 / largest;
  float error;
  int32_t whole;
  code_values(values, width, step, inverse, code, &error, &whole);
  found.usable = true;
  found.step = step;
  found.square = square;
  found.error = std::sqrt(error);
  found.whole = static_cast<float>(whole);
  return found;
}

uint32_t within_bound(const uint32_t* line, const BoundRows& rows, uint32_t count, const BoundQuery& query,
                      uint32_t* places) {
  uint32_t taken = 0;
#if defined(__AVX512F__)
  const __m512 scale = _mm512_set1_ps(query.scale);
  const __m512 whole = _mm512_set1_ps(query.whole);
  const __m512 length = _mm512_set1_ps(query.length);
  const __m512 error = _mm512_set1_ps(query.error);
  const __m512 bound = _mm512_set1_ps(query.bound);
  const __m512i steps = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  for (uint32_t j = 0; j < count; j += 16) {
    const __m512 apart = _mm512_cvtepi32_ps(_mm512_loadu_si512(line + j));
    const __m512 cross = _mm512_sub_ps(_mm512_sub_ps(apart, _mm512_loadu_ps(rows.whole + j)), whole);
    __m512 least = _mm512_fmadd_ps(cross, _mm512_mul_ps(scale, _mm512_loadu_ps(rows.step + j)),
                                   _mm512_loadu_ps(rows.self + j));
    least = _mm512_fnmadd_ps(length, _mm512_loadu_ps(rows.error + j), least);
    least = _mm512_fnmadd_ps(error, _mm512_loadu_ps(rows.length + j), least);
    const __mmask16 near = _mm512_cmp_ps_mask(least, bound, _CMP_NGT_UQ);
    if (near == 0) continue;
    const __m512i numbers = _mm512_add_epi32(_mm512_set1_epi32(static_cast<int>(j)), steps);
    _mm512_storeu_si512(places + taken, _mm512_maskz_compress_epi32(near, numbers));
    taken += static_cast<uint32_t>(__builtin_popcount(near));
  }
#elif defined(__AVX2__)
  const __m256 scale = _mm256_set1_ps(query.scale);
  const __m256 whole = _mm256_set1_ps(query.whole);
  const __m256 length = _mm256_set1_ps(query.length);
  const __m256 error = _mm256_set1_ps(query.error);
  const __m256 bound = _mm256_set1_ps(query.bound);
  for (uint32_t j = 0; j < count; j += 8) {
    const __m256 apart = _mm256_cvtepi32_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(line + j)));
    const __m256 cross = _mm256_sub_ps(_mm256_sub_ps(apart, _mm256_loadu_ps(rows.whole + j)), whole);
    __m256 least = _mm256_fmadd_ps(cross, _mm256_mul_ps(scale, _mm256_loadu_ps(rows.step + j)),
                                   _mm256_loadu_ps(rows.self + j));
    least = _mm256_fnmadd_ps(length, _mm256_loadu_ps(rows.error + j), least);
    least = _mm256_fnmadd_ps(error, _mm256_loadu_ps(rows.length + j), least);
    uint32_t near = static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(least, bound, _CMP_NGT_UQ)));
    for (; near != 0; near &= near - 1) places[taken++] = j + static_cast<uint32_t>(__builtin_ctz(near));
  }
#else
  for (uint32_t j = 0; j < count; j += kSums) {
    uint32_t near[kSums];
    uint32_t any = 0;
    for (uint32_t lane = 0; lane < kSums; ++lane) {
      const uint32_t at = j + lane;
      const float apart = static_cast<float>(static_cast<int32_t>(line[at]));
      const float cross = apart - rows.whole[at] - query.whole;
      const float least = rows.self[at] + cross * (query.scale * rows.step[at]) -
                          query.length * rows.error[at] - query.error * rows.length[at];
      near[lane] = least > query.bound ? 0 : 1;
      any |= near[lane];
    }
    if (any == 0) continue;
    for (uint32_t lane = 0; lane < kSums; ++lane) {
      places[taken] = j + lane;
      taken += near[lane];
    }
  }
#endif
  while (taken > 0 && places[taken - 1] >= count) --taken;  // of the last vector
  return taken;
}

}  // namespace
}  // namespace gannet
