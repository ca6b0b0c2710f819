"""A skill as it lies in a folder or an archive, taken for validation and not yet believed."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from apexbridge.skills import tree
from apexbridge.skills.model import Problem
from apexbridge.skills.reader import read_skill_file


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """The folder's name, the bytes of SKILL.md, the paths there are, and what is odd about them."""

    folder: str
    skill_md: bytes
    files: frozenset[PurePosixPath] = frozenset()
    problems: tuple[Problem, ...] = ()


def open_folder(root: Path) -> Package | Problem:
    """Take a folder; links, devices and too many files in it are problems."""
    file = read_skill_file(root)
    if isinstance(file, Problem):
        return file
    problems = list(file.problems)
    files = frozenset(_paths(root, problems))
    return Package(
        folder=root.resolve().name, skill_md=file.data, files=files, problems=tuple(problems)
    )


def _paths(root: Path, problems: list[Problem]) -> Iterator[PurePosixPath]:
    try:
        for count, entry in enumerate(tree.entries(root), 1):
            if count > tree.MAX_FILES:
                details: dict[str, object] = {"limit": tree.MAX_FILES}
                problems.append(Problem(code="tree_too_large", where=root.name, details=details))
                return
            if not tree.is_litter(entry.path):
                problems += _odd(entry)
                yield entry.path
    except OSError as error:
        details = {"detail": error.strerror or str(error)}
        problems.append(Problem(code="folder_unreadable", where=root.name, details=details))


def _odd(entry: tree.Entry) -> Iterator[Problem]:
    where = str(entry.path).encode("utf-8", "backslashreplace").decode()
    details = {"path": where, "kind": entry.kind}
    if entry.kind in {"link", "device"}:
        yield Problem(code="tree_odd_file", where=where, details=details)
    if where != str(entry.path):
        yield Problem(code="tree_odd_name", where=where, details=details)
