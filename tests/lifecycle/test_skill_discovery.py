"""Skill discovery: every skill once, no symlink escape, no unbounded walk."""

import os
import socket
from pathlib import Path

from apexbridge.lifecycle.skill_discovery import Candidate, discover_skills
from apexbridge.sources.directory_scanner import ScanLimits
from apexbridge.testing import make_skill, make_zip, skill_md


def _paths(found: tuple[Candidate, ...], below: Path) -> list[str]:
    return [candidate.path.relative_to(below).as_posix() for candidate in found]


def _codes(found: tuple[Candidate, ...]) -> list[str]:
    return [problem.code for candidate in found for problem in candidate.problems]


def test_skills_and_archives_of_every_layout_are_found_in_a_fixed_order(tmp_path: Path) -> None:
    for place in (".claude/skills", ".agents/skills", ".apexbridge/skills", "skills/group"):
        make_skill(tmp_path / place, place.strip(".").replace("/", "-"))
    make_skill(tmp_path, "技能")
    make_skill(tmp_path / "skills", "lower", raw=b"x").joinpath("SKILL.md").rename(
        tmp_path / "skills/lower/skill.md"
    )
    make_zip(tmp_path / "skills/b.ZIP", {"b/SKILL.md": skill_md("b")})
    make_zip(tmp_path / "a.skill", {"a/SKILL.md": skill_md("a")})
    (tmp_path / "notes.txt").write_text("no skill", encoding="utf-8")
    assert _paths(discover_skills([tmp_path]), tmp_path) == [
        "a.skill",
        ".apexbridge/skills/apexbridge-skills",
        ".claude/skills/claude-skills",
        ".agents/skills/agents-skills",
        "skills/b.ZIP",
        "skills/group/skills-group",
        "skills/lower",
        "技能",
    ]


def test_a_place_may_be_a_skill_its_skill_md_or_an_archive(tmp_path: Path) -> None:
    one, two = make_skill(tmp_path, "one"), make_skill(tmp_path, "two", files={"in/SKILL.md": "x"})
    archive = make_zip(tmp_path / "three.bin", {"three/SKILL.md": skill_md("three")})
    found = discover_skills([one / "SKILL.md", two, archive, tmp_path / "nothing", one, archive])
    assert _paths(found, tmp_path) == ["one", "two", "three.bin"]


def test_hidden_folders_packages_and_what_lies_in_a_skill_are_passed_over(tmp_path: Path) -> None:
    make_skill(tmp_path / "node_modules", "a")
    make_skill(tmp_path / ".hidden", "b")
    make_skill(tmp_path / "deep/.claude/skills", "c")
    outer = make_skill(tmp_path, "outer")
    make_skill(outer / "templates", "inner")
    make_zip(outer / "inner.zip", {"x/SKILL.md": skill_md("x")})
    assert _paths(discover_skills([tmp_path]), tmp_path) == ["outer"]


def test_what_many_ways_lead_to_is_found_once(tmp_path: Path) -> None:
    make_skill(tmp_path / ".agents/skills", "real")
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude/skills").symlink_to("../.agents/skills")
    (tmp_path / "also").symlink_to(".agents/skills/real")
    (tmp_path / "ring").symlink_to(".")
    (tmp_path / "gone").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    found = discover_skills([tmp_path / ".claude/skills", tmp_path, tmp_path / ".agents"])
    assert [os.path.realpath(candidate.path) for candidate in found] == [
        str(tmp_path / ".agents/skills/real")
    ]
    assert _codes(found) == []


def test_a_link_that_leads_out_is_told_unless_its_target_is_found(tmp_path: Path) -> None:
    outside = make_skill(tmp_path / "outside", "far")
    make_zip(tmp_path / "outside/z.zip", {"z/SKILL.md": skill_md("z")})
    place = tmp_path / "place"
    place.mkdir()
    (place / "far").symlink_to(outside)
    (place / "z.zip").symlink_to(tmp_path / "outside/z.zip")
    (place / "all").symlink_to(tmp_path / "outside")
    (place / "file.txt").symlink_to("/etc/hostname")
    (tmp_path / "empty").mkdir()
    (place / "nothing").symlink_to(tmp_path / "empty")
    found = discover_skills([place])
    assert _paths(found, place) == ["all", "far", "z.zip"]
    assert _codes(found) == ["link_leads_out"] * 3
    assert str(outside) in found[1].problems[0].message
    both = discover_skills([place, tmp_path / "outside"])
    assert _paths(both, tmp_path) == ["outside/z.zip", "outside/far"]
    assert _codes(both) == []


def test_a_walk_has_an_end_and_says_when_it_stopped_early(tmp_path: Path) -> None:
    for number in range(8):
        make_skill(tmp_path, f"skill-{number}")
    found = discover_skills([tmp_path], limits=ScanLimits(max_folders=5))
    assert _paths(found, tmp_path)[:-1] == [f"skill-{number}" for number in range(4)]
    assert (found[-1].path, _codes(found)) == (tmp_path, ["folder_limit"])
    make_skill(tmp_path / "x/a/b/c", "deep")
    shallow = discover_skills([tmp_path / "x"], limits=ScanLimits(max_depth=3))
    assert shallow == ()
    assert _paths(discover_skills([tmp_path / "x"], limits=ScanLimits(max_depth=4)), tmp_path) == [
        "x/a/b/c/deep"
    ]


def test_what_is_neither_file_nor_folder_is_told(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        found = discover_skills([tmp_path / "s"])
    assert _codes(found) == ["path_unreadable"]
    os.mkfifo(tmp_path / "pipe.zip")
    assert discover_skills([tmp_path]) == ()
