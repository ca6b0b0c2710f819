"""Server on a loopback socket in this process, with an API key for all scopes."""

import socket
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
import uvicorn
from starlette.types import ASGIApp

from apexbridge.api_keys import SCOPES, ApiKeyStore, Scope
from apexbridge.runtime import Runtime
from apexbridge.server.app import build_app
from apexbridge.server.approvals import ApprovalQueue
from apexbridge.server.routing import AppState, Route
from apexbridge.settings import Config


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveServer:
    """Running server: its URL, an API key and its state."""

    url: str
    key: str
    state: AppState

    def key_for(self, *scopes: Scope) -> str:
        """Create an API key with these scopes."""
        return self.state.keys.create("test", scopes)[0]

    @property
    def headers(self) -> dict[str, str]:
        """Headers with the API key for all scopes."""
        return {"Authorization": f"Bearer {self.key}"}


@asynccontextmanager
async def live_server(
    loaded: Config, routes: Sequence[Route], *, mounts: Mapping[str, ASGIApp] | None = None
) -> AsyncGenerator[LiveServer]:
    """Serve routes for the duration of the block."""
    async with Runtime.open(loaded, is_server=True) as runtime:
        keys = ApiKeyStore(loaded.data / "keys.json")
        state = AppState(
            runtime=runtime,
            keys=keys,
            approvals=ApprovalQueue(loaded.settings.server.approval_seconds),
            settings=loaded.settings.server,
        )
        listener = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(build_app(state, routes, mounts), log_config=None, lifespan="off")
        server = uvicorn.Server(config)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server._serve, [listener])  # pyright: ignore[reportPrivateUsage]  # no signals
            with anyio.fail_after(10):
                while not server.started:
                    await anyio.sleep(0.01)
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            yield LiveServer(url=url, key=keys.create("all", SCOPES)[0], state=state)
            server.should_exit = True
