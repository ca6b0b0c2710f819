"""Run a skill's script in the sandbox: choice of script, and environment."""

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import anyio.to_thread

from apexbridge.activation.script_command import (
    PrepareInterpreter,
    ScriptCommand,
    resolve_command,
    use_installed_packages,
)
from apexbridge.errors import ScriptStartError, ToolInputError
from apexbridge.paths import safe_join
from apexbridge.regular_files import open_regular
from apexbridge.sandbox.base import ExecutionResult, SandboxLimits
from apexbridge.sandbox.interceptor import Interceptor
from apexbridge.sandbox.script_executor import ScriptExecutor, ScriptJob
from apexbridge.skills.model import Skill
from apexbridge.skills.shebang import INTERPRETER_BY_SUFFIX

_DEFAULT_SCRIPTS = ("scripts/main", "scripts/index", "main", "index")
_OTHER_SYSTEMS = frozenset({".bat", ".cmd", ".ps1", ".applescript"})
"""Suffixes of scripts that usually accompany the same script for this system."""
_MODULE = re.compile(r"(?:(?:python3?\s+)?-m\s+)?([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)", re.ASCII)


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
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    """Further variables: placeholders of secrets, never values."""
    interceptor: Interceptor | None = None
    limits: SandboxLimits = SandboxLimits()
    owner: str = ""
    """Session or API key that the output files belong to."""
    on_output: Callable[[int, bytes], None] | None = None


async def run_script(
    call: ScriptCall,
    executor: ScriptExecutor,
    prepare: PrepareInterpreter = use_installed_packages,
) -> ExecutionResult:
    """Run the script in a temporary workspace; files it creates there are returned in the result.

    The skill's directory is mounted read-only at its own path. No other files, network or
    environment variables of this machine are visible. `prepare` chooses the interpreter that
    has the packages of the script.

    Raises:
        ToolInputError: If the skill has no such script, or the arguments cannot be passed.
        PermissionError: If the script is a program without the executable bit.
    """
    if call.skill.root is None:
        raise _input_error(call, "it has no folder")
    try:
        job = await anyio.to_thread.run_sync(_create_job, call, prepare)
    except ScriptStartError as error:
        return ExecutionResult(
            outcome="not_started",
            exit_code=None,
            error=error.reason,
            cause=error,
            isolation=executor.isolation,
        )
    try:
        return await executor.run(job)
    except ValueError as error:
        raise _input_error(call, str(error)) from None


def _create_job(call: ScriptCall, prepare: PrepareInterpreter) -> ScriptJob:
    root = (call.skill.root or Path()).resolve()  # a symlinked skill is mounted at its real path
    entry = find_entry(call)
    command: ScriptCommand = resolve_command(root, entry.path, entry.module, prepare)
    return ScriptJob(
        interpreter=command.interpreter,
        flags=command.flags,
        script=command.script,
        arguments=call.arguments,
        read=(root,),
        env={**call.env, **_environment(root), **command.env},
        inputs=call.inputs,
        stdin=call.stdin,
        hosts=call.hosts,
        interceptor=call.interceptor,
        limits=call.limits,
        on_output=call.on_output,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptEntry:
    """A script's file; `module` if it was asked for as `python -m`."""

    path: Path
    module: str = ""


def find_script(call: ScriptCall) -> Path:
    """Find the named script, else one of the default names, else the only one.

    Raises:
        ToolInputError: If there is none, or several to choose from.
    """
    return find_entry(call).path


def find_entry(call: ScriptCall) -> ScriptEntry:
    """Find the script by path, or by module name (`scripts.run`, `python -m scripts.run`).

    Raises:
        ToolInputError: If there is none, or several to choose from.
    """
    root = call.skill.root or Path()
    if not call.script:
        return ScriptEntry(path=_default_script(call, root))
    with suppress(OSError):  # a name that is too long is no path
        for path in (PurePosixPath(call.script), "scripts" / PurePosixPath(call.script)):
            target = safe_join(root, path.as_posix())
            if target.is_file() and not (root / path).is_symlink():
                return ScriptEntry(path=target)
    module = _MODULE.fullmatch(call.script.strip())
    for path in _module_paths(module[1]) if module else ():
        if (root / path).is_file() and not (root / path).is_symlink():
            return ScriptEntry(path=safe_join(root, path), module=module[1] if module else "")
    raise _input_error(call, f"it has no script '{call.script}'")


def _module_paths(module: str) -> tuple[str, str]:
    path = module.replace(".", "/")
    return f"{path}.py", f"{path}/__main__.py"


def _default_script(call: ScriptCall, root: Path) -> Path:
    for stem in _DEFAULT_SCRIPTS:
        for suffix in INTERPRETER_BY_SUFFIX:
            if (root / f"{stem}{suffix}").is_file():
                return safe_join(root, f"{stem}{suffix}")
    scripts = _for_this_system(sorted((root / "scripts").glob("*")))
    if len(scripts) == 1:
        return safe_join(root, f"scripts/{scripts[0].name}")
    names = ", ".join(path.name for path in scripts)
    raise _input_error(call, f"say which script: {names}" if scripts else "it has no script")


def _for_this_system(paths: Iterable[Path]) -> list[Path]:
    """Keep scripts; those for other systems only if there are no others."""
    scripts = [path for path in paths if _is_script(path)]
    own = [path for path in scripts if path.suffix.lower() not in _OTHER_SYSTEMS]
    return own or scripts


def _is_script(path: Path) -> bool:
    if path.suffix or not path.is_file():
        return path.suffix.lower() in INTERPRETER_BY_SUFFIX and path.name != "__init__.py"
    with open_regular(path) as file:
        return file.read(2) == b"#!"


def has_script(skill: Skill) -> bool:
    """Return whether the skill has any script to run."""
    root = skill.root or Path()
    places = (root, root / "scripts") if skill.root else ()
    stems = {PurePosixPath(entry).name for entry in _DEFAULT_SCRIPTS}
    for place in places:
        with suppress(OSError):
            scripts = [path for path in place.iterdir() if _is_script(path)]
            if any(place != root or path.stem in stems for path in scripts):
                return True
    return False


def _input_error(call: ScriptCall, detail: str) -> ToolInputError:
    return ToolInputError(detail, code="script_unusable", name=call.skill.name)


def _environment(root: Path) -> dict[str, str]:
    """Build the environment: nothing is inherited, so no secret of this process leaks."""
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "CLAUDE_SKILL_DIR": str(root),
    }
