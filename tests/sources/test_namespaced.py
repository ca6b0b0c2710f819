"""Namespaced sources, and slugs of name parts."""

from pathlib import Path, PurePosixPath

import pytest

from apexbridge.errors import SkillNotFoundError
from apexbridge.skills.model import Origin, Skill
from apexbridge.sources.base import NamespacedSource, name_part
from apexbridge.sources.folders import FolderSource
from apexbridge.testing import MemorySource, make_skill, skill_md

pytestmark = pytest.mark.anyio

FILES = {"pdf": {"SKILL.md": skill_md("pdf", body="Read."), "a.txt": b"a"}}


async def test_skills_are_listed_under_the_prefix_and_read_by_it() -> None:
    source = NamespacedSource(MemorySource(FILES), "office")
    (skill,) = (await source.scan()).skills
    assert skill.name == "office:pdf"
    content = await source.content(skill)
    assert (content.body, content.skill) == ("Read.", skill)
    resource = await source.resource(skill, PurePosixPath("a.txt"))
    assert (resource.data, resource.skill) == (b"a", skill)


async def test_all_but_the_names_is_the_inner_sources(tmp_path: Path) -> None:
    make_skill(tmp_path, "broken", raw=b"nothing")
    inner = FolderSource(tmp_path, Origin.USER)
    source = NamespacedSource(inner, "mine")
    assert (await source.scan()).problems == (await inner.scan()).problems != ()
    assert (source.id, source.roots) == (inner.id, inner.roots)
    await source.close()


async def test_a_namespace_is_inserted_between_prefix_and_name() -> None:
    source = NamespacedSource(MemorySource(FILES), "office", lambda _: "a:b")
    (skill,) = (await source.scan()).skills
    assert skill.name == "office:a:b:pdf"
    assert (await source.content(skill)).body == "Read."


async def test_prefixes_stack() -> None:
    source = NamespacedSource(NamespacedSource(MemorySource(FILES), "in"), "out")
    (skill,) = (await source.scan()).skills
    assert skill.name == "out:in:pdf"
    assert (await source.content(skill)).skill == skill


async def test_a_name_without_the_prefix_is_not_known() -> None:
    inner = MemorySource(FILES)
    source = NamespacedSource(inner, "office")
    bare: Skill = (await inner.scan()).skills[0]
    with pytest.raises(SkillNotFoundError):
        await source.content(bare)
    with pytest.raises(SkillNotFoundError):
        await source.resource(bare, PurePosixPath("a.txt"))


@pytest.mark.parametrize(
    ("written", "used"),
    [
        ("review", "review"),
        ("Fix_Bug.v2", "Fix_Bug.v2"),
        ("代码审查", "代码审查"),
        ("Code Review", "code-review"),
        ("a:b", "a-b"),
        ("../x", "x"),
        ("ﬁx", "fix"),
        ("..", ""),
        ("?!", ""),
        ("", ""),
        ("a\u202eb", "a-b"),
        ("x" * 65, "x" * 64),
    ],
    ids=range(12),
)
async def test_a_valid_part_of_a_name_is_unchanged(written: str, used: str) -> None:
    assert name_part(written) == used
