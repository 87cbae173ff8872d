"""The structs of ann.h for ctypes, as far as Python uses them here: `struct_size` tells the library where
they end. Zeros are the defaults.
"""

import ctypes

U32, I32, U64, F32, POINTER = (ctypes.c_uint32, ctypes.c_int32, ctypes.c_uint64, ctypes.c_float,
                               ctypes.c_void_p)


class Sized(ctypes.Structure):
    """Zeros, but for its size and what is given."""

    def __init__(self, **fields):
        super().__init__(struct_size=ctypes.sizeof(type(self)), **fields)


class Error(Sized):
    _fields_ = [("struct_size", U32), ("status", I32), ("row", U64), ("column", U64),
                ("os_error", I32), ("cuda_error", I32), ("message", ctypes.c_char * 256)]


class Matrix(Sized):
    _fields_ = [("struct_size", U32), ("element", I32), ("data", POINTER), ("rows", U64),
                ("dim", U32), ("space", I32), ("row_stride", U64)]


class Results(Sized):
    _fields_ = [("struct_size", U32), ("k", U32), ("rows", U64), ("ids", POINTER),
                ("distances", POINTER), ("counts", POINTER), ("status", POINTER),
                ("distance_count", U64), ("expansion_count", U64)]


class IndexParams(Sized):
    _fields_ = [("struct_size", U32), ("dim", U32), ("metric", I32), ("element", I32)]


class OpenParams(Sized):
    _fields_ = [("struct_size", U32), ("mode", I32), ("threads", U32)]


class BuildParams(Sized):
    _fields_ = [("struct_size", U32), ("graph", I32), ("knn", I32), ("device", I32),
                ("rows_mode", I32), ("degree", U32), ("knn_degree", U32), ("samples", U32),
                ("iterations", U32), ("convergence", F32), ("seed", U64), ("threads", U32)]


class SearchParams(Sized):
    _fields_ = [("struct_size", U32), ("procedure", I32), ("device", I32), ("threads", U32),
                ("recall", F32), ("beam", U32)]
