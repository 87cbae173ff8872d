// The workspace of searches from host memory on a CUDA device: memory there, pinned memory here, and the way
// between them.
//
// A search of many queries sends them as the caller gives them. Where those are not records already, the
// device makes them (records_cuda.cu): the code where codes are lossless, else the values and, for cosine, the
// length, of which it makes the code. So it is one copy to the device, two kernels to five (records, code,
// starts, walk, re-rank), one copy back, all on a stream of its own. Answers come back as counters, rows,
// distances and whether queries were finite, side by side. A search of few is one kernel, which reads records
// and writes answers in pinned host memory (walk_block_cuda.cu).
//
// Bytes of a search of 10,000 queries, k = 10, 128 columns: 1.3 MB of u8 or 5.1 MB of f32 to the device,
// 0.8 MB back: 40 to 120 us on a host link of 50 GB/s, where the kernels take 200 to 300.

#include <algorithm>
#include <atomic>

#include "search/batch_limits_cuda.h"
#include "search/pipeline_cuda.h"
#include "search/records_cuda.h"
#include "search/workspace_bytes.h"

namespace gannet::cuda {
namespace {

constexpr uint32_t kLooks = 1 << 20;  // for an answer, some milliseconds

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

class CudaWorkspace final : public DeviceWorkspace {
 public:
  explicit CudaWorkspace(const DevicePlacement& placement)
      : device_(placement.device()), view_(placement.view()), memory_(placement.memory()) {
    value_bytes_ = view_.value_bytes;
    record_bytes_ = view_.record_bytes();
    if (vectors_are_records()) vector_flip_ = view_.flip;
  }

  ~CudaWorkspace() override { settle(); }

  uint64_t staged_bytes() const { return queries_.bytes() + answers_.bytes(); }
  uint64_t bytes() const override { return staged_bytes() + usable_.bytes(); }

  /// `sent`: queries that serve, or null.
  void fit(uint32_t queries, uint32_t k, const SentQueries* sent) {
    capacity_ = 0;
    sent_ = sent;
    if (sent == nullptr) queries_.fit(queries * record_bytes_, true, stream_);
    answers_.fit(answer_bytes(queries, k) + queries * sizeof(WalkCounts), true, stream_);
    found_usable_ = nullptr;
    if (sent == nullptr && !vectors_are_records()) made_.fit(queries * record_bytes_, false, stream_);
    starts_.fit(uint64_t{queries} * kStartWords * sizeof(uint32_t), false, stream_);
    if (!view_.lossless) {
      codes_.fit(uint64_t{queries} * view_.query_code_bytes(), false, stream_);
      candidates_.fit(uint64_t{queries} * candidates_most(k) * sizeof(uint32_t), false, stream_);
    }
    if (usable_.size() < queries) usable_ = Array<uint8_t>(memory_, queries);
    records_ = sent == nullptr ? queries_.host() : nullptr;
    capacity_ = queries;
    k_ = k;
  }

  void send(uint32_t count, const SentQueries& to, uint32_t first) override {
    const DeviceGuard guard(device_);
    copy_to_device(to.records + first * record_bytes_, queries_.host(), count * record_bytes_, stream_,
                   "sending queries to the device");
    stream_.wait();
  }

  void run(uint32_t count, const SearchPlan& plan, const DeviceAdmission& admission, bool timed) override {
    const DeviceGuard guard(device_);
    const bool direct = is_direct(plan);
    const DeviceRun run = prepare(count, direct, admission, plan);
    if (sent_ == nullptr && !run.is_on_host)
      copy_to_device(queries_.device(), queries_.host(), count * record_bytes_, stream_,
                     "sending queries to the device");
    const bool polls = run.is_on_host && !timed;
    if (polls) std::fill(run.counts, run.counts + count, WalkCounts());
    if (timed) begin_.record(stream_);
    start_run(device_, view_, run, plan, stream_);
    if (timed) end_.record(stream_);
    if (!direct)
      copy_to_host(answers_.host(), answers_.device(), answer_bytes(count, k_), stream_,
                   "fetching answers from the device");
    if (!polls || !answers_come(run)) stream_.wait();
    publish(count, plan, direct);
    if (timed) kernel_seconds_ = begin_.seconds_until(end_);
  }

  void start(uint32_t count, int32_t element, const SearchPlan& plan,
             const DeviceAdmission& admission) override {
    const DeviceGuard guard(device_);
    plan_ = plan;
    count_ = count;
    started_ = true;
    const uint32_t vector_bytes = view_.dim * element_bytes(element);
    copy_to_device(queries_.device(), queries_.host(), uint64_t{count} * vector_bytes, stream_,
                   "sending queries to the device");
    DeviceRun run = prepare(count, false, admission, plan);
    if (!vectors_are_records()) {
      make_records(element, vector_bytes, count);
      run.queries = made_.device();
    }
    start_run(device_, view_, run, plan, stream_);
    const uint64_t flag_bytes = vectors_are_records() ? 0 : count;
    copy_to_host(answers_.host(), answers_.device(), answer_bytes(count, k_) + flag_bytes, stream_,
                 "fetching answers from the device");
  }

  void finish() override {
    const DeviceGuard guard(device_);
    stream_.wait();
    started_ = false;
    publish(count_, plan_, false);
    found_usable_ = vectors_are_records() ? nullptr : flags(answers_.host());
  }

  /// Waits for the work that start() has queued, if finish() has not: after an error of the call.
  void settle() noexcept override {
    if (started_ && !is_abandoned()) runtime().wait_for_stream(stream_);
    started_ = false;
  }

 private:
  /// Whether vectors, which are of the rows' element then, are the bytes of their records but for a flip.
  bool vectors_are_records() const { return view_.lossless && view_.dim == record_bytes_; }
  /// [count] whether queries are finite, behind answers.
  uint8_t* flags(uint8_t* answers) const { return answers + answer_bytes(count_, k_); }

  void make_records(int32_t element, uint32_t vector_bytes, uint32_t count) {
    RecordArgs args = {};
    args.queries = queries_.device();
    args.records = made_.device();
    args.usable = flags(answers_.device());
    args.query_stride = vector_bytes;
    args.record_stride = static_cast<uint32_t>(record_bytes_);
    args.value_bytes = view_.value_bytes;
    args.dim = view_.dim;
    args.count = count;
    args.aligned = true;
    args.flip = view_.flip;
    args.scaled = view_.metric == ANN_METRIC_COSINE;
    args.element = element;
    args.as_floats = is_float_element(view_.element);
    start_records(args, stream_);
  }

  static uint64_t answer_bytes(uint64_t queries, uint32_t k) {
    return sizeof(WalkCounters) + queries * k * (sizeof(uint32_t) + sizeof(float));
  }
  static uint32_t* answer_rows(uint8_t* answers) {
    return reinterpret_cast<uint32_t*>(answers + sizeof(WalkCounters));
  }
  float* answer_distances(uint8_t* answers, uint64_t count) const {
    return reinterpret_cast<float*>(answer_rows(answers) + count * k_);
  }

  /// Few queries: kernels write the answers to pinned host memory, and read queries there if they read
  /// them once. That takes less time than two copies.
  static bool is_direct(const SearchPlan& plan) { return walks_by_blocks(plan); }

  WalkCounts* answer_counts(uint64_t count) const {
    return reinterpret_cast<WalkCounts*>(answers_.host() + answer_bytes(count, k_));
  }

  /// Waits a while for answers that kernels write to host memory; the driver takes 1.5 us longer to see
  /// that a kernel has ended. False if they do not come soon: then something else is to be waited for.
  static bool answers_come(const DeviceRun& run) {
    uint32_t looks = 0;
    for (uint32_t query = 0; query < run.count; ++query) {
      const volatile uint32_t* distances = &run.counts[query].distances;
      while (*distances == 0) {
        if (++looks == kLooks) return false;
      }
    }
    std::atomic_thread_fence(std::memory_order_acquire);
    return true;
  }

  DeviceRun prepare(uint32_t count, bool direct, const DeviceAdmission& admission, const SearchPlan& plan) {
    DeviceRun run = {};
    uint8_t* answers = direct ? answers_.host() : answers_.device();
    const bool one_kernel = view_.lossless || walks_whole(view_, plan, k_);
    run.is_on_host = direct && one_kernel && sent_ == nullptr;
    run.queries = sent_ != nullptr ? sent_->records : run.is_on_host ? queries_.host() : queries_.device();
    run.query_stride = static_cast<uint32_t>(record_bytes_);
    run.starts = reinterpret_cast<uint32_t*>(starts_.device());
    run.counters = reinterpret_cast<WalkCounters*>(answers_.device());
    run.counts = direct ? answer_counts(count) : nullptr;
    run.rows = answer_rows(answers);
    run.distances = answer_distances(answers, count);
    run.count = count;
    run.k = k_;
    if (!view_.lossless) {
      run.codes = codes_.device();
      run.candidates = reinterpret_cast<uint32_t*>(candidates_.device());
    }
    run.bypass = admission.bypass;
    run.removed = removed_rows(admission.removed);
    if (admission.masked != nullptr) {
      masked_.fit(count * sizeof(uint32_t), false, stream_);
      copy_to_device(masked_.device(), admission.masked, count * sizeof(uint32_t), stream_,
                     "sending masked rows to the device");
      run.masked = reinterpret_cast<const uint32_t*>(masked_.device());
    }
    return run;
  }

  /// The set on the device. As a rule it is the one of the last search.
  RowSetView removed_rows(const RowSetView& rows) {
    if (rows.empty()) return {};
    if (removed_version_ != rows.version) {
      const uint64_t bytes = RowSet::word_count(view_.row_count) * sizeof(uint32_t);
      removed_version_ = 0;
      removed_.fit(bytes, false, stream_);
      copy_to_device(removed_.device(), rows.words, bytes, stream_, "sending removed rows to the device");
      removed_version_ = rows.version;
    }
    return {reinterpret_cast<const uint32_t*>(removed_.device()), rows.version};
  }

  void publish(uint32_t count, const SearchPlan& plan, bool direct) {
    const WalkCounters counters = direct ? sum_of(answer_counts(count), count)
                                         : *reinterpret_cast<const WalkCounters*>(answers_.host());
    distance_count_ = count_distances(view_, counters, count, plan, k_);
    expansion_count_ = counters.expansions;
    rows_ = answer_rows(answers_.host());
    distances_ = answer_distances(answers_.host(), count);
  }

  int32_t device_;
  const IndexView& view_;
  Allocator memory_;
  uint32_t k_ = 0;
  Stream stream_;
  Event begin_{true};
  Event end_{true};
  const SentQueries* sent_ = nullptr;  // queries that are read, or null: its own
  Staging queries_;                    // [capacity, record_bytes], or vectors, which take no more
  Staging made_;                       // [capacity, record_bytes] records of vectors
  Staging answers_;     // counters, [capacity, k] rows, [capacity, k] distances, [capacity] counts or flags
  Staging starts_;      // [capacity, kStartWords]
  Staging codes_;       // [capacity, code_stride] where codes are lossy
  Staging candidates_;  // [capacity, candidates_most(k)] rows to re-rank
  Staging masked_;      // [capacity]
  Staging removed_;     // the bits of a RowSet of removed_version_
  uint64_t removed_version_ = 0;

  // Between start() and finish():
  SearchPlan plan_;
  uint32_t count_ = 0;
  bool started_ = false;
};

/// They go on a stream of their own.
struct QueriesOnDevice final : SentQueries {
  QueriesOnDevice(int32_t of_device, uint64_t bytes) : device(of_device) {
    const DeviceGuard guard(device);
    stream = std::make_unique<Stream>();
    memory = std::make_unique<DeviceArray<uint8_t>>(bytes, *stream);
    records = memory->data();
    stream->wait();  // others write and read there
  }
  ~QueriesOnDevice() override {
    const LastDeviceGuard guard(device);
    memory.reset();
    stream.reset();
  }

  int32_t device;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<DeviceArray<uint8_t>> memory;
};

}  // namespace

std::unique_ptr<SentQueries> room_for_queries(const DevicePlacement& placement, uint32_t queries) {
  return std::make_unique<QueriesOnDevice>(placement.device(), queries * placement.view().record_bytes());
}

std::unique_ptr<DeviceWorkspace> take_workspace(DevicePlacement& placement, uint64_t queries, uint32_t k,
                                                const SentQueries* sent) {
  const IndexView& view = placement.view();
  uint64_t piece = std::min(staged_queries(queries, view.record_bytes(), k), queries_per_run(k));
  const DeviceGuard guard(placement.device());
  // The smallest idle one that holds so many bytes of queries, or the largest of those that do not.
  const uint64_t bytes = sent == nullptr ? piece * view.record_bytes() : 0;
  auto workspace = placement.workspaces().take<CudaWorkspace>([bytes](const auto& a, const auto& b) {
    const bool a_fits = a.staged_bytes() >= bytes;
    const bool b_fits = b.staged_bytes() >= bytes;
    if (a_fits != b_fits) return a_fits;
    return a_fits ? a.staged_bytes() < b.staged_bytes() : a.staged_bytes() > b.staged_bytes();
  });
  if (workspace == nullptr) workspace = std::make_unique<CudaWorkspace>(placement);
  for (;; piece /= 2) {
    try {
      workspace->fit(static_cast<uint32_t>(piece), k, sent);
      return workspace;
    } catch (const Error& error) {
      if (error.status != ANN_DEVICE_NO_MEMORY || piece <= kQueriesPerRunMin) throw;
    }
  }
}

}  // namespace gannet::cuda
