// Steps that the searches on CUDA devices share: elements as numbers, sums as distances, and keys
// that order candidates. Each gives the bits that Dataset::distances gives on the CPU.
#pragma once

#include <cmath>
#include <cstdint>

#include "ann.h"
#include "distance/element_cuda.h"

namespace gannet::cuda {

// Lengths outside this range are compared in double precision, as dataset.cpp does.
constexpr float kNormMin = 1e-15f;
constexpr float kNormMax = 1e15f;

/// A candidate: its distance, made an integer of the same order, above its row number.
using Key = uint64_t;
constexpr Key kNoKey = ~Key{0};  // behind every candidate

__device__ inline Key make_key(float distance, uint32_t row) {
  const uint32_t bits = __float_as_uint(distance);
  const uint32_t ordered = (bits & 0x80000000) != 0 ? ~bits : bits | 0x80000000;
  return (Key{ordered} << 32) | row;
}

__device__ inline uint32_t row_of(Key key) { return static_cast<uint32_t>(key); }

__device__ inline float distance_of(Key key) {
  const uint32_t ordered = static_cast<uint32_t>(key >> 32);
  return __uint_as_float((ordered & 0x80000000) != 0 ? ordered & 0x7fffffff : ~ordered);
}

template <int32_t kElement>
__device__ float float_at(const uint8_t* row, uint32_t column) {
  if constexpr (kElement == ANN_F32) {
    return reinterpret_cast<const float*>(row)[column];
  } else {
    return float_of_bits<kElement>(reinterpret_cast<const uint16_t*>(row)[column]);
  }
}

/// Adds the products of four bytes.
template <bool kSigned>
__device__ uint32_t add_products(uint32_t a, uint32_t b, uint32_t sum) {
  if constexpr (kSigned)
    return static_cast<uint32_t>(
        __dp4a(static_cast<int32_t>(a), static_cast<int32_t>(b), static_cast<int32_t>(sum)));
  else
    return __dp4a(a, b, sum);
}

/// The same of 16 bytes.
template <bool kSigned = false>
__device__ uint32_t add_products(const uint4& a, const uint4& b, uint32_t sum) {
  sum = add_products<kSigned>(a.x, b.x, sum);
  sum = add_products<kSigned>(a.y, b.y, sum);
  sum = add_products<kSigned>(a.z, b.z, sum);
  return add_products<kSigned>(a.w, b.w, sum);
}

__device__ inline float distance_of_cosine(double cosine) {
  return static_cast<float>(__dsub_rn(1, fmin(fmax(cosine, -1.0), 1.0)));
}

/// From a sum to a distance, as Dataset::distances does it. Lengths count for cosine only.
__device__ inline float to_distance(float sum, int32_t metric, double query_norm, float row_norm) {
  if (metric == ANN_METRIC_L2) return sum;
  if (metric == ANN_METRIC_INNER_PRODUCT) return isnan(sum) ? INFINITY : __fsub_rn(0, sum);
  if (row_norm == 0 || query_norm == 0) return 1;
  return distance_of_cosine(__ddiv_rn(sum, __dmul_rn(query_norm, row_norm)));
}

/// Whether a cosine needs extreme_cosine.
__device__ inline bool is_extreme(double query_norm, float row_norm) {
  return (row_norm < kNormMin || row_norm > kNormMax) && row_norm != 0 && query_norm != 0;
}

/// Dataset::extreme_cosine, column by column: rare, and slow.
template <int32_t kElement>
__device__ __noinline__ double extreme_cosine(const float* query, double query_norm, const uint8_t* row,
                                              uint32_t dim) {
  double dot = 0;
  double square = 0;
  for (uint32_t column = 0; column < dim; ++column) {
    const double value = float_at<kElement>(row, column);
    dot = __dadd_rn(dot, __dmul_rn(query[column], value));
    square = __dadd_rn(square, __dmul_rn(value, value));
  }
  return __ddiv_rn(dot, __dmul_rn(query_norm, __dsqrt_rn(square)));
}

/// The same of a float element that is known as the kernel runs.
__device__ inline double extreme_cosine(int32_t element, const float* query, double query_norm,
                                        const uint8_t* row, uint32_t dim) {
  if (element == ANN_F32) return extreme_cosine<ANN_F32>(query, query_norm, row, dim);
  if (element == ANN_F16) return extreme_cosine<ANN_F16>(query, query_norm, row, dim);
  return extreme_cosine<ANN_BF16>(query, query_norm, row, dim);
}

}  // namespace gannet::cuda
