#include "place/narrow_codes_cuda.h"

#include <cuda_fp16.h>

#include <algorithm>

#include "backend/launch_items.cuh"
#include "traverse/walk_steps.cuh"

namespace gannet::cuda {
namespace {

constexpr uint32_t kSampledRows = 1024;
constexpr uint32_t kSampledEdges = 32;    // of each, the first ones
constexpr uint32_t kHalfErrorShare = 32;  // an error of one part is borne of halves,
constexpr uint32_t kByteErrorShare = 8;   // and of bytes
constexpr uint32_t kFarShare = 20;        // by all distances but one of so many

/// Distances that were compared, and those that narrow codes change by more than is borne.
struct Deviations {
  uint32_t compared;
  uint32_t far;
};

struct Args {
  NarrowCodesArgs given;
  Deviations* deviations;
  uint32_t sampled;

  __device__ const float* floats_of(uint64_t row) const {
    return reinterpret_cast<const float*>(given.codes + row * given.code_stride);
  }
  __device__ uint32_t columns() const { return given.code_stride / sizeof(float); }
};

/// Eight columns of a row as halves.
struct RoundToHalves {
  static constexpr uint32_t kLanes = 1;
  static constexpr uint32_t kColumns = sizeof(uint4) / sizeof(__half);
  const Args& args;

  __device__ void run(uint64_t item) const {
    const NarrowCodesArgs& given = args.given;
    const uint32_t pieces = given.stride / sizeof(uint4);
    const uint64_t row = item / pieces;
    const uint32_t first = static_cast<uint32_t>(item % pieces) * kColumns;
    __half2 pairs[kColumns / 2] = {};
    if (first < args.columns()) {  // a multiple of 16 columns
      const float4* from = reinterpret_cast<const float4*>(args.floats_of(row)) + first / 4;
#pragma unroll
      for (uint32_t i = 0; i < 2; ++i) {
        const float4 four = __ldg(from + i);
        pairs[2 * i] = __floats2half2_rn(four.x, four.y);
        pairs[2 * i + 1] = __floats2half2_rn(four.z, four.w);
      }
    }
    reinterpret_cast<uint4*>(given.narrow + row * given.stride)[item % pieces] =
        reinterpret_cast<const uint4&>(pairs);
  }
};

/// A row as bytes with its scale, by a warp: u + 128 of each column, then the terms of ScaledCodes and zeros. Places
/// without a column weigh nothing, whatever they hold.
struct RoundToBytes {
  static constexpr uint32_t kLanes = kWarp;
  const Args& args;

  __device__ void run(uint64_t row) const {
    const NarrowCodesArgs& given = args.given;
    const float* from = args.floats_of(row);
    uint8_t* to = given.narrow + row * given.stride;
    float most = 0;
    for (uint32_t column = lane_number(); column < given.dim; column += kWarp)
      most = fmaxf(most, fabsf(from[column]));
    for (uint32_t half = kWarp / 2; half != 0; half /= 2)
      most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, half));
    const bool sound = most > 1e-33f;
    const float scale = sound ? __fdiv_rn(most, 127.0f) : 0.0f;
    const float inverse = sound ? __fdiv_rn(127.0f, most) : 0.0f;
    int32_t squares = 0;
    for (uint32_t column = lane_number(); column < given.terms_at; column += kWarp) {
      const int32_t whole = column < given.dim ? __float2int_rn(from[column] * inverse) : 0;
      to[column] = static_cast<uint8_t>(whole + 128);
      squares += whole * whole;
    }
    squares = __reduce_add_sync(kAllLanes, squares);
    // Not of the scale's square, which may be less than a float has.
    const uint32_t terms[] = {__float_as_uint(scale),
                              __float_as_uint(scale * (scale * __int2float_rn(squares)))};
    uint32_t* const behind = reinterpret_cast<uint32_t*>(to + given.terms_at);
    for (uint32_t word = lane_number(); word < (given.stride - given.terms_at) / sizeof(uint32_t);
         word += kWarp)
      behind[word] = word < 2 ? terms[word] : 0;
  }
};

/// A row's values as halves have them,
struct AsHalves {
  static constexpr uint32_t kErrorShare = kHalfErrorShare;
  const __half* values;
  __device__ AsHalves(const NarrowCodesArgs& given, uint64_t row)
      : values(reinterpret_cast<const __half*>(given.narrow + row * given.stride)) {}
  __device__ float value(uint32_t column) const { return __half2float(values[column]); }
};

/// and as bytes with a scale.
struct AsBytes {
  static constexpr uint32_t kErrorShare = kByteErrorShare;
  const uint8_t* bytes;
  uint32_t dim;
  float scale;
  __device__ AsBytes(const NarrowCodesArgs& given, uint64_t row)
      : bytes(given.narrow + row * given.stride),
        dim(given.dim),
        scale(*reinterpret_cast<const float*>(bytes + given.terms_at)) {}
  __device__ float value(uint32_t column) const {
    return column < dim ? scale * static_cast<float>(static_cast<int32_t>(bytes[column]) - 128) : 0.0f;
  }
};

/// A sampled row and its edges, by a warp.
template <class Rounded>
struct Deviate {
  static constexpr uint32_t kLanes = kWarp;
  const Args& args;

  __device__ void run(uint64_t item) const {
    const NarrowCodesArgs& given = args.given;
    const uint64_t row = item * given.rows / args.sampled;
    const float* query = args.floats_of(row);
    Deviations found = {};
    for (uint32_t place = 0; place < min(given.degree, kSampledEdges); ++place) {
      const uint32_t target = __ldg(given.edges + row * given.degree + place);
      if (target == kNoRow) continue;
      const float* exact = args.floats_of(target);
      const Rounded rounded(given, target);
      float by_floats = 0;
      float by_narrow = 0;
      for (uint32_t column = lane_number(); column < args.columns(); column += kWarp) {
        const float plain = query[column] - exact[column];
        const float coarse = query[column] - rounded.value(column);
        by_floats = fmaf(plain, plain, by_floats);
        by_narrow = fmaf(coarse, coarse, by_narrow);
      }
      for (uint32_t half = kWarp / 2; half != 0; half /= 2) {
        by_floats += __shfl_xor_sync(kAllLanes, by_floats, half);
        by_narrow += __shfl_xor_sync(kAllLanes, by_narrow, half);
      }
      if (by_floats == 0) continue;  // a copy: nothing can lie before it
      ++found.compared;
      found.far += fabsf(by_narrow - by_floats) * Rounded::kErrorShare <= by_floats ? 0 : 1;
    }
    if (lane_number() != 0) return;
    atomicAdd(&args.deviations->compared, found.compared);
    atomicAdd(&args.deviations->far, found.far);
  }
};

/// Makes narrow codes by a step of so many items, and compares them with the wide ones; whether they serve.
template <class Step, class Rounded>
bool make(const char* name, uint64_t items, const NarrowCodesArgs& given, const Stream& stream) {
  const DeviceArray<Deviations> deviations(1, stream);
  fill(deviations.data(), 0, sizeof(Deviations), stream, "clearing device memory");
  const Args args = {given, deviations.data(), std::min(given.rows, kSampledRows)};
  launch_items<Step>(name, items, args, stream);
  launch_items<Deviate<Rounded>>("deviate", args.sampled, args, stream);
  Deviations found = {};
  copy_to_host(&found, deviations.data(), sizeof found, stream, "fetching how far narrow codes deviate");
  stream.wait();
  return uint64_t{found.far} * kFarShare <= found.compared;
}

}  // namespace

bool make_half_codes(const NarrowCodesArgs& args, const Stream& stream) {
  return make<RoundToHalves, AsHalves>("round_to_halves", uint64_t{args.rows} * (args.stride / sizeof(uint4)),
                                       args, stream);
}

bool make_byte_codes(const NarrowCodesArgs& args, const Stream& stream) {
  return make<RoundToBytes, AsBytes>("round_to_bytes", args.rows, args, stream);
}

}  // namespace gannet::cuda
