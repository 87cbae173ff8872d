/* gpu.c: an index on a CUDA device, in C11. Without a device it says so and ends with success.
 *
 *   cc -std=c11 gpu.c -lgannet                                          host memory alone
 *   cc -std=c11 -DWITH_CUDA_RUNTIME gpu.c -lgannet -lcudart             and device memory, on a stream
 */
#include <stdio.h>
#include <stdlib.h>

#include "ann.h"

#ifdef WITH_CUDA_RUNTIME
#include <cuda_runtime_api.h>
#endif

enum { ROWS = 100000, DIM = 64, QUERIES = 1000, K = 10 };
static const int32_t device = ANN_DEVICE_CUDA; /* + i: the device i */

static void check(ann_status status, const ann_error *error) {
  if (status == ANN_OK) return;
  fprintf(stderr, "%s: %s\n", ann_status_name(status), error->message);
  exit(1);
}

static float *random_values(size_t count, uint32_t seed) {
  float *values = malloc(count * sizeof *values);
  if (values == NULL) exit(1);
  for (size_t i = 0; i < count; ++i) {
    seed = seed * 1664525u + 1013904223u;
    values[i] = (float)(seed >> 8) / 16777216.0f;
  }
  return values;
}

static ann_matrix view(const float *values, uint64_t rows) {
  ann_matrix matrix = ANN_MATRIX_INIT;
  matrix.element = ANN_F32;
  matrix.data = values;
  matrix.rows = rows;
  matrix.dim = DIM;
  return matrix;
}

static double recall(const uint64_t *found, const uint64_t *truth) {
  int hits = 0;
  for (int q = 0; q < QUERIES; ++q)
    for (int i = 0; i < K; ++i)
      for (int j = 0; j < K; ++j) hits += found[q * K + i] == truth[q * K + j];
  return (double)hits / (QUERIES * K);
}

#ifdef WITH_CUDA_RUNTIME
static void cuda(cudaError_t error) {
  if (error == cudaSuccess) return;
  fprintf(stderr, "%s\n", cudaGetErrorString(error));
  exit(1);
}

/* Queries and results in device memory; the call queues its work on a stream and returns. */
static void search_on_a_stream(const ann_index *index, const float *queries, uint64_t *ids) {
  const size_t query_bytes = sizeof(float) * QUERIES * DIM, id_bytes = sizeof(uint64_t) * QUERIES * K;
  void *there = NULL, *found = NULL;
  cudaStream_t stream;
  cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  cuda(cudaMalloc(&there, query_bytes));
  cuda(cudaMalloc(&found, id_bytes));
  cuda(cudaMemcpyAsync(there, queries, query_bytes, cudaMemcpyHostToDevice, stream));

  ann_matrix matrix = view(there, QUERIES);
  matrix.space = device;
  ann_results results = ANN_RESULTS_INIT;
  results.k = K;
  results.rows = QUERIES;
  results.ids = found;
  results.space = device;
  ann_search_params params = ANN_SEARCH_PARAMS_INIT;
  params.stream = stream;
  ann_error error = ANN_ERROR_INIT;
  check(ann_search_batch(index, &matrix, &params, &results, NULL, &error), &error);

  /* Buffers stay until the stream has come this far. */
  cuda(cudaMemcpyAsync(ids, found, id_bytes, cudaMemcpyDeviceToHost, stream));
  cuda(cudaStreamSynchronize(stream));
  cuda(cudaFree(there));
  cuda(cudaFree(found));
  cuda(cudaStreamDestroy(stream));
}
#endif

int main(void) {
  ann_error error = ANN_ERROR_INIT;
  uint32_t devices = 0;
  const char *reason = NULL;
  check(ann_device_count(&devices, &reason, &error), &error);
  if (devices == 1) { /* the CPU */
    printf("no CUDA device here: %s\n", reason);
    return 0;
  }
  ann_device_info info = ANN_DEVICE_INFO_INIT;
  check(ann_device_get_info(device, &info, &error), &error);
  printf("%s, %.0f of %.0f MiB free\n", info.name, (double)info.memory_free / (1 << 20),
         (double)info.memory_total / (1 << 20));

  float *rows = random_values((size_t)ROWS * DIM, 1), *queries = random_values((size_t)QUERIES * DIM, 2);
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  shape.dim = DIM;
  ann_index *index = NULL;
  check(ann_index_create(NULL, &shape, &index, &error), &error);
  ann_build_params params = ANN_BUILD_PARAMS_INIT;
  params.device = device;
  const ann_matrix all = view(rows, ROWS), asked = view(queries, QUERIES);
  check(ann_build(index, &all, NULL, &params, NULL, &error), &error);
  ann_index_info built = ANN_INDEX_INFO_INIT;
  check(ann_index_get_info(index, &built, &error), &error);
  printf("%llu rows built in %.2f s\n", (unsigned long long)built.rows, built.build_seconds);

  /* The build has left its copy there already; an index that was opened or built elsewhere has none. */
  check(ann_index_place(index, device, NULL, &error), &error);

  uint64_t *found = malloc(sizeof(uint64_t) * QUERIES * K), *truth = malloc(sizeof(uint64_t) * QUERIES * K);
  if (found == NULL || truth == NULL) return 1;
  ann_results results = ANN_RESULTS_INIT;
  results.k = K;
  results.rows = QUERIES;
  results.ids = truth;
  ann_search_params there = ANN_SEARCH_PARAMS_INIT;
  there.device = device;
  check(ann_search_exact(index, &asked, &there, &results, NULL, &error), &error);
  results.ids = found;
  check(ann_search_batch(index, &asked, &there, &results, NULL, &error), &error);
  double worst = recall(found, truth);
  printf("from host memory: recall@%d is %.3f\n", K, worst);
#ifdef WITH_CUDA_RUNTIME
  search_on_a_stream(index, queries, found);
  const double queued = recall(found, truth);
  printf("queued on a stream: recall@%d is %.3f\n", K, queued);
  if (queued < worst) worst = queued;
#endif

  /* The copy goes with the index, or earlier. */
  check(ann_index_evict(index, device, &error), &error);
  ann_index_free(index);
  free(rows);
  free(queries);
  free(found);
  free(truth);
  return worst > 0.9 ? 0 : 1;
}
