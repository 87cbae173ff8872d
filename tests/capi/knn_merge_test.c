/* Proves ann_knn_merge: each argument, exact merges equal to exact lists of all rows, what the descent finds for
 * every element and metric and for uneven sets, sets that are empty, equal or shorter than k, ids of any kind,
 * shards merged pair by pair, merges of what was merged, and that threads and devices change nothing. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ann.h"
#include "check.h"
#include "refuse.h"
#include "support.h"

/* Lists with memory of their own. */
typedef struct lists {
  ann_knn_lists view;
  uint64_t *ids, *neighbors;
  float *distances;
} lists;

static lists lists_make(uint64_t rows, uint32_t k, int32_t metric, uint64_t first_id, int with_ids) {
  lists l;
  l.ids = malloc((rows + 1) * sizeof *l.ids);
  l.neighbors = malloc((rows * k + 1) * sizeof *l.neighbors);
  l.distances = malloc((rows * k + 1) * sizeof *l.distances);
  ann_knn_lists view = ANN_KNN_LISTS_INIT;
  view.k = k;
  view.rows = rows;
  view.metric = metric;
  view.first_id = first_id;
  view.ids = with_ids ? l.ids : NULL;
  view.neighbors = l.neighbors;
  view.distances = l.distances;
  l.view = view;
  return l;
}

static void lists_free(lists *l) {
  free(l->ids);
  free(l->neighbors);
  free(l->distances);
}

/* Rows `first` to `first + count` of a set. */
static ann_matrix part_of(const vectors *rows, uint64_t first, uint64_t count) {
  ann_matrix view = vectors_view(rows);
  view.data = count ? vectors_row(rows, first) : NULL;
  view.rows = count;
  return view;
}

/* The lists of a part by itself; row r of the whole has the id `ids[r]`, or r + base where ids is NULL. */
static lists lists_of(const vectors *rows, uint64_t first, uint64_t count, uint32_t k, int32_t metric,
                      int32_t method, const uint64_t *ids, uint64_t base) {
  lists l = lists_make(count, k, metric, base + first, ids != NULL);
  uint32_t *numbers = malloc((count * k + 1) * sizeof *numbers);
  const ann_matrix view = part_of(rows, first, count);
  ann_knn_params params = ANN_KNN_PARAMS_INIT;
  params.metric = metric;
  params.method = method;
  params.k = k;
  CHECK_OK(ann_knn_graph(NULL, &view, &params, numbers, l.distances, NULL, NULL));
  for (uint64_t i = 0; i < count * k; i++)
    l.neighbors[i] = numbers[i] == UINT32_MAX ? ANN_ID_NONE
                     : ids                    ? ids[first + numbers[i]]
                                              : base + first + numbers[i];
  for (uint64_t i = 0; ids && i < count; i++) l.ids[i] = ids[first + i];
  free(numbers);
  return l;
}

static ann_knn_params merge_params(uint32_t k, int32_t metric, int32_t method) {
  ann_knn_params params = ANN_KNN_PARAMS_INIT;
  params.k = k;
  params.metric = metric;
  params.method = method;
  return params;
}

/* Share of the nearest, 10 at most, by distance, that lists of all rows hold. */
static double share_of(const lists *found, const lists *truth) {
  const uint32_t k = truth->view.k;
  uint64_t hits = 0, wanted = 0;
  for (uint64_t row = 0; row < truth->view.rows; row++)
    for (uint32_t i = 0; i < k && i < 10; i++) {
      const uint64_t place = row * k + i;
      if (truth->neighbors[place] == ANN_ID_NONE) continue;
      wanted++;
      hits += found->distances[place] <= truth->distances[place] + fabsf(truth->distances[place]) * 1e-5f;
    }
  return wanted ? (double)hits / (double)wanted : 1;
}

static int lists_equal(const lists *a, const lists *b) {
  const uint64_t places = a->view.rows * a->view.k;
  return a->view.rows == b->view.rows && a->view.k == b->view.k &&
         memcmp(a->neighbors, b->neighbors, places * sizeof *a->neighbors) == 0 &&
         memcmp(a->distances, b->distances, places * sizeof *a->distances) == 0;
}

/* Two parts of a set, merged. */
static lists merge_parts(const vectors *rows, uint64_t split, const lists *first, const lists *second,
                         const ann_knn_params *params) {
  const ann_matrix a = part_of(rows, 0, split), b = part_of(rows, split, rows->rows - split);
  lists merged = lists_make(rows->rows, params->k, 0, 0, first->view.ids != NULL);
  ann_error error = ANN_ERROR_INIT;
  const ann_status status =
      ann_knn_merge(NULL, &a, &first->view, &b, &second->view, params, &merged.view, NULL, &error);
  CHECK_SAY(status == ANN_OK, "%s: %s", ann_status_name(status), error.message);
  return merged;
}

static void arguments(void) {
  enum { N = 40, DIM = 4, K = 6, SPLIT = 25 };
  vectors rows = vectors_make(DATA_NORMAL, ANN_F32, N, DIM, 1);
  const ann_matrix a = part_of(&rows, 0, SPLIT), b = part_of(&rows, SPLIT, N - SPLIT);
  lists first = lists_of(&rows, 0, SPLIT, K, ANN_METRIC_L2, ANN_KNN_EXACT, NULL, 0);
  lists second = lists_of(&rows, SPLIT, N - SPLIT, K, ANN_METRIC_L2, ANN_KNN_EXACT, NULL, 0);
  lists merged = lists_make(N, K, 0, 77, 0);
  const ann_knn_params good = merge_params(K, 0, 0);
  const ann_status invalid = ANN_INVALID_ARGUMENT;
#define MERGE(A, LA, B, LB, P, M) ann_knn_merge(NULL, A, LA, B, LB, P, M, NULL, &error)
  REFUSED(MERGE(NULL, &first.view, &b, &second.view, &good, &merged.view), invalid, "first_rows");
  REFUSED(MERGE(&a, NULL, &b, &second.view, &good, &merged.view), invalid, "first_lists");
  REFUSED(MERGE(&a, &first.view, NULL, &second.view, &good, &merged.view), invalid, "second_rows");
  REFUSED(MERGE(&a, &first.view, &b, NULL, &good, &merged.view), invalid, "second_lists");
  REFUSED(MERGE(&a, &first.view, &b, &second.view, NULL, &merged.view), invalid, "params");
  REFUSED(MERGE(&a, &first.view, &b, &second.view, &good, NULL), invalid, "merged");
#define BAD(change, wanted, words)                                      \
  do {                                                                  \
    ann_matrix ma = a, mb = b;                                          \
    ann_knn_lists la = first.view, lb = second.view, out = merged.view; \
    ann_knn_params p = good;                                            \
    change;                                                             \
    REFUSED(MERGE(&ma, &la, &mb, &lb, &p, &out), wanted, words);        \
    (void)ma, (void)mb;                                                 \
  } while (0)
  BAD(p.k = 0, invalid, "params.k 0 256");
  BAD(p.k = 257, ANN_LIMIT, "params.k 257 256");
  BAD(p.metric = 4, invalid, "params.metric 4");
  BAD(p.metric = -1, invalid, "params.metric -1");
  BAD(p.metric = ANN_METRIC_COSINE, invalid, "first_lists.metric");
  BAD(lb.metric = ANN_METRIC_COSINE, invalid, "second_lists.metric");
  BAD(p.method = ANN_KNN_GIVEN, invalid, "params.method 3");
  BAD(p.method = ANN_KNN_CELLS, invalid, "params.method 4");
  BAD(p.method = -1, invalid, "params.method");
  BAD(p.samples = 1, invalid, "samples 1");
  BAD(p.samples = K + 1, invalid, "samples 7 6");
  BAD(p.iterations = 1001, invalid, "iterations 1001");
  BAD(p.convergence = 1, invalid, "convergence");
  BAD(p.device = -1, invalid, "device -1");
  BAD(p.device = ANN_DEVICE_CUDA + 1000, ANN_NO_DEVICE, "device 1002");
  BAD(p.reserved = 1, invalid, "reserved 1");
  BAD(ma.dim = 3, invalid, "dim 3 4");
  BAD(mb.element = ANN_F16, invalid, "element");
  BAD(la.rows = SPLIT - 1, invalid, "first_lists.rows 24 25");
  BAD(lb.rows = (uint64_t)ANN_ROWS_MAX + 1, ANN_LIMIT, "second_lists.rows");
  BAD(la.k = 0, invalid, "first_lists.k 0 256");
  BAD(la.k = 257, ANN_LIMIT, "first_lists.k 257 256");
  BAD(la.metric = 4, invalid, "first_lists.metric 4");
  BAD(la.neighbors = NULL, invalid, "first_lists.neighbors");
  BAD(lb.distances = NULL, invalid, "second_lists.distances");
  BAD(la.struct_size = 8, invalid, "first_lists.struct_size 8");
  BAD(lb.first_id = UINT64_MAX - 3, invalid, "second_lists.first_id");
  BAD(out.k = K + 1, invalid, "merged.k 7 6");
  BAD(out.rows = N - 1, invalid, "merged.rows 39 40");
  BAD(out.neighbors = NULL, invalid, "merged.neighbors");
  BAD(out.distances = NULL, invalid, "merged.distances");
  BAD(lb.first_id = 5000, invalid, "merged.ids");
  {
    /* One id of both sets: the lists of the second are those of other ids. */
    ann_knn_lists shared = second.view, out = merged.view;
    uint64_t ids[N - SPLIT];
    for (int i = 0; i < N - SPLIT; i++) ids[i] = 1000 + (uint64_t)i;
    ids[4] = 24;
    shared.ids = ids;
    out.ids = merged.ids;
    REFUSED(MERGE(&a, &first.view, &b, &shared, &good, &out), invalid, "ids 24");
  }
#undef BAD
  /* Lists that are none, with their place. */
#define NO_LIST(change, back, row_wanted, column_wanted)                                                     \
  do {                                                                                                       \
    change;                                                                                                  \
    ann_error error = ANN_ERROR_INIT;                                                                        \
    CHECK_STATUS(MERGE(&a, &first.view, &b, &second.view, &good, &merged.view), invalid);                    \
    CHECK_SAY(                                                                                               \
        error.row == row_wanted && error.column == column_wanted && mentions(error.message, "second_lists"), \
        "%s: row %d, column %d", error.message, (int)error.row, (int)error.column);                          \
    back;                                                                                                    \
  } while (0)
  uint64_t *n = second.neighbors;
  float *d = second.distances;
  const uint64_t kept = n[3 * K + 2];
  const float near = d[3 * K + 2];
  NO_LIST(d[3 * K + 2] = NAN, d[3 * K + 2] = near, 3, 2);
  NO_LIST(d[3 * K + 2] = -1, d[3 * K + 2] = near, 3, 2);
  NO_LIST(n[3 * K + 2] = SPLIT + 3, n[3 * K + 2] = kept, 3, 2);
  NO_LIST(n[3 * K + 2] = n[3 * K + 5], n[3 * K + 2] = kept, 3, 2);
  NO_LIST(n[3 * K + 2] = ANN_ID_NONE, n[3 * K + 2] = kept, 3, 2);
#undef NO_LIST
  CHECK_SAY(merged.view.first_id == 77, "a refused call has written to merged");
  vectors infinite = vectors_make(DATA_NORMAL, ANN_F32, N, DIM, 1);
  put_value(ANN_F32, (char *)vectors_row(&infinite, 30) + 8, INFINITY);
  const ann_matrix bad_rows = part_of(&infinite, SPLIT, N - SPLIT);
  REFUSED(MERGE(&a, &first.view, &bad_rows, &second.view, &good, &merged.view), ANN_NOT_FINITE, "column 2");
  vectors_free(&infinite);
  ann_error error = ANN_ERROR_INIT;
  CHECK_OK(MERGE(&a, &first.view, &b, &second.view, &good, &merged.view));
  CHECK(merged.view.first_id == 0 && merged.view.metric == ANN_METRIC_L2 && merged.view.has_ids == 0);
#undef MERGE
  lists_free(&first);
  lists_free(&second);
  lists_free(&merged);
  vectors_free(&rows);
}

/* By every pair the lists are those of all rows together, bit for bit; by the descent nearly all are found, and
 * merging again loses nothing. */
static void merges(int32_t element, int32_t metric, int kind, uint64_t n, uint64_t split, uint32_t dim,
                   uint32_t k, double floor) {
  vectors rows = vectors_make(kind, element, n, dim, n + k);
  lists first = lists_of(&rows, 0, split, k, metric, ANN_KNN_EXACT, NULL, 0);
  lists second = lists_of(&rows, split, n - split, k, metric, ANN_KNN_EXACT, NULL, 0);
  lists truth = lists_of(&rows, 0, n, k, metric, ANN_KNN_EXACT, NULL, 0);
  ann_knn_params params = merge_params(k, metric, ANN_KNN_EXACT);
  lists exact = merge_parts(&rows, split, &first, &second, &params);
  CHECK_SAY(lists_equal(&exact, &truth), "%s %s n %d split %d k %u: exact merge differs from exact lists",
            element_name(element), metric_name(metric), (int)n, (int)split, k);
  params.method = ANN_KNN_NN_DESCENT;
  params.threads = 1;
  lists found = merge_parts(&rows, split, &first, &second, &params);
  const double share = share_of(&found, &truth);
  CHECK_SAY(share >= floor, "%s %s kind %d n %d split %d dim %u k %u: share %.4f, wanted %.4f",
            element_name(element), metric_name(metric), kind, (int)n, (int)split, dim, k, share, floor);
  params.threads = 3;
  lists again = merge_parts(&rows, split, &first, &second, &params);
  CHECK_SAY(lists_equal(&found, &again), "threads change the lists");
  params.device = ANN_DEVICE_CPU;
  lists on_cpu = merge_parts(&rows, split, &first, &second, &params);
  CHECK_SAY(lists_equal(&found, &on_cpu), "%s %s n %d split %d k %u: a device finds other lists",
            element_name(element), metric_name(metric), (int)n, (int)split, k);
  lists_free(&first);
  lists_free(&second);
  /* What was merged, cut in two and merged again. */
  first = lists_make(split, k, metric, 0, 0);
  second = lists_make(n - split, k, metric, split, 0);
  memcpy(first.neighbors, found.neighbors, split * k * sizeof *first.neighbors);
  memcpy(first.distances, found.distances, split * k * sizeof *first.distances);
  memcpy(second.neighbors, found.neighbors + split * k, (n - split) * k * sizeof *first.neighbors);
  memcpy(second.distances, found.distances + split * k, (n - split) * k * sizeof *first.distances);
  lists twice = merge_parts(&rows, split, &first, &second, &params);
  uint64_t farther = 0;
  for (uint64_t i = 0; i < n * k; i++) farther += twice.distances[i] > found.distances[i];
  CHECK_SAY(farther == 0, "a second merge has lost %d entries", (int)farther);
  lists *all[] = {&first, &second, &truth, &exact, &found, &again, &on_cpu, &twice};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) lists_free(all[i]);
  vectors_free(&rows);
}

/* The second set is the first once more: each row's twin is its nearest, at no distance. */
static void duplicates(void) {
  enum { N = 400, DIM = 8, K = 16 };
  vectors rows = vectors_make(DATA_NORMAL, ANN_U8, 2 * N, DIM, 3);
  memcpy(vectors_row(&rows, N), vectors_row(&rows, 0), N * DIM);
  lists first = lists_of(&rows, 0, N, K, ANN_METRIC_L2, ANN_KNN_EXACT, NULL, 0);
  lists second = lists_of(&rows, N, N, K, ANN_METRIC_L2, ANN_KNN_EXACT, NULL, 0);
  lists truth = lists_of(&rows, 0, 2 * N, K, ANN_METRIC_L2, ANN_KNN_EXACT, NULL, 0);
  const ann_knn_params params = merge_params(K, 0, ANN_KNN_NN_DESCENT);
  lists merged = merge_parts(&rows, N, &first, &second, &params);
  uint64_t twins = 0;
  for (uint64_t row = 0; row < 2 * N; row++) twins += merged.distances[row * K] == 0;
  CHECK_SAY(twins >= 2 * N * 99 / 100, "%d of %d rows have found their twin", (int)twins, 2 * N);
  const double share = share_of(&merged, &truth);
  CHECK_SAY(share >= 0.97, "share %.4f of duplicates", share);
  lists *all[] = {&first, &second, &truth, &merged};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) lists_free(all[i]);
  vectors_free(&rows);
}

/* Sets of few rows or none, with k beyond them: every size of either. */
static void small_sets(void) {
  enum { N = 14, DIM = 3, K = 9 };
  vectors rows = vectors_make(DATA_NORMAL, ANN_F32, N, DIM, 5);
  for (uint64_t n = 0; n <= N; n++)
    for (uint64_t split = 0; split <= n; split++) {
      vectors part = rows;
      part.rows = n;
      lists first = lists_of(&part, 0, split, 5, ANN_METRIC_L2, ANN_KNN_EXACT, NULL, 0);
      lists second = lists_of(&part, split, n - split, 30, ANN_METRIC_L2, ANN_KNN_EXACT, NULL, 0);
      lists long_first = lists_of(&part, 0, split, K, ANN_METRIC_L2, ANN_KNN_EXACT, NULL, 0);
      lists truth = lists_of(&part, 0, n, K, ANN_METRIC_L2, ANN_KNN_EXACT, NULL, 0);
      const ann_knn_params params = merge_params(K, 0, 0);
      lists merged = merge_parts(&part, split, &long_first, &second, &params);
      CHECK_SAY(lists_equal(&merged, &truth), "%d and %d rows", (int)split, (int)(n - split));
      lists cut = merge_parts(&part, split, &first, &second, &params); /* lists of 5, of which k is 9 */
      const double share = share_of(&cut, &truth);
      CHECK_SAY(split > 6 || share == 1, "%d and %d rows by lists of 5: share %.4f", (int)split,
                (int)(n - split), share);
      lists *all[] = {&first, &second, &long_first, &truth, &merged, &cut};
      for (size_t i = 0; i < sizeof all / sizeof *all; i++) lists_free(all[i]);
    }
  vectors_free(&rows);
}

/* Three shards with ids of 64 bits, merged pair by pair; lists then name rows of the third. */
static void shards(int32_t method, double floor) {
  enum { N = 900, PART = 300, DIM = 8, K = 12 };
  vectors rows = vectors_make(DATA_NORMAL, ANN_F32, N, DIM, 9);
  static uint64_t ids[N];
  uint64_t state = 4;
  for (int i = 0; i < N; i++) ids[i] = random_next(&state) | 1;
  lists truth = lists_of(&rows, 0, N, K, ANN_METRIC_L2, ANN_KNN_EXACT, ids, 0);
  lists part[3];
  for (uint64_t i = 0; i < 3; i++)
    part[i] = lists_of(&rows, i * PART, PART, K, ANN_METRIC_L2, ANN_KNN_EXACT, ids, 0);
  const ann_knn_params params = merge_params(K, 0, method);
  for (uint64_t i = 0; i < 3; i++)
    for (uint64_t j = i + 1; j < 3; j++) {
      const ann_matrix a = part_of(&rows, i * PART, PART), b = part_of(&rows, j * PART, PART);
      lists both = lists_make(2 * PART, K, 0, 0, 1);
      CHECK_OK(ann_knn_merge(NULL, &a, &part[i].view, &b, &part[j].view, &params, &both.view, NULL, NULL));
      CHECK(both.view.has_ids == 1 && both.view.first_id == 0);
      CHECK(memcmp(both.ids, ids + i * PART, PART * sizeof *ids) == 0);
      CHECK(memcmp(both.ids + PART, ids + j * PART, PART * sizeof *ids) == 0);
      const uint64_t half = PART * K;
      memcpy(part[i].neighbors, both.neighbors, half * sizeof *both.neighbors);
      memcpy(part[i].distances, both.distances, half * sizeof *both.distances);
      memcpy(part[j].neighbors, both.neighbors + half, half * sizeof *both.neighbors);
      memcpy(part[j].distances, both.distances + half, half * sizeof *both.distances);
      lists_free(&both);
    }
  uint64_t hits = 0, wrong = 0;
  for (uint64_t row = 0; row < N; row++)
    for (uint64_t i = 0; i < K; i++) {
      const uint64_t at = row % PART * K + i;
      hits += part[row / PART].distances[at] <= truth.distances[row * K + i];
      wrong += part[row / PART].neighbors[at] != truth.neighbors[row * K + i];
    }
  CHECK_SAY((double)hits >= floor * N * K, "shards: %d of %d found", (int)hits, N * K);
  if (method == ANN_KNN_EXACT) CHECK_EQUAL(wrong, 0);
  for (int i = 0; i < 3; i++) lists_free(&part[i]);
  lists_free(&truth);
  vectors_free(&rows);
}

static void cancelled(void) {
  vectors rows = vectors_make(DATA_NORMAL, ANN_F32, 600, 4, 1);
  lists first = lists_of(&rows, 0, 300, 20, ANN_METRIC_L2, ANN_KNN_EXACT, NULL, 0);
  lists second = lists_of(&rows, 300, 300, 20, ANN_METRIC_L2, ANN_KNN_EXACT, NULL, 0);
  lists merged = lists_make(600, 20, 0, 0, 0);
  const ann_matrix a = part_of(&rows, 0, 300), b = part_of(&rows, 300, 300);
  ann_monitor *monitor = NULL;
  CHECK_OK(ann_monitor_create(&monitor, NULL));
  ann_monitor_cancel(monitor);
  for (int32_t method = ANN_KNN_NN_DESCENT; method <= ANN_KNN_EXACT; method++) {
    const ann_knn_params params = merge_params(20, 0, method);
    CHECK_STATUS(ann_knn_merge(NULL, &a, &first.view, &b, &second.view, &params, &merged.view, monitor, NULL),
                 ANN_CANCELLED);
  }
  ann_monitor_free(monitor);
  lists_free(&first);
  lists_free(&second);
  lists_free(&merged);
  vectors_free(&rows);
}

int main(void) {
  arguments();
  for (int e = 0; e < ELEMENTS; e++)
    for (int m = 0; m < METRICS; m++) {
      merges(all_elements[e], all_metrics[m], DATA_NORMAL, 600, 300, 12, 20, 0.97);
      merges(all_elements[e], all_metrics[m], DATA_NORMAL, 130, 40, 5, 10, 1);
    }
  const uint64_t many = (uint64_t)(3000 / test_scale());
  merges(ANN_F32, ANN_METRIC_L2, DATA_NORMAL, many, many / 2, 12, 32, 0.97);
  merges(ANN_F32, ANN_METRIC_L2, DATA_NORMAL, many, many * 9 / 10, 12, 32, 0.95);
  merges(ANN_F32, ANN_METRIC_L2, DATA_NORMAL, many, many / 10, 12, 32, 0.95);
  merges(ANN_F32, ANN_METRIC_COSINE, DATA_CLUSTERED, many, many / 3, 12, 32, 0.95);
  merges(ANN_U8, ANN_METRIC_L2, DATA_EQUAL, 500, 200, 12, 16, 1);
  merges(ANN_F32, ANN_METRIC_L2, DATA_NORMAL, 2200 / (uint64_t)test_scale(), 1100 / (uint64_t)test_scale(), 8,
         131, 0.97);
  merges(ANN_F32, ANN_METRIC_L2, DATA_NORMAL, many, many / 2, 1, 16, 0.85); /* wide codes */
  duplicates();
  small_sets();
  shards(ANN_KNN_EXACT, 1);
  shards(ANN_KNN_NN_DESCENT, 0.94);
  cancelled();
  return finish("knn_merge");
}
