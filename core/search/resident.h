// Resident: what a build leaves on its device, to become part of the index's copy there.
#pragma once

#include <cstdint>
#include <memory>

#include "backend/launch.h"
#include "search/device_index.h"

namespace gannet::cuda {

struct Resident {
  std::unique_ptr<Stream> stream;                // in whose order the memory is given back
  std::unique_ptr<DeviceArray<uint8_t>> codes;   // [rows, stride] as on the host
  std::unique_ptr<DeviceArray<uint8_t>> edges;   // [rows, degree] uint32_t
  const uint8_t* rows = nullptr;                 // the caller's, `row_stride` bytes apart, as the index
  uint64_t row_stride = 0;                       // stores them; null: they lie on the host
};

/// place_index (search/device_index.h) with codes and edges that are there already; on an error they are
/// where they were.
std::unique_ptr<DeviceIndex> place_resident(int32_t device, const Dataset& dataset, const Codes& codes,
                                            const SearchGraph& graph, Resident& resident,
                                            const Execution& execution);

}  // namespace gannet::cuda
