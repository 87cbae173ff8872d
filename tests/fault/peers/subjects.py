"""The libraries that meet the faults of fault_peers.py, each through its Python package: released ones, and
that of this tree, bindings/python, for Gannet.

A subject builds a small index from a seed, saves it, loads it, and answers: all rows of its index as
queries, and some more, as bytes. All of it on one thread, so that equal indexes give equal bytes. Each
saves by the one call that its manual gives for that.
"""

import array
import functools
import importlib.metadata
import random

ROWS, DIM, K = 600, 16, 10
NAMES = ["gannet", "gannet (mapped)", "hnswlib", "usearch", "usearch (mapped)", "faiss HNSW",
         "faiss IVF-PQ"]


def make(name):
    """Raises ImportError where a package is missing."""
    queries()  # once, before cases fork
    if name.startswith("gannet"):
        return Gannet(name)
    if name == "hnswlib":
        return Hnswlib()
    if name.startswith("usearch"):
        return Usearch(name, mapped="mapped" in name)
    return Faiss(name)


@functools.cache
def values(seed, rows):
    """[rows, DIM] floats around some centres, from a seed."""
    source = random.Random(seed)
    centres = [[source.gauss(0, 2) for _ in range(DIM)] for _ in range(8)]
    return array.array("f", (c + source.gauss(0, 1)
                             for _ in range(rows) for c in source.choice(centres)))


@functools.cache
def queries():
    return values(1, ROWS) + values(2, ROWS) + values(3, 100)


def as_matrix(floats):
    import numpy
    return numpy.frombuffer(floats, numpy.float32).reshape(-1, DIM)


# --- Gannet ---------------------------------------------------------------------------------------

class Gannet:
    def __init__(self, name):
        import gannet
        self.name, self.mapped = name, "mapped" in name
        self.package, self.version = gannet, gannet.__version__

    def build(self, seed):
        return self.package.build(as_matrix(values(seed, ROWS)), degree=16, threads=1)

    def save(self, index, path):
        index.save(path)

    def load(self, path):
        return self.package.open(path, mmap=self.mapped, threads=1)

    def answers(self, index):
        found = index.search(as_matrix(queries()), K, beam=64, threads=1)
        return found.ids.tobytes() + found.distances.tobytes()


# --- Others ---------------------------------------------------------------------------------------

class Hnswlib:
    name = "hnswlib"

    def __init__(self):
        import hnswlib
        self.package, self.version = hnswlib, importlib.metadata.version("hnswlib")

    def empty(self):
        return self.package.Index(space="l2", dim=DIM)

    def build(self, seed):
        index = self.empty()
        index.init_index(max_elements=ROWS, M=8, ef_construction=100, random_seed=1)
        index.add_items(as_matrix(values(seed, ROWS)), num_threads=1)
        return index

    def save(self, index, path):
        index.save_index(path)

    def load(self, path):
        index = self.empty()
        index.load_index(path)
        return index

    def answers(self, index):
        index.set_ef(64)
        ids, distances = index.knn_query(as_matrix(queries()), k=K, num_threads=1)
        return ids.tobytes() + distances.tobytes()


class Usearch:
    def __init__(self, name, mapped):
        import usearch
        import usearch.index
        self.name, self.mapped = name, mapped
        self.package, self.version = usearch.index, usearch.__version__

    def empty(self):
        return self.package.Index(ndim=DIM, metric="l2sq", dtype="f32", connectivity=8,
                                  expansion_add=100, expansion_search=64)

    def build(self, seed):
        import numpy
        index = self.empty()
        index.add(numpy.arange(ROWS), as_matrix(values(seed, ROWS)), threads=1)
        return index

    def save(self, index, path):
        index.save(path)

    def load(self, path):
        index = self.empty()
        if self.mapped:
            index.view(path)
        else:
            index.load(path)
        return index

    def answers(self, index):
        found = index.search(as_matrix(queries()), K, threads=1)
        return found.keys.tobytes() + found.distances.tobytes()


class Faiss:
    def __init__(self, name):
        import faiss
        self.name, self.package, self.version = name, faiss, faiss.__version__
        faiss.omp_set_num_threads(1)

    def build(self, seed):
        rows = as_matrix(values(seed, ROWS))
        # Lists of some ten rows, and codes of four bits, which so few rows can train.
        index = self.package.index_factory(
            DIM, "HNSW8,Flat" if "HNSW" in self.name else "IVF16,PQ8x4")
        index.train(rows)
        index.add(rows)
        return index

    def save(self, index, path):
        self.package.write_index(index, path)

    def load(self, path):
        index = self.package.read_index(path)
        if index.d != DIM:  # a binding would read beyond the queries; a careful program looks
            raise ValueError(f"dimension {index.d}")
        return index

    def answers(self, index):
        if "HNSW" in self.name:
            self.package.downcast_index(index).hnsw.efSearch = 64
        else:
            self.package.downcast_index(index).nprobe = 8
        distances, ids = index.search(as_matrix(queries()), K)
        return ids.tobytes() + distances.tobytes()
