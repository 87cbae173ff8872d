#!/usr/bin/env python3
"""What a search costs more through the package than in C: one query, and 10,000 in one call.

    PYTHONPATH=BUILD/python bindings/python/tests/cost.py [--rounds 30]

The index is small, 2,000 rows of 16 columns, so that the difference is not lost in the search itself. Both take
turns, round by round, and the least processor time of each counts, so that other work on the machine disturbs
little and both alike.
"""

import argparse
import os
import subprocess
import tempfile
import time
import timeit

import numpy as np
from test_c import ANSWERS

import gannet


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    source = np.random.default_rng(1)
    queries = source.normal(size=(10_000, 16)).astype(np.float32)
    index = gannet.build(source.normal(size=(2000, 16)).astype(np.float32))
    least = dict.fromkeys(("C, one", "C, all", "one", "one, with recall", "all"), float("inf"))
    with tempfile.TemporaryDirectory() as folder:
        names = [os.path.join(folder, name) for name in ("index", "queries")]
        index.save(names[0])
        queries.tofile(names[1])
        list_of_one = [queries[i].copy() for i in range(1000)]
        for _ in range(options.rounds):
            said = subprocess.run([ANSWERS, *names, "10000", "16", "10", "time", "3"], check=True,
                                  capture_output=True, text=True).stdout.split()
            now = {"C, one": float(said[0]), "C, all": float(said[1]),
                   "one": min(timeit.repeat(lambda: [index.search(one) for one in list_of_one],
                                            number=1, repeat=3, timer=time.process_time)) / 1000,
                   "one, with recall": min(timeit.repeat(
                       lambda: [index.search(one, recall=0.95) for one in list_of_one], number=1, repeat=3,
                       timer=time.process_time)) / 1000,
                   "all": min(timeit.repeat(lambda: index.search(queries), number=1, repeat=3, timer=time.process_time))}
            least = {name: min(least[name], now[name]) for name in least}
    for name in ("C, one", "one", "one, with recall"):
        print(f"{name:18} {least[name] * 1e6:8.2f} us  {(least[name] - least['C, one']) * 1e6:+.2f} us")
    for name in ("C, all", "all"):
        print(f"{name:18} {least[name] * 1e3:8.2f} ms  {100 * (least[name] / least['C, all'] - 1):+.2f} %")


if __name__ == "__main__":
    main()
