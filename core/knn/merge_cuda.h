// The descent of GGM (knn/merge.h) on a CUDA device: the lists of nn_descent.h, bit for bit.
#pragma once

#include <cstdint>

#include "dataset/codes.h"
#include "knn/nn_descent.h"

namespace gannet::cuda {

/// Sends codes and halves, [rows, kept] in host memory, to an ANN_DEVICE_CUDA + i, runs the descent there and
/// fetches its lists. Errors: ANN_NO_DEVICE, ANN_DEVICE_NO_MEMORY, ANN_DEVICE_LOST, ANN_CANCELLED, ANN_DEADLINE.
/// The device's memory is given back on every path.
KnnGraph descend_across(const Codes& codes, const NnDescentParams& params, const TwoSets& sets,
                        int32_t device, const Execution& execution);

}  // namespace gannet::cuda
