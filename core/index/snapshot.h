// Snapshot: the state of an index that one search sees. An index publishes snapshots by swap; a search holds its one
// finds, so nothing it reads changes or goes away under it.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "index/placements.h"
#include "place/placement.h"
#include "search/procedure.h"
#include "segment/row_set.h"
#include "segment/segment.h"
#include "tune/host_calibration.h"
#include "tune/tuning.h"

namespace gannet {

/// A segment with its placements, on the CPU and on devices, and the measurements made there.
struct PlacedSegment {
  explicit PlacedSegment(Dataset&& rows) : segment(std::move(rows)), host{segment} {}
  PlacedSegment(const PlacedSegment&) = delete;

  uint64_t bytes() const {
    return segment.bytes() + host.workspaces.bytes() + host.covering_codes.bytes() + devices.host_bytes();
  }
  /// The curves of the CPU's walks, measured now if they were postponed.
  const Calibration& curves(const Execution& execution) const { return calibration.get(segment, execution); }
  /// The highest mean recall of ten answers seen.
  float recall_max() const {
    return calibration.is_known() ? calibration.known().recall_max() : recall_max_there;
  }

  Segment segment;
  HostPlacement host;
  HostCalibration calibration;  // of BEST_FIRST and SLACK
  Tuning tuning;                // of the CPU's other procedures
  double build_seconds = 0;
  double calibrate_seconds = 0;
  float recall_max_there = 0;  // of the calibration of the device that has built it
  mutable Placements devices;  // come and go
};

struct Snapshot {
  std::vector<std::shared_ptr<const PlacedSegment>> segments;  // of equal shape
  std::vector<std::shared_ptr<const RowSet>> removed;          // rows of each segment; missing or null: none

  RowSetView removed_of(size_t segment) const {
    const bool has = segment < removed.size() && removed[segment] != nullptr;
    return has ? removed[segment]->view() : RowSetView{};
  }

  /// The only segment.
  const PlacedSegment& single() const { return *segments.front(); }
};

/// The procedure that answers a search, with its recall and work.
struct SearchReport {
  int32_t procedure = ANN_SEARCH_AUTO;  // ANN_SEARCH_*; of several segments that of the first
  uint32_t warps = 0;                   // of TWO_LISTS: that walk for a query; likewise
  double recall = 0;                    // that calibration promises; 0: nothing was measured
  double distances = 0;                 // of a query, mean, as far as the plan says
  double expansions = 0;                // likewise

  /// Adds another segment's.
  void add(const SearchReport& other) {
    const bool is_first = procedure == ANN_SEARCH_AUTO;
    recall = is_first ? other.recall : std::min(recall, other.recall);
    if (is_first) {
      procedure = other.procedure;
      warps = other.warps;
    }
    distances += other.distances;
    expansions += other.expansions;
  }
};

/// Answers a batch of an index of any number of segments on `device` (ANN_DEVICE_*). Each segment answers
/// for itself, and the answers of several are merged by (distance, id).
void search_snapshot(const Snapshot& snapshot, const ann_search_params& params, float recall, int32_t device,
                     const SearchBatch& batch, const Execution& execution, SearchCounts* counts,
                     SearchReport* report = nullptr);

/// The choices of search_snapshot for `queries` queries of k answers from memory of the host or of the device.
/// Places the index on the device, and calibrates the procedure, as search_snapshot would.
SearchReport forecast_search(const Snapshot& snapshot, const ann_search_params& params, float recall,
                             int32_t device, bool queries_on_device, uint64_t queries, uint32_t k,
                             const Execution& execution);

}  // namespace gannet
