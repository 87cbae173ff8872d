// The copy of an index on a CUDA device, and what a search there needs beside the kernels.
//
// A query travels as one record: its code where codes are exact, else its values and, for cosine, its
// length, of which the device makes the code. So a search is one copy to the device, one kernel or three
// (code, walk, compare once more), one copy back, all on a stream of its own. Answers come back as
// counters, rows and distances, side by side.
//
// Bytes of a search of 10,000 queries, k = 10, 128 columns: 1.3 MB of u8 or 5.1 MB of f32 to the device,
// 0.8 MB back: 40 to 120 us on a host link of 50 GB/s, where the kernels take 200 to 300.

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

#include "backend/devices.h"
#include "base/random.h"
#include "search/device_index.h"
#include "search/encode_cuda.h"
#include "search/rerank_cuda.h"
#include "search/walk_cuda.h"

namespace gannet::cuda {
namespace {

constexpr uint64_t kCopyBytes = uint64_t{64} << 20;     // sent between two looks at the monitor
constexpr uint64_t kReserveBytes = uint64_t{256} << 20;  // of a device's memory, left to searches
constexpr uint64_t kStagingBytes = uint64_t{64} << 20;  // of one run's queries, and of its answers
constexpr uint64_t kPieceMin = 256;
constexpr uint64_t kPivotStream = 0x7069766f7473;  // "pivots"
// Queries of one run. A walk of a thousand answers takes some 2 ms and some 500 run at a time, so that
// a run ends within the 100 ms that cancelling promises.
constexpr uint64_t piece_max(uint32_t k) { return k <= kTwoListsMax ? 131'072 : 16'384; }

/// What the kernels read of an index.
struct Placed {
  CodeKind kind = CodeKind::kUnsigned;
  const uint8_t* codes = nullptr;
  const uint32_t* edges = nullptr;
  const uint32_t* entries = nullptr;
  const uint8_t* pivot_codes = nullptr;
  const uint32_t* pivots = nullptr;
  const int32_t* squares = nullptr;  // of the pivots
  const uint8_t* rows = nullptr;  // null where codes are exact
  const float* norms = nullptr;
  const float* centre = nullptr;  // of the codes
  float inverse_step = 1;
  uint32_t columns = 0;  // of a code
  uint32_t row_count = 0;
  uint32_t code_stride = 0;
  uint32_t row_stride = 0;
  uint32_t value_bytes = 0;
  uint32_t degree = 0;
  uint32_t entry_count = 0;
  uint32_t blocks_keep = 0;  // rows that a block's walk can keep at most
  uint32_t dim = 0;
  int32_t metric = 0;
  int32_t element = 0;

  bool exact() const { return rows == nullptr; }
  size_t record_bytes() const {
    return value_bytes + (!exact() && metric == ANN_METRIC_COSINE ? 16 : 0);
  }
};

class Event {
 public:
  Event() { check(cudaEventCreate(&event_), "creating an event"); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(const Stream& stream) { check(cudaEventRecord(event_, stream), "recording an event"); }
  double seconds_until(const Event& end) const {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, event_, end.event_), "reading an event");
    return milliseconds / 1e3;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

/// Device memory that can grow, with or without pinned memory of the same size.
class Staging {
 public:
  void fit(uint64_t bytes, bool pinned, const Stream& stream) {
    if (bytes <= bytes_) return;
    bytes_ = 0;
    host_.reset();
    device_.reset();
    device_ = std::make_unique<DeviceArray<uint8_t>>(bytes, stream);
    if (pinned) host_ = std::make_unique<PinnedBytes>(bytes);
    bytes_ = bytes;
  }
  uint64_t bytes() const { return bytes_; }
  uint8_t* host() const { return host_->data(); }
  uint8_t* device() const { return device_->data(); }

 private:
  uint64_t bytes_ = 0;
  std::unique_ptr<PinnedBytes> host_;
  std::unique_ptr<DeviceArray<uint8_t>> device_;
};

class Space final : public DeviceSpace {
 public:
  Space(int32_t device, const Placed& placed, const Allocator& memory)
      : device_(device), placed_(placed), memory_(memory) {
    value_bytes_ = placed.value_bytes;
    record_bytes_ = placed.record_bytes();
  }

  uint64_t bytes() const { return queries_.bytes() + answers_.bytes(); }

  void fit(uint32_t queries, uint32_t k) {
    capacity_ = 0;
    queries_.fit(queries * record_bytes_, true, stream_);
    answers_.fit(answer_bytes(queries, k) + queries * sizeof(WalkCounts), true, stream_);
    starts_.fit(uint64_t{queries} * kStarts * sizeof(uint32_t), false, stream_);
    if (!placed_.exact()) {
      codes_.fit(uint64_t{queries} * placed_.code_stride, false, stream_);
      candidates_.fit(uint64_t{queries} * rerank_count(k) * sizeof(uint32_t), false, stream_);
    }
    if (usable_.size() < queries) usable_ = Array<uint8_t>(memory_, queries);
    records_ = queries_.host();
    capacity_ = queries;
    k_ = k;
  }

  void run(uint32_t count, const WalkEffort& effort, const uint32_t* masked, bool timed) override {
    const DeviceGuard guard(device_);
    const bool direct = is_direct(effort);
    const WalkArgs args = prepare(count, effort, masked);
    if (!direct || !placed_.exact())
      check(cudaMemcpyAsync(queries_.device(), queries_.host(), count * record_bytes_,
                            cudaMemcpyHostToDevice, stream_),
            "sending queries to the device");
    if (timed) begin_.record(stream_);
    if (!placed_.exact()) encode(count);
    start_walks(device_, placed_.kind, args, effort, stream_);
    if (!placed_.exact()) rerank(args, answers(effort));
    if (timed) end_.record(stream_);
    if (!direct)
      check(cudaMemcpyAsync(answers_.host(), answers_.device(), answer_bytes(count, k_),
                            cudaMemcpyDeviceToHost, stream_),
            "fetching answers from the device");
    stream_.wait();
    publish(count, args.kept, effort);
    if (timed) kernel_seconds_ = begin_.seconds_until(end_);
  }

 private:
  static uint64_t answer_bytes(uint64_t queries, uint32_t k) {
    return sizeof(WalkCounters) + queries * k * (sizeof(uint32_t) + sizeof(float));
  }
  /// Few queries: kernels read them from pinned host memory and write the answers there, which takes less
  /// time than two copies.
  static bool is_direct(const WalkEffort& effort) { return effort.beam == 0 && effort.warps > 1; }
  uint8_t* answers(const WalkEffort& effort) const {
    return is_direct(effort) ? answers_.host() : answers_.device();
  }
  /// Where a block walks.
  WalkCounts* answer_counts(uint8_t* answers, uint64_t count) const {
    return reinterpret_cast<WalkCounts*>(answers + answer_bytes(count, k_));
  }
  static uint32_t* answer_rows(uint8_t* answers) {
    return reinterpret_cast<uint32_t*>(answers + sizeof(WalkCounters));
  }
  float* answer_distances(uint8_t* answers, uint64_t count) const {
    return reinterpret_cast<float*>(answer_rows(answers) + count * k_);
  }

  WalkArgs prepare(uint32_t count, const WalkEffort& effort, const uint32_t* masked) {
    WalkArgs args = {};
    args.codes = placed_.codes;
    args.edges = placed_.edges;
    args.entries = placed_.entries;
    args.pivot_codes = placed_.pivot_codes;
    args.pivots = placed_.pivots;
    args.squares = placed_.squares;
    args.starts = reinterpret_cast<uint32_t*>(starts_.device());
    args.queries = !placed_.exact()    ? codes_.device()
                   : is_direct(effort) ? queries_.host()
                                       : queries_.device();
    args.counts = answer_counts(answers(effort), count);
    args.counters = reinterpret_cast<WalkCounters*>(answers_.device());
    args.stride = placed_.code_stride;
    args.query_stride = placed_.code_stride;
    args.degree = placed_.degree;
    args.entry_count = placed_.entry_count;
    args.count = count;
    args.k = k_;
    args.kept = placed_.exact() ? k_ : rerank_count(k_);
    args.beam = effort.beam;
    if (effort.beam != 0) args.kept = std::min(args.kept, std::max(k_, effort.beam));
    args.expansions_max = effort.expansions_max;
    args.stretch = (1 + effort.slack) * (1 + effort.slack);
    if (placed_.exact()) {
      args.out_rows = answer_rows(answers(effort));
      args.out_distances = answer_distances(answers(effort), count);
    } else {
      args.out_rows = reinterpret_cast<uint32_t*>(candidates_.device());
    }
    if (masked != nullptr) {
      masked_.fit(count * sizeof(uint32_t), true, stream_);
      std::copy(masked, masked + count, reinterpret_cast<uint32_t*>(masked_.host()));
      check(cudaMemcpyAsync(masked_.device(), masked_.host(), count * sizeof(uint32_t),
                            cudaMemcpyHostToDevice, stream_),
            "sending masked rows to the device");
      args.masked = reinterpret_cast<const uint32_t*>(masked_.device());
    }
    return args;
  }

  void encode(uint32_t count) {
    EncodeArgs args = {};
    args.queries = queries_.device();
    args.centre = placed_.centre;
    args.codes = codes_.device();
    args.query_stride = static_cast<uint32_t>(record_bytes_);
    args.value_bytes = placed_.value_bytes;
    args.code_stride = placed_.code_stride;
    args.count = count;
    args.dim = placed_.dim;
    args.columns = placed_.columns;
    args.metric = placed_.metric;
    args.inverse_step = placed_.inverse_step;
    start_encode(args, placed_.element, placed_.kind == CodeKind::kFloat, stream_);
  }

  void rerank(const WalkArgs& walk, uint8_t* answers) {
    RerankArgs args = {};
    args.rows = placed_.rows;
    args.norms = placed_.norms;
    args.queries = queries_.device();
    args.candidates = walk.out_rows;
    args.out_rows = answer_rows(answers);
    args.out_distances = answer_distances(answers, walk.count);
    args.row_stride = placed_.row_stride;
    args.query_stride = static_cast<uint32_t>(record_bytes_);
    args.value_bytes = placed_.value_bytes;
    args.dim = placed_.dim;
    args.count = walk.count;
    args.kept = walk.kept;
    args.k = k_;
    args.metric = placed_.metric;
    start_rerank(args, placed_.element, stream_);
  }

  void publish(uint32_t count, uint32_t kept, const WalkEffort& effort) {
    const auto* counters = reinterpret_cast<const WalkCounters*>(answers_.host());
    distance_count_ = is_direct(effort) ? 0 : counters->distances;
    expansion_count_ = is_direct(effort) ? 0 : counters->expansions;
    const WalkCounts* counts = answer_counts(answers_.host(), count);
    for (uint32_t query = 0; is_direct(effort) && query < count; ++query) {
      distance_count_ += counts[query].distances;
      expansion_count_ += counts[query].expansions;
    }
    if (!placed_.exact())
      distance_count_ += uint64_t{count} * std::min(kept, placed_.row_count);
    rows_ = answer_rows(answers_.host());
    distances_ = answer_distances(answers_.host(), count);
  }

  int32_t device_;
  const Placed& placed_;
  Allocator memory_;
  uint32_t k_ = 0;
  Stream stream_;
  Event begin_;
  Event end_;
  Staging queries_;     // [capacity, record_bytes]
  Staging answers_;     // counters, [capacity, k] rows, [capacity, k] distances, [capacity] counts
  Staging starts_;      // [capacity, kStarts]
  Staging codes_;       // [capacity, code_stride] where codes are lossy
  Staging candidates_;  // [capacity, rerank_count(k)] rows to compare once more
  Staging masked_;      // [capacity]
};

class Copy final : public DeviceIndex {
 public:
  Copy(int32_t device, const Dataset& dataset, const Codes& codes, const SearchGraph& graph,
       const Execution& execution)
      : device_(device), memory_(execution.memory) {
    const DeviceGuard guard(device);
    describe(dataset, codes, graph);
    check_memory(dataset, codes, graph);
    stream_ = std::make_unique<Stream>();
    const auto upload = [&](const void* from, size_t from_stride, uint64_t count, size_t bytes,
                            size_t to_stride) {
      return send(static_cast<const uint8_t*>(from), from_stride, count, bytes, to_stride, execution);
    };
    const uint64_t n = codes.rows();
    placed_.codes = upload(codes.data(), codes.stride(), n, codes.stride(), codes.stride());
    const size_t edge_bytes = graph.degree * sizeof(uint32_t);
    placed_.edges = reinterpret_cast<const uint32_t*>(
        upload(graph.edges.data(), edge_bytes, n, edge_bytes, edge_bytes));
    placed_.entries = reinterpret_cast<const uint32_t*>(
        upload(graph.entries.data(), sizeof(uint32_t), graph.entries.size(), sizeof(uint32_t),
               sizeof(uint32_t)));
    if (!codes.exact())
      placed_.rows = upload(dataset.view().data, dataset.view().stride, n, row_bytes(dataset),
                            placed_.row_stride);
    if (!codes.exact() && dataset.norms() != nullptr)
      placed_.norms = reinterpret_cast<const float*>(
          upload(dataset.norms(), sizeof(float), n, sizeof(float), sizeof(float)));
    if (!codes.exact())
      placed_.centre = reinterpret_cast<const float*>(upload(
          codes.centre().data(), sizeof(float), placed_.columns, sizeof(float), sizeof(float)));
    place_pivots(codes.rows(), upload);
    stream_->wait();
  }

  ~Copy() override {
    // The caller's device stays as it is, also where CUDA has been lost.
    int previous = 0;
    const bool known = cudaGetDevice(&previous) == cudaSuccess;
    cudaSetDevice(device_);
    idle_.clear();
    arrays_.clear();
    stream_.reset();
    if (known) cudaSetDevice(previous);
    cudaGetLastError();
  }

  uint64_t bytes() const override { return bytes_; }
  bool blocks_serve(uint32_t k) const override {
    return kept_count(k, placed_.exact()) <= placed_.blocks_keep;
  }
  uint32_t multiprocessors() const override { return multiprocessors_; }

  std::unique_ptr<DeviceSpace> take_space(uint64_t queries, uint32_t k) override {
    const uint64_t staged = std::max<uint64_t>(
        1, std::min(kStagingBytes / placed_.record_bytes(), kStagingBytes / (uint64_t{k} * 8)));
    uint64_t piece = std::max<uint64_t>(1, std::min({queries, staged, piece_max(k)}));
    const DeviceGuard guard(device_);
    std::unique_ptr<Space> space = take_idle(piece * placed_.record_bytes());
    if (space == nullptr) space = std::make_unique<Space>(device_, placed_, memory_);
    for (;; piece /= 2) {
      try {
        space->fit(static_cast<uint32_t>(piece), k);
        return space;
      } catch (const Error& error) {
        if (error.status != ANN_DEVICE_NO_MEMORY || piece <= kPieceMin) throw;
      }
    }
  }

  void give_back(std::unique_ptr<DeviceSpace> space) noexcept override {
    std::unique_ptr<Space> own(static_cast<Space*>(space.release()));
    const std::lock_guard lock(mutex_);
    try {
      idle_.push_back(std::move(own));
    } catch (const std::bad_alloc&) {  // no memory to remember it: it goes
    }
  }

 private:
  static size_t row_bytes(const Dataset& dataset) {
    return size_t{dataset.dim()} * element_bytes(dataset.element());
  }

  void describe(const Dataset& dataset, const Codes& codes, const SearchGraph& graph) {
    placed_.kind = codes.wide()        ? CodeKind::kFloat
                   : codes.flip() != 0 ? CodeKind::kSigned
                                       : CodeKind::kUnsigned;
    placed_.row_count = codes.rows();
    placed_.code_stride = static_cast<uint32_t>(codes.stride());
    placed_.degree = graph.degree;
    placed_.entry_count = static_cast<uint32_t>(graph.entries.size());
    placed_.dim = dataset.dim();
    placed_.metric = dataset.metric();
    placed_.element = dataset.element();
    placed_.inverse_step = codes.inverse_step();
    placed_.columns = Codes::code_columns(dataset.dim(), dataset.metric());
    placed_.value_bytes = placed_.code_stride;
    if (codes.exact()) return;
    placed_.row_stride = static_cast<uint32_t>(round_up(row_bytes(dataset), 16));
    placed_.value_bytes = static_cast<uint32_t>(round_up(dataset.query_bytes(), 16));
  }

  /// Draws the pivots, and brings their codes together.
  template <class Upload>
  void place_pivots(uint32_t rows, const Upload& upload) {
    uint32_t pivots[kPivots];
    std::fill(pivots, pivots + kPivots, kNoRow);
    random_strata(rows, std::min(rows, kPivots), 0, kPivotStream, pivots);
    placed_.pivots = reinterpret_cast<const uint32_t*>(upload(pivots, sizeof pivots, 1, sizeof pivots, sizeof pivots));
    const auto room = [&](uint64_t bytes) {
      arrays_.push_back(std::make_unique<DeviceArray<uint8_t>>(bytes, *stream_));
      bytes_ += bytes;
      return arrays_.back()->data();
    };
    uint8_t* codes = room(uint64_t{kPivots} * placed_.code_stride);
    int32_t* squares = reinterpret_cast<int32_t*>(room(kPivots * sizeof(int32_t)));
    gather_pivots(placed_.pivots, placed_.codes, placed_.code_stride, placed_.kind, codes, squares, *stream_);
    placed_.pivot_codes = codes;
    placed_.squares = squares;
    placed_.blocks_keep = allow_block_walks(device_, placed_.kind, placed_.code_stride);
    int count = 0;
    check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device_), "asking for multiprocessors");
    multiprocessors_ = static_cast<uint32_t>(count);
    stream_->wait();  // `pivots` goes
  }

  /// Refuses before anything is sent what cannot fit.
  void check_memory(const Dataset& dataset, const Codes& codes, const SearchGraph& graph) const {
    uint64_t row = placed_.code_stride + graph.degree * sizeof(uint32_t);
    if (!codes.exact()) row += placed_.row_stride;
    if (!codes.exact() && dataset.norms() != nullptr) row += sizeof(float);
    const uint64_t needed = row * codes.rows() + kReserveBytes;
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    check(cudaMemGetInfo(&free_bytes, &total_bytes), "asking for a device's memory");
    if (needed > free_bytes)
      fail(ANN_DEVICE_NO_MEMORY, "the index needs %llu bytes on device %d, of which %zu are free",
           static_cast<unsigned long long>(needed), device_, free_bytes);
  }

  /// Copies `count` vectors of `bytes` bytes, `from_stride` apart, with zeros behind each.
  const uint8_t* send(const uint8_t* from, size_t from_stride, uint64_t count, size_t bytes,
                      size_t to_stride, const Execution& execution) {
    arrays_.push_back(std::make_unique<DeviceArray<uint8_t>>(count * to_stride, *stream_));
    bytes_ += count * to_stride;
    uint8_t* to = arrays_.back()->data();
    if (bytes != to_stride)
      check(cudaMemsetAsync(to, 0, count * to_stride, *stream_), "clearing device memory");
    const uint64_t step = std::max<uint64_t>(1, kCopyBytes / to_stride);
    for (uint64_t first = 0; first < count; first += step) {
      execution.check();
      const uint64_t part = std::min(step, count - first);
      const bool packed = from_stride == bytes && to_stride == bytes;
      check(packed ? cudaMemcpyAsync(to + first * to_stride, from + first * from_stride,
                                     part * bytes, cudaMemcpyHostToDevice, *stream_)
                   : cudaMemcpy2DAsync(to + first * to_stride, to_stride, from + first * from_stride,
                                       from_stride, bytes, part, cudaMemcpyHostToDevice, *stream_),
            "sending an index to the device");
    }
    return to;
  }

  /// The smallest idle space that holds `bytes` of queries, or the largest of those that do not.
  std::unique_ptr<Space> take_idle(uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) return nullptr;
    const auto better = [bytes](const auto& a, const auto& b) {
      const bool a_fits = a->bytes() >= bytes;
      const bool b_fits = b->bytes() >= bytes;
      if (a_fits != b_fits) return a_fits;
      return a_fits ? a->bytes() < b->bytes() : a->bytes() > b->bytes();
    };
    const auto best = std::min_element(idle_.begin(), idle_.end(), better);
    std::unique_ptr<Space> space = std::move(*best);
    idle_.erase(best);
    return space;
  }

  int32_t device_;
  Allocator memory_;
  Placed placed_;
  uint64_t bytes_ = 0;
  uint32_t multiprocessors_ = 1;
  std::unique_ptr<Stream> stream_;
  std::vector<std::unique_ptr<DeviceArray<uint8_t>>> arrays_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Space>> idle_;
};

}  // namespace

std::unique_ptr<DeviceIndex> place_index(int32_t device, const Dataset& dataset,
                                         const Codes& codes, const SearchGraph& graph,
                                         const Execution& execution) {
  require_live();
  const char* reason = "";
  const uint32_t devices = cuda_device_count(&reason);
  if (devices == 0) fail(ANN_NO_DEVICE, "CUDA device %d was asked for, but %s", device, reason);
  if (device < 0 || static_cast<uint32_t>(device) >= devices)
    fail(ANN_NO_DEVICE, "CUDA device %d was asked for; there are %u", device, devices);
  execution.enter("placement");
  return std::make_unique<Copy>(device, dataset, codes, graph, execution);
}

}  // namespace gannet::cuda
