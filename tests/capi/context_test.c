/* Proves section 5 (contexts) and 7 (devices): arguments, hooks that are balanced and aligned,
 * lifetimes in any order, and questions about devices. */
#include <stdlib.h>
#include <string.h>

#include "ann.h"
#include "check.h"
#include "refuse.h"
#include "support.h"

static uint64_t taken, given_back, badly_aligned, wrong_size, blocks;

static void *counting_allocate(void *user, size_t bytes, size_t alignment) {
  (void)user;
  void *memory = NULL;
  if (alignment == 0 || (alignment & (alignment - 1)) != 0 || alignment > 4096) {
    __atomic_add_fetch(&badly_aligned, 1, __ATOMIC_RELAXED);
    alignment = 64;
  }
  if (posix_memalign(&memory, alignment < 64 ? 64 : alignment, bytes + 64) != 0) return NULL;
  /* The size stands behind the block, so that `release` can be compared with `allocate`. */
  memcpy((char *)memory + bytes, &bytes, sizeof bytes);
  __atomic_add_fetch(&taken, bytes, __ATOMIC_RELAXED);
  __atomic_add_fetch(&blocks, 1, __ATOMIC_RELAXED);
  return memory;
}

static void counting_release(void *user, void *memory, size_t bytes, size_t alignment) {
  (void)user;
  (void)alignment;
  size_t noted;
  memcpy(&noted, (char *)memory + bytes, sizeof noted);
  if (noted != bytes) __atomic_add_fetch(&wrong_size, 1, __ATOMIC_RELAXED);
  __atomic_add_fetch(&given_back, bytes, __ATOMIC_RELAXED);
  free(memory);
}

static void arguments(void) {
  ann_context *context = NULL;
  ann_context_params params = ANN_CONTEXT_PARAMS_INIT;
  REFUSED(ann_context_create(&params, NULL, &error), ANN_INVALID_ARGUMENT, "out");
  CHECK_STATUS(ann_context_create(&params, NULL, NULL), ANN_INVALID_ARGUMENT);
  params.allocate = counting_allocate;
  REFUSED(ann_context_create(&params, &context, &error), ANN_INVALID_ARGUMENT, "release");
  params.allocate = NULL;
  params.release = counting_release;
  REFUSED(ann_context_create(&params, &context, &error), ANN_INVALID_ARGUMENT, "allocate");
  CHECK(context == NULL);
  CHECK_OK(ann_context_create(NULL, &context, NULL));
  CHECK(context != NULL);
  ann_context_free(context);
  ann_context_free(NULL);
}

/* The index is used after its context is gone, and everything that was taken is given back. */
static void hooks(void) {
  ann_context_params params = ANN_CONTEXT_PARAMS_INIT;
  params.allocate = counting_allocate;
  params.release = counting_release;
  for (int order = 0; order < 2; order++) {
    ann_context *context = NULL;
    ann_index *index = NULL;
    ann_index_params shape = ANN_INDEX_PARAMS_INIT;
    shape.dim = 12;
    CHECK_OK(ann_context_create(&params, &context, NULL));
    CHECK_OK(ann_index_create(context, &shape, &index, NULL));
    if (order == 0) ann_context_free(context);
    vectors rows = vectors_make(DATA_NORMAL, ANN_F32, 500, 12, 1);
    const ann_matrix view = vectors_view(&rows);
    CHECK_OK(ann_build(index, &view, NULL, NULL, NULL, NULL));
    CHECK(taken > given_back);
    answers found = answers_make(rows.rows, 5);
    CHECK_OK(index_search(index, &rows, ANN_SEARCH_AUTO, 0, &found));
    CHECK_OK(index_search(index, &rows, ANN_SEARCH_EXACT, 0, &found));
    for (uint64_t q = 0; q < rows.rows; q++) CHECK_EQUAL(found.ids[q * 5], q);
    if (order == 1) {
      uint32_t neighbors[500 * 4];
      ann_knn_params knn = ANN_KNN_PARAMS_INIT;
      knn.k = 4;
      CHECK_OK(ann_knn_graph(context, &view, &knn, neighbors, NULL, NULL, NULL));
    }
    ann_index_free(index);
    if (order == 1) ann_context_free(context);
    answers_free(&found);
    vectors_free(&rows);
    CHECK_SAY(taken == given_back, "%llu bytes taken, %llu given back", (unsigned long long)taken,
              (unsigned long long)given_back);
  }
  CHECK_EQUAL(badly_aligned, 0);
  CHECK_EQUAL(wrong_size, 0);
  /* The rows, the edges and the k-NN graph at least come from the hook. */
  CHECK_SAY(blocks >= 6, "only %llu blocks came from the hook", (unsigned long long)blocks);
}

static void thread_cap(void) {
  ann_context_params params = ANN_CONTEXT_PARAMS_INIT;
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  shape.dim = 4;
  params.threads_max = 1;
  ann_context *context = NULL;
  ann_index *index = NULL;
  CHECK_OK(ann_context_create(&params, &context, NULL));
  CHECK_OK(ann_index_create(context, &shape, &index, NULL));
  vectors rows = vectors_make(DATA_NORMAL, ANN_F32, 300, 4, 2);
  const ann_matrix view = vectors_view(&rows);
  ann_build_params build = ANN_BUILD_PARAMS_INIT;
  build.threads = 8; /* more than the cap: the cap wins, and nothing else changes */
  CHECK_OK(ann_build(index, &view, NULL, &build, NULL, NULL));
  ann_index *free_index = index_build(ANN_METRIC_L2, &rows, NULL);
  CHECK(index_hash(index) == index_hash(free_index));
  ann_index_free(free_index);
  ann_index_free(index);
  ann_context_free(context);
  vectors_free(&rows);
}

static void devices(void) {
  uint32_t count = 0;
  const char *reason = NULL;
  ann_device_info info = ANN_DEVICE_INFO_INIT;
  REFUSED(ann_device_get_info(ANN_DEVICE_CPU, NULL, &error), ANN_INVALID_ARGUMENT, "out");
  CHECK_OK(ann_device_get_info(ANN_DEVICE_CPU, &info, NULL));
  CHECK_EQUAL(info.device, ANN_DEVICE_CPU);
  CHECK(info.memory_total > 1u << 20 && info.memory_free <= info.memory_total);
  CHECK(info.compute_units >= 1);
  CHECK_EQUAL(info.capability, 0);
  CHECK(memchr(info.name, 0, sizeof info.name) != NULL);
  REFUSED(ann_device_get_info(-1, &info, &error), ANN_INVALID_ARGUMENT, "device -1");
  REFUSED(ann_device_get_info(INT32_MIN, &info, &error), ANN_INVALID_ARGUMENT, "device");
  REFUSED(ann_device_count(NULL, &reason, &error), ANN_INVALID_ARGUMENT, "count");
  CHECK_OK(ann_device_count(&count, &reason, NULL));
  CHECK(count >= 1 && reason != NULL);
  if (reason) CHECK_EQUAL(count > 1, reason[0] == 0);
  CHECK_OK(ann_device_count(&count, NULL, NULL));
  const ann_device_info before = info;
  REFUSED(ann_device_get_info(ANN_DEVICE_CUDA + 1000, &info, &error), ANN_NO_DEVICE, "");
  REFUSED_OR(ann_device_get_info(INT32_MAX, &info, &error), ANN_NO_DEVICE, ANN_INVALID_ARGUMENT, "");
  CHECK(memcmp(&before, &info, sizeof info) == 0);
  for (uint32_t i = 0; i + 1 < count; i++) {
    CHECK_OK(ann_device_get_info(ANN_DEVICE_CUDA + (int32_t)i, &info, NULL));
    CHECK_EQUAL(info.device, ANN_DEVICE_CUDA + (int32_t)i);
    CHECK(info.capability >= 10);
  }
}

int main(void) {
  arguments();
  hooks();
  thread_cap();
  devices();
  return finish("context");
}
