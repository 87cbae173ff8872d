// The copy of an index on a CUDA device, in a library that was built without CUDA.

#if !defined(GANNET_HAS_CUDA) || !GANNET_HAS_CUDA

#include "search/device_index.h"

namespace gannet::cuda {

std::unique_ptr<DeviceIndex> place_index(int32_t device, const Dataset&, const Codes&,
                                         const SearchGraph&, const Execution&) {
  fail(ANN_NO_DEVICE, "CUDA device %d was asked for, but this library was built without CUDA", device);
}

}  // namespace gannet::cuda

#endif
