/* Proves that a child process may search an index that its parent made, also after the parent has
 * searched with several threads, and that parent and child then go their own ways. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ann.h"
#include "check.h"
#include "support.h"

enum { N = 2000, DIM = 16, Q = 300, K = 10 };

static int same(const ann_index *index, const vectors *queries, const answers *wanted, uint32_t threads,
                int exact) {
  answers found = answers_make(Q, K);
  ann_results results = answers_view(&found);
  const ann_matrix view = vectors_view(queries);
  ann_search_params params = ANN_SEARCH_PARAMS_INIT;
  params.threads = threads;
  const ann_status status = exact ? ann_search_exact(index, &view, &params, &results, NULL, NULL)
                                  : ann_search_batch(index, &view, &params, &results, NULL, NULL);
  const int good = status == ANN_OK && answers_equal(&found, wanted);
  answers_free(&found);
  return good;
}

int main(void) {
  vectors rows = vectors_make(DATA_NORMAL, ANN_F32, N, DIM, 1);
  vectors queries = vectors_make(DATA_NORMAL, ANN_F32, Q, DIM, 2);
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.threads = 2;
  ann_index *index = index_build(ANN_METRIC_L2, &rows, &params);
  answers walked = answers_make(Q, K), exact = answers_make(Q, K);
  CHECK_OK(index_search(index, &queries, ANN_SEARCH_AUTO, 0, &walked));
  CHECK_OK(index_search(index, &queries, ANN_SEARCH_EXACT, 0, &exact));

  for (int round = 0; round < 8; round++) {
    fflush(stdout);
    fflush(stderr);
    const pid_t pid = fork();
    if (pid == 0) {
      alarm(60); /* a child that waits for threads it does not have would wait for ever */
      const uint32_t threads = 1 + (uint32_t)round % 4;
      int good = same(index, &queries, &walked, threads, 0) && same(index, &queries, &exact, threads, 1);
      /* The child may build, too, and free what it inherited. */
      if (round >= 4) {
        ann_index *own = index_build(ANN_METRIC_L2, &rows, &params);
        good = good && own && index_hash(own) == index_hash(index);
        ann_index_free(own);
        ann_index_free(index);
      }
      _exit(good ? 0 : 1);
    }
    CHECK(pid > 0);
    CHECK(same(index, &queries, &walked, 2, 0)); /* the parent meanwhile */
    int status = 0;
    waitpid(pid, &status, 0);
    CHECK_SAY(WIFEXITED(status) && WEXITSTATUS(status) == 0, "round %d: the child ends with %x", round,
              status);
    CHECK(same(index, &queries, &exact, 2, 1));
  }
  answers_free(&walked);
  answers_free(&exact);
  ann_index_free(index);
  vectors_free(&rows);
  vectors_free(&queries);
  return finish("fork");
}
