// GGNN's search on the GPU (section 4): one block of one warp, or of four for long rows, answers one query.
//
// traverse/slack_warp_cuda.cuh has the lists of one warp, traverse/slack_lists_cuda.cuh longer ones and those of four.
//
// Bytes of a step at 24 edges and 128 columns of f32: 96 of edges and 20 new rows, 10 KB; the 70 steps that find .958 of
// ten neighbours among a million rows are 750 KB a query, so memory allows 5 M queries/s. Operations of a step, in
// instructions of a warp: 20 rows of 40 each to compare, 120 to look up, 100 to admit.

#include <algorithm>

#include "search/ggnn_cuda.h"

#include "search/cagra_steps.cuh"
#include "traverse/slack_warp_cuda.cuh"

namespace gannet::cuda {
namespace {

constexpr uint32_t kThreads = 32;
constexpr uint32_t kBlocksAtOnce = 32;  // of a multiprocessor, which has no more: 64 registers a thread
constexpr uint32_t kLongThreads = 128;
constexpr uint32_t kLongRowBytes = 2048;  // from which four warps compare
constexpr uint32_t kLineBytes = 128;      // of the second cache
// The first is always allowed, the second what any plan may need.
constexpr size_t kSharedUsual = 40 << 10;
constexpr size_t kSharedMax = 80 << 10;

/// The small things that a block shares.
struct Shared {
  CagraQuery query;
  uint32_t number;  // of the query
};

/// Every row may be an answer.
struct All {
  __device__ bool operator()(uint32_t, uint32_t) const { return true; }
};

template <RowKind kKind, class Lists>
struct GgnnBlock {
  const GgnnArgs& args;
  Shared& shared;
  Lists& lists;
  uint32_t distances = 0;
  uint32_t expansions = 0;

  /// Algorithm 1, query after query.
  __device__ void run() {
    const uint32_t step = lists.step();
    uint32_t number = blockIdx.x;
    while (number < args.walk.count) {
      begin(number);
      for (uint32_t first = 0; first < args.entry_count; first += step)
        fetch(args.entries + first, min(step, args.entry_count - first));
      for (uint32_t iteration = 0; iteration < args.iterations_max; ++iteration) {
        const uint32_t parent = lists.pop();
        if (parent == kNoRow) break;
        ++expansions;
        expand(parent);
      }
      write(number);
      number = next_query();
    }
    if (threadIdx.x != 0) return;
    atomicAdd(&args.walk.counters->distances, static_cast<unsigned long long>(distances));
    atomicAdd(&args.walk.counters->expansions, static_cast<unsigned long long>(expansions));
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

  __device__ void fetch(const uint32_t* rows, uint32_t length) {
    distances += lists.fetch(length, [&](uint32_t i) { return __ldg(rows + i); }, comparison(), All());
  }

  __device__ void expand(uint32_t parent) {
    const auto edges = [&](uint32_t from) { return args.walk.graph.fixed_row(from); };
    distances += lists.expand(parent, args.walk.graph.stride, edges, comparison(), All());
  }

  /// Asks for all rows at once, of which teams then take eight at a time: alone on a multiprocessor a query would wait for
  /// memory as often.
  __device__ void request(const uint32_t* found, uint32_t count) const {
    for (uint32_t i = threadIdx.x; i < count; i += blockDim.x) {
      const uint8_t* row = args.walk.rows + uint64_t{found[i]} * args.walk.stride;
      for (uint32_t byte = 0; byte < args.walk.stride; byte += kLineBytes)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(row + byte));
    }
  }

  __device__ auto comparison() const {
    return [this](const uint32_t* found, uint32_t count, const auto& take) {
      if constexpr (kKind != RowKind::kBytes) request(found, count);
      compare_rows<kKind>(args.walk, shared.query, found, count, take);
    };
  }

  __device__ void write(uint32_t number) {
    const uint64_t first = uint64_t{number} * args.walk.kept;
    lists.each_best(args.walk.kept, [&](uint32_t place, uint64_t key) {
      const bool is_row = key != RowKey::kNone;
      args.walk.out_rows[first + place] = is_row ? RowKey::row(key) : kNoRow;
      if (args.walk.out_distances != nullptr)
        args.walk.out_distances[first + place] = is_row ? __uint2float_rn(RowKey::distance(key)) : INFINITY;
    });
  }
};

template <RowKind kKind, uint32_t kWords>
__global__ void __launch_bounds__(kWords == 0 ? kLongThreads : kThreads, kWords == 0 ? 1 : kBlocksAtOnce)
    ggnn(const __grid_constant__ GgnnArgs args) {
  __shared__ Shared shared;
  extern __shared__ uint4 memory[];
  with_slack_lists<kKind == RowKind::kBytes, kWords>(
      args.shape, args.square, args.tau, args.nearest, ggnn_step(args.walk.graph.stride), memory,
      [&]<class Lists>(Lists& lists) { GgnnBlock<kKind, Lists>{args, shared, lists}.run(); });
}

void (*kernel_of(RowKind kind, uint32_t words))(GgnnArgs) {
  return for_row_kind(kind, [words]<RowKind kKind>() {
    return words == 0 ? ggnn<kKind, 0> : words == 1 ? ggnn<kKind, 1> : ggnn<kKind, 2>;
  });
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
  const bool by_one_warp = args.walk.stride < kLongRowBytes;
  const uint32_t threads = by_one_warp ? kThreads : kLongThreads;
  const uint32_t words = by_one_warp ? slack_words(plan.shape) : 0;
  void (*const function)(GgnnArgs) = kernel_of(kind, words);
  const uint32_t bytes = slack_bytes(plan.shape, ggnn_step(args.walk.graph.stride), words);
  // Always the most, so that searches on other threads do not take it away again.
  if (bytes > kSharedUsual) allow_shared(function, kSharedMax);
  const uint32_t blocks = std::min(args.walk.count, blocks_at_once(device, function, threads, bytes));
  launch("ggnn", function, blocks, threads, stream, args, bytes);
}

}  // namespace gannet::cuda
