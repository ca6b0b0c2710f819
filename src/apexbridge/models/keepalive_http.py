"""Whole answers over plain HTTP, by the shortest way: a connection, a parser, and nothing between.

A model on the same machine or network is asked so often, and answers so plainly, that a client for
all of the web takes much of the door's time. This one posts, and reads an answer to its end.
What it does not know (a packed body, another protocol) it says, and the other client is asked.
"""

import asyncio  # noqa: TID251  # a protocol of the loop's own, as aiohttp has
import os
import socket
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable
from urllib.parse import urlsplit

import httptools

_MAX_IDLE_SECONDS = 15.0
"""Servers close what is idle; a connection older than this is not tried."""
_MAX_HEADER_BYTES = 64 * 1024
_IDENTITY_ENCODINGS = frozenset({b"", b"identity"})
_INFORMATIONAL = range(100, 200)


class HttpClientError(Exception):
    """It did not come to an answer."""


class ConnectError(HttpClientError):
    """There is no connection; says why."""


class ResponseTimeoutError(HttpClientError):
    """There is no answer in time; `is_begun` if some of it came."""

    def __init__(self, *, is_begun: bool) -> None:
        super().__init__("too late")
        self.is_begun = is_begun


class IncompleteResponseError(HttpClientError):
    """The server hung up; `is_begun` if some of an answer came before."""

    def __init__(self, *, is_begun: bool) -> None:
        super().__init__("cut off")
        self.is_begun = is_begun


class ResponseTooLargeError(HttpClientError):
    """The answer has more bytes than there is room for."""


class UnsupportedResponseError(HttpClientError):
    """It is not plain HTTP as it is spoken here."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A whole answer."""

    status: int
    body: bytes
    retry_after: str


@runtime_checkable
class _Transport(Protocol):
    def write(self, data: bytes) -> None: ...
    def is_closing(self) -> bool: ...
    def abort(self) -> None: ...


class _Parser(Protocol):
    def feed_data(self, data: bytes) -> None: ...
    def get_status_code(self) -> int: ...
    def should_keep_alive(self) -> bool: ...


class _Connection(asyncio.Protocol):
    """One connection; one question at a time."""

    def __init__(self, kept: "deque[_Connection]") -> None:
        self._kept = kept
        self._transport: _Transport | None = None
        self._waiting: asyncio.Future[HttpResponse] | None = None
        self._room = 0
        self.idle_since = 0.0

    def ask(self, request: bytes, room: int) -> asyncio.Future[HttpResponse]:
        """Send; the answer comes later."""
        self._begin()
        self._room = room
        self._waiting = asyncio.get_running_loop().create_future()
        if self._transport is None or self._transport.is_closing():
            self._end(IncompleteResponseError(is_begun=False))
        else:
            self._transport.write(request)
        return self._waiting

    @property
    def is_open(self) -> bool:
        """Whether it can be asked."""
        is_fresh = time.monotonic() - self.idle_since < _MAX_IDLE_SECONDS
        return is_fresh and self._transport is not None and not self._transport.is_closing()

    @property
    def is_begun(self) -> bool:
        """Whether anything of an answer came."""
        return self._taken > 0

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.abort()

    def _begin(self) -> None:
        self._parser: _Parser = httptools.HttpResponseParser(self)
        self._body = list[bytes]()
        self._size = self._taken = 0
        self._retry_after, self._is_head, self._has_end = "", True, False
        self._unusual: HttpClientError | None = None

    # What the loop tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, _Transport):  # whose loop it is, it need not be asyncio's class
            self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._waiting is None:
            self.close()  # nobody asked
            return
        self._taken += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._end(self._unusual or IncompleteResponseError(is_begun=False))
        else:
            if self._is_head and self._taken > _MAX_HEADER_BYTES:
                self._end(UnsupportedResponseError("a long head"))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting is None:
            return
        if exc is None and not self._is_head and not self._has_end:
            self.on_message_complete()  # an answer without a length ends with the connection
        else:
            self._end(IncompleteResponseError(is_begun=not self._is_head))

    # What the parser tells.

    def on_message_begin(self) -> None:
        if self._waiting is None:
            self.close()  # more than was asked for: the next answer could not be told from it

    def on_header(self, name: bytes, value: bytes) -> None:
        known = name.lower()
        if known == b"retry-after":
            self._retry_after = value.decode("latin-1")
        elif known in {b"content-length", b"transfer-encoding"}:
            self._has_end = True
            if known == b"content-length" and value.isdigit() and int(value) > self._room:
                self._unusual = ResponseTooLargeError()
        elif known == b"content-encoding" and value.strip().lower() not in _IDENTITY_ENCODINGS:
            self._unusual = UnsupportedResponseError("it is packed")

    def on_headers_complete(self) -> None:
        if self._parser.get_status_code() not in _INFORMATIONAL:
            self._is_head = False
            if self._unusual is not None:
                raise self._unusual

    def on_body(self, body: bytes) -> None:
        self._size += len(body)
        if self._size > self._room:
            self._unusual = ResponseTooLargeError()
            raise self._unusual
        self._body.append(body)

    def on_message_complete(self) -> None:
        if not self._is_head:  # else the answer is still to come
            self._end(None)

    def _end(self, error: HttpClientError | None) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is None or waiting.done():
            self.close()
        elif error is not None:
            self.close()
            waiting.set_exception(error)
        else:
            status = self._parser.get_status_code()
            waiting.set_result(HttpResponse(status, b"".join(self._body), self._retry_after))
            if self._has_end and self._parser.should_keep_alive():
                self.idle_since = time.monotonic()
                self._kept.append(self)
            else:
                self.close()


class KeepAliveClient:
    """A server without TLS, and the connections to it; they belong to one event loop."""

    def __init__(self, base_url: str, headers: Mapping[str, str]) -> None:
        """Take an address that `is_supported_url` is true of."""
        parts = urlsplit(base_url)
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._path = parts.path
        name = f"[{self._host}]" if ":" in self._host else self._host
        host = f"{name}:{parts.port}" if parts.port else name
        told = {"Host": host, "Accept": "*/*", **headers}
        self._head = "".join(f"{name}: {value}\r\n" for name, value in told.items())
        self._kept = deque[_Connection]()

    async def post(
        self, path: str, payload: bytes, *, room: int, seconds: float, connect_seconds: float
    ) -> HttpResponse:
        """Post JSON, and give the answer.

        Raises:
            HttpClientError: Of the kinds above.
        """
        head = f"POST {self._path}{path} HTTP/1.1\r\n{self._head}Content-Length: {len(payload)}"
        request = b"".join((head.encode("ascii"), b"\r\n\r\n", payload))
        deadline = asyncio.get_running_loop().time() + seconds
        while (line := self._idle()) is not None:
            try:
                return await _exchange(line, request, room, deadline)
            except IncompleteResponseError as error:
                if error.is_begun or line.is_begun:
                    raise
                # It was hanging up just then: nothing came, so another line is asked.
        line = await self._connected(min(connect_seconds, seconds))
        return await _exchange(line, request, room, deadline)

    def close(self) -> None:
        """Hang up everywhere; those that are asked just now hang up themselves."""
        while self._kept:
            self._kept.pop().close()

    def _idle(self) -> _Connection | None:
        while self._kept:
            line = self._kept.pop()
            if line.is_open:
                return line
            line.close()
        return None

    async def _connected(self, seconds: float) -> _Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(seconds):
                _, line = await loop.create_connection(
                    lambda: _Connection(self._kept), self._host, self._port
                )
        except TimeoutError:
            raise ConnectError("") from None
        except OSError as error:
            raise ConnectError(_connect_error_text(error)) from None
        except UnicodeError:
            raise UnsupportedResponseError(
                "a name that no name server could be asked for"
            ) from None
        return line


def _connect_error_text(error: OSError) -> str:
    """Why, without the address: the loop puts it into its own words."""
    if isinstance(error, socket.gaierror) or not error.errno:
        return error.strerror or type(error).__name__
    return os.strerror(error.errno)


async def _exchange(line: _Connection, request: bytes, room: int, deadline: float) -> HttpResponse:
    waiting = line.ask(request, room)
    late = asyncio.get_running_loop().call_at(deadline, _abandon, line, waiting)
    try:
        return await waiting
    except asyncio.CancelledError:
        line.close()
        raise
    finally:
        late.cancel()


def _abandon(line: _Connection, waiting: "asyncio.Future[HttpResponse]") -> None:
    if not waiting.done():
        waiting.set_exception(ResponseTimeoutError(is_begun=line.is_begun))
    line.close()


def is_supported_url(base_url: str, headers: Mapping[str, str]) -> bool:
    """Say whether an address and headers are as plain as this client needs them."""
    try:
        parts = urlsplit(base_url)
        is_plain = parts.scheme == "http" and parts.username is None and bool(parts.hostname)
        is_plain = is_plain and not parts.query and not parts.fragment and parts.port != 0
    except ValueError:
        return False
    said = (parts.netloc, parts.path, *headers, *headers.values())
    return (
        is_plain
        and all(_is_header_safe(one) for one in said)
        and " " not in parts.netloc + parts.path
    )


def _is_header_safe(text: str) -> bool:
    return text.isascii() and text.isprintable()
