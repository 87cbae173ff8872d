"""Proves that a language without a C compiler can use the library: Python's ctypes, no package,
structs written down by hand from the header. The first argument is the path of the library."""

import ctypes as c
import random
import sys

CHECKS = [0, 0]


def check(good, text):
    CHECKS[0] += 1
    if not good:
        CHECKS[1] += 1
        print(text, file=sys.stderr)


class Sized(c.Structure):
    """A struct whose first field is its size."""

    def __init__(self, **fields):
        super().__init__(struct_size=c.sizeof(self), **fields)


class Error(Sized):
    _fields_ = [("struct_size", c.c_uint32), ("status", c.c_int32), ("row", c.c_uint64),
                ("column", c.c_uint64), ("os_error", c.c_int32), ("cuda_error", c.c_int32),
                ("message", c.c_char * 256)]


class IndexParams(Sized):
    _fields_ = [("struct_size", c.c_uint32), ("dim", c.c_uint32), ("metric", c.c_int32),
                ("element", c.c_int32)]


class Matrix(Sized):
    _fields_ = [("struct_size", c.c_uint32), ("element", c.c_int32), ("data", c.c_void_p),
                ("rows", c.c_uint64), ("dim", c.c_uint32), ("space", c.c_int32),
                ("row_stride", c.c_uint64)]


class Results(Sized):
    _fields_ = [("struct_size", c.c_uint32), ("k", c.c_uint32), ("rows", c.c_uint64),
                ("ids", c.c_void_p), ("distances", c.c_void_p), ("counts", c.c_void_p),
                ("status", c.c_void_p), ("distance_count", c.c_uint64),
                ("expansion_count", c.c_uint64)]


def main():
    library = c.CDLL(sys.argv[1])
    library.ann_status_name.restype = c.c_char_p
    library.ann_version.restype = c.c_char_p
    library.ann_index_free.argtypes = [c.c_void_p]
    library.ann_index_free.restype = None
    check(library.ann_version().count(b".") == 2, "version")
    check(library.ann_status_name(103) == b"ANN_NOT_FINITE", "status name")

    error = Error()
    index = c.c_void_p()
    status = library.ann_index_create(None, c.byref(IndexParams(dim=0)), c.byref(index),
                                      c.byref(error))
    check(status == 100 and error.status == 100 and b"dim" in error.message, "dim 0 is accepted")

    n, dim, k = 300, 6, 5
    source = random.Random(1)
    values = [source.random() for _ in range(n * dim)]
    data = (c.c_float * (n * dim))(*values)
    status = library.ann_index_create(None, c.byref(IndexParams(dim=dim)), c.byref(index),
                                      c.byref(error))
    check(status == 0, error.message)
    matrix = Matrix(element=1, data=c.addressof(data), rows=n, dim=dim)
    ids = (c.c_uint64 * n)(*[10 * i + 7 for i in range(n)])
    status = library.ann_build(index, c.byref(matrix), ids, None, None, c.byref(error))
    check(status == 0, error.message)
    status = library.ann_build(index, c.byref(matrix), ids, None, None, c.byref(error))
    check(status == 200 and error.message, "the second build is accepted")

    found, distances = (c.c_uint64 * (n * k))(), (c.c_float * (n * k))()
    for search in (library.ann_search_batch, library.ann_search_exact):
        results = Results(k=k, rows=n, ids=c.addressof(found), distances=c.addressof(distances))
        status = search(index, c.byref(matrix), None, c.byref(results), None, c.byref(error))
        check(status == 0, error.message)
        check(results.distance_count > 0, "no distances were counted")
        for i in range(n):
            check(found[i * k] == ids[i] and distances[i * k] == 0, f"row {i} is not found")
            near = [distances[i * k + j] for j in range(k)]
            check(near == sorted(near), f"distances of row {i} do not ascend")
            other = (found[i * k + 1] - 7) // 10
            true = sum((data[i * dim + c_] - data[other * dim + c_]) ** 2 for c_ in range(dim))
            check(abs(near[1] - true) < 1e-5, f"distance of row {i}")
    library.ann_index_free(index)
    library.ann_index_free(None)

    print(f"ctypes: {CHECKS[0]} checks, {CHECKS[1]} failed")
    return 1 if CHECKS[1] else 0


if __name__ == "__main__":
    sys.exit(main())
