"""What needs no index: k-NN graphs, plans, files looked at, devices, versions."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np

from . import _arrays, _core, _names
from ._index import Array
from ._progress import Reporter, Wish
from .errors import InvalidArgument

LIST_MAX = 512  # twice ANN_DEGREE_MAX


class KNNGraph(NamedTuple):
    """The nearest other rows of every row, [rows, k] each."""

    neighbors: np.ndarray[Any, np.dtype[np.int32]]
    """Row numbers, nearest first, ties by row number; -1 where a row has fewer than k others."""
    distances: np.ndarray[Any, np.dtype[np.float32]]


class Plan(NamedTuple):
    """What a build will need."""

    threads: int
    index_bytes: int
    """Held when built."""
    peak_bytes: int
    """Held at most while building; an upper bound."""
    seconds: float
    """A guess; rows without structure may take 20 times as long."""
    device_bytes: int
    """Of a CUDA device, at most; 0 on the CPU."""


class FileInfo(NamedTuple):
    """What the header of a file says."""

    rows: int
    dim: int
    metric: str
    dtype: str
    graph: str
    degree: int
    entry_points: int
    has_ids: bool
    """False: ids are row numbers."""
    format: str
    """Version of the format."""
    writer: str
    """Version of the library that wrote it."""
    file_bytes: int
    seed: int
    content_id: str
    """32 hexadecimal digits, equal for equal indexes and only for them."""


class Device(NamedTuple):
    """A device that searches and builds."""

    device: str
    """"cpu" or "cuda:0", as the parameters `device` take it."""
    name: str
    memory_total: int
    memory_free: int
    compute_units: int
    """Hardware threads, or multiprocessors."""
    capability: int
    """CUDA: 10 * major + minor; else 0."""


def knn_graph(rows: Array, k: int, *, metric: str = "l2", method: str = "auto", device: Any = None,
              samples: int | None = None, iterations: int | None = None, convergence: float | None = None,
              threads: int | None = None, seed: int | None = None, progress: Wish = None,
              timeout: float | None = None) -> KNNGraph:
    """Finds the k nearest other rows of every row.

    rows    [n, dim], as for build()
    k       neighbours of a row, 1 to 512, by "ggnn" to 128
    method  "auto", "exact", "nn_descent", "cells" or "ggnn"; by the last three the lists are approximate, their
            distances exact. For "ip" only "exact" is allowed, which "auto" takes.
    The rest is as for build().

    Returns a KNNGraph: neighbours, int32, and distances, float32, both [n, k], in the host's memory.
    Raises as build().

    >>> import gannet
    >>> gannet.knn_graph([[0], [1], [5]], 2).neighbors
    array([[1, 2],
           [0, 2],
           [1, 0]], dtype=int32)
    """
    given = _arrays.ready(rows, "rows")
    _arrays.check_matrix(given, "rows")
    params: dict[str, Any] = {
        "metric": _names.number("metric", metric, _names.METRICS), "k": k,
        "method": _names.number("method", method, _names.KNN_METHODS), "samples": samples,
        "iterations": iterations, "convergence": convergence, "threads": threads, "seed": seed}
    if device is not None:
        params["device"] = _names.device(device)
    elif isinstance(given, _core.View) and given.space != 0:
        params["device"] = given.space
    if not 0 < k <= LIST_MAX:  # before memory is taken for it
        raise InvalidArgument(f"k is {k!r}; expected 1 to {LIST_MAX}")
    shape = (given.shape[0], k)
    found = KNNGraph(np.empty(shape, np.int32), np.empty(shape, np.float32))
    with Reporter(progress) as report:
        _core.knn_graph(given, params, found.neighbors, found.distances, report, timeout)
    return found


def estimate(rows: int, dim: int, *, dtype: Any = "float32", stored: Any = None, metric: str = "l2",
             device: Any = None, graph: str = "auto", degree: int | None = None, knn_degree: int | None = None,
             copy: bool = True, threads: int | None = None) -> Plan:
    """Says what a build of `rows` rows of `dim` columns needs, without doing it.

    Raises InvalidArgument, LimitExceeded, Unsupported.

    >>> import gannet
    >>> gannet.estimate(1_000_000, 128, dtype="uint8").index_bytes // 10**6
    333
    """
    params = {"graph": _names.number("graph", graph, _names.GRAPHS), "degree": degree, "knn_degree": knn_degree,
              "threads": threads, "rows_mode": 1 if copy else 2,
              "device": None if device is None else _names.device(device)}
    return Plan(*_core.estimate(rows, dim, _names.element(dtype),
                                _names.number("metric", metric, _names.METRICS),
                                0 if stored is None else _names.element(stored), params))


def verify(path: str | os.PathLike[str], *, threads: int | None = None, progress: Wish = None,
           timeout: float | None = None) -> None:
    """Checks every byte of a file. Returns if open() would succeed, and raises what it would raise if not."""
    with Reporter(progress) as report:
        _core.verify(os.fsencode(path), {"threads": threads}, report, timeout)


def file_info(path: str | os.PathLike[str]) -> FileInfo:
    """Reads the header of a file, which takes microseconds.

    Raises FileError, CorruptFile, FileVersionError.
    """
    (rows, dim, metric, element, graph, degree, entries, has_ids, version, writer, size, seed, content) = (
        _core.file_info(os.fsencode(path)))
    return FileInfo(rows, dim, _names.METRIC_NAMES[metric], _names.ELEMENT_NAMES[element],
                    _names.GRAPH_NAMES[graph], degree, entries, has_ids, f"{version >> 16}.{version & 0xffff}",
                    f"{writer >> 16}.{writer >> 8 & 0xff}.{writer & 0xff}", size, seed, content.hex())


def devices() -> list[Device]:
    """The CPU and the CUDA devices. This asks the CUDA driver, which costs some 100 ms at first and spoils CUDA
    in children forked later; nothing on the CPU path does that."""
    count, _ = _core.device_count()
    return [Device(_names.device_name(number), *_core.device_info(number)) for number in range(1, 1 + count)]


def why_no_cuda() -> str:
    """A text that says why there is no CUDA device, or "" if there is one."""
    return _core.device_count()[1]


def build_info() -> str:
    """What the library was built with and which instructions it uses here, for bug reports."""
    return _core.versions()[2]
