// Cells: recall of the lists, the share of their true neighbours that the lists of 256 sampled rows hold.
//
//   here      depth    min(k, 32, rows - 1), the true neighbours of a row that are counted
//             found    the distances of the first 32 entries of a sampled row's list, ascending
//             nearer   of an entry: the number of rows that are nearer to the sampled row
//
// An entry is one of the `depth` true neighbours, or as near as one, if fewer than `depth` rows are nearer
// than it. So the true neighbours need not be found: all rows are multiplied with the sampled ones, and
// the few that are nearer than the last entry are counted, in any order.
//
// The distances of the entries also tell how hard neighbours are to tell apart: the local intrinsic dimension m about a row
// is estimated by maximum likelihood (Levina and Bickel, 2004),
//
//   1 / m  =  mean over j < d of ln(r_d / r_j),    r_j the distance of entry j of d
//
// and the median over the sampled rows is that of the set. Rows with copies, whose r_1 is 0, are left out. A search graph has
// more edges where it is high (index/parameters.cpp).
//
// Operations: 256 n pairs, of which 1M rows of 128 bytes take some 0.2 ms. The share has a standard error
// of about 0.004.

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "backend/launch_items.cuh"
#include "base/random.h"
#include "distance/lanes_cuda.h"
#include "knn/cells_cuda.h"
#include "knn/cells_tiles_cuda.h"

namespace gannet::cuda {
namespace {

constexpr uint64_t kRecallStream = 0x6a75646765;

struct DrawSampled;
struct TakeFound;

struct Args {
  using Steps = StepList<DrawSampled, TakeFound>;

  CellsView map;
  uint32_t* places;           // [count] sampled
  uint32_t count;             // of them
  CodesView sampled;          // [count]
  uint8_t* sampled_codes;     // the same, to be written
  uint32_t* sampled_squares;  // likewise
  const uint32_t* distances;  // [rows, length]
  uint32_t length;
  uint32_t depth;
  bool by_row;       // `distances` has them by row number, not by place
  uint32_t* found;   // [kSampledRows, kSampledDepth]
  uint32_t* nearer;  // [kSampledRows, kSampledDepth]
  uint32_t* last;    // [kSampledRows] distance of the last entry found; 0 where none is
  uint64_t seed;
};

/// Draws a sampled row from its stratum and copies its code. A warp for each.
struct DrawSampled {
  static constexpr uint32_t kLanes = 32;
  const Args& args;

  __device__ void run(uint64_t i) const {
    const CodesView& codes = args.map.exact;
    const uint64_t begin = codes.rows * i / args.count;
    const uint64_t end = codes.rows * (i + 1) / args.count;
    const uint32_t place =
        static_cast<uint32_t>(begin + random_below(end - begin, args.seed, kRecallStream, i));
    const uint4* from = reinterpret_cast<const uint4*>(codes.row(place));
    uint4* to = reinterpret_cast<uint4*>(args.sampled_codes + i * codes.stride);
    for (uint32_t piece = threadIdx.x % 32; piece < codes.stride / 16; piece += 32) to[piece] = from[piece];
    if (threadIdx.x % 32 != 0) return;
    args.places[i] = place;
    if (!codes.wide()) args.sampled_squares[i] = codes.squares[place];
  }
};

/// A thread for each entry of a sampled row's list.
struct TakeFound {
  static constexpr uint32_t kLanes = 1;
  const Args& args;

  __device__ void run(uint64_t item) const {
    const uint32_t i = static_cast<uint32_t>(item / kSampledDepth);
    const uint32_t entry = threadIdx.x % kSampledDepth;
    const uint32_t place = i < args.count ? args.places[i] : 0;
    const uint64_t row = args.by_row ? args.map.members[place] : place;
    const uint32_t distance =
        i < args.count && entry < args.depth ? args.distances[row * args.length + entry] : UINT32_MAX;
    args.found[i * kSampledDepth + entry] = distance;
    args.nearer[i * kSampledDepth + entry] = 0;
    const uint32_t last = __reduce_max_sync(~0u, distance != UINT32_MAX ? distance : 0);
    if (entry == 0) args.last[i] = last;
  }
};
static_assert(kSampledDepth == 32);  // a warp has the entries of a row

/// Thresholds of 128 sampled rows, and the count of sums below them.
struct Thresholds {
  uint32_t last[kTileRows];  // entry found; 0 where there is none, so that no row is nearer
  uint32_t places[kTileRows];
  uint32_t squares[kTileRows];

  __device__ void fetch(const Args& args, uint32_t first) {
    if (threadIdx.x >= kTileRows) return;
    const uint32_t i = first + threadIdx.x;
    last[threadIdx.x] = args.last[i];
    places[threadIdx.x] = i < args.count ? args.places[i] : kNone;
    squares[threadIdx.x] = i < args.count ? args.sampled.squares[i] : 0;
  }

  /// Sums are x.y + halves of the sampled row y, those of narrow tiles, or x.y without them.
  __device__ void count(const Args& args, const UnitSums& sums, uint32_t first, uint32_t unit,
                        const uint32_t (&rows)[4], const uint32_t (&row_squares)[4], bool halved,
                        uint32_t lane) const {
#pragma unroll
    for (uint32_t j = 0; j < 4; ++j) {
#pragma unroll
      for (uint32_t side = 0; side < 2; ++side) {
        const uint32_t column = unit * kUnitRows + 8 * j + lane % 4 * 2 + side;
        const uint32_t square = halved ? squares[column] & 1 : squares[column];
        const uint32_t bound = last[column];
#pragma unroll
        for (uint32_t r = 0; r < 4; ++r) {
          const uint32_t product = static_cast<uint32_t>(sums[j][r / 2][r % 2 * 2 + side]);
          const uint32_t distance = row_squares[r] + square - 2 * product;
          if (distance < bound && rows[r] != kNone && rows[r] != places[column])
            add(args, first + column, distance);
        }
      }
    }
  }

  // Rare, and repeated for every pair where it is inlined.
  static __device__ __noinline__ void add(const Args& args, uint32_t sampled, uint32_t distance) {
    for (uint32_t entry = 0; entry < args.depth; ++entry) {
      const uint64_t at = uint64_t{sampled} * kSampledDepth + entry;
      if (distance < args.found[at] && args.found[at] != UINT32_MAX) atomicAdd(&args.nearer[at], 1);
    }
  }
};

/// Four rows of a lane among those of a warp.
struct LeftRows {
  uint32_t rows[4];     // to be read; beyond the last the last
  uint32_t counted[4];  // kNone beyond the last
  uint32_t squares[4];

  __device__ LeftRows(const CodesView& codes, uint32_t first) {
#pragma unroll
    for (uint32_t r = 0; r < 4; ++r) {
      const uint32_t row = first + 8 * r + threadIdx.x % 32 / 4;
      rows[r] = min(row, codes.rows - 1);
      counted[r] = row < codes.rows ? row : kNone;
      squares[r] = codes.squares[rows[r]];
    }
  }
};

/// Rows of 128 bytes; those of 64, whose products take half as long, go the way of wide rows.
struct CountNearer {
  static constexpr uint32_t kThreads = 256;
  static constexpr uint32_t kRows = 256;
  struct Shared {
    RightTile<kNarrowPanels> tile;
    Thresholds thresholds;
  };
  const Args& args;
  Shared& shared;

  __device__ void run() {
    const uint32_t lane = threadIdx.x % 32;
    const LeftRows mine(args.map.codes, blockIdx.x * kRows + threadIdx.x / 32 * 32);
    LeftWords left[kNarrowPanels];
    read_left(left, args.map.codes, mine.rows, lane);
    for (uint32_t first = 0; first < args.count; first += kTileRows) {
      __syncthreads();
      shared.tile.fetch<kThreads>(args.sampled, first, min(kTileRows, args.count - first));
      commit_copies();
      shared.thresholds.fetch(args, first);
      wait_copies<0>();
      __syncthreads();
#pragma unroll 1
      for (uint32_t unit = 0; unit < kTileUnits; ++unit) {
        UnitSums sums;
        shared.tile.multiply(sums, left, unit, lane);
        shared.thresholds.count(args, sums, first, unit, mine.counted, mine.squares, true, lane);
      }
    }
  }
};

struct CountWideNearer {
  static constexpr uint32_t kThreads = 128;
  static constexpr uint32_t kRows = 128;
  struct Shared {
    WideStages<kThreads> stages;
    Thresholds thresholds;
  };
  const Args& args;
  Shared& shared;

  __device__ void run() {
    const uint32_t lane = threadIdx.x % 32;
    const LeftRows mine(args.map.codes, blockIdx.x * kRows + threadIdx.x / 32 * 32);
    for (uint32_t first = 0; first < args.count; first += kTileRows) {
      __syncthreads();
      shared.thresholds.fetch(args, first);
      UnitSums sums[kTileUnits];
      shared.stages.multiply(sums, args.map.codes, mine.rows, args.sampled, first,
                             min(kTileRows, args.count - first), lane);
#pragma unroll
      for (uint32_t unit = 0; unit < kTileUnits; ++unit)
        shared.thresholds.count(args, sums[unit], first, unit, mine.counted, mine.squares, false, lane);
    }
  }
};

/// Floats: a warp compares eight rows with four sampled ones at a time.
struct CountFloatsNearer {
  static constexpr uint32_t kThreads = 256;
  static constexpr uint32_t kRows = kThreads / 32 * LaneSums::kLeft;
  struct Shared {};
  const Args& args;
  Shared& shared;

  __device__ void run() {
    const Warp warp = cooperative_groups::tiled_partition<32>(cooperative_groups::this_thread_block());
    const CodesView& codes = args.map.exact;
    const uint32_t first = blockIdx.x * kRows + threadIdx.x / 32 * LaneSums::kLeft;
    const float* rows[LaneSums::kLeft];
#pragma unroll
    for (uint32_t i = 0; i < LaneSums::kLeft; ++i)
      rows[i] = first + i < codes.rows ? reinterpret_cast<const float*>(codes.row(first + i)) : nullptr;
    const uint32_t row = first + warp.thread_rank() / LaneSums::kRight;
    for (uint32_t sampled = 0; sampled < args.count; sampled += LaneSums::kRight) {
      const float* others[LaneSums::kRight];
#pragma unroll
      for (uint32_t i = 0; i < LaneSums::kRight; ++i)
        others[i] = sampled + i < args.count ? reinterpret_cast<const float*>(args.sampled.row(sampled + i))
                                             : nullptr;
      const uint32_t distance =
          __float_as_uint(wide_distances(rows, others, codes.stride / sizeof(float), warp));
      const uint32_t mine = sampled + warp.thread_rank() % LaneSums::kRight;
      if (row < codes.rows && mine < args.count && distance < args.last[mine] && row != args.places[mine])
        Thresholds::add(args, mine, distance);
    }
  }
};

template <class Step>
__global__ void __launch_bounds__(Step::kThreads, 1) kernel(const __grid_constant__ Args args) {
  __shared__ typename Step::Shared shared;
  Step{args, shared}.run();
}

// --- Host ----------------------------------------------------------------------------------------

template <class Step>
void launch_count(const Args& args, const Stream& stream) {
  launch("count_nearer", kernel<Step>, (args.map.codes.rows + Step::kRows - 1) / Step::kRows, Step::kThreads,
         stream, args);
}

/// The median over rows of the dimension by `depth` squared distances of each, [rows, kSampledDepth]; 0 where no row has
/// so many without a copy.
double dimension_of(const uint32_t* distances, uint32_t rows, uint32_t depth, bool wide) {
  if (depth < 2) return 0;
  std::vector<double> dimensions;
  for (uint32_t row = 0; row < rows; ++row) {
    const uint32_t* const near = distances + uint64_t{row} * kSampledDepth;
    const auto value = [&](uint32_t entry) {
      return wide ? double{std::bit_cast<float>(near[entry])} : static_cast<double>(near[entry]);
    };
    if (near[depth - 1] == UINT32_MAX || value(0) == 0) continue;
    double sum = 0;
    for (uint32_t entry = 0; entry + 1 < depth; ++entry)
      sum += std::log(value(depth - 1) / value(entry)) / 2;  // of squares
    dimensions.push_back((depth - 1) / sum);                 // infinite where all are equally far
  }
  if (dimensions.empty()) return 0;
  const auto middle = dimensions.begin() + static_cast<ptrdiff_t>(dimensions.size() / 2);
  std::nth_element(dimensions.begin(), middle, dimensions.end());
  return *middle;
}

}  // namespace

RecallSample::RecallSample(const CellsView& map, uint64_t seed, const Stream& stream)
    : map_(map),
      stream_(stream),
      count_(std::min(map.codes.rows, kSampledRows)),
      places_(count_, stream),
      codes_(uint64_t{count_} * map.exact.stride, stream),
      squares_(count_, stream),
      found_(uint64_t{kSampledRows} * (kSampledDepth * 2 + 1), stream) {
  Args args = {};
  args.map = map_;
  args.places = places_.data();
  args.count = count_;
  args.sampled_codes = codes_.data();
  args.sampled_squares = squares_.data();
  args.seed = seed;
  launch_items<DrawSampled>("draw_sampled", count_, args, stream);
}

ListMeasures RecallSample::measure(const uint32_t* distances, uint32_t length, uint32_t k,
                                   bool by_row) const {
  constexpr uint32_t kEntries = kSampledRows * kSampledDepth;
  Args args = {};
  args.map = map_;
  args.places = places_.data();
  args.count = count_;
  args.sampled = {codes_.data(), squares_.data(), count_, map_.exact.stride};
  args.distances = distances;
  args.length = length;
  args.depth = std::min({map_.codes.rows - 1, k, kSampledDepth});
  args.by_row = by_row;
  args.found = found_.data();
  args.nearer = found_.data() + kEntries;
  args.last = found_.data() + 2 * kEntries;
  if (args.depth == 0) return {1, 0};
  launch_items<TakeFound>("take_found", kEntries, args, stream_);
  if (map_.exact.wide())
    launch_count<CountFloatsNearer>(args, stream_);
  else if (map_.codes.stride == kNarrowBytes)
    launch_count<CountNearer>(args, stream_);
  else
    launch_count<CountWideNearer>(args, stream_);
  std::vector<uint32_t> numbers(2 * kEntries);
  copy_to_host(numbers.data(), found_.data(), numbers.size() * sizeof(uint32_t), stream_,
               "fetching recall of a sample");
  stream_.wait();
  uint64_t hits = 0;
  for (uint32_t i = 0; i < kEntries; ++i)
    hits += numbers[i] != UINT32_MAX && numbers[kEntries + i] < args.depth ? 1 : 0;
  return {static_cast<double>(hits) / static_cast<double>(uint64_t{count_} * args.depth),
          dimension_of(numbers.data(), count_, args.depth, map_.exact.wide())};
}

}  // namespace gannet::cuda
