/* module.c: the module gannet._core: its functions that need no index, and its start. */
#include "core.h"

PyObject *numpy_empty, *numpy_int64, *numpy_float32;

static PyObject *raised(ann_status status, const ann_error *error) {
  errors_raise(status, error);
  return NULL;
}

/* --- k-NN graphs ------------------------------------------------------------------------------------------ */

typedef struct knn_call {
  call base;
  ann_matrix rows;
  ann_knn_params params;
  uint32_t *neighbors;
  float *distances;
} knn_call;

static ann_status run_knn(call *base) {
  knn_call *made = (knn_call *)base;
  return ann_knn_graph(NULL, &made->rows, &made->params, made->neighbors, made->distances, base->monitor,
                       &base->error);
}

/* knn_graph(rows, params, neighbors, distances, progress, timeout) */
static PyObject *module_knn_graph(PyObject *module, PyObject *arguments) {
  (void)module;
  PyObject *rows, *params, *neighbors, *distances, *progress, *given_timeout;
  knn_call made = {.base.run = run_knn, .params = ANN_KNN_PARAMS_INIT};
  memory where;
  double timeout;
  if (!PyArg_ParseTuple(arguments, "OOOOOO", &rows, &params, &neighbors, &distances, &progress,
                        &given_timeout) ||
      fields_fill(&made.params, fields_knn, params) || call_timeout(given_timeout, &timeout) ||
      memory_of(rows, "rows", &where) || memory_as_matrix(&where, "rows", 0, &made.rows)) {
    return NULL;
  }
  int64_t count = (int64_t)made.rows.rows, k = made.params.k;
  if (memory_of(neighbors, "neighbors", &where)) return NULL;
  made.neighbors = memory_as_buffer(&where, "neighbors", count, k, 'i', 4, 1);
  if (made.neighbors == NULL || memory_of(distances, "distances", &where)) return NULL;
  made.distances = memory_as_buffer(&where, "distances", count, k, 'f', 4, 1);
  if (made.distances == NULL || call_run(&made.base, 1, progress, timeout)) return NULL;
  Py_RETURN_NONE;
}

/* --- Plans ------------------------------------------------------------------------------------------------ */

/* estimate(rows, dim, element, metric, stored element, params) */
static PyObject *module_estimate(PyObject *module, PyObject *arguments) {
  (void)module;
  PyObject *given_rows, *given_dim, *params;
  int element, metric, stored;
  ann_build_params build = ANN_BUILD_PARAMS_INIT;
  uint64_t rows, dim;
  if (!PyArg_ParseTuple(arguments, "OOiiiO", &given_rows, &given_dim, &element, &metric, &stored, &params) ||
      fields_fill(&build, fields_build, params) || fields_number(given_rows, "rows", UINT64_MAX, &rows) ||
      fields_number(given_dim, "dim", UINT32_MAX, &dim)) {
    return NULL;
  }
  ann_index_params shape = ANN_INDEX_PARAMS_INIT;
  shape.dim = (uint32_t)dim;
  shape.metric = metric;
  shape.element = stored;
  ann_plan plan = ANN_PLAN_INIT;
  ann_error error = ANN_ERROR_INIT;
  ann_status status = ann_estimate(&shape, rows, element, &build, &plan, &error);
  if (status != ANN_OK) return raised(status, &error);
  return Py_BuildValue("(IKKdK)", plan.threads, (unsigned long long)plan.index_bytes,
                       (unsigned long long)plan.peak_bytes, plan.seconds,
                       (unsigned long long)plan.device_bytes);
}

/* --- Files ------------------------------------------------------------------------------------------------ */

typedef struct verify_call {
  call base;
  const char *path;
  ann_open_params params;
} verify_call;

static ann_status run_verify(call *base) {
  verify_call *made = (verify_call *)base;
  return ann_verify(made->path, &made->params, base->monitor, &base->error);
}

/* verify(path as bytes, params, progress, timeout) */
static PyObject *module_verify(PyObject *module, PyObject *arguments) {
  (void)module;
  PyObject *path, *params, *progress, *given_timeout;
  verify_call made = {.base.run = run_verify, .params = ANN_OPEN_PARAMS_INIT};
  double timeout;
  if (!PyArg_ParseTuple(arguments, "OOOO", &path, &params, &progress, &given_timeout) ||
      PyBytes_AsStringAndSize(path, (char **)&made.path, NULL) ||
      fields_fill(&made.params, fields_open, params) || call_timeout(given_timeout, &timeout) ||
      call_run(&made.base, 1, progress, timeout)) {
    return NULL;
  }
  Py_RETURN_NONE;
}

static PyObject *module_file_info(PyObject *module, PyObject *path) {
  (void)module;
  char *name;
  if (PyBytes_AsStringAndSize(path, &name, NULL)) return NULL;
  ann_file_description d = ANN_FILE_DESCRIPTION_INIT;
  ann_error error = ANN_ERROR_INIT;
  ann_status status;
  Py_BEGIN_ALLOW_THREADS
  status = ann_file_info(name, &d, &error);
  Py_END_ALLOW_THREADS
  if (status != ANN_OK) return raised(status, &error);
  return Py_BuildValue("(KIiiiIIOIIKKy#)", (unsigned long long)d.rows, d.dim, (int)d.metric, (int)d.element,
                       (int)d.graph, d.degree, d.entry_points, d.has_ids ? Py_True : Py_False, d.format,
                       d.writer, (unsigned long long)d.file_bytes, (unsigned long long)d.seed,
                       (const char *)d.content_id, (Py_ssize_t)sizeof d.content_id);
}

/* --- Devices and versions ---------------------------------------------------------------------------------- */

static PyObject *module_device_count(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  uint32_t count = 0;
  const char *reason = "";
  ann_error error = ANN_ERROR_INIT;
  ann_status status;
  Py_BEGIN_ALLOW_THREADS
  status = ann_device_count(&count, &reason, &error);
  Py_END_ALLOW_THREADS
  if (status != ANN_OK) return raised(status, &error);
  return Py_BuildValue("(Is)", count, reason);
}

static PyObject *module_device_info(PyObject *module, PyObject *number) {
  (void)module;
  int32_t device = (int32_t)PyLong_AsLong(number);
  if (PyErr_Occurred()) return NULL;
  ann_device_info info = ANN_DEVICE_INFO_INIT;
  ann_error error = ANN_ERROR_INIT;
  ann_status status;
  Py_BEGIN_ALLOW_THREADS
  status = ann_device_get_info(device, &info, &error);
  Py_END_ALLOW_THREADS
  if (status != ANN_OK) return raised(status, &error);
  return Py_BuildValue("(sKKII)", info.name, (unsigned long long)info.memory_total,
                       (unsigned long long)info.memory_free, info.compute_units, info.capability);
}

static PyObject *module_versions(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  return Py_BuildValue("(sIs)", ann_version(), ann_abi_version(), ann_build_info());
}

/* --- The module --------------------------------------------------------------------------------------------- */

static PyMethodDef functions[] = {{"register_errors", errors_register, METH_O, NULL},
                                  {"from_dlpack", memory_from_dlpack, METH_O, NULL},
                                  {"from_address", memory_from_address, METH_VARARGS, NULL},
                                  {"know_cupy", lenders_know_cupy, METH_VARARGS, NULL},
                                  {"know_torch", lenders_know_torch, METH_VARARGS, NULL},
                                  {"open", index_open, METH_VARARGS, NULL},
                                  {"knn_graph", module_knn_graph, METH_VARARGS, NULL},
                                  {"estimate", module_estimate, METH_VARARGS, NULL},
                                  {"verify", module_verify, METH_VARARGS, NULL},
                                  {"file_info", module_file_info, METH_O, NULL},
                                  {"device_count", module_device_count, METH_NOARGS, NULL},
                                  {"device_info", module_device_info, METH_O, NULL},
                                  {"versions", module_versions, METH_NOARGS, NULL},
                                  {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                                        "gannet._core",
                                        "What the package gannet needs of the C library.",
                                        -1,
                                        functions,
                                        NULL,
                                        NULL,
                                        NULL,
                                        NULL};

static int find_numpy(void) {
  PyObject *numpy = PyImport_ImportModule("numpy");
  if (numpy == NULL) return -1;
  numpy_empty = PyObject_GetAttrString(numpy, "empty");
  PyObject *dtype = PyObject_GetAttrString(numpy, "dtype");
  if (dtype != NULL) {
    numpy_int64 = PyObject_CallFunction(dtype, "s", "int64");
    numpy_float32 = PyObject_CallFunction(dtype, "s", "float32");
  }
  Py_XDECREF(dtype);
  Py_DECREF(numpy);
  return numpy_empty && numpy_int64 && numpy_float32 ? 0 : -1;
}

static PyObject *add_type(PyObject *module, const char *name, PyType_Spec *spec) {
  PyObject *type = PyType_FromSpec(spec);
  if (type == NULL) return NULL;
  Py_INCREF(type);
  if (PyModule_AddObject(module, name, type) != 0) {
    Py_DECREF(type);
    Py_DECREF(type);
    return NULL;
  }
  return type;
}

PyMODINIT_FUNC PyInit__core(void) {
  if (ann_abi_version() >> 16 != ANN_ABI_VERSION >> 16 || ann_abi_version() < ANN_ABI_VERSION) {
    PyErr_Format(PyExc_ImportError,
                 "gannet was compiled for version 0x%x of the library's interface, and met "
                 "0x%x (%s)",
                 (unsigned)ANN_ABI_VERSION, (unsigned)ann_abi_version(), ann_version());
    return NULL;
  }
  if (find_numpy() != 0) return NULL;
  PyObject *module = PyModule_Create(&definition);
  if (module == NULL) return NULL;
  memory_view_type = add_type(module, "View", &memory_view_spec);
  index_type = memory_view_type ? add_type(module, "Handle", &index_spec) : NULL;
  if (index_type == NULL) {
    Py_DECREF(module);
    return NULL;
  }
  return module;
}
