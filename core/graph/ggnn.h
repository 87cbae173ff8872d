// GGNN's build ("GGNN: Graph-based GPU Nearest Neighbor Search", section 5): a hierarchy of k-NN graphs, merged from
// below and searched from above while it is merged.
//
//     layer 3   [ s rows ]                                  one segment: the top
//     layer 2   [ s ][ s ] ... [ s ]                        g segments
//     layer 1   [ s ][ s ][ s ] ... [ s ][ s ][ s ]         g^2 segments
//     bottom    [ s0 ][ s0 ][ s0 ][ s0 ] ... [ s0 ]         g^3 segments of about n / g^3 rows, all rows
//
// A segment of a layer is drawn from g segments of the layer below, so it stands on a pyramid of which it is the
// tip. With the tip at layer t, each row of every layer below asks the pyramid that it lies in for its nearest
// neighbours: it is compared with the tip, goes on from the best rows met in the graph of layer t - 1, and so on
// down to its own layer (Algorithm 4). The layers are done from the tip down (Algorithm 3), so that a query always
// comes through layers that are merged already. Then the tip moves one layer up, and g pyramids become one.
// Refinement does the same once more under the finished top (Algorithm 6).
//
//   k       edges of a row: k/2 nearest at least (k_nn), up to k/2 inverse links (k_sym)
//   s       rows of a segment, more than k/2
//   L, g    layers, segments of the layer below that a segment is drawn from: (n / s)^(1 / (L - 1)), rounded so that
//           the bottom's segments come nearest to s rows (appendix C.1.1)
//   tau_b   slack of the build's queries, with the mean distance to the nearest neighbour in place of the greatest
//   r       refinements
//
// Symmetric links (section 5.2, Algorithm 5): for each near neighbour x of a row z a short query looks for a path
// from x back to z, over nearest neighbours and inverse links alone. Where there is none, the row nearest to z that
// the query has met and that has a free place gets an inverse link to z. Rows are visited only within the sphere
// around m = z + 0.4 (x - z) on which x lies. For squares that is 3 |p - z|^2 + 2 |p - x|^2 <= 3 |x - z|^2, since
// |p - m|^2 = 0.6 |p - z|^2 + 0.4 |p - x|^2 - 0.24 |x - z|^2.
//
// Departures from the paper. Distances are those of codes, whose squares are proportional to squared distances for
// every metric (dataset/codes.h). Which of several rows gets the last free place is not left to atomics: near
// neighbour by near neighbour all rows propose against the links of the round before, the nearest of those that
// propose to a row get its free places, and the others propose to the next row that they have met; so the graph is
// a function of rows, parameters and seed. Free places at the end are filled with the next nearest neighbours. A
// row that meets itself expands itself but is not its own answer. Rows at distance 0 from their nearest neighbour
// are selected with a weight of a thousandth of the mean. Where the paper is silent the numbers of the authors'
// code stand: 200 steps of a merge's query at most, 20 of a link's.
#pragma once

#include <cstdint>

#include "dataset/codes.h"
#include "graph/search_graph.h"
#include "knn/knn_graph.h"

namespace gannet {

inline constexpr uint32_t kGgnnLayersDefault = 4;  // section 5.3: "the best performance"
inline constexpr uint32_t kGgnnRefinementsDefault = 2;
inline constexpr uint32_t kGgnnLayersMax = 8;
inline constexpr int32_t kGgnnRefinementsMax = 16;
inline constexpr uint32_t kGgnnSegmentMax = 1024;
inline constexpr uint32_t kGgnnNeighborsMax = ANN_DEGREE_MAX / 2;  // of a list of ggnn_knn
inline constexpr float kGgnnTauBuildDefault = 0.15f;
inline constexpr float kGgnnTauBuildOfSquares = 0.5f;  // the paper's, as its authors' code reads it

struct GgnnParams {
  uint32_t k = 24;
  uint32_t segment = 32;  // s
  uint32_t layers = kGgnnLayersDefault;
  uint32_t refinements = kGgnnRefinementsDefault;
  float tau = kGgnnTauBuildDefault;
  bool squares = false;  // whether tau is added to squares (traverse/slack_cache.h)
  bool midpoint = true;  // else any row may be visited while looking for a path
  bool lists = false;    // the bottom is left as the last merge leaves it, with nearest neighbours alone
  uint64_t seed = 0;
};

/// The hierarchy over a number of rows.
struct GgnnShape {
  uint32_t layers;
  uint32_t growth;

  /// Segments of a layer.
  uint32_t segments(uint32_t layer) const {
    uint32_t count = 1;
    for (uint32_t above = layer + 1; above < layers; ++above) count *= growth;
    return count;
  }
  uint64_t upper_rows(uint32_t segment) const {
    uint64_t rows = 0;
    for (uint32_t layer = 1; layer < layers; ++layer) rows += uint64_t{segments(layer)} * segment;
    return rows;
  }
};
GgnnShape ggnn_shape(uint64_t rows, const GgnnParams& params);

/// s for k edges: more than k/2, a multiple of 32.
constexpr uint32_t ggnn_segment_of(uint32_t k) { return (k / 2 + 32) / 32 * 32; }

/// Fills in edges, layers, entry points (the rows of the top) and distances to nearest neighbours of a graph whose
/// `rows` and `degree` are set. Returns the mean number of inverse links of a row.
double build_ggnn(const Codes& codes, const GgnnParams& params, SearchGraph& graph,
                  const Execution& execution);

/// Section 6.2.4: the build for lists of k neighbours, twice as long while it goes on, since half of a row's edges
/// are its nearest neighbours.
GgnnParams ggnn_list_params(uint32_t k, uint64_t seed);

/// The first k of the edges, [rows, params.k], that such a build has left; where codes are lossy all of them, for the
/// rows themselves to choose from: of a million rows of SIFT as floats the first ten by code are .971 of the true ten,
/// of 24 chosen by the rows .997.
KnnGraph ggnn_lists(Array<uint32_t>&& edges, const Codes& codes, const GgnnParams& params, uint32_t k,
                    const Execution& execution);

/// The k nearest of each row and, where codes are lossy, the k next ones, as that build finds them.
KnnGraph ggnn_knn(const Codes& codes, uint32_t k, uint64_t seed, const Execution& execution);

/// Bytes of the layers above the bottom, with the rows below theirs.
inline uint64_t ggnn_layer_bytes(uint64_t rows, const GgnnParams& params) {
  return ggnn_shape(rows, params).upper_rows(params.segment) * (params.k + 1) * sizeof(uint32_t);
}

/// The same with the entry points, rows of the top, which are fewer than two segments.
inline uint64_t ggnn_upper_bytes(uint64_t rows, const GgnnParams& params) {
  const uint64_t entries = 2 * uint64_t{params.segment} * sizeof(uint32_t);
  const uint64_t ends = 2 * kGgnnLayersMax * uint64_t{kAlignment};  // of edges and rows below of each layer
  return ggnn_layer_bytes(rows, params) + entries + ends;
}

/// Bytes that the build takes at most beside the graph.
uint64_t ggnn_bytes(uint64_t rows, size_t code_stride, const GgnnParams& params, uint32_t threads);

/// Bytes of device memory that it takes there, with the graph and without the codes.
uint64_t ggnn_device_bytes(uint64_t rows, const GgnnParams& params);

}  // namespace gannet
