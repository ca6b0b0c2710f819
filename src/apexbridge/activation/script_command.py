"""Command line of a skill's script: interpreter, flags, and the import path of Python."""

import re
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from apexbridge.environments.installed import require_dependencies
from apexbridge.errors import ScriptStartError
from apexbridge.regular_files import open_regular
from apexbridge.sandbox import interpreters
from apexbridge.sandbox.interpreters import Interpreter
from apexbridge.skills.shebang import SHEBANG_BYTES, script_interpreter

_PROGRAM_MAGIC = (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
"""ELF and Mach-O."""
_VERSIONED_PYTHON = re.compile(r"python[23](\.\d+)?")
_RELATIVE_IMPORT = re.compile(rb"^[ \t]*from[ \t]+\.", re.MULTILINE)
_MAX_SOURCE_BYTES = 1024 * 1024
_FOREIGN_SYSTEMS = {"cmd": "Windows", "osascript": "macOS"}
_SHOWN_LINE = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptCommand:
    """Interpreter, its flags, and the script; no script if the flags name a module or program."""

    interpreter: Interpreter
    flags: tuple[str, ...] = ()
    script: Path | None = None
    env: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedInterpreter:
    """The interpreter to run a script with, and the variables with which it finds packages."""

    interpreter: Interpreter
    env: dict[str, str] = field(default_factory=dict[str, str])


PrepareInterpreter = Callable[[Path, Interpreter], PreparedInterpreter]
"""Chooses the interpreter that has a script's packages; ScriptStartError if they are missing."""


def use_installed_packages(script: Path, found: Interpreter) -> PreparedInterpreter:
    """Run a script with the packages of this machine (a `PrepareInterpreter`).

    Raises:
        ScriptStartError: If packages that a Python script declares are missing.
    """
    if found.kind == "python":
        require_dependencies(script, found, script.parent.name)
    return PreparedInterpreter(interpreter=found)


def resolve_command(
    root: Path, script: Path, module: str, prepare: PrepareInterpreter = use_installed_packages
) -> ScriptCommand:
    """Resolve how a script starts; `module` if it is run as `python -m`. Blocks.

    Raises:
        ScriptStartError: If its interpreter or its declared packages are missing.
        PermissionError: If it is a program without the executable bit.
    """
    with open_regular(script) as file:
        head = file.readline(SHEBANG_BYTES)
    name, *words = script_interpreter(head, script.suffix)
    if module and not name.startswith("python"):
        name, words = "python", []
    if not name:
        return _program_command(script, head)
    found = interpreters.find(name)
    if found is None:
        raise _missing_interpreter(script, name)
    prepared = prepare(script, found)
    if found.kind == "python":
        return _python_command(root, script, module, words, prepared)
    flags = interpreters.run_flags(prepared.interpreter, words)
    return ScriptCommand(
        interpreter=prepared.interpreter, flags=flags, script=script, env=prepared.env
    )


def _python_command(
    root: Path, script: Path, module: str, words: list[str], prepared: PreparedInterpreter
) -> ScriptCommand:
    """Run a script, or the module that it was asked for as, or must be run as."""
    python, folders = prepared.interpreter, (root,)
    above = tuple(folder for folder in script.parent.parents if folder.is_relative_to(root))
    if not module:
        base, module = _package_of(root, script)
        folders = (base, *above, script.parent)
    if module:
        command = _module_command(python, words, module, folders)
    else:
        env = _import_path((), above)
        command = ScriptCommand(interpreter=python, flags=tuple(words), script=script, env=env)
    return replace(command, env=prepared.env | command.env)


def _module_command(
    python: Interpreter, words: list[str], module: str, folders: tuple[Path, ...]
) -> ScriptCommand:
    env = _import_path(folders[:1], folders[1:])
    return ScriptCommand(interpreter=python, flags=(*words, "-m", module), env=env)


def _program_command(script: Path, head: bytes) -> ScriptCommand:
    """Run a compiled program, which needs its executable bit."""
    if head.startswith(b"#!"):
        line = head.decode("utf-8", "replace").strip()[:_SHOWN_LINE]
        raise ScriptStartError(code="shebang_invalid", script=script.name, line=line)
    if not head.startswith(_PROGRAM_MAGIC):
        raise ScriptStartError(code="script_format_unknown", reason="ENOEXEC", script=script.name)
    if not script.stat().st_mode & stat.S_IXUSR:
        raise PermissionError(13, "The program is not executable (chmod +x)", str(script))
    return ScriptCommand(interpreter=Interpreter(program=script))


def _missing_interpreter(script: Path, name: str) -> ScriptStartError:
    """Build the error that says what is missing and what would help."""
    details = {"script": script.name, "interpreter": name}
    if name == "jsx":
        return ScriptStartError(code="typescript_markup_unsupported", **details)
    if name == "typescript":
        node = interpreters.find("node")
        found = f"Node.js {interpreters.program_version(node.program)}" if node else "no Node.js"
        return ScriptStartError(code="typescript_unsupported", **details, found=found)
    if name in _FOREIGN_SYSTEMS:
        system = _FOREIGN_SYSTEMS[name]
        return ScriptStartError(code="interpreter_foreign", **details, system=system)
    if _VERSIONED_PYTHON.fullmatch(name):
        usual = interpreters.find("python3")
        found = interpreters.program_version(usual.program) if usual else "none"
        return ScriptStartError(code="interpreter_too_old", **details, found=found)
    return ScriptStartError(code="interpreter_missing", **details)


def _package_of(root: Path, script: Path) -> tuple[Path, str]:
    """Return base folder and module name of a script with relative imports; else no name.

    Python runs such a file as a module of its package only.
    """
    with open_regular(script) as file:
        is_relative = _RELATIVE_IMPORT.search(file.read(_MAX_SOURCE_BYTES)) is not None
    parts, folder = [script.stem], script.parent
    while folder != root and folder.name.isidentifier():
        parts.insert(0, folder.name)
        folder = folder.parent
    is_module = is_relative and len(parts) > 1 and script.stem.isidentifier()
    return (folder, ".".join(parts)) if is_module else (root, "")


def _import_path(needed: tuple[Path, ...], useful: tuple[Path, ...]) -> dict[str, str]:
    """Let Python import from these folders; from the useful ones unless they hide its own modules.

    Real skills import from their root (`from scripts.utils import …`), as if started there, and
    from folders between (`from core import …` in `scripts/cli/run.py`, as if started in `scripts`).
    """
    harmless = (folder for folder in useful if not _hides_standard_library(folder))
    folders = dict.fromkeys((*needed, *harmless))
    return {"PYTHONPATH": ":".join(map(str, folders))} if folders else {}


def _hides_standard_library(folder: Path) -> bool:
    names = {path.stem for path in folder.glob("*.py")}
    names |= {path.parent.name for path in folder.glob("*/__init__.py")}
    return not names.isdisjoint(sys.stdlib_module_names)
