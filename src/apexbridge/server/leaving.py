"""Clients that go away before they are answered: what is done for them ends.

To listen for each client costs more than many a request. So nobody listens at first: only where an
answer takes its time, somebody begins to.
"""

from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from dataclasses import dataclass

import anyio
from starlette.types import Receive

AFTER_SECONDS = 0.2

Start = Callable[[Callable[[], Coroutine[None, None, None]]], None]
"""Begins something that ends with the server at the latest."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """A client that waits, and what is done for it."""

    receive: Receive
    work: anyio.CancelScope
    since: float
    listening: anyio.CancelScope | None = None

    async def listen(self) -> None:
        """End the work when the client is gone."""
        with self.listening or anyio.CancelScope():
            while (await self.receive())["type"] != "http.disconnect":
                pass
            self.work.cancel()


class Leaving:
    """All clients of one server that wait for an answer."""

    def __init__(self) -> None:
        self._waiting: set[_Waiting] = set()
        self._is_looking = False

    @contextmanager
    def watched(self, receive: Receive, start: Start) -> Generator[anyio.CancelScope]:
        """Do something for a client; it is cancelled if the client goes away."""
        with anyio.CancelScope() as scope:
            client = _Waiting(receive, scope, anyio.current_time())
            self._waiting.add(client)
            if not self._is_looking:
                self._is_looking = True
                start(lambda: self._look(start))
            try:
                yield scope
            finally:
                self._waiting.remove(client)
                if client.listening is not None:
                    client.listening.cancel()

    async def _look(self, start: Start) -> None:
        """Find those who wait for long, until nobody waits."""
        try:
            while self._waiting:
                await anyio.sleep(AFTER_SECONDS)
                late = anyio.current_time() - AFTER_SECONDS
                for client in self._waiting:
                    if client.listening is None and client.since <= late:
                        client.listening = anyio.CancelScope()
                        start(client.listen)
        finally:
            self._is_looking = False
