"""Packages that an interpreter has already: what it has needs no environment."""

import re
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from apexbridge.environments.declarations import inline_requirements
from apexbridge.errors import ScriptStartError
from apexbridge.sandbox.interpreters import Interpreter, package_folders, program_version

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
    installed = _installed(interpreter)
    missing = [text for text in wanted if _distribution(text) not in installed]
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
    """Return the requirements that this Python does not meet: absent, or another version. Blocks.

    A requirement whose marker excludes this Python is met by nothing being there.
    """
    installed = _installed(interpreter)
    version = program_version(interpreter.program).rpartition(" ")[2]
    python = {
        "python_full_version": version,
        "python_version": ".".join(version.split(".")[:2]),
    }
    return [text for text in requirements if not _is_met(text, installed, python)]


def _is_met(text: str, installed: Mapping[str, str], python: Mapping[str, str]) -> bool:
    try:
        wanted = Requirement(text)
        if wanted.marker is not None and not wanted.marker.evaluate(dict(python)):
            return True
        version = installed.get(canonicalize_name(wanted.name))
        if version is None or wanted.extras:  # an extra is more packages, which are not looked up
            return False
        return wanted.specifier.contains(version, prereleases=True)
    except ValueError:  # an invalid requirement, or a version that a distributor made up
        return False


def _installed(interpreter: Interpreter) -> dict[str, str]:
    """Return the version of each distribution; of two with one name, that which is imported."""
    folders = [str(folder) for folder in package_folders(interpreter.program)]
    found = [(item.metadata["Name"], item.version) for item in metadata.distributions(path=folders)]
    return {canonicalize_name(name): version for name, version in reversed(found) if name}


def _distribution(requirement: str) -> str:
    match = _DISTRIBUTION.match(requirement)
    return canonicalize_name(match[1]) if match else requirement
