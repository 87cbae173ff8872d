/* Proves section 11 of the header: each argument of ann_knn_graph, exact lists equal to a plain
 * computation for every element and metric, padding, and what NN-Descent finds. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ann.h"
#include "check.h"
#include "refuse.h"
#include "support.h"

static void arguments(void) {
  enum { N = 50, DIM = 4, K = 6 };
  vectors rows = vectors_make(DATA_NORMAL, ANN_F32, N, DIM, 1);
  const ann_matrix view = vectors_view(&rows);
  static uint32_t lists[N * 512], wanted[N * K];
  static float distances[N * K];
  ann_knn_params good = ANN_KNN_PARAMS_INIT;
  good.k = K;
  CHECK_OK(ann_knn_graph(NULL, &view, &good, wanted, distances, NULL, NULL));
  const ann_status invalid = ANN_INVALID_ARGUMENT;
  REFUSED(ann_knn_graph(NULL, NULL, &good, lists, NULL, NULL, &error), invalid, "rows");
  REFUSED(ann_knn_graph(NULL, &view, NULL, lists, NULL, NULL, &error), invalid, "");
  REFUSED(ann_knn_graph(NULL, &view, &good, NULL, NULL, NULL, &error), invalid, "neighbors");
  CHECK_STATUS(ann_knn_graph(NULL, NULL, NULL, NULL, NULL, NULL, NULL), invalid);
#define BAD(change, wanted_status, also, words)                                                        \
  do {                                                                                                 \
    ann_knn_params p = good;                                                                           \
    change;                                                                                            \
    REFUSED_OR(ann_knn_graph(NULL, &view, &p, lists, NULL, NULL, &error), wanted_status, also, words); \
  } while (0)
  BAD(p.k = 0, invalid, invalid, "k 0 512");
  BAD(p.k = 513, ANN_LIMIT, ANN_LIMIT, "k 513 512");
  BAD(p.k = 1u << 31, ANN_LIMIT, ANN_LIMIT, "k");
  BAD(p.metric = 4, invalid, invalid, "metric 4");
  BAD(p.metric = -1, invalid, invalid, "metric");
  BAD(p.method = 6, invalid, invalid, "method 6");
  BAD(p.method = -1, invalid, invalid, "method");
  BAD(p.method = ANN_KNN_GIVEN, invalid, invalid, "method");
  BAD((p.method = ANN_KNN_GGNN, p.k = 129), ANN_LIMIT, ANN_LIMIT, "k 129 GGNN 128");
  BAD(p.samples = 1, invalid, invalid, "samples 1");
  BAD(p.samples = 65, invalid, ANN_LIMIT, "samples 65");
  BAD(p.samples = K + 1, invalid, ANN_LIMIT, "samples 7 6");
  BAD(p.iterations = 1001, invalid, ANN_LIMIT, "iterations 1001");
  BAD(p.convergence = -1, invalid, invalid, "convergence");
  BAD(p.convergence = 1, invalid, invalid, "convergence");
  BAD(p.convergence = NAN, invalid, invalid, "convergence");
  BAD(p.device = -1, invalid, invalid, "device -1");
  BAD(p.device = ANN_DEVICE_CUDA + 1000, ANN_NO_DEVICE, ANN_NO_DEVICE, "device 1002");
  BAD(p.reserved = 1, invalid, invalid, "reserved 1");
#define BAD_ROWS(change, wanted_status, words)                                                  \
  do {                                                                                          \
    ann_matrix bad = view;                                                                      \
    change;                                                                                     \
    REFUSED(ann_knn_graph(NULL, &bad, &good, lists, NULL, NULL, &error), wanted_status, words); \
  } while (0)
  BAD_ROWS(bad.data = NULL, invalid, "data");
  BAD_ROWS(bad.dim = 0, invalid, "dim 0");
  BAD_ROWS(bad.dim = ANN_DIM_MAX + 1, ANN_LIMIT, "dim 32769");
  BAD_ROWS(bad.rows = (uint64_t)ANN_ROWS_MAX + 1, ANN_LIMIT, "rows");
  BAD_ROWS(bad.element = 0, invalid, "element 0");
  BAD_ROWS(bad.element = 6, invalid, "element 6");
  BAD_ROWS(bad.row_stride = 15, invalid, "row_stride 15 16");
  /* Same input, same answer, after all those refusals. */
  CHECK_OK(ann_knn_graph(NULL, &view, &good, lists, NULL, NULL, NULL));
  CHECK(memcmp(lists, wanted, sizeof wanted) == 0);
  /* No rows, one row, and the largest k. */
  ann_matrix few = view;
  few.rows = 0;
  few.data = NULL;
  CHECK_OK(ann_knn_graph(NULL, &few, &good, lists, NULL, NULL, NULL));
  few = view;
  good.k = 512;
  CHECK_OK(ann_knn_graph(NULL, &few, &good, lists, NULL, NULL, NULL));
  for (int i = 0; i < N; i++)
    for (int j = 0; j < 512; j++)
      if ((lists[i * 512 + j] == UINT32_MAX) != (j >= N - 1)) {
        CHECK_SAY(0, "row %d, place %d: %u", i, j, lists[i * 512 + j]);
        break;
      }
  vectors_free(&rows);
}

/* Lists have the form that the header promises, and distances are those of their rows. Gives the
 * share of true neighbours found. */
static double judge(const char *what, int32_t metric, const vectors *rows, uint32_t k, const uint32_t *lists,
                    const float *distances) {
  const uint64_t n = rows->rows;
  const uint32_t wanted = n - 1 < k ? (uint32_t)(n - 1) : k;
  double *truth = malloc(n * k * sizeof *truth);
  true_neighbors(metric, rows, rows, k, 1, NULL, truth);
  uint64_t bad = 0, hits = 0;
  for (uint64_t row = 0; row < n; row++)
    for (uint32_t i = 0; i < k; i++) {
      const uint64_t place = row * k + i;
      if (i >= wanted) {
        bad += lists[place] != UINT32_MAX || distances[place] != INFINITY;
        continue;
      }
      if (lists[place] == UINT32_MAX) continue; /* approximate lists may be short */
      if (lists[place] >= n || lists[place] == row) {
        bad++;
        continue;
      }
      for (uint32_t j = 0; j < i; j++) bad += lists[row * k + j] == lists[place];
      double error;
      const double distance = true_distance(metric, rows->dim, rows->element, vectors_row(rows, row),
                                            rows->element, vectors_row(rows, lists[place]), &error);
      bad += !(fabs(distances[place] - distance) <= error);
      if (i > 0)
        bad += distances[place] < distances[place - 1] ||
               (distances[place] == distances[place - 1] && lists[place] < lists[place - 1]);
      hits += distance <= truth[row * k + wanted - 1] + error;
    }
  CHECK_SAY(bad == 0, "%s: %s %s n %d k %u: %llu bad places", what, element_name(rows->element),
            metric_name(metric), (int)n, k, (unsigned long long)bad);
  free(truth);
  return wanted ? (double)hits / (double)(n * wanted) : 1;
}

static void one_graph(int32_t method, int kind, int32_t element, int32_t metric, uint64_t n, uint32_t dim,
                      uint32_t k, double floor) {
  vectors rows = vectors_make(kind, element, n, dim, n + k);
  uint32_t *lists = malloc(n * k * sizeof *lists);
  float *distances = malloc(n * k * sizeof *distances);
  ann_knn_params params = ANN_KNN_PARAMS_INIT;
  params.metric = metric;
  params.method = method;
  params.k = k;
  const ann_matrix view = vectors_view(&rows);
  ann_error error = ANN_ERROR_INIT;
  const ann_status status = ann_knn_graph(NULL, &view, &params, lists, distances, NULL, &error);
  /* A way that is not offered is said so; the others work. */
  if (metric == ANN_METRIC_INNER_PRODUCT && method != ANN_KNN_EXACT && status == ANN_UNSUPPORTED) {
    CHECK(mentions(error.message, "method"));
    floor = -1;
    goto done;
  }
  CHECK_OK(status);
  const char *name = method == ANN_KNN_EXACT   ? "exact"
                     : method == ANN_KNN_CELLS ? "cells"
                     : method == ANN_KNN_GGNN  ? "GGNN"
                                               : "NN-Descent";
  const double recall = judge(name, metric, &rows, k, lists, distances);
  CHECK_SAY(recall >= floor, "%s: %s %s kind %d n %d dim %u k %u: recall %.4f, wanted %.4f", name,
            element_name(element), metric_name(metric), kind, (int)n, dim, k, recall, floor);
done:
  free(lists);
  free(distances);
  vectors_free(&rows);
}

/* Lists shorter than 16 are searched at that length and cut: NN-Descent's rows would not know enough others. */
static void short_lists(int32_t method, int32_t element, int32_t metric) {
  enum { ROWS = 900, LENGTH = 16 };
  vectors rows = vectors_make(DATA_CLUSTERED, element, ROWS, 12, 5);
  const ann_matrix view = vectors_view(&rows);
  ann_knn_params params = ANN_KNN_PARAMS_INIT;
  params.metric = metric;
  params.method = method;
  params.k = LENGTH;
  if (method == ANN_KNN_CELLS && metric == ANN_METRIC_INNER_PRODUCT) params.device = ANN_DEVICE_CPU;
  uint32_t *whole = malloc(ROWS * LENGTH * sizeof *whole), *part = malloc(ROWS * LENGTH * sizeof *part);
  float *far = malloc(ROWS * LENGTH * sizeof *far), *near = malloc(ROWS * LENGTH * sizeof *near);
  CHECK_OK(ann_knn_graph(NULL, &view, &params, whole, far, NULL, NULL));
  /* Every third length, every sixth under a sanitizer: each is a build of its own. */
  for (uint32_t k = 1; k < LENGTH; k += test_scale() > 1 ? 6 : 3) {
    params.k = k;
    CHECK_OK(ann_knn_graph(NULL, &view, &params, part, near, NULL, NULL));
    uint64_t others = 0;
    for (uint64_t row = 0; row < ROWS; row++)
      for (uint32_t i = 0; i < k; i++)
        others += part[row * k + i] != whole[row * LENGTH + i] || near[row * k + i] != far[row * LENGTH + i];
    CHECK_SAY(others == 0, "method %d, %s %s, k %u: %llu places differ from lists of 16", method,
              element_name(element), metric_name(metric), k, (unsigned long long)others);
  }
  free(whole), free(part), free(far), free(near);
  vectors_free(&rows);
}

/* Cells by inner product: of rows of unlike lengths too they find what comparing every pair does, with any threads,
 * and devices refuse them. */
static void cells_by_product(void) {
  enum { K = 10 };
  const uint64_t n = (uint64_t)(6000 / test_scale());
  const int kinds[] = {DATA_NORMAL, DATA_CLUSTERED};
  const int32_t elements[] = {ANN_F32, ANN_U8};
  uint32_t *lists[3];
  float *far = malloc(n * K * sizeof *far);
  for (int i = 0; i < 3; i++) lists[i] = malloc(n * K * sizeof **lists);
  for (int c = 0; c < 2; c++) {
    vectors rows = vectors_make(kinds[c], elements[c], n, 24, 31);
    if (elements[c] == ANN_F32)
      for (uint64_t row = 0; row < n; row++)
        for (uint32_t column = 0; column < 24; column++)
          ((float *)rows.data)[row * 24 + column] *= 1 + (float)(row % 97) / 16;
    const ann_matrix view = vectors_view(&rows);
    ann_knn_params params = ANN_KNN_PARAMS_INIT;
    params.metric = ANN_METRIC_INNER_PRODUCT;
    params.k = K;
    params.device = ANN_DEVICE_CPU;
    for (int i = 0; i < 3; i++) {
      params.method = i == 0 ? ANN_KNN_EXACT : ANN_KNN_CELLS;
      params.threads = i == 1 ? 1 : 3;
      ann_error error = ANN_ERROR_INIT;
      const ann_status status = ann_knn_graph(NULL, &view, &params, lists[i], far, NULL, &error);
      CHECK_SAY(status == ANN_OK, "%s", error.message);
    }
    CHECK(memcmp(lists[1], lists[2], n * K * sizeof **lists) == 0);
    uint64_t hits = 0;
    for (uint64_t row = 0; row < n; row++)
      for (int i = 0; i < K; i++)
        for (int j = 0; j < K; j++) hits += lists[0][row * K + i] == lists[1][row * K + j];
    CHECK_SAY((double)hits >= 0.95 * (double)(n * K), "cells by product of %s find %.4f",
              element_name(elements[c]), (double)hits / (double)(n * K));
    params.method = ANN_KNN_CELLS;
    params.device = ANN_DEVICE_CUDA;
    ann_error error = ANN_ERROR_INIT;
    CHECK_STATUS(ann_knn_graph(NULL, &view, &params, lists[1], far, NULL, &error), ANN_UNSUPPORTED);
    CHECK(mentions(error.message, "EXACT"));
    vectors_free(&rows);
  }
  for (int i = 0; i < 3; i++) free(lists[i]);
  free(far);
}

int main(void) {
  arguments();
  cells_by_product();
  const uint64_t many = (uint64_t)(3000 / test_scale());
  for (int e = 0; e < ELEMENTS; e++)
    for (int m = 0; m < METRICS; m++) {
      const int32_t element = all_elements[e], metric = all_metrics[m];
      one_graph(ANN_KNN_EXACT, DATA_NORMAL, element, metric, 150, 1 + (uint32_t)(7 * e + 3 * m), 10, 1);
      one_graph(ANN_KNN_EXACT, DATA_CLUSTERED, element, metric, 121, 17, 130, 1);
      one_graph(ANN_KNN_EXACT, DATA_EQUAL, element, metric, 100, 8, 10, 1);
      if (!test_takes(e + m)) continue;
      /* Clouds around zero have hubs under inner product, which NN-Descent finds hard. The floors
       * are what defaults reach, less a little; they are there to notice a fall. */
      one_graph(ANN_KNN_NN_DESCENT, DATA_NORMAL, element, metric, 900, 12, 20,
                metric == ANN_METRIC_INNER_PRODUCT ? 0.65 : 0.9);
      one_graph(ANN_KNN_CELLS, DATA_NORMAL, element, metric, 900, 12, 20, 0.95);
      one_graph(ANN_KNN_GGNN, DATA_NORMAL, element, metric, 900, 12, 20, 0.95);
      short_lists(ANN_KNN_NN_DESCENT, element, metric);
      short_lists(ANN_KNN_CELLS, element, metric);
    }
  one_graph(ANN_KNN_NN_DESCENT, DATA_NORMAL, ANN_F32, ANN_METRIC_L2, many, 16, 30, 0.88);
  one_graph(ANN_KNN_NN_DESCENT, DATA_CLUSTERED, ANN_F32, ANN_METRIC_L2, many, 16, 30, 0.86);
  one_graph(ANN_KNN_NN_DESCENT, DATA_EQUAL, ANN_F32, ANN_METRIC_L2, 500, 16, 10, 1);
  one_graph(ANN_KNN_CELLS, DATA_NORMAL, ANN_F32, ANN_METRIC_L2, many, 16, 30, 0.95);
  one_graph(ANN_KNN_CELLS, DATA_CLUSTERED, ANN_F32, ANN_METRIC_L2, many, 16, 30, 0.95);
  one_graph(ANN_KNN_CELLS, DATA_EQUAL, ANN_F32, ANN_METRIC_L2, 1000, 16, 10, 1);
  one_graph(ANN_KNN_GGNN, DATA_NORMAL, ANN_F32, ANN_METRIC_L2, many, 16, 30, 0.95);
  one_graph(ANN_KNN_GGNN, DATA_CLUSTERED, ANN_F32, ANN_METRIC_L2, many, 16, 30, 0.95);
  one_graph(ANN_KNN_GGNN, DATA_EQUAL, ANN_F32, ANN_METRIC_L2, 1000, 16, 10, 1);
  one_graph(ANN_KNN_AUTO, DATA_NORMAL, ANN_F32, ANN_METRIC_L2, 5000 / (test_scale() > 1 ? 2 : 1), 1, 30,
            0.95);
  /* Lists of more rows than a row of a search graph has edges. NN-Descent's 16 samples a round are so few of them that
   * its default share of new entries ends it early: the far end is missing, as floors say. */
  const uint32_t long_lists[] = {257, 300, 400, 512};
  const double descent_floors[] = {0.55, 0.35, 0.2, 0.15};
  for (int i = 0; i < 4; i++) {
    one_graph(ANN_KNN_EXACT, DATA_CLUSTERED, ANN_U8, ANN_METRIC_L2, 600, 16, long_lists[i], 1);
    if (test_takes(i))
      one_graph(ANN_KNN_NN_DESCENT, DATA_NORMAL, ANN_F32, ANN_METRIC_L2, 2100, 16, long_lists[i],
                descent_floors[i]);
    if (test_takes(i + 1))
      one_graph(ANN_KNN_CELLS, DATA_NORMAL, ANN_F32, ANN_METRIC_L2, 2100, 16, long_lists[i], 0.8);
    if (test_takes(i + 2))
      one_graph(ANN_KNN_CELLS, DATA_NORMAL, ANN_F32, ANN_METRIC_INNER_PRODUCT, 2100, 16, long_lists[i], 0.8);
  }
  for (uint64_t n = 1; n <= 40; n++) {
    one_graph(ANN_KNN_EXACT, DATA_NORMAL, ANN_F32, ANN_METRIC_L2, n, 3, 10, 1);
    one_graph(ANN_KNN_NN_DESCENT, DATA_NORMAL, ANN_F32, ANN_METRIC_L2, n, 3, 10, 0.8);
    one_graph(ANN_KNN_CELLS, DATA_NORMAL, ANN_F32, ANN_METRIC_L2, n, 3, 10, 1);
    one_graph(ANN_KNN_GGNN, DATA_NORMAL, ANN_F32, ANN_METRIC_L2, n, 3, 10, 1);
  }
  return finish("knn_graph");
}
