// DeviceCalibration: which slack and cap give which recall when a CUDA device walks with two lists.
//
// Measured when an index is first placed on a device, as index/calibration.h does it on the CPU: masked
// rows play the queries, exact search on the device judges. There is a table for each procedure (a warp a
// query, a block of 8 or 16 warps a query), with a curve for each of some k, between which slacks are
// interpolated by log k. A curve is a row of slacks. Where a warp walks, the walk first runs without a
// cap; the cap is then set to a multiple of the mean number of expansions, and what recall is left is
// what counts. Without a cap the longest walks of a batch run alone at its end: at recall 0.95 a cap of
// 1.4 times the mean gave 10 to 30 % more queries per second at equal recall, at 0.99 2.1 times the mean
// 5 % (one NVIDIA H200, 1M SIFT rows, batch 10,000). Blocks have no cap.
//
// A point's recall is the mean over the sample, less what two of its standard errors exceed the 0.01 by
// which the promise may be missed. Where the slacks tried do not
// reach a target, or there are too few rows to tell, the walk with one list and the CPU's calibrated beam
// answers instead. The table is not kept in files: another device may be another one.
//
// Samples: up to 1,024 queries for k below 100, 256 for 100 and 64 for 1,000, each of which averages more
// neighbours. Cost: some 250 runs, and two exact searches of as many queries.
#pragma once

#include <cstdint>

#include "base/execution.h"
#include "search/device_index.h"

namespace gannet {

class DeviceCalibration {
 public:
  /// `device` is a CUDA ordinal, on which `index` stands.
  void measure(const Dataset& dataset, const Codes& codes, DeviceIndex& index, int32_t device,
               uint64_t seed, const Execution& execution);

  /// The effort for k neighbours at a recall by walks of so many warps a query; false where the table
  /// does not say.
  bool find(uint32_t warps, uint32_t k, float recall, WalkEffort* effort) const;

 private:
  static constexpr uint32_t kTables = 3;
  static constexpr uint32_t kCurves = 4;
  static constexpr uint32_t kPoints = 20;
  struct Point {
    double recall = 0;
    double slack = 0;
    double expansions_max = 0;
  };
  struct Curve {
    uint32_t k = 0;
    uint32_t count = 0;
    Point points[kPoints];
    bool find(double recall, Point* point) const;
  };
  struct Table {
    uint32_t warps = 0;
    uint32_t count = 0;
    Curve curves[kCurves];
    bool find(uint32_t k, double recall, Point* point) const;
  };
  class Sample;
  void measure_curve(Sample& sample, uint32_t k, Table* table) const;

  Table tables_[kTables];
};

}  // namespace gannet
