/* errors.c: exceptions of the library and of the binding, by the classes of gannet/errors.py. */
#include "core.h"

#include <stdarg.h>

static PyObject *classes_by_key; /* status (int) or name (str) -> class */

PyObject *errors_register(PyObject *module, PyObject *classes) {
  (void)module;
  if (!PyDict_Check(classes)) {
    PyErr_SetString(PyExc_TypeError, "a dict of classes");
    return NULL;
  }
  Py_INCREF(classes);
  Py_XDECREF(classes_by_key);
  classes_by_key = classes;
  Py_RETURN_NONE;
}

/* Raises `key`'s class with a text and what it says beside it. Takes both references. */
static void raise_class(PyObject *key, PyObject *text, ann_status status, const ann_error *error) {
  PyObject *class = key && classes_by_key ? PyDict_GetItemWithError(classes_by_key, key) : NULL;
  if (class == NULL) {
    if (!PyErr_Occurred()) PyErr_SetObject(PyExc_RuntimeError, text);
  } else if (text != NULL) {
    long long row = error && error->row != UINT64_MAX ? (long long)error->row : -1;
    long long column = error && error->column != UINT64_MAX ? (long long)error->column : -1;
    PyObject *raised = PyObject_CallFunction(class, "OiLLii", text, (int)status, row, column,
                                             error ? error->os_error : 0, error ? error->cuda_error : 0);
    if (raised != NULL) {
      PyErr_SetObject(class, raised);
      Py_DECREF(raised);
    }
  }
  Py_XDECREF(key);
  Py_XDECREF(text);
}

void errors_raise(ann_status status, const ann_error *error) {
  const char *said = error && error->message[0] ? error->message : ann_status_name(status);
  /* A file's name in the text may be no UTF-8. */
  PyObject *text = PyUnicode_DecodeUTF8(said, (Py_ssize_t)strlen(said), "replace");
  raise_class(PyLong_FromLong(status), text, status, error);
}

void errors_refuse(const char *name, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  PyObject *text = PyUnicode_FromFormatV(format, arguments);
  va_end(arguments);
  raise_class(PyUnicode_FromString(name), text, ANN_INVALID_ARGUMENT, NULL);
}
