"""GannetVectorStore behaves as LlamaIndex's stores do."""

import asyncio

import numpy as np
import pytest

pytest.importorskip("llama_index.core")
from fsspec.implementations.memory import MemoryFileSystem
from llama_index.core import Document, MockEmbedding, StorageContext, VectorStoreIndex
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.simple import SimpleVectorStore
from llama_index.core.vector_stores.types import (
    FilterCondition, FilterOperator, MetadataFilter, MetadataFilters, VectorStoreQuery, VectorStoreQueryMode)

import gannet
from gannet.llamaindex import GannetVectorStore

VECTORS = np.random.default_rng(5).normal(size=(60, 16)).astype(np.float32)


def nodes():
    return [TextNode(id_=f"id {n}", text=f"text {n}", metadata={"number": n}, embedding=VECTORS[n].tolist(),
                     relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=f"document {n % 6}")})
            for n in range(60)]


@pytest.fixture
def store():
    made = GannetVectorStore()
    assert made.add(nodes()) == [f"id {n}" for n in range(60)]
    return made


def ask(vector, k=5, **rest):
    return VectorStoreQuery(query_embedding=np.asarray(vector).tolist(), similarity_top_k=k, **rest)


def where(key, operator, value):
    return MetadataFilters(filters=[MetadataFilter(key=key, operator=operator, value=value)])


def test_answers_of_the_simple_store(store):
    """LlamaIndex's own store compares with every vector."""
    simple = SimpleVectorStore()
    simple.add(nodes())
    for vector in np.random.default_rng(6).normal(size=(20, 16)):
        mine, own = store.query(ask(vector, 10)), simple.query(ask(vector, 10))
        assert mine.ids == own.ids
        np.testing.assert_allclose(mine.similarities, own.similarities, atol=1e-5)
        assert [node.get_content() for node in mine.nodes] == [id.replace("id", "text") for id in mine.ids]
        assert mine.nodes[0].ref_doc_id == f"document {int(mine.ids[0].split()[1]) % 6}"
    assert len(store.query(ask(VECTORS[0], 500)).ids) == 60


def test_bits_of_the_library(store):
    found = gannet.build(VECTORS, metric="cos").search(VECTORS[7], 10)
    mine = store.query(ask(VECTORS[7], 10))
    assert [node.metadata["number"] for node in mine.nodes] == found.ids.tolist()
    assert mine.similarities == [1 - float(distance) for distance in found.distances]


@pytest.mark.parametrize("metric,likeness", [
    ("l2", lambda rows, query: 1 / (1 + ((rows - query) ** 2).sum(1))), ("ip", lambda rows, query: rows @ query)])
def test_metrics(metric, likeness):
    store = GannetVectorStore(metric=metric)
    store.add(nodes())
    found, expected = store.query(ask(VECTORS[3])), np.sort(likeness(VECTORS, VECTORS[3]))[::-1][:5]
    np.testing.assert_allclose(found.similarities, expected, rtol=1e-5)


def test_filters(store):
    even = MetadataFilters(filters=[MetadataFilter(key="number", operator=FilterOperator.IN, value=[2, 4, 50]),
                                    MetadataFilter(key="number", operator=FilterOperator.GT, value=58)],
                           condition=FilterCondition.OR)
    assert set(store.query(ask(VECTORS[1], filters=even)).ids) == {"id 2", "id 4", "id 50", "id 59"}
    assert store.query(ask(VECTORS[1], 1, node_ids=["id 9", "none"])).ids == ["id 9"]
    of_one = store.query(ask(VECTORS[1], 60, doc_ids=["document 5"]))
    assert set(of_one.ids) == {f"id {n}" for n in range(5, 60, 6)}
    assert len(store.query(ask(VECTORS[1], node_ids=[], doc_ids=[])).ids) == 5
    assert len(store.query(ask(VECTORS[1], filters=MetadataFilters(filters=[]))).ids) == 5


def test_unlike_each_other(store):
    simple = SimpleVectorStore()
    simple.add(nodes())
    wish = ask(VECTORS[1], 5, mode=VectorStoreQueryMode.MMR)
    mine = store.query(wish, mmr_threshold=0.3, mmr_prefetch_factor=12)  # all 60
    assert mine.ids == simple.query(wish, mmr_threshold=0.3).ids != store.query(ask(VECTORS[1])).ids
    assert mine.ids == store.query(ask(VECTORS[1], 5, mode=VectorStoreQueryMode.MMR, mmr_threshold=0.3),
                                   mmr_prefetch_factor=12).ids
    with pytest.raises(gannet.InvalidArgument, match="sparse; expected default or mmr"):
        store.query(ask(VECTORS[1], mode=VectorStoreQueryMode.SPARSE))
    with pytest.raises(gannet.InvalidArgument, match="query_embedding"):
        store.query(VectorStoreQuery(query_str="text 7"))


def test_changes(store):
    (again,) = store.get_nodes(["id 7", "none"])
    again.metadata["number"] = 700
    kept = store.get_nodes(["id 7"]) + store.query(ask(VECTORS[7], 1)).nodes
    assert [node.metadata for node in kept] == [{"number": 7}] * 2
    again.embedding = VECTORS[8].tolist()
    assert store.add([again]) == ["id 7"] and len(store) == 60 and len(store.client) == 60
    assert set(store.query(ask(VECTORS[8], 2)).ids) == {"id 7", "id 8"}
    assert [node.node_id for node in store.get_nodes(filters=where("number", FilterOperator.GT, 100))] == ["id 7"]
    store.delete("document 1")
    assert len(store) == 50 and store.get_nodes(["id 7"]) == []
    store.delete_nodes(["id 2", "id 3"], where("number", FilterOperator.EQ, 3))
    assert [node.node_id for node in store.get_nodes(["id 2", "id 3"])] == ["id 2"]
    store.clear()
    assert len(store) == 0 and store.query(ask(VECTORS[0])).ids == [] and store.add([]) == []
    with pytest.raises(ValueError, match="embedding"):
        store.add([TextNode(text="bare")])


def test_in_an_index_and_async():
    model = MockEmbedding(embed_dim=8)
    store = GannetVectorStore(metric="l2")
    VectorStoreIndex.from_documents([Document(text="cats purr"), Document(text="dogs bark")], embed_model=model,
                                    storage_context=StorageContext.from_defaults(vector_store=store))
    assert len(store) == 2
    retriever = VectorStoreIndex.from_vector_store(store, embed_model=model).as_retriever(similarity_top_k=2)
    assert {found.node.get_content() for found in retriever.retrieve("cats")} == {"cats purr", "dogs bark"}
    assert len(asyncio.run(retriever.aretrieve("dogs"))) == 2


@pytest.mark.parametrize("metric", ["cos", "l2", "ip"])
def test_saved_and_loaded(metric, tmp_path):
    store = GannetVectorStore(metric=metric)
    store.add(nodes())
    StorageContext.from_defaults(vector_store=store).persist(str(tmp_path))
    path = tmp_path / "default__vector_store.json"
    other = GannetVectorStore.from_persist_path(str(path))
    mine, others = store.query(ask(VECTORS[5])), other.query(ask(VECTORS[5]))
    assert other.metric == metric and (mine.ids, mine.similarities) == (others.ids, others.similarities)
    assert [node.to_dict() for node in mine.nodes] == [node.to_dict() for node in others.nodes]
    other.add([TextNode(text="more", embedding=VECTORS[0].tolist())])
    assert len(other.client) == 61
    old = path.read_text()
    store.delete("document 0")
    store.persist(str(path))
    path.write_text(old)
    with pytest.raises(gannet.CorruptFile, match="two different saves"):
        GannetVectorStore.from_persist_path(str(path))
    with pytest.raises(gannet.InvalidArgument, match="MemoryFileSystem"):
        store.persist(str(path), MemoryFileSystem())
