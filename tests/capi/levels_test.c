/* Proves that every instruction set gives the same bits: this program runs itself once for each
 * level of GANNET_SIMD and compares hashes of graphs and answers, a line for each element and
 * metric. The child is started with the argument "hash". */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ann.h"
#include "check.h"
#include "refuse.h"
#include "support.h"

static int child(void) {
  printf("%s\n", ann_build_info());
  for (int e = 0; e < ELEMENTS; e++)
    for (int m = 0; m < METRICS; m++) {
      uint64_t graphs = HASH_START, all = HASH_START;
      const uint32_t dims[] = {1, 7, 16, 17, 31, 33, 64, 65, 127, 130, 257};
      for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
        if (!test_takes(e + m + (int)i)) continue;
        vectors rows =
            vectors_make(i % 2 ? DATA_NORMAL : DATA_CLUSTERED, all_elements[e], 120, dims[i], i + 1);
        vectors queries =
            vectors_make(i % 2 ? DATA_NORMAL : DATA_CLUSTERED, all_elements[e], 20, dims[i], i + 1);
        ann_build_params params = ANN_BUILD_PARAMS_INIT;
        params.degree = 16;
        params.knn = i % 3 ? ANN_KNN_EXACT : ANN_KNN_NN_DESCENT;
        ann_index *index = index_build(all_metrics[m], &rows, &params);
        if (!index) return 1;
        const uint64_t graph = index_hash(index);
        graphs = hash_bytes(graphs, &graph, sizeof graph);
        answers found = answers_make(20, 12);
        if (index_search(index, &queries, ANN_SEARCH_AUTO, 0, &found) != ANN_OK) return 1;
        all = answers_hash(all, &found);
        if (index_search(index, &queries, ANN_SEARCH_EXACT, 0, &found) != ANN_OK) return 1;
        all = answers_hash(all, &found);
        answers_free(&found);
        /* Queries of another element than the rows, where that is allowed. */
        if (!element_is_integer(all_elements[e]))
          for (int q = 0; q < ELEMENTS; q++) {
            vectors other = vectors_make(DATA_NORMAL, all_elements[q], 5, dims[i], 77);
            answers mixed = answers_make(5, 12);
            if (index_search(index, &other, ANN_SEARCH_EXACT, 0, &mixed) != ANN_OK) return 1;
            all = answers_hash(all, &mixed);
            answers_free(&mixed);
            vectors_free(&other);
          }
        ann_index_free(index);
        vectors_free(&rows);
        vectors_free(&queries);
      }
      /* Several cells, which take their own loops. */
      if (test_takes(e + m)) {
        vectors many = vectors_make(DATA_CLUSTERED, all_elements[e], 900, 33, 5);
        ann_build_params cells = ANN_BUILD_PARAMS_INIT;
        cells.knn = ANN_KNN_CELLS;
        cells.calibrate = ANN_OFF;
        ann_index *index = index_build(all_metrics[m], &many, &cells);
        if (!index) return 1;
        const uint64_t graph = index_hash(index);
        graphs = hash_bytes(graphs, &graph, sizeof graph);
        ann_index_free(index);
        vectors_free(&many);
      }
      printf("%s %s: graphs %016llx, answers %016llx\n", element_name(all_elements[e]),
             metric_name(all_metrics[m]), (unsigned long long)graphs, (unsigned long long)all);
    }
  return 0;
}

/* Runs this program with GANNET_SIMD set to `level` (NULL: unset); gives what it printed. */
static char *output_of(const char *self, const char *level) {
  int ends[2];
  if (pipe(ends) != 0) return NULL;
  const pid_t pid = fork();
  if (pid == 0) {
    if (level)
      setenv("GANNET_SIMD", level, 1);
    else
      unsetenv("GANNET_SIMD");
    dup2(ends[1], 1);
    close(ends[0]);
    close(ends[1]);
    execl(self, self, "hash", (char *)NULL);
    _exit(127);
  }
  close(ends[1]);
  size_t size = 0, room = 1 << 16;
  char *text = malloc(room + 1);
  for (ssize_t got; (got = read(ends[0], text + size, room - size)) > 0;) size += (size_t)got;
  text[size] = 0;
  close(ends[0]);
  int status = 0;
  waitpid(pid, &status, 0);
  if (!CHECK_SAY(WIFEXITED(status) && WEXITSTATUS(status) == 0, "level %s: the child ends with %x",
                 level ? level : "(unset)", status)) {
    free(text);
    return NULL;
  }
  return text;
}

static int cpu_has(const char *level) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (strcmp(level, "avx2") == 0) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (strcmp(level, "avx512") == 0)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (strcmp(level, "avx512vnni") == 0) return cpu_has("avx512") && __builtin_cpu_supports("avx512vnni");
#endif
#if defined(__aarch64__)
  if (strcmp(level, "neon") == 0) return 1;
#endif
  return strcmp(level, "portable") == 0;
}

int main(int argc, char **argv) {
  if (argc > 1) return child();
  const char *const levels[] = {"portable", "avx2", "avx512", "avx512vnni", "neon", NULL, "no such level"};
  char *reference = NULL;
  int compared = 0;
  for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
    char *text = output_of("/proc/self/exe", levels[i]);
    if (!text) continue;
    char *hashes = strchr(text, '\n'); /* the first line names the level */
    if (!CHECK(hashes != NULL)) continue;
    *hashes++ = 0;
    if (levels[i] && i < 5 && cpu_has(levels[i])) {
      /* "avx512" is a part of "avx512vnni", so the end of the word counts. */
      const char *at = strstr(text, levels[i]);
      CHECK_SAY(at && !isalnum((unsigned char)at[strlen(levels[i])]), "GANNET_SIMD=%s runs \"%s\"", levels[i],
                text);
    }
    if (!reference) {
      reference = strdup(hashes);
      printf("%s", reference);
    }
    /* Line by line, so that the element and metric at fault are named. */
    char *rest_a = reference, *rest_b = hashes;
    while (*rest_a || *rest_b) {
      const size_t a = strcspn(rest_a, "\n"), b = strcspn(rest_b, "\n");
      CHECK_SAY(a == b && memcmp(rest_a, rest_b, a) == 0, "GANNET_SIMD=%s: \"%.*s\", portable: \"%.*s\"",
                levels[i] ? levels[i] : "(unset)", (int)b, rest_b, (int)a, rest_a);
      rest_a += a + (rest_a[a] == '\n');
      rest_b += b + (rest_b[b] == '\n');
      compared++;
    }
    free(text);
  }
  (void)argv;
  CHECK(compared >= 6 * ELEMENTS * METRICS);
  free(reference);
  return finish("levels");
}
