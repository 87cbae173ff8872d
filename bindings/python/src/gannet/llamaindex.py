"""For LlamaIndex: GannetVectorStore, a vector store that keeps its nodes beside the index. Needs llama-index-core.

>>> from llama_index.core.schema import TextNode
>>> from llama_index.core.vector_stores.types import VectorStoreQuery
>>> from gannet.llamaindex import GannetVectorStore
>>> store = GannetVectorStore(metric="l2")
>>> names = store.add([TextNode(id_="a", text="cats purr", embedding=[0, 1]),
...                    TextNode(id_="b", text="dogs bark", embedding=[1, 0])])
>>> store.query(VectorStoreQuery(query_embedding=[0.9, 0.2], similarity_top_k=1)).ids
['b']

A StorageContext with `vector_store=store` has VectorStoreIndex fill one, VectorStoreIndex.from_vector_store(store)
asks one that is there. An index is made in one go, so the first query after a change makes it anew from all vectors,
which takes some seconds per 100,000 of them. Add nodes in large portions.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Sequence

from fsspec import AbstractFileSystem
from fsspec.implementations.local import LocalFileSystem
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.indices.query.embedding_utils import get_top_k_mmr_embeddings
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore, MetadataFilters, VectorStoreQuery, VectorStoreQueryMode, VectorStoreQueryResult)
from llama_index.core.vector_stores.utils import (
    build_metadata_filter_fn, metadata_dict_to_node, node_to_metadata_dict)

from ._collection import Collection
from ._index import Index
from .errors import InvalidArgument

PREFETCH = 4
"""Neighbours that "mmr" chooses among, for each that is wanted."""


class GannetVectorStore(BasePydanticVectorStore):
    """Nodes and their vectors, in this process.

    metric  "cos" (default), "l2" or "ip"
    recall  of searches, above 0 to 1; default 0.95
    build   further arguments of gannet.build()

    Similarities are 1 - distance by "cos", the product by "ip", 1 / (1 + distance) by "l2": larger is nearer. Any
    number of threads may query and change a store.
    """

    stores_text: bool = True
    is_embedding_query: bool = True
    metric: str = "cos"
    _nodes: Collection[BaseNode] = PrivateAttr()

    def __init__(self, *, metric: str = "cos", recall: float | None = None, **build: Any) -> None:
        super().__init__(stores_text=True)
        self.metric = metric
        self._nodes = Collection[BaseNode](metric, {"recall": recall, **build})

    @classmethod
    def class_name(cls) -> str:
        """The name of the class, by which LlamaIndex knows it."""
        return "GannetVectorStore"

    @property
    def client(self) -> Index:
        """The index, as it is searched."""
        return self._nodes.index()

    def __len__(self) -> int:
        """Number of nodes."""
        return len(self._nodes)

    def __bool__(self) -> bool:
        """True: `vector_store or SimpleVectorStore()` of LlamaIndex must not set an empty store aside."""
        return True

    # --- Changes ------------------------------------------------------------------------------------------------

    def add(self, nodes: Sequence[BaseNode], **_: Any) -> list[str]:
        """Adds nodes, which have embeddings, or replaces those of the same id, and returns the ids."""
        names = [node.node_id for node in nodes]
        if nodes:
            self._nodes.put(names, [_copy(node) for node in nodes], [node.get_embedding() for node in nodes])
        return names

    def delete(self, ref_doc_id: str, **_: Any) -> None:
        """Takes the nodes of a document out."""
        self._nodes.remove(name for name, node in self._nodes.all().items() if node.ref_doc_id == ref_doc_id)

    def delete_nodes(self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None,
                     **_: Any) -> None:
        """Takes out the nodes that get_nodes() gives."""
        self._nodes.remove([node.node_id for node in self.get_nodes(node_ids, filters)])

    def clear(self) -> None:
        """Takes all nodes out."""
        self._nodes.remove(None)

    def get_nodes(self, node_ids: list[str] | None = None,
                  filters: MetadataFilters | None = None) -> list[BaseNode]:
        """The nodes of these ids that are there and pass the filters; without ids, of all."""
        takes = _takes(filters, node_ids=node_ids)
        nodes = list(self._nodes.all().values()) if node_ids is None else self._nodes.get(node_ids)
        return [_copy(node) for node in nodes if takes is None or takes(node)]

    # --- Queries ------------------------------------------------------------------------------------------------

    def query(self, query: VectorStoreQuery, **options: Any) -> VectorStoreQueryResult:
        """The nodes nearest to a vector. Filters are asked about each node that is met; where they take few, ever
        more neighbours are looked at. By the mode "mmr" the answer is chosen among mmr_prefetch_factor (4) times
        as many nodes, which are to be unlike each other as far as mmr_threshold is below 1.

        Raises InvalidArgument for other modes, and for a query without a vector.
        """
        if query.query_embedding is None:
            raise InvalidArgument("the query has no query_embedding; expected a vector")
        # A retriever over a store that keeps its nodes gives an empty list where it means all.
        takes = _takes(query.filters, node_ids=query.node_ids or None, doc_ids=query.doc_ids or None)
        k = query.similarity_top_k
        if query.mode == VectorStoreQueryMode.DEFAULT:
            found = self._nodes.nearest(query.query_embedding, k, takes)
            likeness = [self._nodes.likeness(distance) for _, distance, _ in found]
        elif query.mode == VectorStoreQueryMode.MMR:
            among = k * options.get("mmr_prefetch_factor", PREFETCH)
            met = self._nodes.nearest(query.query_embedding, among, takes)
            threshold = options.get("mmr_threshold", query.mmr_threshold)
            likeness, places = get_top_k_mmr_embeddings(
                query.query_embedding, [vector.tolist() for *_, vector in met], similarity_top_k=k,
                embedding_ids=list(range(len(met))), mmr_threshold=threshold)
            found = [met[place] for place in places]
        else:
            raise InvalidArgument(f"the mode is {query.mode.value}; expected default or mmr")
        return VectorStoreQueryResult(nodes=[_copy(node) for node, *_ in found], similarities=likeness,
                                      ids=[node.node_id for node, *_ in found])

    # --- Saving and opening ---------------------------------------------------------------------------------------

    def persist(self, persist_path: str, fs: AbstractFileSystem | None = None) -> None:
        """Saves nodes to this file and the index to one beside it, with ".gannet" at its end. Only files of this
        machine will do."""
        _check_local(fs)
        self._nodes.save(_index_path(persist_path), Path(persist_path), _parts)

    @classmethod
    def from_persist_path(cls, persist_path: str, fs: AbstractFileSystem | None = None, *,
                          recall: float | None = None, **build: Any) -> GannetVectorStore:
        """Opens what persist() saved. Raises what gannet.open() raises, and CorruptFile where the two files do not
        belong together."""
        _check_local(fs)
        nodes = Collection.open(_index_path(persist_path), Path(persist_path), _node, {"recall": recall, **build})
        store = cls(metric=nodes.metric)
        store._nodes = nodes
        return store


def _takes(filters: MetadataFilters | None, *, node_ids: list[str] | None = None,
           doc_ids: list[str] | None = None) -> Callable[[BaseNode], bool] | None:
    if not (filters and filters.filters) and node_ids is None and doc_ids is None:
        return None
    names = None if node_ids is None else set(node_ids)
    documents = None if doc_ids is None else set(doc_ids)

    def takes(node: BaseNode) -> bool:
        return ((names is None or node.node_id in names) and (documents is None or node.ref_doc_id in documents)
                and bool(build_metadata_filter_fn(lambda _: node.metadata, filters)(node.node_id)))
    return takes


def _copy(node: BaseNode) -> BaseNode:
    """What is done to a node outside does not reach the store. Its vector is in the index."""
    return node.model_copy(update={"embedding": None}, deep=True)


def _parts(node: BaseNode) -> list[Any]:
    written = node_to_metadata_dict(node)
    return [node.node_id, written["_node_type"], written["_node_content"]]


def _node(_: str, kind: str, content: str) -> BaseNode:
    return metadata_dict_to_node({"_node_type": kind, "_node_content": content})


def _index_path(path: str) -> Path:
    return Path(path + ".gannet")


def _check_local(fs: AbstractFileSystem | None) -> None:
    if fs is not None and not isinstance(fs, LocalFileSystem):
        raise InvalidArgument(f"fs is a {type(fs).__name__}; expected files of this machine")
