// GGNN's search on the GPU (section 4): one block of one warp, or of four for long rows, answers one query.
//
// traverse/slack_lists_cuda.cuh has the lists, in shared memory, and what a step does with them.
//
// Bytes of a step at 24 edges and 128 columns of f32: 96 of edges, some 12 new rows, 6 KB; 100 steps are 600 KB a
// query. Operations of a step: 12 rows of 4 loads of 16 bytes a lane and some 20 operations each; 64 keys and up
// to 100 rows of the ring against a proposal, 250; a sort of 32 keys in 15 exchanges; three pieces of a merge, 15
// operations each.

#include <algorithm>

#include "search/ggnn_cuda.h"

#include "search/cagra_steps.cuh"
#include "traverse/slack_lists_cuda.cuh"

namespace gannet::cuda {
namespace {

constexpr uint32_t kThreads = 32;
constexpr uint32_t kLongThreads = 128;
constexpr uint32_t kLongRowBytes = 2048;  // from which four warps compare
// The first is always allowed, the second what any plan may need.
constexpr size_t kSharedUsual = 40 << 10;
constexpr size_t kSharedMax = 80 << 10;

/// The small things that a block shares.
struct Shared {
  CagraQuery query;
  SlackState lists;
  uint32_t number;  // of the query
  uint32_t distances;
  uint32_t expansions;
};

template <RowKind kKind>
struct GgnnBlock {
  const GgnnArgs& args;
  Shared& shared;
  SlackLists<kKind == RowKind::kBytes> lists;

  __device__ GgnnBlock(const GgnnArgs& given, Shared& block_shared, uint8_t* memory)
      : args(given),
        shared(block_shared),
        lists(given.shape, given.square, given.tau, given.nearest, block_shared.lists,
              ggnn_step(given.walk.graph.stride), memory) {}

  /// Algorithm 1, query after query.
  __device__ void run() {
    if (threadIdx.x == 0) shared.distances = shared.expansions = 0;
    const uint32_t step = lists.layout.step;
    uint32_t number = blockIdx.x;
    while (number < args.walk.count) {
      begin(number);
      for (uint32_t first = 0; first < args.entry_count; first += step)
        fetch(args.entries + first, min(step, args.entry_count - first));
      for (uint32_t iteration = 0; iteration < args.iterations_max && lists.pop(); ++iteration) {
        if (threadIdx.x == 0) ++shared.expansions;
        fetch(args.walk.graph.fixed_row(lists.state.parent), args.walk.graph.stride);
      }
      write_found(args.walk, number, lists.best, lists.state.best_size);
      number = next_query();
    }
    if (threadIdx.x != 0) return;
    atomicAdd(&args.walk.counters->distances, static_cast<unsigned long long>(shared.distances));
    atomicAdd(&args.walk.counters->expansions, static_cast<unsigned long long>(shared.expansions));
  }

 private:
  __device__ uint32_t next_query() {
    __syncthreads();
    if (threadIdx.x == 0) shared.number = gridDim.x + atomicAdd(&args.walk.counters->queue, 1u);
    __syncthreads();
    return shared.number;
  }

  __device__ void begin(uint32_t number) {
    lists.begin();
    if (threadIdx.x < kWarp) {
      const CagraQuery query = read_query(args.walk, kKind == RowKind::kBytes, number);
      if (lane_number() == 0) shared.query = query;
    }
    __syncthreads();
  }

  /// Algorithm 2: the rows that the cache does not know are compared, and those within the bound enter it.
  __device__ void fetch(const uint32_t* rows, uint32_t length) {
    for (uint32_t i = threadIdx.x; i < length; i += blockDim.x) {
      const uint32_t row = __ldg(rows + i);
      if (row != kNoRow && !lists.knows(row)) lists.propose(row);
    }
    __syncthreads();
    const float bound = lists.state.bound;
    compare_rows<kKind>(args.walk, shared.query, lists.proposals, lists.state.count,
                        [&](uint32_t place, uint32_t number) {
                          if (lists.square(number) <= bound) lists.survive(number, lists.proposals[place]);
                        });
    __syncthreads();
    const uint32_t survivors = lists.state.survivors;
    if (survivors != 0) lists.admit(survivors);
    __syncthreads();
    if (threadIdx.x == 0) {
      shared.distances += lists.state.count;
      lists.settle();
    }
    __syncthreads();
  }
};

template <RowKind kKind>
__global__ void __launch_bounds__(kLongThreads) ggnn(const __grid_constant__ GgnnArgs args) {
  __shared__ Shared shared;
  extern __shared__ uint4 memory[];
  GgnnBlock<kKind>(args, shared, reinterpret_cast<uint8_t*>(memory)).run();
}

}  // namespace

// --- Host ----------------------------------------------------------------------------------------

void start_ggnn(int32_t device, RowKind kind, const GgnnPlan& plan, GgnnArgs args, const Stream& stream) {
  args.walk.kept = plan.kept;
  args.walk.team = plan.team;
  args.walk.stored = plan.stored ? 1 : 0;
  args.shape = plan.shape;
  args.square = plan.stored               ? SquareKind::kOrderedFloat
                : kind == RowKind::kBytes ? SquareKind::kInteger
                                          : SquareKind::kFloatBits;
  args.tau = plan.tau;
  args.nearest = plan.nearest;
  args.iterations_max = plan.iterations_max;
  void (*const function)(GgnnArgs) = for_row_kind(kind, [&]<RowKind kKind>() { return ggnn<kKind>; });
  const uint32_t threads = args.walk.stride >= kLongRowBytes ? kLongThreads : kThreads;
  const uint32_t bytes = SlackLayout(plan.shape, ggnn_step(args.walk.graph.stride)).bytes();
  // Always the most, so that searches on other threads do not take it away again.
  if (bytes > kSharedUsual) allow_shared(function, kSharedMax);
  const uint32_t blocks = std::min(args.walk.count, blocks_at_once(device, function, threads, bytes));
  launch("ggnn", function, blocks, threads, stream, args, bytes);
}

}  // namespace gannet::cuda
