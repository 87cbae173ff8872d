#!/usr/bin/env python3
"""Builds on the CPU by some threads: Gannet beside hnswlib, in one process and by turns.

    builds.py ROWS [--metric l2|ip|cosine] [--rows-max N] [--threads N] [--rounds N]

Timed by a clock, from rows in memory to an index that answers: Gannet's time has its calibration in it. hnswlib is built
with M = 16 and efConstruction = 200. The parts are those of each round; printed are the medians.
"""

import argparse
import pathlib
import statistics
import sys
import time

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import hnswlib_peer  # noqa: E402

from measure import read_vectors  # noqa: E402
from one_thread import Gannet  # noqa: E402


def seconds(peer, rows, threads):
    start = time.perf_counter()
    peer.build(rows, threads)
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("rows")
    parser.add_argument("--metric", choices=["l2", "ip", "cosine"], default="l2")
    parser.add_argument("--rows-max", type=int)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rows = np.ascontiguousarray(read_vectors(options.rows, options.rows_max))
    floats = rows.astype(np.float32)
    spent = []
    for _ in range(options.rounds):
        ours = seconds(Gannet(options.metric), rows, options.threads)
        spent.append((ours, seconds(hnswlib_peer.Hnsw(options.metric, 16), floats, options.threads)))
    part = statistics.median(ours / theirs for ours, theirs in spent)
    print(f"{len(rows)} rows, {rows.shape[1]} columns of {rows.dtype}, {options.metric}, {options.threads} threads, "
          f"{options.rounds} rounds: Gannet {statistics.median(ours for ours, _ in spent):.2f} s, hnswlib "
          f"{statistics.median(theirs for _, theirs in spent):.1f} s, {part:.3f} of it")


if __name__ == "__main__":
    main()
