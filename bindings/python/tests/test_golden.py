"""The searches that all bindings share, tests/golden/cases.json, whose answers come from rational arithmetic."""

import json
import pathlib

import ml_dtypes
import numpy as np
import pytest

import gannet

CASES = json.loads((pathlib.Path(__file__).parents[3] / "tests/golden/cases.json").read_text())["cases"]
DTYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "i8": np.int8, "u8": np.uint8}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_case(case):
    dtype, dim = DTYPES[case["element"]], case["dim"]
    rows = np.array(case["rows"], np.float64).reshape(-1, dim).astype(dtype)
    queries = np.array(case["queries"], np.float64).reshape(-1, dim).astype(dtype)
    ids = np.array([[-1 if id is None else id for id in line] for line in case["ids"]], np.int64)
    distances = np.array(case["distances"], np.float64)
    index = gannet.build(rows, metric=case["metric"])
    for found in (index.exact(queries, case["k"]), index.search(queries, case["k"], procedure="exact")):
        np.testing.assert_array_equal(found.ids, ids)
        np.testing.assert_allclose(found.distances, distances, rtol=0,
                                   atol=1e-6 if case["metric"] == "cosine" else 0)
    if len(rows):
        np.testing.assert_array_equal(index[index.ids], rows)
