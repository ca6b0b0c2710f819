"""Keep-alive HTTP/1.1 client for JSON over plain TCP: POST a body, read the whole response.

It serves model servers on the same machine or network, where a general client's overhead is a
measurable part of a request: 16 to 42 % more requests a second than with aiohttp, see
docs/decisions/0025-http-client.md. It has no TLS, redirects, decompression or streaming: a response
that needs more raises `UnsupportedResponseError`, and the caller repeats the request with aiohttp.
"""

import asyncio  # noqa: TID251  # asyncio.Protocol: anyio's streams cost what this module saves
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
"""Servers close idle connections; one that was idle for longer is not reused."""
_MAX_HEADER_BYTES = 64 * 1024
_IDENTITY_ENCODINGS = frozenset({b"", b"identity"})
_INFORMATIONAL = range(100, 200)


class HttpClientError(Exception):
    """The exchange failed."""


class ConnectError(HttpClientError):
    """No TCP connection; the message is the reason, empty after a timeout."""


class ResponseTimeoutError(HttpClientError):
    """No complete response before the deadline; `is_begun` if some bytes arrived."""

    def __init__(self, *, is_begun: bool) -> None:
        super().__init__("timeout")
        self.is_begun = is_begun


class IncompleteResponseError(HttpClientError):
    """The connection closed or the bytes are not HTTP; `is_begun` if the body had begun."""

    def __init__(self, *, is_begun: bool) -> None:
        super().__init__("incomplete response")
        self.is_begun = is_begun


class ResponseTooLargeError(HttpClientError):
    """The body exceeds the size limit."""


class UnsupportedResponseError(HttpClientError):
    """The response needs a feature that this client does not have."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A complete response."""

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
    """One TCP connection, with one request in flight at most (no pipelining)."""

    def __init__(self, pool: "deque[_Connection]") -> None:
        self._pool = pool
        self._transport: _Transport | None = None
        self._waiting: asyncio.Future[HttpResponse] | None = None
        self._max_bytes = 0
        self.idle_since = 0.0

    def send(self, request: bytes, max_bytes: int) -> asyncio.Future[HttpResponse]:
        """Send a request; the future gets its response."""
        self._reset()
        self._max_bytes = max_bytes
        self._waiting = asyncio.get_running_loop().create_future()
        if self._transport is None or self._transport.is_closing():
            self._finish(IncompleteResponseError(is_begun=False))
        else:
            self._transport.write(request)
        return self._waiting

    @property
    def is_open(self) -> bool:
        """Say whether it can be reused."""
        is_fresh = time.monotonic() - self.idle_since < _MAX_IDLE_SECONDS
        return is_fresh and self._transport is not None and not self._transport.is_closing()

    @property
    def is_begun(self) -> bool:
        """Say whether any byte of the response has arrived."""
        return self._received > 0

    def close(self) -> None:
        """Abort the connection."""
        if self._transport is not None:
            self._transport.abort()

    def _reset(self) -> None:
        self._parser: _Parser = httptools.HttpResponseParser(self)
        self._body = list[bytes]()
        self._body_bytes = self._received = 0
        self._retry_after, self._in_headers, self._has_length = "", True, False
        self._rejection: HttpClientError | None = None

    # Callbacks of the event loop (asyncio.Protocol).

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, _Transport):  # uvloop's class is not asyncio's
            self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._waiting is None:
            self.close()  # an unsolicited response
            return
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._finish(self._rejection or IncompleteResponseError(is_begun=False))
        else:
            if self._in_headers and self._received > _MAX_HEADER_BYTES:
                self._finish(UnsupportedResponseError("long headers"))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting is None:
            return
        if exc is None and not self._in_headers and not self._has_length:
            self.on_message_complete()  # without a length, the body ends with the connection
        else:
            self._finish(IncompleteResponseError(is_begun=not self._in_headers))

    # Callbacks of the parser (httptools).

    def on_message_begin(self) -> None:
        if self._waiting is None:
            # A second response in the same bytes: it must not be taken for the next request's.
            self.close()

    def on_header(self, name: bytes, value: bytes) -> None:
        known = name.lower()
        if known == b"retry-after":
            self._retry_after = value.decode("latin-1")
        elif known in {b"content-length", b"transfer-encoding"}:
            self._has_length = True
            if known == b"content-length" and value.isdigit() and int(value) > self._max_bytes:
                self._rejection = ResponseTooLargeError()
        elif known == b"content-encoding" and value.strip().lower() not in _IDENTITY_ENCODINGS:
            self._rejection = UnsupportedResponseError("compressed body")

    def on_headers_complete(self) -> None:
        if self._parser.get_status_code() not in _INFORMATIONAL:
            self._in_headers = False
            if self._rejection is not None:
                raise self._rejection

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self._body_bytes > self._max_bytes:
            self._rejection = ResponseTooLargeError()
            raise self._rejection
        self._body.append(body)

    def on_message_complete(self) -> None:
        if not self._in_headers:  # else it was a 1xx response, and the final one follows
            self._finish(None)

    def _finish(self, error: HttpClientError | None) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is None or waiting.done():
            self.close()
        elif error is not None:
            self.close()
            waiting.set_exception(error)
        else:
            status = self._parser.get_status_code()
            waiting.set_result(HttpResponse(status, b"".join(self._body), self._retry_after))
            if self._has_length and self._parser.should_keep_alive():
                self.idle_since = time.monotonic()
                self._pool.append(self)
            else:
                self.close()


class KeepAliveClient:
    """HTTP/1.1 client of one server without TLS; its connections belong to one event loop."""

    def __init__(self, base_url: str, headers: Mapping[str, str]) -> None:
        """Take a URL and headers for which `is_supported_url` is true."""
        parts = urlsplit(base_url)
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._path = parts.path
        name = f"[{self._host}]" if ":" in self._host else self._host
        host = f"{name}:{parts.port}" if parts.port else name
        sent = {"Host": host, "Accept": "*/*", **headers}
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
        self._pool = deque[_Connection]()

    async def post(
        self, path: str, payload: bytes, *, max_bytes: int, seconds: float, connect_seconds: float
    ) -> HttpResponse:
        """POST a JSON body and read the response.

        Raises:
            HttpClientError: One of its subclasses.
        """
        head = f"POST {self._path}{path} HTTP/1.1\r\n{self._headers}Content-Length: {len(payload)}"
        request = b"".join((head.encode("ascii"), b"\r\n\r\n", payload))
        deadline = asyncio.get_running_loop().time() + seconds
        while (connection := self._idle()) is not None:
            try:
                return await _exchange(connection, request, max_bytes, deadline)
            except IncompleteResponseError as error:
                if error.is_begun or connection.is_begun:
                    raise
                # The server closed it while it was idle: no byte came, so that a repeat is safe.
        connection = await self._connect(min(connect_seconds, seconds))
        return await _exchange(connection, request, max_bytes, deadline)

    def close(self) -> None:
        """Close the idle connections; busy ones are closed by their requests."""
        while self._pool:
            self._pool.pop().close()

    def _idle(self) -> _Connection | None:
        while self._pool:
            connection = self._pool.pop()
            if connection.is_open:
                return connection
            connection.close()
        return None

    async def _connect(self, seconds: float) -> _Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(seconds):
                _, connection = await loop.create_connection(
                    lambda: _Connection(self._pool), self._host, self._port
                )
        except TimeoutError:
            raise ConnectError("") from None
        except OSError as error:
            raise ConnectError(_connect_error_text(error)) from None
        except UnicodeError:
            raise UnsupportedResponseError("a host name that DNS cannot encode") from None
        return connection


def _connect_error_text(error: OSError) -> str:
    """Format the reason without the address, which asyncio puts into its own message."""
    if isinstance(error, socket.gaierror) or not error.errno:
        return error.strerror or type(error).__name__
    return os.strerror(error.errno)


async def _exchange(
    connection: _Connection, request: bytes, max_bytes: int, deadline: float
) -> HttpResponse:
    waiting = connection.send(request, max_bytes)
    timer = asyncio.get_running_loop().call_at(deadline, _abandon, connection, waiting)
    try:
        return await waiting
    except asyncio.CancelledError:
        connection.close()
        raise
    finally:
        timer.cancel()


def _abandon(connection: _Connection, waiting: "asyncio.Future[HttpResponse]") -> None:
    if not waiting.done():
        waiting.set_exception(ResponseTimeoutError(is_begun=connection.is_begun))
    connection.close()


def is_supported_url(base_url: str, headers: Mapping[str, str]) -> bool:
    """Say whether this client supports a base URL and headers: plain HTTP, printable ASCII."""
    try:
        parts = urlsplit(base_url)
        is_supported = parts.scheme == "http" and parts.username is None and bool(parts.hostname)
        is_supported = is_supported and not parts.query and not parts.fragment and parts.port != 0
    except ValueError:
        return False
    texts = (parts.netloc, parts.path, *headers, *headers.values())
    return (
        is_supported
        and all(_is_header_safe(text) for text in texts)
        and " " not in parts.netloc + parts.path
    )


def _is_header_safe(text: str) -> bool:
    return text.isascii() and text.isprintable()
