"""For programs written for faiss: IndexGannet has the methods of faiss's flat and HNSW indexes, without faiss.

>>> import numpy as np
>>> from gannet.faiss import IndexGannet
>>> vectors = np.random.default_rng(1).normal(size=(1000, 16)).astype(np.float32)
>>> index = IndexGannet(16)
>>> index.add(vectors)
>>> distances, labels = index.search(vectors[:3], 5)
>>> labels[:, 0]
array([0, 1, 2])

Vectors are added once: the graph is made from all of them. Distances are those of faiss: squared for METRIC_L2,
products, largest first, for METRIC_INNER_PRODUCT.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from . import _index
from .errors import InvalidArgument, StateError

METRIC_INNER_PRODUCT = 0
METRIC_L2 = 1

Floats = np.ndarray[Any, np.dtype[np.float32]]
Labels = np.ndarray[Any, np.dtype[np.int64]]


class IndexGannet:
    """An index of `d` columns, to which vectors are added once.

    metric_type  METRIC_L2 (default) or METRIC_INNER_PRODUCT, with the values that faiss gives them
    recall       of searches, above 0 to 1; default 0.95; may be set at any time, as efSearch is
    build        further arguments of gannet.build()
    """

    is_trained = True

    def __init__(self, d: int, metric_type: int = METRIC_L2, recall: float | None = None, **build: Any) -> None:
        if metric_type not in (METRIC_L2, METRIC_INNER_PRODUCT):
            raise InvalidArgument(f"metric_type is {metric_type!r}; expected METRIC_L2 or METRIC_INNER_PRODUCT")
        self.d, self.metric_type, self.recall = d, metric_type, recall
        self._build = build
        self._index: _index.Index | None = None

    @property
    def ntotal(self) -> int:
        """Number of vectors."""
        return 0 if self._index is None else len(self._index)

    def train(self, x: Any) -> None:
        """Nothing: the graph is made by add()."""

    def add(self, x: Any) -> None:
        """Adds vectors, [n, d] float32, with the labels 0, 1, 2, ..., and makes the graph. Raises StateError the
        second time, and what gannet.build() raises."""
        self.add_with_ids(x, None)

    def add_with_ids(self, x: Any, ids: Any) -> None:
        """The same with labels of your own, [n] int64, distinct and 0 or more."""
        if self._index is not None:
            raise StateError("the index has its vectors; add all of them at once, or reset() first")
        metric = "l2" if self.metric_type == METRIC_L2 else "ip"
        if np.shape(x)[1:] != (self.d,):
            raise InvalidArgument(f"x has the shape {np.shape(x)}; expected (n, {self.d})")
        self._index = _index.build(x, metric=metric, ids=ids, **self._build)

    def reset(self) -> None:
        """Takes the vectors away."""
        self._index = None

    def search(self, x: Any, k: int) -> tuple[Floats, Labels]:
        """Distances and labels, [n, k] float32 and int64, nearest first; -1 where there are fewer than k."""
        return self._answer(self._built().search(x, k, recall=self.recall))

    def search_exact(self, x: Any, k: int) -> tuple[Floats, Labels]:
        """The same by comparing with every vector, as faiss's IndexFlat does."""
        return self._answer(self._built().exact(x, k))

    def assign(self, x: Any, k: int = 1) -> Labels:
        """The labels alone."""
        return self.search(x, k)[1]

    def reconstruct(self, key: int) -> Floats:
        """The vector of a label. Raises KeyError."""
        return np.asarray(self._built()[key], np.float32)

    def reconstruct_batch(self, keys: Any) -> Floats:
        """The vectors of labels, [n, d]. Raises KeyError."""
        return np.asarray(self._built()[np.asarray(keys)], np.float32)

    def reconstruct_n(self, n0: int = 0, ni: int = -1) -> Floats:
        """`ni` vectors (-1: all) from the n0-th on, in the order of add()."""
        index = self._built()
        return np.asarray(index[index.ids[n0:n0 + ni if ni >= 0 else None]], np.float32)

    def _answer(self, found: _index.Neighbors) -> tuple[Floats, Labels]:
        distances = -found.distances if self.metric_type == METRIC_INNER_PRODUCT else found.distances
        return distances, found.ids

    def _built(self) -> _index.Index:
        if self._index is None:
            self._index = _index.build(np.empty((0, self.d), np.float32),
                                       metric="l2" if self.metric_type == METRIC_L2 else "ip")
            empty, self._index = self._index, None
            return empty
        return self._index


def write_index(index: IndexGannet, path: str | os.PathLike[str]) -> None:
    """Saves the index to a file, which gannet.open() takes too."""
    index._built().save(path)


def read_index(path: str | os.PathLike[str], recall: float | None = None) -> IndexGannet:
    """Opens such a file. Raises what gannet.open() raises; InvalidArgument for the metric "cos"."""
    opened = _index.open(path)
    if opened.info.metric == "cos":
        raise InvalidArgument("faiss knows no cosine; use gannet.open()")
    index = IndexGannet(opened.dim, METRIC_L2 if opened.info.metric == "l2" else METRIC_INNER_PRODUCT, recall)
    index._index = opened
    return index
