// ann.h, section 10: searches.

#include <array>

#include "backend/devices.h"
#include "boundary.h"
#include "index/snapshot.h"

using namespace gannet;

namespace {

void check_apart(const CallerMemory& a, const CallerMemory& b) {
  if (a.begin == nullptr || b.begin == nullptr || a.bytes == 0 || b.bytes == 0) return;
  const uintptr_t first = reinterpret_cast<uintptr_t>(a.begin);
  const uintptr_t second = reinterpret_cast<uintptr_t>(b.begin);
  if (first < second + b.bytes && second < first + a.bytes)
    fail(ANN_INVALID_ARGUMENT, "%s and %s overlap", a.name, b.name);
}

template <class T>
CallerMemory memory_of(const T* begin, uint64_t count, const char* name) {
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(count, uint64_t{sizeof(T)}, &bytes) || bytes > SIZE_MAX / 2)
    fail(ANN_LIMIT, "%s has %llu items, more than the address space", name,
         static_cast<unsigned long long>(count));
  return {begin, bytes, name};
}

/// The memory of queries and results.
using SearchMemory = std::array<CallerMemory, 5>;

/// The caller's buffers, checked against the queries and each other.
ResultsView read_results(const ann_results* given, const MatrixView& queries, ann_results* out,
                         SearchMemory* memory) {
  *out = read_struct(given, "results", offsetof(ann_results, distance_count), false);
  if (out->k == 0) fail(ANN_INVALID_ARGUMENT, "results.k is 0, at least 1 is allowed");
  if (out->rows != queries.rows)
    fail(ANN_INVALID_ARGUMENT, "results.rows is %llu, queries.rows is %llu; they must be equal",
         static_cast<unsigned long long>(out->rows), static_cast<unsigned long long>(queries.rows));
  if (out->rows > 0) check_given(out->ids, "results.ids");
  if (out->reserved != 0) fail(ANN_INVALID_ARGUMENT, "results.reserved is %d, it must be 0", out->reserved);
  if (out->reserved_2 != 0)
    fail(ANN_INVALID_ARGUMENT, "results.reserved_2 is %u, it must be 0", out->reserved_2);
  check_space(out->space, "results");
  if (out->space != queries.space)
    fail(ANN_INVALID_ARGUMENT, "results.space is %d, queries.space is %d; they must be equal", out->space,
         queries.space);
  uint64_t places = 0;
  if (__builtin_mul_overflow(out->rows, uint64_t{out->k}, &places)) places = UINT64_MAX;
  *memory = {
      memory_of(queries.data, bytes_of(queries), "queries.data"),
      memory_of(out->ids, places, "results.ids"),
      memory_of(out->distances, places, "results.distances"),
      memory_of(out->counts, out->rows, "results.counts"),
      memory_of(out->status, out->rows, "results.status"),
  };
  for (const CallerMemory& a : *memory) {
    for (const CallerMemory& b : *memory) {
      if (&a < &b) check_apart(a, b);
    }
  }
  return {out->k, out->ids, out->distances, out->counts, out->status};
}

void check_queries(const MatrixView& queries, const Segment& segment, uint32_t dim) {
  if (queries.dim != dim) fail(ANN_INVALID_ARGUMENT, "queries.dim is %u, the index has %u", queries.dim, dim);
  if (!Dataset::comparable(queries.element, segment.dataset.element()))
    fail(ANN_INVALID_ARGUMENT, "queries.element is %s, an index of %s takes %s only",
         element_name(queries.element), element_name(segment.dataset.element()),
         element_name(segment.dataset.element()));
}

/// Two lists with the number of warps that the caller gives, or that a deprecated name stands for.
void complete_two_lists(ann_search_params* params) {
  const int32_t name = params->procedure;
  uint32_t& warps = params->warps_per_query;
  const uint32_t named = name == ANN_SEARCH_BLOCK ? 8 : name == ANN_SEARCH_WIDE_BLOCK ? 16 : 0;
  if (named == 0 && name != ANN_SEARCH_TWO_LISTS) return;
  if (warps != 0 && warps != 1 && warps != 8 && warps != 16)
    fail(ANN_INVALID_ARGUMENT, "params.warps_per_query is %u, allowed are 0, 1, 8 and 16", warps);
  if (named != 0 && warps != 0 && warps != named)
    fail(ANN_INVALID_ARGUMENT,
         "params.warps_per_query is %u, it must be 0 or %u where procedure is %d (%d with so many)", warps,
         named, name, int{ANN_SEARCH_TWO_LISTS});
  params->procedure = ANN_SEARCH_TWO_LISTS;
  if (warps == 0) warps = std::max(1u, named);
}

/// Checked; of an exact search, which ignores the procedure that it names, the procedure is EXACT.
ann_search_params read_params(const ann_search_params* params, bool exact = false) {
  ann_search_params given = read_struct(params, "params", 2 * sizeof(uint32_t), true);
  if (exact) given.procedure = ANN_SEARCH_EXACT;
  complete_two_lists(&given);
  if (given.procedure != ANN_SEARCH_AUTO && find_procedure(given.procedure) == nullptr)
    fail(ANN_INVALID_ARGUMENT, "params.procedure is %d, allowed are 0 to %d", given.procedure,
         procedures().back()->id);
  if (given.device < 0)
    fail(ANN_INVALID_ARGUMENT, "params.device is %d, allowed are 0 and more", given.device);
  if (given.reserved != 0) fail(ANN_INVALID_ARGUMENT, "params.reserved is %d, it must be 0", given.reserved);
  if (given.reserved_2 != 0)
    fail(ANN_INVALID_ARGUMENT, "params.reserved_2 is %d, it must be 0", given.reserved_2);
  if (given.occlusion_max > 64)
    fail(ANN_INVALID_ARGUMENT, "params.occlusion_max is %u, allowed are 0 to 64", given.occlusion_max);
  return given;
}

/// Where a search runs: where the caller says, and where its memory lies if that is a device.
int32_t read_device(const ann_search_params& params, const MatrixView& queries, const SearchMemory& memory) {
  if (!queries.on_device()) {
    if (params.stream != nullptr)
      fail(ANN_INVALID_ARGUMENT, "params.stream is given, but queries and results lie in host memory");
    return choose_device(params.device);
  }
  if (params.device != ANN_DEVICE_AUTO && params.device != queries.space)
    fail(ANN_INVALID_ARGUMENT, "params.device is %d, but queries and results lie on device %d", params.device,
         queries.space);
  check_on_device(memory, params.stream, queries.space);
  if (params.stream == nullptr && queries.rows != 0) wait_for_default_streams(queries.space);
  return queries.space;
}

ann_status search(const ann_index* index, const ann_matrix* queries, const ann_search_params* params,
                  bool exact, ann_results* results, ann_monitor* monitor, ann_error* error) {
  return guarded(error, [&] {
    const Index& handle = checked(index, "index").index;
    const MatrixView block = read_matrix(queries, "queries");
    const ann_search_params given = read_params(params, exact);
    ann_results buffers;
    SearchMemory memory;
    const ResultsView view = read_results(results, block, &buffers, &memory);
    const float recall = exact ? 1.0f : check_search(1, given.recall);
    if (!exact && given.beam > ANN_BEAM_MAX)
      fail(ANN_LIMIT, "params.beam is %u, at most %u is allowed", given.beam, ANN_BEAM_MAX);
    const Index::Call call(handle);
    const Snapshot& snapshot = snapshot_of(call);
    check_queries(block, segment_of(call), handle.shape().dim);
    const int32_t device = read_device(given, block, memory);
    if (device > ANN_DEVICE_CPU && buffers.rows > UINT32_MAX)
      fail(ANN_LIMIT, "queries.rows is %llu, at most %u are answered on a device",
           static_cast<unsigned long long>(buffers.rows), UINT32_MAX);
    const ThreadLimits limits{given.threads, handle.threads_max()};
    Execution execution{handle.memory(), 1, begin_monitor(monitor)};
    if (block.rows > 1)
      execution.threads = thread_count(limits.wanted, limits.cap);
    else
      execution.shared_work = limits;
    execution.enter("search");
    SearchCounts counts;
    SearchReport report;
    search_snapshot(snapshot, given, recall, device, {block, view, given.stream, {}}, execution, &counts,
                    &report);
    execution.advance(1);
    buffers.distance_count = counts.distances;
    buffers.expansion_count = counts.expansions;
    buffers.procedure = report.procedure;
    buffers.recall = static_cast<float>(report.recall);
    buffers.warps_per_query = report.warps;
    write_struct(buffers, results);
  });
}

}  // namespace

extern "C" {

ann_status ann_search_batch(const ann_index* index, const ann_matrix* queries,
                            const ann_search_params* params, ann_results* results, ann_monitor* monitor,
                            ann_error* error) {
  return search(index, queries, params, false, results, monitor, error);
}

ann_status ann_search_exact(const ann_index* index, const ann_matrix* queries,
                            const ann_search_params* params, ann_results* results, ann_monitor* monitor,
                            ann_error* error) {
  return search(index, queries, params, true, results, monitor, error);
}

ann_status ann_search_estimate(const ann_index* index, uint64_t queries, uint32_t k,
                               const ann_search_params* params, ann_search_forecast* out, ann_error* error) {
  return guarded(error, [&] {
    const Index& handle = checked(index, "index").index;
    const ann_search_params given = read_params(params);
    ann_search_forecast forecast = read_struct(out, "out", sizeof(uint32_t), false);
    if (k == 0) fail(ANN_INVALID_ARGUMENT, "k is 0, at least 1 is allowed");
    const float recall = check_search(1, given.recall);
    if (given.beam > ANN_BEAM_MAX)
      fail(ANN_LIMIT, "params.beam is %u, at most %u is allowed", given.beam, ANN_BEAM_MAX);
    const Index::Call call(handle);
    const Snapshot& snapshot = snapshot_of(call);
    const int32_t device = choose_device(given.device);
    const Execution execution{handle.memory(), thread_count(given.threads, handle.threads_max()), nullptr};
    const bool on_device = given.stream != nullptr;
    if (on_device && device < ANN_DEVICE_CUDA)
      fail(ANN_INVALID_ARGUMENT, "params.stream is given, but params.device is %d, which is no CUDA device",
           given.device);
    const SearchReport report =
        forecast_search(snapshot, given, recall, device, on_device, queries, k, execution);
    forecast.procedure = report.procedure;
    forecast.recall = static_cast<float>(report.recall);
    forecast.warps_per_query = report.warps;
    forecast.distances = report.distances;
    forecast.expansions = report.expansions;
    write_struct(forecast, out);
  });
}

}  // extern "C"
