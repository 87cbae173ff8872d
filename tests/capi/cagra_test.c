/* Proves what the header says of CAGRA's procedures, on the CPU, where the device's twin answers: what is
 * found is near and exact, more effort finds more, tables and teams change no answer, the choice rule
 * chooses, small and odd sets are answered, and bad parameters are refused by name. */
#include <stdlib.h>
#include <string.h>

#include "ann.h"
#include "check.h"
#include "refuse.h"
#include "support.h"

enum { N = 3000, Q = 60, DIM = 16, K = 10 };

static const int32_t procedures[] = {ANN_SEARCH_CAGRA_SINGLE_CTA, ANN_SEARCH_CAGRA_MULTI_CTA};

static ann_search_params params_of(int32_t procedure, uint32_t beam) {
  ann_search_params params = ANN_SEARCH_PARAMS_INIT;
  params.procedure = procedure;
  params.beam = beam;
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

static void elements_and_metrics(void) {
  for (int e = 0; e < ELEMENTS; e++)
    for (int m = 0; m < METRICS; m++) {
      vectors rows = vectors_make(DATA_NORMAL, all_elements[e], N / test_scale(), DIM, 1);
      vectors queries = vectors_make(DATA_NORMAL, all_elements[e], Q, DIM, 2);
      ann_index *index = index_build(all_metrics[m], &rows, NULL);
      answers found = answers_make(Q, K), exact = answers_make(Q, K);
      CHECK_OK(index_search(index, &queries, ANN_SEARCH_EXACT, 0, &exact));
      for (int p = 0; p < 2; p++)
        for (int32_t compare = ANN_COMPARE_AUTO; compare <= ANN_COMPARE_STORED; compare++) {
          ann_search_params params = params_of(procedures[p], 256);
          params.compare = compare;
          search(index, &queries, &params, &found);
          const uint64_t missed = answers_missed(&exact, &found);
          CHECK_SAY(missed <= Q * K / 50, "%s %s, procedure %d, compare %d: %d of %d missed",
                    element_name(all_elements[e]), metric_name(all_metrics[m]), procedures[p], compare,
                    (int)missed, Q * K);
          for (int i = 0; i < Q * K; i++) /* a row that exact search finds too has its distance */
            for (int j = i / K * K; j < i / K * K + K; j++)
              if (found.ids[i] == exact.ids[j])
                CHECK(memcmp(&found.distances[i], &exact.distances[j], sizeof(float)) == 0);
        }
      answers_free(&found);
      answers_free(&exact);
      ann_index_free(index);
      vectors_free(&rows);
      vectors_free(&queries);
    }
}

/* With no more rows in a beam than are wanted, those that codes rank too low are lost, and none that are
 * compared as stored. Rows of i8 and u8 are compared by their codes all the same. */
static void stored_rows(void) {
  enum { M = 32 };
  for (int e = 0; e < ELEMENTS; e++) {
    vectors rows = vectors_make(DATA_NORMAL, all_elements[e], N, DIM, 5);
    vectors queries = vectors_make(DATA_NORMAL, all_elements[e], Q, DIM, 6);
    ann_build_params plain = ANN_BUILD_PARAMS_INIT;
    plain.calibrate = ANN_OFF;
    ann_index *index = index_build(ANN_METRIC_L2, &rows, &plain);
    answers exact = answers_make(Q, M), codes = answers_make(Q, M), stored = answers_make(Q, M);
    CHECK_OK(index_search(index, &queries, ANN_SEARCH_EXACT, 0, &exact));
    for (int p = 0; p < 2; p++) {
      ann_search_params params = params_of(procedures[p], M);
      params.ctas_per_query = 1;
      params.iterations_max = 200; /* until every row of the beam is expanded */
      params.compare = ANN_COMPARE_CODES;
      search(index, &queries, &params, &codes);
      params.compare = ANN_COMPARE_STORED;
      search(index, &queries, &params, &stored);
      const int by_codes = (int)answers_missed(&exact, &codes),
                as_stored = (int)answers_missed(&exact, &stored);
      if (element_is_integer(all_elements[e]))
        CHECK(answers_equal(&codes, &stored));
      else
        CHECK_SAY(as_stored < by_codes, "%s, procedure %d: %d missed by codes, %d by rows as stored",
                  element_name(all_elements[e]), procedures[p], by_codes, as_stored);
    }
    answers_free(&exact);
    answers_free(&codes);
    answers_free(&stored);
    ann_index_free(index);
    vectors_free(&rows);
    vectors_free(&queries);
  }
}

static void effort_and_tables(void) {
  vectors rows = vectors_make(DATA_NORMAL, ANN_F32, N, DIM, 3);
  vectors queries = vectors_make(DATA_NORMAL, ANN_F32, Q, DIM, 4);
  ann_index *index = index_build(ANN_METRIC_L2, &rows, NULL);
  answers exact = answers_make(Q, K), found = answers_make(Q, K), other = answers_make(Q, K);
  CHECK_OK(index_search(index, &queries, ANN_SEARCH_EXACT, 0, &exact));
  for (int p = 0; p < 2; p++) {
    uint64_t last_missed = Q * K, last_distances = 0;
    for (uint32_t beam = 32; beam <= 1024; beam *= 4) {
      ann_search_params params = params_of(procedures[p], beam);
      const uint64_t distances = search(index, &queries, &params, &found);
      const uint64_t missed = answers_missed(&exact, &found);
      CHECK_SAY(missed <= last_missed + 3 && distances > last_distances, "procedure %d, beam %u: %d missed",
                procedures[p], beam, (int)missed);
      last_missed = missed;
      last_distances = distances;
      params.team_size = 2;
      CHECK_EQUAL(search(index, &queries, &params, &other), distances);
      CHECK(answers_equal(&found, &other));
      params.iterations_max = 1;
      CHECK(search(index, &queries, &params, &other) < distances);
    }
    CHECK_EQUAL(last_missed, 0);
  }
  ann_search_params params = params_of(ANN_SEARCH_CAGRA_SINGLE_CTA, 100);
  params.hash_reset = ANN_NONE;
  const uint64_t standard = search(index, &queries, &params, &found);
  uint64_t last = UINT64_MAX;
  for (int32_t reset = 1; reset <= 16; reset *= 2) {
    params.hash_reset = reset;
    const uint64_t forgetful = search(index, &queries, &params, &other);
    CHECK(answers_equal(&found, &other));
    CHECK_SAY(standard < forgetful && forgetful < last, "reset %d: %d distances, standard %d", reset,
              (int)forgetful, (int)standard);
    last = forgetful;
  }
  answers_free(&exact);
  answers_free(&found);
  answers_free(&other);
  ann_index_free(index);
  vectors_free(&rows);
  vectors_free(&queries);
}

/* More parents in an iteration of each block: fewer iterations, as many as 512 candidates of a block allow. */
static void parents_of_blocks(void) {
  vectors rows = vectors_make(DATA_NORMAL, ANN_F32, N, DIM, 11);
  vectors queries = vectors_make(DATA_NORMAL, ANN_F32, Q, DIM, 12);
  ann_index *index = index_build(ANN_METRIC_L2, &rows, NULL);
  answers exact = answers_make(Q, K), found = answers_make(Q, K), other = answers_make(Q, K);
  CHECK_OK(index_search(index, &queries, ANN_SEARCH_EXACT, 0, &exact));
  uint64_t last = 0;
  for (uint32_t width = 1; width <= 16; width *= 4) {
    ann_search_params params = params_of(ANN_SEARCH_CAGRA_MULTI_CTA, 128);
    params.search_width = width;
    const uint64_t distances = search(index, &queries, &params, &found);
    CHECK_SAY(distances > last, "%u parents: %d distances", width, (int)distances);
    const uint64_t missed = answers_missed(&exact, &found);
    CHECK_SAY(missed <= Q * K / 50, "%u parents: %d missed", width, (int)missed);
    last = distances;
  }
  ann_search_params params = params_of(ANN_SEARCH_CAGRA_MULTI_CTA, 128);
  params.search_width = 64; /* of 32 edges each: 16 count */
  CHECK_EQUAL(search(index, &queries, &params, &other), last);
  CHECK(answers_equal(&found, &other));
  answers_free(&exact);
  answers_free(&found);
  answers_free(&other);
  ann_index_free(index);
  vectors_free(&rows);
  vectors_free(&queries);
}

/* Figure 7. The counts of the two procedures differ, which tells them apart. */
static void choice_rule(void) {
  vectors rows = vectors_make(DATA_NORMAL, ANN_U8, N, DIM, 5);
  vectors queries = vectors_make(DATA_NORMAL, ANN_U8, Q, DIM, 6);
  ann_index *index = index_build(ANN_METRIC_L2, &rows, NULL);
  answers found = answers_make(Q, K);
  const struct {
    uint32_t beam, batch_threshold, beam_threshold;
    int several;
  } cases[] = {{512, 0, 0, 0},     {513, 0, 0, 1},   {512, Q, 0, 0},
               {512, Q + 1, 0, 1}, {512, 0, 511, 1}, {700, 0, 700, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ann_search_params params = params_of(ANN_SEARCH_CAGRA, cases[i].beam);
    params.batch_threshold = cases[i].batch_threshold;
    /* A device's own threshold is the number of its multiprocessors, more than these queries. */
    if (params.batch_threshold == 0 && test_on_device()) params.batch_threshold = 1;
    params.beam_threshold = cases[i].beam_threshold;
    const uint64_t chosen = search(index, &queries, &params, &found);
    const ann_search_params single = params_of(procedures[0], cases[i].beam);
    const ann_search_params several = params_of(procedures[1], cases[i].beam);
    const uint64_t by_one = search(index, &queries, &single, &found);
    const uint64_t by_several = search(index, &queries, &several, &found);
    CHECK(by_one != by_several);
    CHECK_EQUAL(chosen, cases[i].several ? by_several : by_one);
  }
  answers_free(&found);
  ann_index_free(index);
  vectors_free(&rows);
  vectors_free(&queries);
}

/* Sets with no more rows than first candidates are compared whole. */
static void small_sets(void) {
  for (uint64_t rows_count = 0; rows_count <= 32; rows_count++) {
    vectors rows = vectors_make(DATA_NORMAL, ANN_F32, rows_count, DIM, 7);
    vectors queries = vectors_make(DATA_NORMAL, ANN_F32, 5, DIM, 8);
    ann_index *index = index_build(ANN_METRIC_COSINE, &rows, NULL);
    for (uint32_t k = 1; k <= 40; k += 13) {
      answers found = answers_make(5, k), exact = answers_make(5, k);
      CHECK_OK(index_search(index, &queries, ANN_SEARCH_EXACT, 0, &exact));
      for (int p = 0; p < 2; p++) {
        CHECK_OK(index_search(index, &queries, procedures[p], 0, &found));
        CHECK_SAY(answers_equal(&found, &exact), "%d rows, k %u, procedure %d", (int)rows_count, k,
                  procedures[p]);
      }
      answers_free(&found);
      answers_free(&exact);
    }
    ann_index_free(index);
    vectors_free(&rows);
    vectors_free(&queries);
  }
}

static void refusals(void) {
  vectors rows = vectors_make(DATA_NORMAL, ANN_F32, 300, DIM, 9);
  vectors queries = vectors_make(DATA_NORMAL, ANN_F32, Q, DIM, 10);
  ann_index *index = index_build(ANN_METRIC_L2, &rows, NULL);
  answers found = answers_make(Q, K);
  const ann_matrix view = vectors_view(&queries);
  ann_results results = answers_view(&found);
#define BAD(which, change, wanted, words)                                               \
  do {                                                                                  \
    ann_search_params p = params_of(which, 64);                                         \
    change;                                                                             \
    REFUSED(ann_search_batch(index, &view, &p, &results, NULL, &error), wanted, words); \
  } while (0)
  const int32_t single = ANN_SEARCH_CAGRA_SINGLE_CTA, multi = ANN_SEARCH_CAGRA_MULTI_CTA;
  for (int32_t which = ANN_SEARCH_CAGRA; which <= multi; which++) {
    BAD(which, p.beam = K - 1, ANN_INVALID_ARGUMENT, "beam 9 10");
    BAD(which, p.beam = 1985, ANN_LIMIT, "beam 1985 1984");
    BAD(which, p.team_size = 3, ANN_INVALID_ARGUMENT, "team_size 3 32");
    BAD(which, p.team_size = 64, ANN_INVALID_ARGUMENT, "team_size 64 32");
    BAD(which, p.search_width = 65, ANN_LIMIT, "search_width 65 64");
    BAD(which, p.iterations_max = 4097, ANN_LIMIT, "iterations_max 4097 4096");
    BAD(which, p.hash_bits = 7, ANN_INVALID_ARGUMENT, "hash_bits 7 8 13");
    BAD(which, p.hash_bits = 14, ANN_LIMIT, "hash_bits 14 8 13");
    BAD(which, p.hash_reset = -2, ANN_INVALID_ARGUMENT, "hash_reset -2");
    BAD(which, p.compare = 3, ANN_INVALID_ARGUMENT, "compare 3");
    BAD(which, p.compare = -1, ANN_INVALID_ARGUMENT, "compare -1");
  }
  BAD(single, p.hash_bits = 8; p.hash_reset = 16, ANN_INVALID_ARGUMENT, "hash_bits 8 256");
  BAD(single, p.beam = 256; p.hash_bits = 8, ANN_INVALID_ARGUMENT, "hash_bits 8 256");
  BAD(multi, p.ctas_per_query = 65, ANN_LIMIT, "ctas_per_query 65 64");
  BAD(multi, p.beam = 1984; p.ctas_per_query = 3, ANN_LIMIT, "ctas_per_query 3 512");
  /* All of them open to whoever asks for another procedure. */
  ann_search_params ignored = params_of(ANN_SEARCH_BEST_FIRST, 64);
  ignored.team_size = 3;
  ignored.compare = 99;
  CHECK_OK(ann_search_batch(index, &view, &ignored, &results, NULL, NULL));
  answers many = answers_make(Q, 1985);
  const ann_search_params params = params_of(single, 0);
  ann_results too_many = answers_view(&many);
  REFUSED(ann_search_batch(index, &view, &params, &too_many, NULL, &error), ANN_LIMIT, "k 1985 1984");
  answers_free(&many);
  answers_free(&found);
  ann_index_free(index);
  vectors_free(&rows);
  vectors_free(&queries);
}

int main(void) {
  elements_and_metrics();
  stored_rows();
  effort_and_tables();
  parents_of_blocks();
  choice_rule();
  small_sets();
  refusals();
  return finish("cagra");
}
