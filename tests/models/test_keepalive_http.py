"""Keep-alive HTTP client: message framing, connection reuse and errors, with raw bytes."""

import gzip
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from apexbridge.errors import (
    ApexBridgeError,
    ModelOutputError,
    ModelRejectedError,
    ModelUnavailableError,
)
from apexbridge.messages import UserMessage
from apexbridge.models import keepalive_http
from apexbridge.models.base import ModelRequest
from apexbridge.models.keepalive_http import HttpResponse, KeepAliveClient
from apexbridge.models.openai import OpenAiModel
from apexbridge.models.retry import Timeouts
from tests.models.raw_server import Talk, raw_server

pytestmark = pytest.mark.anyio

BODY = b'{"choices": [{"message": {"content": "Fine."}, "finish_reason": "stop"}]}'
SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(BODY)
WHOLE = ModelRequest(model="tiny", messages=(UserMessage(text="hi"),), is_whole=True)


class _Server:
    """Says the next thing for each request, on as many connections as are made."""

    def __init__(self, *says: bytes, closes: bool = False) -> None:
        self.says = list(says)
        self.closes = closes
        self.asked: list[bytes] = []
        self.connections = 0

    async def talk(self, stream: SocketStream) -> None:
        self.connections += 1
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            while self.says:
                self.asked.append(await _request(stream))
                await stream.send(self.says.pop(0))
                if self.closes:
                    return
            await stream.receive()


async def _request(stream: SocketStream) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        data += await stream.receive()
    head, _, body = data.partition(b"\r\n\r\n")
    size = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
    while len(body) < size:
        body += await stream.receive()
    return head + b"\r\n\r\n" + body


@asynccontextmanager
async def _served(talk: Talk) -> AsyncGenerator[str]:
    async with raw_server(talk) as address:
        yield f"{address}/v1"


async def _post(
    client: KeepAliveClient, *, max_bytes: int = 10_000, seconds: float = 5
) -> HttpResponse:
    return await client.post("/x", b"{}", max_bytes=max_bytes, seconds=seconds, connect_seconds=5)


async def _answer(*says: bytes, closes: bool = False, max_bytes: int = 10_000) -> HttpResponse:
    server, error = _Server(*says, closes=closes), None
    async with _served(server.talk) as address:
        client = KeepAliveClient(address, {})
        try:
            return await _post(client, max_bytes=max_bytes)
        except keepalive_http.HttpClientError as caught:
            error = caught
        finally:
            client.close()
    raise error  # out here, no group of errors is made of it


async def test_a_request_is_posted_as_it_should_be() -> None:
    server = _Server(SIZED + BODY)
    async with _served(server.talk) as address:
        client = KeepAliveClient(address, {"Content-Type": "application/json", "X-Api-Key": "k"})
        await client.post("/chat", b'{"a": 1}', max_bytes=1_000, seconds=5, connect_seconds=5)
        client.close()
    head, _, body = server.asked[0].partition(b"\r\n\r\n")
    first, *headers = head.split(b"\r\n")
    assert first == b"POST /v1/chat HTTP/1.1"
    assert f"Host: {address.removeprefix('http://').removesuffix('/v1')}".encode() in headers
    assert {b"X-Api-Key: k", b"Content-Length: 8", b"Content-Type: application/json"} < {*headers}
    assert body == b'{"a": 1}'


@pytest.mark.parametrize(
    ("said", "closes"),
    [
        (SIZED + BODY, False),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + SIZED + BODY, False),
        (b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n" + SIZED + BODY, False),
        (b"HTTP/1.1 200 OK\r\n\r\n" + BODY, True),
        (b"HTTP/1.0 200 OK\r\n\r\n" + BODY, True),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"%x\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n" % (9, BODY[:9], len(BODY) - 9, BODY[9:]),
            False,
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: identity\r\n" + SIZED[17:] + BODY, False),
    ],
    ids=["sized", "continue", "hints", "until the end", "1.0", "in pieces", "identity"],
)
async def test_all_message_framings_are_supported(said: bytes, closes: bool) -> None:
    assert await _answer(said, closes=closes) == HttpResponse(200, BODY, "")


async def test_an_answer_may_arrive_byte_by_byte() -> None:
    async def talk(stream: SocketStream) -> None:
        await _request(stream)
        for at in range(len(SIZED + BODY)):
            await stream.send((SIZED + BODY)[at : at + 1])
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            await stream.receive()

    async with _served(talk) as address:
        client = KeepAliveClient(address, {})
        assert (await _post(client)).body == BODY
        client.close()


async def test_an_error_response_has_its_retry_after() -> None:
    said = b"HTTP/1.1 429 Busy\r\nRetry-After: 7\r\nContent-Length: 2\r\n\r\nno"
    assert await _answer(said) == HttpResponse(429, b"no", "7")


async def test_a_connection_is_used_again_and_a_closed_one_is_not() -> None:
    server = _Server(*[SIZED + BODY] * 3)
    async with _served(server.talk) as address:
        client = KeepAliveClient(address, {})
        for _ in range(3):
            await _post(client)
        client.close()
    assert server.connections == 1
    server = _Server(*[SIZED + BODY] * 3, closes=True)
    async with _served(server.talk) as address:
        client = KeepAliveClient(address, {})
        for _ in range(3):  # it hangs up after each, which may be seen only when it is asked
            assert (await _post(client)).body == BODY
        client.close()
    assert server.connections == 3


async def _connections_for_two(*says: bytes) -> int:
    server = _Server(*says)
    async with _served(server.talk) as address:
        client = KeepAliveClient(address, {})
        for _ in range(2):
            assert (await _post(client)).body == BODY
        client.close()
    return server.connections


async def test_connection_close_is_respected() -> None:
    said = SIZED.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n") + BODY
    assert await _connections_for_two(said, said) == 2


async def test_a_connection_idle_for_long_is_not_reused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keepalive_http, "_MAX_IDLE_SECONDS", 0.0)
    assert await _connections_for_two(SIZED + BODY, SIZED + BODY) == 2


@pytest.mark.parametrize("more", [SIZED + b"x" * len(BODY), SIZED, SIZED[:9]])
async def test_unsolicited_bytes_are_not_taken_for_the_next_response(more: bytes) -> None:
    assert await _connections_for_two(SIZED + BODY + more, SIZED + BODY) == 2


@pytest.mark.parametrize(
    ("said", "closes", "error"),
    [
        (b"HTTP/1.1 what?\r\n\r\n", False, keepalive_http.IncompleteResponseError),
        (b"nonsense", True, keepalive_http.IncompleteResponseError),
        (b"", True, keepalive_http.IncompleteResponseError),
        (SIZED + BODY[:5], True, keepalive_http.IncompleteResponseError),
        (b"HTTP/1.1 200 OK\r\nContent-Le", True, keepalive_http.IncompleteResponseError),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n",
            False,
            keepalive_http.ResponseTooLargeError,
        ),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 20_000, True, keepalive_http.ResponseTooLargeError),
        (
            b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 20_000,
            False,
            keepalive_http.UnsupportedResponseError,
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 9\r\n\r\n",
            False,
            keepalive_http.UnsupportedResponseError,
        ),
    ],
    ids=["babble", "noise", "silence", "cut", "half a head", "long", "longer", "head", "packed"],
)
async def test_malformed_responses_raise_errors(
    said: bytes, closes: bool, error: type[keepalive_http.HttpClientError]
) -> None:
    with pytest.raises(error):
        await _answer(said, closes=closes)


async def test_a_truncated_response_differs_from_an_empty_one() -> None:
    for said, is_begun in ((b"", False), (SIZED + BODY[:5], True)):
        with pytest.raises(keepalive_http.IncompleteResponseError) as caught:
            await _answer(said, closes=True)
        assert caught.value.is_begun == is_begun


@pytest.mark.parametrize("begun", [b"", SIZED], ids=["nothing", "begun"])
async def test_no_answer_in_time_ends_the_connection(begun: bytes) -> None:
    is_closed = anyio.Event()

    async def talk(stream: SocketStream) -> None:
        await _request(stream)
        await stream.send(begun)
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            await stream.receive()
        is_closed.set()

    async with _served(talk) as address:
        with pytest.raises(keepalive_http.ResponseTimeoutError) as caught:
            await _post(KeepAliveClient(address, {}), seconds=0.2)
        assert caught.value.is_begun == bool(begun)
        with anyio.fail_after(5):
            await is_closed.wait()


async def test_cancellation_closes_the_connection() -> None:
    is_asked, is_closed = anyio.Event(), anyio.Event()

    async def talk(stream: SocketStream) -> None:
        await _request(stream)
        is_asked.set()
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            await stream.receive()
        is_closed.set()

    async with _served(talk) as address, anyio.create_task_group() as group:
        group.start_soon(_post, KeepAliveClient(address, {}))
        await is_asked.wait()
        group.cancel_scope.cancel()
        with anyio.CancelScope(shield=True), anyio.fail_after(5):
            await is_closed.wait()


async def test_a_refused_connection_is_an_error() -> None:
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(SocketAttribute.local_port)
    with pytest.raises(keepalive_http.ConnectError, match="refused"):
        await _post(KeepAliveClient(f"http://127.0.0.1:{port}", {}))


@pytest.mark.parametrize(
    ("address", "headers", "is_plain"),
    [
        ("http://127.0.0.1:11434/v1", {"A": "b"}, True),
        ("http://[::1]:8000/v1", {}, True),
        ("http://model", {}, True),
        ("https://model", {}, False),
        ("http://user:word@model", {}, False),
        ("http://模型/v1", {}, False),
        ("http://model/v 1", {}, False),
        ("http://model/v1?key=1", {}, False),
        ("http://model:0", {}, False),
        ("http://model:x", {}, False),
        ("http://[::1", {}, False),
        ("http://", {}, False),
        ("http://model", {"A": "b\r\nC: d"}, False),
        ("http://model", {"A": "é"}, False),
    ],
)
def test_only_plain_urls_and_headers_use_the_keepalive_client(
    address: str, headers: dict[str, str], is_plain: bool
) -> None:
    assert keepalive_http.is_supported_url(address, headers) == is_plain


async def _told(*says: bytes, closes: bool = False) -> tuple[str, _Server]:
    server, error = _Server(*says, closes=closes), None
    async with _served(server.talk) as address:
        model = OpenAiModel(address, timeouts=Timeouts(first_byte_seconds=1, retry_seconds=0.1))
        try:
            async with model.stream(WHOLE) as stream:
                return "".join([piece.text async for piece in stream]), server
        except ApexBridgeError as caught:
            error = caught
        finally:
            await model.close()
    raise error


async def test_a_compressed_response_is_requested_again_with_aiohttp() -> None:
    packed = gzip.compress(BODY)
    said = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
    text, server = await _told(said + packed, said + packed)
    assert text == "Fine."
    assert [b"Accept-Encoding" in asked for asked in server.asked] == [False, True]


@pytest.mark.parametrize(
    ("said", "error", "words"),
    [
        (b"HTTP/1.1 301 Gone\r\nContent-Length: 0\r\n\r\n", ModelRejectedError, "redirects"),
        (b"HTTP/1.1 404 No\r\nContent-Length: 6\r\n\r\n<html>", ModelRejectedError, "a web page"),
        (b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", ModelUnavailableError, "answered 500"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n", ModelOutputError, "more than"),
        (b"", ModelUnavailableError, "cannot be reached: connection closed"),
        (SIZED + b"{", ModelUnavailableError, "cut off"),
    ],
    ids=["moved", "a page", "broken", "too long", "nothing", "half"],
)
async def test_errors_have_the_same_texts_as_with_aiohttp(
    said: bytes, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        await _told(*[said] * 8, closes=True)
