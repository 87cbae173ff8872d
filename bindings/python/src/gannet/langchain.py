"""For LangChain: GannetVectorStore, a vector store that keeps its documents beside the index. Needs langchain-core.

>>> from langchain_core.embeddings import DeterministicFakeEmbedding
>>> from gannet.langchain import GannetVectorStore
>>> store = GannetVectorStore.from_texts(["cats purr", "dogs bark"], DeterministicFakeEmbedding(size=64))
>>> store.similarity_search("dogs bark", k=1)[0].page_content
'dogs bark'

An index is made in one go, so the first search after a change makes it anew from all vectors, which takes some
seconds per 100,000 of them. Add documents in large portions.
"""

from __future__ import annotations

import json
import os
import threading
import uuid
from pathlib import Path
from typing import Any, Callable, Iterable, Sequence

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import VectorStore
from langchain_core.vectorstores.utils import maximal_marginal_relevance

from . import _index
from .errors import CorruptFile, InvalidArgument

Filter = Callable[[Document], bool]
INDEX, DOCUMENTS = "index.gannet", "documents.json"


class GannetVectorStore(VectorStore):
    """Documents and their vectors, in this process.

    embedding  makes vectors of texts
    metric     "cos" (default), "l2" or "ip"
    recall     of searches, above 0 to 1; default 0.95
    build      further arguments of gannet.build()

    Scores are distances: smaller is nearer. Any number of threads may search and change a store.
    """

    def __init__(self, embedding: Embeddings, *, metric: str = "cos", recall: float | None = None,
                 **build: Any) -> None:
        self._embedding, self._metric = embedding, metric
        self._build = {"recall": recall, **build}
        self._lock = threading.Lock()
        self._documents: dict[str, Document] = {}
        self._vectors: dict[str, np.ndarray[Any, Any]] = {}
        self._index: tuple[_index.Index, list[Document]] | None = None  # and the document of each of its rows

    @property
    def embeddings(self) -> Embeddings:
        """What makes vectors of texts."""
        return self._embedding

    def __len__(self) -> int:
        """Number of documents."""
        return len(self._documents)

    # --- Changes ------------------------------------------------------------------------------------------------

    def add_texts(self, texts: Iterable[str], metadatas: list[dict[str, Any]] | None = None, *,
                  ids: list[str] | None = None, **_: Any) -> list[str]:
        """Adds texts, or replaces those of the same id, and returns the ids."""
        texts = list(texts)
        return self.add_vectors(self._embedding.embed_documents(texts), texts, metadatas, ids)

    def add_vectors(self, vectors: Any, texts: Sequence[str], metadatas: Sequence[dict[str, Any]] | None = None,
                    ids: Sequence[str | None] | None = None) -> list[str]:
        """The same with vectors that are there already, [texts, dim]; they are kept as float32."""
        rows = np.asarray(vectors, np.float32)
        names = [id or str(uuid.uuid4()) for id in ids or [None] * len(texts)]
        infos = list(metadatas or [{}] * len(texts))
        if not len(rows) == len(texts) == len(names) == len(infos):
            raise InvalidArgument(f"{len(rows)} vectors, {len(texts)} texts, {len(infos)} metadatas and "
                                  f"{len(names)} ids; expected as many of each")
        with self._lock:
            for name, text, info, row in zip(names, texts, infos, rows):
                self._documents[name] = Document(id=name, page_content=text, metadata=dict(info))
                self._vectors[name] = row
            self._index = None
        return names

    def delete(self, ids: list[str] | None = None, **_: Any) -> bool | None:
        """Takes documents out; all of them without ids. Ids that are not there are passed over."""
        with self._lock:
            for id in list(self._documents) if ids is None else ids:
                self._documents.pop(id, None)
                self._vectors.pop(id, None)
            self._index = None
        return True

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """The documents of those ids that are there."""
        return [self._documents[id] for id in ids if id in self._documents]

    # --- Searching ----------------------------------------------------------------------------------------------

    def similarity_search(self, query: str, k: int = 4, filter: Filter | None = None,
                          **_: Any) -> list[Document]:
        """The k documents nearest to a text. `filter` is asked about each document that is met; where it takes
        few, ever more neighbours are looked at."""
        return [document for document, _ in self.similarity_search_with_score(query, k, filter)]

    def similarity_search_with_score(self, query: str, k: int = 4,
                                     filter: Filter | None = None) -> list[tuple[Document, float]]:
        """The same with distances."""
        return self.similarity_search_with_score_by_vector(self._embedding.embed_query(query), k, filter)

    def similarity_search_by_vector(self, embedding: list[float], k: int = 4, filter: Filter | None = None,
                                    **_: Any) -> list[Document]:
        """The same for a vector."""
        return [document for document, _ in self.similarity_search_with_score_by_vector(embedding, k, filter)]

    def similarity_search_with_score_by_vector(self, embedding: list[float], k: int = 4,
                                               filter: Filter | None = None) -> list[tuple[Document, float]]:
        """The same for a vector, with distances."""
        return [(document, distance) for document, distance, _ in self._nearest(embedding, k, filter)]

    def max_marginal_relevance_search(self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5,
                                      filter: Filter | None = None, **_: Any) -> list[Document]:
        """k of the fetch_k nearest documents, unlike each other as far as lambda_mult is below 1."""
        return self.max_marginal_relevance_search_by_vector(self._embedding.embed_query(query), k, fetch_k,
                                                            lambda_mult, filter)

    def max_marginal_relevance_search_by_vector(self, embedding: list[float], k: int = 4, fetch_k: int = 20,
                                                lambda_mult: float = 0.5, filter: Filter | None = None,
                                                **_: Any) -> list[Document]:
        """The same for a vector."""
        found = self._nearest(embedding, fetch_k, filter)
        picked = maximal_marginal_relevance(np.asarray(embedding, np.float32),
                                            [vector.tolist() for *_, vector in found], lambda_mult, k)
        return [found[place][0] for place in picked]

    def _nearest(self, embedding: list[float], k: int,
                 filter: Filter | None) -> list[tuple[Document, float, np.ndarray[Any, Any]]]:
        with self._lock:
            index, documents = self._built()
        if not documents:
            return []
        query, wanted = np.asarray(embedding, np.float32), k
        while True:
            rows, distances = index.search(query, min(wanted, len(documents)))
            found = [(documents[row], float(distance), index[row])
                     for row, distance in zip(rows.tolist(), distances)
                     if row >= 0 and (filter is None or filter(documents[row]))][:k]
            if filter is None or len(found) == k or wanted >= len(documents):
                return found
            wanted *= 4

    def _built(self) -> tuple[_index.Index, list[Document]]:
        if self._index is None:
            rows = np.stack(list(self._vectors.values())) if self._vectors else np.empty((0, 1), np.float32)
            self._index = (_index.build(rows, metric=self._metric, **self._build),
                           [self._documents[name] for name in self._vectors])
        return self._index

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        if self._metric == "cos":
            return lambda distance: 1 - distance
        if self._metric == "ip":
            return lambda distance: -distance
        return lambda distance: 1 / (1 + distance)

    # --- Making, saving, opening ----------------------------------------------------------------------------------

    @classmethod
    def from_texts(cls, texts: list[str], embedding: Embeddings, metadatas: list[dict[str, Any]] | None = None, *,
                   ids: list[str] | None = None, **options: Any) -> GannetVectorStore:
        """A store of these texts; `options` are those of the class."""
        store = cls(embedding, **options)
        store.add_texts(texts, metadatas, ids=ids)
        return store

    def save_local(self, folder: str | os.PathLike[str]) -> None:
        """Saves index and documents to two files in a folder. Metadata must be of what JSON holds."""
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        with self._lock:
            index, documents = self._built()
            content = {"metric": self._metric, "content_id": None,
                       "documents": [[document.id, document.page_content, document.metadata]
                                     for document in documents]}
            index.save(place / INDEX)
        from . import file_info
        content["content_id"] = file_info(place / INDEX).content_id  # says that the two belong together
        beside = place / (DOCUMENTS + ".part")
        beside.write_text(json.dumps(content), encoding="utf-8")
        beside.replace(place / DOCUMENTS)

    @classmethod
    def load_local(cls, folder: str | os.PathLike[str], embedding: Embeddings, *, recall: float | None = None,
                   **build: Any) -> GannetVectorStore:
        """Opens what save_local() saved. Raises what gannet.open() raises, and CorruptFile where the two files do
        not belong together."""
        from . import file_info
        place = Path(folder)
        content = json.loads((place / DOCUMENTS).read_text(encoding="utf-8"))
        store = cls(embedding, metric=content["metric"], recall=recall, **build)
        index = _index.open(place / INDEX, recall=recall)
        names = [name for name, *_ in content["documents"]]
        if file_info(place / INDEX).content_id != content["content_id"] or len(index) != len(names):
            raise CorruptFile(f"{place / INDEX} and {place / DOCUMENTS} are of two different saves")
        store._documents = {name: Document(id=name, page_content=text, metadata=info)
                            for name, text, info in content["documents"]}
        store._vectors = dict(zip(names, np.asarray(index[index.ids], np.float32)))
        store._index = index, list(store._documents.values())
        return store
