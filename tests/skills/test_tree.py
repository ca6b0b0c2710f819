"""Content hash and stat digest of a skill's files."""

import os
from pathlib import Path

from apexbridge.skills.model import Fingerprint, Problem
from apexbridge.skills.tree import MARKER, entries, fingerprint, stamp
from apexbridge.testing import make_skill


def _mark(root: Path) -> Fingerprint:
    mark = fingerprint(root)
    assert isinstance(mark, Fingerprint)
    return mark


def test_equal_trees_have_equal_fingerprints(tmp_path: Path) -> None:
    files = {"scripts/main.py": "print(1)\n", "references/a.md": "text"}
    first = make_skill(tmp_path / "a", files=files)
    second = make_skill(tmp_path / "b", files=dict(reversed(files.items())))
    (second / "scripts/main.py").chmod(0o600)
    assert _mark(first) == _mark(second)


def test_any_change_changes_it(tmp_path: Path) -> None:
    root = make_skill(tmp_path, files={"a.txt": "one", "b.txt": "two"})
    seen = {_mark(root).sha256}
    (root / "a.txt").write_text("eno", encoding="utf-8")  # the size stays
    seen.add(_mark(root).sha256)
    (root / "a.txt").rename(root / "c.txt")
    seen.add(_mark(root).sha256)
    (root / "link").symlink_to("b.txt")
    seen.add(_mark(root).sha256)
    (root / "__pycache__").mkdir()
    (root / "__pycache__/x.pyc").write_bytes(b"x")
    seen.add(_mark(root).sha256)
    assert len(seen) == 5


def test_moving_bytes_from_a_name_to_its_content_is_noticed(tmp_path: Path) -> None:
    first = make_skill(tmp_path / "a", files={"ab": "c"})
    second = make_skill(tmp_path / "b", files={"a": "bc"})
    assert _mark(first) != _mark(second)


def test_our_own_marker_is_no_part_of_the_skill(tmp_path: Path) -> None:
    root = make_skill(tmp_path, files={"sub/.vectorized": "theirs"})
    before = _mark(root)
    (root / MARKER).write_text("{}", encoding="utf-8")
    assert _mark(root) == before
    assert before.files == 2


def test_pipes_are_reported_and_never_opened(tmp_path: Path) -> None:
    root = make_skill(tmp_path)
    os.mkfifo(root / "pipe")
    assert _mark(root).files == 2
    assert {entry.kind for entry in entries(root)} == {"file", "device"}


def test_names_that_are_no_text_are_hashed_all_the_same(tmp_path: Path) -> None:
    root = make_skill(tmp_path)
    (root / os.fsdecode(b"\xff\xfe")).write_bytes(b"x")
    assert _mark(root).files == 2


def test_too_many_files_are_a_problem(tmp_path: Path) -> None:
    root = make_skill(tmp_path, files={f"{n}.txt": "" for n in range(5)})
    problem = fingerprint(root, max_files=5)
    assert isinstance(problem, Problem)
    assert problem.code == "tree_too_large"


def test_a_folder_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    problem = fingerprint(tmp_path / "gone")
    assert isinstance(problem, Problem)
    assert problem.code == "folder_unreadable"


def test_folders_without_files_are_bounded_too(tmp_path: Path) -> None:
    root = make_skill(tmp_path)
    for number in range(6):
        (root / f"d{number}").mkdir()
    mark = fingerprint(root, max_files=5)
    assert isinstance(mark, Problem)
    assert mark.code == "tree_too_large"
    with os.scandir(root) as listed:
        assert stamp(str(root), list(listed), max_files=5) is None
    assert isinstance(fingerprint(root, max_files=6), Fingerprint)
