// Whether walks find the rows of a graph.
//
// Walks of the CPU with a short beam search for the codes of a sample of rows: a walk that misses a code which is
// the query itself would find no other row there. If more than one in fifty is missed, the graph gets long
// edges (graph/long_edges.h). SIFT, GIST, words, patches and texts miss none.
#pragma once

#include "base/execution.h"
#include "graph/long_edges.h"
#include "segment/segment.h"

namespace gannet {

/// Bytes that an index holds for it at most: heads, and starts among them.
constexpr uint64_t reach_bytes(uint64_t rows) { return (rows / kHeadShare + kEntriesMax) * sizeof(uint32_t); }

/// Whether walks find the rows of a graph by L2 or cosine; not measured by inner product.
bool walks_find_rows(const Segment& segment, const Execution& execution);

}  // namespace gannet
