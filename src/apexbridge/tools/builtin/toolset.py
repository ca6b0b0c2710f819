"""The list of built-in tools that do not depend on skills, with their aliases."""

from collections.abc import Awaitable, Callable

from apexbridge.sandbox.base import SandboxLimits
from apexbridge.sandbox.script_executor import ScriptExecutor
from apexbridge.tools.base import Tool
from apexbridge.tools.builtin.bash import BashTool
from apexbridge.tools.builtin.edit import EditTool, WriteTool
from apexbridge.tools.builtin.glob import GlobTool, ReadFilter, allow_all
from apexbridge.tools.builtin.grep import GrepTool
from apexbridge.tools.builtin.read import ReadTool
from apexbridge.tools.builtin.system import CalculateTool, NowTool, PlatformTool


def builtin_tools(
    executor: Callable[[], Awaitable[ScriptExecutor]],
    *,
    limits: Callable[[], SandboxLimits] = SandboxLimits,
    may_read: ReadFilter = allow_all,
) -> list[tuple[Tool, tuple[str, ...]]]:
    """Build the tools. The executor is awaited when a command runs, and no earlier.

    `may_read` filters each file that a search finds, because the search itself is permitted by its
    directory only.
    """

    async def isolation() -> str:
        return (await executor()).isolation

    return [
        (ReadTool(), ("FileRead", "read_file", "file_read")),
        (WriteTool(), ("FileWrite", "write_file", "file_write")),
        (EditTool(), ("FileEdit", "edit_file", "file_edit")),
        (GlobTool(may_read=may_read), ("FileSearch", "find_files")),
        (GrepTool(may_read=may_read), ("grep", "search_files")),
        (BashTool(executor, limits), ("Shell", "bash", "shell")),
        (CalculateTool(), ("calculate", "Calculator", "calculator")),
        (NowTool(), ("datetime", "DateTime", "now")),
        (PlatformTool(isolation), ("PlatformDetector", "platform")),
    ]
