// ann.h, sections 9 and 11: builds and k-NN graphs.

#include "backend/devices.h"
#include "boundary.h"
#include "graph/ggnn.h"
#include "graph/product_knn.h"
#include "index/build_cuda.h"
#include "index/estimate.h"
#include "knn/find_neighbors.h"
#include "knn/products.h"
#include "search/exact.h"
#include "search/exact_device.h"

using namespace gannet;

namespace {

constexpr size_t kBuildParamsNeeded = 2 * sizeof(uint32_t);

void check_same_dim(uint32_t dim, uint32_t wanted, const char* name) {
  if (dim != wanted) fail(ANN_INVALID_ARGUMENT, "%s.dim is %u, the index has %u", name, dim, wanted);
}

void check_budget(const ann_index_params& shape, const MatrixView& rows, bool ids, const BuildPlan& plan,
                  bool stay) {
  if (plan.memory_limit == 0) return;
  ann_plan needed = ANN_PLAN_INIT;
  const int32_t element = shape.element != 0 ? shape.element : rows.element;
  estimate_build(shape, rows.rows, element, ids, plan, &needed);
  // Rows on a device are copied to the host first, or beside the build, by threads with memory of their own.
  const uint64_t row = uint64_t{rows.dim} * element_bytes(rows.element);
  if (stay) needed.peak_bytes += plan.threads * (uint64_t{2} << 20) + 4096 + 4096 * row;
  if (rows.on_device() && !stay) needed.peak_bytes += rows.rows * row;
  if (needed.peak_bytes > plan.memory_limit)
    fail(ANN_LIMIT, "memory_limit is %llu, the build needs up to %llu bytes",
         static_cast<unsigned long long>(plan.memory_limit),
         static_cast<unsigned long long>(needed.peak_bytes));
}

/// The rows of a dataset as queries.
MatrixView rows_of(const Dataset& dataset) {
  const RowsView& view = dataset.view();
  return {static_cast<const uint8_t*>(view.data), dataset.rows(), view.dim, view.element, view.stride};
}

/// Exact k-NN lists in the metric itself: each row is a query that must not find itself.
void exact_lists(const Dataset& dataset, uint32_t k, int32_t device, uint32_t* neighbors, float* distances,
                 const Execution& execution) {
  const MatrixView rows = rows_of(dataset);
  // A device is sent the rows again for each piece, which is to take much longer than that.
  const bool on_cuda = device >= ANN_DEVICE_CUDA;
  const uint64_t piece_max = std::min<uint64_t>(on_cuda ? 65536 : 4096, rows.rows);
  const Allocator& memory = execution.memory;
  Array<uint64_t> ids(memory, piece_max * k);
  Array<float> scratch(memory, distances == nullptr ? piece_max * k : 0);
  Array<uint32_t> self(memory, piece_max);
  for (uint64_t first = 0; first < rows.rows; first += piece_max) {
    MatrixView piece = rows;
    piece.data = rows.row(first);
    piece.rows = std::min(piece_max, rows.rows - first);
    for (uint64_t i = 0; i < piece.rows; ++i) self[i] = static_cast<uint32_t>(first + i);
    const QueryBlock queries(dataset, piece, execution);
    float* out = distances == nullptr ? scratch.data() : distances + first * k;
    const double total = static_cast<double>(rows.rows);
    const Execution part =
        execution.span(static_cast<double>(first) / total, static_cast<double>(first + piece.rows) / total);
    const ResultsView results{k, ids.data(), out, nullptr, nullptr};
    if (on_cuda)
      search_exact_on_device(dataset, queries, self.data(), device, results, part);
    else
      search_exact(dataset, queries, {{}, {}, self.data()}, results, part);
    for (uint64_t i = 0; i < piece.rows * k; ++i)
      neighbors[first * k + i] = ids[i] == ANN_ID_NONE ? kNoRow : static_cast<uint32_t>(ids[i]);
  }
}

/// Writes the first k of lists whose code distances are the reported ones. Large integers may become equal as
/// floats; equal ones are in order of rows again then.
void write_lists(const KnnLists& lists, uint32_t k, uint32_t* neighbors, float* distances,
                 const Execution& execution) {
  const uint32_t searched = lists.graph.k;
  parallel_for(execution, lists.graph.rows, 1024, [&](uint64_t begin, uint64_t end, uint32_t) {
    for (uint64_t row = begin; row < end; ++row) {
      const uint32_t* list = lists.graph.list(row);
      Neighbor sorted[kKnnListMax];
      uint32_t count = 0;
      for (; count < searched && list[count] != kNoRow; ++count)
        sorted[count] = {static_cast<float>(lists.distances[row * searched + count]), list[count]};
      if (!std::is_sorted(sorted, sorted + count)) std::sort(sorted, sorted + count);
      for (uint32_t i = 0; i < k; ++i) {
        neighbors[row * k + i] = i < count ? static_cast<uint32_t>(sorted[i].id) : kNoRow;
        if (distances != nullptr) distances[row * k + i] = i < count ? sorted[i].distance : INFINITY;
      }
    }
  });
}

/// Orders each list by the reported distance, ties by row, and writes its first k out.
void rescore_lists(const Dataset& dataset, const KnnGraph& graph, uint32_t k, uint32_t* neighbors,
                   float* distances, const Execution& execution) {
  const MatrixView rows = rows_of(dataset);
  parallel_for(execution, graph.rows, 256, [&](uint64_t begin, uint64_t end, uint32_t) {
    Array<uint8_t> values(execution.memory, dataset.query_bytes());
    for (uint64_t row = begin; row < end; ++row) {
      PreparedQuery query;
      dataset.prepare(rows.row(row), rows.element, values.data(), &query);
      const uint32_t* list = graph.list(row);
      uint32_t count = 0;
      while (count < graph.k && list[count] != kNoRow) ++count;
      float measured[kKnnListMax];
      Neighbor sorted[kKnnListMax];
      dataset.distances(query, list, 0, count, measured);
      for (uint32_t i = 0; i < count; ++i) sorted[i] = {measured[i], list[i]};
      std::sort(sorted, sorted + count);
      for (uint32_t i = 0; i < k; ++i) {
        neighbors[row * k + i] = i < count ? static_cast<uint32_t>(sorted[i].id) : kNoRow;
        if (distances != nullptr) distances[row * k + i] = i < count ? sorted[i].distance : INFINITY;
      }
    }
  });
}

/// Whether lists are found by comparing rows as they are stored, rather than codes.
bool by_rows(int32_t metric, int32_t element, int32_t method, int32_t device) {
  const bool codes_are_rows = metric == ANN_METRIC_L2 && !is_float_element(element);
  return method == ANN_KNN_EXACT && !(device >= ANN_DEVICE_CUDA && codes_are_rows);
}

/// The k nearest by inner product by NN-Descent, where codes do not serve by comparing every pair; or over a graph
/// of near rows.
void find_by_products(const Dataset& dataset, int32_t method, const NnDescentParams& params, uint32_t k,
                      int32_t device, uint32_t* neighbors, float* distances, const Execution& execution) {
  if (method == ANN_KNN_CELLS)
    return rescore_lists(dataset, product_knn(dataset, params.k, params.seed, execution), k, neighbors,
                         distances, execution);
  const Dataset rows(rows_of(dataset), nullptr, ANN_METRIC_L2, ANN_ELEMENT_AUTO, true, execution);
  const Codes codes(rows, params.seed, execution);
  const auto offsets = product_offsets(codes, rows.dim(), execution);
  if (!offsets) return exact_lists(dataset, k, device, neighbors, distances, execution);
  const KnnGraph found = device >= ANN_DEVICE_CUDA
                             ? cuda::find_neighbors_by_products(codes, *offsets, params, device, execution)
                             : nn_descent_by_products(codes, *offsets, params, execution);
  rescore_lists(dataset, found, k, neighbors, distances, execution);
}

/// The k nearest of each row of a dataset, by codes where those find or are the distances. `ingest` is null, or brings
/// the dataset, which outlives it.
void find_lists(Dataset& dataset, std::unique_ptr<cuda::DeviceIngest> ingest, int32_t method,
                const NnDescentParams& params, uint32_t k, int32_t device, uint32_t* neighbors,
                float* distances, const Execution& execution) {
  const Execution finding = execution.span(0.05, 0.95);
  finding.enter(method == ANN_KNN_EXACT ? "exact k-NN graph" : "k-NN graph");
  if (by_rows(dataset.metric(), dataset.element(), method, device))
    return exact_lists(dataset, k, device, neighbors, distances, finding);
  if (dataset.metric() == ANN_METRIC_INNER_PRODUCT)
    return find_by_products(dataset, method, params, k, device, neighbors, distances, finding);
  const Codes codes = ingest != nullptr ? ingest->make_codes(dataset, params.seed, execution)
                                        : Codes(dataset, params.seed, execution);
  const bool on_cuda = device >= ANN_DEVICE_CUDA;
  KnnLists lists;
  const bool by_ggnn = method == ANN_KNN_GGNN;
  if (by_ggnn && on_cuda)
    lists.graph = cuda::ggnn_knn(codes, std::move(ingest), k, params.seed, device, finding);
  else if (by_ggnn)
    lists.graph = ggnn_knn(codes, k, params.seed, finding);
  else if (on_cuda)
    lists = cuda::find_neighbors(codes, std::move(ingest), method, params, device, finding);
  else
    lists.graph = find_neighbors(codes, method, params, finding);
  execution.span(0.95, 1).enter("distances");
  if (on_cuda && codes.lossless() && !by_ggnn)
    write_lists(lists, k, neighbors, distances, execution);
  else
    rescore_lists(dataset, lists.graph, k, neighbors, distances, execution);
}

/// The method, after defaults and the metric's limits.
int32_t knn_method(const ann_knn_params& params, int32_t metric, uint64_t rows, int32_t device) {
  if (params.method < 0 || params.method > ANN_KNN_GGNN || params.method == ANN_KNN_GIVEN)
    fail(ANN_INVALID_ARGUMENT, "params.method is %d, allowed are 0 to %d, %d and %d", params.method,
         ANN_KNN_EXACT, ANN_KNN_CELLS, ANN_KNN_GGNN);
  if (params.method == ANN_KNN_GGNN && params.k > kGgnnNeighborsMax)
    fail(ANN_LIMIT, "params.k is %u, method GGNN finds lists of at most %u", params.k, kGgnnNeighborsMax);
  if (metric == ANN_METRIC_INNER_PRODUCT && params.method == ANN_KNN_GGNN)
    fail(ANN_UNSUPPORTED,
         "params.method is GGNN, which needs a metric; for inner product use EXACT, CELLS or NN_DESCENT");
  if (metric == ANN_METRIC_INNER_PRODUCT && params.method == ANN_KNN_CELLS && device >= ANN_DEVICE_CUDA)
    fail(ANN_UNSUPPORTED,
         "params.method is CELLS, by inner product of the CPU; on device %d use EXACT or NN_DESCENT", device);
  const int32_t method = metric == ANN_METRIC_INNER_PRODUCT && params.method == ANN_KNN_AUTO
                             ? int32_t{ANN_KNN_EXACT}
                         : params.method != ANN_KNN_AUTO ? params.method
                         : rows <= kExactKnnRows         ? int32_t{ANN_KNN_EXACT}
                                                         : int32_t{ANN_KNN_CELLS};
  // NN-Descent needs rows that do not know each other.
  return knn_method_for(rows, std::max(params.k, kListLeast), method);
}

}  // namespace

extern "C" {

ann_status ann_build(ann_index* index, const ann_matrix* rows, const uint64_t* ids,
                     const ann_build_params* params, ann_monitor* monitor, ann_error* error) {
  return guarded(error, [&] {
    Index& handle = checked(index, "index").index;
    const ann_index_params& shape = handle.shape();
    const MatrixView given_rows = read_vectors(rows, "rows");
    check_same_dim(given_rows.dim, shape.dim, "rows");
    const ann_build_params given = read_struct(params, "params", kBuildParamsNeeded, true);
    BuildPlan plan = plan_build(given, shape, given_rows.rows, handle.threads_max());
    if (plan.borrow && given_rows.on_device())
      fail(ANN_UNSUPPORTED,
           "params.rows_mode is BORROW, but rows lie on device %d; an index borrows host "
           "memory only",
           given_rows.space);
    MatrixView given_queries;
    if (given.calibration != nullptr) {
      given_queries = read_vectors(given.calibration, "params.calibration");
      const MatrixView& calibration = given_queries;
      plan.queries_given = calibration.rows;
      check_same_dim(calibration.dim, shape.dim, "params.calibration");
      const int32_t stored = shape.element != 0 ? shape.element : given_rows.element;
      if (!Dataset::comparable(calibration.element, stored))
        fail(ANN_INVALID_ARGUMENT, "params.calibration is %s, the index stores %s",
             element_name(calibration.element), element_name(stored));
    }
    // By inner product the host takes part in finding the edges.
    const bool stay = plan.graph != ANN_GRAPH_NONE && shape.metric != ANN_METRIC_INNER_PRODUCT &&
                      stay_on_device(given_rows, plan.device, shape.element);
    check_budget(shape, given_rows, ids != nullptr, plan, stay);
    Index::BuildRight right(handle);
    const Execution execution{handle.memory(), plan.threads, begin_monitor(monitor)};
    const HostMatrix matrix(stay ? MatrixView() : given_rows, execution);
    const HostMatrix calibration(given_queries, execution);
    if (given.calibration != nullptr) check_finite(calibration.view(), execution);
    right.publish(build(shape, stay ? given_rows : matrix.view(), ids, plan,
                        given.calibration != nullptr ? &calibration.view() : nullptr, execution));
  });
}

ann_status ann_estimate(const ann_index_params* shape, uint64_t rows, int32_t element,
                        const ann_build_params* params, ann_plan* out, ann_error* error) {
  return guarded(error, [&] {
    ann_index_params checked_shape = read_struct(shape, "shape", 2 * sizeof(uint32_t), false);
    check_shape(&checked_shape);
    if (!is_element(element))
      fail(ANN_INVALID_ARGUMENT, "element is %d, allowed are %d (f32) to %d (u8)", element, ANN_F32, ANN_U8);
    ann_build_params given = read_struct(params, "params", kBuildParamsNeeded, true);
    check_output(out, "out");
    // The graph of the caller need not exist to be planned with.
    static const uint32_t kSomeGraph = 0;
    if (given.knn == ANN_KNN_GIVEN && given.knn_graph == nullptr) given.knn_graph = &kSomeGraph;
    BuildPlan plan = plan_build(given, checked_shape, rows, 0);
    if (given.calibration != nullptr)
      plan.queries_given = read_struct(given.calibration, "params.calibration",
                                       offsetof(ann_matrix, rows) + sizeof(uint64_t), false)
                               .rows;
    ann_plan needed = ANN_PLAN_INIT;
    if (checked_shape.element != 0 && !Dataset::storable(element, checked_shape.element))
      fail(ANN_UNSUPPORTED, "element is %s, which cannot be stored as shape.element, %s",
           element_name(element), element_name(checked_shape.element));
    const int32_t stored = checked_shape.element != 0 ? checked_shape.element : element;
    estimate_build(checked_shape, rows, stored, true, plan, &needed);
    write_struct(needed, out);
  });
}

ann_status ann_knn_graph(const ann_context* context, const ann_matrix* rows, const ann_knn_params* params,
                         uint32_t* neighbors, float* distances, ann_monitor* monitor, ann_error* error) {
  return guarded(error, [&] {
    const ContextSettings settings = read_context(context);
    const MatrixView given_rows = read_vectors(rows, "rows");
    const ann_knn_params given = read_struct(params, "params", 4 * sizeof(uint32_t), false);
    ann_index_params shape = ANN_INDEX_PARAMS_INIT;
    shape.dim = given_rows.dim;
    shape.metric = given.metric;
    check_shape(&shape);
    if (given.k == 0 || given.k > kKnnListMax)
      fail(given.k == 0 ? ANN_INVALID_ARGUMENT : ANN_LIMIT, "params.k is %u, allowed are 1 to %u", given.k,
           kKnnListMax);
    if (given.device < 0)
      fail(ANN_INVALID_ARGUMENT, "params.device is %d, allowed are 0 and more", given.device);
    if (given.reserved != 0)
      fail(ANN_INVALID_ARGUMENT, "params.reserved is %d, it must be 0", given.reserved);
    const int32_t device = choose_device(given.device);
    const int32_t method = knn_method(given, shape.metric, given_rows.rows, device);
    const NnDescentParams descent =
        complete_list_search(given.k, given.samples, given.iterations, given.convergence, given.seed);
    if (given_rows.rows > 0) check_given(neighbors, "neighbors");
    const Execution execution{settings.memory, thread_count(given.threads, settings.threads_max),
                              begin_monitor(monitor)};
    if (device >= ANN_DEVICE_CUDA) check_cuda_device(device);
    execution.enter("copy");
    // By inner product codes are not those of the metric, and the host measures their offsets.
    const bool stay = shape.metric != ANN_METRIC_INNER_PRODUCT &&
                      !by_rows(shape.metric, given_rows.element, method, device) &&
                      stay_on_device(given_rows, device, ANN_ELEMENT_AUTO);
    const HostMatrix matrix(stay ? MatrixView() : given_rows, execution);
    const MatrixView& found = stay ? given_rows : matrix.view();
    auto ingest = stay ? cuda::ingest_rows(found, shape.metric, execution) : nullptr;
    Dataset dataset(found, nullptr, shape.metric, ANN_ELEMENT_AUTO, false, execution);
    find_lists(dataset, std::move(ingest), method, descent, given.k, device, neighbors, distances, execution);
    execution.advance(1);
  });
}

}  // extern "C"
