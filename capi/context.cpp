// ann.h, sections 5 and 6: contexts and monitors.

#include "boundary.h"

using namespace gannet;

extern "C" {

ann_status ann_context_create(const ann_context_params* params, ann_context** out, ann_error* error) {
  return guarded(error, [&] {
    const ann_context_params given = read_struct(params, "params", 2 * sizeof(uint32_t), true);
    check_given(out, "out");
    if ((given.allocate == nullptr) != (given.release == nullptr))
      fail(ANN_INVALID_ARGUMENT, "params.%s is null, but the other of allocate and release is not",
           given.allocate == nullptr ? "allocate" : "release");
    *out = new ann_context{ann_context::kTag, {given.allocate, given.release, given.user}, given.threads_max};
  });
}

void ann_context_free(ann_context* context) {
  if (context == nullptr || context->tag != ann_context::kTag) return;
  context->tag = 0;
  delete context;
}

ann_status ann_monitor_create(ann_monitor** out, ann_error* error) {
  return guarded(error, [&] {
    check_given(out, "out");
    *out = new ann_monitor;
  });
}

void ann_monitor_free(ann_monitor* monitor) {
  if (monitor == nullptr || monitor->tag != ann_monitor::kTag) return;
  monitor->tag = 0;
  delete monitor;
}

void ann_monitor_cancel(ann_monitor* monitor) {
  if (monitor != nullptr && monitor->tag == ann_monitor::kTag) monitor->monitor.cancel();
}

void ann_monitor_reset(ann_monitor* monitor) {
  if (monitor != nullptr && monitor->tag == ann_monitor::kTag) monitor->monitor.reset();
}

void ann_monitor_set_deadline(ann_monitor* monitor, uint64_t nanoseconds) {
  if (monitor != nullptr && monitor->tag == ann_monitor::kTag) monitor->monitor.set_deadline(nanoseconds);
}

ann_status ann_monitor_progress(const ann_monitor* monitor, ann_progress* out, ann_error* error) {
  return guarded(error, [&] {
    const Monitor& watched = checked(monitor, "monitor").monitor;
    check_output(out, "out");
    ann_progress progress = ANN_PROGRESS_INIT;
    progress.step = watched.step();
    progress.fraction = watched.fraction();
    progress.phase = watched.phase();
    write_struct(progress, out);
  });
}

}  // extern "C"
