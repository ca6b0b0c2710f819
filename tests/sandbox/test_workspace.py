"""Workspaces: lease, collect outputs, remove, sweep after a crash."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from apexbridge.errors import StorageError
from apexbridge.sandbox.workspace import Workspaces, collect_outputs, write_inputs


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
    assert collect_outputs(tmp_path, max_bytes=1_000, max_files=2).left == {"2": "too many files"}


def test_a_harvest_does_not_follow_endless_depth(tmp_path: Path) -> None:
    deep = tmp_path
    for _ in range(12):
        deep /= "d"
        deep.mkdir()
        (deep / "f").write_bytes(b"x")
    assert len(collect_outputs(tmp_path, max_bytes=100).files) == 8
