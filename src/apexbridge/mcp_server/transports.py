"""MCP over streamable HTTP, as an application that the server mounts behind its own checks."""

import io
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread
from mcp import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from apexbridge.mcp_server.permissions import (
    EXEC,
    READ,
    AsgiScope,
    Receive,
    ScopeCheck,
    Send,
    caller_has_scope,
    scope_error,
)
from apexbridge.mcp_server.resources import PAGE_SIZE
from apexbridge.mcp_server.server import McpServer
from apexbridge.runtime import Runtime
from apexbridge.settings import ServerSettings

_MB = 1_000_000


class McpApp:
    """The application."""

    def __init__(
        self, door: McpServer, sessions: StreamableHTTPSessionManager, may: ScopeCheck
    ) -> None:
        self._door, self._sessions, self._may = door, sessions, may

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Answer a request.

        Raises:
            RequestError: If the caller may do nothing here.
        """
        if not (self._may(scope, READ) or self._may(scope, EXEC)):
            raise scope_error(scope, READ)
        await self._sessions.handle_request(scope, receive, send)

    def stop_telling(self) -> None:
        """End the requests that wait for changes: a server that stops need not wait for them."""
        self._door.stop_telling()


@asynccontextmanager
async def mcp_mount(
    runtime: Runtime,
    settings: ServerSettings,
    *,
    may: ScopeCheck = caller_has_scope,
    page: int = PAGE_SIZE,
) -> AsyncGenerator[McpApp]:
    """The application, for the length of the block; requests that still run then are ended.

    No state is kept between requests: each is judged by the caller that makes it, and one whose
    client goes away is ended, with whatever it started.

    Raises:
        ConfigError: If settings name a tool that there is not.
    """
    door = McpServer(runtime, may=may, page=page)
    sessions = StreamableHTTPSessionManager(
        door.server, stateless=True, max_request_body_size=int(settings.max_body_mb * _MB)
    )

    async with door.telling(), sessions.run():
        yield McpApp(door, sessions, may)


class _CancellableLines(anyio.AsyncFile[str]):
    """Lines as they come; waiting for one does not keep anybody from stopping."""

    async def __aiter__(self) -> AsyncGenerator[str]:
        while line := await anyio.to_thread.run_sync(self.wrapped.readline, abandon_on_cancel=True):
            yield line


async def serve_stdio(runtime: Runtime) -> None:
    """Answer until the client closes its end; whatever still runs then is ended.

    While serving, standard output belongs to the protocol: what else is printed goes to standard
    error.

    Raises:
        ConfigError: If settings name a tool that there is not.
    """
    door = McpServer(runtime, asks=True)
    door.remember_sessions()
    text = io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8", errors="replace")
    async with door.telling(), stdio_server(_CancellableLines(text)) as (incoming, outgoing):
        await door.server.run(incoming, outgoing, door.options)
