"""Landlock and seccomp, by a launcher in pure Python: isolation where namespaces are forbidden.

What it cannot do is said openly: it does not hide that files exist, and it cannot keep a script
from changing the mode or times of files it may only read.
"""

from apexbridge.sandbox.base import ExecRequest, ExecutionResult
from apexbridge.sandbox.cgroup import Cgroups, join
from apexbridge.sandbox.launcher import Launch, Launcher
from apexbridge.sandbox.process import run_on
from apexbridge.sandbox.runner import Started

NO_DOOR = "network_unavailable: this sandbox cannot let single hosts through"


class LandlockSandbox:
    """Runs commands under Landlock."""

    name = "landlock"

    def __init__(self, launcher: Launcher, groups: Cgroups | None = None) -> None:
        self._groups = groups
        self._launcher = launcher

    async def run(self, request: ExecRequest) -> ExecutionResult:
        """Run one command to its end, or to its limits."""
        if request.access.hosts:  # without a network of its own there is no door to put in it
            return ExecutionResult(
                outcome="not_started", exit_code=None, error=NO_DOOR, isolation=self.name
            )
        return await run_on(self, request)

    def start(self, request: ExecRequest) -> Started:
        """Start the command; whoever asked watches it.

        Raises:
            OSError: If it cannot be started.
        """
        group = join(self._groups, request.limits)
        launch = Launch(
            argv=request.argv,
            env=request.env,
            cwd=str(request.cwd),
            limits=request.limits,
            groups=group.files,
            is_confined=True,
            read=request.access.read,
            write=request.access.write,
            has_stdin=bool(request.stdin),
        )
        return self._launcher.start(launch, group.remove)
