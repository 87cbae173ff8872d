/* Proves for shapes, strides, methods and parameters drawn at random that a build holds no more than
 * ann_estimate says, and no more than its memory_limit; a limit below that is answered before anything is taken.
 * Rows lie up to a megabyte apart. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "ann.h"
#include "check.h"
#include "support.h"

static int64_t held, peak, calls;

static void *allocate(void *user, size_t bytes, size_t alignment) {
  (void)user;
  __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
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

static uint32_t draw(uint64_t *seed, uint32_t count) { return (uint32_t)(random_next(seed) % count); }

static int far_apart, few_rows;

static void one(uint64_t number) {
  uint64_t seed = number * 7919 + 1;
  static const uint32_t dims[] = {1, 2, 3, 8, 17, 33, 64, 100, 300};
  static const uint64_t counts[] = {0, 1, 5, 60, 200, 700, 2000};
  const int32_t element = all_elements[draw(&seed, ELEMENTS)], metric = all_metrics[draw(&seed, METRICS)];
  const uint32_t dim = dims[draw(&seed, 9)];
  const uint64_t count = counts[draw(&seed, 7)] / (uint64_t)test_scale();
  const uint64_t packed = dim * element_size(element);
  const uint32_t gap = draw(&seed, 9);
  const uint64_t extra = gap == 0 ? draw(&seed, 1 << 20) : gap < 3 ? draw(&seed, 5000) : 0;
  const int with_ids = draw(&seed, 2) == 0;
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  static const int32_t graphs[] = {ANN_GRAPH_NONE, ANN_GRAPH_AUTO, ANN_GRAPH_AUTO, ANN_GRAPH_CAGRA};
  params.graph = graphs[draw(&seed, 4)];
  params.detours = (int32_t)draw(&seed, 3);
  params.reorder = (int32_t)draw(&seed, 3);
  static const int32_t methods[] = {ANN_KNN_AUTO, ANN_KNN_NN_DESCENT, ANN_KNN_EXACT, ANN_KNN_CELLS};
  params.knn = methods[draw(&seed, 4)];
  params.rows_mode = draw(&seed, 2) == 0 ? ANN_ROWS_BORROW : ANN_ROWS_COPY;
  params.degree = 2 + draw(&seed, 60);
  params.knn_degree = params.degree + draw(&seed, 20);
  params.threads = 1 + draw(&seed, 4);
  params.calibrate = draw(&seed, 3) == 0 ? ANN_OFF : ANN_ON;
  params.samples = 2 + draw(&seed, params.knn_degree < 62 ? params.knn_degree - 1 : 60);
  vectors rows = vectors_make(DATA_NORMAL, element, count, dim, number);
  /* Of the system, which gives pages only to what is written. */
  const size_t memory_bytes = count * (packed + extra) + 1;
  unsigned char *memory =
      mmap(NULL, memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(memory != MAP_FAILED);
  for (uint64_t i = 0; i < count; i++) memcpy(memory + i * (packed + extra), vectors_row(&rows, i), packed);
  ann_matrix view = vectors_view(&rows);
  view.data = memory;
  view.row_stride = packed + extra;
  uint64_t *ids = malloc(count * 8 + 1);
  for (uint64_t i = 0; i < count; i++) ids[i] = i * 104729 % 1000003;

  ann_context_params hooks = ANN_CONTEXT_PARAMS_INIT;
  hooks.allocate = allocate;
  hooks.release = release;
  ann_context *context = NULL;
  CHECK_OK(ann_context_create(&hooks, &context, NULL));
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  shape.dim = dim;
  shape.metric = metric;
  ann_plan plan = ANN_PLAN_INIT;
  CHECK_OK(ann_estimate(&shape, count, element, &params, &plan, NULL));

  few_rows += params.graph != ANN_GRAPH_NONE && params.knn == ANN_KNN_NN_DESCENT && count > 0 &&
              count <= 4ull * params.knn_degree;
  far_apart += params.graph != ANN_GRAPH_NONE && params.calibrate == ANN_ON &&
               params.rows_mode == ANN_ROWS_BORROW && count >= 60 && extra > 0;
  for (int limited = 0; limited < (with_ids && count >= 60 ? 2 : 1); limited++) {
    ann_index *index = NULL;
    CHECK_OK(ann_index_create(context, &shape, &index, NULL));
    held = peak = calls = 0;
    ann_build_params wanted = params;
    /* Half of what is needed is refused; all of it is enough. The plan counts ids, and of few rows it is
     * mostly slack. */
    wanted.memory_limit = limited ? plan.peak_bytes / 2 : plan.peak_bytes;
    const ann_status status = ann_build(index, &view, with_ids ? ids : NULL, &wanted, NULL, NULL);
    if (limited) {
      CHECK_SAY(status == ANN_LIMIT && calls == 0, "%llu: half of the memory answers %s after %d allocations",
                (unsigned long long)number, ann_status_name(status), (int)calls);
    } else {
      CHECK_SAY(status == ANN_OK, "%llu: %s", (unsigned long long)number, ann_status_name(status));
      const int over = (uint64_t)peak > plan.peak_bytes || (uint64_t)held > plan.index_bytes;
      CHECK_SAY(!over,
                "%llu (%s, %s, %llu x %u, stride %llu, method %d, degree %u, k-NN %u, %s): held %lld of %llu "
                "bytes, then %lld of %llu",
                (unsigned long long)number, metric_name(metric), element_name(element),
                (unsigned long long)count, dim, (unsigned long long)(packed + extra), params.knn,
                params.degree, params.knn_degree, with_ids ? "ids" : "no ids", (long long)peak,
                (unsigned long long)plan.peak_bytes, (long long)held, (unsigned long long)plan.index_bytes);
    }
    ann_index_free(index);
    CHECK_EQUAL(held, 0);
  }
  ann_context_free(context);
  free(ids);
  munmap(memory, memory_bytes);
  vectors_free(&rows);
}

int main(void) {
  const int count = 240 / test_scale();
  for (int i = 0; i < count; i++) one((uint64_t)i);
  printf("  %d calibrate on borrowed rows far apart, %d compare few rows where NN-Descent was asked for\n",
         far_apart, few_rows);
  CHECK(far_apart >= count / 30 && few_rows >= count / 30);
  return finish("memory_property");
}
