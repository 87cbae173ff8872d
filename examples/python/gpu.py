"""Builds an index on a CUDA device and searches it from host memory, from device memory, and on a stream.
Without a device it says so and ends with success; so it does, after the search from the host, without CuPy.

    PYTHONPATH=build/python python3 examples/python/gpu.py
"""

import sys

import gannet
import numpy as np

ROWS, DIM, QUERIES, K = 100_000, 64, 1000, 10


def recall(found, exact):
    """The share of the exact neighbours that were found."""
    return np.mean([np.isin(right, ids).mean() for ids, right in zip(found, exact)])


def main():
    if reason := gannet.why_no_cuda():
        print("no CUDA device here:", reason)
        return
    gpu = next(device for device in gannet.devices() if device.device != "cpu")
    print(f"{gpu.device}: {gpu.name}, {gpu.memory_free >> 20} of {gpu.memory_total >> 20} MiB free")

    source = np.random.default_rng(1)
    rows, asked = source.random((ROWS, DIM), np.float32), source.random((QUERIES, DIM), np.float32)
    index = gannet.build(rows, device=gpu.device)
    print(f"{len(index):,} rows built in {index.info.build_seconds:.2f} s")
    # The build has left its copy there already; an index that was opened or built elsewhere has none.
    index.place(gpu.device)

    exact = index.exact(asked, K, device=gpu.device).ids
    worst = recall(index.search(asked, K, device=gpu.device).ids, exact)
    print(f"from host memory: recall@{K} is {worst:.3f}")

    # Vectors that are on the device anyway are searched there, and answers stay there.
    try:
        import cupy
    except ImportError:
        print("no CuPy here; arrays of Torch and of others do as well")
    else:
        there = cupy.asarray(asked)
        ids, distances = index.search(there, K)  # on CuPy's current stream
        worst = min(worst, recall(cupy.asnumpy(ids), exact))
        print(f"from device memory: recall@{K} is {worst:.3f}")
        with cupy.cuda.Stream(non_blocking=True) as stream:
            ids, distances = index.search(cupy.asarray(asked), K)
            # The search is queued: this thread is free for other work until it asks for the answers.
            mean = distances.mean()
            stream.synchronize()
        worst = min(worst, recall(cupy.asnumpy(ids), exact))
        print(f"queued on a stream: recall@{K} is {worst:.3f}, mean distance {float(mean):.3f}")

    index.evict(gpu.device)  # the copy goes with the index, or earlier
    if worst < 0.9:
        sys.exit(f"recall is {worst:.3f}")


if __name__ == "__main__":
    main()
