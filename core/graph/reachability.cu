// Which rows a search can reach, and edges for those that it cannot, on the GPU. The contract is in
// search_graph.h, the CPU's version in reachability.cpp; the edges are equal.
//
//   CPU                       here
//   queue, its order          order, places
//   reached, used             claims: the edge by which a row was reached, as one number
//   rows not reached          unreachable
//
// The idea. On the CPU a row joins the tree by the first edge to it in the order of the queue: the edge with
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
// ones, at the beginning and where few unreachable rows are attached, are expanded by one block, up to 32 rows
// at a time, which takes many steps in one launch.
//
// Attachment is sequential: each attached row may change the parent of the next one. Few unreachable rows are
// attached by one block, which tries 32 at a time and attaches the first that has a parent, since those before
// it changed nothing. More of them are attached in parallel: reachability_parallel.cuh says why that gives the
// same edges. The host goes through its steps:
//
//   attach_passes    find_roots     labels fall, round by round, until none does
//                    append_roots   roots join the tree, and the rows that they lead to
//                    find_parents   proposals, refused and made again, until each root has a place
//                    attach_roots   edges
//   attach_islands   where no unreachable row has a reached row in its list: once, then passes again
//
// Two cases are left to the block, or to the CPU, with the edges as they were: rows without any free place,
// which takes lists of few edges or of reached rows all of whose edges the tree uses; and labels or proposals
// that take more than kParallelRounds or kParallelLooks, about a second.
//
// Bytes a row at degree d: its list three times, 12 d; its targets' claims twice, 16 d, from L2 up to some
// million rows; 36 of claims, places and order. An unreachable row and round of labels: its list and its
// targets' claims, 12 d, and the same for each parent that it looks at; 60 bytes of memory.
//
// One NVIDIA H200 attaches 86,349 of 103,093 unreachable rows, a hundredth of 10M at degree 64, in 2.1 ms, the
// others being reached from them; the tree of all rows takes 17 ms (tests/bench/results.csv, "repair of").

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <optional>

#include "backend/launch_items.cuh"
#include "backend/prefix_sums.h"
#include "backend/sort_pairs.h"
#include "graph/reachability_parallel.cuh"
#include "graph/reachability_tree.cuh"
#include "graph/search_graph_cuda.h"

namespace gannet::cuda {
namespace {

using namespace reach;

// --- The whole device ----------------------------------------------------------------------------

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
    // The sum before it is the sum of all; its own value is read, but does not count.
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

/// Expands narrow pieces and attaches unreachable rows, until no work is left for it, or for kRounds.
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
      } else if (at.tail == args.rows || args.unreachable_count == 0) {
        break;
      } else if (at.cursor < args.unreachable_count) {
        try_next();
      } else if (at.moved != 0) {
        at.moved = at.cursor = 0;  // the next pass
      } else {
        attach_island();
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

  /// Attaches the first of the next unreachable rows that has a parent in its own list.
  __device__ void try_next() {
    const uint32_t place = at.cursor + number;
    const bool open = place < args.unreachable_count && !reached(args.unreachable[place]);
    publish_candidate(open ? find_parent(args.unreachable[place]) : kNoRow);
    const uint32_t first = first_candidate();
    if (first == kWarps) {
      at.cursor += kWarps;
    } else {
      attach(args.unreachable[at.cursor + first], first);
      at.cursor += first + 1;
      at.moved = 1;
    }
    block.sync();
  }

  /// Attaches the first unreachable row below the first row of the tree that has a place.
  __device__ void attach_island() {
    while (reached(args.unreachable[at.first])) ++at.first;
    uint32_t first = kWarps;
    while (first == kWarps) {
      const uint32_t place = at.parent_cursor + number;
      publish_candidate(place < at.tail ? args.order[place] : kNoRow);
      first = first_candidate();
      at.parent_cursor += first;
      if (first == kWarps) block.sync();
    }
    attach(args.unreachable[at.first], first);
    block.sync();
  }

  /// The first row of a list that is in the tree and has a place.
  __device__ uint32_t find_parent(uint32_t row) const {
    const uint32_t* edges = args.table.row(row);
    for (uint32_t base = 0; base < args.table.degree; base += 32) {
      const uint32_t rank = base + warp.thread_rank();
      const uint32_t target = rank < args.table.degree ? edges[rank] : kNoRow;
      uint32_t candidates = warp.ballot(target != kNoRow && reached(target));
      for (; candidates != 0; candidates &= candidates - 1) {
        const uint32_t parent = warp.shfl(target, __ffs(candidates) - 1);
        if (Branch{args, args.places[parent]}.free_place() != kNoRow) return parent;
      }
    }
    return kNoRow;
  }

  /// The parent that this warp has found, and its place; kNoRow: none.
  __device__ void publish_candidate(uint32_t parent) {
    const uint32_t place = parent != kNoRow ? Branch{args, args.places[parent]}.free_place() : kNoRow;
    if (warp.thread_rank() == 0) {
      shared.parents[number] = place != kNoRow ? parent : kNoRow;
      shared.places[number] = place;
    }
    block.sync();
  }

  /// The first warp with a parent, or kWarps.
  __device__ uint32_t first_candidate() const {
    const uint32_t offers = warp.ballot(shared.parents[warp.thread_rank()] != kNoRow);
    return offers != 0 ? __ffs(offers) - 1 : kWarps;
  }

  /// `row` takes the place that a warp has found.
  __device__ void attach(uint32_t row, uint32_t finder) {
    if (threadIdx.x == 0) {
      const uint32_t parent = shared.parents[finder];
      const uint32_t rank = shared.places[finder];
      args.table.edge(parent, rank) = row;
      __stcg(args.claims + row, claim_of(args.places[parent], rank));
      args.places[row] = at.tail;
      args.order[at.tail] = row;
    }
    ++at.tail;
    ++at.edges_added;
  }
};

using WideSteps = StepList<ClaimTargets, CountWon, AppendWon>;

struct WideArgs {
  Args args;
  uint32_t step;
};

__global__ void __launch_bounds__(kThreads) expand_wave(const __grid_constant__ WideArgs launched) {
  WideSteps::visit(launched.step, [&]<class Step>() { Step{launched.args}.run(); });
}

__global__ void __launch_bounds__(kWarps * 32) repair(const __grid_constant__ Args args) {
  __shared__ Repair::Shared shared;
  Repair{args, shared}.run();
}

// --- Host ----------------------------------------------------------------------------------------

constexpr uint32_t kParallelRounds = 8192;              // of parallel attachment, some 20 us each,
constexpr uint64_t kParallelLooks = uint64_t{1} << 30;  // and rows looked at in them, some ns each
constexpr uint32_t kIslandParentsMin = 1 << 16;  // first rows of the tree, below which islands are attached,
constexpr uint32_t kParentsPerIsland = 4;        // and more of them for each island

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
        counts_(kCounts, stream),
        progress_(1, stream),
        scratch_bytes_(sum_in_place_scratch_bytes(uint64_t{graph.rows} + 1)),
        scratch_(scratch_bytes_, stream) {
    fill(claims_.data(), 0xff, graph.rows * sizeof(Claim), stream, "clearing device memory");
    ParallelArgs args = {};
    args.tree = this->args();
    args.from = graph.entries;
    args.from_count = graph.entry_count;
    launch_items<BeginTree>("begin_tree", graph.entry_count, args, stream);
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

  /// Attaches all unreachable rows to the tree, one after the other; returns the edges added.
  uint32_t attach_serial(uint32_t unreachable_count) {
    collect_unreachable(unreachable_count);
    Args args = this->args();
    args.unreachable = unreachable_->data();
    args.unreachable_count = unreachable_count;
    while (at_.tail < graph_.rows) {
      execution_.check();
      if (at_.tail - at_.head > kNarrowMax)
        expand_wide();
      else
        launch("repair_reachability", repair, 1, kWarps * 32, stream_, args);
      fetch_progress();
    }
    return at_.edges_added;
  }

  /// Attaches all unreachable rows in parallel; or none, if that takes too many rounds or some row finds no
  /// parent with a place.
  bool attach_parallel(uint32_t unreachable_count) {
    collect_unreachable(unreachable_count);
    parallel_ = std::make_unique<Parallel>(unreachable_count, graph_.rows, at_.tail, stream_);
    if (attach_passes() && (at_.tail == graph_.rows || (attach_islands() && attach_passes())) &&
        at_.tail == graph_.rows)
      return true;
    if (at_.edges_added != 0)
      launch_items<RestoreEdges>("restore_edges", at_.edges_added, parallel_args(), stream_);
    return false;
  }
  uint32_t edges_added() const { return at_.edges_added; }

 private:
  /// The memory of parallel attachment, beside the tree.
  struct Parallel {
    Parallel(uint32_t count, uint32_t rows, uint32_t tail, const Stream& stream)
        : unreachable(count),
          reached(tail),
          key_bits(std::bit_width(rows)),
          roots(count, stream),
          ranks(count, stream),
          parents(count, stream),
          slots(count, stream),
          events(count, stream),
          overwritten(count, stream),
          overwritten_at(count, stream),
          numbers(count, stream),
          asked(count, stream),
          asking(count, stream) {}

    uint32_t unreachable;
    uint32_t reached;  // rows of the tree before any is attached
    int key_bits;
    uint32_t root_count = 0;
    uint64_t looks = 0;  // at unreachable rows
    uint32_t rounds = 0;
    DeviceArray<uint32_t> roots, ranks, parents, slots, events, overwritten;  // [unreachable]
    DeviceArray<uint64_t> overwritten_at;                                     // [unreachable]
    DeviceArray<uint32_t> numbers, asked, asking;                             // [unreachable]
  };

  enum Count { kSelected, kChanged, kStuck, kCounts };

  void collect_unreachable(uint32_t count) {
    unreachable_.emplace(count, stream_);
    ParallelArgs args = {};
    args.tree = this->args();
    args.from_count = graph_.rows;
    args.chosen = unreachable_->data();
    choose(args);
  }

  /// Collects rows; their number is kSelected.
  void choose(ParallelArgs args) {
    args.chosen_count = counts_.data() + kSelected;
    const uint64_t items = uint64_t{args.from_count} + 1;
    launch_items<MarkChosen>("mark_chosen", items, args, stream_);
    sum_offsets(items);
    launch_items<TakeChosen>("take_chosen", items, args, stream_);
  }

  ParallelArgs parallel_args() const {
    ParallelArgs args = {};
    args.tree = this->args();
    args.tree.unreachable = unreachable_->data();
    args.tree.unreachable_count = parallel_->unreachable;
    args.roots = parallel_->roots.data();
    args.ranks = parallel_->ranks.data();
    args.parents = parallel_->parents.data();
    args.slots = parallel_->slots.data();
    args.numbers = parallel_->numbers.data();
    args.asked = parallel_->asked.data();
    args.asking = parallel_->asking.data();
    args.overwritten_at = parallel_->overwritten_at.data();
    args.overwritten = parallel_->overwritten.data();
    args.changed = counts_.data() + kChanged;
    args.stuck = counts_.data() + kStuck;
    args.root_count = parallel_->root_count;
    args.edges_added = at_.edges_added;
    return args;
  }

  /// Pass after pass, until no unreachable row has a reached one in its list; false if it cannot be done.
  bool attach_passes() {
    while (at_.tail < graph_.rows) {
      if (!find_roots(false)) return false;
      if (parallel_->root_count == 0) return true;
      const uint32_t first = append_roots();
      if (!find_parents(first)) return false;
      attach_roots();
    }
    return true;
  }

  /// Attaches the smallest row of each island.
  bool attach_islands() {
    if (!find_roots(true)) return false;
    ParallelArgs args = parallel_args();
    args.island_parents = static_cast<uint32_t>(std::min<uint64_t>(
        parallel_->reached, kIslandParentsMin + kParentsPerIsland * uint64_t{args.root_count}));
    clear_counts();
    launch_items<CountPlaces>("count_places", uint64_t{args.island_parents} + 1, args, stream_);
    sum_offsets(args.island_parents + 1);
    launch_items<AssignIslandSlots>("assign_island_slots", args.root_count, args, stream_);
    if (fetch_counts().of[kStuck] != 0) return false;
    append_roots();
    attach_roots();
    return true;
  }

  /// Labels, and from them the roots, the rows that begin an event.
  bool find_roots(bool islands) {
    ParallelArgs args = parallel_args();
    args.islands = islands;
    launch_items<BeginLabels>("begin_labels", parallel_->unreachable, args, stream_);
    do {
      if (!may_go_on(parallel_->unreachable)) return false;
      clear_counts();
      launch_items<LowerLabels>("lower_labels", parallel_->unreachable, args, stream_);
    } while (fetch_counts().of[kChanged] != 0);
    args.from = unreachable_->data();
    args.from_count = parallel_->unreachable;
    args.chosen = parallel_->roots.data();
    choose(args);
    parallel_->root_count = fetch_counts().of[kSelected];
    return true;
  }

  /// Appends roots to the tree, with all rows that they lead to; returns the place of the first.
  uint32_t append_roots() {
    const uint32_t first = at_.tail;
    ParallelArgs args = parallel_args();
    args.first = first;
    launch_items<AppendRoots>("append_roots", parallel_->root_count, args, stream_);
    at_.head = first;
    at_.tail = first + parallel_->root_count;
    grow();
    return first;
  }

  bool find_parents(uint32_t first) {
    ParallelArgs args = parallel_args();
    args.first = first;
    Counts found;
    do {
      if (!may_go_on(parallel_->root_count)) return false;
      clear_counts();
      launch_items<Propose>("propose_parents", parallel_->root_count, args, stream_);
      sort_pairs_apart(parallel_->parents.data(), parallel_->asked.data(), parallel_->numbers.data(),
                       parallel_->asking.data(), parallel_->root_count, parallel_->key_bits, stream_,
                       "sorting proposals");
      launch_items<Accept>("accept_proposals", parallel_->root_count, args, stream_);
      args.again = true;
      found = fetch_counts();
      if (found.of[kStuck] != 0) return false;
    } while (found.of[kChanged] != 0);
    return true;
  }

  void attach_roots() {
    launch_items<Attach>("attach_roots", parallel_->root_count, parallel_args(), stream_);
    at_.edges_added += parallel_->root_count;
  }

  /// Whether another round, which looks at `rows` rows, stays within the bounds.
  bool may_go_on(uint32_t rows) {
    execution_.check();
    parallel_->looks += rows;
    return ++parallel_->rounds <= kParallelRounds && parallel_->looks <= kParallelLooks;
  }

  struct Counts {
    uint32_t of[kCounts];
  };
  void clear_counts() { fill(counts_.data(), 0, sizeof(Counts), stream_, "clearing device memory"); }
  Counts fetch_counts() {
    Counts counts;
    copy_to_host(&counts, counts_.data(), sizeof counts, stream_, "fetching counts of unreachable rows");
    stream_.wait();
    return counts;
  }

  void sum_offsets(uint64_t count) {
    sum_before_in_place(offsets_.data(), count, scratch_.data(), scratch_bytes_, stream_,
                        "adding up marks or counts of rows");
  }

  Args args() const {
    Args args = {};
    args.table = graph_.table();
    args.claims = claims_.data();
    args.places = places_.data();
    args.order = order_.data();
    args.offsets = offsets_.data();
    args.progress = progress_.data();
    args.rows = graph_.rows;
    if (parallel_ != nullptr) {
      args.events = parallel_->events.data();
      args.events_from = parallel_->reached;
    }
    return args;
  }

  /// Expands all rows that wait, at once.
  void expand_wide() {
    Args args = this->args();
    args.head = at_.head;
    args.tail = at_.tail;
    const uint32_t rows = at_.tail - at_.head;
    const uint32_t blocks = (rows - 1) / (kThreads / 32) + 1;
    launch_wide<ClaimTargets>("claim_targets", blocks, args);
    launch_wide<CountWon>("count_won", blocks, args);
    sum_offsets(uint64_t{rows} + 1);
    launch_wide<AppendWon>("append_won", blocks, args);
  }

  template <class Step>
  void launch_wide(const char* name, uint32_t blocks, const Args& args) {
    launch(name, expand_wave, blocks, kThreads, stream_, WideArgs{args, WideSteps::number_of<Step>()});
  }

  /// Fetches the device's progress. A step that changes nothing would be repeated for ever.
  void fetch_progress() {
    const Progress before = at_;
    copy_to_host(&at_, progress_.data(), sizeof at_, stream_, "fetching the state of a tree");
    stream_.wait();
    if (parallel_ != nullptr) at_.edges_added = before.edges_added;  // the device does not count them
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
  DeviceArray<uint32_t> counts_;   // [kCounts]
  DeviceArray<Progress> progress_;
  uint64_t scratch_bytes_;
  DeviceArray<uint8_t> scratch_;
  std::optional<DeviceArray<uint32_t>> unreachable_;  // rows, ascending
  std::unique_ptr<Parallel> parallel_;
  Progress at_ = {};
};

}  // namespace

RepairResult repair_reachability(const GraphView& graph, const Stream& stream, const Execution& execution,
                                 const SerialLimits& serial) {
  if (graph.rows == 0) return {};
  std::optional<Tree> tree(std::in_place, graph, stream, execution);
  const uint32_t unreachable = tree->grow();
  if (unreachable == 0) return {};
  if (unreachable > serial.first) {
    if (tree->attach_parallel(unreachable)) return {tree->edges_added(), 0};
    if (unreachable > serial.fallback) return {0, unreachable};
    tree.emplace(graph, stream, execution);
    tree->grow();
  }
  return {tree->attach_serial(unreachable), 0};
}

uint32_t count_unreachable(const GraphView& graph, const Stream& stream, const Execution& execution) {
  if (graph.rows == 0) return 0;
  return Tree(graph, stream, execution).grow();
}

}  // namespace gannet::cuda
