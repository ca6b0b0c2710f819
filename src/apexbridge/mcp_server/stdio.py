"""MCP over this process's standard streams: one client, which started the process."""

import io
import sys
from collections.abc import AsyncGenerator

import anyio
import anyio.to_thread
from mcp import stdio_server

from apexbridge.mcp_server.server import Door
from apexbridge.runtime import Runtime


class _Lines(anyio.AsyncFile[str]):
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
    door = Door(runtime, asks=True)
    door.remember_sessions()
    text = io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8", errors="replace")
    async with door.telling(), stdio_server(_Lines(text)) as (incoming, outgoing):
        await door.server.run(incoming, outgoing, door.options)
