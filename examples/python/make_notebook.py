#!/usr/bin/env python3
"""Makes digits.ipynb from digits.py: runs its cells, and puts them and what they show into a notebook.

    make_notebook.py           writes digits.ipynb beside this file
    make_notebook.py --check   exit status 1 if a cell does not run, or is not in the notebook as it is here

Cells begin with "# %%" or "# %% [markdown]". What a cell prints, and the picture that its last line is, are its
outputs. They are the same wherever one version of the library runs; a better walk may find another neighbour, so
--check compares of outputs their kinds alone, and says which differ. No Jupyter is needed.
"""

import ast
import contextlib
import io
import json
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
SOURCE, NOTEBOOK = HERE / "digits.py", HERE / "digits.ipynb"


def cells_of(text):
    """The cells as (is text, source)."""
    cells = []
    for head, body in re.findall(r"^# %%([^\n]*)\n(.*?)(?=^# %%|\Z)", text, re.M | re.S):
        body = body.strip("\n")
        markdown = "[markdown]" in head
        if markdown:
            body = re.sub(r"^# ?", "", body, flags=re.M)
        cells.append((markdown, body))
    return cells


def run(source, names):
    """Runs a cell; what it printed and the value of its last line, if that is an expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, str(SOURCE), "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), str(SOURCE), "eval"), names)
    return printed.getvalue(), value


def lines_of(text):
    return text.splitlines(keepends=True)


def notebook():
    names = {"__file__": str(SOURCE), "__name__": "__main__"}
    cells = []
    for number, (markdown, source) in enumerate(cells_of(SOURCE.read_text(encoding="utf-8"))):
        cell = {"cell_type": "markdown" if markdown else "code", "id": f"cell-{number}", "metadata": {},
                "source": lines_of(source)}
        if not markdown:
            printed, value = run(source, names)
            count = 1 + sum(before["cell_type"] == "code" for before in cells)
            cell.update(execution_count=count, outputs=[])
            if printed:
                cell["outputs"].append({"name": "stdout", "output_type": "stream", "text": lines_of(printed)})
            if hasattr(value, "_repr_svg_"):
                cell["outputs"].append({"data": {"image/svg+xml": [value._repr_svg_()]}, "execution_count": count,
                                        "metadata": {}, "output_type": "execute_result"})
        cells.append(cell)
    return {"cells": cells, "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python",
                                                        "name": "python3"},
                                         "language_info": {"name": "python"}},
            "nbformat": 4, "nbformat_minor": 5}


def form_of(made):
    """Cells as they are, and of each output its kind."""
    return [(cell["cell_type"], cell["source"],
             [(output["output_type"], sorted(output.get("data", {}))) for output in cell.get("outputs", [])])
            for cell in made["cells"]]


def main():
    made = json.dumps(notebook(), indent=1) + "\n"
    if "--check" not in sys.argv[1:]:
        NOTEBOOK.write_text(made, encoding="utf-8")
        return 0
    kept = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    if form_of(json.loads(made)) != form_of(kept):
        print("make_notebook: digits.ipynb is not what digits.py makes; run make_notebook.py", file=sys.stderr)
        return 1
    cells = list(zip(json.loads(made)["cells"], kept["cells"]))
    other = [i for i, (one, old) in enumerate(cells) if one.get("outputs") != old.get("outputs")]
    print(f"make_notebook: {len(cells)} cells run"
          + (f"; cells {other} show something else than the notebook" if other else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
