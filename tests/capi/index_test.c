/* Proves section 8 of the header: making, freeing and asking an index; each argument null or out of
 * range in turn; each function on an index without rows, without a graph and not built. */
#include <stdlib.h>
#include <string.h>

#include "ann.h"
#include "check.h"
#include "refuse.h"
#include "support.h"

static void create_arguments(void) {
  ann_index *index = NULL;
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  shape.dim = 8;
  REFUSED(ann_index_create(NULL, &shape, NULL, &error), ANN_INVALID_ARGUMENT, "out");
  CHECK_STATUS(ann_index_create(NULL, &shape, NULL, NULL), ANN_INVALID_ARGUMENT);
  /* No params means zeros, and a dim has no default. */
  REFUSED(ann_index_create(NULL, NULL, &index, &error), ANN_INVALID_ARGUMENT, "");
  shape.dim = 0;
  REFUSED(ann_index_create(NULL, &shape, &index, &error), ANN_INVALID_ARGUMENT, "dim 0 32768");
  shape.dim = ANN_DIM_MAX + 1;
  REFUSED(ann_index_create(NULL, &shape, &index, &error), ANN_LIMIT, "dim 32769 32768");
  shape.dim = UINT32_MAX;
  REFUSED(ann_index_create(NULL, &shape, &index, &error), ANN_LIMIT, "dim 4294967295");
  shape.dim = 8;
  const int32_t odd[] = {-1, 4, 5, 6, 99, 255, 256, INT32_MAX, INT32_MIN};
  for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
    char words[40];
    snprintf(words, sizeof words, "metric %d", odd[i]);
    shape.metric = odd[i];
    REFUSED(ann_index_create(NULL, &shape, &index, &error), ANN_INVALID_ARGUMENT, words);
    shape.metric = 0;
    if (odd[i] == 4 || odd[i] == 5) continue;
    snprintf(words, sizeof words, "element %d", odd[i]);
    shape.element = odd[i];
    REFUSED(ann_index_create(NULL, &shape, &index, &error), ANN_INVALID_ARGUMENT, words);
    shape.element = 0;
  }
  CHECK(index == NULL);
  shape.dim = ANN_DIM_MAX;
  CHECK_OK(ann_index_create(NULL, &shape, &index, NULL));
  ann_index_free(index);
  ann_index_free(NULL);
}

/* State by function, before a build. */
static void not_built(void) {
  ann_index *index = index_make(8, ANN_METRIC_COSINE, ANN_F16);
  ann_index_info info = ANN_INDEX_INFO_INIT;
  CHECK_OK(ann_index_get_info(index, &info, NULL));
  CHECK_EQUAL(info.dim, 8);
  CHECK_EQUAL(info.metric, ANN_METRIC_COSINE);
  CHECK_EQUAL(info.element, ANN_F16);
  CHECK_EQUAL(info.built, 0);
  CHECK_EQUAL(info.graph, 0);
  CHECK_EQUAL(info.rows, 0);
  uint32_t degree = 77, beam = 77, edges[8];
  int32_t found = 77;
  uint16_t vector[8];
  ann_graph_stats stats = ANN_GRAPH_STATS_INIT;
  REFUSED(ann_index_get(index, 0, vector, sizeof vector, &found, &error), ANN_STATE, "");
  uint64_t ids[2] = {0, 77};
  REFUSED(ann_index_get_batch(index, ids, 1, vector, sizeof vector, &found, &error), ANN_STATE, "");
  REFUSED(ann_index_get_batch(index, NULL, 0, NULL, 0, NULL, &error), ANN_STATE, "");
  REFUSED(ann_index_ids(index, 0, 1, &ids[1], &error), ANN_STATE, "");
  REFUSED(ann_index_ids(index, 0, 0, NULL, &error), ANN_STATE, "");
  CHECK_EQUAL(ids[1], 77);
  REFUSED(ann_index_graph(index, edges, 8, &degree, &error), ANN_STATE, "");
  REFUSED(ann_index_graph(index, NULL, 0, &degree, &error), ANN_STATE, "");
  REFUSED(ann_index_graph_stats(index, &stats, &error), ANN_STATE, "");
  REFUSED(ann_index_beam(index, 10, 0, &beam, &error), ANN_STATE, "");
  vectors queries = vectors_make(DATA_NORMAL, ANN_F32, 3, 8, 1);
  ann_matrix view = vectors_view(&queries);
  answers answer = answers_make(3, 2);
  ann_results results = answers_view(&answer);
  REFUSED(ann_search_batch(index, &view, NULL, &results, NULL, &error), ANN_STATE, "");
  REFUSED(ann_search_exact(index, &view, NULL, &results, NULL, &error), ANN_STATE, "");
  view.rows = results.rows = 0;
  REFUSED(ann_search_batch(index, &view, NULL, &results, NULL, &error), ANN_STATE, "");
  /* Nothing that the caller can see has changed. */
  answers untouched = answers_make(3, 2);
  CHECK(answers_equal(&answer, &untouched));
  CHECK(degree == 77 && beam == 77 && found == 77);
  ann_index_free(index);
  index = index_make(8, ANN_METRIC_AUTO, ANN_ELEMENT_AUTO);
  CHECK_OK(ann_index_get_info(index, &info, NULL));
  CHECK_EQUAL(info.metric, ANN_METRIC_L2);
  CHECK_EQUAL(info.element, ANN_ELEMENT_AUTO);
  ann_index_free(index);
  answers_free(&answer);
  answers_free(&untouched);
  vectors_free(&queries);
}

static void built(void) {
  enum { N = 120, DIM = 8 };
  vectors rows = vectors_make(DATA_NORMAL, ANN_F32, N, DIM, 2);
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.degree = 16;
  params.seed = 99;
  ann_index *index = index_build(ANN_METRIC_L2, &rows, &params);
  ann_index_info info = ANN_INDEX_INFO_INIT;
  REFUSED(ann_index_get_info(NULL, &info, &error), ANN_INVALID_ARGUMENT, "index");
  REFUSED(ann_index_get_info(index, NULL, &error), ANN_INVALID_ARGUMENT, "out");
  CHECK_OK(ann_index_get_info(index, &info, NULL));
  CHECK_EQUAL(info.dim, DIM);
  CHECK_EQUAL(info.element, ANN_F32);
  CHECK_EQUAL(info.built, 1);
  CHECK_EQUAL(info.graph, ANN_GRAPH_CAGRA);
  CHECK_EQUAL(info.rows, N);
  CHECK_EQUAL(info.degree, 16);
  CHECK_EQUAL(info.seed, 99);
  CHECK(info.entry_points >= 1);
  CHECK(info.memory_bytes >= N * DIM * 4 + N * 16 * 4);
  CHECK(info.build_seconds > 0 && info.calibrate_seconds <= info.build_seconds);

  float vector[DIM];
  int32_t found = 77;
  REFUSED(ann_index_get(NULL, 0, vector, sizeof vector, &found, &error), ANN_INVALID_ARGUMENT, "index");
  REFUSED(ann_index_get(index, 0, vector, sizeof vector, NULL, &error), ANN_INVALID_ARGUMENT, "found");
  REFUSED(ann_index_get(index, 0, vector, sizeof vector - 1, &found, &error), ANN_INVALID_ARGUMENT,
          "capacity 31 32");
  REFUSED(ann_index_get(index, 0, vector, 0, &found, &error), ANN_INVALID_ARGUMENT, "capacity");
  CHECK_EQUAL(found, 77);
  CHECK_OK(ann_index_get(index, 5, vector, sizeof vector, &found, NULL));
  CHECK_EQUAL(found, 1);
  CHECK(memcmp(vector, vectors_row(&rows, 5), sizeof vector) == 0);
  CHECK_OK(ann_index_get(index, N, vector, sizeof vector, &found, NULL));
  CHECK_EQUAL(found, 0);
  CHECK(memcmp(vector, vectors_row(&rows, 5), sizeof vector) == 0);
  CHECK_OK(ann_index_get(index, ANN_ID_NONE, NULL, 0, &found, NULL));
  CHECK_EQUAL(found, 0);
  CHECK_OK(ann_index_get(index, N - 1, NULL, 0, &found, NULL));
  CHECK_EQUAL(found, 1);

  uint32_t degree = 0;
  static uint32_t edges[N * 16 + 1];
  REFUSED(ann_index_graph(NULL, edges, N * 16, &degree, &error), ANN_INVALID_ARGUMENT, "index");
  REFUSED(ann_index_graph(index, edges, N * 16, NULL, &error), ANN_INVALID_ARGUMENT, "degree");
  REFUSED(ann_index_graph(index, edges, N * 16 - 1, &degree, &error), ANN_INVALID_ARGUMENT,
          "capacity 1919 1920");
  CHECK_OK(ann_index_graph(index, NULL, 0, &degree, NULL));
  CHECK_EQUAL(degree, 16);
  edges[N * 16] = 4711;
  CHECK_OK(ann_index_graph(index, edges, N * 16, &degree, NULL));
  CHECK_EQUAL(edges[N * 16], 4711);

  ann_graph_stats stats = ANN_GRAPH_STATS_INIT;
  REFUSED(ann_index_graph_stats(NULL, &stats, &error), ANN_INVALID_ARGUMENT, "index");
  REFUSED(ann_index_graph_stats(index, NULL, &error), ANN_INVALID_ARGUMENT, "out");

  uint32_t beam = 0;
  REFUSED(ann_index_beam(NULL, 10, 0, &beam, &error), ANN_INVALID_ARGUMENT, "index");
  REFUSED(ann_index_beam(index, 10, 0, NULL, &error), ANN_INVALID_ARGUMENT, "beam");
  REFUSED(ann_index_beam(index, 0, 0, &beam, &error), ANN_INVALID_ARGUMENT, "k");
  REFUSED(ann_index_beam(index, 10, -0.5f, &beam, &error), ANN_INVALID_ARGUMENT, "recall");
  REFUSED(ann_index_beam(index, 10, 1.01f, &beam, &error), ANN_INVALID_ARGUMENT, "recall");
  uint32_t last = 0;
  for (int percent = 10; percent <= 100; percent += 5) {
    CHECK_OK(ann_index_beam(index, 10, (float)percent / 100, &beam, NULL));
    CHECK_SAY(beam >= 10 && beam <= ANN_BEAM_MAX && beam >= last, "recall %d %%: beam %u after %u", percent,
              beam, last);
    last = beam;
  }
  uint32_t at_default = 0, at_95 = 0;
  CHECK_OK(ann_index_beam(index, 10, 0, &at_default, NULL));
  CHECK_OK(ann_index_beam(index, 10, 0.95f, &at_95, NULL));
  CHECK_EQUAL(at_default, at_95);
  ann_index_free(index);

  /* Without calibration the rule of the header holds to the letter. */
  params.calibrate = ANN_OFF;
  index = index_build(ANN_METRIC_L2, &rows, &params);
  CHECK_OK(ann_index_beam(index, 10, 0.95f, &beam, NULL));
  CHECK_EQUAL(beam, 4 * 10 + 64);
  CHECK_OK(ann_index_beam(index, 10, 0.5f, &beam, NULL));
  CHECK_EQUAL(beam, 4 * 10 + 64);
  CHECK_OK(ann_index_beam(index, 10, 0.97f, &beam, NULL));
  CHECK(beam >= 104 && beam <= 208);
  /* 0.05, 0.025, 0.0125, ... are the corners; between two of them either is a fair reading. */
  CHECK_OK(ann_index_beam(index, 10, 0.98f, &beam, NULL));
  CHECK_SAY(beam >= 208 && beam <= 416, "recall 0.98 gives beam %u, wanted 208 to 416", beam);
  CHECK_OK(ann_index_beam(index, 10, 0.99f, &beam, NULL));
  CHECK_SAY(beam >= 416 && beam <= 832, "recall 0.99 gives beam %u, wanted 416 to 832", beam);
  CHECK_OK(ann_index_get_info(index, &info, NULL));
  CHECK(info.recall_max == 0 && info.calibrate_seconds == 0);
  ann_index_free(index);
  vectors_free(&rows);
}

/* Lists of ids and vectors by lists of ids, on an index with ids of the caller's or without. */
static void lists(int with_ids, int32_t element) {
  enum { N = 300, DIM = 7 };
  vectors rows = vectors_make(DATA_NORMAL, element, N, DIM, 6);
  const size_t bytes = DIM * element_size(element);
  uint64_t ids[N];
  for (uint64_t i = 0; i < N; i++) ids[i] = with_ids ? (i * 7919 + 13) % 100003 * 1000003 : i;
  ids[N - 1] = with_ids ? ANN_ID_NONE - 1 : N - 1;
  ann_index *index = index_make(DIM, ANN_METRIC_L2, ANN_ELEMENT_AUTO);
  const ann_matrix view = vectors_view(&rows);
  CHECK_OK(ann_build(index, &view, with_ids ? ids : NULL, NULL, NULL, NULL));

  /* The whole list, and pieces of every length with a guard behind them. */
  uint64_t got[N + 1];
  got[N] = 4711;
  CHECK_OK(ann_index_ids(index, 0, N, got, NULL));
  CHECK(memcmp(got, ids, sizeof ids) == 0 && got[N] == 4711);
  for (uint64_t length = 1; length <= N; length += 37)
    for (uint64_t first = 0; first < N; first += length) {
      const uint64_t count = first + length > N ? N - first : length;
      got[count] = 4711;
      CHECK_OK(ann_index_ids(index, first, count, got, NULL));
      CHECK(memcmp(got, ids + first, count * sizeof *ids) == 0 && got[count] == 4711);
    }
  CHECK_OK(ann_index_ids(index, 0, 0, NULL, NULL));
  CHECK_OK(ann_index_ids(index, N, 0, NULL, NULL));
  memset(got, 0x55, sizeof got);
  uint64_t before[N + 1];
  memcpy(before, got, sizeof got);
  REFUSED(ann_index_ids(NULL, 0, 1, got, &error), ANN_INVALID_ARGUMENT, "index");
  REFUSED(ann_index_ids(index, 0, 1, NULL, &error), ANN_INVALID_ARGUMENT, "ids");
  REFUSED(ann_index_ids(index, 0, N + 1, got, &error), ANN_INVALID_ARGUMENT, "first 0 count 301 300");
  REFUSED(ann_index_ids(index, N, 1, got, &error), ANN_INVALID_ARGUMENT, "first 300 count 1");
  REFUSED(ann_index_ids(index, N + 1, 0, NULL, &error), ANN_INVALID_ARGUMENT, "first 301 count 0");
  REFUSED(ann_index_ids(index, UINT64_MAX, 2, got, &error), ANN_INVALID_ARGUMENT, "first count 2");
  REFUSED(ann_index_ids(index, 1, UINT64_MAX, got, &error), ANN_INVALID_ARGUMENT, "first 1 count");
  CHECK(memcmp(got, before, sizeof got) == 0);

  /* Backwards, every second twice, one that is no row's in the middle. */
  enum { M = 2 * N + 1 };
  static uint64_t wanted[M];
  static int32_t found[M + 1];
  const uint64_t nobody = with_ids ? 5 : N;
  for (uint64_t i = 0; i < M; i++) wanted[i] = i == N ? nobody : ids[(M - 1 - i) % N / 2 * 2];
  unsigned char *data = malloc(M * bytes + 1);
  memset(data, 0xab, M * bytes + 1);
  memset(found, 0x33, sizeof found);
  CHECK_OK(ann_index_get_batch(index, wanted, M, data, M * bytes, found, NULL));
  for (uint64_t i = 0; i < M; i++) {
    CHECK_EQUAL(found[i], i != N);
    const uint64_t row = (M - 1 - i) % N / 2 * 2;
    if (i != N) CHECK(memcmp(data + i * bytes, vectors_row(&rows, row), bytes) == 0);
  }
  for (size_t b = 0; b < bytes; b++) CHECK_EQUAL(data[N * bytes + b], 0xab);
  CHECK_EQUAL(data[M * bytes], 0xab);
  CHECK_EQUAL(found[M], 0x33333333);
  memset(found, 0x33, sizeof found);
  CHECK_OK(ann_index_get_batch(index, wanted, M, NULL, 0, found, NULL));
  CHECK(found[0] == 1 && found[N] == 0 && found[M - 1] == 1 && found[M] == 0x33333333);

  /* Without `found` all must be there, or nothing is written. */
  memset(data, 0xab, M * bytes);
  ann_error refusal = ANN_ERROR_INIT;
  CHECK_STATUS(ann_index_get_batch(index, wanted, M, data, M * bytes, NULL, &refusal), ANN_INVALID_ARGUMENT);
  CHECK_EQUAL(refusal.row, N);
  CHECK_EQUAL(refusal.column, UINT64_MAX);
  CHECK(strstr(refusal.message, "ids[300]") != NULL);
  for (size_t b = 0; b < M * bytes; b++)
    if (data[b] != 0xab) CHECK_SAY(0, "byte %zu was written", b);
  CHECK_OK(ann_index_get_batch(index, wanted, N, data, N * bytes, NULL, NULL));
  CHECK(memcmp(data, vectors_row(&rows, (M - 1) % N / 2 * 2), bytes) == 0);

  CHECK_OK(ann_index_get_batch(index, NULL, 0, NULL, 0, NULL, NULL));
  memset(found, 0x33, sizeof found);
  REFUSED(ann_index_get_batch(NULL, wanted, 1, data, bytes, found, &error), ANN_INVALID_ARGUMENT, "index");
  REFUSED(ann_index_get_batch(index, NULL, 1, data, bytes, found, &error), ANN_INVALID_ARGUMENT, "ids");
  REFUSED(ann_index_get_batch(index, wanted, 3, data, 3 * bytes - 1, found, &error), ANN_INVALID_ARGUMENT,
          "capacity 3");
  REFUSED(ann_index_get_batch(index, wanted, UINT64_MAX / 2, data, M * bytes, found, &error),
          ANN_INVALID_ARGUMENT, "capacity");
  CHECK_EQUAL(found[0], 0x33333333);
  free(data);
  ann_index_free(index);
  vectors_free(&rows);
}

static void without_graph(void) {
  vectors rows = vectors_make(DATA_NORMAL, ANN_I8, 50, 8, 4);
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.graph = ANN_GRAPH_NONE;
  ann_index *index = index_build(ANN_METRIC_L2, &rows, &params);
  ann_index_info info = ANN_INDEX_INFO_INIT;
  CHECK_OK(ann_index_get_info(index, &info, NULL));
  CHECK_EQUAL(info.graph, ANN_GRAPH_NONE);
  CHECK_EQUAL(info.built, 1);
  CHECK_EQUAL(info.element, ANN_I8);
  uint32_t degree = 0, beam = 0;
  ann_graph_stats stats = ANN_GRAPH_STATS_INIT;
  REFUSED(ann_index_graph(index, NULL, 0, &degree, &error), ANN_UNSUPPORTED, "");
  REFUSED(ann_index_graph_stats(index, &stats, &error), ANN_UNSUPPORTED, "");
  REFUSED(ann_index_beam(index, 10, 0, &beam, &error), ANN_UNSUPPORTED, "");
  answers found = answers_make(50, 3), exact = answers_make(50, 3);
  CHECK_OK(index_search(index, &rows, ANN_SEARCH_AUTO, 0, &found));
  CHECK_OK(index_search(index, &rows, ANN_SEARCH_EXACT, 0, &exact));
  CHECK(answers_equal(&found, &exact));
  CHECK_STATUS(index_search(index, &rows, ANN_SEARCH_BEST_FIRST, 0, &found), ANN_UNSUPPORTED);
  answers_free(&found);
  answers_free(&exact);
  ann_index_free(index);
  vectors_free(&rows);
}

static void without_rows(void) {
  for (int graph = ANN_GRAPH_AUTO; graph <= ANN_GRAPH_NONE; graph++) {
    ann_index *index = index_make(8, ANN_METRIC_L2, ANN_ELEMENT_AUTO);
    ann_matrix none = ANN_MATRIX_INIT;
    none.element = ANN_F32;
    none.dim = 8;
    ann_build_params params = ANN_BUILD_PARAMS_INIT;
    params.graph = graph;
    CHECK_OK(ann_build(index, &none, NULL, &params, NULL, NULL));
    vectors queries = vectors_make(DATA_NORMAL, ANN_F32, 4, 8, 1);
    answers found = answers_make(4, 3);
    CHECK_OK(index_search(index, &queries, ANN_SEARCH_AUTO, 0, &found));
    for (int i = 0; i < 12; i++) CHECK(found.ids[i] == ANN_ID_NONE && found.distances[i] > 1e38f);
    for (int i = 0; i < 4; i++) CHECK(found.counts[i] == 0 && found.status[i] == ANN_OK);
    CHECK_OK(index_search(index, &queries, ANN_SEARCH_EXACT, 0, &found));
    CHECK_EQUAL(found.counts[0], 0);
    int32_t there = 77;
    CHECK_OK(ann_index_get(index, 0, NULL, 0, &there, NULL));
    CHECK_EQUAL(there, 0);
    const uint64_t id = 0;
    there = 77;
    CHECK_OK(ann_index_get_batch(index, &id, 1, NULL, 0, &there, NULL));
    CHECK_EQUAL(there, 0);
    CHECK_OK(ann_index_ids(index, 0, 0, NULL, NULL));
    if (graph != ANN_GRAPH_NONE) {
      ann_graph_stats stats = ANN_GRAPH_STATS_INIT;
      uint32_t degree = 77;
      CHECK_OK(ann_index_graph(index, NULL, 0, &degree, NULL));
      CHECK_OK(ann_index_graph_stats(index, &stats, NULL));
      CHECK_EQUAL(stats.rows, 0);
      CHECK_EQUAL(stats.unreachable, 0);
    }
    ann_index_free(index);
    answers_free(&found);
    vectors_free(&queries);
  }
}

/* Copies on devices, as far as they go without one. */
static void placement_arguments(void) {
  ann_index *index = index_make(8, ANN_METRIC_L2, ANN_ELEMENT_AUTO);
  CHECK_STATUS(ann_index_place(NULL, ANN_DEVICE_CUDA, NULL, NULL), ANN_INVALID_ARGUMENT);
  CHECK_STATUS(ann_index_evict(NULL, ANN_DEVICE_CUDA, NULL), ANN_INVALID_ARGUMENT);
  for (int32_t device = -1; device <= ANN_DEVICE_CPU; device++) {
    CHECK_STATUS(ann_index_place(index, device, NULL, NULL), ANN_INVALID_ARGUMENT);
    CHECK_STATUS(ann_index_evict(index, device, NULL), ANN_INVALID_ARGUMENT);
  }
  CHECK_STATUS(ann_index_place(index, ANN_DEVICE_CUDA, NULL, NULL), ANN_STATE);
  CHECK_STATUS(ann_index_evict(index, ANN_DEVICE_CUDA, NULL), ANN_STATE);
  vectors rows = vectors_make(DATA_NORMAL, ANN_F32, 50, 8, 1);
  const ann_matrix view = vectors_view(&rows);
  CHECK_OK(ann_build(index, &view, NULL, NULL, NULL, NULL));
  CHECK_STATUS(ann_index_place(index, ANN_DEVICE_CUDA + 1000, NULL, NULL), ANN_NO_DEVICE);
  CHECK_OK(ann_index_evict(index, ANN_DEVICE_CUDA + 1000, NULL));
  ann_index_free(index);
  vectors_free(&rows);
}

int main(void) {
  create_arguments();
  placement_arguments();
  not_built();
  built();
  lists(0, ANN_F32);
  lists(1, ANN_F32);
  lists(0, ANN_U8);
  lists(1, ANN_BF16);
  without_graph();
  without_rows();
  return finish("index");
}
