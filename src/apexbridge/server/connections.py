"""Slowloris protection: close connections that miss the header deadline or stop reading.

uvicorn's HTTP parser waits without limit and buffers any header. So each connection records when
its client began to send or stopped to receive, and a sweep closes the ones that take too long.
Subclasses uvicorn internals: `tests/server/test_uvicorn_internals.py` names what is relied on.
"""

import time
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_MAX_HEADER_BYTES = 65_536
_MAX_COALESCED_BYTES = 65_536
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


CallSoon = Callable[[Callable[[], None]], object]
"""Schedules a callback for the next iteration of the event loop."""


class CoalescingTransport:
    """Transport that joins the writes of one event loop iteration into one system call.

    uvicorn writes response head and body separately: two packets, and two wake-ups of the client.
    """

    __slots__ = ("_call_soon", "_chunks", "_size", "_transport", "is_closing")

    def __init__(self, transport: Transport, call_soon: CallSoon) -> None:
        self._transport, self._call_soon = transport, call_soon
        self._chunks, self._size = list[bytes](), 0
        self.is_closing = transport.is_closing

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

    def close(self) -> None:
        """Close after all data is sent."""
        self._flush()
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
    _header_bytes = 0

    def connection_made(self, transport: Transport) -> None:
        """Accept a connection, or answer HTTP 503 beyond the connection limit."""
        coalescing = CoalescingTransport(transport, self.loop.call_soon)
        super().connection_made(coalescing)  # pyright: ignore[reportArgumentType]
        self.request_started = time.monotonic()
        if len(self.connections) > self.max_connections:
            self.transport.write(_BUSY_RESPONSE % (len(_BUSY_BODY), _BUSY_BODY))
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        """Feed the parser, and answer HTTP 400 to headers beyond the limit."""
        if self.transport.is_closing():
            return
        if self.request_started is None:
            self.request_started = time.monotonic()
        if self._is_in_headers:
            self._header_bytes += len(data)
        super().data_received(data)
        is_too_large = self._is_in_headers and self._header_bytes > _MAX_HEADER_BYTES
        if is_too_large and not self.transport.is_closing():
            self.send_400_response("The request headers are too large.")

    def on_headers_complete(self) -> None:
        """Stop counting header bytes."""
        self._is_in_headers, self._header_bytes = False, 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Expect the headers of the next request."""
        self._is_in_headers = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Clear the deadline until the client sends again: idle keep-alive is uvicorn's matter."""
        self.request_started = None
        super().on_response_complete()

    def is_stalled(self, now: float, *, header_seconds: float, stall_seconds: float) -> bool:
        """Return whether it missed the header deadline, or stopped to read its response."""
        self.write_stalled = (self.write_stalled or now) if self.flow.write_paused else None
        if self.write_stalled is not None and now - self.write_stalled > stall_seconds:
            return True
        is_idle = self.cycle is None or self.cycle.response_complete  # pyright: ignore[reportUnnecessaryComparison]
        started = self.request_started
        return is_idle and started is not None and now - started > header_seconds


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
