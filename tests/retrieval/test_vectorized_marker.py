"""The `.vectorized` marker records the indexed content hash, and is never trusted unchecked."""

import json
import os
from pathlib import Path

import pytest

from apexbridge.errors import StorageError
from apexbridge.retrieval.vectorized_marker import Marker, read_marker, write_marker
from apexbridge.skills import tree
from apexbridge.skills.model import Fingerprint
from apexbridge.testing import make_skill

MARKER = Marker(size=3, sha256="ab", embedder="hash-64", generation="v1")


def test_a_marker_comes_back_as_it_was_written(tmp_path: Path) -> None:
    root = make_skill(tmp_path, "pdf")
    write_marker(root, MARKER)
    assert read_marker(root) == MARKER
    assert json.loads((root / tree.MARKER).read_bytes())["size"] == 3


def test_a_marker_is_no_part_of_the_skill_and_leaves_nothing_else(tmp_path: Path) -> None:
    root = make_skill(tmp_path, "pdf")
    before = tree.fingerprint(root)
    for generation in ("v1", "v2"):  # in a place that is free, and in another's
        write_marker(root, MARKER.model_copy(update={"generation": generation}))
        assert tree.fingerprint(root) == before
        assert sorted(path.name for path in root.iterdir()) == [".vectorized", "SKILL.md"]
    assert list((tmp_path / ".staging").iterdir()) == []


def test_where_a_kill_left_half_a_marker_the_whole_one_takes_its_place(tmp_path: Path) -> None:
    root = make_skill(tmp_path, "pdf", files={tree.MARKER: b'{"size": 3, "sha'})
    write_marker(root, MARKER)
    assert read_marker(root) == MARKER


def test_the_marker_that_must_be_there_holds_size_hash_embedder_and_generation(
    tmp_path: Path,
) -> None:
    mark = tree.fingerprint(make_skill(tmp_path, "pdf"))
    assert isinstance(mark, Fingerprint)
    marker = Marker.from_fingerprint(mark, embedder="hash-64", generation="v1")
    assert (marker.size, marker.sha256) == (mark.size, mark.sha256)


@pytest.mark.promise("L07")
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"12345",
        b"{",
        b"\xff\xfe",
        b'{"size": 3}',
        b'{"size": "3", "sha256": "ab", "embedder": "e", "generation": "v1"}',
        MARKER.model_dump_json().encode()[:-1] + b', "extra": 1}',
        b"[" * 5_000,
        b" " * 100_000 + MARKER.model_dump_json().encode(),
    ],
)
def test_a_marker_that_makes_no_sense_is_none(tmp_path: Path, content: bytes) -> None:
    root = make_skill(tmp_path, "pdf", files={tree.MARKER: content})
    assert read_marker(root) is None


@pytest.mark.promise("L07")
def test_a_marker_that_is_no_plain_file_is_none(tmp_path: Path) -> None:
    good = make_skill(tmp_path, "good")
    write_marker(good, MARKER)
    linked, folder, pipe = (make_skill(tmp_path, name) for name in ("linked", "folder", "pipe"))
    (linked / tree.MARKER).symlink_to(good / tree.MARKER)
    (folder / tree.MARKER).mkdir()
    os.mkfifo(pipe / tree.MARKER)
    assert [read_marker(root) for root in (linked, folder, pipe)] == [None] * 3
    write_marker(linked, MARKER)
    assert not (linked / tree.MARKER).is_symlink()
    with pytest.raises(StorageError):
        write_marker(folder, MARKER)
    assert list((tmp_path / ".staging").iterdir()) == []
