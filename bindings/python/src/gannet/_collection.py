"""What the stores for LangChain and LlamaIndex are made of: items with vectors, by name, and an index over them."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any, Callable, Generic, Iterable, Sequence, TypeVar

import numpy as np

from . import _index
from .errors import CorruptFile, InvalidArgument

Item = TypeVar("Item")
Vector = Any


class Collection(Generic[Item]):
    """Items and their vectors, in this process. Any number of threads may search and change it.

    An index is made in one go, so the first search after a change makes it anew from all vectors.

    metric, build  of gannet.build(), `build` with its other arguments
    """

    def __init__(self, metric: str, build: dict[str, Any]) -> None:
        self.metric = metric
        self._build = build
        self._lock = threading.Lock()
        self._items: dict[str, Item] = {}
        self._vectors: dict[str, np.ndarray[Any, Any]] = {}
        self._index: tuple[_index.Index, list[Item]] | None = None  # and the item of each of its rows

    def __len__(self) -> int:
        return len(self._items)

    def put(self, names: Sequence[str], items: Sequence[Item], vectors: Any) -> None:
        """Adds items, or replaces those of the same name; vectors are kept as float32."""
        rows = np.asarray(vectors, np.float32)
        if not len(names) == len(items) == len(rows):
            raise InvalidArgument(f"{len(names)} names, {len(items)} items and {len(rows)} vectors; "
                                  "expected as many of each")
        with self._lock:
            self._items.update(zip(names, items))
            self._vectors.update(zip(names, rows))
            self._index = None

    def remove(self, names: Iterable[str] | None) -> None:
        """Takes items out, all of them for None. Names that are not there are passed over."""
        with self._lock:
            for name in list(self._items) if names is None else names:
                self._items.pop(name, None)
                self._vectors.pop(name, None)
            self._index = None

    def get(self, names: Iterable[str]) -> list[Item]:
        """The items of those names that are there."""
        return [self._items[name] for name in names if name in self._items]

    def all(self) -> dict[str, Item]:
        """A copy of all items, by name."""
        with self._lock:
            return dict(self._items)

    def index(self) -> _index.Index:
        """The index as it is searched."""
        with self._lock:
            return self._built()[0]

    def nearest(self, query: Any, k: int,
                takes: Callable[[Item], bool] | None = None) -> list[tuple[Item, float, Vector]]:
        """The k nearest items with distances and vectors. `takes` is asked about each item that is met; where it
        takes few, ever more neighbours are looked at."""
        with self._lock:
            index, items = self._built()
        if not items:
            return []
        wanted = k
        while True:
            rows, distances = index.search(np.asarray(query, np.float32), min(wanted, len(items)))
            found = [(items[row], float(distance), index[row])
                     for row, distance in zip(rows.tolist(), distances)
                     if row >= 0 and (takes is None or takes(items[row]))][:k]
            if takes is None or len(found) == k or wanted >= len(items):
                return found
            wanted *= 4

    def likeness(self, distance: float) -> float:
        """A distance as a score that is larger where items are nearer: 1 for equal ones by "cos" and "l2"."""
        if self.metric == "l2":
            return 1 / (1 + distance)
        return 1 - distance if self.metric == "cos" else -distance

    def _built(self) -> tuple[_index.Index, list[Item]]:
        if self._index is None:
            rows = np.stack(list(self._vectors.values())) if self._vectors else np.empty((0, 1), np.float32)
            self._index = (_index.build(rows, metric=self.metric, **self._build),
                           [self._items[name] for name in self._vectors])
        return self._index

    # --- Two files, of the index and of the items -----------------------------------------------------------------

    def save(self, index_path: Path, items_path: Path, parts: Callable[[Item], list[Any]]) -> None:
        """Saves to two files; `parts` makes of an item its name and what else JSON is to hold."""
        index_path.parent.mkdir(parents=True, exist_ok=True)
        with self._lock:
            index, items = self._built()
            content = {"metric": self.metric, "content_id": None, "documents": [parts(item) for item in items]}
            index.save(index_path)
        content["content_id"] = _content_id(index_path)  # says that the two belong together
        beside = items_path.with_name(items_path.name + ".part")
        beside.write_text(json.dumps(content), encoding="utf-8")
        beside.replace(items_path)

    @classmethod
    def open(cls, index_path: Path, items_path: Path, item: Callable[..., Item],
             build: dict[str, Any]) -> Collection[Item]:
        """Opens what save() saved; `item` makes an item of its parts. Raises what gannet.open() raises, and
        CorruptFile where the two files do not belong together."""
        content = json.loads(items_path.read_text(encoding="utf-8"))
        made = cls(content["metric"], build)
        index = _index.open(index_path, recall=build.get("recall"))
        names = [name for name, *_ in content["documents"]]
        if _content_id(index_path) != content["content_id"] or len(index) != len(names):
            raise CorruptFile(f"{index_path} and {items_path} are of two different saves")
        made._items = {parts[0]: item(*parts) for parts in content["documents"]}
        made._vectors = dict(zip(names, np.asarray(index[index.ids], np.float32)))
        made._index = index, list(made._items.values())
        return made


def _content_id(path: Path) -> str:
    from . import file_info
    return file_info(path).content_id
