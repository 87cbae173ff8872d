// GGNN's search on the GPU (section 4): one block of one warp, or of four for long rows, answers one query.
//
// traverse/slack_warp_cuda.cuh has the lists of one warp, traverse/slack_lists_cuda.cuh longer ones and those of four.
// Rows are compared by a function of its own, for every kind of rows and size of teams: inlined, they were 2.6 MB.
//
// Bytes of a step at 24 edges and 128 columns of f32: 96 of edges and 20 new rows, 10 KB; the 70 steps that find .958
// of ten neighbours among a million rows are 750 KB a query, so memory allows 5 M queries/s. Operations of a step, in
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
// The first is always allowed, the second is the most that a plan needs.
constexpr size_t kSharedUsual = 40 << 10;
constexpr size_t kSharedMax = 80 << 10;

/// The small things that a block shares.
struct Shared {
  CagraQuery query;
  uint32_t number;  // of the query
};

/// The row of the bottom that a row of a layer is.
__device__ inline uint32_t bottom_row(const GgnnArgs& args, uint32_t level, uint32_t row) {
  for (uint32_t at = level; at != 0; --at) row = __ldg(args.layers.upper[at - 1].below + row);
  return row;
}

/// The distances of rows as numbers, by all threads of the block.
__device__ __noinline__ void compare_apart(RowKind kind, const CagraArgs& args, const CagraQuery& query,
                                           const uint32_t* rows, uint32_t count, uint32_t* numbers) {
  const auto take = [numbers](uint32_t place, uint32_t number) { numbers[place] = number; };
  switch (kind) {
    case RowKind::kBytes:
      return compare_rows<RowKind::kBytes>(args, query, rows, count, take);
    case RowKind::kF32:
      return compare_rows<RowKind::kF32>(args, query, rows, count, take);
    case RowKind::kF16:
      return compare_rows<RowKind::kF16>(args, query, rows, count, take);
    default:
      return compare_rows<RowKind::kBf16>(args, query, rows, count, take);
  }
}

/// Every row may be an answer.
struct All {
  __device__ bool operator()(uint32_t, uint32_t) const { return true; }
};

/// Which rows of a layer may be answered: those that are no removed row of the bottom.
struct Answerable {
  const GgnnArgs& args;
  uint32_t level;

  __device__ bool operator()(uint32_t row, uint32_t) const {
    return args.walk.removed.empty() || !args.walk.removed.holds(bottom_row(args, level, row));
  }
};

/// `kGeneral`: the walk comes down through the layers, or rows are left out.
template <class Lists, bool kGeneral>
struct GgnnBlock {
  const GgnnArgs& args;
  Shared& shared;
  Lists& lists;
  uint32_t* bottom;  // [step] shared, of a walk that descends
  uint32_t distances = 0;
  uint32_t expansions = 0;
  uint32_t level = 0;  // of the walk; 0: the bottom

  /// Algorithm 1, query after query.
  __device__ void run() {
    const uint32_t step = lists.step();
    uint32_t number = blockIdx.x;
    while (number < args.walk.count) {
      begin(number);
      if constexpr (kGeneral) level = args.descends != 0 ? args.layers.count : 0;
      for (uint32_t first = 0; first < args.entry_count; first += step)
        start(first, min(step, args.entry_count - first));
      if (kGeneral && level != 0) {
        while (level != 0) descend();
      } else {
        walk(args.walk.graph.targets);
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
      const CagraQuery query = read_query(args.walk, args.kind == RowKind::kBytes, number);
      if (lane_number() == 0) shared.query = query;
    }
    __syncthreads();
  }

  /// Of the top layer all rows, which are the entry points too.
  __device__ void start(uint32_t first, uint32_t length) {
    const auto rows = [&](uint32_t i) {
      if constexpr (kGeneral) {
        if (level != 0) return shown(first + i);
      }
      return __ldg(args.entries + first + i);
    };
    distances += lists.fetch(length, rows, comparison(), answerable());
  }

  __device__ auto answerable() const {
    if constexpr (kGeneral)
      return Answerable{args, level};
    else
      return All();
  }

  /// A row of this layer, kNoRow where it is hidden. On the bottom edges lead past hidden rows, and so do entries.
  __device__ uint32_t shown(uint32_t row) const {
    if (args.walk.hidden.empty() || row == kNoRow) return row;
    return args.walk.hidden.holds(bottom_row(args, level, row)) ? kNoRow : row;
  }

  /// Goes on in the layer below.
  __device__ void descend() {
    lists.transfer(args.layers.upper[--level].below);
    walk(level != 0 ? args.layers.upper[level - 1].edges : args.walk.graph.targets);
  }

  __device__ void walk(const uint32_t* table) {
    const uint32_t stride = args.walk.graph.stride;
    const auto edges = [&](uint32_t from) { return table + uint64_t{from} * stride; };
    for (uint32_t iteration = 0; iteration < args.iterations_max; ++iteration) {
      const uint32_t parent = lists.pop();
      if (parent == kNoRow) break;
      ++expansions;
      if constexpr (kGeneral) {
        const auto rows = [&](uint32_t i) {
          const uint32_t row = __ldg(edges(parent) + i);
          return level != 0 ? shown(row) : row;
        };
        distances += lists.fetch(stride, rows, comparison(), answerable());
      } else {
        distances += lists.expand(parent, stride, edges, comparison(), answerable());
      }
    }
  }

  /// The rows of the bottom that rows of this layer are.
  __device__ const uint32_t* bottom_rows(const uint32_t* found, uint32_t count) {
    if constexpr (kGeneral) {
      if (level == 0) return found;
      for (uint32_t i = threadIdx.x; i < count; i += blockDim.x) {
        bottom[i] = bottom_row(args, level, found[i]);
      }
      __syncthreads();
      return bottom;
    }
    return found;
  }

  /// Asks for all rows at once, of which teams then take eight at a time: alone on a multiprocessor a query would wait
  /// for memory as often.
  __device__ void request(const uint32_t* found, uint32_t count) const {
    for (uint32_t i = threadIdx.x; i < count; i += blockDim.x) {
      const uint8_t* row = args.walk.rows + uint64_t{found[i]} * args.walk.stride;
      for (uint32_t byte = 0; byte < args.walk.stride; byte += kLineBytes)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(row + byte));
    }
  }

  __device__ auto comparison() {
    return [this](const uint32_t* found, uint32_t count, uint32_t* numbers) {
      const uint32_t* const rows = bottom_rows(found, count);
      if (args.kind != RowKind::kBytes) request(rows, count);
      compare_apart(args.kind, args.walk, shared.query, rows, count, numbers);
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

template <uint32_t kWords, bool kGeneral = false>
__global__ void __launch_bounds__(kWords == 0 ? kLongThreads : kThreads, kWords == 0 ? 1 : kBlocksAtOnce)
    ggnn(const __grid_constant__ GgnnArgs args) {
  __shared__ Shared shared;
  extern __shared__ uint4 memory[];
  uint32_t* const bottom = reinterpret_cast<uint32_t*>(memory);
  with_slack_lists<kWords>(
      args.shape, args.square, args.slack, args.step, kGeneral ? bottom + args.step : bottom,
      [&]<class Lists>(Lists& lists) { GgnnBlock<Lists, kGeneral>{args, shared, lists, bottom}.run(); });
}

/// Walks that descend, or that leave rows out, have the lists of a block alone: with a layer to ask for everywhere
/// those that do not took a quarter longer, with a set of rows 3 to 6 % for 100 answers.
void (*kernel_of(uint32_t words, bool general))(GgnnArgs) {
  if (general) return ggnn<0, true>;
  return words == 0 ? ggnn<0> : words == 1 ? ggnn<1> : ggnn<2>;
}

}  // namespace

// --- Host ----------------------------------------------------------------------------------------

void start_ggnn(int32_t device, RowKind kind, const GgnnPlan& plan, GgnnArgs args, const Stream& stream) {
  args.walk.kept = plan.kept;
  args.walk.team = plan.team;
  args.walk.stored = plan.stored ? 1 : 0;
  args.shape = plan.shape;
  args.kind = kind;
  args.square = plan.stored               ? SquareKind::kOrderedFloat
                : kind == RowKind::kBytes ? SquareKind::kInteger
                                          : SquareKind::kFloatBits;
  args.slack = plan.slack;
  args.iterations_max = plan.iterations_max;
  // A block brings its best rows to the next layer as those of one step.
  args.step = ggnn_step(std::max(args.walk.graph.stride, plan.descends ? plan.shape.best : 0));
  const bool by_one_warp = args.walk.stride < kLongRowBytes;
  const uint32_t threads = by_one_warp ? kThreads : kLongThreads;
  args.descends = plan.descends ? 1 : 0;
  const bool general = plan.descends || !args.walk.removed.empty();
  const uint32_t words = by_one_warp && !general ? slack_words(plan.shape) : 0;
  void (*const function)(GgnnArgs) = kernel_of(words, general);
  uint32_t bytes = slack_bytes(plan.shape, args.step, words);
  if (general) bytes += args.step * static_cast<uint32_t>(sizeof(uint32_t));
  // Always the most, so that searches on other threads do not take it away again.
  if (bytes > kSharedUsual) allow_shared(function, kSharedMax);
  const uint32_t blocks = std::min(args.walk.count, blocks_at_once(device, function, threads, bytes));
  launch("ggnn", function, blocks, threads, stream, args, bytes);
}

}  // namespace gannet::cuda
