"""Bodies on their way in: no larger and no slower than they may be, whoever reads them."""

import math
import time

import anyio
from starlette.types import Message, Receive

from apexbridge.errors import RequestError
from apexbridge.server.limits import Flight


class Body:
    """Receives for an application, and ends its request when the client asks too much."""

    __slots__ = ("_flight", "_is_begun", "_is_whole", "_limit", "_receive", "_seconds", "_size")

    def __init__(self, receive: Receive, flight: Flight, *, limit: int, seconds: float) -> None:
        self._receive, self._flight = receive, flight
        self._limit, self._seconds = limit, seconds
        self._size = 0
        self._is_begun = self._is_whole = False

    async def __call__(self) -> Message:
        """The next message, as an application gets it."""
        if self._is_whole:
            return await self._receive()
        if not self._is_begun:
            # From now on somebody waits; a body that nobody reads may come when it likes.
            self._is_begun = True
            self._flight.due = time.monotonic() + self._seconds
        message = await self._receive()
        self._size += len(message.get("body", b""))
        if self._size > self._limit:
            self._flight.stop(RequestError(code="body_too_large", limit=self._limit))
            await anyio.sleep_forever()  # it ends here, also where errors are swallowed
        if not message.get("more_body", False):
            self._is_whole = True
            self._flight.due = math.inf
        return message
