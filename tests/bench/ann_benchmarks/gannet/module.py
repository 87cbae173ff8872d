"""Gannet for ann-benchmarks: copy this folder to ann_benchmarks/algorithms/gannet there.

The library is opened through ctypes: libgannet.so from GANNET_LIBRARY, or where the system's loader
finds it.
"""

import ctypes
import os

import numpy

from ..base.module import BaseANN
from .ann_structs import I32, POINTER, BuildParams, Error, IndexParams, Matrix, Results, SearchParams

METRICS = {"euclidean": 1, "dot": 2, "angular": 3}
ELEMENTS = {"float32": 1, "float16": 2, "int8": 4, "uint8": 5}


class Gannet(BaseANN):
    def __init__(self, metric, params):
        self.index = POINTER()
        self.metric = METRICS[metric]
        self.params = {name: int(params[name]) for name in ("degree", "knn_degree") if name in params}
        self.search_params = SearchParams(threads=1)
        self.name = f"gannet {self.params}"
        self.library = ctypes.CDLL(os.environ.get("GANNET_LIBRARY", "libgannet.so"))
        for name in ("ann_index_create", "ann_build", "ann_search_batch"):
            getattr(self.library, name).restype = I32
        self.library.ann_index_free.restype = None

    def call(self, name, *arguments):
        error = Error()
        status = getattr(self.library, name)(*arguments, ctypes.byref(error))
        if status != 0:
            raise RuntimeError(f"{name}: {error.message.decode()} (status {status})")

    def matrix(self, values):
        """The view, and the array that it looks at, which must live as long."""
        if values.dtype.name not in ELEMENTS:
            values = values.astype(numpy.float32)
        values = numpy.ascontiguousarray(values)
        return Matrix(element=ELEMENTS[values.dtype.name], data=values.ctypes.data,
                      rows=values.shape[0], dim=values.shape[1]), values

    def fit(self, X):
        self.done()
        rows, _keep = self.matrix(X)
        shape = IndexParams(dim=rows.dim, metric=self.metric)
        self.call("ann_index_create", None, ctypes.byref(shape), ctypes.byref(self.index))
        build = BuildParams(**self.params)
        self.call("ann_build", self.index, ctypes.byref(rows), None, ctypes.byref(build), None)

    def set_query_arguments(self, beam):
        self.beam = int(beam)
        self.name = f"gannet {self.params} beam {beam}"

    def search(self, X, n, threads):
        queries, _keep = self.matrix(X)
        ids = numpy.empty((len(X), n), numpy.uint64)
        results = Results(k=n, rows=len(X), ids=ids.ctypes.data)
        self.search_params.threads = threads
        self.search_params.beam = max(self.beam, n)
        self.call("ann_search_batch", self.index, ctypes.byref(queries),
                  ctypes.byref(self.search_params), ctypes.byref(results), None)
        return ids

    def query(self, q, n):
        found = self.search(q.reshape(1, -1), n, 1)[0]
        return found[found != numpy.uint64(2**64 - 1)].astype(numpy.int64)

    def batch_query(self, X, n):
        self.found = self.search(X, n, 0)

    def get_batch_results(self):
        return self.found.astype(numpy.int64)

    def done(self):
        self.library.ann_index_free(self.index)
        self.index = POINTER()
