// GNND on the GPU, step by step: the kernels of a round. nn_descent.cu describes the whole, its
// symbols and the measurements; nn_descent_rounds.cuh is Algorithm 1.
//
// `Update` is how a sample's nearest acquaintance gets into its list. The library has one way,
// OfferAndMerge; the ways of the paper, which the test of its figures measures, are other types with
// the same functions (tests/gpu/gnnd_figures.cu).
#pragma once

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

#include <algorithm>
#include <cstdint>

#include "ann.h"
#include "base/random.h"
#include "dataset/code_fragments_cuda.h"
#include "distance/lanes_cuda.h"
#include "knn/nn_descent.h"
#include "traverse/row_key.h"
#include "traverse/warp_sort_cuda.h"

namespace gannet::cuda::descent {

namespace cg = cooperative_groups;

constexpr uint32_t kWarpThreads = 256;  // of blocks whose warps work alone
constexpr uint32_t kItemThreads = 256;  // of blocks with a thread for each item
constexpr uint64_t kInitStream = 1;     // as in nn_descent.cpp
constexpr uint64_t kReverseStream = 2;
constexpr uint32_t kListRegisters = ANN_DEGREE_MAX / 32;  // of a list, or a window of one, a key each
constexpr uint32_t kWindow = 32 * kListRegisters;
constexpr uint32_t kOffers = kDescentOffers;  // one for each lane

enum Kind : uint32_t { kNew = 0, kOld = 1 };

struct Args {
  CodesView codes;
  uint64_t* keys;     // [rows, k] ascending
  uint64_t* worst;    // [rows] the last key of each list
  uint32_t* locks;    // [rows] 1: a warp is inserting
  uint64_t* offers;   // [rows, kOffers] keys offered in this slice
  uint32_t* offered;  // [rows] how many; more than kOffers: the others are in the list
  uint32_t* samples;  // [NEW, OLD][rows, 2 p] first a row's own in p places, then all, ascending
  uint32_t* counts;   // [NEW, OLD][rows] of reverse candidates, and a last one that is 0
  uint64_t* begins;   // [NEW, OLD][rows] of reverse candidates in `sources`, and their end
  uint32_t* sources;  // [2 rows p]
  unsigned long long* fresh_total;  // NEW entries of all lists
  uint32_t* neighbors;              // [rows, k]
  uint32_t* distances;              // [rows, k], or null
  TwoSets sets;
  uint64_t seed;
  uint32_t round;
  uint32_t first_row;  // of this launch
  uint32_t launch_rows;
  uint32_t rows;
  uint32_t k;
  uint32_t p;
};

__device__ inline uint64_t global_warp() { return (uint64_t{blockIdx.x} * blockDim.x + threadIdx.x) / 32; }
__device__ inline uint64_t global_thread() { return uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; }

/// Keys pass between multiprocessors while a round runs, so they are read and written past the first
/// cache, which is not kept equal.
__device__ inline uint64_t read_key(const uint64_t* key) {
  return __ldcg(reinterpret_cast<const unsigned long long*>(key));
}
__device__ inline void write_key(uint64_t* key, uint64_t value) {
  __stcg(reinterpret_cast<unsigned long long*>(key), value);
}

/// Distance of two rows by one warp.
__device__ inline uint32_t pair_distance(const CodesView& codes, uint32_t a, uint32_t b, const Warp& warp) {
  if (!codes.wide()) {
    const uint32_t* left = reinterpret_cast<const uint32_t*>(codes.row(a));
    const uint32_t* right = reinterpret_cast<const uint32_t*>(codes.row(b));
    uint32_t sum = 0;
    for (uint32_t i = warp.thread_rank(); i < codes.stride / 4; i += 32) sum = __dp4a(left[i], right[i], sum);
    return codes.squares[a] + codes.squares[b] - 2 * cg::reduce(warp, sum, cg::plus<uint32_t>());
  }
  const float* left = reinterpret_cast<const float*>(codes.row(a));
  const float* right = reinterpret_cast<const float*>(codes.row(b));
  float sums[2] = {0, 0};
  for (uint32_t first = 0; first < codes.stride / 4; first += LaneSums::kLanes) {
    for (uint32_t half = 0; half < 2; ++half) {
      const uint32_t column = first + 32 * half + warp.thread_rank();
      if (column < codes.stride / 4)
        sums[half] = __fadd_rn(sums[half], LaneSums::product<false>(right[column], left[column]));
    }
  }
  sums[0] = __fadd_rn(sums[0], warp.shfl_xor(sums[0], 16));
  sums[1] = __fadd_rn(sums[1], warp.shfl_xor(sums[1], 16));
  float sum = __fadd_rn(sums[0], sums[1]);
  for (uint32_t half = 8; half != 0; half /= 2) sum = __fadd_rn(sum, warp.shfl_xor(sum, half));
  return __float_as_uint(sum);
}

/// InsertIntoNNList, by one warp: lane l holds entries l, l + 32, ... of the list.
struct InsertIntoList {
  const Args& args;
  const Warp& warp;

  /// While other warps may insert into the same list.
  __device__ void insert(uint32_t row, uint64_t key) {
    if (!wants(row, key)) return;
    if (warp.thread_rank() == 0) {
      while (atomicCAS(&args.locks[row], 0, 1) != 0) __nanosleep(32);
      __threadfence();
    }
    warp.sync();
    insert_alone(row, key);
    warp.sync();
    if (warp.thread_rank() == 0) {
      __threadfence();
      atomicExch(&args.locks[row], 0);
    }
  }

  /// A look without the lock: a row that is in the list now was offered before.
  __device__ bool wants(uint32_t row, uint64_t key) const {
    const uint64_t* list = args.keys + uint64_t{row} * args.k;
    bool known = false;
    for (uint32_t i = warp.thread_rank(); i < args.k; i += 32)
      known |= (read_key(list + i) | RowKey::kFlag) == key;
    return !warp.any(known);
  }

  /// While no other warp inserts into the list. One neighbour always comes with one distance, so an
  /// equal key, flag aside, is a repetition. Longer lists are moved in windows, the last first.
  __device__ void insert_alone(uint32_t row, uint64_t key) {
    if (args.k > kWindow && !wants(row, key)) return;
    for (uint32_t begin = (args.k - 1) / kWindow * kWindow; !insert_from(begin, row, key);) begin -= kWindow;
  }

  /// Moves the entries of the window at `begin` that are larger than the key, and puts in front of them the key, or the
  /// last entry before the window where that is larger. Returns whether no earlier entry moves.
  __device__ bool insert_from(uint32_t begin, uint32_t row, uint64_t key) {
    uint64_t* list = args.keys + uint64_t{row} * args.k + begin;
    const uint32_t count = args.k - begin;  // a window's and those behind it
    uint64_t entries[kListRegisters];
    uint32_t place = 0;
    bool known = false;
#pragma unroll
    for (uint32_t r = 0; r < kListRegisters; ++r) {
      const uint32_t i = 32 * r + warp.thread_rank();
      entries[r] = RowKey::kNone;
      if (32 * r >= count) continue;
      if (i < count) entries[r] = read_key(list + i);
      known |= (entries[r] | RowKey::kFlag) == key;
      place += __popc(warp.ballot(entries[r] < (key & ~RowKey::kFlag)));
    }
    if (warp.any(known) || place >= count) return true;
    const uint64_t ahead = begin == 0 ? 0 : read_key(list - 1);
#pragma unroll
    for (uint32_t r = 0; r < kListRegisters; ++r) {
      if (32 * r >= count) break;
      const uint32_t i = 32 * r + warp.thread_rank();
      uint64_t before = warp.shfl_up(entries[r], 1);
      const uint64_t carried = r == 0 ? ahead : warp.shfl(entries[r == 0 ? 0 : r - 1], 31);
      if (warp.thread_rank() == 0) before = carried;
      if (i < place || i >= count) continue;
      const uint64_t value = max(before, key);
      write_key(list + i, value);
      if (i == count - 1) write_key(args.worst + row, value);
    }
    return place != 0 || ahead < key;
  }
};

/// Writes sorted keys as a list of a row, each row once: an OLD key stands before the same row's NEW one.
template <uint32_t kRegisters>
__device__ void write_distinct(const Args& args, uint64_t row, const uint64_t (&keys)[kRegisters],
                               const Warp& warp) {
  uint32_t count = 0;
  uint64_t carried = RowKey::kNone;
#pragma unroll
  for (uint32_t r = 0; r < kRegisters; ++r) {
    uint64_t before = warp.shfl_up(keys[r], 1);
    if (warp.thread_rank() == 0) before = carried;
    carried = warp.shfl(keys[r], 31);
    const bool keeps = keys[r] != RowKey::kNone && (keys[r] | RowKey::kFlag) != (before | RowKey::kFlag);
    const uint32_t keeping = warp.ballot(keeps);
    const uint32_t place = count + __popc(keeping & ((1u << warp.thread_rank()) - 1));
    if (keeps) args.keys[row * args.k + place] = keys[r];
    if (keeps && place == args.k - 1) args.worst[row] = keys[r];
    count += __popc(keeping);
  }
}

/// Lines 1 to 5: p random rows each, all NEW. A warp for each row; lane l draws the l-th and (l + 32)-th.
struct StartWithRandomRows {
  static constexpr uint32_t kThreads = kWarpThreads;
  struct Shared {};
  const Args& args;
  Shared& shared;
  Warp warp = cg::tiled_partition<32>(cg::this_thread_block());

  __device__ void run() {
    const uint64_t row = global_warp();
    if (row >= args.rows) return;
    const uint32_t self = static_cast<uint32_t>(row);
    uint64_t keys[2] = {RowKey::kNone, RowKey::kNone};
    for (uint32_t i = 0; i < args.p; ++i) {
      // Drawn from the other rows: numbers from `self` on stand for the next row.
      const uint32_t drawn =
          static_cast<uint32_t>(random_below(args.rows - 1, args.seed, kInitStream, row * args.p + i));
      const uint32_t other = drawn + (drawn >= self ? 1 : 0);
      const uint32_t distance = pair_distance(args.codes, self, other, warp);
      if (i % 32 == warp.thread_rank()) keys[i / 32] = RowKey::of(distance, other, true);
    }
    sort_ascending(keys);
    write_distinct(args, row, keys, warp);
  }
};

/// Algorithm 3, lines 1 to 9: of two sets. A warp for each row; lane l has the keys l, l + 32, ...
template <uint32_t kRegisters>
struct StartWithTwoSets {
  static constexpr uint32_t kThreads = kWarpThreads;
  struct Shared {};
  const Args& args;
  Shared& shared;
  Warp warp = cg::tiled_partition<32>(cg::this_thread_block());

  __device__ void run() {
    const uint64_t item = global_warp();
    if (item >= args.launch_rows) return;
    const uint64_t row = args.first_row + item;
    const uint32_t self = static_cast<uint32_t>(row);
    uint64_t keys[kRegisters];
#pragma unroll
    for (uint32_t r = 0; r < kRegisters; ++r) {
      keys[r] = RowKey::kNone;
      for (uint32_t i = 32 * r; i < min(args.k, 32 * (r + 1)); ++i) {
        const bool kept = i < args.sets.kept;
        const uint32_t other =
            kept ? args.sets.neighbors[row * args.sets.kept + i]
                 : args.sets.drawn(self, i - args.sets.kept, args.k - args.sets.kept, args.rows, args.seed);
        if (other == kNoRow) continue;
        const uint32_t distance = pair_distance(args.codes, self, other, warp);
        if (i % 32 == warp.thread_rank()) keys[r] = RowKey::of(distance, other, !kept);
      }
    }
    sort_ascending(keys);
    write_distinct(args, row, keys, warp);
  }
};

/// Line 8, a row's own part: its first p NEW and first p OLD entries; the NEW ones turn OLD (line 32:
/// sampled ones only). Counts all NEW entries, and for each row the rows that sampled it. A warp for
/// each row.
struct SampleOwn {
  static constexpr uint32_t kThreads = kWarpThreads;
  struct Shared {
    uint32_t fresh;
  };
  const Args& args;
  Shared& shared;
  cg::thread_block block = cg::this_thread_block();
  Warp warp = cg::tiled_partition<32>(cg::this_thread_block());

  __device__ void run() {
    if (threadIdx.x == 0) shared.fresh = 0;
    block.sync();
    const uint64_t row = global_warp();
    const uint32_t fresh = row < args.rows ? sample(row) : 0;
    if (warp.thread_rank() == 0) atomicAdd(&shared.fresh, fresh);
    block.sync();
    if (threadIdx.x == 0) atomicAdd(args.fresh_total, shared.fresh);
  }

  __device__ uint32_t sample(uint64_t row) {
    uint64_t* list = args.keys + row * args.k;
    uint32_t seen[2] = {0, 0};
    const uint32_t lanes_before = (1u << warp.thread_rank()) - 1;
    for (uint32_t first = 0; first < args.k; first += 32) {
      const uint32_t i = first + warp.thread_rank();
      const uint64_t key = i < args.k ? list[i] : RowKey::kNone;
      const bool is_fresh = key != RowKey::kNone && RowKey::flag(key);
      const bool is_known = key != RowKey::kNone && !is_fresh && meets(row, RowKey::row(key));
      const uint32_t fresh = warp.ballot(is_fresh);
      const uint32_t known = warp.ballot(is_known);
      const uint32_t same = is_fresh ? fresh : known;
      const uint32_t place = (is_fresh ? seen[kNew] : seen[kOld]) + __popc(same & lanes_before);
      if ((is_fresh || is_known) && place < args.p) {
        take(is_fresh ? kNew : kOld, row, place, RowKey::row(key));
        if (is_fresh) list[i] = key & ~RowKey::kFlag;
      }
      seen[kNew] += __popc(fresh);
      seen[kOld] += __popc(known);
    }
#pragma unroll
    for (uint32_t kind = 0; kind < 2; ++kind) {
      for (uint32_t i = seen[kind] + warp.thread_rank(); i < args.p; i += 32)
        args.samples[(uint64_t{kind} * args.rows + row) * 2 * args.p + i] = kNoRow;
    }
    return seen[kNew];
  }

  /// Whether an OLD entry of a row may meet its NEW ones.
  __device__ bool meets(uint64_t row, uint32_t known) const {
    return args.sets.first_rows == 0 || args.sets.same(static_cast<uint32_t>(row), known);
  }

  __device__ void take(Kind kind, uint64_t row, uint32_t place, uint32_t target) {
    args.samples[(uint64_t{kind} * args.rows + row) * 2 * args.p + place] = target;
    atomicAdd(&args.counts[uint64_t{kind} * args.rows + target], 1);
  }
};

/// Section 4.1, the reverse part, collected: `counts` falls back to zero. A thread for each sample of
/// both kinds, p of them for a row of `samples`.
struct ScatterReverse {
  static constexpr uint32_t kThreads = kItemThreads;
  struct Shared {};
  const Args& args;
  Shared& shared;

  __device__ void run() {
    const uint32_t lists = kThreads / args.p;
    const uint64_t list = uint64_t{blockIdx.x} * lists + threadIdx.x / args.p;
    if (threadIdx.x >= lists * args.p || list >= 2 * uint64_t{args.rows}) return;
    const uint32_t target = args.samples[list * 2 * args.p + threadIdx.x % args.p];
    if (target == kNoRow) return;
    const uint64_t kind_begin = list < args.rows ? 0 : args.rows;
    const uint32_t place = atomicSub(&args.counts[kind_begin + target], 1) - 1;
    args.sources[args.begins[kind_begin + target] + place] = static_cast<uint32_t>(list - kind_begin);
  }
};

/// Section 4.1, the end: a row's own samples of a kind, and reverse ones up to 2 p in all; those with
/// the smallest hash where there are more. Sorted, without repetitions. A warp for each row and kind;
/// lane l has places l, l + 32, ...
template <uint32_t kSide>
struct GatherSamples {
  static constexpr uint32_t kThreads = kWarpThreads;
  static constexpr uint32_t kRegisters = kSide / 32;
  struct Shared {};
  const Args& args;
  Shared& shared;
  Warp warp = cg::tiled_partition<32>(cg::this_thread_block());
  uint32_t lane = warp.thread_rank();
  uint32_t rows[kRegisters];

  __device__ void run() {
    const uint64_t list = global_warp();
    if (list >= 2 * uint64_t{args.rows}) return;
    uint32_t* samples = args.samples + list * 2 * args.p;
    uint32_t own = 0;
#pragma unroll
    for (uint32_t r = 0; r < kRegisters; ++r) {
      const uint32_t i = 32 * r + lane;
      rows[r] = i < args.p ? samples[i] : kNoRow;
      own += __popc(warp.ballot(rows[r] != kNoRow));
    }
    add_reverse(list, own);
    sort_ascending(rows);
    write_distinct(samples);
  }

  __device__ void add_reverse(uint64_t list, uint32_t own) {
    const uint32_t* sources = args.sources + args.begins[list];
    const uint64_t count = args.begins[list + 1] - args.begins[list];
    const uint32_t most = 2 * args.p - own;
    if (count > most) return add_chosen(list, sources, count, most);
#pragma unroll
    for (uint32_t r = 0; r < kRegisters; ++r) {
      const uint32_t i = 32 * r + lane;
      if (i >= own && i - own < count) rows[r] = sources[i - own];
    }
  }

  /// The candidates with the `most` smallest hashes; ties go by the row. Their
  /// complements are sorted, so that those that are kept come to stand behind the row's own.
  __device__ void add_chosen(uint64_t list, const uint32_t* sources, uint64_t count, uint32_t most) {
    uint64_t kept[kRegisters];
    fetch(kept, list, sources, 0, count);
    sort_ascending(kept);
    for (uint64_t first = kSide; first < count; first += kSide) {
      uint64_t all[2 * kRegisters];
      fetch(reinterpret_cast<uint64_t(&)[kRegisters]>(all), list, sources, first, count);
#pragma unroll
      for (uint32_t r = 0; r < kRegisters; ++r) all[kRegisters + r] = kept[r];
      sort_ascending(all);
#pragma unroll
      for (uint32_t r = 0; r < kRegisters; ++r) kept[r] = all[kRegisters + r];
    }
#pragma unroll
    for (uint32_t r = 0; r < kRegisters; ++r) {
      if (32 * r + lane >= kSide - most) rows[r] = static_cast<uint32_t>(~kept[r]);
    }
  }

  __device__ void fetch(uint64_t (&hashes)[kRegisters], uint64_t list, const uint32_t* sources,
                        uint64_t first, uint64_t count) const {
    const bool old = list >= args.rows;
    const uint64_t row = old ? list - args.rows : list;
    const uint64_t stream = kReverseStream + (uint64_t{2 * args.round + (old ? 1 : 0)} << 8);
#pragma unroll
    for (uint32_t r = 0; r < kRegisters; ++r) {
      const uint64_t i = first + 32 * r + lane;
      hashes[r] = 0;
      if (i >= count) continue;
      const uint64_t hash = random_word(args.seed, stream, row * args.rows + sources[i]);
      hashes[r] = ~(hash >> 32 << 32 | sources[i]);
    }
  }

  __device__ void write_distinct(uint32_t* samples) {
    uint32_t count = 0;
    uint32_t last = kNoRow;
#pragma unroll
    for (uint32_t r = 0; r < kRegisters; ++r) {
      uint32_t before = warp.shfl_up(rows[r], 1);
      if (lane == 0) before = last;
      const bool keeps = rows[r] != kNoRow && (rows[r] != before || (r == 0 && lane == 0));
      const uint32_t keeping = warp.ballot(keeps);
      if (keeps) samples[count + __popc(keeping & ((1u << lane) - 1))] = rows[r];
      count += __popc(keeping);
      last = warp.shfl(rows[r], 31);
    }
    for (uint32_t i = count + lane; i < 2 * args.p; i += 32) samples[i] = kNoRow;
  }
};

/// InsertIntoNNList for up to 32 keys at once, one in each lane: list and keys, both ascending, become the k
/// smallest of their union. Each key counts the keys before it. By one warp, alone with the list.
struct MergeIntoList {
  const Args& args;
  const Warp& warp;
  uint32_t lane = warp.thread_rank();

  /// `copy`: shared memory for k keys.
  __device__ void merge(uint64_t row, uint64_t unsorted, uint64_t* copy) {
    uint64_t* list = args.keys + row * args.k;
    for (uint32_t i = lane; i < args.k; i += 32) copy[i] = read_key(list + i);
    uint64_t keys[1] = {unsorted};
    sort_ascending(keys);
    const uint64_t key = keys[0];
    const uint64_t before = warp.shfl_up(key, 1);
    warp.sync();

    // An equal key, flag aside, is a repetition; and so is a key like the one before it.
    const uint32_t place = count_below(copy, key & ~RowKey::kFlag);
    const bool enters = key != RowKey::kNone && (lane == 0 || key != before) && place < args.k &&
                        (copy[place] | RowKey::kFlag) != key;
    const uint32_t entering = warp.ballot(enters);
    if (entering == 0) return;
    if (enters) write(row, place + __popc(entering & below(lane)), key);
    for (uint32_t first = 0; first < args.k; first += 32) {
      const uint32_t moves = __popc(entering & below(count_places_to(place, first + lane)));
      if (moves != 0 && first + lane < args.k) write(row, first + lane + moves, copy[first + lane]);
    }
  }

  __device__ void write(uint64_t row, uint32_t place, uint64_t key) {
    if (place >= args.k) return;
    write_key(args.keys + row * args.k + place, key);
    if (place == args.k - 1) write_key(args.worst + row, key);
  }

  static __device__ uint32_t below(uint32_t bit) { return bit >= 32 ? ~0u : (1u << bit) - 1; }

  /// Keys of the list that are smaller than `bound`.
  __device__ uint32_t count_below(const uint64_t* keys, uint64_t bound) const {
    uint32_t count = 0;
    for (uint32_t step = 1u << (31 - __clz(args.k)); step != 0; step /= 2) {
      if (count + step <= args.k && keys[count + step - 1] < bound) count += step;
    }
    return count;
  }

  /// Lanes whose place, which ascends with them, is at most `most`.
  __device__ uint32_t count_places_to(uint32_t place, uint32_t most) const {
    uint32_t count = 0;
#pragma unroll
    for (uint32_t step = 16; step != 0; step /= 2)
      count += warp.shfl(place, count + step - 1) <= most ? step : 0;
    return count + (warp.shfl(place, count) <= most ? 1 : 0);
  }
};

/// The offers of a slice enter. A warp for each row.
struct MergeOffers {
  static constexpr uint32_t kThreads = 128;
  static constexpr uint32_t kBlocks = 16;
  struct Shared {};
  /// Beyond that: the list of each warp's row.
  static uint32_t shared_bytes(uint32_t k) { return kThreads / 32 * k * sizeof(uint64_t); }
  const Args& args;
  Shared& shared;
  Warp warp = cg::tiled_partition<32>(cg::this_thread_block());
  uint32_t lane = threadIdx.x % 32;

  __device__ void run() {
    const uint64_t row = global_warp();
    if (row >= args.rows) return;
    const uint32_t count = min(args.offered[row], kOffers);
    if (count == 0) return;
    warp.sync();
    if (lane == 0) args.offered[row] = 0;
    extern __shared__ uint64_t lists[];
    MergeIntoList list{args, warp};
    list.merge(row, lane < count ? args.offers[row * kOffers + lane] : RowKey::kNone,
               lists + threadIdx.x / 32 * args.k);
  }
};

/// How the library inserts the keys found: keys that beat a list's last one go to the row's places, and
/// a warp merges them when the slice is over; a key that finds no place is inserted at once.
struct OfferAndMerge {
  static constexpr bool kAllPairs = false;
  static constexpr uint32_t kSamplesMost = 64;
  static constexpr uint32_t kBlocks = 4;          // of CrossMatch on a multiprocessor
  static constexpr uint32_t kOffersAtFirst = 16;  // to a row in a first slice, were all accepted
  struct Memory {};
  using Before = void;
  using After = MergeOffers;

  /// By all lanes, each for its own row or kNoRow.
  static __device__ void give(const Args& args, const Warp& warp, uint32_t row, uint64_t key) {
    bool no_place = false;
    if (row != kNoRow) {
      const uint32_t place = atomicAdd(&args.offered[row], 1);
      no_place = place >= kOffers;
      if (!no_place) args.offers[uint64_t{row} * kOffers + place] = key;
    }
    InsertIntoList list{args, warp};
    for (uint32_t lanes = warp.ballot(no_place); lanes != 0; lanes &= lanes - 1) {
      const uint32_t turn = __ffs(lanes) - 1;
      list.insert(warp.shfl(row, turn), warp.shfl(key, turn));
    }
  }
};

/// The sums of 32 x 32 pairs: strip, tile, and a lane's share of each (multiply_bytes).
using Sums = int32_t[2][4][4];

/// sums += left x right; strips and tiles without rows are left out.
__device__ inline void multiply(Sums& sums, const CodeFragment& left, const CodeFragment& right,
                                uint32_t left_count, uint32_t right_count) {
#pragma unroll
  for (uint32_t strip = 0; strip < 2; ++strip) {
    if (16 * strip >= left_count) break;
#pragma unroll
    for (uint32_t tile = 0; tile < 4; ++tile) {
      if (8 * tile >= right_count) break;
      left.multiply(sums[strip][tile], strip, right.pieces[tile]);
    }
  }
}

/// Codes of 32 samples, and which those are.
struct Held {
  CodeFragment codes;
  uint32_t first = kNoRow;
  uint32_t column = 0;
};

/// Lines 9 to 33 for one row, by one warp: its samples meet, up to kSide of each kind. Of a row x near a
/// sample u, a key is kept: (x.x - 2 x.u), and behind it the place of x. Samples ascend, so among
/// equally near ones the smallest row wins, as among the keys of lists.
template <class Update, uint32_t kSide, class Key, bool kWide>
struct CrossMatch {
  static constexpr uint32_t kThreads = 128;
  static constexpr uint32_t kBlocks = sizeof(Key) == 4 ? Update::kBlocks : 1;
  static constexpr uint32_t kItems = 2 * kSide;  // NEW samples, then from kSide on OLD ones
  static constexpr uint32_t kPlaceBits = kWide ? 32 : kSide == 32 ? 5 : kSide == 64 ? 6 : 7;
  static constexpr Key kNothing = static_cast<Key>(~(Key{1} << (8 * sizeof(Key) - 1)));

  /// Whether keys of rows of so many bytes fit, whose squares have offsets of at most so much.
  static bool fits(uint64_t stride, uint64_t offset_most) {
    return stride * 255 * 255 + offset_most + 2 <= uint64_t{1} << (8 * sizeof(Key) - 1 - kPlaceBits);
  }

  struct WarpShared {
    uint64_t worst[kItems];  // the last key of the sample's list, when it was read
    uint32_t rows[kItems];   // each kind ascending, kNoRow behind the last
    uint32_t squares[kItems];
    uint32_t twins[kItems];        // the same row's place among NEW
    Key bases[kItems];             // x.x and the place
    Key nearest_in_row[kItems];    // of each sample among NEW
    Key nearest_in_column[kSide];  // of each NEW sample among OLD
    uint32_t distances[Update::kAllPairs ? 32 : 1][33];
    typename Update::Memory memory;
  };
  struct Shared {
    WarpShared warps[kThreads / 32];
  };

  const Args& args;
  Shared& block_shared;
  WarpShared& shared = block_shared.warps[threadIdx.x / 32];
  Warp warp = cg::tiled_partition<32>(cg::this_thread_block());
  uint32_t lane = threadIdx.x % 32;
  uint32_t new_count = 0;
  uint32_t old_count = 0;

  __device__ void run() {
    const uint64_t item = global_warp();
    if (item >= args.launch_rows) return;
    collect(args.first_row + item);
    if (new_count == 0) return;
    if constexpr (kWide)
      meet_wide();
    else
      meet();
    warp.sync();
    if constexpr (!Update::kAllPairs) give_nearest();
  }

  // --- Lines 10 and 18: the samples ---

  __device__ void collect(uint64_t row) {
    new_count = collect(row, kNew);
    old_count = collect(row, kOld);
    if (new_count == 0) return;
    warp.sync();
  }

  __device__ uint32_t collect(uint64_t row, Kind kind) {
    const uint32_t* samples = args.samples + (uint64_t{kind} * args.rows + row) * 2 * args.p;
    uint32_t count = 0;
#pragma unroll
    for (uint32_t first = 0; first < kSide; first += 32) {
      const uint32_t i = first + lane;
      const uint32_t sample = i < 2 * args.p ? samples[i] : kNoRow;
      shared.rows[kind * kSide + i] = sample;
      count += __popc(warp.ballot(sample != kNoRow));
    }
    return count;
  }

  __device__ void look_up() {
#pragma unroll
    for (uint32_t i = lane; i < kItems; i += 32) look_up(i);
    warp.sync();
  }

  __device__ void look_up(uint32_t i) {
    const uint32_t row = shared.rows[i];
    const bool there = row != kNoRow;
    const uint32_t square = there && !kWide ? args.codes.squares[row] : 0;
    shared.worst[i] = there ? read_key(args.worst + row) : 0;
    shared.squares[i] = square;
    shared.bases[i] = there ? static_cast<Key>(static_cast<Key>(square) << kPlaceBits | i % kSide) : kNothing;
    shared.twins[i] = i < kSide ? i : place_among_new(row);
    shared.nearest_in_row[i] = kNothing;
    if (i < kSide) shared.nearest_in_column[i] = kNothing;
  }

  __device__ uint32_t place_among_new(uint32_t row) const {
    uint32_t place = 0;
#pragma unroll
    for (uint32_t step = kSide / 2; step != 0; step /= 2)
      place += shared.rows[place + step - 1] < row ? step : 0;
    return shared.rows[place] == row ? place : kNoRow;
  }

  // --- Lines 11 and 19, and GetNearestObject: bytes on tensor cores ---

  /// The codes of the first rows of both kinds are fetched before their squares and worst keys.
  __device__ void meet() {
    Held fresh, others;
    hold(fresh, 0, 0);
    hold(others, kSide, 0);
    look_up();
    for (uint32_t right = 0; right < new_count; right += 32) {
      for (uint32_t left = 0; left < old_count; left += 32) meet(kSide + left, right, fresh, others);
      if (two_sets()) continue;
      for (uint32_t left = 0; left < new_count; left += 32) meet(left, right, fresh, others);
    }
  }

  /// Of which NEW samples are all of one set, and do not meet each other.
  __device__ bool two_sets() const { return args.sets.first_rows != 0; }

  /// 32 samples with 32 NEW ones.
  __device__ void meet(uint32_t left, uint32_t right, Held& fresh, Held& others) {
    const uint32_t left_count = (left < kSide ? new_count : old_count) - left % kSide;
    const uint32_t right_count = new_count - right;
    Sums sums = {};
    for (uint32_t column = 0; column < args.codes.stride; column += kTileColumns) {
      hold(fresh, right, column);
      if (left == right) {
        multiply(sums, fresh.codes, fresh.codes, left_count, right_count);
      } else {
        hold(others, left, column);
        multiply(sums, others.codes, fresh.codes, left_count, right_count);
      }
    }
    if constexpr (Update::kAllPairs) {
      give_pairs(sums, left, right);
    } else {
      nearest_in_rows(sums, left, right);
      if (left >= kSide) nearest_in_columns(sums, left, right);
    }
  }

  __device__ void hold(Held& held, uint32_t first, uint32_t column) const {
    if (held.first == first && held.column == column) return;
    held.first = first;
    held.column = column;
    held.codes.fetch(args.codes, column, lane, [&](uint32_t i) { return shared.rows[first + i]; });
  }

  static __device__ Key key_of(Key base, int32_t sum) {
    using Word = std::make_unsigned_t<Key>;
    return static_cast<Key>(static_cast<Word>(base) -
                            (static_cast<Word>(static_cast<uint32_t>(sum)) << (kPlaceBits + 1)));
  }

  __device__ void nearest_in_rows(const Sums& sums, uint32_t left, uint32_t right) {
    Key bases[4][2];
#pragma unroll
    for (uint32_t tile = 0; tile < 4; ++tile) {
#pragma unroll
      for (uint32_t side = 0; side < 2; ++side)
        bases[tile][side] = shared.bases[right + 8 * tile + lane % 4 * 2 + side];
    }
#pragma unroll
    for (uint32_t eight = 0; eight < 4; ++eight) {
      const uint32_t item = left + 8 * eight + lane / 4;
      const uint32_t twin = shared.twins[item];
      Key nearest = kNothing;
#pragma unroll
      for (uint32_t tile = 0; tile < 4; ++tile) {
#pragma unroll
        for (uint32_t side = 0; side < 2; ++side) {
          const Key key = key_of(bases[tile][side], sums[eight / 2][tile][eight % 2 * 2 + side]);
          if (right + 8 * tile + lane % 4 * 2 + side != twin) nearest = min(nearest, key);
        }
      }
      nearest = min(nearest, warp.shfl_xor(nearest, 1));
      nearest = min(nearest, warp.shfl_xor(nearest, 2));
      if (lane % 4 == 0) shared.nearest_in_row[item] = min(shared.nearest_in_row[item], nearest);
    }
  }

  /// Each lane goes through its 4 items for 8 columns; then lanes exchange halves, until one with
  /// g = lane / 4 has the column 8 (g / 2) + 2 t + g % 2.
  __device__ void nearest_in_columns(const Sums& sums, uint32_t left, uint32_t right) {
    Key nearest[8];
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) nearest[i] = kNothing;
#pragma unroll
    for (uint32_t eight = 0; eight < 4; ++eight) {
      const uint32_t item = left + 8 * eight + lane / 4;
      const uint32_t twin = shared.twins[item];
      const Key base = shared.bases[item];
#pragma unroll
      for (uint32_t i = 0; i < 8; ++i) {
        const Key key = key_of(base, sums[eight / 2][i / 2][eight % 2 * 2 + i % 2]);
        if (right + 8 * (i / 2) + lane % 4 * 2 + i % 2 != twin) nearest[i] = min(nearest[i], key);
      }
    }
#pragma unroll
    for (uint32_t half = 4; half != 0; half /= 2) {
      const bool upper = (lane & 4 * half) != 0;
#pragma unroll
      for (uint32_t i = 0; i < half; ++i) {
        const Key mine = upper ? nearest[i + half] : nearest[i];
        const Key others = upper ? nearest[i] : nearest[i + half];
        nearest[i] = min(mine, warp.shfl_xor(others, 4 * half));
      }
    }
    Key& kept = shared.nearest_in_column[right + lane / 8 * 8 + lane % 4 * 2 + lane / 4 % 2];
    kept = min(kept, nearest[0]);
  }

  // --- The same for wide codes, 8 x 4 pairs at a time: keys hold the distance itself ---

  __device__ void meet_wide() {
    look_up();
    for (uint32_t right = 0; right < new_count; right += LaneSums::kRight) {
      for (uint32_t left = 0; left < new_count && !two_sets(); left += LaneSums::kLeft)
        meet_group(left, right);
      for (uint32_t left = 0; left < old_count; left += LaneSums::kLeft) meet_group(kSide + left, right);
    }
  }

  __device__ void meet_group(uint32_t left, uint32_t right) {
    const float* left_rows[LaneSums::kLeft];
    const float* right_rows[LaneSums::kRight];
#pragma unroll
    for (uint32_t i = 0; i < LaneSums::kLeft; ++i) left_rows[i] = values_of(left + i);
#pragma unroll
    for (uint32_t i = 0; i < LaneSums::kRight; ++i) right_rows[i] = values_of(right + i);
    const uint64_t distance =
        __float_as_uint(wide_distances(left_rows, right_rows, args.codes.stride / 4, warp));
    const uint32_t item = left + lane / LaneSums::kRight;
    const uint32_t other = right + lane % LaneSums::kRight;
    if (shared.rows[item] == kNoRow || shared.rows[other] == kNoRow || shared.twins[item] == other) return;
    const auto enter = [&](Key& kept, uint32_t place) {
      atomicMin(reinterpret_cast<unsigned long long*>(&kept), distance << 32 | place);
    };
    enter(shared.nearest_in_row[item], other);
    if (item >= kSide) enter(shared.nearest_in_column[other], item - kSide);
  }

  __device__ const float* values_of(uint32_t item) const {
    const uint32_t row = shared.rows[item];
    return row == kNoRow ? nullptr : reinterpret_cast<const float*>(args.codes.row(row));
  }

  // --- Lines 16, 24 and 30 ---

  /// Selective update: a sample from NEW ones, or a NEW sample from OLD ones.
  __device__ void give_nearest() {
    for (uint32_t item = lane; item - lane < new_count; item += 32) {
      give(item, shared.nearest_in_row[item], kNew);
      give(item, shared.nearest_in_column[item], kOld);
    }
    for (uint32_t item = lane; item - lane < old_count; item += 32)
      give(kSide + item, shared.nearest_in_row[kSide + item], kNew);
  }

  __device__ void give(uint32_t item, Key key, Kind from) {
    uint32_t row = kNoRow;
    uint64_t offered = RowKey::kNone;
    if (key != kNothing) {
      const uint32_t place = static_cast<uint32_t>(key) & (kSide - 1);
      const uint32_t distance = static_cast<uint32_t>(key >> kPlaceBits) + shared.squares[item];
      offered = RowKey::of(distance, shared.rows[from * kSide + place], true);
      if (offered < shared.worst[item]) row = shared.rows[item];
    }
    Update::give(args, warp, row, offered);
  }

  /// No selection: every sample is offered all that it was compared with.
  __device__ void give_pairs(const Sums& sums, uint32_t left, uint32_t right) {
    warp.sync();
#pragma unroll
    for (uint32_t eight = 0; eight < 4; ++eight) {
#pragma unroll
      for (uint32_t i = 0; i < 8; ++i) {
        const uint32_t item = 8 * eight + lane / 4;
        const uint32_t other = 8 * (i / 2) + lane % 4 * 2 + i % 2;
        shared.distances[item][other] =
            shared.squares[left + item] + shared.squares[right + other] -
            2 * static_cast<uint32_t>(sums[eight / 2][i / 2][eight % 2 * 2 + i % 2]);
      }
    }
    warp.sync();
    const auto key_for = [&](uint32_t row, uint32_t other, uint32_t distance) {
      return other == kNoRow || other == row ? RowKey::kNone : RowKey::of(distance, other, true);
    };
    for (uint32_t i = 0; i < 32 && shared.rows[left + i] != kNoRow; ++i) {
      const uint32_t row = shared.rows[left + i];
      Update::give_many(args, warp, row, key_for(row, shared.rows[right + lane], shared.distances[i][lane]),
                        shared.memory);
    }
    if (left < kSide) return;
    for (uint32_t i = 0; i < 32 && shared.rows[right + i] != kNoRow; ++i) {
      const uint32_t row = shared.rows[right + i];
      Update::give_many(args, warp, row, key_for(row, shared.rows[left + lane], shared.distances[lane][i]),
                        shared.memory);
    }
  }
};

/// Line 36: keys to rows and distances. A thread for each entry.
struct WriteGraph {
  static constexpr uint32_t kThreads = kItemThreads;
  struct Shared {};
  const Args& args;
  Shared& shared;

  __device__ void run() {
    const uint64_t item = global_thread();
    if (item >= uint64_t{args.rows} * args.k) return;
    const uint64_t key = args.keys[item];
    args.neighbors[item] = key == RowKey::kNone ? kNoRow : RowKey::row(key);
    if (args.distances != nullptr) args.distances[item] = RowKey::distance(key);
  }
};

/// Blocks that a multiprocessor should hold, where a step asks for a number.
template <class Step>
constexpr uint32_t blocks_of() {
  if constexpr (requires { Step::kBlocks; })
    return Step::kBlocks;
  else
    return 1;
}

template <class Step>
__global__ void __launch_bounds__(Step::kThreads, blocks_of<Step>())
    kernel(const __grid_constant__ Args args) {
  __shared__ typename Step::Shared shared;
  Step{args, shared}.run();
}

}  // namespace gannet::cuda::descent
