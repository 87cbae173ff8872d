/* Proves that exact answers are right: every dimension from 1 to 300 and some far above, every
 * element and metric, compared with a plain computation in double. Integer distances are equal, the
 * others within what 32-bit sums can lose. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ann.h"
#include "check.h"
#include "support.h"

/* Compares with the oracle: distances of the reported rows, their order, and each rank's distance. */
static void compare(const char *what, int32_t metric, const vectors *rows, const vectors *queries,
                    const answers *found) {
  const uint32_t k = found->k;
  const uint32_t wanted = k < rows->rows ? k : (uint32_t)rows->rows;
  uint64_t *ids = malloc(queries->rows * k * sizeof *ids);
  double *distances = malloc(queries->rows * k * sizeof *distances);
  true_neighbors(metric, rows, queries, k, 0, ids, distances);
  uint64_t bad = 0;
  for (uint64_t q = 0; q < queries->rows; q++) {
    bad += found->counts[q] != wanted;
    for (uint32_t i = 0; i < wanted; i++) {
      const uint64_t place = q * k + i, id = found->ids[place];
      const double distance = found->distances[place];
      if (id >= rows->rows) {
        bad++;
        continue;
      }
      double error;
      const double truth = true_distance(metric, rows->dim, rows->element, vectors_row(rows, id),
                                         queries->element, vectors_row(queries, q), &error);
      bad += !(fabs(distance - truth) <= error);
      bad += !(fabs(distance - distances[place]) <= error);
      if (error == 0 && element_is_integer(rows->element)) bad += id != ids[place];
      if (i > 0)
        bad += distance < (double)found->distances[place - 1] ||
               (distance == (double)found->distances[place - 1] && id <= found->ids[place - 1]);
      if (metric == ANN_METRIC_COSINE) bad += !(distance >= 0 && distance <= 2);
    }
  }
  CHECK_SAY(bad == 0, "%s: %s %s dim %u: %llu wrong answers", what, element_name(rows->element),
            metric_name(metric), rows->dim, (unsigned long long)bad);
  free(ids);
  free(distances);
}

/* Of walks with a full beam. Floats are walked by short codes, which may rank a row too low. */
static uint64_t places, misses;

static void one_shape(uint32_t dim, int32_t element, int32_t metric, int with_graph) {
  enum { N = 33, Q = 5, K = 10 };
  vectors rows = vectors_make(DATA_NORMAL, element, N, dim, dim);
  vectors queries = vectors_make(DATA_NORMAL, element, Q, dim, dim + 1000);
  /* One query is a stored row, one stored row is zero. */
  memcpy(vectors_row(&queries, 0), vectors_row(&rows, 17), dim * element_size(element));
  memset(vectors_row(&rows, 20), 0, dim * element_size(element));
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.graph = with_graph ? ANN_GRAPH_AUTO : ANN_GRAPH_NONE;
  params.calibrate = ANN_OFF;
  params.threads = 1;
  ann_index *index = index_build(metric, &rows, &params);
  answers found = answers_make(Q, K), walked = answers_make(Q, K);
  CHECK_OK(index_search(index, &queries, ANN_SEARCH_EXACT, 0, &found));
  compare("exact", metric, &rows, &queries, &found);
  if (metric == ANN_METRIC_L2) CHECK(found.ids[0] == 17 && found.distances[0] == 0);
  if (with_graph) {
    /* A walk over all rows reports the distances that the exact search reports, to the bit. */
    CHECK_OK(index_search(index, &queries, ANN_SEARCH_BEST_FIRST, 64, &walked));
    answers all = answers_make(Q, N);
    CHECK_OK(index_search(index, &queries, ANN_SEARCH_EXACT, 0, &all));
    uint64_t different = 0;
    for (int i = 0; i < Q * K; i++)
      for (int j = 0; j < N; j++)
        if (all.ids[i / K * N + j] == walked.ids[i])
          different += memcmp(&all.distances[i / K * N + j], &walked.distances[i], 4) != 0;
    CHECK_SAY(different == 0, "%s %s dim %u: %d walked distances differ", element_name(element),
              metric_name(metric), dim, (int)different);
    answers_free(&all);
    if (element_is_integer(element))
      CHECK_SAY(answers_equal(&found, &walked), "%s %s dim %u: walked and exact answers differ",
                element_name(element), metric_name(metric), dim);
    places += Q * K;
    misses += answers_missed(&found, &walked);
  }
  ann_index_free(index);
  answers_free(&found);
  answers_free(&walked);
  vectors_free(&rows);
  vectors_free(&queries);
}

/* Large batches are compared by codes first. Each query gets what it gets alone, where none are: to the bit. */
static void batches(void) {
  enum { N = 500, Q = 70, K = 10 };
  for (int e = 0; e < ELEMENTS; e++)
    for (int m = 0; m < METRICS; m++) {
      vectors rows = vectors_make(DATA_NORMAL, all_elements[e], N, 24, 5);
      vectors queries = vectors_make(DATA_NORMAL, all_elements[e], Q, 24, 6);
      ann_build_params params = ANN_BUILD_PARAMS_INIT;
      params.graph = ANN_GRAPH_NONE;
      ann_index *index = index_build(all_metrics[m], &rows, &params);
      answers together = answers_make(Q, K), alone = answers_make(1, K);
      CHECK_OK(index_search(index, &queries, ANN_SEARCH_EXACT, 0, &together));
      int different = 0;
      for (int q = 0; q < Q; q++) {
        vectors one = queries;
        one.rows = 1;
        one.data = vectors_row(&queries, (uint64_t)q);
        CHECK_OK(index_search(index, &one, ANN_SEARCH_EXACT, 0, &alone));
        different += memcmp(alone.ids, together.ids + q * K, K * sizeof *alone.ids) != 0 ||
                     memcmp(alone.distances, together.distances + q * K, K * sizeof *alone.distances) != 0;
      }
      CHECK_SAY(different == 0, "%s %s: %d of %d queries are answered otherwise in a batch",
                element_name(all_elements[e]), metric_name(all_metrics[m]), different, Q);
      answers_free(&together);
      answers_free(&alone);
      ann_index_free(index);
      vectors_free(&rows);
      vectors_free(&queries);
    }
}

/* The largest sums that integers can give fit, and are exact. */
static void extreme_integers(void) {
  for (int e = 0; e < 2; e++)
    for (int m = 0; m < 2; m++) {
      const int32_t element = e ? ANN_U8 : ANN_I8, metric = all_metrics[m];
      vectors rows = {element, ANN_DIM_MAX, 3, malloc(3 * ANN_DIM_MAX)};
      memset(vectors_row(&rows, 0), e ? 255 : 127, ANN_DIM_MAX);
      memset(vectors_row(&rows, 1), e ? 0 : 0x80, ANN_DIM_MAX);
      memset(vectors_row(&rows, 2), 1, ANN_DIM_MAX);
      ann_build_params params = ANN_BUILD_PARAMS_INIT;
      params.graph = ANN_GRAPH_NONE;
      ann_index *index = index_build(metric, &rows, &params);
      answers found = answers_make(3, 3);
      CHECK_OK(index_search(index, &rows, ANN_SEARCH_EXACT, 0, &found));
      compare("extreme", metric, &rows, &rows, &found);
      answers_free(&found);
      ann_index_free(index);
      vectors_free(&rows);
    }
}

int main(void) {
  const uint32_t step = test_scale() > 1 ? 3 : 1;
  for (int e = 0; e < ELEMENTS; e++)
    for (int m = 0; m < METRICS; m++) {
      for (uint32_t dim = 1; dim <= 300; dim += dim < 70 ? 1 : step)
        one_shape(dim, all_elements[e], all_metrics[m], dim <= 40 || dim % 37 == 0);
      const uint32_t large[] = {511, 512, 513, 768, 1000, 1023, 1536, 4096, 4099};
      for (size_t i = 0; i < sizeof large / sizeof large[0]; i++)
        one_shape(large[i], all_elements[e], all_metrics[m], 0);
    }
  extreme_integers();
  batches();
  CHECK_SAY(misses * 500 <= places, "full beams miss %llu of %llu", (unsigned long long)misses,
            (unsigned long long)places);
  return finish("exact");
}
