#!/usr/bin/env python3
"""Makes which_wins.md of what which_wins has measured.

    which_wins.py add RESULT.jsonl ...   appends what counts of runs to results.csv, and writes the page
    which_wins.py add --as NAME RESULT.jsonl ...
                                         likewise, but under that name and whole: figures of their own, not the page's
    which_wins.py                        writes which_wins.md from the rows of results.csv
    which_wins.py --check                exit status 1 if the page is not what results.csv holds

Of each cell (set, k, batch, recall) results.csv gets the fastest named procedure of each graph, and AUTO on the
default's graph; of each graph how long its build took and what stages have left of its edges. The page shows what
was measured last: of each device the sets of one commit.
"""

import csv
import json
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
PAGE = HERE / "which_wins.md"
TABLE = HERE / "results.csv"
COLUMNS = ["date", "commit", "device", "data", "parameters", "recall", "figure"]
MARGIN = 1.1  # AUTO within that of the fastest is not worth a line
PROMISED = 0.01  # what AUTO may find less than it was asked for

INTRO = """\
# Which graph and which procedure wins where

Made by `which_wins.py` from rows of [`results.csv`](results.csv), which `which_wins` has measured: one run a set,
queries and results in host memory, medians; one thread of a CPU by its processor time. Each cell names the graph and
the procedure that answer fastest of those whose knob reaches the recall (of AUTO's graph `auto`, CAGRA's, GGNN's and
TSDG's with their defaults, and all procedures), and after it the rate of AUTO on its own graph as a share of that.
AUTO was asked for the recall, and often finds more; where it finds more than 0.01 less there is a dash.
"""


def fastest(points):
    return min(points, key=lambda point: point["seconds"])


def rate(point):
    return point["batch"] / point["seconds"]


def number(value):
    return f"{value:.4g}"


def rows_of_run(lines, name=""):
    """Rows of results.csv of one run; all its points if it has a name."""
    run = lines[0]
    head = [run["date"][:10], run["commit"], run["device_name"], run["data"]]
    start = "which_wins" + (f", {name}" if name else "") + f"; device {run['device']}"
    if run.get("threads"):
        start += f"; {run['threads']} thread"

    def row(parameters, figure, recall=None):
        return head + [f"{start}; {parameters}", "" if recall is None else f"{recall:.4f}", figure]
    rows = []
    for build in (line for line in lines if line["record"] == "build"):
        graph = f"graph {build['graph']}"
        rows.append(row(f"{graph}; build", f"{build['seconds']:.3f} s"))
        rows += [row(f"{graph}; build, {phase}", f"{seconds:.3f} s")
                 for phase, seconds in build["phases"].items()]
        rows.append(row(f"{graph}; edges of a row", f"{build['edges']:.1f}"))
        if build.get("device_bytes"):
            rows.append(row(f"{graph}; device memory of the build at most; estimate "
                            f"{build['device_bytes_estimated'] / 1e6:.0f} MB",
                            f"{build['device_bytes'] / 1e6:.0f} MB"))
        if "relaxed_share" in build:
            rows.append(row(f"{graph}; share of edges that stage one keeps", f"{build['relaxed_share']:.4f}"))
    points = [line for line in lines if line["record"] == "point"]
    cells = sorted({(point["k"], point["batch"], point["wanted"]) for point in points})
    graphs = list(dict.fromkeys(point["graph"] for point in points))
    for k, batch, wanted in cells:
        here = [p for p in points if (p["k"], p["batch"], p["wanted"]) == (k, batch, wanted)]
        cell = f"k={k}; batch {batch}"
        for graph in graphs:
            named = [p for p in here if p["graph"] == graph and p["procedure"] != "auto"]
            for best in named if name else [fastest(named)] if named else []:
                rows.append(row(f"graph {graph}; {cell}; reaches {wanted:g}; {best['procedure']} {best['knob']} "
                                f"{best['value']:g}", f"{number(rate(best))} queries/s", best["recall"]))
            asked = [p for p in here if p["graph"] == graph and p["procedure"] == "auto"]
            if asked and graph == "auto":
                rows.append(row(f"graph auto; {cell}; asked {wanted:g}; auto takes {asked[0]['knob']}",
                                f"{number(rate(asked[0]))} queries/s", asked[0]["recall"]))
    return rows


POINT = re.compile(r"which_wins; device (?P<device>\w+)(?:; (?P<threads>\d+) thread)?; graph (?P<graph>\S+); "
                   r"k=(?P<k>\d+); batch (?P<batch>\d+); (?P<how>reaches|asked) (?P<wanted>[\d.]+); "
                   r"(?P<what>.+)")


def points_of_table(rows):
    """The points of each set and device, by both; of each device those of the commit that was measured last."""
    sets = {}
    measured = [(row, found) for row in rows if (found := POINT.fullmatch(row["parameters"]))]
    last = {row["device"]: row["commit"] for row, _ in measured}
    for row, found in measured:
        if row["commit"] != last[row["device"]]:
            continue
        point = found.groupdict() | {"rate": float(row["figure"].split()[0]), "recall": float(row["recall"]),
                                     "commit": row["commit"]}
        cells = sets.setdefault((row["device"], row["data"], point["threads"] or ""), {})
        cells[point["graph"], point["how"], point["k"], point["batch"], point["wanted"]] = point
    return {key: list(cells.values()) for key, cells in sets.items()}


def rate_text(value):
    if value >= 1e6:
        return f"{value / 1e6:.3g} M/s"
    return f"{value / 1e3:.3g} k/s"


def name_of(point):
    return f"{point['graph']}, {point['what'].split()[0]}"


class Cell:
    """All that was measured of one (k, batch, recall)."""

    def __init__(self, points):
        self.reached = [p for p in points if p["how"] == "reaches"]
        asked = [p for p in points if p["how"] == "asked"]
        self.auto = asked[0] if asked else None
        served = self.auto and self.auto["recall"] >= float(self.auto["wanted"]) - PROMISED
        self.served = self.auto if served else None
        ways = self.reached + ([self.served] if served else [])
        self.best = max(ways, key=lambda p: p["rate"]) if ways else None

    def text(self):
        if not self.best:
            return ""
        share = f"{self.served['rate'] / self.best['rate']:.2f}" if self.served else "-"
        what = "AUTO" if self.best is self.auto else name_of(self.best)
        return f"{what} {rate_text(self.best['rate'])} ({share})"

    def faster(self, own):
        """The way that is faster than AUTO by more than the margin, on AUTO's own graph or on another."""
        ways = [p for p in self.reached if (p["graph"] == "auto") == own]
        if not ways or not self.served:
            return None
        best = max(ways, key=lambda p: p["rate"])
        return best if best["rate"] > MARGIN * self.served["rate"] else None


def cells_of(points):
    cells = {}
    for point in points:
        cells.setdefault((int(point["k"]), int(point["batch"]), float(point["wanted"])), []).append(point)
    return {key: Cell(some) for key, some in sorted(cells.items())}


def set_page(title, cells):
    recalls = sorted({recall for _, _, recall in cells})
    lines = [f"### {title}", "", "| k | batch | " + " | ".join(f"{r:.2f}" for r in recalls) + " |",
             "|---|---|" + "---|" * len(recalls)]
    for k, batch in sorted({key[:2] for key in cells}):
        texts = [cells[k, batch, r].text() if (k, batch, r) in cells else "" for r in recalls]
        lines.append(f"| {k} | {batch:,} | " + " | ".join(texts) + " |")
    return lines + [""]


def lists_of_faster(all_cells):
    lines = []
    for own, title, text in (
            (True, "Where another procedure is faster on AUTO's own graph",
             "AUTO chooses by counted work and could have taken these."),
            (False, "Where another graph is faster than AUTO on its own",
             "What a build with that graph, and that procedure by name, would give.")):
        lines += [f"## {title}", "", text + " By more than 10 %; rates beside AUTO's.", "",
                  "| set | k | batch | recall | faster | AUTO took | times AUTO's rate |", "|---|---|---|---|---|---|---|"]
        for title, cells in all_cells:
            for (k, batch, recall), cell in cells.items():
                best = cell.faster(own)
                if best:
                    took = cell.auto["what"].removeprefix("auto takes ")
                    lines.append(f"| {title} | {k} | {batch:,} | {recall:.2f} | {name_of(best)} "
                                 f"{' '.join(best['what'].split()[1:])} | {took} | "
                                 f"{best['rate'] / cell.auto['rate']:.2f} |")
        lines.append("")
    return lines


def sums_of(all_cells):
    cells = [cell for _, some in all_cells for cell in some.values() if cell.auto]
    served = [cell for cell in cells if cell.served]
    own = sum(1 for cell in served if not cell.faster(True))
    other = sum(1 for cell in served if cell.faster(False))
    return (f"Of {len(cells)} cells AUTO finds what it was asked for in {len(served)}; of these no procedure of its own "
            f"graph is more than 10 % faster in {own}, and one of another graph is in {other}.")


def page_of(rows):
    sets = points_of_table(rows)
    devices = list(dict.fromkeys(device for device, _, _ in sets))
    body, everything = [], []
    for device in devices:
        some = [(data + (f", {threads} thread" if threads else ""), points)
                for (where, data, threads), points in sets.items() if where == device]
        all_cells = [(title, cells_of(points)) for title, points in some]
        body += [f"## {device}", "", sums_of(all_cells), ""]
        for title, cells in all_cells:
            body += set_page(title, cells)
        everything += all_cells
    return INTRO + "\n" + "\n".join(body + lists_of_faster(everything)).rstrip() + "\n"


def read_table(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def add(paths, table, name):
    with open(table, "a", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        for path in paths:
            lines = [json.loads(line) for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines()]
            writer.writerows(rows_of_run(lines, name))


def main():
    arguments = sys.argv[1:]
    if arguments[:2] == ["add", "--as"]:
        add(arguments[3:], TABLE, arguments[2])
    elif arguments[:1] == ["add"]:
        add(arguments[1:], TABLE, "")
    elif arguments not in ([], ["--check"]):
        sys.exit(__doc__)
    page = page_of(read_table(TABLE))
    if arguments == ["--check"]:
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page:
            sys.exit(f"{PAGE.name} is not what {TABLE.name} holds; run which_wins.py")
        return
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
