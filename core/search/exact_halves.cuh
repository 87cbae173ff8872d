// Exact search on the GPU: vectors of floats as f16 about a centre, as tensor cores multiply them (exact_filter.cuh),
// and what else is measured of rows and queries.
//
//   here   scale    the power of two that brings a vector's length to between 8 and 16, so that none of its values
//                   overflows, and those that are lost are below 2^-28 of it
//          terms    of a row: what its sums of products are compared with
//          low      parts: what a vector's halves have lost, as halves behind them
//          careful  products are those with low parts, too
//
// Halves have 10 bits behind the point, as TF32 has, in half of the bytes; tensor cores multiply them twice as fast.
#pragma once

#include <cuda_fp16.h>

#include "backend/launch_items.cuh"
#include "search/exact_tiles.cuh"

namespace gannet::cuda {
namespace exact_search {

constexpr uint32_t kCentreRows = 64;  // whose mean is the centre
constexpr int kScaledExponent = 3;    // lengths are scaled to [2^3, 2^4)
constexpr float kSquareMin = 1e-30f;  // squares of lengths below this may have lost columns
constexpr float kSquareMax = 3e38f;   // and beyond this are no numbers

// The error bounds of tensor cores' sums, as shares. For a sum of `dim` products, of the lengths' product: two
// roundings of 2^-11 each, or of 2^-22 and the product of two low parts; values below the least half; and adding up,
// where each of four products and a sum may be cut to 24 bits, 1.25 x 2^-23 a column, and three times that for three
// products.
__device__ constexpr float product_error(uint32_t dim, bool careful) {
  return careful ? 0x1p-20f + static_cast<float>(dim) * (0x1p-21f + 0x1p-27f)
                 : 0x1p-10f + 0x1p-19f + static_cast<float>(dim) * (0x1p-22f + 0x1p-27f);
}
// The roundings of squares, of lengths and of the CPU's own sums.
__device__ constexpr float float_error(uint32_t dim) { return 0x1p-17f + static_cast<float>(dim) * 0x1p-28f; }

/// As is_extreme says it, such lengths tell nothing.
__device__ inline float length_or_nothing(float length) {
  return length < kNormMin || length > kNormMax ? NAN : length;
}

/// Of a row: a term and the length, both scaled, and the scale. What is no number says that the pair may be near. By
/// cosine a row without a length is at a distance of 1 from all queries, as one of length 1 whose products are zero.
__device__ inline float4 row_terms(const MeasureArgs& args, uint64_t row, float square, float scale) {
  const float rounded = float_error(args.dim);
  const float term = args.metric == ANN_METRIC_L2 ? square * (1 - rounded) : square * 0;
  const bool by_cosine = args.metric == ANN_METRIC_COSINE;
  const float norm = by_cosine ? args.norms[row] : 0;
  const float length = !by_cosine ? sqrtf(square) * (1 + rounded) : norm == 0 ? 1 : length_or_nothing(norm);
  return {term * scale, length * scale, scale, 0};
}

struct Centre;
struct Squares;
struct ByteTerms;
struct Halves;

/// The arguments of steps that share a kernel.
struct MeasureSteps : MeasureArgs {
  using Steps = StepList<Centre, Squares, ByteTerms, Halves>;
};

__device__ inline float float_of(int32_t element, const uint8_t* row, uint32_t column) {
  if (element == ANN_F32) return float_at<ANN_F32>(row, column);
  return element == ANN_F16 ? float_at<ANN_F16>(row, column) : float_at<ANN_BF16>(row, column);
}

/// The mean of some items spread over all of them, a thread a column. It need not be the mean of all: distances are the
/// same about any point, and their bounds are the closer the nearer to the rows it lies.
struct Centre {
  static constexpr uint32_t kLanes = 1;
  const MeasureArgs& args;

  __device__ void run(uint64_t item) const {
    const uint32_t column = static_cast<uint32_t>(item);
    float sum = 0;
    const uint32_t count = min(kCentreRows, args.count);
#pragma unroll 8
    for (uint32_t i = 0; i < (column < args.dim ? count : 0); ++i)
      sum += float_of(args.element, args.items + uint64_t{i} * args.count / count * args.stride, column);
    args.centre[column] = sum / static_cast<float>(count);
  }
};

/// x.x of vectors of integers, a warp for each, which waits for memory whatever the element is.
struct Squares {
  static constexpr uint32_t kLanes = 32;
  const MeasureArgs& args;
  Warp warp = cg::tiled_partition<32>(cg::this_thread_block());

  __device__ void run(uint64_t item) const {
    const uint32_t* words = reinterpret_cast<const uint32_t*>(args.items + item * args.stride);
    uint32_t sum = args.element == ANN_I8 ? add_up<true>(words) : add_up<false>(words);
    for (uint32_t half = 16; half != 0; half /= 2) sum += warp.shfl_xor(sum, half);
    if (warp.thread_rank() == 0) args.squares[item] = sum;
  }

  template <bool kSigned>
  __device__ uint32_t add_up(const uint32_t* words) const {
    uint32_t sum = 0;
    for (uint32_t i = warp.thread_rank(); i < args.stride / 4; i += 32)
      sum = add_products<kSigned>(words[i], words[i], sum);
    return sum;
  }
};

/// The terms of a row of integers, whose products are exact.
struct ByteTerms {
  static constexpr uint32_t kLanes = 1;
  const MeasureArgs& args;

  __device__ void run(uint64_t item) const {
    const float square = args.squares != nullptr ? static_cast<float>(args.squares[item]) : 0;
    args.terms[item] = row_terms(args, item, square, 1);
  }
};

/// A vector's halves and what goes with them, by a warp, which reads it twice: first for its length.
struct Halves {
  static constexpr uint32_t kLanes = 32;
  static constexpr uint32_t kColumns = 4;  // that a lane takes at once
  const MeasureArgs& args;
  Warp warp = cg::tiled_partition<32>(cg::this_thread_block());

  __device__ void run(uint64_t item) const {
    const uint8_t* vector = args.items + item * args.stride;
    float square = 0;
    bool is_other = false;  // than the centre
    for (uint32_t column = warp.thread_rank() * kColumns; column < args.dim; column += 32 * kColumns) {
      const float4 four = values(vector, column);
      square = fmaf(four.x, four.x, fmaf(four.y, four.y, fmaf(four.z, four.z, fmaf(four.w, four.w, square))));
      is_other = is_other || four.x != 0 || four.y != 0 || four.z != 0 || four.w != 0;
    }
    for (uint32_t half = 16; half != 0; half /= 2) square += warp.shfl_xor(square, half);
    is_other = warp.any(is_other);

    // Lengths that are no numbers, or so short that columns may have been lost, tell nothing: such pairs may be near.
    const bool tells = !is_other || (square >= kSquareMin && square <= kSquareMax);
    const float scale = is_other && tells ? ldexpf(1, kScaledExponent - ilogbf(__fsqrt_rn(square))) : 1;
    uint2* to = reinterpret_cast<uint2*>(args.halves + item * 2 * args.half_bytes);
    uint2* low = to + args.half_bytes / sizeof(uint2);
    const bool careful = args.care.is_careful();
    for (uint32_t column = warp.thread_rank() * kColumns; column < args.half_bytes / sizeof(__half);
         column += 32 * kColumns) {
      const float4 four = column < args.dim && tells ? values(vector, column) : float4{0, 0, 0, 0};
      const __half2 first = __floats2half2_rn(four.x * scale, four.y * scale);
      const __half2 second = __floats2half2_rn(four.z * scale, four.w * scale);
      to[column / kColumns] = {bits_of(first), bits_of(second)};
      if (!careful) continue;
      low[column / kColumns] = {bits_of(lost(four.x * scale, four.y * scale, first)),
                                bits_of(lost(four.z * scale, four.w * scale, second))};
    }
    if (warp.thread_rank() != 0) return;
    if (args.terms != nullptr) args.terms[item] = row_terms(args, item, tells ? square : NAN, scale);
    if (args.squares != nullptr) args.squares[item] = __float_as_uint(square);
    if (args.scales != nullptr) args.scales[item] = tells ? 1 / scale : NAN;
  }

  /// Values about the centre; behind the last are zeros, up to a multiple of 16 bytes.
  __device__ float4 values(const uint8_t* vector, uint32_t column) const {
    const float4 four = unpacked(args.element, read_four(args.element, vector, column));
    if (args.centre == nullptr) return four;
    const float4 centre = *reinterpret_cast<const float4*>(args.centre + column);
    return {__fsub_rn(four.x, centre.x), __fsub_rn(four.y, centre.y), __fsub_rn(four.z, centre.z),
            __fsub_rn(four.w, centre.w)};
  }

  static __device__ uint32_t bits_of(__half2 pair) { return *reinterpret_cast<const uint32_t*>(&pair); }
  static __device__ __half2 lost(float first, float second, __half2 halves) {
    return __floats2half2_rn(first - __low2float(halves), second - __high2float(halves));
  }
};

}  // namespace exact_search
}  // namespace gannet::cuda
