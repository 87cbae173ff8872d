/* Proves section 10 of the header: each argument of a search null or out of range in turn, buffers
 * that overlap, a batch of none, and an index that answers as before after every refusal. */
#define _GNU_SOURCE
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "ann.h"
#include "check.h"
#include "refuse.h"
#include "support.h"

enum { N = 200, DIM = 7, Q = 12, K = 5 };
static vectors rows, queries;
static ann_matrix view;
static ann_index *index_;
static answers reference;

typedef ann_status (*searcher)(const ann_index *, const ann_matrix *, const ann_search_params *,
                               ann_results *, ann_monitor *, ann_error *);

static void refusals(searcher search, int exact) {
  answers found = answers_make(Q, K), untouched = answers_make(Q, K);
  ann_results results = answers_view(&found);
  const ann_status invalid = ANN_INVALID_ARGUMENT;
  REFUSED(search(NULL, &view, NULL, &results, NULL, &error), invalid, "index");
  REFUSED(search(index_, NULL, NULL, &results, NULL, &error), invalid, "queries");
  REFUSED(search(index_, &view, NULL, NULL, NULL, &error), invalid, "results");
  CHECK_STATUS(search(NULL, NULL, NULL, NULL, NULL, NULL), invalid);

#define BAD_QUERIES(change, words)                                               \
  do {                                                                           \
    ann_matrix bad = view;                                                       \
    change;                                                                      \
    REFUSED(search(index_, &bad, NULL, &results, NULL, &error), invalid, words); \
  } while (0)
  BAD_QUERIES(bad.data = NULL, "data");
  BAD_QUERIES(bad.dim = 0, "dim");
  BAD_QUERIES(bad.dim = DIM - 1, "dim 6 7");
  BAD_QUERIES(bad.dim = DIM + 1, "dim 8 7");
  BAD_QUERIES(bad.element = 0, "element 0");
  BAD_QUERIES(bad.element = 6, "element 6");
  BAD_QUERIES(bad.element = -1, "element -1");
  BAD_QUERIES(bad.row_stride = DIM * 4 - 1, "row_stride 27 28");
  BAD_QUERIES(bad.rows = Q - 1, "rows 11 12");
  BAD_QUERIES(bad.rows = Q + 1, "rows 13 12");
  BAD_QUERIES(bad.rows = 0, "rows");
  ann_matrix bad_space = view;
  bad_space.space = 1;
  REFUSED_OR(search(index_, &bad_space, NULL, &results, NULL, &error), invalid, ANN_UNSUPPORTED, "space");

#define BAD_RESULTS(change, words)                                            \
  do {                                                                        \
    ann_results bad = results;                                                \
    change;                                                                   \
    REFUSED(search(index_, &view, NULL, &bad, NULL, &error), invalid, words); \
  } while (0)
  BAD_RESULTS(bad.k = 0, "k 0");
  BAD_RESULTS(bad.ids = NULL, "ids");
  BAD_RESULTS(bad.rows = Q - 1, "rows");
  BAD_RESULTS(bad.rows = 0, "rows");
  BAD_RESULTS(bad.rows = UINT64_MAX, "rows");
  BAD_RESULTS(bad.reserved_2 = 1, "reserved_2 1");
  /* Buffers that overlap each other or the queries, by a whole or by one byte. */
  BAD_RESULTS(bad.distances = (float *)bad.ids, "overlap");
  BAD_RESULTS(bad.distances = (float *)((char *)(bad.ids + Q * K) - 4), "overlap");
  BAD_RESULTS(bad.ids = (uint64_t *)((char *)bad.distances + Q * K * 4 - 4), "overlap");
  BAD_RESULTS(bad.counts = (uint32_t *)bad.distances, "overlap");
  BAD_RESULTS(bad.status = (ann_status *)bad.counts, "overlap");
  BAD_RESULTS(bad.status = (ann_status *)bad.ids, "overlap");
  BAD_RESULTS(bad.ids = (uint64_t *)view.data, "overlap");
  BAD_RESULTS(bad.distances = (float *)view.data + Q * DIM - 1, "overlap");
  BAD_RESULTS(bad.counts = (uint32_t *)view.data, "overlap");

#define BAD_PARAMS(change, wanted, also, words)                                         \
  do {                                                                                  \
    ann_search_params p = ANN_SEARCH_PARAMS_INIT;                                       \
    change;                                                                             \
    REFUSED_OR(search(index_, &view, &p, &results, NULL, &error), wanted, also, words); \
  } while (0)
  BAD_PARAMS(p.device = -1, invalid, invalid, "device -1");
  BAD_PARAMS(p.device = INT32_MIN, invalid, invalid, "device");
  BAD_PARAMS(p.device = ANN_DEVICE_CUDA + 1000, ANN_NO_DEVICE, ANN_UNSUPPORTED, "");
  if (!exact) {
    BAD_PARAMS(p.procedure = 99, invalid, invalid, "procedure 99");
    BAD_PARAMS(p.procedure = -1, invalid, invalid, "procedure -1");
    BAD_PARAMS(p.procedure = 256, invalid, invalid, "procedure 256");
    BAD_PARAMS(p.procedure = INT32_MAX, invalid, invalid, "procedure");
    BAD_PARAMS(p.recall = -0.01f, invalid, invalid, "recall");
    BAD_PARAMS(p.recall = 1.5f, invalid, invalid, "recall 1.5");
    BAD_PARAMS(p.recall = NAN, invalid, invalid, "recall");
    BAD_PARAMS(p.recall = INFINITY, invalid, invalid, "recall");
    if (!test_on_device()) { /* The CPU's. */
      BAD_PARAMS((p.procedure = ANN_SEARCH_SLACK, p.beam = K), invalid, invalid, "beam 5 13");
      BAD_PARAMS((p.procedure = ANN_SEARCH_SLACK, p.delta = 0.5f), invalid, invalid, "delta 0.5 1 4");
      BAD_PARAMS((p.procedure = ANN_SEARCH_SLACK, p.delta = NAN), invalid, invalid, "delta");
    }
    /* Two lists walk with 1, 8 or 16 warps; the deprecated names have their own number. */
    BAD_PARAMS((p.procedure = ANN_SEARCH_TWO_LISTS, p.warps_per_query = 2), invalid, invalid,
               "warps_per_query 2 16");
    BAD_PARAMS((p.procedure = ANN_SEARCH_TWO_LISTS, p.warps_per_query = UINT32_MAX), invalid, invalid,
               "warps_per_query");
    BAD_PARAMS((p.procedure = ANN_SEARCH_BLOCK, p.warps_per_query = 1), invalid, invalid,
               "warps_per_query 1 8 7 6");
    BAD_PARAMS((p.procedure = ANN_SEARCH_BLOCK, p.warps_per_query = 16), invalid, invalid,
               "warps_per_query 16 8");
    BAD_PARAMS((p.procedure = ANN_SEARCH_WIDE_BLOCK, p.warps_per_query = 8), invalid, invalid,
               "warps_per_query 8 16");
    BAD_PARAMS((p.procedure = ANN_SEARCH_WIDE_BLOCK, p.warps_per_query = 7), invalid, invalid,
               "warps_per_query 7");
    if (!test_on_device()) {
      for (uint32_t warps = 0; warps <= 16; warps += 8)
        BAD_PARAMS((p.procedure = ANN_SEARCH_TWO_LISTS, p.warps_per_query = warps), ANN_UNSUPPORTED,
                   ANN_UNSUPPORTED, "6 TWO_LISTS CPU");
      BAD_PARAMS(p.procedure = ANN_SEARCH_WARP, ANN_UNSUPPORTED, ANN_UNSUPPORTED, "6 TWO_LISTS CPU");
      BAD_PARAMS(p.procedure = ANN_SEARCH_BLOCK, ANN_UNSUPPORTED, ANN_UNSUPPORTED, "6 TWO_LISTS CPU");
      BAD_PARAMS((p.procedure = ANN_SEARCH_WIDE_BLOCK, p.warps_per_query = 16), ANN_UNSUPPORTED,
                 ANN_UNSUPPORTED, "6 TWO_LISTS CPU");
    }
    BAD_PARAMS(p.reserved_2 = 1, invalid, invalid, "reserved_2 1");
    BAD_PARAMS(p.beam = K - 1, invalid, invalid, "beam 4 5");
    BAD_PARAMS(p.beam = ANN_BEAM_MAX + 1, ANN_LIMIT, ANN_LIMIT, "beam 65537 65536");
    BAD_PARAMS(p.beam = UINT32_MAX, ANN_LIMIT, ANN_LIMIT, "beam");
  } else {
    /* Not used there, so not an error there. */
    ann_search_params ignored = ANN_SEARCH_PARAMS_INIT;
    ignored.beam = K - 1;
    ignored.recall = 0.5f;
    ignored.procedure = ANN_SEARCH_BEST_FIRST;
    CHECK_OK(search(index_, &view, &ignored, &results, NULL, NULL));
    ignored.procedure = ANN_SEARCH_BLOCK;
    ignored.warps_per_query = 3;
    CHECK_OK(search(index_, &view, &ignored, &results, NULL, NULL));
    answers_free(&found);
    found = answers_make(Q, K);
    results = answers_view(&found);
  }
  CHECK_SAY(answers_equal(&found, &untouched), "a refused call wrote results");
  /* After all that, the handle answers as before. */
  CHECK_OK(search(index_, &view, NULL, &results, NULL, NULL));
  if (!exact) CHECK(answers_equal(&found, &reference));
  ann_search_params unread = ANN_SEARCH_PARAMS_INIT;
  unread.warps_per_query = 3; /* of another procedure */
  CHECK_OK(search(index_, &view, &unread, &results, NULL, NULL));
  if (!exact) CHECK(answers_equal(&found, &reference));
  answers_free(&found);
  answers_free(&untouched);
}

static void integer_indexes(void) {
  for (int e = 0; e < ELEMENTS; e++) {
    vectors data = vectors_make(DATA_NORMAL, all_elements[e], N, DIM, 3);
    ann_index *index = index_build(ANN_METRIC_L2, &data, NULL);
    for (int q = 0; q < ELEMENTS; q++) {
      vectors asked = vectors_make(DATA_NORMAL, all_elements[q], Q, DIM, 4);
      answers found = answers_make(Q, K);
      const int legal = !element_is_integer(all_elements[e]) || e == q;
      for (int procedure = ANN_SEARCH_BEST_FIRST; procedure <= ANN_SEARCH_EXACT; procedure++) {
        const ann_status status = index_search(index, &asked, procedure, N, &found);
        CHECK_SAY(legal ? status == ANN_OK : status == ANN_INVALID_ARGUMENT || status == ANN_UNSUPPORTED,
                  "%s queries to a %s index answer %s", element_name(all_elements[q]),
                  element_name(all_elements[e]), ann_status_name(status));
        if (status != ANN_OK) continue;
        /* A query is not rounded to the stored element. */
        for (uint64_t i = 0; i < Q * K; i++) {
          double error;
          const double truth =
              true_distance(ANN_METRIC_L2, DIM, all_elements[e], vectors_row(&data, found.ids[i]),
                            all_elements[q], vectors_row(&asked, i / K), &error);
          CHECK_SAY(fabs(found.distances[i] - truth) <= error, "%s query, %s row: distance %.9g, wanted %.9g",
                    element_name(all_elements[q]), element_name(all_elements[e]), (double)found.distances[i],
                    truth);
        }
      }
      answers_free(&found);
      vectors_free(&asked);
    }
    ann_index_free(index);
    vectors_free(&data);
  }
}

static void optional_buffers(void) {
  answers found = answers_make(Q, K);
  for (int mask = 0; mask < 8; mask++) {
    ann_results results = answers_view(&found);
    if (mask & 1) results.distances = NULL;
    if (mask & 2) results.counts = NULL;
    if (mask & 4) results.status = NULL;
    memset(found.ids, 0xa5, Q * K * sizeof *found.ids);
    CHECK_OK(ann_search_batch(index_, &view, NULL, &results, NULL, NULL));
    CHECK(memcmp(found.ids, reference.ids, Q * K * sizeof *found.ids) == 0);
    CHECK(results.distance_count > 0 && results.distance_count <= (uint64_t)Q * N);
    ann_search_params walk = ANN_SEARCH_PARAMS_INIT;
    walk.procedure = ANN_SEARCH_BEST_FIRST;
    CHECK_OK(ann_search_batch(index_, &view, &walk, &results, NULL, NULL));
    CHECK(results.distance_count > 0 && results.expansion_count > 0);
    CHECK(results.distance_count <= (uint64_t)Q * N);
    CHECK_OK(ann_search_exact(index_, &view, NULL, &results, NULL, NULL));
    CHECK_EQUAL(results.distance_count, Q * N);
    CHECK_EQUAL(results.expansion_count, 0);
  }
  answers_free(&found);
}

static void no_queries(void) {
  ann_matrix none = view;
  none.rows = 0;
  none.data = NULL;
  ann_results results = ANN_RESULTS_INIT;
  results.k = K;
  CHECK_OK(ann_search_batch(index_, &none, NULL, &results, NULL, NULL));
  CHECK_EQUAL(results.distance_count, 0);
  CHECK_OK(ann_search_exact(index_, &none, NULL, &results, NULL, NULL));
  results.k = 0;
  CHECK_STATUS(ann_search_batch(index_, &none, NULL, &results, NULL, NULL), ANN_INVALID_ARGUMENT);
  none.dim = DIM + 1;
  results.k = K;
  CHECK_STATUS(ann_search_batch(index_, &none, NULL, &results, NULL, NULL), ANN_INVALID_ARGUMENT);
}

/* k below, at and far above the number of rows. */
static void many_neighbors(void) {
  const uint32_t ks[] = {1, 2, N - 1, N, N + 1, 2 * N, 1000, 65535, 65536};
  for (size_t i = 0; i < sizeof ks / sizeof ks[0]; i++)
    for (int procedure = ANN_SEARCH_BEST_FIRST; procedure <= ANN_SEARCH_EXACT; procedure++) {
      const uint32_t k = ks[i], wanted = k < N ? k : N;
      answers found = answers_make(Q, k);
      /* A device keeps fewer rows while it walks. */
      const uint32_t beam = k < N ? N : k > 1984 && test_on_device() ? 0 : k;
      CHECK_OK(index_search(index_, &queries, procedure, beam, &found));
      for (int q = 0; q < Q; q++) {
        CHECK_EQUAL(found.counts[q], wanted);
        for (uint32_t j = wanted; j < k; j++)
          if (found.ids[q * (uint64_t)k + j] != ANN_ID_NONE ||
              found.distances[q * (uint64_t)k + j] != INFINITY) {
            CHECK_SAY(0, "k %u: place %u of query %d is not empty", k, j, q);
            break;
          }
      }
      answers_free(&found);
      if (procedure == ANN_SEARCH_BEST_FIRST) { /* and by the default beam */
        found = answers_make(Q, k);
        CHECK_OK(index_search(index_, &queries, ANN_SEARCH_AUTO, 0, &found));
        for (int q = 0; q < Q; q++)
          CHECK_SAY(found.counts[q] == wanted, "k %u: the default beam finds %u of %u", k, found.counts[q],
                    wanted);
        answers_free(&found);
      }
    }
  /* More than a beam holds: a limit for the walk, none for the exact search. */
  answers found = answers_make(1, ANN_BEAM_MAX + 1);
  ann_matrix one = view;
  one.rows = 1;
  ann_results results = answers_view(&found);
  /* On an index this small a shorter beam does for every row there is; large_k has a large one. */
  const ann_status above = ann_search_batch(index_, &one, NULL, &results, NULL, NULL);
  CHECK(above == ANN_LIMIT || (above == ANN_OK && found.counts[0] == N));
  CHECK_OK(ann_search_exact(index_, &one, NULL, &results, NULL, NULL));
  CHECK_EQUAL(found.counts[0], N);
  CHECK(found.ids[ANN_BEAM_MAX] == ANN_ID_NONE);
  answers_free(&found);

  /* The largest k of all, with no query to fill buffers for. */
  one.rows = 0;
  results.rows = 0;
  const uint32_t huge[] = {1u << 31, (1u << 31) + 1, UINT32_MAX};
  for (int i = 0; i < 3; i++) {
    results.k = huge[i];
    const ann_status walked = ann_search_batch(index_, &one, NULL, &results, NULL, NULL);
    CHECK(walked == ANN_OK || walked == ANN_LIMIT);
    const ann_status status = ann_search_exact(index_, &one, NULL, &results, NULL, NULL);
    CHECK(status == ANN_OK || status == ANN_LIMIT);
  }
  /* rows * k of the results overflows 64 bits: refused before anything is touched. */
  ann_matrix all = view;
  all.rows = results.rows = UINT64_MAX / 8;
  results.k = 16;
  const ann_status status = ann_search_exact(index_, &all, NULL, &results, NULL, NULL);
  CHECK_SAY(status == ANN_INVALID_ARGUMENT || status == ANN_LIMIT, "an overflowing size answers %s",
            ann_status_name(status));
}

/* More neighbours than the longest beam holds, on an index that has them: a chain of rows. */
static void large_k(void) {
  enum { COUNT = ANN_BEAM_MAX + 500 };
  float *line = malloc(COUNT * sizeof *line);
  uint32_t *lists = malloc(COUNT * 2 * sizeof *lists);
  for (uint32_t i = 0; i < COUNT; i++) {
    line[i] = (float)i;
    lists[2 * i] = i > 0 ? i - 1 : 1;
    lists[2 * i + 1] = i + 1 < COUNT ? i + 1 : COUNT - 2;
    if (lists[2 * i] == lists[2 * i + 1]) lists[2 * i + 1] = UINT32_MAX;
  }
  vectors chain = {ANN_F32, 1, COUNT, (unsigned char *)line};
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.knn = ANN_KNN_GIVEN;
  params.knn_graph = lists;
  params.knn_degree = 2;
  params.degree = 2;
  params.calibrate = ANN_OFF;
  ann_index *index = index_build(ANN_METRIC_L2, &chain, &params);
  CHECK(index != NULL);
  if (index) {
    vectors one = chain;
    one.rows = 1;
    const ann_matrix one_view = vectors_view(&one);
    answers found = answers_make(1, ANN_BEAM_MAX + 1);
    ann_results results = answers_view(&found);
    REFUSED(ann_search_batch(index, &one_view, NULL, &results, NULL, &error), ANN_LIMIT, "65537 65536");
    /* An exact search on a device gives at most 1,024 answers. */
    if (!test_on_device()) {
      CHECK_OK(ann_search_exact(index, &one_view, NULL, &results, NULL, NULL));
      CHECK(found.counts[0] == ANN_BEAM_MAX + 1 && found.ids[ANN_BEAM_MAX] == ANN_BEAM_MAX);
    }
    answers_free(&found);
  }
  ann_index_free(index);
  free(line);
  free(lists);
}

/* Results within the last query's stride, behind its values, overlap nothing; one byte earlier they do. */
static void results_in_stride(void) {
  enum { DIM = 8, ROWS = 3, K = 2, STRIDE = 256 };
  vectors rows = vectors_make(DATA_NORMAL, ANN_F32, 40, DIM, 3);
  ann_index *index = index_build(ANN_METRIC_L2, &rows, NULL);
  unsigned char *memory = aligned_alloc(64, ROWS * STRIDE);
  memset(memory, 0, ROWS * STRIDE);
  for (int i = 0; i < ROWS; i++) memcpy(memory + i * STRIDE, vectors_row(&rows, (uint64_t)i), DIM * 4);
  ann_matrix queries = vectors_view(&rows);
  queries.data = memory;
  queries.rows = ROWS;
  queries.row_stride = STRIDE;
  unsigned char *behind = memory + (ROWS - 1) * STRIDE + DIM * 4;
  uint64_t ids[ROWS * K];
  ann_results results = ANN_RESULTS_INIT;
  results.k = K;
  results.rows = ROWS;
  results.ids = (uint64_t *)behind;
  results.distances = (float *)(behind + sizeof ids);
  CHECK_OK(ann_search_batch(index, &queries, NULL, &results, NULL, NULL));
  for (int i = 0; i < ROWS; i++) CHECK_EQUAL(results.ids[i * K], i);
  results.ids = ids;
  results.distances = (float *)(behind - 4);
  REFUSED(ann_search_batch(index, &queries, NULL, &results, NULL, &error), ANN_INVALID_ARGUMENT, "overlap");
  free(memory);
  ann_index_free(index);
  vectors_free(&rows);
}

int main(void) {
  rows = vectors_make(DATA_NORMAL, ANN_F32, N, DIM, 1);
  queries = vectors_make(DATA_NORMAL, ANN_F32, Q, DIM, 2);
  view = vectors_view(&queries);
  index_ = index_build(ANN_METRIC_L2, &rows, NULL);
  reference = answers_make(Q, K);
  CHECK_OK(index_search(index_, &queries, ANN_SEARCH_AUTO, 0, &reference));
  refusals(ann_search_batch, 0);
  refusals(ann_search_exact, 1);
  integer_indexes();
  optional_buffers();
  no_queries();
  many_neighbors();
  large_k();
  ann_index_free(index_);
  answers_free(&reference);
  vectors_free(&rows);
  vectors_free(&queries);
  results_in_stride();
  return finish("search");
}
