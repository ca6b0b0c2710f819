"""No isolation: limits and a process group only. Off unless an operator switches it on."""

import shutil

from apexbridge.sandbox import spawn
from apexbridge.sandbox.base import ExecRequest, ExecutionResult, SandboxLimits
from apexbridge.sandbox.process import Verdict, describe, exit_code_of, refuse_nul, run_started
from apexbridge.sandbox.spawn import Command


def limit_words(limits: SandboxLimits) -> list[str]:
    """The words that make `prlimit` bound what follows. RLIMIT_AS would break node."""
    return [
        shutil.which("prlimit") or "prlimit",
        f"--data={limits.memory_bytes}",
        f"--fsize={limits.file_bytes}",
        f"--cpu={limits.cpu_seconds}",
        f"--nofile={limits.open_files}",
        f"--nproc={limits.processes}",
        "--core=0",
        "--memlock=0",
        "--",
    ]


class PlainSandbox:
    """Runs commands with the rights of this process."""

    name = "plain"

    async def run(self, request: ExecRequest) -> ExecutionResult:
        """Run one command to its end, or to its limits."""
        refuse_nul(request)
        # prlimit would hide why a program cannot be started: that is found out without it.
        can_start = shutil.which(request.argv[0], path=request.env.get("PATH")) is not None
        words = limit_words(request.limits) if can_start else []
        command = Command(
            argv=[*words, *request.argv],
            env=request.env,
            cwd=str(request.cwd),
            has_stdin=bool(request.stdin),
        )
        ended = await run_started(lambda: spawn.start(command), request)
        verdict = Verdict(exit_code=exit_code_of(ended.status), error=ended.error)
        return describe(ended, verdict, self.name)
