"""What is worked on at a time, how often a key may ask, and how a server comes to rest."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import anyio
from starlette.types import Message, Receive

from apexbridge.errors import ApexBridgeError, RequestError

_MINUTE = 60.0
RETRY_AFTER_SECONDS = 1
"""Seconds after which it is worth trying a busy server again."""


def shutdown_error() -> RequestError:
    """What is said to whoever comes, or still waits, when the server stops."""
    return RequestError(code="server_stopping", retry_after=5)


@dataclass(slots=True, eq=False)
class InFlightRequest:
    """A request that is worked on."""

    scope: anyio.CancelScope = field(default_factory=lambda: anyio.move_on_after(None))
    is_listener: bool = False
    """Whether it only listens to what happens: nothing is lost when it ends."""
    due: float = math.inf
    """When its body must be there, by the clock that nobody can set."""
    refusal: ApexBridgeError | None = None
    is_abandoned: bool = False
    """Whether its client went away: there is nobody to tell anything."""

    def stop(self, why: ApexBridgeError) -> None:
        """End it, wherever it is; the first reason is the one that is told."""
        self.refusal = self.refusal or why
        self.scope.cancel()

    def abandon(self) -> None:
        """End it, for nobody waits for it any more."""
        self.is_abandoned = True
        self.scope.cancel()


class ConcurrencyLimiter:
    """Every request that is worked on."""

    def __init__(self) -> None:
        self._flights: set[InFlightRequest] = set()
        self._idle = anyio.Event()
        self.is_starting = False
        self.is_stopping = False

    def __len__(self) -> int:
        return len(self._flights)

    def admit(self, most: int | None) -> InFlightRequest:
        """Take in one more, if there are fewer than so many; it must `leave`.

        Raises:
            RequestError: If there are as many as there may be.
        """
        if most is not None and len(self._flights) >= most:
            raise RequestError(code="server_busy", retry_after=RETRY_AFTER_SECONDS)
        flight = InFlightRequest()
        self._flights.add(flight)
        return flight

    def leave(self, flight: InFlightRequest) -> None:
        """It has ended."""
        self._flights.discard(flight)
        if self.is_stopping and not self._flights:
            self._idle.set()

    def listens(self, flight: InFlightRequest) -> None:
        """It turned out to be one that would never end by itself."""
        flight.is_listener = True
        if self.is_stopping:
            flight.stop(shutdown_error())

    def stop(self) -> None:
        """Take in no more, and let go of those that only listen."""
        self.is_stopping = True
        for flight in tuple(self._flights):
            if flight.is_listener:
                flight.stop(shutdown_error())
        if not self._flights:
            self._idle.set()

    def stop_late(self, now: float) -> None:
        """End those whose bodies should be there by now; a timer for each would cost more."""
        for flight in tuple(self._flights):
            if flight.due < now:
                flight.stop(RequestError(code="request_slow"))

    def cut_off(self) -> None:
        """End all that is still worked on."""
        for flight in tuple(self._flights):
            flight.stop(shutdown_error())

    async def rest(self, seconds: float) -> bool:
        """Wait until nothing is worked on, but no longer than that; whether it came to it."""
        with anyio.move_on_after(seconds):
            await self._idle.wait()
        return not self._flights


class RateLimiter:
    """How often each key may ask: as often as it likes for a moment, so often in a minute."""

    def __init__(self, each_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._each_minute, self._clock = each_minute, clock
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, key: str) -> None:
        """Count one request of a key.

        Raises:
            RequestError: If it was one too many; when to come back is in it.
        """
        if not self._each_minute:
            return
        now, most = self._clock(), float(self._each_minute)
        left, since = self._left.get(key, (most, now))
        left = min(most, left + (now - since) * most / _MINUTE)
        if left < 1:
            self._left[key] = (left, now)
            wait = math.ceil((1 - left) * _MINUTE / most)
            raise RequestError(code="rate_limited", retry_after=max(1, wait))
        self._left[key] = (left - 1, now)


class LimitedReceive:
    """Receives for an application, and ends its request when the client asks too much."""

    __slots__ = ("_flight", "_is_begun", "_is_whole", "_limit", "_receive", "_seconds", "_size")

    def __init__(
        self, receive: Receive, flight: InFlightRequest, *, limit: int, seconds: float
    ) -> None:
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
