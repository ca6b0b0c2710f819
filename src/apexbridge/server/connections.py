"""Connections of clients that take their time, or more than their share.

The parser of requests waits for ever, and takes whatever comes. So each connection knows since
when it owes something, and the one that owes it for too long is closed.
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
    b'{"error":{"message":"The server has all it can do","type":"server_error","param":null,'
    b'"code":"server_busy","hint":"Try again in 1 seconds."}}'
)


class Transport(Protocol):
    """What is used of a transport here, whichever loop it belongs to."""

    def write(self, data: bytes) -> None:
        """Send something."""
        ...

    def close(self) -> None:
        """Close it when everything is sent."""
        ...

    def is_closing(self) -> bool:
        """Whether it is closed, or about to be."""
        ...


CallSoon = Callable[[Callable[[], None]], object]
"""Calls something as soon as others have had their turns."""


class CoalescingTransport:
    """A transport that sends what is written in one go in one go: a head goes with its body.

    To the system, and to the client that it wakes, each piece costs as much as a whole answer.
    """

    __slots__ = ("_later", "_pieces", "_size", "_transport", "is_closing")

    def __init__(self, transport: Transport, later: CallSoon) -> None:
        self._transport, self._later = transport, later
        self._pieces, self._size = list[bytes](), 0
        self.is_closing = transport.is_closing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send something, as soon as whoever writes lets others go on."""
        if not self._pieces:
            self._later(self._send)
        self._pieces.append(data)
        self._size += len(data)
        if self._size > _MAX_COALESCED_BYTES:
            self._send()  # or a client that reads slowly would never hold its writer up

    def close(self) -> None:
        """Close it when everything is sent."""
        self._send()
        self._transport.close()

    def _send(self) -> None:
        pieces, self._pieces, self._size = self._pieces, list[bytes](), 0
        if pieces and not self.is_closing():
            self._transport.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))


class GuardedHttpProtocol(HttpToolsProtocol):
    """One connection; patient, but not without end."""

    most: ClassVar[int] = 4_096
    """How many there may be at a time."""

    owing: float | None = None
    """Since when the client owes the rest of what it began to send."""
    stuck: float | None = None
    """Since when it takes nothing of what it is sent."""
    _is_in_head = True
    _head = 0

    def connection_made(self, transport: Transport) -> None:
        """Somebody came."""
        gathering = CoalescingTransport(transport, self.loop.call_soon)
        super().connection_made(gathering)  # pyright: ignore[reportArgumentType]
        self.owing = time.monotonic()
        if len(self.connections) > self.most:
            self.transport.write(_BUSY_RESPONSE % (len(_BUSY_BODY), _BUSY_BODY))
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        """Something came; a head that does not end is too much."""
        if self.transport.is_closing():
            return
        if self.owing is None:
            self.owing = time.monotonic()
        if self._is_in_head:
            self._head += len(data)
        super().data_received(data)
        if self._is_in_head and self._head > _MAX_HEADER_BYTES and not self.transport.is_closing():
            self.send_400_response("The head of the request is too large.")

    def on_headers_complete(self) -> None:
        """The head is there."""
        self._is_in_head, self._head = False, 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """All of a request is there, and the next head may come."""
        self._is_in_head = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """It was answered, and nothing is owed until it says more."""
        self.owing = None
        super().on_response_complete()

    def is_late(self, now: float, *, head_seconds: float, stuck_seconds: float) -> bool:
        """Whether its time is over; during a request, only who takes nothing is late."""
        self.stuck = (self.stuck or now) if self.flow.write_paused else None
        if self.stuck is not None and now - self.stuck > stuck_seconds:
            return True
        is_answered = self.cycle is None or self.cycle.response_complete  # pyright: ignore[reportUnnecessaryComparison]
        return is_answered and self.owing is not None and now - self.owing > head_seconds


def close_stalled(server: uvicorn.Server, *, head_seconds: float, stuck_seconds: float) -> int:
    """Close every connection whose time is over; how many those were."""
    now, late = time.monotonic(), 0
    for connection in tuple(server.server_state.connections):
        if isinstance(connection, GuardedHttpProtocol) and connection.is_late(
            now, head_seconds=head_seconds, stuck_seconds=stuck_seconds
        ):
            connection.transport.abort()
            late += 1
    return late
