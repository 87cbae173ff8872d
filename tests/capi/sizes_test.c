/* Proves that every small number of rows works: n from 0 to 200 and around the degree, k around n,
 * by both k-NN methods. A small index answers exactly, and no row of it is out of reach. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ann.h"
#include "check.h"
#include "support.h"

enum { DIM = 5, Q = 6 };

/* Of full beams, over all sizes. A walk goes by short codes, so it may rank a row too low. */
static uint64_t places, misses;

static void one_size(uint64_t n, uint32_t degree, int32_t knn, int32_t calibrate) {
  vectors rows = vectors_make(DATA_NORMAL, ANN_F32, n, DIM, n + 1);
  vectors queries = vectors_make(DATA_NORMAL, ANN_F32, Q, DIM, n + 5000);
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.degree = degree;
  params.knn = knn;
  params.calibrate = calibrate;
  params.threads = 1;
  ann_index *index = index_build(ANN_METRIC_L2, &rows, &params);
  if (!CHECK_SAY(index != NULL, "n %d, degree %u, knn %d is not built", (int)n, degree, knn)) {
    vectors_free(&rows);
    vectors_free(&queries);
    return;
  }
  ann_graph_stats stats = ANN_GRAPH_STATS_INIT;
  CHECK_OK(ann_index_graph_stats(index, &stats, NULL));
  CHECK_EQUAL(stats.rows, n);
  CHECK_SAY(stats.unreachable == 0, "n %d, degree %u, knn %d: %d rows out of reach", (int)n, degree, knn,
            (int)stats.unreachable);
  ann_index_info info = ANN_INDEX_INFO_INIT;
  CHECK_OK(ann_index_get_info(index, &info, NULL));
  CHECK(info.entry_points >= (n > 0) && info.entry_points <= n);

  const uint64_t around[] = {1, n > 1 ? n - 1 : 1, n > 0 ? n : 1, n + 1, n + 50};
  for (int i = 0; i < 5; i++) {
    const uint32_t k = (uint32_t)around[i];
    /* An exact search on a device gives at most 1,024 answers, and a walk there keeps 1,984 rows. */
    if (test_on_device() && (k > 1024 || n >= 1984)) continue;
    answers exact = answers_make(Q, k), walked = answers_make(Q, k);
    CHECK_OK(index_search(index, &queries, ANN_SEARCH_EXACT, 0, &exact));
    uint64_t *ids = malloc(Q * k * sizeof *ids);
    true_neighbors(ANN_METRIC_L2, &rows, &queries, k, 0, ids, NULL);
    CHECK_SAY(memcmp(ids, exact.ids, Q * k * sizeof *ids) == 0, "n %d, k %u: exact ids are wrong", (int)n, k);
    free(ids);
    for (int q = 0; q < Q; q++) CHECK_EQUAL(exact.counts[q], k < n ? k : n);
    const uint32_t beam = (uint32_t)(k > n ? k : n) + 1;
    CHECK_OK(index_search(index, &queries, ANN_SEARCH_BEST_FIRST, beam, &walked));
    const uint64_t missed = answers_missed(&exact, &walked);
    CHECK_SAY(missed <= 2, "n %d, degree %u, knn %d, k %u: a full beam misses %d", (int)n, degree, knn, k,
              (int)missed);
    places += Q * k;
    misses += missed;
    CHECK_OK(index_search(index, &queries, ANN_SEARCH_AUTO, 0, &walked));
    for (int q = 0; q < Q; q++)
      CHECK_SAY(walked.counts[q] == (k < n ? k : n), "n %d, k %u: the default finds %u", (int)n, k,
                walked.counts[q]);
    answers_free(&exact);
    answers_free(&walked);
  }
  /* Asked for themselves, stored rows are found. */
  if (n > 0) {
    answers self = answers_make(n, 1);
    CHECK_OK(index_search(index, &rows, ANN_SEARCH_AUTO, 0, &self));
    uint64_t missed = 0;
    for (uint64_t row = 0; row < n; row++) missed += self.ids[row] != row;
    CHECK_SAY(missed * 20 <= n, "n %d: %d rows do not find themselves", (int)n, (int)missed);
    answers_free(&self);
  }
  ann_index_free(index);
  vectors_free(&rows);
  vectors_free(&queries);
}

int main(void) {
  const uint64_t step = test_scale() > 1 ? 3 : 1;
  for (uint64_t n = 0; n <= 200; n += n < 40 ? 1 : step)
    one_size(n, 0, ANN_KNN_AUTO, n % 4 == 1 ? ANN_ON : ANN_OFF);
  const uint32_t degrees[] = {2, 3, 8, 32, 64, 256};
  for (size_t i = 0; i < sizeof degrees / sizeof degrees[0]; i++) {
    const uint32_t d = degrees[i];
    const uint64_t ns[] = {1, 2, 3, d - 1, d, d + 1, d + d / 2, d + d / 2 + 1, 2 * d, 10 * d};
    for (int j = 0; j < 10; j++)
      for (int knn = ANN_KNN_NN_DESCENT; knn <= ANN_KNN_CELLS; knn++)
        if (knn != ANN_KNN_GIVEN && (ns[j] <= 700 || step == 1) && test_takes((int)i + j + knn))
          one_size(ns[j], d, knn, j == 7 ? ANN_ON : ANN_OFF);
  }
  CHECK_SAY(misses * 1000 <= places, "full beams miss %llu of %llu", (unsigned long long)misses,
            (unsigned long long)places);
  return finish("sizes");
}
