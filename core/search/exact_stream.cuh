// Exact search on the GPU: all rows of a slice summed for one query, as they stream from memory.
//
// A tile of eight queries (exact_tiles.cuh) waits for each panel of its rows: of one query of 500,000 x 128 floats it
// took 250 us, of 512 columns 690. Here the lanes of 1,024 threads of a multiprocessor have four to eight reads each
// under way, which takes 82 and 271 us: 3.1 and 3.8 TB/s (one NVIDIA H200). Rows of 16 columns wait for instructions,
// of which a row of a warp takes some 60, most of them for the fold and its distance: 1,000,000 take 101 us.
//
// Each query reads all rows, those after the first from a cache where their blocks run side by side. Four queries of
// 500,000 x 512 take 1.5 times as long as one, and the tile 1.7 times as long as these; from five on the tile is faster
// on most sets.
//
//   floats     in the CPU's lanes and order (distance/float_pairs_cuda.cuh), four rows of a warp at once
//   integers   16 bytes a lane: rows of up to 512 bytes by teams of 1 to 32 lanes, each with up to four rows at once;
//              |x|^2 is summed beside the products, as the rows pass, instead of in a launch of its own. ByteTeams
//              (distance/byte_teams_cuda.cuh) have a size known as they are compiled, and all squares
#pragma once

#include "search/exact_sums.cuh"

namespace gannet::cuda {
namespace exact_search {

template <bool kIsInteger>
struct StreamSums : QueryList<kExactStream.threads> {
  using List = QueryList<kExactStream.threads>;
  using Shared = List::Shared;
  static constexpr ExactTile kTile = kExactStream;
  static constexpr uint32_t kReads = 2;  // of each row of floats under way

  __device__ StreamSums(const ExactArgs& args, Shared& shared) : List(args, shared) {}

  __device__ void run() {
    load();
    const Slice<kTile> slice(args);
    if constexpr (!kIsInteger)
      sum_floats(slice);
    else if (args.element == ANN_I8)
      sum_bytes<true>(slice);
    else
      sum_bytes<false>(slice);
    store();
  }

 private:
  __device__ bool is_removed(uint32_t row) const { return args.removed.holds(args.first_row + row); }

  __device__ void sum_floats(const Slice<kTile>& slice) {
    sum_all(slice.end - slice.begin, kPairs, [&](uint32_t first) {
      const auto row = [&](uint32_t i) { return min(slice.begin + first + i, slice.end - 1); };
      const uint32_t rows[kPairs] = {row(0), row(1), row(2), row(3)};
      const float distance = float_distances<kReads>(rows);
      if (lane < kPairs && slice.begin + first + lane < slice.end && !is_removed(row(lane)))
        consider(row(lane), distance);
    });
  }

  template <bool kSigned>
  __device__ void sum_bytes(const Slice<kTile>& slice) {
    const uint32_t pieces = args.row_stride / 16;
    const uint32_t team = pieces >= 32  ? 32
                          : pieces <= 1 ? 1
                                        : 2u << (31 - __clz(static_cast<int>(pieces - 1)));
    const uint32_t query_square = args.metric == ANN_METRIC_L2 ? square_of_query<kSigned>(pieces) : 0;
    const uint32_t together = 32 / team;                      // rows of a warp
    const uint32_t warp_rows = together * min(kPairs, team);  // and one after the other
    sum_all(slice.end - slice.begin, warp_rows, [&](uint32_t first) {
      const auto row = [&](uint32_t i) { return slice.begin + first + i * together + lane / team; };
      uint32_t sums[kPairs];
      add_rows<kSigned>([&](uint32_t i) { return row_bytes(min(row(i), slice.end - 1)); }, pieces, team,
                        sums);
#pragma unroll
      for (uint32_t i = 0; i < kPairs; ++i) {
        for (uint32_t half = team / 2; half != 0; half /= 2)
          sums[i] += __shfl_xor_sync(kAllLanes, sums[i], half);
        if (lane % team == i && row(i) < slice.end && !is_removed(row(i)))
          consider(row(i), distance_of(sums[i], query_square, row(i)));
      }
    });
  }

  /// A lane's share of four rows: of their products with the query or, by L2, of |x|^2 - 2 x.q.
  template <bool kSigned, class RowAt>
  __device__ void add_rows(const RowAt& row_at, uint32_t pieces, uint32_t team,
                           uint32_t (&sums)[kPairs]) const {
    const bool squared = args.metric == ANN_METRIC_L2;
    const uint8_t* from[kPairs];
    uint32_t squares[kPairs] = {};
    uint32_t products[kPairs] = {};
#pragma unroll
    for (uint32_t i = 0; i < kPairs; ++i) from[i] = row_at(i < team ? i : 0);
    for (uint32_t piece = lane % team; piece < pieces; piece += team) {
      const uint4 values = piece_at(query_bytes(), piece);
      uint4 read[kPairs];
#pragma unroll
      for (uint32_t i = 0; i < kPairs; ++i) read[i] = piece_at(from[i], piece);
#pragma unroll
      for (uint32_t i = 0; i < kPairs; ++i) {
        products[i] = add_products<kSigned>(read[i], values, products[i]);
        if (squared) squares[i] = add_products<kSigned>(read[i], read[i], squares[i]);
      }
    }
#pragma unroll
    for (uint32_t i = 0; i < kPairs; ++i) sums[i] = squared ? squares[i] - 2 * products[i] : products[i];
  }

  template <bool kSigned>
  __device__ uint32_t square_of_query(uint32_t pieces) const {
    uint32_t sum = 0;
    for (uint32_t piece = lane; piece < pieces; piece += 32) {
      const uint4 values = piece_at(query_bytes(), piece);
      sum = add_products<kSigned>(values, values, sum);
    }
    return __reduce_add_sync(kAllLanes, sum);
  }

  static __device__ const uint4& piece_at(const uint8_t* bytes, uint32_t piece) {
    return reinterpret_cast<const uint4*>(bytes)[piece];
  }

  /// By L2 the sum is below 2^31, and exact modulo 2^32.
  __device__ float distance_of(uint32_t sum, uint32_t query_square, uint32_t row) const {
    if (args.metric == ANN_METRIC_L2) return static_cast<float>(sum + query_square);
    return product_distance(args, sum, query, row);
  }
};

}  // namespace exact_search
}  // namespace gannet::cuda
