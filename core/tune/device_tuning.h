// DeviceTuning: what has been measured of a segment on one CUDA device, for every procedure.
#pragma once

#include <memory>
#include <mutex>

#include "tune/calibration.h"
#include "tune/device_calibration.h"

namespace gannet {

class DeviceTuning {
 public:
  DeviceCalibration two_lists;

  /// The effort of CAGRA's searches with a plan like `like` for a recall, measured now if none has asked yet;
  /// none where the segment cannot be calibrated. The defaults are measured: what else a caller has chosen is the
  /// caller's to answer for.
  std::optional<Effort> cagra(const Segment& segment, DevicePlacement& placement, const CagraPlan& like,
                              uint32_t k, float recall, const Execution& execution) const;

 private:
  mutable std::mutex mutex_;
  mutable std::unique_ptr<const CagraCalibration> cagra_[2][2];  // by one CTA or several, on codes or rows
};

}  // namespace gannet
