/* Proves what the header says of CAGRA's graph: that it is the paper's, by a reading of section III in this file; what
 * its defaults stand for, and those of AUTO's graph beside it; that detours and distances are options of both; and that
 * it is estimated, saved, opened and searched as any. */
#include <stdlib.h>
#include <string.h>

#include "ann.h"
#include "check.h"
#include "refuse.h"
#include "support.h"

enum { N = 400, DIM = 10, DEGREE = 8, LIST = 3 * DEGREE };

static vectors rows;

static ann_build_params params_of(int32_t graph) {
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.graph = graph;
  params.degree = DEGREE;
  params.calibrate = ANN_OFF;
  return params;
}

static uint64_t hash_of(const ann_build_params *params) {
  ann_index *index = index_build(ANN_METRIC_L2, &rows, params);
  const uint64_t hash = index_hash(index);
  ann_index_free(index);
  return hash;
}

/* --- Section III, read aloud ----------------------------------------------------------------- */

typedef struct lists {
  uint32_t neighbors[N * LIST];
  float distances[N * LIST];
} lists;

static uint32_t rank_in(const uint32_t *list, uint32_t count, uint32_t row) {
  uint32_t rank = 0;
  while (rank < count && list[rank] != row) rank++;
  return rank;
}

/* The entries of a row's list that stay: those with the fewest detours, equal counts in order of rank. */
static void prune(const lists *knn, uint32_t x, uint32_t looked_at, int by_distance, uint32_t *kept) {
  const uint32_t *list = knn->neighbors + x * LIST;
  const float *legs = knn->distances + x * LIST;
  uint32_t detours[LIST] = {0}, count = 0;
  for (uint32_t y = 0; y < LIST; y++)
    for (uint32_t z = 0; z < looked_at; z++) {
      const uint32_t other = list[z], place = rank_in(knn->neighbors + other * LIST, looked_at, list[y]);
      if (place == looked_at) continue;
      const float leg = knn->distances[other * LIST + place];
      const int shorter = by_distance ? legs[z] < legs[y] && leg < legs[y] : z < y && place < y;
      detours[y] += shorter ? 1 : 0;
    }
  for (uint32_t wanted = 0; count < DEGREE; wanted++)
    for (uint32_t y = 0; y < LIST && count < DEGREE; y++)
      if (detours[y] == wanted) kept[count++] = list[y];
}

/* f0 r0 f1 r1 ..., each row once: reverse edges by the rank that they have in the pruned lists, then by row. */
static void merge(const uint32_t *pruned, uint32_t row, uint32_t *edges) {
  uint32_t reverse[N], count = 0, merged = 0;
  for (uint32_t rank = 0; rank < DEGREE; rank++)
    for (uint32_t source = 0; source < N; source++)
      if (pruned[source * DEGREE + rank] == row) reverse[count++] = source;
  for (uint32_t i = 0; i < DEGREE; i++) {
    const uint32_t both[] = {pruned[row * DEGREE + i], i < count ? reverse[i] : row};
    for (int j = 0; j < 2; j++)
      if (merged < DEGREE && both[j] != row && rank_in(edges, merged, both[j]) == merged)
        edges[merged++] = both[j];
  }
}

static void as_in_the_paper(void) {
  lists *knn = malloc(sizeof *knn);
  ann_knn_params how = ANN_KNN_PARAMS_INIT;
  how.k = LIST;
  how.method = ANN_KNN_EXACT;
  const ann_matrix view = vectors_view(&rows);
  CHECK_OK(ann_knn_graph(NULL, &view, &how, knn->neighbors, knn->distances, NULL, NULL));
  uint32_t *pruned = malloc(N * DEGREE * sizeof *pruned), *edges = malloc(N * DEGREE * sizeof *edges);
  for (int32_t detours = ANN_DETOURS_NEAR; detours <= ANN_DETOURS_WHOLE; detours++)
    for (int32_t reorder = ANN_REORDER_RANK; reorder <= ANN_REORDER_DISTANCE; reorder++) {
      ann_build_params params = params_of(ANN_GRAPH_CAGRA);
      params.knn = ANN_KNN_EXACT;
      params.detours = detours;
      params.reorder = reorder;
      ann_index *index = index_build(ANN_METRIC_L2, &rows, &params);
      uint32_t degree = 0;
      CHECK_OK(ann_index_graph(index, edges, N * DEGREE, &degree, NULL));
      CHECK_EQUAL(degree, DEGREE);
      for (uint32_t row = 0; row < N; row++)
        prune(knn, row, detours == ANN_DETOURS_WHOLE ? LIST : DEGREE, reorder == ANN_REORDER_DISTANCE,
              pruned + row * DEGREE);
      for (uint32_t row = 0; row < N; row++) {
        uint32_t wanted[DEGREE];
        merge(pruned, row, wanted);
        CHECK_SAY(memcmp(wanted, edges + row * DEGREE, sizeof wanted) == 0,
                  "detours %d, reorder %d: another row %u", detours, reorder, row);
      }
      ann_index_free(index);
      /* The same of lists that are given, whose distances the build finds itself. */
      params.knn = ANN_KNN_GIVEN;
      params.knn_graph = knn->neighbors;
      params.knn_degree = LIST;
      ann_index *given = index_build(ANN_METRIC_L2, &rows, &params);
      uint32_t *again = malloc(N * DEGREE * sizeof *again);
      CHECK_OK(ann_index_graph(given, again, N * DEGREE, &degree, NULL));
      CHECK(memcmp(edges, again, N * DEGREE * sizeof *again) == 0);
      free(again);
      ann_index_free(given);
    }
  free(edges);
  free(pruned);
  free(knn);
}

/* --- Defaults -------------------------------------------------------------------------------- */

static void defaults(void) {
  ann_build_params spelled = params_of(ANN_GRAPH_AUTO), paper = params_of(ANN_GRAPH_CAGRA);
  const uint64_t automatic = hash_of(&spelled), papers = hash_of(&paper);
  CHECK(automatic != papers);
  spelled.knn = ANN_KNN_EXACT;
  spelled.knn_degree = DEGREE * 3 / 2;
  spelled.detours = ANN_DETOURS_NEAR;
  spelled.reorder = ANN_REORDER_RANK;
  spelled.repair = ANN_ON;
  CHECK(hash_of(&spelled) == automatic);
  spelled.detours = ANN_DETOURS_WHOLE;
  CHECK(hash_of(&spelled) != automatic);
  /* One thing after the other until AUTO's graph is the paper's. */
  spelled.knn = ANN_KNN_NN_DESCENT;
  spelled.knn_degree = LIST;
  spelled.repair = ANN_OFF;
  CHECK(hash_of(&spelled) == papers);
  spelled.reorder = ANN_REORDER_DISTANCE;
  paper.reorder = ANN_REORDER_DISTANCE;
  CHECK(hash_of(&spelled) == hash_of(&paper) && hash_of(&paper) != papers);
  /* Threads change nothing. */
  paper.threads = 3;
  CHECK(hash_of(&paper) == hash_of(&spelled));
  /* Lists are as long as lists may be. */
  spelled.degree = paper.degree = 90;
  spelled.knn_degree = ANN_DEGREE_MAX;
  CHECK(hash_of(&spelled) == hash_of(&paper));
}

/* Islands stay as they are unless repair is asked for. */
static void repair(void) {
  vectors islands = vectors_make(DATA_ISLANDS, ANN_F32, 1000, 6, 3);
  ann_build_params params = params_of(ANN_GRAPH_CAGRA);
  for (int32_t on = 0; on <= ANN_OFF; on++) {
    params.repair = on;
    ann_index *index = index_build(ANN_METRIC_L2, &islands, &params);
    ann_graph_stats stats = ANN_GRAPH_STATS_INIT;
    ann_index_info info = ANN_INDEX_INFO_INIT;
    CHECK_OK(ann_index_graph_stats(index, &stats, NULL));
    CHECK_OK(ann_index_get_info(index, &info, NULL));
    if (on == ANN_ON) CHECK_EQUAL(stats.unreachable, 0);
    if (on != ANN_ON) CHECK_EQUAL(info.repaired_edges, 0);
    ann_index_free(index);
  }
  vectors_free(&islands);
}

/* --- What every graph has -------------------------------------------------------------------- */

static void elements_and_metrics(void) {
  enum { Q = 40, K = 10 };
  for (int e = 0; e < ELEMENTS; e++)
    for (int m = 0; m < METRICS; m++)
      for (int32_t reorder = ANN_REORDER_RANK; reorder <= ANN_REORDER_DISTANCE; reorder++) {
        if (!test_takes(e + m + reorder)) continue;
        vectors some = vectors_make(DATA_NORMAL, all_elements[e], 300, DIM, 5);
        vectors queries = vectors_make(DATA_NORMAL, all_elements[e], Q, DIM, 6);
        ann_build_params params = params_of(ANN_GRAPH_CAGRA);
        params.degree = 16;
        params.reorder = reorder;
        ann_index_params shape = ANN_INDEX_PARAMS_INIT;
        ann_plan plan = ANN_PLAN_INIT;
        shape.dim = DIM;
        shape.metric = all_metrics[m];
        CHECK_OK(ann_estimate(&shape, some.rows, all_elements[e], &params, &plan, NULL));
        params.memory_limit = plan.peak_bytes;
        ann_index *index = index_build(all_metrics[m], &some, &params);
        answers found = answers_make(Q, K), exact = answers_make(Q, K), again = answers_make(Q, K);
        CHECK_OK(index_search(index, &queries, ANN_SEARCH_EXACT, 0, &exact));
        CHECK_OK(index_search(index, &queries, ANN_SEARCH_BEST_FIRST, 200, &found));
        CHECK_SAY(answers_missed(&exact, &found) <= Q * K / 20, "%s %s: %d of %d missed",
                  element_name(all_elements[e]), metric_name(all_metrics[m]),
                  (int)answers_missed(&exact, &found), Q * K);
        static const char *path = "cagra_graph_test.gannet";
        CHECK_OK(ann_save(index, path, NULL, NULL, NULL));
        ann_index *opened = NULL;
        CHECK_OK(ann_open(NULL, path, NULL, &opened, NULL, NULL));
        ann_index_info info = ANN_INDEX_INFO_INIT;
        CHECK_OK(ann_index_get_info(opened, &info, NULL));
        CHECK_EQUAL(info.graph, ANN_GRAPH_CAGRA);
        CHECK_OK(index_search(opened, &queries, ANN_SEARCH_BEST_FIRST, 200, &again));
        CHECK(answers_equal(&found, &again));
        CHECK(index_hash(opened) == index_hash(index));
        ann_index_free(opened);
        remove(path);
        answers_free(&found);
        answers_free(&exact);
        answers_free(&again);
        ann_index_free(index);
        vectors_free(&some);
        vectors_free(&queries);
      }
}

/* Two-hop counts: of a sample, or of all rows, counted here again. */
static void two_hops(void) {
  const ann_build_params params = params_of(ANN_GRAPH_CAGRA);
  vectors cloud = vectors_make(DATA_NORMAL, ANN_F32, N, DIM, 8);
  ann_index *index = index_build(ANN_METRIC_L2, &cloud, &params);
  uint32_t *edges = malloc(N * DEGREE * sizeof *edges), degree = 0;
  CHECK_OK(ann_index_graph(index, edges, N * DEGREE, &degree, NULL));
  uint64_t total = 0;
  for (uint32_t row = 0; row < N; row++) {
    char met[N] = {0};
    met[row] = 1;
    for (uint32_t i = 0; i < DEGREE; i++) {
      const uint32_t first = edges[row * DEGREE + i];
      if (first == UINT32_MAX) continue;
      total += !met[first];
      met[first] = 1;
      for (uint32_t j = 0; j < DEGREE; j++) {
        const uint32_t second = edges[first * DEGREE + j];
        if (second == UINT32_MAX) continue;
        total += !met[second];
        met[second] = 1;
      }
    }
  }
  const double mean = (double)total / N;
  ann_graph_stats stats = ANN_GRAPH_STATS_INIT;
  CHECK_OK(ann_index_graph_stats(index, &stats, NULL));
  CHECK(stats.two_hop_mean == mean); /* fewer than 1,000 rows */
  CHECK_EQUAL(stats.two_hop_rows, 0);
  stats.two_hop_rows = UINT32_MAX;
  CHECK_OK(ann_index_graph_stats(index, &stats, NULL));
  CHECK(stats.two_hop_mean == mean);
  CHECK_EQUAL(stats.two_hop_rows, UINT32_MAX);
  stats.two_hop_rows = 50;
  CHECK_OK(ann_index_graph_stats(index, &stats, NULL));
  CHECK_SAY(stats.two_hop_mean != mean && stats.two_hop_mean > mean / 2 && stats.two_hop_mean < 2 * mean,
            "%f of a sample, %f of all", stats.two_hop_mean, mean);
  free(edges);
  ann_index_free(index);
  vectors_free(&cloud);
}

int main(void) {
  rows = vectors_make(DATA_CLUSTERED, ANN_U8, N, DIM, 4);
  as_in_the_paper();
  defaults();
  repair();
  elements_and_metrics();
  two_hops();
  vectors_free(&rows);
  return finish("cagra_graph");
}
