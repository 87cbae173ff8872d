// The codes of the pivots side by side on a CUDA device.
#pragma once

#include <cstdint>

#include "backend/launch.h"
#include "place/pivots.h"

namespace gannet::cuda {

/// x.x of a place without a pivot, which no query starts at.
inline constexpr int32_t kNoPivot = 0x7fffffff;

/// Brings the codes of the pivots together, and their squares. All on the device: `rows` [count], `codes`
/// [rows, stride]; the results `pivot_codes` [count, stride], zeros in places without one, and `squares`
/// [count].
void gather_pivots(const uint32_t* rows, uint32_t count, const uint8_t* codes, uint32_t stride,
                   uint8_t* pivot_codes, int32_t* squares, const Stream& stream);

}  // namespace gannet::cuda
