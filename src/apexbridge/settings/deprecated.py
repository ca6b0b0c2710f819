"""Deprecated setting names and values that are still accepted, with a warning."""

from collections.abc import Mapping
from typing import Any, NamedTuple

RENAMED: Mapping[str, str] = {
    "agent.children": "agent.max_subagents",
    "agent.depth": "agent.max_subagent_depth",
    "agent.rounds": "agent.max_rounds",
    "agent.seconds": "agent.timeout_seconds",
    "agent.tokens": "agent.token_budget",
    "install.blocks_at": "install.block_level",
    "install.depth": "install.max_path_depth",
    "install.files": "install.max_files",
    "install.ratio": "install.max_compression_ratio",
    "mcp.servers.NAME.seconds": "mcp.servers.NAME.timeout_seconds",
    "model.first_seconds": "model.first_token_seconds",
    "model.window": "model.context_window",
    "remote.seconds": "remote.timeout_seconds",
    "sandbox.wall_seconds": "sandbox.timeout_seconds",
    "sandbox.warm": "sandbox.warm_pool_size",
    "server.body_mb": "server.max_body_mb",
    "server.body_seconds": "server.body_timeout_seconds",
    "server.concurrency": "server.max_concurrency",
    "server.open_index": "server.public_index",
    "server.rate": "server.rate_limit",
}
"""Old dotted name to new dotted name; only the last part differs."""

RENAMED_VALUES: Mapping[tuple[str, str], str] = {("index.embedder", "own"): "default"}
"""Setting and old value to the new value."""


class Deprecation(NamedTuple):
    """A deprecated name or value that a layer uses: `old` is now `new`."""

    old: str
    new: str
    origin: str


def current_name(name: str) -> str:
    """Translate a dotted setting name; a current one is returned as it is.

    >>> current_name("sandbox.wall_seconds")
    'sandbox.timeout_seconds'
    """
    parts = name.split(".")
    if len(parts) == 4 and parts[:2] == ["mcp", "servers"]:  # mcp.servers.NAME.key
        leaf = RENAMED.get(f"mcp.servers.NAME.{parts[3]}", name).rpartition(".")[2]
        return ".".join((*parts[:3], leaf))
    return RENAMED.get(name, name)


def current_value(name: str, value: Any) -> Any:
    """Translate a deprecated value of a setting; any other is returned as it is."""
    return RENAMED_VALUES.get((name, value), value) if isinstance(value, str) else value
