"""A server's life: it listens, it works, it comes to rest, and nothing of it is left."""

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
"""A whole application at a path of the server."""

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
    """Where a server listens, and the token that opens its console once."""

    url: str
    token: str

    @property
    def console(self) -> str:
        """The console, opened."""
        return f"{self.url}/console/#token={self.token}"


class _SignalFreeServer(uvicorn.Server):
    """Signals are ours."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave them alone."""
        yield


async def serve(
    runtime: Runtime,
    settings: ServerSettings,
    *,
    mounts: Mapping[str, MountedApp],
    announce: Callable[[ServerAddress], None],
    at_stop: Sequence[Callable[[], None]] = (),
) -> signal.Signals | None:
    """Serve until a signal says to stop, and all that was begun is done.

    `at_stop` are called at the first signal: mounts let go of those that only listen.

    A second signal ends what is still going on at once, and is what this gives.

    Raises:
        ConfigError: `bind_failed` if the address cannot be had.
    """
    house = AppState(
        runtime=runtime,
        keys=ApiKeyStore(runtime.config.data / "keys.json"),
        approvals=ApprovalQueue(settings.approval_seconds),
        settings=settings,
    )
    hearing = runtime.listen(house.metrics.happened)
    with _bound_socket(settings) as listener, hearing, _relaxed_gc():
        server = _SignalFreeServer(_uvicorn_config(build_app(house, ROUTES, mounts), settings))
        life = _ServerTasks(house, server, at_stop)
        runtime.script_runner.runs.listener = house.metrics.ran
        house.traffic.is_starting = True
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(life.warm)
            tasks.start_soon(life.sweep)
            await tasks.start(life.heed, tasks)
            announce(
                ServerAddress(url=_local_url(listener, settings), token=house.sessions.offer())
            )
            await server.serve([listener])
            tasks.cancel_scope.cancel()
    return life.second


class _ServerTasks:
    """What goes on beside the answering of requests."""

    def __init__(
        self, house: AppState, server: uvicorn.Server, at_stop: Sequence[Callable[[], None]]
    ) -> None:
        self._house, self._server, self._at_stop = house, server, at_stop
        self.second: signal.Signals | None = None

    async def warm(self) -> None:
        """Do beforehand what the first requests would wait for; a failure is told again then."""
        runtime = self._house.runtime
        for make in (runtime.script_runner.select_sandbox, self._warm_index):
            try:
                await make()
            except ApexBridgeError as error:
                log.warning("Not ready as it should be: %s", error)
        self._house.traffic.is_starting = False
        # What is there by now stays: to look for garbage among it takes longer than requests do.
        gc.collect()
        gc.freeze()

    async def _warm_index(self) -> None:
        index = await self._house.runtime.index_service.index()
        index.look_seconds = _INDEX_POLL_SECONDS

    async def sweep(self) -> None:
        """Close the connections of clients that are late."""
        head = min(_MAX_HEADER_SECONDS, self._house.settings.body_seconds)
        while True:
            await anyio.sleep(min(1.0, head / 2))
            flush_logs()
            self._house.traffic.stop_late(time.monotonic())
            late = close_stalled(self._server, head_seconds=head, stuck_seconds=_STALL_SECONDS)
            if late:
                log.info("Closed %d connections that were late", late)

    async def heed(self, tasks: TaskGroup, *, task_status: TaskStatus[None]) -> None:
        """At the first signal begin to stop, at the second be done with it."""
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            task_status.started()  # before anybody is told of the server, who could stop it
            async for number in signals:
                if self._house.traffic.is_stopping:
                    self.second = number
                    self._house.traffic.cut_off()
                    return  # a third one finds the system's own answer
                log.info("Stopping: %s", number.name)
                self._house.traffic.stop()
                for let_go in self._at_stop:
                    let_go()
                tasks.start_soon(self._drain)

    async def _drain(self) -> None:
        """Let requests come to their ends; those that do not are ended."""
        traffic = self._house.traffic
        if not await traffic.rest(self._house.settings.drain_seconds):
            log.warning("Cutting off %d requests", len(traffic))
            traffic.cut_off()
            await traffic.rest(_SHUTDOWN_SECONDS)
        self._server.should_exit = True


@contextmanager
def _relaxed_gc() -> Generator[None]:
    """Requests leave little that goes round in circles: look for it less often."""
    before = gc.get_threshold()
    gc.set_threshold(*_GC_THRESHOLD)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def _uvicorn_config(app: ASGIApp, settings: ServerSettings) -> uvicorn.Config:
    class Bounded(GuardedHttpProtocol):
        most = _max_connections(settings.concurrency)

    return uvicorn.Config(
        app,
        http=Bounded,
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
    """More than are worked on, so that the others are told to come back; fewer than files."""
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
    """How somebody on this machine reaches it."""
    port = listener.getsockname()[1]
    is_six = listener.family == socket.AF_INET6
    anywhere = "[::1]" if is_six else "127.0.0.1"
    host = anywhere if is_unspecified(settings.host) else format_host(settings.host)
    return f"http://{host}:{port}"
