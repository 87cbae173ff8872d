// SearchGraph: the graph that a search walks, and the phases that make it from a k-NN graph.
//
// CAGRA, section III-B: prune each list by rank (prune.cpp), reverse the edges and merge both
// (reverse_edges.cpp). Then, beyond the paper, make every row reachable (reachability.cpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ann.h"
#include "base/execution.h"
#include "dataset/codes.h"
#include "graph/adjacency.h"
#include "knn/knn_graph.h"

namespace gannet {

/// Edges that the stages of a diversification have left (graph/diversify.h). Zeros: of another kind, or opened from a
/// file, which does not keep them.
struct DiversifiedEdges {
  uint64_t given = 0;    // of the k-NN lists
  uint64_t relaxed = 0;  // kept by stage one
  uint64_t joined = 0;   // with reverse edges
  uint64_t soft = 0;     // with factors of at most lambda_0, before the longest rows are cut
};

/// A directed graph over all rows of a segment, its bottom layer, with the rows where searches start and the
/// layers above it, if its kind has any.
struct SearchGraph : GraphLayer {
  Array<uint32_t> entries;        // [entry count] ascending
  Array<uint32_t> heads;          // rows that stand for all, ascending, or empty (graph/long_edges.h)
  std::vector<GraphLayer> upper;  // upper[0] is above the bottom layer, each other one above that before it
  Array<uint32_t> upper_words;    // the memory under those that come from a file
  int32_t kind = ANN_GRAPH_NONE;  // ANN_GRAPH_*
  uint32_t repaired_edges = 0;
  DiversifiedEdges diversified;
  float nearest_max = 0;   // distance of rows to their nearest neighbours, in the units of codes, where the
  float nearest_mean = 0;  // build has measured it (GGNN); else 0

  /// Rows where searches may start, as a file holds them.
  const Array<uint32_t>& starts() const { return heads.empty() ? entries : heads; }

  uint64_t bytes() const {
    uint64_t bytes = GraphLayer::bytes() + entries.bytes() + heads.bytes() + upper_words.bytes();
    for (const GraphLayer& layer : upper) bytes += layer.bytes();
    return bytes;
  }
};

/// How lists are pruned.
struct Pruning {
  uint32_t degree = 0;       // edges that stay
  uint32_t looked_at = 0;    // entries of each list that may be detours
  bool by_distance = false;  // else by rank

  /// Detours by the first `degree` entries: those further down say little, and the work falls to a quarter (on
  /// GPUs 2.6 instead of 6.9 ms per million rows for 0.6 % more distances per search, from 64 to 32).
  static Pruning near(uint32_t degree) { return {degree, degree, false}; }
};

/// Prunes each list to `degree` edges, [rows, degree], kNoRow in unused places at the end.
///
/// CAGRA, section III-B1, equation 3, with ranks for distances: the edge x -> y has a detour by z
/// if max(rank of z in x, rank of y in z) < rank of y in x. Edges with the fewest detours stay, equal
/// counts in order of rank. Only the first `looked_at` entries of each list are looked at as z and in z;
/// the paper's are all.
Array<uint32_t> prune_by_rank(const KnnGraph& knn, const Pruning& pruning, const Execution& execution);

/// The same with distances in equation 3, as the paper has it before it puts ranks in their place:
/// max(w(x, z), w(z, y)) < w(x, y), w the `distances` of the lists, [rows, k].
Array<uint32_t> prune_by_distance(const KnnGraph& knn, const Array<uint32_t>& distances,
                                  const Pruning& pruning, const Execution& execution);

/// Code distances of the entries of lists, [rows, k], UINT32_MAX in unused places: the table that pruning by
/// distance needs.
Array<uint32_t> list_distances(const KnnGraph& knn, const Codes& codes, const Execution& execution);

/// Bytes that pruning takes at most beside lists and graph: by distance with the table, of codes of a stride.
uint64_t prune_bytes(uint64_t rows, uint32_t k, size_t stride, const Pruning& pruning, uint32_t threads);

/// Merges pruned lists with their reverse edges, in place.
///
/// The reverse list of t holds the rows that have an edge to t, by the rank of that edge, equal ranks
/// by row number; the first `degree` of them. The merged row interleaves both, the forward edge
/// first (f0 r0 f1 r1 ...), takes each row where it occurs first and is cut after `degree`. So it
/// is half forward and half reverse edges, and any prefix of it is a fair row too.
void add_reverse_edges(Array<uint32_t>& edges, uint32_t rows, uint32_t degree, const Execution& execution);

/// Bytes that this takes at most.
uint64_t reverse_edges_bytes(uint64_t rows, uint32_t degree);

/// Device memory for it that a bound of its own does not lower.
inline constexpr uint64_t kReverseEdgesDeviceBytes = uint64_t{2} << 30;

/// Device memory that it takes at most, beside forward and merged edges.
uint64_t reverse_edges_device_bytes(uint64_t rows, uint32_t degree);

/// Rows where searches start. Each costs one distance a query; 64 random rows lie near enough to any query that fewer
/// expansions pay for them.
inline constexpr uint32_t kEntryPoints = 64;
/// The same where rows lie in islands, so that there are heads.
inline constexpr uint32_t kEntriesMax = 256;

/// Chooses the rows where searches start: `count` of them, spread over the rows by `seed`.
Array<uint32_t> choose_entries(uint32_t rows, uint32_t count, uint64_t seed, const Allocator& memory);

/// Gives every row that no path from an entry point reaches an edge from one that is reached.
///
/// A breadth-first tree from the entry points marks the edges on which others depend. An unreachable row is
/// attached to the nearest row of its own list that is reached and has a free place or an edge
/// outside the tree; the last such place is overwritten. The tree then grows from there. There always
/// is a place: the tree has fewer edges than the graph has rows. Returns the edges added.
uint32_t repair_reachability(SearchGraph& graph, const Execution& execution);

/// Bytes that this takes at most, beside the graph.
uint64_t repair_bytes(uint64_t rows, uint32_t degree);

/// Device memory likewise.
uint64_t repair_device_bytes(uint64_t rows);

/// A graph of lists, which are used up: pruned to `degree` edges by near detours, with reverse edges, every row reached
/// from `entries`.
SearchGraph graph_of_lists(KnnGraph&& lists, uint32_t degree, Array<uint32_t>&& entries,
                           const Execution& execution);

/// Rows that no path from an entry point reaches.
uint64_t count_unreachable(const SearchGraph& graph, const Allocator& memory);

/// Rows whose two-hop count is taken by default, drawn by random_strata.
inline constexpr uint32_t kTwoHopSample = 1000;
inline constexpr uint64_t kTwoHopStream = 0x74776f;  // "two"
inline uint32_t two_hop_sample(uint32_t rows, uint32_t wanted) {
  return std::min(rows, wanted != 0 ? wanted : kTwoHopSample);
}

/// Fills all members but struct_size and two_hop_rows, which says how many rows' two-hop counts are taken.
void measure_graph(const SearchGraph& graph, uint64_t seed, const Allocator& memory, ann_graph_stats* out);

}  // namespace gannet
