// Which procedure answers a batch, and how far it goes.
#pragma once

#include "index/snapshot.h"
#include "search/entry_groups.h"

namespace gannet {

struct Choice {
  const Procedure* procedure = nullptr;
  SearchPlan plan;
  Effort effort;  // its recall is the calibration's promise for the search; 0: nothing was measured
};

/// Entry points that a walk of the CPU with an effort compares, about.
inline double entries_compared(const Segment& segment, const Effort& effort) {
  if (effort.from_groups) return EntryGroups::compared_of(segment.codes, segment.graph);
  const size_t starts = effort.covering.empty() ? segment.graph.entries.size() : effort.covering.size();
  return static_cast<double>(starts);
}

/// Whether a search compares every row whatever is calibrated: by name, or as there is no graph. Error:
/// ANN_UNSUPPORTED of a procedure that needs a graph where there is none.
bool compares_all(const Segment& segment, const ann_search_params& params);

/// The procedure that is named, or of those that serve the best, with its plan. `device` is the placement that
/// searches, null: the CPU. Errors: ANN_INVALID_ARGUMENT, ANN_LIMIT, ANN_UNSUPPORTED where the request names
/// a search that cannot be done.
Choice choose(const PlacedSegment& placed, const PlacedDevice* device, const SearchRequest& request,
              const Execution& execution);

}  // namespace gannet
