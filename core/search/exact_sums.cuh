// Exact search on the GPU: a block that sums pairs of one query, row by row, and keeps the query's list.
//
//   list     of a query and a slice: the k nearest rows so far, ascending, in device memory between launches
//   round    rows that a block sums at once: some of each warp, whose reads are under way together
//
// A row nearer than the k-th best becomes a key behind those of the list. Keys that another round might overflow are
// sorted and cut to k: early while there is no k-th best, since then every row becomes one.
#pragma once

#include "distance/float_pairs_cuda.cuh"
#include "search/exact_tiles.cuh"

namespace gannet::cuda {
namespace exact_search {

template <uint32_t kThreadsOfBlock>
struct QueryList {
  using Args = ExactArgs;
  static constexpr uint32_t kThreads = kThreadsOfBlock;
  static constexpr uint32_t kWarps = kThreads / 32;
  static constexpr uint32_t kPairs = 4;  // that a warp sums at once

  struct Shared {
    Key keys[kSortKeys];  // the best so far, and candidates behind them
    uint32_t count;       // of the keys
  };

  const ExactArgs& args;
  Shared& shared;
  uint32_t lane = threadIdx.x % 32;
  uint32_t warp = threadIdx.x / 32;
  uint32_t query = blockIdx.x;
  Key worst = kNoKey;  // k-th best; kNoKey: there are fewer
  uint32_t known = 0;  // keys of the list
  bool was_cut = false;

  __device__ QueryList(const ExactArgs& args, Shared& shared) : args(args), shared(shared) {}

  __device__ uint64_t slot() const { return uint64_t{blockIdx.y} * args.query_count + query; }
  __device__ Key* list() const { return args.lists + slot() * 2 * args.list_half; }
  __device__ const uint8_t* query_bytes() const { return args.queries + uint64_t{query} * args.query_stride; }
  __device__ const uint8_t* row_bytes(uint32_t row) const {
    return args.rows + uint64_t{row} * args.row_stride;
  }

  __device__ void load() {
    known = args.counts[slot()];
    for (uint32_t i = threadIdx.x; i < known; i += kThreads) shared.keys[i] = list()[i];
    if (threadIdx.x == 0) shared.count = known;
    __syncthreads();
    if (known == args.k) worst = shared.keys[known - 1];
  }

  /// Calls sum(first) in each warp for every `warp_rows` of `rows` from `first` on. Between two looks at the keys there
  /// are as many rounds as have room. A round has at most half of all keys.
  template <class Sum>
  __device__ void sum_all(uint32_t rows, uint32_t warp_rows, const Sum& sum) {
    const uint32_t round_rows = kWarps * warp_rows;
    for (uint32_t first = 0; first < rows;) {
      const uint32_t count = shared.count;
      __syncthreads();
      const uint32_t most = worst == kNoKey ? min(2 * args.list_half + round_rows, kSortKeys) : kSortKeys;
      if (count + round_rows > most) {
        keep_nearest();
        continue;
      }
      const uint32_t rounds = (most - count) / round_rows;
      for (uint32_t round = 0; round < rounds && first < rows; ++round, first += round_rows)
        if (first + warp * warp_rows < rows) sum(first + warp * warp_rows);
      __syncthreads();
    }
  }

  /// A row of the launch, which no launch before has had.
  __device__ void consider(uint32_t row, float distance) {
    const Key key = make_key(distance, args.first_row + row);
    if (Nearer{args.ids}(key, worst)) shared.keys[atomicAdd(&shared.count, 1)] = key;
  }

  /// Of four rows of floats; a lane gets the distance of row lane % 4.
  template <uint32_t kReads>
  __device__ float float_distances(const uint32_t (&rows)[kPairs]) const {
    const uint8_t* const from[kPairs] = {row_bytes(rows[0]), row_bytes(rows[1]), row_bytes(rows[2]),
                                         row_bytes(rows[3])};
    const auto sum = [&]<int32_t kElement>() {
      const auto values = [&](uint32_t, uint32_t column) {
        return floats_at<ANN_F32>(query_bytes(), column);
      };
      return args.metric == ANN_METRIC_L2 ? sum_float_pairs<kElement, false, kReads>(from, values, args.dim)
                                          : sum_float_pairs<kElement, true, kReads>(from, values, args.dim);
    };
    const float own = args.element == ANN_F32   ? sum.template operator()<ANN_F32>()
                      : args.element == ANN_F16 ? sum.template operator()<ANN_F16>()
                                                : sum.template operator()<ANN_BF16>();
    return float_distance(args, own, query, own_of(rows));
  }

  /// The lane's of four.
  __device__ uint32_t own_of(const uint32_t (&four)[kPairs]) const {
    const uint32_t own = lane % kPairs;
    return own == 0 ? four[0] : own == 1 ? four[1] : own == 2 ? four[2] : four[3];
  }

  /// Sorts the keys and cuts them to k. All threads.
  __device__ void keep_nearest() {
    const uint32_t count = shared.count;
    sort_keys(shared.keys, count, args.ids);
    const uint32_t kept = min(count, args.k);
    was_cut = true;
    worst = kept == args.k ? shared.keys[kept - 1] : kNoKey;
    if (threadIdx.x == 0) shared.count = kept;
    __syncthreads();
  }

  __device__ void store() {
    if (shared.count == known && !was_cut) return;
    keep_nearest();
    const uint32_t count = shared.count;
    for (uint32_t i = threadIdx.x; i < count; i += kThreads) list()[i] = shared.keys[i];
    if (threadIdx.x != 0) return;
    args.counts[slot()] = count;
    if (args.bounds != nullptr && count == args.k) args.bounds[query] = static_cast<uint32_t>(worst >> 32);
  }
};

}  // namespace exact_search
}  // namespace gannet::cuda
