#include "tune/host_calibration.h"

namespace gannet {

const Calibration& HostCalibration::get(const Segment& segment, const Execution& execution) const {
  return calibration_.get(execution, [&](Calibration& calibration) {
    execution.enter("calibrate");
    calibration.measure(segment, execution.span(0, 0));
  });
}

}  // namespace gannet
