// Exact search on the GPU: the pairs that the filter has marked (exact_filter.cuh), summed in the CPU's lanes and
// order.
//
//   marks    of a query: a bit of each row of the launch, where it may be near
//   piece    65,536 rows, of whose marks a thread has eight words
//   queue    the marked rows of a piece, or of an eighth where they are many, in shared memory
//   list     of a query: the k nearest rows so far, ascending, in device memory between launches
//
// A block has a query. Marks of rows that are not there or removed are dropped; the others are queued and summed by a
// warp four at a time, whose reads are under way together. Integers are summed once more: the filter keeps no sums. Of
// random rows each launch marks some 3 k of a query, and launches grow fourfold: 260 of 1,000,000 for ten answers.
#pragma once

#include "distance/float_pairs_cuda.cuh"
#include "search/exact_filter.cuh"

namespace gannet::cuda {
namespace exact_search {

template <bool kIsInteger>
struct NearSums {
  using Args = ExactArgs;
  static constexpr uint32_t kThreads = kMergeThreads;
  static constexpr uint32_t kWarps = kThreads / 32;
  static constexpr uint32_t kPairs = 4;                // that a warp sums at once
  static constexpr uint32_t kRound = kWarps * kPairs;  // and a block
  static constexpr uint32_t kWords = 8;                // of a thread in a piece
  static constexpr uint32_t kQueued = kThreads * 32;   // rows at most

  struct Shared {
    Key keys[kSortKeys];  // the best so far, and candidates behind them
    uint16_t queue[kQueued];
    uint32_t ends[kWarps];  // of what each warp has queued
    uint32_t count;         // of the keys
  };

  const ExactArgs& args;
  Shared& shared;
  uint32_t lane = threadIdx.x % 32;
  uint32_t warp = threadIdx.x / 32;
  uint32_t query = blockIdx.x;
  Key worst = kNoKey;  // k-th best; kNoKey: there are fewer
  uint32_t known = 0;  // keys of the list
  bool was_cut = false;

  __device__ void run() {
    load();
    for (uint32_t word = 0; word < args.mark_words; word += kThreads * kWords) {
      uint32_t marks[kWords];
      const uint32_t marked = read_marks(word, marks);
      if (threadIdx.x == 0 && marked != 0) atomicAdd(args.care.marked, marked);
      if (marked <= kQueued) {
        if (marked != 0) sum_queued(word * 32, queue(marks, 0, kWords));
        continue;
      }
#pragma unroll
      for (uint32_t i = 0; i < kWords; ++i) sum_queued(word * 32, queue(marks, i, i + 1));
    }
    store();
  }

 private:
  __device__ Key* list() const { return args.lists + uint64_t{query} * 2 * args.list_half; }

  __device__ void load() {
    known = args.counts[query];
    for (uint32_t i = threadIdx.x; i < known; i += kThreads) shared.keys[i] = list()[i];
    if (threadIdx.x == 0) shared.count = known;
    __syncthreads();
    if (known == args.k) worst = shared.keys[known - 1];
  }

  /// The words of a piece, of which a thread's are a block apart; returns how many rows all threads have marked.
  __device__ uint32_t read_marks(uint32_t first_word, uint32_t (&marks)[kWords]) {
    uint32_t own = 0;
#pragma unroll
    for (uint32_t i = 0; i < kWords; ++i) {
      const uint32_t word = first_word + i * kThreads + threadIdx.x;
      marks[i] = word < args.mark_words ? args.marks[uint64_t{query} * args.mark_words + word] : 0;
    }
#pragma unroll
    for (uint32_t i = 0; i < kWords; ++i) {
      marks[i] = without_others(marks[i], (first_word + i * kThreads + threadIdx.x) * 32);
      own += __popc(marks[i]);
    }
    own = __reduce_add_sync(kAllLanes, own);
    __syncthreads();  // the ends have been read
    if (lane == 0) shared.ends[warp] = own;
    __syncthreads();
    uint32_t all = 0;
    for (uint32_t i = 0; i < kWarps; ++i) all += shared.ends[i];
    return all;
  }

  /// Queues the rows of some words of every thread; returns how many they are. Their order is of no account.
  __device__ uint32_t queue(const uint32_t (&marks)[kWords], uint32_t from, uint32_t until) {
    uint32_t own = 0;
#pragma unroll
    for (uint32_t i = 0; i < kWords; ++i) own += i >= from && i < until ? __popc(marks[i]) : 0;
    uint32_t to = own;  // the end of this lane's
    for (uint32_t step = 1; step < 32; step *= 2) {
      const uint32_t before = __shfl_up_sync(kAllLanes, to, step);
      if (lane >= step) to += before;
    }
    __syncthreads();  // queue and ends have been read
    if (lane == 31) shared.ends[warp] = to;
    __syncthreads();
    uint32_t all = 0;
    for (uint32_t i = 0; i < kWarps; ++i) {
      if (i < warp) to += shared.ends[i];
      all += shared.ends[i];
    }
    to -= own;
#pragma unroll
    for (uint32_t i = 0; i < kWords; ++i) {
      if (i < from || i >= until) continue;
      for (uint32_t left = marks[i]; left != 0; left &= left - 1)
        shared.queue[to++] = static_cast<uint16_t>((i * kThreads + threadIdx.x) * 32 +
                                                   row_of_mark(__ffs(static_cast<int>(left)) - 1));
    }
    __syncthreads();
    return all;
  }

  /// Less the marks of rows that are not there or no candidates.
  __device__ uint32_t without_others(uint32_t marks, uint32_t first_row) const {
    if (args.removed.words == nullptr && first_row + 32 <= args.row_count) return marks;
    uint32_t kept = 0;
    for (uint32_t left = marks; left != 0; left &= left - 1) {
      const uint32_t bit = __ffs(static_cast<int>(left)) - 1;
      const uint32_t row = first_row + row_of_mark(bit);
      if (row < args.row_count && !args.removed.holds(args.first_row + row)) kept |= 1u << bit;
    }
    return kept;
  }

  /// Between two looks at the keys there are as many rounds as have room.
  __device__ void sum_queued(uint32_t first_row, uint32_t queued) {
    for (uint32_t first = 0; first < queued;) {
      const uint32_t count = shared.count;
      __syncthreads();
      if (count + kRound > 2 * args.list_half) {
        keep_nearest();
        continue;
      }
      const uint32_t rounds = (2 * args.list_half - count) / kRound;
      for (uint32_t round = 0; round < rounds && first < queued; ++round, first += kRound)
        sum_four(first_row, first + warp * kPairs, queued);
      __syncthreads();
    }
  }

  __device__ void sum_four(uint32_t first_row, uint32_t first, uint32_t queued) {
    if (first >= queued) return;
    const auto row = [&](uint32_t i) { return first_row + shared.queue[min(first + i, queued - 1)]; };
    const uint4 rows = {row(0), row(1), row(2), row(3)};
    const float4 distances = kIsInteger ? distances_of_bytes(rows) : distances_of_floats(rows);
    if (lane >= kPairs || first + lane >= queued) return;
    const float distance = lane == 0   ? distances.x
                           : lane == 1 ? distances.y
                           : lane == 2 ? distances.z
                                       : distances.w;
    const Key key = make_key(distance, args.first_row + row(lane));
    if (Nearer{args.ids}(key, worst)) shared.keys[atomicAdd(&shared.count, 1)] = key;
  }

  // Every lane gets all.
  __device__ float4 distances_of_floats(const uint4& rows) const {
    const auto row = [&](uint32_t number) { return args.rows + uint64_t{number} * args.row_stride; };
    const float* values = reinterpret_cast<const float*>(args.queries + uint64_t{query} * args.query_stride);
    const uint8_t* const from[kPairs] = {row(rows.x), row(rows.y), row(rows.z), row(rows.w)};
    const auto query_value = [&](uint32_t, uint32_t column) { return values[column]; };
    float sums[kPairs];
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
    return {float_distance(args, sums[0], query, rows.x), float_distance(args, sums[1], query, rows.y),
            float_distance(args, sums[2], query, rows.z), float_distance(args, sums[3], query, rows.w)};
  }

  __device__ float4 distances_of_bytes(const uint4& rows) const {
    return args.element == ANN_I8 ? distances_by_words<true>(rows) : distances_by_words<false>(rows);
  }

  template <bool kSigned>
  __device__ float4 distances_by_words(const uint4& rows) const {
    const auto words = [&](uint32_t number) {
      return reinterpret_cast<const uint32_t*>(args.rows + uint64_t{number} * args.row_stride);
    };
    const uint32_t* values =
        reinterpret_cast<const uint32_t*>(args.queries + uint64_t{query} * args.query_stride);
    const uint32_t* const from[kPairs] = {words(rows.x), words(rows.y), words(rows.z), words(rows.w)};
    uint32_t sums[kPairs] = {};
    for (uint32_t word = lane; word < args.row_stride / 4; word += 32) {
      const uint32_t value = values[word];
#pragma unroll
      for (uint32_t i = 0; i < kPairs; ++i) sums[i] = add_products<kSigned>(from[i][word], value, sums[i]);
    }
#pragma unroll
    for (uint32_t i = 0; i < kPairs; ++i) sums[i] = __reduce_add_sync(kAllLanes, sums[i]);
    return {byte_distance(args, sums[0], query, rows.x), byte_distance(args, sums[1], query, rows.y),
            byte_distance(args, sums[2], query, rows.z), byte_distance(args, sums[3], query, rows.w)};
  }

  /// Sorts the keys and cuts them to k. All threads.
  __device__ void keep_nearest() {
    const uint32_t count = shared.count;
    uint32_t width = 1;
    while (width < count) width *= 2;
    for (uint32_t i = count + threadIdx.x; i < width; i += kThreads) shared.keys[i] = kNoKey;
    __syncthreads();
    sort_shared(shared.keys, width, BlockSorts{}, 1, Nearer{args.ids});
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
    args.counts[query] = count;
    if (count == args.k) args.bounds[query] = static_cast<uint32_t>(worst >> 32);
  }
};

}  // namespace exact_search
}  // namespace gannet::cuda
