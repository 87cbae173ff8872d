#include "tune/host_calibration.h"

namespace gannet {

const Calibration& HostCalibration::get(const Segment& segment, const Execution& execution) const {
  return calibration_.get(execution, [&] {
    execution.enter("calibrate");
    Calibration measured;
    measured.measure(segment, execution.span(0, 0));
    return measured;
  });
}

}  // namespace gannet
