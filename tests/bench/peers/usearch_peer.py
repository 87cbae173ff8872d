"""usearch: HNSW, over halves where they hold every value exactly (it is faster then and finds the same),
else over floats; with as many links as hnswlib has.
"""

import numpy as np
import usearch
from usearch.index import Index

from measure import Peer

VERSION = usearch.__version__
METRICS = {"l2": "l2sq", "ip": "ip", "cosine": "cos"}


class Usearch(Peer):
    algo_name = "usearch"

    def __init__(self, metric, connectivity, dtype):
        self.metric = metric
        self.connectivity = connectivity
        self.dtype = dtype
        self.index_name = f"usearch.M{connectivity}.{dtype}"
        self.efforts = [(f"expansion={e}", e)
                        for e in (10, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512)]

    def build(self, rows, threads):
        self.index = Index(ndim=rows.shape[1], metric=METRICS[self.metric], dtype=self.dtype,
                           connectivity=self.connectivity, expansion_add=200)
        self.index.add(np.arange(len(rows)), rows, threads=threads)

    def set_effort(self, value):
        self.expansion = value

    def search(self, queries, k, threads):
        self.index.expansion_search = max(self.expansion, k)
        keys = self.index.search(queries, k, threads=threads).keys
        return np.asarray(keys).astype(np.int64).reshape(len(queries), k)

    def differs(self, value, k):
        return value >= k  # less is raised to k

    def size_bytes(self):
        return int(self.index.serialized_length)


def peers(metric, rows):
    some = np.asarray(rows[:10_000])
    dtype = "f16" if (some.astype(np.float16) == some).all() else "f32"
    return [Usearch(metric, connectivity, dtype) for connectivity in (16, 32)]
