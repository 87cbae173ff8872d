// ann.h, section 8: life and state of an index.

#include <limits>

#include "boundary.h"

using namespace gannet;

namespace {

void describe_codes(const Codes& codes, ann_index_info* info) {
  const bool rows_serve = Codes::rows_serve(info->metric, info->element, false);
  info->codes = codes.scaled() != nullptr      ? ANN_CODES_SCALED
                : codes.projected() != nullptr ? ANN_CODES_PROJECTED
                : rows_serve                   ? ANN_CODES_ROWS
                : codes.wide()                 ? ANN_CODES_FLOATS
                                               : ANN_CODES_BYTES;
  if (codes.scaled() != nullptr) info->code_centres = codes.scaled()->cells();
  info->code_bytes = static_cast<uint32_t>(codes.walk_stride());
  const CodeOrder order = codes.order();
  info->code_first_ten = static_cast<float>(order.first_ten);
  info->code_first_twenty = static_cast<float>(order.first_twenty);
  info->code_worst_twenty = static_cast<float>(order.worst_twenty);
}

ann_index_info describe(const ann_index_params& shape, const Snapshot* snapshot) {
  ann_index_info info = ANN_INDEX_INFO_INIT;
  info.dim = shape.dim;
  info.metric = shape.metric;
  info.element = shape.element;
  if (snapshot == nullptr) return info;
  const PlacedSegment& placed = snapshot->single();
  const Segment& segment = placed.segment;
  info.built = 1;
  info.element = segment.dataset.element();
  info.graph = segment.graph.kind;
  info.rows = segment.rows();
  info.memory_bytes = placed.bytes();
  info.seed = segment.seed;
  info.build_seconds = placed.build_seconds;
  if (!segment.has_graph()) return info;
  info.degree = segment.graph.degree;
  info.entry_points = static_cast<uint32_t>(segment.graph.starts().size());
  info.calibrate_seconds = placed.calibrate_seconds;
  info.recall_max = placed.recall_max();
  info.repaired_edges = segment.graph.repaired_edges;
  info.knn_iterations = segment.knn_iterations;
  info.knn_share = static_cast<float>(segment.knn_share);
  describe_codes(segment.codes, &info);
  return info;
}

const PlacedSegment& graph_of(const Index::Call& call) {
  const PlacedSegment& placed = placed_of(call);
  if (!placed.segment.has_graph())
    fail(ANN_UNSUPPORTED, "the index was built without a graph (ANN_GRAPH_NONE)");
  return placed;
}

uint64_t vector_bytes(const Dataset& dataset) {
  return uint64_t{dataset.dim()} * element_bytes(dataset.element());
}

/// Refuses a buffer of the caller that is too small for `count` vectors.
void check_capacity(const Dataset& dataset, uint64_t count, uint64_t capacity) {
  const uint64_t bytes = vector_bytes(dataset);
  if (capacity / bytes >= count) return;
  fail(ANN_INVALID_ARGUMENT, "capacity is %llu; %llu vectors of %llu bytes do not fit",
       static_cast<unsigned long long>(capacity), static_cast<unsigned long long>(count),
       static_cast<unsigned long long>(bytes));
}

/// Refuses ids of which one is no row's.
void check_present(const Dataset& dataset, const uint64_t* ids, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    if (dataset.find(ids[i]) < dataset.rows()) continue;
    Error error;
    error.status = ANN_INVALID_ARGUMENT;
    error.row = i;
    std::snprintf(error.message, sizeof error.message, "ids[%llu] is %llu, the id of no row",
                  static_cast<unsigned long long>(i), static_cast<unsigned long long>(ids[i]));
    throw error;
  }
}

/// The CUDA ordinal of a device number.
int32_t cuda_ordinal(int32_t device) {
  if (device < ANN_DEVICE_CUDA)
    fail(ANN_INVALID_ARGUMENT, "device is %d; copies stand on CUDA devices, %d and more", device,
         ANN_DEVICE_CUDA);
  return device - ANN_DEVICE_CUDA;
}

}  // namespace

extern "C" {

ann_status ann_index_create(const ann_context* context, const ann_index_params* params, ann_index** out,
                            ann_error* error) {
  return guarded(error, [&] {
    const ContextSettings settings = read_context(context);
    ann_index_params shape = read_struct(params, "params", 2 * sizeof(uint32_t), false);
    check_given(out, "out");
    check_shape(&shape);
    *out =
        new ann_index{ann_index::kTag, Index(settings.memory, settings.threads_max, shape), settings.files};
  });
}

void ann_index_free(ann_index* index) {
  if (index == nullptr || index->tag != ann_index::kTag) return;
  const Uncancelled uncancelled;  // it may wait
  index->index.wait_for_calls();
  index->tag = 0;
  delete index;
  trim_device_memory(false);
}

ann_status ann_index_get_info(const ann_index* index, ann_index_info* out, ann_error* error) {
  return guarded(error, [&] {
    const Index& handle = checked(index, "index").index;
    check_output(out, "out");
    const Index::Call call(handle);
    write_struct(describe(handle.shape(), call.snapshot.get()), out);
  });
}

ann_status ann_index_get(const ann_index* index, uint64_t id, void* vector, uint64_t capacity, int32_t* found,
                         ann_error* error) {
  return guarded(error, [&] {
    const Index& handle = checked(index, "index").index;
    check_given(found, "found");
    const Index::Call call(handle);
    const Dataset& dataset = segment_of(call).dataset;
    if (vector != nullptr) check_capacity(dataset, 1, capacity);
    const uint32_t row = dataset.find(id);
    *found = row < dataset.rows() ? 1 : 0;
    if (*found != 0 && vector != nullptr) std::memcpy(vector, dataset.row(row), vector_bytes(dataset));
  });
}

ann_status ann_index_get_batch(const ann_index* index, const uint64_t* ids, uint64_t count, void* vectors,
                               uint64_t capacity, int32_t* found, ann_error* error) {
  return guarded(error, [&] {
    const Index& handle = checked(index, "index").index;
    if (count > 0) check_given(ids, "ids");
    const Index::Call call(handle);
    const Dataset& dataset = segment_of(call).dataset;
    if (vectors != nullptr) check_capacity(dataset, count, capacity);
    if (found == nullptr) check_present(dataset, ids, count);
    uint8_t* place = static_cast<uint8_t*>(vectors);
    for (uint64_t i = 0; i < count; ++i) {
      const uint32_t row = dataset.find(ids[i]);
      const bool there = row < dataset.rows();
      if (there && place != nullptr)
        std::memcpy(place + i * vector_bytes(dataset), dataset.row(row), vector_bytes(dataset));
      if (found != nullptr) found[i] = there ? 1 : 0;
    }
  });
}

ann_status ann_index_ids(const ann_index* index, uint64_t first, uint64_t count, uint64_t* ids,
                         ann_error* error) {
  return guarded(error, [&] {
    const Index& handle = checked(index, "index").index;
    if (count > 0) check_given(ids, "ids");
    const Index::Call call(handle);
    const Dataset& dataset = segment_of(call).dataset;
    if (first > dataset.rows() || count > dataset.rows() - first)
      fail(ANN_INVALID_ARGUMENT, "first is %llu and count %llu; the index has %u rows",
           static_cast<unsigned long long>(first), static_cast<unsigned long long>(count), dataset.rows());
    if (count > 0) dataset.copy_ids(static_cast<uint32_t>(first), static_cast<uint32_t>(count), ids);
  });
}

ann_status ann_index_graph(const ann_index* index, uint32_t* edges, uint64_t capacity, uint32_t* degree,
                           ann_error* error) {
  return guarded(error, [&] {
    const Index& handle = checked(index, "index").index;
    check_given(degree, "degree");
    const Index::Call call(handle);
    const SearchGraph& graph = graph_of(call).segment.graph;
    const EdgeTable table = {edges, graph.rows, graph.degree};
    if (edges != nullptr && capacity < table.places())
      fail(ANN_INVALID_ARGUMENT, "capacity is %llu, the graph has %llu edges",
           static_cast<unsigned long long>(capacity), static_cast<unsigned long long>(table.places()));
    *degree = graph.degree;
    if (edges == nullptr) return;
    graph.touch_all();
    for (uint32_t row = 0; row < graph.rows; ++row) {
      const AdjacencyRow from = graph.row(row);
      uint32_t* end = std::copy(from.begin(), from.end(), table.row(row));
      std::fill(end, table.row(row) + graph.degree, kNoRow);
    }
  });
}

ann_status ann_index_graph_stats(const ann_index* index, ann_graph_stats* out, ann_error* error) {
  return guarded(error, [&] {
    const Index& handle = checked(index, "index").index;
    ann_graph_stats stats = read_struct(out, "out", sizeof(uint32_t) * 2, false);
    const Index::Call call(handle);
    const Segment& segment = graph_of(call).segment;
    segment.graph.touch_all();
    measure_graph(segment.graph, segment.seed, handle.memory(), &stats);
    write_struct(stats, out);
  });
}

ann_status ann_index_place(const ann_index* index, int32_t device, ann_monitor* monitor, ann_error* error) {
  return guarded(error, [&] {
    const Index& handle = checked(index, "index").index;
    const int32_t ordinal = cuda_ordinal(device);
    const Index::Call call(handle);
    const PlacedSegment& placed = graph_of(call);
    check_cuda_device(device);
    const Execution execution{handle.memory(), thread_count(0, handle.threads_max()), begin_monitor(monitor)};
    execution.enter("placement");
    const bool was_placed = placed.devices.find(ordinal) != nullptr;
    const auto device = placed.devices.get(placed, ordinal, execution);
    try {
      device->whole_two_lists(placed, execution);
    } catch (...) {
      if (!was_placed) placed.devices.drop(ordinal);
      throw;
    }
    execution.advance(1);
  });
}

ann_status ann_index_evict(const ann_index* index, int32_t device, ann_error* error) {
  return guarded(error, [&] {
    const Index& handle = checked(index, "index").index;
    const int32_t ordinal = cuda_ordinal(device);
    const Index::Call call(handle);
    placed_of(call).devices.drop(ordinal);
    trim_device_memory(true);
  });
}

ann_status ann_index_beam(const ann_index* index, uint32_t k, float recall, uint32_t* beam,
                          ann_error* error) {
  return guarded(error, [&] {
    const Index& handle = checked(index, "index").index;
    check_given(beam, "beam");
    const float wanted = check_search(k, recall);
    const Index::Call call(handle);
    const Execution execution{handle.memory(), thread_count(0, handle.threads_max())};
    *beam = graph_of(call).curves(execution).beam(k, wanted);
  });
}

}  // extern "C"
