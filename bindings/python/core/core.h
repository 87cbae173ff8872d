/* core.h: what the files of the extension module gannet._core share.
 *
 * The module is a thin layer of C between ann.h and the package's Python: it reads the memory of arrays,
 * lets go of the interpreter's lock (GIL) around every call, and turns statuses into exceptions. It uses the
 * limited API of Python 3.10, so that one binary serves every later version, and meets NumPy through
 * __array_struct__, so that it is compiled without NumPy and serves every version of that too. */
#ifndef GANNET_PYTHON_CORE_H
#define GANNET_PYTHON_CORE_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>
#include <ann.h>

/* --- errors.c: exceptions ----------------------------------------------------------------------- */

/* Takes the classes from a dict: status or name -> class. */
PyObject *errors_register(PyObject *module, PyObject *classes);

/* Raises the class of a status with the text, the place and the system's number of `error`. */
void errors_raise(ann_status status, const ann_error *error);

/* Raises the class of that name, with a text as PyUnicode_FromFormat makes it. */
void errors_refuse(const char *name, const char *format, ...);

/* --- memory.c: arrays of others ------------------------------------------------------------------ */

/* One or two dimensions of elements that another object owns. */
typedef struct memory {
  void *data;
  int dimensions;
  int64_t shape[2];
  int64_t strides[2]; /* bytes */
  char kind;          /* 'f', 'i', 'u'; 'B' for bfloat16, 0 for everything else */
  int itemsize;
  int32_t space; /* as in ann_matrix */
  int writable;
} memory;

extern PyType_Spec memory_view_spec;
extern PyObject *memory_view_type;

/* Reads a View or a NumPy array, whose memory stays as long as `from` does. Returns 0, or -1 and raises;
 * `what` is its name in texts. */
int memory_of(PyObject *from, const char *what, memory *out);

/* As vectors for the library, one a row; `one_allowed` takes a single vector without a dimension for rows. */
int memory_as_matrix(const memory *from, const char *what, int one_allowed, ann_matrix *out);

/* As a packed buffer of `rows` x `columns` elements of 'i' or 'u', or of 'f', to be written or to be read;
 * returns NULL and raises where it is something else. */
void *memory_as_buffer(const memory *from, const char *what, int64_t rows, int64_t columns, char kind,
                       int itemsize, int written);

PyObject *memory_from_dlpack(PyObject *module, PyObject *capsule);
PyObject *memory_from_address(PyObject *module, PyObject *arguments);

/* --- lenders.c: arrays of CuPy and Torch on a device ----------------------------------------------- */

/* Memory of a library for the results of a search. Zeroes at first. */
typedef struct lent_results {
  PyObject *shape;     /* of both arrays */
  PyObject *pieces[2]; /* CuPy's memory for both, or Torch's arrays */
  void *data[2];       /* of the ids, of the distances */
  int of_cupy;
} lent_results;

PyObject *lenders_know_cupy(PyObject *module, PyObject *arguments);
PyObject *lenders_know_torch(PyObject *module, PyObject *arguments);

/* Reads an array of a library that is known, of a usual kind: then 1. Else 0, or -1 and raises. Nothing waits: work on
 * it is to be queued on the library's current stream. */
int lenders_read(PyObject *array, memory *out);

/* That stream of an array that lenders_read() has read. Returns 0, or -1 and raises. */
int lenders_stream(PyObject *array, const memory *where, uint64_t *stream);

/* Memory for k results of each of such queries. Returns 0, or -1 and raises; lenders_release() follows in both cases. */
int lenders_take_results(PyObject *queries, const memory *where, int64_t k, lent_results *out);

/* The ids and distances as a pair of the library's arrays. */
PyObject *lenders_arrays(const lent_results *from);
void lenders_release(lent_results *given);

/* --- call.c: long calls --------------------------------------------------------------------------- */

/* A call of the library, which the struct of one call has as its first member. */
typedef struct call {
  ann_status (*run)(struct call *); /* runs without the GIL */
  ann_monitor *monitor;             /* NULL where it cannot be stopped */
  int stays; /* on the thread that asks for it, whose own stream it may queue work on */
  ann_error error;
  ann_status status;
  PyObject *raised[3]; /* what a callback raised, which comes before any other error */
} call;

/* Seconds that stand for "no timeout". */
#define NO_TIMEOUT (-1.0)

/* Runs a call without the GIL. A `watched` one, or one with a callable `progress` (NULL or None: none) or a
 * timeout, runs on a thread of its own unless it stays, while this one looks for signals and reports: Ctrl-C and
 * whatever `progress` raises stop it. Returns 0, or -1 and raises. */
int call_run(call *made, int watched, PyObject *progress, double timeout);

/* Keeps the exception that is set for the end of the call. Needs the GIL. */
void call_keep_raised(call *made);

/* Reads a timeout in seconds, None for none. Returns 0, or -1 and raises. */
int call_timeout(PyObject *given, double *seconds);

/* --- fields.c: parameter structs ------------------------------------------------------------------ */

/* A member of a parameter struct: 'u' uint32_t, 'i' int32_t, 'U' uint64_t, 'f' float. */
typedef struct field {
  const char *name;
  size_t offset;
  char kind;
} field;

/* Writes a dict's values to the members of those names; None leaves zero. Returns 0, or -1 and raises. */
int fields_fill(void *params, const field *fields, PyObject *given);

int fields_number(PyObject *given, const char *what, uint64_t most, uint64_t *out);

extern const field fields_build[], fields_search[], fields_knn[], fields_open[], fields_save[];

/* --- index.c: the type Handle --------------------------------------------------------------------- */

extern PyType_Spec index_spec;
extern PyObject *index_type;

PyObject *index_open(PyObject *module, PyObject *arguments);

/* --- module.c -------------------------------------------------------------------------------------- */

extern PyObject *numpy_empty, *numpy_int64, *numpy_float32;

#endif
