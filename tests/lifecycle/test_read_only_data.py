"""Read-only data folders, symlinked data folders, and unreadable folders."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from apexbridge.lifecycle.skill_discovery import discover_skills
from apexbridge.testing import make_skill, make_zip, skill_md
from tests.cli.conftest import CommandResult
from tests.cli.in_process import call

pytestmark = pytest.mark.unmeasured

REPOSITORY = Path(__file__).parents[2]
RULED_BY_MODES = ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all")
"""Root, but no longer above the modes of files."""
READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'

Commands = Callable[[Sequence[Sequence[str]]], list[CommandResult]]


@pytest.fixture
def data(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with one skill installed, one removed, and an index."""
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    make_skill(tmp_path / "made", "garden", description="Grows tomatoes.")
    make_skill(tmp_path / "made", "violin", description="Tunes violins.")
    make_skill(tmp_path / "project/.claude/skills", "shared", files={"scripts/x.py": "1"})
    return home / ".local/share/apexbridge"


def _fill(tmp_path: Path) -> None:
    for words in (
        ("add", str(tmp_path / "made/garden"), "--yes"),
        ("add", str(tmp_path / "made/violin"), "--yes"),
        ("rm", "violin", "--yes"),
        ("find", "tomatoes"),
    ):
        assert call(*words).code == 0


def _run(
    prefix: Sequence[str], project: Path, commands: Sequence[Sequence[str]]
) -> list[CommandResult]:
    done = subprocess.run(
        [*prefix, sys.executable, "-m", "tests.lifecycle.cli_runner", str(project)],
        cwd=REPOSITORY,
        input=json.dumps(commands),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return [CommandResult(*one) for one in json.loads(done.stdout)]


@contextmanager
def _without_write(root: Path) -> Generator[None]:
    modes = {path: path.stat().st_mode for path in (root, *root.rglob("*"))}
    for path, mode in modes.items():
        path.chmod(mode & ~0o222)
    yield
    for path, mode in modes.items():
        path.chmod(mode)


def _can(*words: str) -> bool:
    try:
        return subprocess.run(words, capture_output=True, timeout=20).returncode == 0
    except OSError:
        return False


@pytest.fixture(params=["modes", "mount"])
def read_only(request: pytest.FixtureRequest, data: Path, tmp_path: Path) -> Generator[Commands]:
    """Runs commands while the data folder cannot be written to: by its modes, or by its disk."""
    data.mkdir(parents=True)
    if request.param == "mount":
        if not _can("unshare", "--mount", "true"):
            pytest.skip("mount: only root can mount a folder read-only")
        alone = ("unshare", "--mount", "--propagation", "private", "sh", "-c", READ_ONLY)
        yield lambda commands: _run((*alone, str(data)), tmp_path / "project", commands)
        return
    prefix = () if os.geteuid() else RULED_BY_MODES
    if prefix and not _can(*prefix, "true"):
        pytest.skip("modes: root cannot be bound by them here")

    def run(commands: Sequence[Sequence[str]]) -> list[CommandResult]:
        with _without_write(data):
            return _run(prefix, tmp_path / "project", commands)

    yield run


def _content(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and not path.name.endswith(("-wal", "-shm"))
    }


@pytest.mark.promise("L15")
def test_what_only_reads_works_where_nothing_can_be_written(
    read_only: Commands, data: Path, tmp_path: Path
) -> None:
    _fill(tmp_path)
    before = _content(data)
    commands = [
        ["ls"],
        ["show", "garden", "--why"],
        ["scan", "garden"],
        ["sources"],
        ["trust"],
        ["audit", "ls"],
        ["audit", "verify"],
        ["config", "data_dir"],
        ["validate", str(tmp_path / "made")],
        ["migrate", str(tmp_path / "made"), "--dry-run"],
        ["export", "garden", "--output", str(tmp_path / "garden.zip")],
        ["find", "grow tomatoes"],
        ["index", "status"],
    ]
    done = read_only(commands)
    assert {words[0]: one.code for words, one in zip(commands, done, strict=True)} == {
        words[0]: 0 for words in commands
    }
    assert "garden" in [skill["name"] for skill in done[0].data["skills"]]
    assert done[1].data["origin"] == "installed"
    assert done[6].data["records"] == 3
    assert (tmp_path / "garden.zip").exists()
    assert done[-2].data["hits"][0]["name"] == "garden"
    assert done[-1].data["missing"] == []
    assert _content(data) == before


@pytest.mark.promise("L15")
def test_what_changes_says_why_it_cannot_and_changes_nothing(
    read_only: Commands, data: Path, tmp_path: Path
) -> None:
    _fill(tmp_path)
    before = _content(data)
    commands = [
        ["add", str(tmp_path / "made/violin"), "--yes"],
        ["rm", "garden", "--yes"],
        ["edit-description", "garden", "New."],
        ["disable", "garden"],
        ["undo", "violin"],
        ["trust", "shared", "--yes"],
        ["index", "rebuild"],
    ]
    *done, reported = read_only([*commands, ["migrate", str(tmp_path / "made"), "--yes"]])
    for words, one in zip(commands, done, strict=True):
        assert (words[0], one.code, one.error["code"]) == (words[0], 1, "storage_failed")
        assert str(data) in one.error["message"]
    assert (reported.code, [skill["fate"] for skill in reported.data["skills"]]) == (
        1,
        ["same", "failed"],
    )
    assert reported.data["skills"][1]["problems"][0]["code"] == "storage_failed"
    assert _content(data) == before


@pytest.mark.promise("L15")
def test_an_empty_data_folder_that_cannot_be_filled_stops_no_reader(
    read_only: Commands, data: Path, tmp_path: Path
) -> None:
    add = ["add", str(tmp_path / "made/garden"), "--yes"]
    listed, found, added = read_only([["ls"], ["find", "commit my changes"], add])
    assert (listed.code, found.code) == (0, 0)
    assert found.data["hits"]
    assert "git-commit" in [skill["name"] for skill in listed.data["skills"]]
    assert (added.code, added.error["code"]) == (1, "storage_failed")
    assert list(data.iterdir()) == []


@pytest.mark.promise("L15")
def test_a_folder_of_skills_may_be_a_link_of_the_users_own(data: Path, tmp_path: Path) -> None:
    real = tmp_path / "other disk"
    real.mkdir()
    data.mkdir(parents=True)
    (data / "skills").symlink_to(real)
    _fill(tmp_path)
    assert (real / "garden/SKILL.md").is_file()
    assert call("edit-description", "garden", "Grows 番茄.").code == 0
    assert call("show", "garden", "--json").data["description"] == "Grows 番茄."
    assert call("undo", "violin").code == 0
    assert (data / "skills").is_symlink()
    assert sorted(path.name for path in real.glob("[!.]*")) == ["garden", "violin"]


@pytest.mark.promise("L15")
@pytest.mark.parametrize("kind", ["nowhere", "itself", "file"])
def test_a_folder_of_skills_that_is_none_stops_no_reader(
    data: Path, tmp_path: Path, kind: str
) -> None:
    data.mkdir(parents=True)
    match kind:
        case "nowhere":
            (data / "skills").symlink_to(tmp_path / "nowhere")
        case "itself":
            (data / "skills").symlink_to("skills")
        case _:
            (data / "skills").write_bytes(b"x")
    assert call("ls", "--json").code == 0
    added = call("add", str(tmp_path / "made/garden"), "--yes", "--json")
    assert (added.code, added.error["code"]) == (1, "storage_failed")
    assert not (tmp_path / "nowhere").exists()
    assert call("find", "commit my changes", "--json").data["hits"]


@pytest.mark.promise("L15")
def test_nothing_is_changed_through_a_link_to_a_skill_outside(data: Path, tmp_path: Path) -> None:
    outside = make_skill(tmp_path / "outside", "far", description="Lies elsewhere.")
    before = (outside / "SKILL.md").read_bytes()
    _fill(tmp_path)
    (data / "skills/far").symlink_to(outside)
    assert call("rm", "far", "--yes", "--json").code == 3
    assert call("edit-description", "far", "New.", "--json").code == 3
    archive = make_zip(tmp_path / "far.zip", {"far/SKILL.md": skill_md("far", "Another.")})
    taken = call("add", str(archive), "--yes", "--json")
    assert (taken.code, taken.error["code"]) == (4, "skill_exists")
    assert (outside / "SKILL.md").read_bytes() == before
    assert (data / "skills/far").is_symlink()


@pytest.mark.promise("L15")
def test_a_link_to_a_skill_outside_is_followed_only_if_that_is_allowed(
    data: Path, tmp_path: Path
) -> None:
    outside = make_skill(tmp_path / "outside", "far", description="Lies elsewhere.")
    _fill(tmp_path)
    (data / "skills/far").symlink_to(outside)
    (data / "skills/again").symlink_to("garden")
    assert call("show", "far", "--json").code == 3
    assert "far" not in [hit["name"] for hit in call("find", "elsewhere", "--json").data["hits"]]
    reported = [problem["code"] for problem in call("ls", "--json").data["problems"]]
    assert reported.count("link_leads_out") == 1
    assert [path.name for path in outside.iterdir()] == ["SKILL.md"]  # no marker of ours
    allowed = {"APEXBRIDGE_SKILLS__ALLOW_EXTERNAL_PATHS": "true"}
    assert call("show", "far", "--json", **allowed).data["origin"] == "installed"


def test_a_folder_that_may_not_be_read_is_told_and_the_others_are_found(tmp_path: Path) -> None:
    closed = tmp_path / "old/closed"
    closed.mkdir(parents=True)
    make_skill(tmp_path / "old", "open")
    make_skill(tmp_path / "old", "partly").joinpath("secret.txt").write_bytes(b"x")
    closed.chmod(0)
    (tmp_path / "old/partly/secret.txt").chmod(0)
    if os.geteuid():
        found = discover_skills([tmp_path / "old"])
        codes = [problem.code for candidate in found for problem in candidate.problems]
        assert codes == ["folder_unreadable"]
    elif not _can(*RULED_BY_MODES, "true"):
        pytest.skip("modes: root cannot be bound by them here")
    prefix = () if os.geteuid() else RULED_BY_MODES
    (done,) = _run(prefix, tmp_path, [["migrate", str(tmp_path / "old"), "--dry-run"]])
    closed.chmod(0o755)
    assert done.code == 6
    reported = {skill["name"]: skill for skill in done.data["skills"]}
    assert {name: skill["fate"] for name, skill in reported.items()} == {
        "closed": "invalid",
        "open": "new",
        "partly": "invalid",
    }
    for name in ("closed", "partly"):
        assert [problem["code"] for problem in reported[name]["problems"]] == ["folder_unreadable"]
