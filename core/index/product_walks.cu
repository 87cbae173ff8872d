#include "index/product_walks.h"

#include <algorithm>

#include "backend/devices.h"
#include "backend/launch_items.cuh"
#include "backend/prefix_sums.h"
#include "backend/transfers.h"
#include "graph/product_merge.h"
#include "graph/search_graph.h"
#include "graph/search_graph_cuda.h"
#include "index/build_cuda.h"
#include "search/device_search.h"
#include "search/pipeline_cuda.h"
#include "search/records_cuda.h"

namespace gannet::cuda {
namespace {

using namespace product_walks;

// --- Walks ---------------------------------------------------------------------------------------

/// Numbers from `first` on, one an item.
struct Count {
  static constexpr uint32_t kLanes = 1;
  struct Args {
    uint32_t* numbers;  // [items]
    uint32_t first;
  };
  const Args& args;
  __device__ void run(uint64_t item) const { args.numbers[item] = args.first + static_cast<uint32_t>(item); }
};

/// The lists of all rows on the device, nearest first, kNoRow where there are no more.
struct WalkedLists {
  WalkedLists(uint32_t count, uint32_t list_length, const Stream& stream)
      : length(list_length),
        rows(uint64_t{count} * length, stream),
        distances(uint64_t{count} * length, stream) {}

  uint32_t length;
  DeviceArray<uint32_t> rows;    // [rows, length]
  DeviceArray<float> distances;  // the same
};

/// Some rows at a time as queries, on a stream of their own.
class Lane {
 public:
  Lane(const DevicePlacement& placement, uint32_t length)
      : view_(placement.view()),
        device_(placement.device()),
        records_(kRowsARun * view_.record_bytes(), stream_),
        codes_(uint64_t{kRowsARun} * view_.query_code_bytes(), stream_),
        candidates_(uint64_t{kRowsARun} * candidates_most(length), stream_),
        starts_(uint64_t{kRowsARun} * kStartWords, stream_),
        own_(kRowsARun, stream_),
        usable_(kRowsARun, stream_),
        counters_(1, stream_) {}

  /// Queues the walks for `count` rows from `first` on.
  void start(uint32_t first, uint32_t count, const WalkedLists& lists) {
    RecordArgs args = {};
    args.queries = view_.rows + uint64_t{first} * view_.row_stride;
    args.records = records_.data();
    args.usable = usable_.data();
    args.query_stride = view_.row_stride;
    args.record_stride = static_cast<uint32_t>(view_.record_bytes());
    args.value_bytes = view_.value_bytes;
    args.dim = view_.dim;
    args.count = count;
    args.aligned = true;
    args.element = view_.element;
    args.as_floats = is_float_element(view_.element);
    start_records(args, stream_);
    launch_items<Count>("count", count, Count::Args{own_.data(), first}, stream_);
    DeviceRun run = {};
    run.queries = records_.data();
    run.codes = codes_.data();
    run.candidates = candidates_.data();
    run.starts = starts_.data();
    run.masked = own_.data();
    run.counters = counters_.data();
    run.rows = lists.rows.data() + uint64_t{first} * lists.length;
    run.distances = lists.distances.data() + uint64_t{first} * lists.length;
    run.query_stride = args.record_stride;
    run.count = count;
    run.k = lists.length;
    start_run(device_, view_, run, BeamPlan{lists.length}, stream_);
  }

  void wait() const { stream_.wait(); }

 private:
  const IndexView& view_;
  int32_t device_;
  Stream stream_;
  DeviceArray<uint8_t> records_;      // [kRowsARun, record_bytes]
  DeviceArray<uint8_t> codes_;        // [kRowsARun, query_code_bytes]
  DeviceArray<uint32_t> candidates_;  // [kRowsARun, candidates_most]
  DeviceArray<uint32_t> starts_;      // [kRowsARun, kStartWords]
  DeviceArray<uint32_t> own_;         // [kRowsARun] the row that each query is, and does not find
  DeviceArray<uint8_t> usable_;       // [kRowsARun]
  DeviceArray<WalkCounters> counters_;
};

void walk_all(const DevicePlacement& placement, const WalkedLists& lists, const Execution& execution) {
  const uint32_t rows = placement.view().row_count;
  Lane lanes[kLanes] = {{placement, lists.length}, {placement, lists.length}};
  uint32_t turn = 0;
  for (uint64_t first = 0; first < rows; first += kRowsARun) {
    const Lane& lane = lanes[turn];
    lane.wait();
    execution.check();
    lanes[turn].start(static_cast<uint32_t>(first),
                      static_cast<uint32_t>(std::min<uint64_t>(kRowsARun, rows - first)), lists);
    execution.advance(static_cast<double>(first) / rows);
    turn = (turn + 1) % kLanes;
  }
  for (const Lane& lane : lanes) lane.wait();
}

// --- Mutual lists --------------------------------------------------------------------------------

struct MutualArgs {
  const uint32_t* walked;         // [rows, length] nearest first, kNoRow where there are no more
  const float* walked_distances;  // [rows, length]
  uint32_t* lists;                // [rows, k] the first k of them, and offers that were taken
  float* distances;               // [rows, k]
  uint32_t* counts;               // [rows + 1] offers that each row gets
  const uint64_t* begins;         // [rows + 1] of a row's offers
  uint32_t* offer_rows;           // [offers]
  float* offer_distances;         // [offers]
  uint64_t first;                 // place of a walked list that item 0 is
  uint32_t length;
  uint32_t k;

  /// The row that the owner of a place offers itself to: it is nearer than that row's k-th, and not in its list; kNoRow if
  /// it does not.
  __device__ uint32_t taker(uint64_t place) const {
    const auto row = static_cast<uint32_t>(place / length);
    const uint32_t other = walked[place];
    if (other == kNoRow) return kNoRow;
    const uint64_t last = uint64_t{other} * k + k - 1;
    if (lists[last] != kNoRow && !(walked_distances[place] < distances[last])) return kNoRow;
    for (uint32_t i = 0; i < k; ++i) {
      if (lists[uint64_t{other} * k + i] == row) return kNoRow;
    }
    return other;
  }
};

/// Copies the first k of each walked list, a place an item.
struct TakeFirst {
  static constexpr uint32_t kLanes = 1;
  const MutualArgs& args;
  __device__ void run(uint64_t item) const {
    const uint64_t place = item / args.k * args.length + item % args.k;
    args.lists[item] = args.walked[place];
    args.distances[item] = args.walked_distances[place];
  }
};

/// Counts offers, a place of a walked list an item.
struct CountOffers {
  static constexpr uint32_t kLanes = 1;
  const MutualArgs& args;
  __device__ void run(uint64_t item) const {
    const uint32_t other = args.taker(args.first + item);
    if (other != kNoRow) atomicAdd(args.counts + other, 1u);
  }
};

/// Writes them, likewise; the order within a row is any.
struct WriteOffers {
  static constexpr uint32_t kLanes = 1;
  const MutualArgs& args;
  __device__ void run(uint64_t item) const {
    const uint64_t place = args.first + item;
    const uint32_t other = args.taker(place);
    if (other == kNoRow) return;
    const uint64_t at = args.begins[other] + atomicSub(args.counts + other, 1u) - 1;
    args.offer_rows[at] = static_cast<uint32_t>(place / args.length);
    args.offer_distances[at] = args.walked_distances[place];
  }
};

/// Inserts the offers of a row into its list, by distance and row; a row an item.
struct TakeOffers {
  static constexpr uint32_t kLanes = 1;
  const MutualArgs& args;
  __device__ void run(uint64_t row) const {
    for (uint64_t i = args.begins[row]; i < args.begins[row + 1]; ++i)
      insert(args.lists + row * args.k, args.distances + row * args.k, args.offer_rows[i],
             args.offer_distances[i]);
  }

 private:
  __device__ void insert(uint32_t* list, float* distances, uint32_t row, float distance) const {
    const auto is_behind = [&](uint32_t place) {
      return list[place] == kNoRow || distance < distances[place] ||
             (distance == distances[place] && row < list[place]);
    };
    uint32_t place = args.k;
    while (place > 0 && is_behind(place - 1)) --place;
    if (place == args.k) return;
    for (uint32_t i = args.k - 1; i > place; --i) {
      list[i] = list[i - 1];
      distances[i] = distances[i - 1];
    }
    list[place] = row;
    distances[place] = distance;
  }
};

/// `lists` gets [rows, k], the first k of each walked list after each row was inserted into the lists of the rows in its own
/// where it is nearer than their k-th: a product is the same from both ends. Some rows after others offer themselves, so
/// that offers take little memory whatever they are.
void make_mutual(const WalkedLists& walked, uint32_t rows, uint32_t k, uint32_t* lists, const Stream& stream,
                 const Execution& execution) {
  const uint64_t counted = rows + uint64_t{1};
  const uint64_t scratch_bytes = sum_scratch_bytes(counted);
  const DeviceArray<float> distances(uint64_t{rows} * k, stream);
  const DeviceArray<uint32_t> counts(counted, stream);
  const DeviceArray<uint64_t> begins(counted, stream);
  const DeviceArray<uint8_t> scratch(scratch_bytes, stream);
  MutualArgs args = {};
  args.walked = walked.rows.data();
  args.walked_distances = walked.distances.data();
  args.lists = lists;
  args.distances = distances.data();
  args.counts = counts.data();
  args.begins = begins.data();
  args.length = walked.length;
  args.k = k;
  launch_items<TakeFirst>("take_first", uint64_t{rows} * k, args, stream);
  const uint64_t part = (rows + kOfferParts - 1) / kOfferParts;
  for (uint64_t first = 0; first < rows; first += part) {
    const uint64_t places = std::min(part, rows - first) * walked.length;
    args.first = first * walked.length;
    fill(counts.data(), 0, counted * sizeof(uint32_t), stream, "clearing device memory");
    launch_items<CountOffers>("count_offers", places, args, stream);
    sum_before(counts.data(), begins.data(), counted, scratch.data(), scratch_bytes, stream,
               "counting offers");
    uint64_t offers = 0;
    copy_to_host(&offers, begins.data() + rows, sizeof offers, stream, "fetching a number of offers");
    stream.wait();
    execution.check();
    const DeviceArray<uint32_t> offer_rows(offers, stream);
    const DeviceArray<float> offer_distances(offers, stream);
    args.offer_rows = offer_rows.data();
    args.offer_distances = offer_distances.data();
    launch_items<WriteOffers>("write_offers", places, args, stream);
    launch_items<TakeOffers>("take_offers", rows, args, stream);
  }
}

/// The lists of k, [rows, k] on the device.
std::unique_ptr<DeviceArray<uint32_t>> find_lists(const DevicePlacement& placement, uint32_t k,
                                                  const Stream& stream, const Execution& execution) {
  const uint32_t rows = placement.view().row_count;
  const WalkedLists walked(rows, list_of_walk(k, rows), stream);
  stream.wait();  // the lanes write to it
  walk_all(placement, walked, execution.span(0, 0.95));
  auto lists = std::make_unique<DeviceArray<uint32_t>>(uint64_t{rows} * k, stream);
  make_mutual(walked, rows, k, lists->data(), stream, execution);
  return lists;
}

// --- Edges ---------------------------------------------------------------------------------------

/// merge_product_row() of a row.
struct MergeEdges {
  static constexpr uint32_t kLanes = 1;
  struct Args {
    const uint32_t* near;        // [rows, degree]
    const uint32_t* by_product;  // [rows, degree]
    uint32_t* merged;            // [rows, degree]
    uint32_t degree;
  };
  const Args& args;
  __device__ void run(uint64_t row) const {
    const uint64_t at = row * args.degree;
    merge_product_row(args.near + at, args.by_product + at, args.degree, args.merged + at);
  }
};

/// Makes the edges, for the host and the placement, which has the near ones.
void make_edges(DevicePlacement& placement, uint32_t k, bool repair, SearchGraph& graph, Transfers& transfers,
                const Execution& execution) {
  const IndexView& view = placement.view();
  const uint64_t places = uint64_t{graph.rows} * graph.degree;
  const Stream stream;
  const DeviceArray<uint32_t> edges(places, stream);  // [rows, degree]
  {
    const auto lists = find_lists(placement, k, stream, execution.span(0, 0.8));
    const DeviceArray<uint32_t> pruned(places, stream);  // [rows, degree]
    prune_by_rank(lists->data(), graph.rows, k, Pruning::near(graph.degree), pruned.data(), stream,
                  execution);
    launch_items<MergeEdges>("merge_edges", graph.rows,
                             MergeEdges::Args{view.graph.targets, pruned.data(), edges.data(), graph.degree},
                             stream);
  }
  RepairResult repaired;
  if (repair) {
    execution.span(0.8, 0.9).enter("reachability");
    repaired = repair_reachability(
        {edges.data(), view.entries.rows, graph.rows, graph.degree, view.entries.count}, stream, execution);
  }
  transfers.fetch(graph.edges.data(), edges.data(), places * sizeof(uint32_t), stream);
  graph.repaired_edges = repaired.edges_added;
  if (repaired.unreachable_left != 0) {
    graph.repaired_edges = gannet::repair_reachability(graph, execution);
    transfers.send(edges.data(), graph.edges.data(), places * sizeof(uint32_t), stream);
    stream.wait();
  }
  placement.replace_edges(edges.data());
}

}  // namespace

std::unique_ptr<DevicePlacement> add_product_edges(Segment& segment, GraphOnDevice& near, uint32_t k,
                                                   bool repair, const Execution& execution) {
  std::unique_ptr<DevicePlacement> placement;
  try {
    execution.enter("placement");
    placement = near.place_edges(segment, execution.span(0, 0.1));
    execution.span(0.1, 1).enter("edges by product");
    const DeviceGuard guard(placement->device());
    make_edges(*placement, k, repair, segment.graph, near.transfers(), execution.span(0.1, 1));
    return placement;
  } catch (const Error& error) {
    if (error.status != ANN_DEVICE_NO_MEMORY) throw;
    near.fetch(segment.graph.edges, execution);  // which the placement may have
    return nullptr;
  }
}

KnnGraph lists_by_product(const Segment& segment, uint32_t k, int32_t device, const Execution& execution) {
  const auto placement = place_for_search(device - ANN_DEVICE_CUDA, segment, nullptr, execution);
  const DeviceGuard guard(placement->device());
  const Stream stream;
  const auto there = find_lists(*placement, k, stream, execution);
  KnnGraph lists{Array<uint32_t>(execution.memory, checked_product(segment.rows(), k)), segment.rows(), k, 0};
  Transfers(execution).fetch(lists.neighbors.data(), there->data(), lists.neighbors.size() * sizeof(uint32_t),
                             stream);
  return lists;
}

}  // namespace gannet::cuda
