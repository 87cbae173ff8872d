"""cuVS: CAGRA on a GPU at its best settings: memory pool, graphs by NN-Descent and by IVF-PQ, one and
several parents an iteration. Queries and results lie in host memory, which a call copies from and to,
or in the device's: both are measured. Rows are given as they are in the file where CAGRA takes them so.
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


class OnDevice(Peer):
    gpu = True
    buffers = ("host", "device")

    def __init__(self, metric):
        self.metric = METRICS[metric]
        self.resources = Resources()

    def search(self, queries, k, threads):
        return cupy.asnumpy(self.search_placed(cupy.asarray(queries), k)).astype(np.int64)

    def placed(self, queries):
        return cupy.asarray(queries)

    def search_placed(self, queries, k):
        _, ids = self.found(queries, k)
        self.resources.sync()
        return cupy.asarray(ids)


class Cagra(OnDevice):
    algo_name = "cuvs_cagra"

    def __init__(self, metric, algorithm, degree):
        super().__init__(metric)
        self.algorithm = algorithm
        self.degree = degree
        self.index_name = f"cuvs_cagra.{algorithm}.degree{degree}"
        self.efforts = [(f"itopk={itopk},width={width}", (itopk, width))
                        for itopk in (16, 32, 48, 64, 96, 128, 192, 256, 512) for width in (1, 4)]

    def takes(self, element):
        return self.metric == METRICS["l2"] and element in (np.float16, np.int8, np.uint8)

    def build(self, rows, threads):
        params = cagra.IndexParams(metric=self.metric, graph_degree=self.degree,
                                   intermediate_graph_degree=2 * self.degree,
                                   build_algo=self.algorithm)
        self.index = cagra.build(params, cupy.asarray(rows), resources=self.resources)
        self.resources.sync()

    def set_effort(self, value):
        self.itopk, self.width = value

    def found(self, queries, k):
        params = cagra.SearchParams(itopk_size=max(self.itopk, k), search_width=self.width)
        return cagra.search(params, self.index, queries, k, resources=self.resources)


class BruteForce(OnDevice):
    algo_name = index_name = "cuvs_brute_force"
    efforts = [("exact", None)]

    def build(self, rows, threads):
        self.index = brute_force.build(cupy.asarray(rows), self.metric, resources=self.resources)
        self.resources.sync()

    def found(self, queries, k):
        return brute_force.search(self.index, queries, k, resources=self.resources)


def peers(metric, rows):
    return [Cagra(metric, "nn_descent", 32), Cagra(metric, "nn_descent", 64),
            Cagra(metric, "ivf_pq", 64), BruteForce(metric)]
