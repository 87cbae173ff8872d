/* Proves that memory may lie anywhere: data and queries at every offset from a cache line, with any
 * stride, beside memory that may not be read, and result buffers at odd addresses of their type. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ann.h"
#include "check.h"
#include "support.h"

enum { N = 60, Q = 8, K = 5 };

/* `set` copied to `offset` bytes behind a cache line, `stride` bytes from row to row. */
static ann_matrix moved(const vectors *set, unsigned char *memory, size_t offset, size_t stride) {
  const size_t bytes = set->dim * element_size(set->element);
  ann_matrix view = vectors_view(set);
  memset(memory, 0xff, offset + stride * set->rows); /* NaN between the rows */
  for (uint64_t row = 0; row < set->rows; row++)
    memcpy(memory + offset + row * stride, vectors_row(set, row), bytes);
  view.data = memory + offset;
  view.row_stride = stride;
  return view;
}

static void offsets_and_strides(void) {
  for (int e = 0; e < ELEMENTS; e++)
    for (uint32_t dim = 3; dim <= 37; dim += 34) {
      const int32_t element = all_elements[e];
      const size_t packed = dim * element_size(element);
      vectors rows = vectors_make(DATA_NORMAL, element, N, dim, 1);
      vectors queries = vectors_make(DATA_NORMAL, element, Q, dim, 2);
      ann_index *plain = index_build(ANN_METRIC_L2, &rows, NULL);
      const uint64_t graph = index_hash(plain);
      answers wanted = answers_make(Q, K), exact = answers_make(Q, K);
      CHECK_OK(index_search(plain, &queries, ANN_SEARCH_AUTO, 0, &wanted));
      CHECK_OK(index_search(plain, &queries, ANN_SEARCH_EXACT, 0, &exact));
      unsigned char *memory = aligned_alloc(64, 1 << 17);
      for (size_t offset = 0; offset < 64; offset++) {
        if (offset != 0 && !test_takes((int)(offset + offset / 3 + dim) + e)) continue;
        const size_t stride = offset % 3 == 0 ? packed : packed + (offset * 7) % 61;
        ann_build_params params = ANN_BUILD_PARAMS_INIT;
        /* Borrowing at odd addresses has a check of its own. */
        const size_t size = element_size(element);
        const int aligned = offset % size == 0 && stride % size == 0;
        params.rows_mode = aligned && offset % 3 ? ANN_ROWS_BORROW : ANN_ROWS_COPY;
        const ann_matrix view = moved(&rows, memory, offset, stride);
        ann_index *index = index_make(dim, ANN_METRIC_L2, ANN_ELEMENT_AUTO);
        CHECK_OK(ann_build(index, &view, NULL, &params, NULL, NULL));
        CHECK_SAY(index_hash(index) == graph, "%s dim %u offset %zu stride %zu: another graph",
                  element_name(element), dim, offset, stride);
        unsigned char *query_memory = memory + (1 << 16);
        const ann_matrix asked = moved(&queries, query_memory, 63 - offset, stride);
        answers found = answers_make(Q, K);
        ann_results results = answers_view(&found);
        CHECK_OK(ann_search_batch(index, &asked, NULL, &results, NULL, NULL));
        CHECK_SAY(answers_equal(&found, &wanted), "%s dim %u offset %zu stride %zu: other answers",
                  element_name(element), dim, offset, stride);
        CHECK_OK(ann_search_exact(index, &asked, NULL, &results, NULL, NULL));
        CHECK_SAY(answers_equal(&found, &exact), "%s dim %u offset %zu: other exact answers",
                  element_name(element), dim, offset);
        unsigned char vector[37 * 4];
        int32_t there = 0;
        CHECK_OK(ann_index_get(index, N - 1, vector, sizeof vector, &there, NULL));
        CHECK(memcmp(vector, vectors_row(&rows, N - 1), packed) == 0);
        uint32_t neighbors[N * K];
        static uint32_t first[N * K];
        ann_knn_params knn = ANN_KNN_PARAMS_INIT;
        knn.k = K;
        CHECK_OK(ann_knn_graph(NULL, &view, &knn, neighbors, NULL, NULL, NULL));
        if (offset == 0) memcpy(first, neighbors, sizeof first);
        CHECK(memcmp(first, neighbors, sizeof first) == 0);
        answers_free(&found);
        ann_index_free(index);
      }
      free(memory);
      answers_free(&wanted);
      answers_free(&exact);
      ann_index_free(plain);
      vectors_free(&rows);
      vectors_free(&queries);
    }
}

/* "Any alignment is accepted": rows that are borrowed, too. */
static void borrowed_at_odd_addresses(void) {
  for (int e = 0; e < 3; e++) {
    vectors rows = vectors_make(DATA_NORMAL, all_elements[e], N, 5, 1);
    const size_t bytes = 5 * element_size(all_elements[e]);
    unsigned char *memory = aligned_alloc(64, 4096);
    const ann_matrix view = moved(&rows, memory, 1, bytes + 1);
    ann_build_params params = ANN_BUILD_PARAMS_INIT;
    params.rows_mode = ANN_ROWS_BORROW;
    ann_index *index = index_make(5, ANN_METRIC_L2, ANN_ELEMENT_AUTO);
    ann_error error = ANN_ERROR_INIT;
    CHECK_SAY(ann_build(index, &view, NULL, &params, NULL, &error) == ANN_OK, "%s: %s",
              element_name(all_elements[e]), error.message);
    ann_index_free(index);
    free(memory);
    vectors_free(&rows);
  }
}

/* The last byte of the data is the last of a page, and the next page cannot be touched; likewise
 * in front of the first byte. */
static void guarded(void) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  for (int e = 0; e < ELEMENTS; e++)
    for (int m = 0; m < METRICS; m++)
      for (uint32_t dim = 1; dim <= 70; dim += 1 + dim / 20) {
        if (!test_takes(e + m + (int)dim)) continue;
        const int32_t element = all_elements[e];
        const size_t size = element_size(element), bytes = N * dim * size;
        const size_t pages = (bytes + page - 1) / page;
        unsigned char *area = mmap(NULL, (pages + 2) * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        mprotect(area + page, pages * page, PROT_READ | PROT_WRITE);
        vectors rows = vectors_make(DATA_NORMAL, element, N, dim, 3);
        for (int at_end = 0; at_end < 2; at_end++) {
          unsigned char *data = at_end ? area + (pages + 1) * page - bytes : area + page;
          memcpy(data, rows.data, bytes);
          vectors inside = rows;
          inside.data = data;
          ann_build_params params = ANN_BUILD_PARAMS_INIT;
          params.rows_mode = ANN_ROWS_BORROW;
          params.calibrate = ANN_OFF;
          params.degree = 8;
          ann_index *index = index_build(all_metrics[m], &inside, &params);
          answers found = answers_make(N, K);
          CHECK_OK(index_search(index, &inside, ANN_SEARCH_BEST_FIRST, N, &found));
          CHECK_OK(index_search(index, &inside, ANN_SEARCH_EXACT, 0, &found));
          if (all_metrics[m] == ANN_METRIC_L2 && dim > 8) CHECK_EQUAL(found.ids[K * 9], 9);
          answers_free(&found);
          ann_index_free(index);
        }
        munmap(area, (pages + 2) * page);
        vectors_free(&rows);
      }
}

/* Result buffers that touch, but do not overlap, each other and the queries. */
static void neighbouring_buffers(void) {
  vectors rows = vectors_make(DATA_NORMAL, ANN_F32, N, 4, 4);
  ann_index *index = index_build(ANN_METRIC_L2, &rows, NULL);
  answers wanted = answers_make(Q, K);
  vectors few = rows;
  few.rows = Q;
  CHECK_OK(index_search(index, &few, ANN_SEARCH_AUTO, 0, &wanted));
  const size_t query_bytes = Q * 4 * 4;
  unsigned char *block = malloc(query_bytes + Q * K * 12 + Q * 8);
  memcpy(block, rows.data, query_bytes);
  ann_matrix view = vectors_view(&few);
  view.data = block;
  ann_results results = ANN_RESULTS_INIT;
  results.k = K;
  results.rows = Q;
  results.ids = (uint64_t *)(block + query_bytes);
  results.distances = (float *)(results.ids + Q * K);
  results.counts = (uint32_t *)(results.distances + Q * K);
  results.status = (ann_status *)(results.counts + Q);
  CHECK_OK(ann_search_batch(index, &view, NULL, &results, NULL, NULL));
  CHECK(memcmp(results.ids, wanted.ids, Q * K * 8) == 0);
  CHECK(memcmp(results.distances, wanted.distances, Q * K * 4) == 0);
  CHECK(memcmp(results.counts, wanted.counts, Q * 4) == 0);
  CHECK(memcmp(results.status, wanted.status, Q * 4) == 0);
  CHECK(memcmp(block, rows.data, query_bytes) == 0);
  free(block);
  answers_free(&wanted);
  ann_index_free(index);
  vectors_free(&rows);
}

int main(void) {
  offsets_and_strides();
  borrowed_at_odd_addresses();
  guarded();
  neighbouring_buffers();
  return finish("layout");
}
