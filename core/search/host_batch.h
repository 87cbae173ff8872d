// Batches of host memory on a CUDA device: the way from a caller's queries into workspaces of the device, and back.
#pragma once

#include "search/device_search.h"

namespace gannet {

/// Answers a batch of host memory by a walk on a device.
void walk_host_batch(const Segment& segment, DevicePlacement& placement, const SearchBatch& batch,
                     const SearchPlan& plan, const Execution& execution, SearchCounts* counts);

/// Writes queries [first, first + count) as records of a workspace, and which of them are finite; the record
/// of one that is not holds zeros.
void fill_workspace(const Segment& segment, const MatrixView& queries, uint64_t first, uint32_t count,
                    DeviceWorkspace& workspace, const Execution& execution);

}  // namespace gannet
