// Exact search on a CUDA device, in a library that was built without CUDA.

#if !defined(GANNET_HAS_CUDA) || !GANNET_HAS_CUDA

#include "search/exact_cuda.h"

namespace gannet::cuda {

void search_exact(const ExactRequest&, const Execution&) {
  fail(ANN_NO_DEVICE, "this library was built without CUDA");
}

}  // namespace gannet::cuda

#endif
