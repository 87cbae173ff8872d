// The default searches on the GPU: one warp walks the graph for one query, in one of two ways.
//
// TWO LISTS, for up to 128 rows kept of a query:
//
//   best      the nearest rows visited so far, sorted, one in each lane, or four, where new ones wait until there
//             are 32 of them; d_k is the distance of the k-th
//   queue     the nearest rows visited and not yet expanded, sorted, one in each lane
//   s         the slack: a row is worth expanding up to T = (1 + s)^2 d_k (distances are squared)
//   start     at the nearest pivots (starts_cuda.cu), compared like the edges of a row; where codes are
//             floats, at all entry points of the index
//   step      take the head of the queue; read its edges; drop the rows that the filter knows; compare
//             the others; put those nearer than max(d_k, min(T, end of the queue)) into the lists
//   stop      when the queue is empty, its head lies beyond T, or the cap on expansions is reached
//   order     which query is next: those that are likely to need long walks first (starts_cuda.cu), since
//             the walk that starts last runs alone in the end
//
// The stop rule is GGNN's (section IV: a slack on the bound of the k-th best, a bounded queue); the
// graph is CAGRA's. Two short lists instead of one long beam need 22 % fewer distances at recall 0.95
// and never grow with the recall. A row that was expanded must never be forgotten under this rule: a
// table that forgets makes the walk run in circles (6 to 25 times the work at 0.99), therefore a Bloom
// filter.
//
// FILTER. The 4 KB of a warp cannot hold the rows of a long walk. When all of them were marked, by two bits each, a
// new row in nine was taken for a visited one after the 6,600 that .99 of uniform rows asks for, and the recall ended
// at .985. So a walk that has read kEdgesMarked edges marks rows only when they enter a list. A row that has been
// turned away is compared again where another edge leads to it, which is one comparison in fifteen. It is turned away
// again, since d_k and T only fall; where the end of a full queue had turned it away, it enters if the queue has room
// by then. Filters of 8 KB would leave no room for 28 warps. One NVIDIA H200, 64 edges, batch 10,000; M queries/s at
// equal recall, on the left by the former filter, with which blocks of 8 warps, or comparing all rows, answered what a
// warp did not reach:
//
//                                      .95           .99          .995         .998        100 at .95    at .99
//   SIFT 1M x 128                   23.9 23.7    14.8 14.7    10.5 11.1     4.6  7.2     10.7 10.1    5.1  5.8
//   uniform, 500,000 x 32           14.5 14.3     3.9  8.5     2.8  6.5     1.5  1.5      5.6  6.2    1.5  3.2
//   five shells, 500,000 x 24        9.9  9.5     4.0  5.2     2.9  3.8     1.5  1.5      4.9  5.1    1.8  2.2
//   glove, 95,000 x 100, 32 edges   26.7 27.2    17.7 17.3    11.7 11.8     3.4  3.5     11.0 10.8    7.2  7.0
//
// Rejected: a queue of 64 or 128 rows in a warp's registers (no more recall, 1.0 to 1.3 times as long); two copies of
// the loop, for all rows marked and for some (twice the code, and registers spill).
//
// ONE LIST, by the name BEST_FIRST, and for searches that two lists do not reach: search/best_first.h step for step.
// The list lies in shared memory in 32 segments, one a lane; each lane knows the farthest and the
// nearest unexpanded row of its own. A row replaces the farthest of all, and only that segment is
// looked through again. Answers are those of the CPU but for rows that the Bloom filter drops.
//
// BY INNER PRODUCT both compare codes with a scale for each row (traverse/scaled_steps.cuh), start at the entry points,
// among which are the longest rows, and T = d_k + ((1 + s)^2 - 1) |d_k|: rows are expanded whose product is at least so
// much of the k-th best. CAGRA walks by the plain codes, or by rows as stored.
//
// Bytes of a step at 32 edges and rows of 128 bytes: 128 of edges, then some 20 new rows, 2.6 KB, of
// which the filter has dropped 12. 25 steps a query at recall 0.95: 65 KB, so 3.4 TB/s serve 50 M
// queries/s at most. Operations of a step, a warp: loads and products 80, filter 40, exchanges 30, and
// some 10 for each of the 3 to 5 rows that enter the queue, 250 in all: 25 steps at 132 x 4 x 1.7 GHz
// allow 140 M queries/s. Latency binds first: a step is two dependent trips to memory, so 28 warps
// share a multiprocessor, and the edges of the likely next row are requested while this one's rows are
// on their way (right in 60 to 90 % of the steps).
//
// Measured elsewhere on one NVIDIA H200 (1M SIFT rows, 64 edges, batch 10,000, k = 10):
//   one by one into sorted lists instead of a sort of 32 and a merge     5 to 10 % less time
//   persistent warps with a queue of queries instead of a grid of them   3 to 17 % less
//   a cap on expansions of 1.4 times their mean and more slack           10 to 30 % less at 0.95: the
//       longest queries start last and run alone
//   lists without order, their ends found by reductions                  10 % more (here, of 100 answers
//       kept without order, 897 us at recall .947, where merges of 32 take 731 us at .953)
//   stopping after steps without improvement instead of a cap            10 % more than with a cap
//
// One NVIDIA H200, 1M SIFT rows, 64 edges, k = 10, batch 10,000, slack 0.03, kernels: 382 us in the order as given,
// 326 by the nearest pivot's share of the mean distance, 270 by the true number of expansions
// (tests/bench/results.csv). So the order alone gives half the gain of an oracle. Insertion: d_k and T are brought
// up to date once for all rows of a chunk, and the next row is on its way while one is inserted. Up to 12 or 20 one by
// one before they are sorted instead of 8: 0 to 2 % more time.
//
// Warps without a query that read edges and rows ahead for those of their block that still walk: no gain (385
// for 382 us, 676 for 648). A walk that runs alone takes its time in instructions that wait for each other.
//
// A finish for the walks that the cap cuts was built before there was an order, and left out: a warp leaves its lists
// and the numbers of the rows that it has expanded, and a block of 8 warps, launched in the same stream so that it
// starts while other walks still run, reads their edges again and goes on with 4 parents a round. Of 388 us at slack
// 0.03 28 were saved. With the order whole walks take 4 % longer than cut ones, which is less than handing over costs,
// so that batches are walked whole; tune/device_calibration.h names the walks that are cut, and the reason.
//
// Departures from the papers. GGNN's bounded cache forgets; here no row that has been in a list is forgotten.
// CAGRA starts from random rows, hashed from the query's place in the batch; here from the nearest
// pivots, or where codes are floats from the entry points, so that an answer depends on the query alone.

#include <algorithm>

#include "search/walk_cuda.h"
#include "traverse/scaled_steps.cuh"
#include "traverse/shared_sort_cuda.h"

namespace gannet::cuda {
namespace {

/// The parameters that a kernel is compiled for.
struct Policy {
  CodePolicy code;
  uint32_t warps;   // of a block
  uint32_t blocks;  // of a multiprocessor, which bounds registers
  uint32_t
      bloom_words;  // of a warp's filter; 0: one list, whose filter and beam are as long as the launch says
  uint32_t edge_words;  // edges that a lane holds at once
  bool any_degree;      // whether a row may have more edges, or an index more entry points, than a warp then
  uint32_t best_words;  // rows of the best list in a lane; one: in registers
  bool scaled = false;  // codes have a scale for each row, and `code` does not count
  bool leaves_out = false;  // rows may be removed, which walks of two lists pass through and do not return
};

// Two lists. M queries/s on one NVIDIA H100, 100,000 SIFT rows of 128 bytes, batch 10,000, k = 10, slack
// 0.02, cap 32, with so many warps of a multiprocessor:        28    28    24    32
//                                          query held         yes    no   yes    no
//   32 edges a row                                           61.0  68.1     -  69.5
// and on one NVIDIA H200, 1,000,000 rows, slack 0.03:
//   64 edges a row, k = 10, cap 32                           32.2  31.6  31.4  32.0
//   64 edges a row, k = 10, slack 0.09, cap 96               14.3  13.9  14.0  14.2
//   64 edges a row, k = 100, slack -0.02, cap 128              -  13.6  13.1     -  (24, not held: 13.4)
// 20 warps are 10 % slower at k = 10. The line of k = 100 is of a filter that marked all rows; with this one 28 warps
// lack registers, and take 1.03 times as long as 24. Rows of 64 bytes fit into 72 registers either way. Rows of
// several pieces have 24 warps, not measured otherwise.
constexpr Policy two_lists(CodeKind kind, uint32_t row_bytes, uint32_t edge_words, bool any_degree,
                           uint32_t best_words) {
  const bool long_lists = edge_words > 1;
  const uint32_t blocks_of_rows = row_bytes == 64 ? 7 : 6;
  if (best_words > 1)
    return {{kind, row_bytes, false}, 4, blocks_of_rows, 1024, edge_words, any_degree, best_words};
  if (row_bytes == 128)
    return {{kind, row_bytes, long_lists}, 4, long_lists ? 7u : 8u, 1024, edge_words, any_degree, 1};
  return {{kind, row_bytes, row_bytes != 0}, 4, blocks_of_rows, 1024, edge_words, any_degree, 1};
}
constexpr uint32_t kRegisterListMax = kWarp;  // rows kept: one in each lane

// Batches of which every query has a warp at once, 16 of them on a multiprocessor: registers are plenty then,
// and the query is held. us for 1,000 queries on one NVIDIA H200, 1M SIFT rows, 64 edges a row, with 128
// registers a thread and with 72: 105 and 114 at recall 0.949, 121 and 134 at 0.957, 254 and 277 at 0.992.
constexpr Policy resident_batch(Policy policy) {
  policy.code.query_in_registers = true;
  policy.blocks = 4;
  return policy;
}

// With removed rows, of any degree and as many answers as two lists have: one kernel a kind of code. Asked of every row
// that enters the lists of the others, whether it is removed took 3 to 5 % of their time (one NVIDIA H200, 1M SIFT
// rows, 64 edges, batch 10,000).
constexpr Policy leaving_out(CodeKind kind) {
  Policy policy = two_lists(kind, 0, 2, true, kTwoListsMax / kWarp);
  policy.leaves_out = true;
  return policy;
}

// One list: one kernel for every beam, whose filter and list lie in shared memory that the launch gives.
constexpr Policy one_list(CodeKind kind) { return {{kind, 0, false}, 1, 20, 0, 1, true, 0}; }

/// That memory, by one warp. Filter and list grow together: 1,000 answers visit more than ten times as many rows.
struct BeamShape {
  uint32_t bloom_bits;  // 2^bloom_bits words
  uint32_t segment;     // keys of a lane

  static __host__ __device__ BeamShape of(uint32_t beam) {
    return {beam <= 256 ? 11u : beam <= 768 ? 12u : 13u, (beam + kWarp - 1) / kWarp};
  }
  __host__ __device__ uint32_t bloom_bytes() const { return sizeof(uint32_t) << bloom_bits; }
  __host__ __device__ uint32_t bytes() const { return bloom_bytes() + segment * kWarp * sizeof(uint64_t); }
};

// The same by codes with a scale for each row.
constexpr Policy scaled(Policy policy) {
  policy.scaled = true;
  return policy;
}

// Rows that enter a list one by one; more of them are sorted and merged.
constexpr uint32_t kOneByOne = 8;

// Edges of expanded rows, after which a walk with two lists ceases to mark all rows in its filter. With 2,048 a hundred
// answers at .99 take 1.04 to 1.1 times as long, with 1,024 ten of SIFT at .95 1.03 times.
constexpr uint32_t kEdgesMarked = 1536;

/// The filter of a warp where its length is known.
template <uint32_t kWords>
struct BloomMemory {
  alignas(16) uint32_t bloom[kWords];
};
template <>
struct BloomMemory<0> {};

/// The common part of both ways: queries one after the other, and the comparison of the rows that a
/// list of edges names.
template <Policy kPolicy>
struct Walker {
  static constexpr uint32_t kThreads = kPolicy.warps * kWarp;
  static constexpr uint32_t kBlocks = kPolicy.blocks;
  static constexpr uint32_t kSpan = kPolicy.edge_words * kWarp;  // edges taken at once

  struct WarpShared : BloomMemory<kPolicy.bloom_words> {
    uint32_t candidates[kSpan];
    // Seldom needed, and two lists leave no register free.
    uint32_t query;
    uint32_t distances;
    uint32_t expansions;
  };
  using Visited = VisitedBloom<kPolicy.bloom_words>;

  const WalkArgs& args;
  WarpShared& shared;
  Visited visited;
  uint32_t expanded;  // rows of this query
  std::conditional_t<kPolicy.scaled, ScaledComparison<false>, RowComparison<kPolicy.code>> codes{args.stride};
  uint32_t ahead_row = kNoRow;  // whose edges were read ahead
  uint32_t ahead[kPolicy.edge_words];

  __device__ Walker(const WalkArgs& walk_args, WarpShared& warp_shared, const Visited& filter)
      : args(walk_args), shared(warp_shared), visited(filter) {
    if (lane_number() == 0) shared.distances = shared.expansions = 0;
  }

  /// The first queries are dealt out over the blocks, so that a small batch keeps every
  /// multiprocessor busy; the others go to whoever is free.
  __device__ bool first_query() const { return take(threadIdx.x / kWarp * gridDim.x + blockIdx.x); }
  __device__ bool next_query() const {
    uint32_t taken = 0;
    if (lane_number() == 0) taken = atomicAdd(&args.counters->queue, 1u);
    return take(kPolicy.warps * gridDim.x + __shfl_sync(kAllLanes, taken, 0));
  }
  __device__ bool take(uint32_t query) const {
    __syncwarp();  // all are done with the last one
    if (query < args.count && lane_number() == 0)
      shared.query = args.order != nullptr ? __ldg(args.order + query) : query;
    __syncwarp();
    return query < args.count;
  }

  __device__ void begin() {
    const uint32_t query = shared.query;
    visited.clear();
    expanded = 0;
    ahead_row = kNoRow;
    codes.begin(args.queries + uint64_t{query} * args.query_stride);
    if (args.masked != nullptr && lane_number() == 0 && args.masked[query] != kNoRow)
      visited.enter(args.masked[query]);
    __syncwarp();
  }

  __device__ void report_counts() const {
    if (lane_number() != 0) return;
    atomicAdd(&args.counters->distances, static_cast<unsigned long long>(shared.distances));
    atomicAdd(&args.counters->expansions, static_cast<unsigned long long>(shared.expansions));
  }

  /// The pseudocode of the essay: the entry points like the edges of a row, then row after row.
  template <class Lists>
  __device__ void walk(Lists& lists, uint32_t expansions_max) {
    uint32_t row = kNoRow;
    do {
      visit(row, lists);
      if (expanded == expansions_max) break;
      row = lists.pop();
      expanded += row != kNoRow ? 1 : 0;
    } while (row != kNoRow);
    if (lane_number() == 0) shared.expansions += expanded;
  }

  /// Compares the new ones of the rows that the edges of `row` lead to, or where there is no row of those
  /// where the query starts; `lists` takes them in and names the row to read ahead.
  template <class Lists>
  __device__ void visit(uint32_t row, Lists& lists) {
    const bool at_pivots = args.starts != nullptr;
    const uint32_t length = row != kNoRow ? args.degree : at_pivots ? kStarts : args.entry_count;
    for (uint32_t first = 0; first < length; first += kSpan) {
      const uint32_t* list = row != kNoRow ? fixed_row(args.edges, args.degree, row)
                             : at_pivots   ? args.starts + uint64_t{shared.query} * kStarts
                                           : args.entries;
      const bool is_here = first == 0 && row != kNoRow && row == ahead_row;
      uint32_t targets[kPolicy.edge_words];
#pragma unroll
      for (uint32_t word = 0; word < kPolicy.edge_words; ++word)
        targets[word] = is_here ? ahead[word] : target(list, first + word * kWarp, length);
      compare(keep_new(targets), lists);
      if constexpr (!kPolicy.any_degree) return;
    }
  }

  static __device__ uint32_t target(const uint32_t* list, uint32_t first, uint32_t length) {
    const uint32_t place = first + lane_number();
    return place < length ? __ldg(list + place) : kNoRow;
  }

  __device__ void read_ahead(uint32_t row) {
    ahead_row = row;
#pragma unroll
    for (uint32_t word = 0; word < kPolicy.edge_words; ++word)
      ahead[word] = target(fixed_row(args.edges, args.degree, row), word * kWarp, args.degree);
  }

  /// Shows `lists` the distances of the candidates.
  template <class Lists>
  __device__ void compare(uint32_t count, Lists& lists) {
    if (lane_number() == 0) shared.distances += count;
    for (uint32_t first = 0; first < count; first += kWarp) {
      const uint32_t part = min(kWarp, count - first);
      const bool last = first + kWarp >= count;
      const uint32_t distance = codes.compare(args.codes, shared.candidates + first, part, [&] {
        const uint32_t row = last ? lists.likely_next() : kNoRow;
        if (row != kNoRow && row != ahead_row) read_ahead(row);
      });
      const uint32_t row = codes.place() < part ? shared.candidates[first + codes.place()] : kNoRow;
      lists.absorb({distance, row});
    }
    __syncwarp();  // all have read the candidates before they change
  }

  /// Whether all rows that are visited are marked in the filter, and not those alone that enter a list.
  __device__ bool marks_all() const {
    return kPolicy.bloom_words == 0 || expanded * args.degree < kEdgesMarked;
  }

  /// Leaves the rows that have not been visited among the candidates; returns how many.
  __device__ uint32_t keep_new(const uint32_t* targets) {
    uint32_t count = 0;
#pragma unroll
    for (uint32_t word = 0; word < kPolicy.edge_words; ++word) {
      const uint32_t row = targets[word];
      const bool is_new = row != kNoRow && visited.is_new(row, marks_all());
      const uint32_t news = __ballot_sync(kAllLanes, is_new);
      if (is_new) shared.candidates[count + __popc(news & lanes_before())] = row;
      count += __popc(news);
    }
    __syncwarp();
    return count;
  }
};

/// The nearest rows visited so far, sorted, one in each lane.
struct SortedBest {
  struct Shared {};

  ListEntry items;
  uint32_t farthest;  // distance of the last row that is kept

  __device__ explicit SortedBest(Shared&) {}

  __device__ void clear() {
    items = {};
    farthest = kFarthest;
  }
  /// After rows have entered.
  __device__ void settle(uint32_t kept) { farthest = __shfl_sync(kAllLanes, items.distance, kept - 1); }
  __device__ uint32_t kth(uint32_t k) const { return __shfl_sync(kAllLanes, items.distance, k - 1); }
};

/// The same with kWords in each lane, in shared memory. Rows wait there for their turn: 32 of them are sorted
/// and merged at once, so the list and its end are behind by up to 31 rows.
template <uint32_t kWords>
struct WaitingBest {
  struct Shared {
    ListEntry items[kWords * kWarp];
    ListEntry waiting[2 * kWarp];
  };

  Shared& shared;
  uint32_t waiting = 0;
  uint32_t farthest = kFarthest;  // distance of the last row that is kept

  __device__ explicit WaitingBest(Shared& warp_shared) : shared(warp_shared) {}

  __device__ void clear() {
#pragma unroll
    for (uint32_t word = 0; word < kWords; ++word) shared.items[word * kWarp + lane_number()] = {};
    waiting = 0;
    farthest = kFarthest;
  }

  /// Takes the items of some lanes; whether the list has changed.
  __device__ bool take(const ListEntry& item, uint32_t lanes, uint32_t kept) {
    if ((lanes >> lane_number() & 1) != 0) shared.waiting[waiting + __popc(lanes & lanes_before())] = item;
    waiting += __popc(lanes);
    __syncwarp();
    if (waiting < kWarp) return false;
    merge_waiting(kept);
    return true;
  }

  __device__ void merge_waiting(uint32_t kept) {
    ListEntry fresh;
    if (lane_number() < waiting) fresh = shared.waiting[lane_number()];
    const ListEntry later = shared.waiting[kWarp + lane_number()];
    __syncwarp();
    shared.waiting[lane_number()] = later;
    waiting -= min(waiting, kWarp);
    sort_lanes(fresh);
    const ListEntry descending = shuffle(fresh, kWarp - 1 - lane_number());
    ListEntry items[kWords];
#pragma unroll
    for (uint32_t word = 0; word < kWords; ++word) items[word] = shared.items[word * kWarp + lane_number()];
    ListEntry& last = items[kWords - 1];
    if (descending.distance < last.distance) last = descending;
    order_words(items);
#pragma unroll
    for (uint32_t word = 0; word < kWords; ++word) {
      sort_bitonic(items[word]);
      shared.items[word * kWarp + lane_number()] = items[word];
    }
    __syncwarp();
    farthest = shared.items[kept - 1].distance;
  }

  /// Exchanges items of a list that rises and then falls, until each word as a whole is before the next.
  static __device__ void order_words(ListEntry (&items)[kWords]) {
#pragma unroll
    for (uint32_t stride = kWords / 2; stride != 0; stride /= 2) {
#pragma unroll
      for (uint32_t word = 0; word < kWords; ++word) {
        if ((word & stride) != 0) continue;
        const ListEntry low = items[word];
        const ListEntry high = items[word + stride];
        const bool turns = high.distance < low.distance;
        items[word] = turns ? high : low;
        items[word + stride] = turns ? low : high;
      }
    }
  }

  __device__ uint32_t kth(uint32_t k) const { return shared.items[k - 1].distance; }
};

/// The distance by codes up to which rows may be among the k nearest once they are re-ranked, where the k-th is `kth`
/// far.
__device__ inline uint32_t rerank_bound(const WalkArgs& args, uint32_t kth) {
  if (args.out_distances != nullptr || args.rerank_margin == 0) return kFarthest;
  const float length = __fsqrt_ru(__uint2float_ru(kth)) + args.rerank_margin;
  return __float2uint_ru(length * length);  // at most UINT32_MAX, which is kFarthest
}

/// Writes the first `kept` of sorted keys, as far as `farthest`, as the answer of a query; how many it drops.
__device__ inline uint32_t write_answer(const WalkArgs& args, uint32_t query, const uint64_t* sorted,
                                        uint32_t farthest = kFarthest) {
  uint32_t dropped = 0;
  for (uint32_t i = lane_number(); i < args.kept; i += kWarp) {
    const uint64_t key = sorted[i];
    const uint64_t place = uint64_t{query} * args.kept + i;
    const bool is_near = key != RowKey::kNone && RowKey::distance(key) <= farthest;
    dropped += key != RowKey::kNone && !is_near ? 1 : 0;
    args.out_rows[place] = is_near ? RowKey::row(key) : kNoRow;
    if (args.out_distances != nullptr)
      args.out_distances[place] = key == RowKey::kNone ? INFINITY : __uint2float_rn(RowKey::distance(key));
  }
  __syncwarp();
  return __reduce_add_sync(kAllLanes, dropped);
}

template <Policy kPolicy>
struct TwoLists {
  static constexpr uint32_t kThreads = Walker<kPolicy>::kThreads;
  static constexpr uint32_t kBlocks = Walker<kPolicy>::kBlocks;
  static constexpr bool kSorted = kPolicy.best_words == 1;
  static_assert(!kSorted || !kPolicy.leaves_out);
  using Best = std::conditional_t<kSorted, SortedBest, WaitingBest<kPolicy.best_words>>;
  struct Shared {
    typename Walker<kPolicy>::WarpShared warps[kPolicy.warps];
    typename Best::Shared best[kPolicy.warps];
  };

  const WalkArgs& args;
  Walker<kPolicy> walker;
  Best best;
  ListEntry queue;
  uint32_t bound;  // T; kFarthest while there are fewer than k rows

  __device__ TwoLists(const WalkArgs& walk_args, Shared& shared)
      : args(walk_args),
        walker(walk_args, shared.warps[threadIdx.x / kWarp], {shared.warps[threadIdx.x / kWarp].bloom}),
        best(shared.best[threadIdx.x / kWarp]) {}

  __device__ void run() {
    for (bool more = walker.first_query(); more; more = walker.next_query()) {
      begin();
      walker.walk(*this, args.expansions_max);
      report();
    }
    walker.report_counts();
  }

  __device__ void begin() {
    best.clear();
    queue = {};
    bound = kFarthest;
    walker.begin();
  }

  __device__ uint32_t pop() {
    const uint32_t head = likely_next();
    if (head == kNoRow) return kNoRow;
    const ListEntry next = {__shfl_down_sync(kAllLanes, queue.distance, 1),
                            __shfl_down_sync(kAllLanes, queue.row, 1)};
    queue = lane_number() == kWarp - 1 ? ListEntry() : next;
    return head;
  }

  /// The head of the queue if it is worth expanding.
  __device__ uint32_t likely_next() const {
    const ListEntry head = shuffle(queue, 0);
    return head.distance > bound ? kNoRow : head.row;  // of an empty queue the row is none
  }

  /// Whether the row of a lane may be answered.
  __device__ bool is_answer(const ListEntry& item) const {
    if constexpr (kPolicy.leaves_out) return item.row == kNoRow || !args.removed.holds(item.row);
    return true;
  }

  __device__ void absorb(ListEntry item) {
    if (!walker.marks_all()) drop_known(item);
    if constexpr (!kSorted) {
      const uint32_t nearer = __ballot_sync(kAllLanes, item.distance < best.farthest && is_answer(item));
      if (nearer != 0 && best.take(item, nearer, args.kept)) tighten();
    }
    const uint32_t limit = queue_limit();
    const uint32_t survivors = __ballot_sync(kAllLanes, item.distance < limit);
    if (survivors == 0) return;
    const bool nearer = kSorted && __any_sync(kAllLanes, item.distance < best.farthest);
    if (__popc(survivors) > kOneByOne)
      merge_all(item, limit, nearer);
    else if (nearer)
      insert_each<true>(item, survivors);
    else
      insert_each<false>(item, survivors);
    if constexpr (kSorted) {
      if (!nearer) return;
      best.settle(args.kept);
      tighten();
    }
  }

  /// The distance below which rows enter the queue, and where the best list lies in registers either list.
  __device__ uint32_t queue_limit() const {
    const uint32_t end = min(bound, __shfl_sync(kAllLanes, queue.distance, kWarp - 1));
    return kSorted ? max(best.farthest, end) : end;
  }

  /// Marks the rows that are near enough for a list, and drops those that were marked before, which have been in one.
  __device__ void drop_known(ListEntry& item) {
    if (item.distance < max(best.farthest, queue_limit()) && !walker.visited.enter(item.row)) item = {};
  }

  /// The next one is on its way while one is inserted.
  template <bool kNearer>
  __device__ void insert_each(const ListEntry& item, uint32_t survivors) {
    ListEntry next = shuffle(item, __ffs(static_cast<int32_t>(survivors)) - 1);
    while (survivors != 0) {
      const ListEntry one = next;
      survivors &= survivors - 1;
      next = shuffle(item, __ffs(static_cast<int32_t>(survivors)) - 1);
      insert(queue, one);
      if constexpr (kSorted && kNearer) insert(best.items, one);
    }
  }

  __device__ void merge_all(const ListEntry& item, uint32_t limit, bool nearer) {
    ListEntry sorted = item.distance < limit ? item : ListEntry();
    sort_lanes(sorted);
    const ListEntry descending = shuffle(sorted, kWarp - 1 - lane_number());
    merge(queue, descending);
    if constexpr (kSorted) {
      if (nearer) merge(best.items, descending);
    }
  }

  /// After the best list has changed.
  __device__ void tighten() {
    const uint32_t kth = best.kth(args.k);
    if constexpr (kPolicy.scaled)
      bound = stretched_product(kth, args.slack_squared);
    else
      bound = stretched<kPolicy.code.kind>(kth, args.slack_squared);
  }

  /// Rows that will not be compared once more count as if they were: the host adds all that are kept.
  __device__ void report() {
    uint32_t dropped;
    if constexpr (kSorted)
      dropped = report_sorted();
    else
      dropped = report_from_shared();
    if (lane_number() == 0) walker.shared.distances -= dropped;
  }

  __device__ uint32_t report_sorted() {
    sort_lanes<true>(best.items);
    const uint32_t farthest = rerank_bound(args, best.kth(args.k));
    const bool has_row = lane_number() < args.kept && best.items.row != kNoRow;
    const bool is_near = has_row && best.items.distance <= farthest;
    if (lane_number() < args.kept) {
      const uint64_t place = uint64_t{walker.shared.query} * args.kept + lane_number();
      args.out_rows[place] = is_near ? best.items.row : kNoRow;
      if (args.out_distances != nullptr)
        args.out_distances[place] = has_row ? __uint2float_rn(best.items.distance) : INFINITY;
    }
    return __popc(__ballot_sync(kAllLanes, has_row && !is_near));
  }

  /// Sorts the list once more where the filter was, equal distances by row.
  __device__ uint32_t report_from_shared() {
    uint64_t* keys = reinterpret_cast<uint64_t*>(walker.shared.bloom);
    static_assert(kPolicy.bloom_words >= 2 * kPolicy.best_words * kWarp);
    best.merge_waiting(args.kept);
#pragma unroll
    for (uint32_t place = lane_number(); place < kPolicy.best_words * kWarp; place += kWarp) {
      const ListEntry item = best.shared.items[place];
      keys[place] = item.row == kNoRow ? RowKey::kNone : RowKey::of(item.distance, item.row, false);
    }
    __syncwarp();
    sort_shared(keys, kPolicy.best_words * kWarp, WarpSorts{});
    return write_answer(args, walker.shared.query, keys,
                        rerank_bound(args, RowKey::distance(keys[args.k - 1])));
  }
};

__device__ inline uint64_t warp_max(uint64_t value) {
  const uint32_t upper = static_cast<uint32_t>(value >> 32);
  const uint32_t top = __reduce_max_sync(kAllLanes, upper);
  const uint32_t lower = upper == top ? static_cast<uint32_t>(value) : 0;
  return uint64_t{top} << 32 | __reduce_max_sync(kAllLanes, lower);
}

__device__ inline uint64_t warp_min(uint64_t value) { return ~warp_max(~value); }

/// The beam of RowKeys in 32 segments. Places beyond the beam's length hold a key that is nearer than
/// every row and expanded, so that nothing ever replaces or expands it.
struct SegmentedBeam {
  static constexpr uint64_t kBlocked = RowKey::of(0, 0, true);

  uint64_t* keys;     // [kWarp * segment] in shared memory
  uint32_t segment;   // keys of a lane
  uint64_t farthest;  // of all
  uint32_t owner;     // the lane in whose segment that is
  uint64_t own_farthest;
  uint64_t own_nearest;  // unexpanded; kNone: there is none

  __device__ void clear(uint32_t length) {
    segment = (length + kWarp - 1) / kWarp;
    for (uint32_t i = lane_number(); i < segment * kWarp; i += kWarp)
      keys[i] = i < length ? RowKey::kNone : kBlocked;
    __syncwarp();
    own_farthest = lane_number() * segment < length ? RowKey::kNone : kBlocked;
    own_nearest = RowKey::kNone;
    find_farthest();
  }

  __device__ void insert(uint64_t key) {
    if (key >= farthest) return;
    replace(owner, farthest, key);
    find_farthest();
  }

  __device__ uint64_t nearest() const { return warp_min(own_nearest); }

  /// Marks the nearest unexpanded key.
  __device__ void mark(uint64_t key) {
    const uint32_t lane = first_lane(own_nearest == key);
    replace(lane, key, key | RowKey::kFlag);
    find_farthest();
  }

  static __device__ uint32_t first_lane(bool holds) {
    return __ffs(static_cast<int32_t>(__ballot_sync(kAllLanes, holds))) - 1;
  }

  __device__ void find_farthest() {
    farthest = warp_max(own_farthest);
    owner = first_lane(own_farthest == farthest);
  }

  /// Replaces one key of a segment, and finds its farthest and its nearest unexpanded key for its lane.
  __device__ void replace(uint32_t lane, uint64_t old_key, uint64_t new_key) {
    uint64_t* own = keys + lane * segment;
    bool done = false;
    uint64_t high = 0;
    uint64_t low = RowKey::kNone;
    for (uint32_t first = 0; first < segment; first += kWarp) {
      const uint32_t i = first + lane_number();
      uint64_t key = i < segment ? own[i] : kBlocked;
      const uint32_t matches = __ballot_sync(kAllLanes, !done && key == old_key);
      if (matches != 0 && lane_number() + 1 == __ffs(static_cast<int32_t>(matches))) own[i] = key = new_key;
      done |= matches != 0;
      high = max(high, key);
      if (!RowKey::flag(key)) low = min(low, key);
    }
    high = warp_max(high);
    low = warp_min(low);
    if (lane_number() == lane) {
      own_farthest = high;
      own_nearest = low;
    }
    __syncwarp();
  }
};

template <Policy kPolicy>
struct OneList {
  static constexpr uint32_t kThreads = Walker<kPolicy>::kThreads;
  static constexpr uint32_t kBlocks = Walker<kPolicy>::kBlocks;
  static_assert(kPolicy.warps == 1);
  using Shared = typename Walker<kPolicy>::WarpShared;

  const WalkArgs& args;
  BeamShape shape;
  uint8_t* memory;  // of the shape: the filter, then the keys
  Walker<kPolicy> walker;
  SegmentedBeam beam;

  __device__ OneList(const WalkArgs& walk_args, Shared& shared)
      : args(walk_args),
        shape(BeamShape::of(walk_args.beam)),
        memory(given_memory()),
        walker(walk_args, shared, {reinterpret_cast<uint32_t*>(memory), shape.bloom_bits}) {}

  static __device__ uint8_t* given_memory() {
    extern __shared__ __align__(16) uint8_t bytes[];
    return bytes;
  }

  __device__ void run() {
    for (bool more = walker.first_query(); more; more = walker.next_query()) {
      begin();
      walker.walk(*this, UINT32_MAX);
      report();
    }
    walker.report_counts();
  }

  __device__ void begin() {
    beam.keys = reinterpret_cast<uint64_t*>(memory + shape.bloom_bytes());
    beam.clear(args.beam);
    walker.begin();
  }

  __device__ uint32_t pop() {
    const uint64_t key = beam.nearest();
    if (key == RowKey::kNone) return kNoRow;
    beam.mark(key);
    return RowKey::row(key);
  }

  __device__ uint32_t likely_next() const {
    const uint64_t key = beam.nearest();
    return key == RowKey::kNone ? kNoRow : RowKey::row(key);
  }

  __device__ void absorb(const ListEntry& item) {
    const uint64_t key = item.row == kNoRow ? RowKey::kNone : RowKey::of(item.distance, item.row, false);
    uint32_t survivors = __ballot_sync(kAllLanes, key < beam.farthest);
    for (; survivors != 0; survivors &= survivors - 1)
      beam.insert(__shfl_sync(kAllLanes, key, __ffs(static_cast<int32_t>(survivors)) - 1));
  }

  /// Sorts the list where the filter was, in a power of two of places, and writes its nearest rows.
  __device__ void report() {
    uint64_t* sorted = reinterpret_cast<uint64_t*>(memory);
    uint32_t size = kWarp;
    while (size < beam.segment * kWarp) size *= 2;
    for (uint32_t i = lane_number(); i < size; i += kWarp)
      sorted[i] = i < args.beam ? answer_of(beam.keys[i]) : RowKey::kNone;
    __syncwarp();
    sort_shared(sorted, size, WarpSorts{});
    write_answer(args, walker.shared.query, sorted);
  }

  __device__ uint64_t answer_of(uint64_t key) const {
    return key != RowKey::kNone && args.removed.holds(RowKey::row(key)) ? RowKey::kNone : key;
  }
};

template <class Walk>
__global__ void __launch_bounds__(Walk::kThreads, Walk::kBlocks) walk(const __grid_constant__ WalkArgs args) {
  __shared__ typename Walk::Shared shared;
  Walk(args, shared).run();
}

// --- Host ----------------------------------------------------------------------------------------

struct Kernel {
  void (*function)(WalkArgs);
  uint32_t threads;
  uint32_t shared_bytes = 0;  // beyond the bytes that it declares
};

template <class Walk>
Kernel kernel_of() {
  return {walk<Walk>, Walk::kThreads};
}

template <Policy kPolicy>
Kernel one_list_kernel(uint32_t beam) {
  return {walk<OneList<kPolicy>>, OneList<kPolicy>::kThreads, BeamShape::of(beam).bytes()};
}

/// `kLoops`: over entry points, where no pivots are known. `kScaled`: by codes with a scale for each row.
template <CodeKind kKind, uint32_t kRowBytes, uint32_t kBestWords, bool kLoops, bool kScaled>
Kernel choose_edges(uint32_t degree) {
  constexpr auto policy_of = [](uint32_t edge_words, bool any_degree) {
    const Policy policy = two_lists(kKind, kRowBytes, edge_words, any_degree, kBestWords);
    return kScaled ? scaled(policy) : policy;
  };
  if constexpr (kBestWords == 1)
    if (degree <= kWarp) return kernel_of<TwoLists<policy_of(1, kLoops)>>();
  return degree <= 2 * kWarp ? kernel_of<TwoLists<policy_of(2, kLoops)>>()
                             : kernel_of<TwoLists<policy_of(2, true)>>();
}

template <CodeKind kKind, uint32_t kRowBytes, bool kLoops = !has_pivots(kKind), bool kScaled = false>
Kernel choose_best(uint32_t degree, uint32_t kept) {
  return kept <= kRegisterListMax
             ? choose_edges<kKind, kRowBytes, 1, kLoops, kScaled>(degree)
             : choose_edges<kKind, kRowBytes, kTwoListsMax / kWarp, kLoops, kScaled>(degree);
}

template <CodeKind kKind>
Kernel choose_two_lists(uint32_t stride, uint32_t degree, uint32_t kept) {
  if constexpr (kKind == CodeKind::kUnsigned) {
    if (stride == 64) return choose_best<kKind, 64>(degree, kept);
    if (stride == 128) return choose_best<kKind, 128>(degree, kept);
  }
  return choose_best<kKind, 0>(degree, kept);
}

Kernel choose_two_lists(CodeKind kind, uint32_t stride, uint32_t degree, uint32_t kept) {
  if (kind == CodeKind::kHalf) return choose_two_lists<CodeKind::kHalf>(stride, degree, kept);
  return kind == CodeKind::kFloat ? choose_two_lists<CodeKind::kFloat>(stride, degree, kept)
                                  : choose_two_lists<CodeKind::kUnsigned>(stride, degree, kept);
}

Kernel choose_one_list(CodeKind kind, uint32_t beam) {
  if (kind == CodeKind::kHalf) return one_list_kernel<one_list(CodeKind::kHalf)>(beam);
  return kind == CodeKind::kFloat ? one_list_kernel<one_list(CodeKind::kFloat)>(beam)
                                  : one_list_kernel<one_list(CodeKind::kUnsigned)>(beam);
}

Kernel choose_scaled_one_list(uint32_t beam) {
  return one_list_kernel<scaled(one_list(CodeKind::kUnsigned))>(beam);
}

Kernel choose_leaving_out(CodeKind kind) {
  return kind == CodeKind::kFloat ? kernel_of<TwoLists<leaving_out(CodeKind::kFloat)>>()
                                  : kernel_of<TwoLists<leaving_out(CodeKind::kUnsigned)>>();
}

template <bool kLoops>
Kernel choose_scaled_two_lists(const WalkArgs& args) {
  constexpr CodeKind kKind = CodeKind::kUnsigned;
  if (!args.removed.empty()) return kernel_of<TwoLists<scaled(leaving_out(kKind))>>();
  return choose_best<kKind, 0, kLoops, true>(args.degree, args.kept);
}

Kernel choose_resident() {
  return kernel_of<TwoLists<resident_batch(two_lists(CodeKind::kUnsigned, 128, 2, false, 1))>>();
}

/// A kernel in which a warp walks with two lists.
Kernel choose_warp_walk(int32_t device, CodeKind kind, const WalkArgs& args) {
  if (!args.removed.empty()) return choose_leaving_out(kind);
  const uint32_t resident = resident_queries(device, kind, args.stride, args.degree, args.kept);
  return args.count <= resident ? choose_resident()
                                : choose_two_lists(kind, args.stride, args.degree, args.kept);
}

WalkChoice resident_blocks(int32_t device, const Kernel& kernel) {
  return {kernel.function, kernel.threads,
          blocks_at_once(device, kernel.function, kernel.threads, kernel.shared_bytes), kernel.shared_bytes};
}

void start(const WalkChoice& choice, const WalkArgs& args, const Stream& stream) {
  launch("walk", choice.function, std::min(choice.blocks_max, args.count * choice.blocks_of_query),
         choice.threads, stream, args, choice.shared_bytes);
}

void clear_counters(const WalkArgs& args, const Stream& stream) {
  fill(args.counters, 0, sizeof(WalkCounters), stream, "clearing device memory");
}

/// Walks that start at the index's entry points, in the order of their queries.
void start_at_entries(int32_t device, const Kernel& kernel, const WalkArgs& args, const Stream& stream) {
  WalkArgs given = args;
  given.starts = nullptr;
  given.order = nullptr;
  clear_counters(args, stream);
  start(resident_blocks(device, kernel), given, stream);
}

}  // namespace

uint32_t resident_queries(int32_t device, CodeKind kind, uint32_t stride, uint32_t degree, uint32_t kept) {
  if (kind != CodeKind::kUnsigned || stride != 128 || degree <= kWarp || degree > 2 * kWarp ||
      kept > kRegisterListMax)
    return 0;
  const Kernel kernel = choose_resident();
  return blocks_at_once(device, kernel.function, kernel.threads) * (kernel.threads / kWarp);
}

void start_two_lists(int32_t device, CodeKind kind, const WalkArgs& args, uint32_t warps,
                     const Stream& stream) {
  WalkArgs given = args;
  if (!has_pivots(kind)) given.starts = nullptr;
  given.order = given.starts == nullptr ? nullptr : given.starts + uint64_t{given.count} * kStarts;
  if (warps > 1) {
    if (args.counts == nullptr && args.counters != nullptr) clear_counters(args, stream);
    const bool clusters = warps == 16 && serves_clusters(device, kind, args);
    return start(choose_block_walk(kind, args, warps, clusters), given, stream);
  }
  const WalkChoice choice = resident_blocks(device, choose_warp_walk(device, kind, args));
  if (given.starts != nullptr)
    find_starts(given, false, stream);
  else
    clear_counters(args, stream);
  start(choice, given, stream);
}

void start_one_list(int32_t device, CodeKind kind, const WalkArgs& args, const Stream& stream) {
  start_at_entries(device, choose_one_list(kind, args.beam), args, stream);
}

void start_scaled_one_list(int32_t device, const WalkArgs& args, const Stream& stream) {
  start_at_entries(device, choose_scaled_one_list(args.beam), args, stream);
}

void start_scaled_two_lists(int32_t device, const WalkArgs& args, const Stream& stream) {
  start_at_entries(device, choose_scaled_two_lists<true>(args), args, stream);
}

void start_narrow_two_lists(int32_t device, const WalkArgs& args, const Stream& stream) {
  WalkArgs given = args;
  given.order = given.starts + uint64_t{given.count} * kStarts;
  const WalkChoice choice = resident_blocks(device, choose_scaled_two_lists<false>(args));
  find_starts(given, true, stream);
  start(choice, given, stream);
}

}  // namespace gannet::cuda
