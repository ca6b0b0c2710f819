"""Find the skill folders below a root, whatever the root looks like."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from apexbridge.skills.document import SKILL_MD
from apexbridge.skills.model import FolderId

_NEVER = frozenset({"node_modules", "__pycache__"})
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
class Walk:
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
        below = [item for item in present if is_open_folder(item) and self._may_enter(path, item)]
        return sorted(item.name for item in below), None

    def _may_enter(self, path: str, item: "os.DirEntry[str]") -> bool:
        if self.limits.follows_out or not item.is_symlink():
            return True
        if really(Path(item.path)).is_relative_to(really(Path(self.root))):
            return True
        self.not_followed.append(f"{path}/{item.name}" if path else item.name)
        return False


def is_folder(path: Path) -> bool:
    """Say whether a folder is there, whatever is wrong with the path."""
    try:
        return path.is_dir()
    except OSError:  # a name longer than the disk allows, a folder that may not be entered
        return False


def really(path: Path) -> Path:
    """Where a path leads to; itself where it leads nowhere, as in a ring of links."""
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):
        return path


def is_passed_over(name: str) -> bool:
    """Say whether nothing of this name is looked into."""
    return name.startswith(".") or name in _NEVER


def is_open_folder(item: "os.DirEntry[str]") -> bool:
    """Say whether an entry is a folder that is looked into."""
    try:
        return not is_passed_over(item.name) and item.is_dir()
    except OSError:  # a link into a folder that may not be entered
        return False
