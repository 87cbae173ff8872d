// GGM on a CUDA device, in a library that was built without CUDA.

#if !defined(GANNET_HAS_CUDA) || !GANNET_HAS_CUDA

#include "backend/devices.h"
#include "knn/merge_cuda.h"

namespace gannet::cuda {

KnnGraph descend_across(const Codes&, const NnDescentParams&, const TwoSets&, int32_t device,
                        const Execution&) {
  check_cuda_device(device);
  fail(ANN_NO_DEVICE, "this library was built without CUDA");
}

}  // namespace gannet::cuda

#endif
