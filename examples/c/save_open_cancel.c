/* save_open_cancel.c: what a program does around its searches, in C11: a build that other threads watch
 * and cancel, a file, and one index searched from several threads.
 *
 *   save_open_cancel_c                  keeps nothing
 *   save_open_cancel_c INDEX.gannet     keeps the file
 *
 *   cc -std=c11 save_open_cancel.c -lgannet -lpthread
 *
 * Ctrl-C cancels whatever runs.
 */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ann.h"

enum { ROWS = 20000, DIM = 48, QUERIES = 400, K = 10, THREADS = 4 };

static ann_monitor *monitor; /* of the call that runs */

static void fail(ann_status status, const ann_error *error) {
  fprintf(stderr, "%s: %s\n", ann_status_name(status), error->message);
  exit(1);
}

static void check(ann_status status, const ann_error *error) {
  if (status != ANN_OK) fail(status, error);
}

/* ann_monitor_cancel is one of the few functions that a signal handler may call. */
static void on_interrupt(int signal_number) {
  (void)signal_number;
  ann_monitor_cancel(monitor);
}

static float *random_values(size_t count, uint32_t seed) {
  float *values = malloc(count * sizeof *values);
  if (values == NULL) {
    fprintf(stderr, "out of memory\n");
    exit(1);
  }
  for (size_t i = 0; i < count; ++i) {
    seed = seed * 1664525u + 1013904223u;
    values[i] = (float)(seed >> 8) / 16777216.0f;
  }
  return values;
}

static ann_matrix view(const float *values, uint64_t rows) {
  ann_matrix matrix = ANN_MATRIX_INIT;
  matrix.element = ANN_F32;
  matrix.data = values;
  matrix.rows = rows;
  matrix.dim = DIM;
  return matrix;
}

/* --- A build in one thread, watched by another ------------------------------------------------- */

typedef struct build {
  ann_index *index;
  ann_matrix rows;
  ann_status status;
  ann_error error;
  atomic_int done; /* the rest is this thread's again */
} build;

static void *run_build(void *argument) {
  build *job = argument;
  job->status = ann_build(job->index, &job->rows, NULL, NULL, monitor, &job->error);
  atomic_store(&job->done, 1);
  return NULL;
}

/* Builds while this thread prints the progress; cancels once `cancel_at` of the work is done. */
static ann_status build_watched(build *job, double cancel_at) {
  pthread_t thread;
  atomic_init(&job->done, 0);
  ann_progress progress = ANN_PROGRESS_INIT;
  const struct timespec pause = {0, 5 * 1000 * 1000};
  if (pthread_create(&thread, NULL, run_build, job) != 0) {
    fprintf(stderr, "no thread\n");
    exit(1);
  }
  for (; !atomic_load(&job->done); nanosleep(&pause, NULL)) {
    ann_monitor_progress(monitor, &progress, NULL);
    if (progress.fraction >= cancel_at) ann_monitor_cancel(monitor); /* it returns within 100 ms */
  }
  pthread_join(thread, NULL);
  printf("build: %s at %.0f %%, in \"%s\"\n", ann_status_name(job->status), 100 * progress.fraction,
         progress.phase);
  return job->status;
}

/* --- One index, several threads ---------------------------------------------------------------- */

typedef struct share {
  const ann_index *index;
  ann_matrix queries;
  uint64_t *ids;
  ann_status status;
  ann_error error;
} share;

/* An index is searched from any number of threads at once; each call uses one here. */
static void *run_search(void *argument) {
  share *job = argument;
  ann_search_params params = ANN_SEARCH_PARAMS_INIT;
  params.threads = 1;
  params.recall = 0.95f;
  ann_results results = ANN_RESULTS_INIT;
  results.k = K;
  results.rows = job->queries.rows;
  results.ids = job->ids;
  job->status = ann_search_batch(job->index, &job->queries, &params, &results, NULL, &job->error);
  return NULL;
}

static void search_in_threads(const ann_index *index, const float *queries, uint64_t *ids) {
  pthread_t threads[THREADS];
  share shares[THREADS] = {0};
  const uint64_t each = QUERIES / THREADS;
  for (int i = 0; i < THREADS; ++i) {
    shares[i].index = index;
    shares[i].queries = view(queries + i * each * DIM, each);
    shares[i].ids = ids + i * each * K;
    shares[i].error.struct_size = sizeof shares[i].error;
    if (pthread_create(&threads[i], NULL, run_search, &shares[i]) != 0) {
      fprintf(stderr, "no thread\n");
      exit(1);
    }
  }
  for (int i = 0; i < THREADS; ++i) {
    pthread_join(threads[i], NULL);
    check(shares[i].status, &shares[i].error);
  }
}

int main(int argc, char **argv) {
  char temporary[] = "/tmp/gannet-example-XXXXXX";
  const char *path = argc > 1 ? argv[1] : temporary;
  if (argc == 1) {
    const int file = mkstemp(temporary);
    if (file < 0) {
      perror("mkstemp");
      return 1;
    }
    close(file);
  }
  ann_error error = ANN_ERROR_INIT;
  check(ann_monitor_create(&monitor, &error), &error);
  signal(SIGINT, on_interrupt);

  float *rows = random_values((size_t)ROWS * DIM, 1);
  float *queries = random_values((size_t)QUERIES * DIM, 2);
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  shape.dim = DIM;
  build job = {.rows = view(rows, ROWS), .error = ANN_ERROR_INIT};
  check(ann_index_create(NULL, &shape, &job.index, &error), &error);

  /* After a cancelled build the index is as empty as before and can be built again. */
  if (build_watched(&job, 0.05) != ANN_CANCELLED && job.status != ANN_OK) fail(job.status, &job.error);
  if (job.status == ANN_CANCELLED) {
    ann_monitor_reset(monitor); /* or every later call is cancelled, too */
    if (build_watched(&job, 2) != ANN_OK) fail(job.status, &job.error);
  }

  /* At every moment `path` is the old file or the new one, whole. */
  check(ann_save(job.index, path, NULL, monitor, &error), &error);
  ann_file_description file = ANN_FILE_DESCRIPTION_INIT;
  check(ann_file_info(path, &file, &error), &error);
  printf("saved: %llu rows of %u columns, %llu bytes\n", (unsigned long long)file.rows, file.dim,
         (unsigned long long)file.file_bytes);

  /* Every byte is checked; a damaged file is refused. A file of another shape is, too. */
  ann_open_params expected = ANN_OPEN_PARAMS_INIT;
  expected.expect_dim = DIM;
  ann_index *opened = NULL;
  check(ann_open(NULL, path, &expected, &opened, monitor, &error), &error);

  /* The opened index answers as the one that was saved, from however many threads. */
  uint64_t *from_built = malloc(sizeof(uint64_t) * QUERIES * K);
  uint64_t *from_opened = malloc(sizeof(uint64_t) * QUERIES * K);
  if (from_built == NULL || from_opened == NULL) return 1;
  search_in_threads(job.index, queries, from_built);
  search_in_threads(opened, queries, from_opened);
  const int same = memcmp(from_built, from_opened, sizeof(uint64_t) * QUERIES * K) == 0;
  printf("%d threads searched both: %s\n", THREADS, same ? "equal answers" : "OTHER ANSWERS");

  /* A deadline: what is not done by then ends with ANN_DEADLINE. */
  ann_monitor_set_deadline(monitor, 1);
  ann_matrix all = view(queries, QUERIES);
  ann_results results = ANN_RESULTS_INIT;
  results.k = K;
  results.rows = QUERIES;
  results.ids = from_built;
  const ann_status late = ann_search_exact(opened, &all, NULL, &results, monitor, &error);
  printf("a search with a nanosecond to go: %s\n", ann_status_name(late));

  ann_index_free(opened);
  ann_index_free(job.index);
  ann_monitor_free(monitor);
  if (argc == 1) unlink(path);
  free(rows);
  free(queries);
  free(from_built);
  free(from_opened);
  return same && late == ANN_DEADLINE ? 0 : 1;
}
