"""Programs that run scripts, and the folders they need to be seen."""

import functools
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from apexbridge.sandbox.users import can_be_reached

_SEARCH = "/usr/local/bin:/usr/bin:/bin"
_VERSION = re.compile(r"python3\.(\d+)")
_LEAST_PYTHON = 11
_NAMES = {"python": "python3", "python3": "python3", "sh": "sh", "bash": "bash", "node": "node"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """A program, and what must be readable for it to start."""

    program: Path
    prefix: tuple[Path, ...] = ()
    flags: tuple[str, ...] = ()
    """Words it needs before the script."""

    @property
    def kind(self) -> Literal["python", "node", "other"]:
        """Which of those that we know better than others."""
        name = self.program.name
        return "python" if name.startswith("python") else "node" if name == "node" else "other"


def find(name: str) -> Interpreter | None:
    """Find an interpreter by its usual name; Python is the one this process runs on, if it can."""
    wanted = _NAMES.get(name, name)
    if wanted == "python3":
        return _python()
    if wanted == "typescript":
        return _typescript()
    found = shutil.which(wanted, path=_SEARCH)
    return None if found is None else _with_prefix(Path(found))


def _python() -> Interpreter:
    """Our own; for root the system's, if only that one can be reached by other users."""
    own = own_python()
    if os.geteuid() != 0 or can_be_reached(own.program):
        return own
    found = shutil.which("python3", path=_SEARCH)
    version = _VERSION.fullmatch(Path(found).resolve().name) if found else None
    is_new_enough = version is not None and int(version[1]) >= _LEAST_PYTHON
    return _with_prefix(Path(found)) if found and is_new_enough else own


def _typescript() -> Interpreter | None:
    """Node, if it is new enough to run TypeScript."""
    node = find("node")
    flags = typescript_flags(_version_of(node.program)) if node else None
    return None if node is None or flags is None else replace(node, flags=flags)


def typescript_flags(version: str) -> tuple[str, ...] | None:
    """What this version of node needs to run TypeScript; None if it cannot.

    >>> typescript_flags("v20.19.0"), typescript_flags("v24.1.0")
    (None, ())
    """
    numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
    if numbers >= (23, 6) or (22, 18) <= numbers < (23,):
        return ()
    return ("--experimental-strip-types",) if numbers >= (22, 6) else None


@functools.cache
def _version_of(program: Path) -> str:
    done = subprocess.run([program, "--version"], capture_output=True, timeout=10, check=False)
    return done.stdout.decode("utf-8", "replace")


def own_python() -> Interpreter:
    """The interpreter below our virtual environment: a sandbox need not see the environment."""
    prefix = Path(sys.base_prefix).resolve()
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    program = prefix / "bin" / f"python{version}"
    return _with_prefix(program if program.exists() else Path(sys.executable).resolve())


def _with_prefix(program: Path) -> Interpreter:
    if program.is_relative_to("/usr") or program.parent == Path("/bin"):
        return Interpreter(program=program)
    return Interpreter(program=program, prefix=(program.parent.parent,))
