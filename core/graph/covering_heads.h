// Covering heads: where walks start whose graph has more islands than entry points.
//
// A graph of islands has heads, and searches start at kEntriesMax of them (graph/long_edges.h). Where islands are more
// than these, and as far from each other in all directions, no start is nearer to the right island than others, and a
// walk finds that by chance. So it starts at one head of each instead.
//
// Which heads are of one island is seen by their edges: two heads are near each other where each has an edge to the
// other, and both such edges to a third. Edges from one island to another (of lists that are longer than an island has
// heads, of repairs) sometimes have one back, hardly ever a third head beside. In order of rows a head covers all that
// are kHops steps from it at most, and those that none before them covers are the covering heads. Every island has one,
// and one of heads far from each other several.
//
// Ten answers, one thread of an AMD EPYC with AVX-512 VNNI. 1,000,000 x 128 in 1,000 clusters: 76,382 heads, of which
// 1,670 cover all; .95, .99 and .999 in 32, 42 and 57 us and 2,110 to 2,400 distances. Walks from the entry points and
// all that their long edges lead to got .96 in 146, and more only all rows, in 1,320. 300,000 x 768 in 1,000 clusters:
// 3,684 of 30,816, 142, 170 and 199 us; before .98 in 208, and all rows in 1,820.
//
// Rejected, by the two sets: edges in one direction (1,199 heads of the first, .977, since an island may be covered
// from another); edges in both without a third head (1,344 and 1,104 heads, .993 and .983); two paths of two such
// edges instead of the third head (2,577 and 4,230 heads, a fifth more time); heads near no other left out (.944 and
// .983); neighbours alone, one step (9,879).
//
// On CUDA devices they are pivots, where calibration there finds that these serve better (tune/device_calibration.h).
//
// A file holds them with the curves of the CPU, so that an open reads no edges. A device's curves are of those that this
// makes: another choice needs another class of devices (place/placement.h).
//
// Cost, h heads of d edges, e of which have one back: h d^2 comparisons of numbers by all threads and, up to the first
// third head, h e^3 at most; then the neighbours of a million heads at most by one.
#pragma once

#include <cstdint>

#include "base/execution.h"
#include "graph/search_graph.h"

namespace gannet {

/// A walk that starts at more of them would compare more than it spares.
inline constexpr uint32_t kCoveringMost = 8192;

/// The rows, ascending; none where the graph has no heads beside its entry points, or too many would be needed.
Array<uint32_t> covering_heads(const SearchGraph& graph, const Execution& execution);

/// Bytes that this takes at most.
uint64_t covering_heads_bytes(uint64_t rows, uint32_t degree);

}  // namespace gannet
