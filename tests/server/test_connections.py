"""Connection limit, write stalls and coalesced writes (Slowloris protection)."""

import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import pytest
import uvicorn
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from apexbridge.server.connections import CoalescingTransport, GuardedHttpProtocol, close_stalled
from tests.server.raw_http import (
    open_connection,
    parse_response,
    read_all,
    request_head,
    send_request,
)

pytestmark = pytest.mark.anyio


class Two(GuardedHttpProtocol):
    """Two connections are all it can do."""

    max_connections = 2


@asynccontextmanager
async def _serving(app: ASGIApp) -> AsyncGenerator[tuple[str, uvicorn.Server]]:
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, http=Two, log_config=None, lifespan="off")
    server = uvicorn.Server(config)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server._serve, [listener])  # pyright: ignore[reportPrivateUsage]  # no signals
        with anyio.fail_after(10):
            while not server.started:
                await anyio.sleep(0.01)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", server
        server.should_exit = True


@pytest.mark.promise("S09")
async def test_beyond_the_connection_limit_the_answer_is_503() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await Response(b"hello")(scope, receive, send)

    async with _serving(app) as (url, server):
        async with open_connection(url), open_connection(url):
            with anyio.fail_after(10):
                while len(server.server_state.connections) < 2:
                    await anyio.sleep(0.01)
            async with open_connection(url) as third:
                answer = parse_response(await read_all(third))
            assert (answer.status, answer.code) == (503, "server_busy")
            assert answer.headers["retry-after"] == "1"
        with anyio.fail_after(10):
            while server.server_state.connections:
                await anyio.sleep(0.01)
        assert (await send_request(url)).body == b"hello"


async def test_a_client_that_takes_nothing_is_left_after_a_while() -> None:
    ended = anyio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        async def flood() -> AsyncGenerator[bytes]:
            while True:
                await anyio.lowlevel.checkpoint()
                yield b"x" * 65_536

        try:
            await StreamingResponse(flood())(scope, receive, send)
        finally:
            ended.set()

    async with _serving(app) as (url, server), open_connection(url) as stream:
        await stream.send(request_head(url, "GET", "/", {}))
        (connection,) = server.server_state.connections
        with anyio.fail_after(20):
            while not connection.flow.write_paused:  # pyright: ignore[reportAttributeAccessIssue,reportUnknownMemberType]
                await anyio.sleep(0.01)
        assert close_stalled(server, header_seconds=0, stall_seconds=60) == 0
        with anyio.fail_after(20):
            while not close_stalled(server, header_seconds=60, stall_seconds=0):
                await anyio.sleep(0.01)
            await ended.wait()


class _Wire:
    """Takes what is sent, and calls nobody before it is told to."""

    def __init__(self) -> None:
        self.sent = list[bytes]()
        self.later = list[Callable[[], None]]()
        self.is_closed = False

    def write(self, data: bytes) -> None:
        self.sent.append(data)

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def get_extra_info(self, name: str) -> str:
        return name


def test_what_is_written_in_one_go_is_sent_in_one_go() -> None:
    wire = _Wire()
    gathering = CoalescingTransport(wire, wire.later.append)
    gathering.write(b"head ")
    gathering.write(b"body")
    assert (wire.sent, len(wire.later)) == ([], 1)
    wire.later.pop()()
    assert wire.sent == [b"head body"]
    gathering.write(b"alone")
    wire.later.pop()()
    assert wire.sent == [b"head body", b"alone"]
    assert gathering.get_extra_info("peername") == "peername"


def test_much_is_sent_at_once_so_that_a_slow_client_is_noticed() -> None:
    wire = _Wire()
    gathering = CoalescingTransport(wire, wire.later.append)
    gathering.write(b"x" * 65_536)
    assert not wire.sent
    gathering.write(b"y")
    assert [len(piece) for piece in wire.sent] == [65_537]


def test_closing_sends_what_was_written_and_nothing_is_sent_after_it() -> None:
    wire = _Wire()
    gathering = CoalescingTransport(wire, wire.later.append)
    gathering.write(b"last")
    gathering.close()
    assert (wire.sent, wire.is_closed) == ([b"last"], True)
    gathering.write(b"too late")
    for call in wire.later:
        call()
    assert wire.sent == [b"last"]
