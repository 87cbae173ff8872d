// Covering heads: where walks start whose graph has more islands than entry points.
//
// A graph of islands has heads, and searches start at kEntriesMax of them (graph/long_edges.h). Where islands are
// more than these, and as far from each other in all directions, no start is nearer to the right island than others,
// and a walk finds that by chance. So it starts at one head of each instead.
//
// Which heads are of one island is seen by their edges: two heads are near each other where each has an edge to the
// other, and both such edges to a third; they are close where besides neither has a head much nearer. Edges from one
// island to another (of lists that are longer than an island has heads, of repairs) sometimes have one back, hardly
// ever a third head beside; but between islands of few heads they have. In order of rows a head covers all that are
// kHops steps from it at most, and those that none before them covers are candidates: steps to close heads, unless
// that takes twice as many of them. Every island has one, and one of heads far from each other several.
//
// So a candidate is left out where walks with a list of sixteen rows find it, and another head that it covers,
// without it, each from the nearest covering head, which is hardly farther than the rows around the head that is
// sought: what is farther is of another island, from which a single edge may lead there.
//
// Ten answers, one thread of an AMD EPYC with AVX-512 VNNI, distances and time of a query. Clusters differ in size.
//
//                                            heads  candidates  covering        .95            .99            .999
//   1,000,000 x 128, 1,000 clusters         76,382       1,943     1,443  1,884  33 us   2,010  44 us   2,171  62 us
//   1,000,000 x  96, 5,000 clusters         61,005       6,703     5,290  5,597  62 us   5,658  81 us   5,712 122 us
//   300,000   x 768, 1,000 clusters         30,816       4,609     1,126  1,406  62 us   1,501  92 us   1,593 124 us
//
// From the entry points and all that their long edges lead to walks got .96 of the first in 146 us, .98 of the last
// in 208, and more only all rows, in 1,320 and 1,820. From all candidates, without close heads, the first took as
// long, by 2,113 to 2,396 distances; the second got .99 in 95 us and .999 only by all rows, in 1,340, as .007 of its
// queries were in islands that had none; the last took 124 to 220 us, by 3,942 to 4,125 distances.
//
// Rejected, by the first and the last. Of candidates: edges in one direction (1,199 of the first, .977, since an
// island may be covered from another); edges in both without a third head (1,344 and 1,104, .993 and .983); two paths
// of two such edges instead of the third head (2,577 and 4,230, a fifth more time); heads near no other left out
// (.944 and .983); one step (9,879), three to heads that are not close (767 and 2,207: a third of the first clusters
// has none). Close heads wherever they are few enough at all: a tree of 200,000 rows had 4,101 candidates instead of
// 377. Of covering heads: any distance (897 and 915, .990); 1.7 times as far instead of 1.6 (of 1,500 islands five
// had none); the candidate alone sought (two); the rows around by the median of all edges, of which half may be long
// (970 and 977, .992).
//
// On CUDA devices they are pivots, where calibration there finds that these serve better (tune/device_calibration.h).
//
// A file holds them with the curves of the CPU, so that an open reads no edges. A device's curves are of those that
// this makes: another choice needs another class of devices (place/placement.h).
//
// Cost, h heads of d edges, e of which have one back: h d^2 comparisons of numbers and 2 h d distances of codes by
// all threads and, up to the first third head, h e^3 at most; then, up to six times, the neighbours of a million
// heads at most by one; of c candidates c^2 distances of codes at most and 6,000 in walks, by all threads: 30 to 110
// ms of builds of 20 and 13 s by two.
#pragma once

#include <cstdint>

#include "base/execution.h"
#include "dataset/codes.h"
#include "graph/search_graph.h"

namespace gannet {

/// A walk that starts at more of them would compare more than it spares.
inline constexpr uint32_t kCoveringMost = 8192;

/// The rows, ascending; none where the graph has no heads beside its entry points, or too many would be needed.
Array<uint32_t> covering_heads(const SearchGraph& graph, const Codes& codes, const Execution& execution);

/// Bytes that this takes at most, by codes of `stride` bytes.
uint64_t covering_heads_bytes(uint64_t rows, uint32_t degree, size_t stride, uint32_t threads);

}  // namespace gannet
