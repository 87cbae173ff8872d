// A search graph on a CUDA device without some of its rows, so that these are queries which the graph has
// never held (tune/trials.h).
//
// An edge to a hidden row is replaced by one past it: to the nearest, from where the edge begins, of the rows that the
// hidden one has edges to, if the row's own list reaches as far, another neighbour of the row, or two, lead there too,
// and the row shares neighbours with the hidden one (graph/bypass_edges.h has the reasons;
// there edges of the second half stay). So a walk finds the rows
// that it would find had the hidden row never been there. Masking the row alone leaves a hole: in a pruned graph its
// neighbours are linked through it, and at ten answers a walk then misses 1.5 to 2.3 times as many as for queries that
// were never in the graph (100,000 SIFT rows, 50,000 uniform ones of 16 columns; 30,000 and more of gist and words 1.1
// to 1.5); with bypass edges 1.0 to 1.15 times.
#pragma once

#include <cstdint>

#include "backend/launch.h"
#include "dataset/codes.h"
#include "graph/adjacency.h"

namespace gannet::cuda {

struct BypassArgs {
  const uint8_t* codes;    // [rows, stride] on multiples of 16
  const uint32_t* hidden;  // [(rows + 31) / 32] a bit for each row
  Adjacency graph;         // fixed rows
  EdgeTable bypass;        // the same, without hidden rows wherever there is another
  uint32_t stride;         // bytes
  uint32_t known_by;       // other neighbours that have to lead where an edge goes
};

void make_bypass_edges(const BypassArgs& args, CodeKind kind, const Stream& stream);

}  // namespace gannet::cuda
