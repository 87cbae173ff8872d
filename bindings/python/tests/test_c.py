"""The package and its adapters give the bits that a program in C gets."""

import pathlib
import subprocess

import numpy as np
import pytest

import gannet
from gannet.faiss import read_index

ANSWERS = pathlib.Path(gannet.__file__).parent.with_name("answers")


@pytest.fixture
def from_c(tmp_path, queries):
    if not ANSWERS.exists():
        pytest.skip("answers.c is compiled in the tree's own builds only")

    def ask(index, k, *how):
        index.save(tmp_path / "index")
        queries.tofile(tmp_path / "queries")
        subprocess.run([ANSWERS, tmp_path / "index", tmp_path / "queries", *map(str, queries.shape), str(k),
                        tmp_path / "out", *how], check=True)
        content = (tmp_path / "out").read_bytes()
        return content[:len(queries) * k * 8], content[len(queries) * k * 8:]

    return ask


@pytest.mark.parametrize("metric", ["l2", "ip", "cos"])
@pytest.mark.parametrize("how", [(), ("exact",)])
def test_bits(metric, how, rows, queries, from_c):
    ids = np.arange(len(rows)) * 3
    index = gannet.build(rows, metric=metric, ids=ids)
    search = index.exact if how else index.search
    theirs = from_c(index, 10, *how)
    batch = search(queries, 10)
    assert (batch.ids.tobytes(), batch.distances.tobytes()) == theirs
    single = [search(query, 10) for query in queries]
    assert b"".join(found.ids.tobytes() for found in single) == theirs[0]
    assert b"".join(found.distances.tobytes() for found in single) == theirs[1]


def test_adapters(tmp_path, rows, queries, from_c):
    index = gannet.build(rows)
    theirs = from_c(index, 6)
    distances, labels = read_index(tmp_path / "index").search(queries, 6)
    assert (labels.tobytes(), distances.tobytes()) == theirs
    sklearn = pytest.importorskip("gannet.sklearn")
    graph = sklearn.GannetTransformer(n_neighbors=5, metric="sqeuclidean").fit(rows).transform(queries)
    assert (graph.indices.astype(np.int64).tobytes(), graph.data.tobytes()) == theirs
