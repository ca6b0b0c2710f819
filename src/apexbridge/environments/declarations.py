"""Declared packages of a skill: PEP 723, shebangs, `requirements.txt`, `pyproject.toml`, npm.

Where its Python declares nothing, the packages are guessed from the imports.
"""

import codecs
import json
import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from apexbridge.environments import import_scan
from apexbridge.environments.needs import (
    MAX_PACKAGES,
    Package,
    Refusal,
    SkillNeeds,
    merge,
    node_package,
    python_package,
)
from apexbridge.environments.node_imports import guess_node_packages
from apexbridge.errors import ScriptStartError
from apexbridge.paths import safe_join
from apexbridge.regular_files import open_regular, read_regular
from apexbridge.skills.shebang import shebang_requirements

_PEP723_BLOCK = re.compile(
    r"^# /// script[ \t]*\n((?:#(?:| [^\n]*)\n)+?)# ///[ \t]*$", re.MULTILINE
)
_HEAD_BYTES = 64 * 1024
_MAX_FILE_BYTES = 256 * 1024
_UTF_16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""PowerShell writes `pip freeze > requirements.txt` so."""
_MAX_INCLUDED = 10
_MAX_LINES = 2_000
_OTHER_PURPOSE = re.compile(r"dev|test|lint|doc|ci\b|build|gpu|cuda", re.IGNORECASE)
_INCLUDE = re.compile(r"(?:-r|--requirement)[ =]*(\S+)")
_FOLDERS = ("", "scripts")


def skill_needs(root: Path) -> SkillNeeds:
    """Read every declaration of a skill, else guess from imports. Blocks; never raises.

    Nothing of the skill is run.
    """
    return merge(_skill_needs(root.resolve()))


def _skill_needs(root: Path) -> Iterator[Package | Refusal | None]:
    sources = import_scan.script_sources(root)
    inline = {path: _inline_packages(root, path) for path in sources}
    for found in inline.values():
        yield from found or ()
    files = list(_requirement_files(root)) + list(_pyproject_files(root))
    yield from files
    if not any(isinstance(item, Package) for item in files):
        silent = [path for path, found in inline.items() if found is None]
        declared = {item.name for found in inline.values() for item in found or ()
                    if isinstance(item, Package)}  # fmt: skip
        yield from _guess(root, silent, declared)
    node = list(_node_files(root))
    yield from node
    if not any(isinstance(item, Package) for item in node):
        yield from guess_node_packages(root)


def _inline_packages(root: Path, path: Path) -> list[Package | Refusal | None] | None:
    """Return what a script declares itself; None if it has no declaration."""
    where = path.relative_to(root).as_posix()
    try:
        wanted = inline_requirements(path)
    except ScriptStartError as error:
        return [Refusal(text=str(error.details["detail"]), where=where, reason="unreadable")]
    if wanted is None:
        return None
    return [python_package(text, where) for text in wanted[: MAX_PACKAGES + 1]]


def inline_requirements(script: Path) -> tuple[str, ...] | None:
    """Return the requirements in a script's inline metadata and shebang; None if it has neither.

    Raises:
        ScriptStartError: If the metadata cannot be read.
    """
    with open_regular(script) as file:
        head = file.read(_HEAD_BYTES)
    asked = shebang_requirements(head.split(b"\n", 1)[0])
    match = _PEP723_BLOCK.search(head.decode("utf-8", "replace").replace("\r\n", "\n"))
    if match is None:
        return asked or None
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
    return (*asked, *_strings(wanted))


def _requirement_files(root: Path) -> Iterator[Package | Refusal | None]:
    for folder in _FOLDERS:
        for path in sorted((root / folder).glob("requirements*.txt")):
            if not _OTHER_PURPOSE.search(path.stem) or path.name == "requirements.txt":
                yield from _requirement_file(root, path, [])


def _requirement_file(
    root: Path, path: Path, seen: list[Path]
) -> Iterator[Package | Refusal | None]:
    """Read one file, and those that it includes from inside of the skill."""
    where = path.relative_to(root).as_posix()
    text = _read(root, path)
    if path in seen or len(seen) >= _MAX_INCLUDED or text is None:
        return
    seen.append(path)
    lines = text.replace("\\\n", " ").splitlines()
    if len(lines) > _MAX_LINES:
        yield Refusal(text=f"> {_MAX_LINES}", where=where, reason="too_many")
    for line in lines[:_MAX_LINES]:
        include = _INCLUDE.match(line.strip())
        if include is None:
            yield python_package(line, where)
            continue
        near = _inside(root, path.parent / include[1])
        if near is None:
            yield Refusal(text=line.strip()[:200], where=where, reason="path")
        else:
            yield from _requirement_file(root, near, seen)


def _inside(root: Path, path: Path) -> Path | None:
    real = path.resolve()
    is_inside = real.is_relative_to(root) and real.is_file()
    return safe_join(root, real.relative_to(root).as_posix()) if is_inside else None


def _pyproject_files(root: Path) -> Iterator[Package | Refusal | None]:
    for folder in _FOLDERS:
        text = _read(root, root / folder / "pyproject.toml")
        if text is None:
            continue
        where = (Path(folder) / "pyproject.toml").as_posix()
        try:
            project: Any = tomllib.loads(text).get("project", {})
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            yield Refusal(text=str(error)[:200], where=where, reason="unreadable")
            continue
        wanted: Any = project.get("dependencies") if isinstance(project, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        for one in _strings(wanted):  # pyright: ignore[reportUnknownArgumentType]
            yield python_package(one, where)


def _node_files(root: Path) -> Iterator[Package | Refusal]:
    for folder in _FOLDERS:
        text = _read(root, root / folder / "package.json")
        if text is None:
            continue
        where = (Path(folder) / "package.json").as_posix()
        try:
            manifest: Any = json.loads(text)
        except (ValueError, RecursionError) as error:
            yield Refusal(text=str(error)[:200], where=where, reason="unreadable")
            continue
        wanted: Any = manifest.get("dependencies") if isinstance(manifest, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        if isinstance(wanted, dict):
            for name, version in wanted.items():  # pyright: ignore[reportUnknownVariableType]
                yield node_package(str(name), str(version), where)  # pyright: ignore[reportUnknownArgumentType]


def _guess(root: Path, sources: Sequence[Path], declared: set[str]) -> Iterator[Package | None]:
    for found, path in import_scan.foreign_imports(root, sources):
        names = import_scan.distributions_of(found.module)
        if names and not declared.intersection(names):
            certainty = "optional" if found.is_optional else "guess"
            item = python_package(names[0], path.relative_to(root).as_posix(), certainty)
            yield item if isinstance(item, Package) else None


def _strings(value: object) -> tuple[str, ...]:
    listed: list[object] = value if isinstance(value, list) else []  # pyright: ignore[reportUnknownVariableType]
    return tuple(item for item in listed if isinstance(item, str))


def _read(root: Path, path: Path) -> str | None:
    """Read a file of the skill; a link that leads out of it is not followed."""
    try:
        if not path.resolve().is_relative_to(root) or not path.is_file():
            return None
        if path.stat().st_size > _MAX_FILE_BYTES:
            return None
        data = read_regular(path.resolve(), _MAX_FILE_BYTES)
        encoding = "utf-16" if data.startswith(_UTF_16_MARKS) else "utf-8-sig"
        return data.decode(encoding, errors="replace")
    except (OSError, RuntimeError):  # a loop of links
        return None
