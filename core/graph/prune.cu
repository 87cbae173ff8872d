// CAGRA's rank-based pruning on the GPU (section III-B1, equation 3). The contract is in
// search_graph.h, the CPU's version in prune.cpp; both keep the same edges in the same order.
//
//   paper                   here
//   N, d_init, d            rows, k, degree
//   X, Y, Z                 row, y, z
//   edge X -> Y, its rank   place of y in the list of row
//   detourable routes       detours of y
//
// The idea. A warp owns a row. It enters the row's list into a hash of ranks in shared memory, reads
// the list of each near neighbour z with one coalesced load, looks each y up, and counts a detour
// where both legs have better ranks than the edge. Then each entry counts the entries before it in
// the order (detours, rank), which is its place among the kept.
//
// Per row, at degree 32: 32 lists of 128 bytes read, 4 KB; 1,024 look-ups of some 12 instructions,
// 400 warp instructions. At 3 TB/s and 1M rows that is 1.3 ms, as much as the instructions take.
//
// Departures from the paper: only the first `degree` entries of each list are looked at as z and in z
// (search_graph.h says why). A rank table of all rows, directly addressed, does not fit on chip.
//
// With distances, as equation 3 has them, everything stays but the comparison, which needs the distances of
// z's list too: twice the bytes.

#include <cooperative_groups.h>

#include <algorithm>
#include <bit>

#include "ann.h"
#include "graph/search_graph_cuda.h"
#include "traverse/row_key.h"

namespace gannet::cuda {
namespace {

namespace cg = cooperative_groups;

/// What is decided before compilation.
struct Policy {
  uint32_t warps;   // per block, each with a row
  uint32_t k_max;   // entries of a list
  uint32_t places;  // of the hash: a power of two, at least four times k_max
};

constexpr Policy kNarrow{.warps = 8, .k_max = 64, .places = 256};
constexpr Policy kWide{.warps = 4, .k_max = 256, .places = 1024};
static_assert(kWide.k_max == ANN_DEGREE_MAX);

constexpr uint64_t kLaunchRows = uint64_t{1} << 22;  // a launch stays below some 20 ms

struct Args {
  const uint32_t* knn;        // [rows, k]
  const uint32_t* distances;  // [rows, k] or null: ranks decide
  uint32_t* kept;             // [rows, degree]
  uint32_t first_row;   // of this launch
  uint32_t rows;
  uint32_t k;
  uint32_t degree;
};

/// A row's ranks and detours. One warp.
template <Policy kPolicy, bool kByDistance>
struct PruneRow {
  static constexpr uint32_t kThreads = kPolicy.warps * 32;
  static constexpr uint32_t kAhead = 4;  // lists requested before the first is used

  struct RowShared {
    uint32_t hashed[kPolicy.places];  // rows of the list, kNoRow in empty places
    uint32_t list[kPolicy.k_max];
    uint32_t order[kPolicy.k_max];  // detours << 16 | rank; there are at most k_max detours
    uint8_t ranks[kPolicy.places];
    uint32_t distances[kByDistance ? kPolicy.k_max : 1];  // of the list
  };
  struct Shared {
    RowShared rows[kPolicy.warps];
  };
  static_assert(kPolicy.k_max <= 256);  // a rank is a byte

  const Args& args;
  RowShared& shared;
  cg::thread_block_tile<32> warp = cg::tiled_partition<32>(cg::this_thread_block());
  uint32_t lane = threadIdx.x % 32;

  __device__ PruneRow(const Args& args, Shared& shared)
      : args(args), shared(shared.rows[threadIdx.x / 32]) {}

  __device__ void run() {
    const uint64_t row =
        args.first_row + uint64_t{blockIdx.x} * kPolicy.warps + threadIdx.x / 32;
    if (row >= args.rows) return;
    const uint32_t length = enter(row * args.k);
    count_detours(min(length, args.degree));
    keep(length, args.kept + row * args.degree);
  }

  static __device__ uint32_t first_place(uint32_t row) {
    return (row * 0x9e3779b1u) >> (32 - std::countr_zero(kPolicy.places));
  }

  /// Reads the list and hashes it; returns its length.
  __device__ uint32_t enter(uint64_t begin) {
    for (uint32_t i = lane; i < kPolicy.places; i += 32) shared.hashed[i] = kNoRow;
    warp.sync();
    uint32_t length = 0;
    for (uint32_t first = 0; first < args.k; first += 32) {
      const uint32_t rank = first + lane;
      const uint32_t row = rank < args.k ? args.knn[begin + rank] : kNoRow;
      if (row != kNoRow) {
        uint32_t place = first_place(row);
        while (atomicCAS(&shared.hashed[place], kNoRow, row) != kNoRow)
          place = (place + 1) % kPolicy.places;
        shared.ranks[place] = static_cast<uint8_t>(rank);
        shared.list[rank] = row;
        shared.order[rank] = rank;
        if constexpr (kByDistance) shared.distances[rank] = args.distances[begin + rank];
      }
      length += __popc(warp.ballot(row != kNoRow));
    }
    warp.sync();
    return length;
  }

  /// The rank of a row, or 0, which no detour can lie below.
  __device__ uint32_t rank_of(uint32_t row) const {
    uint32_t place = first_place(row);
    while (true) {
      const uint32_t entry = shared.hashed[place];
      if (entry == row) return shared.ranks[place];
      if (entry == kNoRow) return 0;
      place = (place + 1) % kPolicy.places;
    }
  }

  /// Equation 3: X -> Z -> Y stands in for X -> Y if both its edges are shorter, or have better ranks.
  __device__ void count_detours(uint32_t looked_at) {
    const uint32_t looked_into = min(args.k, args.degree);
    for (uint32_t first = 0; first < looked_at; first += kAhead) {
      for (uint32_t rank_y = lane; rank_y < looked_into; rank_y += 32) {
        uint32_t y[kAhead];
        uint32_t distances[kAhead];  // of z and y
#pragma unroll
        for (uint32_t i = 0; i < kAhead; ++i) {
          const bool there = first + i < looked_at;
          const uint64_t at = there ? uint64_t{shared.list[first + i]} * args.k + rank_y : 0;
          y[i] = there ? args.knn[at] : kNoRow;
          if constexpr (kByDistance) distances[i] = args.distances[at];
        }
#pragma unroll
        for (uint32_t i = 0; i < kAhead; ++i) {
          const uint32_t rank = y[i] != kNoRow ? rank_of(y[i]) : 0;
          bool shorter = rank > max(first + i, rank_y);
          if constexpr (kByDistance)
            shorter = max(shared.distances[first + i], distances[i]) < shared.distances[rank];
          if (rank != 0 && shorter) atomicAdd(&shared.order[rank], 1u << 16);
        }
      }
    }
    warp.sync();
  }

  /// The `degree` entries with the fewest detours, equal counts in order of rank.
  __device__ void keep(uint32_t length, uint32_t* kept) {
    for (uint32_t rank = lane; rank < length; rank += 32) {
      const uint32_t mine = shared.order[rank];
      uint32_t place = 0;
      for (uint32_t i = 0; i < length; ++i) place += shared.order[i] < mine ? 1 : 0;
      if (place < args.degree) kept[place] = shared.list[rank];
    }
    for (uint32_t place = length + lane; place < args.degree; place += 32) kept[place] = kNoRow;
  }
};

template <class Step>
__global__ void __launch_bounds__(Step::kThreads) kernel(const __grid_constant__ Args args) {
  __shared__ typename Step::Shared shared;
  Step(args, shared).run();
}

template <Policy kPolicy, bool kByDistance>
void run_phase(Args args, const Stream& stream, const Execution& execution) {
  for (uint64_t first = 0; first < args.rows; first += kLaunchRows) {
    execution.check();
    const uint64_t rows = std::min(kLaunchRows, args.rows - first);
    args.first_row = static_cast<uint32_t>(first);
    launch("prune", kernel<PruneRow<kPolicy, kByDistance>>,
           static_cast<uint32_t>((rows - 1) / kPolicy.warps + 1), kPolicy.warps * 32, stream, args);
    if (rows < args.rows) stream.wait();
  }
}

}  // namespace

void prune_by_rank(const uint32_t* knn, uint32_t rows, uint32_t k, uint32_t degree, uint32_t* kept,
                   const Stream& stream, const Execution& execution) {
  const Args args = {knn, nullptr, kept, 0, rows, k, degree};
  if (k <= kNarrow.k_max)
    run_phase<kNarrow, false>(args, stream, execution);
  else
    run_phase<kWide, false>(args, stream, execution);
}

void prune_by_distance(const uint32_t* knn, const uint32_t* distances, uint32_t rows, uint32_t k,
                       uint32_t degree, uint32_t* kept, const Stream& stream,
                       const Execution& execution) {
  const Args args = {knn, distances, kept, 0, rows, k, degree};
  if (k <= kNarrow.k_max)
    run_phase<kNarrow, true>(args, stream, execution);
  else
    run_phase<kWide, true>(args, stream, execution);
}

}  // namespace gannet::cuda
