// TSDG's two stages on a CUDA device, equal bit for bit to diversify.cpp.
#pragma once

#include "backend/launch.h"
#include "backend/transfers.h"
#include "dataset/codes_cuda.h"
#include "graph/diversify.h"

namespace gannet::cuda {

/// Whether the current device can diversify with these parameters: its blocks need room for the edges of the longest
/// row, and for SSG's pool.
bool diversifies(const DiversifyParams& params, uint32_t k);

/// Lists of k rows to diversify, on the device, where they are overwritten, or on the host, from where they are sent,
/// in chunks except for SSG; the other is null.
struct ListsView {
  uint32_t* there;       // [rows, k]
  const uint32_t* host;  // [rows, k]
  uint32_t k;
};

/// diversify() on a device, into `graph`, whose `rows` and `entries` are set. `codes` has the rows on the device.
void diversify(const CodesView& codes, const ListsView& lists, const DiversifyParams& params, bool repair,
               SearchGraph& graph, Transfers& transfers, const Stream& stream, const Execution& execution);

}  // namespace gannet::cuda
