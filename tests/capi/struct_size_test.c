/* Proves the rule of sizes: every struct that crosses is read and written within its struct_size,
 * one that is larger than the library knows is accepted if its tail is zero, and one that cannot
 * even hold its size is refused. */
#include <stdlib.h>
#include <string.h>

#include "ann.h"
#include "check.h"
#include "refuse.h"
#include "support.h"

enum { DIM = 4, ROWS = 30, K = 3, TAIL = 64 };

/* Everything that a call may need, made anew before each call. */
static vectors rows;
static ann_context *context;
static ann_monitor *monitor;
static ann_index *index_; /* built */
static ann_index *empty;  /* not built */
static answers found;
static uint32_t neighbors[ROWS * K];

/* One call with one of its structs in `memory`; `error` is an ordinary one. */
typedef ann_status (*caller)(void *memory, ann_error *error);

static ann_status call_context(void *memory, ann_error *error) {
  ann_context *made = NULL;
  const ann_status status = ann_context_create(memory, &made, error);
  ann_context_free(made);
  return status;
}
static ann_status call_progress(void *memory, ann_error *error) {
  return ann_monitor_progress(monitor, memory, error);
}
static ann_status call_device(void *memory, ann_error *error) {
  return ann_device_get_info(ANN_DEVICE_CPU, memory, error);
}
static ann_status call_create(void *memory, ann_error *error) {
  ann_index *made = NULL;
  const ann_status status = ann_index_create(context, memory, &made, error);
  ann_index_free(made);
  return status;
}
static ann_status call_info(void *memory, ann_error *error) {
  return ann_index_get_info(index_, memory, error);
}
static ann_status call_stats(void *memory, ann_error *error) {
  return ann_index_graph_stats(index_, memory, error);
}
static ann_status call_build_rows(void *memory, ann_error *error) {
  ann_index *index = index_make(DIM, ANN_METRIC_L2, ANN_ELEMENT_AUTO);
  const ann_status status = ann_build(index, memory, NULL, NULL, NULL, error);
  ann_index_free(index);
  return status;
}
static ann_status call_build(void *memory, ann_error *error) {
  ann_index *index = index_make(DIM, ANN_METRIC_L2, ANN_ELEMENT_AUTO);
  const ann_matrix view = vectors_view(&rows);
  const ann_status status = ann_build(index, &view, NULL, memory, NULL, error);
  ann_index_free(index);
  return status;
}
static ann_status call_calibration(void *memory, ann_error *error) {
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.calibration = memory;
  return call_build(&params, error);
}
static ann_status call_estimate_shape(void *memory, ann_error *error) {
  ann_plan plan = ANN_PLAN_INIT;
  return ann_estimate(memory, ROWS, ANN_F32, NULL, &plan, error);
}
static ann_status call_estimate_build(void *memory, ann_error *error) {
  ann_plan plan = ANN_PLAN_INIT;
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  shape.dim = DIM;
  return ann_estimate(&shape, ROWS, ANN_F32, memory, &plan, error);
}
static ann_status call_estimate_plan(void *memory, ann_error *error) {
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  shape.dim = DIM;
  return ann_estimate(&shape, ROWS, ANN_F32, NULL, memory, error);
}
static ann_status call_queries(void *memory, ann_error *error) {
  ann_results results = answers_view(&found);
  return ann_search_batch(index_, memory, NULL, &results, NULL, error);
}
static ann_status call_search(void *memory, ann_error *error) {
  const ann_matrix view = vectors_view(&rows);
  ann_results results = answers_view(&found);
  return ann_search_batch(index_, &view, memory, &results, NULL, error);
}
static ann_status call_forecast(void *memory, ann_error *error) {
  return ann_search_estimate(index_, ROWS, K, NULL, memory, error);
}
static ann_status call_results(void *memory, ann_error *error) {
  const ann_matrix view = vectors_view(&rows);
  return ann_search_batch(index_, &view, NULL, memory, NULL, error);
}
static ann_status call_exact_queries(void *memory, ann_error *error) {
  ann_results results = answers_view(&found);
  return ann_search_exact(index_, memory, NULL, &results, NULL, error);
}
static ann_status call_exact_search(void *memory, ann_error *error) {
  const ann_matrix view = vectors_view(&rows);
  ann_results results = answers_view(&found);
  return ann_search_exact(index_, &view, memory, &results, NULL, error);
}
static ann_status call_exact_results(void *memory, ann_error *error) {
  const ann_matrix view = vectors_view(&rows);
  return ann_search_exact(index_, &view, NULL, memory, NULL, error);
}
static ann_status call_knn_rows(void *memory, ann_error *error) {
  ann_knn_params params = ANN_KNN_PARAMS_INIT;
  params.k = K;
  return ann_knn_graph(context, memory, &params, neighbors, NULL, NULL, error);
}
static ann_status call_knn(void *memory, ann_error *error) {
  const ann_matrix view = vectors_view(&rows);
  return ann_knn_graph(context, &view, memory, neighbors, NULL, NULL, error);
}

/* Puts a struct into memory whose last byte is the last byte of the heap block, so that a sanitizer
 * notices what is read or written beyond `size`. */
static unsigned char *place(const void *sample, size_t known, uint32_t size, int tail_byte) {
  unsigned char *memory = malloc(size < 4 ? 4 : size);
  memset(memory, 0, size < 4 ? 4 : size);
  memcpy(memory, sample, size < known ? size : known);
  if (size > known && tail_byte) memory[size - 1] = 1;
  memcpy(memory, &size, 4);
  return memory;
}

static void one_struct(const char *name, const void *sample, size_t known, caller call) {
  for (uint32_t size = 0; size < 4; size++) {
    unsigned char *memory = place(sample, known, size, 0);
    ann_error error = ANN_ERROR_INIT;
    const ann_status status = call(memory, &error);
    CHECK_SAY(status == ANN_INVALID_ARGUMENT, "%s: struct_size %u answers %s", name, size,
              ann_status_name(status));
    CHECK_SAY(mentions(error.message, "struct_size"), "%s: \"%s\" does not mention struct_size", name,
              error.message);
    free(memory);
  }
  /* Any smaller size: refused or served, but never read or written beyond. */
  for (uint32_t size = 4; size < known; size++) {
    unsigned char *memory = place(sample, known, size, 0);
    const ann_status status = call(memory, NULL);
    CHECK_SAY(status >= 0 && status / 100 <= 2, "%s: struct_size %u answers %s", name, size,
              ann_status_name(status));
    free(memory);
  }
  const uint32_t larger[] = {1, 3, 4, 8, TAIL, 1000};
  for (size_t i = 0; i < sizeof larger / sizeof larger[0]; i++) {
    const uint32_t size = (uint32_t)known + larger[i];
    for (int tail = 0; tail < 2; tail++) {
      unsigned char *memory = place(sample, known, size, tail);
      ann_error error = ANN_ERROR_INIT;
      const ann_status status = call(memory, &error);
      CHECK_SAY(status == (tail ? ANN_INVALID_ARGUMENT : ANN_OK),
                "%s: struct_size %u with a %szero tail answers %s: %s", name, size, tail ? "non-" : "",
                ann_status_name(status), error.message);
      uint32_t after;
      memcpy(&after, memory, 4);
      CHECK_SAY(after == size, "%s: struct_size became %u", name, after);
      for (uint32_t byte = (uint32_t)known; byte + 1 < size; byte++)
        if (memory[byte]) {
          CHECK_SAY(0, "%s: byte %u of the tail was written", name, byte);
          break;
        }
      free(memory);
    }
  }
}

/* Garbage behind a smaller struct must not matter. */
static void garbage_beyond(void) {
  ann_index_info info;
  memset(&info, 0x5a, sizeof info);
  info.struct_size = offsetof(ann_index_info, rows);
  const ann_status status = ann_index_get_info(index_, &info, NULL);
  CHECK(status == ANN_OK || status == ANN_INVALID_ARGUMENT);
  if (status == ANN_OK) CHECK_EQUAL(info.dim, DIM);
  for (size_t byte = offsetof(ann_index_info, rows); byte < sizeof info; byte++)
    if (((unsigned char *)&info)[byte] != 0x5a) {
      CHECK_SAY(0, "byte %zu behind a smaller info was written", byte);
      break;
    }
  ann_search_params params;
  memset(&params, 0x5a, sizeof params);
  params.struct_size = offsetof(ann_search_params, device);
  params.procedure = ANN_SEARCH_AUTO;
  const ann_status searched = call_search(&params, NULL);
  CHECK(searched == ANN_OK || searched == ANN_INVALID_ARGUMENT);
}

/* A size that ends within a pointer: half of it must not be followed. */
static void half_a_pointer(void) {
  const ann_matrix view = vectors_view(&rows);
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.calibration = &view;
  for (size_t half = 1; half < sizeof params.calibration; half++) {
    const uint32_t size = (uint32_t)(offsetof(ann_build_params, calibration) + half);
    unsigned char *memory = place(&params, sizeof params, size, 0);
    ann_error error = ANN_ERROR_INIT;
    CHECK_EQUAL(call_build(memory, &error), ANN_INVALID_ARGUMENT);
    CHECK_SAY(mentions(error.message, "struct_size"), "\"%s\" does not mention struct_size", error.message);
    free(memory);
  }
}

static void error_sizes(void) {
  for (uint32_t size = 0; size <= sizeof(ann_error) + TAIL; size++) {
    unsigned char *memory = malloc(size < 4 ? 4 : size);
    memset(memory, 0, size < 4 ? 4 : size);
    memcpy(memory, &size, 4);
    const ann_status status = ann_monitor_create(NULL, (ann_error *)memory);
    CHECK_SAY(status == ANN_INVALID_ARGUMENT, "an error of %u bytes: %s", size, ann_status_name(status));
    if (size >= offsetof(ann_error, row)) {
      ann_status noted;
      memcpy(&noted, memory + offsetof(ann_error, status), 4);
      CHECK_SAY(noted == ANN_INVALID_ARGUMENT, "an error of %u bytes is not filled", size);
    }
    if (size >= sizeof(ann_error)) {
      const size_t room = sizeof((ann_error *)0)->message;
      CHECK_SAY(memchr(memory + offsetof(ann_error, message), 0, room) != NULL,
                "an error of %u bytes holds a text without an end", size);
    }
    free(memory);
  }
}

int main(void) {
  rows = vectors_make(DATA_NORMAL, ANN_F32, ROWS, DIM, 3);
  index_ = index_build(ANN_METRIC_L2, &rows, NULL);
  empty = index_make(DIM, ANN_METRIC_L2, ANN_ELEMENT_AUTO);
  found = answers_make(ROWS, K);
  if (!index_ || ann_context_create(NULL, &context, NULL) != ANN_OK ||
      ann_monitor_create(&monitor, NULL) != ANN_OK) {
    CHECK_SAY(0, "cannot set up");
    return finish("struct_size");
  }

  const ann_context_params context_params = ANN_CONTEXT_PARAMS_INIT;
  const ann_progress progress = ANN_PROGRESS_INIT;
  const ann_device_info device = ANN_DEVICE_INFO_INIT;
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  shape.dim = DIM;
  const ann_index_info info = ANN_INDEX_INFO_INIT;
  const ann_graph_stats stats = ANN_GRAPH_STATS_INIT;
  const ann_matrix view = vectors_view(&rows);
  const ann_build_params build = ANN_BUILD_PARAMS_INIT;
  const ann_plan plan = ANN_PLAN_INIT;
  const ann_search_params search = ANN_SEARCH_PARAMS_INIT;
  const ann_search_forecast forecast = ANN_SEARCH_FORECAST_INIT;
  const ann_results results = answers_view(&found);
  ann_knn_params knn = ANN_KNN_PARAMS_INIT;
  knn.k = K;

#define STRUCT(sample, call) one_struct(#call, &sample, sizeof sample, call)
  STRUCT(context_params, call_context);
  STRUCT(progress, call_progress);
  STRUCT(device, call_device);
  STRUCT(shape, call_create);
  STRUCT(info, call_info);
  STRUCT(stats, call_stats);
  STRUCT(view, call_build_rows);
  STRUCT(build, call_build);
  STRUCT(view, call_calibration);
  STRUCT(shape, call_estimate_shape);
  STRUCT(build, call_estimate_build);
  STRUCT(plan, call_estimate_plan);
  STRUCT(view, call_queries);
  STRUCT(search, call_search);
  STRUCT(forecast, call_forecast);
  STRUCT(results, call_results);
  STRUCT(view, call_exact_queries);
  STRUCT(search, call_exact_search);
  STRUCT(results, call_exact_results);
  STRUCT(view, call_knn_rows);
  STRUCT(knn, call_knn);
  garbage_beyond();
  half_a_pointer();
  error_sizes();

  ann_index_free(index_);
  ann_index_free(empty);
  ann_context_free(context);
  ann_monitor_free(monitor);
  answers_free(&found);
  vectors_free(&rows);
  return finish("struct_size");
}
