"""hnswlib: HNSW over floats."""

from importlib.metadata import version

import hnswlib

from measure import Peer

VERSION = version("hnswlib")


class Hnsw(Peer):
    algo_name = "hnswlib"

    def __init__(self, metric, connectivity):
        self.metric = metric
        self.connectivity = connectivity
        self.index_name = f"hnswlib.M{connectivity}.efc200"
        self.efforts = [(f"ef={ef}", ef) for ef in (10, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512)]

    def build(self, rows, threads):
        self.index = hnswlib.Index(space=self.metric, dim=rows.shape[1])
        self.index.init_index(max_elements=len(rows), M=self.connectivity, ef_construction=200,
                              random_seed=1)
        self.index.add_items(rows, num_threads=threads)

    def set_effort(self, value):
        self.ef = value

    def search(self, queries, k, threads):
        self.index.set_ef(max(self.ef, k))
        return self.index.knn_query(queries, k=k, num_threads=threads)[0].astype("int64")

    def differs(self, value, k):
        return value >= k  # less is raised to k

    def size_bytes(self):
        return self.index.index_file_size()


def peers(metric, rows):
    return [Hnsw(metric, 16), Hnsw(metric, 32)]
