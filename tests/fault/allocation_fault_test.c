/* Proves that any allocation may fail. Each scenario counts its allocations, then runs again and
 * again with the first, the second, ... failing: once, or it and all after it. Two sources are made
 * to fail: the context's hook, and malloc itself, which this program replaces, so that the library's
 * operator new, its exceptions and its threads meet the same fate.
 *
 * After each failure the call must have answered ANN_NO_MEMORY (or, where malloc failed for
 * something that can be done without, such as a second thread, ANN_OK with the right result), all
 * memory must be back, and the same handle must work and give what it gives without failures.
 *
 * Loops make the same request again and again. Of requests that come from the same place by the same calls, by
 * their stacks, the first few fail in turn.
 *
 * Points run in child processes that are started again behind a point that kills them, so that one
 * crash is counted and the rest still tested. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <unwind.h>

#include "ann.h"
#include "check.h"
#include "support.h"

/* --- Allocations that fail ------------------------------------------------------------------- */

typedef struct source {
  int64_t calls;   /* since it was armed */
  int64_t fail_at; /* 1 is the first; 0: never */
  int forever;     /* also all later ones */
  int armed;
  int64_t live;     /* blocks, or for the hook bytes, that were not given back */
  uint64_t* stacks; /* of each call since it was armed, while it is watched; else null */
} source;

static source from_malloc, from_hook;

/* Calls whose stacks are kept, and how they are read. */
enum { CALLS_WATCHED = 1 << 16 };

static _Unwind_Reason_Code add_frame(struct _Unwind_Context* frame, void* user) {
  uint64_t* hash = user;
  const uintptr_t place = _Unwind_GetIP(frame);
  *hash = hash_bytes(*hash, &place, sizeof place);
  return _URC_NO_REASON;
}

/* A hash of the calls that lead here. */
static uint64_t stack_here(void) {
  uint64_t hash = HASH_START;
  _Unwind_Backtrace(add_frame, &hash);
  return hash;
}

static int refuses(source* s) {
  if (!__atomic_load_n(&s->armed, __ATOMIC_RELAXED)) return 0;
  const int64_t call = __atomic_add_fetch(&s->calls, 1, __ATOMIC_RELAXED);
  if (s->stacks && call <= CALLS_WATCHED) s->stacks[call - 1] = stack_here();
  return s->fail_at != 0 && (call == s->fail_at || (s->forever && call > s->fail_at));
}

static void arm(source* s, int64_t fail_at, int forever) {
  s->calls = 0;
  s->fail_at = fail_at;
  s->forever = forever;
  __atomic_store_n(&s->armed, 1, __ATOMIC_RELEASE);
}

static int64_t disarm(source* s) {
  __atomic_store_n(&s->armed, 0, __ATOMIC_RELEASE);
  return s->calls;
}

/* A sanitizer has its own malloc, which must not be replaced. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
#define MALLOC_REPLACED 0
#else
#define MALLOC_REPLACED 1
extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);
extern void __libc_free(void*);

static void* noted(void* memory) {
  if (memory) __atomic_add_fetch(&from_malloc.live, 1, __ATOMIC_RELAXED);
  return memory;
}
static void* refusal(void) {
  errno = ENOMEM;
  return NULL;
}
void* malloc(size_t bytes) { return refuses(&from_malloc) ? refusal() : noted(__libc_malloc(bytes)); }
void* calloc(size_t count, size_t bytes) {
  return refuses(&from_malloc) ? refusal() : noted(__libc_calloc(count, bytes));
}
void* realloc(void* old, size_t bytes) {
  if (refuses(&from_malloc)) return refusal();
  void* memory = __libc_realloc(old, bytes);
  if (!old) noted(memory);
  return memory;
}
void* memalign(size_t alignment, size_t bytes) {
  return refuses(&from_malloc) ? refusal() : noted(__libc_memalign(alignment, bytes));
}
void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** out, size_t alignment, size_t bytes) {
  void* memory = memalign(alignment, bytes);
  if (memory) *out = memory;
  return memory ? 0 : ENOMEM;
}
void free(void* memory) {
  if (memory) __atomic_sub_fetch(&from_malloc.live, 1, __ATOMIC_RELAXED);
  __libc_free(memory);
}
#endif

static void* hook_allocate(void* user, size_t bytes, size_t alignment) {
  (void)user;
  if (refuses(&from_hook)) return NULL;
  void* memory = NULL;
  /* What the hook itself takes is not what is under test. */
#if MALLOC_REPLACED
  memory = __libc_memalign(alignment, bytes);
#else
  if (posix_memalign(&memory, alignment, bytes) != 0) memory = NULL;
#endif
  if (memory) __atomic_add_fetch(&from_hook.live, (int64_t)bytes, __ATOMIC_RELAXED);
  return memory;
}

static void hook_release(void* user, void* memory, size_t bytes, size_t alignment) {
  (void)user;
  (void)alignment;
  __atomic_sub_fetch(&from_hook.live, (int64_t)bytes, __ATOMIC_RELAXED);
#if MALLOC_REPLACED
  __libc_free(memory);
#else
  free(memory);
#endif
}

/* --- Scenarios ------------------------------------------------------------------------------- */

enum { N = 300, DIM = 8, Q = 40, K = 5 };
static vectors rows, queries;
static ann_matrix rows_view, queries_view;
static uint64_t ids[N];

typedef enum {
  CREATE,
  BUILD_PLAIN,
  BUILD,
  BUILD_IDS,
  BUILD_EXACT,
  BUILD_F16,
  BUILD_CELLS,
  BUILD_BORROW,
  SEARCH,
  SEARCH_ONE,
  EXACT,
  KNN_DESCENT,
  KNN_EXACT,
  KNN_CELLS,
  STATS,
  ESTIMATE,
  SAVE,
  SAVE_STREAM,
  SAVE_BORROWED,
  SAVE_LAZY,
  OPEN_FULL,
  OPEN_LAZY,
  OPEN_TRUSTED,
  OPEN_MEMORY,
  OPEN_MEMORY_LAZY,
  OPEN_STREAM,
  VERIFY,
  FILE_INFO,
  SCENARIOS
} scenario;
static const char* const names[SCENARIOS] = {"create and free",
                                             "build, not calibrated",
                                             "build, calibrated",
                                             "build with ids",
                                             "build by exact k-NN",
                                             "build stored as f16",
                                             "build by cells",
                                             "build on borrowed rows",
                                             "search",
                                             "search, one query",
                                             "exact search",
                                             "k-NN by NN-Descent",
                                             "k-NN, exact",
                                             "k-NN by cells",
                                             "graph statistics",
                                             "estimate and device",
                                             "save",
                                             "save to a stream",
                                             "save borrowed rows",
                                             "save of a lazily opened index",
                                             "open FULL",
                                             "open LAZY",
                                             "open TRUSTED",
                                             "open memory FULL",
                                             "open memory LAZY",
                                             "open a stream",
                                             "verify a file",
                                             "describe a file"};

/* --- Files ----------------------------------------------------------------------------------- */

static char folder[] = "/tmp/gannet-allocation-XXXXXX";
static char source_path[64], target_path[64]; /* a good file to open; a link to one to save over */
static char real_path[64];
static unsigned char* file_bytes; /* the good file, on a multiple of 4,096 */
static uint64_t file_count;

/* Bytes that went to or came from a stream. */
typedef struct stream {
  uint64_t at;
  uint64_t hash;
} stream;

static int64_t take(void* user, const void* data, uint64_t bytes) {
  stream* s = user;
  s->at += bytes;
  s->hash = hash_bytes(s->hash, data, bytes);
  return (int64_t)bytes;
}

static int64_t give(void* user, void* data, uint64_t bytes) {
  stream* s = user;
  if (bytes > file_count - s->at) bytes = file_count - s->at;
  memcpy(data, file_bytes + s->at, bytes);
  s->at += bytes;
  return (int64_t)bytes;
}

/* Of a file; 0 if it is not there. */
static uint64_t hash_file(const char* path) {
  static unsigned char buffer[1 << 20];
  uint64_t hash = HASH_START;
  const int file = open(path, O_RDONLY);
  if (file < 0) return 0;
  for (ssize_t got; (got = read(file, buffer, sizeof buffer)) > 0;)
    hash = hash_bytes(hash, buffer, (size_t)got);
  close(file);
  return hash;
}

static int temporary_files(void) {
  int count = 0;
  DIR* list = opendir(folder);
  for (struct dirent* entry; list && (entry = readdir(list));) count += strstr(entry->d_name, ".tmp") != NULL;
  if (list) closedir(list);
  return count;
}

static void make_files(void) {
  CHECK(mkdtemp(folder) != NULL);
  snprintf(source_path, sizeof source_path, "%s/source", folder);
  snprintf(target_path, sizeof target_path, "%s/target", folder);
  snprintf(real_path, sizeof real_path, "%s/real", folder);
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  ann_index* index = index_make(DIM, ANN_METRIC_L2, 0);
  params.degree = 12;
  params.threads = 1;
  CHECK_OK(ann_build(index, &rows_view, ids, &params, NULL, NULL));
  CHECK_OK(ann_save(index, source_path, NULL, NULL, NULL));
  CHECK_OK(ann_save(index, real_path, NULL, NULL, NULL));
  CHECK(symlink("real", target_path) == 0);
  ann_index_free(index);
  struct stat facts;
  CHECK(stat(source_path, &facts) == 0);
  file_count = (uint64_t)facts.st_size;
  file_bytes = aligned_alloc(4096, (file_count + 4095) / 4096 * 4096);
  FILE* file = fopen(source_path, "rb");
  CHECK(file && fread(file_bytes, 1, file_count, file) == file_count);
  if (file) fclose(file);
}

static void remove_files(void) {
  CHECK_EQUAL(temporary_files(), 0);
  CHECK(unlink(source_path) == 0 && unlink(target_path) == 0 && unlink(real_path) == 0);
  CHECK(rmdir(folder) == 0);
  free(file_bytes);
}

/* What a scenario works on, made before anything fails. */
typedef struct stage {
  ann_context* context;
  ann_index* index;
  uint32_t threads;
} stage;

static ann_build_params build_params(scenario what, uint32_t threads) {
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.threads = threads;
  params.degree = 12;
  params.knn = what == BUILD_EXACT ? ANN_KNN_EXACT : what == BUILD_CELLS ? ANN_KNN_CELLS : ANN_KNN_NN_DESCENT;
  params.iterations = 4;
  params.calibrate = what == BUILD ? ANN_ON : ANN_OFF;
  params.rows_mode = what == BUILD_BORROW ? ANN_ROWS_BORROW : ANN_ROWS_COPY;
  return params;
}

static ann_status make_index(const ann_context* context, scenario what, ann_index** index, ann_error* error) {
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  shape.dim = DIM;
  shape.element = what == BUILD_F16 ? ANN_F16 : 0;
  return ann_index_create(context, &shape, index, error);
}

static int is_build(scenario what) { return what >= BUILD_PLAIN && what <= BUILD_BORROW; }
static int is_save(scenario what) { return what >= SAVE && what <= SAVE_LAZY; }
static int is_open(scenario what) { return what >= OPEN_FULL && what <= OPEN_STREAM; }
static int needs_built(scenario what) {
  return (what >= SEARCH && what <= EXACT) || what == STATS || is_save(what);
}

static stage set_up(scenario what, uint32_t threads, int with_hook) {
  stage s = {NULL, NULL, threads};
  ann_context_params hooks = ANN_CONTEXT_PARAMS_INIT;
  hooks.allocate = with_hook ? hook_allocate : NULL;
  hooks.release = with_hook ? hook_release : NULL;
  CHECK_OK(ann_context_create(&hooks, &s.context, NULL));
  if (what == SAVE_LAZY) {
    ann_open_params lazy = ANN_OPEN_PARAMS_INIT;
    lazy.mode = ANN_OPEN_LAZY;
    CHECK_OK(ann_open(s.context, source_path, &lazy, &s.index, NULL, NULL));
    return s;
  }
  if (what != CREATE && what < OPEN_FULL) CHECK_OK(make_index(s.context, what, &s.index, NULL));
  if (needs_built(what)) {
    const ann_build_params params = build_params(what == SAVE_BORROWED ? BUILD_BORROW : BUILD_PLAIN, 1);
    CHECK_OK(ann_build(s.index, &rows_view, NULL, &params, NULL, NULL));
  }
  return s;
}

static void tear_down(stage* s) {
  ann_index_free(s->index);
  ann_context_free(s->context);
}

static ann_status act_save(stage* s, scenario what, uint64_t* result, ann_error* error) {
  ann_save_params params = ANN_SAVE_PARAMS_INIT;
  params.threads = s->threads;
  params.sync = ANN_OFF;
  if (what != SAVE_STREAM) {
    const uint64_t before = hash_file(target_path);
    const ann_status status = ann_save(s->index, target_path, &params, NULL, error);
    *result = hash_file(target_path);
    if (status != ANN_OK) CHECK(*result == before);
    return status;
  }
  stream to = {0, HASH_START};
  ann_writer writer = ANN_WRITER_INIT;
  writer.write = take;
  writer.user = &to;
  const ann_status status = ann_save_stream(s->index, &writer, &params, NULL, error);
  *result = to.hash;
  return status;
}

/* The opened index stays with the stage. */
static ann_status act_open(stage* s, scenario what, ann_error* error) {
  ann_open_params params = ANN_OPEN_PARAMS_INIT;
  params.threads = s->threads;
  params.mode = what == OPEN_LAZY || what == OPEN_MEMORY_LAZY ? ANN_OPEN_LAZY
                : what == OPEN_TRUSTED                        ? ANN_OPEN_TRUSTED
                                                              : ANN_OPEN_FULL;
  if (what <= OPEN_TRUSTED) return ann_open(s->context, source_path, &params, &s->index, NULL, error);
  if (what <= OPEN_MEMORY_LAZY)
    return ann_open_memory(s->context, file_bytes, file_count, &params, &s->index, NULL, error);
  stream from = {0, 0};
  ann_reader reader = ANN_READER_INIT;
  reader.read = give;
  reader.user = &from;
  reader.bytes = file_count;
  return ann_open_stream(s->context, &reader, &params, &s->index, NULL, error);
}

/* The call under test. `result` gets a hash of what it gave. */
static ann_status act(stage* s, scenario what, uint64_t* result, ann_error* error) {
  static uint64_t found_ids[Q * K];
  static float found_distances[Q * K];
  static uint32_t lists[N * 10];
  ann_status status;
  *result = HASH_START;
  if (what == CREATE) {
    ann_context* context = NULL;
    ann_monitor* monitor = NULL;
    ann_index* index = NULL;
    status = ann_context_create(NULL, &context, error);
    if (status == ANN_OK) status = ann_monitor_create(&monitor, error);
    if (status == ANN_OK) status = make_index(context, what, &index, error);
    ann_index_free(index);
    ann_monitor_free(monitor);
    ann_context_free(context);
  } else if (is_build(what)) {
    const ann_build_params params = build_params(what, s->threads);
    status = ann_build(s->index, &rows_view, what == BUILD_IDS ? ids : NULL, &params, NULL, error);
  } else if (what == SEARCH || what == SEARCH_ONE || what == EXACT) {
    ann_matrix view = queries_view;
    ann_results results = ANN_RESULTS_INIT;
    ann_search_params params = ANN_SEARCH_PARAMS_INIT;
    params.threads = s->threads;
    view.rows = what == SEARCH_ONE ? 1 : Q;
    results.k = K;
    results.rows = view.rows;
    results.ids = found_ids;
    results.distances = found_distances;
    memset(found_ids, 0, sizeof found_ids);
    memset(found_distances, 0, sizeof found_distances);
    status = what == EXACT ? ann_search_exact(s->index, &view, &params, &results, NULL, error)
                           : ann_search_batch(s->index, &view, &params, &results, NULL, error);
    *result = hash_bytes(*result, found_ids, sizeof found_ids);
    *result = hash_bytes(*result, found_distances, sizeof found_distances);
  } else if (what >= KNN_DESCENT && what <= KNN_CELLS) {
    ann_knn_params params = ANN_KNN_PARAMS_INIT;
    params.method = what == KNN_EXACT   ? ANN_KNN_EXACT
                    : what == KNN_CELLS ? ANN_KNN_CELLS
                                        : ANN_KNN_NN_DESCENT;
    params.k = 10;
    params.threads = s->threads;
    status = ann_knn_graph(s->context, &rows_view, &params, lists, NULL, NULL, error);
    *result = hash_bytes(*result, lists, sizeof lists);
  } else if (is_save(what)) {
    status = act_save(s, what, result, error);
  } else if (is_open(what)) {
    status = act_open(s, what, error);
  } else if (what == VERIFY) {
    ann_open_params params = ANN_OPEN_PARAMS_INIT;
    params.threads = s->threads;
    status = ann_verify(source_path, &params, NULL, error);
  } else if (what == FILE_INFO) {
    ann_file_description facts = ANN_FILE_DESCRIPTION_INIT;
    status = ann_file_info(source_path, &facts, error);
    *result = hash_bytes(*result, facts.content_id, sizeof facts.content_id);
  } else if (what == STATS) {
    ann_graph_stats stats = ANN_GRAPH_STATS_INIT;
    status = ann_index_graph_stats(s->index, &stats, error);
    *result = hash_bytes(*result, &stats, sizeof stats);
  } else {
    ann_index_params shape = ANN_INDEX_PARAMS_INIT;
    ann_plan plan = ANN_PLAN_INIT;
    ann_device_info device = ANN_DEVICE_INFO_INIT;
    shape.dim = DIM;
    status = ann_estimate(&shape, N, ANN_F32, NULL, &plan, error);
    if (status == ANN_OK) status = ann_device_get_info(ANN_DEVICE_CPU, &device, error);
    *result = hash_bytes(*result, &plan.peak_bytes, sizeof plan.peak_bytes);
  }
  return status;
}

/* Adds what the act has left in the handle. */
static uint64_t with_index(const stage* s, scenario what, uint64_t result) {
  if (!is_build(what) && !is_open(what)) return result;
  answers found = answers_make(Q, K);
  CHECK_OK(index_search(s->index, &queries, ANN_SEARCH_AUTO, 0, &found));
  result = answers_hash(result ^ index_hash(s->index), &found);
  answers_free(&found);
  return result;
}

/* --- Points ---------------------------------------------------------------------------------- */

/* Shared with the children. */
typedef struct board {
  int64_t at;       /* the point that is being tested */
  int64_t injected; /* points whose allocation was reached and refused */
  int64_t survived; /* of those, with everything as it should be */
  int64_t absorbed; /* of those, ANN_OK: done without */
  int done;
} board;
static board* shared;

/* One point; 1 if the allocation was reached. */
static int one_point(scenario what, uint32_t threads, int by_hook, int forever, int64_t point,
                     uint64_t wanted) {
  const uint64_t failed_before = checks_failed;
  source* s = by_hook ? &from_hook : &from_malloc;
  const int64_t hook_live = from_hook.live, malloc_live = from_malloc.live;
  stage on = set_up(what, threads, by_hook);
  ann_error error = ANN_ERROR_INIT;
  uint64_t result;
  const int64_t live_before = from_hook.live;
  alarm(20);
  arm(s, point, forever);
  const ann_status status = act(&on, what, &result, &error);
  const int reached = disarm(s) >= point;
  alarm(0);
  if (!reached) {
    tear_down(&on);
    return 0;
  }
  const char* mode = forever ? "for ever" : "once";
  const char* which = by_hook ? "hook" : "malloc";
  const int absorbed = status == ANN_OK && !by_hook;
  CHECK_SAY(status == ANN_NO_MEMORY || absorbed, "%s, %u threads, %s %lld %s: answers %s: %s", names[what],
            threads, which, (long long)point, mode, ann_status_name(status), error.message);
  CHECK_EQUAL(error.status, status);
  CHECK((error.message[0] != 0) == (status != ANN_OK));
  if (status == ANN_NO_MEMORY) {
    /* A search may keep the space it works in, which goes with the index. */
    if (!needs_built(what))
      CHECK_SAY(from_hook.live == live_before, "%s, %s %lld %s: %lld bytes are kept", names[what], which,
                (long long)point, mode, (long long)(from_hook.live - live_before));
    if (is_build(what)) {
      ann_index_info info = ANN_INDEX_INFO_INIT;
      CHECK_OK(ann_index_get_info(on.index, &info, NULL));
      CHECK(info.built == 0 && info.rows == 0);
    }
    if (is_open(what)) CHECK(on.index == NULL);
    if (is_save(what)) CHECK_EQUAL(temporary_files(), 0);
    /* The handle is as before: the same call works now. */
    CHECK_OK(act(&on, what, &result, &error));
  }
  CHECK_SAY(with_index(&on, what, result) == wanted, "%s, %u threads, %s %lld %s: another result",
            names[what], threads, which, (long long)point, mode);
  tear_down(&on);
  CHECK_SAY(from_hook.live == hook_live, "%s, %s %lld %s: %lld bytes leak", names[what], which,
            (long long)point, mode, (long long)(from_hook.live - hook_live));
  /* The C library keeps some blocks for the stacks of threads, so only a run without them counts
   * blocks to the last one. */
  if (threads == 1)
    CHECK_SAY(from_malloc.live <= malloc_live, "%s, %s %lld %s: %lld blocks leak", names[what], which,
              (long long)point, mode, (long long)(from_malloc.live - malloc_live));
  shared->injected++;
  shared->absorbed += absorbed;
  shared->survived += checks_failed == failed_before;
  return 1;
}

/* The points to test: of calls with the same stack the first two, or the first alone, under a sanitizer and with
 * two threads, whose schedule says which call a number is, so that others come by themselves; and the last call.
 * Builds of all kinds share most of their stacks. Of those that another scenario has met one of four fails again.
 * Under a sanitizer, where a calibrated build takes half a second, each stack fails in one of four ways: once or for
 * ever, with one thread or two. */
typedef struct points {
  uint64_t stacks[CALLS_WATCHED];
  uint8_t due[CALLS_WATCHED];
  int64_t watched;
  uint64_t met[CALLS_WATCHED]; /* stacks of earlier scenarios, with how they were made to fail */
  int64_t met_count;
} points;
static points known;

static int64_t times_in(const uint64_t* stacks, int64_t count, uint64_t stack) {
  int64_t times = 0;
  for (int64_t i = 0; i < count; i++) times += stacks[i] == stack;
  return times;
}

static void choose_points(uint32_t threads, int by_hook, int forever) {
  const int64_t most = threads == 1 && test_scale() == 1 ? 2 : 1;
  const int64_t met_count = known.met_count;
  int64_t again = 0, distinct = 0;
  for (int64_t i = 0; i < known.watched; i++) {
    const int64_t before = times_in(known.stacks, i, known.stacks[i]);
    const uint64_t met = known.stacks[i] + threads * 4 + (uint64_t)(by_hook * 2 + forever);
    distinct += before == 0;
    known.due[i] = before < most && (test_scale() == 1 || (distinct + 2 * forever + threads) % 4 == 0);
    known.due[i] |= i == known.watched - 1;
    if (times_in(known.met, met_count, met) > 0)
      known.due[i] = known.due[i] && again++ % 4 == 0;
    else if (before == 0 && known.met_count < CALLS_WATCHED)
      known.met[known.met_count++] = met;
  }
}

/* Behind the calls that were watched there may be others, with two threads. */
static int64_t point_from(int64_t point) {
  while (point <= known.watched && !known.due[point - 1]) point++;
  return point;
}

static void all_points(scenario what, uint32_t threads, int by_hook, int forever) {
  /* The result without failures; twice, so that what is kept from a first call is there. */
  source* s = by_hook ? &from_hook : &from_malloc;
  uint64_t wanted = 0;
  for (int i = 0; i < 2; i++) {
    stage on = set_up(what, threads, by_hook);
    s->stacks = known.stacks;
    arm(s, 0, 0);
    CHECK_OK(act(&on, what, &wanted, NULL));
    known.watched = disarm(s);
    s->stacks = NULL;
    wanted = with_index(&on, what, wanted);
    tear_down(&on);
  }
  if (!CHECK(known.watched <= CALLS_WATCHED)) return;
  choose_points(threads, by_hook, forever);
  memset(shared, 0, sizeof *shared);
  shared->at = 1;
  int deaths = 0;
  while (!shared->done && deaths < 20) {
    fflush(stdout);
    fflush(stderr);
    const pid_t pid = fork();
    if (pid == 0) {
      checks_failed = 0;
      /* The child's own workers are made by its first calls, and stay. */
      for (int i = 0; i < 2; i++) {
        stage on = set_up(what, threads, by_hook);
        uint64_t unused = 0;
        CHECK_OK(act(&on, what, &unused, NULL));
        with_index(&on, what, unused);
        tear_down(&on);
      }
      /* A throw takes memory of its own the first time; let that be behind us. */
      const board before = *shared;
      one_point(what, threads, by_hook, 0, 1, wanted);
      *shared = before;
      for (;; shared->at = point_from(shared->at + 1))
        if (!one_point(what, threads, by_hook, forever, shared->at, wanted)) break;
      shared->done = 1;
      fflush(stderr);
      _exit(checks_failed ? 1 : 0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    if (!shared->done) {
      deaths++;
      CHECK_SAY(0, "%s, %u threads, %s %lld %s: the process dies by %s", names[what], threads,
                by_hook ? "hook" : "malloc", (long long)shared->at, forever ? "for ever" : "once",
                WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "an exit");
      shared->injected++;
      shared->at = point_from(shared->at + 1);
    }
  }
}

int main(int argc, char** argv) {
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  rows = vectors_make(DATA_NORMAL, ANN_F32, N, DIM, 1);
  queries = vectors_make(DATA_NORMAL, ANN_F32, Q, DIM, 2);
  rows_view = vectors_view(&rows);
  queries_view = vectors_view(&queries);
  for (uint64_t i = 0; i < N; i++) ids[i] = 5000 - 3 * i;
  make_files();
  (void)stack_here(); /* takes memory of its own the first time */
  const int verbose = argc > 1 && strcmp(argv[1], "-v") == 0;
  long long injected = 0, survived = 0, absorbed = 0;
  for (int by_hook = 1; by_hook >= 0; by_hook--) {
    if (!by_hook && !MALLOC_REPLACED) continue;
    for (int what = 0; what < SCENARIOS; what++)
      for (uint32_t threads = 1; threads <= 2; threads++)
        for (int forever = 0; forever < 2; forever++) {
          if (threads == 2 && (what == CREATE || what == SEARCH_ONE || what == STATS || what == ESTIMATE ||
                               what == FILE_INFO || what == OPEN_STREAM))
            continue;
          /* No context reaches these: they take nothing from its hook. */
          if (by_hook && (what == VERIFY || what == FILE_INFO)) continue;
          all_points((scenario)what, threads, by_hook, forever);
          injected += shared->injected;
          survived += shared->survived;
          absorbed += shared->absorbed;
          if (verbose)
            printf("  %-6s %-24s %u threads, %-8s: %lld injected, %lld survived, %lld done without\n",
                   by_hook ? "hook" : "malloc", names[what], threads, forever ? "for ever" : "once",
                   (long long)shared->injected, (long long)shared->survived, (long long)shared->absorbed);
        }
  }
  remove_files();
  vectors_free(&rows);
  vectors_free(&queries);
  /* Nothing injected would prove nothing. */
  CHECK(injected >= 100);
  CHECK(survived == injected);
  printf("allocation_fault: %lld injected failures, %lld survived, %lld done without%s\n", injected, survived,
         absorbed, MALLOC_REPLACED ? "" : " (the hook only: malloc is the sanitizer's)");
  return checks_failed == 0 && survived == injected ? 0 : 1;
}
