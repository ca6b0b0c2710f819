"""Skill discovery for migrations: find skill folders and archives below given paths."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from apexbridge.skills.document import SKILL_MD
from apexbridge.skills.model import FolderId, Problem
from apexbridge.sources.directory_scanner import (
    DEFAULT_LIMITS,
    ScanLimits,
    is_folder,
    is_skipped,
    resolve_leniently,
)

LAYOUTS = (".apexbridge/skills", ".claude/skills", ".agents/skills")
"""Hidden folders that are searched at the top level of a given path."""
_ARCHIVES = frozenset({".zip", ".skill"})
_MAX_LINK_ENTRIES = 200
"""Entries checked behind a symlink that is not followed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A folder or archive that may be a skill, with the search root it was found below."""

    path: Path
    root: Path
    problems: tuple[Problem, ...] = ()
    """Reasons why it cannot be read, if any."""


def discover_skills(
    roots: Sequence[Path], *, limits: ScanLimits = DEFAULT_LIMITS
) -> tuple[Candidate, ...]:
    """Find every skill folder and archive at and below the roots, in a stable order.

    Skills are not searched for nested ones; hidden and package manager folders are skipped, except
    for the known layouts. A folder is found once, by device and inode, whatever links lead to it. A
    symlink that leaves its root is not followed but reported, unless its target was found
    otherwise. A root that does not exist is empty.
    """
    search = _Discovery(limits=limits)
    for root in roots:
        search.search(root)
    return (*search.found, *search.unfollowed())


@dataclass(frozen=True, slots=True)
class _QueuedFolder:
    """A folder to visit, and its depth below the root."""

    path: Path
    depth: int


@dataclass(slots=True, kw_only=True)
class _Discovery:
    limits: ScanLimits
    found: list[Candidate] = field(default_factory=list[Candidate])
    _seen: set[FolderId] = field(default_factory=set[FolderId])
    _escaping: list[Candidate] = field(default_factory=list[Candidate])

    def search(self, root: Path) -> None:
        """Add the skill or archive at a path, or all of them below it."""
        if root.name.lower() == SKILL_MD.lower() and _is_file(root):
            root = root.parent
        if is_folder(root):
            self._walk(root)
        elif _is_file(root) and self._is_new(root):
            self.found.append(Candidate(path=root, root=root))
        elif _folder_id(root) is not None and not _is_file(root):
            self._report(root, root, "path_unreadable", path=root, detail="not a regular file")

    def _walk(self, root: Path) -> None:
        count, real = 0, resolve_leniently(root)
        pending = [_QueuedFolder(root, 0)]
        while pending:
            step = pending.pop()
            if not self._is_new(step.path):
                continue
            count += 1
            if count > self.limits.max_folders:
                self._report(root, root, "folder_limit", limit=self.limits.max_folders)
                return
            below = self._enter(step, root, real)
            pending += [_QueuedFolder(path, step.depth + 1) for path in reversed(below)]

    def _enter(self, step: _QueuedFolder, root: Path, real: Path) -> list[Path]:
        """Add a skill folder, or the archives in it; return the folders to visit next."""
        try:
            with os.scandir(step.path) as items:
                # File systems list in any order; the result must not depend on it.
                present = sorted(items, key=lambda item: item.name)
        except OSError as error:
            self._report(step.path, root, "folder_unreadable", detail=error.strerror or str(error))
            return []
        if any(item.name.lower() == SKILL_MD.lower() for item in present):
            self.found.append(Candidate(path=step.path, root=root))
            return []
        below = [step.path / inside for inside in LAYOUTS if not step.depth]
        below = [path for path in below if is_folder(path) and self._is_inside(path, root, real)]
        for item in present:
            path = Path(item.path)
            if is_skipped(item.name) or not self._is_inside(path, root, real):
                continue
            if is_folder(path):
                below.append(path)
            elif _is_archive(path) and self._is_new(path):
                self.found.append(Candidate(path=path, root=root))
        return below if step.depth < self.limits.max_depth else []

    def _is_inside(self, path: Path, root: Path, real: Path) -> bool:
        """Say whether a path stays below its root; a symlink to skills elsewhere is noted."""
        if resolve_leniently(path).is_relative_to(real):
            return True
        if _contains_skills(path):
            details = {"path": path, "target": resolve_leniently(path)}
            problem = Problem(code="link_leads_out", where=path.name, details=details)
            self._escaping.append(Candidate(path=path, root=root, problems=(problem,)))
        return False

    def _is_new(self, path: Path) -> bool:
        identity = _folder_id(path)
        if identity is None or identity in self._seen:
            return False
        self._seen.add(identity)
        return True

    def _report(self, path: Path, root: Path, code: str, /, **details: object) -> None:
        problem = Problem(code=code, where=path.name, details=details)
        self.found.append(Candidate(path=path, root=root, problems=(problem,)))

    def unfollowed(self) -> Iterator[Candidate]:
        """Yield the symlinks that were not followed and whose targets were not found otherwise."""
        for candidate in self._escaping:
            if self._is_new(candidate.path):
                yield candidate


def _folder_id(path: Path) -> FolderId | None:
    try:
        status = path.stat()
    except OSError:  # a dangling symlink, or a symlink loop
        return None
    return FolderId(status.st_dev, status.st_ino)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


def _is_archive(path: Path) -> bool:
    return path.suffix.lower() in _ARCHIVES and _is_file(path)


def _contains_skills(path: Path) -> bool:
    """Say whether a path is a skill or archive, or a folder with some directly below it."""
    below = islice(_list_folder(path), _MAX_LINK_ENTRIES)
    return _is_skill(path) or any(_is_skill(path / name) for name in below)


def _is_skill(path: Path) -> bool:
    return _is_archive(path) or any(name.lower() == SKILL_MD.lower() for name in _list_folder(path))


def _list_folder(path: Path) -> list[str]:
    try:
        return [inside.name for inside in path.iterdir()]
    except OSError:  # not a folder, or not readable
        return []
