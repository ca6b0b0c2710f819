"""Script interpreters: lookup, paths to mount, and pre-started (warm) interpreters.

A warm interpreter reads its command from stdin as a length-prefixed frame and then behaves like a
fresh one: the rest of stdin belongs to the script. Python and node run the script in process; for
anything else a shell execs the command, so that only the sandbox was warm. Their programs are in
`programs/`: not modules, because the interpreter of a sandbox runs them (`-c`), not this one.
"""

import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from apexbridge.sandbox.base import read_data
from apexbridge.sandbox.uid_pool import is_world_readable

_SEARCH_PATH = "/usr/local/bin:/usr/bin:/bin"
_VERSION = re.compile(r"python3\.(\d+)")
_MIN_PYTHON_MINOR = 11
_NAMES = {"python": "python3", "python3": "python3", "sh": "sh", "bash": "bash", "node": "node"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """An interpreter, and the paths that must be readable for it to start."""

    program: Path
    prefix: tuple[Path, ...] = ()
    flags: tuple[str, ...] = ()
    """Flags before the script."""

    @property
    def kind(self) -> Literal["python", "node", "other"]:
        """The kind of interpreter for warm starts."""
        name = self.program.name
        return "python" if name.startswith("python") else "node" if name == "node" else "other"


def find(name: str) -> Interpreter | None:
    """Find an interpreter by name; Python is the one of this process, if usable in a sandbox."""
    wanted = _NAMES.get(name, name)
    if wanted == "python3":
        return _python()
    if wanted == "typescript":
        return _typescript()
    found = shutil.which(wanted, path=_SEARCH_PATH)
    return None if found is None else _with_prefix(Path(found))


def _python() -> Interpreter:
    """Return our own Python; for root the system's, if other users can read only that one."""
    own = base_python()
    if os.geteuid() != 0 or is_world_readable(own.program):
        return own
    found = shutil.which("python3", path=_SEARCH_PATH)
    version = _VERSION.fullmatch(Path(found).resolve().name) if found else None
    is_new_enough = version is not None and int(version[1]) >= _MIN_PYTHON_MINOR
    return _with_prefix(Path(found)) if found and is_new_enough else own


def _typescript() -> Interpreter | None:
    """Return node, if its version runs TypeScript."""
    node = find("node")
    flags = typescript_flags(_version(node.program)) if node else None
    return None if node is None or flags is None else replace(node, flags=flags)


def typescript_flags(version: str) -> tuple[str, ...] | None:
    """Return the flags with which this version of node runs TypeScript; None if it cannot.

    >>> typescript_flags("v20.19.0"), typescript_flags("v24.1.0")
    (None, ())
    """
    numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
    if numbers >= (23, 6) or (22, 18) <= numbers < (23,):
        return ()
    return ("--experimental-strip-types",) if numbers >= (22, 6) else None


@functools.cache
def _version(program: Path) -> str:
    done = subprocess.run([program, "--version"], capture_output=True, timeout=10, check=False)
    return done.stdout.decode("utf-8", "replace")


def base_python() -> Interpreter:
    """Return the interpreter below our virtual environment, which need not be mounted."""
    prefix = Path(sys.base_prefix).resolve()
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    program = prefix / "bin" / f"python{version}"
    return _with_prefix(program if program.exists() else Path(sys.executable).resolve())


def _with_prefix(program: Path) -> Interpreter:
    if program.is_relative_to("/usr") or program.parent == Path("/bin"):
        return Interpreter(program=program)
    return Interpreter(program=program, prefix=(program.parent.parent,))


InterpreterKind = Literal["python", "node", "other"]

_LENGTH_DIGITS = 8
_MAX_ARGUMENT_BYTES = 128 * 1024 - 1
_MAX_COMMAND_BYTES = 1024 * 1024
"""Longer commands use a cold start, where the kernel reports the error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmInterpreter:
    """An interpreter that waits for its command on stdin."""

    kind: InterpreterKind
    program: str
    flags: tuple[str, ...] = ()

    @property
    def argv(self) -> tuple[str, ...]:
        """The argv that starts it."""
        if self.kind == "python":
            return (self.program, *self.flags, "-c", _program("warm_python.txt"))
        if self.kind == "node":
            return (self.program, "-e", _program("warm_node.js"))
        return (self.program, "--norc", "--noprofile", "-c", _program("warm_shell.sh"))


@functools.cache
def _program(name: str) -> str:
    return read_data(f"programs/{name}")


def warm_interpreter_for(
    interpreter: Interpreter, flags: tuple[str, ...], shell: str
) -> WarmInterpreter | None:
    """Return the warm interpreter for these scripts; None if there is none."""
    if interpreter.kind == "python":
        return WarmInterpreter(kind="python", program=str(interpreter.program), flags=flags)
    if interpreter.kind == "node" and not flags:
        return WarmInterpreter(kind="node", program=str(interpreter.program))
    return WarmInterpreter(kind="other", program=shell) if shell else None


def encode_command(waiter: WarmInterpreter, argv: Sequence[str], script_at: int) -> bytes | None:
    """Encode the command frame; `script_at` is the script's index. None if it is too long."""
    words = argv[script_at:] if waiter.kind in {"python", "node"} else argv
    encoded = [os.fsencode(word) + b"\0" for word in words]
    body = b"%d\0" % len(words) + b"".join(encoded)
    if max(map(len, encoded)) > _MAX_ARGUMENT_BYTES or len(body) > _MAX_COMMAND_BYTES:
        return None
    return b"%0*d" % (_LENGTH_DIGITS, len(body)) + body
