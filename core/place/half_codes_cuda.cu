#include "place/half_codes_cuda.h"

#include <cuda_fp16.h>

#include <algorithm>

#include "backend/launch_items.cuh"
#include "traverse/walk_steps.cuh"

namespace gannet::cuda {
namespace {

constexpr uint32_t kSampledRows = 1024;
constexpr uint32_t kSampledEdges = 32;  // of each, the first ones
constexpr uint32_t kErrorShare = 32;    // an error of one part is borne
constexpr uint32_t kFarShare = 20;      // by all distances but one of so many

/// Distances that were compared, and those that halves change by more than is borne.
struct Deviations {
  uint32_t compared;
  uint32_t far;
};

struct Args {
  HalfCodesArgs given;
  Deviations* deviations;
  uint32_t sampled;
};

/// Eight columns of a row.
struct Round {
  static constexpr uint32_t kLanes = 1;
  static constexpr uint32_t kColumns = sizeof(uint4) / sizeof(__half);
  const Args& args;

  __device__ void run(uint64_t item) const {
    const HalfCodesArgs& given = args.given;
    const uint32_t pieces = given.stride / sizeof(uint4);
    const uint64_t row = item / pieces;
    const uint32_t first = static_cast<uint32_t>(item % pieces) * kColumns;
    __half2 pairs[kColumns / 2] = {};
    if (first < given.code_stride / sizeof(float)) {  // a multiple of 16 columns
      const float4* from = reinterpret_cast<const float4*>(given.codes + row * given.code_stride) + first / 4;
#pragma unroll
      for (uint32_t i = 0; i < 2; ++i) {
        const float4 four = __ldg(from + i);
        pairs[2 * i] = __floats2half2_rn(four.x, four.y);
        pairs[2 * i + 1] = __floats2half2_rn(four.z, four.w);
      }
    }
    reinterpret_cast<uint4*>(given.halves + row * given.stride)[item % pieces] =
        reinterpret_cast<const uint4&>(pairs);
  }
};

/// A sampled row and its edges, by a warp.
struct Deviate {
  static constexpr uint32_t kLanes = kWarp;
  const Args& args;

  __device__ void run(uint64_t item) const {
    const HalfCodesArgs& given = args.given;
    const uint64_t row = item * given.rows / args.sampled;
    const float* query = floats_of(row);
    Deviations found = {};
    for (uint32_t place = 0; place < min(given.degree, kSampledEdges); ++place) {
      const uint32_t target = __ldg(given.edges + row * given.degree + place);
      if (target == kNoRow) continue;
      const float* exact = floats_of(target);
      const __half* rounded = reinterpret_cast<const __half*>(given.halves + uint64_t{target} * given.stride);
      float by_floats = 0;
      float by_halves = 0;
      for (uint32_t column = lane_number(); column < given.code_stride / sizeof(float); column += kWarp) {
        const float plain = query[column] - exact[column];
        const float coarse = query[column] - __half2float(rounded[column]);
        by_floats = fmaf(plain, plain, by_floats);
        by_halves = fmaf(coarse, coarse, by_halves);
      }
      for (uint32_t half = kWarp / 2; half != 0; half /= 2) {
        by_floats += __shfl_xor_sync(kAllLanes, by_floats, half);
        by_halves += __shfl_xor_sync(kAllLanes, by_halves, half);
      }
      if (by_floats == 0) continue;  // a copy: nothing can lie before it
      ++found.compared;
      found.far += fabsf(by_halves - by_floats) * kErrorShare <= by_floats ? 0 : 1;
    }
    if (lane_number() != 0) return;
    atomicAdd(&args.deviations->compared, found.compared);
    atomicAdd(&args.deviations->far, found.far);
  }

 private:
  __device__ const float* floats_of(uint64_t row) const {
    return reinterpret_cast<const float*>(args.given.codes + row * args.given.code_stride);
  }
};

}  // namespace

bool make_half_codes(const HalfCodesArgs& args, const Stream& stream) {
  const DeviceArray<Deviations> deviations(1, stream);
  fill(deviations.data(), 0, sizeof(Deviations), stream, "clearing device memory");
  const Args launched = {args, deviations.data(), std::min(args.rows, kSampledRows)};
  launch_items<Round>("round_codes", uint64_t{args.rows} * (args.stride / sizeof(uint4)), launched, stream);
  launch_items<Deviate>("deviate", launched.sampled, launched, stream);
  Deviations found = {};
  copy_to_host(&found, deviations.data(), sizeof found, stream, "fetching how far halves deviate");
  stream.wait();
  return uint64_t{found.far} * kFarShare <= found.compared;
}

}  // namespace gannet::cuda
