// CAGRA's multi-CTA search on the GPU (section IV-C2): several blocks answer one query, each with a list of
// its own and p parents an iteration; the rows met by any of them stand in one table in device memory.
//
// The paper's p is 1. Each row of a list becomes a parent, so that a list of 32 takes 32 iterations and more,
// and an iteration waits for memory four times. With more parents it waits as often, for more rows at once:
// 4, the default, take half the time of one query for a third more distances.
//
//   C          blocks ("CTAs") of a query, a group
//   M          places of the list of each of them
//   place      of a candidate: its number among all of its query, iterations in order, then CTAs, then edges
//   claim      an entry of the table: a row, and the lowest place at which it was met
//   step       how often a CTA has come to where it waits for the others of its group
//
// An iteration of a CTA:
//   (2)        claims the rows that its parent's edges lead to, at their places, and says that it has
//   (3)        compares the rows that had no claim before; meanwhile the others claim
//              waits until all of the group have claimed, and drops the rows of which another has the lower
//              place
//   (1)        merges the others into its list; takes the next parents
// At the end the first CTA of the group merges the lists.
//
// Two CTAs may meet a row at the same time. The paper leaves it to whoever comes first; then answers would
// differ from run to run. With claims a row belongs to the lowest place, whatever the schedule, and the
// answers are those of a loop over the CTAs on the CPU. The price is one wait an iteration, which passes
// while the rows are on their way from memory, and a row that is sometimes compared twice (counted once).
//
// All CTAs of a group must run at the same time, so the launch is a cooperative one and the grid is as large
// as the device holds at once; groups take one query after the other.
//
// Bytes of an iteration of a CTA: as in search/cagra_single_cta.cu, and 32 claims of 8 bytes. The table of
// a query is cleared before it starts: 64 KB for two lists of 32 and 32 edges. Operations likewise. Latency
// binds: an iteration is four dependent trips to memory (edges, claims, rows, claims again), of which edges and rows
// come from beyond the cache. Where few CTAs run, each row that is met is fetched into the cache while it is
// claimed, and its edges beside it: of 64 lines that an iteration fetches then, one of edges is used.

// One query of 1M SIFT rows, host to host on one NVIDIA H200, M = 128: 168 us, where a single CTA takes 525; of 10,000
// queries a second it answers half as many. So several CTAs serve few queries, which is figure 10's picture and figure
// 7's rule, and large batches where high recall needs long lists. Four parents an iteration instead of one take a
// query of words from 191 to 103 us, M = 256. The figures are in tests/bench/results.csv (figure 10).
//
// Rejected: tables of two, four and eight times the places, so that fewer claims find another row in theirs: 164, 167
// and 172 us at M 64.

#include "search/cagra_steps.cuh"

namespace gannet::cuda {
namespace {

constexpr uint32_t kThreads = 64;       // for each parent of an iteration
constexpr uint32_t kThreadsMost = 256;  // for 4 parents and more
constexpr uint32_t kBlocks = 4;         // of so many threads a multiprocessor
constexpr uint64_t kUnclaimed = ~uint64_t{0};
constexpr uint32_t kFewCtas = 256;    // of all queries: the device's bandwidth is idle
constexpr uint32_t kLineBytes = 128;  // that a cache fetches

/// The parts of a block's shared memory, in this order.
struct Layout {
  uint32_t list_size;   // keys
  uint32_t candidates;  // keys, rows and claims, a power of two
  uint32_t merged;      // keys of all lists; over the others

  __host__ __device__ uint32_t keys_at() const { return list_size * 8; }
  __host__ __device__ uint32_t rows_at() const { return keys_at() + candidates * 8; }
  __host__ __device__ uint32_t slots_at() const { return rows_at() + candidates * 4; }
  __host__ __device__ uint32_t places_at() const { return slots_at() + candidates * 4; }
  __host__ __device__ uint32_t numbers_at() const { return places_at() + candidates * 4; }
  __host__ __device__ uint32_t bytes() const {
    const uint32_t search = numbers_at() + candidates * 4;
    return search > merged * 8 ? search : merged * 8;
  }
};

struct Shared {
  CagraQuery query;
  uint64_t farthest;  // key of the last place of the list
  uint32_t count;     // of new candidates
  uint32_t survivors;
  uint32_t parents;  // how many
  uint32_t rows[kCagraWidthMax];
  uint32_t lost;  // candidates that belong to another CTA, or to a lower place of this one
  uint32_t distances;
  uint32_t expansions;
};

/// After a barrier of the block, whose other threads' claims it publishes too.
__device__ inline void publish(uint32_t* progress, uint32_t step) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(progress), "r"(step) : "memory");
}

__device__ inline void fetch_ahead(const void* line) { asm volatile("prefetch.global.L2 [%0];" ::"l"(line)); }

__device__ inline uint32_t observe(const uint32_t* progress) {
  uint32_t step;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(step) : "l"(progress) : "memory");
  return step;
}

/// update_list for a list of 32 and at most 32 kWords keys: a key's place is the number of smaller ones. Those are
/// counted with few steps that depend on each other, where a sort has 20. By one warp.
template <uint32_t kWords>
__device__ inline void merge_few(uint64_t* list, const uint64_t* keys, uint32_t count) {
  const uint32_t lane = lane_number();
  uint64_t own[1 + kWords] = {list[lane]};
  uint32_t places[1 + kWords] = {lane};
#pragma unroll
  for (uint32_t word = 0; word < kWords; ++word)
    own[1 + word] = word * kWarp + lane < count ? keys[word * kWarp + lane] : RowKey::kNone;
  for (uint32_t i = 0; i < count; ++i) {
    const uint64_t other = keys[i];
#pragma unroll
    for (uint32_t part = 0; part <= kWords; ++part) places[part] += other < own[part] ? 1 : 0;
  }
#pragma unroll
  for (uint32_t part = 1; part <= kWords; ++part) {
    uint32_t smaller = 0;  // of the list, which is sorted
#pragma unroll
    for (uint32_t step = kWarp / 2; step != 0; step /= 2)
      smaller += list[smaller + step - 1] < own[part] ? step : 0;
    places[part] += smaller + (list[smaller] < own[part] ? 1 : 0);
  }
  __syncwarp();
#pragma unroll
  for (uint32_t part = 0; part <= kWords; ++part) {
    const bool is_key = part == 0 || lane + (part - 1) * kWarp < count;
    if (is_key && places[part] < kWarp) list[places[part]] = own[part];
  }
  __syncwarp();
}

template <RowKind kKind>
struct MultiCta {
  const CagraArgs& args;
  Shared& shared;
  Layout layout;
  uint64_t* list;     // [list_size]
  uint64_t* keys;     // [candidates] of survivors
  uint32_t* rows;     // [candidates] new ones
  uint32_t* slots;    // [candidates] where in the table they are claimed
  uint32_t* places;   // [candidates] and at which place
  uint32_t* numbers;  // [candidates] their distances
  uint32_t group = blockIdx.x / args.lists;
  uint32_t rank = blockIdx.x % args.lists;
  uint64_t* table = args.claims + (uint64_t{group} << args.hash_bits);           // [2^hash_bits]
  uint32_t* progress = args.progress + group * args.lists;                       // [lists]
  uint64_t* found = args.found + uint64_t{group} * args.lists * args.list_size;  // [lists, list_size]
  uint32_t steps_before = 0;                                                     // of the queries before
  uint32_t edges = args.width * args.graph.stride;                               // of an iteration
  bool alone = args.lists == 1;                                                  // no CTA to wait for
  bool ahead = args.count * args.lists <= kFewCtas;

  __device__ MultiCta(const CagraArgs& given, Shared& block_shared, uint8_t* memory)
      : args(given),
        shared(block_shared),
        layout{given.list_size, warp_size_of(given.width * given.graph.stride), 0},
        list(reinterpret_cast<uint64_t*>(memory)),
        keys(reinterpret_cast<uint64_t*>(memory + layout.keys_at())),
        rows(reinterpret_cast<uint32_t*>(memory + layout.rows_at())),
        slots(reinterpret_cast<uint32_t*>(memory + layout.slots_at())),
        places(reinterpret_cast<uint32_t*>(memory + layout.places_at())),
        numbers(reinterpret_cast<uint32_t*>(memory + layout.numbers_at())) {}

  __device__ void run() {
    if (threadIdx.x == 0) shared.distances = shared.expansions = 0;
    for (uint32_t number = group; number < args.count; number += args.groups) {
      begin(number);
      start();
      for (uint32_t iteration = 0;; ++iteration) {
        arrive(iteration + 2);
        compare();
        wait(iteration + 2);
        confirm();
        update();
        if (iteration == args.iterations_max || shared.parents == 0) break;
        expand(iteration);
      }
      finish();
      if (rank == 0) report(number);
      steps_before += last_step();
    }
    if (threadIdx.x != 0) return;
    atomicAdd(&args.counters->distances, static_cast<unsigned long long>(shared.distances));
    atomicAdd(&args.counters->expansions, static_cast<unsigned long long>(shared.expansions));
  }

  // Steps of a query: 1 when the table is clear, 2 ... iterations_max + 2 when the claims of an iteration
  // stand, the last one for good.

  __device__ uint32_t last_step() const { return args.iterations_max + 3; }

  __device__ void arrive(uint32_t step) const {
    __syncthreads();
    if (!alone && threadIdx.x == 0) publish(progress + rank, steps_before + step);
  }

  __device__ void wait(uint32_t step) const {
    if (alone) return __syncthreads();
    for (uint32_t other = threadIdx.x; other < args.lists; other += blockDim.x) {
      while (observe(progress + other) < steps_before + step) {
      }
    }
    __syncthreads();
  }

  __device__ void begin(uint32_t number) {
    for (uint32_t i = threadIdx.x; i < args.list_size; i += blockDim.x) list[i] = RowKey::kNone;
    const uint32_t half = 1u << (args.hash_bits - 1);  // two entries at a time
    for (uint32_t i = rank * blockDim.x + threadIdx.x; i < half; i += args.lists * blockDim.x)
      reinterpret_cast<ulonglong2*>(table)[i] = {kUnclaimed, kUnclaimed};
    if (threadIdx.x < kWarp) {
      const CagraQuery query = read_query(args, kKind == RowKind::kBytes, number);
      if (lane_number() == 0) {
        shared.query = query;
        shared.farthest = RowKey::kNone;
        shared.count = shared.survivors = shared.lost = 0;
      }
    }
    arrive(1);
    wait(1);
  }

  /// Step (0): random rows, as many for each CTA.
  __device__ void start() {
    for (uint32_t i = threadIdx.x; i < edges; i += blockDim.x) {
      const uint32_t place = rank * edges + i;
      meet(shown_start(args, shared.query.content, args.lists * edges, place), place);
    }
  }

  /// Step (2).
  __device__ void expand(uint32_t iteration) {
    if (threadIdx.x == 0) shared.expansions += shared.parents;
    for (uint32_t i = threadIdx.x; i < shared.parents * args.graph.stride; i += blockDim.x) {
      const uint32_t parent = i / args.graph.stride;
      meet(__ldg(args.graph.fixed_row(shared.rows[parent]) + (i - parent * args.graph.stride)),
           ((iteration + 1) * args.lists + rank) * edges + i);
    }
  }

  __device__ void meet(uint32_t row, uint32_t place) {
    uint32_t slot = 0;
    if (row == kNoRow) return;
    if (ahead) fetch_row_ahead(row);
    if (!claim(row, place, &slot)) return;
    const uint32_t at = atomicAdd(&shared.count, 1u);
    rows[at] = row;
    slots[at] = slot;
    places[at] = place;
  }

  /// A row's bytes, wanted when its claim stands, and its edges, should it become the next parent.
  __device__ void fetch_row_ahead(uint32_t row) const {
    const uint8_t* bytes = args.rows + uint64_t{row} * args.stride;
    for (uint32_t byte = 0; byte < args.stride; byte += kLineBytes) fetch_ahead(bytes + byte);
    const uint32_t* edges = args.graph.fixed_row(row);
    for (uint32_t edge = 0; edge < args.graph.stride; edge += kLineBytes / sizeof(uint32_t))
      fetch_ahead(edges + edge);
  }

  /// False where the row was met at a lower place.
  __device__ bool claim(uint32_t row, uint32_t place, uint32_t* slot) const {
    const uint32_t mask = (1u << args.hash_bits) - 1;
    const unsigned long long own = uint64_t{row} << 32 | place;
    auto* entries = reinterpret_cast<unsigned long long*>(table);
    for (*slot = row * 0x9e3779b1 >> (32 - args.hash_bits);; *slot = (*slot + 1) & mask) {
      const unsigned long long known = atomicCAS(entries + *slot, kUnclaimed, own);
      if (known == kUnclaimed) return true;
      if (known >> 32 != row) continue;
      return !alone && known > own && atomicMin(entries + *slot, own) > own;
    }
  }

  /// Step (3).
  __device__ void compare() {
    compare_rows<kKind>(args, shared.query, rows, shared.count,
                        [&](uint32_t place, uint32_t distance) { numbers[place] = distance; });
  }

  /// Rows without a claim at a lower place may enter the list. Of one CTA any place will do.
  __device__ void confirm() {
    for (uint32_t i = threadIdx.x; i < shared.count; i += blockDim.x) {
      if (!alone && static_cast<uint32_t>(__ldcg(table + slots[i])) != places[i]) {
        atomicAdd(&shared.lost, 1u);
        continue;
      }
      const uint64_t key = RowKey::of(numbers[i], rows[i], false);
      if (key < shared.farthest) keys[atomicAdd(&shared.survivors, 1u)] = key;
    }
    __syncthreads();
  }

  /// Step (1), and the next parent.
  __device__ void update() {
    if (threadIdx.x < kWarp) {
      const uint32_t survivors = shared.survivors;
      if (args.list == kWarp && survivors <= kWarp)
        merge_few<1>(list, keys, survivors);
      else if (args.list == kWarp && survivors <= 2 * kWarp)
        merge_few<2>(list, keys, survivors);
      else if (survivors != 0)
        update_list(list, args.list, keys, survivors);
      const uint32_t taken = take_parents(list, args.list, args.width, shared.rows);
      if (lane_number() == 0) {
        shared.farthest = list[args.list - 1] | RowKey::kFlag;
        shared.parents = taken;
        shared.distances += shared.count - shared.lost;
        shared.count = shared.survivors = shared.lost = 0;
      }
    }
    __syncthreads();
  }

  /// Gives the list away and lets the others go on without this CTA.
  __device__ void finish() {
    for (uint32_t i = threadIdx.x; i < args.list_size; i += blockDim.x)
      found[rank * args.list_size + i] = list[i];
    arrive(last_step());
    wait(last_step());
  }

  /// Merges the lists, of which every second one is turned round. Without the removed rows they are sorted anew.
  __device__ void report(uint32_t number) {
    uint64_t* merged = list;
    uint32_t lists = 1;
    while (lists < args.lists) lists *= 2;
    const uint32_t size = lists * args.list_size;
    for (uint32_t i = threadIdx.x; i < size; i += blockDim.x) {
      const uint32_t turned = (i & args.list_size) == 0 ? i : i ^ (args.list_size - 1);
      merged[i] = i < args.lists * args.list_size ? __ldcg(found + turned) : RowKey::kNone;
    }
    __syncthreads();
    if (args.removed.empty())
      sort_shared(merged, size, BlockSorts{}, args.list_size);
    else
      drop_removed(args.removed, merged, size);
    write_found(args, number, merged, size);
    __syncthreads();
  }
};

template <RowKind kKind>
__global__ void __launch_bounds__(kThreadsMost, kBlocks) multi_cta(const __grid_constant__ CagraArgs args) {
  __shared__ Shared shared;
  extern __shared__ uint4 memory[];
  MultiCta<kKind>(args, shared, reinterpret_cast<uint8_t*>(memory)).run();
}

}  // namespace

// --- Host ----------------------------------------------------------------------------------------

void (*multi_cta_kernel(RowKind kind))(CagraArgs) {
  return for_row_kind(kind, [&]<RowKind kKind>() { return multi_cta<kKind>; });
}

uint32_t multi_cta_threads() { return kThreads; }

uint32_t multi_cta_shared_bytes(const CagraPlan& plan, uint32_t degree) {
  uint32_t lists = 1;
  while (lists < plan.lists) lists *= 2;
  const uint32_t list_size = warp_size_of(plan.list);
  return Layout{list_size, warp_size_of(plan.width * degree), lists * list_size}.bytes();
}

}  // namespace gannet::cuda
