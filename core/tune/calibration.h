// Calibration: which beam gives which recall, measured on queries that the graph has not seen.
//
// A sample of rows plays the queries. A row that is in the graph is no query: its own edges lead to
// its neighbours, and an effort that gives 0.89 on unseen queries gives 1.00 on such rows. So each is
// masked while it plays: it is never expanded and never returned. The judge is search/exact_by_codes.h.
//
// For k of 1, 10, 100 and 1,000 a curve (beam, recall) is measured at growing beams until recall
// reaches 0.999, the beam 1,000 k, or a walk costs more than comparing all rows (tune/search_work.h), which
// is what a search then does instead. A point's recall is the mean over the sample less its standard
// error, so that the promise (mean recall on unseen queries of the same distribution at least the
// target - 0.01) survives the luck of the sample; and at most that of any longer beam, or of several points
// of a level curve the luckiest would be taken. Where ten answers of a query are all found or none, as in a dense
// fifth of the rows whose codes are all alike, one standard error of 256 queries is .025: there three of them are
// taken off, less the 0.01 (100,000 such rows, .8 asked: .76 was got). Between points the logarithm of the miss
// falls with the beam. One walk serves all curves: what a search with this beam would have answered for another
// k is a matter of counting.
//
// Cost: 256 true answers and some 10 walks each, up to a beam of about 300; beyond, where only curves
// for 100 and 1,000 are left, 64 and 16 queries, each of which averages more neighbours. With 256 for
// k of 100 as well, and a walk for each k, calibration took twice as long as the k-NN graph. Only where 64 have
// reached 0.999 all 256 are asked: of rows that walks do not reach at all 64 queries may see none, however many
// neighbours each has (corners of a cube, k = 100: .983 was got where .999 had been asked for).
//
// Where a build has left the index on a device, beams that the device can walk with are walked there: by one
// list, which takes the CPU's steps but for rows that its filter drops (search/walk_cuda.cu), so that a
// beam is rather too long than too short. Of 150 ms on 16 processor cores, 1M SIFT rows, few are left.
#pragma once

#include <algorithm>
#include <cstdint>

#include "segment/query_sample.h"
#include "search/best_first.h"
#include "search/device_search.h"
#include "tune/curves.h"

namespace gannet {

class Calibration {
 public:
  Calibration() = default;
  /// Of curves that were measured before.
  Calibration(const KnobCurves& curves, float recall_max) : curves_(curves), recall_max_(recall_max) {}

  /// Measures on masked rows, or on the queries of the caller if the segment keeps any. `device` finds the true
  /// neighbours, and unless `placed`, the placement there, is null, it walks.
  void measure(const Segment& segment, int32_t device, DevicePlacement* placed, const Execution& execution);

  bool empty() const { return curves_.empty(); }
  const KnobCurves& curves() const { return curves_; }

  /// The highest mean recall@10 seen; 0 without a curve for it.
  float recall_max() const { return recall_max_; }

  /// The beam for k neighbours at a recall. Without curves a cautious rule: see ann_search_params.
  uint32_t beam(uint32_t k, float recall) const;

  /// Whether beam(k, recall) was found to give the recall, by the curves for the next smaller and larger k.
  /// True without curves.
  bool reaches(uint32_t k, double recall) const { return curves_.reaches(k, recall); }

  /// The recall that a beam stands for, 0 to 1: the highest for which beam() asks for no more. It does not
  /// fall with the beam. 1 where it is longer than any that was measured. Only where there are curves.
  float recall(uint32_t k, uint32_t beam) const;

 private:
  KnobCurves curves_;
  float recall_max_ = 0;
};

/// Bytes that measuring takes at most.
uint64_t calibration_bytes(uint32_t dim, size_t stride, uint64_t rows, uint32_t threads);

}  // namespace gannet
