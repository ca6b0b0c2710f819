"""Index synchronization, with failures at every step."""

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import anyio
import anyio.lowlevel
import numpy as np
import pytest

from apexbridge.errors import (
    EmbedderOutputError,
    EmbedderUnavailableError,
    IndexMismatchError,
    SourceError,
    StorageError,
)
from apexbridge.retrieval import sync as sync_module
from apexbridge.retrieval.base import IndexEntry, Matrix, TextKind, VectorStore
from apexbridge.retrieval.index import SkillIndex
from apexbridge.retrieval.results import SyncCallbacks, SyncProgress
from apexbridge.retrieval.skill_document import SkillText
from apexbridge.retrieval.stores.sqlite import SqliteStore
from apexbridge.retrieval.sync import IndexItem, sync
from apexbridge.retrieval.thread_control import shortened_gil_switch_interval
from apexbridge.testing import HashEmbedder, MemoryStore

pytestmark = pytest.mark.anyio

ID = "hash-64"


class LimitedEmbedder(HashEmbedder):
    """Answers so many calls, and then no more; remembers what it was asked."""

    def __init__(self, calls: float = float("inf"), *, size: int = 64) -> None:
        super().__init__(size)
        self.calls = calls
        self.asked: list[str] = []
        self.poison = ""

    @property
    def id(self) -> str:
        return ID

    async def embed(self, texts: Sequence[str], *, kind: TextKind) -> Matrix:
        if self.calls < 1:
            raise EmbedderUnavailableError("connection refused", name=self.id)
        self.calls -= 1
        self.asked += texts
        rows = np.array(await super().embed(texts, kind=kind))
        if self.poison and any(self.poison in text for text in texts):
            rows[0] = np.nan
        return rows


class FailingStore(MemoryStore):
    """Takes so many writes, and then no more."""

    def __init__(self, writes: int) -> None:
        super().__init__(ID)
        self.writes = writes

    async def upsert(self, entries: Sequence[IndexEntry]) -> None:
        if not self.writes:
            raise StorageError("the disk is full")
        self.writes -= 1
        await super().upsert(entries)


@pytest.fixture(params=["memory", "sqlite"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], VectorStore]:
    if request.param == "memory":
        return lambda: MemoryStore(ID)
    return lambda: SqliteStore(tmp_path / "index.db", ID)


@pytest.fixture
def two_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync_module, "BATCH_SIZE", 2)


def _item(name: str, fingerprint: str = "1", summary: str = "") -> IndexItem:
    async def read() -> SkillText:
        return SkillText(name=name, summary=summary or f"about {name} in state {fingerprint}")

    return IndexItem(name=name, fingerprint=fingerprint, read=read)


def _unreadable(name: str) -> IndexItem:
    async def read() -> SkillText:
        raise SourceError("it is not there", source="here")

    return IndexItem(name=name, fingerprint="1", read=read)


def _items(names: str, fingerprint: str = "1") -> list[IndexItem]:
    return [_item(name, fingerprint) for name in names.split()]


def _index(store: VectorStore | None = None, embedder: LimitedEmbedder | None = None) -> SkillIndex:
    return SkillIndex(embedder or LimitedEmbedder(), store or MemoryStore(ID))


async def _found(index: SkillIndex, query: str) -> list[str]:
    """Those that have a word of the request."""
    return [hit.name for hit in (await index.search(query, limit=999)).hits if hit.parts.words]


async def test_each_is_kept_added_redone_or_dropped(
    make_store: Callable[[], VectorStore],
) -> None:
    store = make_store()
    embedder = LimitedEmbedder()
    index = _index(store, embedder)
    first = await sync(index, _items("alpha bravo charlie"))
    assert first.added == ("alpha", "bravo", "charlie")
    assert (first.kept, first.redone, first.dropped, first.pending, first.failed) == ((),) * 5
    embedder.asked.clear()
    second = await sync(index, [*_items("alpha delta"), _item("bravo", "2")])
    assert second.kept == ("alpha",)
    assert second.added == ("delta",)
    assert second.redone == ("bravo",)
    assert second.dropped == ("charlie",)
    assert not any("alpha" in text for text in embedder.asked)
    assert await store.fingerprints() == {"alpha": "1", "bravo": "2", "delta": "1"}
    assert sorted(index.memory.row_of) == ["alpha", "bravo", "delta"]
    embedder.asked.clear()
    third = await sync(index, [*_items("alpha delta"), _item("bravo", "2")])
    assert third.kept == ("alpha", "delta", "bravo")
    assert embedder.asked == []
    again = await sync(index, [*_items("alpha delta"), _item("bravo", "2")], again={"alpha", "no"})
    assert (again.redone, again.kept) == (("alpha",), ("delta", "bravo"))
    last = await sync(index, [])
    assert sorted(last.dropped) == ["alpha", "bravo", "delta"]
    assert (await store.fingerprints(), len(index)) == ({}, 0)
    await store.close()


async def test_an_entry_has_the_kind_of_its_text(tmp_path: Path) -> None:
    async def read() -> SkillText:
        return SkillText.from_tool("drive_nail", "Drives a nail.", {"properties": {"nail": {}}})

    tool = IndexItem(name="mcp:hammer", fingerprint="1", read=read)
    index = _index(SqliteStore(tmp_path / "index.db", ID))
    await sync(index, [tool, *_items("carpentry")])
    assert await _found(index, "nail") == ["mcp:hammer"]
    await index.store.close()
    again = SqliteStore(tmp_path / "index.db", ID)
    kinds = {entry.name: entry.kind for entry in (await again.changes()).entries}
    await again.close()
    assert kinds == {"mcp:hammer": "tool", "carpentry": "skill"}


async def test_stored_entries_are_kept_by_the_next_process(tmp_path: Path) -> None:
    for state in ("added", "kept"):
        store = SqliteStore(tmp_path / "index.db", ID)
        index = _index(store)
        report = await sync(index, _items("alpha bravo"))
        assert {"added": report.added, "kept": report.kept}[state] == ("alpha", "bravo")
        assert await _found(index, "bravo") == ["bravo"]
        await store.close()


async def test_an_unchanged_index_is_loaded_by_the_first_search_only(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "index.db", ID)
    await sync(_index(store), _items("alpha bravo charlie"))
    mine, theirs = (SqliteStore(tmp_path / "index.db", ID) for _ in range(2))
    index = _index(mine)
    assert (await sync(index, _items("alpha bravo charlie"))).kept == ("alpha", "bravo", "charlie")
    assert (index.is_loaded, len(index)) == (False, 0)
    # Another process changes one and takes one away before anyone has searched here.
    await sync(_index(theirs), [_item("alpha", "2", "about zebras"), _item("bravo")])
    assert await _found(index, "zebras") == ["alpha"]
    assert await _found(index, "charlie") == []
    assert (index.is_loaded, len(index)) == (True, 2)


async def test_an_unsearched_index_keeps_pending_skills(
    tmp_path: Path,
) -> None:
    await sync(_index(SqliteStore(tmp_path / "index.db", ID)), _items("alpha bravo"))
    index = _index(SqliteStore(tmp_path / "index.db", ID), LimitedEmbedder(calls=0))
    assert (await sync(index, _items("alpha bravo delta"))).pending == ("delta",)
    assert await _found(index, "delta") == ["delta"]
    assert await _found(index, "alpha") == ["alpha"]


async def test_of_one_name_given_twice_the_last_counts() -> None:
    index = _index()
    report = await sync(index, [_item("same", "1"), _item("other"), _item("same", "2")])
    assert sorted(report.added) == ["other", "same"]
    assert await index.store.fingerprints() == {"same": "2", "other": "1"}
    assert (await sync(index, [_item("same", "2"), _item("other")])).kept == ("same", "other")


@pytest.mark.usefixtures("two_a_batch")
async def test_an_unreadable_skill_is_reported_and_others_are_indexed() -> None:
    index = _index()
    await sync(index, [_item("once")])
    items = [_unreadable("x"), _item("alpha"), _unreadable("y"), _unreadable("z"), _item("bravo")]
    seen = list[SyncProgress]()
    report = await sync(
        index, [*items, _unreadable("once")], watch=SyncCallbacks(progress=seen.append)
    )
    assert report.failed == ("x", "y", "z")
    assert (report.added, report.pending, report.problem) == (("alpha", "bravo"), (), None)
    assert report.kept == ("once",)  # its fingerprint is unchanged, so that it is not read
    assert seen[-1] == SyncProgress(done=5, total=5)
    assert set(await index.store.fingerprints()) == {"once", "alpha", "bravo"}
    only = await sync(_index(), [_unreadable("x")])
    assert (only.failed, only.added) == (("x",), ())


@pytest.mark.usefixtures("two_a_batch")
async def test_an_embedder_failure_leaves_the_rest_to_bm25(
    make_store: Callable[[], VectorStore],
) -> None:
    store, embedder = make_store(), LimitedEmbedder(calls=1)
    index = _index(store, embedder)
    items = _items("alpha bravo charlie delta echo")
    seen, marked = list[SyncProgress](), list[str]()

    async def mark(names: Sequence[str]) -> None:
        marked.extend(names)

    report = await sync(index, items, watch=SyncCallbacks(progress=seen.append, stored=mark))
    assert report.added == ("alpha", "bravo")
    assert report.pending == ("charlie", "delta", "echo")
    assert isinstance(report.problem, EmbedderUnavailableError)
    assert marked == ["alpha", "bravo"]
    assert set(await store.fingerprints()) == {"alpha", "bravo"}
    assert seen == [SyncProgress(done=done, total=5) for done in (2, 4, 5)]
    for name in ("alpha", "charlie", "echo"):
        assert await _found(index, name) == [name]
    embedder.calls = 99
    for name in ("alpha", "charlie", "echo"):  # words and vectors side by side
        assert (await index.search(name, limit=1)).hits[0].name == name
    after = await sync(index, items)
    assert (after.kept, after.problem) == (("alpha", "bravo"), None)
    assert after.added == ("charlie", "delta", "echo")
    assert set(await store.fingerprints()) == {"alpha", "bravo", "charlie", "delta", "echo"}
    hit = (await index.search("charlie", limit=1)).hits[0]
    assert (hit.name, hit.parts.dense > 0) == ("charlie", True)
    await store.close()


@pytest.mark.usefixtures("two_a_batch")
async def test_one_text_that_the_embedder_cannot_take_keeps_no_other_skill_waiting() -> None:
    embedder = LimitedEmbedder()
    embedder.poison = "charlie"
    index = _index(embedder=embedder)
    report = await sync(index, _items("alpha bravo charlie delta echo foxtrot"))
    assert isinstance(report.problem, EmbedderOutputError)
    assert report.added == ("alpha", "bravo", "delta", "echo", "foxtrot")
    assert report.pending == ("charlie",)


@pytest.mark.usefixtures("two_a_batch")
async def test_an_embedder_with_invalid_output_is_given_up() -> None:
    embedder = LimitedEmbedder()
    embedder.poison = "a"
    index = _index(embedder=embedder)
    names = " ".join(f"a{number}" for number in range(40))
    report = await sync(index, _items(names))
    assert (len(report.pending), report.added) == (40, ())
    assert len(embedder.asked) < 20


async def test_a_pending_skill_that_is_gone_is_found_no_more() -> None:
    index = _index(embedder=LimitedEmbedder(calls=0))
    await sync(index, _items("alpha bravo"))
    assert await _found(index, "bravo") == ["bravo"]
    report = await sync(index, _items("alpha"))
    assert report.pending == ("alpha",)
    assert await _found(index, "bravo") == []
    assert sorted(index.memory.row_of) == ["alpha"]
    await sync(index, [])
    assert len(index) == 0


async def test_a_skill_reverted_while_the_embedder_was_down_is_complete_again() -> None:
    embedder = LimitedEmbedder()
    index = _index(embedder=embedder)
    old, new = _item("alpha", "1", "about apples"), _item("alpha", "2", "about bananas")
    await sync(index, [old])
    embedder.calls = 0
    assert (await sync(index, [new])).pending == ("alpha",)
    assert await _found(index, "bananas") == ["alpha"]
    embedder.calls = 99
    await sync(index, [old])
    assert (await _found(index, "bananas"), await _found(index, "apples")) == ([], ["alpha"])
    assert (await index.search("apples")).hits[0].parts.dense > 0


async def test_repeated_embedder_failures_do_not_leak_memory() -> None:
    index = _index(embedder=LimitedEmbedder(calls=0))
    items = _items(" ".join(f"n{number}" for number in range(50)))
    for _ in range(20):
        assert len((await sync(index, items)).pending) == 50
    assert len(index) == 50
    assert len(index.memory.names) <= 50 + 64 + 50


async def test_skills_without_vectors_do_not_hide_those_with_vectors() -> None:
    class Shy(LimitedEmbedder):
        @property
        def dimensions(self) -> int:
            return 64 if self.asked else 0  # as one whose first answer tells

    embedder = Shy(calls=0)
    index = _index(embedder=embedder)
    await sync(index, _items("alpha bravo"))
    embedder.calls = 99
    report = await sync(index, _items("alpha bravo"))
    assert (report.added, report.pending) == (("alpha", "bravo"), ())
    assert (await index.search("bravo", limit=1)).hits[0].parts.dense > 0


@pytest.mark.usefixtures("two_a_batch")
async def test_a_model_replaced_under_its_name_is_reported_and_repaired_by_a_rebuild(
    tmp_path: Path,
) -> None:
    before, store = (SqliteStore(tmp_path / "index.db", ID) for _ in range(2))
    items = _items("alpha bravo charlie")
    await sync(_index(before), items)
    await before.close()
    index = _index(store, LimitedEmbedder(size=32))
    report = await sync(index, [*items, *_items("delta echo foxtrot")])
    assert isinstance(report.problem, IndexMismatchError)
    assert report.kept == ("alpha", "bravo", "charlie")
    assert report.pending == ("delta", "echo", "foxtrot")
    assert await _found(index, "delta") == ["delta"]
    rebuilt = await sync(index, items, again=["alpha", "bravo", "charlie"])
    assert (rebuilt.redone, rebuilt.problem) == (("alpha", "bravo", "charlie"), None)
    assert index.memory.dimensions == 32
    found = await index.search("bravo", limit=1)
    assert (found.hits[0].name, found.problem) == ("bravo", None)
    assert sorted(await store.fingerprints()) == ["alpha", "bravo", "charlie"]
    await store.close()


@pytest.mark.usefixtures("two_a_batch")
async def test_progress_reaches_its_total_and_reported_batches_are_durable() -> None:
    index = _index()
    seen, stored = list[SyncProgress](), list[list[str]]()

    async def mark(names: Sequence[str]) -> None:
        held = await index.store.fingerprints()
        assert all(name in held and name in index.memory.row_of for name in names)
        stored.append(list(names))

    watch = SyncCallbacks(progress=seen.append, stored=mark)
    await sync(index, _items("a1 b1 c1 d1 e1"), watch=watch)
    assert stored == [["a1", "b1"], ["c1", "d1"], ["e1"]]
    assert seen == [SyncProgress(done=done, total=5) for done in (2, 4, 5)]
    await sync(index, _items("a1 b1 c1 d1 e1"), watch=watch)
    assert (len(stored), len(seen)) == (3, 3)


@pytest.mark.usefixtures("two_a_batch")
@pytest.mark.parametrize("writes", [0, 1])
async def test_a_store_that_cannot_be_written_is_a_storage_error(writes: int) -> None:
    index = _index(FailingStore(writes))
    with pytest.raises(StorageError, match="disk is full"):
        await sync(index, _items("alpha bravo charlie delta echo foxtrot golf"))
    assert len(await index.store.fingerprints()) == 2 * writes
    assert sorted(index.memory.row_of) == ["alpha", "bravo"][: 2 * writes]


@pytest.mark.usefixtures("two_a_batch")
async def test_a_marker_that_cannot_be_written_is_a_storage_error() -> None:
    async def mark(_: Sequence[str]) -> None:
        raise StorageError("read-only")

    index = _index()
    with pytest.raises(StorageError, match="read-only"):
        await sync(
            index, _items("alpha bravo charlie delta echo"), watch=SyncCallbacks(stored=mark)
        )
    assert set(await index.store.fingerprints()) == {"alpha", "bravo"}
    assert (await sync(index, _items("alpha bravo charlie"))).added == ("charlie",)


async def test_a_store_that_cannot_be_opened_is_a_storage_error(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "index.db", ID)
    await store.close()
    with pytest.raises(StorageError):
        await sync(_index(store), _items("alpha"))


def _read_by(act: Callable[[], Awaitable[object]], name: str) -> IndexItem:
    async def read() -> SkillText:
        await act()
        return SkillText(name=name, summary=f"about {name}")

    return IndexItem(name=name, fingerprint="1", read=read)


@pytest.mark.usefixtures("two_a_batch")
@pytest.mark.parametrize("moment", ["reading", "embedding", "storing", "marking"])
async def test_a_cancelled_sync_can_be_resumed(
    make_store: Callable[[], VectorStore], moment: str
) -> None:
    store = make_store()
    index = _index(store)
    names = "alpha bravo charlie delta echo foxtrot"
    with anyio.CancelScope() as scope:

        async def stop() -> None:
            scope.cancel()

        items = _items(names)
        watch = SyncCallbacks()
        if moment == "reading":
            items[3] = _read_by(stop, "delta")
        elif moment == "embedding":
            index = _index(store, _Stopping(scope))
        elif moment == "storing":
            watch = SyncCallbacks(progress=lambda _: scope.cancel())
        else:
            watch = SyncCallbacks(stored=lambda _: stop())
        await sync(index, items, watch=watch)
    assert scope.cancelled_caught
    held = await store.fingerprints()
    assert len(held) in {0, 2, 4}
    assert list(await store.check()) == []
    report = await sync(index, _items(names))
    assert set(report.kept) == held.keys()
    assert sorted((*report.kept, *report.added)) == sorted(names.split())
    assert sorted(index.memory.row_of) == sorted(names.split())
    assert await _found(index, "foxtrot") == ["foxtrot"]
    await store.close()


class _Stopping(LimitedEmbedder):
    def __init__(self, scope: anyio.CancelScope) -> None:
        super().__init__()
        self._scope = scope

    async def embed(self, texts: Sequence[str], *, kind: TextKind) -> Matrix:
        if any("charlie" in text for text in texts):
            self._scope.cancel()
            await anyio.lowlevel.checkpoint()
        return await super().embed(texts, kind=kind)


@pytest.mark.parametrize("batch", [1, 7, 192, 1_000, 1_001])
@pytest.mark.unmeasured
async def test_a_thousand_skills_are_stored_with_any_batch_size(
    monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    monkeypatch.setattr(sync_module, "BATCH_SIZE", batch)
    index = _index()
    count = 1_000 if batch > 7 else 100
    items = [_item(f"n{number}", str(number % 3)) for number in range(count)]
    seen = list[SyncProgress]()
    report = await sync(index, items, watch=SyncCallbacks(progress=seen.append))
    assert report.added == tuple(item.name for item in items)
    assert len(seen) == -(-count // batch)
    assert seen[-1] == SyncProgress(done=count, total=count)
    held: Mapping[str, str] = await index.store.fingerprints()
    assert held == {item.name: item.fingerprint for item in items}
    memory = index.memory
    for name in ("n0", f"n{count - 1}", f"n{count // 2}"):
        assert name in memory.texts[memory.row_of[name]][0]
    changed = [_item(f"n{number}", str((number + number % 2) % 3)) for number in range(count)]
    again = await sync(index, changed)
    assert len(again.redone) == sum(
        new.fingerprint != old.fingerprint for new, old in zip(changed, items, strict=True)
    )


async def test_two_at_once_end_with_every_skill_there() -> None:
    index = _index()
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(sync, index, _items("alpha bravo charlie"))
    assert sorted(index.memory.row_of) == ["alpha", "bravo", "charlie"]
    assert len(index.memory) == 3
    assert set(await index.store.fingerprints()) == {"alpha", "bravo", "charlie"}


async def test_texts_of_every_kind_can_be_stored(tmp_path: Path) -> None:
    texts = ["", " ", "🎉", "\ud800", "\0", "字" * 5_000, "# " * 5_000, "“" * 5_000]
    items = [_item(f"n{number}", summary=text) for number, text in enumerate(texts)]
    found = list[list[str]]()
    for state in ("added", "kept"):
        store = SqliteStore(tmp_path / "index.db", ID)
        index = _index(store)
        report = await sync(index, items)
        assert len({"added": report.added, "kept": report.kept}[state]) == len(texts)
        assert list(await store.check()) == []
        found.append([hit.name for hit in (await index.search("字", limit=99)).hits])
        await store.close()
    assert found[0] == found[1]
    assert len(found[0]) == len(texts)


def _at_once(name: str) -> IndexItem:
    """Its texts can be read synchronously, so that `read` must not be awaited."""

    async def read() -> SkillText:
        raise AssertionError("it was waited for")

    text = SkillText(name=name, summary=f"about {name}")
    return IndexItem(name=name, fingerprint="1", read=read, read_at_once=lambda: text)


def _unreadable_at_once(name: str) -> IndexItem:
    def read_at_once() -> SkillText | None:
        raise SourceError("it is not there", source="here")

    return IndexItem(name=name, fingerprint="1", read=_item(name).read, read_at_once=read_at_once)


@pytest.mark.usefixtures("two_a_batch")
async def test_synchronous_reads_come_first_and_the_rest_is_awaited() -> None:
    index = _index()
    items = [_at_once("alpha"), _item("bravo"), _unreadable_at_once("charlie"), _at_once("delta")]
    seen = list[SyncProgress]()
    report = await sync(index, items, watch=SyncCallbacks(progress=seen.append))
    assert report.added == ("alpha", "bravo", "delta")
    assert report.failed == ("charlie",)
    assert await _found(index, "delta") == ["delta"]
    assert [step.done for step in seen] == [2, 4]


@pytest.mark.usefixtures("two_a_batch")
async def test_the_gil_switch_interval_is_restored_after_a_sync() -> None:
    usual = sys.getswitchinterval()
    within = list[float]()
    watch = SyncCallbacks(progress=lambda _: within.append(sys.getswitchinterval()))
    await sync(_index(), _items("alpha bravo charlie"), watch=watch)
    assert len(within) == 2
    assert all(seconds < usual for seconds in within)
    assert sys.getswitchinterval() == usual
    with pytest.raises(StorageError):
        await sync(_index(FailingStore(1)), _items("alpha bravo charlie"))
    assert sys.getswitchinterval() == usual


def test_the_last_user_restores_the_gil_switch_interval() -> None:
    usual = sys.getswitchinterval()
    first, second = shortened_gil_switch_interval(), shortened_gil_switch_interval()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert sys.getswitchinterval() < usual
    second.__exit__(None, None, None)
    assert sys.getswitchinterval() == usual
