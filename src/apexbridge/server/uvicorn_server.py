"""uvicorn server: bind, warm up, serve, and shut down gracefully on a signal."""

import gc
import logging
import resource
import signal
import socket
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import anyio
import uvicorn
from anyio.abc import TaskGroup, TaskStatus
from starlette.types import ASGIApp

from apexbridge.api_keys import ApiKeyStore
from apexbridge.errors import ApexBridgeError, ConfigError
from apexbridge.runtime import Runtime
from apexbridge.server.app import build_app
from apexbridge.server.approvals import ApprovalQueue
from apexbridge.server.connections import GuardedHttpProtocol, close_stalled
from apexbridge.server.logs import flush_logs
from apexbridge.server.request_guard import format_host, is_unspecified
from apexbridge.server.routes import ROUTES
from apexbridge.server.routing import AppState
from apexbridge.settings import ServerSettings

log = logging.getLogger(__name__)

MountedApp = ASGIApp
"""A sub-application at a path of the server."""

_MAX_HEADER_SECONDS = 10.0
_STALL_SECONDS = 60.0
_SHUTDOWN_SECONDS = 10.0
_BACKLOG = 2_048
_WANTED_FDS = 65_536
_RESERVED_FDS = 256
_INDEX_POLL_SECONDS = 0.05
_GC_THRESHOLD = (100_000, 20, 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """URL of a running server, and the one-time token that signs in to its console."""

    url: str
    token: str

    @property
    def console(self) -> str:
        """URL that opens the console signed in; a fragment, so that no log records the token."""
        return f"{self.url}/console/#token={self.token}"


class _SignalFreeServer(uvicorn.Server):
    """uvicorn server that leaves signals to `serve`."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Install no signal handlers."""
        yield


async def serve(
    runtime: Runtime,
    settings: ServerSettings,
    *,
    mounts: Mapping[str, MountedApp],
    announce: Callable[[ServerAddress], None],
    at_stop: Sequence[Callable[[], None]] = (),
) -> signal.Signals | None:
    """Serve HTTP until SIGTERM or SIGINT, then shut down gracefully.

    `at_stop` are called at the first signal, so that mounted applications end their event streams.

    Returns:
        The second signal, if one cut the graceful shutdown short.

    Raises:
        ConfigError: `bind_failed` if the address cannot be bound.
    """
    state = AppState(
        runtime=runtime,
        keys=ApiKeyStore(runtime.config.data / "keys.json"),
        approvals=ApprovalQueue(settings.approval_seconds),
        settings=settings,
    )
    subscription = runtime.listen(state.metrics.on_event)
    with _bound_socket(settings) as listener, subscription, _relaxed_gc():
        server = _SignalFreeServer(_uvicorn_config(build_app(state, ROUTES, mounts), settings))
        background = _ServerTasks(state, server, at_stop)
        runtime.script_runner.runs.listener = state.metrics.record_run
        state.concurrency.is_starting = True
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(background.warm_up)
            tasks.start_soon(background.sweep)
            await tasks.start(background.handle_signals, tasks)
            url, token = _local_url(listener, settings), state.sessions.issue_token()
            announce(ServerAddress(url=url, token=token))
            await server.serve([listener])
            tasks.cancel_scope.cancel()
    return background.second_signal


class _ServerTasks:
    """Background tasks of a server: warm-up, sweep of slow clients, signal handling."""

    def __init__(
        self, state: AppState, server: uvicorn.Server, at_stop: Sequence[Callable[[], None]]
    ) -> None:
        self._state, self._server, self._at_stop = state, server, at_stop
        self.second_signal: signal.Signals | None = None

    async def warm_up(self) -> None:
        """Select the sandbox and load the index before the first request needs them."""
        runtime = self._state.runtime
        for step in (runtime.script_runner.select_sandbox, self._warm_index):
            try:
                await step()
            except ApexBridgeError as error:
                # Not fatal: the request that needs it reports the same error.
                log.warning("Warm-up failed: %s", error)
        self._state.concurrency.is_starting = False
        # Objects alive now are permanent: a garbage collection over them takes longer than a
        # request does.
        gc.collect()
        gc.freeze()

    async def _warm_index(self) -> None:
        index = await self._state.runtime.index_service.index()
        index.check_interval_seconds = _INDEX_POLL_SECONDS

    async def sweep(self) -> None:
        """Close stalled connections, and flush the access log."""
        deadline = min(_MAX_HEADER_SECONDS, self._state.settings.body_timeout_seconds)
        while True:
            await anyio.sleep(min(1.0, deadline / 2))
            flush_logs()
            self._state.concurrency.cancel_slow_bodies(time.monotonic())
            count = close_stalled(
                self._server, header_seconds=deadline, stall_seconds=_STALL_SECONDS
            )
            if count:
                log.info("Closed %d stalled connections", count)

    async def handle_signals(self, tasks: TaskGroup, *, task_status: TaskStatus[None]) -> None:
        """Shut down gracefully at the first signal, at once at the second."""
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            task_status.started()  # before the URL is announced: a reader of it may send a signal
            async for number in signals:
                if self._state.concurrency.is_stopping:
                    self.second_signal = number
                    self._state.concurrency.cancel_all()
                    return  # leaves the third signal to the default handler, which kills
                log.info("Shutting down: %s", number.name)
                self._state.concurrency.stop()
                for callback in self._at_stop:
                    callback()
                tasks.start_soon(self._drain)

    async def _drain(self) -> None:
        """Wait for requests in progress, and cancel those that outlast the drain period."""
        concurrency = self._state.concurrency
        if not await concurrency.drain(self._state.settings.drain_seconds):
            log.warning("Cancelling %d requests", len(concurrency))
            concurrency.cancel_all()
            await concurrency.drain(_SHUTDOWN_SECONDS)
        self._server.should_exit = True


@contextmanager
def _relaxed_gc() -> Generator[None]:
    # Requests create few reference cycles, so the cyclic garbage collector may run less often.
    before = gc.get_threshold()
    gc.set_threshold(*_GC_THRESHOLD)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def _uvicorn_config(app: ASGIApp, settings: ServerSettings) -> uvicorn.Config:
    class BoundedProtocol(GuardedHttpProtocol):
        max_connections = _max_connections(settings.max_concurrency)

    return uvicorn.Config(
        app,
        http=BoundedProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=int(_SHUTDOWN_SECONDS),
        backlog=_BACKLOG,
    )


def _max_connections(concurrency: int) -> int:
    """Return the connection limit, below the limit of open file descriptors (`RLIMIT_NOFILE`)."""
    # Above the concurrency limit, so that excess requests get HTTP 503 and not a closed connection.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED_FDS if hard == resource.RLIM_INFINITY else min(hard, _WANTED_FDS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return max(16, min(concurrency * 4 + 2_048, wanted - _RESERVED_FDS))


@contextmanager
def _bound_socket(settings: ServerSettings) -> Generator[socket.socket]:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        listener = socket.create_server(
            (settings.host.strip("[]"), settings.port), family=family, backlog=_BACKLOG
        )
    except OSError as error:
        address = f"{format_host(settings.host)}:{settings.port}"
        detail = error.strerror or str(error)
        raise ConfigError(detail, code="bind_failed", address=address) from error
    with listener:
        yield listener


def _local_url(listener: socket.socket, settings: ServerSettings) -> str:
    """Return the URL by which a client on this machine reaches the server."""
    port = listener.getsockname()[1]
    is_ipv6 = listener.family == socket.AF_INET6
    loopback = "[::1]" if is_ipv6 else "127.0.0.1"
    host = loopback if is_unspecified(settings.host) else format_host(settings.host)
    return f"http://{host}:{port}"
