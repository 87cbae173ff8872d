// Batches that lie on a CUDA device, answered without a copy through the host.
//
// Where blocks walk, one kernel does all: it makes the records of its queries and writes the answers to the caller's
// buffers. Else queries are made records first (records_cuda.cu), and answers are written by the kernel that re-ranks
// or, of codes that are the rows, by one of their own (answers_cuda.cu). A kernel more is 2 to 4 us of the device and
// 5 of the host. Nothing is copied. Queries of u8 on 16-byte boundaries, of as many columns as a code, are read where
// they lie, and those of i8 unless they are codes, which are flipped. The host waits once, at the end.

#include <algorithm>
#include <memory>

#include "backend/stream_fence.h"
#include "search/answers_cuda.h"
#include "search/batch_limits_cuda.h"
#include "search/exact_cuda.h"
#include "search/pipeline_cuda.h"
#include "search/records_cuda.h"

namespace gannet::cuda {
namespace {

constexpr uint64_t kBatchBytes = uint64_t{256} << 20;  // of a piece of a batch on the device

/// Removed rows of a batch, sent in the order of its stream.
class RemovedOnDevice {
 public:
  RemovedOnDevice(const RowSetView& rows, uint32_t row_count, const Stream& stream) : version_(rows.version) {
    if (rows.empty()) return;
    const size_t words = RowSet::word_count(row_count);
    words_ = std::make_unique<DeviceArray<uint32_t>>(words, stream);
    copy_to_device(words_->data(), rows.words, words * sizeof(uint32_t), stream,
                   "sending removed rows to the device");
  }
  RowSetView view() const { return words_ == nullptr ? RowSetView{} : RowSetView{words_->data(), version_}; }

 private:
  std::unique_ptr<DeviceArray<uint32_t>> words_;
  uint64_t version_;
};

/// Pinned memory that the work of a piece is written to: in all, or where one kernel answers, of each query. That
/// takes some microseconds less than a copy, and the latter than to clear device memory and to add there.
class WorkOnHost final : public Workspace {
 public:
  uint64_t bytes() const override { return sizeof(WalkCounters) + queries_ * sizeof(WalkCounts); }

  void fit(uint64_t queries) {
    if (memory_ != nullptr && queries <= queries_) return;
    memory_.reset();
    queries_ = 0;
    memory_ = std::make_unique<PinnedBytes>(sizeof(WalkCounters) + queries * sizeof(WalkCounts));
    queries_ = queries;
  }
  WalkCounters* whole() const { return reinterpret_cast<WalkCounters*>(memory_->data()); }
  WalkCounts* of_queries() const { return reinterpret_cast<WalkCounts*>(whole() + 1); }

 private:
  std::unique_ptr<PinnedBytes> memory_;
  uint64_t queries_ = 0;
};

class BatchOnDevice {
 public:
  explicit BatchOnDevice(DevicePlacement& placement) : placement_(placement), view_(placement.view()) {}

  void walk(const SearchBatch& batch, const SearchPlan& plan, const Execution& execution,
            SearchCounts* counts) {
    const uint32_t k = std::min(batch.results.k, view_.row_count);
    const Shape shape = {.in_place = reads_in_place(batch.queries, false),
                         .alone = k > 0 && answers_alone(view_, plan, k),
                         .answered = k > 0 && writes_answers(view_, plan, k)};
    WalkCounts* counts_on_host = nullptr;
    const auto find = [&](const Piece& piece, const RowSetView& removed, const Stream& stream) {
      DeviceRun run = run_of(piece);
      run.removed = removed;
      if (shape.alone) run.given = piece.given;
      run.counts = counts_on_host;
      if (shape.answered) run.answers = piece.answers;
      start_run(placement_.device(), view_, run, plan, stream);
    };
    if (batch.stream != nullptr) return answer(batch, shape, execution, nullptr, find, [](const Piece&) {});
    const DeviceGuard guard(placement_.device());
    const WorkspaceLease<WorkOnHost> lease(placement_.workspaces(),
                                           [] { return std::make_unique<WorkOnHost>(); });
    WorkOnHost& work = *lease;
    work.fit(shape.alone ? std::min(batch.queries.rows, queries_per_run(k)) : 0);
    if (shape.alone) counts_on_host = work.of_queries();
    answer(batch, shape, execution, shape.alone ? nullptr : work.whole(), find, [&](const Piece& piece) {
      const WalkCounters counted = shape.alone ? sum_of(work.of_queries(), piece.count) : *work.whole();
      counts->distances += count_distances(view_, counted, piece.count, plan, piece.k);
      counts->expansions += counted.expansions;
    });
  }

  void compare_all(const SearchBatch& batch, const Execution& execution, SearchCounts* counts) {
    if (batch.stream == nullptr) counts->distances += batch.queries.rows * view_.row_count;
    const auto find = [&](const Piece& piece, const RowSetView& removed, const Stream& stream) {
      compare_all(piece, removed, stream, execution);
    };
    const Shape shape = {.exact_search = true, .in_place = reads_in_place(batch.queries, true)};
    answer(batch, shape, execution, nullptr, find, [](const Piece&) {});
  }

 private:
  /// How a batch is answered, which says what memory it needs.
  struct Shape {
    bool exact_search = false;
    bool in_place = false;  // queries are read where they lie
    bool alone = false;     // by one kernel
    bool answered = false;  // by the kernels of a run, else by one more
  };

  /// Some queries of a batch on the device, and memory for them.
  struct Piece {
    const uint8_t* queries = nullptr;  // [count, query_stride] records
    uint32_t query_stride = 0;
    uint8_t* records = nullptr;      // [count, query_stride], or null: there are none
    uint8_t* codes = nullptr;        // [count, code_stride] where codes are lossy and rows are walked to
    uint32_t* candidates = nullptr;  // [count, candidates_most(k)] likewise
    uint32_t* starts = nullptr;      // [count, kStartWords] where rows are walked to
    double* norms = nullptr;         // [count] for exact search by cosine
    uint8_t* usable = nullptr;       // [count], or null: all are
    WalkCounters* counters = nullptr;
    uint32_t* rows = nullptr;    // [count, k]
    float* distances = nullptr;  // [count, k]
    RecordArgs given = {};       // its queries null where they are read in place
    AnswerArgs answers = {};
    uint32_t count = 0;
    uint32_t k = 0;

    /// Exact search has lengths beside the records, and compares whole records.
    static uint64_t record_bytes(const IndexView& view, bool exact_search) {
      return exact_search ? view.value_bytes : view.record_bytes();
    }

    /// Lays the arrays out from `memory` on; the bytes that they take.
    uint64_t lay_out(uint8_t* memory, const IndexView& view, const Shape& shape) {
      uint64_t bytes = 0;
      const auto part = [&](uint64_t size) {
        uint8_t* begin = memory + bytes;
        bytes = round_up(bytes + size, 256);
        return begin;
      };
      const auto items = [&](auto* like, uint64_t number) {
        return reinterpret_cast<decltype(like)>(part(number * sizeof *like));
      };
      if (shape.alone) return 0;
      counters = items(counters, 1);
      if (!shape.answered) rows = items(rows, uint64_t{count} * k);
      if (!shape.answered) distances = items(distances, uint64_t{count} * k);
      if (!shape.in_place) records = part(uint64_t{count} * record_bytes(view, shape.exact_search));
      if (!shape.in_place) usable = part(count);
      if (shape.exact_search && view.metric == ANN_METRIC_COSINE) norms = items(norms, count);
      if (!shape.exact_search) starts = items(starts, uint64_t{count} * kStartWords);
      if (shape.exact_search || view.lossless) return bytes;
      codes = part(uint64_t{count} * view.query_code_bytes());
      candidates = items(candidates, uint64_t{count} * candidates_most(k));
      return bytes;
    }
  };

  /// Whether queries can be read where they lie: as records they would be the same bytes.
  bool reads_in_place(const MatrixView& queries, bool exact_search) const {
    return !is_float_element(view_.element) && view_.flip == 0 && view_.value_bytes == view_.dim &&
           view_.metric != ANN_METRIC_COSINE && queries.stride % 16 == 0 &&
           queries.stride <= (exact_search ? view_.value_bytes : UINT32_MAX) &&
           reinterpret_cast<uintptr_t>(queries.data) % 16 == 0;
  }

  /// Queries of a piece: as many as fit into kBatchBytes.
  uint64_t piece_of(uint64_t count, uint32_t k, const Shape& shape) const {
    Piece piece;
    piece.count = 1024;
    piece.k = k;
    const uint64_t bytes = piece.lay_out(nullptr, view_, shape) / 1024;
    return std::max<uint64_t>(
        1, std::min({count, kBatchBytes / std::max<uint64_t>(1, bytes), queries_per_run(k)}));
  }

  /// Runs `find` over pieces of a batch that are small enough for the memory there is, and without a stream of the
  /// caller `found` behind each, when its counters are in `counters`, unless that is null.
  template <class Find, class Found>
  void answer(const SearchBatch& batch, const Shape& shape, const Execution& execution,
              WalkCounters* counters, const Find& find, const Found& found) {
    const DeviceGuard guard(placement_.device());
    if (batch.stream == nullptr) {
      const Stream stream;
      return answer_on(stream, batch, shape, execution, counters, find, found);
    }
    const Stream stream(static_cast<cudaStream_t>(batch.stream));
    const StreamFence::Call call(placement_.fence(), stream);
    answer_on(stream, batch, shape, execution, counters, find, found);
  }

  template <class Find, class Found>
  void answer_on(const Stream& stream, const SearchBatch& batch, const Shape& shape,
                 const Execution& execution, WalkCounters* counters, const Find& find, const Found& found) {
    const uint64_t total = batch.queries.rows;
    const RemovedOnDevice removed(batch.admission.removed, view_.row_count, stream);
    const uint32_t k = std::min(batch.results.k, view_.row_count);
    uint64_t step = piece_of(total, k, shape);
    for (uint64_t first = 0; first < total;) {
      execution.check();
      Piece piece;
      piece.count = static_cast<uint32_t>(std::min(step, total - first));
      piece.k = k;
      try {
        const uint64_t bytes = piece.lay_out(nullptr, view_, shape);
        const DeviceArray<uint8_t> memory(bytes, stream);
        piece.lay_out(memory.data(), view_, shape);
        take_queries(batch.queries, first, shape, &piece);
        piece.answers = answers_of(batch.results, first, piece, k > 0 ? counters : nullptr);
        if (piece.records != nullptr) start_records(piece.given, stream);
        if (k > 0) find(piece, removed.view(), stream);
        if (!shape.answered) start_answers(piece.answers, stream);
        if (batch.stream == nullptr) {
          stream.wait();
          if (k > 0) found(piece);
        }
      } catch (const Error& error) {
        if (error.status != ANN_DEVICE_NO_MEMORY || step <= kQueriesPerRunMin) throw;
        step /= 2;
        continue;
      }
      first += piece.count;
      execution.advance(static_cast<double>(first) / static_cast<double>(total));
    }
  }

  void take_queries(const MatrixView& queries, uint64_t first, const Shape& shape, Piece* piece) const {
    piece->queries = shape.in_place ? queries.row(first) : piece->records;
    piece->query_stride = static_cast<uint32_t>(
        shape.in_place ? queries.stride : Piece::record_bytes(view_, shape.exact_search));
    if (shape.in_place) return;
    const uint32_t size = element_bytes(queries.element);
    RecordArgs& args = piece->given;
    args.queries = queries.row(first);
    args.records = piece->records;
    args.norms = piece->norms;
    args.usable = piece->usable;
    args.query_stride = queries.stride;
    args.record_stride = piece->query_stride;
    args.value_bytes = view_.value_bytes;
    args.dim = view_.dim;
    args.count = piece->count;
    args.aligned = queries.stride % size == 0 && reinterpret_cast<uintptr_t>(queries.data) % size == 0;
    args.flip = view_.flip;
    args.element = queries.element;
    args.scaled = view_.metric == ANN_METRIC_COSINE;
    args.as_floats = is_float_element(view_.element);
  }

  AnswerArgs answers_of(const ResultsView& results, uint64_t first, const Piece& piece,
                        WalkCounters* counters) const {
    AnswerArgs args = {};
    args.rows = piece.rows;
    args.distances = piece.distances;
    args.ids = view_.ids;
    args.usable = piece.usable;
    args.results = results.from(first);
    args.counters = piece.counters;
    args.counters_on_host = counters;
    args.k = piece.k;
    args.count = piece.count;
    return args;
  }

  static DeviceRun run_of(const Piece& piece) {
    DeviceRun run = {};
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

  void compare_all(const Piece& piece, const RowSetView& removed, const Stream& stream,
                   const Execution& execution) const {
    ExactRequest request;
    request.removed = removed;
    request.device = placement_.device();
    request.row_count = view_.row_count;
    request.metric = view_.metric;
    lend_rows(view_, &request);
    request.queries = piece.queries;
    request.query_stride = piece.query_stride;
    request.query_norms = piece.norms;
    request.query_count = piece.count;
    request.k = piece.k;
    request.out_rows = piece.rows;
    request.out_distances = piece.distances;
    search_exact_resident(request, stream, execution);
  }

  DevicePlacement& placement_;
  const IndexView& view_;
};

}  // namespace

void search_device_batch(DevicePlacement& placement, const SearchBatch& batch, const SearchPlan& plan,
                         const Execution& execution, SearchCounts* counts) {
  BatchOnDevice device_batch(placement);
  if (std::holds_alternative<ExactPlan>(plan))
    device_batch.compare_all(batch, execution, counts);
  else
    device_batch.walk(batch, plan, execution, counts);
}

std::unique_ptr<DevicePlacement> place_for_search(int32_t device, const Segment& segment,
                                                  DeviceBuildResult* built, const Execution& execution) {
  auto placement = place_segment(device, segment, built, execution);
  if (!segment.has_graph()) return placement;
  const IndexView& view = placement->view();
  const DeviceGuard guard(device);
  WalkArgs shape = {};
  shape.stride = view.code_stride;
  shape.whole.scaled.code_bytes = view.scaled.query_bytes();
  shape.whole.record_bytes = view.lossless ? 0 : static_cast<uint32_t>(view.record_bytes());
  placement->block_list_max = allow_block_walks(device, view.kind, shape);
  if (view.halves.codes != nullptr) {
    shape.stride = view.halves.stride;
    placement->block_list_max =
        std::min(placement->block_list_max, allow_block_walks(device, CodeKind::kHalf, shape));
  }
  if (view.narrow.codes != nullptr) {
    shape.stride = view.narrow.stride;
    shape.whole.scaled.code_bytes = view.narrow.query_bytes();
    placement->block_list_max =
        std::min(placement->block_list_max, allow_block_walks(device, view.kind, shape));
  }
  return placement;
}

uint32_t resident_queries(const DevicePlacement& placement, uint32_t k) {
  const IndexView& view = placement.view();
  if (view.scaled.codes != nullptr) return 0;
  return resident_queries(placement.device(), view.kind, view.code_stride, view.graph.stride,
                          list_length(k, view.lossless));
}

}  // namespace gannet::cuda
