"""Environments of a skill at the start of a script: which it uses, and what finds its packages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from apexbridge.environments.node_builder import REGISTER
from apexbridge.environments.seal import MANIFEST
from apexbridge.sandbox.interpreters import Interpreter

_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """An interpreter with the environments mounted, and the variables that find their packages."""

    interpreter: Interpreter
    env: dict[str, str] = field(default_factory=dict[str, str])
    has_packages: bool = False
    """True if an environment of the script's own language is in use."""


def select(found: Interpreter, environments: Mapping[str, Path]) -> Selection:
    """Choose the interpreter of an environment; commands of all of them are on PATH. Blocks.

    An environment that was built for another interpreter is left out.
    """
    python, node = environments.get("python"), environments.get("node")
    if python is not None and not _is_usable(python, found):
        python = None
    programs, prefix, env = list[str](), list[Path](), dict[str, str]()
    if python is not None:
        programs.append(str(python / "bin"))
        prefix.append(python)
    if node is not None and (node / MANIFEST).is_file():
        programs.append(str(node / "node_modules/.bin"))
        prefix.append(node)
        env["NODE_PATH"] = str(node / "node_modules")
        env["NODE_OPTIONS"] = f"--import={(node / REGISTER).as_uri()}"
    else:
        node = None
    if not prefix:
        return Selection(interpreter=found)
    env["PATH"] = ":".join((*programs, _SYSTEM_PATH))
    is_python = found.kind == "python" and python is not None
    program = python / "bin/python" if is_python and python is not None else found.program
    return Selection(
        interpreter=replace(found, program=program, prefix=(*prefix, *_base(found, python))),
        env=env,
        has_packages=is_python or (found.kind == "node" and node is not None),
    )


def _base(found: Interpreter, python: Path | None) -> Sequence[Path]:
    """Return what the interpreter itself needs; a shell script may start the environment's."""
    if python is None or found.kind == "python":
        return found.prefix
    target = (python / "bin/python").readlink()
    own = () if target.is_relative_to("/usr") else (target.parent.parent,)
    return (*found.prefix, *own)


def _is_usable(python: Path, found: Interpreter) -> bool:
    """Return whether the environment belongs to this Python, or one that is there at all."""
    try:
        target = (python / "bin/python").readlink()
        version = next((python / "lib").glob("python3.*")).name
    except (OSError, StopIteration):
        return False
    if not (python / MANIFEST).is_file() or not target.exists():
        return False
    is_same_minor = version in target.resolve().name
    return is_same_minor and (found.kind != "python" or found.program == target)
