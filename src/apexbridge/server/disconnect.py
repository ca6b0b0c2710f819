"""Clients that go away before they are answered: what is done for them ends.

To listen for each client costs more than many a request. So nobody listens at first: only where an
answer takes its time, somebody begins to.
"""

import time
from collections.abc import Callable, Coroutine
from types import TracebackType

import anyio
from starlette.types import Receive

from apexbridge.server.limits import InFlightRequest

GRACE_SECONDS = 0.2

SpawnTask = Callable[[Callable[[], Coroutine[None, None, None]]], None]
"""Begins something that ends with the server at the latest."""


class _WaitingClient:
    """A client that waits for the length of a block, and what is done for it."""

    __slots__ = ("_flight", "_others", "_receive", "listening", "since")

    def __init__(
        self, receive: Receive, flight: InFlightRequest, others: "set[_WaitingClient]"
    ) -> None:
        self._receive, self._flight, self._others = receive, flight, others
        self.since = time.monotonic()
        self.listening: anyio.CancelScope | None = None

    def __enter__(self) -> None:
        self._others.add(self)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._others.remove(self)
        if self.listening is not None:
            self.listening.cancel()

    async def listen(self) -> None:
        """End the request when the client is gone."""
        with self.listening or anyio.CancelScope():
            while (await self._receive())["type"] != "http.disconnect":
                pass
            if self in self._others:
                self._flight.abandon()


class DisconnectMonitor:
    """All clients of one server that wait for an answer."""

    def __init__(self) -> None:
        self._waiting: set[_WaitingClient] = set()
        self._is_looking = False

    def watched(
        self, receive: Receive, flight: InFlightRequest, start: SpawnTask
    ) -> _WaitingClient:
        """Do something for a client; the request is abandoned if the client goes away."""
        if not self._is_looking:
            self._is_looking = True
            start(lambda: self._look(start))
        return _WaitingClient(receive, flight, self._waiting)

    async def _look(self, start: SpawnTask) -> None:
        """Find those who wait for long, until nobody waits."""
        try:
            while True:
                await anyio.sleep(GRACE_SECONDS)
                if not self._waiting:
                    return
                late = time.monotonic() - GRACE_SECONDS
                for client in self._waiting:
                    if client.listening is None and client.since <= late:
                        client.listening = anyio.CancelScope()
                        start(client.listen)
        finally:
            self._is_looking = False
