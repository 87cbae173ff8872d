// The ten tasks of README.md in C.
#include <ann.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 20000, DIM = 32, QUERIES = 200, K = 10 };

static ann_error error = ANN_ERROR_INIT;

static void check(ann_status status, const char *what) {
  if (status == ANN_OK) return;
  fprintf(stderr, "%s: %s\n", what, error.message);
  exit(1);
}

static float *random_values(size_t count, uint32_t seed) {
  float *values = malloc(count * sizeof *values);
  for (size_t i = 0; i < count; ++i) {
    seed = seed * 1664525u + 1013904223u;
    values[i] = (float)(seed >> 8) / (1 << 24);
  }
  return values;
}

static ann_matrix matrix(const void *data, uint64_t rows, uint32_t dim) {
  ann_matrix out = ANN_MATRIX_INIT;
  out.data = data;
  out.rows = rows;
  out.dim = dim;
  out.element = ANN_F32;
  return out;
}

// Ids of the K nearest of each query; exact, if `recall` is 1. `states` says which hold NaN, or is NULL.
static ann_status search(const ann_index *index, ann_matrix queries, float recall, uint64_t *ids,
                         ann_status *states) {
  float *distances = malloc(queries.rows * K * sizeof *distances);
  ann_search_params params = ANN_SEARCH_PARAMS_INIT;
  params.recall = recall;
  ann_results found = ANN_RESULTS_INIT;
  found.ids = ids;
  found.distances = distances;
  found.status = states;
  found.rows = queries.rows;
  found.k = K;
  const ann_status status = recall == 1 ? ann_search_exact(index, &queries, &params, &found, NULL, &error)
                                        : ann_search_batch(index, &queries, &params, &found, NULL, &error);
  free(distances);
  return status;
}

static double share(const uint64_t *found, const uint64_t *truth) {
  int hits = 0;
  for (int i = 0; i < QUERIES * K; ++i) {
    for (int j = i / K * K; j < i / K * K + K; ++j) hits += found[i] == truth[j];
  }
  return hits / (double)(QUERIES * K);
}

static ann_index *build(const ann_index_params *shape, ann_matrix rows, const uint64_t *ids) {
  ann_index *index;
  check(ann_index_create(NULL, shape, &index, &error), "create");
  check(ann_build(index, &rows, ids, NULL, NULL, &error), "build");
  return index;
}

struct part {
  const ann_index *index;
  ann_matrix queries;
  uint64_t ids[K];
};

static void *search_one(void *data) {
  struct part *part = data;
  return search(part->index, part->queries, 0, part->ids, NULL) == ANN_OK ? NULL : part;
}

int main(void) {
  // 1: it is there
  printf("%s\n", ann_build_info());

  // 2: the ten nearest of some rows
  float *data = random_values((size_t)ROWS * DIM, 1), *asked = random_values(QUERIES * DIM, 2);
  const ann_matrix rows = matrix(data, ROWS, DIM), queries = matrix(asked, QUERIES, DIM);
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  shape.dim = DIM;
  ann_index *index = build(&shape, rows, NULL);
  static uint64_t ids[QUERIES * K], better[QUERIES * K], truth[QUERIES * K], again[QUERIES * K];
  check(search(index, queries, 0, ids, NULL), "search");

  // 3: how many of the true neighbours are found, and more of them
  check(search(index, queries, 1, truth, NULL), "exact");
  check(search(index, queries, 0.99f, better, NULL), "search");
  printf("recall %.3f, asked for .99: %.3f\n", share(ids, truth), share(better, truth));
  if (share(ids, truth) < 0.93) return 1;

  // 4: saved here, opened elsewhere
  char path[] = "/tmp/pointsXXXXXX";
  if (mkstemp(path) < 0) return 1;
  check(ann_save(index, path, NULL, NULL, &error), "save");
  ann_index *opened;
  check(ann_open(NULL, path, NULL, &opened, NULL, &error), "open");
  check(search(opened, queries, 0, again, NULL), "search");
  if (share(again, ids) != 1) return 1;
  remove(path);

  // 5: cosine, and half the memory
  ann_index_params halves_shape = shape;
  halves_shape.metric = ANN_METRIC_COSINE;
  halves_shape.element = ANN_F16;
  ann_index *halves = build(&halves_shape, rows, NULL);
  check(search(halves, matrix(data + 7 * DIM, 1, DIM), 0, again, NULL), "search");
  if (again[0] != 7) return 1;

  // 6: names of rows
  uint64_t *names = malloc(ROWS * sizeof *names);
  for (uint64_t i = 0; i < ROWS; ++i) names[i] = 1000000000000 + i;
  ann_index *named = build(&shape, rows, names);
  check(search(named, matrix(data + 7 * DIM, 1, DIM), 0, again, NULL), "search");
  float vector[DIM];
  int32_t there;
  check(ann_index_get(named, again[0], vector, sizeof vector, &there, &error), "get");
  if (again[0] != names[7] || !there || vector[0] != data[7 * DIM]) return 1;

  // 7: what a build takes, beforehand
  ann_index_params large = shape;
  large.dim = 768;
  ann_plan plan = ANN_PLAN_INIT;
  check(ann_estimate(&large, 1000000, ANN_F32, NULL, &plan, &error), "estimate");
  printf("%llu MiB at most, about %.0f s\n", (unsigned long long)plan.peak_bytes >> 20, plan.seconds);

  // 8: a long build, watched and stopped
  ann_monitor *monitor;
  check(ann_monitor_create(&monitor, &error), "monitor");
  ann_monitor_set_deadline(monitor, 300000000);
  float *many = random_values((size_t)200000 * 64, 3);
  const ann_matrix many_rows = matrix(many, 200000, 64);
  ann_index_params wide = shape;
  wide.dim = 64;
  ann_index *stopped;
  check(ann_index_create(NULL, &wide, &stopped, &error), "create");
  if (ann_build(stopped, &many_rows, NULL, NULL, monitor, &error) != ANN_DEADLINE) return 1;
  printf("%s\n", error.message);

  // 9: searches from many threads
  static struct part parts[QUERIES];
  pthread_t threads[8];
  for (int first = 0; first < QUERIES; first += 8) {
    for (int i = 0; i < 8; ++i) {
      struct part *part = &parts[first + i];
      part->index = index;
      part->queries = matrix(asked + (size_t)(first + i) * DIM, 1, DIM);
      if (pthread_create(&threads[i], NULL, search_one, part) != 0) return 1;
    }
    for (int i = 0; i < 8; ++i) {
      void *failed;
      if (pthread_join(threads[i], &failed) != 0 || failed) return 1;
    }
  }

  // 10: wrong input says what is wrong
  asked[0] = NAN;
  ann_status state;
  check(search(index, matrix(asked, 1, DIM), 0, again, &state), "search");
  if (state != ANN_NOT_FINITE) return 1;
  if (search(index, matrix(data, 1, DIM - 1), 0, again, NULL) == ANN_OK) return 1;
  printf("%s\n", error.message);

  ann_index *indexes[] = {index, opened, halves, named, stopped};
  for (int i = 0; i < 5; ++i) ann_index_free(indexes[i]);
  ann_monitor_free(monitor);
  free(data), free(asked), free(names), free(many);
  printf("tasks: C: 10\n");
  return 0;
}
