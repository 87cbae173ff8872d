/* index.c: the type Handle, an ann_index. gannet/_index.py puts a class with names and defaults around it.
 *
 * close() may come while other threads search. The handle counts the calls that run on it, under the GIL:
 * the last one to end frees a closed index. */
#include "core.h"

#include <errno.h>
#include <stdlib.h>

typedef struct handle {
  PyObject_HEAD ann_index *index;
  Py_ssize_t running;
  int closed;
  uint32_t dim;
  uint64_t compared; /* rows that a search compares a query with where there is no graph; else 0 */
  uint64_t rows;
  PyObject *kept; /* what owns borrowed rows */
} handle;

PyObject *index_type;

static handle *new_handle(PyTypeObject *type) {
  return (handle *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
}

static PyObject *handle_new(PyTypeObject *type, PyObject *arguments, PyObject *names) {
  PyObject *dim;
  int metric, element;
  if (names != NULL && PyDict_Size(names) > 0) {
    PyErr_SetString(PyExc_TypeError, "Handle takes no names");
    return NULL;
  }
  if (!PyArg_ParseTuple(arguments, "Oii", &dim, &metric, &element)) return NULL;
  uint64_t columns;
  if (fields_number(dim, "dim", UINT32_MAX, &columns)) return NULL;
  ann_index_params params = ANN_INDEX_PARAMS_INIT;
  params.dim = (uint32_t)columns;
  params.metric = metric;
  params.element = element;
  handle *self = new_handle(type);
  if (self == NULL) return NULL;
  ann_error error = ANN_ERROR_INIT;
  ann_status status = ann_index_create(NULL, &params, &self->index, &error);
  if (status != ANN_OK) {
    errors_raise(status, &error);
    Py_DECREF(self);
    return NULL;
  }
  self->dim = params.dim;
  return (PyObject *)self;
}

static void free_index(handle *self) {
  ann_index *index = self->index;
  PyObject *kept = self->kept;
  self->index = NULL;
  self->kept = NULL;
  if (index != NULL) {
    Py_BEGIN_ALLOW_THREADS
    ann_index_free(index);
    Py_END_ALLOW_THREADS
  }
  Py_XDECREF(kept);
}

static void handle_dealloc(PyObject *object) {
  PyTypeObject *type = Py_TYPE(object);
  free_index((handle *)object);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF(type);
}

static int enter(handle *self) {
  if (self->closed) {
    errors_refuse("closed", "the index is closed");
    return -1;
  }
  ++self->running;
  return 0;
}

static void leave(handle *self) {
  if (--self->running == 0 && self->closed) free_index(self);
}

static PyObject *handle_close(PyObject *object, PyObject *unused) {
  (void)unused;
  handle *self = (handle *)object;
  if (!self->closed) {
    self->closed = 1;
    if (self->running == 0) free_index(self);
  }
  Py_RETURN_NONE;
}

static PyObject *handle_closed(PyObject *object, void *unused) {
  (void)unused;
  return PyBool_FromLong(((handle *)object)->closed);
}

static int too_few(Py_ssize_t count, Py_ssize_t wanted) {
  if (count == wanted) return 0;
  PyErr_Format(PyExc_TypeError, "expected %zd arguments, got %zd", wanted, count);
  return 1;
}

/* Keeps what searches need to know of a built index. */
static void look_at(handle *self) {
  ann_index_info info = ANN_INDEX_INFO_INIT;
  if (ann_index_get_info(self->index, &info, NULL) != ANN_OK) return;
  self->dim = info.dim;
  self->rows = info.rows;
  self->compared = info.graph == ANN_GRAPH_NONE ? info.rows : 0;
}

/* --- Build ------------------------------------------------------------------------------------------------ */

typedef struct build_call {
  call base;
  ann_index *index;
  ann_matrix rows;
  const uint64_t *ids;
  ann_build_params params;
  ann_matrix calibration;
} build_call;

static ann_status run_build(call *base) {
  build_call *made = (build_call *)base;
  return ann_build(made->index, &made->rows, made->ids, &made->params, base->monitor, &base->error);
}

/* Reads what build() was given beside the parameters. */
static int read_build(build_call *made, PyObject *const *given) {
  memory rows, ids, calibration, graph;
  if (memory_of(given[0], "rows", &rows) || memory_as_matrix(&rows, "rows", 0, &made->rows)) return -1;
  int64_t count = (int64_t)made->rows.rows;
  if (given[1] != Py_None) {
    if (memory_of(given[1], "ids", &ids)) return -1;
    made->ids = memory_as_buffer(&ids, "ids", 1, count, 'i', 8, 0);
    if (made->ids == NULL) return -1;
  }
  if (given[2] != Py_None) {
    if (memory_of(given[2], "calibration", &calibration) ||
        memory_as_matrix(&calibration, "calibration", 0, &made->calibration)) {
      return -1;
    }
    made->params.calibration = &made->calibration;
  }
  if (given[3] != Py_None) {
    const char *what = made->params.graph == ANN_GRAPH_GIVEN ? "graph" : "knn_graph";
    if (memory_of(given[3], what, &graph)) return -1;
    if (graph.space > ANN_DEVICE_CPU) {
      errors_refuse("device", "%s lies in the memory of a device; a build takes it from the host's", what);
      return -1;
    }
    int64_t k = graph.shape[graph.dimensions - 1];
    made->params.knn_graph = memory_as_buffer(&graph, what, count, k, 'i', 4, 0);
    if (made->params.knn_graph == NULL) return -1;
    made->params.knn_degree = (uint32_t)k;
  }
  return 0;
}

/* build(rows, ids, calibration, a k-NN graph or a finished one, params, progress, timeout) */
static PyObject *handle_build(PyObject *object, PyObject *const *given, Py_ssize_t count) {
  handle *self = (handle *)object;
  build_call made = {.params = ANN_BUILD_PARAMS_INIT};
  double timeout;
  made.base.run = run_build;
  if (too_few(count, 7) || fields_fill(&made.params, fields_build, given[4]) || read_build(&made, given) ||
      call_timeout(given[6], &timeout)) {
    return NULL;
  }
  if (made.rows.dim != self->dim) {
    errors_refuse("shape", "rows has %u columns, the index %u", made.rows.dim, self->dim);
    return NULL;
  }
  if (enter(self)) return NULL;
  made.index = self->index;
  if (made.params.rows_mode == ANN_ROWS_BORROW) {
    /* Also where it fails: a signal may come when the build is done. */
    PyObject *kept = PyTuple_Pack(2, given[0], self->kept ? self->kept : Py_None);
    Py_XDECREF(self->kept);
    self->kept = kept;
  }
  int failed = call_run(&made.base, 1, given[5], timeout);
  if (!failed) look_at(self);
  leave(self);
  if (failed) return NULL;
  Py_RETURN_NONE;
}

/* --- Search ----------------------------------------------------------------------------------------------- */

#define FEW 64 /* queries whose statuses lie on the stack */

typedef struct search_call {
  call base;
  const ann_index *index;
  ann_matrix queries;
  ann_search_params params;
  ann_results results;
  int exact;
} search_call;

static ann_status run_search(call *base) {
  search_call *made = (search_call *)base;
  return (made->exact ? ann_search_exact : ann_search_batch)(made->index, &made->queries, &made->params,
                                                             &made->results, base->monitor, &base->error);
}

/* Whether a search may take longer than some 20 ms, so that a person could want to stop it. A thread of its
 * own costs some 30 us. Work on a stream is only queued. */
static int takes_long(const handle *self, const search_call *made) {
  if (made->params.stream != NULL) return 0;
  double beam = made->params.beam > made->results.k ? made->params.beam : made->results.k;
  double work = (beam + 60) * made->queries.dim * (double)made->queries.rows;
  uint64_t compared = made->exact || made->params.procedure == ANN_SEARCH_EXACT ? self->rows : self->compared;
  if (compared > 0) work = (double)compared / 16 * made->queries.dim * (double)made->queries.rows;
  int on_device = made->queries.space != 0 || made->params.device >= ANN_DEVICE_CUDA;
  return work > (on_device ? 1e9 : 4e6);
}

/* A new array of NumPy of [rows, k] or, for a single query, [k]; and where it lies. */
static PyObject *new_array(const memory *queries, int64_t k, PyObject *dtype, void **data) {
  PyObject *shape = queries->dimensions == 1
                        ? PyLong_FromLongLong(k)
                        : Py_BuildValue("(LL)", (long long)queries->shape[0], (long long)k);
  if (shape == NULL) return NULL;
  PyObject *array = PyObject_CallFunctionObjArgs(numpy_empty, shape, dtype, NULL);
  Py_DECREF(shape);
  memory where;
  if (array != NULL && memory_of(array, "results", &where)) {
    Py_DECREF(array);
    return NULL;
  }
  if (array != NULL) *data = where.data;
  return array;
}

/* The caller's buffers into `results`. */
static int use_buffers(search_call *made, const memory *ids, const memory *distances) {
  int64_t rows = (int64_t)made->queries.rows, k = made->results.k;
  made->results.ids = memory_as_buffer(ids, "out[0]", rows, k, 'i', 8, 1);
  if (made->results.ids == NULL) return -1;
  made->results.distances = memory_as_buffer(distances, "out[1]", rows, k, 'f', 4, 1);
  if (made->results.distances == NULL) return -1;
  if (ids->space != made->queries.space || distances->space != made->queries.space) {
    errors_refuse("device", "out lies on another device than the queries");
    return -1;
  }
  return 0;
}

/* The caller's buffers, or new ones, into `results` and as new references. */
static int find_buffers(search_call *made, const memory *queries, PyObject *const *out, PyObject **ids,
                        PyObject **distances) {
  int64_t k = made->results.k;
  *ids = *distances = NULL;
  if (out[0] == Py_None) {
    void *data[2] = {NULL, NULL};
    *ids = new_array(queries, k, numpy_int64, &data[0]);
    *distances = *ids ? new_array(queries, k, numpy_float32, &data[1]) : NULL;
    made->results.ids = data[0];
    made->results.distances = data[1];
    return *distances == NULL ? -1 : 0;
  }
  memory where[2];
  if (memory_of(out[0], "out[0]", &where[0]) || memory_of(out[1], "out[1]", &where[1]) ||
      use_buffers(made, &where[0], &where[1])) {
    return -1;
  }
  Py_INCREF(*ids = out[0]);
  Py_INCREF(*distances = out[1]);
  return 0;
}

/* Runs it; with `strict` a query with NaN or infinity is an error. Queries on a device are not checked, as
 * their answers may be written later. */
static int run_strictly(const handle *self, search_call *made, int strict, double timeout) {
  ann_status few[FEW], *status = NULL;
  int64_t rows = (int64_t)made->queries.rows;
  if (strict && made->queries.space == 0 && made->queries.element != ANN_I8 &&
      made->queries.element != ANN_U8) {
    status = rows <= FEW ? few : malloc(sizeof(ann_status) * (size_t)rows);
    if (status == NULL) {
      PyErr_NoMemory();
      return -1;
    }
    for (int64_t i = 0; i < rows; ++i) status[i] = ANN_OK;
    made->results.status = status;
  }
  made->base.stays = made->params.stream != NULL;
  int failed = call_run(&made->base, takes_long(self, made), NULL, timeout);
  for (int64_t i = 0; status != NULL && !failed && i < rows; ++i) {
    if (status[i] == ANN_OK) continue;
    ann_error error = ANN_ERROR_INIT;
    error.row = (uint64_t)i;
    PyOS_snprintf(error.message, sizeof error.message, "query %lld holds NaN or infinity", (long long)i);
    errors_raise(status[i], &error);
    failed = -1;
  }
  if (status != few) free(status);
  return failed;
}

/* What both kinds of search are given. Returns 0, or -1 and raises. */
static int read_search(const handle *self, const memory *queries, PyObject *exact, PyObject *k,
                       PyObject *params, search_call *made) {
  uint64_t wanted;
  made->base.run = run_search;
  if (fields_number(k, "k", UINT32_MAX, &wanted) || memory_as_matrix(queries, "queries", 1, &made->queries) ||
      fields_fill(&made->params, fields_search, params)) {
    return -1;
  }
  made->exact = PyObject_IsTrue(exact);
  made->results.k = (uint32_t)wanted;
  if (made->queries.dim != self->dim) {
    errors_refuse("shape", "queries has %u columns, the index %u", made->queries.dim, self->dim);
    return -1;
  }
  if (wanted < 1 || (made->queries.rows > 0 && wanted > INT64_MAX / 16 / made->queries.rows)) {
    errors_refuse("argument", "k is %lld; expected 1 or more", (long long)wanted);
    return -1;
  }
  made->results.rows = made->queries.rows;
  made->results.space = made->queries.space;
  return 0;
}

/* search(exact, queries, k, params, ids, distances, stream, timeout, strict): the two arrays. */
static PyObject *handle_search(PyObject *object, PyObject *const *given, Py_ssize_t count) {
  handle *self = (handle *)object;
  search_call made = {.params = ANN_SEARCH_PARAMS_INIT, .results = ANN_RESULTS_INIT};
  memory queries;
  uint64_t stream = 0;
  double timeout;
  if (too_few(count, 9) || memory_of(given[1], "queries", &queries) ||
      read_search(self, &queries, given[0], given[2], given[3], &made) || call_timeout(given[7], &timeout) ||
      (given[6] != Py_None && fields_number(given[6], "stream", UINT64_MAX, &stream))) {
    return NULL;
  }
  made.params.stream = (void *)(uintptr_t)stream;
  PyObject *ids, *distances;
  if (enter(self)) return NULL;
  made.index = self->index;
  int failed = find_buffers(&made, &queries, given + 4, &ids, &distances) ||
               run_strictly(self, &made, PyObject_IsTrue(given[8]), timeout);
  leave(self);
  PyObject *both = failed ? NULL : PyTuple_Pack(2, ids, distances);
  Py_XDECREF(ids);
  Py_XDECREF(distances);
  return both;
}

/* Runs a search of lent queries. Results are new ones in `found`; where that is NULL, the caller's are set already. */
static int run_lent(search_call *made, PyObject *array, const memory *queries, double timeout,
                    lent_results *found) {
  uint64_t stream = 0;
  int failed = lenders_stream(array, queries, &stream);
  if (!failed && found != NULL) {
    failed = lenders_take_results(array, queries, made->results.k, found);
    made->results.ids = found->data[0];
    made->results.distances = found->data[1];
  }
  made->params.stream = (void *)(uintptr_t)stream;
  made->base.stays = 1;
  return failed || call_run(&made->base, 0, NULL, timeout);
}

/* search_lent(exact, queries, k, params, ids, distances, timeout): the two arrays, those given or, for None, new ones of
 * CuPy or Torch as the queries are, on whose current stream the search is queued; None where one of them is not lent in
 * a usual way. */
static PyObject *handle_search_lent(PyObject *object, PyObject *const *given, Py_ssize_t count) {
  handle *self = (handle *)object;
  search_call made = {.params = ANN_SEARCH_PARAMS_INIT, .results = ANN_RESULTS_INIT};
  memory queries, out[2];
  double timeout;
  if (too_few(count, 7)) return NULL;
  int takes = given[4] == Py_None;
  int lent = lenders_read(given[1], &queries);
  for (int i = 0; i < 2 && lent == 1 && !takes; ++i) {
    /* Work that another library has queued on its results is waited for by the way through DLPack. */
    lent = Py_TYPE(given[4 + i]) == Py_TYPE(given[1]) ? lenders_read(given[4 + i], &out[i]) : 0;
  }
  if (lent == 0) Py_RETURN_NONE;
  if (lent < 0 || read_search(self, &queries, given[0], given[2], given[3], &made) ||
      (!takes && use_buffers(&made, &out[0], &out[1])) || call_timeout(given[6], &timeout) || enter(self)) {
    return NULL;
  }
  made.index = self->index;
  lent_results found = {0};
  int failed = run_lent(&made, given[1], &queries, timeout, takes ? &found : NULL);
  leave(self);
  PyObject *both = failed ? NULL : takes ? lenders_arrays(&found) : PyTuple_Pack(2, given[4], given[5]);
  lenders_release(&found);
  return both;
}

/* --- State ------------------------------------------------------------------------------------------------ */

static PyObject *handle_info(PyObject *object, PyObject *unused) {
  (void)unused;
  handle *self = (handle *)object;
  ann_index_info info = ANN_INDEX_INFO_INIT;
  ann_error error = ANN_ERROR_INIT;
  if (enter(self)) return NULL;
  ann_status status = ann_index_get_info(self->index, &info, &error);
  leave(self);
  if (status != ANN_OK) {
    errors_raise(status, &error);
    return NULL;
  }
  return Py_BuildValue("(KIiiiiIIKKddfIIfiIIfff)", (unsigned long long)info.rows, info.dim, (int)info.metric,
                       (int)info.element, (int)info.built, (int)info.graph, info.degree, info.entry_points,
                       (unsigned long long)info.memory_bytes, (unsigned long long)info.seed,
                       info.build_seconds, info.calibrate_seconds, info.recall_max, info.repaired_edges,
                       info.knn_iterations, info.knn_share, (int)info.codes, info.code_centres,
                       info.code_bytes, info.code_first_ten, info.code_first_twenty, info.code_worst_twenty);
}

typedef struct copy_call {
  call base;
  const ann_index *index;
  uint64_t *ids;
  uint64_t first, count;
  void *vectors;
  uint64_t capacity;
  int32_t *found;
} copy_call;

static ann_status run_ids(call *base) {
  copy_call *made = (copy_call *)base;
  return ann_index_ids(made->index, made->first, made->count, made->ids, &base->error);
}

static ann_status run_get(call *base) {
  copy_call *made = (copy_call *)base;
  return ann_index_get_batch(made->index, made->ids, made->count, made->vectors, made->capacity, made->found,
                             &base->error);
}

static PyObject *run_copy(handle *self, copy_call *made) {
  if (enter(self)) return NULL;
  made->index = self->index;
  int failed = call_run(&made->base, 0, NULL, NO_TIMEOUT);
  leave(self);
  if (failed) return NULL;
  Py_RETURN_NONE;
}

/* ids(first, array of int64): the array gets the ids of the rows from `first` on. */
static PyObject *handle_ids(PyObject *object, PyObject *const *given, Py_ssize_t count) {
  copy_call made = {.base.run = run_ids};
  memory where;
  if (too_few(count, 2) || fields_number(given[0], "first", UINT64_MAX, &made.first) ||
      memory_of(given[1], "ids", &where)) {
    return NULL;
  }
  made.ids = memory_as_buffer(&where, "ids", 1, where.shape[0], 'i', 8, 1);
  made.count = (uint64_t)where.shape[0];
  return made.ids ? run_copy((handle *)object, &made) : NULL;
}

/* get(ids, vectors or None, found): `found`, int32, says which ids there are; `vectors`, [ids, dim] of the
 * stored element, gets their vectors. */
static PyObject *handle_get(PyObject *object, PyObject *const *given, Py_ssize_t count) {
  copy_call made = {.base.run = run_get};
  memory ids, vectors, found;
  if (too_few(count, 3) || memory_of(given[0], "ids", &ids) || memory_of(given[2], "found", &found))
    return NULL;
  int64_t rows = ids.shape[0];
  made.ids = memory_as_buffer(&ids, "ids", 1, rows, 'i', 8, 0);
  made.found = made.ids ? memory_as_buffer(&found, "found", 1, rows, 'i', 4, 1) : NULL;
  if (made.found == NULL) return NULL;
  made.count = (uint64_t)rows;
  if (given[1] != Py_None) {
    if (memory_of(given[1], "vectors", &vectors)) return NULL;
    int64_t dim = ((handle *)object)->dim;
    /* bfloat16 without a name of its own comes as uint16. */
    made.vectors = memory_as_buffer(&vectors, "vectors", rows, dim, vectors.kind, vectors.itemsize, 1);
    if (made.vectors == NULL) return NULL;
    made.capacity = (uint64_t)(rows * dim * vectors.itemsize);
  }
  return run_copy((handle *)object, &made);
}

/* graph(array or None): the degree; the array of int32 [rows, degree] gets the edges. */
static PyObject *handle_graph(PyObject *object, PyObject *given) {
  handle *self = (handle *)object;
  memory where = {0};
  uint32_t degree = 0;
  ann_error error = ANN_ERROR_INIT;
  if (given != Py_None) {
    if (memory_of(given, "edges", &where)) return NULL;
    int64_t rows = where.dimensions == 2 ? where.shape[0] : 1;
    if (!memory_as_buffer(&where, "edges", rows, where.shape[where.dimensions - 1], 'i', 4, 1)) return NULL;
  }
  if (enter(self)) return NULL;
  ann_status status;
  uint64_t capacity = where.dimensions == 2 ? (uint64_t)(where.shape[0] * where.shape[1]) : 0;
  Py_BEGIN_ALLOW_THREADS
  status = ann_index_graph(self->index, where.data, capacity, &degree, &error);
  Py_END_ALLOW_THREADS
  leave(self);
  if (status != ANN_OK) {
    errors_raise(status, &error);
    return NULL;
  }
  return PyLong_FromUnsignedLong(degree);
}

typedef struct stats_call {
  call base;
  const ann_index *index;
  ann_graph_stats stats;
} stats_call;

static ann_status run_stats(call *base) {
  stats_call *made = (stats_call *)base;
  return ann_index_graph_stats(made->index, &made->stats, &base->error);
}

/* graph_stats(two_hop_rows) */
static PyObject *handle_graph_stats(PyObject *object, PyObject *two_hop_rows) {
  handle *self = (handle *)object;
  stats_call made = {.base.run = run_stats, .stats = ANN_GRAPH_STATS_INIT};
  const unsigned long sampled = PyLong_AsUnsignedLong(two_hop_rows);
  if (sampled == (unsigned long)-1 && PyErr_Occurred()) return NULL;
  made.stats.two_hop_rows = (uint32_t)sampled;
  if (enter(self)) return NULL;
  made.index = self->index;
  int failed = call_run(&made.base, 0, NULL, NO_TIMEOUT);
  leave(self);
  if (failed) return NULL;
  const ann_graph_stats *s = &made.stats;
  return Py_BuildValue("(KIKKKKKIId)", (unsigned long long)s->rows, s->degree, (unsigned long long)s->edges,
                       (unsigned long long)s->unreachable, (unsigned long long)s->weak_components,
                       (unsigned long long)s->strong_components, (unsigned long long)s->largest_strong,
                       s->in_degree_min, s->in_degree_max, s->two_hop_mean);
}

/* beam(k, recall) */
static PyObject *handle_beam(PyObject *object, PyObject *arguments) {
  handle *self = (handle *)object;
  PyObject *given;
  uint64_t k;
  uint32_t beam = 0;
  float recall;
  ann_error error = ANN_ERROR_INIT;
  if (!PyArg_ParseTuple(arguments, "Of", &given, &recall) || fields_number(given, "k", UINT32_MAX, &k)) {
    return NULL;
  }
  if (enter(self)) return NULL;
  ann_status status = ann_index_beam(self->index, (uint32_t)k, recall, &beam, &error);
  leave(self);
  if (status != ANN_OK) {
    errors_raise(status, &error);
    return NULL;
  }
  return PyLong_FromUnsignedLong(beam);
}

/* --- Devices ---------------------------------------------------------------------------------------------- */

typedef struct device_call {
  call base;
  const ann_index *index;
  int32_t device;
} device_call;

static ann_status run_place(call *base) {
  device_call *made = (device_call *)base;
  return ann_index_place(made->index, made->device, base->monitor, &base->error);
}

static ann_status run_evict(call *base) {
  device_call *made = (device_call *)base;
  return ann_index_evict(made->index, made->device, &base->error);
}

static PyObject *on_device(handle *self, PyObject *given, ann_status (*run)(call *), int watched) {
  device_call made = {.base.run = run};
  made.device = (int32_t)PyLong_AsLong(given);
  if (PyErr_Occurred() || enter(self)) return NULL;
  made.index = self->index;
  int failed = call_run(&made.base, watched, NULL, NO_TIMEOUT);
  leave(self);
  if (failed) return NULL;
  Py_RETURN_NONE;
}

static PyObject *handle_place(PyObject *object, PyObject *device) {
  return on_device((handle *)object, device, run_place, 1);
}

static PyObject *handle_evict(PyObject *object, PyObject *device) {
  return on_device((handle *)object, device, run_evict, 0);
}

/* --- Files ------------------------------------------------------------------------------------------------ */

#define PIECE (16 << 20)

typedef struct save_call {
  call base;
  const ann_index *index;
  const char *path; /* NULL: to `write` */
  ann_save_params params;
  PyObject *write;
} save_call;

/* Gives bytes to the caller's write(), as BufferedIOBase or RawIOBase have it. */
static int64_t write_to_python(void *user, const void *data, uint64_t bytes) {
  save_call *made = user;
  int64_t taken = -EIO;
  PyGILState_STATE lock = PyGILState_Ensure();
  Py_ssize_t most = bytes < PIECE ? (Py_ssize_t)bytes : PIECE;
  PyObject *piece = PyBytes_FromStringAndSize(data, most);
  PyObject *answer = piece ? PyObject_CallFunctionObjArgs(made->write, piece, NULL) : NULL;
  Py_XDECREF(piece);
  if (answer == Py_None) {
    taken = most;
  } else if (answer != NULL) {
    taken = PyLong_AsLongLong(answer);
    if (!PyErr_Occurred() && (taken < 1 || taken > most)) {
      PyErr_Format(PyExc_OSError, "write() took %lld of %zd bytes", (long long)taken, most);
    }
  }
  if (PyErr_Occurred()) {
    call_keep_raised(&made->base);
    taken = -EIO;
  }
  Py_XDECREF(answer);
  PyGILState_Release(lock);
  return taken;
}

static ann_status run_save(call *base) {
  save_call *made = (save_call *)base;
  if (made->path != NULL)
    return ann_save(made->index, made->path, &made->params, base->monitor, &base->error);
  ann_writer writer = ANN_WRITER_INIT;
  writer.write = write_to_python;
  writer.user = made;
  return ann_save_stream(made->index, &writer, &made->params, base->monitor, &base->error);
}

/* save(path as bytes or None, write or None, params, progress, timeout) */
static PyObject *handle_save(PyObject *object, PyObject *const *given, Py_ssize_t count) {
  handle *self = (handle *)object;
  save_call made = {.base.run = run_save, .params = ANN_SAVE_PARAMS_INIT};
  double timeout;
  if (too_few(count, 5) || fields_fill(&made.params, fields_save, given[2]) ||
      call_timeout(given[4], &timeout)) {
    return NULL;
  }
  if (given[0] != Py_None && PyBytes_AsStringAndSize(given[0], (char **)&made.path, NULL)) return NULL;
  made.write = given[1];
  if (enter(self)) return NULL;
  made.index = self->index;
  int failed = call_run(&made.base, 1, given[3], timeout);
  leave(self);
  if (failed) return NULL;
  Py_RETURN_NONE;
}

typedef struct open_call {
  call base;
  const char *path; /* NULL: the bytes */
  const char *data;
  Py_ssize_t bytes;
  ann_open_params params;
  ann_index *index;
} open_call;

static ann_status run_open(call *base) {
  open_call *made = (open_call *)base;
  if (made->path != NULL) {
    return ann_open(NULL, made->path, &made->params, &made->index, base->monitor, &base->error);
  }
  return ann_open_memory(NULL, made->data, (uint64_t)made->bytes, &made->params, &made->index, base->monitor,
                         &base->error);
}

/* open(path as bytes or None, content as bytes or None, params, progress, timeout): a Handle. */
PyObject *index_open(PyObject *module, PyObject *arguments) {
  (void)module;
  PyObject *path, *content, *params, *progress, *given_timeout;
  open_call made = {.base.run = run_open, .params = ANN_OPEN_PARAMS_INIT};
  double timeout;
  if (!PyArg_ParseTuple(arguments, "OOOOO", &path, &content, &params, &progress, &given_timeout) ||
      fields_fill(&made.params, fields_open, params) || call_timeout(given_timeout, &timeout)) {
    return NULL;
  }
  if (path != Py_None) {
    if (PyBytes_AsStringAndSize(path, (char **)&made.path, NULL)) return NULL;
  } else if (PyBytes_AsStringAndSize(content, (char **)&made.data, &made.bytes) != 0) {
    return NULL;
  }
  handle *self = new_handle((PyTypeObject *)index_type);
  if (self == NULL) return NULL;
  if (call_run(&made.base, 1, progress, timeout) != 0) {
    if (made.index != NULL) ann_index_free(made.index); /* opened while a callback raised */
    Py_DECREF(self);
    return NULL;
  }
  self->index = made.index;
  look_at(self);
  return (PyObject *)self;
}

/* --- The type --------------------------------------------------------------------------------------------- */

#define FAST(function) ((PyCFunction)(void (*)(void))(function))

static PyMethodDef methods[] = {{"build", FAST(handle_build), METH_FASTCALL, NULL},
                                {"search", FAST(handle_search), METH_FASTCALL, NULL},
                                {"search_lent", FAST(handle_search_lent), METH_FASTCALL, NULL},
                                {"info", handle_info, METH_NOARGS, NULL},
                                {"ids", FAST(handle_ids), METH_FASTCALL, NULL},
                                {"get", FAST(handle_get), METH_FASTCALL, NULL},
                                {"graph", handle_graph, METH_O, NULL},
                                {"graph_stats", handle_graph_stats, METH_O, NULL},
                                {"beam", handle_beam, METH_VARARGS, NULL},
                                {"place", handle_place, METH_O, NULL},
                                {"evict", handle_evict, METH_O, NULL},
                                {"save", FAST(handle_save), METH_FASTCALL, NULL},
                                {"close", handle_close, METH_NOARGS, NULL},
                                {NULL, NULL, 0, NULL}};
static PyGetSetDef properties[] = {{"closed", handle_closed, NULL, "whether close() was called", NULL},
                                   {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot slots[] = {{Py_tp_new, handle_new},
                              {Py_tp_dealloc, handle_dealloc},
                              {Py_tp_methods, methods},
                              {Py_tp_getset, properties},
                              {Py_tp_doc, "An ann_index: Handle(dim, metric, element)."},
                              {0, NULL}};
PyType_Spec index_spec = {"gannet._core.Handle", sizeof(handle), 0, Py_TPFLAGS_DEFAULT, slots};
