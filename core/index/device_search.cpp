#include "index/device_search.h"

#include <algorithm>
#include <array>

#include "index/cagra_search.h"
#include "index/index.h"

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

// Answers of a comparison of all rows on a device.
constexpr uint32_t kExactMax = 1024;

// So many queries are made records by the CPU sooner than a kernel starts.
constexpr uint64_t kFewQueries = 32;

// Pieces of a batch of host memory that are under way at once, and queries of one.
constexpr uint64_t kPiecesAhead = 3;
constexpr uint64_t kPieceMin = 1024;
constexpr uint64_t kPieceMax = 32'768;

uint64_t queries_per_task(uint64_t task, uint64_t of_query) {
  return std::max<uint64_t>(1, task / std::max<uint64_t>(1, of_query));
}

/// One query as a record; false where it is not finite.
bool fill_record(const Dataset& dataset, const Codes& codes, const uint8_t* vector, int32_t element,
                 uint32_t query, DeviceSpace& space) {
  const size_t bytes = dataset.query_bytes();
  uint8_t* values = space.values(query);
  std::memset(values + bytes, 0, space.value_bytes() - bytes);
  if (codes.exact()) {  // the elements are the code, and always finite
    std::memcpy(values, vector, bytes);
    return true;
  }
  PreparedQuery prepared;
  const bool finite = dataset.prepare(vector, element, values, &prepared);
  if (!finite) std::memset(values, 0, bytes);
  if (dataset.metric() == ANN_METRIC_COSINE) space.set_norm(query, finite ? prepared.norm : 0);
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
  const Built& built;
  DeviceIndex& index;
  const MatrixView& queries;
  const ResultsView& results;
  uint32_t k;  // at most that of `results`
  const WalkEffort& effort;
  const Execution& execution;
  SearchCounts* counts;

  /// By blocks, or for few: records made by the CPU, which blocks read where they lie.
  void answer_few() const {
    BorrowedSpace space(index, queries.rows, k);
    for (uint64_t first = 0; first < queries.rows; first += space->capacity()) {
      const uint32_t count =
          static_cast<uint32_t>(std::min<uint64_t>(space->capacity(), queries.rows - first));
      execution.check();
      fill_space(built.dataset, built.codes, queries, first, count, *space, execution);
      space->run(count, effort, nullptr, false);
      write(first, count, *space);
    }
  }

  /// In pieces, of which some are under way at any time, each in a space of its own: while one is walked
  /// for, the vectors of the next are copied and the answers of the last written. 10,000 queries of 128
  /// columns and k = 10 took 0.57, 0.50, 0.49, 0.53 and 0.59 ms with 1, 2, 3, 4 and 6 pieces of u8, and 1.01,
  /// 0.80, 0.72, 0.73 and 0.81 ms of f32, where the device alone takes 0.37 and 0.44 (one NVIDIA H200). To
  /// copy the first pieces by a thread each gained nothing.
  void answer_many() const {
    const std::vector<std::unique_ptr<BorrowedSpace>> spaces = take_spaces();
    const uint64_t step = (**spaces.back()).capacity();
    const uint64_t pieces = (queries.rows + step - 1) / step;
    const auto count_of = [&](uint64_t piece) {
      return static_cast<uint32_t>(std::min(step, queries.rows - piece * step));
    };
    const auto start = [&](uint64_t piece) {
      execution.check();
      DeviceSpace& space = **spaces[piece % spaces.size()];
      copy_vectors(piece * step, count_of(piece), space);
      space.start(count_of(piece), queries.element, effort);
    };
    const uint64_t ahead = std::min<uint64_t>(spaces.size(), pieces);
    for (uint64_t piece = 0; piece < ahead; ++piece) start(piece);
    for (uint64_t piece = 0; piece < pieces; ++piece) {
      DeviceSpace& space = **spaces[piece % spaces.size()];
      space.finish();
      write(piece * step, count_of(piece), space);
      if (piece + ahead < pieces) start(piece + ahead);
    }
  }

 private:
  size_t vector_bytes() const { return size_t{queries.dim} * element_bytes(queries.element); }

  /// At most kPiecesAhead, and fewer where the device has no memory for them; the last is the smallest.
  std::vector<std::unique_ptr<BorrowedSpace>> take_spaces() const {
    const uint64_t share = (queries.rows + kPiecesAhead - 1) / kPiecesAhead;
    uint64_t step = std::min(std::clamp(share, kPieceMin, kPieceMax), queries.rows);
    const uint64_t pieces = (queries.rows + step - 1) / step;
    std::vector<std::unique_ptr<BorrowedSpace>> spaces;
    while (spaces.size() < std::min<uint64_t>(kPiecesAhead, pieces)) {
      try {
        spaces.push_back(std::make_unique<BorrowedSpace>(index, step, k));
      } catch (const Error& error) {
        if (error.status != ANN_DEVICE_NO_MEMORY || spaces.empty()) throw;
        break;
      }
      step = (*spaces.back())->capacity();
    }
    return spaces;
  }

  void copy_vectors(uint64_t first, uint32_t count, DeviceSpace& space) const {
    const size_t bytes = vector_bytes();
    parallel_for(execution, count, queries_per_task(kTaskCopied, bytes),
                 [&](uint64_t begin, uint64_t end, uint32_t) {
      uint8_t* to = space.vectors() + begin * bytes;
      if (queries.stride == bytes) {
        std::memcpy(to, queries.row(first + begin), (end - begin) * bytes);
        return;
      }
      for (uint64_t i = begin; i < end; ++i, to += bytes) std::memcpy(to, queries.row(first + i), bytes);
    });
  }

  /// Writes the answers of a run from query `first` on.
  void write(uint64_t first, uint32_t count, const DeviceSpace& space) const {
    const bool has_ids = built.dataset.ids() != nullptr;
    Array<Neighbor> neighbors(execution.memory, has_ids ? checked_product(execution.threads, k) : 0);
    const uint64_t task = queries_per_task(kTaskAnswers, k);
    parallel_for(execution, count, task, [&](uint64_t begin, uint64_t end, uint32_t worker) {
      for (uint64_t i = begin; i < end; ++i) {
        const uint32_t* rows = space.rows() + i * k;
        const float* distances = space.distances() + i * k;
        if (!space.usable(static_cast<uint32_t>(i)))
          write_answer(results, first + i, nullptr, 0, ANN_NOT_FINITE);
        else if (has_ids)
          write_rows(built.dataset, rows, distances, k, neighbors.data() + size_t{worker} * k, first + i,
                     results);
        else
          write_plain(rows, distances, k, first + i, results);
      }
    });
    counts->distances += space.distance_count();
    counts->expansions += space.expansion_count();
    execution.advance(static_cast<double>(first + count) / static_cast<double>(queries.rows));
  }
};

/// Who walks for the queries of a batch, the best choice first. Of blocks with 16 warps as many queries run at
/// a time as there are multiprocessors, of blocks with 8 some three times as many; a batch of more than
/// eleven queries for each multiprocessor keeps a warp for each query busy (measured elsewhere on one
/// NVIDIA H200, 132 of them: 32 us for 100 queries with 16 warps, 37 with 8; 98 us for 1,000 with 8;
/// 187 us for 3,000 with 1 and 240 with 8). Where a warp each can walk at once for all queries, walks cut at
/// their mean end sooner from some four queries a multiprocessor on (one NVIDIA H200, SIFT 1M, kernels, with a
/// warp and with a block of 8: 400 queries 103 us at recall 0.954 and 74 at 0.955, 600 queries 105 at 0.956 and
/// 108 at 0.957, 1,000 queries 110 at 0.956 and 142 at 0.958).
std::array<DeviceCalibration::Walkers, 4> order_walkers(uint64_t queries, const DeviceIndex& index, uint32_t k) {
  const uint64_t multiprocessors = index.multiprocessors();
  if (queries <= multiprocessors) return {{{16}, {8}, {1}, {1}}};
  if (queries > 4 * multiprocessors && queries <= index.walks_at_once(k)) return {{{1, true}, {8}, {1}, {16}}};
  if (queries <= 11 * multiprocessors) return {{{8}, {1}, {16}, {16}}};
  return {{{1}, {8}, {16}, {16}}};
}

/// What CAGRA's searches have been found to need for their recall; measured now if nobody has asked yet.
const CagraCalibration& cagra_calibration(const Built& built, const Placement& placement,
                                          ann_search_params params, const CagraPlan& like,
                                          const Execution& execution) {
  const std::lock_guard lock(placement.cagra_mutex);
  std::unique_ptr<const CagraCalibration>& known =
      placement.cagra[like.multi_cta ? 1 : 0][like.stored ? 1 : 0];
  if (known != nullptr) return *known;
  // By the defaults: what else a caller has chosen is the caller's to answer for.
  ann_search_params plain = ANN_SEARCH_PARAMS_INIT;
  plain.procedure = like.multi_cta ? ANN_SEARCH_CAGRA_MULTI_CTA : ANN_SEARCH_CAGRA_SINGLE_CTA;
  plain.compare = params.compare;
  const auto plan = [&](uint32_t k, uint32_t list, uint32_t width) {
    plain.beam = list;
    plain.search_width = width;
    return plan_cagra(built, plain, 0, k, 0, placement.index->multiprocessors());
  };
  known = std::make_unique<const CagraCalibration>(
      built.calibration.curve_count() == 0
          ? CagraCalibration()
          : calibrate_cagra(built.dataset, built.codes, built.queries, *placement.index, placement.device,
                            built.seed, !like.multi_cta, plan, execution));
  return *known;
}

/// The plan of a search as CAGRA, with M, and p if the caller leaves it open, from its own calibration where
/// there is one.
CagraPlan choose_cagra(const Built& built, const Placement& placement, const DeviceRequest& request,
                       uint64_t queries, uint32_t k, const Execution& execution) {
  ann_search_params params = *request.cagra;
  const auto plan = [&] {
    return plan_cagra(built, params, queries, k, request.recall, placement.index->multiprocessors());
  };
  CagraPlan chosen = plan();
  if (params.beam != 0 || queries == 0) return chosen;
  // Of CAGRA's two the longer beam may choose the other, whose beam then counts.
  for (uint32_t turn = 0; turn < 2; ++turn) {
    const CagraCalibration& calibration = cagra_calibration(built, placement, params, chosen, execution);
    if (calibration.curves.curve_count() == 0) return chosen;
    const uint32_t list = std::max(k, calibration.curves.beam(k, request.recall));
    params.beam = std::min<uint32_t>(kCagraListMax, static_cast<uint32_t>(round_up(list, 32)));
    if (request.cagra->search_width == 0) params.search_width = calibration.width;
    const bool was_multi = chosen.multi_cta;
    chosen = plan();
    if (chosen.multi_cta == was_multi) break;
  }
  return chosen;
}

/// Refuses a procedure that was asked for by name and cannot find so many neighbours.
void check_serves(const Built& built, const DeviceIndex& index, uint32_t warps, uint32_t k) {
  const bool exact = built.codes.exact();
  if (warps != 1 && !index.blocks_serve(1))
    fail(ANN_UNSUPPORTED, "rows of %zu bytes are too long for a walk by blocks on this device",
         built.codes.stride());
  const uint32_t most = warps == 1 ? kTwoListsMax : warps == 8 ? kBlockKeptMax : kWideBlockKeptMax;
  if (kept_count(k, exact) > most || (warps != 1 && !index.blocks_serve(k)))
    fail(ANN_LIMIT, "results.k is %u, a walk with %u warps keeps %u rows, and of this index needs %u for it", k,
         warps, most, kept_count(k, exact));
}

}  // namespace

WalkEffort choose_effort(const Built& built, const Placement& placement, const DeviceRequest& request,
                         uint64_t queries, uint32_t k, const Execution& execution) {
  WalkEffort effort;
  if (request.cagra != nullptr) {
    effort.cagra = choose_cagra(built, placement, request, queries, k, execution);
    return effort;
  }
  if (request.warps != 0) {
    check_serves(built, *placement.index, request.warps, k);
    return placement.calibration.nearest(request.warps, k, request.recall);
  }
  const bool says_recall = request.beam == 0 || built.calibration.curve_count() != 0;
  if (says_recall && !request.one_list) {
    const float recall = request.beam == 0 ? request.recall : built.calibration.recall(k, request.beam);
    for (const DeviceCalibration::Walkers walkers : order_walkers(queries, *placement.index, k)) {
      if (placement.calibration.find(walkers, k, recall, &effort)) return effort;
    }
  }
  // Where no walk was found to reach a recall, all rows are compared.
  if (request.beam == 0 && !request.one_list && k <= kExactMax && !built.calibration.reaches(k, request.recall)) {
    effort.beam = kDeviceBeamMax + 1;
    return effort;
  }
  const uint32_t beam = request.beam != 0 ? request.beam : built.calibration.beam(k, request.recall);
  // A beam longer than there are rows is never filled.
  effort.beam = std::min(beam, built.dataset.rows());
  return effort;
}

void fill_space(const Dataset& dataset, const Codes& codes, const MatrixView& queries,
                uint64_t first, uint32_t count, DeviceSpace& space,
                const Execution& execution) {
  // Queries that are records as they lie go in one piece.
  const bool plain = codes.exact() && space.record_bytes() == dataset.query_bytes() &&
                     queries.stride == dataset.query_bytes();
  const uint64_t task = queries_per_task(
      plain ? kTaskBytes : dataset.metric() == ANN_METRIC_COSINE ? kTaskScaled : kTaskPrepared,
      dataset.query_bytes());
  parallel_for(execution, count, task, [&](uint64_t begin, uint64_t end, uint32_t) {
    if (plain) {
      std::memcpy(space.values(static_cast<uint32_t>(begin)), queries.row(first + begin),
                  (end - begin) * queries.stride);
      for (uint64_t i = begin; i < end; ++i) space.set_usable(static_cast<uint32_t>(i), true);
      return;
    }
    for (uint64_t i = begin; i < end; ++i) {
      const uint32_t query = static_cast<uint32_t>(i);
      space.set_usable(query, fill_record(dataset, codes, queries.row(first + i), queries.element,
                                          query, space));
    }
  });
}

std::shared_ptr<const Placement> Placements::find(int32_t device) const {
  const std::lock_guard lock(mutex_);
  for (const auto& placement : placed_) {
    if (placement->device == device) return placement;
  }
  return nullptr;
}

uint64_t Placements::host_bytes() const {
  const std::lock_guard lock(mutex_);
  uint64_t bytes = 0;
  for (const auto& placement : placed_) bytes += placement->index->host_bytes();
  return bytes;
}

std::shared_ptr<const Placement> Placements::get(const Built& built, int32_t device,
                                                 const Execution& execution) {
  if (auto placement = find(device)) return placement;
  const std::lock_guard making(making_);
  if (auto placement = find(device)) return placement;  // another thread was faster
  built.touch_all();
  auto placement = std::make_shared<Placement>();
  placement->device = device;
  placement->index =
      cuda::place_index(device, built.dataset, built.codes, built.graph, execution);
  // An index that was built without calibration leaves recall to the cautious rule.
  if (built.has_graph() && built.calibration.curve_count() > 0)
    placement->calibration.measure(built.dataset, built.codes, built.queries, *placement->index, device,
                                   built.seed, execution);
  const std::lock_guard lock(mutex_);
  placed_.push_back(placement);
  return placement;
}

void Placements::adopt(std::shared_ptr<const Placement> placement) {
  const std::lock_guard lock(mutex_);
  placed_.push_back(std::move(placement));
}

void Placements::drop(int32_t device) {
  std::shared_ptr<const Placement> dropped;  // goes after the lock
  const std::lock_guard lock(mutex_);
  const auto place = std::find_if(placed_.begin(), placed_.end(), [device](const auto& placement) {
    return placement->device == device;
  });
  if (place == placed_.end()) return;
  dropped = std::move(*place);
  placed_.erase(place);
}

bool search_on_device(const Built& built, const DeviceRequest& request, const MatrixView& queries,
                      const ResultsView& results, const Execution& execution,
                      SearchCounts* counts) {
  const Dataset& dataset = built.dataset;
  const auto placement = built.placements.get(built, request.device, execution);
  const uint32_t k = std::min(results.k, dataset.rows());
  if (k == 0) {
    for (uint64_t query = 0; query < queries.rows; ++query) {
      const bool finite = first_not_finite(queries.row(query), queries.element, queries.dim) == queries.dim;
      write_answer(results, query, nullptr, 0,
                   finite ? ann_status{ANN_OK} : ann_status{ANN_NOT_FINITE});
    }
    return true;
  }
  const WalkEffort effort = choose_effort(built, *placement, request, queries.rows, k, execution);
  if (effort.beam > kDeviceBeamMax) return false;
  if (queries.rows == 0) return true;

  const HostBatch batch{built, *placement->index, queries, results, k, effort, execution, counts};
  if (effort.by_blocks() || queries.rows <= kFewQueries)
    batch.answer_few();
  else
    batch.answer_many();
  return true;
}

bool search_on_device(const Built& built, const DeviceRequest& request, const DeviceBatch& batch,
                      const Execution& execution, SearchCounts* counts) {
  const auto placement = built.placements.get(built, request.device, execution);
  const uint32_t k = std::min(batch.results.k, built.dataset.rows());
  WalkEffort effort;
  if (k > 0) effort = choose_effort(built, *placement, request, batch.queries.rows, k, execution);
  if (effort.beam > kDeviceBeamMax) return false;
  DeviceCounts counted;
  placement->index->search(batch, effort, execution, &counted);
  counts->distances += counted.distances;
  counts->expansions += counted.expansions;
  return true;
}

void search_exact_on_device(const Built& built, const DeviceBatch& batch, const Execution& execution) {
  const auto placement =
      built.placements.get(built, batch.queries.space - ANN_DEVICE_CUDA, execution);
  placement->index->search_exact(batch, execution);
}

}  // namespace gannet
