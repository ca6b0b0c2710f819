"""Graceful shutdown: SIGTERM during a stream and during a script."""

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
from tests.server.process import ServerProcess, server_process
from tests.server.raw_http import (
    open_connection,
    parse_response,
    read_all,
    request_head,
    send_request,
)

pytestmark = pytest.mark.anyio

WORDS = [ModelDelta(text=f"word{at} ") for at in range(20)]


@asynccontextmanager
async def _talking(
    home: Path, drain: str, *replies: ScriptedReply
) -> AsyncGenerator[ServerProcess]:
    async with ScriptedServer(replies) as model:
        variables = {
            "APEXBRIDGE_MODEL__BASE_URL": model.base_url,
            "APEXBRIDGE_MODEL__NAME": "tiny",
            "APEXBRIDGE_SERVER__DRAIN_SECONDS": drain,
        }
        async with server_process(home, **variables) as server:
            yield server


def _children(server: ServerProcess) -> list[str]:
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


def _left(server: ServerProcess) -> list[Path]:
    """What lies where runs have their workspaces."""
    return list(server.data.glob("workspaces/*"))


def _stream_request(server: ServerProcess) -> bytes:
    body = json.dumps({"messages": [{"role": "user", "content": "go"}], "stream": True}).encode()
    sent_headers = {
        **server.auth,
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
    }
    return request_head(server.url, "POST", "/v1/chat/completions", sent_headers) + body


@pytest.mark.unmeasured
@pytest.mark.promise("S11")
async def test_a_stream_is_drained_and_new_requests_are_refused(home: Path) -> None:
    slow = SlowStream(deltas=WORDS, bytes_at_once=64, pause_seconds=0.05)
    async with _talking(home, "60", slow) as server, open_connection(server.url) as stream:
        await stream.send(_stream_request(server))
        data = b""
        while b"word1 " not in data:
            data += await stream.receive()
        server.process.send_signal(SIGTERM)
        with anyio.fail_after(30):
            while (ready := await send_request(server.url, "/readyz")).status != 503 or (
                ready.json["status"] != "stopping"
            ):
                await anyio.sleep(0.01)
        refused = await server.chat()
        assert (refused.status, refused.code) == (503, "server_stopping")
        assert int(refused.headers["retry-after"]) > 0
        assert (await send_request(server.url, "/healthz")).status == 200
        data += await read_all(stream)
        text = parse_response(data).body.decode()
        assert "word19" in text
        assert text.rstrip().endswith("data: [DONE]")
        assert '"error"' not in text
        assert await server.ends() == 0
        assert _children(server) == []


@pytest.mark.promise("S11")
async def test_a_stream_beyond_the_drain_period_ends_with_an_error(home: Path) -> None:
    async with (
        _talking(home, "0.3", BrokenStream(deltas=WORDS[:3], then="hang")) as server,
        open_connection(server.url) as stream,
    ):
        await stream.send(_stream_request(server))
        data = b""
        while b"word2 " not in data:
            data += await stream.receive()
        server.process.send_signal(SIGTERM)
        data += await read_all(stream)
        *_, error, done, _ = parse_response(data).body.decode().split("\n\n")
        assert json.loads(error.removeprefix("data: "))["error"]["code"] == "server_stopping"
        assert done == "data: [DONE]"
        assert await server.ends() == 0
        assert _children(server) == []


@pytest.mark.unmeasured
@pytest.mark.promise("S11")
async def test_a_second_signal_ends_it_at_once(home: Path) -> None:
    async with (
        _talking(home, "3600", BrokenStream(deltas=WORDS[:3], then="hang")) as server,
        open_connection(server.url) as stream,
    ):
        await stream.send(_stream_request(server))
        data = b""
        while b"word2 " not in data:
            data += await stream.receive()
        server.process.send_signal(SIGTERM)
        with anyio.fail_after(30):
            while (await send_request(server.url, "/readyz")).json["status"] != "stopping":
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
        sent_headers = {**server.auth, "Content-Type": "application/json"}
        answers = list[int]()

        async def run() -> None:
            answer = await send_request(
                server.url, "/v1/skills/sleeper/run", method="POST", headers=sent_headers, body=body
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
async def test_an_mcp_subscription_does_not_delay_shutdown(home: Path) -> None:
    with anyio.fail_after(45):  # and not as long as requests are waited for
        async with (
            server_process(home, APEXBRIDGE_SERVER__DRAIN_SECONDS="300") as server,
            httpx2.AsyncClient(headers=server.auth, timeout=30) as http,
            Client(streamable_http_client(f"{server.url}/mcp", http_client=http)) as client,
            client.listen(prompts_list_changed=True),
        ):
            assert await server.ends(SIGTERM) == 0
