"""Long calls: Ctrl-C, progress, what callbacks raise, and timeouts. Nothing here measures time: a call that is
not stopped takes longer than the whole suite may."""

import io
import os
import signal
import sys
import threading

import numpy as np
import pytest
from conftest import floats

import gannet


def interrupt_soon(delay=0.2):
    """Ctrl-C, as the terminal sends it."""
    timer = threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    return timer


# With few threads, so that they last on every machine.
LONG = {
    "build": lambda index, rows, **more: gannet.build(rows, knn="exact", threads=1, **more),
    "knn_graph": lambda index, rows, **more: gannet.knn_graph(rows, 8, method="exact", threads=1, **more),
    "exact": lambda index, rows, **more: index.exact(rows, 10, threads=1, **more),
    "exact by threads": lambda index, rows, **more: index.exact(rows, 10, threads=2, **more),
    "search": lambda index, rows, **more: index.search(rows, 10, threads=1, **more),
}


@pytest.mark.parametrize("call", LONG.values(), ids=LONG)
def test_ctrl_c_stops(call, long_index, long_rows):
    timer = interrupt_soon()
    with pytest.raises(KeyboardInterrupt):
        call(long_index, long_rows)
    timer.join()
    assert long_index.search(long_rows[0], 1).ids.tolist() == [0]


def test_a_handler_of_the_caller_runs(long_index, long_rows):
    class Mine(Exception):
        pass

    def handle(number, frame):
        raise Mine

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1))
        timer.start()
        with pytest.raises(Mine):
            long_index.exact(long_rows, threads=1)
        timer.join()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_handler_that_returns_does_not_stop(rows):
    seen = []
    before = signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
    try:
        index = gannet.build(rows, progress=lambda _: os.kill(os.getpid(), signal.SIGUSR1))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen and len(index) == 3000


@pytest.mark.parametrize("call", LONG.values(), ids=LONG)
def test_timeout(call, long_index, long_rows):
    with pytest.raises(gannet.DeadlineExceeded) as caught:
        call(long_index, long_rows, timeout=0.05)
    with pytest.raises(gannet.DeadlineExceeded):
        call(long_index, long_rows, timeout=0)
    assert isinstance(caught.value, TimeoutError) and caught.value.status == 601


def test_timeout_that_suffices(index, rows, queries):
    np.testing.assert_array_equal(index.search(queries, timeout=1e9).ids, index.search(queries).ids)
    assert len(gannet.build(rows, timeout=1e30)) == 3000


def test_progress_is_reported(tmp_path):
    rows, seen = floats(9, 20_000, 32), []
    index = gannet.build(rows, progress=seen.append)
    assert all(isinstance(now, gannet.Progress) for now in seen)
    fractions = [now.fraction for now in seen]
    assert fractions == sorted(fractions) and fractions[-1] == 1 and seen[-1].phase and seen[-1].step >= 1
    assert threading.get_ident() == main_thread(index)
    for call in (lambda report: index.save(tmp_path / "a", progress=report),
                 lambda report: gannet.open(tmp_path / "a", progress=report),
                 lambda report: gannet.verify(tmp_path / "a", progress=report),
                 lambda report: gannet.knn_graph(rows, 4, progress=report)):
        seen.clear()
        call(seen.append)
        assert seen and seen[-1].fraction == 1


def main_thread(index):
    """The thread that the callback runs on."""
    threads = []
    gannet.build(floats(1, 300), progress=lambda _: threads.append(threading.get_ident()))
    assert len(set(threads)) == 1
    return threads[0]


def test_what_progress_raises_stops_the_call(long_rows):
    class Mine(Exception):
        pass

    calls = []

    def stop(now):
        calls.append(now)
        raise Mine("enough")

    for call in (lambda: gannet.build(long_rows, knn="exact", threads=1, progress=stop),
                 lambda: gannet.knn_graph(long_rows, 8, method="exact", threads=1, progress=stop)):
        calls.clear()
        with pytest.raises(Mine, match="enough"):
            call()
        assert len(calls) == 1


def test_ctrl_c_in_calls_on_files(tmp_path, index, queries):
    """It comes while progress is reported, since these calls are too short to be met by a timer."""
    index.save(tmp_path / "a")

    def interrupt(now):
        os.kill(os.getpid(), signal.SIGINT)

    for call in (lambda: index.save(tmp_path / "b", progress=interrupt),
                 lambda: gannet.open(tmp_path / "a", progress=interrupt),
                 lambda: gannet.verify(tmp_path / "a", progress=interrupt)):
        with pytest.raises(KeyboardInterrupt):
            call()
    assert os.path.exists(tmp_path / "a") and set(os.listdir(tmp_path)) <= {"a", "b"}
    if os.path.exists(tmp_path / "b"):  # the signal came when it was done
        gannet.verify(tmp_path / "b")
    np.testing.assert_array_equal(gannet.open(tmp_path / "a").search(queries).ids, index.search(queries).ids)


def test_progress_may_use_gannet(rows, queries, index):
    found = []
    gannet.build(rows, progress=lambda _: found.append(index.search(queries[0], 1).ids[0]))
    assert found


class Screen(io.StringIO):
    def isatty(self):
        return True


def test_a_line_in_a_terminal_and_elsewhere(rows, monkeypatch):
    monkeypatch.setattr(sys, "stderr", screen := Screen())
    gannet.build(rows, progress=True)
    assert screen.getvalue().startswith("\r[") and screen.getvalue().endswith("\n")
    assert screen.getvalue().count("\n") == 1 and "100%" in screen.getvalue() and "done in" in screen.getvalue()
    monkeypatch.setattr(sys, "stderr", log := io.StringIO())
    gannet.build(rows, progress=True)
    assert "\r" not in log.getvalue() and log.getvalue().count("\n") >= 2
    monkeypatch.setattr(sys, "stderr", notebook := type("OutStream", (io.StringIO,), {
        "__module__": "ipykernel.iostream"})())
    gannet.build(rows, progress=True)
    assert notebook.getvalue().startswith("\r[")
    monkeypatch.setattr(sys, "stderr", silent := Screen())
    gannet.build(rows)
    gannet.build(rows, progress=False)
    assert silent.getvalue() == ""


def test_the_line_of_a_stopped_call(long_rows, monkeypatch):
    monkeypatch.setattr(sys, "stderr", screen := Screen())
    with pytest.raises(gannet.DeadlineExceeded):
        gannet.build(long_rows, knn="exact", threads=1, progress=True, timeout=0.3)
    assert "stopped" in screen.getvalue() or screen.getvalue() == ""
