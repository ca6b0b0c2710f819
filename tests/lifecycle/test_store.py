"""Installed skills on disk: every change is atomic."""

import fcntl
import os
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from apexbridge.errors import (
    SkillExistsError,
    SkillNotFoundError,
    StateDamagedError,
    StorageError,
)
from apexbridge.lifecycle import store as store_module
from apexbridge.lifecycle import trash
from apexbridge.lifecycle.states import SkillStates
from apexbridge.lifecycle.store import LOCKS, STAGING, RecoveryReport, SkillStore
from apexbridge.lifecycle.trash import TRASH
from apexbridge.testing import make_skill, skill_md

WEEK = 7 * 86_400


@pytest.fixture
def store(tmp_path: Path) -> SkillStore:
    return SkillStore(tmp_path / "skills")


def _put(store: SkillStore, name: str, description: str = "d") -> Path:
    with store.staging() as place:
        return store.install(make_skill(place, name, description=description), name)


def test_a_built_folder_becomes_the_skill_and_nothing_is_left_of_the_building(
    store: SkillStore,
) -> None:
    root = _put(store, "pdf")
    assert root == store.root / "pdf"
    assert store.read("pdf").name == "pdf"
    assert [path.name for path in (store.root / STAGING).iterdir()] == [".lock"]


@pytest.mark.promise("L01")
@pytest.mark.parametrize("name", ["pdf", "PDF", "ｐｄｆ"])
def test_a_taken_name_is_refused_in_whatever_letters(store: SkillStore, name: str) -> None:
    before = (_put(store, "pdf", description="first") / "SKILL.md").read_bytes()
    with pytest.raises(SkillExistsError):
        _put(store, name, description="second")
    assert [path.name for path in store.root.iterdir() if path.name[0] != "."] == ["pdf"]
    assert (store.root / "pdf/SKILL.md").read_bytes() == before


@pytest.mark.promise("L02")
def test_of_many_who_want_a_name_at_once_one_gets_it(store: SkillStore) -> None:
    won, lost = list[int](), list[int]()
    start = threading.Barrier(20)

    def try_it(number: int) -> None:
        with store.staging() as place:
            built = make_skill(place, "pdf", description=f"from {number}")
            start.wait()
            try:
                store.install(built, "pdf")
                won.append(number)
            except SkillExistsError:
                lost.append(number)

    threads = [threading.Thread(target=try_it, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(won), len(lost)) == (1, 19)
    assert store.read("pdf").description == f"from {won[0]}"


def test_what_is_taken_away_can_be_brought_back_as_it_was(store: SkillStore) -> None:
    _put(store, "pdf", description="mine")
    gone = store.uninstall("pdf")
    with pytest.raises(SkillNotFoundError):
        store.folder("pdf")
    assert store.trash.list() == (gone,)
    assert store.trash.latest("pdf") == gone
    store.restore(gone)
    assert store.read("pdf").description == "mine"
    assert store.trash.list() == ()
    assert list((store.root / TRASH).iterdir()) == []


def test_the_last_removal_is_undone_first_and_only_into_a_free_place(store: SkillStore) -> None:
    for text in ("old", "new"):
        _put(store, "pdf", description=text)
        store.uninstall("pdf")
    _put(store, "pdf", description="current")
    with pytest.raises(SkillExistsError):
        store.restore(store.trash.latest("pdf"))
    assert len(store.trash.list()) == 2
    store.uninstall("pdf")
    store.restore(store.trash.latest("pdf"))
    assert store.read("pdf").description == "current"


@pytest.mark.promise("L13")
@pytest.mark.parametrize("name", ["nothing", "..", ".", "", "../skills", ".trash", "a/b", "a\0b"])
def test_a_name_that_is_no_skill_is_not_found_and_nothing_happens(
    store: SkillStore, name: str
) -> None:
    _put(store, "pdf")
    with pytest.raises(SkillNotFoundError):
        store.uninstall(name)
    with pytest.raises(SkillNotFoundError):
        store.restore(store.trash.latest(name))
    assert store.read("pdf").name == "pdf"


def test_new_bytes_take_the_place_of_the_old_and_leave_nothing_beside(store: SkillStore) -> None:
    root = _put(store, "pdf")
    (root / "SKILL.md").chmod(0o640)
    store.replace_skill_md("pdf", skill_md("pdf", "new"))
    assert store.read("pdf").description == "new"
    assert [path.name for path in root.iterdir()] == ["SKILL.md"]
    assert (root / "SKILL.md").stat().st_mode & 0o777 == 0o640


def test_recovery_removes_what_is_unfinished_and_what_is_too_old(store: SkillStore) -> None:
    assert store.recover(keep_seconds=WEEK) == RecoveryReport()
    _put(store, "kept")
    _put(store, "old")
    _put(store, "young")
    old = store.uninstall("old")
    store.uninstall("young")
    about = store.root / TRASH / old.operation / "about.json"
    about.write_text(f'{{"name": "old", "at": {time.time() - 2 * WEEK}}}', encoding="utf-8")
    make_skill(store.root / STAGING / "abandoned", "half")
    (store.root / STAGING / "x.marker").write_bytes(b"")
    (store.root / TRASH / "never-happened").mkdir()
    assert store.recover(keep_seconds=WEEK) == RecoveryReport(unfinished=3, expired=1)
    assert [entry.name for entry in store.trash.list()] == ["young"]
    assert store.read("kept").name == "kept"
    assert store.recover(keep_seconds=WEEK) == RecoveryReport()


def test_recovery_leaves_alone_what_somebody_builds_right_now(store: SkillStore) -> None:
    with store.staging() as place:
        built = make_skill(place, "pdf")
        assert store.recover(keep_seconds=WEEK).unfinished == 0
        store.install(built, "pdf")
    assert store.read("pdf").name == "pdf"


def test_a_name_is_changed_by_one_at_a_time(store: SkillStore) -> None:
    with store.name_lock("pdf"):
        descriptor = os.open(store.root / LOCKS / "pdf", os.O_RDWR)
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(descriptor)
        with store.name_lock("docx"):
            pass


@pytest.mark.promise("L05")
def test_a_disk_that_refuses_changes_nothing(
    store: SkillStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    _put(store, "pdf", description="old")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("apexbridge.paths.fsync_file", full)
        with pytest.raises(StorageError, match="No space"):
            _put(store, "docx")
    with monkeypatch.context() as patch:
        patch.setattr(store_module, "create_bytes", full)
        patch.setattr(trash, "create_bytes", full)
        with pytest.raises(StorageError, match="No space"):
            store.replace_skill_md("pdf", b"new")
        with pytest.raises(StorageError, match="No space"):
            store.uninstall("pdf")
    assert store.read("pdf").description == "old"
    with pytest.raises(SkillNotFoundError):
        store.folder("docx")


def test_a_place_that_cannot_be_made_is_an_error_of_storage(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = SkillStore(tmp_path / "file/skills")
    with pytest.raises(StorageError), store.staging():
        pass
    with pytest.raises(StorageError), store.name_lock("x"):
        pass


def test_a_skill_that_cannot_be_read_is_none(store: SkillStore) -> None:
    make_skill(store.root, "broken", raw=b"nothing")
    with pytest.raises(SkillNotFoundError):
        store.read("broken")


def test_names_are_switched_off_and_on_and_stay_so(tmp_path: Path) -> None:
    states = SkillStates(tmp_path / "data/states.json")
    assert states.disabled() == frozenset()
    assert not states.set_enabled("pdf", enabled=True)
    assert states.set_enabled("pdf", enabled=False)
    assert not states.set_enabled("pdf", enabled=False)
    assert SkillStates(tmp_path / "data/states.json").disabled() == {"pdf"}
    assert states.set_enabled("pdf", enabled=True)
    assert states.disabled() == frozenset()


def test_damaged_states_are_an_error_and_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "states.json"
    running = SkillStates(path)
    running.set_enabled("pdf", enabled=False)
    assert running.disabled_or_last() == {"pdf"}
    path.write_bytes(b"{")
    calls = (running.disabled, running.pinned, partial(running.pin, "pdf", "0" * 64))
    for call in (*calls, partial(running.set_enabled, "pdf", enabled=True)):
        with pytest.raises(StateDamagedError):
            call()
    assert running.disabled_or_last() == {"pdf"}
    with pytest.raises(StateDamagedError):
        SkillStates(path).disabled_or_last()
    assert path.read_bytes() == b"{"


def test_states_that_cannot_be_written_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError):
        SkillStates(tmp_path / "file/states.json").set_enabled("pdf", enabled=False)
