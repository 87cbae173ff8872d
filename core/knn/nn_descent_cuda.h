// NN-Descent on a CUDA device: the lists of nn_descent.h, bit for bit.
#pragma once

#include <cstdint>

#include "backend/launch.h"
#include "dataset/codes_cuda.h"
#include "knn/nn_descent.h"

namespace gannet::cuda {

/// Fills `neighbors`, [rows, k] on the device as KnnGraph has them, and `distances`, [rows, k] code
/// distances, UINT32_MAX where there is no neighbour; that one may be null. `sets` as on the CPU, its lists on the
/// device. Returns the rounds that it took. The monitor is checked between launches of some 20 ms on a large device.
uint32_t nn_descent(const CodesView& codes, const NnDescentParams& params, uint32_t* neighbors,
                    uint32_t* distances, const Stream& stream, const Execution& execution,
                    const TwoSets& sets = {});

/// The same by inner product: the lists of nn_descent_by_products (knn/products.h). `offsets` is [rows] on the
/// device, none above `offset_most`; codes of bytes.
uint32_t nn_descent_by_products(const CodesView& codes, const uint32_t* offsets, uint32_t offset_most,
                                const NnDescentParams& params, uint32_t* neighbors, const Stream& stream,
                                const Execution& execution);

}  // namespace gannet::cuda
