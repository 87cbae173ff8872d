// GGM on the GPU: codes and halves to the device, the rounds of nn_descent.cu there, row numbers back.
//
// Bytes at 1M rows of 128 bytes and k = 64: codes 128 MB and halves 128 MB there, lists 256 MB back: some 10 ms
// of a link of 50 GB/s beside the rounds. A round has two thirds of the distances of GNND's and gathers the
// same codes, and waits for these reads.

#include "backend/devices.h"
#include "backend/transfers.h"
#include "dataset/codes_cuda.h"
#include "knn/merge_cuda.h"
#include "knn/nn_descent_cuda.h"

namespace gannet::cuda {

KnnGraph descend_across(const Codes& codes, const NnDescentParams& params, const TwoSets& sets,
                        int32_t device, const Execution& execution) {
  check_cuda_device(device);
  const DeviceGuard guard(device - ANN_DEVICE_CUDA);
  const size_t places = checked_product(codes.rows(), params.k);
  KnnGraph found{Array<uint32_t>(execution.memory, places), codes.rows(), params.k, 0};
  Transfers transfers(execution);
  const Stream stream;
  const DeviceCodes there(codes, stream, transfers);
  const size_t kept = checked_product(codes.rows(), sets.kept);
  const DeviceArray<uint32_t> halves(kept, stream);  // [rows, kept]
  transfers.send(halves.data(), sets.neighbors, kept * sizeof(uint32_t), stream);
  const DeviceArray<uint32_t> neighbors(places, stream);  // [rows, k]
  TwoSets sets_there = sets;
  sets_there.neighbors = halves.data();
  found.iterations =
      nn_descent(there.view(), params, neighbors.data(), nullptr, stream, execution, sets_there);
  execution.check();
  transfers.fetch(found.neighbors.data(), neighbors.data(), places * sizeof(uint32_t), stream);
  return found;
}

}  // namespace gannet::cuda
