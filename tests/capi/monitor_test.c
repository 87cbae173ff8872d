/* Proves section 6 of the header: progress that never falls, cancelling from another thread and from a
 * signal handler, deadlines, and calls that work again afterwards. How soon calls end is judged by
 * fault.cancel, which counts work and looks at no clock; here a busy machine may hold up anything. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include "ann.h"
#include "check.h"
#include "refuse.h"
#include "support.h"

enum { DIM = 32 };
static vectors rows;
static ann_monitor *monitor;

/* A long call, on its own thread. */
typedef enum { BUILD_DESCENT, BUILD_EXACT, BUILD_CELLS, BUILD_WALK, SEARCH, SEARCH_EXACT, KNN, WORKS } work;
static const char *const work_names[WORKS] = {"build, NN-Descent",  "build, exact", "build, cells",
                                              "build, calibration", "search",       "exact search",
                                              "k-NN graph"};

typedef struct job {
  work kind;
  uint32_t threads;
  const ann_index *index; /* to search */
  ann_status status;
  int done;
  ann_index *made;
} job;

static void run(job *task) {
  const ann_matrix view = vectors_view(&rows);
  task->made = NULL;
  if (task->kind <= BUILD_WALK) {
    ann_build_params params = ANN_BUILD_PARAMS_INIT;
    params.threads = task->threads;
    params.knn = task->kind == BUILD_EXACT   ? ANN_KNN_EXACT
                 : task->kind == BUILD_CELLS ? ANN_KNN_CELLS
                                             : ANN_KNN_NN_DESCENT;
    if (task->kind == BUILD_WALK) {
      params.iterations = 1;
      params.samples = 2;
      params.calibration = &view; /* very many calibration queries */
    }
    task->made = index_make(DIM, ANN_METRIC_L2, ANN_ELEMENT_AUTO);
    task->status = ann_build(task->made, &view, NULL, &params, monitor, NULL);
  } else if (task->kind == KNN) {
    uint32_t *lists = malloc(rows.rows * 10 * 4);
    ann_knn_params params = ANN_KNN_PARAMS_INIT;
    params.k = 10;
    params.method = ANN_KNN_EXACT;
    params.threads = task->threads;
    task->status = ann_knn_graph(NULL, &view, &params, lists, NULL, monitor, NULL);
    free(lists);
  } else {
    answers found = answers_make(rows.rows, 10);
    ann_results results = answers_view(&found);
    ann_search_params params = ANN_SEARCH_PARAMS_INIT;
    params.threads = task->threads;
    params.beam = 1000;
    if (task->kind == SEARCH_EXACT)
      task->status = ann_search_exact(task->index, &view, &params, &results, monitor, NULL);
    else
      task->status = ann_search_batch(task->index, &view, &params, &results, monitor, NULL);
    answers_free(&found);
  }
}

static void *run_thread(void *argument) {
  job *task = argument;
  run(task);
  __atomic_store_n(&task->done, 1, __ATOMIC_RELEASE);
  return NULL;
}

static void arguments(void) {
  ann_progress progress = ANN_PROGRESS_INIT;
  REFUSED(ann_monitor_create(NULL, &error), ANN_INVALID_ARGUMENT, "out");
  REFUSED(ann_monitor_progress(NULL, &progress, &error), ANN_INVALID_ARGUMENT, "monitor");
  REFUSED(ann_monitor_progress(monitor, NULL, &error), ANN_INVALID_ARGUMENT, "out");
  ann_monitor_free(NULL);
  ann_monitor_cancel(NULL);
  ann_monitor_reset(NULL);
  ann_monitor_set_deadline(NULL, 1);
  CHECK_OK(ann_monitor_progress(monitor, &progress, NULL));
  CHECK(progress.step == 0 && progress.fraction == 0 && progress.phase != NULL);
}

/* What is cancelled or too late before it starts does nothing. */
static void before_the_call(const ann_index *index) {
  for (int kind = 0; kind < WORKS; kind++)
    for (int late = 0; late < 2; late++) {
      job task = {(work)kind, 2, index, 0, 0, NULL};
      ann_monitor_reset(monitor);
      if (late) {
        ann_monitor_set_deadline(monitor, 1);
        sleep_seconds(0.001);
      } else {
        ann_monitor_cancel(monitor);
      }
      run(&task);
      CHECK_SAY(task.status == (late ? ANN_DEADLINE : ANN_CANCELLED), "%s: %s", work_names[kind],
                ann_status_name(task.status));
      ann_progress reached = ANN_PROGRESS_INIT;
      CHECK_OK(ann_monitor_progress(monitor, &reached, NULL));
      CHECK_SAY(reached.step <= 1 && reached.fraction == 0, "%s went on to %.3f (%s)", work_names[kind],
                reached.fraction, reached.phase);
      ann_index_free(task.made);
    }
  /* It stays until it is reset. */
  ann_monitor_cancel(monitor);
  job task = {SEARCH_EXACT, 1, index, 0, 0, NULL};
  run(&task);
  CHECK_EQUAL(task.status, ANN_CANCELLED);
  run(&task);
  CHECK_EQUAL(task.status, ANN_CANCELLED);
  ann_monitor_reset(monitor);
  /* A deadline that is taken back, and one that never comes. */
  vectors one = rows;
  one.rows = 3;
  const ann_matrix view = vectors_view(&one);
  answers found = answers_make(3, 2);
  ann_results results = answers_view(&found);
  ann_monitor_set_deadline(monitor, 1);
  sleep_seconds(0.001);
  CHECK_STATUS(ann_search_exact(index, &view, NULL, &results, monitor, NULL), ANN_DEADLINE);
  ann_monitor_set_deadline(monitor, 0);
  CHECK_OK(ann_search_exact(index, &view, NULL, &results, monitor, NULL));
  ann_monitor_set_deadline(monitor, UINT64_MAX);
  CHECK_OK(ann_search_batch(index, &view, NULL, &results, monitor, NULL));
  answers_free(&found);
  ann_monitor_reset(monitor);
}

/* Cancels, or lets a deadline pass, after each of several times, while the call runs or just after it. */
static void cancel_while_running(const ann_index *index) {
  const double delays[] = {0.003, 0.01, 0.03, 0.06, 0.12};
  for (int kind = 0; kind < WORKS; kind++)
    for (uint32_t threads = 1; threads <= 2; threads++)
      for (int i = 0; i < 5; i++) {
        ann_monitor_reset(monitor);
        job task = {(work)kind, threads, index, 0, 0, NULL};
        pthread_t thread;
        const int by_deadline = i % 2;
        if (by_deadline) ann_monitor_set_deadline(monitor, (uint64_t)(delays[i] * 1e9));
        pthread_create(&thread, NULL, run_thread, &task);
        if (!by_deadline) {
          sleep_seconds(delays[i]);
          ann_monitor_cancel(monitor);
        }
        pthread_join(thread, NULL);
        CHECK_SAY(task.status == ANN_OK || task.status == (by_deadline ? ANN_DEADLINE : ANN_CANCELLED),
                  "%s: %s", work_names[kind], ann_status_name(task.status));
        if (!task.made) continue;
        ann_index_info info = ANN_INDEX_INFO_INIT;
        CHECK_OK(ann_index_get_info(task.made, &info, NULL));
        CHECK_EQUAL(info.built, task.status == ANN_OK);
        ann_index_free(task.made);
      }
}

static ann_monitor *signalled;
static void on_signal(int number) {
  (void)number;
  ann_monitor_cancel(signalled);
}

static void cancel_from_signal(void) {
  ann_monitor_reset(monitor);
  signalled = monitor;
  struct sigaction action, old;
  memset(&action, 0, sizeof action);
  action.sa_handler = on_signal;
  sigaction(SIGALRM, &action, &old);
  /* Again and again, so that it does not matter when the call begins. */
  const struct itimerval often = {{0, 2000}, {0, 2000}}, never = {{0, 0}, {0, 0}};
  setitimer(ITIMER_REAL, &often, NULL);
  job task = {KNN, 2, NULL, 0, 0, NULL};
  run(&task);
  setitimer(ITIMER_REAL, &never, NULL);
  CHECK_EQUAL(task.status, ANN_CANCELLED);
  /* The library has installed no handler of its own. */
  struct sigaction now;
  sigaction(SIGALRM, &old, &now);
  CHECK(now.sa_handler == on_signal);
}

/* As another thread sees it. That progress also moves is proved at each question by fault.cancel: this
 * thread may be held up for as long as a call takes. */
static void progress(const ann_index *index) {
  for (int kind = 0; kind < WORKS; kind++) {
    ann_monitor_reset(monitor);
    job task = {(work)kind, 2, index, 0, 0, NULL};
    pthread_t thread;
    pthread_create(&thread, NULL, run_thread, &task);
    ann_progress last = ANN_PROGRESS_INIT;
    int falls = 0, outside = 0, looks = 0;
    while (!__atomic_load_n(&task.done, __ATOMIC_ACQUIRE)) {
      ann_progress now = ANN_PROGRESS_INIT;
      CHECK_OK(ann_monitor_progress(monitor, &now, NULL));
      falls += now.fraction < last.fraction || now.step < last.step;
      outside += !(now.fraction >= 0 && now.fraction <= 1);
      CHECK(now.phase != NULL);
      last = now;
      sleep_seconds(0.002);
      /* Enough has been seen of a slow one. */
      if (++looks == 500) ann_monitor_cancel(monitor);
    }
    pthread_join(thread, NULL);
    CHECK_SAY(falls == 0 && outside == 0, "%s: progress fell %d times", work_names[kind], falls);
    ann_progress end = ANN_PROGRESS_INIT;
    CHECK_OK(ann_monitor_progress(monitor, &end, NULL));
    CHECK_SAY(end.step >= 1 && end.phase[0] != 0, "%s: no phase was named", work_names[kind]);
    if (task.status == ANN_OK)
      CHECK_SAY(end.fraction > 0.999, "%s ends at %.3f", work_names[kind], end.fraction);
    ann_index_free(task.made);
  }
}

/* A build that was cancelled anywhere can be repeated, and is then like one that never was. */
static void rebuild(int32_t knn) {
  vectors small = rows;
  small.rows = 1200;
  const ann_matrix view = vectors_view(&small);
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.knn = knn;
  ann_index *reference = index_build(ANN_METRIC_L2, &small, &params);
  const uint64_t wanted = index_hash(reference);
  ann_index_free(reference);
  ann_index *index = index_make(DIM, ANN_METRIC_L2, ANN_ELEMENT_AUTO);
  ann_status status = ANN_CANCELLED;
  int cancelled = 0;
  for (uint64_t micros = 50; status != ANN_OK; micros += micros / 4 + 50) {
    ann_monitor_reset(monitor);
    ann_monitor_set_deadline(monitor, micros * 1000);
    status = ann_build(index, &view, NULL, &params, monitor, NULL);
    CHECK(status == ANN_OK || status == ANN_DEADLINE);
    cancelled += status != ANN_OK;
    if (status != ANN_OK && status != ANN_DEADLINE) break;
  }
  CHECK(cancelled >= 3);
  CHECK(index_hash(index) == wanted);
  ann_index_free(index);
}

/* A new monitor has no wish and no past. */
static void new_monitor(const ann_index *index) {
  ann_monitor *fresh = NULL;
  CHECK_OK(ann_monitor_create(&fresh, NULL));
  CHECK(fresh != NULL && fresh != monitor);
  ann_progress progress = ANN_PROGRESS_INIT;
  CHECK_OK(ann_monitor_progress(fresh, &progress, NULL));
  CHECK(progress.step == 0 && progress.fraction == 0);
  answers found = answers_make(1, 1);
  ann_results results = answers_view(&found);
  ann_matrix one = vectors_view(&rows);
  one.rows = 1;
  CHECK_OK(ann_search_batch(index, &one, NULL, &results, fresh, NULL));
  CHECK_OK(ann_monitor_progress(fresh, &progress, NULL));
  CHECK(progress.step != 0 && progress.fraction == 1);
  answers_free(&found);
  ann_monitor_free(fresh);
}

int main(void) {
  const uint64_t count = (uint64_t)(16000 / test_scale());
  rows = vectors_make(DATA_NORMAL, ANN_F32, count, DIM, 1);
  CHECK_OK(ann_monitor_create(&monitor, NULL));
  arguments();
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.iterations = 3;
  params.calibrate = ANN_OFF;
  ann_index *index = index_build(ANN_METRIC_L2, &rows, &params);
  new_monitor(index);
  before_the_call(index);
  cancel_while_running(index);
  if (!test_on_device()) cancel_from_signal(); /* a device is done before the signal comes */
  progress(index);
  rebuild(ANN_KNN_NN_DESCENT);
  rebuild(ANN_KNN_CELLS);
  ann_index_free(index);
  ann_monitor_free(monitor);
  vectors_free(&rows);
  return finish("monitor");
}
