// TSDG's two stages on the GPU; graph/diversify.h describes them, and the CPU's are equal.
//
//   paper                           here
//   NN list of x0                   `ids`, sorted by `keys` (distance << 32 | row)
//   m(x0, xj) / alpha               `near`, alpha on squares
//   edges kept so far               the first places of `ids`; those behind are not occluded yet
//   lambda                          `lambda`, counted by atomics, which are sums and know no order
//
// A block has a row. All pairs of its edges are compared on tensor cores where rows are bytes of up to 256 columns
// (pair_products_cuda.cuh). In stage one that gives a bit for each pair, whether one occludes the other, and a warp
// then goes from edge to edge, with 32 of them in a lane: where an edge is left, those that it occludes go. In stage
// two the pairs of a column are counted in registers.
//
// Longer rows are compared pair by pair: in stage one a block goes from kept edge to kept edge, compares its end with
// the ends behind it, and those that it occludes are squeezed out, by votes, in order.
//
// Rows come in chunks, of which lists, sorted rows and prefixes are on the device; the edges kept by stage one are
// there for all rows, forward and reversed. A hub's incoming edges pass a buffer of twice `reverse_max`, whose nearer
// half stays.
//
// Sketch for SIFT 1M, lists of 200, of which stage one keeps some 80 and stage two sees some 130. Stage one gathers 200
// rows three times, for their distances to the row, as columns and as panels: 77 KB a row, mostly from the second
// cache, 77 GB in all; all 19,900 pairs are 230 products of 16 x 8 x 32 and 1,400 shared words of 4 bytes a lane; going
// from edge to edge waits 200 times some 50 clocks, with six blocks a multiprocessor. Stage two gathers 50 KB a row for
// 8,500 pairs. One NVIDIA H200 takes 91 ms for stage one and 95 for stage two, of which leaving rows for the host takes
// 53 without factors. Pair by pair, 8 lanes each, stage one compared 6,000 pairs and both moved 1.8 MB a row through
// the caches, in 197 and 354 ms.
//
// SSG's candidates, a row's neighbours and theirs, are some 40,000 of lists of 200, 5,000 to 10,000 of them different.
// A table of 4,096 in shared memory keeps most repetitions from being compared; each that is left costs 128 bytes and
// its share of a sort of 1,024 keys.
//
// Wide codes (rare) are summed in the CPU's lanes (distance/lanes_cuda.h), many times slower.

#include "graph/diversify_cuda.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "backend/launch_items.cuh"
#include "distance/byte_teams_cuda.cuh"
#include "distance/lanes_cuda.h"
#include "graph/pair_products_cuda.cuh"
#include "graph/search_graph_cuda.h"
#include "traverse/shared_sort_cuda.h"
#include "traverse/walk_steps.cuh"

namespace gannet::cuda {
namespace {

constexpr uint32_t kThreads = 128;
constexpr uint32_t kWarps = kThreads / kWarp;
constexpr uint32_t kTeam = 8;  // lanes that compare two rows of bytes
constexpr uint64_t kNoKey = UINT64_MAX;
constexpr double kPi = 3.14159265358979323846;
constexpr uint32_t kSharedUsual = 40 << 10;  // bytes of a block that are always allowed
constexpr uint32_t kSharedDeclared = 1 << 10;

constexpr uint32_t power_of_two(uint32_t least) {
  uint32_t size = kWarp;
  while (size < least) size *= 2;
  return size;
}

__host__ __device__ constexpr uint32_t id_of(uint64_t key) { return static_cast<uint32_t>(key); }
__host__ __device__ constexpr uint32_t distance_in(uint64_t key) { return static_cast<uint32_t>(key >> 32); }

// --- A block compares a row with others ------------------------------------------------------------

template <bool kWide>
struct Comparison {
  const CodesView& codes;

  /// Calls take(place, distance) once for each of others[0 ... count), on some lane.
  template <class Take>
  __device__ void compare(uint32_t row, const uint32_t* others, uint32_t count, const Take& take) const {
    if constexpr (kWide)
      compare_floats(row, others, count, take);
    else
      compare_bytes(row, others, count, take);
  }

 private:
  template <class Take>
  __device__ void compare_bytes(uint32_t row, const uint32_t* others, uint32_t count,
                                const Take& take) const {
    const uint32_t square = __ldg(codes.squares + row);
    const ByteTeams<kTeam, ByteSum::kProduct> teams = {codes.row(row), codes.stride, threadIdx.x,
                                                       kThreads / kTeam};
    teams.compare(
        count, [&](uint32_t place) { return codes.row(others[place]); },
        [&](uint32_t place, uint32_t product) {
          take(place, square + __ldg(codes.squares + others[place]) - 2 * product);
        });
  }

  /// Eight rows a warp at a time: of 8 x 4 pairs those with the first of four rows count.
  template <class Take>
  __device__ void compare_floats(uint32_t row, const uint32_t* others, uint32_t count,
                                 const Take& take) const {
    const Warp warp = cooperative_groups::tiled_partition<kWarp>(cooperative_groups::this_thread_block());
    const float* right[LaneSums::kRight] = {floats_of(row)};
    for (uint32_t base = threadIdx.x / kWarp * LaneSums::kLeft; base < count;
         base += kWarps * LaneSums::kLeft) {
      const float* left[LaneSums::kLeft];
#pragma unroll
      for (uint32_t i = 0; i < LaneSums::kLeft; ++i)
        left[i] = base + i < count ? floats_of(others[base + i]) : nullptr;
      const float distance = wide_distances(left, right, codes.stride / sizeof(float), warp);
      const uint32_t place = base + lane_number() / LaneSums::kRight;
      if (lane_number() % LaneSums::kRight == 0 && place < count) take(place, __float_as_uint(distance));
    }
  }

  __device__ const float* floats_of(uint32_t row) const {
    return reinterpret_cast<const float*>(codes.row(row));
  }
};

/// Moves the values that stay, of those that a block's threads hold, in their order, behind the values moved before.
struct Squeeze {
  uint32_t* counts;  // [kWarps]

  /// The place of this thread's value, if it stays; `end` moves on. Values are to have been read before, and may be
  /// written afterwards.
  __device__ uint32_t place(bool stays, uint32_t& end) const {
    const uint32_t mask = __ballot_sync(kAllLanes, stays);
    if (lane_number() == 0) counts[threadIdx.x / kWarp] = __popc(mask);
    __syncthreads();
    uint32_t before = end;
#pragma unroll
    for (uint32_t warp = 0; warp < kWarps; ++warp) {
      if (warp < threadIdx.x / kWarp) before += counts[warp];
      end += counts[warp];
    }
    return before + __popc(mask & lanes_before());
  }
};

/// Inequality 1: lambda[j] counts the edges nearer than j whose ends are nearer to the end of j than the row is. `near`
/// has the edges' lengths, which ascend; lambda is cleared.
template <bool kWide>
__device__ void count_occluders(const Comparison<kWide>& rows, const uint32_t* ids, const uint32_t* near,
                                uint32_t count, uint32_t* lambda) {
  uint32_t farther = 0;
  for (uint32_t i = 0; i < count; ++i) {
    farther = max(farther, i + 1);
    while (farther < count && near[farther] == near[i]) ++farther;
    if (farther == count) break;
    rows.compare(ids[i], ids + farther, count - farther, [&](uint32_t place, uint32_t distance) {
      if (distance < near[farther + place]) atomicAdd(lambda + farther + place, 1u);
    });
  }
  __syncthreads();
}

/// A strip's part of the same, by products.
struct OccluderCounts {
  const uint32_t* near;
  const uint32_t* squares;
  uint32_t* lambda;
  uint32_t count;
  uint32_t begin;  // of the strip
  uint32_t bounds[4][2];
  uint32_t own[4][2];
  uint32_t counts[4][2];

  __device__ OccluderCounts(const uint32_t* lengths, const uint32_t* of, uint32_t* to, uint32_t edges,
                            uint32_t strip)
      : near(lengths), squares(of), lambda(to), count(edges), begin(strip * kStripRows) {
#pragma unroll
    for (uint32_t n = 0; n < 4; ++n) {
#pragma unroll
      for (uint32_t c = 0; c < 2; ++c) {
        const uint32_t j = begin + strip_column(n, c);
        bounds[n][c] = j < count ? near[j] : 0;
        own[n][c] = j < count ? squares[j] : 0;
        counts[n][c] = 0;
      }
    }
  }

  __device__ void take(const PairTile& tile) {
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      const uint32_t i = tile.row(2 * half);
      if (i >= count) continue;
      const uint32_t length = near[i];
      const uint32_t square = squares[i];
#pragma unroll
      for (uint32_t n = 0; n < 4; ++n) {
#pragma unroll
        for (uint32_t c = 0; c < 2; ++c) {
          const uint32_t bound = bounds[n][c];
          const uint32_t distance =
              square + own[n][c] - 2 * static_cast<uint32_t>(tile.sums[n][2 * half + c]);
          counts[n][c] += length < bound && distance < bound ? 1 : 0;
        }
      }
    }
  }

  __device__ void done() const {
#pragma unroll
    for (uint32_t n = 0; n < 4; ++n) {
#pragma unroll
      for (uint32_t c = 0; c < 2; ++c) {
        uint32_t sum = counts[n][c];
#pragma unroll
        for (uint32_t lanes = 4; lanes < kWarp; lanes *= 2) sum += __shfl_xor_sync(kAllLanes, sum, lanes);
        const uint32_t j = begin + strip_column(n, c);
        if (lane_number() < 4 && j < count) lambda[j] += sum;
      }
    }
  }
};

/// count_occluders for rows of bytes. `squares` is room for `count`.
template <uint32_t kSteps>
__device__ void count_by_products(const CodesView& codes, uint8_t* panel, const uint32_t* ids,
                                  const uint32_t* near, uint32_t count, uint32_t* squares, uint32_t* lambda) {
  for (uint32_t i = threadIdx.x; i < count; i += kThreads) squares[i] = __ldg(codes.squares + ids[i]);
  PairProducts<kSteps, kWarps>{codes, panel}.each_strip(
      ids, count, [&](uint32_t strip) { return OccluderCounts(near, squares, lambda, count, strip); });
}

// --- Stage one -------------------------------------------------------------------------------------

struct PruneArgs {
  CodesView codes;
  const uint32_t* all;  // SSG: [rows, k] the lists of all rows
  uint32_t* lists;    // [count, stride] lists of rows from `first` on, of SSG empty; then kept edges of each
  uint32_t* lengths;  // [count] edges that stay
  unsigned long long* totals;  // [4] edges given, kept, joined, soft
  uint32_t first;
  uint32_t count;
  uint32_t k;
  uint32_t stride;  // places of a row in `lists`
  uint32_t size;    // keys of a block: the power of two from k on; of SSG from `pool` on, a chunk at least
  uint32_t method;  // ANN_DIVERSIFY_*
  double square;    // alpha on squares
  uint32_t pool;    // SSG: candidates of a row
  double cosine;    // SSG: of the angle
};

struct PruneShared {
  uint32_t counts[kWarps];
  uint32_t length;
  uint32_t kept[kWarp];  // a bit for each edge
};

/// Which of the rows i before a strip occlude which of its rows: a word of bits for each i.
struct OcclusionBits {
  const uint64_t* keys;
  const uint32_t* squares;
  uint32_t* bits;  // [count, words]
  uint32_t words;
  uint32_t count;
  uint32_t strip;
  bool takes_any;  // VAMANA asks nothing of the length of the edge that occludes
  uint32_t near[4][2];
  uint32_t own[4][2];

  __device__ OcclusionBits(const uint64_t* sorted, const uint32_t* bounds, const uint32_t* of, uint32_t* to,
                           uint32_t stride, uint32_t edges, uint32_t number, bool any)
      : keys(sorted), squares(of), bits(to), words(stride), count(edges), strip(number), takes_any(any) {
#pragma unroll
    for (uint32_t n = 0; n < 4; ++n) {
#pragma unroll
      for (uint32_t c = 0; c < 2; ++c) {
        const uint32_t j = strip * kStripRows + strip_column(n, c);
        near[n][c] = j < count ? bounds[j] : 0;
        own[n][c] = j < count ? squares[j] : 0;
      }
    }
  }

  __device__ void take(const PairTile& tile) const {
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      const uint32_t i = tile.row(2 * half);
      uint32_t word = 0;
      if (i < count) {
        const uint32_t length = distance_in(keys[i]);
        const uint32_t square = squares[i];
#pragma unroll
        for (uint32_t n = 0; n < 4; ++n) {
#pragma unroll
          for (uint32_t c = 0; c < 2; ++c) {
            const uint32_t column = strip_column(n, c);
            const uint32_t bound = near[n][c];
            const uint32_t distance =
                square + own[n][c] - 2 * static_cast<uint32_t>(tile.sums[n][2 * half + c]);
            const bool occludes = distance < bound && (takes_any || length < bound);
            word |= (occludes && strip * kStripRows + column > i ? 1u : 0u) << column;
          }
        }
      }
      word |= __shfl_xor_sync(kAllLanes, word, 1);
      word |= __shfl_xor_sync(kAllLanes, word, 2);
      if (lane_number() % 4 == 0 && i < count) bits[i * words + strip] = word;
    }
  }

  __device__ void done() const {}
};

template <bool kWide, uint32_t kSteps>
struct Pruning {
  const PruneArgs& args;
  PruneShared& shared;
  uint64_t* keys;     // [size], of SSG twice that
  uint32_t* ids;      // [size] rows: those kept, then those that nothing has occluded yet
  uint32_t* places;   // [size] of their keys
  uint32_t* numbers;  // [size] distances
  uint8_t* panel;     // of products; null without them
  uint32_t* bits;     // [size, size / 32] likewise
  uint32_t row = args.first + blockIdx.x;
  uint32_t* list = args.lists + uint64_t{blockIdx.x} * args.stride;
  Comparison<kWide> rows{args.codes};

  __device__ void run() {
    const uint32_t count = read_list();
    sort(count);
    if (args.method == ANN_DIVERSIFY_DPG)
      write(count, keep_least_occluded(count));
    else if constexpr (kSteps != 0)
      write(count, keep_by_bits(count));
    else
      write(count, keep_unoccluded(count, count, [&](uint32_t own, uint32_t other, uint32_t between) {
              const uint32_t bound = near(other);
              const bool is_nearer = args.method == ANN_DIVERSIFY_VAMANA || own < bound;
              return is_nearer && between < bound;
            }));
  }

  __device__ void write(uint32_t given, uint32_t kept) {
    for (uint32_t i = threadIdx.x; i < kept; i += kThreads) list[i] = ids[i];
    if (threadIdx.x != 0) return;
    args.lengths[blockIdx.x] = kept;
    atomicAdd(args.totals, given);
    atomicAdd(args.totals + 1, kept);
  }

  /// Goes from kept edge to kept edge, until `most` are kept; occludes(own, other, between) gets the lengths of two
  /// edges and of the way between their ends.
  template <class Occludes>
  __device__ uint32_t keep_unoccluded(uint32_t count, uint32_t most, const Occludes& occludes) {
    const Squeeze squeeze{shared.counts};
    uint32_t left = count;
    for (uint32_t kept = 0; kept + 1 < left; ++kept) {
      if (kept + 1 == most) return most;
      const uint32_t own = distance_in(keys[places[kept]]);
      const uint32_t behind = kept + 1;
      rows.compare(ids[kept], ids + behind, left - behind,
                   [&](uint32_t place, uint32_t distance) { numbers[place] = distance; });
      __syncthreads();
      uint32_t end = behind;
      for (uint32_t first = behind; first < left; first += kThreads) {
        const uint32_t i = first + threadIdx.x;
        uint32_t place = 0;
        uint32_t id = 0;
        bool stays = false;
        if (i < left) {
          place = places[i];
          id = ids[i];
          stays = !occludes(own, distance_in(keys[place]), numbers[i - behind]);
        }
        const uint32_t to = squeeze.place(stays, end);
        if (stays) {
          places[to] = place;
          ids[to] = id;
        }
        __syncthreads();
      }
      left = end;
    }
    return left;
  }

 private:
  __device__ uint32_t read_list() {
    if (threadIdx.x == 0) shared.length = args.k;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < args.k; i += kThreads) {
      ids[i] = list[i];
      if (ids[i] == kNoRow) atomicMin(&shared.length, i);
    }
    for (uint32_t i = threadIdx.x; i < args.size; i += kThreads) keys[i] = kNoKey;
    __syncthreads();
    return shared.length;
  }

  __device__ void sort(uint32_t count) {
    rows.compare(row, ids, count, [&](uint32_t place, uint32_t distance) {
      keys[place] = uint64_t{distance} << 32 | ids[place];
    });
    __syncthreads();
    sort_shared(keys, args.size, BlockSorts{});
    for (uint32_t i = threadIdx.x; i < count; i += kThreads) {
      ids[i] = id_of(keys[i]);
      places[i] = i;
    }
    __syncthreads();
  }

  /// Distances below it times alpha are below this one.
  __device__ uint32_t near(uint32_t distance) const {
    const bool takes_equal = args.method == ANN_DIVERSIFY_VAMANA;
    if constexpr (kWide) {
      const double bound = __ddiv_rn(__uint_as_float(distance), args.square);
      return __float_as_uint(__double2float_rn(bound)) + (takes_equal ? 1 : 0);
    } else {
      const double bound = __ddiv_rn(__uint2double_rn(distance), args.square);
      return takes_equal ? __double2uint_rd(bound) + 1 : __double2uint_ru(bound);
    }
  }

  /// All pairs at once; then, edge by edge, those go that one that is left occludes. A lane has 32 edges.
  __device__ uint32_t keep_by_bits(uint32_t count) {
    for (uint32_t i = threadIdx.x; i < count; i += kThreads) {
      places[i] = near(distance_in(keys[i]));
      numbers[i] = __ldg(args.codes.squares + ids[i]);
    }
    const uint32_t words = args.size / kWarp;
    const bool any = args.method == ANN_DIVERSIFY_VAMANA;
    PairProducts<kSteps, kWarps>{args.codes, panel}.each_strip(ids, count, [&](uint32_t strip) {
      return OcclusionBits(keys, places, numbers, bits, words, count, strip, any);
    });
    if (threadIdx.x < kWarp) {
      uint32_t gone = 0;
      for (uint32_t i = 0; i < count; ++i) {
        if (__shfl_sync(kAllLanes, gone, i / kWarp) >> i % kWarp & 1) continue;
        if (threadIdx.x >= i / kWarp && threadIdx.x * kWarp < count) gone |= bits[i * words + threadIdx.x];
      }
      const uint32_t begin = threadIdx.x * kWarp;
      const uint32_t there = begin >= count           ? 0
                             : count - begin >= kWarp ? kAllLanes
                                                      : (1u << (count - begin)) - 1;
      shared.kept[threadIdx.x] = there & ~gone;
    }
    __syncthreads();
    uint32_t kept = 0;
    for (uint32_t word = 0; word * kWarp < count; ++word) {
      const uint32_t mask = shared.kept[word];
      const uint32_t i = word * kWarp + lane_number();
      if (threadIdx.x < kWarp && (mask >> lane_number() & 1) != 0)
        places[kept + __popc(mask & lanes_before())] = ids[i];
      kept += __popc(mask);
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < kept; i += kThreads) ids[i] = places[i];
    __syncthreads();
    return kept;
  }

  /// DPG: the half of a list that the fewest others occlude.
  __device__ uint32_t keep_least_occluded(uint32_t count) {
    for (uint32_t i = threadIdx.x; i < count; i += kThreads) {
      numbers[i] = distance_in(keys[i]);
      places[i] = 0;
    }
    __syncthreads();
    if constexpr (kSteps != 0)
      count_by_products<kSteps>(args.codes, panel, ids, numbers, count, reinterpret_cast<uint32_t*>(keys),
                                places);
    else
      count_occluders(rows, ids, numbers, count, places);
    const Squeeze squeeze{shared.counts};
    const uint32_t most = (args.k + 1) / 2;
    uint32_t end = 0;
    for (uint32_t first = 0; first < count; first += kThreads) {
      const uint32_t i = first + threadIdx.x;
      uint32_t id = 0;
      bool stays = false;
      if (i < count) {
        id = ids[i];
        uint32_t before = 0;
        for (uint32_t j = 0; j < count; ++j)
          before += places[j] < places[i] || (places[j] == places[i] && j < i) ? 1 : 0;
        stays = before < most;
      }
      const uint32_t to = squeeze.place(stays, end);
      if (stays) ids[to] = id;
      __syncthreads();
    }
    return end;
  }
};

template <bool kWide, uint32_t kSteps>
__global__ void __launch_bounds__(kThreads) prune_lists(const __grid_constant__ PruneArgs args) {
  __shared__ PruneShared shared;
  extern __shared__ uint64_t keys[];
  uint32_t* const ids = reinterpret_cast<uint32_t*>(keys + args.size);
  uint32_t* const rest = ids + 3 * args.size;
  uint8_t* const panel = reinterpret_cast<uint8_t*>(rest + args.size * (args.size / kWarp));
  Pruning<kWide, kSteps>{args, shared, keys, ids, ids + args.size, ids + 2 * args.size, panel, rest}.run();
}

constexpr uint32_t prune_bytes(uint32_t size, uint32_t stride, uint32_t steps) {
  return size * (8 + 3 * 4) + (steps == 0 ? 0 : panel_bytes(stride) + size * size / 8);
}

// --- Stage one of SSG ------------------------------------------------------------------------------

constexpr uint32_t kSeen = 4096;  // places of the table of candidates met

/// A row's neighbours and theirs. Rows met are remembered in a table where one forgets another, so most of the k^2
/// candidates, which are the same few thousand rows again and again, cost a lookup; repeated candidates that it misses
/// are found when candidates are sorted. The nearer half of the keys are the pool, the other half waits to be sorted
/// in.
template <bool kWide>
struct Pooling {
  Pruning<kWide, 0> pruning;
  uint32_t* seen;      // [kSeen]
  uint32_t found = 0;  // keys that are sorted

  __device__ void run() {
    const PruneArgs& args = pruning.args;
    const uint32_t given = gather();
    const uint32_t count = min(found, args.pool);
    for (uint32_t i = threadIdx.x; i < count; i += kThreads) {
      pruning.ids[i] = id_of(pruning.keys[i]);
      pruning.places[i] = i;
    }
    __syncthreads();
    const uint32_t kept =
        pruning.keep_unoccluded(count, args.stride, [&](uint32_t own, uint32_t other, uint32_t between) {
          return is_within_angle(value_of(own), value_of(other), value_of(between));
        });
    pruning.write(given, kept);
  }

 private:
  static __device__ double value_of(uint32_t distance) {
    if constexpr (kWide)
      return __uint_as_float(distance);
    else
      return __uint2double_rn(distance);
  }

  /// As on the CPU, no two operations in one.
  __device__ bool is_within_angle(double a, double b, double between) const {
    if (a == 0 || b == 0) return false;
    const double right = __dmul_rn(__dmul_rn(2, __dsqrt_rn(__dmul_rn(a, b))), pruning.args.cosine);
    return __dsub_rn(__dadd_rn(a, b), between) > right;
  }

  /// Returns the length of the row's own list.
  __device__ uint32_t gather() {
    const PruneArgs& args = pruning.args;
    for (uint32_t i = threadIdx.x; i < 2 * args.size; i += kThreads) pruning.keys[i] = kNoKey;
    for (uint32_t i = threadIdx.x; i < kSeen; i += kThreads) seen[i] = kNoRow;
    const uint32_t* own = args.all + uint64_t{pruning.row} * args.k;
    if (threadIdx.x == 0) pruning.shared.length = args.k;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < args.k; i += kThreads) {
      if (own[i] == kNoRow) atomicMin(&pruning.shared.length, i);
    }
    __syncthreads();
    const uint32_t length = pruning.shared.length;
    const Squeeze squeeze{pruning.shared.counts};
    const uint64_t candidates = uint64_t{length + 1} * args.k;
    uint32_t waiting = 0;
    for (uint64_t first = 0; first < candidates; first += kThreads) {
      const uint32_t candidate = candidate_at(own, first + threadIdx.x, candidates);
      const bool is_new = candidate != kNoRow && candidate != pruning.row &&
                          atomicExch(seen + candidate % kSeen, candidate) != candidate;
      const uint32_t to = squeeze.place(is_new, waiting);
      if (is_new) pruning.ids[to] = candidate;
      __syncthreads();
      if (waiting + kThreads <= args.size) continue;
      sort_in(waiting);
      waiting = 0;
    }
    if (waiting != 0) sort_in(waiting);
    return length;
  }

  /// A candidate of the row's own list, then of those of its neighbours.
  __device__ uint32_t candidate_at(const uint32_t* own, uint64_t place, uint64_t candidates) const {
    const PruneArgs& args = pruning.args;
    if (place >= candidates) return kNoRow;
    const uint32_t list = static_cast<uint32_t>(place / args.k);
    const uint32_t i = static_cast<uint32_t>(place % args.k);
    return list == 0 ? own[i] : args.all[uint64_t{own[list - 1]} * args.k + i];
  }

  /// The nearest of the keys that are there and of those in pruning.ids, each once.
  __device__ void sort_in(uint32_t count) {
    const uint32_t size = pruning.args.size;
    uint64_t* const keys = pruning.keys;
    const uint32_t* const ids = pruning.ids;
    for (uint32_t i = size + count + threadIdx.x; i < 2 * size; i += kThreads) keys[i] = kNoKey;
    pruning.rows.compare(pruning.row, ids, count, [&](uint32_t place, uint32_t distance) {
      keys[size + place] = uint64_t{distance} << 32 | ids[place];
    });
    __syncthreads();
    sort_shared(keys, 2 * size, BlockSorts{});
    const Squeeze squeeze{pruning.shared.counts};
    uint32_t end = 0;
    for (uint32_t first = 0; first < 2 * size; first += kThreads) {
      const uint32_t i = first + threadIdx.x;
      const uint64_t key = keys[i];
      const bool stays = key != kNoKey && (i == 0 || keys[i - 1] != key);
      const uint32_t to = squeeze.place(stays, end);
      if (stays) keys[to] = key;
      __syncthreads();
    }
    for (uint32_t i = end + threadIdx.x; i < size; i += kThreads) keys[i] = kNoKey;
    __syncthreads();
    found = min(end, size);
  }
};

template <bool kWide>
__global__ void __launch_bounds__(kThreads) prune_pools(const __grid_constant__ PruneArgs args) {
  __shared__ PruneShared shared;
  extern __shared__ uint64_t keys[];
  uint32_t* const ids = reinterpret_cast<uint32_t*>(keys + 2 * args.size);
  Pooling<kWide>{{args, shared, keys, ids, ids + args.size, ids + 2 * args.size, nullptr, nullptr},
                 ids + 3 * args.size}
      .run();
}

constexpr uint32_t pool_size(uint32_t pool) { return std::max(power_of_two(pool), kThreads); }
constexpr uint32_t pool_bytes(uint32_t pool) { return pool_size(pool) * (2 * 8 + 3 * 4) + kSeen * 4; }

// --- Between the stages ----------------------------------------------------------------------------

struct CloseLists;
struct TurnEdges;

struct EdgeArgs {
  using Steps = StepList<CloseLists, TurnEdges>;

  const uint32_t* lists;    // [count, k], the first lengths[i] of each
  const uint64_t* offsets;  // [count + 1] into kept
  uint32_t* kept;           // edges of these rows, row after row
  uint32_t* incoming;       // [rows] how many edges lead to each; then, how many of them stand in sources
  const uint64_t* begins;   // [rows + 1] into sources
  uint32_t* sources;        // rows with an edge to a row, in any order
  uint32_t first;
  uint32_t count;
  uint32_t k;
};

/// Copies lists of k places into edges side by side. A warp for each row.
struct CloseLists {
  static constexpr uint32_t kLanes = kWarp;
  const EdgeArgs& args;

  __device__ void run(uint64_t row) const {
    const uint64_t begin = args.offsets[row];
    const uint32_t length = static_cast<uint32_t>(args.offsets[row + 1] - begin);
    for (uint32_t i = lane_number(); i < length; i += kWarp) {
      const uint32_t target = args.lists[row * args.k + i];
      args.kept[begin + i] = target;
      if (args.incoming != nullptr) atomicAdd(args.incoming + target, 1u);
    }
  }
};

/// Tells each row which rows lead to it. A warp for each of those.
struct TurnEdges {
  static constexpr uint32_t kLanes = kWarp;
  const EdgeArgs& args;

  __device__ void run(uint64_t row) const {
    for (uint64_t i = args.offsets[row] + lane_number(); i < args.offsets[row + 1]; i += kWarp) {
      const uint32_t target = args.kept[i];
      args.sources[args.begins[target] + atomicAdd(args.incoming + target, 1u)] =
          args.first + static_cast<uint32_t>(row);
    }
  }
};

// --- Stage two -------------------------------------------------------------------------------------

struct SoftenArgs {
  CodesView codes;
  const uint64_t* offsets;  // [count + 1] into kept
  const uint32_t* kept;     // of rows from `first` on
  const uint64_t* begins;   // [rows + 1] into sources
  const uint32_t* sources;
  uint32_t* edges;             // [count, degree]
  uint16_t* prefixes;          // [count, levels]
  unsigned long long* totals;  // [4] as above
  uint32_t first;
  uint32_t count;
  uint32_t degree;
  uint32_t levels;
  uint32_t reverse_max;
  uint32_t half;  // the power of two from reverse_max on
  uint32_t room;  // keys of the buffer
};

struct SoftenShared {
  uint32_t counts[kWarps];
  uint32_t soft;
};

template <bool kWide, uint32_t kSteps>
struct Softening {
  const SoftenArgs& args;
  SoftenShared& shared;
  uint64_t* keys;    // [room]
  uint32_t* ids;     // [room]
  uint32_t* near;    // [room] distances in order
  uint32_t* lambda;  // [room]
  uint8_t* panel;    // of products
  uint32_t row = args.first + blockIdx.x;
  Comparison<kWide> rows{args.codes};

  __device__ void run() {
    if (threadIdx.x == 0) shared.soft = 0;
    const uint32_t count = join();
    if (args.levels > 1) {
      if constexpr (kSteps != 0)
        count_by_products<kSteps>(args.codes, panel, ids, near, count, reinterpret_cast<uint32_t*>(keys),
                                  lambda);
      else
        count_occluders(rows, ids, near, count, lambda);
    }
    write_row(count);
    __syncthreads();
    if (threadIdx.x != 0) return;
    atomicAdd(args.totals + 2, count);
    atomicAdd(args.totals + 3, shared.soft);
  }

 private:
  /// The row's own edges and the nearest of those to it, ascending.
  __device__ uint32_t join() {
    const uint32_t* incoming = args.sources + args.begins[row];
    const uint64_t length = args.begins[uint64_t{row} + 1] - args.begins[row];
    uint32_t taken = static_cast<uint32_t>(min(length, uint64_t{args.reverse_max}));
    if (length <= args.reverse_max)
      read_keys(incoming, taken, 0);
    else
      read_nearest(incoming, length);
    const uint64_t begin = args.offsets[blockIdx.x];
    const uint32_t own = static_cast<uint32_t>(args.offsets[blockIdx.x + 1] - begin);
    read_keys(args.kept + begin, own, taken);
    const uint32_t count = taken + own;
    uint32_t size = kWarp;
    while (size < count) size *= 2;
    for (uint32_t i = count + threadIdx.x; i < size; i += kThreads) keys[i] = kNoKey;
    __syncthreads();
    sort_shared(keys, size, BlockSorts{});
    return keep_first_of_equal(count);
  }

  /// Distances of others, as keys from a place on.
  __device__ void read_keys(const uint32_t* others, uint32_t count, uint32_t from) {
    for (uint32_t i = threadIdx.x; i < count; i += kThreads) ids[i] = others[i];
    __syncthreads();
    rows.compare(row, ids, count, [&](uint32_t place, uint32_t distance) {
      keys[from + place] = uint64_t{distance} << 32 | ids[place];
    });
    __syncthreads();
  }

  /// Reads incoming edges, of a hub the nearest ones.
  __device__ void read_nearest(const uint32_t* incoming, uint64_t length) {
    for (uint32_t i = threadIdx.x; i < args.half; i += kThreads) keys[i] = kNoKey;
    for (uint64_t first = 0; first < length; first += args.half) {
      const uint32_t some = static_cast<uint32_t>(min(length - first, uint64_t{args.half}));
      read_keys(incoming + first, some, args.half);
      for (uint32_t i = args.half + some + threadIdx.x; i < 2 * args.half; i += kThreads) keys[i] = kNoKey;
      __syncthreads();
      sort_shared(keys, 2 * args.half, BlockSorts{});
    }
  }

  __device__ uint32_t keep_first_of_equal(uint32_t count) {
    const Squeeze squeeze{shared.counts};
    uint32_t end = 0;
    for (uint32_t first = 0; first < count; first += kThreads) {
      const uint32_t i = first + threadIdx.x;
      const uint64_t key = i < count ? keys[i] : kNoKey;
      const bool stays = i < count && (i == 0 || keys[i - 1] != key);
      const uint32_t to = squeeze.place(stays, end);
      if (stays) keys[to] = key;
      __syncthreads();
    }
    for (uint32_t i = threadIdx.x; i < end; i += kThreads) {
      ids[i] = id_of(keys[i]);
      near[i] = distance_in(keys[i]);
      lambda[i] = 0;
    }
    __syncthreads();
    return end;
  }

  /// Edges by (lambda, distance), as far as factors and degree allow.
  __device__ void write_row(uint32_t count) {
    uint32_t* to = args.edges + uint64_t{blockIdx.x} * args.degree;
    for (uint32_t j = threadIdx.x; j < count; j += kThreads) {
      const uint32_t own = lambda[j];
      if (own >= args.levels) continue;
      atomicAdd(&shared.soft, 1u);
      uint32_t place = 0;
      for (uint32_t i = 0; i < count; ++i) place += lambda[i] < own || (lambda[i] == own && i < j) ? 1 : 0;
      if (place < args.degree) to[place] = ids[j];
    }
    for (uint32_t level = threadIdx.x; level < args.levels; level += kThreads) {
      uint32_t below = 0;
      for (uint32_t i = 0; i < count; ++i) below += lambda[i] <= level ? 1 : 0;
      args.prefixes[uint64_t{blockIdx.x} * args.levels + level] =
          static_cast<uint16_t>(min(below, args.degree));
    }
  }
};

template <bool kWide, uint32_t kSteps>
__global__ void __launch_bounds__(kThreads) soften(const __grid_constant__ SoftenArgs args) {
  __shared__ SoftenShared shared;
  extern __shared__ uint64_t keys[];
  uint32_t* const ids = reinterpret_cast<uint32_t*>(keys + args.room);
  uint8_t* const panel = reinterpret_cast<uint8_t*>(ids + 3 * args.room);
  Softening<kWide, kSteps>{args, shared, keys, ids, ids + args.room, ids + 2 * args.room, panel}.run();
}

constexpr uint32_t soften_bytes(uint32_t room, uint32_t stride, uint32_t steps) {
  return room * (8 + 3 * 4) + (steps == 0 ? 0 : panel_bytes(stride));
}

/// Keys of the buffer, for rows that have kept `own` edges at most.
uint32_t soften_room(const DiversifyParams& params, uint32_t own) {
  return std::max(2 * power_of_two(params.reverse_max), power_of_two(params.reverse_max + own));
}

// --- The table of a repair -------------------------------------------------------------------------

struct TableArgs {
  const uint64_t* offsets;  // [count + 1] into edges
  const uint32_t* edges;
  const uint16_t* lengths;  // [count] edges that are read
  uint32_t* table;          // [count, width]
  uint32_t count;
  uint32_t width;
};

__global__ void __launch_bounds__(kThreads) fill_table(const __grid_constant__ TableArgs args) {
  const uint32_t row = blockIdx.x * kWarps + threadIdx.x / kWarp;
  if (row >= args.count) return;
  const uint32_t* edges = args.edges + args.offsets[row];
  uint32_t* to = args.table + uint64_t{row} * args.width;
  for (uint32_t i = lane_number(); i < args.width; i += kWarp)
    to[i] = i < args.lengths[row] ? edges[i] : kNoRow;
}

// --- Host ------------------------------------------------------------------------------------------

/// Steps of products that rows of these codes take, rounded up to those that there are kernels for; 0: codes that are
/// compared pair by pair, and blocks that would leave a multiprocessor room for one or two others.
uint32_t steps_of(const CodesView& codes) {
  if (codes.wide() || codes.stride > kPairSteps * 32) return 0;
  return codes.stride <= 128 ? 4 : kPairSteps;
}
constexpr uint32_t kSharedWorth = 72 << 10;

auto prune_kernel(bool wide, uint32_t steps) {
  if (wide) return prune_lists<true, 0>;
  return steps == 0   ? prune_lists<false, 0>
         : steps == 4 ? prune_lists<false, 4>
                      : prune_lists<false, kPairSteps>;
}
auto soften_kernel(bool wide, uint32_t steps) {
  if (wide) return soften<true, 0>;
  return steps == 0 ? soften<false, 0> : steps == 4 ? soften<false, 4> : soften<false, kPairSteps>;
}

uint32_t blocks_of_rows(uint32_t count) { return (count + kWarps - 1) / kWarps; }

/// Dynamic shared memory that a block of the current device may have beside that of the kernels.
uint32_t shared_most() {
  int most = 0;
  check(runtime().attribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, current_device()),
        "asking for shared memory");
  return static_cast<uint32_t>(most) - kSharedDeclared;
}

/// Rows that are diversified together.
struct Piece {
  uint32_t first = 0;
  uint32_t count = 0;
  std::unique_ptr<DeviceArray<uint64_t>> offsets;  // [count + 1] of the edges here
  std::unique_ptr<DeviceArray<uint32_t>> edges;    // those that stage one has kept, then the sorted ones
  std::unique_ptr<DeviceArray<uint16_t>> read;     // [count] edges that searches read by default
  uint64_t size = 0;                               // edges
};

class DeviceDiversifier {
 public:
  DeviceDiversifier(const CodesView& codes, const ListsView& lists, const DiversifyParams& params,
                    SearchGraph& graph, Transfers& transfers, const Stream& stream,
                    const Execution& execution)
      : codes_(codes),
        lists_(lists),
        params_(params),
        graph_(graph),
        transfers_(transfers),
        stream_(stream),
        execution_(execution),
        rows_(graph.rows),
        totals_(4, stream) {
    fill(totals_.data(), 0, 4 * sizeof(unsigned long long), stream, "clearing device memory");
    for (uint32_t first = 0; first < rows_; first += std::min(kDiversifyRows, rows_ - first))
      pieces_.push_back({first, std::min(kDiversifyRows, rows_ - first), nullptr, nullptr, nullptr, 0});
    offsets_ = Array<uint64_t>(execution.memory, size_t{std::min(kDiversifyRows, rows_)} + 1);
    lengths_ = Array<uint32_t>(execution.memory, std::min(kDiversifyRows, rows_));
  }

  void run(bool repair) {
    execution_.span(0, 0.4).enter("diversify");
    prune(execution_.span(0, 0.4));
    execution_.span(0.4, 0.5).enter("reverse edges");
    turn();
    execution_.span(0.5, 0.9).enter("occlusion factors");
    sort(execution_.span(0.5, 0.85));
    fetch();
    execution_.span(0.9, 1).enter("reachability");
    SearchGraph repaired;
    const bool is_repaired = repair && this->repair(repaired);
    pieces_.clear();
    finish_diversified(std::move(sorted_), params_, repair, is_repaired ? &repaired : nullptr, graph_,
                       execution_);
  }

 private:
  template <class Work>
  void each_piece(const Execution& part, const Work& work) {
    for (Piece& piece : pieces_) {
      part.check();
      work(piece);
      part.advance(static_cast<double>(piece.first + piece.count) / rows_);
    }
  }

  /// The lists of the rows from `first` on, there.
  uint32_t* lists_of(uint32_t first, uint32_t count, const DeviceArray<uint32_t>& sent) {
    const uint64_t from = uint64_t{first} * lists_.k;
    if (lists_.there != nullptr) return lists_.there + from;
    transfers_.send(sent.data(), lists_.host + from, uint64_t{count} * lists_.k * sizeof(uint32_t), stream_);
    return sent.data();
  }

  void prune(const Execution& part) {
    incoming_ = std::make_unique<DeviceArray<uint32_t>>(rows_, stream_);
    fill(incoming_->data(), 0, rows_ * sizeof(uint32_t), stream_, "clearing device memory");
    // SSG reads the lists of all rows for each, and writes elsewhere; the others leave the kept edges in place.
    const bool expands = params_.method == ANN_DIVERSIFY_SSG;
    const uint32_t most = static_cast<uint32_t>(lengths_.size());
    const uint32_t sent_rows = lists_.there != nullptr ? 0 : expands ? rows_ : most;
    const DeviceArray<uint32_t> sent(uint64_t{sent_rows} * lists_.k, stream_);
    const DeviceArray<uint32_t> kept(expands ? uint64_t{most} * params_.degree : 0, stream_);
    const DeviceArray<uint32_t> lengths(most, stream_);
    PruneArgs args = {};
    args.codes = codes_;
    args.all = expands ? lists_of(0, rows_, sent) : nullptr;
    args.lengths = lengths.data();
    args.totals = totals();
    args.k = lists_.k;
    args.stride = expands ? params_.degree : lists_.k;
    args.size = expands ? pool_size(params_.pool) : power_of_two(lists_.k);
    args.method = static_cast<uint32_t>(params_.method);
    args.square = double{params_.alpha} * params_.alpha;
    args.pool = params_.pool;
    args.cosine = std::cos(params_.angle * kPi / 180);
    uint32_t steps = steps_of(codes_);
    if (prune_bytes(args.size, codes_.stride, steps) > kSharedWorth) steps = 0;
    const auto kernel = !expands        ? prune_kernel(codes_.wide(), steps)
                        : codes_.wide() ? prune_pools<true>
                                        : prune_pools<false>;
    const uint32_t bytes = expands ? pool_bytes(params_.pool) : prune_bytes(args.size, codes_.stride, steps);
    if (bytes > kSharedUsual) allow_shared(kernel, shared_most());
    each_piece(part, [&](Piece& piece) {
      args.lists = expands ? kept.data() : lists_of(piece.first, piece.count, sent);
      args.first = piece.first;
      args.count = piece.count;
      launch("prune_lists", kernel, piece.count, kThreads, stream_, args, bytes);
      copy_to_host(lengths_.data(), lengths.data(), piece.count * sizeof(uint32_t), stream_,
                   "fetching numbers of edges");
      stream_.wait();
      take_offsets(piece, [&](uint32_t i) { return lengths_[i]; });
      for (uint32_t i = 0; i < piece.count; ++i) longest_ = std::max(longest_, lengths_[i]);
      close(piece, args.lists, args.stride, incoming_->data());
      stream_.wait();  // offsets_ and lists are used again
    });
  }

  /// Offsets of a piece's rows by their lengths, there too, and room for its edges.
  template <class Length>
  void take_offsets(Piece& piece, const Length& length) {
    offsets_[0] = 0;
    for (uint32_t i = 0; i < piece.count; ++i) offsets_[i + 1] = offsets_[i] + length(i);
    piece.size = offsets_[piece.count];
    piece.offsets = std::make_unique<DeviceArray<uint64_t>>(piece.count + uint64_t{1}, stream_);
    piece.edges = std::make_unique<DeviceArray<uint32_t>>(piece.size, stream_);
    copy_to_device(piece.offsets->data(), offsets_.data(), (piece.count + uint64_t{1}) * sizeof(uint64_t),
                   stream_, "sending offsets");
  }

  /// Copies rows of `stride` places into a piece's edges.
  void close(const Piece& piece, const uint32_t* rows, uint32_t stride, uint32_t* incoming) {
    EdgeArgs args = {};
    args.lists = rows;
    args.offsets = piece.offsets->data();
    args.kept = piece.edges->data();
    args.incoming = incoming;
    args.count = piece.count;
    args.k = stride;
    launch_items<CloseLists>("close_lists", piece.count, args, stream_);
  }

  void turn() {
    Array<uint32_t> incoming(execution_.memory, rows_);
    Array<uint64_t> begins(execution_.memory, size_t{rows_} + 1);
    transfers_.fetch(incoming.data(), incoming_->data(), rows_ * sizeof(uint32_t), stream_);
    begins[0] = 0;
    for (uint32_t row = 0; row < rows_; ++row) begins[row + 1] = begins[row] + incoming[row];
    begins_ = std::make_unique<DeviceArray<uint64_t>>(rows_ + uint64_t{1}, stream_);
    transfers_.send(begins_->data(), begins.data(), (rows_ + uint64_t{1}) * sizeof(uint64_t), stream_);
    sources_ = std::make_unique<DeviceArray<uint32_t>>(begins[rows_], stream_);
    fill(incoming_->data(), 0, rows_ * sizeof(uint32_t), stream_, "clearing device memory");
    for (const Piece& piece : pieces_) {
      EdgeArgs args = {};
      args.offsets = piece.offsets->data();
      args.kept = piece.edges->data();
      args.incoming = incoming_->data();
      args.begins = begins_->data();
      args.sources = sources_->data();
      args.first = piece.first;
      args.count = piece.count;
      launch_items<TurnEdges>("turn_edges", piece.count, args, stream_);
    }
    incoming_.reset();
  }

  void sort(const Execution& part) {
    const uint32_t most = static_cast<uint32_t>(lengths_.size());
    const uint32_t levels = params_.levels;
    const DeviceArray<uint32_t> edges(uint64_t{most} * params_.degree, stream_);
    const DeviceArray<uint16_t> prefixes(uint64_t{most} * levels, stream_);
    sorted_.prefixes = Array<uint16_t>(execution_.memory, checked_product(rows_, levels));
    Array<uint16_t> read(execution_.memory, most);
    const uint32_t room = soften_room(params_, longest_);
    uint32_t steps = steps_of(codes_);
    if (soften_bytes(room, codes_.stride, steps) > kSharedWorth) steps = 0;
    const auto kernel = soften_kernel(codes_.wide(), steps);
    const uint32_t bytes = soften_bytes(room, codes_.stride, steps);
    if (bytes > kSharedUsual) allow_shared(kernel, shared_most());
    each_piece(part, [&](Piece& piece) {
      const SoftenArgs args = {codes_,
                               piece.offsets->data(),
                               piece.edges->data(),
                               begins_->data(),
                               sources_->data(),
                               edges.data(),
                               prefixes.data(),
                               totals(),
                               piece.first,
                               piece.count,
                               params_.degree,
                               levels,
                               params_.reverse_max,
                               power_of_two(params_.reverse_max),
                               room};
      launch("soften", kernel, piece.count, kThreads, stream_, args, bytes);
      uint16_t* here = sorted_.prefixes.data() + uint64_t{piece.first} * levels;
      transfers_.fetch(here, prefixes.data(), uint64_t{piece.count} * levels * sizeof(uint16_t), stream_);
      take_offsets(piece, [&](uint32_t i) { return here[uint64_t{i} * levels + levels - 1]; });
      close(piece, edges.data(), params_.degree, nullptr);
      const uint32_t level = std::min(levels, kOcclusionDefault) - 1;
      for (uint32_t i = 0; i < piece.count; ++i) read[i] = here[uint64_t{i} * levels + level];
      piece.read = std::make_unique<DeviceArray<uint16_t>>(piece.count, stream_);
      copy_to_device(piece.read->data(), read.data(), piece.count * sizeof(uint16_t), stream_,
                     "sending numbers of edges");
      stream_.wait();  // offsets_, read and edges are used again
    });
    begins_.reset();
    sources_.reset();
  }

  void fetch() {
    sorted_.places = Array<uint64_t>(execution_.memory, size_t{rows_} + 1);
    sorted_.places[0] = 0;
    const uint32_t levels = params_.levels;
    for (uint32_t row = 0; row < rows_; ++row)
      sorted_.places[row + 1] = sorted_.places[row] + sorted_.prefixes[uint64_t{row} * levels + levels - 1];
    sorted_.edges = Array<uint32_t>(execution_.memory, sorted_.places[rows_]);
    for (const Piece& piece : pieces_) {
      execution_.check();
      transfers_.fetch(sorted_.edges.data() + sorted_.places[piece.first], piece.edges->data(),
                       piece.size * sizeof(uint32_t), stream_);
    }
    unsigned long long totals[4];
    copy_to_host(totals, totals_.data(), sizeof totals, stream_, "fetching counts");
    stream_.wait();
    sorted_.counts = {totals[0], totals[1], totals[2], totals[3]};
  }

  /// False where that is the CPU's work.
  bool repair(SearchGraph& repaired) {
    if (rows_ == 0) return false;
    repaired = read_by_default(sorted_, params_, graph_, execution_);
    const uint64_t places = uint64_t{rows_} * repaired.degree;
    const DeviceArray<uint32_t> table(places, stream_);
    for (const Piece& piece : pieces_) {
      const TableArgs args = {piece.offsets->data(), piece.edges->data(),
                              piece.read->data(),    table.data() + uint64_t{piece.first} * repaired.degree,
                              piece.count,           repaired.degree};
      launch("fill_table", fill_table, blocks_of_rows(piece.count), kThreads, stream_, args);
    }
    const DeviceArray<uint32_t> entries(repaired.entries.size(), stream_);
    copy_to_device(entries.data(), repaired.entries.data(), repaired.entries.size() * sizeof(uint32_t),
                   stream_, "sending entry points");
    const RepairResult repair = repair_reachability({table.data(), entries.data(), rows_, repaired.degree,
                                                     static_cast<uint32_t>(repaired.entries.size())},
                                                    stream_, execution_);
    if (repair.unreachable_left != 0) return false;
    repaired.repaired_edges = repair.edges_added;
    if (repair.edges_added == 0) return true;
    repaired.make_fixed(execution_.memory);
    transfers_.fetch(repaired.edges.data(), table.data(), places * sizeof(uint32_t), stream_);
    return true;
  }

  unsigned long long* totals() const { return totals_.data(); }

  const CodesView codes_;
  const ListsView lists_;
  const DiversifyParams& params_;
  SearchGraph& graph_;
  Transfers& transfers_;
  const Stream& stream_;
  const Execution& execution_;
  uint32_t rows_;
  uint32_t longest_ = 0;  // edges of a row after stage one
  DeviceArray<unsigned long long> totals_;
  std::vector<Piece> pieces_;
  Array<uint64_t> offsets_;  // of a piece
  Array<uint32_t> lengths_;  // likewise
  std::unique_ptr<DeviceArray<uint32_t>> incoming_;
  std::unique_ptr<DeviceArray<uint64_t>> begins_;
  std::unique_ptr<DeviceArray<uint32_t>> sources_;
  SortedRows sorted_;
};

}  // namespace

bool diversifies(const DiversifyParams& params, uint32_t k) {
  const bool expands = params.method == ANN_DIVERSIFY_SSG;
  const uint32_t pruning = expands ? pool_bytes(params.pool) : 0;
  return std::max(pruning, soften_bytes(soften_room(params, expands ? params.degree : k), 0, 0)) <=
         shared_most();
}

void diversify(const CodesView& codes, const ListsView& lists, const DiversifyParams& params, bool repair,
               SearchGraph& graph, Transfers& transfers, const Stream& stream, const Execution& execution) {
  DeviceDiversifier(codes, lists, params, graph, transfers, stream, execution).run(repair);
}

}  // namespace gannet::cuda
