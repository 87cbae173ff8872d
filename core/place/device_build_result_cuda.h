// The arrays that a build leaves on its device, which become part of the segment's placement there.
#pragma once

#include <cstdint>
#include <memory>

#include "backend/launch.h"

namespace gannet::cuda {

class Transfers;

struct DeviceBuildResult {
  std::unique_ptr<Stream> stream;               // in whose order the memory is given back
  std::unique_ptr<DeviceArray<uint8_t>> codes;  // [rows, stride] as on the host, which has others if null
  std::unique_ptr<DeviceArray<uint8_t>> edges;  // [rows, degree] uint32_t
  std::unique_ptr<DeviceArray<uint8_t>> sent;   // [rows, row_stride] rows that were sent ahead, or null
  const uint8_t* rows = nullptr;                // these, or the caller's, `row_stride` bytes apart, as the
  uint64_t row_stride = 0;                      // segment stores them; null: they lie on the host
  Transfers* transfers = nullptr;               // for what is still to be sent
};

}  // namespace gannet::cuda
