"""What the binding holds, by the memory of a process of its own: no copies, and nothing that is lost."""

import subprocess
import sys

import pytest

PEAK = """
import gc, sys
import numpy as np, gannet

def status(name):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))

def peak_of(work):
    with open("/proc/self/clear_refs", "w") as clear:
        clear.write("5")  # the peak starts anew
    before = status("VmRSS")
    kept = work()
    return status("VmHWM") - before
"""


def run(program):
    made = subprocess.run([sys.executable, "-c", PEAK + program], capture_output=True, text=True)
    if "PermissionError" in made.stderr:
        pytest.skip("the peak cannot be reset here")
    assert made.returncode == 0, made.stderr
    return [int(word) for word in made.stdout.split()]


def test_rows_are_not_copied():
    """Rows of 64 MB: the index alone needs its copy of them, and none if it borrows them."""
    copied, borrowed, strided = run("""
rows = np.random.default_rng(1).integers(0, 255, (64 << 20) // 256 * 2 * 128, np.uint8).reshape(-1, 256)[:, :256]
rows = rows[: (64 << 20) // 256]
wide = np.zeros((len(rows) // 2, 512), np.uint8)
gannet.build(rows[:1000])
print(peak_of(lambda: gannet.build(rows, graph="none")),
      peak_of(lambda: gannet.build(rows, graph="none", copy=False)),
      peak_of(lambda: gannet.build(wide[:, :256], graph="none")))
""")
    size = 64 << 20
    # The library's own share of an index without a graph, codes and sums, is the same in both.
    assert copied - borrowed > 0.9 * size
    assert borrowed < 0.2 * size
    assert strided < 0.75 * size  # half as many rows, out of an array as large


def test_queries_are_not_copied():
    """The library prepares floats of its own; a copy here would be as large again."""
    (peak,) = run("""
index = gannet.build(np.eye(256, dtype=np.float32), graph="none")
queries = np.zeros((64 << 10, 256), np.float32)
queries[:] = 1
out = np.zeros((len(queries), 1), np.int64), np.zeros((len(queries), 1), np.float32)
index.exact(queries[:100], 1)
print(peak_of(lambda: index.exact(queries, 1, out=out, not_finite="pad")))
""")
    assert peak < 1.5 * (64 << 20)


def test_nothing_is_lost():
    """Neither objects of Python nor memory of the library, over calls that succeed and calls that fail."""
    objects, grown = run("""
rows = np.random.default_rng(1).normal(size=(500, 8)).astype(np.float32)
class Fails:
    def write(self, data): raise KeyError
def once():
    index = gannet.build(rows, ids=np.arange(500), progress=lambda _: None, copy=False)
    index.search(rows); index.search(rows[0]); index.search(memoryview(rows)); index.search(rows.tolist())
    index[3]; index.ids; index.info; repr(index); index.graph()
    for wrong in (lambda: index.search(rows[:, :3]), lambda: index.search(rows.astype(float)),
                  lambda: index.search(rows, beam=1), lambda: index.save(Fails()), lambda: index[999],
                  lambda: gannet.build(rows * np.nan), lambda: gannet.open("/none"),
                  lambda: index.search(rows, k="a"), lambda: index.search(rows, out=(rows, rows))):
        try: wrong()
        except Exception: pass
        else: raise SystemExit("no error")
for _ in range(5): once()
gc.collect()
objects, memory = len(gc.get_objects()), status("VmRSS")
for _ in range(60): once()
gc.collect()
print(len(gc.get_objects()) - objects, status("VmRSS") - memory)
""")
    assert objects < 20
    assert grown < 4 << 20


def test_too_little_memory_is_an_error():
    """And not the end of the process; the index that is there goes on."""
    run("""
import resource
index = gannet.build(np.eye(8, dtype=np.float32))
rows = np.zeros((1 << 20, 64), np.float32)
resource.setrlimit(resource.RLIMIT_AS, (status("VmSize") + (64 << 20),) * 2)
for use in (lambda: gannet.build(rows), lambda: gannet.knn_graph(rows[:200_000], 64)):
    try: use()
    except gannet.OutOfMemory as error: assert isinstance(error, MemoryError)
    except MemoryError: pass
    else: raise SystemExit("no error")
try: gannet.build(rows)
except gannet.OutOfMemory: pass
assert index.search(np.eye(8, dtype=np.float32)[3], 1).ids[0] == 3
""")
