"""What every source of skills promises, over every implementation."""

from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath

import pytest

from apexbridge.errors import ApexBridgeError, SkillNotFoundError
from apexbridge.skills.model import Origin, Skill
from apexbridge.sources.base import SkillSource
from apexbridge.sources.folders import FolderSource
from apexbridge.testing import MemorySource, skill_md

Files = Mapping[str, Mapping[str, bytes]]
pytestmark = pytest.mark.anyio


def _folder(skills: Files, place: Path) -> SkillSource:
    for folder, files in skills.items():
        for name, data in files.items():
            path = place / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    return FolderSource(place, Origin.USER)


IMPLEMENTATIONS: dict[str, Callable[[Files, Path], SkillSource]] = {
    "folder": _folder,
    "memory": lambda skills, _: MemorySource(skills),
}


@pytest.fixture(params=IMPLEMENTATIONS)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Files], SkillSource]:
    return lambda skills: IMPLEMENTATIONS[request.param](skills, tmp_path)


SKILLS: Files = {
    "pdf": {"SKILL.md": skill_md("pdf", body="Read it."), "references/a.md": "甲".encode()},
    "broken": {"SKILL.md": b"no frontmatter"},
    "docx": {"SKILL.md": skill_md("docx")},
}


async def _skill(source: SkillSource, name: str) -> Skill:
    return next(skill for skill in (await source.scan()).skills if skill.name == name)


@pytest.mark.promise("M01")
async def test_a_broken_skill_is_a_problem_beside_the_sound_ones(
    make: Callable[[Files], SkillSource],
) -> None:
    scan = await make(SKILLS).scan()
    assert sorted(skill.name for skill in scan.skills) == ["docx", "pdf"]
    assert [problem.code for problem in scan.problems] == ["frontmatter_missing"]


async def test_each_skill_says_which_source_lists_it(make: Callable[[Files], SkillSource]) -> None:
    source = make(SKILLS)
    skill = await _skill(source, "pdf")
    assert skill.provenance.source_id == source.id
    assert skill.provenance.origin is Origin.USER


async def test_the_body_is_read_through_the_source(make: Callable[[Files], SkillSource]) -> None:
    source = make(SKILLS)
    content = await source.content(await _skill(source, "pdf"))
    assert content.body == "Read it."


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
