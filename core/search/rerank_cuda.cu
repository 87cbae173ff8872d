// Exact distances of the rows that a walk found, on the GPU.
//
//   kept       rows of a query that the walk found by codes, k and some more
//   key        distance and row number in 64 bits (metric_cuda.cuh)
//
// A block answers one query: its warps compare four rows at a time (rerank_steps.cuh), then the block sorts
// the keys and writes the first k, or of a batch that lies on the device the answer (answer_steps.cuh).
//
// Bytes a query: kept rows, 26 of 512 bytes at k = 10 and 128 columns of f32: 13 KB beside 65 KB that the
// walk reads. Operations: 3 a column and lane, some 10 for each fold, and a sort of `kept` keys: 15
// levels of 32 keys at k = 10. Up to 32 and 128 keys have kernels of their own, because 16 KB for 2,048 keys
// would leave 14 blocks a multiprocessor where 16 fit, and one warp sorts 32 without a block's barriers. The
// element is chosen as a kernel runs: four rows are 2 KB from memory, beside one branch that all threads take.

#include <cooperative_groups.h>

#include "search/answer_steps.cuh"
#include "search/rerank_steps.cuh"
#include "traverse/shared_sort_cuda.h"

namespace gannet::cuda {
namespace {

namespace cg = cooperative_groups;

constexpr uint32_t kThreads = 128;
constexpr uint32_t kWarps = kThreads / 32;
constexpr uint32_t kBlocksMin = 12;  // a multiprocessor: 40 registers a thread, left alone 56
constexpr uint32_t kFewKeys = 32;
constexpr uint32_t kSomeKeys = 128;

struct Args {
  RerankArgs given;
  AnswerArgs answers;
  int32_t element;  // of the rows
};

template <uint32_t kKeysMax>
struct Rerank {
  struct Shared {
    Key keys[kKeysMax];
  };

  const RerankArgs& args;
  const AnswerArgs& answers;
  const int32_t element;
  Shared& shared;
  cg::thread_block block = cg::this_thread_block();
  uint64_t query = blockIdx.x;
  const uint8_t* values = args.queries + query * args.query_stride;
  uint32_t size = sort_size(args.kept);

  static __device__ uint32_t sort_size(uint32_t kept) {
    uint32_t power = kRerankRows;
    while (power < kept) power *= 2;
    return power;
  }

  __device__ void run() {
    for (uint32_t first = threadIdx.x / 32 * kRerankRows; first < size; first += kWarps * kRerankRows)
      compare(first);
    block.sync();
    sort();
    if (answers.results.ids != nullptr) return write_answer();
    for (uint32_t i = threadIdx.x; i < args.k; i += kThreads) {
      const Key key = shared.keys[i];
      args.out_rows[query * args.k + i] = row_of(key);  // kNoKey gives kNoRow
      args.out_distances[query * args.k + i] = key == kNoKey ? INFINITY : distance_of(key);
    }
  }

  __device__ void write_answer() const {
    if (query == 0 && threadIdx.x == 0 && answers.counters_on_host != nullptr)
      *answers.counters_on_host = *answers.counters;
    const bool usable = answers.usable == nullptr || answers.usable[query] != 0;
    const WriteAnswer<FoundExactly> answer = {answers, {shared.keys}, query, usable};
    for (uint32_t place = threadIdx.x; place < answers.results.k; place += kThreads) answer.write(place);
  }

  /// Makes the keys first ... first + kRerankRows - 1. Candidates stand first.
  __device__ void compare(uint32_t first) {
    uint32_t numbers[kRerankRows];
#pragma unroll
    for (uint32_t i = 0; i < kRerankRows; ++i)
      numbers[i] = first + i < args.kept ? args.candidates[query * args.kept + first + i] : kNoRow;
    Key key = kNoKey;
    if (numbers[0] != kNoRow) key = compare_exact<kRerankRows, 1>(args, element, values, numbers);
    if (lane_number() < kRerankRows) shared.keys[first + lane_number()] = key;
  }

  __device__ void sort() {
    if constexpr (kKeysMax > kFewKeys) {
      sort_shared(shared.keys, size, BlockSorts{});
    } else {
      if (threadIdx.x < 32) sort_shared(shared.keys, size, WarpSorts{});
      block.sync();
    }
  }
};

template <class Step>
__global__ void __launch_bounds__(kThreads, kBlocksMin) rerank(const __grid_constant__ Args args) {
  __shared__ typename Step::Shared shared;
  Step{args.given, args.answers, args.element, shared}.run();
}

}  // namespace

// --- Host ----------------------------------------------------------------------------------------

void start_rerank(const RerankArgs& args, const AnswerArgs& answers, int32_t element, const Stream& stream) {
  const auto kernel = args.kept <= kFewKeys    ? rerank<Rerank<kFewKeys>>
                      : args.kept <= kSomeKeys ? rerank<Rerank<kSomeKeys>>
                                               : rerank<Rerank<kRerankMax>>;
  launch("rerank", kernel, args.count, kThreads, stream, Args{args, answers, element});
}

}  // namespace gannet::cuda
