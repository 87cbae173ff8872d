/* Proves what the header says of GGNN's search, on the CPU, where the device's twin answers: what is found is near
 * and exact, more slack finds more, small caches cost distances and no wrong answer, small and odd sets are
 * answered, and bad parameters are refused by name. */
#include <stdlib.h>
#include <string.h>

#include "ann.h"
#include "check.h"
#include "refuse.h"
#include "support.h"

enum { N = 3000, Q = 60, DIM = 16, K = 10 };
#define SOME \
  ((uint64_t)(test_scale() > 1 ? N / 2 : N)) /* half of them under a sanitizer, which makes builds slow */

static ann_search_params params_of(float stretch) {
  ann_search_params params = ANN_SEARCH_PARAMS_INIT;
  params.procedure = ANN_SEARCH_GGNN;
  params.stretch = stretch;
  return params;
}

/* Searches and returns the distances that were computed. */
static uint64_t search(const ann_index *index, const vectors *queries, const ann_search_params *params,
                       answers *found) {
  const ann_matrix view = vectors_view(queries);
  ann_results results = answers_view(found);
  CHECK_OK(ann_search_batch(index, &view, params, &results, NULL, NULL));
  return results.distance_count;
}

/* An index, queries, what exact search finds for them, and room for what others find. */
typedef struct fixture {
  vectors rows, queries;
  ann_index *index;
  answers exact, found, other;
} fixture;

static fixture fixture_make(int32_t metric, int32_t element, uint64_t rows, const ann_build_params *params,
                            uint64_t seed) {
  fixture f;
  f.rows = vectors_make(DATA_NORMAL, element, rows, DIM, seed);
  f.queries = vectors_make(DATA_NORMAL, element, Q, DIM, seed + 1);
  f.index = index_build(metric, &f.rows, params);
  f.exact = answers_make(Q, K);
  f.found = answers_make(Q, K);
  f.other = answers_make(Q, K);
  CHECK_OK(index_search(f.index, &f.queries, ANN_SEARCH_EXACT, 0, &f.exact));
  return f;
}

static void fixture_free(fixture *f) {
  answers_free(&f->exact);
  answers_free(&f->found);
  answers_free(&f->other);
  ann_index_free(f->index);
  vectors_free(&f->rows);
  vectors_free(&f->queries);
}

static void elements_and_metrics(void) {
  for (int e = 0; e < ELEMENTS; e++)
    for (int m = 0; m < METRICS; m++) {
      if (!test_takes(e + m)) continue;
      fixture f = fixture_make(all_metrics[m], all_elements[e], N / test_scale(), NULL, 1);
      for (int32_t compare = ANN_COMPARE_AUTO; compare <= ANN_COMPARE_STORED; compare++) {
        ann_search_params params = params_of(2);
        params.compare = compare;
        search(f.index, &f.queries, &params, &f.found);
        const uint64_t missed = answers_missed(&f.exact, &f.found);
        CHECK_SAY(missed <= Q * K / 50, "%s %s, compare %d: %d of %d missed", element_name(all_elements[e]),
                  metric_name(all_metrics[m]), compare, (int)missed, Q * K);
        for (int i = 0; i < Q * K; i++) /* a row that exact search finds too has its distance */
          for (int j = i / K * K; j < i / K * K + K; j++)
            if (f.found.ids[i] == f.exact.ids[j])
              CHECK(memcmp(&f.found.distances[i], &f.exact.distances[j], sizeof(float)) == 0);
      }
      fixture_free(&f);
    }
}

static void slack_and_caches(void) {
  fixture f = fixture_make(ANN_METRIC_L2, ANN_F32, SOME, NULL, 3);
  uint64_t last_missed = Q * K, last_distances = 0;
  for (float stretch = 1; stretch <= 1.5f; stretch += 0.125f) {
    ann_search_params params = params_of(stretch);
    const uint64_t distances = search(f.index, &f.queries, &params, &f.found);
    const uint64_t missed = answers_missed(&f.exact, &f.found);
    CHECK_SAY(missed <= last_missed + 3 && distances > last_distances, "stretch %g: %d missed, %d distances",
              (double)stretch, (int)missed, (int)distances);
    last_missed = missed;
    last_distances = distances;
    params.team_size = 2; /* of no meaning on the CPU, and for no answer */
    CHECK_EQUAL(search(f.index, &f.queries, &params, &f.other), distances);
    CHECK(answers_equal(&f.found, &f.other));
    params.nearest_share = 0.25f; /* a bound that is no looser */
    CHECK(search(f.index, &f.queries, &params, &f.other) <= distances);
    params.iterations_max = 1;
    CHECK(search(f.index, &f.queries, &params, &f.other) < distances);
  }
  CHECK_SAY(last_missed <= Q, "%d missed", (int)last_missed);
  /* A best list that grows does what slack does (figure 3). */
  ann_search_params longer = params_of(1);
  const uint64_t short_list = search(f.index, &f.queries, &longer, &f.found);
  const uint64_t missed = answers_missed(&f.exact, &f.found);
  longer.beam = 100;
  CHECK(search(f.index, &f.queries, &longer, &f.found) > short_list);
  CHECK(answers_missed(&f.exact, &f.found) < missed);
  /* What a ring of few rows has forgotten is compared again. */
  ann_search_params params = params_of(1.5f);
  params.iterations_max = 1000;
  params.visited = 1000;
  const uint64_t remembering = search(f.index, &f.queries, &params, &f.found);
  params.visited = 4;
  CHECK(search(f.index, &f.queries, &params, &f.other) > remembering);
  for (int i = 0; i < Q; i++) /* and stands once in an answer */
    for (int j = 1; j < K; j++)
      for (int l = 0; l < j; l++) CHECK(f.other.ids[i * K + j] != f.other.ids[i * K + l]);
  params.visited = 1000;
  params.queue = 1;
  CHECK(search(f.index, &f.queries, &params, &f.other) < remembering);
  fixture_free(&f);
}

/* Without a calibration the recall stands for a stretch: .95 for a slack of 0.1, half of its miss for 0.022 more; of
 * squares for 0.3 and 0.05. */
static void default_slack(void) {
  ann_build_params plain = ANN_BUILD_PARAMS_INIT;
  plain.calibrate = ANN_OFF;
  fixture f = fixture_make(ANN_METRIC_L2, ANN_U8, SOME, &plain, 5);
  const struct {
    float recall, stretch;
    int32_t slack;
  } table[] = {{0, 1.1f, 0},      {0.95f, 1.1f, ANN_SLACK_DISTANCES}, {0.975f, 1.122f, 0},
               {0.9f, 1.078f, 0}, {0.95f, 1.3f, ANN_SLACK_SQUARES},   {0.9875f, 1.4f, ANN_SLACK_SQUARES}};
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    ann_search_params asked = params_of(0), given = params_of(table[i].stretch);
    asked.recall = table[i].recall;
    asked.slack = given.slack = table[i].slack;
    CHECK_EQUAL(search(f.index, &f.queries, &asked, &f.found), search(f.index, &f.queries, &given, &f.other));
    CHECK(answers_equal(&f.found, &f.other));
  }
  fixture_free(&f);
}

/* A slack that is added to squares goes less far than one of distances, unless it is none. */
static void squares(void) {
  fixture f = fixture_make(ANN_METRIC_L2, ANN_F32, SOME, NULL, 15);
  uint64_t last_distances = 0, last_missed = Q * K;
  for (float stretch = 1; stretch <= 1.6f; stretch += 0.2f) {
    ann_search_params by_default = params_of(stretch), distances = by_default, of_squares = by_default;
    distances.slack = ANN_SLACK_DISTANCES;
    of_squares.slack = ANN_SLACK_SQUARES;
    const uint64_t far = search(f.index, &f.queries, &by_default, &f.other);
    CHECK_EQUAL(search(f.index, &f.queries, &distances, &f.found), far);
    CHECK(answers_equal(&f.found, &f.other));
    const uint64_t near = search(f.index, &f.queries, &of_squares, &f.found);
    CHECK_SAY(stretch == 1 ? near == far : near < far, "stretch %g: %d distances, of squares %d",
              (double)stretch, (int)far, (int)near);
    const uint64_t missed = answers_missed(&f.exact, &f.found);
    CHECK_SAY(near > last_distances && missed <= last_missed + 3,
              "stretch %g of squares: %d missed, %d distances", (double)stretch, (int)missed, (int)near);
    last_distances = near;
    last_missed = missed;
  }
  fixture_free(&f);
}

/* The edges of GGNN's graph over some rows. */
static uint32_t *edges_of(const vectors *rows, float stretch, int32_t slack, uint64_t *count) {
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.graph = ANN_GRAPH_GGNN;
  params.calibrate = ANN_OFF;
  params.build_stretch = stretch;
  params.build_slack = slack;
  ann_index *index = index_build(ANN_METRIC_L2, rows, &params);
  *count = rows->rows * 24;
  uint32_t *edges = malloc(*count * sizeof *edges);
  uint32_t degree = 0;
  CHECK(edges != NULL);
  CHECK_OK(ann_index_graph(index, edges, *count, &degree, NULL));
  CHECK_EQUAL(degree, 24);
  ann_index_free(index);
  return edges;
}

/* Builds too: the defaults are a slack of .15 by distances and of .5 by squares. */
static void build_slack(void) {
  vectors rows = vectors_make(DATA_NORMAL, ANN_F32, N / test_scale(), DIM, 17);
  uint64_t count = 0;
  uint32_t *distances = edges_of(&rows, 0, ANN_SLACK_AUTO, &count);
  uint32_t *squares_default = edges_of(&rows, 0, ANN_SLACK_SQUARES, &count);
  uint32_t *named = edges_of(&rows, 1.15f, ANN_SLACK_DISTANCES, &count);
  uint32_t *squares_named = edges_of(&rows, 1.5f, ANN_SLACK_SQUARES, &count);
  uint32_t *squares_none = edges_of(&rows, 1, ANN_SLACK_SQUARES, &count);
  uint32_t *none = edges_of(&rows, 1, ANN_SLACK_DISTANCES, &count);
  CHECK(memcmp(distances, named, count * sizeof *named) == 0);
  CHECK(memcmp(squares_default, squares_named, count * sizeof *named) == 0);
  CHECK(memcmp(squares_none, none, count * sizeof *named) == 0);
  CHECK(memcmp(squares_default, squares_none, count * sizeof *named) != 0);
  free(distances);
  free(squares_default);
  free(named);
  free(squares_named);
  free(squares_none);
  free(none);
  vectors_free(&rows);
}

/* A walk that comes down through the layers compares more rows, ends at answers as near, and is refused where it has
 * no layers or too long a list. */
static void descent(const ann_index *index, const vectors *queries, const answers *exact) {
  answers straight = answers_make(Q, K), down = answers_make(Q, K);
  ann_search_params params = params_of(1.2f);
  const uint64_t distances = search(index, queries, &params, &straight);
  params.descent = ANN_OFF;
  CHECK_EQUAL(search(index, queries, &params, &down), distances);
  CHECK(answers_equal(&straight, &down));
  params.descent = ANN_ON;
  const uint64_t more = search(index, queries, &params, &down);
  CHECK_SAY(more > distances, "%d distances, straight %d", (int)more, (int)distances);
  CHECK_SAY(answers_missed(exact, &down) <= answers_missed(exact, &straight) + Q * K / 100,
            "%d missed, straight %d", (int)answers_missed(exact, &down),
            (int)answers_missed(exact, &straight));
  params.iterations_max = 2;
  CHECK(search(index, queries, &params, &down) < more);
  params.iterations_max = 0;
  params.beam = 600;
  const ann_matrix view = vectors_view(queries);
  ann_results results = answers_view(&down);
  REFUSED(ann_search_batch(index, &view, &params, &results, NULL, &error), ANN_LIMIT, "descent 512");
  answers_free(&straight);
  answers_free(&down);
}

static void small_sets(void) {
  for (uint64_t rows_count = 0; rows_count <= 32; rows_count++) {
    vectors rows = vectors_make(DATA_NORMAL, ANN_F32, rows_count, DIM, 7);
    vectors queries = vectors_make(DATA_NORMAL, ANN_F32, 5, DIM, 8);
    ann_index *index = index_build(ANN_METRIC_COSINE, &rows, NULL);
    for (uint32_t k = 1; k <= 40; k += 13) {
      answers found = answers_make(5, k), exact = answers_make(5, k);
      CHECK_OK(index_search(index, &queries, ANN_SEARCH_EXACT, 0, &exact));
      CHECK_OK(index_search(index, &queries, ANN_SEARCH_GGNN, 0, &found));
      CHECK_SAY(answers_equal(&found, &exact), "%d rows, k %u", (int)rows_count, k);
      answers_free(&found);
      answers_free(&exact);
    }
    ann_index_free(index);
    vectors_free(&rows);
    vectors_free(&queries);
  }
}

static void refusals(void) {
  fixture f = fixture_make(ANN_METRIC_L2, ANN_F32, 300, NULL, 9);
  const ann_matrix view = vectors_view(&f.queries);
  ann_results results = answers_view(&f.found);
#define BAD(change, wanted, words)                                                        \
  do {                                                                                    \
    ann_search_params p = params_of(0);                                                   \
    change;                                                                               \
    REFUSED(ann_search_batch(f.index, &view, &p, &results, NULL, &error), wanted, words); \
  } while (0)
  BAD(p.beam = K - 1, ANN_INVALID_ARGUMENT, "beam 9 10");
  BAD(p.beam = 1985, ANN_LIMIT, "beam 1985 1984");
  BAD(p.stretch = 0.99f, ANN_INVALID_ARGUMENT, "stretch 0.99 1 3");
  BAD(p.stretch = 3.01f, ANN_INVALID_ARGUMENT, "stretch 3.01 1 3");
  BAD(p.stretch = -1, ANN_INVALID_ARGUMENT, "stretch -1 1 3");
  BAD(p.queue = 2049, ANN_LIMIT, "queue 2049 2048");
  BAD(p.visited = 8193, ANN_LIMIT, "visited 8193 8192");
  BAD(p.iterations_max = 8193, ANN_LIMIT, "iterations_max 8193 8192");
  BAD(p.nearest_share = -0.5f, ANN_INVALID_ARGUMENT, "nearest_share -0.5 0 1");
  BAD(p.nearest_share = 1.5f, ANN_INVALID_ARGUMENT, "nearest_share 1.5 0 1");
  BAD(p.team_size = 3, ANN_INVALID_ARGUMENT, "team_size 3 32");
  BAD(p.compare = 3, ANN_INVALID_ARGUMENT, "compare 3");
  BAD(p.compare = -1, ANN_INVALID_ARGUMENT, "compare -1");
  BAD(p.slack = 3, ANN_INVALID_ARGUMENT, "slack 3 2");
  BAD(p.slack = -1, ANN_INVALID_ARGUMENT, "slack -1 2");
  BAD(p.descent = 3, ANN_INVALID_ARGUMENT, "descent 3 2");
  BAD(p.descent = ANN_ON, ANN_UNSUPPORTED, "descent GGNN");
  /* All of them open to whoever asks for another procedure. */
  ann_search_params ignored = params_of(9);
  ignored.procedure = ANN_SEARCH_BEST_FIRST;
  ignored.queue = 1 << 20;
  ignored.slack = ignored.descent = 100;
  ignored.nearest_share = -1;
  CHECK_OK(ann_search_batch(f.index, &view, &ignored, &results, NULL, NULL));
  answers many = answers_make(Q, 1985);
  const ann_search_params params = params_of(0);
  ann_results too_many = answers_view(&many);
  REFUSED(ann_search_batch(f.index, &view, &params, &too_many, NULL, &error), ANN_LIMIT, "k 1985 1984");
  answers_free(&many);
  fixture_free(&f);
}

typedef struct buffer {
  char *data;
  size_t count;
} buffer;

static int64_t take(void *user, const void *data, uint64_t bytes) {
  buffer *b = user;
  char *longer = realloc(b->data, b->count + bytes + 1);
  CHECK(longer != NULL);
  b->data = longer;
  memcpy(b->data + b->count, data, bytes);
  b->count += bytes;
  return (int64_t)bytes;
}

static buffer index_save(const ann_index *index) {
  buffer b = {NULL, 0};
  ann_writer writer = ANN_WRITER_INIT;
  writer.write = take;
  writer.user = &b;
  CHECK_OK(ann_save_stream(index, &writer, NULL, NULL, NULL));
  return b;
}

/* From memory at an address that any mode takes. */
static ann_index *index_open(const buffer *file, int32_t mode, char *aligned) {
  memcpy(aligned, file->data, file->count);
  ann_open_params params = ANN_OPEN_PARAMS_INIT;
  params.mode = mode;
  ann_index *index = NULL;
  CHECK_OK(ann_open_memory(NULL, aligned, file->count, &params, &index, NULL, NULL));
  return index;
}

/* The graph: searches of every kind find its rows, a file brings it back, and bad parameters are refused. */
static void graph(void) {
  for (int m = 0; m < METRICS; m++) {
    ann_build_params params = ANN_BUILD_PARAMS_INIT;
    params.graph = ANN_GRAPH_GGNN;
    fixture f = fixture_make(all_metrics[m], ANN_F32, SOME / 2, &params, 11);
    ann_index_info info = ANN_INDEX_INFO_INIT;
    CHECK_OK(ann_index_get_info(f.index, &info, NULL));
    CHECK_EQUAL(info.graph, ANN_GRAPH_GGNN);
    CHECK_EQUAL(info.degree, 24);
    const int32_t procedures[] = {ANN_SEARCH_AUTO, ANN_SEARCH_BEST_FIRST, ANN_SEARCH_CAGRA_SINGLE_CTA,
                                  ANN_SEARCH_GGNN};
    for (size_t p = 0; p < sizeof procedures / sizeof *procedures; p++) {
      CHECK_OK(index_search(f.index, &f.queries, procedures[p], 0, &f.found));
      CHECK_SAY(answers_missed(&f.exact, &f.found) <= Q * K / 10, "%s, procedure %d: %d of %d missed",
                metric_name(all_metrics[m]), procedures[p], (int)answers_missed(&f.exact, &f.found), Q * K);
    }
    descent(f.index, &f.queries, &f.exact);
    ann_search_params down = params_of(1.3f);
    down.descent = ANN_ON;
    search(f.index, &f.queries, &down, &f.exact);
    buffer file = index_save(f.index);
    for (int32_t mode = ANN_OPEN_FULL; mode <= ANN_OPEN_TRUSTED; mode++) {
      char *aligned = aligned_alloc(4096, (file.count + 4095) / 4096 * 4096);
      CHECK(aligned != NULL);
      ann_index *opened = index_open(&file, mode, aligned);
      answers again = answers_make(Q, K);
      CHECK_OK(index_search(opened, &f.queries, ANN_SEARCH_GGNN, 0, &again));
      CHECK(answers_equal(&f.found, &again));
      search(opened, &f.queries, &down, &again);
      CHECK(answers_equal(&f.exact, &again));
      buffer second = index_save(opened);
      CHECK(second.count == file.count && memcmp(second.data, file.data, file.count) == 0);
      free(second.data);
      answers_free(&again);
      ann_index_free(opened);
      free(aligned);
    }
    free(file.data);
    fixture_free(&f);
  }
}

static void build_refusals(void) {
  const ann_index_params shape = {sizeof shape, DIM, ANN_METRIC_L2, ANN_F32};
  ann_plan plan = ANN_PLAN_INIT;
#define BAD_BUILD(change, wanted, words)                                            \
  do {                                                                              \
    ann_build_params p = ANN_BUILD_PARAMS_INIT;                                     \
    p.graph = ANN_GRAPH_GGNN;                                                       \
    change;                                                                         \
    REFUSED(ann_estimate(&shape, 1000, ANN_F32, &p, &plan, &error), wanted, words); \
  } while (0)
  BAD_BUILD(p.graph = 6, ANN_INVALID_ARGUMENT, "graph 6 5");
  BAD_BUILD(p.degree = 1, ANN_INVALID_ARGUMENT, "degree 1 2");
  BAD_BUILD(p.degree = 100000, ANN_LIMIT, "degree 100000");
  BAD_BUILD(p.segment_rows = 12, ANN_INVALID_ARGUMENT, "segment_rows 12 13 1024");
  BAD_BUILD(p.segment_rows = 1025, ANN_LIMIT, "segment_rows 1025 1024");
  BAD_BUILD(p.layers = 1, ANN_INVALID_ARGUMENT, "layers 1 2 8");
  BAD_BUILD(p.layers = 9, ANN_LIMIT, "layers 9 8");
  BAD_BUILD(p.refinements = -2, ANN_INVALID_ARGUMENT, "refinements -2 16");
  BAD_BUILD(p.refinements = 17, ANN_INVALID_ARGUMENT, "refinements 17 16");
  BAD_BUILD(p.build_stretch = 0.5f, ANN_INVALID_ARGUMENT, "build_stretch 0.5 1 3");
  BAD_BUILD(p.build_stretch = 3.5f, ANN_INVALID_ARGUMENT, "build_stretch 3.5 1 3");
  BAD_BUILD(p.midpoint = 3, ANN_INVALID_ARGUMENT, "midpoint 3");
  BAD_BUILD(p.build_slack = 3, ANN_INVALID_ARGUMENT, "build_slack 3");
  BAD_BUILD(p.build_slack = -1, ANN_INVALID_ARGUMENT, "build_slack -1");
  BAD_BUILD(p.knn = ANN_KNN_CELLS, ANN_INVALID_ARGUMENT, "knn 4 GGNN");
  /* What is not refused is planned for, and a build keeps to it. */
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.graph = ANN_GRAPH_GGNN;
  CHECK_OK(ann_estimate(&shape, N, ANN_F32, &params, &plan, NULL));
  vectors rows = vectors_make(DATA_NORMAL, ANN_F32, N / test_scale(), DIM, 13);
  params.memory_limit = plan.peak_bytes;
  ann_index *index = index_build(ANN_METRIC_L2, &rows, &params);
  ann_index_free(index);
  vectors_free(&rows);
}

int main(void) {
  elements_and_metrics();
  slack_and_caches();
  default_slack();
  squares();
  build_slack();
  small_sets();
  graph();
  refusals();
  build_refusals();
  return finish("ggnn");
}
