/* Proves that ann_estimate is an upper bound of what a build takes from the allocator, that the
 * index holds what it says, and that a memory limit is kept before anything is taken. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ann.h"
#include "check.h"
#include "refuse.h"
#include "support.h"

static int64_t held, peak, calls;
static int64_t uneven; /* requests that are no multiple of their alignment, which aligned_alloc may refuse */

static void *allocate(void *user, size_t bytes, size_t alignment) {
  (void)user;
  __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
  if (bytes % alignment != 0) __atomic_add_fetch(&uneven, 1, __ATOMIC_RELAXED);
  const int64_t now = __atomic_add_fetch(&held, (int64_t)bytes, __ATOMIC_RELAXED);
  int64_t known = __atomic_load_n(&peak, __ATOMIC_RELAXED);
  while (now > known &&
         !__atomic_compare_exchange_n(&peak, &known, now, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  void *memory = NULL;
  return posix_memalign(&memory, alignment, bytes) == 0 ? memory : NULL;
}

static void release(void *user, void *memory, size_t bytes, size_t alignment) {
  (void)user;
  (void)alignment;
  __atomic_sub_fetch(&held, (int64_t)bytes, __ATOMIC_RELAXED);
  free(memory);
}

/* Its memory is counted. */
static ann_context *counted_context(void) {
  ann_context_params hooks = ANN_CONTEXT_PARAMS_INIT;
  hooks.allocate = allocate;
  hooks.release = release;
  ann_context *context = NULL;
  CHECK_OK(ann_context_create(&hooks, &context, NULL));
  return context;
}

static int law = DATA_NORMAL; /* of the rows of one() */

static void one(const char *what, int32_t metric, int32_t given, int32_t stored, uint64_t n, uint32_t dim,
                const ann_build_params *params, int with_ids) {
  ann_context *context = counted_context();
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  shape.dim = dim;
  shape.metric = metric;
  shape.element = stored;
  ann_index *index = NULL;
  CHECK_OK(ann_index_create(context, &shape, &index, NULL));
  vectors rows = vectors_make(law, given, n, dim, 1);
  const ann_matrix view = vectors_view(&rows);
  uint64_t *ids = malloc(n * 8 + 1);
  for (uint64_t i = 0; i < n; i++) ids[i] = 1000000 - i;
  ann_plan plan = ANN_PLAN_INIT;
  CHECK_OK(ann_estimate(&shape, n, given, params, &plan, NULL));
  CHECK(plan.threads >= 1 && plan.seconds >= 0 && plan.peak_bytes >= plan.index_bytes);

  held = peak = calls = 0;
  ann_build_params tight = *params;
  tight.memory_limit = plan.peak_bytes / 2;
  if (n > 0) {
    REFUSED(ann_build(index, &view, with_ids ? ids : NULL, &tight, NULL, &error), ANN_LIMIT, "memory_limit");
    CHECK_SAY(calls == 0, "%s: %d allocations before the limit was answered", what, (int)calls);
  }
  held = peak = calls = 0;
  tight.memory_limit = plan.peak_bytes;
  /* Ids are not part of the plan's question; with them the limit may be a little too tight. */
  if (with_ids) tight.memory_limit = 0;
  ann_error error = ANN_ERROR_INIT;
  const ann_status built = ann_build(index, &view, with_ids ? ids : NULL, &tight, NULL, &error);
  CHECK_SAY(built == ANN_OK, "%s: %s: %s", what, ann_status_name(built), error.message);
  const uint64_t ids_extra = with_ids ? n * 32 : 0;
  CHECK_SAY((uint64_t)peak <= plan.peak_bytes + ids_extra,
            "%s: the build held %lld bytes, the plan says at most %llu", what, (long long)peak,
            (unsigned long long)plan.peak_bytes);
  CHECK_SAY((uint64_t)held <= plan.index_bytes + ids_extra,
            "%s: the index holds %lld bytes, the plan says %llu", what, (long long)held,
            (unsigned long long)plan.index_bytes);
  /* A bound that is far too high would be of no use. It has room for codes of floats and their halves, six bytes a column
   * where most rows take one. Where a device builds, the bound still counts the phases' memory as the host's. */
  if (n >= 1000 && !test_on_device()) {
    CHECK_SAY(plan.peak_bytes <= 3 * (uint64_t)peak + (3 << 19), "%s: planned %llu, held %lld", what,
              (unsigned long long)plan.peak_bytes, (long long)peak);
    CHECK_SAY(plan.index_bytes <= 5 * (uint64_t)held / 2 + (1 << 16), "%s: planned %llu, holds %lld", what,
              (unsigned long long)plan.index_bytes, (long long)held);
  }
  ann_index_info info = ANN_INDEX_INFO_INIT;
  CHECK_OK(ann_index_get_info(index, &info, NULL));
  /* A copy on a device holds pinned memory besides, which is not the allocator's. */
  const uint64_t others = 65536 + (test_on_device() ? 64ull << 20 : 0);
  CHECK_SAY(info.memory_bytes >= (uint64_t)held && info.memory_bytes <= (uint64_t)held + others,
            "%s: memory_bytes is %llu, the allocator holds %lld", what, (unsigned long long)info.memory_bytes,
            (long long)held);
  const int64_t after_build = held;
  answers found = answers_make(n < 50 ? n : 50, 5);
  vectors few = rows;
  few.rows = found.rows;
  CHECK_OK(index_search(index, &few, ANN_SEARCH_AUTO, 0, &found));
  ann_graph_stats stats = ANN_GRAPH_STATS_INIT;
  (void)ann_index_graph_stats(index, &stats, NULL);
  /* Searches may keep the spaces they work in, four for each thread at most, and say so. */
  const uint64_t one_space = n * 4 + 65536;
  CHECK_SAY((uint64_t)(held - after_build) <= 4 * one_space, "%s: a search keeps %lld bytes", what,
            (long long)(held - after_build));
  const int64_t after_search = held;
  for (int i = 0; i < 20; i++) CHECK_OK(index_search(index, &few, ANN_SEARCH_AUTO, 0, &found));
  CHECK_SAY((uint64_t)(held - after_search) <= 4 * one_space, "%s: 20 searches keep %lld bytes more", what,
            (long long)(held - after_search));
  CHECK_OK(ann_index_get_info(index, &info, NULL));
  CHECK_SAY(info.memory_bytes >= (uint64_t)held, "%s: memory_bytes is %llu, the allocator holds %lld", what,
            (unsigned long long)info.memory_bytes, (long long)held);
  answers_free(&found);
  ann_index_free(index);
  CHECK_SAY(held == 0, "%s: %lld bytes are never given back", what, (long long)held);
  ann_context_free(context);
  free(ids);
  vectors_free(&rows);
}

/* An index that is opened whole holds as much as its file, one that is read as it is needed nothing. */
static void opened(void) {
  vectors rows = vectors_make(DATA_NORMAL, ANN_F32, 8000 / (test_scale() > 1 ? 2 : 1), 64, 3);
  ann_index *index = index_build(ANN_METRIC_L2, &rows, NULL);
  char path[] = "/tmp/gannet-memory-XXXXXX";
  const int file = mkstemp(path);
  CHECK(file >= 0);
  close(file);
  CHECK_OK(ann_save(index, path, NULL, NULL, NULL));
  ann_index_free(index);
  ann_file_description facts = ANN_FILE_DESCRIPTION_INIT;
  CHECK_OK(ann_file_info(path, &facts, NULL));
  ann_context *context = counted_context();
  for (int mode = ANN_OPEN_FULL; mode <= ANN_OPEN_TRUSTED; mode++) {
    held = peak = calls = 0;
    ann_open_params params = ANN_OPEN_PARAMS_INIT;
    params.mode = mode;
    ann_index *opened_index = NULL;
    CHECK_OK(ann_open(context, path, &params, &opened_index, NULL, NULL));
    const double part = (double)held / (double)facts.file_bytes,
                 most = (double)peak / (double)facts.file_bytes;
    if (mode == ANN_OPEN_FULL)
      CHECK_SAY(part > 0.9 && most < 1.1, "%g of the file's size is held, %g at most", part, most);
    else
      CHECK_SAY(most < 0.01, "mode %d holds %g of the file's size", mode, most);
    ann_index_free(opened_index);
    CHECK_EQUAL(held, 0);
  }
  ann_context_free(context);
  vectors_free(&rows);
  remove(path);
}

/* A batch that is compared with all rows is answered in parts: AUTO takes that way whatever the size of a batch. */
static void compared_with_all_rows(void) {
  const uint32_t dim = 2048, k = 3;
  const uint64_t count = 20000; /* 164 MB as the floats that rows are compared with */
  vectors rows = vectors_make(DATA_NORMAL, ANN_F32, 40, dim, 3);
  vectors queries = vectors_make(DATA_NORMAL, ANN_U8, count, dim, 4);
  ann_context *context = counted_context();
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  shape.metric = ANN_METRIC_L2;
  shape.dim = dim;
  shape.element = ANN_F32;
  ann_index *index = NULL;
  CHECK_OK(ann_index_create(context, &shape, &index, NULL));
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.graph = ANN_GRAPH_NONE;
  params.threads = 2;
  ann_matrix matrix = vectors_view(&rows);
  CHECK_OK(ann_build(index, &matrix, NULL, &params, NULL, NULL));
  ann_search_params search = ANN_SEARCH_PARAMS_INIT;
  search.threads = 2;
  answers whole = answers_make(count, k), part = answers_make(7, k);
  ann_results results = ANN_RESULTS_INIT;
  results.rows = count;
  results.k = k;
  results.ids = whole.ids;
  results.distances = whole.distances;
  matrix = vectors_view(&queries);
  peak = held;
  CHECK_OK(ann_search_batch(index, &matrix, &search, &results, NULL, NULL));
  /* A device to which the rows have to be sent takes larger parts. */
  const int64_t most = (test_on_device() ? 200 : 100) << 20;
  CHECK_SAY(peak - held < most, "the batch took %lld bytes", (long long)(peak - held));
  CHECK_EQUAL(results.distance_count, count * 40);
  /* Queries of both sides of the places where it is divided. */
  for (uint64_t first = 0; first + 7 <= count; first += 1021) {
    ann_matrix some = matrix;
    some.data = (const uint8_t *)matrix.data + first * dim;
    some.rows = 7;
    ann_results few = ANN_RESULTS_INIT;
    few.rows = 7;
    few.k = k;
    few.ids = part.ids;
    few.distances = part.distances;
    CHECK_OK(ann_search_batch(index, &some, &search, &few, NULL, NULL));
    CHECK(memcmp(part.ids, whole.ids + first * k, 7 * k * sizeof(uint64_t)) == 0);
    CHECK(memcmp(part.distances, whole.distances + first * k, 7 * k * sizeof(float)) == 0);
  }
  answers_free(&whole);
  answers_free(&part);
  ann_index_free(index);
  ann_context_free(context);
  vectors_free(&rows);
  vectors_free(&queries);
}

int main(void) {
  opened();
  compared_with_all_rows();
  ann_build_params plain = ANN_BUILD_PARAMS_INIT;
  plain.threads = 2;
  for (int e = 0; e < ELEMENTS; e++)
    for (int m = 0; m < METRICS; m++) {
      if (!test_takes(e + m)) continue;
      one("defaults", all_metrics[m], all_elements[e], 0, 1500, 20, &plain, 0);
      one("stored as f32", all_metrics[m], all_elements[e], ANN_F32, 1000, 13, &plain, 0);
    }
  const uint64_t ns[] = {0, 1, 2, 31, 32, 33, 100, 1000, 4096, 4097, 6000};
  for (int i = 0; i < 11; i++)
    if (ns[i] <= 1000 || test_takes(i)) one("by size", ANN_METRIC_L2, ANN_F32, 0, ns[i], 8, &plain, 0);
  for (int knn = ANN_KNN_AUTO; knn <= ANN_KNN_EXACT; knn++)
    for (int mode = ANN_ROWS_COPY; mode <= ANN_ROWS_BORROW; mode++)
      for (int calibrate = ANN_ON; calibrate <= ANN_OFF; calibrate++)
        for (uint32_t threads = 1; threads <= 5; threads += 4) {
          if (!test_takes(knn + mode + calibrate + (int)threads)) continue;
          ann_build_params params = ANN_BUILD_PARAMS_INIT;
          params.knn = knn;
          params.rows_mode = mode;
          params.calibrate = calibrate;
          params.threads = threads;
          one("by parameters", ANN_METRIC_COSINE, ANN_F32, 0, 1200, 10, &params, 0);
        }
  ann_build_params cells = plain;
  cells.knn = ANN_KNN_CELLS;
  for (int i = 0; i < 11; i++)
    if (ns[i] <= 1000 || test_takes(i)) one("cells", ANN_METRIC_L2, ANN_F32, 0, ns[i], 8, &cells, 0);
  for (int e = 0; e < ELEMENTS; e++)
    for (int m = 0; m < METRICS; m++)
      if (test_takes(e + m)) one("cells", all_metrics[m], all_elements[e], 0, 1500, 70, &cells, 0);
  ann_build_params wide = plain;
  wide.degree = 128;
  wide.knn_degree = 256;
  wide.samples = 64;
  wide.knn = ANN_KNN_NN_DESCENT;
  one("wide", ANN_METRIC_L2, ANN_F32, 0, 1500, 8, &wide, 0);
  wide.knn = ANN_KNN_CELLS;
  one("wide cells", ANN_METRIC_L2, ANN_F32, 0, 1500, 8, &wide, 0);
  ann_build_params narrow = plain;
  narrow.degree = 2;
  narrow.knn_degree = 2;
  narrow.samples = 2;
  narrow.knn = ANN_KNN_NN_DESCENT;
  one("narrow", ANN_METRIC_L2, ANN_F32, 0, 1500, 8, &narrow, 0);
  ann_build_params none = plain;
  none.graph = ANN_GRAPH_NONE;
  one("no graph", ANN_METRIC_L2, ANN_F32, ANN_F16, 1500, 300, &none, 0);
  one("with ids", ANN_METRIC_L2, ANN_F32, 0, 2000, 8, &plain, 1);
  /* Graphs of such rows get edges from island to island, which are found among some of the rows. */
  ann_build_params exact = plain;
  exact.knn = ANN_KNN_EXACT;
  for (law = DATA_CLUSTERED; law <= DATA_ISLANDS; law++) {
    one("far apart", ANN_METRIC_COSINE, ANN_F32, 0, 5000, 256, &exact, 0);
    one("far apart", ANN_METRIC_L2, ANN_F32, 0, 6000, 8, &plain, 0);
    /* Of islands codes are floats, with halves. */
    one("far apart", ANN_METRIC_L2, ANN_F32, 0, 4000, 40, &plain, 0);
  }
  CHECK_EQUAL(uneven, 0);
  return finish("memory");
}
