"""`apexbridge mcp` as a child process: MCP over stdio."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, types
from mcp.client.context import ClientRequestContext

from tests.mcp_server.mcp_fixtures import (
    SLOW,
    add_sample_skills,
    add_skill,
    is_running,
    skill_text,
    stdio_parameters,
)

pytestmark = pytest.mark.anyio

MODES = ["auto", pytest.param("legacy", marks=pytest.mark.unmeasured)]


def start(home: Path, **variables: str) -> subprocess.Popen[str]:
    """The process with plain pipes."""
    wanted = stdio_parameters(home, **variables)
    return subprocess.Popen(
        [wanted.command, *wanted.args],
        cwd=wanted.cwd,
        env=wanted.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )


@pytest.mark.needs("sandbox")
@pytest.mark.parametrize("mode", MODES)
async def test_the_official_client_works_with_the_process(home: Path, mode: str) -> None:
    add_sample_skills(home)
    notified = anyio.Event()

    async def on_message(message: Any) -> None:
        if isinstance(message, types.PromptListChangedNotification):
            notified.set()

    async with Client(
        stdio_parameters(home), mode=mode, message_handler=on_message, cache=None
    ) as client:
        found = await client.call_tool("search_skills", {"query": "greet", "limit": 1})
        assert found.structured_content["hits"][0]["name"] == "greet"
        ran = await client.call_tool("run_skill", {"name": "greet", "arguments": ["you"]})
        assert ran.structured_content["stdout"] == "hello you \n"
        assert (await client.get_prompt("greet", {"who": "Ann"})).messages
        assert (await client.read_resource("skill://greet/SKILL.md")).contents
        with anyio.fail_after(30):
            if mode == "legacy":  # such a client is notified without a subscription
                add_skill(home, "new", skill_text("new"))
                await notified.wait()
            else:
                async with client.listen(prompts_list_changed=True) as changes:
                    add_skill(home, "new", skill_text("new"))
                    await anext(aiter(changes))
        assert "new" in [prompt.name for prompt in (await client.list_prompts()).prompts]


@pytest.mark.parametrize("mode", MODES)
async def test_a_person_is_asked_through_the_client(home: Path, mode: str) -> None:
    yes = types.ElicitResult(action="accept", content={"allow": True})
    no = types.ElicitResult(action="accept", content={"allow": False})
    answers = [yes, no, types.ElicitResult(action="decline")]
    asked = list[str]()

    async def ask(
        context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult:
        asked.append(params.message)
        return answers[len(asked) - 1]

    started = stdio_parameters(home, APEXBRIDGE_PERMISSIONS__ASK="Calculate")
    codes = list[str | None]()
    async with Client(started, mode=mode, elicitation_callback=ask, cache=None) as client:
        for _ in answers:  # a yes is for one call
            result = await client.call_tool("Calculate", {"expression": "1 + 2"})
            codes.append((result.meta or {}).get("code"))
    assert codes == [None, "person_denied", "person_denied"]
    assert len(asked) == 3
    assert "Calculate" in asked[0]


@pytest.mark.unmeasured
def test_nothing_but_the_protocol_is_on_standard_output(home: Path) -> None:
    add_sample_skills(home)
    add_skill(home, "broken", "no frontmatter and \x00")
    lines = [
        "this is no JSON",
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "nothing/here"}),
        json.dumps({"jsonrpc": "2.0", "id": 2, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"}}}),
        json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json.dumps({"jsonrpc": "2.0", "id": 3, "method": "prompts/list"}),
    ]  # fmt: skip
    done = start(home)
    out, _ = done.communicate("\n".join(lines) + "\n", timeout=60)
    replies = {reply.get("id"): reply for reply in map(json.loads, out.splitlines())}
    assert done.returncode == 0
    assert all(reply["jsonrpc"] == "2.0" for reply in replies.values())
    assert "error" in replies[1]
    assert replies[2]["result"]["serverInfo"]["name"] == "apexbridge"


@pytest.mark.unmeasured
def test_invalid_settings_are_reported_on_stderr(home: Path) -> None:
    done = start(home, APEXBRIDGE_SERVER__MCP_TOOLS="Nothing")
    out, err = done.communicate("", timeout=60)
    assert (done.returncode, out) == (2, "")
    assert "config_invalid" in err


@pytest.mark.unmeasured
@pytest.mark.needs("sandbox")
@pytest.mark.parametrize("end", ["leaves", "SIGTERM"])
async def test_a_script_dies_with_the_process_or_its_client(home: Path, end: str) -> None:
    name = f"slow-{end.lower()}"
    add_skill(home, name, skill_text(name), {"scripts/main.py": SLOW})
    begun = anyio.Event()

    async def on_message(progress: float, total: float | None, message: str | None) -> None:
        if message == "begun":
            begun.set()

    async def ask(client: Client) -> None:
        await client.call_tool("run_skill", {"name": name}, progress_callback=on_message)

    script = f"{name}/scripts/main.py"
    with anyio.fail_after(60):
        async with (
            Client(stdio_parameters(home), cache=None) as client,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(ask, client)
            await begun.wait()
            assert is_running(script)
            if end != "leaves":
                tasks.cancel_scope.shield = True
                for server in _servers(home):
                    os.kill(server, getattr(signal, end))
                while is_running(script):
                    await anyio.sleep(0.02)
            tasks.cancel_scope.cancel()
        while is_running(script):
            await anyio.sleep(0.02)


def _servers(home: Path) -> list[int]:
    """The processes that serve this home."""
    found = list[int]()
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            is_ours = place.read_bytes().endswith(b"-m\0apexbridge\0mcp\0")
            if is_ours and f"HOME={home}\0".encode() in place.with_name("environ").read_bytes():
                found.append(int(place.parent.name))
        except OSError:
            continue
    assert found
    return found
