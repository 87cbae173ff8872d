// Diversification: k-NN lists -> a graph of variable rows whose edges are sorted by how little they are missed.
//
// TSDG ("Graph-based Approximate NN Search: A Revisit", section 3), in two stages, and the ways that its Table 2
// compares it with. Edge x0 -> xj is occluded by x0 -> xi if xi is nearer to x0 than xj is, and nearer to xj than
// x0 is: a walk at x0 then reaches xj by way of xi.
//
//           xj        m(x0, xi) < m(x0, xj)
//          /  \       m(xi, xj) < m(x0, xj)        (inequality 1; with alpha at both left sides inequality 2)
//         /    xi
//        /    /
//       x0 --'
//
//   stage one  each list, nearest first: an edge goes that an edge kept so far occludes by inequality 2 (3.2)
//   between    each row gets the reverse of the edges that others have kept to it; of a hub's the nearest ones
//   stage two  lambda of an edge: how many others of its row, kept or not, occlude it by inequality 1. Edges are
//              sorted by (lambda, distance), those above lambda_0 removed (3.3)
//
// A search then chooses its degree: edges with factors below some bound are the first ones of each row, and
// graph/adjacency.h keeps how many they are for every bound.
//
// Distances are those of codes (dataset/codes.h): squared L2, which for cosine is twice the distance and for inner
// product that of augmented rows, a true metric where products are none. The paper's m is the distance itself, so
// alpha stands here as alpha^2; as a bound below which another distance has to be, it costs no multiplication for a
// pair and rounds once, alike on all machines.
//
// Operations a row of SIFT with lists of 200: stage one compares each edge that it keeps (some 20) with the edges
// after it that none has occluded yet, 900 pairs; stage two all pairs of some 45 edges, 1,000 of them. 128 bytes
// each, nearly all from the cache of a core, since a row's candidates are gathered once.
#pragma once

#include "graph/search_graph.h"

namespace gannet {

/// The most levels of occlusion factors: lambda_0 + 1.
inline constexpr uint32_t kOcclusionLevelsMax = 64;

/// Factors below this are read by searches that choose nothing else, and every row is reached along such edges:
/// the paper's bound for large batches (5.4).
inline constexpr uint32_t kOcclusionDefault = 5;

struct DiversifyParams {
  int32_t method = ANN_DIVERSIFY_TSDG;
  float alpha = 1;           // on distances, not on their squares
  uint32_t levels = 1;       // lambda_0 + 1; 1 with methods that count no factors
  uint32_t degree = 0;       // edges of the longest row
  uint32_t reverse_max = 0;  // reverse edges that a row gets at most, the nearest
  uint32_t pool = 0;         // SSG: candidates of a row
  float angle = 0;           // SSG: degrees
};

/// The result of stage two: rows sorted by (lambda, distance), and how many of their edges each level reads.
struct SortedRows {
  Array<uint64_t> places;    // [rows + 1] into edges, where a row may have fewer edges than there are places
  Array<uint32_t> edges;     // [places[rows]]
  Array<uint16_t> prefixes;  // [rows, levels]
  DiversifiedEdges counts;
};

/// Diversifies lists into `graph`, whose `rows` and `entries` are set, and fills the rest of it. The lists are used
/// up: stage one keeps its edges in their place. With `repair` every row is reached from the entry points along the
/// edges that a search reads by default.
void diversify(const Codes& codes, KnnGraph&& knn, const DiversifyParams& params, bool repair,
               SearchGraph& graph, const Execution& execution);

/// The edges that a search reads by default, [rows, longest row and one more], as a graph of fixed rows with the
/// entry points of `graph`, for a repair. Its edges are not there yet.
SearchGraph read_by_default(const SortedRows& rows, const DiversifyParams& params, const SearchGraph& graph,
                            const Execution& execution);

/// The end of a diversification: sees to it that every row is reached, if `repair`, and hands the rows over to `graph`.
/// `repaired`, unless null, is the graph of read_by_default(), repaired already.
void finish_diversified(SortedRows&& rows, const DiversifyParams& params, bool repair,
                        const SearchGraph* repaired, SearchGraph& graph, const Execution& execution);

/// Memory that diversify() takes at most beside the lists and codes; of that `graph_bytes` stay.
struct DiversifyBytes {
  uint64_t peak;
  uint64_t graph;
};
DiversifyBytes diversify_bytes(uint64_t rows, uint64_t code_stride, uint64_t k, const DiversifyParams& params,
                               uint32_t threads);

/// Device memory that cuda::diversify() takes at most beside codes and lists that lie there.
uint64_t diversify_device_bytes(uint64_t rows, uint64_t k, const DiversifyParams& params);

/// Rows that a device diversifies at a time.
inline constexpr uint32_t kDiversifyRows = 1 << 17;

}  // namespace gannet
