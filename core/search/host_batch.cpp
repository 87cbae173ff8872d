#include "search/host_batch.h"

#include <algorithm>
#include <vector>

namespace gannet {
namespace {

// Work that a thread takes at a time: bytes to copy, and beside a device that is at work; bytes of queries to
// prepare, and for cosines, which takes five times as long; and answers to write. Starting a thread costs 20
// to 100 microseconds, in which one does this much.
constexpr uint64_t kTaskBytes = uint64_t{1} << 20;
constexpr uint64_t kTaskCopied = uint64_t{1} << 22;
constexpr uint64_t kTaskPrepared = uint64_t{1} << 20;
constexpr uint64_t kTaskScaled = uint64_t{1} << 18;
constexpr uint64_t kTaskAnswers = uint64_t{1} << 17;

// Up to this many queries the CPU makes records sooner than a kernel starts.
constexpr uint64_t kFewQueries = 32;

// The same limit in columns of queries where blocks walk by lossy codes: a column takes the CPU about a
// nanosecond, of cosines several.
constexpr uint64_t kFewColumns = 12'288;

// Pieces of a batch of host memory that are under way at once, and queries of one.
constexpr uint64_t kPiecesAhead = 3;
constexpr uint64_t kPieceMin = 1024;
constexpr uint64_t kPieceMax = 32'768;

uint64_t queries_per_task(uint64_t task, uint64_t of_query) {
  return std::max<uint64_t>(1, task / std::max<uint64_t>(1, of_query));
}

/// Elements as a device compares them.
void copy_flipped(const uint8_t* from, size_t bytes, uint8_t flip, uint8_t* to) {
  if (flip == 0)
    std::memcpy(to, from, bytes);
  else
    std::transform(from, from + bytes, to,
                   [flip](uint8_t byte) { return static_cast<uint8_t>(byte ^ flip); });
}

/// One query as a record; false where it is not finite.
bool fill_record(const Segment& segment, const uint8_t* vector, int32_t element, uint32_t query,
                 DeviceWorkspace& workspace) {
  const Dataset& dataset = segment.dataset;
  const size_t bytes = dataset.query_bytes();
  uint8_t* values = workspace.values(query);
  const uint8_t flip = segment.codes.flip();
  std::memset(values + bytes, flip, workspace.value_bytes() - bytes);
  if (segment.codes.lossless()) {  // the elements are the code, and always finite
    copy_flipped(vector, bytes, flip, values);
    return true;
  }
  PreparedQuery prepared;
  const bool finite = dataset.prepare(vector, element, values, &prepared);
  if (!finite) std::memset(values, 0, bytes);
  if (dataset.metric() == ANN_METRIC_COSINE) workspace.set_norm(query, finite ? prepared.norm : 0);
  return finite;
}

/// The answer of one query. The device orders equal distances by row, callers see them by id.
void write_rows(const Dataset& dataset, const uint32_t* rows, const float* distances, uint32_t k,
                Neighbor* neighbors, uint64_t query, const ResultsView& results) {
  uint32_t found = 0;
  for (; found < k && rows[found] != kNoRow; ++found)
    neighbors[found] = {distances[found], dataset.id(rows[found])};
  if (!std::is_sorted(neighbors, neighbors + found)) std::sort(neighbors, neighbors + found);
  write_answer(results, query, neighbors, found, ANN_OK);
}

/// The same where ids are row numbers, so that the device's order is the callers': five times as fast.
void write_plain(const uint32_t* rows, const float* distances, uint32_t k, uint64_t query,
                 const ResultsView& results) {
  uint64_t* ids = results.ids + query * results.k;
  uint32_t found = k;
  while (found > 0 && rows[found - 1] == kNoRow) --found;  // as a rule there are k
  std::copy(rows, rows + found, ids);
  std::fill(ids + found, ids + results.k, ANN_ID_NONE);
  if (results.distances != nullptr) {
    float* out = results.distances + query * results.k;
    std::copy(distances, distances + found, out);
    std::fill(out + found, out + results.k, INFINITY);
  }
  if (results.counts != nullptr) results.counts[query] = found;
  if (results.status != nullptr) results.status[query] = ANN_OK;
}

/// Takes queries from host memory to a device, and answers back.
struct HostBatch {
  const Segment& segment;
  DevicePlacement& placement;
  const MatrixView& queries;
  const ResultsView& results;
  uint32_t k;  // at most that of `results`
  const SearchPlan& plan;
  RowSetView removed;
  const Execution& execution;
  SearchCounts* counts;

  /// Whether the CPU has made records before a kernel would have started.
  bool is_few() const {
    if (queries.rows <= kFewQueries) return true;
    return walks_by_blocks(plan) && (segment.codes.lossless() || queries.rows * queries.dim <= kFewColumns);
  }

  /// Records made by the CPU, which blocks read where they lie.
  void answer_few() const {
    DeviceWorkspaceLease workspace(placement, queries.rows, k);
    for (uint64_t first = 0; first < queries.rows; first += workspace->capacity()) {
      const uint32_t count =
          static_cast<uint32_t>(std::min<uint64_t>(workspace->capacity(), queries.rows - first));
      execution.check();
      fill_workspace(segment, queries, first, count, *workspace, execution);
      workspace->run(count, plan, {.removed = removed}, false);
      write(first, count, *workspace);
    }
  }

  /// In pieces, of which some are under way at any time, each in a workspace of its own: while one is walked
  /// for, the vectors of the next are copied and the answers of the last written. 10,000 queries of 128
  /// columns and k = 10 took 0.57, 0.50, 0.49, 0.53 and 0.59 ms with 1, 2, 3, 4 and 6 pieces of u8, and 1.01,
  /// 0.80, 0.72, 0.73 and 0.81 ms of f32, where the device alone takes 0.37 and 0.44 (one NVIDIA H200). To
  /// copy the first pieces by a thread each gained nothing.
  void answer_many() const {
    const auto workspaces = take_workspaces();
    const uint64_t step = (**workspaces.back()).capacity();
    const uint64_t pieces = (queries.rows + step - 1) / step;
    const auto count_of = [&](uint64_t piece) {
      return static_cast<uint32_t>(std::min(step, queries.rows - piece * step));
    };
    const auto start = [&](uint64_t piece) {
      execution.check();
      DeviceWorkspace& workspace = **workspaces[piece % workspaces.size()];
      copy_vectors(piece * step, count_of(piece), workspace);
      workspace.start(count_of(piece), queries.element, plan, {.removed = removed});
    };
    const uint64_t ahead = std::min<uint64_t>(workspaces.size(), pieces);
    for (uint64_t piece = 0; piece < ahead; ++piece) start(piece);
    for (uint64_t piece = 0; piece < pieces; ++piece) {
      DeviceWorkspace& workspace = **workspaces[piece % workspaces.size()];
      workspace.finish();
      write(piece * step, count_of(piece), workspace);
      if (piece + ahead < pieces) start(piece + ahead);
    }
  }

 private:
  size_t vector_bytes() const { return size_t{queries.dim} * element_bytes(queries.element); }

  /// At most kPiecesAhead, and fewer where the device has no memory for them; the last is the smallest.
  std::vector<std::unique_ptr<DeviceWorkspaceLease>> take_workspaces() const {
    const uint64_t share = (queries.rows + kPiecesAhead - 1) / kPiecesAhead;
    uint64_t step = std::min(std::clamp(share, kPieceMin, kPieceMax), queries.rows);
    const uint64_t pieces = (queries.rows + step - 1) / step;
    std::vector<std::unique_ptr<DeviceWorkspaceLease>> workspaces;
    while (workspaces.size() < std::min<uint64_t>(kPiecesAhead, pieces)) {
      try {
        workspaces.push_back(std::make_unique<DeviceWorkspaceLease>(placement, step, k));
      } catch (const Error& error) {
        if (error.status != ANN_DEVICE_NO_MEMORY || workspaces.empty()) throw;
        break;
      }
      step = (*workspaces.back())->capacity();
    }
    return workspaces;
  }

  void copy_vectors(uint64_t first, uint32_t count, DeviceWorkspace& workspace) const {
    const size_t bytes = vector_bytes();
    parallel_for(execution, count, queries_per_task(kTaskCopied, bytes),
                 [&](uint64_t begin, uint64_t end, uint32_t) {
                   const uint8_t flip = workspace.vector_flip();
                   uint8_t* to = workspace.vectors() + begin * bytes;
                   if (queries.stride == bytes)
                     return copy_flipped(queries.row(first + begin), (end - begin) * bytes, flip, to);
                   for (uint64_t i = begin; i < end; ++i, to += bytes)
                     copy_flipped(queries.row(first + i), bytes, flip, to);
                 });
  }

  /// Writes the answers of a run from query `first` on.
  void write(uint64_t first, uint32_t count, const DeviceWorkspace& workspace) const {
    const bool has_ids = segment.dataset.ids() != nullptr;
    Array<Neighbor> neighbors(execution.memory, has_ids ? checked_product(execution.threads, k) : 0);
    const uint64_t task = queries_per_task(kTaskAnswers, k);
    parallel_for(execution, count, task, [&](uint64_t begin, uint64_t end, uint32_t worker) {
      for (uint64_t i = begin; i < end; ++i) {
        const uint32_t* rows = workspace.rows() + i * k;
        const float* distances = workspace.distances() + i * k;
        if (!workspace.usable(static_cast<uint32_t>(i)))
          write_answer(results, first + i, nullptr, 0, ANN_NOT_FINITE);
        else if (has_ids)
          write_rows(segment.dataset, rows, distances, k, neighbors.data() + size_t{worker} * k, first + i,
                     results);
        else
          write_plain(rows, distances, k, first + i, results);
      }
    });
    counts->distances += workspace.distance_count();
    counts->expansions += workspace.expansion_count();
    execution.advance(static_cast<double>(first + count) / static_cast<double>(queries.rows));
  }
};

}  // namespace

void fill_workspace(const Segment& segment, const MatrixView& queries, uint64_t first, uint32_t count,
                    DeviceWorkspace& workspace, const Execution& execution) {
  const Dataset& dataset = segment.dataset;
  // Queries that are records as they lie go in one piece.
  const bool plain = segment.codes.lossless() && workspace.record_bytes() == dataset.query_bytes() &&
                     queries.stride == dataset.query_bytes();
  const uint64_t task = queries_per_task(plain                                   ? kTaskBytes
                                         : dataset.metric() == ANN_METRIC_COSINE ? kTaskScaled
                                                                                 : kTaskPrepared,
                                         dataset.query_bytes());
  parallel_for(execution, count, task, [&](uint64_t begin, uint64_t end, uint32_t) {
    if (plain) {
      copy_flipped(queries.row(first + begin), (end - begin) * queries.stride, segment.codes.flip(),
                   workspace.values(static_cast<uint32_t>(begin)));
      for (uint64_t i = begin; i < end; ++i) workspace.set_usable(static_cast<uint32_t>(i), true);
      return;
    }
    for (uint64_t i = begin; i < end; ++i) {
      const uint32_t query = static_cast<uint32_t>(i);
      workspace.set_usable(query,
                           fill_record(segment, queries.row(first + i), queries.element, query, workspace));
    }
  });
}

void walk_host_batch(const Segment& segment, DevicePlacement& placement, const SearchBatch& batch,
                     const SearchPlan& plan, const Execution& execution, SearchCounts* counts) {
  const MatrixView& queries = batch.queries;
  const uint32_t k = std::min(batch.results.k, segment.rows());
  if (k == 0) {
    for (uint64_t query = 0; query < queries.rows; ++query) {
      const bool finite = first_not_finite(queries.row(query), queries.element, queries.dim) == queries.dim;
      write_answer(batch.results, query, nullptr, 0,
                   finite ? ann_status{ANN_OK} : ann_status{ANN_NOT_FINITE});
    }
    return;
  }
  if (queries.rows == 0) return;
  const HostBatch host_batch{segment,   placement, queries, batch.results, k, plan, batch.admission.removed,
                             execution, counts};
  if (host_batch.is_few())
    host_batch.answer_few();
  else
    host_batch.answer_many();
}

}  // namespace gannet
