#!/usr/bin/env python3
"""Makes pictures, tables and one HTML page from records of gannet-bench and of the peers' scripts.

    report.py --out FOLDER RECORDS.jsonl... [--scale RECORDS.jsonl] [-k 10] [--clock wall|processor]

Writes throughput (also for k = 100 where that was measured), latency, build and scale, each as .svg and .png; results.csv (all points),
results.throughput.csv and results.latency.csv (the points that no other beats); and report.html, which
holds everything and loads nothing. --scale names records of runs over different numbers of rows, for
the cost against n. With --clock processor, throughput and build times are counted in processor
seconds, which other work on the machine disturbs less; latencies are the wall's always.
"""

import argparse
import collections
import csv
import html
import json
import os
import pathlib

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
import matplotlib.ticker  # noqa: E402
import numpy as np  # noqa: E402

COLUMNS = [
    "algo_name", "index_name", "recall", "throughput", "latency", "end_to_end", "k", "n_queries",
    "total_queries", "threads", "cpu_time", "recall_by_distance", "latency_p50", "latency_p95",
    "latency_p99", "event_p50", "queued_throughput", "first_call", "batch", "mode", "procedure",
    "warps_per_query", "buffers", "beam", "asked_recall", "search_label", "distances_per_query", "expansions_per_query", "seed", "peak_host_memory",
    "index_size", "build time", "build threads", "build cpu_time", "build GPU", "data", "rows", "dim",
    "element", "metric", "device", "gpu", "machine", "cores", "compiler", "version", "commit", "date",
    "command"]
BANDS = [(0.80, 0.90, "0.80 to 0.90"), (0.90, 0.95, "0.90 to 0.95"), (0.95, 0.99, "0.95 to 0.99"),
         (0.99, 1.01, "0.99 and more")]
TARGETS = (0.90, 0.95, 0.99)
WIDTH = 5.0  # inches: on a phone's screen, which is as wide, letters keep their size
EXACT_RECALL = 0.99995  # where a recall of 1 is drawn: the axis grows without end towards it

# Gannet first and strongest; the peers in colours that the colour-blind can tell apart.
STYLES = {"gannet": ("#c1272d", "o"), "gannet_best_first": ("#e8735a", "o"),
          "gannet_cagra_single_cta": ("#8c564b", "p"), "gannet_cagra_multi_cta": ("#c49c94", "d"),
          "gannet_cagra": ("#d4a017", "H"), "gannet_by_cells": ("#7f0000", "<"),
          "gannet_uncalibrated": ("#ff9da7", "D"),
          "gannet_by_exact": ("#4d4d00", "P"), "gannet_by_nn_descent": ("#b5651d", "X"),
          "gannet_exact": ("#7a7a7a", "s"), "gannet_cpu": ("#f2a6a0", "o"), "hnswlib": ("#0072b2", "^"),
          "faiss_hnsw": ("#009e73", "v"), "faiss_ivf_pq": ("#e69f00", "D"),
          "faiss_flat": ("#b0b0b0", "P"), "usearch": ("#56b4e9", "<"), "cuvs_cagra": ("#cc79a7", ">"),
          "cuvs_brute_force": ("#444444", "X"), "faiss_gpu_flat": ("#888888", "*")}
SPARE = ("#999933", "h")


# --- Records --------------------------------------------------------------------------------------

def read_records(paths):
    """(run, all records); entries of a file's run record are added to its search records."""
    first_run, records = {}, []
    for path in paths:
        run = {}
        with open(path, encoding="utf-8") as file:
            for line in file:
                record = json.loads(line)
                if record["record"] == "run":
                    run = {key: value for key, value in record.items() if key != "record"}
                    first_run = first_run or run
                measured = record["record"] in ("build", "search", "spread")
                records.append({**(run or first_run), **record} if measured else record)
    return first_run, records


def by_processor(record):
    """A search record with throughput and build time in processor seconds."""
    rate = record["total_queries"] / record["cpu_time"] if record["cpu_time"] > 0 else 0.0
    return {**record, "throughput": rate, "build time": record["build cpu_time"]}


def grouped(records, clock="wall"):
    """One point for each setting: means over its seeds, with the lowest and highest throughput."""
    groups = collections.defaultdict(list)
    for record in records:
        if record["record"] == "search":
            if clock == "processor":
                record = by_processor(record)
            groups[tuple(record.get(key) for key in (
                "algo_name", "index_name", "k", "batch", "threads", "mode", "search_label",
                "procedure", "buffers", "rows"))].append(record)
    points = []
    for members in groups.values():
        point = dict(members[0])
        for key in ("recall", "recall_by_distance", "throughput", "latency", "latency_p50",
                    "latency_p95", "latency_p99", "build time", "build cpu_time"):
            point[key] = float(np.mean([member[key] for member in members]))
        point["recalls"] = [member["recall"] for member in members]
        point["throughputs"] = [member["throughput"] for member in members]
        points.append(point)
    return points


def front(points, better):
    """The (recall, value) points that no other beats in both, by rising recall."""
    kept = []
    for recall, value in sorted(points, key=lambda p: (p[0], p[1] if better is max else -p[1]),
                                reverse=True):
        if not kept or (value != kept[-1][1] and better(value, kept[-1][1]) == value):
            kept.append((recall, value))
    return kept[::-1]


def by_algorithm(points, **wanted):
    found = collections.defaultdict(list)
    for point in points:
        if all(point.get(key) == value for key, value in wanted.items()):
            found[point["algo_name"]].append(point)
    order = list(STYLES)
    return dict(sorted(found.items(), key=lambda item: (
        order.index(item[0]) if item[0] in order else len(order), item[0])))


# --- Pictures -------------------------------------------------------------------------------------

def recall_axis(axis, lowest):
    """Recall so that each step towards 1 that halves what is missed takes equal room."""
    axis.set_xscale("function", functions=(
        lambda x: -np.log10(np.maximum(1 - np.asarray(x, float), 1e-9)),
        lambda y: 1 - 10.0 ** -np.asarray(y, float)))
    ticks = [t for t in (0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999) if t >= lowest]
    names = [f"{t:g}" if t != 0.995 else "" for t in ticks]  # which has no room between its neighbours
    axis.set_xticks(ticks + [EXACT_RECALL], names + ["1"], fontsize=8)
    axis.xaxis.set_minor_locator(matplotlib.ticker.NullLocator())
    axis.set_xlim(lowest, 0.99997)
    axis.set_xlabel("recall@k")
    axis.grid(True, which="major", color="#dddddd", linewidth=0.6)


def style(name):
    return STYLES.get(name, SPARE)


def save(figure, folder, name):
    matplotlib.rcParams["svg.hashsalt"] = name
    figure.savefig(folder / (name + ".svg"), metadata={"Date": None, "Creator": None})
    figure.savefig(folder / (name + ".png"), dpi=200)
    plt.close(figure)


def draw_front(axis, points, value_key, better, scale=1.0, **line):
    for name, members in by_algorithm(points).items():
        color, marker = style(name)
        best = front([(min(p["recall"], EXACT_RECALL), scale * p[value_key]) for p in members], better)
        if best:
            axis.plot(*zip(*best), color=color, marker=marker, markersize=4, label=name,
                      linewidth=2.2 if name == "gannet" else 1.3, **line)


def lowest_recall(points):
    found = [p["recall"] for p in points if p["algo_name"] == "gannet"] or [0.8]
    return max(0.5, min(0.9, np.floor(20 * min(found)) / 20 - 0.05))


def plain_numbers(axis):
    """2,000 and 0.05 on a logarithmic axis, also between the powers of ten where there is room."""
    axis.yaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(plain))
    low, high = axis.get_ylim()
    few = high / low < 100
    axis.yaxis.set_minor_locator(matplotlib.ticker.LogLocator(subs=(2, 5) if few else range(2, 10)))
    axis.yaxis.set_minor_formatter(matplotlib.ticker.FuncFormatter(plain) if few
                                   else matplotlib.ticker.NullFormatter())
    axis.tick_params(axis="y", which="both", labelsize=8)


def plain(value, _=None):
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def at_their_largest(points):
    """Of each algorithm the points with its largest batches and most threads: beside a GPU, libraries of
    the CPU have all of its threads, and batches that fill them."""
    kept = []
    for members in by_algorithm(points).values():
        batch = max(p["batch"] for p in members)
        threads = max(p["threads"] for p in members if p["batch"] == batch)
        kept += [p for p in members if (p["batch"], p["threads"]) == (batch, threads)]
    return kept


def panels(points):
    """[(title, points)]: for one thread and for all; on a GPU by where queries and results lie."""
    points = [p for p in points if p.get("mode") != "throughput"]
    if any(p.get("buffers") == "device" for p in points):
        places = {"device": "from and to the GPU's memory", "host": "from and to the host's memory"}
        return [(text, [p for p in at_their_largest(points) if p.get("buffers") == name])
                for name, text in places.items()]
    largest = max((p["batch"] for p in points), default=1)
    points = [p for p in points if p["batch"] == largest]
    threads = sorted({p["threads"] for p in points}) or [1]
    shown = threads if len(threads) == 1 else [threads[0], threads[-1]]
    return [(f"{count} thread{'s' * (count > 1)}", [p for p in points if p["threads"] == count])
            for count in shown]


def draw_throughput(points, k, folder, unit, name="throughput"):
    points = [p for p in points if p["k"] == k and p["batch"] > 1]
    shown = panels(points)
    figure, axes = plt.subplots(len(shown), 1, figsize=(WIDTH, 4.2 * len(shown)), squeeze=False)
    for axis, (title, some) in zip(axes[:, 0], shown):
        batch = max((p["batch"] for p in some), default=1)
        draw_front(axis, some, "throughput", max)
        axis.set_yscale("log")
        plain_numbers(axis)
        recall_axis(axis, lowest_recall(some))
        axis.set_ylabel(f"queries per {unit}second")
        axis.set_title(f"{title}, k = {k}, batches of {batch:,}\nup and right is better", fontsize=9)
        legend_below(axis)
    figure.tight_layout()
    save(figure, folder, name)


def legend_below(axis, *handles):
    """Under the axis, where it hides no line."""
    names = axis.get_legend_handles_labels()[1]
    if names:
        axis.legend(*handles, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.15), frameon=False,
                    ncols=3 if max(map(len, names)) < 16 else 2)


def draw_latency(points, k, folder):
    points = [p for p in points if p["k"] == k and p["batch"] == 1 and p["threads"] == 1
              and p.get("buffers", "host") == "host" and p.get("mode") != "throughput"]
    figure, axis = plt.subplots(figsize=(WIDTH, 4.7))
    draw_front(axis, points, "latency_p50", min, 1e3)
    handles = axis.get_legend_handles_labels()
    draw_front(axis, points, "latency_p99", min, 1e3, linestyle=":", alpha=0.8)
    axis.set_yscale("log")
    plain_numbers(axis)
    recall_axis(axis, lowest_recall(points))
    axis.set_ylabel("milliseconds")
    axis.set_title(f"One query at a time, k = {k}; down and right is better\n"
                   "solid: median, dotted: 99th percentile", fontsize=9)
    legend_below(axis, *handles)
    figure.tight_layout()
    save(figure, folder, "latency")


def band_times(points, k):
    """{algorithm: [mean build time of the indexes that reach the band, or None]}; a way to search an index
    that has a name of its own is no way to build one."""
    points = [p for p in points if p.get("procedure") in (None, "", "auto")]
    out = {}
    for name, members in by_algorithm(points, k=k).items():
        row = []
        for low, high, _ in BANDS:
            times = {p["index_name"]: p["build time"] for p in members if low <= p["recall"] < high}
            row.append(float(np.mean(list(times.values()))) if times else None)
        if not name.endswith(("flat", "brute_force")):  # which build nothing
            out[name] = row
    return out


def draw_build(points, k, folder, unit):
    bands = band_times(points, k)
    figure, axis = plt.subplots(figsize=(WIDTH, 4.4))
    width = 0.8 / max(1, len(bands))
    for i, (name, times) in enumerate(bands.items()):
        places = [b + (i - (len(bands) - 1) / 2) * width for b in range(len(BANDS))]
        shown = [(x, t) for x, t in zip(places, times) if t is not None]
        if not shown:
            continue
        axis.bar(*zip(*shown), width=0.92 * width, color=style(name)[0], label=name)
        for x, t in shown:
            axis.annotate(f"{t:.1f}" if t >= 1 else f"{t:.2f}", (x, t), (0, 2), textcoords="offset points",
                          ha="center", va="bottom", fontsize=6.5, rotation=90 if len(bands) > 4 else 0)
    axis.set_xticks(range(len(BANDS)), [label for _, _, label in BANDS], fontsize=8)
    axis.set_xlabel(f"recall@{k} that the index reaches at some effort")
    axis.set_ylabel(f"{unit}seconds to build, all threads")
    axis.grid(True, axis="y", color="#dddddd", linewidth=0.6)
    axis.set_axisbelow(True)
    axis.margins(y=0.12)
    found = [t for times in bands.values() for t in times if t is not None]
    if found and max(found) > 50 * min(found):
        axis.set_yscale("log")
        plain_numbers(axis)
    legend_below(axis)
    axis.set_title("Build time by recall band; lower is better", fontsize=10)
    figure.tight_layout()
    save(figure, folder, "build")


def draw_scale(points, k, folder, unit):
    """Build time, and the time of a query at a recall of at least 0.95, against the rows."""
    figure, axes = plt.subplots(2, 1, figsize=(WIDTH, 8.2))
    points = [p for p in points if p.get("buffers", "host") == "host"]
    for name, members in by_algorithm(points, k=k).items():
        color, marker = style(name)
        line = {"color": color, "marker": marker, "markersize": 4, "label": name}
        builds, queries = {}, {}
        for point in members:
            n = point["rows"]
            builds[n] = min(builds.get(n, np.inf), point["build time"])
            if point["recall"] >= 0.95 and point["threads"] == 1:
                queries[n] = min(queries.get(n, np.inf), 1e3 / point["throughput"])
        if not name.endswith(("exact", "flat", "brute_force")):
            axes[0].plot(*zip(*sorted(builds.items())), **line)
        if queries:
            axes[1].plot(*zip(*sorted(queries.items())), **line)
    counts = sorted({p["rows"] for p in points})
    for axis, label in zip(axes, (f"{unit}seconds to build, all threads",
                                  f"{unit}ms for a query at recall 0.95, one thread")):
        axis.set_xscale("log")
        axis.set_yscale("log")
        plain_numbers(axis)
        axis.set_xticks(counts, [f"{n:,}" for n in counts], fontsize=8)
        axis.xaxis.set_minor_locator(matplotlib.ticker.NullLocator())
        axis.set_xlabel("rows")
        axis.set_ylabel(label, fontsize=9)
        axis.grid(True, color="#dddddd", linewidth=0.6)
        legend_below(axis)
    figure.suptitle("Cost against the number of rows; lower is better", fontsize=10)
    figure.tight_layout()
    save(figure, folder, "scale")


# --- Tables ---------------------------------------------------------------------------------------

def write_csv(path, records):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)


def write_fronts(points, folder):
    for key, better in (("throughput", max), ("latency", min)):
        kept = []
        settings = sorted({(p["k"], p["batch"], p["threads"], p.get("buffers", "host"), p["algo_name"])
                           for p in points})
        for k, batch, threads, buffers, name in settings:
            some = [p for p in by_algorithm(points, k=k, batch=batch, threads=threads).get(name, [])
                    if p.get("buffers", "host") == buffers]
            best = set(front([(p["recall"], p[key]) for p in some], better))
            kept += [p for p in some if (p["recall"], p[key]) in best]
        write_csv(folder / f"results.{key}.csv", kept)


def table(head, rows):
    cells = "".join(f"<th>{html.escape(str(cell))}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) + "</tr>"
                   for row in rows)
    return f'<div class="wide"><table><tr>{cells}</tr>{body}</table></div>'


def best_rates(points, k):
    """Highest throughput at each target recall: one thread, large batches; a table for each place that
    queries and results lie in."""
    some = [p for p in points if p["k"] == k and p["batch"] > 1 and p.get("mode") != "throughput"]
    if any(p.get("buffers") == "device" for p in some):
        some = at_their_largest(some)
    else:
        largest = max((p["batch"] for p in some), default=1)
        some = [p for p in some if p["threads"] == 1 and p["batch"] == largest]
    places = sorted({p.get("buffers", "host") for p in some})
    out = ""
    for place in places:
        rows = []
        for name, members in by_algorithm(some).items():
            members = [p for p in members if p.get("buffers", "host") == place]
            row = [name]
            for target in TARGETS:
                rates = [p["throughput"] for p in members if p["recall"] >= target]
                row.append(f"{max(rates):,.0f}" if rates else "not reached")
            if members:
                rows.append(row)
        head = "" if len(places) == 1 else f"{place} memory"
        out += table([head, *(f"recall {t:.2f}" for t in TARGETS)], rows)
    return out


def by_batch(points, k, target=0.95):
    """Throughput and median latency at a recall of at least `target`, for every size of batch."""
    some = [p for p in points if p["k"] == k and p["threads"] == 1 and p.get("mode") != "throughput"
            and p.get("buffers", "host") == "host" and p["recall"] >= target]
    batches = sorted({p["batch"] for p in some})
    if len(batches) < 3:
        return ""
    rows = []
    for name, members in by_algorithm(some).items():
        row = [name]
        for batch in batches:
            best = max((p for p in members if p["batch"] == batch), key=lambda p: p["throughput"],
                       default=None)
            row.append("" if best is None
                       else f"{best['throughput']:,.0f} ({plain(1e3 * best['latency_p50'])} ms)")
        rows.append(row)
    return table(["", *(f"batch {batch:,}" for batch in batches)], rows)


def callers(points, k):
    """Throughput of several callers at once."""
    some = [p for p in points if p["k"] == k and p.get("mode") == "throughput"]
    counts = sorted({p["threads"] for p in some})
    rows = [[f"{name}, batches of {batch:,}"] + [
        f"{max((p['throughput'] for p in members if (p['batch'], p['threads']) == (batch, count)), default=0):,.0f}"
        for count in counts]
        for name, members in by_algorithm(some).items() for batch in sorted({p["batch"] for p in members})]
    return table(["queries/s", *(f"{count} caller{'s' * (count > 1)}" for count in counts)], rows) \
        if rows else ""


def builds(records):
    rows, seen = [], collections.defaultdict(list)
    for record in records:
        if record["record"] == "build":
            seen[record["index_name"]].append(record)
    for name, members in seen.items():
        def mean(key, scale=1.0):
            values = [m[key] for m in members if m.get(key) is not None]
            return f"{scale * np.mean(values):,.2f}" if values else ""
        rows.append([name, len(members), mean("time"), mean("cpu_time"), members[0]["threads"],
                     mean("index_size", 1e-6), mean("peak_host_memory", 1e-6),
                     mean("peak_device_memory", 1e-6) if members[0].get("GPU") else "",
                     mean("first_call", 1e3)])
    return table(["index", "builds", "build s", "processor s", "threads", "index MB", "peak host MB",
                  "peak GPU MB", "first call ms"], rows)


def spreads(points, k):
    rows = []
    largest = max((p["batch"] for p in points), default=1)
    for point in points:
        if len(point["recalls"]) > 1 and point["k"] == k and point["batch"] > 1 \
                and point["threads"] == 1 and point["algo_name"] == "gannet" \
                and point["batch"] == largest and point.get("buffers", "host") == "host":
            rows.append([point["search_label"], len(point["recalls"]),
                         f"{point['recall']:.4f}",
                         f"{min(point['recalls']):.4f} to {max(point['recalls']):.4f}",
                         f"{point['recall_by_distance']:.4f}", f"{point['throughput']:,.0f}",
                         f"{min(point['throughputs']):,.0f} to {max(point['throughputs']):,.0f}"])
    return table(["effort", "seeds", "recall", "lowest to highest", "by distance", "queries/s",
                  "lowest to highest"], rows) if rows else ""


PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; color: #222; background: #fff; margin: 0 auto;
       padding: 1em; max-width: 46em; }}
h1 {{ font-size: 1.5em; line-height: 1.25; }} h2 {{ font-size: 1.15em; margin-top: 2em; }}
svg {{ width: 100%; height: auto; display: block; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-size: 0.85em; margin: 0.5em 0; }}
th, td {{ text-align: right; padding: 0.25em 0.6em; border-bottom: 1px solid #ddd;
         white-space: nowrap; }}
th:first-child, td:first-child {{ text-align: left; }}
code {{ font-size: 0.85em; overflow-wrap: anywhere; }}
small {{ color: #555; }}
</style></head><body>
{body}
</body></html>
"""


def write_page(run, records, points, k, folder, with_scale, with_k100, unit):
    def picture(name):
        text = (folder / (name + ".svg")).read_text(encoding="utf-8")
        return text[text.index("<svg"):]

    def section(title, *parts):
        return f"<h2>{html.escape(title)}</h2>" + "".join(parts)

    data = (f"{run.get('data', '?')}: {run.get('rows', 0):,} rows of {run.get('dim', '?')} "
            f"{run.get('element', '')} values, {run.get('metric', '')}, "
            f"{run.get('queries', 0):,} queries")
    title = f"Gannet beside others on {run.get('data', '?')}"
    # One line for each, though it may have been measured in several runs.
    peers = list({r["name"]: r for r in records if r["record"] == "peer"}.values())
    body = [
        f"<h1>{html.escape(title)}</h1><p>{html.escape(data)}. Recall is by row number, against exact "
        f"search; k = {k}. Each line joins the points of a library that none of its others "
        "beats. Gannet and CAGRA of cuVS store the values as they are in the file, the others as "
        "f32, usearch as f16 where that loses nothing.</p>",
        section("Recall and throughput", picture("throughput"), best_rates(points, k),
                f"<p><small>Queries per {unit}second, one caller, the best point of at least the "
                "recall.</small></p>"),
        section("Recall and throughput, k = 100", picture("throughput_k100")) if with_k100 else "",
        section("One query to many at recall 0.95", batches, "<p><small>Queries a second, and the "
                "median time of a call; from and to the host's memory.</small></p>")
        if (batches := by_batch(points, k)) else "",
        section("Recall and latency", picture("latency"),
                "<p><small>The peers are called through Python, which adds some microseconds to each "
                "call; gannet-bench calls from C++. In large batches, as above, this does not "
                "count.</small></p>"),
        section("Several callers at once", several) if (several := callers(points, k)) else "",
        section("Build time", picture("build"), builds(records)),
    ]
    if with_scale:
        body.append(section("Cost against the number of rows", picture("scale")))
    if unit:
        body.append("<p><small>The machine had other work, so throughput and build times are counted "
                    "in processor seconds; latencies are what the clock on the wall says.</small></p>")
    if spread := spreads(points, k):
        body.append(section("Spread over seeds of the build", spread))
    body.append(section("What was compared", table(
        ["library", "state", "version or reason"],
        [["gannet", "measured", f"{run.get('version', '')} ({run.get('commit', '')})"]]
        + [[p["name"], p["state"], p.get("version", p.get("reason", ""))] for p in peers])))
    machine = [["machine", f"{run.get('machine', '')}, {run.get('cores', '')} cores, "
                           f"{run.get('memory', 0) / 2**30:.0f} GiB"],
               *([["GPU", run["gpu"]]] if "gpu" in run else []),
               ["load when it began", run.get("load_at_start", "")],
               ["library", run.get("compiler", "")], ["date", run.get("date", "")],
               ["command", run.get("command", "")]]
    body.append(section("Machine", "".join(
        f"<p><b>{name}</b> <code>{html.escape(str(value))}</code></p>" for name, value in machine)))
    (folder / "report.html").write_text(PAGE.format(title=html.escape(title), body="\n".join(body)),
                                        encoding="utf-8")


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("records", nargs="+")
    parser.add_argument("--out", required=True)
    parser.add_argument("--scale", action="append", default=[])
    parser.add_argument("-k", type=int, default=10)
    parser.add_argument("--clock", choices=["wall", "processor"], default="wall")
    options = parser.parse_args(arguments)
    unit = "" if options.clock == "wall" else "processor "
    folder = pathlib.Path(options.out)
    os.makedirs(folder, exist_ok=True)
    plt.rcParams.update({"svg.fonttype": "none", "font.family": "sans-serif"})

    run, records = read_records(options.records)
    points = grouped(records, options.clock)
    write_csv(folder / "results.csv", [r for r in records if r["record"] == "search"])
    write_fronts(points, folder)
    draw_throughput(points, options.k, folder, unit)
    with_k100 = options.k != 100 and any(p["k"] == 100 for p in points)
    if with_k100:
        draw_throughput(points, 100, folder, unit, "throughput_k100")
    draw_latency(points, options.k, folder)
    draw_build(points, options.k, folder, unit)
    if options.scale:
        _, scale_records = read_records(options.scale)
        draw_scale(grouped(scale_records + records, options.clock), options.k, folder, unit)
    write_page(run, records, points, options.k, folder, bool(options.scale), with_k100, unit)
    print(folder / "report.html")


if __name__ == "__main__":
    main()
