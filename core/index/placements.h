// Placements: the devices that one segment has been placed on, each with the measurements made there.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "base/measured_once.h"
#include "search/device_search.h"
#include "tune/device_calibration.h"
#include "tune/tuning.h"

namespace gannet {

struct PlacedSegment;

/// A segment on one CUDA device.
struct PlacedDevice {
  std::unique_ptr<DevicePlacement> placement;
  DeviceCalibration two_lists;             // measured before the first search
  MeasuredOnce<DeviceCalibration> others;  // with the curves for other numbers of answers
  Tuning tuning;                           // of the other procedures

  /// The calibration of two lists that serves k answers, measured now if it was not.
  const DeviceCalibration& two_lists_for(uint32_t k, const PlacedSegment& placed,
                                         const Execution& execution) const {
    return two_lists.serves(k) ? two_lists : whole_two_lists(placed, execution);
  }
  /// That of all numbers of answers, likewise.
  const DeviceCalibration& whole_two_lists(const PlacedSegment& placed, const Execution& execution) const;
};

/// The calibration of two lists on devices of a class. It has 18 KB, and is made on the heap, since the caller's thread
/// may have a small stack.
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
  /// Measures the curves of two lists that placements lack. Where that fails, for want of memory or of the device, they
  /// go on lacking them: a save must not fail for it.
  void measure_others(const PlacedSegment& placed, const Execution& execution) const;
  /// The calibrations of devices, of this process or from the file, in order of their classes. They outlive the
  /// placements.
  std::vector<std::shared_ptr<const MeasuredDevice>> measured() const;
  /// Of one class the calibration with the most curves.
  void remember(const DeviceClass& device, const DeviceCalibration& two_lists);
  /// Host memory that they hold.
  uint64_t host_bytes() const;

 private:
  void calibrate(const PlacedSegment& placed, PlacedDevice& device, const Execution& execution);

  std::mutex making_;  // one at a time, held while a segment is sent
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<const PlacedDevice>> devices_;
  std::vector<std::shared_ptr<const MeasuredDevice>> measured_;  // by class
};

}  // namespace gannet
