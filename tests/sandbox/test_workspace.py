"""Workspaces: lease, collect outputs, remove, sweep after a crash."""

import errno
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from apexbridge.errors import StorageError
from apexbridge.sandbox.base import MIB
from apexbridge.sandbox.workspace import (
    CollectedOutputs,
    Workspaces,
    collect_outputs,
    write_inputs,
)


def test_a_workspace_is_private_holds_its_inputs_and_is_gone_afterwards(tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path / "w")
    with workspaces.lease() as place:
        write_inputs(place, {"a.csv": b"1", "sub/b.txt": "二".encode()})
        assert place.stat().st_mode & 0o777 == 0o700
        assert (place / "sub/b.txt").read_text(encoding="utf-8") == "二"
    assert list((tmp_path / "w").iterdir()) == []


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", ""])
def test_an_input_cannot_be_put_elsewhere(tmp_path: Path, name: str) -> None:
    with pytest.raises(StorageError), Workspaces(tmp_path / "w").lease() as place:
        write_inputs(place, {name: b""})
    assert list((tmp_path / "w").iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["w"]


@pytest.mark.promise("X14")
def test_what_a_killed_process_left_is_swept_and_what_is_in_use_is_not(tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path / "w")
    assert workspaces.sweep() == 0
    code = (
        "import os, sys\nfrom pathlib import Path\n"
        "from apexbridge.sandbox.workspace import Workspaces\n"
        "with Workspaces(Path(sys.argv[1])).lease():\n    os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "w")], check=False)
    assert len(list((tmp_path / "w").iterdir())) == 2
    with workspaces.lease() as mine:
        assert workspaces.sweep() == 1
        assert mine.is_dir()
    assert list((tmp_path / "w").iterdir()) == []


def test_09_only_plain_files_of_the_run_itself_come_back(tmp_path: Path) -> None:
    place = tmp_path / "place"
    (place / "sub").mkdir(parents=True)
    (tmp_path / "secret").write_bytes(b"secret")
    (place / "a.txt").write_bytes(b"a")
    (place / "sub/b.bin").write_bytes(bytes(5))
    (place / "link").symlink_to(tmp_path / "secret")
    (place / "folder-link").symlink_to(tmp_path)
    os.link(tmp_path / "secret", place / "hard")
    os.mkfifo(place / "pipe")
    found = collect_outputs(place, max_bytes=100)
    assert found.files == {"a.txt": b"a", "sub/b.bin": bytes(5)}
    assert found.left == {
        "link": "a link",
        "folder-link": "a link",
        "hard": "a hard link",
        "pipe": "not a plain file",
    }


def test_a_harvest_is_bounded(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"{number}").write_bytes(bytes(40))
    found = collect_outputs(tmp_path, max_bytes=100)
    assert (list(found.files), found.left["2"]) == (["0", "1"], "too large")
    found = collect_outputs(tmp_path, max_bytes=1_000, max_files=2)
    assert found.left == dict.fromkeys(("2", "3", "4"), "too many files")


def test_inputs_that_were_not_changed_count_for_no_limit(tmp_path: Path) -> None:
    inputs = {f"i{number}": bytes(60) for number in range(5)} | {"changed": b"1"}
    write_inputs(tmp_path, inputs)
    (tmp_path / "changed").write_bytes(b"2")
    (tmp_path / "result").write_bytes(b"precious")
    found = collect_outputs(tmp_path, max_bytes=50, max_files=2, inputs=inputs)
    assert found.files == {"changed": b"2", "result": b"precious"}
    assert not found.left


def test_everything_that_is_left_out_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty/inner").mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        found = collect_outputs(tmp_path, max_bytes=10)
    assert found.left == {"empty/inner": "an empty folder", "s": "not a plain file"}
    for number in range(1_010):
        (tmp_path / f"f{number}").touch()
    left = collect_outputs(tmp_path, max_bytes=10, max_files=1).left
    assert len(left) == 1_001
    assert left["(11 more)"] == "not listed"


@pytest.mark.parametrize("name", ["~$draft.docx", "C:", "宽\u3000格.txt", "a\\b", "x" * 255])
def test_names_that_only_other_systems_forbid_are_inputs(tmp_path: Path, name: str) -> None:
    write_inputs(tmp_path, {name: b"1"})
    assert collect_outputs(tmp_path, max_bytes=10).files == {name: b"1"}


def test_a_harvest_does_not_follow_endless_depth(tmp_path: Path) -> None:
    deep = tmp_path
    for _ in range(12):
        deep /= "d"
        deep.mkdir()
        (deep / "f").write_bytes(b"x")
    assert len(collect_outputs(tmp_path, max_bytes=100).files) == 8


def test_a_workspace_is_out_of_reach_of_other_accounts_whatever_its_run_does(
    tmp_path: Path,
) -> None:
    with Workspaces(tmp_path / "w").lease() as place:
        place.chmod(0o777)
        around = place.parent.stat()
        assert (around.st_mode & 0o777, around.st_uid) == (0o700, os.geteuid())


@pytest.fixture
def sticky(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of files that cannot be removed, such as immutable ones."""
    names, unlink = {"stuck"}, os.unlink

    def refuse(path: str, *, dir_fd: int | None = None) -> None:
        if Path(path).name in names:
            raise PermissionError(errno.EPERM, "Operation not permitted", path)
        unlink(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", refuse)
    return names


def test_a_workspace_that_cannot_be_removed_is_set_aside_and_no_later_run_fails(
    tmp_path: Path, sticky: set[str], caplog: pytest.LogCaptureFixture
) -> None:
    workspaces = Workspaces(tmp_path / "w")
    with workspaces.lease() as place:
        (place / "sub").mkdir()
        (place / "sub/stuck").touch()
        (place / "sub/other").touch()
    (left,) = workspaces.leftovers()
    assert left.parent == tmp_path / "w/quarantine"
    assert left.parent.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in left.rglob("*") if path.is_file()] == ["stuck"]
    assert "Operation not permitted" in caplog.text
    assert workspaces.sweep() == 0
    with workspaces.lease() as place:
        assert place.is_dir()
    sticky.clear()
    assert workspaces.sweep() == 1
    assert workspaces.leftovers() == []


def test_a_workspace_that_cannot_even_be_moved_stays_and_is_reported(
    tmp_path: Path, sticky: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    workspaces = Workspaces(tmp_path / "w")
    with monkeypatch.context() as without:
        without.setattr(Path, "rename", refuse)
        with workspaces.lease() as place:
            (place / "stuck").touch()
        assert workspaces.leftovers() == [place.parent]
        assert workspaces.sweep() == 0
    sticky.clear()
    assert workspaces.sweep() == 1
    assert workspaces.leftovers() == []


def test_stray_entries_do_not_disturb_a_sweep_and_are_reported(tmp_path: Path) -> None:
    home = tmp_path / "w"
    workspaces = Workspaces(home)
    with workspaces.lease() as place:
        (home / "folder.lock").mkdir()
        (home / "link.lock").symlink_to("/etc/hostname")
        (home / "notes.txt").touch()
        (home / "stray").mkdir()
        (home / "file.lock").touch()
        (home / "file").touch()
        workspaces.sweep()
        names = [path.relative_to(home).as_posix() for path in workspaces.leftovers()]
        assert names == ["folder.lock", "link.lock", "notes.txt", "quarantine/file", "stray"]
        assert place.is_dir()


def _reply_bytes(found: CollectedOutputs) -> int:
    """The size of the names as a reply in JSON carries them."""
    return len(json.dumps([list(found.files), dict(found.left)]))


@pytest.mark.parametrize("is_collected", [True, False])
def test_names_have_a_limit_of_bytes_too(tmp_path: Path, *, is_collected: bool) -> None:
    top = os.open(tmp_path, os.O_RDONLY)
    folder = b"\xff" * 250
    for _ in range(7):
        os.mkdir(folder, dir_fd=top)
        inner = os.open(folder, os.O_RDONLY, dir_fd=top)
        os.close(top)
        top = inner
    for number in range(2_000):
        name = b"\xff" * 240 + b"%d" % number
        os.close(os.open(name, os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=top))
    os.close(top)
    count = 5_000 if is_collected else 0
    found = collect_outputs(tmp_path, max_bytes=10 * MIB, max_files=count)
    assert _reply_bytes(found) < 512 * 1024
    listed = len(found.files) + len(found.left) - 1
    assert found.left[f"({2_000 - listed} more)"] == "not listed"
    assert bool(found.files) is is_collected
