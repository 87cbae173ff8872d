/* Proves that awkward values do no harm: copies, rows that are all equal, NaN in one query of a
 * batch, magnitudes that overflow or vanish, zero vectors and nearly zero ones under cosine. And that walks come to
 * rows that lie in islands or are copied many times. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ann.h"
#include "check.h"
#include "support.h"

enum { N = 600, DIM = 9, Q = 20, K = 10 };

static void check_reach(const char *what, const ann_index *index) {
  ann_graph_stats stats = ANN_GRAPH_STATS_INIT;
  CHECK_OK(ann_index_graph_stats(index, &stats, NULL));
  CHECK_SAY(stats.unreachable == 0, "%s: %llu rows out of reach", what,
            (unsigned long long)stats.unreachable);
}

/* Ids are distinct and legal, distances ascend, and ties ascend by id. */
static void check_form(const char *what, const answers *found, uint64_t n) {
  for (uint64_t q = 0; q < found->rows; q++)
    for (uint32_t i = 0; i < found->counts[q]; i++) {
      const uint64_t id = found->ids[q * found->k + i];
      const float distance = found->distances[q * found->k + i];
      int good = id < n && !isnan(distance);
      if (i > 0) {
        const uint64_t id_before = found->ids[q * found->k + i - 1];
        const float before = found->distances[q * found->k + i - 1];
        good = good && (before < distance || (before == distance && id_before < id));
      }
      for (uint32_t j = 0; j < i; j++) good = good && found->ids[q * found->k + j] != id;
      if (!CHECK_SAY(good, "%s: query %d, place %u: id %llu at %g", what, (int)q, i, (unsigned long long)id,
                     (double)distance))
        return;
    }
}

static void copies(void) {
  const int percents[] = {1, 2, 50, 100};
  for (int p = 0; p < 4; p++)
    for (int knn = ANN_KNN_NN_DESCENT; knn <= ANN_KNN_CELLS; knn++)
      for (int m = 0; m < METRICS; m++) {
        if (knn == ANN_KNN_GIVEN || !test_takes(p + knn + m)) continue;
        char what[60];
        snprintf(what, sizeof what, "%d %% copies, knn %d, %s", percents[p], knn,
                 metric_name(all_metrics[m]));
        vectors rows = vectors_make(DATA_NORMAL, ANN_F32, N, DIM, 1);
        const uint64_t count = (uint64_t)(N * percents[p] / 100);
        for (uint64_t i = 0; i < count; i++)
          memcpy(vectors_row(&rows, i * N / count), vectors_row(&rows, 0), DIM * 4);
        ann_build_params params = ANN_BUILD_PARAMS_INIT;
        params.knn = knn;
        params.degree = 16;
        ann_index *index = index_build(all_metrics[m], &rows, &params);
        check_reach(what, index);
        vectors queries = vectors_make(DATA_NORMAL, ANN_F32, Q, DIM, 2);
        memcpy(vectors_row(&queries, 0), vectors_row(&rows, 0), DIM * 4);
        answers exact = answers_make(Q, K), walked = answers_make(Q, K);
        CHECK_OK(index_search(index, &queries, ANN_SEARCH_EXACT, 0, &exact));
        CHECK_OK(index_search(index, &queries, ANN_SEARCH_BEST_FIRST, N, &walked));
        check_form(what, &exact, N);
        const uint64_t missed = answers_missed(&exact, &walked);
        CHECK_SAY(missed <= 4, "%s: a full beam misses %d of %d", what, (int)missed, Q * K);
        CHECK_OK(index_search(index, &queries, ANN_SEARCH_AUTO, 0, &walked));
        check_form(what, &walked, N);
        for (int q = 0; q < Q; q++) CHECK_EQUAL(walked.counts[q], K);
        answers_free(&exact);
        answers_free(&walked);
        vectors_free(&queries);
        ann_index_free(index);
        vectors_free(&rows);
      }
  /* Every one of many equal rows can be had, in every element. */
  for (int e = 0; e < ELEMENTS; e++)
    for (int m = 0; m < METRICS; m++) {
      if (!test_takes(e + m)) continue;
      vectors rows = vectors_make(DATA_EQUAL, all_elements[e], N, DIM, 3);
      ann_index *index = index_build(all_metrics[m], &rows, NULL);
      check_reach("equal rows", index);
      answers all = answers_make(1, N);
      vectors one = rows;
      one.rows = 1;
      CHECK_OK(index_search(index, &one, ANN_SEARCH_BEST_FIRST, N, &all));
      CHECK_EQUAL(all.counts[0], N);
      for (uint64_t i = 0; i < N; i++)
        if (all.ids[i] != i) {
          CHECK_SAY(0, "equal rows: place %d holds %llu", (int)i, (unsigned long long)all.ids[i]);
          break;
        }
      answers_free(&all);
      ann_index_free(index);
      vectors_free(&rows);
    }
}

/* A query with NaN or infinity has no neighbours, says so, and disturbs no other. */
static void bad_queries(void) {
  vectors rows = vectors_make(DATA_NORMAL, ANN_F32, N, DIM, 4);
  ann_index *index = index_build(ANN_METRIC_L2, &rows, NULL);
  for (int e = 0; e < 3; e++) {
    vectors queries = vectors_make(DATA_NORMAL, all_elements[e], Q, DIM, 5);
    answers good = answers_make(Q, K), bad = answers_make(Q, K);
    const double values[] = {NAN, INFINITY, -INFINITY};
    const size_t size = element_size(all_elements[e]);
    for (int procedure = ANN_SEARCH_BEST_FIRST; procedure <= ANN_SEARCH_EXACT; procedure++) {
      CHECK_OK(index_search(index, &queries, procedure, 50, &good));
      for (int v = 0; v < 3; v++)
        for (int place = 0; place < 3; place++) {
          const int q = place == 0 ? 0 : place == 1 ? Q / 2 : Q - 1;
          char *at = (char *)vectors_row(&queries, (uint64_t)q) + (place * (DIM - 1) / 2) * size;
          unsigned char kept[4];
          memcpy(kept, at, size);
          put_value(all_elements[e], at, values[v]);
          CHECK_OK(index_search(index, &queries, procedure, 50, &bad));
          memcpy(at, kept, size);
          for (int i = 0; i < Q; i++) {
            CHECK_EQUAL(bad.status[i], i == q ? ANN_NOT_FINITE : ANN_OK);
            CHECK_EQUAL(bad.counts[i], i == q ? 0 : K);
            for (int j = 0; j < K; j++)
              if (i == q)
                CHECK(bad.ids[i * K + j] == ANN_ID_NONE && bad.distances[i * K + j] == INFINITY);
              else
                CHECK(bad.ids[i * K + j] == good.ids[i * K + j] &&
                      bad.distances[i * K + j] == good.distances[i * K + j]);
          }
        }
    }
    answers_free(&good);
    answers_free(&bad);
    vectors_free(&queries);
  }
  ann_index_free(index);
  vectors_free(&rows);
}

/* From the smallest subnormal to the largest float: sums that overflow are +infinity and last, ids
 * stay legal, nothing loops. */
static void magnitudes(void) {
  for (int exponent = -45; exponent <= 38; exponent++)
    for (int m = 0; m < METRICS; m++) {
      char what[60];
      snprintf(what, sizeof what, "magnitude 1e%d, %s", exponent, metric_name(all_metrics[m]));
      enum { COUNT = 120 };
      vectors rows = vectors_make(DATA_NORMAL, ANN_F32, COUNT, DIM, 6);
      const double factor = pow(10, exponent) * (exponent == 38 ? 0.8 : 1);
      for (uint64_t i = 0; i < COUNT * DIM; i++) {
        double value = get_value(ANN_F32, rows.data + 4 * i) * factor;
        value = fmax(-3.4e38, fmin(3.4e38, value));
        put_value(ANN_F32, rows.data + 4 * i, value);
      }
      vectors queries = rows;
      queries.rows = Q;
      for (int knn = ANN_KNN_NN_DESCENT; knn <= ANN_KNN_CELLS; knn++) {
        if (knn == ANN_KNN_GIVEN) continue;
        if (exponent > -45 && exponent < 38 && !test_takes(exponent + 45 + m + knn)) continue;
        ann_build_params params = ANN_BUILD_PARAMS_INIT;
        params.degree = 8;
        params.knn = knn;
        ann_index *index = index_build(all_metrics[m], &rows, &params);
        if (!CHECK_SAY(index != NULL, "%s: not built", what)) continue;
        check_reach(what, index);
        answers exact = answers_make(Q, K), walked = answers_make(Q, K);
        CHECK_OK(index_search(index, &queries, ANN_SEARCH_EXACT, 0, &exact));
        CHECK_OK(index_search(index, &queries, ANN_SEARCH_BEST_FIRST, COUNT, &walked));
        check_form(what, &exact, COUNT);
        check_form(what, &walked, COUNT);
        const uint64_t missed = answers_missed(&exact, &walked);
        CHECK_SAY(missed <= 10, "%s, knn %d: a full beam misses %d of %d", what, knn, (int)missed, Q * K);
        for (int q = 0; q < Q; q++) {
          CHECK_EQUAL(exact.counts[q], K);
          /* Under cosine a row is its own nearest whatever its length, until the values
           * themselves are subnormal and have lost their digits. */
          if (all_metrics[m] == ANN_METRIC_COSINE && exponent > -37)
            CHECK_SAY(exact.distances[q * K] <= 4e-6f, "%s: query %d is %g from its own row", what, q,
                      (double)exact.distances[q * K]);
          if (all_metrics[m] == ANN_METRIC_COSINE)
            for (int i = 0; i < K; i++)
              CHECK(exact.distances[q * K + i] >= 0 && exact.distances[q * K + i] <= 2);
          if (all_metrics[m] == ANN_METRIC_L2) CHECK(exact.distances[q * K] == 0);
        }
        answers_free(&exact);
        answers_free(&walked);
        ann_index_free(index);
      }
      vectors_free(&rows);
    }
  /* The promise about overflow, to the letter. */
  float line[] = {0, 1, 1e20f, -1e20f, 3e38f, -3e38f};
  vectors rows = {ANN_F32, 1, 6, (unsigned char *)line};
  vectors query = {ANN_F32, 1, 1, (unsigned char *)line};
  ann_index *index = index_build(ANN_METRIC_L2, &rows, NULL);
  answers found = answers_make(1, 8);
  for (int procedure = ANN_SEARCH_BEST_FIRST; procedure <= ANN_SEARCH_EXACT; procedure++) {
    CHECK_OK(index_search(index, &query, procedure, 0, &found));
    const uint64_t wanted[] = {0, 1, 2, 3, 4, 5, ANN_ID_NONE, ANN_ID_NONE};
    for (int i = 0; i < 8; i++) {
      CHECK(found.ids[i] == wanted[i]);
      CHECK(i < 2 ? found.distances[i] == (float)i : found.distances[i] == INFINITY);
    }
    CHECK_EQUAL(found.counts[0], 6);
  }
  answers_free(&found);
  ann_index_free(index);
}

static void zero_vectors(void) {
  for (int e = 0; e < ELEMENTS; e++) {
    vectors rows = vectors_make(DATA_NORMAL, all_elements[e], N, DIM, 7);
    const size_t bytes = DIM * element_size(all_elements[e]);
    for (int i = 0; i < 5; i++) memset(vectors_row(&rows, (uint64_t)(100 * i + 3)), 0, bytes);
    /* Minus zero is zero. */
    if (!element_is_integer(all_elements[e])) put_value(all_elements[e], vectors_row(&rows, 3), -0.0);
    ann_index *index = index_build(ANN_METRIC_COSINE, &rows, NULL);
    check_reach("zero rows", index);
    answers all = answers_make(2, N);
    vectors queries = vectors_make(DATA_NORMAL, all_elements[e], 2, DIM, 8);
    memset(vectors_row(&queries, 0), 0, bytes);
    for (int procedure = ANN_SEARCH_BEST_FIRST; procedure <= ANN_SEARCH_EXACT; procedure++) {
      CHECK_OK(index_search(index, &queries, procedure, N, &all));
      CHECK_EQUAL(all.status[0], ANN_OK);
      CHECK_EQUAL(all.counts[0], N);
      uint64_t not_one = 0, zero_rows = 0;
      for (uint64_t i = 0; i < N; i++) not_one += all.distances[i] != 1 || all.ids[i] != i;
      CHECK_SAY(not_one == 0, "%s: a zero query has %llu rows not at distance 1",
                element_name(all_elements[e]), (unsigned long long)not_one);
      for (uint64_t i = N; i < 2 * N; i++)
        if (all.ids[i] % 100 == 3 && all.ids[i] < 500) {
          zero_rows++;
          CHECK(all.distances[i] == 1);
        }
      CHECK_EQUAL(zero_rows, 5);
    }
    answers_free(&all);
    vectors_free(&queries);
    ann_index_free(index);
    vectors_free(&rows);
  }
  /* Nothing but zeros. */
  vectors zeros = {ANN_F32, DIM, N, calloc(N * DIM, 4)};
  for (int m = 0; m < METRICS; m++) {
    ann_index *index = index_build(all_metrics[m], &zeros, NULL);
    check_reach("only zeros", index);
    answers found = answers_make(N, 3);
    CHECK_OK(index_search(index, &zeros, ANN_SEARCH_BEST_FIRST, N, &found));
    for (uint64_t i = 0; i < N * 3; i++) {
      CHECK_EQUAL(found.ids[i], i % 3);
      CHECK(found.distances[i] == (all_metrics[m] == ANN_METRIC_COSINE ? 1 : 0));
    }
    answers_free(&found);
    ann_index_free(index);
  }
  vectors_free(&zeros);
}

/* Equal vectors do not come out below 0, opposite ones not above 2. */
static void cosine_range(void) {
  uint64_t state = 11;
  for (int round = 0; round < 300; round++) {
    float rows_data[3 * 24];
    const uint32_t dim = 1 + (uint32_t)(random_next(&state) % 24);
    const double scale = pow(10, (double)(random_next(&state) % 30) - 15);
    for (uint32_t i = 0; i < dim; i++) {
      rows_data[i] = (float)(random_normal(&state) * scale);
      rows_data[dim + i] = -rows_data[i];
      rows_data[2 * dim + i] = rows_data[i] * 3;
    }
    vectors rows = {ANN_F32, dim, 3, (unsigned char *)rows_data};
    ann_build_params params = ANN_BUILD_PARAMS_INIT;
    params.graph = ANN_GRAPH_NONE;
    ann_index *index = index_build(ANN_METRIC_COSINE, &rows, &params);
    answers found = answers_make(3, 3);
    CHECK_OK(index_search(index, &rows, ANN_SEARCH_EXACT, 0, &found));
    for (int i = 0; i < 9; i++) {
      const float d = found.distances[i];
      CHECK_SAY(d >= 0 && d <= 2 && (d < 1e-5f || d > 1.9999f), "cosine distance %.9g", (double)d);
    }
    answers_free(&found);
    ann_index_free(index);
  }
}

typedef struct file {
  unsigned char *data;
  uint64_t count, room;
} file;

static int64_t append(void *user, const void *data, uint64_t count) {
  file *to = user;
  if (to->count + count > to->room) {
    to->room = 2 * (to->count + count);
    to->data = realloc(to->data, to->room);
  }
  memcpy(to->data + to->count, data, count);
  to->count += count;
  return (int64_t)count;
}

/* Rows `width` about `islands` centres, in turn. */
static vectors island_rows(uint64_t rows, uint64_t islands, double width, uint64_t seed) {
  vectors centres = vectors_make(DATA_NORMAL, ANN_F32, islands, 16, 7);
  vectors out = vectors_make(DATA_NORMAL, ANN_F32, rows, 16, seed);
  for (uint64_t row = 0; row < rows; row++)
    for (uint32_t i = 0; i < 16; i++) {
      float *value = (float *)vectors_row(&out, row) + i;
      *value = (float)width * *value + ((float *)vectors_row(&centres, row % islands))[i];
    }
  vectors_free(&centres);
  return out;
}

/* Rows about centres that lie about others, `groups` of which there are, in no order. */
static vectors grouped_rows(uint64_t rows, uint64_t islands, uint64_t groups, uint64_t seed) {
  vectors out = island_rows(rows, islands, 0.02, seed);
  vectors inner = vectors_make(DATA_NORMAL, ANN_F32, islands, 16, 7); /* the centres of `out` */
  vectors outer = vectors_make(DATA_NORMAL, ANN_F32, groups, 16, 6);
  for (uint64_t row = 0; row < rows; row++) {
    const uint64_t island = row % islands;
    uint32_t drawn = (uint32_t)island * 2654435761u;
    drawn = (drawn ^ drawn >> 15) * 2246822519u;
    const uint64_t group = (drawn ^ drawn >> 13) % groups;
    for (uint32_t i = 0; i < 16; i++) {
      float *value = (float *)vectors_row(&out, row) + i;
      const float centre = ((float *)vectors_row(&inner, island))[i];
      *value += ((float *)vectors_row(&outer, group))[i] - 0.8f * centre;
    }
  }
  vectors_free(&inner);
  vectors_free(&outer);
  return out;
}

/* Rows that copy one of `originals`, each about as often as another. */
static vectors copied_rows(uint64_t rows, uint64_t originals) {
  vectors of = vectors_make(DATA_NORMAL, ANN_F32, originals, 16, 7);
  vectors out = vectors_make(DATA_NORMAL, ANN_F32, rows, 16, 8);
  for (uint64_t row = 0; row < rows; row++)
    memcpy(vectors_row(&out, row), vectors_row(&of, row % originals), 16 * sizeof(float));
  vectors_free(&of);
  return out;
}

/* Walks find what is near with few distances, also in an index that was saved and opened. */
static void walks_arrive(const char *what, const vectors *rows, const vectors *queries, uint32_t beam,
                         uint32_t degree) {
  enum { DISTANCES = 1200 };
  ann_build_params build = ANN_BUILD_PARAMS_INIT;
  build.degree = degree;
  ann_index *index = index_build(ANN_METRIC_L2, rows, &build);
  check_reach(what, index);
  file saved = {NULL, 0, 0};
  ann_writer to = ANN_WRITER_INIT;
  to.write = append;
  to.user = &saved;
  ann_index *opened = NULL;
  CHECK_OK(ann_save_stream(index, &to, NULL, NULL, NULL));
  CHECK_OK(ann_open_memory(NULL, saved.data, saved.count, NULL, &opened, NULL, NULL));
  ann_index_info info[2] = {ANN_INDEX_INFO_INIT, ANN_INDEX_INFO_INIT};
  CHECK_OK(ann_index_get_info(index, &info[0], NULL));
  CHECK_OK(ann_index_get_info(opened, &info[1], NULL));
  CHECK_EQUAL(info[0].entry_points, info[1].entry_points);
  const uint64_t asked = queries->rows;
  answers exact = answers_make(asked, K), found[2] = {answers_make(asked, K), answers_make(asked, K)};
  CHECK_OK(index_search(index, queries, ANN_SEARCH_EXACT, 0, &exact));
  uint64_t distances[2];
  for (int o = 0; o < 2; o++) {
    const ann_matrix view = vectors_view(queries);
    ann_search_params params = ANN_SEARCH_PARAMS_INIT;
    params.device = ANN_DEVICE_CPU;
    params.procedure = ANN_SEARCH_BEST_FIRST;
    params.beam = beam;
    ann_results results = answers_view(&found[o]);
    CHECK_OK(ann_search_batch(o == 0 ? index : opened, &view, &params, &results, NULL, NULL));
    distances[o] = results.distance_count;
  }
  const uint64_t missed = answers_missed(&exact, &found[0]);
  CHECK_SAY(missed * 50 <= asked * K, "%s: %d of %d rows missed", what, (int)missed, (int)asked * K);
  CHECK_SAY(distances[0] <= asked * DISTANCES, "%s: %d distances for a query", what,
            (int)(distances[0] / asked));
  CHECK(answers_equal(&found[0], &found[1]));
  CHECK_EQUAL(distances[0], distances[1]);
  answers_free(&exact);
  for (int o = 0; o < 2; o++) answers_free(&found[o]);
  ann_index_free(opened);
  free(saved.data);
  ann_index_free(index);
}

static void islands(void) {
  enum { ASKED = 600, COPIES = 12 };
  const uint64_t per_island = test_scale() > 1 ? 30 : 60;
  const uint64_t counts[] = {30, 100, 300}; /* fewer heads than entry points, and more */
  for (int n = 0; n < 3; n++) {
    char what[40];
    vectors rows = island_rows(counts[n] * per_island, counts[n], 0.1, 8);
    vectors queries = island_rows(ASKED, counts[n], 0.1, 9);
    snprintf(what, sizeof what, "%d islands", (int)counts[n]);
    walks_arrive(what, &rows, &queries, 32, 0);
    vectors_free(&rows);
    vectors_free(&queries);
  }
  { /* groups of more islands than a head has neighbours among heads, some without an entry point */
    enum { GROUPS = 64, OF_GROUP = 56, OF_ISLAND = 18, DEGREE = 16 };
    const uint64_t all = GROUPS * OF_GROUP;
    vectors rows = grouped_rows(all * OF_ISLAND, all, GROUPS, 8);
    vectors queries = grouped_rows(ASKED, all, GROUPS, 9);
    walks_arrive("groups of islands", &rows, &queries, 32, DEGREE);
    vectors_free(&rows);
    vectors_free(&queries);
  }
  vectors rows = copied_rows(1000 * COPIES, 1000);
  vectors queries = vectors_make(DATA_NORMAL, ANN_F32, ASKED, 16, 9);
  walks_arrive("copies", &rows, &queries, 192, 0);
  vectors_free(&rows);
  vectors_free(&queries);
}

int main(void) {
  copies();
  islands();
  bad_queries();
  magnitudes();
  zero_vectors();
  cosine_range();
  return finish("hard_data");
}
