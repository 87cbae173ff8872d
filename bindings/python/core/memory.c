/* memory.c: where arrays of NumPy, and of every library with DLPack, have their elements. Nothing is copied. */
#include "core.h"

/* --- Views: memory that Python code has found for us ------------------------------------------------- */

/* DLPack's structs, as its specification lays them out. */
typedef struct dl_tensor {
  void *data;
  int32_t device_type;
  int32_t device_id;
  int32_t dimensions;
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
  int64_t *shape;
  int64_t *strides; /* elements; NULL: packed */
  uint64_t byte_offset;
} dl_tensor;

typedef struct dl_managed {
  dl_tensor tensor;
  void *context;
  void (*deleter)(struct dl_managed *);
} dl_managed;

typedef struct dl_managed_versioned {
  uint32_t major, minor;
  void *context;
  void (*deleter)(struct dl_managed_versioned *);
  uint64_t flags; /* bit 0: read-only */
  dl_tensor tensor;
} dl_managed_versioned;

enum { DL_CPU = 1, DL_CUDA = 2, DL_CUDA_HOST = 3, DL_CUDA_MANAGED = 13 };
enum { DL_INT = 0, DL_UINT = 1, DL_FLOAT = 2, DL_BFLOAT = 4 };

typedef struct view {
  PyObject_HEAD memory what;
  dl_managed *managed;
  dl_managed_versioned *versioned;
  PyObject *owner;
} view;

PyObject *memory_view_type;

static void view_dealloc(PyObject *object) {
  view *self = (view *)object;
  PyTypeObject *type = Py_TYPE(object);
  /* A view also goes while an error is on its way, which the lender's deleter must neither see nor lose. */
  PyObject *error, *value, *trace;
  PyErr_Fetch(&error, &value, &trace);
  if (self->managed != NULL && self->managed->deleter != NULL) self->managed->deleter(self->managed);
  if (self->versioned != NULL && self->versioned->deleter != NULL) self->versioned->deleter(self->versioned);
  PyErr_Restore(error, value, trace);
  Py_XDECREF(self->owner);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF(type);
}

static PyObject *view_shape(PyObject *object, void *unused) {
  (void)unused;
  const memory *what = &((view *)object)->what;
  if (what->dimensions == 1) return Py_BuildValue("(L)", (long long)what->shape[0]);
  return Py_BuildValue("(LL)", (long long)what->shape[0], (long long)what->shape[1]);
}

static PyObject *view_space(PyObject *object, void *unused) {
  (void)unused;
  return PyLong_FromLong(((view *)object)->what.space);
}

static PyGetSetDef view_properties[] = {
    {"shape", view_shape, NULL, "rows and columns, or columns alone", NULL},
    {"space", view_space, NULL, "0 for the host, else 2 + i", NULL},
    {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot view_slots[] = {{Py_tp_dealloc, view_dealloc},
                                   {Py_tp_getset, view_properties},
                                   {Py_tp_doc, "Vectors in memory that another library owns."},
                                   {0, NULL}};
PyType_Spec memory_view_spec = {"gannet._core.View", sizeof(view), 0, Py_TPFLAGS_DEFAULT, view_slots};

static view *new_view(void) {
  PyTypeObject *type = (PyTypeObject *)memory_view_type;
  return (view *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
}

static int read_tensor(const dl_tensor *tensor, memory *out) {
  if (tensor->dimensions < 1 || tensor->dimensions > 2) {
    errors_refuse("shape", "the array has %d dimensions; expected 1 or 2", (int)tensor->dimensions);
    return -1;
  }
  switch (tensor->device_type) {
    case DL_CPU:
    case DL_CUDA_HOST:
      out->space = 0;
      break;
    case DL_CUDA:
    case DL_CUDA_MANAGED:
      out->space = ANN_DEVICE_CUDA + tensor->device_id;
      break;
    default:
      errors_refuse("device", "the array lies on a device of DLPack's type %d; expected the host or CUDA",
                    (int)tensor->device_type);
      return -1;
  }
  out->itemsize = tensor->bits / 8;
  out->kind = tensor->code == DL_FLOAT    ? 'f'
              : tensor->code == DL_INT    ? 'i'
              : tensor->code == DL_UINT   ? 'u'
              : tensor->code == DL_BFLOAT ? 'B'
                                          : 0;
  if (tensor->lanes != 1 || tensor->bits % 8 != 0) out->kind = 0;
  out->dimensions = tensor->dimensions;
  int64_t packed = out->itemsize;
  for (int i = tensor->dimensions - 1; i >= 0; --i) {
    out->shape[i] = tensor->shape[i];
    out->strides[i] = tensor->strides ? tensor->strides[i] * out->itemsize : packed;
    packed *= tensor->shape[i];
  }
  out->data = (char *)tensor->data + tensor->byte_offset;
  out->writable = 1;
  return 0;
}

PyObject *memory_from_dlpack(PyObject *module, PyObject *capsule) {
  (void)module;
  view *made = new_view();
  if (made == NULL) return NULL;
  int failed = 0;
  if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
    dl_managed_versioned *tensor = PyCapsule_GetPointer(capsule, "dltensor_versioned");
    if (tensor->major != 1) {
      errors_refuse("dtype", "the array speaks version %u of DLPack; expected 0 or 1",
                    (unsigned)tensor->major);
      failed = 1;
    } else {
      failed =
          read_tensor(&tensor->tensor, &made->what) || PyCapsule_SetName(capsule, "used_dltensor_versioned");
      made->what.writable = !(tensor->flags & 1);
      if (!failed) made->versioned = tensor;
    }
  } else if (PyCapsule_IsValid(capsule, "dltensor")) {
    dl_managed *tensor = PyCapsule_GetPointer(capsule, "dltensor");
    failed = read_tensor(&tensor->tensor, &made->what) || PyCapsule_SetName(capsule, "used_dltensor");
    if (!failed) made->managed = tensor;
  } else {
    PyErr_SetString(PyExc_TypeError, "expected a fresh capsule of DLPack");
    failed = 1;
  }
  if (failed) {
    Py_DECREF(made);
    return NULL;
  }
  return (PyObject *)made;
}

/* (address, shape, strides in bytes or None, kind, itemsize, space, read-only, owner): what
 * __cuda_array_interface__ says. */
PyObject *memory_from_address(PyObject *module, PyObject *arguments) {
  (void)module;
  unsigned long long address;
  PyObject *shape, *strides, *owner;
  int kind, itemsize, space, readonly;
  if (!PyArg_ParseTuple(arguments, "KO!OCiipO", &address, &PyTuple_Type, &shape, &strides, &kind, &itemsize,
                        &space, &readonly, &owner)) {
    return NULL;
  }
  Py_ssize_t dimensions = PyTuple_Size(shape);
  if (dimensions < 1 || dimensions > 2) {
    errors_refuse("shape", "the array has %d dimensions; expected 1 or 2", (int)dimensions);
    return NULL;
  }
  view *made = new_view();
  if (made == NULL) return NULL;
  memory *what = &made->what;
  what->data = (void *)(uintptr_t)address;
  what->dimensions = (int)dimensions;
  what->kind = (char)kind;
  what->itemsize = itemsize;
  what->space = space;
  what->writable = !readonly;
  int64_t packed = itemsize;
  for (Py_ssize_t i = dimensions - 1; i >= 0; --i) {
    what->shape[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
    PyObject *stride = PyTuple_Check(strides) ? PyTuple_GetItem(strides, i) : NULL;
    what->strides[i] = stride ? PyLong_AsLongLong(stride) : packed;
    packed *= what->shape[i];
  }
  if (PyErr_Occurred()) {
    Py_DECREF(made);
    return NULL;
  }
  Py_INCREF(owner);
  made->owner = owner;
  return (PyObject *)made;
}

/* --- NumPy -------------------------------------------------------------------------------------------- */

/* What the capsule of __array_struct__ holds. */
typedef struct array_struct {
  int two;
  int dimensions;
  char kind;
  int itemsize;
  int flags;
  Py_ssize_t *shape;
  Py_ssize_t *strides;
  void *data;
  PyObject *description;
} array_struct;

enum { NOT_SWAPPED = 0x200, WRITEABLE = 0x400 };

/* ml_dtypes' bfloat16 says of itself only that it has two bytes. */
static int is_bfloat16(PyObject *array) {
  int found = 0;
  PyObject *dtype = PyObject_GetAttrString(array, "dtype");
  PyObject *name = dtype ? PyObject_Str(dtype) : NULL;
  if (name != NULL) found = PyUnicode_CompareWithASCIIString(name, "bfloat16") == 0;
  Py_XDECREF(name);
  Py_XDECREF(dtype);
  PyErr_Clear();
  return found;
}

static int read_array(PyObject *from, const array_struct *array, const char *what, memory *out) {
  if (array->two != 2 || array->dimensions < 1 || array->dimensions > 2) {
    errors_refuse("shape", "%s has %d dimensions; expected 1 or 2", what, array->dimensions);
    return -1;
  }
  if (array->itemsize > 1 && !(array->flags & NOT_SWAPPED)) {
    errors_refuse("dtype",
                  "%s has its bytes in the other order than this machine; "
                  "pass a.astype(a.dtype.newbyteorder('='))",
                  what);
    return -1;
  }
  out->data = array->data;
  out->dimensions = array->dimensions;
  for (int i = 0; i < array->dimensions; ++i) {
    out->shape[i] = array->shape[i];
    out->strides[i] = array->strides[i];
  }
  out->kind = array->kind == 'f' || array->kind == 'i' || array->kind == 'u' ? array->kind : 0;
  if (array->kind == 'V' && array->itemsize == 2 && is_bfloat16(from)) out->kind = 'B';
  out->itemsize = array->itemsize;
  out->space = 0;
  out->writable = (array->flags & WRITEABLE) != 0;
  return 0;
}

int memory_of(PyObject *from, const char *what, memory *out) {
  static PyObject *name;
  if ((PyObject *)Py_TYPE(from) == memory_view_type) {
    *out = ((view *)from)->what;
    return 0;
  }
  if (name == NULL && (name = PyUnicode_InternFromString("__array_struct__")) == NULL) return -1;
  PyObject *capsule = PyObject_GetAttr(from, name);
  if (capsule == NULL || !PyCapsule_IsValid(capsule, NULL)) {
    PyErr_Clear();
    Py_XDECREF(capsule);
    PyErr_Format(PyExc_TypeError, "%s: expected an array", what);
    return -1;
  }
  int failed = read_array(from, PyCapsule_GetPointer(capsule, NULL), what, out);
  Py_DECREF(capsule);
  return failed;
}

/* --- As the library wants it ---------------------------------------------------------------------------- */

static int32_t element_of(const memory *from, const char *what) {
  switch (from->kind) {
    case 'f':
      if (from->itemsize == 4) return ANN_F32;
      if (from->itemsize == 2) return ANN_F16;
      break;
    case 'B':
      return ANN_BF16;
    case 'i':
      if (from->itemsize == 1) return ANN_I8;
      break;
    case 'u':
      if (from->itemsize == 1) return ANN_U8;
      break;
    default:
      break;
  }
  const char *kind = from->kind == 'f'   ? "float"
                     : from->kind == 'i' ? "int"
                     : from->kind == 'u' ? "uint"
                                         : NULL;
  if (kind != NULL) {
    errors_refuse("dtype", "%s is of %s%d; expected float32, float16, bfloat16, int8 or uint8%s", what, kind,
                  8 * from->itemsize, from->kind == 'f' ? " (a.astype(numpy.float32) rounds)" : "");
  } else {
    errors_refuse("dtype",
                  "%s is of no numbers that are known here; "
                  "expected float32, float16, bfloat16, int8 or uint8",
                  what);
  }
  return 0;
}

int memory_as_matrix(const memory *from, const char *what, int one_allowed, ann_matrix *out) {
  *out = (ann_matrix)ANN_MATRIX_INIT;
  out->element = element_of(from, what);
  if (out->element == 0) return -1;
  if (from->dimensions == 1 && !one_allowed) {
    errors_refuse("shape", "%s has 1 dimension; expected 2: [rows, columns]", what);
    return -1;
  }
  int last = from->dimensions - 1;
  int64_t rows = last == 1 ? from->shape[0] : 1, columns = from->shape[last];
  if (columns > UINT32_MAX || columns < 1) {
    errors_refuse("shape", "%s has %lld columns; expected 1 to %u", what, (long long)columns, ANN_DIM_MAX);
    return -1;
  }
  if (columns > 1 && rows > 0 && from->strides[last] != from->itemsize) {
    errors_refuse("order",
                  "%s has its columns %lld bytes apart; a row's elements must lie side by side, as in "
                  "numpy.ascontiguousarray(a)",
                  what, (long long)from->strides[last]);
    return -1;
  }
  int64_t stride = rows > 1 ? from->strides[0] : columns * from->itemsize;
  if (stride < columns * from->itemsize) {
    errors_refuse("order",
                  "%s has its rows %lld bytes apart, less than the %lld that a row takes; pass "
                  "numpy.ascontiguousarray(a)",
                  what, (long long)stride, (long long)(columns * from->itemsize));
    return -1;
  }
  out->data = from->data;
  out->rows = (uint64_t)rows;
  out->dim = (uint32_t)columns;
  out->space = from->space;
  out->row_stride = (uint64_t)stride;
  return 0;
}

void *memory_as_buffer(const memory *from, const char *what, int64_t rows, int64_t columns, char kind,
                       int itemsize, int written) {
  int right = kind == 'i' ? from->kind == 'i' || from->kind == 'u' : from->kind == kind;
  if (!right || from->itemsize != itemsize) {
    errors_refuse("dtype", "%s must be of %s%d", what, kind == 'f' ? "float" : "int", 8 * itemsize);
    return NULL;
  }
  int last = from->dimensions - 1;
  if (from->shape[last] != columns || (last == 1 ? from->shape[0] : 1) != rows) {
    errors_refuse("shape", "%s must have the shape [%lld, %lld]", what, (long long)rows, (long long)columns);
    return NULL;
  }
  if (rows * columns > 0 && ((columns > 1 && from->strides[last] != itemsize) ||
                             (rows > 1 && from->strides[0] != columns * itemsize))) {
    errors_refuse("order", "%s must be packed, row after row", what);
    return NULL;
  }
  if (written && !from->writable) {
    errors_refuse("order", "%s may only be read, and must be written to", what);
    return NULL;
  }
  static char nothing[8];
  return from->data != NULL ? from->data : nothing;
}
