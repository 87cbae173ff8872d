#!/usr/bin/env python3
"""Tests of the Python around the benchmark: the recall rules, the converter, sets made from Debian's packages, the
module for ann-benchmarks, and the report.

    PYTHONPATH=BUILD/python python_test.py GANNET-BENCH
"""

import contextlib
import importlib.util
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock

import gannet
import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from PIL import Image

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "peers")]
import convert  # noqa: E402
import make_patches  # noqa: E402
import make_texts  # noqa: E402
import measure  # noqa: E402
import report  # noqa: E402

BENCH = sys.argv[1]


def quiet(function, *arguments):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as log:
        return function(*arguments), log.getvalue()


class RecallRules(unittest.TestCase):
    rows = np.array([[0.0], [1], [2], [3], [4], [2]])
    queries = np.array([[0.0]])
    truth = np.array([[0, 1, 2]])

    def of(self, *found):
        return measure.recall([list(found)], self.truth, self.rows, self.queries, len(found), "l2")

    def test_known_answers(self):
        self.assertEqual(self.of(2, 0, 1), (1, 1))
        self.assertEqual(self.of(0, 1, 3), (2 / 3, 2 / 3))
        self.assertEqual(self.of(0, 1, 5), (2 / 3, 1))
        self.assertEqual(self.of(0, 0, 0), (1 / 3, 1 / 3))
        self.assertEqual(self.of(-1, 99, 4), (0, 0))

    def test_sleeping_stub(self):
        import time

        class Sleeper(measure.Peer):
            def search(self, queries, k, threads):
                time.sleep(0.004)

        point = measure.measure(Sleeper(), np.zeros((20, 1)), 1, 1, 1, 0)
        self.assertGreaterEqual(point["latency_p50"], 0.004)
        self.assertLess(point["latency_p50"], 0.05)
        self.assertLess(point["throughput"], 250)
        self.assertEqual(point["total_queries"], 20)


class SetsFromPackages(unittest.TestCase):
    """On a package that is unpacked already, so that nothing is downloaded."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)
        self.tree = self.path / "packages" / "made-up"
        self.tree.mkdir(parents=True)

    def make(self, maker, *arguments):
        with unittest.mock.patch.object(sys, "argv", ["make", str(self.path), "--packages", "made-up", *arguments]):
            quiet(maker.main)

    def read(self, name, element):
        rows, dim = np.fromfile(self.path / name, np.uint32, 2)
        return np.fromfile(self.path / name, element, offset=8).reshape(rows, dim)

    def test_patches(self):
        random = np.random.default_rng(1)
        Image.fromarray(random.integers(0, 256, (60, 90, 3), np.uint8)).save(self.tree / "noise.png")
        Image.new("RGB", (500, 500), (9, 9, 9)).save(self.tree / "flat.png")
        (self.tree / "broken.jpg").write_bytes(b"no picture")
        self.make(make_patches, "--rows", "200", "--queries", "20")
        rows, queries = self.read("base.f16bin", np.float16), self.read("query.f16bin", np.float16)
        self.assertEqual((rows.shape, queries.shape), ((200, 192), (20, 192)))
        every = np.concatenate([rows, queries]).astype(np.float64)
        self.assertEqual(len(np.unique(every, axis=0)), 220)
        self.assertLess(np.abs(every.mean(axis=1)).max(), 0.1)
        self.assertGreater(np.linalg.norm(every, axis=1).min(), 19.9)
        with self.assertRaises(SystemExit):
            self.make(make_patches, "--rows", "100000")

    def test_texts(self):
        random = np.random.default_rng(2)
        words = [chr(97 + i // 26) + chr(97 + i % 26) + "word" for i in range(300)]
        for topic in range(3):
            text = random.choice(words[100 * topic:100 * topic + 100], 20_000)
            body = " ".join(f"{word} the of" if i % 10 == 0 else word for i, word in enumerate(text))
            (self.tree / f"{topic}.html").write_text(f"<html><script>var hidden;</script><p>{body}</p></html>")
        self.make(make_texts, "--rows", "400", "--queries", "40", "--columns", "8")
        rows, queries = self.read("base.fbin", np.float32), self.read("query.fbin", np.float32)
        self.assertEqual((rows.shape, queries.shape), ((400, 8), (40, 8)))
        # Texts of one topic share words, those of two none: angles fall apart.
        unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (queries, rows)]
        cosines = np.sort(unit[0] @ unit[1].T, axis=1)
        self.assertGreater(cosines[:, -50:].min(), 0.3)
        self.assertLess(np.abs(cosines[:, 50:150]).max(), 0.3)


class Converter(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        random = np.random.default_rng(1)
        self.rows = random.random((50, 6), np.float32)
        self.queries = random.random((4, 6), np.float32)
        self.neighbors = random.integers(0, 50, (4, 10), np.int32)
        self.distances = random.random((4, 10), np.float32)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write_hdf5(self):
        with h5py.File(self.path("a.hdf5"), "w") as file:
            file["train"], file["test"] = self.rows, self.queries
            file["neighbors"], file["distances"] = self.neighbors, self.distances
            file.attrs["distance"] = "euclidean"

    def test_hdf5(self):
        self.write_hdf5()
        self.assertEqual(quiet(convert.main, [self.path("a.hdf5"), self.folder])[0], 0)
        np.testing.assert_array_equal(measure.read_vectors(self.path("base.fbin")), self.rows)
        np.testing.assert_array_equal(measure.read_vectors(self.path("query.fbin")), self.queries)
        truth = self.path("groundtruth.ibin")
        np.testing.assert_array_equal(measure.read_vectors(truth), self.neighbors)
        self.assertEqual(os.path.getsize(truth), 8 + 2 * self.neighbors.nbytes)
        said = subprocess.run([BENCH, "inspect", truth], capture_output=True, text=True, check=True)
        self.assertIn("4 rows of 10 i32 values", said.stdout)

    def test_hdf5_subset(self):
        self.write_hdf5()
        quiet(convert.main, [self.path("a.hdf5"), self.folder, "--rows", "10:5"])
        np.testing.assert_array_equal(measure.read_vectors(self.path("base.fbin")), self.rows[10:15])
        self.assertFalse(os.path.exists(self.path("groundtruth.ibin")))

    def test_parquet(self):
        table = pa.table({"id": range(50), "vector": self.rows.tolist()})
        pq.write_table(table, self.path("a.parquet"), row_group_size=7)
        source = [self.path("a.parquet"), self.path("a.f16bin"), "--column", "vector"]
        quiet(convert.main, source + ["--rows", "3:40"])
        np.testing.assert_array_equal(measure.read_vectors(self.path("a.f16bin")),
                                      self.rows[3:43].astype(np.float16))
        status, log = quiet(convert.main, [self.path("a.parquet"), self.path("b.u8bin"),
                                           "--column", "vector"])
        self.assertEqual(status, 1)
        self.assertIn("do not fit uint8", log)
        self.assertFalse(os.path.exists(self.path("b.u8bin")))

    def test_refusals(self):
        pq.write_table(pa.table({"v": [[1.0, 2], [3]]}), self.path("a.parquet"))
        for arguments, text in (
                ([self.path("a.parquet"), self.path("a.fbin"), "--column", "v"], "one length"),
                ([self.path("a.parquet"), self.path("a.fbin")], "there are v"),
                ([self.path("a.parquet"), self.path("a.fbin"), "--column", "v", "--rows", "1:9"],
                 "there are 2 rows"),
                ([self.path("a.csv"), self.path("a.fbin")], "expected .hdf5"),
                ([self.path("none.hdf5"), self.folder], "none.hdf5")):
            status, log = quiet(convert.main, arguments)
            self.assertEqual(status, 1)
            self.assertIn(text, log)


class AnnBenchmarks(unittest.TestCase):
    """Drives the module as ann-benchmarks does: by its config, through the base class there."""

    def load(self):
        base = types.ModuleType("ann_benchmarks.algorithms.base.module")
        base.BaseANN = type("BaseANN", (), {})
        for name in ("ann_benchmarks", "ann_benchmarks.algorithms", "ann_benchmarks.algorithms.base",
                     "ann_benchmarks.algorithms.gannet"):
            sys.modules[name] = types.ModuleType(name)
            sys.modules[name].__path__ = []
        sys.modules["ann_benchmarks.algorithms.gannet"].__path__ = [str(HERE / "ann_benchmarks/gannet")]
        sys.modules[base.__name__] = base
        place = HERE / "ann_benchmarks/gannet/module.py"
        spec = importlib.util.spec_from_file_location("ann_benchmarks.algorithms.gannet.module", place)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    def test_every_run_group(self):
        module = self.load()
        config = yaml.safe_load((HERE / "ann_benchmarks/gannet/config.yml").read_text())
        random = np.random.default_rng(2)
        rows = random.normal(size=(3000, 16)).astype(np.float32)
        queries = random.normal(size=(40, 16)).astype(np.float32)
        for metric, rule in (("euclidean", "l2"), ("angular", "cosine")):
            every = np.tile(np.arange(len(rows)), (len(queries), 1))
            order = np.argsort(measure.pair_distances(rows, queries, every, rule), axis=1)
            for entry in config["float"]["any"]:
                constructor = getattr(module, entry["constructor"])
                for group in entry["run_groups"].values():
                    algorithm = constructor(metric, *group["arg_groups"])
                    algorithm.fit(rows)
                    recalls = []
                    for beam in (group["query_args"][0][0], group["query_args"][0][-1]):
                        algorithm.set_query_arguments(beam)
                        one = [algorithm.query(q, 10) for q in queries]
                        plain = algorithm.index.search(queries, 10, beam=max(algorithm.beam, 10))
                        np.testing.assert_array_equal(one, plain.ids)
                        algorithm.batch_query(queries, 10)
                        np.testing.assert_array_equal(algorithm.get_batch_results(), one)
                        recalls.append(measure.recall(one, order, rows, queries, 10, rule)[0])
                    self.assertGreater(recalls[1], 0.99)
                    self.assertLessEqual(recalls[0], recalls[1])
                    algorithm.done()
        algorithm = module.Gannet("euclidean", {"degree": 1000})
        with self.assertRaisesRegex(gannet.Error, "degree"):
            algorithm.fit(rows)


class Report(unittest.TestCase):
    def test_from_a_run(self):
        with tempfile.TemporaryDirectory() as folder:
            def bench(*arguments):
                subprocess.run([BENCH, *arguments], cwd=folder, check=True, capture_output=True)
            bench("make", "clusters", "--rows", "3000", "--dim", "16", "--intrinsic", "8",
                  "--queries", "100", "--out", ".")
            bench("truth", "base.fbin", "query.fbin", "gt.ibin", "-k", "10")
            bench("run", "base.fbin", "query.fbin", "gt.ibin", "--out", "gannet", "--seconds", "0",
                  "--seeds", "1,2", "--batch", "1,10,100", "--procedure", "auto,best_first,exact",
                  "--beam", "10,32,128")
            bench("run", "base.fbin", "query.fbin", "gt.ibin", "--out", "callers", "--seconds", "0",
                  "--batch", "10", "--mode", "throughput", "--threads", "1,2", "--recall", "0.9")
            bench("run", "base.fbin", "query.fbin", "gt.ibin", "--out", "more", "--seconds", "0",
                  "--beam", "32")
            with open(os.path.join(folder, "gannet.jsonl")) as file:
                lines = [json.loads(line) for line in file]
            peer = [dict(line, algo_name="stub", index_name="stub") for line in lines
                    if line["record"] in ("build", "search")]
            peer += [dict(line, algo_name="on_a_gpu", buffers="device") for line in lines
                     if line["record"] == "search"]
            # Twice, as when two runs have looked for it.
            peer += 2 * [{"record": "peer", "name": "absent", "state": "not installed", "reason": "<b>"}]
            with open(os.path.join(folder, "peers.jsonl"), "w") as file:
                file.writelines(json.dumps(line) + "\n" for line in peer)
            out = os.path.join(folder, "report")
            quiet(report.main, ["--out", out, os.path.join(folder, "gannet.jsonl"),
                                os.path.join(folder, "callers.jsonl"),
                                os.path.join(folder, "peers.jsonl"),
                                "--scale", os.path.join(folder, "more.jsonl")])
            page = pathlib.Path(out, "report.html").read_text()
            for name in ("throughput", "latency", "build", "scale"):
                self.assertTrue(pathlib.Path(out, name + ".png").read_bytes().startswith(b"\x89PNG"))
                self.assertTrue("<svg" in pathlib.Path(out, name + ".svg").read_text())
            self.assertEqual(page.count("<svg"), 4)
            # Said briefly, because a failure would print the page.
            self.assertEqual(page.count("<td>not installed</td><td>&lt;b&gt;"), 1)
            self.assertFalse("<b>" in page.split("What was compared")[1].split("Machine")[0])
            for loads in ("src=", "<link", "<script", "@import", "url(http"):
                self.assertFalse(loads in page, f"{loads} in a page that has to open offline")
            rows = pathlib.Path(out, "results.csv").read_text().splitlines()
            searches = sum(line["record"] == "search" for line in lines)
            self.assertEqual(len(rows), 1 + 3 * searches + 2)  # and two of several callers
            for text in ("Several callers at once", "2 callers", "One query to many",
                         "from and to the GPU&#x27;s memory", "device memory"):
                self.assertTrue(text in page or text.replace("&#x27;", "'") in page, text)
            self.assertTrue(rows[0].startswith("algo_name,index_name,recall,throughput,latency,"))

    def test_processor_clock(self):
        record = {"record": "search", "algo_name": "a", "total_queries": 300, "cpu_time": 1.5,
                  "throughput": 1.0, "build time": 9.0, "build cpu_time": 4.0, "recall": 0.9,
                  "recall_by_distance": 0.9, "latency": 1.0, "latency_p50": 1.0, "latency_p95": 1.0,
                  "latency_p99": 1.0}
        self.assertEqual(report.grouped([record])[0]["throughput"], 1.0)
        point = report.grouped([record], "processor")[0]
        self.assertEqual((point["throughput"], point["build time"], point["latency"]), (200, 4, 1))

    def test_build_times_are_of_builds(self):
        point = {"algo_name": "gannet", "index_name": "i", "k": 10, "recall": 0.92, "build time": 2.0,
                 "procedure": "auto"}
        others = [dict(point, algo_name="gannet_cagra", procedure="cagra"),
                  dict(point, algo_name="faiss_flat", procedure=None),
                  dict(point, algo_name="gannet_by_exact")]
        self.assertEqual(report.band_times([point, *others], 10),
                         {"gannet": [None, 2.0, None, None], "gannet_by_exact": [None, 2.0, None, None]})

    def test_front(self):
        points = [(0.9, 100), (0.95, 120), (0.8, 300), (0.99, 10), (0.985, 9)]
        self.assertEqual(report.front(points, better=max), [(0.8, 300), (0.95, 120), (0.99, 10)])
        self.assertEqual(report.front([(0.9, 2), (0.95, 1), (0.99, 5)], better=min),
                         [(0.95, 1), (0.99, 5)])


class Mapped(unittest.TestCase):
    """Without a limit, which needs root and a system that lets it be set."""

    def test_rates_of_batches(self):
        with tempfile.TemporaryDirectory() as folder:
            rows = np.random.default_rng(1).normal(size=(3000, 8)).astype(np.float32)
            index = os.path.join(folder, "index")
            gannet.build(rows).save(index)
            queries = os.path.join(folder, "queries.npy")
            np.save(queries, rows[:50])
            for share in ([], ["--share", "0"]):
                for batch in ("20", "100"):
                    command = [sys.executable, str(HERE / "mapped.py"), index, queries, "--seconds", "0.05"]
                    done = subprocess.run([*command, "--batch", batch, *share], capture_output=True, text=True,
                                          check=False)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    lines = done.stdout.splitlines()
                    self.assertGreater(len(lines), 0)
                    for line in lines:
                        self.assertRegex(line, r"^ +\d+\.\d s: \d+ queries/s, \d+\.\d\d pages fetched a query$")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
