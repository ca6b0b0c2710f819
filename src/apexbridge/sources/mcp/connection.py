"""Connection to an MCP server: address, secret redaction, stderr tail, and event loop thread."""

import math
import os
import re
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Generic, TextIO, TypeVar
from urllib.parse import parse_qsl, urlsplit

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup, TaskStatus
from anyio.from_thread import BlockingPortal, start_blocking_portal

_SHORTEST_SECRET = 4
_SCHEMES = frozenset({"Bearer", "Basic", "Token", "Digest"})
_CONTROL_CHARACTERS = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\s]+"
)
_NOT_NAME_CHARACTER = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """Command to start (stdio) or URL to request (HTTP); secrets are left out of its repr."""

    command: str = ""
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Environment variables in addition to the default ones."""
    url: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    seconds: float = 30
    """Timeout of one call, including the connect."""

    def redact(self, text: str) -> str:
        """Mask secrets in a text: values of the environment, headers and URL."""
        for secret in sorted(set(self._secrets()), key=len, reverse=True):
            text = text.replace(secret, "***")
        return text

    def _secrets(self) -> Iterator[str]:
        parts = urlsplit(self.url)
        query = [value for _, value in parse_qsl(parts.query)]
        for value in (*self.env.values(), *self.headers.values(), parts.password or "", *query):
            for piece in (value, *value.split()):
                if len(piece) >= _SHORTEST_SECRET and piece not in _SCHEMES:
                    yield piece
                    encoded = piece.encode("utf-8", "surrogateescape")
                    yield repr(encoded)[2:-1]  # as a message shows bytes


def sanitize_line(text: str, limit: int) -> str:
    """Strip control characters (terminal escapes) and truncate to one line."""
    line = _CONTROL_CHARACTERS.sub(" ", text[: limit * 4]).strip()
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def qualified_name(server: str, name: str) -> str:
    """Build the skill name that users and models see.

    >>> qualified_name("my server", "tell/all")
    'mcp__my_server__tell_all'
    """
    return f"mcp__{_NOT_NAME_CHARACTER.sub('_', server)}__{_NOT_NAME_CHARACTER.sub('_', name)}"


MAX_STDERR_BYTES = 4 * 1024
MAX_STDERR_LINES = 5


class StderrTail:
    """Ring buffer of a process's stderr, read from a pipe."""

    def __init__(self) -> None:
        self._buffer = b""
        self._is_truncated = False

    @property
    def text(self) -> str:
        """The last complete lines: redaction would miss a secret that is cut in half."""
        lines = self._buffer.decode("utf-8", "replace").splitlines()[self._is_truncated :]
        return " | ".join([line.strip() for line in lines if line.strip()][-MAX_STDERR_LINES:])

    @asynccontextmanager
    async def open_pipe(self) -> AsyncGenerator[TextIO]:
        """Open a pipe and yield its write end for a process; the caller closes it then."""
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        try:
            with os.fdopen(writer, "w", encoding="utf-8") as file:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._follow, reader)
                    try:
                        yield file
                    finally:
                        tasks.cancel_scope.cancel()
        finally:
            for _ in range(64):  # not until EOF: a grandchild may keep the pipe open forever
                if not self._read_chunk(reader):
                    break
            os.close(reader)

    async def _follow(self, reader: int) -> None:
        while True:
            await anyio.wait_readable(reader)
            if not self._read_chunk(reader):
                return

    def _read_chunk(self, reader: int) -> bool:
        try:
            data = os.read(reader, 64 * 1024)
        except BlockingIOError:
            return False
        longer = self._buffer + data
        self._is_truncated = self._is_truncated or len(longer) > MAX_STDERR_BYTES
        self._buffer = longer[-MAX_STDERR_BYTES:]
        return bool(data)


_GRACE_SECONDS = 5.0

T = TypeVar("T")
R = TypeVar("R")


class ConnectionLostError(Exception):
    """The connection ended; `__cause__` is the reason, if known."""


class ConnectionClosedError(Exception):
    """The connection was closed by its owner."""


@dataclass(slots=True, eq=False)
class _OpenConnection(Generic[T]):
    """One connection attempt, from connect to close."""

    scope: anyio.CancelScope
    ready: anyio.Event = field(default_factory=anyio.Event)
    closed: anyio.Event = field(default_factory=anyio.Event)
    values: list[T] = field(default_factory=list[T])
    calls: set[anyio.CancelScope] = field(default_factory=set[anyio.CancelScope])
    error: Exception | None = None


class SharedConnection(Generic[T]):
    """Share one async context among callers, on an event loop thread; reconnect after a loss.

    An anyio context must be exited by the task that entered it, and no task may outlive the call
    that started it. So the context runs in its own event loop, and callers in any loop send their
    work there.
    """

    def __init__(
        self, connect: Callable[[], AbstractAsyncContextManager[T]], *, seconds: float
    ) -> None:
        self._connect = connect
        self._seconds = seconds
        self._lock = threading.Lock()
        self._portal: BlockingPortal | None = None
        self._closing = ExitStack()
        self._is_closed = False
        self._connection: _OpenConnection[T] | None = None
        self._tasks: TaskGroup
        self._stop: anyio.Event

    async def run(self, work: Callable[[T], Awaitable[R]]) -> R:
        """Call an async function with the connection; retry once if an older one was lost.

        Raises:
            ConnectionLostError: If the connect fails, or the connection is lost at once.
            TimeoutError: If connect and call take too long; the next call reconnects.
            ConnectionClosedError: If it was closed.
        """
        portal = await anyio.to_thread.run_sync(self._start)
        try:
            # The other loop enforces the deadline; this is for a loop that ends meanwhile.
            with anyio.fail_after(self._seconds + _GRACE_SECONDS):
                return await portal.call_async(self._attempt, work, abandon_on_cancel=True)
        except RuntimeError:
            if self._is_closed:
                raise ConnectionClosedError from None
            raise

    async def close(self) -> None:
        """Close the connection and stop the thread."""
        await anyio.to_thread.run_sync(self._close_blocking)

    def _start(self) -> BlockingPortal:
        with self._lock:
            if self._is_closed:
                raise ConnectionClosedError
            if self._portal is None:
                self._portal = self._closing.enter_context(start_blocking_portal())
                self._portal.start_task(self._main)
                self._closing.callback(self._portal.call, self._stop.set)
            return self._portal

    def _close_blocking(self) -> None:
        with self._lock:
            self._is_closed = True
            self._closing.close()

    async def _main(self, *, task_status: TaskStatus[None]) -> None:
        self._stop = anyio.Event()
        async with anyio.create_task_group() as self._tasks:
            task_status.started()
            await self._stop.wait()
            self._tasks.cancel_scope.cancel()

    async def _attempt(self, work: Callable[[T], Awaitable[R]]) -> R:
        previous = connection = self._connection
        try:
            with anyio.fail_after(self._seconds):
                if previous is not None:
                    with suppress(ConnectionLostError):
                        return await self._use(previous, work)
                connection = self._get_or_connect()
                return await self._use(connection, work)
        except TimeoutError:
            self._drop(connection)
            raise

    async def _use(self, connection: _OpenConnection[T], work: Callable[[T], Awaitable[R]]) -> R:
        await connection.ready.wait()
        if not connection.values:
            raise ConnectionLostError from connection.error
        with anyio.CancelScope() as scope:
            connection.calls.add(scope)
            try:
                return await work(connection.values[0])
            except ConnectionLostError:
                self._drop(connection)
                # By then the cause is known and the context is exited.
                await connection.closed.wait()
                raise
            finally:
                connection.calls.discard(scope)
        raise ConnectionLostError from connection.error

    def _get_or_connect(self) -> _OpenConnection[T]:
        """Return the current connection, or start a new one."""
        if self._is_closed:
            raise ConnectionClosedError
        if self._connection is None:
            scope = anyio.CancelScope(deadline=anyio.current_time() + self._seconds)
            self._connection = _OpenConnection[T](scope)
            self._tasks.start_soon(self._hold_open, self._connection)
        return self._connection

    async def _hold_open(self, connection: _OpenConnection[T]) -> None:
        try:
            with connection.scope:
                async with self._connect() as value:
                    connection.scope.deadline = math.inf
                    connection.values.append(value)
                    connection.ready.set()
                    await anyio.sleep_forever()
        except Exception as error:  # noqa: BLE001  # raised again in the callers that wait for it
            connection.error = error
        finally:
            self._drop(connection)
            connection.ready.set()
            connection.closed.set()
            for scope in connection.calls:
                scope.cancel()

    def _drop(self, connection: _OpenConnection[T] | None) -> None:
        """Discard a connection, so that the next call reconnects."""
        if connection is not None:
            connection.scope.cancel()
            if self._connection is connection:
                self._connection = None
