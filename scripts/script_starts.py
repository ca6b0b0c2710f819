"""Starts of a skill's scripts, and the reason for each that did not start."""

import ast
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from apexbridge.activation.scripts import ScriptCall
from apexbridge.errors import ApexBridgeError
from apexbridge.runtime import Runtime
from apexbridge.sandbox.base import ExecutionResult, SandboxLimits
from apexbridge.skills.model import Skill

Outcome = Literal["started", "failed", "unavailable"]
SUFFIXES = frozenset(
    {".py", ".sh", ".bash", ".js", ".mjs", ".cjs", ".ts", ".mts", ".rb", ".pl", ".ps1"}
)
SECONDS = 20.0
_MODULE_MISSING = re.compile(
    r"ModuleNotFoundError: No module named '([^']+)'"
    r"|Cannot find (?:module|package) '([^']+)'"
    r"|ImportError: (cannot import name .+)"
)
_COMMAND_MISSING = re.compile(
    r"(?:line \d+: |env: )[‘'\"]?([\w.+-]+)[’'\"]?: (?:command not found|No such file)"
)
_ABSENT = frozenset({
    "interpreter_missing", "interpreter_too_old", "interpreter_foreign",
    "typescript_unsupported", "typescript_markup_unsupported",
})  # fmt: skip
"""Errors of scripts whose interpreter this machine does not have."""
_PACKAGE_MODULE = re.compile(r"attempted relative import with no known parent package")
_INVALID = re.compile(
    r"^(?:SyntaxError|IndentationError|TabError): |syntax error near", re.MULTILINE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One script and what became of starting it."""

    script: str
    outcome: Outcome
    reason: str = ""


def script_files(root: Path, limit: int) -> Iterator[str]:
    """Return the programs of a skill: no tests, and no modules that only a package imports."""
    found = 0
    for path in sorted((root / "scripts").rglob("*")):
        is_program = path.is_file() and path.suffix in SUFFIXES and not path.is_symlink()
        if is_program and not _is_part_of_package(path) and not _is_test(path) and found < limit:
            found += 1
            yield path.relative_to(root).as_posix()


def _is_test(path: Path) -> bool:
    return (
        path.name.startswith(("test_", "conftest"))
        or ".test." in path.name
        or "tests" in path.parts
    )


def _is_part_of_package(path: Path) -> bool:
    """Return whether a Python file is no program: `__init__`, or relative imports and no main."""
    if path.suffix != ".py":
        return False
    if path.name == "__init__.py":
        return True
    source = path.read_text("utf-8", errors="replace")
    return bool(re.search(r"^from \.", source, re.MULTILINE)) and "__main__" not in source


async def start(runtime: Runtime, skill: Skill, script: str) -> Start:
    """Run a script with `--help` and classify the outcome."""
    call = ScriptCall(
        skill=skill,
        script=script,
        arguments=("--help",),
        limits=SandboxLimits(wall_seconds=SECONDS),
    )
    try:
        result = await runtime.script_runner.execute(call)
    except (ApexBridgeError, OSError, ValueError) as error:
        code = getattr(error, "code", type(error).__name__)
        return Start(script=script, outcome="failed", reason=f"refused: {code}")
    return _classified(script, (skill.root or Path()) / script, result)


def _classified(script: str, path: Path, result: ExecutionResult) -> Start:
    if result.exit_code is None and result.outcome == "not_started":
        return _not_started(script, result)
    text = (result.stderr + result.stdout).decode("utf-8", "replace")
    if result.exit_code:
        if _INVALID.search(text) and not _is_valid(path):
            return Start(
                script=script, outcome="unavailable", reason="the file is no valid program"
            )
        if match := _MODULE_MISSING.search(text):
            return Start(
                script=script,
                outcome="failed",
                reason=f"module: {next(filter(None, match.groups()))}",
            )
        if _PACKAGE_MODULE.search(text):
            return Start(script=script, outcome="unavailable", reason="a module of a package")
        if (match := _COMMAND_MISSING.search(text)) and not shutil.which(match[1]):
            return Start(script=script, outcome="unavailable", reason=f"command: {match[1]}")
    return Start(script=script, outcome="started")


def _not_started(script: str, result: ExecutionResult) -> Start:
    if result.cause is not None and result.cause.code in _ABSENT:
        return Start(script=script, outcome="unavailable", reason=result.cause.message)
    return Start(script=script, outcome="failed", reason=(result.error or "")[:100])


def _is_valid(path: Path) -> bool:
    if path.suffix != ".py":
        return False
    try:
        ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return False
    return True
