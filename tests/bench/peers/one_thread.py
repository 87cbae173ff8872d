#!/usr/bin/env python3
"""One thread of the CPU at equal recall: Gannet beside other libraries, in one process and interleaved.

    one_thread.py ROWS QUERIES [--metric l2|ip|cosine] [--rows-max N] [--queries-max N] [--rounds N]

Gannet is asked by recall, as its users do; the others get each of their efforts. Every round measures each effort
of each library once, by the processor time of the process, which other programs lengthen far less than the time
of a clock. In a round the time at a wanted recall lies between those of the two efforts beside it (by the logarithm of
the share missed). Printed are the medians over rounds of microseconds a query and of the ratio to Gannet's. The true
neighbours are found by faiss, exactly. A library that is not installed is left out.
"""

import argparse
import importlib
import pathlib
import statistics
import sys
import time

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import faiss  # noqa: E402

from measure import Peer, read_vectors, recall, time_at  # noqa: E402

WANTED = (0.9, 0.95, 0.99, 0.999)
K = 10


class Gannet(Peer):
    index_name = "gannet.AUTO"

    def __init__(self, metric):
        self.metric = {"l2": "l2", "ip": "inner_product", "cosine": "cosine"}[metric]
        self.efforts = [(f"recall={recall}", recall) for recall in
                        (0.8, 0.85, 0.88, 0.9, 0.92, 0.94, 0.95, 0.96, 0.97, 0.98, 0.985, 0.99, 0.995, 0.998, 0.999, 0.9995)]

    def takes(self, element):
        return True

    def build(self, rows, threads):
        import gannet
        self.index = gannet.build(np.ascontiguousarray(rows), metric=self.metric, threads=threads)

    def set_effort(self, value):
        self.recall = value

    def search(self, queries, k, threads):
        return self.index.search(queries, k=k, recall=self.recall, threads=threads).ids.astype(np.int64)


def others(metric, rows):
    """hnswlib, faiss and SVS by what a user would take for a CPU."""
    found = []
    for name in ("hnswlib", "faiss", "svs"):
        try:
            module = importlib.import_module(name + "_peer")
        except ImportError as fault:
            print(f"{name}: not installed: {fault}")
            continue
        if name == "faiss":
            efforts = [(f"ef={ef}", {"efSearch": ef}) for ef in (10, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024)]
            found.append(module.Faiss(metric, "HNSW16,SQ8", efforts))
        elif name == "hnswlib":
            found.append(module.Hnsw(metric, 16))
        else:
            found += module.peers(metric, rows)
    return found


def true_neighbors(rows, queries, metric):
    rows, queries = rows.astype(np.float32), queries.astype(np.float32)
    if metric == "cosine":
        faiss.normalize_L2(rows)
        faiss.normalize_L2(queries)
    index = faiss.IndexFlatL2(rows.shape[1]) if metric == "l2" else faiss.IndexFlatIP(rows.shape[1])
    index.add(rows)
    return index.search(queries, K)[1]


def measure(peers, queries, truth, rows, metric, rounds):
    """times[peer][round] = [(recall, microseconds a query)]"""
    times = [[[] for _ in range(rounds)] for _ in peers]
    known = {}
    for turn in range(rounds):
        for i, (peer, _, asked) in enumerate(peers):
            efforts = [effort for effort in peer.efforts if peer.differs(effort[1], K)]
            peer.set_effort(efforts[0][1])
            peer.search(asked, K, 1)  # the first effort does not pay for caches that another library has left
            for label, value in efforts:
                peer.set_effort(value)
                start = time.process_time()
                found = peer.search(asked, K, 1)
                spent = (time.process_time() - start) / len(asked) * 1e6
                if (i, label) not in known:
                    known[i, label] = recall(found, truth, rows, queries, K, metric)[1]
                times[i][turn].append((known[i, label], spent))
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("rows")
    parser.add_argument("queries")
    parser.add_argument("--metric", choices=["l2", "ip", "cosine"], default="l2")
    parser.add_argument("--rows-max", type=int, default=30_000)
    parser.add_argument("--queries-max", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    faiss.omp_set_num_threads(1)
    rows = np.ascontiguousarray(read_vectors(options.rows, options.rows_max))
    queries = np.ascontiguousarray(read_vectors(options.queries)[:options.queries_max])
    truth = true_neighbors(rows, queries, options.metric)
    peers = []
    for peer in [Gannet(options.metric), *others(options.metric, rows)]:
        start = time.process_time()
        as_it_is = peer.takes(rows.dtype)
        peer.build(rows if as_it_is else rows.astype(np.float32), 1)
        built = time.process_time() - start
        print(f"{peer.index_name}: built in {built:.1f} s of processor time", flush=True)
        peers.append((peer, built, queries if as_it_is else queries.astype(np.float32)))
    times = measure(peers, queries, truth, rows.astype(np.float32), options.metric, options.rounds)
    print(f"{len(rows)} rows, {rows.shape[1]} columns, {len(queries)} queries, k = {K}, {options.rounds} rounds")
    for i, (peer, _, _) in enumerate(peers):
        for wanted in WANTED:
            pairs = [(time_at(times[i][turn], wanted), time_at(times[0][turn], wanted))
                     for turn in range(options.rounds)]
            pairs = [(spent, ours) for spent, ours in pairs if spent is not None]
            if not pairs:
                print(f"  {peer.index_name:22} {wanted:5}: not reached")
                continue
            ratios = [spent / ours for spent, ours in pairs if ours is not None]
            ratio = f"{statistics.median(ratios):.2f} x Gannet's" if ratios else "not reached by Gannet"
            print(f"  {peer.index_name:22} {wanted:5}: {statistics.median(s for s, _ in pairs):8.1f} us, {ratio}")


if __name__ == "__main__":
    main()
