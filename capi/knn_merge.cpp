// ann.h, section 11: merging k-NN graphs, and files of their lists.

#include "boundary.h"
#include "index/parameters.h"
#include "knn/find_neighbors.h"
#include "knn/merge.h"
#include "knn/merge_cuda.h"
#include "search/exact.h"
#include "search/exact_device.h"
#include "storage/knn_lists.h"

using namespace gannet;

namespace {

constexpr size_t kListsNeeded = offsetof(ann_knn_lists, distances) + sizeof(float*);

/// The struct of the caller, its sizes and pointers checked; zero metric is L2.
ann_knn_lists read_lists(const ann_knn_lists* given, const char* name) {
  ann_knn_lists lists = read_struct(given, name, kListsNeeded, false);
  if (lists.k == 0 || lists.k > ANN_DEGREE_MAX)
    fail(lists.k == 0 ? ANN_INVALID_ARGUMENT : ANN_LIMIT, "%s.k is %u, allowed are 1 to %u", name, lists.k,
         ANN_DEGREE_MAX);
  if (lists.rows > ANN_ROWS_MAX)
    fail(ANN_LIMIT, "%s.rows is %llu, at most %u are allowed", name,
         static_cast<unsigned long long>(lists.rows), ANN_ROWS_MAX);
  if (lists.metric < 0 || lists.metric > ANN_METRIC_COSINE)
    fail(ANN_INVALID_ARGUMENT, "%s.metric is %d, allowed are 0 to %d", name, lists.metric, ANN_METRIC_COSINE);
  if (lists.metric == 0) lists.metric = ANN_METRIC_L2;
  if (lists.ids == nullptr && lists.first_id > UINT64_MAX - lists.rows)
    fail(ANN_INVALID_ARGUMENT, "%s.first_id is %llu, with %llu rows ids would reach ANN_ID_NONE", name,
         static_cast<unsigned long long>(lists.first_id), static_cast<unsigned long long>(lists.rows));
  if (lists.rows == 0) return lists;
  if (lists.neighbors == nullptr) fail(ANN_INVALID_ARGUMENT, "%s.neighbors is null", name);
  if (lists.distances == nullptr) fail(ANN_INVALID_ARGUMENT, "%s.distances is null", name);
  return lists;
}

GivenLists view_of(const ann_knn_lists& lists, const char* name) {
  return {
      name,           static_cast<uint32_t>(lists.rows), lists.k, lists.first_id, lists.ids, lists.neighbors,
      lists.distances};
}

/// One of the two graphs to be merged.
struct Side {
  Side(const ann_matrix* matrix, const ann_knn_lists* given, const char* rows_name, const char* name,
       int32_t metric)
      : rows(read_vectors(matrix, rows_name)), lists(view_of(read_lists(given, name), name)) {
    if (rows.rows != lists.rows)
      fail(ANN_INVALID_ARGUMENT, "%s.rows is %u, %s.rows is %llu; they must be equal", name, lists.rows,
           rows_name, static_cast<unsigned long long>(rows.rows));
    const int32_t measured = read_lists(given, name).metric;
    if (measured != metric)
      fail(ANN_INVALID_ARGUMENT, "%s.metric is %d, params.metric is %d; they must be equal", name, measured,
           metric);
  }
  MatrixView rows;
  GivenLists lists;
};

struct MergePlan {
  uint32_t k;
  int32_t metric;
  int32_t method;
  int32_t device;
  uint32_t threads;
  NnDescentParams descent;
};

MergePlan read_merge(const ann_knn_params* params, uint32_t threads_max) {
  const ann_knn_params given = read_struct(params, "params", 4 * sizeof(uint32_t), false);
  if (given.metric < 0 || given.metric > ANN_METRIC_COSINE)
    fail(ANN_INVALID_ARGUMENT, "params.metric is %d, allowed are 0 to %d", given.metric, ANN_METRIC_COSINE);
  if (given.method < 0 || given.method > ANN_KNN_EXACT)
    fail(ANN_INVALID_ARGUMENT, "params.method is %d, allowed are %d (AUTO), %d (NN_DESCENT) and %d (EXACT)",
         given.method, ANN_KNN_AUTO, ANN_KNN_NN_DESCENT, ANN_KNN_EXACT);
  if (given.k == 0 || given.k > ANN_DEGREE_MAX)
    fail(given.k == 0 ? ANN_INVALID_ARGUMENT : ANN_LIMIT, "params.k is %u, allowed are 1 to %u", given.k,
         ANN_DEGREE_MAX);
  if (given.device < 0)
    fail(ANN_INVALID_ARGUMENT, "params.device is %d, allowed are 0 and more", given.device);
  if (given.reserved != 0) fail(ANN_INVALID_ARGUMENT, "params.reserved is %d, it must be 0", given.reserved);
  return {given.k,
          given.metric == 0 ? int32_t{ANN_METRIC_L2} : given.metric,
          given.method,
          choose_device(given.device),
          thread_count(given.threads, threads_max),
          complete_list_search(given.k, given.samples, given.iterations, given.convergence, given.seed)};
}

/// The rows of both sets, one set after the other.
Dataset join_rows(const Side& first, const Side& second, int32_t metric, const Execution& execution) {
  const HostMatrix first_host(first.rows, execution);
  const HostMatrix second_host(second.rows, execution);
  const uint64_t row_bytes = uint64_t{first.rows.dim} * element_bytes(first.rows.element);
  const uint64_t count = first.rows.rows + second.rows.rows;
  Array<uint8_t> joined(execution.memory, checked_product(count, row_bytes));
  Array<uint64_t> ids(execution.memory, ids_follow(first.lists, second.lists) ? 0 : count);
  const uint64_t split = first.rows.rows;
  parallel_for(execution, count, items_per_task(row_bytes, 4096),
               [&](uint64_t begin, uint64_t end, uint32_t) {
                 for (uint64_t row = begin; row < end; ++row) {
                   const bool in_first = row < split;
                   const uint64_t own = in_first ? row : row - split;
                   std::memcpy(joined.data() + row * row_bytes,
                               (in_first ? first_host : second_host).view().row(own), row_bytes);
                   if (!ids.empty()) ids[row] = (in_first ? first : second).lists.id(own);
                 }
               });
  const MatrixView rows{joined.data(), count, first.rows.dim, first.rows.element, row_bytes, 0};
  check_finite(rows, execution);
  return Dataset(rows, ids.empty() ? nullptr : ids.data(), metric, ANN_ELEMENT_AUTO, false, execution);
}

/// For some rows of one set the nearest of the other, by comparing every pair.
void compare_across(const Dataset& both, uint32_t from, uint32_t from_count, uint32_t to, uint32_t to_count,
                    int32_t device, AcrossLists& across, const Execution& execution) {
  const RowsView& stored = both.view();
  const auto part = [&](uint64_t first, uint64_t count) {
    return MatrixView{
        both.row(static_cast<uint32_t>(first)), count, both.dim(), both.element(), stored.stride, 0};
  };
  const Dataset others(part(to, to_count), nullptr, both.metric(), ANN_ELEMENT_AUTO, true, execution);
  const bool on_cuda = device >= ANN_DEVICE_CUDA;
  const uint32_t k = across.k;
  const uint64_t piece_max = std::min<uint64_t>(on_cuda ? 65536 : 4096, from_count);
  Array<uint64_t> found(execution.memory, piece_max * k);
  for (uint64_t first = 0; first < from_count; first += piece_max) {
    const uint64_t count = std::min<uint64_t>(piece_max, from_count - first);
    const Execution piece = execution.span(static_cast<double>(first) / from_count,
                                           static_cast<double>(first + count) / from_count);
    const QueryBlock queries(others, part(from + first, count), piece);
    const ResultsView results{k, found.data(), across.distances.data() + (from + first) * k, nullptr,
                              nullptr};
    if (on_cuda)
      search_exact_on_device(others, queries, nullptr, device, results, piece);
    else
      search_exact(others, queries, {}, results, piece);
    for (uint64_t i = 0; i < count * k; ++i)
      across.rows[(from + first) * k + i] =
          found[i] == ANN_ID_NONE ? kNoRow : to + static_cast<uint32_t>(found[i]);
  }
}

AcrossLists compare_all_across(const Dataset& both, uint32_t split, uint32_t k, int32_t device,
                               const Execution& execution) {
  const size_t places = checked_product(both.rows(), k);
  AcrossLists across{k, Array<uint32_t>(execution.memory, places), Array<float>(execution.memory, places)};
  const uint32_t rest = both.rows() - split;
  compare_across(both, 0, split, split, rest, device, across, execution.span(0, 0.5));
  compare_across(both, split, rest, 0, split, device, across, execution.span(0.5, 1));
  return across;
}

/// The neighbours that rows find in the other set.
AcrossLists find_across(const Dataset& both, const KnownLists& known, const MergePlan& plan,
                        const Execution& execution) {
  const uint32_t split = known.first.rows;
  const uint32_t smaller = std::min(split, known.second.rows);
  if (smaller == 0) return {};
  const NnDescentParams& descent = plan.descent;
  const bool by_pairs = plan.method == ANN_KNN_EXACT || plan.metric == ANN_METRIC_INNER_PRODUCT ||
                        too_few_to_descend(smaller, descent.k);
  if (by_pairs) return compare_all_across(both, split, plan.k, plan.device, execution);
  const Codes codes(both, descent.seed, execution);
  const Array<uint32_t> halves = known.halves(descent.k, execution);
  const TwoSets sets{split, descent.k - descent.k / 2, halves.data()};
  const Execution descending = execution.span(0, 0.95);
  const KnnGraph found = plan.device >= ANN_DEVICE_CUDA
                             ? cuda::descend_across(codes, descent, sets, plan.device, descending)
                             : nn_descent(codes, descent, descending, sets);
  return measure_across(both, split, found, execution.span(0.95, 1));
}

/// Where merged lists go, checked against the result's shape.
ann_knn_lists read_merged(const ann_knn_lists* given, const MergePlan& plan, const GivenLists& first,
                          const GivenLists& second) {
  const ann_knn_lists merged = read_lists(given, "merged");
  if (merged.k != plan.k)
    fail(ANN_INVALID_ARGUMENT, "merged.k is %u, params.k is %u; they must be equal", merged.k, plan.k);
  const uint64_t count = uint64_t{first.rows} + second.rows;
  if (merged.rows != count)
    fail(ANN_INVALID_ARGUMENT, "merged.rows is %llu, the two sets have %llu rows",
         static_cast<unsigned long long>(merged.rows), static_cast<unsigned long long>(count));
  if (merged.ids == nullptr && count > 0 && !ids_follow(first, second))
    fail(ANN_INVALID_ARGUMENT,
         "merged.ids is null, but the ids of the two sets are not numbers in a row; give [rows] places for "
         "them");
  return merged;
}

}  // namespace

extern "C" {

ann_status ann_knn_merge(const ann_context* context, const ann_matrix* first_rows,
                         const ann_knn_lists* first_lists, const ann_matrix* second_rows,
                         const ann_knn_lists* second_lists, const ann_knn_params* params,
                         ann_knn_lists* merged, ann_monitor* monitor, ann_error* error) {
  return guarded(error, [&] {
    const ContextSettings settings = read_context(context);
    const MergePlan plan = read_merge(params, settings.threads_max);
    const Side first(first_rows, first_lists, "first_rows", "first_lists", plan.metric);
    const Side second(second_rows, second_lists, "second_rows", "second_lists", plan.metric);
    if (first.rows.dim != second.rows.dim)
      fail(ANN_INVALID_ARGUMENT, "second_rows.dim is %u, first_rows.dim is %u; they must be equal",
           second.rows.dim, first.rows.dim);
    if (first.rows.element != second.rows.element)
      fail(ANN_INVALID_ARGUMENT, "second_rows.element is %s, first_rows.element is %s; they must be equal",
           element_name(second.rows.element), element_name(first.rows.element));
    if (first.rows.rows + second.rows.rows > ANN_ROWS_MAX)
      fail(ANN_LIMIT, "first_rows and second_rows have %llu rows together, at most %u are allowed",
           static_cast<unsigned long long>(first.rows.rows + second.rows.rows), ANN_ROWS_MAX);
    const ann_knn_lists out = read_merged(merged, plan, first.lists, second.lists);
    if (plan.device >= ANN_DEVICE_CUDA) check_cuda_device(plan.device);
    const Execution execution{settings.memory, plan.threads, begin_monitor(monitor)};
    execution.enter("copy");
    check_lists(first.lists, execution);
    check_lists(second.lists, execution);
    const Dataset both = join_rows(first, second, plan.metric, execution);
    const KnownLists known(first.lists, second.lists, both, execution);
    const Execution finding = execution.span(0.1, 0.9);
    finding.enter("k-NN graph");
    const AcrossLists across = find_across(both, known, plan, finding);
    execution.span(0.9, 1).enter("merge");
    join_lists(known, across, plan.k, out.neighbors, out.distances, execution);
    for (uint32_t row = 0; out.ids != nullptr && row < both.rows(); ++row) out.ids[row] = known.id_of(row);
    ann_knn_lists told = out;
    told.first_id = out.ids == nullptr ? first.lists.first_id : 0;
    told.metric = plan.metric;
    told.has_ids = out.ids != nullptr ? 1 : 0;
    write_struct(told, merged);
    execution.advance(1);
  });
}

ann_status ann_knn_save(const ann_context* context, const ann_knn_lists* lists, const char* path,
                        const ann_save_params* params, ann_monitor* monitor, ann_error* error) {
  return guarded(error, [&] {
    const ContextSettings settings = read_context(context);
    const ann_knn_lists given = read_lists(lists, "lists");
    check_given(path, "path");
    const SavePlan plan = read_save_params(params, settings.threads_max);
    const Execution execution{settings.memory, plan.threads, begin_monitor(monitor)};
    save_lists(view_of(given, "lists"), given.metric, path, plan.sync, *settings.files, execution);
  });
}

ann_status ann_knn_load(const ann_context* context, const char* path, ann_knn_lists* lists,
                        ann_monitor* monitor, ann_error* error) {
  return guarded(error, [&] {
    const ContextSettings settings = read_context(context);
    check_given(path, "path");
    ann_knn_lists given = read_struct(lists, "lists", kListsNeeded, false);
    ListsFile file(path, *settings.files);
    const ListsShape& shape = file.shape();
    if (given.neighbors != nullptr) {
      if (given.rows != shape.rows)
        fail(ANN_INVALID_ARGUMENT, "lists.rows is %llu, the file has %llu",
             static_cast<unsigned long long>(given.rows), static_cast<unsigned long long>(shape.rows));
      if (given.k != shape.k) fail(ANN_INVALID_ARGUMENT, "lists.k is %u, the file has %u", given.k, shape.k);
      if (given.distances == nullptr) fail(ANN_INVALID_ARGUMENT, "lists.distances is null");
      if (given.ids == nullptr && shape.has_ids)
        fail(ANN_INVALID_ARGUMENT, "lists.ids is null, but the file has ids; give [rows] places for them");
      const Execution execution{settings.memory, thread_count(0, settings.threads_max),
                                begin_monitor(monitor)};
      file.read(given.ids, given.neighbors, given.distances, execution);
    }
    given.rows = shape.rows;
    given.k = shape.k;
    given.metric = shape.metric;
    given.first_id = shape.first_id;
    given.has_ids = shape.has_ids ? 1 : 0;
    write_struct(given, lists);
  });
}

}  // extern "C"
