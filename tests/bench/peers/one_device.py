#!/usr/bin/env python3
"""One GPU at equal recall: Gannet beside cuVS, in one process and interleaved.

    one_device.py ROWS QUERIES [--metric l2|ip|cosine] [--rows-max N] [--batches 10000,1000,1] [--k 10,100]
                  [--rounds N] [--alone]

Rows are given as floats of 32 bits in host memory, queries and results lie in the device's memory. Gannet is asked by
recall, as its users do; cuVS gets CAGRA's graphs by NN-descent and by IVF-PQ with a memory pool, each with every one of
its efforts, and brute force. Every round measures each effort of each once, by a clock around the call until its results
are there; of one query at a time the median over fifty. In a round the time at a wanted recall lies between those of the
two efforts beside it (by the logarithm of the share missed), and cuVS has that of its fastest graph. Printed are medians
over rounds. The true neighbours are those of cuVS' brute force; an answer counts as found if it is no farther than the
k-th. Fewer queries than a batch are repeated. Builds are timed from rows in host memory, the better of two. --alone is
Gannet without cuVS, which need not be there; the true neighbours are then those of its exact search.
"""

import argparse
import pathlib
import statistics
import sys
import time

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import cupy  # noqa: E402

from measure import read_vectors, time_at  # noqa: E402

WANTED = (0.9, 0.95, 0.99, 0.999)
# From .5 on: by product foreign queries get more than they ask for, .93 at .8.
RECALLS = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.92, 0.94, 0.95, 0.96, 0.97, 0.98, 0.985, 0.99, 0.993, 0.996, 0.998,
           0.999, 0.9995)
TIE = 1e-5  # of a distance
SINGLE = 50  # calls of one query


class Gannet:
    name = "gannet"

    def __init__(self, metric):
        self.metric = {"l2": "l2", "ip": "ip", "cosine": "cos"}[metric]
        self.efforts = [(f"recall {recall}", recall) for recall in RECALLS]

    def build(self, rows):
        import gannet
        self.index = gannet.build(rows, metric=self.metric, device="cuda:0")

    def set_effort(self, value):
        self.recall = value

    def search_placed(self, queries, k):
        ids = self.index.search(queries, k=k, recall=self.recall).ids
        cupy.cuda.get_current_stream().synchronize()
        return ids

    def exact_placed(self, queries, k):
        return self.index.exact(queries, k=k).ids


class Cuvs:
    """One graph of cuVS."""

    def __init__(self, peer):
        self.peer = peer
        self.name = peer.index_name
        self.efforts = peer.efforts

    def build(self, rows):
        self.peer.build(rows, 1)

    def set_effort(self, value):
        self.peer.set_effort(value)

    def search_placed(self, queries, k):
        return self.peer.search_placed(queries, k)


class BruteForce(Cuvs):
    def set_effort(self, value):
        pass


def distances(rows, queries, ids, metric):
    """[queries, k] in float32, infinity where an id is no row."""
    valid = (ids >= 0) & (ids < len(rows))
    found = rows[cupy.where(valid, ids, 0)]
    if metric == "l2":
        out = ((found - queries[:, None, :]) ** 2).sum(2)
    else:
        out = -(found * queries[:, None, :]).sum(2)
    return cupy.where(valid, out, cupy.inf)


def recall_of(found, truth, rows, queries, metric):
    """Share of `found` [queries, k] that is no farther than the last of `truth` [queries, k]."""
    hits = 0
    part = max(1, 100_000_000 // (found.shape[1] * rows.shape[1]))
    for first in range(0, len(found), part):
        some = queries[first:first + part]
        limit = distances(rows, some, truth[first:first + part], metric).max(1)
        near = distances(rows, some, found[first:first + part], metric)
        hits += int((near <= (limit + TIE * cupy.abs(limit))[:, None]).sum())
    return hits / found.size


def fastest(points):
    """Of (recall, time), those that no other beats, ascending."""
    best = []
    for got, spent in sorted(points, key=lambda point: point[1]):
        if not best or got > best[-1][0]:
            best.append((got, spent))
    return best


def seconds_of(peer, queries, batch, k):
    """(seconds of a call, what it found)"""
    if batch > 1:
        start = time.perf_counter()
        found = peer.search_placed(queries[:batch], k)
        return time.perf_counter() - start, found
    spent, found = [], []
    for query in range(SINGLE):
        start = time.perf_counter()
        found.append(peer.search_placed(queries[query:query + 1], k))
        spent.append(time.perf_counter() - start)
    return statistics.median(spent), cupy.concatenate(found)


def measure(peers, queries, truth, rows, metric, batch, k, rounds):
    """times[peer][round] = [(recall, seconds)]"""
    times = [[[] for _ in range(rounds)] for _ in peers]
    known = {}
    for turn in range(-1, rounds):  # the first warms up, calibrates and tells the recall
        for i, peer in enumerate(peers):
            for label, value in peer.efforts:
                peer.set_effort(value)
                try:
                    spent, found = seconds_of(peer, queries, batch, k)
                except Exception as fault:  # a shape that a kernel of cuVS does not take
                    if turn < 0:
                        print(f"    {peer.name} {label}: {str(fault)[:100]}", flush=True)
                    continue
                if turn < 0:
                    known[i, label] = recall_of(found.astype(np.int64), truth[:len(found), :k], rows,
                                                queries[:len(found)], metric)
                else:
                    times[i][turn].append((known[i, label], spent))
    return times


def built(peers, rows):
    for peer in peers:
        spent = []
        for _ in range(2):
            start = time.perf_counter()
            peer.build(rows)
            spent.append(time.perf_counter() - start)
        print(f"  {peer.name}: built in {min(spent):.3f} s", flush=True)


def report(peers, times, batch, k, rounds):
    def at(numbers, turn, wanted):
        spent = [time_at(fastest(times[i][turn]), wanted) for i in numbers if times[i][turn]]
        return min((s for s in spent if s is not None), default=None)

    graphs = [i for i, peer in enumerate(peers) if "cagra" in peer.name]
    brute = [i for i, peer in enumerate(peers) if "brute" in peer.name]
    for wanted in WANTED:
        row = []
        for numbers in ([0], graphs, brute):
            spent = [at(numbers, turn, wanted) for turn in range(rounds)]
            row.append(None if None in spent else statistics.median(spent))
        said = ["not reached" if s is None else f"{s * 1e6:.1f} us" if batch == 1 else f"{batch / s / 1e6:.3f} M/s"
                for s in row]
        line = f"  batch {batch}, k {k}, at {wanted}: gannet {said[0]}"
        if len(peers) > 1:
            line += f", cuVS CAGRA {said[1]}, brute force {said[2]}"
        if len(peers) > 1 and None not in row[:2]:
            line += f", {row[1] / row[0]:.2f} times as fast as CAGRA"
        print(line, flush=True)


def numbers(text):
    return [int(part) for part in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("rows")
    parser.add_argument("queries")
    parser.add_argument("--metric", choices=["l2", "ip", "cosine"], default="l2")
    parser.add_argument("--rows-max", type=int)
    parser.add_argument("--batches", type=numbers, default=[10_000, 1_000, 1])
    parser.add_argument("--k", type=numbers, default=[10, 100])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--alone", action="store_true")
    options = parser.parse_args()
    rows = np.ascontiguousarray(read_vectors(options.rows, options.rows_max).astype(np.float32))
    given = read_vectors(options.queries).astype(np.float32)
    if options.metric == "cosine":
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30)
        given /= np.maximum(np.linalg.norm(given, axis=1, keepdims=True), 1e-30)
    most = max(options.batches)
    queries = cupy.asarray(np.ascontiguousarray(np.tile(given, (-(-most // len(given)), 1))[:most]))
    peers = [Gannet(options.metric)]
    beside = "alone"
    if not options.alone:
        import cuvs_peer
        beside = f"cuVS {cuvs_peer.VERSION}"
        peers += [*(Cuvs(cuvs_peer.Cagra(options.metric, algorithm, degree))
                    for algorithm, degree in (("nn_descent", 32), ("nn_descent", 64), ("ivf_pq", 64))),
                  BruteForce(cuvs_peer.BruteForce(options.metric))]
    print(f"{options.rows}: {len(rows)} rows, {rows.shape[1]} columns, {options.metric}; {len(given)} queries; "
          f"{beside}", flush=True)
    built(peers, rows)
    on_device = cupy.asarray(rows)
    exact = peers[0].exact_placed if options.alone else peers[-1].search_placed
    truth = exact(queries, max(options.k)).astype(np.int64)
    for k in options.k:
        for batch in options.batches:
            if k > 10 and batch != most:
                continue
            times = measure(peers, queries, truth, on_device, options.metric, batch, k, options.rounds)
            report(peers, times, batch, k, options.rounds)


if __name__ == "__main__":
    main()
