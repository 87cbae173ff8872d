// Long edges on a CUDA device: those of graph/long_edges.h, with the same heads, and lists of heads by exact search or
// cells. Heads, the way back, and pruned, reversed and repaired edges are the CPU's, bit for bit.
#pragma once

#include <cstdint>

#include "backend/launch.h"
#include "backend/transfers.h"
#include "base/execution.h"
#include "dataset/codes.h"
#include "graph/search_graph.h"

namespace gannet::cuda {

/// A graph on the device, where it is also on the host.
struct GraphThere {
  const uint8_t* codes;   // [rows, stride of the codes] unsigned bytes or floats
  const uint32_t* edges;  // [rows, degree]
};

/// Gives a graph that is on the host and on the device heads and their edges, and repairs it again; nothing where
/// add_long_edges() of the CPU does nothing. `edges`, [rows, degree] on the device, gets what the graph's get. Whether it
/// has. Errors: ANN_DEVICE_NO_MEMORY, after which add_long_edges() may still be called, ANN_DEVICE_LOST, ANN_CANCELLED,
/// ANN_DEADLINE.
bool add_long_edges(const Codes& codes, const GraphThere& there, SearchGraph& graph, uint64_t seed,
                    uint32_t* edges, const Stream& stream, const Execution& execution);

}  // namespace gannet::cuda
