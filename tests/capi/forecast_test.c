/* Proves what the header says of forecasts: what a search promises and costs is told before it, and again with
 * its results; the promise is kept, AUTO never promises less than was asked for, and a search that nothing has
 * measured promises nothing. */
#include <stdlib.h>

#include "ann.h"
#include "check.h"
#include "refuse.h"
#include "support.h"

enum { N = 12000, Q = 2000, DIM = 24, K = 10 };

static ann_search_forecast forecast(const ann_index *index, uint64_t queries, uint32_t k,
                                    const ann_search_params *params) {
  ann_search_forecast found = ANN_SEARCH_FORECAST_INIT;
  CHECK_OK(ann_search_estimate(index, queries, k, params, &found, NULL));
  return found;
}

/* Searches; checks that the results say what the forecast did, and that the promise is kept. */
static ann_results search(const ann_index *index, const vectors *queries, const answers *exact,
                          const ann_search_params *params, answers *found) {
  const ann_matrix view = vectors_view(queries);
  ann_results results = answers_view(found);
  results.warps_per_query = 99; /* written, not read */
  const ann_search_forecast told = forecast(index, view.rows, found->k, params);
  CHECK_OK(ann_search_batch(index, &view, params, &results, NULL, NULL));
  CHECK(results.procedure == told.procedure);
  CHECK(results.recall == told.recall);
  CHECK(results.warps_per_query == told.warps_per_query);
  CHECK((results.warps_per_query != 0) == (results.procedure == ANN_SEARCH_TWO_LISTS));
  const double places = (double)view.rows * found->k;
  const double recall = 1 - (double)answers_missed(exact, found) / places;
  CHECK_SAY(recall >= results.recall - 0.01, "procedure %d promised %.4f, got %.4f", results.procedure,
            (double)results.recall, recall);
  return results;
}

static void promises(void) {
  vectors rows = vectors_make(DATA_NORMAL, ANN_F32, N, DIM, 1);
  vectors queries = vectors_make(DATA_NORMAL, ANN_F32, Q, DIM, 2);
  ann_index *index = index_build(ANN_METRIC_L2, &rows, NULL);
  answers exact = answers_make(Q, K), found = answers_make(Q, K);
  CHECK_OK(index_search(index, &queries, ANN_SEARCH_EXACT, 0, &exact));
  ann_search_params params = ANN_SEARCH_PARAMS_INIT;
  double last = 0;
  for (int step = 0; step < 4; step++) {
    params.recall = (float[]){0.8f, 0.9f, 0.95f, 0.99f}[step];
    const ann_results results = search(index, &queries, &exact, &params, &found);
    CHECK_SAY(results.recall >= params.recall - 1e-4f, "asked for %.3f, promised %.4f", (double)params.recall,
              (double)results.recall);
    const ann_search_forecast told = forecast(index, Q, K, &params);
    CHECK(told.distances >= last && told.distances <= N + 2 * K + 16);
    last = told.distances;
    const double counted = (double)results.distance_count / Q;
    CHECK_SAY(told.distances > counted / 4 && told.distances < counted * 4,
              "%.0f distances told, %.0f counted", told.distances, counted);
  }
  for (int p = 0; p < 2; p++) {
    params.procedure = p == 0 ? ANN_SEARCH_BEST_FIRST : ANN_SEARCH_CAGRA_SINGLE_CTA;
    params.recall = 0.9f;
    const ann_results results = search(index, &queries, &exact, &params, &found);
    CHECK(results.procedure == params.procedure);
    CHECK(results.recall >= 0.9f - 1e-4f);
  }
  /* A beam of the caller promises what it was found to give: more for a longer one, and never all. */
  params.procedure = ANN_SEARCH_BEST_FIRST;
  params.recall = 0;
  float before = 0;
  for (params.beam = 16; params.beam <= 1024; params.beam *= 4) {
    const ann_results results = search(index, &queries, &exact, &params, &found);
    CHECK(results.recall >= before);
    before = results.recall;
  }
  params = (ann_search_params)ANN_SEARCH_PARAMS_INIT;
  params.procedure = ANN_SEARCH_EXACT;
  const ann_results whole = search(index, &queries, &exact, &params, &found);
  CHECK(whole.procedure == ANN_SEARCH_EXACT && whole.recall == 1);
  CHECK(forecast(index, Q, K, &params).distances == N);
  CHECK(forecast(index, Q, K, &params).expansions == 0);
  answers_free(&exact);
  answers_free(&found);
  ann_index_free(index);
  vectors_free(&rows);
  vectors_free(&queries);
}

static void without_calibration(void) {
  vectors rows = vectors_make(DATA_NORMAL, ANN_F32, 2000, DIM, 3);
  ann_build_params build = ANN_BUILD_PARAMS_INIT;
  build.calibrate = ANN_OFF;
  ann_index *index = index_build(ANN_METRIC_L2, &rows, &build);
  ann_search_params params = ANN_SEARCH_PARAMS_INIT;
  params.beam = 64;
  const ann_search_forecast told = forecast(index, 10, K, &params);
  CHECK(told.procedure == ANN_SEARCH_BEST_FIRST);
  CHECK(told.recall == 0);
  CHECK(told.distances > 0);
  ann_index_free(index);
  build.graph = ANN_GRAPH_NONE;
  index = index_build(ANN_METRIC_L2, &rows, &build);
  CHECK(forecast(index, 10, K, NULL).procedure == ANN_SEARCH_EXACT);
  CHECK(forecast(index, 10, K, NULL).recall == 1);
  ann_index_free(index);
  vectors_free(&rows);
}

/* Few rows are calibrated for few answers. Of more nothing is promised to those who name a walk, and AUTO compares all
 * rows. */
static void more_than_calibrated(void) {
  vectors rows = vectors_make(DATA_NORMAL, ANN_F32, 250, DIM, 9);
  ann_index *index = index_build(ANN_METRIC_L2, &rows, NULL);
  ann_search_params params = ANN_SEARCH_PARAMS_INIT;
  params.device = ANN_DEVICE_CPU;
  params.recall = 0.9f;
  CHECK_EQUAL(forecast(index, Q, 30, &params).procedure, ANN_SEARCH_EXACT);
  const int32_t walks[] = {ANN_SEARCH_BEST_FIRST, ANN_SEARCH_SLACK, ANN_SEARCH_CAGRA_SINGLE_CTA};
  for (int w = 0; w < 3; w++) {
    params.procedure = walks[w];
    const ann_search_forecast of_ten = forecast(index, Q, 10, &params);
    const int is_known = walks[w] != ANN_SEARCH_CAGRA_SINGLE_CTA; /* whose own calibration wants more rows */
    CHECK_SAY((of_ten.recall > 0.8f) == is_known, "procedure %d promises %.3f of ten", walks[w],
              (double)of_ten.recall);
    const ann_search_forecast told = forecast(index, Q, 30, &params);
    CHECK_EQUAL(told.procedure, walks[w]);
    CHECK_SAY(told.recall == 0, "procedure %d promises %.3f of 30 of 250", walks[w], (double)told.recall);
  }
  params.procedure = ANN_SEARCH_BEST_FIRST;
  params.beam = 120; /* of the caller */
  CHECK(forecast(index, Q, 10, &params).recall > 0.5f);
  CHECK(forecast(index, Q, 30, &params).recall == 0);
  ann_index_free(index);
  vectors_free(&rows);
}

/* By inner product few rows stand badly for queries that are not given: half of the miss is aimed at. */
static void few_by_product(void) {
  vectors rows = vectors_make(DATA_NORMAL, ANN_F32, 4000, DIM, 7);
  vectors queries = vectors_make(DATA_NORMAL, ANN_F32, 1000, DIM, 8);
  const ann_matrix given = vectors_view(&queries);
  for (int is_given = 0; is_given < 2; is_given++) {
    ann_build_params build = ANN_BUILD_PARAMS_INIT;
    if (is_given) build.calibration = &given;
    ann_index *index = index_build(ANN_METRIC_INNER_PRODUCT, &rows, &build);
    double promised = 0;
    for (int step = 0; step < 3; step++) {
      ann_search_params params = ANN_SEARCH_PARAMS_INIT;
      params.device = ANN_DEVICE_CPU;
      params.recall = (float[]){0.8f, 0.9f, 0.95f}[step];
      const double aim = is_given ? params.recall : (1 + params.recall) / 2;
      const ann_search_forecast told = forecast(index, 1, K, &params);
      CHECK_SAY(told.recall >= aim - 1e-4, "asked for %.2f, promised %.4f, not %.4f", (double)params.recall,
                (double)told.recall, aim);
      promised += told.recall;
    }
    if (is_given) CHECK_SAY(promised < 2.85, "as much is aimed at where queries are given: %.3f", promised);
    ann_index_free(index);
  }
  vectors_free(&rows);
  vectors_free(&queries);
}

/* Few given queries that miss nothing say little of those to come. */
static void few_given(void) {
  vectors rows = vectors_make(DATA_NORMAL, ANN_F32, 3000, DIM, 5);
  vectors queries = vectors_make(DATA_NORMAL, ANN_F32, 400, DIM, 6);
  const uint64_t counts[] = {64, 100, 299, 300, 400};
  for (int i = 0; i < 5; i++) {
    ann_matrix given = vectors_view(&queries);
    given.rows = counts[i];
    ann_build_params build = ANN_BUILD_PARAMS_INIT;
    build.calibration = &given;
    ann_index *index = index_build(ANN_METRIC_L2, &rows, &build);
    for (uint32_t k = 1; k <= 10; k += 9) {
      ann_search_params params = ANN_SEARCH_PARAMS_INIT;
      params.device = ANN_DEVICE_CPU;
      params.beam = 1000; /* a third of the rows */
      const float promised = forecast(index, 1, k, &params).recall;
      const double most = counts[i] < 300 ? 1.01 - 3.0 / (double)counts[i] : 1;
      CHECK_SAY(promised <= most + 0.0015 && promised >= most - 0.003,
                "%llu given, k %u: %g is promised, not %g", (unsigned long long)counts[i], k,
                (double)promised, most);
      params.beam = 0;
      params.recall = (float)most - 0.004f;
      CHECK(forecast(index, 1, k, &params).recall >= (float)most - 0.005f);
      if (counts[i] > 100) continue;
      params.recall = 0.999f;
      CHECK_EQUAL(forecast(index, 1, k, &params).procedure, ANN_SEARCH_EXACT);
    }
    ann_index_free(index);
  }
  vectors_free(&rows);
  vectors_free(&queries);
}

static void refusals(void) {
  vectors rows = vectors_make(DATA_NORMAL, ANN_F32, 300, DIM, 4);
  ann_index *index = index_build(ANN_METRIC_L2, &rows, NULL);
  ann_search_forecast out = ANN_SEARCH_FORECAST_INIT;
  ann_search_params params = ANN_SEARCH_PARAMS_INIT;
  REFUSED(ann_search_estimate(index, 1, 0, NULL, &out, &error), ANN_INVALID_ARGUMENT, "k");
  REFUSED(ann_search_estimate(index, 1, 1, NULL, NULL, &error), ANN_INVALID_ARGUMENT, "out");
  REFUSED(ann_search_estimate(NULL, 1, 1, NULL, &out, &error), ANN_INVALID_ARGUMENT, "index");
  params.procedure = 1000;
  REFUSED(ann_search_estimate(index, 1, 1, &params, &out, &error), ANN_INVALID_ARGUMENT, "params.procedure");
  params = (ann_search_params)ANN_SEARCH_PARAMS_INIT;
  params.recall = 2;
  REFUSED(ann_search_estimate(index, 1, 1, &params, &out, &error), ANN_INVALID_ARGUMENT, "recall");
  params = (ann_search_params)ANN_SEARCH_PARAMS_INIT;
  params.beam = ANN_BEAM_MAX + 1;
  REFUSED(ann_search_estimate(index, 1, 1, &params, &out, &error), ANN_LIMIT, "params.beam");
  params = (ann_search_params)ANN_SEARCH_PARAMS_INIT;
  params.device = ANN_DEVICE_CPU; /* which has no streams */
  params.stream = &params;
  REFUSED(ann_search_estimate(index, 1, 1, &params, &out, &error), ANN_INVALID_ARGUMENT, "params.stream");
  ann_index_free(index);
  vectors_free(&rows);
}

int main(void) {
  promises();
  without_calibration();
  more_than_calibrated();
  few_by_product();
  few_given();
  refusals();
  return finish("forecast");
}
