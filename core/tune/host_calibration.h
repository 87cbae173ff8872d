// HostCalibration: the calibration of the CPU's walks over one segment: that of its build or of its file, or where a
// device has built one that is measured when it is first needed.
//
// A device searches by curves of its own. The CPU's took 95 of the 180 ms in which a device builds 30,000 rows of GIST
// and measures both, side by side, and many such indexes are never searched by the CPU. Those that are get the walks
// that a build of the CPU measures, where a device's build once measured beams alone.
#pragma once

#include "base/measured_once.h"
#include "tune/calibration.h"

namespace gannet {

class HostCalibration {
 public:
  HostCalibration() { calibration_.renew(); }

  // The caller of these is the only one to know the segment yet.
  void set(const Calibration& measured) { calibration_.renew() = measured; }
  void measure(const Segment& segment, const Execution& execution, SearchGraph* own) {
    calibration_.renew().measure(segment, execution, own);
  }
  /// Leaves measuring to the first call that needs it.
  void postpone() { calibration_.clear(); }

  /// Whether there is one or will be: the index was built with calibration.
  bool exists() const { return !is_known() || !known().empty(); }
  bool is_known() const { return calibration_.known() != nullptr; }
  /// Only where it is known.
  const Calibration& known() const { return *calibration_.known(); }

  /// Measures what was postponed.
  const Calibration& get(const Segment& segment, const Execution& execution) const;

 private:
  MeasuredOnce<Calibration> calibration_;
};

}  // namespace gannet
