// The code of a query, made by any number of threads: dataset/codes.h defines the code, and
// Codes::encode_query makes the same on the CPU, byte for byte.
//
//   value      of a column: the query's, at length one for cosine, at the greatest that clips no column for inner
//              product, 0 in the extra columns
//   code       round((value - centre) / step) + 128 in a byte, or (value - centre) / largest as a float
// (dataset/coding_cuda.h)
#pragma once

#include "dataset/coding_cuda.h"
#include "dataset/dataset.h"
#include "search/encode_cuda.h"

namespace gannet::cuda {

template <int32_t kElement, bool kWide>
struct Encode {
  const EncodeArgs& args;
  const uint8_t* query;  // [query_stride] prepared values
  uint8_t* code;         // [code_stride]

  __device__ void run(uint32_t thread, uint32_t threads) const {
    const double scale = find_scale();
    constexpr uint32_t kColumnBytes = kWide ? sizeof(float) : 1;
    for (uint32_t column = thread; column < args.code_stride / kColumnBytes; column += threads)
      write(column, column < args.columns ? scaled(column, scale) : 0, column < args.columns);
  }

 private:
  __device__ double find_scale() const {
    if (args.metric == ANN_METRIC_INNER_PRODUCT) return query_scale();
    if (args.metric != ANN_METRIC_COSINE) return 1;
    const double norm = *reinterpret_cast<const double*>(query + args.value_bytes);
    return norm > 0 ? __ddiv_rn(1, norm) : 1;
  }

  /// Codes::query_scale, by every thread for itself: columns come from the cache, and no block has to meet.
  __device__ float query_scale() const {
    const float most = kWide ? 1.0f : 127.0f;
    float scale = INFINITY;
    for (uint32_t column = 0; column < args.dim; ++column) {
      const float steps = __fmul_rn(value(column), args.inverse_step);
      const float centre = __fmul_rn(args.centre[column], args.inverse_step);
      const float room = steps < 0 ? __fsub_rn(most, centre) : __fadd_rn(most, centre);
      if (steps != 0 && room > 0) {
        const float fits = __fdiv_rn(room, fabsf(steps));
        if (fits < scale) scale = fits;
      }
    }
    return scale < 1e30f ? scale : 1;
  }

  __device__ float value(uint32_t column) const {
    if constexpr (kElement == ANN_F32) return reinterpret_cast<const float*>(query)[column];
    if constexpr (kElement == ANN_I8) return static_cast<float>(static_cast<int8_t>(query[column]));
    return static_cast<float>(query[column]);
  }

  __device__ float scaled(uint32_t column, double scale) const {
    const float given = column < args.dim ? static_cast<float>(__dmul_rn(value(column), scale)) : 0.0f;
    return in_steps(given, args.centre[column], args.inverse_step);
  }

  /// Zeros fill the row up.
  __device__ void write(uint32_t column, float number, bool exists) const {
    if constexpr (kWide)
      reinterpret_cast<float*>(code)[column] = exists ? wide_code(number) : 0.0f;
    else
      code[column] = exists ? byte_code(number) : uint8_t{0};
  }
};

/// The code of the query of a block, by all its threads. `element` is that of the rows. Apart from its
/// callers, whose registers it is not to take.
template <bool kWide>
__device__ __noinline__ void encode_query(const EncodeArgs& args, int32_t element, const uint8_t* query,
                                          uint8_t* code) {
  if (element == ANN_I8) return Encode<ANN_I8, kWide>{args, query, code}.run(threadIdx.x, blockDim.x);
  if (element == ANN_U8) return Encode<ANN_U8, kWide>{args, query, code}.run(threadIdx.x, blockDim.x);
  Encode<ANN_F32, kWide>{args, query, code}.run(threadIdx.x, blockDim.x);
}

}  // namespace gannet::cuda
