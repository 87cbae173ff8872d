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

import os
import uuid
from pathlib import Path
from typing import Any, Callable, Iterable, Sequence

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import VectorStore
from langchain_core.vectorstores.utils import maximal_marginal_relevance

from ._collection import Collection
from .errors import InvalidArgument

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
        self._embedding = embedding
        self._documents = Collection[Document](metric, {"recall": recall, **build})

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
        names = [id or str(uuid.uuid4()) for id in ids or [None] * len(texts)]
        infos = list(metadatas or [{}] * len(texts))
        if not len(vectors) == len(texts) == len(names) == len(infos):
            raise InvalidArgument(f"{len(vectors)} vectors, {len(texts)} texts, {len(infos)} metadatas and "
                                  f"{len(names)} ids; expected as many of each")
        self._documents.put(names, [Document(id=name, page_content=text, metadata=dict(info))
                                    for name, text, info in zip(names, texts, infos)], vectors)
        return names

    def delete(self, ids: list[str] | None = None, **_: Any) -> bool | None:
        """Takes documents out; all of them without ids. Ids that are not there are passed over."""
        self._documents.remove(ids)
        return True

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """The documents of those ids that are there."""
        return self._documents.get(ids)

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
        return [(document, distance) for document, distance, _ in self._documents.nearest(embedding, k, filter)]

    def max_marginal_relevance_search(self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5,
                                      filter: Filter | None = None, **_: Any) -> list[Document]:
        """k of the fetch_k nearest documents, unlike each other as far as lambda_mult is below 1."""
        return self.max_marginal_relevance_search_by_vector(self._embedding.embed_query(query), k, fetch_k,
                                                            lambda_mult, filter)

    def max_marginal_relevance_search_by_vector(self, embedding: list[float], k: int = 4, fetch_k: int = 20,
                                                lambda_mult: float = 0.5, filter: Filter | None = None,
                                                **_: Any) -> list[Document]:
        """The same for a vector."""
        found = self._documents.nearest(embedding, fetch_k, filter)
        picked = maximal_marginal_relevance(np.asarray(embedding, np.float32),
                                            [vector.tolist() for *_, vector in found], lambda_mult, k)
        return [found[place][0] for place in picked]

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        return self._documents.likeness

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
        self._documents.save(place / INDEX, place / DOCUMENTS,
                             lambda document: [document.id, document.page_content, document.metadata])

    @classmethod
    def load_local(cls, folder: str | os.PathLike[str], embedding: Embeddings, *, recall: float | None = None,
                   **build: Any) -> GannetVectorStore:
        """Opens what save_local() saved. Raises what gannet.open() raises, and CorruptFile where the two files do
        not belong together."""
        place = Path(folder)
        store = cls(embedding)
        store._documents = Collection.open(
            place / INDEX, place / DOCUMENTS,
            lambda id, text, info: Document(id=id, page_content=text, metadata=info), {"recall": recall, **build})
        return store
