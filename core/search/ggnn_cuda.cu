// GGNN's search on the GPU (section 4): one block of one warp, or of four for long rows, answers one query.
//
//   best, queue, visited  the lists of traverse/slack_cache.h, in shared memory; the queue is a sorted ring, of which
//                         the head moves on when a row is expanded (figure 2), visited a ring of rows
//   proposals             the ends of an edge list, of which those that the cache knows are dropped
//   fresh                 keys of those within the bound, sorted, then merged into best and queue (Algorithm 2)
//
// Each thread has a proposal and compares it with all rows of the cache, which it reads four at a time, the same
// four as its neighbours, so that a warp's 32 proposals pass the cache once. Of the ring only what a query has
// expanded so far is read. The paper has a thread for each row of the cache and takes proposal after proposal,
// which reads a cache of 448 rows in full for each of 24.
//
// A merge finds where each fresh key goes by binary search and moves rows of a list behind it, from the end on in
// pieces as long as the block, each read before it is written: the paper's parallel insertion for all keys of a
// step at once.
//
// Bytes of a step at 24 edges and 128 columns of f32: 96 of edges, some 12 new rows, 6 KB; 100 steps are 600 KB a
// query. Operations of a step: 12 rows of 4 loads of 16 bytes a lane and some 20 operations each; 64 keys and up
// to 100 rows of the ring against a proposal, 250; a sort of 32 keys in 15 exchanges; three pieces of a merge, 15
// operations each.
//
// Equal to the twin bit for bit: keys have an order of their own, and the bound is drawn by one lane from the same
// floats in the same order of operations, between steps.

#include <algorithm>

#include "search/ggnn_cuda.h"

#include "search/cagra_steps.cuh"

namespace gannet::cuda {
namespace {

constexpr uint32_t kThreads = 32;
constexpr uint32_t kLongThreads = 128;
constexpr uint32_t kLongRowBytes = 2048;  // from which four warps compare
// The first is always allowed, the second what any plan may need.
constexpr size_t kSharedUsual = 40 << 10;
constexpr size_t kSharedMax = 80 << 10;

/// What a block shares, in this order.
struct Layout {
  uint32_t best;     // keys, a multiple of 2
  uint32_t queue;    // keys, likewise
  uint32_t step;     // proposals, a power of two
  uint32_t visited;  // rows, a multiple of 4

  __host__ __device__ Layout(const SlackShape& shape, uint32_t degree)
      : best((shape.best + 1) / 2 * 2),
        queue((shape.queue + 1) / 2 * 2),
        step(ggnn_step(degree)),
        visited((shape.visited + 3) / 4 * 4) {}

  __host__ __device__ uint32_t queue_at() const { return best * 8; }
  __host__ __device__ uint32_t fresh_at() const { return queue_at() + queue * 8; }
  __host__ __device__ uint32_t visited_at() const { return fresh_at() + step * 8; }
  __host__ __device__ uint32_t proposals_at() const { return visited_at() + visited * 4; }
  __host__ __device__ uint32_t bytes() const { return proposals_at() + step * 4; }
};

/// The small things that a block shares.
struct Shared {
  CagraQuery query;
  float bound;  // squared
  uint32_t best_size;
  uint32_t queue_head;  // place of the nearest row
  uint32_t queue_size;
  uint32_t expanded;
  uint32_t count;      // of proposals that are not known
  uint32_t survivors;  // of them, within the bound
  uint32_t parent;
  uint32_t number;  // of the query
  uint32_t distances;
  uint32_t expansions;
};

/// A sorted list of which place i lies `first` places on, round about.
struct Ring {
  uint64_t* keys;  // [capacity]
  uint32_t capacity;
  uint32_t first;

  __device__ uint64_t& at(uint32_t place) const {
    const uint32_t i = first + place;
    return keys[i < capacity ? i : i - capacity];
  }
};

/// Keys of a sorted list that are smaller than a key.
template <class List>
__device__ uint32_t smaller(const List& list, uint32_t size, uint64_t key) {
  uint32_t low = 0;
  uint32_t high = size;
  while (low < high) {
    const uint32_t middle = (low + high) / 2;
    if (list.at(middle) < key)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

template <RowKind kKind>
struct GgnnBlock {
  const GgnnArgs& args;
  Shared& shared;
  Layout layout;
  uint64_t* best;       // [layout.best] kNone behind the rows
  uint64_t* queue;      // [layout.queue] kNone in places without a row
  uint64_t* fresh;      // [step]
  uint32_t* visited;    // [layout.visited] kNoRow in places without a row
  uint32_t* proposals;  // [step] rows, then the places of fresh keys

  __device__ GgnnBlock(const GgnnArgs& given, Shared& block_shared, uint8_t* memory)
      : args(given),
        shared(block_shared),
        layout(given.shape, given.walk.graph.stride),
        best(reinterpret_cast<uint64_t*>(memory)),
        queue(reinterpret_cast<uint64_t*>(memory + layout.queue_at())),
        fresh(reinterpret_cast<uint64_t*>(memory + layout.fresh_at())),
        visited(reinterpret_cast<uint32_t*>(memory + layout.visited_at())),
        proposals(reinterpret_cast<uint32_t*>(memory + layout.proposals_at())) {}

  /// Algorithm 1, query after query.
  __device__ void run() {
    if (threadIdx.x == 0) shared.distances = shared.expansions = 0;
    uint32_t number = blockIdx.x;
    while (number < args.walk.count) {
      begin(number);
      for (uint32_t first = 0; first < args.entry_count; first += layout.step)
        fetch(args.entries + first, min(layout.step, args.entry_count - first));
      for (uint32_t iteration = 0; iteration < args.iterations_max && pop(); ++iteration)
        fetch(args.walk.graph.fixed_row(shared.parent), args.walk.graph.stride);
      write_found(args.walk, number, best, shared.best_size);
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
    for (uint32_t i = threadIdx.x; i < layout.best; i += blockDim.x) best[i] = RowKey::kNone;
    for (uint32_t i = threadIdx.x; i < layout.queue; i += blockDim.x) queue[i] = RowKey::kNone;
    for (uint32_t i = threadIdx.x; i < layout.visited; i += blockDim.x) visited[i] = kNoRow;
    if (threadIdx.x < kWarp) {
      const CagraQuery query = read_query(args.walk, kKind == RowKind::kBytes, number);
      if (lane_number() == 0) {
        shared.query = query;
        shared.bound = INFINITY;
        shared.best_size = shared.queue_head = shared.queue_size = shared.expanded = 0;
        shared.count = shared.survivors = 0;
      }
    }
    __syncthreads();
  }

  /// Algorithm 2: the rows that the cache does not know are compared, and those within the bound enter it.
  __device__ void fetch(const uint32_t* rows, uint32_t length) {
    for (uint32_t i = threadIdx.x; i < length; i += blockDim.x) {
      const uint32_t row = __ldg(rows + i);
      if (row != kNoRow && !knows(row)) proposals[atomicAdd(&shared.count, 1u)] = row;
    }
    __syncthreads();
    const float bound = shared.bound;
    compare_rows<kKind>(
        args.walk, shared.query, proposals, shared.count, [&](uint32_t place, uint32_t number) {
          if (square(number) <= bound)
            fresh[atomicAdd(&shared.survivors, 1u)] = RowKey::of(number, proposals[place], false);
        });
    __syncthreads();
    const uint32_t survivors = shared.survivors;
    __syncthreads();  // settle() sets it to zero
    if (survivors != 0) {
      sort_fresh(survivors);
      insert(Ring{best, args.shape.best, 0}, shared.best_size, survivors);
      insert(Ring{queue, args.shape.queue, shared.queue_head}, shared.queue_size, survivors);
    }
    if (threadIdx.x == 0) settle(survivors);
    __syncthreads();
  }

  /// Whether a row stands in the cache. All threads read the same words.
  __device__ bool knows(uint32_t row) const {
    const uint32_t half = row << 1;  // the lower half of its key
    bool found = false;
    for (uint32_t i = 0; i < layout.best; i += 2) {
      const uint4 two = *reinterpret_cast<const uint4*>(best + i);
      found |= two.x == half | two.z == half;
    }
    for (uint32_t i = 0; i < layout.queue; i += 2) {
      const uint4 two = *reinterpret_cast<const uint4*>(queue + i);
      found |= two.x == half | two.z == half;
    }
    const uint32_t filled = min(shared.expanded, args.shape.visited);
    for (uint32_t i = 0; i < filled; i += 4) {
      const uint4 four = *reinterpret_cast<const uint4*>(visited + i);
      found |= four.x == row | four.y == row | four.z == row | four.w == row;
    }
    return found;
  }

  __device__ float square(uint32_t number) const {
    if constexpr (kKind == RowKind::kBytes) {
      return __uint2float_rn(number);
    } else {
      return args.square == SquareKind::kFloatBits ? __uint_as_float(number) : distance_of(Key{number} << 32);
    }
  }

  __device__ void sort_fresh(uint32_t count) {
    if (threadIdx.x < kWarp) {
      switch (warp_size_of(count)) {
        case 32:
          sort_words<1>(fresh, count);
          break;
        case 64:
          sort_words<2>(fresh, count);
          break;
        case 128:
          sort_words<4>(fresh, count);
          break;
        case 256:
          sort_words<8>(fresh, count);
          break;
        default:
          sort_words<16>(fresh, count);
          break;
      }
    }
    __syncthreads();
  }

  /// Merges the fresh keys into a list of `size` rows; what does not fit any more falls out at its end.
  __device__ void insert(const Ring& list, uint32_t size, uint32_t count) {
    const Ring sorted{fresh, layout.step, 0};
    for (uint32_t i = threadIdx.x; i < count; i += blockDim.x)
      proposals[i] = i + smaller(list, size, fresh[i]);
    __syncthreads();
    const uint32_t first = proposals[0];
    for (uint32_t end = size; end > first;) {
      const uint32_t begin = end > first + blockDim.x ? end - blockDim.x : first;
      const uint32_t place = begin + threadIdx.x;
      const bool moves = place < end;
      const uint64_t key = moves ? list.at(place) : 0;
      const uint32_t target = moves ? place + smaller(sorted, count, key) : 0;
      __syncthreads();
      if (moves && target < list.capacity) list.at(target) = key;
      __syncthreads();
      end = begin;
    }
    for (uint32_t i = threadIdx.x; i < count; i += blockDim.x) {
      if (proposals[i] < list.capacity) list.at(proposals[i]) = fresh[i];
    }
    __syncthreads();
  }

  /// Counts, and the bound for the next step (equation 2).
  __device__ void settle(uint32_t survivors) {
    shared.distances += shared.count;
    shared.best_size = min(shared.best_size + survivors, args.shape.best);
    shared.queue_size = min(shared.queue_size + survivors, args.shape.queue);
    shared.count = shared.survivors = 0;
    if (shared.best_size < args.shape.bound) return;
    const float kth = square(RowKey::distance(best[args.shape.bound - 1]));
    const float nearest = fminf(__fsqrt_rn(square(RowKey::distance(best[0]))), args.nearest);
    const float bound = __fadd_rn(__fsqrt_rn(kth), __fmul_rn(args.tau, nearest));
    shared.bound = fmaxf(kth, __fmul_rn(bound, bound));
  }

  /// Takes the nearest row of the queue as the parent; false where the query ends.
  __device__ bool pop() {
    if (threadIdx.x == 0) {
      shared.parent = kNoRow;
      uint64_t& head = queue[shared.queue_head];
      if (shared.queue_size != 0 && square(RowKey::distance(head)) <= shared.bound) {
        shared.parent = RowKey::row(head);
        head = RowKey::kNone;
        shared.queue_head = shared.queue_head + 1 == args.shape.queue ? 0 : shared.queue_head + 1;
        --shared.queue_size;
        visited[shared.expanded % args.shape.visited] = shared.parent;
        ++shared.expanded;
        ++shared.expansions;
      }
    }
    __syncthreads();
    return shared.parent != kNoRow;
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
  const uint32_t bytes = Layout(plan.shape, args.walk.graph.stride).bytes();
  // Always the most, so that searches on other threads do not take it away again.
  if (bytes > kSharedUsual) allow_shared(function, kSharedMax);
  const uint32_t blocks = std::min(args.walk.count, blocks_at_once(device, function, threads, bytes));
  launch("ggnn", function, blocks, threads, stream, args, bytes);
}

}  // namespace gannet::cuda
