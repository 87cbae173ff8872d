/* call.c: calls of the library, without the GIL, and stopped by Ctrl-C.
 *
 * Python runs the handlers of signals on its main thread only, between two of its own instructions. So a
 * long call runs on a thread of its own, and the thread that asked for it looks every few milliseconds
 * whether a signal has come, and tells the monitor to stop the call if its handler raises. */
#include "core.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

#define LOOK_EVERY_MS 5
#define REPORT_EVERY_LOOKS 10

typedef struct watched_call {
  call *made;
  pthread_mutex_t lock;
  pthread_cond_t ended;
  int done;
} watched_call;

static void *run_watched(void *given) {
  watched_call *watched = given;
  watched->made->status = watched->made->run(watched->made);
  pthread_mutex_lock(&watched->lock);
  watched->done = 1;
  pthread_cond_signal(&watched->ended);
  pthread_mutex_unlock(&watched->lock);
  return NULL;
}

/* Starts a thread that gets none of the signals that are sent to the process, but those that what it does
 * itself brings about. */
static int start_thread(pthread_t *thread, watched_call *watched) {
  static const int own[] = {SIGSEGV, SIGBUS, SIGFPE,  SIGILL,  SIGABRT,
                            SIGTRAP, SIGSYS, SIGPROF, SIGPIPE, SIGXFSZ};
  sigset_t all, before;
  sigfillset(&all);
  for (size_t i = 0; i < sizeof own / sizeof own[0]; ++i) sigdelset(&all, own[i]);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int failed = pthread_create(thread, NULL, run_watched, watched);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return failed;
}

/* Waits for the end, at most LOOK_EVERY_MS. Returns whether it came. */
static int wait_a_little(watched_call *watched) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += LOOK_EVERY_MS * 1000000L;
  if (until.tv_nsec >= 1000000000L) {
    until.tv_nsec -= 1000000000L;
    ++until.tv_sec;
  }
  pthread_mutex_lock(&watched->lock);
  int timed_out = 0;
  while (!watched->done && timed_out != ETIMEDOUT) {
    timed_out = pthread_cond_timedwait(&watched->ended, &watched->lock, &until);
  }
  int done = watched->done;
  pthread_mutex_unlock(&watched->lock);
  return done;
}

void call_keep_raised(call *made) {
  if (made->raised[0] != NULL) {
    PyErr_Clear();
    return;
  }
  PyErr_Fetch(&made->raised[0], &made->raised[1], &made->raised[2]);
}

/* Calls progress(fraction, phase, step) if there is news. Returns -1 if it raises. */
static int report(const call *made, PyObject *progress, ann_progress *last) {
  ann_progress now = ANN_PROGRESS_INIT;
  if (ann_monitor_progress(made->monitor, &now, NULL) != ANN_OK || now.step == 0 ||
      (now.step == last->step && now.fraction == last->fraction)) {
    return 0;
  }
  *last = now;
  PyObject *answer = PyObject_CallFunction(progress, "dsI", now.fraction, now.phase, (unsigned)now.step);
  Py_XDECREF(answer);
  return answer == NULL ? -1 : 0;
}

static void watch(watched_call *watched, PyObject *progress) {
  call *made = watched->made;
  ann_progress last = ANN_PROGRESS_INIT;
  int done = 0;
  for (int looks = 1; !done; ++looks) {
    Py_BEGIN_ALLOW_THREADS
    done = wait_a_little(watched);
    Py_END_ALLOW_THREADS
    if (made->raised[0] != NULL) continue; /* it has been cancelled */
    int failed = PyErr_CheckSignals();
    if (!failed && progress != NULL && (done || looks % REPORT_EVERY_LOOKS == 0)) {
      failed = report(made, progress, &last);
    }
    if (failed) {
      call_keep_raised(made);
      ann_monitor_cancel(made->monitor);
    }
  }
}

/* Runs the call on a thread of its own. Returns 0 where there is none to be had. */
static int run_and_watch(call *made, PyObject *progress) {
  watched_call watched = {.made = made};
  pthread_condattr_t steady;
  pthread_t thread;
  pthread_condattr_init(&steady);
  pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
  pthread_mutex_init(&watched.lock, NULL);
  pthread_cond_init(&watched.ended, &steady);
  int started = start_thread(&thread, &watched) == 0;
  if (started) {
    watch(&watched, progress);
    pthread_join(thread, NULL);
  }
  pthread_cond_destroy(&watched.ended);
  pthread_mutex_destroy(&watched.lock);
  pthread_condattr_destroy(&steady);
  return started;
}

int call_run(call *made, int watched, PyObject *progress, double timeout) {
  made->error = (ann_error)ANN_ERROR_INIT;
  if (progress == Py_None) progress = NULL;
  if (watched || progress != NULL || timeout >= 0) {
    ann_status status = ann_monitor_create(&made->monitor, &made->error);
    if (status != ANN_OK) {
      errors_raise(status, &made->error);
      return -1;
    }
    /* 0 would take a deadline back. */
    if (timeout >= 0)
      ann_monitor_set_deadline(made->monitor, timeout > 0 ? (uint64_t)(timeout * 1e9) + 1 : 1);
  }
  if (made->monitor == NULL || made->stays || !run_and_watch(made, progress)) {
    Py_BEGIN_ALLOW_THREADS
    made->status = made->run(made);
    Py_END_ALLOW_THREADS
  }
  ann_monitor_free(made->monitor);
  made->monitor = NULL;
  if (made->raised[0] != NULL) {
    PyErr_Restore(made->raised[0], made->raised[1], made->raised[2]);
    return -1;
  }
  if (made->status != ANN_OK) {
    errors_raise(made->status, &made->error);
    return -1;
  }
  return 0;
}

int call_timeout(PyObject *given, double *seconds) {
  *seconds = NO_TIMEOUT;
  if (given == NULL || given == Py_None) return 0;
  double value = PyFloat_AsDouble(given);
  if (PyErr_Occurred()) return -1;
  if (!(value >= 0)) {
    errors_refuse("argument", "timeout is %R; expected seconds, 0 or more, or None", given);
    return -1;
  }
  *seconds = value < 9e9 ? value : 9e9; /* 285 years, as many as the nanoseconds of the library hold */
  return 0;
}
