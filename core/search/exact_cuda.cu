// Exact search on the GPU: every query is compared with every row, and each keeps its k nearest.
//
//   here         n, d       rows and columns
//                batch      queries answered together
//                chunk      rows on the device at once
//                tile       queries x rows that a block compares at once
//                panel      columns of a tile that are held in shared memory at once
//                slice      share of the rows of a launch that a block goes through for its queries
//                list       of a query and a slice: the nearest rows found so far
//
// Few queries. A block owns a tile's queries and a slice. It goes through the slice tile by tile, the tile panel by
// panel (exact_tiles.cuh). A distance nearer than the query's k-th best so far is appended to the query's list; a
// list that might overflow is sorted and cut to k, which gives the new k-th best, too (exact_lists.cuh). For rows in
// random order about k * ln(n / k) distances pass, so sorting costs little. No matrix of n x q distances exists. A
// last launch merges a query's lists, one a slice. Of up to four queries each has blocks of its own, which sum the rows
// as they come from memory (exact_stream.cuh).
//
// Many queries. The first rows of all are summed as for few queries, and leave each query a bound. Then launches of
// more and more rows follow, of three kernels each: rows of floats are rounded to halves (exact_halves.cuh), tensor
// cores tell by these how far apart a pair is at least, and mark the pairs that may be nearer than the bound
// (exact_filter.cuh), and those are summed, which leaves a new bound (exact_near.cuh). A query has one list.
//
// This file is the run on the host: the vectors sent, the kernel (exact_launch.h) and its launches.
//
// Operations. A float pair costs 3 d for L2 (subtract, multiply, add), 2 d for products, and a fold of 3 to 4
// instructions a thread: on 132 multiprocessors of 128 lanes at 1.75 GHz at most 10 G pairs/s at d = 960. 16 x 8
// integer pairs cost d / 32 instructions of tensor cores, of halves d / 16: on paper 2.5 T pairs/s of 128 halves, and
// twice as many of integers. A call with few queries waits for the rows, their transfer included.

#include <algorithm>
#include <cmath>
#include <memory>

#include "backend/devices.h"
#include "backend/transfers.h"
#include "dataset/codes_cuda.h"
#include "distance/element.h"
#include "search/exact_launch.h"

namespace gannet::cuda {
namespace {

constexpr size_t kRowAlign = 16;  // bytes; zeros fill a row up

uint64_t ceil_div(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

constexpr uint64_t kLaunchRowsMin = 4096;

// Of many queries.
constexpr uint64_t kFilterRowsMin = 256;     // of a launch
constexpr uint64_t kFilterMarkedShare = 64;  // one in so many pairs, beyond which the filter is careful
// Tiles of a run at most: so many, or as many as have so many panels, since the first panels of a run are waited for.
constexpr uint64_t kFilterTiles = 4;
constexpr uint64_t kFilterPanels = 32;

template <class Item>
void send_items(const Item* from, uint64_t count, Item* to, const Stream& stream,
                const Execution& execution) {
  send_by_driver(to, sizeof(Item), from, sizeof(Item), sizeof(Item), count, stream, execution);
}

/// One request on its way. Members are in the order in which they take device memory.
class Search {
 public:
  Search(const ExactRequest& request, uint32_t kept, bool resident, const Execution& execution,
         const Stream& stream)
      : request_(request),
        execution_(execution),
        stream_(stream),
        on_device_(resident),
        rows_there_(resident || request.rows_are_there),
        kept_(kept),
        is_integer_(!is_float_element(request.rows.element)),
        few_(request.query_count <= few_queries(!is_integer_)),
        rounded_(!is_integer_ && !few_),
        kernel_(choose_exact_kernel(request.rows.element, request.metric, request.query_count)),
        filter_(few_ ? FilterKernel{} : choose_filter_kernel(request.device, request.rows.element)),
        squared_(is_integer_ && request.metric == ANN_METRIC_L2 && request.query_count > kExactStreamed),
        centred_(rounded_ && request.metric == ANN_METRIC_L2),
        cosine_(request.metric == ANN_METRIC_COSINE),
        row_bytes_(size_t{request.rows.dim} * element_bytes(request.rows.element)),
        row_stride_(rows_there_ ? request.rows.stride : round_up(row_bytes_, kRowAlign)),
        query_bytes_(size_t{request.rows.dim} * (is_integer_ ? 1 : 4)),
        query_stride_(resident ? request.query_stride : pick_query_stride()),
        batch_(static_cast<uint32_t>(std::min<uint64_t>(request.query_count, exact_batch(request.rows.dim)))),
        list_half_(round_up_to_power(std::max(kept, kExactHalfMin))),
        slices_(few_ ? pick_slices() : 1),
        half_bytes_(rounded_ ? exact_half_bytes(request.rows.dim) : 0),
        filter_rows_(few_ ? 0 : exact_filter_rows(request.row_count, request.rows.dim, batch_)),
        queries_(resident ? 0 : batch_ * query_stride_, stream),
        query_norms_(cosine_ && !resident ? batch_ : 0, stream),
        query_squares_(squared_ || rounded_ ? batch_ : 0, stream),
        centre_(centred_ ? centre_columns() : 0, stream),
        bounds_(few_ ? 0 : batch_, stream),
        query_halves_(2 * batch_ * half_bytes_, stream),
        query_scales_(rounded_ ? batch_ : 0, stream),
        launched_(few_ ? nullptr : take_launched()),
        marked_(few_ ? 0 : 1, stream),
        ids_(request.ids != nullptr && !rows_there_ ? request.row_count : 0, stream),
        removed_(request.removed.empty() || resident ? 0 : RowSet::word_count(request.row_count), stream),
        lists_(uint64_t{slices_} * batch_ * 2 * list_half_, stream),
        counts_(uint64_t{slices_} * batch_, stream),
        out_rows_(resident ? 0 : uint64_t{batch_} * kept, stream),
        out_distances_(resident ? 0 : uint64_t{batch_} * kept, stream),
        chunk_rows_(rows_there_ ? request.row_count : pick_chunk_rows()),
        rows_(rows_there_ ? 0 : chunk_rows_ * row_stride_, stream),
        norms_(cosine_ && !rows_there_ ? chunk_rows_ : 0, stream),
        row_squares_(squared_ ? chunk_rows_ : 0, stream) {}

  void run() {
    execution_.enter("exact search");
    if (request_.ids != nullptr && !rows_there_)
      send_items(request_.ids, request_.row_count, ids_.data(), stream_, execution_);
    if (!request_.removed.empty() && !on_device_)
      send_items(request_.removed.words, RowSet::word_count(request_.row_count), removed_.data(), stream_,
                 execution_);
    for (uint64_t first = 0; first < request_.query_count; first += batch_) {
      const uint64_t left = request_.query_count - first;
      answer(first, static_cast<uint32_t>(std::min<uint64_t>(batch_, left)));
    }
  }

 private:
  static uint32_t round_up_to_power(uint32_t value) {
    uint32_t power = 1;
    while (power < value) power *= 2;
    return power;
  }

  /// Queries as long as rows, where rows lie on the device with more behind them than need be: integers of
  /// both are read to the end of a row.
  size_t pick_query_stride() const {
    const size_t stride = round_up(query_bytes_, kRowAlign);
    return is_integer_ ? std::max(stride, row_stride_) : stride;
  }

  uint64_t centre_columns() const { return half_bytes_ / 2; }

  /// What a launch of the filter needs beside the rows and queries.
  struct Launched {
    Launched(uint64_t rows, uint64_t half_bytes, uint64_t queries, const Stream& stream)
        : halves(2 * rows * half_bytes, stream), terms(rows, stream), marks(queries * (rows / 32), stream) {}
    DeviceArray<uint8_t> halves;  // [rows, 2, half_bytes]
    DeviceArray<float4> terms;    // [rows]
    DeviceArray<uint32_t> marks;  // [queries, rows / 32]
  };

  /// Where memory is short, launches have fewer rows.
  std::unique_ptr<Launched> take_launched() {
    for (;;) {
      try {
        return std::make_unique<Launched>(filter_rows_, half_bytes_, batch_, stream_);
      } catch (const Error& error) {
        if (error.status != ANN_DEVICE_NO_MEMORY || filter_rows_ <= kExactFilterRowsMin) throw;
        filter_rows_ = round_up(filter_rows_ / 2, kExactFilterTileRows);
      }
    }
  }

  /// As many slices as give every multiprocessor its blocks.
  uint32_t pick_slices() const {
    const uint64_t resident = blocks_at_once(request_.device, kernel_.function, kernel_.tile.threads);
    const uint64_t tall = ceil_div(batch_, kernel_.tile.queries);
    const uint64_t most = ceil_div(request_.row_count, kExactTilesOfSlice * kernel_.tile.rows);
    return static_cast<uint32_t>(std::clamp<uint64_t>(resident / tall, 1, most));
  }

  /// As many rows as fit beside everything else, some memory left to others.
  uint64_t pick_chunk_rows() const {
    const uint64_t bytes = row_stride_ + (cosine_ ? sizeof(float) : 0) + (squared_ ? sizeof(uint32_t) : 0);
    stream_.wait();  // memory taken so far counts
    const uint64_t free_bytes = stream_.pool().free_bytes();
    uint64_t budget = free_bytes - free_bytes / 8;
    if (request_.chunk_bytes_max != 0) budget = std::min(budget, request_.chunk_bytes_max);
    const uint64_t fitting = std::max<uint64_t>(budget / bytes, 1);
    const uint64_t chunks = ceil_div(request_.row_count, fitting);
    return ceil_div(request_.row_count, chunks);
  }

  void answer(uint64_t first_query, uint32_t query_count) {
    ExactArgs args = {};
    args.query_squares = query_squares_.data();
    args.bounds = bounds_.data();
    args.query_halves = query_halves_.data();
    args.query_scales = query_scales_.data();
    if (launched_ != nullptr) {
      args.row_halves = launched_->halves.data();
      args.row_terms = launched_->terms.data();
      args.marks = launched_->marks.data();
    }
    args.half_bytes = static_cast<uint32_t>(half_bytes_);
    args.lists = lists_.data();
    args.counts = counts_.data();
    args.slices = slices_;
    args.query_count = query_count;
    args.row_stride = static_cast<uint32_t>(row_stride_);
    args.query_stride = static_cast<uint32_t>(query_stride_);
    args.dim = request_.rows.dim;
    args.k = kept_;
    args.list_half = list_half_;
    args.metric = request_.metric;
    if (!request_.removed.empty()) args.removed = {on_device_ ? request_.removed.words : removed_.data()};
    args.element = request_.rows.element;

    if (on_device_)
      point_to_queries(first_query, &args);
    else
      send_queries(first_query, &args);
    if (!few_) clear(query_count);
    fill(counts_.data(), 0, uint64_t{slices_} * query_count * sizeof(uint32_t), stream_,
         "clearing device memory");

    for (uint64_t first_row = 0; first_row < request_.row_count; first_row += chunk_rows_) {
      const uint64_t row_count = std::min(chunk_rows_, request_.row_count - first_row);
      send_rows(first_row, row_count);
      // The centre is that of the first rows.
      if (squared_ && first_row == 0) square(args.queries, query_count, query_stride_, query_squares_.data());
      if (rounded_ && first_row == 0) round_queries(args);
      if (few_)
        compare(args, first_row, row_count, first_query);
      else
        filter(args, first_row, row_count, first_query);
    }

    merge_exact_lists(args, stream_);
    if (on_device_) return;
    receive(out_rows_.data(), request_.out_rows, first_query, query_count);
    receive(out_distances_.data(), request_.out_distances, first_query, query_count);
    stream_.wait();
  }

  /// Forgets the bounds of the queries before.
  void clear(uint32_t query_count) const {
    fill(bounds_.data(), 0xff, query_count * sizeof(uint32_t), stream_, "clearing device memory");
    fill(marked_.data(), 0, sizeof(unsigned long long), stream_, "clearing device memory");
  }

  void send_queries(uint64_t first, ExactArgs* args) {
    const uint8_t* queries = static_cast<const uint8_t*>(request_.queries);
    send_by_driver(queries_.data(), query_stride_, queries + first * query_bytes_, query_bytes_, query_bytes_,
                   args->query_count, stream_, execution_);
    if (request_.flip != 0)
      flip_and_square(queries_.data(), args->query_count, static_cast<uint32_t>(query_stride_), request_.flip,
                      nullptr, stream_);
    if (cosine_)
      send_items(request_.query_norms + first, args->query_count, query_norms_.data(), stream_, execution_);
    args->queries = queries_.data();
    args->query_norms = query_norms_.data();
    args->ids = rows_there_ ? request_.ids : ids_.data();
    args->out_rows = out_rows_.data();
    args->out_distances = out_distances_.data();
  }

  void point_to_queries(uint64_t first, ExactArgs* args) const {
    args->queries = static_cast<const uint8_t*>(request_.queries) + first * query_stride_;
    args->query_norms = cosine_ ? request_.query_norms + first : nullptr;
    args->ids = request_.ids;
    args->out_rows = request_.out_rows + first * kept_;
    args->out_distances = request_.out_distances + first * kept_;
  }

  /// Puts a chunk of rows on the device, unless it is there already.
  void send_rows(uint64_t first_row, uint64_t row_count) {
    if (first_row == chunk_first_row_) return;
    chunk_first_row_ = kNoPlace;
    if (rows_there_) {
      measure(row_count);
      chunk_first_row_ = first_row;
      return;
    }
    send_by_driver(rows_.data(), row_stride_, request_.rows.row(first_row), request_.rows.stride, row_bytes_,
                   row_count, stream_, execution_);
    if (cosine_) send_items(request_.norms + first_row, row_count, norms_.data(), stream_, execution_);
    measure(row_count);
    chunk_first_row_ = first_row;
  }

  /// Finds the centre and the squares of a chunk of rows, if needed. The centre of the first serves all.
  void measure(uint64_t row_count) {
    if (centred_ && !has_centre_) {
      MeasureArgs args = measured(row_data(), row_count, row_stride_, request_.rows.element);
      args.centre = centre_.data();
      args.centre_columns = static_cast<uint32_t>(centre_columns());
      find_exact_centre(args, stream_);
      has_centre_ = true;
    }
    if (squared_) square(row_data(), row_count, row_stride_, row_squares_.data());
  }

  const uint8_t* row_data() const {
    return rows_there_ ? static_cast<const uint8_t*>(request_.rows.data) : rows_.data();
  }
  const float* norm_data() const { return rows_there_ ? request_.norms : norms_.data(); }

  MeasureArgs measured(const uint8_t* items, uint64_t count, size_t stride, int32_t element) const {
    MeasureArgs args = {};
    args.items = items;
    args.metric = request_.metric;
    args.count = static_cast<uint32_t>(count);
    args.stride = static_cast<uint32_t>(stride);
    args.dim = request_.rows.dim;
    args.element = element;
    return args;
  }

  void square(const uint8_t* items, uint64_t count, size_t stride, uint32_t* squares) {
    MeasureArgs args = measured(items, count, stride, request_.rows.element);
    args.squares = squares;
    find_exact_squares(args, stream_);
  }

  void round_queries(const ExactArgs& batch) const {
    MeasureArgs args =
        halved(measured(batch.queries, batch.query_count, query_stride_, ANN_F32), query_halves_.data());
    args.squares = query_squares_.data();
    args.scales = query_scales_.data();
    find_exact_halves(args, stream_);
  }

  void round_rows(const ExactArgs& rows) const {
    MeasureArgs args = halved(measured(rows.rows, rows.row_count, row_stride_, request_.rows.element),
                              launched_->halves.data());
    args.care = rows.care;
    args.terms = launched_->terms.data();
    args.norms = rows.norms;
    find_exact_halves(args, stream_);
  }

  /// Of rows of a chunk from `row` on.
  void find_byte_terms(const ExactArgs& rows, uint64_t row) const {
    MeasureArgs args = measured(rows.rows, rows.row_count, row_stride_, request_.rows.element);
    args.squares = squared_ ? row_squares_.data() + row : nullptr;
    args.terms = launched_->terms.data();
    args.norms = rows.norms;
    find_exact_byte_terms(args, stream_);
  }

  MeasureArgs halved(MeasureArgs args, uint8_t* halves) const {
    args.centre = centre_.data();
    args.halves = halves;
    args.half_bytes = static_cast<uint32_t>(half_bytes_);
    return args;
  }

  /// Compares the batch with a chunk of rows, in launches short enough for the monitor.
  void compare(const ExactArgs& args, uint64_t first_row, uint64_t row_count, uint64_t first_query) const {
    constexpr uint32_t kColumns = 64;  // of narrow rows, which take as long
    const uint64_t columns = uint64_t{args.query_count} * std::max(args.dim, kColumns);
    const uint64_t rows_of_time = std::max(kLaunchRowsMin, kernel_.launch_work / columns);
    const uint64_t launches = ceil_div(row_count, rows_of_time);
    const uint64_t even_rows = ceil_div(row_count, launches);
    for (uint64_t row = 0; row < row_count; row += even_rows) {
      const uint64_t count = std::min(even_rows, row_count - row);
      if (!on_device_) execution_.check();
      launch_rows(args, first_row, row, count);
      report(args, first_row + row + count, first_query, launches > 1);
    }
  }

  /// The same of many queries, from the first rows of all on, which are summed without asking.
  void filter(const ExactArgs& args, uint64_t first_row, uint64_t row_count, uint64_t first_query) const {
    uint64_t row = 0;
    if (first_row == 0) {
      row = std::min(row_count, round_up(exact_first_rows(kept_), uint64_t{32}));
      launch_rows(args, first_row, 0, row);
    }
    while (row < row_count) {
      const uint64_t growing = std::max(kFilterRowsMin, kFilterGrowth * (first_row + row));
      const uint64_t count = std::min({growing, filter_rows_, row_count - row});
      if (!on_device_) execution_.check();
      // Those that are few so far: of each launch as many as may be answers by the bound before it, with room.
      const uint64_t launches =
          1 + static_cast<uint64_t>(std::log2(1.0 + (first_row + row) / kFilterRowsMin));
      const uint64_t of_query = 8 * kFilterGrowth * kept_ * launches + (first_row + row) / kFilterMarkedShare;
      launch_filter(args, {marked_.data(), args.query_count * of_query}, first_row, row, count);
      row += count;
      report(args, first_row + row, first_query, row < row_count);
    }
  }

  /// Tells the monitor of rows that are done, once they are.
  void report(const ExactArgs& args, uint64_t rows, uint64_t first_query, bool more) const {
    if (on_device_) return;
    if (more) stream_.wait();
    const double rows_done = static_cast<double>(rows);
    const double queries_done =
        static_cast<double>(first_query) + args.query_count * (rows_done / request_.row_count);
    execution_.advance(queries_done / request_.query_count);
  }

  /// Points to `row_count` rows of a chunk from `row` on.
  void point_to_rows(uint64_t first_row, uint64_t row, uint64_t row_count, ExactArgs* args) const {
    args->rows = row_data() + row * row_stride_;
    args->norms = cosine_ ? norm_data() + row : nullptr;
    args->row_squares = squared_ ? row_squares_.data() + row : nullptr;
    args->first_row = static_cast<uint32_t>(first_row + row);
    args->row_count = static_cast<uint32_t>(row_count);
  }

  void launch_rows(ExactArgs args, uint64_t first_row, uint64_t row, uint64_t row_count) const {
    point_to_rows(first_row, row, row_count, &args);
    args.panels = static_cast<uint32_t>(ceil_div(args.dim, kernel_.panel_columns));
    args.slice_rows =
        static_cast<uint32_t>(round_up(ceil_div(row_count, slices_), uint64_t{kernel_.tile.rows}));
    const dim3 grid(static_cast<uint32_t>(ceil_div(args.query_count, kernel_.tile.queries)), slices_);
    launch("exact_search", kernel_.function, grid, kernel_.tile.threads, stream_, args);
  }

  void launch_filter(ExactArgs args, Care care, uint64_t first_row, uint64_t row, uint64_t row_count) const {
    point_to_rows(first_row, row, row_count, &args);
    args.care = care;
    if (rounded_)
      round_rows(args);
    else
      find_byte_terms(args, row);
    const uint64_t bytes = rounded_ ? half_bytes_ : row_stride_;
    args.panels = static_cast<uint32_t>(ceil_div(bytes, kFilterPanelBytes));
    args.mark_words = static_cast<uint32_t>(round_up(row_count, uint64_t{filter_.tile_rows}) / 32);
    const uint64_t tiles = run_tiles(args);
    args.slice_rows = static_cast<uint32_t>(tiles * filter_.tile_rows);
    const dim3 grid(static_cast<uint32_t>(ceil_div(args.query_count, kFilterQueries)),
                    static_cast<uint32_t>(ceil_div(row_count, args.slice_rows)));
    launch("filter", filter_.function, grid, kFilterThreads, stream_, args, filter_.shared_bytes);
    sum_marked_pairs(args, stream_);
  }

  /// Tiles of a run: fewer where there are not two runs for each multiprocessor.
  uint64_t run_tiles(const ExactArgs& args) const {
    const uint64_t tiles =
        ceil_div(args.row_count, filter_.tile_rows) * ceil_div(args.query_count, kFilterQueries);
    const uint64_t most = std::max<uint64_t>(kFilterTiles, kFilterPanels / args.panels);
    return std::clamp<uint64_t>(tiles / (2 * filter_.multiprocessors), 1, most);
  }

  template <class Item>
  void receive(const Item* from, Item* to, uint64_t first_query, uint32_t query_count) {
    copy_rows(to + first_query * request_.k, request_.k * sizeof(Item), from, kept_ * sizeof(Item),
              kept_ * sizeof(Item), query_count, cudaMemcpyDeviceToHost, stream_,
              "fetching results from the device");
  }

  const ExactRequest& request_;
  const Execution& execution_;
  const Stream& stream_;
  bool on_device_;   // everything: nothing is sent, fetched or waited for
  bool rows_there_;  // rows, lengths and ids
  uint32_t kept_;    // results of a query that exist
  bool is_integer_;
  bool few_;      // queries
  bool rounded_;  // to halves: many, of floats
  ExactKernel kernel_;
  FilterKernel filter_;
  bool squared_;
  bool centred_;
  bool has_centre_ = false;
  bool cosine_;
  size_t row_bytes_;
  size_t row_stride_;
  size_t query_bytes_;
  size_t query_stride_;
  uint32_t batch_;
  uint32_t list_half_;
  uint32_t slices_;
  uint64_t half_bytes_;                  // of a vector's halves
  uint64_t filter_rows_;                 // of a launch at most
  uint64_t chunk_first_row_ = kNoPlace;  // first row of the chunk on the device

  DeviceArray<uint8_t> queries_;            // [batch, query_stride]
  DeviceArray<double> query_norms_;         // [batch]
  DeviceArray<uint32_t> query_squares_;     // [batch]
  DeviceArray<float> centre_;               // [centre_columns]
  DeviceArray<uint32_t> bounds_;            // [batch]
  DeviceArray<uint8_t> query_halves_;       // [batch, 2, half_bytes]
  DeviceArray<float> query_scales_;         // [batch]
  std::unique_ptr<Launched> launched_;      // or null
  DeviceArray<unsigned long long> marked_;  // of all pairs
  DeviceArray<uint64_t> ids_;               // [rows]
  DeviceArray<uint32_t> removed_;           // [(rows + 31) / 32] bits
  DeviceArray<Key> lists_;                  // [slices, batch, 2 * list_half]
  DeviceArray<uint32_t> counts_;            // [slices, batch]
  DeviceArray<uint32_t> out_rows_;          // [batch, kept]
  DeviceArray<float> out_distances_;        // [batch, kept]
  uint64_t chunk_rows_;
  DeviceArray<uint8_t> rows_;          // [chunk_rows, row_stride]
  DeviceArray<float> norms_;           // [chunk_rows]
  DeviceArray<uint32_t> row_squares_;  // [chunk_rows]
};

}  // namespace

void search_exact(const ExactRequest& request, const Execution& execution) {
  check_cuda_device(ANN_DEVICE_CUDA + request.device);
  const uint32_t kept = std::min(request.k, request.row_count);
  if (kept > kExactMax)
    fail(ANN_UNSUPPORTED, "k is %u; exact search on a CUDA device keeps at most %u rows a query", request.k,
         kExactMax);

  for (uint64_t query = 0; kept < request.k && query < request.query_count; ++query) {
    std::fill(request.out_rows + query * request.k + kept, request.out_rows + (query + 1) * request.k,
              UINT32_MAX);
    std::fill(request.out_distances + query * request.k + kept,
              request.out_distances + (query + 1) * request.k, INFINITY);
  }
  if (kept == 0 || request.query_count == 0) return;

  const DeviceGuard guard(request.device);
  const Stream stream;
  Search(request, kept, false, execution, stream).run();
}

void search_exact_resident(const ExactRequest& request, const Stream& stream, const Execution& execution) {
  if (request.k > kExactMax)
    fail(ANN_UNSUPPORTED, "k is %u; exact search on a CUDA device keeps at most %u rows a query", request.k,
         kExactMax);
  Search(request, request.k, true, execution, stream).run();
}

}  // namespace gannet::cuda
