// Exact search on the GPU: its kernels as the host starts them. exact_cuda.cu has the whole; exact_lists.cuh,
// exact_tiles.cuh, exact_sums.cuh, exact_stream.cuh, exact_halves.cuh, exact_filter.cuh and exact_near.cuh have the
// steps, which exact_kernels.cu compiles.
#pragma once

#include <cstdint>

#include "backend/launch.h"
#include "distance/metric_cuda.cuh"
#include "search/exact_cuda.h"

namespace gannet::cuda {

/// How many pairs have been marked so far, of all queries, and how many are few enough: where they are more, as where
/// rows lie close together and far from others, the filter is careful. Kernels of one launch agree.
struct Care {
  unsigned long long* marked;  // null: always careful
  unsigned long long few;

  __device__ bool is_careful() const { return marked == nullptr || *marked > few; }
};

/// The arguments of a search kernel: a batch of queries and the rows of one launch.
struct ExactArgs {
  const uint8_t* rows;            // [row_count, row_stride] bytes
  const uint8_t* queries;         // [query_count, query_stride] bytes
  const uint32_t* row_squares;    // [row_count] x.x, for L2 of integers; null for up to four queries
  const uint32_t* query_squares;  // [query_count] q.q, likewise; of many floats the bits of |q - centre|^2
  // Of many queries, as exact_halves.cuh has them; null for few. Halves and scales are of floats alone:
  const uint8_t* row_halves;    // [row_count, 2, half_bytes], low parts behind the others
  const float4* row_terms;      // [row_count] term, length, scale
  const uint8_t* query_halves;  // [query_count, 2, half_bytes] likewise
  const float* query_scales;    // [query_count] that the sums of halves are multiplied with
  uint32_t* marks;              // [query_count, mark_words] a bit of each row that may be near
  uint32_t* bounds;    // [query_count] upper half of the key of the k-th best; UINT32_MAX: there are fewer
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
  uint32_t panels;  // of a row, or of its halves
  uint32_t k;
  uint32_t list_half;  // keys of half of a list: a power of two, at least k
  uint32_t half_bytes;
  uint32_t mark_words;
  Care care;
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

/// The kernel for few queries, as few_queries() says, and for the first rows of many. Where it has a tile of one query,
/// it needs no squares of integers.
ExactKernel choose_exact_kernel(int32_t element, int32_t metric, uint32_t queries);

/// The tile of many queries, as wide as the shared memory of the device allows.
struct FilterTile {
  uint32_t rows;
  uint32_t stages;
};
inline constexpr FilterTile kWideFilter = {256, 4};
inline constexpr FilterTile kNarrowFilter = {128, 2};
inline constexpr uint32_t kFilterThreads = 256;
inline constexpr uint32_t kFilterPanelBytes = 128;

struct FilterKernel {
  void (*function)(ExactArgs);
  uint32_t tile_rows;
  size_t shared_bytes;  // dynamic, already allowed
  uint64_t multiprocessors;
};
FilterKernel choose_filter_kernel(int32_t device, int32_t element);

/// Sums the pairs that the filter has marked, and keeps the nearest rows of each query.
void sum_marked_pairs(const ExactArgs& args, const Stream& stream);

/// Merges the lists of each query, one a slice, into the answers.
void merge_exact_lists(const ExactArgs& args, const Stream& stream);

/// Vectors, and what is measured of them.
struct MeasureArgs {
  const uint8_t* items;  // [count, stride] bytes
  float* centre;         // [centre_columns] subtracted of each column of floats, or null
  uint32_t* squares;     // [count] of floats their bits; null: not wanted
  uint8_t* halves;       // [count, 2, half_bytes], low parts behind the others
  float4* terms;         // [count] of rows, or null
  float* scales;         // [count] of queries, or null
  const float* norms;    // [count] of rows, for cosine
  uint32_t count;
  uint32_t stride;
  uint32_t half_bytes;
  uint32_t dim;
  uint32_t centre_columns;  // those behind the last of a row are zero
  int32_t element;
  int32_t metric;
  Care care;
};

/// Writes the mean of some of the items.
void find_exact_centre(const MeasureArgs& args, const Stream& stream);

/// Writes x.x of each item of integers.
void find_exact_squares(const MeasureArgs& args, const Stream& stream);

/// Writes the terms of each row of integers, whose squares, for L2, are given.
void find_exact_byte_terms(const MeasureArgs& args, const Stream& stream);

/// Writes the halves of each item of floats, and of rows their terms, of queries squares and scales.
void find_exact_halves(const MeasureArgs& args, const Stream& stream);

}  // namespace gannet::cuda
