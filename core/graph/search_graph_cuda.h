// CAGRA's optimisation, the repair and the measures on a CUDA device, equal bit for bit to prune.cpp,
// reverse_edges.cpp, reachability.cpp and stats.cpp.
//
// All pointers are to memory of the current device. search_graph.h defines the results.
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

struct RepairResult {
  uint32_t edges_added = 0;
  uint32_t unreachable_left = 0;  // rows that no path from an entry point reaches, afterwards
};

/// The most unreachable rows that are attached one after the other: at first, and where parallel attachment
/// fails. 103 rows take .4 ms in parallel and .5 by one block, 29 rows .3 and .15.
struct SerialLimits {
  uint32_t first = 64;
  uint32_t fallback = 1024;
};

/// The third: attaches unreachable rows. Where they are more than the serial limit, and parallel attachment fails,
/// as some of them find no row with a place or they lead to each other in long chains, nothing is changed: the
/// repair is then the CPU's work.
RepairResult repair_reachability(const GraphView& graph, const Stream& stream, const Execution& execution,
                                 const SerialLimits& serial = {});

/// Rows that no path from an entry point reaches.
uint32_t count_unreachable(const GraphView& graph, const Stream& stream, const Execution& execution);

/// Fills all members but struct_size, as search_graph.h says.
void measure_graph(const GraphView& graph, uint64_t seed, const Stream& stream, const Execution& execution,
                   ann_graph_stats* out);

}  // namespace gannet::cuda
