"""Arrays of other libraries on the host, by DLPack."""

import ctypes
import gc
import sys
import types
import weakref

import numpy as np
import pytest
from conftest import floats

import gannet
from gannet import _arrays, _core


class Lent:
    """Nothing but DLPack, as of a library that nobody here knows."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class Managed(ctypes.Structure):
    pass


DELETER = ctypes.CFUNCTYPE(None, ctypes.POINTER(Managed))
Managed._fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", DELETER)]


class Made:
    """DLPack with whatever is put into it: types and devices that NumPy does not have. What is lent stays until
    its deleter has been called."""

    lent = []

    def __init__(self, array, code=2, bits=32, lanes=1, device=1, ndim=None, packed=False, offset=0):
        self.array, self.deleted = array, 0
        self.shape = (ctypes.c_int64 * 3)(*array.shape)
        self.strides = (ctypes.c_int64 * 3)(*(s // array.itemsize for s in array.strides))
        self.managed = Managed(
            DLTensor(array.ctypes.data, device, 0, array.ndim if ndim is None else ndim, code, bits, lanes,
                     self.shape, None if packed else self.strides, offset), None, DELETER(self.delete))

    def delete(self, _):
        self.deleted += 1
        if self in Made.lent:
            Made.lent.remove(self)

    def __dlpack_device__(self):
        return self.managed.tensor.device_type, 0

    def __dlpack__(self, **_):
        Made.lent.append(self)
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.managed), b"dltensor", None)


def test_rows_and_queries(index, rows, queries):
    built = gannet.build(Lent(rows))
    for given in (Lent(queries), Lent(queries[::2]), Lent(queries[5]), Made(queries), Made(queries, packed=True),
                  Made(queries, device=3)):
        plain = given.array
        found = built.search(given, 5)
        assert isinstance(found.ids, np.ndarray)
        np.testing.assert_array_equal(found.ids, index.search(plain, 5).ids)
        np.testing.assert_array_equal(index.exact(given, 5).ids, index.exact(plain, 5).ids)
    moved = Made(queries, offset=queries.strides[0])
    moved.shape[0] -= 1
    np.testing.assert_array_equal(index.search(moved, 5).ids, index.search(queries[1:], 5).ids)


def test_bfloat16_by_dlpack(rows, queries):
    def bits(values):
        return (values.view(np.uint32) >> 16).astype(np.uint16)

    index = gannet.build(Made(bits(rows), code=4, bits=16))
    assert index.info.dtype == "bfloat16"
    cut = (bits(queries).astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_array_equal(index.search(Made(bits(queries), code=4, bits=16)).ids, index.search(cut).ids)


def test_memory_is_given_back(index, queries):
    given = Made(queries)
    index.search(given, 5)
    assert given.deleted == 1
    with pytest.raises(gannet.ShapeError):
        index.search(Made(queries[:, :3]), 5)
    view = _core.from_dlpack(Made(queries).__dlpack__())
    assert view.shape == (200, 16) and view.space == 0
    capsule = given.__dlpack__()
    _core.from_dlpack(capsule)
    with pytest.raises(TypeError, match="capsule"):  # each is taken once
        _core.from_dlpack(capsule)
    with pytest.raises(TypeError, match="capsule"):
        _core.from_dlpack(queries)


def test_borrowed_from_dlpack(rows, queries, index):
    mine = rows.copy()
    lent = Lent(mine)
    watch = weakref.ref(mine)
    built = gannet.build(lent, copy=False)
    del mine, lent
    gc.collect()
    np.testing.assert_array_equal(built.search(queries).ids, index.search(queries).ids)
    assert watch() is not None
    del built
    gc.collect()
    assert watch() is None


@pytest.mark.parametrize("error, given", [
    (gannet.DtypeError, dict(code=2, bits=64)), (gannet.DtypeError, dict(code=0, bits=32)),
    (gannet.DtypeError, dict(code=6, bits=8)), (gannet.DtypeError, dict(lanes=4)),
    (gannet.DtypeError, dict(code=5, bits=64)), (gannet.DtypeError, dict(bits=4)),
    (gannet.DeviceError, dict(device=10)), (gannet.DeviceError, dict(device=4)),
    (gannet.ShapeError, dict(ndim=0)), (gannet.ShapeError, dict(ndim=3))])
def test_refused(index, queries, error, given):
    with pytest.raises(error):
        index.search(Made(queries, **given))


def test_lenders_that_refuse(index):
    class Refuses:
        def __dlpack_device__(self):
            return 1, 0

        def __dlpack__(self):
            raise BufferError("requires grad")

    with pytest.raises(gannet.InvalidArgument, match="Refuses does not lend its memory: requires grad"):
        index.search(Refuses())

    class NoCapsule(Refuses):
        def __dlpack__(self):
            return 5

    with pytest.raises(TypeError, match="capsule"):
        index.search(NoCapsule())


def test_cuda_interface_is_read(index):
    """Without a device such memory is refused, and not read."""

    class Claims:
        def __init__(self, **said):
            self.__cuda_array_interface__ = {"shape": (3, 16), "typestr": "<f4", "data": (4096, False),
                                             "version": 3, **said}

    for said, error in ((dict(typestr="<f8"), gannet.DtypeError), (dict(typestr=">f4"), gannet.DtypeError),
                        (dict(shape=(3, 5)), gannet.ShapeError), (dict(shape=(3, 5, 1)), gannet.ShapeError),
                        (dict(strides=(64, 8)), gannet.OrderError), (dict(mask=1), gannet.DtypeError)):
        out = Claims(typestr="<i8", shape=(3, 10)), Claims(shape=(3, 10))
        with pytest.raises(error):
            index.search(Claims(**said), out=out)
    if gannet.why_no_cuda():
        out = Claims(typestr="<i8", shape=(3, 10)), Claims(shape=(3, 10))
        with pytest.raises((gannet.NoDevice, gannet.Unsupported, gannet.InvalidArgument)):
            index.search(Claims(), out=out)
        with pytest.raises((gannet.NoDevice, gannet.Unsupported, gannet.InvalidArgument)):
            gannet.build(Claims())
        with pytest.raises((gannet.NoDevice, gannet.Unsupported, gannet.InvalidArgument)):
            gannet.knn_graph(Claims(), 2)


def test_jax_on_the_host(index, queries):
    jax = pytest.importorskip("jax")
    host = jax.devices("cpu")[0]  # whatever else there is, where arrays go by default
    given = jax.device_put(queries, host)
    np.testing.assert_array_equal(index.search(given).ids, index.search(queries).ids)
    half = jax.device_put(queries, host).astype(jax.numpy.bfloat16)
    np.testing.assert_array_equal(index.search(half).ids, index.search(np.asarray(half, np.float32)).ids)


def test_torch_on_the_host(index, rows, queries):
    torch = pytest.importorskip("torch")
    given = torch.from_numpy(queries)
    found = index.search(given, 5)
    assert isinstance(found.ids, torch.Tensor) and found.ids.dtype == torch.int64
    np.testing.assert_array_equal(found.ids.numpy(), index.search(queries, 5).ids)
    gannet.build(torch.from_numpy(rows).to(torch.bfloat16))
    with pytest.raises(gannet.InvalidArgument, match="grad"):
        index.search(given.clone().requires_grad_())


class MadeUpArray:
    """What is asked of an array of CuPy, on a device that is not there."""

    def __init__(self, shape, dtype=np.float32, device=0):
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.strides = np.empty(shape, dtype).strides
        self.data = types.SimpleNamespace(ptr=1 << 40, device_id=device)


MadeUpArray.__module__ = "cupy"


@pytest.fixture
def made_up(monkeypatch):
    """CuPy as a library that notes the bytes that are taken of it."""
    taken = []

    def take(count):
        taken.append(count)
        return types.SimpleNamespace(ptr=1 << 41)

    cuda = types.SimpleNamespace(alloc=take, get_current_stream=lambda: types.SimpleNamespace(ptr=0),
                                 runtime=types.SimpleNamespace(getDevice=lambda: 0))
    monkeypatch.setattr(_arrays, "known", set())
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(cuda=cuda, ndarray=MadeUpArray))
    yield taken
    monkeypatch.undo()
    _arrays.known.clear()  # C has the class of above, until it meets another one


def test_results_of_cupy_are_one_piece_of_memory(index, made_up):
    dim = index.dim
    for shape in ((3, dim), (dim,)):
        with pytest.raises((gannet.NoDevice, gannet.InvalidArgument)):
            index.search(MadeUpArray(shape), 10)
        with pytest.raises((gannet.NoDevice, gannet.InvalidArgument)):
            index.exact(MadeUpArray(shape), 10)
    assert made_up == [12 * 30, 12 * 30, 12 * 10, 12 * 10]


def test_cupy_is_read_and_refused_in_c(index, made_up):
    dim = index.dim
    for wrong, error in ((MadeUpArray((3, dim + 1)), gannet.ShapeError), (MadeUpArray((3, dim), np.int32), gannet.DtypeError),
                         (MadeUpArray((3, dim), np.float64), gannet.DtypeError)):
        with pytest.raises(error):
            index.search(wrong, 10)
    apart = MadeUpArray((3, dim))
    apart.strides = (8 * dim, 8)
    with pytest.raises(gannet.OrderError):
        index.search(apart, 10)
    with pytest.raises(gannet.InvalidArgument, match="k is 0"):
        index.search(MadeUpArray((3, dim)), 0)
    with pytest.raises(TypeError):
        index.search(MadeUpArray((3, dim)), "ten")
    index_closed = gannet.build(np.eye(4, dtype=np.float32))
    index_closed.close()
    with pytest.raises(gannet.ClosedError):
        index_closed.search(MadeUpArray((1, 4)), 1)
    broken = MadeUpArray((3, dim))
    del broken.data
    with pytest.raises(AttributeError):
        index.search(broken, 10)
    assert made_up == []


def test_results_of_cupy_that_are_given(index, made_up):
    queries = MadeUpArray((3, index.dim))
    with pytest.raises((gannet.NoDevice, gannet.InvalidArgument)):
        index.search(queries, 10, out=(MadeUpArray((3, 10), np.int64), MadeUpArray((3, 10))))
    for wrong, error in (((MadeUpArray((3, 10), np.int32), MadeUpArray((3, 10))), gannet.DtypeError),
                         ((MadeUpArray((3, 10), np.int64), MadeUpArray((3, 9))), gannet.ShapeError)):
        with pytest.raises(error):
            index.search(queries, 10, out=wrong)
    assert made_up == []


class MadeUpTensor:
    """What is asked of a tensor of Torch."""

    is_cuda, requires_grad, layout, dtype = True, False, "strided", "float32"
    device = types.SimpleNamespace(index=0)

    def __init__(self, shape, stride=None):
        self.shape = shape
        self.stride = stride or (lambda: (shape[-1], 1)[-len(shape):])

    def data_ptr(self):
        return 1 << 42


@pytest.fixture
def made_up_tensors(made_up):
    _core.know_torch(MadeUpTensor, lambda number: 7, {"float32": ("f", 4)}, "strided", {}, {})


def test_results_in_the_memory_of_another_library_are_waited_for(index, made_up_tensors):
    """By DLPack, whose lender lets the stream of the search wait for what it has queued on its own."""
    queries, ids = MadeUpArray((3, index.dim)), MadeUpArray((3, 10), np.int64)
    assert _arrays.know(queries)
    distances = MadeUpTensor((3, 10))
    assert index._core.search_lent(False, queries, 10, None, ids, distances, None) is None
    assert index._core.search_lent(False, distances, 10, None, ids, ids, None) is None


def test_what_an_array_raises_is_raised(index, made_up_tensors):
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        index._core.search_lent(False, MadeUpTensor((3, index.dim), interrupted), 10, None, None, None, None)
    broken = MadeUpTensor((3, index.dim))
    del broken.shape
    with pytest.raises(AttributeError):
        index._core.search_lent(False, broken, 10, None, None, None, None)
    odd = MadeUpArray((3, index.dim))
    odd.dtype = types.SimpleNamespace(kind="", itemsize=4)
    assert _arrays.know(odd)
    with pytest.raises(IndexError):
        index._core.search_lent(False, odd, 10, None, None, None, None)


def test_unusual_arrays_of_cupy_go_another_way(index, made_up):
    """Those of another device than the current one, of no numbers, or of three dimensions."""
    for array in (MadeUpArray((3, index.dim), device=1), MadeUpArray((3, index.dim), bool), MadeUpArray((1, 3, index.dim))):
        assert _arrays.know(array)
        assert index._core.search_lent(False, array, 10, None, None, None, None) is None
    assert made_up == []
    assert index._core.search_lent(False, [[1.0]], 10, None, None, None, None) is None
