// Cells: the judge. The true neighbours of 256 sampled rows, how much work they ask for, and what
// share of them lists hold.
//
//   here      truth     keys of a judged row's nearest, ascending
//             depth     how many rows live in cells no farther from a judged row than the home of one
//                       of its true neighbours: what it would have to be compared with to find it
//
// Cost: 256 n pairs, of which 1M rows of 128 bytes take some 0.3 ms, and 256 x cells distances. The
// share has a standard error of about 0.004.

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

#include <algorithm>
#include <vector>

#include "base/random.h"
#include "distance/lanes_cuda.h"
#include "knn/cells_cuda.h"
#include "traverse/row_key.h"

namespace gannet::cuda {
namespace {

namespace cg = cooperative_groups;

constexpr uint64_t kJudgeStream = 0x6a75646765;  // "judge"
constexpr uint32_t kSlices = 264;                // twice the multiprocessors of a large device
constexpr uint32_t kCellsMax = 8192;             // as in cells_map.cu

struct Args {
  CodesView codes;
  CellsView map;
  const uint32_t* sample;     // [count]
  const uint64_t* parts;      // [kSlices, kJudgedRows, kJudgedDepth]
  uint64_t* truth;            // [count, kJudgedDepth]
  uint32_t* numbers;          // [count, kJudgedDepth] depths; or in the first column hits
  const uint32_t* neighbors;  // [rows, k]
  uint32_t k;
  uint32_t depth;
};

/// Of two ascending runs, one taken backwards, the lesser at each place are the nearest of both, and
/// half a bitonic sort puts them in order. A warp for each judged row.
struct MergeTruth {
  static constexpr uint32_t kThreads = 32;
  struct Shared {};
  const Args& args;
  Shared& shared;
  Warp warp = cg::tiled_partition<32>(cg::this_thread_block());

  __device__ void run() {
    uint64_t nearest = RowKey::kNone;
    for (uint32_t slice = 0; slice < kSlices; ++slice) {
      const uint64_t first = (uint64_t{slice} * kJudgedRows + blockIdx.x) * kJudgedDepth;
      nearest = min(nearest, args.parts[first + kJudgedDepth - 1 - warp.thread_rank()]);
      for (uint32_t stride = 16; stride != 0; stride /= 2) {
        const uint64_t other = warp.shfl_xor(nearest, stride);
        nearest = (warp.thread_rank() & stride) == 0 ? min(nearest, other) : max(nearest, other);
      }
    }
    args.truth[blockIdx.x * kJudgedDepth + warp.thread_rank()] = nearest;
  }
};

/// A block for each judged row: its distances to all centroids, then the depth of each neighbour.
struct MeasureDepths {
  static constexpr uint32_t kThreads = 256;
  struct Shared {
    uint32_t distances[kCellsMax];
  };
  const Args& args;
  Shared& shared;
  cg::thread_block block = cg::this_thread_block();
  Warp warp = cg::tiled_partition<32>(block);

  __device__ void run() {
    for (uint32_t cell = threadIdx.x; cell < args.map.centroids.rows; cell += kThreads)
      shared.distances[cell] = distance_to(cell);
    block.sync();
    for (uint32_t i = threadIdx.x / 32; i < args.depth; i += kThreads / 32) {
      const uint64_t key = args.truth[blockIdx.x * kJudgedDepth + i];
      const uint32_t bound = shared.distances[args.map.homes[RowKey::row(key)]];
      uint32_t rows = 0;
      for (uint32_t cell = warp.thread_rank(); cell < args.map.centroids.rows; cell += 32) {
        if (shared.distances[cell] <= bound) rows += args.map.begins[cell + 1] - args.map.begins[cell];
      }
      rows = cg::reduce(warp, rows, cg::plus<uint32_t>());
      if (warp.thread_rank() == 0) args.numbers[blockIdx.x * kJudgedDepth + i] = rows;
    }
  }

  __device__ uint32_t distance_to(uint32_t cell) const {
    const uint32_t row = args.sample[blockIdx.x];
    const uint4* left = reinterpret_cast<const uint4*>(args.codes.row(row));
    const uint4* right = reinterpret_cast<const uint4*>(args.map.centroids.row(cell));
    uint32_t sum = 0;
    for (uint32_t i = 0; i < args.codes.stride / 16; ++i) {
      const uint4 a = left[i];
      const uint4 b = right[i];
      sum = __dp4a(a.x, b.x, __dp4a(a.y, b.y, __dp4a(a.z, b.z, __dp4a(a.w, b.w, sum))));
    }
    return args.codes.squares[row] + args.map.centroids.squares[cell] - 2 * sum;
  }
};

/// Entries of a judged row's list that are no farther than its last true neighbour. A warp each.
struct CountHits {
  static constexpr uint32_t kThreads = 32;
  struct Shared {};
  const Args& args;
  Shared& shared;
  Warp warp = cg::tiled_partition<32>(cg::this_thread_block());

  __device__ void run() {
    const uint32_t row = args.sample[blockIdx.x];
    const uint32_t farthest =
        RowKey::distance(args.truth[blockIdx.x * kJudgedDepth + args.depth - 1]);
    uint32_t hits = 0;
    for (uint32_t i = 0; i < args.k; ++i) {
      const uint32_t other = args.neighbors[uint64_t{row} * args.k + i];
      if (other == kNoRow) break;
      hits += distance(row, other) <= farthest ? 1 : 0;
    }
    if (warp.thread_rank() == 0) args.numbers[blockIdx.x * kJudgedDepth] = min(hits, args.depth);
  }

  __device__ uint32_t distance(uint32_t a, uint32_t b) const {
    const uint32_t* left = reinterpret_cast<const uint32_t*>(args.codes.row(a));
    const uint32_t* right = reinterpret_cast<const uint32_t*>(args.codes.row(b));
    uint32_t sum = 0;
    for (uint32_t i = warp.thread_rank(); i < args.codes.stride / 4; i += 32)
      sum = __dp4a(left[i], right[i], sum);
    return args.codes.squares[a] + args.codes.squares[b] -
           2 * cg::reduce(warp, sum, cg::plus<uint32_t>());
  }
};

template <class Step>
__global__ void __launch_bounds__(Step::kThreads) kernel(const __grid_constant__ Args args) {
  __shared__ typename Step::Shared shared;
  Step{args, shared}.run();
}

/// A question writes a part of the numbers; the rest is zero.
void clear(uint32_t* numbers, size_t count, const Stream& stream) {
  check(cudaMemsetAsync(numbers, 0, count * sizeof(uint32_t), stream), "clearing numbers");
}

std::vector<uint32_t> fetch(const uint32_t* from, size_t count, const Stream& stream) {
  std::vector<uint32_t> items(count);
  check(cudaMemcpyAsync(items.data(), from, count * sizeof(uint32_t), cudaMemcpyDeviceToHost, stream),
        "fetching what the judge found");
  stream.wait();
  return items;
}

}  // namespace

Judge::Judge(const CodesView& codes, const CellMap& map, uint32_t k, uint64_t seed,
             const Stream& stream)
    : codes_(codes),
      stream_(stream),
      count_(std::min(codes.rows, kJudgedRows)),
      depth_(std::min({codes.rows - 1, k, kJudgedDepth})),
      sample_(count_, stream),
      truth_(uint64_t{count_} * kJudgedDepth, stream),
      numbers_(uint64_t{count_} * kJudgedDepth, stream) {
  uint32_t sample[kJudgedRows];
  random_strata(codes.rows, count_, seed, kJudgeStream, sample);
  check(cudaMemcpyAsync(sample_.data(), sample, count_ * sizeof(uint32_t), cudaMemcpyHostToDevice,
                        stream),
        "sending the judged rows");
  const DeviceArray<uint64_t> parts(uint64_t{kSlices} * kJudgedRows * kJudgedDepth, stream);
  compare_with_all(codes, map.view(), sample_.data(), count_, std::max(depth_, 1u), kSlices,
                   parts.data(), stream);
  Args args = {};
  args.parts = parts.data();
  args.truth = truth_.data();
  launch("merge_truth", kernel<MergeTruth>, count_, MergeTruth::kThreads, stream, args);
  stream.wait();  // the sample on the stack has been sent
}

uint32_t Judge::budget(const CellMap& map, double share) {
  if (depth_ == 0) return 0;
  Args args = {};
  args.codes = codes_;
  args.map = map.view();
  args.sample = sample_.data();
  args.truth = truth_.data();
  args.numbers = numbers_.data();
  args.depth = depth_;
  clear(numbers_.data(), size_t{count_} * kJudgedDepth, stream_);
  launch("measure_depths", kernel<MeasureDepths>, count_, MeasureDepths::kThreads, stream_, args);
  const std::vector<uint32_t> numbers = fetch(numbers_.data(), size_t{count_} * kJudgedDepth, stream_);
  std::vector<uint32_t> depths;
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (i % kJudgedDepth < depth_) depths.push_back(numbers[i]);
  }
  const size_t place = static_cast<size_t>(share * static_cast<double>(depths.size() - 1));
  std::nth_element(depths.begin(), depths.begin() + static_cast<ptrdiff_t>(place), depths.end());
  return depths[place];
}

double Judge::share(const uint32_t* neighbors, uint32_t k) {
  if (depth_ == 0) return 1;
  Args args = {};
  args.codes = codes_;
  args.sample = sample_.data();
  args.truth = truth_.data();
  args.numbers = numbers_.data();
  args.neighbors = neighbors;
  args.k = k;
  args.depth = depth_;
  clear(numbers_.data(), size_t{count_} * kJudgedDepth, stream_);
  launch("count_hits", kernel<CountHits>, count_, CountHits::kThreads, stream_, args);
  const std::vector<uint32_t> numbers = fetch(numbers_.data(), size_t{count_} * kJudgedDepth, stream_);
  uint64_t hits = 0;
  for (size_t i = 0; i < count_; ++i) hits += numbers[i * kJudgedDepth];
  return static_cast<double>(hits) / static_cast<double>(uint64_t{count_} * depth_);
}

}  // namespace gannet::cuda
