/* bridge.h: the parts of calls of ann.h that Go may not do itself.
 *
 * Go memory may be given to C for the time of a call, but a struct in Go memory may not hold
 * pointers to other Go memory. ann_matrix, ann_results and ann_build_params hold such pointers, so
 * these functions take the pointers one by one and fill the structs on the C stack.
 *
 * Vectors come as `const uint8_t *` rather than `const void *`: Go then knows that no pointer hides
 * behind it and skips a check that would refuse a vector inside a larger struct.
 */
#ifndef GANNET_GO_BRIDGE_H
#define GANNET_GO_BRIDGE_H

#include "ann.h"

typedef struct gn_rows {
  int32_t element;
  uint32_t dim;
  uint64_t rows;
  uint64_t stride;   /* bytes; 0: packed */
  int32_t space;     /* 0: the pointer beside this is host memory; else `address` is in a device's memory */
  uintptr_t address; /* a number, for Go: its pointers are of host memory */
} gn_rows;

/* Results in memory of a device. */
typedef struct gn_device_results {
  uint32_t k;
  int32_t space;
  uint64_t rows;
  uintptr_t ids, distances, counts, status;
} gn_device_results;

static inline ann_matrix gn_matrix(gn_rows shape, const uint8_t *data) {
  ann_matrix matrix = ANN_MATRIX_INIT;
  matrix.element = shape.element;
  matrix.data = shape.space != 0 ? (const void *)shape.address : data;
  matrix.rows = shape.rows;
  matrix.dim = shape.dim;
  matrix.space = shape.space;
  matrix.row_stride = shape.stride;
  return matrix;
}

static inline ann_build_params gn_build_params(const ann_build_params *given, const uint32_t *knn_graph,
                                               const ann_matrix *calibration) {
  ann_build_params params = *given;
  params.struct_size = sizeof params;
  params.knn_graph = knn_graph;
  params.calibration = calibration->dim ? calibration : NULL;
  return params;
}

static inline ann_status gn_create(uint32_t dim, int32_t metric, int32_t element, ann_index **out,
                                   ann_error *error) {
  ann_index_params params = ANN_INDEX_PARAMS_INIT;
  params.dim = dim;
  params.metric = metric;
  params.element = element;
  error->struct_size = sizeof *error;
  return ann_index_create(NULL, &params, out, error);
}

static inline ann_status gn_build(ann_index *index, gn_rows shape, const uint8_t *data, const uint64_t *ids,
                                  const ann_build_params *given, const uint32_t *knn_graph,
                                  gn_rows calibration_shape, const uint8_t *calibration_data,
                                  ann_monitor *monitor, ann_error *error) {
  ann_matrix rows = gn_matrix(shape, data);
  ann_matrix calibration = gn_matrix(calibration_shape, calibration_data);
  ann_build_params params = gn_build_params(given, knn_graph, &calibration);
  error->struct_size = sizeof *error;
  return ann_build(index, &rows, ids, &params, monitor, error);
}

static inline ann_status gn_estimate(uint32_t dim, int32_t metric, int32_t stored, uint64_t rows,
                                     int32_t element, const ann_build_params *given,
                                     const uint32_t *knn_graph, gn_rows calibration_shape,
                                     const uint8_t *calibration_data, ann_plan *out, ann_error *error) {
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  shape.dim = dim;
  shape.metric = metric;
  shape.element = stored;
  ann_matrix calibration = gn_matrix(calibration_shape, calibration_data);
  ann_build_params params = gn_build_params(given, knn_graph, &calibration);
  out->struct_size = sizeof *out;
  error->struct_size = sizeof *error;
  return ann_estimate(&shape, rows, element, &params, out, error);
}

/* `work` gets distance_count, expansion_count, the procedure that answered and its warps for a query, `recall`
 * what it promises. */
static inline ann_status gn_search(const ann_index *index, int exact, gn_rows shape, const uint8_t *data,
                                   const ann_search_params *given, uint32_t k, uint64_t *ids,
                                   float *distances, uint32_t *counts, ann_status *status, uint64_t *work,
                                   float *recall, ann_monitor *monitor, ann_error *error) {
  ann_matrix queries = gn_matrix(shape, data);
  ann_search_params params = *given;
  ann_results results = ANN_RESULTS_INIT;
  ann_status answer;
  params.struct_size = sizeof params;
  results.k = k;
  results.rows = shape.rows;
  results.ids = ids;
  results.distances = distances;
  results.counts = counts;
  results.status = status;
  error->struct_size = sizeof *error;
  answer = exact ? ann_search_exact(index, &queries, &params, &results, monitor, error)
                 : ann_search_batch(index, &queries, &params, &results, monitor, error);
  work[0] = results.distance_count;
  work[1] = results.expansion_count;
  work[2] = (uint64_t)results.procedure;
  work[3] = results.warps_per_query;
  *recall = results.recall;
  return answer;
}

static inline ann_status gn_search_on_device(const ann_index *index, int exact, gn_rows shape,
                                             const uint8_t *data, const ann_search_params *given,
                                             gn_device_results found, uintptr_t stream, ann_monitor *monitor,
                                             ann_error *error) {
  ann_matrix queries = gn_matrix(shape, data);
  ann_search_params params = *given;
  ann_results results = ANN_RESULTS_INIT;
  params.struct_size = sizeof params;
  params.stream = (void *)stream;
  results.k = found.k;
  results.rows = found.rows;
  results.space = found.space;
  results.ids = (uint64_t *)found.ids;
  results.distances = (float *)found.distances;
  results.counts = (uint32_t *)found.counts;
  results.status = (ann_status *)found.status;
  error->struct_size = sizeof *error;
  return exact ? ann_search_exact(index, &queries, &params, &results, monitor, error)
               : ann_search_batch(index, &queries, &params, &results, monitor, error);
}

static inline ann_status gn_place(const ann_index *index, int32_t device, ann_monitor *monitor,
                                  ann_error *error) {
  error->struct_size = sizeof *error;
  return ann_index_place(index, device, monitor, error);
}

static inline ann_status gn_evict(const ann_index *index, int32_t device, ann_error *error) {
  error->struct_size = sizeof *error;
  return ann_index_evict(index, device, error);
}

static inline ann_status gn_knn_graph(gn_rows shape, const uint8_t *data, const ann_knn_params *given,
                                      uint32_t *neighbors, float *distances, ann_monitor *monitor,
                                      ann_error *error) {
  ann_matrix rows = gn_matrix(shape, data);
  ann_knn_params params = *given;
  params.struct_size = sizeof params;
  error->struct_size = sizeof *error;
  return ann_knn_graph(NULL, &rows, &params, neighbors, distances, monitor, error);
}

/* Lists by ids, without their pointers. */
typedef struct gn_lists {
  uint64_t rows, first_id;
  uint32_t k;
  int32_t metric, has_ids;
} gn_lists;

static inline ann_knn_lists gn_lists_view(gn_lists shape, const uint64_t *ids, const uint64_t *neighbors,
                                          const float *distances) {
  ann_knn_lists lists = ANN_KNN_LISTS_INIT;
  lists.rows = shape.rows;
  lists.first_id = shape.first_id;
  lists.k = shape.k;
  lists.metric = shape.metric;
  lists.ids = (uint64_t *)ids;
  lists.neighbors = (uint64_t *)neighbors;
  lists.distances = (float *)distances;
  return lists;
}

static inline void gn_lists_told(ann_knn_lists lists, gn_lists *out) {
  out->rows = lists.rows;
  out->first_id = lists.first_id;
  out->k = lists.k;
  out->metric = lists.metric;
  out->has_ids = lists.has_ids;
}

static inline ann_status gn_knn_merge(gn_rows first_shape, const uint8_t *first_data, gn_lists first,
                                      const uint64_t *first_ids, const uint64_t *first_neighbors,
                                      const float *first_distances, gn_rows second_shape,
                                      const uint8_t *second_data, gn_lists second, const uint64_t *second_ids,
                                      const uint64_t *second_neighbors, const float *second_distances,
                                      const ann_knn_params *given, gn_lists *merged, uint64_t *ids,
                                      uint64_t *neighbors, float *distances, ann_monitor *monitor,
                                      ann_error *error) {
  ann_matrix first_rows = gn_matrix(first_shape, first_data);
  ann_matrix second_rows = gn_matrix(second_shape, second_data);
  ann_knn_lists first_lists = gn_lists_view(first, first_ids, first_neighbors, first_distances);
  ann_knn_lists second_lists = gn_lists_view(second, second_ids, second_neighbors, second_distances);
  ann_knn_lists out = gn_lists_view(*merged, ids, neighbors, distances);
  ann_knn_params params = *given;
  ann_status status;
  params.struct_size = sizeof params;
  error->struct_size = sizeof *error;
  status = ann_knn_merge(NULL, &first_rows, &first_lists, &second_rows, &second_lists, &params, &out, monitor,
                         error);
  gn_lists_told(out, merged);
  return status;
}

static inline ann_status gn_knn_save(gn_lists shape, const uint64_t *ids, const uint64_t *neighbors,
                                     const float *distances, const char *path, const ann_save_params *given,
                                     ann_monitor *monitor, ann_error *error) {
  ann_knn_lists lists = gn_lists_view(shape, ids, neighbors, distances);
  ann_save_params params = *given;
  params.struct_size = sizeof params;
  error->struct_size = sizeof *error;
  return ann_knn_save(NULL, &lists, path, &params, monitor, error);
}

static inline ann_status gn_knn_load(const char *path, gn_lists *shape, uint64_t *ids, uint64_t *neighbors,
                                     float *distances, ann_monitor *monitor, ann_error *error) {
  ann_knn_lists lists = gn_lists_view(*shape, ids, neighbors, distances);
  ann_status status;
  error->struct_size = sizeof *error;
  status = ann_knn_load(NULL, path, &lists, monitor, error);
  gn_lists_told(lists, shape);
  return status;
}

static inline ann_status gn_info(const ann_index *index, ann_index_info *out, ann_error *error) {
  out->struct_size = sizeof *out;
  error->struct_size = sizeof *error;
  return ann_index_get_info(index, out, error);
}

static inline ann_status gn_get(const ann_index *index, uint64_t id, uint8_t *vector, uint64_t capacity,
                                int32_t *found, ann_error *error) {
  error->struct_size = sizeof *error;
  return ann_index_get(index, id, vector, capacity, found, error);
}

static inline ann_status gn_get_batch(const ann_index *index, const uint64_t *ids, uint64_t count,
                                      uint8_t *vectors, uint64_t capacity, int32_t *found, ann_error *error) {
  error->struct_size = sizeof *error;
  return ann_index_get_batch(index, ids, count, vectors, capacity, found, error);
}

static inline ann_status gn_ids(const ann_index *index, uint64_t first, uint64_t count, uint64_t *ids,
                                ann_error *error) {
  error->struct_size = sizeof *error;
  return ann_index_ids(index, first, count, ids, error);
}

static inline ann_status gn_graph(const ann_index *index, uint32_t *edges, uint64_t capacity,
                                  uint32_t *degree, ann_error *error) {
  error->struct_size = sizeof *error;
  return ann_index_graph(index, edges, capacity, degree, error);
}

static inline ann_status gn_graph_stats(const ann_index *index, ann_graph_stats *out, ann_error *error) {
  out->struct_size = sizeof *out;
  error->struct_size = sizeof *error;
  return ann_index_graph_stats(index, out, error);
}

static inline ann_status gn_beam(const ann_index *index, uint32_t k, float recall, uint32_t *beam,
                                 ann_error *error) {
  error->struct_size = sizeof *error;
  return ann_index_beam(index, k, recall, beam, error);
}

static inline ann_status gn_save(const ann_index *index, const char *path, const ann_save_params *given,
                                 ann_monitor *monitor, ann_error *error) {
  ann_save_params params = *given;
  params.struct_size = sizeof params;
  error->struct_size = sizeof *error;
  return ann_save(index, path, &params, monitor, error);
}

/* The streams of callers, in streams.go. `stream` is a runtime/cgo.Handle. */
extern int64_t gnWriteStream(uintptr_t stream, void *data, uint64_t bytes);
extern int64_t gnReadStream(uintptr_t stream, void *data, uint64_t bytes);

static inline int64_t gn_write_stream(void *user, const void *data, uint64_t bytes) {
  return gnWriteStream((uintptr_t)user, (void *)data, bytes);
}

static inline int64_t gn_read_stream(void *user, void *data, uint64_t bytes) {
  return gnReadStream((uintptr_t)user, data, bytes);
}

static inline ann_status gn_save_stream(const ann_index *index, uintptr_t stream,
                                        const ann_save_params *given, ann_monitor *monitor,
                                        ann_error *error) {
  ann_writer writer = ANN_WRITER_INIT;
  ann_save_params params = *given;
  writer.write = gn_write_stream;
  writer.user = (void *)stream;
  params.struct_size = sizeof params;
  error->struct_size = sizeof *error;
  return ann_save_stream(index, &writer, &params, monitor, error);
}

static inline ann_status gn_open(const char *path, const ann_open_params *given, ann_index **out,
                                 ann_monitor *monitor, ann_error *error) {
  ann_open_params params = *given;
  params.struct_size = sizeof params;
  error->struct_size = sizeof *error;
  return ann_open(NULL, path, &params, out, monitor, error);
}

static inline ann_status gn_open_memory(const uint8_t *data, uint64_t bytes, const ann_open_params *given,
                                        ann_index **out, ann_monitor *monitor, ann_error *error) {
  ann_open_params params = *given;
  params.struct_size = sizeof params;
  error->struct_size = sizeof *error;
  return ann_open_memory(NULL, data, bytes, &params, out, monitor, error);
}

static inline ann_status gn_open_stream(uintptr_t stream, uint64_t bytes, const ann_open_params *given,
                                        ann_index **out, ann_monitor *monitor, ann_error *error) {
  ann_reader reader = ANN_READER_INIT;
  ann_open_params params = *given;
  reader.read = gn_read_stream;
  reader.user = (void *)stream;
  reader.bytes = bytes;
  params.struct_size = sizeof params;
  error->struct_size = sizeof *error;
  return ann_open_stream(NULL, &reader, &params, out, monitor, error);
}

static inline ann_status gn_verify(const char *path, const ann_open_params *given, ann_monitor *monitor,
                                   ann_error *error) {
  ann_open_params params = *given;
  params.struct_size = sizeof params;
  error->struct_size = sizeof *error;
  return ann_verify(path, &params, monitor, error);
}

static inline ann_status gn_file_info(const char *path, ann_file_description *out, ann_error *error) {
  out->struct_size = sizeof *out;
  error->struct_size = sizeof *error;
  return ann_file_info(path, out, error);
}

static inline ann_monitor *gn_monitor(ann_error *error) {
  ann_monitor *monitor = NULL;
  error->struct_size = sizeof *error;
  error->status = ann_monitor_create(&monitor, error);
  return monitor;
}

static inline ann_progress gn_progress(const ann_monitor *monitor) {
  ann_progress progress = ANN_PROGRESS_INIT;
  ann_monitor_progress(monitor, &progress, NULL);
  return progress;
}

static inline ann_status gn_device_count(uint32_t *count, const char **reason, ann_error *error) {
  error->struct_size = sizeof *error;
  return ann_device_count(count, reason, error);
}

static inline ann_status gn_device_info(int32_t device, ann_device_info *out, ann_error *error) {
  out->struct_size = sizeof *out;
  error->struct_size = sizeof *error;
  return ann_device_get_info(device, out, error);
}

#endif /* GANNET_GO_BRIDGE_H */
