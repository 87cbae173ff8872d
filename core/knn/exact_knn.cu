// The exact k-NN graph of codes on the GPU: every row is compared with every other by tiles, and each
// keeps its k nearest. The CPU's version is exact_knn.cpp; the lists are equal.
//
//   here      left       the rows whose lists a block makes
//             tile       left x right rows that a block compares at once
//             panel      128 bytes of each row of a tile, in shared memory
//             list       of a left row: the nearest found so far, as keys, in no order
//             bound      a distance that at least k keys of a list do not exceed: farther is no news
//
// The idea. A block goes through all rows, tile by tile; while a tile is multiplied, the next one comes
// by asynchronous copies. Left rows stay in registers as operands of tensor cores, and so do the sums of
// a tile. A row nearer than `bound` is appended to its list. A list that might overflow is thinned by
// a warp: distances are halved until few more than k keys are below, which are kept. For rows in random
// order about k * ln(n / k) keys pass, so this costs little. No matrix of n x n distances exists.
//
// Operations a pair of 128 bytes: 128 multiply-adds on tensor cores, 1/32 of an instruction of a warp
// on 16 x 8 pairs; 2 loads of 16 bytes from shared memory feed 8 of them; one instruction (an addition
// and a maximum in one on compute capability 9.0) to tell whether any of 8 pairs of a row may be near,
// and a closer look where one is. 1M rows of 128 bytes: 10^12 pairs, on paper 0.31 s at the 806 T
// operations/s that were seen on one NVIDIA H200. Bytes: a tile reads 8 KB for 8,192 pairs, from the
// second cache.
// Measured on one NVIDIA H200, 1M x 128, k 64: 0.92 s, 1.1 T pairs/s; launches of 33,792 rows take some
// 30 ms. Of the time before (2.46 s) operands from registers and fewer barriers took 0.74 s, thinning
// instead of sorting 0.82 s.
//
// A list has places for at least k keys and those of a block's 128 left rows: 256, 512, or for k above 384 1,024, of
// which a thinning warp has 32 keys of 64 bits a lane, some of them in local memory. Shared memory is 18.5 KB for any
// k.
//
// Distances of bytes are exact integers, so no order of summing can tell. Wide codes are summed in
// the CPU's lanes (distance/lanes_cuda.h), by the same walk with smaller tiles.
//
// Rejected: the upper triangle alone, each pair entered into both lists. It halves the products, and
// makes blocks meet at lists, with locks. Warps of 32 x 64 pairs instead of 32 x 32: registers spill.

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_pipeline_primitives.h>

#include <algorithm>

#include "dataset/code_fragments_cuda.h"
#include "distance/lanes_cuda.h"
#include "knn/exact_knn_cuda.h"
#include "knn/exact_knn_launch.h"
#include "knn/knn_graph.h"
#include "traverse/row_key.h"
#include "traverse/warp_sort_cuda.h"

namespace gannet::cuda {
namespace {

namespace cg = cooperative_groups;

/// Choices made before compilation: the tile, and the part of it that a warp compares.
struct Policy {
  uint32_t threads;
  uint32_t left;  // rows of a tile
  uint32_t right;
  uint32_t warp_left;
  uint32_t warp_right;
};
constexpr Policy kBytes{.threads = 256, .left = 128, .right = 64, .warp_left = 32, .warp_right = 32};
constexpr Policy kWide{.threads = 256, .left = 32, .right = 8, .warp_left = 8, .warp_right = 4};

struct Args {
  CodesView codes;
  uint64_t* lists;      // [left rows of a launch, capacity] keys
  uint32_t* bounds;     // [left rows of a launch] between launches
  uint32_t* counts;     // likewise
  uint32_t* neighbors;  // [rows, k]
  uint32_t* distances;  // [rows, k], or null
  uint32_t first_row;   // of the launch
  uint32_t k;
  uint64_t right_begin;  // the rows that it looks at, in tiles
  uint64_t right_end;
};

/// The lists of a block's left rows, of kCapacity keys each: at least k and a tile's right rows.
///
/// Right rows come in ascending order. So once k keys of a list are no farther than some distance, a
/// row at that distance comes too late: ties go to the smaller row.
template <Policy kPolicy, uint32_t kCapacity>
struct Lists {
  static constexpr uint32_t kKeys = kCapacity / 32;             // of a lane, where a warp holds a list
  static constexpr uint32_t kRoom = kCapacity - kPolicy.right;  // keys before there is no room

  struct Shared {
    uint32_t bounds[kPolicy.left];  // only nearer rows are appended; 0 for rows that do not exist
    uint32_t counts[kPolicy.left];
  };

  const Args& args;
  Shared& shared;
  uint32_t left_begin = args.first_row + blockIdx.x * kPolicy.left;
  cg::thread_block block = cg::this_thread_block();
  Warp warp = cg::tiled_partition<32>(block);

  __device__ uint64_t* list(uint32_t left) const {
    return args.lists + (uint64_t{blockIdx.x} * kPolicy.left + left) * kCapacity;
  }
  __device__ bool exists(uint32_t left) const { return left_begin + left < args.codes.rows; }

  __device__ void begin() {
    for (uint32_t left = threadIdx.x; left < kPolicy.left; left += kPolicy.threads) {
      const bool goes_on = args.right_begin != 0;
      const uint32_t place = blockIdx.x * kPolicy.left + left;
      shared.bounds[left] = !exists(left) ? 0 : goes_on ? args.bounds[place] : UINT32_MAX;
      shared.counts[left] = exists(left) && goes_on ? args.counts[place] : 0;
    }
    block.sync();
  }

  /// To the next launch, or to the caller.
  __device__ void end() {
    block.sync();
    if (args.right_end >= args.codes.rows) return store();
    for (uint32_t left = threadIdx.x; left < kPolicy.left; left += kPolicy.threads) {
      args.bounds[blockIdx.x * kPolicy.left + left] = shared.bounds[left];
      args.counts[blockIdx.x * kPolicy.left + left] = shared.counts[left];
    }
  }

  /// The places of `count` keys, which the caller writes.
  __device__ uint64_t* append(uint32_t left, uint32_t count) {
    return list(left) + atomicAdd(&shared.counts[left], count);
  }

  /// Whether a list of one of the warp's rows has no room for another tile. Asked after appending, so
  /// that the last warp to append to a list sees all of it.
  __device__ bool is_full(uint32_t warp_left) const {
    const uint32_t lane = warp.thread_rank();
    return lane < kPolicy.warp_left && shared.counts[warp_left + lane] > kRoom;
  }

  /// Every thread says whether it saw a full list. Where one did, lists that are past half of their
  /// room are thinned with it, a warp each, so that the block stops for this seldom. Waits for all
  /// threads. Returns whether it thinned; nothing is being appended.
  __device__ bool make_room(bool full) {
    if (!__syncthreads_or(full)) return false;
    for (uint32_t left = threadIdx.x / 32; left < kPolicy.left; left += kPolicy.threads / 32) {
      const uint32_t count = shared.counts[left];
      if (count <= (args.k + kRoom) / 2) continue;
      uint64_t keys[kKeys];
      load(keys, left, count);
      thin(keys, left);
    }
    block.sync();
    return true;
  }

  __device__ void load(uint64_t (&keys)[kKeys], uint32_t left, uint32_t count) const {
#pragma unroll
    for (uint32_t r = 0; r < kKeys; ++r) {
      const uint32_t i = 32 * r + warp.thread_rank();
      keys[r] = i < count ? list(left)[i] : RowKey::kNone;
    }
  }

  /// Halves an interval of distances until few more than k keys are left below its end, and keeps
  /// those. Where too many are equally far, sorts and keeps k.
  __device__ void thin(uint64_t (&keys)[kKeys], uint32_t left) {
    uint32_t low = UINT32_MAX;
    uint32_t high = 0;
#pragma unroll
    for (uint32_t r = 0; r < kKeys; ++r) {
      low = min(low, RowKey::distance(keys[r]));
      high = max(high, keys[r] == RowKey::kNone ? 0 : RowKey::distance(keys[r]));
    }
    low = cg::reduce(warp, low, cg::less<uint32_t>());
    high = cg::reduce(warp, high, cg::greater<uint32_t>());
    const uint32_t enough = args.k + (kRoom - args.k) / 8;
    while (low < high) {
      const uint32_t middle = low + (high - low) / 2;
      const uint32_t count = count_to(keys, middle);
      if (count < args.k) {
        low = middle + 1;
      } else {
        high = middle;
        if (count <= enough) break;
      }
    }
    if (count_to(keys, high) > (args.k + kRoom) / 2) return cut(keys, left);
    keep_to(keys, left, high);
  }

  __device__ uint32_t count_to(const uint64_t (&keys)[kKeys], uint32_t farthest) const {
    uint32_t count = 0;
#pragma unroll
    for (uint32_t r = 0; r < kKeys; ++r) count += RowKey::distance(keys[r]) <= farthest ? 1 : 0;
    return cg::reduce(warp, count, cg::plus<uint32_t>());
  }

  __device__ void keep_to(const uint64_t (&keys)[kKeys], uint32_t left, uint32_t farthest) {
    uint32_t kept = 0;
#pragma unroll
    for (uint32_t r = 0; r < kKeys; ++r) {
      const bool stays = RowKey::distance(keys[r]) <= farthest;
      const uint32_t staying = warp.ballot(stays);
      if (stays) list(left)[kept + __popc(staying & ((1u << warp.thread_rank()) - 1))] = keys[r];
      kept += __popc(staying);
    }
    if (warp.thread_rank() == 0) {
      shared.counts[left] = kept;
      shared.bounds[left] = farthest;
    }
  }

  /// The k smallest, sorted.
  __device__ void cut(uint64_t (&keys)[kKeys], uint32_t left) {
    sort_ascending(keys);
#pragma unroll
    for (uint32_t r = 0; r < kKeys; ++r) {
      const uint32_t i = 32 * r + warp.thread_rank();
      if (i < args.k) list(left)[i] = keys[r];
      if (i == args.k - 1) {
        shared.counts[left] = args.k;
        shared.bounds[left] = RowKey::distance(keys[r]);
      }
    }
  }

  __device__ void store() {
    for (uint32_t left = threadIdx.x / 32; left < kPolicy.left; left += kPolicy.threads / 32) {
      if (!exists(left)) return;
      uint64_t keys[kKeys];
      load(keys, left, shared.counts[left]);
      sort_ascending(keys);
      const uint64_t first = uint64_t{left_begin + left} * args.k;
#pragma unroll
      for (uint32_t r = 0; r < kKeys; ++r) {
        const uint32_t i = 32 * r + warp.thread_rank();
        if (i >= args.k) break;
        args.neighbors[first + i] = keys[r] == RowKey::kNone ? kNoRow : RowKey::row(keys[r]);
        if (args.distances != nullptr) args.distances[first + i] = RowKey::distance(keys[r]);
      }
    }
  }
};

/// Bytes: a warp holds its 32 left rows, and the sums of their pairs with 32 right ones.
template <uint32_t kCapacity>
struct CompareBytes {
  static constexpr Policy kPolicy = kBytes;
  static constexpr uint32_t kThreads = kPolicy.threads;
  static constexpr uint32_t kBlocks = 2;  // on a multiprocessor
  static constexpr uint32_t kAcross = kPolicy.warp_right / 8;
  static_assert(kPolicy.warp_left == 32 && kPolicy.left == ExactKnnLaunch::kTile);

  /// A panel of the right rows. Odd rows have their halves swapped: then the 8 lanes that are served
  /// together, of two rows, find their 16 bytes in 32 different banks.
  struct Panel {
    alignas(16) uint8_t bytes[kPolicy.right][kTileColumns];
    uint32_t squares[kPolicy.right];
  };
  struct Shared {
    Panel panels[2];
    typename Lists<kPolicy, kCapacity>::Shared lists;
  };

  const Args& args;
  Shared& shared;
  Lists<kPolicy, kCapacity> lists{args, shared.lists};
  uint32_t lane = threadIdx.x % 32;
  uint32_t warp_left = threadIdx.x / 32 % (kPolicy.left / kPolicy.warp_left) * kPolicy.warp_left;
  uint32_t warp_right = threadIdx.x / 32 / (kPolicy.left / kPolicy.warp_left) * kPolicy.warp_right;
  CodeFragment left;
  uint32_t left_squares[4];
  int32_t sums[2][kAcross][4];

  /// While a panel is multiplied, the next one is on its way.
  __device__ void run() {
    lists.begin();
#pragma unroll
    for (uint32_t eight = 0; eight < 4; ++eight) {
      const uint32_t row = left_place(eight);
      left_squares[eight] = lists.exists(row) ? args.codes.squares[lists.left_begin + row] : 0;
    }
    bool full = lists.is_full(warp_left);  // from the launch before
    uint32_t stage = 0;
    send_for(shared.panels[0], args.right_begin, 0);
    for (uint64_t right = args.right_begin; right < args.right_end; right += kPolicy.right) {
      for (uint32_t column = 0; column < args.codes.stride; column += kTileColumns, stage ^= 1) {
        __pipeline_wait_prior(0);
        const bool has_thinned = lists.make_room(full);
        full = false;
        const bool is_last = column + kTileColumns >= args.codes.stride;
        send_for(shared.panels[stage ^ 1], is_last ? right + kPolicy.right : right,
                 is_last ? 0 : column + kTileColumns);
        // Registers that sorting took are filled again.
        if (right == args.right_begin || has_thinned || args.codes.stride > kTileColumns) fetch_left(column);
        if (column == 0) clear_sums();
        multiply(shared.panels[stage]);
      }
      select(right, shared.panels[stage ^ 1].squares);
      full = lists.is_full(warp_left);
    }
    lists.end();
  }

  __device__ uint32_t left_place(uint32_t eight) const { return warp_left + 8 * eight + lane / 4; }

  __device__ void fetch_left(uint32_t column) {
    left.fetch(args.codes, column, lane, [&](uint32_t i) {
      return lists.exists(warp_left + i) ? lists.left_begin + warp_left + i : kNoRow;
    });
  }

  /// Zeros stand in for rows and columns that do not exist.
  __device__ void send_for(Panel& panel, uint64_t first, uint32_t column) {
    constexpr uint32_t kCopies = kTileColumns / 16;
#pragma unroll
    for (uint32_t i = 0; i < kPolicy.right * kCopies / kThreads; ++i) {
      const uint32_t item = threadIdx.x + i * kThreads;
      const uint32_t row = item / kCopies;
      const uint32_t copy = item % kCopies;
      const uint32_t byte = column + 16 * copy;
      const bool there = first + row < args.codes.rows && byte < args.codes.stride;
      __pipeline_memcpy_async(&panel.bytes[row][(copy ^ row % 2 * 4) * 16],
                              there ? args.codes.row(first + row) + byte : args.codes.data, 16,
                              there ? 0 : 16);
    }
    if (threadIdx.x < kPolicy.right) {
      const uint64_t row = first + threadIdx.x;
      const bool there = row < args.codes.rows;
      __pipeline_memcpy_async(&panel.squares[threadIdx.x], args.codes.squares + (there ? row : 0), 4,
                              there ? 0 : 4);
    }
    __pipeline_commit();
  }

  __device__ void clear_sums() {
#pragma unroll
    for (uint32_t strip = 0; strip < 2; ++strip) {
#pragma unroll
      for (uint32_t across = 0; across < kAcross; ++across) {
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) sums[strip][across][i] = 0;
      }
    }
  }

  __device__ void multiply(const Panel& panel) {
#pragma unroll
    for (uint32_t across = 0; across < kAcross; ++across) {
      const uint32_t row = warp_right + 8 * across + lane / 4;
      const uint32_t first = (lane % 4 ^ lane / 4 % 2 * 4) * 16;
      const uint4 others[2] = {*reinterpret_cast<const uint4*>(&panel.bytes[row][first]),
                               *reinterpret_cast<const uint4*>(&panel.bytes[row][first ^ 64])};
#pragma unroll
      for (uint32_t strip = 0; strip < 2; ++strip) left.multiply(sums[strip][across], strip, others);
    }
  }

  /// y.y - 2 x.y decides among the pairs of a left row x. Of 16 pairs the greatest x.y - y.y / 2, one
  /// instruction each, tells whether any may be near enough; the half is rounded down, so none is lost.
  __device__ void select(uint64_t right_begin, const uint32_t* squares) {
    int32_t greatest[4] = {INT32_MIN, INT32_MIN, INT32_MIN, INT32_MIN};
#pragma unroll
    for (uint32_t across = 0; across < kAcross; ++across) {
#pragma unroll
      for (uint32_t side = 0; side < 2; ++side) {
        const int32_t half = static_cast<int32_t>(squares[right_place(across, side)] / 2);
#pragma unroll
        for (uint32_t eight = 0; eight < 4; ++eight)
          greatest[eight] =
              __viaddmax_s32(sums[eight / 2][across][eight % 2 * 2 + side], -half, greatest[eight]);
      }
    }
#pragma unroll
    for (uint32_t eight = 0; eight < 4; ++eight) {
      const uint32_t bound = min(lists.shared.bounds[left_place(eight)], uint32_t{INT32_MAX});
      const int32_t room = static_cast<int32_t>(bound - 1 - left_squares[eight]);
      if (greatest[eight] >= -(room >> 1)) append(right_begin, squares, eight, bound);
    }
  }

  __device__ uint32_t right_place(uint32_t across, uint32_t side) const {
    return warp_right + 8 * across + lane % 4 * 2 + side;
  }

  __device__ void append(uint64_t right_begin, const uint32_t* squares, uint32_t eight, uint32_t bound) {
    const uint32_t self = static_cast<uint32_t>(lists.left_begin + left_place(eight) - right_begin);
    const uint32_t end = static_cast<uint32_t>(min(args.codes.rows - right_begin, uint64_t{kPolicy.right}));
    const auto distance = [&](uint32_t i) {
      return left_squares[eight] + squares[right_place(i / 2, i % 2)] -
             2 * static_cast<uint32_t>(sums[eight / 2][i / 2][eight % 2 * 2 + i % 2]);
    };
    uint32_t near = 0;
#pragma unroll
    for (uint32_t i = 0; i < 2 * kAcross; ++i) {
      const uint32_t right = right_place(i / 2, i % 2);
      if (distance(i) < bound && right < end && right != self) near |= 1u << i;
    }
    if (near == 0) return;
    uint64_t* place = lists.append(left_place(eight), __popc(near));
#pragma unroll
    for (uint32_t i = 0; i < 2 * kAcross; ++i) {
      if ((near & 1u << i) != 0)
        *place++ =
            RowKey::of(distance(i), static_cast<uint32_t>(right_begin) + right_place(i / 2, i % 2), false);
    }
  }
};

/// Wide codes: a warp compares 8 x 4 pairs.
template <uint32_t kCapacity>
struct CompareWide {
  static constexpr Policy kPolicy = kWide;
  static constexpr uint32_t kThreads = kPolicy.threads;
  static constexpr uint32_t kBlocks = 1;
  static_assert(kPolicy.warp_left == LaneSums::kLeft && kPolicy.warp_right == LaneSums::kRight);

  struct Shared {
    typename Lists<kPolicy, kCapacity>::Shared lists;
  };

  const Args& args;
  Shared& shared;
  Lists<kPolicy, kCapacity> lists{args, shared.lists};
  Warp warp = cg::tiled_partition<32>(cg::this_thread_block());
  uint32_t warp_left = threadIdx.x / 32 % (kPolicy.left / kPolicy.warp_left) * kPolicy.warp_left;
  uint32_t warp_right = threadIdx.x / 32 / (kPolicy.left / kPolicy.warp_left) * kPolicy.warp_right;

  __device__ void run() {
    lists.begin();
    for (uint64_t right = args.right_begin; right < args.right_end; right += kPolicy.right) {
      compare(right);
      lists.make_room(lists.is_full(warp_left));
    }
    lists.end();
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
    for (uint32_t i = 0; i < LaneSums::kRight; ++i) right[i] = values_of(right_begin + warp_right + i);
    const float distance = wide_distances(left, right, args.codes.stride / 4, warp);
    const uint32_t pair = warp.thread_rank();
    const uint32_t place = warp_left + pair / LaneSums::kRight;
    const uint64_t row = right_begin + warp_right + pair % LaneSums::kRight;
    if (row < args.codes.rows && row != lists.left_begin + place &&
        __float_as_uint(distance) < lists.shared.bounds[place])
      *lists.append(place, 1) = RowKey::of(__float_as_uint(distance), static_cast<uint32_t>(row), false);
  }
};

template <class Step>
__global__ void __launch_bounds__(Step::kThreads, Step::kBlocks) kernel(const __grid_constant__ Args args) {
  __shared__ typename Step::Shared shared;
  Step{args, shared}.run();
}

// --- Host ----------------------------------------------------------------------------------------

template <class Step>
void run_phase(Args args, const ExactKnnLaunch& cut, const Stream& stream, const Execution& execution) {
  constexpr uint32_t kTile = Step::kPolicy.left;
  const uint64_t rows = args.codes.rows;
  for (uint64_t first = 0; first < rows; first += cut.rows) {
    args.first_row = static_cast<uint32_t>(first);
    const uint64_t left = std::min(cut.rows, rows - first);
    for (args.right_begin = 0; args.right_begin < rows; args.right_begin += cut.right) {
      execution.check();
      args.right_end = std::min(args.right_begin + cut.right, rows);
      launch("exact_knn", kernel<Step>, static_cast<uint32_t>((left + kTile - 1) / kTile), Step::kThreads,
             stream, args);
      stream.wait();
      const double done = static_cast<double>(args.right_end) / static_cast<double>(rows);
      execution.advance((static_cast<double>(first) + done * static_cast<double>(left)) /
                        static_cast<double>(rows));
    }
  }
}

/// The variant whose lists have `capacity` places.
template <template <uint32_t kCapacity> class Compare>
auto phase_of(uint32_t capacity) {
  static_assert(kKnnListMax + ExactKnnLaunch::kTile <= 1024);
  return capacity == 256   ? run_phase<Compare<256>>
         : capacity == 512 ? run_phase<Compare<512>>
                           : run_phase<Compare<1024>>;
}

}  // namespace

void exact_knn(const CodesView& codes, uint32_t k, uint32_t* neighbors, uint32_t* distances,
               const Stream& stream, const Execution& execution, uint64_t launch_work) {
  if (codes.rows == 0) return;
  const ExactKnnLaunch cut =
      ExactKnnLaunch::of(codes.rows, codes.stride, k,
                         launch_work != 0 ? launch_work : ExactKnnLaunch::default_work(codes.wide()));
  const DeviceArray<uint64_t> lists(cut.rows * cut.capacity, stream);
  const DeviceArray<uint32_t> bounds(cut.rows, stream);
  const DeviceArray<uint32_t> counts(cut.rows, stream);
  Args args = {};
  args.codes = codes;
  args.lists = lists.data();
  args.bounds = bounds.data();
  args.counts = counts.data();
  args.neighbors = neighbors;
  args.distances = distances;
  args.k = k;
  const auto run = codes.wide() ? phase_of<CompareWide>(cut.capacity) : phase_of<CompareBytes>(cut.capacity);
  run(args, cut, stream, execution);
}

}  // namespace gannet::cuda
