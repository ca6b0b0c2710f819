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


async def _hello(scope: Scope, receive: Receive, send: Send) -> None:
    await Response(b"hello")(scope, receive, send)


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    """Refuse a request before its body is read."""
    await Response(b"no", 413)(scope, receive, send)


@pytest.mark.promise("S07")
@pytest.mark.parametrize(
    ("head", "status", "code"),
    [
        (b"GET /" + b"x" * 200_000, 414, "address_too_long"),
        (b"GET /" + b"x" * 200_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414, "address_too_long"),
        (b"GET / HTTP/1.1\r\nX-A: " + b"y" * 200_000, 431, "headers_too_large"),
        (b"GET / HTTP/1.1\r\n" + b"X-A: y\r\n" * 30_000 + b"\r\n", 431, "headers_too_large"),
        (b"POST / HTTP/1.1\r\nX-A: " + b"y" * 100_000 + b"\r\nContent-Length: 9\r\n\r\n123456789",
         431, "headers_too_large"),
    ],
    ids=["url", "whole-url", "header", "headers", "with-body"],
)  # fmt: skip
@pytest.mark.parametrize("more", [0, 3_000_000])
async def test_a_head_over_the_limit_is_refused_and_the_answer_arrives(
    head: bytes, status: int, code: str, more: int
) -> None:
    async with _serving(_hello) as (url, server), open_connection(url) as stream:
        await stream.send(head + b"z" * more)
        answer = parse_response(await read_all(stream))
        assert (answer.status, answer.code) == (status, code)
        assert answer.headers["connection"] == "close"
        await stream.aclose()
        await _is_empty(server)


@pytest.mark.promise("S07")
async def test_a_body_that_is_refused_unread_does_not_cost_the_answer() -> None:
    head = {"Content-Length": "20000000", "Content-Type": "application/json"}
    async with _serving(_refuse) as (url, server), open_connection(url) as stream:
        await stream.send(request_head(url, "POST", "/", head))
        with anyio.fail_after(20):
            for _ in range(200):  # all of it, before anything is read
                await stream.send(b"x" * 100_000)
        answer = parse_response(await read_all(stream))
        assert (answer.status, answer.body) == (413, b"no")
        await stream.aclose()
        await _is_empty(server)


async def test_a_refused_client_that_goes_on_is_left() -> None:
    head = {"Transfer-Encoding": "chunked", "Content-Type": "application/json"}
    async with _serving(_refuse) as (url, server), open_connection(url) as stream:
        await stream.send(request_head(url, "POST", "/", head))
        piece = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
        with pytest.raises(anyio.BrokenResourceError):
            await stream.send(piece * 3_000)
        await _is_empty(server)


async def test_a_refused_client_that_says_nothing_more_is_left() -> None:
    head = {"Content-Length": "20000000", "Content-Type": "application/json"}
    async with _serving(_refuse) as (url, server), open_connection(url) as stream:
        await stream.send(request_head(url, "POST", "/", head))
        assert parse_response(await read_all(stream)).status == 413
        assert close_stalled(server, header_seconds=60, stall_seconds=60) == 0
        while not close_stalled(server, header_seconds=0, stall_seconds=60):
            await anyio.sleep(0.01)
        await _is_empty(server)


async def test_what_is_no_http_is_answered() -> None:
    async with _serving(_hello) as (url, server), open_connection(url) as stream:
        await stream.send(b"\x16\x03\x01" * 100_000)
        assert parse_response(await read_all(stream)).status == 400
        await stream.aclose()
        await _is_empty(server)


async def _is_empty(server: uvicorn.Server) -> None:
    """Wait until no connection is left."""
    with anyio.fail_after(10):
        while server.server_state.connections:
            await anyio.sleep(0.01)


class _Wire:
    """Takes what is sent, and calls nobody before it is told to."""

    def __init__(self) -> None:
        self.sent = list[bytes]()
        self.later = list[Callable[[], None]]()
        self.is_closed = self.is_half_closed = self.is_resumed = False

    def write(self, data: bytes) -> None:
        self.sent.append(data)

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def resume_reading(self) -> None:
        self.is_resumed = True

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.is_half_closed = True

    def get_extra_info(self, name: str) -> str:
        return name


def test_a_connection_that_still_receives_is_half_closed_first() -> None:
    wire = _Wire()
    lingering = CoalescingTransport(wire, wire.later.append, lambda: True)
    lingering.write(b"no")
    lingering.close()
    assert (wire.sent, wire.is_half_closed, wire.is_resumed) == ([b"no"], True, True)
    assert lingering.is_closing()
    assert not wire.is_closed
    lingering.close()
    assert wire.is_closed


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
