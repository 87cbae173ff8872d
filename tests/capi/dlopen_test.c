/* Proves that the library can be opened at run time, by the path in the first argument: every
 * function of the header is there, an index can be made, built, searched and freed, and loading and
 * closing a hundred times leaks no descriptors and leaves no threads. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "ann.h"
#include "check.h"

/* Only types of the header are used here; the program is not linked with the library, so the
 * names for statuses in the checks come from dlsym as well. */
typedef const char *(*name_function)(ann_status);
static name_function status_name;
#define ann_status_name(status) (status_name ? status_name(status) : "?")

static void *library;

static void *function(const char *name) {
  dlerror();
  void *address = dlsym(library, name);
  CHECK_SAY(address != NULL, "%s: %s", name, dlerror());
  return address;
}

static int entries(const char *folder) {
  int count = 0;
  DIR *handle = opendir(folder);
  if (!handle) return -1;
  while (readdir(handle)) count++;
  closedir(handle);
  return count;
}

/* ISO C has no cast from an object to a function pointer; POSIX has this. */
#define LOAD(variable, name) (*(void **)&variable = function(name))

static void use_once(int round) {
  enum { N = 120, DIM = 8, K = 4 };
  ann_status (*create)(const ann_context *, const ann_index_params *, ann_index **, ann_error *);
  ann_status (*build)(ann_index *, const ann_matrix *, const uint64_t *, const ann_build_params *,
                      ann_monitor *, ann_error *);
  ann_status (*search)(const ann_index *, const ann_matrix *, const ann_search_params *, ann_results *,
                       ann_monitor *, ann_error *);
  void (*release)(ann_index *);
  uint32_t (*abi)(void);
  LOAD(create, "ann_index_create");
  LOAD(build, "ann_build");
  LOAD(search, "ann_search_batch");
  LOAD(release, "ann_index_free");
  LOAD(abi, "ann_abi_version");
  LOAD(status_name, "ann_status_name");
  if (checks_failed) return;
  CHECK_EQUAL(abi() >> 16, ANN_ABI_VERSION >> 16);
  static float data[N * DIM];
  unsigned state = 12345;
  for (int i = 0; i < N * DIM; i++) {
    state = state * 1103515245u + 12345u;
    data[i] = (float)(state >> 16) / 65536.0f;
  }
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  shape.dim = DIM;
  ann_index *index = NULL;
  CHECK_OK(create(NULL, &shape, &index, NULL));
  ann_matrix rows = ANN_MATRIX_INIT;
  rows.element = ANN_F32;
  rows.data = data;
  rows.rows = N;
  rows.dim = DIM;
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.threads = 1 + (uint32_t)round % 2;
  CHECK_OK(build(index, &rows, NULL, &params, NULL, NULL));
  static uint64_t ids[N * K];
  ann_results found = ANN_RESULTS_INIT;
  found.k = K;
  found.rows = N;
  found.ids = ids;
  CHECK_OK(search(index, &rows, NULL, &found, NULL, NULL));
  int right = 0;
  for (int i = 0; i < N; i++) right += ids[i * K] == (uint64_t)i;
  CHECK_SAY(right >= N - 2, "%d of %d rows find themselves", right, N);
  release(index);
}

int main(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: dlopen_test path-of-the-library\n");
    return 2;
  }
  static const char *const names[] = {
      "ann_version",        "ann_abi_version",       "ann_build_info",           "ann_status_name",
      "ann_context_create", "ann_context_free",      "ann_monitor_create",       "ann_monitor_free",
      "ann_monitor_cancel", "ann_monitor_reset",     "ann_monitor_set_deadline", "ann_monitor_progress",
      "ann_device_count",   "ann_device_get_info",   "ann_index_create",         "ann_index_free",
      "ann_index_get_info", "ann_index_get",         "ann_index_get_batch",      "ann_index_ids",
      "ann_index_graph",    "ann_index_graph_stats", "ann_index_place",          "ann_index_evict",
      "ann_build",          "ann_estimate",          "ann_search_batch",         "ann_search_exact",
      "ann_index_beam",     "ann_knn_graph"};
#if defined(__x86_64__)
  const unsigned mode = _mm_getcsr() & ~0x3fu; /* without the sticky flags */
#endif
  int files = 0, threads = 0;
  for (int round = 0; round < 100; round++) {
    library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!CHECK_SAY(library != NULL, "%s", dlerror())) break;
#if defined(__x86_64__)
    CHECK_SAY((_mm_getcsr() & ~0x3fu) == mode, "loading sets the control word to %x", _mm_getcsr());
#endif
    for (size_t i = 0; round == 0 && i < sizeof names / sizeof names[0]; i++) function(names[i]);
    CHECK(dlsym(RTLD_DEFAULT, "ann_build") == NULL); /* local means local */
    use_once(round);
    status_name = NULL;
    CHECK_EQUAL(dlclose(library), 0);
    if (round == 1) {
      files = entries("/proc/self/fd");
      threads = entries("/proc/self/task");
    }
  }
  CHECK_EQUAL(entries("/proc/self/fd"), files);
  /* Workers are made when as many tasks first meet at once, which may be in a later round. */
  const int workers = entries("/proc/self/task") - threads;
  CHECK_SAY(workers < 8, "%d threads more after 98 rounds", workers);
  return finish("dlopen");
}
