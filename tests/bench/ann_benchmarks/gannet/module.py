"""Gannet for ann-benchmarks: copy this folder to ann_benchmarks/algorithms/gannet there.

It uses the package of bindings/python.
"""

import gannet
import numpy

from ..base.module import BaseANN

METRICS = {"euclidean": "l2", "dot": "ip", "angular": "cos"}
TAKEN = ("float32", "float16", "int8", "uint8")


def taken(values):
    """As they are, or as float32."""
    return values if values.dtype.name in TAKEN else values.astype(numpy.float32)


class Gannet(BaseANN):
    def __init__(self, metric, params):
        self.index = None
        self.metric = METRICS[metric]
        self.params = {name: int(params[name]) for name in ("degree", "knn_degree") if name in params}
        self.name = f"gannet {self.params}"

    def fit(self, X):
        self.done()
        self.index = gannet.build(taken(X), metric=self.metric, **self.params)

    def set_query_arguments(self, beam):
        self.beam = int(beam)
        self.name = f"gannet {self.params} beam {beam}"

    def query(self, q, n):
        ids = self.index.search(taken(q), n, beam=max(self.beam, n), threads=1).ids
        return ids[ids >= 0]

    def batch_query(self, X, n):
        self.found = self.index.search(taken(X), n, beam=max(self.beam, n)).ids

    def get_batch_results(self):
        return self.found

    def done(self):
        self.index = None
