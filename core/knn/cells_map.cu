// Cells: the map. Which cells are near each row, and the rows in the order of their cells.
//
//   here      cell, centroid   a k-means cell and its mean, which is a code itself
//             near             the 64 cells nearest to a row; the first is its home
//             place            a row's number in the order of cells
//             segment          up to 1,024 centroids, of which a row keeps the best of 8 classes
//             leader           every 32nd centroid, by which cells are put in order
//             group            a cell of centroids: the map of centroids as if they were rows
//
// Steps: DrawSample - StartCentroids - once MatchCells, TakeHomes, SumMembers, WriteMeans - MeasureLeaders,
// ChainLeaders, a sort, OrderCentroids - for each slice of rows MatchCells, TakeNear - a stable sort by
// home - FindBegins, CutChunks - GatherCodes.
//
// Cells hold 244 rows on average, from the sample's 64 each. One round of Lloyd's is enough: two or
// three find as many neighbours. Cells of equal shape do not matter, that few rows live far from their
// centroid does.
//
// MatchCells compares every row with all centroids, 1M rows with 4,096: 4 G pairs, half a T of
// multiply-adds on tensor cores and two instructions of a lane for each pair. Of each of 8 classes in
// each of 32 segments the nearest stays, 256 candidates of 4 bytes a row; TakeNear leaves 64 of them,
// sorted. Cells near each other have neighbouring numbers, so centroids are matched in another order,
// spread over all segments: in that of their numbers recall@32 is .9436 where it is .9717. That grows
// with the square of the rows. So from 8,192 cells on, at 2M rows, centroids are sorted into groups by a
// map of their own; rows match the groups, and are then compared with the centroids of the nearest
// groups, 24 chunks of them, as they are compared with rows later (compare_others). That costs the same
// for each row however many cells there are, about as much as 7,000 centroids one by one. Cells are
// numbered in the order of groups then, and a map of very many groups has groups of groups.
//
// Measured on one NVIDIA H200, SIFT 1M x 128: 4.5 ms, of which MatchCells takes 2.6 and TakeNear 1.0.
// Grown to 10M rows, 40,960 cells: 72 ms; 32,768 cells matched one by one took 180, for lists that are
// no better. With 12 chunks of groups instead of 24 recall@32 is .9913 for .9944 in 13 ms less, with 48 .9950
// in 28 more. 1M rows by way of groups: 2 ms longer. Slices of 131,072 of the 10M rows instead of 524,288:
// 33 ms longer for all of cells.
//
// The order of cells decides the contents of the second cache: rows that are worked on together have their
// neighbours in the same cells if those are near each other. Leaders are chained, each followed by the
// nearest that is left, and cells follow their leader.
//
// Sums of bytes are exact in 32 bits (up to 16 million rows a cell), so means do not depend on the
// order of the atomics. An empty cell keeps its centroid, and holds no chunk.

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "backend/launch_items.cuh"
#include "backend/sort_pairs.h"
#include "base/random.h"
#include "knn/cells_cuda.h"
#include "knn/cells_tiles_cuda.h"

namespace gannet::cuda {
namespace {

namespace cg = cooperative_groups;
using Warp = cg::thread_block_tile<32>;

static_assert(kMatchedMax == 1u << kPlaceBits);
constexpr uint32_t kSamplePerCell = 64;
constexpr uint32_t kSegmentsMax = 32;
constexpr uint32_t kIndexBits = 7;        // of 8 centroids in a segment
constexpr uint32_t kCellsPerLeader = 32;  // where there are many cells
constexpr uint32_t kLeadersLeast = 128;   // a leader for each cell up to this many
constexpr uint32_t kLeadersMax = kMatchedMax / kCellsPerLeader;
constexpr uint64_t kSampleStream = 0x63656c6c73;  // "cells"

struct DrawSample;
struct StartCentroids;
struct PermuteCentroids;
struct TakeHomes;
struct SumMembers;
struct WriteMeans;
struct RankCells;
struct CountUp;
struct OrderCentroids;
struct FindBegins;
struct GatherCodes;
struct ListHomes;

struct Args {
  using Steps = StepList<DrawSample, StartCentroids, PermuteCentroids, TakeHomes, SumMembers, WriteMeans,
                         RankCells, CountUp, OrderCentroids, FindBegins, GatherCodes, ListHomes>;

  CodesView codes;
  CodesView centroids;         // [cells]
  uint8_t* centroid_codes;     // the same, to be written
  uint32_t* centroid_squares;  // likewise
  CodesView ordered;           // [cells] centroids in the order of cells
  uint8_t* ordered_codes;
  uint32_t* ordered_squares;
  CodesView sample;            // [sampled]
  uint8_t* sample_codes;       // the same, to be written
  uint32_t* sample_squares;    // likewise
  uint32_t match_stride;       // the n-th centroid that is matched is n times that, modulo their number
  uint8_t* permuted_codes;     // centroids in that order, to be written
  uint32_t* permuted_squares;  // likewise
  CodesView items;             // codes that are matched
  uint32_t first_item;         // of this launch
  uint32_t item_count;         // of this launch
  uint32_t* candidates;        // [item_count, segments, 8] keys
  uint32_t segments;
  uint32_t segment_units;
  uint32_t* homes;               // [items] cell
  uint32_t* near;                // [items, kNearCells]
  uint32_t* sums;                // [cells, stride]
  uint32_t* counts;              // [cells]
  uint32_t* leader_distances;    // [leaders, leaders]
  uint32_t* cell_leaders;        // [cells]
  uint32_t* leader_ranks;        // [leaders]
  uint32_t* numbers;             // 0, 1, 2, ...
  const uint32_t* order;         // [cells] cell at each number of the order
  const uint32_t* sorted_homes;  // [rows]
  uint32_t* begins;              // [cells + 1]
  uint32_t* chunk_begins;        // [cells + 1]
  Chunk* chunks;
  const uint32_t* members;  // [rows]
  uint8_t* sorted;          // [rows, stride]
  uint32_t* squares;        // [rows] by place
  uint32_t leaders;
  uint32_t cells_per_leader;
  uint64_t seed;
};

/// Copies a code and its square. A warp.
__device__ void copy_code(const CodesView& from, uint64_t row, uint8_t* codes, uint32_t* squares,
                          uint64_t to) {
  const uint4* source = reinterpret_cast<const uint4*>(from.row(row));
  uint4* target = reinterpret_cast<uint4*>(codes + to * from.stride);
  for (uint32_t i = threadIdx.x % 32; i < from.stride / 16; i += 32) target[i] = source[i];
  if (threadIdx.x % 32 == 0) squares[to] = from.squares[row];
}

__device__ uint32_t distance_of(const CodesView& codes, uint32_t a, uint32_t b) {
  const uint4* left = reinterpret_cast<const uint4*>(codes.row(a));
  const uint4* right = reinterpret_cast<const uint4*>(codes.row(b));
  uint32_t sum = 0;
  for (uint32_t i = 0; i < codes.stride / 16; ++i) {
    const uint4 x = left[i];
    const uint4 y = right[i];
    sum = __dp4a(x.x, y.x, __dp4a(x.y, y.y, __dp4a(x.z, y.z, __dp4a(x.w, y.w, sum))));
  }
  return codes.squares[a] + codes.squares[b] - 2 * sum;
}

// --- k-means -------------------------------------------------------------------------------------

/// Row i of the sample is drawn from the i-th of `sampled` equal strata, as random_strata does it. A warp
/// for each.
struct DrawSample {
  static constexpr uint32_t kLanes = 32;
  const Args& args;

  __device__ void run(uint64_t i) const {
    const uint64_t rows = args.codes.rows;
    const uint64_t begin = rows * i / args.sample.rows;
    const uint64_t end = rows * (i + 1) / args.sample.rows;
    const uint64_t row = begin + random_below(end - begin, args.seed, kSampleStream, i);
    copy_code(args.codes, row, args.sample_codes, args.sample_squares, i);
  }
};

/// A cell begins as one row of its share of the sample. A warp for each.
struct StartCentroids {
  static constexpr uint32_t kLanes = 32;
  const Args& args;

  __device__ void run(uint64_t cell) const {
    const uint32_t share = args.sample.rows / args.centroids.rows;
    const uint64_t place = random_below(share, args.seed, kSampleStream + 1, cell) + cell * share;
    copy_code(args.sample, place, args.centroid_codes, args.centroid_squares, cell);
  }
};

/// Centroids in the order in which they are matched. A warp for each.
struct PermuteCentroids {
  static constexpr uint32_t kLanes = 32;
  const Args& args;

  __device__ void run(uint64_t place) const {
    copy_code(args.centroids, place * args.match_stride % args.centroids.rows, args.permuted_codes,
              args.permuted_squares, place);
  }
};

/// The number of the centroid of a key.
__device__ uint32_t matched_cell(const Args& args, uint32_t key) {
  const uint32_t place = key & ((1u << kPlaceBits) - 1);
  return static_cast<uint32_t>(uint64_t{place} * args.match_stride % args.ordered.rows);
}

/// The part that both ways to match share: the rows of a warp, and the candidates kept of their sums.
struct Matching {
  const Args& args;
  uint32_t lane = threadIdx.x % 32;
  uint32_t items[4];  // g, g + 8, g + 16, g + 24 of the launch
  uint32_t rows[4];
  uint32_t squares[4];
  ClassBest<kIndexBits> best;
  uint32_t segment = 0;
  uint32_t unit_in_segment = 0;

  __device__ Matching(const Args& args, uint32_t first) : args(args) {
#pragma unroll
    for (uint32_t r = 0; r < 4; ++r) {
      items[r] = first + 8 * r + lane / 4;
      rows[r] = args.first_item + min(items[r], args.item_count - 1);
      squares[r] = args.items.squares[rows[r]];
    }
    best.clear();
  }

  /// Takes the next unit's sums.
  __device__ void keep(const UnitSums& sums, uint32_t unit, uint32_t units, uint32_t shift) {
    best.keep(sums, unit_in_segment * 4);
    if (++unit_in_segment < args.segment_units && unit + 1 < units) return;
    unit_in_segment = 0;
    write(shift);
    best.clear();
    ++segment;
  }

  __device__ void write(uint32_t shift) const {
    const uint32_t first = segment * args.segment_units * kUnitRows + lane % 4 * 2;
#pragma unroll
    for (uint32_t r = 0; r < 4; ++r) {
      uint32_t keys[2];
#pragma unroll
      for (uint32_t side = 0; side < 2; ++side) {
        const int32_t sum = best.sum(r, side);
        keys[side] = sum <= kHoleSum
                         ? kNoCandidate
                         : candidate_key(squares[r], sum << shift, first + best.index(r, side) * 8 + side);
      }
      if (items[r] < args.item_count)
        reinterpret_cast<uint2*>(
            args.candidates)[(uint64_t{items[r]} * args.segments + segment) * 4 + lane % 4] =
            make_uint2(keys[0], keys[1]);
    }
  }
};

/// Narrow rows: 256 of them in registers, and all centroids through shared memory.
template <uint32_t kPanels>
struct MatchCells {
  static constexpr uint32_t kThreads = 256;
  static constexpr uint32_t kBlocks = 2;
  static constexpr uint32_t kRows = 256;
  struct Shared {
    RightTile<kPanels> tiles[2];
  };
  const Args& args;
  Shared& shared;

  __device__ void run() {
    Matching matching(args, blockIdx.x * kRows + threadIdx.x / 32 * 32);
    LeftWords left[kPanels];
    read_left(left, args.items, matching.rows, matching.lane);
    const uint32_t cells = args.ordered.rows;
    const uint32_t units = (cells + kUnitRows - 1) / kUnitRows;
    fetch(0);
    for (uint32_t first = 0; first < cells; first += kTileRows) {
      const uint32_t tile = first / kTileRows;
      if (first + kTileRows < cells) {
        fetch(tile + 1);
        wait_copies<1>();
      } else {
        wait_copies<0>();
      }
      __syncthreads();
#pragma unroll 1
      for (uint32_t unit = 0; unit < kTileUnits; ++unit) {
        if (tile * kTileUnits + unit >= units) break;
        UnitSums sums;
        shared.tiles[tile % 2].multiply(sums, left, unit, matching.lane);
        matching.keep(sums, tile * kTileUnits + unit, units, 0);
      }
      __syncthreads();
    }
  }

  __device__ void fetch(uint32_t tile) {
    shared.tiles[tile % 2].template fetch<kThreads>(args.ordered, tile * kTileRows,
                                                    min(kTileRows, args.ordered.rows - tile * kTileRows));
    commit_copies();
  }
};

/// Rows of any width, 128 a block.
struct MatchWideCells {
  static constexpr uint32_t kThreads = 128;
  static constexpr uint32_t kBlocks = 2;
  static constexpr uint32_t kRows = 128;
  struct Shared {
    WideStages<kThreads> stages;
    int32_t halves[kTileRows];
  };
  const Args& args;
  Shared& shared;

  __device__ void run() {
    Matching matching(args, blockIdx.x * kRows + threadIdx.x / 32 * 32);
    const uint32_t cells = args.ordered.rows;
    const uint32_t units = (cells + kUnitRows - 1) / kUnitRows;
    const uint32_t shift = sum_shift(args.items.stride);
    for (uint32_t first = 0; first < cells; first += kTileRows) {
      const uint32_t count = min(kTileRows, cells - first);
      __syncthreads();
      shared.halves[threadIdx.x] =
          threadIdx.x < count ? static_cast<int32_t>(args.ordered.squares[first + threadIdx.x] / 2) : -1;
      UnitSums sums[kTileUnits];
      shared.stages.multiply(sums, args.items, matching.rows, args.ordered, first, count, matching.lane);
#pragma unroll
      for (uint32_t unit = 0; unit < kTileUnits; ++unit) {
        if (first / kUnitRows + unit >= units) break;
        shift_sums(sums[unit], shared.halves, unit, shift, matching.lane);
        matching.keep(sums[unit], first / kUnitRows + unit, units, shift);
      }
    }
  }
};

/// The nearest cell of each item. A warp for each.
struct TakeHomes {
  static constexpr uint32_t kLanes = 32;
  const Args& args;

  __device__ void run(uint64_t item) const {
    const uint32_t width = args.segments * 8;
    const uint32_t* keys = args.candidates + item * width;
    uint32_t least = kNoCandidate;
    for (uint32_t i = threadIdx.x % 32; i < width; i += 32) least = min(least, keys[i]);
    least = __reduce_min_sync(~0u, least);
    if (threadIdx.x % 32 == 0) args.homes[args.first_item + item] = matched_cell(args, least);
  }
};

/// The kNearCells nearest cells of each row, nearest first. A warp for each.
struct TakeNear {
  static constexpr uint32_t kLanes = 32;
  static constexpr uint32_t kRegisters = kSegmentsMax * 8 / 32;
  static constexpr uint32_t kEnough = kNearCells + 32;
  const Args& args;

  __device__ void run(uint64_t item) const {
    __shared__ uint32_t all_kept[kItemThreads / 32][kEnough];
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t width = args.segments * 8;
    uint32_t keys[kRegisters];
#pragma unroll
    for (uint32_t r = 0; r < kRegisters; ++r)
      keys[r] = 32 * r + lane < width ? args.candidates[item * width + 32 * r + lane] : kNoCandidate;
    const uint32_t cut = find_cut(keys, kNearCells, kEnough);
    uint32_t* kept = all_kept[threadIdx.x / 32];
    uint32_t count = 0;
#pragma unroll
    for (uint32_t r = 0; r < kRegisters; ++r) {
      const bool mine = keys[r] <= cut;
      const uint32_t lanes = __ballot_sync(~0u, mine);
      if (mine) kept[count + __popc(lanes & ((1u << lane) - 1))] = keys[r];
      count += __popc(lanes);
    }
    __syncwarp();
    uint32_t list[kNearCells / 32] = {kNoCandidate, kNoCandidate};
    for (uint32_t first = 0; first < count; first += 32)
      merge_keys(list, sort_keys(first + lane < count ? kept[first + lane] : kNoCandidate));
    uint32_t* near = args.near + (args.first_item + item) * kNearCells;
#pragma unroll
    for (uint32_t r = 0; r < kNearCells / 32; ++r)
      near[32 * r + lane] = list[r] == kNoCandidate ? kNone : matched_cell(args, list[r]);
    if (lane == 0) args.homes[args.first_item + item] = matched_cell(args, list[0]);
  }
};

/// The nearest cell of each item from a list of them; of none the first. A thread for each.
struct ListHomes {
  static constexpr uint32_t kLanes = 1;
  const Args& args;

  __device__ void run(uint64_t item) const {
    const uint32_t home = args.near[item * kNearCells];
    args.homes[item] = home == kNone ? 0 : home;
  }
};

/// Adds four columns of a sampled row to its cell. A thread for each word.
struct SumMembers {
  static constexpr uint32_t kLanes = 1;
  const Args& args;

  __device__ void run(uint64_t word_number) const {
    const uint32_t words = args.sample.stride / 4;
    const uint64_t item = word_number / words;
    const uint32_t word = static_cast<uint32_t>(word_number % words);
    const uint32_t home = args.homes[item];
    const uint32_t four = reinterpret_cast<const uint32_t*>(args.sample.row(item))[word];
    uint32_t* sums = args.sums + uint64_t{home} * args.sample.stride + 4 * word;
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t byte = four >> (8 * i) & 0xff;
      if (byte != 0) atomicAdd(sums + i, byte);
    }
    if (word == 0) atomicAdd(&args.counts[home], 1);
  }
};

/// Means, halves up; an empty cell keeps its centroid. A warp for each.
struct WriteMeans {
  static constexpr uint32_t kLanes = 32;
  const Args& args;
  Warp warp = cg::tiled_partition<32>(cg::this_thread_block());

  __device__ void run(uint64_t cell) const {
    const uint64_t count = args.counts[cell];
    if (count == 0) return;
    const uint32_t* sums = args.sums + cell * args.codes.stride;
    uint8_t* mean = args.centroid_codes + cell * args.codes.stride;
    uint32_t square = 0;
    for (uint32_t column = warp.thread_rank(); column < args.codes.stride; column += 32) {
      const uint32_t value = static_cast<uint32_t>((2 * uint64_t{sums[column]} + count) / (2 * count));
      mean[column] = static_cast<uint8_t>(value);
      square += value * value;
    }
    square = cg::reduce(warp, square, cg::plus<uint32_t>());
    if (warp.thread_rank() == 0) args.centroid_squares[cell] = square;
  }
};

// --- The order of cells --------------------------------------------------------------------------

/// The nearest leader of a cell, of equally near ones the first; a leader's distances to all. A block
/// for each cell.
struct MeasureLeaders {
  static constexpr uint32_t kThreads = 128;
  struct Shared {
    unsigned long long nearest;
  };
  const Args& args;
  Shared& shared;

  __device__ void run() {
    const uint32_t cell = blockIdx.x;
    if (threadIdx.x == 0) shared.nearest = ~0ull;
    __syncthreads();
    uint64_t nearest = ~uint64_t{0};
    for (uint32_t leader = threadIdx.x; leader < args.leaders; leader += kThreads) {
      const uint32_t distance = distance_of(args.centroids, cell, leader * args.cells_per_leader);
      nearest = min(nearest, uint64_t{distance} << 32 | leader);
      if (cell % args.cells_per_leader == 0 && cell / args.cells_per_leader < args.leaders)
        args.leader_distances[cell / args.cells_per_leader * args.leaders + leader] = distance;
    }
    atomicMin(&shared.nearest, nearest);
    __syncthreads();
    if (threadIdx.x == 0) args.cell_leaders[cell] = static_cast<uint32_t>(shared.nearest);
  }
};

/// Leaders in a chain from the first on: the nearest of those that are left comes next. One block.
struct ChainLeaders {
  static constexpr uint32_t kThreads = kLeadersMax;
  struct Shared {
    uint64_t nearest[kThreads / 32];
    uint32_t current;
  };
  const Args& args;
  Shared& shared;

  __device__ void run() {
    bool left = threadIdx.x < args.leaders;
    uint32_t current = 0;
    for (uint32_t rank = 0; rank < args.leaders; ++rank) {
      if (threadIdx.x == current) {
        args.leader_ranks[current] = rank;
        left = false;
      }
      uint64_t nearest =
          left ? uint64_t{args.leader_distances[current * args.leaders + threadIdx.x]} << 32 | threadIdx.x
               : ~uint64_t{0};
#pragma unroll
      for (uint32_t stride = 16; stride != 0; stride /= 2)
        nearest = min(nearest, __shfl_xor_sync(~0u, nearest, stride));
      if (threadIdx.x % 32 == 0) shared.nearest[threadIdx.x / 32] = nearest;
      __syncthreads();
      if (threadIdx.x < 32) {
        nearest = shared.nearest[threadIdx.x];
#pragma unroll
        for (uint32_t stride = 16; stride != 0; stride /= 2)
          nearest = min(nearest, __shfl_xor_sync(~0u, nearest, stride));
        if (threadIdx.x == 0) shared.current = static_cast<uint32_t>(nearest);
      }
      __syncthreads();
      current = shared.current;
    }
  }
};
static_assert(ChainLeaders::kThreads == 1024);

/// From the leader of each cell to its rank, which cells are sorted by.
struct RankCells {
  static constexpr uint32_t kLanes = 1;
  const Args& args;

  __device__ void run(uint64_t cell) const {
    args.cell_leaders[cell] = args.leader_ranks[args.cell_leaders[cell]];
  }
};

/// Centroids in the order of cells. A warp for each.
struct OrderCentroids {
  static constexpr uint32_t kLanes = 32;
  const Args& args;

  __device__ void run(uint64_t number) const {
    copy_code(args.centroids, args.order[number], args.ordered_codes, args.ordered_squares, number);
  }
};

// --- The order of rows ---------------------------------------------------------------------------

struct CountUp {
  static constexpr uint32_t kLanes = 1;
  const Args& args;

  __device__ void run(uint64_t number) const { args.numbers[number] = static_cast<uint32_t>(number); }
};

/// Where the rows of each cell begin among the sorted ones.
struct FindBegins {
  static constexpr uint32_t kLanes = 1;
  const Args& args;

  __device__ void run(uint64_t cell) const {
    uint32_t first = 0;
    uint32_t count = args.codes.rows;
    while (count > 0) {
      const uint32_t half = count / 2;
      const bool right = args.sorted_homes[first + half] < cell;
      first = right ? first + half + 1 : first;
      count = right ? count - half - 1 : half;
    }
    args.begins[cell] = first;
  }
};

/// Cells in chunks of at most kTileRows rows, alike in size. One block; a thread has consecutive cells.
struct CutChunks {
  static constexpr uint32_t kThreads = 1024;
  struct Shared {
    uint32_t totals[32];
  };
  const Args& args;
  Shared& shared;

  __device__ uint32_t chunks_of(uint32_t cell) const {
    return (args.begins[cell + 1] - args.begins[cell] + kTileRows - 1) / kTileRows;
  }

  __device__ void run() {
    const uint32_t cells = args.ordered.rows;
    const uint32_t each = (cells + kThreads - 1) / kThreads;
    const uint32_t begin = min(cells, threadIdx.x * each);
    const uint32_t end = min(cells, begin + each);
    uint32_t total = 0;
    for (uint32_t cell = begin; cell < end; ++cell) total += chunks_of(cell);
    uint32_t chunk = exclusive_sum(total);
    for (uint32_t cell = begin; cell < end; ++cell) {
      args.chunk_begins[cell] = chunk;
      const uint32_t first = args.begins[cell];
      const uint32_t size = args.begins[cell + 1] - first;
      const uint32_t count = chunks_of(cell);
      const uint32_t rows = count == 0 ? 0 : (size + count - 1) / count;
      for (uint32_t i = 0; i < count; ++i) {
        const uint32_t from = min(size, i * rows);
        args.chunks[chunk++] = {first + from, min(rows, size - from)};
      }
    }
    if (threadIdx.x == kThreads - 1) args.chunk_begins[cells] = chunk;
  }

  __device__ uint32_t exclusive_sum(uint32_t mine) {
    uint32_t sum = mine;
    for (uint32_t stride = 1; stride < 32; stride *= 2) {
      const uint32_t other = __shfl_up_sync(~0u, sum, stride);
      if (threadIdx.x % 32 >= stride) sum += other;
    }
    if (threadIdx.x % 32 == 31) shared.totals[threadIdx.x / 32] = sum;
    __syncthreads();
    uint32_t before = 0;
    for (uint32_t i = 0; i < threadIdx.x / 32; ++i) before += shared.totals[i];
    return before + sum - mine;
  }
};

/// Codes and squares by place. A thread for each 16 bytes.
struct GatherCodes {
  static constexpr uint32_t kLanes = 1;
  const Args& args;

  __device__ void run(uint64_t piece_number) const {
    const uint32_t pieces = args.codes.stride / 16;
    const uint64_t place = piece_number / pieces;
    const uint32_t piece = static_cast<uint32_t>(piece_number % pieces);
    const uint32_t row = args.members[place];
    reinterpret_cast<uint4*>(args.sorted)[place * pieces + piece] =
        reinterpret_cast<const uint4*>(args.codes.row(row))[piece];
    if (piece == 0) args.squares[place] = args.codes.squares[row];
  }
};

template <class Step>
__global__ void __launch_bounds__(Step::kThreads) kernel(const __grid_constant__ Args args) {
  __shared__ typename Step::Shared shared;
  Step{args, shared}.run();
}

template <class Step>
__global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
    match_kernel(const __grid_constant__ Args args) {
  __shared__ typename Step::Shared shared;
  Step{args, shared}.run();
}

// --- Host ----------------------------------------------------------------------------------------

template <class Step>
void launch_match(const Args& args, const Stream& stream) {
  launch("match_cells", match_kernel<Step>, (args.item_count + Step::kRows - 1) / Step::kRows, Step::kThreads,
         stream, args);
}

/// Candidates of the launch's items.
void match(const Args& args, const Stream& stream) {
  if (args.items.stride == kPanelBytes)
    launch_match<MatchCells<1>>(args, stream);
  else if (args.items.stride == 2 * kPanelBytes)
    launch_match<MatchCells<2>>(args, stream);
  else
    launch_match<MatchWideCells>(args, stream);
}

/// The stride of a permutation of `count` numbers that puts neighbours far apart: their golden section, or the next
/// number without a common divisor.
uint32_t coprime_stride(uint32_t count) {
  uint32_t stride = static_cast<uint32_t>(count * 0.618) + 1;
  while (std::gcd(stride, count) != 1) ++stride;
  return stride;
}

/// Compares items with all `cells`, in slices: their nearest cells, or, where `near` is null, only homes.
void match_all(const CodesView& items, const CodesView& cells, uint64_t slice, uint32_t* near,
               uint32_t* homes, const Stream& stream, const Execution& execution) {
  const uint32_t units = (cells.rows + kUnitRows - 1) / kUnitRows;
  Args args = {};
  args.items = items;
  args.ordered = cells;
  args.near = near;
  args.homes = homes;
  args.segment_units = (units + kSegmentsMax - 1) / kSegmentsMax;
  args.segments = (units + args.segment_units - 1) / args.segment_units;
  const uint64_t permuted_cells = near != nullptr ? cells.rows : 0;
  const DeviceArray<uint8_t> permuted_codes(permuted_cells * cells.stride, stream);
  const DeviceArray<uint32_t> permuted_squares(permuted_cells, stream);
  args.match_stride = 1;
  if (near != nullptr) {
    args.centroids = cells;
    args.match_stride = coprime_stride(cells.rows);
    args.permuted_codes = permuted_codes.data();
    args.permuted_squares = permuted_squares.data();
    args.ordered = {permuted_codes.data(), permuted_squares.data(), cells.rows, cells.stride};
    launch_items<PermuteCentroids>("permute_centroids", cells.rows, args, stream);
  }
  slice = std::min<uint64_t>(slice, items.rows);
  const DeviceArray<uint32_t> candidates(slice * args.segments * 8, stream);
  args.candidates = candidates.data();
  for (uint64_t first = 0; first < items.rows; first += slice) {
    execution.check();
    args.first_item = static_cast<uint32_t>(first);
    args.item_count = static_cast<uint32_t>(std::min<uint64_t>(slice, items.rows - first));
    match(args, stream);
    if (near != nullptr)
      launch_items<TakeNear>("take_near", args.item_count, args, stream);
    else
      launch_items<TakeHomes>("take_homes", args.item_count, args, stream);
    if (waits_between(items)) stream.wait();
  }
}

void sort_by_cell(const uint32_t* cells, uint32_t* sorted_cells, const uint32_t* values,
                  uint32_t* sorted_values, uint32_t count, uint32_t cell_max, const Stream& stream) {
  const int bits = std::max<int>(1, std::bit_width(cell_max));
  sort_pairs_apart(cells, sorted_cells, values, sorted_values, count, bits, stream, "sorting by cell");
}

/// From args.centroids to args.ordered.
void order_centroids(Args args, const Stream& stream) {
  const uint32_t cells = args.centroids.rows;
  args.cells_per_leader = std::clamp(cells / kLeadersLeast, 1u, kCellsPerLeader);
  args.leaders = cells / args.cells_per_leader;
  const DeviceArray<uint32_t> distances(uint64_t{args.leaders} * args.leaders, stream);
  const DeviceArray<uint32_t> ranks(args.leaders, stream);
  const DeviceArray<uint32_t> leaders(cells, stream);
  const DeviceArray<uint32_t> sorted(cells, stream);
  const DeviceArray<uint32_t> numbers(cells, stream);
  const DeviceArray<uint32_t> order(cells, stream);
  args.leader_distances = distances.data();
  args.leader_ranks = ranks.data();
  args.cell_leaders = leaders.data();
  args.numbers = numbers.data();
  args.order = order.data();
  launch("measure_leaders", kernel<MeasureLeaders>, cells, MeasureLeaders::kThreads, stream, args);
  launch("chain_leaders", kernel<ChainLeaders>, 1, ChainLeaders::kThreads, stream, args);
  launch_items<RankCells>("rank_cells", cells, args, stream);
  launch_items<CountUp>("count_up", cells, args, stream);
  sort_by_cell(leaders.data(), sorted.data(), numbers.data(), order.data(), cells, args.leaders, stream);
  launch_items<OrderCentroids>("order_centroids", cells, args, stream);
}

/// Rows by home, stably, so that each cell's ascend.
void sort_rows(Args args, uint32_t* members, const Stream& stream) {
  const uint32_t rows = args.codes.rows;
  const DeviceArray<uint32_t> numbers(rows, stream);
  const DeviceArray<uint32_t> sorted(rows, stream);
  args.numbers = numbers.data();
  args.sorted_homes = sorted.data();
  launch_items<CountUp>("count_up", rows, args, stream);
  sort_by_cell(args.homes, sorted.data(), numbers.data(), members, rows, args.ordered.rows, stream);
  launch_items<FindBegins>("find_begins", uint64_t{args.ordered.rows} + 1, args, stream);
}

/// Centroids become the means of the sampled rows whose homes they are.
void write_means(Args args, const Stream& stream) {
  const uint64_t words = uint64_t{args.centroids.rows} * args.centroids.stride;
  const DeviceArray<uint32_t> sums(words, stream);
  const DeviceArray<uint32_t> counts(args.centroids.rows, stream);
  args.sums = sums.data();
  args.counts = counts.data();
  fill(sums.data(), 0, words * sizeof(uint32_t), stream, "clearing sums");
  fill(counts.data(), 0, args.centroids.rows * sizeof(uint32_t), stream, "clearing counts");
  launch_items<SumMembers>("sum_members", uint64_t{args.sample.rows} * (args.sample.stride / 4), args,
                           stream);
  launch_items<WriteMeans>("write_means", args.centroids.rows, args, stream);
}

}  // namespace

CellMap::CellMap(const CodesView& codes, uint64_t seed, const CellsEffort& effort, uint32_t* near,
                 const Stream& stream, const Execution& execution)
    : rows_(codes.rows),
      stride_(codes.stride),
      cells_(cell_count(codes.rows)),
      effort_(effort),
      near_(near),
      sorted_(uint64_t{codes.rows} * codes.stride, stream),
      squares_(codes.rows, stream),
      members_(codes.rows, stream),
      begins_(uint64_t{cells_} + 1, stream),
      chunk_begins_(uint64_t{cells_} + 1, stream),
      chunks_(chunks_max(), stream),
      centroids_(uint64_t{cells_} * stride_, stream),
      centroid_squares_(cells_, stream) {
  const DeviceArray<uint32_t> homes(rows_, stream);
  train(codes, seed, homes.data(), stream, execution);
  find_near(codes, near_, homes.data(), stream, execution);
  Args args = {};
  args.codes = codes;
  args.homes = homes.data();
  args.ordered = centroids();
  args.begins = begins_.data();
  args.chunk_begins = chunk_begins_.data();
  args.chunks = chunks_.data();
  args.members = members_.data();
  args.sorted = sorted_.data();
  args.squares = squares_.data();
  sort_rows(args, members_.data(), stream);
  launch("cut_chunks", kernel<CutChunks>, 1, CutChunks::kThreads, stream, args);
  launch_items<GatherCodes>("gather_codes", uint64_t{rows_} * (stride_ / 16), args, stream);
}

/// Makes the centroids, in their order, from a sample that stands where the rows will.
void CellMap::train(const CodesView& codes, uint64_t seed, uint32_t* homes, const Stream& stream,
                    const Execution& execution) {
  const DeviceArray<uint8_t> first(uint64_t{cells_} * stride_, stream);
  const DeviceArray<uint32_t> first_squares(cells_, stream);
  const CodesView unordered = {first.data(), first_squares.data(), cells_, stride_};
  Args args = {};
  args.codes = codes;
  args.homes = homes;
  args.seed = seed;
  const uint64_t sampled = std::min<uint64_t>(rows_, uint64_t{cells_} * kSamplePerCell);
  args.sample = {sorted_.data(), squares_.data(), static_cast<uint32_t>(sampled), stride_};
  args.sample_codes = sorted_.data();
  args.sample_squares = squares_.data();
  args.centroids = unordered;
  args.centroid_codes = first.data();
  args.centroid_squares = first_squares.data();
  launch_items<DrawSample>("draw_sample", sampled, args, stream);
  launch_items<StartCentroids>("start_centroids", cells_, args, stream);
  if (cells_ <= std::min(effort_.matched, kMatchedMax)) {
    match_all(args.sample, unordered, slice_rows(sampled, stride_, effort_), nullptr, homes, stream,
              execution);
    write_means(args, stream);
    args.ordered = centroids();
    args.ordered_codes = centroids_.data();
    args.ordered_squares = centroid_squares_.data();
    return order_centroids(args, stream);
  }
  group(unordered, seed, stream, execution);
  find_near(args.sample, near_, homes, stream, execution);
  args.centroids = centroids();
  args.centroid_codes = centroids_.data();
  args.centroid_squares = centroid_squares_.data();
  write_means(args, stream);
  copy_on_device(first.data(), centroids_.data(), uint64_t{cells_} * stride_, stream, "copying centroids");
  copy_on_device(first_squares.data(), centroid_squares_.data(), cells_ * sizeof(uint32_t), stream,
                 "copying squares");
  group(unordered, seed, stream, execution);
}

/// Sorts centroids into groups, whose order becomes theirs.
void CellMap::group(const CodesView& unordered, uint64_t seed, const Stream& stream,
                    const Execution& execution) {
  groups_.reset();
  groups_ = std::make_unique<CellMap>(unordered, seed, effort_, near_, stream, execution);
  const CodesView ordered = groups_->view().codes;
  copy_on_device(centroids_.data(), ordered.data, uint64_t{cells_} * stride_, stream, "copying centroids");
  copy_on_device(centroid_squares_.data(), ordered.squares, cells_ * sizeof(uint32_t), stream,
                 "copying squares");
}

void CellMap::find_near(const CodesView& rows, uint32_t* near, uint32_t* homes, const Stream& stream,
                        const Execution& execution) const {
  if (groups_ == nullptr)
    return match_all(rows, centroids(), slice_rows(rows.rows, stride_, effort_), near, homes, stream,
                     execution);
  groups_->find_near(rows, near, homes, stream, execution);
  compare_others(*groups_, rows, effort_, near, stream, execution);
  Args args = {};
  args.items = rows;
  args.near = near;
  args.homes = homes;
  launch_items<ListHomes>("list_homes", rows.rows, args, stream);
}

}  // namespace gannet::cuda
