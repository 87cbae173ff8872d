// CAGRA's rank-based pruning on the GPU (section III-B1, equation 3). The contract is in
// search_graph.h, the CPU's version in prune.cpp; both keep the same edges in the same order.
//
//   paper                   here
//   N, d_init, d            rows, k, degree
//   X, Y, Z                 row, y, z
//   edge X -> Y, its rank   place of y in the list of row
//   detourable routes       detours of y
//
// The idea. A warp owns a row. It enters the row's list into a table of ranks in shared memory, reads the
// list of each near neighbour z with coalesced loads, looks each y up, and counts a detour where both legs
// have better ranks than the edge. Then each entry counts the entries before it in the order (detours,
// rank), which is its place among the kept.
//
// Look-ups are nearly all of the work, 4,096 a row at degree 64, so each is one load. A row's number times
// an odd number is a permutation of all numbers: its upper bits say where in the table the row stands, its
// lower ones, with the rank beside them, are the entry there. Two rows in one place would need a loop;
// other odd numbers are tried until there are none. A list for which none is found, and long lists nearly
// always, compare every y with those left out.
//
// Per row, at degree 64: 64 lists of 256 bytes read, 16 KB; 4,096 look-ups of some 12 instructions, 1,600
// warp instructions, and some 500 for the table and the order. The lists of 1M rows take 3.4 ms to gather
// on one NVIDIA H200 (18.6 G rows of 256 bytes a second), the instructions 2.5 at best.
//
// Lists of 257 to 512 entries take 40 KB a block of one warp, 32 of them its table, and five warps are resident.
//
// Detours go by the first `looked_at` entries of each list as z and in z; the paper's are all of them
// (search_graph.h gives the cost of that). A rank table of all rows, directly addressed, does not fit on chip.
//
// With distances, as equation 3 has them, everything stays but the comparison, which needs the distances of
// z's list too: twice the bytes.
//
// Rejected, one NVIDIA H200, 1M x 64 to 64: a table of rows and one of ranks with linear probing, 256 places
// (10.1 ms); one load and one comparison with a row left out (8.8); rows in the order of the smallest
// hash of their neighbours, for the sake of the cache (8.5 where 8.8: it does not wait for the loads).

#include <cooperative_groups.h>

#include <algorithm>
#include <bit>

#include "graph/search_graph.h"
#include "graph/search_graph_cuda.h"
#include "knn/knn_graph.h"
#include "traverse/row_key.h"

namespace gannet::cuda {
namespace {

namespace cg = cooperative_groups;

/// Choices made before compilation.
struct Policy {
  uint32_t warps;      // per block, each with a row
  uint32_t k_max;      // entries of a list
  uint32_t places;     // of the table: a power of two, at least twice the ranks
  uint32_t rank_bits;  // of a table's word
  uint32_t tries;      // multipliers
};

// Tries: all entries of a list of 64 find a place of their own in 1,024 with a chance of 0.13, 96 in 2,048
// with 0.10, 192 hardly ever.
constexpr Policy kNarrow{.warps = 8, .k_max = 64, .places = 1024, .rank_bits = 6, .tries = 24};
constexpr Policy kMiddle{.warps = 4, .k_max = 128, .places = 2048, .rank_bits = 7, .tries = 24};
constexpr Policy kWide{.warps = 2, .k_max = 256, .places = 4096, .rank_bits = 8, .tries = 1};
constexpr Policy kWidest{.warps = 1, .k_max = 512, .places = 8192, .rank_bits = 9, .tries = 1};
static_assert(kWidest.k_max == kKnnListMax);

constexpr uint64_t kLaunchRows = uint64_t{1} << 22;  // a launch stays below some 20 ms

struct Args {
  const uint32_t* knn;        // [rows, k]
  const uint32_t* distances;  // [rows, k]; null: ranks decide
  uint32_t* kept;             // [rows, degree]
  uint32_t first_row;         // of this launch
  uint32_t rows;
  uint32_t k;
  uint32_t degree;
  uint32_t looked_at;  // entries of each list that detours go by
};

/// A row's ranks and detours. One warp.
template <Policy kPolicy>
struct PruneRow {
  static constexpr uint32_t kThreads = kPolicy.warps * 32;
  static constexpr uint32_t kAhead = 4;                    // lists requested before the first is used
  static constexpr uint32_t kOfLane = kPolicy.k_max / 32;  // entries of the list
  static constexpr uint32_t kPlaceBits = std::countr_zero(kPolicy.places);
  static constexpr uint32_t kRanks = 1u << kPolicy.rank_bits;
  // A word is a row's product without its upper kPlaceBits, then the rank; the bits in between are 0.
  static constexpr uint32_t kEmpty = kRanks;
  static_assert(kPolicy.k_max <= kRanks && 2 * kRanks <= kPolicy.places);

  struct RowShared {
    alignas(16) uint32_t order[kPolicy.k_max];  // detours << 16 | rank; there are at most k_max detours
    alignas(16) uint32_t list[kPolicy.k_max];
    uint32_t left_out[kPolicy.k_max];  // ranks of entries that are not in the table
  };
  struct Shared {
    alignas(16) uint32_t tables[kPolicy.warps][kPolicy.places];
    RowShared rows[kPolicy.warps];
  };

  const Args& args;
  RowShared& shared;
  uint32_t* distances;  // [k_max] of the list, in memory that the launch gives if they decide
  uint32_t* table;      // [places]
  cg::thread_block_tile<32> warp = cg::tiled_partition<32>(cg::this_thread_block());
  uint32_t lane = threadIdx.x % 32;
  uint32_t multiplier = 0x9e3779b1u;
  uint32_t left_out_count = 0;

  __device__ PruneRow(const Args& args, Shared& shared)
      : args(args),
        shared(shared.rows[threadIdx.x / 32]),
        distances(given_memory() + threadIdx.x / 32 * kPolicy.k_max),
        table(shared.tables[threadIdx.x / 32]) {}

  static __device__ uint32_t* given_memory() {
    extern __shared__ uint32_t words[];
    return words;
  }

  __device__ void run() {
    const uint64_t row = args.first_row + uint64_t{blockIdx.x} * kPolicy.warps + threadIdx.x / 32;
    if (row >= args.rows) return;
    const uint32_t length = read(row * args.k);
    enter(length);
    if (args.distances == nullptr)
      count_detours<false>(length);
    else
      count_detours<true>(length);
    keep(length, args.kept + row * args.degree);
  }

  template <bool kByDistance>
  __device__ void count_detours(uint32_t length) {
    if (left_out_count == 0)
      count_detours<kByDistance, false>(min(length, args.looked_at));
    else
      count_detours<kByDistance, true>(min(length, args.looked_at));
  }

  /// Reads the list; returns its length.
  __device__ uint32_t read(uint64_t begin) {
    uint32_t length = 0;
    for (uint32_t first = 0; first < kPolicy.k_max; first += 32) {
      const uint32_t rank = first + lane;
      const uint32_t row = rank < args.k ? args.knn[begin + rank] : kNoRow;
      shared.list[rank] = row;
      shared.order[rank] = row != kNoRow ? rank : UINT32_MAX;
      if (args.distances != nullptr && row != kNoRow) distances[rank] = args.distances[begin + rank];
      length += __popc(warp.ballot(row != kNoRow));
    }
    for (uint32_t i = lane; i < kPolicy.places / 4; i += 32)
      reinterpret_cast<uint4*>(table)[i] = {kEmpty, kEmpty, kEmpty, kEmpty};
    warp.sync();
    return length;
  }

  static __device__ uint32_t place_of(uint32_t product) { return product >> (32 - kPlaceBits); }

  /// Enters the list into the table, with the first multiplier that leaves none out, or with the last.
  __device__ void enter(uint32_t length) {
    for (uint32_t attempt = 1;; ++attempt) {
      uint32_t places[kOfLane];
      bool entered[kOfLane];
      left_out_count = 0;
#pragma unroll
      for (uint32_t i = 0; i < kOfLane; ++i) {
        const uint32_t rank = 32 * i + lane;
        const uint32_t product = shared.list[rank] * multiplier;
        places[i] = place_of(product);
        entered[i] =
            rank < length && atomicCAS(table + places[i], kEmpty, product << kPlaceBits | rank) == kEmpty;
        const uint32_t lanes = warp.ballot(rank < length && !entered[i]);
        if (attempt == kPolicy.tries && rank < length && !entered[i])
          shared.left_out[left_out_count + __popc(lanes & ((1u << lane) - 1))] = rank;
        left_out_count += __popc(lanes);
      }
      warp.sync();
      if (left_out_count == 0 || attempt == kPolicy.tries) return;
#pragma unroll
      for (uint32_t i = 0; i < kOfLane; ++i) {
        if (entered[i]) table[places[i]] = kEmpty;
      }
      warp.sync();
      multiplier = multiplier * 0x2c1b3c6du + 2;  // stays odd
    }
  }

  /// The rank of a row, or kRanks and more if it is not in the list.
  template <bool kLeftOut>
  __device__ uint32_t rank_of(uint32_t row) const {
    const uint32_t product = row * multiplier;
    uint32_t rank = table[place_of(product)] ^ product << kPlaceBits;
    if constexpr (kLeftOut) {
      for (uint32_t i = 0; i < left_out_count; ++i) {
        const uint32_t other = shared.left_out[i];
        if (shared.list[other] == row) rank = other;
      }
    }
    return rank;
  }

  /// Equation 3: X -> Z -> Y stands in for X -> Y if both its edges are shorter, or have better ranks.
  template <bool kByDistance, bool kLeftOut>
  __device__ void count_detours(uint32_t looked_at) {
    const uint32_t looked_into = min(args.k, args.looked_at);
    uint32_t first = 0;
    if (!kByDistance && !kLeftOut && looked_into % 32 == 0) {
      for (; first + kAhead <= looked_at; first += kAhead) count_of_lists(first, looked_into);
    }
    for (; first < looked_at; first += kAhead) {
      const uint4 z = *reinterpret_cast<const uint4*>(shared.list + first);
      const uint32_t* lists[kAhead] = {list_of(z.x), list_of(z.y), list_of(z.z), list_of(z.w)};
      for (uint32_t rank_y = lane; rank_y < looked_into; rank_y += 32) {
        uint32_t y[kAhead];
        uint32_t edges[kAhead];  // distances of z and y
#pragma unroll
        for (uint32_t i = 0; i < kAhead; ++i) {
          y[i] = first + i < looked_at ? lists[i][rank_y] : kNoRow;
          if constexpr (kByDistance)
            edges[i] = first + i < looked_at ? args.distances[lists[i] - args.knn + rank_y] : 0;
        }
#pragma unroll
        for (uint32_t i = 0; i < kAhead; ++i) {
          const uint32_t rank = rank_of<kLeftOut>(y[i]);
          bool shorter = rank < kRanks;
          if constexpr (kByDistance) {
            if (shorter) shorter = max(distances[first + i], edges[i]) < distances[rank];
          } else {
            shorter = shorter && rank > max(first + i, rank_y);
          }
          if (shorter) atomicAdd(&shared.order[rank], 1u << 16);
        }
      }
    }
    warp.sync();
  }
  /// The same for kAhead whole lists, in as few instructions as it takes.
  __device__ void count_of_lists(uint32_t first, uint32_t looked_into) {
    const uint4 z = *reinterpret_cast<const uint4*>(shared.list + first);
    const uint32_t* lists[kAhead] = {list_of(z.x) + lane, list_of(z.y) + lane, list_of(z.z) + lane,
                                     list_of(z.w) + lane};
    const uint32_t table_begin = static_cast<uint32_t>(__cvta_generic_to_shared(table));
    const uint32_t order_begin = static_cast<uint32_t>(__cvta_generic_to_shared(shared.order));
    uint32_t y[kOfLane][kAhead];
#pragma unroll
    for (uint32_t part = 0; part < kOfLane; ++part) {
      if (32 * part >= looked_into) break;
#pragma unroll
      for (uint32_t i = 0; i < kAhead; ++i) y[part][i] = lists[i][32 * part];
    }
#pragma unroll
    for (uint32_t part = 0; part < kOfLane; ++part) {
      if (32 * part >= looked_into) break;
      uint32_t ranks[kAhead];
#pragma unroll
      for (uint32_t i = 0; i < kAhead; ++i) {
        const uint32_t product = y[part][i] * multiplier;
        const uint32_t offset = product >> (30 - kPlaceBits) & (kPolicy.places - 1) * 4;
        ranks[i] = load_shared(table_begin + offset) ^ product << kPlaceBits;
      }
#pragma unroll
      for (uint32_t i = 0; i < kAhead; ++i)
        add_detour(order_begin + ranks[i] * 4, ranks[i], max(first + i, 32 * part + lane));
    }
  }
  static __device__ uint32_t load_shared(uint32_t address) {
    uint32_t word;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(address));
    return word;
  }
  /// One detour more where above < rank < kRanks; without a branch.
  static __device__ void add_detour(uint32_t address, uint32_t rank, uint32_t above) {
    asm volatile(
        "{ .reg .pred p;\n"
        "  setp.lt.u32 p, %1, %3;\n"
        "  setp.gt.and.u32 p, %1, %2, p;\n"
        "  @p red.shared.add.u32 [%0], %4; }"
        :
        : "r"(address), "r"(rank), "r"(above), "n"(kRanks), "r"(1u << 16)
        : "memory");
  }
  __device__ const uint32_t* list_of(uint32_t row) const { return args.knn + uint64_t{row} * args.k; }

  /// The `degree` entries with the fewest detours, equal counts in order of rank.
  __device__ void keep(uint32_t length, uint32_t* kept) {
    uint32_t mine[kOfLane];
    uint32_t places[kOfLane] = {};
#pragma unroll
    for (uint32_t i = 0; i < kOfLane; ++i) mine[i] = shared.order[32 * i + lane];
    for (uint32_t other = 0; other < length; other += 4) {  // behind the list they are UINT32_MAX
      const uint4 four = *reinterpret_cast<const uint4*>(shared.order + other);
#pragma unroll
      for (uint32_t i = 0; i < kOfLane; ++i) {
        places[i] += (four.x < mine[i] ? 1 : 0) + (four.y < mine[i] ? 1 : 0);
        places[i] += (four.z < mine[i] ? 1 : 0) + (four.w < mine[i] ? 1 : 0);
      }
    }
#pragma unroll
    for (uint32_t i = 0; i < kOfLane; ++i) {
      const uint32_t rank = 32 * i + lane;
      if (rank < length && places[i] < args.degree) kept[places[i]] = shared.list[rank];
    }
    for (uint32_t place = length + lane; place < args.degree; place += 32) kept[place] = kNoRow;
  }
};

template <class Step>
__global__ void __launch_bounds__(Step::kThreads) kernel(const __grid_constant__ Args args) {
  __shared__ typename Step::Shared shared;
  Step(args, shared).run();
}

template <Policy kPolicy>
void run_phase(Args args, const Stream& stream, const Execution& execution) {
  constexpr uint32_t kDistanceBytes = kPolicy.warps * kPolicy.k_max * sizeof(uint32_t);
  static_assert(sizeof(typename PruneRow<kPolicy>::Shared) + kDistanceBytes <= 48 << 10);
  for (uint64_t first = 0; first < args.rows; first += kLaunchRows) {
    execution.check();
    const uint64_t rows = std::min(kLaunchRows, args.rows - first);
    args.first_row = static_cast<uint32_t>(first);
    launch("prune", kernel<PruneRow<kPolicy>>, static_cast<uint32_t>((rows - 1) / kPolicy.warps + 1),
           kPolicy.warps * 32, stream, args, args.distances != nullptr ? kDistanceBytes : 0);
    if (rows < args.rows) stream.wait();
  }
}

void prune(const Args& args, const Stream& stream, const Execution& execution) {
  if (args.k <= kNarrow.k_max)
    run_phase<kNarrow>(args, stream, execution);
  else if (args.k <= kMiddle.k_max)
    run_phase<kMiddle>(args, stream, execution);
  else if (args.k <= kWide.k_max)
    run_phase<kWide>(args, stream, execution);
  else
    run_phase<kWidest>(args, stream, execution);
}

}  // namespace

void prune_by_rank(const uint32_t* knn, uint32_t rows, uint32_t k, const Pruning& pruning, uint32_t* kept,
                   const Stream& stream, const Execution& execution) {
  prune({knn, nullptr, kept, 0, rows, k, pruning.degree, pruning.looked_at}, stream, execution);
}

void prune_by_distance(const uint32_t* knn, const uint32_t* distances, uint32_t rows, uint32_t k,
                       const Pruning& pruning, uint32_t* kept, const Stream& stream,
                       const Execution& execution) {
  prune({knn, distances, kept, 0, rows, k, pruning.degree, pruning.looked_at}, stream, execution);
}

}  // namespace gannet::cuda
