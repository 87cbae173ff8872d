// Where the queries of a batch start, on the GPU: at the nearest of some rows that are spread over the
// index, the pivots.
//
//   pivot      one of some rows that are spread over all, 512 as a rule (place/pivots.h)
//   class      pivot number mod 8; a query starts at the nearest pivot of each class, so that starts are
//              near and differ
//
// A block of four warps takes 16 queries; a warp compares them with groups of 32 pivots in four tiles of
// 8, by products of bytes in tensor cores (16 x 8 results a step of 32 columns). |x - q|^2 = x.x - 2 x.q
// + q.q, of which q.q plays no part. In the layout of the results, thread t of four holds columns 2 t and
// 2 t + 1 of a tile, which is the class: the nearest of a class over the tiles is a running minimum in
// each thread, without a single exchange. The hardware's columns k of both operands may be any
// columns, as long as they are the same of both; so lanes load 32 bytes as two pieces of 16.
//
// The order of the queries. A walk is long where rows crowd, and where the query does not: with d0
// the distance of the nearest pivot and m^2 the mean of the squared distances of all pivots, expansions
// correlate with d0 / m^2 (0.43; with d0 alone 0.31, m alone -0.35, with the true d_k 0.42; measured with
// 3,000 queries of 100,000 SIFT rows, slack 0.03). Each block ranks its 16 queries by that, and the order takes the
// first of all blocks, then the second of all, and so on: nearly sorted, without a kernel that sorts, and
// without a count that blocks share. Only times depend on it.
//
// Bytes a block at rows of 128: 64 KB of 512 pivots, from the second cache. Operations: 512 x 128 products a
// query. 10,000 queries on an H200: some 10 us of 300 for the walk.
//
// Measured elsewhere (experiment on one NVIDIA H200, 1M SIFT rows, batch 10,000, recall 0.95, M q/s):
// 32 random rows as starts 31.9, 512 pivots 33.3, 1,024 32.5, 2,048 31.4 (distances fall further, but
// the products cost more than that saves); random rows beside the pivots, 0 to 24: no difference.
//
// Departure from CAGRA, which starts at random rows hashed from the query's place in the batch: an
// answer depends on the query alone.

#include "place/pivots_cuda.h"
#include "search/walk_cuda.h"

namespace gannet::cuda {
namespace {

constexpr uint32_t kWarps = 4;
constexpr uint32_t kThreads = kWarps * kWarp;
constexpr uint32_t kQueries = 16;  // of a block, the rows of a tile
constexpr uint32_t kTile = 8;      // pivots of a tile, one of each class
constexpr uint32_t kGroup = 4;     // tiles that a warp compares at once
constexpr uint32_t kMembers = 4;   // lanes that share a row of a tile
static_assert(kTile == kStarts && kPivots % (kTile * kWarps * kGroup) == 0);
static_assert(kQueries * kStarts == kThreads);

constexpr int32_t kFar = kNoPivot;

/// The nearest pivot of a class so far.
template <class Distance>
struct Nearest {
  Distance distance = static_cast<Distance>(kFar);  // x.x - 2 x.q
  uint32_t tile = 0;

  __device__ void offer(Distance other_distance, uint32_t other_tile) {
    if (other_distance >= distance) return;
    distance = other_distance;
    tile = other_tile;
  }
};

// Over as many neighbouring lanes; all of them get the result.
template <uint32_t kLanes>
__device__ float sum_over(float value) {
#pragma unroll
  for (uint32_t stride = kLanes / 2; stride != 0; stride /= 2)
    value += __shfl_xor_sync(kAllLanes, value, stride);
  return value;
}
template <uint32_t kLanes>
__device__ float min_over(float value) {
#pragma unroll
  for (uint32_t stride = kLanes / 2; stride != 0; stride /= 2)
    value = fminf(value, __shfl_xor_sync(kAllLanes, value, stride));
  return value;
}

/// Adds the products of 16 rows and 8 columns over 32 bytes; the rows' may have signs.
template <bool kSigned>
__device__ void multiply(int32_t (&sums)[4], const uint32_t (&left)[4], uint32_t right_low,
                         uint32_t right_high) {
  if constexpr (kSigned)
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right_low), "r"(right_high));
  else
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right_low), "r"(right_high));
}

/// Codes of bytes: |x - q|^2 less q.q is whole.
struct PlainPivots {
  using Distance = int32_t;
  static constexpr bool kSigned = false;
  static constexpr uint32_t kQueryBytes = 0;  // before the bytes of a query that are multiplied
  static constexpr float kLeastMean = 1;      // of squared distances to pivots

  const WalkArgs& args;

  __device__ void begin(const uint8_t*, const uint8_t*, uint32_t) const {}

  /// Exact modulo 2^32, and the result fits.
  __device__ int32_t distance(uint32_t, uint32_t pivot, int32_t product) const {
    const int32_t square = __ldg(args.squares + pivot);
    return static_cast<int32_t>(static_cast<uint32_t>(square) - 2 * static_cast<uint32_t>(product));
  }

  /// q.q of the pieces of a query that fall to one of kTile threads.
  __device__ float square_part(const uint8_t* code, uint32_t column) const {
    uint32_t square = 0;
    for (uint32_t byte = column * 4; byte < args.stride; byte += kTile * 4) {
      const uint32_t word = __ldg(reinterpret_cast<const uint32_t*>(code + byte));
      square = __dp4a(word, word, square);
    }
    return static_cast<float>(square);
  }
};

/// Codes with a scale for each row (traverse/scaled_steps.cuh), by squared L2 about one cell. The high digits of a query
/// tell well enough which pivots are near.
struct ScaledPivots {
  using Distance = float;
  static constexpr bool kSigned = true;
  static constexpr uint32_t kQueryBytes = 64;  // its head
  static constexpr float kLeastMean = 1e-15f;  // the square of which is a float

  const WalkArgs& args;
  float weights[2] = {};  // of both queries of a lane: of a product and a row's scale,
  float biases[2] = {};   // and the products' own bias
  uint32_t terms_at = 0;

  /// For the queries of a tile's halves, of which four lanes each have a part; `member`: of these lanes.
  __device__ void begin(const uint8_t* upper, const uint8_t* lower, uint32_t member) {
    const uint8_t* const queries[2] = {upper, lower};
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      const uint4 head = __ldg(reinterpret_cast<const uint4*>(queries[half]));
      int32_t sum = 0;
      for (uint32_t byte = member * 4; byte < args.stride; byte += 4 * kMembers)
        sum = __dp4a(__ldg(reinterpret_cast<const int32_t*>(queries[half] + kQueryBytes + byte)), 0x01010101,
                     sum);
      sum += __shfl_xor_sync(kAllLanes, sum, 1);
      sum += __shfl_xor_sync(kAllLanes, sum, 2);
      weights[half] = 256 * __uint_as_float(head.x);
      biases[half] = 128 * static_cast<float>(sum);
      terms_at = head.z;
    }
  }

  __device__ float distance(uint32_t half, uint32_t pivot, int32_t product) const {
    if (__ldg(args.pivots + pivot) == kNoRow) return static_cast<float>(kFar);
    const float2 terms =
        __ldg(reinterpret_cast<const float2*>(args.pivot_codes + uint64_t{pivot} * args.stride + terms_at));
    return terms.y + weights[half] * terms.x * (static_cast<float>(product) - biases[half]);
  }

  /// Of the centre, which the first of these threads has.
  __device__ float square_part(const uint8_t* code, uint32_t column) const {
    return column == 0 ? __ldg(reinterpret_cast<const float*>(code + kQueryBytes + 2 * args.stride)) : 0.0f;
  }
};

template <class Pivots>
struct FindStarts {
  using Nearest = cuda::Nearest<typename Pivots::Distance>;
  struct Shared {
    Nearest of_warp[kWarps][kQueries][kTile];
    float sums[kWarps][kQueries];
    float effort[kQueries];  // by which walks are expected to be long
  };

  const WalkArgs& args;
  Shared& shared;
  Pivots pivots{args};
  uint32_t warp = threadIdx.x / kWarp;
  uint32_t row = lane_number() / 4;     // of a tile's upper half; of the right operand the pivot
  uint32_t member = lane_number() % 4;  // of the lanes that share a row
  uint32_t first = blockIdx.x * kQueries;
  Nearest nearest[2][2] = {};  // [row, row + 8] x [column 2 member, and the next]
  float sums[2] = {};          // of x.x - 2 x.q, for row and row + 8

  __device__ void run() {
    if (blockIdx.x == 0 && threadIdx.x == 0) *args.counters = {};
    pivots.begin(query(row), query(row + 8), member);
    const uint32_t tiles = args.pivot_count / kTile;
    for (uint32_t tile = warp * kGroup; tile < tiles; tile += kWarps * kGroup) compare(tile);
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
#pragma unroll
      for (uint32_t column = 0; column < 2; ++column)
        shared.of_warp[warp][row + 8 * half][2 * member + column] = nearest[half][column];
      const float of_row = sum_over<kMembers>(sums[half]);
      if (member == 0) shared.sums[warp][row + 8 * half] = of_row;
    }
    __syncthreads();
    report(threadIdx.x / kTile, threadIdx.x % kTile);
    __syncthreads();
    if (threadIdx.x < kQueries) take_place(threadIdx.x);
  }

  /// Lanes that have no query compare the last one.
  __device__ const uint8_t* query(uint32_t place) const {
    return args.queries + uint64_t{min(first + place, args.count - 1)} * args.query_stride;
  }

  __device__ void compare(uint32_t first_tile) {
    int32_t products[kGroup][4] = {};
    const uint8_t* upper = query(row) + Pivots::kQueryBytes + member * 16;
    const uint8_t* lower = query(row + 8) + Pivots::kQueryBytes + member * 16;
    const uint8_t* codes = args.pivot_codes + uint64_t{first_tile * kTile + row} * args.stride + member * 16;
    for (uint32_t byte = 0; byte < args.stride; byte += 64) {
      const uint4 up = __ldg(reinterpret_cast<const uint4*>(upper + byte));
      const uint4 low = __ldg(reinterpret_cast<const uint4*>(lower + byte));
      const uint32_t left[2][4] = {{up.x, low.x, up.y, low.y}, {up.z, low.z, up.w, low.w}};
#pragma unroll
      for (uint32_t tile = 0; tile < kGroup; ++tile) {
        const uint4 right =
            __ldg(reinterpret_cast<const uint4*>(codes + uint64_t{tile * kTile} * args.stride + byte));
        multiply<Pivots::kSigned>(products[tile], left[0], right.x, right.y);
        multiply<Pivots::kSigned>(products[tile], left[1], right.z, right.w);
      }
    }
#pragma unroll
    for (uint32_t tile = 0; tile < kGroup; ++tile) {
#pragma unroll
      for (uint32_t column = 0; column < 2; ++column) {
        const uint32_t pivot = (first_tile + tile) * kTile + 2 * member + column;
#pragma unroll
        for (uint32_t half = 0; half < 2; ++half) {
          const auto distance = pivots.distance(half, pivot, products[tile][2 * half + column]);
          nearest[half][column].offer(distance, first_tile + tile);
          sums[half] += static_cast<float>(distance);
        }
      }
    }
  }

  /// The first of equally near pivots, so that it does not matter which warp compared it.
  __device__ void report(uint32_t place, uint32_t column) const {
    Nearest best = shared.of_warp[0][place][column];
#pragma unroll
    for (uint32_t other = 1; other < kWarps; ++other) {
      const Nearest& one = shared.of_warp[other][place][column];
      if (one.distance < best.distance || (one.distance == best.distance && one.tile < best.tile)) best = one;
    }
    if (first + place < args.count)
      args.starts[uint64_t{first + place} * kStarts + column] =
          __ldg(args.pivots + best.tile * kTile + column);
    const float near = min_over<kTile>(static_cast<float>(best.distance));
    const float square = sum_over<kTile>(pivots.square_part(query(place), column));
    float sum = 0;
#pragma unroll
    for (uint32_t other = 0; other < kWarps; ++other) sum += shared.sums[other][place];
    const float mean = fmaxf(Pivots::kLeastMean, sum / static_cast<float>(args.pivot_count) + square);
    if (column == 0) shared.effort[place] = (near + square) / (mean * mean);  // squared, in the same order
  }

  /// Writes a query to its place in the order: the hardest of each block, then the second of each, and so on.
  __device__ void take_place(uint32_t place) const {
    const uint32_t here = min(kQueries, args.count - first);
    if (place >= here) return;
    uint32_t harder = 0;
    for (uint32_t other = 0; other < here; ++other) {
      const float one = shared.effort[other];
      harder += one > shared.effort[place] || (one == shared.effort[place] && other < place) ? 1 : 0;
    }
    const uint32_t whole = args.count / kQueries;  // blocks
    const uint32_t before = harder * whole + min(harder, args.count % kQueries);
    args.order[before + blockIdx.x] = first + place;
  }
};

template <class Pivots>
__global__ void __launch_bounds__(kThreads) starts(const __grid_constant__ WalkArgs args) {
  __shared__ typename FindStarts<Pivots>::Shared shared;
  FindStarts<Pivots>{args, shared}.run();
}

}  // namespace

// --- Host ----------------------------------------------------------------------------------------

void find_starts(const WalkArgs& args, bool scaled, const Stream& stream) {
  launch("starts", scaled ? starts<ScaledPivots> : starts<PlainPivots>,
         (args.count + kQueries - 1) / kQueries, kThreads, stream, args);
}

}  // namespace gannet::cuda
