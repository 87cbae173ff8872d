// Unreachable rows are attached in parallel by the whole device, with the edges that serial attachment would give
// them: its kernels. reachability.cu has the whole.
//
//   pass    unreachable rows are tried once, ascending; those are attached whose list holds a reached row
//   root    a row that is attached in this pass
//   event   its attachment, after which rows join the tree that its list leads to; named by the root
//   label   of an unreachable row, the event by which it joins the tree in this pass; it is kept in `places`,
//           which a row needs only once it is reached
//
// Which rows are roots depends neither on their parents nor on the order in which rows join the tree within an
// event: a row is reached by the first event from which edges between unreachable rows lead to it. It is a root
// if that is its own, which it has if a row of its list is reached before the pass or by an event of a smaller
// row. So labels only fall, and are found by all rows at once:
//
//   label(x) = min(label of rows that lead to x;  x, if a row of its list is reached or has a label below x)
//
// A label is also a row; its own label leads to x too, which halves the rounds along chains.
//
// Then the trees of all events grow at once, each only over rows with its label. Within an event rows are
// appended in the order of the CPU, so that the tree uses the same edges.
//
// A root is attached to the first row of its list that is reached by then and has a place. Smaller roots
// choose first. As all parents prefer smaller roots, proposals find the same: each root proposes to its first
// choice, a parent accepts the smallest ones, as far as it has places, and refused roots propose to their next.
// A parent's places are taken in a fixed order, so that a root's number among those accepted gives its own.
//
// Once no unreachable row has a reached row in its list, islands remain, with no edges between them: the smallest
// row of each is attached, all at once, the first islands below the first rows of the tree, and more passes attach
// the rest.
#pragma once

#include "backend/launch_items.cuh"
#include "graph/reachability_tree.cuh"

namespace gannet::cuda::reach {

struct BeginLabels;
struct LowerLabels;
struct AppendRoots;
struct Propose;
struct Accept;
struct Attach;
struct CountPlaces;
struct AssignIslandSlots;
struct RestoreEdges;
struct BeginTree;
struct MarkChosen;
struct TakeChosen;

struct ParallelArgs {
  using Steps = StepList<BeginLabels, LowerLabels, AppendRoots, Propose, Accept, Attach, CountPlaces,
                         AssignIslandSlots, RestoreEdges, BeginTree, MarkChosen, TakeChosen>;

  Args tree;
  uint32_t* roots;           // [root_count] ascending
  uint32_t* ranks;           // [root_count] of the parent in the root's list
  uint32_t* parents;         // [root_count]
  uint32_t* numbers;         // [root_count] 0, 1, 2, ...
  uint32_t* slots;           // [root_count] place in the parent's list, kNoRow: refused
  uint32_t* asked;           // [root_count] parents, ascending
  uint32_t* asking;          // [root_count] the numbers of the roots that ask them, ascending for each
  uint64_t* overwritten_at;  // [unreachable_count] places of edges that were overwritten
  uint32_t* overwritten;     // [unreachable_count] their former targets
  uint32_t* changed;         // [1] labels have fallen, or proposals were refused
  uint32_t* stuck;           // [1] some root finds no parent
  uint32_t first;            // rows from this place on are reached in this pass
  uint32_t root_count;
  uint32_t edges_added;     // before this pass
  uint32_t island_parents;  // first rows of the tree, to which islands are attached
  bool again;               // refused roots propose to their next row
  bool islands;             // labels are the smallest rows of islands, not the events by which rows join
  const uint32_t* from;     // [from_count] entry points, or rows that are chosen from; null: all rows
  uint32_t from_count;
  uint32_t* chosen;  // [*chosen_count] those of them that are unreachable, or roots
  uint32_t* chosen_count;
};

__device__ inline bool is_reached(const Args& tree, uint32_t row) {
  return __ldcg(tree.claims + row) != kUnclaimed;
}

/// Unreachable rows begin without a label, or for islands each with its own.
struct BeginLabels {
  static constexpr uint32_t kLanes = 1;
  const ParallelArgs& args;
  __device__ void run(uint64_t item) const {
    const uint32_t row = args.tree.unreachable[item];
    if (!is_reached(args.tree, row)) args.tree.places[row] = args.islands ? row : kNoRow;
  }
};

/// A row's label falls by its list and its list's by its own: for islands in both directions, as the
/// smallest row of an island is wanted.
struct LowerLabels {
  static constexpr uint32_t kLanes = 32;
  const ParallelArgs& args;
  uint32_t lane = threadIdx.x % 32;

  __device__ void run(uint64_t item) const {
    const uint32_t row = args.tree.unreachable[item];
    if (is_reached(args.tree, row)) return;
    const uint32_t before = label(row);
    uint32_t now = before;
    if (before != kNoRow && before != row) now = min(now, label(before));
    now = min(now, least_label_in_list(row));
    bool fell = lane == 0 && now < before && atomicMin(args.tree.places + row, now) > now;
    if (now != kNoRow) {
      for (uint32_t rank = lane; rank < args.tree.table.degree; rank += 32) {
        const uint32_t other = target(row, rank);
        if (other != kNoRow && !is_reached(args.tree, other) && label(other) > now)
          fell |= atomicMin(args.tree.places + other, now) > now;
      }
    }
    if (fell) *args.changed = 1;
  }

  __device__ uint32_t least_label_in_list(uint32_t row) const {
    uint32_t least = kNoRow;
    for (uint32_t rank = lane; rank < args.tree.table.degree; rank += 32) {
      const uint32_t other = target(row, rank);
      if (other == kNoRow) continue;
      const bool reached = is_reached(args.tree, other);
      if (args.islands)
        least = min(least, reached ? kNoRow : label(other));
      else if (reached || label(other) < row)
        least = row;
    }
    return __reduce_min_sync(~0u, least);
  }
  __device__ uint32_t label(uint32_t row) const { return __ldcg(args.tree.places + row); }
  __device__ uint32_t target(uint32_t row, uint32_t rank) const { return args.tree.table.edge(row, rank); }
};

/// The entry points begin the tree.
struct BeginTree {
  static constexpr uint32_t kLanes = 1;
  const ParallelArgs& args;
  __device__ void run(uint64_t item) const {
    const Args& tree = args.tree;
    const uint32_t place = static_cast<uint32_t>(item);
    const uint32_t entry = args.from[place];
    tree.order[place] = entry;
    tree.places[entry] = place;
    tree.claims[entry] = 0;
    if (place == 0) *tree.progress = {0, args.from_count, 0, 0, 0, 0, 0};
  }
};

/// Rows are collected in ascending order: marked, the marks added up, taken. An item more than there are rows, for the
/// number of those chosen.
struct MarkChosen {
  static constexpr uint32_t kLanes = 1;
  const ParallelArgs& args;
  __device__ void run(uint64_t item) const {
    args.tree.offsets[item] = item < args.from_count && is_chosen(row_of(item)) ? 1 : 0;
  }

  __device__ uint32_t row_of(uint64_t item) const {
    return args.from != nullptr ? args.from[item] : static_cast<uint32_t>(item);
  }
  /// Of all rows the unreachable ones, of those the roots, which begin an event.
  __device__ bool is_chosen(uint32_t row) const {
    return args.tree.claims[row] == kUnclaimed && (args.from == nullptr || args.tree.places[row] == row);
  }
};
struct TakeChosen {
  static constexpr uint32_t kLanes = 1;
  const ParallelArgs& args;
  __device__ void run(uint64_t item) const {
    const MarkChosen rows{args};
    const uint32_t place = args.tree.offsets[item];
    if (item == args.from_count)
      *args.chosen_count = place;
    else if (rows.is_chosen(rows.row_of(item)))
      args.chosen[place] = rows.row_of(item);
  }
};

/// Roots are appended to the tree. The edges by which they are reached are not known yet.
struct AppendRoots {
  static constexpr uint32_t kLanes = 1;
  const ParallelArgs& args;
  __device__ void run(uint64_t item) const {
    const Args& tree = args.tree;
    const uint32_t row = args.roots[item];
    const uint32_t at = args.first + static_cast<uint32_t>(item);
    tree.order[at] = row;
    tree.places[row] = at;
    tree.claims[row] = 0;
    tree.events[at - tree.events_from] = row;
    if (item == 0) {
      tree.progress->head = args.first;
      tree.progress->tail = args.first + args.root_count;
    }
  }
};

/// A root proposes to the first row of its list, or the next, that is reached by then and had a place before
/// the pass.
struct Propose {
  static constexpr uint32_t kLanes = 32;
  const ParallelArgs& args;
  uint32_t lane = threadIdx.x % 32;

  __device__ void run(uint64_t item) const {
    if (args.again && args.slots[item] != kNoRow) return;
    const uint32_t root = args.roots[item];
    const uint32_t rank = next(root, args.again ? args.ranks[item] + 1 : 0);
    if (lane != 0) return;
    const uint32_t parent = rank != kNoRow ? args.tree.table.edge(root, rank) : kNoRow;
    args.ranks[item] = rank;
    args.parents[item] = parent;
    args.numbers[item] = static_cast<uint32_t>(item);
    if (parent == kNoRow) *args.stuck = 1;
  }

  __device__ uint32_t next(uint32_t root, uint32_t from) const {
    for (uint32_t base = from; base < args.tree.table.degree; base += 32) {
      const uint32_t rank = base + lane;
      const uint32_t other = rank < args.tree.table.degree ? args.tree.table.edge(root, rank) : kNoRow;
      uint32_t reached = __ballot_sync(~0u, other != kNoRow && is_before(other, root));
      for (; reached != 0; reached &= reached - 1) {
        const uint32_t lane_of = __ffs(reached) - 1;
        const uint32_t parent = __shfl_sync(~0u, other, lane_of);
        if (Branch{args.tree, args.tree.places[parent]}.free_place() != kNoRow) return base + lane_of;
      }
    }
    return kNoRow;
  }

  __device__ bool is_before(uint32_t row, uint32_t root) const {
    if (!is_reached(args.tree, row)) return false;
    const uint32_t at = args.tree.places[row];
    return at < args.first || args.tree.events[at - args.tree.events_from] < root;
  }
};

/// A proposal gets the next place that smaller roots leave, or none.
struct Accept {
  static constexpr uint32_t kLanes = 32;
  const ParallelArgs& args;

  __device__ void run(uint64_t item) const {
    const uint32_t parent = args.asked[item];
    if (parent == kNoRow) return;
    const uint32_t others = static_cast<uint32_t>(item) - first_of(parent, static_cast<uint32_t>(item));
    const uint32_t slot = Branch{args.tree, args.tree.places[parent]}.free_place(others);
    if (threadIdx.x % 32 != 0) return;
    args.slots[args.asking[item]] = slot;
    if (slot == kNoRow) *args.changed = 1;
  }

  /// The first proposal to a parent, one of those up to `last`.
  __device__ uint32_t first_of(uint32_t parent, uint32_t last) const {
    uint32_t low = 0;
    while (low < last) {
      const uint32_t middle = (low + last) / 2;
      if (args.asked[middle] < parent)
        low = middle + 1;
      else
        last = middle;
    }
    return low;
  }
};

/// Free places of the first rows of the tree.
struct CountPlaces {
  static constexpr uint32_t kLanes = 32;
  const ParallelArgs& args;
  __device__ void run(uint64_t item) const {
    const uint32_t places =
        item < args.island_parents ? Branch{args.tree, static_cast<uint32_t>(item)}.free_places() : 0;
    if (threadIdx.x % 32 == 0) args.tree.offsets[item] = places;
  }
};

/// A root, the smallest row of its island, gets the place of its number. `offsets` are sums by now.
struct AssignIslandSlots {
  static constexpr uint32_t kLanes = 32;
  const ParallelArgs& args;
  __device__ void run(uint64_t item) const {
    const uint32_t number = static_cast<uint32_t>(item);
    const uint32_t* begins = args.tree.offsets;
    uint32_t low = 0;  // the last parent whose places begin at `number` or before
    uint32_t high = args.island_parents;
    while (high - low > 1) {
      const uint32_t middle = (low + high) / 2;
      if (begins[middle] <= number)
        low = middle;
      else
        high = middle;
    }
    const bool there = number < begins[args.island_parents];
    const uint32_t slot = there ? Branch{args.tree, low}.free_place(number - begins[low]) : kNoRow;
    if (threadIdx.x % 32 != 0) return;
    args.parents[item] = args.tree.order[low];
    args.slots[item] = slot;
    if (!there) *args.stuck = 1;
  }
};

/// Roots take the places that they were given.
struct Attach {
  static constexpr uint32_t kLanes = 1;
  const ParallelArgs& args;
  __device__ void run(uint64_t item) const {
    const Args& tree = args.tree;
    const uint32_t root = args.roots[item];
    const uint32_t parent = args.parents[item];
    const uint32_t rank = args.slots[item];
    uint32_t& edge = tree.table.edge(parent, rank);
    args.overwritten_at[args.edges_added + item] = static_cast<uint64_t>(&edge - tree.table.edges);
    args.overwritten[args.edges_added + item] = edge;
    edge = root;
    tree.claims[root] = claim_of(tree.places[parent], rank);
  }
};

struct RestoreEdges {
  static constexpr uint32_t kLanes = 1;
  const ParallelArgs& args;
  __device__ void run(uint64_t item) const {
    args.tree.table.edges[args.overwritten_at[item]] = args.overwritten[item];
  }
};

}  // namespace gannet::cuda::reach
