#include "place/pivots_cuda.h"

#include "traverse/walk_steps.cuh"

namespace gannet::cuda {
namespace {

struct GatherArgs {
  const uint32_t* rows;  // [pivots]
  const uint8_t* codes;  // [rows, stride]
  uint8_t* pivot_codes;  // [pivots, stride]
  int32_t* squares;      // [pivots]
  uint32_t stride;
};

/// A warp for each pivot; of a place without one the code is zeros.
__global__ void __launch_bounds__(kWarp) gather(const __grid_constant__ GatherArgs args) {
  const uint32_t row = args.rows[blockIdx.x];
  uint32_t square = 0;
  for (uint32_t byte = lane_number() * 4; byte < args.stride; byte += kWarp * 4) {
    const uint32_t word =
        row == kNoRow ? 0
                      : *reinterpret_cast<const uint32_t*>(args.codes + uint64_t{row} * args.stride + byte);
    *reinterpret_cast<uint32_t*>(args.pivot_codes + uint64_t{blockIdx.x} * args.stride + byte) = word;
    square = __dp4a(word, word, square);
  }
  square = __reduce_add_sync(kAllLanes, square);
  if (lane_number() == 0) args.squares[blockIdx.x] = row == kNoRow ? kNoPivot : static_cast<int32_t>(square);
}

}  // namespace

void gather_pivots(const uint32_t* rows, uint32_t count, const uint8_t* codes, uint32_t stride,
                   uint8_t* pivot_codes, int32_t* squares, const Stream& stream) {
  launch("gather", gather, count, kWarp, stream, GatherArgs{rows, codes, pivot_codes, squares, stride});
}

}  // namespace gannet::cuda
