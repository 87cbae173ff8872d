// Which procedure answers a batch, and how far it goes.
#pragma once

#include "index/snapshot.h"

namespace gannet {

struct Choice {
  const Procedure* procedure = nullptr;
  SearchPlan plan;
  Effort effort;  // its recall is the calibration's promise for the search; 0: nothing was measured
};

/// Whether a search compares every row whatever is calibrated: by name, or as there is no graph. Error:
/// ANN_UNSUPPORTED of a procedure that needs a graph where there is none.
bool compares_all(const Segment& segment, const ann_search_params& params);

/// The procedure that is named, or of those that serve the best, with its plan. `device` is the placement that
/// searches, null: the CPU. Errors: ANN_INVALID_ARGUMENT, ANN_LIMIT, ANN_UNSUPPORTED where the request names
/// a search that cannot be done.
Choice choose(const PlacedSegment& placed, const PlacedDevice* device, const SearchRequest& request,
              const Execution& execution);

}  // namespace gannet
