"""The ten tasks of README.md in Python."""

import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import gannet

# 1: it is there
print(gannet.build_info())

# 2: the ten nearest of some rows
source = np.random.default_rng(1)
rows, queries = source.random((20_000, 32), np.float32), source.random((200, 32), np.float32)
index = gannet.build(rows)
ids, distances = index.search(queries, k=10)
assert ids.shape == distances.shape == (200, 10)

# 3: how many of the true neighbours are found, and more of them
truth = index.exact(queries, k=10).ids


def recall(found):
    return np.mean([np.isin(right, mine).mean() for mine, right in zip(found, truth)])


print(f"recall {recall(ids):.3f}, asked for .99: {recall(index.search(queries, k=10, recall=0.99).ids):.3f}")
assert recall(ids) > 0.93

# 4: saved here, opened elsewhere
place = os.path.join(tempfile.mkdtemp(), "points.gannet")
index.save(place)
assert (gannet.open(place).search(queries, k=10).ids == ids).all()

# 5: cosine, and half the memory
halves = gannet.build(rows, metric="cos", dtype="float16")
assert halves.search(rows[7], k=1).ids[0] == 7 and halves.info.dtype == "float16"

# 6: names of rows
named = gannet.build(rows, ids=np.arange(20_000) + 10**12)
assert named.search(rows[7], k=1).ids[0] == 10**12 + 7
assert (named[10**12 + 7] == rows[7]).all()

# 7: what a build takes, beforehand
plan = gannet.estimate(1_000_000, 768)
print(f"{plan.peak_bytes >> 20} MiB at most, about {plan.seconds:.0f} s")

# 8: a long build, watched and stopped
try:
    gannet.build(source.random((200_000, 64), np.float32), progress=lambda done: print(done), timeout=0.3)
    sys.exit("it was not stopped")
except gannet.DeadlineExceeded as error:
    print(error)

# 9: searches from many threads
with ThreadPoolExecutor(8) as pool:
    parts = list(pool.map(lambda query: index.search(query, k=10).ids, queries))
assert (np.stack(parts) == ids).mean() > 0.99

# 10: wrong input says what is wrong
for wrong in (queries[:, :31], queries.astype(np.float64), np.full((1, 32), np.nan, np.float32)):
    try:
        index.search(wrong, k=10)
        sys.exit("it was taken")
    except gannet.Error as error:
        print(error)
print("tasks: Python: 10")
