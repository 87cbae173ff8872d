// Exact search: every query against every row.
//
// The judge of everything else (ground truth, calibration, recall), and the search of an index
// without a graph. The answer is defined by distances and ids alone: the k smallest pairs (distance,
// id). So no order of work, thread or device changes it.
//
// Cost: rows * queries distances. Rows are read in tiles that stay in the second cache while a group
// of queries is compared with them; the rows so are read from memory once a group.
#pragma once

#include "base/execution.h"
#include "search/queries.h"

namespace gannet {

/// Answers every usable query of the block. `excluded`, if not null, is [queries] one row for each
/// query that must not be found (kNoRow: none).
void search_exact(const Dataset& dataset, const QueryBlock& queries, const uint32_t* excluded,
                  const ResultsView& results, const Execution& execution);

}  // namespace gannet
