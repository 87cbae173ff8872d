// GNND on the GPU: "Large-Scale Approximate k-NN Graph Construction on GPU", Algorithm 1, section 4.
// What it computes is said in nn_descent.h; the CPU's version is nn_descent.cpp, and both give equal
// lists, since nothing in either depends on who comes first.
//
//   paper                       here
//   S, s, u, v                  codes, row, and rows that meet at it
//   G[s]                        keys: distance, row and NEW or OLD in 64 bits, ascending (RowKey)
//   G_new, G_old                own and reverse samples of a kind (kNew, kOld)
//   p, k, MaxIter               p, k, iterations
//   D                           sums of a warp in registers; only what is nearest leaves them
//   GetNearestObject            nearest_in_rows, nearest_in_columns
//   InsertIntoNNList            offer_all, MergeOffers, InsertIntoList
//   phi(G)                      the sum of the distances returned
//
// Kernels of a round: SampleOwn (line 8) - CountReverse, a scan, ScatterReverse, SelectReverse for
// each kind (section 4.1, reverse) - CrossMatch (lines 9 to 33, a block for each row) and MergeOffers
// (a warp for each row), in turn for some slices of the rows.
//
// Bytes and operations of a round and row, at p = 16, k = 64, 128 columns of bytes:
//   SampleOwn      512 bytes of keys read, 128 of samples written, flags written back
//   reverse        2 x 16 edges counted and scattered by atomics: some 300 bytes
//   CrossMatch     64 codes gathered, 8 KB; 16 products of 16 x 8 x 32 x 4 columns, 64 instructions
//                  on tensor cores; 96 offers, each a look at 8 bytes of `worst`; those that pass take
//                  a place by an atomic and write 8 bytes
//   MergeOffers    512 bytes of list and 256 of offers read, 512 written, once a slice
// At 3 TB/s that is on paper 3 ms for the gathering of 1M rows, as much for offers in the first round,
// when nearly all pass, and 0.5 ms a merge. Measured on one NVIDIA H100, 100k rows, k 48, p 16, a later
// round: CrossMatch 1.3 ms, the merges 0.19, all sampling 0.4. CrossMatch moves 28 KB a row through the
// second cache, at 2 TB/s, with two fifths of the warps resident.
//
// Tensor cores multiply bytes exactly, so distances are the CPU's integers. Wide codes (rare) are
// summed in the CPU's lanes (distance/lanes_cuda.h), some fifty times slower.
//
// Departures from the paper.
//   - No segments: the k smallest of all that was offered do not depend on the order of offers, those
//     of segments do on the segment a row falls into, and a segment keeps 32 entries however near the
//     others' are. Offers that beat the list's last entry go to a row's kOffers places, taken by an
//     atomic, and a warp merges them when the slice is done. Where the places do not suffice (hubs),
//     the offer is inserted at once under the row's lock, as in the paper. With locks for all of them
//     SIFT 100k at k 64, p 16 took 34.4 ms instead of 14.7 (one NVIDIA H100): an insertion is five
//     dependent trips to memory, and a warp makes one at a time.
//   - The reverse samples of a row are those with the smallest hash of both ends and the round, not
//     those that come first.
//   - 16 x 8 x 32 tiles of the tensor cores instead of 16 x 16 of threads, for NEW-NEW too: the
//     triangle that is not needed costs less than the square root in the paper's equation 1.
// Not taken: packed 64-bit atomics into unsorted lists, whose maximum would have to be searched for
// each offer.

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

#include <algorithm>
#include <cub/device/device_scan.cuh>

#include "ann.h"
#include "base/random.h"
#include "dataset/code_tiles_cuda.h"
#include "distance/lanes_cuda.h"
#include "knn/nn_descent_cuda.h"
#include "traverse/row_key.h"

namespace gannet::cuda {
namespace {

namespace cg = cooperative_groups;

/// What is decided before compilation: room for 2 p samples of a kind, a multiple of 32. A warp owns
/// 16 rows of the tile (side NEW and side OLD) x side (NEW).
struct Policy {
  uint32_t side;
  constexpr uint32_t threads() const { return 4 * side; }
};
constexpr Policy kUpTo16{.side = 32};
constexpr Policy kUpTo32{.side = 64};
constexpr Policy kUpTo64{.side = 128};

constexpr uint32_t kWarpThreads = 256;  // of blocks whose warps work alone
constexpr uint32_t kItemThreads = 256;  // of blocks with a thread for each item
constexpr uint64_t kInitStream = 1;     // as in nn_descent.cpp
constexpr uint64_t kReverseStream = 2;
constexpr uint32_t kRegisters = ANN_DEGREE_MAX / 32;  // of a list, a key each
constexpr uint32_t kOffers = 32;        // places for offers to a row in a slice, one for each lane
constexpr uint32_t kOffersOnAverage = 16;
constexpr uint64_t kLaunchWork = uint64_t{1} << 35;  // bytes that a launch moves: some 15 ms

enum Kind : uint32_t { kNew = 0, kOld = 1 };

struct Args {
  CodesView codes;
  uint64_t* keys;        // [rows, k] ascending
  uint64_t* worst;       // [rows] the last key of each list
  uint32_t* locks;       // [rows] 1: a warp is inserting
  uint64_t* offers;      // [rows, kOffers] keys offered in this slice
  uint32_t* offered;     // [rows] how many; more than kOffers: the others are in the list
  uint32_t* own[2];      // [rows, p] samples of the list, kNoRow in unused places at the end
  uint32_t* reverse[2];  // [rows, p] rows that sampled this row, likewise
  uint32_t* counts;      // [rows + 1] of reverse candidates; the last is 0
  uint64_t* begins;      // [rows + 1] of reverse candidates in `sources`
  uint32_t* sources;     // [rows * p]
  unsigned long long* fresh_total;  // NEW entries of all lists
  uint32_t* neighbors;              // [rows, k]
  uint32_t* distances;              // [rows, k], or null
  uint64_t seed;
  uint64_t stream;     // of reverse samples: which round and kind
  uint32_t kind;       // whose reverse samples
  uint32_t first_row;  // of this launch
  uint32_t rows;
  uint32_t k;
  uint32_t p;
};

__device__ uint64_t global_warp() {
  return (uint64_t{blockIdx.x} * blockDim.x + threadIdx.x) / 32;
}
__device__ uint64_t global_thread() { return uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; }

/// Keys pass between multiprocessors while a round runs, so they are read and written past the first
/// cache, which is not kept equal.
__device__ uint64_t read_key(const uint64_t* key) {
  return __ldcg(reinterpret_cast<const unsigned long long*>(key));
}
__device__ void write_key(uint64_t* key, uint64_t value) {
  __stcg(reinterpret_cast<unsigned long long*>(key), value);
}

/// Distance of two rows by one warp.
__device__ uint32_t pair_distance(const CodesView& codes, uint32_t a, uint32_t b,
                                  const Warp& warp) {
  if (!codes.wide()) {
    const uint32_t* left = reinterpret_cast<const uint32_t*>(codes.row(a));
    const uint32_t* right = reinterpret_cast<const uint32_t*>(codes.row(b));
    uint32_t sum = 0;
    for (uint32_t i = warp.thread_rank(); i < codes.stride / 4; i += 32)
      sum = __dp4a(left[i], right[i], sum);
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
  /// equal key, flag aside, is a repetition.
  __device__ void insert_alone(uint32_t row, uint64_t key) {
    uint64_t* list = args.keys + uint64_t{row} * args.k;
    uint64_t entries[kRegisters];
    uint32_t place = 0;
    bool known = false;
#pragma unroll
    for (uint32_t r = 0; r < kRegisters; ++r) {
      const uint32_t i = 32 * r + warp.thread_rank();
      entries[r] = RowKey::kNone;
      if (32 * r >= args.k) continue;
      if (i < args.k) entries[r] = read_key(list + i);
      known |= (entries[r] | RowKey::kFlag) == key;
      place += __popc(warp.ballot(entries[r] < (key & ~RowKey::kFlag)));
    }
    if (warp.any(known) || place >= args.k) return;
#pragma unroll
    for (uint32_t r = 0; r < kRegisters; ++r) {
      if (32 * r >= args.k) break;
      const uint32_t i = 32 * r + warp.thread_rank();
      uint64_t before = warp.shfl_up(entries[r], 1);
      const uint64_t carried = r == 0 ? 0 : warp.shfl(entries[r == 0 ? 0 : r - 1], 31);
      if (warp.thread_rank() == 0) before = carried;
      if (i < place || i >= args.k) continue;
      const uint64_t value = i == place ? key : before;
      write_key(list + i, value);
      if (i == args.k - 1) write_key(args.worst + row, value);
    }
  }
};

/// Lines 1 to 5: p random rows each, all NEW. A warp for each row.
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
    InsertIntoList list{args, warp};
    for (uint32_t i = 0; i < args.p; ++i) {
      // Drawn from the other rows: numbers from `self` on stand for the next row.
      const uint32_t drawn = static_cast<uint32_t>(
          random_below(args.rows - 1, args.seed, kInitStream, row * args.p + i));
      const uint32_t other = drawn + (drawn >= self ? 1 : 0);
      const uint32_t distance = pair_distance(args.codes, self, other, warp);
      list.insert_alone(self, RowKey::of(distance, other, true));
      warp.sync();
    }
  }
};

/// Line 8, a row's own part: its first p NEW and first p OLD entries; the NEW ones turn OLD (line 32:
/// sampled ones only). Counts all NEW entries. A warp for each row.
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
    uint32_t* samples[2] = {args.own[kNew] + row * args.p, args.own[kOld] + row * args.p};
    uint32_t seen[2] = {0, 0};
    const uint32_t lanes_before = (1u << warp.thread_rank()) - 1;
    for (uint32_t first = 0; first < args.k; first += 32) {
      const uint32_t i = first + warp.thread_rank();
      const uint64_t key = i < args.k ? list[i] : RowKey::kNone;
      const uint32_t there = warp.ballot(key != RowKey::kNone);
      const uint32_t fresh = warp.ballot(key != RowKey::kNone && RowKey::flag(key));
      const bool is_fresh = RowKey::flag(key);
      const uint32_t kind = is_fresh ? kNew : kOld;
      const uint32_t same = is_fresh ? fresh : there & ~fresh;
      const uint32_t place = (is_fresh ? seen[kNew] : seen[kOld]) + __popc(same & lanes_before);
      if (key != RowKey::kNone && place < args.p) {
        samples[kind][place] = RowKey::row(key);
        if (is_fresh) list[i] = key & ~RowKey::kFlag;
      }
      seen[kNew] += __popc(fresh);
      seen[kOld] += __popc(there & ~fresh);
    }
    for (uint32_t kind = 0; kind < 2; ++kind) {
      for (uint32_t i = seen[kind] + warp.thread_rank(); i < args.p; i += 32)
        samples[kind][i] = kNoRow;
    }
    return seen[kNew];
  }
};

/// Section 4.1, the reverse part, counted: how many rows sampled each row. A thread for each sample.
struct CountReverse {
  static constexpr uint32_t kThreads = kItemThreads;
  struct Shared {};
  const Args& args;
  Shared& shared;

  __device__ void run() {
    const uint64_t item = global_thread();
    if (item >= uint64_t{args.rows} * args.p) return;
    const uint32_t target = args.own[args.kind][item];
    if (target != kNoRow) atomicAdd(&args.counts[target], 1);
  }
};

/// Collected: `counts` falls back to zero.
struct ScatterReverse {
  static constexpr uint32_t kThreads = kItemThreads;
  struct Shared {};
  const Args& args;
  Shared& shared;

  __device__ void run() {
    const uint64_t item = global_thread();
    if (item >= uint64_t{args.rows} * args.p) return;
    const uint32_t target = args.own[args.kind][item];
    if (target == kNoRow) return;
    const uint32_t place = atomicSub(&args.counts[target], 1) - 1;
    args.sources[args.begins[target] + place] = static_cast<uint32_t>(item / args.p);
  }
};

/// Chosen: the p with the smallest hash. Hashes of one row never tie, because the mixer is one to one.
/// A warp for each row; lane l holds the l-th and (l + 32)-th smallest.
struct SelectReverse {
  static constexpr uint32_t kThreads = kWarpThreads;
  struct Shared {};
  const Args& args;
  Shared& shared;
  Warp warp = cg::tiled_partition<32>(cg::this_thread_block());
  uint64_t hashes[2] = {UINT64_MAX, UINT64_MAX};
  uint32_t chosen[2] = {kNoRow, kNoRow};

  __device__ void run() {
    const uint64_t row = global_warp();
    if (row >= args.rows) return;
    const uint32_t* sources = args.sources + args.begins[row];
    const uint64_t count = args.begins[row + 1] - args.begins[row];
    uint32_t* out = args.reverse[args.kind] + row * args.p;
    if (count <= args.p) {
      for (uint32_t i = warp.thread_rank(); i < args.p; i += 32)
        out[i] = i < count ? sources[i] : kNoRow;
      return;
    }
    for (uint64_t first = 0; first < count; first += 32) {
      const uint64_t i = first + warp.thread_rank();
      const uint32_t source = i < count ? sources[i] : kNoRow;
      consider(source, source != kNoRow ? hash(row, source) : UINT64_MAX);
    }
    for (uint32_t r = 0; r < 2; ++r) {
      const uint32_t i = 32 * r + warp.thread_rank();
      if (i < args.p) out[i] = chosen[r];
    }
  }

  __device__ uint64_t hash(uint64_t row, uint32_t source) const {
    return random_word(args.seed, kReverseStream + (args.stream << 8), row * args.rows + source);
  }

  /// The lanes' candidates, of which few are below the p-th smallest so far.
  __device__ void consider(uint32_t source, uint64_t mine) {
    const uint32_t last = args.p - 1;
    const uint64_t worst = warp.shfl(last < 32 ? hashes[0] : hashes[1], last % 32);
    for (uint32_t lanes = warp.ballot(mine < worst); lanes != 0; lanes &= lanes - 1) {
      const uint32_t lane = __ffs(lanes) - 1;
      insert(warp.shfl(mine, lane), warp.shfl(source, lane));
    }
  }

  __device__ void insert(uint64_t value, uint32_t source) {
    const uint32_t place = __popc(warp.ballot(hashes[0] < value)) +
                           __popc(warp.ballot(hashes[1] < value));
    const uint64_t carried_hash = warp.shfl(hashes[0], 31);
    const uint32_t carried_row = warp.shfl(chosen[0], 31);
#pragma unroll
    for (uint32_t r = 0; r < 2; ++r) {
      const uint32_t i = 32 * r + warp.thread_rank();
      uint64_t hash_before = warp.shfl_up(hashes[r], 1);
      uint32_t row_before = warp.shfl_up(chosen[r], 1);
      if (r == 1 && warp.thread_rank() == 0) {
        hash_before = carried_hash;
        row_before = carried_row;
      }
      if (i < place) continue;
      hashes[r] = i == place ? value : hash_before;
      chosen[r] = i == place ? source : row_before;
    }
  }
};

/// Lines 9 to 33 for one row: a block lets its samples meet.
template <Policy kPolicy, bool kWide>
struct CrossMatch {
  static constexpr uint32_t kSide = kPolicy.side;
  static constexpr uint32_t kThreads = kPolicy.threads();
  static constexpr uint32_t kTiles = kSide / 8;  // of 8 columns, in a warp's 16 rows
  static constexpr uint32_t kItems = 2 * kSide;  // NEW samples, then from kSide on OLD ones
  static_assert(kThreads / 32 * 16 == kItems);

  struct Shared {
    alignas(16) uint8_t tile[kWide ? 1 : kItems][kTilePitch];
    uint32_t drawn[kItems];  // samples as they were drawn, holes and repetitions among them
    uint32_t rows[kItems];   // each kind ascending, without repetitions; kNoRow behind the last
    uint32_t squares[kItems];
    unsigned long long nearest_in_row[kItems];     // of each sample among NEW: keys, NEW
    unsigned long long nearest_in_column[kSide];   // of each NEW sample among OLD
    uint32_t counts[2];
  };

  const Args& args;
  Shared& shared;
  cg::thread_block block = cg::this_thread_block();
  Warp warp = cg::tiled_partition<32>(block);
  uint32_t lane = threadIdx.x % 32;

  __device__ void run() {
    collect(uint64_t{args.first_row} + blockIdx.x);
    if (shared.counts[kNew] == 0) return;
    if constexpr (kWide)
      meet_wide();
    else
      meet();
    block.sync();
    offer_all();
  }

  // --- Lines 10 and 18: the samples ---

  __device__ void collect(uint64_t row) {
    const uint32_t item = threadIdx.x;
    if (item < 2) shared.counts[item] = 0;
    if (item < kItems) {
      shared.drawn[item] = draw(row, item / kSide, item % kSide);
      shared.rows[item] = kNoRow;
      shared.nearest_in_row[item] = RowKey::kNone;
      if (item < kSide) shared.nearest_in_column[item] = RowKey::kNone;
    }
    block.sync();
    if (item < kItems) drop_repetition(item);
    block.sync();
    if (item < kItems) place(item);
    block.sync();
    if (item < kItems && !kWide && shared.rows[item] != kNoRow)
      shared.squares[item] = args.codes.squares[shared.rows[item]];
  }

  __device__ uint32_t draw(uint64_t row, uint32_t kind, uint32_t i) const {
    if (i < args.p) return args.own[kind][row * args.p + i];
    return i < 2 * args.p ? args.reverse[kind][row * args.p + i - args.p] : kNoRow;
  }

  /// A row that is among the own samples may be among the reverse ones too, and only there.
  __device__ void drop_repetition(uint32_t item) {
    const uint32_t i = item % kSide;
    const uint32_t* own = shared.drawn + (item - i);
    if (i < args.p || shared.drawn[item] == kNoRow) return;
    bool repeated = false;
    for (uint32_t j = 0; j < args.p; ++j) repeated |= own[j] == own[i];
    if (repeated) shared.drawn[item] = kNoRow;
  }

  /// Counts the samples before this one, which is its place.
  __device__ void place(uint32_t item) {
    const uint32_t* drawn = shared.drawn + item / kSide * kSide;
    const uint32_t row = shared.drawn[item];
    if (row == kNoRow) return;
    uint32_t before = 0;
    for (uint32_t j = 0; j < 2 * args.p; ++j) before += drawn[j] < row ? 1 : 0;
    shared.rows[item / kSide * kSide + before] = row;
    atomicAdd(&shared.counts[item / kSide], 1);
  }

  // --- Lines 11 and 19, and GetNearestObject: bytes on tensor cores ---

  __device__ void meet() {
    int32_t sums[kTiles][4] = {};
    const uint32_t strip = threadIdx.x / 32 * 16;  // first of this warp's rows
    const uint32_t kind = strip / kSide;
    const bool works = strip % kSide < shared.counts[kind];
    for (uint32_t column = 0; column < args.codes.stride; column += kTileColumns) {
      block.sync();
      fetch_tile<kItems, kThreads>(shared.tile, args.codes, column,
                                   [&](uint32_t item) { return shared.rows[item]; });
      block.sync();
      if (works) multiply(strip, min(kTileColumns, args.codes.stride - column), sums);
    }
    if (!works) return;
    nearest_in_rows(strip, sums);
    if (kind == kOld) nearest_in_columns(strip, sums);
  }

  __device__ void multiply(uint32_t strip, uint32_t columns, int32_t (&sums)[kTiles][4]) {
    for (uint32_t column = 0; column < columns; column += 32) {
      uint32_t left[4];
      read_left(left, shared.tile[strip], column, lane);
#pragma unroll
      for (uint32_t tile = 0; tile < kTiles; ++tile) {
        if (8 * tile >= shared.counts[kNew]) break;
        uint32_t right[2];
        read_right(right, shared.tile[8 * tile], column, lane);
        multiply_bytes(sums[tile], left, right);
      }
    }
  }

  /// What `item` is told of the NEW sample `other`: nothing of itself or of what is not there. Equal
  /// distances are decided by the row, as the key has it behind the distance.
  __device__ uint64_t key_of(uint32_t item, uint32_t other, uint32_t of, int32_t sum) const {
    const uint32_t row = shared.rows[item];
    const uint32_t other_row = shared.rows[other];
    if (row == other_row || row == kNoRow || other_row == kNoRow) return RowKey::kNone;
    const uint32_t distance =
        shared.squares[item] + shared.squares[other] - 2 * static_cast<uint32_t>(sum);
    return RowKey::of(distance, of, true);
  }

  __device__ void nearest_in_rows(uint32_t strip, const int32_t (&sums)[kTiles][4]) {
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      const uint32_t item = strip + lane / 4 + 8 * half;
      uint64_t nearest = RowKey::kNone;
#pragma unroll
      for (uint32_t tile = 0; tile < kTiles; ++tile) {
#pragma unroll
        for (uint32_t side = 0; side < 2; ++side) {
          const uint32_t other = 8 * tile + lane % 4 * 2 + side;
          nearest = min(nearest, key_of(item, other, shared.rows[other],
                                        sums[tile][2 * half + side]));
        }
      }
      nearest = min(nearest, warp.shfl_xor(nearest, 1));
      nearest = min(nearest, warp.shfl_xor(nearest, 2));
      if (lane % 4 == 0) shared.nearest_in_row[item] = nearest;
    }
  }

  __device__ void nearest_in_columns(uint32_t strip, const int32_t (&sums)[kTiles][4]) {
#pragma unroll
    for (uint32_t tile = 0; tile < kTiles; ++tile) {
      if (8 * tile >= shared.counts[kNew]) break;
#pragma unroll
      for (uint32_t side = 0; side < 2; ++side) {
        const uint32_t other = 8 * tile + lane % 4 * 2 + side;
        const uint32_t item = strip + lane / 4;
        uint64_t nearest =
            min(key_of(item, other, shared.rows[item], sums[tile][side]),
                key_of(item + 8, other, shared.rows[item + 8], sums[tile][2 + side]));
        nearest = min(nearest, warp.shfl_xor(nearest, 4));
        nearest = min(nearest, warp.shfl_xor(nearest, 8));
        nearest = min(nearest, warp.shfl_xor(nearest, 16));
        if (lane < 4) atomicMin(&shared.nearest_in_column[other], nearest);
      }
    }
  }

  // --- The same for wide codes, 8 x 4 pairs of a warp at a time ---

  __device__ void meet_wide() {
    const uint32_t across = (shared.counts[kNew] + LaneSums::kRight - 1) / LaneSums::kRight;
    const uint32_t down = kItems / LaneSums::kLeft;
    for (uint32_t group = threadIdx.x / 32; group < across * down; group += kThreads / 32) {
      const uint32_t left = group / across * LaneSums::kLeft;
      if (left % kSide < shared.counts[left / kSide])
        meet_group(left, group % across * LaneSums::kRight);
    }
  }

  __device__ void meet_group(uint32_t left, uint32_t right) {
    const float* left_rows[LaneSums::kLeft];
    const float* right_rows[LaneSums::kRight];
#pragma unroll
    for (uint32_t i = 0; i < LaneSums::kLeft; ++i) left_rows[i] = values_of(left + i);
#pragma unroll
    for (uint32_t i = 0; i < LaneSums::kRight; ++i) right_rows[i] = values_of(right + i);
    const uint32_t distance = __float_as_uint(
        wide_distances(left_rows, right_rows, args.codes.stride / 4, warp));
    const uint32_t item = left + lane / LaneSums::kRight;
    const uint32_t other = right + lane % LaneSums::kRight;
    const uint32_t row = shared.rows[item];
    const uint32_t other_row = shared.rows[other];
    if (row == other_row || row == kNoRow || other_row == kNoRow) return;
    atomicMin(&shared.nearest_in_row[item], RowKey::of(distance, other_row, true));
    if (item >= kSide)
      atomicMin(&shared.nearest_in_column[other], RowKey::of(distance, row, true));
  }

  __device__ const float* values_of(uint32_t item) const {
    const uint32_t row = shared.rows[item];
    return row == kNoRow ? nullptr : reinterpret_cast<const float*>(args.codes.row(row));
  }

  // --- Lines 16, 24 and 30: selective update ---

  /// Each thread has an offer: to a sample from NEW, or to a NEW sample from OLD.
  __device__ void offer_all() {
    static_assert(kThreads >= kItems + kSide);
    const uint32_t offer = threadIdx.x;
    uint64_t key = RowKey::kNone;
    uint32_t row = kNoRow;
    if (offer < kItems) {
      key = shared.nearest_in_row[offer];
      row = shared.rows[offer];
    } else if (offer < kItems + kSide) {
      key = shared.nearest_in_column[offer - kItems];
      row = shared.rows[offer - kItems];
    }
    bool no_place = false;
    if (key != RowKey::kNone && key < read_key(args.worst + row)) {
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

/// What InsertIntoNNList does for all offers of a slice: list and offers, both ascending, become the k
/// smallest of their union. A warp for each row; each key counts the keys before it.
struct MergeOffers {
  static constexpr uint32_t kThreads = 128;
  struct WarpShared {
    uint64_t list[ANN_DEGREE_MAX];
    uint64_t offers[kOffers];
  };
  struct Shared {
    WarpShared warps[kThreads / 32];
  };
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
    merge(row, lane < count ? args.offers[row * kOffers + lane] : RowKey::kNone,
          shared.warps[threadIdx.x / 32]);
  }

  __device__ void merge(uint64_t row, uint64_t unsorted, WarpShared& mine) {
    uint64_t* list = args.keys + row * args.k;
    for (uint32_t i = lane; i < args.k; i += 32) mine.list[i] = list[i];
    const uint64_t key = sort(unsorted);
    mine.offers[lane] = key;
    const uint64_t before = warp.shfl_up(key, 1);
    warp.sync();

    // An equal key, flag aside, is a repetition; and so is a key like the one before it.
    const uint32_t place = count_below(mine.list, args.k, key & ~RowKey::kFlag);
    const bool enters = key != RowKey::kNone && (lane == 0 || key != before) && place < args.k &&
                        (mine.list[place] | RowKey::kFlag) != key;
    const uint32_t entering = warp.ballot(enters);
    if (enters) write(row, place + __popc(entering & below(lane)), key);
    for (uint32_t i = lane; i < args.k; i += 32) {
      const uint32_t smaller = count_below(mine.offers, kOffers, mine.list[i]);
      const uint32_t moves = __popc(entering & below(smaller));
      if (moves != 0) write(row, i + moves, mine.list[i]);
    }
  }

  __device__ void write(uint64_t row, uint32_t place, uint64_t key) {
    if (place >= args.k) return;
    args.keys[row * args.k + place] = key;
    if (place == args.k - 1) args.worst[row] = key;
  }

  static __device__ uint32_t below(uint32_t bit) { return bit >= 32 ? ~0u : (1u << bit) - 1; }

  /// Keys of an ascending list that are smaller than `bound`.
  static __device__ uint32_t count_below(const uint64_t* keys, uint32_t count, uint64_t bound) {
    uint32_t first = 0;
    while (count > 0) {
      const uint32_t half = count / 2;
      const bool right = keys[first + half] < bound;
      first = right ? first + half + 1 : first;
      count = right ? count - half - 1 : half;
    }
    return first;
  }

  /// A bitonic sort of one key a lane.
  __device__ uint64_t sort(uint64_t key) const {
    for (uint32_t run = 2; run <= 32; run *= 2) {
      for (uint32_t stride = run / 2; stride != 0; stride /= 2) {
        const uint64_t other = warp.shfl_xor(key, stride);
        const bool keeps_smaller = ((lane & run) == 0) == ((lane & stride) == 0);
        key = keeps_smaller ? min(key, other) : max(key, other);
      }
    }
    return key;
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

template <class Step>
__global__ void __launch_bounds__(Step::kThreads) kernel(const __grid_constant__ Args args) {
  __shared__ typename Step::Shared shared;
  Step{args, shared}.run();
}

// --- Host ----------------------------------------------------------------------------------------

void scan(void* scratch, size_t& scratch_bytes, const uint32_t* counts, uint64_t* begins,
          uint64_t count, cudaStream_t stream) {
  check(cub::DeviceScan::ExclusiveScan(scratch, scratch_bytes, counts, begins,
                                       ::cuda::std::plus<uint64_t>(), uint64_t{0}, count, stream),
        "adding up the counts of reverse samples");
}

size_t scan_scratch_bytes(uint64_t count) {
  size_t bytes = 0;
  scan(nullptr, bytes, nullptr, nullptr, count, nullptr);
  return bytes;
}

/// Algorithm 1. Members are in the order in which they take device memory.
class NnDescent {
 public:
  NnDescent(const CodesView& codes, const NnDescentParams& params, uint32_t* neighbors,
            uint32_t* distances, const Stream& stream, const Execution& execution)
      : params_(params),
        execution_(execution),
        stream_(stream),
        rows_(codes.rows),
        keys_(uint64_t{rows_} * params.k, stream),
        worst_(rows_, stream),
        locks_(rows_, stream),
        offers_(uint64_t{rows_} * kOffers, stream),
        offered_(rows_, stream),
        samples_(uint64_t{rows_} * params.samples * 4, stream),
        counts_(uint64_t{rows_} + 1, stream),
        begins_(uint64_t{rows_} + 1, stream),
        sources_(uint64_t{rows_} * params.samples, stream),
        fresh_total_(1, stream),
        scratch_bytes_(scan_scratch_bytes(uint64_t{rows_} + 1)),
        scratch_(scratch_bytes_, stream) {
    const uint64_t part = uint64_t{rows_} * params.samples;
    args_.codes = codes;
    args_.keys = keys_.data();
    args_.worst = worst_.data();
    args_.locks = locks_.data();
    args_.offers = offers_.data();
    args_.offered = offered_.data();
    for (const uint32_t kind : {kNew, kOld}) {
      args_.own[kind] = samples_.data() + (2 * kind) * part;
      args_.reverse[kind] = samples_.data() + (2 * kind + 1) * part;
    }
    args_.counts = counts_.data();
    args_.begins = begins_.data();
    args_.sources = sources_.data();
    args_.fresh_total = fresh_total_.data();
    args_.neighbors = neighbors;
    args_.distances = distances;
    args_.seed = params.seed;
    args_.rows = rows_;
    args_.k = params.k;
    args_.p = params.samples;
  }

  uint32_t run() {
    clear();
    launch_warps<StartWithRandomRows>("start_with_random_rows", rows_);
    uint32_t round = 0;
    while (round < params_.iterations) {
      execution_.check();
      const uint64_t fresh = sample_own();
      if (static_cast<double>(fresh) <
          static_cast<double>(params_.convergence) * rows_ * params_.k)
        break;
      ++round;
      sample_reverse(kNew, 2 * round);
      sample_reverse(kOld, 2 * round + 1);
      cross_match();
      // Nobody knows the last round before it is over; most graphs take between 6 and 14.
      execution_.advance(static_cast<double>(round) / (round + 4));
    }
    launch_items<WriteGraph>("write_graph", uint64_t{rows_} * params_.k);
    stream_.wait();
    return round;
  }

 private:
  void clear() {
    check(cudaMemsetAsync(keys_.data(), 0xff, uint64_t{rows_} * params_.k * sizeof(uint64_t),
                          stream_),
          "clearing lists");
    check(cudaMemsetAsync(worst_.data(), 0xff, rows_ * sizeof(uint64_t), stream_),
          "clearing lists");
    check(cudaMemsetAsync(locks_.data(), 0, rows_ * sizeof(uint32_t), stream_), "clearing locks");
    check(cudaMemsetAsync(offered_.data(), 0, rows_ * sizeof(uint32_t), stream_), "clearing counts");
    check(cudaMemsetAsync(counts_.data(), 0, (uint64_t{rows_} + 1) * sizeof(uint32_t), stream_),
          "clearing counts");
  }

  uint64_t sample_own() {
    check(cudaMemsetAsync(fresh_total_.data(), 0, sizeof(uint64_t), stream_), "clearing a count");
    launch_warps<SampleOwn>("sample_own", rows_);
    unsigned long long fresh = 0;
    check(cudaMemcpyAsync(&fresh, fresh_total_.data(), sizeof fresh, cudaMemcpyDeviceToHost,
                          stream_),
          "fetching a count");
    stream_.wait();
    return fresh;
  }

  void sample_reverse(Kind kind, uint64_t stream) {
    args_.kind = kind;
    args_.stream = stream;
    const uint64_t samples = uint64_t{rows_} * params_.samples;
    launch_items<CountReverse>("count_reverse", samples);
    scan(scratch_.data(), scratch_bytes_, counts_.data(), begins_.data(), uint64_t{rows_} + 1,
         stream_);
    launch_items<ScatterReverse>("scatter_reverse", samples);
    launch_warps<SelectReverse>("select_reverse", rows_);
  }

  void cross_match() {
    if (params_.samples <= 16)
      return args_.codes.wide() ? match<CrossMatch<kUpTo16, true>>()
                                : match<CrossMatch<kUpTo16, false>>();
    if (params_.samples <= 32)
      return args_.codes.wide() ? match<CrossMatch<kUpTo32, true>>()
                                : match<CrossMatch<kUpTo32, false>>();
    return args_.codes.wide() ? match<CrossMatch<kUpTo64, true>>()
                              : match<CrossMatch<kUpTo64, false>>();
  }

  /// In launches short enough for the monitor and for the places of offers. What meets was fixed
  /// before, so it does not matter to the result.
  template <class Step>
  void match() {
    const uint64_t gathered = uint64_t{Step::kItems} * args_.codes.stride;
    const uint64_t summed = args_.codes.wide() ? gathered * Step::kSide / 8 : 0;
    const uint64_t offered = uint64_t{Step::kItems + Step::kSide} * 64;
    const uint64_t by_time = kLaunchWork / (gathered + summed + offered);
    const uint64_t slices = (2 * params_.samples - 1) / kOffersOnAverage + 1;
    const uint64_t launch_rows =
        std::max<uint64_t>(std::min(by_time, (rows_ - 1) / slices + 1), 1024);
    const bool is_long = by_time / 2 < rows_;
    for (uint64_t first = 0; first < rows_; first += launch_rows) {
      execution_.check();
      args_.first_row = static_cast<uint32_t>(first);
      const uint64_t rows = std::min<uint64_t>(launch_rows, rows_ - first);
      launch("cross_match", kernel<Step>, static_cast<uint32_t>(rows), Step::kThreads, stream_,
             args_);
      launch_warps<MergeOffers>("merge_offers", rows_);
      if (is_long) stream_.wait();
    }
  }

  template <class Step>
  void launch_warps(const char* name, uint64_t warps) {
    launch_items<Step>(name, warps * 32);
  }

  template <class Step>
  void launch_items(const char* name, uint64_t items) {
    const uint64_t blocks = (items + Step::kThreads - 1) / Step::kThreads;
    launch(name, kernel<Step>, static_cast<uint32_t>(blocks), Step::kThreads, stream_, args_);
  }

  const NnDescentParams& params_;
  const Execution& execution_;
  const Stream& stream_;
  uint32_t rows_;
  Args args_ = {};
  DeviceArray<uint64_t> keys_;      // [rows, k]
  DeviceArray<uint64_t> worst_;     // [rows]
  DeviceArray<uint32_t> locks_;     // [rows]
  DeviceArray<uint64_t> offers_;    // [rows, kOffers]
  DeviceArray<uint32_t> offered_;   // [rows]
  DeviceArray<uint32_t> samples_;   // [NEW own, NEW reverse, OLD own, OLD reverse][rows, p]
  DeviceArray<uint32_t> counts_;    // [rows + 1]
  DeviceArray<uint64_t> begins_;    // [rows + 1]
  DeviceArray<uint32_t> sources_;   // [rows * p]
  DeviceArray<unsigned long long> fresh_total_;  // [1]
  size_t scratch_bytes_;
  DeviceArray<uint8_t> scratch_;
};

}  // namespace

uint32_t nn_descent(const CodesView& codes, const NnDescentParams& params, uint32_t* neighbors,
                    uint32_t* distances, const Stream& stream, const Execution& execution) {
  return NnDescent(codes, params, neighbors, distances, stream, execution).run();
}

}  // namespace gannet::cuda
