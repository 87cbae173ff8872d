"""What an index does, on the host, where everything is given rightly."""

import copy
import gc
import pickle
import weakref

import ml_dtypes
import numpy as np
import pytest
from conftest import nearest

import gannet


def test_search_finds_the_neighbours(index, rows, queries):
    found = index.search(queries, 10, recall=0.99)
    truth = nearest(rows, queries, 10)
    assert found.ids.dtype == np.int64 and found.distances.dtype == np.float32
    assert found.ids.shape == found.distances.shape == (200, 10)
    assert np.mean([len(set(a) & set(b)) for a, b in zip(found.ids, truth)]) > 9.7
    expected = ((queries[:, None].astype(np.float64) - rows[found.ids]) ** 2).sum(-1)
    np.testing.assert_allclose(found.distances, expected, rtol=1e-5)


def test_exact_finds_all(index, rows, queries):
    np.testing.assert_array_equal(index.exact(queries, 10).ids, nearest(rows, queries, 10))


def test_a_result_is_a_pair_with_names(index, queries):
    ids, distances = found = index.search(queries, 3)
    assert found.ids is ids and found.distances is distances
    assert pickle.loads(pickle.dumps(found)).ids.tolist() == ids.tolist()


def test_one_query_has_one_dimension(index, queries):
    whole = index.search(queries, 5)
    for search in (index.search, index.exact):
        one = search(queries[3], 5)
        assert one.ids.shape == one.distances.shape == (5,)
    one = index.search(queries[3], 5)
    np.testing.assert_array_equal(one.ids, whole.ids[3])
    np.testing.assert_array_equal(one.distances, whole.distances[3])
    np.testing.assert_array_equal(index.search(queries[3:4], 5).ids, whole.ids[3:4])


def test_no_query_and_no_row(index, queries):
    found = index.search(queries[:0], 5)
    assert found.ids.shape == found.distances.shape == (0, 5)
    empty = gannet.build(np.empty((0, 4), np.float32))
    assert len(empty) == 0 and empty.ids.tolist() == [] and list(empty) == []
    found = empty.search(np.zeros(4, np.float32), 2)
    assert found.ids.tolist() == [-1, -1] and np.isinf(found.distances).all()


def test_too_few_rows_are_padded():
    found = gannet.build([[0.0], [1.0]]).search([0.0], 4)
    assert found.ids.tolist() == [0, 1, -1, -1]
    assert found.distances.tolist() == [0, 1, np.inf, np.inf]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.int8, np.uint8])
def test_each_element(dtype, rows, queries):
    scaled = [np.clip(values * 8 + (100 if dtype == np.uint8 else 0), -128 if dtype == np.int8 else 0
                      if dtype == np.uint8 else -1e4, 127 if dtype == np.int8 else 255 if dtype == np.uint8
                      else 1e4).astype(dtype) for values in (rows, queries)]
    index = gannet.build(scaled[0], recall=1.0)
    assert index.dtype == dtype and index.info.dtype == np.dtype(dtype).name
    wide = [values.astype(np.float64) for values in scaled]
    nearby = ((wide[1] - wide[0][nearest(*wide, 1)[:, 0]]) ** 2).sum(-1)
    np.testing.assert_allclose(index.exact(scaled[1], 1).distances[:, 0], nearby, rtol=1e-5)
    assert (index.search(scaled[1], 1).distances[:, 0] <= nearby * 1.00001).mean() > 0.98
    np.testing.assert_array_equal(index[5], scaled[0][5])


def test_floats_of_every_width_ask_an_index_of_floats(index, queries):
    for dtype in (np.float16, ml_dtypes.bfloat16):
        narrow = queries.astype(dtype)
        found, same = index.search(narrow, 5), index.search(narrow.astype(np.float32), 5)
        np.testing.assert_array_equal(found.ids, same.ids)
        np.testing.assert_array_equal(found.distances, same.distances)


def test_stored_as_another_type(rows):
    half = gannet.build(rows, dtype="f16")
    assert half.info.dtype == "float16" and half.info.memory_bytes < gannet.build(rows).info.memory_bytes
    np.testing.assert_array_equal(half[7], rows[7].astype(np.float16))
    assert gannet.build(rows, dtype=np.float16).dtype == np.float16
    assert gannet.build(rows, dtype=ml_dtypes.bfloat16).dtype == ml_dtypes.bfloat16
    assert gannet.build([[1, 2]], dtype="bfloat16").info.dtype == "bfloat16"


def test_bfloat16_without_ml_dtypes(rows, monkeypatch):
    index = gannet.build(rows, dtype="bf16")
    expected = index[[0, 1]].astype(np.float32)
    monkeypatch.setitem(__import__("sys").modules, "ml_dtypes", None)
    assert index.dtype == np.float32
    np.testing.assert_array_equal(index[[0, 1]], expected)


@pytest.mark.parametrize("metric, rule", [
    ("l2", lambda q, x: ((q - x) ** 2).sum()), ("ip", lambda q, x: -(q * x).sum()),
    ("cos", lambda q, x: 1 - (q * x).sum() / np.linalg.norm(q) / np.linalg.norm(x))])
def test_each_metric(metric, rule, rows, queries):
    index = gannet.build(rows, metric=metric)
    assert index.info.metric == metric
    found = index.exact(queries[0], 3)
    for id, distance in zip(*found):
        np.testing.assert_allclose(distance, rule(queries[0].astype(np.float64), rows[id]), rtol=1e-4, atol=1e-5)


def test_own_ids(rows, queries):
    ids = np.random.default_rng(5).permutation(10**12 + np.arange(len(rows)))
    index, plain = gannet.build(rows, ids=ids), gannet.build(rows)
    np.testing.assert_array_equal(index.ids, ids)
    assert index.ids.dtype == np.int64 and list(index)[:3] == ids[:3].tolist()
    np.testing.assert_array_equal(index.exact(queries, 1).ids, ids[plain.exact(queries, 1).ids])
    np.testing.assert_array_equal(index[ids[11]], rows[11])
    np.testing.assert_array_equal(index[ids[[4, 2, 2]]], rows[[4, 2, 2]])
    np.testing.assert_array_equal(index[list(ids[:2])], rows[:2])
    assert int(ids[0]) in index and ids[0] in index and 5 not in index and -1 not in index and "a" not in index
    largest = gannet.build([[1.0], [2.0]], ids=[2**63 - 1, 0])
    assert largest.search([1.0], 1).ids.tolist() == [2**63 - 1]
    np.testing.assert_array_equal(gannet.build(rows, ids=ids.astype(np.uint64)).ids, ids)
    np.testing.assert_array_equal(gannet.build(rows, ids=np.arange(2 * len(rows))[::2]).ids,
                                  np.arange(len(rows)) * 2)


def test_missing_ids_are_key_errors(index):
    for id in (3000, -1, 2**63 - 1, [1, 3000], np.array([-5])):
        with pytest.raises(KeyError):
            index[id]
    for id in ("a", 1.5, [0.5], slice(1, 2), None, [[1, 2]]):
        with pytest.raises(TypeError):
            index[id]
    assert index[[]].shape == (0, 16)


def test_what_it_says_of_itself(index):
    assert repr(index) == f"<gannet.Index: 3,000 rows of 16 float32, l2, 32 edges a row, " \
                          f"{index.info.memory_bytes / 1e6:,.1f} MB>"
    assert "no graph" in repr(gannet.build([[1.0]], graph="none", metric="ip"))
    info = index.info
    assert (info.rows, info.dim, info.metric, info.dtype, info.graph, info.degree, info.seed) == (
        3000, 16, "l2", "float32", "cagra", 32, 1)
    assert info.build_seconds > 0 and info.recall_max > 0.9 and len(index) == 3000 and index.dim == 16


def test_parameters_arrive(rows, queries):
    assert gannet.build(rows, degree=8).info.degree == 8
    assert gannet.build(rows, seed=7).info.seed == 7
    assert gannet.build(rows, calibrate=False).info.recall_max == 0
    assert gannet.build(rows, knn="nn_descent", degree=8).info.knn_iterations > 0
    index = gannet.build(rows)
    assert index.beam(10, 0.99) >= index.beam(10, 0.5) >= 10
    few, many = index.search(queries, 10, beam=10).distances, index.search(queries, 10, beam=500).distances
    assert many.sum() < few.sum()
    assert (many == index.exact(queries, 10).distances).mean() > 0.99
    np.testing.assert_array_equal(index.search(queries, 10, recall=0.9).ids, gannet.build(
        rows, recall=0.9).search(queries, 10).ids)
    assert gannet.build(rows, recall=0.9).beam(10) == index.beam(10, 0.9)
    for procedure in ("cagra_single_cta", "cagra_multi_cta", "best_first"):
        assert (index.search(queries, 5, procedure=procedure).ids >= 0).all()
    index.search(queries, 5, procedure="cagra_single_cta", beam=64, search_width=2, iterations_max=30, hash_bits=11,
                 hash_reset=-1, team_size=8, compare="stored")
    with pytest.raises(gannet.LimitExceeded, match="memory_limit|limit"):
        gannet.build(rows, memory_limit=1000)
    assert gannet.build(rows, calibration=queries).info.recall_max > 0


# Beside these each parameter makes another graph; with more slack GGNN's lists of so few rows are exact.
ROUGH = {"ggnn": {"degree": 8, "refinements": 0, "build_stretch": 1.0}, "tsdg": {"degree": 20, "knn_degree": 40},
         "ssg": {"degree": 20, "knn_degree": 40, "diversify": "SSG"}, "cagra": {"degree": 8},
         "auto": {"degree": 8, "knn_degree": 24}}


@pytest.mark.parametrize("rough, given", [
    ("ggnn", {"segment_rows": 64}), ("ggnn", {"layers": 2}), ("ggnn", {"refinements": 1}),
    ("ggnn", {"build_stretch": 1.5}), ("ggnn", {"midpoint": False}), ("tsdg", {"alpha": 1.5}),
    ("tsdg", {"occlusion_bound": 1}), ("tsdg", {"reverse_max": 2}), ("tsdg", {"diversify": "gd"}),
    ("tsdg", {"diversify": "dpg"}), ("tsdg", {"diversify": "vamana"}), ("ssg", {"pool": 20}),
    ("ssg", {"angle": 30.0}), ("auto", {"detours": "whole"}), ("auto", {"reorder": "distance"}),
    ("cagra", {"detours": "near"}), ("cagra", {"reorder": "distance"}), ("cagra", {"knn_degree": 16})])
def test_parameters_of_a_graph_arrive(rows, rough, given):
    graph = "tsdg" if rough == "ssg" else rough
    plain, other = (gannet.build(rows[:1500], graph=graph, calibrate=False, repair=False, **tuning).graph()
                    for tuning in (ROUGH[rough], ROUGH[rough] | given))
    assert plain.shape[1] != other.shape[1] or (plain != other).any()


def test_slack_and_descent_of_ggnn_arrive(rows):
    index = gannet.build(rows[:1500], graph="ggnn", build_slack="squares", calibrate=False)
    far, near = (index.search(rows[:50], k=5, procedure="ggnn", stretch=1.1, slack=slack).distances
                 for slack in ("distances", "squares"))
    assert (far <= near).all() and (far < near).any()
    down = index.search(rows[:50], k=5, procedure="ggnn", stretch=1.1, descent=True).distances
    assert (down != far).any()
    plain = gannet.build(rows[:1500], calibrate=False)
    with pytest.raises(gannet.Unsupported, match="descent"):
        plain.search(rows[:20], k=5, procedure="ggnn", descent=True)
    plain.search(rows[:20], k=5, procedure="ggnn", descent=False)
    with pytest.raises(gannet.InvalidArgument, match="slack"):
        plain.search(rows[:20], k=5, procedure="ggnn", slack="cubes")


def test_parameters_of_a_graph_are_checked(rows):
    for graph, given in [("ggnn", {"layers": 9}), ("ggnn", {"segment_rows": 2}), ("ggnn", {"refinements": 17}),
                         ("ggnn", {"build_stretch": 3.5}), ("ggnn", {"build_slack": "cubes"}), ("tsdg", {"alpha": 0.5}),
                         ("tsdg", {"angle": 91.0}),
                         ("tsdg", {"occlusion_bound": 65}), ("tsdg", {"reverse_max": 5000}), ("tsdg", {"pool": 5000}),
                         ("tsdg", {"diversify": "best"}), ("cagra", {"detours": "far"}),
                         ("cagra", {"reorder": "length"})]:
        with pytest.raises((gannet.InvalidArgument, gannet.LimitExceeded), match=next(iter(given))):
            gannet.build(rows[:100], graph=graph, **given)


def test_equal_input_gives_an_equal_index(rows):
    one, other = (pickle.dumps(gannet.build(rows, threads=threads)) for threads in (1, 4))
    assert one == other


def test_rows_may_lie_apart(rows, queries, index):
    wide = np.zeros((len(rows), 40), np.float32)
    wide[:, 3:19] = rows
    assert pickle.dumps(gannet.build(wide[:, 3:19])) == pickle.dumps(index)
    apart = np.repeat(queries, 2, axis=0)[::2]
    assert apart.strides[0] == 128
    np.testing.assert_array_equal(index.search(apart, 5).ids, index.search(queries, 5).ids)
    unaligned = np.frombuffer(b"x" + queries.tobytes(), np.uint8)[1:].view(np.float32).reshape(queries.shape)
    np.testing.assert_array_equal(index.search(unaligned, 5).ids, index.search(queries, 5).ids)
    column = gannet.build(rows[:, 4:5])
    assert column.search(np.asfortranarray(queries[:, 4:5]), 1).ids.shape == (200, 1)


def test_read_only_rows_and_subclasses(rows, queries, index):
    frozen = queries.copy()
    frozen.flags.writeable = False
    np.testing.assert_array_equal(index.search(frozen).ids, index.search(queries).ids)
    np.testing.assert_array_equal(index.search(queries.view(np.matrix)).ids, index.search(queries).ids)
    np.testing.assert_array_equal(index.search(memoryview(queries)).ids, index.search(queries).ids)
    assert index.search(queries.tolist()).ids.tolist() == index.search(queries).ids.tolist()
    bytes_index = gannet.build(np.array([[1, 2], [3, 4]], np.uint8))
    assert bytes_index.search([3, 4], 1).ids.tolist() == [1]


def test_out(index, queries):
    ids, distances = np.empty((200, 5), np.int64), np.empty((200, 5), np.float32)
    found = index.search(queries, 5, out=(ids, distances))
    assert found.ids is ids and found.distances is distances
    np.testing.assert_array_equal(ids, index.search(queries, 5).ids)
    one = np.empty(5, np.uint64), np.empty(5, np.float32)
    index.exact(queries[0], 5, out=one)
    assert one[0].tolist() == index.exact(queries[0], 5).ids.tolist()


def test_borrowed_rows_live_as_long_as_the_index(rows, queries):
    mine = rows.copy()
    watch = weakref.ref(mine)
    index = gannet.build(mine, copy=False)
    assert index.info.memory_bytes < gannet.build(rows).info.memory_bytes
    expected = gannet.build(rows).search(queries, 5)
    del mine
    gc.collect()
    np.testing.assert_array_equal(index.search(queries, 5).ids, expected.ids)
    assert watch() is not None
    index.close()
    gc.collect()
    assert watch() is None


def test_not_finite_queries(index, queries):
    bad = queries[:5].copy()
    bad[3, 2] = np.nan
    with pytest.raises(gannet.NotFinite, match="query 3") as caught:
        index.search(bad, 4)
    assert caught.value.row == 3
    for search in (index.search, index.exact):
        found = search(bad, 4, not_finite="pad")
        assert found.ids[3].tolist() == [-1] * 4 and np.isinf(found.distances[3]).all()
        np.testing.assert_array_equal(found.ids[4], search(queries[4], 4).ids)
    many = np.tile(bad, (30, 1))
    with pytest.raises(gannet.NotFinite, match="query 3"):
        index.search(many)


def test_graph(index, rows):
    edges = index.graph()
    assert edges.shape == (3000, 32) and edges.dtype == np.int32
    assert edges.min() >= -1 and edges.max() < 3000 and (edges >= 0).mean() > 0.9
    stats = index.graph_stats()
    assert stats.rows == 3000 and stats.unreachable == 0 and stats.edges == (edges >= 0).sum()
    near = [set(edges[row]) | set(edges[edges[row]].ravel()) for row in range(3000)]
    two_hops = np.mean([len(met - {row, -1}) for row, met in enumerate(near)])
    assert index.graph_stats(two_hop_rows=2**32 - 1).two_hop_mean == pytest.approx(two_hops, rel=1e-12)
    assert stats.two_hop_mean == pytest.approx(two_hops, rel=0.1) and stats.two_hop_mean != two_hops
    with pytest.raises(gannet.InvalidArgument, match="two_hop_rows"):
        index.graph_stats(two_hop_rows=0)
    with pytest.raises(gannet.Unsupported):
        gannet.build(rows, graph="none").graph()


def test_knn_graph(rows, queries):
    found = gannet.knn_graph(rows[:500], 5)
    everyone = nearest(rows[:500], rows[:500], 6)
    np.testing.assert_array_equal(np.sort(found.neighbors), np.sort(
        [[other for other in line if other != row][:5] for row, line in enumerate(everyone)]))
    assert found.neighbors.dtype == np.int32 and found.distances.dtype == np.float32
    assert gannet.knn_graph([[0.0], [1.0]], 3).neighbors.tolist() == [[1, -1, -1], [0, -1, -1]]
    given = gannet.build(rows, knn_graph=gannet.knn_graph(rows, 48, metric="cos").neighbors, metric="cos")
    truth = given.exact(queries, 10).ids
    assert np.mean([len(set(a) & set(b)) for a, b in zip(given.search(queries, 10).ids, truth)]) > 9
    none = gannet.build(rows[:100], knn_graph=np.full((100, 8), -1, np.int32))  # then only repairs make edges
    assert none.graph_stats().edges < 300


@pytest.mark.parametrize("metric", ["l2", "cos"])
def test_a_finished_graph_is_taken(rows, queries, metric, tmp_path):
    edges = gannet.build(rows, metric=metric, degree=16).graph()
    edges[:, [2, 5]] = edges[:, [5, 2]]  # no build makes this one
    edges[7, 12:] = -1
    given = gannet.build(rows, metric=metric, graph=edges)
    np.testing.assert_array_equal(given.graph(), edges)
    assert given.info.graph == "cagra" and given.info.degree == 16 and given.info.recall_max > 0
    truth = given.exact(queries, 10).ids
    assert np.mean([len(set(a) & set(b)) for a, b in zip(given.search(queries, 10).ids, truth)]) > 9
    given.save(tmp_path / "given.gannet")
    opened = gannet.open(tmp_path / "given.gannet")
    np.testing.assert_array_equal(opened.graph(), edges)
    np.testing.assert_array_equal(opened.search(queries, 10).ids, given.search(queries, 10).ids)
    np.testing.assert_array_equal(gannet.build(rows, metric=metric, graph=edges.tolist()).graph(), edges)
    assert gannet.build(rows, metric=metric, graph=edges, degree=16, calibrate=False).info.recall_max == 0
    islands = np.stack([np.arange(100) ^ 1, np.arange(100) ^ 1], axis=1).astype(np.int32)
    islands[:, 1] = -1
    assert gannet.build(rows[:100], graph=islands).graph_stats().unreachable > 0
    assert gannet.build(rows[:100], graph=islands, repair=True).graph_stats().unreachable == 0


def test_pickle_and_copies(rows, queries):
    index = gannet.build(rows, metric="cos", recall=0.8, ids=np.arange(len(rows)) + 7)
    for other in (pickle.loads(pickle.dumps(index)), copy.deepcopy(index), copy.copy(index)):
        assert repr(other).split(",")[:3] == repr(index).split(",")[:3]
        np.testing.assert_array_equal(other.search(queries).ids, index.search(queries).ids)
        np.testing.assert_array_equal(other.search(queries).distances, index.search(queries).distances)
        np.testing.assert_array_equal(other.ids, index.ids)
    with pytest.raises(gannet.CorruptFile):
        pickle.loads(pickle.dumps(index).replace(rows[0].tobytes(), rows[1].tobytes()))


def test_with_and_close(rows, queries):
    with gannet.build(rows[:100]) as index:
        assert not index.closed
        index.search(queries)
    assert index.closed and repr(index) == "<gannet.Index: closed>"
    index.close()
    for use in (lambda: index.search(queries), lambda: index.exact(queries), lambda: len(index), lambda: index[0],
                lambda: index.ids, lambda: index.info, lambda: index.graph(), lambda: index.beam(),
                lambda: index.save("x"), lambda: pickle.dumps(index), lambda: 0 in index, lambda: index.dtype,
                lambda: index.place(), lambda: index.evict(), lambda: index.graph_stats(), lambda: list(index)):
        with pytest.raises(gannet.ClosedError, match="closed"):
            use()


def test_estimate_and_devices():
    plan = gannet.estimate(10**6, 128, dtype=np.uint8, threads=3)
    assert plan.threads == 3 and plan.peak_bytes > plan.index_bytes > 128e6 and plan.device_bytes == 0
    assert gannet.estimate(10**6, 128, stored="f16").index_bytes < gannet.estimate(10**6, 128).index_bytes
    devices = gannet.devices()
    assert devices[0].device == "cpu" and devices[0].compute_units > 0
    assert (len(devices) == 1) == (gannet.why_no_cuda() != "")
    assert gannet.__version__ in gannet.build_info()
