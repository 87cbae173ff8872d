// The last step of a code on a CUDA device: Codes::encode (dataset/codes.h) for one column, bit for bit.
//
// Every operation is rounded by itself, as on the CPU, and clipping takes the CPU's side of values that
// are no number: a difference beyond all floats times a step of zero.
#pragma once

#include <cstdint>

namespace gannet::cuda {

/// std::clamp's limits in the CPU's order of comparisons: no number becomes `low`.
__device__ inline float clip(float value, float low, float high) {
  const float raised = low < value ? value : low;
  return raised < high ? raised : high;
}

/// A value in steps from its centre.
__device__ inline float in_steps(float value, float centre, float inverse_step) {
  return __fmul_rn(__fsub_rn(value, centre), inverse_step);
}

__device__ inline float wide_code(float steps) { return clip(steps, -1e15f, 1e15f); }

__device__ inline uint8_t byte_code(float steps) {
  return static_cast<uint8_t>(static_cast<int32_t>(clip(__fadd_rn(steps, 128.5f), 0.0f, 255.0f)));
}

}  // namespace gannet::cuda
