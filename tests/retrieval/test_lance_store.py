"""LanceDB store beyond the contract: compaction, corruption, full disks, full text."""

import logging
import resource
import shutil
import sys
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from apexbridge.errors import ConfigError, StorageError
from apexbridge.retrieval.stores.lance import LanceStore
from tests.retrieval.store_processes import is_whole, made

pytestmark = pytest.mark.anyio

NAMES = [f"n{number:02}" for number in range(20)]
Open = Callable[..., LanceStore]


@pytest.fixture
def lancedb() -> Any:
    return pytest.importorskip("lancedb")


@pytest.fixture
async def open_store(lancedb: Any, tmp_path: Path) -> AsyncGenerator[Open]:
    stores = list[LanceStore]()

    def open_one(embedder_id: str = "model-a") -> LanceStore:
        stores.append(LanceStore(tmp_path / "lance", embedder_id))
        return stores[-1]

    yield open_one
    for store in stores:
        await store.close()


@pytest.fixture
async def place(open_store: Open, tmp_path: Path) -> Path:
    """A table that took two writes."""
    store = open_store()
    await store.upsert([made(name) for name in NAMES[:10]])
    await store.upsert([made(name) for name in NAMES[10:]])
    (table,) = (tmp_path / "lance").glob("*.lance")
    return table


def test_without_the_package_the_extra_to_install_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lancedb", None)
    with pytest.raises(ConfigError) as caught:
        LanceStore(tmp_path, "model-a")
    assert caught.value.code == "extra_missing"
    assert (caught.value.details["name"], caught.value.details["extra"]) == ("lancedb", "lance")


async def test_many_writes_leave_few_files_and_lose_nothing(
    open_store: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a machine of any speed: there is no reader of an old version here.
    young = timedelta(milliseconds=1)
    monkeypatch.setattr("apexbridge.retrieval.stores.lance._KEEP_VERSIONS", young)
    store, other = open_store(), open_store()
    await other.changes()
    seen, most = dict[str, str](), 0
    for number in range(80):
        await store.upsert([made(f"n{number % 50}", str(number), rows=1, dimensions=8)])
        if number % 20 == 19:
            seen.update({e.name: e.fingerprint for e in (await other.changes()).entries})
            most = max(most, sum(path.is_file() for path in tmp_path.rglob("*")))
    assert seen == {f"n{number % 50}": str(number) for number in range(30, 80)}
    assert most < 200  # each write alone adds four
    assert list(await store.check()) == []


async def test_the_name_is_the_tables_key_and_chinese_words_are_indexed(
    lancedb: Any, place: Path
) -> None:
    table = lancedb.connect(place.parent).open_table(place.stem)
    metadata = table.schema.field("name").metadata
    assert metadata == {b"lance-schema:unenforced-primary-key": b"true"}
    (index,) = table.list_indices()
    assert (index.index_type, index.columns) == ("FTS", ["text"])
    found = table.search("视图", query_type="fts").select(["name", "_score"]).limit(99).to_list()
    assert len(found) == len(NAMES)


async def test_full_text_scores_break_ties(open_store: Open) -> None:
    store = open_store()
    texts = {"a": "send an email", "b": "合并表格并读取文件", "c": "draw a chart"}
    same = np.ones((1, 8), dtype=np.float32)
    plain = made("", rows=1, dimensions=8)
    await store.upsert(
        [replace(plain, name=name, texts=(text,), vectors=same) for name, text in texts.items()]
    )
    for text, first in {"": "a", "读取": "b", "a CHART please": "c", "'; DROP": "a"}.items():
        near = await store.nearest(same, text=text, limit=2)
        assert (near[0].name, len(near)) == (first, 2)


def _cut_rows(table: Path) -> None:
    file = min((table / "data").iterdir())
    file.write_bytes(file.read_bytes()[:500])


def _remove_rows(table: Path) -> None:
    min((table / "data").iterdir()).unlink()


def _garble_rows(table: Path) -> None:
    file = min((table / "data").iterdir())
    file.write_bytes(np.random.default_rng(1).bytes(file.stat().st_size))


def _garble_versions(table: Path) -> None:
    for file in (table / "_versions").glob("*.manifest"):
        file.write_bytes(np.random.default_rng(2).bytes(300))


@pytest.mark.parametrize("damage", [_cut_rows, _remove_rows, _garble_rows, _garble_versions])
async def test_a_corrupt_table_is_moved_aside_and_recreated(
    place: Path,
    open_store: Open,
    damage: Callable[[Path], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    damage(place)
    store = open_store()
    with caplog.at_level(logging.WARNING):
        found = await store.changes()
    assert (list(found.entries), found.is_all, store.was_broken) == ([], True, True)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert place.with_suffix(".broken").is_dir()
    assert "set aside" in (await store.check())[0]
    await store.upsert([made("new")])
    assert await open_store().fingerprints() == {"new": "1"}


async def test_a_write_into_a_corrupt_table_recreates_it(place: Path, open_store: Open) -> None:
    _garble_rows(place)
    place.with_suffix(".broken").mkdir()
    store = open_store()
    await store.upsert([made("n00", "2")])
    assert await store.fingerprints() == {"n00": "2"}
    assert any(place.with_suffix(".broken").iterdir())


async def test_a_broken_table_that_cannot_be_set_aside_is_a_storage_error(
    place: Path, open_store: Open
) -> None:
    _garble_rows(place)
    place.with_suffix(".broken").touch()
    with pytest.raises(StorageError, match="broken"):
        await open_store().changes()


async def test_an_open_store_survives_the_removal_of_its_folder(
    place: Path, open_store: Open
) -> None:
    store = open_store()
    assert len((await store.changes()).entries) == len(NAMES)
    shutil.rmtree(place.parent)
    assert store.has_changed()
    assert (await store.changes()).is_all
    await store.upsert([made("a")])
    assert await open_store().fingerprints() == {"a": "1"}


async def test_an_entry_with_a_changed_byte_is_dropped(
    lancedb: Any, place: Path, open_store: Open
) -> None:
    table = lancedb.connect(place.parent).open_table(place.stem)
    table.update(where="name = 'n03'", values={"fingerprint": "other"})
    store = open_store()
    assert list(await store.check()) == ["the entry n03 is damaged"]
    found = (await store.changes()).entries
    assert sorted(entry.name for entry in found) == [name for name in NAMES if name != "n03"]
    assert "n03" not in await store.fingerprints()
    assert not store.was_broken


@pytest.mark.parametrize("kind", ["a file", "below a file", "nowhere"])
async def test_a_place_that_cannot_be_a_folder_is_a_storage_error(
    lancedb: Any, tmp_path: Path, kind: str
) -> None:
    (tmp_path / "file").touch()
    places = {
        "a file": tmp_path / "file",
        "below a file": tmp_path / "file" / "lance",
        "nowhere": Path("/proc/nowhere"),
    }
    store = LanceStore(places[kind], "model-a")
    with pytest.raises(StorageError):
        await store.fingerprints()
    await store.close()


async def test_a_full_disk_is_a_storage_error_and_takes_nothing_away(
    place: Path, open_store: Open
) -> None:
    store = open_store()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(StorageError):
            await store.upsert([made(f"big{number}", rows=50) for number in range(50)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert sorted(await store.fingerprints()) == NAMES
    assert all(is_whole(entry) for entry in (await store.changes()).entries)
    assert not store.was_broken


async def test_an_unreadable_embedder_file_is_rewritten(place: Path, open_store: Open) -> None:
    for content in ("{half", "7", ""):
        (place.parent / "embedders.json").write_text(content, encoding="utf-8")
        assert len(await open_store().fingerprints()) == len(NAMES)
    assert await open_store("model-b").forget_others() == 0


async def test_versions_cleaned_away_by_another_are_no_error(
    lancedb: Any, place: Path, open_store: Open
) -> None:
    store = open_store()
    await store.changes()
    table = lancedb.connect(place.parent).open_table(place.stem)
    table.delete("name = 'n00'")
    table.optimize(cleanup_older_than=timedelta(milliseconds=1))
    assert list((await store.changes()).gone) == ["n00"]
    await store.upsert([made("n00")])
    assert sorted(await store.fingerprints()) == NAMES


async def test_a_table_without_kinds_is_kept_and_its_entries_are_skills(
    place: Path, open_store: Open, lancedb: Any
) -> None:
    table = lancedb.connect(place.parent).open_table(place.stem)
    table.drop_columns(["kind"])  # as earlier versions wrote it
    entries = (await open_store().changes()).entries
    assert sorted(entry.name for entry in entries) == NAMES
    assert {entry.kind for entry in entries} == {"skill"}
    assert all(is_whole(entry) for entry in entries)
    await open_store().upsert([replace(made("hammer"), kind="tool")])
    kinds = {entry.name: entry.kind for entry in (await open_store().changes()).entries}
    assert kinds["hammer"] == "tool"
