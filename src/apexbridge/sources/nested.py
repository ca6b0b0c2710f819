"""Skill folders that lie deeper in a project, found when a file near them is touched."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from apexbridge.skills.patterns import Patterns, read_ignore_file
from apexbridge.sources.walking import is_folder, is_passed_over, really

MAX_FOLDERS = 10_000
"""Folders of a project that are looked at, however many files are touched."""

_MAX_IGNORE_BYTES = 1024 * 1024


class NestedRoot(NamedTuple):
    """A folder of skills, and the folder of the project that keeps it."""

    path: Path
    home: Path


class Nesting:
    """Looks from each touched file upward, to the project's folder and not into it."""

    def __init__(self, project: Path, places: Sequence[str]) -> None:
        self._project = project.resolve()
        self._places = tuple(places)
        self._looked_at: set[Path] = set()

    def discover(self, touched: Iterable[Path]) -> list[NestedRoot]:
        """Skill roots that were not known yet, the deepest first.

        Folders that git ignores, hidden ones and those of package managers are passed over.
        """
        found = list[NestedRoot]()
        for folder in self._new_folders(touched):
            here = [folder / place for place in self._places if is_folder(folder / place)]
            if here and not self._is_passed_over(folder):
                found += [NestedRoot(root, folder) for root in here if not self._is_ignored(root)]
        return sorted(found, key=lambda root: -len(root.path.parts))

    def _new_folders(self, touched: Iterable[Path]) -> Iterator[Path]:
        for path in touched:
            start = path if is_folder(path) else path.parent
            for folder in (start, *start.parents):
                if folder == self._project or not folder.is_relative_to(self._project):
                    break
                if folder in self._looked_at or len(self._looked_at) >= MAX_FOLDERS:
                    break  # what lies above it was looked at with it
                self._looked_at.add(folder)
                if is_folder(folder) and really(folder).is_relative_to(self._project):
                    yield folder

    def _is_passed_over(self, folder: Path) -> bool:
        parts = folder.relative_to(self._project).parts
        return any(map(is_passed_over, parts))

    def _is_ignored(self, root: Path) -> bool:
        return is_ignored(root, _top(self._project))


def _top(project: Path) -> Path:
    """The repository's folder; the project's own outside of any repository."""
    for folder in (project, *project.parents):
        if (folder / ".git").exists():
            return folder
    return project


def is_ignored(path: Path, top: Path) -> bool:
    """Say whether git would leave a folder out: it, or any folder on the way to it."""
    steps = [*reversed([p for p in path.parents if p.is_relative_to(top) and p != top]), path]
    rules = [(top, _exclude(top)), *((folder, _rules(folder)) for folder in (top, *steps[:-1]))]
    for step in steps:
        said: bool | None = None
        for folder, patterns in rules:
            if patterns is None or not step.is_relative_to(folder) or step == folder:
                continue
            answer = patterns.verdict(f"{step.relative_to(folder).as_posix()}/")
            said = said if answer is None else answer
        if said:
            return True
    return False


def _exclude(top: Path) -> Patterns | None:
    return _read(top / ".git" / "info" / "exclude")


def _rules(folder: Path) -> Patterns | None:
    return _read(folder / ".gitignore")


def _read(path: Path) -> Patterns | None:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_IGNORE_BYTES)
    except OSError:
        return None
    return read_ignore_file(data.decode("utf-8", "replace"))
