"""Find the skills that lie in other layouts: folders and archives, below any number of places."""

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
"""Hidden folders that are looked into all the same, in a place that somebody names."""
_ARCHIVES = frozenset({".zip", ".skill"})
_MAX_LINK_ENTRIES = 200
"""Folders that are looked into behind a link that is not followed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A folder or archive that may be a skill, and the place it was found in."""

    path: Path
    place: Path
    problems: tuple[Problem, ...] = ()
    """Why it cannot be looked at, where it cannot."""


def discover_skills(
    places: Sequence[Path], *, limits: ScanLimits = DEFAULT_LIMITS
) -> tuple[Candidate, ...]:
    """Find every skill folder and archive at and below the places, in a fixed order.

    Nothing is looked for inside a skill; hidden folders and those of package managers are passed
    over, except for the known layouts. What lies in one real place is found once, however many ways
    lead there. A link that leads out of its place is not followed: what it leads to is told, unless
    it was found on another way. A place that does not exist holds nothing.
    """
    search = _Discovery(limits=limits)
    for place in places:
        search.look_at(place)
    return (*search.found, *search.left_out())


@dataclass(frozen=True, slots=True)
class _QueuedFolder:
    """A folder on the way, and how deep below its place it is."""

    path: Path
    depth: int


@dataclass(slots=True, kw_only=True)
class _Discovery:
    limits: ScanLimits
    found: list[Candidate] = field(default_factory=list[Candidate])
    _seen: set[FolderId] = field(default_factory=set[FolderId])
    _outward: list[Candidate] = field(default_factory=list[Candidate])

    def look_at(self, place: Path) -> None:
        """Take what lies at a place, or all that lies below it."""
        if place.name.lower() == SKILL_MD.lower() and _is_file(place):
            place = place.parent
        if is_folder(place):
            self._walk(place)
        elif _is_file(place) and self._is_new(place):
            self.found.append(Candidate(path=place, place=place))
        elif _folder_id(place) is not None and not _is_file(place):
            self._tell(place, place, "path_unreadable", path=place, detail="it is no regular file")

    def _walk(self, place: Path) -> None:
        count, real = 0, resolve_leniently(place)
        pending = [_QueuedFolder(place, 0)]
        while pending:
            step = pending.pop()
            if not self._is_new(step.path):
                continue
            count += 1
            if count > self.limits.max_folders:
                self._tell(place, place, "folder_limit", limit=self.limits.max_folders)
                return
            below = self._enter(step, place, real)
            pending += [_QueuedFolder(path, step.depth + 1) for path in reversed(below)]

    def _enter(self, step: _QueuedFolder, place: Path, real: Path) -> list[Path]:
        """Take a folder that is a skill, or the archives in it; the folders to look into next."""
        try:
            with os.scandir(step.path) as items:
                present = sorted(items, key=lambda item: item.name)
        except OSError as error:
            self._tell(step.path, place, "folder_unreadable", detail=error.strerror or str(error))
            return []
        if any(item.name.lower() == SKILL_MD.lower() for item in present):
            self.found.append(Candidate(path=step.path, place=place))
            return []
        below = [step.path / inside for inside in LAYOUTS if not step.depth]
        below = [path for path in below if is_folder(path) and self._is_inside(path, place, real)]
        for item in present:
            path = Path(item.path)
            if is_skipped(item.name) or not self._is_inside(path, place, real):
                continue
            if is_folder(path):
                below.append(path)
            elif _is_archive(path) and self._is_new(path):
                self.found.append(Candidate(path=path, place=place))
        return below if step.depth < self.limits.max_depth else []

    def _is_inside(self, path: Path, place: Path, real: Path) -> bool:
        """Say whether a path stays in its place; a link that would bring skills in is noted."""
        if resolve_leniently(path).is_relative_to(real):
            return True
        if _contains_skills(path):
            details = {"path": path, "target": resolve_leniently(path)}
            told = Problem(code="link_leads_out", where=path.name, details=details)
            self._outward.append(Candidate(path=path, place=place, problems=(told,)))
        return False

    def _is_new(self, path: Path) -> bool:
        identity = _folder_id(path)
        if identity is None or identity in self._seen:
            return False
        self._seen.add(identity)
        return True

    def _tell(self, path: Path, place: Path, code: str, /, **details: object) -> None:
        told = Problem(code=code, where=path.name, details=details)
        self.found.append(Candidate(path=path, place=place, problems=(told,)))

    def left_out(self) -> Iterator[Candidate]:
        """The links that nobody followed, as far as nothing else led where they lead."""
        for candidate in self._outward:
            if self._is_new(candidate.path):
                yield candidate


def _folder_id(path: Path) -> FolderId | None:
    try:
        status = path.stat()
    except OSError:  # a link that leads nowhere, or in a ring
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
    """Say whether a link leads to a skill, or to a folder with some right below it."""
    below = islice(_list_folder(path), _MAX_LINK_ENTRIES)
    return _is_skill(path) or any(_is_skill(path / name) for name in below)


def _is_skill(path: Path) -> bool:
    return _is_archive(path) or any(name.lower() == SKILL_MD.lower() for name in _list_folder(path))


def _list_folder(path: Path) -> list[str]:
    try:
        return [inside.name for inside in path.iterdir()]
    except OSError:  # no folder, or one that may not be looked into
        return []
