// The copy of an index on a CUDA device, and what a search there needs beside the kernels.
//
// A search of many queries sends them as the caller gives them. Where those are not records already, the
// device makes them (records_cuda.cu): the code where codes are exact, else the values and, for cosine, the
// length, of which it makes the code. So it is one copy to the device, two kernels to five (records, code,
// starts, walk, compare once more), one copy back, all on a stream of its own. Answers come back as counters,
// rows, distances and whether queries were finite, side by side. A search of few is one kernel, which reads
// records and writes answers in pinned host memory (walk_block_cuda.cu).
//
// Bytes of a search of 10,000 queries, k = 10, 128 columns: 1.3 MB of u8 or 5.1 MB of f32 to the device,
// 0.8 MB back: 40 to 120 us on a host link of 50 GB/s, where the kernels take 200 to 300.
//
// Queries that lie on the device are made records there (records_cuda.cu), and answers are written to the
// caller's buffers (answers_cuda.cu): two small kernels more, 2 to 4 us each, and no copy. Rows of u8 and
// i8 on 16-byte boundaries, of as many columns as a code, are read where they lie.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <vector>

#include "backend/devices.h"
#include "backend/transfers.h"
#include "search/answers_cuda.h"
#include "search/cagra_cuda.h"
#include "search/device_index.h"
#include "search/encode_cuda.h"
#include "search/exact_cuda.h"
#include "search/hidden_rows_cuda.h"
#include "search/records_cuda.h"
#include "search/rerank_cuda.h"
#include "search/resident.h"
#include "search/walk_cuda.h"

namespace gannet::cuda {
namespace {

constexpr uint64_t kCopyBytes = uint64_t{64} << 20;     // sent between two looks at the monitor
constexpr uint64_t kReserveBytes = uint64_t{256} << 20;  // of a device's memory, left to searches
constexpr uint64_t kStagingBytes = uint64_t{64} << 20;  // of one run's queries, and of its answers
constexpr uint64_t kBatchBytes = uint64_t{256} << 20;   // of a piece of a batch on the device
constexpr uint64_t kPieceMin = 256;
constexpr uint32_t kLooks = 1 << 20;  // for an answer, some milliseconds
// Queries of one run. A walk of a thousand answers takes some 2 ms and some 500 run at a time, so that
// a run ends within the 100 ms that cancelling promises.
constexpr uint64_t piece_max(uint32_t k) { return k <= kTwoListsMax ? 131'072 : 16'384; }

/// What the kernels read of an index.
struct Placed {
  CodeKind kind = CodeKind::kUnsigned;
  const uint8_t* codes = nullptr;
  const uint32_t* edges = nullptr;   // [row_count, degree]
  const uint32_t* led_on = nullptr;  // the same past rows that are hidden, while there are any
  const uint32_t* entries = nullptr;
  const uint8_t* pivot_codes = nullptr;
  const uint32_t* pivots = nullptr;
  const int32_t* squares = nullptr;  // of the pivots
  const uint8_t* rows = nullptr;  // null where codes are exact, as `exact` says
  const float* norms = nullptr;
  const uint64_t* ids = nullptr;  // [row_count], or null: ids are row numbers
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

  bool codes_are_exact = false;

  bool exact() const { return codes_are_exact; }
  size_t record_bytes() const {
    return value_bytes + (!exact() && metric == ANN_METRIC_COSINE ? 16 : 0);
  }
};

/// One run of the kernels: queries as records in, rows and distances out. All that the device can reach.
struct Run {
  const uint8_t* queries;   // [count, query_stride] records
  uint8_t* codes;           // [count, code_stride] where codes are lossy
  uint32_t* candidates;     // [count, rerank_count(k)] likewise
  uint32_t* starts;         // [count, kStartWords]
  const uint32_t* masked;   // [count], or null
  WalkCounters* counters;
  WalkCounts* counts;       // [count], or null
  uint32_t* rows;           // [count, k]
  float* distances;         // [count, k]
  uint32_t query_stride;
  uint32_t count;
  uint32_t k;
  bool is_on_host;          // where queries, rows, distances and counts lie
};

/// Rows of a walk's list that are compared once more, or k where none is.
uint32_t kept_of(const Placed& placed, const WalkEffort& effort, uint32_t k) {
  if (effort.cagra.lists != 0) return effort.cagra.kept;
  if (effort.beam == 0) return kept_count(k, placed.exact());
  return placed.exact() ? k : std::min(rerank_count(k), std::max(k, effort.beam));
}

/// Whether the kernel that walks also makes codes and compares the best rows once more.
bool walks_whole(const Placed& placed, const WalkEffort& effort, uint32_t k) {
  return !placed.exact() && effort.beam == 0 && effort.warps > 1 && effort.cagra.lists == 0 &&
         kept_of(placed, effort, k) <= kWholeKeptMax;
}

EncodeArgs encode_args(const Placed& placed, const Run& run) {
  EncodeArgs args = {};
  args.queries = run.queries;
  args.centre = placed.centre;
  args.codes = run.codes;
  args.query_stride = run.query_stride;
  args.value_bytes = placed.value_bytes;
  args.code_stride = placed.code_stride;
  args.count = run.count;
  args.dim = placed.dim;
  args.columns = placed.columns;
  args.metric = placed.metric;
  args.inverse_step = placed.inverse_step;
  return args;
}

RerankArgs rerank_args(const Placed& placed, const Run& run, const WalkEffort& effort) {
  RerankArgs args = {};
  args.rows = placed.rows;
  args.norms = placed.norms;
  args.queries = run.queries;
  args.candidates = run.candidates;
  args.out_rows = run.rows;
  args.out_distances = run.distances;
  args.row_stride = placed.row_stride;
  args.query_stride = run.query_stride;
  args.value_bytes = placed.value_bytes;
  args.dim = placed.dim;
  args.count = run.count;
  args.kept = kept_of(placed, effort, run.k);
  args.k = run.k;
  args.metric = placed.metric;
  return args;
}

void walk(int32_t device, const Placed& placed, const Run& run, const WalkEffort& effort,
          const Stream& stream) {
  WalkArgs args = {};
  args.codes = placed.codes;
  args.edges = effort.hidden ? placed.led_on : placed.edges;
  args.entries = placed.entries;
  args.pivot_codes = placed.pivot_codes;
  args.pivots = placed.pivots;
  args.squares = placed.squares;
  args.starts = run.starts;
  const bool whole = walks_whole(placed, effort, run.k);
  const bool by_records = placed.exact() || whole;
  args.queries = by_records ? run.queries : run.codes;
  args.query_stride = by_records ? run.query_stride : placed.code_stride;
  args.out_rows = by_records ? run.rows : run.candidates;
  args.out_distances = by_records ? run.distances : nullptr;
  args.masked = run.masked;
  args.counters = run.counters;
  args.counts = run.counts;
  args.stride = placed.code_stride;
  if (whole) {
    args.whole.encode = encode_args(placed, run);
    args.whole.rerank = rerank_args(placed, run, effort);
    args.whole.record_bytes = static_cast<uint32_t>(placed.record_bytes());
    args.whole.element = placed.element;
  }
  const uint32_t record_bytes = whole ? args.whole.record_bytes : placed.code_stride;
  if (run.is_on_host && run.count == 1 && record_bytes <= kOneQueryBytes) {
    std::memcpy(args.one_query, args.queries, record_bytes);
    args.queries = nullptr;
  }
  args.degree = placed.degree;
  args.entry_count = placed.entry_count;
  args.count = run.count;
  args.k = run.k;
  args.kept = kept_of(placed, effort, run.k);
  args.beam = effort.beam;
  args.expansions_max = effort.expansions_max;
  args.stretch = (1 + effort.slack) * (1 + effort.slack);
  args.again_within = placed.kind == CodeKind::kFloat ? 0 : kAgainWithin;
  start_walks(device, placed.kind, args, effort, stream);
}

RowKind row_kind(const Placed& placed, const CagraPlan& plan) {
  if (!plan.stored) return placed.kind == CodeKind::kFloat ? RowKind::kF32 : RowKind::kBytes;
  if (placed.element == ANN_F32) return RowKind::kF32;
  return placed.element == ANN_F16 ? RowKind::kF16 : RowKind::kBf16;
}

/// The walk as CAGRA, by codes or by rows as stored.
void walk_as_cagra(int32_t device, const Placed& placed, const Run& run, const WalkEffort& effort,
                   const Stream& stream) {
  const CagraPlan& plan = effort.cagra;
  const bool by_records = plan.stored || placed.exact();
  CagraArgs args = {};
  args.rows = plan.stored ? placed.rows : placed.codes;
  args.norms = placed.norms;
  args.edges = effort.hidden ? placed.led_on : placed.edges;
  args.queries = by_records ? run.queries : run.codes;
  args.query_stride = by_records ? run.query_stride : placed.code_stride;
  args.out_rows = placed.exact() ? run.rows : run.candidates;
  args.out_distances = placed.exact() ? run.distances : nullptr;
  args.counters = run.counters;
  args.row_count = placed.row_count;
  args.stride = plan.stored ? placed.row_stride : placed.code_stride;
  args.columns = plan.stored ? placed.dim : placed.code_stride / sizeof(float);
  args.query_words = plan.stored ? placed.dim : placed.code_stride / sizeof(uint32_t);
  args.value_bytes = placed.value_bytes;
  args.flip = !plan.stored && placed.kind == CodeKind::kSigned ? 0x80808080 : 0;
  args.degree = placed.degree;
  args.count = run.count;
  args.kept = plan.kept;
  args.metric = plan.stored ? placed.metric : int32_t{ANN_METRIC_L2};
  const CagraLaunch choice =
      choose_cagra(device, row_kind(placed, plan), plan, placed.degree, run.count);
  const DeviceArray<uint8_t> tables(choice.scratch_bytes(), stream);
  fill(run.counters, 0, sizeof(WalkCounters), stream, "clearing device memory");
  start_cagra(choice, plan, args, tables.data(), stream);
}

/// From records to rows and distances.
void start_run(int32_t device, const Placed& placed, const Run& run, const WalkEffort& effort,
               const Stream& stream) {
  const bool by_codes = !placed.exact() && !walks_whole(placed, effort, run.k);
  if (by_codes) start_encode(encode_args(placed, run), placed.element, placed.kind == CodeKind::kFloat, stream);
  if (effort.cagra.lists != 0)
    walk_as_cagra(device, placed, run, effort, stream);
  else
    walk(device, placed, run, effort, stream);
  if (by_codes) start_rerank(rerank_args(placed, run, effort), placed.element, stream);
}

/// What the walks and the comparisons behind them came to.
uint64_t count_distances(const Placed& placed, const WalkCounters& counters, uint64_t queries,
                         const WalkEffort& effort, uint32_t k) {
  if (placed.exact()) return counters.distances;
  return counters.distances + queries * std::min(kept_of(placed, effort, k), placed.row_count);
}

/// Work that searches have queued on streams of callers, and that reads the index.
class Queued {
  struct Place {
    Place() : event(false) {}
    unsigned long long stream = 0;  // its number, which no other stream ever gets
    uint32_t users = 0;             // calls that are queueing work there
    Event event;                    // behind all work that was queued there
  };

 public:
  /// A call that queues work on a stream; at its end, whatever happens, the work is known.
  class Call {
   public:
    Call(Queued& queued, const Stream& stream)
        : queued_(queued), stream_(stream), place_(queued.enter(stream)) {}
    ~Call() { queued_.leave(place_, stream_); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    Queued& queued_;
    const Stream& stream_;
    Place& place_;
  };

  void wait() noexcept {
    for (const auto& place : places_) place->event.wait_quietly();
  }
  void clear() { places_.clear(); }

 private:
  Place& enter(const Stream& stream) {
    unsigned long long number = 0;
    check(runtime().stream_id(stream, &number), "asking for a stream's number");
    const std::lock_guard lock(mutex_);
    auto found = std::find_if(places_.begin(), places_.end(),
                              [number](const auto& place) { return place->stream == number; });
    if (found == places_.end())
      found = std::find_if(places_.begin(), places_.end(), [](const auto& place) {
        return place->users == 0 && place->event.has_passed();
      });
    if (found == places_.end()) {
      places_.push_back(std::make_unique<Place>());
      found = places_.end() - 1;
    }
    (*found)->stream = number;
    ++(*found)->users;
    return **found;
  }

  void leave(Place& place, const Stream& stream) noexcept {
    const std::lock_guard lock(mutex_);
    --place.users;
    place.event.record_quietly(stream);
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<Place>> places_;
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

  ~Space() override { settle(); }

  uint64_t bytes() const { return queries_.bytes() + answers_.bytes(); }
  uint64_t host_bytes() const { return bytes() + usable_.bytes(); }

  void fit(uint32_t queries, uint32_t k) {
    capacity_ = 0;
    queries_.fit(queries * record_bytes_, true, stream_);
    answers_.fit(answer_bytes(queries, k) + queries * sizeof(WalkCounts), true, stream_);
    found_usable_ = nullptr;
    if (!vectors_are_records()) made_.fit(queries * record_bytes_, false, stream_);
    starts_.fit(uint64_t{queries} * kStartWords * sizeof(uint32_t), false, stream_);
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
    const Run run = prepare(count, direct, masked, effort);
    if (run.queries == queries_.device())
      copy_to_device(queries_.device(), queries_.host(), count * record_bytes_, stream_,
                     "sending queries to the device");
    const bool polls = run.is_on_host && !timed;
    if (polls) std::fill(run.counts, run.counts + count, WalkCounts());
    if (timed) begin_.record(stream_);
    start_run(device_, placed_, run, effort, stream_);
    if (timed) end_.record(stream_);
    if (!direct)
      copy_to_host(answers_.host(), answers_.device(), answer_bytes(count, k_), stream_,
                   "fetching answers from the device");
    if (!polls || !answers_come(run)) stream_.wait();
    publish(count, effort, direct);
    if (timed) kernel_seconds_ = begin_.seconds_until(end_);
  }

  void start(uint32_t count, int32_t element, const WalkEffort& effort) override {
    const DeviceGuard guard(device_);
    effort_ = effort;
    count_ = count;
    started_ = true;
    const uint32_t vector_bytes = placed_.dim * element_bytes(element);
    copy_to_device(queries_.device(), queries_.host(), uint64_t{count} * vector_bytes, stream_,
                   "sending queries to the device");
    Run run = prepare(count, false, nullptr, effort);
    if (!vectors_are_records()) {
      make_records(element, vector_bytes, count);
      run.queries = made_.device();
    }
    start_run(device_, placed_, run, effort, stream_);
    const uint64_t flag_bytes = vectors_are_records() ? 0 : count;
    copy_to_host(answers_.host(), answers_.device(), answer_bytes(count, k_) + flag_bytes, stream_,
                 "fetching answers from the device");
  }

  void finish() override {
    const DeviceGuard guard(device_);
    stream_.wait();
    started_ = false;
    publish(count_, effort_, false);
    found_usable_ = vectors_are_records() ? nullptr : flags(answers_.host());
  }

  /// Waits for what start() has queued, if finish() has not: a call that met an error.
  void settle() noexcept {
    if (started_ && !is_abandoned()) runtime().wait_for_stream(stream_);
    started_ = false;
  }

 private:
  /// Whether vectors, which are of the rows' element then, are the bytes of their records.
  bool vectors_are_records() const { return placed_.exact() && placed_.dim == record_bytes_; }
  /// [count] whether queries are finite, behind answers.
  uint8_t* flags(uint8_t* answers) const { return answers + answer_bytes(count_, k_); }

  void make_records(int32_t element, uint32_t vector_bytes, uint32_t count) {
    RecordArgs args = {};
    args.queries = queries_.device();
    args.records = made_.device();
    args.usable = flags(answers_.device());
    args.query_stride = vector_bytes;
    args.record_stride = static_cast<uint32_t>(record_bytes_);
    args.value_bytes = placed_.value_bytes;
    args.dim = placed_.dim;
    args.count = count;
    args.aligned = true;
    args.scaled = placed_.metric == ANN_METRIC_COSINE;
    start_records(args, element, is_float_element(placed_.element), stream_);
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
  static bool is_direct(const WalkEffort& effort) { return effort.by_blocks(); }

  WalkCounts* answer_counts(uint64_t count) const {
    return reinterpret_cast<WalkCounts*>(answers_.host() + answer_bytes(count, k_));
  }

  /// Waits a while for answers that kernels write to host memory; the driver takes 1.5 us longer to see
  /// that a kernel has ended. False if they do not come soon: then something else is to be waited for.
  static bool answers_come(const Run& run) {
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

  Run prepare(uint32_t count, bool direct, const uint32_t* masked, const WalkEffort& effort) {
    Run run = {};
    uint8_t* answers = direct ? answers_.host() : answers_.device();
    const bool one_kernel = placed_.exact() || walks_whole(placed_, effort, k_);
    run.queries = direct && one_kernel ? queries_.host() : queries_.device();
    run.query_stride = static_cast<uint32_t>(record_bytes_);
    run.is_on_host = run.queries == queries_.host();
    run.starts = reinterpret_cast<uint32_t*>(starts_.device());
    run.counters = reinterpret_cast<WalkCounters*>(answers_.device());
    run.counts = direct ? answer_counts(count) : nullptr;
    run.rows = answer_rows(answers);
    run.distances = answer_distances(answers, count);
    run.count = count;
    run.k = k_;
    if (!placed_.exact()) {
      run.codes = codes_.device();
      run.candidates = reinterpret_cast<uint32_t*>(candidates_.device());
    }
    if (masked != nullptr) {
      masked_.fit(count * sizeof(uint32_t), false, stream_);
      copy_to_device(masked_.device(), masked, count * sizeof(uint32_t), stream_,
                     "sending masked rows to the device");
      run.masked = reinterpret_cast<const uint32_t*>(masked_.device());
    }
    return run;
  }

  void publish(uint32_t count, const WalkEffort& effort, bool direct) {
    WalkCounters counters = {};
    if (!direct) counters = *reinterpret_cast<const WalkCounters*>(answers_.host());
    for (uint32_t query = 0; direct && query < count; ++query) {
      counters.distances += answer_counts(count)[query].distances;
      counters.expansions += answer_counts(count)[query].expansions;
    }
    distance_count_ = count_distances(placed_, counters, count, effort, k_);
    expansion_count_ = counters.expansions;
    rows_ = answer_rows(answers_.host());
    distances_ = answer_distances(answers_.host(), count);
  }

  int32_t device_;
  const Placed& placed_;
  Allocator memory_;
  uint32_t k_ = 0;
  Stream stream_;
  Event begin_{true};
  Event end_{true};
  Staging queries_;     // [capacity, record_bytes], or vectors, which take no more
  Staging made_;        // [capacity, record_bytes] records of vectors
  Staging answers_;     // counters, [capacity, k] rows, [capacity, k] distances, [capacity] counts or flags
  Staging starts_;      // [capacity, kStartWords]
  Staging codes_;       // [capacity, code_stride] where codes are lossy
  Staging candidates_;  // [capacity, rerank_count(k)] rows to compare once more
  Staging masked_;      // [capacity]

  // Between start() and finish():
  WalkEffort effort_;
  uint32_t count_ = 0;
  bool started_ = false;
};

class Copy final : public DeviceIndex {
 public:
  Copy(int32_t device, const Dataset& dataset, const Codes& codes, const SearchGraph& graph,
       Resident* resident, const Execution& execution)
      : device_(device), memory_(execution.memory) {
    const DeviceGuard guard(device);
    describe(dataset, codes, graph);
    check_memory(dataset, codes, graph, resident != nullptr);
    stream_ = std::make_unique<Stream>();
    int multiprocessors = 0;
    check(runtime().attribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
          "asking for multiprocessors");
    multiprocessors_ = static_cast<uint32_t>(multiprocessors);
    Transfers transfers(execution);
    const auto upload = [&](const void* from, size_t from_stride, uint64_t count, size_t bytes,
                            size_t to_stride) {
      return send(static_cast<const uint8_t*>(from), from_stride, count, bytes, to_stride, transfers,
                  execution);
    };
    const auto upload_items = [&](const auto* items, uint64_t count) {
      return reinterpret_cast<decltype(items)>(
          upload(items, sizeof *items, count, sizeof *items, sizeof *items));
    };
    const uint64_t n = dataset.rows();
    if (has_graph(graph) && resident == nullptr) {
      placed_.codes = upload(codes.data(), codes.stride(), n, codes.stride(), codes.stride());
      placed_.edges = upload_items(graph.edges.data(), n * graph.degree);
    }
    if (has_graph(graph)) placed_.entries = upload_items(graph.entries.data(), graph.entries.size());
    if (has_graph(graph) && !codes.exact())
      placed_.centre = upload_items(codes.centre().data(), placed_.columns);
    if (dataset.ids() != nullptr) placed_.ids = upload_items(dataset.ids(), n);
    if (!codes.exact())
      placed_.rows = resident != nullptr && resident->rows != nullptr
                         ? copy_rows_here(resident->rows, resident->row_stride, n, row_bytes(dataset))
                         : upload(dataset.view().data, dataset.view().stride, n, row_bytes(dataset),
                                  placed_.row_stride);
    if (!codes.exact() && dataset.norms() != nullptr)
      placed_.norms = upload_items(dataset.norms(), n);
    if (resident != nullptr) {
      resident->stream->wait();
      placed_.codes = resident->codes->data();
    }
    uint32_t pivots[kPivots];
    if (has_graph(graph)) {
      draw_pivots(static_cast<uint32_t>(n), pivots);
      placed_.pivots = upload_items(pivots, kPivots);
      make_pivots();
    }
    stream_->wait();
    // Last, because a build whose copy is refused goes on with what it has.
    if (resident != nullptr) adopt(*resident, n * (codes.stride() + graph.degree * sizeof(uint32_t)));
  }

  ~Copy() override {
    free_quietly([this](bool reachable) {
      if (reachable) queued_.wait();
      queued_.clear();
      idle_.clear();
      arrays_.clear();
      led_on_.reset();
      made_on_.reset();
      stream_.reset();
    });
  }

  uint64_t bytes() const override { return bytes_; }
  uint64_t host_bytes() const override {
    const std::lock_guard lock(mutex_);
    uint64_t bytes = 0;
    for (const auto& space : idle_) bytes += space->host_bytes();
    return bytes;
  }
  bool blocks_serve(uint32_t k) const override {
    return kept_count(k, placed_.exact()) <= placed_.blocks_keep;
  }
  uint32_t walks_at_once(uint32_t k) const override {
    return cuda::walks_at_once(device_, placed_.kind, placed_.code_stride, placed_.degree,
                               kept_count(k, placed_.exact()));
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
    own->settle();
    const std::lock_guard lock(mutex_);
    try {
      idle_.push_back(std::move(own));
    } catch (const std::bad_alloc&) {  // no memory to remember it: it goes
    }
  }

  void search(const DeviceBatch& batch, const WalkEffort& effort, const Execution& execution,
              DeviceCounts* counts) override {
    answer(batch, false, execution, [&](const Piece& piece, const Stream& stream) {
      const Run run = run_of(piece);
      start_run(device_, placed_, run, effort, stream);
      if (batch.stream != nullptr) return;
      WalkCounters counted;
      copy_to_host(&counted, run.counters, sizeof counted, stream, "fetching counts from the device");
      stream.wait();
      counts->distances += count_distances(placed_, counted, piece.count, effort, piece.k);
      counts->expansions += counted.expansions;
    });
  }

  bool hide_rows(const uint32_t* rows, uint32_t count) override {
    const DeviceGuard guard(device_);
    const uint32_t words = (placed_.row_count + 31) / 32;
    Array<uint32_t> bits = Array<uint32_t>::zeroed(memory_, words);
    for (uint32_t i = 0; i < count; ++i) bits[rows[i] / 32] |= 1u << rows[i] % 32;
    try {
      const DeviceArray<uint32_t> hidden(words, *stream_);
      auto led_on = std::make_unique<DeviceArray<uint32_t>>(
          checked_product(placed_.row_count, placed_.degree), *stream_);
      copy_to_device(hidden.data(), bits.data(), words * sizeof(uint32_t), *stream_,
                     "sending hidden rows to the device");
      lead_edges_on({placed_.codes, hidden.data(), placed_.edges, led_on->data(), placed_.row_count,
                     placed_.code_stride, placed_.degree},
                    placed_.kind, *stream_);
      stream_->wait();
      led_on_ = std::move(led_on);
    } catch (const Error& error) {
      if (error.status != ANN_DEVICE_NO_MEMORY) throw;
      return false;
    }
    placed_.led_on = led_on_->data();
    return true;
  }

  void show_rows() noexcept override {
    placed_.led_on = nullptr;
    free_quietly([this](bool) { led_on_.reset(); });
  }

  void lend_rows(ExactRequest* request) const override {
    request->rows = {placed_.exact() ? placed_.codes : placed_.rows,
                     placed_.exact() ? placed_.code_stride : placed_.row_stride, placed_.dim,
                     placed_.element};
    request->norms = placed_.norms;
    request->ids = placed_.ids;
    request->rows_are_there = true;
  }

  void search_exact(const DeviceBatch& batch, const Execution& execution) override {
    answer(batch, true, execution, [&](const Piece& piece, const Stream& stream) {
      compare_all(piece, stream, execution);
      if (batch.stream == nullptr) stream.wait();
    });
  }

 private:
  static bool has_graph(const SearchGraph& graph) { return graph.degree != 0; }

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

  /// Some queries of a batch on the device, and memory for them.
  struct Piece {
    const uint8_t* queries = nullptr;  // [count, query_stride] records
    uint32_t query_stride = 0;
    uint8_t* records = nullptr;    // [count, query_stride], or null: queries are read where they lie
    uint8_t* codes = nullptr;      // [count, code_stride] where codes are lossy and rows are walked to
    uint32_t* candidates = nullptr;  // [count, rerank_count(k)] likewise
    uint32_t* starts = nullptr;    // [count, kStartWords] where rows are walked to
    double* norms = nullptr;       // [count] for exact search by cosine
    uint8_t* usable = nullptr;     // [count], or null: all are
    WalkCounters* counters = nullptr;
    uint32_t* rows = nullptr;      // [count, k]
    float* distances = nullptr;    // [count, k]
    uint32_t count = 0;
    uint32_t k = 0;

    /// Exact search has lengths beside the records, and compares whole records.
    static uint64_t record_bytes(const Placed& placed, bool exact_search) {
      return exact_search ? placed.value_bytes : placed.record_bytes();
    }

    /// Lays the arrays out from `memory` on; the bytes that they take.
    uint64_t lay_out(uint8_t* memory, const Placed& placed, bool exact_search, bool in_place) {
      uint64_t bytes = 0;
      const auto part = [&](uint64_t size) {
        uint8_t* begin = memory + bytes;
        bytes = round_up(bytes + size, 256);
        return begin;
      };
      const auto items = [&](auto* like, uint64_t number) {
        return reinterpret_cast<decltype(like)>(part(number * sizeof *like));
      };
      counters = items(counters, 1);
      rows = items(rows, uint64_t{count} * k);
      distances = items(distances, uint64_t{count} * k);
      if (!in_place) records = part(uint64_t{count} * record_bytes(placed, exact_search));
      if (!in_place) usable = part(count);
      if (exact_search && placed.metric == ANN_METRIC_COSINE) norms = items(norms, count);
      if (!exact_search) starts = items(starts, uint64_t{count} * kStartWords);
      if (exact_search || placed.exact()) return bytes;
      codes = part(uint64_t{count} * placed.code_stride);
      candidates = items(candidates, uint64_t{count} * rerank_count(k));
      return bytes;
    }
  };

  /// Whether queries can be read where they lie: as records they would be the same bytes.
  bool reads_in_place(const MatrixView& queries, bool exact_search) const {
    return !is_float_element(placed_.element) && placed_.value_bytes == placed_.dim &&
           placed_.metric != ANN_METRIC_COSINE && queries.stride % 16 == 0 &&
           queries.stride <= (exact_search ? placed_.value_bytes : UINT32_MAX) &&
           reinterpret_cast<uintptr_t>(queries.data) % 16 == 0;
  }

  /// Queries of a piece: what fits into kBatchBytes.
  uint64_t piece_of(uint64_t count, uint32_t k, bool exact_search, bool in_place) const {
    Piece piece;
    piece.count = 1024;
    piece.k = k;
    const uint64_t bytes = piece.lay_out(nullptr, placed_, exact_search, in_place) / 1024;
    return std::max<uint64_t>(1, std::min({count, kBatchBytes / std::max<uint64_t>(1, bytes),
                                           piece_max(k)}));
  }

  /// Runs `find` over pieces of a batch that are small enough for the memory there is.
  template <class Find>
  void answer(const DeviceBatch& batch, bool exact_search, const Execution& execution,
              const Find& find) {
    const DeviceGuard guard(device_);
    if (batch.stream == nullptr) {
      const Stream stream;
      return answer_on(stream, batch, exact_search, execution, find);
    }
    const Stream stream(static_cast<cudaStream_t>(batch.stream));
    const Queued::Call call(queued_, stream);
    answer_on(stream, batch, exact_search, execution, find);
  }

  template <class Find>
  void answer_on(const Stream& stream, const DeviceBatch& batch, bool exact_search,
                 const Execution& execution, const Find& find) {
    const uint64_t total = batch.queries.rows;
    const uint32_t k = std::min(batch.results.k, placed_.row_count);
    const bool in_place = reads_in_place(batch.queries, exact_search);
    uint64_t step = piece_of(total, k, exact_search, in_place);
    for (uint64_t first = 0; first < total;) {
      execution.check();
      Piece piece;
      piece.count = static_cast<uint32_t>(std::min(step, total - first));
      piece.k = k;
      try {
        const uint64_t bytes = piece.lay_out(nullptr, placed_, exact_search, in_place);
        const DeviceArray<uint8_t> memory(bytes, stream);
        piece.lay_out(memory.data(), placed_, exact_search, in_place);
        piece.query_stride = static_cast<uint32_t>(in_place ? batch.queries.stride
                                                            : Piece::record_bytes(placed_, exact_search));
        take_queries(batch.queries, first, &piece, stream);
        if (k > 0) find(piece, stream);
        write_answers(batch.results, first, piece, stream);
        if (batch.stream == nullptr) stream.wait();
      } catch (const Error& error) {
        if (error.status != ANN_DEVICE_NO_MEMORY || step <= kPieceMin) throw;
        step /= 2;
        continue;
      }
      first += piece.count;
      execution.advance(static_cast<double>(first) / static_cast<double>(total));
    }
  }

  void take_queries(const MatrixView& queries, uint64_t first, Piece* piece, const Stream& stream) const {
    piece->queries = queries.row(first);
    if (piece->records == nullptr) return;
    const uint32_t size = element_bytes(queries.element);
    RecordArgs args = {};
    args.queries = queries.row(first);
    args.records = piece->records;
    args.norms = piece->norms;
    args.usable = piece->usable;
    args.query_stride = queries.stride;
    args.record_stride = piece->query_stride;
    args.value_bytes = placed_.value_bytes;
    args.dim = placed_.dim;
    args.count = piece->count;
    args.aligned = queries.stride % size == 0 && reinterpret_cast<uintptr_t>(queries.data) % size == 0;
    args.scaled = placed_.metric == ANN_METRIC_COSINE;
    start_records(args, queries.element, is_float_element(placed_.element), stream);
    piece->queries = piece->records;
  }

  void write_answers(const ResultsView& results, uint64_t first, const Piece& piece,
                     const Stream& stream) const {
    AnswerArgs args = {};
    args.rows = piece.rows;
    args.distances = piece.distances;
    args.ids = placed_.ids;
    args.usable = piece.usable;
    args.results = results.from(first);
    args.k = piece.k;
    args.count = piece.count;
    start_answers(args, stream);
  }

  static Run run_of(const Piece& piece) {
    Run run = {};
    run.queries = piece.queries;
    run.codes = piece.codes;
    run.candidates = piece.candidates;
    run.starts = piece.starts;
    run.counters = piece.counters;
    run.rows = piece.rows;
    run.distances = piece.distances;
    run.query_stride = piece.query_stride;
    run.count = piece.count;
    run.k = piece.k;
    return run;
  }

  void compare_all(const Piece& piece, const Stream& stream, const Execution& execution) const {
    ExactRequest request;
    request.device = device_;
    request.row_count = placed_.row_count;
    request.metric = placed_.metric;
    lend_rows(&request);
    request.queries = piece.queries;
    request.query_stride = piece.query_stride;
    request.query_norms = piece.norms;
    request.query_count = piece.count;
    request.k = piece.k;
    request.out_rows = piece.rows;
    request.out_distances = piece.distances;
    search_exact_resident(request, stream, execution);
  }

  static size_t row_bytes(const Dataset& dataset) {
    return size_t{dataset.dim()} * element_bytes(dataset.element());
  }

  void describe(const Dataset& dataset, const Codes& codes, const SearchGraph& graph) {
    placed_.kind = codes.wide()        ? CodeKind::kFloat
                   : codes.flip() != 0 ? CodeKind::kSigned
                                       : CodeKind::kUnsigned;
    placed_.codes_are_exact = codes.exact();
    placed_.row_count = dataset.rows();
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

  /// Brings the codes of the pivots together, and asks what blocks can do.
  void make_pivots() {
    const auto take = [&](uint64_t bytes) {
      arrays_.push_back(std::make_unique<DeviceArray<uint8_t>>(bytes, *stream_));
      bytes_ += bytes;
      return arrays_.back()->data();
    };
    uint8_t* codes = take(uint64_t{kPivots} * placed_.code_stride);
    int32_t* squares = reinterpret_cast<int32_t*>(take(kPivots * sizeof(int32_t)));
    gather_pivots(placed_.pivots, placed_.codes, placed_.code_stride, placed_.kind, codes, squares,
                  *stream_);
    placed_.pivot_codes = codes;
    placed_.squares = squares;
    placed_.blocks_keep = allow_block_walks(
        device_, placed_.kind, placed_.code_stride,
        placed_.exact() ? 0 : static_cast<uint32_t>(placed_.record_bytes()));
  }

  /// Refuses before anything is sent what cannot fit.
  void check_memory(const Dataset& dataset, const Codes& codes, const SearchGraph& graph,
                    bool graph_is_there) const {
    if (graph_is_there && codes.exact() && dataset.ids() == nullptr) return;
    uint64_t row = graph_is_there ? 0 : placed_.code_stride + graph.degree * sizeof(uint32_t);
    if (!codes.exact()) row += placed_.row_stride;
    if (!codes.exact() && dataset.norms() != nullptr) row += sizeof(float);
    if (dataset.ids() != nullptr) row += sizeof(uint64_t);
    const uint64_t needed = row * dataset.rows() + kReserveBytes;
    const uint64_t free_bytes = DevicePool::of(device_).free_bytes();
    if (needed > free_bytes)
      fail(ANN_DEVICE_NO_MEMORY, "the index needs %llu bytes on device %d, of which %llu are free",
           static_cast<unsigned long long>(needed), device_,
           static_cast<unsigned long long>(free_bytes));
  }

  /// Takes over what a build has left, when nothing can go wrong any more.
  void adopt(Resident& resident, uint64_t bytes) {
    arrays_.reserve(arrays_.size() + 2);
    placed_.edges = reinterpret_cast<const uint32_t*>(resident.edges->data());
    arrays_.push_back(std::move(resident.codes));
    arrays_.push_back(std::move(resident.edges));
    made_on_ = std::move(resident.stream);
    bytes_ += bytes;
  }

  /// Copies rows of `bytes` bytes that lie on the device.
  const uint8_t* copy_rows_here(const uint8_t* from, uint64_t from_stride, uint64_t count, size_t bytes) {
    arrays_.push_back(std::make_unique<DeviceArray<uint8_t>>(count * placed_.row_stride, *stream_));
    bytes_ += count * placed_.row_stride;
    uint8_t* to = arrays_.back()->data();
    if (bytes != placed_.row_stride)
      fill(to, 0, count * placed_.row_stride, *stream_, "clearing device memory");
    copy_rows(to, placed_.row_stride, from, from_stride, bytes, count, cudaMemcpyDeviceToDevice, *stream_,
              "copying rows");
    return to;
  }

  /// Copies `count` vectors of `bytes` bytes, `from_stride` apart, with zeros behind each.
  const uint8_t* send(const uint8_t* from, size_t from_stride, uint64_t count, size_t bytes,
                      size_t to_stride, Transfers& transfers, const Execution& execution) {
    arrays_.push_back(std::make_unique<DeviceArray<uint8_t>>(count * to_stride, *stream_));
    bytes_ += count * to_stride;
    uint8_t* to = arrays_.back()->data();
    if (from_stride == bytes && to_stride == bytes) {
      transfers.send(to, from, count * bytes, *stream_);
      return to;
    }
    if (bytes != to_stride) fill(to, 0, count * to_stride, *stream_, "clearing device memory");
    const uint64_t step = std::max<uint64_t>(1, kCopyBytes / to_stride);
    for (uint64_t first = 0; first < count; first += step) {
      execution.check();
      copy_rows(to + first * to_stride, to_stride, from + first * from_stride, from_stride, bytes,
                std::min(step, count - first), cudaMemcpyHostToDevice, *stream_,
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
  uint32_t multiprocessors_ = 0;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Stream> made_on_;  // the stream of arrays that a build has left
  std::vector<std::unique_ptr<DeviceArray<uint8_t>>> arrays_;
  std::unique_ptr<DeviceArray<uint32_t>> led_on_;  // while rows are hidden
  Queued queued_;
  mutable std::mutex mutex_;
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
  return std::make_unique<Copy>(device, dataset, codes, graph, nullptr, execution);
}

std::unique_ptr<DeviceIndex> place_resident(int32_t device, const Dataset& dataset, const Codes& codes,
                                            const SearchGraph& graph, Resident& resident,
                                            const Execution& execution) {
  return std::make_unique<Copy>(device, dataset, codes, graph, &resident, execution);
}

}  // namespace gannet::cuda
