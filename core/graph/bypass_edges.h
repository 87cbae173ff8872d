// A search graph of the CPU without some of its rows, so that these are queries which the graph has never held.
//
// An edge to a hidden row in the first half of a row is replaced by one past it: to the nearest, from where the edge
// begins, of the rows that the hidden one has edges to, if a list of near rows could have held it: the row's own list reaches as far, two other
// neighbours of the row lead there too, and the row shares neighbours with the hidden one. So a walk finds the rows
// that it would find had the hidden row never been there. Masking the row alone leaves a hole: in a pruned graph its
// neighbours are linked through it, and a walk then needs a beam 1.2 times as long on SIFT, words and patches as
// queries of the same law do. Without the first bound neighbours of a hidden row are linked at any distance: with 1M
// rows of 30 intrinsic dimensions searches for .9 had a recall of .877, with it at worst .012 too little (4,000
// queries, k of 1 and 10); walks of 1M SIFT rows take 4 % more distances for the wanted recall.
//
// Without the second a hidden row joins rows that the lists never had together. Where lists miss many neighbours, in
// many dimensions, hidden rows then are easier to find than queries: missed of ten by a beam of 64, by rows in the graph
// of all rows and by the same rows in a graph that is built of the others (48 edges, 2,000 to 4,000 rows):
//
//     64 even columns, 100k .222 and .249, with the bound .258;  two densities, 300k .080 and .090, .087
//     SIFT 100k .0031 and .0032, .0033;  words .0035 and .0044, .0036;  patches .0054 and .0056, .0053
//
// One other neighbour is too few where a row's list is of rows that are near to all: on shells of radii 1 to 100 in 24
// columns hidden rows then are easier to find than queries, and the more so the more of all rows are hidden. 60,000 rows,
// of which 1,000 are hidden, 4,000 queries for ten, asked .9 and .95, less than asked: .015 and .021 with one, with two
// nothing and .006; 10,000 rows, of which 833 were hidden, .051 and .041. A tenth of hidden rows' miss was asked for beside
// that with one. SIFT 100k, words, patches and gist get the same beams as then for .9, .95 and .98, or one more or less.
//
// Without the third the neighbours of a hidden row know each other where those of queries do not. Rows at radii
// exp(2 N(0, 1)), 32 columns, have their neighbours nearer to the centre in all directions, and share .95 of 48 edges with
// one of them; even columns 2.3, SIFT 3.2 of 32, words 8.2 of 48. Of 100,000 such rows searches of ten for .8, .9 and .95
// got .728, .850 and .922, if one neighbour has to be shared .775, .882 and .940, if one for each 32 edges begun .802, .898
// and .949. Beams of SIFT, words, patches and gist stay as they were, of even columns (48 edges) they are a twentieth
// longer.
//
// The edges of the second half, of later ranks, stay, and lead nowhere meanwhile. If they go past hidden rows too, their
// neighbours have more edges to each other than those of a query: of 50,000 rows of 30 dimensions of 64, at lengths over
// four decades, of which 1,000 are hidden, a query misses 1.15 to 1.19 times as many as a hidden row, and 1.04 to 1.09
// times as many if they stay. Asked .8, .9 and .95 of ten 10,000 queries got .777 to .788, .883 to .887 and .936 to .945
// (four sets), and get .792 to .802, .892 to .898 and .943 to .949. SIFT's hidden rows miss 1.21 times as many as queries,
// 1.16 if they go past; beams of SIFT and gist for .95 and .99 are 1.02 to 1.08 times as long, those of words and patches,
// and of TSDG's and GGNN's graphs, stay or grow by one. If it is every other edge that stays, most of which others have
// added, SIFT's miss 1.30 times as many.
//
// place/bypass_edges_cuda.h makes a copy on a device, where one other neighbour is enough if few rows are hidden, and edges
// of both halves go past; here the edges themselves are changed and put back, which takes the memory of the edges to hidden
// rows alone and lets every procedure walk them.
#pragma once

#include <cstdint>

#include "base/execution.h"
#include "dataset/codes.h"
#include "graph/search_graph.h"

namespace gannet {

/// Edges past hidden rows, for as long as it lives. Meanwhile no other thread may read the edges of the bottom layer.
class BypassEdges {
 public:
  /// `hidden`: [(rows + 31) / 32] a bit for each row. The edges must be the graph's own memory. The result does not
  /// depend on threads.
  BypassEdges(const Codes& codes, SearchGraph& graph, const uint32_t* hidden, const Execution& execution);
  ~BypassEdges();
  BypassEdges(const BypassEdges&) = delete;

 private:
  struct Change {
    uint64_t place;
    uint32_t target;  // of the edge that is not there now: past a hidden row before, to it afterwards
  };

  /// Puts each change's target in its place, and keeps the one that was there.
  void exchange();

  SearchGraph& graph_;
  Array<Change> changes_;
};

}  // namespace gannet
