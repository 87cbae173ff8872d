// CAGRA's single-CTA search on the GPU (section IV-C1): one block answers one query, in one kernel.
//
//   M          places of the list of the nearest rows met, sorted by distance, then row
//   p, d       parents of an iteration, edges of a row; p d candidates
//   (1) (2) (3)  the steps of figure 6, as search/cagra.h names them
//   forgettable  a table in shared memory of 2^8 to 2^13 places that is emptied every `reset` iterations
//                and takes up the rows of the list again (IV-B3)
//   standard     a table in device memory, for each block that runs, never emptied during a query
//   flag         the lowest bit of a key: the row has been a parent (IV-B4)
//
// Step (1) has two ways (IV-B2). With up to 512 candidates and a list of up to 512 one warp sorts and
// merges in its registers. Else a radix selection over list and candidates by the whole block, four times
// as many threads, finds the M-th key; the list is then in no order, and its nearest row is looked for.
//
// Bytes of an iteration at p = 1, d = 32 and rows of 128 bytes: 128 of edges, some 20 new rows, 2.6 KB.
// M = 64 takes some 75 iterations: 200 KB a query, and a fifth more where the table forgets. Operations of
// an iteration: 20 rows of 8 lanes, 60 each; a sort of 32 keys in 15 exchanges, a merge in 6 x 2.
//
// One NVIDIA H200, 1M SIFT rows of 128 bytes, 32 edges, batch 10,000, M = 64, k = 10: 6.3 M queries/s at recall 0.967
// by teams of 8 lanes, and 4.8 with the standard table; figures 8 and 9 are in tests/bench/results.csv. One warp sorts
// and merges: at M = 512 that is most of the time, and a table that forgets costs 60 % more distances, so the standard
// one is as fast. Selecting the parent of a list without order by radix too took 214 ms instead of 133 at M = 1,024.
//
// Departures from the paper. New candidates are packed before they are compared, so that no team stands
// idle, and those that are no nearer than the end of a full list are dropped before they are sorted:
// neither changes a list. The flag is the lowest bit of a key instead of the highest of a row, so that it
// is no part of the order. Blocks take one query after the other, as many as run at once. Start rows come
// from the query's content (search/cagra.h).

#include "search/cagra_steps.cuh"

namespace gannet::cuda {
namespace {

constexpr uint32_t kThreads = 64;
constexpr uint32_t kRadixThreads = 256;
constexpr uint32_t kThreadsMax = 256;
constexpr uint32_t kBlocksOfMax = 4;        // of a multiprocessor at 256 threads: 64 registers a thread
constexpr uint32_t kRegisterKeysMax = 512;  // that one warp sorts
constexpr uint32_t kDigits = 256;

bool sorts_by_radix(const CagraPlan& plan, uint32_t degree) {
  return plan.list > kRegisterKeysMax || plan.width * degree > kRegisterKeysMax;
}

/// The parts of a block's shared memory, in this order; sizes are those of the plan.
struct Layout {
  uint32_t list_size;   // keys
  uint32_t candidates;  // keys and rows, a power of two
  uint32_t width;       // rows
  uint32_t table;       // places; 0: it lies in device memory

  __host__ __device__ uint32_t keys_at() const { return list_size * 8; }
  __host__ __device__ uint32_t rows_at() const { return keys_at() + candidates * 8; }
  __host__ __device__ uint32_t parents_at() const { return rows_at() + candidates * 4; }
  __host__ __device__ uint32_t table_at() const { return parents_at() + (width + 3) / 4 * 16; }
  __host__ __device__ uint32_t bytes() const { return table_at() + table * 4; }
};

/// The small things that a block shares.
struct Shared {
  CagraQuery query;
  uint64_t farthest;           // key of the last place of the list, or a number up to the next one met
  unsigned long long nearest;  // of those that have not been parents
  unsigned long long any;      // of the bits of keys
  unsigned long long all;
  uint32_t histogram[kDigits];
  uint32_t digit;
  uint32_t before;
  uint32_t within;
  uint32_t number;     // of the query
  uint32_t count;      // of new candidates
  uint32_t survivors;  // of them, nearer than `farthest`
  uint32_t parents;
  uint32_t holes;
  uint32_t movers;
  uint32_t distances;
  uint32_t expansions;
};

template <RowKind kKind>
struct SingleCta {
  const CagraArgs& args;
  Shared& shared;
  Layout layout;
  uint64_t* list;     // [list_size]
  uint64_t* keys;     // [candidates] of survivors
  uint32_t* rows;     // [candidates] new ones
  uint32_t* parents;  // [width]
  uint32_t* table;    // [2^hash_bits] rows; kNoRow in empty places

  __device__ SingleCta(const CagraArgs& given, Shared& block_shared, uint8_t* memory)
      : args(given),
        shared(block_shared),
        layout{given.list_size, warp_size_of(given.width * given.graph.stride), given.width,
               given.tables == nullptr ? 1u << given.hash_bits : 0},
        list(reinterpret_cast<uint64_t*>(memory)),
        keys(reinterpret_cast<uint64_t*>(memory + layout.keys_at())),
        rows(reinterpret_cast<uint32_t*>(memory + layout.rows_at())),
        parents(reinterpret_cast<uint32_t*>(memory + layout.parents_at())),
        table(given.tables == nullptr ? reinterpret_cast<uint32_t*>(memory + layout.table_at())
                                      : given.tables + (uint64_t{blockIdx.x} << given.hash_bits)) {}

  __device__ bool sorts_by_radix() const { return blockDim.x == kRadixThreads; }

  __device__ void run() {
    if (threadIdx.x == 0) shared.distances = shared.expansions = 0;
    uint32_t number = blockIdx.x;
    while (number < args.count) {
      begin(number);
      start();
      for (uint32_t iteration = 0;; ++iteration) {
        compare();
        update();
        if (iteration == args.iterations_max || !choose_parents()) break;
        if (args.reset != 0 && iteration % args.reset == 0) forget();
        expand();
      }
      report(number);
      number = next_query();
    }
    if (threadIdx.x != 0) return;
    atomicAdd(&args.counters->distances, static_cast<unsigned long long>(shared.distances));
    atomicAdd(&args.counters->expansions, static_cast<unsigned long long>(shared.expansions));
  }

  __device__ uint32_t next_query() {
    if (threadIdx.x == 0) shared.number = gridDim.x + atomicAdd(&args.counters->queue, 1u);
    __syncthreads();
    return shared.number;
  }

  __device__ void begin(uint32_t number) {
    for (uint32_t i = threadIdx.x; i < args.list_size; i += blockDim.x) list[i] = RowKey::kNone;
    clear_table();
    if (threadIdx.x < kWarp) {
      const CagraQuery query = read_query(args, kKind == RowKind::kBytes, number);
      if (lane_number() == 0) {
        shared.query = query;
        shared.farthest = RowKey::kNone;
        shared.count = shared.survivors = 0;
      }
    }
    __syncthreads();
  }

  /// Step (0): random rows.
  __device__ void start() {
    const uint32_t places = args.width * args.graph.stride;
    for (uint32_t i = threadIdx.x; i < places; i += blockDim.x)
      meet(shown_start(args, shared.query.content, places, i));
    __syncthreads();
  }

  /// Step (2): the ends of the parents' edges that have not been met.
  __device__ void expand() {
    const uint32_t places = shared.parents * args.graph.stride;
    for (uint32_t i = threadIdx.x; i < places; i += blockDim.x) {
      const uint32_t parent = i / args.graph.stride;
      meet(__ldg(args.graph.fixed_row(parents[parent]) + (i - parent * args.graph.stride)));
    }
    __syncthreads();
  }

  __device__ void meet(uint32_t row) {
    if (row != kNoRow && enter(row)) rows[atomicAdd(&shared.count, 1u)] = row;
  }

  /// Step (3). Survivors are those that may enter the list.
  __device__ void compare() {
    const uint64_t farthest = shared.farthest;
    compare_rows<kKind>(args, shared.query, rows, shared.count, [&](uint32_t place, uint32_t distance) {
      const uint64_t key = RowKey::of(distance, rows[place], false);
      if (key < farthest) keys[atomicAdd(&shared.survivors, 1u)] = key;
    });
    __syncthreads();
  }

  /// Step (1).
  __device__ void update() {
    if (!sorts_by_radix() && threadIdx.x >= kWarp) return;
    const uint32_t survivors = shared.survivors;
    if (sorts_by_radix()) {
      if (survivors != 0) select_list(survivors);
      __syncthreads();
    } else if (survivors != 0) {
      update_list(list, args.list, keys, survivors);
      if (lane_number() == 0) shared.farthest = list[args.list - 1] | RowKey::kFlag;
    }
    __syncwarp();
    if (threadIdx.x != 0) return;
    shared.distances += shared.count;
    shared.count = shared.survivors = 0;
  }

  /// The p nearest rows that have not been parents; false where there is none.
  __device__ bool choose_parents() {
    if (sorts_by_radix()) {
      find_parents();
    } else if (threadIdx.x < kWarp) {
      __syncwarp();  // thread 0 has written the scalars
      const uint32_t taken = take_parents(list, args.list, args.width, parents);
      if (lane_number() == 0) shared.parents = taken;
    }
    __syncthreads();
    if (threadIdx.x == 0) shared.expansions += shared.parents;
    return shared.parents != 0;
  }

  // The table of rows met, with open addressing.

  __device__ void clear_table() const {
    const uint4 empty = {kNoRow, kNoRow, kNoRow, kNoRow};
    for (uint32_t i = threadIdx.x; i < 1u << (args.hash_bits - 2); i += blockDim.x)
      reinterpret_cast<uint4*>(table)[i] = empty;
  }

  /// Whether the row was not there. The plan sees to it that some places stay empty.
  __device__ bool enter(uint32_t row) const {
    const uint32_t mask = (1u << args.hash_bits) - 1;
    for (uint32_t place = row * 0x9e3779b1 >> (32 - args.hash_bits);; place = (place + 1) & mask) {
      const uint32_t found = atomicCAS(table + place, kNoRow, row);
      if (found == kNoRow) return true;
      if (found == row) return false;
    }
  }

  __device__ void forget() const {
    clear_table();
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < args.list; i += blockDim.x) {
      if (list[i] != RowKey::kNone) enter(RowKey::row(list[i]));
    }
    __syncthreads();
  }

  // Selection by radix, by the whole block.

  /// The list keeps its M nearest of its own keys and the survivors.
  __device__ void select_list(uint32_t survivors) {
    const uint64_t last = select(args.list, [&](const auto& show) {
      for (uint32_t i = threadIdx.x; i < args.list + survivors; i += blockDim.x)
        show(i < args.list ? list[i] : keys[i - args.list]);
    });
    if (threadIdx.x == 0) shared.holes = shared.movers = 0;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < args.list; i += blockDim.x) {
      if (list[i] <= last && list[i] != RowKey::kNone) continue;
      const uint32_t hole = atomicAdd(&shared.holes, 1u);
      if (hole < survivors) rows[hole] = i;  // the new rows have been compared
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < survivors; i += blockDim.x) {
      if (keys[i] <= last) list[rows[atomicAdd(&shared.movers, 1u)]] = keys[i];
    }
    if (threadIdx.x == 0) shared.farthest = last;
    __syncthreads();
  }

  /// One parent after the other: the nearest of a list without order.
  __device__ void find_parents() {
    uint32_t taken = 0;
    for (; taken < args.width; ++taken) {
      if (threadIdx.x == 0) shared.nearest = RowKey::kNone;
      __syncthreads();
      uint64_t nearest = RowKey::kNone;
      for (uint32_t i = threadIdx.x; i < args.list; i += blockDim.x) {
        if (!RowKey::flag(list[i])) nearest = min(nearest, list[i]);  // kNone has the flag
      }
#pragma unroll
      for (uint32_t half = kWarp / 2; half != 0; half /= 2)
        nearest = min(nearest, __shfl_xor_sync(kAllLanes, nearest, half));
      if (lane_number() == 0 && nearest != RowKey::kNone) atomicMin(&shared.nearest, nearest);
      __syncthreads();
      const uint64_t parent = shared.nearest;
      if (parent == RowKey::kNone) break;
      for (uint32_t i = threadIdx.x; i < args.list; i += blockDim.x) {
        if (list[i] == parent) list[i] |= RowKey::kFlag;
      }
      if (threadIdx.x == 0) parents[taken] = RowKey::row(parent);
      __syncthreads();
    }
    if (threadIdx.x == 0) shared.parents = taken;
  }

  /// The key of a rank (1: the smallest) among those that each() shows, or a number between it and the
  /// next: digit after digit from the first bit in which they differ.
  template <class Each>
  __device__ uint64_t select(uint32_t rank, const Each& each) {
    find_bits(each);
    const uint64_t differing = shared.any ^ shared.all;
    uint32_t shift = 64 - static_cast<uint32_t>(__clzll(static_cast<long long>(differing)));
    uint64_t below = shift == 64 ? ~uint64_t{0} : (uint64_t{1} << shift) - 1;  // bits not yet known
    uint64_t prefix = shared.all & ~below;
    while (shift != 0) {
      const uint32_t next = shift > 8 ? shift - 8 : 0;
      for (uint32_t i = threadIdx.x; i < kDigits; i += blockDim.x) shared.histogram[i] = 0;
      __syncthreads();
      each([&](uint64_t key) {
        if ((key & ~below) == prefix) atomicAdd(&shared.histogram[(key & below) >> next], 1u);
      });
      __syncthreads();
      if (threadIdx.x < kWarp) find_digit(rank);
      __syncthreads();
      rank -= shared.before;
      prefix |= uint64_t{shared.digit} << next;
      below = (uint64_t{1} << next) - 1;
      shift = next;
      if (shared.within == rank) break;  // all of them are wanted
    }
    __syncthreads();
    return prefix | below;
  }

  template <class Each>
  __device__ void find_bits(const Each& each) {
    if (threadIdx.x == 0) {
      shared.any = 0;
      shared.all = ~0ull;
    }
    __syncthreads();
    unsigned long long any = 0;
    unsigned long long all = ~0ull;
    each([&](uint64_t key) {
      any |= key;
      all &= key;
    });
    atomicOr(&shared.any, any);
    atomicAnd(&shared.all, all);
    __syncthreads();
  }

  /// The digit in which the rank falls, by one warp: eight digits a lane.
  __device__ void find_digit(uint32_t rank) {
    constexpr uint32_t kOwn = kDigits / kWarp;
    uint32_t sum = 0;
    for (uint32_t i = 0; i < kOwn; ++i) sum += shared.histogram[lane_number() * kOwn + i];
    uint32_t until = sum;
    for (uint32_t half = 1; half < kWarp; half *= 2) {
      const uint32_t lower = __shfl_up_sync(kAllLanes, until, half);
      if (lane_number() >= half) until += lower;
    }
    uint32_t before = until - sum;
    if (before >= rank || until < rank) return;
    for (uint32_t i = 0; i < kOwn; ++i) {
      const uint32_t within = shared.histogram[lane_number() * kOwn + i];
      if (before + within >= rank) {
        shared.digit = lane_number() * kOwn + i;
        shared.before = before;
        shared.within = within;
        return;
      }
      before += within;
    }
  }

  __device__ void report(uint32_t number) {
    __syncthreads();
    if (!args.removed.empty())
      drop_removed(args.removed, list, args.list_size);
    else if (sorts_by_radix())
      sort_shared(list, args.list_size, BlockSorts{});
    write_found(args, number, list, args.list);
  }
};

template <RowKind kKind>
__global__ void __launch_bounds__(kThreadsMax, kBlocksOfMax)
    single_cta(const __grid_constant__ CagraArgs args) {
  __shared__ Shared shared;
  extern __shared__ uint4 memory[];
  SingleCta<kKind>(args, shared, reinterpret_cast<uint8_t*>(memory)).run();
}

}  // namespace

// --- Host ----------------------------------------------------------------------------------------

void (*single_cta_kernel(RowKind kind))(CagraArgs) {
  return for_row_kind(kind, [&]<RowKind kKind>() { return single_cta<kKind>; });
}

uint32_t single_cta_threads(const CagraPlan& plan, uint32_t degree) {
  return sorts_by_radix(plan, degree) ? kRadixThreads : kThreads;
}

uint32_t single_cta_shared_bytes(const CagraPlan& plan, uint32_t degree) {
  return Layout{warp_size_of(plan.list), warp_size_of(plan.width * degree), plan.width,
                plan.reset != 0 ? 1u << plan.hash_bits : 0}
      .bytes();
}

}  // namespace gannet::cuda
