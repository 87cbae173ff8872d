// CAGRA's optimisation, the repair and the measures on a CUDA device, equal bit for bit to prune.cpp,
// reverse_edges.cpp, reachability.cpp and stats.cpp.
//
// All pointers are to memory of the current device. What the results are is said in search_graph.h.
#pragma once

#include <cstdint>

#include "ann.h"
#include "backend/launch.h"
#include "base/execution.h"
#include "graph/adjacency.h"

namespace gannet {
struct Pruning;  // graph/search_graph.h
}

namespace gannet::cuda {

/// The first phase: `knn` is [rows, k], kNoRow in unused places at the end of a list; `kept` gets
/// [rows, degree].
void prune_by_rank(const uint32_t* knn, uint32_t rows, uint32_t k, const Pruning& pruning, uint32_t* kept,
                   const Stream& stream, const Execution& execution);

/// The same by distances, [rows, k]: see search_graph.h.
void prune_by_distance(const uint32_t* knn, const uint32_t* distances, uint32_t rows, uint32_t k,
                       const Pruning& pruning, uint32_t* kept, const Stream& stream,
                       const Execution& execution);

/// The second: `forward` is [rows, degree] as prune_by_rank leaves it; `merged` gets [rows, degree].
/// `workspace_bytes_max` bounds the memory that it takes, 0: 2 GiB; less makes it slower.
void add_reverse_edges(const uint32_t* forward, uint32_t rows, uint32_t degree, uint32_t* merged,
                       const Stream& stream, const Execution& execution, uint64_t workspace_bytes_max = 0);

/// A graph on the device.
struct GraphView {
  uint32_t* edges;          // [rows, degree]
  const uint32_t* entries;  // [entry_count] distinct
  uint32_t rows;
  uint32_t degree;
  uint32_t entry_count;

  EdgeTable table() const { return {edges, rows, degree}; }
  Adjacency adjacency() const { return {edges, nullptr, nullptr, rows, degree, 0}; }
};

struct Reach {
  uint32_t spent = 0;  // edges of repair
  uint32_t lost = 0;   // rows that no path from an entry point reaches, afterwards
};

/// Lost rows that are hung one after the other, at most: at first, and where they cannot be hung many at
/// once.
struct HungSingly {
  uint32_t first = 64;
  uint32_t then = 1024;
};

/// The third: gives lost rows an edge. Where more are lost than are hung one after the other, and they cannot
/// be hung many at once, as some of them find no row with a place or they lead to each other in long
/// chains, nothing is changed: then it is the CPU's work.
Reach repair_reachability(const GraphView& graph, const Stream& stream, const Execution& execution,
                          const HungSingly& singly = {});

/// Rows that no path from an entry point reaches.
uint32_t count_unreachable(const GraphView& graph, const Stream& stream, const Execution& execution);

/// Fills all members but struct_size, as search_graph.h says.
void measure_graph(const GraphView& graph, uint64_t seed, const Stream& stream, const Execution& execution,
                   ann_graph_stats* out);

}  // namespace gannet::cuda
