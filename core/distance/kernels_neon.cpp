// The distance loops for 64-bit ARM, all of which has NEON: 64 float lanes are sixteen registers of four;
// bytes are widened to 16 bits, and gaps of codes squared in 16 bits and added in pairs.

#if defined(__aarch64__)

#include <arm_neon.h>

#include <cstring>

#include "distance/bounds.h"
#include "distance/detours.h"
#include "distance/float_tile.h"
#include "distance/element.h"
#include "distance/near_list.h"
#include "distance/nearest_list.h"
#include "distance/residuals.h"
#include "distance/row_loops.h"
#include "distance/tile_minima.h"

namespace gannet {
namespace {

template <int32_t kElement>
float32x4_t load4(const uint8_t* at) {
  if constexpr (kElement == ANN_F32) {
    return vreinterpretq_f32_u8(vld1q_u8(at));
  } else {
    const uint16x4_t halves = vreinterpret_u16_u8(vld1_u8(at));
    if constexpr (kElement == ANN_F16) return vcvt_f32_f16(vreinterpret_f16_u16(halves));
    return vreinterpretq_f32_u32(vshll_n_u16(halves, 16));
  }
}

template <int32_t kElement>
void widen(const void* row, uint32_t dim, float* out) {
  const uint8_t* bytes = static_cast<const uint8_t*>(row);
  uint32_t column = 0;
  for (; column + 4 <= dim; column += 4)
    vst1q_f32(out + column, load4<kElement>(bytes + size_t{column} * element_bytes(kElement)));
  for (; column < dim; ++column) out[column] = element_to_float(row, kElement, column);
}

template <bool kDot>
float32x4_t term(float32x4_t sum, float32x4_t x, float32x4_t q) {
  if constexpr (kDot) return vaddq_f32(sum, vmulq_f32(x, q));
  const float32x4_t difference = vsubq_f32(x, q);
  return vaddq_f32(sum, vmulq_f32(difference, difference));
}

/// Lanes 4 r .. 4 r + 3 are register r.
float fold(const float32x4_t* lanes) {
  float32x4_t sums[4];
  for (uint32_t r = 0; r < 4; ++r)
    sums[r] = vaddq_f32(vaddq_f32(lanes[r], lanes[r + 4]), vaddq_f32(lanes[r + 8], lanes[r + 12]));
  const float32x4_t four = vaddq_f32(vaddq_f32(sums[0], sums[2]), vaddq_f32(sums[1], sums[3]));
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

template <int32_t kElement, bool kDot>
void add_columns(float32x4_t* lanes, const uint8_t* row, const float* query) {
  for (uint32_t r = 0; r < 16; ++r)
    lanes[r] = term<kDot>(lanes[r], load4<kElement>(row + 4 * r * element_bytes(kElement)),
                          vld1q_f32(query + 4 * r));
}

template <int32_t kElement, bool kDot>
float float_distance(const float* query, const void* row, uint32_t dim) {
  constexpr size_t kBytes = element_bytes(kElement);
  const uint8_t* bytes = static_cast<const uint8_t*>(row);
  float32x4_t lanes[16];
  for (float32x4_t& lane : lanes) lane = vdupq_n_f32(0);
  uint32_t column = 0;
  for (; column + 64 <= dim; column += 64)
    add_columns<kElement, kDot>(lanes, bytes + column * kBytes, query + column);
  if (column < dim) {
    uint8_t row_end[64 * kBytes] = {};
    float query_end[64] = {};
    std::memcpy(row_end, bytes + column * kBytes, (dim - column) * kBytes);
    std::memcpy(query_end, query + column, (dim - column) * sizeof(float));
    add_columns<kElement, kDot>(lanes, row_end, query_end);
  }
  return fold(lanes);
}

int16x8_t widen16(const int8_t* at) { return vmovl_s8(vld1_s8(at)); }
int16x8_t widen16(const uint8_t* at) { return vreinterpretq_s16_u16(vmovl_u8(vld1_u8(at))); }

template <class Integer, bool kDot>
int32_t integer_distance(const Integer* query, const void* row, uint32_t dim) {
  const Integer* values = static_cast<const Integer*>(row);
  int32x4_t low = vdupq_n_s32(0);
  int32x4_t high = vdupq_n_s32(0);
  uint32_t i = 0;
  for (; i + 8 <= dim; i += 8) {
    int16x8_t x = widen16(values + i);
    int16x8_t q = widen16(query + i);
    if constexpr (!kDot) x = q = vsubq_s16(x, q);
    low = vmlal_s16(low, vget_low_s16(x), vget_low_s16(q));
    high = vmlal_high_s16(high, x, q);
  }
  int32_t sum = vaddvq_s32(vaddq_s32(low, high));
  for (; i < dim; ++i) {
    const int32_t difference = values[i] - query[i];
    sum += kDot ? values[i] * query[i] : difference * difference;
  }
  return sum;
}

uint32_t code_distance(const uint8_t* a, const uint8_t* b, size_t stride, uint8x16_t flip) {
  uint32x4_t low = vdupq_n_u32(0);
  uint32x4_t high = vdupq_n_u32(0);
  for (size_t i = 0; i < stride; i += 16) {
    const uint8x16_t gap = vabdq_u8(vld1q_u8(a + i), veorq_u8(flip, vld1q_u8(b + i)));
    low = vpadalq_u16(low, vmull_u8(vget_low_u8(gap), vget_low_u8(gap)));
    high = vpadalq_u16(high, vmull_high_u8(gap, gap));
  }
  return vaddvq_u32(vaddq_u32(low, high));
}

void code_gather(const uint8_t* query, const uint8_t* codes, size_t stride, uint8_t flip, const uint32_t* ids,
                 uint32_t count, uint32_t* out) {
  const uint8x16_t flips = vdupq_n_u8(flip);
  for (uint32_t i = 0; i < count; ++i) out[i] = code_distance(query, codes + ids[i] * stride, stride, flips);
}

void code_pack(const uint8_t* block, size_t stride, uint32_t count, uint8_t* packed) {
  std::memcpy(packed, block, count * stride);
}

void code_tile(const uint8_t* left, uint32_t left_count, const uint8_t* packed, uint32_t right_count,
               size_t stride, size_t columns, uint32_t* out, size_t out_stride) {
  const uint8x16_t flips = vdupq_n_u8(0);
  for (uint32_t i = 0; i < left_count; ++i) {
    for (uint32_t j = 0; j < right_count; ++j)
      out[i * out_stride + j] = code_distance(left + i * stride, packed + j * stride, columns, flips);
  }
}

}  // namespace
}  // namespace gannet

#include "distance/kernel_table.h"

namespace gannet {

constexpr Kernels kNeonKernels = table_of_level("neon", code_tile);

}  // namespace gannet

#endif
