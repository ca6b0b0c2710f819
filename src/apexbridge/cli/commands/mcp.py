"""`mcp`: MCP server over stdio. Standard output belongs to the protocol."""

import logging
import os
import signal
import sys

import anyio

from apexbridge.cli.output import Output
from apexbridge.mcp_server.transports import serve_stdio
from apexbridge.runtime import Runtime


def mcp(out: Output) -> None:
    """Serve until the client closes stdin, or until SIGTERM or SIGINT."""
    # A log line on stdout would corrupt the JSON-RPC stream.
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    if sys.stdin.isatty():
        out.note(out.text("mcp_waiting"))
    is_stopped = anyio.run(_serve, out)
    if is_stopped:
        # A worker thread blocks in read(0) and cannot be cancelled; all else is closed by now.
        sys.stderr.flush()
        os._exit(128 + signal.SIGTERM)


async def _serve(out: Output) -> bool:
    """Serve until EOF or a signal, which cancels running calls; returns True for a signal."""
    stopped, failures = list[int](), list[Exception]()
    async with anyio.create_task_group() as tasks:

        async def stop() -> None:
            with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
                async for number in signals:
                    stopped.append(number)
                    tasks.cancel_scope.cancel()

        tasks.start_soon(stop)
        try:
            async with Runtime.open(out.config, lives=True) as runtime:
                await serve_stdio(runtime)
        except Exception as error:  # noqa: BLE001  # raised below, where no group wraps it
            failures.append(error)
        tasks.cancel_scope.cancel()
    if failures:
        raise failures[0]
    return bool(stopped)
