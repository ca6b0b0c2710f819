"""Commands in the text of skills, run in the sandbox."""

from dataclasses import replace
from pathlib import Path

import anyio.to_thread

from apexbridge.errors import ToolFailedError
from apexbridge.runtime.executing import Executing
from apexbridge.sandbox import interpreters
from apexbridge.sandbox.base import MIB, ExecutionResult
from apexbridge.sandbox.workshop import Job
from apexbridge.skills.model import Skill

SECONDS = 120.0
_SHELLS = {"bash": ("bash", ("--noprofile", "--norc", "-c")), "powershell": ("pwsh", ("-Command",))}


async def run_inline(
    executing: Executing, command: str, *, skill: Skill, cwd: Path
) -> ExecutionResult:
    """Run a command with the skill's folder and the workspace readable, and nothing writable.

    Raises:
        ToolFailedError: If the shell that the skill wants is not here.
        SandboxUnavailableError: If nothing isolates here.
    """
    name, flags = _SHELLS[skill.manifest.shell]
    shell = interpreters.find(name)
    if shell is None:
        raise ToolFailedError(f"there is no {name} here", name=skill.name)
    limits = executing.limits()
    places = [path for path in (cwd, skill.root) if path is not None]
    here, *folder = await anyio.to_thread.run_sync(lambda: [path.resolve() for path in places])
    job = Job(
        interpreter=shell,
        flags=(*flags, command),
        read=(here, *folder),
        cwd=here,
        env={
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "CLAUDE_SKILL_DIR": str(skill.root or ""),
        },
        limits=replace(limits, wall_seconds=SECONDS, output_bytes=MIB),
    )
    workshop = await executing.workshop()
    return await workshop.run(job)
