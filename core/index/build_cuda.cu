// The build's phases on a CUDA device, one after the other, on one stream.
//
// Device memory, at most: codes, k-NN lists and the workspace of finding them; then codes, lists and pruned
// edges; then codes, pruned and merged edges and the workspace of the sort. index/estimate.cpp adds it up for
// ann_estimate.
//
// Milliseconds beside the phases' own, one NVIDIA H200 with 16 processor cores, 1M rows of 128 bytes and
// degree 64: codes to the device 5, edges to the host 7. The edges are on their way to the host while the
// device already calibrates, and are not sent back: the index's copy on the device is made of them. Rows
// that lie on the device are not sent at all (dataset/ingest.h).

#include <algorithm>

#include "backend/devices.h"
#include "backend/launch_items.cuh"
#include "dataset/codes_cuda.h"
#include "graph/diversify_cuda.h"
#include "graph/ggnn_cuda.h"
#include "graph/long_edges_cuda.h"
#include "graph/search_graph_cuda.h"
#include "index/build_cuda.h"
#include "knn/cells_cuda.h"
#include "knn/exact_knn_cuda.h"
#include "knn/nn_descent_cuda.h"
#include "place/device_build_result_cuda.h"
#include "search/device_search.h"

namespace gannet::cuda {
namespace {

/// Makes the device current for a scope, after a check that it exists.
DeviceGuard guard_of(int32_t device) {
  check_cuda_device(device);
  return DeviceGuard(device - ANN_DEVICE_CUDA);
}

/// Copies lists of some rows, a place of one list an item.
struct TakeLists {
  static constexpr uint32_t kLanes = 1;
  struct Args {
    const uint32_t* lists;  // [rows, k]
    const uint32_t* rows;   // [sample]
    uint32_t k;
    uint32_t* taken;  // [sample, k]
  };
  const Args& args;
  __device__ void run(uint64_t item) const {
    args.taken[item] = args.lists[uint64_t{args.rows[item / args.k]} * args.k + item % args.k];
  }
};

/// Fetches the sampled lists, which the host measures by rows as stored.
SampledLists sample_lists(const uint32_t* neighbors, uint32_t rows, const NnDescentParams& params,
                          Transfers& transfers, const Stream& stream, const Execution& execution) {
  SampledLists sampled{rows_to_measure(rows, params.seed, execution.memory), {}, params.k};
  const uint64_t places = sampled.rows.size() * params.k;
  sampled.neighbors = Array<uint32_t>(execution.memory, places);
  const DeviceArray<uint32_t> there(sampled.rows.size(), stream);
  const DeviceArray<uint32_t> taken(places, stream);
  transfers.send(there.data(), sampled.rows.data(), sampled.rows.size() * sizeof(uint32_t), stream);
  launch_items<TakeLists>("take_lists", places,
                          TakeLists::Args{neighbors, there.data(), params.k, taken.data()}, stream);
  transfers.fetch(sampled.neighbors.data(), taken.data(), places * sizeof(uint32_t), stream);
  return sampled;
}

/// `neighbors` and `distances`, unless null, are [rows, k].
FoundLists find(const CodesView& codes, int32_t method, const NnDescentParams& params,
                const CellsEffort& effort, uint32_t* neighbors, uint32_t* distances, const Stream& stream,
                const Execution& execution) {
  if (method == ANN_KNN_EXACT) {
    exact_knn(codes, params.k, neighbors, distances, stream, execution);
    return {};
  }
  if (method != ANN_KNN_CELLS)
    return {nn_descent(codes, params, neighbors, distances, stream, execution), 0, 0, {}};
  const CellsReport report = cells_knn(codes, params, effort, neighbors, distances, stream, execution);
  return {report.iterations != 0 ? report.iterations : report.rounds,
          report.lists.share,
          report.lists.dimension,
          {}};
}

/// Codes on the device and the stream that a build works on: those made of rows that lie there, or the host's.
class CodesOnDevice {
 public:
  CodesOnDevice(const Codes& codes, std::unique_ptr<DeviceIngest> ingest, Transfers& transfers)
      : stream_(ingest != nullptr ? ingest->take_stream() : std::make_unique<Stream>()),
        codes_(ingest != nullptr ? ingest->take_codes()
                                 : std::make_unique<DeviceCodes>(codes, *stream_, transfers)),
        ingest_(std::move(ingest)) {}

  const Stream& stream() const { return *stream_; }
  CodesView view() const { return codes_->view(); }
  /// Null: the rows lie on the host.
  DeviceIngest* ingest() const { return ingest_.get(); }

  /// Returns when the host has rows and codes too.
  void wait_for_host() const {
    if (ingest_ != nullptr) ingest_->wait();
  }

  /// Gives stream and codes away, after which it has neither.
  void release_to(DeviceBuildResult& result) {
    result.codes = codes_->release();
    codes_.reset();
    result.stream = std::move(stream_);
  }

 private:
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<DeviceCodes> codes_;    // its memory goes on the stream
  std::unique_ptr<DeviceIngest> ingest_;  // it reads the codes, so it goes first
};

class Graph final : public GraphOnDevice {
 public:
  Graph(const Codes& codes, std::unique_ptr<DeviceIngest> ingest, int32_t device, const Execution& execution)
      : device_(device),
        transfers_(execution),
        rows_(codes.rows()),
        codes_(std::make_unique<CodesOnDevice>(codes, std::move(ingest), transfers_)) {
    if (codes_->ingest() == nullptr) return;
    left_.rows = codes_->ingest()->rows().data;
    left_.row_stride = codes_->ingest()->rows().stride;
    left_.sent = codes_->ingest()->take_rows();
  }

  ~Graph() override {
    const LastDeviceGuard guard(device_);
    left_.edges.reset();
    left_.sent.reset();
    codes_.reset();
    left_.codes.reset();
    left_.stream.reset();
  }

  void make(int32_t method, const KnnLists* given, const BuildPlan& plan, const Array<uint32_t>& entries,
            const Execution& execution) {
    auto pruned = prune(method, given, plan, execution.span(0, 0.9));
    const size_t places = checked_product(rows_, degree);

    execution.span(0.9, 0.95).enter("reverse edges");
    left_.edges = std::make_unique<DeviceArray<uint8_t>>(places * sizeof(uint32_t), stream());
    edges_ = reinterpret_cast<uint32_t*>(left_.edges->data());
    add_reverse_edges(pruned->data(), rows_, degree, edges_, stream(), execution);
    pruned.reset();
    finish(plan, entries, execution.span(0.95, 1));
  }

  /// GGNN's graph, of which the host gets the layers.
  void make_ggnn(const BuildPlan& plan, SearchGraph& graph, const Execution& execution) {
    degree = plan.degree;
    left_.edges =
        std::move(build_ggnn(codes_->view(), plan.ggnn, graph, stream(), execution.span(0, 0.95)).edges);
    edges_ = reinterpret_cast<uint32_t*>(left_.edges->data());
    finish(plan, graph.entries, execution.span(0.95, 1));
  }

  void fetch(Array<uint32_t>& edges, const Execution& execution) const override {
    execution.check();
    if (edges_ == nullptr)
      fail(ANN_DEVICE_NO_MEMORY, "the edges went with a placement for which memory was short");
    const DeviceGuard guard(device_);
    const Stream stream;
    transfers().fetch(edges.data(), edges_, edges.size() * sizeof(uint32_t), stream);
  }

  Transfers& transfers() const override {
    return codes_->ingest() != nullptr ? codes_->ingest()->transfers() : transfers_;
  }

  void replace(const Array<uint32_t>& edges, const Execution& execution) override {
    execution.check();
    const DeviceGuard guard(device_);
    transfers_.send(edges_, edges.data(), edges.size() * sizeof(uint32_t), stream());
    stream().wait();
  }

  std::unique_ptr<DevicePlacement> place(const Segment& segment, const Execution& execution) override {
    const DeviceGuard guard(device_);
    codes_->release_to(left_);
    return hand_over(segment, execution);
  }

  std::unique_ptr<DevicePlacement> place_edges(const Segment& segment, const Execution& execution) override {
    const DeviceGuard guard(device_);
    codes_->release_to(left_);
    left_.codes.reset();
    return hand_over(segment, execution);
  }

 private:
  /// To a placement, which may fail with the edges in its hands.
  std::unique_ptr<DevicePlacement> hand_over(const Segment& segment, const Execution& execution) {
    left_.transfers = &transfers();
    try {
      return place_for_search(device_, segment, &left_, execution);
    } catch (...) {
      if (left_.edges == nullptr) edges_ = nullptr;
      throw;
    }
  }

  const Stream& stream() const { return codes_->stream(); }

  /// From codes, or given lists, to pruned lists.
  std::unique_ptr<DeviceArray<uint32_t>> prune(int32_t method, const KnnLists* given, const BuildPlan& plan,
                                               const Execution& execution) {
    const uint32_t k = plan.nn_descent.k;
    const size_t places = checked_product(rows_, k);
    const DeviceArray<uint32_t> knn(places, stream());                                       // [rows, k]
    const DeviceArray<uint32_t> distances(plan.pruning.by_distance ? places : 0, stream());  // the same
    uint32_t* lengths = plan.pruning.by_distance ? distances.data() : nullptr;
    if (given != nullptr) {
      const uint64_t bytes = uint64_t{places} * sizeof(uint32_t);
      transfers_.send(knn.data(), given->graph.neighbors.data(), bytes, stream());
      if (lengths != nullptr) transfers_.send(lengths, given->distances.data(), bytes, stream());
    } else {
      found = find(codes_->view(), method, plan.nn_descent, kGraphEffort, knn.data(), lengths, stream(),
                   execution.span(0, 0.95));
      if (found.share != 0)
        found.sampled = sample_lists(knn.data(), rows_, plan.nn_descent, transfers_, stream(), execution);
    }
    execution.span(0.95, 1).enter("prune");
    const Pruning& pruning = pruning_for(plan, found.dimension);
    degree = pruning.degree;
    auto pruned = std::make_unique<DeviceArray<uint32_t>>(checked_product(rows_, degree), stream());
    if (lengths == nullptr)
      prune_by_rank(knn.data(), rows_, k, pruning, pruned->data(), stream(), execution);
    else
      prune_by_distance(knn.data(), lengths, rows_, k, pruning, pruned->data(), stream(), execution);
    return pruned;
  }

  void finish(const BuildPlan& plan, const Array<uint32_t>& entries, const Execution& execution) {
    if (plan.repair) repair(entries, execution);
    stream().wait();
    if (codes_->ingest() == nullptr) return;
    execution.span(0.8, 1).enter("rows to the host");
    codes_->wait_for_host();
  }

  void repair(const Array<uint32_t>& entries, const Execution& execution) {
    execution.enter("reachability");
    const DeviceArray<uint32_t> starts(entries.size(), stream());
    copy_to_device(starts.data(), entries.data(), entries.size() * sizeof(uint32_t), stream(),
                   "sending entry points");
    const RepairResult repair = repair_reachability(
        {edges_, starts.data(), rows_, degree, static_cast<uint32_t>(entries.size())}, stream(), execution);
    repaired_edges = repair.edges_added;
    unreachable = repair.unreachable_left;
  }

  int32_t device_;
  DeviceBuildResult left_;  // until a placement takes it over
  mutable Transfers transfers_;
  uint32_t rows_;
  std::unique_ptr<CodesOnDevice> codes_;
  uint32_t* edges_ = nullptr;  // [rows, degree] here or in the index
};

}  // namespace

KnnLists find_neighbors(const Codes& codes, std::unique_ptr<DeviceIngest> ingest, int32_t method,
                        const NnDescentParams& params, int32_t device, const Execution& execution) {
  const DeviceGuard guard = guard_of(device);
  const size_t places = checked_product(codes.rows(), params.k);
  KnnLists lists{{Array<uint32_t>(execution.memory, places), codes.rows(), params.k, 0},
                 Array<uint32_t>(execution.memory, places)};
  if (places == 0) return lists;
  Transfers transfers(execution);
  const CodesOnDevice there(codes, std::move(ingest), transfers);
  const Stream& stream = there.stream();
  const DeviceArray<uint32_t> neighbors(places, stream);
  const DeviceArray<uint32_t> distances(places, stream);
  const FoundLists found =
      find(there.view(), method, params, kListEffort, neighbors.data(), distances.data(), stream, execution);
  lists.graph.iterations = found.iterations;
  lists.graph.share = found.share;
  execution.check();
  there.wait_for_host();
  transfers.fetch(lists.graph.neighbors.data(), neighbors.data(), places * sizeof(uint32_t), stream);
  transfers.fetch(lists.distances.data(), distances.data(), places * sizeof(uint32_t), stream);
  return lists;
}

KnnGraph find_neighbors_by_products(const Codes& codes, const Array<uint32_t>& offsets,
                                    const NnDescentParams& params, int32_t device,
                                    const Execution& execution) {
  const DeviceGuard guard = guard_of(device);
  const size_t places = checked_product(codes.rows(), params.k);
  KnnGraph found{Array<uint32_t>(execution.memory, places), codes.rows(), params.k, 0};
  Transfers transfers(execution);
  const Stream stream;
  const DeviceCodes there(codes, stream, transfers);
  const DeviceArray<uint32_t> offsets_there(offsets.size(), stream);
  transfers.send(offsets_there.data(), offsets.data(), offsets.size() * sizeof(uint32_t), stream);
  const DeviceArray<uint32_t> neighbors(places, stream);
  const uint32_t most = *std::max_element(offsets.begin(), offsets.end());
  found.iterations = nn_descent_by_products(there.view(), offsets_there.data(), most, params,
                                            neighbors.data(), stream, execution);
  execution.check();
  transfers.fetch(found.neighbors.data(), neighbors.data(), places * sizeof(uint32_t), stream);
  return found;
}

KnnGraph ggnn_knn(const Codes& codes, std::unique_ptr<DeviceIngest> ingest, uint32_t k, uint64_t seed,
                  int32_t device, const Execution& execution) {
  const DeviceGuard guard = guard_of(device);
  Transfers transfers(execution);
  const CodesOnDevice there(codes, std::move(ingest), transfers);
  const Stream& stream = there.stream();
  const GgnnParams params = ggnn_list_params(k, seed);
  SearchGraph graph;
  graph.rows = codes.rows();
  graph.degree = params.k;
  const GgnnOnDevice built = build_ggnn(there.view(), params, graph, stream, execution.span(0, 0.95));
  there.wait_for_host();
  Array<uint32_t> edges(execution.memory, checked_product(graph.rows, params.k));
  transfers.fetch(edges.data(), reinterpret_cast<const uint32_t*>(built.edges->data()),
                  edges.size() * sizeof(uint32_t), stream);
  return ggnn_lists(std::move(edges), codes, params, k, execution.span(0.95, 1));
}

FoundLists build_diversified(const Codes& codes, std::unique_ptr<DeviceIngest> ingest, int32_t method,
                             const KnnGraph* given, const BuildPlan& plan, SearchGraph& graph,
                             const Execution& execution) {
  const DeviceGuard guard = guard_of(plan.device);
  const uint32_t k = plan.nn_descent.k;
  FoundLists found;
  Transfers transfers(execution);
  const CodesOnDevice there(codes, std::move(ingest), transfers);
  const Stream& stream = there.stream();
  const uint64_t places = checked_product(codes.rows(), k);
  const DeviceArray<uint32_t> neighbors(given == nullptr ? places : 0, stream);
  if (given == nullptr) {
    found = find(there.view(), method, plan.nn_descent, kListEffort, neighbors.data(), nullptr, stream,
                 execution.span(0, 0.6));
    if (found.share != 0)
      found.sampled =
          sample_lists(neighbors.data(), codes.rows(), plan.nn_descent, transfers, stream, execution);
  }
  there.wait_for_host();
  const Execution diversifying = execution.span(0.6, 1);
  if (diversifies(plan.diversify, k)) {
    const ListsView lists = {neighbors.data(), given == nullptr ? nullptr : given->neighbors.data(), k};
    diversify(there.view(), lists, plan.diversify, plan.repair, graph, transfers, stream, diversifying);
    return found;
  }
  KnnGraph copy{Array<uint32_t>(execution.memory, places), codes.rows(), k, 0};
  if (given != nullptr)
    std::copy(given->neighbors.begin(), given->neighbors.end(), copy.neighbors.begin());
  else
    transfers.fetch(copy.neighbors.data(), neighbors.data(), places * sizeof(uint32_t), stream);
  gannet::diversify(codes, std::move(copy), plan.diversify, plan.repair, graph, diversifying);
  return found;
}

std::unique_ptr<GraphOnDevice> build_graph(const Codes& codes, std::unique_ptr<DeviceIngest> ingest,
                                           int32_t method, const KnnLists* given, const BuildPlan& plan,
                                           const Array<uint32_t>& entries, const Execution& execution) {
  const DeviceGuard guard = guard_of(plan.device);
  auto graph = std::make_unique<Graph>(codes, std::move(ingest), plan.device - ANN_DEVICE_CUDA, execution);
  graph->make(method, given, plan, entries, execution);
  return graph;
}

std::unique_ptr<GraphOnDevice> build_ggnn_graph(const Codes& codes, std::unique_ptr<DeviceIngest> ingest,
                                                const BuildPlan& plan, SearchGraph& layers,
                                                const Execution& execution) {
  const DeviceGuard guard = guard_of(plan.device);
  auto graph = std::make_unique<Graph>(codes, std::move(ingest), plan.device - ANN_DEVICE_CUDA, execution);
  graph->make_ggnn(plan, layers, execution);
  return graph;
}

bool add_long_edges(DevicePlacement& placement, Segment& segment, const Execution& execution) {
  const IndexView& view = placement.view();
  SearchGraph& graph = segment.graph;
  const DeviceGuard guard(placement.device());
  const Stream stream;
  const DeviceArray<uint32_t> edges(graph.edges.size(), stream);  // [rows, degree]
  if (!add_long_edges(segment.codes, {view.codes, view.graph.targets}, graph, segment.seed, edges.data(),
                      stream, execution))
    return false;
  placement.replace_edges(edges.data());
  return true;
}

}  // namespace gannet::cuda
