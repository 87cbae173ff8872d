"""Finds, among many vectors, the few that lie nearest to a query: on the CPU, and on CUDA devices.

>>> import gannet, numpy as np
>>> rows = np.random.default_rng(1).normal(size=(10_000, 32)).astype(np.float32)
>>> index = gannet.build(rows, metric="cos")
>>> ids, distances = index.search(rows[:5], k=10, recall=0.98)
>>> ids.shape, distances.dtype
((5, 10), dtype('float32'))

An index answers about queries for whole batches or one at a time, from any number of threads. `recall` is the
one number that most callers set: the share of the true neighbours that is found, on average.

`gannet.sklearn`, `gannet.langchain`, `gannet.llamaindex` and `gannet.faiss` fit it to where other libraries are used already.
"""

from __future__ import annotations

from . import _core, errors
from ._functions import (Device, FileInfo, KNNGraph, Plan, build_info, devices, estimate, file_info, knn_graph,
                         verify, why_no_cuda)
from ._index import GraphStats, Index, IndexInfo, Neighbors, build, open
from ._progress import Progress
from .errors import (Busy, Cancelled, ClosedError, CorruptFile, DeadlineExceeded, DeviceError, DeviceLost,
                     DeviceOutOfMemory, DtypeError, Error, FileError, FileVersionError, InternalError,
                     InvalidArgument, LimitExceeded, NoDevice, NotFinite, OrderError, OutOfMemory, ShapeError,
                     StateError, Unsupported)

_core.register_errors(errors.BY_KEY)

__version__ = _core.versions()[0]

__all__ = [
    "Busy", "Cancelled", "ClosedError", "CorruptFile", "DeadlineExceeded", "Device", "DeviceError",
    "DeviceLost", "DeviceOutOfMemory", "DtypeError", "Error", "FileError", "FileInfo", "FileVersionError",
    "GraphStats", "Index", "IndexInfo", "InternalError", "InvalidArgument", "KNNGraph", "LimitExceeded",
    "Neighbors", "NoDevice", "NotFinite", "OrderError", "OutOfMemory", "Plan", "Progress", "ShapeError",
    "StateError", "Unsupported", "build", "build_info", "devices", "estimate", "file_info", "knn_graph", "open",
    "verify", "why_no_cuda",
]
