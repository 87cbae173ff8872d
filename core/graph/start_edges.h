// Start edges: how walks get from where they start to heads that lie in islands themselves.
//
// Heads represent the rows of a graph of islands (graph/long_edges.h), and searches start at kEntriesMax of them. Where
// islands form groups, and these groups of groups, the nearest heads of a head are of its own group, so that a walk
// does not leave the groups that have a start: of 60,000 rows in a tree of four levels of eight, whose leaves are
// islands of 15 rows, beams of 10 and 1,280 found .891 and .953 of the ten nearest, for one group in twenty has none by
// chance.
//
// So each start has edges to some of the heads that are nearer to it than to all other starts. They are chosen one
// after the other, each the farthest from the start and those before it (Gonzalez, "Clustering to minimize the maximum
// intercluster distance", 1985), so that every group has one where a start has groups enough to itself. They take a
// fourth of its row, in the place of edges to heads that are not the nearest.
//
// Rejected: starts chosen so, which a file does not say; lists of 200 heads instead of 48, which end at groups of 200.
//
// Where islands are many more than starts, and as far from each other in all directions, the start whose edges lead to
// the right one is no nearer than others: such sets need more starts (graph/covering_heads.h).
//
// Cost, h heads: h kEntriesMax comparisons of codes, and h for each edge of a start.
#pragma once

#include <cstdint>

#include "base/execution.h"
#include "dataset/codes.h"
#include "graph/search_graph.h"

namespace gannet {

/// A start's edges, one in so many, lead to heads in all directions.
inline constexpr uint32_t kStartShare = 4;

/// Puts these edges into `rows`, [entry points, degree], the edges of a graph's entry points in their order, which are
/// some of its heads. Nothing where all heads are entry points.
void spread_start_edges(const Codes& codes, const SearchGraph& graph, uint32_t* rows,
                        const Execution& execution);

/// The same of a graph of fixed rows, in place.
void spread_start_edges(const Codes& codes, SearchGraph& graph, const Execution& execution);

/// Bytes that this takes at most.
uint64_t start_edges_bytes(uint64_t heads, size_t stride, uint32_t degree, uint32_t threads);

}  // namespace gannet
