"""The class Index, and the functions that make one."""

from __future__ import annotations

import io
import os
from typing import Any, Iterator, NamedTuple, Protocol, Union

import numpy as np

from . import _arrays, _core, _names
from ._progress import Reporter, Wish
from .errors import ClosedError, DtypeError, InvalidArgument, ShapeError, Unsupported

Array = Any
"""An array of NumPy, or whatever lends its memory by DLPack or __cuda_array_interface__."""
PathOrFile = Union[str, "os.PathLike[str]", bytes, "Writable"]


class Writable(Protocol):
    def write(self, data: bytes, /) -> Any: ...


class Neighbors(NamedTuple):
    """What a search found: a pair of arrays, [queries, k], or [k] for a single query."""

    ids: Array
    """int64; -1 where a query has fewer than k neighbours."""
    distances: Array
    """float32, nearest first; infinity beside -1."""


class IndexInfo(NamedTuple):
    """State of an index."""

    rows: int
    dim: int
    metric: str
    """"l2", "ip" or "cos"."""
    dtype: str
    """As stored: "float32", "float16", "bfloat16", "int8" or "uint8"."""
    graph: str
    """"cagra" (also for "auto", a variation on it), "ggnn", "tsdg" or "none"."""
    degree: int
    """Edges a row."""
    entry_points: int
    """Rows where searches may start."""
    memory_bytes: int
    """Of the host, borrowed rows not counted."""
    seed: int
    build_seconds: float
    """Calibration included; 0 if opened from a file."""
    calibrate_seconds: float
    recall_max: float
    """The highest mean recall@10 seen while calibrating; 0: none was made."""
    repaired_edges: int
    """Edges spent to make every row reachable."""
    knn_iterations: int
    """Rounds of the k-NN graph under it; 0: it was found in another way."""
    knn_share: float
    """Share of the true neighbours that the lists under the graph hold, where that was looked at; else 0."""
    codes: str
    """What walks compare: "rows", "bytes", "floats", by inner product "scaled", or, on the CPU, "projected", fewer bytes
    than columns; "none" without a graph."""
    code_centres: int
    """Of "scaled", the centres that rows are coded about; else 0."""
    code_bytes: int
    """Bytes that a walk reads of a row."""
    code_first_ten: float
    """Share of the true 10 nearest of a sample among the first 10 by code, as the build has measured it; negative:
    nobody has looked."""
    code_first_twenty: float
    """The same among the first 20."""
    code_worst_twenty: float
    """The same of the tenth of the sample that fares worst."""


class GraphStats(NamedTuple):
    """How well a search can move on the graph; see Index.graph_stats()."""

    rows: int
    degree: int
    edges: int
    unreachable: int
    """Rows that no path from an entry point reaches."""
    weak_components: int
    strong_components: int
    largest_strong: int
    in_degree_min: int
    in_degree_max: int
    two_hop_mean: float
    """Mean number of distinct rows within two edges, over a sample of rows."""


class Index:
    """Vectors and the graph over them: made by gannet.build() or gannet.open(), and read only.

    Any number of threads may use one index; no call holds Python's lock (GIL) while it works. Indexes can be
    pickled, copied, and used in `with`, which closes them. A child process may search an index that was made
    before a fork, if no call was running on it.

    >>> import gannet, numpy as np
    >>> rows = np.random.default_rng(1).normal(size=(1000, 8)).astype(np.float32)
    >>> index = gannet.build(rows)
    >>> index
    <gannet.Index: 1,000 rows of 8 float32, l2, 32 edges a row, 0.2 MB>
    >>> ids, distances = index.search(rows[:2], k=3)
    >>> ids[:, 0], distances[:, 0]
    (array([0, 1]), array([0., 0.], dtype=float32))
    >>> bool((index[7] == rows[7]).all())
    True
    """

    __slots__ = ("_core", "_defaults", "__weakref__")

    def __init__(self, core: _core.Handle, recall: float | None = None) -> None:
        self._core = core
        self._defaults = None if recall is None else {"recall": recall}

    # --- Searching ----------------------------------------------------------------------------------------

    def search(self, queries: Array, k: int = 10, *, recall: float | None = None, beam: int | None = None,
               threads: int | None = None, device: Any = None, procedure: str | None = None,
               stream: Any = None, timeout: float | None = None, out: tuple[Array, Array] | None = None,
               not_finite: str = "raise", **tuning: Any) -> Neighbors:
        """Finds k near rows for each query, by the graph.

        queries     [n, dim], or [dim] for one: float32, float16 or bfloat16 for an index of floats, else the
                    index's own type. Rows may lie apart, elements of a row may not; nothing is copied. Lists of
                    numbers are taken too. Memory on a CUDA device is searched there.
        k           neighbours of each query, 1 to 65,536
        recall      share of the true neighbours wanted, mean over queries, above 0 to 1. Default: that of
                    build() or open(), which is 0.95 unless given there.
        beam        rows kept while walking, k to 65,536; overrides `recall`
        threads     of the CPU; default: all that the batch can use. A single query uses the calling one.
        device      "cpu" or "cuda:0"; default: where the queries are
        procedure   "auto", "best_first", "exact", "cagra", "cagra_single_cta", "cagra_multi_cta", "two_lists",
                    "ggnn", "tsdg", "tsdg_small", "tsdg_large" or "slack", as ann.h describes them. "warp",
                    "block" and "wide_block" are deprecated: they are "two_lists" by 1, 8 and 16 warps.
        stream      for queries on a CUDA device: one of CuPy's or Torch's, an object with __cuda_stream__, or a
                    number. Default: the current one of the queries' library. The call then returns when the
                    work is queued. Queries and results must stay until it is done, which CuPy and Torch see to
                    on their current stream. JAX and others that name no stream wait for the results.
        timeout     seconds; gannet.DeadlineExceeded when they have passed
        out         arrays to write to, packed: int64 [n, k] and float32 [n, k], on the queries' device
        not_finite  "raise": a query with NaN or infinity raises gannet.NotFinite; "pad": it has no neighbours
                    and disturbs no other, as on a device
        tuning      search_width, iterations_max, hash_bits, hash_reset, team_size, ctas_per_query,
                    batch_threshold, beam_threshold and compare ("codes" or "stored") for CAGRA's procedures,
                    stretch, queue, visited, nearest_share, slack ("distances" or "squares") and descent
                    (True or False) for "ggnn",
                    warps_per_query (1, 8 or 16) for "two_lists",
                    occlusion_max, walks, hops_max, segments and delta for "tsdg" and its like, delta
                    for "slack": as in ann.h

        Returns Neighbors: ids, int64, and distances, float32, both [n, k], or [k] for one query: arrays of
        CuPy or Torch for queries of these, of NumPy otherwise, or `out`. Nearest first, equal ones by id; -1
        and infinity where there are fewer than k. Distances are squared for "l2", negative products for "ip".

        Raises DtypeError, ShapeError, OrderError, DeviceError, InvalidArgument, LimitExceeded, Unsupported,
        NotFinite, ClosedError, CorruptFile (an index opened with mmap met damage in its file), NoDevice,
        OutOfMemory, DeviceOutOfMemory, DeviceLost, DeadlineExceeded. Ctrl-C stops large batches.

        >>> import gannet
        >>> index = gannet.build([[0, 0], [0, 3], [4, 0]], ids=[10, 20, 30])
        >>> index.search([1, 0], k=2)
        Neighbors(ids=array([10, 30]), distances=array([1., 9.], dtype=float32))
        >>> index.search([1, 0], k=4).ids
        array([10, 30, 20, -1])
        """
        params = self._defaults
        if recall is not None or beam is not None or threads is not None or device is not None or (
                procedure is not None) or tuning:
            params = dict(params) if params else {}
            if threads is not None or device is not None or tuning:
                params.update(search_params(threads, device, tuning))
            if recall is not None:
                params["recall"] = recall
            if beam is not None:
                params["beam"] = beam
            if procedure is not None:
                params["procedure"] = _names.procedure(procedure)
        if stream is None and out is None and not_finite == "raise":
            if type(queries) is np.ndarray:
                return tuple.__new__(Neighbors, self._core.search(False, queries, k, params, None, None, None,
                                                                  timeout, True))
            lent = self._core.search_lent(False, queries, k, params, None, None, timeout)
            if lent is not None:
                return tuple.__new__(Neighbors, lent)
        return self._search(False, queries, k, params, stream, timeout, out, not_finite)

    def exact(self, queries: Array, k: int = 10, *, threads: int | None = None, device: Any = None,
              stream: Any = None, timeout: float | None = None, out: tuple[Array, Array] | None = None,
              not_finite: str = "raise") -> Neighbors:
        """Finds the k nearest rows for each query by comparing with every row.

        Arguments, results and errors are those of search(); k may be as large as there are rows. The answers are
        equal bit for bit on all devices.

        >>> import gannet
        >>> index = gannet.build([[0, 0], [0, 3], [4, 0]], graph="none")
        >>> index.exact([[1, 0]], k=1).ids
        array([[0]])
        """
        params = search_params(threads, device, {})
        return self._search(True, queries, k, params, stream, timeout, out, not_finite)

    def _search(self, exact: bool, queries: Array, k: int, params: dict[str, Any] | None, stream: Any,
                timeout: float | None, out: tuple[Array, Array] | None, not_finite: str) -> Neighbors:
        if not_finite not in ("raise", "pad"):
            raise InvalidArgument(f"not_finite is {not_finite!r}; expected \"raise\" or \"pad\"")
        if out is not None and not (isinstance(out, (tuple, list)) and len(out) == 2
                                    and all(buffer is not None for buffer in out)):
            raise InvalidArgument("out: expected a pair of arrays, (ids, distances)")
        strict = not_finite == "raise"
        found: Any = out or (None, None)
        if stream is None and _arrays.know(queries) and (out is None or all(map(_arrays.know, out))):
            lent = self._core.search_lent(exact, queries, k, params, found[0], found[1], timeout)
            if lent is not None:
                return Neighbors(*lent)
        host = isinstance(queries, (np.ndarray, list, tuple)) or not _arrays.is_on_device(queries)
        number = None if stream is None else _arrays.stream_number(stream)
        if host and stream is not None:
            raise InvalidArgument("stream is for queries in the memory of a CUDA device")
        waits = not host and stream is None and _arrays.library_of(queries) not in ("cupy", "torch")
        if not host and stream is None:
            number = _arrays.stream_of(queries)
        given = _arrays.of(queries, "queries", number, self._list_dtype())
        if not host and out is None:
            found = _arrays.results_on_device(queries, given.space - _names.CUDA, (*given.shape[:-1], k))
        ids, distances = (None if buffer is None else _arrays.of(buffer, f"out[{i}]", number)
                          for i, buffer in enumerate(found))
        made = self._core.search(exact, given, k, params, ids, distances, number, timeout, strict)
        if waits:
            _arrays.wait_for(number)
        if found[0] is not None:
            return Neighbors(*found)
        if _arrays.library_of(queries) == "torch":
            import torch
            return Neighbors(torch.from_numpy(made[0]), torch.from_numpy(made[1]))
        return Neighbors(*made)

    def beam(self, k: int = 10, recall: float | None = None) -> int:
        """The beam that search() uses for this k and recall (default: the index's) on the CPU.

        Raises InvalidArgument, Unsupported without a graph, ClosedError.
        """
        if recall is None:
            recall = (self._defaults or {}).get("recall", 0.0)
        return self._core.beam(k, recall)

    # --- What it holds --------------------------------------------------------------------------------------

    @property
    def info(self) -> IndexInfo:
        """State, sizes and times of the index, as an IndexInfo."""
        rows, dim, metric, element, _, graph, *rest, codes, centres, code_bytes, ten, twenty, worst = (
            self._core.info())
        return IndexInfo._make((rows, dim, _names.METRIC_NAMES[metric], _names.ELEMENT_NAMES[element],
                                _names.GRAPH_NAMES[graph], *rest, _names.CODE_NAMES[codes], centres, code_bytes,
                                ten, twenty, worst))

    @property
    def dim(self) -> int:
        """Columns of a row."""
        return int(self._core.info()[1])

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of elements as stored; float32 for bfloat16 where ml_dtypes is missing."""
        dtype, widened = _names.stored_dtype(self._core.info()[3])
        return np.dtype(np.float32) if widened else dtype

    @property
    def ids(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """[rows] int64: the ids of all rows, in the order of build(); a new array each time."""
        ids = np.empty(len(self), np.int64)
        self._core.ids(0, ids)
        return ids

    def __len__(self) -> int:
        """Number of rows."""
        return int(self._core.info()[0])

    def __iter__(self) -> Iterator[int]:
        """The ids of all rows."""
        return iter(self.ids.tolist())

    def __contains__(self, id: object) -> bool:
        """Whether there is a row with this id."""
        return isinstance(id, (int, np.integer)) and bool(id >= 0) and bool(self._found(np.array([id], np.int64))[0])

    def _found(self, ids: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        found = np.empty(len(ids), np.int32)
        self._core.get(ids, None, found)
        return found

    def __getitem__(self, id: Any) -> np.ndarray[Any, Any]:
        """The vector of an id, [dim], or those of a sequence of ids, [n, dim]; copies, as stored.

        Raises KeyError for ids that no row has.
        """
        ids = np.asarray(id)
        if ids.dtype.kind not in "iu" and ids.size > 0 or ids.ndim > 1:
            raise TypeError(f"an id is an int, and several are a list or an array of ints, not {id!r}")
        flat = np.atleast_1d(ids).astype(np.int64, casting="unsafe")
        dtype, widened = _names.stored_dtype(self._core.info()[3])
        vectors, found = np.empty((len(flat), self.dim), dtype), np.zeros(len(flat), np.int32)
        self._core.get(flat, vectors, found)
        if not found.all():
            raise KeyError(int(flat[np.argmin(found)]))
        if widened:  # the upper halves of float32
            vectors = (vectors.astype(np.uint32) << 16).view(np.float32)
        return vectors[0] if ids.ndim == 0 else vectors

    def graph(self) -> np.ndarray[Any, np.dtype[np.int32]]:
        """[rows, degree] int32: the graph that searches walk, as row numbers (not ids); -1 in unused places.

        Raises Unsupported without a graph, ClosedError, CorruptFile, MemoryError.
        """
        edges = np.empty((len(self), self._core.graph(None)), np.int32)
        self._core.graph(edges)
        return edges

    def graph_stats(self, *, two_hop_rows: int = 1000) -> GraphStats:
        """Measures the graph, in time and memory in proportion to its edges; two_hop_mean over as many rows as
        `two_hop_rows` says, at most all. Raises as graph(), and InvalidArgument."""
        if not 0 < two_hop_rows < 1 << 32:
            raise InvalidArgument(f"two_hop_rows is {two_hop_rows!r}; expected 1 to {(1 << 32) - 1}")
        return GraphStats(*self._core.graph_stats(two_hop_rows))

    def __repr__(self) -> str:
        try:
            info = self.info
        except ClosedError:
            return "<gannet.Index: closed>"
        graph = f"{info.degree} edges a row" if info.graph != "none" else "no graph"
        return (f"<gannet.Index: {info.rows:,} rows of {info.dim} {info.dtype}, {info.metric}, {graph}, "
                f"{info.memory_bytes / 1e6:,.1f} MB>")

    # --- Devices ----------------------------------------------------------------------------------------------

    def place(self, device: Any = "cuda:0") -> None:
        """Copies the index to a CUDA device and calibrates it there, now rather than at the first search.

        Raises Unsupported without a graph, NoDevice, DeviceOutOfMemory and others, as search() does.
        """
        self._core.place(_names.device(device))

    def evict(self, device: Any = "cuda:0") -> None:
        """Releases the memory of that copy when the searches that use it are done."""
        self._core.evict(_names.device(device))

    # --- Files and life -----------------------------------------------------------------------------------------

    def save(self, target: PathOrFile, *, threads: int | None = None, sync: bool = True, progress: Wish = None,
             timeout: float | None = None) -> None:
        """Saves to a file, which is replaced whole or not at all, or to an object with write().

        target    a path, or an object whose write(bytes) takes bytes and returns how many, or None for all
        threads   for the sums over the content; default: all
        sync      wait until the disk has the file, so that it survives a power failure; not for write()
        progress  as for build()
        timeout   seconds; gannet.DeadlineExceeded when they have passed

        Raises FileError (an OSError, with errno) where the system refuses: nothing has changed then. What
        write() raises goes on to the caller. Equal indexes give equal files.

        >>> import gannet, tempfile, os
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "points.gannet")
        ...     gannet.build([[0, 0], [1, 1]]).save(path)
        ...     gannet.open(path).search([1, 1], k=1).ids
        array([1])
        """
        params = {"threads": threads, "sync": 1 if sync else 2}
        path = write = None
        if isinstance(target, (str, bytes, os.PathLike)):
            path = os.fsencode(target)
        elif callable(getattr(target, "write", None)):
            write = target.write
        else:
            raise TypeError(f"expected a path or an object with write(), not {target!r}")
        with Reporter(progress) as report:
            self._core.save(path, write, params, report, timeout)

    def __reduce__(self) -> tuple[Any, ...]:
        content = io.BytesIO()
        self.save(content)
        return restored, (content.getvalue(), (self._defaults or {}).get("recall"))

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._core.closed

    def close(self) -> None:
        """Gives the memory back: at once, or when the calls that run on the index end. Later calls raise
        ClosedError. Indexes that nothing refers to are closed by themselves."""
        self._core.close()

    def __enter__(self) -> Index:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _list_dtype(self) -> Any:
        """The type that a list of numbers gets as queries."""
        element = self._core.info()[3]
        return np.dtype(_names.ELEMENT_NAMES[element]) if element >= 4 else np.dtype(np.float32)


def search_params(threads: int | None, device: Any, tuning: dict[str, Any]) -> dict[str, Any]:
    params = dict(tuning)
    if "compare" in params:
        params["compare"] = _names.number("compare", params["compare"], _names.COMPARES)
    if "slack" in params:
        params["slack"] = _names.number("slack", params["slack"], _names.SLACKS)
    if "descent" in params:
        params["descent"] = 1 if params["descent"] else 2
    if threads is not None:
        params["threads"] = threads
    if device is not None:
        params["device"] = _names.device(device)
    return params


def restored(content: bytes, recall: float | None) -> Index:
    """An index from the bytes of its file, as pickle has them."""
    return Index(_core.open(None, content, None, None, None), recall)


# --- Making one ---------------------------------------------------------------------------------------------------

def build(rows: Array, *, metric: str = "l2", dtype: Any = None, device: Any = None, recall: float | None = None,
          ids: Any = None, progress: Wish = None, timeout: float | None = None, copy: bool = True,
          graph: Any = "auto", degree: int | None = None, knn: str = "auto", knn_degree: int | None = None,
          knn_graph: Any = None, calibrate: bool = True, calibration: Array | None = None, seed: int | None = None,
          threads: int | None = None, memory_limit: int | None = None, repair: bool | None = None,
          samples: int | None = None, iterations: int | None = None, convergence: float | None = None,
          segment_rows: int | None = None, layers: int | None = None, refinements: int | None = None,
          build_stretch: float | None = None, midpoint: bool = True, diversify: str = "auto",
          alpha: float | None = None, occlusion_bound: int | None = None, reverse_max: int | None = None,
          pool: int | None = None, angle: float | None = None, detours: str = "auto",
          reorder: str = "auto", build_slack: str = "auto") -> Index:
    """Builds an index over `rows`.

    rows          [n, dim]: float32, float16, bfloat16 (of ml_dtypes, or by DLPack), int8 or uint8; float64 is
                  refused. NumPy's, or what lends its memory by DLPack or __cuda_array_interface__ (Torch,
                  CuPy, JAX); rows may lie apart. Lists of numbers are taken as float32. n to 2,147,483,646,
                  dim 1 to 32,768.
    metric        "l2" (squared Euclidean distance, default), "ip" (negative inner product) or "cos" (1 - cosine)
    dtype         as stored; default: that of the rows. Floats may be stored as other floats ("float16" halves
                  the memory), integers as themselves or as floats.
    device        that builds: "cpu" or "cuda:0"; default: where the rows are
    recall        of searches that name none, above 0 to 1; default 0.95
    ids           [n] distinct ints, 0 or more; default 0, 1, 2, ...
    progress      True: a line in the terminal or notebook (stderr); or a function of a gannet.Progress, called
                  up to 20 times a second on this thread. An exception in it stops the build within 100 ms, as
                  Ctrl-C does.
    timeout       seconds; gannet.DeadlineExceeded when they have passed
    copy          False: the index uses the rows where they are, which must not change while it lives; host
                  memory and the rows' own dtype only. The index keeps a reference to them.
    graph         "auto", a variation on CAGRA's that reaches every row; "cagra" (as in its paper), "ggnn", "tsdg"
                  or "none": rows only, for exact(). Or a finished graph, [n, degree] int32: edges by row number,
                  best first, -1 at the end of a row that has fewer, as Index.graph() gives them. It is checked,
                  calibrated and kept as it is, and `info.graph` calls it "cagra", as which it is searched.
    degree        edges a row, 2 to 256; default 32, or 48 for 100,000 rows or more of at most 256 columns but not by
                  inner product nor with a `knn_degree` below 48, of which a CUDA device makes 64 by cells, from lists
                  of 64 and more, where neighbours are hard to tell apart, of "cagra" 32, of "ggnn" 24, of "tsdg" 128
                  at most. More finds more at a given beam.
    knn           how the neighbours under the graph are found: "auto", "exact", "nn_descent" or "cells"
    knn_degree    how many of them, degree to 512; default 1.5 times the degree, by cells 64 for 48 edges, of "cagra"
                  3 times
    knn_graph     [n, knn_degree] int32: these neighbours, given by row number, -1 at the end of a row where
                  there are fewer; as knn_graph() makes them
    calibrate     learn which beam gives which recall
    calibration   [m, dim]: queries like those to come, at best 2,048, where they are unlike the rows
    seed          of every random choice; default 1. Equal input and seed give an equal index.
    threads       default: all
    memory_limit  bytes that the build may hold beside borrowed rows; LimitExceeded before it starts
    repair        give unreachable rows an edge and, where searches miss rows, edges to these and from island to island;
                  default True, of "cagra" and a finished graph False
    samples, iterations, convergence  of NN-Descent, as in ann.h
    segment_rows, layers, refinements, build_stretch, midpoint, build_slack
                  of graph "ggnn", as in ann.h; refinements=0 is none, build_slack "distances" (default) or "squares"
    diversify     how graph "tsdg" chooses edges: "tsdg" (default), "gd", "dpg", "ssg" or "vamana"
    alpha, occlusion_bound, reverse_max, pool, angle  of graph "tsdg", as in ann.h
    detours       of graphs "auto" and "cagra": "near" or "whole", the entries of the k-NN lists that detours go by;
                  default "near" for "auto", "whole" for "cagra"
    reorder       of the same: "rank" (default) or "distance", by which one of two edges is the shorter one there

    Raises DtypeError, ShapeError, OrderError, DeviceError, InvalidArgument, LimitExceeded, Unsupported,
    NotFinite (with the place), OutOfMemory, NoDevice, DeviceOutOfMemory, DeviceLost, DeadlineExceeded.

    >>> import gannet, numpy as np
    >>> rows = np.random.default_rng(1).integers(0, 256, (5000, 16), dtype=np.uint8)
    >>> index = gannet.build(rows, metric="cos", recall=0.99)
    >>> index.search(rows[7], k=1).ids
    array([7])
    """
    given = _arrays.ready(rows, "rows")
    stored = 0 if dtype is None else _names.element(dtype)
    finished = graph is not None and not np.isscalar(graph)
    lists = given_lists(graph if finished else None, knn_graph, knn, knn_degree)
    params: dict[str, Any] = {
        "graph": _names.GIVEN_GRAPH if finished else _names.number("graph", graph, _names.GRAPHS),
        "knn": _names.GIVEN_KNN if lists is not None else _names.number("knn", knn, _names.KNN_METHODS),
        "rows_mode": 1 if copy else 2, "degree": degree, "samples": samples, "iterations": iterations,
        "convergence": convergence, "seed": seed, "threads": threads, "memory_limit": memory_limit,
        "repair": 0 if repair is None else 1 if repair else 2, "calibrate": 1 if calibrate else 2,
        "knn_degree": knn_degree,
        "segment_rows": segment_rows, "layers": layers, "refinements": -1 if refinements == 0 else refinements,
        "build_stretch": build_stretch, "midpoint": 1 if midpoint else 2,
        "diversify": _names.number("diversify", diversify, _names.DIVERSIFICATIONS), "alpha": alpha,
        "occlusion_bound": occlusion_bound, "reverse_max": reverse_max, "pool": pool, "angle": angle,
        "detours": _names.number("detours", detours, _names.DETOURS),
        "reorder": _names.number("reorder", reorder, _names.REORDERINGS),
        "build_slack": _names.number("build_slack", build_slack, _names.SLACKS)}
    if device is not None:
        params["device"] = _names.device(device)
    elif isinstance(given, _core.View) and given.space != 0:
        params["device"] = given.space
    if recall is not None:
        check_recall(recall)
    _arrays.check_matrix(given, "rows")
    if calibration is not None:
        calibration = _arrays.ready(calibration, "calibration")
    core = _core.Handle(given.shape[1], _names.number("metric", metric, _names.METRICS), stored)
    with Reporter(progress) as report:
        core.build(given, ids_array(ids), calibration, lists, params, report, timeout)
    return Index(core, recall)


def given_lists(graph: Any, knn_graph: Any, knn: str, knn_degree: int | None) -> Any:
    """The edges or the neighbours that a build is given, as an array or a View; None: it finds them itself."""
    if graph is None and knn_graph is None:
        return None
    what = "knn_graph" if graph is None else "graph"
    if graph is not None and knn_graph is not None:
        raise InvalidArgument("graph and knn_graph are both given; a finished graph is not made from neighbours")
    lists = _arrays.of(knn_graph if graph is None else graph, what, None, np.int32)
    _arrays.check_matrix(lists, what, 1024 if graph is None else 256)
    if _names.number("knn", knn, _names.KNN_METHODS) != 0:
        raise InvalidArgument(f"knn is {knn!r}, but {what} is given; nothing is left to be found")
    if knn_degree not in (None, lists.shape[1]):
        raise InvalidArgument(f"knn_degree is {knn_degree!r}, but {what} has {lists.shape[1]} columns")
    return lists


def check_recall(recall: float) -> None:
    if not 0 < recall <= 1:
        raise InvalidArgument(f"recall is {recall!r}; expected above 0 to 1")


def ids_array(ids: Any) -> np.ndarray[Any, np.dtype[np.int64]] | None:
    """Ids as packed int64, copied only where they are not."""
    if ids is None:
        return None
    array = np.asarray(ids)
    if array.dtype.kind not in "iu" and array.size > 0:
        raise DtypeError(f"ids is of {array.dtype}; expected whole numbers")
    if array.ndim != 1:
        raise ShapeError(f"ids has {array.ndim} dimensions; expected 1")
    if array.size > 0 and (int(array.min()) < 0 or int(array.max()) > np.iinfo(np.int64).max):
        raise InvalidArgument(f"ids holds {int(array.min())} to {int(array.max())}; expected 0 to 2**63 - 1")
    return np.ascontiguousarray(array, np.int64)


def open(source: Any, *, mmap: bool = False, trusted: bool = False, recall: float | None = None,
         threads: int | None = None, dim: int | None = None, metric: str | None = None, dtype: Any = None,
         progress: Wish = None, timeout: float | None = None) -> Index:
    """Opens a saved index, which answers as the one that was saved.

    source    a path, bytes of a file, or an object with read()
    mmap      True: the file is mapped and opens in milliseconds; each megabyte is checked when it is first
              read, and a search that meets damage raises CorruptFile. The file must not be changed in place
              meanwhile (save() never does that). Default: everything is read into memory and checked now.
    trusted   with mmap: do not check. A damaged or hostile file then makes behaviour undefined.
    recall    of searches that name none; default 0.95
    threads   that read and check; default: all
    dim, metric, dtype  what the file must have; InvalidArgument otherwise
    progress, timeout   as for build()

    Raises FileError (an OSError), CorruptFile, FileVersionError, InvalidArgument, OutOfMemory, DeadlineExceeded.
    """
    if trusted and not mmap:
        raise InvalidArgument("trusted is for mmap=True")
    if recall is not None:
        check_recall(recall)
    mode = _names.OPEN_FULL if not mmap else _names.OPEN_TRUSTED if trusted else _names.OPEN_LAZY
    params = {"mode": mode, "threads": threads, "expect_dim": dim,
              "expect_metric": None if metric is None else _names.number("metric", metric, _names.METRICS),
              "expect_element": None if dtype is None else _names.element(dtype)}
    path = content = None
    if isinstance(source, (str, os.PathLike)):
        path = os.fsencode(source)
    else:
        content = source.read() if callable(getattr(source, "read", None)) else source
        if not isinstance(content, (bytes, bytearray, memoryview)):
            raise TypeError(f"expected a path, bytes or an object with read(), not {source!r}")
        content = bytes(content)
        if mmap:
            raise Unsupported("mmap is for files that have a path")
    with Reporter(progress) as report:
        return Index(_core.open(path, content, params, report, timeout), recall)
