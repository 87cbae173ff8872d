# %% [markdown]
# # Handwritten digits and SIFT: nearest neighbours of real data
#
# 1,797 digits of 8 x 8 pixels that people wrote, which scikit-learn has with it, and 10,000 SIFT descriptors of
# photographs, which lie in `examples/data`. Needed: `gannet-ann`, `scikit-learn`. This notebook is made from
# `digits.py` by `make_notebook.py`, which runs it; it can be run as a program as well.

# %%
import pathlib

import numpy as np
from sklearn.datasets import load_digits

import gannet

digits = load_digits()
pixels, labels = digits.data.astype(np.float32), digits.target
rows, queries = pixels[:-297], pixels[-297:]
index = gannet.build(rows)
print(index.info.rows, "rows of", index.info.dim, index.info.dtype)

# %% [markdown]
# ## What lies near a digit
#
# Left a digit that is not in the index, beside it the ten that lie nearest. Each search reads a part of the index
# only; `recall` says which share of the true neighbours it is to find.

# %%
class Picture:
    """Lines of pictures in grey, [lines, columns, height, width] from 0 (white) to 1, as notebooks show them."""

    def __init__(self, pictures, zoom=4, gap_after=0):
        lines, columns, height, width = pictures.shape
        step = (width + 1) * zoom
        squares = []
        for line, column, y, x in zip(*np.nonzero(pictures > 0.05)):
            grey = round(255 * (1 - float(pictures[line, column, y, x])))
            left = column * step + (2 * zoom if column > gap_after else 0) + x * zoom
            squares.append(f'<path fill="rgb({grey},{grey},{grey})" d="M{left} {line * step + y * zoom}'
                           f'h{zoom}v{zoom}h-{zoom}z"/>')
        self.svg = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{columns * step + 2 * zoom}" '
                    f'height="{lines * step}">' + "".join(squares) + "</svg>")

    def _repr_svg_(self):
        return self.svg


found = index.search(queries, k=10, recall=0.99)
shown = range(0, 60, 10)
Picture(np.stack([np.concatenate([queries[i:i + 1], rows[found.ids[i]]]).reshape(-1, 8, 8) / 16 for i in shown]))

# %% [markdown]
# ## Reading digits
#
# The digit that most of the neighbours show is what was written, nearly always.

# %%
votes = labels[:-297][found.ids]
read = np.array([np.bincount(vote, minlength=10).argmax() for vote in votes])
wrong = np.nonzero(read != labels[-297:])[0]
print(f"{len(queries) - len(wrong)} of {len(queries)} are read right")
for i in wrong[:3]:
    print(f"  {labels[-297 + i]} was taken for {read[i]}, by neighbours {votes[i].tolist()}")

# %%
Picture(np.stack([np.concatenate([queries[i:i + 1], rows[found.ids[i]]]).reshape(-1, 8, 8) / 16 for i in wrong[:3]]))

# %% [markdown]
# ## Recall as asked for
#
# The share of the true neighbours that searches find, which exact search tells. The build learns how much work
# each recall takes.

# %%
def vectors_of(path):
    """Rows of a .u8bin file, [n, dim] uint8."""
    count, dim = np.fromfile(path, np.uint32, 2)
    return np.fromfile(path, np.uint8, offset=8).reshape(count, dim)


here = pathlib.Path(globals().get("__file__", "digits.py")).resolve().parent
sift = gannet.build(vectors_of(here.parent / "data/sift_10k.u8bin"), degree=16)
asked = vectors_of(here.parent / "data/sift_queries.u8bin")
truth = sift.exact(asked, k=10).distances
got = {}
for recall in (0.5, 0.7, 0.8, 0.9, 0.95, 0.99):
    distances = sift.search(asked, k=10, recall=recall).distances
    got[recall] = float((distances <= truth[:, -1:]).mean())
    print(f"asked for {recall:.2f}, got {got[recall]:.4f}, with a beam of {sift.beam(10, recall)}")

# %%
class Curve:
    """Recall got over recall asked for; on the grey line both are the same."""

    def __init__(self, points, size=320):
        at = lambda x, y: f"{30 + x * (size - 40):.1f},{(1 - y) * (size - 40) + 10:.1f}"
        line = " ".join(at(2 * x - 1, 2 * y - 1) for x, y in points.items())
        dots = "".join('<circle r="4" fill="#1666a8" cx="{}" cy="{}"/>'.format(*at(2 * x - 1, 2 * y - 1).split(","))
                       for x, y in points.items())
        ends = f'{at(0, 0)} {at(1, 1)}'
        self.svg = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{size}" height="{size}" font-size="12">'
                    f'<polyline points="{ends}" stroke="#bbb" fill="none"/>'
                    f'<polyline points="{line}" stroke="#1666a8" stroke-width="2" fill="none"/>{dots}'
                    f'<text x="30" y="{size - 8}">asked for, 0.5 to 1</text>'
                    f'<text transform="translate(20 {size - 32}) rotate(-90)">got, 0.5 to 1</text></svg>')

    def _repr_svg_(self):
        return self.svg


Curve(got)

# %% [markdown]
# ## To a file and back
#
# A saved index answers as the one that was saved, bit for bit, and opens without a build.

# %%
import tempfile

with tempfile.TemporaryDirectory() as folder:
    sift.save(f"{folder}/sift.gannet")
    opened = gannet.open(f"{folder}/sift.gannet")
    same = opened.search(asked, k=10)
    print("the same answers:", bool((same.ids == sift.search(asked, k=10).ids).all()))
