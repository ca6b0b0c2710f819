"""Extraction: extracted and dropped entries, file modes, all or nothing."""

import errno
import os
import resource
import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest

from apexbridge.errors import ArchiveError, StorageError
from apexbridge.lifecycle.zip.archive import (
    ExtractionPlan,
    atomic_extraction,
    extract_archive,
    inspect_archive,
    open_archive,
)
from apexbridge.lifecycle.zip.limits import DEFAULT_LIMITS, ArchiveFile
from apexbridge.lifecycle.zip.records import open_zip
from apexbridge.testing import skill_md
from tests.lifecycle.zip.raw_zip import FOLDER, SKILL, Raw, raw_zip, refusal


@pytest.fixture
def into(tmp_path: Path) -> Path:
    place = tmp_path / "into"
    place.mkdir(mode=0o700)
    return place


def _extract(into: Path, *entries: Raw) -> ExtractionPlan:
    archive = into.parent / "x.zip"
    archive.write_bytes(raw_zip(entries))
    plan = extract_archive(archive, into)
    assert plan == inspect_archive(archive)
    return plan


def _tree(root: Path) -> dict[str, str]:
    """Paths and their modes."""
    return {
        str(path.relative_to(root)): f"{stat.S_IMODE(path.lstat().st_mode):o}"
        for path in sorted(root.rglob("*"))
    }


def _codes(plan: ExtractionPlan) -> list[str]:
    assert {problem.severity for problem in plan.problems} <= {"warning"}
    return [problem.code for problem in plan.problems]


def test_a_skill_is_written_without_its_root_folders_name(into: Path) -> None:
    plan = _extract(into, Raw(name="pdf/", mode=FOLDER), SKILL, Raw(name="pdf/a/b.md", data=b"b"))
    assert plan == ExtractionPlan(
        folder="pdf",
        files=(
            ArchiveFile(path=plan.files[0].path, size=len(SKILL.data), executable=False),
            ArchiveFile(path=plan.files[1].path, size=1, executable=False),
        ),
        size=len(SKILL.data) + 1,
        skill_md=SKILL.data,
        problems=(),
        dropped=(),
    )
    assert _tree(into) == {"SKILL.md": "644", "a": "755", "a/b.md": "644"}
    assert (into / "SKILL.md").read_bytes() == SKILL.data
    assert (into / "a/b.md").read_bytes() == b"b"


@pytest.mark.promise("Z08")
def test_odd_modes_become_plain_ones(into: Path) -> None:
    modes = {"scripts/a": 0o106755, "scripts/b": 0o101777, "c": 0o100777, "d": 0o100600, "e": 0o644}
    old = os.umask(0o077)
    try:
        plan = _extract(into, SKILL, *(Raw(name=f"pdf/{n}", mode=m) for n, m in modes.items()))
    finally:
        os.umask(old)
    assert _tree(into) == {
        "SKILL.md": "644", "c": "755", "d": "644", "e": "644",
        "scripts": "755", "scripts/a": "755", "scripts/b": "755",
    }  # fmt: skip
    executable = [str(file.path) for file in plan.files if file.executable]
    assert executable == ["c", "scripts/a", "scripts/b"]


@pytest.mark.promise("Z08")
def test_scripts_from_a_system_without_modes_can_be_run(into: Path) -> None:
    _extract(into, replace(SKILL, mode=0), *(
        Raw(name=f"pdf/{name}", mode=0) for name in ("scripts/a.py", "scripts.md", "b/scripts/c")
    ))  # fmt: skip
    runnable = [path for path, mode in _tree(into).items() if mode == "755"]
    assert runnable == ["b", "b/scripts", "scripts", "scripts/a.py"]


def test_a_link_in_a_folders_clothes_is_refused(into: Path) -> None:
    odd = Raw(name="pdf/a", mode=FOLDER)
    assert refusal(into.parent, raw_zip([SKILL, odd])) == "zip_special_entry"
    full = Raw(name="pdf/a/", mode=FOLDER, data=b"x")
    assert refusal(into.parent, raw_zip([SKILL, full])) == "zip_invalid"


@pytest.mark.promise("Z28")
def test_litter_of_desktop_systems_is_dropped_without_a_word(into: Path) -> None:
    litter = ["__MACOSX/pdf/._SKILL.md", ".DS_Store", "pdf/.DS_Store", "pdf/a/Thumbs.db",
              "pdf/._a", "__MACOSX/" + "a/" * 20 + "._b", "desktop.ini"]  # fmt: skip
    plan = _extract(into, *(Raw(name=name, data=b"x") for name in litter), SKILL)
    assert (plan.folder, _codes(plan), plan.dropped) == ("pdf", [], tuple(litter))
    assert _tree(into) == {"SKILL.md": "644"}


@pytest.mark.promise("Z34")
def test_markers_and_version_control_are_dropped_and_told(into: Path) -> None:
    ours = ["pdf/.vectorized", "pdf/.staging/x", "pdf/.git/config", "pdf/.GIT/hooks/x", ".hg/x",
            "pdf/a/.git", "pdf/.svn/"]  # fmt: skip
    plan = _extract(into, SKILL, *(Raw(name=name) for name in ours), Raw(name="pdf/.gitignore"))
    assert _tree(into) == {".gitignore": "644", "SKILL.md": "644"}
    assert _codes(plan) == ["zip_entries_dropped"]
    assert plan.dropped == tuple(name.removesuffix("/") for name in ours)


@pytest.mark.promise("Z34")
def test_what_is_installed_or_compiled_is_kept_and_told(into: Path) -> None:
    built = ["pdf/node_modules/x/index.js", "pdf/scripts/a.pyc", "pdf/__pycache__/b.PYC"]
    plan = _extract(into, SKILL, *(Raw(name=name) for name in built))
    (problem,) = plan.problems
    assert problem.code == "zip_built_files"
    assert all(name in problem.message for name in built)
    assert len(plan.files) == 4


@pytest.mark.promise("Z31")
def test_another_letter_case_of_skill_md_is_stored_as_it_should_be(into: Path) -> None:
    plan = _extract(into, Raw(name="pdf/Skill.md", data=b"x"))
    assert (_codes(plan), _tree(into)) == (["skill_md_case"], {"SKILL.md": "644"})
    assert plan.skill_md == b"x"


@pytest.mark.promise("Z30")
def test_a_skill_md_further_down_is_a_file_like_any(into: Path) -> None:
    plan = _extract(into, Raw(name="pdf/sub/SKILL.md", data=b"other"), SKILL)
    assert plan.skill_md == SKILL.data
    assert (into / "sub/SKILL.md").read_bytes() == b"other"


@pytest.mark.promise("Z35")
def test_validate_and_install_read_the_same(into: Path) -> None:
    plan = _extract(into, SKILL, Raw(name="pdf/a/b.md"), Raw(name="pdf/.vectorized"))
    package = open_archive(into.parent / "x.zip")
    assert (package.folder, package.skill_md) == (plan.folder, plan.skill_md)
    assert package.problems == plan.problems
    assert {str(path) for path in package.files} == {".", "SKILL.md", "a", "a/b.md"}


def _link(name: str) -> Raw:
    return Raw(name=name, mode=0o120777, data=b"/etc")


BAD = {
    "link": ("zip_link_entry", [SKILL, _link("pdf/a")]),
    "link inside": ("zip_link_entry", [SKILL, replace(_link("pdf/a"), data=b"SKILL.md")]),
    "through a link": ("zip_link_entry", [SKILL, _link("pdf/a"), Raw(name="pdf/a/passwd")]),
    "pipe": ("zip_special_entry", [SKILL, Raw(name="pdf/a", mode=0o010644)]),
    "device": ("zip_special_entry", [SKILL, Raw(name="pdf/a", mode=0o060644)]),
    "terminal": ("zip_special_entry", [SKILL, Raw(name="pdf/a", mode=0o020644)]),
    "socket": ("zip_special_entry", [SKILL, Raw(name="pdf/a", mode=0o140644)]),
    "traversal": ("zip_path_traversal", [SKILL, Raw(name="pdf/../../evil")]),
    "bomb": ("zip_too_large", [SKILL, Raw(name="pdf/a", data=bytes(2_000_000), deflated=True)]),
    "lie": ("zip_invalid", [SKILL, Raw(name="pdf/a/b/c", data=b"1", packed=b"22")]),
    "damage": ("zip_invalid", [SKILL, Raw(name="pdf/a/b/c", data=b"1" * 999, packed=b"2" * 999)]),
    "litter damaged": ("zip_invalid", [SKILL, Raw(name="pdf/.DS_Store", data=b"1", packed=b"2")]),
    "no skill": ("zip_no_skill_md", [Raw(name="pdf/a")]),
    "empty": ("zip_invalid", [Raw(name="pdf/", mode=FOLDER)]),
    "no folder": ("zip_no_root_folder", [replace(SKILL, name="SKILL.md")]),
    "two": ("zip_multiple_roots", [SKILL, Raw(name="docx/SKILL.md")]),
    "large": ("zip_too_large", [replace(SKILL, data=skill_md("pdf", body="x " * 600_000))]),
}


@pytest.mark.promise("Z01", "Z05", "Z06", "Z07", "Z17", "Z18", "Z25", "Z29", "Z30", "Z31")
@pytest.mark.parametrize("case", BAD)
def test_a_refused_archive_leaves_nothing_and_says_the_same_as_looking(
    into: Path, case: str
) -> None:
    code, entries = BAD[case]
    assert refusal(into.parent, raw_zip(entries)) == code
    with pytest.raises(ArchiveError) as caught:
        extract_archive(into.parent / "x.zip", into)
    assert caught.value.code == code
    assert list(into.iterdir()) == []
    assert {path.name for path in into.parent.iterdir()} == {"into", "x.zip"}


@pytest.mark.promise("Z29")
def test_files_without_a_folder_get_a_hint_with_the_right_layout(into: Path) -> None:
    (into.parent / "x.zip").write_bytes(raw_zip([replace(SKILL, name="SKILL.md")]))
    with pytest.raises(ArchiveError) as caught:
        inspect_archive(into.parent / "x.zip")
    assert "my-skill/SKILL.md" in caught.value.hint


def _places(tmp_path: Path) -> Iterator[Path]:
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine").write_bytes(b"kept")
    yield full
    (tmp_path / "link").symlink_to(tmp_path)
    yield tmp_path / "link"
    (tmp_path / "file").write_bytes(b"kept")
    yield tmp_path / "file"
    yield tmp_path / "missing"


def test_only_an_empty_folder_is_written_to(tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(raw_zip([SKILL]))
    for place in _places(tmp_path):
        with pytest.raises(StorageError):
            extract_archive(tmp_path / "x.zip", place)
    assert {path.name for path in tmp_path.rglob("*")} == {"file", "full", "link", "mine", "x.zip"}


def _write_with_a_link_on_the_way(into: Path, path: str, target: Path) -> None:
    first, second = (
        ArchiveFile(path=PurePosixPath(name), size=1, executable=False) for name in ("a/x", path)
    )
    with atomic_extraction(into) as files:
        with files.new_file(first) as write:
            write(b"x")
        (into / second.path.parts[0]).symlink_to(target)
        with files.new_file(second) as write:
            write(b"x")


def test_what_appears_meanwhile_is_neither_followed_nor_removed(into: Path, tmp_path: Path) -> None:
    folder, file = tmp_path / "folder", tmp_path / "file"
    folder.mkdir()
    file.write_bytes(b"kept")
    for path, target in (("b/y", folder), ("c", file)):
        with pytest.raises(StorageError):
            _write_with_a_link_on_the_way(into, path, target)
        assert [left.name for left in into.iterdir()] == [path[0]]
        (into / path[0]).unlink()
    assert list(folder.iterdir()) == []
    assert file.read_bytes() == b"kept"


@contextmanager
def _small_files(limit: int) -> Generator[None]:
    """A disk that takes files up to a size only."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("size", [1_000, 1_000_000])
def test_a_disk_that_refuses_leaves_nothing(into: Path, size: int) -> None:
    entries = [SKILL, Raw(name="pdf/a/b", data=b"b"), Raw(name="pdf/a/c", data=bytes(size))]
    (into.parent / "x.zip").write_bytes(raw_zip(entries))
    with _small_files(len(SKILL.data)), pytest.raises(StorageError) as caught:
        extract_archive(into.parent / "x.zip", into)
    assert os.strerror(errno.EFBIG) in caught.value.message
    assert list(into.iterdir()) == []


def test_a_file_put_in_the_archives_place_is_not_seen(into: Path) -> None:
    """The archive is opened once, so the second reading cannot be of another file."""
    archive = into.parent / "x.zip"
    archive.write_bytes(raw_zip([SKILL]))

    with open_zip(archive, DEFAULT_LIMITS) as source:
        (into.parent / "other").write_bytes(b"other")
        (into.parent / "other").replace(archive)
        assert source.read(0, 4) == b"PK\3\4"


def test_an_archive_that_shrinks_while_it_is_read_is_cut_off(into: Path) -> None:
    archive = into.parent / "x.zip"
    archive.write_bytes(raw_zip([SKILL]))

    with open_zip(archive, DEFAULT_LIMITS) as source:
        archive.write_bytes(b"PK")
        with pytest.raises(ArchiveError, match="truncated"):
            source.read(0, 4)


def test_an_archive_that_cannot_be_read_any_more_is_refused(into: Path) -> None:
    archive = into.parent / "x.zip"
    archive.write_bytes(raw_zip([SKILL]))
    with (
        open_zip(archive, DEFAULT_LIMITS) as source,
        pytest.raises(ArchiveError, match="truncated"),
    ):
        source.read(-1, 1)
    with pytest.raises(ArchiveError) as caught:
        source.read(0, 4)
    assert os.strerror(errno.EBADF) in caught.value.message
