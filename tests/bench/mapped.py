#!/usr/bin/env python3
"""Searches of an index that is mapped from its file, with less memory than the file has bytes.

    mapped.py INDEX QUERIES [--share S] [--recall R] [-k K] [--threads N] [--seconds S] [--batch N]

Makes a control group of its own with so much memory, a share S of the file and what this program has taken before,
moves itself there and asks for batches of the queries for some seconds; pages of the file count there too. Needs root,
and version 1 or 2 of control groups. Without --share the index is mapped with all the memory that there is; with
--share 0 it is opened in memory. Printed are queries a second and pages that had to be fetched for a query, of each
batch. INDEX is what ann_save has written; QUERIES as in the other programs.
"""

import argparse
import os
import pathlib
import resource
import sys
import time

import numpy as np

import gannet

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "peers"))
from measure import read_vectors  # noqa: E402

GROUPS = pathlib.Path("/sys/fs/cgroup")


def limit_memory(count):
    """Of this process and the pages that it reads."""
    second = (GROUPS / "cgroup.controllers").exists()
    group = (GROUPS if second else GROUPS / "memory") / f"gannet-{os.getpid()}"
    group.mkdir()
    (group / ("memory.max" if second else "memory.limit_in_bytes")).write_text(str(count))
    (group / "cgroup.procs").write_text(str(os.getpid()))


def forget(path):
    """The system keeps nothing of the file: what it keeps counts to the group that has read it first."""
    with open(path, "rb+") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def fetched():
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("index")
    parser.add_argument("queries")
    parser.add_argument("--share", type=float)
    parser.add_argument("--recall", type=float, default=0.95)
    parser.add_argument("-k", type=int, default=10)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--batch", type=int, default=200)
    options = parser.parse_args()
    queries = read_vectors(options.queries)
    taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    if options.share:
        forget(options.index)
        limit_memory(int(os.path.getsize(options.index) * options.share) + taken)
    index = gannet.open(options.index, mmap=options.share != 0)
    start = time.perf_counter()
    turn = 0
    while (passed := time.perf_counter() - start) < options.seconds:
        first = turn * options.batch % max(1, len(queries) - options.batch)
        some = queries[first:first + options.batch]
        before, begun = fetched(), time.perf_counter()
        index.search(some, k=options.k, recall=options.recall, threads=options.threads or 0)
        spent = time.perf_counter() - begun
        print(f"{passed:6.1f} s: {len(some) / spent:.0f} queries/s, "
              f"{(fetched() - before) / len(some):.2f} pages fetched a query",
              flush=True)
        turn += 1


if __name__ == "__main__":
    main()
