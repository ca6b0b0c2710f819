"""The built-in tools that know nothing of skills, each with the other names it answers to."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from apexbridge.sandbox.base import SandboxLimits
from apexbridge.sandbox.workshop import Workshop
from apexbridge.toolbox.editing import EditTool, WriteTool
from apexbridge.toolbox.files import ReadTool
from apexbridge.toolbox.finding import GlobTool, MayRead, everything
from apexbridge.toolbox.grepping import GrepTool
from apexbridge.toolbox.shell import BashTool
from apexbridge.toolbox.system import CalculateTool, NowTool, PlatformTool
from apexbridge.tools.base import Tool


def builtin_tools(
    workshop: Callable[[], Awaitable[Workshop]],
    *,
    limits: Callable[[], SandboxLimits] = SandboxLimits,
    may_read: MayRead = everything,
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
