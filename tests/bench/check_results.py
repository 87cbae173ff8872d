#!/usr/bin/env python3
"""Checks the table of kept figures, results.csv: its columns, and every cell of every row.

    check_results.py [results.csv]      the checks, after a test of the checks themselves

Columns: date (ISO), commit (hexadecimal, in HEAD's history where that is here), device, data,
parameters, recall (empty, or 0 to 1), figure (a number, then perhaps a unit).
"""

import csv
import datetime
import io
import pathlib
import re
import subprocess
import sys

COLUMNS = ["date", "commit", "device", "data", "parameters", "recall", "figure"]


def commits_here(folder):
    """HEAD's commits, or None where the history is missing or cut.

    Commits of other branches do not count: a clone lacks those that were rebased before they came in.
    """
    def git(*arguments):
        run = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True,
                             check=False)
        return run.stdout if run.returncode == 0 else None
    try:
        if git("rev-parse", "--is-shallow-repository") != "false\n":
            return None
        return git("log", "--format=%H", "HEAD").split()
    except (OSError, AttributeError):
        return None


def problems(text, known_commits=None, today=None):
    """Lines that say what is wrong."""
    today = today or datetime.date.today()
    rows = list(csv.reader(io.StringIO(text)))
    if not rows or rows[0] != COLUMNS:
        return [f"line 1: the columns are {rows[:1]}; expected {','.join(COLUMNS)}"]
    found, seen = [], {}
    for number, row in enumerate(rows[1:], 2):
        def wrong(what):
            found.append(f"line {number}: {what}")
        if len(row) != len(COLUMNS):
            wrong(f"{len(row)} cells; expected {len(COLUMNS)}")
            continue
        cells = dict(zip(COLUMNS, row))
        try:
            if datetime.date.fromisoformat(cells["date"]) > today + datetime.timedelta(days=1):
                wrong(f"the date {cells['date']} is to come")
        except ValueError:
            wrong(f"the date is {cells['date']!r}; expected YYYY-MM-DD")
        commit = cells["commit"]
        if not re.fullmatch(r"[0-9a-f]{7,40}", commit):
            wrong(f"the commit is {commit!r}; expected 7 to 40 hexadecimal digits")
        elif known_commits is not None and not any(c.startswith(commit) for c in known_commits):
            wrong(f"the commit {commit} is not of this repository")
        for name in ("device", "data", "parameters"):
            if not cells[name].strip():
                wrong(f"no {name}")
        if cells["recall"] and not re.fullmatch(r"0|1|0?\.\d+|1\.0*|0\.0*", cells["recall"]):
            wrong(f"the recall is {cells['recall']!r}; expected nothing, or 0 to 1")
        if not re.match(r"-?\d[\d,]*(\.\d+)?([eE][-+]?\d+)?( .+)?$", cells["figure"]):
            wrong(f"the figure is {cells['figure']!r}; expected a number, then perhaps a unit")
        if tuple(row) in seen:
            wrong(f"the same as line {seen[tuple(row)]}")
        seen[tuple(row)] = number
    return found


def test_problems():
    head = ",".join(COLUMNS) + "\n"
    good = "2026-11-21,a4ab1ce,a machine,SIFT,gannet; 1 thread,0.95,44632\n"
    today = datetime.date(2026, 11, 22)
    assert problems(head + good, ["a4ab1ce" + "0" * 33], today) == []
    for bad, what in (("a" + good, "date is"), (good.replace("2026", "2036"), "to come"),
                      (good.replace("a4ab1ce", "main"), "commit is"),
                      (good.replace("a machine", " "), "no device"),
                      (good.replace("SIFT", ""), "no data"),
                      (good.replace("0.95", "1.5"), "recall is"),
                      (good.replace("44632", "fast"), "figure is"),
                      (good.replace("44632", ""), "figure is"),
                      (good.replace(",SIFT", ""), "6 cells"), (good + good, "same as line 2")):
        assert any(what in line for line in problems(head + bad, None, today)), bad
    assert problems(head + good, ["b" * 40], today) == [
        "line 2: the commit a4ab1ce is not of this repository"]
    assert "columns" in problems(good)[0] and "columns" in problems("")[0]


def main():
    test_problems()
    here = pathlib.Path(__file__).resolve().parent
    path = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "results.csv"
    text = path.read_text(encoding="utf-8")
    found = problems(text, commits_here(here))
    for line in found:
        print(f"{path}: {line}")
    print(f"check_results: {len(text.splitlines()) - 1} figures, {len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
