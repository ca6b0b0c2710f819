"""Dependencies that a Python script declares (PEP 723, `uv run --with`) and this machine lacks."""

import re
import tomllib
from importlib import metadata
from pathlib import Path

from apexbridge.errors import ScriptStartError
from apexbridge.sandbox.interpreters import Interpreter, package_folders
from apexbridge.skills.shebang import shebang_requirements

_PEP723_BLOCK = re.compile(
    r"^# /// script[ \t]*\n((?:#(?:| [^\n]*)\n)+?)# ///[ \t]*$", re.MULTILINE
)
_HEAD_BYTES = 64 * 1024
_DISTRIBUTION = re.compile(r"\s*([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)")
_SEPARATORS = re.compile(r"[-_.]+")


def require_dependencies(script: Path, interpreter: Interpreter) -> None:
    """Check that the packages which the script declares can be imported; by name only.

    The sandbox has no network, so a script whose packages are missing would fail half-way.

    Raises:
        ScriptStartError: If packages are missing, or the declaration cannot be read.
    """
    wanted = declared_requirements(script)
    if not wanted:
        return
    installed = _installed(interpreter)
    missing = [text for text in wanted if _distribution(text) not in installed]
    if missing:
        names = ", ".join(missing)
        raise ScriptStartError(
            code="dependencies_missing",
            reason=f"dependencies_missing: {names}",
            script=script.name,
            packages=names,
        )


def declared_requirements(script: Path) -> tuple[str, ...]:
    """Return the requirements in a Python script's inline metadata and shebang.

    Raises:
        ScriptStartError: If the metadata cannot be read.
    """
    with script.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    asked = shebang_requirements(head.split(b"\n", 1)[0])
    match = _PEP723_BLOCK.search(head.decode("utf-8", "replace").replace("\r\n", "\n"))
    if match is None:
        return asked
    lines = (line.removeprefix("#").removeprefix(" ") for line in match[1].splitlines())
    try:
        wanted = tomllib.loads("\n".join(lines)).get("dependencies", [])
    except tomllib.TOMLDecodeError as error:
        raise ScriptStartError(
            str(error),
            code="dependencies_unreadable",
            reason=f"dependencies_unreadable: {error}",
            script=script.name,
        ) from None
    return (*asked, *map(str, wanted))


def _installed(interpreter: Interpreter) -> set[str]:
    folders = [str(folder) for folder in package_folders(interpreter.program)]
    found = (item.metadata["Name"] for item in metadata.distributions(path=folders))
    return {_normalize(name) for name in found if name}


def _distribution(requirement: str) -> str:
    match = _DISTRIBUTION.match(requirement)
    return _normalize(match[1]) if match else requirement


def _normalize(name: str) -> str:
    return _SEPARATORS.sub("-", name).lower()
