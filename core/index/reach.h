// Whether walks find the rows of a graph.
//
// Walks of the CPU with a short beam search for the codes of a sample of rows: a walk that misses a code which is
// the query itself would find no other row there. If more are missed than may be, the graph gets long edges
// (graph/long_edges.h). Missed of 4,096 rows, graphs of 32 edges from the CPU:
//
//     SIFT 100k 0, GIST 0, words 4, patches 23 of 850,000 rows and 33 of 60,000, texts 211
//
// A graph from the CPU may miss one row in 300. With long edges 850,000 patches (48 edges) take .93 of the time at .95, .90
// at .99, .75 at .995 and .44 at .999, and 60,000 .54 at .999 where comparing all rows was the way; words would take
// 1.05 to 1.25 times as long. The build takes a sixteenth longer. A device builds faster than its host makes long edges:
// those of 850,000 patches take two threads 1.0 s. So its graphs may miss one row in 50.
//
// Missed rows may also lie beside rows that their walks find, and be no end of the edges of these: rows that are near
// to few others, in few dimensions of many. Then no islands are in the way, and long edges would take places of edges
// that serve. Of those missed by walks of 64 rows their walks come to an end of one of their own first edges for 45 % on
// 60,000 word counts, 9 % of rows in two densities or fewer, and for none on islands, clusters, copies, patches and
// texts. Word counts without long edges, and with edges to missed rows (index/missed_rows.h), take as long as with both
// up to .99, and their build .92 of the time on the CPU and .67 on an H200.
#pragma once

#include "base/execution.h"
#include "graph/long_edges.h"
#include "segment/segment.h"

namespace gannet {

/// Bytes that an index holds for it at most: heads, and starts among them.
constexpr uint64_t reach_bytes(uint64_t rows) { return (rows / kHeadShare + kEntriesMax) * sizeof(uint32_t); }

/// One row in so many may be missed in graphs from the CPU, and from devices.
inline constexpr uint32_t kRowsPerMissOnHost = 300;
inline constexpr uint32_t kRowsPerMissOnDevice = 50;

/// Whether walks find the rows of a graph by L2 or cosine, or come beside them, but for one in `rows_per_miss` of them; not
/// measured by inner product.
bool walks_find_rows(const Segment& segment, uint32_t rows_per_miss, const Execution& execution);

}  // namespace gannet
