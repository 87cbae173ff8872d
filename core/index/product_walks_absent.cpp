// Edges by product in a library without CUDA.

#if !defined(GANNET_HAS_CUDA) || !GANNET_HAS_CUDA

#include "backend/devices.h"
#include "index/product_walks.h"

namespace gannet::cuda {

std::unique_ptr<DevicePlacement> add_product_edges(Segment&, GraphOnDevice&, uint32_t, bool,
                                                   const Execution&) {
  fail(ANN_NO_DEVICE, "this library was built without CUDA");
}

KnnGraph lists_by_product(const Segment&, uint32_t, int32_t device, const Execution&) {
  check_cuda_device(device);
  fail(ANN_NO_DEVICE, "this library was built without CUDA");
}

}  // namespace gannet::cuda

#endif
