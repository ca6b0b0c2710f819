"""SIGTERM during a stream and during a script: both end cleanly, and nothing is left."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from signal import SIGINT, SIGTERM

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from apexbridge.models.base import ModelDelta
from apexbridge.testing import BrokenStream, ScriptedServer, make_skill
from apexbridge.testing.model_server import ScriptedReply, SlowStream
from tests.journeys.chat_client import processes_with
from tests.server.process import Started, started
from tests.server.raw_http import ask, connected, head, parse, rest_of

pytestmark = pytest.mark.anyio

WORDS = [ModelDelta(text=f"word{at} ") for at in range(20)]


@asynccontextmanager
async def _talking(home: Path, drain: str, *replies: ScriptedReply) -> AsyncGenerator[Started]:
    async with ScriptedServer(replies) as model:
        variables = {
            "APEXBRIDGE_MODEL__BASE_URL": model.base_url,
            "APEXBRIDGE_MODEL__NAME": "tiny",
            "APEXBRIDGE_SERVER__DRAIN_SECONDS": drain,
        }
        async with started(home, **variables) as server:
            yield server


def _children(server: Started) -> list[str]:
    """The processes that the server, which leads a session of its own, left behind."""
    left = list[str]()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == server.process.pid and fields[0] != "Z":
            left.append(path.parent.name)
    return left


def _left(server: Started) -> list[Path]:
    """What lies where runs have their workspaces."""
    return list(server.data.glob("workspaces/*"))


def _stream_request(server: Started) -> bytes:
    body = json.dumps({"messages": [{"role": "user", "content": "go"}], "stream": True}).encode()
    told = {**server.auth, "Content-Type": "application/json", "Content-Length": str(len(body))}
    return head(server.url, "POST", "/v1/chat/completions", told) + body


@pytest.mark.unmeasured
@pytest.mark.promise("S11")
async def test_a_stream_goes_on_to_its_end_and_nobody_else_is_let_in(home: Path) -> None:
    slow = SlowStream(deltas=WORDS, bytes_at_once=64, pause_seconds=0.05)
    async with _talking(home, "60", slow) as server, connected(server.url) as stream:
        await stream.send(_stream_request(server))
        data = b""
        while b"word1 " not in data:
            data += await stream.receive()
        server.process.send_signal(SIGTERM)
        with anyio.fail_after(30):
            while (ready := await ask(server.url, "/readyz")).status != 503 or (
                ready.json["status"] != "stopping"
            ):
                await anyio.sleep(0.01)
        refused = await server.chat()
        assert (refused.status, refused.code) == (503, "server_stopping")
        assert int(refused.headers["retry-after"]) > 0
        assert (await ask(server.url, "/healthz")).status == 200
        data += await rest_of(stream)
        text = parse(data).body.decode()
        assert "word19" in text
        assert text.rstrip().endswith("data: [DONE]")
        assert '"error"' not in text
        assert await server.ends() == 0
        assert _children(server) == []


@pytest.mark.promise("S11")
async def test_a_stream_that_takes_too_long_is_told_why_it_ends(home: Path) -> None:
    async with (
        _talking(home, "0.3", BrokenStream(deltas=WORDS[:3], then="hang")) as server,
        connected(server.url) as stream,
    ):
        await stream.send(_stream_request(server))
        data = b""
        while b"word2 " not in data:
            data += await stream.receive()
        server.process.send_signal(SIGTERM)
        data += await rest_of(stream)
        *_, error, done, _ = parse(data).body.decode().split("\n\n")
        assert json.loads(error.removeprefix("data: "))["error"]["code"] == "server_stopping"
        assert done == "data: [DONE]"
        assert await server.ends() == 0
        assert _children(server) == []


@pytest.mark.unmeasured
@pytest.mark.promise("S11")
async def test_a_second_signal_ends_it_at_once(home: Path) -> None:
    async with (
        _talking(home, "3600", BrokenStream(deltas=WORDS[:3], then="hang")) as server,
        connected(server.url) as stream,
    ):
        await stream.send(_stream_request(server))
        data = b""
        while b"word2 " not in data:
            data += await stream.receive()
        server.process.send_signal(SIGTERM)
        with anyio.fail_after(30):
            while (await ask(server.url, "/readyz")).json["status"] != "stopping":
                await anyio.sleep(0.01)
        assert await server.ends(SIGINT) == 130
        assert _children(server) == []


@pytest.mark.unmeasured
@pytest.mark.promise("S11", "X14")
@pytest.mark.needs("sandbox")
async def test_a_script_dies_with_its_server(home: Path) -> None:
    mark = "98123.5"
    folder = home / ".claude/skills"
    make_skill(folder, "sleeper", files={"scripts/run.sh": f"#!/bin/bash\nsleep {mark}\n"})
    async with _talking(home, "0.3") as server:
        body = b'{"script": "run.sh"}'
        told = {**server.auth, "Content-Type": "application/json"}
        answers = list[int]()

        async def run() -> None:
            answer = await ask(
                server.url, "/v1/skills/sleeper/run", method="POST", headers=told, body=body
            )
            answers.append(answer.status)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            with anyio.fail_after(60):
                while not processes_with(mark):
                    await anyio.sleep(0.02)
            server.process.send_signal(SIGTERM)
        assert answers == [503]
        assert await server.ends() == 0
        assert processes_with(mark) == []
        assert _children(server) == []
        assert _left(server) == []


@pytest.mark.unmeasured
async def test_who_only_listens_over_mcp_holds_nobody_up(home: Path) -> None:
    with anyio.fail_after(45):  # and not as long as requests are waited for
        async with (
            started(home, APEXBRIDGE_SERVER__DRAIN_SECONDS="300") as server,
            httpx2.AsyncClient(headers=server.auth, timeout=30) as http,
            Client(streamable_http_client(f"{server.url}/mcp", http_client=http)) as client,
            client.listen(prompts_list_changed=True),
        ):
            assert await server.ends(SIGTERM) == 0
