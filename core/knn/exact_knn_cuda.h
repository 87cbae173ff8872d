// The exact k-NN graph of codes on a CUDA device: the lists of exact_knn.h, bit for bit.
#pragma once

#include <cstdint>

#include "backend/launch.h"
#include "dataset/codes_cuda.h"

namespace gannet::cuda {

/// Fills `neighbors`, [rows, k] on the device as KnnGraph has them, and `distances`, [rows, k] code
/// distances, UINT32_MAX where there is no neighbour; that one may be null. The monitor is asked
/// between launches, which take some 5 to 50 ms on a large device.
void exact_knn(const CodesView& codes, uint32_t k, uint32_t* neighbors, uint32_t* distances,
               const Stream& stream, const Execution& execution);

}  // namespace gannet::cuda
