"""MCP transports: stdio, and streamable HTTP as an ASGI application that the server mounts."""

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
    """ASGI application of the streamable HTTP transport."""

    def __init__(
        self, mcp: McpServer, sessions: StreamableHTTPSessionManager, has_scope: ScopeCheck
    ) -> None:
        self._mcp, self._sessions, self._has_scope = mcp, sessions, has_scope

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Handle an HTTP request.

        Raises:
            RequestError: If the caller has neither of the scopes that MCP needs.
        """
        if not (self._has_scope(scope, READ) or self._has_scope(scope, EXEC)):
            raise scope_error(scope, READ)
        await self._sessions.handle_request(scope, receive, send)

    def close_subscriptions(self) -> None:
        """End the subscriptions to list changes, so that a graceful shutdown need not wait."""
        self._mcp.close_subscriptions()


@asynccontextmanager
async def mcp_mount(
    runtime: Runtime,
    settings: ServerSettings,
    *,
    has_scope: ScopeCheck = caller_has_scope,
    page_size: int = PAGE_SIZE,
) -> AsyncGenerator[McpApp]:
    """Run the streamable HTTP transport for the duration of the block.

    Stateless: each request is authorized by its own caller, and cancelled with everything that it
    started when its client disconnects.

    Raises:
        ConfigError: If the settings name an unknown tool.
    """
    mcp = McpServer(runtime, has_scope=has_scope, page_size=page_size)
    sessions = StreamableHTTPSessionManager(
        mcp.server, stateless=True, max_request_body_size=int(settings.max_body_mb * _MB)
    )

    async with mcp.change_notifications(), sessions.run():
        yield McpApp(mcp, sessions, has_scope)


class _CancellableLines(anyio.AsyncFile[str]):
    """Reads lines in a thread that is abandoned on cancellation: stdin cannot be interrupted."""

    async def __aiter__(self) -> AsyncGenerator[str]:
        while line := await anyio.to_thread.run_sync(self.wrapped.readline, abandon_on_cancel=True):
            yield line


async def serve_stdio(runtime: Runtime) -> None:
    """Serve MCP on stdin and stdout until the client closes stdin; running requests are cancelled.

    Meanwhile stdout carries the protocol only: other output is redirected to stderr.
    """
    mcp = McpServer(runtime, elicits=True)
    mcp.notify_sessions()
    text = io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8", errors="replace")
    lines = _CancellableLines(text)
    async with mcp.change_notifications(), stdio_server(lines) as (incoming, outgoing):
        await mcp.server.run(incoming, outgoing, mcp.options)
