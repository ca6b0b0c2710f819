"""Contract of every vector store, run over every implementation."""

import random
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from pathlib import Path

import anyio
import numpy as np
import pytest

from apexbridge.errors import (
    EmbedderOutputError,
    IndexMismatchError,
    RetrievalError,
    StorageError,
)
from apexbridge.retrieval.base import IndexEntry, StoreChanges, VectorStore
from apexbridge.testing import MemoryStore
from tests.retrieval.store_processes import (
    BATCH,
    ROUNDS,
    go,
    is_whole,
    made,
    opened,
    read_line,
    writers,
)

pytestmark = pytest.mark.anyio

SHARED = ["sqlite", "sqlite float16", "lance"]
PROCESSES = ["sqlite", "lance"]
Open = Callable[..., VectorStore]


def _tolerance(kind: str) -> float:
    return 1e-3 if kind == "sqlite float16" else 0


@pytest.fixture(params=SHARED)
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == "lance":
        pytest.importorskip("lancedb")
    return request.param


@pytest.fixture
async def open_store(kind: str, tmp_path: Path) -> AsyncGenerator[Open]:
    """Opens one place again and again, for whatever embedder."""
    stores = list[VectorStore]()

    def open_one(embedder_id: str = "model-a") -> VectorStore:
        stores.append(opened(kind, tmp_path, embedder_id))
        return stores[-1]

    yield open_one
    for store in stores:
        await store.close()


@pytest.fixture(params=["memory", *SHARED])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[VectorStore]:
    if request.param == "lance":
        pytest.importorskip("lancedb")
    made_here = MemoryStore() if request.param == "memory" else opened(request.param, tmp_path)
    yield made_here
    await made_here.close()
    await made_here.close()


def _names(changes: StoreChanges) -> tuple[list[str], list[str], bool]:
    entries = sorted(f"{entry.name} {entry.fingerprint}" for entry in changes.entries)
    return entries, sorted(changes.gone), changes.is_all


def _flat(name: str, *vector: float) -> IndexEntry:
    return replace(
        made(name, rows=1), vectors=np.array([vector], dtype=np.float32), texts=(f"text of {name}",)
    )


async def test_the_kind_of_an_entry_is_stored(open_store: Open) -> None:
    await open_store().upsert([replace(made("hammer"), kind="tool"), made("carpentry")])
    kinds = {entry.name: entry.kind for entry in (await open_store().changes()).entries}
    assert kinds == {"hammer": "tool", "carpentry": "skill"}
    assert not await open_store().check()


async def test_an_entry_comes_back_as_it_was_given(store: VectorStore) -> None:
    odd = replace(made("odd"), texts=("", "读取 PDF \x00 'quoted'", "half a pair: \ud800"))
    few = replace(
        made("few"), terms=np.array([], dtype=np.uint32), counts=np.array([], dtype=np.uint8)
    )
    await store.upsert([made("plain"), odd, few])
    found = {entry.name: entry for entry in (await store.changes()).entries}
    assert is_whole(found["plain"], tolerance=1e-3)
    assert found["odd"].texts == odd.texts
    assert found["few"].terms.dtype == np.uint32
    assert (len(found["few"].terms), len(found["few"].counts)) == (0, 0)
    lengths = np.linalg.norm(found["plain"].vectors, axis=1)
    assert np.allclose(lengths, 1, atol=1e-6)


async def test_changes_return_everything_once_and_then_increments(store: VectorStore) -> None:
    assert _names(await store.changes()) == ([], [], True)
    await store.upsert([made("a"), made("b"), made("c")])
    assert _names(await store.changes())[0] == ["a 1", "b 1", "c 1"]
    assert _names(await store.changes()) == ([], [], False)
    await store.upsert([made("b", "2"), made("d")])
    await store.delete(["a", "never there"])
    assert _names(await store.changes()) == (["b 2", "d 1"], ["a"], False)
    await store.delete(["b"])
    await store.upsert([made("b", "3")])
    assert _names(await store.changes()) == (["b 3"], [], False)
    assert _names(await store.changes()) == ([], [], False)


async def test_has_changed_is_true_if_changes_would_return_anything(store: VectorStore) -> None:
    assert store.has_changed()
    await store.changes()
    assert not store.has_changed()
    for change in (store.upsert([made("a")]), store.upsert([made("a", "2")]), store.delete(["a"])):
        await change
        assert store.has_changed()
        await store.changes()
        assert not store.has_changed()


async def test_an_entry_is_replaced_by_name_and_forgotten(store: VectorStore) -> None:
    await store.upsert([made("a"), made("b")])
    await store.upsert([made("a", "2")])
    assert await store.fingerprints() == {"a": "2", "b": "1"}
    await store.delete(["a", "never"])
    assert await store.fingerprints() == {"b": "1"}
    near = await store.nearest(made("b").vectors[:1], text="", limit=5)
    assert [neighbour.name for neighbour in near] == ["b"]


async def test_of_one_name_given_twice_the_last_is_kept(store: VectorStore) -> None:
    await store.upsert([made("a", "1"), made("b"), made("a", "2")])
    assert await store.fingerprints() == {"a": "2", "b": "1"}
    assert all(is_whole(e, tolerance=1e-3) for e in (await store.changes()).entries)


async def test_any_name_is_only_a_name(store: VectorStore) -> None:
    names = ["it's", 'say "no"', "') OR 1=1 --", "数据分析", "a%_b", "x" * 300]
    await store.upsert([made(name) for name in names])
    await store.delete(["') OR 1=1 --"])
    assert sorted(await store.fingerprints()) == sorted(set(names) - {"') OR 1=1 --"})


async def test_the_nearest_come_first_within_the_limit(store: VectorStore) -> None:
    assert list(await store.nearest(np.ones((1, 2), np.float32), text="", limit=2)) == []
    await store.upsert([_flat("east", 1, 0), _flat("north", 0, 1), _flat("west", -1, 0)])
    query = np.array([[0.9, 0.1]], dtype=np.float32)
    near = await store.nearest(query, text="text of", limit=2)
    assert [neighbour.name for neighbour in near] == ["east", "north"]
    assert near[0].score == pytest.approx(0.997, abs=1e-3)
    assert near[1].score == pytest.approx(0.555, abs=1e-3)
    assert list(await store.nearest(query, text="", limit=0)) == []
    assert len(await store.nearest(query[0], text="'; DROP", limit=99)) == 3


async def test_vectors_of_another_size_are_refused_while_any_are_there(store: VectorStore) -> None:
    await store.upsert([made("a")])
    with pytest.raises(IndexMismatchError) as caught:
        await store.upsert([made("b", dimensions=32)])
    assert "64" in caught.value.message
    assert "32" in caught.value.message
    with pytest.raises(IndexMismatchError):
        await store.upsert([made("b"), made("c", dimensions=32)])
    with pytest.raises(IndexMismatchError):
        await store.nearest(np.ones((1, 32), np.float32), text="", limit=1)
    assert await store.fingerprints() == {"a": "1"}
    await store.delete(["a"])
    await store.upsert([made("b", dimensions=32)])
    assert await store.fingerprints() == {"b": "1"}


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0])
async def test_a_vector_that_cannot_be_right_keeps_its_whole_batch_out(
    store: VectorStore, value: float
) -> None:
    wrong = made("wrong")
    wrong.vectors[1] = value
    with pytest.raises(EmbedderOutputError):
        await store.upsert([made("right"), wrong])
    assert await store.fingerprints() == {}


async def test_an_entry_that_does_not_fit_together_is_refused(store: VectorStore) -> None:
    entry = made("a")
    for wrong in (
        replace(entry, texts=entry.texts[:2]),
        replace(entry, texts=(), vectors=entry.vectors[:0]),
        replace(entry, vectors=entry.vectors[0]),
        replace(entry, counts=entry.counts[:1]),
    ):
        with pytest.raises(RetrievalError):
            await store.upsert([wrong])
    assert await store.fingerprints() == {}


async def test_nothing_to_do_is_no_error(store: VectorStore) -> None:
    await store.upsert([])
    await store.delete([])
    await store.delete(["never"])
    assert await store.fingerprints() == {}
    assert list(await store.check()) == []
    assert await store.forget_others() == 0


async def test_many_tasks_may_write_and_read_at_once(store: VectorStore) -> None:
    async def write(number: int) -> None:
        await store.upsert([made(f"n{number}"), made("same", str(number))])
        await store.fingerprints()

    async with anyio.create_task_group() as tasks:
        for number in range(8):
            tasks.start_soon(write, number)
    found = (await store.changes()).entries
    assert sorted(e.name for e in found) == sorted(["same", *(f"n{n}" for n in range(8))])
    assert all(is_whole(entry, tolerance=1e-3) for entry in found)
    assert list(await store.check()) == []


async def test_entries_persist_after_reopening(open_store: Open, kind: str) -> None:
    first = open_store()
    await first.upsert([made("a"), made("b")])
    await first.close()
    with pytest.raises(StorageError):
        await first.fingerprints()
    again = open_store()
    assert await again.fingerprints() == {"a": "1", "b": "1"}
    found = (await again.changes()).entries
    assert all(is_whole(entry, tolerance=_tolerance(kind)) for entry in found)


async def test_each_sees_what_the_other_writes_and_deletes(open_store: Open) -> None:
    one, other = open_store(), open_store()
    await one.upsert([made("a"), made("b")])
    assert _names(await other.changes()) == (["a 1", "b 1"], [], True)
    await one.upsert([made("c"), made("a", "2")])
    await one.delete(["b"])
    assert _names(await other.changes()) == (["a 2", "c 1"], ["b"], False)
    await other.upsert([made("d")])
    assert "d 1" in _names(await one.changes())[0]
    assert _names(await other.changes()) == (["d 1"], [], False)
    assert _names(await other.changes()) == ([], [], False)


async def test_has_changed_sees_writes_of_another_store(open_store: Open) -> None:
    one, other = open_store(), open_store()
    await one.upsert([made("a")])
    for change in (other.upsert([made("b")]), other.delete(["a"])):
        await one.changes()
        assert not one.has_changed()
        await change
        assert one.has_changed()
    await one.close()
    assert one.has_changed()


async def test_a_large_store_is_read_in_chunks_despite_concurrent_writes(
    open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("sqlite", "lance"):
        monkeypatch.setattr(f"apexbridge.retrieval.stores.{module}._CHUNK_ENTRIES", 7)
    store, other = open_store(), open_store()
    await store.upsert([made(f"n{number}") for number in range(20)])
    await store.upsert([made(f"m{number}") for number in range(14)])
    held, parts, has_more = dict[str, str](), 0, True
    while has_more:
        assert other.has_changed()
        told_part = await other.changes()
        assert (len(told_part.entries) <= 7, told_part.is_all) == (True, parts == 0)
        held = {name: mark for name, mark in held.items() if name not in told_part.gone}
        held |= {entry.name: entry.fingerprint for entry in told_part.entries}
        has_more, parts = told_part.has_more, parts + 1
        if parts == 2:
            await store.upsert([made("n0", "2"), made("m13", "2"), made("late")])
            await store.delete(["n1", "m12"])
    last = await other.changes()  # writes in between may be returned now
    held = {name: mark for name, mark in held.items() if name not in last.gone}
    held |= {entry.name: entry.fingerprint for entry in last.entries}
    assert held == await store.fingerprints()
    assert (parts >= 5, len(held)) == (True, 33)
    assert not other.has_changed()


async def test_another_embedders_entries_are_neither_seen_nor_touched(open_store: Open) -> None:
    one, other = open_store("model-a"), open_store("model-b")
    await one.upsert([made("a"), made("both")])
    await other.upsert([made("both", "2", dimensions=32)])
    assert _names(await other.changes()) == (["both 2"], [], True)
    await other.delete(["both", "a"])
    near = await other.nearest(np.ones((1, 32), np.float32), text="both", limit=5)
    assert list(near) == []
    assert await one.fingerprints() == {"a": "1", "both": "1"}
    assert len(await one.nearest(made("a").vectors[0], text="", limit=5)) == 2


async def test_only_this_and_the_last_used_embedder_are_kept(open_store: Open) -> None:
    for name in ("oldest", "older", "last", "oldest", "mine"):
        store = open_store(name)
        await store.upsert([made("a", name)])
        await store.close()
    mine, watching = open_store("mine"), open_store("older")
    await watching.changes()
    await open_store("oldest").fingerprints()
    await mine.upsert([made("b")])
    # Used last are now oldest, older, mine: of these `mine` asks, and `oldest` was before it.
    assert await mine.forget_others() == 2
    assert await mine.forget_others() == 0
    assert _names(await watching.changes()) == ([], [], True)
    assert await open_store("last").fingerprints() == {}
    assert await open_store("oldest").fingerprints() == {"a": "oldest"}
    assert await mine.fingerprints() == {"a": "mine", "b": "1"}
    await watching.upsert([made("a", "again")])
    assert _names(await watching.changes())[0] == ["a again"]


@pytest.mark.unmeasured
@pytest.mark.parametrize("kind", PROCESSES, indirect=True)
async def test_a_killed_writer_leaves_every_batch_whole(
    open_store: Open, kind: str, tmp_path: Path
) -> None:
    moments = random.Random(7)  # noqa: S311  # repeatable, not secret
    names = ["w0", "w1"] if kind == "lance" else ["w0", "w1", "w2", "w3"]  # one is slow to start
    with writers("loop", kind, tmp_path, names) as children:
        for name, child in zip(names, children, strict=True):
            go(child)
            lines = [read_line(child) for _ in range(moments.randint(1, 6))]
            await anyio.sleep(moments.uniform(0, 0.02))
            child.kill()
            lines += child.communicate()[0].split()
            stored = int(lines[-1])
            found = [e for e in (await open_store().changes()).entries if e.name.startswith(name)]
            rounds = {int(entry.fingerprint) for entry in found}
            assert (len(found), len(rounds)) == (BATCH, 1)
            assert rounds <= {stored, stored + 1}
            assert all(is_whole(entry, tolerance=_tolerance(kind)) for entry in found)
    store = open_store()
    assert list(await store.check()) == []
    await store.upsert([made("after")])
    assert len(await store.fingerprints()) == len(names) * BATCH + 1


@pytest.mark.unmeasured
@pytest.mark.parametrize("kind", PROCESSES, indirect=True)
async def test_two_processes_lose_and_double_nothing(
    open_store: Open, kind: str, tmp_path: Path
) -> None:
    store = open_store()
    await store.upsert([made("one-passing", "0"), made("other-passing", "0")])
    await store.changes()
    with writers("once", kind, tmp_path, ["one", "other"]) as children:
        for child in children:
            go(child)
        for child in children:
            child.communicate()
            assert child.returncode == 0
    told_changes = await store.changes()
    found = list(told_changes.entries)
    expected = {f"{who}-{n}" for who in ("one", "other", "shared") for n in range(ROUNDS)} | {"hot"}
    assert sorted(entry.name for entry in found) == sorted(expected)
    assert all(is_whole(entry, tolerance=_tolerance(kind)) for entry in found)
    assert set(told_changes.gone) == {"one-passing", "other-passing"}
    assert (await store.fingerprints()).keys() == expected
    assert list(await store.check()) == []
