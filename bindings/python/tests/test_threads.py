"""Threads, forks and other processes."""

import concurrent.futures
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest
from conftest import floats

import gannet


def test_sixteen_threads_search_while_another_builds(index, queries):
    expected = index.search(queries, 5)
    more = floats(8, 20_000, 32)
    done, searches = threading.Event(), []

    def search(number):
        count = 0
        while not done.is_set() or count == 0:
            found = index.search(queries[number] if number % 2 else queries, 5)
            wanted = expected.ids[number] if number % 2 else expected.ids
            np.testing.assert_array_equal(found.ids, wanted)
            count += 1
        searches.append(count)

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        running = [pool.submit(search, number) for number in range(16)]
        try:
            built = gannet.build(more, threads=1)
        finally:
            done.set()
        for future in running:
            future.result()
    assert len(built) == 20_000 and len(searches) == 16


def test_the_lock_is_let_go(long_index, long_rows):
    """A thread of Python runs on while another is inside a search."""
    seen = []

    def count():
        seen.append(0)
        while not stop.is_set():
            seen[0] += 1

    stop = threading.Event()
    other = threading.Thread(target=count)
    other.start()
    before = None
    with pytest.raises(gannet.DeadlineExceeded):
        before = seen[0]
        long_index.exact(long_rows, threads=1, timeout=0.3)
    assert seen[0] > before
    stop.set()
    other.join()


def test_errors_are_those_of_the_caller(index):
    def wrong(columns):
        with pytest.raises(gannet.ShapeError, match=f"{columns} columns, the index 16"):
            index.search(np.zeros((3, columns), np.float32))

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(wrong, range(17, 117)))


def test_closed_while_others_search(rows, queries):
    for _ in range(5):
        index = gannet.build(rows[:500])
        started = threading.Barrier(5)

        def search():
            started.wait()
            try:
                while True:
                    assert index.search(queries, 3).ids.shape == (200, 3)
            except gannet.ClosedError:
                return "closed"

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            running = [pool.submit(search) for _ in range(4)]
            started.wait()
            index.close()
            assert [future.result() for future in running] == ["closed"] * 4


def test_a_fork_searches(index, queries):
    expected = index.search(queries, 5)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            same = (index.search(queries, 5).ids == expected.ids).all()
            built = gannet.build(queries)  # and builds
            same = same and built.exact(queries[0], 1).ids[0] == 0
            os.write(writing, b"same" if same else b"other")
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    assert os.read(reading, 100) == b"same"
    assert os.waitpid(child, 0)[1] == 0
    os.close(reading)


def ask(pair):
    index, queries = pair
    return index.search(queries, 3).ids


@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_processes(way, index, queries):
    with multiprocessing.get_context(way).Pool(2) as pool:
        for found in pool.map(ask, [(index, queries)] * 2):
            np.testing.assert_array_equal(found, index.search(queries, 3).ids)


def test_errors_cross_processes():
    error = gannet.NotFinite("text", 103, 5, 6)
    other = pickle.loads(pickle.dumps(error))
    assert type(other) is gannet.NotFinite and (other.row, other.column, other.status) == (5, 6, 103)
    assert str(other) == "text"
    for made in set(gannet.errors.BY_KEY.values()):
        assert str(pickle.loads(pickle.dumps(made("text")))) == "text"


def test_a_process_that_ends_with_threads_in_calls():
    program = """
import threading, numpy as np, gannet
rows = np.random.default_rng(1).normal(size=(60000, 32)).astype(np.float32)
index = gannet.build(rows, graph="none")
for _ in range(3):
    threading.Thread(target=lambda: index.exact(rows, timeout=1), daemon=True).start()
"""
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_no_thread_is_left(index, queries):
    def threads():
        with open("/proc/self/status") as status:
            return next(line for line in status if line.startswith("Threads:"))

    if not os.path.exists("/proc/self/status"):
        pytest.skip("counts threads in /proc")
    index.search(queries)
    before = threads()
    for _ in range(10):
        gannet.build(queries, progress=lambda _: None)
        index.exact(np.tile(queries, (20, 1)))
    assert threads() == before
