// The placement of a segment on a CUDA device: the arrays copied, and the time of their release.

#include <algorithm>
#include <atomic>
#include <exception>
#include <span>
#include <utility>
#include <vector>

#include "backend/devices.h"
#include "backend/launch_items.cuh"
#include "backend/stream_fence.h"
#include "backend/transfers.h"
#include "dataset/codes_cuda.h"
#include "graph/bypass_rule.h"
#include "place/bypass_edges_cuda.h"
#include "place/device_build_result_cuda.h"
#include "place/narrow_codes_cuda.h"
#include "place/pivots_cuda.h"
#include "place/placement.h"
#include "segment/row_set.h"

namespace gannet::cuda {
namespace {

constexpr uint64_t kReserveBytes = uint64_t{256} << 20;  // of a device's memory, left to searches

/// Writes the edges of some rows into the graph, an edge an item.
struct ScatterEdges {
  static constexpr uint32_t kLanes = 1;
  struct Args {
    const uint32_t* rows;   // [count]
    const uint32_t* edges;  // [count, stride] of these rows
    uint32_t* targets;      // [rows of the graph, stride]
    uint32_t stride;
  };
  const Args& args;
  __device__ void run(uint64_t item) const {
    args.targets[uint64_t{args.rows[item / args.stride]} * args.stride + item % args.stride] =
        args.edges[item];
  }
};

class CudaEdgeUpdate final : public EdgeUpdate {
 public:
  CudaEdgeUpdate(int32_t device, const IndexView& view, const Allocator& memory)
      : device_(device),
        targets_(const_cast<uint32_t*>(view.graph.targets)),
        stride_(view.graph.stride),
        packed_(memory, kRowsAtOnce * (size_t{stride_} + 1)),
        there_(std::make_unique<DeviceArray<uint32_t>>(packed_.size(), *stream_)) {}

  ~CudaEdgeUpdate() override {
    const LastDeviceGuard guard(device_);
    there_.reset();
    stream_.reset();
  }

  void replace(const SearchGraph& graph, std::span<const uint32_t> rows) override {
    const DeviceGuard guard(device_);
    for (size_t first = 0; first < rows.size(); first += kRowsAtOnce)
      replace_piece(graph, rows.subspan(first, std::min(kRowsAtOnce, rows.size() - first)));
  }

 private:
  void replace_piece(const SearchGraph& graph, std::span<const uint32_t> rows) {
    uint32_t* edges = std::copy(rows.begin(), rows.end(), packed_.data());
    for (const uint32_t row : rows) edges = std::copy_n(graph.row(row).begin(), stride_, edges);
    const size_t items = rows.size() * stride_;
    copy_to_device(there_->data(), packed_.data(), (rows.size() + items) * sizeof(uint32_t), *stream_,
                   "sending edges to the device");
    launch_items<ScatterEdges>(
        "scatter_edges", items,
        ScatterEdges::Args{there_->data(), there_->data() + rows.size(), targets_, stride_}, *stream_);
    stream_->wait();
  }

  int32_t device_;
  uint32_t* targets_;  // [rows, stride]
  uint32_t stride_;
  std::unique_ptr<Stream> stream_ = std::make_unique<Stream>();
  Array<uint32_t> packed_;  // numbers of rows, then their edges
  std::unique_ptr<DeviceArray<uint32_t>> there_;
};

class CudaPlacement final : public DevicePlacement {
 public:
  CudaPlacement(int32_t device, const Segment& segment, DeviceBuildResult* built, const Execution& execution)
      : DevicePlacement(device, execution.memory) {
    const DeviceGuard guard(device);
    describe(segment);
    check_memory(segment, built);
    stream_ = std::make_unique<Stream>();
    const auto attribute = [device](cudaDeviceAttr name) {
      int value = 0;
      check(runtime().attribute(&value, name, device), "asking for an attribute of the device");
      return static_cast<uint32_t>(value);
    };
    multiprocessors_ = attribute(cudaDevAttrMultiProcessorCount);
    capability_ =
        10 * attribute(cudaDevAttrComputeCapabilityMajor) + attribute(cudaDevAttrComputeCapabilityMinor);
    Transfers own(execution);
    Upload upload{*this, built != nullptr && built->transfers != nullptr ? *built->transfers : own};
    if (segment.has_graph()) place_graph(segment, built, upload);
    place_rows(segment, built, upload);
    if (built != nullptr) {
      built->stream->wait();
      if (built->codes != nullptr) view_.codes = built->codes->data();
    }
    if (makes_halves(segment)) place_narrow(built != nullptr ? built->edges->data() : nullptr);
    if (segment.has_graph()) place_pivots(segment.graph, {}, upload);
    stream_->wait();
    // Last, because a build whose copy is refused goes on with its own arrays.
    if (built != nullptr) adopt(*built, segment);
  }

  ~CudaPlacement() override {
    free_quietly([this](bool reachable) {
      if (reachable) fence_.wait();
      fence_.clear();
      workspaces_.clear();
      arrays_.clear();
      pivots_.reset();
      bypass_.reset();
      build_stream_.reset();
      stream_.reset();
    });
  }

  StreamFence& fence() override { return fence_; }

  bool hide_rows(const uint32_t* rows, uint32_t count) override {
    const DeviceGuard guard(device_);
    RowSet hidden(memory_, view_.row_count);
    for (uint32_t i = 0; i < count; ++i) hidden.insert(rows[i]);
    try {
      auto bypass = std::make_unique<Bypass>(view_, std::move(hidden), memory_, *stream_);
      make_bypass_edges({view_.codes,
                         bypass->hidden.data(),
                         view_.graph,
                         {bypass->edges.data(), view_.row_count, view_.graph.stride},
                         view_.code_stride,
                         BypassRule::known_by(count, view_.row_count)},
                        view_.kind, *stream_);
      stream_->wait();
      bypass_ = std::move(bypass);
    } catch (const Error& error) {
      if (error.status != ANN_DEVICE_NO_MEMORY) throw;
      return false;
    }
    view_.bypass.graph = view_.graph;
    view_.bypass.graph.targets = bypass_->edges.data();
    view_.bypass.entries = {bypass_->entries.data(), bypass_->entry_count};
    view_.bypass.pivots = bypass_->pivots->data();
    view_.bypass.hidden = {bypass_->hidden.data()};
    return true;
  }

  void replace_graph(const SearchGraph& graph, const Execution& execution) override {
    const DeviceGuard guard(device_);
    Transfers(execution).send(const_cast<uint32_t*>(view_.graph.targets), graph.edges.data(),
                              graph.edges.size() * sizeof(uint32_t), *stream_);
    replace_starts(graph, execution);
  }

  void replace_starts(const SearchGraph& graph, const Execution& execution) override {
    const DeviceGuard guard(device_);
    Transfers transfers(execution);
    Upload upload{*this, transfers};
    place_entries(graph, upload);
    place_pivots(graph, {}, upload);
    stream_->wait();
  }

  bool replace_pivots(const SearchGraph& graph, std::span<const uint32_t> covering,
                      const Execution& execution) override {
    const DeviceGuard guard(device_);
    Transfers transfers(execution);
    const IndexView view_before = view_;
    const uint64_t bytes_before = bytes_;
    const uint64_t pivot_bytes_before = pivot_bytes_;
    std::unique_ptr<DeviceArray<uint8_t>> pivots_before = std::move(pivots_);
    try {
      place_pivots(graph, covering, {*this, transfers});
      stream_->wait();
      // Last, as it lets the former ones go.
      if (bypass_ != nullptr) {
        bypass_->set_pivots(view_, memory_, *stream_);
        view_.bypass.pivots = bypass_->pivots->data();
      }
    } catch (...) {
      view_ = view_before;
      bytes_ = bytes_before;
      pivot_bytes_ = pivot_bytes_before;
      pivots_ = std::move(pivots_before);
      if (!is_no_memory(std::current_exception())) throw;
      return false;
    }
    return true;
  }

  void replace_edges(const uint32_t* edges) override {
    const DeviceGuard guard(device_);
    copy_on_device(const_cast<uint32_t*>(view_.graph.targets), edges,
                   uint64_t{view_.row_count} * view_.graph.stride * sizeof(uint32_t), *stream_,
                   "copying edges");
    stream_->wait();
  }

  std::unique_ptr<EdgeUpdate> update_edges() override {
    const DeviceGuard guard(device_);
    return std::make_unique<CudaEdgeUpdate>(device_, view_, memory_);
  }

  void show_rows() noexcept override {
    view_.bypass = {};
    free_quietly([this](bool) { bypass_.reset(); });
  }

 private:
  /// Device memory of view_.bypass, all but its edges filled in.
  struct Bypass {
    Bypass(const IndexView& view, RowSet&& hidden_rows, const Allocator& memory, const Stream& stream)
        : rows(std::move(hidden_rows)),
          edges(checked_product(view.row_count, view.graph.stride), stream),
          hidden(rows.words().size(), stream),
          entries(view.entries.count, stream) {
      copy_to_device(hidden.data(), rows.words().data(), rows.words().size() * sizeof(uint32_t), stream,
                     "sending hidden rows to the device");
      Array<uint32_t> starts = fetch(view.entries.rows, view.entries.count, memory, stream);
      uint32_t* const end =
          std::remove_if(starts.begin(), starts.end(), [&](uint32_t row) { return rows.holds(row); });
      entry_count = static_cast<uint32_t>(end - starts.begin());
      send(entries, starts.data(), entry_count, stream);
      set_pivots(view, memory, stream);
    }

    void set_pivots(const IndexView& view, const Allocator& memory, const Stream& stream) {
      Array<uint32_t> shown = fetch(view.pivots, view.pivot_count, memory, stream);
      const auto is_hidden = [&](uint32_t row) { return row != kNoRow && rows.holds(row); };
      std::replace_if(shown.begin(), shown.end(), is_hidden, kNoRow);
      auto there = std::make_unique<DeviceArray<uint32_t>>(view.pivot_count, stream);
      send(*there, shown.data(), view.pivot_count, stream);
      pivots = std::move(there);
    }

    static Array<uint32_t> fetch(const uint32_t* from, uint32_t count, const Allocator& memory,
                                 const Stream& stream) {
      Array<uint32_t> items(memory, count);
      copy_to_host(items.data(), from, count * sizeof(uint32_t), stream, "fetching starts from the device");
      stream.wait();
      return items;
    }
    static void send(const DeviceArray<uint32_t>& to, const uint32_t* from, uint32_t count,
                     const Stream& stream) {
      copy_to_device(to.data(), from, count * sizeof(uint32_t), stream, "sending starts to the device");
      stream.wait();
    }

    RowSet rows;                    // the hidden ones
    DeviceArray<uint32_t> edges;    // [row_count, stride]
    DeviceArray<uint32_t> hidden;   // [(row_count + 31) / 32]
    DeviceArray<uint32_t> entries;  // [entry_count]
    uint32_t entry_count = 0;
    std::unique_ptr<DeviceArray<uint32_t>> pivots;  // [pivot_count]
  };

  /// Copies to device memory that the placement then holds.
  struct Upload {
    CudaPlacement& placement;
    Transfers& transfers;

    /// `count` vectors of `bytes` bytes, `from_stride` apart, with zeros behind each.
    uint8_t* vectors(const uint8_t* from, size_t from_stride, uint64_t count, size_t bytes,
                     size_t to_stride) {
      uint8_t* to = placement.take(count * to_stride);
      transfers.send_rows(to, to_stride, from, from_stride, bytes, count, *placement.stream_);
      return to;
    }

    template <class T>
    const T* items(const T* from, uint64_t count) {
      return reinterpret_cast<const T*>(
          vectors(reinterpret_cast<const uint8_t*>(from), sizeof(T), count, sizeof(T), sizeof(T)));
    }
  };

  void describe(const Segment& segment) {
    const Dataset& dataset = segment.dataset;
    const Codes& codes = segment.codes;
    view_.kind = codes.kind();
    view_.flip = codes.flip();
    view_.lossless = codes.lossless();
    view_.row_count = dataset.rows();
    view_.code_stride = static_cast<uint32_t>(codes.stride());
    view_.graph = {nullptr, nullptr, nullptr, dataset.rows(), segment.graph.degree, segment.graph.levels};
    view_.dim = dataset.dim();
    view_.metric = dataset.metric();
    view_.element = dataset.element();
    view_.inverse_step = codes.inverse_step();
    view_.columns = Codes::code_columns(dataset.dim(), dataset.metric());
    view_.value_bytes = view_.code_stride;
    if (const ScaledCodes* scaled = codes.scaled(); scaled != nullptr) {
      view_.scaled.cells = scaled->cells();
      view_.scaled.stride = static_cast<uint32_t>(scaled->stride());
    }
    if (codes.lossless()) return;
    view_.row_stride = static_cast<uint32_t>(round_up(row_bytes(dataset), 16));
    view_.value_bytes = static_cast<uint32_t>(round_up(dataset.query_bytes(), 16));
  }

  /// Whether halves are made of codes, which are wide and have no scaled ones beside them.
  bool makes_halves(const Segment& segment) const {
    return segment.has_graph() && view_.kind == CodeKind::kFloat && segment.codes.scaled() == nullptr &&
           view_.columns >= kHalfColumnsMin;
  }

  /// Refuses a segment that cannot fit, before anything is sent.
  void check_memory(const Segment& segment, const DeviceBuildResult* built) const {
    const Dataset& dataset = segment.dataset;
    const bool rows_are_there = built != nullptr && built->sent != nullptr;
    const bool lossless = segment.codes.lossless();
    if (has_codes(built) && lossless && dataset.ids() == nullptr) return;
    uint64_t row = has_codes(built) ? 0 : view_.code_stride;
    if (built == nullptr) row += segment.graph.degree * sizeof(uint32_t);
    if (!segment.graph.prefixes.empty()) row += segment.graph.levels * sizeof(uint16_t);
    if (!lossless) row += (rows_are_there ? 0 : view_.row_stride) + view_.scaled.stride;
    if (!lossless && dataset.norms() != nullptr) row += sizeof(float);
    if (dataset.ids() != nullptr) row += sizeof(uint64_t);
    uint64_t layers = 0;
    for (const GraphLayer& layer : segment.graph.upper)
      layers += (layer.edges.size() + layer.base_rows.size()) * sizeof(uint32_t);
    const uint64_t needed = row * dataset.rows() + layers + kReserveBytes;
    const uint64_t free_bytes = DevicePool::of(device_).free_bytes();
    if (needed > free_bytes)
      fail(ANN_DEVICE_NO_MEMORY, "the index needs %llu bytes on device %d, of which %llu are free",
           static_cast<unsigned long long>(needed), device_, static_cast<unsigned long long>(free_bytes));
  }

  static bool has_codes(const DeviceBuildResult* built) {
    return built != nullptr && built->codes != nullptr;
  }

  /// Codes and edges where no build has left them, and the arrays that searches by the graph need beside them.
  void place_graph(const Segment& segment, const DeviceBuildResult* built, Upload& upload) {
    const Codes& codes = segment.codes;
    const uint64_t n = segment.rows();
    if (!has_codes(built)) view_.codes = place_codes(codes, upload);
    if (built == nullptr) view_.graph.targets = place_edges(segment.graph, upload);
    if (!segment.graph.prefixes.empty())
      view_.graph.prefixes = upload.items(segment.graph.prefixes.data(), segment.graph.prefixes.size());
    place_entries(segment.graph, upload);
    place_layers(segment.graph, upload);
    if (!codes.lossless()) view_.centre = upload.items(codes.centre().data(), view_.columns);
    if (const ScaledCodes* scaled = codes.scaled(); scaled != nullptr) {
      view_.scaled.codes =
          upload.vectors(scaled->data(), scaled->stride(), n, scaled->stride(), scaled->stride());
      view_.scaled.centres = upload.items(scaled->centres().data(), scaled->centres().size());
    }
  }

  /// As a build leaves them (dataset/codes_cuda.h).
  const uint8_t* place_codes(const Codes& codes, Upload& upload) {
    const size_t stride = codes.stride();
    uint8_t* there = upload.vectors(codes.data(), stride, codes.rows(), stride, stride);
    if (codes.flip() != 0)
      flip_and_square(there, codes.rows(), static_cast<uint32_t>(stride), codes.flip(), nullptr, *stream_);
    return there;
  }

  void place_entries(const SearchGraph& graph, Upload& upload) {
    view_.entries = {upload.items(graph.entries.data(), graph.entries.size()),
                     static_cast<uint32_t>(graph.entries.size())};
  }

  void place_layers(const SearchGraph& graph, Upload& upload) {
    for (const GraphLayer& layer : graph.upper) {
      view_.layers.upper[view_.layers.count++] = {
          upload.items(layer.edges.data(), layer.edges.size()),
          upload.items(layer.base_rows.data(), layer.base_rows.size())};
    }
  }

  /// Variable rows are padded to the longest one.
  const uint32_t* place_edges(const SearchGraph& graph, Upload& upload) {
    if (graph.is_fixed()) return upload.items(graph.edges.data(), graph.edges.size());
    Array<uint32_t> padded(memory_, checked_product(graph.rows, graph.degree));
    padded.fill(kNoRow);
    const EdgeTable table = {padded.data(), graph.rows, graph.degree};
    for (uint32_t row = 0; row < graph.rows; ++row) {
      const AdjacencyRow edges = graph.row(row);
      std::copy(edges.begin(), edges.end(), table.row(row));
    }
    const uint32_t* there = upload.items(padded.data(), padded.size());
    stream_->wait();
    return there;
  }

  void place_rows(const Segment& segment, const DeviceBuildResult* built, Upload& upload) {
    const Dataset& dataset = segment.dataset;
    const uint64_t n = dataset.rows();
    if (dataset.ids() != nullptr) view_.ids = upload.items(dataset.ids(), n);
    if (segment.codes.lossless()) return;
    if (built != nullptr && built->sent != nullptr)
      view_.rows = built->sent->data();
    else if (built != nullptr && built->rows != nullptr)
      view_.rows = copy_rows_here(built->rows, built->row_stride, n, row_bytes(dataset));
    else
      view_.rows = upload.vectors(static_cast<const uint8_t*>(dataset.view().data), dataset.view().stride, n,
                                  row_bytes(dataset), view_.row_stride);
    if (dataset.norms() != nullptr) view_.norms = upload.items(dataset.norms(), n);
  }

  static bool is_no_memory(const std::exception_ptr& thrown) {
    try {
      std::rethrow_exception(thrown);
    } catch (const Error& error) {
      return error.status == ANN_DEVICE_NO_MEMORY;
    } catch (...) {
      return false;
    }
  }

  /// The numbers and codes of the pivots, in one piece of memory.
  void place_pivots(const SearchGraph& graph, std::span<const uint32_t> covering, const Upload& upload) {
    const Array<uint32_t> rows = draw_pivots(graph, covering, memory_);
    const auto count = static_cast<uint32_t>(rows.size());
    const uint64_t code_bytes = uint64_t{view_.code_stride} + view_.halves.stride + view_.narrow.stride;
    const uint64_t bytes = count * (code_bytes + sizeof(uint32_t) + sizeof(int32_t));
    auto memory = std::make_unique<DeviceArray<uint8_t>>(bytes, *stream_);
    uint8_t* next = memory->data();
    const auto take = [&](uint64_t item_bytes) { return std::exchange(next, next + count * item_bytes); };
    uint8_t* const codes = take(view_.code_stride);
    uint8_t* const of_halves = take(view_.halves.stride);
    uint8_t* const of_bytes = take(view_.narrow.stride);
    auto* const numbers = reinterpret_cast<uint32_t*>(take(sizeof(uint32_t)));
    auto* const squares = reinterpret_cast<int32_t*>(take(sizeof(int32_t)));
    upload.transfers.send(numbers, rows.data(), count * sizeof(uint32_t), *stream_);
    const auto gather = [&](const uint8_t* from, uint32_t stride, uint8_t* to) {
      gather_pivots(numbers, count, from, stride, to, squares, *stream_);
      return to;
    };
    if (view_.halves.codes != nullptr)
      view_.halves.pivot_codes = gather(view_.halves.codes, view_.halves.stride, of_halves);
    if (view_.narrow.codes != nullptr)
      view_.narrow.pivot_codes = gather(view_.narrow.codes, view_.narrow.stride, of_bytes);
    view_.pivot_codes = gather(view_.codes, view_.code_stride, codes);
    view_.pivots = numbers;
    view_.squares = squares;
    view_.pivot_count = count;
    bytes_ += bytes - pivot_bytes_;
    pivot_bytes_ = bytes;
    pivots_ = std::move(memory);
  }

  /// Wide codes as halves and as bytes, where those order rows as well, and the device has room: wider codes serve
  /// without. `built`: edges that a build has left.
  void place_narrow(const uint8_t* built) {
    const uint32_t* edges = built != nullptr ? reinterpret_cast<const uint32_t*>(built) : view_.graph.targets;
    const uint32_t half_stride = HalfView::stride_of(view_.code_stride);
    view_.halves.codes = make_narrow(make_half_codes, half_stride, edges);
    if (view_.halves.codes != nullptr) view_.halves.stride = half_stride;
    if (view_.metric != ANN_METRIC_L2 || view_.columns < kByteColumnsMin) return;
    const auto byte_stride = static_cast<uint32_t>(ScaledCodes::code_stride(view_.dim));
    view_.narrow.codes = make_narrow(make_byte_codes, byte_stride, edges);
    if (view_.narrow.codes == nullptr) return;
    view_.narrow.stride = byte_stride;
    view_.narrow.cells = 1;
  }

  /// Narrow codes that the placement then holds, or null where they do not serve, or have no room.
  template <class Make>
  const uint8_t* make_narrow(const Make& make, uint32_t stride, const uint32_t* edges) {
    const uint64_t bytes = uint64_t{view_.row_count} * stride;
    if (bytes + kReserveBytes > DevicePool::of(device_).free_bytes()) return nullptr;
    auto narrow = std::make_unique<DeviceArray<uint8_t>>(bytes, *stream_);
    const auto terms_at = static_cast<uint32_t>(ScaledCodes::terms_at(view_.dim));
    if (!make({view_.codes, narrow->data(), edges, view_.row_count, view_.code_stride, stride,
               view_.graph.stride, view_.dim, terms_at},
              *stream_))
      return nullptr;
    arrays_.push_back(std::move(narrow));
    bytes_ += bytes;
    return arrays_.back()->data();
  }

  /// Takes over the arrays that a build has left, when nothing can go wrong any more.
  void adopt(DeviceBuildResult& built, const Segment& segment) {
    arrays_.reserve(arrays_.size() + 3);
    view_.graph.targets = reinterpret_cast<const uint32_t*>(built.edges->data());
    if (built.codes != nullptr) {
      arrays_.push_back(std::move(built.codes));
      bytes_ += segment.rows() * segment.codes.stride();
    }
    arrays_.push_back(std::move(built.edges));
    if (built.sent != nullptr) {
      arrays_.push_back(std::move(built.sent));
      bytes_ += segment.rows() * built.row_stride;
    }
    build_stream_ = std::move(built.stream);
    bytes_ += segment.rows() * segment.graph.degree * sizeof(uint32_t);
  }

  /// Copies rows of `bytes` bytes that lie on the device.
  const uint8_t* copy_rows_here(const uint8_t* from, uint64_t from_stride, uint64_t count, size_t bytes) {
    uint8_t* to = take(count * view_.row_stride);
    if (bytes != view_.row_stride) fill(to, 0, count * view_.row_stride, *stream_, "clearing device memory");
    copy_rows(to, view_.row_stride, from, from_stride, bytes, count, cudaMemcpyDeviceToDevice, *stream_,
              "copying rows");
    return to;
  }

  /// Device memory that the placement holds.
  uint8_t* take(uint64_t bytes) {
    arrays_.push_back(std::make_unique<DeviceArray<uint8_t>>(bytes, *stream_));
    bytes_ += bytes;
    return arrays_.back()->data();
  }

  static size_t row_bytes(const Dataset& dataset) {
    return size_t{dataset.dim()} * element_bytes(dataset.element());
  }

  /// The caller's device stays as it is, also where CUDA has been lost.
  template <class Free>
  void free_quietly(const Free& free) noexcept {
    int previous = 0;
    const bool reachable = !is_abandoned() && runtime().current_device(&previous) == cudaSuccess;
    if (reachable) runtime().choose_device(device_);
    free(reachable);
    if (reachable) runtime().choose_device(previous);
    if (reachable) runtime().last_error();
  }

  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Stream> build_stream_;  // the stream of arrays that a build has left
  std::vector<std::unique_ptr<DeviceArray<uint8_t>>> arrays_;
  std::unique_ptr<DeviceArray<uint8_t>> pivots_;
  uint64_t pivot_bytes_ = 0;
  std::unique_ptr<Bypass> bypass_;  // while rows are hidden
  StreamFence fence_;
};

}  // namespace

std::unique_ptr<DevicePlacement> place_segment(int32_t device, const Segment& segment,
                                               DeviceBuildResult* built, const Execution& execution) {
  if (built == nullptr) {
    require_live();
    const char* reason = "";
    const uint32_t devices = cuda_device_count(&reason);
    if (devices == 0) fail(ANN_NO_DEVICE, "CUDA device %d was asked for, but %s", device, reason);
    if (device < 0 || static_cast<uint32_t>(device) >= devices)
      fail(ANN_NO_DEVICE, "CUDA device %d was asked for; there are %u", device, devices);
    execution.enter("placement");
  }
  return std::make_unique<CudaPlacement>(device, segment, built, execution);
}

}  // namespace gannet::cuda
