/* fields.c: from the names and values of Python to the members of the parameter structs of ann.h. */
#include "core.h"

#include <string.h>

#define FIELD(type, member, kind) {#member, offsetof(type, member), kind}
#define END {NULL, 0, 0}

const field fields_build[] = {FIELD(ann_build_params, graph, 'i'),
                              FIELD(ann_build_params, knn, 'i'),
                              FIELD(ann_build_params, device, 'i'),
                              FIELD(ann_build_params, rows_mode, 'i'),
                              FIELD(ann_build_params, degree, 'u'),
                              FIELD(ann_build_params, knn_degree, 'u'),
                              FIELD(ann_build_params, samples, 'u'),
                              FIELD(ann_build_params, iterations, 'u'),
                              FIELD(ann_build_params, convergence, 'f'),
                              FIELD(ann_build_params, seed, 'U'),
                              FIELD(ann_build_params, threads, 'u'),
                              FIELD(ann_build_params, repair, 'i'),
                              FIELD(ann_build_params, calibrate, 'i'),
                              FIELD(ann_build_params, memory_limit, 'U'),
                              FIELD(ann_build_params, diversify, 'i'),
                              FIELD(ann_build_params, alpha, 'f'),
                              FIELD(ann_build_params, occlusion_bound, 'u'),
                              FIELD(ann_build_params, reverse_max, 'u'),
                              FIELD(ann_build_params, pool, 'u'),
                              FIELD(ann_build_params, angle, 'f'),
                              FIELD(ann_build_params, segment_rows, 'u'),
                              FIELD(ann_build_params, layers, 'u'),
                              FIELD(ann_build_params, refinements, 'i'),
                              FIELD(ann_build_params, build_stretch, 'f'),
                              FIELD(ann_build_params, midpoint, 'i'),
                              FIELD(ann_build_params, detours, 'i'),
                              FIELD(ann_build_params, reorder, 'i'),
                              FIELD(ann_build_params, build_slack, 'i'),
                              END};

const field fields_search[] = {
    FIELD(ann_search_params, recall, 'f'),          FIELD(ann_search_params, beam, 'u'),
    FIELD(ann_search_params, threads, 'u'),         FIELD(ann_search_params, device, 'i'),
    FIELD(ann_search_params, procedure, 'i'),       FIELD(ann_search_params, search_width, 'u'),
    FIELD(ann_search_params, iterations_max, 'u'),  FIELD(ann_search_params, hash_bits, 'u'),
    FIELD(ann_search_params, hash_reset, 'i'),      FIELD(ann_search_params, team_size, 'u'),
    FIELD(ann_search_params, ctas_per_query, 'u'),  FIELD(ann_search_params, batch_threshold, 'u'),
    FIELD(ann_search_params, beam_threshold, 'u'),  FIELD(ann_search_params, compare, 'i'),
    FIELD(ann_search_params, stretch, 'f'),         FIELD(ann_search_params, queue, 'u'),
    FIELD(ann_search_params, visited, 'u'),         FIELD(ann_search_params, nearest_share, 'f'),
    FIELD(ann_search_params, occlusion_max, 'u'),   FIELD(ann_search_params, walks, 'u'),
    FIELD(ann_search_params, hops_max, 'u'),        FIELD(ann_search_params, segments, 'u'),
    FIELD(ann_search_params, delta, 'f'),           FIELD(ann_search_params, queue_takes, 'i'),
    FIELD(ann_search_params, slack, 'i'),           FIELD(ann_search_params, descent, 'i'),
    FIELD(ann_search_params, warps_per_query, 'u'), END};

const field fields_knn[] = {FIELD(ann_knn_params, metric, 'i'),     FIELD(ann_knn_params, method, 'i'),
                            FIELD(ann_knn_params, k, 'u'),          FIELD(ann_knn_params, samples, 'u'),
                            FIELD(ann_knn_params, iterations, 'u'), FIELD(ann_knn_params, convergence, 'f'),
                            FIELD(ann_knn_params, threads, 'u'),    FIELD(ann_knn_params, seed, 'U'),
                            FIELD(ann_knn_params, device, 'i'),     END};

const field fields_open[] = {
    FIELD(ann_open_params, mode, 'i'),           FIELD(ann_open_params, threads, 'u'),
    FIELD(ann_open_params, expect_dim, 'u'),     FIELD(ann_open_params, expect_metric, 'i'),
    FIELD(ann_open_params, expect_element, 'i'), END};

const field fields_save[] = {FIELD(ann_save_params, threads, 'u'), FIELD(ann_save_params, sync, 'i'), END};

int fields_number(PyObject *given, const char *what, uint64_t most, uint64_t *out) {
  PyObject *number = PyNumber_Index(given);
  if (number == NULL) {
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "%s is %R; expected an int", what, given);
    return -1;
  }
  unsigned long long value = PyLong_AsUnsignedLongLong(number);
  int wrong = PyErr_Occurred() != NULL || value > most;
  PyErr_Clear();
  if (wrong) errors_refuse("argument", "%s is %R; expected 0 to %llu", what, given, (unsigned long long)most);
  Py_DECREF(number);
  *out = value;
  return wrong ? -1 : 0;
}

static int write_field(void *params, const field *where, PyObject *given) {
  char *place = (char *)params + where->offset;
  uint64_t number;
  if (where->kind == 'f') {
    double value = PyFloat_AsDouble(given);
    if (PyErr_Occurred()) {
      PyErr_Clear();
      PyErr_Format(PyExc_TypeError, "%s is %R; expected a number", where->name, given);
      return -1;
    }
    float narrow = (float)value;
    memcpy(place, &narrow, sizeof narrow);
    return 0;
  }
  if (where->kind == 'i') { /* -1 is "none" */
    long value = PyLong_AsLong(given);
    if (PyErr_Occurred() || value < -1 || value > INT32_MAX) {
      PyErr_Clear();
      errors_refuse("argument", "%s is %R; expected -1 to %d", where->name, given, INT32_MAX);
      return -1;
    }
    int32_t narrow = (int32_t)value;
    memcpy(place, &narrow, sizeof narrow);
    return 0;
  }
  if (fields_number(given, where->name, where->kind == 'u' ? UINT32_MAX : UINT64_MAX, &number)) return -1;
  if (where->kind == 'u') {
    uint32_t narrow = (uint32_t)number;
    memcpy(place, &narrow, sizeof narrow);
  } else {
    memcpy(place, &number, sizeof number);
  }
  return 0;
}

int fields_fill(void *params, const field *fields, PyObject *given) {
  if (given == NULL || given == Py_None) return 0;
  if (!PyDict_Check(given)) {
    PyErr_SetString(PyExc_TypeError, "parameters: expected a dict");
    return -1;
  }
  PyObject *key, *value;
  Py_ssize_t at = 0;
  while (PyDict_Next(given, &at, &key, &value)) {
    if (value == Py_None) continue;
    const field *where = fields;
    while (where->name != NULL && PyUnicode_CompareWithASCIIString(key, where->name) != 0) ++where;
    if (where->name == NULL) {
      PyErr_Format(PyExc_TypeError, "there is no parameter %R", key);
      return -1;
    }
    if (write_field(params, where, value)) return -1;
  }
  return 0;
}
