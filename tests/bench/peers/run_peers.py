#!/usr/bin/env python3
"""Measures other libraries on the same files as gannet-bench, each in a process of its own.

    run_peers.py ROWS QUERIES TRUTH --out FILE.jsonl [--metric l2|ip|cosine] [--peers hnswlib,faiss]

A library that is not installed, or has no device to run on, is a record of its own, with the reason.
"""

import argparse
import importlib
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
PEERS = ["hnswlib", "faiss", "usearch", "cuvs"]


def numbers(text):
    return [int(part) for part in text.split(",")]


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("rows")
    parser.add_argument("queries")
    parser.add_argument("truth")
    parser.add_argument("--out", required=True, help="JSON lines; added to what is there")
    parser.add_argument("--metric", choices=["l2", "ip", "cosine"], default="l2")
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--index", help="only indexes whose name starts with one of these")
    parser.add_argument("-k", type=numbers, default=[10])
    parser.add_argument("--batches", type=numbers, default=[1, 1000])
    parser.add_argument("--threads", type=numbers, default=sorted({1, os.cpu_count()}))
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--single-queries", type=int, default=0,
                        help="queries measured one at a time, at most (default: all)")
    parser.add_argument("--queries-max", type=int)
    parser.add_argument("--efforts", type=numbers,
                        help="only the efforts with these numbers, from 0 (default: all)")
    parser.add_argument("--rows-max", type=int)
    parser.add_argument("--only", help=argparse.SUPPRESS)  # in the child process
    return parser.parse_args(arguments)


def run_one(options):
    import numpy as np

    from measure import Records, read_vectors, run_peer
    records = Records(options.out)
    try:
        module = importlib.import_module(options.only + "_peer")
    except Exception as fault:  # a missing package, or one that finds no driver
        reason = f"{type(fault).__name__}: {fault}"
        kind = "not installed" if isinstance(fault, ImportError) else "does not run here"
        records.add(record="peer", name=options.only, state=kind, reason=reason[:300])
        print(f"{options.only}: {kind}: {reason[:200]}", flush=True)
        return
    rows = np.ascontiguousarray(read_vectors(options.rows, options.rows_max))
    queries = np.ascontiguousarray(read_vectors(options.queries))
    truth = read_vectors(options.truth)
    queries = queries[:min(len(truth), options.queries_max or len(truth))]
    floats = rows.astype(np.float32), queries.astype(np.float32)
    records.add(record="peer", name=options.only, state="measured", version=module.VERSION)
    for name, reason in getattr(module, "LEFT_OUT", []):
        records.add(record="peer", name=name, state="not installed", reason=reason)
    for peer in module.peers(options.metric, rows):
        wanted = options.index.split(",") if options.index else [""]
        if not any(peer.index_name.startswith(name) for name in wanted):
            continue
        if options.efforts:
            peer.efforts = [effort for i, effort in enumerate(peer.efforts) if i in options.efforts]
        run_peer(peer, *((rows, queries) if peer.takes(rows.dtype) else floats), truth, options, records)


def main():
    options = parse(sys.argv[1:])
    if options.only:
        run_one(options)
        return 0
    failed = []
    for name in options.peers.split(","):
        run = subprocess.run([sys.executable, __file__, *sys.argv[1:], "--only", name], check=False)
        if run.returncode != 0:
            failed.append(name)
    if failed:
        print(f"run_peers: failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
