"""`serve`: the HTTP door, and MCP's beside it."""

import signal
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import anyio

from apexbridge.cli.keying import store_of
from apexbridge.cli.output import Out
from apexbridge.errors import ConfigError
from apexbridge.keys import make_first_key
from apexbridge.mcp_server.http import mcp_mount
from apexbridge.runtime import Runtime
from apexbridge.server import serving
from apexbridge.server.addresses import is_loopback
from apexbridge.server.logs import log_to
from apexbridge.server.refusals import alone


def serve(out: Out) -> None:
    """Serve until told to stop."""
    settings = out.loaded.settings.server
    if not is_loopback(settings.host) and not store_of(out.loaded).has_any():
        raise ConfigError(code="bind_needs_key", host=settings.host)
    log_to(sys.stderr)
    fast = {"use_uvloop": sys.platform != "win32"}
    try:
        second = anyio.run(_serve, out, backend_options=fast)
    except ExceptionGroup as group:
        raise alone(group) from None
    if second is not None:
        raise SystemExit(128 + second)
    out.line(out.word("serve_stopped"))


async def _serve(out: Out) -> signal.Signals | None:
    loaded, mounts = out.loaded, dict[str, serving.Mounted]()
    settings = loaded.settings.server
    async with (
        Runtime.open(loaded, lives=True, is_server=True) as runtime,
        AsyncExitStack() as stack,
    ):
        place = loaded.data / "first-key"
        key = make_first_key(store_of(loaded), place)
        at_stop = list[Callable[[], None]]()
        if settings.mcp:
            mounts["/mcp"] = mcp = await stack.enter_async_context(mcp_mount(runtime, settings))
            at_stop.append(mcp.stop_telling)
        return await serving.serve(
            runtime,
            settings,
            mounts=mounts,
            announce=lambda address: _announce(out, address, place if key else None, key or ""),
            at_stop=at_stop,
        )


def _announce(out: Out, address: serving.Address, place: Path | None, key: str) -> None:
    """Say where it listens; a key is shown to a person alone, never to a file of logs."""

    def render() -> None:
        if place is not None:
            out.line(out.word("serve_first_key", path=place))
            if sys.stdout.isatty():
                out.line(out.word("serve_first_key_text", text=key))
        out.line(out.word("serve_listens", url=address.url))
        out.line(f"{out.word('serve_console')} {address.console}")

    data = {"url": address.url, "console": address.console, "first_key_file": place}
    out.finish(data, render)
    sys.stdout.flush()
