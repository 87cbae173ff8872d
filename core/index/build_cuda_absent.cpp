// Builds on a CUDA device, in a library that was built without CUDA.

#if !defined(GANNET_HAS_CUDA) || !GANNET_HAS_CUDA

#include "backend/devices.h"
#include "index/build_cuda.h"

namespace gannet::cuda {

std::unique_ptr<DeviceIngest> ingest_rows(const MatrixView& rows, int32_t, const Execution&) {
  check_cuda_device(rows.space);
  fail(ANN_NO_DEVICE, "this library was built without CUDA");
}

std::unique_ptr<DeviceIngest> send_rows(const Dataset&, int32_t device, const Execution&) {
  check_cuda_device(device);
  fail(ANN_NO_DEVICE, "this library was built without CUDA");
}

KnnLists find_neighbors(const Codes&, std::unique_ptr<DeviceIngest>, int32_t, const NnDescentParams&,
                        int32_t device, const Execution&) {
  check_cuda_device(device);
  fail(ANN_NO_DEVICE, "this library was built without CUDA");
}

KnnGraph find_neighbors_by_products(const Codes&, const Array<uint32_t>&, const NnDescentParams&,
                                    int32_t device, const Execution&) {
  check_cuda_device(device);
  fail(ANN_NO_DEVICE, "this library was built without CUDA");
}

KnnGraph ggnn_knn(const Codes&, std::unique_ptr<DeviceIngest>, uint32_t, uint64_t, int32_t device,
                  const Execution&) {
  check_cuda_device(device);
  fail(ANN_NO_DEVICE, "this library was built without CUDA");
}

FoundLists build_diversified(const Codes&, std::unique_ptr<DeviceIngest>, int32_t, const KnnGraph*,
                             const BuildPlan& plan, SearchGraph&, const Execution&) {
  check_cuda_device(plan.device);
  fail(ANN_NO_DEVICE, "this library was built without CUDA");
}

std::unique_ptr<GraphOnDevice> build_graph(const Codes&, std::unique_ptr<DeviceIngest>, int32_t,
                                           const KnnLists*, const BuildPlan& plan, const Array<uint32_t>&,
                                           const Execution&) {
  check_cuda_device(plan.device);
  fail(ANN_NO_DEVICE, "this library was built without CUDA");
}

bool add_long_edges(DevicePlacement& placement, Segment&, const Execution&) {
  check_cuda_device(ANN_DEVICE_CUDA + placement.device());
  fail(ANN_NO_DEVICE, "this library was built without CUDA");
}

std::unique_ptr<GraphOnDevice> build_ggnn_graph(const Codes&, std::unique_ptr<DeviceIngest>,
                                                const BuildPlan& plan, SearchGraph&, const Execution&) {
  check_cuda_device(plan.device);
  fail(ANN_NO_DEVICE, "this library was built without CUDA");
}

}  // namespace gannet::cuda

#endif
