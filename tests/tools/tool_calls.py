"""Call a tool as the agent does, in a temporary workspace."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio

from apexbridge.testing import EventLog
from apexbridge.tools.base import PathScope, SubagentRequest, Tool, ToolContext, ToolResult


async def no_child(_: SubagentRequest) -> str:
    return "nothing"


def context(place: Path, *, read: tuple[Path, ...] = (), cwd: Path | None = None) -> ToolContext:
    return ToolContext(
        session_id="s",
        call_id="c",
        cwd=cwd or place,
        emit=EventLog(),
        spawn=no_child,
        scope=PathScope(read=read, write=(place,)),
    )


async def use(tool: Tool, facts: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    """Judge and call, as the dispatch does."""
    with anyio.fail_after(60):
        tool.permissions(arguments, facts)
        return await tool.call(arguments, facts)
