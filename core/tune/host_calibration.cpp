#include "tune/host_calibration.h"

#include <chrono>
#include <thread>

namespace gannet {
namespace {

constexpr std::chrono::milliseconds kWait(1);  // between looks at what another thread measures

}  // namespace

const Calibration& HostCalibration::get(const Segment& segment, const Execution& execution) const {
  if (is_known()) return calibration_;
  std::unique_lock lock(measuring_, std::defer_lock);
  while (!lock.try_lock()) {
    execution.check();
    std::this_thread::sleep_for(kWait);
  }
  if (is_known()) return calibration_;
  Calibration measured;
  execution.enter("calibrate");
  measured.measure(segment, execution.span(0, 0));
  calibration_ = measured;
  is_known_.store(true, std::memory_order_release);
  return calibration_;
}

}  // namespace gannet
