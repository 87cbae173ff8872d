// ann.h, section 10: searches.

#include "backend/devices.h"
#include "boundary.h"
#include "index/cagra_search.h"
#include "index/search_work.h"
#include "search/exact.h"
#include "search/exact_device.h"

using namespace gannet;

namespace {

struct Range {
  const uint8_t* begin;
  uint64_t bytes;
  const char* name;
};

void check_apart(const Range& a, const Range& b) {
  if (a.begin == nullptr || b.begin == nullptr || a.bytes == 0 || b.bytes == 0) return;
  const uintptr_t first = reinterpret_cast<uintptr_t>(a.begin);
  const uintptr_t second = reinterpret_cast<uintptr_t>(b.begin);
  if (first < second + b.bytes && second < first + a.bytes)
    fail(ANN_INVALID_ARGUMENT, "%s and %s overlap", a.name, b.name);
}

template <class T>
Range range_of(const T* begin, uint64_t count, const char* name) {
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(count, uint64_t{sizeof(T)}, &bytes) || bytes > SIZE_MAX / 2)
    fail(ANN_LIMIT, "%s has %llu items, more than the address space", name,
         static_cast<unsigned long long>(count));
  return {reinterpret_cast<const uint8_t*>(begin), bytes, name};
}

/// The caller's buffers, checked against the queries and each other.
ResultsView read_results(const ann_results* given, const MatrixView& queries, ann_results* out) {
  *out = read_struct(given, "results", offsetof(ann_results, distance_count), false);
  if (out->k == 0) fail(ANN_INVALID_ARGUMENT, "results.k is 0, at least 1 is allowed");
  if (out->rows != queries.rows)
    fail(ANN_INVALID_ARGUMENT, "results.rows is %llu, queries.rows is %llu; they must be equal",
         static_cast<unsigned long long>(out->rows), static_cast<unsigned long long>(queries.rows));
  if (out->rows > 0) check_given(out->ids, "results.ids");
  if (out->reserved != 0)
    fail(ANN_INVALID_ARGUMENT, "results.reserved is %d, it must be 0", out->reserved);
  check_space(out->space, "results");
  if (out->space != queries.space)
    fail(ANN_INVALID_ARGUMENT, "results.space is %d, queries.space is %d; they must be equal",
         out->space, queries.space);
  uint64_t places = 0;
  if (__builtin_mul_overflow(out->rows, uint64_t{out->k}, &places)) places = UINT64_MAX;
  const Range ranges[] = {
      range_of(queries.data, queries.rows * queries.stride, "queries.data"),
      range_of(out->ids, places, "results.ids"),
      range_of(out->distances, places, "results.distances"),
      range_of(out->counts, out->rows, "results.counts"),
      range_of(out->status, out->rows, "results.status"),
  };
  for (const Range& a : ranges) {
    for (const Range& b : ranges) {
      if (&a < &b) check_apart(a, b);
    }
  }
  for (const Range& range : ranges) {
    if (out->space != 0 && range.begin != queries.data)
      check_device_memory(range.begin, range.bytes, out->space, range.name);
  }
  return {out->k, out->ids, out->distances, out->counts, out->status};
}

void check_queries(const MatrixView& queries, const Built& built, uint32_t dim) {
  if (queries.dim != dim)
    fail(ANN_INVALID_ARGUMENT, "queries.dim is %u, the index has %u", queries.dim, dim);
  if (!Dataset::comparable(queries.element, built.dataset.element()))
    fail(ANN_INVALID_ARGUMENT, "queries.element is %s, an index of %s takes %s only",
         element_name(queries.element), element_name(built.dataset.element()),
         element_name(built.dataset.element()));
}

/// Warps that walk for a query where the caller names such a procedure, else 0.
uint32_t warps_of(int32_t procedure) {
  switch (procedure) {
    case ANN_SEARCH_WARP:
      return 1;
    case ANN_SEARCH_BLOCK:
      return 8;
    case ANN_SEARCH_WIDE_BLOCK:
      return 16;
    default:
      return 0;
  }
}

ann_search_params read_params(const ann_search_params* params) {
  const ann_search_params given = read_struct(params, "params", 2 * sizeof(uint32_t), true);
  if (given.procedure < 0 || given.procedure > ANN_SEARCH_WIDE_BLOCK)
    fail(ANN_INVALID_ARGUMENT, "params.procedure is %d, allowed are 0 to %d", given.procedure,
         ANN_SEARCH_WIDE_BLOCK);
  if (given.device < 0)
    fail(ANN_INVALID_ARGUMENT, "params.device is %d, allowed are 0 and more", given.device);
  if (given.reserved != 0)
    fail(ANN_INVALID_ARGUMENT, "params.reserved is %d, it must be 0", given.reserved);
  return given;
}

/// Where a search runs: where the caller says, and where its memory lies if that is a device.
int32_t read_device(const ann_search_params& params, const MatrixView& queries) {
  if (!queries.on_device()) {
    if (params.stream != nullptr)
      fail(ANN_INVALID_ARGUMENT, "params.stream is given, but queries and results lie in host memory");
    return choose_device(params.device);
  }
  if (params.device != ANN_DEVICE_AUTO && params.device != queries.space)
    fail(ANN_INVALID_ARGUMENT, "params.device is %d, but queries and results lie on device %d",
         params.device, queries.space);
  if (params.stream != nullptr) check_stream(params.stream, queries.space);
  return queries.space;
}

void answer_exactly(const Built& built, const MatrixView& queries, int32_t device,
                    const ResultsView& results, const Execution& execution, SearchCounts* counts) {
  counts->distances = queries.rows * built.dataset.rows();
  if (device >= ANN_DEVICE_CUDA) check_cuda_device(device);
  const QueryBlock block(built.dataset, queries, execution);
  if (device < ANN_DEVICE_CUDA)
    return search_exact(built.dataset, block, nullptr, results, execution);
  const auto placement = built.placements.find(device - ANN_DEVICE_CUDA);
  search_exact_on_device(built.dataset, block, nullptr, device, results, execution,
                         placement != nullptr ? placement->index.get() : nullptr);
}

/// The same for queries and results on a device.
void answer_exactly_there(const Built& built, const DeviceBatch& batch, const Execution& execution,
                          SearchCounts* counts) {
  if (batch.stream == nullptr) counts->distances = batch.queries.rows * built.dataset.rows();
  search_exact_on_device(built, batch, execution);
}

/// The beam that the caller asked for, 0: none.
uint32_t read_beam(const ann_search_params& params, uint32_t k, uint32_t beam_max) {
  if (params.beam != 0 && params.beam < k)
    fail(ANN_INVALID_ARGUMENT, "params.beam is %u, at least k = %u is needed", params.beam, k);
  if (params.beam > beam_max)
    fail(ANN_LIMIT, "params.beam is %u, at most %u is allowed on a CUDA device", params.beam,
         beam_max);
  return params.beam;
}

/// On a device, or by comparing with every row there where the recall needs too long a beam.
void answer_by_graph_on_cuda(const Built& built, const MatrixView& queries,
                             const ann_search_params& params, int32_t device, float recall,
                             const ResultsView& results, const Execution& execution,
                             SearchCounts* counts) {
  const uint32_t warps = warps_of(params.procedure);
  if (warps != 0 && params.beam != 0)
    fail(ANN_INVALID_ARGUMENT, "params.beam is %u, it must be 0 where procedure is %d, which has two lists",
         params.beam, params.procedure);
  const DeviceRequest request = {device - ANN_DEVICE_CUDA,
                                 read_beam(params, results.k, kDeviceBeamMax), recall,
                                 params.procedure == ANN_SEARCH_BEST_FIRST,
                                 warps};
  const DeviceBatch batch = {queries, results, params.stream};
  if (queries.on_device()) {
    if (!search_on_device(built, request, batch, execution, counts))
      answer_exactly_there(built, batch, execution, counts);
    return;
  }
  if (!search_on_device(built, request, queries, results, execution, counts))
    answer_exactly(built, queries, device, results, execution, counts);
}

void answer_as_cagra(const Built& built, const MatrixView& queries, const ann_search_params& params,
                     int32_t device, float recall, const ResultsView& results,
                     const Execution& execution, SearchCounts* counts) {
  const CagraPlan plan = plan_cagra(built, params, queries.rows, results.k, recall, 0);
  if (device == ANN_DEVICE_CPU)
    return search_batch_cagra(built, queries, plan, results, execution, counts);
  DeviceRequest request;
  request.device = device - ANN_DEVICE_CUDA;
  request.recall = recall;
  request.cagra = &params;
  if (queries.on_device())
    search_on_device(built, request, DeviceBatch{queries, results, params.stream}, execution, counts);
  else
    search_on_device(built, request, queries, results, execution, counts);
}

/// Whether comparing all rows is the surer or the cheaper way to a recall than a walk with this beam.
bool compares_all(const Built& built, uint32_t k, float recall, uint32_t beam) {
  return !built.calibration.reaches(std::min(k, built.dataset.rows()), recall) ||
         walk_work(built.codes, built.graph, beam) > exact_work(built.dataset);
}

void answer_by_graph(const Built& built, const MatrixView& queries, const ann_search_params& params,
                     int32_t device, float recall, const ResultsView& results,
                     const Execution& execution, SearchCounts* counts) {
  if (!built.has_graph())
    fail(ANN_UNSUPPORTED, "params.procedure is %s, but the index has no graph",
         is_cagra(params.procedure)             ? "CAGRA"
         : warps_of(params.procedure) != 0 ? "a walk with two lists"
                                           : "BEST_FIRST");
  if (is_cagra(params.procedure))
    return answer_as_cagra(built, queries, params, device, recall, results, execution, counts);
  if (device > ANN_DEVICE_CPU)
    return answer_by_graph_on_cuda(built, queries, params, device, recall, results, execution,
                                   counts);
  if (warps_of(params.procedure) != 0)
    fail(ANN_UNSUPPORTED, "params.procedure is %d, which CUDA devices do; the search runs on the CPU",
         params.procedure);
  uint32_t beam = read_beam(params, results.k, ANN_BEAM_MAX);
  if (beam == 0) beam = built.calibration.beam(results.k, recall);
  // A beam longer than there are rows is never filled.
  beam = std::min(beam, std::max(1u, built.dataset.rows()));
  if (params.beam == 0 && params.procedure == ANN_SEARCH_AUTO && compares_all(built, results.k, recall, beam))
    return answer_exactly(built, queries, device, results, execution, counts);
  search_batch(built, queries, beam, results, execution, counts);
}

ann_status search(const ann_index* index, const ann_matrix* queries,
                  const ann_search_params* params, bool exact, ann_results* results,
                  ann_monitor* monitor, ann_error* error) {
  return guarded(error, [&] {
    const Index& handle = checked(index, "index").index;
    const MatrixView block = read_matrix(queries, "queries");
    const ann_search_params given = read_params(params);
    ann_results buffers;
    const ResultsView view = read_results(results, block, &buffers);
    const float recall = exact ? 1.0f : check_search(1, given.recall);
    if (!exact && given.beam > ANN_BEAM_MAX)
      fail(ANN_LIMIT, "params.beam is %u, at most %u is allowed", given.beam, ANN_BEAM_MAX);
    const Index::Call call(handle);
    const Built& built = built_of(call);
    check_queries(block, built, handle.shape().dim);
    const bool by_graph =
        !exact && given.procedure != ANN_SEARCH_EXACT &&
        (given.procedure != ANN_SEARCH_AUTO || built.has_graph());
    const int32_t device = read_device(given, block);
    if (device > ANN_DEVICE_CPU && buffers.rows > UINT32_MAX)
      fail(ANN_LIMIT, "queries.rows is %llu, at most %u are answered on a device",
           static_cast<unsigned long long>(buffers.rows), UINT32_MAX);
    const uint32_t threads = block.rows <= 1 ? 1 : thread_count(given.threads, handle.threads_max());
    const Execution execution{handle.memory(), threads, begin_monitor(monitor)};
    execution.enter("search");
    SearchCounts counts;
    if (by_graph && (results->k <= ANN_BEAM_MAX || built.dataset.rows() <= ANN_BEAM_MAX)) {
      answer_by_graph(built, block, given, device, recall, view, execution, &counts);
    } else if (by_graph) {
      fail(ANN_LIMIT, "results.k is %u, a search by graph finds at most %u; use ann_search_exact",
           buffers.k, ANN_BEAM_MAX);
    } else if (block.on_device()) {
      answer_exactly_there(built, {block, view, given.stream}, execution, &counts);
    } else {
      answer_exactly(built, block, device, view, execution, &counts);
    }
    execution.advance(1);
    buffers.distance_count = counts.distances;
    buffers.expansion_count = counts.expansions;
    write_struct(buffers, results);
  });
}

}  // namespace

extern "C" {

ann_status ann_search_batch(const ann_index* index, const ann_matrix* queries,
                            const ann_search_params* params, ann_results* results,
                            ann_monitor* monitor, ann_error* error) {
  return search(index, queries, params, false, results, monitor, error);
}

ann_status ann_search_exact(const ann_index* index, const ann_matrix* queries,
                            const ann_search_params* params, ann_results* results,
                            ann_monitor* monitor, ann_error* error) {
  return search(index, queries, params, true, results, monitor, error);
}

}  // extern "C"
