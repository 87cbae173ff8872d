// Rows taken out of a search graph on a CUDA device, so that they can play queries which the graph has
// never seen (index/device_calibration.h).
//
// An edge to a hidden row leads on instead: to the nearest, from where the edge begins, of the rows that
// the hidden one has edges to. So a walk finds what it would find had the hidden row never been there.
// Masking the row alone leaves a hole: in a pruned graph its neighbours are linked through it, and at ten
// answers a walk then misses 1.5 to 2.3 times as many as for queries that were never in the graph
// (100,000 SIFT rows, 50,000 uniform ones of 16 columns; 30,000 and more of gist and words 1.1 to 1.5);
// with the edges led on 1.0 to 1.15 times.
#pragma once

#include <cstdint>

#include "backend/launch.h"
#include "search/walk_steps.cuh"

namespace gannet::cuda {

struct HiddenRowsArgs {
  const uint8_t* codes;   // [rows, stride] on multiples of 16
  const uint32_t* hidden;  // [(rows + 31) / 32] a bit for each row
  const uint32_t* edges;  // [rows, degree] kNoRow in unused places at the end
  uint32_t* led_on;       // [rows, degree] the same, without hidden rows wherever there is another
  uint32_t rows;
  uint32_t stride;        // bytes
  uint32_t degree;
};

void lead_edges_on(const HiddenRowsArgs& args, CodeKind kind, const Stream& stream);

}  // namespace gannet::cuda
