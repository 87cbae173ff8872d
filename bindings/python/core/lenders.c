/* lenders.c: arrays of CuPy and Torch in the memory of a CUDA device: where they lie, on which stream work on them is
 * queued, and new ones for results.
 *
 * All of that comes before the kernel of a search, whose 25 us for a single query wait for it: in Python it took 10 us
 * and more, by DLPack another 5 to 15. Nothing is imported here. The package's Python names the classes and functions of
 * a library when it first meets an array of it (_arrays.know). What is unusual about an array, or has to be refused, is
 * left to the way by DLPack. */
#include "core.h"

/* --- What is known of the two libraries ------------------------------------------------------------------- */

/* Of CuPy. Its memory is that of the current device. */
static struct {
  PyObject *array;          /* the class; NULL: not known */
  PyObject *current_device; /* () -> number */
  PyObject *current_stream; /* () -> stream */
  PyObject *take;           /* (bytes) -> memory of the current device, in the order of the current stream */
} cupy;

/* Of Torch. */
static struct {
  PyObject *array;
  PyObject *current_stream; /* (device) -> number */
  PyObject *kinds;          /* dtype -> (kind, bytes) */
  PyObject *strided;        /* the layout of arrays that have strides */
  PyObject *of_ids;         /* {"dtype": int64} */
  PyObject *of_distances;   /* {"dtype": float32} */
} torch;

/* What CUDA calls its default stream where 0 would mean "none". */
#define LEGACY_STREAM 1

static void keep(PyObject **place, PyObject *given) {
  PyObject *before = *place;
  Py_INCREF(*place = given);
  Py_XDECREF(before);
}

/* know_cupy(class, current device, current stream, take) */
PyObject *lenders_know_cupy(PyObject *module, PyObject *arguments) {
  (void)module;
  PyObject *array, *device, *stream, *take;
  if (!PyArg_ParseTuple(arguments, "OOOO", &array, &device, &stream, &take)) return NULL;
  keep(&cupy.current_device, device);
  keep(&cupy.current_stream, stream);
  keep(&cupy.take, take);
  keep(&cupy.array, array);
  Py_RETURN_NONE;
}

/* know_torch(class, current stream, kinds, strided, {"dtype": int64}, {"dtype": float32}) */
PyObject *lenders_know_torch(PyObject *module, PyObject *arguments) {
  (void)module;
  PyObject *array, *stream, *kinds, *strided, *of_ids, *of_distances;
  if (!PyArg_ParseTuple(arguments, "OOO!OO!O!", &array, &stream, &PyDict_Type, &kinds, &strided, &PyDict_Type,
                        &of_ids, &PyDict_Type, &of_distances)) {
    return NULL;
  }
  keep(&torch.current_stream, stream);
  keep(&torch.kinds, kinds);
  keep(&torch.strided, strided);
  keep(&torch.of_ids, of_ids);
  keep(&torch.of_distances, of_distances);
  keep(&torch.array, array);
  Py_RETURN_NONE;
}

/* --- Attributes ------------------------------------------------------------------------------------------- */

typedef enum name {
  DATA,
  DATA_PTR,
  DEVICE,
  DEVICE_ID,
  DTYPE,
  INDEX,
  IS_CUDA,
  ITEMSIZE,
  KIND,
  LAYOUT,
  NEW_EMPTY,
  PTR,
  REQUIRES_GRAD,
  SHAPE,
  STRIDE,
  STRIDES,
  NAMES
} name;

static PyObject *attribute(PyObject *from, name which) {
  static const char *const texts[NAMES] = {
      "data", "data_ptr", "device",    "device_id", "dtype",         "index", "is_cuda", "itemsize",
      "kind", "layout",   "new_empty", "ptr",       "requires_grad", "shape", "stride",  "strides"};
  static PyObject *interned[NAMES];
  if (interned[which] == NULL && (interned[which] = PyUnicode_InternFromString(texts[which])) == NULL)
    return NULL;
  return PyObject_GetAttr(from, interned[which]);
}

/* A number from an object that is given away; -1 and an exception where it is none. */
static int number_from(PyObject *given, long long *out) {
  if (given == NULL) return -1;
  *out = PyLong_AsLongLong(given);
  Py_DECREF(given);
  return *out == -1 && PyErr_Occurred() != NULL ? -1 : 0;
}

static int number_of(PyObject *from, name which, long long *out) {
  return number_from(attribute(from, which), out);
}

/* What a method without arguments answers. */
static PyObject *answer_of(PyObject *from, name which) {
  PyObject *method = attribute(from, which);
  PyObject *answer = method != NULL ? PyObject_CallNoArgs(method) : NULL;
  Py_XDECREF(method);
  return answer;
}

/* One or two numbers from a tuple that is given away, times `unit`. */
static int numbers_from(PyObject *given, long long unit, int dimensions, int64_t *out) {
  int failed = given == NULL || !PyTuple_Check(given) || PyTuple_Size(given) != dimensions;
  for (int i = 0; i < dimensions && !failed; ++i) {
    out[i] = unit * PyLong_AsLongLong(PyTuple_GetItem(given, i));
    failed = PyErr_Occurred() != NULL;
  }
  Py_XDECREF(given);
  if (failed && PyErr_Occurred() == NULL) PyErr_SetString(PyExc_TypeError, "expected a tuple of lengths");
  return failed ? -1 : 0;
}

/* Lengths, and strides by `ask`. Returns 1, 0 where there are no rows of vectors, and -1 if it raises. */
static int read_shape(PyObject *array, PyObject *(*ask)(PyObject *, name), name strides, long long unit,
                      memory *out) {
  PyObject *shape = attribute(array, SHAPE);
  if (shape == NULL) return -1;
  Py_ssize_t dimensions = PyTuple_Check(shape) ? PyTuple_Size(shape) : -1;
  if (dimensions < 1 || dimensions > 2) {
    Py_DECREF(shape);
    return 0;
  }
  out->dimensions = (int)dimensions;
  if (numbers_from(shape, 1, out->dimensions, out->shape)) return -1;
  return numbers_from(ask(array, strides), unit, out->dimensions, out->strides) ? -1 : 1;
}

/* --- Where queries lie ------------------------------------------------------------------------------------- */

/* The kind of NumPy's dtypes that CuPy's arrays have, and its bytes. */
static int read_dtype(PyObject *array, memory *out) {
  PyObject *dtype = attribute(array, DTYPE);
  if (dtype == NULL) return -1;
  long long size = 4;
  char kind = 'f';
  int failed = 0;
  if (dtype != numpy_float32) {
    PyObject *text = attribute(dtype, KIND);
    failed = text == NULL || number_of(dtype, ITEMSIZE, &size);
    kind = failed ? 0 : (char)PyUnicode_ReadChar(text, 0);
    failed = failed || PyErr_Occurred() != NULL;
    Py_XDECREF(text);
  }
  Py_DECREF(dtype);
  out->kind = kind;
  out->itemsize = (int)size;
  return failed ? -1 : 0;
}

static int read_cupy(PyObject *array, memory *out) {
  PyObject *data = attribute(array, DATA);
  if (data == NULL) return -1;
  long long address = 0, device = 0, current = 0;
  int failed = number_of(data, PTR, &address) || number_of(data, DEVICE_ID, &device) ||
               number_from(PyObject_CallNoArgs(cupy.current_device), &current) || read_dtype(array, out);
  Py_DECREF(data);
  if (failed) return -1;
  if (device != current || (out->kind != 'f' && out->kind != 'i' && out->kind != 'u')) return 0;
  out->data = (void *)(uintptr_t)address;
  out->space = ANN_DEVICE_CUDA + (int32_t)device;
  return read_shape(array, attribute, STRIDES, 1, out);
}

/* Whether an attribute is this very object. */
static int is_attribute(PyObject *from, name which, PyObject *expected) {
  PyObject *found = attribute(from, which);
  if (found == NULL) return -1;
  int same = found == expected;
  Py_DECREF(found);
  return same;
}

/* An array whose gradient is asked for is refused by DLPack's way, in Torch's words. */
static int is_lendable(PyObject *array) {
  const struct {
    name which;
    PyObject *expected;
  } needed[] = {{IS_CUDA, Py_True}, {REQUIRES_GRAD, Py_False}, {LAYOUT, torch.strided}};
  for (size_t i = 0; i < sizeof needed / sizeof needed[0]; ++i) {
    int right = is_attribute(array, needed[i].which, needed[i].expected);
    if (right != 1) return right;
  }
  return 1;
}

static int read_torch(PyObject *array, memory *out) {
  int lendable = is_lendable(array);
  if (lendable != 1) return lendable;
  PyObject *dtype = attribute(array, DTYPE);
  PyObject *known = dtype ? PyDict_GetItemWithError(torch.kinds, dtype) : NULL;
  Py_XDECREF(dtype);
  if (known == NULL) return PyErr_Occurred() != NULL ? -1 : 0;
  const char *kind;
  if (!PyArg_ParseTuple(known, "si", &kind, &out->itemsize)) return -1;
  out->kind = kind[0];
  PyObject *device = attribute(array, DEVICE);
  long long number = 0, address = 0;
  int failed = device == NULL || number_of(device, INDEX, &number) ||
               number_from(answer_of(array, DATA_PTR), &address);
  Py_XDECREF(device);
  if (failed) return -1;
  out->data = (void *)(uintptr_t)address;
  out->space = ANN_DEVICE_CUDA + (int32_t)number;
  return read_shape(array, answer_of, STRIDE, out->itemsize, out);
}

int lenders_read(PyObject *array, memory *out) {
  PyObject *type = (PyObject *)Py_TYPE(array);
  out->writable = 1;
  if (type == cupy.array) return read_cupy(array, out);
  if (type == torch.array) return read_torch(array, out);
  return 0;
}

int lenders_stream(PyObject *array, const memory *where, uint64_t *stream) {
  long long number = 0;
  int failed;
  if ((PyObject *)Py_TYPE(array) == cupy.array) {
    PyObject *current = PyObject_CallNoArgs(cupy.current_stream);
    failed = current == NULL || number_of(current, PTR, &number);
    Py_XDECREF(current);
  } else {
    PyObject *device = PyLong_FromLong(where->space - ANN_DEVICE_CUDA);
    failed = device == NULL ||
             number_from(PyObject_CallFunctionObjArgs(torch.current_stream, device, NULL), &number);
    Py_XDECREF(device);
  }
  *stream = number != 0 ? (uint64_t)number : LEGACY_STREAM;
  return failed ? -1 : 0;
}

/* --- Results beside them ----------------------------------------------------------------------------------- */

/* CuPy gives one piece for both: in two they take some 5 us more. */
static int take_of_cupy(int64_t places, lent_results *out) {
  long long address = 0;
  PyObject *bytes = PyLong_FromLongLong(12 * (long long)places);
  out->pieces[0] = bytes ? PyObject_CallFunctionObjArgs(cupy.take, bytes, NULL) : NULL;
  Py_XDECREF(bytes);
  if (out->pieces[0] == NULL || number_of(out->pieces[0], PTR, &address)) return -1;
  out->data[0] = (void *)(uintptr_t)address;
  out->data[1] = (void *)(uintptr_t)(address + 8 * places);
  return 0;
}

static int take_of_torch(PyObject *queries, lent_results *out) {
  PyObject *make = attribute(queries, NEW_EMPTY);
  PyObject *arguments = make ? PyTuple_Pack(1, out->shape) : NULL;
  int failed = arguments == NULL;
  for (int i = 0; i < 2 && !failed; ++i) {
    long long address = 0;
    out->pieces[i] = PyObject_Call(make, arguments, i == 0 ? torch.of_ids : torch.of_distances);
    failed = out->pieces[i] == NULL || number_from(answer_of(out->pieces[i], DATA_PTR), &address);
    out->data[i] = (void *)(uintptr_t)address;
  }
  Py_XDECREF(arguments);
  Py_XDECREF(make);
  return failed ? -1 : 0;
}

int lenders_take_results(PyObject *queries, const memory *where, int64_t k, lent_results *out) {
  int64_t rows = where->dimensions == 2 ? where->shape[0] : 1;
  out->shape = where->dimensions == 2 ? Py_BuildValue("(LL)", (long long)rows, (long long)k)
                                      : Py_BuildValue("(L)", (long long)k);
  out->of_cupy = (PyObject *)Py_TYPE(queries) == cupy.array;
  if (out->shape == NULL) return -1;
  return out->of_cupy ? take_of_cupy(rows * k, out) : take_of_torch(queries, out);
}

/* The arrays that lie in CuPy's piece. */
static PyObject *arrays_of_cupy(const lent_results *from) {
  PyObject *gap = PyLong_FromLongLong((char *)from->data[1] - (char *)from->data[0]);
  PyObject *rest = gap ? PyNumber_Add(from->pieces[0], gap) : NULL;
  PyObject *ids =
      rest ? PyObject_CallFunctionObjArgs(cupy.array, from->shape, numpy_int64, from->pieces[0], NULL) : NULL;
  PyObject *distances =
      ids ? PyObject_CallFunctionObjArgs(cupy.array, from->shape, numpy_float32, rest, NULL) : NULL;
  PyObject *both = distances ? PyTuple_Pack(2, ids, distances) : NULL;
  Py_XDECREF(gap);
  Py_XDECREF(rest);
  Py_XDECREF(ids);
  Py_XDECREF(distances);
  return both;
}

PyObject *lenders_arrays(const lent_results *from) {
  return from->of_cupy ? arrays_of_cupy(from) : PyTuple_Pack(2, from->pieces[0], from->pieces[1]);
}

void lenders_release(lent_results *given) {
  Py_XDECREF(given->shape);
  Py_XDECREF(given->pieces[0]);
  Py_XDECREF(given->pieces[1]);
}
