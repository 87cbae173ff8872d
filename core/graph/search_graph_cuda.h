// CAGRA's optimisation on a CUDA device, equal bit for bit to prune.cpp and reverse_edges.cpp.
//
// All pointers are to memory of the current device. What the results are is said in search_graph.h.
#pragma once

#include <cstdint>

#include "backend/launch.h"
#include "base/execution.h"

namespace gannet::cuda {

/// The first phase: `knn` is [rows, k], kNoRow in unused places at the end of a list; `kept` gets
/// [rows, degree].
void prune_by_rank(const uint32_t* knn, uint32_t rows, uint32_t k, uint32_t degree, uint32_t* kept,
                   const Stream& stream, const Execution& execution);

/// The second: `forward` is [rows, degree] as prune_by_rank leaves it; `merged` gets [rows, degree].
/// `workspace_bytes_max` bounds the memory that it takes, 0: 2 GiB; less makes it slower.
void add_reverse_edges(const uint32_t* forward, uint32_t rows, uint32_t degree, uint32_t* merged,
                       const Stream& stream, const Execution& execution,
                       uint64_t workspace_bytes_max = 0);

}  // namespace gannet::cuda
