// The copy of an index on a CUDA device, in a library that was built without CUDA.

#if !defined(GANNET_HAS_CUDA) || !GANNET_HAS_CUDA

#include "search/device_index.h"

namespace gannet::cuda {

std::unique_ptr<DeviceIndex> place_index(int32_t, const Dataset&, const Codes&,
                                         const SearchGraph&, const Execution&) {
  fail(ANN_NO_DEVICE, "this library was built without CUDA");
}

}  // namespace gannet::cuda

#endif
