"""Skills with path patterns are activated by touched files, also by those of shell commands."""

from pathlib import Path

import pytest

from apexbridge.catalog.path_activation import MAX_PATHS, PathActivation, paths_in_command
from apexbridge.path_patterns import PathMatcher
from apexbridge.skills.model import Origin, Provenance, Skill, SkillManifest

PROJECT = Path("/srv/project")


def _skill(name: str, *paths: str, home: Path | None = None) -> Skill:
    return Skill(
        name=name,
        description="d",
        manifest=SkillManifest(paths=paths),
        provenance=Provenance(origin=Origin.PROJECT, source_id="project:x", home=home),
    )


@pytest.mark.parametrize(
    ("pattern", "path", "wakes"),
    [
        ("src/**/*.ts", "src/a/b.ts", True),
        ("src/**/*.ts", "src/b.ts", True),
        ("src/**/*.ts", "lib/src/b.ts", False),
        ("*.md", "docs/deep/readme.md", True),
        ("/*.md", "docs/readme.md", False),
        ("*.{ts,tsx}", "app/x.tsx", True),
        ("docs/", "docs/x.txt", True),
        ("src", "src/main.py", True),
        ("文档/*.md", "文档/说明.md", True),
        ("*.TS", "a.ts", False),
    ],
)
def test_patterns_mean_what_gitignore_means(pattern: str, path: str, wakes: bool) -> None:
    waking = PathActivation(PROJECT)
    assert bool(waking.activate([_skill("s", pattern)], [PROJECT / path])) is wakes


def test_once_awake_it_stays_awake_and_is_told_once() -> None:
    waking, skills = PathActivation(PROJECT), [_skill("ts", "*.ts"), _skill("always")]
    assert [skill.name for skill in waking.visible(skills)] == ["always"]
    assert waking.activate(skills, [PROJECT / "a.ts"]) == ("ts",)
    assert waking.activate(skills, [PROJECT / "b.ts"]) == ()
    assert waking.visible(skills) == skills


def test_each_session_wakes_for_itself() -> None:
    skill, one, other = _skill("ts", "*.ts"), PathActivation(PROJECT), PathActivation(PROJECT)
    one.activate([skill], [PROJECT / "a.ts"])
    assert not one.is_inactive(skill)
    assert other.is_inactive(skill)


def test_a_later_exception_takes_a_path_out_again() -> None:
    waking = PathActivation(PROJECT)
    assert waking.activate([_skill("s", "*.ts", "!*.d.ts")], [PROJECT / "a.d.ts"]) == ()


def test_patterns_count_from_the_folder_that_keeps_the_skill_too() -> None:
    inner = _skill("s", "/src/*.py", home=PROJECT / "packages/app")
    assert PathActivation(PROJECT).activate([inner], [PROJECT / "packages/app/src/x.py"]) == ("s",)
    assert PathActivation(PROJECT).activate([inner], [PROJECT / "src/x.py"]) == ("s",)
    assert PathActivation(PROJECT).activate([inner], [PROJECT / "packages/src/x.py"]) == ()


def test_a_file_outside_the_project_wakes_nothing() -> None:
    assert PathActivation(PROJECT).activate([_skill("s", "*")], [Path("/etc/passwd")]) == ()


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("cat src/a.ts", ["cat", "src/a.ts"]),
        ("cd sub && sed -i s/a/b/ x.md", ["cd", "sub", "sed", "s/a/b", "x.md"]),
        ("echo hi > 'out dir/new.txt'; ls", ["echo", "hi", "out dir/new.txt", "ls"]),
        ("tool --file=src/a.ts -o b.o", ["tool", "src/a.ts", "b.o"]),
        ("cat <src/a.ts|wc", ["cat", "src/a.ts", "wc"]),
        ("cat ./x/../y.md", ["cat", "y.md"]),
        ("echo 'open quote src/a.ts", ["echo", "open", "quote", "src/a.ts"]),
        ("cat 文档/说明.md", ["cat", "文档/说明.md"]),
        ("", []),
    ],
)
def test_a_command_names_paths(command: str, named: list[str]) -> None:
    assert [str(path.relative_to(PROJECT)) for path in paths_in_command(command, PROJECT)] == named


def test_absolute_paths_and_those_above_are_what_they_are() -> None:
    assert paths_in_command("cat /etc/passwd ../x", PROJECT)[1:] == (
        Path("/etc/passwd"),
        Path("/srv/x"),
    )


def test_a_monstrous_command_is_bounded() -> None:
    command = " ".join(f"f{number}" for number in range(10_000)) + " " + "x" * 10_000 + " a\0b"
    assert len(paths_in_command(command, PROJECT)) == MAX_PATHS
    assert paths_in_command("y" * 5_000 + " a\0b", PROJECT) == ()


def test_patterns_that_nobody_looked_at_wake_nothing_and_break_nothing() -> None:
    skills = [_skill("odd", "["), _skill("bomb", "{a,b}" * 40), _skill("sound", "*.py")]
    waking = PathActivation(PROJECT)
    assert waking.activate(skills, [PROJECT / "x.py"]) == ("sound",)
    assert waking.is_inactive(skills[0])


def test_a_touch_is_compared_once_with_what_many_skills_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared, matches = list[str](), PathMatcher.matches

    def note(patterns: PathMatcher, path: str) -> bool:
        compared.append(path)
        return matches(patterns, path)

    monkeypatch.setattr(PathMatcher, "matches", note)
    skills = [_skill(f"s{number}", "*.py") for number in range(100)]
    waking = PathActivation(PROJECT)
    assert waking.activate(skills, [PROJECT / "a.md", PROJECT / "b.md"]) == ()
    assert compared == ["a.md", "b.md"]
    assert len(waking.activate(skills, [PROJECT / "c.py"])) == 100
