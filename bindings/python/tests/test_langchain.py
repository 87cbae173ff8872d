"""GannetVectorStore behaves as LangChain's stores do."""

import asyncio
import json

import numpy as np
import pytest

pytest.importorskip("langchain_core")
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

import gannet
from gannet.langchain import GannetVectorStore

EMBEDDING = DeterministicFakeEmbedding(size=32)
TEXTS = [f"text {number}" for number in range(60)]
INFOS = [{"number": number} for number in range(60)]


@pytest.fixture
def store():
    return GannetVectorStore.from_texts(TEXTS, EMBEDDING, INFOS, ids=[f"id {n}" for n in range(60)])


def test_search(store):
    found = store.similarity_search_with_score("text 7", k=3)
    document, distance = found[0]
    assert document == Document(id="id 7", page_content="text 7", metadata={"number": 7})
    assert abs(distance) < 1e-5 and [score for _, score in found] == sorted(score for _, score in found)
    assert store.similarity_search("text 8", k=1)[0].page_content == "text 8"
    vector = EMBEDDING.embed_query("text 9")
    assert store.similarity_search_by_vector(vector, k=2)[0].id == "id 9"
    scores = store.similarity_search_with_relevance_scores("text 7", k=3)
    assert scores[0][1] > 0.999
    assert len(store.max_marginal_relevance_search("text 7", k=5, fetch_k=20)) == 5
    assert store.max_marginal_relevance_search("text 7", k=1)[0].id == "id 7"
    assert len(store.similarity_search("x", k=500)) == 60


def test_bits_of_the_library(store):
    rows = np.asarray(EMBEDDING.embed_documents(TEXTS), np.float32)
    found = gannet.build(rows, metric="cos").search(np.asarray(EMBEDDING.embed_query("any"), np.float32), 10)
    mine = store.similarity_search_with_score("any", k=10)
    assert [document.metadata["number"] for document, _ in mine] == found.ids.tolist()
    assert np.array([score for _, score in mine], np.float32).tobytes() == found.distances.tobytes()


def test_filter(store):
    even = store.similarity_search("text 7", k=30, filter=lambda document: document.metadata["number"] % 2 == 0)
    assert len(even) == 30 and all(document.metadata["number"] % 2 == 0 for document in even)
    one = store.similarity_search("text 7", k=3, filter=lambda document: document.id == "id 50")
    assert [document.id for document in one] == ["id 50"]


def test_changes(store):
    assert store.add_documents([Document(id="new", page_content="new one")]) == ["new"]
    assert store.similarity_search("new one", k=1)[0].id == "new" and len(store) == 61
    (name,) = store.add_texts(["nameless"])
    assert store.get_by_ids([name, "none"])[0].page_content == "nameless"
    store.add_texts(["text 7 anew"], ids=["id 7"])
    assert len(store) == 62 and store.get_by_ids(["id 7"])[0].page_content == "text 7 anew"
    assert store.delete(["id 7", "none"])
    assert len(store) == 61 and all(document.id != "id 7" for document in store.similarity_search("text 7", k=61))
    store.delete()
    assert len(store) == 0 and store.similarity_search("x") == []
    with pytest.raises(gannet.InvalidArgument, match="2 texts"):
        store.add_vectors([[1.0]], ["a", "b"])


def test_as_a_retriever_and_async(store):
    retriever = store.as_retriever(search_kwargs={"k": 2})
    assert retriever.invoke("text 3")[0].id == "id 3"
    assert asyncio.run(store.asimilarity_search("text 4", k=1))[0].id == "id 4"


@pytest.mark.parametrize("metric", ["cos", "l2", "ip"])
def test_saved_and_loaded(metric, tmp_path):
    store = GannetVectorStore.from_texts(TEXTS, EMBEDDING, INFOS, metric=metric)
    store.save_local(tmp_path / "store")
    other = GannetVectorStore.load_local(tmp_path / "store", EMBEDDING)
    assert other.similarity_search_with_score("text 5") == store.similarity_search_with_score("text 5")
    other.add_texts(["more"])
    assert len(other) == 61 and other.embeddings is EMBEDDING
    place = tmp_path / "store" / "documents.json"
    content = json.loads(place.read_text())
    GannetVectorStore.from_texts(TEXTS[:50], EMBEDDING).save_local(tmp_path / "store")
    place.write_text(json.dumps(content))
    with pytest.raises(gannet.CorruptFile, match="two different saves"):
        GannetVectorStore.load_local(tmp_path / "store", EMBEDDING)
