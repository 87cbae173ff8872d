/* quickstart.c: builds an index, searches it and compares with exact search, in C11.
 *
 *   quickstart_c                          on random vectors
 *   quickstart_c ROWS.u8bin QUERIES.u8bin on two files: uint32 rows, uint32 dim, then the bytes
 *
 *   cc -std=c11 quickstart.c -lgannet
 */
#include <stdio.h>
#include <stdlib.h>

#include "ann.h"

enum { K = 10 };

static void *need(void *memory) {
  if (memory == NULL) {
    fprintf(stderr, "out of memory\n");
    exit(1);
  }
  return memory;
}

static void check(ann_status status, const ann_error *error) {
  if (status == ANN_OK) return;
  fprintf(stderr, "%s: %s\n", ann_status_name(status), error->message);
  exit(1);
}

static ann_matrix random_vectors(uint32_t rows, uint32_t dim, uint32_t seed) {
  float *values = need(malloc(sizeof(float) * rows * dim));
  for (size_t i = 0; i < (size_t)rows * dim; ++i) {
    seed = seed * 1664525u + 1013904223u;
    values[i] = (float)(seed >> 8) / 16777216.0f;
  }
  ann_matrix out = ANN_MATRIX_INIT;
  out.element = ANN_F32;
  out.data = values;
  out.rows = rows;
  out.dim = dim;
  return out;
}

static ann_matrix read_u8bin(const char *path) {
  FILE *file = fopen(path, "rb");
  uint32_t head[2]; /* rows, dim */
  if (file == NULL || fread(head, sizeof head, 1, file) != 1 || head[1] == 0 || head[1] > ANN_DIM_MAX ||
      head[0] == 0 || head[0] > ANN_ROWS_MAX) {
    fprintf(stderr, "%s: not a readable .u8bin file\n", path);
    exit(1);
  }
  size_t bytes = (size_t)head[0] * head[1];
  uint8_t *values = need(malloc(bytes));
  if (fread(values, 1, bytes, file) != bytes) {
    fprintf(stderr, "%s: shorter than its head says\n", path);
    exit(1);
  }
  fclose(file);
  ann_matrix out = ANN_MATRIX_INIT;
  out.element = ANN_U8;
  out.data = values;
  out.rows = head[0];
  out.dim = head[1];
  return out;
}

static ann_results results_for(uint64_t queries) {
  ann_results out = ANN_RESULTS_INIT;
  out.k = K;
  out.rows = queries;
  out.ids = need(malloc(sizeof(uint64_t) * queries * K));
  out.distances = need(malloc(sizeof(float) * queries * K));
  return out;
}

int main(int argc, char **argv) {
  if (argc != 1 && argc != 3) {
    fprintf(stderr, "usage: %s [ROWS.u8bin QUERIES.u8bin]\n", argv[0]);
    return 2;
  }
  ann_matrix rows = argc == 3 ? read_u8bin(argv[1]) : random_vectors(5000, 16, 1);
  ann_matrix queries = argc == 3 ? read_u8bin(argv[2]) : random_vectors(100, 16, 2);
  ann_error error = ANN_ERROR_INIT;

  /* Build. Every parameter that is zero is chosen by the library; NULL is a struct of zeros. */
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  shape.dim = rows.dim;
  ann_index *index = NULL;
  check(ann_index_create(NULL, &shape, &index, &error), &error);
  check(ann_build(index, &rows, NULL, NULL, NULL, &error), &error);

  /* Search on the graph, then by comparing with every row. */
  ann_search_params params = ANN_SEARCH_PARAMS_INIT;
  params.recall = 0.95f;
  ann_results found = results_for(queries.rows);
  ann_results exact = results_for(queries.rows);
  check(ann_search_batch(index, &queries, &params, &found, NULL, &error), &error);
  check(ann_search_exact(index, &queries, NULL, &exact, NULL, &error), &error);

  for (int i = 0; i < K && found.ids[i] != ANN_ID_NONE; ++i) {
    printf("neighbour %2d of query 0: row %6llu at distance %g\n", i + 1, (unsigned long long)found.ids[i],
           (double)found.distances[i]);
  }
  uint64_t hits = 0;
  uint64_t wanted = 0;
  for (uint64_t q = 0; q < queries.rows; ++q) {
    for (int i = 0; i < K; ++i) {
      if (exact.ids[q * K + i] == ANN_ID_NONE) break;
      ++wanted;
      for (int j = 0; j < K; ++j) hits += found.ids[q * K + j] == exact.ids[q * K + i];
    }
  }
  printf("recall@%d over %llu queries: %.4f\n", K, (unsigned long long)queries.rows,
         wanted == 0 ? 1.0 : (double)hits / (double)wanted);
  printf("distances computed per query: %.0f of %llu\n", (double)found.distance_count / (double)queries.rows,
         (unsigned long long)rows.rows);

  ann_index_free(index);
  free(found.ids);
  free(found.distances);
  free(exact.ids);
  free(exact.distances);
  free((void *)rows.data);
  free((void *)queries.data);
  return 0;
}
