"""Folder source: scans, limits, symlinks and unreadable folders."""

import os
from pathlib import Path, PurePosixPath

import pytest

from apexbridge.errors import SourceError, UnsafePathError
from apexbridge.skills.model import Origin
from apexbridge.sources.bundled import BundledSource
from apexbridge.sources.folders import FolderSource, ScanLimits
from apexbridge.testing import make_skill

pytestmark = pytest.mark.anyio


async def _names(root: Path, limits: ScanLimits | None = None) -> list[str]:
    scan = await FolderSource(root, Origin.USER, limits or ScanLimits()).scan()
    return [skill.name for skill in scan.skills]


async def test_skills_are_found_at_any_depth_but_not_inside_a_skill(tmp_path: Path) -> None:
    make_skill(tmp_path, "a")
    make_skill(tmp_path / "group/sub", "b")
    make_skill(tmp_path / "a/nested", "c")
    make_skill(tmp_path / "1/2/3/4/5", "deep")
    make_skill(tmp_path / "1/2/3/4/5/6", "too-deep")
    assert sorted(await _names(tmp_path)) == ["a", "b", "deep"]


async def test_hidden_folders_and_node_modules_are_skipped(tmp_path: Path) -> None:
    for name in (".hidden", "node_modules", ".git", "__pycache__"):
        make_skill(tmp_path / name, "x")
    make_skill(tmp_path, "seen")
    assert await _names(tmp_path) == ["seen"]


async def test_a_linked_skill_is_followed_once_and_loops_end(tmp_path: Path) -> None:
    real = make_skill(tmp_path / "elsewhere", "linked")
    root = tmp_path / "root"
    (root / "loop").mkdir(parents=True)
    (root / "loop/again").symlink_to(root)
    (root / "one").symlink_to(real)
    (root / "two").symlink_to(real)
    (root / "dangling").symlink_to("nowhere")
    assert await _names(root) == ["linked"]


@pytest.mark.promise("L16")
async def test_a_root_of_any_size_ends_and_says_where(tmp_path: Path) -> None:
    for number in range(30):
        make_skill(tmp_path, f"s{number:02}")
    scan = await FolderSource(tmp_path, Origin.USER, ScanLimits(max_folders=10)).scan()
    assert [skill.name for skill in scan.skills] == [f"s{number:02}" for number in range(10)]
    assert [problem.code for problem in scan.problems] == ["folder_limit"]


async def test_problems_name_the_folder_and_the_line(tmp_path: Path) -> None:
    make_skill(tmp_path / "group", "x", raw=b"---\nname: x\ncontext: no\n---\n# T\n")
    make_skill(tmp_path, "y", raw=b"nothing")
    scan = await FolderSource(tmp_path, Origin.USER).scan()
    assert [(p.where, p.code) for p in scan.problems] == [
        ("group/x/SKILL.md:3", "field_invalid"),
        ("group/x/SKILL.md", "description_derived"),
        ("y/SKILL.md:1", "frontmatter_missing"),
    ]


async def test_a_root_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert await _names(tmp_path / "nowhere") == []


async def test_a_root_that_is_a_file_is_an_error_of_the_source(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(SourceError, match="Cannot read"):
        await FolderSource(tmp_path / "file", Origin.USER).scan()


async def test_a_folder_that_cannot_be_read_is_a_problem_beside_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_skill(tmp_path, "a")
    locked = tmp_path / "locked"
    locked.mkdir()
    scandir, listdir = os.scandir, os.listdir

    def refuse(path: Path) -> None:
        if Path(path) == locked:
            raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", lambda path: refuse(path) or scandir(path))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    monkeypatch.setattr(os, "listdir", lambda path: refuse(path) or listdir(path))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    scan = await FolderSource(tmp_path, Origin.USER).scan()
    assert [skill.name for skill in scan.skills] == ["a"]
    assert [(p.where, p.code) for p in scan.problems] == [("locked", "folder_unreadable")]


async def test_a_link_out_of_the_skill_is_not_read(tmp_path: Path) -> None:
    root = make_skill(tmp_path / "root", "a")
    (tmp_path / "secret").write_text("secret", encoding="utf-8")
    (root / "link").symlink_to(tmp_path / "secret")
    source = FolderSource(tmp_path / "root", Origin.USER)
    (skill,) = (await source.scan()).skills
    with pytest.raises(UnsafePathError):
        await source.resource(skill, PurePosixPath("link"))


async def test_a_skill_that_broke_since_the_scan_says_so(tmp_path: Path) -> None:
    root = make_skill(tmp_path, "a")
    source = FolderSource(tmp_path, Origin.USER)
    (skill,) = (await source.scan()).skills
    (root / "SKILL.md").write_text("broken", encoding="utf-8")
    with pytest.raises(SourceError, match="first line"):
        await source.content(skill)
    (root / "SKILL.md").unlink()
    with pytest.raises(SourceError, match=r"SKILL\.md is missing"):
        await source.content(skill)


@pytest.mark.parametrize(
    ("origin", "trusted", "writable"),
    [
        (Origin.MANAGED, True, False),
        (Origin.USER, True, False),
        (Origin.INSTALLED, True, True),
        (Origin.PROJECT, False, False),
        (Origin.ADDITIONAL, False, False),
    ],
)
async def test_what_a_project_brings_is_not_trusted(
    tmp_path: Path, origin: Origin, trusted: bool, writable: bool
) -> None:
    provenance = FolderSource(tmp_path, origin).provenance
    assert (not provenance.needs_trust, provenance.writable) == (trusted, writable)


async def test_the_bundled_skills_are_valid(tmp_path: Path) -> None:
    scan = await BundledSource().scan()
    names = {skill.name for skill in scan.skills}
    assert {"skill-creator", "csv-report", "git-commit", "changelog", "test-guide"} <= names
    assert scan.problems == ()


async def test_an_invalid_edit_of_an_untrusted_skill_voids_its_approval(tmp_path: Path) -> None:
    root = make_skill(tmp_path, "x", files={"hook.sh": "harmless"})
    source = FolderSource(tmp_path, Origin.PROJECT)
    (before,) = (await source.scan()).skills
    (root / "hook.sh").write_text("harmful", encoding="utf-8")
    (root / "SKILL.md").write_bytes(b"bad")
    (kept,) = (await source.scan()).skills
    assert kept.description == before.description
    assert kept.fingerprint not in (None, before.fingerprint)


@pytest.mark.parametrize("origin", [Origin.PROJECT, Origin.USER])
async def test_the_index_marker_of_an_untrusted_skill_is_hashed(
    tmp_path: Path, origin: Origin
) -> None:
    root = make_skill(tmp_path, "x", files={".vectorized/run.py": "harmless"})
    source = FolderSource(tmp_path, origin)
    (before,) = (await source.scan()).skills
    (root / ".vectorized/run.py").write_text("harmful", encoding="utf-8")
    (after,) = (await source.scan()).skills
    assert (after.fingerprint != before.fingerprint) is (origin is Origin.PROJECT)
