"""`serve`: HTTP server with the MCP endpoint mounted."""

import signal
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import anyio

from apexbridge.api_keys import create_first_key
from apexbridge.cli.commands.keys import open_key_store
from apexbridge.cli.index_report import first_sync_printed
from apexbridge.cli.output import Output
from apexbridge.errors import ConfigError
from apexbridge.mcp_server.transports import mcp_mount
from apexbridge.runtime import Runtime
from apexbridge.runtime.diagnostics import format_protected
from apexbridge.runtime.protected_paths import protected_within
from apexbridge.server import uvicorn_server
from apexbridge.server.error_responses import unwrap_group
from apexbridge.server.logs import configure_logging
from apexbridge.server.request_guard import is_loopback
from apexbridge.server.watchdog import watch_event_loop


def serve(out: Output) -> None:
    """Serve until SIGINT or SIGTERM; a second signal ends it at once."""
    settings = out.config.settings.server
    if not is_loopback(settings.host) and not open_key_store(out.config).has_any():
        raise ConfigError(code="bind_needs_key", host=settings.host)
    configure_logging(sys.stderr)
    protected = protected_within(out.config)
    if protected:
        out.note(format_protected(out.diagnostic, out.config.project, protected))
    # uvloop does not support Windows.
    fast = {"use_uvloop": sys.platform != "win32"}
    try:
        second = anyio.run(_serve, out, backend_options=fast)
    except ExceptionGroup as group:
        raise unwrap_group(group) from None
    if second is not None:
        raise SystemExit(128 + second)
    out.line(out.text("serve_stopped"))


async def _serve(out: Output) -> signal.Signals | None:
    loaded, mounts = out.config, dict[str, uvicorn_server.MountedApp]()
    settings = loaded.settings.server
    async with (
        Runtime.open(loaded, lives=True, is_server=True) as runtime,
        AsyncExitStack() as stack,
    ):
        stack.enter_context(runtime.listen(first_sync_printed(out)))
        place = loaded.data / "first-key"
        key = create_first_key(open_key_store(loaded), place)
        at_stop = list[Callable[[], None]]()
        if settings.mcp:
            mounts["/mcp"] = mcp = await stack.enter_async_context(mcp_mount(runtime, settings))
            at_stop.append(mcp.close_subscriptions)
        if settings.watchdog_seconds:
            tasks = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(tasks.cancel_scope.cancel)
            tasks.start_soon(watch_event_loop, settings.watchdog_seconds)
        return await uvicorn_server.serve(
            runtime,
            settings,
            mounts=mounts,
            announce=lambda address: _announce(out, address, place if key else None, key or ""),
            at_stop=at_stop,
        )


def _announce(
    out: Output, address: uvicorn_server.ServerAddress, place: Path | None, key: str
) -> None:
    """Print the URL; the API key only on a terminal, never into a log file."""

    def render() -> None:
        if place is not None:
            out.line(out.text("serve_first_key", path=place))
            if sys.stdout.isatty():
                out.line(out.text("serve_first_key_text", text=key))
        out.line(out.text("serve_listening", url=address.url))
        out.line(f"{out.text('serve_console')} {address.console}")

    data = {"url": address.url, "console": address.console, "first_key_file": place}
    out.finish(data, render)
    sys.stdout.flush()
