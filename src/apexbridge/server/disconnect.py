"""Client disconnects: cancel the work for a client that closes its connection.

Listening on every ASGI channel costs more than a short request does. So a request is watched only
once it has run for `GRACE_SECONDS`.
"""

import time
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import TypeVar

import anyio
from starlette.requests import Request
from starlette.types import Receive

from apexbridge.errors import RequestError
from apexbridge.server.limits import InFlightRequest

GRACE_SECONDS = 0.2

Result = TypeVar("Result")
SpawnTask = Callable[[Callable[[], Coroutine[None, None, None]]], None]
"""Starts a background task that ends with the server at the latest."""


class _WaitingClient:
    """Context manager around the work for one waiting client."""

    __slots__ = ("_clients", "_in_flight", "_receive", "listener", "since")

    def __init__(
        self, receive: Receive, in_flight: InFlightRequest, clients: "set[_WaitingClient]"
    ) -> None:
        self._receive, self._in_flight, self._clients = receive, in_flight, clients
        self.since = time.monotonic()
        self.listener: anyio.CancelScope | None = None

    def __enter__(self) -> None:
        self._clients.add(self)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._clients.remove(self)
        if self.listener is not None:
            self.listener.cancel()

    async def listen(self) -> None:
        """Cancel the request on `http.disconnect`."""
        with self.listener or anyio.CancelScope():
            while (await self._receive())["type"] != "http.disconnect":
                pass
            if self in self._clients:
                self._in_flight.disconnect()


class DisconnectMonitor:
    """Watches all clients of one server that wait for a response."""

    def __init__(self) -> None:
        self._clients: set[_WaitingClient] = set()
        self._is_polling = False

    def watch(
        self, receive: Receive, in_flight: InFlightRequest, spawn: SpawnTask
    ) -> _WaitingClient:
        """Return a context manager whose block is cancelled when the client disconnects."""
        if not self._is_polling:
            self._is_polling = True
            spawn(lambda: self._poll(spawn))
        return _WaitingClient(receive, in_flight, self._clients)

    async def _poll(self, spawn: SpawnTask) -> None:
        """Start a listener for each client past the grace period, until no client waits."""
        try:
            while True:
                await anyio.sleep(GRACE_SECONDS)
                if not self._clients:
                    return
                limit = time.monotonic() - GRACE_SECONDS
                for client in self._clients:
                    if client.listener is None and client.since <= limit:
                        client.listener = anyio.CancelScope()
                        spawn(client.listen)
        finally:
            self._is_polling = False


async def run_until_disconnect(request: Request, work: Callable[[], Awaitable[Result]]) -> Result:
    """Run `work` and cancel it on disconnect; the request body must have been read.

    Raises:
        RequestError: If the client disconnected; it is logged and not sent.
    """
    results = list[Result]()
    failures = list[Exception]()
    async with anyio.create_task_group() as tasks:

        async def watch() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass
            tasks.cancel_scope.cancel()

        tasks.start_soon(watch)
        try:
            results.append(await work())
        except Exception as error:  # noqa: BLE001  # raised below, outside the exception group
            failures.append(error)
        tasks.cancel_scope.cancel()
    if failures:
        raise failures[0]
    if not results:
        raise RequestError("the client disconnected")
    return results[0]
