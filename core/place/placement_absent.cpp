// Placements on CUDA devices, in a library that was built without CUDA.

#if !defined(GANNET_HAS_CUDA) || !GANNET_HAS_CUDA

#include "place/placement.h"

namespace gannet::cuda {

std::unique_ptr<DevicePlacement> place_segment(int32_t device, const Segment&, DeviceBuildResult*,
                                               const Execution&) {
  fail(ANN_NO_DEVICE, "CUDA device %d was asked for, but this library was built without CUDA", device);
}

}  // namespace gannet::cuda

#endif
