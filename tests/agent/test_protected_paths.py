"""Protected paths: keys of the data folder and of the user stay out of reach of a model.

The project is the home folder, where the data folder lies by default.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from apexbridge.redaction import HIDDEN_CREDENTIAL
from apexbridge.runtime import Runtime
from apexbridge.runtime.protected_paths import protected_within
from apexbridge.settings import load
from apexbridge.testing import make_skill
from tests.agent.agent_fixture import AgentFixture, calls, invokes, open_agent, says

pytestmark = pytest.mark.anyio

PRIVATE = "the-private-content"
TOKEN = "ghp_" + "a1B2" * 9
ALLOWED = {"permissions": {"allow": ["Bash", "Read", "Write", "Edit"]}}


@asynccontextmanager
async def _agent_at_home(home: Path, **flags: Any) -> AsyncGenerator[AgentFixture]:
    """Open an agent whose project is the home folder, with everything allowed."""
    for name in (".ssh/id_rsa", ".aws/credentials", ".config/apexbridge/config.toml"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(f"# {PRIVATE}\n", encoding="utf-8")
    data = home / ".local/share/apexbridge"
    data.mkdir(parents=True, exist_ok=True)
    for name in ("first-key", "notes.json", "some.db-wal", "own.key"):
        (data / name).write_text(f"{PRIVATE}\n", encoding="utf-8")
    (home / "plain.txt").write_text("nothing to hide\n", encoding="utf-8")
    environment = {"HOME": str(home), "APEXBRIDGE_INDEX__EMBEDDER": "hash"}
    loaded = load(project=home, environment=environment, flags={**ALLOWED, **flags})
    async with Runtime.open(loaded) as runtime:
        fixture = AgentFixture(runtime=runtime, project=home)
        fixture.script_replies()
        yield fixture


PATHS = (
    ".ssh/id_rsa",
    ".ssh/../.ssh/id_rsa",
    "link/id_rsa",
    ".aws/credentials",
    ".config/apexbridge/config.toml",
    ".local/share/apexbridge/first-key",
    ".local/share/apexbridge/notes.json",
    ".local/share/apexbridge/some.db-wal",
    ".local/share/apexbridge/own.key",
)


@pytest.mark.parametrize("path", PATHS)
async def test_files_with_secrets_are_not_read(home: Path, path: str) -> None:
    (home / "link").symlink_to(home / ".ssh")
    async with _agent_at_home(home) as at:
        await at.ask("Go", calls(("Read", {"file_path": path})), says("."))
        (result,) = await at.results()
    assert PRIVATE not in result
    assert "rule_denied" in result


@pytest.mark.parametrize("path", PATHS)
async def test_files_with_secrets_are_not_written(home: Path, path: str) -> None:
    (home / "link").symlink_to(home / ".ssh")
    async with _agent_at_home(home) as at:
        await at.ask("Go", calls(("Write", {"file_path": path, "content": "mine"})), says("."))
        (result,) = await at.results()
        assert PRIVATE in (home / path).read_text(encoding="utf-8")
    assert "rule_denied" in result


async def test_a_search_passes_over_files_with_secrets(home: Path) -> None:
    async with _agent_at_home(home) as at:
        wanted = {"pattern": f"{PRIVATE}|nothing", "path": "."}
        await at.ask("Go", calls(("Grep", wanted)), says("."))
        (result,) = await at.results()
    assert PRIVATE not in result
    assert "nothing to hide" in result


@pytest.mark.needs("sandbox")
async def test_a_command_does_not_run_on_a_folder_with_secrets(home: Path) -> None:
    async with _agent_at_home(home) as at:
        command = "cat .ssh/id_rsa .local/share/apexbridge/first-key; echo ran"
        await at.ask("Go", calls(("Bash", {"command": command})), says("."))
        (result,) = await at.results()
    assert PRIVATE not in result
    assert "ran" not in result
    assert "[path_protected]" in result


@pytest.mark.needs("writable project")
async def test_a_command_runs_where_the_data_folder_is_elsewhere_and_no_secret_is(
    home: Path, tmp_path: Path
) -> None:
    data = str(tmp_path / "data")
    project = tmp_path / "project"
    project.mkdir()
    flags = {**ALLOWED, "data_dir": data}
    loaded = load(project=project, environment={"HOME": str(home)}, flags=flags)
    async with Runtime.open(loaded) as runtime:
        at = AgentFixture(runtime=runtime, project=project)
        await at.ask("Go", calls(("Bash", {"command": "echo ran"})), says("."))
        (result,) = await at.results()
    assert "ran" in result


@pytest.mark.needs("sandbox")
async def test_an_inline_command_of_a_skill_does_not_see_secrets(home: Path) -> None:
    body = "Look: !`cat .ssh/id_rsa; echo ran`\n"
    make_skill(home / ".claude/skills", "peek", body=body)
    rules = {"permissions": {"allow": ["Skill", "Bash"]}}
    async with _agent_at_home(home, **rules) as at:
        await at.ask("Go", invokes("peek"), says("."))
        everything = str((await at.session()).messages)
    assert PRIVATE not in everything
    assert "\nran" not in everything


@pytest.mark.needs("sandbox")
async def test_a_hook_of_settings_does_not_see_secrets(home: Path) -> None:
    hook = {"type": "command", "command": "cat .ssh/id_rsa >&2; exit 2"}
    declared = {"hooks": {"PreToolUse": [{"matcher": "", "hooks": [hook]}]}}
    async with _agent_at_home(home, **declared) as at:
        await at.ask("Go", calls(("Read", {"file_path": "plain.txt"})), says("."))
        (result,) = await at.results()
    assert PRIVATE not in result
    assert "nothing to hide" not in result  # the guard could not run: fail closed


async def test_what_is_not_protected_is_read(home: Path) -> None:
    async with _agent_at_home(home) as at:
        await at.ask("Go", calls(("Read", {"file_path": "plain.txt"})), says("."))
        (result,) = await at.results()
    assert "nothing to hide" in result


async def test_a_project_without_secrets_has_no_protected_paths(home: Path) -> None:
    project = home / "project"
    project.mkdir()
    loaded = load(project=project, environment={"HOME": str(home)})
    assert protected_within(loaded) == ()


async def test_credentials_in_results_are_hidden_from_the_model(home: Path) -> None:
    async with open_agent(home, permissions__allow=["Write"]) as at:
        (at.project / "a.env").write_text(f"TOKEN={TOKEN}\nPORT=80\n", encoding="utf-8")
        read, write = {"file_path": "a.env"}, {"file_path": "a.env", "content": ""}
        write["content"] = f"TOKEN={HIDDEN_CREDENTIAL}\nPORT=81\n"
        await at.ask("Go", calls(("Read", read)), calls(("Write", write)), says("."))
        seen, refused = await at.results()
        assert TOKEN not in str(at.model.requests)
        assert TOKEN in (at.project / "a.env").read_text(encoding="utf-8")
    assert f"TOKEN={HIDDEN_CREDENTIAL}" in seen
    assert "PORT=80" in seen
    assert "leave those lines as they are" in refused


async def test_credentials_are_shown_where_the_setting_says_so(home: Path) -> None:
    async with open_agent(home, agent__redact_credentials=False) as at:
        (at.project / "a.env").write_text(f"TOKEN={TOKEN}\n", encoding="utf-8")
        await at.ask("Go", calls(("Read", {"file_path": "a.env"})), says("."))
        (seen,) = await at.results()
    assert TOKEN in seen
