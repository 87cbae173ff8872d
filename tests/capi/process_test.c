/* Proves that what a process does to its threads, limits and folders does not reach into calls: threads
 * that are cancelled, the limit on the size of a file, another working folder, another owner of a file,
 * saves that were killed. Each runs in a child process, since a defect would end it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ann.h"
#include "check.h"
#include "support.h"

static char folder[] = "/tmp/gannet-process-XXXXXX";
static vectors rows;
static ann_index *index_of_rows;

static int temporary_files(const char *in) {
  char command[400];
  snprintf(command, sizeof command, "ls -A '%s' | grep -c 'tmp$'", in);
  FILE *list = popen(command, "r");
  int count = -1;
  CHECK(list && fscanf(list, "%d", &count) == 1);
  if (list) pclose(list);
  return count;
}

/* Runs `body` in a child; its failed checks are counted here. */
static void in_child(const char *what, void (*body)(void)) {
  fflush(NULL);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    checks_failed = 0;
    alarm(300); /* a call that hangs ends the child */
    body();
    fflush(NULL);
    _exit(checks_failed != 0);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK_SAY(!WIFSIGNALED(status), "%s: the process ended by signal %d", what, WTERMSIG(status));
  CHECK_SAY(WIFSIGNALED(status) || WEXITSTATUS(status) == 0, "%s: checks failed", what);
}

/* --- Threads that are cancelled ------------------------------------------------------------------ */

typedef enum { BUILD, SAVE, OPEN, VERIFY, STREAM, SEARCH, FREE, WORKS } work;
static const char *const work_names[WORKS] = {"build", "save", "open", "verify", "stream", "search", "free"};

typedef struct job {
  work kind;
  ann_monitor *monitor;
  ann_status status;
  int returned;
} job;

/* A writer that waits in the system, which is a point of cancellation. */
static int64_t take_slowly(void *user, const void *data, uint64_t bytes) {
  (void)user, (void)data;
  sleep_seconds(0.001);
  return (int64_t)bytes;
}

static void *work_until_cancelled(void *user) {
  job *task = user;
  char path[100];
  snprintf(path, sizeof path, "%s/cancel.gannet", folder);
  /* The call that has been asked for returns; the thread ends at its own next point. */
  if (task->kind == BUILD) {
    ann_build_params params = ANN_BUILD_PARAMS_INIT;
    params.threads = 2;
    ann_index *made = index_make(rows.dim, ANN_METRIC_L2, 0);
    const ann_matrix view = vectors_view(&rows);
    task->status = ann_build(made, &view, NULL, &params, task->monitor, NULL);
    ann_index_free(made);
  } else if (task->kind == SAVE) {
    task->status = ann_save(index_of_rows, path, NULL, task->monitor, NULL);
  } else if (task->kind == OPEN) {
    ann_index *opened = NULL;
    task->status = ann_open(NULL, path, NULL, &opened, task->monitor, NULL);
    ann_index_free(opened);
  } else if (task->kind == VERIFY) {
    task->status = ann_verify(path, NULL, task->monitor, NULL);
  } else if (task->kind == STREAM) {
    ann_writer writer = ANN_WRITER_INIT;
    writer.write = take_slowly;
    task->status = ann_save_stream(index_of_rows, &writer, NULL, task->monitor, NULL);
  } else if (task->kind == SEARCH) {
    answers found = answers_make(rows.rows, 5);
    const ann_matrix view = vectors_view(&rows);
    ann_results results = answers_view(&found);
    ann_search_params params = ANN_SEARCH_PARAMS_INIT;
    params.threads = 2;
    task->status = ann_search_batch(index_of_rows, &view, &params, &results, task->monitor, NULL);
    answers_free(&found);
  } else {
    ann_index_free(index_build(ANN_METRIC_L2, &(vectors){rows.element, rows.dim, 50, rows.data}, NULL));
    task->status = ANN_OK;
  }
  __atomic_store_n(&task->returned, 1, __ATOMIC_RELEASE);
  while (task->monitor != NULL) pthread_testcancel();
  return NULL;
}

static void cancel_threads(void) {
  char path[100];
  snprintf(path, sizeof path, "%s/cancel.gannet", folder);
  CHECK_OK(ann_save(index_of_rows, path, NULL, NULL, NULL));
  for (int kind = 0; kind < WORKS; kind++)
    for (int moment = 0; moment < 6; moment++) {
      job task = {(work)kind, NULL, ANN_INTERNAL, 0};
      CHECK_OK(ann_monitor_create(&task.monitor, NULL));
      pthread_t thread;
      CHECK(pthread_create(&thread, NULL, work_until_cancelled, &task) == 0);
      /* At once, when the call has begun, and at some times after that. */
      for (int look = 0; moment > 0 && look < 10000; look++) {
        ann_progress progress = ANN_PROGRESS_INIT;
        CHECK_OK(ann_monitor_progress(task.monitor, &progress, NULL));
        if (progress.step > 0 || __atomic_load_n(&task.returned, __ATOMIC_ACQUIRE)) break;
        sleep_seconds(1e-4);
      }
      if (moment > 1) sleep_seconds(1e-4 * (1 << 2 * moment) / 16);
      CHECK(pthread_cancel(thread) == 0);
      void *result = NULL;
      CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
      /* A thread that is cancelled before its first call makes none. */
      CHECK_SAY(task.returned ? task.status == ANN_OK : moment == 0, "%s: returned %d with %s",
                work_names[kind], task.returned, ann_status_name(task.status));
      ann_monitor_free(task.monitor);
    }
  CHECK_EQUAL(temporary_files(folder), 0);
  /* The library leaves a thread as it found it. */
  int state = -1;
  CHECK_OK(ann_verify(path, NULL, NULL, NULL));
  CHECK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state) == 0 && state == PTHREAD_CANCEL_ENABLE);
}

/* --- The limit on the size of a file ------------------------------------------------------------- */

static void check_refused_for_size(const char *path) {
  ann_error error = ANN_ERROR_INIT;
  CHECK_STATUS(ann_save(index_of_rows, path, NULL, NULL, &error), ANN_IO);
  CHECK_EQUAL(error.os_error, EFBIG);
  CHECK_EQUAL(temporary_files(folder), 0);
  CHECK(access(path, F_OK) != 0);
}

static void limit_file_size(void) {
  char path[100];
  snprintf(path, sizeof path, "%s/limited.gannet", folder);
  struct rlimit limit;
  CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0);
  limit.rlim_cur = 20000;
  CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
  signal(SIGXFSZ, SIG_DFL);
  check_refused_for_size(path);
  /* The mask of the thread is as it was, and no signal waits. */
  sigset_t mask, pending;
  CHECK(pthread_sigmask(SIG_SETMASK, NULL, &mask) == 0 && !sigismember(&mask, SIGXFSZ));
  CHECK(sigpending(&pending) == 0 && !sigismember(&pending, SIGXFSZ));
  /* A caller who has blocked it finds it blocked and not pending; one who waits for it keeps it. */
  sigemptyset(&mask);
  sigaddset(&mask, SIGXFSZ);
  CHECK(pthread_sigmask(SIG_BLOCK, &mask, NULL) == 0);
  check_refused_for_size(path);
  CHECK(sigpending(&pending) == 0 && !sigismember(&pending, SIGXFSZ));
  CHECK(pthread_kill(pthread_self(), SIGXFSZ) == 0);
  check_refused_for_size(path);
  CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ));
  sigset_t now;
  CHECK(pthread_sigmask(SIG_SETMASK, NULL, &now) == 0 && sigismember(&now, SIGXFSZ));
}

/* --- Another working folder ---------------------------------------------------------------------- */

static int stop;
static char two_folders[2][100];

static void *change_folder(void *user) {
  (void)user;
  for (int i = 0; !__atomic_load_n(&stop, __ATOMIC_ACQUIRE); i++)
    if (chdir(two_folders[i % 2]) != 0) return NULL;
  return NULL;
}

static void change_folders(void) {
  for (int i = 0; i < 2; i++) {
    snprintf(two_folders[i], sizeof two_folders[i], "%s/%d", folder, i);
    CHECK(mkdir(two_folders[i], 0700) == 0);
    char link[120];
    snprintf(link, sizeof link, "%s/link.gannet", two_folders[i]);
    CHECK(symlink("linked.gannet", link) == 0);
    snprintf(link, sizeof link, "%s/linked.gannet", two_folders[i]);
    CHECK_OK(ann_save(index_of_rows, link, NULL, NULL, NULL));
  }
  CHECK(chdir(two_folders[0]) == 0);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, change_folder, NULL) == 0);
  ann_save_params quick = ANN_SAVE_PARAMS_INIT;
  quick.sync = ANN_OFF;
  for (int i = 0; i < 200 / test_scale(); i++) {
    ann_error error = ANN_ERROR_INIT;
    const ann_status status =
        ann_save(index_of_rows, i % 2 ? "link.gannet" : "relative.gannet", &quick, NULL, &error);
    CHECK_SAY(status == ANN_OK, "save %d: %s", i, error.message);
  }
  __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
  pthread_join(thread, NULL);
  for (int i = 0; i < 2; i++) {
    CHECK_EQUAL(temporary_files(two_folders[i]), 0);
    CHECK(chdir(two_folders[i]) == 0);
    struct stat facts;
    CHECK(lstat("link.gannet", &facts) == 0 && S_ISLNK(facts.st_mode));
    CHECK_OK(ann_verify("link.gannet", NULL, NULL, NULL));
    if (access("relative.gannet", F_OK) == 0) CHECK_OK(ann_verify("relative.gannet", NULL, NULL, NULL));
  }
}

/* --- Owners -------------------------------------------------------------------------------------- */

static void keep_owner(void) {
  char path[100];
  snprintf(path, sizeof path, "%s/owned.gannet", folder);
  CHECK_OK(ann_save(index_of_rows, path, NULL, NULL, NULL));
  struct stat before, after;
  /* Root may give a file to anybody, others to a group of theirs. */
  gid_t groups[64];
  const int count = getgroups(64, groups);
  const int root = geteuid() == 0 && chown(path, 12345, 23456) == 0;
  for (int i = 0; !root && i < count; i++)
    if (groups[i] != getegid() && chown(path, (uid_t)-1, groups[i]) == 0) break;
  CHECK(chmod(path, 0640) == 0 && stat(path, &before) == 0);
  if (root) CHECK(before.st_uid == 12345 && before.st_gid == 23456);
  CHECK_OK(ann_save(index_of_rows, path, NULL, NULL, NULL));
  CHECK(stat(path, &after) == 0 && after.st_ino != before.st_ino);
  CHECK_SAY(after.st_uid == before.st_uid && after.st_gid == before.st_gid && after.st_mode == before.st_mode,
            "owner %u, group %u, mode %o became %u, %u, %o", before.st_uid, before.st_gid, before.st_mode,
            after.st_uid, after.st_gid, after.st_mode);
  if (!root) return;
  /* Who may not keep the owner saves all the same, as the new owner. */
  CHECK(chmod(folder, 0777) == 0 && setgroups(0, NULL) == 0 && setgid(34567) == 0 && setuid(34567) == 0);
  CHECK_OK(ann_save(index_of_rows, path, NULL, NULL, NULL));
  CHECK(stat(path, &after) == 0 && after.st_uid == 34567 && (after.st_mode & 0777) == 0640);
}

/* --- Saves that were killed ---------------------------------------------------------------------- */

/* Kills saves at random moments and looks at what is left: nothing, after the next save. */
static void killed_saves(void) {
  char path[100];
  snprintf(path, sizeof path, "%s/killed.gannet", folder);
  uint64_t seed = 1;
  for (int i = 0; i < 20; i++) {
    const pid_t child = fork();
    if (child == 0)
      for (;;)
        if (ann_save(index_of_rows, path, NULL, NULL, NULL) != ANN_OK) _exit(1);
    sleep_seconds(random_unit(&seed) * 0.01);
    int status = 0;
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    CHECK(temporary_files(folder) <= 1);
    if (i % 4 != 3) continue;
    CHECK_OK(ann_save(index_of_rows, path, NULL, NULL, NULL));
    CHECK_EQUAL(temporary_files(folder), 0);
    CHECK_OK(ann_verify(path, NULL, NULL, NULL));
  }
}

/* --- Messages ------------------------------------------------------------------------------------ */

/* Whether a text is UTF-8 throughout and one line, by the C library's own decoder. */
static int one_line_of_utf8(const char *text) {
  for (const unsigned char *at = (const unsigned char *)text; *at; at++)
    if (*at < 0x20 || *at == 0x7f) return 0;
  return mbstowcs(NULL, text, 0) != (size_t)-1;
}

static void messages(void) {
  CHECK(setlocale(LC_ALL, "C.UTF-8") != NULL);
  const char *characters[] = {
      "\xc3\xbc", "\xe2\x82\xac", "\xf0\x9f\x90\xa6", "a\n",          "\x1b[31m", "\xff",
      "\xc3",     "\xed\xa0\x80", "\xc2\x85",         "\xe2\x80\xa8", "\xc0\xaf", "\xf4\x90\x80\x80"};
  uint64_t seed = 1;
  for (int i = 0; i < 3000; i++) {
    /* Every cut of every character, then mixtures of all. */
    char path[400] = "/nowhere/";
    for (int n = i % 7; n > 0; n--) strcat(path, "x");
    while (strlen(path) < 300) strcat(path, i < 84 ? characters[i / 7] : characters[random_next(&seed) % 12]);
    ann_error error = ANN_ERROR_INIT;
    ann_index *opened = NULL;
    CHECK_STATUS(ann_open(NULL, path, NULL, &opened, NULL, &error), ANN_IO);
    CHECK_SAY(one_line_of_utf8(error.message) && strlen(error.message) > 30, "path %d: \"%s\"", i,
              error.message);
    if (i < 21) CHECK(strstr(error.message, characters[i / 7]) != NULL && strchr(error.message, '?') == NULL);
    CHECK_STATUS(ann_save(index_of_rows, path, NULL, NULL, &error), ANN_IO);
    CHECK_SAY(one_line_of_utf8(error.message), "path %d: \"%s\"", i, error.message);
  }
}

int main(void) {
  CHECK(mkdtemp(folder) != NULL);
  rows = vectors_make(DATA_NORMAL, ANN_F32, 6000 / (uint64_t)test_scale(), 24, 1);
  index_of_rows = index_build(ANN_METRIC_L2, &rows, NULL);
  in_child("threads that are cancelled", cancel_threads);
  in_child("a limit on the size of a file", limit_file_size);
  in_child("another working folder", change_folders);
  in_child("saves that were killed", killed_saves);
  in_child("messages", messages);
  in_child("another owner", keep_owner);
  ann_index_free(index_of_rows);
  vectors_free(&rows);
  char command[320];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  CHECK(system(command) == 0);
  return finish("process");
}
