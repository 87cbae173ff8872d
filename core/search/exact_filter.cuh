// Exact search on the GPU: floats of many queries, filtered by tensor cores.
//
// Pairs are multiplied with 10 bits behind the point (TF32). Those products are no answers: they say how far apart a
// pair is at least, and pairs that this does not put behind the k-th best are summed in the CPU's lanes. With u = 2^-11
// a rounded value is within u of the value, as a share of it, so a sum of d products is within (2 u + d 2^-21) |q| |x|
// of the true one, the sum's rounding included (tf32_error). L2 is the same about any point, and a difference from the
// centre of some rows is rounded like any float: so lengths are those about the centre, and rows far from the origin
// are as distinct as others. Where something overflows or is no number the pair is summed. Of random rows a thousandth
// is summed, of tight clusters all of a cluster; to sum all pairs would take some twice as long as without products.
#pragma once

#include <cmath>

#include "backend/launch_items.cuh"
#include "distance/float_pairs_cuda.cuh"
#include "search/exact_tiles.cuh"

namespace gannet::cuda {
namespace exact_search {

// The error bounds of tensor cores' sums, as shares. For a sum of `dim` products, of the lengths' product: two
// roundings of 2^-11 each, and the errors of adding up.
__device__ constexpr float tf32_error(uint32_t dim) {
  return 0x1p-10f + 0x1p-19f + static_cast<float>(dim) * 0x1p-21f;
}
// The roundings of squares, of lengths and of the CPU's own sums.
__device__ constexpr float float_error(uint32_t dim) { return 0x1p-17f + static_cast<float>(dim) * 0x1p-28f; }
constexpr float kTiny = 1e-34f;       // room for products too small for a float
constexpr uint32_t kCentreRows = 64;  // whose mean is the centre

/// Sums of four pairs in the CPU's lanes and order, by one warp, apart from the caller, whose registers they are not to
/// take; every lane gets all.
__device__ __noinline__ float4 sum_pairs(const ExactArgs& args, uint4 rows, uint4 queries) {
  const auto row = [&](uint32_t number) { return args.rows + uint64_t{number} * args.row_stride; };
  const auto query = [&](uint32_t number) {
    return reinterpret_cast<const float*>(args.queries + uint64_t{number} * args.query_stride);
  };
  const uint8_t* const from[4] = {row(rows.x), row(rows.y), row(rows.z), row(rows.w)};
  const float* const to[4] = {query(queries.x), query(queries.y), query(queries.z), query(queries.w)};
  const auto query_value = [&](uint32_t pair, uint32_t column) { return to[pair][column]; };
  float sums[4];
  const auto sum = [&]<int32_t kElement>() {
    if (args.metric != ANN_METRIC_L2)
      sum_float_pairs<kElement, true>(from, query_value, args.dim, sums);
    else
      sum_float_pairs<kElement, false>(from, query_value, args.dim, sums);
  };
  if (args.element == ANN_F32)
    sum.template operator()<ANN_F32>();
  else if (args.element == ANN_F16)
    sum.template operator()<ANN_F16>();
  else
    sum.template operator()<ANN_BF16>();
  return {sums[0], sums[1], sums[2], sums[3]};
}

/// Floats of many queries: tensor cores find the pairs that may be near enough, and only those are summed in the CPU's
/// lanes and order. Their result is a bound that no distance lies below; the head of this file derives it.
template <ExactTile kTileOfStep>
struct FilteredSearch : TensorTile<float, kTileOfStep> {
  using Tile = TensorTile<float, kTileOfStep>;
  using Tile::args, Tile::kTile, Tile::kThreads, Tile::kPieces, Tile::kItems, Tile::kFetches;
  using Tile::kLaneQueries, Tile::kLaneRows, Tile::kWarpSide, Tile::sources, Tile::query_begin, Tile::lane;
  static constexpr uint32_t kPanelColumns = 4 * kPieces;
  static constexpr uint32_t kPairs = kWarpSide * kWarpSide;  // of a warp

  struct Shared {
    float4 pieces[2][kItems][kPieces];  // [buffer, queries then rows, four columns]
    typename BoundedCandidates<kTile>::Shared candidates;
  };

  // Pairs of a warp that may be near, query above row, until they are summed. Lists are sorted in this memory at
  // other times.
  using Pair = uint16_t;
  static_assert(kThreads / 32 * kPairs * sizeof(Pair) <= sizeof(Shared::candidates.keys));

  /// Of a metric, so that a pair may be near unless scale * q.x + row_term - query_share * length > room.
  struct QueryTerms {
    float share;
    float room;
  };
  struct RowTerms {
    float term;
    float length;
  };

  Shared& shared;
  BoundedCandidates<kTile> candidates;
  float4 fetched[kFetches];  // as of read_four
  float4 centre = {0, 0, 0, 0};

  __device__ FilteredSearch(const ExactArgs& args, Shared& shared)
      : Tile(args), shared(shared), candidates(args, shared.candidates) {}

  __device__ void run() { for_each_tile<kTile>(args, *this, candidates); }

  __device__ void fetch(uint32_t row, uint32_t panel, uint32_t end) {
    if (panel == 0) Tile::aim(row, end);
    const uint32_t column = panel * kPanelColumns + threadIdx.x % kPieces * 4;
    if (args.centre != nullptr) centre = *reinterpret_cast<const float4*>(args.centre + column);
#pragma unroll
    for (uint32_t i = 0; i < kFetches; ++i) {
      fetched[i] = {0, 0, 0, 0};
      if (sources[i] == nullptr) continue;
      if (Tile::item_of(i) < kTile.queries) {
        if (column * 4 < args.query_stride)
          fetched[i] = *reinterpret_cast<const float4*>(sources[i] + column * 4);
      } else if (column * element_bytes(args.element) < args.row_stride) {
        fetched[i] = read_four(args.element, sources[i], column);
      }
    }
  }

  __device__ void deposit(uint32_t buffer) {
#pragma unroll
    for (uint32_t i = 0; i < kFetches; ++i) {
      const uint32_t item = Tile::item_of(i);
      const float4 four = item < kTile.queries ? fetched[i] : unpacked(args.element, fetched[i]);
      shared.pieces[buffer][item][threadIdx.x % kPieces] = {
          round_to_tf32(__fsub_rn(four.x, centre.x)), round_to_tf32(__fsub_rn(four.y, centre.y)),
          round_to_tf32(__fsub_rn(four.z, centre.z)), round_to_tf32(__fsub_rn(four.w, centre.w))};
    }
  }

  __device__ void accumulate(uint32_t buffer) {
    Tile::multiply_panel(shared.pieces[buffer],
                         [](float(&sums)[4], const float(&left)[4], const float(&right)[2]) {
                           multiply_tf32(sums, left, right);
                         });
  }

  __device__ void finish(uint32_t tile_row, uint32_t end) {
    RowTerms rows[kLaneRows];
#pragma unroll
    for (uint32_t i = 0; i < kLaneRows; ++i) rows[i] = row_terms(tile_row + Tile::row_in_tile(i), end);
    const float scale = args.metric == ANN_METRIC_L2 ? -2 : -1;
    uint32_t near = 0;  // a bit a pair of this lane
#pragma unroll
    for (uint32_t q = 0; q < kLaneQueries; ++q) {
      const uint32_t query = query_begin + Tile::query_in_tile(q);
      if (query < args.query_count) {
        const QueryTerms terms = query_terms(query, candidates.bound(Tile::query_in_tile(q)));
#pragma unroll
        for (uint32_t i = 0; i < kLaneRows; ++i) {
          const float excess = fmaf(scale, Tile::sum(q, i), rows[i].term) - terms.share * rows[i].length;
          // Where something is no number, the pair may be near.
          if (tile_row + Tile::row_in_tile(i) < end && !(excess > terms.room))
            near |= 1u << (q * kLaneRows + i);
        }
      }
      Tile::clear(q);
    }
    if (__any_sync(kAllLanes, near != 0)) consider_near(near, tile_row);
  }

  /// As is_extreme says it, such lengths tell nothing.
  static __device__ float length_or_nothing(float length) {
    return length < kNormMin || length > kNormMax ? NAN : length;
  }

  __device__ RowTerms row_terms(uint32_t row, uint32_t end) const {
    if (row >= end) return {0, 0};
    if (args.metric == ANN_METRIC_COSINE) return {0, length_or_nothing(args.norms[row])};
    const float rounded = float_error(args.dim);
    const float square = __uint_as_float(args.row_squares[row]);
    if (args.metric == ANN_METRIC_INNER_PRODUCT) return {0, sqrtf(square) * (1 + rounded)};
    return {square * (1 - rounded), sqrtf(square) * (1 + rounded)};
  }

  __device__ QueryTerms query_terms(uint32_t query, uint32_t bound) const {
    const float farthest = bound == UINT32_MAX ? INFINITY : distance_of(Key{bound} << 32);
    const float rounded = float_error(args.dim);
    const float limit = farthest + fabsf(farthest) * rounded + kTiny;
    const float wrong = tf32_error(args.dim);
    if (args.metric == ANN_METRIC_COSINE) {
      const float length = length_or_nothing(static_cast<float>(args.query_norms[query]));
      return {(wrong + limit - 1 + rounded) * length, 0};
    }
    const float square = __uint_as_float(args.query_squares[query]);
    const float length = sqrtf(square) * (1 + rounded);
    if (args.metric == ANN_METRIC_INNER_PRODUCT) return {wrong * length, limit};
    return {2 * wrong * length, limit - square * (1 - rounded)};
  }

  /// Sums pairs that may be near, four at a time.
  __device__ void consider_near(uint32_t near, uint32_t tile_row) {
    Pair* pairs = reinterpret_cast<Pair*>(shared.candidates.keys) + threadIdx.x / 32 * kPairs;
    const uint32_t count = list_pairs(near, pairs);
    for (uint32_t first = 0; first < count; first += 4) {
      const auto pair = [&](uint32_t i) { return pairs[min(first + i, count - 1)]; };
      const auto row = [&](uint32_t i) { return tile_row + Tile::warp_row + pair(i) % kWarpSide; };
      const auto query = [&](uint32_t i) { return query_begin + Tile::warp_query + pair(i) / kWarpSide; };
      const float4 sums = sum_pairs(args, uint4{row(0), row(1), row(2), row(3)},
                                    uint4{query(0), query(1), query(2), query(3)});
      if (lane < 4 && first + lane < count) {
        const float sum = lane == 0 ? sums.x : lane == 1 ? sums.y : lane == 2 ? sums.z : sums.w;
        const uint32_t place = query(lane) - query_begin;
        candidates.consider(place, args.first_row + row(lane),
                            float_distance(args, sum, query(lane), row(lane)));
      }
    }
    __syncwarp();
  }

  /// Writes the lanes' pairs one behind the other; returns how many they are.
  __device__ uint32_t list_pairs(uint32_t near, Pair* pairs) const {
    const uint32_t own = __popc(near);
    uint32_t end = own;  // of this lane's
    for (uint32_t step = 1; step < 32; step *= 2) {
      const uint32_t before = __shfl_up_sync(kAllLanes, end, step);
      if (lane >= step) end += before;
    }
    uint32_t to = end - own;
    for (; near != 0; near &= near - 1) {
      const uint32_t bit = __ffs(static_cast<int>(near)) - 1;
      const uint32_t query = Tile::query_in_tile(bit / kLaneRows) - Tile::warp_query;
      const uint32_t row = Tile::row_in_tile(bit % kLaneRows) - Tile::warp_row;
      pairs[to++] = static_cast<Pair>(query * kWarpSide + row);
    }
    __syncwarp();
    return __shfl_sync(kAllLanes, end, 31);
  }
};

struct Centre;
struct Squares;

/// The arguments of two steps that share a kernel.
struct MeasureSteps : MeasureArgs {
  using Steps = StepList<Centre, Squares>;
};

/// The mean of some items spread over all of them, a thread a column. It need not be the mean of all: distances are the
/// same about any point, and their bounds are the closer the nearer to the rows it lies.
struct Centre {
  static constexpr uint32_t kLanes = 1;
  const MeasureArgs& args;

  __device__ void run(uint64_t item) const {
    const uint32_t column = static_cast<uint32_t>(item);
    float sum = 0;
    const uint32_t count = min(kCentreRows, args.count);
    for (uint32_t i = 0; column < args.dim && i < count; ++i)
      sum += float_of(args.element, args.items + uint64_t{i} * args.count / count * args.stride, column);
    args.centre[column] = sum / static_cast<float>(count);
  }

  static __device__ float float_of(int32_t element, const uint8_t* row, uint32_t column) {
    if (element == ANN_F32) return float_at<ANN_F32>(row, column);
    return element == ANN_F16 ? float_at<ANN_F16>(row, column) : float_at<ANN_BF16>(row, column);
  }
};

/// x.x of vectors, or of x - centre, a warp for each, which waits for memory whatever the element is.
struct Squares {
  static constexpr uint32_t kLanes = 32;
  const MeasureArgs& args;
  Warp warp = cg::tiled_partition<32>(cg::this_thread_block());

  __device__ void run(uint64_t item) const {
    const uint8_t* vector = args.items + item * args.stride;
    uint32_t sum =
        is_float_element(args.element) ? __float_as_uint(add_floats(vector)) : add_integers(vector);
    if (warp.thread_rank() == 0) args.squares[item] = sum;
  }

  __device__ uint32_t add_integers(const uint8_t* vector) const {
    const uint32_t* words = reinterpret_cast<const uint32_t*>(vector);
    uint32_t sum = args.element == ANN_I8 ? add_up<true>(words) : add_up<false>(words);
    for (uint32_t half = 16; half != 0; half /= 2) sum += warp.shfl_xor(sum, half);
    return sum;
  }

  template <bool kSigned>
  __device__ uint32_t add_up(const uint32_t* words) const {
    uint32_t sum = 0;
    for (uint32_t i = warp.thread_rank(); i < args.stride / 4; i += 32)
      sum = add_products<kSigned>(words[i], words[i], sum);
    return sum;
  }

  __device__ float add_floats(const uint8_t* vector) const {
    float sum = 0;
    for (uint32_t column = warp.thread_rank(); column < args.dim; column += 32) {
      const float value = Centre::float_of(args.element, vector, column);
      const float difference = args.centre != nullptr ? __fsub_rn(value, args.centre[column]) : value;
      sum = fmaf(difference, difference, sum);
    }
    for (uint32_t half = 16; half != 0; half /= 2) sum += warp.shfl_xor(sum, half);
    return sum;
  }
};

}  // namespace exact_search
}  // namespace gannet::cuda
