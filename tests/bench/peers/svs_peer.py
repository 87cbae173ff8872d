"""SVS (Intel's Scalable Vector Search): Vamana over halves, or bytes where the rows are bytes, and over rows
compressed by LVQ after a build on the floats, which its wheel has for Intel's processors alone.
"""

import tempfile
from importlib.metadata import version

import numpy as np
import svs

from measure import Peer

VERSION = version("scalable-vs")


class Vamana(Peer):
    algo_name = "svs"

    def __init__(self, metric, bits, residual=0):
        self.metric = metric
        self.bits = bits  # of a value; 16: a half
        self.residual = residual
        self.index_name = f"svs.R32.lvq{bits}x{residual}" if bits < 16 else "svs.R32"
        # A second code re-ranks, for which the list is half as long again as the window.
        self.efforts = [(f"window={window}", window) for window in (10, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512)]

    def takes(self, element):
        return self.bits == 16 and element == np.uint8 and self.metric == "l2"

    def prepared(self, values):
        if self.takes(values.dtype):
            return np.ascontiguousarray(values)
        values = np.ascontiguousarray(values, np.float32)
        if self.metric == "cosine":  # of rows of length 1, L2 has the same order
            values = values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-30)
        return values.astype(np.float16) if self.bits == 16 else values

    def build(self, rows, threads):
        distance = svs.MIP if self.metric == "ip" else svs.L2
        parameters = svs.VamanaBuildParameters(graph_max_degree=32, window_size=200,
                                               alpha=0.95 if self.metric == "ip" else 1.2)
        rows = self.prepared(rows)
        self.index = built = svs.Vamana.build(parameters, rows, distance, num_threads=threads)
        if self.bits == 16:
            return
        with tempfile.TemporaryDirectory() as folder:
            paths = [f"{folder}/{part}" for part in ("config", "graph", "data")]
            built.save(*paths)
            loader = svs.LVQLoader(svs.VectorDataLoader(paths[2], svs.float32, dims=rows.shape[1]),
                                   primary=self.bits, residual=self.residual)
            self.index = svs.Vamana(paths[0], svs.GraphLoader(paths[1]), loader, distance, num_threads=1)

    def set_effort(self, value):
        self.window = value

    def search(self, queries, k, threads):
        window = max(self.window, k)
        capacity = window * 3 // 2 if self.residual else window
        parameters = self.index.search_parameters
        parameters.buffer_config = svs.SearchBufferConfig(window, capacity)
        self.index.search_parameters = parameters
        self.index.num_threads = threads
        return self.index.search(self.prepared(queries), k)[0].astype(np.int64)

    def differs(self, value, k):
        return value >= k  # less is raised to k

    def size_bytes(self):
        return None


def peers(metric, rows):
    with open("/proc/cpuinfo", encoding="ascii") as processor:
        intel = "GenuineIntel" in processor.read()
    return [Vamana(metric, 16)] + ([Vamana(metric, 8), Vamana(metric, 4, 8)] if intel else [])
