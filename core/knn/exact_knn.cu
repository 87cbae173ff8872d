// The exact k-NN graph of codes on the GPU: every row is compared with every other by tiles, and each
// keeps its k nearest. The CPU's version is exact_knn.cpp; the lists are equal.
//
//   here      left       the rows whose lists a block makes
//             tile       left x right rows that a block compares at once
//             chunk      128 bytes of each row of a tile, in shared memory
//             list       of a left row: the nearest found so far, as keys, in no order
//             worst      the k-th key of a list when it was last sorted: what is behind it is no news
//
// The idea. A block goes through all rows, tile by tile. The products of a tile stay in the registers
// of its warps; a key that is below `worst` is appended to its list, and a list that might overflow
// is sorted and cut to k. For rows in random order about k * ln(n / k) keys pass, so sorting costs
// little. No matrix of n x n distances exists.
//
// Operations a pair of 128 bytes: 128 multiply-adds on tensor cores, 1/32 of an instruction of a warp
// on 16 x 8 pairs; 24 loads from shared memory feed 16 of them, which binds first, at two thirds of
// their peak; one multiply-add and one comparison a pair for the selection. 1M rows of 128 bytes:
// 10^12 pairs, on paper 0.5 s. Bytes: a tile reads 16 KB for 16,384 pairs, from the second cache.
// Measured on one NVIDIA H100: 100,000 x 128, k 64, in 23 ms, 430 G pairs/s.
//
// Distances of bytes are exact integers, so no order of summing can tell. Wide codes are summed in
// the CPU's lanes (distance/lanes_cuda.h), by the same walk with smaller tiles.
//
// Rejected: the upper triangle alone, each pair entered into both lists. It halves the products, and
// makes blocks meet at lists, with locks, for what is not the bottleneck of small sets.

#include <cooperative_groups.h>

#include <algorithm>

#include "ann.h"
#include "dataset/code_tiles_cuda.h"
#include "distance/lanes_cuda.h"
#include "knn/exact_knn_cuda.h"
#include "knn/exact_knn_launch.h"
#include "traverse/row_key.h"

namespace gannet::cuda {
namespace {

namespace cg = cooperative_groups;

/// What is decided before compilation: the tile, and the part of it that a warp compares.
struct Policy {
  uint32_t threads;
  uint32_t left;  // rows of a tile
  uint32_t right;
  uint32_t warp_left;
  uint32_t warp_right;
};
constexpr Policy kBytes{.threads = 256, .left = 128, .right = 128, .warp_left = 32, .warp_right = 64};
constexpr Policy kWide{.threads = 256, .left = 32, .right = 8, .warp_left = 8, .warp_right = 4};

constexpr uint32_t kSortKeys = 2048;  // that a block sorts at once
static_assert(kSortKeys >= 4 * ANN_DEGREE_MAX);

struct Args {
  CodesView codes;
  uint64_t* lists;      // [left rows of a launch, capacity] keys
  uint32_t* neighbors;  // [rows, k]
  uint32_t* distances;  // [rows, k], or null
  uint32_t first_row;   // of the launch
  uint32_t k;
  uint32_t capacity;  // of a list: a power of two, at least k and a tile's right rows
};

/// The lists of a block's left rows.
template <Policy kPolicy>
struct Lists {
  struct Shared {
    uint64_t worst[kPolicy.left];  // k-th key so far, or kNone; 0 for rows that do not exist
    uint32_t counts[kPolicy.left];
  };

  const Args& args;
  Shared& shared;
  uint64_t* keys;  // [kSortKeys] in shared memory, lent while lists are sorted
  uint32_t left_begin = args.first_row + blockIdx.x * kPolicy.left;
  cg::thread_block block = cg::this_thread_block();

  __device__ uint64_t* list(uint32_t left) const {
    return args.lists + (uint64_t{blockIdx.x} * kPolicy.left + left) * args.capacity;
  }
  __device__ bool exists(uint32_t left) const { return left_begin + left < args.codes.rows; }

  __device__ void clear() {
    for (uint32_t left = threadIdx.x; left < kPolicy.left; left += kPolicy.threads) {
      shared.worst[left] = exists(left) ? RowKey::kNone : 0;
      shared.counts[left] = 0;
    }
    block.sync();
  }

  __device__ void consider(uint32_t left, uint32_t right_row, uint32_t distance) {
    const uint64_t key = RowKey::of(distance, right_row, false);
    if (key >= shared.worst[left] || right_row == left_begin + left) return;
    list(left)[atomicAdd(&shared.counts[left], 1)] = key;
  }

  /// Sorts lists of more than `most` keys and cuts them to k. All threads; nothing is being appended.
  __device__ void cut(uint32_t most) {
    const uint32_t teams = min(kSortKeys / args.capacity, kPolicy.left);
    const uint32_t lanes = kPolicy.threads / teams;
    const uint32_t lane = threadIdx.x % lanes;
    uint64_t* sorted = keys + threadIdx.x / lanes * args.capacity;
    for (uint32_t first = 0; first < kPolicy.left; first += teams) {
      const uint32_t left = first + threadIdx.x / lanes;
      const uint32_t count = shared.counts[left];
      if (!__syncthreads_or(count > most)) continue;
      for (uint32_t i = lane; i < args.capacity; i += lanes)
        sorted[i] = i < count ? list(left)[i] : RowKey::kNone;
      block.sync();
      sort(sorted, lane, lanes);
      const uint32_t kept = min(count, args.k);
      for (uint32_t i = lane; i < kept; i += lanes) list(left)[i] = sorted[i];
      if (lane == 0 && exists(left)) {
        shared.counts[left] = kept;
        shared.worst[left] = kept == args.k ? sorted[kept - 1] : RowKey::kNone;
      }
      block.sync();
    }
  }

  /// A bitonic sort by a team; all teams of the block keep step.
  __device__ void sort(uint64_t* sorted, uint32_t lane, uint32_t lanes) {
    for (uint32_t run = 2; run <= args.capacity; run *= 2) {
      for (uint32_t stride = run / 2; stride != 0; stride /= 2) {
        for (uint32_t i = lane; i < args.capacity / 2; i += lanes) {
          const uint32_t place = 2 * i - (i & (stride - 1));
          const uint64_t first = sorted[place];
          const uint64_t second = sorted[place + stride];
          const bool ascending = (place & run) == 0;
          if (ascending == (second < first)) {
            sorted[place] = second;
            sorted[place + stride] = first;
          }
        }
        block.sync();
      }
    }
  }

  /// All threads have appended what they had before anyone looks whether there is room.
  __device__ void make_room() {
    block.sync();
    const uint32_t most = args.capacity - kPolicy.right;
    const bool full = threadIdx.x < kPolicy.left && shared.counts[threadIdx.x] > most;
    if (__syncthreads_or(full)) cut(most);
  }

  __device__ void store() {
    cut(0);
    for (uint32_t i = threadIdx.x; i < kPolicy.left * args.k; i += kPolicy.threads) {
      const uint32_t left = i / args.k;
      if (!exists(left)) return;
      const bool there = i % args.k < shared.counts[left];
      const uint64_t key = there ? list(left)[i % args.k] : RowKey::kNone;
      const uint64_t place = uint64_t{left_begin} * args.k + i;
      args.neighbors[place] = there ? RowKey::row(key) : kNoRow;
      if (args.distances != nullptr) args.distances[place] = RowKey::distance(key);
    }
  }
};

/// Bytes: a warp holds the sums of 32 x 64 pairs.
struct CompareBytes {
  static constexpr Policy kPolicy = kBytes;
  static constexpr uint32_t kThreads = kPolicy.threads;
  static constexpr uint32_t kDown = kPolicy.warp_left / 16;
  static constexpr uint32_t kAcross = kPolicy.warp_right / 8;
  static_assert(kPolicy.left == kPolicy.right && kPolicy.left == ExactKnnLaunch::kTile);

  struct Shared {
    alignas(16) uint8_t left[kPolicy.left][kTilePitch];
    union {
      alignas(16) uint8_t right[kPolicy.right][kTilePitch];
      uint64_t keys[kSortKeys];
    };
    uint32_t right_squares[kPolicy.right];
    Lists<kPolicy>::Shared lists;
  };

  const Args& args;
  Shared& shared;
  Lists<kPolicy> lists{args, shared.lists, shared.keys};
  cg::thread_block block = cg::this_thread_block();
  uint32_t lane = threadIdx.x % 32;
  uint32_t warp_left = threadIdx.x / 32 % (kPolicy.left / kPolicy.warp_left) * kPolicy.warp_left;
  uint32_t warp_right =
      threadIdx.x / 32 / (kPolicy.left / kPolicy.warp_left) * kPolicy.warp_right;
  uint32_t left_squares[kDown][2];
  int32_t sums[kDown][kAcross][4] = {};

  __device__ void run() {
    lists.clear();
    for (uint32_t down = 0; down < kDown; ++down) {
      for (uint32_t half = 0; half < 2; ++half) {
        const uint32_t left = left_place(down, half);
        left_squares[down][half] =
            lists.exists(left) ? args.codes.squares[lists.left_begin + left] : 0;
      }
    }
    const bool one_chunk = args.codes.stride <= kTileColumns;
    if (one_chunk) fetch(shared.left, lists.left_begin, 0);
    for (uint64_t right = 0; right < args.codes.rows; right += kPolicy.right) {
      for (uint32_t column = 0; column < args.codes.stride; column += kTileColumns) {
        if (!one_chunk) fetch(shared.left, lists.left_begin, column);
        fetch(shared.right, right, column);
        if (column == 0 && threadIdx.x < kPolicy.right)
          shared.right_squares[threadIdx.x] =
              right + threadIdx.x < args.codes.rows ? args.codes.squares[right + threadIdx.x] : 0;
        block.sync();
        multiply_tile<kDown, kAcross>(sums, &shared.left[warp_left], &shared.right[warp_right],
                                      min(kTileColumns, args.codes.stride - column), lane);
        block.sync();
      }
      select(right);
      lists.make_room();
    }
    lists.store();
  }

  __device__ uint32_t left_place(uint32_t down, uint32_t half) const {
    return warp_left + 16 * down + 8 * half + lane / 4;
  }

  __device__ void fetch(TileRow* tile, uint64_t first, uint32_t column) {
    fetch_tile<kPolicy.right, kThreads>(tile, args.codes, column, [&](uint32_t i) {
      return first + i < args.codes.rows ? static_cast<uint32_t>(first + i) : kNoRow;
    });
  }

  /// One comparison refuses nearly all pairs: a distance behind that of the k-th key.
  __device__ void select(uint64_t right_begin) {
#pragma unroll
    for (uint32_t down = 0; down < kDown; ++down) {
#pragma unroll
      for (uint32_t half = 0; half < 2; ++half) {
        const uint32_t left = left_place(down, half);
        const uint32_t farthest = RowKey::distance(lists.shared.worst[left]);
#pragma unroll
        for (uint32_t across = 0; across < kAcross; ++across) {
#pragma unroll
          for (uint32_t side = 0; side < 2; ++side) {
            const uint32_t right = warp_right + 8 * across + lane % 4 * 2 + side;
            int32_t& sum = sums[down][across][2 * half + side];
            const uint32_t distance = left_squares[down][half] + shared.right_squares[right] -
                                      2 * static_cast<uint32_t>(sum);
            if (distance <= farthest && right_begin + right < args.codes.rows)
              lists.consider(left, static_cast<uint32_t>(right_begin + right), distance);
            sum = 0;
          }
        }
      }
    }
  }
};

/// Wide codes: a warp compares 8 x 4 pairs.
struct CompareWide {
  static constexpr Policy kPolicy = kWide;
  static constexpr uint32_t kThreads = kPolicy.threads;
  static_assert(kPolicy.warp_left == LaneSums::kLeft && kPolicy.warp_right == LaneSums::kRight);

  struct Shared {
    uint64_t keys[kSortKeys];
    Lists<kPolicy>::Shared lists;
  };

  const Args& args;
  Shared& shared;
  Lists<kPolicy> lists{args, shared.lists, shared.keys};
  Warp warp = cg::tiled_partition<32>(cg::this_thread_block());
  uint32_t warp_left = threadIdx.x / 32 % (kPolicy.left / kPolicy.warp_left) * kPolicy.warp_left;
  uint32_t warp_right =
      threadIdx.x / 32 / (kPolicy.left / kPolicy.warp_left) * kPolicy.warp_right;

  __device__ void run() {
    lists.clear();
    for (uint64_t right = 0; right < args.codes.rows; right += kPolicy.right) {
      compare(right);
      lists.make_room();
    }
    lists.store();
  }

  __device__ const float* values_of(uint64_t row) const {
    return row < args.codes.rows ? reinterpret_cast<const float*>(args.codes.row(row)) : nullptr;
  }

  __device__ void compare(uint64_t right_begin) {
    const float* left[LaneSums::kLeft];
    const float* right[LaneSums::kRight];
#pragma unroll
    for (uint32_t i = 0; i < LaneSums::kLeft; ++i)
      left[i] = values_of(uint64_t{lists.left_begin} + warp_left + i);
#pragma unroll
    for (uint32_t i = 0; i < LaneSums::kRight; ++i)
      right[i] = values_of(right_begin + warp_right + i);
    const float distance = wide_distances(left, right, args.codes.stride / 4, warp);
    const uint32_t pair = warp.thread_rank();
    const uint64_t row = right_begin + warp_right + pair % LaneSums::kRight;
    if (row < args.codes.rows)
      lists.consider(warp_left + pair / LaneSums::kRight, static_cast<uint32_t>(row),
                     __float_as_uint(distance));
  }
};

template <class Step>
__global__ void __launch_bounds__(Step::kThreads) kernel(const __grid_constant__ Args args) {
  __shared__ typename Step::Shared shared;
  Step{args, shared}.run();
}

// --- Host ----------------------------------------------------------------------------------------

template <class Step>
void run_phase(Args args, uint64_t launch_rows, const Stream& stream, const Execution& execution) {
  constexpr uint32_t kTile = Step::kPolicy.left;
  const uint64_t rows = args.codes.rows;
  for (uint64_t first = 0; first < rows; first += launch_rows) {
    execution.check();
    args.first_row = static_cast<uint32_t>(first);
    const uint64_t left = std::min(launch_rows, rows - first);
    launch("exact_knn", kernel<Step>, static_cast<uint32_t>((left + kTile - 1) / kTile),
           Step::kThreads, stream, args);
    stream.wait();
    execution.advance(static_cast<double>(first + left) / static_cast<double>(rows));
  }
}

}  // namespace

void exact_knn(const CodesView& codes, uint32_t k, uint32_t* neighbors, uint32_t* distances,
               const Stream& stream, const Execution& execution) {
  if (codes.rows == 0) return;
  const ExactKnnLaunch cut = ExactKnnLaunch::of(codes.rows, codes.stride, k, codes.wide());
  const DeviceArray<uint64_t> lists(cut.rows * cut.capacity, stream);
  const Args args = {codes, lists.data(), neighbors, distances, 0, k, cut.capacity};
  if (codes.wide())
    run_phase<CompareWide>(args, cut.rows, stream, execution);
  else
    run_phase<CompareBytes>(args, cut.rows, stream, execution);
}

}  // namespace gannet::cuda
