"""Whatever is given wrongly ends in an error of its own, which says what was wrong, and never in a crash."""

import ast
import inspect
import pathlib

import numpy as np
import pytest

import gannet

F32 = np.float32
GOOD = np.arange(40, dtype=F32).reshape(10, 4)
WIDE = np.zeros((10, 8), F32)
FEW = np.zeros((10, 3), F32)
RING = np.stack([np.arange(1, 11) % 10, np.arange(-1, 9) % 10], axis=1).astype(np.int32)


class OnDevice:
    """Claims to lie in a device's memory, at an address where nothing is to be read."""

    __cuda_array_interface__ = {"shape": (10, 2), "typestr": "<i4", "data": (4096, False), "version": 3}


ON_DEVICE = OnDevice()

# (error, part of the text, array), for rows and for queries of four columns alike.
ARRAYS = [
    (gannet.DtypeError, "float64.*astype", GOOD.astype(np.float64)),
    (gannet.DtypeError, "float128", GOOD.astype(np.longdouble)),
    (gannet.DtypeError, "int64", GOOD.astype(np.int64)),
    (gannet.DtypeError, "int32", GOOD.astype(np.int32)),
    (gannet.DtypeError, "uint16", GOOD.astype(np.uint16)),
    (gannet.DtypeError, "no numbers", GOOD.astype(bool)),
    (gannet.DtypeError, "no numbers", GOOD.astype(np.complex64)),
    (gannet.DtypeError, "no numbers", GOOD.astype(object)),
    (gannet.DtypeError, "no numbers", GOOD.astype(str)),
    (gannet.DtypeError, "no numbers", np.zeros((10, 4), "V2")),
    (gannet.DtypeError, "no numbers", np.zeros((10, 4), "datetime64[s]")),
    (gannet.DtypeError, "other order", GOOD.astype(">f4")),
    (gannet.DtypeError, "mask", np.ma.masked_array(GOOD, GOOD > 3)),
    (gannet.DtypeError, "list", [["a", "b", "c", "d"]]),
    (gannet.DtypeError, "list", [[{}] * 4]),
    (gannet.ShapeError, "list", [[1, 2, 3, 4], [5]]),
    (gannet.ShapeError, "dimensions", GOOD.reshape(2, 5, 4)),
    (gannet.ShapeError, "dimensions", F32(1)),
    (gannet.ShapeError, "dimensions", np.array(1, F32)),
    (gannet.ShapeError, "0 columns", GOOD[:, :0]),
    (gannet.OrderError, "side by side", np.asfortranarray(GOOD)),
    (gannet.OrderError, "side by side", WIDE[:, ::2]),
    (gannet.OrderError, "side by side", GOOD[:, ::-1]),
    (gannet.OrderError, "rows .* apart", GOOD[::-1]),
    (gannet.OrderError, "rows 0 bytes apart", np.broadcast_to(GOOD[:1], (10, 4))),
    (gannet.OrderError, "rows 4 bytes apart", np.lib.stride_tricks.sliding_window_view(np.zeros(20, F32), 4)),
    ((gannet.DtypeError, gannet.ShapeError), "expected", "rows"),
    ((gannet.DtypeError, gannet.ShapeError), "expected", 5),
    ((gannet.DtypeError, gannet.ShapeError), "expected", {"a": 1}),
]


@pytest.fixture(scope="module")
def index():
    return gannet.build(GOOD)


@pytest.mark.parametrize("error, text, given", ARRAYS)
@pytest.mark.parametrize("use", ["rows", "queries", "exact", "calibration", "k-NN graph"])
def test_arrays(index, error, text, given, use):
    with pytest.raises(error, match=text):
        if use == "rows":
            gannet.build(given)
        elif use == "queries":
            index.search(given, 2)
        elif use == "exact":
            index.exact(given, 2)
        elif use == "calibration":
            gannet.build(GOOD, calibration=given)
        else:
            gannet.knn_graph(given, 2)


INT8 = gannet.build(GOOD.astype(np.int8))
IDS, DISTANCES = np.zeros((10, 2), np.int64), np.zeros((10, 2), F32)
READ_ONLY = np.zeros((10, 2), np.int64)
READ_ONLY.flags.writeable = False


def out(ids=IDS, distances=DISTANCES):
    return lambda index: index.search(GOOD, 2, out=(ids, distances))


CALLS = [
    # rows of build()
    (gannet.ShapeError, "1 dimension", lambda _: gannet.build(GOOD[0])),
    (gannet.LimitExceeded, "dim", lambda _: gannet.build(np.zeros((1, 40000), F32))),
    (gannet.NotFinite, "row", lambda _: gannet.build(np.array([[1, np.nan]], F32))),
    (gannet.NotFinite, "row", lambda _: gannet.build(np.array([[1, np.inf]], F32))),
    (gannet.InvalidArgument, "metric is 'euclidean'", lambda _: gannet.build(GOOD, metric="euclidean")),
    (gannet.InvalidArgument, "metric is None", lambda _: gannet.build(GOOD, metric=None)),
    (gannet.DtypeError, "dtype is int32", lambda _: gannet.build(GOOD, dtype=np.int32)),
    (gannet.Unsupported, "stored", lambda _: gannet.build(GOOD, dtype="i8")),
    (gannet.DeviceError, "gpu", lambda _: gannet.build(GOOD, device="gpu")),
    (gannet.DeviceError, "device is 0", lambda _: gannet.build(GOOD, device=0)),
    ((gannet.NoDevice, gannet.Unsupported), ".", lambda _: gannet.build(GOOD, device="cuda:99")),
    (gannet.InvalidArgument, "recall is 1.5", lambda _: gannet.build(GOOD, recall=1.5)),
    (gannet.InvalidArgument, "recall is 0", lambda _: gannet.build(GOOD, recall=0)),
    (TypeError, ".", lambda _: gannet.build(GOOD, recall="high")),
    (gannet.InvalidArgument, "degree", lambda _: gannet.build(GOOD, degree=1)),
    (gannet.Error, "degree", lambda _: gannet.build(GOOD, degree=1000)),
    (gannet.InvalidArgument, "degree is -3", lambda _: gannet.build(GOOD, degree=-3)),
    (gannet.InvalidArgument, "degree is", lambda _: gannet.build(GOOD, degree=2**40)),
    (TypeError, "degree is 'many'", lambda _: gannet.build(GOOD, degree="many")),
    (TypeError, "degree is 2.5", lambda _: gannet.build(GOOD, degree=2.5)),
    (TypeError, "convergence", lambda _: gannet.build(GOOD, convergence="slow")),
    (gannet.InvalidArgument, "convergence", lambda _: gannet.build(GOOD, convergence=float("nan"))),
    (gannet.InvalidArgument, "seed is -1", lambda _: gannet.build(GOOD, seed=-1)),
    (gannet.InvalidArgument, "graph is 'hnsw'", lambda _: gannet.build(GOOD, graph="hnsw")),
    (gannet.InvalidArgument, "knn is 'given'", lambda _: gannet.build(GOOD, knn="given")),
    (TypeError, "progress is 3", lambda _: gannet.build(GOOD, progress=3)),
    (gannet.InvalidArgument, "timeout is -1", lambda _: gannet.build(GOOD, timeout=-1)),
    (gannet.InvalidArgument, "timeout is nan", lambda _: gannet.build(GOOD, timeout=float("nan"))),
    (TypeError, ".", lambda _: gannet.build(GOOD, timeout="soon")),
    (TypeError, "colour", lambda _: gannet.build(GOOD, colour=1)),
    (gannet.InvalidArgument, ".", lambda _: gannet.build(GOOD, copy=False, dtype="f16")),
    # ids, given graphs
    (gannet.ShapeError, "ids", lambda _: gannet.build(GOOD, ids=[1, 2])),
    (gannet.ShapeError, "ids has 2 dimensions", lambda _: gannet.build(GOOD, ids=[[1, 2]])),
    (gannet.DtypeError, "ids is of float64", lambda _: gannet.build(GOOD, ids=np.arange(10.0))),
    (gannet.DtypeError, "ids", lambda _: gannet.build(GOOD, ids=list("abcdefghij"))),
    (gannet.InvalidArgument, "ids holds -1", lambda _: gannet.build(GOOD, ids=np.arange(10) - 1)),
    (gannet.InvalidArgument, "ids holds", lambda _: gannet.build(GOOD, ids=np.arange(10, dtype=np.uint64) + 2**63)),
    (gannet.InvalidArgument, ".", lambda _: gannet.build(GOOD, ids=np.zeros(10, int))),
    (gannet.ShapeError, "calibration has 1", lambda _: gannet.build(GOOD, calibration=GOOD[0])),
    (gannet.InvalidArgument, ".", lambda _: gannet.build(GOOD, calibration=FEW)),
    (gannet.DtypeError, "knn_graph", lambda _: gannet.build(GOOD, knn_graph=np.zeros((10, 3), np.int64))),
    (gannet.ShapeError, "knn_graph", lambda _: gannet.build(GOOD, knn_graph=np.zeros((9, 3), np.int32))),
    (gannet.InvalidArgument, ".", lambda _: gannet.build(GOOD, knn_graph=np.full((10, 3), 77, np.int32))),
    (gannet.OrderError, ".", lambda _: gannet.build(GOOD, knn_graph=np.zeros((10, 6), np.int32)[:, ::2])),
    (gannet.ShapeError, "knn_graph has 0", lambda _: gannet.build(GOOD, knn_graph=np.int32(3))),
    (gannet.DeviceError, "knn_graph lies", lambda _: gannet.build(GOOD, knn_graph=ON_DEVICE)),
    (gannet.InvalidArgument, "knn is 'exact'", lambda _: gannet.build(GOOD, knn="exact", knn_graph=RING)),
    (gannet.InvalidArgument, "knn is 'magic'", lambda _: gannet.build(GOOD, knn="magic", knn_graph=RING)),
    (gannet.InvalidArgument, "knn_degree is 5", lambda _: gannet.build(GOOD, knn_degree=5, knn_graph=RING)),
    (gannet.DtypeError, "graph must be of int32", lambda _: gannet.build(GOOD, graph=RING.astype(float))),
    (gannet.DtypeError, "graph", lambda _: gannet.build(GOOD, graph=[["a", "b"]] * 10)),
    (gannet.ShapeError, r"graph must have the shape \[10, 2\]", lambda _: gannet.build(GOOD, graph=RING[:9])),
    (gannet.ShapeError, "graph has 1 dim", lambda _: gannet.build(GOOD, graph=RING[0])),
    (gannet.ShapeError, "graph has 0 columns", lambda _: gannet.build(GOOD, graph=RING[:, :0])),
    (gannet.OrderError, "graph must be packed", lambda _: gannet.build(GOOD, graph=RING[:, ::-1])),
    (gannet.DeviceError, "graph lies", lambda _: gannet.build(GOOD, graph=ON_DEVICE)),
    (gannet.InvalidArgument, "row", lambda _: gannet.build(GOOD, graph=RING + 1)),
    (gannet.InvalidArgument, "degree", lambda _: gannet.build(GOOD, graph=RING[:, :1].copy())),
    (gannet.InvalidArgument, "degree", lambda _: gannet.build(GOOD, graph=RING, degree=8)),
    (gannet.InvalidArgument, "knn is 'exact'", lambda _: gannet.build(GOOD, graph=RING, knn="exact")),
    (gannet.InvalidArgument, "both given", lambda _: gannet.build(GOOD, graph=RING, knn_graph=RING)),
    (gannet.InvalidArgument, "graph is 'given'", lambda _: gannet.build(GOOD, graph="given")),
    (gannet.InvalidArgument, "graph is 5", lambda _: gannet.build(GOOD, graph=5)),
    (gannet.InvalidArgument, "graph is None", lambda _: gannet.build(GOOD, graph=None)),
    # searches
    (gannet.ShapeError, "3 columns, the index 4", lambda i: i.search(FEW)),
    (gannet.ShapeError, "8 columns, the index 4", lambda i: i.exact(WIDE[0])),
    (gannet.InvalidArgument, ".", lambda _: INT8.search(GOOD)),
    (gannet.InvalidArgument, "k is 0", lambda i: i.search(GOOD, 0)),
    (gannet.InvalidArgument, "k is -1", lambda i: i.search(GOOD, -1)),
    (gannet.InvalidArgument, "k is", lambda i: i.search(GOOD, 2**33)),
    (TypeError, "k is 2.5", lambda i: i.search(GOOD, 2.5)),
    (TypeError, "k is None", lambda i: i.search(GOOD, None)),
    (gannet.InvalidArgument, "recall", lambda i: i.search(GOOD, recall=2)),
    (gannet.InvalidArgument, "recall", lambda i: i.search(GOOD, recall=-0.5)),
    (gannet.InvalidArgument, "recall", lambda i: i.search(GOOD, recall=float("nan"))),
    (TypeError, "recall", lambda i: i.search(GOOD, recall="0.9")),
    (gannet.InvalidArgument, "beam", lambda i: i.search(GOOD, 5, beam=2)),
    (gannet.Error, "beam", lambda i: i.search(GOOD, 5, beam=100000)),
    (TypeError, "beam", lambda i: i.search(GOOD, beam=[1])),
    (gannet.InvalidArgument, "procedure is 'fast'", lambda i: i.search(GOOD, procedure="fast")),
    (gannet.Error, ".", lambda i: i.search(GOOD, procedure="warp")),
    (gannet.InvalidArgument, "warps_per_query is 3",
     lambda i: i.search(GOOD, procedure="two_lists", warps_per_query=3)),
    (gannet.InvalidArgument, "warps_per_query is 1",
     lambda i: i.search(GOOD, procedure="Wide_Block", warps_per_query=1)),
    (TypeError, "warps_per_query is 'a'", lambda i: i.search(GOOD, procedure="two_lists", warps_per_query="a")),
    (gannet.InvalidArgument, "compare is 'x'", lambda i: i.search(GOOD, compare="x")),
    (TypeError, "no parameter 'width'", lambda i: i.search(GOOD, width=2)),
    (TypeError, "hash_bits is 'a'", lambda i: i.search(GOOD, hash_bits="a")),
    (gannet.InvalidArgument, "hash_reset is -7", lambda i: i.search(GOOD, hash_reset=-7)),
    (gannet.DeviceError, "device is 'tpu'", lambda i: i.search(GOOD, device="tpu")),
    ((gannet.NoDevice, gannet.Unsupported), ".", lambda i: i.search(GOOD, device="cuda:77")),
    (gannet.InvalidArgument, "stream is for", lambda i: i.search(GOOD, stream=1)),
    (gannet.InvalidArgument, "stream is 'x'", lambda i: i.search(GOOD, stream="x")),
    (gannet.InvalidArgument, "not_finite is 'skip'", lambda i: i.search(GOOD, not_finite="skip")),
    (gannet.InvalidArgument, "timeout", lambda i: i.search(GOOD, timeout=-0.1)),
    (TypeError, ".", lambda i: i.search()),
    # out
    (gannet.InvalidArgument, "pair", lambda i: i.search(GOOD, 2, out=IDS)),
    (gannet.DtypeError, r"out\[0\] must be of int64", out(ids=np.zeros((10, 2), np.int32))),
    (gannet.DtypeError, r"out\[1\] must be of float32", out(distances=np.zeros((10, 2)))),
    (gannet.ShapeError, r"out\[0\]", out(ids=np.zeros((10, 3), np.int64))),
    (gannet.ShapeError, r"out\[1\]", out(distances=np.zeros((9, 2), F32))),
    (gannet.OrderError, "packed", out(ids=np.zeros((10, 4), np.int64)[:, ::2])),
    (gannet.OrderError, "packed", out(distances=np.zeros((2, 10), F32).T)),
    (gannet.OrderError, "only be read", out(ids=READ_ONLY)),
    ((TypeError, gannet.InvalidArgument), ".", out(ids=None)),
    ((TypeError, gannet.InvalidArgument), ".", out(distances=None)),
    # the rest
    (gannet.InvalidArgument, "k", lambda i: i.beam(0, 0.9)),
    (gannet.InvalidArgument, "recall", lambda i: i.beam(10, 3.0)),
    (gannet.Unsupported, ".", lambda _: gannet.build(GOOD, graph="none").beam()),
    ((gannet.NoDevice, gannet.Unsupported), ".", lambda i: i.place("cuda:77")),
    (gannet.DeviceError, ".", lambda i: i.place("there")),
    (gannet.InvalidArgument, "k is 0", lambda _: gannet.knn_graph(GOOD, 0)),
    (gannet.InvalidArgument, "k is 1000", lambda _: gannet.knn_graph(GOOD, 1000)),
    (gannet.InvalidArgument, "method", lambda _: gannet.knn_graph(GOOD, 2, method="magic")),
    (gannet.Unsupported, "GGNN", lambda _: gannet.knn_graph(GOOD, 2, metric="ip", method="ggnn")),
    (TypeError, ".", lambda _: gannet.knn_graph(GOOD, "2")),
    (gannet.Error, "dim", lambda _: gannet.estimate(10, 0)),
    (gannet.Error, "rows", lambda _: gannet.estimate(2**40, 8)),
    (gannet.InvalidArgument, "rows is -1", lambda _: gannet.estimate(-1, 8)),
    (gannet.DtypeError, "float64", lambda _: gannet.estimate(10, 8, dtype=np.float64)),
]


@pytest.mark.parametrize("error, text, use", CALLS, ids=lambda part: getattr(part, "__name__", None))
def test_calls(index, error, text, use):
    with pytest.raises(error, match=text):
        use(index)
    assert index.search(GOOD[3], 1).ids.tolist() == [3]  # and nothing has happened to it


def test_every_class_is_raised_somewhere_or_needs_a_fault_to_be():
    """The tests name every class of errors.py but those that only a fault of the machine brings about."""
    rare = {"Busy", "Cancelled", "DeviceLost", "DeviceOutOfMemory", "InternalError"}
    named = "".join(path.read_text() for path in pathlib.Path(__file__).parent.glob("test_*.py"))
    classes = {name for name, value in vars(gannet.errors).items()
               if inspect.isclass(value) and issubclass(value, gannet.Error)} - {"Error", "StateError"}
    assert {name for name in classes if f"gannet.{name}" not in named} == rare
    exported = ast.parse(pathlib.Path(gannet.__file__).read_text())
    assert classes <= {alias.name for node in exported.body if isinstance(node, ast.ImportFrom)
                       for alias in node.names}


def test_private_functions_do_not_crash_either(index):
    core = index._core
    for use in (lambda: core.search(), lambda: core.search(*range(9)), lambda: core.build(*[None] * 7),
                lambda: core.build(GOOD, None, None, None, None, None, None), lambda: core.get(GOOD, None, GOOD),
                lambda: core.ids(0, GOOD), lambda: core.ids(5, np.zeros(10, np.int64)), lambda: core.graph(GOOD),
                lambda: core.ids(-1, np.zeros(10, np.int64)), lambda: core.graph(np.zeros((2, 2), np.int32)),
                lambda: core.save(None, None, None, None, None), lambda: core.save("text", None, None, None, None),
                lambda: core.beam("a", "b"), lambda: core.place("a"), lambda: gannet._core.Handle(),
                lambda: gannet._core.Handle(0, 0, 0), lambda: gannet._core.Handle(4, 99, 0),
                lambda: gannet._core.Handle(4, 0, 99), lambda: gannet._core.open(None, None, None, None, None),
                lambda: gannet._core.open(b"a\0b", None, None, None, None), lambda: gannet._core.file_info("x"),
                lambda: gannet._core.from_address(0, (1,), None, "f", 4, 0, False),
                lambda: gannet._core.from_address(0, ("a",), None, "f", 4, 0, False, None),
                lambda: gannet._core.register_errors(5), lambda: gannet._core.device_info(-5)):
        with pytest.raises((TypeError, ValueError, OSError, gannet.Error)):
            use()
    fresh = gannet._core.Handle(4, 0, 0)
    with pytest.raises(gannet.StateError):
        fresh.search(False, GOOD, 1, None, None, None, None, None, True)
