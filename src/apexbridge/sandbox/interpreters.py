"""Programs that run scripts, and the folders they need to be seen."""

import os
import re
import shutil
import sys
from dataclasses import dataclass
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
