// Exact search: every query against every row.
//
// The reference for everything else (ground truth, calibration, recall), and the search of an index
// without a graph. The answer is defined by distances and ids alone: the k smallest pairs (distance,
// id). So no order of work, thread or device changes it.
//
// Few queries are compared with the rows as stored. For more, a tile of rows is coded as bytes once, and the
// tile's products with all queries of a group tell which rows may be nearer than the farthest that a query
// keeps (row_bounds.h); only those are compared as stored. That is one instruction for 64 columns instead
// of twelve, and changes no bit. Lists take rows below a limit and are thinned out now and then
// (distance/nearest_list.h).
#pragma once

#include "base/execution.h"
#include "search/queries.h"

namespace gannet {

/// Answers every usable query of the block. Rows that `admission` does not let a walk meet or an
/// answer have are not found. The monitor is checked by work done, also while long lists are sorted and padded.
void search_exact(const Dataset& dataset, const QueryBlock& queries, const BatchAdmission& admission,
                  const ResultsView& results, const Execution& execution);

}  // namespace gannet
