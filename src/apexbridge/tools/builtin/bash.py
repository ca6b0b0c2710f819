"""Bash: a command line in the sandbox, at work in the workspace itself.

A person expects what a command changes to be changed afterwards, and a copy of a workspace would
have to be merged back, which can lose work. So the workspace is mounted as it is, writable; all
else is the system's programs, read-only, and a private folder for what is temporary.
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
from apexbridge.tools.base import PathScope, ToolContext, ToolResult, ToolSpec
from apexbridge.tools.builtin.path_access import is_directory, resolve_path
from apexbridge.tools.truncation import truncate_text
from apexbridge.tools.typed import Arguments, TypedTool, arguments_schema

MAX_COMMAND = 64 * 1024
MAX_SECONDS = 600
_HINT = "narrow it with head, tail or grep, or write it to a file and read that"
_SYSTEM_DIRS = frozenset(
    map(Path, ("/", "/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin",
               "/sys", "/usr", "/var"))
)  # fmt: skip
"""Folders that are no workspace: to mount one would undo the sandbox."""


class BashArguments(Arguments):
    """What to run."""

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
    """Runs a command line in the sandbox."""

    def __init__(
        self,
        workshop: Callable[[], Awaitable[ScriptExecutor]],
        limits: Callable[[], SandboxLimits] = SandboxLimits,
        closed: Sequence[Path] = (),
    ) -> None:
        self._closed = closed
        self._workshop = workshop
        self._limits = limits
        description = (
            "Run a command line with bash in a sandbox. It starts in the workspace and may change "
            "it; it sees no other files but the system's programs, and no network."
        )
        schema = arguments_schema(BashArguments)
        super().__init__(
            ToolSpec(name="Bash", description=description, input_schema=schema), BashArguments
        )

    def asks(self, arguments: BashArguments, context: ToolContext) -> Sequence[PermissionRequest]:
        """Running is asked about, with the command as it is."""
        self._refuse_unusable(arguments)
        place = resolve_path(arguments.cwd, context, self.spec.name)
        command = arguments.command  # never the model's own words about it: they may mislead
        return (
            PermissionRequest(
                tool="Bash", argument=command, cwd=place.path, summary=f"Run {command[:200]}"
            ),
        )

    async def act(self, arguments: BashArguments, context: ToolContext) -> ToolResult:
        """Run it."""
        self._refuse_unusable(arguments)
        place = resolve_path(arguments.cwd, context, self.spec.name)
        if not is_directory(place):
            raise place.failed("it is no folder")
        result = await self._run(arguments, place.path, context.reach)
        return ToolResult(
            text=format_result(result, arguments.timeout),
            is_error=result.outcome != "ok",
            touched=tuple(_touched_files(arguments.command, place.path, context.reach)),
            data={
                "command": arguments.command,
                "cwd": str(place.path),
                "exit_code": result.exit_code,
                "outcome": result.outcome,
                "isolation": result.isolation,
            },
        )

    async def _run(self, arguments: BashArguments, cwd: Path, reach: PathScope) -> ExecutionResult:
        bash = interpreters.find("bash")
        if bash is None:
            raise ToolFailedError("there is no bash here", name=self.spec.name)
        limits = self._limits()
        job = ScriptJob(
            interpreter=bash,
            flags=("--noprofile", "--norc", "-c", arguments.command),
            read=self._mounts(reach.read),
            write=self._mounts(reach.write),
            cwd=cwd,
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "TERM": "dumb"},
            limits=replace(
                limits,
                wall_seconds=arguments.timeout,
                cpu_seconds=max(limits.cpu_seconds, math.ceil(arguments.timeout)),
            ),
        )
        try:
            return await (await self._workshop()).run(job)
        except SandboxUnavailableError as error:
            raise ToolFailedError(error.message, name=self.spec.name) from error

    def _refuse_unusable(self, arguments: BashArguments) -> None:
        if "\0" in arguments.command:
            raise ToolInputError("'command' holds NUL", name=self.spec.name)
        if len(arguments.command.encode()) > MAX_COMMAND:
            detail = f"'command' is longer than {MAX_COMMAND:,} bytes"
            raise ToolInputError(detail, name=self.spec.name)

    def _mounts(self, folders: Sequence[Path]) -> tuple[Path, ...]:
        """The folders as they really are.

        Raises:
            ToolFailedError: If one is the system's.
        """
        real = tuple(dict.fromkeys(folder.resolve() for folder in folders))
        odd = _SYSTEM_DIRS & set(real)
        if odd:
            detail = f"{min(odd)} is the system's and cannot be a workspace"
            raise ToolFailedError(detail, name=self.spec.name)
        for folder in self._closed:
            if any(folder.resolve().is_relative_to(root) for root in real):
                detail = f"the workspace holds {folder}, which no command may change"
                raise ToolFailedError(detail, name=self.spec.name)
        return real


def _touched_files(command: str, cwd: Path, reach: PathScope) -> Iterator[Path]:
    """The files of the workspace that a command names."""
    folders = [folder.resolve() for folder in (*reach.write, *reach.read)]
    for path in paths_in_command(command, cwd):
        if any(path.is_relative_to(folder) for folder in folders):
            with contextlib.suppress(OSError):  # a word too long for a name
                if path.exists():
                    yield path


def format_result(result: ExecutionResult, seconds: float) -> str:
    """What a command said, and how it ended."""
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
