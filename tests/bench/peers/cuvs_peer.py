"""cuVS: CAGRA on a GPU at its best settings: memory pool, graphs by NN-Descent and by IVF-PQ, one and
several parents an iteration. Queries and results are in host memory: a call copies them, as one of Gannet does.
"""

import cupy
import numpy as np
import rmm
from rmm.allocators.cupy import rmm_cupy_allocator

rmm.reinitialize(pool_allocator=True, initial_pool_size=4 << 30)
cupy.cuda.set_allocator(rmm_cupy_allocator)

import cuvs  # noqa: E402  after the pool, which it then uses
from cuvs.common import Resources  # noqa: E402
from cuvs.neighbors import brute_force, cagra  # noqa: E402

from measure import Peer  # noqa: E402

VERSION = cuvs.__version__
METRICS = {"l2": "sqeuclidean", "ip": "inner_product", "cosine": "cosine"}


class Cagra(Peer):
    algo_name = "cuvs_cagra"
    gpu = True

    def __init__(self, metric, algorithm, degree):
        self.metric = metric
        self.algorithm = algorithm
        self.degree = degree
        self.index_name = f"cuvs_cagra.{algorithm}.degree{degree}"
        self.efforts = [(f"itopk={itopk},width={width}", (itopk, width))
                        for itopk in (16, 32, 48, 64, 96, 128, 192, 256, 512) for width in (1, 4)]
        self.resources = Resources()

    def build(self, rows, threads):
        params = cagra.IndexParams(metric=METRICS[self.metric], graph_degree=self.degree,
                                   intermediate_graph_degree=2 * self.degree,
                                   build_algo=self.algorithm)
        self.index = cagra.build(params, cupy.asarray(rows), resources=self.resources)
        self.resources.sync()

    def set_effort(self, value):
        self.itopk, self.width = value

    def search(self, queries, k, threads):
        params = cagra.SearchParams(itopk_size=max(self.itopk, k), search_width=self.width)
        _, ids = cagra.search(params, self.index, cupy.asarray(queries), k, resources=self.resources)
        self.resources.sync()
        return cupy.asnumpy(cupy.asarray(ids)).astype(np.int64)


class BruteForce(Peer):
    algo_name = "cuvs_brute_force"
    index_name = "cuvs_brute_force"
    gpu = True
    efforts = [("exact", None)]

    def __init__(self, metric):
        self.metric = metric
        self.resources = Resources()

    def build(self, rows, threads):
        self.index = brute_force.build(cupy.asarray(rows), METRICS[self.metric],
                                       resources=self.resources)
        self.resources.sync()

    def search(self, queries, k, threads):
        _, ids = brute_force.search(self.index, cupy.asarray(queries), k, resources=self.resources)
        self.resources.sync()
        return cupy.asnumpy(cupy.asarray(ids)).astype(np.int64)


def peers(metric, rows):
    return [Cagra(metric, "nn_descent", 32), Cagra(metric, "nn_descent", 64),
            Cagra(metric, "ivf_pq", 64), BruteForce(metric)]
