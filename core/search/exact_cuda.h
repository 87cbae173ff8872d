// Exact search on a CUDA device: each query compared with every row.
//
// Answers equal those of the CPU bit for bit, for every element and metric: integers are exact, and
// floats are summed in the lanes and the order that distance/kernels.h fixes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/execution.h"
#include "distance/kernels.h"
#include "place/index_view.h"
#include "search/plan.h"
#include "segment/row_set.h"

namespace gannet::cuda {

/// Rows that a query can keep on the device.
inline constexpr uint32_t kExactMax = kDeviceExactMax;

/// Half of a list has so many keys at least.
inline constexpr uint32_t kExactHalfMin = 128;

/// The tile that a block compares at once, of few queries.
struct ExactTile {
  uint32_t threads;
  uint32_t queries;
  uint32_t rows;
};
inline constexpr ExactTile kExactFewFloats = {256, 8, 32};
inline constexpr ExactTile kExactFewIntegers = {128, 32, 128};
inline constexpr uint32_t kExactFewQueries = 16;    // of floats at most
inline constexpr uint32_t kExactFewOfIntegers = 8;  // and of integers
constexpr uint32_t few_queries(bool is_float) { return is_float ? kExactFewQueries : kExactFewOfIntegers; }
/// The tile of very few queries, for each of which the rows are read from memory. A round has 64 rows, of integers up
/// to 512.
inline constexpr ExactTile kExactStream = {512, 1, 64};
inline constexpr uint32_t kExactStreamed = 4;      // queries at most
inline constexpr uint32_t kExactTilesOfSlice = 4;  // at least

/// Of many queries, which tensor cores filter (exact_filter.cuh): bytes of a vector's halves, behind which are as many
/// of what they have lost; and rows of a launch at most, a multiple of any tile's.
constexpr uint64_t exact_half_bytes(uint64_t dim) { return round_up(dim * 2, uint64_t{128}); }
inline constexpr uint32_t kFilterQueries = 128;  // of a tile
inline constexpr uint64_t kExactFilterTileRows = 256;
inline constexpr uint64_t kExactFilterRowsMin = 1024;
constexpr uint64_t exact_filter_rows(uint64_t rows, uint64_t dim, uint64_t queries) {
  constexpr uint64_t kBytes = uint64_t{1} << 28;
  constexpr uint64_t kWork = uint64_t{1} << 38;   // pairs x columns: some 2 ms on a large device,
  constexpr uint64_t kPairs = uint64_t{1} << 29;  // and 100 where all pairs are summed
  const uint64_t most = std::min(
      {uint64_t{1} << 18, kBytes / (2 * exact_half_bytes(dim)), kWork / (queries * dim), kPairs / queries});
  return std::min(round_up(rows, kExactFilterTileRows),
                  round_up(std::max(most, kExactFilterRowsMin), kExactFilterTileRows));
}

/// A launch has so many times the rows before it, so that it marks so many times k rows of each query.
inline constexpr uint64_t kFilterGrowth = 3;

/// About the rows whose distances are summed without asking, since without a bound all may be near: four times as many
/// as are kept, as launches grow, unless these are very few or many.
constexpr uint64_t exact_first_rows(uint64_t kept) { return std::clamp<uint64_t>(4 * kept, 64, 2048); }

/// Queries that are answered together at most.
constexpr uint64_t exact_batch(uint64_t dim) {
  constexpr uint64_t kColumns = uint64_t{1} << 24;  // of all of them
  return std::clamp<uint64_t>(kColumns / dim, 1, 4096);
}

class Stream;

/// All pointers are to host memory, or all to memory of the device. Shapes as Dataset has them
/// (dataset/dataset.h).
struct ExactRequest {
  int32_t device = 0;  // CUDA ordinal, from 0
  RowsView rows;       // [row_count, dim]
  uint32_t row_count = 0;
  int32_t metric = 0;
  const float* norms = nullptr;         // [row_count] lengths, for cosine; else null
  const uint64_t* ids = nullptr;        // [row_count] distinct, decide ties; null: row numbers do
  const void* queries = nullptr;        // [query_count, dim] packed: f32 for float rows, else the element
  const double* query_norms = nullptr;  // [query_count] lengths, for cosine; else null
  uint32_t query_count = 0;
  uint32_t k = 0;
  uint32_t* out_rows = nullptr;    // [query_count, k] row numbers, nearest first by (distance, id);
                                   // UINT32_MAX where there are no more rows
  float* out_distances = nullptr;  // [query_count, k]; +infinity where there are no more rows

  /// Most bytes of rows that stand on the device at a time; 0: as many as its free memory allows.
  uint64_t chunk_bytes_max = 0;
  /// Rows, lengths and ids lie on the device, as search_exact_resident takes them, and are not sent.
  bool rows_are_there = false;
  /// Bytes from one query to the next, on the device, where they need not be packed.
  uint32_t query_stride = 0;
  /// The byte that every byte of rows and queries on the device is xored with; those of host memory are as the
  /// caller gives them.
  uint8_t flip = 0;
  /// Of [row_count] those that no query finds, in memory of the host or, of search_exact_resident, of the device.
  RowSetView removed = {};
};

/// Makes a request compare with the rows of a placement.
inline void lend_rows(const IndexView& view, ExactRequest* request) {
  request->rows = {view.lossless ? view.codes : view.rows, view.lossless ? view.code_stride : view.row_stride,
                   view.dim, view.flip != 0 ? ANN_U8 : view.element};
  request->flip = view.flip;
  request->norms = view.norms;
  request->ids = view.ids;
  request->rows_are_there = true;
}

/// Answers a request; returns when the results are there.
///
/// Memory: the rows, or as many as fit, in which case they are sent in turn for every 4,096 queries;
///   8 bytes a row for `ids`; candidate lists of some 10 to 400 MB, or up to 600 MB of halves, marks and lists.
/// Monitor: asked between launches, which take up to some 50 ms on a large device, 100 where all rows are as near.
/// Errors: ANN_NO_DEVICE, ANN_UNSUPPORTED where min(k, row_count) exceeds kExactMax,
///   ANN_DEVICE_NO_MEMORY, ANN_DEVICE_LOST, ANN_CANCELLED, ANN_DEADLINE. Results are undefined then.
void search_exact(const ExactRequest& request, const Execution& execution);

/// The same where everything lies on the device, which is current: queues the work on a stream and returns. Rows and
/// queries start on multiples of 16 bytes. Behind floats are zeros up to the next such multiple; bytes of queries, as
/// of rows, are read to the end of a row's stride, where those of both are zero (xored with `flip`). k is at most
/// row_count. The monitor is asked once. Takes the memory of exact_device_bytes(), or less where that is short.
void search_exact_resident(const ExactRequest& request, const Stream& stream, const Execution& execution);

/// Device memory that answering takes at most beside rows that lie there, of up to 4,096 queries of which each keeps so
/// many rows.
uint64_t exact_device_bytes(uint64_t rows, uint32_t dim, int32_t metric, int32_t element, uint64_t queries,
                            uint32_t kept);

}  // namespace gannet::cuda
