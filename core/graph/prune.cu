// CAGRA's rank-based pruning on the GPU (section III-B1, equation 3). The contract is in
// search_graph.h, the CPU's version in prune.cpp; both keep the same edges in the same order.
//
//   paper                   here
//   N, d_init, d            rows, k, degree
//   X, Y, Z                 row, y, z
//   edge X -> Y, its rank   place of y in the list of row
//   detourable routes       detours of y
//
// The idea. A warp owns a row. It enters the row's list into a hash of ranks in shared memory, reads
// the list of each near neighbour z with one coalesced load, looks each y up, and counts a detour
// where both legs have better ranks than the edge. Then each entry counts the entries before it in
// the order (detours, rank), which is its place among the kept.
//
// Per row, at degree 32: 32 lists of 128 bytes read, 4 KB; 1,024 look-ups of some 12 instructions,
// 400 warp instructions. At 3 TB/s and 1M rows that is 1.3 ms, as much as the instructions take.
//
// Departures from the paper: only the first `degree` entries of each list are looked at as z and in z
// (search_graph.h says why). A rank table of all rows, directly addressed, does not fit on chip.
//
// With distances, as equation 3 has them, everything stays but the comparison, which needs the distances of
// z's list too: twice the bytes.

#include <cooperative_groups.h>

#include <algorithm>
#include <bit>

#include "ann.h"
#include "graph/search_graph_cuda.h"
#include "traverse/row_key.h"

namespace gannet::cuda {
namespace {

namespace cg = cooperative_groups;

/// What is decided before compilation.
struct Policy {
  uint32_t warps;      // per block, each with a row
  uint32_t k_max;      // entries of a list
  uint32_t places;     // of the table: a power of two, at least eight times k_max
  uint32_t rank_bits;  // of a table's word; the others hold the row
};

constexpr Policy kNarrow{.warps = 8, .k_max = 64, .places = 1024, .rank_bits = 6};
constexpr Policy kMiddle{.warps = 4, .k_max = 128, .places = 2048, .rank_bits = 7};
constexpr Policy kWide{.warps = 2, .k_max = 256, .places = 2048, .rank_bits = 8};
static_assert(kWide.k_max == ANN_DEGREE_MAX);

constexpr uint64_t kLaunchRows = uint64_t{1} << 22;  // a launch stays below some 20 ms
constexpr uint32_t kTries = 4;  // multipliers, until at most one entry finds its place taken

struct Args {
  const uint32_t* knn;        // [rows, k]
  const uint32_t* distances;  // [rows, k] or null: ranks decide
  uint32_t* kept;             // [rows, degree]
  uint32_t first_row;         // of this launch
  uint32_t rows;
  uint32_t k;
  uint32_t degree;
};

/// A row's ranks and detours. One warp. `Word` holds a row and a rank.
template <Policy kPolicy, class Word, bool kByDistance>
struct PruneRow {
  static constexpr uint32_t kThreads = kPolicy.warps * 32;
  static constexpr uint32_t kAhead = 4;  // lists requested before the first is used
  static constexpr uint32_t kRankBits = kPolicy.rank_bits;
  static constexpr uint32_t kRanks = 1u << kRankBits;
  // Differs from every row, and from a hole in a list, in a bit above the rank.
  static constexpr Word kEmpty = static_cast<Word>(~Word{1} << kRankBits);

  struct RowShared {
    alignas(16) Word table[kPolicy.places];  // row << kRankBits | rank
    alignas(16) uint32_t order[kPolicy.k_max];  // detours << 16 | rank; there are at most k_max detours
    uint32_t list[kPolicy.k_max];
    uint32_t homeless[kPolicy.k_max];  // ranks of entries that are not in the table
    uint32_t distances[kByDistance ? kPolicy.k_max : 1];  // of the list
  };
  struct Shared {
    RowShared rows[kPolicy.warps];
  };

  const Args& args;
  RowShared& shared;
  cg::thread_block_tile<32> warp = cg::tiled_partition<32>(cg::this_thread_block());
  uint32_t lane = threadIdx.x % 32;
  uint32_t multiplier = 0x9e3779b1u;
  uint32_t homeless_count = 0;
  Word first_homeless = kEmpty;

  __device__ PruneRow(const Args& args, Shared& shared)
      : args(args), shared(shared.rows[threadIdx.x / 32]) {}

  __device__ void run() {
    const uint64_t row =
        args.first_row + uint64_t{blockIdx.x} * kPolicy.warps + threadIdx.x / 32;
    if (row >= args.rows) return;
    const uint32_t length = read(row * args.k);
    enter(length);
    count_detours(min(length, args.degree));
    keep(length, args.kept + row * args.degree);
  }

  /// Reads the list; returns its length.
  __device__ uint32_t read(uint64_t begin) {
    uint32_t length = 0;
    for (uint32_t first = 0; first < kPolicy.k_max; first += 32) {
      const uint32_t rank = first + lane;
      const uint32_t row = rank < args.k ? args.knn[begin + rank] : kNoRow;
      shared.list[rank] = row;
      shared.order[rank] = row != kNoRow ? rank : UINT32_MAX;
      if constexpr (kByDistance) {
        if (row != kNoRow) shared.distances[rank] = args.distances[begin + rank];
      }
      length += __popc(warp.ballot(row != kNoRow));
    }
    warp.sync();
    return length;
  }

  __device__ uint32_t place_of(uint32_t row) const {
    return (row * multiplier) >> (32 - std::countr_zero(kPolicy.places));
  }
  static __device__ Word word_of(uint32_t row, uint32_t rank) {
    return Word{row} << kRankBits | rank;
  }

  /// Enters the list into the table, where each row has one place. With another multiplier other rows
  /// share a place: the first that leaves at most one entry out is taken, or the last.
  __device__ void enter(uint32_t length) {
    for (uint32_t attempt = 1;; ++attempt) {
      for (uint32_t i = lane; i < kPolicy.places * sizeof(Word) / 16; i += 32)
        reinterpret_cast<uint4*>(shared.table)[i] = empty_words();
      warp.sync();
      homeless_count = 0;
      for (uint32_t first = 0; first < length; first += 32) {
        const uint32_t rank = first + lane;
        bool left_out = false;
        if (rank < length) {
          const uint32_t row = shared.list[rank];
          left_out = !claim(shared.table + place_of(row), word_of(row, rank));
        }
        const uint32_t lanes = warp.ballot(left_out);
        if (left_out) shared.homeless[homeless_count + __popc(lanes & ((1u << lane) - 1))] = rank;
        homeless_count += __popc(lanes);
      }
      warp.sync();
      if (homeless_count <= 1 || attempt == kTries) break;
      multiplier = multiplier * 0x2c1b3c6du + 2;  // stays odd
    }
    if (homeless_count != 0) {
      const uint32_t rank = shared.homeless[0];
      first_homeless = word_of(shared.list[rank], rank);
    }
  }
  static __device__ uint4 empty_words() {
    constexpr uint32_t kLow = static_cast<uint32_t>(kEmpty);
    constexpr uint32_t kHigh = static_cast<uint32_t>(uint64_t{kEmpty} >> 32 % (8 * sizeof(Word)));
    return {kLow, kHigh, kLow, kHigh};
  }
  static __device__ bool claim(uint32_t* place, uint32_t word) {
    return atomicCAS(place, kEmpty, word) == kEmpty;
  }
  static __device__ bool claim(uint64_t* place, uint64_t word) {
    using Wide = unsigned long long;
    return atomicCAS(reinterpret_cast<Wide*>(place), Wide{kEmpty}, Wide{word}) == kEmpty;
  }

  /// The rank of a row, or kRanks and more if it is not in the list.
  __device__ Word rank_of(uint32_t row) const {
    const Word wanted = Word{row} << kRankBits;
    Word rank = shared.table[place_of(row)] ^ wanted;
    const Word other = first_homeless ^ wanted;
    rank = other < kRanks ? other : rank;
    for (uint32_t i = 1; i < homeless_count; ++i) {  // hardly ever
      if (shared.list[shared.homeless[i]] == row) rank = shared.homeless[i];
    }
    return rank;
  }

  /// Equation 3: X -> Z -> Y stands in for X -> Y if both its edges are shorter, or have better ranks.
  __device__ void count_detours(uint32_t looked_at) {
    const uint32_t looked_into = min(args.k, args.degree);
    for (uint32_t first = 0; first < looked_at; first += kAhead) {
      for (uint32_t rank_y = lane; rank_y < looked_into; rank_y += 32) {
        uint32_t y[kAhead];
        uint32_t distances[kAhead];  // of z and y
#pragma unroll
        for (uint32_t i = 0; i < kAhead; ++i) {
          const bool there = first + i < looked_at;
          const uint64_t at = uint64_t{shared.list[there ? first + i : 0]} * args.k + rank_y;
          y[i] = there ? args.knn[at] : kNoRow;
          if constexpr (kByDistance) distances[i] = args.distances[at];
        }
#pragma unroll
        for (uint32_t i = 0; i < kAhead; ++i) {
          const Word rank = rank_of(y[i]);
          if constexpr (kByDistance) {
            if (rank < kRanks && max(shared.distances[first + i], distances[i]) < shared.distances[rank])
              atomicAdd(&shared.order[rank], 1u << 16);
          } else {
            if (rank < kRanks && rank > max(first + i, rank_y))
              atomicAdd(&shared.order[rank], 1u << 16);
          }
        }
      }
    }
    warp.sync();
  }

  /// The `degree` entries with the fewest detours, equal counts in order of rank.
  __device__ void keep(uint32_t length, uint32_t* kept) {
    for (uint32_t rank = lane; rank < length; rank += 32) {
      const uint32_t mine = shared.order[rank];
      uint32_t place = 0;
      for (uint32_t i = 0; i < length; i += 4) {  // behind the list they are UINT32_MAX
        const uint4 four = *reinterpret_cast<const uint4*>(shared.order + i);
        place += (four.x < mine ? 1 : 0) + (four.y < mine ? 1 : 0);
        place += (four.z < mine ? 1 : 0) + (four.w < mine ? 1 : 0);
      }
      if (place < args.degree) kept[place] = shared.list[rank];
    }
    for (uint32_t place = length + lane; place < args.degree; place += 32) kept[place] = kNoRow;
  }
};

template <class Step>
__global__ void __launch_bounds__(Step::kThreads) kernel(const __grid_constant__ Args args) {
  __shared__ typename Step::Shared shared;
  Step(args, shared).run();
}

template <Policy kPolicy, class Word, bool kByDistance>
void run_phase(Args args, const Stream& stream, const Execution& execution) {
  for (uint64_t first = 0; first < args.rows; first += kLaunchRows) {
    execution.check();
    const uint64_t rows = std::min(kLaunchRows, args.rows - first);
    args.first_row = static_cast<uint32_t>(first);
    launch("prune", kernel<PruneRow<kPolicy, Word, kByDistance>>,
           static_cast<uint32_t>((rows - 1) / kPolicy.warps + 1), kPolicy.warps * 32, stream, args);
    if (rows < args.rows) stream.wait();
  }
}

/// Whether words of 32 bits hold every row, and the mark of an empty place beside them.
bool words_suffice(const Policy& policy, uint32_t rows) {
  return rows < (1u << (32 - policy.rank_bits)) - 2;
}

template <bool kByDistance>
void prune(const Args& args, bool wide_words, const Stream& stream, const Execution& execution) {
  const auto suits = [&](const Policy& policy) {
    return !wide_words && args.k <= policy.k_max && words_suffice(policy, args.rows);
  };
  if (suits(kNarrow))
    run_phase<kNarrow, uint32_t, kByDistance>(args, stream, execution);
  else if (suits(kMiddle))
    run_phase<kMiddle, uint32_t, kByDistance>(args, stream, execution);
  else if (suits(kWide))
    run_phase<kWide, uint32_t, kByDistance>(args, stream, execution);
  else
    run_phase<kWide, uint64_t, kByDistance>(args, stream, execution);
}

}  // namespace

void prune_by_rank(const uint32_t* knn, uint32_t rows, uint32_t k, uint32_t degree, uint32_t* kept,
                   const Stream& stream, const Execution& execution, bool wide_words) {
  prune<false>({knn, nullptr, kept, 0, rows, k, degree}, wide_words, stream, execution);
}

void prune_by_distance(const uint32_t* knn, const uint32_t* distances, uint32_t rows, uint32_t k,
                       uint32_t degree, uint32_t* kept, const Stream& stream,
                       const Execution& execution) {
  prune<true>({knn, distances, kept, 0, rows, k, degree}, false, stream, execution);
}

}  // namespace gannet::cuda
