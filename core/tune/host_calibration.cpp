#include "tune/host_calibration.h"

namespace gannet {

const Calibration& HostCalibration::get(const Segment& segment, const Execution& execution) const {
  return calibration_.get(execution, [&](Calibration& calibration, const Execution& all) {
    all.enter("calibrate");
    calibration.measure(segment, all.span(0, 0));
  });
}

}  // namespace gannet
