// GGNN's build on a CUDA device, equal bit for bit to ggnn.cpp. graph/ggnn.h describes it.
#pragma once

#include <cstdint>
#include <memory>

#include "backend/launch.h"
#include "base/execution.h"
#include "dataset/codes_cuda.h"
#include "graph/ggnn.h"

namespace gannet::cuda {

struct GgnnOnDevice {
  std::unique_ptr<DeviceArray<uint8_t>> edges;  // [rows, k] uint32_t, of the bottom
  double links = 0;                             // the mean number of inverse links of a row
};

/// Builds on the stream's device. Of `graph`, whose `rows` and `degree` are set, everything but the edges of the
/// bottom is filled in: layers, entry points, distances to nearest neighbours.
GgnnOnDevice build_ggnn(const CodesView& codes, const GgnnParams& params, SearchGraph& graph,
                        const Stream& stream, const Execution& execution);

}  // namespace gannet::cuda
