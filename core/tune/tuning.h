// Tuning: the measured curves of a segment's procedures on one placement, the CPU or a device.
//
// A procedure whose row of the table lists values of its knob (Procedure::knob_at) is measured here, in the same
// way on the CPU and on a device, at the first search that needs it for a recall: for k of 1, 10 and 100, and of one
// list on a device 1,000, the sample of trials.h is answered with one value after another until recall reaches 0.999,
// more work brings nothing, a walk compares as many rows as the set has, or one list takes far longer than all rows.
// Searches by other names go on meanwhile; those that want the same curves wait, and check their monitors. Two lists
// (device_calibration.h) and the CPU's BEST_FIRST (calibration.h) are measured when an index is built or placed, since
// AUTO chooses by them.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/measured_once.h"
#include "tune/curves.h"
#include "tune/trials.h"

namespace gannet {

/// Which effort of one procedure gives which recall.
struct MeasuredProcedure {
  ann_search_params like;  // its name, and of the other parameters those that change an effort's results
  KnobCurves curves;       // none: the segment cannot be calibrated
  uint32_t width = 0;      // p with which they were measured; 0: the procedure has none
};

class Tuning {
 public:
  /// The effort of the procedure that `like` names for a recall, measured by the first search; none where
  /// the segment cannot be calibrated. The defaults are measured: other parameters of a caller are at the caller's
  /// own risk.
  std::optional<Effort> find(const SearchTarget& target, const ann_search_params& like, uint32_t k,
                             float recall, const Execution& execution) const;

  /// Whether rows are too few to stand for queries on a device, and none were given.
  static bool are_few_rows(const Segment& segment);

 private:
  /// The curves that a search wants.
  struct Asked {
    ann_search_params like;
    MeasuredOnce<MeasuredProcedure> measured;
  };

  const Asked& entry_of(const ann_search_params& like) const;

  mutable std::mutex mutex_;                           // of the entries; not held while measuring
  mutable std::vector<std::unique_ptr<Asked>> asked_;  // entries stay
};

}  // namespace gannet
