"""Arrays of CuPy and Torch in a device's memory, streams, and builds there. Skips itself without a device; each test
without its library."""

import numpy as np
import pytest
from conftest import floats

import gannet

if gannet.why_no_cuda():
    pytest.skip(f"no device: {gannet.why_no_cuda()}", allow_module_level=True)

DEVICE = "cuda:0"


@pytest.fixture(scope="module")
def many():
    return floats(1, 50_000, 32)


@pytest.fixture(scope="module")
def asked():
    return floats(2, 3000, 32)


@pytest.fixture(scope="module")
def placed(many):
    index = gannet.build(many, device=DEVICE)
    index.place(DEVICE)
    return index


class Cupy:
    """What the tests do with one library; Torch has the same."""

    def __init__(self):
        self.library = pytest.importorskip("cupy")

    def send(self, array):
        return self.library.asarray(array)

    def back(self, array):
        return self.library.asnumpy(array)

    def is_mine(self, array):
        return isinstance(array, self.library.ndarray)

    def empty(self, shape, dtype):
        return self.library.empty(shape, dtype)

    def stream(self):
        return self.library.cuda.Stream(non_blocking=True)

    def on(self, stream):
        return stream

    def free_bytes(self):
        return self.library.cuda.runtime.memGetInfo()[0]


class Torch:
    def __init__(self):
        self.library = pytest.importorskip("torch")
        if not self.library.cuda.is_available():
            pytest.skip("Torch sees no device")

    def send(self, array):
        return self.library.from_numpy(np.ascontiguousarray(array)).to(DEVICE)

    def back(self, array):
        return array.cpu().numpy()

    def is_mine(self, array):
        return isinstance(array, self.library.Tensor) and array.is_cuda

    def empty(self, shape, dtype):
        return self.library.empty(shape, dtype=getattr(self.library, np.dtype(dtype).name), device=DEVICE)

    def stream(self):
        return self.library.cuda.Stream()

    def on(self, stream):
        return self.library.cuda.stream(stream)

    def free_bytes(self):
        return self.library.cuda.mem_get_info()[0]


@pytest.fixture(params=[Cupy, Torch], ids=["cupy", "torch"])
def arrays(request):
    return request.param()


def test_exact_has_the_bits_of_the_cpu(arrays, placed, asked):
    found, plain = placed.exact(arrays.send(asked), 10), placed.exact(asked, 10)
    assert arrays.is_mine(found.ids) and arrays.is_mine(found.distances)
    np.testing.assert_array_equal(arrays.back(found.ids), plain.ids)
    np.testing.assert_array_equal(arrays.back(found.distances), plain.distances)


def test_search_finds_what_was_asked_for(arrays, placed, asked):
    truth = placed.exact(asked, 10).ids
    found = placed.search(arrays.send(asked), 10, recall=0.95)
    ids = arrays.back(found.ids)
    assert ids.dtype == np.int64 and ids.shape == (3000, 10)
    assert np.mean([len(set(a) & set(b)) for a, b in zip(ids, truth)]) > 9.4
    host = placed.search(asked, 10, recall=0.95, device=DEVICE)
    assert (host.ids == ids).mean() > 0.99  # pieces of another size may be walked for in another way


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.uint8, np.int8])
def test_elements(arrays, dtype, many, asked):
    rows, queries = ((values * 8 + (100 if dtype == np.uint8 else 0)).clip(
        0 if dtype == np.uint8 else -127, 255 if dtype == np.uint8 else 127).astype(dtype) for values in (many, asked))
    index = gannet.build(arrays.send(rows))
    assert index.dtype == dtype and len(index) == 50_000
    np.testing.assert_array_equal(index[[5, 7]], rows[[5, 7]])
    np.testing.assert_array_equal(arrays.back(index.exact(arrays.send(queries), 5).distances),
                                  index.exact(queries, 5).distances)


def test_bfloat16_of_torch(many, asked):
    torch = pytest.importorskip("torch")
    rows = torch.from_numpy(many).to(DEVICE).to(torch.bfloat16)
    index = gannet.build(rows)
    assert index.info.dtype == "bfloat16"
    queries = torch.from_numpy(asked).to(DEVICE).to(torch.bfloat16)
    np.testing.assert_array_equal(index.exact(queries, 5).distances.cpu(),
                                  index.exact(queries.float().cpu(), 5).distances)


def test_rows_and_queries_may_lie_apart(arrays, placed, asked):
    wide = np.zeros((len(asked), 64), np.float32)
    wide[:, 16:48] = asked
    sent = arrays.send(wide)
    np.testing.assert_array_equal(arrays.back(placed.exact(sent[:, 16:48], 5).ids), placed.exact(asked, 5).ids)
    np.testing.assert_array_equal(arrays.back(placed.exact(sent[::2, 16:48], 5).ids), placed.exact(asked[::2], 5).ids)
    with pytest.raises(gannet.OrderError):
        placed.search(sent[:, ::2], 5)
    with pytest.raises(gannet.DtypeError, match="float64"):
        placed.search(arrays.send(asked.astype(np.float64)), 5)
    with pytest.raises(gannet.ShapeError):
        placed.search(sent, 5)


def test_one_query(arrays, placed, asked):
    found = placed.search(arrays.send(asked)[3], 5)
    assert found.ids.shape == found.distances.shape == (5,)
    np.testing.assert_array_equal(arrays.back(placed.exact(arrays.send(asked)[3], 5).ids), placed.exact(asked[3], 5).ids)


def test_current_and_named_streams(arrays, placed, asked):
    """Queries are written on a stream just before the search on it, and results are read on it just after."""
    expected = placed.exact(asked, 5).ids
    stream = arrays.stream()
    with arrays.on(stream):
        for _ in range(20):
            queries = arrays.send(np.zeros_like(asked))
            queries += arrays.send(asked)
            found = placed.exact(queries, 5)
            ids = found.ids + 0
            np.testing.assert_array_equal(arrays.back(ids), expected)
    queries = arrays.send(asked)
    ids, distances = arrays.empty((3000, 5), np.int64), arrays.empty((3000, 5), np.float32)
    other = arrays.stream()
    found = placed.exact(queries, 5, stream=other, out=(ids, distances))
    assert found.ids is ids
    other.synchronize()
    np.testing.assert_array_equal(arrays.back(ids), expected)


def test_results_go_where_they_are_wanted(arrays, placed, asked):
    queries = arrays.send(asked)
    ids, distances = arrays.empty((3000, 5), np.int64), arrays.empty((3000, 5), np.float32)
    found = placed.exact(queries, 5, out=(ids, distances))
    assert found.ids is ids and found.distances is distances
    np.testing.assert_array_equal(arrays.back(ids), placed.exact(asked, 5).ids)
    for wrong in (distances, arrays.empty((3000, 4), np.int64), arrays.empty((3000, 10), np.int64)[:, ::2]):
        with pytest.raises((gannet.DtypeError, gannet.ShapeError, gannet.OrderError)):
            placed.search(queries, 5, out=(wrong, distances))


def test_out_of_another_library(placed, asked):
    cupy, torch = pytest.importorskip("cupy"), pytest.importorskip("torch")
    ids = torch.empty((3000, 5), dtype=torch.int64, device=DEVICE)
    distances = torch.empty((3000, 5), device=DEVICE)
    torch.cuda.synchronize()
    placed.exact(cupy.asarray(asked), 5, out=(ids, distances))
    cupy.cuda.get_current_stream().synchronize()
    np.testing.assert_array_equal(ids.cpu(), placed.exact(asked, 5).ids)
    with pytest.raises(gannet.DeviceError):
        placed.search(cupy.asarray(asked), 5, out=(np.empty((3000, 5), np.int64), np.empty((3000, 5), np.float32)))
    with pytest.raises(gannet.DeviceError):
        placed.search(asked, 5, out=(ids, distances))


def test_any_library(arrays, placed, asked):
    """What only lends its memory gets results of CuPy or Torch."""

    class Lent:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    class Claims:
        def __init__(self, array):
            self.array, self.__cuda_array_interface__ = array, array.__cuda_array_interface__

    sent = arrays.send(asked)
    for given in (Lent(sent), Claims(sent)):
        found = placed.exact(given, 5)
        np.testing.assert_array_equal(np.asarray(found.ids.get() if hasattr(found.ids, "get") else found.ids.cpu()),
                                      placed.exact(asked, 5).ids)


def test_jax(placed, asked):
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("JAX sees no device")
    found = placed.exact(jax.numpy.asarray(asked), 5)
    np.testing.assert_array_equal(np.asarray(found.ids.get() if hasattr(found.ids, "get") else found.ids.cpu()),
                                  placed.exact(asked, 5).ids)


def test_queries_with_nan_have_no_neighbours(arrays, placed, asked):
    bad = asked[:10].copy()
    bad[4, 1] = np.nan
    found = placed.search(arrays.send(bad), 5)
    ids, distances = arrays.back(found.ids), arrays.back(found.distances)
    assert (ids[4] == -1).all() and np.isinf(distances[4]).all() and (ids[5] >= 0).all()


def test_builds_from_device_memory(arrays, many, asked):
    sent = arrays.send(many)
    index = gannet.build(sent, metric="cos", ids=np.arange(len(many)) + 5, progress=lambda now: None)
    truth = index.exact(asked, 10).ids
    assert np.mean([len(set(a) & set(b)) for a, b in zip(index.search(asked, 10).ids, truth)]) > 9.3
    assert truth.min() >= 5
    written = arrays.send(np.zeros_like(many))
    written += sent  # still being written when the build begins
    np.testing.assert_array_equal(gannet.build(written, graph="none")[[9, 49_999]], many[[9, 49_999]])
    graph = gannet.knn_graph(sent[:5000], 8)
    plain = gannet.knn_graph(many[:5000], 8, method="exact")
    assert np.mean([len(set(a) & set(b)) for a, b in zip(graph.neighbors, plain.neighbors)]) > 7.5


def test_nothing_goes_through_the_host(arrays, placed):
    """Queries that the host never had, of which a million would be 128 MB, with results as large, leave the
    process's peak where it was."""
    sent = arrays.send(np.zeros((1, 32), np.float32))
    queries = sent + arrays.send(np.random.default_rng(1).normal(size=(1 << 20, 1)).astype(np.float32))
    placed.search(queries[:1000], 10)

    def status(name):
        with open("/proc/self/status") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith(name))

    try:
        with open("/proc/self/clear_refs", "w") as clear:
            clear.write("5")
    except OSError:
        pytest.skip("the peak cannot be reset here")
    before = status("VmRSS")
    found = placed.search(queries, 10)
    assert arrays.back(found.ids[:3]).shape == (3, 10)
    assert status("VmHWM") - before < 32 << 10  # KiB


def test_placed_and_evicted(arrays, many, asked):
    index = gannet.build(many)
    index.place(DEVICE)
    free = arrays.free_bytes()
    index.evict(DEVICE)
    assert arrays.free_bytes() >= free
    assert arrays.back(index.search(arrays.send(asked), 5).ids).shape == (3000, 5)
    assert index.search(asked, 5, device=DEVICE).ids.shape == (3000, 5)
    with pytest.raises((gannet.NoDevice, gannet.DeviceError)):
        index.place("cuda:63")


def test_devices():
    devices = gannet.devices()
    assert devices[1].device == DEVICE and devices[1].capability >= 70 and devices[1].memory_total > 1 << 30
