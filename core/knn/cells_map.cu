// Cells: the map. k-means on a sample, homes, members and near cells, all on the device.
//
//   here      cell, centroid   a k-means cell and its mean, which is a code itself
//             home             the cell of a row's nearest centroid
//             position         place of a row in `members`
//
// Steps: DrawSample - StartCentroids - kLloydRounds times Settle, SumMembers, WriteMeans - Settle all
// rows - a stable sort by home - FindBegins - FindNear.
//
// Operations: 1M rows x 5,208 cells to settle, 5.2 G pairs of 128 columns, as many as exact_knn.cu
// compares in 10 ms; a sample of 32 rows a cell thrice, a sixth of that each. Bytes are small: the
// centroids stay in the second cache.
//
// Sums of bytes are exact in 32 bits (up to 16 million rows a cell), so the means do not depend on the
// order of the atomics, and round as on the CPU.
//
// Departure from the CPU's map: cells that hold far less than their share stay where they are, which
// saves a trip to the host a round; and nothing orders the cells along a chain, because a block's
// neighbours on the device do not share its cache.

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

#include <algorithm>
#include <bit>
#include <cub/device/device_radix_sort.cuh>

#include "base/random.h"
#include "dataset/code_tiles_cuda.h"
#include "distance/lanes_cuda.h"
#include "knn/cells_cuda.h"

namespace gannet::cuda {
namespace {

namespace cg = cooperative_groups;

constexpr uint32_t kRowsPerCell = 192;
constexpr uint32_t kCellsMax = 8192;
constexpr uint32_t kSamplePerCell = 32;
constexpr uint32_t kLloydRounds = 3;
constexpr uint64_t kSampleStream = 0x63656c6c73;  // "cells"
constexpr uint32_t kItemThreads = 256;
constexpr uint64_t kLaunchWork = uint64_t{1} << 42;  // pairs x bytes of a row: some 20 ms

struct Args {
  CodesView codes;
  CodesView centroids;         // [cells]
  uint8_t* centroid_codes;     // the same, to be written
  uint32_t* centroid_squares;  // likewise
  uint32_t* sample;            // [sampled] rows
  uint32_t sampled;
  const uint32_t* items;  // [item_count] rows to settle, or null: all
  uint32_t first_item;    // of this launch
  uint32_t item_count;
  uint32_t* homes;               // [item_count]
  uint32_t* sums;                // [cells, stride]
  uint32_t* counts;              // [cells]
  uint32_t* numbers;             // [rows] 0, 1, 2, ...
  const uint32_t* sorted_homes;  // [rows]
  uint32_t* begins;              // [cells + 1]
  uint16_t* near;                // [cells, kNearCells]
  uint64_t seed;
};

__device__ uint64_t global_thread() { return uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; }

/// Row i of the sample is drawn from the i-th of `sampled` equal strata, as random_strata does it.
struct DrawSample {
  static constexpr uint32_t kThreads = kItemThreads;
  struct Shared {};
  const Args& args;
  Shared& shared;

  __device__ void run() {
    const uint64_t i = global_thread();
    if (i >= args.sampled) return;
    const uint64_t begin = args.codes.rows * i / args.sampled;
    const uint64_t end = args.codes.rows * (i + 1) / args.sampled;
    args.sample[i] =
        static_cast<uint32_t>(begin + random_below(end - begin, args.seed, kSampleStream, i));
  }
};

/// A cell begins as one row of its share of the sample. A warp for each.
struct StartCentroids {
  static constexpr uint32_t kThreads = kItemThreads;
  struct Shared {};
  const Args& args;
  Shared& shared;

  __device__ void run() {
    const uint64_t cell = global_thread() / 32;
    if (cell >= args.centroids.rows) return;
    const uint32_t share = args.sampled / args.centroids.rows;
    const uint64_t place = random_below(share, args.seed, kSampleStream + 1, cell) + cell * share;
    const uint32_t row = args.sample[place];
    const uint4* from = reinterpret_cast<const uint4*>(args.codes.row(row));
    uint4* to = reinterpret_cast<uint4*>(args.centroid_codes + cell * args.codes.stride);
    for (uint32_t i = threadIdx.x % 32; i < args.codes.stride / 16; i += 32) to[i] = from[i];
    if (threadIdx.x % 32 == 0) args.centroid_squares[cell] = args.codes.squares[row];
  }
};

/// The nearest centroid of 128 rows, of equally near ones the first.
struct Settle {
  static constexpr uint32_t kThreads = 256;
  static constexpr uint32_t kTile = 128;
  static constexpr uint32_t kDown = 2;    // of 16 rows, a warp's
  static constexpr uint32_t kAcross = 8;  // of 8 centroids
  struct Shared {
    alignas(16) TileRow left[kTile];
    alignas(16) TileRow right[kTile];
    uint32_t rows[kTile];
    uint32_t right_squares[kTile];
    unsigned long long nearest[kTile];  // distance << 32 | cell
  };

  const Args& args;
  Shared& shared;
  cg::thread_block block = cg::this_thread_block();
  uint32_t lane = threadIdx.x % 32;
  uint32_t warp_left = threadIdx.x / 32 % 4 * 32;
  uint32_t warp_right = threadIdx.x / 32 / 4 * 64;
  // The square of the row is the same for all centroids, so it is left out until the end; what is
  // compared is then between -2^31 and 2^31.
  int32_t least[kDown][2];
  uint32_t cell[kDown][2] = {};
  int32_t sums[kDown][kAcross][4] = {};

  __device__ void run() {
    const uint64_t first = args.first_item + uint64_t{blockIdx.x} * kTile;
    if (threadIdx.x < kTile) {
      const uint64_t item = first + threadIdx.x;
      shared.rows[threadIdx.x] = item >= args.item_count   ? kNoRow
                                 : args.items != nullptr ? args.items[item]
                                                         : static_cast<uint32_t>(item);
      shared.nearest[threadIdx.x] = ~0ull;
    }
    for (uint32_t down = 0; down < kDown; ++down) least[down][0] = least[down][1] = INT32_MAX;
    block.sync();
    const bool one_chunk = args.codes.stride <= kTileColumns;
    if (one_chunk) fetch_left(0);
    for (uint32_t right = 0; right < args.centroids.rows; right += kTile) {
      for (uint32_t column = 0; column < args.codes.stride; column += kTileColumns) {
        if (!one_chunk) fetch_left(column);
        fetch_right(right, column);
        block.sync();
        multiply_tile<kDown, kAcross>(sums, &shared.left[warp_left], &shared.right[warp_right],
                                      min(kTileColumns, args.codes.stride - column), lane);
        block.sync();
      }
      keep_nearest(right);
      block.sync();
    }
    write(first);
  }

  __device__ void fetch_left(uint32_t column) {
    fetch_tile<kTile, kThreads>(shared.left, args.codes, column,
                                [&](uint32_t i) { return shared.rows[i]; });
  }

  __device__ void fetch_right(uint32_t right, uint32_t column) {
    fetch_tile<kTile, kThreads>(shared.right, args.centroids, column, [&](uint32_t i) {
      return right + i < args.centroids.rows ? right + i : kNoRow;
    });
    if (column == 0 && threadIdx.x < kTile)
      shared.right_squares[threadIdx.x] =
          right + threadIdx.x < args.centroids.rows ? args.centroids.squares[right + threadIdx.x] : 0;
  }

  __device__ void keep_nearest(uint32_t right) {
#pragma unroll
    for (uint32_t across = 0; across < kAcross; ++across) {
#pragma unroll
      for (uint32_t side = 0; side < 2; ++side) {
        const uint32_t place = warp_right + 8 * across + lane % 4 * 2 + side;
        const bool there = right + place < args.centroids.rows;
        const uint32_t square = shared.right_squares[place];
#pragma unroll
        for (uint32_t down = 0; down < kDown; ++down) {
#pragma unroll
          for (uint32_t half = 0; half < 2; ++half) {
            int32_t& sum = sums[down][across][2 * half + side];
            const int32_t value = static_cast<int32_t>(square - 2 * static_cast<uint32_t>(sum));
            if (there && value < least[down][half]) {
              least[down][half] = value;
              cell[down][half] = right + place;
            }
            sum = 0;
          }
        }
      }
    }
  }

  __device__ void write(uint64_t first) {
#pragma unroll
    for (uint32_t down = 0; down < kDown; ++down) {
#pragma unroll
      for (uint32_t half = 0; half < 2; ++half) {
        const uint32_t left = warp_left + 16 * down + 8 * half + lane / 4;
        const uint32_t row = shared.rows[left];
        if (row == kNoRow) continue;
        const uint32_t distance = args.codes.squares[row] + static_cast<uint32_t>(least[down][half]);
        atomicMin(&shared.nearest[left], uint64_t{distance} << 32 | cell[down][half]);
      }
    }
    block.sync();
    if (threadIdx.x < kTile && first + threadIdx.x < args.item_count)
      args.homes[first + threadIdx.x] = static_cast<uint32_t>(shared.nearest[threadIdx.x]);
  }
};

/// Adds four columns of a sampled row to its cell. A thread for each word.
struct SumMembers {
  static constexpr uint32_t kThreads = kItemThreads;
  struct Shared {};
  const Args& args;
  Shared& shared;

  __device__ void run() {
    const uint32_t words = args.codes.stride / 4;
    const uint64_t item = global_thread() / words;
    const uint32_t word = static_cast<uint32_t>(global_thread() % words);
    if (item >= args.sampled) return;
    const uint32_t home = args.homes[item];
    const uint32_t four =
        reinterpret_cast<const uint32_t*>(args.codes.row(args.sample[item]))[word];
    uint32_t* sums = args.sums + uint64_t{home} * args.codes.stride + 4 * word;
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t byte = four >> (8 * i) & 0xff;
      if (byte != 0) atomicAdd(sums + i, byte);
    }
    if (word == 0) atomicAdd(&args.counts[home], 1);
  }
};

/// Means, halves up; an empty cell keeps its centroid. A warp for each.
struct WriteMeans {
  static constexpr uint32_t kThreads = kItemThreads;
  struct Shared {};
  const Args& args;
  Shared& shared;
  Warp warp = cg::tiled_partition<32>(cg::this_thread_block());

  __device__ void run() {
    const uint64_t cell = global_thread() / 32;
    if (cell >= args.centroids.rows) return;
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

struct CountUp {
  static constexpr uint32_t kThreads = kItemThreads;
  struct Shared {};
  const Args& args;
  Shared& shared;

  __device__ void run() {
    const uint64_t row = global_thread();
    if (row < args.codes.rows) args.numbers[row] = static_cast<uint32_t>(row);
  }
};

/// Where the rows of each cell begin among the sorted ones.
struct FindBegins {
  static constexpr uint32_t kThreads = kItemThreads;
  struct Shared {};
  const Args& args;
  Shared& shared;

  __device__ void run() {
    const uint64_t cell = global_thread();
    if (cell > args.centroids.rows) return;
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

/// The kNearCells cells whose centroids are nearest to that of a cell, nearest first, of equally near
/// ones the first. Empty cells are near to none. A block for each.
struct FindNear {
  static constexpr uint32_t kThreads = 256;
  static_assert(kThreads == kNearCells);
  struct Shared {
    uint32_t distances[kCellsMax];  // UINT32_MAX for the cell itself and empty ones
    uint64_t keys[kNearCells];      // distance << 16 | cell
    uint32_t count;
  };
  const Args& args;
  Shared& shared;
  cg::thread_block block = cg::this_thread_block();
  Warp warp = cg::tiled_partition<32>(block);

  __device__ void run() {
    for (uint32_t other = threadIdx.x; other < args.centroids.rows; other += kThreads)
      shared.distances[other] = distance_to(other);
    block.sync();
    const uint32_t bound = find_bound();
    const uint32_t below = count_below(bound);
    if (threadIdx.x < 32) collect(bound, kNearCells - below);
    block.sync();
    sort();
    args.near[uint64_t{blockIdx.x} * kNearCells + threadIdx.x] =
        static_cast<uint16_t>(shared.keys[threadIdx.x]);
  }

  __device__ uint32_t distance_to(uint32_t other) const {
    if (other == blockIdx.x || args.begins[other] == args.begins[other + 1]) return UINT32_MAX;
    const uint4* left = reinterpret_cast<const uint4*>(args.centroids.row(blockIdx.x));
    const uint4* right = reinterpret_cast<const uint4*>(args.centroids.row(other));
    uint32_t sum = 0;
    for (uint32_t i = 0; i < args.centroids.stride / 16; ++i) {
      const uint4 a = left[i];
      const uint4 b = right[i];
      sum = __dp4a(a.x, b.x, __dp4a(a.y, b.y, __dp4a(a.z, b.z, __dp4a(a.w, b.w, sum))));
    }
    return args.centroids.squares[blockIdx.x] + args.centroids.squares[other] - 2 * sum;
  }

  __device__ uint32_t count_below(uint32_t bound) {
    block.sync();
    if (threadIdx.x == 0) shared.count = 0;
    block.sync();
    uint32_t mine = 0;
    for (uint32_t other = threadIdx.x; other < args.centroids.rows; other += kThreads)
      mine += shared.distances[other] < bound ? 1 : 0;
    atomicAdd(&shared.count, mine);
    block.sync();
    return shared.count;
  }

  /// The largest bound with at most kNearCells distances below it, bit by bit.
  __device__ uint32_t find_bound() {
    uint32_t bound = 0;
    for (uint32_t bit = 1u << 31; bit != 0; bit /= 2) {
      if (count_below(bound | bit) <= kNearCells) bound |= bit;
    }
    return bound;
  }

  /// By the first warp: what is below the bound, and `ties` cells at it.
  __device__ void collect(uint32_t bound, uint32_t ties) {
    const uint32_t lanes_before = (1u << warp.thread_rank()) - 1;
    uint32_t size = 0;
    for (uint32_t first = 0; first < args.centroids.rows; first += 32) {
      const uint32_t other = first + warp.thread_rank();
      const uint32_t distance = other < args.centroids.rows ? shared.distances[other] : UINT32_MAX;
      const uint32_t tied = warp.ballot(distance == bound && distance != UINT32_MAX);
      const bool taken = distance < bound || (distance == bound && distance != UINT32_MAX &&
                                              __popc(tied & lanes_before) < ties);
      const uint32_t takers = warp.ballot(taken);
      if (taken)
        shared.keys[size + __popc(takers & lanes_before)] = uint64_t{distance} << 16 | other;
      size += __popc(takers);
      ties -= min(ties, static_cast<uint32_t>(__popc(tied)));
    }
    for (uint32_t i = size + warp.thread_rank(); i < kNearCells; i += 32)
      shared.keys[i] = ~uint64_t{0};  // sorts behind every cell and ends in kNoCell
  }

  __device__ void sort() {
    for (uint32_t run = 2; run <= kNearCells; run *= 2) {
      for (uint32_t stride = run / 2; stride != 0; stride /= 2) {
        const uint32_t at = 2 * threadIdx.x - (threadIdx.x & (stride - 1));
        if (threadIdx.x < kNearCells / 2) {
          const uint64_t first = shared.keys[at];
          const uint64_t second = shared.keys[at + stride];
          if (((at & run) == 0) == (second < first)) {
            shared.keys[at] = second;
            shared.keys[at + stride] = first;
          }
        }
        block.sync();
      }
    }
  }
};

template <class Step>
__global__ void __launch_bounds__(Step::kThreads) kernel(const __grid_constant__ Args args) {
  __shared__ typename Step::Shared shared;
  Step{args, shared}.run();
}

// --- Host ----------------------------------------------------------------------------------------

uint32_t cell_count(uint64_t rows) {
  return static_cast<uint32_t>(std::clamp<uint64_t>(rows / kRowsPerCell, 1, kCellsMax));
}

template <class Step>
void launch_items(const char* name, uint64_t items, const Args& args, const Stream& stream) {
  const uint64_t blocks = (items + Step::kThreads - 1) / Step::kThreads;
  launch(name, kernel<Step>, static_cast<uint32_t>(blocks), Step::kThreads, stream, args);
}

void settle(Args args, const uint32_t* items, uint32_t count, uint32_t* homes, const Stream& stream,
            const Execution& execution) {
  args.items = items;
  args.item_count = count;
  args.homes = homes;
  const uint64_t by_time = kLaunchWork / (uint64_t{args.centroids.rows} * args.codes.stride);
  const uint64_t step = std::max<uint64_t>(by_time, Settle::kTile * 132) / Settle::kTile * Settle::kTile;
  for (uint64_t first = 0; first < count; first += step) {
    execution.check();
    args.first_item = static_cast<uint32_t>(first);
    const uint64_t items_left = std::min(step, count - first);
    launch("settle", kernel<Settle>,
           static_cast<uint32_t>((items_left + Settle::kTile - 1) / Settle::kTile),
           Settle::kThreads, stream, args);
    if (step < count) stream.wait();
  }
}

void train(Args args, const Stream& stream, const Execution& execution) {
  const uint64_t sum_bytes = uint64_t{args.centroids.rows} * args.codes.stride * sizeof(uint32_t);
  const DeviceArray<uint32_t> sample(args.sampled, stream);
  const DeviceArray<uint32_t> homes(args.sampled, stream);
  const DeviceArray<uint32_t> sums(sum_bytes / sizeof(uint32_t), stream);
  const DeviceArray<uint32_t> counts(args.centroids.rows, stream);
  args.sample = sample.data();
  args.sums = sums.data();
  args.counts = counts.data();
  launch_items<DrawSample>("draw_sample", args.sampled, args, stream);
  launch_items<StartCentroids>("start_centroids", uint64_t{args.centroids.rows} * 32, args, stream);
  for (uint32_t round = 0; round < kLloydRounds; ++round) {
    settle(args, sample.data(), args.sampled, homes.data(), stream, execution);
    args.homes = homes.data();
    check(cudaMemsetAsync(sums.data(), 0, sum_bytes, stream), "clearing sums");
    check(cudaMemsetAsync(counts.data(), 0, args.centroids.rows * sizeof(uint32_t), stream),
          "clearing counts");
    launch_items<SumMembers>("sum_members", uint64_t{args.sampled} * (args.codes.stride / 4), args,
                             stream);
    launch_items<WriteMeans>("write_means", uint64_t{args.centroids.rows} * 32, args, stream);
  }
}

/// Rows by home, stably, so that each cell's ascend.
void sort_by_home(Args args, const uint32_t* homes, uint32_t* members, const Stream& stream) {
  const uint32_t rows = args.codes.rows;
  const DeviceArray<uint32_t> numbers(rows, stream);
  const DeviceArray<uint32_t> sorted(rows, stream);
  args.numbers = numbers.data();
  args.sorted_homes = sorted.data();
  launch_items<CountUp>("count_up", rows, args, stream);
  const int end_bit = std::bit_width(args.centroids.rows);
  size_t scratch_bytes = 0;
  const auto sort = [&](void* scratch) {
    check(cub::DeviceRadixSort::SortPairs(scratch, scratch_bytes, homes, sorted.data(),
                                          numbers.data(), members, rows, 0, end_bit, stream),
          "sorting rows by cell");
  };
  sort(nullptr);
  const DeviceArray<uint8_t> scratch(scratch_bytes, stream);
  sort(scratch.data());
  launch_items<FindBegins>("find_begins", uint64_t{args.centroids.rows} + 1, args, stream);
}

}  // namespace

CellMap::CellMap(const CodesView& codes, uint64_t seed, const Stream& stream,
                 const Execution& execution)
    : cells_(cell_count(codes.rows)),
      stride_(codes.stride),
      centroids_(uint64_t{cells_} * codes.stride, stream),
      squares_(cells_, stream),
      homes_(codes.rows, stream),
      members_(codes.rows, stream),
      begins_(uint64_t{cells_} + 1, stream),
      near_(uint64_t{cells_} * kNearCells, stream) {
  Args args = {};
  args.codes = codes;
  args.centroids = view().centroids;
  args.centroid_codes = centroids_.data();
  args.centroid_squares = squares_.data();
  args.begins = begins_.data();
  args.near = near_.data();
  args.seed = seed;
  args.sampled = static_cast<uint32_t>(
      std::min<uint64_t>(codes.rows, uint64_t{cells_} * kSamplePerCell));
  train(args, stream, execution);
  settle(args, nullptr, codes.rows, homes_.data(), stream, execution);
  sort_by_home(args, homes_.data(), members_.data(), stream);
  launch("find_near", kernel<FindNear>, cells_, FindNear::kThreads, stream, args);
}

}  // namespace gannet::cuda
