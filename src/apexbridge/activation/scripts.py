"""Run a skill's script: which file, with what, and in a sandbox always."""

import re
import stat
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from apexbridge.errors import ToolInputError
from apexbridge.paths import safe_join
from apexbridge.sandbox import interpreters
from apexbridge.sandbox.base import ExecutionResult, SandboxLimits
from apexbridge.sandbox.interpreters import Interpreter
from apexbridge.sandbox.script_executor import ScriptExecutor, ScriptJob
from apexbridge.skills.model import Skill
from apexbridge.skills.tree import INTERPRETER_BY_SUFFIX, SHEBANG_BYTES, script_interpreter

_INTERPRETER_HINTS = {"typescript": "node 22.6 or newer, for TypeScript"}
_DEFAULT_SCRIPTS = ("scripts/main", "scripts/index", "main", "index")
_PEP723_BLOCK = re.compile(
    r"^# /// script[ \t]*\n((?:#(?:| [^\n]*)\n)+?)# ///[ \t]*$", re.MULTILINE
)
_HEAD_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptCall:
    """A wish to run a skill's script."""

    skill: Skill
    script: str = ""
    arguments: tuple[str, ...] = ()
    inputs: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    stdin: bytes = b""
    hosts: tuple[str, ...] = ()
    """Hosts that may be reached; none if empty."""
    limits: SandboxLimits = SandboxLimits()
    on_output: Callable[[int, bytes], None] | None = None


async def run_script(call: ScriptCall, workshop: ScriptExecutor) -> ExecutionResult:
    """Run the script in a workspace of its own; what it leaves there comes back with the result.

    The skill's folder can be read at its own path and not written. Nothing else of this machine's
    files, network or environment is there.

    Raises:
        ToolInputError: If the skill has no such script, or the arguments cannot be passed.
        PermissionError: If the script is not executable.
    """
    if call.skill.root is None:
        raise _input_error(call, "it has no folder")
    root = call.skill.root.resolve()  # a linked skill is seen where it really lies
    entry = find_script(call)
    _require_executable(entry)
    words, interpreter = _interpreter(entry)
    missing = (
        "" if interpreter else f"interpreter_missing: {_INTERPRETER_HINTS.get(words[0], words[0])}"
    )
    missing = missing or _missing_dependencies(entry)
    if missing or interpreter is None:
        return ExecutionResult(
            outcome="not_started", exit_code=None, error=missing, isolation=workshop.isolation
        )
    job = ScriptJob(
        interpreter=interpreter,
        flags=(*interpreter.flags, *words[1:]),
        script=entry,
        arguments=call.arguments,
        read=(root,),
        env=_environment(root),
        inputs=call.inputs,
        stdin=call.stdin,
        hosts=call.hosts,
        limits=call.limits,
        on_output=call.on_output,
    )
    try:
        return await workshop.run(job)
    except ValueError as error:
        raise _input_error(call, str(error)) from None


def find_script(call: ScriptCall) -> Path:
    """The named script, else the usual names, else the only one there is.

    Raises:
        ToolInputError: If there is none, or it cannot be told which.
    """
    root = call.skill.root or Path()
    if call.script:
        named = PurePosixPath(call.script)
        for path in (named, "scripts" / named):
            target = safe_join(root, path.as_posix())
            if target.is_file() and not (root / path).is_symlink():
                return target
        raise _input_error(call, f"it has no script '{call.script}'")
    for stem in _DEFAULT_SCRIPTS:
        for suffix in INTERPRETER_BY_SUFFIX:
            if (root / f"{stem}{suffix}").is_file():
                return safe_join(root, f"{stem}{suffix}")
    scripts = [p for p in sorted((root / "scripts").glob("*")) if p.suffix in INTERPRETER_BY_SUFFIX]
    if len(scripts) == 1:
        return safe_join(root, f"scripts/{scripts[0].name}")
    names = ", ".join(path.name for path in scripts)
    raise _input_error(call, f"say which script: {names}" if scripts else "it has no script")


def has_script(skill: Skill) -> bool:
    """Say whether there is anything that could be run without naming it, or by its name."""
    root = skill.root or Path()
    places = (root, root / "scripts") if skill.root else ()
    stems = {PurePosixPath(entry).name for entry in _DEFAULT_SCRIPTS}
    for place in places:
        with suppress(OSError):
            scripts = [path for path in place.iterdir() if path.suffix in INTERPRETER_BY_SUFFIX]
            if any(place != root or path.stem in stems for path in scripts):
                return True
    return False


def _input_error(call: ScriptCall, detail: str) -> ToolInputError:
    return ToolInputError(detail, code="script_unusable", name=call.skill.name)


def _require_executable(entry: Path) -> None:
    if not entry.stat().st_mode & stat.S_IXUSR:
        raise PermissionError(13, "The script is not executable (chmod +x)", str(entry))


def _interpreter(entry: Path) -> tuple[list[str], Interpreter | None]:
    """The interpreter's words and where it is: from the first line, else from the suffix."""
    with entry.open("rb") as file:
        name, *words = script_interpreter(file.readline(SHEBANG_BYTES), entry.suffix)
    return [name or "?", *words], interpreters.find(name) if name else None


def _missing_dependencies(entry: Path) -> str:
    """What inline metadata asks for cannot be installed in here: said before anything runs."""
    if entry.suffix != ".py":
        return ""
    with entry.open("rb") as file:
        match = _PEP723_BLOCK.search(file.read(_HEAD_BYTES).decode("utf-8", "replace"))
    if match is None:
        return ""
    lines = (line.removeprefix("#").removeprefix(" ") for line in match[1].splitlines())
    try:
        wanted = tomllib.loads("\n".join(lines)).get("dependencies", [])
    except tomllib.TOMLDecodeError as error:
        return f"dependencies_unreadable: {error}"
    return f"dependencies_missing: {', '.join(map(str, wanted))}" if wanted else ""


def _environment(root: Path) -> dict[str, str]:
    """All that a script sees of an environment, besides where its workspace is."""
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "CLAUDE_SKILL_DIR": str(root),
    }
