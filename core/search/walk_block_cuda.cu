// The walk for few queries on the GPU: a block walks the graph for one query, several rows a round.
//
//   best       the nearest rows visited so far, sorted; d_k is the distance of the k-th
//   queue      the nearest rows visited and not yet expanded, sorted
//   s, T       the slack, and T = (1 + s)^2 d_k: rows nearer than T are worth expanding
//   p          parents of a round: warps / (degree / 32)
//   start      each warp compares 32 pivots, or rounds of 32 where there are many, and offers its nearest ones
//   round      the first p rows of the queue that are nearer than T are expanded, each warp taking an even part of
//              the edges of one, 32 at most: drop the rows that have been visited, compare the others, offer those nearer than
//              max(d_kept, min(T, end of the queue))
//   merge      all threads put the offered rows into both lists: the place of a row in the new list is
//              its place in its own list and the number of rows before it in the others
//   stop       when the head of the queue is not nearer than T, or the cap on expansions is reached
//   code       where codes are lossy, a block makes that of its query first (encode_steps.cuh), and at the
//              end compares the rows that it kept once more, as stored (rerank_steps.cuh)
//   answer     of a batch that lies on the device, a block also makes the record of its query (record_steps.cuh) and
//              writes the answer into the caller's buffers (answer_steps.cuh)
//
// BY INNER PRODUCT rows have a scale each, as in walk_cuda.cu: the code of the query has a table too
// (encode_scaled_steps.cuh), T = d_k + ((1 + s)^2 - 1) |d_k|, and the walk starts at all entry points, as
// many of them at once as the block has threads.
//
// So a search of few queries is one launch and no copy: blocks read the queries where the host has put them,
// a single one comes with the arguments, and answers are written to host memory, where the host looks for
// them. That is 1.6 us faster than waiting for the stream (55.4 us for one query at recall 0.9965, 53.8 so).
//
// The walk of one warp (walk_cuda.cu) is a chain of some 22 dependent steps at recall 0.95. With p rows a
// round the chain is 6 to 8 rounds, of somewhat more distances (1,500 instead of 980 at p = 4, 2,100 at
// p = 8): latency falls to a fifth, work rises by half or doubles. So this is for batches that leave the
// device idle otherwise, and for lists too long for the registers of a warp.
//
// Bytes of a round at p = 8, 64 edges and rows of 128 bytes: 2 KB of edges, some 250 new rows, 32 KB.
// Operations: 16 warps x (filter 40, loads and products 80, exchanges 30), then for each of the 100 rows
// of both lists and each of the 30 to 60 that were offered a count over the offered ones. Latency binds:
// two trips to memory, 0.7 us each under load, and two barriers.
//
// Equal answers. Blocks run 8 to 16 warps that reach the same rows, so their order must not show. Rows
// are looked up in the filter as it was at the start of the round, and enter it while the lists are
// merged; a row that several parents of a round lead to is offered by whichever warp claims it first in
// an exact table of the round. So the set of rows that are compared, and of those offered, is a function
// of the query, and the lists are sorted by distance and row. Blocks of 8 warps and clusters claim rows before they
// compare them. A block of 16 warps, which is alone on its multiprocessor, claims them while their codes are on the
// way, and compares some twice, which counts once: claimed first, one query took 1.05 (SIFT) to 1.08 (shells) of the
// cycles.
//
// Thinning out the offered rows by a histogram of distances gained nothing. A search without branches in a few
// sorted rows cost the walks for 1,000 answers 23 %.
//
// Cycles of one query with 16 warps at recall .95, k = 10, on one NVIDIA H200; in brackets those of the kernel before a
// look at them, where they were more:
//                                                 shells 500,000 x 24    words 150,000 x 100    counts 60,000 x 256
//   lists and filter; record and code of the query      4,700 (5,800)          4,800 (5,700)         7,700 (8,300)
//   pivots, merged                                      4,700 (5,000)          5,000 (4,900)         9,400 (11,500)
//   the first round: expand                             3,400                  3,200                  9,200
//     merge                                             3,100 (4,900)          3,200 (5,500)          3,100 (5,300)
//   8, 3 and 6 rounds more: expand                     34,000 (42,500)        12,000                 44,000
//     merge                                            11,000 (14,700)         4,400                 12,000 (15,000)
//   rows as stored, and the answer                      4,600 (5,600)          5,500 (6,700)         7,000 (7,400)
//   all                                                67,000 (86,000)        39,000 (49,000)      94,000 (104,000)
// A round asks memory twice, for edges and for codes, some 800 cycles each; wide rows come at 30 bytes a cycle.
// What the brackets have more: rows that are kept were requested ahead in every round (1,000 cycles; at the end, where
// they are wide, does as well); claims (700); a loop in a few warps that read one pair of offered keys after the other;
// and steps that are functions of their own read their arguments by a pointer into the constant bank.
//
// CLUSTERS. One multiprocessor reads some 30 bytes a cycle, so that few queries of wide rows spend most of their time
// on comparisons: of GIST's 960 columns a half. Then the blocks of a cluster share these. The first one walks as if
// it were alone; when its warps know what to compare, each block compares every fourth candidate of its warp of the
// same number, and writes the distance into the first block's memory. Pivots and rows that are compared as stored are
// shared likewise. That takes two barriers of the cluster a round; answers and counts are the same. A share of a warp
// is eight rows at most, one for each of its teams, which ask for four pieces of a row at once, and of floats as stored a
// warp asks for eight: one piece after the other, each a trip to memory, took 6,800 cycles a round of GIST, and one query
// 60 us instead of 50 (texts of 384 columns 59 instead of 46; one NVIDIA H200). Clusters take .81 to .86 (GIST, one NVIDIA
// H100, before that) of the time of one block; of rows of 256 bytes .96, by product .88, 320 bytes .90 to .93, and for
// 20 queries .84 to .97. Rejected: rows of 128 and 192 bytes too (the latter .99 to 1.03); 8 blocks (the same for one
// query, 1.03 to 1.48 for 16, as clusters of more blocks do not all run at once); messages between warps, with a number
// beside each row and distance, instead of barriers (GIST .78 instead of .82, texts .93 instead of .94, but racecheck
// takes the polls for races, and the code is harder to trust).
//
// Measured elsewhere (experiment on one NVIDIA H200, 1M SIFT rows, 64 edges, recall 0.95, one query after
// the other, us from host to host): 4 warps 44, 8 warps 33, 12 warps 31.5, 16 warps 31.8; at recall 0.99
// 62, 43, 39 and 38. 32 warps were slower, reading edges of offered rows ahead gained nothing, and a
// block that stays and polls for queries was slower than launches (38 us).
//
// Lists that every warp has in its registers, with one barrier a round and an exact table of the rows visited
// instead of filter and claims, were built, measured on one NVIDIA H200 (as above, kernels, us) and left out.
// Four warps expand a row each. The columns are of different runs, at recalls that are near, not equal. Why it
// is slower was not profiled; one guess is that every warp waits for the same chain of instructions at a merge.
//                            shared lists                   lists in every warp
//   one query                34.1 at 0.965, 41.9 at 0.990   38.9 at 0.956, 51.2 at 0.987
//   100 queries              45.2 at 0.948, 55.3 at 0.983   57.2 at 0.939, 103 at 0.982
//   1,000 queries            133 at 0.957                   138 at 0.956 (7 blocks of a multiprocessor; 5: 161)
// There, all rows of 64 edges on their way at once cost one query 6 %, and 1,000 queries 27 % (3 blocks of a
// multiprocessor instead of 5); edges of offered rows read ahead to the second cache gained nothing. A warp a query
// (walk_cuda.cu) at 1,000 queries: 134 at 0.957 with its cap, 277 at 0.992; two parents a step 119 at 0.957,
// where 128 registers and the query held in them alone gave 121.
//
// Departures from CAGRA's searches, which share one list per block or per query: two lists and slack as in
// walk_cuda.cu; the filter never forgets.

#include <cooperative_groups.h>

#include <algorithm>

#include "search/answer_steps.cuh"
#include "search/encode_scaled_steps.cuh"
#include "search/encode_steps.cuh"
#include "search/record_steps.cuh"
#include "search/rerank_steps.cuh"
#include "search/walk_cuda.h"
#include "traverse/scaled_steps.cuh"
#include "traverse/visited_words.cuh"

namespace gannet::cuda {
namespace {

/// What the blocks of a cluster do together. In code for devices that have none the first one is alone.
namespace cluster {
#if __CUDA_ARCH__ >= 900
__device__ inline uint32_t rank() { return cooperative_groups::this_cluster().block_rank(); }
__device__ inline void sync() { cooperative_groups::this_cluster().sync(); }
/// The same place in the first block's shared memory.
template <class T>
__device__ T* of_first_block(T* own) {
  return cooperative_groups::this_cluster().map_shared_rank(own, 0);
}
#else
__device__ inline uint32_t rank() { return 0; }
__device__ inline void sync() {}
template <class T>
__device__ T* of_first_block(T* own) {
  return own;
}
#endif
}  // namespace cluster

/// The parameters that a kernel is compiled for.
struct Policy {
  CodePolicy code;
  uint32_t warps;
  uint32_t blocks;  // of a multiprocessor, which bounds registers
  BlockShape shape;
  bool scaled = false;      // codes have a scale for each row, and `code` does not count
  bool leaves_out = false;  // rows may be removed, which walks pass through and do not return
  uint32_t cluster = 1;     // blocks that compare rows for one query
};

// Rows kept of a query: lists are compiled for up to these and for kBlockListMax.
constexpr uint32_t kShortListMax = 32;
constexpr uint32_t kMediumListMax = 128;

// Blocks of 8 warps: 4 of them on a multiprocessor, 64 registers, took 125 us for 1,000 queries at recall
// 0.944 where 3 took 137 (one NVIDIA H200, 1M SIFT rows, k = 10, 64 edges); half the filter changed nothing.
// Blocks of 4 warps, of which all 1,000 run at once, took 174 us at 0.949, blocks of 6 164 at 0.954, of 8 126
// at 0.942 and 134 at 0.957: the longest walk decides, and fewer parents a round make it longer.
// Of other rows 3 took .78 to .94 of the time of 2 for 300 to 1,000 queries (texts of 384 columns, gist, patches; by
// product .75 to .97), at 80 registers instead of 83 to 93; 4, with some of them spilled, up to 1.1 for 300 and by
// product 1.1 to 1.2. Of 100 answers 4 took .74 to .90 of the time of 3 for 500 and 1,000 queries (patches, gist; one
// NVIDIA H100), of 10 answers .90 to 1.01 for 1,000 but up to 1.07 for 500: so many queries of a batch have 4.
// (Nothing here is const, because the host compiler would give kernels of it other names than nvcc does.)
constexpr bool are_many(uint32_t count, uint32_t kept) { return count >= (kept > kShortListMax ? 400 : 800); }

constexpr Policy block_policy(CodeKind kind, uint32_t row_bytes, uint32_t warps, uint32_t kept,
                              bool many = false) {
  CodePolicy code = {kind, row_bytes, row_bytes != 0, true};
  BlockShape shape = block_shape(kept);
  const uint32_t blocks = warps == 16 || kept > kMediumListMax ? 1 : row_bytes != 0 || many ? 4 : 3;
  return {code, warps, blocks, shape};
}

constexpr Policy scaled(Policy policy) {
  policy.scaled = true;
  return policy;
}

// Likewise: the test for removed rows in the kernels of all walks took 4 to 7 % of their time (one NVIDIA H200, 1M
// SIFT rows, k = 100, batches of 1 and 1,000).
constexpr Policy leaving_out(Policy policy) {
  policy.leaves_out = true;
  return policy;
}

constexpr uint32_t kClusterBlocks = 4;
constexpr uint32_t kClusterStride = 256;  // bytes of a code, from which on clusters pay

constexpr Policy in_cluster(Policy policy) {
  policy.cluster = kClusterBlocks;
  return policy;
}

// Blocks of a cluster that work: code for devices that have none leaves all of it to the first.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr uint32_t blocks_that_work(const Policy&) { return 1; }
#define GANNET_IN_CLUSTERS
#else
constexpr uint32_t blocks_that_work(const Policy& policy) { return policy.cluster; }
#define GANNET_IN_CLUSTERS __cluster_dims__(kClusterBlocks, 1, 1)
#endif

/// Keys of a sorted array that come before `key`, without branches. kSize is a power of two, or near one;
/// `size`, at most kSize, counts.
template <uint32_t kSize>
__device__ uint32_t count_before(const uint64_t* sorted, uint32_t size, uint64_t key) {
  constexpr uint32_t kFirst = 1u << (31 - __builtin_clz(kSize));
  uint32_t count = 0;
#pragma unroll
  for (uint32_t step = kFirst; step != 0; step /= 2) {
    const uint32_t next = count + step;
    if (next <= size && sorted[next - 1] < key) count = next;
  }
  return count;
}

/// The same of few keys, whose number is not known before.
__device__ inline uint32_t count_before_few(const uint64_t* sorted, uint32_t size, uint64_t key) {
  uint32_t first = 0;
  while (size > 0) {
    const uint32_t half = size / 2;
    const bool before = sorted[first + half] < key;
    first += before ? half + 1 : 0;
    size = before ? size - half - 1 : half;
  }
  return first;
}

/// Sorted keys of a walk by codes that are the rows.
struct FoundByCodes {
  const uint64_t* keys;

  __device__ uint32_t row(uint32_t place) const {
    return keys[place] == RowKey::kNone ? kNoRow : RowKey::row(keys[place]);
  }
  __device__ float distance(uint32_t place) const { return __uint2float_rn(RowKey::distance(keys[place])); }
};

template <Policy kPolicy>
struct BlockWalk {
  static constexpr uint32_t kWarps = kPolicy.warps;
  static constexpr uint32_t kThreads = kWarps * kWarp;
  static constexpr uint32_t kBlocks = kPolicy.blocks;
  static constexpr uint32_t kQueue = kPolicy.shape.queue;
  static constexpr uint32_t kBest = kPolicy.shape.best;
  static constexpr uint32_t kCluster = blocks_that_work(kPolicy);
  static constexpr bool kIsCluster = kCluster > 1;
  static constexpr uint32_t kShare = kWarp / kCluster;  // of the rows of a warp, those that a block compares
  // No other block runs beside it to fill its waiting, and registers are not scarce.
  static constexpr bool kIsAlone = kWarps == 16;
  static constexpr bool kClaimsLate = kIsAlone && !kIsCluster;
  static constexpr uint32_t kWholeWords = sizeof(WholeArgs) / sizeof(uint32_t);
  using Visited = VisitedWords<kWalkBits, kPolicy.shape.visited_word_bits>;
  // Places of which kThreads are used at most. The slowest of a warp's lanes counts: with 8 times as many
  // instead of twice one query took 42.7 us instead of 45.5 at recall 0.990, 33.3 instead of 35.5 at 0.957.
  static constexpr uint32_t kClaims = (kWarps == 16 ? 8 : 2) * kThreads;
  static constexpr uint32_t kUnits = ANN_DEGREE_MAX / kWarp;  // of the longest list of edges
  static_assert(kUnits <= kWarps && kPivots % kThreads == 0);
  static constexpr uint32_t kStride = kPivots / kThreads;  // of the usual pivots one in this many serves
  // Lists of this many rows are worth sorting the offered ones first.
  static constexpr bool kSortsFirst = kBest + kQueue > 2 * kThreads;

  struct Shared {
    alignas(16) uint32_t visited[Visited::kWords];
    uint64_t queue[2][kQueue];  // of this round and of the next
    uint64_t best[2][kBest];
    alignas(16) uint64_t offered[kThreads];
    uint64_t sorted[kSortsFirst ? kThreads : 1];
    alignas(16) uint32_t claims[kClaims];
    uint32_t candidates[kWarps][kWarp];
    // Of a cluster: what its first block asks of all, what they answer, and this block's part of it.
    uint32_t counts[kIsCluster ? kWarps : 1];  // candidates of each warp
    uint32_t answers[kIsCluster ? kWarps : 1][kIsCluster ? kWarp : 1];
    uint32_t share[kIsCluster ? kWarps : 1][kIsCluster ? kShare : 1];
    uint32_t last_turn;  // whose best rows are compared as stored
    bool is_over;        // the walk
    uint32_t offered_count[2];
    uint32_t distances;
    uint32_t usable;                // whether the query is finite
    WholeArgs whole;                // of the launch, where a block is alone
    alignas(16) uint8_t query[16];  // and on: [code_bytes] its code, and [record_bytes] the record
  };
  static __host__ __device__ uint32_t code_bytes(const WalkArgs& args) {
    if (kPolicy.scaled) return args.whole.scaled.code_bytes;
    return kPolicy.code.kind == CodeKind::kHalf ? 2 * args.stride : args.stride;
  }
  static uint32_t shared_bytes(const WalkArgs& args) {
    return sizeof(Shared) - 16 + code_bytes(args) + args.whole.record_bytes;
  }

  /// Where the record of the query stands, or its code where codes are the rows.
  static __device__ uint8_t* record_place(const WalkArgs& args, Shared& shared) {
    return shared.query + (args.whole.record_bytes != 0 ? code_bytes(args) : 0);
  }

  /// Makes the record of what the caller gave. Before there is a walk: called from within, it took the walks by
  /// product 12 bytes of spills and 7 % of the time of 1,000 queries.
  static __device__ void make_own_record(const WalkArgs& args, Shared& shared) {
    static_assert(sizeof shared.offered >= sizeof(RecordShared));
    const RecordArgs& given = args.whole.given;
    const bool usable =
        make_record_by_block(whole(args, shared).given, given.queries + query_of_block() * given.query_stride,
                             record_place(args, shared), reinterpret_cast<RecordShared&>(shared.offered));
    if (threadIdx.x == 0) shared.usable = usable ? 1 : 0;
  }

  /// Clears lists, filter, claims and counts, and brings the record or the code of the query into shared memory, where
  /// one is given, and for a block that is alone the arguments. Ends with a barrier.
  static __device__ void fill(const WalkArgs& args, Shared& shared) {
    const bool is_given = args.whole.given.queries == nullptr;
    const uint8_t* record = args.queries != nullptr
                                ? args.queries + uint64_t{query_of_block()} * args.query_stride
                                : args.one_query;
    uint8_t* place = record_place(args, shared);
    const uint32_t bytes = !is_given                      ? 0
                           : args.whole.record_bytes != 0 ? args.whole.record_bytes
                                                          : code_bytes(args);
    // The query may lie in host memory, a microsecond away: its first part is requested first.
    const uint32_t own = threadIdx.x * 16;
    uint4 part = {};
    if (own < bytes) part = *reinterpret_cast<const uint4*>(record + own);
    const uint32_t word = kIsAlone ? word_of(args.whole) : 0;
    for (uint32_t i = threadIdx.x; i < Visited::kWords / 4; i += kThreads)
      reinterpret_cast<uint4*>(shared.visited)[i] = {0, 0, 0, 0};
    for (uint32_t i = threadIdx.x; i < kClaims / 4; i += kThreads)
      reinterpret_cast<uint4*>(shared.claims)[i] = {kNoRow, kNoRow, kNoRow, kNoRow};
    for (uint32_t i = threadIdx.x; i < kQueue; i += kThreads) shared.queue[0][i] = RowKey::kNone;
    for (uint32_t i = threadIdx.x; i < kBest; i += kThreads) shared.best[0][i] = RowKey::kNone;
    if (threadIdx.x < 2) shared.offered_count[threadIdx.x] = 0;
    if (threadIdx.x == 0) shared.distances = 0;
    if (threadIdx.x == 0 && is_given) shared.usable = 1;
    if (kIsAlone && threadIdx.x < kWholeWords) reinterpret_cast<uint32_t*>(&shared.whole)[threadIdx.x] = word;
    if (own < bytes) *reinterpret_cast<uint4*>(place + own) = part;
    for (uint32_t byte = own + kThreads * 16; byte < bytes; byte += kThreads * 16)
      *reinterpret_cast<uint4*>(place + byte) = *reinterpret_cast<const uint4*>(record + byte);
    __syncthreads();
  }

  /// This thread's word of the arguments.
  static __device__ uint32_t word_of(const WholeArgs& whole) {
    static_assert(kWholeWords <= kThreads && sizeof whole == kWholeWords * sizeof(uint32_t));
    const uint32_t* words = reinterpret_cast<const uint32_t*>(&whole);
    asm("" : "+l"(words));  // an address in memory: the lanes of a warp read constants one after the other
    return threadIdx.x < kWholeWords ? words[threadIdx.x] : 0;
  }

  /// The arguments of steps that are functions of their own, which have a pointer to them: one into the constant bank
  /// costs each step a trip to memory, or several.
  static __device__ const WholeArgs& whole(const WalkArgs& args, const Shared& shared) {
    return kIsAlone ? shared.whole : args.whole;
  }

  static __device__ uint32_t query_of_block() { return blockIdx.x / kPolicy.cluster; }

  const WalkArgs& args;
  Shared& shared;
  Visited visited{shared.visited};  // a row is added behind a barrier
  std::conditional_t<kPolicy.scaled, ScaledComparison<true>, RowComparison<kPolicy.code>> codes{args.stride};
  uint32_t warp = threadIdx.x / kWarp;
  uint32_t units = (args.degree + kWarp - 1) / kWarp;  // warps that one parent takes
  uint32_t span = (args.degree + units - 1) / units;   // edges of a warp, as many as of the others
  uint32_t parent = warp / units;                      // of this warp
  uint32_t first_edge = warp % units * span;
  uint32_t parents_max = kWarps / units;
  uint32_t* candidates = shared.candidates[warp];  // of this warp
  uint32_t query = query_of_block();
  uint32_t turn = 0;            // which of both lists are this round's
  uint32_t compared = kNoRow;   // the row that this thread has to put into the filter
  uint32_t claim = 0;           // and its place in the table
  uint32_t distance_count = 0;  // of this warp
  uint32_t expansion_count = 0;
  uint32_t parents = 0;        // of this round
  uint32_t bound = kFarthest;  // T
  uint32_t limit = kFarthest;  // only nearer rows are offered

  __device__ void run() {
    if (kIsCluster && threadIdx.x == 0) shared.is_over = false;
    begin();
    if constexpr (kIsCluster) {
      cluster::sync();
      if (cluster::rank() != 0) return serve();
    }
    if (kPolicy.scaled && args.pivot_codes == nullptr) {
      start_at_entries();
    } else {
      offer_pivots();
      __syncthreads();
      merge();
      __syncthreads();
    }
    while (look()) {
      expand();
      __syncthreads();
      merge();
      __syncthreads();
    }
    report();
  }

  /// Whether the block makes the code of its query, and compares the best rows once more.
  __device__ bool makes_code() const { return args.whole.record_bytes != 0; }

  __device__ void begin() {
    if (!kIsAlone) fill(args, shared);
    if (makes_code()) {
      make_code(record_place(args, shared));
      __syncthreads();
    }
    if (args.masked != nullptr && threadIdx.x == 0) compared = args.masked[query];
    codes.begin(shared.query);
  }

  __device__ void make_code(const uint8_t* record) {
    if constexpr (kPolicy.scaled) {
      static_assert(sizeof shared.offered >= sizeof(EncodeScaledShared));
      encode_scaled_query(whole(args, shared).scaled, args.whole.element, record, shared.query,
                          reinterpret_cast<EncodeScaledShared&>(shared.offered));
    } else {
      encode_query<kPolicy.code.kind != CodeKind::kUnsigned>(whole(args, shared).encode, args.whole.element,
                                                             record, shared.query);
    }
  }

  /// Compares the entry points like the edges of rows, and puts them into the lists.
  __device__ void start_at_entries() {
    if (compared != kNoRow) visited.add(Visited::place_of(compared));  // the masked row
    compared = kNoRow;
    __syncthreads();
    for (uint32_t first = 0; first < args.entry_count; first += kThreads) {
      const uint32_t place = first + threadIdx.x;
      visit(place < args.entry_count ? __ldg(args.entries + place) : kNoRow);
      __syncthreads();
      merge();
      __syncthreads();
    }
  }

  /// Each warp compares every kWarps-th pivot, as many as it has lanes, or rounds of so many, and offers the nearest
  /// of those that its lanes have found nearest. Only these count as visited; the others may be found by an edge.
  __device__ void offer_pivots() {
    constexpr uint32_t kOffered = std::min(kQueue / kWarps, kWarp);
    const uint32_t masked = args.masked != nullptr ? args.masked[query] : kNoRow;
    ListEntry item = {};
    for (uint32_t round = 0; round < pivot_rounds(); ++round) {
      const uint32_t distance = compare_pivots_of(round);
      const uint32_t row = __ldg(args.pivots + pivot(round, codes.place()));
      const bool is_nearer = item.row == kNoRow || distance < item.distance;
      if (row != kNoRow && row != masked && is_nearer) item = {distance, row};
      distance_count += kWarp;
    }
    keep_nearest<kOffered>(item);
    offer(item, item.row != kNoRow);
    if (compared == kNoRow)
      compared = item.row;
    else if (item.row != kNoRow)
      visited.add(Visited::place_of(item.row));  // the thread that keeps the masked row
  }

  /// Leaves the kCount nearest rows of a warp, in any lanes. A few are sooner found one by one than by sorting.
  template <uint32_t kCount>
  static __device__ void keep_nearest(ListEntry& item) {
    if constexpr (kCount > 4) {
      sort_lanes<true>(item);
      if (lane_number() >= kCount) item = {};
    } else {
      bool is_kept = false;
#pragma unroll
      for (uint32_t i = 0; i < kCount; ++i) {
        const uint32_t distance = __reduce_min_sync(kAllLanes, is_kept ? kFarthest : item.distance);
        const bool is_nearest = !is_kept && item.distance == distance;
        const uint32_t row = __reduce_min_sync(kAllLanes, is_nearest ? item.row : kNoRow);
        is_kept = is_kept || (is_nearest && item.row == row);
      }
      if (!is_kept) item = {};
    }
  }

  /// The distance of the pivot pivot(round, codes.place()). Blocks of a cluster answer the next round after all of the
  /// first block's have read this one's.
  __device__ uint32_t compare_pivots_of(uint32_t round) {
    if constexpr (kIsCluster) {
      if (round > 0) cluster::sync();
      compare_pivots(round);
      cluster::sync();
      return shared.answers[warp][codes.place()];
    } else {
      __syncwarp();
      candidates[lane_number()] = pivot(round, lane_number());
      __syncwarp();
      return codes.compare(args.pivot_codes, candidates, kWarp, [] {});
    }
  }

  __device__ bool has_many_pivots() const { return args.pivot_count > kPivots; }
  __device__ uint32_t pivot_rounds() const { return has_many_pivots() ? args.pivot_count / kThreads : 1; }

  /// A warp's pivots are numbered as its lanes are.
  __device__ uint32_t pivot(uint32_t round, uint32_t lane) const {
    const uint32_t place = lane * kWarps + warp;
    return has_many_pivots() ? round * kThreads + place : place * kStride;
  }

  /// Chooses the rows that this round expands; false at the end of the walk.
  __device__ bool look() {
    const uint64_t* best = shared.best[turn];
    const uint64_t* queue = shared.queue[turn];
    const uint32_t kth = RowKey::distance(best[args.k - 1]);
    if constexpr (kPolicy.scaled)
      bound = stretched_product(kth, args.slack_squared);
    else
      bound = stretched<kPolicy.code.kind>(kth, args.slack_squared);
    limit = max(RowKey::distance(best[args.kept - 1]), min(bound, RowKey::distance(queue[kQueue - 1])));
    const uint32_t most = min(parents_max, args.expansions_max - expansion_count);
    const uint64_t key = queue[lane_number()];
    const bool is_worth = lane_number() < most && key != RowKey::kNone && RowKey::distance(key) <= bound;
    parents = __popc(__ballot_sync(kAllLanes, is_worth));
    expansion_count += parents;
    return parents != 0;
  }

  __device__ void expand() {
    if (!kIsCluster && parent >= parents) return;
    const uint32_t place = first_edge + lane_number();
    const uint32_t row = RowKey::row(shared.queue[turn][parent]);
    const bool has_edge = parent < parents && lane_number() < span && place < args.degree;
    visit(has_edge ? __ldg(fixed_row(args.edges, args.degree, row) + place) : kNoRow);
  }

  /// Compares the row of each lane of the warp, if it is new, and offers it where it is near enough.
  __device__ void visit(uint32_t target) {
    const bool is_new =
        target != kNoRow && !visited.has(Visited::place_of(target)) && (kClaimsLate || claim_row(target));
    const uint32_t news = __ballot_sync(kAllLanes, is_new);
    const uint32_t count = __popc(news);
    const uint32_t own_place = __popc(news & lanes_before());
    if (is_new) candidates[own_place] = target;
    if (!kClaimsLate && is_new) compared = target;
    __syncwarp();
    if (!kIsCluster && count == 0) return;
    uint32_t lost = 0;  // places of candidates that others compare as well, and offer
    const uint32_t distance = compare(count, [&] {
      if (!kClaimsLate) return;
      const bool is_first = is_new && claim_row(target);
      if (is_first) compared = target;
      lost = __reduce_or_sync(kAllLanes, is_new && !is_first ? 1u << own_place : 0);
    });
    distance_count += count - __popc(lost);
    const bool offers = codes.place() < count && (lost >> codes.place() & 1) == 0;
    const uint32_t found = offers ? candidates[codes.place()] : kNoRow;
    __syncwarp();  // all have read the candidates before they change
    offer({distance, found}, distance < limit && found != kNoRow);
  }

  /// The distances of the candidates of this warp: that of candidates[codes.place()], where those are so many. The
  /// blocks of a cluster take every kCluster-th one each.
  template <class Meanwhile>
  __device__ uint32_t compare(uint32_t count, const Meanwhile& meanwhile) {
    if constexpr (kIsCluster) {
      if (lane_number() == 0) shared.counts[warp] = count;
      cluster::sync();
      compare_share(shared);
      cluster::sync();
      return codes.place() < count ? shared.answers[warp][codes.place()] : kFarthest;
    } else {
      return codes.compare(args.codes, candidates, count, meanwhile);
    }
  }

  /// The other blocks of a cluster compare rows for the first one until its walk is over, each warp for the one of
  /// its number. Barriers here are those of run().
  __device__ void serve() {
    Shared& first = *cluster::of_first_block(&shared);
    if (!kPolicy.scaled || args.pivot_codes != nullptr) {
      for (uint32_t round = 0; round < pivot_rounds(); ++round) {
        if (round > 0) cluster::sync();
        compare_pivots(round);
        cluster::sync();
      }
    }
    for (cluster::sync(); !first.is_over; cluster::sync()) {
      compare_share(first);
      cluster::sync();
    }
    if (makes_code()) compare_as_stored(first);
    cluster::sync();
  }

  __device__ void compare_pivots(uint32_t round) {
    if (lane_number() < kShare)
      shared.share[warp][lane_number()] = pivot(round, cluster::rank() + lane_number() * kCluster);
    answer_share(*cluster::of_first_block(&shared), args.pivot_codes, kShare);
  }

  __device__ void compare_share(Shared& first) {
    const uint32_t place = (cluster::rank() + lane_number() * kCluster) % kWarp;
    const uint32_t count = first.counts[warp];
    const uint32_t row = first.candidates[warp][place];
    const bool is_own = lane_number() < kShare && place < count;
    if (is_own) shared.share[warp][lane_number()] = row;
    answer_share(first, args.codes, __popc(__ballot_sync(kAllLanes, is_own)));
  }

  /// Compares the rows in this warp's share.
  __device__ void answer_share(Shared& first, const uint8_t* rows, uint32_t count) {
    if (count == 0) return;
    __syncwarp();
    static_assert(kShare <= decltype(codes)::kTeams);
    const uint32_t distance = codes.compare_few(rows, shared.share[warp], count);
    if (codes.place() < count) first.answers[warp][cluster::rank() + codes.place() * kCluster] = distance;
  }

  /// Compares one of the rows that are kept with the query as it is.
  __device__ void compare_as_stored(Shared& first) {
    static_assert(kShortListMax <= kWarps * kCluster);
    const uint32_t place = warp * kCluster + cluster::rank();
    if (place >= args.kept) return;
    const uint32_t row = row_of_key(first.best[first.last_turn][place]);
    const Key key = exact_key_of_one(whole(args, shared).rerank, args.whole.element, stored_query(), row);
    if (lane_number() == 0) first.offered[place] = key;
  }

  /// Whether no other thread has claimed the row in this round.
  __device__ bool claim_row(uint32_t row) {
    claim = (row * 0x85ebca6b) >> 7 & (kClaims - 1);
    for (;; claim = (claim + 1) & (kClaims - 1)) {
      const uint32_t holder = atomicCAS(shared.claims + claim, kNoRow, row);
      if (holder == kNoRow) return true;
      if (holder == row) return false;
    }
  }

  /// Puts the rows of the lanes where `is_offered` among those to be merged.
  __device__ void offer(const ListEntry& item, bool is_offered) {
    const uint32_t lanes = __ballot_sync(kAllLanes, is_offered);
    if (lanes == 0) return;
    uint32_t first = 0;
    if (lane_number() == 0) first = atomicAdd(shared.offered_count + turn, __popc(lanes));
    first = __shfl_sync(kAllLanes, first, 0);
    if (is_offered)
      shared.offered[first + __popc(lanes & lanes_before())] =
          RowKey::of(item.distance, item.row, kPolicy.leaves_out && args.removed.holds(item.row));
  }

  /// Makes the lists of the next round, the parents of this one left out, and brings filter and table up
  /// to date. A thread has a key of one of the lists or of those offered, or shares it, and moves it back by the
  /// number of keys before it in the others. Removed rows, whose keys have the flag, are merged into the queue
  /// alone: the lists take their turns then, and the offered keys are cut to the answers in between.
  __device__ void merge() {
    uint32_t count = shared.offered_count[turn];
    if constexpr (kIsAlone) count = thin_out(count);
    if constexpr (kPolicy.leaves_out) {
      merge_lists<true, false>(count);
      __syncthreads();
      merge_lists<false, true>(drop_removed(count));
    } else if constexpr (kIsAlone) {
      merge_in_parts(count);
    } else {
      merge_lists<true, true>(count);
    }
    if (threadIdx.x == 0) shared.offered_count[turn ^ 1] = 0;
    if (compared != kNoRow) {
      visited.add(Visited::place_of(compared));
      shared.claims[claim] = kNoRow;
      compared = kNoRow;
    }
    parents = 0;
    turn ^= 1;
  }

  /// Drops offered rows that none of the lists has room for, where there are many; how many are left. The first round
  /// offers some 350, each of which would be compared with all others. Halves the range of distances until the rows below
  /// are as many as the longer list holds, and not many more.
  __device__ uint32_t thin_out(uint32_t count) {
    constexpr uint32_t kNeeded = kQueue > kBest ? kQueue : kBest;
    constexpr uint32_t kEnough = 2 * kNeeded;
    constexpr uint32_t kTurns = 20;
    static_assert(!kPolicy.leaves_out, "removed rows do not enter the best ones, which would not be filled");
    if (count <= kEnough) return count;
    const uint64_t key = threadIdx.x < count ? shared.offered[threadIdx.x] : RowKey::kNone;
    const uint32_t distance = RowKey::distance(key);
    const uint64_t nearest = shared.best[turn][0];
    uint32_t low = nearest == RowKey::kNone ? 0 : RowKey::distance(nearest);
    uint32_t high = limit;  // all offered rows are nearer
    uint32_t left = count;
    if (threadIdx.x == 0) shared.offered_count[turn ^ 1] = 0;  // of those that stay, behind the next barrier
    for (uint32_t i = 0; i < kTurns && left > kEnough && low < high; ++i) {
      const uint32_t middle = low + (high - low) / 2;
      const uint32_t below = __syncthreads_count(distance < middle);
      if (below >= kNeeded) {
        high = middle;
        left = below;
      } else {
        low = middle + 1;
      }
    }
    if (left == count) return count;
    const bool stays = distance < high;
    const uint32_t lanes = __ballot_sync(kAllLanes, stays);
    uint32_t first = 0;
    if (lane_number() == 0 && lanes != 0) first = atomicAdd(shared.offered_count + (turn ^ 1), __popc(lanes));
    first = __shfl_sync(kAllLanes, first, 0);
    if (stays) shared.offered[first + __popc(lanes & lanes_before())] = key;
    __syncthreads();
    return left;
  }

  template <bool kToQueue, bool kToBest>
  __device__ void merge_lists(uint32_t count) {
    const uint64_t* offered = shared.offered;
    if constexpr (kSortsFirst) {
      sort_offered(count);
      offered = shared.sorted;
    }
    const uint64_t* queue = shared.queue[turn] + parents;
    const uint64_t* best = shared.best[turn];
    uint64_t* next_queue = shared.queue[turn ^ 1];
    uint64_t* next_best = shared.best[turn ^ 1];
    const uint32_t queued = kQueue - parents;
    for (uint32_t i = threadIdx.x; i < kQueue + kBest + count; i += kThreads) {
      if (i < kQueue) {
        if (kToQueue) put(i, i < queued ? queue[i] : RowKey::kNone, offered, count, next_queue, kQueue);
      } else if (i < kQueue + kBest) {
        if (kToBest) put(i - kQueue, best[i - kQueue], offered, count, next_best, kBest);
      } else {
        const uint64_t key = offered[i - kQueue - kBest];
        const uint32_t before = kSortsFirst ? i - kQueue - kBest : count_offered(offered, count, key);
        const uint32_t in_queue = before + count_before<kQueue>(queue, queued, key);
        const uint32_t in_best = before + count_before<kBest>(best, kBest, key);
        if (kToQueue && in_queue < kQueue) next_queue[in_queue] = key;
        if (kToBest && in_best < kBest) next_best[in_best] = key;
      }
    }
  }

  /// The same where threads are more than keys, as a rule: two of a warp share a key of the lists, and four an offered
  /// one, 80 of those at a time. Each counts a part of the offered keys before it, and two of the four then look for its
  /// places in the lists.
  __device__ void merge_in_parts(uint32_t count) {
    static_assert(!kSortsFirst && !kPolicy.leaves_out);
    constexpr uint32_t kOfListed = 2;
    constexpr uint32_t kOfOffered = 4;
    constexpr uint32_t kListThreads = kOfListed * (kQueue + kBest);
    static_assert(kListThreads % kWarp == 0 && kListThreads < kThreads);
    const uint32_t queued = kQueue - parents;
    if (threadIdx.x < kListThreads) {
      const uint32_t i = threadIdx.x / kOfListed;
      const bool in_queue = i < kQueue;
      const uint32_t place = in_queue ? i : i - kQueue;
      uint64_t key = RowKey::kNone;
      if (in_queue && place < queued) key = shared.queue[turn][parents + place];
      if (!in_queue) key = shared.best[turn][place];
      const uint32_t next = place + count_offered_together<kOfListed>(shared.offered, count, key);
      uint64_t* list = in_queue ? shared.queue[turn ^ 1] : shared.best[turn ^ 1];
      if (threadIdx.x % kOfListed == 0 && next < (in_queue ? kQueue : kBest)) list[next] = key;
      return;
    }
    const uint32_t thread = threadIdx.x - kListThreads;
    const bool to_queue = thread % kOfOffered == 0;
    for (uint32_t first = 0; first < count; first += (kThreads - kListThreads) / kOfOffered) {
      const uint32_t i = first + thread / kOfOffered;
      const uint64_t key = i < count ? shared.offered[i] : RowKey::kNone;
      const uint32_t before = count_offered_together<kOfOffered>(shared.offered, count, key);
      if (i >= count || thread % kOfOffered >= 2) continue;
      const uint64_t* list = to_queue ? shared.queue[turn] + parents : shared.best[turn];
      const uint32_t next =
          before + count_before<std::max(kQueue, kBest)>(list, to_queue ? queued : kBest, key);
      uint64_t* merged = to_queue ? shared.queue[turn ^ 1] : shared.best[turn ^ 1];
      if (next < (to_queue ? kQueue : kBest)) merged[next] = key;
    }
  }

  /// Leaves the offered keys that are answers, in any order; how many. Ends with a barrier.
  __device__ uint32_t drop_removed(uint32_t count) {
    const uint64_t key =
        threadIdx.x < count ? shared.offered[threadIdx.x] : RowKey::kNone;  // whose flag is set
    uint32_t& left = shared.offered_count[turn ^ 1];
    if (threadIdx.x == 0) left = 0;
    __syncthreads();
    if (!RowKey::flag(key)) shared.offered[atomicAdd(&left, 1u)] = key;
    __syncthreads();
    const uint32_t answers = left;
    __syncthreads();
    return answers;
  }

  static __device__ void put(uint32_t place, uint64_t key, const uint64_t* offered, uint32_t count,
                             uint64_t* list, uint32_t size) {
    const uint32_t before = key == RowKey::kNone ? count
                            : kSortsFirst        ? count_before_few(offered, count, key)
                                                 : count_offered(offered, count, key);
    if (place + before < size) list[place + before] = key;
  }

  static __device__ uint32_t count_offered(const uint64_t* offered, uint32_t count, uint64_t key) {
    uint32_t before = 0;
#pragma unroll 4
    for (uint32_t i = 0; i + 1 < count; i += 2) {
      const ulonglong2 pair = *reinterpret_cast<const ulonglong2*>(offered + i);
      before += (pair.x < key ? 1 : 0) + (pair.y < key ? 1 : 0);
    }
    if (count % 2 != 0 && offered[count - 1] < key) ++before;
    return before;
  }

  /// The same, counted by kParts lanes that stand beside each other and have the same key. Four pairs are read at
  /// once, those behind the last too: above, each pair waits for the one before it, 65 cycles. Blocks of which several
  /// run on a multiprocessor have no registers for that (1,000 queries took 1.1 of the time), and others to fill the wait.
  template <uint32_t kParts>
  static __device__ uint32_t count_offered_together(const uint64_t* offered, uint32_t count, uint64_t key) {
    constexpr uint32_t kPairs = 4;
    static_assert(kThreads % (2 * kPairs * kParts) == 0);
    uint32_t before = 0;
    for (uint32_t first = threadIdx.x % kParts * 2; first < count; first += 2 * kPairs * kParts) {
      ulonglong2 pairs[kPairs];
#pragma unroll
      for (uint32_t i = 0; i < kPairs; ++i)
        pairs[i] = *reinterpret_cast<const ulonglong2*>(offered + first + 2 * kParts * i);
#pragma unroll
      for (uint32_t i = 0; i < kPairs; ++i) {
        const uint32_t place = first + 2 * kParts * i;
        before +=
            (place < count && pairs[i].x < key ? 1 : 0) + (place + 1 < count && pairs[i].y < key ? 1 : 0);
      }
    }
#pragma unroll
    for (uint32_t other = 1; other < kParts; other *= 2) before += __shfl_xor_sync(kAllLanes, before, other);
    return before;
  }

  __device__ void sort_offered(uint32_t count) {
    if (threadIdx.x < count) {
      const uint64_t key = shared.offered[threadIdx.x];
      shared.sorted[count_offered(shared.offered, count, key)] = key;
    }
    __syncthreads();
  }

  __device__ void report() {
    constexpr uint32_t kWideRow = 1024;  // bytes, from which on rows are worth a request of their own
    const bool wide = !kIsCluster && args.whole.rerank.row_stride >= kWideRow;
    if (wide && makes_code()) prefetch_kept();
    if (lane_number() == 0) atomicAdd(&shared.distances, distance_count);
    if constexpr (kIsCluster) {
      if (threadIdx.x == 0) {
        shared.is_over = true;
        shared.last_turn = turn;
      }
      cluster::sync();
      if (makes_code()) compare_as_stored(shared);
      cluster::sync();  // no block goes while another one reads its memory
    }
    if (makes_code())
      answer_exactly();
    else
      answer();
    // The host takes the counts for a sign that the answer stands in its memory, where that is.
    if (args.counts != nullptr && !writes_answer()) __threadfence_system();
    __syncthreads();
    if (threadIdx.x != 0) return;
    if (args.counts != nullptr)
      *reinterpret_cast<volatile uint64_t*>(args.counts + query) =
          uint64_t{expansion_count} << 32 | shared.distances;
    if (args.counts != nullptr || args.counters == nullptr) return;
    atomicAdd(&args.counters->distances, static_cast<unsigned long long>(shared.distances));
    atomicAdd(&args.counters->expansions, static_cast<unsigned long long>(expansion_count));
  }

  /// Whether the block writes the answer of its query where the caller wants it.
  __device__ bool writes_answer() const { return args.whole.answers.results.ids != nullptr; }

  template <class Found>
  __device__ void write_answer(const Found& found) const {
    write_answer_by_block(whole(args, shared).answers, found, query, shared.usable != 0);
  }

  __device__ void answer() const {
    const uint64_t* best = shared.best[turn];
    if (writes_answer()) return write_answer(FoundByCodes{best});
    const uint64_t first = uint64_t{query} * args.kept;
    for (uint32_t i = threadIdx.x; i < args.kept; i += kThreads) {
      const uint64_t key = best[i];
      args.out_rows[first + i] = key == RowKey::kNone ? kNoRow : RowKey::row(key);
      if (args.out_distances != nullptr)
        args.out_distances[first + i] =
            key == RowKey::kNone ? INFINITY : __uint2float_rn(RowKey::distance(key));
    }
  }

  /// Compares the rows that are kept with the query as it is, and writes the nearest of them.
  __device__ void answer_exactly() {
    static_assert(kBest > kWholeKeptMax || kBest <= kThreads);
    if constexpr (!kIsCluster) {
      for (uint32_t first = warp * kRerankRows; first < args.kept; first += kWarps * kRerankRows) {
        const uint4 rows = {kept_row(first), kept_row(first + 1), kept_row(first + 2), kept_row(first + 3)};
        const Key key = exact_key(whole(args, shared).rerank, args.whole.element, stored_query(), rows);
        if (lane_number() < kRerankRows && first + lane_number() < args.kept)
          shared.offered[first + lane_number()] = key;
      }
    }
    __syncthreads();
    constexpr uint32_t kParts = kIsAlone ? 8 : 1;  // threads that count for a key
    static_assert(!kIsAlone || kBest * kParts <= kThreads);
    const uint32_t place = threadIdx.x / kParts;
    const Key own = place < args.kept ? shared.offered[place] : kNoKey;
    const bool is_first = threadIdx.x % kParts == 0;
    const uint32_t found = __syncthreads_count(own != kNoKey && is_first);
    Key* sorted = shared.best[turn ^ 1];
    uint32_t before = 0;
    if constexpr (kIsAlone)
      before = count_offered_together<kParts>(shared.offered, args.kept, own);
    else if (own != kNoKey)
      before = count_offered(shared.offered, args.kept, own);
    if (own != kNoKey && is_first) sorted[before] = own;
    if (threadIdx.x < args.kept && threadIdx.x >= found) sorted[threadIdx.x] = kNoKey;
    __syncthreads();
    if (writes_answer()) return write_answer(FoundExactly{sorted});
    if (threadIdx.x < args.k) write(threadIdx.x, sorted[threadIdx.x]);
  }

  __device__ const uint8_t* stored_query() const { return shared.query + code_bytes(args); }

  /// Asks the second cache for the kept rows as they are stored, which warps compare that would wait for memory every 64
  /// columns.
  __device__ void prefetch_kept() const {
    constexpr uint32_t kLine = 128;
    const RerankArgs& stored = args.whole.rerank;
    for (uint32_t place = warp; place < args.kept; place += kWarps) {
      const uint32_t row = kept_row(place);
      if (row == kNoRow) return;
      const uint8_t* first = stored.rows + uint64_t{row} * stored.row_stride;
      for (uint32_t byte = lane_number() * kLine; byte < stored.row_stride; byte += kWarp * kLine)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(first + byte));
      // Rows start anywhere in a line.
      if (lane_number() == 0) asm volatile("prefetch.global.L2 [%0];" ::"l"(first + stored.row_stride - 1));
    }
  }

  __device__ uint32_t kept_row(uint32_t place) const {
    return place < args.kept ? row_of_key(shared.best[turn][place]) : kNoRow;
  }

  static __device__ uint32_t row_of_key(uint64_t key) {
    return key == RowKey::kNone ? kNoRow : RowKey::row(key);
  }

  __device__ void write(uint32_t place, Key key) const {
    const uint64_t to = uint64_t{query} * args.k + place;
    args.out_rows[to] = row_of(key);  // kNoKey gives kNoRow
    args.out_distances[to] = key == kNoKey ? INFINITY : distance_of(key);
  }
};

extern __shared__ uint4 block_shared[];

template <class Walk>
__global__ void __launch_bounds__(Walk::kThreads, Walk::kBlocks)
    walk_block(const __grid_constant__ WalkArgs args) {
  auto& shared = reinterpret_cast<typename Walk::Shared&>(*block_shared);
  if (Walk::kIsAlone) Walk::fill(args, shared);
  if (args.whole.given.queries != nullptr) Walk::make_own_record(args, shared);
  Walk{args, shared}.run();
}

template <class Walk>
__global__ void GANNET_IN_CLUSTERS __launch_bounds__(Walk::kThreads, Walk::kBlocks)
    walk_cluster(const __grid_constant__ WalkArgs args) {
  if (blockIdx.x % kClusterBlocks >= Walk::kCluster) return;
  auto& shared = reinterpret_cast<typename Walk::Shared&>(*block_shared);
  if (Walk::kIsAlone) Walk::fill(args, shared);
  if (args.whole.given.queries != nullptr) Walk::make_own_record(args, shared);
  Walk{args, shared}.run();
}

// --- Host ----------------------------------------------------------------------------------------

template <Policy kPolicy>
WalkChoice choice_of(const WalkArgs& args) {
  using Walk = BlockWalk<kPolicy>;
  if constexpr (kPolicy.cluster > 1)
    return {walk_cluster<Walk>, Walk::kThreads, UINT32_MAX, Walk::shared_bytes(args), kPolicy.cluster};
  else
    return {walk_block<Walk>, Walk::kThreads, UINT32_MAX, Walk::shared_bytes(args)};
}

/// With removed rows, by 8 warps.
template <CodeKind kKind, bool kScaled = false>
WalkChoice choose_leaving_out(const WalkArgs& args) {
  constexpr auto policy_of = [](uint32_t kept) {
    const Policy policy = leaving_out(block_policy(kKind, 0, 8, kept));
    return kScaled ? scaled(policy) : policy;
  };
  if (args.kept > kMediumListMax) return choice_of<policy_of(kBlockListMax)>(args);
  return args.kept > kShortListMax ? choice_of<policy_of(kMediumListMax)>(args)
                                   : choice_of<policy_of(kShortListMax)>(args);
}

template <CodeKind kKind, uint32_t kRowBytes>
WalkChoice choose_lists(const WalkArgs& args, uint32_t warps, bool clusters) {
  if constexpr (kKind != CodeKind::kHalf)
    if (!args.removed.empty()) return choose_leaving_out<kKind>(args);
  if (args.kept > kMediumListMax) return choice_of<block_policy(kKind, kRowBytes, 8, kBlockListMax)>(args);
  const bool many = are_many(args.count, args.kept);
  if (args.kept > kShortListMax)
    return many ? choice_of<block_policy(kKind, kRowBytes, 8, kMediumListMax, true)>(args)
                : choice_of<block_policy(kKind, kRowBytes, 8, kMediumListMax)>(args);
  if constexpr (kRowBytes == 0)
    if (warps == 16 && clusters)
      return choice_of<in_cluster(block_policy(kKind, 0, 16, kShortListMax))>(args);
  if (warps == 16) return choice_of<block_policy(kKind, kRowBytes, 16, kShortListMax)>(args);
  return many ? choice_of<block_policy(kKind, kRowBytes, 8, kShortListMax, true)>(args)
              : choice_of<block_policy(kKind, kRowBytes, 8, kShortListMax)>(args);
}

WalkChoice choose_scaled_lists(const WalkArgs& args, uint32_t warps, bool clusters) {
  constexpr CodeKind kKind = CodeKind::kUnsigned;
  if (!args.removed.empty()) return choose_leaving_out<kKind, true>(args);
  if (args.kept > kMediumListMax) return choice_of<scaled(block_policy(kKind, 0, 8, kBlockListMax))>(args);
  const bool many = are_many(args.count, args.kept);
  if (args.kept > kShortListMax)
    return many ? choice_of<scaled(block_policy(kKind, 0, 8, kMediumListMax, true))>(args)
                : choice_of<scaled(block_policy(kKind, 0, 8, kMediumListMax))>(args);
  if (warps == 16 && clusters)
    return choice_of<in_cluster(scaled(block_policy(kKind, 0, 16, kShortListMax)))>(args);
  if (warps == 16) return choice_of<scaled(block_policy(kKind, 0, 16, kShortListMax))>(args);
  return many ? choice_of<scaled(block_policy(kKind, 0, 8, kShortListMax, true))>(args)
              : choice_of<scaled(block_policy(kKind, 0, 8, kShortListMax))>(args);
}

}  // namespace

WalkChoice choose_block_walk(CodeKind kind, const WalkArgs& args, uint32_t warps, bool clusters) {
  if (args.whole.scaled.code_bytes != 0) return choose_scaled_lists(args, warps, clusters);
  if (kind == CodeKind::kHalf) return choose_lists<CodeKind::kHalf, 0>(args, warps, clusters);
  if (kind == CodeKind::kFloat) return choose_lists<CodeKind::kFloat, 0>(args, warps, clusters);
  return args.stride == 128 ? choose_lists<CodeKind::kUnsigned, 128>(args, warps, clusters)
                            : choose_lists<CodeKind::kUnsigned, 0>(args, warps, clusters);
}

/// All clusters are to run at once, and a group of multiprocessors has not always a multiple of four.
bool serves_clusters(int32_t device, CodeKind kind, const WalkArgs& args) {
  if (args.stride < kClusterStride) return false;
  int clusters = 0;
  int multiprocessors = 0;
  int memory = 0;
  check(runtime().attribute(&clusters, cudaDevAttrClusterLaunch, device), "asking for clusters");
  check(runtime().attribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
        "asking for multiprocessors");
  check(runtime().attribute(&memory, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
        "asking for shared memory of a block");
  return clusters != 0 &&
         choose_block_walk(kind, args, 16, true).shared_bytes <= static_cast<uint32_t>(memory) &&
         uint64_t{args.count} * kClusterBlocks <= static_cast<uint32_t>(multiprocessors) * 3 / 4;
}

uint32_t allow_block_walks(int32_t device, CodeKind kind, const WalkArgs& shape) {
  int limit = 0;
  check(runtime().attribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
        "asking for shared memory of a block");
  uint32_t allowed = 0;
  WalkArgs args = shape;
  const uint32_t no_row = 0;
  for (const uint32_t kept : {kShortListMax, kMediumListMax, kBlockListMax}) {
    args.kept = kept;
    struct Variant {
      uint32_t warps;  // 0: with removed rows
      uint32_t count;
      bool clusters = false;
    };
    for (const Variant variant : {Variant{8, 1}, {8, UINT32_MAX}, {16, 1}, {16, 1, true}, {0, 1}}) {
      args.removed.words = variant.warps == 0 ? &no_row : nullptr;
      args.count = variant.count;
      const WalkChoice choice = choose_block_walk(kind, args, variant.warps, variant.clusters);
      // Clusters take some memory more: where there is none, one block walks.
      if (variant.clusters && choice.shared_bytes > static_cast<uint32_t>(limit)) continue;
      if (choice.shared_bytes > static_cast<uint32_t>(limit)) return allowed;
      // Always the most, so that an index of shorter rows does not take it away again.
      allow_shared(choice.function, static_cast<uint32_t>(limit));
    }
    allowed = kept;
  }
  return allowed;
}

}  // namespace gannet::cuda
