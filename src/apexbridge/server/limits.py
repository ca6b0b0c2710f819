"""Rate limiter, concurrency limiter, and limits on the size and duration of request bodies."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import anyio
from starlette.types import Message, Receive

from apexbridge.errors import ApexBridgeError, RequestError

_MINUTE = 60.0
RETRY_AFTER_SECONDS = 1
"""`Retry-After` of a response that refuses a request because the server is busy."""


def shutdown_error() -> RequestError:
    """Return the error for requests that arrive, or still run, when the server shuts down."""
    return RequestError(code="server_stopping", retry_after=5)


@dataclass(slots=True, eq=False)
class InFlightRequest:
    """A request in progress, with the cancel scope that ends it."""

    scope: anyio.CancelScope = field(default_factory=lambda: anyio.move_on_after(None))
    is_event_stream: bool = False
    """Whether it is an endless event stream: shutdown cancels it instead of draining it."""
    body_deadline: float = math.inf
    """When its body must be complete, on the monotonic clock."""
    error: ApexBridgeError | None = None
    is_disconnected: bool = False
    """Whether its client disconnected, so that no error response can be sent."""

    def cancel(self, error: ApexBridgeError) -> None:
        """Cancel it; the first error given is the one that is sent."""
        self.error = self.error or error
        self.scope.cancel()

    def disconnect(self) -> None:
        """Cancel it because its client disconnected."""
        self.is_disconnected = True
        self.scope.cancel()


class ConcurrencyLimiter:
    """Limits the requests in progress, and drains them on graceful shutdown."""

    def __init__(self) -> None:
        self._requests: set[InFlightRequest] = set()
        self._idle = anyio.Event()
        self.is_starting = False
        self.is_stopping = False

    def __len__(self) -> int:
        return len(self._requests)

    def acquire(self, limit: int | None) -> InFlightRequest:
        """Admit a request unless `limit` are in progress; `release` must follow.

        Raises:
            RequestError: `server_busy` (HTTP 503) at the limit.
        """
        if limit is not None and len(self._requests) >= limit:
            raise RequestError(code="server_busy", retry_after=RETRY_AFTER_SECONDS)
        request = InFlightRequest()
        self._requests.add(request)
        return request

    def release(self, request: InFlightRequest) -> None:
        """Remove a request that has ended."""
        self._requests.discard(request)
        if self.is_stopping and not self._requests:
            self._idle.set()

    def mark_event_stream(self, request: InFlightRequest) -> None:
        """Mark a request as an endless event stream."""
        request.is_event_stream = True
        if self.is_stopping:
            request.cancel(shutdown_error())

    def stop(self) -> None:
        """Begin a graceful shutdown: admit nothing, and cancel endless event streams."""
        self.is_stopping = True
        for request in tuple(self._requests):
            if request.is_event_stream:
                request.cancel(shutdown_error())
        if not self._requests:
            self._idle.set()

    def cancel_slow_bodies(self, now: float) -> None:
        """Cancel requests whose body missed its deadline (HTTP 408)."""
        # A periodic sweep over all, because a timer for each request costs more.
        for request in tuple(self._requests):
            if request.body_deadline < now:
                request.cancel(RequestError(code="request_slow"))

    def cancel_all(self) -> None:
        """Cancel everything that is still in progress."""
        for request in tuple(self._requests):
            request.cancel(shutdown_error())

    async def drain(self, timeout: float) -> bool:  # noqa: ASYNC109  # the bound is its purpose
        """Wait at most `timeout` seconds for requests to end; return whether all have."""
        with anyio.move_on_after(timeout):
            await self._idle.wait()
        return not self._requests


class RateLimiter:
    """Token bucket per API key: bursts up to a minute's worth, refilled continuously."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute, self._clock = per_minute, clock
        self._buckets: dict[str, tuple[float, float]] = {}

    def acquire(self, key: str) -> None:
        """Take one token from a key's bucket.

        Raises:
            RequestError: `rate_limited` (HTTP 429) with `Retry-After` if the bucket is empty.
        """
        if not self._per_minute:
            return
        now, capacity = self._clock(), float(self._per_minute)
        tokens, updated = self._buckets.get(key, (capacity, now))
        tokens = min(capacity, tokens + (now - updated) * capacity / _MINUTE)
        if tokens < 1:
            self._buckets[key] = (tokens, now)
            wait = math.ceil((1 - tokens) * _MINUTE / capacity)
            raise RequestError(code="rate_limited", retry_after=max(1, wait))
        self._buckets[key] = (tokens - 1, now)


class LimitedReceive:
    """ASGI `receive` that cancels a request whose body is too large or too slow."""

    __slots__ = ("_in_flight", "_is_complete", "_is_started", "_limit", "_receive", "_seconds",
                 "_size")  # fmt: skip

    def __init__(
        self, receive: Receive, in_flight: InFlightRequest, *, limit: int, seconds: float
    ) -> None:
        self._receive, self._in_flight = receive, in_flight
        self._limit, self._seconds = limit, seconds
        self._size = 0
        self._is_started = self._is_complete = False

    async def __call__(self) -> Message:
        """Receive the next ASGI message."""
        if self._is_complete:
            return await self._receive()
        if not self._is_started:
            # The deadline runs from the first read: a body that no endpoint reads may be slow.
            self._is_started = True
            self._in_flight.body_deadline = time.monotonic() + self._seconds
        message = await self._receive()
        self._size += len(message.get("body", b""))
        if self._size > self._limit:
            self._in_flight.cancel(RequestError(code="body_too_large", limit=self._limit))
            # Not an exception, which an endpoint could swallow: the cancel scope ends it here.
            await anyio.sleep_forever()
        if not message.get("more_body", False):
            self._is_complete = True
            self._in_flight.body_deadline = math.inf
        return message
