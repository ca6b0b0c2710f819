"""Contract of every skill source, run over every implementation."""

import re
import zipfile
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path, PurePosixPath

import pytest

from apexbridge.errors import ApexBridgeError, SkillNotFoundError
from apexbridge.skills.model import Origin, Skill
from apexbridge.sources.base import NamespacedSource, SkillSource, SyncContentSource
from apexbridge.sources.bundled import BundledSource
from apexbridge.sources.folders import FolderSource
from apexbridge.sources.legacy_commands import LegacySource
from apexbridge.sources.plugins.finder import find_plugins
from apexbridge.testing import MemorySource, make_zip, skill_md
from tests.sources.mcp.server_processes import mcp_over_http
from tests.sources.remote.http_site import remote_over_http

Files = Mapping[str, Mapping[str, bytes]]
pytestmark = pytest.mark.anyio


def _write(skills: Files, place: Path) -> Path:
    for folder, files in skills.items():
        for name, data in files.items():
            path = place / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    return place


def _plugin(skills: Files, place: Path) -> SkillSource:
    _write(skills, place / "skills")
    _write({".claude-plugin": {"plugin.json": b'{"name": "p"}'}}, place)
    (source,), _ = find_plugins((place,), data=place / "data", config={}, disabled=())
    return source


def _zipped(skills: Files, place: Path) -> SkillSource:
    entries = {
        f"p/{folder}/{name}": data for folder in skills for name, data in skills[folder].items()
    }
    return BundledSource(place, zipfile.Path(make_zip(place / "p.zip", entries), "p/"))


IMPLEMENTATIONS: dict[str, Callable[[Files, Path], SkillSource]] = {
    "folder": lambda skills, place: FolderSource(_write(skills, place), Origin.USER),
    "memory": lambda skills, _: MemorySource(skills),
    "namespaced": lambda skills, _: NamespacedSource(MemorySource(skills), "n"),
    "plugin": _plugin,
    "legacy": lambda skills, place: LegacySource(_write(skills, place)),
    "bundled": lambda skills, place: BundledSource(None, _write(skills, place)),
    "bundled in a zip": _zipped,
    "mcp": lambda skills, _: mcp_over_http(skills),
    "remote": remote_over_http,
}


@pytest.fixture(params=IMPLEMENTATIONS)
async def make(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncGenerator[Callable[[Files], SkillSource]]:
    async with AsyncExitStack() as made:

        def build(skills: Files) -> SkillSource:
            source = IMPLEMENTATIONS[request.param](skills, tmp_path)
            made.push_async_callback(source.close)
            return source

        yield build


SKILLS: Files = {
    "pdf": {"SKILL.md": skill_md("pdf", body="Read it."), "references/a.md": "甲".encode()},
    "broken": {"SKILL.md": b"no frontmatter"},
    "docx": {"SKILL.md": skill_md("docx")},
}


def _short(skill: Skill) -> str:
    """The name without what a source puts in front of it."""
    return re.split(":|__|_canonical_", skill.name)[-1]


async def _skill(source: SkillSource, name: str) -> Skill:
    return next(skill for skill in (await source.scan()).skills if _short(skill) == name)


@pytest.mark.promise("M01")
async def test_a_broken_skill_is_a_problem_beside_the_sound_ones(
    make: Callable[[Files], SkillSource],
) -> None:
    scan = await make(SKILLS).scan()
    assert sorted(map(_short, scan.skills)) == ["docx", "pdf"]
    assert [problem.code for problem in scan.problems] == ["frontmatter_missing"]


async def test_each_skill_says_which_source_lists_it(make: Callable[[Files], SkillSource]) -> None:
    source = make(SKILLS)
    skill = await _skill(source, "pdf")
    assert skill.provenance.source_id == source.id
    assert source.id.startswith(f"{skill.provenance.origin}:")


async def test_the_body_is_read_through_the_source(make: Callable[[Files], SkillSource]) -> None:
    source = make(SKILLS)
    content = await source.content(await _skill(source, "pdf"))
    assert content.body == "Read it."


async def test_what_can_be_read_at_once_is_the_same_as_what_is_waited_for(
    make: Callable[[Files], SkillSource],
) -> None:
    source = make(SKILLS)
    skill = await _skill(source, "pdf")
    content = await source.content(skill)
    assert not isinstance(source, SyncContentSource) or source.content_at_once(skill) == content
    assert isinstance(source, SyncContentSource) or not isinstance(source, FolderSource)


async def test_a_file_beside_it_is_read_through_the_source(
    make: Callable[[Files], SkillSource],
) -> None:
    source = make(SKILLS)
    resource = await source.resource(await _skill(source, "pdf"), PurePosixPath("references/a.md"))
    assert resource.data.decode() == "甲"


@pytest.mark.parametrize("path", ["../docx/SKILL.md", "/etc/passwd", "nothing.md", "references"])
async def test_a_file_outside_or_missing_is_refused(
    make: Callable[[Files], SkillSource], path: str
) -> None:
    source = make(SKILLS)
    skill = await _skill(source, "pdf")
    with pytest.raises(ApexBridgeError):
        await source.resource(skill, PurePosixPath(path))


async def test_a_skill_of_another_source_is_not_read(
    make: Callable[[Files], SkillSource],
) -> None:
    foreign = MemorySource({"else": {"SKILL.md": skill_md("else")}})
    skill = await _skill(foreign, "else")
    with pytest.raises(SkillNotFoundError):
        await make(SKILLS).content(skill)


async def test_a_source_without_skills_is_empty(make: Callable[[Files], SkillSource]) -> None:
    scan = await make({}).scan()
    assert (scan.skills, scan.problems) == ((), ())
