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
_OTHER_NAMES = {
    "python": ("python3",), "lua": ("lua", "lua5.4", "lua5.3", "luajit"), "pwsh": ("pwsh",),
    "powershell": ("pwsh",), "nodejs": ("node",), "R": ("Rscript",), "cmd": (),
}  # fmt: skip
"""Programs that run the scripts of a name, if it is not only the one of that name."""
_RUN_FLAGS = {
    "pwsh": ("-NoProfile", "-NonInteractive", "-File"), "fish": ("--no-config",),
    "awk": ("-f",), "deno": ("run", "--allow-all", "--no-prompt"),
}  # fmt: skip
"""Flags that a program needs to run a script; a shebang with arguments replaces them."""
_TYPESCRIPT_RUNNERS = ("bun", "deno", "tsx")


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
    version = _VERSION.fullmatch(name)
    if name in {"python", "python3"}:
        return _python()
    if version is not None:
        return _python_version(int(version[1]))
    if name in {"typescript", "jsx"}:
        return (_typescript_node() if name == "typescript" else None) or _find_any(
            _TYPESCRIPT_RUNNERS
        )
    return _find_any(_OTHER_NAMES.get(name, (name,)))


def _find_any(names: Sequence[str]) -> Interpreter | None:
    found = (shutil.which(name, path=_SEARCH_PATH) for name in names)
    program = next(filter(None, found), None)
    return None if program is None else _with_prefix(Path(program))


def run_flags(interpreter: Interpreter, words: Sequence[str]) -> tuple[str, ...]:
    """Return the flags before a script; `words` are those of its shebang."""
    return (*interpreter.flags, *(words or _RUN_FLAGS.get(interpreter.program.name, ())))


def _python() -> Interpreter:
    """Return our own Python; for root the system's, if other users can read only that one."""
    own = base_python()
    if os.geteuid() != 0 or is_world_readable(own.program):
        return own
    found = shutil.which("python3", path=_SEARCH_PATH)
    version = _VERSION.fullmatch(Path(found).resolve().name) if found else None
    is_new_enough = version is not None and int(version[1]) >= _MIN_PYTHON_MINOR
    return _with_prefix(Path(found)) if found and is_new_enough else own


def _python_version(minor: int) -> Interpreter | None:
    """Return the Python of a version, else the usual one if it is not older."""
    usual = _python()
    version = _VERSION.fullmatch(usual.program.resolve().name)
    its_minor = int(version[1]) if version else 0
    if its_minor == minor:
        return usual
    exact = _find_any((f"python3.{minor}",))
    return exact or (usual if its_minor > minor else None)


def _typescript_node() -> Interpreter | None:
    """Return node, if its version runs TypeScript."""
    node = find("node")
    flags = typescript_flags(program_version(node.program)) if node else None
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
def program_version(program: Path) -> str:
    """Return what the program prints for `--version`. Blocks."""
    return _print(program, "--version").strip()


@functools.cache
def package_folders(python: Path) -> tuple[Path, ...]:
    """Return the folders of packages that this Python imports in a sandbox. Blocks."""
    source = "import sys; print(*sys.path, sep='\\n')"
    return tuple(map(Path, filter(None, _print(python, "-I", "-c", source).splitlines())))


def _print(program: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            [program, *arguments], capture_output=True, timeout=10, check=False, env={}
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace")


def base_python() -> Interpreter:
    """Return the interpreter below our virtual environment, which need not be mounted."""
    prefix = Path(sys.base_prefix).resolve()
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    program = prefix / "bin" / f"python{version}"
    return _with_prefix(program if program.exists() else Path(sys.executable).resolve())


def _with_prefix(program: Path) -> Interpreter:
    """Add the folder to mount, also where the program is a link to one outside of `/usr`."""
    real = program.resolve()
    found = [path for path in (program, real) if not _is_system_path(path)]
    prefixes = dict.fromkeys(map(_installation, found))
    return Interpreter(program=program, prefix=tuple(prefixes))


def _is_system_path(program: Path) -> bool:
    return program.is_relative_to("/usr") or program.parent == Path("/bin")


def _installation(program: Path) -> Path:
    """Return the folder of an installation: of its `bin`, or the program's own."""
    return program.parent.parent if program.parent.name == "bin" else program.parent


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
