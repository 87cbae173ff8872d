/* Proves that the search graph leaves no row out of reach: clustered data, islands and outliers,
 * all metrics, several degrees. The library's own figures are compared with a walk of the edges
 * here, and recall has a floor. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ann.h"
#include "check.h"
#include "support.h"

/* Parts of the graph with its edges taken both ways, by union and find. */
static uint32_t root_of(uint32_t *parent, uint32_t row) {
  while (parent[row] != row) row = parent[row] = parent[parent[row]];
  return row;
}

/* Mean number of other rows within two edges of a row, counted one by one. */
static double two_hops(const uint32_t *edges, uint64_t n, uint32_t degree) {
  uint32_t *seen = calloc(n, sizeof *seen); /* 1 + the row that was there last */
  uint64_t total = 0;
  for (uint32_t row = 0; row < n; row++) {
    seen[row] = row + 1;
    for (uint32_t i = 0; i < degree; i++) {
      const uint32_t first = edges[row * (uint64_t)degree + i];
      for (uint32_t j = 0; first != UINT32_MAX && j <= degree; j++) {
        const uint32_t other = j == degree ? first : edges[first * (uint64_t)degree + j];
        if (other == UINT32_MAX || seen[other] == row + 1) continue;
        seen[other] = row + 1;
        total++;
      }
    }
  }
  free(seen);
  return (double)total / (double)n;
}

static void measure(const ann_index *index, const char *what, int expect_reach) {
  ann_index_info info = ANN_INDEX_INFO_INIT;
  ann_graph_stats stats = ANN_GRAPH_STATS_INIT;
  uint32_t degree = 0;
  CHECK_OK(ann_index_get_info(index, &info, NULL));
  CHECK_OK(ann_index_graph_stats(index, &stats, NULL));
  uint32_t *edges = index_edges(index, &degree);
  const uint64_t n = info.rows;
  uint32_t *parent = malloc(n * sizeof *parent), *in_degree = calloc(n, sizeof *in_degree);
  for (uint32_t row = 0; row < n; row++) parent[row] = row;
  uint64_t used = 0, bad = 0, parts = 0;
  for (uint32_t row = 0; row < n; row++)
    for (uint32_t i = 0; i < degree; i++) {
      const uint32_t other = edges[row * (uint64_t)degree + i];
      if (other == UINT32_MAX) continue;
      used++;
      if (other >= n || other == row) {
        bad++;
        continue;
      }
      for (uint32_t j = 0; j < i; j++) bad += edges[row * (uint64_t)degree + j] == other;
      in_degree[other]++;
      parent[root_of(parent, row)] = root_of(parent, other);
    }
  uint32_t least = UINT32_MAX, most = 0;
  for (uint32_t row = 0; row < n; row++) {
    parts += root_of(parent, row) == row;
    if (in_degree[row] < least) least = in_degree[row];
    if (in_degree[row] > most) most = in_degree[row];
  }
  CHECK_SAY(bad == 0, "%s: %llu edges to nowhere, to their own row, or twice", what, (unsigned long long)bad);
  CHECK_EQUAL(stats.degree, degree);
  CHECK_EQUAL(info.degree, degree);
  CHECK_EQUAL(stats.rows, n);
  CHECK_EQUAL(stats.edges, used);
  CHECK_EQUAL(stats.weak_components, parts);
  CHECK_EQUAL(stats.in_degree_min, least);
  CHECK_EQUAL(stats.in_degree_max, most);
  CHECK(stats.strong_components >= stats.weak_components && stats.largest_strong >= 1);
  CHECK(stats.two_hop_mean >= 0 && stats.two_hop_mean <= (double)degree * degree + degree);
  if (n > 0 && n <= 1000 && bad == 0) /* all rows are the sample */
    CHECK_SAY(fabs(stats.two_hop_mean - two_hops(edges, n, degree)) < 1e-9,
              "%s: %g rows within two edges, not %g", what, two_hops(edges, n, degree), stats.two_hop_mean);
  if (expect_reach)
    CHECK_SAY(stats.unreachable == 0, "%s: %llu of %llu rows out of reach", what,
              (unsigned long long)stats.unreachable, (unsigned long long)n);
  CHECK_SAY(used >= n * degree * 9 / 10 || n <= degree, "%s: only %llu of %llu places used", what,
            (unsigned long long)used, (unsigned long long)(n * degree));
  free(edges);
  free(parent);
  free(in_degree);
}

static void one(int kind, int32_t metric, int32_t element, uint64_t n, uint32_t dim, uint32_t degree,
                int32_t knn, double floor) {
  char what[120];
  snprintf(what, sizeof what, "kind %d %s %s n %d degree %u knn %d", kind, element_name(element),
           metric_name(metric), (int)n, degree, knn);
  vectors rows = vectors_make(kind, element, n, dim, degree);
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.degree = degree;
  params.knn = knn;
  ann_index *index = index_build(metric, &rows, &params);
  if (!CHECK_SAY(index != NULL, "%s: not built", what)) return;
  measure(index, what, 1);
  /* Queries of the same distribution: rows of another set from the same clouds. */
  enum { Q = 200, K = 10 };
  vectors more = vectors_make(kind, element, n + Q, dim, degree);
  vectors queries = {element, dim, Q, vectors_row(&more, n)};
  answers found = answers_make(Q, K);
  CHECK_OK(index_search(index, &queries, ANN_SEARCH_AUTO, 0, &found));
  const double recall = recall_of(metric, &rows, &queries, K, found.ids);
  CHECK_SAY(recall >= floor, "%s: recall %.4f, wanted %.4f", what, recall, floor);
  answers_free(&found);
  ann_index_free(index);
  vectors_free(&more);
  vectors_free(&rows);
}

/* Without repair the library may leave rows out, and must then say so. */
static void without_repair(void) {
  vectors rows = vectors_make(DATA_ISLANDS, ANN_F32, 1000, 6, 3);
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.degree = 8;
  params.repair = ANN_OFF;
  ann_index *index = index_build(ANN_METRIC_L2, &rows, &params);
  measure(index, "without repair", 0);
  ann_index_info info = ANN_INDEX_INFO_INIT;
  CHECK_OK(ann_index_get_info(index, &info, NULL));
  CHECK_EQUAL(info.repaired_edges, 0);
  ann_graph_stats stats = ANN_GRAPH_STATS_INIT;
  CHECK_OK(ann_index_graph_stats(index, &stats, NULL));
  ann_index_free(index);
  /* Lists without a neighbour in them: only repair can reach what is no entry point. */
  uint32_t *empty = malloc(rows.rows * 8 * sizeof *empty);
  memset(empty, 0xff, rows.rows * 8 * sizeof *empty);
  params.knn = ANN_KNN_GIVEN;
  params.knn_graph = empty;
  params.knn_degree = 8;
  for (int repair = ANN_ON; repair <= ANN_OFF; repair++) {
    params.repair = repair;
    index = index_build(ANN_METRIC_L2, &rows, &params);
    CHECK_OK(ann_index_get_info(index, &info, NULL));
    CHECK_OK(ann_index_graph_stats(index, &stats, NULL));
    const uint64_t alone = rows.rows - info.entry_points;
    CHECK_EQUAL(stats.unreachable, repair == ANN_ON ? 0 : alone);
    CHECK(repair == ANN_ON ? info.repaired_edges >= alone : info.repaired_edges == 0);
    ann_index_free(index);
  }
  free(empty);
  vectors_free(&rows);
}

int main(void) {
  const uint64_t n = (uint64_t)(1600 / test_scale());
  const int kinds[] = {DATA_NORMAL, DATA_CLUSTERED, DATA_ISLANDS};
  for (int k = 0; k < 3; k++)
    for (int m = 0; m < METRICS; m++) {
      /* The build promises 0.95 - 0.01; two hundred queries of ten tell it within about 0.01. */
      const double floor = m == 1 ? 0.85 : 0.92;
      if (test_takes(k + m)) one(kinds[k], all_metrics[m], ANN_F32, n, 16, 0, ANN_KNN_EXACT, floor);
      if (test_takes(k + m + 1)) one(kinds[k], all_metrics[m], ANN_F32, n, 16, 0, ANN_KNN_NN_DESCENT, floor);
      if (test_takes(k + m + 2)) one(kinds[k], all_metrics[m], ANN_I8, n / 2, 24, 16, ANN_KNN_AUTO, floor);
    }
  const uint32_t degrees[] = {2, 3, 4, 8, 64, 256};
  for (int i = 0; i < 6; i++)
    for (int k = 0; k < 3; k++)
      if (test_takes(i + k))
        one(kinds[k], ANN_METRIC_L2, ANN_F32, 600, 8, degrees[i], ANN_KNN_AUTO, degrees[i] < 8 ? 0 : 0.92);
  without_repair();
  return finish("graph");
}
