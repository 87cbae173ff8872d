// Which rows a search can reach, and edges for those that it cannot, on the GPU. The contract is in
// search_graph.h, the CPU's version in reachability.cpp; the edges are equal.
//
//   CPU                       here
//   queue, its order          order, place
//   reached, used             claims: the edge by which a row was reached, as one number
//   rows not reached          lost
//
// The idea. On the CPU a row joins the tree by the first edge to it that the queue meets: the edge with
// the smallest (place of the parent, rank). So a whole piece of the queue can be expanded at once: every
// edge claims its target with that pair by an atomic minimum, which no schedule changes, and the winners
// are appended in the order of their claims by counting. An edge belongs to the tree if its target's
// claim is its own; no other mark is needed. Claims of earlier pieces are smaller, so that one comparison
// also says whether a row has been reached.
//
//   order  5 9      edges of 5: 7 9 2     claims  7: (0,0)  2: (0,2)  4: (1,1)     order  5 9 7 2 4
//                   edges of 9: 2 4
//
// Wide pieces are expanded by the whole device, a warp for each row: claim, count, add up, append. Narrow
// ones, at the beginning and where lost rows are hung, by one block that goes on by itself, up to 32 rows
// at a time.
//
// Hanging lost rows is sequential: each may change what the next one finds. One block asks 32 of them at
// a time and hangs the first that can be; those before it changed nothing. With up to kRepairMax rows a
// pass takes some 60 us at most.
//
// Bytes a row at degree d: its list three times, 12 d; its targets' claims twice, 16 d, from L2 up to some
// million rows; 36 of claims, places and order.

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

#include <algorithm>
#include <cstring>
#include <cub/device/device_scan.cuh>
#include <cub/device/device_select.cuh>
#include <thrust/iterator/counting_iterator.h>

#include "graph/search_graph_cuda.h"
#include "traverse/row_key.h"

namespace gannet::cuda {
namespace {

namespace cg = cooperative_groups;
using Claim = unsigned long long;

constexpr uint32_t kThreads = 256;       // of a block, where the whole device works
constexpr uint32_t kWarps = 32;          // of the block that works alone
constexpr uint32_t kNarrowMax = 1024;    // rows of a piece that one block expands
constexpr uint32_t kRounds = 4096;       // of one block in one launch, some 10 ms

// A claim is (place of the parent + 1) << 8 | rank; entry points have 0.
constexpr Claim kUnclaimed = UINT64_MAX;
constexpr uint32_t kRankBits = 8;
static_assert(ANN_DEGREE_MAX <= 1 << kRankBits);

/// Where one block has got to; between launches in device memory.
struct Progress {
  uint32_t head;  // order[head, tail) is not expanded yet
  uint32_t tail;
  uint32_t cursor;  // lost rows before this one have been asked in this pass
  uint32_t first;   // lost rows before this one are reached
  uint32_t donor;   // rows of `order` before this one have no place to give
  uint32_t spent;
  uint32_t moved;  // whether this pass has hung a row
};

struct Args {
  uint32_t* edges;      // [rows, degree]
  Claim* claims;        // [rows] kUnclaimed: not reached
  uint32_t* places;     // [rows] of reached rows: place in `order`
  uint32_t* order;      // [rows] rows in the order in which they are reached
  uint32_t* offsets;    // [rows + 1] rows that each row of a piece reaches, then their sums
  const uint32_t* lost;  // [lost_count] ascending
  Progress* progress;
  uint32_t rows;
  uint32_t degree;
  uint32_t lost_count;
  uint32_t head;  // of the piece that the whole device expands
  uint32_t tail;
};

__device__ Claim claim_of(uint32_t place, uint32_t rank) {
  return (Claim{place} + 1) << kRankBits | rank;
}

/// The list of one row of the tree. One warp.
struct Branch {
  const Args& args;
  uint32_t place;
  cg::thread_block_tile<32> warp = cg::tiled_partition<32>(cg::this_thread_block());
  uint64_t begin = uint64_t{args.order[place]} * args.degree;

  __device__ uint32_t target(uint32_t rank) const {
    return rank < args.degree ? args.edges[begin + rank] : kNoRow;
  }
  __device__ bool won(uint32_t target, uint32_t rank) const {
    return target != kNoRow && __ldcg(args.claims + target) == claim_of(place, rank);
  }

  __device__ void claim() const {
    for (uint32_t rank = warp.thread_rank(); rank < args.degree; rank += 32) {
      const uint32_t row = target(rank);
      const Claim mine = claim_of(place, rank);
      if (row != kNoRow && __ldcg(args.claims + row) > mine) atomicMin(args.claims + row, mine);
    }
  }

  __device__ uint32_t count() const {
    uint32_t winners = 0;
    for (uint32_t base = 0; base < args.degree; base += 32) {
      const uint32_t rank = base + warp.thread_rank();
      winners += __popc(warp.ballot(won(target(rank), rank)));
    }
    return winners;
  }

  /// Puts the rows that it has won behind one another, from `to` on.
  __device__ void append(uint32_t to) const {
    for (uint32_t base = 0; base < args.degree; base += 32) {
      const uint32_t rank = base + warp.thread_rank();
      const uint32_t row = target(rank);
      const bool mine = won(row, rank);
      const uint32_t winners = warp.ballot(mine);
      if (mine) {
        const uint32_t at = to + __popc(winners & ((1u << warp.thread_rank()) - 1));
        args.order[at] = row;
        args.places[row] = at;
      }
      to += __popc(winners);
    }
  }

  /// The place of the list that a lost row may take: the first free one, else the last that the tree does
  /// not use, else kNoRow.
  __device__ uint32_t free_place() const {
    uint32_t found = kNoRow;
    for (uint32_t base = 0; base < args.degree; base += 32) {
      const uint32_t rank = base + warp.thread_rank();
      const uint32_t row = target(rank);
      const uint32_t holes = warp.ballot(rank < args.degree && row == kNoRow);
      if (holes != 0) return base + __ffs(holes) - 1;
      const uint32_t unused = warp.ballot(rank < args.degree && !won(row, rank));
      if (unused != 0) found = base + 31 - __clz(unused);
    }
    return found;
  }
};

// --- The whole device ----------------------------------------------------------------------------

struct Begin {
  const Args& args;
  const uint32_t* entries;
  __device__ void run() {
    for (uint32_t i = threadIdx.x; i < args.tail; i += blockDim.x) {
      args.order[i] = entries[i];
      args.places[entries[i]] = i;
      args.claims[entries[i]] = 0;
    }
    if (threadIdx.x == 0) *args.progress = {0, args.tail, 0, 0, 0, 0, 0};
  }
};

/// A warp's row of the piece, or none.
struct OnePiece {
  const Args& args;
  uint32_t number = blockIdx.x * (kThreads / 32) + threadIdx.x / 32;
  __device__ bool there() const { return number < args.tail - args.head; }
  __device__ Branch branch() const { return Branch{args, args.head + number}; }
};

struct ClaimTargets {
  const Args& args;
  __device__ void run() {
    const OnePiece piece{args};
    if (piece.there()) piece.branch().claim();
  }
};

struct CountWon {
  const Args& args;
  __device__ void run() {
    const OnePiece piece{args};
    if (!piece.there()) return;
    const uint32_t winners = piece.branch().count();
    if (threadIdx.x % 32 == 0) args.offsets[piece.number] = winners;
    // The sum before it is the sum of all; what stands there does not count, but is read.
    if (blockIdx.x == 0 && threadIdx.x == 0) args.offsets[args.tail - args.head] = 0;
  }
};

struct AppendWon {
  const Args& args;
  __device__ void run() {
    const OnePiece piece{args};
    if (piece.there()) piece.branch().append(args.tail + args.offsets[piece.number]);
    if (blockIdx.x == 0 && threadIdx.x == 0) {
      args.progress->head = args.tail;
      args.progress->tail = args.tail + args.offsets[args.tail - args.head];
    }
  }
};

// --- One block -----------------------------------------------------------------------------------

/// Expands narrow pieces and hangs lost rows, until nothing is left that it can do, or for kRounds.
struct Repair {
  struct Shared {
    uint32_t counts[kWarps];
    uint32_t parents[kWarps];
    uint32_t places[kWarps];
  };

  const Args& args;
  Shared& shared;
  cg::thread_block block = cg::this_thread_block();
  cg::thread_block_tile<32> warp = cg::tiled_partition<32>(cg::this_thread_block());
  uint32_t number = threadIdx.x / 32;  // of the warp
  Progress at = *args.progress;

  __device__ void run() {
    block.sync();
    for (uint32_t round = 0; round < kRounds; ++round) {
      if (at.tail - at.head > kNarrowMax) break;
      if (at.head < at.tail) {
        expand(min(kWarps, at.tail - at.head));
      } else if (at.tail == args.rows || args.lost_count == 0) {
        break;
      } else if (at.cursor < args.lost_count) {
        ask();
      } else if (at.moved != 0) {
        at.moved = at.cursor = 0;  // the next pass
      } else {
        donate();
        at.cursor = 0;
      }
    }
    if (threadIdx.x == 0) *args.progress = at;
  }

  __device__ void expand(uint32_t count) {
    const bool busy = number < count;
    const Branch branch{args, at.head + (busy ? number : 0)};
    if (busy) branch.claim();
    block.sync();
    const uint32_t winners = busy ? branch.count() : 0;
    if (warp.thread_rank() == 0) shared.counts[number] = winners;
    block.sync();
    const uint32_t lane_count = shared.counts[warp.thread_rank()];
    const uint32_t before =
        cg::reduce(warp, warp.thread_rank() < number ? lane_count : 0u, cg::plus<uint32_t>());
    const uint32_t all = cg::reduce(warp, lane_count, cg::plus<uint32_t>());
    if (busy) branch.append(at.tail + before);
    at.head += count;
    at.tail += all;
    block.sync();
  }

  __device__ bool reached(uint32_t row) const { return __ldcg(args.claims + row) != kUnclaimed; }

  /// Hangs the first of the next lost rows that has a parent in its own list.
  __device__ void ask() {
    const uint32_t place = at.cursor + number;
    const bool asked = place < args.lost_count && !reached(args.lost[place]);
    offer(asked ? find_parent(args.lost[place]) : kNoRow);
    const uint32_t first = first_offer();
    if (first == kWarps) {
      at.cursor += kWarps;
    } else {
      hang(args.lost[at.cursor + first], first);
      at.cursor += first + 1;
      at.moved = 1;
    }
    block.sync();
  }

  /// Hangs the first lost row below the first row of the tree that has a place.
  __device__ void donate() {
    while (reached(args.lost[at.first])) ++at.first;
    uint32_t first = kWarps;
    while (first == kWarps) {
      const uint32_t place = at.donor + number;
      offer(place < at.tail ? args.order[place] : kNoRow);
      first = first_offer();
      at.donor += first;
      if (first == kWarps) block.sync();
    }
    hang(args.lost[at.first], first);
    block.sync();
  }

  /// The first row of a list that is in the tree and has a place.
  __device__ uint32_t find_parent(uint32_t row) const {
    const uint64_t begin = uint64_t{row} * args.degree;
    for (uint32_t base = 0; base < args.degree; base += 32) {
      const uint32_t rank = base + warp.thread_rank();
      const uint32_t target = rank < args.degree ? args.edges[begin + rank] : kNoRow;
      uint32_t candidates = warp.ballot(target != kNoRow && reached(target));
      for (; candidates != 0; candidates &= candidates - 1) {
        const uint32_t parent = warp.shfl(target, __ffs(candidates) - 1);
        if (Branch{args, args.places[parent]}.free_place() != kNoRow) return parent;
      }
    }
    return kNoRow;
  }

  /// What this warp has found; kNoRow: nothing.
  __device__ void offer(uint32_t parent) {
    const uint32_t place =
        parent != kNoRow ? Branch{args, args.places[parent]}.free_place() : kNoRow;
    if (warp.thread_rank() == 0) {
      shared.parents[number] = place != kNoRow ? parent : kNoRow;
      shared.places[number] = place;
    }
    block.sync();
  }

  /// The first warp that has found something, or kWarps.
  __device__ uint32_t first_offer() const {
    const uint32_t offers = warp.ballot(shared.parents[warp.thread_rank()] != kNoRow);
    return offers != 0 ? __ffs(offers) - 1 : kWarps;
  }

  /// `lost` takes the place that a warp has found.
  __device__ void hang(uint32_t lost, uint32_t finder) {
    if (threadIdx.x == 0) {
      const uint32_t parent = shared.parents[finder];
      const uint32_t rank = shared.places[finder];
      args.edges[uint64_t{parent} * args.degree + rank] = lost;
      __stcg(args.claims + lost, claim_of(args.places[parent], rank));
      args.places[lost] = at.tail;
      args.order[at.tail] = lost;
    }
    ++at.tail;
    ++at.spent;
  }
};

template <class Step>
__global__ void __launch_bounds__(kThreads) kernel(const __grid_constant__ Args args) {
  Step{args}.run();
}

struct BeginArgs {
  Args args;
  const uint32_t* entries;  // [entry_count]
};

__global__ void __launch_bounds__(kThreads) begin(const __grid_constant__ BeginArgs args) {
  Begin{args.args, args.entries}.run();
}

__global__ void __launch_bounds__(kWarps * 32) repair(const __grid_constant__ Args args) {
  __shared__ Repair::Shared shared;
  Repair{args, shared}.run();
}

// --- Host ----------------------------------------------------------------------------------------

struct IsLost {
  const Claim* claims;
  __device__ bool operator()(uint32_t row) const { return claims[row] == kUnclaimed; }
};

/// The tree of a graph, with the memory that it takes.
class Tree {
 public:
  Tree(const GraphView& graph, const Stream& stream, const Execution& execution)
      : graph_(graph),
        stream_(stream),
        execution_(execution),
        claims_(graph.rows, stream),
        places_(graph.rows, stream),
        order_(graph.rows, stream),
        offsets_(uint64_t{graph.rows} + 1, stream),
        lost_(kRepairMax + 1, stream),
        progress_(1, stream),
        scratch_bytes_(scratch_bytes(graph.rows)),
        scratch_(scratch_bytes_, stream) {
    fill(claims_.data(), 0xff, graph.rows * sizeof(Claim), stream, "clearing device memory");
    Args args = this->args();
    args.tail = graph.entry_count;
    launch("begin_tree", begin, 1, kThreads, stream, BeginArgs{args, graph.entries});
    at_.tail = graph.entry_count;
  }

  /// Grows until no edge leads out of the tree; returns the rows that are not in it.
  uint32_t grow() {
    while (at_.head < at_.tail) {
      execution_.check();
      if (at_.tail - at_.head > kNarrowMax)
        expand_wide();
      else
        launch("grow_tree", repair, 1, kWarps * 32, stream_, args());
      fetch_progress();
    }
    return graph_.rows - at_.tail;
  }

  /// Hangs all lost rows, at most kRepairMax, into the tree; returns the edges spent.
  uint32_t hang(uint32_t lost_count) {
    uint64_t bytes = scratch_bytes_;
    check(select_lost(scratch_.data(), bytes, graph_.rows), "collecting lost rows");
    Args args = this->args();
    args.lost = lost_.data() + 1;
    args.lost_count = lost_count;
    while (at_.tail < graph_.rows) {
      execution_.check();
      if (at_.tail - at_.head > kNarrowMax)
        expand_wide();
      else
        launch("repair_reachability", repair, 1, kWarps * 32, stream_, args);
      fetch_progress();
    }
    return at_.spent;
  }

 private:
  uint64_t scratch_bytes(uint32_t rows) {
    uint64_t scan = 0;
    uint64_t select = 0;
    check(cub::DeviceScan::ExclusiveSum(nullptr, scan, offsets_.data(), offsets_.data(),
                                        uint64_t{rows} + 1, stream_),
          "asking for the bytes of a sum");
    check(select_lost(nullptr, select, rows), "asking for the bytes of a selection");
    return std::max(scan, select);
  }

  /// The first of lost_ gets the count, the others the rows.
  cudaError_t select_lost(void* scratch, uint64_t& bytes, uint32_t rows) {
    return cub::DeviceSelect::If(scratch, bytes, thrust::counting_iterator<uint32_t>(0),
                                 lost_.data() + 1, lost_.data(), rows, IsLost{claims_.data()},
                                 stream_);
  }

  Args args() const {
    Args args = {};
    args.edges = graph_.edges;
    args.claims = claims_.data();
    args.places = places_.data();
    args.order = order_.data();
    args.offsets = offsets_.data();
    args.progress = progress_.data();
    args.rows = graph_.rows;
    args.degree = graph_.degree;
    return args;
  }

  /// All rows that wait, at once.
  void expand_wide() {
    Args args = this->args();
    args.head = at_.head;
    args.tail = at_.tail;
    const uint32_t rows = at_.tail - at_.head;
    const uint32_t blocks = (rows - 1) / (kThreads / 32) + 1;
    launch("claim_targets", kernel<ClaimTargets>, blocks, kThreads, stream_, args);
    launch("count_won", kernel<CountWon>, blocks, kThreads, stream_, args);
    uint64_t bytes = scratch_bytes_;
    check(cub::DeviceScan::ExclusiveSum(scratch_.data(), bytes, offsets_.data(), offsets_.data(),
                                        uint64_t{rows} + 1, stream_),
          "summing what a piece reaches");
    launch("append_won", kernel<AppendWon>, blocks, kThreads, stream_, args);
  }

  /// Asks where the device has got to. A step that changes nothing would be repeated for ever.
  void fetch_progress() {
    const Progress before = at_;
    copy_to_host(&at_, progress_.data(), sizeof at_, stream_, "fetching the state of a tree");
    stream_.wait();
    if (std::memcmp(&before, &at_, sizeof at_) == 0 || at_.tail > graph_.rows)
      fail(ANN_INTERNAL, "the device grows no tree of a graph");
  }

  const GraphView& graph_;
  const Stream& stream_;
  const Execution& execution_;
  DeviceArray<Claim> claims_;      // [rows]
  DeviceArray<uint32_t> places_;   // [rows]
  DeviceArray<uint32_t> order_;    // [rows]
  DeviceArray<uint32_t> offsets_;  // [rows + 1]
  DeviceArray<uint32_t> lost_;     // [1 + kRepairMax] count, rows
  DeviceArray<Progress> progress_;
  uint64_t scratch_bytes_;
  DeviceArray<uint8_t> scratch_;
  Progress at_ = {};
};

}  // namespace

Reach repair_reachability(const GraphView& graph, const Stream& stream, const Execution& execution) {
  Reach result;
  if (graph.rows == 0) return result;
  Tree tree(graph, stream, execution);
  result.lost = tree.grow();
  if (result.lost == 0 || result.lost > kRepairMax) return result;
  result.spent = tree.hang(result.lost);
  result.lost = 0;
  return result;
}

uint32_t count_unreachable(const GraphView& graph, const Stream& stream,
                           const Execution& execution) {
  if (graph.rows == 0) return 0;
  return Tree(graph, stream, execution).grow();
}

}  // namespace gannet::cuda
