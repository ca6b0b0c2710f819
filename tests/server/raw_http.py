"""Requests byte by byte, as no well-behaved client would send them."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import anyio
from anyio.abc import SocketStream

MOST_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def code(self) -> str:
        """The error's code."""
        return json.loads(self.body)["error"]["code"]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def parse(data: bytes) -> Answer:
    """An answer from its bytes; chunks are joined."""
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {n.lower(): v.strip() for n, _, v in (line.partition(":") for line in lines)}
    if headers.get("transfer-encoding") == "chunked":
        body = _joined(body)
    return Answer(int(first.split()[1]), headers, body)


def _joined(data: bytes) -> bytes:
    whole = b""
    while data:
        size, _, rest = data.partition(b"\r\n")
        length = int(size or b"0", 16)
        whole, data = whole + rest[:length], rest[length + 2 :]
        if not length:
            break
    return whole


@asynccontextmanager
async def connected(url: str) -> AsyncGenerator[SocketStream]:
    """A connection, for the length of the block."""
    parts = urlsplit(url)
    with anyio.fail_after(MOST_SECONDS):
        async with await anyio.connect_tcp(parts.hostname or "", parts.port or 80) as stream:
            yield stream


async def rest_of(stream: SocketStream) -> bytes:
    """All that comes until the other side closes, however it does."""
    data = b""
    try:
        while True:
            data += await stream.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        return data


async def answer_of(stream: SocketStream) -> Answer:
    """One answer that says how long it is, on a connection that stays open."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += await stream.receive()
    answer = parse(data)
    while len(answer.body) < int(answer.headers["content-length"]):
        data += await stream.receive()
        answer = parse(data)
    return answer


def head(url: str, method: str, path: str, headers: Mapping[str, str]) -> bytes:
    """A request's head; `Host` is the server's own unless it is given."""
    told = {"Host": urlsplit(url).netloc, "Connection": "close", **headers}
    lines = [f"{method} {path} HTTP/1.1", *(f"{n}: {v}" for n, v in told.items() if v)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


async def ask(
    url: str,
    path: str = "/",
    *,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
) -> Answer:
    """One request on a connection of its own."""
    told = dict(headers or {})
    if body is not None:
        told.setdefault("Content-Length", str(len(body)))
    async with connected(url) as stream:
        await stream.send(head(url, method, path, told) + (body or b""))
        return parse(await rest_of(stream))
