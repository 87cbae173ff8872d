// Placements: the devices that one segment has been placed on, each with the measurements made there.
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

/// The calibration of two lists on devices of a class.
struct MeasuredDevice {
  DeviceClass device;
  DeviceCalibration two_lists;
};

/// Classes whose measurements an index keeps at most; others are measured whenever they are used.
inline constexpr uint32_t kDeviceClassesKept = 16;

/// A search holds on to the placement that it uses, so taking one away waits for nobody.
class Placements {
 public:
  /// The placement on a CUDA ordinal, or null.
  std::shared_ptr<const PlacedDevice> find(int32_t device) const;
  /// The placement on a CUDA ordinal; made if there is none, and calibrated if the segment has been and no device
  /// of its class has.
  std::shared_ptr<const PlacedDevice> get(const PlacedSegment& placed, int32_t device,
                                          const Execution& execution);
  /// Takes over one that was made elsewhere; the device has none yet.
  void adopt(std::shared_ptr<const PlacedDevice> device);
  /// Takes a placement away, if there is one.
  void drop(int32_t device);
  /// The calibrations of devices, of this process or from the file, in order of their classes. They outlive the
  /// placements.
  std::vector<MeasuredDevice> measured() const;
  void remember(const MeasuredDevice& measured);
  /// Host memory that they hold.
  uint64_t host_bytes() const;

 private:
  void calibrate(const PlacedSegment& placed, PlacedDevice& device, const Execution& execution);

  std::mutex making_;  // one at a time, held while a segment is sent
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<const PlacedDevice>> devices_;
  std::vector<MeasuredDevice> measured_;  // by class
};

}  // namespace gannet
