// TSDG's searches ("Graph-based Approximate NN Search: A Revisit", sections 4 and 5.3) on the CPU. Those of batches are
// the twins of search/tsdg_small_cuda.cu and search/tsdg_large_cuda.cu: answers and counts are equal, bit for bit.
//
// Small batches (4.1, Algorithm 1): t_0 walks, each of which keeps no queue of rows that it could expand.
//
//   start    the nearest of 32 random rows is u
//   hop      all edges of u are compared; place i mod 32 of R_temp keeps the nearest of those inserted
//            the 16 nearest of R_temp take the places of the last 16 of R, 32 rows in order, as far as they are
//            nearer; u is the nearest of R_temp
//   stop     when nothing new has entered R, or after T hops
//   answer   the rows of all walks, each once
//
// Large batches (4.2, Algorithm 2): one walk with a queue.
//
//   R        the nearest rows, as long as the answer
//   C        rows to be expanded: m sorted segments of 32 places, a row in segment (row mod m); a full one drops its
//            farthest
//   V        rows that have been expanded, m segments of 32 places; the oldest makes room
//   step     the nearest row of C is expanded: of its edges those are compared that are neither in V nor in C
//   stop     when C is empty, when its nearest row is farther than the last of R and Delta, or after T steps
//
// Where the paper is silent or would not do:
//   - A row that R holds does not enter it again: a walk that comes back would count as improved, and a row that C
//     has dropped is compared again when it is met again.
//   - Last places of R give way to nearer rows only; so taking 16 is exact, as the first 16 of R always stay.
//   - The start of a small batch's walk is in R: no walk would find a row that no edge leads to.
//   - A walk of large batches does not stop while R has room.
//   - Delta is a share of the last distance of R, which has no unit that a caller would have to know: `delta` times
//     that distance is the bound. Distances are true ones, of squares delta^2.
//   - The rows of C. The algorithm says rows that improve R, its text every row compared. With the first, C's rows
//     are all as near as the last of R was, and Delta does no more than put off the end; the second is the default,
//     up to the bound that ends the walk (the first 50,000 rows of SIFT, Delta 1.1: recall .986 for 1,191 distances with
//     the first; with the second .995 for 1,303 already at 1.05).
//   - Random rows are drawn by the query's content, so that an answer does not depend on its place in a batch.
//
// On the CPU (5.3): best-first search as NSG does it, with 32 random rows beside the entry points.
#pragma once

#include "dataset/codes.h"
#include "graph/search_graph.h"
#include "place/workspace.h"
#include "search/queries.h"
#include "segment/row_set.h"
#include "traverse/beam.h"
#include "traverse/visited.h"

namespace gannet {

inline constexpr uint32_t kTsdgSeeds = 32;     // random rows of a walk
inline constexpr uint32_t kTsdgList = 32;      // rows that a walk of small batches returns
inline constexpr uint32_t kTsdgTaken = 16;     // of R_temp in one hop
inline constexpr uint32_t kTsdgSegment = 32;   // places of a segment of C and of V
inline constexpr uint32_t kTsdgWalksMax = 64;  // t_0
inline constexpr uint32_t kTsdgSegmentsMax = 64;
inline constexpr uint32_t kTsdgHopsMax = 4096;
inline constexpr uint32_t kTsdgAnswersMax = 1024;

enum class TsdgSearch { kSmall, kLarge, kBeam };

/// One search, every choice made.
struct TsdgPlan {
  TsdgSearch search = TsdgSearch::kSmall;
  uint32_t level = 0;        // edges with factors up to this are read
  uint32_t hops_max = 0;     // T
  uint32_t kept = 0;         // rows of R: k, and some more to compare again
  uint32_t walks = 0;        // small: t_0
  uint32_t segments = 0;     // large: m
  float delta = 1;           // large
  bool only_nearer = false;  // large: C takes the rows that improve R
  uint32_t beam = 0;         // on the CPU
  uint32_t team = 8;         // lanes that compare a row on a device
};

/// The workspace of one search.
struct TsdgSpace final : Workspace {
  TsdgSpace(const Dataset& dataset, const Codes& codes, const SearchGraph& graph, const Allocator& memory);
  uint64_t bytes() const override;
  void fit(const TsdgPlan& plan);

  Visited visited;                 // of best-first search
  Array<uint8_t> values;           // the query, prepared for the dataset
  Array<uint8_t> code;             // [stride] the query's code
  Array<uint32_t> candidates;      // [the longest row, or seeds]
  Array<uint32_t> code_distances;  // likewise
  Array<uint64_t> found;           // keys: the lists of all walks, or R, or the beam
  Array<uint64_t> queue;           // [m, 32] C
  Array<uint32_t> queue_sizes;     // [m]
  Array<uint32_t> expanded;        // [m, 32] V
  Array<uint32_t> expanded_next;   // [m]
  Array<uint32_t> rows;            // [found]
  Array<float> distances;          // [found]
  Array<Neighbor> neighbors;       // [found]
  Allocator allocator;
};

/// Finds up to k near rows of one query and leaves them in space.neighbors, sorted; returns how many.
uint32_t search_tsdg(const Dataset& dataset, const Codes& codes, const SearchGraph& graph,
                     const PreparedQuery& query, const Admission& admission, uint32_t k, const TsdgPlan& plan,
                     TsdgSpace& space, SearchCounts* counts);

}  // namespace gannet
