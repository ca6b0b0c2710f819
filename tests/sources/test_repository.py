"""Skills of a folder of any layout."""

import json
from pathlib import Path

from apexbridge.sources.directory_scanner import ScanLimits
from apexbridge.sources.repository import Repository, discover_skills, missing_submodules


def _skill(folder: Path, text: str = "Do it.") -> Path:
    folder.mkdir(parents=True)
    body = f"---\nname: {folder.name}\ndescription: Does {folder.name}.\n---\n{text}\n"
    (folder / "SKILL.md").write_text(body, encoding="utf-8")
    return folder


def _where(found: Repository) -> list[str]:
    return [skill.where for skill in found.skills]


def _codes(found: Repository) -> list[str]:
    return [problem.code for problem in found.problems]


def test_a_folder_with_a_skill_md_is_the_one_skill(tmp_path: Path) -> None:
    _skill(tmp_path / "pdf")
    _skill(tmp_path / "pdf" / "assets" / "inner")
    (skill,) = discover_skills(tmp_path / "pdf").skills
    assert (skill.name, skill.description, skill.where) == ("pdf", "Does pdf.", "")
    assert skill.path == tmp_path / "pdf"
    assert len(skill.sha256) == 64


def test_hidden_folders_of_published_repositories_are_searched(tmp_path: Path) -> None:
    places = [
        "skills/.curated/a",
        "skills/.experimental/b",
        "skills/.system/c",
        ".github/plugins/one/skills/d",
        ".github/skills/e",
        ".claude/skills/f",
        "skills/x/y/g",
        "h",
    ]
    for place in places:
        _skill(tmp_path / place)
    assert sorted(_where(discover_skills(tmp_path))) == sorted(places)


def test_other_hidden_folders_with_skills_are_reported_and_not_searched(tmp_path: Path) -> None:
    _skill(tmp_path / "a")
    _skill(tmp_path / ".cache" / "b")
    _skill(tmp_path / ".git" / "skills" / "c")
    found = discover_skills(tmp_path)
    assert _where(found) == ["a"]
    assert [(p.code, p.where) for p in found.problems] == [("folder_not_searched", ".cache")]


def test_skills_below_the_depth_limit_are_reported(tmp_path: Path) -> None:
    _skill(tmp_path / "a" / "b" / "c")
    found = discover_skills(tmp_path, ScanLimits(max_depth=2))
    assert (_where(found), _codes(found)) == ([], ["folder_not_searched"])


def test_samples_count_only_where_there_are_no_others(tmp_path: Path) -> None:
    _skill(tmp_path / "tests" / "fixtures" / "a")
    assert _where(discover_skills(tmp_path)) == ["tests/fixtures/a"]
    _skill(tmp_path / "skills" / "b")
    found = discover_skills(tmp_path)
    assert (_where(found), _codes(found)) == (["skills/b"], ["skill_left_out"])


def test_equal_copies_count_once_and_different_ones_do_not(tmp_path: Path) -> None:
    for place in ("skills/a", ".github/plugins/p/skills/a"):
        _skill(tmp_path / place)
    assert _where(discover_skills(tmp_path)) == ["skills/a"]
    _skill(tmp_path / "other" / "a", "Do it otherwise.")
    assert _where(discover_skills(tmp_path)) == ["other/a", "skills/a"]


def test_a_skill_md_that_links_to_another_of_the_repository_is_no_second_skill(
    tmp_path: Path,
) -> None:
    _skill(tmp_path / "skills" / "a")
    mirror = tmp_path / ".gemini" / "skills" / "a"
    mirror.mkdir(parents=True)
    (mirror / "SKILL.md").symlink_to("../../../skills/a/SKILL.md")
    found = discover_skills(tmp_path)
    assert (_where(found), _codes(found)) == (["skills/a"], [])


def test_skills_inside_of_a_skill_and_links_to_commands_are_named(tmp_path: Path) -> None:
    for inner in ("whole", "whole/parts/inner", "whole/direct"):
        _skill(tmp_path / "skills" / inner)
    (tmp_path / "commands").mkdir()
    (tmp_path / "commands/push.md").write_text("Push.\n", encoding="utf-8")
    (tmp_path / ".agents/skills/push").mkdir(parents=True)
    (tmp_path / ".agents/skills/push/SKILL.md").symlink_to("../../../commands/push.md")
    found = discover_skills(tmp_path)
    assert _where(found) == ["skills/whole"]
    named = sorted(p.where for p in found.problems if p.code == "folder_not_searched")
    assert named == [".agents/skills/push", "skills/whole/direct", "skills/whole/parts"]


def test_a_link_that_leaves_the_repository_is_reported_and_not_followed(tmp_path: Path) -> None:
    _skill(tmp_path / "outside" / "a")
    root = tmp_path / "repository"
    _skill(root / "b")
    (root / "c").symlink_to(tmp_path / "outside")
    found = discover_skills(root)
    assert (_where(found), _codes(found)) == (["b"], ["link_leads_out"])


def test_the_plugin_that_lists_a_skill_is_named(tmp_path: Path) -> None:
    for name in ("pdf", "art", "free"):
        _skill(tmp_path / "skills" / name)
    plugins = [
        {"name": "docs", "source": "./", "strict": False, "skills": ["./skills/pdf"]},
        {"name": "fun", "source": "./", "strict": False, "skills": ["./skills/art"]},
    ]
    (tmp_path / ".claude-plugin").mkdir()
    listing = json.dumps({"name": "m", "plugins": plugins})
    (tmp_path / ".claude-plugin" / "marketplace.json").write_text(listing, encoding="utf-8")
    found = discover_skills(tmp_path)
    assert {skill.name: skill.plugin for skill in found.skills} == {
        "pdf": "docs",
        "art": "fun",
        "free": "",
    }


def test_an_unusable_skill_is_a_problem_and_hides_no_other(tmp_path: Path) -> None:
    _skill(tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "SKILL.md").write_text("no frontmatter", encoding="utf-8")
    found = discover_skills(tmp_path)
    assert (_where(found), _codes(found)) == (["a"], ["frontmatter_missing"])


def test_a_folder_that_does_not_exist_is_a_problem(tmp_path: Path) -> None:
    assert _codes(discover_skills(tmp_path / "x")) == ["path_missing"]


def test_submodules_that_were_not_fetched_are_named(tmp_path: Path) -> None:
    assert list(missing_submodules(tmp_path)) == []
    _skill(tmp_path / "there")
    (tmp_path / "skills/empty").mkdir(parents=True)
    paths = ["skills/empty", "gone", "there", "../..", "/etc", "x" * 300]
    text = "".join(f'[submodule "{n}"]\n\tpath = {n}\n\turl = ../x\n' for n in paths)
    (tmp_path / ".gitmodules").write_text(text, encoding="utf-8")
    found = [(p.code, p.where) for p in missing_submodules(tmp_path)]
    names = ("skills/empty", "gone", "x" * 300)
    assert found == [("submodule_left_out", name) for name in names]
