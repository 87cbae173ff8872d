"""What every peer's script shares: files, the recall rules, timing and records.

The rules are those of gannet-bench: recall by row number, and by distance as ann-benchmarks counts it
(a result no farther than the k-th true neighbour, plus 0.001, is right). Distances are computed here
from the row numbers, not taken from the library that is measured. Records are JSON lines with the same
names as gannet-bench's.
"""

import json
import os
import time

import numpy as np

ELEMENTS = {".fbin": np.float32, ".f16bin": np.float16, ".i8bin": np.int8, ".u8bin": np.uint8,
            ".ibin": np.int32, ".fvecs": np.float32, ".bvecs": np.uint8, ".ivecs": np.int32}
TIE_MARGIN = 1e-3


def read_vectors(path, rows_max=None):
    """A file's vectors as [rows, dim]."""
    ending = os.path.splitext(path)[1]
    if ending == ".npy":
        return np.load(path, mmap_mode="r")[:rows_max]
    if ending not in ELEMENTS:
        raise ValueError(f"{path}: the ending {ending!r} is not known")
    element = np.dtype(ELEMENTS[ending])
    size = os.path.getsize(path)
    if ending.endswith("vecs"):
        dim = int(np.fromfile(path, np.int32, 1)[0])
        record = np.dtype([("dim", np.int32), ("values", element, (dim,))])
        if size % record.itemsize:
            raise ValueError(f"{path}: {size} bytes; expected whole rows of {record.itemsize}")
        return np.fromfile(path, record)["values"][:rows_max].copy()
    rows, dim = (int(x) for x in np.fromfile(path, np.uint32, 2))
    wanted = 8 + rows * dim * element.itemsize
    if size != wanted and not (ending == ".ibin" and size == 2 * wanted - 8):
        raise ValueError(f"{path}: {size} bytes; expected {wanted}")
    if rows_max is not None:
        rows = min(rows, rows_max)
    return np.fromfile(path, element, rows * dim, offset=8).reshape(rows, dim)


def pair_distances(rows, queries, ids, metric):
    """Distances of each query from its rows `ids` [queries, k]: Euclidean, negated product or
    1 - cosine; infinity where an id is no row."""
    out = np.full(ids.shape, np.inf)
    part = max(1, 2_000_000 // (ids.shape[1] * rows.shape[1]))
    for first in range(0, len(ids), part):
        some = ids[first:first + part]
        valid = (some >= 0) & (some < len(rows))
        x = rows[np.where(valid, some, 0)].astype(np.float64)
        y = queries[first:first + part, None, :].astype(np.float64)
        if metric == "l2":
            found = np.sqrt(((x - y) ** 2).sum(2))
        else:
            found = -(x * y).sum(2)
        if metric == "cosine":
            lengths = np.linalg.norm(x, axis=2) * np.linalg.norm(y, axis=2)
            found = 1 + np.divide(found, lengths, out=np.zeros(found.shape), where=lengths > 0)
        out[first:first + part][valid] = found[valid]
    return out


def time_at(points, wanted):
    """Of (recall, time), efforts ascending; None where no effort reaches it. Where the least goes beyond, its time."""
    miss = [max(1 - got, 1e-6) for got, _ in points]
    for i, (got, spent) in enumerate(points):
        if got < wanted:
            continue
        if i == 0:
            return spent
        share = (np.log(miss[i - 1]) - np.log(max(1 - wanted, 1e-6))) / (np.log(miss[i - 1]) - np.log(miss[i]))
        return points[i - 1][1] + share * (spent - points[i - 1][1])
    return None


def recall(found, truth, rows, queries, k, metric):
    """(by row number, by distance) of `found` [queries, k]."""
    found = np.asarray(found, np.int64)[:, :k]
    wanted = np.asarray(truth[:len(found), :k], np.int64)
    limit = np.max(np.where(wanted >= 0, pair_distances(rows, queries, wanted, metric), -np.inf),
                   axis=1) + TIE_MARGIN
    near = pair_distances(rows, queries, found, metric) <= limit[:, None]
    true = wanted >= 0
    part = max(1, 10_000_000 // wanted.shape[1] ** 2)
    by_id = sum(int(((wanted[i:i + part, :, None] == found[i:i + part, None, :]).any(2)
                     & true[i:i + part]).sum()) for i in range(0, len(found), part))
    order = np.argsort(found, axis=1, kind="stable")
    ascending = np.take_along_axis(found, order, 1)
    first = np.ones(found.shape, bool)
    first[:, 1:] = ascending[:, 1:] != ascending[:, :-1]  # what comes twice counts once
    hits = (np.take_along_axis(near, order, 1) & first).sum(1)
    by_distance = int(np.minimum(hits, true.sum(1)).sum())
    all_wanted = int(true.sum())
    return (by_id / all_wanted, by_distance / all_wanted) if all_wanted else (1.0, 1.0)


def peak_memory_bytes():
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def reset_peak_memory():
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
    except OSError:
        pass  # then the peak is that since the start


def percentile(values, share):
    """By nearest rank, as gannet-bench does it."""
    ordered = sorted(values)
    return ordered[max(0, int(np.ceil(share * len(ordered))) - 1)]


class Records:
    def __init__(self, path):
        self.file = open(path, "a", encoding="utf-8")

    def add(self, **record):
        self.file.write(json.dumps(record) + "\n")
        self.file.flush()


class Peer:
    """One index of one library. A script derives from it and fills in what follows."""
    algo_name = ""
    index_name = ""
    efforts = []        # (label, value), least first
    gpu = False
    buffers = ("host",)  # where queries and results may lie; with "device" placed() is asked too

    def takes(self, element):
        """Whether values of this kind are taken as they are, rather than as f32."""
        return False

    def build(self, rows, threads):
        raise NotImplementedError

    def set_effort(self, value):
        pass

    def search(self, queries, k, threads):
        """Row numbers [queries, k]."""
        raise NotImplementedError

    def differs(self, value, k):
        """Whether an effort is another than a lesser one for so many neighbours."""
        return True

    def placed(self, queries):
        """The queries in the device's memory."""
        raise NotImplementedError

    def search_placed(self, queries, k):
        """Queries there, results left there; returns when they are done."""
        raise NotImplementedError

    def size_bytes(self):
        return None


def run_peer(peer, rows, queries, truth, options, records):
    """Builds and measures. `options` are those of run_peers.py."""
    threads_all = max(options.threads)
    reset_peak_memory()
    start, cpu_start = time.perf_counter(), time.process_time()
    peer.build(rows, threads_all)
    build_time, build_cpu = time.perf_counter() - start, time.process_time() - cpu_start
    build_peak = peak_memory_bytes()
    peer.set_effort(peer.efforts[0][1])
    start = time.perf_counter()
    peer.search(queries[:1], options.k[0], 1)
    first_call = time.perf_counter() - start
    shared = {"algo_name": peer.algo_name, "index_name": peer.index_name, "seed": 0}
    records.add(record="build", **shared, time=build_time, threads=threads_all, cpu_time=build_cpu,
                GPU=int(peer.gpu), index_size=peer.size_bytes(), peak_host_memory=build_peak,
                first_call=first_call)
    print(f"{peer.index_name}: built in {build_time:.2f} s ({build_cpu:.2f} s of processor time)",
          flush=True)
    for k in options.k:
        for label, value in peer.efforts:
            if not peer.differs(value, k):
                continue
            peer.set_effort(value)
            part = max(1000, *options.batches)
            found = np.concatenate([peer.search(queries[i:i + part], k, threads_all)
                                    for i in range(0, len(queries), part)])
            by_id, by_distance = recall(found, truth, rows, queries, k, options.metric)
            for batch, threads, buffers in points_of(peer, k, options):
                point = measure(peer, queries, k, batch, threads, options.seconds, buffers,
                                options.single_queries)
                records.add(record="search", **shared, recall=by_id,
                            recall_by_distance=by_distance, k=k, n_queries=len(queries),
                            threads=threads, batch=batch, mode="latency", search_label=label,
                            first_call=first_call, peak_host_memory=build_peak,
                            index_size=peer.size_bytes(), buffers=buffers, **point,
                            **{"build time": build_time, "build threads": threads_all,
                               "build cpu_time": build_cpu, "build GPU": int(peer.gpu)})
                print(f"  k {k:<4d} batch {batch:<6d} {buffers:6s} threads {threads}  {label:<16s} "
                      f"recall {by_id:.4f}  {point['throughput']:11,.0f} /s   "
                      f"p50 {1e3 * point['latency_p50']:.3f}  "
                      f"p99 {1e3 * point['latency_p99']:.3f} ms", flush=True)


def points_of(peer, k, options):
    """(batch, threads, buffers) to measure: for a second k the largest batches alone. One query runs on
    one thread."""
    batches = options.batches if k == options.k[0] else [max(options.batches)]
    return [(batch, threads, buffers) for batch in batches for threads in options.threads
            for buffers in peer.buffers if batch > 1 or threads == 1]


def measure(peer, queries, k, batch, threads, seconds, buffers="host", single_queries=0):
    count = min(len(queries), single_queries) if batch == 1 and single_queries else len(queries)
    tiled = np.concatenate([queries] * (1 + -(-batch // count))) if batch > 1 else queries
    if buffers == "device":
        tiled = peer.placed(tiled)

        def call(part):
            peer.search_placed(part, k)
    else:
        def call(part):
            peer.search(part, k, threads)
    calls_min = -(-count // batch)
    call(tiled[:batch])
    latencies = []
    start, cpu_start = time.perf_counter(), time.process_time()
    while len(latencies) < calls_min or time.perf_counter() - start < seconds:
        first = len(latencies) * batch % count
        part = tiled[first:first + batch]
        call_start = time.perf_counter()
        call(part)
        latencies.append(time.perf_counter() - call_start)
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu_start
    return {"throughput": len(latencies) * batch / wall, "latency": sum(latencies) / len(latencies),
            "end_to_end": wall, "cpu_time": cpu, "total_queries": len(latencies) * batch,
            "latency_p50": percentile(latencies, 0.5), "latency_p95": percentile(latencies, 0.95),
            "latency_p99": percentile(latencies, 0.99)}
