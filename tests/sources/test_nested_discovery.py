"""Nested discovery: skill folders of a project, found from touched files; not gitignored ones."""

import shutil
import subprocess
from pathlib import Path

import pytest

from apexbridge.sources import directory_scanner
from apexbridge.sources.directory_scanner import NestedDiscovery, is_gitignored

PLACES = (".apexbridge/skills", ".claude/skills")


def _roots(project: Path, *touched: str) -> list[str]:
    found = NestedDiscovery(project, PLACES).discover(project / path for path in touched)
    return [root.path.relative_to(project).as_posix() for root in found]


def _make(project: Path, *folders: str) -> Path:
    for folder in folders:
        (project / folder).mkdir(parents=True)
    return project


def test_the_deepest_comes_first_and_the_project_itself_is_left_out(tmp_path: Path) -> None:
    _make(tmp_path, ".claude/skills", "a/.claude/skills", "a/b/.apexbridge/skills", "a/b/c")
    assert _roots(tmp_path, "a/b/c/file.py") == ["a/b/.apexbridge/skills", "a/.claude/skills"]


def test_each_root_says_whose_files_it_is_about(tmp_path: Path) -> None:
    _make(tmp_path, "a/.claude/skills")
    (root,) = NestedDiscovery(tmp_path, PLACES).discover([tmp_path / "a/x.py"])
    assert root.home == tmp_path / "a"


def test_a_root_is_reported_once(tmp_path: Path) -> None:
    _make(tmp_path, "a/.claude/skills")
    nesting = NestedDiscovery(tmp_path, PLACES)
    assert len(nesting.discover([tmp_path / "a/x.py", tmp_path / "a/y.py"])) == 1
    assert nesting.discover([tmp_path / "a/z.py"]) == []


@pytest.mark.parametrize(
    "folder", ["node_modules/pkg", "a/node_modules/pkg", ".venv/lib", "__pycache__"]
)
def test_packages_and_hidden_folders_bring_no_skills(tmp_path: Path, folder: str) -> None:
    _make(tmp_path, f"{folder}/.claude/skills")
    assert _roots(tmp_path, f"{folder}/index.js") == []


def test_files_outside_the_project_concern_nothing(tmp_path: Path) -> None:
    _make(tmp_path, "project", "beside/.claude/skills")
    assert NestedDiscovery(tmp_path / "project", PLACES).discover([tmp_path / "beside/x"]) == []


def test_a_link_out_of_the_project_is_not_followed(tmp_path: Path) -> None:
    _make(tmp_path, "project", "beside/.claude/skills")
    (tmp_path / "project/link").symlink_to(tmp_path / "beside")
    assert (
        NestedDiscovery(tmp_path / "project", PLACES).discover([tmp_path / "project/link/x"]) == []
    )


def test_what_git_ignores_brings_no_skills(tmp_path: Path) -> None:
    _make(tmp_path, ".git", "vendor/x/.claude/skills", "kept/.claude/skills")
    (tmp_path / ".gitignore").write_text("vendor/\n[\n", encoding="utf-8")
    assert _roots(tmp_path, "vendor/x/a.js", "kept/a.js") == ["kept/.claude/skills"]


def test_the_number_of_folders_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _make(tmp_path, *(f"{name}/.claude/skills" for name in "abcde"))
    monkeypatch.setattr(directory_scanner, "MAX_FOLDERS", 3)
    assert len(_roots(tmp_path, *(f"{name}/x" for name in "abcde"))) == 3


RULES = {
    "build/\n": {"build": True, "build/x": True, "src/build": True, "src": False},
    "/build/\n": {"build": True, "src/build": False},
    "src/*\n!src/kept/\n": {"src/other": True, "src/kept": False, "src/kept/x": False},
    "src/\n!src/kept/\n": {"src/kept": True},  # git does not look into an ignored folder
    "*.tmp\n# build\n": {"x.tmp": True, "build": False},
    "**/gen/**\n": {"a/gen/b": True},
}
CASES = [(rules, path, said) for rules, paths in RULES.items() for path, said in paths.items()]


@pytest.mark.parametrize(("rules", "path", "ignored"), CASES)
def test_rules_mean_what_git_means(tmp_path: Path, rules: str, path: str, ignored: bool) -> None:
    (tmp_path / ".gitignore").write_text(rules, encoding="utf-8")
    assert is_gitignored(tmp_path / path, tmp_path) is ignored


def test_deeper_rules_win_and_excludes_count(tmp_path: Path) -> None:
    _make(tmp_path, ".git/info", "a/b")
    (tmp_path / ".git/info/exclude").write_text("secret/\n", encoding="utf-8")
    (tmp_path / ".gitignore").write_text("b/\n", encoding="utf-8")
    (tmp_path / "a/.gitignore").write_text("!b/\n", encoding="utf-8")
    assert not is_gitignored(tmp_path / "a/b", tmp_path)
    assert is_gitignored(tmp_path / "b", tmp_path)
    assert is_gitignored(tmp_path / "a/secret", tmp_path)


@pytest.mark.needs("git")
def test_git_itself_agrees(tmp_path: Path) -> None:
    program = shutil.which("git") or ""

    def git(*words: str) -> int:
        done = subprocess.run([program, *words], cwd=tmp_path, capture_output=True, check=False)
        return done.returncode

    assert git("init") == 0
    paths = sorted({path for _, path, _ in CASES})
    _make(tmp_path, *(path for path in paths if not (tmp_path / path).exists()))
    for rules in RULES:
        (tmp_path / ".gitignore").write_text(rules, encoding="utf-8")
        for path in paths:
            theirs = git("check-ignore", "-q", path) == 0
            assert is_gitignored(tmp_path / path, tmp_path) is theirs, (rules, path)
