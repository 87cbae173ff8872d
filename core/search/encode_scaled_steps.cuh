// The code of a query for codes with a scale for each row, by inner product, made by a block of any number of
// warps: the code that ScaledCodes::encode_query makes on the CPU, bit for bit (dataset/scaled_codes.h has the
// layout).
//
// All threads find the largest value; the warps share the cells, a product each for the table, summed in the CPU's
// lanes; then all threads write both digits of each column.
#pragma once

#include "ann.h"
#include "dataset/coding_cuda.h"
#include "distance/element_cuda.h"
#include "search/scaled_codes_cuda.h"
#include "traverse/walk_steps.cuh"

namespace gannet::cuda {

/// The values that the warps of a block exchange.
struct EncodeScaledShared {
  float most[kWarp];
  uint32_t sums[kWarp];
};

template <int32_t kElement>
struct EncodeScaled {
  static constexpr uint32_t kHeadBytes = 64;

  const EncodeScaledArgs& args;
  EncodeScaledShared& shared;
  const uint8_t* query;  // prepared values
  uint8_t* code;         // [code_bytes], there after the next barrier

  __device__ void run() const {
    const float most = largest();
    fill_table();  // behind it, when the first cache has the centre of wide codes
    const bool sound = most > 1e-33f && most < INFINITY;
    const float range = static_cast<float>(args.most);
    const uint32_t sum = write_digits(sound ? __fdiv_rn(range, most) : 0.0f, range);
    if (threadIdx.x >= kHeadBytes / sizeof(uint32_t)) return;
    const float weight = sound ? (is_wide() ? -2 : -1) * __fdiv_rn(most, range) : 0.0f;
    const uint32_t words[] = {__float_as_uint(weight), sum * 128, args.terms_at};
    reinterpret_cast<uint32_t*>(code)[threadIdx.x] = threadIdx.x < 3 ? words[threadIdx.x] : 0;
  }

 private:
  static __device__ uint32_t warps() { return blockDim.x / kWarp; }

  /// Whether wide codes are coded, by squared L2.
  __device__ bool is_wide() const { return args.centre != nullptr; }

  __device__ float value(uint32_t column) const {
    if (!is_wide()) return given(column);
    return wide_code(in_steps(given(column), args.centre[column], args.inverse_step));
  }

  __device__ float given(uint32_t column) const {
    if constexpr (kElement == ANN_F32) return reinterpret_cast<const float*>(query)[column];
    if constexpr (kElement == ANN_I8) return static_cast<float>(static_cast<int8_t>(query[column]));
    return static_cast<float>(query[column]);
  }

  __device__ void fill_table() const {
    const uint32_t table_at = kHeadBytes + 2 * args.row_stride;
    float* table = reinterpret_cast<float*>(code + table_at);
    // Walks read codes whole, the places behind the last cell too.
    const uint32_t places = (args.code_bytes - table_at) / sizeof(float);
    for (uint32_t place = args.cells + threadIdx.x; place < places; place += blockDim.x) table[place] = 0;
    if (is_wide()) return fill_square(table);
    for (uint32_t cell = threadIdx.x / kWarp; cell < args.cells; cell += warps()) {
      const float sum = product(args.centres + (uint64_t{cell} + 1) * args.dim);
      if (lane_number() == 0) table[cell] = -sum;
    }
  }

  /// |q - c|^2, by the first warp.
  __device__ void fill_square(float* table) const {
    if (threadIdx.x >= kWarp) return;
    float sum = 0;
    for (uint32_t column = lane_number(); column < args.dim; column += kWarp)
      sum = fmaf(value(column), value(column), sum);
    for (uint32_t half = kWarp / 2; half != 0; half /= 2) sum += __shfl_xor_sync(kAllLanes, sum, half);
    if (lane_number() == 0) *table = sum;
  }

  /// As the CPU sums it: column i in lane i mod 64, of which a thread has two, and the lanes folded.
  __device__ float product(const float* centre) const {
    float low = 0;
    float high = 0;
    for (uint32_t column = lane_number(); column < args.dim; column += 64) {
      low = __fadd_rn(low, __fmul_rn(centre[column], value(column)));
      if (column + 32 < args.dim) high = __fadd_rn(high, __fmul_rn(centre[column + 32], value(column + 32)));
    }
    __syncwarp();
    low = __fadd_rn(low, __shfl_xor_sync(kAllLanes, low, 16));
    high = __fadd_rn(high, __shfl_xor_sync(kAllLanes, high, 16));
    float sum = __fadd_rn(low, high);
    for (uint32_t half = 8; half != 0; half /= 2) sum = __fadd_rn(sum, __shfl_xor_sync(kAllLanes, sum, half));
    return sum;
  }

  /// Of a block, in every thread.
  __device__ float largest() const {
    float most = 0;
    for (uint32_t column = threadIdx.x; column < args.dim; column += blockDim.x)
      most = fmaxf(most, fabsf(value(column)));
    for (uint32_t half = kWarp / 2; half != 0; half /= 2)
      most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, half));
    if (lane_number() == 0) shared.most[threadIdx.x / kWarp] = most;
    __syncthreads();
    for (uint32_t warp = 0; warp < warps(); ++warp) most = fmaxf(most, shared.most[warp]);
    return most;
  }

  /// Writes both digits of V for every column, zeros behind them; returns the sum of V, in every thread.
  __device__ uint32_t write_digits(float inverse, float range) const {
    int8_t* high = reinterpret_cast<int8_t*>(code + kHeadBytes);
    int8_t* low = high + args.row_stride;
    uint32_t sum = 0;
    for (uint32_t column = threadIdx.x; column < args.row_stride; column += blockDim.x) {
      int32_t whole = 0;
      if (column < args.dim) {
        const float steps = __fmul_rn(value(column), inverse);
        whole = static_cast<int32_t>(floorf(__fadd_rn(fminf(fmaxf(steps, -range), range), 0.5f)));
      }
      const int32_t digit = static_cast<int8_t>(whole & 0xff);
      high[column] = static_cast<int8_t>((whole - digit) / 256);
      low[column] = static_cast<int8_t>(digit);
      sum += static_cast<uint32_t>(whole);
    }
    sum = __reduce_add_sync(kAllLanes, sum);
    if (lane_number() == 0) shared.sums[threadIdx.x / kWarp] = sum;
    __syncthreads();
    sum = 0;
    for (uint32_t warp = 0; warp < warps(); ++warp) sum += shared.sums[warp];
    return sum;
  }
};

/// The code of the query of a block, by all its threads. `element` is that of the rows. Apart from its
/// callers, whose registers it is not to take.
__device__ __noinline__ inline void encode_scaled_query(const EncodeScaledArgs& args, int32_t element,
                                                        const uint8_t* query, uint8_t* code,
                                                        EncodeScaledShared& shared) {
  if (element == ANN_I8) return EncodeScaled<ANN_I8>{args, shared, query, code}.run();
  if (element == ANN_U8) return EncodeScaled<ANN_U8>{args, shared, query, code}.run();
  EncodeScaled<ANN_F32>{args, shared, query, code}.run();
}

}  // namespace gannet::cuda
