"""Legacy slash commands: single Markdown files and folders below one root."""

import hashlib
import os
from pathlib import Path, PurePosixPath

import pytest

from apexbridge.errors import SkillNotFoundError, SourceError
from apexbridge.permissions.rules import ToolPattern
from apexbridge.skills.model import Fingerprint, Origin, Skill
from apexbridge.sources.folders import ScanLimits
from apexbridge.sources.legacy_commands import LegacySource
from apexbridge.testing import MemorySource, make_skill, skill_md

pytestmark = pytest.mark.anyio

MANY = ScanLimits()


def _write(root: Path, **files: str | bytes) -> None:
    for name, content in files.items():
        path = root / f"{name.replace('__', '/')}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


async def _scan(root: Path, limits: ScanLimits = MANY) -> tuple[list[Skill], list[tuple[str, str]]]:
    scan = await LegacySource(root, limits).scan()
    return list(scan.skills), [(problem.where, problem.code) for problem in scan.problems]


async def test_a_file_without_frontmatter_is_a_command_and_no_problem(tmp_path: Path) -> None:
    text = "# Deploy it\n\nTo $ARGUMENTS."
    _write(tmp_path, deploy=text)
    source = LegacySource(tmp_path)
    scan = await source.scan()
    (skill,) = scan.skills
    assert scan.problems == ()
    assert (skill.name, skill.description, skill.root) == ("deploy", "Deploy it", None)
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert skill.fingerprint == Fingerprint(size=len(text), files=1, sha256=digest)
    assert (await source.content(skill)).body == text


async def test_frontmatter_says_what_a_command_may_and_is(tmp_path: Path) -> None:
    head = "---\ndescription: Ships.\nallowed-tools: Bash(git add *)\nargument-hint: [where]\n---\n"
    _write(tmp_path, deploy=head + "Go.")
    source = LegacySource(tmp_path)
    scan = await source.scan()
    (skill,) = scan.skills
    assert scan.problems == ()
    assert (skill.description, skill.tools) == ("Ships.", (ToolPattern("Bash", "git add *"),))
    assert skill.manifest.argument_hint == "[where]"
    assert (await source.content(skill)).body == "Go."


async def test_a_description_that_is_missing_is_taken_from_the_text(tmp_path: Path) -> None:
    _write(tmp_path, a="---\nmodel: opus\n---\nSay hello.\n\nThen go.", b="---\n---\n")
    skills, problems = await _scan(tmp_path)
    assert [skill.description for skill in skills] == ["Say hello.", "b"]
    assert problems == [("b.md", "body_empty")]


async def test_names_come_from_the_path(tmp_path: Path) -> None:
    _write(
        tmp_path,
        **{"sub__deploy": "a", "a__b__c": "b", "发布": "c", "Fix Bug!": "d", "!!__x": "e"},
        named="---\nname: otherwise\n---\nx",
    )
    skills, problems = await _scan(tmp_path)
    names = {"sub:deploy", "a:b:c", "发布", "fix-bug", "x", "named"}
    assert {skill.name for skill in skills} == names
    assert problems == []


async def test_a_name_of_which_nothing_remains_is_a_problem(tmp_path: Path) -> None:
    _write(tmp_path, **{"!!!": "x", "ok": "y"})
    skills, problems = await _scan(tmp_path)
    assert [skill.name for skill in skills] == ["ok"]
    assert problems == [("!!!.md", "name_empty")]


async def test_the_first_of_two_files_with_one_name_wins_and_it_is_said(tmp_path: Path) -> None:
    _write(tmp_path, **{"a b": "first", "a-b": "second"})
    source = LegacySource(tmp_path)
    scan = await source.scan()
    assert [skill.name for skill in scan.skills] == ["a-b"]
    assert (await source.content(scan.skills[0])).body == "first"
    assert [(p.code, p.details["winner"]) for p in scan.problems] == [("skill_shadowed", "a b.md")]


async def test_skill_folders_are_skills_and_not_searched(tmp_path: Path) -> None:
    folder = make_skill(tmp_path / "group", "tidy", files={"references/more.md": "more"})
    _write(tmp_path, group__note="a note")
    source = LegacySource(tmp_path)
    skills = (await source.scan()).skills
    assert [(skill.name, skill.root) for skill in skills] == [
        ("tidy", folder),
        ("group:note", None),
    ]
    assert (await source.content(skills[0])).body.startswith("# Instructions")
    more = await source.resource(skills[0], PurePosixPath("references/more.md"))
    assert more.data == b"more"


async def test_what_it_brings_is_not_trusted(tmp_path: Path) -> None:
    _write(tmp_path, a="x")
    make_skill(tmp_path, "b")
    skills, _ = await _scan(tmp_path)
    for skill in skills:
        facts = skill.provenance
        assert (facts.origin, facts.needs_trust, facts.may_run_shell) == (Origin.LEGACY, True, True)
        assert (facts.writable, skill.is_trusted) == (False, False)


async def test_hidden_files_and_what_is_no_markdown_are_skipped(tmp_path: Path) -> None:
    _write(tmp_path, **{".hidden": "x", ".git__x": "x", "node_modules__x": "x", "seen": "x"})
    (tmp_path / "script.py").write_text("x", encoding="utf-8")
    (tmp_path / "UPPER.MD").write_text("x", encoding="utf-8")
    skills, problems = await _scan(tmp_path)
    assert [skill.name for skill in skills] == ["UPPER", "seen"]
    assert problems == []


async def test_links_are_not_followed_and_it_is_said(tmp_path: Path) -> None:
    root = tmp_path / "commands"
    _write(tmp_path, private="private")
    _write(tmp_path / "team", x="x")
    _write(root, real="x")
    linked = make_skill(tmp_path / "elsewhere", "linked")
    (root / "out.md").symlink_to(tmp_path / "private.md")
    (root / "in.md").symlink_to("real.md")
    (root / "note.txt").symlink_to("real.md")
    (root / "team").symlink_to(tmp_path / "team")
    (root / "skill").symlink_to(linked)
    skills, problems = await _scan(root)
    assert [skill.name for skill in skills] == ["linked", "real"]
    assert problems == [
        ("skill/SKILL.md", "name_mismatch"),
        ("in.md", "command_unreadable"),
        ("out.md", "command_unreadable"),
        ("team", "command_unreadable"),
    ]


@pytest.mark.parametrize("swapped", ["file", "folder"])
async def test_a_link_put_there_after_the_scan_is_not_followed(
    tmp_path: Path, swapped: str
) -> None:
    root = tmp_path / "commands"
    _write(tmp_path / "outside", a="secret")
    _write(root, sub__a="x")
    source = LegacySource(root)
    (skill,) = (await source.scan()).skills
    (root / "sub/a.md").unlink()
    if swapped == "file":
        (root / "sub/a.md").symlink_to(tmp_path / "outside/a.md")
    else:
        (root / "sub").rmdir()
        (root / "sub").symlink_to(tmp_path / "outside")
    with pytest.raises(SourceError, match=r"sub/a\.md"):
        await source.content(skill)


@pytest.mark.parametrize(
    ("data", "code", "where"),
    [
        ("标题".encode("gbk"), "command_not_text", "bad.md:1"),
        ("标题".encode("utf-16"), "command_not_text", "bad.md"),
        (b"a\nb\0", "command_not_text", "bad.md:2"),
        (b"x" * (1024 * 1024 + 1), "command_unreadable", "bad.md"),
        (b"---\ndescription: x\n", "frontmatter_unclosed", "bad.md:1"),
        (b"---\na: [\n---\n", "yaml_invalid", "bad.md:3"),
    ],
    ids=["gbk", "utf-16", "nul", "huge", "unclosed", "yaml"],
)
async def test_a_file_that_cannot_be_read_is_a_problem_beside_the_others(
    tmp_path: Path, data: bytes, code: str, where: str
) -> None:
    _write(tmp_path, bad=data, good="x")
    skills, problems = await _scan(tmp_path)
    assert [skill.name for skill in skills] == ["good"]
    assert problems == [(where, code)]


async def test_a_pipe_is_not_a_command_and_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.md")
    assert await _scan(tmp_path) == ([], [])
    _write(tmp_path, a="x")
    source = LegacySource(tmp_path)
    (skill,) = (await source.scan()).skills
    (tmp_path / "a.md").unlink()
    os.mkfifo(tmp_path / "a.md")
    with pytest.raises(SourceError, match="not a regular file"):
        await source.content(skill)


async def test_invalid_values_are_reported_with_the_line_of_the_command(tmp_path: Path) -> None:
    _write(tmp_path, sub__a=f"---\ndescription: {'x' * 1025}\ncontext: no\n---\nx")
    skills, problems = await _scan(tmp_path)
    assert len(skills) == 1
    assert problems == [("sub/a.md:3", "field_invalid"), ("sub/a.md", "description_too_long")]


async def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    _write(tmp_path, a="\ufeff# 标题")
    source = LegacySource(tmp_path)
    (skill,) = (await source.scan()).skills
    assert skill.description == "标题"
    assert (await source.content(skill)).body == "# 标题"


@pytest.mark.parametrize("shape", ["folders", "files"])
async def test_a_root_of_any_size_ends_and_says_so_once(tmp_path: Path, shape: str) -> None:
    for number in range(12):
        _write(tmp_path, **{f"{'d' if shape == 'files' else f'd{number:02}__'}{number:02}": "x"})
    skills, problems = await _scan(tmp_path, ScanLimits(max_folders=10))
    assert len(skills) == 10
    assert problems == [(str(tmp_path), "folder_limit")]


async def test_folders_that_hold_nothing_count_too(tmp_path: Path) -> None:
    for number in range(12):
        (tmp_path / f"d{number:02}").mkdir()
    assert await _scan(tmp_path, ScanLimits(max_folders=10)) == (
        [],
        [(str(tmp_path), "folder_limit")],
    )


async def test_depth_ends_too(tmp_path: Path) -> None:
    _write(tmp_path, a__b__in="x", a__b__c__out="x")
    skills, _ = await _scan(tmp_path, ScanLimits(max_depth=2))
    assert [skill.name for skill in skills] == ["a:b:in"]


async def test_a_single_file_has_nothing_beside_it(tmp_path: Path) -> None:
    _write(tmp_path, a="x", b="y")
    source = LegacySource(tmp_path)
    skill = (await source.scan()).skills[0]
    with pytest.raises(SourceError, match=r"'a' is a single file without b\.md"):
        await source.resource(skill, PurePosixPath("b.md"))


async def test_a_command_is_read_without_a_scan_before(tmp_path: Path) -> None:
    _write(tmp_path, a="x")
    (skill,) = (await LegacySource(tmp_path).scan()).skills
    assert (await LegacySource(tmp_path).content(skill)).body == "x"


async def test_what_is_gone_or_foreign_is_not_known(tmp_path: Path) -> None:
    _write(tmp_path, a="x", b="y")
    source = LegacySource(tmp_path)
    skill = (await source.scan()).skills[0]
    (tmp_path / "a.md").unlink()
    with pytest.raises(SourceError, match="No such file"):
        await source.content(skill)
    with pytest.raises(SkillNotFoundError):
        await LegacySource(tmp_path).content(skill)
    foreign = MemorySource({"b": {"SKILL.md": skill_md("b")}})
    with pytest.raises(SkillNotFoundError):
        await source.content((await foreign.scan()).skills[0])


async def test_the_folders_of_commands_are_watched(tmp_path: Path) -> None:
    _write(tmp_path, sub__a="x")
    make_skill(tmp_path, "b")
    source = LegacySource(tmp_path)
    assert source.roots == (tmp_path,)
    await source.scan()
    assert {tmp_path, tmp_path / "sub"} <= set(source.roots)
    await source.close()


async def test_a_root_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert await _scan(tmp_path / "nowhere") == ([], [])
