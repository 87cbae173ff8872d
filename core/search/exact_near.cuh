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

#include "search/exact_filter.cuh"
#include "search/exact_sums.cuh"

namespace gannet::cuda {
namespace exact_search {

template <bool kIsInteger>
struct NearSums : QueryList<kMergeThreads> {
  using List = QueryList<kMergeThreads>;
  static constexpr uint32_t kWords = 8;               // of a thread in a piece
  static constexpr uint32_t kQueued = kThreads * 32;  // rows at most

  struct Shared : List::Shared {
    uint16_t queue[kQueued];
    uint32_t ends[kWarps];  // of what each warp has queued
  };

  Shared& queues;

  __device__ NearSums(const ExactArgs& args, Shared& shared) : List(args, shared), queues(shared) {}

  __device__ void run() {
    load();
    for (uint32_t word = 0; word < args.mark_words; word += kThreads * kWords) {
      uint32_t marks[kWords];
      const uint32_t marked = read_marks(word, marks);
      if (threadIdx.x == 0 && marked != 0) atomicAdd(args.care.marked, marked);
      if (marked <= kQueued) {
        if (marked != 0) sum_queued(word * 32, queue_rows(marks, 0, kWords));
        continue;
      }
#pragma unroll
      for (uint32_t i = 0; i < kWords; ++i) sum_queued(word * 32, queue_rows(marks, i, i + 1));
    }
    store();
  }

 private:
  __device__ void sum_queued(uint32_t first_row, uint32_t queued) {
    sum_all(queued, kPairs, [&](uint32_t first) {
      const auto row = [&](uint32_t i) { return first_row + queues.queue[min(first + i, queued - 1)]; };
      const uint32_t rows[kPairs] = {row(0), row(1), row(2), row(3)};
      const float distance = kIsInteger ? byte_distances(rows) : float_distances<1>(rows);
      if (lane < kPairs && first + lane < queued) consider(own_of(rows), distance);
    });
  }

  __device__ float byte_distances(const uint32_t (&rows)[kPairs]) const {
    const uint32_t sum = args.element == ANN_I8 ? sum_words<true>(rows) : sum_words<false>(rows);
    return byte_distance(args, sum, query, own_of(rows));
  }

  /// A lane gets the sum of row lane % 4.
  template <bool kSigned>
  __device__ uint32_t sum_words(const uint32_t (&rows)[kPairs]) const {
    const auto words = [](const uint8_t* bytes) { return reinterpret_cast<const uint32_t*>(bytes); };
    const uint32_t* values = words(query_bytes());
    const uint32_t* const from[kPairs] = {words(row_bytes(rows[0])), words(row_bytes(rows[1])),
                                          words(row_bytes(rows[2])), words(row_bytes(rows[3]))};
    uint32_t sums[kPairs] = {};
    for (uint32_t word = lane; word < args.row_stride / 4; word += 32) {
      const uint32_t value = values[word];
#pragma unroll
      for (uint32_t i = 0; i < kPairs; ++i) sums[i] = add_products<kSigned>(from[i][word], value, sums[i]);
    }
#pragma unroll
    for (uint32_t i = 0; i < kPairs; ++i) sums[i] = __reduce_add_sync(kAllLanes, sums[i]);
    return own_of(sums);
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
    if (lane == 0) queues.ends[warp] = own;
    __syncthreads();
    uint32_t all = 0;
    for (uint32_t i = 0; i < kWarps; ++i) all += queues.ends[i];
    return all;
  }

  /// Queues the rows of some words of every thread; returns how many they are. Their order is of no account.
  __device__ uint32_t queue_rows(const uint32_t (&marks)[kWords], uint32_t from, uint32_t until) {
    uint32_t own = 0;
#pragma unroll
    for (uint32_t i = 0; i < kWords; ++i) own += i >= from && i < until ? __popc(marks[i]) : 0;
    uint32_t to = own;  // the end of this lane's
    for (uint32_t step = 1; step < 32; step *= 2) {
      const uint32_t before = __shfl_up_sync(kAllLanes, to, step);
      if (lane >= step) to += before;
    }
    __syncthreads();  // queue and ends have been read
    if (lane == 31) queues.ends[warp] = to;
    __syncthreads();
    uint32_t all = 0;
    for (uint32_t i = 0; i < kWarps; ++i) {
      if (i < warp) to += queues.ends[i];
      all += queues.ends[i];
    }
    to -= own;
#pragma unroll
    for (uint32_t i = 0; i < kWords; ++i) {
      if (i < from || i >= until) continue;
      for (uint32_t left = marks[i]; left != 0; left &= left - 1)
        queues.queue[to++] = static_cast<uint16_t>((i * kThreads + threadIdx.x) * 32 +
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
};

}  // namespace exact_search
}  // namespace gannet::cuda
