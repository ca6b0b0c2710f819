"""SQLite store beyond the contract: corruption, locks, full disks, change detection."""

import logging
import os
import resource
import sqlite3
import tempfile
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest

from apexbridge.errors import StorageError
from apexbridge.retrieval.stores.sqlite import SqliteStore
from tests.retrieval.store_processes import is_whole, made

pytestmark = pytest.mark.anyio

NAMES = [f"n{number:02}" for number in range(40)]
PAGE = 8192
Open = Callable[..., SqliteStore]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "index.db"


@pytest.fixture
async def open_store(path: Path) -> AsyncGenerator[Open]:
    stores = list[SqliteStore]()

    def open_one(embedder_id: str = "model-a", **settings: Any) -> SqliteStore:
        stores.append(SqliteStore(path, embedder_id, **settings))
        return stores[-1]

    yield open_one
    for store in stores:
        await store.close()


@pytest.fixture
async def filled(path: Path) -> Path:
    store = SqliteStore(path, "model-a")
    await store.upsert([made(name, rows=9) for name in NAMES])
    await store.close()
    return path


def _execute(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement, values)


def _broken(path: Path) -> Path:
    return path.with_name(path.name + ".broken")


def _garbage(path: Path) -> None:
    path.write_bytes(np.random.default_rng(1).bytes(50_000))


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _zero_first_page(path: Path) -> None:
    _overwrite(path, 100, bytes(PAGE - 100))


def _zero_pages(path: Path) -> None:
    _overwrite(path, PAGE, bytes(6 * PAGE))


def _overwrite(path: Path, at: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(content)


def _no_database(path: Path) -> None:
    path.write_text("this is a letter, and no database\n" * 400, encoding="utf-8")


def _foreign(path: Path) -> None:
    path.unlink()
    _execute(path, "CREATE TABLE bookmarks (address TEXT)")


@pytest.mark.parametrize(
    "damage", [_garbage, _cut, _zero_first_page, _zero_pages, _no_database, _foreign]
)
async def test_a_corrupt_file_is_moved_aside_and_recreated(
    filled: Path,
    open_store: Open,
    damage: Callable[[Path], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    damage(filled)
    was = filled.read_bytes()
    store = open_store()
    with caplog.at_level(logging.WARNING):
        found = await store.changes()
    assert (list(found.entries), found.is_all, store.was_broken) == ([], True, True)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert _broken(filled).read_bytes()[:16] == was[:16]
    assert "set aside" in (await store.check())[0]
    await store.upsert([made("new")])
    assert await open_store().fingerprints() == {"new": "1"}


async def test_an_older_broken_file_gives_way_to_the_newer(filled: Path, open_store: Open) -> None:
    _broken(filled).write_bytes(b"older")
    _broken(filled).with_name(_broken(filled).name + "-wal").write_bytes(b"older log")
    _no_database(filled)
    assert await open_store().fingerprints() == {}
    assert _broken(filled).read_bytes().startswith(b"this is a letter")
    assert not list(filled.parent.glob("*.broken-wal"))


async def test_a_broken_file_that_cannot_be_set_aside_is_a_storage_error(
    filled: Path, open_store: Open
) -> None:
    _broken(filled).mkdir()
    _no_database(filled)
    with pytest.raises(StorageError, match="broken"):
        await open_store().fingerprints()


async def test_no_corrupt_entry_is_served_whichever_byte_is_damaged(
    filled: Path, open_store: Open
) -> None:
    sound, random = filled.read_bytes(), np.random.default_rng(3)
    for at in random.integers(0, len(sound), 40).tolist():
        filled.write_bytes(sound)
        _overwrite(filled, at, random.bytes(200)[: len(sound) - at])
        store = open_store()
        found = (await store.changes()).entries
        assert all(is_whole(entry) and entry.name in NAMES for entry in found)
        # An entry that was not served is missing in the fingerprints too.
        assert (await store.fingerprints()).items() <= {(e.name, e.fingerprint) for e in found}
        await store.upsert([made(name, rows=9) for name in NAMES])
        assert sorted(await store.fingerprints()) == NAMES
        await store.close()


async def test_damage_done_while_the_file_is_open_is_noticed(
    filled: Path, open_store: Open
) -> None:
    store = open_store()
    assert len(await store.fingerprints()) == len(NAMES)
    _overwrite(filled, PAGE, bytes(filled.stat().st_size - PAGE))
    found = await store.changes()
    assert (list(found.entries), store.was_broken) == ([], True)
    await store.upsert([made("new")])
    assert await store.fingerprints() == {"new": "1"}


@pytest.mark.parametrize(
    "change",
    [
        "vectors = substr(vectors, 2)",
        "vectors = x''",
        "terms = substr(terms, 5)",
        "counts = counts || x'01'",
        "rows = rows + 1",
    ],
)
async def test_an_entry_of_a_wrong_length_is_missing(
    filled: Path, open_store: Open, change: str
) -> None:
    _execute(filled, f"UPDATE entries SET {change} WHERE name = 'n07'")  # noqa: S608
    store = open_store()
    assert sorted(await store.fingerprints()) == [name for name in NAMES if name != "n07"]
    near = await store.nearest(made("n07", rows=9).vectors[0], text="", limit=99)
    assert "n07" not in {neighbour.name for neighbour in near}
    assert len(await store.check()) == 1
    assert "n07" not in {entry.name for entry in (await store.changes()).entries}
    assert list(await store.check()) == []
    await store.upsert([made("n07", rows=9)])
    assert [entry.name for entry in (await store.changes()).entries] == ["n07"]


async def test_an_entry_with_one_changed_byte_is_dropped(filled: Path, open_store: Open) -> None:
    changes = (
        "UPDATE entries SET vectors = x'00' || substr(vectors, 2) WHERE name = 'n01'",
        "UPDATE entries SET texts = '[]' WHERE name = 'n02'",
        "UPDATE entries SET fingerprint = CAST(x'ff' AS TEXT) WHERE name = 'n03'",
        "UPDATE entries SET name = CAST(x'ff' AS TEXT) WHERE name = 'n04'",
    )
    for change in changes:
        _execute(filled, change)
    store = open_store()
    found = (await store.changes()).entries
    assert sorted(entry.name for entry in found) == [NAMES[0], *NAMES[5:]]
    assert sorted(await store.fingerprints()) == [NAMES[0], *NAMES[5:]]
    assert not store.was_broken


async def test_a_file_of_another_schema_is_recreated(filled: Path, open_store: Open) -> None:
    _execute(filled, "PRAGMA user_version = 99")
    store = open_store()
    assert await store.fingerprints() == {}
    assert not store.was_broken
    assert not _broken(filled).exists()
    await store.upsert([made("a")])
    assert await open_store().fingerprints() == {"a": "1"}


async def test_a_corrupt_wal_loses_only_its_own_content(filled: Path, open_store: Open) -> None:
    filled.with_name(filled.name + "-wal").write_bytes(np.random.default_rng(2).bytes(9000))
    found = (await open_store().changes()).entries
    assert (len(found), all(is_whole(entry) for entry in found)) == (len(NAMES), True)


@pytest.mark.parametrize("place", ["folder", "below a file", "nowhere"])
async def test_a_place_that_cannot_be_a_file_is_a_storage_error(tmp_path: Path, place: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    paths = {
        "folder": tmp_path / "folder",
        "below a file": tmp_path / "file" / "index.db",
        "nowhere": Path("/proc/nowhere/index.db"),
    }
    store = SqliteStore(paths[place], "model-a")
    for _ in range(2):
        with pytest.raises(StorageError) as caught:
            await store.fingerprints()
        assert str(paths[place]) in caught.value.message
    await store.close()
    assert (tmp_path / "folder").is_dir()


async def test_a_file_locked_for_too_long_is_a_storage_error(
    filled: Path, open_store: Open
) -> None:
    store = open_store(busy_seconds=0.05)
    await store.fingerprints()
    with closing(sqlite3.connect(filled, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageError, match="another process has kept it locked"):
            await store.upsert([made("a")])
        assert len(await store.fingerprints()) == len(NAMES)
        # An embedder that is new here has to be noted, which the lock forbids too.
        late = open_store("model-b", busy_seconds=0.05)
        with pytest.raises(StorageError, match="another process has kept it locked"):
            await late.fingerprints()
        other.execute("ROLLBACK")
    await store.upsert([made("a")])
    assert await late.fingerprints() == {}
    assert "a" in await store.fingerprints()


@contextmanager
def _disk_of(size: int) -> Generator[None]:
    """No file may grow beyond this: what a full disk does to a writer."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_a_full_disk_is_a_storage_error_and_takes_nothing_away(open_store: Open) -> None:
    store = open_store()
    await store.upsert([made("a")])
    with _disk_of(400_000), pytest.raises(StorageError):
        await store.upsert([made(f"big{number}", rows=20) for number in range(200)])
    assert await store.fingerprints() == {"a": "1"}
    await store.upsert([made("b")])
    assert [is_whole(entry) for entry in (await store.changes()).entries] == [True, True]
    assert not store.was_broken


@contextmanager
def _nobody() -> Generator[None]:
    """Root may write anywhere: be someone else."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


async def test_a_read_only_place_is_a_storage_error_to_write() -> None:
    with tempfile.TemporaryDirectory() as folder:  # one that others may enter, as tmp_path is not
        path = Path(folder) / "index.db"
        store = SqliteStore(path, "model-a")
        await store.upsert([made("a")])
        await store.close()
        path.chmod(0o444)
        Path(folder).chmod(0o555)
        late = SqliteStore(path, "model-a")
        with _nobody(), pytest.raises(StorageError):
            await late.upsert([made("b")])
        await late.close()
        Path(folder).chmod(0o755)
        assert not late.was_broken


async def test_an_open_store_survives_the_removal_of_its_file(
    filled: Path, open_store: Open
) -> None:
    store = open_store()
    assert len((await store.changes()).entries) == len(NAMES)
    for file in filled.parent.glob("index.db*"):
        file.unlink()
    assert store.has_changed()
    assert (await store.changes()).is_all
    await store.upsert([made("a")])
    assert await open_store().fingerprints() == {"a": "1"}


async def test_an_open_store_follows_a_replaced_file(filled: Path, open_store: Open) -> None:
    holding, other = open_store(), open_store()
    await holding.changes()
    _overwrite(filled, PAGE, bytes(filled.stat().st_size - PAGE))
    await other.changes()
    await other.upsert([made("b")])
    changes = await holding.changes()
    assert ([entry.name for entry in changes.entries], changes.is_all) == (["b"], True)
    assert (other.was_broken, holding.was_broken) == (True, False)
    await holding.upsert([made("c")])
    await holding.close()
    assert await other.fingerprints() == {"b": "1", "c": "1"}
    await other.close()
    assert await open_store().fingerprints() == {"b": "1", "c": "1"}


async def test_of_concurrent_recoveries_exactly_one_moves_the_file(
    filled: Path, open_store: Open
) -> None:
    stores = [open_store() for _ in range(4)]
    for store in stores:
        await store.fingerprints()
    _overwrite(filled, PAGE, bytes(filled.stat().st_size - PAGE))
    async with anyio.create_task_group() as tasks:
        for number, store in enumerate(stores):
            tasks.start_soon(store.upsert, [made(f"new{number}")])
    assert [store.was_broken for store in stores].count(True) == 1
    assert sorted(await stores[0].fingerprints()) == ["new0", "new1", "new2", "new3"]


async def test_float16_takes_half_the_bytes_and_mixes_with_float32(
    path: Path, open_store: Open
) -> None:
    full, half = open_store(), open_store(precision="float16")
    await full.upsert([made("full", rows=4)])
    await half.upsert([made("half", rows=4)])
    found = {entry.name: entry for entry in (await full.changes()).entries}
    assert is_whole(found["full"])
    assert not is_whole(found["half"])
    assert is_whole(found["half"], tolerance=1e-3)
    assert np.allclose(np.linalg.norm(found["half"].vectors, axis=1), 1, atol=1e-6)
    with closing(sqlite3.connect(path)) as connection:
        sizes = dict(connection.execute("SELECT name, length(vectors) FROM entries").fetchall())
    assert sizes == {"full": 4 * 64 * 4, "half": 4 * 64 * 2}


async def test_pruned_tombstones_cause_a_full_reload(
    open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apexbridge.retrieval.stores.sqlite._MAX_TOMBSTONES", 5)
    store, other = open_store(), open_store()
    await store.upsert([made(name) for name in NAMES])
    await other.changes()
    await store.delete(NAMES[:5])
    assert sorted((await other.changes()).gone) == NAMES[:5]
    await store.delete(NAMES[5:7])
    changes = await other.changes()
    assert (changes.is_all, len(changes.entries)) == (True, len(NAMES) - 7)


async def test_the_file_shrinks_when_an_embedder_is_forgotten(path: Path, open_store: Open) -> None:
    for name in ("old", "older"):
        store = open_store(name)
        await store.upsert([made(f"{name}-{number}", rows=20) for number in range(100)])
        await store.close()
    mine = open_store("mine")
    await mine.upsert([made("a")])
    before = path.stat().st_size
    assert await mine.forget_others() == 1
    await mine.close()
    assert path.stat().st_size < before * 0.7


async def test_a_file_without_kinds_is_kept_and_its_entries_are_skills(
    filled: Path, open_store: Open
) -> None:
    _execute(filled, "ALTER TABLE entries DROP COLUMN kind")  # as earlier versions wrote it
    entries = (await open_store().changes()).entries
    assert [entry.name for entry in entries] == NAMES
    assert {entry.kind for entry in entries} == {"skill"}
    assert all(is_whole(entry) for entry in entries)
    assert await open_store().check() == []
    await open_store().upsert([replace(made("hammer"), kind="tool")])
    assert (await open_store().changes()).entries[-1].kind == "tool"


async def test_an_entry_of_another_kind_than_was_stored_is_damaged(
    filled: Path, open_store: Open
) -> None:
    for kind, name in (("tool", "n00"), ("neither", "n01")):
        _execute(filled, "UPDATE entries SET kind = ? WHERE name = ?", kind, name)
    assert len(await open_store().check()) == 2
    assert [entry.name for entry in (await open_store().changes()).entries] == NAMES[2:]
