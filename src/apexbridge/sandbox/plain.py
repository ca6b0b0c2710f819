"""No isolation: limits and a process group only. Off unless an operator switches it on."""

import shutil
from pathlib import Path

from apexbridge.sandbox import spawn
from apexbridge.sandbox.base import ExecRequest, ExecutionResult, SandboxLimits
from apexbridge.sandbox.confine import Census
from apexbridge.sandbox.process import run_on
from apexbridge.sandbox.runner import Started
from apexbridge.sandbox.spawn import Command

# One shell counts processes with -u, another with -p; RLIMIT_AS would break node.
_LIMITING = """\
ulimit -c 0; ulimit -d "$1"; ulimit -f "$2"; ulimit -t "$3"; ulimit -n "$4"
{ ulimit -u "$5" || ulimit -p "$5"; } 2>/dev/null; shift 5; exec "$@\""""


def limiting_words(limits: SandboxLimits) -> list[str]:
    """Words that bound what follows them, on every system with a shell."""
    counts = (
        limits.memory_bytes // 1024,
        limits.file_bytes // 512,
        limits.cpu_seconds,
        limits.open_files,
        limits.processes + Census().take() if Path("/proc/self/task").is_dir() else "none",
    )
    return ["/bin/sh", "-c", _LIMITING, "sh", *map(str, counts)]


class PlainSandbox:
    """Runs commands with the rights of this process."""

    name = "plain"

    async def run(self, request: ExecRequest) -> ExecutionResult:
        """Run one command to its end, or to its limits."""
        return await run_on(self, request)

    def start(self, request: ExecRequest, *, has_stdin: bool) -> Started:
        """Start the command; whoever asked watches it, and feeds it if it has an stdin.

        Raises:
            OSError: If it cannot be started.
        """
        # A shell would hide why a program cannot be started: that is found out without it.
        can_start = shutil.which(request.argv[0], path=request.env.get("PATH")) is not None
        words = limiting_words(request.limits) if can_start else []
        return spawn.start(
            Command(
                argv=[*words, *request.argv],
                env=request.env,
                cwd=str(request.cwd),
                has_stdin=has_stdin,
            )
        )
