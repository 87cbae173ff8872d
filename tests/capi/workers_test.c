/* Proves how many threads calls use: no more than `threads_max` and `threads`, by default as many as the process
 * may use, and one query none but the caller's, but where it measures what later calls use.
 *
 * The library keeps its workers when a call ends (core/base/execution.h), so that the threads that a process has
 * afterwards are the most that its calls used. Each case runs in a process of its own, which the library has not
 * entered before, and on the CPU: a driver's threads are not the library's. */
#define _GNU_SOURCE
#include <dirent.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "support.h"

/* Rows of some megabytes, which are read in pieces, also where a sanitizer makes them fewer. */
enum { ROWS = 20000, DIM = 96, QUERIES = 2000, K = 10 };

static vectors rows, queries;
static char folder[] = "/tmp/gannet-workers-XXXXXX";
static char path[sizeof folder + 16];

static int threads_now(void) {
  DIR *list = opendir("/proc/self/task");
  int count = 0;
  for (const struct dirent *entry; list && (entry = readdir(list));) count += entry->d_name[0] != '.';
  if (list) closedir(list);
  return count;
}

/* Leaves the calling thread `count` of the processors that it has now, or as many as there are. */
static void keep_processors(int count) {
  cpu_set_t all, kept;
  CPU_ZERO(&kept);
  CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
  for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&kept) < count; i++)
    if (CPU_ISSET(i, &all)) CPU_SET(i, &kept);
  CHECK(sched_setaffinity(0, sizeof kept, &kept) == 0);
}

/* What the library takes for the hardware's number here: a control group may allow less than the processors. */
static int hardware(void) {
  ann_device_info info = ANN_DEVICE_INFO_INIT;
  CHECK_OK(ann_device_get_info(ANN_DEVICE_CPU, &info, NULL));
  cpu_set_t set;
  CHECK(sched_getaffinity(0, sizeof set, &set) == 0);
  CHECK_SAY(info.compute_units >= 1 && info.compute_units <= (uint32_t)CPU_COUNT(&set),
            "%u units, %d processors", info.compute_units, CPU_COUNT(&set));
  return (int)info.compute_units;
}

/* --- Calls ------------------------------------------------------------------------------------------ */

enum {
  BUILD = 1,
  SEARCH = 2,
  ONE_QUERY = 4,
  EXACT = 8,
  KNN = 16,
  SAVE = 32,
  OPEN = 64,
  VERIFY = 128,
  CALLS = 255
};

static ann_index *built(const ann_context *context, uint32_t threads) {
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  shape.dim = DIM;
  ann_index *index = NULL;
  CHECK_OK(ann_index_create(context, &shape, &index, NULL));
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.device = ANN_DEVICE_CPU;
  params.threads = threads;
  const ann_matrix view = vectors_view(&rows);
  CHECK_OK(ann_build(index, &view, NULL, &params, NULL, NULL));
  return index;
}

static int32_t procedure = ANN_SEARCH_AUTO;

static void search(const ann_index *index, uint64_t count, int exact, uint32_t threads) {
  ann_search_params params = ANN_SEARCH_PARAMS_INIT;
  params.procedure = procedure;
  params.device = ANN_DEVICE_CPU;
  params.threads = threads;
  ann_matrix view = vectors_view(&queries);
  view.rows = count;
  answers found = answers_make(count, K);
  ann_results results = answers_view(&found);
  if (exact)
    CHECK_OK(ann_search_exact(index, &view, &params, &results, NULL, NULL));
  else
    CHECK_OK(ann_search_batch(index, &view, &params, &results, NULL, NULL));
  answers_free(&found);
}

/* Makes the calls with `threads`, all others with one thread; gives the threads that came. */
static int threads_of(int calls, const ann_context *context, uint32_t threads) {
  const int before = threads_now();
  ann_index *index = built(context, calls & BUILD ? threads : 1);
  if (calls & SEARCH) search(index, QUERIES, 0, threads);
  if (calls & ONE_QUERY) search(index, 1, 0, threads);
  if (calls & EXACT) search(index, QUERIES, 1, threads);
  if (calls & KNN) {
    ann_knn_params params = ANN_KNN_PARAMS_INIT;
    params.k = K;
    params.device = ANN_DEVICE_CPU;
    params.threads = threads;
    const ann_matrix view = vectors_view(&rows);
    uint32_t *lists = malloc(sizeof *lists * ROWS * K);
    CHECK_OK(ann_knn_graph(context, &view, &params, lists, NULL, NULL, NULL));
    free(lists);
  }
  if (calls & (SAVE | OPEN | VERIFY)) {
    ann_save_params params = ANN_SAVE_PARAMS_INIT;
    params.threads = calls & SAVE ? threads : 1;
    params.sync = ANN_OFF;
    CHECK_OK(ann_save(index, path, &params, NULL, NULL));
  }
  if (calls & (OPEN | VERIFY)) {
    ann_open_params params = ANN_OPEN_PARAMS_INIT;
    params.threads = calls & OPEN ? threads : 1;
    ann_index *opened = NULL;
    CHECK_OK(ann_open(context, path, &params, &opened, NULL, NULL));
    ann_index_free(opened);
  }
  ann_index_free(index);
  return threads_now() - before;
}

/* --- Cases ------------------------------------------------------------------------------------------ */

static void capped_by_context(void) {
  ann_context_params params = ANN_CONTEXT_PARAMS_INIT;
  params.threads_max = 1;
  ann_context *context = NULL;
  CHECK_OK(ann_context_create(&params, &context, NULL));
  CHECK_EQUAL(threads_of(CALLS, context, 0), 0);
  CHECK_EQUAL(threads_of(CALLS, context, 16), 0);
  ann_context_free(context);
  params.threads_max = 3;
  CHECK_OK(ann_context_create(&params, &context, NULL));
  CHECK_EQUAL(threads_of(CALLS, context, 16), 2);
  ann_context_free(context);
}

static void capped_by_parameters(void) {
  CHECK_EQUAL(threads_of(CALLS, NULL, 1), 0);
  CHECK_EQUAL(threads_of(CALLS, NULL, 3), 2);
}

static void on_one_processor(void) {
  keep_processors(1);
  CHECK_EQUAL(hardware(), 1);
  CHECK_EQUAL(threads_of(CALLS, NULL, 0), 0);
}

static void one_query(void) {
  CHECK_EQUAL(threads_of(ONE_QUERY, NULL, 0), 0);
  CHECK_EQUAL(threads_of(ONE_QUERY, NULL, 16), 0);
}

/* The first query by a procedure measures its curves, which all later calls use. */
static void first_of_its_procedure(void) {
  procedure = ANN_SEARCH_CAGRA_SINGLE_CTA;
  CHECK_EQUAL(threads_of(ONE_QUERY, NULL, 1), 0);
  CHECK_EQUAL(threads_of(ONE_QUERY, NULL, 3), 2);
}

/* Each call by itself takes what there is. */
static int alone;
static void on_two_processors(void) {
  keep_processors(2);
  const int others = hardware() - 1;
  CHECK_SAY(threads_of(alone, NULL, 0) == others, "call %d does not use %d threads beside the caller's",
            alone, others);
}

/* Runs `body` in a child; its failed checks are counted here. */
static void in_child(const char *what, void (*body)(void)) {
  fflush(NULL);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    checks_failed = 0;
    body();
    fflush(NULL);
    _exit(checks_failed != 0);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK_SAY(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s: checks failed", what);
}

int main(void) {
  CHECK(mkdtemp(folder) != NULL);
  snprintf(path, sizeof path, "%s/index", folder);
  rows = vectors_make(DATA_CLUSTERED, ANN_F32, ROWS / (uint64_t)test_scale(), DIM, 1);
  queries = vectors_make(DATA_CLUSTERED, ANN_F32, QUERIES, DIM, 2);
  in_child("a cap of the context", capped_by_context);
  in_child("a cap of the parameters", capped_by_parameters);
  in_child("one processor", on_one_processor);
  in_child("one query", one_query);
  in_child("the first query by a procedure", first_of_its_procedure);
  const int calls[] = {BUILD, SEARCH, EXACT, KNN, SAVE, OPEN};
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    alone = calls[i];
    in_child("two processors", on_two_processors);
  }
  remove(path);
  rmdir(folder);
  vectors_free(&rows);
  vectors_free(&queries);
  return finish("workers");
}
