// TSDG's search for small batches on the GPU (section 4.1, Algorithm 1): a block walks alone, t_0 blocks a query, and
// the last of them to end merges the rows that they have found.
//
//   edges    thread i has edge i of the row that is expanded
//   keys     their distances, by teams of lanes (search/cagra_steps.cuh), which are the paper's warps where
//            `team_size` is 32
//   R_temp   lane i of the keeper, the last warp, has the nearest of edges i, i + 32, ...
//   R        in the keeper's registers, in order: the first 16 of R_temp that it does not hold take the places of its
//            last 16 where they are nearer, which makes them a rise and a fall; 9 exchanges sort it again
//
// A hop waits for memory twice, for the edges and for the rows. The next row to be expanded is known before R_temp is
// sorted. So its edges are on their way, and their rows on their way to the second cache, while the keeper sorts;
// the reads that a last hop has requested in vain are the price.
//
// Bytes of a hop at 70 edges (factors below 10, SIFT) and 128 columns of u8: 512 of edges, 9 KB of rows. A walk of 6
// hops and 32 seeds reads 60 KB, 16 of them 1 MB a query. Operations of a hop: 70 rows of 8 loads of 16 bytes and some
// 20 operations each; 15 exchanges of 64 bits for R_temp, 9 for R, 5 to look for 16 rows.
//
// The merge of t_0 lists sorts keys of which runs of 32 are in order; a row that several walks have found then stands
// in places beside each other, and only its first counts.
//
// Equal to the twin bit for bit: keys have an order of their own, and no walk knows of another.

#include <algorithm>

#include "search/tsdg_steps.cuh"

namespace gannet::cuda {
namespace {

constexpr uint32_t kThreads = 256;
constexpr uint64_t kFoundBytes = uint64_t{64} << 20;  // of device memory, at a time
constexpr uint32_t kAheadBytes = 512;                 // of a row that are requested ahead
constexpr uint32_t kLine = 128;
static_assert(kThreads >= ANN_DEGREE_MAX, "a thread for each edge");
static_assert(kTsdgList == kWarp && kTsdgSeeds == kWarp && kTsdgTaken == kWarp / 2);

struct Shared {
  CagraQuery query;
  uint64_t parent;  // key of the row to be expanded, or kNone
  uint64_t taken[kTsdgTaken];
  uint32_t seeds;
  uint32_t improved;
  uint32_t is_last;
};

template <RowKind kKind>
struct SmallWalk {
  const TsdgArgs& args;
  Shared& shared;
  uint64_t* keys;  // [the longest row or seeds], then of the merge [walks, kTsdgList] rounded up
  uint32_t* rows;  // [the longest row or seeds]
  uint32_t query = blockIdx.x / args.walks;
  uint32_t number = blockIdx.x % args.walks;
  uint32_t distances = 0;
  uint32_t expansions = 0;

  __device__ void run() {
    begin();
    compare(shared.seeds);
    uint64_t temp = choose(shared.seeds);
    uint64_t list = lane_number() == 0 ? shared.parent : RowKey::kNone;  // R
    if (!args.walk.removed.empty() && list != RowKey::kNone &&
        is_removed(args.walk.removed, RowKey::row(list)))
      list = RowKey::kNone;
    for (uint32_t hop = 0;; ++hop) {
      const uint32_t target = hop < args.hops_max ? edge() : kNoRow;
      if (is_keeper() && hop != 0) {
        const bool improved = update(list, temp);
        if (lane_number() == 0) shared.improved = improved ? 1 : 0;
      }
      ask_for(target);
      const uint32_t count = __syncthreads_count(target != kNoRow ? 1 : 0);
      if (hop == args.hops_max || shared.improved == 0) break;
      ++expansions;
      compare(count);
      temp = choose(count);
    }
    report(list);
  }

 private:
  static __device__ bool is_keeper() { return threadIdx.x >= kThreads - kWarp; }

  __device__ void begin() {
    if (threadIdx.x < kWarp) {
      const CagraQuery read = read_query(args.walk, kKind == RowKind::kBytes, query);
      const uint32_t row =
          shown_start(args.walk, read.content, args.walks * kTsdgSeeds, number * kTsdgSeeds + lane_number());
      const uint32_t drawn = __ballot_sync(kAllLanes, row != kNoRow);
      if (row != kNoRow) rows[__popc(drawn & lanes_before())] = row;
      const uint32_t seeds = __popc(drawn);
      if (lane_number() == 0) {
        shared.query = read;
        shared.seeds = seeds;
        shared.improved = seeds != 0 ? 1 : 0;
      }
    }
    __syncthreads();
  }

  __device__ void compare(uint32_t count) {
    distances += count;
    compare_rows<kKind>(args.walk, shared.query, rows, count, [&](uint32_t place, uint32_t distance) {
      keys[place] = RowKey::of(distance, rows[place], false);
    });
    __syncthreads();
  }

  /// R_temp in the keeper's lanes; its nearest row is expanded next.
  __device__ uint64_t choose(uint32_t count) {
    uint64_t temp = RowKey::kNone;
    if (is_keeper()) {
      for (uint32_t i = lane_number(); i < count; i += kWarp) temp = min(temp, keys[i]);
      const uint64_t nearest = smallest_of_warp(temp);
      if (lane_number() == 0) shared.parent = nearest;
    }
    __syncthreads();
    return temp;
  }

  /// This thread's edge of the row that is expanded next. Places beyond the level's edges are not read.
  __device__ uint32_t edge() const {
    if (shared.parent == RowKey::kNone) return kNoRow;
    const uint32_t row = RowKey::row(shared.parent);
    const Adjacency& graph = args.walk.graph;
    const uint32_t target = threadIdx.x < graph.stride ? __ldg(graph.fixed_row(row) + threadIdx.x) : kNoRow;
    return threadIdx.x < length_of_row(graph, row, args.level) ? target : kNoRow;
  }

  __device__ void ask_for(uint32_t target) {
    if (target == kNoRow) return;
    rows[threadIdx.x] = target;
    const uint8_t* row = args.walk.rows + uint64_t{target} * args.walk.stride;
    for (uint32_t byte = 0; byte < min(args.walk.stride, kAheadBytes); byte += kLine)
      asm volatile("prefetch.global.L2 [%0];" ::"l"(row + byte));
  }

  /// Line 12. By the keeper; false where nothing new has entered R.
  __device__ bool update(uint64_t& list, uint64_t temp) {
    uint64_t sorted[1] = {temp};
    sort_ascending(sorted);
    const bool is_held = holds(list, sorted[0]);  // all lanes look
    bool is_new = lane_number() < kTsdgTaken && sorted[0] != RowKey::kNone && !is_held;
    if (!args.walk.removed.empty()) is_new = is_new && !is_removed(args.walk.removed, RowKey::row(sorted[0]));
    const uint32_t news = __ballot_sync(kAllLanes, is_new);
    if (is_new) shared.taken[__popc(news & lanes_before())] = sorted[0];
    __syncwarp();
    const uint32_t turned = kWarp - 1 - lane_number();
    const uint64_t taken = turned < __popc(news) ? shared.taken[turned] : RowKey::kNone;
    __syncwarp();
    const bool improved = __any_sync(kAllLanes, taken < list);
    uint64_t merged[1] = {min(list, taken)};
    order_run(merged, kWarp / 2);
    order_run(merged, kWarp);
    list = merged[0];
    return improved;
  }

  /// Whether a sorted list, a key a lane, has a key.
  static __device__ bool holds(uint64_t list, uint64_t key) {
    uint32_t place = 0;
#pragma unroll
    for (uint32_t step = kWarp / 2; step != 0; step /= 2) {
      if (__shfl_sync(kAllLanes, list, place + step - 1) < key) place += step;
    }
    return __shfl_sync(kAllLanes, list, place) == key;
  }

  /// Gives R away; the last walk of a query answers it.
  __device__ void report(uint64_t list) {
    uint64_t* found = args.found + uint64_t{query} * args.walks * kTsdgList;
    if (is_keeper()) {
      __stcg(found + number * kTsdgList + lane_number(), list);
      __threadfence();
      __syncwarp();
      if (lane_number() == 0) shared.is_last = atomicAdd(args.arrivals + query, 1u) + 1 == args.walks ? 1 : 0;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      atomicAdd(&args.walk.counters->distances, static_cast<unsigned long long>(distances));
      atomicAdd(&args.walk.counters->expansions, static_cast<unsigned long long>(expansions));
    }
    if (shared.is_last == 0) return;
    __threadfence();
    const uint32_t size = merge(found);
    if (threadIdx.x < kWarp) answer(size);
  }

  /// Of lists in order every second one is turned round, and all are sorted.
  __device__ uint32_t merge(const uint64_t* found) {
    const uint32_t places = args.walks * kTsdgList;
    uint32_t size = kTsdgList;
    while (size < places) size *= 2;
    for (uint32_t i = threadIdx.x; i < size; i += kThreads) {
      const uint32_t turned = (i & kTsdgList) == 0 ? i : i ^ (kTsdgList - 1);
      keys[i] = i < places ? __ldcg(found + turned) : RowKey::kNone;
    }
    __syncthreads();
    sort_shared(keys, size, BlockSorts{}, kTsdgList);
    return size;
  }

  /// Writes the nearest rows, each once. By a warp.
  __device__ void answer(uint32_t size) const {
    const CagraArgs& walk = args.walk;
    const uint64_t first = uint64_t{query} * walk.kept;
    uint32_t written = 0;
    for (uint32_t begin = 0; begin < size && written < walk.kept; begin += kWarp) {
      const uint32_t i = begin + lane_number();
      const uint64_t key = keys[i];
      const bool counts = key != RowKey::kNone && (i == 0 || keys[i - 1] != key);
      const uint32_t mask = __ballot_sync(kAllLanes, counts);
      const uint32_t place = written + __popc(mask & lanes_before());
      if (counts && place < walk.kept) {
        walk.out_rows[first + place] = RowKey::row(key);
        if (walk.out_distances != nullptr)
          walk.out_distances[first + place] = __uint2float_rn(RowKey::distance(key));
      }
      written += __popc(mask);
    }
    // Those that are compared once more.
    if (walk.out_distances == nullptr && lane_number() == 0)
      atomicAdd(&walk.counters->distances, static_cast<unsigned long long>(min(written, walk.kept)));
    for (uint32_t place = written + lane_number(); place < walk.kept; place += kWarp) {
      walk.out_rows[first + place] = kNoRow;
      if (walk.out_distances != nullptr) walk.out_distances[first + place] = INFINITY;
    }
  }
};

template <RowKind kKind>
__global__ void __launch_bounds__(kThreads) tsdg_small(const __grid_constant__ TsdgArgs args) {
  __shared__ Shared shared;
  __shared__ uint32_t rows[kThreads];
  extern __shared__ uint4 memory[];
  SmallWalk<kKind>{args, shared, reinterpret_cast<uint64_t*>(memory), rows}.run();
}

}  // namespace

// --- Host ----------------------------------------------------------------------------------------

void start_tsdg_small(RowKind kind, TsdgArgs args, const Stream& stream) {
  void (*const function)(TsdgArgs) =
      kind == RowKind::kBytes ? tsdg_small<RowKind::kBytes> : tsdg_small<RowKind::kF32>;
  uint32_t lists = kThreads / kTsdgList;  // keys of the longest row need so many
  while (lists < args.walks) lists *= 2;
  const uint64_t query_bytes = uint64_t{args.walks} * kTsdgList * sizeof(uint64_t);
  const uint32_t count = args.walk.count;
  const uint32_t together =
      static_cast<uint32_t>(std::clamp<uint64_t>(kFoundBytes / query_bytes, 1, std::max(count, 1u)));
  // Arrivals, then lists: one piece of memory, as taking one is dear beside a search of one query.
  const uint64_t lists_at = (uint64_t{count} + 1) / 2;
  const DeviceArray<uint64_t> scratch(lists_at + uint64_t{together} * args.walks * kTsdgList, stream);
  uint32_t* const arrivals = reinterpret_cast<uint32_t*>(scratch.data());
  fill(arrivals, 0, lists_at * sizeof(uint64_t), stream, "clearing device memory");
  args.found = scratch.data() + lists_at;
  for (uint32_t first = 0; first < count; first += together) {
    TsdgArgs some = args;
    some.arrivals = arrivals + first;
    some.walk.queries += uint64_t{first} * some.walk.query_stride;
    some.walk.out_rows += uint64_t{first} * some.walk.kept;
    if (some.walk.out_distances != nullptr) some.walk.out_distances += uint64_t{first} * some.walk.kept;
    some.walk.count = std::min(together, count - first);
    launch("tsdg_small", function, some.walk.count * args.walks, kThreads, stream, some,
           size_t{lists} * kTsdgList * sizeof(uint64_t));
  }
}

}  // namespace gannet::cuda
