"""Bundled skills: listed and read in place, extracted from a zip file."""

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from importlib import resources
from pathlib import Path, PurePosixPath

import anyio
import pytest

import apexbridge
from apexbridge import bundled
from apexbridge.errors import SkillNotFoundError, SourceError, StorageError
from apexbridge.paths import commit_dir
from apexbridge.skills import tree
from apexbridge.skills.model import Origin, Skill
from apexbridge.sources.bundled import BundledSource
from apexbridge.testing import MemorySource, make_zip, skill_md

pytestmark = pytest.mark.anyio

PACKAGE = Path(bundled.__file__).parent
FILES = {
    "pkg/__init__.py": b"",
    "pkg/tidy/SKILL.md": skill_md("tidy", body="Tidy up."),
    "pkg/tidy/scripts/main.py": b"print('hi')\n",
    "pkg/tidy/run": b"#!/bin/sh\n",
    "pkg/tidy/references/数据.md": "数据".encode(),
    "pkg/tidy/scripts/__pycache__/main.cpython-311.pyc": b"cache",
}


@pytest.fixture
def packed(tmp_path: Path) -> zipfile.Path:
    return zipfile.Path(make_zip(tmp_path / "package.zip", FILES), "pkg/")


def _place(tmp_path: Path) -> Path:
    return tmp_path / "place"


async def _tidy(source: BundledSource) -> Skill:
    (skill,) = (await source.scan()).skills
    return skill


async def test_the_packages_own_skills_are_valid_and_trusted() -> None:
    source = BundledSource()
    scan = await source.scan()
    assert scan.problems == ()
    folders = {path.parent.name for path in PACKAGE.glob("*/SKILL.md")}
    assert {skill.name for skill in scan.skills} == folders != set()
    for skill in scan.skills:
        assert skill.provenance.origin is Origin.BUNDLED
        assert skill.provenance.source_id == source.id
        assert (skill.is_trusted, skill.provenance.writable) == (True, False)
        assert (await source.content(skill)).body.strip()
    assert source.roots == (PACKAGE,)
    await source.close()


async def test_an_unpacked_package_needs_no_copy(tmp_path: Path) -> None:
    source = BundledSource(_place(tmp_path))
    for skill in (await source.scan()).skills:
        assert await source.folder(skill) == skill.root == PACKAGE / skill.name
    assert not _place(tmp_path).exists()


async def test_a_packed_package_is_listed_and_read_without_a_folder(
    tmp_path: Path, packed: zipfile.Path
) -> None:
    source = BundledSource(_place(tmp_path), packed)
    skill = await _tidy(source)
    assert (skill.name, skill.root, source.roots) == ("tidy", None, ())
    assert (await source.content(skill)).body == "Tidy up."
    path = PurePosixPath("references/数据.md")
    assert (await source.resource(skill, path)).data.decode() == "数据"
    assert not _place(tmp_path).exists()


async def test_a_skill_is_extracted_when_its_folder_is_requested(
    tmp_path: Path, packed: zipfile.Path
) -> None:
    source = BundledSource(_place(tmp_path), packed)
    skill = await _tidy(source)
    folder = await source.folder(skill)
    assert skill.fingerprint is not None
    assert folder == _place(tmp_path) / f"tidy-{skill.fingerprint.sha256[:16]}"
    assert tree.fingerprint(folder) == skill.fingerprint
    modes = {
        path.relative_to(folder).as_posix(): path.stat().st_mode & 0o777
        for path in (folder, *folder.rglob("*"))
    }
    assert modes == {
        ".": 0o700,
        "SKILL.md": 0o600,
        "scripts": 0o700,
        "scripts/main.py": 0o700,
        "run": 0o700,
        "references": 0o700,
        "references/数据.md": 0o600,
    }
    assert list((_place(tmp_path) / ".staging").iterdir()) == []


async def test_many_who_ask_share_one_extraction(tmp_path: Path, packed: zipfile.Path) -> None:
    source = BundledSource(_place(tmp_path), packed)
    skill = await _tidy(source)
    found = list[tuple[Path, int]]()

    async def ask() -> None:
        folder = await source.folder(skill)
        found.append((folder, folder.stat().st_ino))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(ask)
    assert len(found) == 20
    assert len(set(found)) == 1


async def test_an_earlier_extraction_is_reused(tmp_path: Path, packed: zipfile.Path) -> None:
    first = BundledSource(_place(tmp_path), packed)
    folder = await first.folder(await _tidy(first))
    inode = folder.stat().st_ino
    second = BundledSource(_place(tmp_path), packed)
    assert await second.folder(await _tidy(second)) == folder
    assert folder.stat().st_ino == inode


def _change(folder: Path) -> None:
    (folder / "SKILL.md").write_text("evil", encoding="utf-8")


def _add(folder: Path) -> None:
    (folder / "sitecustomize.py").write_text("evil", encoding="utf-8")


def _remove(folder: Path) -> None:
    (folder / "run").unlink()


def _link(folder: Path) -> None:
    (folder / "run").rename(folder.parent / "run")
    (folder / "run").symlink_to(folder.parent / "run")


def _open_to_all(folder: Path) -> None:
    folder.chmod(0o777)


def _not_executable(folder: Path) -> None:
    (folder / "run").chmod(0o600)


def _linked_whole(folder: Path) -> None:
    folder.rename(folder.with_name("moved"))
    folder.symlink_to(folder.with_name("moved"))


def _file_instead(folder: Path) -> None:
    folder.rename(folder.with_name("moved"))
    folder.write_text("evil", encoding="utf-8")


TAMPERING: dict[str, Callable[[Path], None]] = {
    "changed": _change,
    "added to": _add,
    "taken from": _remove,
    "linked inside": _link,
    "open to all": _open_to_all,
    "not executable": _not_executable,
    "linked": _linked_whole,
    "a file": _file_instead,
}


@pytest.mark.parametrize("tamper", TAMPERING.values(), ids=TAMPERING)
async def test_a_folder_that_was_tampered_with_is_replaced(
    tmp_path: Path, packed: zipfile.Path, tamper: Callable[[Path], None]
) -> None:
    source = BundledSource(_place(tmp_path), packed)
    skill = await _tidy(source)
    folder = await source.folder(skill)
    tamper(folder)
    assert await source.folder(skill) == folder
    assert not folder.is_symlink()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert tree.fingerprint(folder) == skill.fingerprint
    assert os.access(folder / "run", os.X_OK)
    assert not (folder / "run").is_symlink()


async def test_a_link_left_in_the_way_is_not_written_through(
    tmp_path: Path, packed: zipfile.Path
) -> None:
    source = BundledSource(_place(tmp_path), packed)
    skill = await _tidy(source)
    assert skill.fingerprint is not None
    outside = tmp_path / "outside"
    outside.mkdir()
    target = _place(tmp_path) / f"tidy-{skill.fingerprint.sha256[:16]}"
    target.parent.mkdir()
    target.symlink_to(outside)
    assert await source.folder(skill) == target
    assert not target.is_symlink()
    assert list(outside.iterdir()) == []


@pytest.mark.needs("root")
async def test_a_folder_of_someone_else_is_not_used(tmp_path: Path, packed: zipfile.Path) -> None:
    source = BundledSource(_place(tmp_path), packed)
    skill = await _tidy(source)
    folder = await source.folder(skill)
    os.chown(folder, 65534, 65534)
    assert await source.folder(skill) == folder
    assert folder.stat().st_uid == os.geteuid()


async def test_the_slower_of_two_processes_uses_the_extraction_of_the_faster(
    tmp_path: Path, packed: zipfile.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = BundledSource(_place(tmp_path), packed)
    skill = await _tidy(source)
    rivals = [BundledSource(_place(tmp_path), packed)]
    made = list[Path]()

    def overtaken(fresh: Path, target: Path) -> None:
        if rivals:
            made.append(anyio.run(rivals.pop().folder, skill))
        commit_dir(fresh, target)

    monkeypatch.setattr("apexbridge.sources.extracted_folder.commit_dir", overtaken)
    folder = await source.folder(skill)
    assert made == [folder]
    assert tree.fingerprint(folder) == skill.fingerprint
    assert list((_place(tmp_path) / ".staging").iterdir()) == []


async def test_a_disk_that_fills_up_leaves_nothing_behind(
    tmp_path: Path, packed: zipfile.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path) -> None:
        raise OSError(28, "No space left on device", str(path))

    source = BundledSource(_place(tmp_path), packed)
    skill = await _tidy(source)
    monkeypatch.setattr("apexbridge.paths.fsync_tree", full)
    with pytest.raises(StorageError, match="No space left"):
        await source.folder(skill)
    assert list(_place(tmp_path).rglob("*")) == [_place(tmp_path) / ".staging"]


async def test_a_folder_that_never_becomes_intact_is_an_error(
    tmp_path: Path, packed: zipfile.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = BundledSource(_place(tmp_path), packed)
    skill = await _tidy(source)
    folder = await source.folder(skill)
    rename = Path.rename

    def put_back(path: Path, target: Path) -> Path:
        moved = rename(path, target)
        folder.mkdir()
        return moved

    monkeypatch.setattr(Path, "rename", put_back)
    _change(folder)
    with pytest.raises(StorageError, match="keeps changing it"):
        await source.folder(skill)


async def test_a_disk_that_refuses_is_a_clear_error(tmp_path: Path, packed: zipfile.Path) -> None:
    _place(tmp_path).write_text("in the way", encoding="utf-8")
    source = BundledSource(_place(tmp_path), packed)
    with pytest.raises(StorageError, match="Cannot write"):
        await source.folder(await _tidy(source))


async def test_a_packed_skill_without_a_place_says_so(packed: zipfile.Path) -> None:
    source = BundledSource(None, packed)
    with pytest.raises(SourceError, match="no folder"):
        await source.folder(await _tidy(source))


async def test_a_skill_that_is_not_in_the_package_is_not_known(packed: zipfile.Path) -> None:
    source = BundledSource(None, packed)
    foreign = (await MemorySource({"tidy": {"SKILL.md": skill_md("tidy")}}).scan()).skills[0]
    gone = replace(await _tidy(source), name="gone")
    for unknown in (foreign, gone):
        for read in (source.content, source.folder):
            with pytest.raises(SkillNotFoundError):
                await read(unknown)


async def test_a_package_that_is_gone_is_an_error_of_the_source(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="No such file"):
        await BundledSource(None, tmp_path / "gone").scan()


async def test_a_skill_that_broke_since_says_so(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/SKILL.md").write_bytes(skill_md("a"))
    source = BundledSource(None, tmp_path)
    (skill,) = (await source.scan()).skills
    (tmp_path / "a/SKILL.md").write_bytes(b"broken")
    with pytest.raises(SourceError, match="first line"):
        await source.content(skill)
    assert [p.where for p in (await source.scan()).problems] == ["a/SKILL.md:1"]


async def test_a_folder_and_an_archive_are_fingerprinted_alike(tmp_path: Path) -> None:
    name = "csv-report"
    clean = {
        f"pkg/{path.relative_to(PACKAGE).as_posix()}": path.read_bytes()
        for path in (PACKAGE / name).rglob("*")
        if path.is_file() and not tree.is_junk(PurePosixPath(path.as_posix()))
    }
    packed = BundledSource(None, zipfile.Path(make_zip(tmp_path / "z.zip", clean), "pkg/"))
    (in_archive,) = (await packed.scan()).skills
    on_disk = next(s for s in (await BundledSource().scan()).skills if s.name == name)
    assert in_archive.fingerprint == on_disk.fingerprint
    assert on_disk.fingerprint is not None
    assert on_disk.fingerprint.files == len(clean)


CHILD = """
import sys, anyio
from pathlib import Path
from apexbridge.sources.bundled import BundledSource

async def main():
    source = BundledSource(Path(sys.argv[1]))
    skills = (await source.scan()).skills
    print(source.id)
    print(*(skill.name for skill in skills))
    report = next(skill for skill in skills if skill.name == "csv-report")
    print(report.root, bool((await source.content(report)).body), flush=True)
    sys.stdin.read(1)
    folder = await source.folder(report)
    print(folder, folder.stat().st_ino)

anyio.run(main)
"""


def _start(archive: Path, place: Path) -> "subprocess.Popen[str]":
    # What lies in a zip is not measured.
    kept = {key: value for key, value in os.environ.items() if not key.startswith("COVERAGE_")}
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(place)],
        env={**kept, "PYTHONPATH": str(archive)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )


def test_processes_that_import_from_a_zip_race_for_one_intact_folder(tmp_path: Path) -> None:
    source = Path(apexbridge.__file__).parent
    archive = tmp_path / "apexbridge.zip"
    with zipfile.ZipFile(archive, "w") as out:
        for path in sorted(source.rglob("*")):
            if path.suffix in {".py", ".md", ".csv"}:
                out.write(path, path.relative_to(source.parent).as_posix())
    children = [_start(archive, _place(tmp_path)) for _ in range(3)]
    heads = [[child.stdout.readline() for _ in range(3)] for child in children if child.stdout]
    ends = [child.communicate("x", timeout=60) for child in children]
    assert [error for _, error in ends] == ["", "", ""]
    names = " ".join(sorted(path.parent.name for path in PACKAGE.glob("*/SKILL.md")))
    for head in heads:
        assert re.search(r"bundled:.*apexbridge\.zip", head[0])
        assert [line.strip() for line in head[1:]] == [names, "None True"]
    (line,) = {output.strip() for output, _ in ends}
    folder = Path(line.rsplit(" ", 1)[0])
    assert folder.parent == _place(tmp_path)
    assert (folder / "scripts/main.py").read_bytes() == (
        resources.files(bundled) / "csv-report/scripts/main.py"
    ).read_bytes()
    assert os.access(folder / "scripts/main.py", os.X_OK)
    assert sorted(path.name for path in folder.parent.iterdir()) == [".staging", folder.name]
