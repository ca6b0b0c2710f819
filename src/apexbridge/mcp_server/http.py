"""MCP over streamable HTTP, as an application that the server mounts behind its own checks."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from apexbridge.mcp_server.access import (
    EXEC,
    READ,
    Asgi,
    May,
    Receive,
    Send,
    caller_may,
    refusal,
)
from apexbridge.mcp_server.paging import PAGE
from apexbridge.mcp_server.server import Door
from apexbridge.runtime import Runtime
from apexbridge.settings import ServerSettings

_MEGABYTE = 1_000_000


class Mounted:
    """The application."""

    def __init__(self, door: Door, sessions: StreamableHTTPSessionManager, may: May) -> None:
        self._door, self._sessions, self._may = door, sessions, may

    async def __call__(self, scope: Asgi, receive: Receive, send: Send) -> None:
        """Answer a request.

        Raises:
            RequestError: If the caller may do nothing here.
        """
        if not (self._may(scope, READ) or self._may(scope, EXEC)):
            raise refusal(scope, READ)
        await self._sessions.handle_request(scope, receive, send)

    def stop_telling(self) -> None:
        """End the requests that wait for changes: a server that stops need not wait for them."""
        self._door.stop_telling()


@asynccontextmanager
async def mcp_mount(
    runtime: Runtime, settings: ServerSettings, *, may: May = caller_may, page: int = PAGE
) -> AsyncGenerator[Mounted]:
    """The application, for the length of the block; requests that still run then are ended.

    No state is kept between requests: each is judged by the caller that makes it, and one whose
    client goes away is ended, with whatever it started.

    Raises:
        ConfigError: If settings name a tool that there is not.
    """
    door = Door(runtime, may=may, page=page)
    sessions = StreamableHTTPSessionManager(
        door.server, stateless=True, max_request_body_size=int(settings.body_mb * _MEGABYTE)
    )

    async with door.telling(), sessions.run():
        yield Mounted(door, sessions, may)
