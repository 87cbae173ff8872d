// Cells: the products. Every row is compared with the cells that it wants, and keeps its k nearest.
//
//   here      unit      up to 256 rows of one cell, a block's
//             wish      a bit for each row and each cell near its own: whether it is compared with it
//             list      of a row: the nearest found so far, as keys, in no order
//             worst     the k-th key of a list when it was last cut: what is behind it is no news
//
// The idea. All rows of a unit have the same cells near them. ChooseCells compares the rows with those
// 256 centroids and grants each the nearest cells that together hold `budget` rows. CompareCells goes
// through the near cells: the rows of the unit that want one are gathered, 64 at a time, beside 128
// rows of the cell, and their products stay in registers. A key below `worst` is appended to the row's
// list; a list that might overflow is cut to its k smallest keys, which are found bit by bit. Cells
// share few rows of a unit only at the rim, so that of 64 gathered rows some 50 are there.
//
// Operations a row, budget B: B pairs of 128 multiply-adds on tensor cores, 6 instructions of a lane
// for each to select, and some ten cuts of 700 instructions of a warp. Bytes: 24 KB for 8,192 pairs
// from the second cache. 1M rows and B = 10,000: 10^10 pairs, on paper 12 ms.
//
// The k smallest keys of all that a row was compared with do not depend on the order of comparing.
//
// A home cell of far more rows than the rest (duplicates) is not compared in whole: a row sees those
// within kHomeRows positions of its unit. Cells above the budget are granted to nobody.
//
// Measured on one NVIDIA H100, SIFT 100k, k 64, B = 8,963: 9 ms, with 2.0 G instructions of warps, which
// the device could issue in 2.2: 609 units are one and a half waves of blocks, and warps wait for each
// other. That was before cells came nearest first.
//
// Rejected: sorting lists in shared memory to cut them, as exact_knn.cu does, on paper 3,600 instead of
// 700 instructions. Not tried: candidates kept by column class without a branch, which is faster, loses
// a tenth of the list, and needs rounds of refinement.

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

#include <algorithm>
#include <vector>

#include "ann.h"
#include "dataset/code_tiles_cuda.h"
#include "distance/lanes_cuda.h"
#include "knn/cells_cuda.h"

namespace gannet::cuda {
namespace {

namespace cg = cooperative_groups;

constexpr uint32_t kThreads = 256;
constexpr uint32_t kUnitRows = 256;
constexpr uint32_t kLeft = 64;    // rows of a tile
constexpr uint32_t kRight = 128;
constexpr uint32_t kHomeRows = 2048;
constexpr uint32_t kChooseRows = 32;
constexpr uint32_t kLaunchUnits = 792;  // whole waves of a device with 132 multiprocessors

/// Keys of a list while it is made: room for k, for a tile, and for as much again before the next cut.
constexpr uint32_t list_capacity(uint32_t k) { return (k + 2 * kRight + 31) / 32 * 32; }
constexpr uint32_t kCapacityMax = list_capacity(ANN_DEGREE_MAX);

/// Consecutive positions of one cell.
struct Unit {
  uint32_t first;
  uint32_t count;
  uint32_t cell;
};

struct Args {
  CodesView codes;
  CellsView map;
  const Unit* units;    // [units]
  uint32_t* wishes;     // [rows, kWantedWords] by position
  uint64_t* lists;      // [units of a launch, kUnitRows, capacity]
  uint32_t* neighbors;  // [rows, k]
  uint32_t* distances;  // [rows, k], or null
  const uint32_t* judged;  // [judged_count] rows, for CompareWithAll
  uint64_t* judged_keys;   // [slices, kJudgedRows, kJudgedDepth]
  uint32_t judged_count;
  uint32_t first_unit;  // of this launch
  uint32_t budget;
  uint32_t k;
  uint32_t capacity;
};

/// Grants rows their cells. A block for each unit, 32 rows at a time.
struct ChooseCells {
  static constexpr uint32_t kThreads = cuda::kThreads;
  static constexpr uint32_t kBlocks = 3;
  static constexpr uint32_t kAcross = 4;  // of 8 centroids, a warp's in each half of them
  struct Tiles {
    alignas(16) TileRow left[kChooseRows];
    alignas(16) TileRow right[kRight];
  };
  struct Shared {
    union {
      Tiles tiles;
      uint32_t lines[kChooseRows][kNearCells];  // distances
    };
    uint32_t near[kNearCells];  // cells, kNoRow behind the last
    uint32_t squares[kNearCells];
    uint32_t weights[kNearCells];  // rows of each
    uint32_t rows[kChooseRows];
  };

  const Args& args;
  Shared& shared;
  cg::thread_block block = cg::this_thread_block();
  Warp warp = cg::tiled_partition<32>(block);
  uint32_t lane = threadIdx.x % 32;
  Unit unit = args.units[args.first_unit + blockIdx.x];

  __device__ void run() {
    const uint16_t cell = args.map.near[uint64_t{unit.cell} * kNearCells + threadIdx.x];
    static_assert(kThreads == kNearCells);
    shared.near[threadIdx.x] = cell != kNoCell ? cell : kNoRow;
    shared.squares[threadIdx.x] = cell != kNoCell ? args.map.centroids.squares[cell] : 0;
    shared.weights[threadIdx.x] =
        cell != kNoCell ? args.map.begins[cell + 1] - args.map.begins[cell] : 0;
    for (uint32_t first = 0; first < unit.count; first += kChooseRows) {
      block.sync();
      if (threadIdx.x < kChooseRows)
        shared.rows[threadIdx.x] = first + threadIdx.x < unit.count
                                       ? args.map.members[unit.first + first + threadIdx.x]
                                       : kNoRow;
      measure();
      block.sync();
      for (uint32_t i = threadIdx.x / 32; i < kChooseRows && first + i < unit.count;
           i += kThreads / 32)
        grant(i, args.wishes + uint64_t{unit.first + first + i} * kWantedWords);
    }
  }

  /// Distances of the rows to the near centroids, into `lines`.
  __device__ void measure() {
    constexpr uint32_t kHalves = kNearCells / kRight;
    int32_t sums[kHalves][1][kAcross][4] = {};
    const uint32_t warp_left = threadIdx.x / 32 % 2 * 16;
    const uint32_t warp_right = threadIdx.x / 64 * 32;
    for (uint32_t column = 0; column < args.codes.stride; column += kTileColumns) {
#pragma unroll
      for (uint32_t half = 0; half < kHalves; ++half) {
        block.sync();
        if (half == 0)
          fetch_tile<kChooseRows, kThreads>(shared.tiles.left, args.codes, column,
                                            [&](uint32_t i) { return shared.rows[i]; });
        fetch_tile<kRight, kThreads>(shared.tiles.right, args.map.centroids, column,
                                     [&](uint32_t i) { return shared.near[half * kRight + i]; });
        block.sync();
        multiply_tile<1, kAcross>(sums[half], &shared.tiles.left[warp_left],
                                  &shared.tiles.right[warp_right],
                                  min(kTileColumns, args.codes.stride - column), lane);
      }
    }
    block.sync();  // the tiles make way for the lines
#pragma unroll
    for (uint32_t half = 0; half < kHalves; ++half) {
#pragma unroll
      for (uint32_t across = 0; across < kAcross; ++across) {
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
          const uint32_t left = warp_left + lane / 4 + i / 2 * 8;
          const uint32_t right = half * kRight + warp_right + 8 * across + lane % 4 * 2 + i % 2;
          // The square of the row is the same for all; half of 2^32 keeps the order of what may be
          // below zero.
          shared.lines[left][right] = shared.squares[right] -
                                      2 * static_cast<uint32_t>(sums[half][0][across][i]) + (1u << 31);
        }
      }
    }
  }

  /// The largest bound such that the cells nearer than it hold at most `budget` rows, bit by bit.
  __device__ void grant(uint32_t i, uint32_t* wishes) {
    uint32_t distances[kWantedWords];
    uint32_t weights[kWantedWords];
#pragma unroll
    for (uint32_t word = 0; word < kWantedWords; ++word) {
      const bool there = shared.near[32 * word + lane] != kNoRow;
      distances[word] = there ? shared.lines[i][32 * word + lane] : UINT32_MAX;
      weights[word] = shared.weights[32 * word + lane];
    }
    uint32_t bound = 0;
    for (uint32_t bit = 1u << 31; bit != 0; bit /= 2) {
      uint32_t held = 0;
#pragma unroll
      for (uint32_t word = 0; word < kWantedWords; ++word)
        held += distances[word] < (bound | bit) ? weights[word] : 0;
      if (cg::reduce(warp, held, cg::plus<uint32_t>()) <= args.budget) bound |= bit;
    }
#pragma unroll
    for (uint32_t word = 0; word < kWantedWords; ++word) {
      const uint32_t lanes = warp.ballot(distances[word] < bound);
      if (lane == word) wishes[word] = lanes;
    }
  }
};

/// The wanted-th smallest of a warp's values, bit by bit.
template <uint32_t kRegisters>
__device__ uint32_t find_smallest(const uint32_t (&values)[kRegisters], uint32_t wanted,
                                  uint32_t first_bit) {
  uint32_t value = 0;
  for (uint32_t bit = first_bit; bit != 0; bit /= 2) {
    uint32_t below = 0;
#pragma unroll
    for (uint32_t r = 0; r < kRegisters; ++r) below += values[r] < (value | bit) ? 1 : 0;
    if (__reduce_add_sync(~0u, below) < wanted) value |= bit;
  }
  return value;
}

/// Leaves a list of more than k keys, at most 32 a register, with its k smallest, and returns a key
/// such that none behind it is among them. By a warp: lane l holds keys l, l + 32, ...
///
/// Not inlined: with its registers in the loop over cells a block takes 128 of them and spills.
template <uint32_t kRegisters>
__device__ __noinline__ uint64_t cut_list(uint64_t* list, uint32_t count, uint32_t k) {
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t lanes_before = (1u << lane) - 1;
  uint32_t distances[kRegisters];
  uint32_t rows[kRegisters];
  uint32_t farthest = 0;
#pragma unroll
  for (uint32_t r = 0; r < kRegisters; ++r) {
    const uint32_t i = 32 * r + lane;
    const uint64_t key = i < count ? list[i] : RowKey::kNone;
    distances[r] = static_cast<uint32_t>(key >> 32);
    rows[r] = static_cast<uint32_t>(key);
    if (i < count) farthest = max(farthest, distances[r]);
  }
  farthest = __reduce_max_sync(~0u, farthest);
  const uint32_t first_bit = farthest == 0 ? 0 : 1u << (31 - __clz(farthest));
  const uint32_t distance = find_smallest(distances, k, first_bit);
  uint32_t nearer = 0;
  uint32_t tied = 0;
#pragma unroll
  for (uint32_t r = 0; r < kRegisters; ++r) {
    nearer += distances[r] < distance ? 1 : 0;
    tied += distances[r] == distance ? 1 : 0;
  }
  nearer = __reduce_add_sync(~0u, nearer);
  tied = __reduce_add_sync(~0u, tied);
  uint32_t last_row = UINT32_MAX;  // keys at the last distance but of a smaller row may still come
  if (nearer + tied > k) {
    uint32_t tied_rows[kRegisters];
#pragma unroll
    for (uint32_t r = 0; r < kRegisters; ++r)
      tied_rows[r] = distances[r] == distance ? rows[r] : UINT32_MAX;
    last_row = find_smallest(tied_rows, k - nearer, 1u << 31);
  }
  __syncwarp();
  uint32_t size = 0;
#pragma unroll
  for (uint32_t r = 0; r < kRegisters; ++r) {
    const bool kept = distances[r] < distance || (distances[r] == distance && rows[r] <= last_row);
    const uint32_t lanes = __ballot_sync(~0u, kept);
    if (kept) list[size + __popc(lanes & lanes_before)] = uint64_t{distances[r]} << 32 | rows[r];
    size += __popc(lanes);
  }
  __syncwarp();
  return uint64_t{distance} << 32 | last_row;
}

/// What a block shares while it compares the rows of a unit.
struct UnitShared {
  union {
    struct {
      alignas(16) TileRow left[kLeft];
      alignas(16) TileRow right[kRight];
    } tiles;
    uint64_t keys[kThreads / 32][ANN_DEGREE_MAX];  // of lists while they are sorted
  };
  uint32_t rows[kUnitRows];     // of the unit
  uint32_t squares[kUnitRows];  // their x.x
  uint32_t right_rows[kRight];
  uint32_t right_squares[kRight];
  uint16_t wanting[kUnitRows];  // places in the unit of the rows that want the cell, ascending
  uint32_t wanting_in_warp[kThreads / 32];
  uint64_t worst[kUnitRows];  // k-th key so far, or kNone
  uint32_t counts[kUnitRows];
};

/// The rows of a unit, their lists, and what they are compared with.
struct UnitLists {
  static constexpr uint32_t kDown = 2;    // of 16 rows, a warp's
  static constexpr uint32_t kAcross = 4;  // of 8 rows

  const CodesView& codes;
  const uint32_t* members;
  UnitShared& shared;
  uint64_t* lists;  // [kUnitRows, capacity]
  uint32_t k;
  uint32_t capacity;
  cg::thread_block block = cg::this_thread_block();
  Warp warp = cg::tiled_partition<32>(block);
  uint32_t lane = threadIdx.x % 32;
  uint32_t warp_left = threadIdx.x / 32 % 2 * 32;
  uint32_t warp_right = threadIdx.x / 64 * 32;

  /// This thread's row of the unit, or kNoRow.
  __device__ void open(uint32_t row) {
    shared.rows[threadIdx.x] = row;
    shared.squares[threadIdx.x] = row != kNoRow ? codes.squares[row] : 0;
    shared.worst[threadIdx.x] = RowKey::kNone;
    shared.counts[threadIdx.x] = 0;
    block.sync();
  }

  /// Writes down the rows whose threads want something; how many.
  __device__ uint32_t gather(bool wants) {
    const uint32_t lanes = warp.ballot(wants);
    block.sync();  // nobody reads the last list any more
    if (lane == 0) shared.wanting_in_warp[threadIdx.x / 32] = __popc(lanes);
    block.sync();
    uint32_t before = 0;
    uint32_t total = 0;
    for (uint32_t i = 0; i < kThreads / 32; ++i) {
      before += i < threadIdx.x / 32 ? shared.wanting_in_warp[i] : 0;
      total += shared.wanting_in_warp[i];
    }
    if (wants)
      shared.wanting[before + __popc(lanes & ((1u << lane) - 1))] =
          static_cast<uint16_t>(threadIdx.x);
    block.sync();
    return total;
  }

  /// Compares the `wanting` rows that were written down with those at some positions.
  __device__ void compare(uint32_t wanting, uint32_t begin, uint32_t end) {
    const bool one_chunk = codes.stride <= kTileColumns;
    for (uint32_t first = begin; first < end; first += kRight) {
      if (threadIdx.x < kRight) {
        const bool there = first + threadIdx.x < end;
        const uint32_t row = there ? members[first + threadIdx.x] : kNoRow;
        shared.right_rows[threadIdx.x] = row;
        shared.right_squares[threadIdx.x] = there ? codes.squares[row] : 0;
      }
      block.sync();
      for (uint32_t left = 0; left < wanting; left += kLeft) {
        int32_t sums[kDown][kAcross][4] = {};
        for (uint32_t column = 0; column < codes.stride; column += kTileColumns) {
          fetch_tile<kLeft, kThreads>(shared.tiles.left, codes, column, [&](uint32_t i) {
            return left + i < wanting ? shared.rows[shared.wanting[left + i]] : kNoRow;
          });
          if (!one_chunk || left == 0)
            fetch_tile<kRight, kThreads>(shared.tiles.right, codes, column,
                                         [&](uint32_t i) { return shared.right_rows[i]; });
          block.sync();
          if (left + warp_left < wanting)
            multiply_tile<kDown, kAcross>(sums, &shared.tiles.left[warp_left],
                                          &shared.tiles.right[warp_right],
                                          min(kTileColumns, codes.stride - column), lane);
          block.sync();
        }
        if (left + warp_left < wanting) select(left, wanting, sums);
      }
      make_room();
    }
  }

  /// One comparison refuses nearly all pairs: a distance behind that of the k-th key.
  __device__ void select(uint32_t left_begin, uint32_t wanting,
                         const int32_t (&sums)[kDown][kAcross][4]) {
#pragma unroll
    for (uint32_t down = 0; down < kDown; ++down) {
#pragma unroll
      for (uint32_t half = 0; half < 2; ++half) {
        const uint32_t left = left_begin + warp_left + 16 * down + 8 * half + lane / 4;
        const bool there = left < wanting;
        const uint32_t place = there ? shared.wanting[left] : 0;
        const uint32_t farthest = RowKey::distance(shared.worst[place]);
        const uint32_t square = shared.squares[place];
#pragma unroll
        for (uint32_t across = 0; across < kAcross; ++across) {
#pragma unroll
          for (uint32_t side = 0; side < 2; ++side) {
            const uint32_t right = warp_right + 8 * across + lane % 4 * 2 + side;
            const uint32_t product = static_cast<uint32_t>(sums[down][across][2 * half + side]);
            const uint32_t distance = square + shared.right_squares[right] - 2 * product;
            if (there && distance <= farthest) consider(place, shared.right_rows[right], distance);
          }
        }
      }
    }
  }

  __device__ void consider(uint32_t place, uint32_t row, uint32_t distance) {
    const uint64_t key = RowKey::of(distance, row, false);
    if (row == kNoRow || row == shared.rows[place] || key >= shared.worst[place]) return;
    lists[uint64_t{place} * capacity + atomicAdd(&shared.counts[place], 1)] = key;
  }

  /// Cuts lists that another tile might overflow, a warp each. All threads have appended what they had
  /// before anyone looks.
  __device__ void make_room() {
    block.sync();
    const uint32_t most = capacity - kRight;
    if (!__syncthreads_or(shared.counts[threadIdx.x] > most)) return;
    for (uint32_t place = threadIdx.x / 32; place < kUnitRows; place += kThreads / 32) {
      if (shared.counts[place] > most) cut(place);
    }
    block.sync();
  }

  __device__ void cut(uint32_t place) {
    uint64_t* list = lists + uint64_t{place} * capacity;
    const uint32_t count = shared.counts[place];
    const uint64_t last = capacity <= 320 ? cut_list<10>(list, count, k)
                                          : cut_list<kCapacityMax / 32>(list, count, k);
    if (lane == 0) {
      shared.counts[place] = k;
      shared.worst[place] = last;
    }
    warp.sync();
  }

  /// The list of a place, at most k keys ascending, in shared memory of this warp; how many.
  __device__ uint32_t sorted(uint32_t place, uint64_t*& keys) {
    if (shared.counts[place] > k) cut(place);
    const uint32_t count = shared.counts[place];
    keys = shared.keys[threadIdx.x / 32];
    uint32_t size = 32;
    while (size < count) size *= 2;
    for (uint32_t i = lane; i < size; i += 32)
      keys[i] = i < count ? lists[uint64_t{place} * capacity + i] : RowKey::kNone;
    warp.sync();
    for (uint32_t run = 2; run <= size; run *= 2) {
      for (uint32_t stride = run / 2; stride != 0; stride /= 2) {
        for (uint32_t i = lane; i < size / 2; i += 32) {
          const uint32_t at = 2 * i - (i & (stride - 1));
          const uint64_t first = keys[at];
          const uint64_t second = keys[at + stride];
          if (((at & run) == 0) == (second < first)) {
            keys[at] = second;
            keys[at + stride] = first;
          }
        }
        warp.sync();
      }
    }
    return count;
  }
};

/// A unit and the cells that its rows want.
struct CompareCells {
  static constexpr uint32_t kThreads = cuda::kThreads;
  static constexpr uint32_t kBlocks = 3;
  struct Shared : UnitShared {
    uint32_t wishes[kWantedWords][kUnitRows];
  };
  static_assert(kThreads == kUnitRows);

  const Args& args;
  Shared& shared;
  Unit unit = args.units[args.first_unit + blockIdx.x];
  UnitLists lists{args.codes, args.map.members, shared,
                  args.lists + uint64_t{blockIdx.x} * kUnitRows * args.capacity, args.k,
                  args.capacity};

  __device__ void run() {
    const bool there = threadIdx.x < unit.count;
    const uint32_t position = unit.first + threadIdx.x;
    lists.open(there ? args.map.members[position] : kNoRow);
#pragma unroll
    for (uint32_t word = 0; word < kWantedWords; ++word)
      shared.wishes[word][threadIdx.x] =
          there ? args.wishes[uint64_t{position} * kWantedWords + word] : 0;
    // Its own cell comes first and the others nearest first, which brings the lists' last keys down
    // before most distances come. One loop for both: the comparison is long, and with nine copies of
    // it (a loop unrolled over words) and lists cut in place the kernel took 15 ms instead of 9.
    for (uint32_t turn = 0; turn <= kNearCells; ++turn) {
      const uint32_t near = turn - 1;
      const bool wants =
          turn == 0 ? there : (shared.wishes[near / 32][threadIdx.x] >> (near % 32) & 1) != 0;
      if (!__syncthreads_or(wants)) continue;
      uint32_t begin;
      uint32_t end;
      if (turn == 0)
        find_home(begin, end);
      else
        find_cell(args.map.near[uint64_t{unit.cell} * kNearCells + near], begin, end);
      lists.compare(lists.gather(wants), begin, end);
    }
    store();
  }

  /// Its own cell, or of a giant one the part around the unit.
  __device__ void find_home(uint32_t& begin, uint32_t& end) const {
    find_cell(unit.cell, begin, end);
    begin = unit.first - min(unit.first - begin, kHomeRows);
    end = min(unit.first + unit.count + kHomeRows, end);
  }

  __device__ void find_cell(uint32_t cell, uint32_t& begin, uint32_t& end) const {
    begin = args.map.begins[cell];
    end = args.map.begins[cell + 1];
  }

  __device__ void store() {
    cg::this_thread_block().sync();
    for (uint32_t place = threadIdx.x / 32; place < unit.count; place += kThreads / 32) {
      uint64_t* keys;
      const uint32_t count = lists.sorted(place, keys);
      const uint64_t first = uint64_t{shared.rows[place]} * args.k;
      for (uint32_t i = threadIdx.x % 32; i < args.k; i += 32) {
        args.neighbors[first + i] = i < count ? RowKey::row(keys[i]) : kNoRow;
        if (args.distances != nullptr)
          args.distances[first + i] = i < count ? RowKey::distance(keys[i]) : UINT32_MAX;
      }
      lists.warp.sync();
    }
  }
};

/// The judged rows and a slice of all rows.
struct CompareWithAll {
  static constexpr uint32_t kThreads = cuda::kThreads;
  static constexpr uint32_t kBlocks = 3;
  using Shared = UnitShared;
  static_assert(kThreads == kJudgedRows);

  const Args& args;
  Shared& shared;
  UnitLists lists{args.codes, args.map.members, shared,
                  args.lists + uint64_t{blockIdx.x} * kUnitRows * args.capacity, args.k,
                  args.capacity};

  __device__ void run() {
    const bool there = threadIdx.x < args.judged_count;
    lists.open(there ? args.judged[threadIdx.x] : kNoRow);
    const uint64_t rows = args.codes.rows;
    const uint32_t wanting = lists.gather(there);
    lists.compare(wanting, static_cast<uint32_t>(rows * blockIdx.x / gridDim.x),
                  static_cast<uint32_t>(rows * (blockIdx.x + 1) / gridDim.x));
    cg::this_thread_block().sync();
    for (uint32_t place = threadIdx.x / 32; place < kJudgedRows; place += kThreads / 32) {
      uint64_t* keys;
      const uint32_t count = lists.sorted(place, keys);
      const uint32_t i = threadIdx.x % 32;
      args.judged_keys[(uint64_t{blockIdx.x} * kJudgedRows + place) * kJudgedDepth + i] =
          i < count ? keys[i] : RowKey::kNone;
      lists.warp.sync();
    }
  }
};

template <class Step>
__global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
    kernel(const __grid_constant__ Args args) {
  __shared__ typename Step::Shared shared;
  Step{args, shared}.run();
}

// --- Host ----------------------------------------------------------------------------------------

/// The rows of each cell in parts of at most kUnitRows.
std::vector<Unit> cut_units(const CellMap& map, const Stream& stream) {
  std::vector<uint32_t> begins(map.cells() + size_t{1});
  check(cudaMemcpyAsync(begins.data(), map.view().begins, begins.size() * sizeof(uint32_t),
                        cudaMemcpyDeviceToHost, stream),
        "fetching the sizes of cells");
  stream.wait();
  std::vector<Unit> units;
  for (uint32_t cell = 0; cell < map.cells(); ++cell) {
    const uint64_t size = begins[cell + 1] - begins[cell];
    const uint64_t parts = (size + kUnitRows - 1) / kUnitRows;
    for (uint64_t part = 0; part < parts; ++part) {
      const uint32_t first = begins[cell] + static_cast<uint32_t>(size * part / parts);
      const uint32_t end = begins[cell] + static_cast<uint32_t>(size * (part + 1) / parts);
      units.push_back({first, end - first, cell});
    }
  }
  return units;
}

}  // namespace

void compare_with_all(const CodesView& codes, const CellsView& map, const uint32_t* rows,
                      uint32_t count, uint32_t depth, uint32_t slices, uint64_t* keys,
                      const Stream& stream) {
  Args args = {};
  args.codes = codes;
  args.map = map;
  args.judged = rows;
  args.judged_count = count;
  args.judged_keys = keys;
  args.k = depth;
  args.capacity = list_capacity(depth);
  const DeviceArray<uint64_t> lists(uint64_t{slices} * kUnitRows * args.capacity, stream);
  args.lists = lists.data();
  launch("compare_with_all", kernel<CompareWithAll>, slices, kThreads, stream, args);
}

void compare_with_cells(const CodesView& codes, const CellMap& map, uint32_t k, uint32_t budget,
                        uint32_t* neighbors, uint32_t* distances, const Stream& stream,
                        const Execution& execution) {
  const std::vector<Unit> units = cut_units(map, stream);
  const uint32_t count = static_cast<uint32_t>(units.size());
  const uint32_t step = std::min(count, kLaunchUnits);
  const DeviceArray<Unit> sent(count, stream);
  const DeviceArray<uint32_t> wishes(uint64_t{codes.rows} * kWantedWords, stream);
  const DeviceArray<uint64_t> lists(uint64_t{step} * kUnitRows * list_capacity(k), stream);
  check(cudaMemcpyAsync(sent.data(), units.data(), count * sizeof(Unit), cudaMemcpyHostToDevice,
                        stream),
        "sending units");
  const Args args = {codes,     map.view(), sent.data(), wishes.data(), lists.data(), neighbors,
                     distances, nullptr,    nullptr,     0,             0,            budget,
                     k,         list_capacity(k)};
  launch("choose_cells", kernel<ChooseCells>, count, kThreads, stream, args);
  for (uint32_t first = 0; first < count; first += step) {
    execution.check();
    Args part = args;
    part.first_unit = first;
    const uint32_t part_units = std::min(step, count - first);
    launch("compare_cells", kernel<CompareCells>, part_units, kThreads, stream, part);
    stream.wait();
    execution.advance(static_cast<double>(first + part_units) / count);
  }
}

}  // namespace gannet::cuda
