// Measures of a graph on the GPU: components, degrees, two-hop counts (CAGRA, section III-A), equal to
// those of stats.cpp. They are the quantities that the paper's Figure 3 shows of graphs of a million rows.
//
//   measure              how
//   weak components      union-find: every edge hooks the larger root below the smaller, by compare and
//                        swap; roots are counted
//   strong components    colours (Orzan, "On distributed verification and verified distribution", 2004):
//                        every row takes the largest number of a row that reaches it; a row that keeps its
//                        own is a root, and the rows of its colour that reach it are its component. They
//                        leave, and the rest takes colours again. Rows without a way in or out leave first
//   two-hop counts       a bitmap for each block, a sample at a time
//
// The row with most edges to it has the largest number, so that the first round finds the component that
// nearly all rows are in. Colours go along edges; the way back asks each row for a target that is in the
// component, so that no reversed graph is needed. The result does not depend on the schedule,
// only the number of sweeps does.
//
// Bytes a row at degree d: 4 d for each sweep over all rows. A graph of 1M x 64 takes some 20 sweeps for
// its one large component; a chain of rows takes one for each row.

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

#include <algorithm>

#include "backend/launch_items.cuh"
#include "base/random.h"
#include "graph/search_graph.h"
#include "graph/search_graph_cuda.h"
#include "traverse/row_key.h"

namespace gannet::cuda {
namespace {

namespace cg = cooperative_groups;
using Wide = unsigned long long;

constexpr uint32_t kThreads = 256;
constexpr uint32_t kTrims = 4;  // sweeps for rows without a way in or out, each round
constexpr uint64_t kBitmapBytes = uint64_t{256} << 20;
constexpr uint32_t kBitmapsMax = 264;

struct Counts {
  Wide edges;
  Wide two_hops;
  Wide pivot;  // in-degree << 32 | ~row, the largest
  uint32_t in_min;
  uint32_t in_max;
  uint32_t weak;
  uint32_t strong;
  uint32_t largest;
  uint32_t left;     // rows without a component
  uint32_t changed;  // whether the sweep has changed anything
};

struct Args {
  Adjacency edges;          // fixed rows
  uint32_t* in_degrees;     // [rows]
  uint32_t* parents;        // [rows] of the union-find
  uint32_t* colours;        // [rows] numbers, kNoRow: the row has its component
  uint32_t* sizes;          // [rows + 1] rows of a component, by the number of its root
  uint8_t* ways;            // [rows, 2] whether an edge leads to a row, and from it
  uint8_t* marks;           // [rows] whether a row reaches the root of its colour
  const uint32_t* samples;  // [sample_count]
  uint32_t* bitmaps;        // [blocks, words] rows met, all 0 between samples
  Counts* counts;
  uint32_t rows;
  uint32_t pivot;  // the row with the number `rows`; others have their own
  uint32_t sample_count;
  uint32_t words;
};

/// The common part of steps over rows: a warp for each row, or a thread.
struct Step {
  const Args& args;
  cg::thread_block_tile<32> warp = cg::tiled_partition<32>(cg::this_thread_block());
  uint64_t of_warp = uint64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32;
  uint64_t of_thread = uint64_t{blockIdx.x} * kThreads + threadIdx.x;

  /// Calls visit(target) for the edges of a row, all lanes at once.
  template <class Visit>
  __device__ void each_target(uint64_t row, const Visit& visit) const {
    for (uint32_t rank = warp.thread_rank(); rank < args.edges.stride; rank += 32) {
      const uint32_t target = args.edges.fixed_row(row)[rank];
      if (target != kNoRow) visit(target);
    }
  }
  __device__ uint32_t number(uint32_t row) const { return row == args.pivot ? args.rows : row; }
  __device__ uint32_t colour(uint32_t row) const { return __ldcg(args.colours + row); }
  __device__ bool open(uint32_t row) const { return colour(row) != kNoRow; }
};

// --- Degrees and weak components -----------------------------------------------------------------

struct CountEdges : Step {
  __device__ void run() {
    if (of_warp >= args.rows) return;
    uint32_t edges = 0;
    each_target(of_warp, [&](uint32_t target) {
      ++edges;
      atomicAdd(args.in_degrees + target, 1);
    });
    edges = cg::reduce(warp, edges, cg::plus<uint32_t>());
    if (warp.thread_rank() == 0 && edges != 0) atomicAdd(&args.counts->edges, Wide{edges});
  }
};

struct ReduceDegrees : Step {
  __device__ void run() {
    if (of_thread >= args.rows) return;
    const uint32_t degree = args.in_degrees[of_thread];
    atomicMin(&args.counts->in_min, degree);
    atomicMax(&args.counts->in_max, degree);
    atomicMax(&args.counts->pivot, Wide{degree} << 32 | ~static_cast<uint32_t>(of_thread));
  }
};

struct Join : Step {
  __device__ uint32_t root(uint32_t row) const {
    while (true) {
      const uint32_t parent = __ldcg(args.parents + row);
      if (parent == row) return row;
      const uint32_t above = __ldcg(args.parents + parent);
      if (above == parent) return parent;
      __stcg(args.parents + row, above);  // in any order: an ancestor stays an ancestor
      row = above;
    }
  }
  __device__ void run() {
    if (of_warp >= args.rows) return;
    each_target(of_warp, [&](uint32_t target) {
      uint32_t a = root(static_cast<uint32_t>(of_warp));
      uint32_t b = root(target);
      while (a != b) {
        if (atomicCAS(args.parents + max(a, b), max(a, b), min(a, b)) == max(a, b)) break;
        a = root(a);
        b = root(b);
      }
    });
  }
};

struct OwnParents : Step {
  __device__ void run() {
    if (of_thread < args.rows) args.parents[of_thread] = static_cast<uint32_t>(of_thread);
  }
};

struct CountRoots : Step {
  __device__ void run() {
    const bool root = of_thread < args.rows && args.parents[of_thread] == of_thread;
    const uint32_t roots = __popc(warp.ballot(root));
    if (warp.thread_rank() == 0 && roots != 0) atomicAdd(&args.counts->weak, roots);
  }
};

// --- Strong components ---------------------------------------------------------------------------

struct FindWays : Step {
  __device__ void run() {
    const uint32_t row = static_cast<uint32_t>(of_warp);
    if (of_warp >= args.rows || !open(row)) return;
    bool out = false;
    each_target(row, [&](uint32_t target) {
      if (target == row || !open(target)) return;
      out = true;
      args.ways[target * uint64_t{2}] = 1;
    });
    if (out) args.ways[row * uint64_t{2} + 1] = 1;
  }
};

/// Rows without a way in or out are components by themselves; all others take their own numbers.
struct Trim : Step {
  __device__ void run() {
    if (of_thread >= args.rows) return;
    const uint32_t row = static_cast<uint32_t>(of_thread);
    if (!open(row)) return;
    if (args.ways[of_thread * 2] != 0 && args.ways[of_thread * 2 + 1] != 0) {
      args.colours[row] = number(row);
      return;
    }
    args.colours[row] = kNoRow;
    atomicAdd(&args.counts->strong, 1);
    atomicMax(&args.counts->largest, 1);
    atomicSub(&args.counts->left, 1);
    args.counts->changed = 1;
  }
};

struct SpreadColours : Step {
  __device__ void run() {
    const uint32_t row = static_cast<uint32_t>(of_warp);
    if (of_warp >= args.rows) return;
    const uint32_t mine = colour(row);
    if (mine == kNoRow) return;
    each_target(row, [&](uint32_t target) {
      const uint32_t other = colour(target);
      if (other == kNoRow || other >= mine) return;
      atomicMax(args.colours + target, mine);
      args.counts->changed = 1;
    });
  }
};

struct MarkRoots : Step {
  __device__ void run() {
    if (of_thread >= args.rows) return;
    const uint32_t row = static_cast<uint32_t>(of_thread);
    const bool root = open(row) && colour(row) == number(row);
    args.marks[row] = root ? 1 : 0;
    if (root) atomicAdd(&args.counts->strong, 1);
  }
};

struct SpreadMarks : Step {
  __device__ void run() {
    const uint32_t row = static_cast<uint32_t>(of_warp);
    if (of_warp >= args.rows) return;
    const uint32_t mine = colour(row);
    if (mine == kNoRow || __ldcg(args.marks + row) != 0) return;
    bool reaches = false;
    each_target(
        row, [&](uint32_t target) { reaches |= colour(target) == mine && __ldcg(args.marks + target) != 0; });
    if (!warp.any(reaches)) return;
    if (warp.thread_rank() == 0) args.marks[row] = 1;
    args.counts->changed = 1;
  }
};

/// Marked rows have their component.
struct Leave : Step {
  __device__ void run() {
    if (of_thread >= args.rows) return;
    const uint32_t mine = args.colours[of_thread];
    if (mine == kNoRow || args.marks[of_thread] == 0) return;
    atomicMax(&args.counts->largest, atomicAdd(args.sizes + mine, 1) + 1);
    atomicSub(&args.counts->left, 1);
    args.colours[of_thread] = kNoRow;
  }
};

// --- Two-hop counts ------------------------------------------------------------------------------

struct CountTwoHops : Step {
  uint32_t* bitmap = args.bitmaps + uint64_t{blockIdx.x} * args.words;

  __device__ void run() {
    for (uint32_t i = blockIdx.x; i < args.sample_count; i += gridDim.x) {
      const uint32_t sample = args.samples[i];
      uint32_t met = 0;
      if (threadIdx.x == 0) enter(sample);
      __syncthreads();
      each_within_two(sample, [&](uint32_t row) { met += enter(row) ? 1 : 0; });
      met = cg::reduce(warp, met, cg::plus<uint32_t>());
      if (warp.thread_rank() == 0) atomicAdd(&args.counts->two_hops, Wide{met});
      __syncthreads();
      if (threadIdx.x == 0) bitmap[sample / 32] = 0;
      each_within_two(sample, [&](uint32_t row) { bitmap[row / 32] = 0; });
      __syncthreads();
    }
  }

  __device__ bool enter(uint32_t row) const {
    const uint32_t bit = 1u << row % 32;
    return (atomicOr(bitmap + row / 32, bit) & bit) == 0;
  }

  /// A warp for each edge of the sample.
  template <class Visit>
  __device__ void each_within_two(uint32_t sample, const Visit& visit) const {
    for (uint32_t rank = threadIdx.x / 32; rank < args.edges.stride; rank += kThreads / 32) {
      const uint32_t first = args.edges.fixed_row(sample)[rank];
      if (first == kNoRow) continue;
      if (warp.thread_rank() == 0) visit(first);
      each_target(first, visit);
    }
  }
};

using Steps = StepList<CountEdges, ReduceDegrees, Join, OwnParents, CountRoots, FindWays, Trim, SpreadColours,
                       MarkRoots, SpreadMarks, Leave, CountTwoHops>;

struct StepArgs {
  Args args;
  uint32_t step;
};

__global__ void __launch_bounds__(kThreads, kStepBlocks) sweep(const __grid_constant__ StepArgs launched) {
  Steps::visit(launched.step, [&]<class OneStep>() { OneStep{{launched.args}}.run(); });
}

// --- Host ----------------------------------------------------------------------------------------

class Measures {
 public:
  Measures(const GraphView& graph, const Stream& stream, const Execution& execution)
      : stream_(stream),
        execution_(execution),
        rows_(graph.rows),
        in_degrees_(graph.rows, stream),
        parents_(graph.rows, stream),
        colours_(graph.rows, stream),
        sizes_(uint64_t{graph.rows} + 1, stream),
        ways_(uint64_t{graph.rows} * 2, stream),
        marks_(graph.rows, stream),
        counts_(1, stream) {
    args_.edges = graph.adjacency();
    args_.in_degrees = in_degrees_.data();
    args_.parents = parents_.data();
    args_.colours = colours_.data();
    args_.sizes = sizes_.data();
    args_.ways = ways_.data();
    args_.marks = marks_.data();
    args_.counts = counts_.data();
    args_.rows = graph.rows;
    set(in_degrees_.data(), 0, graph.rows * sizeof(uint32_t));
    set(sizes_.data(), 0, (uint64_t{graph.rows} + 1) * sizeof(uint32_t));
    set(colours_.data(), 0, graph.rows * sizeof(uint32_t));  // all rows are open
    now_.in_min = UINT32_MAX;
    now_.left = graph.rows;
    send_counts();
  }

  void measure(uint64_t seed, ann_graph_stats* out) {
    run_warps<CountEdges>("count_edges");
    run_threads<ReduceDegrees>("reduce_degrees");
    run_threads<OwnParents>("own_parents");
    run_warps<Join>("join_rows");
    run_threads<CountRoots>("count_roots");
    fetch_counts();
    args_.pivot = ~static_cast<uint32_t>(now_.pivot);
    find_strong();
    const uint32_t samples = two_hop_sample(rows_, out->two_hop_rows);
    count_two_hops(samples, seed);
    fetch_counts();
    out->edges = now_.edges;
    out->in_degree_min = now_.in_min;
    out->in_degree_max = now_.in_max;
    out->weak_components = now_.weak;
    out->strong_components = now_.strong;
    out->largest_strong = now_.largest;
    out->two_hop_mean = static_cast<double>(now_.two_hops) / samples;
  }

 private:
  template <class OneStep>
  void launch_step(const char* name, uint32_t blocks) {
    launch(name, sweep, blocks, kThreads, stream_, StepArgs{args_, Steps::number_of<OneStep>()});
  }
  template <class OneStep>
  void run_warps(const char* name) {
    launch_step<OneStep>(name, (rows_ - 1) / (kThreads / 32) + 1);
  }
  template <class OneStep>
  void run_threads(const char* name) {
    launch_step<OneStep>(name, (rows_ - 1) / kThreads + 1);
  }
  void set(void* memory, int value, uint64_t bytes) {
    fill(memory, static_cast<uint8_t>(value), bytes, stream_, "clearing device memory");
  }
  void send_counts() { copy_to_device(counts_.data(), &now_, sizeof now_, stream_, "sending counts"); }
  void fetch_counts() {
    execution_.check();
    copy_to_host(&now_, counts_.data(), sizeof now_, stream_, "fetching counts");
    stream_.wait();
  }

  /// Runs a sweep; whether it has changed anything.
  template <class Sweep>
  bool changes(const Sweep& sweep) {
    set(&counts_.data()->changed, 0, sizeof(uint32_t));
    sweep();
    fetch_counts();
    return now_.changed != 0;
  }

  void find_strong() {
    while (now_.left != 0) {
      for (uint32_t trim = 0; trim < kTrims; ++trim) {
        const bool trimmed = changes([&] {
          set(ways_.data(), 0, uint64_t{rows_} * 2);
          run_warps<FindWays>("find_ways");
          run_threads<Trim>("trim");
        });
        if (!trimmed) break;
      }
      if (now_.left == 0) return;
      while (changes([&] { run_warps<SpreadColours>("spread_colours"); })) {
      }
      run_threads<MarkRoots>("mark_roots");
      while (changes([&] { run_warps<SpreadMarks>("spread_marks"); })) {
      }
      run_threads<Leave>("leave");
      fetch_counts();
    }
  }

  void count_two_hops(uint32_t count, uint64_t seed) {
    Array<uint32_t> sample(execution_.memory, count);
    random_strata(rows_, count, seed, kTwoHopStream, sample.data());
    const DeviceArray<uint32_t> samples(count, stream_);
    copy_to_device(samples.data(), sample.data(), count * sizeof(uint32_t), stream_, "sending a sample");
    args_.words = rows_ / 32 + 1;
    const uint64_t bytes = uint64_t{args_.words} * sizeof(uint32_t);
    const uint64_t blocks =
        std::min<uint64_t>({count, kBitmapsMax, std::max<uint64_t>(1, kBitmapBytes / bytes)});
    const DeviceArray<uint32_t> bitmaps(blocks * args_.words, stream_);
    set(bitmaps.data(), 0, blocks * bytes);
    args_.samples = samples.data();
    args_.sample_count = count;
    args_.bitmaps = bitmaps.data();
    launch_step<CountTwoHops>("count_two_hops", static_cast<uint32_t>(blocks));
    stream_.wait();  // the host's sample is read until then
  }

  const Stream& stream_;
  const Execution& execution_;
  uint32_t rows_;
  Args args_ = {};
  Counts now_ = {};
  DeviceArray<uint32_t> in_degrees_;  // [rows]
  DeviceArray<uint32_t> parents_;     // [rows]
  DeviceArray<uint32_t> colours_;     // [rows]
  DeviceArray<uint32_t> sizes_;       // [rows + 1]
  DeviceArray<uint8_t> ways_;         // [rows, 2] in, out
  DeviceArray<uint8_t> marks_;        // [rows]
  DeviceArray<Counts> counts_;
};

}  // namespace

void measure_graph(const GraphView& graph, uint64_t seed, const Stream& stream, const Execution& execution,
                   ann_graph_stats* out) {
  const uint32_t struct_size = out->struct_size;
  const uint32_t two_hop_rows = out->two_hop_rows;
  *out = ANN_GRAPH_STATS_INIT;
  out->struct_size = struct_size;
  out->degree = graph.degree;
  out->rows = graph.rows;
  out->two_hop_rows = two_hop_rows;
  if (graph.rows == 0) return;
  out->unreachable = count_unreachable(graph, stream, execution);
  Measures(graph, stream, execution).measure(seed, out);
}

}  // namespace gannet::cuda
