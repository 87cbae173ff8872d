// TSDG's search for large batches on the GPU (section 4.2, Algorithm 2): one warp, which is a block of its own, answers
// one query.
//
//   R          the nearest rows, in order, in shared memory; kNone behind them
//   C          m segments of 32 places, each in order from its head on, round about: a row taken moves the head
//   V          m segments of 32 rows in no order, the oldest overwritten next
//   proposals  the ends of an edge list that stand neither in V nor in C, in their order
//
// A lane has a proposal and looks through the segments of C and V where it would stand, 16 bytes at a time; lane l
// begins l pieces on, so that the lanes read different banks whatever their segments. The paper looks for proposal
// after proposal with all lanes, which takes as many reads and a vote for each. A row enters R or C by one vote and one
// exchange with the lane before for 32 places: the segment is as long as a warp is wide. Proposals beyond the bound are
// dropped together, the others enter in order, each with the bound that those before have left.
//
// Bytes of a step at 40 edges (factors below 5, SIFT) and 128 columns of u8: 512 of edges, some 18 new rows, 2.3 KB; 60
// steps are 170 KB a query. Operations of a step: 18 rows of 8 loads of 16 bytes and some 20 operations each; 24 reads
// for 32 proposals; some 5 rows that enter, 40 operations each for k = 10 and 8 more for each further 32 places of R.
//
// Equal to the twin bit for bit: rows enter in its order, and the bound is drawn from the same numbers by the same
// operations.

#include <algorithm>

#include "search/tsdg_steps.cuh"

namespace gannet::cuda {
namespace {

static_assert(kTsdgSegment == kWarp && kTsdgSeeds <= kWarp);

/// The parts of a block's shared memory, in this order.
struct Layout {
  uint32_t list;      // keys of R, a multiple of 32
  uint32_t segments;  // m
  uint32_t step;      // proposals, a multiple of 32

  __host__ __device__ Layout(uint32_t kept, uint32_t m, uint32_t degree)
      : list((kept + kWarp - 1) / kWarp * kWarp), segments(m), step((degree + kWarp - 1) / kWarp * kWarp) {
    if (list == 0) list = kWarp;
    if (step == 0) step = kWarp;
  }

  __host__ __device__ uint32_t queue_at() const { return list * 8; }
  __host__ __device__ uint32_t expanded_at() const { return queue_at() + segments * kTsdgSegment * 8; }
  __host__ __device__ uint32_t proposals_at() const { return expanded_at() + segments * kTsdgSegment * 4; }
  __host__ __device__ uint32_t numbers_at() const { return proposals_at() + step * 4; }
  __host__ __device__ uint32_t heads_at() const { return numbers_at() + step * 4; }
  __host__ __device__ uint32_t next_at() const { return heads_at() + segments * 4; }
  __host__ __device__ uint32_t bytes() const { return next_at() + segments * 4; }
};

/// All members are the same in every lane.
template <RowKind kKind>
struct LargeWalk {
  const TsdgArgs& args;
  Layout layout;
  uint64_t* list;       // [layout.list] R
  uint64_t* queue;      // [m, 32] C; kNone in places without a row
  uint32_t* expanded;   // [m, 32] V; kNoRow likewise
  uint32_t* proposals;  // [step]
  uint32_t* numbers;    // [step] their distances
  uint32_t* heads;      // [m] places of the segments of C where they begin
  uint32_t* next;       // [m] places of those of V that are overwritten next
  CagraQuery query = {};
  uint32_t bound = UINT32_MAX;  // beyond it no row is expanded
  uint32_t distances = 0;
  uint32_t expansions = 0;

  __device__ LargeWalk(const TsdgArgs& given, uint8_t* memory)
      : args(given),
        layout(given.walk.kept, given.segments, given.walk.graph.stride),
        list(reinterpret_cast<uint64_t*>(memory)),
        queue(reinterpret_cast<uint64_t*>(memory + layout.queue_at())),
        expanded(reinterpret_cast<uint32_t*>(memory + layout.expanded_at())),
        proposals(reinterpret_cast<uint32_t*>(memory + layout.proposals_at())),
        numbers(reinterpret_cast<uint32_t*>(memory + layout.numbers_at())),
        heads(reinterpret_cast<uint32_t*>(memory + layout.heads_at())),
        next(reinterpret_cast<uint32_t*>(memory + layout.next_at())) {}

  /// Query after query.
  __device__ void run() {
    for (uint32_t number = blockIdx.x; number < args.walk.count; number = next_query()) {
      begin(number);
      start();
      for (uint32_t step = 0; step < args.hops_max; ++step) {
        const uint64_t nearest = pop();
        if (nearest == RowKey::kNone || RowKey::distance(nearest) > bound) break;
        expand(RowKey::row(nearest));
      }
      write_found(args.walk, number, list, args.walk.kept);
      if (args.walk.out_distances == nullptr) distances += count_found();  // which are compared once more
    }
    if (lane_number() != 0) return;
    atomicAdd(&args.walk.counters->distances, static_cast<unsigned long long>(distances));
    atomicAdd(&args.walk.counters->expansions, static_cast<unsigned long long>(expansions));
  }

 private:
  __device__ uint32_t next_query() const {
    uint32_t number = 0;
    if (lane_number() == 0) number = gridDim.x + atomicAdd(&args.walk.counters->queue, 1u);
    return __shfl_sync(kAllLanes, number, 0);
  }

  __device__ void begin(uint32_t number) {
    __syncwarp();
    for (uint32_t i = lane_number(); i < layout.list; i += kWarp) list[i] = RowKey::kNone;
    for (uint32_t i = lane_number(); i < layout.segments * kTsdgSegment; i += kWarp) {
      queue[i] = RowKey::kNone;
      expanded[i] = kNoRow;
    }
    for (uint32_t i = lane_number(); i < layout.segments; i += kWarp) heads[i] = next[i] = 0;
    query = read_query(args.walk, kKind == RowKind::kBytes, number);
    bound = UINT32_MAX;
    __syncwarp();
  }

  /// Lines 1 to 4: the nearest of the random rows.
  __device__ void start() {
    const uint32_t row = lane_number() < kTsdgSeeds
                             ? shown_start(args.walk, query.content, kTsdgSeeds, lane_number())
                             : kNoRow;
    const uint32_t drawn = __ballot_sync(kAllLanes, row != kNoRow);
    if (row != kNoRow) proposals[__popc(drawn & lanes_before())] = row;
    const uint32_t count = __popc(drawn);
    __syncwarp();
    compare(count);
    const uint64_t seed = smallest_of_warp(lane_number() < count ? key_at(lane_number()) : RowKey::kNone);
    if (seed == RowKey::kNone) return;
    show(seed);
    push(seed);
  }

  __device__ void compare(uint32_t count) {
    distances += count;
    compare_rows<kKind>(args.walk, query, proposals, count,
                        [&](uint32_t place, uint32_t distance) { numbers[place] = distance; });
    __syncwarp();
  }

  __device__ uint64_t key_at(uint32_t place) const {
    return RowKey::of(numbers[place], proposals[place], false);
  }

  /// Line 9: the nearest row of C leaves it; kNone where there is none.
  __device__ uint64_t pop() {
    uint64_t own = RowKey::kNone;
    uint32_t segment = 0;
    for (uint32_t i = lane_number(); i < layout.segments; i += kWarp) {
      const uint64_t first = queue[i * kTsdgSegment + heads[i]];
      if (first < own) {
        own = first;
        segment = i;
      }
    }
    const uint64_t nearest = smallest_of_warp(own);
    if (nearest == RowKey::kNone) return nearest;
    // A row stands in one segment only.
    if (own == nearest) {
      queue[segment * kTsdgSegment + heads[segment]] = RowKey::kNone;
      heads[segment] = (heads[segment] + 1) % kTsdgSegment;
    }
    __syncwarp();
    return nearest;
  }

  /// Lines 13 to 21.
  __device__ void expand(uint32_t row) {
    ++expansions;
    const uint32_t count = propose(row);
    compare(count);
    for (uint32_t first = 0; first < count; first += kWarp) {
      const uint32_t place = first + lane_number();
      const uint64_t own = place < count ? key_at(place) : RowKey::kNone;
      uint32_t near = __ballot_sync(kAllLanes, place < count && RowKey::distance(own) <= bound);
      for (; near != 0; near &= near - 1) {
        const uint64_t key = __shfl_sync(kAllLanes, own, __ffs(near) - 1);
        const bool improves = show(key);
        if (args.only_nearer != 0 ? improves : RowKey::distance(key) <= bound) push(key);
      }
    }
  }

  /// Puts a row into V, and the ends of its edges that stand neither there nor in C into proposals; how many.
  __device__ uint32_t propose(uint32_t row) {
    const Adjacency& graph = args.walk.graph;
    const uint32_t* edges = graph.fixed_row(row);
    const uint32_t length = length_of_row(graph, row, args.level);
    uint32_t target = lane_number() < graph.stride ? __ldg(edges + lane_number()) : kNoRow;
    if (lane_number() == 0) {
      const uint32_t segment = row % layout.segments;
      expanded[segment * kTsdgSegment + next[segment]] = row;
      next[segment] = (next[segment] + 1) % kTsdgSegment;
    }
    __syncwarp();
    uint32_t count = 0;
    for (uint32_t first = 0; first < length; first += kWarp) {
      if (first + lane_number() >= length) target = kNoRow;
      const bool is_new = target != kNoRow && !knows(target);
      const uint32_t news = __ballot_sync(kAllLanes, is_new);
      if (is_new) proposals[count + __popc(news & lanes_before())] = target;
      count += __popc(news);
      const uint32_t place = first + kWarp + lane_number();
      target = place < length ? __ldg(edges + place) : kNoRow;
    }
    __syncwarp();
    return count;
  }

  __device__ bool knows(uint32_t row) const {
    constexpr uint32_t kRows = sizeof(uint4) / sizeof(uint32_t);
    constexpr uint32_t kKeys = sizeof(uint4) / sizeof(uint64_t);
    const uint32_t segment = row % layout.segments * kTsdgSegment;
    const uint32_t half = row << 1;  // the lower half of its key
    bool found = false;
#pragma unroll
    for (uint32_t i = 0; i < kTsdgSegment / kRows; ++i) {
      const uint32_t place = (i + lane_number()) % (kTsdgSegment / kRows) * kRows;
      const uint4 four = *reinterpret_cast<const uint4*>(expanded + segment + place);
      found |= four.x == row | four.y == row | four.z == row | four.w == row;
    }
#pragma unroll
    for (uint32_t i = 0; i < kTsdgSegment / kKeys; ++i) {
      const uint32_t place = (i + lane_number()) % (kTsdgSegment / kKeys) * kKeys;
      const uint4 two = *reinterpret_cast<const uint4*>(queue + segment + place);
      found |= two.x == half | two.z == half;
    }
    return found;
  }

  /// Whether a row is nearer than the last of R, which takes it unless it has it or the row is no answer. Draws the
  /// bound.
  __device__ bool show(uint64_t key) {
    const uint32_t kept = args.walk.kept;
    if (kept == 0 || key >= list[kept - 1]) return false;
    uint32_t smaller = 0;
    bool equal = false;
    for (uint32_t first = 0; first < kept; first += kWarp) {
      const uint64_t here = list[first + lane_number()];
      smaller += __popc(__ballot_sync(kAllLanes, here < key));
      equal |= here == key;
    }
    if (__any_sync(kAllLanes, equal)) return false;
    if (!args.walk.removed.empty() && is_removed(args.walk.removed, RowKey::row(key))) return true;
    for (uint32_t end = (kept + kWarp - 1) / kWarp * kWarp; end > smaller; end -= kWarp) {
      const uint32_t place = end - kWarp + lane_number();
      const uint64_t before = place > smaller ? list[place - 1] : key;
      __syncwarp();
      if (place >= smaller && place < kept) list[place] = before;
      __syncwarp();
      if (end == kWarp) break;
    }
    draw_bound();
    return true;
  }

  __device__ uint32_t count_found() const {
    uint32_t count = 0;
    for (uint32_t i = 0; i < layout.list; i += kWarp)
      count += __popc(__ballot_sync(kAllLanes, list[i + lane_number()] != RowKey::kNone));
    return count;
  }

  __device__ void draw_bound() {
    const uint64_t last = list[args.walk.kept - 1];
    if (last == RowKey::kNone) return;
    const uint32_t distance = RowKey::distance(last);
    if constexpr (kKind == RowKind::kBytes)
      bound = __double2uint_rz(fmin(__dmul_rn(__uint2double_rn(distance), args.factor), 4294967295.0));
    else
      bound = __float_as_uint(__double2float_rn(__dmul_rn(__uint_as_float(distance), args.factor)));
  }

  /// A full segment of C drops its farthest row.
  __device__ void push(uint64_t key) {
    const uint32_t segment = RowKey::row(key) % layout.segments;
    const uint32_t place = segment * kTsdgSegment + (heads[segment] + lane_number()) % kTsdgSegment;
    const uint64_t here = queue[place];
    const uint64_t before = __shfl_up_sync(kAllLanes, here, 1);
    const uint32_t smaller = __popc(__ballot_sync(kAllLanes, here < key));
    if (lane_number() >= smaller) queue[place] = lane_number() == smaller ? key : before;
    __syncwarp();
  }
};

template <RowKind kKind>
__global__ void __launch_bounds__(kWarp, 32) tsdg_large(const __grid_constant__ TsdgArgs args) {
  extern __shared__ uint4 memory[];
  LargeWalk<kKind>(args, reinterpret_cast<uint8_t*>(memory)).run();
}

}  // namespace

// --- Host ----------------------------------------------------------------------------------------

void start_tsdg_large(int32_t device, RowKind kind, TsdgArgs args, const Stream& stream) {
  void (*const function)(TsdgArgs) =
      kind == RowKind::kBytes ? tsdg_large<RowKind::kBytes> : tsdg_large<RowKind::kF32>;
  // 39 KB for 1,024 answers, 64 segments and 256 edges, which every device gives without being asked.
  const uint32_t bytes = Layout(args.walk.kept, args.segments, args.walk.graph.stride).bytes();
  const uint32_t blocks = std::min(args.walk.count, blocks_at_once(device, function, kWarp, bytes));
  launch("tsdg_large", function, blocks, kWarp, stream, args, bytes);
}

void start_tsdg(int32_t device, RowKind kind, const TsdgPlan& plan, TsdgArgs args, const Stream& stream) {
  args.walk.kept = plan.kept;
  args.walk.team = plan.team;
  args.level = plan.level;
  args.hops_max = plan.hops_max;
  args.walks = plan.walks;
  args.segments = plan.segments;
  args.factor = double{plan.delta} * plan.delta;
  args.only_nearer = plan.only_nearer ? 1 : 0;
  if (plan.search == TsdgSearch::kSmall)
    start_tsdg_small(kind, args, stream);
  else
    start_tsdg_large(device, kind, args, stream);
}

}  // namespace gannet::cuda
