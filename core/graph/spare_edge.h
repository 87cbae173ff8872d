// Edges that can be spared: how a finished graph gets another edge and loses no row.
//
// The rows of a graph are full, and a repair has seen to it that searches reach every row. An edge from a row to t can
// go where another of the row's edges leads to a row with an edge to t: whatever was reached by way of it still is, one
// step later. Such edges are also those that walks miss least. So no search for unreached rows has to follow, 5 % of a
// build.
//
// Cost: for each edge that is looked at degree^2 comparisons of numbers; in most rows the first can be spared.
#pragma once

#include <cstdint>

#include "graph/search_graph.h"

namespace gannet {

/// Gives a graph of fixed rows an edge from `row` to `target`: in a free place, or in that of an edge that can be spared,
/// the last of those in the second half of the row. Edges between islands (graph/long_edges.h) stay where searches start
/// at some heads alone; where all heads are starts, `heads` is empty, and such an edge may go as others do. False, and
/// nothing done, if there is no such place, or the edge is there, or the two are one row.
bool insert_edge(SearchGraph& graph, uint32_t row, uint32_t target);

}  // namespace gannet
