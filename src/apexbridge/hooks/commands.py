"""Hook commands: what a hook starts in the sandbox, resolved from its argv."""

import math
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import anyio.to_thread

from apexbridge.regular_files import open_regular
from apexbridge.sandbox import interpreters
from apexbridge.sandbox.base import MIB, ExecutionResult, SandboxLimits
from apexbridge.sandbox.interpreters import Interpreter
from apexbridge.sandbox.script_executor import ScriptExecutor, ScriptJob
from apexbridge.skills.shebang import SHEBANG_BYTES, script_interpreter

_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
_MAX_OUTPUT = MIB
_ENV = Interpreter(program=Path("/usr/bin/env"))
_SCRIPT_INTERPRETERS = frozenset({"bash", "sh", "python", "python3", "node"})
_PATH_VARIABLE = re.compile(
    r"\$\{(CLAUDE_PLUGIN_ROOT|CLAUDE_SKILL_DIR|CLAUDE_PROJECT_DIR)\}"
    r"|\$(CLAUDE_PLUGIN_ROOT|CLAUDE_SKILL_DIR|CLAUDE_PROJECT_DIR)\b"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HookCommand:
    """A hook command for the sandbox; `root` is readable, and relative paths start there.

    The hooks of a skill are confined: they start files of the skill and programs of the system.
    """

    argv: tuple[str, ...]
    stdin: bytes
    root: Path | None
    is_confined: bool = False
    project: Path
    seconds: float


HookCommandRunner = Callable[[HookCommand], Awaitable[ExecutionResult]]


class HookFailedError(Exception):
    """A hook returned no verdict."""


def sandbox_runner(
    open_executor: Callable[[], Awaitable[ScriptExecutor]], limits: SandboxLimits | None = None
) -> HookCommandRunner:
    """Return a runner of hook commands in the sandbox, each in a temporary workspace."""
    within = limits or SandboxLimits()

    async def run(command: HookCommand) -> ExecutionResult:
        executor = await open_executor()
        # In a thread: it reads files whose path the skill chose.
        job = await anyio.to_thread.run_sync(_to_job, command, within, abandon_on_cancel=True)
        return await executor.run(job)

    return run


def _to_job(command: HookCommand, limits: SandboxLimits) -> ScriptJob:
    root = command.root.resolve() if command.root is not None else None
    places = {"CLAUDE_PROJECT_DIR": str(command.project)}
    if root is not None:
        places |= {"CLAUDE_PLUGIN_ROOT": str(root), "CLAUDE_SKILL_DIR": str(root)}
    program, *rest = (
        _PATH_VARIABLE.sub(lambda found: places.get(found[1] or found[2], ""), word)
        for word in command.argv
    )
    interpreter, flags, script, arguments = _resolve_program(
        program, rest, root, is_confined=command.is_confined
    )
    return ScriptJob(
        interpreter=interpreter,
        flags=flags,
        script=script,
        arguments=tuple(arguments),
        read=() if root is None else (root,),
        env={"PATH": _SYSTEM_PATH, "LANG": "C.UTF-8", **places},
        stdin=command.stdin,
        limits=replace(
            limits,
            wall_seconds=command.seconds,
            cpu_seconds=min(limits.cpu_seconds, math.ceil(command.seconds)),
            output_bytes=min(limits.output_bytes, _MAX_OUTPUT),
        ),
    )


def _resolve_program(
    program: str, rest: list[str], root: Path | None, *, is_confined: bool
) -> tuple[Interpreter, tuple[str, ...], Path, Sequence[str]]:
    """Resolve interpreter, flags, script and arguments of a hook command."""
    path = PurePosixPath(program)
    if str(path.parent) in _SYSTEM_PATH.split(":"):
        program = path.name
    if "/" in program:
        script = _confined_path(program, root) if is_confined else (root or Path()) / program
        with open_regular(script.resolve()) as file:
            name, *flags = script_interpreter(file.readline(SHEBANG_BYTES), script.suffix)
        found = interpreters.find(name) if name else None
        if found is None:
            return _ENV, (), script, rest
        return found, (*found.flags, *flags), script, rest
    found = interpreters.find(program)
    if found is None:
        raise HookFailedError(f"there is no program '{program}'")
    if rest and root is not None and program in _SCRIPT_INTERPRETERS:
        script = root / rest[0]
        if script.is_file():
            return found, found.flags, script, rest[1:]
    starter = replace(_ENV, prefix=found.prefix)
    return starter, (), found.program, (*found.flags, *rest)


def _confined_path(program: str, root: Path | None) -> Path:
    """Return the path of a file inside the skill; symlinks that lead out of it are refused."""
    if root is None:
        raise HookFailedError(f"'{program}' is a path, and the skill has no files")
    target = (root / program).resolve()
    if not target.is_relative_to(root):
        raise HookFailedError(f"'{program}' is outside of the skill")
    return target
