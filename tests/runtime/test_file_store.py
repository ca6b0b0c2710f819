"""File store: files of runs and requests, whose they are, and when they are removed."""

import json
import os
import time
from pathlib import Path

import pytest

from apexbridge.errors import StorageError, UnsafePathError
from apexbridge.paths import printable_path
from apexbridge.runtime.file_store import FileStore, new_id, put_or_warn

_MIB = 1024 * 1024


def _store(root: Path, *, max_bytes: int = _MIB, days: float = 7) -> FileStore:
    return FileStore(root / "files", max_bytes=max_bytes, days=days)


def _age(store_root: Path, folder_id: str, days: float) -> None:
    path = store_root / "files" / folder_id / "owner.json"
    entry = json.loads(path.read_text(encoding="utf-8"))
    entry["at"] = time.time() - days * 86_400
    path.write_text(json.dumps(entry), encoding="utf-8")


def test_files_are_found_again_by_another_process(tmp_path: Path) -> None:
    run = new_id("run")
    files = {"a.txt": b"1", "deep/er/b": b"22", "~$draft.docx": b"", "od\\d": b"333"}
    folder = _store(tmp_path).put(run, "key:s", files)
    assert (folder / "deep/er/b").read_bytes() == b"22"
    again = _store(tmp_path)
    assert again.owner(run) == "key:s"
    assert {file.path: file.size for file in again.list(run)} == {
        name: len(data) for name, data in files.items()
    }
    found = again.find(run, "deep/er/b")
    assert found is not None
    assert found.location.read_bytes() == b"22"
    assert again.find(run, "../owner.json") is None


def test_unknown_and_odd_ids_have_no_files(tmp_path: Path) -> None:
    store = _store(tmp_path)
    for folder_id in (new_id("run"), "", "..", "../files", "run_x", ".staging"):
        assert (store.owner(folder_id), store.list(folder_id)) == (None, ())


def test_names_that_lead_out_store_nothing(tmp_path: Path) -> None:
    store, run = _store(tmp_path), new_id("run")
    with pytest.raises(UnsafePathError):
        store.put(run, "", {"a": b"1", "../../x": b"2"})
    assert store.owner(run) is None
    assert [path.name for path in (tmp_path / "files").iterdir()] == [".staging"]
    assert list((tmp_path / "files/.staging").iterdir()) == []


def test_a_name_that_is_not_utf_8_is_kept_and_shown_escaped(tmp_path: Path) -> None:
    store, run = _store(tmp_path), new_id("run")
    name = os.fsdecode(b"caf\xe9")
    store.put(run, "", {name: b"1"})
    (file,) = store.list(run)
    assert file.path == name
    assert printable_path(file.path) == "caf\\udce9"


def test_no_two_names_become_one() -> None:
    names = ["a\nb", "a\\x0ab", "b\udcff", "b\\udcff", "c\\d", "c\\\\d", "a\\x5cx0ab"]
    printable = [printable_path(name) for name in names]
    assert len(set(printable)) == len(names)
    assert printable[4] == "c\\d"
    assert all(text.isprintable() for text in printable)


def test_old_files_expire(tmp_path: Path) -> None:
    old, new = new_id("run"), new_id("run")
    store = _store(tmp_path)
    store.put(old, "", {"a": b"1"})
    store.put(new, "", {"a": b"1"})
    _age(tmp_path, old, 8)
    again = _store(tmp_path)
    again.expire()
    assert (again.owner(old), again.owner(new)) == (None, "")
    assert not (tmp_path / "files" / old).exists()


def test_the_oldest_make_room_for_new_ones(tmp_path: Path) -> None:
    store = _store(tmp_path, max_bytes=25)
    ids = [new_id("run") for _ in range(4)]
    for folder_id in ids:
        store.put(folder_id, "", {"a": b"0123456789"})
    assert [store.owner(folder_id) is not None for folder_id in ids] == [False, False, True, True]
    huge = new_id("run")
    store.put(huge, "", {"a": b"0" * 100})
    assert store.owner(huge) == "", "what was just stored is never removed"


def test_half_written_files_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    staging = tmp_path / "files/.staging/abandoned"
    staging.mkdir(parents=True)
    fresh = tmp_path / "files/.staging/fresh"
    fresh.mkdir()
    os.utime(staging, (0, 0))
    _store(tmp_path).expire()
    assert (staging.exists(), fresh.exists()) == (False, True)


def test_damaged_owners_belong_to_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = new_id("run")
    _store(tmp_path).put(run, "key:s", {"a": b"1"})
    (tmp_path / "files" / run / "owner.json").write_text("{", encoding="utf-8")
    assert _store(tmp_path).owner(run) == ""
    assert "owner.json" in caplog.text


def test_a_session_takes_its_files_and_its_subagents_with_it(tmp_path: Path) -> None:
    store = _store(tmp_path)
    owners = ("key:s", "key:s.1", "key:s2", "other:s")
    ids = {owner: new_id("upload") for owner in owners}
    for owner, folder_id in ids.items():
        store.put(folder_id, owner, {"a": b"1"})
    store.delete_of_session("key:s")
    assert [store.owner(ids[owner]) for owner in owners] == [None, None, "key:s2", "other:s"]


def test_a_full_disk_is_no_reason_to_fail_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(self: FileStore, *_: object) -> Path:
        raise StorageError("No space left on device", path=tmp_path)

    monkeypatch.setattr(FileStore, "put", refuse)
    assert put_or_warn(_store(tmp_path), new_id("run"), "", {"a": b"1"}) is None
    assert "No space left" in caplog.text


@pytest.mark.parametrize("limits", [{"days": 0}, {"max_bytes": 0}])
def test_nothing_is_kept_where_settings_say_so(tmp_path: Path, limits: dict[str, int]) -> None:
    assert put_or_warn(_store(tmp_path, **limits), new_id("run"), "", {"a": b"1"}) is None
    assert not (tmp_path / "files").exists()
