"""What every embedder and every vector store promises, over every implementation."""

import math
from collections.abc import Callable

import pytest

from apexbridge.retrieval.base import Embedder, Entry, VectorStore
from apexbridge.testing import HashEmbedder, MemoryStore

pytestmark = pytest.mark.anyio

EMBEDDERS: dict[str, Callable[[], Embedder]] = {"hash": HashEmbedder}
STORES: dict[str, Callable[[], VectorStore]] = {"memory": MemoryStore}


@pytest.fixture(params=EMBEDDERS)
def embedder(request: pytest.FixtureRequest) -> Embedder:
    return EMBEDDERS[request.param]()


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> VectorStore:
    return STORES[request.param]()


async def test_vectors_have_one_size_a_unit_length_and_keep_their_order(embedder: Embedder) -> None:
    texts = ["read pdf", "", "读取 PDF", "read pdf", "a\ud800"]
    vectors = await embedder.embed(texts, kind="document")
    assert [len(vector) for vector in vectors] == [embedder.dimensions] * len(texts)
    assert all(abs(math.hypot(*vector) - 1) < 1e-6 for vector in vectors)
    assert list(vectors[0]) == list(vectors[3])
    assert embedder.id


async def test_no_texts_give_no_vectors(embedder: Embedder) -> None:
    assert list(await embedder.embed([], kind="query")) == []


def _entry(name: str, *vector: float, fingerprint: str = "1") -> Entry:
    return Entry(name=name, fingerprint=fingerprint, text=name, vector=vector)


async def test_the_nearest_come_first_within_the_limit(store: VectorStore) -> None:
    await store.upsert([_entry("east", 1, 0), _entry("north", 0, 1), _entry("west", -1, 0)])
    hits = await store.nearest((0.9, 0.1), text="", limit=2)
    assert [hit.name for hit in hits] == ["east", "north"]
    assert all(0 <= hit.score <= 1 for hit in hits)


async def test_an_entry_is_replaced_by_name_and_forgotten(store: VectorStore) -> None:
    await store.upsert([_entry("a", 1, 0), _entry("b", 0, 1)])
    await store.upsert([_entry("a", 0, 1, fingerprint="2")])
    assert await store.fingerprints() == {"a": "2", "b": "1"}
    await store.delete(["a", "never"])
    assert await store.fingerprints() == {"b": "1"}
    assert [hit.name for hit in await store.nearest((0, 1), text="", limit=5)] == ["b"]
