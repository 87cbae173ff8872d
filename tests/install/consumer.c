/* A program of somebody else: finds the library through pkg-config or CMake, builds, searches. */
#include <ann.h>
#include <stdio.h>

int main(void) {
  enum { N = 100, DIM = 3, K = 2 };
  float data[N * DIM];
  uint64_t ids[N * K];
  for (int i = 0; i < N * DIM; i++) data[i] = (float)((i * 7919) % 1009);
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  ann_matrix rows = ANN_MATRIX_INIT;
  ann_results found = ANN_RESULTS_INIT;
  ann_error error = ANN_ERROR_INIT;
  ann_index *index = NULL;
  shape.dim = rows.dim = DIM;
  rows.element = ANN_F32;
  rows.data = data;
  rows.rows = found.rows = N;
  found.k = K;
  found.ids = ids;
  if (ann_index_create(NULL, &shape, &index, &error) != ANN_OK ||
      ann_build(index, &rows, NULL, NULL, NULL, &error) != ANN_OK ||
      ann_search_batch(index, &rows, NULL, &found, NULL, &error) != ANN_OK) {
    fprintf(stderr, "%s: %s\n", ann_status_name(error.status), error.message);
    return 1;
  }
  ann_index_free(index);
  for (int i = 0; i < N; i++)
    if (ids[i * K] != (uint64_t)i) return 2;
  printf("%s\n", ann_version());
  return 0;
}
