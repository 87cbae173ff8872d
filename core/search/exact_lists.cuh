// Exact search on the GPU: the lists of candidates that a block keeps for its queries, and how they become answers.
//
//   list     of a query and a slice: the nearest rows found so far, and candidates that came since, in device memory
//   worst    the k-th best of a list, as its last sort has left it
//
// A candidate nearer than the k-th best is appended; a list that the next tile might overflow is sorted in shared
// memory and cut to k.
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
constexpr uint32_t kFewSlices = 8;             // whose lists are merged one after another
constexpr uint32_t kManySlicesThreads = 1024;  // of a block that merges more

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

/// Sorts keys in shared memory, of which there is room for the next power of two, ascending. All threads.
__device__ inline void sort_keys(Key* keys, uint32_t count, const uint64_t* ids) {
  uint32_t width = 1;
  while (width < count) width *= 2;
  for (uint32_t i = count + threadIdx.x; i < width; i += blockDim.x) keys[i] = kNoKey;
  __syncthreads();
  sort_shared(keys, width, BlockSorts{}, 1, Nearer{ids});
}

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
  __device__ Key* list(uint32_t query) const { return args.lists + slot(query) * 2 * args.list_half; }
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
    const uint32_t most = 2 * args.list_half - kTile.rows;
    const bool full = threadIdx.x < kTile.queries && shared.counts[threadIdx.x] > most;
    if (__syncthreads_or(full)) sort_lists(most, 2 * args.list_half);
  }

  /// Leaves each list sorted and at most k long.
  __device__ void store() {
    sort_lists(0, 2 * args.list_half);
    const uint32_t query = threadIdx.x;
    if (query < kTile.queries && exists(query)) args.counts[slot(query)] = shared.counts[query];
  }

 private:
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
          args.bounds[query_begin + query] = static_cast<uint32_t>(keys[kept - 1] >> 32);
      }
      block.sync();
    }
  }
};

/// Merges the lists of a query, one a slice, and writes the results.
///
/// Where slices are many, few of their rows are answers. At least k rows are not beyond the `wanted`-th least of all
/// slices' `rank`-th keys, where wanted times rank is k or more: those not beyond it, some 1.7 k, are sorted
/// together. To merge one list after another took 0.45 ms for one query of 264 slices, most of its time; that is done
/// where slices are few, or where so many rows of some slices are not beyond that they do not fit.
template <uint32_t kThreadsOfBlock>
struct MergeLists {
  using Args = ExactArgs;
  static constexpr uint32_t kThreads = kThreadsOfBlock;
  static constexpr uint32_t kTeam = 8;  // threads that read a list together

  struct Shared {
    Key keys[kSortKeys];  // [half] the best so far, ascending; or keys of all slices
    uint32_t count;
  };

  const ExactArgs& args;
  Shared& shared;
  cg::thread_block block = cg::this_thread_block();

  __device__ void run() {
    if (args.slices <= kFewSlices || args.slices > kSortKeys || !sort_together()) {
      for (uint32_t i = threadIdx.x; i < args.list_half; i += kThreads) shared.keys[i] = kNoKey;
      block.sync();
      for (uint32_t slice = 0; slice < args.slices; ++slice) merge(slice);
    }
    for (uint32_t i = threadIdx.x; i < args.k; i += kThreads) {
      const Key key = shared.keys[i];
      const uint64_t place = uint64_t{blockIdx.x} * args.k + i;
      args.out_rows[place] = row_of(key);  // kNoKey gives UINT32_MAX
      args.out_distances[place] = key == kNoKey ? INFINITY : distance_of(key);
    }
  }

 private:
  __device__ uint64_t slot(uint32_t slice) const { return uint64_t{slice} * args.query_count + blockIdx.x; }
  __device__ const Key* list(uint32_t slice) const { return args.lists + slot(slice) * 2 * args.list_half; }

  /// False where the keys that count do not fit. All threads.
  __device__ bool sort_together() {
    const Key bound = find_bound();
    if (threadIdx.x == 0) shared.count = 0;
    block.sync();
    for (uint32_t slice = threadIdx.x / kTeam; slice < args.slices; slice += kThreads / kTeam)
      take_until(bound, slice);
    block.sync();
    const uint32_t count = shared.count;
    if (count > kSortKeys) return false;
    sort_keys(shared.keys, count, args.ids);
    for (uint32_t i = count + threadIdx.x; i < args.k; i += kThreads) shared.keys[i] = kNoKey;
    block.sync();
    return true;
  }

  /// Where k is 1,000, a rank of 2 k / slices instead of 1.5 leaves more keys not beyond the bound than fit: two
  /// queries then took .74 ms instead of .43.
  __device__ Key find_bound() {
    const uint32_t rank = (3 * args.k / 2 + args.slices - 1) / args.slices;
    const uint32_t wanted = (args.k + rank - 1) / rank;
    for (uint32_t slice = threadIdx.x; slice < args.slices; slice += kThreads)
      shared.keys[slice] = args.counts[slot(slice)] >= rank ? list(slice)[rank - 1] : kNoKey;
    block.sync();
    sort_keys(shared.keys, args.slices, args.ids);
    const Key bound = shared.keys[wanted - 1];
    block.sync();
    return bound;
  }

  __device__ void take_until(Key bound, uint32_t slice) {
    const uint32_t count = args.counts[slot(slice)];
    for (uint32_t i = threadIdx.x % kTeam; i < count; i += kTeam) {
      const Key key = list(slice)[i];
      if (Nearer{args.ids}(bound, key)) return;
      const uint32_t to = atomicAdd(&shared.count, 1);
      if (to < kSortKeys) shared.keys[to] = key;
    }
  }

  /// Of two ascending lists, one taken backwards, the lesser at each place are the nearest of both,
  /// and rise and then fall: half a bitonic sort puts them in order.
  __device__ void merge(uint32_t slice) {
    const uint32_t count = args.counts[slot(slice)];
    if (count == 0) return;
    for (uint32_t i = threadIdx.x; i < args.list_half; i += kThreads) {
      const uint32_t other = args.list_half - 1 - i;
      if (other < count && Nearer{args.ids}(list(slice)[other], shared.keys[i]))
        shared.keys[i] = list(slice)[other];
    }
    block.sync();
    merge_runs(shared.keys, args.list_half, args.list_half, BlockSorts{}, Nearer{args.ids});
  }
};

}  // namespace exact_search
}  // namespace gannet::cuda
