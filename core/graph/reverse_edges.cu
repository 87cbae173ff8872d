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
// stably. What then stands between two targets is a reverse list in the paper's order, because a
// stable sort keeps the order of arrival: rank and source are never compared.
//
//   forward     listed, target<source      sorted             reverse     merged
//   0: 1 2      rank 0: 1<0 2<1 0<2 0<3    0<2 0<3 0<1        0: 2 3      0: 1 2
//   1: 2 0      rank 1: 2<0 0<1 3<2 1<3    1<0 1<3            1: 0 3      1: 2 0
//   2: 0 3                                 2<1 2<0            2: 1 0      2: 0 1
//   3: 0 1                                 3<2                3: 2        3: 0 2
//
// A merged row is the first `degree` distinct rows of f0 r0 f1 r1 ...; a reverse list is the first
// `degree` edges of a run of the sorted list, whose sources differ anyhow. One team of lanes owns each
// row, so no atomic decides an order.
//
// Bounded memory. Ranks are listed, sorted and collected slice by slice; later slices hold worse ranks
// and append to what is there. A slice of n ranks has n * rows edges whatever the graph looks like, so
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
// Rejected, each measured on one NVIDIA H200 at 1M x 64, where these steps took 3.03 ms: slots claimed
// by atomics in order of arrival (2.88 ms for the reverse lists alone, and they depend on the
// schedule); count, scan and scatter by atomics (4.23 ms before the sort that repairs the order);
// sorting by (target, rank, source) (3.00 ms for the sort instead of 1.53).

#include <cooperative_groups.h>

#include <algorithm>
#include <bit>
#include <cub/device/device_radix_sort.cuh>
#include <cub/thread/thread_search.cuh>

#include "ann.h"
#include "graph/search_graph_cuda.h"
#include "traverse/row_key.h"

namespace gannet::cuda {
namespace {

namespace cg = cooperative_groups;
using Buffers = cub::DoubleBuffer<uint32_t>;

/// What is decided before compilation. A team is the group of lanes that works on one row.
struct Policy {
  uint32_t threads;  // per block
  uint32_t team;     // lanes, a power of two up to 32
  constexpr uint32_t teams() const { return threads / team; }
};

// ms of the phase on one NVIDIA H200 at 1M rows and degree  8    16    32    64
constexpr Policy kNarrow{.threads = 256, .team = 8};     // 0.63  1.00  1.78
constexpr Policy kWide{.threads = 256, .team = 32};      // 0.77  1.09  1.62  3.03
constexpr uint32_t kNarrowDegree = 16;

constexpr uint64_t kWorkspaceBytes = uint64_t{2} << 30;
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
/// sorted slice. A team has as many rows as lanes, so that all its lanes search at once: a search is
/// some 26 loads, each waiting for the one before.
template <Policy kPolicy>
struct CollectReverse {
  using Team = cg::thread_block_tile<kPolicy.team, cg::thread_block>;
  static constexpr uint32_t kThreads = kPolicy.threads;
  struct Shared {};

  const Args& args;
  Shared& shared;
  Team team = cg::tiled_partition<kPolicy.team>(cg::this_thread_block());

  __device__ void run() {
    const uint64_t team_number = uint64_t{blockIdx.x} * kPolicy.teams() + team.meta_group_rank();
    const uint64_t row_begin = team_number * kPolicy.team;
    const uint64_t run_begin = find_run(row_begin + team.thread_rank());
    const uint64_t run_end = find_run(row_begin + team.thread_rank() + 1);
    for (uint32_t lane = 0; lane < kPolicy.team && row_begin + lane < args.rows; ++lane)
      collect(row_begin + lane, team.shfl(run_begin, lane), team.shfl(run_end, lane));
  }

  /// Where the edges to `row`, or else to the next row that has any, begin.
  __device__ uint64_t find_run(uint64_t row) const {
    return cub::LowerBound(args.targets, args.listed_count(), row);
  }

  /// Appends to what earlier slices, of better ranks, have left, and marks the end.
  __device__ void collect(uint64_t row, uint64_t run_begin, uint64_t run_end) {
    uint32_t* reverse = args.graph + row * args.degree;
    uint32_t filled = 0;
    if (args.rank_begin > 0) {
      for (uint32_t base = 0; base < args.degree; base += team.size()) {
        const uint32_t i = base + team.thread_rank();
        filled += __popc(team.ballot(i < args.degree && reverse[i] != kNoRow));
      }
    }
    for (uint32_t i = filled + team.thread_rank(); i < args.degree; i += team.size()) {
      const uint64_t edge = run_begin + (i - filled);
      reverse[i] = edge < run_end ? args.sources[edge] : kNoRow;
    }
  }
};

/// "We merge the pruned graph and reversed graph": interleaves the two lists of a row, in place.
template <Policy kPolicy>
struct MergeEdges {
  using Team = cg::thread_block_tile<kPolicy.team, cg::thread_block>;
  static constexpr uint32_t kThreads = kPolicy.threads;
  struct Shared {
    // [team, place]; 4 places more, so that the teams of a warp start in different banks
    alignas(16) uint32_t edges[kPolicy.teams()][ANN_DEGREE_MAX + 4];
  };

  const Args& args;
  Shared& shared;
  Team team = cg::tiled_partition<kPolicy.team>(cg::this_thread_block());
  uint32_t* edges = shared.edges[team.meta_group_rank()];  // the merged row, kNoRow from `count` on
  uint32_t count = 0;

  __device__ void run() {
    const uint64_t row = uint64_t{blockIdx.x} * kPolicy.teams() + team.meta_group_rank();
    if (row >= args.rows) return;
    const uint32_t* forward = args.forward + row * args.degree;
    uint32_t* reverse = args.graph + row * args.degree;
    for (uint32_t i = team.thread_rank(); i < ANN_DEGREE_MAX; i += team.size()) edges[i] = kNoRow;
    team.sync();
    for (uint32_t base = 0; base < 2 * args.degree && count < args.degree; base += team.size()) {
      const uint32_t i = base + team.thread_rank();
      const uint32_t* list = i % 2 == 0 ? forward : reverse;
      add(static_cast<uint32_t>(row), i < 2 * args.degree ? list[i / 2] : kNoRow);
    }
    for (uint32_t i = team.thread_rank(); i < args.degree; i += team.size()) reverse[i] = edges[i];
  }

  /// Appends the lanes' candidates, lane 0 first, but for holes and what the row has already.
  __device__ void add(uint32_t row, uint32_t candidate) {
    const uint32_t lanes_before = (1u << team.thread_rank()) - 1;
    const bool repeated = (team.match_any(candidate) & lanes_before) != 0;
    const bool fresh = candidate != kNoRow && candidate != row && !repeated && !contains(candidate);

    const uint32_t fresh_lanes = team.ballot(fresh);
    const uint32_t place = count + __popc(fresh_lanes & lanes_before);
    team.sync();  // all lanes have searched the row before it grows
    if (fresh && place < args.degree) edges[place] = candidate;
    count = min(count + __popc(fresh_lanes), args.degree);
    team.sync();
  }

  /// All lanes read the same four edges: one broadcast serves four comparisons of every lane. The
  /// holes behind `count` do no harm, as a hole is never fresh.
  __device__ bool contains(uint32_t candidate) const {
    bool found = false;
    for (uint32_t i = 0; i < count; i += 4) {
      const uint4 four = *reinterpret_cast<const uint4*>(edges + i);
      found |= four.x == candidate || four.y == candidate;
      found |= four.z == candidate || four.w == candidate;
    }
    return found;
  }
};

/// The shell of all three. It is a template of the step and not of its policy, because nvcc 13.0
/// cannot write the host side of a kernel that takes a struct of a namespace as template argument.
template <class Step>
__global__ void __launch_bounds__(Step::kThreads) kernel(const __grid_constant__ Args args) {
  __shared__ typename Step::Shared shared;
  Step{args, shared}.run();
}

// --- Host ----------------------------------------------------------------------------------------

uint32_t ceil_div(uint64_t a, uint64_t b) { return static_cast<uint32_t>((a + b - 1) / b); }

/// Sorts by target, stably; CUB notes in the buffers which half is the sorted one. With no scratch it
/// sorts nothing and says how many bytes of it are needed.
void sort_by_target(void* scratch, uint64_t& scratch_bytes, Buffers& targets, Buffers& sources,
                    uint64_t count, uint32_t rows, cudaStream_t stream) {
  const int end_bit = std::bit_width(rows);  // holes have the target `rows`
  check(cub::DeviceRadixSort::SortPairs(scratch, scratch_bytes, targets, sources, count, 0, end_bit,
                                        stream),
        "sorting edges by target");
}

/// A slice of ranks and the device memory it takes.
struct Slice {
  uint32_t ranks;
  uint64_t edges;
  uint64_t scratch_bytes = 0;

  Slice(uint32_t rows, uint32_t rank_count)
      : ranks(rank_count), edges(uint64_t{rows} * rank_count) {
    Buffers none;
    sort_by_target(nullptr, scratch_bytes, none, none, edges, rows, nullptr);
  }
  uint64_t bytes() const { return 4 * edges * sizeof(uint32_t) + scratch_bytes; }
};

/// The largest slice within the bound, at least one rank. On one NVIDIA H200 at 1M x 64 slices of 1,
/// 4, 8, 16, 32 and 64 ranks take 38.1, 12.1, 7.23, 4.74, 3.55 and 3.03 ms.
Slice pick_slice(uint32_t rows, uint32_t degree, uint64_t bytes_max) {
  if (bytes_max == 0) bytes_max = kWorkspaceBytes;
  uint32_t ranks = degree;
  while (ranks > 1 && Slice(rows, ranks).bytes() > bytes_max) --ranks;
  return Slice(rows, ranks);
}

template <Policy kPolicy>
void run_phase(Args args, const Slice& slice, const Stream& stream, const Execution& execution) {
  const DeviceArray<uint32_t> lists(4 * slice.edges, stream);
  const DeviceArray<uint8_t> scratch(slice.scratch_bytes, stream);
  const dim3 tiles(ceil_div(args.rows, kTile), ceil_div(slice.ranks, kTile));

  for (; args.rank_begin < args.degree; args.rank_begin += args.ranks) {
    execution.check();
    Buffers targets(lists.data(), lists.data() + slice.edges);
    Buffers sources(lists.data() + 2 * slice.edges, lists.data() + 3 * slice.edges);
    args.ranks = std::min(slice.ranks, args.degree - args.rank_begin);
    args.targets = targets.Current();
    args.sources = sources.Current();
    launch("list_by_rank", kernel<ListByRank>, tiles, ListByRank::kThreads, stream, args);

    uint64_t scratch_bytes = slice.scratch_bytes;
    sort_by_target(scratch.data(), scratch_bytes, targets, sources, args.listed_count(), args.rows,
                   stream);
    args.targets = targets.Current();
    args.sources = sources.Current();
    launch("collect_reverse", kernel<CollectReverse<kPolicy>>,
           ceil_div(args.rows, kPolicy.threads), kPolicy.threads, stream, args);
    if (slice.ranks < args.degree) stream.wait();
  }
  launch("merge_edges", kernel<MergeEdges<kPolicy>>, ceil_div(args.rows, kPolicy.teams()),
         kPolicy.threads, stream, args);
}

}  // namespace

void add_reverse_edges(const uint32_t* forward, uint32_t rows, uint32_t degree, uint32_t* merged,
                       const Stream& stream, const Execution& execution,
                       uint64_t workspace_bytes_max) {
  if (rows == 0) return;
  const Slice slice = pick_slice(rows, degree, workspace_bytes_max);
  const Args args = {forward, merged, nullptr, nullptr, rows, degree, 0, 0};
  if (degree <= kNarrowDegree)
    run_phase<kNarrow>(args, slice, stream, execution);
  else
    run_phase<kWide>(args, slice, stream, execution);
}

}  // namespace gannet::cuda
