/* Proves ANN_GRAPH_TSDG over the C interface: parameters and their ranges, what each stage leaves, rows of varying
 * length as they are read and saved, factors as a search's degree, recall, and sets that are hard on it. */
#include <stdlib.h>
#include <string.h>

#include "ann.h"
#include "check.h"
#include "refuse.h"
#include "support.h"

enum { Q = 100, K = 10 };

static ann_build_params tsdg(void) {
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.graph = ANN_GRAPH_TSDG;
  return params;
}

static ann_status build_with(const vectors *rows, const ann_build_params *params, ann_error *error) {
  ann_index *index = index_make(rows->dim, ANN_METRIC_L2, 0);
  const ann_matrix view = vectors_view(rows);
  const ann_status status = ann_build(index, &view, NULL, params, NULL, error);
  ann_index_free(index);
  return status;
}

static ann_status search_by(const ann_index *index, const vectors *queries, uint32_t beam,
                            uint32_t occlusion_max, answers *found, uint64_t *distances) {
  ann_search_params params = ANN_SEARCH_PARAMS_INIT;
  params.procedure = ANN_SEARCH_BEST_FIRST;
  params.device = ANN_DEVICE_CPU;
  params.beam = beam;
  params.occlusion_max = occlusion_max;
  const ann_matrix view = vectors_view(queries);
  ann_results results = answers_view(found);
  const ann_status status = ann_search_batch(index, &view, &params, &results, NULL, NULL);
  *distances = results.distance_count;
  return status;
}

static void refuses(void) {
  vectors rows = vectors_make(DATA_NORMAL, ANN_F32, 50, 6, 1);
#define REFUSED_WITH(field, value, status, words)               \
  do {                                                          \
    ann_build_params params = tsdg();                           \
    params.field = value;                                       \
    REFUSED(build_with(&rows, &params, &error), status, words); \
  } while (0)
  REFUSED_WITH(diversify, 6, ANN_INVALID_ARGUMENT, "diversify 6 0 5");
  REFUSED_WITH(diversify, -1, ANN_INVALID_ARGUMENT, "diversify -1 0 5");
  REFUSED_WITH(alpha, 0.5f, ANN_INVALID_ARGUMENT, "alpha 0.5 1 4");
  REFUSED_WITH(alpha, 4.5f, ANN_INVALID_ARGUMENT, "alpha 4.5 1 4");
  REFUSED_WITH(alpha, 0.0f / 0.0f, ANN_INVALID_ARGUMENT, "alpha nan 1 4");
  REFUSED_WITH(occlusion_bound, 65, ANN_LIMIT, "occlusion_bound 65 1 64");
  REFUSED_WITH(reverse_max, 4097, ANN_LIMIT, "reverse_max 4097 1 4096");
  REFUSED_WITH(pool, 4097, ANN_LIMIT, "pool 4097 1 4096");
  REFUSED_WITH(angle, 91, ANN_INVALID_ARGUMENT, "angle 91 1 90");
  REFUSED_WITH(angle, -1, ANN_INVALID_ARGUMENT, "angle -1 1 90");
  REFUSED_WITH(degree, 257, ANN_LIMIT, "degree 257 2 256");
  REFUSED_WITH(degree, 1, ANN_INVALID_ARGUMENT, "degree 1 2 256");
  ann_build_params params = tsdg();
  params.knn = ANN_KNN_NN_DESCENT;
  params.knn_degree = 513;
  REFUSED(build_with(&rows, &params, &error), ANN_LIMIT, "knn_degree 513 512");
  params.knn = ANN_KNN_EXACT;
  params.device = ANN_DEVICE_CPU;
  params.knn_degree = 1025;
  REFUSED(build_with(&rows, &params, &error), ANN_LIMIT, "knn_degree 1025 1024");
  for (int32_t method = ANN_DIVERSIFY_GD; method <= ANN_DIVERSIFY_VAMANA; method++) {
    params = tsdg();
    params.diversify = method;
    params.occlusion_bound = 5;
    REFUSED(build_with(&rows, &params, &error), ANN_INVALID_ARGUMENT, "occlusion_bound 5 diversify");
    params.occlusion_bound = 0;
    params.alpha = 1.1f;
    if (method != ANN_DIVERSIFY_VAMANA)
      REFUSED(build_with(&rows, &params, &error), ANN_INVALID_ARGUMENT, "alpha 1.1 diversify");
  }
  params = (ann_build_params)ANN_BUILD_PARAMS_INIT;
  params.graph = 6;
  REFUSED(build_with(&rows, &params, &error), ANN_INVALID_ARGUMENT, "graph 6");

  params = tsdg();
  ann_index *index = index_build(ANN_METRIC_L2, &rows, &params);
  ann_search_params search = ANN_SEARCH_PARAMS_INIT;
  search.occlusion_max = 65;
  const ann_matrix view = vectors_view(&rows);
  answers found = answers_make(rows.rows, K);
  ann_results results = answers_view(&found);
  REFUSED(ann_search_batch(index, &view, &search, &results, NULL, &error), ANN_INVALID_ARGUMENT,
          "occlusion_max 65 64");
  ann_index_free(index);
  answers_free(&found);
  vectors_free(&rows);
}

/* Rows in `index` and what they are after a way through a file, in each mode; the file is the same again. */
static void saved(const ann_index *index, const vectors *queries, const char *what) {
  static const char *path = "tsdg_test.gannet", *again = "tsdg_test_again.gannet";
  CHECK_OK(ann_save(index, path, NULL, NULL, NULL));
  answers before = answers_make(Q, K), after = answers_make(Q, K);
  uint64_t distances, same;
  CHECK_OK(search_by(index, queries, 30, 3, &before, &distances));
  ann_graph_stats stats = ANN_GRAPH_STATS_INIT, read = ANN_GRAPH_STATS_INIT;
  CHECK_OK(ann_index_graph_stats(index, &stats, NULL));
  for (int32_t mode = ANN_OPEN_FULL; mode <= ANN_OPEN_TRUSTED; mode++) {
    ann_open_params params = ANN_OPEN_PARAMS_INIT;
    params.mode = mode;
    ann_index *opened = NULL;
    CHECK_OK(ann_open(NULL, path, &params, &opened, NULL, NULL));
    if (opened == NULL) continue;
    CHECK_OK(search_by(opened, queries, 30, 3, &after, &same));
    CHECK_SAY(answers_equal(&before, &after) && same == distances, "%s: mode %d answers otherwise", what,
              mode);
    CHECK_EQUAL(index_hash(opened), index_hash(index));
    CHECK_OK(ann_index_graph_stats(opened, &read, NULL));
    CHECK(read.occlusion_levels == stats.occlusion_levels && read.edges == stats.edges &&
          read.knn_edges == 0);
    CHECK_OK(ann_save(opened, again, NULL, NULL, NULL));
    ann_file_description first = ANN_FILE_DESCRIPTION_INIT, second = ANN_FILE_DESCRIPTION_INIT;
    CHECK_OK(ann_file_info(path, &first, NULL));
    CHECK_OK(ann_file_info(again, &second, NULL));
    CHECK(memcmp(&first, &second, sizeof first) == 0 && first.graph == ANN_GRAPH_TSDG);
    /* Curves of a slack bound, and of codes beside the rows how well they order them. */
    CHECK_EQUAL(first.format, 1u << 16 | 5);
    ann_index_free(opened);
  }
  CHECK_OK(ann_verify(path, NULL, NULL, NULL));
  remove(path);
  remove(again);
  answers_free(&before);
  answers_free(&after);
}

static void one(int kind, int32_t metric, int32_t element, int32_t diversify, uint64_t n, double floor) {
  char what[120];
  snprintf(what, sizeof what, "kind %d %s %s diversify %d n %d", kind, element_name(element),
           metric_name(metric), diversify, (int)n);
  vectors rows = vectors_make(kind, element, n, 12, 3);
  ann_build_params params = tsdg();
  params.diversify = diversify;
  params.knn_degree = 100;
  ann_index *index = index_build(metric, &rows, &params);
  if (!CHECK_SAY(index != NULL, "%s: not built", what)) return;
  ann_graph_stats stats = ANN_GRAPH_STATS_INIT;
  CHECK_OK(ann_index_graph_stats(index, &stats, NULL));
  CHECK_SAY(stats.unreachable == 0, "%s: %d rows out of reach", what, (int)stats.unreachable);
  CHECK_SAY(stats.relaxed_edges <= stats.knn_edges && stats.relaxed_edges <= stats.joined_edges &&
                stats.soft_edges <= stats.joined_edges,
            "%s: shares of stages", what);
  CHECK_EQUAL(stats.occlusion_levels, diversify == ANN_DIVERSIFY_TSDG ? 10 : 1);
  vectors more = vectors_make(kind, element, n + Q, 12, 3);
  vectors queries = {element, 12, Q, vectors_row(&more, n)};
  answers found = answers_make(Q, K);
  uint64_t all, some;
  CHECK_OK(search_by(index, &queries, 40, 0, &found, &all));
  const double recall = recall_of(metric, &rows, &queries, K, found.ids);
  CHECK_SAY(recall >= floor, "%s: recall %.4f, wanted %.4f", what, recall, floor);
  CHECK_OK(search_by(index, &queries, 40, 64, &found, &some));
  CHECK_EQUAL(some, all);
  CHECK_OK(search_by(index, &queries, 40, 1, &found, &some));
  CHECK_SAY(diversify != ANN_DIVERSIFY_TSDG || kind == DATA_EQUAL || n < 100 || some < all,
            "%s: %d distances by edges that nothing occludes, %d by all", what, (int)some, (int)all);
  if (n >= 100) saved(index, &queries, what);
  answers_free(&found);
  ann_index_free(index);
  vectors_free(&more);
  vectors_free(&rows);
}

/* Lists of the caller: longer than other graphs take them, in any order, short, with loops and repetitions. */
static void given(void) {
  enum { N = 700, LIST = 400 };
  vectors rows = vectors_make(DATA_CLUSTERED, ANN_U8, N, 8, 2);
  uint32_t *lists = malloc((size_t)N * LIST * sizeof *lists);
  uint64_t state = 5;
  for (uint32_t row = 0; row < N; row++)
    for (uint32_t i = 0; i < LIST; i++)
      lists[row * LIST + i] = i < row % LIST ? (uint32_t)(random_next(&state) % N) : UINT32_MAX;
  ann_build_params params = tsdg();
  params.knn = ANN_KNN_GIVEN;
  params.knn_degree = LIST;
  params.knn_graph = lists;
  ann_index *index = index_build(ANN_METRIC_L2, &rows, &params);
  ann_graph_stats stats = ANN_GRAPH_STATS_INIT;
  CHECK_OK(ann_index_graph_stats(index, &stats, NULL));
  CHECK_EQUAL(stats.unreachable, 0);
  CHECK(stats.knn_edges > 0 && stats.knn_edges <= (uint64_t)N * LIST && stats.degree <= 128);
  ann_index_free(index);

  params = tsdg();
  params.knn = ANN_KNN_EXACT;
  params.device = ANN_DEVICE_CPU;
  params.knn_degree = LIST;
  index = index_build(ANN_METRIC_L2, &rows, &params);
  CHECK_OK(ann_index_graph_stats(index, &stats, NULL));
  CHECK_EQUAL(stats.knn_edges, (uint64_t)N * LIST);
  ann_index_free(index);
  free(lists);
  vectors_free(&rows);
}

/* The build holds no more than it was estimated to, and a lower limit is refused. */
static void estimated(void) {
  vectors rows = vectors_make(DATA_NORMAL, ANN_U8, 3000, 16, 2);
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  shape.dim = 16;
  ann_build_params params = tsdg();
  params.threads = 1;
  ann_plan plan = ANN_PLAN_INIT;
  CHECK_OK(ann_estimate(&shape, rows.rows, ANN_U8, &params, &plan, NULL));
  ann_index *index = index_build(ANN_METRIC_L2, &rows, &params);
  ann_index_info info = ANN_INDEX_INFO_INIT;
  CHECK_OK(ann_index_get_info(index, &info, NULL));
  CHECK_EQUAL(info.graph, ANN_GRAPH_TSDG);
  CHECK(info.memory_bytes <= plan.peak_bytes);
  ann_index_free(index);
  params.memory_limit = plan.index_bytes;
  REFUSED(build_with(&rows, &params, &error), ANN_LIMIT, "memory_limit");
  vectors_free(&rows);
}

/* --- Searches -------------------------------------------------------------------------------- */

static ann_search_params search_params(int32_t procedure) {
  ann_search_params params = ANN_SEARCH_PARAMS_INIT;
  params.procedure = procedure;
  params.device = ANN_DEVICE_CPU;
  return params;
}

static ann_status ask(const ann_index *index, const vectors *queries, const ann_search_params *params,
                      answers *found, uint64_t *distances, ann_error *error) {
  const ann_matrix view = vectors_view(queries);
  ann_results results = answers_view(found);
  const ann_status status = ann_search_batch(index, &view, params, &results, NULL, error);
  if (distances != NULL) *distances = results.distance_count;
  return status;
}

static void refused_searches(const ann_index *index, const vectors *queries) {
  answers found = answers_make(queries->rows, K);
#define REFUSED_SEARCH(procedure, field, value, words)                                        \
  do {                                                                                        \
    ann_search_params params = search_params(procedure);                                      \
    params.field = value;                                                                     \
    REFUSED(ask(index, queries, &params, &found, NULL, &error), ANN_INVALID_ARGUMENT, words); \
  } while (0)
  for (int32_t procedure = ANN_SEARCH_TSDG; procedure <= ANN_SEARCH_TSDG_LARGE; procedure++) {
    REFUSED_SEARCH(procedure, walks, 65, "walks 65 64");
    REFUSED_SEARCH(procedure, hops_max, 4097, "hops_max 4097 4096");
    REFUSED_SEARCH(procedure, segments, 65, "segments 65 64");
    REFUSED_SEARCH(procedure, delta, 0.5f, "delta 0.5 1 4");
    REFUSED_SEARCH(procedure, delta, 4.5f, "delta 4.5 1 4");
    REFUSED_SEARCH(procedure, delta, 0.0f / 0.0f, "delta nan");
    REFUSED_SEARCH(procedure, queue_takes, 3, "queue_takes 3 2");
    REFUSED_SEARCH(procedure, queue_takes, -1, "queue_takes -1 2");
    REFUSED_SEARCH(procedure, occlusion_max, 65, "occlusion_max 65 64");
  }
  for (int32_t procedure = ANN_SEARCH_TSDG; procedure <= ANN_SEARCH_TSDG_LARGE; procedure++)
    REFUSED_SEARCH(procedure, team_size, 3, "team_size 3 2 32");
  REFUSED_SEARCH(ANN_SEARCH_TSDG, beam, K - 1, "beam 9 10");
  REFUSED_SEARCH(ANN_SEARCH_TSDG_SMALL, beam, 64, "beam 64 0");
  REFUSED_SEARCH(ANN_SEARCH_TSDG_LARGE, beam, 64, "beam 64 0");
  answers_free(&found);
  answers many = answers_make(queries->rows, 100);
  ann_search_params params = search_params(ANN_SEARCH_TSDG_SMALL);
  params.walks = 3;
  REFUSED(ask(index, queries, &params, &many, NULL, &error), ANN_INVALID_ARGUMENT, "walks 3 100");
  answers_free(&many);
  many = answers_make(queries->rows, 1025);
  params.walks = 0;
  REFUSED(ask(index, queries, &params, &many, NULL, &error), ANN_LIMIT, "results.k 1025 1024");
  params.procedure = ANN_SEARCH_TSDG_LARGE;
  REFUSED(ask(index, queries, &params, &many, NULL, &error), ANN_LIMIT, "results.k 1025 1024");
  answers_free(&many);
}

/* No id twice, nearest first; how many of all places are filled. */
static uint64_t sound(const answers *found, const char *what) {
  uint64_t filled = 0;
  for (uint64_t q = 0; q < found->rows; q++)
    for (uint32_t i = 0; i < found->k; i++) {
      const uint64_t at = q * found->k + i;
      if (found->ids[at] == ANN_ID_NONE) continue;
      filled++;
      CHECK_SAY(i == 0 || found->distances[at] >= found->distances[at - 1], "%s: answers out of order", what);
      for (uint32_t j = 0; j < i; j++)
        CHECK_SAY(found->ids[q * found->k + j] != found->ids[at], "%s: an id twice", what);
    }
  return filled;
}

/* Effort brings recall, whatever the batch and the threads; what walks everything finds everything. */
static void searched(int32_t graph, int32_t metric, int32_t element, double floor) {
  /* More than the k that is refused below; under a sanitizer no more than that needs. */
  const uint64_t n = (uint64_t)(test_scale() > 1 ? 1200 : 2000);
  char what[120];
  vectors rows = vectors_make(DATA_NORMAL, element, n, 10, 4);
  vectors more = vectors_make(DATA_NORMAL, element, n + Q, 10, 4);
  vectors queries = {element, 10, Q, vectors_row(&more, n)};
  ann_build_params build = ANN_BUILD_PARAMS_INIT;
  build.graph = graph;
  ann_index *index = index_build(metric, &rows, &build);
  if (index == NULL) return;
  refused_searches(index, &queries);
  answers found = answers_make(Q, K), alone = answers_make(1, K);
  for (int32_t procedure = ANN_SEARCH_TSDG; procedure <= ANN_SEARCH_TSDG_LARGE; procedure++) {
    snprintf(what, sizeof what, "procedure %d graph %d %s %s", procedure, graph, metric_name(metric),
             element_name(element));
    double recalls[2];
    uint64_t distances[2];
    for (int effort = 0; effort < 2; effort++) {
      ann_search_params params = search_params(procedure);
      params.beam = procedure != ANN_SEARCH_TSDG ? 0 : effort ? 100 : 12;
      params.walks = effort ? 48 : 4;
      params.delta = effort ? 1.3f : 1;
      CHECK_OK(ask(index, &queries, &params, &found, &distances[effort], NULL));
      sound(&found, what);
      recalls[effort] = recall_of(metric, &rows, &queries, K, found.ids);
      for (uint64_t q = 0; q < 5; q++) {
        const vectors one_query = {element, 10, 1, vectors_row(&queries, q)};
        CHECK_OK(ask(index, &one_query, &params, &alone, NULL, NULL));
        CHECK_SAY(memcmp(alone.ids, found.ids + q * K, K * sizeof *alone.ids) == 0,
                  "%s: alone it finds another", what);
      }
      ann_search_params threads = params;
      threads.threads = 1;
      const uint64_t hash = answers_hash(HASH_START, &found);
      CHECK_OK(ask(index, &queries, &threads, &found, NULL, NULL));
      CHECK_SAY(answers_hash(HASH_START, &found) == hash, "%s: threads change answers", what);
    }
    CHECK_SAY(recalls[1] >= floor && recalls[1] > recalls[0] - .001 && distances[1] > distances[0],
              "%s: recall %.4f and %.4f, wanted %.4f", what, recalls[0], recalls[1], floor);
    ann_search_params params = search_params(procedure);
    params.recall = 0.9f;
    CHECK_OK(ask(index, &queries, &params, &found, NULL, NULL));
    const double recall = recall_of(metric, &rows, &queries, K, found.ids);
    CHECK_SAY(recall >= 0.85, "%s: recall %.4f where .9 was wanted", what, recall);
    if (procedure == ANN_SEARCH_TSDG_LARGE) {
      params.delta = 1.3f;
      uint64_t few, many;
      params.queue_takes = ANN_QUEUE_COMPARED;
      CHECK_OK(ask(index, &queries, &params, &found, &many, NULL));
      params.queue_takes = ANN_QUEUE_NEARER;
      CHECK_OK(ask(index, &queries, &params, &found, &few, NULL));
      sound(&found, what);
      CHECK_SAY(few < many, "%s: %d distances of rows that improve, %d of all", what, (int)few, (int)many);
      params.queue_takes = 0;
      params.hops_max = 1;
      CHECK_OK(ask(index, &queries, &params, &found, &few, NULL));
      CHECK_SAY(few < many, "%s: one step", what);
      params.hops_max = 0;
      params.segments = 1;
      CHECK_OK(ask(index, &queries, &params, &found, NULL, NULL));
      sound(&found, what);
    }
  }
  /* 100 answers: four walks at least. Most of them end among the same rows, so that places stay empty. */
  answers hundred = answers_make(Q, 100);
  ann_search_params params = search_params(ANN_SEARCH_TSDG_SMALL);
  params.walks = 64;
  CHECK_OK(ask(index, &queries, &params, &hundred, NULL, NULL));
  CHECK(sound(&hundred, "100 answers of 64 walks") > Q * 32);
  answers_free(&hundred);
  answers_free(&alone);
  answers_free(&found);
  ann_index_free(index);
  vectors_free(&more);
  vectors_free(&rows);
}

/* Sets so small that walks see all of them: every procedure answers as exact search does. */
static void whole(int kind, uint64_t n) {
  vectors rows = vectors_make(kind, ANN_U8, n, 6, 9);
  vectors queries = vectors_make(kind, ANN_U8, 20, 6, 8);
  ann_build_params build = tsdg();
  ann_index *index = index_build(ANN_METRIC_L2, &rows, &build);
  answers exact = answers_make(20, K), found = answers_make(20, K);
  const ann_matrix view = vectors_view(&queries);
  ann_results results = answers_view(&exact);
  CHECK_OK(ann_search_exact(index, &view, NULL, &results, NULL, NULL));
  for (int32_t procedure = ANN_SEARCH_TSDG; procedure <= ANN_SEARCH_TSDG_LARGE; procedure++) {
    ann_search_params params = search_params(procedure);
    params.occlusion_max = 64;
    params.beam = procedure == ANN_SEARCH_TSDG ? 1000 : 0;
    params.delta = 4;
    params.walks = 64;
    params.segments = 64;
    CHECK_OK(ask(index, &queries, &params, &found, NULL, NULL));
    sound(&found, "a whole set");
    /* A small batch's walk goes to the nearest row alone. */
    const uint64_t few = procedure == ANN_SEARCH_TSDG_SMALL ? 20 * K / 4 : 0;
    CHECK_SAY(answers_missed(&exact, &found) <= few, "kind %d of %d rows, procedure %d: %d places missed",
              kind, (int)n, procedure, (int)answers_missed(&exact, &found));
  }
  answers_free(&exact);
  answers_free(&found);
  ann_index_free(index);
  vectors_free(&rows);
  vectors_free(&queries);
}

int main(void) {
  refuses();
  searched(ANN_GRAPH_TSDG, ANN_METRIC_L2, ANN_U8, 0.98);
  searched(ANN_GRAPH_TSDG, ANN_METRIC_COSINE, ANN_F32, 0.98);
  searched(ANN_GRAPH_AUTO, ANN_METRIC_L2, ANN_F16, 0.95);
  whole(DATA_NORMAL, 1);
  whole(DATA_NORMAL, 2);
  whole(DATA_NORMAL, 40);
  whole(DATA_EQUAL, 30);
  whole(DATA_NORMAL, 300);
  /* The long lists of this graph are slow to make, and slower under a sanitizer. */
  const uint64_t n = (uint64_t)(test_scale() > 1 ? 600 : 1500);
  for (int32_t method = ANN_DIVERSIFY_TSDG; method <= ANN_DIVERSIFY_VAMANA; method++) {
    one(DATA_NORMAL, ANN_METRIC_L2, ANN_U8, method, n, 0.9);
    one(DATA_CLUSTERED, ANN_METRIC_L2, ANN_F32, method, n / 2, 0.85);
  }
  one(DATA_NORMAL, ANN_METRIC_COSINE, ANN_F32, ANN_DIVERSIFY_TSDG, n, 0.95);
  one(DATA_NORMAL, ANN_METRIC_INNER_PRODUCT, ANN_F32, ANN_DIVERSIFY_TSDG, n, 0.9);
  one(DATA_NORMAL, ANN_METRIC_L2, ANN_I8, ANN_DIVERSIFY_TSDG, n, 0.95);
  one(DATA_ISLANDS, ANN_METRIC_L2, ANN_F32, ANN_DIVERSIFY_TSDG, n, 0.8);
  one(DATA_EQUAL, ANN_METRIC_L2, ANN_U8, ANN_DIVERSIFY_TSDG, 600, 1);
  one(DATA_NORMAL, ANN_METRIC_L2, ANN_U8, ANN_DIVERSIFY_TSDG, 1, 1);
  one(DATA_NORMAL, ANN_METRIC_L2, ANN_U8, ANN_DIVERSIFY_TSDG, 5, 1);
  vectors none = {ANN_U8, 4, 0, NULL};
  ann_build_params params = tsdg();
  CHECK_OK(build_with(&none, &params, NULL));
  given();
  estimated();
  return finish("tsdg");
}
