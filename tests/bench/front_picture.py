#!/usr/bin/env python3
"""Draws recall against speed from the kept figures of results.csv, for README.md.

    front_picture.py                 writes recall_against_speed.svg beside this file
    front_picture.py --check         exit status 1 if the picture shows other points than results.csv holds

The curves are drawn as those of report.py, by its functions. A comment in the picture lists its points, so that
the check needs no equal version of Matplotlib. Each panel takes the rows of results.csv that were measured on its
machine; `PANELS` names them.
"""

import csv
import json
import pathlib
import re
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
NAME = "recall_against_speed"

# For each panel its title, and for each library the commit and the pattern of the rows' parameters.
# Exact searches have no recall to trade and are left out.
CPU_ROW = r"report\.sh; {}( [\d.]+)?; .*; queries/s; 1 thread; batch 1000; k=10; .*best of at least"
PANELS = [
    ("CPU, one thread, batches of 1,000\n100,000 rows of SIFT, 2 cores of AMD EPYC, AVX-512 VNNI",
     {name: ("5248a6e", "SIFT 100k", CPU_ROW.format(name))
      for name in ("gannet", "hnswlib", "faiss_hnsw", "faiss_ivf_pq", "usearch")}),
    ("one NVIDIA H200, batches of 10,000 in its memory\n1,000,000 rows of SIFT as bytes",
     {"gannet": ("6d8b82f", "SIFT 1M x 128 u8, L2",
                 r"gannet-bench run; degree 64; k=10; asked 0\.9[59]; batch 10000; device buffers; queries/s"),
      "cuvs_cagra": ("65cbde7", "SIFT 1M x 128 u8, L2",
                     r"cuVS .*; k=10; batch 10000; device memory; queries/s")}),
]


def panel_points(rows, libraries):
    """Points as report.py draws them, of the rows that a panel names."""
    points = []
    for name, (commit, data, pattern) in libraries.items():
        points += [{"algo_name": name, "recall": float(row["recall"]), "throughput": float(row["figure"])}
                   for row in rows
                   if row["commit"] == commit and row["data"].startswith(data)
                   and re.match(pattern, row["parameters"])]
    return points


def all_points(path):
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [panel_points(rows, libraries) for _, libraries in PANELS]


def comment_of(panels):
    lines = [json.dumps(point) for points in panels for point in points]
    return "<!-- points\n" + "\n".join(lines) + "\n-->\n"


def drawn_points(text):
    """The comment of a picture, or nothing."""
    found = re.search(r"<!-- points\n.*?-->\n", text, re.S)
    return found.group(0) if found else ""


def draw(panels, folder):
    import report  # which needs Matplotlib; the check does not
    figure, axes = report.plt.subplots(1, len(panels), figsize=(9.0, 3.9))
    for axis, (title, _), points in zip(axes, PANELS, panels):
        report.draw_front(axis, points, "throughput", max)
        axis.set_yscale("log")
        report.plain_numbers(axis)
        report.recall_axis(axis, 0.94)
        axis.set_xlim(0.94, 0.996)
        axis.set_xlabel("recall@10")
        axis.set_title(title, fontsize=9)
        report.legend_below(axis)
    axes[0].set_ylabel("queries per second")
    figure.tight_layout()
    report.save(figure, folder, NAME)


def main():
    panels = all_points(HERE / "results.csv")
    picture = HERE / (NAME + ".svg")
    if sys.argv[1:] == ["--check"]:
        if drawn_points(picture.read_text(encoding="utf-8")) != comment_of(panels):
            sys.exit(f"{picture.name} shows other points than results.csv holds; run front_picture.py")
        return
    if sys.argv[1:]:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        draw(panels, pathlib.Path(folder))
        drawn = (pathlib.Path(folder) / picture.name).read_text(encoding="utf-8")
    lines = [line.rstrip() + "\n" for line in drawn.splitlines()]
    picture.write_text("".join(lines) + comment_of(panels), encoding="utf-8")


if __name__ == "__main__":
    main()
