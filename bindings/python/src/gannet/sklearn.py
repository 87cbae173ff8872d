"""For scikit-learn: GannetTransformer stands where KNeighborsTransformer stands, before UMAP, t-SNE, DBSCAN, Isomap
and whatever else takes a graph of neighbours (`metric="precomputed"`). Needs scikit-learn.

>>> import numpy as np
>>> from sklearn.manifold import Isomap
>>> from sklearn.pipeline import make_pipeline
>>> from gannet.sklearn import GannetTransformer
>>> rows = np.random.default_rng(1).normal(size=(200, 8)).astype(np.float32)
>>> make_pipeline(GannetTransformer(n_neighbors=10), Isomap(n_neighbors=10, metric="precomputed")).fit_transform(
...     rows).shape
(200, 2)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from . import _index
from .errors import InvalidArgument

METRICS = {"euclidean": "l2", "l2": "l2", "sqeuclidean": "l2", "cosine": "cos"}


class GannetTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Transforms vectors into a sparse graph of their nearest neighbours, as KNeighborsTransformer does.

    mode         "distance" (default) or "connectivity"
    n_neighbors  default 5. As there, graphs of distances have one more, since each fitted row is the first
                 neighbour of itself.
    metric       "euclidean" (default), "sqeuclidean" or "cosine"
    recall       share of the true neighbours, above 0 to 1; 1.0 compares with every row; default 0.95
    n_jobs       threads; None, -1 and 0: all
    device       "cpu" or "cuda:0"; default: the CPU
    seed         of the build; default 1

    After fit(): `index_`, a gannet.Index, `n_samples_fit_` and `n_features_in_`. Rows of float64, which
    scikit-learn is used with, are rounded to float32.
    """

    def __init__(self, *, mode: str = "distance", n_neighbors: int = 5, metric: str = "euclidean",
                 recall: float | None = None, n_jobs: int | None = None, device: Any = None,
                 seed: int | None = None) -> None:
        self.mode, self.n_neighbors, self.metric = mode, n_neighbors, metric
        self.recall, self.n_jobs, self.device, self.seed = recall, n_jobs, device, seed

    def fit(self, X: Any, y: Any = None) -> GannetTransformer:
        """Builds the index over X, [n, dim]."""
        if self.mode not in ("distance", "connectivity"):
            raise InvalidArgument(f"mode is {self.mode!r}; expected \"distance\" or \"connectivity\"")
        if self.metric not in METRICS:
            raise InvalidArgument(f"metric is {self.metric!r}; expected one of {', '.join(METRICS)}")
        rows = narrowed(X)
        self.index_ = _index.build(rows, metric=METRICS[self.metric], threads=self._threads(), device=self.device,
                                   seed=self.seed, graph="none" if self.recall == 1 else "auto")
        self.n_samples_fit_, self.n_features_in_ = rows.shape
        self._n_features_out = self.n_samples_fit_
        return self

    def transform(self, X: Any) -> csr_matrix:
        """The neighbours of each row of X among those of fit(): a sparse matrix [len(X), n_samples_fit_] with
        n_neighbors entries a row (one more for distances), in order of distance."""
        check_is_fitted(self)
        rows = narrowed(X)
        k = self.n_neighbors + (self.mode == "distance")
        if not 1 <= k <= self.n_samples_fit_:
            raise InvalidArgument(f"n_neighbors is {self.n_neighbors} and {self.n_samples_fit_} rows were fitted")
        if self.recall == 1:
            ids, distances = self.index_.exact(rows, k, threads=self._threads(), device=self.device)
        else:
            ids, distances = self.index_.search(rows, k, recall=self.recall, threads=self._threads(),
                                                device=self.device)
            short = np.flatnonzero(ids[:, -1] < 0)
            if len(short):  # a graph of neighbours has all of them
                ids[short], distances[short] = self.index_.exact(rows[short], k, threads=self._threads())
        if self.mode == "connectivity":
            values = np.ones(ids.size, np.float64)
        elif self.metric in ("euclidean", "l2"):
            values = np.sqrt(distances.ravel())
        else:
            values = distances.ravel()
        starts = np.arange(0, ids.size + 1, k)
        return csr_matrix((values, ids.ravel(), starts), shape=(len(ids), self.n_samples_fit_))

    def fit_transform(self, X: Any, y: Any = None) -> csr_matrix:
        """fit(X).transform(X)."""
        return self.fit(X).transform(X)

    def _threads(self) -> int | None:
        return self.n_jobs if self.n_jobs is not None and self.n_jobs > 0 else None


def narrowed(X: Any) -> Any:
    """float64, and what NumPy makes an array of, as float32; the types that Gannet takes as they are."""
    rows = np.asarray(X)
    if rows.dtype in (np.float32, np.float16, np.int8, np.uint8) or str(rows.dtype) == "bfloat16":
        return np.ascontiguousarray(rows)
    return np.ascontiguousarray(rows, np.float32)
