"""Raw HTTP requests over a socket, malformed ones included."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import anyio
from anyio.abc import SocketStream

TIMEOUT_SECONDS = 60


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """Parsed HTTP response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def code(self) -> str:
        """Error code of the body."""
        return json.loads(self.body)["error"]["code"]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def parse_response(data: bytes) -> HttpResponse:
    """Parse a response; chunked bodies are joined."""
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {n.lower(): v.strip() for n, _, v in (line.partition(":") for line in lines)}
    if headers.get("transfer-encoding") == "chunked":
        body = _joined(body)
    return HttpResponse(int(first.split()[1]), headers, body)


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
async def open_connection(url: str) -> AsyncGenerator[SocketStream]:
    """TCP connection for the duration of the block."""
    parts = urlsplit(url)
    with anyio.fail_after(TIMEOUT_SECONDS):
        async with await anyio.connect_tcp(parts.hostname or "", parts.port or 80) as stream:
            yield stream


async def read_all(stream: SocketStream) -> bytes:
    """Read until the peer closes or resets the connection."""
    data = b""
    try:
        while True:
            data += await stream.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        return data


async def read_response(stream: SocketStream) -> HttpResponse:
    """Read one response with a Content-Length on a keep-alive connection."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += await stream.receive()
    answer = parse_response(data)
    while len(answer.body) < int(answer.headers["content-length"]):
        data += await stream.receive()
        answer = parse_response(data)
    return answer


def request_head(url: str, method: str, path: str, headers: Mapping[str, str]) -> bytes:
    """Request line and headers; `Host` is the server's unless given."""
    sent_headers = {"Host": urlsplit(url).netloc, "Connection": "close", **headers}
    lines = [f"{method} {path} HTTP/1.1", *(f"{n}: {v}" for n, v in sent_headers.items() if v)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


async def send_request(
    url: str,
    path: str = "/",
    *,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
) -> HttpResponse:
    """Send one request on a new connection."""
    sent_headers = dict(headers or {})
    if body is not None:
        sent_headers.setdefault("Content-Length", str(len(body)))
    async with open_connection(url) as stream:
        await stream.send(request_head(url, method, path, sent_headers) + (body or b""))
        return parse_response(await read_all(stream))
