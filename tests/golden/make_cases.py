#!/usr/bin/env python3
"""Writes cases.json: small exact searches with their answers, which every binding runs.

    python3 tests/golden/make_cases.py            writes cases.json beside this file
    python3 tests/golden/make_cases.py --check    compares it with what would be written

The answers come from rational arithmetic here, not from the library, so that a defect of the
library cannot hide in them. Only the standard library is used, and the generator is our own, so
every Python gives the same bytes.

The format:

    {"cases": [{
      "name":      "l2-f32-d3-k5"
      "metric":    "l2" | "ip" | "cosine"
      "element":   "f32" | "f16" | "bf16" | "i8" | "u8", of the rows and of the queries
      "dim":       columns
      "rows":      [[number, ...], ...]   ids are the positions: 0, 1, 2, ... Every number is exact
                                          in the element. Some cases have one row or none.
      "queries":   [[number, ...], ...]   of the same element
      "k":         neighbours asked for; may exceed the number of rows
      "ids":       [[id or null, ...], ...]         [queries, k], nearest first, equal distances by
                                                    ascending id
      "distances": [[number or "inf", ...], ...]    [queries, k]
    }]}

A query with fewer than k neighbours is filled up with null (ANN_ID_NONE) in "ids" and the string
"inf" in "distances", because JSON has no infinity.

How to compare: ids are equal, always. Distances of l2 and ip are equal as numbers (0 and -0 are
the same number): the values are multiples of 1/4, small enough that a 32-bit float holds every
partial sum in any order. Distances of cosine are equal to within 1e-6.

For cosine, two rows are at one distance from a query only if they are equal, if both are
orthogonal to the query or zero, or (in one dimension) if both are powers of two; every sensible
order of operations gives these the same bits. All other distances differ by at least 1e-4, so
rounding cannot change an order.

The answers are those of an exact search (ANN_SEARCH_EXACT). A graph search need not find all of
them.
"""

import json
import math
import os
import sys
from fractions import Fraction

METRICS = ("l2", "ip", "cosine")
ELEMENTS = ("f32", "f16", "bf16", "i8", "u8")
DIMS = (1, 3, 7, 17, 33)
QUERIES = 5
GAP = 1e-4


class Random:
    """SplitMix64: tiny, and the same everywhere."""

    def __init__(self, seed):
        self.state = seed

    def next(self):
        mask = (1 << 64) - 1
        self.state = (self.state + 0x9E3779B97F4A7C15) & mask
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return z ^ (z >> 31)

    def below(self, n):
        return self.next() % n


def draw(random, element, metric, dim):
    """One random vector, exact in its element."""
    if metric == "cosine" and dim == 1:
        # Every distance is 0, 1 or 2 here. Powers of two keep the division exact.
        sign = -1 if element != "u8" and random.below(2) else 1
        scale = (1, 2, 4, 8, 16)[random.below(5)]
        return [sign * (Fraction(scale, 4) if element[-1] != "8" else scale)]
    if element == "i8":
        return [Fraction(random.below(256) - 128) for _ in range(dim)]
    if element == "u8":
        return [Fraction(random.below(256)) for _ in range(dim)]
    return [Fraction(random.below(33) - 16, 4) for _ in range(dim)]


def extreme(element, dim, high):
    """The outermost values of an integer element, where a wrong sign or width shows."""
    low_value, high_value = (-128, 127) if element == "i8" else (0, 255)
    return [Fraction(high_value if (i % 2 == 0) == high else low_value) for i in range(dim)]


def dot(a, b):
    return sum((x * y for x, y in zip(a, b)), Fraction(0))


def cosine(row, query):
    product = dot(row, query)
    if product == 0:
        return 1.0
    if len(row) == 1:
        return 0.0 if product > 0 else 2.0
    return 1.0 - float(product) / math.sqrt(float(dot(row, row) * dot(query, query)))


def distance(metric, row, query):
    if metric == "l2":
        return sum(((x - q) ** 2 for x, q in zip(row, query)), Fraction(0))
    if metric == "ip":
        return -dot(row, query)
    return cosine(row, query)


def apart(row, rows, queries):
    """Whether a cosine row keeps its distance from every row that is not its equal."""
    if len(row) == 1:
        return True
    for query in queries:
        mine = cosine(row, query)
        for other in rows:
            if other == row or (dot(row, query) == 0 and dot(other, query) == 0):
                continue
            if abs(cosine(other, query) - mine) < GAP:
                return False
    return True


def make_rows(random, element, metric, dim, count, queries, shared):
    """Rows with zero vectors, duplicates and one copy of a query among them."""
    rows = []

    def take(row):
        if metric == "cosine" and not apart(row, rows, queries):
            return False
        rows.append(row)
        return True

    if count > 8:
        take(shared)
        if element in ("i8", "u8") and not (metric == "cosine" and dim == 1):
            take(extreme(element, dim, True))
            if element != "u8" or dim > 1:
                take(extreme(element, dim, False))
    while len(rows) < count:
        at = len(rows)
        if count > 8 and at in (6, 19):
            rows.append([Fraction(0)] * dim)
        elif count > 8 and at in (11, 12, 23, 31):
            rows.append(rows[random.below(at)])
        else:
            take(draw(random, element, metric, dim))
    return rows


def make_case(seed, metric, element, dim, count, k, name):
    random = Random(seed)
    queries = [draw(random, element, metric, dim) for _ in range(QUERIES - 1)]
    queries.insert(2, [Fraction(0)] * dim)
    rows = make_rows(random, element, metric, dim, count, queries, queries[1])
    ids, distances = [], []
    for query in queries:
        found = sorted((distance(metric, row, query), i) for i, row in enumerate(rows))[:k]
        if metric != "cosine":
            for d, _ in found:
                assert abs(d) * 16 < 2**24 and (d * 16).denominator == 1, (name, d)
        short = k - len(found)
        ids.append([i for _, i in found] + [None] * short)
        distances.append([number(d) for d, _ in found] + ["inf"] * short)
    return {
        "name": name,
        "metric": metric,
        "element": element,
        "dim": dim,
        "rows": [[number(x) for x in row] for row in rows],
        "queries": [[number(x) for x in query] for query in queries],
        "k": k,
        "ids": ids,
        "distances": distances,
    }


def number(x):
    """The shortest JSON number: an integer where it is one."""
    x = round(float(x), 9)
    return int(x) if x == int(x) else x


def make_cases():
    cases = []
    seed = 1
    for metric in METRICS:
        for element in ELEMENTS:
            # Three of the five widths for each pair, moving on by two, so that every width meets
            # every element and every metric, and every k every element.
            first = 2 * METRICS.index(metric) + ELEMENTS.index(element)
            for step in range(3):
                dim = DIMS[(first + 2 * step) % len(DIMS)]
                count = 37 + seed % 7
                k = (1, 5, count + 2)[(step + first) % 3]
                label = "all" if k > count else str(k)
                name = f"{metric}-{element}-d{dim}-k{label}"
                cases.append(make_case(seed, metric, element, dim, count, k, name))
                seed += 1
    for metric in METRICS:
        cases.append(make_case(seed, metric, "f32", 3, 1, 2, f"{metric}-f32-one-row"))
        cases.append(make_case(seed + 1, metric, "u8", 3, 0, 2, f"{metric}-u8-no-rows"))
        seed += 2
    assert len({case["name"] for case in cases}) == len(cases)
    return cases


def main():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cases.json")
    lines = []
    for case in make_cases():
        fields = [json.dumps(key) + ": " + json.dumps(value, separators=(",", ":"))
                  for key, value in case.items()]
        lines.append("  {" + ",\n   ".join(fields) + "}")
    text = '{"cases": [\n' + ",\n".join(lines) + "\n]}\n"
    if sys.argv[1:] == ["--check"]:
        with open(path, encoding="ascii") as file:
            if file.read() != text:
                sys.exit("cases.json differs from what make_cases.py writes")
        return
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


if __name__ == "__main__":
    main()
