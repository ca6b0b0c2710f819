"""`deps`, `doctor SKILL` and the packages in `add`, with an index on the loopback interface."""

import shutil
from collections.abc import Generator
from functools import partial
from pathlib import Path

import pytest

from apexbridge.environments.system_commands import PROVIDERS
from apexbridge.testing import make_skill
from tests.cli.conftest import Run
from tests.cli.in_process import call
from tests.cli.terminal import environment, open_terminal
from tests.environments.package_server import PackageServer, package_server


@pytest.fixture
def packages() -> Generator[PackageServer]:
    with package_server() as running:
        running.add_wheel("greet", "1.0", {"greet.py": "WORD = 'hello'\n"})
        yield running


@pytest.fixture
def inside(
    home: Path, project: Path, packages: PackageServer, monkeypatch: pytest.MonkeyPatch
) -> Run:
    project.mkdir()
    monkeypatch.chdir(project)
    return partial(call, APEXBRIDGE_DEPENDENCIES__PYTHON_INDEX=packages.index)


def _skill(
    place: Path, declared: str = "", source: str = "import greet\nprint(greet.WORD)\n"
) -> str:
    files = {"scripts/main.py": source, **({"requirements.txt": declared} if declared else {})}
    return str(make_skill(place, "tool", files=files))


@pytest.mark.needs("bubblewrap")
def test_packages_are_shown_locked_built_used_and_removed(inside: Run, tmp_path: Path) -> None:
    added = inside("add", _skill(tmp_path), "--yes")
    assert "guessed from imports: greet" in added.out
    assert "apexbridge deps build tool" in added.err  # a guess is not agreed to by --yes
    shown = inside("deps", "show", "tool", "--json").data
    assert (shown["missing"], shown["states"]["python"]) == (["greet"], "missing")
    assert inside("run", "tool").code == 1
    assert inside("deps", "build", "tool").code == 5
    (lock,) = inside("deps", "lock", "tool", "--json").data
    assert lock["packages"] == ["greet==1.0"]
    assert "--hash=sha256:" in lock["lock"]
    built = inside("deps", "build", "tool", "--yes")
    assert "1 packages built" in built.out
    assert (
        inside("deps", "build", "tool", "--yes").out == "tool needs no packages that are missing\n"
    )
    assert inside("run", "--json", "tool").data["stdout"] == "hello\n"
    assert "greet==1.0" in inside("deps", "show").out
    assert "built" in inside("deps", "show", "tool").out
    assert inside("deps", "gc", "--json").data["removed"] == []
    (environment,) = inside("deps", "show", "--json").data
    (module,) = Path(environment["path"]).glob("lib/*/site-packages/greet.py")
    module.chmod(0o644)
    module.write_text("WORD = 'changed'", "utf-8")
    assert "was changed after it was built" in inside("deps", "show", "tool").err
    assert inside("deps", "gc", "--dry-run", "--json").data["removed"] == [environment["key"]]
    assert inside("deps", "gc", "--json").data["removed"] == [environment["key"]]
    assert inside("deps", "show").out == "No environments are built\n"


@pytest.mark.needs("bubblewrap")
def test_add_with_yes_builds_what_is_declared(inside: Run, tmp_path: Path) -> None:
    inside("add", _skill(tmp_path, "greet>=1\n"), "--yes")
    assert inside("deps", "show", "tool", "--json").data["states"]["python"] == "built"


@pytest.mark.needs("bubblewrap")
def test_a_skill_is_added_also_where_its_packages_cannot_be_built(
    inside: Run, tmp_path: Path
) -> None:
    added = inside("add", _skill(tmp_path, "no-such-thing\n"), "--yes")
    assert added.code == 0
    assert "no-such-thing" in added.err


@pytest.mark.needs("bubblewrap")
def test_an_update_builds_what_the_new_version_declares_or_names_the_command(
    inside: Run, packages: PackageServer, tmp_path: Path
) -> None:
    packages.add_wheel("more", "1.0", {"more.py": ""})
    inside("add", _skill(tmp_path / "1", "greet\n"), "--yes")
    inside("update", _skill(tmp_path / "2", "greet\nmore\n"), "--yes")
    assert inside("deps", "show", "tool", "--json").data["states"]["python"] == "built"
    updated = inside("update", _skill(tmp_path / "3", "", "import more\n"), "--yes")
    assert "apexbridge deps build tool" in updated.err  # a guess is not agreed to by --yes


@pytest.mark.needs("bubblewrap")
@pytest.mark.usefixtures("inside")
def test_a_failed_build_at_an_installation_names_the_command(tmp_path: Path) -> None:
    closed = "http://127.0.0.1:9/simple"  # discard: nothing listens there
    added = call(
        "add", _skill(tmp_path, "greet\n"), "--yes", APEXBRIDGE_DEPENDENCIES__PYTHON_INDEX=closed
    )
    assert "cannot be reached" in added.err
    assert "apexbridge deps build tool" in added.err


def test_doctor_says_that_a_skill_starts_no_command(inside: Run, tmp_path: Path) -> None:
    inside("add", _skill(tmp_path, source="print(1)\n"), "--yes")
    assert "starts no system command" in inside("doctor", "tool").out


def test_doctor_names_the_commands_and_packages_of_a_skill(inside: Run, tmp_path: Path) -> None:
    source = "import greet, subprocess\nsubprocess.run(['no', 'x'])\nsubprocess.run(['sox', 'x'])\n"
    inside("add", _skill(tmp_path, source=source), "--yes")
    found = inside("doctor", "tool", "--json")
    assert found.code == 1
    assert [(one["name"], one["package"]) for one in found.data["commands"]] == [("sox", "sox")]
    assert found.data["packages"]["missing"] == ["greet"]
    assert "sox" in inside("doctor", "tool").out


def test_what_is_not_followed_is_shown_with_the_reason(inside: Run, tmp_path: Path) -> None:
    wanted = "--index-url https://example.org/simple\ngit+https://example.org/x.git\n"
    added = inside("add", _skill(tmp_path, wanted, "print(1)"))
    assert "the package index is the configured one" in added.out
    assert "an address instead of a name" in added.out


@pytest.mark.anyio
async def test_doctor_cuts_no_remedy_on_a_terminal(home: Path, project: Path) -> None:
    """The command that installs what is missing must be readable in full."""
    project.mkdir(exist_ok=True)
    names = [name for name in ("sox", "codeql", "wkhtmltopdf") if shutil.which(name) is None]
    script = "".join(f"{name} x\n" for name in names)
    make_skill(home / ".claude/skills", "tool", files={"scripts/main.sh": script})
    async with open_terminal("doctor", "tool", cwd=project, variables=environment(home)) as screen:
        await screen.ends()
        for name in names:
            assert f"apt install {PROVIDERS[name]}" in screen.screen
