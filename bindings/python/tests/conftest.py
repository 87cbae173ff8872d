"""What the tests share: data from seeds, and indexes over them that are built once."""

import signal

import numpy as np
import pytest

import gannet

# A shell that starts a job in the background has it ignore Ctrl-C, and Python keeps to that.
signal.signal(signal.SIGINT, signal.default_int_handler)


def floats(seed, rows, dim=16):
    """[rows, dim] float32 around some centres."""
    source = np.random.default_rng(seed)
    centres = np.random.default_rng(0).normal(size=(20, dim)) * 3
    return (centres[source.integers(0, 20, rows)] + source.normal(size=(rows, dim))).astype(np.float32)


def nearest(rows, queries, k):
    """Ids of the k nearest rows by squared distance in float64."""
    distances = ((queries[:, None].astype(np.float64) - rows[None]) ** 2).sum(-1)
    return np.argsort(distances, axis=1, kind="stable")[:, :k]


@pytest.fixture(scope="session")
def rows():
    return floats(1, 3000)


@pytest.fixture(scope="session")
def queries():
    return floats(2, 200)


@pytest.fixture(scope="session")
def index(rows):
    return gannet.build(rows)


@pytest.fixture(scope="session")
def long_rows():
    """Rows over which exact work takes many seconds."""
    return floats(3, 120_000, 64)


@pytest.fixture(scope="session")
def long_index(long_rows):
    return gannet.build(long_rows, graph="none")
