// Whether walks find the rows of a graph.
//
// A sample of rows is asked for by walks of the CPU with a short beam: a walk that does not come to a code
// that it is given comes to nothing else there. If more than one of fifty is missed, the graph gets long
// edges (graph/long_edges.h). SIFT, GIST, words, patches and texts miss none.
#pragma once

#include "base/execution.h"
#include "graph/long_edges.h"
#include "segment/segment.h"

namespace gannet {

/// Bytes that an index holds for it at most: heads, and starts among them.
constexpr uint64_t reach_bytes(uint64_t rows) { return (rows / kHeadShare + kEntriesMax) * sizeof(uint32_t); }

/// Whether walks find the rows of a graph by L2 or cosine; by inner product nobody looks.
bool walks_find_rows(const Segment& segment, const Execution& execution);

}  // namespace gannet
