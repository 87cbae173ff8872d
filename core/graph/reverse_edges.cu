// CAGRA's reverse edges and merge on the GPU (section III-B2). The contract is in search_graph.h, the
// CPU's version in reverse_edges.cpp; the rows are equal.
//
//   paper                     here
//   N, d                      rows, degree
//   pruned graph              forward
//   edge X -> Y, its rank     source, target, column of `forward`
//   reversed, CAGRA graph     graph, before and after MergeEdges
//
// The idea. List all edges rank by rank, within a rank by source, and sort the list by target,
// stably. The entries of one target are then its reverse list in the paper's order, because a
// stable sort keeps the order of arrival: rank and source are never compared.
//
//   forward     listed, target<source      sorted             reverse     merged
//   0: 1 2      rank 0: 1<0 2<1 0<2 0<3    0<2 0<3 0<1        0: 2 3      0: 1 2
//   1: 2 0      rank 1: 2<0 0<1 3<2 1<3    1<0 1<3            1: 0 3      1: 2 0
//   2: 0 3                                 2<1 2<0            2: 1 0      2: 0 1
//   3: 0 1                                 3<2                3: 2        3: 0 2
//
// A merged row is the first `degree` distinct rows of f0 r0 f1 r1 ...; a reverse list is the first
// `degree` edges of a run of the sorted list, whose sources differ anyhow. One warp owns each
// row, so no atomic decides an order.
//
// Both lists of a row repeat nothing, so an entry can only be repeated by the other list: one look-up for
// each reverse entry in a table of the forward ones finds that, 230 warp instructions a row at degree 32.
//
// Bounded memory. Ranks are listed, sorted and collected slice by slice; later slices hold worse ranks
// and append to the entries there. A slice of n ranks has n * rows edges whatever the graph looks like, so
// its size is known before the first launch.
//
// Bytes of device memory an edge, P = passes of the sort = ceil(bit_width(rows) / 8):
//   list 12, sort 4 + 16 P, collect 8 (8 more for each later slice), merge 8
// That is 80 at 1M rows. A hub costs no more than another row: `degree` sources fill its list.
//
// Departures from the paper. It leaves open how equal ranks are ordered: here by source. It tops up a
// short reverse list with forward edges: here also the other way round, and a row in both lists takes
// one place, the better one, so that no place is lost.
//
// Milliseconds on one NVIDIA H200 at 1M rows: 1.34 at degree 32, 2.45 at 64.
//
// Rejected, each measured on one NVIDIA H200 at 1M x 64: merging by comparing every entry with the whole
// merged row (3.03 ms for all steps instead of 2.45); with that, slots claimed
// by atomics in order of arrival (2.88 ms for the reverse lists alone, and they depend on the
// schedule); count, scan and scatter by atomics (4.23 ms before the sort that repairs the order);
// sorting by (target, rank, source) (3.00 ms for the sort instead of 1.53).

#include <cooperative_groups.h>

#include <algorithm>
#include <bit>
#include <cub/thread/thread_search.cuh>

#include "ann.h"
#include "backend/sort_pairs.h"
#include "graph/search_graph.h"
#include "graph/search_graph_cuda.h"
#include "traverse/row_key.h"

namespace gannet::cuda {
namespace {

namespace cg = cooperative_groups;

constexpr uint32_t kTile = 32;  // rows and ranks that a block turns round at once

struct Args {
  const uint32_t* forward;  // [rows, degree] targets, best rank first
  uint32_t* graph;          // [rows, degree] reverse lists, in the end merged rows
  uint32_t* targets;        // [ranks, rows] the slice's edges, listed, then sorted by target
  uint32_t* sources;        // [ranks, rows] their sources
  uint32_t rows;
  uint32_t degree;
  uint32_t rank_begin;  // of the slice
  uint32_t ranks;       // in the slice
  __host__ __device__ uint64_t listed_count() const { return uint64_t{ranks} * rows; }
};

/// "A reversed graph where all edges have opposite directions": lists the slice, rank by rank.
struct ListByRank {
  static constexpr uint32_t kThreads = 256;
  struct Shared {
    uint32_t targets[kTile][kTile + 1];  // [source, rank]; odd width, so columns cross all banks
  };

  const Args& args;
  Shared& shared;
  uint64_t source_begin = uint64_t{blockIdx.x} * kTile;
  uint32_t rank_begin = blockIdx.y * kTile;  // within the slice
  uint32_t column = threadIdx.x % kTile;
  uint32_t line = threadIdx.x / kTile;

  __device__ void run() {
    read_rows();
    cg::this_thread_block().sync();
    write_ranks();
  }

  /// A line is a row: neighbouring lanes read neighbouring ranks.
  __device__ void read_rows() {
    const uint32_t rank = rank_begin + column;
    for (uint32_t i = line; i < kTile; i += kThreads / kTile) {
      const uint64_t source = source_begin + i;
      if (source < args.rows && rank < args.ranks)
        shared.targets[i][column] = args.forward[source * args.degree + args.rank_begin + rank];
    }
  }

  /// A line is a rank: neighbouring lanes write neighbouring sources. A hole gets the target `rows`,
  /// which sorts it behind every row.
  __device__ void write_ranks() {
    const uint64_t source = source_begin + column;
    for (uint32_t i = line; i < kTile; i += kThreads / kTile) {
      const uint64_t rank = rank_begin + i;
      if (source >= args.rows || rank >= args.ranks) continue;
      const uint64_t place = rank * args.rows + source;
      args.targets[place] = min(shared.targets[column][i], args.rows);
      args.sources[place] = static_cast<uint32_t>(source);
    }
  }
};

/// "The reversed edges are sorted by the rank in the pruned graph": each row takes its run of the
/// sorted slice. A warp has 32 rows, so that all its lanes search at once: a search is some 26 loads, each waiting
/// for the one before. Rows of 8 and 16 edges gain .1 ms of 1M rows by teams of 8 lanes, rows of 32 lose as much.
struct CollectReverse {
  static constexpr uint32_t kThreads = 256;
  struct Shared {};

  const Args& args;
  Shared& shared;
  cg::thread_block_tile<32> warp = cg::tiled_partition<32>(cg::this_thread_block());

  __device__ void run() {
    const uint64_t row_begin = uint64_t{blockIdx.x} * kThreads + threadIdx.x / 32 * 32;
    const uint64_t run_begin = find_run(row_begin + warp.thread_rank());
    const uint64_t run_end = find_run(row_begin + warp.thread_rank() + 1);
    for (uint32_t lane = 0; lane < 32 && row_begin + lane < args.rows; ++lane)
      collect(row_begin + lane, warp.shfl(run_begin, lane), warp.shfl(run_end, lane));
  }

  /// Where the edges to `row`, or else to the next row that has any, begin.
  __device__ uint64_t find_run(uint64_t row) const {
    return cub::LowerBound(args.targets, args.listed_count(), row);
  }

  /// Appends to the entries of earlier slices, of better ranks, and marks the end.
  __device__ void collect(uint64_t row, uint64_t run_begin, uint64_t run_end) {
    uint32_t* reverse = args.graph + row * args.degree;
    uint32_t filled = 0;
    if (args.rank_begin > 0) {
      for (uint32_t base = 0; base < args.degree; base += 32) {
        const uint32_t i = base + warp.thread_rank();
        filled += __popc(warp.ballot(i < args.degree && reverse[i] != kNoRow));
      }
    }
    for (uint32_t i = filled + warp.thread_rank(); i < args.degree; i += 32) {
      const uint64_t edge = run_begin + (i - filled);
      reverse[i] = edge < run_end ? args.sources[edge] : kNoRow;
    }
  }
};

/// "We merge the pruned graph and reversed graph": interleaves the two lists of a row, in place. A warp for
/// each row, up to 32 * kOfLane entries a list.
///
/// Each list by itself repeats nothing, so the second of two equal entries is found by looking the reverse
/// list up in a table of the forward one: r_j repeats f_i if i <= j, and f_i repeats r_j otherwise. The
/// place of an entry is then the number of those before it that repeat nothing.
template <uint32_t kLaneEntries>
struct MergeEdges {
  static constexpr uint32_t kThreads = 256;
  static constexpr uint32_t kWarps = kThreads / 32;
  static constexpr uint32_t kOfLane = kLaneEntries;
  static constexpr uint32_t kPlaces = 4 * 32 * kOfLane;
  struct WarpShared {
    uint32_t rows[kPlaces];  // of the forward list, kNoRow in empty places
    uint8_t ranks[kPlaces];
    uint32_t repeated[kOfLane];  // bits of forward entries
  };
  struct Shared {
    WarpShared warps[kWarps];
  };

  const Args& args;
  Shared& all;
  WarpShared& shared = all.warps[threadIdx.x / 32];
  cg::thread_block_tile<32> warp = cg::tiled_partition<32>(cg::this_thread_block());
  uint32_t lane = threadIdx.x % 32;

  __device__ void run() {
    const uint64_t row = uint64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
    if (row >= args.rows) return;
    uint32_t* graph = args.graph + row * args.degree;
    uint32_t forward[kOfLane];
    uint32_t reverse[kOfLane];
    read(args.forward + row * args.degree, static_cast<uint32_t>(row), forward);
    read(graph, static_cast<uint32_t>(row), reverse);
    enter(forward);
    look_up(reverse);
    write(forward, reverse, graph);
  }

  /// Entries lane, 32 + lane, ... of a list; kNoRow for none.
  __device__ void read(const uint32_t* list, uint32_t row, uint32_t* entries) const {
#pragma unroll
    for (uint32_t i = 0; i < kOfLane; ++i) {
      const uint32_t rank = 32 * i + lane;
      const uint32_t entry = rank < args.degree ? list[rank] : kNoRow;
      entries[i] = entry != row ? entry : kNoRow;
    }
  }

  static __device__ uint32_t first_place(uint32_t row) {
    return (row * 0x9e3779b1u) >> (32 - std::countr_zero(kPlaces));
  }

  __device__ void enter(const uint32_t* forward) {
    for (uint32_t i = lane; i < kPlaces; i += 32) shared.rows[i] = kNoRow;
    if (lane < kOfLane) shared.repeated[lane] = 0;
    warp.sync();
#pragma unroll
    for (uint32_t i = 0; i < kOfLane; ++i) {
      if (forward[i] == kNoRow) continue;
      uint32_t place = first_place(forward[i]);
      while (atomicCAS(&shared.rows[place], kNoRow, forward[i]) != kNoRow) place = (place + 1) % kPlaces;
      shared.ranks[place] = static_cast<uint8_t>(32 * i + lane);
    }
    warp.sync();
  }

  /// Takes from the reverse list the entries that the forward one has at no later rank, and marks there those
  /// that it has at a later one.
  __device__ void look_up(uint32_t* reverse) {
#pragma unroll
    for (uint32_t i = 0; i < kOfLane; ++i) {
      if (reverse[i] == kNoRow) continue;
      uint32_t place = first_place(reverse[i]);
      while (shared.rows[place] != reverse[i] && shared.rows[place] != kNoRow) place = (place + 1) % kPlaces;
      if (shared.rows[place] == kNoRow) continue;
      const uint32_t rank = shared.ranks[place];
      if (rank <= 32 * i + lane)
        reverse[i] = kNoRow;
      else
        atomicOr(&shared.repeated[rank / 32], 1u << rank % 32);
    }
    warp.sync();
  }

  __device__ void write(const uint32_t* forward, const uint32_t* reverse, uint32_t* graph) const {
    const uint32_t lanes_before = (1u << lane) - 1;
    uint32_t count = 0;
#pragma unroll
    for (uint32_t i = 0; i < kOfLane; ++i) {
      const bool has_forward = forward[i] != kNoRow && (shared.repeated[i] >> lane & 1) == 0;
      const bool has_reverse = reverse[i] != kNoRow;
      const uint32_t of_forward = warp.ballot(has_forward);
      const uint32_t of_reverse = warp.ballot(has_reverse);
      const uint32_t place = count + __popc(of_forward & lanes_before) + __popc(of_reverse & lanes_before);
      const uint32_t behind = place + (has_forward ? 1 : 0);
      if (has_forward && place < args.degree) graph[place] = forward[i];
      if (has_reverse && behind < args.degree) graph[behind] = reverse[i];
      count += __popc(of_forward) + __popc(of_reverse);
    }
    for (uint32_t place = count + lane; place < args.degree; place += 32) graph[place] = kNoRow;
  }
};

/// The shell of all three.
template <class Step>
__global__ void __launch_bounds__(Step::kThreads) kernel(const __grid_constant__ Args args) {
  __shared__ typename Step::Shared shared;
  Step{args, shared}.run();
}

// --- Host ----------------------------------------------------------------------------------------

uint32_t ceil_div(uint64_t a, uint64_t b) { return static_cast<uint32_t>((a + b - 1) / b); }

/// Bits of a target; holes have the target `rows`.
int target_bits(uint32_t rows) { return std::bit_width(rows); }

/// A slice of ranks and the device memory it takes.
struct Slice {
  uint32_t ranks;
  uint64_t edges;
  uint64_t scratch_bytes;

  Slice(uint32_t rows, uint32_t rank_count)
      : ranks(rank_count),
        edges(uint64_t{rows} * rank_count),
        scratch_bytes(sort_scratch_bytes(edges, target_bits(rows))) {}
  uint64_t bytes() const { return 4 * edges * sizeof(uint32_t) + scratch_bytes; }
};

/// The largest slice within the bound, at least one rank. On one NVIDIA H200 at 1M x 64 slices of 1,
/// 4, 8, 16, 32 and 64 ranks take 38.1, 12.1, 7.23, 4.74, 3.55 and 3.03 ms.
Slice pick_slice(uint32_t rows, uint32_t degree, uint64_t bytes_max) {
  if (bytes_max == 0) bytes_max = kReverseEdgesDeviceBytes;
  uint32_t ranks = degree;
  while (ranks > 1 && Slice(rows, ranks).bytes() > bytes_max) --ranks;
  return Slice(rows, ranks);
}

void run_phase(Args args, const Slice& slice, const Stream& stream, const Execution& execution) {
  const DeviceArray<uint32_t> lists(4 * slice.edges, stream);
  const DeviceArray<uint8_t> scratch(slice.scratch_bytes, stream);
  const dim3 tiles(ceil_div(args.rows, kTile), ceil_div(slice.ranks, kTile));

  for (; args.rank_begin < args.degree; args.rank_begin += args.ranks) {
    execution.check();
    SortBuffer targets{lists.data(), lists.data() + slice.edges};
    SortBuffer sources{lists.data() + 2 * slice.edges, lists.data() + 3 * slice.edges};
    args.ranks = std::min(slice.ranks, args.degree - args.rank_begin);
    args.targets = targets.current;
    args.sources = sources.current;
    launch("list_by_rank", kernel<ListByRank>, tiles, ListByRank::kThreads, stream, args);

    sort_pairs(&targets, &sources, args.listed_count(), target_bits(args.rows), scratch.data(),
               slice.scratch_bytes, stream, "sorting edges by target");
    args.targets = targets.current;
    args.sources = sources.current;
    launch("collect_reverse", kernel<CollectReverse>, ceil_div(args.rows, CollectReverse::kThreads),
           CollectReverse::kThreads, stream, args);
    if (slice.ranks < args.degree) stream.wait();
  }
}

template <uint32_t kOfLane>
void merge(const Args& args, const Stream& stream) {
  using Step = MergeEdges<kOfLane>;
  launch("merge_edges", kernel<Step>, ceil_div(args.rows, Step::kWarps), Step::kThreads, stream, args);
}

}  // namespace

void add_reverse_edges(const uint32_t* forward, uint32_t rows, uint32_t degree, uint32_t* merged,
                       const Stream& stream, const Execution& execution, uint64_t workspace_bytes_max) {
  if (rows == 0) return;
  const Slice slice = pick_slice(rows, degree, workspace_bytes_max);
  const Args args = {forward, merged, nullptr, nullptr, rows, degree, 0, 0};
  run_phase(args, slice, stream, execution);
  if (degree <= 32)
    merge<1>(args, stream);
  else if (degree <= 64)
    merge<2>(args, stream);
  else
    merge<8>(args, stream);
}

}  // namespace gannet::cuda
