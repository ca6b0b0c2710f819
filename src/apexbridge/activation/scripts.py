"""Run a skill's script in the sandbox: choice of script, interpreter and environment."""

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
    """Script, arguments, input files and limits of one run."""

    skill: Skill
    script: str = ""
    arguments: tuple[str, ...] = ()
    inputs: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    stdin: bytes = b""
    hosts: tuple[str, ...] = ()
    """Network allowlist; empty for no network."""
    limits: SandboxLimits = SandboxLimits()
    on_output: Callable[[int, bytes], None] | None = None


async def run_script(call: ScriptCall, executor: ScriptExecutor) -> ExecutionResult:
    """Run the script in a temporary workspace; files it creates there are returned in the result.

    The skill's directory is mounted read-only at its own path. No other files, network or
    environment variables of this machine are visible.

    Raises:
        ToolInputError: If the skill has no such script, or the arguments cannot be passed.
        PermissionError: If the script is not executable.
    """
    if call.skill.root is None:
        raise _input_error(call, "it has no folder")
    root = call.skill.root.resolve()  # a symlinked skill is mounted at its real path
    entry = find_script(call)
    _require_executable(entry)
    words, interpreter = _interpreter(entry)
    missing = (
        "" if interpreter else f"interpreter_missing: {_INTERPRETER_HINTS.get(words[0], words[0])}"
    )
    missing = missing or _missing_dependencies(entry)
    if missing or interpreter is None:
        return ExecutionResult(
            outcome="not_started", exit_code=None, error=missing, isolation=executor.isolation
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
        return await executor.run(job)
    except ValueError as error:
        raise _input_error(call, str(error)) from None


def find_script(call: ScriptCall) -> Path:
    """Find the named script, else one of the default names, else the only one.

    Raises:
        ToolInputError: If there is none, or several to choose from.
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
    """Return whether the skill has any script to run."""
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
    """Find the interpreter by the shebang line, else by the suffix."""
    with entry.open("rb") as file:
        name, *words = script_interpreter(file.readline(SHEBANG_BYTES), entry.suffix)
    return [name or "?", *words], interpreters.find(name) if name else None


def _missing_dependencies(entry: Path) -> str:
    """Return an error if PEP 723 inline metadata has dependencies: the sandbox has no network."""
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
    """Build the environment: nothing is inherited, so no secret of this process leaks."""
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "CLAUDE_SKILL_DIR": str(root),
    }
