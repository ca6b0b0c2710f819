"""Bash tool: run a command line in the sandbox, with the workspace mounted read-write.

A person expects the workspace to be changed by a command. A copy would have to be merged back,
which can lose work, so the workspace itself is mounted; system programs are mounted read-only, and
temporary files go to a private directory.
"""

import contextlib
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import assert_never

from pydantic import AliasChoices, Field

from apexbridge.catalog.path_activation import paths_in_command
from apexbridge.errors import SandboxUnavailableError, ToolFailedError, ToolInputError
from apexbridge.permissions.rules import PermissionRequest
from apexbridge.sandbox import interpreters
from apexbridge.sandbox.base import ExecutionResult, SandboxLimits
from apexbridge.sandbox.script_executor import ScriptExecutor, ScriptJob
from apexbridge.tools.base import PathScope, ToolContext, ToolResult
from apexbridge.tools.builtin.path_access import is_directory, resolve_path
from apexbridge.tools.truncation import truncate_text
from apexbridge.tools.typed import Arguments, TypedTool

MAX_COMMAND = 64 * 1024
MAX_SECONDS = 600
_HINT = "narrow it with head, tail or grep, or write it to a file and read that"
_SYSTEM_DIRS = frozenset(
    map(Path, ("/", "/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin",
               "/sys", "/usr", "/var"))
)  # fmt: skip
"""Directories that cannot be a workspace: mounting one would undo the isolation."""


class BashArguments(Arguments):
    """Arguments of Bash."""

    command: str = Field(
        validation_alias=AliasChoices("command", "cmd"),
        description="The command line, as bash reads it.",
        min_length=1,
        max_length=MAX_COMMAND,
    )
    timeout: float = Field(
        default=60,
        gt=0,
        le=MAX_SECONDS,
        validation_alias=AliasChoices("timeout", "timeout_seconds"),
        description="Seconds until it is ended.",
    )
    cwd: str = Field(default=".", description="The folder to run it in.")
    description: str = Field(default="", description="What it is for, in a few words.")


class BashTool(TypedTool[BashArguments]):
    """Run a command line with bash in the sandbox."""

    def __init__(
        self,
        executor: Callable[[], Awaitable[ScriptExecutor]],
        limits: Callable[[], SandboxLimits] = SandboxLimits,
    ) -> None:
        self._executor = executor
        self._limits = limits
        description = (
            "Run a command line with bash in a sandbox. It starts in the workspace and may change "
            "it; it sees no other files but the system's programs, and no network."
        )
        super().__init__("Bash", description, BashArguments)

    def required_permissions(
        self, arguments: BashArguments, context: ToolContext
    ) -> Sequence[PermissionRequest]:
        """Request permission for the command line as it is."""
        self._refuse_unusable(arguments)
        target = resolve_path(arguments.cwd, context, self.spec.name)
        # Never the model's own description: it could mislead the approver (prompt injection).
        command = arguments.command
        return (
            PermissionRequest(
                tool="Bash", argument=command, cwd=target.path, summary=f"Run {command[:200]}"
            ),
        )

    async def run(self, arguments: BashArguments, context: ToolContext) -> ToolResult:
        """Run the command to its end or its limits."""
        self._refuse_unusable(arguments)
        target = resolve_path(arguments.cwd, context, self.spec.name)
        if not is_directory(target):
            raise target.error("it is not a directory")
        result = await self._run(arguments, target.path, context.scope)
        return ToolResult(
            text=format_result(result, arguments.timeout),
            is_error=result.outcome != "ok",
            touched=tuple(_touched_files(arguments.command, target.path, context.scope)),
            data={
                "command": arguments.command,
                "cwd": str(target.path),
                "exit_code": result.exit_code,
                "outcome": result.outcome,
                "isolation": result.isolation,
            },
        )

    async def _run(self, arguments: BashArguments, cwd: Path, scope: PathScope) -> ExecutionResult:
        bash = interpreters.find("bash")
        if bash is None:
            raise ToolFailedError("there is no bash here", name=self.spec.name)
        limits = self._limits()
        job = ScriptJob(
            interpreter=bash,
            flags=("--noprofile", "--norc", "-c", arguments.command),
            read=self._mounts(scope.read),
            write=self._mounts(scope.write),
            cwd=cwd,
            # Nothing is inherited: the server's environment holds API keys.
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "TERM": "dumb"},
            limits=replace(
                limits,
                wall_seconds=arguments.timeout,
                cpu_seconds=max(limits.cpu_seconds, math.ceil(arguments.timeout)),
            ),
        )
        try:
            return await (await self._executor()).run(job)
        except SandboxUnavailableError as error:
            raise ToolFailedError(error.message, name=self.spec.name) from error

    def _refuse_unusable(self, arguments: BashArguments) -> None:
        if "\0" in arguments.command:
            raise ToolInputError("'command' holds NUL", name=self.spec.name)
        if len(arguments.command.encode()) > MAX_COMMAND:
            detail = f"'command' is longer than {MAX_COMMAND:,} bytes"
            raise ToolInputError(detail, name=self.spec.name)

    def _mounts(self, folders: Sequence[Path]) -> tuple[Path, ...]:
        """Resolve the directories to mount.

        Raises:
            ToolFailedError: If one is the system's.
        """
        real = tuple(dict.fromkeys(folder.resolve() for folder in folders))
        odd = _SYSTEM_DIRS & set(real)
        if odd:
            detail = f"{min(odd)} is the system's and cannot be a workspace"
            raise ToolFailedError(detail, name=self.spec.name)
        return real


def _touched_files(command: str, cwd: Path, scope: PathScope) -> Iterator[Path]:
    """Yield the files of the workspace that the command names."""
    folders = [folder.resolve() for folder in (*scope.write, *scope.read)]
    for path in paths_in_command(command, cwd):
        if any(path.is_relative_to(folder) for folder in folders):
            with contextlib.suppress(OSError):  # a word too long for a name
                if path.exists():
                    yield path


def format_result(result: ExecutionResult, seconds: float) -> str:
    """Format stdout, stderr and the exit status for the model."""
    pieces = [_text(result.stdout)]
    if result.stderr.strip():
        pieces += ["[stderr]", _text(result.stderr)]
    output = truncate_text("\n".join(piece for piece in pieces if piece), hint=_HINT)
    return "\n".join(piece for piece in (output, f"[{_exit_note(result, seconds)}]") if piece)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace").rstrip("\n")


def _exit_note(result: ExecutionResult, seconds: float) -> str:
    match result.outcome:
        case "ok" | "failed":
            return f"Exit code {result.exit_code}"
        case "timeout":
            return f"Ended after {seconds:g} seconds: give a larger timeout, or do less at once"
        case "output_limit":
            return "Ended: it wrote too much"
        case "workspace_limit":
            return "Ended: it left too much in its temporary folder"
        case "killed":
            return f"It was killed ({result.error or 'by a signal, or for its memory'})"
        case "not_started":
            return f"It could not be started: {result.error}"
        case _:
            assert_never(result.outcome)
