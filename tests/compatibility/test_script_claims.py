"""Claims of the founding documents about scripts, the same over every way in.

Python (`Runtime.execute_skill`), HTTP, the terminal, its `--json`, MCP and chat.
"""

import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from apexbridge.errors import SkillNotFoundError
from apexbridge.runtime import Runtime
from apexbridge.settings import Config, load
from apexbridge.testing import make_skill
from tests.agent.agent_fixture import calls, open_agent, says
from tests.mcp_server.mcp_fixtures import mcp_endpoint
from tests.server.live_server import live_server
from tests.server.skills_server import ROUTES

pytestmark = [pytest.mark.anyio, pytest.mark.needs("sandbox")]
SCRIPTS: Mapping[str, str] = {
    "missing": "#!/usr/bin/env no-such-interpreter-here\necho hi\n",
    "slow": "#!/bin/sh\necho begun\nsleep 60\n",
    "loud": "#!/bin/sh\nwhile :; do echo 0123456789012345678901234567890123456789; done\n",
}
_LIMITS: dict[str, Any] = {
    "sandbox": {"timeout_seconds": 1.5, "output_mib": 1},
    "index": {"embedder": "hash"},
}


@dataclass(frozen=True, kw_only=True)
class Ended:
    """What a way in says of a run; None where it has no such field."""

    stdout: str
    error: str | None
    exit_code: int | None
    truncated: bool | None


def _make_skills(home: Path) -> None:
    for name, script in SCRIPTS.items():
        make_skill(home / ".claude/skills", name, files={"scripts/run": script})


def _open(home: Path) -> Config:
    (home / "project").mkdir(exist_ok=True)
    return load(project=home / "project", environment={"HOME": str(home)}, flags=_LIMITS)


async def _python(home: Path, name: str) -> Ended:
    async with Runtime.open(_open(home)) as runtime:
        result = await runtime.execute_skill(name)
    return Ended(
        stdout=result.stdout.decode(),
        error=result.error,
        exit_code=result.exit_code,
        truncated=result.truncated,
    )


async def _http(home: Path, name: str) -> Ended:
    async with (
        live_server(_open(home), ROUTES) as at,
        httpx.AsyncClient(base_url=at.url, timeout=60) as http,
    ):
        reply = await http.post(f"/v1/skills/{name}/run", json={}, headers=at.headers)
    assert reply.status_code == 200, reply.text
    return _from_json(reply.json())


def _from_json(data: Mapping[str, Any]) -> Ended:
    return Ended(**{key: data[key] for key in ("stdout", "error", "exit_code", "truncated")})


async def _mcp(home: Path, name: str) -> Ended:
    async with mcp_endpoint(home, **_LIMITS) as at, at.client() as client:
        reply = await client.call_tool("run_skill", {"name": name})
    assert reply.structured_content is not None
    return _from_json(reply.structured_content)


async def _chat(home: Path, name: str) -> Ended:
    async with open_agent(home, sandbox__timeout_seconds=1.5, sandbox__output_mib=1) as at:
        await at.ask("Go", calls(("SkillScript", {"skill": name})), says("."))
        text = (await at.results())[0]
    error = text.partition("It did not succeed (")[2].partition("): ")[2].partition("\n")[0]
    # A tool result is a text: it has no fields besides.
    return Ended(stdout=text, error=error, exit_code=None, truncated=None)


WAYS: Mapping[str, Callable[[Path, str], Awaitable[Ended]]] = {
    "python": _python, "http": _http, "mcp": _mcp, "chat": _chat,
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
async def test_a_script_that_cannot_start_is_enoent_with_exit_code_null(
    home: Path, way: str
) -> None:
    _make_skills(home)
    ended = await WAYS[way](home, "missing")
    assert (ended.error, ended.exit_code) == ("ENOENT", None)


@pytest.mark.parametrize("way", WAYS)
async def test_output_over_the_limit_is_marked_truncated(home: Path, way: str) -> None:
    _make_skills(home)
    ended = await WAYS[way](home, "loud")
    assert "[TRUNCATED]" in ended.stdout
    assert ended.stdout.startswith("0123456789")  # what came before is kept
    assert ended.truncated in {True, None}
    assert ended.error == "output_limit"


@pytest.mark.parametrize("way", WAYS)
async def test_a_script_over_time_ends_with_error_timeout(home: Path, way: str) -> None:
    _make_skills(home)
    ended = await WAYS[way](home, "slow")
    assert ended.error == "timeout"
    assert "begun" in ended.stdout
    assert ended.exit_code in {124, None}


_FLAGS = ("--set", "sandbox.output_mib=1", "--set", "sandbox.timeout_seconds=1.5")


@pytest.mark.parametrize(
    ("name", "code", "error", "exit_code"),
    [("missing", 1, "ENOENT", None), ("loud", 1, "output_limit", 137), ("slow", 7, "timeout", 124)],
)
def test_the_terminal_and_its_json_say_the_same(
    home: Path, name: str, code: int, error: str, exit_code: int | None
) -> None:
    _make_skills(home)
    plain, as_json = _terminal(home, name), _terminal(home, "--json", name)
    assert (plain.returncode, as_json.returncode) == (code, code)
    assert error in plain.stderr
    data = json.loads(as_json.stdout)["data"]
    assert (data["error"], data["exit_code"]) == (error, exit_code)
    for stdout in (plain.stdout, data["stdout"]):
        assert ("[TRUNCATED]" in stdout) is (name == "loud")


def _terminal(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "apexbridge", *_FLAGS, "run", *words],
        cwd=home,
        env={"PATH": "/usr/bin:/bin", "HOME": str(home)},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
    )


@pytest.mark.needs("node")
async def test_execute_skill_by_name_and_arguments_runs_index_js(home: Path) -> None:
    source = "console.log(JSON.stringify(process.argv.slice(2)))"
    make_skill(home / ".claude/skills", "greeter", files={"index.js": source, "lib.js": "0"})
    async with Runtime.open(_open(home)) as runtime:
        result = await runtime.execute_skill("greeter", ["Ada", "b c"])
        assert (result.exit_code, result.stdout) == (0, b'["Ada","b c"]\n')
        with pytest.raises(SkillNotFoundError):
            await runtime.execute_skill("greeting")


async def test_the_path_of_a_script_is_fixed_and_not_inherited(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deliberate deviation: what is on somebody's PATH would change what a script runs."""
    monkeypatch.setenv("PATH", f"{home}/evil:/usr/bin:/bin")
    monkeypatch.setenv("NODE_OPTIONS", "--require=evil")
    make_skill(
        home / ".claude/skills",
        "env",
        files={
            "scripts/run.py": "import os\nprint(os.environ['PATH'], 'NODE_OPTIONS' in os.environ)"
        },
    )
    async with Runtime.open(_open(home)) as runtime:
        result = await runtime.execute_skill("env")
    assert result.stdout == b"/usr/local/bin:/usr/bin:/bin False\n"
