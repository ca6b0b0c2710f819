"""Landlock and seccomp, by a launcher in pure Python: isolation where namespaces are forbidden.

What it cannot do is said openly: it does not hide that files exist, and it cannot keep a script
from changing the mode or times of files it may only read.
"""

from apexbridge.sandbox.base import ExecRequest, ExecutionResult
from apexbridge.sandbox.launcher import Launch, Launcher, needed
from apexbridge.sandbox.process import run_on
from apexbridge.sandbox.runner import Started

NO_DOOR = "network_unavailable: this sandbox cannot let single hosts through"


class LandlockSandbox:
    """Runs commands under Landlock."""

    name = "landlock"

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher

    async def run(self, request: ExecRequest) -> ExecutionResult:
        """Run one command to its end, or to its limits."""
        return await run_on(self, request)

    def start(self, request: ExecRequest, *, has_stdin: bool) -> Started:
        """Start the command; whoever asked watches it, and feeds it if it has an stdin.

        Raises:
            OSError: If it cannot be started.
        """
        if request.access.hosts:  # without a network of its own there is no door to put in it
            raise OSError(NO_DOOR)
        launch = Launch(
            argv=request.argv,
            env=request.env,
            cwd=str(request.cwd),
            limits=request.limits,
            is_confined=True,
            needs=needed(request),
            workspace=request.workspace,
            read=request.access.read,
            write=request.access.write,
            has_stdin=has_stdin,
        )
        return self._launcher.start(launch)
