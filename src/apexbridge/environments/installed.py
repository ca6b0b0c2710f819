"""Packages that an interpreter has already: what it has needs no environment."""

import re
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from packaging.utils import canonicalize_name

from apexbridge.environments.declarations import inline_requirements
from apexbridge.errors import ScriptStartError
from apexbridge.sandbox.interpreters import Interpreter, package_folders

_DISTRIBUTION = re.compile(r"\s*([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)")


def require_dependencies(script: Path, interpreter: Interpreter, skill: str) -> None:
    """Check that the packages which the script itself declares can be imported; by name only.

    The sandbox has no network, so a script whose packages are missing would fail half-way.

    Raises:
        ScriptStartError: If packages are missing, or the declaration cannot be read.
    """
    wanted = inline_requirements(script)
    if not wanted:
        return
    missing = missing_packages(wanted, interpreter)
    if missing:
        names = ", ".join(missing)
        raise ScriptStartError(
            code="dependencies_missing",
            reason=f"dependencies_missing: {names}",
            script=script.name,
            packages=names,
            skill=skill,
        )


def missing_packages(requirements: Iterable[str], interpreter: Interpreter) -> list[str]:
    """Return the requirements whose distribution this Python does not have. Blocks."""
    installed = _installed(interpreter)
    return [text for text in requirements if _distribution(text) not in installed]


def _installed(interpreter: Interpreter) -> set[str]:
    folders = [str(folder) for folder in package_folders(interpreter.program)]
    found = (item.metadata["Name"] for item in metadata.distributions(path=folders))
    return {canonicalize_name(name) for name in found if name}


def _distribution(requirement: str) -> str:
    match = _DISTRIBUTION.match(requirement)
    return canonicalize_name(match[1]) if match else requirement
