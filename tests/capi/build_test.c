/* Proves section 9 of the header: each build parameter out of range in turn, ids, refused rows with
 * their place, one build in a life, a rebuild after every kind of failure, stored elements, borrowed
 * rows and given graphs. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ann.h"
#include "check.h"
#include "refuse.h"
#include "support.h"

enum { N = 90, DIM = 6 };
static vectors rows;
static ann_matrix view;
static uint64_t reference; /* of a build with defaults */

/* `index` is as empty as before, and builds to the same graph as one that never failed. */
static void still_usable(ann_index *index) {
  ann_index_info info = ANN_INDEX_INFO_INIT;
  CHECK_OK(ann_index_get_info(index, &info, NULL));
  CHECK_EQUAL(info.built, 0);
  CHECK_EQUAL(info.rows, 0);
  CHECK_EQUAL(info.graph, 0);
  CHECK_EQUAL(info.element, ANN_ELEMENT_AUTO);
  CHECK_OK(ann_build(index, &view, NULL, NULL, NULL, NULL));
  CHECK(index_hash(index) == reference);
  ann_index_free(index);
}

static ann_index *fresh(void) { return index_make(DIM, ANN_METRIC_L2, ANN_ELEMENT_AUTO); }

static void null_arguments(void) {
  ann_index *index = fresh();
  REFUSED(ann_build(NULL, &view, NULL, NULL, NULL, &error), ANN_INVALID_ARGUMENT, "index");
  REFUSED(ann_build(index, NULL, NULL, NULL, NULL, &error), ANN_INVALID_ARGUMENT, "rows");
  CHECK_STATUS(ann_build(NULL, NULL, NULL, NULL, NULL, NULL), ANN_INVALID_ARGUMENT);
  still_usable(index);
}

static void matrix_fields(void) {
  ann_index *index = fresh();
#define BAD_ROWS(change, wanted, also, words)                                          \
  do {                                                                                 \
    ann_matrix bad = view;                                                             \
    change;                                                                            \
    REFUSED_OR(ann_build(index, &bad, NULL, NULL, NULL, &error), wanted, also, words); \
  } while (0)
  BAD_ROWS(bad.data = NULL, ANN_INVALID_ARGUMENT, ANN_INVALID_ARGUMENT, "data");
  BAD_ROWS(bad.rows = (uint64_t)ANN_ROWS_MAX + 1, ANN_LIMIT, ANN_LIMIT, "rows 2147483647 2147483646");
  BAD_ROWS(bad.rows = UINT64_MAX, ANN_LIMIT, ANN_LIMIT, "rows");
  BAD_ROWS(bad.rows = 1ull << 32, ANN_LIMIT, ANN_LIMIT, "rows 4294967296");
  BAD_ROWS(bad.dim = 0, ANN_INVALID_ARGUMENT, ANN_INVALID_ARGUMENT, "dim");
  BAD_ROWS(bad.dim = DIM + 1, ANN_INVALID_ARGUMENT, ANN_INVALID_ARGUMENT, "dim 7 6");
  BAD_ROWS(bad.dim = DIM - 1, ANN_INVALID_ARGUMENT, ANN_INVALID_ARGUMENT, "dim 5 6");
  BAD_ROWS(bad.dim = ANN_DIM_MAX + 1, ANN_INVALID_ARGUMENT, ANN_LIMIT, "dim");
  BAD_ROWS(bad.row_stride = DIM * 4 - 1, ANN_INVALID_ARGUMENT, ANN_INVALID_ARGUMENT, "row_stride 23 24");
  BAD_ROWS(bad.row_stride = 1, ANN_INVALID_ARGUMENT, ANN_INVALID_ARGUMENT, "row_stride");
  /* A stride whose product with the rows no address space holds. */
  BAD_ROWS(bad.row_stride = UINT64_MAX / 2, ANN_INVALID_ARGUMENT, ANN_LIMIT, "");
  BAD_ROWS(bad.space = 1, ANN_INVALID_ARGUMENT, ANN_UNSUPPORTED, "space 1");
  BAD_ROWS(bad.space = -1, ANN_INVALID_ARGUMENT, ANN_UNSUPPORTED, "space");
  for (int element = -2; element < 256; element++) {
    if (element >= ANN_F32 && element <= ANN_U8) continue;
    char words[40];
    snprintf(words, sizeof words, "element %d", element);
    BAD_ROWS(bad.element = element, ANN_INVALID_ARGUMENT, ANN_INVALID_ARGUMENT, words);
  }
  BAD_ROWS(bad.element = INT32_MIN, ANN_INVALID_ARGUMENT, ANN_INVALID_ARGUMENT, "element");
  still_usable(index);
}

static void parameters(void) {
  ann_index *index = fresh();
#define BAD(change, wanted, also, words)                                                  \
  do {                                                                                    \
    ann_build_params p = ANN_BUILD_PARAMS_INIT;                                           \
    change;                                                                               \
    REFUSED_OR(ann_build(index, &view, NULL, &p, NULL, &error), wanted, also, words);     \
    ann_index_params shape = ANN_INDEX_PARAMS_INIT;                                       \
    ann_plan plan = ANN_PLAN_INIT;                                                        \
    shape.dim = DIM;                                                                      \
    REFUSED_OR(ann_estimate(&shape, N, ANN_F32, &p, &plan, &error), wanted, also, words); \
  } while (0)
  const ann_status invalid = ANN_INVALID_ARGUMENT, limit = ANN_LIMIT;
  const int32_t odd[] = {-1, 4, 5, 17, 127, 128, 255, 256, 65536, INT32_MAX, INT32_MIN};
  for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
    if (odd[i] != ANN_GRAPH_TSDG) BAD(p.graph = odd[i], invalid, invalid, "graph");
    if (odd[i] != ANN_KNN_CELLS) BAD(p.knn = odd[i], invalid, invalid, "knn");
    BAD(p.rows_mode = odd[i], invalid, invalid, "rows_mode");
    BAD(p.repair = odd[i], invalid, invalid, "repair");
    BAD(p.calibrate = odd[i], invalid, invalid, "calibrate");
    BAD(p.reserved = odd[i], invalid, invalid, "reserved");
  }
  for (int32_t wrong = -1; wrong <= 3; wrong += 4) {
    char words[40];
    snprintf(words, sizeof words, "detours %d 2", wrong);
    BAD(p.detours = wrong, invalid, invalid, words);
    snprintf(words, sizeof words, "reorder %d 2", wrong);
    BAD(p.reorder = wrong, invalid, invalid, words);
  }
  BAD(p.graph = 6, invalid, invalid, "graph 6");
  BAD(p.rows_mode = 3, invalid, invalid, "rows_mode 3");
  BAD(p.repair = 3, invalid, invalid, "repair 3");
  BAD(p.calibrate = 3, invalid, invalid, "calibrate 3");
  BAD(p.device = -1, invalid, invalid, "device -1");
  /* A plan may be for a device of another machine. */
  ann_build_params elsewhere = ANN_BUILD_PARAMS_INIT;
  elsewhere.device = ANN_DEVICE_CUDA + 1000;
  REFUSED(ann_build(index, &view, NULL, &elsewhere, NULL, &error), ANN_NO_DEVICE, "device 1002");
  ann_index_params there = ANN_INDEX_PARAMS_INIT;
  ann_plan far = ANN_PLAN_INIT;
  there.dim = DIM;
  CHECK_OK(ann_estimate(&there, N, ANN_F32, &elsewhere, &far, NULL));
  CHECK(far.device_bytes > N * DIM);
  elsewhere.device = ANN_DEVICE_CPU;
  CHECK_OK(ann_estimate(&there, N, ANN_F32, &elsewhere, &far, NULL));
  CHECK_EQUAL(far.device_bytes, 0);
  BAD(p.degree = 1, invalid, invalid, "degree 1 2 256");
  BAD(p.degree = 257, limit, limit, "degree 257 256");
  BAD(p.degree = UINT32_MAX, limit, limit, "degree");
  BAD(p.knn = ANN_KNN_GGNN, invalid, invalid, "knn 5 GGNN ann_knn_graph 3");
  BAD(p.knn_degree = 513, limit, limit, "knn_degree 513 512");
  BAD(p.knn_degree = 1, invalid, invalid, "knn_degree");
  BAD((p.degree = 32, p.knn_degree = 31), invalid, invalid, "knn_degree 31 32");
  BAD(p.samples = 1, invalid, invalid, "samples 1 2");
  BAD(p.samples = 65, invalid, limit, "samples 65");
  BAD((p.degree = 8, p.knn_degree = 8, p.samples = 9), invalid, limit, "samples 9 8");
  BAD(p.iterations = 1001, invalid, limit, "iterations 1001 1000");
  BAD(p.iterations = UINT32_MAX, invalid, limit, "iterations");
  BAD(p.convergence = -0.1f, invalid, invalid, "convergence");
  BAD(p.convergence = 1, invalid, invalid, "convergence");
  BAD(p.convergence = NAN, invalid, invalid, "convergence");
  BAD(p.convergence = INFINITY, invalid, invalid, "convergence");
  /* These two are for a build alone: a plan touches no data and keeps to no limit. */
  ann_build_params alone = ANN_BUILD_PARAMS_INIT;
  alone.knn = ANN_KNN_GIVEN;
  alone.knn_degree = 8;
  REFUSED(ann_build(index, &view, NULL, &alone, NULL, &error), invalid, "knn_graph");
  alone = (ann_build_params)ANN_BUILD_PARAMS_INIT;
  alone.memory_limit = 1;
  REFUSED(ann_build(index, &view, NULL, &alone, NULL, &error), limit, "memory_limit");
  /* Few samples by default when the k-NN lists are shorter than sixteen. */
  ann_build_params small = ANN_BUILD_PARAMS_INIT;
  small.degree = 4;
  small.knn_degree = 5;
  small.knn = ANN_KNN_NN_DESCENT;
  ann_index *narrow = index_build(ANN_METRIC_L2, &rows, &small);
  CHECK(narrow != NULL);
  ann_index_free(narrow);
  still_usable(index);
}

static void estimate_arguments(void) {
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  ann_plan plan = ANN_PLAN_INIT;
  shape.dim = DIM;
  REFUSED(ann_estimate(NULL, N, ANN_F32, NULL, &plan, &error), ANN_INVALID_ARGUMENT, "");
  REFUSED(ann_estimate(&shape, N, ANN_F32, NULL, NULL, &error), ANN_INVALID_ARGUMENT, "out");
  REFUSED(ann_estimate(&shape, (uint64_t)ANN_ROWS_MAX + 1, ANN_F32, NULL, &plan, &error), ANN_LIMIT, "rows");
  REFUSED(ann_estimate(&shape, N, 0, NULL, &plan, &error), ANN_INVALID_ARGUMENT, "element 0");
  REFUSED(ann_estimate(&shape, N, 6, NULL, &plan, &error), ANN_INVALID_ARGUMENT, "element 6");
  shape.dim = 0;
  REFUSED(ann_estimate(&shape, N, ANN_F32, NULL, &plan, &error), ANN_INVALID_ARGUMENT, "dim 0");
  shape.dim = ANN_DIM_MAX + 1;
  REFUSED(ann_estimate(&shape, N, ANN_F32, NULL, &plan, &error), ANN_LIMIT, "dim 32769");
  shape.dim = DIM;
  shape.element = ANN_I8;
  REFUSED_OR(ann_estimate(&shape, N, ANN_F32, NULL, &plan, &error), ANN_UNSUPPORTED, ANN_INVALID_ARGUMENT,
             "element");
  shape.element = 0;
  CHECK_OK(ann_estimate(&shape, 0, ANN_F32, NULL, &plan, NULL));
  /* The largest index that the limits allow is planned without touching memory. */
  shape.dim = ANN_DIM_MAX;
  CHECK_OK(ann_estimate(&shape, ANN_ROWS_MAX, ANN_F32, NULL, &plan, NULL));
  CHECK_SAY(plan.index_bytes >= (uint64_t)ANN_ROWS_MAX * ANN_DIM_MAX * 4, "index_bytes %llu overflowed",
            (unsigned long long)plan.index_bytes);
  CHECK(plan.peak_bytes >= plan.index_bytes && plan.threads >= 1 && plan.seconds > 1000);
}

static void row_ids(void) {
  uint64_t ids[N];
  ann_index *index = fresh();
  for (int i = 0; i < N; i++) ids[i] = 0xffffffff00000000ull - 977ull * (uint64_t)((i * 37) % N);
  ids[N - 1] = ids[3];
  REFUSED(ann_build(index, &view, ids, NULL, NULL, &error), ANN_INVALID_ARGUMENT, "id");
  ids[N - 1] = ANN_ID_NONE;
  REFUSED(ann_build(index, &view, ids, NULL, NULL, &error), ANN_INVALID_ARGUMENT, "id");
  ids[N - 1] = ids[0] + 1;
  ids[0] = ANN_ID_NONE - 1; /* the largest that is legal */
  ids[1] = 0;
  CHECK_OK(ann_build(index, &view, ids, NULL, NULL, NULL));
  answers found = answers_make(N, 3);
  for (int procedure = ANN_SEARCH_AUTO; procedure <= ANN_SEARCH_EXACT; procedure++) {
    CHECK_OK(index_search(index, &rows, procedure, 0, &found));
    for (int i = 0; i < N; i++) {
      CHECK_SAY(found.ids[i * 3] == ids[i], "row %d is found as %llx", i,
                (unsigned long long)found.ids[i * 3]);
      CHECK(found.distances[i * 3] == 0);
    }
  }
  for (int i = 0; i < N; i++) {
    float vector[DIM];
    int32_t there = 0;
    CHECK_OK(ann_index_get(index, ids[i], vector, sizeof vector, &there, NULL));
    CHECK(there == 1 && memcmp(vector, vectors_row(&rows, (uint64_t)i), sizeof vector) == 0);
  }
  int32_t there = 1;
  CHECK_OK(ann_index_get(index, 5, NULL, 0, &there, NULL)); /* a row number is no id here */
  CHECK_EQUAL(there, 0);
  ann_index_free(index);

  /* Equal distances come by ascending id, not by row. */
  vectors equal = vectors_make(DATA_EQUAL, ANN_F32, N, DIM, 4);
  const ann_matrix equal_view = vectors_view(&equal);
  for (int i = 0; i < N; i++) ids[i] = (uint64_t)(N - i) * 1000;
  index = fresh();
  CHECK_OK(ann_build(index, &equal_view, ids, NULL, NULL, NULL));
  CHECK_OK(index_search(index, &equal, ANN_SEARCH_EXACT, 0, &found));
  for (int i = 0; i < N * 3; i++) CHECK_EQUAL(found.ids[i], (i % 3 + 1) * 1000);
  /* A walk need not find the smallest ids of all, but orders those that it reports. */
  CHECK_OK(index_search(index, &equal, ANN_SEARCH_BEST_FIRST, N, &found));
  for (int i = 0; i < N * 3; i++) {
    CHECK(found.ids[i] % 1000 == 0 && found.ids[i] <= N * 1000);
    if (i % 3) CHECK(found.ids[i] > found.ids[i - 1]);
  }
  ann_index_free(index);
  vectors_free(&equal);
  answers_free(&found);
}

/* Rows that are copied as they lie are looked at in blocks: of bad values in several, the first is named, also
 * where its row is cut by a block, and before ids that are there twice. */
static void not_finite_in_blocks(void) {
  enum { ROWS = 60000, COLUMNS = 12 };                     /* 48 bytes a row, no part of a block of 16 KB */
  const uint64_t bad_rows[] = {341, 342, 43690, ROWS - 1}; /* the first and third cross borders of blocks */
  vectors rows = vectors_make(DATA_NORMAL, ANN_F32, ROWS, COLUMNS, 1);
  uint64_t *ids = calloc(ROWS, sizeof *ids);
  const ann_matrix view = vectors_view(&rows);
  for (int first = 3; first >= 0; first--)
    for (uint32_t column = COLUMNS - 1; column < COLUMNS; column -= 3) {
      put_value(ANN_F32, (char *)vectors_row(&rows, bad_rows[first]) + column * 4, NAN);
      ann_index *index = index_make(COLUMNS, ANN_METRIC_L2, ANN_ELEMENT_AUTO);
      ann_error error = ANN_ERROR_INIT;
      CHECK_STATUS(ann_build(index, &view, ids, NULL, NULL, &error), ANN_NOT_FINITE);
      CHECK_EQUAL(error.row, bad_rows[first]);
      CHECK_EQUAL(error.column, column);
      ann_index_free(index);
    }
  free(ids);
  vectors_free(&rows);
}

static void not_finite(void) {
  const double bad_values[] = {NAN, -NAN, INFINITY, -INFINITY};
  const int32_t floats[] = {ANN_F32, ANN_F16, ANN_BF16};
  const uint64_t bad_rows[] = {0, N / 2, N - 1};
  const uint32_t bad_columns[] = {0, DIM / 2, DIM - 1};
  for (int e = 0; e < 3; e++)
    for (int v = 0; v < 4; v++)
      for (int place = 0; place < 9; place++) {
        const uint64_t row = bad_rows[place / 3];
        const uint32_t column = bad_columns[place % 3];
        vectors bad = vectors_make(DATA_NORMAL, floats[e], N, DIM, 1);
        put_value(floats[e], (char *)vectors_row(&bad, row) + column * element_size(floats[e]),
                  bad_values[v]);
        const ann_matrix bad_view = vectors_view(&bad);
        ann_index *index = fresh();
        ann_error error = ANN_ERROR_INIT;
        CHECK_STATUS(ann_build(index, &bad_view, NULL, NULL, NULL, &error), ANN_NOT_FINITE);
        CHECK_EQUAL(error.row, row);
        CHECK_EQUAL(error.column, column);
        char text[30];
        snprintf(text, sizeof text, "%llu", (unsigned long long)row);
        CHECK_SAY(mentions(error.message, text), "\"%s\" does not mention row %s", error.message, text);
        ann_build_params borrow = ANN_BUILD_PARAMS_INIT;
        borrow.rows_mode = ANN_ROWS_BORROW;
        CHECK_STATUS(ann_build(index, &bad_view, NULL, &borrow, NULL, NULL), ANN_NOT_FINITE);
        uint32_t neighbors[N * 2];
        ann_knn_params knn = ANN_KNN_PARAMS_INIT;
        knn.k = 2;
        CHECK_STATUS(ann_knn_graph(NULL, &bad_view, &knn, neighbors, NULL, NULL, &error), ANN_NOT_FINITE);
        CHECK(error.row == row && error.column == column);
        if (place == 4 && v == 0)
          still_usable(index);
        else
          ann_index_free(index);
        vectors_free(&bad);
      }
  /* A value that the stored element cannot hold would become infinite. */
  vectors big = vectors_make(DATA_NORMAL, ANN_F32, N, DIM, 1);
  put_value(ANN_F32, (char *)vectors_row(&big, 7) + 4, 1e6);
  const ann_matrix big_view = vectors_view(&big);
  ann_index *narrow = index_make(DIM, ANN_METRIC_L2, ANN_F16);
  ann_error error = ANN_ERROR_INIT;
  const ann_status refused = ann_build(narrow, &big_view, NULL, NULL, NULL, &error);
  CHECK(refused == ANN_NOT_FINITE || refused == ANN_INVALID_ARGUMENT);
  CHECK_SAY(error.row == 7 && error.column == 1, "row %lld, column %lld: %s", (long long)error.row,
            (long long)error.column, error.message);
  ann_index_free(narrow);
  vectors_free(&big);
}

static void once_in_a_life(void) {
  ann_index *index = index_build(ANN_METRIC_L2, &rows, NULL);
  REFUSED(ann_build(index, &view, NULL, NULL, NULL, &error), ANN_STATE, "");
  ann_matrix none = view;
  none.rows = 0;
  REFUSED(ann_build(index, &none, NULL, NULL, NULL, &error), ANN_STATE, "");
  CHECK(index_hash(index) == reference);
  ann_index_free(index);
}

/* Which rows may be stored as what, and that the stored value is the rounded one. */
static void stored_elements(void) {
  for (int from = 0; from < ELEMENTS; from++)
    for (int to = 0; to < ELEMENTS; to++) {
      const int32_t given = all_elements[from], stored = all_elements[to];
      /* bf16 has 8 bits of precision: it holds every i8 and every u8. */
      const int legal = given == stored || !element_is_integer(stored);
      vectors data = vectors_make(DATA_NORMAL, given, N, DIM, 5);
      const ann_matrix data_view = vectors_view(&data);
      ann_index *index = index_make(DIM, ANN_METRIC_L2, stored);
      ann_error error = ANN_ERROR_INIT;
      const ann_status status = ann_build(index, &data_view, NULL, NULL, NULL, &error);
      CHECK_SAY(legal ? status == ANN_OK : status == ANN_UNSUPPORTED || status == ANN_INVALID_ARGUMENT,
                "%s stored as %s answers %s", element_name(given), element_name(stored),
                ann_status_name(status));
      if (status == ANN_OK) {
        ann_index_info info = ANN_INDEX_INFO_INIT;
        CHECK_OK(ann_index_get_info(index, &info, NULL));
        CHECK_EQUAL(info.element, stored);
        for (uint64_t row = 0; row < N; row++) {
          unsigned char got[DIM * 4], wanted[DIM * 4];
          int32_t there = 0;
          CHECK_OK(ann_index_get(index, row, got, sizeof got, &there, NULL));
          for (uint32_t c = 0; c < DIM; c++)
            put_value(stored, wanted + c * element_size(stored),
                      get_value(given, (char *)vectors_row(&data, row) + c * element_size(given)));
          CHECK_SAY(memcmp(got, wanted, DIM * element_size(stored)) == 0, "row %d of %s stored as %s differs",
                    (int)row, element_name(given), element_name(stored));
        }
      } else {
        CHECK_SAY(
            mentions(error.message, element_name(given)) && mentions(error.message, element_name(stored)),
            "\"%s\" does not name both elements", error.message);
      }
      ann_build_params borrow = ANN_BUILD_PARAMS_INIT;
      borrow.rows_mode = ANN_ROWS_BORROW;
      ann_index *borrowing = index_make(DIM, ANN_METRIC_L2, stored);
      const ann_status borrowed = ann_build(borrowing, &data_view, NULL, &borrow, NULL, NULL);
      CHECK_SAY(given == stored ? borrowed == ANN_OK
                                : borrowed == ANN_INVALID_ARGUMENT || borrowed == ANN_UNSUPPORTED,
                "%s borrowed for %s answers %s", element_name(given), element_name(stored),
                ann_status_name(borrowed));
      ann_index_free(borrowing);
      ann_index_free(index);
      vectors_free(&data);
    }
}

/* Rounding to nearest even, at the values where it shows. */
static void rounding(void) {
  const float values[] = {1.0f,          1.00048828125f, 1.0009765625f, 1.00146484375f, 65504.0f,
                          65519.996f,    5.9604645e-8f,  2.9802322e-8f, 2.9802326e-8f,  8.940697e-8f,
                          6.1035156e-5f, 6.1005354e-5f,  -0.0f,         -1.00390625f,   1.01171875f,
                          3.0e-39f,      1e-45f,         0.333333343f,  -0.1f,          2049.0f};
  enum { COUNT = sizeof values / sizeof values[0] };
  ann_matrix one = ANN_MATRIX_INIT;
  one.element = ANN_F32;
  one.data = values;
  one.rows = 1;
  one.dim = COUNT;
  const int32_t narrow[] = {ANN_F16, ANN_BF16};
  for (int e = 0; e < 2; e++) {
    ann_index *index = index_make(COUNT, ANN_METRIC_L2, narrow[e]);
    CHECK_OK(ann_build(index, &one, NULL, NULL, NULL, NULL));
    uint16_t got[COUNT], wanted;
    int32_t there;
    CHECK_OK(ann_index_get(index, 0, got, sizeof got, &there, NULL));
    for (int i = 0; i < COUNT; i++) {
      put_value(narrow[e], &wanted, values[i]);
      CHECK_SAY(got[i] == wanted, "%.9g as %s is %04x, wanted %04x", (double)values[i],
                element_name(narrow[e]), got[i], wanted);
    }
    ann_index_free(index);
  }
}

static void borrowed_rows(void) {
  for (int e = 0; e < ELEMENTS; e++)
    for (int m = 0; m < METRICS; m++) {
      vectors data = vectors_make(DATA_NORMAL, all_elements[e], N, DIM, 6);
      ann_build_params params = ANN_BUILD_PARAMS_INIT;
      ann_index *copied = index_build(all_metrics[m], &data, &params);
      params.rows_mode = ANN_ROWS_BORROW;
      ann_index *borrowed = index_build(all_metrics[m], &data, &params);
      CHECK(index_hash(copied) == index_hash(borrowed));
      ann_index_info with_rows = ANN_INDEX_INFO_INIT, without = ANN_INDEX_INFO_INIT;
      CHECK_OK(ann_index_get_info(copied, &with_rows, NULL));
      CHECK_OK(ann_index_get_info(borrowed, &without, NULL));
      CHECK(without.memory_bytes <= with_rows.memory_bytes);
      answers a = answers_make(N, 4), b = answers_make(N, 4);
      CHECK_OK(index_search(copied, &data, ANN_SEARCH_AUTO, 0, &a));
      CHECK_OK(index_search(borrowed, &data, ANN_SEARCH_AUTO, 0, &b));
      CHECK(answers_equal(&a, &b));
      ann_index_free(borrowed);
      /* The copy needs its source no longer. */
      memset(data.data, 0, N * DIM * element_size(data.element));
      vectors again = vectors_make(DATA_NORMAL, all_elements[e], N, DIM, 6);
      CHECK_OK(index_search(copied, &again, ANN_SEARCH_AUTO, 0, &b));
      CHECK(answers_equal(&a, &b));
      ann_index_free(copied);
      answers_free(&a);
      answers_free(&b);
      vectors_free(&again);
      vectors_free(&data);
    }
}

static void given_graph(void) {
  enum { K = 12 };
  static uint32_t lists[N * K];
  /* Integers have one exact k-NN graph, whether the build finds it or is given it. A build on
   * floats may look at shorter codes of them. */
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.degree = 8;
  params.knn_degree = K;
  ann_knn_params knn = ANN_KNN_PARAMS_INIT;
  knn.k = K;
  for (int e = ANN_I8; e >= ANN_F32; e -= ANN_I8 - ANN_F32) {
    vectors data = vectors_make(DATA_NORMAL, e, N, DIM, 1);
    const ann_matrix data_view = vectors_view(&data);
    CHECK_OK(ann_knn_graph(NULL, &data_view, &knn, lists, NULL, NULL, NULL));
    params.knn = ANN_KNN_EXACT;
    params.knn_graph = NULL;
    ann_index *computed = index_build(ANN_METRIC_L2, &data, &params);
    params.knn = ANN_KNN_GIVEN;
    params.knn_graph = lists;
    ann_index *given = index_build(ANN_METRIC_L2, &data, &params);
    if (e == ANN_I8) CHECK(index_hash(computed) == index_hash(given));
    answers found = answers_make(N, 4);
    CHECK_OK(index_search(given, &data, ANN_SEARCH_AUTO, 0, &found));
    CHECK(recall_of(ANN_METRIC_L2, &data, &data, 4, found.ids) > 0.95);
    answers_free(&found);
    ann_index_free(computed);
    ann_index_free(given);
    vectors_free(&data);
  }

  ann_index *index = fresh();
  params.knn_degree = 0; /* no default then */
  REFUSED(ann_build(index, &view, NULL, &params, NULL, &error), ANN_INVALID_ARGUMENT, "knn_degree");
  params.knn_degree = K;
  const uint32_t kept = lists[5 * K + 2];
  lists[5 * K + 2] = N; /* no such row */
  REFUSED(ann_build(index, &view, NULL, &params, NULL, &error), ANN_INVALID_ARGUMENT, "knn_graph");
  lists[5 * K + 2] = UINT32_MAX - 1;
  REFUSED(ann_build(index, &view, NULL, &params, NULL, &error), ANN_INVALID_ARGUMENT, "knn_graph");
  lists[5 * K + 2] = UINT32_MAX; /* a gap before used places */
  const ann_status gap = ann_build(index, &view, NULL, &params, NULL, NULL);
  CHECK_SAY(gap == ANN_INVALID_ARGUMENT || gap == ANN_OK, "a gap answers %s", ann_status_name(gap));
  if (gap == ANN_OK) {
    ann_index_free(index);
    index = fresh();
  }
  lists[5 * K + 2] = kept;
  /* Shorter lists than the degree, and lists that are empty altogether. */
  params.degree = 16;
  CHECK_OK(ann_build(index, &view, NULL, &params, NULL, NULL));
  ann_graph_stats stats = ANN_GRAPH_STATS_INIT;
  CHECK_OK(ann_index_graph_stats(index, &stats, NULL));
  CHECK_EQUAL(stats.unreachable, 0);
  ann_index_free(index);
  for (int i = 0; i < N * K; i++) lists[i] = UINT32_MAX;
  index = fresh();
  CHECK_OK(ann_build(index, &view, NULL, &params, NULL, NULL));
  CHECK_OK(ann_index_graph_stats(index, &stats, NULL));
  CHECK_EQUAL(stats.unreachable, 0);
  ann_index_free(index);
}

static void calibration_queries(void) {
  ann_index *index = fresh();
  vectors queries = vectors_make(DATA_NORMAL, ANN_F32, 50, DIM, 9);
  ann_matrix bad = vectors_view(&queries);
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.calibration = &bad;
  bad.dim = DIM + 1;
  REFUSED(ann_build(index, &view, NULL, &params, NULL, &error), ANN_INVALID_ARGUMENT, "dim");
  bad.dim = DIM;
  bad.element = 9;
  REFUSED(ann_build(index, &view, NULL, &params, NULL, &error), ANN_INVALID_ARGUMENT, "element");
  bad.element = ANN_F32;
  bad.data = NULL;
  REFUSED(ann_build(index, &view, NULL, &params, NULL, &error), ANN_INVALID_ARGUMENT, "data");
  bad.data = queries.data;
  put_value(ANN_F32, (char *)vectors_row(&queries, 49) + 8, NAN);
  ann_error error = ANN_ERROR_INIT;
  CHECK_STATUS(ann_build(index, &view, NULL, &params, NULL, &error), ANN_NOT_FINITE);
  CHECK_EQUAL(error.row, 49);
  CHECK_EQUAL(error.column, 2);
  put_value(ANN_F32, (char *)vectors_row(&queries, 49) + 8, 0);
  CHECK_OK(ann_build(index, &view, NULL, &params, NULL, NULL));
  ann_index_info info = ANN_INDEX_INFO_INIT;
  uint32_t beam; /* so that an index that a device has built calibrates */
  CHECK_OK(ann_index_beam(index, 10, 0, &beam, NULL));
  CHECK_OK(ann_index_get_info(index, &info, NULL));
  CHECK(info.recall_max > 0.9f && info.recall_max <= 1);
  ann_index_free(index);
  vectors_free(&queries);
}

/* A search that is asked for 0.95, and the recall that it gives. */
static double recall_at_095(const ann_index *index, const vectors *queries) {
  answers found = answers_make(queries->rows, 10), exact = answers_make(queries->rows, 10);
  const ann_matrix asked = vectors_view(queries);
  ann_search_params params = ANN_SEARCH_PARAMS_INIT;
  params.recall = 0.95f;
  ann_results results = answers_view(&found);
  CHECK_OK(ann_search_batch(index, &asked, &params, &results, NULL, NULL));
  results = answers_view(&exact);
  CHECK_OK(ann_search_exact(index, &asked, &params, &results, NULL, NULL));
  const double missed = (double)answers_missed(&exact, &found);
  answers_free(&found);
  answers_free(&exact);
  return 1 - missed / (10.0 * (double)queries->rows);
}

static vectors far_vectors(uint64_t count, uint64_t seed) {
  vectors made = vectors_make(DATA_NORMAL, ANN_F32, count, 16, seed);
  for (uint64_t i = 0; i < count * 16; i++) ((float *)made.data)[i] *= 2.5f;
  return made;
}

/* Queries farther out than the rows: what rows that play queries promise is missed, what others of them
 * promise is kept, also by a copy of the index from a file, which has the queries in it. */
static void calibration_unlike_rows(void) {
  vectors kept = vectors_make(DATA_NORMAL, ANN_F32, 8000, 16, 1);
  vectors queries = far_vectors(500, 2);
  vectors given = far_vectors(3000, 3);
  const ann_matrix like_queries = vectors_view(&given);
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  ann_index *index = index_build(ANN_METRIC_L2, &kept, &params);
  /* Before a search: the workspaces of searches count too, and how many threads get one is theirs to say. */
  ann_index_info info = ANN_INDEX_INFO_INIT;
  CHECK_OK(ann_index_get_info(index, &info, NULL));
  const uint64_t bytes = info.memory_bytes;
  CHECK(recall_at_095(index, &queries) < 0.94);
  ann_index_free(index);

  params.calibration = &like_queries;
  index = index_build(ANN_METRIC_L2, &kept, &params);
  CHECK_OK(ann_index_get_info(index, &info, NULL));
  CHECK(info.memory_bytes >= bytes + 2048 * 16 * sizeof(float) || test_on_device());
  const double recall = recall_at_095(index, &queries);
  CHECK(recall >= 0.94);
  const char *path = "calibration_unlike_rows.gannet";
  CHECK_OK(ann_save(index, path, NULL, NULL, NULL));
  ann_index_free(index);
  ann_file_description description = ANN_FILE_DESCRIPTION_INIT;
  CHECK_OK(ann_file_info(path, &description, NULL));
  /* The file says how well codes order rows, and from a device how well walks for a hundred find the first ten. */
  CHECK_EQUAL(description.format, 1u << 16 | (test_on_device() ? 7 : 5));
  for (int32_t mode = ANN_OPEN_FULL; mode <= ANN_OPEN_TRUSTED; mode++) {
    ann_open_params how = ANN_OPEN_PARAMS_INIT;
    how.mode = mode;
    CHECK_OK(ann_open(NULL, path, &how, &index, NULL, NULL));
    CHECK(test_on_device() ? recall_at_095(index, &queries) >= 0.94
                           : recall_at_095(index, &queries) == recall);
    ann_index_free(index);
  }
  CHECK(remove(path) == 0);

  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  shape.dim = 16;
  ann_plan with = ANN_PLAN_INIT, without = ANN_PLAN_INIT;
  CHECK_OK(ann_estimate(&shape, 8000, ANN_F32, &params, &with, NULL));
  params.calibration = NULL;
  CHECK_OK(ann_estimate(&shape, 8000, ANN_F32, &params, &without, NULL));
  CHECK_EQUAL(with.index_bytes - without.index_bytes, 2048 * 16 * sizeof(float));
  vectors_free(&kept);
  vectors_free(&queries);
  vectors_free(&given);
}

/* Of rows of two densities, whose codes are one for most of the denser fifth: what the index says of its lists is
 * true of the same lists, found by ann_knn_graph, by distances of the rows. */
static void share_of_true_neighbors(void) {
  enum { COUNT = 3000, COLUMNS = 32, LIST = 48, LOOKED = 32 };
  vectors set = vectors_make(DATA_NORMAL, ANN_F32, COUNT, COLUMNS, 7);
  for (uint64_t row = 0; row < COUNT; row += 5) {
    float *values = (float *)(void *)vectors_row(&set, row);
    for (int j = 0; j < COLUMNS; j++) values[j] = (j == 0 ? 0.5f : 0) + 1e-3f * values[j];
  }
  const ann_matrix view = vectors_view(&set);
  ann_knn_params knn = ANN_KNN_PARAMS_INIT;
  knn.k = LIST;
  knn.device = ANN_DEVICE_CPU; /* a device's own is in tests/gpu/build_cuda_test.cu */
  uint32_t *lists = malloc(sizeof *lists * COUNT * LIST);
  float *found = malloc(sizeof *found * COUNT * LIST), *truth = malloc(sizeof *truth * COUNT * LIST);
  knn.method = ANN_KNN_CELLS;
  CHECK_OK(ann_knn_graph(NULL, &view, &knn, lists, found, NULL, NULL));
  knn.method = ANN_KNN_EXACT;
  CHECK_OK(ann_knn_graph(NULL, &view, &knn, lists, truth, NULL, NULL));
  int hits = 0;
  for (int row = 0; row < COUNT; row++)
    for (int i = 0; i < LOOKED; i++) hits += found[row * LIST + i] <= truth[row * LIST + LOOKED - 1];
  const double share = (double)hits / (COUNT * LOOKED);
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.knn = ANN_KNN_CELLS;
  params.calibrate = ANN_OFF;
  params.device = ANN_DEVICE_CPU;
  ann_index *index = index_build(ANN_METRIC_L2, &set, &params);
  ann_index_info info = ANN_INDEX_INFO_INIT;
  CHECK_OK(ann_index_get_info(index, &info, NULL));
  CHECK_SAY(fabs((double)info.knn_share - share) < 0.04, "knn_share is %.3f, lists hold %.3f",
            (double)info.knn_share, share);
  ann_index_free(index);
  free(lists);
  free(found);
  free(truth);
  vectors_free(&set);
}

/* A search graph of the caller is the index's as it is, whoever searches, calibrated and in its file; what is no edge
 * goes, and it is repaired where that is asked for. */
static void finished_graph(void) {
  const int32_t metrics[] = {ANN_METRIC_L2, ANN_METRIC_INNER_PRODUCT};
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.degree = 8;
  for (int m = 0; m < 2; m++) {
    params.graph = ANN_GRAPH_AUTO;
    params.knn = ANN_KNN_AUTO;
    params.knn_graph = NULL;
    params.knn_degree = 0;
    params.repair = ANN_SWITCH_AUTO;
    ann_index *made = index_build(metrics[m], &rows, &params);
    uint32_t *edges = malloc(sizeof *edges * N * 8);
    uint32_t degree = 0;
    CHECK_OK(ann_index_graph(made, edges, N * 8, &degree, NULL));
    params.graph = ANN_GRAPH_GIVEN;
    params.knn = ANN_KNN_GIVEN;
    params.knn_graph = edges;
    params.knn_degree = 8;
    ann_index *given = index_build(metrics[m], &rows, &params);
    CHECK(index_hash(given) == index_hash(made));
    ann_index_info info = ANN_INDEX_INFO_INIT;
    CHECK_OK(ann_index_get_info(given, &info, NULL));
    CHECK(info.graph == ANN_GRAPH_CAGRA && info.degree == 8 && info.repaired_edges == 0);
    CHECK(info.calibrate_seconds > 0 && info.code_first_ten > 0);
    answers by_made = answers_make(N, 4), by_given = answers_make(N, 4), by_file = answers_make(N, 4);
    CHECK_OK(index_search(made, &rows, ANN_SEARCH_BEST_FIRST, 32, &by_made));
    CHECK_OK(index_search(given, &rows, ANN_SEARCH_BEST_FIRST, 32, &by_given));
    CHECK(memcmp(by_made.ids, by_given.ids, sizeof(uint64_t) * N * 4) == 0);
    char path[] = "/tmp/gannet-build-XXXXXX";
    const int file = mkstemp(path);
    CHECK(file >= 0);
    close(file);
    CHECK_OK(ann_save(given, path, NULL, NULL, NULL));
    ann_index *opened = NULL;
    CHECK_OK(ann_open(NULL, path, NULL, &opened, NULL, NULL));
    CHECK_OK(index_search(opened, &rows, ANN_SEARCH_BEST_FIRST, 32, &by_file));
    CHECK(memcmp(by_file.ids, by_given.ids, sizeof(uint64_t) * N * 4) == 0);
    remove(path);
    ann_index_free(opened);
    ann_index_free(given);

    /* Rows that lead to themselves, and some that nothing leads to. */
    for (uint32_t i = 0; i < N * 8; i++)
      if (i % 8 < 2 || edges[i] % 10 == 7) edges[i] = i / 8;
    params.repair = ANN_ON;
    ann_index *repaired = index_build(metrics[m], &rows, &params);
    CHECK_OK(ann_index_get_info(repaired, &info, NULL));
    ann_graph_stats stats = ANN_GRAPH_STATS_INIT;
    CHECK_OK(ann_index_graph_stats(repaired, &stats, NULL));
    CHECK(stats.unreachable == 0 && info.repaired_edges > 0 && stats.edges <= N * 6 + info.repaired_edges);
    ann_index_free(repaired);
    answers_free(&by_made);
    answers_free(&by_given);
    answers_free(&by_file);
    ann_index_free(made);
    if (m == 0) {
      ann_index *index = fresh();
      params.degree = 9;
      REFUSED(ann_build(index, &view, NULL, &params, NULL, &error), ANN_INVALID_ARGUMENT, "knn_degree 8");
      params.degree = 0;
      params.knn = ANN_KNN_EXACT;
      REFUSED(ann_build(index, &view, NULL, &params, NULL, &error), ANN_INVALID_ARGUMENT, "knn is 2");
      params.knn = ANN_KNN_GIVEN;
      edges[11] = N;
      REFUSED(ann_build(index, &view, NULL, &params, NULL, &error), ANN_INVALID_ARGUMENT, "knn_graph[1, 3]");
      ann_index_free(index);
      params.degree = 8;
    }
    free(edges);
  }
}

/* Seconds of a build are those of the call, calibration among them, and a file keeps none. */
static void seconds_of_a_build(void) {
  ann_index *index = index_make(DIM, ANN_METRIC_L2, 0);
  const double start = seconds_now();
  CHECK_OK(ann_build(index, &view, NULL, NULL, NULL, NULL));
  const double whole = seconds_now() - start;
  ann_index_info info = ANN_INDEX_INFO_INIT;
  CHECK_OK(ann_index_get_info(index, &info, NULL));
  CHECK_SAY(info.calibrate_seconds > 0 && info.calibrate_seconds <= info.build_seconds &&
                info.build_seconds <= whole,
            "%g s to calibrate, %g to build, %g in the call", info.calibrate_seconds, info.build_seconds,
            whole);
  char path[] = "/tmp/gannet-build-XXXXXX";
  const int file = mkstemp(path);
  CHECK(file >= 0);
  close(file);
  CHECK_OK(ann_save(index, path, NULL, NULL, NULL));
  ann_index *opened = NULL;
  CHECK_OK(ann_open(NULL, path, NULL, &opened, NULL, NULL));
  CHECK_OK(ann_index_get_info(opened, &info, NULL));
  CHECK(info.build_seconds == 0 && info.calibrate_seconds == 0);
  ann_index_free(opened);
  ann_index_free(index);
  remove(path);

  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.calibrate = ANN_OFF;
  index = index_build(ANN_METRIC_L2, &rows, &params);
  CHECK_OK(ann_index_get_info(index, &info, NULL));
  CHECK(info.build_seconds > 0 && info.calibrate_seconds == 0);
  ann_index_free(index);
}

/* Who finds neighbours by default shows in whether somebody has looked how many are true. */
static void default_method(void) {
  for (uint64_t count = 4096; count <= 4097; count++) {
    vectors set = vectors_make(DATA_NORMAL, ANN_U8, count, 4, 8);
    ann_build_params params = ANN_BUILD_PARAMS_INIT;
    params.degree = 4;
    params.calibrate = ANN_OFF;
    ann_index *index = index_build(ANN_METRIC_L2, &set, &params);
    ann_index_info info = ANN_INDEX_INFO_INIT;
    CHECK_OK(ann_index_get_info(index, &info, NULL));
    CHECK_SAY((info.knn_share > 0) == (count > 4096), "%d rows: knn_share is %.3f", (int)count,
              (double)info.knn_share);
    ann_index_free(index);
    vectors_free(&set);
  }
}

static ann_plan planned(uint32_t dim, int32_t metric, int32_t graph, uint64_t count, uint32_t degree,
                        uint32_t knn_degree) {
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  shape.dim = dim;
  shape.metric = metric;
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.device = ANN_DEVICE_CPU;
  params.graph = graph;
  params.degree = degree;
  params.knn_degree = knn_degree;
  ann_plan plan = ANN_PLAN_INIT;
  CHECK_OK(ann_estimate(&shape, count, ANN_F32, &params, &plan, NULL));
  return plan;
}

/* On a CUDA device the data decide whether many narrow rows get 48 or 64 edges, where cells find their lists: a plan
 * has room for 64. */
static void degree_by_data(void) {
  const struct {
    uint32_t dim;
    uint64_t rows;
    int32_t knn;
    uint32_t knn_degree;
    uint32_t most;
  } cases[] = {{64, 100000, ANN_KNN_AUTO, 0, 64},  {64, 100000, ANN_KNN_CELLS, 64, 64},
               {64, 100000, ANN_KNN_AUTO, 63, 48}, {64, 100000, ANN_KNN_NN_DESCENT, 0, 48},
               {64, 99999, ANN_KNN_AUTO, 0, 32},   {257, 100000, ANN_KNN_AUTO, 0, 32}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ann_index_params shape = ANN_INDEX_PARAMS_INIT;
    shape.dim = cases[i].dim;
    ann_build_params params = ANN_BUILD_PARAMS_INIT;
    params.device = ANN_DEVICE_CUDA;
    params.knn = cases[i].knn;
    params.knn_degree = cases[i].knn_degree;
    ann_plan by_data = ANN_PLAN_INIT, same = ANN_PLAN_INIT;
    CHECK_OK(ann_estimate(&shape, cases[i].rows, ANN_U8, &params, &by_data, NULL));
    params.degree = cases[i].most;
    CHECK_OK(ann_estimate(&shape, cases[i].rows, ANN_U8, &params, &same, NULL));
    CHECK_SAY(by_data.index_bytes == same.index_bytes, "case %d: %llu and %llu bytes", (int)i,
              (unsigned long long)by_data.index_bytes, (unsigned long long)same.index_bytes);
  }
}

/* Many narrow rows get more edges. A plan tells the edges by their bytes, and the lists under them by those held
 * while they are made. */
static void default_degree(void) {
  const struct {
    uint32_t dim;
    int32_t metric;
    int32_t graph;
    uint64_t rows;
    uint32_t degree;
    uint32_t knn_degree;
  } cases[] = {{256, ANN_METRIC_L2, ANN_GRAPH_AUTO, 100000, 48, 64},
               {256, ANN_METRIC_COSINE, ANN_GRAPH_AUTO, 100000, 48, 64},
               {256, ANN_METRIC_L2, ANN_GRAPH_AUTO, 99999, 32, 48},
               {257, ANN_METRIC_L2, ANN_GRAPH_AUTO, 100000, 32, 48},
               {256, ANN_METRIC_INNER_PRODUCT, ANN_GRAPH_AUTO, 100000, 32, 48},
               {256, ANN_METRIC_L2, ANN_GRAPH_CAGRA, 100000, 32, 96}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const uint32_t dim = cases[i].dim;
    const int32_t metric = cases[i].metric, graph = cases[i].graph;
    const uint64_t count = cases[i].rows;
    const ann_plan usual = planned(dim, metric, graph, count, 0, 0);
    const ann_plan same = planned(dim, metric, graph, count, cases[i].degree, cases[i].knn_degree);
    const ann_plan more_edges = planned(dim, metric, graph, count, cases[i].degree + 1, cases[i].knn_degree);
    CHECK_SAY(usual.index_bytes == same.index_bytes && usual.peak_bytes == same.peak_bytes,
              "case %d: %llu and %llu bytes, at most %llu and %llu", (int)i,
              (unsigned long long)usual.index_bytes, (unsigned long long)same.index_bytes,
              (unsigned long long)usual.peak_bytes, (unsigned long long)same.peak_bytes);
    CHECK(more_edges.index_bytes > usual.index_bytes);
    CHECK_EQUAL(planned(dim, metric, graph, count, 0, 40).index_bytes,
                planned(dim, metric, graph, count, 32, 40).index_bytes);
    CHECK(planned(dim, metric, graph, count, cases[i].degree, 2 * cases[i].knn_degree).peak_bytes >
          usual.peak_bytes);
  }
}

int main(void) {
  rows = vectors_make(DATA_NORMAL, ANN_F32, N, DIM, 1);
  view = vectors_view(&rows);
  ann_index *index = index_build(ANN_METRIC_L2, &rows, NULL);
  reference = index_hash(index);
  CHECK(reference != 0);
  ann_index_free(index);
  null_arguments();
  finished_graph();
  matrix_fields();
  parameters();
  estimate_arguments();
  row_ids();
  not_finite();
  not_finite_in_blocks();
  once_in_a_life();
  stored_elements();
  rounding();
  borrowed_rows();
  given_graph();
  calibration_queries();
  calibration_unlike_rows();
  share_of_true_neighbors();
  default_method();
  default_degree();
  degree_by_data();
  seconds_of_a_build();
  vectors_free(&rows);
  return finish("build");
}
