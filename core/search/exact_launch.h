// Exact search on the GPU: its kernels as the host starts them. exact_cuda.cu has the whole; exact_lists.cuh,
// exact_tiles.cuh and exact_filter.cuh have the steps, exact_kernels.cu compiles them.
#pragma once

#include <cstdint>

#include "backend/launch.h"
#include "distance/metric_cuda.cuh"
#include "search/exact_cuda.h"

namespace gannet::cuda {

/// The arguments of a search kernel: a batch of queries and the rows of one launch.
struct ExactArgs {
  const uint8_t* rows;            // [row_count, row_stride] bytes
  const uint8_t* queries;         // [query_count, query_stride] bytes
  const uint32_t* row_squares;    // [row_count] x.x, for L2 of integers; of filtered floats the bits of
                                  // |x - centre|^2, for L2 and products
  const uint32_t* query_squares;  // [query_count] q.q, likewise
  const float* centre;            // [panels * 16] for L2 of filtered floats
  uint32_t*
      bounds;  // [query_count] of filtered floats, as upper halves of keys: a distance that k rows of one slice
               // are not beyond
  uint32_t* shares;    // [slices, query_count] likewise: one that share_rank rows of a slice are not beyond
  const float* norms;  // [row_count], for cosine
  const double* query_norms;  // [query_count], for cosine
  const uint64_t* ids;        // [all rows], or null: a row's id is its number
  RowSetView removed;         // of all rows: those that are no candidates
  Key* lists;                 // [slices, query_count, 2 * half]
  uint32_t* counts;           // [slices, query_count] candidates in each list
  uint32_t* out_rows;         // [query_count, k]
  float* out_distances;       // [query_count, k]
  uint32_t first_row;         // number of the first of them
  uint32_t row_count;
  uint32_t slice_rows;  // rows of a slice, a multiple of the tile's
  uint32_t slices;
  uint32_t query_count;
  uint32_t row_stride;
  uint32_t query_stride;
  uint32_t dim;
  uint32_t panels;  // of a row
  uint32_t k;
  uint32_t half;        // of a list: a power of two, at least k
  uint32_t share_rank;  // so many rows of every slice are k
  int32_t metric;
  int32_t element;  // of the rows
};

/// A search kernel and its tile.
struct ExactKernel {
  void (*function)(ExactArgs);
  ExactTile tile;
  uint32_t panel_columns;
  uint64_t launch_work;  // pairs x columns of a launch, for some 10 to 20 ms on a large device
};

/// The kernel for `few` queries, as few_queries() says, or for many.
ExactKernel choose_exact_kernel(int32_t element, int32_t metric, bool few);

/// How many queries are few. 100 queries of floats took 1.1 times as long filtered as summed, 1,000 a fifth to a half
/// (60,000 x 192 and 150,000 x 100, k 1, 10 and 100, one NVIDIA H100).
constexpr uint32_t few_queries(bool is_float) { return is_float ? kExactFewQueries : 8; }

/// Merges the lists of each query, one a slice, into the answers.
void merge_exact_lists(const ExactArgs& args, const Stream& stream);

/// The measures of vectors that filtered floats, and L2 of integers, need beforehand.
struct MeasureArgs {
  const uint8_t* items;  // [count, stride] bytes
  float* centre;         // [centre_columns] subtracted of each column of floats, or null
  uint32_t* squares;     // [count] of floats their bits
  uint32_t count;
  uint32_t stride;
  uint32_t dim;
  uint32_t centre_columns;  // those behind the last of a row are zero
  int32_t element;
};

/// Writes the mean of some of the items.
void find_exact_centre(const MeasureArgs& args, const Stream& stream);

/// Writes x.x of each item, or |x - centre|^2.
void find_exact_squares(const MeasureArgs& args, const Stream& stream);

}  // namespace gannet::cuda
