"""faiss: HNSW, IVF-PQ with exact re-ranking, and flat (exact); on GPUs too where its wheel knows them."""

import faiss
import numpy as np

from measure import Peer

VERSION = faiss.__version__
# (name, reason) of what this wheel has no code for; the report lists it.
LEFT_OUT = [] if hasattr(faiss, "StandardGpuResources") else [
    ("faiss on GPUs", "faiss-cpu has no code for them; faiss-gpu 1.15.1 loads cuBLAS of CUDA 12, and "
     "faiss-gpu-cu13-cuvs 1.15.0 was linked with cuVS 26.6, whose symbols cuVS 26.10 does not have")]


class Faiss(Peer):
    algo_name = "faiss"

    def __init__(self, metric, factory, efforts):
        self.metric = metric
        self.factory = factory
        self.index_name = "faiss." + factory.replace(",", ".")
        self.algo_name = "faiss_" + {"H": "hnsw", "I": "ivf_pq", "F": "flat"}[factory[0]]
        self.efforts = efforts

    def prepared(self, values):
        values = np.ascontiguousarray(values, np.float32)
        if self.metric == "cosine":
            values = values.copy()
            faiss.normalize_L2(values)
        return values

    def build(self, rows, threads):
        faiss.omp_set_num_threads(threads)
        product = faiss.METRIC_L2 if self.metric == "l2" else faiss.METRIC_INNER_PRODUCT
        self.index = faiss.index_factory(rows.shape[1], self.factory, product)
        if self.factory.startswith("HNSW"):
            self.index.hnsw.efConstruction = 200
        rows = self.prepared(rows)
        self.index.train(rows)
        self.index.add(rows)
        self.parameters = faiss.ParameterSpace()

    def set_effort(self, value):
        for name, number in value.items():
            self.parameters.set_index_parameter(self.index, name, number)

    def differs(self, value, k):
        return value.get("efSearch", k) >= k  # less is raised to k

    def search(self, queries, k, threads):
        faiss.omp_set_num_threads(threads)
        return self.index.search(self.prepared(queries), k)[1]

    def size_bytes(self):
        return len(faiss.serialize_index(self.index))


class FaissGpuFlat(Faiss):
    gpu = True

    def build(self, rows, threads):
        super().build(rows, threads)
        self.index = faiss.index_cpu_to_all_gpus(self.index)

    def size_bytes(self):
        return None


def peers(metric, rows):
    count, dim = rows.shape
    lists = int(2 ** np.round(np.log2(4 * np.sqrt(count))))
    codes = next(size for size in (dim // 2, dim // 4, dim // 5, 1) if size and dim % size == 0)
    # Beam and lists searched; IVF-PQ ranks ten times k again by true distances. Codes of four bits, which
    # faiss compares in registers: three to five times the rate of eight bits at equal recall on SIFT
    # 100k, and trained in 2 s instead of minutes.
    hnsw = [(f"ef={ef}", {"efSearch": ef}) for ef in (10, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512)]
    ivf = [(f"nprobe={n}", {"nprobe": n, "k_factor_rf": 10}) for n in (1, 2, 4, 8, 16, 32, 64, 128)]
    found = [Faiss(metric, "HNSW16,Flat", hnsw), Faiss(metric, "HNSW32,Flat", hnsw),
             Faiss(metric, f"IVF{lists},PQ{codes}x4fs,RFlat", ivf),
             Faiss(metric, "Flat", [("exact", {})])]
    if hasattr(faiss, "get_num_gpus") and faiss.get_num_gpus() > 0:
        gpu = FaissGpuFlat(metric, "Flat", [("exact", {})])
        gpu.index_name, gpu.algo_name = "faiss_gpu.Flat", "faiss_gpu_flat"
        found.append(gpu)
    return found
