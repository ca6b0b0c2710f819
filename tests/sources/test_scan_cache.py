"""Scan cache: unchanged folders are not parsed again, in this process and the next."""

import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from apexbridge.errors import SourceError
from apexbridge.skills import parser
from apexbridge.skills.model import Origin
from apexbridge.sources import folders, scan_cache
from apexbridge.sources.folders import FolderSource
from apexbridge.sources.scan_cache import ScanCache
from apexbridge.testing import make_skill, skill_md

pytestmark = pytest.mark.anyio


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the folders that are really read; the disk's clock counts as settled at once."""
    seen = list[str]()
    read = parser.read_skill

    def note(root: Path, *rest: object) -> object:
        seen.append(root.name)
        return read(root, *rest)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(folders, "read_skill", note)
    monkeypatch.setattr(folders, "SETTLED_NS", -(10**9))
    return seen


def _source(tmp_path: Path) -> FolderSource:
    return FolderSource(tmp_path / "skills", Origin.USER, cache=ScanCache(tmp_path / "scans.db"))


async def test_unchanged_folders_are_not_parsed_again(tmp_path: Path, reads: list[str]) -> None:
    for name in ("a", "b", "c"):
        make_skill(tmp_path / "skills", name, files={"references/x.md": "x"})
    source = _source(tmp_path)
    first = await source.scan()
    assert reads == ["a", "b", "c"]
    (tmp_path / "skills/b/references/x.md").write_text("y", encoding="utf-8")
    second = await source.scan()
    assert reads == ["a", "b", "c", "b"]
    assert second.skills[0] is first.skills[0]
    assert second.skills[1].fingerprint != first.skills[1].fingerprint
    later = await _source(tmp_path).scan()
    assert reads == ["a", "b", "c", "b"]
    assert later == second


@pytest.mark.promise("L07")
async def test_an_edit_that_keeps_size_and_time_is_noticed(
    tmp_path: Path, reads: list[str]
) -> None:
    root = make_skill(tmp_path / "skills", "a", description="one")
    file = root / "SKILL.md"
    source = _source(tmp_path)
    await source.scan()
    before = file.stat()
    file.write_bytes(file.read_bytes().replace(b"one", b"two"))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.stat().st_size == before.st_size
    assert [skill.description for skill in (await source.scan()).skills] == ["two"]
    assert reads == ["a", "a"]


async def test_what_changed_just_before_it_was_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: list[str]
) -> None:
    monkeypatch.setattr(folders, "SETTLED_NS", 10**9)
    make_skill(tmp_path / "skills", "a")
    source = _source(tmp_path)
    await source.scan()
    await source.scan()
    assert reads == ["a", "a"]
    clock = time.time_ns() + 10**10
    monkeypatch.setattr(folders.time, "time_ns", lambda: clock)
    await source.scan()
    await source.scan()
    assert reads == ["a", "a", "a"]


async def test_what_is_gone_is_forgotten(tmp_path: Path, reads: list[str]) -> None:
    root = make_skill(tmp_path / "skills", "a")
    await _source(tmp_path).scan()
    root.rename(tmp_path / "away")
    assert (await _source(tmp_path).scan()).skills == ()
    assert ScanCache(tmp_path / "scans.db").load(f"user:{tmp_path}/skills") == {}
    (tmp_path / "away").rename(root)
    await _source(tmp_path).scan()
    assert reads == ["a", "a"]


async def test_a_memory_that_is_broken_or_cannot_be_written_only_costs_time(
    tmp_path: Path, reads: list[str]
) -> None:
    make_skill(tmp_path / "skills", "a")
    (tmp_path / "scans.db").write_bytes(b"no database at all" * 100)
    assert len((await _source(tmp_path).scan()).skills) == 1
    assert len((await _source(tmp_path).scan()).skills) == 1
    (tmp_path / "file").write_bytes(b"")
    memory = ScanCache(tmp_path / "file" / "scans.db")
    source = FolderSource(tmp_path / "skills", Origin.USER, cache=memory)
    assert len((await source.scan()).skills) == 1
    assert memory.document(source.id, "a", b"") is None


async def test_a_memory_of_another_reader_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: list[str]
) -> None:
    make_skill(tmp_path / "skills", "a")
    await _source(tmp_path).scan()
    monkeypatch.setattr("apexbridge.sources.scan_cache.reader_id", lambda: "another")
    await _source(tmp_path).scan()
    assert reads == ["a", "a"]


@pytest.mark.promise("L10")
async def test_a_bad_edit_keeps_the_last_good_version_and_says_so(tmp_path: Path) -> None:
    root = make_skill(tmp_path / "skills", "a", description="good", body="Good body")
    source = _source(tmp_path)
    (good,) = (await source.scan()).skills
    (root / "SKILL.md").write_bytes(b"---\nname: [\n---\nbad")
    scan = await source.scan()
    assert [skill.description for skill in scan.skills] == ["good"]
    assert [problem.code for problem in scan.problems] == ["yaml_invalid", "last_good_kept"]
    assert (await source.content(scan.skills[0])).body == "Good body"
    (root / "SKILL.md").write_bytes(skill_md("a", "better", body="Better"))
    scan = await source.scan()
    assert [skill.description for skill in scan.skills] == ["better"]
    assert scan.problems == ()
    assert (await source.content(good)).body == "Better"


async def test_a_bad_edit_without_a_memory_keeps_the_listing_and_says_what_is_wrong(
    tmp_path: Path,
) -> None:
    root = make_skill(tmp_path / "skills", "a", description="good")
    source = FolderSource(tmp_path / "skills", Origin.USER)
    await source.scan()
    (root / "SKILL.md").write_bytes(b"bad")
    (skill,) = (await source.scan()).skills
    assert skill.description == "good"
    with pytest.raises(SourceError, match="first line"):
        await source.content(skill)


async def test_a_skill_that_is_removed_is_gone_whatever_it_was(tmp_path: Path) -> None:
    root = make_skill(tmp_path / "skills", "a")
    source = _source(tmp_path)
    await source.scan()
    (root / "SKILL.md").unlink()
    assert (await source.scan()).skills == ()


async def test_the_last_good_text_is_never_that_of_another_version(
    tmp_path: Path,
) -> None:
    root = make_skill(tmp_path / "skills", "a", description="one", body="First")
    source = _source(tmp_path)
    await source.scan()
    (root / "SKILL.md").write_bytes(skill_md("a", "two", body="Second"))
    with closing(sqlite3.connect(tmp_path / "scans.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")  # what is read now cannot be remembered
        await source.scan()
    (root / "SKILL.md").write_bytes(b"bad")
    (skill,) = (await source.scan()).skills
    assert skill.description == "two"
    with pytest.raises(SourceError, match="first line"):
        await source.content(skill)


async def test_a_memory_that_is_locked_is_waited_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: list[str]
) -> None:
    make_skill(tmp_path / "skills", "a")
    memory = ScanCache(tmp_path / "scans.db")
    opened = list[bool]()
    connect = sqlite3.connect

    def note(path: Path, **more: float) -> sqlite3.Connection:
        opened.append(True)
        return connect(path, timeout=more["timeout"])

    await FolderSource(tmp_path / "skills", Origin.USER, cache=memory).scan()
    monkeypatch.setattr(scan_cache.sqlite3, "connect", note)
    with closing(connect(tmp_path / "scans.db", isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        for number in range(5):
            make_skill(tmp_path / f"{number}", "b")
            source = FolderSource(tmp_path / f"{number}", Origin.USER, cache=memory)
            assert len((await source.scan()).skills) == 1
    assert len(opened) == 1
    monkeypatch.setattr(memory, "_paused_until", 0.0)
    assert memory.load(f"user:{tmp_path}/skills").keys() == {"a"}


async def test_names_that_are_no_text_cost_nothing_but_the_memory_of_them(tmp_path: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/skills/\xff"))
    make_skill(odd, "x")
    make_skill(tmp_path / "skills", "a")
    scan = await _source(tmp_path).scan()
    assert sorted(skill.name for skill in scan.skills) == ["a", "x"]
    memory = ScanCache(tmp_path / "scans.db")
    assert memory.load(f"user:{tmp_path}/skills").keys() == {"a"}
    within = FolderSource(odd, Origin.USER, cache=memory)
    assert [skill.name for skill in (await within.scan()).skills] == ["x"]
    (odd / "x/SKILL.md").write_bytes(b"bad")
    (skill,) = (await within.scan()).skills
    with pytest.raises(SourceError):
        await within.content(skill)
