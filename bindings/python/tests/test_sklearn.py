"""GannetTransformer stands in for KNeighborsTransformer."""

import numpy as np
import pytest

pytest.importorskip("sklearn")
from sklearn.base import clone
from sklearn.cluster import DBSCAN
from sklearn.manifold import TSNE
from sklearn.neighbors import KNeighborsClassifier, KNeighborsTransformer
from sklearn.pipeline import make_pipeline

import gannet
from gannet.sklearn import GannetTransformer


@pytest.mark.parametrize("mode", ["distance", "connectivity"])
@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean", "cosine"])
def test_the_same_graph(mode, metric, rows, queries):
    options = dict(mode=mode, n_neighbors=7, metric=metric)
    theirs = KNeighborsTransformer(**options, algorithm="brute").fit(rows.astype(np.float64))
    mine = GannetTransformer(**options, recall=1.0).fit(rows)
    for X in (rows, queries):
        one, other = mine.transform(X), theirs.transform(X.astype(np.float64))
        assert one.shape == other.shape and one.format == other.format and one.nnz == other.nnz
        np.testing.assert_array_equal(one.indptr, other.indptr)
        assert (one.indices == other.indices).mean() > 0.999  # all but ties of rounding
        np.testing.assert_allclose(one.data, other.data, rtol=1e-3, atol=2e-3)
    assert GannetTransformer(**options).fit_transform(rows).shape == (3000, 3000)


def test_bits_of_the_library(rows, queries, index):
    mine = GannetTransformer(n_neighbors=9, metric="sqeuclidean").fit(rows)
    found, graph = index.search(queries, 10), mine.transform(queries)
    assert graph.data.tobytes() == found.distances.tobytes()
    np.testing.assert_array_equal(graph.indices.reshape(-1, 10), found.ids)


def test_float64_is_rounded_here(rows, queries):
    mine = GannetTransformer().fit(rows.astype(np.float64))
    np.testing.assert_array_equal(mine.transform(queries.astype(np.float64)).indices,
                                  GannetTransformer().fit(rows).transform(queries).indices)
    assert mine.transform(queries.tolist()).shape == (200, 3000)


def test_in_pipelines(rows):
    labels = make_pipeline(GannetTransformer(n_neighbors=20), DBSCAN(eps=3.0, metric="precomputed")).fit_predict(
        rows[:500])
    assert len(labels) == 500
    embedded = make_pipeline(GannetTransformer(n_neighbors=31), TSNE(
        metric="precomputed", init="random", perplexity=10, max_iter=250)).fit_transform(rows[:200])
    assert embedded.shape == (200, 2)
    classes = (rows[:, 0] > 0).astype(int)
    both = [make_pipeline(first, KNeighborsClassifier(5, metric="precomputed")).fit(rows, classes).predict(rows[:50])
            for first in (GannetTransformer(n_neighbors=5, recall=1.0), KNeighborsTransformer(n_neighbors=5))]
    np.testing.assert_array_equal(*both)


def test_as_an_estimator(rows):
    mine = GannetTransformer(n_neighbors=3, metric="cosine", recall=0.9, n_jobs=1, seed=5)
    copy = clone(mine)
    assert copy.get_params() == mine.get_params() and "n_neighbors=3" in repr(mine)
    assert len(copy.fit(rows[:50]).get_feature_names_out()) == 50 and copy.index_.info.seed == 5
    with pytest.raises(Exception, match="not fitted"):
        mine.transform(rows)
    for wrong, text in (({"mode": "x"}, "mode"), ({"metric": "manhattan"}, "metric")):
        with pytest.raises(gannet.InvalidArgument, match=text):
            GannetTransformer(**wrong).fit(rows)
    for k in (0, 50, 1000):
        with pytest.raises(gannet.InvalidArgument, match="n_neighbors"):
            GannetTransformer(n_neighbors=k if k else -1).fit(rows[:50]).transform(rows)
