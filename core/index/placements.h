// Placements: the devices that one segment has been placed on, each with what has been measured there.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "search/device_search.h"
#include "tune/device_calibration.h"
#include "tune/tuning.h"

namespace gannet {

struct PlacedSegment;

/// A segment on one CUDA device.
struct PlacedDevice {
  std::unique_ptr<DevicePlacement> placement;
  DeviceCalibration two_lists;
  Tuning tuning;  // of the other procedures
};

/// A search holds on to the placement that it uses, so taking one away waits for nobody.
class Placements {
 public:
  /// The placement on a CUDA ordinal, or null.
  std::shared_ptr<const PlacedDevice> find(int32_t device) const;
  /// The placement on a CUDA ordinal; made, and calibrated if the segment has been, if there is none.
  std::shared_ptr<const PlacedDevice> get(const PlacedSegment& placed, int32_t device,
                                          const Execution& execution);
  /// Takes over one that was made elsewhere; the device has none yet.
  void adopt(std::shared_ptr<const PlacedDevice> device);
  /// Takes a placement away, if there is one.
  void drop(int32_t device);
  /// Host memory that they hold.
  uint64_t host_bytes() const;

 private:
  std::mutex making_;  // one at a time, held while a segment is sent
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<const PlacedDevice>> devices_;
};

}  // namespace gannet
