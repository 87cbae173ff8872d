// A search graph of the CPU without some of its rows, so that these are queries which the graph has never held.
//
// An edge to a hidden row is replaced by one past it: to the nearest, from where the edge begins, of the rows
// that the hidden one has edges to, if a list of near rows would have held it. So a walk finds the rows that it would
// find had the hidden row never been there. Masking the row alone leaves a hole: in a pruned graph its
// neighbours are linked through it, and a walk then needs a beam 1.2 times as long on SIFT, words and patches as
// queries of the same law do. Without that bound neighbours of a hidden row are linked at any distance: with 1M
// rows of 30 intrinsic dimensions searches for .9 had a recall of .877, with it at worst .012 too little (4,000
// queries, k of 1 and 10); walks of 1M SIFT rows take 4 % more distances for the wanted recall.
// place/bypass_edges_cuda.h makes a copy on a device; here the edges themselves are changed and put back, which takes
// the memory of the edges to hidden rows alone and lets every procedure walk them.
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
    uint32_t target;  // that was there
  };

  SearchGraph& graph_;
  Array<Change> changes_;
};

}  // namespace gannet
