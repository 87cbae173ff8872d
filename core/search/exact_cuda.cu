// Exact search on the GPU: every query is compared with every row, and each keeps its k nearest.
//
//   here         n, d       rows and columns
//                tile       queries x rows that a block compares at once
//                panel      columns of a tile that are held in shared memory at once
//                slice      share of the rows that a block goes through for its queries
//                list       of a query and a slice: the nearest rows found so far
//                chunk      rows on the device at once
//                part       rows of one launch
//
// The idea. A block owns a tile's queries and a slice. It goes through the slice tile by tile, the
// tile panel by panel, the next panel on its way into registers while this one is summed. A distance
// nearer than the query's k-th best so far is appended to the query's list; a list that might
// overflow is sorted and cut to k, which also gives the new k-th best. For rows in random order
// about k * ln(n / k) distances pass, so sorting costs little. No matrix of n x q distances exists.
// A last launch merges a query's lists, one a slice.
//
// Equal bits. A warp sums 8 queries x 4 rows of floats in the CPU's lanes (distance/lanes_cuda.h).
// Integers are multiplied by tensor cores, 32 queries x 32 rows a warp; |x - q|^2 = x.x + q.q - 2 x.q holds
// in 32 bits modulo 2^32, and the result is below 2^31 for every legal dimension.
//
// Filtered floats. More than 128 queries of floats are multiplied by tensor cores too, with 10 bits behind the
// point (TF32). Those products are no answers: they say how far apart a pair is at least, and pairs that this does not put
// behind the k-th best are summed in the CPU's lanes. With u = 2^-11 a rounded value is within u of the value, as a share
// of it, so a sum of d products is within (2 u + d 2^-21) |q| |x| of the true one, what adding up loses included
// (tf32_error). L2 is the same about any point, and a difference from the centre of some rows is rounded like any float:
// so lengths are those about the centre, and rows far from the origin are told apart as well as others. Where something
// overflows or is no number the pair is summed. Of random rows a thousandth is summed, of tight clusters all of a
// cluster; were all pairs summed, it would take some twice as long as without products.
// The first rows are summed without asking, as few queries are, and leave a bound; slices share theirs
// (BoundedCandidates).
//
// Operations. A float pair costs 3 d for L2 (subtract, multiply, add), 2 d for products, and a fold
// of 3 to 4 instructions a thread: on 132 multiprocessors of 128 lanes at 1.75 GHz at most 10 G
// pairs/s at d = 960. 16 x 8 integer pairs cost d / 32 instructions of tensor cores, of floats d / 8, and a pair two more
// to tell whether it may be near: on paper 2 T pairs/s at d = 128, and 900 G of floats, where shared memory binds.
// Measured on one NVIDIA H100, 4,096 queries, rows in place: 100,000 x 128 u8, k = 10, 156 G pairs/s; f32 of a million
// x 128, k = 100, 166 G, of 100,000, k = 10 and 100, 73 and 61 G, of 30,000 x 960 15 G, all random numbers; before
// products 19 G at d = 128 and 4.9 G at 960. 1,000 queries, k = 10, take .28 of the time before on words, .39 on patches.
// A call with few queries waits for the rows' transfer.
// Bytes. A tile of 64 x 128 floats takes 192 * 4 bytes a column from the cache for 8,192 pairs; rows come from device
// memory once for all queries that run at a time. Neither binds.

#include <cooperative_groups.h>

#include <algorithm>
#include <cmath>

#include "backend/devices.h"
#include "backend/launch.h"
#include "dataset/codes_cuda.h"
#include "distance/element.h"
#include "distance/lanes_cuda.h"
#include "distance/tensor_cuda.h"
#include "search/exact_cuda.h"
#include "distance/metric_cuda.cuh"
#include "traverse/shared_sort_cuda.h"

namespace gannet::cuda {
namespace {

namespace cg = cooperative_groups;

/// What is decided before compilation: threads of a block, and the tile that they compare.
struct Policy {
  uint32_t threads;
  uint32_t queries;
  uint32_t rows;  // at most kHalfMin
};

// Of few queries, which would leave a tall tile empty, one warp compares 8 with 4 rows of floats.
constexpr Policy kFloatFew{kExactFewFloats.threads, kExactFewFloats.queries, kExactFewFloats.rows};
// One warp multiplies 32 queries with 32 rows.
constexpr Policy kFloatMany{kExactFloats.threads, kExactFloats.queries, kExactFloats.rows};
constexpr Policy kIntegerMany{kExactIntegers.threads, kExactIntegers.queries, kExactIntegers.rows};
constexpr Policy kIntegerFew{.threads = 128, .queries = 32, .rows = 128};
// How many queries are few. 100 queries of floats took 1.1 times as long filtered as summed, 1,000 a fifth to a half
// (60,000 x 192 and 150,000 x 100, k 1, 10 and 100, one NVIDIA H100).
constexpr uint32_t few_queries(bool is_float) { return is_float ? kExactFewQueries : 8; }

constexpr uint32_t kSortKeys = 2 * kExactMax;  // keys that a block sorts at once
constexpr uint32_t kHalfMin = kExactHalfMin;
constexpr uint32_t kMergeThreads = 256;
constexpr uint32_t kSquareThreads = 256;
constexpr size_t kRowAlign = 16;  // bytes; zeros fill a row up
constexpr uint32_t kAllLanes = 0xffffffff;

// What the sums of tensor cores leave open, as shares. Of a sum of `dim` products the lengths' product: two roundings of
// 2^-11 each, and what adding them up may lose.
__device__ constexpr float tf32_error(uint32_t dim) {
  return 0x1p-10f + 0x1p-19f + static_cast<float>(dim) * 0x1p-21f;
}
// And of squares, lengths and the CPU's own sums their roundings.
__device__ constexpr float float_error(uint32_t dim) { return 0x1p-17f + static_cast<float>(dim) * 0x1p-28f; }
constexpr float kTiny = 1e-34f;       // what products too small for a float come to
constexpr uint32_t kCentreRows = 64;  // whose mean is the centre

struct Args {
  const uint8_t* rows;            // [row_count, row_stride] bytes, of the part
  const uint8_t* queries;         // [query_count, query_stride] bytes
  const uint32_t* row_squares;    // [row_count] x.x, for L2 of integers; of filtered floats the bits of
                                  // |x - centre|^2, for L2 and products
  const uint32_t* query_squares;  // [query_count] q.q, likewise
  const float* centre;            // [panels * 16] for L2 of filtered floats
  uint32_t*
      bounds;  // [query_count] of filtered floats, as upper halves of keys: a distance that k rows of one slice
               // are not beyond
  uint32_t* shares;    // [slices, query_count] likewise: one that share_rank rows of a slice are not beyond
  const float* norms;  // [row_count], for cosine
  const double* query_norms;  // [query_count], for cosine
  const uint64_t* ids;        // [all rows], or null: a row's id is its number
  RowSetView removed;         // of all rows: those that are no candidates
  Key* lists;                 // [slices, query_count, 2 * half]
  uint32_t* counts;           // [slices, query_count] candidates in each list
  uint32_t* out_rows;         // [query_count, k]
  float* out_distances;       // [query_count, k]
  uint32_t first_row;         // number of the part's first row
  uint32_t row_count;         // of the part
  uint32_t slice_rows;        // rows of a slice, a multiple of the tile's
  uint32_t slices;
  uint32_t query_count;
  uint32_t row_stride;
  uint32_t query_stride;
  uint32_t dim;
  uint32_t panels;  // of a row
  uint32_t k;
  uint32_t half;        // of a list: a power of two, at least k
  uint32_t share_rank;  // so many rows of every slice are k
  int32_t metric;
  int32_t element;  // of the rows
};

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
template <Policy kPolicy>
struct Candidates {
  static_assert(kPolicy.rows <= kHalfMin && kPolicy.queries <= kPolicy.threads);

  struct Shared {
    Key keys[kSortKeys];         // [team, 2 * half] lists while they are sorted
    Key worst[kPolicy.queries];  // k-th best so far; kNoKey: there are fewer
    uint32_t counts[kPolicy.queries];
  };

  const Args& args;
  Shared& shared;
  uint32_t query_begin = blockIdx.x * kPolicy.queries;
  cg::thread_block block = cg::this_thread_block();

  __device__ uint64_t place(uint32_t query) const {
    return uint64_t{blockIdx.y} * args.query_count + query_begin + query;
  }
  __device__ Key* list(uint32_t query) const { return args.lists + place(query) * 2 * args.half; }
  __device__ bool exists(uint32_t query) const { return query_begin + query < args.query_count; }

  /// Goes on where the last part ended. Queries that do not exist take no candidate.
  __device__ void load() {
    const uint32_t query = threadIdx.x;
    if (query < kPolicy.queries) {
      const uint32_t count = exists(query) ? args.counts[place(query)] : 0;
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
    const uint32_t most = 2 * args.half - kPolicy.rows;
    const bool full = threadIdx.x < kPolicy.queries && shared.counts[threadIdx.x] > most;
    if (__syncthreads_or(full)) sort_lists(most, 2 * args.half);
  }

  /// Leaves each list sorted and at most k long.
  __device__ void store() { store(2 * args.half); }

 protected:
  __device__ void store(uint32_t width) {
    sort_lists(0, width);
    const uint32_t query = threadIdx.x;
    if (query < kPolicy.queries && exists(query)) args.counts[place(query)] = shared.counts[query];
  }

  /// Sorts and cuts lists of more than `most` candidates, a team of threads for each. No list has more than `width`, a
  /// power of two.
  __device__ void sort_lists(uint32_t most, uint32_t width) {
    const uint32_t teams = min(kSortKeys / width, kPolicy.queries);
    const uint32_t lanes = kPolicy.threads / teams;
    const uint32_t lane = threadIdx.x % lanes;
    Key* keys = shared.keys + threadIdx.x / lanes * width;
    for (uint32_t first = 0; first < kPolicy.queries; first += teams) {
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

/// The same where slices spare each other work: of k nearest rows each slice must have its share, so that none need look
/// beyond the farthest of all shares, nor beyond the k-th best of any. Between two sorts a warp finds such bounds, without
/// sorting, and drops the candidates beyond them.
template <Policy kPolicy>
struct BoundedCandidates : Candidates<kPolicy> {
  using Base = Candidates<kPolicy>;
  using Base::args, Base::block, Base::exists, Base::list, Base::query_begin;
  static constexpr uint32_t kWarps = kPolicy.threads / 32;
  static constexpr uint32_t kThinOut = 64;   // new candidates until a warp looks at a list again
  static constexpr uint32_t kHalvings = 16;  // of the interval in which a bound is looked for
  static constexpr uint32_t kTilesBetween = 8;
  static constexpr uint32_t kSortMin = 128;

  struct Shared : Base::Shared {
    uint32_t bounds[kPolicy.queries];    // as args.bounds, of all slices as far as this block knows
    uint32_t triggers[kPolicy.queries];  // candidates with which a list is looked at again
  };

  Shared& shared;
  uint32_t lane = threadIdx.x % 32;
  uint32_t tiles = 0;

  __device__ BoundedCandidates(const Args& args, Shared& shared) : Base{args, shared}, shared(shared) {}

  __device__ void load() {
    Base::load();
    const uint32_t query = threadIdx.x;
    if (query < kPolicy.queries) shared.triggers[query] = shared.counts[query] + kThinOut;
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
    for (uint32_t query = threadIdx.x / 32; query < kPolicy.queries; query += kWarps) {
      if (exists(query) && shared.counts[query] >= shared.triggers[query]) thin_out(query);
    }
    ++tiles;
    if (tiles % kTilesBetween == 0 || (tiles & (tiles - 1)) == 0) {
      block.sync();
      refresh();
    }
    const uint32_t most = 2 * args.half - kPolicy.rows;
    const bool full = threadIdx.x < kPolicy.queries && shared.counts[threadIdx.x] > most;
    if (__syncthreads_or(full)) Base::sort_lists(most, 2 * args.half);
  }

  __device__ void store() {
    for (uint32_t query = threadIdx.x / 32; query < kPolicy.queries; query += kWarps) {
      if (exists(query) && shared.counts[query] > args.k) thin_out(query);
    }
    block.sync();
    uint32_t width = kSortMin;
    while (__syncthreads_or(threadIdx.x < kPolicy.queries && shared.counts[threadIdx.x] > width)) width *= 2;
    Base::store(width);
  }

 private:
  static __device__ uint32_t upper_half(Key key) { return static_cast<uint32_t>(key >> 32); }

  /// Learns of other slices.
  __device__ void refresh() {
    const uint32_t query = threadIdx.x;
    if (query >= kPolicy.queries || !exists(query)) return;
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

/// Where a block stands.
template <Policy kPolicy>
struct Slice {
  uint32_t begin;
  uint32_t end;

  __device__ explicit Slice(const Args& args)
      : begin(static_cast<uint32_t>(min(uint64_t{blockIdx.y} * args.slice_rows, uint64_t{args.row_count}))),
        end(static_cast<uint32_t>(min(uint64_t{begin} + args.slice_rows, uint64_t{args.row_count}))) {}
};

/// Steps through the tiles of a slice and the panels of a tile. A Step offers
///   fetch(row, panel)    starts to read a panel of the tile that begins at `row`
///   deposit(buffer)      puts what was fetched into shared memory
///   accumulate(buffer)   adds the products of a panel to the sums
///   finish(row, end)     turns sums into candidates, and clears them
template <Policy kPolicy, class Step, class Lists>
__device__ void for_each_tile(const Args& args, Step& step, Lists& candidates) {
  const cg::thread_block block = cg::this_thread_block();
  const Slice<kPolicy> slice(args);
  candidates.load();
  uint32_t buffer = 0;
  if (slice.begin < slice.end) {
    step.fetch(slice.begin, 0, slice.end);
    step.deposit(buffer);
  }
  block.sync();
  for (uint32_t row = slice.begin; row < slice.end; row += kPolicy.rows) {
    for (uint32_t panel = 0; panel < args.panels; ++panel) {
      const bool last = panel + 1 == args.panels;
      const uint32_t next_row = last ? row + kPolicy.rows : row;
      const bool more = next_row < slice.end;
      if (more) step.fetch(next_row, last ? 0 : panel + 1, slice.end);
      step.accumulate(buffer);
      buffer ^= 1;
      if (more) step.deposit(buffer);
      if (last) step.finish(row, slice.end);
      block.sync();
    }
    candidates.make_room();
  }
  candidates.store();
}

/// Four columns of a row of floats; of short elements their bits in the first two words.
__device__ inline float4 read_four(int32_t element, const uint8_t* row, uint32_t column) {
  if (element == ANN_F32) return *reinterpret_cast<const float4*>(row + size_t{column} * 4);
  const float2 four = *reinterpret_cast<const float2*>(row + size_t{column} * 2);
  return {four.x, four.y, 0, 0};
}

template <int32_t kElement>
__device__ float4 unpacked(uint32_t first, uint32_t second) {
  return {float_of_bits<kElement>(first & 0xffff), float_of_bits<kElement>(first >> 16),
          float_of_bits<kElement>(second & 0xffff), float_of_bits<kElement>(second >> 16)};
}

/// What read_four has read, as floats: later, so that nothing waits for memory.
__device__ inline float4 unpacked(int32_t element, const float4& read) {
  if (element == ANN_F32) return read;
  const uint32_t first = __float_as_uint(read.x);
  const uint32_t second = __float_as_uint(read.y);
  return element == ANN_F16 ? unpacked<ANN_F16>(first, second) : unpacked<ANN_BF16>(first, second);
}

/// A distance of floats from its sum, as Dataset::distances has it.
__device__ inline float float_distance(const Args& args, float sum, uint32_t query, uint32_t row) {
  if (args.metric != ANN_METRIC_COSINE) return to_distance(sum, args.metric, 0, 0);
  const double query_norm = args.query_norms[query];
  const float norm = args.norms[row];
  if (!is_extreme(query_norm, norm)) return to_distance(sum, args.metric, query_norm, norm);
  return distance_of_cosine(extreme_cosine(
      args.element, reinterpret_cast<const float*>(args.queries + uint64_t{query} * args.query_stride),
      query_norm, args.rows + uint64_t{row} * args.row_stride, args.dim));
}

/// Sums of floats, in the CPU's lanes and order. Rows of every float element: only what reads and unpacks them
/// asks which it is, a branch for 64 multiplications and more.
template <bool kDot, Policy kPolicyOfStep>
struct FloatSearch {
  using Args = cuda::Args;
  static constexpr Policy kPolicy = kPolicyOfStep;
  static constexpr uint32_t kThreads = kPolicy.threads;
  static constexpr uint32_t kLanes = LaneSums::kLanes;
  static constexpr uint32_t kWarpQueries = LaneSums::kLeft;
  static constexpr uint32_t kWarpRows = LaneSums::kRight;
  static constexpr uint32_t kPairs = LaneSums::kPairs;
  static constexpr uint32_t kItems = kPolicy.queries + kPolicy.rows;
  static constexpr uint32_t kQuads = kLanes / 4;  // of four columns, in a panel of an item
  static constexpr uint32_t kFetches = (kItems * kQuads + kThreads - 1) / kThreads;
  static_assert(kThreads / 32 * kPairs == kPolicy.queries * kPolicy.rows);

  struct Shared {
    float4 values[2][kItems][kQuads];  // [buffer, queries then rows, four columns]
    typename Candidates<kPolicy>::Shared candidates;
  };

  const Args& args;
  Shared& shared;
  Candidates<kPolicy> candidates{args, shared.candidates};
  Warp warp = cg::tiled_partition<32>(cg::this_thread_block());
  uint32_t query_begin = blockIdx.x * kPolicy.queries;
  uint32_t warp_query = threadIdx.x / 32 % (kPolicy.queries / kWarpQueries) * kWarpQueries;
  uint32_t warp_row = threadIdx.x / 32 / (kPolicy.queries / kWarpQueries) * kWarpRows;
  const uint8_t* sources[kFetches];  // vectors that this thread reads of, or null
  float4 fetched[kFetches];          // four values, of short elements their bits in the first two words
  LaneSums sums;

  __device__ void run() { for_each_tile<kPolicy>(args, *this, candidates); }

  __device__ void fetch(uint32_t row, uint32_t panel, uint32_t end) {
    if (panel == 0) aim(row, end);
    const uint32_t column = panel * kLanes + threadIdx.x % kQuads * 4;
#pragma unroll
    for (uint32_t i = 0; i < kFetches; ++i) {
      const bool is_query = (threadIdx.x + i * kThreads) / kQuads < kPolicy.queries;
      fetched[i] = {0, 0, 0, 0};
      if (sources[i] == nullptr) continue;
      if (is_query) {
        if (column * 4 < args.query_stride)
          fetched[i] = *reinterpret_cast<const float4*>(sources[i] + column * 4);
      } else if (column * element_bytes(args.element) < args.row_stride) {
        fetched[i] = read_four(args.element, sources[i], column);
      }
    }
  }

  __device__ void aim(uint32_t row, uint32_t end) {
#pragma unroll
    for (uint32_t i = 0; i < kFetches; ++i) {
      const uint32_t item = (threadIdx.x + i * kThreads) / kQuads;
      const uint64_t query = uint64_t{query_begin} + item;
      const uint64_t number = uint64_t{row} + (item - kPolicy.queries);
      sources[i] = nullptr;
      if (item < kPolicy.queries) {
        if (query < args.query_count) sources[i] = args.queries + query * args.query_stride;
      } else if (item < kItems && number < end) {
        sources[i] = args.rows + number * args.row_stride;
      }
    }
  }

  __device__ void deposit(uint32_t buffer) {
#pragma unroll
    for (uint32_t i = 0; i < kFetches; ++i) {
      const uint32_t task = threadIdx.x + i * kThreads;
      const uint32_t item = task / kQuads;
      if (item < kItems)
        shared.values[buffer][item][task % kQuads] =
            item < kPolicy.queries ? fetched[i] : unpacked(args.element, fetched[i]);
    }
  }

  __device__ void accumulate(uint32_t buffer) {
    add_lane(buffer, warp.thread_rank(), sums.low);
    add_lane(buffer, warp.thread_rank() + 32, sums.high);
  }

  __device__ void add_lane(uint32_t buffer, uint32_t lane, float* lane_sums) {
    const auto value = [&](uint32_t item) {
      return reinterpret_cast<const float*>(shared.values[buffer][item])[lane];
    };
    float queries[kWarpQueries];
    float rows[kWarpRows];
#pragma unroll
    for (uint32_t i = 0; i < kWarpQueries; ++i) queries[i] = value(warp_query + i);
#pragma unroll
    for (uint32_t i = 0; i < kWarpRows; ++i) rows[i] = value(kPolicy.queries + warp_row + i);
    LaneSums::add<kDot>(lane_sums, queries, rows);
  }

  __device__ void finish(uint32_t tile_row, uint32_t end) {
    const float sum = sums.fold(warp);
    const uint32_t pair = warp.thread_rank();
    const uint32_t query = warp_query + pair / kWarpRows;
    const uint32_t row = tile_row + warp_row + pair % kWarpRows;
    if (row < end && query_begin + query < args.query_count)
      candidates.consider(query, args.first_row + row, float_distance(args, sum, query_begin + query, row),
                          candidates.worst(query));
    sums.clear();
  }
};

/// A tile on tensor cores: a warp multiplies 32 queries with 32 rows, a lane 16 bytes of each of some of them.
template <class Sum, Policy kPolicyOfStep>
struct TensorTile {
  using Args = cuda::Args;
  static constexpr Policy kPolicy = kPolicyOfStep;
  static constexpr uint32_t kThreads = kPolicy.threads;
  static constexpr uint32_t kPieces = 4;  // of 16 bytes, in a panel of an item
  static constexpr uint32_t kWarpSide = 32;
  static constexpr uint32_t kStrips = kWarpSide / 16;  // of queries that an instruction multiplies
  static constexpr uint32_t kAcross = kWarpSide / 8;   // with so many rows
  static constexpr uint32_t kLaneQueries = 2 * kStrips;
  static constexpr uint32_t kLaneRows = 2 * kAcross;
  static constexpr uint32_t kItems = kPolicy.queries + kPolicy.rows;
  static constexpr uint32_t kFetches = kItems * kPieces / kThreads;
  static_assert(kThreads * kWarpSide == kPolicy.queries * kPolicy.rows);
  static_assert(kItems * kPieces % kThreads == 0);

  const Args& args;
  uint32_t lane = threadIdx.x % 32;
  uint32_t query_begin = blockIdx.x * kPolicy.queries;
  uint32_t warp_query = threadIdx.x / 32 % (kPolicy.queries / kWarpSide) * kWarpSide;
  uint32_t warp_row = threadIdx.x / 32 / (kPolicy.queries / kWarpSide) * kWarpSide;
  const uint8_t* sources[kFetches];  // vectors that this thread reads of, or null
  Sum sums[kStrips][kAcross][4] = {};

  __device__ explicit TensorTile(const Args& args) : args(args) {}

  /// Which item, queries first, the i-th piece of this thread belongs to.
  static __device__ uint32_t item_of(uint32_t i) { return (threadIdx.x + i * kThreads) / kPieces; }

  __device__ void aim(uint32_t row, uint32_t end) {
#pragma unroll
    for (uint32_t i = 0; i < kFetches; ++i) {
      const uint32_t item = item_of(i);
      const uint64_t query = uint64_t{query_begin} + item;
      const uint64_t number = uint64_t{row} + (item - kPolicy.queries);
      sources[i] = nullptr;
      if (item < kPolicy.queries) {
        if (query < args.query_count) sources[i] = args.queries + query * args.query_stride;
      } else if (number < end) {
        sources[i] = args.rows + number * args.row_stride;
      }
    }
  }

  /// Products do not ask in which order columns come: a lane takes the columns of one piece, which lie together, and
  /// uses its words where the instruction expects others, of queries as of rows.
  template <class Piece, class Multiply>
  __device__ void multiply_panel(const Piece (&pieces)[kItems][kPieces], const Multiply& multiply) {
    Piece queries[kStrips][2];
#pragma unroll
    for (uint32_t q = 0; q < kLaneQueries; ++q)
      queries[q / 2][q % 2] = pieces[warp_query + 8 * q + lane / 4][lane % 4];
#pragma unroll
    for (uint32_t across = 0; across < kAcross; ++across) {
      const Piece row = pieces[kPolicy.queries + warp_row + 8 * across + lane / 4][lane % 4];
#pragma unroll
      for (uint32_t strip = 0; strip < kStrips; ++strip) {
        const Piece& upper = queries[strip][0];
        const Piece& lower = queries[strip][1];
        multiply(sums[strip][across], {upper.x, lower.x, upper.y, lower.y}, {row.x, row.y});
        multiply(sums[strip][across], {upper.z, lower.z, upper.w, lower.w}, {row.z, row.w});
      }
    }
  }

  /// Of the lane's query `q` and row `i`.
  __device__ Sum sum(uint32_t q, uint32_t i) const { return sums[q / 2][i / 2][q % 2 * 2 + i % 2]; }
  __device__ uint32_t query_place(uint32_t q) const { return warp_query + 8 * q + lane / 4; }
  __device__ uint32_t row_place(uint32_t i) const { return warp_row + i / 2 * 8 + lane % 4 * 2 + i % 2; }
  __device__ void clear(uint32_t q) {
#pragma unroll
    for (uint32_t i = 0; i < kLaneRows; ++i) sums[q / 2][i / 2][q % 2 * 2 + i % 2] = 0;
  }
};

/// Sums of integers on tensor cores.
template <bool kSigned, Policy kPolicyOfStep>
struct IntegerSearch : TensorTile<int32_t, kPolicyOfStep> {
  using Tile = TensorTile<int32_t, kPolicyOfStep>;
  using Tile::args, Tile::kPolicy, Tile::kThreads, Tile::kPieces, Tile::kItems, Tile::kFetches;
  using Tile::kLaneQueries, Tile::kLaneRows, Tile::sources, Tile::query_begin, Tile::sum, Tile::row_place;
  static constexpr uint32_t kPanelColumns = 16 * kPieces;

  // The eight lanes that are served together read two items whole: 128 bytes side by side.
  struct Shared {
    uint4 pieces[2][kItems][kPieces];  // [buffer, queries then rows, 16 columns]
    typename Candidates<kPolicy>::Shared candidates;
  };

  Shared& shared;
  Candidates<kPolicy> candidates;
  uint4 fetched[kFetches];

  __device__ IntegerSearch(const Args& args, Shared& shared)
      : Tile(args), shared(shared), candidates{args, shared.candidates} {}

  __device__ void run() { for_each_tile<kPolicy>(args, *this, candidates); }

  __device__ void fetch(uint32_t row, uint32_t panel, uint32_t end) {
    if (panel == 0) Tile::aim(row, end);
    const uint32_t byte = panel * kPanelColumns + threadIdx.x % kPieces * 16;
#pragma unroll
    for (uint32_t i = 0; i < kFetches; ++i) {
      fetched[i] = {0, 0, 0, 0};
      if (sources[i] != nullptr && byte < args.row_stride)
        fetched[i] = *reinterpret_cast<const uint4*>(sources[i] + byte);
    }
  }

  __device__ void deposit(uint32_t buffer) {
#pragma unroll
    for (uint32_t i = 0; i < kFetches; ++i)
      shared.pieces[buffer][Tile::item_of(i)][threadIdx.x % kPieces] = fetched[i];
  }

  __device__ void accumulate(uint32_t buffer) {
    Tile::multiply_panel(shared.pieces[buffer],
                         [](int32_t(&sums)[4], const uint32_t(&left)[4], const uint32_t(&right)[2]) {
                           multiply_bytes<kSigned>(sums, left, right);
                         });
  }

  /// What belongs to rows and queries is read before the first candidate is written, so that the
  /// loads need not wait for each other.
  __device__ void finish(uint32_t tile_row, uint32_t end) {
    uint32_t row_squares[kLaneRows] = {};
    float norms[kLaneRows] = {};
#pragma unroll
    for (uint32_t i = 0; i < kLaneRows; ++i) {
      const uint32_t row = tile_row + row_place(i);
      if (row < end && args.metric == ANN_METRIC_L2) row_squares[i] = args.row_squares[row];
      if (row < end && args.metric == ANN_METRIC_COSINE) norms[i] = args.norms[row];
    }
#pragma unroll
    for (uint32_t q = 0; q < kLaneQueries; ++q) {
      const uint32_t place = Tile::query_place(q);
      const uint32_t query = query_begin + place;
      if (query < args.query_count) {
        const Key worst = candidates.worst(place);
        if (args.metric == ANN_METRIC_L2)
          consider_near(q, place, args.query_squares[query], row_squares, tile_row, end, worst);
        else
          consider_all(q, place, args.metric == ANN_METRIC_COSINE ? args.query_norms[query] : 0, norms,
                       tile_row, end, worst);
      }
      Tile::clear(q);
    }
  }

  /// Of most tiles no row is as near as the k-th best, which two instructions a pair tell: y.y - 2 x.y against
  /// what the distance of that one leaves. It is rounded up by more than floats round down.
  __device__ void consider_near(uint32_t q, uint32_t place, uint32_t square,
                                const uint32_t (&row_squares)[kLaneRows], uint32_t tile_row, uint32_t end,
                                Key worst) {
    const float farthest = worst == kNoKey ? INFINITY : distance_of(worst);
    const uint32_t bound = farthest < 2e9f ? __float2uint_ru(farthest) + 256 : uint32_t{INT32_MAX};
    const int32_t room = static_cast<int32_t>(bound - square);
    bool is_near = false;
#pragma unroll
    for (uint32_t i = 0; i < kLaneRows; ++i)
      is_near |= static_cast<int32_t>(row_squares[i] - 2 * static_cast<uint32_t>(sum(q, i))) <= room;
    if (!is_near) return;
#pragma unroll
    for (uint32_t i = 0; i < kLaneRows; ++i) {
      const uint32_t distance = row_squares[i] + square - 2 * static_cast<uint32_t>(sum(q, i));
      const uint32_t row = tile_row + row_place(i);
      if (row < end && distance <= bound)
        candidates.consider(place, args.first_row + row, static_cast<float>(distance), worst);
    }
  }

  __device__ void consider_all(uint32_t q, uint32_t place, double norm, const float (&norms)[kLaneRows],
                               uint32_t tile_row, uint32_t end, Key worst) {
#pragma unroll
    for (uint32_t i = 0; i < kLaneRows; ++i) {
      const uint32_t row = tile_row + row_place(i);
      if (row < end)
        candidates.consider(place, args.first_row + row,
                            to_distance(static_cast<float>(sum(q, i)), args.metric, norm, norms[i]), worst);
    }
  }
};

/// Sums in the CPU's lanes and order of four pairs of rows and queries of floats, by one warp: every lane gets all.
template <int32_t kElement, bool kDot>
__device__ float4 sums_of_pairs(const Args& args, const uint8_t* const (&rows)[4],
                                const float* const (&queries)[4]) {
  float low[4] = {};   // the CPU's lane t of each pair
  float high[4] = {};  // and t + 32
  const auto add = [&](float* sums, uint32_t column) {
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i)
      sums[i] = __fadd_rn(sums[i],
                          LaneSums::product<kDot>(float_at<kElement>(rows[i], column), queries[i][column]));
  };
  for (uint32_t column = threadIdx.x % 32; column < args.dim; column += LaneSums::kLanes) {
    add(low, column);
    if (column + 32 < args.dim) add(high, column + 32);
  }
  __syncwarp();
  return {fold_lanes(low[0], high[0]), fold_lanes(low[1], high[1]), fold_lanes(low[2], high[2]),
          fold_lanes(low[3], high[3])};
}

/// The same of rows of any float element, apart from its caller, whose registers it is not to take.
__device__ __noinline__ float4 sums_of_pairs(const Args& args, uint4 rows, uint4 queries) {
  const auto row = [&](uint32_t number) { return args.rows + uint64_t{number} * args.row_stride; };
  const auto query = [&](uint32_t number) {
    return reinterpret_cast<const float*>(args.queries + uint64_t{number} * args.query_stride);
  };
  const uint8_t* const from[4] = {row(rows.x), row(rows.y), row(rows.z), row(rows.w)};
  const float* const to[4] = {query(queries.x), query(queries.y), query(queries.z), query(queries.w)};
  const bool dot = args.metric != ANN_METRIC_L2;
  switch (args.element) {
    case ANN_F32:
      return dot ? sums_of_pairs<ANN_F32, true>(args, from, to)
                 : sums_of_pairs<ANN_F32, false>(args, from, to);
    case ANN_F16:
      return dot ? sums_of_pairs<ANN_F16, true>(args, from, to)
                 : sums_of_pairs<ANN_F16, false>(args, from, to);
    default:
      return dot ? sums_of_pairs<ANN_BF16, true>(args, from, to)
                 : sums_of_pairs<ANN_BF16, false>(args, from, to);
  }
}

/// Floats of many queries: tensor cores tell which pairs may be near enough, and only those are summed in the CPU's
/// lanes and order. What they tell is a bound that no distance lies below; how it comes about is said at the head.
template <Policy kPolicyOfStep>
struct FilteredSearch : TensorTile<float, kPolicyOfStep> {
  using Tile = TensorTile<float, kPolicyOfStep>;
  using Tile::args, Tile::kPolicy, Tile::kThreads, Tile::kPieces, Tile::kItems, Tile::kFetches;
  using Tile::kLaneQueries, Tile::kLaneRows, Tile::kWarpSide, Tile::sources, Tile::query_begin, Tile::lane;
  static constexpr uint32_t kPanelColumns = 4 * kPieces;
  static constexpr uint32_t kPairs = kWarpSide * kWarpSide;  // of a warp

  struct Shared {
    float4 pieces[2][kItems][kPieces];  // [buffer, queries then rows, four columns]
    typename BoundedCandidates<kPolicy>::Shared candidates;
  };

  // Pairs of a warp that may be near, query above row, until they are summed. Lists are sorted in this memory at
  // other times.
  using Pair = uint16_t;
  static_assert(kThreads / 32 * kPairs * sizeof(Pair) <= sizeof(Shared::candidates.keys));

  /// Of a metric, so that a pair may be near unless scale * q.x + row_term - query_share * length > room.
  struct QueryTerms {
    float share;
    float room;
  };
  struct RowTerms {
    float term;
    float length;
  };

  Shared& shared;
  BoundedCandidates<kPolicy> candidates;
  float4 fetched[kFetches];  // as of read_four
  float4 centre = {0, 0, 0, 0};

  __device__ FilteredSearch(const Args& args, Shared& shared)
      : Tile(args), shared(shared), candidates(args, shared.candidates) {}

  __device__ void run() { for_each_tile<kPolicy>(args, *this, candidates); }

  __device__ void fetch(uint32_t row, uint32_t panel, uint32_t end) {
    if (panel == 0) Tile::aim(row, end);
    const uint32_t column = panel * kPanelColumns + threadIdx.x % kPieces * 4;
    if (args.centre != nullptr) centre = *reinterpret_cast<const float4*>(args.centre + column);
#pragma unroll
    for (uint32_t i = 0; i < kFetches; ++i) {
      fetched[i] = {0, 0, 0, 0};
      if (sources[i] == nullptr) continue;
      if (Tile::item_of(i) < kPolicy.queries) {
        if (column * 4 < args.query_stride)
          fetched[i] = *reinterpret_cast<const float4*>(sources[i] + column * 4);
      } else if (column * element_bytes(args.element) < args.row_stride) {
        fetched[i] = read_four(args.element, sources[i], column);
      }
    }
  }

  __device__ void deposit(uint32_t buffer) {
#pragma unroll
    for (uint32_t i = 0; i < kFetches; ++i) {
      const uint32_t item = Tile::item_of(i);
      const float4 four = item < kPolicy.queries ? fetched[i] : unpacked(args.element, fetched[i]);
      shared.pieces[buffer][item][threadIdx.x % kPieces] = {
          round_to_tf32(__fsub_rn(four.x, centre.x)), round_to_tf32(__fsub_rn(four.y, centre.y)),
          round_to_tf32(__fsub_rn(four.z, centre.z)), round_to_tf32(__fsub_rn(four.w, centre.w))};
    }
  }

  __device__ void accumulate(uint32_t buffer) {
    Tile::multiply_panel(shared.pieces[buffer],
                         [](float(&sums)[4], const float(&left)[4], const float(&right)[2]) {
                           multiply_tf32(sums, left, right);
                         });
  }

  __device__ void finish(uint32_t tile_row, uint32_t end) {
    RowTerms rows[kLaneRows];
#pragma unroll
    for (uint32_t i = 0; i < kLaneRows; ++i) rows[i] = row_terms(tile_row + Tile::row_place(i), end);
    const float scale = args.metric == ANN_METRIC_L2 ? -2 : -1;
    uint32_t near = 0;  // a bit a pair of this lane
#pragma unroll
    for (uint32_t q = 0; q < kLaneQueries; ++q) {
      const uint32_t query = query_begin + Tile::query_place(q);
      if (query < args.query_count) {
        const QueryTerms terms = query_terms(query, candidates.bound(Tile::query_place(q)));
#pragma unroll
        for (uint32_t i = 0; i < kLaneRows; ++i) {
          const float beyond = fmaf(scale, Tile::sum(q, i), rows[i].term) - terms.share * rows[i].length;
          // Where something is no number, the pair may be near.
          if (tile_row + Tile::row_place(i) < end && !(beyond > terms.room))
            near |= 1u << (q * kLaneRows + i);
        }
      }
      Tile::clear(q);
    }
    if (__any_sync(kAllLanes, near != 0)) consider_near(near, tile_row);
  }

  /// As is_extreme says it, such lengths tell nothing.
  static __device__ float length_or_nothing(float length) {
    return length < kNormMin || length > kNormMax ? NAN : length;
  }

  __device__ RowTerms row_terms(uint32_t row, uint32_t end) const {
    if (row >= end) return {0, 0};
    if (args.metric == ANN_METRIC_COSINE) return {0, length_or_nothing(args.norms[row])};
    const float rounded = float_error(args.dim);
    const float square = __uint_as_float(args.row_squares[row]);
    if (args.metric == ANN_METRIC_INNER_PRODUCT) return {0, sqrtf(square) * (1 + rounded)};
    return {square * (1 - rounded), sqrtf(square) * (1 + rounded)};
  }

  __device__ QueryTerms query_terms(uint32_t query, uint32_t bound) const {
    const float farthest = bound == UINT32_MAX ? INFINITY : distance_of(Key{bound} << 32);
    const float rounded = float_error(args.dim);
    const float limit = farthest + fabsf(farthest) * rounded + kTiny;
    const float wrong = tf32_error(args.dim);
    if (args.metric == ANN_METRIC_COSINE) {
      const float length = length_or_nothing(static_cast<float>(args.query_norms[query]));
      return {(wrong + limit - 1 + rounded) * length, 0};
    }
    const float square = __uint_as_float(args.query_squares[query]);
    const float length = sqrtf(square) * (1 + rounded);
    if (args.metric == ANN_METRIC_INNER_PRODUCT) return {wrong * length, limit};
    return {2 * wrong * length, limit - square * (1 - rounded)};
  }

  /// Sums pairs that may be near, four at a time.
  __device__ void consider_near(uint32_t near, uint32_t tile_row) {
    Pair* pairs = reinterpret_cast<Pair*>(shared.candidates.keys) + threadIdx.x / 32 * kPairs;
    const uint32_t count = list_pairs(near, pairs);
    for (uint32_t first = 0; first < count; first += 4) {
      const auto pair = [&](uint32_t i) { return pairs[min(first + i, count - 1)]; };
      const auto row = [&](uint32_t i) { return tile_row + Tile::warp_row + pair(i) % kWarpSide; };
      const auto query = [&](uint32_t i) { return query_begin + Tile::warp_query + pair(i) / kWarpSide; };
      const float4 sums = sums_of_pairs(args, uint4{row(0), row(1), row(2), row(3)},
                                        uint4{query(0), query(1), query(2), query(3)});
      if (lane < 4 && first + lane < count) {
        const float sum = lane == 0 ? sums.x : lane == 1 ? sums.y : lane == 2 ? sums.z : sums.w;
        const uint32_t place = query(lane) - query_begin;
        candidates.consider(place, args.first_row + row(lane),
                            float_distance(args, sum, query(lane), row(lane)));
      }
    }
    __syncwarp();
  }

  /// Writes the lanes' pairs one behind the other; returns how many they are.
  __device__ uint32_t list_pairs(uint32_t near, Pair* pairs) const {
    const uint32_t own = __popc(near);
    uint32_t end = own;  // of this lane's
    for (uint32_t step = 1; step < 32; step *= 2) {
      const uint32_t before = __shfl_up_sync(kAllLanes, end, step);
      if (lane >= step) end += before;
    }
    uint32_t to = end - own;
    for (; near != 0; near &= near - 1) {
      const uint32_t bit = __ffs(static_cast<int>(near)) - 1;
      const uint32_t query = Tile::query_place(bit / kLaneRows) - Tile::warp_query;
      const uint32_t row = Tile::row_place(bit % kLaneRows) - Tile::warp_row;
      pairs[to++] = static_cast<Pair>(query * kWarpSide + row);
    }
    __syncwarp();
    return __shfl_sync(kAllLanes, end, 31);
  }
};

/// Merges the lists of a query, one a slice, and writes the results.
struct MergeLists {
  using Args = cuda::Args;
  static constexpr uint32_t kThreads = kMergeThreads;

  struct Shared {
    Key keys[kExactMax];  // [half] the best so far, ascending
  };

  const Args& args;
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
    const uint64_t place = uint64_t{slice} * args.query_count + blockIdx.x;
    const Key* list = args.lists + place * 2 * args.half;
    const uint32_t count = args.counts[place];
    if (count == 0) return;
    for (uint32_t i = threadIdx.x; i < args.half; i += kThreads) {
      const uint32_t other = args.half - 1 - i;
      if (other < count && Nearer{args.ids}(list[other], shared.keys[i])) shared.keys[i] = list[other];
    }
    block.sync();
    merge_runs(shared.keys, args.half, args.half, BlockSorts{}, Nearer{args.ids});
  }
};

struct CentreArgs {
  const uint8_t* rows;  // [row_count, row_stride] bytes
  float* centre;        // [columns]
  uint32_t row_count;
  uint32_t row_stride;
  uint32_t dim;
  uint32_t columns;  // those behind the last of a row are zero
  int32_t element;
};

/// The mean of some rows spread over all of them, a thread a column. It need not be the mean of all: distances are the
/// same about any point, and their bounds are the closer the nearer to the rows it lies.
struct Centre {
  using Args = CentreArgs;
  static constexpr uint32_t kThreads = 256;
  struct Shared {};

  const Args& args;
  Shared& shared;

  __device__ void run() const {
    const uint32_t column = blockIdx.x * kThreads + threadIdx.x;
    if (column >= args.columns) return;
    float sum = 0;
    const uint32_t count = min(kCentreRows, args.row_count);
    for (uint32_t i = 0; column < args.dim && i < count; ++i)
      sum +=
          float_of(args.element, args.rows + uint64_t{i} * args.row_count / count * args.row_stride, column);
    args.centre[column] = sum / static_cast<float>(count);
  }

  static __device__ float float_of(int32_t element, const uint8_t* row, uint32_t column) {
    if (element == ANN_F32) return float_at<ANN_F32>(row, column);
    return element == ANN_F16 ? float_at<ANN_F16>(row, column) : float_at<ANN_BF16>(row, column);
  }
};

struct SquareArgs {
  const uint8_t* items;  // [count, stride] bytes
  const float* centre;   // of floats: what is subtracted of each column, or null
  uint32_t* squares;     // [count] of floats their bits
  uint32_t count;
  uint32_t stride;
  uint32_t dim;
  int32_t element;
};

/// x.x of vectors, or of x - centre, a warp for each, which waits for memory whatever the element is.
struct Squares {
  using Args = SquareArgs;
  static constexpr uint32_t kThreads = kSquareThreads;
  struct Shared {};

  const Args& args;
  Shared& shared;
  cg::thread_block_tile<32> warp = cg::tiled_partition<32>(cg::this_thread_block());

  __device__ void run() {
    const uint64_t item = uint64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32;
    if (item >= args.count) return;
    const uint8_t* vector = args.items + item * args.stride;
    uint32_t sum =
        is_float_element(args.element) ? __float_as_uint(add_floats(vector)) : add_integers(vector);
    if (warp.thread_rank() == 0) args.squares[item] = sum;
  }

  __device__ uint32_t add_integers(const uint8_t* vector) const {
    const uint32_t* words = reinterpret_cast<const uint32_t*>(vector);
    uint32_t sum = args.element == ANN_I8 ? add_up<true>(words) : add_up<false>(words);
    for (uint32_t half = 16; half != 0; half /= 2) sum += warp.shfl_xor(sum, half);
    return sum;
  }

  template <bool kSigned>
  __device__ uint32_t add_up(const uint32_t* words) const {
    uint32_t sum = 0;
    for (uint32_t i = warp.thread_rank(); i < args.stride / 4; i += 32)
      sum = add_products<kSigned>(words[i], words[i], sum);
    return sum;
  }

  __device__ float add_floats(const uint8_t* vector) const {
    float sum = 0;
    for (uint32_t column = warp.thread_rank(); column < args.dim; column += 32) {
      const float value = Centre::float_of(args.element, vector, column);
      const float difference = args.centre != nullptr ? __fsub_rn(value, args.centre[column]) : value;
      sum = fmaf(difference, difference, sum);
    }
    for (uint32_t half = 16; half != 0; half /= 2) sum += warp.shfl_xor(sum, half);
    return sum;
  }
};

template <class Step>
__global__ void __launch_bounds__(Step::kThreads) kernel(const __grid_constant__ typename Step::Args args) {
  __shared__ typename Step::Shared shared;
  Step{args, shared}.run();
}

// --- Host ----------------------------------------------------------------------------------------

/// A search kernel and its tile.
struct Choice {
  void (*function)(Args);
  Policy policy;
  uint32_t panel_columns;
  uint64_t launch_work;  // pairs x columns of a launch, for some 10 to 20 ms on a large device
};

template <class Step>
Choice floats() {
  return {kernel<Step>, Step::kPolicy, Step::kLanes, uint64_t{1} << 35};
}
template <class Step>
Choice tensor_tiles(uint64_t launch_work) {
  return {kernel<Step>, Step::kPolicy, Step::kPanelColumns, launch_work};
}
template <class Step>
Choice integers() {
  return tensor_tiles<Step>(uint64_t{1} << 39);
}

Choice choose(int32_t element, int32_t metric, bool few) {
  if (is_float_element(element)) {
    // Where nearly all pairs may be near, it takes as long as the sums of all: 16 times a launch's usual time.
    if (!few) return tensor_tiles<FilteredSearch<kFloatMany>>(uint64_t{1} << 37);
    return metric == ANN_METRIC_L2 ? floats<FloatSearch<false, kFloatFew>>()
                                   : floats<FloatSearch<true, kFloatFew>>();
  }
  if (element == ANN_I8)
    return few ? integers<IntegerSearch<true, kIntegerFew>>() : integers<IntegerSearch<true, kIntegerMany>>();
  return few ? integers<IntegerSearch<false, kIntegerFew>>() : integers<IntegerSearch<false, kIntegerMany>>();
}

uint64_t ceil_div(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

constexpr uint32_t kBatchMax = 4096;                   // queries answered together
constexpr uint64_t kBatchColumns = uint64_t{1} << 24;  // of all queries of a batch
constexpr uint64_t kLaunchRowsMin = 4096;
constexpr uint64_t kCopyBytes = uint64_t{64} << 20;  // sent between two looks at the monitor

/// Sends `count` vectors of `bytes` bytes, `from_stride` apart, to the device, zeros behind each.
void send(const uint8_t* from, size_t from_stride, uint64_t count, size_t bytes, uint8_t* to,
          size_t to_stride, const Stream& stream, const Execution& execution) {
  if (bytes != to_stride) fill(to, 0, count * to_stride, stream, "clearing device memory");
  const uint64_t step = std::max<uint64_t>(1, kCopyBytes / to_stride);
  for (uint64_t first = 0; first < count; first += step) {
    execution.check();
    copy_rows(to + first * to_stride, to_stride, from + first * from_stride, from_stride, bytes,
              std::min(step, count - first), cudaMemcpyHostToDevice, stream, "sending vectors to the device");
  }
}

template <class Item>
void send_items(const Item* from, uint64_t count, Item* to, const Stream& stream,
                const Execution& execution) {
  send(reinterpret_cast<const uint8_t*>(from), sizeof(Item), count, sizeof(Item),
       reinterpret_cast<uint8_t*>(to), sizeof(Item), stream, execution);
}

/// One request on its way. Members are in the order in which they take device memory.
class Search {
 public:
  Search(const ExactRequest& request, uint32_t kept, bool resident, const Execution& execution,
         const Stream& stream)
      : request_(request),
        execution_(execution),
        stream_(stream),
        on_device_(resident),
        rows_there_(resident || request.rows_are_there),
        kept_(kept),
        few_(request.query_count <= few_queries(is_float_element(request.rows.element))),
        choice_(choose(request.rows.element, request.metric, few_)),
        is_integer_(!is_float_element(request.rows.element)),
        filtered_(!is_integer_ && !few_),
        squared_(is_integer_ ? request.metric == ANN_METRIC_L2
                             : filtered_ && request.metric != ANN_METRIC_COSINE),
        centred_(filtered_ && request.metric == ANN_METRIC_L2),
        cosine_(request.metric == ANN_METRIC_COSINE),
        row_bytes_(size_t{request.rows.dim} * element_bytes(request.rows.element)),
        row_stride_(rows_there_ ? request.rows.stride : round_up(row_bytes_, kRowAlign)),
        query_bytes_(size_t{request.rows.dim} * (is_integer_ ? 1 : 4)),
        query_stride_(resident ? request.query_stride : pick_query_stride()),
        batch_(static_cast<uint32_t>(std::min<uint64_t>(
            request.query_count, std::clamp<uint64_t>(kBatchColumns / request.rows.dim, 1, kBatchMax)))),
        half_(round_up_to_power(std::max(kept, filtered_ ? kExactFilteredHalfMin : kHalfMin))),
        slices_(pick_slices()),
        queries_(resident ? 0 : batch_ * query_stride_, stream),
        query_norms_(cosine_ && !resident ? batch_ : 0, stream),
        query_squares_(squared_ ? batch_ : 0, stream),
        centre_(centred_ ? centre_columns() : 0, stream),
        bounds_(filtered_ ? uint64_t{batch_} * (1 + slices_) : 0, stream),
        ids_(request.ids != nullptr && !rows_there_ ? request.row_count : 0, stream),
        removed_(request.removed.empty() || resident ? 0 : RowSet::word_count(request.row_count), stream),
        lists_(uint64_t{slices_} * batch_ * 2 * half_, stream),
        counts_(uint64_t{slices_} * batch_, stream),
        out_rows_(resident ? 0 : uint64_t{batch_} * kept, stream),
        out_distances_(resident ? 0 : uint64_t{batch_} * kept, stream),
        chunk_rows_(rows_there_ ? request.row_count : pick_chunk_rows()),
        rows_(rows_there_ ? 0 : chunk_rows_ * row_stride_, stream),
        norms_(cosine_ && !rows_there_ ? chunk_rows_ : 0, stream),
        row_squares_(squared_ ? chunk_rows_ : 0, stream) {}

  void run() {
    execution_.enter("exact search");
    if (request_.ids != nullptr && !rows_there_)
      send_items(request_.ids, request_.row_count, ids_.data(), stream_, execution_);
    if (!request_.removed.empty() && !on_device_)
      send_items(request_.removed.words, RowSet::word_count(request_.row_count), removed_.data(), stream_,
                 execution_);
    for (uint64_t first = 0; first < request_.query_count; first += batch_) {
      const uint64_t left = request_.query_count - first;
      answer(first, static_cast<uint32_t>(std::min<uint64_t>(batch_, left)));
    }
  }

 private:
  static uint32_t round_up_to_power(uint32_t value) {
    uint32_t power = 1;
    while (power < value) power *= 2;
    return power;
  }

  /// Queries as long as rows, where rows lie on the device with more behind them than need be: integers of
  /// both are read to the end of a row.
  size_t pick_query_stride() const {
    const size_t stride = round_up(query_bytes_, kRowAlign);
    return is_integer_ ? std::max(stride, row_stride_) : stride;
  }

  uint64_t centre_columns() const {
    return round_up(uint64_t{request_.rows.dim}, uint64_t{choice_.panel_columns});
  }

  /// As many slices as give every multiprocessor its blocks.
  uint32_t pick_slices() const {
    const uint64_t fitting = blocks_at_once(request_.device, choice_.function, choice_.policy.threads);
    const uint64_t resident = filtered_ ? std::min<uint64_t>(fitting, kExactFloatBlocks) : fitting;
    const uint64_t tall = ceil_div(batch_, choice_.policy.queries);
    const uint64_t most = ceil_div(request_.row_count, kExactTilesOfSlice * choice_.policy.rows);
    return static_cast<uint32_t>(std::clamp<uint64_t>(resident / tall, 1, most));
  }

  /// As many rows as fit beside everything else, some memory left to others.
  uint64_t pick_chunk_rows() const {
    const uint64_t bytes = row_stride_ + (cosine_ ? sizeof(float) : 0) + (squared_ ? sizeof(uint32_t) : 0);
    stream_.wait();  // what is taken so far counts
    const uint64_t free_bytes = stream_.pool().free_bytes();
    uint64_t budget = free_bytes - free_bytes / 8;
    if (request_.chunk_bytes_max != 0) budget = std::min(budget, request_.chunk_bytes_max);
    const uint64_t fitting = std::max<uint64_t>(budget / bytes, 1);
    const uint64_t chunks = ceil_div(request_.row_count, fitting);
    return ceil_div(request_.row_count, chunks);
  }

  void answer(uint64_t first_query, uint32_t query_count) {
    Args args = {};
    args.query_squares = query_squares_.data();
    args.centre = centre_.data();
    args.bounds = bounds_.data();
    args.shares = filtered_ ? bounds_.data() + query_count : nullptr;
    args.share_rank = static_cast<uint32_t>(ceil_div(kept_, slices_));
    args.lists = lists_.data();
    args.counts = counts_.data();
    args.slices = slices_;
    args.query_count = query_count;
    args.row_stride = static_cast<uint32_t>(row_stride_);
    args.query_stride = static_cast<uint32_t>(query_stride_);
    args.dim = request_.rows.dim;
    args.k = kept_;
    args.half = half_;
    args.metric = request_.metric;
    if (!request_.removed.empty()) args.removed = {on_device_ ? request_.removed.words : removed_.data()};
    args.element = request_.rows.element;

    if (on_device_)
      point_to_queries(first_query, &args);
    else
      send_queries(first_query, &args);
    if (filtered_)
      fill(bounds_.data(), 0xff, uint64_t{query_count} * (1 + slices_) * sizeof(uint32_t), stream_,
           "clearing device memory");
    fill(counts_.data(), 0, uint64_t{slices_} * query_count * sizeof(uint32_t), stream_,
         "clearing device memory");

    for (uint64_t first_row = 0; first_row < request_.row_count; first_row += chunk_rows_) {
      const uint64_t row_count = std::min(chunk_rows_, request_.row_count - first_row);
      bring(first_row, row_count);
      // The centre is that of the first rows.
      if (squared_ && first_row == 0)
        square(args.queries, query_count, query_stride_,
               is_integer_ ? request_.rows.element : int32_t{ANN_F32}, query_squares_.data());
      compare(args, first_row, row_count, first_query);
    }

    launch("merge_lists", kernel<MergeLists>, query_count, MergeLists::kThreads, stream_, args);
    if (on_device_) return;
    receive(out_rows_.data(), request_.out_rows, first_query, query_count);
    receive(out_distances_.data(), request_.out_distances, first_query, query_count);
    stream_.wait();
  }

  void send_queries(uint64_t first, Args* args) {
    const uint8_t* queries = static_cast<const uint8_t*>(request_.queries);
    send(queries + first * query_bytes_, query_bytes_, args->query_count, query_bytes_, queries_.data(),
         query_stride_, stream_, execution_);
    if (request_.flip != 0)
      flip_and_square(queries_.data(), args->query_count, static_cast<uint32_t>(query_stride_), request_.flip,
                      nullptr, stream_);
    if (cosine_)
      send_items(request_.query_norms + first, args->query_count, query_norms_.data(), stream_, execution_);
    args->queries = queries_.data();
    args->query_norms = query_norms_.data();
    args->ids = rows_there_ ? request_.ids : ids_.data();
    args->out_rows = out_rows_.data();
    args->out_distances = out_distances_.data();
  }

  void point_to_queries(uint64_t first, Args* args) const {
    args->queries = static_cast<const uint8_t*>(request_.queries) + first * query_stride_;
    args->query_norms = cosine_ ? request_.query_norms + first : nullptr;
    args->ids = request_.ids;
    args->out_rows = request_.out_rows + first * kept_;
    args->out_distances = request_.out_distances + first * kept_;
  }

  /// Puts a chunk of rows on the device, unless it is there already.
  void bring(uint64_t first_row, uint64_t row_count) {
    if (first_row == chunk_first_row_) return;
    chunk_first_row_ = kNoPlace;
    if (rows_there_) {
      measure(row_count);
      chunk_first_row_ = first_row;
      return;
    }
    send(request_.rows.row(first_row), request_.rows.stride, row_count, row_bytes_, rows_.data(), row_stride_,
         stream_, execution_);
    if (cosine_) send_items(request_.norms + first_row, row_count, norms_.data(), stream_, execution_);
    measure(row_count);
    chunk_first_row_ = first_row;
  }

  /// What is to be known of a chunk of rows. The centre of the first serves all.
  void measure(uint64_t row_count) {
    if (centred_ && !has_centre_) {
      const CentreArgs args = {row_data(),
                               centre_.data(),
                               static_cast<uint32_t>(row_count),
                               static_cast<uint32_t>(row_stride_),
                               request_.rows.dim,
                               static_cast<uint32_t>(centre_columns()),
                               request_.rows.element};
      launch("centre", kernel<Centre>, static_cast<uint32_t>(ceil_div(args.columns, Centre::kThreads)),
             Centre::kThreads, stream_, args);
      has_centre_ = true;
    }
    if (squared_) square(row_data(), row_count, row_stride_, request_.rows.element, row_squares_.data());
  }

  const uint8_t* row_data() const {
    return rows_there_ ? static_cast<const uint8_t*>(request_.rows.data) : rows_.data();
  }
  const float* norm_data() const { return rows_there_ ? request_.norms : norms_.data(); }

  void square(const uint8_t* items, uint64_t count, size_t stride, int32_t element, uint32_t* squares) {
    const SquareArgs args = {items,
                             centre_.data(),
                             squares,
                             static_cast<uint32_t>(count),
                             static_cast<uint32_t>(stride),
                             request_.rows.dim,
                             element};
    const uint32_t blocks = static_cast<uint32_t>(ceil_div(count, kSquareThreads / 32));
    launch("squares", kernel<Squares>, blocks, kSquareThreads, stream_, args);
  }

  /// Compares the batch with a chunk of rows, in launches short enough for the monitor.
  void compare(const Args& args, uint64_t first_row, uint64_t row_count, uint64_t first_query) {
    const uint64_t first_rows = filtered_ && first_row == 0 ? std::min(row_count, rows_without_bounds()) : 0;
    if (first_rows != 0)
      launch_part(choose(request_.rows.element, request_.metric, true), 1, args, first_row, 0, first_rows);
    const uint64_t columns = uint64_t{args.query_count} * args.dim;
    const uint64_t launch_rows = std::max(kLaunchRowsMin, choice_.launch_work / columns);
    const uint64_t parts = ceil_div(row_count - first_rows, launch_rows);
    for (uint64_t part = 0; part < parts; ++part) {
      const uint64_t part_rows = ceil_div(row_count - first_rows, parts);
      const uint64_t row = first_rows + part * part_rows;
      const uint64_t count = std::min(part_rows, row_count - row);
      if (!on_device_) execution_.check();
      launch_part(choice_, slices_, args, first_row, row, count);
      if (on_device_) continue;
      if (parts > 1) stream_.wait();
      const double rows_done = static_cast<double>(first_row + row + count);
      const double queries_done =
          static_cast<double>(first_query) + args.query_count * (rows_done / request_.row_count);
      execution_.advance(queries_done / request_.query_count);
    }
  }

  /// Rows whose distances are summed without asking, since without a bound all may be near. A twelfth of them is
  /// nearer than the bound that they leave.
  uint64_t rows_without_bounds() const {
    return round_up(std::clamp<uint64_t>(uint64_t{12} * kept_, 256, 2048), uint64_t{32});
  }

  /// Compares with `row_count` rows of a chunk from `row` on.
  void launch_part(const Choice& choice, uint32_t slices, Args args, uint64_t first_row, uint64_t row,
                   uint64_t row_count) const {
    args.rows = row_data() + row * row_stride_;
    args.norms = cosine_ ? norm_data() + row : nullptr;
    args.row_squares = squared_ ? row_squares_.data() + row : nullptr;
    args.first_row = static_cast<uint32_t>(first_row + row);
    args.row_count = static_cast<uint32_t>(row_count);
    args.panels = static_cast<uint32_t>(ceil_div(args.dim, choice.panel_columns));
    args.slice_rows =
        static_cast<uint32_t>(round_up(ceil_div(row_count, slices), uint64_t{choice.policy.rows}));
    const dim3 grid(static_cast<uint32_t>(ceil_div(args.query_count, choice.policy.queries)), slices);
    launch("exact_search", choice.function, grid, choice.policy.threads, stream_, args);
  }

  template <class Item>
  void receive(const Item* from, Item* to, uint64_t first_query, uint32_t query_count) {
    copy_rows(to + first_query * request_.k, request_.k * sizeof(Item), from, kept_ * sizeof(Item),
              kept_ * sizeof(Item), query_count, cudaMemcpyDeviceToHost, stream_,
              "fetching results from the device");
  }

  const ExactRequest& request_;
  const Execution& execution_;
  const Stream& stream_;
  bool on_device_;   // everything: nothing is sent, fetched or waited for
  bool rows_there_;  // rows, lengths and ids
  uint32_t kept_;    // results of a query that exist
  bool few_;         // queries
  Choice choice_;
  bool is_integer_;
  bool filtered_;  // by tensor cores
  bool squared_;
  bool centred_;
  bool has_centre_ = false;
  bool cosine_;
  size_t row_bytes_;
  size_t row_stride_;
  size_t query_bytes_;
  size_t query_stride_;
  uint32_t batch_;
  uint32_t half_;
  uint32_t slices_;
  uint64_t chunk_first_row_ = kNoPlace;  // first row of the chunk on the device

  DeviceArray<uint8_t> queries_;         // [batch, query_stride]
  DeviceArray<double> query_norms_;      // [batch]
  DeviceArray<uint32_t> query_squares_;  // [batch]
  DeviceArray<float> centre_;            // [centre_columns]
  DeviceArray<uint32_t> bounds_;         // [batch] and [slices, batch]
  DeviceArray<uint64_t> ids_;            // [rows]
  DeviceArray<uint32_t> removed_;        // [(rows + 31) / 32] bits
  DeviceArray<Key> lists_;               // [slices, batch, 2 * half]
  DeviceArray<uint32_t> counts_;         // [slices, batch]
  DeviceArray<uint32_t> out_rows_;       // [batch, kept]
  DeviceArray<float> out_distances_;     // [batch, kept]
  uint64_t chunk_rows_;
  DeviceArray<uint8_t> rows_;          // [chunk_rows, row_stride]
  DeviceArray<float> norms_;           // [chunk_rows]
  DeviceArray<uint32_t> row_squares_;  // [chunk_rows]
};

}  // namespace

void search_exact(const ExactRequest& request, const Execution& execution) {
  check_cuda_device(ANN_DEVICE_CUDA + request.device);
  const uint32_t kept = std::min(request.k, request.row_count);
  if (kept > kExactMax)
    fail(ANN_UNSUPPORTED, "k is %u; exact search on a CUDA device keeps at most %u rows a query", request.k,
         kExactMax);

  for (uint64_t query = 0; kept < request.k && query < request.query_count; ++query) {
    std::fill(request.out_rows + query * request.k + kept, request.out_rows + (query + 1) * request.k,
              UINT32_MAX);
    std::fill(request.out_distances + query * request.k + kept,
              request.out_distances + (query + 1) * request.k, INFINITY);
  }
  if (kept == 0 || request.query_count == 0) return;

  const DeviceGuard guard(request.device);
  const Stream stream;
  Search(request, kept, false, execution, stream).run();
}

void search_exact_resident(const ExactRequest& request, const Stream& stream, const Execution& execution) {
  if (request.k > kExactMax)
    fail(ANN_UNSUPPORTED, "k is %u; exact search on a CUDA device keeps at most %u rows a query", request.k,
         kExactMax);
  Search(request, request.k, true, execution, stream).run();
}

}  // namespace gannet::cuda
