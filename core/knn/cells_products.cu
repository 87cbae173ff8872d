// Cells: the products. Every row is compared with the chunks of the cells nearest to it.
//
//   here      probe       a chunk that a row is compared with; its slot is its number for the row, the
//                         nearest cell's chunks first
//             pair        row << 8 | slot, listed under its chunk
//             part        up to 1,024 pairs of one chunk, a block's work
//             class       16 of a chunk's rows: a row keeps the nearest of each of the eight
//             candidate   a key of 32 bits, distance and place: slot << 7 | number in the chunk
//
// The idea. Each row has its own nearest cells, but work is grouped by chunk: a chunk is held in shared
// memory, the rows that probe it are gathered 32 at a time by each warp. A row keeps 1,000 of all 126 x 100
// rows that it is compared with, without a branch: two instructions a pair for the best of each class.
// Some 12 % of a list are lost to better rows of the same class; a round of neighbours' neighbours
// brings them back (cells_lists.cu).
//
// Steps, for each slice of rows: FillSlots - ScanChunks - PlacePairs - CompareChunks - keep_nearest.
//
// Inverted lists. A block takes 128 neighbouring rows, which probe some 500 chunks among 16,128 probes,
// and counts them in a hash in shared memory, so that one global atomic serves all rows of the block
// that probe a chunk. Where the hash is full, a probe counts by itself. The order of pairs under a chunk
// depends on the atomics; the result of a pair does not.
//
// A cell of more than 16 chunks (duplicates) gives 16 of them: those from a row's own on if it is its
// home, from a hashed one on otherwise, so that it neither uses up all probes nor sends all to one chunk.
//
// Bytes and operations a row, at 128 columns and 126 probes: 12,600 pairs, 1.6 million multiply-adds; 126
// times its code from the second cache, 16 KB; 1,000 candidates written and read, 8 KB, and 1.5 KB of slots
// and pairs written and read twice.
//
// Measured on one NVIDIA H200, SIFT 1M x 128: 15.3 ms. For 63 probes, 8.3 ms, CompareChunks took half,
// FillSlots and KeepNearest some 1.4 each, PlacePairs 1.1 and ScanChunks 0.3. Slices of 65,536 rows: 0.9 ms
// longer.
//
// Other rows than the map's are compared in the same way: that is how rows find cells by way of groups of
// them (cells_map.cu), whose chunks are of centroids.
//
// Rejected, measured on one NVIDIA H200, 1M x 128 bytes: slices of all rows (4 ms longer); parts of 2,048
// pairs (as long), with five blocks at once (.3 ms longer); rows of a cell in the order of the cell that is
// nearest but one (as long, and as good); eight candidates
// of each 32 rows of the nearest four chunks, not of all 128 (recall@10 .9798, @32 .9630 as without, .5 ms
// longer). In an experiment: one probe list for each 128 rows instead of one
// for each (eight times the pairs for the same recall); exact running lists with survivors in shared
// memory (25.6 ms where this took 7.4); two candidates a class.

#include <algorithm>

#include "backend/launch_items.cuh"
#include "knn/cells_cuda.h"
#include "knn/cells_tiles_cuda.h"

namespace gannet::cuda {
namespace {

constexpr uint32_t kPartPairs = 1024;
constexpr uint32_t kChunksOfCell = 16;
constexpr uint32_t kIndexBits = 4;  // of 8 rows in a chunk

struct Part {
  uint32_t chunk;
  uint32_t first;  // pair
};

struct Args {
  CellsView map;
  CodesView left;        // rows to be compared: those of the map by place, or others
  const uint32_t* near;  // [left rows, kNearCells] cells, nearest first; of the map's rows by row number
  bool others;           // `left` are not the map's rows
  uint32_t first;        // left row of this slice
  uint32_t rows;         // of this slice
  uint32_t probes;       // of a row
  uint32_t* slots;       // [rows, probes] chunk, kNone behind the last
  uint32_t* ranks;       // [rows, probes] number of the pair under its chunk
  uint32_t* counts;      // [chunks] pairs
  uint32_t* begins;      // [chunks + 1] first pair
  uint32_t* pairs;       // [rows * probes]
  Part* parts;           // [parts_max]
  uint32_t* part_count;
  uint32_t* candidates;  // [rows, probes, kProbeKeys]
};

/// The probes of 128 rows, and how many of each chunk. A warp for each row.
struct FillSlots {
  static constexpr uint32_t kThreads = 256;
  static constexpr uint32_t kRows = 128;
  static constexpr uint32_t kHashed = 4096;
  static constexpr uint32_t kTries = 32;
  static constexpr uint32_t kCounted = 1u << 31;  // a rank that is final
  struct Shared {
    uint32_t chunks[kHashed];
    uint32_t counts[kHashed];
  };
  const Args& args;
  Shared& shared;
  uint32_t lane = threadIdx.x % 32;

  __device__ void run() {
    for (uint32_t i = threadIdx.x; i < kHashed; i += kThreads) {
      shared.chunks[i] = kNone;
      shared.counts[i] = 0;
    }
    __syncthreads();
    const uint32_t begin = blockIdx.x * kRows;
    const uint32_t end = min(args.rows, begin + kRows);
    for (uint32_t row = begin + threadIdx.x / 32; row < end; row += kThreads / 32) fill(row);
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < kHashed; i += kThreads) {
      if (shared.counts[i] != 0)
        shared.counts[i] = atomicAdd(&args.counts[shared.chunks[i]], shared.counts[i]);
    }
    __syncthreads();
    const uint64_t last = uint64_t{end} * args.probes;
    for (uint64_t i = uint64_t{begin} * args.probes + threadIdx.x; i < last; i += kThreads) {
      const uint32_t chunk = args.slots[i];
      if (chunk == kNone) continue;
      const uint32_t rank = args.ranks[i];
      args.ranks[i] = (rank & kCounted) != 0 ? rank & ~kCounted : rank + shared.counts[find(chunk)];
    }
  }

  static __device__ uint32_t hash(uint32_t chunk) { return chunk * 0x9e3779b1u >> 20; }
  static_assert(kHashed == 1u << 12);

  /// Where a chunk is that is there.
  __device__ uint32_t find(uint32_t chunk) const {
    uint32_t at = hash(chunk);
    while (shared.chunks[at] != chunk) at = (at + 1) % kHashed;
    return at;
  }

  __device__ uint32_t count(uint32_t chunk) {
    uint32_t at = hash(chunk);
    for (uint32_t i = 0; i < kTries; ++i, at = (at + 1) % kHashed) {
      const uint32_t other = atomicCAS(&shared.chunks[at], kNone, chunk);
      if (other == kNone || other == chunk) return atomicAdd(&shared.counts[at], 1);
    }
    return atomicAdd(&args.counts[chunk], 1) | kCounted;
  }

  __device__ void fill(uint32_t row) {
    const uint32_t left = args.first + row;
    const uint32_t* near = args.near + uint64_t{args.others ? left : args.map.members[left]} * kNearCells;
    const uint64_t slots = uint64_t{row} * args.probes;
    uint32_t filled = 0;
    for (uint32_t first = 0; first < kNearCells && filled < args.probes; first += 32) {
      const uint32_t cell = near[first + lane];
      uint32_t chunk = 0;
      uint32_t all = 0;
      uint32_t start = 0;
      if (cell != kNone) {
        chunk = args.map.chunk_begins[cell];
        all = args.map.chunk_begins[cell + 1] - chunk;
        if (first + lane == 0 && !args.others)
          start = (left - args.map.begins[cell]) / max(args.map.chunks[chunk].count, 1u);
        else if (all > kChunksOfCell)
          start = left * 0x9e3779b1u % all;
      }
      const uint32_t used = min(all, kChunksOfCell);
      uint32_t behind = used;
#pragma unroll
      for (uint32_t stride = 1; stride < 32; stride *= 2) {
        const uint32_t other = __shfl_up_sync(~0u, behind, stride);
        if (lane >= stride) behind += other;
      }
      const uint32_t slot = filled + behind - used;
      for (uint32_t i = 0; i < used && slot + i < args.probes; ++i) {
        const uint32_t number = start + i < all ? start + i : start + i - all;
        args.slots[slots + slot + i] = chunk + number;
        args.ranks[slots + slot + i] = count(chunk + number);
      }
      filled += __shfl_sync(~0u, behind, 31);
    }
    for (uint32_t slot = filled; slot < args.probes; ++slot) empty(row, slot);
  }

  /// A slot without a chunk has no candidates.
  __device__ void empty(uint32_t row, uint32_t slot) {
    const uint64_t at = uint64_t{row} * args.probes + slot;
    if (lane == 0) args.slots[at] = kNone;
    if (lane < kProbeKeys) args.candidates[at * kProbeKeys + lane] = kNoCandidate;
  }
};

/// Where the pairs of each chunk begin, and the parts. One block; a thread has consecutive chunks.
struct ScanChunks {
  static constexpr uint32_t kThreads = 1024;
  struct Shared {
    uint32_t pairs[32];
    uint32_t parts[32];
  };
  const Args& args;
  Shared& shared;

  __device__ void run() {
    const uint32_t chunks = args.map.chunk_begins[args.map.cells];
    const uint32_t each = (chunks + kThreads - 1) / kThreads;
    const uint32_t begin = min(chunks, threadIdx.x * each);
    const uint32_t end = min(chunks, begin + each);
    uint32_t pairs = 0;
    uint32_t parts = 0;
    for (uint32_t chunk = begin; chunk < end; ++chunk) {
      pairs += args.counts[chunk];
      parts += (args.counts[chunk] + kPartPairs - 1) / kPartPairs;
    }
    uint32_t pair = exclusive_sum(shared.pairs, pairs);
    uint32_t part = exclusive_sum(shared.parts, parts);
    for (uint32_t chunk = begin; chunk < end; ++chunk) {
      const uint32_t count = args.counts[chunk];
      args.begins[chunk] = pair;
      for (uint32_t first = 0; first < count; first += kPartPairs) args.parts[part++] = {chunk, pair + first};
      pair += count;
    }
    if (threadIdx.x == kThreads - 1) {
      args.begins[chunks] = pair;
      *args.part_count = part;
    }
  }

  __device__ uint32_t exclusive_sum(uint32_t* totals, uint32_t mine) {
    uint32_t sum = mine;
    for (uint32_t stride = 1; stride < 32; stride *= 2) {
      const uint32_t other = __shfl_up_sync(~0u, sum, stride);
      if (threadIdx.x % 32 >= stride) sum += other;
    }
    if (threadIdx.x % 32 == 31) totals[threadIdx.x / 32] = sum;
    __syncthreads();
    uint32_t before = 0;
    for (uint32_t i = 0; i < threadIdx.x / 32; ++i) before += totals[i];
    return before + sum - mine;
  }
};

/// Pairs under their chunks. A thread for each.
struct PlacePairs {
  static constexpr uint32_t kLanes = 1;
  const Args& args;

  __device__ void run(uint64_t i) const {
    const uint32_t chunk = args.slots[i];
    if (chunk == kNone) return;
    const uint32_t row = static_cast<uint32_t>(i) / args.probes;  // a slice has no 2^32 pairs
    const uint32_t slot = static_cast<uint32_t>(i) - row * args.probes;
    args.pairs[args.begins[chunk] + args.ranks[i]] = row << 8 | slot;
  }
};

/// A part's chunk, and up to 32 of its pairs as a warp works on them.
struct Comparing {
  const Args& args;
  const Part part;
  const Chunk chunk;
  const uint32_t end;  // of the part's pairs
  const uint32_t own;  // chunk.first, or where no left row is if none of them is in a chunk
  uint32_t lane = threadIdx.x % 32;
  uint32_t rows[4];   // left rows g, g + 8, g + 16, g + 24
  uint32_t pairs[4];  // kNone where there is none
  uint32_t squares[4];
  ClassBest<kIndexBits> best;

  __device__ explicit Comparing(const Args& args)
      : args(args),
        part(args.parts[blockIdx.x]),
        chunk(args.map.chunks[part.chunk]),
        end(min(args.begins[part.chunk + 1], part.first + kPartPairs)),
        own(args.others ? 1u << 31 : chunk.first) {}

  __device__ uint32_t row_of(uint32_t pair) const { return args.first + (pair >> 8); }

  /// Takes the pairs from `first` on, of which this lane brings one and its row's square.
  __device__ void open(uint32_t first, uint32_t pair, uint32_t square) {
#pragma unroll
    for (uint32_t r = 0; r < 4; ++r) {
      const uint32_t from = 8 * r + lane / 4;
      pairs[r] = __shfl_sync(~0u, pair, from);
      squares[r] = __shfl_sync(~0u, square, from);
      rows[r] = row_of(pairs[r]);
      if (first + from >= end) pairs[r] = kNone;
    }
    best.clear();
  }

  /// Takes a unit's sums, without those of rows with themselves.
  __device__ void keep(UnitSums& sums, uint32_t unit) {
    const uint32_t first = own + unit * kUnitRows;
    bool itself = false;
#pragma unroll
    for (uint32_t r = 0; r < 4; ++r) itself |= rows[r] - first < kUnitRows;
    if (__any_sync(~0u, itself)) {
      asm volatile("" ::: "memory");  // a branch, not 32 selections for every unit
#pragma unroll
      for (uint32_t i = 0; i < 32; ++i) {
        const uint32_t r = i / 4 % 2 * 2 + i % 4 / 2;
        if (rows[r] - first == i / 8 * 8 + lane % 4 * 2 + i % 2) sums[i / 8][i / 4 % 2][i % 4] = kHoleSum;
      }
    }
    best.keep(sums, unit * 4);
  }

  /// Writes the nearest of each class.
  __device__ void write(uint32_t shift) const {
#pragma unroll
    for (uint32_t r = 0; r < 4; ++r) {
      if (pairs[r] == kNone) continue;
      const uint32_t slot = pairs[r] & 0xff;
      uint32_t keys[2];
#pragma unroll
      for (uint32_t side = 0; side < 2; ++side) {
        const int32_t sum = best.sum(r, side);
        const uint32_t number = best.index(r, side) * 8 + lane % 4 * 2 + side;
        keys[side] =
            sum <= kHoleSum ? kNoCandidate : candidate_key(squares[r], sum << shift, slot << 7 | number);
      }
      const uint64_t at = uint64_t{pairs[r] >> 8} * args.probes + slot;
      reinterpret_cast<uint2*>(args.candidates + at * kProbeKeys)[lane % 4] = make_uint2(keys[0], keys[1]);
    }
  }
};

/// Narrow rows: the chunk in shared memory, left rows in registers while the next are fetched.
template <uint32_t kPanels>
struct CompareChunk {
  static constexpr uint32_t kThreads = 128;
  static constexpr uint32_t kBlocks = 4;
  using LeftTile = PanelRows<kUnitRows>[kPanels];
  struct Shared {
    RightTile<kPanels> right;
    LeftTile left[kThreads / 32];
  };
  const Args& args;
  Shared& shared;

  __device__ void run() {
    if (blockIdx.x >= *args.part_count) return;
    Comparing comparing(args);
    const uint32_t lane = comparing.lane;
    LeftTile& tile = shared.left[threadIdx.x / 32];
    uint32_t first = comparing.part.first + threadIdx.x / 32 * kUnitRows;
    uint32_t pair = 0;
    uint32_t square = 0;
    const auto fetch = [&](uint32_t from) {
      pair = args.pairs[min(from + lane, comparing.end - 1)];
      square = args.left.squares[comparing.row_of(pair)];
      constexpr uint32_t kOfRow = kPanels * kPieces;
#pragma unroll
      for (uint32_t i = lane; i < kUnitRows * kOfRow; i += 32) {
        const uint32_t at = i / kOfRow;
        const uint32_t row = comparing.row_of(__shfl_sync(~0u, pair, at));
        copy_piece(tile[i % kOfRow / kPieces].at(at, i % kPieces), args.left.row(row) + i % kOfRow * 16);
      }
    };
    if (first < comparing.end) fetch(first);
    shared.right.template fetch<kThreads>(args.map.codes, comparing.chunk.first, comparing.chunk.count);
    commit_copies();
    wait_copies<0>();
    __syncthreads();
    const uint32_t units = (comparing.chunk.count + kUnitRows - 1) / kUnitRows;
    while (first < comparing.end) {
      LeftWords left[kPanels];
#pragma unroll
      for (uint32_t panel = 0; panel < kPanels; ++panel) tile[panel].load_left(left[panel], lane);
      comparing.open(first, pair, square);
      first += kThreads;
      __syncwarp();  // the tile is free
      if (first < comparing.end) fetch(first);
      commit_copies();
#pragma unroll 1
      for (uint32_t unit = 0; unit < units; ++unit) {
        UnitSums sums;
        shared.right.multiply(sums, left, unit, lane);
        comparing.keep(sums, unit);
      }
      comparing.write(0);
      wait_copies<0>();
      __syncwarp();
    }
  }
};

/// Rows of any width: both sides panel by panel.
struct CompareWideChunk {
  static constexpr uint32_t kThreads = 128;
  static constexpr uint32_t kBlocks = 2;
  struct Shared {
    WideStages<kThreads> stages;
    int32_t halves[kTileRows];
  };
  const Args& args;
  Shared& shared;

  __device__ void run() {
    if (blockIdx.x >= *args.part_count) return;
    Comparing comparing(args);
    const Chunk chunk = comparing.chunk;
    const uint32_t units = (chunk.count + kUnitRows - 1) / kUnitRows;
    const uint32_t shift = sum_shift(args.map.codes.stride);
    shared.halves[threadIdx.x] =
        threadIdx.x < chunk.count
            ? static_cast<int32_t>(args.map.codes.squares[chunk.first + threadIdx.x] / 2)
            : -1;
    for (uint32_t begin = comparing.part.first; begin < comparing.end; begin += kThreads) {
      const uint32_t first = begin + threadIdx.x / 32 * kUnitRows;
      const uint32_t pair = args.pairs[min(first + comparing.lane, comparing.end - 1)];
      comparing.open(first, pair, args.left.squares[comparing.row_of(pair)]);
      UnitSums sums[kTileUnits];
      shared.stages.multiply(sums, args.left, comparing.rows, args.map.codes, chunk.first, chunk.count,
                             comparing.lane);
#pragma unroll
      for (uint32_t unit = 0; unit < kTileUnits; ++unit) {
        if (unit >= units) break;
        shift_sums(sums[unit], shared.halves, unit, shift, comparing.lane);
        comparing.keep(sums[unit], unit);
      }
      comparing.write(shift);
    }
  }
};

template <class Step>
__global__ void __launch_bounds__(Step::kThreads) kernel(const __grid_constant__ Args args) {
  __shared__ typename Step::Shared shared;
  Step{args, shared}.run();
}

template <class Step>
__global__ void __launch_bounds__(Step::kThreads, Step::kBlocks)
    compare_kernel(const __grid_constant__ Args args) {
  __shared__ typename Step::Shared shared;
  Step{args, shared}.run();
}

template <class Step>
void launch_compare(const Args& args, uint32_t parts_max, const Stream& stream) {
  launch("compare_chunks", compare_kernel<Step>, parts_max, Step::kThreads, stream, args);
}

/// Compares all left rows, slice by slice, and keeps the nearest in lists.
void compare(Args& args, const CellMap& map, const CellsEffort& effort, const PlaceLists& lists,
             const Stream& stream, const Execution& execution) {
  const uint32_t rows = args.left.rows;
  const uint32_t slice = static_cast<uint32_t>(slice_rows(rows, args.left.stride, effort));
  const uint32_t chunks = map.chunks_max();
  const uint64_t probes = uint64_t{slice} * args.probes;
  const uint32_t parts_max = static_cast<uint32_t>(probes / kPartPairs) + chunks;
  const DeviceArray<uint32_t> slots(probes, stream);
  const DeviceArray<uint32_t> ranks(probes, stream);
  const DeviceArray<uint32_t> pairs(probes, stream);
  const DeviceArray<uint32_t> counts(uint64_t{chunks} + 1, stream);  // the last: of parts
  const DeviceArray<uint32_t> begins(uint64_t{chunks} + 1, stream);
  const DeviceArray<Part> parts(parts_max, stream);
  const DeviceArray<uint32_t> candidates(probes * kProbeKeys, stream);
  args.slots = slots.data();
  args.ranks = ranks.data();
  args.pairs = pairs.data();
  args.counts = counts.data();
  args.part_count = counts.data() + chunks;
  args.begins = begins.data();
  args.parts = parts.data();
  args.candidates = candidates.data();
  for (uint64_t first = 0; first < rows; first += slice) {
    execution.check();
    args.first = static_cast<uint32_t>(first);
    args.rows = static_cast<uint32_t>(std::min<uint64_t>(slice, rows - first));
    cuda::fill(counts.data(), 0, (uint64_t{chunks} + 1) * sizeof(uint32_t), stream, "clearing counts");
    launch("fill_slots", kernel<FillSlots>, (args.rows + FillSlots::kRows - 1) / FillSlots::kRows,
           FillSlots::kThreads, stream, args);
    launch("scan_chunks", kernel<ScanChunks>, 1, ScanChunks::kThreads, stream, args);
    launch_items<PlacePairs>("place_pairs", uint64_t{args.rows} * args.probes, args, stream);
    const uint32_t grid = static_cast<uint32_t>(uint64_t{args.rows} * args.probes / kPartPairs) + chunks;
    if (args.left.stride == kPanelBytes)
      launch_compare<CompareChunk<1>>(args, grid, stream);
    else if (args.left.stride == 2 * kPanelBytes)
      launch_compare<CompareChunk<2>>(args, grid, stream);
    else
      launch_compare<CompareWideChunk>(args, grid, stream);
    keep_nearest(args.map, {candidates.data(), slots.data(), args.first, args.rows, args.probes}, lists,
                 !args.others, stream);
    if (waits_between(args.left)) stream.wait();
    execution.advance(static_cast<double>(first + args.rows) / rows);
  }
}

}  // namespace

void compare_with_cells(const CellMap& map, const CellsEffort& effort, const PlaceLists& lists,
                        const Stream& stream, const Execution& execution) {
  Args args = {};
  args.map = map.view();
  args.left = args.map.codes;
  args.near = args.map.near;
  args.probes = std::min(effort.probes, kProbesMax);
  compare(args, map, effort, lists, stream, execution);
}

void compare_others(const CellMap& map, const CodesView& rows, const CellsEffort& effort, uint32_t* near,
                    const Stream& stream, const Execution& execution) {
  Args args = {};
  args.map = map.view();
  args.left = rows;
  args.near = near;
  args.others = true;
  args.probes = std::min(effort.group_probes, kProbesMax);
  compare(args, map, effort, {near, nullptr, kNearCells}, stream, execution);
}

}  // namespace gannet::cuda
