// The tree from the entry points on the GPU: the steps that kernels share. reachability.cu has the whole.
#pragma once

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

#include <cstdint>

#include "ann.h"
#include "graph/adjacency.h"
#include "traverse/row_key.h"

namespace gannet::cuda::reach {

namespace cg = cooperative_groups;
using Claim = unsigned long long;

constexpr uint32_t kThreads = 256;     // of a block, where the whole device works
constexpr uint32_t kWarps = 32;        // of the block that works alone
constexpr uint32_t kNarrowMax = 1024;  // rows of a piece that one block expands
constexpr uint32_t kRounds = 4096;     // of one block in one launch, some 10 ms

// A claim is (place of the parent + 1) << 8 | rank; entry points have 0.
constexpr Claim kUnclaimed = UINT64_MAX;
constexpr uint32_t kRankBits = 8;
static_assert(ANN_DEGREE_MAX <= 1 << kRankBits);

/// The progress of one block; between launches in device memory.
struct Progress {
  uint32_t head;  // order[head, tail) is not expanded yet
  uint32_t tail;
  uint32_t cursor;         // unreachable rows before this one have been tried in this pass
  uint32_t first;          // unreachable rows before this one are reached by now
  uint32_t parent_cursor;  // rows of `order` before this one have no free place
  uint32_t edges_added;
  uint32_t moved;  // whether this pass has attached a row
};

struct Args {
  EdgeTable table;
  Claim* claims;                // [rows] kUnclaimed: not reached
  uint32_t* places;             // [rows] of reached rows: place in `order`
  uint32_t* order;              // [rows] rows in the order in which they are reached
  uint32_t* offsets;            // [rows + 1] rows that each row of a piece reaches, then their sums
  const uint32_t* unreachable;  // [unreachable_count] ascending
  Progress* progress;
  uint32_t rows;
  uint32_t unreachable_count;
  uint32_t head;  // of the piece that the whole device expands
  uint32_t tail;
  uint32_t*
      events;  // [unreachable_count] event of the row at each place from events_from on; null: there are none
  uint32_t events_from;
};

__device__ Claim claim_of(uint32_t place, uint32_t rank) { return (Claim{place} + 1) << kRankBits | rank; }

/// The list of one row of the tree. One warp.
struct Branch {
  const Args& args;
  uint32_t place;
  cg::thread_block_tile<32> warp = cg::tiled_partition<32>(cg::this_thread_block());
  const uint32_t* edges = args.table.row(args.order[place]);

  __device__ uint32_t target(uint32_t rank) const { return rank < args.table.degree ? edges[rank] : kNoRow; }
  __device__ bool won(uint32_t target, uint32_t rank) const {
    return target != kNoRow && __ldcg(args.claims + target) == claim_of(place, rank);
  }

  __device__ uint32_t event() const {
    return args.events != nullptr ? args.events[place - args.events_from] : kNoRow;
  }

  /// In parallel attachment a row is reached by the event that its label names.
  __device__ void claim() const {
    const uint32_t here = event();
    for (uint32_t rank = warp.thread_rank(); rank < args.table.degree; rank += 32) {
      const uint32_t row = target(rank);
      const Claim mine = claim_of(place, rank);
      if (row != kNoRow && __ldcg(args.claims + row) > mine &&
          (here == kNoRow || __ldcg(args.places + row) == here))
        atomicMin(args.claims + row, mine);
    }
  }

  __device__ uint32_t count() const {
    uint32_t winners = 0;
    for (uint32_t base = 0; base < args.table.degree; base += 32) {
      const uint32_t rank = base + warp.thread_rank();
      winners += __popc(warp.ballot(won(target(rank), rank)));
    }
    return winners;
  }

  /// Appends the rows that it has won to `order`, from `to` on.
  __device__ void append(uint32_t to) const {
    for (uint32_t base = 0; base < args.table.degree; base += 32) {
      const uint32_t rank = base + warp.thread_rank();
      const uint32_t row = target(rank);
      const bool mine = won(row, rank);
      const uint32_t winners = warp.ballot(mine);
      if (mine) {
        const uint32_t at = to + __popc(winners & ((1u << warp.thread_rank()) - 1));
        args.order[at] = row;
        args.places[row] = at;
        if (args.events != nullptr) args.events[at - args.events_from] = event();
      }
      to += __popc(winners);
    }
  }

  /// The place of the list that an unreachable row may take when `others` have taken theirs: the first free
  /// ones, then, from the last on, those that the tree does not use; else kNoRow.
  __device__ uint32_t free_place(uint32_t others = 0) const {
    for (uint32_t base = 0; base < args.table.degree; base += 32) {
      const uint32_t rank = base + warp.thread_rank();
      const uint32_t holes = warp.ballot(rank < args.table.degree && target(rank) == kNoRow);
      if (others < __popc(holes)) return base + __fns(holes, 0, static_cast<int>(others) + 1);
      others -= __popc(holes);
    }
    for (uint32_t base = (args.table.degree - 1) / 32 * 32;; base -= 32) {
      const uint32_t rank = base + warp.thread_rank();
      const uint32_t row = target(rank);
      const uint32_t unused = warp.ballot(row != kNoRow && !won(row, rank));
      if (others < __popc(unused)) return base + __fns(unused, 31, -static_cast<int>(others) - 1);
      others -= __popc(unused);
      if (base == 0) return kNoRow;
    }
  }

  /// The number of free places.
  __device__ uint32_t free_places() const {
    uint32_t places = 0;
    for (uint32_t base = 0; base < args.table.degree; base += 32) {
      const uint32_t rank = base + warp.thread_rank();
      places += __popc(warp.ballot(rank < args.table.degree && !won(target(rank), rank)));
    }
    return places;
  }
};

}  // namespace gannet::cuda::reach
