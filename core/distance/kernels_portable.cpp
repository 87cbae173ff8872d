// The distance loops in plain C++: the definition that the other levels are compared with.

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

constexpr uint32_t kLanes = 64;

/// Folds the 64 lanes in the order that kernels.h fixes.
float fold(const float* lanes) {
  float sum[16];
  for (uint32_t i = 0; i < 16; ++i) sum[i] = (lanes[i] + lanes[i + 16]) + (lanes[i + 32] + lanes[i + 48]);
  for (uint32_t half = 8; half != 0; half /= 2) {
    for (uint32_t i = 0; i < half; ++i) sum[i] += sum[i + half];
  }
  return sum[0];
}

template <int32_t kElement>
void load(const uint8_t* row, uint32_t column, uint32_t count, float* values) {
  if constexpr (kElement == ANN_F32) {
    std::memcpy(values, row + size_t{column} * 4, size_t{count} * 4);
  } else {
    for (uint32_t i = 0; i < count; ++i) values[i] = element_to_float(row, kElement, column + i);
  }
}

template <int32_t kElement>
void widen(const void* row, uint32_t dim, float* out) {
  load<kElement>(static_cast<const uint8_t*>(row), 0, dim, out);
}

template <int32_t kElement, bool kDot>
float float_distance(const float* query, const void* row, uint32_t dim) {
  const uint8_t* bytes = static_cast<const uint8_t*>(row);
  float lanes[kLanes] = {};
  float values[kLanes];
  uint32_t column = 0;
  for (; column + kLanes <= dim; column += kLanes) {
    load<kElement>(bytes, column, kLanes, values);
    for (uint32_t i = 0; i < kLanes; ++i) {
      const float difference = values[i] - query[column + i];
      lanes[i] += kDot ? values[i] * query[column + i] : difference * difference;
    }
  }
  load<kElement>(bytes, column, dim - column, values);
  for (uint32_t i = 0; column + i < dim; ++i) {
    const float difference = values[i] - query[column + i];
    lanes[i] += kDot ? values[i] * query[column + i] : difference * difference;
  }
  return fold(lanes);
}

template <class Integer, bool kDot>
int32_t integer_distance(const Integer* query, const void* row, uint32_t dim) {
  const Integer* values = static_cast<const Integer*>(row);
  int32_t sum = 0;
  for (uint32_t i = 0; i < dim; ++i) {
    const int32_t difference = values[i] - query[i];
    sum += kDot ? values[i] * query[i] : difference * difference;
  }
  return sum;
}

uint32_t code_distance(const uint8_t* a, const uint8_t* b, size_t stride, uint8_t flip_b) {
  int32_t sum = 0;
  for (size_t i = 0; i < stride; ++i) {
    const int32_t difference = a[i] - static_cast<uint8_t>(b[i] ^ flip_b);
    sum += difference * difference;
  }
  return static_cast<uint32_t>(sum);
}

void code_gather(const uint8_t* query, const uint8_t* codes, size_t stride, uint8_t flip, const uint32_t* ids,
                 uint32_t count, uint32_t* out) {
  for (uint32_t i = 0; i < count; ++i) out[i] = code_distance(query, codes + ids[i] * stride, stride, flip);
}

void code_pack(const uint8_t* block, size_t stride, uint32_t count, uint8_t* packed) {
  std::memcpy(packed, block, count * stride);
}

void code_tile(const uint8_t* left, uint32_t left_count, const uint8_t* packed, uint32_t right_count,
               size_t stride, size_t columns, uint32_t* out, size_t out_stride) {
  for (uint32_t i = 0; i < left_count; ++i) {
    for (uint32_t j = 0; j < right_count; ++j)
      out[i * out_stride + j] = code_distance(left + i * stride, packed + j * stride, columns, 0);
  }
}

}  // namespace
}  // namespace gannet

#include "distance/kernel_table.h"

namespace gannet {

constexpr Kernels kPortableKernels = table_of_level("portable", code_tile);

}  // namespace gannet
