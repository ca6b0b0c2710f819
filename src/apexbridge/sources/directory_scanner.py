"""Find the skill folders below a root, whatever the root looks like."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from apexbridge.path_patterns import PathMatcher, parse_gitignore
from apexbridge.skills.document import SKILL_MD
from apexbridge.skills.model import FolderId

_SKIPPED_FOLDERS = frozenset({"node_modules", "__pycache__"})
"""Folders of package managers and caches: no author keeps skills there."""
_SKILL_MD = SKILL_MD.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanLimits:
    """How far a scan goes; a root of any size ends."""

    max_depth: int = 6
    max_folders: int = 2_000
    follows_out: bool = True
    """Whether links are followed that lead out of the root."""


DEFAULT_LIMITS = ScanLimits()


class SkillFolder(NamedTuple):
    """A folder with a SKILL.md: its path below the root, which folder of the disk it is, its files.

    Of a folder that cannot be listed there are no entries.
    """

    path: str
    identity: FolderId
    entries: "tuple[os.DirEntry[str], ...]" = ()


@dataclass(slots=True)
class DirectoryScanner:
    """One walk. Links are followed once, nothing is looked for inside a skill."""

    root: str
    limits: ScanLimits
    is_cut: bool = False
    """Whether the root has more folders than are looked at."""
    looked_at: list[str] = field(default_factory=list[str])
    """Folders that are no skills: new skills would appear in them."""
    not_followed: list[str] = field(default_factory=list[str])
    """Links that lead out, to folders that are not looked into."""

    def skills(self) -> Iterator[SkillFolder]:
        """Skill folders in a fixed order.

        Raises:
            OSError: If the root itself cannot be listed; one that does not exist holds nothing.
        """
        seen, visited = set[FolderId](), 0
        pending = [("", 0)]
        while pending:
            path, depth = pending.pop()
            identity = self._identity(path)
            if identity is None or identity in seen:
                continue
            seen.add(identity)
            visited += 1
            if visited > self.limits.max_folders + 1:
                self.is_cut = True
                return
            names, entries = self._look(path)
            if entries is not None and depth:
                yield SkillFolder(path, identity, entries)
                continue
            self.looked_at.append(path)
            if depth < self.limits.max_depth:
                below = f"{path}/" if path else ""
                pending += [(f"{below}{name}", depth + 1) for name in reversed(names)]

    def _identity(self, path: str) -> FolderId | None:
        try:
            status = os.stat(f"{self.root}/{path}")  # noqa: PTH116, one call for each of thousands
        except FileNotFoundError:
            return None
        except OSError:
            if not path:
                raise
            return None
        return FolderId(status.st_dev, status.st_ino)

    def _look(self, path: str) -> "tuple[list[str], tuple[os.DirEntry[str], ...] | None]":
        """The folders below; or, if this one is a skill, all that lies in it."""
        try:
            with os.scandir(f"{self.root}/{path}") as items:
                present = list(items)
        except FileNotFoundError:
            return [], None
        except OSError:
            if not path:
                raise
            return [], ()  # reading it as a skill will say what is wrong with it
        if any(item.name.lower() == _SKILL_MD for item in present):
            return [], tuple(present)
        below = [
            item for item in present if is_scannable_folder(item) and self._may_enter(path, item)
        ]
        return sorted(item.name for item in below), None

    def _may_enter(self, path: str, item: "os.DirEntry[str]") -> bool:
        if self.limits.follows_out or not item.is_symlink():
            return True
        if resolve_leniently(Path(item.path)).is_relative_to(resolve_leniently(Path(self.root))):
            return True
        self.not_followed.append(f"{path}/{item.name}" if path else item.name)
        return False


def is_folder(path: Path) -> bool:
    """Say whether a folder is there, whatever is wrong with the path."""
    try:
        return path.is_dir()
    except OSError:  # a name longer than the disk allows, a folder that may not be entered
        return False


def resolve_leniently(path: Path) -> Path:
    """Where a path leads to; itself where it leads nowhere, as in a ring of links."""
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):
        return path


def is_skipped(name: str) -> bool:
    """Say whether nothing of this name is looked into."""
    return name.startswith(".") or name in _SKIPPED_FOLDERS


def is_scannable_folder(item: "os.DirEntry[str]") -> bool:
    """Say whether an entry is a folder that is looked into."""
    try:
        return not is_skipped(item.name) and item.is_dir()
    except OSError:  # a link into a folder that may not be entered
        return False


MAX_FOLDERS = 10_000
"""Folders of a project that are looked at, however many files are touched."""

_MAX_IGNORE_BYTES = 1024 * 1024


class NestedRoot(NamedTuple):
    """A folder of skills, and the folder of the project that keeps it."""

    path: Path
    home: Path


class NestedDiscovery:
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
                if is_folder(folder) and resolve_leniently(folder).is_relative_to(self._project):
                    yield folder

    def _is_passed_over(self, folder: Path) -> bool:
        parts = folder.relative_to(self._project).parts
        return any(map(is_skipped, parts))

    def _is_ignored(self, root: Path) -> bool:
        return is_gitignored(root, _repository_root(self._project))


def _repository_root(project: Path) -> Path:
    """The repository's folder; the project's own outside of any repository."""
    for folder in (project, *project.parents):
        if (folder / ".git").exists():
            return folder
    return project


def is_gitignored(path: Path, top: Path) -> bool:
    """Say whether git would leave a folder out: it, or any folder on the way to it."""
    steps = [*reversed([p for p in path.parents if p.is_relative_to(top) and p != top]), path]
    rules = [
        (top, _git_exclude(top)),
        *((folder, _gitignore(folder)) for folder in (top, *steps[:-1])),
    ]
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


def _git_exclude(top: Path) -> PathMatcher | None:
    return _read_ignore_file(top / ".git" / "info" / "exclude")


def _gitignore(folder: Path) -> PathMatcher | None:
    return _read_ignore_file(folder / ".gitignore")


def _read_ignore_file(path: Path) -> PathMatcher | None:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_IGNORE_BYTES)
    except OSError:
        return None
    return parse_gitignore(data.decode("utf-8", "replace"))
