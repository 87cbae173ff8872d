// Exact search on the GPU: how a block goes through its slice, tile by tile and panel by panel, and the two ways to sum
// pairs that give the CPU's bits.
//
//   FloatSearch      a warp sums 8 queries x 4 rows in the CPU's lanes (distance/lanes_cuda.h)
//   IntegerSearch    a warp multiplies 32 queries x 32 rows on tensor cores; a piece is 16 bytes of a row or query.
//                    |x - q|^2 = x.x + q.q - 2 x.q holds in 32 bits modulo 2^32, and the result is below 2^31 for
//                    every legal dimension
//
// The next panel is on its way into registers while one is summed.
#pragma once

#include "distance/lanes_cuda.h"
#include "distance/tensor_cuda.h"
#include "search/exact_lists.cuh"

namespace gannet::cuda {
namespace exact_search {

/// Where a block stands.
template <ExactTile kTile>
struct Slice {
  uint32_t begin;
  uint32_t end;

  __device__ explicit Slice(const ExactArgs& args)
      : begin(static_cast<uint32_t>(min(uint64_t{blockIdx.y} * args.slice_rows, uint64_t{args.row_count}))),
        end(static_cast<uint32_t>(min(uint64_t{begin} + args.slice_rows, uint64_t{args.row_count}))) {}
};

/// Steps through the tiles of a slice and the panels of a tile. A Step offers
///   fetch(row, panel)    starts to read a panel of the tile that begins at `row`
///   deposit(buffer)      puts the fetched panel into shared memory
///   accumulate(buffer)   adds the products of a panel to the sums
///   finish(row, end)     turns sums into candidates, and clears them
template <ExactTile kTile, class Step, class Lists>
__device__ void for_each_tile(const ExactArgs& args, Step& step, Lists& candidates) {
  const cg::thread_block block = cg::this_thread_block();
  const Slice<kTile> slice(args);
  candidates.load();
  uint32_t buffer = 0;
  if (slice.begin < slice.end) {
    step.fetch(slice.begin, 0, slice.end);
    step.deposit(buffer);
  }
  block.sync();
  for (uint32_t row = slice.begin; row < slice.end; row += kTile.rows) {
    for (uint32_t panel = 0; panel < args.panels; ++panel) {
      const bool last = panel + 1 == args.panels;
      const uint32_t next_row = last ? row + kTile.rows : row;
      const bool more = next_row < slice.end;
      if (more) step.fetch(next_row, last ? 0 : panel + 1, slice.end);
      step.accumulate(buffer);
      buffer ^= 1;
      if (more) step.deposit(buffer);
      if (last) step.finish(row, slice.end);
      block.sync();
    }
    candidates.make_room();
  }
  candidates.store();
}

/// Four columns of a row of floats; of short elements their bits in the first two words.
__device__ inline float4 read_four(int32_t element, const uint8_t* row, uint32_t column) {
  if (element == ANN_F32) return *reinterpret_cast<const float4*>(row + size_t{column} * 4);
  const float2 four = *reinterpret_cast<const float2*>(row + size_t{column} * 2);
  return {four.x, four.y, 0, 0};
}

template <int32_t kElement>
__device__ float4 unpacked(uint32_t first, uint32_t second) {
  return {float_of_bits<kElement>(first & 0xffff), float_of_bits<kElement>(first >> 16),
          float_of_bits<kElement>(second & 0xffff), float_of_bits<kElement>(second >> 16)};
}

/// The result of read_four, as floats: later, so that nothing waits for memory.
__device__ inline float4 unpacked(int32_t element, const float4& read) {
  if (element == ANN_F32) return read;
  const uint32_t first = __float_as_uint(read.x);
  const uint32_t second = __float_as_uint(read.y);
  return element == ANN_F16 ? unpacked<ANN_F16>(first, second) : unpacked<ANN_BF16>(first, second);
}

/// A distance of floats from its sum, as Dataset::distances has it.
__device__ inline float float_distance(const ExactArgs& args, float sum, uint32_t query, uint32_t row) {
  if (args.metric != ANN_METRIC_COSINE) return to_distance(sum, args.metric, 0, 0);
  const double query_norm = args.query_norms[query];
  const float norm = args.norms[row];
  if (!is_extreme(query_norm, norm)) return to_distance(sum, args.metric, query_norm, norm);
  return distance_of_cosine(extreme_cosine(
      args.element, reinterpret_cast<const float*>(args.queries + uint64_t{query} * args.query_stride),
      query_norm, args.rows + uint64_t{row} * args.row_stride, args.dim));
}

/// The same of a sum of products of integers, unless by L2.
__device__ inline float product_distance(const ExactArgs& args, uint32_t sum, uint32_t query, uint32_t row) {
  const bool by_cosine = args.metric == ANN_METRIC_COSINE;
  return to_distance(static_cast<float>(static_cast<int32_t>(sum)), args.metric,
                     by_cosine ? args.query_norms[query] : 0, by_cosine ? args.norms[row] : 0);
}

/// The same by any metric, whose squares L2 has at hand.
__device__ inline float byte_distance(const ExactArgs& args, uint32_t sum, uint32_t query, uint32_t row) {
  if (args.metric == ANN_METRIC_L2)
    return static_cast<float>(args.row_squares[row] + args.query_squares[query] - 2 * sum);
  return product_distance(args, sum, query, row);
}

/// Sums of floats, in the CPU's lanes and order. Rows of every float element: only their reads and
/// unpacking test the type, a branch for 64 multiplications and more.
template <bool kDot, ExactTile kTileOfStep>
struct FloatSearch {
  using Args = ExactArgs;
  static constexpr ExactTile kTile = kTileOfStep;
  static constexpr uint32_t kThreads = kTile.threads;
  static constexpr uint32_t kLanes = LaneSums::kLanes;
  static constexpr uint32_t kWarpQueries = LaneSums::kLeft;
  static constexpr uint32_t kWarpRows = LaneSums::kRight;
  static constexpr uint32_t kPairs = LaneSums::kPairs;
  static constexpr uint32_t kItems = kTile.queries + kTile.rows;
  static constexpr uint32_t kQuads = kLanes / 4;  // of four columns, in a panel of an item
  static constexpr uint32_t kFetches = (kItems * kQuads + kThreads - 1) / kThreads;
  static_assert(kThreads / 32 * kPairs == kTile.queries * kTile.rows);

  struct Shared {
    float4 values[2][kItems][kQuads];  // [buffer, queries then rows, four columns]
    typename Candidates<kTile>::Shared candidates;
  };

  const ExactArgs& args;
  Shared& shared;
  Candidates<kTile> candidates{args, shared.candidates};
  Warp warp = cg::tiled_partition<32>(cg::this_thread_block());
  uint32_t query_begin = blockIdx.x * kTile.queries;
  uint32_t warp_query = threadIdx.x / 32 % (kTile.queries / kWarpQueries) * kWarpQueries;
  uint32_t warp_row = threadIdx.x / 32 / (kTile.queries / kWarpQueries) * kWarpRows;
  const uint8_t* sources[kFetches];  // vectors that this thread reads of, or null
  float4 fetched[kFetches];          // four values, of short elements their bits in the first two words
  LaneSums sums;

  __device__ void run() { for_each_tile<kTile>(args, *this, candidates); }

  __device__ void fetch(uint32_t row, uint32_t panel, uint32_t end) {
    if (panel == 0) aim(row, end);
    const uint32_t column = panel * kLanes + threadIdx.x % kQuads * 4;
#pragma unroll
    for (uint32_t i = 0; i < kFetches; ++i) {
      const bool is_query = (threadIdx.x + i * kThreads) / kQuads < kTile.queries;
      fetched[i] = {0, 0, 0, 0};
      if (sources[i] == nullptr) continue;
      if (is_query) {
        if (column * 4 < args.query_stride)
          fetched[i] = *reinterpret_cast<const float4*>(sources[i] + column * 4);
      } else if (column * element_bytes(args.element) < args.row_stride) {
        fetched[i] = read_four(args.element, sources[i], column);
      }
    }
  }

  __device__ void aim(uint32_t row, uint32_t end) {
#pragma unroll
    for (uint32_t i = 0; i < kFetches; ++i) {
      const uint32_t item = (threadIdx.x + i * kThreads) / kQuads;
      const uint64_t query = uint64_t{query_begin} + item;
      const uint64_t number = uint64_t{row} + (item - kTile.queries);
      sources[i] = nullptr;
      if (item < kTile.queries) {
        if (query < args.query_count) sources[i] = args.queries + query * args.query_stride;
      } else if (item < kItems && number < end) {
        sources[i] = args.rows + number * args.row_stride;
      }
    }
  }

  __device__ void deposit(uint32_t buffer) {
#pragma unroll
    for (uint32_t i = 0; i < kFetches; ++i) {
      const uint32_t task = threadIdx.x + i * kThreads;
      const uint32_t item = task / kQuads;
      if (item < kItems)
        shared.values[buffer][item][task % kQuads] =
            item < kTile.queries ? fetched[i] : unpacked(args.element, fetched[i]);
    }
  }

  __device__ void accumulate(uint32_t buffer) {
    add_lane(buffer, warp.thread_rank(), sums.low);
    add_lane(buffer, warp.thread_rank() + 32, sums.high);
  }

  __device__ void add_lane(uint32_t buffer, uint32_t lane, float* lane_sums) {
    const auto value = [&](uint32_t item) {
      return reinterpret_cast<const float*>(shared.values[buffer][item])[lane];
    };
    float queries[kWarpQueries];
    float rows[kWarpRows];
#pragma unroll
    for (uint32_t i = 0; i < kWarpQueries; ++i) queries[i] = value(warp_query + i);
#pragma unroll
    for (uint32_t i = 0; i < kWarpRows; ++i) rows[i] = value(kTile.queries + warp_row + i);
    LaneSums::add<kDot>(lane_sums, queries, rows);
  }

  __device__ void finish(uint32_t tile_row, uint32_t end) {
    const float sum = sums.fold(warp);
    const uint32_t pair = warp.thread_rank();
    const uint32_t query = warp_query + pair / kWarpRows;
    const uint32_t row = tile_row + warp_row + pair % kWarpRows;
    if (row < end && query_begin + query < args.query_count)
      candidates.consider(query, args.first_row + row, float_distance(args, sum, query_begin + query, row),
                          candidates.worst(query));
    sums.clear();
  }
};

/// Sums of integers on tensor cores: a warp multiplies 32 queries with 32 rows, a lane 16 bytes of each of some of
/// them.
template <bool kSigned, ExactTile kTileOfStep>
struct IntegerSearch {
  using Args = ExactArgs;
  static constexpr ExactTile kTile = kTileOfStep;
  static constexpr uint32_t kThreads = kTile.threads;
  static constexpr uint32_t kPieces = 4;  // of 16 bytes, in a panel of an item
  static constexpr uint32_t kWarpSide = 32;
  static constexpr uint32_t kStrips = kWarpSide / 16;  // of queries that an instruction multiplies
  static constexpr uint32_t kAcross = kWarpSide / 8;   // with so many rows
  static constexpr uint32_t kLaneQueries = 2 * kStrips;
  static constexpr uint32_t kLaneRows = 2 * kAcross;
  static constexpr uint32_t kItems = kTile.queries + kTile.rows;
  static constexpr uint32_t kFetches = kItems * kPieces / kThreads;
  static constexpr uint32_t kPanelColumns = 16 * kPieces;
  static_assert(kThreads * kWarpSide == kTile.queries * kTile.rows);
  static_assert(kItems * kPieces % kThreads == 0);

  // The eight lanes that are served together read two items whole: 128 bytes side by side.
  struct Shared {
    uint4 pieces[2][kItems][kPieces];  // [buffer, queries then rows, 16 columns]
    typename Candidates<kTile>::Shared candidates;
  };

  const ExactArgs& args;
  Shared& shared;
  Candidates<kTile> candidates{args, shared.candidates};
  uint32_t lane = threadIdx.x % 32;
  uint32_t query_begin = blockIdx.x * kTile.queries;
  uint32_t warp_query = threadIdx.x / 32 % (kTile.queries / kWarpSide) * kWarpSide;
  uint32_t warp_row = threadIdx.x / 32 / (kTile.queries / kWarpSide) * kWarpSide;
  const uint8_t* sources[kFetches];  // vectors that this thread reads of, or null
  uint4 fetched[kFetches];
  int32_t sums[kStrips][kAcross][4] = {};

  __device__ void run() { for_each_tile<kTile>(args, *this, candidates); }

  /// Which item, queries first, the i-th piece of this thread belongs to.
  static __device__ uint32_t item_of(uint32_t i) { return (threadIdx.x + i * kThreads) / kPieces; }

  __device__ void aim(uint32_t row, uint32_t end) {
#pragma unroll
    for (uint32_t i = 0; i < kFetches; ++i) {
      const uint32_t item = item_of(i);
      const uint64_t query = uint64_t{query_begin} + item;
      const uint64_t number = uint64_t{row} + (item - kTile.queries);
      sources[i] = nullptr;
      if (item < kTile.queries) {
        if (query < args.query_count) sources[i] = args.queries + query * args.query_stride;
      } else if (number < end) {
        sources[i] = args.rows + number * args.row_stride;
      }
    }
  }

  __device__ void fetch(uint32_t row, uint32_t panel, uint32_t end) {
    if (panel == 0) aim(row, end);
    const uint32_t byte = panel * kPanelColumns + threadIdx.x % kPieces * 16;
#pragma unroll
    for (uint32_t i = 0; i < kFetches; ++i) {
      fetched[i] = {0, 0, 0, 0};
      if (sources[i] != nullptr && byte < args.row_stride)
        fetched[i] = *reinterpret_cast<const uint4*>(sources[i] + byte);
    }
  }

  __device__ void deposit(uint32_t buffer) {
#pragma unroll
    for (uint32_t i = 0; i < kFetches; ++i)
      shared.pieces[buffer][item_of(i)][threadIdx.x % kPieces] = fetched[i];
  }

  /// Products do not ask in which order columns come: a lane takes the columns of one piece, which lie together, and
  /// uses its words where the instruction expects others, of queries as of rows.
  __device__ void accumulate(uint32_t buffer) {
    const uint4(&pieces)[kItems][kPieces] = shared.pieces[buffer];
    uint4 queries[kStrips][2];
#pragma unroll
    for (uint32_t q = 0; q < kLaneQueries; ++q)
      queries[q / 2][q % 2] = pieces[warp_query + 8 * q + lane / 4][lane % 4];
#pragma unroll
    for (uint32_t across = 0; across < kAcross; ++across) {
      const uint4 row = pieces[kTile.queries + warp_row + 8 * across + lane / 4][lane % 4];
#pragma unroll
      for (uint32_t strip = 0; strip < kStrips; ++strip) {
        const uint4& upper = queries[strip][0];
        const uint4& lower = queries[strip][1];
        int32_t(&four)[4] = sums[strip][across];
        multiply_bytes<kSigned>(four, {upper.x, lower.x, upper.y, lower.y}, {row.x, row.y});
        multiply_bytes<kSigned>(four, {upper.z, lower.z, upper.w, lower.w}, {row.z, row.w});
      }
    }
  }

  /// The values of rows and queries are read before the first candidate is written, so that the
  /// loads need not wait for each other.
  __device__ void finish(uint32_t tile_row, uint32_t end) {
    uint32_t row_squares[kLaneRows] = {};
    float norms[kLaneRows] = {};
#pragma unroll
    for (uint32_t i = 0; i < kLaneRows; ++i) {
      const uint32_t row = tile_row + row_in_tile(i);
      if (row < end && args.metric == ANN_METRIC_L2) row_squares[i] = args.row_squares[row];
      if (row < end && args.metric == ANN_METRIC_COSINE) norms[i] = args.norms[row];
    }
#pragma unroll
    for (uint32_t q = 0; q < kLaneQueries; ++q) {
      const uint32_t place = query_in_tile(q);
      const uint32_t query = query_begin + place;
      if (query < args.query_count) {
        const Key worst = candidates.worst(place);
        if (args.metric == ANN_METRIC_L2)
          consider_near(q, place, args.query_squares[query], row_squares, tile_row, end, worst);
        else
          consider_all(q, place, args.metric == ANN_METRIC_COSINE ? args.query_norms[query] : 0, norms,
                       tile_row, end, worst);
      }
      clear(q);
    }
  }

  /// Of most tiles no row is as near as the k-th best, by a test of two instructions a pair: y.y - 2 x.y
  /// against the distance of that one less x.x, rounded up by more than floats round down.
  __device__ void consider_near(uint32_t q, uint32_t place, uint32_t square,
                                const uint32_t (&row_squares)[kLaneRows], uint32_t tile_row, uint32_t end,
                                Key worst) {
    const float farthest = worst == kNoKey ? INFINITY : distance_of(worst);
    const uint32_t bound = farthest < 2e9f ? __float2uint_ru(farthest) + 256 : uint32_t{INT32_MAX};
    const int32_t room = static_cast<int32_t>(bound - square);
    bool is_near = false;
#pragma unroll
    for (uint32_t i = 0; i < kLaneRows; ++i)
      is_near |= static_cast<int32_t>(row_squares[i] - 2 * static_cast<uint32_t>(sum(q, i))) <= room;
    if (!is_near) return;
#pragma unroll
    for (uint32_t i = 0; i < kLaneRows; ++i) {
      const uint32_t distance = row_squares[i] + square - 2 * static_cast<uint32_t>(sum(q, i));
      const uint32_t row = tile_row + row_in_tile(i);
      if (row < end && distance <= bound)
        candidates.consider(place, args.first_row + row, static_cast<float>(distance), worst);
    }
  }

  __device__ void consider_all(uint32_t q, uint32_t place, double norm, const float (&norms)[kLaneRows],
                               uint32_t tile_row, uint32_t end, Key worst) {
#pragma unroll
    for (uint32_t i = 0; i < kLaneRows; ++i) {
      const uint32_t row = tile_row + row_in_tile(i);
      if (row < end)
        candidates.consider(place, args.first_row + row,
                            to_distance(static_cast<float>(sum(q, i)), args.metric, norm, norms[i]), worst);
    }
  }

 private:
  /// Of the lane's query `q` and row `i`.
  __device__ int32_t sum(uint32_t q, uint32_t i) const { return sums[q / 2][i / 2][q % 2 * 2 + i % 2]; }
  __device__ uint32_t query_in_tile(uint32_t q) const { return warp_query + 8 * q + lane / 4; }
  __device__ uint32_t row_in_tile(uint32_t i) const { return warp_row + i / 2 * 8 + lane % 4 * 2 + i % 2; }
  __device__ void clear(uint32_t q) {
#pragma unroll
    for (uint32_t i = 0; i < kLaneRows; ++i) sums[q / 2][i / 2][q % 2 * 2 + i % 2] = 0;
  }
};

}  // namespace exact_search
}  // namespace gannet::cuda
