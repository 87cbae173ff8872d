// ann.h, section 12: saving, opening and checking files.

#include "boundary.h"
#include "storage/storage.h"

using namespace gannet;

namespace {

constexpr size_t kParamsNeeded = 2 * sizeof(uint32_t);

struct OpenRequest {
  OpenPlan plan;
  uint32_t threads;
};

OpenRequest read_open_params(const ann_open_params* given, uint32_t threads_max) {
  const ann_open_params params = read_struct(given, "params", kParamsNeeded, true);
  const auto check = [](int32_t value, int32_t highest, const char* name) {
    if (value < 0 || value > highest)
      fail(ANN_INVALID_ARGUMENT, "params.%s is %d, allowed are 0 to %d", name, value, highest);
  };
  check(params.mode, ANN_OPEN_TRUSTED, "mode");
  check(params.expect_metric, ANN_METRIC_COSINE, "expect_metric");
  check(params.expect_element, ANN_U8, "expect_element");
  const int32_t mode = params.mode == ANN_OPEN_AUTO ? int32_t{ANN_OPEN_FULL} : params.mode;
  return {{mode, {params.expect_dim, params.expect_metric, params.expect_element}},
          thread_count(params.threads, threads_max)};
}

/// A handle of an index that was read.
ann_index* handle_of(std::unique_ptr<const PlacedSegment> built, const ContextSettings& settings) {
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  shape.dim = built->segment.dataset.dim();
  shape.metric = built->segment.dataset.metric();
  shape.element = built->segment.dataset.element();
  auto handle = std::unique_ptr<ann_index>(
      new ann_index{ann_index::kTag, Index(settings.memory, settings.threads_max, shape), settings.files});
  Index::BuildRight(handle->index).publish(std::move(built));
  return handle.release();
}

}  // namespace

extern "C" {

ann_status ann_save(const ann_index* index, const char* path, const ann_save_params* params,
                    ann_monitor* monitor, ann_error* error) {
  return guarded(error, [&] {
    const ann_index& handle = checked(index, "index");
    check_given(path, "path");
    const SavePlan plan = read_save_params(params, handle.index.threads_max());
    const Index::Call call(handle.index);
    const Execution execution{handle.index.memory(), plan.threads, begin_monitor(monitor)};
    save_file(placed_of(call), path, plan.sync, *handle.files, execution);
  });
}

ann_status ann_save_stream(const ann_index* index, const ann_writer* writer, const ann_save_params* params,
                           ann_monitor* monitor, ann_error* error) {
  return guarded(error, [&] {
    const ann_index& handle = checked(index, "index");
    const ann_writer sink = read_struct(writer, "writer", sizeof(ann_writer), false);
    if (sink.write == nullptr) fail(ANN_INVALID_ARGUMENT, "writer.write is null");
    const SavePlan plan = read_save_params(params, handle.index.threads_max());
    const Index::Call call(handle.index);
    const Execution execution{handle.index.memory(), plan.threads, begin_monitor(monitor)};
    save_stream(placed_of(call), {sink.write, sink.user}, execution);
  });
}

ann_status ann_open(const ann_context* context, const char* path, const ann_open_params* params,
                    ann_index** out, ann_monitor* monitor, ann_error* error) {
  return guarded(error, [&] {
    const ContextSettings settings = read_context(context);
    check_given(path, "path");
    check_given(out, "out");
    const OpenRequest request = read_open_params(params, settings.threads_max);
    const Execution execution{settings.memory, request.threads, begin_monitor(monitor)};
    *out = handle_of(open_file(path, request.plan, *settings.files, execution), settings);
  });
}

ann_status ann_open_memory(const ann_context* context, const void* data, uint64_t bytes,
                           const ann_open_params* params, ann_index** out, ann_monitor* monitor,
                           ann_error* error) {
  return guarded(error, [&] {
    const ContextSettings settings = read_context(context);
    check_given(out, "out");
    const OpenRequest request = read_open_params(params, settings.threads_max);
    if (bytes > 0) check_given(data, "data");
    if (request.plan.mode != ANN_OPEN_FULL && reinterpret_cast<uintptr_t>(data) % kAlignment != 0)
      fail(ANN_INVALID_ARGUMENT, "data is %p; to be used in place it must start on a multiple of %zu", data,
           kAlignment);
    const Execution execution{settings.memory, request.threads, begin_monitor(monitor)};
    *out = handle_of(open_memory(data, bytes, request.plan, execution), settings);
  });
}

ann_status ann_open_stream(const ann_context* context, const ann_reader* reader,
                           const ann_open_params* params, ann_index** out, ann_monitor* monitor,
                           ann_error* error) {
  return guarded(error, [&] {
    const ContextSettings settings = read_context(context);
    const ann_reader source = read_struct(reader, "reader", sizeof(ann_reader), false);
    if (source.read == nullptr) fail(ANN_INVALID_ARGUMENT, "reader.read is null");
    check_given(out, "out");
    const OpenRequest request = read_open_params(params, settings.threads_max);
    if (request.plan.mode != ANN_OPEN_FULL)
      fail(ANN_UNSUPPORTED, "params.mode is %d; a stream is opened FULL (%d) only", request.plan.mode,
           ANN_OPEN_FULL);
    const Execution execution{settings.memory, request.threads, begin_monitor(monitor)};
    *out =
        handle_of(open_stream({source.read, source.user, source.bytes}, request.plan, execution), settings);
  });
}

ann_status ann_verify(const char* path, const ann_open_params* params, ann_monitor* monitor,
                      ann_error* error) {
  return guarded(error, [&] {
    check_given(path, "path");
    const OpenRequest request = read_open_params(params, 0);
    const Execution execution{Allocator(), request.threads, begin_monitor(monitor)};
    verify_file(path, request.plan.expected, system_files(), execution);
  });
}

ann_status ann_file_info(const char* path, ann_file_description* out, ann_error* error) {
  return guarded(error, [&] {
    check_given(path, "path");
    check_output(out, "out");
    ann_file_description description = ANN_FILE_DESCRIPTION_INIT;
    describe_file(path, system_files(), &description);
    write_struct(description, out);
  });
}

}  // extern "C"
