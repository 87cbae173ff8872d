/* Proves that the library is a polite guest: the whole interface runs on a thread with a small
 * stack, no call changes the floating-point mode, answers do not depend on that mode's sticky
 * flags, a timer signal at 1 kHz disturbs nothing, and nothing is printed. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "ann.h"
#include "check.h"
#include "support.h"

enum { N = 1200, DIM = 24, K = 10 };
static vectors rows;
static uint64_t result; /* of the last whole_interface */

static unsigned control_word(void) {
#if defined(__x86_64__)
  return _mm_getcsr() & ~0x3fu; /* without the sticky exception flags */
#else
  return 0;
#endif
}

/* Calls every function of the header once or more; `mode` is what the control word must stay. */
/* Saves an index and opens it in every mode; the answers stay what they are. */
static void files(const ann_index *index, const ann_matrix *queries, answers *found) {
  char path[] = "/tmp/gannet-host-XXXXXX";
  const int descriptor = mkstemp(path);
  if (!CHECK(descriptor >= 0)) return;
  close(descriptor);
  ann_results results = answers_view(found);
  CHECK_OK(ann_search_batch(index, queries, NULL, &results, NULL, NULL));
  const uint64_t wanted = answers_hash(HASH_START, found);
  CHECK_OK(ann_save(index, path, NULL, NULL, NULL));
  CHECK_OK(ann_verify(path, NULL, NULL, NULL));
  ann_file_description description = ANN_FILE_DESCRIPTION_INIT;
  CHECK_OK(ann_file_info(path, &description, NULL));
  for (int mode = ANN_OPEN_FULL; mode <= ANN_OPEN_TRUSTED; mode++) {
    ann_open_params params = ANN_OPEN_PARAMS_INIT;
    params.mode = mode;
    ann_index *opened = NULL;
    if (!CHECK(ann_open(NULL, path, &params, &opened, NULL, NULL) == ANN_OK)) continue;
    CHECK_OK(ann_search_batch(opened, queries, NULL, &results, NULL, NULL));
    CHECK(answers_hash(HASH_START, found) == wanted);
    ann_index_free(opened);
  }
  unlink(path);
}

static void whole_interface(unsigned mode) {
#define SAME_MODE() CHECK_SAY(control_word() == mode, "the control word became %x", control_word())
  (void)ann_version();
  (void)ann_abi_version();
  (void)ann_build_info();
  (void)ann_status_name(ANN_OK);
  SAME_MODE();
  ann_context *context = NULL;
  ann_monitor *monitor = NULL;
  ann_index *index = NULL;
  ann_progress progress = ANN_PROGRESS_INIT;
  ann_device_info device = ANN_DEVICE_INFO_INIT;
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  ann_plan plan = ANN_PLAN_INIT;
  ann_index_info info = ANN_INDEX_INFO_INIT;
  ann_graph_stats stats = ANN_GRAPH_STATS_INIT;
  ann_build_params build = ANN_BUILD_PARAMS_INIT;
  shape.dim = DIM;
  build.threads = 2;
  build.knn = ANN_KNN_NN_DESCENT;
  CHECK_OK(ann_context_create(NULL, &context, NULL));
  CHECK_OK(ann_monitor_create(&monitor, NULL));
  CHECK_OK(ann_device_get_info(ANN_DEVICE_CPU, &device, NULL));
  CHECK_OK(ann_index_create(context, &shape, &index, NULL));
  CHECK_OK(ann_estimate(&shape, N, ANN_F32, &build, &plan, NULL));
  SAME_MODE();
  const ann_matrix view = vectors_view(&rows);
  CHECK_OK(ann_build(index, &view, NULL, &build, monitor, NULL));
  SAME_MODE();
  CHECK_OK(ann_monitor_progress(monitor, &progress, NULL));
  ann_monitor_cancel(monitor);
  ann_monitor_reset(monitor);
  ann_monitor_set_deadline(monitor, 0);
  CHECK_OK(ann_index_get_info(index, &info, NULL));
  CHECK_OK(ann_index_graph_stats(index, &stats, NULL));
  SAME_MODE();
  float vector[DIM];
  int32_t there = 0;
  uint32_t beam = 0;
  CHECK_OK(ann_index_get(index, 3, vector, sizeof vector, &there, NULL));
  CHECK_OK(ann_index_beam(index, K, 0.9f, &beam, NULL));
  answers found = answers_make(N, K);
  ann_results results = answers_view(&found);
  uint64_t hash = index_hash(index);
  CHECK_OK(ann_search_batch(index, &view, NULL, &results, monitor, NULL));
  hash = answers_hash(hash, &found);
  SAME_MODE();
  CHECK_OK(ann_search_exact(index, &view, NULL, &results, monitor, NULL));
  hash = answers_hash(hash, &found);
  SAME_MODE();
  uint32_t *lists = malloc(N * K * sizeof *lists);
  ann_knn_params knn = ANN_KNN_PARAMS_INIT;
  knn.k = K;
  CHECK_OK(ann_knn_graph(context, &view, &knn, lists, NULL, monitor, NULL));
  result = hash_bytes(hash, lists, N * K * sizeof *lists);
  SAME_MODE();
  free(lists);
  files(index, &view, &found);
  SAME_MODE();
  answers_free(&found);
  ann_index_free(index);
  ann_monitor_free(monitor);
  ann_context_free(context);
  SAME_MODE();
}

static void *on_thread(void *unused) {
  (void)unused;
  whole_interface(control_word());
  return NULL;
}

static void small_stack(void) {
  /* Sanitizers put red zones into every frame. */
  const size_t bytes = test_sanitized() ? 1 << 20 : 64 << 10;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  CHECK_EQUAL(pthread_attr_setstacksize(&attributes, bytes), 0);
  pthread_t thread;
  if (CHECK(pthread_create(&thread, &attributes, on_thread, NULL) == 0)) pthread_join(thread, NULL);
  pthread_attr_destroy(&attributes);
}

static void modes(void) {
#if defined(__x86_64__)
  const unsigned normal = _mm_getcsr();
  whole_interface(control_word());
  const uint64_t wanted = result;
  /* Sticky flags that are already set do not matter. */
  _mm_setcsr(normal | 0x3f);
  whole_interface(control_word());
  CHECK(result == wanted);
  /* A host may flush subnormals: it keeps its mode, and with ordinary values the same answers. */
  _mm_setcsr(normal | 0x8040);
  whole_interface(control_word());
  CHECK_SAY(result == wanted, "with subnormals flushed the answers differ");
  /* Another rounding changes sums, but does no harm. */
  _mm_setcsr((normal & ~0x6000u) | 0x4000);
  whole_interface(control_word());
  _mm_setcsr(normal);
#endif
}

static volatile sig_atomic_t ticks;
static void on_tick(int number) {
  (void)number;
  ticks++;
}

static void timer_signals(uint64_t wanted) {
  struct sigaction action, old;
  memset(&action, 0, sizeof action);
  action.sa_handler = on_tick; /* without SA_RESTART: system calls do return EINTR */
  sigaction(SIGALRM, &action, &old);
  const struct itimerval every = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
  setitimer(ITIMER_REAL, &every, NULL);
  for (int round = 0; round < 3; round++) {
    whole_interface(control_word());
    CHECK(result == wanted);
  }
  setitimer(ITIMER_REAL, &never, NULL);
  sigaction(SIGALRM, &old, NULL);
  CHECK(ticks > 0);
}

/* What is written to standard output and error meanwhile ends in a file that stays empty. */
static void silence(void) {
  char name[] = "silence-XXXXXX";
  fflush(stdout);
  fflush(stderr);
  const int file = mkstemp(name), out = dup(1), err = dup(2);
  if (!CHECK(file >= 0)) return;
  unlink(name);
  dup2(file, 1);
  dup2(file, 2);
  ann_index *index = NULL;
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  const ann_status refused = ann_index_create(NULL, &shape, &index, NULL);
  whole_interface(control_word());
  uint32_t count = 0;
  (void)ann_device_count(&count, NULL, NULL);
  fflush(stdout);
  fflush(stderr);
  dup2(out, 1);
  dup2(err, 2);
  struct stat state;
  fstat(file, &state);
  CHECK_EQUAL(state.st_size, 0);
  CHECK_EQUAL(refused, ANN_INVALID_ARGUMENT);
  close(file);
  close(out);
  close(err);
}

int main(void) {
  rows = vectors_make(DATA_NORMAL, ANN_F32, N, DIM, 1);
  whole_interface(control_word());
  const uint64_t wanted = result;
  small_stack();
  CHECK(result == wanted);
  modes();
  timer_signals(wanted);
  silence();
  /* A locale with a decimal comma, where there is one, changes no number. */
  if (setlocale(LC_ALL, "de_DE.UTF-8")) {
    whole_interface(control_word());
    CHECK(result == wanted);
  }
  vectors_free(&rows);
  return finish("host");
}
