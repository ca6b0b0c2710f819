"""Slowloris protection: close connections that miss the header deadline or stop reading.

uvicorn's HTTP parser waits without limit and buffers any header. So each connection records when
its client began to send or stopped to receive, and a sweep closes the ones that take too long.

Lingering close: a socket that is closed with unread data is reset, and the client loses the answer
that says why. So what a refused client still sends is read and dropped, within limits.
Subclasses uvicorn internals: `tests/server/test_uvicorn_internals.py` names what is relied on.
"""

import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, ClassVar, Protocol

import orjson
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from apexbridge.errors import RequestError
from apexbridge.server.error_responses import error_body, http_status
from apexbridge.server.request_guard import MAX_URL_BYTES

_MAX_HEADER_BYTES = 65_536
_MAX_COALESCED_BYTES = 65_536
_MAX_LINGER_BYTES = 32 * 1024 * 1024
"""Read and dropped behind a refused request: somewhat more than the largest upload."""
_REFUSAL = (
    b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\n"
    b"connection: close\r\ncontent-length: %d\r\n\r\n%s"
)
_BUSY_RESPONSE = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n"
    b"retry-after: 1\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%s"
)
_BUSY_BODY = (
    b'{"error":{"message":"The server is at its connection limit","type":"server_error",'
    b'"param":null,"code":"server_busy","hint":"Try again in 1 second."}}'
)


class Transport(Protocol):
    """The part of an asyncio or uvloop transport that is used here."""

    def write(self, data: bytes) -> None:
        """Send data."""
        ...

    def close(self) -> None:
        """Close after all data is sent."""
        ...

    def is_closing(self) -> bool:
        """Return whether it is closed or closing."""
        ...

    def resume_reading(self) -> None:
        """Receive again, after a pause."""
        ...

    def can_write_eof(self) -> bool:
        """Return whether only the sending side can be closed."""
        ...

    def write_eof(self) -> None:
        """Close the sending side after all data is sent."""
        ...


CallSoon = Callable[[Callable[[], None]], object]
"""Schedules a callback for the next iteration of the event loop."""


class CoalescingTransport:
    """Transport that joins the writes of one event loop iteration into one system call.

    uvicorn writes response head and body separately: two packets, and two wake-ups of the client.
    """

    __slots__ = ("_call_soon", "_chunks", "_size", "_transport", "is_lingering", "must_linger")

    def __init__(
        self,
        transport: Transport,
        call_soon: CallSoon,
        must_linger: Callable[[], bool] = lambda: False,
    ) -> None:
        self._transport, self._call_soon = transport, call_soon
        self._chunks, self._size = list[bytes](), 0
        self.must_linger = must_linger
        """Asked when it is closed: whether the client still sends a request."""
        self.is_lingering = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Buffer data until the next iteration of the event loop."""
        if not self._chunks:
            self._call_soon(self._flush)
        self._chunks.append(data)
        self._size += len(data)
        if self._size > _MAX_COALESCED_BYTES:
            self._flush()  # or the transport's flow control would never pause the writer

    def is_closing(self) -> bool:
        """Return whether it is closed, or closed to all but what is still being received."""
        return self.is_lingering or self._transport.is_closing()

    def close(self) -> None:
        """Close after all data is sent, and what is still being received was read."""
        self._flush()
        is_first = not self.is_closing()
        if is_first and self.must_linger() and self._transport.can_write_eof():
            self.is_lingering = True
            self._transport.write_eof()
            self._transport.resume_reading()  # flow control may have paused it
        else:
            self._transport.close()

    def _flush(self) -> None:
        chunks, self._chunks, self._size = self._chunks, list[bytes](), 0
        if chunks and not self.is_closing():
            self._transport.write(chunks[0] if len(chunks) == 1 else b"".join(chunks))


class GuardedHttpProtocol(HttpToolsProtocol):
    """HTTP/1.1 connection with a header size limit, a connection limit and deadlines."""

    max_connections: ClassVar[int] = 4_096

    request_started: float | None = None
    """When the client began to send a request that is not complete, on the monotonic clock."""
    write_stalled: float | None = None
    """Since when the client does not read the response."""
    _is_in_headers = True
    _is_in_request_line = True
    _is_receiving = False
    _header_bytes = 0
    _linger_bytes = 0
    _linger_started: float | None = None

    def connection_made(self, transport: Transport) -> None:
        """Accept a connection, or answer HTTP 503 beyond the connection limit."""
        self._coalescing = CoalescingTransport(
            transport, self.loop.call_soon, lambda: self._is_receiving
        )
        super().connection_made(self._coalescing)  # pyright: ignore[reportArgumentType]
        self.request_started = time.monotonic()
        if len(self.connections) > self.max_connections:
            self.transport.write(_BUSY_RESPONSE % (len(_BUSY_BODY), _BUSY_BODY))
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        """Feed the parser, and refuse a request line or headers beyond the limit."""
        if self._coalescing.is_lingering:
            self._drop(data)
        if self.transport.is_closing():
            return
        if self.request_started is None:
            self.request_started = time.monotonic()
        if self._is_in_headers:
            self._header_bytes += len(data)
            self._is_in_request_line = self._is_in_request_line and b"\n" not in data
        super().data_received(data)
        is_too_large = self._is_in_headers and self._header_bytes > _MAX_HEADER_BYTES
        if is_too_large and not self.transport.is_closing():
            self._refuse_head()

    def _drop(self, data: bytes) -> None:
        """Drop what a refused client sends, and leave it beyond the limit."""
        self._linger_bytes += len(data)
        if self._linger_bytes > _MAX_LINGER_BYTES:
            self.transport.abort()

    def _refuse_head(self) -> None:
        is_url = self._is_in_request_line or len(self.url) > _MAX_HEADER_BYTES
        code, limit = (
            ("address_too_long", MAX_URL_BYTES)
            if is_url
            else ("headers_too_large", _MAX_HEADER_BYTES)
        )
        self._is_receiving = True  # the rest of it, at least
        self.transport.write(_refusal(RequestError(code=code, limit=limit)))
        self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Refuse what cannot be parsed, and a head that came in one piece and is too large."""
        if self._is_head_too_large():
            self._refuse_head()
        elif not self.transport.is_closing():
            self._is_receiving = True
            super().send_400_response(msg)

    def _is_head_too_large(self) -> bool:
        if not (self._is_receiving and self._is_in_headers):
            return False
        pairs = sum(len(name) + len(value) for name, value in self.headers)
        return len(self.url) + pairs > _MAX_HEADER_BYTES

    def on_message_begin(self) -> None:
        """Begin a request: until its end, the connection is not closed without lingering."""
        self._is_receiving = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Stop counting header bytes."""
        if self._is_head_too_large():
            raise ValueError  # ends the parser, which calls `send_400_response`
        self._is_in_headers, self._header_bytes = False, 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Expect the headers of the next request."""
        self._is_in_headers, self._is_in_request_line = True, True
        self._is_receiving = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Clear the deadline until the client sends again: idle keep-alive is uvicorn's matter."""
        self.request_started = None
        super().on_response_complete()

    def is_stalled(self, now: float, *, header_seconds: float, stall_seconds: float) -> bool:
        """Return whether it missed the header deadline, or stopped to read its response."""
        if self._coalescing.is_lingering:
            self._linger_started = self._linger_started or now
            return now - self._linger_started > header_seconds
        self.write_stalled = (self.write_stalled or now) if self.flow.write_paused else None
        if self.write_stalled is not None and now - self.write_stalled > stall_seconds:
            return True
        is_idle = self.cycle is None or self.cycle.response_complete  # pyright: ignore[reportUnnecessaryComparison]
        started = self.request_started
        return is_idle and started is not None and now - started > header_seconds


def _refusal(error: RequestError) -> bytes:
    """Return the whole response to a request that the parser does not hand on."""
    status, body = HTTPStatus(http_status(error)), orjson.dumps(error_body(error))
    return _REFUSAL % (status, status.phrase.encode(), len(body), body)


def close_stalled(server: uvicorn.Server, *, header_seconds: float, stall_seconds: float) -> int:
    """Abort every stalled connection; return how many."""
    now, count = time.monotonic(), 0
    for connection in tuple(server.server_state.connections):
        if isinstance(connection, GuardedHttpProtocol) and connection.is_stalled(
            now, header_seconds=header_seconds, stall_seconds=stall_seconds
        ):
            connection.transport.abort()
            count += 1
    return count
