// The exact k-NN graph of codes on a CUDA device: the lists of exact_knn.h, bit for bit.
#pragma once

#include <cstdint>

#include "backend/launch.h"
#include "dataset/codes_cuda.h"

namespace gannet::cuda {

/// Fills `neighbors`, [rows, k] on the device as KnnGraph has them, and `distances`, [rows, k] code
/// distances, UINT32_MAX where there is no neighbour; that one may be null. The monitor is asked
/// between launches, which take some 30 ms on a large device. `launch_work` bounds the pairs of rows x
/// bytes of a launch, for tests; 0 takes the default.
void exact_knn(const CodesView& codes, uint32_t k, uint32_t* neighbors, uint32_t* distances,
               const Stream& stream, const Execution& execution, uint64_t launch_work = 0);

}  // namespace gannet::cuda
