"""Saving and opening."""

import errno
import gzip
import io
import os
import pathlib

import numpy as np
import pytest

import gannet


@pytest.fixture
def path(tmp_path, index):
    index.save(tmp_path / "points.gannet")
    return tmp_path / "points.gannet"


def same(one, other, queries):
    for a, b in zip(one.search(queries), other.search(queries)):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("options", [dict(), dict(mmap=True), dict(mmap=True, trusted=True), dict(threads=1),
                                     dict(dim=16, metric="l2", dtype="f32")])
def test_opened_as_saved(path, index, queries, options):
    for name in (path, str(path)):
        same(gannet.open(name, **options), index, queries)


def test_recall_of_an_opened_index(path, index, queries):
    assert gannet.open(path, recall=0.7).beam(10) == index.beam(10, 0.7)
    with pytest.raises(gannet.InvalidArgument, match="recall"):
        gannet.open(path, recall=7)


def test_bytes_and_files(path, index, queries):
    content = path.read_bytes()
    for source in (content, bytearray(content), memoryview(content), io.BytesIO(content)):
        same(gannet.open(source), index, queries)
    with open(path, "rb") as file:
        same(gannet.open(file), index, queries)


def test_write(path, index, tmp_path, queries):
    memory = io.BytesIO()
    index.save(memory)
    assert memory.getvalue() == path.read_bytes()
    with open(tmp_path / "raw", "wb", buffering=0) as file:
        index.save(file)
    assert (tmp_path / "raw").read_bytes() == path.read_bytes()
    with gzip.open(tmp_path / "packed", "wb") as file:
        index.save(file)
    with gzip.open(tmp_path / "packed") as file:
        same(gannet.open(file), index, queries)

    class Slow:  # takes a little at a time, and says so
        def __init__(self):
            self.content = b""

        def write(self, data):
            self.content += data[:1000]
            return len(data[:1000])

    slow = Slow()
    index.save(slow)
    assert slow.content == path.read_bytes()


def test_what_write_raises_goes_on(index):
    class Fails:
        def __init__(self, answer):
            self.answer = answer

        def write(self, data):
            if isinstance(self.answer, BaseException):
                raise self.answer
            return self.answer

    for answer in (KeyError("mine"), KeyboardInterrupt(), SystemExit(3), BlockingIOError(11, "full")):
        with pytest.raises(type(answer)) as caught:
            index.save(Fails(answer))
        assert caught.value is answer
    for answer in (0, -1, 10**12):
        with pytest.raises(OSError, match="took"):
            index.save(Fails(answer))
    with pytest.raises(TypeError):
        index.save(Fails("some"))
    with pytest.raises(TypeError, match="path"):
        index.save(5)


def test_write_may_use_the_index(index, queries):
    found = []

    class Searches:
        def write(self, data):
            found.append(index.search(queries[0], 1).ids[0])

    index.save(Searches())
    assert found


def test_refusals(path, tmp_path):
    with pytest.raises(gannet.FileError) as caught:
        gannet.open(tmp_path / "none")
    assert caught.value.errno == errno.ENOENT and isinstance(caught.value, OSError)
    for wrong in (dict(dim=5), dict(metric="cos"), dict(dtype="u8")):
        with pytest.raises(gannet.InvalidArgument):
            gannet.open(path, **wrong)
    with pytest.raises(gannet.InvalidArgument, match="mmap"):
        gannet.open(path, trusted=True)
    with pytest.raises(gannet.Unsupported, match="path"):
        gannet.open(path.read_bytes(), mmap=True)
    for wrong in (5, None, [1]):
        with pytest.raises(TypeError, match="path"):
            gannet.open(wrong)
    with pytest.raises(ValueError):
        gannet.open("a\0b")
    with pytest.raises(gannet.CorruptFile):
        gannet.open(b"")
    with pytest.raises(gannet.CorruptFile):
        gannet.open(b"no index" * 1000)


def test_damage_is_found(path, queries):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(gannet.CorruptFile):
        gannet.open(path)
    with pytest.raises(gannet.CorruptFile):
        gannet.verify(path)
    lazy = gannet.open(path, mmap=True)
    with pytest.raises(gannet.CorruptFile):
        lazy.exact(queries), lazy.search(queries), lazy.graph()


def test_another_format(path):
    """Every change of the header is refused, as damage or as a format of the future."""
    content = path.read_bytes()
    for place in range(64):
        changed = bytearray(content)
        changed[place] ^= 0x7F
        with pytest.raises((gannet.FileVersionError, gannet.CorruptFile)):
            gannet.open(bytes(changed))


def test_verify_and_file_info(path, index):
    gannet.verify(path)
    info = gannet.file_info(path)
    assert (info.rows, info.dim, info.metric, info.dtype, info.graph, info.degree, info.has_ids, info.seed) == (
        3000, 16, "l2", "float32", "cagra", 32, False, 1)
    assert info.file_bytes == path.stat().st_size and info.writer == gannet.__version__
    assert info.format.startswith("1.") and len(info.content_id) == 32
    with pytest.raises(gannet.FileError):
        gannet.file_info(path.parent)


def test_a_full_disk_leaves_the_old_file(path, rows, tmp_path):
    resource = pytest.importorskip("resource")
    import signal
    before = path.read_bytes()
    other = gannet.build(rows, metric="cos")
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, old[1]))
        with pytest.raises(gannet.FileError) as caught:
            other.save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, handler)
    assert caught.value.errno == errno.EFBIG
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["points.gannet"]


def test_golden_files_are_opened():
    folder = pathlib.Path(__file__).parents[3] / "tests/golden/files"
    files = sorted(folder.glob("*.gannet"))
    assert files
    for file in files:
        index = gannet.open(file)
        assert len(index) == gannet.file_info(file).rows == len(index.ids)


def test_names_of_files(tmp_path, index):
    for name in ("größe.gannet", "日本", os.fsdecode(b"\xff\xfe")):
        try:
            index.save(tmp_path / name)
        except OSError:
            continue  # a file system that takes no such names
        assert len(gannet.open(tmp_path / name)) == 3000
