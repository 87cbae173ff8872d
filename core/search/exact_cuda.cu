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
// The idea. A block owns a tile's queries and a slice. It goes through the slice tile by tile, the tile panel by panel
// (exact_tiles.cuh). A distance nearer than the query's k-th best so far is appended to the query's list; a list that
// might overflow is sorted and cut to k, which also gives the new k-th best (exact_lists.cuh). For rows in random order
// about k * ln(n / k) distances pass, so sorting costs little. No matrix of n x q distances exists. A last launch
// merges a query's lists, one a slice.
//
// More than 128 queries of floats are multiplied by tensor cores first, which tell how far apart a pair is at least;
// pairs that may be near are summed (exact_filter.cuh). The first rows of all are summed without asking, as few queries
// are, and leave a bound.
//
// This file is the run on the host: the vectors sent, the kernel (exact_launch.h) and its launches.
//
// Operations. A float pair costs 3 d for L2 (subtract, multiply, add), 2 d for products, and a fold of 3 to 4
// instructions a thread: on 132 multiprocessors of 128 lanes at 1.75 GHz at most 10 G pairs/s at d = 960. 16 x 8
// integer pairs cost d / 32 instructions of tensor cores, of floats d / 8, and a pair two more to tell whether it may
// be near: on paper 2 T pairs/s at d = 128, and 900 G of floats, where shared memory binds. One NVIDIA H100, 4,096
// queries of 100,000 x 128 u8, k = 10: 156 G pairs/s; floats 73 G (tests/bench/results.csv, "exact search"). A call
// with few queries waits for the rows' transfer.
// Bytes. A tile of 64 x 128 floats takes 192 * 4 bytes a column from the cache for 8,192 pairs; rows come from device
// memory once for all queries that run at a time. Neither binds.

#include <algorithm>
#include <cmath>

#include "backend/devices.h"
#include "backend/transfers.h"
#include "dataset/codes_cuda.h"
#include "distance/element.h"
#include "search/exact_launch.h"

namespace gannet::cuda {
namespace {

constexpr size_t kRowAlign = 16;  // bytes; zeros fill a row up

uint64_t ceil_div(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

constexpr uint32_t kBatchMax = 4096;                   // queries answered together
constexpr uint64_t kBatchColumns = uint64_t{1} << 24;  // of all queries of a batch
constexpr uint64_t kLaunchRowsMin = 4096;

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
        few_(request.query_count <= few_queries(is_float_element(request.rows.element))),
        kernel_(choose_exact_kernel(request.rows.element, request.metric, few_)),
        is_integer_(!is_float_element(request.rows.element)),
        filtered_(!is_integer_ && !few_),
        squared_(is_integer_ ? request.metric == ANN_METRIC_L2
                             : filtered_ && request.metric != ANN_METRIC_COSINE),
        centred_(filtered_ && request.metric == ANN_METRIC_L2),
        cosine_(request.metric == ANN_METRIC_COSINE),
        row_bytes_(size_t{request.rows.dim} * element_bytes(request.rows.element)),
        row_stride_(rows_there_ ? request.rows.stride : round_up(row_bytes_, kRowAlign)),
        query_bytes_(size_t{request.rows.dim} * (is_integer_ ? 1 : 4)),
        query_stride_(resident ? request.query_stride : pick_query_stride()),
        batch_(static_cast<uint32_t>(std::min<uint64_t>(
            request.query_count, std::clamp<uint64_t>(kBatchColumns / request.rows.dim, 1, kBatchMax)))),
        half_(round_up_to_power(std::max(kept, filtered_ ? kExactFilteredHalfMin : kExactHalfMin))),
        slices_(pick_slices()),
        queries_(resident ? 0 : batch_ * query_stride_, stream),
        query_norms_(cosine_ && !resident ? batch_ : 0, stream),
        query_squares_(squared_ ? batch_ : 0, stream),
        centre_(centred_ ? centre_columns() : 0, stream),
        bounds_(filtered_ ? uint64_t{batch_} * (1 + slices_) : 0, stream),
        ids_(request.ids != nullptr && !rows_there_ ? request.row_count : 0, stream),
        removed_(request.removed.empty() || resident ? 0 : RowSet::word_count(request.row_count), stream),
        lists_(uint64_t{slices_} * batch_ * 2 * half_, stream),
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

  uint64_t centre_columns() const {
    return round_up(uint64_t{request_.rows.dim}, uint64_t{kernel_.panel_columns});
  }

  /// As many slices as give every multiprocessor its blocks.
  uint32_t pick_slices() const {
    const uint64_t fitting = blocks_at_once(request_.device, kernel_.function, kernel_.tile.threads);
    const uint64_t resident = filtered_ ? std::min<uint64_t>(fitting, kExactFloatBlocks) : fitting;
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
    args.centre = centre_.data();
    args.bounds = bounds_.data();
    args.shares = filtered_ ? bounds_.data() + query_count : nullptr;
    args.share_rank = static_cast<uint32_t>(ceil_div(kept_, slices_));
    args.lists = lists_.data();
    args.counts = counts_.data();
    args.slices = slices_;
    args.query_count = query_count;
    args.row_stride = static_cast<uint32_t>(row_stride_);
    args.query_stride = static_cast<uint32_t>(query_stride_);
    args.dim = request_.rows.dim;
    args.k = kept_;
    args.half = half_;
    args.metric = request_.metric;
    if (!request_.removed.empty()) args.removed = {on_device_ ? request_.removed.words : removed_.data()};
    args.element = request_.rows.element;

    if (on_device_)
      point_to_queries(first_query, &args);
    else
      send_queries(first_query, &args);
    if (filtered_)
      fill(bounds_.data(), 0xff, uint64_t{query_count} * (1 + slices_) * sizeof(uint32_t), stream_,
           "clearing device memory");
    fill(counts_.data(), 0, uint64_t{slices_} * query_count * sizeof(uint32_t), stream_,
         "clearing device memory");

    for (uint64_t first_row = 0; first_row < request_.row_count; first_row += chunk_rows_) {
      const uint64_t row_count = std::min(chunk_rows_, request_.row_count - first_row);
      send_rows(first_row, row_count);
      // The centre is that of the first rows.
      if (squared_ && first_row == 0)
        square(args.queries, query_count, query_stride_,
               is_integer_ ? request_.rows.element : int32_t{ANN_F32}, query_squares_.data());
      compare(args, first_row, row_count, first_query);
    }

    merge_exact_lists(args, stream_);
    if (on_device_) return;
    receive(out_rows_.data(), request_.out_rows, first_query, query_count);
    receive(out_distances_.data(), request_.out_distances, first_query, query_count);
    stream_.wait();
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
      args.centre_columns = static_cast<uint32_t>(centre_columns());
      find_exact_centre(args, stream_);
      has_centre_ = true;
    }
    if (squared_) square(row_data(), row_count, row_stride_, request_.rows.element, row_squares_.data());
  }

  const uint8_t* row_data() const {
    return rows_there_ ? static_cast<const uint8_t*>(request_.rows.data) : rows_.data();
  }
  const float* norm_data() const { return rows_there_ ? request_.norms : norms_.data(); }

  MeasureArgs measured(const uint8_t* items, uint64_t count, size_t stride, int32_t element) const {
    MeasureArgs args = {};
    args.items = items;
    args.centre = centre_.data();
    args.count = static_cast<uint32_t>(count);
    args.stride = static_cast<uint32_t>(stride);
    args.dim = request_.rows.dim;
    args.element = element;
    return args;
  }

  void square(const uint8_t* items, uint64_t count, size_t stride, int32_t element, uint32_t* squares) {
    MeasureArgs args = measured(items, count, stride, element);
    args.squares = squares;
    find_exact_squares(args, stream_);
  }

  /// Compares the batch with a chunk of rows, in launches short enough for the monitor.
  void compare(const ExactArgs& args, uint64_t first_row, uint64_t row_count, uint64_t first_query) {
    const uint64_t first_rows = filtered_ && first_row == 0 ? std::min(row_count, rows_without_bounds()) : 0;
    if (first_rows != 0)
      launch_rows(choose_exact_kernel(request_.rows.element, request_.metric, true), 1, args, first_row, 0,
                  first_rows);
    const uint64_t columns = uint64_t{args.query_count} * args.dim;
    const uint64_t rows_of_time = std::max(kLaunchRowsMin, kernel_.launch_work / columns);
    const uint64_t launches = ceil_div(row_count - first_rows, rows_of_time);
    for (uint64_t number = 0; number < launches; ++number) {
      const uint64_t even_rows = ceil_div(row_count - first_rows, launches);
      const uint64_t row = first_rows + number * even_rows;
      const uint64_t count = std::min(even_rows, row_count - row);
      if (!on_device_) execution_.check();
      launch_rows(kernel_, slices_, args, first_row, row, count);
      if (on_device_) continue;
      if (launches > 1) stream_.wait();
      const double rows_done = static_cast<double>(first_row + row + count);
      const double queries_done =
          static_cast<double>(first_query) + args.query_count * (rows_done / request_.row_count);
      execution_.advance(queries_done / request_.query_count);
    }
  }

  /// Rows whose distances are summed without asking, since without a bound all may be near. A twelfth of them is
  /// nearer than the bound that they leave.
  uint64_t rows_without_bounds() const {
    return round_up(std::clamp<uint64_t>(uint64_t{12} * kept_, 256, 2048), uint64_t{32});
  }

  /// Compares with `row_count` rows of a chunk from `row` on.
  void launch_rows(const ExactKernel& kernel, uint32_t slices, ExactArgs args, uint64_t first_row,
                   uint64_t row, uint64_t row_count) const {
    args.rows = row_data() + row * row_stride_;
    args.norms = cosine_ ? norm_data() + row : nullptr;
    args.row_squares = squared_ ? row_squares_.data() + row : nullptr;
    args.first_row = static_cast<uint32_t>(first_row + row);
    args.row_count = static_cast<uint32_t>(row_count);
    args.panels = static_cast<uint32_t>(ceil_div(args.dim, kernel.panel_columns));
    args.slice_rows =
        static_cast<uint32_t>(round_up(ceil_div(row_count, slices), uint64_t{kernel.tile.rows}));
    const dim3 grid(static_cast<uint32_t>(ceil_div(args.query_count, kernel.tile.queries)), slices);
    launch("exact_search", kernel.function, grid, kernel.tile.threads, stream_, args);
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
  bool few_;         // queries
  ExactKernel kernel_;
  bool is_integer_;
  bool filtered_;  // by tensor cores
  bool squared_;
  bool centred_;
  bool has_centre_ = false;
  bool cosine_;
  size_t row_bytes_;
  size_t row_stride_;
  size_t query_bytes_;
  size_t query_stride_;
  uint32_t batch_;
  uint32_t half_;
  uint32_t slices_;
  uint64_t chunk_first_row_ = kNoPlace;  // first row of the chunk on the device

  DeviceArray<uint8_t> queries_;         // [batch, query_stride]
  DeviceArray<double> query_norms_;      // [batch]
  DeviceArray<uint32_t> query_squares_;  // [batch]
  DeviceArray<float> centre_;            // [centre_columns]
  DeviceArray<uint32_t> bounds_;         // [batch] and [slices, batch]
  DeviceArray<uint64_t> ids_;            // [rows]
  DeviceArray<uint32_t> removed_;        // [(rows + 31) / 32] bits
  DeviceArray<Key> lists_;               // [slices, batch, 2 * half]
  DeviceArray<uint32_t> counts_;         // [slices, batch]
  DeviceArray<uint32_t> out_rows_;       // [batch, kept]
  DeviceArray<float> out_distances_;     // [batch, kept]
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
