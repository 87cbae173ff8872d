// Heads and their edges, step by step as on the CPU (long_edges.cpp). The host goes through:
//
//   find_copies    EnterCode      a table of row numbers with open places: the least row of each code
//                  TakeFirst      of each row the first row with its code, and how many codes there are
//   cover          ProposeCover   rounds: the least open row that would cover each,
//                  ChooseHeads    those that none would become heads,
//                  CoverFrom      and close the rows that they cover
//                  Follow         from the first row of a code to its head
//   take_heads     MarkHeads      numbers of the heads, by sums
//                  WriteHeads
//   graph_of       GatherCodes    lists, pruned, reversed, repaired, by the kernels of the build
//   write_edges    ShareRows      edges of heads
//                  LeadBack       edges of the others
//
// The idea of cover(). The CPU takes rows in order: one that no earlier head covers becomes a head. So a row is decided
// once no open row before it has an edge to it, and all such rows are decided at once, as in a parallel greedy
// independent set (Blelloch, Fineman and Shun, "Greedy sequential maximal independent set and matching are parallel on
// average", 2012): rows in random order take a logarithm of rounds. A row's head is the least that covers it, by an
// atomic minimum. Rows in the order of a line take a round for every list, so that after kRoundsMax the CPU chooses.
//
// Bytes, a row with codes of s bytes and d edges: s for its hash and as much for a copy's comparison, 8 to 16 for the
// table; a round reads 12, and 12 d of each open row, from L2 up to some million rows. A million rows of 384 bytes and 48
// edges: 0.4 GB of codes and as many bytes of edges for the first round, some ms in all. By 16 processors the same took
// 385 ms, of which the repair 138, the table 63 and the cover 62, each by one; 60,000 patches 19.

#include "graph/long_edges_cuda.h"

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

#include <algorithm>
#include <bit>
#include <optional>

#include "backend/launch_items.cuh"
#include "backend/prefix_sums.h"
#include "dataset/codes_cuda.h"
#include "graph/head_edges.h"
#include "graph/long_edges.h"
#include "graph/search_graph_cuda.h"
#include "graph/start_edges.h"
#include "knn/cells_cuda.h"
#include "knn/exact_knn_cuda.h"

namespace gannet::cuda {
namespace {

namespace cg = cooperative_groups;

constexpr uint32_t kRoundsMax = 64;  // of cover()

struct Args {
  const uint32_t* words;  // [rows, words_per_row] codes
  const uint32_t* edges;  // [rows, degree]
  uint32_t* table;        // [table_last + 1] row numbers or kNoRow
  uint32_t* first;        // [rows] the first row with the code of each; later its head
  uint32_t* coverer;      // [rows] of first rows the head, kNoRow while they are open
  uint32_t*
      proposed;       // [rows] the least open row that would cover one; itself: it is a head since this round
  uint32_t* numbers;  // [rows + 1] of heads
  uint32_t* heads;    // [heads]
  uint32_t* count;    // of what a step counts
  uint32_t rows;
  uint32_t words_per_row;
  uint32_t degree;
  uint32_t table_last;

  __device__ const uint32_t* code(uint64_t row) const { return words + row * words_per_row; }
  __device__ bool is_open(uint64_t row) const { return first[row] == row && coverer[row] == kNoRow; }

  /// Calls visit(the first row of its code) for each edge of a row, by the lanes of a warp.
  template <class Visit>
  __device__ void each_target(uint64_t row, const Visit& visit) const {
    for (uint32_t rank = threadIdx.x % 32; rank < degree; rank += 32) {
      const uint32_t target = edges[row * degree + rank];
      if (target != kNoRow) visit(first[target]);
    }
  }
};

/// Adds to a count, once for all threads of a warp that come here together.
__device__ void count_one(uint32_t* count) {
  const auto here = cg::coalesced_threads();
  if (here.thread_rank() == 0) atomicAdd(count, here.size());
}

// --- Copies --------------------------------------------------------------------------------------

/// Enters a row's code; `first` gets its place in the table. Of rows with one code the least stays, whichever comes first:
/// a place that one has taken is never free again, so that all come to the same.
struct EnterCode {
  static constexpr uint32_t kLanes = 32;
  const Args& args;

  __device__ void run(uint64_t item) const {
    const auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    const auto row = static_cast<uint32_t>(item);
    uint32_t place = hash(warp, row) & args.table_last;
    while (true) {
      uint32_t there = 0;
      if (warp.thread_rank() == 0) there = atomicCAS(args.table + place, kNoRow, row);
      there = warp.shfl(there, 0);
      if (there == kNoRow) break;
      if (are_copies(warp, row, there)) {
        if (warp.thread_rank() == 0) atomicMin(args.table + place, row);
        break;
      }
      place = (place + 1) & args.table_last;
    }
    if (warp.thread_rank() == 0) args.first[row] = place;
  }

  template <class Warp>
  __device__ uint32_t hash(const Warp& warp, uint32_t row) const {
    const uint32_t* code = args.code(row);
    uint32_t mixed = warp.thread_rank() * 0x85ebca6bu;
    for (uint32_t i = warp.thread_rank(); i < args.words_per_row; i += 32)
      mixed = __funnelshift_l(mixed, mixed, 13) * 0x9e3779b1u + code[i] * 0xc2b2ae35u;
    mixed ^= mixed >> 15;
    uint32_t sum = cg::reduce(warp, mixed * 0x2c1b3c6du, cg::plus<uint32_t>());
    sum = (sum ^ sum >> 16) * 0x85ebca6bu;
    sum = (sum ^ sum >> 13) * 0xc2b2ae35u;
    return sum ^ sum >> 16;
  }

  template <class Warp>
  __device__ bool are_copies(const Warp& warp, uint32_t row, uint32_t other) const {
    const uint32_t* code = args.code(row);
    const uint32_t* others = args.code(other);
    for (uint32_t from = 0; from < args.words_per_row; from += 32) {
      const uint32_t i = from + warp.thread_rank();
      if (warp.any(i < args.words_per_row && code[i] != others[i])) return false;
    }
    return true;
  }
};

struct TakeFirst {
  static constexpr uint32_t kLanes = 1;
  const Args& args;
  __device__ void run(uint64_t row) const {
    const uint32_t first = args.table[args.first[row]];
    args.first[row] = first;
    if (first == row) count_one(args.count);
  }
};

// --- Cover ---------------------------------------------------------------------------------------

struct ProposeCover {
  static constexpr uint32_t kLanes = 32;
  const Args& args;
  __device__ void run(uint64_t row) const {
    if (!args.is_open(row)) return;
    args.each_target(row, [&](uint32_t target) {
      if (target > row && args.coverer[target] == kNoRow)
        atomicMin(args.proposed + target, static_cast<uint32_t>(row));
    });
  }
};

struct ChooseHeads {
  static constexpr uint32_t kLanes = 1;
  const Args& args;
  __device__ void run(uint64_t row) const {
    if (!args.is_open(row) || args.proposed[row] != kNoRow) return;
    args.coverer[row] = args.proposed[row] = static_cast<uint32_t>(row);
  }
};

/// Heads stay as they are: of the others none is its own coverer.
struct CoverFrom {
  static constexpr uint32_t kLanes = 32;
  const Args& args;
  __device__ void run(uint64_t row) const {
    if (args.proposed[row] != row) return;
    args.each_target(row, [&](uint32_t target) {
      if (target > row && args.coverer[target] != target)
        atomicMin(args.coverer + target, static_cast<uint32_t>(row));
    });
  }
};

struct CountOpen {
  static constexpr uint32_t kLanes = 1;
  const Args& args;
  __device__ void run(uint64_t row) const {
    if (args.is_open(row)) count_one(args.count);
  }
};

struct Follow {
  static constexpr uint32_t kLanes = 1;
  const Args& args;
  __device__ void run(uint64_t row) const { args.numbers[row] = args.coverer[args.first[row]]; }
};

// --- Heads ---------------------------------------------------------------------------------------

struct MarkHeads {
  static constexpr uint32_t kLanes = 1;
  const Args& args;
  __device__ void run(uint64_t row) const {
    args.numbers[row] = row < args.rows && args.first[row] == row ? 1 : 0;
  }
};

struct WriteHeads {
  static constexpr uint32_t kLanes = 1;
  const Args& args;
  __device__ void run(uint64_t row) const {
    if (args.first[row] == row) args.heads[args.numbers[row]] = static_cast<uint32_t>(row);
  }
};

struct GatherCodes {
  static constexpr uint32_t kLanes = 1;
  struct Args {
    const uint4* codes;     // [rows, parts]
    const uint32_t* heads;  // [heads]
    uint4* gathered;        // [heads, parts]
    uint32_t parts;         // of 16 bytes
  };
  const Args& args;
  __device__ void run(uint64_t item) const {
    args.gathered[item] =
        args.codes[uint64_t{args.heads[item / args.parts]} * args.parts + item % args.parts];
  }
};

// --- Edges ---------------------------------------------------------------------------------------

struct EdgeArgs {
  const uint32_t* given;  // [rows, degree]
  const uint32_t* upper;  // [heads, degree / 2] of the graph over heads, in their numbers
  const uint32_t* heads;  // [heads]
  const uint32_t* of;     // [rows] the head of each
  uint32_t* edges;        // [rows, degree] the given ones, and then the long ones, too
  uint32_t degree;
};

struct ShareRows {
  static constexpr uint32_t kLanes = 1;
  const EdgeArgs& args;
  __device__ void run(uint64_t head) const {
    const uint64_t at = uint64_t{args.heads[head]} * args.degree;
    const uint32_t count = args.degree / 2;
    share_row(args.given + at, args.degree, args.upper + head * count, count, args.heads, args.edges + at);
  }
};

struct LeadBack {
  static constexpr uint32_t kLanes = 1;
  const EdgeArgs& args;
  __device__ void run(uint64_t row) const {
    const uint32_t head = args.of[row];
    if (head != row) lead_back(args.edges + row * args.degree, args.degree, head);
  }
};

struct StartArgs {
  uint32_t* edges;         // [rows, degree]
  const uint32_t* starts;  // [starts]
  uint32_t* taken;         // [starts, degree] their edges
  uint32_t degree;

  __device__ uint32_t& edge(uint64_t item) const {
    return edges[uint64_t{starts[item / degree]} * degree + item % degree];
  }
};

/// A place of a start's edges an item, as the next.
struct TakeStarts {
  static constexpr uint32_t kLanes = 1;
  const StartArgs& args;
  __device__ void run(uint64_t item) const { args.taken[item] = args.edge(item); }
};

struct PutStarts {
  static constexpr uint32_t kLanes = 1;
  const StartArgs& args;
  __device__ void run(uint64_t item) const { args.edge(item) = args.taken[item]; }
};

// --- Host ----------------------------------------------------------------------------------------

/// The heads of a graph, and the head of each row.
class HeadsThere {
 public:
  HeadsThere(const Codes& codes, const GraphThere& there, const SearchGraph& graph, Transfers& transfers,
             const Stream& stream, const Execution& execution)
      : stream_(stream),
        execution_(execution),
        of_(graph.rows, stream),
        numbers_(uint64_t{graph.rows} + 1, stream),
        count_(1, stream) {
    args_.words = reinterpret_cast<const uint32_t*>(there.codes);
    args_.edges = there.edges;
    args_.first = of_.data();
    args_.numbers = numbers_.data();
    args_.count = count_.data();
    args_.rows = graph.rows;
    args_.words_per_row = static_cast<uint32_t>(codes.stride() / sizeof(uint32_t));
    args_.degree = graph.degree;
    if (find_copies() > graph.rows / kHeadShare && !cover()) {
      const Heads chosen = choose_heads(codes, graph, execution);
      transfers.send(of_.data(), chosen.of.data(), graph.rows * sizeof(uint32_t), stream);
      stream.wait();  // pinned memory of an allocator is read later
    }
    take_heads();
  }

  uint32_t size() const { return size_; }
  const uint32_t* rows() const { return rows_->data(); }
  const uint32_t* of() const { return of_.data(); }

 private:
  template <class Step>
  void each_row(const char* name) {
    launch_items<Step>(name, args_.rows, args_, stream_);
  }

  uint32_t fetch(const uint32_t* number) const {
    uint32_t here = 0;
    copy_to_host(&here, number, sizeof here, stream_, "fetching a number of rows");
    stream_.wait();
    return here;
  }

  template <class Step>
  uint32_t count(const char* name) {
    fill(count_.data(), 0, sizeof(uint32_t), stream_, "clearing device memory");
    each_row<Step>(name);
    return fetch(count_.data());
  }

  /// Returns how many codes there are.
  uint32_t find_copies() {
    const uint64_t places = std::bit_ceil(uint64_t{args_.rows} * 2);
    const DeviceArray<uint32_t> table(places, stream_);
    fill(table.data(), 0xff, places * sizeof(uint32_t), stream_, "clearing device memory");
    args_.table = table.data();
    args_.table_last = static_cast<uint32_t>(places - 1);
    each_row<EnterCode>("enter_code");
    return count<TakeFirst>("take_first");
  }

  /// False, and all rows are as they were, where it takes too many rounds.
  bool cover() {
    const uint64_t bytes = uint64_t{args_.rows} * sizeof(uint32_t);
    const DeviceArray<uint32_t> coverer(args_.rows, stream_);
    const DeviceArray<uint32_t> proposed(args_.rows, stream_);
    args_.coverer = coverer.data();
    args_.proposed = proposed.data();
    fill(coverer.data(), 0xff, bytes, stream_, "clearing device memory");
    for (uint32_t round = 0; round < kRoundsMax; ++round) {
      execution_.check();
      fill(proposed.data(), 0xff, bytes, stream_, "clearing device memory");
      each_row<ProposeCover>("propose_cover");
      each_row<ChooseHeads>("choose_heads");
      each_row<CoverFrom>("cover_from");
      if (count<CountOpen>("count_open") != 0) continue;
      each_row<Follow>("follow");
      copy_on_device(of_.data(), numbers_.data(), bytes, stream_, "copying heads");
      return true;
    }
    return false;
  }

  void take_heads() {
    const uint64_t items = uint64_t{args_.rows} + 1;
    launch_items<MarkHeads>("mark_heads", items, args_, stream_);
    const uint64_t scratch_bytes = sum_in_place_scratch_bytes(items);
    const DeviceArray<uint8_t> scratch(scratch_bytes, stream_);
    sum_before_in_place(numbers_.data(), items, scratch.data(), scratch_bytes, stream_, "counting heads");
    size_ = fetch(numbers_.data() + args_.rows);
    rows_.emplace(size_, stream_);
    args_.heads = rows_->data();
    each_row<WriteHeads>("write_heads");
  }

  const Stream& stream_;
  const Execution& execution_;
  Args args_ = {};
  DeviceArray<uint32_t> of_;       // [rows]
  DeviceArray<uint32_t> numbers_;  // [rows + 1]
  DeviceArray<uint32_t> count_;
  uint32_t size_ = 0;
  std::optional<DeviceArray<uint32_t>> rows_;  // [size]
};

/// Makes every row reachable from `entries`; on the host where the device leaves it to that. Returns the edges added.
uint32_t repair(uint32_t* edges, const Array<uint32_t>& entries, uint32_t rows, uint32_t degree,
                Transfers& transfers, const Stream& stream, const Execution& execution) {
  const DeviceArray<uint32_t> starts(entries.size(), stream);
  copy_to_device(starts.data(), entries.data(), entries.size() * sizeof(uint32_t), stream,
                 "sending entry points");
  const RepairResult result = repair_reachability(
      {edges, starts.data(), rows, degree, static_cast<uint32_t>(entries.size())}, stream, execution);
  if (result.unreachable_left == 0) return result.edges_added;
  SearchGraph graph;
  graph.rows = rows;
  graph.degree = degree;
  graph.make_fixed(execution.memory);
  graph.entries = Array<uint32_t>(execution.memory, entries.size());
  std::copy(entries.begin(), entries.end(), graph.entries.data());
  const uint64_t bytes = graph.edges.size() * sizeof(uint32_t);
  transfers.fetch(graph.edges.data(), edges, bytes, stream);
  const uint32_t added = gannet::repair_reachability(graph, execution);
  transfers.send(edges, graph.edges.data(), bytes, stream);
  stream.wait();
  return added;
}

/// The lists of heads, [heads, k].
void find_lists(const CodesView& heads, uint32_t k, uint64_t seed, uint32_t* lists, const Stream& stream,
                const Execution& execution) {
  if (heads.rows <= kHeadsComparedThere) return exact_knn(heads, k, lists, nullptr, stream, execution);
  NnDescentParams params;
  params.k = k;
  params.seed = seed;
  cells_knn(heads, params, kListEffort, lists, nullptr, stream, execution);
}

/// `upper`, [heads, degree] in numbers of heads, gets the edges of the graph over heads alone.
void graph_of(const Codes& codes, const GraphThere& there, const HeadsThere& heads, uint32_t degree,
              uint64_t seed, uint32_t* upper, Transfers& transfers, const Stream& stream,
              const Execution& execution) {
  const auto stride = static_cast<uint32_t>(codes.stride());
  const uint32_t k = std::min(kHeadLists, heads.size() - 1);
  const DeviceArray<uint32_t> pruned(uint64_t{heads.size()} * degree, stream);
  {
    const DeviceArray<uint8_t> gathered(uint64_t{heads.size()} * stride, stream);
    const DeviceArray<uint32_t> squares(codes.wide() ? 0 : heads.size(), stream);
    const DeviceArray<uint32_t> lists(uint64_t{heads.size()} * k, stream);
    launch_items<GatherCodes>("gather_codes", uint64_t{heads.size()} * (stride / sizeof(uint4)),
                              GatherCodes::Args{reinterpret_cast<const uint4*>(there.codes), heads.rows(),
                                                reinterpret_cast<uint4*>(gathered.data()),
                                                static_cast<uint32_t>(stride / sizeof(uint4))},
                              stream);
    if (!codes.wide()) flip_and_square(gathered.data(), heads.size(), stride, 0, squares.data(), stream);
    find_lists({gathered.data(), squares.data(), heads.size(), stride}, k, seed, lists.data(), stream,
               execution);
    prune_by_rank(lists.data(), heads.size(), k, Pruning::near(degree), pruned.data(), stream, execution);
  }
  add_reverse_edges(pruned.data(), heads.size(), degree, upper, stream, execution);
  repair(upper, choose_entries(heads.size(), kEntriesMax, seed, execution.memory), heads.size(), degree,
         transfers, stream, execution);
}

void write_edges(const GraphThere& there, const HeadsThere& heads, const uint32_t* upper,
                 const SearchGraph& graph, uint32_t* edges, const Stream& stream) {
  copy_on_device(edges, there.edges, uint64_t{graph.rows} * graph.degree * sizeof(uint32_t), stream,
                 "copying edges");
  const EdgeArgs args = {there.edges, upper, heads.rows(), heads.of(), edges, graph.degree};
  launch_items<ShareRows>("share_rows", heads.size(), args, stream);
  launch_items<LeadBack>("lead_back", graph.rows, args, stream);
}

/// The host has the codes, and the starts are few.
void spread_starts(const Codes& codes, const SearchGraph& graph, uint32_t* edges, const Stream& stream,
                   const Execution& execution) {
  const uint64_t items = uint64_t{graph.entries.size()} * graph.degree;
  const DeviceArray<uint32_t> starts(graph.entries.size(), stream);
  const DeviceArray<uint32_t> taken(items, stream);
  Array<uint32_t> here(execution.memory, items);
  const uint64_t bytes = items * sizeof(uint32_t);
  copy_to_device(starts.data(), graph.entries.data(), graph.entries.size() * sizeof(uint32_t), stream,
                 "sending entry points");
  const StartArgs args = {edges, starts.data(), taken.data(), graph.degree};
  launch_items<TakeStarts>("take_starts", items, args, stream);
  copy_to_host(here.data(), taken.data(), bytes, stream, "fetching edges of entry points");
  stream.wait();
  spread_start_edges(codes, graph, here.data(), execution);
  copy_to_device(taken.data(), here.data(), bytes, stream, "sending edges of entry points");
  launch_items<PutStarts>("put_starts", items, args, stream);
  stream.wait();  // pinned memory of an allocator is read later
}

}  // namespace

bool add_long_edges(const Codes& codes, const GraphThere& there, SearchGraph& graph, uint64_t seed,
                    uint32_t* edges, const Stream& stream, const Execution& execution) {
  if (graph.degree < kSharedDegreeLeast || !graph.is_fixed() || graph.rows == 0) return false;
  // Lanes are made first: nothing is refused once the host's graph changes.
  Transfers transfers(execution);
  transfers.prepare(graph.edges.size() * sizeof(uint32_t));
  const HeadsThere heads(codes, there, graph, transfers, stream, execution);
  if (heads.size() < 2 || heads.size() > graph.rows / kHeadShare) return false;
  {
    const uint32_t degree = graph.degree / 2;
    const DeviceArray<uint32_t> upper(uint64_t{heads.size()} * degree, stream);
    graph_of(codes, there, heads, degree, seed, upper.data(), transfers, stream, execution);
    write_edges(there, heads, upper.data(), graph, edges, stream);
  }
  Array<uint32_t> rows(execution.memory, heads.size());
  transfers.fetch(rows.data(), heads.rows(), rows.size() * sizeof(uint32_t), stream);
  start_at_heads(graph, std::move(rows), seed, execution.memory);
  spread_starts(codes, graph, edges, stream, execution);
  const uint32_t added = repair(edges, graph.entries, graph.rows, graph.degree, transfers, stream, execution);
  transfers.fetch(graph.edges.data(), edges, graph.edges.size() * sizeof(uint32_t), stream);
  graph.repaired_edges += added;
  return true;
}

}  // namespace gannet::cuda
