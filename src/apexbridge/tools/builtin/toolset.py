"""The built-in tools that know nothing of skills, each with the other names it answers to."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

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
    workshop: Callable[[], Awaitable[ScriptExecutor]],
    *,
    limits: Callable[[], SandboxLimits] = SandboxLimits,
    may_read: ReadFilter = allow_all,
    closed: Sequence[Path] = (),
) -> list[tuple[Tool, tuple[str, ...]]]:
    """All of them. The workshop is asked for when a command runs, and no earlier.

    `may_read` says of each file that a search comes upon whether the rules let it be read: those
    that they forbid are left out, for a search names only the folder when it is judged. A command
    does not run where it could change what lies in a `closed` folder.
    """

    async def isolation() -> str:
        return (await workshop()).isolation

    return [
        (ReadTool(), ("FileRead", "read_file", "file_read")),
        (WriteTool(), ("FileWrite", "write_file", "file_write")),
        (EditTool(), ("FileEdit", "edit_file", "file_edit")),
        (GlobTool(may_read=may_read), ("FileSearch", "find_files")),
        (GrepTool(may_read=may_read), ("grep", "search_files")),
        (BashTool(workshop, limits, closed), ("Shell", "bash", "shell")),
        (CalculateTool(), ("calculate", "Calculator", "calculator")),
        (NowTool(), ("datetime", "DateTime", "now")),
        (PlatformTool(isolation), ("PlatformDetector", "platform")),
    ]
