// Calibration: which beam gives which recall, measured on queries that the graph has not seen.
//
// A sample of rows plays the queries. A row that is in the graph is no query: its own edges lead to
// its neighbours, and an effort that gives 0.89 on unseen queries gives 1.00 on such rows. So each is
// masked while it plays: it is never expanded and never returned. Exact search judges.
//
// For k of 1, 10, 100 and 1,000 a curve (beam, recall) is measured at growing beams until recall
// reaches 0.9995 or stops growing. A point's recall is the mean over the sample less its standard
// error, so that the promise (mean recall on unseen queries of the same distribution at least the
// target - 0.01) survives the luck of the sample.
//
// Cost: 256 exact searches and some 10 walks each. Twice as many took a fifth of the build of 30,000
// rows of 960 floats and moved no beam by more than a step.
#pragma once

#include <cstdint>

#include "search/best_first.h"

namespace gannet {

class Calibration {
 public:
  /// Measures on masked rows, or on `queries` of the caller if not null. `device` judges; the walks
  /// are the CPU's.
  void measure(const Dataset& dataset, const Codes& codes, const SearchGraph& graph,
               const MatrixView* queries, uint64_t seed, int32_t device,
               const Execution& execution);

  bool measured() const { return curve_count_ > 0; }

  /// The highest mean recall@10 seen; 0 without a curve for it.
  float recall_max() const { return recall_max_; }

  /// The beam for k neighbours at a recall. Without curves a cautious rule: see ann_search_params.
  uint32_t beam(uint32_t k, float recall) const;

 private:
  static constexpr uint32_t kCurves = 4;
  static constexpr uint32_t kPoints = 24;

  struct Point {
    uint32_t beam;
    double recall;
  };
  struct Curve {
    uint32_t k = 0;
    uint32_t count = 0;
    Point points[kPoints] = {};

    double beam(double recall) const;
  };

  Curve curves_[kCurves];
  uint32_t curve_count_ = 0;
  float recall_max_ = 0;
};

/// Bytes that measuring takes at most.
uint64_t calibration_bytes(uint32_t dim, uint64_t rows, uint64_t threads);

}  // namespace gannet
