"""IndexGannet answers as faiss does, and as the C library, bit for bit."""

import numpy as np
import pytest
from conftest import nearest

import gannet
from gannet.faiss import METRIC_INNER_PRODUCT, METRIC_L2, IndexGannet, read_index, write_index


def test_bits_of_the_library(rows, queries, index):
    mine = IndexGannet(16)
    assert mine.is_trained and mine.ntotal == 0 and mine.d == 16 and mine.metric_type == METRIC_L2
    mine.train(rows)
    mine.add(rows)
    assert mine.ntotal == 3000
    for found, plain in ((mine.search(queries, 10), index.search(queries, 10)),
                         (mine.search_exact(queries, 10), index.exact(queries, 10))):
        distances, labels = found
        assert labels.tobytes() == plain.ids.tobytes() and distances.tobytes() == plain.distances.tobytes()
    np.testing.assert_array_equal(mine.search_exact(queries, 10)[1], nearest(rows, queries, 10))
    mine.recall = 0.5
    assert mine.search(queries, 10)[1].tobytes() == index.search(queries, 10, recall=0.5).ids.tobytes()
    np.testing.assert_array_equal(mine.assign(queries), mine.search(queries, 1)[1])


def test_inner_products_come_largest_first(rows, queries):
    mine = IndexGannet(16, METRIC_INNER_PRODUCT)
    mine.add(rows)
    products, labels = mine.search_exact(queries, 5)
    expected = queries.astype(np.float64) @ rows.T.astype(np.float64)
    np.testing.assert_allclose(products, -np.sort(-expected)[:, :5], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(np.take_along_axis(expected, labels, 1), products, rtol=1e-4, atol=1e-4)


def test_labels_and_vectors(rows):
    mine = IndexGannet(16)
    mine.add_with_ids(rows, np.arange(3000) * 7)
    np.testing.assert_array_equal(mine.reconstruct(21), rows[3])
    np.testing.assert_array_equal(mine.reconstruct_batch([7, 0]), rows[[1, 0]])
    np.testing.assert_array_equal(mine.reconstruct_n(5, 10), rows[5:15])
    np.testing.assert_array_equal(mine.reconstruct_n(), rows)
    with pytest.raises(KeyError):
        mine.reconstruct(1)
    with pytest.raises(gannet.StateError, match="at once"):
        mine.add(rows)
    mine.reset()
    assert mine.ntotal == 0
    mine.add(rows[:10])
    assert mine.ntotal == 10


def test_empty_and_wrong(queries, rows):
    distances, labels = IndexGannet(16).search(queries, 3)
    assert (labels == -1).all() and np.isinf(distances).all()
    for wrong in (lambda: IndexGannet(16, 5), lambda: IndexGannet(8).add(rows), lambda: IndexGannet(16).add(rows[0])):
        with pytest.raises(gannet.InvalidArgument):
            wrong()
    with pytest.raises(gannet.DtypeError, match="float64"):
        IndexGannet(16).add(rows.astype(np.float64))


def test_files(tmp_path, rows, queries):
    mine = IndexGannet(16, METRIC_INNER_PRODUCT)
    mine.add(rows)
    write_index(mine, tmp_path / "a")
    other = read_index(tmp_path / "a")
    assert other.metric_type == METRIC_INNER_PRODUCT and other.ntotal == 3000
    for one, two in zip(mine.search(queries, 5), other.search(queries, 5)):
        np.testing.assert_array_equal(one, two)
    gannet.build(rows, metric="cos").save(tmp_path / "b")
    with pytest.raises(gannet.InvalidArgument, match="cosine"):
        read_index(tmp_path / "b")


def test_beside_faiss(rows, queries):
    faiss = pytest.importorskip("faiss")
    for metric in (METRIC_L2, METRIC_INNER_PRODUCT):
        theirs, mine = faiss.IndexFlat(16, metric), IndexGannet(16, metric)
        for index in (theirs, mine):
            index.add(rows)
        np.testing.assert_array_equal(theirs.search(queries, 5)[1], mine.search_exact(queries, 5)[1])
        np.testing.assert_allclose(theirs.search(queries, 5)[0], mine.search_exact(queries, 5)[0], rtol=1e-3, atol=1e-2)
