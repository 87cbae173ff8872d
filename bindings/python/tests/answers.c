/* answers.c: what the C library answers, to compare the package with: bits, and time.
 *
 *   answers INDEX QUERIES ROWS DIM K OUT [exact]    writes ids, [ROWS, K] of 8 bytes, and distances, of 4, to OUT
 *   answers INDEX QUERIES ROWS DIM K time ROUNDS    prints the least processor seconds of one query, over ROUNDS
 *                                                   rounds of 1,000 queries one by one, and of all in one call
 *
 * QUERIES holds [ROWS, DIM] floats. */
#include <ann.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now); /* other programs do not count */
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int fail(const char *what) {
  fprintf(stderr, "answers: %s\n", what);
  return 1;
}

static int measure(const ann_index *index, ann_matrix all, ann_results results, int rounds) {
  double one = 1e9, batch = 1e9;
  ann_matrix query = all;
  ann_results found = results;
  query.rows = found.rows = 1;
  for (int round = 0; round < rounds; ++round) {
    double begun = seconds();
    for (uint64_t i = 0; i < 1000; ++i) {
      query.data = (const float *)all.data + i % all.rows * all.dim;
      if (ann_search_batch(index, &query, NULL, &found, NULL, NULL) != ANN_OK) return fail("a search fails");
    }
    double taken = (seconds() - begun) / 1000;
    if (taken < one) one = taken;
    begun = seconds();
    if (ann_search_batch(index, &all, NULL, &results, NULL, NULL) != ANN_OK) return fail("a search fails");
    taken = seconds() - begun;
    if (taken < batch) batch = taken;
  }
  printf("%.9f %.9f\n", one, batch);
  return 0;
}

int main(int count, char **words) {
  if (count < 7) return fail("expected INDEX QUERIES ROWS DIM K OUT");
  ann_matrix queries = ANN_MATRIX_INIT;
  ann_results results = ANN_RESULTS_INIT;
  queries.rows = results.rows = strtoull(words[3], NULL, 10);
  queries.dim = (uint32_t)strtoul(words[4], NULL, 10);
  queries.element = ANN_F32;
  results.k = (uint32_t)strtoul(words[5], NULL, 10);
  size_t values = (size_t)queries.rows * queries.dim, places = (size_t)results.rows * results.k;
  float *data = malloc(values * sizeof *data);
  results.ids = malloc(places * sizeof *results.ids);
  results.distances = malloc(places * sizeof *results.distances);
  if (data == NULL || results.ids == NULL || results.distances == NULL) return fail("no memory");
  FILE *file = fopen(words[2], "rb");
  if (file == NULL || fread(data, sizeof *data, values, file) != values)
    return fail("the queries cannot be read");
  fclose(file);
  queries.data = data;
  ann_index *index;
  ann_error error = ANN_ERROR_INIT;
  if (ann_open(NULL, words[1], NULL, &index, NULL, &error) != ANN_OK) return fail(error.message);
  int status = 0;
  if (count > 7 && strcmp(words[6], "time") == 0) {
    status = measure(index, queries, results, atoi(words[7]));
  } else {
    int exact = count > 7 && strcmp(words[7], "exact") == 0;
    ann_status answer =
        (exact ? ann_search_exact : ann_search_batch)(index, &queries, NULL, &results, NULL, &error);
    if (answer != ANN_OK) return fail(error.message);
    file = fopen(words[6], "wb");
    if (file == NULL || fwrite(results.ids, sizeof *results.ids, places, file) != places ||
        fwrite(results.distances, sizeof *results.distances, places, file) != places || fclose(file) != 0) {
      return fail("the answers cannot be written");
    }
  }
  ann_index_free(index);
  free(data);
  free(results.ids);
  free(results.distances);
  return status;
}
