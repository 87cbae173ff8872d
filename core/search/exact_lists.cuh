// Exact search on the GPU: the lists of candidates that a block keeps for its queries, and how they become answers.
//
//   list     of a query and a slice: the nearest rows found so far, and candidates that came since, in device memory
//   worst    the k-th best of a list, as its last sort has left it
//   bound    of filtered floats: a distance behind which no answer of the query lies, found by any slice
//   share    of a slice: a distance that its share of the k rows is not beyond
//
// A candidate nearer than the k-th best is appended; a list that the next tile might overflow is sorted in shared
// memory and cut to k. Slices of filtered floats share their bounds, so that far fewer pairs are summed.
#pragma once

#include <cooperative_groups.h>

#include "search/exact_launch.h"
#include "traverse/shared_sort_cuda.h"
#include "traverse/walk_steps.cuh"

namespace gannet::cuda {
namespace exact_search {

namespace cg = cooperative_groups;

constexpr uint32_t kSortKeys = 2 * kExactMax;  // keys that a block sorts at once
constexpr uint32_t kMergeThreads = 256;

/// The order of results: by distance, then by id.
struct Nearer {
  const uint64_t* ids;  // [all rows], or null

  __device__ bool operator()(Key a, Key b) const {
    if (ids == nullptr || (a >> 32) != (b >> 32) || a == b) return a < b;
    return ids[row_of(a)] < ids[row_of(b)];
  }
};

/// The threads of a block in teams, each with a list; all wait for each other.
struct TeamSorts {
  uint32_t lane;
  uint32_t lanes;
  __device__ void sync() const { __syncthreads(); }
};

/// The lists of a block's queries over its slice.
template <ExactTile kTile>
struct Candidates {
  static_assert(kTile.rows <= kExactHalfMin && kTile.queries <= kTile.threads);

  struct Shared {
    Key keys[kSortKeys];       // [team, 2 * half] lists while they are sorted
    Key worst[kTile.queries];  // k-th best so far; kNoKey: there are fewer
    uint32_t counts[kTile.queries];
  };

  const ExactArgs& args;
  Shared& shared;
  uint32_t query_begin = blockIdx.x * kTile.queries;
  cg::thread_block block = cg::this_thread_block();

  __device__ uint64_t slot(uint32_t query) const {
    return uint64_t{blockIdx.y} * args.query_count + query_begin + query;
  }
  __device__ Key* list(uint32_t query) const { return args.lists + slot(query) * 2 * args.half; }
  __device__ bool exists(uint32_t query) const { return query_begin + query < args.query_count; }

  /// Goes on where the last launch ended. Queries that do not exist take no candidate.
  __device__ void load() {
    const uint32_t query = threadIdx.x;
    if (query < kTile.queries) {
      const uint32_t count = exists(query) ? args.counts[slot(query)] : 0;
      shared.counts[query] = count;
      shared.worst[query] = !exists(query) ? 0 : count == args.k ? list(query)[count - 1] : kNoKey;
    }
    block.sync();
  }

  /// The k-th best of a query; it stays until room is made.
  __device__ Key worst(uint32_t query) const { return shared.worst[query]; }

  __device__ void consider(uint32_t query, uint32_t row, float distance, Key worst) {
    const Key key = make_key(distance, row);
    if (!Nearer{args.ids}(key, worst) || args.removed.holds(row)) return;
    list(query)[atomicAdd(&shared.counts[query], 1)] = key;
  }

  /// Makes room for another tile. All candidates of the last one have been considered.
  __device__ void make_room() {
    const uint32_t most = 2 * args.half - kTile.rows;
    const bool full = threadIdx.x < kTile.queries && shared.counts[threadIdx.x] > most;
    if (__syncthreads_or(full)) sort_lists(most, 2 * args.half);
  }

  /// Leaves each list sorted and at most k long.
  __device__ void store() { store(2 * args.half); }

 protected:
  __device__ void store(uint32_t width) {
    sort_lists(0, width);
    const uint32_t query = threadIdx.x;
    if (query < kTile.queries && exists(query)) args.counts[slot(query)] = shared.counts[query];
  }

  /// Sorts and cuts lists of more than `most` candidates, a team of threads for each. No list has more than `width`, a
  /// power of two.
  __device__ void sort_lists(uint32_t most, uint32_t width) {
    const uint32_t teams = min(kSortKeys / width, kTile.queries);
    const uint32_t lanes = kTile.threads / teams;
    const uint32_t lane = threadIdx.x % lanes;
    Key* keys = shared.keys + threadIdx.x / lanes * width;
    for (uint32_t first = 0; first < kTile.queries; first += teams) {
      const uint32_t query = first + threadIdx.x / lanes;
      const uint32_t count = shared.counts[query];
      if (!__syncthreads_or(count > most)) continue;

      for (uint32_t i = lane; i < width; i += lanes) keys[i] = i < count ? list(query)[i] : kNoKey;
      block.sync();
      sort_shared(keys, width, TeamSorts{lane, lanes}, 1, Nearer{args.ids});
      const uint32_t kept = min(count, args.k);
      for (uint32_t i = lane; i < kept; i += lanes) list(query)[i] = keys[i];
      if (lane == 0 && exists(query)) {
        shared.counts[query] = kept;
        shared.worst[query] = kept == args.k ? keys[kept - 1] : kNoKey;
        if (args.bounds != nullptr && kept == args.k)
          atomicMin(args.bounds + query_begin + query, static_cast<uint32_t>(keys[kept - 1] >> 32));
      }
      block.sync();
    }
  }
};

/// The same where slices spare each other work: of k nearest rows each slice must have its share, so that none need
/// look beyond the farthest of all shares, nor beyond the k-th best of any. Between two sorts a warp finds such bounds,
/// without sorting, and drops the candidates beyond them.
template <ExactTile kTile>
struct BoundedCandidates : Candidates<kTile> {
  using Base = Candidates<kTile>;
  using Base::args, Base::block, Base::exists, Base::list, Base::query_begin;
  static constexpr uint32_t kWarps = kTile.threads / 32;
  static constexpr uint32_t kThinOut = 64;   // new candidates until a warp looks at a list again
  static constexpr uint32_t kHalvings = 16;  // of the interval in which a bound is looked for
  static constexpr uint32_t kTilesBetween = 8;
  static constexpr uint32_t kSortMin = 128;

  struct Shared : Base::Shared {
    uint32_t bounds[kTile.queries];    // as args.bounds, of all slices as far as this block knows
    uint32_t triggers[kTile.queries];  // candidates with which a list is looked at again
  };

  Shared& shared;
  uint32_t lane = threadIdx.x % 32;
  uint32_t tiles = 0;

  __device__ BoundedCandidates(const ExactArgs& args, Shared& shared) : Base{args, shared}, shared(shared) {}

  __device__ void load() {
    Base::load();
    const uint32_t query = threadIdx.x;
    if (query < kTile.queries) shared.triggers[query] = shared.counts[query] + kThinOut;
    refresh();
    block.sync();
  }

  /// The upper half of a key behind which no row of this query is an answer.
  __device__ uint32_t bound(uint32_t query) const { return shared.bounds[query]; }

  __device__ void consider(uint32_t query, uint32_t row, float distance) {
    const Key key = make_key(distance, row);
    if (upper_half(key) > shared.bounds[query] || args.removed.holds(row)) return;
    list(query)[atomicAdd(&shared.counts[query], 1)] = key;
  }

  __device__ void make_room() {
    const uint32_t most = 2 * args.half - kTile.rows;
    bool full = false;  // a list of this warp, which alone writes its count until the next barrier
    for (uint32_t query = threadIdx.x / 32; query < kTile.queries; query += kWarps) {
      if (exists(query) && shared.counts[query] >= shared.triggers[query]) thin_out(query);
      full = full || shared.counts[query] > most;
    }
    ++tiles;
    if (tiles % kTilesBetween == 0 || (tiles & (tiles - 1)) == 0) {
      block.sync();
      refresh();
    }
    if (__syncthreads_or(full)) Base::sort_lists(most, 2 * args.half);
  }

  __device__ void store() {
    for (uint32_t query = threadIdx.x / 32; query < kTile.queries; query += kWarps) {
      if (exists(query) && shared.counts[query] > args.k) thin_out(query);
    }
    block.sync();
    uint32_t width = kSortMin;
    while (__syncthreads_or(threadIdx.x < kTile.queries && shared.counts[threadIdx.x] > width)) width *= 2;
    Base::store(width);
  }

 private:
  static __device__ uint32_t upper_half(Key key) { return static_cast<uint32_t>(key >> 32); }

  /// Learns of other slices.
  __device__ void refresh() {
    const uint32_t query = threadIdx.x;
    if (query >= kTile.queries || !exists(query)) return;
    uint32_t farthest = 0;
    for (uint32_t slice = 0; slice < args.slices; ++slice) farthest = max(farthest, share_of(slice, query));
    shared.bounds[query] =
        min(min(farthest, __ldcg(args.bounds + query_begin + query)), upper_half(shared.worst[query]));
  }

  __device__ uint32_t* share_at(uint32_t slice, uint32_t query) const {
    return args.shares + uint64_t{slice} * args.query_count + query_begin + query;
  }
  __device__ uint32_t share_of(uint32_t slice, uint32_t query) const {
    return __ldcg(share_at(slice, query));
  }

  /// By one warp.
  __device__ void thin_out(uint32_t query) {
    Key* const keys = list(query);
    const uint32_t count = shared.counts[query];
    uint32_t low = UINT32_MAX;
    uint32_t high = 0;
    for (uint32_t i = lane; i < count; i += 32) {
      low = min(low, upper_half(keys[i]));
      high = max(high, upper_half(keys[i]));
    }
    low = __reduce_min_sync(kAllLanes, low);
    high = __reduce_max_sync(kAllLanes, high);
    const uint32_t known = share_of(blockIdx.y, query);
    const uint32_t share = min(known, limit_of(keys, count, args.share_rank, low, high));
    const uint32_t worst = limit_of(keys, count, args.k, low, high);
    uint32_t farthest = share;
    for (uint32_t slice = lane; slice < args.slices; slice += 32)
      if (slice != blockIdx.y) farthest = max(farthest, share_of(slice, query));
    farthest = __reduce_max_sync(kAllLanes, farthest);
    const uint32_t bound = min(min(shared.bounds[query], worst), farthest);
    const uint32_t kept = drop_beyond(bound, keys, count);
    if (lane == 0) {
      if (share < known) __stcg(share_at(blockIdx.y, query), share);
      if (worst != UINT32_MAX) atomicMin(args.bounds + query_begin + query, worst);
      shared.bounds[query] = bound;
      shared.counts[query] = kept;
      shared.triggers[query] = kept + kThinOut;
    }
    __syncwarp();
  }

  /// A distance that `rank` of the candidates are not beyond, close to the least; UINT32_MAX where they are fewer.
  __device__ uint32_t limit_of(const Key* keys, uint32_t count, uint32_t rank, uint32_t low,
                               uint32_t high) const {
    if (count < rank) return UINT32_MAX;
    for (uint32_t turn = 0; turn < kHalvings && low < high; ++turn) {
      const uint32_t middle = low + (high - low) / 2;
      uint32_t near = 0;
      for (uint32_t i = lane; i < count; i += 32) near += upper_half(keys[i]) <= middle ? 1 : 0;
      if (__reduce_add_sync(kAllLanes, near) >= rank)
        high = middle;
      else
        low = middle + 1;
    }
    return high;
  }

  /// Moves the candidates that are not beyond `bound` to the front; returns how many they are.
  __device__ uint32_t drop_beyond(uint32_t bound, Key* keys, uint32_t count) const {
    uint32_t kept = 0;
    for (uint32_t first = 0; first < count; first += 32) {
      const Key key = first + lane < count ? keys[first + lane] : kNoKey;
      const bool stays = first + lane < count && upper_half(key) <= bound;
      const uint32_t staying = __ballot_sync(kAllLanes, stays);
      if (stays) keys[kept + __popc(staying & ((1u << lane) - 1))] = key;
      kept += __popc(staying);
      __syncwarp();
    }
    return kept;
  }
};

/// Merges the lists of a query, one a slice, and writes the results.
struct MergeLists {
  using Args = ExactArgs;
  static constexpr uint32_t kThreads = kMergeThreads;

  struct Shared {
    Key keys[kExactMax];  // [half] the best so far, ascending
  };

  const ExactArgs& args;
  Shared& shared;
  cg::thread_block block = cg::this_thread_block();

  __device__ void run() {
    for (uint32_t i = threadIdx.x; i < args.half; i += kThreads) shared.keys[i] = kNoKey;
    block.sync();
    for (uint32_t slice = 0; slice < args.slices; ++slice) merge(slice);
    for (uint32_t i = threadIdx.x; i < args.k; i += kThreads) {
      const Key key = shared.keys[i];
      const uint64_t place = uint64_t{blockIdx.x} * args.k + i;
      args.out_rows[place] = row_of(key);  // kNoKey gives UINT32_MAX
      args.out_distances[place] = key == kNoKey ? INFINITY : distance_of(key);
    }
  }

  /// Of two ascending lists, one taken backwards, the lesser at each place are the nearest of both,
  /// and rise and then fall: half a bitonic sort puts them in order.
  __device__ void merge(uint32_t slice) {
    const uint64_t slot = uint64_t{slice} * args.query_count + blockIdx.x;
    const Key* list = args.lists + slot * 2 * args.half;
    const uint32_t count = args.counts[slot];
    if (count == 0) return;
    for (uint32_t i = threadIdx.x; i < args.half; i += kThreads) {
      const uint32_t other = args.half - 1 - i;
      if (other < count && Nearer{args.ids}(list[other], shared.keys[i])) shared.keys[i] = list[other];
    }
    block.sync();
    merge_runs(shared.keys, args.half, args.half, BlockSorts{}, Nearer{args.ids});
  }
};

}  // namespace exact_search
}  // namespace gannet::cuda
